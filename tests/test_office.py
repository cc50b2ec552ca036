import io
import re
import tracemalloc
import zipfile
from dataclasses import replace

import pytest
from helpers.documents import capitals, translate_bytes
from helpers.formats import OPTIONS, shout, shown
from helpers.sample_documents import (
    BOLD,
    DOCX_FIELD,
    DOCX_LINK,
    NAMESPACE,
    archive_of,
    body,
    files_of,
    packed,
    presentation,
    run,
    shape,
    slide_run,
    workbook,
)

from mtcli.documents.formats import archive
from mtcli.documents.formats.office import read
from mtcli.documents.formats.registry import read_document
from mtcli.errors import DataError
from mtcli.translate.translation import Options

PPTX = replace(OPTIONS, name="a.pptx")
XLSX = replace(OPTIONS, name="a.xlsx")
GERMAN = '<a:rPr lang="de" dirty="0"/>'
WRONG = '<a:rPr err="1"/>'


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
    written = document(translate_bytes(packed(paragraph), replace(OPTIONS, name="a.docx"), translator, Options()))
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
    monkeypatch.setattr(archive, "PART_BYTES", 1000)
    with pytest.raises(DataError, match=r"word/document\.xml: larger than .* split the document"):
        read(packed(f"<w:p>{run('one' * 300)}</w:p>"), OPTIONS)


# ---- PowerPoint ----


def shouted_slide(paragraphs: str) -> str:
    """Return the paragraphs of a slide in upper case, after a check of the identity."""
    content = presentation(paragraphs)
    found = read_document(content, PPTX)
    assert found.write(found.segments) == content
    written = files_of(found.write([shout(segment) for segment in found.segments]))["ppt/slide.xml"]
    before, after = shape("|").split("|")
    return written.removeprefix(before).removesuffix(after)


@pytest.mark.parametrize(
    ("paragraph", "segment", "written"),
    [
        (
            f"<a:p>{slide_run('One t', GERMAN)}{slide_run('wo', WRONG)}</a:p>",
            "One two",
            f"<a:p>{slide_run('ONE TWO')}</a:p>",
        ),
        (
            f"<a:p>{slide_run('a ')}{slide_run('b', BOLD)}{slide_run(' c &amp; ')}</a:p>",
            "a [<r1>]b[</r1>] c & ",
            f"<a:p>{slide_run('A ')}{slide_run('B', BOLD)}{slide_run(' C &amp; ')}</a:p>",
        ),
        (
            f"<a:p>{slide_run('a')}<a:br/>{slide_run('b')}<a:fld type='slidenum'><a:t>4</a:t></a:fld></a:p>",
            "a[<br 1/>]b[<x3/>]",
            f"<a:p>{slide_run('A')}<a:br/>{slide_run('B')}<a:fld type='slidenum'><a:t>4</a:t></a:fld></a:p>",
        ),
        (f"<a:p>{slide_run('12')}</a:p>", "", f"<a:p>{slide_run('12')}</a:p>"),
    ],
    ids=["spelling marks", "bold", "break and field", "number"],
)
def test_runs_of_slides_are_text_and_tags(paragraph: str, segment: str, written: str) -> None:
    assert "".join(shown(read, presentation(paragraph), PPTX)) == segment
    assert shouted_slide(paragraph) == written


def test_text_of_a_slide_that_changes_places_stays_in_runs_with_one_text() -> None:
    document = read_document(presentation(f"<a:p>{slide_run('a ')}{slide_run('b', BOLD)}{slide_run(' c')}</a:p>"), PPTX)
    ((a, opening, b, closing, c),) = document.segments
    written = files_of(document.write([(opening, closing, a, c, b)]))["ppt/slide.xml"]
    assert written == shape(f"<a:p>{slide_run('a  cb')}</a:p>")


