#!/usr/bin/env python3
"""Translate the same files by mtcli, translatehtml and argos-translate-files with one translator, and compare them.

    pip install --no-deps argostranslate translatehtml argos-translate-files
    pip install beautifulsoup4 lxml
    python scripts/compare_documents.py FILE_OR_FOLDER... [--most 50] [--model RUN]

With --model, all use this model with the same engine: mtcli as `mtcli translate` does, the others by a translator that
splits each text they ask for into sentences. Otherwise the translator writes each text backwards, word by word, so what
differs is the work around the model; mtcli then gives it the text between two tags.

The table has, for each tool: files written; files whose tags (name and attributes) are all there in equal numbers;
files with the same blocks in order (headings, paragraphs, list items, table cells); files with the same code and
scripts; files that a translator without changes gives back byte for byte; texts given to the translator; CPU seconds.
"""

import argparse
import io
import sys
import tempfile
import time
import types
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.html import read as read_html
from mtcli.documents.formats.office import read as read_docx
from mtcli.documents.formats.plain_text import read_text
from mtcli.documents.markup.inline import Inline
from mtcli.documents.pipeline import translate_segments
from mtcli.translate.loading import load

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
WORD_RUN = {WORD + name for name in ("r", "t", "rPr", "proofErr", "lastRenderedPageBreak", "lang", "noProof")}
BLOCKS = frozenset(
    {"p", "h1", "h2", "h3", "h4", "li", "td", "th", "tr", "ul", "ol", "dt", "dd", "pre", "blockquote", "div"}
)
CODE = frozenset({"pre", "code", "script", "style"})
TEXT_ATTRIBUTES = frozenset({"alt", "title", "content", "placeholder", "aria-label", "value", "label"})
"""Attributes that mtcli translates."""
Translate = Callable[[str], str]
TranslateAll = Callable[[Sequence[Inline]], Sequence[Inline]]


