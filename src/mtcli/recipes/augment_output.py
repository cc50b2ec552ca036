"""The file of synthetic pairs, and the results of the command until the file is complete.

The file is TSV or JSON lines with both sides and their scores. The command can be interrupted at any time, and
continued. While it runs, its results lie in the folder `OUTPUT.unfinished`: records as JSON lines, and a state that
says how many bytes of them count. Records are synced before the state, so a state never counts bytes that may be lost.
"""

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from mtcli.corpus.cache.training_sources import SCORES
from mtcli.errors import StoppedError, StorageError, UsageError
from mtcli.recipes.monolingual import Record
from mtcli.runtime.files import folder_lock, read_regular, replace_file, storage_errors, sync_folder
from mtcli.runtime.outputs import real_path, whole_files
from mtcli.runtime.signals import stopped, stopped_by_signals

RECORDS = "records.jsonl"
STATE = "state.json"

SUFFIXES = (".tsv", ".jsonl")


class AugmentState(BaseModel):
    """The state of the command after a window of its input."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    lines: NonNegativeInt = 0
    """Lines of the input that have been read."""
    bytes: NonNegativeInt = 0
    """Bytes of the records."""
    dropped: dict[str, NonNegativeInt] = {}
    """Lines and pairs that were dropped, by reason."""
    text_script: str = ""
    """The script of most lines of the first window."""
    synthetic_script: str = ""
    """The script of most of their translations."""


class _Saved(BaseModel):
    """The content of the file `STATE`."""

    identity: dict[str, Any]
    state: AugmentState


class Unfinished:
    """The folder of an unfinished output, which belongs to one command line by its `identity`.

    Args:
        folder: The folder. It must exist.
        identity: What decides the result: options, and digests of inputs and models.
        force: Delete what another command left, or what is damaged.

    Raises:
        UsageError: The folder was left by a command with another identity.
        StorageError: The folder cannot be written, or is damaged.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, force: bool = False):
        self.folder = folder
        self.identity = dict(identity)
        self._path = folder / RECORDS
        try:
            self.state = self._load()
        except (StorageError, UsageError):
            if not force:
                raise
            (folder / STATE).unlink()
            self.state = AugmentState()
        with storage_errors(self._path):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            self._file = os.fdopen(descriptor, "r+b")
            self._cut()

    def _load(self) -> AugmentState:
        """Return the state that was saved, or the initial state."""
        path = self.folder / STATE
        if not path.exists():
            return AugmentState()
        try:
            saved = _Saved.model_validate_json(read_regular(path))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise StorageError(f"{path}: cannot be read ({reason}); start over with --force") from None
        found = saved.identity
        differences = sorted(name for name in self.identity if found.get(name) != self.identity[name])
        if differences:
            raise UsageError(
                f"{self.folder}: was left by a command that differs in {', '.join(differences)}; run that command "
                "again to continue it, or start over with --force"
            )
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < saved.state.bytes:
            raise StorageError(f"{self._path}: is shorter than {STATE} says; start over with --force")
        return saved.state

    def _cut(self) -> None:
        """Remove the records of a window that was interrupted."""
        self._file.truncate(self.state.bytes)
        self._file.seek(self.state.bytes)

    def append(self, records: Iterable[Mapping[str, Any]], state: AugmentState) -> None:
        """Save the records of one window, and the state after it.

        Args:
            records: The records, in the order of the output.
            state: The state; its `bytes` are set here.

        Raises:
            StorageError: They cannot be written.
        """
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with storage_errors(self._path):
            self._file.write(text.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.state = state.model_copy(update={"bytes": self._file.tell()})
        saved = _Saved(identity=self.identity, state=self.state)
        replace_file(self.folder / STATE, saved.model_dump_json().encode())

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield all records."""
        with self._path.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def close(self) -> None:
        """Close the file of the records. What counts of it is on the disk already."""
        with suppress(OSError):  # a full disk refuses what is still in the buffer, as `append` has reported
            self._file.close()


@contextmanager
def unfinished_output(output: Path, identity: Mapping[str, Any], *, force: bool = False) -> Iterator[Unfinished]:
    """Open or continue the unfinished folder of an output. It is deleted when the block ends, and kept if it fails.

    Args:
        output: The file that the block writes.
        identity: See `Unfinished`.
        force: See `Unfinished`.

    Raises:
        LockedError: Another process writes the same output.
        UsageError, StorageError: See `Unfinished`.
        StoppedError: A signal stopped the block.
    """
    target = real_path(output)
    folder = target.with_name(f"{target.name}.unfinished")
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    with folder_lock(folder, "is writing this output", "choose another --output"):
        unfinished = Unfinished(folder, identity, force=force)
        try:
            with stopped_by_signals():
                yield unfinished
        except KeyboardInterrupt:
            raise _stopped(stopped(signal.SIGINT), signal.SIGINT, unfinished.state) from None
        except StoppedError as error:
            raise _stopped(str(error), error.signal_number, unfinished.state) from None
        finally:
            unfinished.close()
        for name in (STATE, RECORDS):  # the state first: without it, the records count as none
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _stopped(reason: str, signal_number: int, state: AugmentState) -> StoppedError:
    """Return the error of a command that a signal stopped."""
    where = f" after line {state.lines:,}" if state.lines else ""
    return StoppedError(f"{reason}; run the same command again to continue{where}", signal_number)


@dataclass(frozen=True)
class PairOutput:
    """Where pairs are written, and their languages."""

    path: Path
    src: str
    tgt: str

    def check(self) -> None:
        """Check the name of the file.

        Raises:
            UsageError: It has no known ending.
        """
        if self.form not in SUFFIXES:
            raise UsageError(f"--output {self.path}: name it x.tsv or x.jsonl, or x.tsv.gz or x.jsonl.gz")

    @property
    def form(self) -> str:
        """`.tsv` or `.jsonl`, if the name of the file is right."""
        name = self.path.name.lower().removesuffix(".gz")
        return Path(name).suffix

    @property
    def is_compressed(self) -> bool:
        """True if the file is written with gzip."""
        return self.path.name.lower().endswith(".gz")


def write_best_pairs(records: Callable[[], Iterable[Record]], output: PairOutput, keep: float) -> tuple[int, int]:
    """Write the records with the best scores, in their order.

    Args:
        records: Returns an iterator over all records. It is called twice.
        output: The file.
        keep: Share of the records to write. Of equal scores, the earlier records are written.

    Returns:
        The number of records that were written, and of those that were not.

    Raises:
        StorageError: The file cannot be written.
    """
    chosen = _best([record["score"] for record in records()], keep)
    with whole_files([output.path]) as (file,), _compressed(file, output) as stream:
        columns: list[str] = []
        for is_chosen, record in zip(chosen, records(), strict=True):
            if output.form == ".tsv" and not columns:
                columns = [name for name in SCORES if name in record]
                stream.write("\t".join([output.src, output.tgt, *columns]).encode() + b"\n")
            if is_chosen:
                stream.write(_line(record, output, columns).encode() + b"\n")
    written = int(chosen.sum())
    return written, len(chosen) - written


def _compressed(file: BinaryIO, output: PairOutput) -> AbstractContextManager[GzipFile | BinaryIO]:
    """Return a stream that writes to a file, with gzip if its name asks for it."""
    if not output.is_compressed:
        return nullcontext(file)
    # Without a name and a time in its head, a compressed file has the same bytes for the same pairs.
    return GzipFile("", "wb", fileobj=file, mtime=0)


def _best(scores: Sequence[float], keep: float) -> npt.NDArray[np.bool_]:
    """Return True for each of the best scores."""
    number = round(keep * len(scores))
    order = np.argsort(-np.array(scores, dtype=np.float64), kind="stable")
    chosen = np.zeros(len(scores), dtype=np.bool_)
    chosen[order[:number]] = True
    return chosen


def _line(record: Record, output: PairOutput, columns: Sequence[str]) -> str:
    if output.form == ".jsonl":
        return json.dumps(record, ensure_ascii=False)
    translation = record["translation"]
    # A model can write a tab by its byte, which would begin another column.
    texts = [translation[language].replace("\t", " ") for language in (output.src, output.tgt)]
    scores = [f"{record[name]:.4f}" for name in columns]
    return "\t".join([*texts, *scores])
