import re
from dataclasses import replace

import pytest
from helpers.documents import capitals, translate_bytes
from helpers.formats import OPTIONS, shout, shouted, shown
from helpers.sample_documents import TMX, XLIFF1, XLIFF2

from mtcli.documents.formats import tmx, xliff
from mtcli.documents.formats.format import RatedDocument, Reader
from mtcli.documents.formats.registry import read_document
from mtcli.errors import DataError
from mtcli.translate.translation import Options

OPTIONS_XLIFF = replace(OPTIONS, name="file.xlf")


def test_targets_are_added_to_xliff_1_where_they_are_missing() -> None:
    found = shouted(xliff.read, XLIFF1)
    new = ' state="needs-review-translation" state-qualifier="mt-suggestion"'
    assert f'\n      <target{new}>GRÖSSE &amp; <g id="1">CO</g> <x id="2"/></target>\n    </trans-unit>' in found
    assert "<target>behalten</target>" in found
    assert f"<target{new}>REDO</target>" in found
    assert f"<target{new}>EMPTY</target>" in found
    assert f"<target{new}>FINAL</target>" in found
    assert "<source>no</source></trans-unit>" in found
    assert (
        f'<target{new}> <bpt id="1">&lt;b></bpt>ONE TWO<ept id="1">&lt;/b></ept> <ph id="2">no</ph></target>' in found
    )
    assert 'original="x" target-language="de">' in found
    assert len(xliff.read(found.encode(), OPTIONS).segments) == 0


def test_an_attribute_in_the_value_of_another_stays() -> None:
    """Only the attribute `state` itself changes, not text that looks like it."""
    start_tag = """<target\n note=' state="new"' x-state='a' xml:lang="de"  state = 'new'"""
    content = f"""<xliff version="1.2"><file source-language="en"><body><trans-unit id="1"><source>x</source>
{start_tag}/></trans-unit></body></file></xliff>"""
    written = shouted(xliff.read, content)
    new = start_tag.replace("= 'new'", '= "needs-review-translation"') + ' state-qualifier="mt-suggestion"'
    assert f"{new}>X</target>" in written


def test_targets_are_added_to_xliff_2() -> None:
    found = shouted(xliff.read, XLIFF2)
    assert '<segment state="translated"><source>' in found
    assert '</source>\n<target>A <pc id="1">B</pc> <sc id="2"/>C<ec startRef="2"/> D</target>' in found.replace(
        "</source><target>A", "</source>\n<target>A"
    )
    assert "<target>kept</target>" in found
    assert len(xliff.read(found.encode(), OPTIONS).segments) == 0


def test_a_new_state_in_xliff_2_removes_the_details_of_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    """The standard wants `subState` to be updated or deleted when `state` changes."""
    start_tag = """<segment id="1" note=' subState="a"'\n subState = 'x:todo' state="initial">"""
    kept = '<segment id="2" state="final" subState="x:done"><source>a</source><target>b</target></segment>'
    units = f"<unit>{start_tag}<source>one</source></segment>{kept}</unit>"
    content = f'<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">{units}</file></xliff>'
    written = """<segment id="1" note=' subState="a"' state="translated"><source>one</source><target>ONE</target>"""
    document = read_document(content.encode(), OPTIONS_XLIFF)
    found = document.write([shout(segment) for segment in document.segments]).decode()
    assert found == content.replace(f"{start_tag}<source>one</source>", written)
    assert not caplog.text  # the structure is that of the source


def rated(content: str) -> str:
    """Return a file with its segments in upper case and a confidence of 10, 20, … each, as `translate` writes it."""
    document = read_document(content.encode(), OPTIONS_XLIFF)
    assert isinstance(document, RatedDocument)
    assert document.has_place_for_confidence
    document.rate([10.0 * number + 0.4 for number in range(1, len(document.segments) + 1)])
    assert document.write(document.segments) == content.encode()
    return document.write([shout(segment) for segment in document.segments]).decode()


def test_the_confidence_is_the_match_quality_of_a_suggestion_in_xliff_1(caplog: pytest.LogCaptureFixture) -> None:
    found = rated(XLIFF1)
    first = '<target>GRÖSSE &amp; <g id="1">CO</g> <x id="2"/></target>'
    assert f'</target>\n      <alt-trans match-quality="10%" origin="mtcli">{first}</alt-trans>\n' in found
    assert '>REDO</target><alt-trans match-quality="20%" origin="mtcli"><target>REDO</target></alt-trans>' in found
    without = re.sub(r"\s*<alt-trans.*?</alt-trans>", "", found, flags=re.DOTALL)
    assert without == shouted(xliff.read, XLIFF1)
    assert not caplog.text  # the structure is that of the source
    assert len(xliff.read(found.encode(), OPTIONS).segments) == 0


def test_the_confidence_is_a_marker_in_xliff_2(caplog: pytest.LogCaptureFixture) -> None:
    found = rated(XLIFF2)
    marker = 'id="mtcli-1" type="its:generic" xmlns:its="http://www.w3.org/2005/11/its" its:mtConfidence="0.10"'
    assert f'<target><mrk {marker} its:annotatorsRef="mt-confidence|mtcli">A <pc id="1">B</pc>' in found
    assert "D</mrk></target>" in found
    assert not caplog.text
    assert len(xliff.read(found.encode(), OPTIONS).segments) == 0


