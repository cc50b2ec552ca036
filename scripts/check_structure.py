#!/usr/bin/env python3
"""Translate documents with translators that write badly, and compare each file with its source by other programs.

    apt-get install gettext
    python -m venv checkers
    checkers/bin/pip install markdown-it-py html5lib lxml python-docx python-pptx openpyxl odfpy
    checkers/bin/pip install webvtt-py srt polib translate-toolkit
    export PYTHONPATH=checkers/lib/python3.11/site-packages
    scripts/check_structure.py FILE_OR_FOLDER... [--most 50] [--model RUN]

Each file is translated by a translator that copies, and by others that drop, repeat, reverse and invent words; with
--model, also by a model. Before and after, the same must be true: `msgfmt --check` accepts a catalogue, html5lib finds
the same elements in a page, in the pages of a book and in the page that markdown-it renders, `json` the same keys and
placeholders, python-docx and odfpy the same paragraphs, tables and links, python-pptx the same shapes and links,
openpyxl the same cells, numbers and formulas, webvtt-py and srt the same cues and tags, and translate-toolkit the same
units of XLIFF and TMX. Elements within a sentence may change places with their neighbors, as words do.

Prints a table with a row for each type and translator: files, those that are refused with a message, those whose
structure differs, and those that do not change. The exit code is 1 if a structure differs.
"""

import argparse
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from check_documents import files_by_type, options_of
from markdown_it import MarkdownIt

from mtcli.config.schema import DecodeConfig
from mtcli.documents.formats.registry import read_document
from mtcli.documents.pipeline import translate_document
from mtcli.errors import MtcliError
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.translate.backends.backend import Backend
from mtcli.translate.loading import load
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import SourceLine

INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img"}
    | {"input", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup"}
    | {"svg", "time", "tt", "u", "var", "wbr"}
)
"""Elements of HTML that may change places with their neighbors."""
SHOWN = frozenset(
    {"alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder", "content", "value", "label"}
)
"""Attributes whose value may be translated."""
INVENTED = (
    "<b>", "</i>", "%s", "%d", "{x}", "{", "%", "&", "&amp;", "`", "``", "*", "_", "[", "](x)", "\n", "\n\n", "\t",
    "\0", '"', "\\", "-->", "|", "#", "<!--", "]]>", "$x", "<%", "~", "1.", "00:00:01,000 --> 00:00:02,000", "ü", "語",
)  # fmt: skip
Outline = Any


class Rule(Backend):
    """Translates by a rule, without a model."""

    aligns = False

    def __init__(self, rule: Callable[[str, random.Random], str]):
        info = TranslationInfo(decode=DecodeConfig(), src="en", tgt="de", longest_src=10_000)
        super().__init__(train_tokenizer([("one two three.", "eins zwei drei.")]), info)
        self.rule = rule
        self.random = random.Random(1)

    def max_batch_tokens(self, options: Options) -> int:
        """See `Backend.max_batch_tokens`."""
        return 100_000

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """See `Backend.search`."""
        return [[Candidate(self.rule(source.line, self.random), 0.0, 0.0)] for source in sources]


def dropped(line: str, rng: random.Random) -> str:
    """Return a line without half of its words."""
    return " ".join(word for word in line.split() if rng.random() < 0.5)


def repeated(line: str, rng: random.Random) -> str:
    """Return a line with some words twice."""
    return " ".join(f"{word} {word}" if rng.random() < 0.5 else word for word in line.split())


def reordered(line: str, rng: random.Random) -> str:
    """Return the words of a line in another order."""
    words = line.split()
    rng.shuffle(words)
    return " ".join(words)


def invented(line: str, rng: random.Random) -> str:
    """Return a line in which markup, placeholders and control characters take the place of some words."""
    return " ".join(rng.choice(INVENTED) if rng.random() < 0.4 else word for word in line.split())


