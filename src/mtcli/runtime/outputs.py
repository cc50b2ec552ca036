"""Where commands write: outputs are checked before any work, and a file appears under its name when it is whole.

A device, a pipe or `/dev/stdout` is written directly. Any other file is written beside its place and renamed at the
end, so that an interrupted command leaves an earlier file of that name as it was.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from mtcli.errors import MtcliError, StoppedError, StorageError, UsageError
from mtcli.runtime.files import sync_folder
from mtcli.runtime.signals import end_by_closed_pipe

log = logging.getLogger(__name__)

MODEL_PARTS = frozenset({
    "README.md", "checkpoints", "config.json", "config.toml", "data", "generation_config.json", "metrics.jsonl",
    "model.bin", "model.safetensors", "mtcli.json", "optimizer.safetensors", "manifest.json", "parity.json",
    "report.html", "shared_vocabulary.json", "source_vocabulary.json", "state.json", "target_vocabulary.json",
    "tensorboard", "tokenizer.json", "tokenizer_config.json",
})  # fmt: skip
"""What a run, a checkpoint or an exported model consists of; other files in such a folder are the user's own."""

NAME_BYTES = 200
"""Of a file's name that the name of the file beside it repeats; file systems allow 255."""

Place = str | Path | None
"""A path; the string `-` for a standard stream; None for an option that is not given."""

Identity = tuple[int, int]


def check_outputs(
    outputs: Iterable[Place], inputs: Iterable[Place] = (), *, models: Iterable[Place] = (), force: bool = True
) -> None:
    """Refuse outputs that would destroy something or cannot be written, before anything is touched.

    Two names are the same file whatever the path, through symbolic and hard links, and through the descriptors of
    standard input and output.

    Args:
        outputs: Files to write.
        inputs: Files that are read; of a folder, everything inside it.
        models: Folders (or files) of models, whose own files are not to be written.
        force: Whether a file that is not empty may be replaced.

    Raises:
        UsageError: An output is an input, part of a model, named twice, a folder, in no folder, or there already
            where `force` is False.
        StorageError: It may not be written.
    """
    read = [place for place in inputs if place is not None]
    model_folders = [Path(place) for place in models if place is not None]
    files = {_identity(place, 0) for place in [*read, *model_folders]}
    files |= {_identity(model / name, 0) for model in model_folders for name in MODEL_PARTS}
    folders = [Path(place) for place in read if place != "-" and Path(place).is_dir()]
    written: set[Identity | Path] = set()
    for place in outputs:
        if place is None:
            continue
        name = "standard output" if place == "-" else str(place)
        same_file = _identity(place, 1)
        if same_file and same_file in files:
            raise UsageError(f"{name}: is read by this command, and would be overwritten; choose another output")
        if place != "-":
            if str(place).endswith(os.sep):  # `Path` drops it
                raise UsageError(f"{place}: names a folder; name a file")
            path = Path(place)
            _check_file(path, force)
            _check_outside(path, folders, model_folders)
        identity = same_file or (None if place == "-" or Path(place).exists() else _real(Path(place)))
        if identity and identity in written:
            raise UsageError(f"{name}: named for two outputs; give two names")
        if identity:
            written.add(identity)


