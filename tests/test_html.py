import random
import time
import tracemalloc
from dataclasses import replace

import pytest
from helpers.documents import ByRule, translate_bytes
from helpers.formats import OPTIONS, shouted, shown
from helpers.sample_documents import HTML

from mtcli.documents.formats import html
from mtcli.documents.formats.escapes import unescape
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.html import read as read_html
from mtcli.documents.formats.html_tokens import tokenize
from mtcli.documents.markup.inline import Tag
from mtcli.errors import DataError
from mtcli.translate.translation import Options

OPTIONS_HTML = replace(OPTIONS, name="a.html")


def test_identity_is_byte_for_byte_and_changed_text_is_escaped() -> None:
    found = shouted(read_html, HTML)
    assert "<title>TOM &amp; CO</title>" in found
    assert "content='A \"PAGE\"'" in found
    assert '<h1 id=top title="HELLO">HELLO&nbsp;<b>BIG <i>WORLD</i></b></h1>' in found
    assert '<p>AT&amp;T <code>x = 1</code> &lt;OK&gt; <img src="a.png" alt="A DOG"> END\n' in found
    assert '<ul><li>ONE<li>TWO <a href="?a=1&b=2">THREE</a></ul>' in found
    assert '<pre>no <b>no</b></pre><textarea>no</textarea><p translate="no">no<p>YES\n' in found
    assert 'write("<p>no</p>")' in found
    assert "<!-- <p>no</p> -->" in found


CASES = {
    "enclosing tags stay outside": ("<p> <b><i>Hi</i></b> </p>", ["Hi"]),
    "tags in the middle": ("<p>Click <a href=x>here</a> now.</p>", ["Click [<a href=x>]here[</a>] now."]),
    "code at an end is a word": ("<p><code>ls</code> lists</p>", ["[<code>ls</code>] lists"]),
    "a line break": ("one<br>two", ["one[<br>]two"]),
    "two line breaks": ("one<br>\n<br>two", ["one", "two"]),
    "a row of links": ("<a>Home</a> | <a>About us</a>", ["Home", "About us"]),
    "block in an inline element": ("<a><p>one</p>two</a>", ["one", "two"]),
    "graphic in a sentence": ("see <svg><style>a</style><text>b</text></svg> it", None),
    "notranslate": ("a <span class='x notranslate'>Foo <b>Bar</b></span> b", None),
    "template": ("Hi {{ name }}{% if x %} you{% endif %}", ["Hi [{{ name }}][{% if x %}] you"]),
    "only markup": ("<p>&nbsp;<img src=x> 12 |</p>", []),
    "button": ("<input type=submit value='Send it'><input value='no'>", ["Send it"]),
    "text that looks like markup": ("a < b and <3 &c", ["a < b and <3 &c"]),
    "unclosed code": ("<p>a <code>b</p><p>c</p>", ["a [<code>]b", "c"]),
}


@pytest.mark.parametrize(("content", "segments"), CASES.values(), ids=CASES.keys())
def test_segments(content: str, segments: list[str] | None) -> None:
    found = shown(read_html, content)
    shouted(read_html, content)
    if segments is None:
        assert len(found) == 1
        assert found[0].count("[") == 1
    else:
        assert found == segments


def test_attributes_of_elements_without_translated_text_are_translated() -> None:
    content = (
        '<p>a <code title="Hi">no</code> b<textarea placeholder="Name">no</textarea><pre title="T" class="notranslate">'
    )
    assert shown(read_html, content) == ['a [<code title="Hi">no</code>] b', "Hi", "Name"]
    assert shouted(read_html, content) == content.replace("a <", "A <").replace(" b", " B").replace("Hi", "HI").replace(
        "Name", "NAME"
    )


@pytest.mark.parametrize(("name", "begin"), [("page.xhtml", ""), ("page.html", '<?xml version="1.0"?>')])
def test_a_tag_of_xhtml_that_ends_with_a_slash_has_no_content(name: str, begin: str) -> None:
    content = (
        begin + '<head><title/><script src="a.js" /></head><p>One<textarea placeholder="Name"/><pre/></p>'
        '<p><code/>Two <span translate="no" title="no"/><code>x</code> three</p>'
    )
    options = replace(OPTIONS, name=name)
    assert shown(read_html, content, options) == [
        "One",
        "Name",
        '[<code/>]Two [<span translate="no" title="no"/>][<code>x</code>] three',
    ]
    expected = content.replace("One", "ONE").replace("Name", "NAME").replace("Two", "TWO").replace("three", "THREE")
    assert shouted(read_html, content, options) == expected