STUBS = {
    "copies": lambda line, _: line,
    "capitals": lambda line, _: line.upper(),
    "drops": dropped,
    "repeats": repeated,
    "reorders": reordered,
    "invents": invented,
    "one sign": lambda _, rng: rng.choice(INVENTED),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--types", nargs="*", default=sorted(OUTLINES), help="suffixes; default: all")
    parser.add_argument("--most", type=int, default=50, help="files of each type")
    parser.add_argument("--most-bytes", type=int, default=200_000, help="larger files are skipped")
    parser.add_argument("--model", type=Path, help="a run; only it is used")
    given = parser.parse_args()
    translators: dict[str, tuple[Translator, Options]] = {
        name: (ModelTranslator(Rule(rule)), Options()) for name, rule in STUBS.items()
    }
    if given.model:
        model, defaults, _ = load([given.model], engine="auto")
        translators = {"model": (model, defaults)}
    failed = False
    print("| type | translator | files | refused | structure differs | unchanged |")
    print("|---|---|---|---|---|---|")
    found = files_by_type(given.paths, given.types, given.most, given.most_bytes)
    for suffix, files in sorted(found.items()):
        sources = [(path, content, outline_of(content, suffix)) for path, content in read_all(files)]
        readable = [source for source in sources if source[2] is not None]
        for name, (translator, options) in translators.items():
            results = [check(path, content, outline, translator, options) for path, content, outline in readable]
            counts = Counter(results)
            failed = failed or bool(counts["differs"])
            row = (suffix, name, len(readable), counts["refused"], counts["differs"], counts["unchanged"])
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
    return int(failed)


def read_all(files: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield files with a content that is in no other one."""
    seen = set()
    for path in files:
        content = path.read_bytes()
        if path.suffix in (".po", ".pot"):
            content = emptied(content)
        if content and content not in seen:
            seen.add(content)
            yield path, content


def emptied(content: bytes) -> bytes:
    """Return a catalogue without its translations and without its language, so that all messages are translated."""
    catalogue = import_module("polib").pofile(content.decode("utf-8", "replace"))
    catalogue.metadata.pop("Language", None)
    for entry in catalogue:
        entry.msgstr = ""
        entry.msgstr_plural = dict.fromkeys(entry.msgstr_plural, "")
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    return str(catalogue).encode()


def check(path: Path, content: bytes, outline: Outline, translator: Translator, options: Options) -> str:
    """Translate a file. Return what happened, and print what is wrong."""
    name = str(path)
    try:
        read_options = options_of(content, name)
        document = read_document(content, read_options)
        src, tgt = read_options.src, read_options.tgt
        found = translate_document(document, translator, options, src=src, tgt=tgt, quiet=True)
        written = document.write([segment.content() for segment in found])
    except MtcliError:
        return "refused"
    if written == content:
        return "unchanged"
    if outline_of(written, path.suffix) == outline:
        return "same"
    print(f"{name}: the structure differs", file=sys.stderr)
    if "KEEP" in os.environ:
        folder = Path(os.environ["KEEP"])
        (folder / f"{path.stem}.before{path.suffix}").write_bytes(content)
        (folder / f"{path.stem}.after{path.suffix}").write_bytes(written)
    return "differs"


def outline_of(content: bytes, suffix: str) -> Outline:
    """Return the structure of a file as another program sees it; None if that cannot read it."""
    try:
        return OUTLINES[suffix](content)
    except Exception:
        return None


def outline_of_page(content: bytes | str) -> Outline:
    """Return the elements of a page, and its code."""
    html5lib = import_module("html5lib")

    tree = html5lib.parse(content, namespaceHTMLElements=False)
    return [outline_of_element(element) for element in tree]


def outline_of_element(element: Any, *, all_inline: bool = False) -> Outline:
    """Return an element and those in it. Neighbors within a sentence are sorted."""
    attributes = sorted((str(key), "" if key in SHOWN else value) for key, value in element.attrib.items())
    is_code = element.tag in ("code", "pre", "script", "style", "kbd", "samp", "var", "textarea")
    inner: list[Any] = []
    run: list[Any] = []
    for child in element:
        found = outline_of_element(child, all_inline=all_inline)
        if all_inline or (isinstance(child.tag, str) and child.tag in INLINE):
            run.append(found)
        else:
            inner += [*sorted(run, key=repr), found]
            run = []
    inner += sorted(run, key=repr)
    return (str(element.tag), attributes, "".join(element.itertext()) if is_code else "", inner)


def outline_of_markdown(content: bytes) -> Outline:
    """Return the elements of the page that markdown-it renders."""
    return outline_of_page(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(content.decode()))


def outline_of_catalogue(content: bytes) -> Outline:
    """Return what msgfmt says of a catalogue: True if it accepts it. None if it does not accept the source."""
    with tempfile.NamedTemporaryFile(suffix=".po") as file:
        file.write(content)
        file.flush()
        checked = subprocess.run(["msgfmt", "--check", "-o", os.devnull, file.name], capture_output=True)
    return True if checked.returncode == 0 else None


def outline_of_word(content: bytes) -> Outline:
    """Return the paragraphs, tables and links of a Word document."""
    docx = import_module("docx")

    document = docx.Document(io.BytesIO(content))
    paragraphs = [(each.style.name if each.style else "", len(each.hyperlinks)) for each in document.paragraphs]
    tables = [[len(row.cells) for row in table.rows] for table in document.tables]
    return paragraphs, tables, len(document.inline_shapes), len(document.sections)


def outline_of_slides(content: bytes) -> Outline:
    """Return the shapes of each slide and of its notes, with their paragraphs and links."""
    slides = import_module("pptx").Presentation(io.BytesIO(content)).slides
    notes = [slide.notes_slide for slide in slides if slide.has_notes_slide]
    return [[outline_of_shape(shape) for shape in slide.shapes] for slide in [*slides, *notes]]


def outline_of_shape(shape: Any) -> Outline:
    """Return the name and place of a shape, its paragraphs and their links."""
    frames = [shape.text_frame] if shape.has_text_frame else []
    if getattr(shape, "has_table", False):
        frames = [cell.text_frame for row in shape.table.rows for cell in row.cells]
    paragraphs = [
        (paragraph.level, sorted({str(run.hyperlink.address) for run in paragraph.runs if run.text.strip()}))
        for frame in frames
        for paragraph in frame.paragraphs
    ]
    inner = [outline_of_shape(each) for each in getattr(shape, "shapes", ())]
    return shape.shape_id, shape.name, shape.left, shape.top, paragraphs, inner


def outline_of_workbook(content: bytes) -> Outline:
    """Return the cells of each sheet: values and formulas, and the number of lines of each text."""
    sheets = import_module("openpyxl").load_workbook(io.BytesIO(content)).worksheets
    return [
        (
            sheet.title,
            sorted(map(str, sheet.merged_cells.ranges)),
            [outline_of_cell(cell) for row in sheet.iter_rows() for cell in row if cell.value is not None],
        )
        for sheet in sheets
    ]


def outline_of_cell(cell: Any) -> Outline:
    """Return the place, type and value of a cell; of a text, the number of its lines."""
    value = cell.value.count("\n") if cell.data_type == "s" else str(getattr(cell.value, "text", cell.value))
    return cell.coordinate, cell.data_type, cell.style_id, value, cell.comment is None


def outline_of_text_document(content: bytes) -> Outline:
    """Return the paragraphs of a text document of OpenDocument, with the links, notes and bookmarks in each."""
    body = import_module("odf.opendocument").load(io.BytesIO(content)).text
    text = import_module("odf.text")
    paragraphs = [each for kind in (text.H, text.P) for each in body.getElementsByType(kind)]
    return [
        (
            paragraph.getAttribute("stylename"),
            sorted(str(link.getAttribute("href")) for link in paragraph.getElementsByType(text.A)),
            [
                len(paragraph.getElementsByType(kind))
                for kind in (text.Note, text.BookmarkStart, text.Tab, text.LineBreak)
            ],
        )
        for paragraph in paragraphs
    ]


def outline_of_book(content: bytes) -> Outline:
    """Return the elements of each page of a book, and its other files."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = [(info.filename, info.compress_type, archive.read(info)) for info in archive.infolist()]
    is_page = re.compile(r"\.x?html?$")
    return [
        (name, method, outline_of_page(file) if is_page.search(name) else name.endswith(".ncx") or hash(file))
        for name, method, file in files
    ]


def outline_of_json(content: bytes) -> Outline:
    """Return the keys and the values other than strings, and the placeholders in braces of each string."""
    return outline_of_value(json.loads(content.decode("utf-8-sig")))


def outline_of_value(value: Any) -> Outline:
    """Return what a translation keeps of a value of JSON."""
    if isinstance(value, dict):
        return [(key, outline_of_value(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return list(map(outline_of_value, value))
    if not isinstance(value, str):
        return value
    return (
        sorted(re.findall(r"\{[\w.]+\}|\{\{.*?\}\}|\$[A-Z]+\$|\$t\(.*?\)", value)),
        value.count("\n"),
        value.count(" | "),
    )


def outline_of_captions(content: bytes) -> Outline:
    """Return the cues of WebVTT and the tags in each."""
    webvtt = import_module("webvtt")

    captions = webvtt.from_string(content.decode("utf-8-sig"))
    return [(cue.start, cue.end, cue.identifier, tree_of_tags(cue.raw_text)) for cue in captions]


def outline_of_subtitles(content: bytes) -> Outline:
    """Return the cues of SubRip and the tags in each."""
    srt = import_module("srt")

    cues = srt.parse(content.decode("utf-8-sig"))
    return [(cue.index, cue.start, cue.end, cue.proprietary, tree_of_tags(cue.content)) for cue in cues]


def tree_of_tags(text: str) -> Outline:
    """Return the tags of a cue as a tree, by the rules of HTML."""
    html5lib = import_module("html5lib")

    tags_only = re.sub(r"<(?!/?[A-Za-z])", "&lt;", text)  # a time in a cue, or a character of SubRip
    tags_only = re.sub(r"<([a-z]+)\.([^<>\s]+)", r'<\1 class="\2"', tags_only)
    return outline_of_element(html5lib.parseFragment(tags_only, namespaceHTMLElements=False), all_inline=True)


def outline_of_units(content: bytes, load_units: Callable[[Any], Any]) -> Outline:
    """Return the sources of the units, and the tags of each target if it is new."""
    units = [unit for unit in load_units(io.BytesIO(content)).units if unit.istranslatable()]
    return [(unit.getid(), str(unit.source)) for unit in units]


def outline_of_xliff(content: bytes) -> Outline:
    """Return the units of XLIFF."""
    return outline_of_units(content, import_module("translate.storage.xliff").xlifffile)


def outline_of_tmx(content: bytes) -> Outline:
    """Return the units of TMX."""
    return outline_of_units(content, import_module("translate.storage.tmx").tmxfile)


OUTLINES: dict[str, Callable[[bytes], Outline]] = {
    ".docx": outline_of_word,
    ".epub": outline_of_book,
    ".htm": outline_of_page,
    ".html": outline_of_page,
    ".json": outline_of_json,
    ".md": outline_of_markdown,
    ".odt": outline_of_text_document,
    ".po": outline_of_catalogue,
    ".pot": outline_of_catalogue,
    ".pptx": outline_of_slides,
    ".srt": outline_of_subtitles,
    ".tmx": outline_of_tmx,
    ".vtt": outline_of_captions,
    ".xlf": outline_of_xliff,
    ".xlsx": outline_of_workbook,
}


if __name__ == "__main__":
    sys.exit(main())
