"""The structure of a file, which its translation must not change.

A translation that has all tags of its text can still break the file: two code spans of Markdown that meet become one,
and a tag without an end has more in it at another place. So a file that was written is parsed again and compared with
its source. Segments with which it differs stay as they are.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Hashable, Sequence
from functools import cached_property

from mtcli.documents.formats.format import Document, RatedDocument
from mtcli.documents.markup.inline import Inline
from mtcli.errors import DataError
from mtcli.runtime.wording import counted
from mtcli.text.safe_xml import Element

log = logging.getLogger(__name__)

MAX_TRIES = 200
"""Files that are written and parsed to find the segments with which the structure differs."""


class Shape:
    """A tree of tags, built from left to right. Only its hash is in memory.

    Neighbors may change places, as words do. A tag without an end ends with the tag around it.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, Hashable, list[int]]] = [("", "", [])]
        self._names: Counter[str] = Counter()

    def open(self, name: str, tag: Hashable) -> None:
        """Add a tag that others may be in."""
        self._open.append((name, tag, []))
        self._names[name] += 1

    def close(self, name: str) -> None:
        """End the last open tag of this name, and those in it."""
        if not self._names[name]:
            self.point(("end", name))
            return
        while self._open[-1][0] != name:
            self._end("unclosed")
        self._end("closed")

    def point(self, tag: Hashable) -> None:
        """Add a tag that nothing is in."""
        self._open[-1][2].append(hash(tag))

    def finish(self) -> int:
        """Return a hash of the tree."""
        while len(self._open) > 1:
            self._end("unclosed")
        return hash(tuple(sorted(self._open[0][2])))

    def _end(self, how: str) -> None:
        name, tag, children = self._open.pop()
        self._names[name] -= 1
        self.point((tag, how, *sorted(children)))


class Digest:
    """A hash of a sequence, built from left to right."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, part: Hashable) -> None:
        """Add the next part."""
        self.value = hash((self.value, part))


def tree_structure(
    root: Element, *, without: Callable[[Element], bool] = lambda _: False, changing: Container[str] = ()
) -> int:
    """Return a hash of the elements of XML, their attributes and their text.

    Args:
        root: The outermost element.
        without: Returns True for an element that a translation adds or changes. It does not count.
        changing: Names of attributes that a translation adds or changes.
    """
    inner = [
        child.strip() if isinstance(child, str) else tree_structure(child, without=without, changing=changing)
        for child in root.children
        if isinstance(child, str) or not without(child)
    ]
    attributes = sorted(item for item in root.attributes.items() if item[0] not in changing)
    return hash(
        (
            root.name,
            *attributes,
            "".join(part for part in inner if isinstance(part, str)),
            *(part for part in inner if isinstance(part, int)),
        )
    )


class VerifiedDocument:
    """A document that is written with the structure of its source; see `format.Document`.

    Args:
        document: The document.
        content: The file from which it was read.
        structure: Returns the structure of a file. Raises DataError for a file that cannot be read.
        name: Name of the file, for messages.
    """

    def __init__(self, document: Document, content: bytes, structure: Callable[[bytes], int], name: str):
        self._document = document
        self._content = content
        self._structure = structure
        self._name = name

    @property
    def segments(self) -> Sequence[Inline]:
        """See `Document.segments`."""
        return self._document.segments

    @property
    def has_place_for_confidence(self) -> bool:
        """See `RatedDocument`."""
        return isinstance(self._document, RatedDocument) and self._document.has_place_for_confidence

    def rate(self, confidences: Sequence[float | None]) -> None:
        """See `RatedDocument.rate`."""
        if isinstance(self._document, RatedDocument):
            self._document.rate(confidences)

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the file with its translations. Segments with which the structure would differ stay as they are."""
        written = self._document.write(translations)
        if written == self._content or self._is_kept(written):
            return written
        used = self._usable(translations)
        number = sum(new != old for new, old in zip(used, translations, strict=True))
        verb = "keep their text" if number != 1 else "keeps its text"
        message = "%s: %s %s, because the translation would change the structure of the file"
        log.warning(message, self._name, counted(number, "paragraph"), verb)
        return self._document.write(used)

    @cached_property
    def _wanted(self) -> int:
        """The structure of the source."""
        return self._structure(self._content)

    def _is_kept(self, written: bytes) -> bool:
        """Return True if a file has the structure of the source."""
        try:
            return self._structure(written) == self._wanted
        except DataError:
            return False

    def _usable(self, translations: Sequence[Inline]) -> list[Inline]:
        """Return the translations, with the segment itself for each that changes the structure."""
        used = list(self._document.segments)
        num_tries = 0
        ranges = [(0, len(used))]  # all before the last one is decided; a range is halved until it is right
        while ranges and num_tries < MAX_TRIES:
            first, last = ranges.pop()
            num_tries += 1
            if self._is_kept(self._document.write([*used[:first], *translations[first:last], *used[last:]])):
                used[first:last] = translations[first:last]
            elif last - first > 1:
                middle = (first + last) // 2
                ranges += [(middle, last), (first, middle)]
        return used