def test_a_line_break_that_is_a_reference_stays_in_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    content = """<a title="one&#10;&#x0D;two &amp; 3"><img alt='&#10;four\n five&#10;'></a><i title=six&#10;7>8</i>"""
    assert shown(read_html, content) == ["one", "two & 3", "four five", "six 7"]
    expected = """<a title="ONE&#10;&#x0D;TWO &amp; 3"><img alt='&#10;FOUR FIVE&#10;'></a><i title="SIX 7">8</i>"""
    assert shouted(read_html, content) == expected
    monkeypatch.setattr(html, "MAX_TAGS", 5)
    with pytest.raises(DataError, match=r"^file: more than 5 `&#10;` in attributes, the limit; split the page"):
        read_html(b"<a title='a&#10;b&#10;c&#10;d&#10;e&#10;f&#10;'>", OPTIONS)


def test_a_slash_in_a_tag_of_html_has_no_meaning() -> None:
    assert shown(read_html, "<script/><p>no</p></script><p>yes") == ["yes"]


@pytest.mark.parametrize(
    ("page", "segments"),
    [
        ("<script>no</script/><p>yes", ["yes"]),
        ("<script>no</SCRIPT\n><p>yes", ["yes"]),
        ("<script>no</script a='>'><p>yes", ["yes"]),
        ("<script>no</scriptx><p>no</script><p>yes", ["yes"]),
        ("<script>no</ script><p>no</script><p>yes", ["yes"]),
        ("<script>no</\u017fcript><p>no</script><p>yes", ["yes"]),  # the capital of ſ is S
        ("<script>no</script\xa0><p>no</script><p>yes", ["yes"]),
        ("<script>no</script\x0b><p>no</script><p>yes", ["yes"]),
        ("<script><!-- <script> no </script> <p>no --></script><p>yes", ["yes"]),
        ("<script><!-- <script> no </script> <p>no </script><p>yes", ["yes"]),
        ("<script><!-- <SCRIPT/ no </script/ no </script><p>yes", ["yes"]),
        ("<script><!-- <script> no", []),
        ("<script><!-- no </script><p>yes", ["yes"]),
        ("<script><!-- <scripts> no </script><p>yes", ["yes"]),
        ("<script><!--><script> no </script><p>yes", ["yes"]),
        ("<script><!-- --><script> no </script><p>yes", ["yes"]),
        ("<script><script> no </script><p>yes", ["yes"]),
        ("<style><!-- <style> no </style><p>yes", ["yes"]),
        ("<textarea><!-- <textarea> no </textarea/><p>yes", ["yes"]),
        ("<title>one</title\t><p>yes", ["one", "yes"]),
        ("<!-- no --!><p>yes", ["yes"]),
        ("<!--><p>yes", ["yes"]),
        ("<!---><p>yes<!-- no -->", ["yes"]),
        ("<!--!><p>no --><p>yes", ["yes"]),
        ("<svg><script href='a.js'/><title/><style/></svg><p>yes", ["yes"]),
        ("<svg/><script/><p>no</script><p>yes", ["yes"]),
        ("<svg></svg><script/><p>no</script><p>yes", ["yes"]),
        ("<svg><p>a</p><script/><p>no</script><p>yes", ["yes"]),
    ],
)
def test_scripts_and_comments_end_as_in_browsers(page: str, segments: list[str]) -> None:
    """As the standard says in "Tokenization"."""
    found = [text for text in shown(read_html, page) if text != "a"]
    assert found == segments


def test_tags_nest_and_the_others_are_points() -> None:
    (segment,) = read_html(b"x <b>1<i>2</b>3</i> <em>a</em> y", OPTIONS).segments
    kinds = [part.kind for part in segment if isinstance(part, Tag)]
    assert kinds == ["open", "point", "close", "point", "open", "close"]


