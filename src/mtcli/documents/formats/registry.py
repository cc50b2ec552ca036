"""Which files are documents, and which module reads them. A module is imported when a file needs it."""

import codecs
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePath
from typing import cast

from mtcli.documents.formats.format import Document, Reader, ReadOptions, Structure
from mtcli.documents.formats.structure import VerifiedDocument
from mtcli.errors import UsageError
from mtcli.runtime.outputs import real_path
from mtcli.text import languages
from mtcli.text.lines import decompression

MODULES = {
    ".csv": "table",
    ".po": "po",
    ".pot": "po",
    ".tsv": "table",
    ".txt": "plain_text",
    ".srt": "subtitles",
    ".vtt": "subtitles",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".xliff": "xliff",
    ".xlf": "xliff",
    ".tmx": "tmx",
    ".docx": "office",
    ".odt": "odf",
    ".pptx": "office",
    ".xlsx": "office",
    ".epub": "epub",
    ".json": "json_strings",
    ".md": "markdown",
    ".markdown": "markdown",
}
"""The module of `mtcli.documents.formats` for each suffix. Its function `read` is the `Reader`. Its function
`structure`, which some have, is the `Structure`.
"""

TABLES = frozenset({".csv", ".tsv"})
"""Formats with columns. They are documents if the columns to translate are named."""

_FOR_WORD = "save it as .docx (soffice --convert-to docx)"
_FOR_CATALOGUE = "convert it to .po and back with the translate-toolkit"
_FOR_MARKDOWN = "convert it to Markdown and back with pandoc"
CONVERSION_HINTS = {
    ".doc": _FOR_WORD,
    ".odp": "save it as .pptx (soffice --convert-to pptx)",
    ".ods": "save it as .xlsx (soffice --convert-to xlsx)",
    ".ppt": "save it as .pptx (soffice --convert-to pptx)",
    ".xls": "save it as .xlsx (soffice --convert-to xlsx)",
    ".rtf": _FOR_WORD,
    ".pdf": "convert it to .docx or .odt first, with a word processor",
    ".properties": f"{_FOR_CATALOGUE} (prop2po, po2prop)",
    ".strings": f"{_FOR_CATALOGUE} (prop2po --personality=strings, po2prop)",
    ".resx": f"{_FOR_CATALOGUE} (resx2po, po2resx)",
    ".yaml": f"{_FOR_CATALOGUE} (yaml2po, po2yaml)",
    ".yml": f"{_FOR_CATALOGUE} (yaml2po, po2yaml)",
    ".ts": "convert it to .xlf and back with Qt's lconvert (lconvert -i app_de.ts -o app_de.xlf)",
    ".idml": "export the text from InDesign as .html, or convert it to .xlf with an XLIFF tool such as Okapi Rainbow",
    ".tex": f"{_FOR_MARKDOWN} (pandoc -o paper.md paper.tex)",
    ".rst": f"{_FOR_MARKDOWN} (pandoc -o page.md page.rst)",
    ".ipynb": "convert it to Markdown and back with jupytext (jupytext --to md notebook.ipynb)",
}
"""What to do with files of types that people have and that no module reads."""

START_BYTES = 4096
"""Bytes of a file of unknown type that tell text from binary data."""

PACKAGES = ("markdown-it-py", "sentencex")
"""The package of the extra `documents`, and the one that finds sentences."""

LINE_SUFFIXES = frozenset({
    "", ".bpe", ".csv", ".gz", ".hyp", ".in", ".lc", ".lines", ".norm", ".out", ".raw", ".ref", ".sent", ".snt", ".src",
    ".tc", ".text", ".tgt", ".tok", ".trg", ".tsv", ".txt",
})  # fmt: skip
"""Suffixes of plain text, usually one sentence a line. Suffixes that are language codes or numbers also count."""


def is_document(name: str, *, paragraphs: bool = False, columns: bool = False) -> bool:
    """Return True if a file is translated as a document, False if line by line.

    Args:
        name: Name of the file, `-` for standard input.
        paragraphs: The user asks for paragraphs; plain text is then a document.
        columns: The user names columns; a table is then a document.

    Raises:
        UsageError: The type of the file is unknown, or does not suit `paragraphs` or `columns`.
    """
    suffix = PurePath(name).suffix.lower()
    if columns and suffix not in TABLES:
        problem = "name one with --input" if name == "-" else f"{name} is not one"
        raise UsageError(f"--column: only for {' and '.join(sorted(TABLES))} files; {problem}")
    if columns:
        return True
    if suffix in TABLES and paragraphs:
        raise UsageError(f"--paragraphs: {name} is a table; name the columns to translate with --column")
    if suffix in TABLES:
        raise UsageError(
            f"{name}: a table; name the columns to translate with --column. "
            f"To translate its lines as they are: mtcli translate < {name}"
        )
    if suffix in MODULES and suffix != ".txt":
        return True
    unpacked = PurePath(name).with_suffix("").suffix.lower() if suffix == ".gz" else ""
    if unpacked in MODULES and unpacked != ".txt":
        raise UsageError(f"{name}: compressed; unpack it (gunzip) and translate the {unpacked} file")
    start = _start_of(name)
    command = decompression(start, name)
    if command:
        raise UsageError(f"{name}: compressed; decompress it ({command}) and translate the decompressed file")
    _check_not_flutter(name, start)
    if _is_text(suffix):
        return paragraphs
    _check_no_other_way(name)
    hint = f". To translate its lines: mtcli translate < {name}" if _may_be_text(start) else ""
    raise UsageError(f"{name}: a file of unknown type; {_choices(MODULES)}{hint}")


