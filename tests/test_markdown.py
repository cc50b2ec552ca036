from collections.abc import Callable

import pytest
from helpers.formats import OPTIONS, shouted, shown
from helpers.sample_documents import MARKDOWN
from markdown_it import MarkdownIt

from mtcli.documents.formats import markdown
from mtcli.documents.formats.markdown import read
from mtcli.documents.markup.inline import Inline
from mtcli.errors import DataError

SEGMENTS = [
    "Title [*]here[*]",
    'Para one with [`code`] and [**]bold text[**] [[]link here[](http://x "no")] end[  \n]hard[\\\n]break',
    "an image",
    "quote one quote [**]two three[**]",
    "item [[]Ref[][Ref]] [&nbsp;] a",
    "task",
    "A | b",
    'cell [<b title="Hi">]one[</b>]',
    "Hi",
    "[<b>]html[</b>] text",
    "Logo",
    "Setext",
]


def test_segments() -> None:
    assert shown(read, MARKDOWN) == SEGMENTS


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_structure_stays(line_end: str) -> None:
    found = shouted(read, MARKDOWN.replace("\n", line_end)).replace(line_end, "\n")
    assert found.startswith(
        "---\ntitle: no\n---\n# TITLE *HERE* #\n\nPARA ONE WITH `code` AND **BOLD TEXT** [LINK HERE]"
    )
    assert 'END  \nHARD\\\nBREAK ![AN IMAGE](a.png "no")\n\n> QUOTE ONE QUOTE **TWO THREE**\n' in found
    assert "- ITEM [REF][Ref] &nbsp; A\n- [ ] TASK\n\n```py\nno\n```\n\n| A \\| B | `c` |\n|---|:-:|\n" in found
    assert '| CELL <b title="HI">ONE</b> |  |\n\n[ref]: http://x "No"\n' in found
    assert '  <b>HTML</b> TEXT <img alt="LOGO" src=x>\n</div>\n\nSETEXT\n======\n\n    no\n' in found


CASES = {
    "strong and emphasis": ("***a*** b", ["[*][**]a[**][*] b"]),
    "code at an end": ("`ls` lists", ["[`ls`] lists"]),
    "keyboard": ("press <kbd>Ctrl</kbd> now", ["press [<kbd>Ctrl</kbd>] now"]),
    "footnote": ("text[^1] end[^b]\n\n[^1]: a note\n\n[^b]: c", ["text[[^1]] end", "a note", "c"]),
    "escapes": ("5 \\* 6 \\[x\\]", ["5 * 6 [x]"]),
    "role": ("see {ref}`x` now", ["see [{ref}`x`] now"]),
    "badges": ("[![Build](a)](b) [![Docs](c)](d)", ["Build", "Docs"]),
    "autolink": ("see <http://x.y> now", ["see [<http://x.y>] now"]),
    "unclosed": ("a *b _c ~~d `e", ["a *b _c ~~d `e"]),
    "broken table": ("a | b\n--|", ["a | b --|"]),
    "footnotes": ("[^1]: First *note*,\n  more.\n[^b]: Second note.", ["First [*]note[*], more.", "Second note."]),
    "blocks of HTML in a line": (
        "Hi *you* <details><summary>More <b>of</b> it</summary>text</details> <x-y>end</x-y>",
        ["Hi [*]you[*]", "More [<b>]of[</b>] it", "text", "end"],
    ),
    "a block of HTML in emphasis": ("*x <div>y</div>*", ["x [<div>]y[</div>]"]),
    "definitions in a paragraph": (
        '[^1]: A note.\n[r]: /u "T"\n[S]: <x y>\n[t]: x.org\n\nText\n[u]: #v\n[he]: said it',
        ["A note.", "Text", "[he]: said it"],
    ),
    "footnotes of one word": (
        "> [^a]: <b>One</b>\n> [^b]: two\n\n[^c]: x.com\n[^d]:\nthree\n[e]: four",
        ["One", "two", "x.com"],
    ),
    "directive": ("Intro\n:::tip\nInside\nit\n:::\n::: end", ["Intro", "Inside it"]),
    "admonition": ('!!! note "Title"\n    Body\n    text', ['"Title"', "Body text"]),
    "alert": ("> [!NOTE]\n> Some\n> text", ["Some text"]),
    "definitions": ("Term\n:   One\n    two\n:   Three", ["Term", "One two", "Three"]),
    "formula": ("Let\n$$\na_b = *c*\n$$\nbe $$x$$ and\n$$y$$\nso", ["Let", "be [$$x$$] and", "so"]),
    "no formula": ("$$ a lot\nof money", ["$$ a lot of money"]),
    "formula in text": ("$$x$$ is\none", ["is one"]),
    "nothing": ("---\n***\n", []),
}


@pytest.mark.parametrize(("content", "segments"), CASES.values(), ids=CASES.keys())
def test_inline_markup(content: str, segments: list[str]) -> None:
    assert shown(read, content) == segments
    shouted(read, content)


