"""Full and read-only disks, and files that are damaged or have changed since the run began."""

import hashlib
import itertools
import json
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from helpers import points
from helpers.harness import (
    DERIVED_FILES,
    Job,
    contents,
    cut,
    earlier,
    flip,
    limit,
    outcome,
    refused,
    run,
    start,
    unharmed,
    until,
    whole,
)
from safetensors.torch import load, save

from faults.conftest import Case
from mtcli.storage.checkpoint import FORMAT

Count = Callable[[int, int], int]

# ---- storage ----


@contextmanager
def mounted(folder: Path, commands: str) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """Run mount commands in a new namespace. Yield the path of the folder there, and a function for more commands."""
    holder = subprocess.Popen(
        ["unshare", "-rm", "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert holder.stdin
    assert holder.stdout

    def do(command: str) -> None:
        print(f"{command} && echo done || echo failed", file=holder.stdin, flush=True)
        said = list(
            itertools.takewhile(lambda line: line not in ("done\n", "failed\n", ""), iter(holder.stdout.readline, ""))
        )
        if holder.poll() is not None or said:
            pytest.skip(f"no mounts here: {''.join(said).strip()}")

    try:
        do(commands.format(folder=folder))
        yield Path(f"/proc/{holder.pid}/root{folder}"), do
    finally:
        holder.stdin.close()
        holder.wait()


def test_15_tmpfs_full(case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count) -> None:
    with mounted(tmp_path, "mount -t tmpfs -o size=64m tmpfs {folder}") as (disk, mount):
        for i in range(count(16, 1)):
            out = disk / str(i)
            if i % 2 == 0:
                shutil.copytree(begun, out)
            before = earlier(out)
            used = sum(p.stat().st_blocks * 512 for p in disk.rglob("*"))
            mount(f"mount -o remount,size={(used >> 10) + 4 * rng.randint(1, 24)}k {tmp_path}")
            with case.fault():
                refused(run(*job.command(out)), 5, "No space left on device", "free some space")
                unharmed(out, before)
                mount(f"mount -o remount,size=64m {tmp_path}")
                job.is_done(out, max(whole(out), default=None))
            shutil.rmtree(out)


@pytest.mark.slow
@pytest.mark.parametrize("within", [[], [points.write_in_background]], ids=["", "in the background"])
def test_16_rlimit_fsize(
    case: Case,
    job: Job,
    begun: Path,
    tmp_path: Path,
    rng: random.Random,
    count: Count,
    within: list[Callable[[], None]],
) -> None:
    sizes = [
        p.stat().st_size
        for p in begun.rglob("*")
        if p.is_file() and p.stat().st_size > 500 and p.name not in DERIVED_FILES
    ]
    for i in range(count(8, 1)):
        out = tmp_path / str(i)
        if i % 2 == 0:
            shutil.copytree(begun, out)
        before = earlier(out)
        most = rng.choice(sizes) - rng.randint(1, 400) if i % 2 else rng.randint(2000, 40000)
        with case.fault():
            result = run(*job.command(out), within=[*within, partial(limit, resource.RLIMIT_FSIZE, most)])
            refused(result, 5, "File too large", "ulimit -f")
            unharmed(out, before)
            job.is_done(out, max(whole(out), default=None))


@pytest.mark.slow
def test_17_log_full(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    longer = ("--max-steps", "150")  # so that the log grows by more than the rest of its last page
    extended = shutil.copytree(job.clean, tmp_path / "extended")
    assert run(*job.command(extended, *longer)).code == 0
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        small = tmp_path / f"small-{i}"
        shutil.copytree(job.clean, out)
        small.mkdir()
        before = earlier(out)
        log = out / "metrics.jsonl"
        commands = [
            "mount -t tmpfs -o size=32k tmpfs {folder}",
            f"cp {log} {{folder}}",
            f"mount --bind {{folder}}/metrics.jsonl {log}",
        ]
        with mounted(small, " && ".join(commands)) as (disk, _), case.fault():
            seen = Path(str(disk).removesuffix(str(small)) + str(out))  # the run, as it is where the log has its disk
            with pytest.raises(OSError, match="No space"):
                (disk / "other").write_bytes(b"x" * 40_000)  # fill the disk except for the last page of the log
            refused(run(*job.command(seen, *longer)), 5, "metrics.jsonl", "No space left on device")
            unharmed(seen, before)
            (disk / "other").unlink()
            assert run(*job.command(seen, *longer)).code == 0
            assert outcome(seen) == outcome(extended)


def test_18_readonly_mount(case: Case, job: Job, begun: Path, tmp_path: Path, count: Count) -> None:
    shutil.copytree(begun, tmp_path / "begun")
    readonly = "mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    for name in ["new", "begun"] * count(2, 1):
        with mounted(tmp_path, readonly) as (disk, _), case.fault():
            before = contents(tmp_path)
            refused(run(*job.command(disk / name)), 5, "Read-only file system", "choose another folder")
            assert contents(tmp_path) == before


@pytest.mark.slow
def test_19_few_fds(case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count) -> None:
    every = [(goes_on, left) for goes_on in (True, False) for left in range(5)]
    for goes_on, left in rng.sample(every, count(len(every), 1)):
        out = tmp_path / f"{left}-{goes_on}"
        if goes_on:
            shutil.copytree(begun, out)
        before = earlier(out)
        with case.fault():
            result = run(*job.command(out), within=[partial(leave_descriptors, left)])
            if result.code:  # four can be enough
                refused(result, 5, "Too many open files", "ulimit -n")
            unharmed(out, before)
            job.is_done(out)


def leave_descriptors(n: int) -> None:
    """Allow this process n more open files."""
    limit(resource.RLIMIT_NOFILE, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + n)


def test_20_output_is_file(case: Case, job: Job, tmp_path: Path) -> None:
    out = tmp_path / "file"
    out.write_text("mine")
    with case.fault():
        refused(run(*job.command(out)), 2, str(out), "is a file", "--out")
        assert out.read_text() == "mine"


# ---- damage ----


def damage(case: Case, job: Job, begun: Path, out: Path, harm: Callable[[Path], None], *words: str) -> None:
    """Damage the newest checkpoint: the previous one must be used, with a warning, and the result must be the same."""
    shutil.copytree(begun, out)
    before, newest = whole(out)[-2:]
    with case.fault():
        harm(out / f"checkpoints/step-{newest:08d}")
        done = run(*job.command(out))
        assert done.code == 0, done.err
        assert f"step-{newest:08d} is damaged" in done.err
        assert f"resuming at step {before}\n" in done.err
        for word in words:
            assert word in done.err
        job.is_done(out)
    shutil.rmtree(out)


FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.mark.slow
def test_21_checkpoint_truncated(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for name in rng.sample(FILES * 2, count(8, 1)):
        damage(
            case,
            job,
            begun,
            tmp_path / "run",
            lambda at, name=name: cut(at / name, rng),
        )


def test_22_checkpoint_bitflip(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for name in rng.sample(FILES * 2, count(8, 1)):
        damage(case, job, begun, tmp_path / "run", lambda at, name=name: flip(at / name, rng))


@pytest.mark.slow
def test_23_checkpoint_file_missing(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for name in rng.sample(FILES, count(4, 1)):
        damage(case, job, begun, tmp_path / "run", lambda at, name=name: (at / name).unlink(), f"{name} is missing")


def test_24_all_checkpoints_bad(case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random) -> None:
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    for path in out.glob("checkpoints/step-*"):
        flip(path / rng.choice(FILES), rng)
    before = contents(out)
    with case.fault():
        refused(run(*job.command(out)), 4, "every checkpoint is damaged", "--overwrite")
        assert contents(out) == before


def resign(checkpoint: Path) -> None:
    """Make the manifest agree with the files, so that only their content can be refused."""
    files = {name: (checkpoint / name).read_bytes() for name in FILES[1:]}
    facts = {name: {"size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in files.items()}
    (checkpoint / "manifest.json").write_text(json.dumps(facts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_25_nan_in_weights(case: Case, job: Job, begun: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    path = out / f"checkpoints/step-{whole(out)[-1]:08d}"
    tensors = load((path / name).read_bytes())
    first = min(key for key in tensors if tensors[key].dim())
    tensors[first].view(-1)[0] = float("nan")
    (path / name).write_bytes(save(tensors))
    resign(path)
    before = contents(out)
    with case.fault():
        refused(run(*job.command(out)), 4, f"{path.name}/{name}", first, "NaN")
        assert contents(out) == before


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["shape", "missing", "format"])
def test_26_wrong_shape_or_newer_format(case: Case, job: Job, begun: Path, tmp_path: Path, harm: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    path = out / f"checkpoints/step-{whole(out)[-1]:08d}"
    tensors = load((path / "model.safetensors").read_bytes())
    first = min(key for key in tensors if tensors[key].dim() == 2)
    words = [first]
    if harm == "format":
        state = json.loads((path / "state.json").read_bytes())
        (path / "state.json").write_text(json.dumps(state | {"format": FORMAT + 1}))
        words = [f"format {FORMAT + 1}", "update mtcli"]
    else:
        weight = tensors.pop(first)
        more = {first: weight.T.contiguous()[:3]} if harm == "shape" else {}
        (path / "model.safetensors").write_bytes(save(tensors | more))
    resign(path)
    before = contents(out)
    with case.fault():
        refused(run(*job.command(out)), 4, path.name, *words)
        assert contents(out) == before


@pytest.mark.slow
def test_21_truncated_metrics_are_mended(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        shutil.copytree(begun, out)
        with case.fault():
            cut(out / "metrics.jsonl", rng)
            done = run(*job.command(out))
            assert done.code == 0, done.err
            assert "metrics.jsonl was cut short" in done.err
            assert outcome(out, but="metrics.jsonl") == outcome(job.clean, but="metrics.jsonl")
            assert json.loads((out / "metrics.jsonl").read_bytes().splitlines()[-1])["event"] == "end"
            assert all(json.loads(line) for line in (out / "metrics.jsonl").read_bytes().splitlines())
            again = run(*job.command(out))
            assert (again.code, "cut short" in again.err) == (0, False)


# ---- two processes, and a killed one ----


@pytest.mark.slow
def test_27_two_trainers(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        with case.fault():
            first = start(*job.command(out))
            until((out / "metrics.jsonl").exists, first)
            first.send(signal.SIGSTOP)  # so that it still holds the lock
            refused(run(*job.command(out)), 7, f"process {first.pid} is training here")
            refused(run(*job.command(out, "--overwrite")), 7, f"process {first.pid} is training here")
            first.send(signal.SIGCONT)
            assert first.wait().code == 0
            job.is_done(out)


@pytest.mark.slow
def test_28_stale_lock_after_kill9(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        with case.fault():
            first = start(*job.command(out))
            until((out / "metrics.jsonl").exists, first)
            first.send(signal.SIGKILL)
            assert first.wait().code == -signal.SIGKILL
            assert (out / ".lock").read_text() == str(first.pid)
            job.is_done(out)


# ---- changes since the run began ----


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.arrow", "valid.jsonl", "test.jsonl", "info.json"])
def test_29_cache_corrupt(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count, name: str
) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        shutil.copytree(begun, out)
        path = out / "data" / name
        with case.fault():
            harm = rng.choice(["flip", "cut", "delete"])
            if harm == "flip":
                flip(path, rng)
            elif harm == "cut":
                cut(path, rng)
            else:
                path.unlink()
            done = run(*job.command(out))
            assert done.code == 0, done.err
            assert f"{path} " in done.err or harm == "delete"
            job.is_done(out)


@pytest.fixture
def own(job: Job, begun: Path, tmp_path: Path) -> Job:
    """The job with its own copies of the files, which a test can change."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("train", "valid", "test"):
        shutil.copy(job.folder / f"{name}.tsv", folder)
    own = Job(folder, job.clean)
    out = folder / "run"
    assert run(*own.command(out), within=[partial(points.strike_in, points.BACKWARD, 50)]).code == -9
    return own


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "valid"])
def test_30_data_changed(case: Case, own: Job, name: str) -> None:
    out = own.folder / "run"
    path = own.folder / f"{name}.tsv"
    old = path.read_bytes()
    before = contents(out)
    with case.fault():
        path.write_bytes(old.replace(b"blue", b"bleu", 1))
        hashes = (hashlib.sha256(content).hexdigest()[:12] for content in (old, path.read_bytes()))
        refused(run(*own.command(out)), 3, str(path), *hashes, "--overwrite")
        assert contents(out) == before
        path.write_bytes(old)
        assert run(*own.command(out)).code == 0


@pytest.mark.slow
def test_31_tokenizer_changed(case: Case, job: Job, begun: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    path = out / "tokenizer.json"
    old = path.read_bytes()
    path.write_bytes(old.replace(b'"n"', b'"\\u0148"', 1))
    assert path.read_bytes() != old
    before = contents(out)
    with case.fault():
        refused(run(*job.command(out)), 4, str(path), "put it back")
        assert contents(out) == before
        path.write_bytes(old)
        job.is_done(out)


@pytest.mark.slow
def test_32_config_changed(case: Case, job: Job, begun: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    before = contents(out)
    with case.fault():
        changed = job.command(out, model__dropout=0.3, train__accumulate=3)
        refused(run(*changed), 2, "model.dropout: 0.2 → 0.3", "train.accumulate: 2 → 3", "--overwrite")
        assert contents(out) == before
        job.is_done(out)
