"""What every file format implements: read a file into segments, and write it with their translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol, runtime_checkable

from mtcli.documents.markup.inline import Inline


@dataclass(frozen=True)
class ReadOptions:
    """What a reader needs to know besides the bytes of the file."""

    name: str
    """Name of the file, for messages."""
    src: str
    """Code of the source language."""
    tgt: str
    """Code of the target language."""
    columns: tuple[str, ...] = ()
    """Names or numbers of the columns to translate, of a format with columns."""

    @property
    def suffix(self) -> str:
        """The suffix of the name, in lower case."""
        return PurePath(self.name).suffix.lower()


class Document(Protocol):
    """A file that has been read."""

    @property
    def segments(self) -> Sequence[Inline]:
        """The paragraphs, cells, captions or messages to translate, in the order of the file."""
        ...

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the file with each segment replaced by its translation, and everything else unchanged.

        With the segments themselves as translations, this is the file that was read, byte for byte.
        """
        ...


@runtime_checkable
class RatedDocument(Document, Protocol):
    """A file that may have a place for the confidence of each translation."""

    @property
    def has_place_for_confidence(self) -> bool:
        """It has one."""
        ...

    def rate(self, confidences: Sequence[float | None]) -> None:
        """Note the confidence of each translation that will be written, 0 to 100; None: it has none."""
        ...


Reader = Callable[[bytes, ReadOptions], Document]
"""Reads a file. Raises DataError, with the name of the file and the place, if its format is broken or unsafe."""

Structure = Callable[[bytes, ReadOptions], int]
"""Returns a hash of what a translation must not change in a file. Raises DataError like a `Reader`."""
