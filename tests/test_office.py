import io
import re
import zipfile
from dataclasses import replace

import pytest
from helpers.documents import capitals
from helpers.formats import OPTIONS, shout, shown
from helpers.sample_documents import DOCX_FIELD, DOCX_LINK, NAMESPACE, body, packed, run

from mtcli.documents.formats import archive, office
from mtcli.documents.formats.office import read
from mtcli.documents.pipeline import translate_bytes
from mtcli.errors import DataError
from mtcli.translate.translation import Options


def document(content: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return file.read("word/document.xml").decode()


def shouted(paragraphs: str) -> str:
    """Return the paragraphs with their text in upper case, after a check of the identity."""
    content = packed(paragraphs)
    found = read(content, OPTIONS)
    assert found.write(found.segments) == content
    written = document(found.write([shout(segment) for segment in found.segments]))
    return written.removeprefix(body("").removesuffix("</w:body></w:document>")).removesuffix("</w:body></w:document>")


def test_a_run_that_only_names_its_language_has_no_look() -> None:
    german = '<w:lang w:val="de"/>'
    paragraph = f"<w:p>{run('One t')}{run('wo', german)}{run(' three')}</w:p>"
    assert shown(read, packed(paragraph)) == ["One two three"]
    assert shouted(paragraph) == f"<w:p>{run('ONE TWO THREE')}</w:p>"


def test_a_no_break_space_at_the_end_of_a_text_stays() -> None:
    bold = "<w:r><w:rPr><w:b/></w:rPr><w:t>\xa0three</w:t></w:r>"
    paragraph = f"<w:p><w:r><w:t>\n  one two </w:t></w:r>{bold}</w:p>"
    assert shown(read, packed(paragraph)) == ["one two[<r1>]\xa0three[</r1>]"]


def test_a_hyphen_does_not_divide_a_word() -> None:
    hyphens = "<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mail ac</w:t><w:softHyphen/><w:t>count</w:t></w:r>"
    assert shown(read, packed(f"<w:p>{hyphens}</w:p>")) == ["e-mail account"]
    assert shouted(f"<w:p>{hyphens}</w:p>") == f"<w:p>{run('E-MAIL ACCOUNT')}</w:p>"


def test_a_line_break_or_a_tab_separates_words_from_signs() -> None:
    paragraph = "<w:p><w:r><w:t>One</w:t><w:br/><w:t>- two</w:t><w:tab/><w:t>-</w:t></w:r></w:p>"
    translator = capitals()
    translator.aligns = False
    written = document(
        translate_bytes(packed(paragraph), replace(OPTIONS, name="a.docx"), translator, Options(), quiet=True)
    )
    assert translator.lines == ["One - two -"]
    assert re.findall("<w:(?:br|tab)/>|[^<>]+(?=</w:t>)", written) == ["ONE", "<w:br/>", "- TWO", "<w:tab/>", "-"]


def test_the_base_of_ruby_is_text_and_a_change_drops_the_reading() -> None:
    def ruby(base: str) -> str:
        reading = "<w:rt><w:r><w:t>reading</w:t></w:r></w:rt>"
        return f"<w:r><w:ruby><w:rubyPr/>{reading}<w:rubyBase>{base}</w:rubyBase></w:ruby></w:r>"

    paragraph = f"<w:p>{ruby(run('to'))}{run('day ')}{ruby(run('w') + run('e', '<w:b/>'))}{run(' go')}</w:p>"
    assert shown(read, packed(paragraph)) == ["today we go"]
    assert shouted(paragraph) == f"<w:p>{run('TODAY WE GO')}</w:p>"
    mixed = ruby(f"{run('no')}<w:r><w:drawing/></w:r>")
    assert shown(read, packed(f"<w:p>{run('one ')}{mixed}{run(' two')}</w:p>")) == ["one [<x1/>] two"]
    assert ruby(run("12")) in shouted(f"<w:p>{ruby(run('12'))}</w:p>")


def test_runs_with_the_same_look_are_one_text() -> None:
    look = "<w:b/>"
    german = look + '<w:lang w:val="de"/>'
    paragraph = f"<w:p><w:pPr/>{run('One t', look)}<w:proofErr/>{run('wo', german)}</w:p>"
    assert shown(read, packed(paragraph)) == ["One two"]
    assert shouted(paragraph) == f"<w:p><w:pPr/>{run('ONE TWO', look)}</w:p>"


def test_another_look_is_a_pair_of_tags() -> None:
    paragraph = f"<w:p>{run('Read ')}{run('this', '<w:b/>')}{run(' now &amp; then')}</w:p>"
    assert shown(read, packed(paragraph)) == ["Read [<r1>]this[</r1>] now & then"]
    assert shouted(paragraph) == f"<w:p>{run('READ ')}{run('THIS', '<w:b/>')}{run(' NOW &amp; THEN')}</w:p>"


MARKS = {kind: f'<w:fldChar w:fldCharType="{kind}"/>' for kind in ("begin", "separate", "end")}
CASES = {
    "break": ("<w:p><w:r><w:t>one</w:t><w:br/><w:t>two</w:t></w:r></w:p>", "one[<br 1/>]two"),
    "leading tab": ("<w:p><w:r><w:tab/><w:t>one</w:t></w:r></w:p>", "one"),
    "hyperlink": (DOCX_LINK, "see [<x1>]it[</x1>]"),
    "insertion": (f'<w:p><w:ins w:id="1">{run("one")}</w:ins></w:p>', "one"),
    "deletion": (
        f"<w:p>{run('one ')}<w:del><w:r><w:delText>no</w:delText></w:r></w:del>{run('b')}</w:p>",
        "one [<x1/>]b",
    ),
    "content control": (
        f"<w:p>{run('a ')}<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>{run('b')}</w:sdtContent></w:sdt></w:p>",
        "a [<x1>][<x2>]b[</x2>][</x1>]",
    ),
    "field": (DOCX_FIELD, "Page [<x1/>]"),
    "link as a field": (
        '<w:p><w:r><w:t>See </w:t><w:fldChar w:fldCharType="begin"/><w:instrText> HYPERLINK "x" </w:instrText>'
        f'<w:fldChar w:fldCharType="separate"/></w:r>{run("one", "<w:u/>")}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
        f"{run(' two')}</w:p>",
        "See [<x1>]one[</x1>] two",
    ),
    "field in the address of a link": (
        f"<w:p>{run('see ')}<w:r>{MARKS['begin']}<w:instrText> HYPERLINK </w:instrText>{MARKS['begin']}"
        f"<w:instrText>DOCVARIABLE x</w:instrText>{MARKS['separate']}</w:r>{run('address')}<w:r>{MARKS['end']}"
        f"{MARKS['separate']}</w:r>{run('one')}<w:r>{MARKS['end']}</w:r>{run(' two')}</w:p>",
        "see [<x1>]one[</x1>] two",
    ),
    "field that ends in another paragraph": (
        f"<w:p>{run('see ')}<w:r>{MARKS['begin']}<w:instrText>TOC</w:instrText>{MARKS['separate']}</w:r>"
        f"{run(' one')}</w:p>",
        "see [<x1/>] one",
    ),
}


@pytest.mark.parametrize(("paragraph", "segment"), CASES.values(), ids=CASES.keys())
def test_markup_stays(paragraph: str, segment: str) -> None:
    assert shown(read, packed(paragraph))[0].replace("See[", "See [") == segment
    written = shouted(paragraph)
    for markup in ("w:tab/", "w:br/", "w:hyperlink", "w:ins ", "w:del>", "w:sdtPr", "w:fldChar", "w:instrText", "w:u/"):
        assert written.count(f"<{markup}") == paragraph.count(f"<{markup}")
    assert "".join(shown(read, packed(written))).lower() == "".join(shown(read, packed(paragraph))).lower()


def test_thousands_of_nested_links_are_read() -> None:
    marks = {kind: f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")}
    link = f"{marks['begin']}<w:r><w:instrText>HYPERLINK</w:instrText></w:r>{marks['separate']}"
    paragraph = f"<w:p>{link * 1200}{run('one')}{marks['end'] * 1200}</w:p>"
    assert shown(read, packed(paragraph)) == ["one"]
    assert shouted(paragraph) == paragraph.replace("one", "ONE")


def test_text_boxes_in_a_paragraph_are_segments() -> None:
    box = f"<w:drawing><w:txbxContent><w:p>{run('inner')}</w:p></w:txbxContent></w:drawing>"
    paragraph = f"<w:p>{run('one ')}<w:r>{box}</w:r>{run('two')}</w:p><w:p>{run('three')}</w:p>"
    assert shown(read, packed(paragraph)) == ["one [<x1/>]two", "inner", "three"]
    inner = f"<w:drawing><w:txbxContent><w:p>{run('INNER')}</w:p></w:txbxContent></w:drawing>"
    one = f'<w:r><w:t xml:space="preserve">ONE </w:t>{inner}<w:t xml:space="preserve">TWO</w:t></w:r>'
    assert shouted(paragraph) == f"<w:p>{one}</w:p><w:p>{run('THREE')}</w:p>"


def test_other_parts_stay_and_notes_are_translated() -> None:
    notes = f"<w:footnotes {NAMESPACE}><w:footnote><w:p>{run('note')}</w:p></w:footnote></w:footnotes>"
    content = packed(
        f"<w:p>{run('text')}</w:p>", {"word/footnotes.xml": notes, "word/media/a.png": b"\x89PNG", "x/": b""}
    )
    found = read(content, OPTIONS)
    assert found.segments == [("text",), ("note",)]
    with zipfile.ZipFile(io.BytesIO(found.write([("Text",), ("Notiz",)]))) as file:
        assert file.namelist() == [
            "[Content_Types].xml",
            "word/document.xml",
            "word/footnotes.xml",
            "word/media/a.png",
            "x/",
        ]
        assert "Notiz" in file.read("word/footnotes.xml").decode()
        assert file.read("word/media/a.png") == b"\x89PNG"


def test_the_comment_of_the_archive_stays() -> None:
    buffer = io.BytesIO(packed(f"<w:p>{run('one')}</w:p>"))
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = b"written by a program"
    found = read(buffer.getvalue(), OPTIONS)
    written = found.write([shout(segment) for segment in found.segments])
    assert "ONE" in document(written)
    with zipfile.ZipFile(io.BytesIO(written)) as file:
        assert file.comment == b"written by a program"


def test_unsafe_archives_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bombs = {
        "bomb": packed("", {"word/a.xml": b"\0" * 20_000_000}),
        "path out of the archive": packed("", {"../../etc/passwd": "x"}),
        "twice": _twice(),
        "declares the entity": packed("", {"word/footnotes.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}),
        "damaged": packed("")[:-30],
        "password": b"\xd0\xcf\x11\xe0" + bytes(100),
        "not a Word document": _without_types(),
    }
    for message, content in bombs.items():
        with pytest.raises(DataError, match=message):
            read(content, OPTIONS)
    monkeypatch.setattr(archive, "MAX_BYTES", 2_000_000)
    with pytest.raises(DataError, match="MiB when unpacked"):
        read(packed("", {"a": b"\0" * 3_000_000}), OPTIONS)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 5)
    with pytest.raises(DataError, match="files in the archive"):
        read(packed("", {str(number): "" for number in range(4)}), OPTIONS)


def test_a_part_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "PART_BYTES", 100)
    with pytest.raises(DataError, match=r"word/document\.xml: larger than .* split the document"):
        read(packed(f"<w:p>{run('one')}</w:p>"), OPTIONS)


def _without_types() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a", "b")
    return buffer.getvalue()


def _twice() -> bytes:
    buffer = io.BytesIO(packed(""))
    with zipfile.ZipFile(buffer, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("word/document.xml", body(""))
    return buffer.getvalue()
