"""The outputs of commands: checked before the work, and under their names when they are complete.

A device, a pipe or `/dev/stdout` is written directly. Any other file is written under a temporary name in the same
folder and renamed at the end, so an interrupted command leaves an earlier file of that name as it was.

Nothing that is needed may be overwritten. Two paths are the same file if they have the same device and inode, so
symbolic links, hard links and redirected standard input and output are recognised.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from mtcli.errors import MtcliError, StoppedError, StorageError, UsageError
from mtcli.runtime.files import TemporaryFile, file_lock, storage_errors, sync_folder, sync_tree
from mtcli.runtime.signals import end_by_closed_pipe, stopped, stopped_by_signals

log = logging.getLogger(__name__)

NAME_BYTES = 200
"""Bytes of the target's name that the name of a temporary file or folder repeats. File systems allow 255 in a name."""

MODEL_PARTS = frozenset({
    "README.md", "checkpoints", "config.json", "config.toml", "data", "engine", "generation_config.json",
    "metrics.jsonl", "model.bin", "model.safetensors", "mtcli.json", "optimizer.safetensors", "manifest.json",
    "origin.json", "parity.json", "report.html", "shared_vocabulary.json", "source.spm", "source_vocabulary.json",
    "state.json", "target.spm", "target_vocabulary.json", "tensorboard", "tokenizer.json", "tokenizer_config.json",
    "vocab.json",
})  # fmt: skip
"""Names of the files and folders of a run, a checkpoint, or an exported or imported model.

Other files there are the user's own.
"""

Place = str | Path | None
"""A path; the string `-` for standard input or output; None for an option that is not set."""

Identity = tuple[int, int]
"""Device and inode of a file."""


def real_path(path: Path) -> Path:
    """Return the absolute path without symbolic links."""
    return Path(os.path.realpath(path))


def folder_beside(folder: Path, ending: str) -> Path:
    """Return the path `NAME-ENDING` in the folder that contains another one.

    Args:
        folder: The other folder. If it is a link, `.` or `..`, the folder that it leads to counts; the path is then
            relative to the current folder if it lies in it.
        ending: The end of the new name.
    """
    if folder.name not in ("", "..") and not folder.is_symlink():
        return folder.with_name(f"{folder.name}-{ending}")
    real = real_path(folder)
    beside = real.parent / f"{real.name}-{ending}"
    here = Path.cwd()
    return beside.relative_to(here) if beside.is_relative_to(here) else beside


