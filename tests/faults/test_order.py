"""A power failure may come too: files are synced before they are renamed, and names before anything is deleted."""

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePath

import pytest
from helpers.harness import Job

from faults.conftest import Case

Event = tuple[str, str, str]
"""(call, path, second path or empty); the paths are relative to the run folder."""

NAMES = {"replace": "rename", "renameat": "rename", "renameat2": "rename", "tear": "write", "pwrite64": "write"}
NAMES |= {"remove": "unlink", "unlinkat": "unlink", "rmdir": "unlink", "fdatasync": "fsync"}


def recorded(points: list[str]) -> list[Event]:
    events = [(*point.split(" "), "")[:3] for point in points]
    return [(NAMES.get(call, call), path, to) for call, path, to in events]


def traced(job: Job, folder: Path) -> list[Event]:
    """Return the system calls of a run, as strace sees them."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    calls = "write,pwrite64,fsync,fdatasync,?rename,?renameat,renameat2,?unlink,unlinkat,?rmdir"
    command = ["strace", "-f", "-y", "--seccomp-bpf", "-e", f"trace={calls}", "-s", "0", "-o", str(folder / "log")]
    command += [sys.executable, "-m", "mtcli", *job.command(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"}, cwd=folder)
    if "ptrace" in done.stderr:
        pytest.skip(f"no tracing here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    events = []
    for line in (folder / "log").read_text().splitlines():
        if call := re.match(r"\d+ +(\w+)\((.*?)(?:\) += 0|\) += \d|<unfinished)", line):
            paths = [PurePath(a or b) for a, b in re.findall(r'<(/[^>]*)>|"([^"]*)"', call[2])]
            if call[1] == "unlinkat" and len(paths) > 1:
                paths = [paths[0] / paths[1]]
            names = [str(p.relative_to(folder / "run")) for p in paths if p.is_relative_to(folder / "run")]
            if names:
                names = [re.sub(r"\d{8,}", "N", name) for name in names]
                events.append((NAMES.get(call[1], call[1]), *(*names, "")[:2]))
    return events


UNFINISHED = r"(^|/)\.(tmp-[^/]+/|[^/]+\.tmp$)"
"""Temporary files. One that a killed process has left is deleted before it is written again."""


def check_order(events: list[Event]) -> int:
    """Assert the order of write, fsync, rename and fsync of the folder. Return the number of renames."""
    unsynced: set[str] = set()
    known: set[str] = set()
    renamed: set[str] = set()
    written = ""
    renames = 0
    for call, path, to in events:
        if call in ("open", "mkdir", "write") and path not in (*known, ".", ".lock"):
            known.add(path)
            unsynced.add(str(PurePath(path).parent))  # a new name
        if call == "write" and path != ".lock":
            unsynced.add(path)
            written = path
        elif call == "fsync":
            unsynced.discard(path)
            renamed.discard(path)
        elif call == "rename":
            known = {p for p in known if not PurePath(p).is_relative_to(path)}
            if PurePath(to).name.startswith("."):
                continue  # it will be deleted
            assert not {p for p in unsynced if PurePath(p).is_relative_to(path)}, f"{path} is not on disk yet"
            if path.startswith("checkpoints/"):
                assert written == f"{path}/manifest.json", "the manifest is not the last to be written"
                assert not unsynced & {".", "metrics.jsonl"}, "the checkpoint counts lines that may be lost"
            renamed.add(str(PurePath(to).parent))
            renames += 1
        elif call == "unlink" and not re.search(UNFINISHED, path):
            assert not renamed, f"{path} is deleted before the new names in {renamed} are on disk"
    assert not renamed
    return renames


def test_02_order_of_writes_as_python_calls(case: Case, seen: list[str]) -> None:
    with case.fault():
        assert check_order(recorded(seen)) > 20


@pytest.mark.slow
def test_02_order_of_writes_as_the_kernel_sees_it(case: Case, job: Job, seen: list[str], tmp_path: Path) -> None:
    with case.fault():
        events = traced(job, tmp_path)
        assert check_order(events) > 20
        watched = {event for event in recorded(seen) if event[0] in ("write", "fsync", "rename", "unlink")}
        assert set(events) <= watched, "the tests do not see every write point"