def test_blocks_of_extensions_keep_their_lines() -> None:
    content = "[^1]: one one\ntwo\n[^2]: three\n\n:::tip\nfour\nfive\n:::\n\n> !!! note\n>     six\n>     seven\n"
    expected = "[^1]: ONE ONE TWO\n[^2]: THREE\n\n:::tip\nFOUR FIVE\n:::\n\n> !!! note\n>     SIX SEVEN\n"
    assert shouted(read, content) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1. x",
        "# x",
        "- x",
        "* x",
        "> x",
        "a *b* c",
        "_a_",
        "[a](b)",
        "`a`",
        "<b>",
        "&amp;",
        "a | b",
        "---",
        "![a](b)",
        "| x",
    ],
)
def test_text_that_looks_like_markup_is_escaped(text: str) -> None:
    blocks = {"word\n": "paragraph_open", "| word |\n|---|\n": "table_open", "word\n===\n": "heading_open"}
    blocks["word\n---\n"] = "heading_open"
    for content, kind in blocks.items():
        written = read(content.encode(), OPTIONS).write([(text,)]).decode()
        tokens = MarkdownIt("commonmark").enable("table").parse(written)
        assert tokens[0].type == kind
        (inline,) = (token for token in tokens if token.type == "inline")
        assert [token.type for token in inline.children or []] == ["text"]
        assert inline.children[0].content == text


@pytest.mark.parametrize(
    ("limit", "content", "message"),
    [
        ("MAX_BLOCKS", "a\nb\rc\r\nd\n\n", "file: more than 4 lines and cells of tables"),
        ("MAX_BLOCKS", "| a | b |\n|---|---|\n", "file: more than 4 lines and cells of tables"),
        ("MAX_BLOCK_MARKS", "a\n\nb *c* [d](e) f\ng", "file, line 3: a paragraph with more than 4 marks"),
        ("MAX_MARKS", "a *b* c\n\nd *e* f\n\ng *h*", "file, line 5: more than 4 marks"),
    ],
)
def test_a_file_that_would_take_too_much_memory_is_refused(
    limit: str, content: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(content.encode(), OPTIONS)
    monkeypatch.setattr(markdown, limit, 4)
    with pytest.raises(DataError, match=message):
        read(content.encode(), OPTIONS)


def test_very_many_unfinished_footnotes_are_read_in_linear_time() -> None:
    content = f"[^{'a' * 100}" * 10_000
    assert shown(read, content) == [content]


def test_the_marks_of_code_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MAX_BLOCK_MARKS", 0)
    assert shown(read, "a\n\n    *b* [c]\n\n```\n*d*\n```\n") == ["a"]


def test_the_text_of_an_image_in_a_cell_stays_in_its_cell() -> None:
    document = read(b"| ![word](x) |\n|---|\n", OPTIONS)
    assert document.write([("a | b",)]) == b"| ![a \\| b](x) |\n|---|\n"


PLACED = {
    "emphasis within a word": ("One _is_ two", lambda s: ("Eins", s[1], "ist", s[3]), "<p>Eins<em>ist</em></p>"),
    "emphasis of brackets": (
        "One **is** two",
        lambda s: ("Eins", s[1], "(ist)", s[3], "zwei"),
        "<p>Eins<strong>(ist)</strong>zwei</p>",
    ),
    "emphasis of a space": ("One *is* two", lambda s: ("Eins", s[1], " ist", s[3]), "<p>Eins<em> ist</em></p>"),
    "struck beside a tilde": ("a ~~b~~ c", lambda s: ("a ~", s[1], "b", s[3]), "<p>a ~<s>b</s></p>"),
    "link after an exclamation mark": (
        "Now [x](y) two",
        lambda s: ("Jetzt!", *s[1:]),
        '<p>Jetzt!<a href="y">x</a> two</p>',
    ),
    "list after a hard line break": ("One\\\ntwo", lambda s: ("Eins", s[1], "- zwei"), "<p>Eins<br />\n- zwei</p>"),
    "number after a hard line break": ("One\\\ntwo", lambda s: ("Eins", s[1], "1. zwei"), "<p>Eins<br />\n1. zwei</p>"),
    "underline after a hard line break": ("One\\\ntwo", lambda s: ("Eins", s[1], "=="), "<p>Eins<br />\n==</p>"),
    "list after a hard line break and a space": (
        "One\\\ntwo",
        lambda s: ("Eins", s[1], " - zwei"),
        "<p>Eins<br />\n- zwei</p>",
    ),
    "hard line break at the end": ("One\\\ntwo", lambda s: ("Eins zwei", s[1]), "<p>Eins zwei<br></p>"),
    "hard line break at the end of a heading": (
        "One  \ntwo\n===",
        lambda s: ("Eins zwei", s[1]),
        "<h1>Eins zwei<br></h1>",
    ),
    "hard line break at the beginning": ("- One  \n  two", lambda s: (s[1], "Eins"), "<ul>\n<li><br>Eins</li>\n</ul>"),
    "name with underscores": ("One", lambda s: ("__lt__ _a_b a_b",), "<p>__lt__ _a_b a_b</p>"),
    "tildes": ("One", lambda s: ("a ~~~b~~~ ~5",), "<p>a ~~~b~~~ ~5</p>"),
}


@pytest.mark.parametrize(("content", "translate", "html"), PLACED.values(), ids=PLACED.keys())
def test_markup_at_another_place_stays_markup(content: str, translate: Callable[[Inline], Inline], html: str) -> None:
    document = read(content.encode(), OPTIONS)
    (segment,) = document.segments
    written = document.write([translate(segment)]).decode()
    found = MarkdownIt("commonmark").enable("strikethrough").render(written)
    assert found.rstrip() == html