def check_folder(folder: Path, inputs: Iterable[Place] = (), *, option: str = "--output") -> None:
    """Refuse a folder to write that cannot be made, or that inputs are part of.

    Args:
        folder: The folder to write.
        inputs: Files that are read.
        option: What names the folder, for the message.

    Raises:
        UsageError: It is a file, or in one; a link that leads nowhere; or an input is one of its parts.
        StorageError: It may not be written.
    """
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder}: a link that leads nowhere; choose another {option}")
    real = _real(folder)
    existing = next(place for place in (real, *real.parents) if place.exists())
    if not existing.is_dir():
        raise UsageError(f"{folder}: {'is' if existing == real else f'{existing} is'} a file; choose another {option}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(f"{folder}: may not be written; choose another {option}")
    for place in inputs:
        if place is not None and _is_part(_real(Path(place)), real):
            raise UsageError(f"{place}: is read, and belongs to {folder}, which is written; choose another {option}")


def _check_file(path: Path, force: bool) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        folder = _real(path).parent
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}; make it first") from None
        writable = [folder]
    except PermissionError:
        raise StorageError(f"{path}: may not be written; choose another output") from None
    except (OSError, ValueError) as error:  # a loop of links, a name too long
        raise UsageError(f"{path}: {getattr(error, 'strerror', error)}; choose another output") from None
    else:
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path}: is a folder; name a file")
        if stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{path}: is a disk; name a file")
        if not force and stat.S_ISREG(status.st_mode) and status.st_size:
            raise UsageError(f"{path}: exists; choose another name, or replace it with --force")
        writable = [path] if is_special(path) else [path, _real(path).parent]
    if not all(os.access(place, os.W_OK) for place in writable):
        raise StorageError(f"{path}: may not be written; choose another output")


def _check_outside(path: Path, folders: Sequence[Path], models: Sequence[Path]) -> None:
    real = _real(path)
    for folder in folders:
        if real.is_relative_to(_real(folder)):
            raise UsageError(f"{path}: lies in {folder}, all of which is read; choose another output")
    for model in models:
        if _is_part(real, _real(model)):
            raise UsageError(f"{path}: belongs to the model in {model}; choose another output")


def _is_part(path: Path, folder: Path) -> bool:
    """Return True if a path is one of the parts of a model folder, or inside one."""
    inside = path.relative_to(folder).parts if path.is_relative_to(folder) else ()
    return bool(inside) and inside[0] in MODEL_PARTS


