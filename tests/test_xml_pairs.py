"""Pairs from TMX and XLIFF, and the reader of XML below them."""

import gzip
from pathlib import Path

import pytest

from mtcli.corpus.quality.corpus import Corpus
from mtcli.corpus.quality.report import check
from mtcli.corpus.readers.language_guess import guess_languages
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import DataError, UsageError
from mtcli.text import safe_xml
from mtcli.text.lines import Counts

PAIRS = [("A dog & a cat.", "Ein Hund & eine Katze."), ("Hello", "Hallo")]


def tmx(body: str, head: str = '<header srclang="en-US"/>') -> str:
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    return f'<?xml version="1.0"?>\n{doctype}\n<tmx version="1.4">{head}<body>\n{body}\n</body></tmx>'


def unit(**texts: str) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in texts.items()) + "</tu>"


def tuv(language: str, text: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'


TMX = tmx("\n".join(unit(de=de.replace("&", "&amp;"), en=en.replace("&", "&amp;")) for en, de in PAIRS))

XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:m="urn:m">
<file source-language="en-US" target-language="de"><body><group>
<trans-unit id="1"><m:source>no</m:source><source>A dog &amp; a <g id="1">cat</g>.</source>
<seg-source><mrk mtype="seg">A dog &amp; a cat.</mrk></seg-source>
<target state="translated">Ein Hund &amp; eine <bpt id="1">&lt;b></bpt>Katze<ept id="1">&lt;/b></ept>.</target>
<alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Hello</source><target>Hallo</target></trans-unit>
<trans-unit id="3"><source>New</source><target state="needs-translation">New</target></trans-unit>
<trans-unit id="4"><source>Alone</source></trans-unit>
</group></body></file></xliff>"""

XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de-DE">
<file id="f"><unit id="1"><originalData><data id="d">x</data></originalData><segment state="final">
<source>A dog &amp; a <pc id="1">cat</pc>.</source><target>Ein Hund &amp; eine <pc id="1">Katze</pc>.</target></segment>
<ignorable><source> </source><target> </target></ignorable>
<segment><source>Hello<ph id="2"/></source><target>Hallo</target></segment>
<segment state="initial"><source>New</source><target>New</target></segment>
<segment><source>Alone</source></segment></unit></file></xliff>"""


def read(path: Path, src: str = "en", tgt: str = "de", **options: bool) -> tuple[list[tuple[str, str]], Counts]:
    counts = Counts()
    return list(read_pairs(str(path), src, tgt, counts=counts, **options)), counts


def written(folder: Path, name: str, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.tmx", TMX),
        ("p.TMX.gz", TMX),
        ("p.tmx", ("\ufeff" + TMX).encode()),
        ("p.tmx", TMX.replace("?>", ' encoding="utf-16"?>', 1).encode("utf-16")),
        ("p.tmx", TMX.replace("xml:lang", "lang")),
        ("p.tmx", TMX.replace('"en"', '"EN-us"').replace('"de"', '"de-AT"')),
        ("p.xlf", XLIFF_1),
        ("p.xliff.gz", XLIFF_1),
        ("p.xliff", XLIFF_2),
    ],
)
def test_every_form_gives_the_same_pairs(tmp_path: Path, name: str, content: str | bytes) -> None:
    path = written(tmp_path, name, content)
    pairs, counts = read(path)
    assert pairs == PAIRS
    assert counts.read == counts.used == 2
    assert read(path, "de", "en", swap=True)[0] == [pair[::-1] for pair in PAIRS]  # the file names its languages
    assert guess_languages([str(path)], None, None).src == "en"
    assert len(check(Corpus([str(path)], "en", "de")).survey.found) == 2


def test_notices_count_what_is_not_read(tmp_path: Path) -> None:
    _, counts = read(written(tmp_path, "p.xlf", XLIFF_1))
    assert [notice.partition(": ")[2] for notice in counts.notices] == [
        "read 'en-US' as en and 'de' as de",
        "1 unit without both en and de: not pairs, not read",
        "1 unit in a state such as new or needs-translation: not read",
        "1 pair with inline tags, which are removed",
    ]


@pytest.mark.parametrize("state", ["new", "needs-translation", "needs-l10n"])
def test_a_target_that_is_no_translation_yet_is_not_read(tmp_path: Path, state: str) -> None:
    path = written(tmp_path, "p.xlf", XLIFF_1.replace("needs-translation", state))
    assert read(path)[0] == PAIRS