def is_special(path: Path) -> bool:
    """Return True if a path is written directly: a device, a pipe, or a link to a descriptor such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    absolute = os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow the link
    _, *folders = Path(absolute).parts
    return path.is_symlink() and folders[0] in ("dev", "proc") and folders[:2] != ["dev", "shm"]  # files in memory


def _open_special(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0)


def _create(target: Path, names: Iterable[str]) -> TemporaryFile:
    """Create a temporary file with the permissions of `target` if that exists."""
    temporary = TemporaryFile(target, names)
    if target.exists():
        os.fchmod(temporary.file.fileno(), stat.S_IMODE(target.stat().st_mode))
    return temporary


def _storage_error(place: str | Path, error: OSError) -> StorageError:
    return StorageError(f"{place}: cannot be written ({error.strerror or error})")


@contextmanager
def whole_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open binary files that appear under their names when the block ends, and not at all if the block fails.

    Raises:
        StorageError: A file cannot be written.
        StoppedError: A signal stopped the block.
    """
    names = (f".mtcli-{os.getpid()}-{n}" for n in count())
    try:
        with stopped_by_signals(), ExitStack() as stack:
            files: list[BinaryIO] = []
            temporaries: list[TemporaryFile] = []
            for path in paths:
                if is_special(path):
                    files.append(stack.enter_context(_open_special(path)))
                else:
                    temporary = stack.enter_context(_create(real_path(path), names))
                    temporaries.append(temporary)
                    files.append(temporary.file)
            yield files
            for temporary in temporaries:
                temporary.sync()
            for temporary in temporaries:
                temporary.publish()
    except OSError as error:
        raise _storage_error(" and ".join(map(str, paths)), error) from None


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when the block ends, and is deleted if the block fails.

    Args:
        folder: The folder to write. If it is a link, the folder that it leads to is replaced.

    Raises:
        LockedError: Another process is writing the folder.
        StorageError: It cannot be written.
    """
    target = real_path(folder)
    temporary = target.with_name(f".{_short_name(target)}.tmp")
    lock = target.with_name(f".{_short_name(target)}.lock.tmp")
    with storage_errors(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(lock, lambda holder: f"{folder}: process {holder} is writing it; wait for it, or choose another"):
        shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
        try:
            with storage_errors(folder):
                temporary.mkdir()
                yield temporary
                sync_tree(temporary)
                _rename_into_place(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):
                lock.unlink()


def _rename_into_place(temporary: Path, target: Path) -> None:
    """Rename a complete temporary folder. An earlier folder is moved aside first, and deleted last.

    Deleting it first would take longer than two renames, and a crash in that time would leave neither folder.
    """
    earlier = target.with_name(f".{_short_name(target)}.old.tmp")
    shutil.rmtree(earlier, ignore_errors=True)
    if target.exists():
        target.rename(earlier)
    try:
        temporary.rename(target)
    except OSError:
        if earlier.exists():
            earlier.rename(target)
        raise
    sync_folder(target.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def _short_name(target: Path) -> str:
    """Return the name of a file or folder, cut so that an ending can be added to it."""
    return os.fsdecode(os.fsencode(target.name)[:NAME_BYTES])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with whole_files([path]) as (file,):
        file.write(content)


class PartialFile:
    """A text file that is written line by line as `NAME.partial`, and renamed to `NAME` when it is complete.

    End it with `finish`, or with `keep` after a failure.

    Args:
        path: The file to write at the end.

    Raises:
        StorageError: The file cannot be created.
    """

    def __init__(self, path: Path):
        self.target = real_path(path)
        stem = _short_name(self.target)
        names = (f"{stem}.partial{n or ''}" for n in count())
        try:
            self._temporary = _create(self.target, names)
        except OSError as error:
            raise _storage_error(path, error) from None
        self.path = self._temporary.path
        self.lines = 0
        self._descriptor = self._temporary.file.fileno()
        self._size = 0

    def write(self, text: str) -> None:
        """Append complete lines. They are in the file when this returns."""
        self.write_bytes(text.encode())

    def write_bytes(self, lines: bytes) -> None:
        """Append complete lines that are encoded already."""
        rest = memoryview(lines)
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
        self._size += len(lines)
        self.lines += lines.count(b"\n")

    def flush(self) -> None:
        """Do nothing: `write` has no buffer."""

    def finish(self) -> None:
        """Rename the file to its target."""
        self._temporary.sync()
        self._temporary.publish()

    def keep(self) -> str:
        """Cut the file after its last complete line, and return where it is. A file without a line is deleted."""
        if self._temporary.published:
            return f"{self.target} is complete"
        if not self.path.exists():
            self._temporary.discard()
            folder = self.path.parent
            deleted = self.path if folder.exists() else f"the folder {folder}"
            return f"{deleted} was deleted, and the output with it"
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
        if not self.lines:
            self._temporary.discard()
            return "no line of the output was finished"
        self._temporary.file.close()
        if self.lines == 1:
            return f"the first line of the output is in {self.path}"
        return f"the first {self.lines:,} lines of the output are in {self.path}"


@contextmanager
def partial_file(path: Path) -> Iterator[PartialFile]:
    """Open a `PartialFile`: finished when the block ends, kept if the block fails.

    After a failure, the message of the error ends with the path of the partial file.

    Raises:
        StorageError: The file cannot be written.
        StoppedError: A signal stopped the block.
    """
    output = PartialFile(path)
    try:
        with stopped_by_signals():
            yield output
            output.finish()
    except KeyboardInterrupt:
        raise StoppedError(f"{stopped(signal.SIGINT)}; {output.keep()}", signal.SIGINT) from None
    except OSError as error:
        where = f"{error.filename or output.path}: {error.strerror or error}"
        raise StorageError(f"{where}; {output.keep()}") from None
    except MtcliError as error:
        error.args = (f"{error}; {output.keep()}",)
        raise
    except BaseException:
        log.warning("%s", output.keep())
        raise


@contextmanager
def open_output(path: str) -> Iterator[Any]:
    """Open a text stream for results: standard output for `-`, otherwise a file (see `partial_file`).

    Raises:
        StorageError: The file cannot be written.
        StoppedError: A signal stopped the block.
    """
    if path == "-":
        yield sys.stdout
    elif is_special(Path(path)):
        with _special_stream(Path(path)) as stream:
            yield stream
    else:
        with partial_file(Path(path)) as output:
            yield output


@contextmanager
def _special_stream(path: Path) -> Iterator[TextIOWrapper]:
    """Open a device or pipe for text. The process ends by SIGPIPE if the reader of the pipe closes it."""
    try:
        special = _open_special(path)
    except OSError as error:
        raise _storage_error(path, error) from None
    try:
        with TextIOWrapper(special, "utf-8", newline="\n", write_through=True) as stream:
            yield stream
    except BrokenPipeError:
        end_by_closed_pipe()


def check_outputs(
    outputs: Iterable[Place], inputs: Iterable[Place] = (), *, models: Iterable[Place] = (), force: bool = True
) -> None:
    """Refuse outputs that would overwrite an input or cannot be written.

    Args:
        outputs: Files to write.
        inputs: Files to read. Of a folder, everything inside it counts.
        models: Folders (or files) of models, whose own files must not be overwritten.
        force: If False, an existing file that is not empty must not be replaced.

    Raises:
        UsageError: An output is an input, part of a model, named twice, a folder or in a folder that does not exist;
            or it exists and `force` is False.
        StorageError: The user may not write it.
    """
    read = [place for place in inputs if place is not None]
    # `Path.is_dir` raises an error if the name is too long; the reader of the input reports it.
    folders = [Path(place) for place in read if place != "-" and os.path.isdir(place)]  # noqa: PTH112
    model_folders = [Path(place) for place in models if place is not None]
    protected = {_identity(place, 0) for place in [*read, *model_folders]}
    protected |= {_identity(model / name, 0) for model in model_folders for name in MODEL_PARTS}
    written: set[Identity | Path] = set()
    for place in outputs:
        if place is None:
            continue
        name = "standard output" if place == "-" else str(place)
        identity = _identity(place, 1)
        if identity and identity in protected:
            raise UsageError(f"{name}: is read by this command, and would be overwritten; choose another output")
        if place != "-":
            _check_path(place, folders, model_folders, force=force)
        same_file: Identity | Path | None = identity
        if identity is None and place != "-" and not Path(place).exists():
            same_file = real_path(Path(place))
        if same_file in written:
            raise UsageError(f"{name}: named for two outputs; give two names")
        if same_file is not None:
            written.add(same_file)


def check_folder(folder: Path, inputs: Iterable[Place] = (), *, option: str = "--output") -> None:
    """Refuse an output folder that cannot be created, or that contains an input.

    Args:
        folder: The folder to write.
        inputs: Files to read.
        option: The option that names the folder, for the message.

    Raises:
        UsageError: The folder is a file or lies in one, is a link that leads nowhere, or contains an input.
        StorageError: The user may not write it.
    """
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_symlink():
            raise UsageError(f"{folder}: a link that leads nowhere; choose another {option}") from None
    except PermissionError:
        raise StorageError(f"{folder}: may not be written; choose another {option}") from None
    except OSError as error:  # a loop of links, a name that is too long
        raise UsageError(f"{folder}: {error.strerror}; choose another {option}") from None
    real = real_path(folder)
    existing = next(place for place in (real, *real.parents) if place.exists())
    if not existing.is_dir():
        subject = "is" if existing == real else f"{existing} is"
        raise UsageError(f"{folder}: {subject} a file; choose another {option}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(f"{folder}: may not be written; choose another {option}")
    for place in inputs:
        if place is not None and _is_model_part(real_path(Path(place)), real):
            raise UsageError(f"{place}: is read, and belongs to {folder}, which is written; choose another {option}")


def check_replaceable(folder: Path, kind: str, marker: str, is_part: Callable[[str], bool]) -> None:
    """Refuse to replace a folder, unless it is new, empty or an earlier output of the same kind, even a damaged one.

    Args:
        folder: The folder to replace, or a link to it.
        kind: What is written, for messages: `exported model`.
        marker: The name of a file that every folder of this kind has.
        is_part: Returns True for the names of the files that such a folder may have.

    Raises:
        UsageError: The folder holds something else, or is or contains the current folder.
    """
    real = real_path(folder)
    if Path.cwd().is_relative_to(real):
        raise UsageError(f"{folder}: is or contains the current folder, which is not replaced; choose another --output")
    if not real.exists():
        return
    names = {path.name for path in real.iterdir()} if real.is_dir() else {real.name}
    if names and marker not in names:
        raise UsageError(f"{folder}: exists and holds no {kind}; choose another --output")
    others = sorted(name for name in names if not is_part(name))
    if others:
        raise UsageError(f"{folder}: holds {others[0]}, which is not part of an {kind}; choose another --output")


def _check_path(place: str | Path, folders: Sequence[Path], models: Sequence[Path], *, force: bool) -> None:
    """Check one output file.

    Args:
        place: The file.
        folders: Input folders.
        models: Folders of models.
        force: See `check_outputs`.

    Raises:
        UsageError, StorageError: See `check_outputs`.
    """
    if str(place).endswith(os.sep):  # `Path` drops it
        raise UsageError(f"{place}: names a folder; name a file")
    path = Path(place)
    _check_writable(path, force)
    real = real_path(path)
    for folder in folders:
        if real.is_relative_to(real_path(folder)):
            raise UsageError(f"{path}: lies in {folder}, all of which is read; choose another output")
    for model in models:
        if _is_model_part(real, real_path(model)):
            raise UsageError(f"{path}: belongs to the model in {model}; choose another output")


def _check_writable(path: Path, force: bool) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        folder = real_path(path).parent
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}; make it first") from None
        must_be_writable = [folder]
    except PermissionError:
        raise StorageError(f"{path}: may not be written; choose another output") from None
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long
        raise UsageError(f"{path}: {getattr(error, 'strerror', error)}; choose another output") from None
    else:
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path}: is a folder; name a file")
        if stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{path}: is a disk; name a file")
        if not force and stat.S_ISREG(status.st_mode) and status.st_size:
            raise UsageError(f"{path}: exists; choose another name, or replace it with --force")
        must_be_writable = [path]
        if not is_special(path):
            must_be_writable.append(real_path(path).parent)
    if not all(os.access(place, os.W_OK) for place in must_be_writable):
        raise StorageError(f"{path}: may not be written; choose another output")


def _is_model_part(path: Path, folder: Path) -> bool:
    """Return True if a path is one of `MODEL_PARTS` of a folder, or lies inside one."""
    inside = path.relative_to(folder).parts if path.is_relative_to(folder) else ()
    return bool(inside) and inside[0] in MODEL_PARTS


def _identity(place: str | Path, descriptor: int) -> Identity | None:
    """Return device and inode of a file or named pipe. None: it is something else, which writing cannot overwrite.

    Args:
        place: A path, or `-` for the standard stream `descriptor`.
        descriptor: 0 for standard input, 1 for standard output.
    """
    try:
        status = os.fstat(descriptor) if place == "-" else os.stat(place)  # noqa: PTH116 - `place` may be a string
    except (OSError, ValueError):
        return None
    is_file = stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    return (status.st_dev, status.st_ino) if is_file else None