def test_notes_comments_and_layouts_of_slides() -> None:
    text = f"<a:p>{slide_run('{}')}</a:p>"
    placeholder = shape(text.format("Click to edit"), '<p:ph type="title"/>')
    extra = {
        "notesSlide": shape(text.format("note"), '<p:ph type="body"/>'),
        "slideMaster": placeholder,
        "slideLayout": shape(text.format("Confidential")),
        "comments": shape("").replace("<p:sp>", "<p:cm><p:text>comment &amp; more</p:text></p:cm><p:sp>"),
        "notesMaster": shape(text.format("no")),
    }
    content = presentation(text.format("slide"), extra)
    assert shown(read, content, PPTX) == ["slide", "note", "Confidential", "comment & more"]
    document = read_document(content, PPTX)
    written = files_of(document.write([shout(segment) for segment in document.segments]))
    assert "<p:text>COMMENT &amp; MORE</p:text>" in written["ppt/comments.xml"]
    assert written["ppt/slideMaster.xml"] == placeholder


def test_a_comment_in_a_section_of_characters_is_translated() -> None:
    comments = shape("").replace("<p:sp>", "<p:cm><p:text><![CDATA[a & b]]></p:text></p:cm><p:sp>")
    document = read_document(presentation("", {"comments": comments}), PPTX)
    assert document.segments == [("a & b",)]
    assert "<p:text>A &amp; B</p:text>" in files_of(document.write([("A & B",)]))["ppt/comments.xml"]


# ---- Excel ----


def shouted_parts(content: bytes) -> dict[str, str]:
    """Return the parts of a workbook in upper case that differ from its own, after a check of the identity."""
    document = read_document(content, XLSX)
    assert document.write(document.segments) == content
    before = files_of(content)
    written = files_of(document.write([shout(segment) for segment in document.segments]))
    assert list(written) == list(before)
    return {name: part for name, part in written.items() if part != before[name]}


def shouted_strings(strings: str) -> str:
    """Return shared strings in upper case; nothing else may change."""
    content = workbook(strings)
    changed = shouted_parts(content)
    assert set(changed) <= {"xl/sharedStrings.xml"}
    written = changed.get("xl/sharedStrings.xml", files_of(content)["xl/sharedStrings.xml"])
    return written.partition(">")[2].removesuffix("</sst>")


SPACE = ' xml:space="preserve"'


@pytest.mark.parametrize(
    ("strings", "segments", "written"),
    [
        ("<si><t>One &amp; two</t></si>", ["One & two"], "<si><t>ONE &amp; TWO</t></si>"),
        ("<si><t/></si><si><t>12.5</t></si><si/>", [], "<si><t/></si><si><t>12.5</t></si><si/>"),
        (
            f"<si><t{SPACE}> one\n_x000D_\ntwo_x0007_three&#10;four </t></si>",
            ["one", "two[_x0007_]three", "four"],
            f"<si><t{SPACE}> ONE\n_x000D_\nTWO_x0007_THREE&#10;FOUR </t></si>",
        ),
        (
            f"<si><r><t{SPACE}>a </t></r><r><rPr><b/></rPr><t>b\nc</t></r></si>",
            ["a [<r1>]b[<br 2/>]c[</r1>]"],
            f"<si><r><t{SPACE}>A </t></r><r><rPr><b/></rPr><t{SPACE}>B\nC</t></r></si>",
        ),
        (
            '<si><t>one</t><rPh sb="0" eb="1"><t>reading</t></rPh><phoneticPr fontId="1"/></si>',
            ["one"],
            f"<si><r><t{SPACE}>ONE</t></r></si>",
        ),
    ],
    ids=["plain", "no letters", "lines", "formatted", "phonetic"],
)
def test_texts_of_cells_are_lines_or_runs(strings: str, segments: list[str], written: str) -> None:
    assert shown(read, workbook(strings), XLSX) == segments
    assert shouted_strings(strings) == written


def test_very_long_white_space_in_a_cell_is_read_in_linear_time() -> None:
    files = files_of(workbook(f"<si><r><t{SPACE}>One{' ' * 1_000_000}two</t></r></si>"))
    content = archive_of(files, stored=list(files))
    document = read_document(content, XLSX)
    assert document.write(document.segments) == content