class Tags(HTMLParser):
    """Collects the tags and the blocks of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: Counter[Any] = Counter()
        self.blocks: list[str] = []
        self.code: Counter[str] = Counter()
        self._in_code = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = sorted((key, (value or "").lower()) for key, value in attrs if key not in TEXT_ATTRIBUTES)
        self._in_code += tag in CODE
        self.tags[tag, tuple(kept)] += 1
        if tag in BLOCKS:
            self.blocks.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag in CODE

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.code.update(data.split())


class CountedTranslator:
    """Stands for a model, with the interface of Argos Translate. It counts the texts it gets.

    Args:
        rule: Translates a text.
        translate_all: Translates the segments of a document; None: `rule` translates the text between two tags.
    """

    def __init__(self, rule: Translate, translate_all: TranslateAll | None = None):
        self.rule = rule
        self.translate_all = translate_all
        self.lines = 0
        self.to_lang = types.SimpleNamespace(code="de")

    def translate(self, text: str) -> str:
        self.lines += 1
        return self.rule(text)

    def translate_segments(self, segments: Sequence[Inline]) -> Sequence[Inline]:
        if self.translate_all:
            self.lines += len(segments)
            return self.translate_all(segments)
        return [tuple(self.translate(part) if isinstance(part, str) else part for part in each) for each in segments]


def model_translator(run: Path) -> CountedTranslator:
    """Return a translator that uses the model of a run."""
    translator, options, (src, _) = load([run], "cpu", "auto")

    def rule(text: str) -> str:
        document = read_text(EncodedText(text))
        return document.text(translate_all(document.segments))

    def translate_all(segments: Sequence[Inline]) -> list[Inline]:
        found = translate_segments(segments, translator, options, src=src, quiet=True)
        return [segment.content() for segment in found]

    return CountedTranslator(rule, translate_all)


def backwards(text: str) -> str:
    """Return the words of a text in the opposite order, with the white space at its ends."""
    stripped = text.strip()
    start = text[: len(text) - len(text.lstrip())]
    return start + " ".join(reversed(stripped.split())) + (text[len(text.rstrip()) :] if stripped else "")


def by_mtcli(content: bytes, suffix: str, translator: CountedTranslator) -> bytes:
    read = read_docx if suffix == ".docx" else read_html
    document = read(content, ReadOptions("file", "en", "de"))
    return document.write(translator.translate_segments(document.segments))


def by_translatehtml(content: bytes, suffix: str, translator: CountedTranslator) -> bytes:
    from translatehtml import translate_html

    if suffix != ".html":
        raise NotImplementedError("HTML only")
    return str(translate_html(translator, content.decode())).encode()


def by_argos_files(content: bytes, suffix: str, translator: CountedTranslator) -> bytes:
    from argostranslatefiles.formats.html import Html
    from argostranslatefiles.formats.openxml.docx import Docx

    form = Docx() if suffix == ".docx" else Html()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"in{suffix}"
        path.write_bytes(content)
        return Path(form.translate(translator, str(path))).read_bytes()


Tool = Callable[[bytes, str, CountedTranslator], bytes]
TOOLS: dict[str, Tool] = {"mtcli": by_mtcli, "translatehtml": by_translatehtml, "argos-translate-files": by_argos_files}


def shape(content: bytes, suffix: str) -> tuple[Any, Any, Any]:
    """Return the tags of a file, the sequence of its blocks, and the words of its code in any order."""
    if suffix == ".html":
        tags = Tags(content.decode())
        return tags.tags, tags.blocks, tags.code
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        roots = [ElementTree.fromstring(archive.read(name)) for name in archive.namelist() if is_text_part(name)]
    elements = [element for root in roots for element in root.iter()]
    counted = Counter(e.tag for e in elements if e.tag not in WORD_RUN and not is_run_property(e.tag))
    return counted, [e.tag for e in elements if e.tag in (WORD + "p", WORD + "tc", WORD + "tr", WORD + "tbl")], []


def is_text_part(name: str) -> bool:
    return name.startswith(("word/document", "word/header", "word/footer")) and name.endswith(".xml")


def is_run_property(tag: str) -> bool:
    return tag.removeprefix(WORD) in {"b", "bCs", "i", "iCs", "rStyle", "rFonts", "color", "sz", "szCs", "u"}


def stub_argos() -> None:
    """Let the two libraries import Argos Translate without its models and sentence splitters."""
    translate = types.ModuleType("argostranslate.translate")
    vars(translate).update(ITranslation=CountedTranslator)
    sys.modules["argostranslate.translate"] = translate
    for name in ("pymupdf", "fitz", "pysrt"):
        sys.modules.setdefault(name, types.ModuleType(name))


def files(paths: list[Path], suffix: str, most: int) -> Iterator[bytes]:
    found = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob(f"*{suffix}")))
    chosen = found[:: max(1, len(found) // most)][:most]
    for path in chosen:
        content = path.read_bytes()
        if suffix == ".docx" or is_utf8(content):
            yield content


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=50, help="files of each type")
    parser.add_argument("--model", type=Path, metavar="RUN", help="translate with this model")
    given = parser.parse_args()
    stub_argos()
    columns = "type | tool | written | all tags kept | same blocks | code unchanged | identity | texts | CPU seconds"
    print(f"| {columns} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for suffix in (".html", ".docx"):
        contents = list(files(given.paths, suffix, given.most))
        for name, tool in TOOLS.items():
            translator = model_translator(given.model) if given.model else CountedTranslator(backwards)
            print(row(contents, suffix, name, tool, translator), flush=True)


def row(contents: list[bytes], suffix: str, name: str, tool: Tool, translator: CountedTranslator) -> str:
    counts: Counter[str] = Counter()
    seconds = 0.0
    for content in contents:
        start = time.process_time()
        try:
            written = tool(content, suffix, translator)
        except NotImplementedError:
            return f"| {suffix} | {name} | not supported | | | | | | |"
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        finally:
            seconds += time.process_time() - start
        tags, blocks, code = shape(content, suffix)
        new_tags, new_blocks, new_code = shape(written, suffix)
        counts["written"] += 1
        counts["tags"] += tags == new_tags
        counts["blocks"] += blocks == new_blocks
        counts["code"] += code == new_code
        counts["identity"] += tool(content, suffix, CountedTranslator(str)) == content
    shown = (f"{counts[key]} of {len(contents)}" for key in ("written", "tags", "blocks", "code", "identity"))
    return f"| {suffix} | {name} | {' | '.join(shown)} | {translator.lines:,} | {seconds:.1f} |"


if __name__ == "__main__":
    main()