def test_suggestions_have_the_prefix_of_the_file() -> None:
    content = """<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2"><x:file source-language="en">
<x:body><x:trans-unit id="1"><x:source>a</x:source></x:trans-unit></x:body></x:file></x:xliff>"""
    suggestion = '<x:alt-trans match-quality="10%" origin="mtcli"><x:target>A</x:target></x:alt-trans>'
    assert f">A</x:target>{suggestion}</x:trans-unit>" in rated(content)


def test_inline_elements_are_tags() -> None:
    assert shown(xliff.read, XLIFF1)[0] == 'Größe & [<g id="1">]co[</g>] [<x id="2"/>]'
    assert shown(xliff.read, XLIFF2) == ['a [<pc id="1">]b[</pc>] [<sc id="2"/>]c[<ec startRef="2"/>] d']


@pytest.mark.parametrize(
    ("source", "segments", "target"),
    [
        ("<source>One\n  two&#10;</source>", ["One two"], "<target>ONE TWO&#10;</target>"),
        ("<source>&#xA;One&#13;&#10;two</source>", ["One[&#13;&#10;]two"], "<target>&#xA;ONE&#13;&#10;TWO</target>"),
        ('<source xml:space="preserve">One\n\n two\n</source>', ["One[\n\n ]two"], "<target>ONE\n\n TWO\n</target>"),
        ("<source><![CDATA[ One ]]></source>", [" One "], "<target> ONE </target>"),
    ],
)
def test_line_breaks_and_white_space_that_belong_to_the_text_stay(
    source: str, segments: list[str], target: str
) -> None:
    content = f'<xliff version="1.2"><file source-language="en"><trans-unit>{source}</trans-unit></file></xliff>'
    assert shown(xliff.read, content) == segments
    found = shouted(xliff.read, content)
    assert target in found.replace(' state="needs-review-translation" state-qualifier="mt-suggestion"', "")


def test_no_space_is_added_beside_a_line_break() -> None:
    unit = '<trans-unit xml:space="preserve"><source>One line\ntwo lines</source></trans-unit>'
    content = f'<xliff version="1.2"><file source-language="en">{unit}</file></xliff>'
    translator = capitals()
    translator.aligns = False
    found = translate_bytes(content.encode(), OPTIONS_XLIFF, translator, Options()).decode()
    assert translator.lines == ["One line two lines"]
    assert ">ONE LINE\nTWO LINES</target>" in found


def test_variants_are_added_to_tmx_where_they_are_missing() -> None:
    found = shouted(tmx.read, TMX)
    added = """
    <tuv xml:lang="de">
      <seg>HELLO <bpt i="1">&lt;b></bpt>YOU<ept i="1"/> &amp; ME</seg>
    </tuv>
  </tu>"""
    assert added in found
    assert '<tuv xml:lang="de-AT"><seg>behalten</seg></tuv></tu>' in found
    assert '<tuv lang="de"><seg>EMPTY</seg></tuv>' in found
    assert len(tmx.read(found.encode(), OPTIONS).segments) == 0


@pytest.mark.parametrize(
    ("read", "content", "attribute"),
    [
        (xliff.read, XLIFF1, " target-language"),
        (xliff.read, XLIFF2.replace(' trgLang="de"', ""), " trgLang"),
        (tmx.read, TMX, " xml:lang"),
    ],
)
def test_the_language_that_is_added_is_a_tag_of_xml(read: Reader, content: str, attribute: str) -> None:
    options = replace(OPTIONS, tgt="zh_Hans_CN")
    found = shouted(read, content, options)
    assert f'{attribute}="zh-Hans-CN"' in found
    assert len(read(found.encode(), options).segments) == 0


def test_very_long_white_space_is_read_in_linear_time() -> None:
    content = XLIFF1.replace("<source>", f"<source>one{' ' * 100_000}", 1).encode()
    document = xliff.read(content, OPTIONS)
    assert document.write(document.segments) == content


def test_the_file_keeps_its_encoding() -> None:
    content = XLIFF1.replace("UTF-8", "utf-16").encode("utf-16")
    document = xliff.read(content, OPTIONS)
    assert document.write(document.segments) == content
    assert "日本" in document.write([("日本",), *document.segments[1:]]).decode("utf-16")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (XLIFF1.replace("en-US", "fr"), "file, line 3: source-language is 'fr'"),
        (XLIFF2.replace('"de"', '"fr"'), "file, line 1: trgLang is 'fr'"),
        ("<a/>", "not XLIFF"),
        ("<xliff>", "not well-formed"),
        ('<!DOCTYPE xliff [<!ENTITY a "b">]><xliff/>', "declares the entity"),
    ],
)
def test_what_is_refused(content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        xliff.read(content.encode(), OPTIONS)


def test_tmx_without_the_source_language_is_refused() -> None:
    with pytest.raises(DataError, match="no text in 'en'; its languages are"):
        tmx.read(TMX.replace('"en"', '"fr"').replace("EN-US", "fr").encode(), OPTIONS)
