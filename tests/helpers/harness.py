"""Start real processes, inject faults into them, and check the files that they leave.

A child is forked from a server that has already imported torch, so it starts in milliseconds. Otherwise it is a normal
process and gets real signals. Faults inside the process (a signal before the third fsync, a limit of its memory) are
set up by functions that the child calls first; mtcli itself has no hooks for tests.
"""

import gc
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import HANGS

SETTINGS = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.dropout": 0.2,
    "train.batch_tokens": 128,
    "train.accumulate": 2,
    "train.lr": 0.05,
    "train.warmup_steps": 10,
    "train.valid_every": 10,
    "train.save_every": 4,
    "train.keep": 2,
    "train.average": 3,
    "train.patience": 2,
    "train.precision": "fp32",
    "train.seed": 10,
    "train.engine": "false",
    "tokenizer.vocab_size": 340,
    "decode.max_extra": 2,
}
"""A small model, with dropout, gradient accumulation, averaging and early stopping, and without an engine."""

_PRELOADED = [
    "pytest",
    "torch",
    "sacrebleu.sacrebleu",
    "sacrebleu.significance",
    "sacrebleu.tokenizers.tokenizer_13a",
    "pyarrow",
    "tokenizers",
    "safetensors.torch",
    "ctranslate2.specs",
    "filelock",
    "typer.rich_utils",
    "hypothesis",
]
_COMMANDS = (
    "cli",
    "training.run",
    "translate.loading",
    "translate.backends.pytorch",
    "evaluation.evaluate",
    "explain.page",
    "recipes.improve.run",
    "serve.app",
)
_PRELOADED += [f"mtcli.{name}" for name in _COMMANDS]
_PRELOADED.append("helpers.preloaded")

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(_PRELOADED)


@cache
def start_server() -> None:
    """Start the fork server. Its modules are those of this process, whose `sys.path` Python 3.11 does not pass on."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    forkserver.ensure_running()
    del os.environ["PYTHONPATH"]


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a process. A negative code is the number of a signal."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line of stderr, in which a failure is reported."""
        return (self.err.splitlines() or [""])[-1]


class Child:
    """A running `mtcli` command."""

    def __init__(self, arguments: Sequence[str | Path], within: Sequence[Callable[[], Any]], **place: Any):
        self.folder = Path(tempfile.mkdtemp(prefix="mtcli-faults-"))
        words = [os.fspath(a) for a in arguments]
        self.process = forks.Process(target=_run, args=(words, self.folder, tuple(within)), kwargs=place)
        start_server()
        self.process.start()

    @property
    def pid(self) -> int:
        return self.process.pid  # type: ignore[return-value]

    def send(self, *numbers: int) -> None:
        """Send signals, unless the process has ended."""
        for number in numbers:
            if self.process.is_alive():
                os.kill(self.pid, number)

    def wait(self, seconds: float = HANGS) -> Result:
        """Wait until the process ends. If it does not end in time, kill it and fail the test."""
        self.process.join(seconds)
        hangs = self.process.is_alive()
        if hangs:
            self.process.kill()
            self.process.join()
        paths = (self.folder / name for name in ("out", "err"))
        out, err = (p.read_bytes().decode("utf-8", "replace") if p.exists() else "" for p in paths)
        shutil.rmtree(self.folder)
        if hangs:
            pytest.fail(f"still running after {seconds} s; {err}")
        return Result(self.process.exitcode or 0, out, err)


def start(*arguments: str | Path, within: Sequence[Callable[[], Any]] = (), **place: Any) -> Child:
    """Start `mtcli ARGUMENTS`.

    Args:
        arguments: The arguments of the command line.
        within: Functions that the child calls first. They must be picklable, like `partial(limit, RLIMIT_AS, n)`.
        place: `cwd`; `stdin`, `stdout` and `stderr` (paths; output that goes there is not in the `Result`); `env`
            (variables to set); `main` (a function at the top level of a module, to be called instead of mtcli's).
    """
    return Child(arguments, within, **place)