@pytest.mark.parametrize("encoding", ["idna", "punycode", "unicode_escape", "undefined"])
def test_an_encoding_that_no_page_can_have_is_refused(encoding: str) -> None:
    with pytest.raises(DataError, match=r"^file: .*convert the file to UTF-8"):
        read_html(f"<meta charset={encoding}><p>Hello \\ud800-kva".encode(), OPTIONS)


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "shift_jis", "utf-8"])
def test_the_page_keeps_its_encoding(encoding: str) -> None:
    head = f"<meta charset={encoding}><p>"
    text = "日本 to" if encoding == "shift_jis" else "café to"
    document = read_html((head + text).encode(encoding), OPTIONS)
    assert document.write([("größe 語 ®",)]).decode(encoding).startswith(head)
    assert document.write(document.segments) == (head + text).encode(encoding)
    assert unescape(document.write([("größe 語 ®",)]).decode(encoding)) == f"{head}größe 語 ®"


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("gb2312", "gbk", "朱镕基"),
        ("shift_jis", "cp932", "①髙橋"),
        ("euc-kr", "cp949", "똠방"),
        ("big5", "big5hkscs", "嘅啲"),
        ("iso-8859-9", "windows-1254", "“İyi”"),
    ],
)
def test_a_page_may_have_characters_of_the_extension_of_its_encoding(declared: str, encoding: str, text: str) -> None:
    content = f"<meta charset={declared}><p>{text}".encode(encoding)
    document = read_html(content, OPTIONS)
    assert document.segments == [(text,)]
    assert document.write(document.segments) == content


def test_the_encoding_of_an_xml_declaration_is_used() -> None:
    content = "<?xml version='1.0' encoding='iso-8859-2'?><p>Łódź".encode("iso-8859-2")
    assert read_html(content, OPTIONS).segments == [("Łódź",)]