def test_line_breaks_in_a_run_take_memory_in_proportion_to_the_size_of_the_file() -> None:
    look = f'<rPr><rFont val="{"a" * 100_000}"/></rPr>'
    lines = "".join(f"line {number}\n" for number in range(2_000))
    files = files_of(workbook(f"<si><r>{look}<t{SPACE}>{lines}end</t></r><r><t>x</t></r></si>"))
    content = archive_of(files, stored=list(files))
    tracemalloc.start()
    try:
        document = read_document(content, XLSX)
        written = document.write([shout(segment) for segment in document.segments])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert files_of(written)["xl/sharedStrings.xml"].count(look) == 1
    assert peak < 100 * len(content)


def test_text_that_looks_like_an_escape_is_escaped() -> None:
    document = read_document(workbook("<si><t>one</t></si>"), XLSX)
    assert "<t>_x005F_x0041_ &lt;b&gt;</t>" in files_of(document.write([("_x0041_ <b>",)]))["xl/sharedStrings.xml"]


def test_text_that_looks_like_an_escape_with_the_next_one_is_escaped() -> None:
    document = read_document(workbook("<si><t>one_x0007_two</t></si>"), XLSX)
    ((_, escape, _),) = document.segments
    written = document.write([("_x0041", escape, "two")])
    assert "<t>_x005F_x0041_x0007_two</t>" in files_of(written)["xl/sharedStrings.xml"]


def test_a_text_that_is_too_long_for_a_cell_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    content = workbook("<si><t>one</t></si><si><t>two</t></si>")
    written = read_document(content, XLSX).write([("a" * 32_768,), ("TWO",)])
    assert "<si><t>one</t></si><si><t>TWO</t></si>" in files_of(written)["xl/sharedStrings.xml"]
    assert "1 paragraph keeps its text" in caplog.text


def test_numbers_formulas_and_names_stay(caplog: pytest.LogCaptureFixture) -> None:
    sheet = (
        '<sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>2.5</v></c>'
        '<c r="C1" t="str"><f>IF(B1&gt;0,"Yes","a ""b""")&amp;Two!A1</f><v>Yes</v></c>'
        '<c r="D1" t="inlineStr"><is><t>inline</t></is></c><c r="E1" t="b"><v>1</v></c></row></sheetData>'
        '<autoFilter><filterColumn><filters><filter val="Berlin"/></filters></filterColumn></autoFilter>'
        '<dataValidations><dataValidation><formula1>"Low,High"</formula1></dataValidation></dataValidations>'
    )
    strings = "".join(f"<si><t>{text}</t></si>" for text in ("One", "yes", 'a "b"', "Berlin", "High", "Name", "Field"))
    extra = {
        "table": '<tableColumns><tableColumn name="Name"/></tableColumns>',
        "pivotCacheDefinition": '<cacheFields><cacheField name="Field"><sharedItems/></cacheField></cacheFields>',
    }
    content = workbook(strings, sheet, extra, "<definedNames/><extLst/>")
    assert shown(read, content, XLSX) == ["inline", "One"]
    assert "6 texts stay, because formulas, filters or tables name them (yes)" in caplog.text
    changed = shouted_parts(content)
    assert changed == {
        "xl/sharedStrings.xml": files_of(content)["xl/sharedStrings.xml"].replace("One", "ONE"),
        "xl/worksheet.xml": files_of(content)["xl/worksheet.xml"].replace("inline<", "INLINE<"),
        "xl/sheet.main.xml": files_of(content)["xl/sheet.main.xml"].replace(
            "<definedNames/>", '<definedNames/><calcPr fullCalcOnLoad="1"/>'
        ),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<calcPr calcId="1"/>', '<calcPr fullCalcOnLoad="1" calcId="1"/>'),
        ('<calcPr fullCalcOnLoad="0" calcId="1"/>', '<calcPr fullCalcOnLoad="1" calcId="1"/>'),
        ('<calcPr fullCalcOnLoad="1"/>', '<calcPr fullCalcOnLoad="1"/>'),
        ("", '<calcPr fullCalcOnLoad="1"/>'),
    ],
)
def test_formulas_with_text_are_calculated_again(before: str, after: str) -> None:
    sheet = '<sheetData><row><c r="A1" t="str"><f>B1</f><v>One</v></c></row></sheetData>'
    content = workbook("<si><t>One</t></si>", sheet, main=before)
    document = read_document(content, XLSX)
    assert after in files_of(document.write([("ONE",)]))["xl/sheet.main.xml"]
    assert document.write([("One",)]) == content


