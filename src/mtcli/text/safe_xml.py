"""XML from untrusted files: the elements and their places, without external files and without entity expansion.

The parser is expat, which is part of Python. It never opens another file here, and a file that declares entities is
refused before any of them is used: "billion laughs" and external entities both need a declaration. So is one that
declares defaults of attributes, because each element would have a copy of them. A document type without both, as TMX
files have it, is ignored.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

from mtcli.errors import DataError

MAX_DEPTH = 256
"""Nested elements. Word documents with text boxes in tables have about 60."""
MAX_ELEMENTS = 2_000_000
"""Elements of a tree. Each takes about 300 bytes of memory. A Word document of 1,000 pages has about 500,000."""
ELEMENT_BYTES = 16 * 2**20
"""Size limit of what `iterate_elements` holds in memory: a wanted element, a tag or a comment."""
_CHUNK = 1 << 16
_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_NOT_OF_FILES = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that are no encodings of files. Some take time that grows with the square of the size."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(eq=False, slots=True)
class Element:
    """An element of an XML file, with its place in the text of the file."""

    name: str
    """The name without the prefix of its namespace."""
    namespace: str
    """The address of its namespace, or an empty string."""
    attributes: dict[str, str]
    """By name without prefix, so `xml:lang` is `lang`."""
    start: int
    """The `<` of the start tag."""
    line: int
    parent: Element | None
    children: list[Element | str] = field(default_factory=list)
    close: int = 0
    """The `<` of the end tag; of an element without one (`<x/>`), the character after it."""

    def elements(self, *names: str) -> Iterator[Element]:
        """Yield the child elements; with names, those of these names."""
        for child in self.children:
            if isinstance(child, Element) and (not names or child.name in names):
                yield child

    def text(self) -> str:
        """Return the text of the element and of all elements in it."""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)


def read_xml(text: str, name: str) -> Element:
    """Parse XML into a tree.

    Args:
        text: The file, from `decode_xml`. Any encoding that its declaration names is ignored.
        name: Name of the file, for messages.

    Raises:
        DataError: The file is not well-formed, declares entities or defaults of attributes, nests too deeply, or has
            too many elements.
    """
    content = text.encode("utf-8", "replace")
    builder = _Builder(name, None, "utf-8", _Offsets(content))
    builder.feed(content, last=True)
    return builder.root


def iterate_elements(file: BinaryIO, name: str, wanted: Collection[str]) -> Iterator[Element]:
    """Yield the elements with certain names as soon as each is complete, in little memory.

    Only these elements and what is in them keep their children. Their `parent` has its attributes, but no children.
    The places of elements are in bytes.

    Args:
        file: XML in any encoding that expat reads.
        name: Name of the file, for messages.
        wanted: Names without prefix, such as `tu` or `trans-unit`.

    Raises:
        DataError: See `read_xml`; or an element is larger than `ELEMENT_BYTES`. Elements before the problem are yielded
            first.
    """
    builder = _Builder(name, frozenset(wanted), None, None)
    num_bytes = 0
    last = False
    while not last:
        chunk = file.read(_CHUNK)
        last = not chunk
        num_bytes += len(chunk)
        if num_bytes - builder.held_from > ELEMENT_BYTES:
            limit = f"longer than {ELEMENT_BYTES >> 20} MiB, the limit"
            raise DataError(f"{name}, line {builder.line}: an element, tag or comment is {limit}; remove it")
        try:
            builder.feed(chunk, last)
        finally:
            yield from builder.complete
            builder.complete.clear()


def decode_xml(content: bytes, name: str) -> tuple[str, str]:
    """Return the text of an XML file, and its encoding for `str.encode`.

    The byte order mark decides, then the declaration, then UTF-8. The mark remains in the text.

    Raises:
        DataError: Python does not know the encoding, or the bytes are not in it.
    """
    encoding = marked_encoding(content) or declared_encoding(content) or "utf-8"
    return decode_exactly(content, encoding, name), encoding


def marked_encoding(content: bytes) -> str | None:
    """Return the encoding that the byte order mark of a file stands for; None: it has none."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if content.startswith(mark)), None)


def declared_encoding(content: bytes) -> str | None:
    """Return the encoding that an XML declaration names, in lower case; None: there is none."""
    declared = _ENCODING.match(content)
    return declared[1].decode("ascii").lower() if declared else None