def test_the_remedy_for_a_wrong_declaration_names_the_declaration() -> None:
    with pytest.raises(DataError, match=r"convert the file to UTF-8, also where it declares its encoding$"):
        read_html("<meta charset=euc-jp><p>größe".encode(), OPTIONS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_the_byte_order_mark_stays_outside_of_the_text(encoding: str) -> None:
    content = "\ufeffHello".encode(encoding)
    document = read_html(content, OPTIONS)
    assert document.segments == [("Hello",)]
    assert document.write(document.segments) == content
    assert document.write([("Hallo",)]) == "\ufeffHallo".encode(encoding)


def test_invalid_bytes_are_an_error_with_their_place() -> None:
    with pytest.raises(DataError, match="file: invalid utf-8 at byte 5"):
        read_html(b"<p>ab\xe9", OPTIONS)


@pytest.mark.parametrize("page", ["<p>five <% x</p><p>two</p>", "<p>one<%= x %></p><p>five <% x</p><p>two"])
def test_a_template_tag_without_an_end_is_text(page: str) -> None:
    assert shown(read_html, page)[-2:] == ["five <% x", "two"]
    document = read_html(page.encode(), OPTIONS)
    assert b"five &lt;% x X" in document.write([(*segment, " X") for segment in document.segments])


@pytest.mark.parametrize("number", ["#" + "1" * 5000, "#x" + "1" * 5000, "#" + "0" * 5000, "#0" + "1" * 5000])
def test_a_reference_of_any_length_is_read(number: str) -> None:
    assert shown(read_html, f'<p title="a &{number}; b">a&{number}z</p>') == ["a \ufffd b", "a\ufffdz"]


def test_a_long_reference_may_stand_for_a_letter() -> None:
    assert shown(read_html, f"<p>a&#{'0' * 5000}66;c</p>") == ["aBc"]


@pytest.mark.parametrize("answer", ["x y z", "{} z", "x 09:00 – 17:00", "9 : 00", "9:00", "5 km y", "{} {}", ""])
@pytest.mark.parametrize(
    "number",
    ["9:00&ndash;17:00", "5&nbsp;km", "&euro;5", "1,000&#8239;&euro;", "2019&#8211;2021", "&#36;5", "20&nbsp;&deg;C"],
)
def test_a_number_with_references_stays_whole(number: str, answer: str) -> None:
    translator = ByRule(lambda line: answer.replace("{}", unescape(number)))
    translator.aligns = False
    read = ReadOptions("a.html", "en", "de")
    written = translate_bytes(f"<p>It is {number} now".encode(), read, translator, Options()).decode()
    assert written.count(number) == 1
    assert unescape(number) not in written.replace(number, "")


@pytest.mark.parametrize("answer", ["x", "© – x", "x – © – y", "", "one price – quality", "&copy; &ndash;"])
@pytest.mark.parametrize("reference", ["&copy;", "&ndash;", "&nbsp;", "&#8211;", "&copy", "&hellip;", "&euro;"])
def test_references_stay_whatever_the_model_writes(reference: str, answer: str) -> None:
    """Those of spaces, dashes and signs stay as often as the source has them, in texts and attributes."""
    page = f'<p title="One {reference} two">A price {reference} quality. End.{reference} Next {reference}</p>'
    translator = ByRule(lambda line: answer)
    translator.aligns = False
    written = translate_bytes(page.encode(), OPTIONS_HTML, translator, Options()).decode()
    assert unescape(written).count(unescape(reference)) >= 4
    assert written.count(reference.removesuffix(";")) >= 4


def test_the_model_is_given_the_characters_of_references_and_not_spaces() -> None:
    translator = ByRule(str.upper)
    translator.aligns = False
    page = b"<p>caf&eacute; &ndash; don&rsquo;t&nbsp;go &ldquo;now&rdquo;.&nbsp;Then &copy; stays"
    written = translate_bytes(page, OPTIONS_HTML, translator, Options())
    assert set(translator.lines) == {'café – don\'t go "now".', "Then © stays"}
    expected = "<p>CAFÉ &ndash; DON&rsquo;T&nbsp;GO &ldquo;NOW&rdquo;.&nbsp;THEN &copy; STAYS"
    assert written.decode() == expected


def test_tokens_cover_any_file() -> None:
    choose = random.Random(1)
    parts = [
        "<",
        ">",
        "<p ",
        "a='",
        '"',
        "</",
        "b>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "=",
        " ",
        "x",
        "<script>",
        "/",
        "<?",
    ]
    for _ in range(300):
        text = "".join(choose.choices(parts, k=12))
        tokens = list(tokenize(text))
        assert "".join(text[token.start : token.end] for token in tokens) == text
        shouted(read_html, text)


def cpu_seconds_of_identity(page: bytes) -> float:
    begun = time.process_time()
    document = read_html(page, OPTIONS)
    assert document.write(document.segments) == page
    return time.process_time() - begun


def test_long_unfinished_pages_are_read_in_linear_time() -> None:
    for part in (b"<a ", b"<", b"<!--", b"<code>", b"<b></i>", b"<a b='", b"&", b"<br>", b"{{", b"<a></a> ", b"<%"):
        few = max(cpu_seconds_of_identity(part * 3_000), 0.005)
        many = cpu_seconds_of_identity(part * 30_000)
        assert many < 40 * few  # 10 times as much in linear time, 100 times in quadratic time


PARTS_OF_HOSTILE_PAGES = ["<b>", "x<b>", "x<b></b>", "<p>x", "<br>", "{{x}}", "<!>", "<i title=x>", "<code>x</code>"]


@pytest.mark.parametrize("part", PARTS_OF_HOSTILE_PAGES)
def test_a_page_of_tags_takes_memory_in_proportion_to_its_size(part: str) -> None:
    block = "<p>" + part * 40
    read_html(block.encode(), OPTIONS)  # so that caches are not measured
    page = (block * (12_000 // len(block))).encode()
    tracemalloc.start()
    try:
        read_html(page, OPTIONS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(page)


def test_a_page_with_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<p>a<b>b</b>c</p>"
    monkeypatch.setattr(html, "MAX_TAGS", 4)
    assert shown(read_html, page) == ["a[<b>]b[</b>]c"]
    with pytest.raises(DataError, match=r"^file: more than 4 tags, the limit; split the page"):
        read_html(f"{page}<!-- -->".encode(), OPTIONS)


def test_a_paragraph_with_too_many_tags_is_refused_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_BLOCK_ITEMS", 3)
    assert shown(read_html, "<p>a<b>b<p>c<i>d") == ["a[<b>]b", "c[<i>]d"]
    with pytest.raises(DataError, match=r"^file, line 2: a paragraph with more than 3 texts and tags, the limit"):
        read_html(b"<p>a\n{{x}}b{{y}}", OPTIONS)