def _check_no_other_way(name: str) -> None:
    """Raise a UsageError if a file is one of `CONVERSION_HINTS`."""
    suffix = PurePath(name).suffix.lower()
    if suffix in CONVERSION_HINTS:
        raise UsageError(f"{name}: {suffix} files are not supported; {CONVERSION_HINTS[suffix]}")


def _check_not_flutter(name: str, start: bytes) -> None:
    """Raise a UsageError for a file of a Flutter app, whose suffix is also the code of a language."""
    if PurePath(name).suffix.lower() == ".arb" and start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise UsageError(f"{name}: the resources of a Flutter app, a type that is not supported; {_choices(MODULES)}")


def _start_of(name: str) -> bytes:
    """Return the first bytes of a file; none if it is missing, or if reading a pipe would take them away."""
    path = Path(name)
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(START_BYTES)
    except (OSError, ValueError):
        return b""


def _may_be_text(start: bytes) -> bool:
    """Return False if a file that begins with these bytes is binary. The last character may be cut."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return "\0" not in decoder.decode(start)
    except UnicodeDecodeError:
        return False


def check_output_name(name: str, output: str) -> None:
    """Check that the name of an output has the suffix of no other type, because documents are not converted.

    Args:
        name: Name of the document.
        output: Name of its translation.

    Raises:
        UsageError: It has.
    """
    suffix = PurePath(name).suffix.lower()
    other = PurePath(output).suffix.lower()
    if other in MODULES and _type(suffix) not in ("plain_text", _type(other)):
        example = free_name(PurePath(output).with_suffix(suffix), name)
        raise UsageError(f"--output {output}: the translation of {name} is a {suffix} file; name it {example}")


def free_name(output: PurePath, name: str) -> PurePath:
    """Return a name to propose for a translation: `output`, or a name made from it if `output` is the input itself.

    Args:
        output: The name to propose.
        name: Name of the input.
    """
    if real_path(Path(output)) != real_path(Path(name)):
        return output
    return output.with_stem(f"{output.stem}.translated")


def _type(suffix: str) -> str:
    """Return what the suffixes of one type have in common."""
    is_own_type = suffix in TABLES or suffix in (".srt", ".vtt")
    return suffix if is_own_type else MODULES.get(suffix, "plain_text")


def read_document(content: bytes, options: ReadOptions) -> Document:
    """Read a document with the reader for its suffix, or as plain text if its suffix is one of plain text.

    Args:
        content: The file.
        options: Options of the reader. `name` is the name of the file, empty for plain text.

    Raises:
        UsageError: The type is unknown, the file is compressed, or the reader needs a package that is not installed.
        DataError: The file is broken or unsafe.
    """
    suffix = options.suffix
    if suffix == ".gz":
        raise UsageError(f"{options.name}: compressed; unpack it (gunzip) and translate the unpacked file")
    _check_not_flutter(options.name, content[:START_BYTES])
    module = MODULES.get(suffix, "plain_text" if _is_text(suffix) else None)
    if module is None:
        _check_no_other_way(options.name)
        columns = () if options.columns else TABLES
        raise UsageError(f"{options.name}: a file of unknown type; {_choices(MODULES.keys() - columns)}")
    with needs_packages():
        imported = import_module(f"mtcli.documents.formats.{module}")
        document = cast(Reader, imported.read)(content, options)
        structure = cast(Structure | None, getattr(imported, "structure", None))
    if structure is None:
        return document
    return VerifiedDocument(document, content, lambda written: structure(written, options), options.name)


def _is_text(suffix: str) -> bool:
    """Return True if files with this suffix are plain text."""
    return suffix in LINE_SUFFIXES or suffix[1:].isdigit() or languages.known(suffix[1:]) is not None


@contextmanager
def needs_packages() -> Iterator[None]:
    """Raise a UsageError that says how to install the extra if the block cannot import a package of it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mtcli"):
            raise
        install = f"pip install {' '.join(PACKAGES)}"
        raise UsageError(f"{error.name} is not installed; documents and paragraphs need `{install}`") from None


def _choices(suffixes: Iterable[str]) -> str:
    return f"the types of documents are {' '.join(sorted(suffixes))}"