def test_headers_of_sheets_keep_their_codes() -> None:
    header = '&amp;LLeft &amp;amp;&amp;C&amp;"Arial,Bold"&amp;12Page &amp;P of it&amp;R&amp;D'.replace(
        "&amp;amp;", "&amp;&amp;"
    )
    content = workbook("", f"<headerFooter><oddHeader>{header}</oddHeader></headerFooter>")
    assert shown(read, content, XLSX) == ["Left [&amp;&amp;]", "Page [&amp;P] of it"]
    (sheet,) = shouted_parts(content).values()
    assert '&amp;LLEFT &amp;&amp;&amp;C&amp;"Arial,Bold"&amp;12PAGE &amp;P OF IT&amp;R&amp;D<' in sheet
    document = read_document(content, XLSX)
    left, center = document.segments
    written = document.write([("R & D ", *left), ("&P &12", *center)])
    assert "&amp;LR &amp;&amp; D Left &amp;&amp;&amp;C" in files_of(written)["xl/worksheet.xml"]
    assert "&amp;12&amp;&amp;P &amp;&amp;12Page &amp;P of it&amp;R" in files_of(written)["xl/worksheet.xml"]


def test_a_comment_that_names_people_at_its_characters_stays() -> None:
    mentions = '<mentions><mention startIndex="0" length="4"/></mentions>'
    namespace = 'xmlns="http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"'
    comment = f"<threadedComment {namespace}><text>@Bob please</text>{mentions}</threadedComment>"
    assert shown(read, workbook("", extra={"threadedcomments": comment}), XLSX) == []
    plain = comment.replace(mentions, "")
    assert shown(read, workbook("", extra={"threadedcomments": plain}), XLSX) == ["@Bob please"]


def test_comments_and_drawings_of_workbooks_are_translated() -> None:
    comments = f"<commentList><comment><text><r><t{SPACE}>one </t></r></text></comment></commentList>"
    assert shown(read, workbook("", extra={"comments": comments}), XLSX) == ["one "]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", presentation(""), "not an Excel workbook, but a PowerPoint presentation; name it .pptx"),
        ("a.pptx", packed(""), "not a PowerPoint presentation, but a Word document; name it .docx"),
        (
            "a.docx",
            archive_of({"[Content_Types].xml": "<Types/>"}),
            "not a Word document: its archive has no main part",
        ),
        ("a.xlsx", b"\xd0\xcf\x11\xe0", "a .xls file, or protected by a password; save it as .xlsx"),
    ],
)
def test_a_document_of_another_kind_is_refused(name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(content, replace(OPTIONS, name=name))


def test_content_types_by_suffix_and_in_other_case_are_found() -> None:
    content = files_of(workbook("<si><t>one</t></si>"))
    content["[Content_Types].xml"] = content["[Content_Types].xml"].replace("/xl/shared", "/XL/Shared")
    assert shown(read, archive_of(content), XLSX) == ["one"]
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = f'<Types><Default Extension="xml" ContentType="{main}"/></Types>'
    by_suffix = archive_of({"[Content_Types].xml": types, "word/document.xml": body(f"<w:p>{run('one')}</w:p>")})
    assert shown(read, by_suffix) == ["one"]


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
