"""The structure of a file stays, whatever the model writes and wherever tags go."""

import csv
import io
import logging
import re
from collections.abc import Callable, Sequence
from itertools import cycle

import pytest
from helpers.documents import ByRule, translate_bytes
from helpers.sample_documents import CAPTIONS, CUES, WITH_MARKUP
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtcli.documents.formats import structure
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.html import html_structure
from mtcli.documents.formats.registry import read_document
from mtcli.documents.formats.structure import Shape, VerifiedDocument
from mtcli.documents.markup.inline import Inline, Tag
from mtcli.serve.translation import document_of
from mtcli.translate.translation import Options

FILES = WITH_MARKUP | {
    "a.html": WITH_MARKUP["a.html"] + b"<p>one <i>two <b>three</i> four <br> five &nbsp; six",
    "a.md": WITH_MARKUP["a.md"] + b"\n\nuse `a` and `b` or *c* [d](e) <kbd>x</kbd> y\n",
    "a.vtt": CAPTIONS.encode() + b"\n\n00:11.000 --> 00:12.000\n<v Bob>one <i>two</i> <v Ann>three <b>four</b>\n",
    "a.srt": CUES.encode(),
}


def read(name: str, content: bytes) -> Document:
    return read_document(content, ReadOptions(name, "en", "de"))


def structure_of(document: Document, content: bytes) -> int:
    assert isinstance(document, VerifiedDocument)
    return document._structure(content)


def any_translations(document: Document, data: st.DataObject) -> list[Inline]:
    """Return translations that have all tags in any order, and text that looks like markup."""
    words = st.text(alphabet="ab `*_<>&[]()!#|\\:;-{}\"'/1.\t", max_size=8)
    translations = []
    for segment in document.segments:
        tags = data.draw(st.permutations([part for part in segment if isinstance(part, Tag)]))
        translation: list[str | Tag] = [data.draw(words)]
        for tag in tags:
            translation += [tag, data.draw(words)]
        translations.append(tuple(translation))
    return translations


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_tags_at_any_place_and_any_text_keep_the_structure(name: str, data: st.DataObject) -> None:
    document = read(name, FILES[name])
    written = document.write(any_translations(document, data))
    assert structure_of(document, written) == structure_of(document, FILES[name])
    assert len(read(name, written).segments) <= len(document.segments)


def answered(name: str, content: str, answers: Sequence[str], *columns: str) -> str:
    """Return the translation of a file by a model that gives these answers in turn, whatever it is asked."""
    remaining = cycle(answers)
    translator = ByRule(lambda line: next(remaining))
    translator.aligns = False
    options = ReadOptions(name, "en", "de", columns)
    return translate_bytes(content.encode(), options, translator, Options()).decode()


SEPARATORS = st.lists(st.text(",;\t\"'\n\r\x0b\x85\u2028 ab", max_size=9), min_size=1, max_size=5)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@given(SEPARATORS)
@example(['","', '"', "a\nb", "\n", '"\n"', ",", ";", "\t"])
def test_no_answer_changes_the_number_of_cells_in_a_csv(delimiter: str, answers: list[str]) -> None:
    content = 'id|text\r\n1|one two\r\n2|""\r\n3|"a ""b"" c"\r\n4|"one\r\ntwo"\r\n5|three'.replace("|", delimiter)
    written = answered("a.csv", content, answers, "text")
    found = list(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter, strict=True))
    assert [len(row) for row in found] == [2] * 6
    assert [row[0] for row in found] == ["id", "1", "2", "3", "4", "5"]


@given(SEPARATORS)
@example([" ", ",", '"', "\n"])
def test_no_answer_changes_the_number_of_rows_of_a_single_column(answers: list[str]) -> None:
    found = list(csv.reader(io.StringIO(answered("a.csv", "text\none\ntwo\nthree\n", answers, "text"), newline="")))
    assert [len(row) for row in found] == [1] * 4


@given(SEPARATORS)
@example(['"', "a\tb", "\t", "\n", '"a'])
def test_no_answer_changes_the_number_of_cells_in_a_tsv(answers: list[str]) -> None:
    content = 'id\ttext\tnote\n1\tone two\t\n\n2\t"three ""four"""\tx\r\n3\t\ty\n4\tfive\n'
    written = answered("a.tsv", content, answers, "text")
    before, after = ([line.split("\t") for line in re.split("\r\n|\n|\r", text)] for text in (content, written))
    assert list(map(len, after)) == list(map(len, before))
    assert [row[:1] + row[2:] for row in after] == [row[:1] + row[2:] for row in before]


