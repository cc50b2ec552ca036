"""Text documents of OpenDocument."""

import io
import re
import zipfile
from dataclasses import replace

import pytest
from helpers.documents import capitals, identity, translate_bytes
from helpers.formats import OPTIONS, shout, shown
from helpers.sample_documents import ODT, ODT_TYPE, archive_of, files_of, text_document

from mtcli.documents.formats import archive
from mtcli.documents.formats.odf import read, structure
from mtcli.documents.formats.registry import read_document
from mtcli.errors import DataError
from mtcli.translate.translation import Options

NAME = replace(OPTIONS, name="a.odt")
STYLES = (
    '<style name="T1" family="text"><p weight="bold" rsid="1"/></style>'
    '<style name="T2" family="text"><p weight="bold" rsid="2"/></style>'
    '<style name="T3" family="text"><p rsid="3" language="de" country="DE"/></style><style name="T4" family="text"/>'
)
RUBY = "<text:ruby><text:ruby-base>two</text:ruby-base><text:ruby-text>x</text:ruby-text></text:ruby>"


def span(text: str, style: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def shouted(paragraphs: str) -> str:
    """Return the paragraphs in upper case, after a check of the identity and of the structure."""
    content = text_document(paragraphs, STYLES)
    document = read(content, NAME)
    assert document.write(document.segments) == content
    written = document.write([shout(segment) for segment in document.segments])
    assert structure(written, NAME) == structure(content, NAME)
    return files_of(written)["content.xml"].partition("<o:body>")[2].partition("</o:body>")[0]


@pytest.mark.parametrize(
    ("paragraph", "segment", "written"),
    [
        ("<text:p>One &amp; two</text:p>", "One & two", "<text:p>ONE &amp; TWO</text:p>"),
        ("<text:h>One\n  two</text:h>", "One two", "<text:h>ONE TWO</text:h>"),
        ("<text:p>12<text:tab/></text:p>", "", "<text:p>12<text:tab/></text:p>"),
        (
            f"<text:p>one {span('two', 'Strong')} three</text:p>",
            f"one [{span('|', 'Strong')}] three".replace("|", "]two["),
            f"<text:p>ONE {span('TWO', 'Strong')} THREE</text:p>",
        ),
        (f"<text:p>{span('one', 'T1')}</text:p>", "one", f"<text:p>{span('ONE', 'T1')}</text:p>"),
        (f"<text:p>o{span('n', 'T3')}e{span('!', 'T4')}</text:p>", "one!", "<text:p>ONE!</text:p>"),
        (
            f"<text:p>{span('on', 'T1')}{span('e', 'T2')}{span(' two', 'T1')} three</text:p>",
            f"[{span('|', 'T1')}] three".replace("|", "]one two["),
            f"<text:p>{span('ONE TWO', 'T1')} THREE</text:p>",
        ),
        (
            "<text:p>a<text:s/> b.<text:s text:c='2'/>C<text:soft-page-break/></text:p>",
            "a  b.  C",
            '<text:p>A <text:s text:c="1"/>B. <text:s text:c="1"/>C<text:soft-page-break/></text:p>',
        ),
        (
            f"<text:p>a <text:s/>{span('b', 'X')}<text:s/>{span('<text:s/>c', 'X')}</text:p>",
            f"a  [{span('|', 'X')}] [{span('|', 'X')}]".replace("|", "]b[", 1).replace("|", "] c["),
            f'<text:p>A <text:s text:c="1"/>{span("B", "X")} {span("<text:s text:c=|1|/>C", "X")}</text:p>'.replace(
                "|", '"'
            ),
        ),
        (
            f"<text:p>a \n {span(' b  c', 'X')} d</text:p>",
            f"a [{span('|', 'X')}] d".replace("|", "]b c["),
            f"<text:p>A {span('B C', 'X')} D</text:p>",
        ),
        (
            f"<text:p>one {RUBY}</text:p>",
            "one two",
            "<text:p>ONE TWO</text:p>",
        ),
    ],
    ids=[
        "text",
        "lines",
        "no letters",
        "span",
        "around all",
        "not shown",
        "joined",
        "spaces",
        "spaces in spans",
        "white space",
        "ruby",
    ],
)
def test_paragraphs_are_text_and_pairs_of_tags(paragraph: str, segment: str, written: str) -> None:
    assert "".join(shown(read, text_document(paragraph, STYLES), NAME)) == segment
    assert shouted(paragraph) == written


@pytest.mark.parametrize("count", ["101", "9999", "99999", "9" * 5_000])
def test_an_element_for_very_many_spaces_stays(count: str) -> None:
    spaces = f'<text:s text:c="{count}"/>'
    paragraph = f"<text:p>one{spaces} two</text:p>"
    (segment,) = shown(read, text_document(paragraph, STYLES), NAME)
    assert re.sub(r"\[<br \d+/>\]", "|", segment) == "one| two"
    assert shouted(paragraph) == f"<text:p>ONE{spaces} TWO</text:p>"


def test_spaces_of_several_elements_are_written_as_several() -> None:
    spaces = '<text:s text:c="100"/>' * 2
    assert shown(read, text_document(f"<text:p>one{spaces}two</text:p>"), NAME) == [f"one{' ' * 200}two"]
    written = shouted(f"<text:p>one{spaces}two</text:p>")
    assert written == '<text:p>ONE <text:s text:c="100"/><text:s text:c="99"/>TWO</text:p>'


def test_marks_fields_and_tabs_are_tags() -> None:
    paragraph = (
        '<text:p>see <text:bookmark-start name="a"/>it<text:bookmark-end name="a"/><text:tab/>at'
        "<text:line-break/><text:date>Monday</text:date></text:p>"
    )
    (segment,) = shown(read, text_document(paragraph), NAME)
    assert re.sub(r" \d+", "", segment) == "see [<x/>]it[<x/>][<br/>]at[<br/>][<x/>]"
    assert shouted(paragraph) == paragraph.replace("see", "SEE").replace(">it<", ">IT<").replace("at<", "AT<")


def test_notes_comments_and_text_boxes_are_paragraphs() -> None:
    note = "<text:note><text:note-citation>a</text:note-citation><text:note-body>{}</text:note-body></text:note>"
    box = "<d:frame><d:text-box>{}</d:text-box></d:frame>"
    comment = "<o:annotation><creator>Ann</creator>{}</o:annotation>"
    inner = ["<text:p>note</text:p>", "<text:p>box</text:p>", "<text:p>comment</text:p>"]
    paragraph = (
        f"<text:p>one{note.format(inner[0])} two{box.format(inner[1])} three{comment.format(inner[2])} four</text:p>"
    )
    segments = shown(read, text_document(paragraph), NAME)
    assert segments[1:] == ["note", "box", "comment"]
    shouted_inner = [text.replace(">", ">", 1) for text in inner]
    assert shouted(paragraph) == (
        f"<text:p>ONE{note.format(shouted_inner[0]).replace('>note<', '>NOTE<')} "
        f"TWO{box.format(inner[1]).replace('>box<', '>BOX<')} "
        f"THREE{comment.format(inner[2]).replace('>comment<', '>COMMENT<')} FOUR</text:p>"
    )


def test_deleted_text_stays() -> None:
    deleted = "<text:tracked-changes><text:deletion><text:p>gone</text:p></text:deletion></text:tracked-changes>"
    assert shouted(f"{deleted}<text:p>one</text:p>") == f"{deleted}<text:p>ONE</text:p>"


def test_headers_of_pages_are_translated_and_other_files_stay() -> None:
    styles = '<a xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><t:p>header</t:p></a>'
    content = text_document("<text:p>one</text:p>", extra={"styles.xml": styles, "meta.xml": "<no/>"})
    document = read_document(content, NAME)
    assert document.segments == [("one",), ("header",)]
    written = document.write([("ONE",), ("HEADER  x",)])
    changed = styles.replace("header", 'HEADER <t:s t:c="1"/>x')
    assert files_of(written) == files_of(content) | {
        "styles.xml": changed,
        "content.xml": files_of(content)["content.xml"].replace("one", "ONE"),
    }
    with zipfile.ZipFile(io.BytesIO(written)) as file:
        assert (file.namelist()[0], file.getinfo("mimetype").compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert written[30:38] + written[38 : 38 + len(ODT_TYPE)] == b"mimetype" + ODT_TYPE.encode()


def test_a_model_that_writes_capitals_keeps_all_markup() -> None:
    content = text_document(ODT, STYLES)
    same = identity()
    translator = capitals()
    translator.aligns = same.aligns = False
    assert translate_bytes(content, NAME, same, Options()) == content
    written = translate_bytes(content, NAME, translator, Options())
    assert files_of(written)["content.xml"].count("<text:") == files_of(content)["content.xml"].count("<text:")
    assert "FIVE" in files_of(written)["content.xml"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (text_document("", extra={"big": "\0" * 20_000_000}), "bomb"),
        (text_document("", extra={"../x": ""}), "path out of the archive"),
        (text_document("", extra={"styles.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "declares the entity"),
        (text_document("<a>"), "not well-formed XML"),
        (text_document("")[:-30], "damaged"),
        (
            text_document("", extra={"META-INF/manifest.xml": "<manifest:encryption-data/>"}),
            "protected by a password; save it without one",
        ),
        (archive_of({"mimetype": "application/epub+zip", "content.xml": "<a/>"}), r"its type is application/epub\+zip"),
        (archive_of({"mimetype": ODT_TYPE}), r"its archive has no content\.xml"),
        (b"<html/>", "damaged"),
    ],
    ids=["bomb", "path", "entity", "xml", "damaged", "password", "other type", "no text", "no archive"],
)
def test_unsafe_and_other_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(content, NAME)


def test_limits_of_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PART_BYTES", 100)
    with pytest.raises(DataError, match=r"content\.xml: larger than .* split the document"):
        read(text_document("<text:p>one</text:p>"), NAME)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 1)
    with pytest.raises(DataError, match="files in the archive"):
        read(text_document(""), NAME)