def test_regional_codes(tmp_path: Path) -> None:
    units = [
        f"<tu>{tuv('pt-BR', 'trem')}{tuv('pt-PT', 'comboio')}{tuv('en-GB', 'train')}{tuv('en', 'train (exact)')}</tu>",
        f"<tu>{tuv('pt-BR', 'ônibus')}{tuv('fr', 'bus')}</tu>",
        f"<tu>{tuv('pt-BR', '')}{tuv('en', 'empty')}</tu>",
    ]
    path = written(tmp_path, "p.tmx", tmx("\n".join(units)))
    pairs, counts = read(path, "en", "pt")
    assert pairs == [("train (exact)", "trem")]
    assert counts.skipped == {"one side empty": 1}
    assert any("1 unit with several texts of one language" in notice for notice in counts.notices)
    assert any("1 unit without both en and pt" in notice for notice in counts.notices)
    assert read(path, "pt-BR", "pt-PT")[0] == [("trem", "comboio")]
    with pytest.raises(DataError, match=r"no unit has both en and it \(languages: pt-BR, pt-PT, en-GB, en"):
        read(path, "en", "it")
    with pytest.raises(UsageError, match="add --src en --tgt es"):
        guess_languages([str(path)], None, None)


@pytest.mark.parametrize(
    ("seg", "text"),
    [
        ("a <bpt i='1'>{\\b </bpt>b<ept i='1'>}</ept> c", "a b c"),
        ("a <hi>b</hi> <ph>{<sub>footnote</sub>}</ph>c<it>x</it>", "a b c"),
        ("one<ph type='lb'/>two", "one two"),
        ("\n  first\n   second  ", "first second"),
        ("<![CDATA[x < y]]> &#233;<!-- no -->s", "x < y és"),
    ],
)
def test_inline_tags_and_line_breaks(tmp_path: Path, seg: str, text: str) -> None:
    pairs, counts = read(written(tmp_path, "p.tmx", tmx(unit(en=seg, de="x"))))
    assert pairs == [(text, "x")]
    has_line_break = any("line break" in notice for notice in counts.notices)
    assert has_line_break == ("\n" in seg)


def test_an_xliff_without_languages_is_read_as_it_stands(tmp_path: Path) -> None:
    unnamed = XLIFF_1.replace(' source-language="en-US" target-language="de"', "")
    path = written(tmp_path, "p.xlf", unnamed)
    assert read(path)[0] == PAIRS
    assert read(path, "de", "en", swap=True)[0] == [pair[::-1] for pair in PAIRS]


def test_invalid_bytes_stop_the_reader_or_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = TMX.encode().replace(b"Hallo", b"H\xe4llo\x03").replace(b"Hello", "He\ufffdllo".encode())
    path = written(tmp_path, "p.tmx", raw)
    with pytest.raises(DataError, match=r"p\.tmx, line 5, .*not well-formed XML"):
        read(path)
    pairs, counts = read(path, replace=True)
    assert pairs[1] == ("He\ufffdllo", "H\ufffdllo\ufffd")
    assert counts.replaced == 2
    for size in (4, 5, 6):
        monkeypatch.setattr(safe_xml, "_CHUNK", size)
        assert read(path, replace=True)[1].replaced == 2, "a U+FFFD of the file may lie in two chunks"
    cp1252 = TMX.replace("?>", ' encoding="windows-1252"?>', 1).replace("Hallo", "Hällo").encode("cp1252")
    assert read(written(tmp_path, "p.tmx", cp1252), replace=True)[0][1] == ("Hello", "Hällo")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.tmx", TMX.replace("<tmx ", "<xtm ").replace("/tmx", "/xtm"), "root element is 'xtm'"),
        ("p.xlf", TMX, "p.xlf: is not XLIFF, or has no segment or trans-unit element"),
        ("p.tmx", TMX[:-30], "p.tmx, line 5, .*not well-formed XML"),
        ("p.tmx", b"", "no element found"),
        ("p.tmx", gzip.compress(TMX.encode()), r"holds gzip data but is not named \.gz"),
        ("p.tmx", '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx>&a;</tmx>', "declares the entity 'a'"),
        ("p.tmx", '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx>&a;</tmx>', "declares the entity 'a'"),
        ("p.tmx", '<!DOCTYPE tmx [<!ENTITY % a SYSTEM "http://x/y">%a;]><tmx/>', "declares the entity 'a'"),
    ],
)
def test_files_that_are_not_pairs_or_not_safe(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(written(tmp_path, name, content))


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "p.tmx.gz"
    path.write_bytes(gzip.compress(TMX.encode())[:-20])
    with pytest.raises(DataError, match="damaged gzip data"):
        read(path)


def test_one_element_is_limited_in_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(safe_xml, "ELEMENT_BYTES", 100_000)
    many = "\n".join([unit(en="Hello", de="Hallo")] * 3000)
    assert len(read(written(tmp_path, "p.tmx", tmx(many)))[0]) == 3000
    for long in (unit(en="x" * 200_000, de="x"), f"<!--{'x' * 200_000}-->", f"<tu id='{'x' * 200_000}'/>"):
        with pytest.raises(DataError, match="longer than"):
            read(written(tmp_path, "p.tmx", tmx(f"{unit(en='Hello', de='Hallo')}{long}")))


def test_a_weight_after_the_name(tmp_path: Path) -> None:
    path = written(tmp_path, "p.tmx", TMX)
    assert parse_source(f"{path}@2").weight == 2