@given(SEPARATORS)
@example(["a\nb", "\n\n", "\r", "x\x85y"])
def test_no_answer_changes_the_number_of_lines_of_a_text(answers: list[str]) -> None:
    content = "A title\n\n  one two.\r\n* three\n* four\n\n\n12\rFive six"
    written = answered("a.txt", content, answers)
    before, after = (re.split("(\r\n|\n|\r)", text) for text in (content, written))
    assert after[1::2] == before[1::2]
    assert [not line.strip() for line in after[::2]] == [not line.strip() for line in before[::2]]


@given(SEPARATORS)
def test_no_answer_adds_a_paragraph_to_wrapped_text(answers: list[str]) -> None:
    paragraph = "this is a paragraph of text that was\nwrapped at a width of forty columns, as\nmail is\n"
    written = answered("a.txt", f"{paragraph}\n{paragraph}", answers)
    assert len(re.split("\n[ \t]*\n", written.strip())) == 2


@pytest.mark.parametrize("text", [FILES["a.html"].decode(), "<meta charset=utf-16>ä <i>one <b>two</i> three <br> four"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_html_of_a_request_keeps_its_structure(text: str, data: st.DataObject) -> None:
    document = document_of(text, "html")
    assert document.write(document.segments).decode() == text
    written = document.write(any_translations(document, data)).decode()
    assert html_structure(written) == html_structure(text)


@pytest.mark.parametrize(
    ("name", "content", "translate"),
    [
        ("a.md", b"one `a` two `b`", lambda s: (s[0], s[1], s[3], " zwei")),
        ("a.md", b"one *a* two `b` x", lambda s: (s[0], *s[4:6], "drei", *s[1:4], " x")),
    ],
)
def test_marks_that_meet_get_a_space(name: str, content: bytes, translate: Callable[[Inline], Inline]) -> None:
    document = read(name, content)
    written = document.write([translate(segment) for segment in document.segments])
    assert b"zwei" in written or b"drei" in written
    assert structure_of(document, written) == structure_of(document, content)


def test_only_the_segments_that_change_the_structure_stay(caplog: pytest.LogCaptureFixture) -> None:
    content = b"WEBVTT\n\n" + b"".join(
        b"00:%02d.000 --> 00:%02d.000\nOne <v Bob>two <i>three</i> %d.\n\n" % (n, n + 1, n) for n in range(10, 40)
    )
    document = read("a.vtt", content)
    translations = [tuple("x" if isinstance(part, str) else part for part in segment) for segment in document.segments]
    for number in (3, 17):
        segment = document.segments[number]
        tags = [part for part in segment if isinstance(part, Tag)]
        translations[number] = ("x", tags[1], tags[0], "y", tags[2])  # the voice in the italics
    with caplog.at_level(logging.WARNING):
        written = document.write(translations).decode()
    assert "a.vtt: 2 paragraphs keep their text, because the translation would change the structure" in caplog.text
    assert written.count("One <v Bob>two <i>three</i>") == 2
    assert written.count("x<v Bob>x<i>x</i>x") == 28


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many of such segments, those that are not yet known to be right stay."""
    monkeypatch.setattr(structure, "MAX_TRIES", 9)
    found = VerifiedDocument(_Lines([("a",)] * 64), b"a" * 64, lambda content: content.count(b"b") > 0, "a.txt")
    assert found.write([("c",)] * 40 + [("b",)] * 24).count(b"c") >= 32


class _Lines:
    def __init__(self, segments: Sequence[Inline]) -> None:
        self.segments = segments

    def write(self, translations: Sequence[Inline]) -> bytes:
        return "".join(str(part) for segment in translations for part in segment).encode()


@pytest.mark.parametrize(
    ("page", "other"),
    [
        ("<p>a <b>b</b> <i>c</i>", "<p>x <i>y</i> z <b></b>"),
        ("<p title='a'>b<br>", "<p title='c d'><br>e"),
        ("<title>a</title><meta name=description content='b'>", "<title>b</title><meta name=description content='c'>"),
    ],
)
def test_words_and_the_order_of_neighbors_are_no_structure(page: str, other: str) -> None:
    assert html_structure(page) == html_structure(other)


@pytest.mark.parametrize(
    ("page", "other"),
    [
        ("<p>a <b>b</b> <i>c</i>", "<p>a <b>b <i>c</i></b>"),
        ("<p>a <b>b</b>", "<p>a <b>b"),
        ("<p>a<p>b", "<p>a"),
        ("<a href=x>a</a>", "<a href=y>a</a>"),
        ("<code>a</code> b", "<code>c</code> b"),
        ("<script>a</script>", "<script>b</script>"),
    ],
)
def test_nesting_code_and_attributes_are_structure(page: str, other: str) -> None:
    assert html_structure(page) != html_structure(other)


def test_a_deep_tree_needs_no_recursion() -> None:
    shape = Shape()
    for _ in range(100_000):
        shape.open("b", "b")
    shape.finish()