def run(*arguments: str | Path, seconds: float = HANGS, **options: Any) -> Result:
    """Run `mtcli ARGUMENTS` and wait for its end."""
    return start(*arguments, **options).wait(seconds)


def run_alone(*arguments: str | Path, seconds: float = HANGS, **options: Any) -> Result:
    """Run `mtcli ARGUMENTS` in a new interpreter. `options` are those of `subprocess.run`."""
    command = [sys.executable, "-m", "mtcli", *map(os.fspath, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    done = subprocess.run(command, capture_output=True, timeout=seconds, env=environment, **options)
    return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _run(
    arguments: list[str],
    folder: Path,
    within: Sequence[Callable[[], Any]],
    cwd: Path | None = None,
    stdin: Path = Path("/dev/null"),
    stdout: Path | None = None,
    stderr: Path | None = None,
    env: dict[str, str] | None = None,
    main: Callable[[], Any] | None = None,
) -> None:
    """Run the command in the child."""
    gc.freeze()  # a collection of what the server has imported would take longer than most commands
    import torch

    from mtcli.cli import main as mtcli

    for number, path in ((1, stdout or folder / "out"), (2, stderr or folder / "err")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    # New streams, because the descriptors are now files or pipes.
    sys.stdin, sys.stdout = (open(n, mode, closefd=False) for n, mode in enumerate("rw"))  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - line-buffered, as Python opens it
    for number in (signal.SIGHUP, signal.SIGTERM):  # the handlers that a shell and the interpreter set
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.chdir(cwd or folder)
    os.environ.update(env or {})
    torch.set_num_threads(1)
    sys.argv = ["mtcli", *arguments]
    for prepare in within:
        prepare()
    (main or mtcli)()  # the streams are flushed again when the process ends, as in any interpreter


@dataclass(frozen=True)
class Job:
    """A small training, and its result without faults."""

    folder: Path
    clean: Path
    """The run folder of an uninterrupted run in a normal process."""

    def command(self, out: Path, *more: str, **settings: Any) -> list[str]:
        """Return the arguments of `mtcli`. Settings are given as `train__lr=1` and override the default ones."""
        values = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        files = [
            word for name in ("train", "valid", "test") for word in (f"--{name}", str(self.folder / f"{name}.tsv"))
        ]
        return ["train", *files, "--src", "en", "--tgt", "xx", "--max-steps", "40", *sets, "--out", str(out), *more]

    def is_done(self, out: Path, resumed_at: int | None = None) -> None:
        """Run the same command again, and assert that the result is that of the clean run.

        Args:
            out: The run folder.
            resumed_at: The step at which the run must resume; None: not checked.
        """
        done = run(*self.command(out))
        assert done.code == 0, done.err
        if resumed_at:
            assert resumed_or_finished(done, resumed_at)
        ended = outcome(out)
        wanted = outcome(self.clean)
        assert not {
            name: (ended.get(name), wanted.get(name)) for name in ended | wanted if ended.get(name) != wanted.get(name)
        }


def resumed_or_finished(result: Result, step: int) -> bool:
    """Return True if training resumed at this step, or was already finished at this step."""
    return f"resuming at step {step}\n" in result.err or f": finished at step {step} (" in result.err


DERIVED_FILES = ("README.md", "report.html")
"""Files that are written again from the others at every validation. Training does not read them."""


def outcome(folder: Path, but: str | None = None) -> dict[str, Any]:
    """Return the content of a run folder in comparable form, without times, `DERIVED_FILES` and the file `but`."""

    def untimed(values: dict[str, Any]) -> dict[str, Any]:
        clocks = ("seconds", "validation_seconds", "metrics_bytes")  # the length of a line depends on its times
        return {name: value for name, value in values.items() if name not in clocks}

    found: dict[str, Any] = {}
    for path in (p for p in folder.rglob("*") if p.is_file() and p.name not in (".lock", *DERIVED_FILES)):
        name = str(path.relative_to(folder))
        if name == but:
            continue
        if path.name == "state.json":
            found[name] = untimed(json.loads(path.read_bytes()))
        elif path.name == "manifest.json":
            found[name] = {n: facts for n, facts in json.loads(path.read_bytes()).items() if n != "state.json"}
        elif path.name == "info.json":
            facts = json.loads(path.read_bytes())
            found[name] = {n: (f["size"], f["sha256"]) for part in ("inputs", "files") for n, f in facts[part].items()}
            found[name] |= {n: facts[n] for n in ("settings", "weights", "counts")}
        elif path.name == "metrics.jsonl":
            found[name] = [untimed(json.loads(line)) for line in path.read_bytes().splitlines()]
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file by name, except for `DERIVED_FILES`."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in (".lock", *DERIVED_FILES))
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def is_whole(checkpoint: Path) -> bool:
    """Return True if a checkpoint agrees with its manifest. This does not use the code of mtcli."""
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_bytes())
        return set(manifest) | {"manifest.json"} == {p.name for p in checkpoint.iterdir()} and all(
            hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() == facts["sha256"]
            for name, facts in manifest.items()
        )
    except (OSError, ValueError):
        return False


def whole(out: Path) -> list[int]:
    """Return the steps of the undamaged checkpoints of a run, oldest first.

    One that was being replaced when the process was killed counts, because mtcli restores it.
    """
    found = [*out.glob("checkpoints/step-*"), *out.glob("checkpoints/.old-step-*")]
    return sorted({int(path.name.rpartition("-")[2]) for path in found if is_whole(path)})


def earlier(out: Path) -> dict[str, bytes]:
    """Return the files of the undamaged checkpoints of a run."""
    paths = [path for path in out.glob("checkpoints/step-*") if is_whole(path)]
    return {f"{path.name}/{name}": content for path in paths for name, content in contents(path).items()}


def unharmed(out: Path, before: dict[str, bytes]) -> None:
    """Assert that the `earlier` checkpoints of a run are unchanged, or deleted to make room for newer ones."""
    now = earlier(out)
    assert max(now, default="") >= max(before, default="")
    assert {name: now[name] for name in before if name in now} == {name: before[name] for name in before if name in now}
    assert all(is_whole(path) for path in out.glob("checkpoints/step-*"))


def refused(result: Result, code: int, *words: str) -> None:
    """Assert that a command failed with this code, and with one line that contains these words."""
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    assert result.last.startswith("mtcli: ")
    assert result.err.count("mtcli: ") == 1
    for word in words:
        assert word in result.last


def flip(path: Path, rng: random.Random) -> None:
    """Flip a random bit of a file."""
    content = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def cut(path: Path, rng: random.Random) -> None:
    """Truncate a file at a random byte."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def limit(which: int, value: int) -> None:
    """Set a soft limit of this process, as `ulimit -S` does."""
    resource.setrlimit(which, (value, resource.getrlimit(which)[1]))


def until(condition: Callable[[], Any], child: Child, seconds: float = HANGS) -> None:
    """Wait until a condition is true while a child runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert child.process.is_alive(), f"the process ended first: {child.wait().err}"
        if time.monotonic() > end:
            child.process.kill()
            pytest.fail(f"the condition was never true: {condition}; {child.wait().err}")
        time.sleep(0.002)


def address_space(more: int) -> None:
    """Limit the address space of this process to `more` bytes beyond its present size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + more)


def mtcli(*arguments: str | Path, cwd: Path, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    with tempfile.NamedTemporaryFile() as given:
        given.write(stdin)
        given.flush()
        done = run(*arguments, cwd=cwd, stdin=Path(given.name), env=env)
    return subprocess.CompletedProcess(arguments, done.code, done.out.encode(), done.err.encode())
