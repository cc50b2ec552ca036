"""ZIP archives from untrusted files, in memory. Nothing is ever extracted to a folder."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document
from mtcli.documents.formats.structure import Digest
from mtcli.documents.formats.xml_markup import parse_xml
from mtcli.documents.markup.inline import Inline
from mtcli.errors import DataError
from mtcli.text.safe_xml import Element

MAX_ENTRIES = 10_000
"""Files in an archive. A Word document with a picture on each of 1,000 pages has about 1,100."""
MAX_BYTES = 256 * 2**20
"""Unpacked size in bytes. All files of an archive are in memory."""
MAX_RATIO = 200
"""Unpacked size by packed size. XML of documents has 5 to 50; a bomb has up to 1,000, the limit of deflate."""
SMALL_BYTES = 2**20
"""Unpacked size in bytes up to which any ratio is allowed."""
PART_BYTES = 64 * 2**20
"""Size limit of a part with text in bytes. A document of 1,000 pages has about 20 MB of XML."""
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 0x1
_UNSAFE_NAME = re.compile(r"^[/\\]|^[A-Za-z]:|(?:^|[/\\])\.\.(?:[/\\]|$)|\x00")


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file in an archive."""

    info: zipfile.ZipInfo
    content: bytes

    @property
    def name(self) -> str:
        """Its path in the archive."""
        return self.info.filename


class ArchiveDocument:
    """A document in an archive; see `format.Document`.

    Args:
        content: The file.
        entries: The files in it.
        parts: The files with text, by the names of their entries.
        edited: The new content of other files if there is any translation, by their names.
    """

    def __init__(
        self,
        content: bytes,
        entries: Sequence[ArchiveEntry],
        parts: Mapping[str, Document],
        edited: Mapping[str, bytes] | None = None,
    ):
        self._content = content
        self._entries = entries
        self._parts = parts
        self._edited = edited or {}

    @property
    def segments(self) -> Sequence[Inline]:
        """The paragraphs of all parts."""
        return [segment for part in self._parts.values() for segment in part.segments]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the document; if nothing has changed, the file itself."""
        remaining = iter(translations)
        written = {name: part.write(list(islice(remaining, len(part.segments)))) for name, part in self._parts.items()}
        if all(written.get(entry.name, entry.content) == entry.content for entry in self._entries):
            return self._content
        written |= self._edited
        entries = [ArchiveEntry(entry.info, written.get(entry.name, entry.content)) for entry in self._entries]
        with zipfile.ZipFile(io.BytesIO(self._content)) as archive:
            return write_archive(entries, archive.comment)


def read_archive(content: bytes, name: str) -> list[ArchiveEntry]:
    """Read all files of an archive.

    Args:
        content: The archive.
        name: Its name, for messages.

    Raises:
        DataError: It is damaged, encrypted, too large when unpacked, or has names that no document has.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            _check(infos, len(content), name)
            return [ArchiveEntry(info, archive.read(info)) for info in infos]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{name}: a damaged archive ({error}); save the document again") from None


def read_part(entry: ArchiveEntry, name: str) -> tuple[EncodedText, Element]:
    """Return the text of a part of XML and its outermost element.

    Args:
        entry: The part.
        name: The name of the archive, for messages.

    Raises:
        DataError: It is too large, not well-formed or unsafe.
    """
    inner_name = f"{name}: {entry.name}"
    if len(entry.content) > PART_BYTES:
        raise DataError(f"{inner_name}: larger than {PART_BYTES >> 20} MiB, the limit; split the document")
    return parse_xml(entry.content, inner_name)


def archive_structure(entries: Iterable[ArchiveEntry], part_structure: Callable[[ArchiveEntry], int | None]) -> int:
    """Return a hash of all files of an archive; see `format.Structure`.

    Args:
        entries: The files.
        part_structure: Returns a hash of what a translation must not change in a part; None: it must stay as it is.
    """
    digest = Digest()
    for entry in entries:
        digest.add(entry.name)
        part = part_structure(entry)
        digest.add(entry.content if part is None else part)
    return digest.value


def write_archive(entries: Sequence[ArchiveEntry], comment: bytes = b"") -> bytes:
    """Return an archive of these files, in their order, with their dates and attributes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = comment
        for entry in entries:
            info = zipfile.ZipInfo(entry.name, entry.info.date_time)
            info.compress_type = entry.info.compress_type
            info.external_attr = entry.info.external_attr
            info.create_system = entry.info.create_system
            info.comment = entry.info.comment
            archive.writestr(info, entry.content)
    return buffer.getvalue()


def _check(infos: Sequence[zipfile.ZipInfo], packed: int, name: str) -> None:
    """Check what the archive declares, see `read_archive`. Reading stops at the declared size of each file."""
    if len(infos) > MAX_ENTRIES:
        raise DataError(f"{name}: {len(infos):,} files in the archive, the limit is {MAX_ENTRIES:,}; it is no document")
    unpacked = sum(info.file_size for info in infos)
    if unpacked > MAX_BYTES:
        raise DataError(
            f"{name}: {unpacked >> 20:,} MiB when unpacked, the limit is {MAX_BYTES >> 20}; split the document"
        )
    if unpacked > SMALL_BYTES and unpacked > MAX_RATIO * packed:
        raise DataError(
            f"{name}: unpacks to {unpacked // packed:,} times its size, as no document does; it may be a bomb"
        )
    seen: set[str] = set()
    for info in infos:
        shown = ascii(info.filename)
        if _UNSAFE_NAME.search(info.filename):
            raise DataError(f"{name}: contains {shown}, a path out of the archive; save the document again")
        if info.filename in seen:
            raise DataError(f"{name}: contains {shown} twice; save the document again")
        seen.add(info.filename)
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{name}: {shown} is encrypted; remove the password and save the document again")
        if info.compress_type not in _METHODS:
            raise DataError(f"{name}: {shown} is packed by method {info.compress_type}; save the document again")