def _identity(place: str | Path, descriptor: int) -> Identity | None:
    """Device and inode of a file or a named pipe; None for anything that no writing destroys."""
    try:
        status = os.fstat(descriptor) if place == "-" else os.stat(place)  # noqa: PTH116 - `place` may be a string
    except (OSError, ValueError):
        return None
    is_file = stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    return (status.st_dev, status.st_ino) if is_file else None


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def is_special(path: Path) -> bool:
    """Return True for what is written directly: a device, a pipe, or a name of a descriptor such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    return path.is_symlink() and Path(os.path.abspath(path)).parts[1] in ("dev", "proc")  # noqa: PTH100 - keeps links


def _open_special(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0)


def _create_beside(target: Path, names: Iterable[str]) -> tuple[Path, int]:
    """A new file in the folder of `target`, with its mode if it exists: the first of these names that is free."""
    for name in names:
        path = target.with_name(name)
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            if target.exists():
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            return path, descriptor
    raise AssertionError("names never end")


def _storage_error(place: str | Path, error: OSError) -> StorageError:
    return StorageError(f"{place}: cannot be written ({error.strerror or error})")


@contextmanager
def whole_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Binary files that appear under their names when all are whole; none does where the block or a disk fails.

    Raises:
        StorageError: One cannot be written.
        StoppedError: A signal came.
    """
    staged: list[tuple[BinaryIO, Path, Path]] = []
    try:
        with stopped_by_signals(), ExitStack() as stack:
            files: list[BinaryIO] = []
            for path in paths:
                if is_special(path):
                    files.append(stack.enter_context(_open_special(path)))
                    continue
                aside, descriptor = _create_beside(_real(path), (f".mtcli-{os.getpid()}-{n}" for n in count()))
                file: BinaryIO = stack.enter_context(os.fdopen(descriptor, "wb"))
                staged.append((file, aside, _real(path)))
                files.append(file)
            yield files
            for file, _, _ in staged:
                file.flush()
                os.fsync(file.fileno())
            for _, aside, target in staged:
                aside.replace(target)
                sync_folder(target.parent)
    except OSError as error:
        raise _storage_error(" and ".join(map(str, paths)), error) from None
    finally:
        for _, aside, _ in staged:
            aside.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once or not at all.

    Raises:
        StorageError: It cannot be written.
    """
    with whole_files([path]) as (file,):
        file.write(content)


class PartialFile:
    """Lines of text on their way to a file: in `NAME.partial` beside it until `finish`, and kept there by `keep`."""

    def __init__(self, path: Path):
        """Create the file.

        Raises:
            StorageError: It cannot be created.
        """
        self.target = _real(path)
        stem = os.fsdecode(os.fsencode(self.target.name)[:NAME_BYTES])
        names = (f"{stem}.partial{n or ''}" for n in count())
        try:
            self.path, self._descriptor = _create_beside(self.target, names)
        except OSError as error:
            raise _storage_error(path, error) from None
        self.lines = 0
        self._size = 0
        self._finished = False

    def write(self, text: str) -> None:
        """Append whole lines; they are in the file when this returns."""
        self.write_bytes(text.encode())

    def write_bytes(self, lines: bytes) -> None:
        """The same of encoded text."""
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._size += len(lines)
        self.lines += lines.count(b"\n")

    def flush(self) -> None:
        """Do nothing: no line waits in memory."""

    def finish(self) -> None:
        """Give the file its name."""
        os.fsync(self._descriptor)
        self.path.replace(self.target)
        self._finished = True
        sync_folder(self.target.parent)
        os.close(self._descriptor)

    def keep(self) -> str:
        """Cut the file at its last whole line, and say where it is; delete it where it has no line."""
        if self._finished:
            return f"{self.target} is whole"
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
        os.close(self._descriptor)
        if not self.lines:
            self.path.unlink(missing_ok=True)
            return "no line of the output was finished"
        return f"the first {self.lines:,} lines of the output are in {self.path}"


@contextmanager
def open_output(path: str) -> Iterator[Any]:
    """A text stream for results: standard output for `-`, otherwise a file that appears when it is whole.

    Raises:
        StorageError: It cannot be written.
        StoppedError: A signal came; the message names the file with the lines so far.
    """
    if path == "-":
        yield sys.stdout
    elif is_special(Path(path)):
        try:
            special = _open_special(Path(path))
        except OSError as error:
            raise _storage_error(Path(path), error) from None
        try:
            with TextIOWrapper(special, "utf-8", newline="\n", write_through=True) as stream:
                yield stream
        except BrokenPipeError:
            end_by_closed_pipe()
    else:
        with partial_file(Path(path)) as output:
            yield output


@contextmanager
def partial_file(path: Path) -> Iterator[PartialFile]:
    """A `PartialFile` that gets its name when the block ends well, and is kept beside it otherwise.

    The message of an error then ends with where the lines are.
    """
    output = PartialFile(path)
    try:
        with stopped_by_signals():
            yield output
            output.finish()
    except KeyboardInterrupt:
        raise StoppedError(f"stopped by SIGINT; {output.keep()}", signal.SIGINT) from None
    except OSError as error:
        where = f"{error.filename or output.path}: {error.strerror or error}"
        raise StorageError(f"{where}; {output.keep()}") from None
    except MtcliError as error:
        error.args = (f"{error}; {output.keep()}",)
        raise
    except BaseException:
        log.warning("%s", output.keep())
        raise


class _Signalled(BaseException):
    """Raised where the program is when a signal comes, past every `except Exception`."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an exception, so that what it has done can be kept or cleared away.

    A signal that is ignored, as `nohup` has it with SIGHUP, or handled already stays so; so do all outside the main
    thread.

    Raises:
        StoppedError: One of them came.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for heard in before:
            signal.signal(heard, signal.SIG_IGN)  # a second one is not to disturb the clearing away
        raise _Signalled(number)

    numbers = [signal.SIGTERM, signal.SIGHUP] if threading.current_thread() is threading.main_thread() else []
    before = {n: signal.SIG_DFL for n in numbers if signal.getsignal(n) == signal.SIG_DFL}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except _Signalled as found:
        raise StoppedError(f"stopped by {signal.Signals(found.number).name}", found.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