def decode_exactly(content: bytes, encoding: str, name: str) -> str:
    """Decode a file such that encoding the text again gives the same bytes.

    Raises:
        DataError: Python does not know the encoding, it is none of files, the bytes are not in it, or the text has half
            a surrogate pair.
    """
    remedy = "convert the file to UTF-8"
    if encoding != "utf-8":
        remedy += ", also where it declares its encoding"
    try:
        if codecs.lookup(encoding).name in _NOT_OF_FILES:
            raise LookupError
        text = content.decode(encoding)
        exact = text.encode(encoding, "xmlcharrefreplace") == content
        text.encode()  # fails at half a surrogate pair, which some codecs can give
    except LookupError:
        raise DataError(f"{name}: unknown encoding {encoding!r}; {remedy}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: invalid {encoding} at byte {error.start}; {remedy}") from None
    except UnicodeError as error:
        raise DataError(f"{name}: invalid {encoding}: {error}; {remedy}") from None
    if not exact:
        raise DataError(f"{name}: its {encoding} has more than one form of a character; {remedy}")
    return text


class _Offsets:
    """Converts increasing offsets in UTF-8 into offsets in the text."""

    def __init__(self, content: bytes):
        self.content = content
        self.bytes = 0
        self.characters = 0

    def convert(self, place: int) -> int:
        """Return the number of characters before a byte."""
        self.characters += len(self.content[self.bytes : place].decode("utf-8"))
        self.bytes = place
        return self.characters


class _Builder:
    """Collects the elements that expat reports.

    Args:
        name: Name of the file, for messages.
        wanted: Names of elements to keep; None: all.
        encoding: Overrides the one that the file declares.
        offsets: Converts the places of elements; None: they are in bytes.
    """

    def __init__(self, name: str, wanted: frozenset[str] | None, encoding: str | None, offsets: _Offsets | None):
        self.name = name
        self.wanted = wanted
        self.root = Element("", "", {}, 0, 1, None)
        self.complete: list[Element] = []
        self.held_from = 0
        """Number of bytes before the outermost wanted element that is open, otherwise before the last tag or text."""
        self._open = self.root
        self._num_elements = 0
        self._depth = 0
        self._inside = 0
        self._offsets = offsets
        self._parser = expat.ParserCreate(encoding, namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.AttlistDeclHandler = self._attribute
        self._parser.SkippedEntityHandler = self._undeclared_entity

    @property
    def line(self) -> int:
        """The number of the current line."""
        return self._parser.CurrentLineNumber

    def feed(self, chunk: bytes, last: bool) -> None:
        """Parse the next bytes of the file."""
        try:
            self._parser.Parse(chunk, last)
        except expat.ExpatError as error:
            place = f"{self.name}, line {error.lineno}, column {error.offset + 1}"
            raise DataError(
                f"{place}: not well-formed XML ({expat.ErrorString(error.code)}); repair the file"
            ) from None
        except (LookupError, ValueError) as error:  # an encoding that Python cannot offer to expat
            raise DataError(f"{self.name}: {error}; convert the file to UTF-8") from None
        if last and self.wanted is None:
            self.root = next(self.root.elements())

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise DataError(
                f"{self.name}, line {self._parser.CurrentLineNumber}: more than {MAX_DEPTH} nested elements; "
                "no known program writes such a file"
            )
        self._num_elements += 1
        if self.wanted is None and self._num_elements > MAX_ELEMENTS:
            raise DataError(f"{self.name}: more than {MAX_ELEMENTS:,} elements, the limit; split the file")
        namespace, _, local = name.rpartition(" ")
        named = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if not self._inside:
            self.held_from = self._parser.CurrentByteIndex
        element = Element(local, namespace, named, self._place(), self._parser.CurrentLineNumber, self._open)
        if self.wanted is not None and local in self.wanted:
            self._inside += 1
        if self.wanted is None or self._inside:
            self._open.children.append(element)
        self._open = element

    def _end(self, _: str) -> None:
        element = self._open
        element.close = self._place()
        assert element.parent is not None
        self._open = element.parent
        self._depth -= 1
        if self.wanted is not None and element.name in self.wanted:
            self._inside -= 1
            if not self._inside:
                self.complete.append(element)
                self._open.children.clear()

    def _place(self) -> int:
        place = self._parser.CurrentByteIndex
        return self._offsets.convert(place) if self._offsets else place

    def _characters(self, text: str) -> None:
        if not self._inside:
            self.held_from = self._parser.CurrentByteIndex
        if self.wanted is None or self._inside:
            self._open.children.append(text)

    def _undeclared_entity(self, entity: str, _: bool) -> None:
        """Use the meaning in HTML of an entity such as `&nbsp;`, whose declaration would be in another file."""
        self._characters(html.unescape(f"&{entity};"))

    def _entity(self, entity: str, *_: object) -> None:
        raise DataError(
            f"{self.name}, line {self._parser.CurrentLineNumber}: the XML declares the entity {entity!r}, which can "
            "read other files or fill the memory; remove the declaration"
        )

    def _attribute(self, element: str, attribute: str, kind: str, default: str | None, required: object) -> None:
        if default is not None:
            raise DataError(
                f"{self.name}, line {self._parser.CurrentLineNumber}: the XML declares a default of the attribute "
                f"{attribute!r}, which can fill the memory; remove the declaration"
            )
