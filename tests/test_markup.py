"""Inline markup and placeholders: what is protected, where it goes, and that nothing is ever lost."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.documents import ByRule, chunk_of, translate_inline
from helpers.toy import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.documents.markup.inline import Inline, Tag
from mtcli.documents.markup.marks import is_faithful, mark_up, pieces_of, shape_of
from mtcli.documents.markup.placement import Layout, diagonal_links
from mtcli.documents.markup.sentences import Chunk, translate_sentences
from mtcli.runtime.progress import Progress
from mtcli.text.placeholders import TOKENS, Offsets, find_protected, protected_of, without_added
from mtcli.text.words import character_spans
from mtcli.translate.translation import Candidate, Links, Options, Translation

B = Tag("<b>", "open")
END_B = Tag("</b>", "close")
EM = Tag("<i>", "open")
END_EM = Tag("</i>", "close")
BR = Tag("<br>")
CODE = Tag("`a`")
OTHER_CODE = Tag("`b`")


class Stub:
    """A translator that answers with a function of the line."""

    def __init__(
        self, answer: Callable[[str], tuple[str, Links]], *, aligns: bool = True, has_placeholders: bool = False
    ) -> None:
        self.answer = answer
        self.aligns = aligns
        self.tokenizer = SimpleNamespace(has_placeholders=has_placeholders)
        self.calls: list[tuple[list[str], Options]] = []

    def translate(self, lines: Iterable[str], options: Options, *how: Any) -> Iterator[Translation]:
        lines = list(lines)
        self.calls.append((lines, options))
        for line in lines:
            text, links = self.answer(line)
            yield Translation(line, (Candidate(text, 0.0, 0.0, alignment=links if options.alignments else ()),))


WORDS = {
    "the": "la", "red": "roja", "house": "casa", "is": "es", "big": "grande", "hello": "hola", "hello,": "hola,",
    "world": "mundo", "world!": "mundo!", "house.": "casa.", "big.": "grande.", "is.": "es.", "world:.": "mundo:.",
}  # fmt: skip


def swapping(line: str) -> tuple[str, Links]:
    """Translate word by word, and put the word red after the next word."""
    words = line.split()
    order = list(range(len(words)))
    for place, word in enumerate(words[:-1]):
        if word == "red":
            order[place : place + 2] = [place + 1, place]
    text = " ".join(WORDS.get(words[src], words[src]) for src in order)
    return text, tuple(sorted((src, tgt) for tgt, src in enumerate(order)))


def translated(*parts: str | Tag, aligns: bool = True) -> Inline:
    (result,) = translate_inline([parts], Stub(swapping, aligns=aligns), Options())
    return result


def written(sentence: Inline) -> str:
    return "".join(part.raw if isinstance(part, Tag) else part for part in sentence)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (("the ", B, "red", END_B, " house is big."), "la casa <b>roja</b> es grande."),
        (("the ", B, "red", END_B, " ", EM, "house", END_EM, " is big"), "la <i>casa</i> <b>roja</b> es grande"),
        ((B, "the ", EM, "red", END_EM, " house", END_B, " is big."), "<b>la casa <i>roja</i></b> es grande."),
        ((B, "hello", END_B, ", world!"), "<b>hola</b>, mundo!"),
        ((" ", B, "the red house", END_B, "\n"), " <b>la casa roja</b>\n"),
        (("the red house", BR, "is big"), "la casa roja<br>es grande"),
        (("hello", BR, BR, "world!"), "hola<br><br>mundo!"),
        (("hello,", BR, "world!"), "hola,<br>mundo!"),
        ((B, "hello", BR, END_B, "world!"), "<b>hola<br></b> mundo!"),
        (("hello", BR, " world!"), "hola<br> mundo!"),
        (("hello ", BR, " world!"), "hola <br> mundo!"),
        (("hello ", BR, "world!"), "hola <br>mundo!"),
        (("the house", END_B, " is ", EM, "big"), "la casa</b> es <i>grande"),
        (("the ", B, END_B, "house"), "la <b></b>casa"),
        (("hello ", BR), "hola <br>"),
        (("hello ", B, "world ", END_B), "hola <b>mundo</b> "),
        ((B, " hello", END_B, " world"), " <b>hola</b> mundo"),
        (("🎉 hello ", B, " world", END_B, " 🎉"), "🎉 hola <b>mundo</b> 🎉"),
        ((B, EM, END_EM, END_B, " red house ", B, BR, END_B), "<b><i></i></b> casa roja <b><br></b>"),
        (("hello ", B, "%s", END_B, ", the red house"), "hola <b>%s</b>, la casa roja"),
        (("H", B, "2", END_B, "O is red"), "H<b>2</b>O es roja"),
        ((B, "🎉 ", END_B, "hello world!"), "<b>🎉 </b>hola mundo!"),
        (("the red house (", CODE, ") is big."), "la casa roja (`a`) es grande."),
        (("the red house (", CODE, ")."), "la casa roja (`a`)."),
        (('the red house "', CODE, '", hello!'), 'la casa roja "`a`", hello!'),
        (("the house (", CODE, " ", OTHER_CODE, ") is big"), "la casa (`a` `b`) es grande"),
        (("the house is ", CODE, " ", OTHER_CODE, "."), "la casa es `a` `b`."),
        (("hello, world: ", CODE, "."), "hola, mundo: `a`."),
        (("hello", BR, B, "world!", END_B, " the house"), "hola<br><b>mundo!</b> la casa"),
        ((B, "hello", END_B, BR, EM, B, "red house", END_B, END_EM), "<b>hola</b><br><i><b>casa roja</b></i>"),
        (("the house", BR, "- is big", BR, "- is red"), "la casa<br>- es grande<br>- es roja"),
    ],
)
def test_tags_follow_their_words(source: Inline, expected: str) -> None:
    assert written(translated(*source)) == expected


def test_a_word_with_a_place_for_a_line_break_is_given_whole() -> None:
    marked = mark_up(pieces_of(("the hou", Tag("<wbr>"), "se", Tag("<WBR/>"), " is", BR, "big")), {})
    assert marked.text == "the house is big"
    assert written(translated("the hou", Tag("<wbr>"), "se is big")) == "la casa<wbr> es grande"


def test_code_stays_in_parentheses_that_the_model_separates() -> None:
    stub = Stub(lambda line: ("la casa ( ) .", ((0, 0), (1, 1), (2, 2), (2, 3), (2, 4))))
    (found,) = translate_inline([("the house (", CODE, ").")], stub, Options())
    assert written(found) == "la casa (`a` ) ."


@pytest.mark.parametrize("signs", [": ", " - ", " – ", ", "])
def test_signs_after_code_at_the_beginning_are_not_given_to_the_model(signs: str) -> None:
    stub = Stub(swapping)
    (found,) = translate_inline([(CODE, signs + "the red house")], stub, Options())
    assert written(found) == f"`a`{signs}la casa roja"
    assert [lines for lines, _ in stub.calls] == [["the red house"]]


def test_without_alignments_places_are_estimated() -> None:
    source = ("the house is ", B, "big", END_B)
    assert written(translated(*source, aligns=False)) == "la casa es <b>grande</b>"


CHINESE = {
    "the": "", "red": "红色的", "house": "房子", "is": "很", "big": "大", "big.": "大。",
}  # fmt: skip


def into_chinese(line: str) -> tuple[str, Links]:
    """Translate word by word, without spaces. Links are those of characters."""
    text = ""
    links = []
    for src, word in enumerate(line.split()):
        before = len(character_spans(text))
        text += CHINESE[word]
        links += [(src, tgt) for tgt in range(before, len(character_spans(text)))]
    return text, tuple(sorted(links))


def from_chinese(line: str) -> tuple[str, Links]:
    """Translate the sentences of `into_chinese` back. A word is linked with its first character."""
    words = []
    links = []
    place = 0
    for word, chinese in CHINESE.items():
        if chinese and line.startswith(chinese, place):
            links.append((len(character_spans(line[:place])), len(words)))
            words.append(word)
            place += len(chinese)
    return " ".join(words), tuple(links)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (("the ", B, "red", END_B, " house is big."), "<b>红色的</b>房子很大。"),
        (("the red ", B, "house", END_B, " is ", EM, "big", END_EM, "."), "红色的<b>房子</b>很<i>大</i>。"),
        (("the ", EM, "red ", B, "house", END_B, END_EM, " is big"), "<i>红色的<b>房子</b></i>很大"),
        (("the house ", BR, " is big"), "房子<br>很大"),
        (("house %s is big",), "房子%s很大"),
    ],
)
def test_tags_into_a_script_without_spaces(source: Inline, expected: str) -> None:
    def without_placeholder(line: str) -> tuple[str, Links]:
        return into_chinese(line.replace("%s ", ""))

    (found,) = translate_inline([source], Stub(without_placeholder), Options())
    assert written(found) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (("红色的", B, "房子", END_B, "很大"), "red <b>house</b> is big"),
        ((B, "红色的", END_B, "房子", EM, "很大", END_EM), "<b>red</b> house <i>is big</i>"),
        (("房子", BR, "很大"), "house<br> is big"),
    ],
)
def test_tags_from_a_script_without_spaces(source: Inline, expected: str) -> None:
    stub = Stub(from_chinese)
    (found,) = translate_inline([source], stub, Options())
    assert written(found) == expected
    assert [options.align_characters for _, options in stub.calls] == [True]


def test_text_without_words_is_not_translated() -> None:
    translator = Stub(swapping)
    sentences: list[Inline] = [(), ("",), (B, END_B), (" ",), (BR,), ("{name}: %d",), ("3.5 km",), ("42",)]
    assert list(translate_inline(sentences, translator, Options())) == sentences
    assert translator.calls == []


def test_plain_text_needs_no_alignment() -> None:
    translator = Stub(swapping)
    list(translate_inline([("the house",), (B, "red house", END_B), ("the %s",)], translator, Options()))
    assert [options.alignments for _, options in translator.calls] == [False]


def test_a_translation_equal_to_its_source_changes_nothing() -> None:
    source = ("some \n ", B, " strange", END_B, "   {spacing}", BR)
    (result,) = translate_inline([source], Stub(lambda line: (line, ())), Options())
    assert result == source


def test_a_lost_placeholder_is_inserted_where_it_belongs() -> None:
    def without_signs(line: str) -> tuple[str, Links]:
        return swapping(line.replace("%s", "s"))

    (result,) = translate_inline([("hello %s, the red house",)], Stub(without_signs), Options())
    assert result == ("hola %s, la casa roja",)


def test_a_lost_placeholder_at_the_end_leaves_no_space_there() -> None:
    stub = Stub(lambda line: (line.upper(), ()))
    assert list(translate_inline([("one %d",)], stub, Options())) == [("ONE %d",)]
    assert [lines for lines, _ in stub.calls] == [["one %d"], ["one"]]


class CountingList(list[Offsets]):
    """Counts how often an element is read."""

    num_reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.num_reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Offsets]:
        self.num_reads += len(self)
        return super().__iter__()


@pytest.mark.parametrize(("part", "is_linked"), [("<b>word</b> ", True), ("word %s ", False)])
def test_marks_are_placed_in_quadratic_time(part: str, is_linked: bool) -> None:
    num_marks = 60
    marked = mark_up(pieces_of((part * num_marks,)), {})
    links = diagonal_links(marked.text, marked.text) if is_linked else ()
    layout = Layout(marked.text, marked.text, links)
    words = layout.tgt_words = CountingList(layout.tgt_words)
    list(layout.with_marks(marked.root, (0, len(marked.text))))
    assert 0 < words.num_reads < 10 * num_marks**2


def test_a_line_break_that_is_a_reference_is_no_word() -> None:
    assert not Tag("&#13;&#10;").is_content
    assert Tag("<code>x</code>").is_content


def test_a_model_with_placeholder_tokens_is_given_them() -> None:
    translator = Stub(swapping, has_placeholders=True)
    source = ("the red ", B, "{name}", END_B, " is ", Tag("<code>x</code>"), " at https://a.b/c")
    (result,) = translate_inline([source], translator, Options())
    assert written(result) == "la <b>{name}</b> roja es <code>x</code> at https://a.b/c"
    assert translator.calls[0][0] == [f"the red {TOKENS[0]} is {TOKENS[1]} at {TOKENS[2]}"]


def test_a_lost_placeholder_token_falls_back_to_inserting() -> None:
    def forgetful(line: str) -> tuple[str, Links]:
        return swapping(line.replace(TOKENS[0], "x"))

    (result,) = translate_inline([("hello %s, the house",)], Stub(forgetful, has_placeholders=True), Options())
    assert result == ("hola %s, la casa",)


@pytest.mark.parametrize("answer", ["", " ", "%s", "<b>"])
def test_a_sentence_stays_if_the_model_writes_nothing(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    sources = [("the house",), ("the ", B, "house", END_B), ("hello {x}",)]
    assert list(translate_inline(sources, Stub(lambda line: (answer, ())), Options())) == sources
    assert "3 sentences not translated, because the model writes nothing" in caplog.text
    assert "was put back" not in caplog.text


@pytest.mark.parametrize("added", ["%s", "<b>", "{x}", "http://a.b/c", "🎉", "%s%s"])
def test_what_a_model_adds_is_deleted(added: str) -> None:
    (result,) = translate_inline([("the house",)], Stub(lambda line: (f"la {added} casa", ())), Options())
    assert result == ("la  casa",)


@pytest.mark.parametrize(("written_by_model", "expected"), [("%s > la casa", "> la casa"), ("la casa <b>", "la casa")])
def test_what_a_model_adds_at_an_end_leaves_no_space_there(written_by_model: str, expected: str) -> None:
    (result,) = translate_inline([("the house",)], Stub(lambda line: (written_by_model, ())), Options())
    assert result == (expected,)


@pytest.mark.parametrize("part", ["a.", "a-", "a+", "1'", "1\u00a0", "1\u202f", "a@", "{a,b,{x}", "http://"])
def test_the_search_for_placeholders_takes_linear_time(part: str) -> None:
    text = "5 @ " + part * (60_000 // len(part))
    assert all(0 <= start < end <= len(text) for start, end in find_protected(text))


def test_a_model_may_write_a_measure_in_figures() -> None:
    (result,) = translate_inline([("three kilometres",)], Stub(lambda line: ("3 km", ())), Options())
    assert result == ("3 km",)
    (result,) = translate_inline([("after 3.5 km",)], Stub(lambda line: ("nach 3,5 km", ())), Options())
    assert protected_of([written(result)]).counts == {"3.5 km": 1}


@pytest.mark.parametrize(
    "text",
    [
        "%s", "%1$s", "%-5.2f", "%(name)s", "%(n)05d", "%%", "%1", "{}", "{0}", "{name}", "{0:.2f}", "{x!r:>10}",
        "{a.b[0]}", "{{x}}", "{{ user.name }}", "{{{raw}}}", "{% if x %}", "${x}", "$VAR", "$name", "#{x}", "{ $name }",
        "https://example.com/a?b=c&d=e#f", "www.example.org/path", "me.you+tag@example.co.uk", "3.5 km", "20 °C", "5kg",
        "50%", "$5", "1,000.50 €", "&nbsp;", "&#8217;", "&#x20AC;", "🎉", "👨‍👩‍👧", "🇩🇪", "1️⃣",
        "{n, plural, one {# file} other {# files}}", "{d, date, short}", "%USER%", "<br/>", '<a href="x">',
    ],
)  # fmt: skip
def test_what_is_protected(text: str) -> None:
    line = f"See {text} now."
    assert [line[start:end] for start, end in find_protected(line)] == [text]


@pytest.mark.parametrize(
    "text", ["30%ige", "in 5 minutes", "room 5 m2x", "a & b", "5 > 3 < 7", "C# and C++", "AT&T", "{see below}", "3 in"]
)
def test_what_is_not_protected(text: str) -> None:
    assert find_protected(f"See {text} now.") == []


def test_deleting_may_not_create_another_placeholder() -> None:
    assert find_protected(without_added("%%ss %{x}s <a<b>>", Counter(), numbers=True)) == []


def test_a_model_and_its_alignment() -> None:
    rng = random.Random(1)
    sources: list[Inline] = [("one ", B, "red", END_B, " ", EM, "dog", END_EM, ".")]
    for _ in range(30):
        words = [rng.choice(["one", "red", "dog", "big", "cat", "sees", "%s", "{n}", "3 km"]) for _ in range(4)]
        first = rng.randrange(4)
        last = rng.randrange(first, 4)
        words[first : last + 1] = ["|", *words[first : last + 1], "|"]
        before, inside, after = " ".join(words).split("|")
        sources.append((before, B, inside.strip(), BR, END_B, after))
    results = list(translate_inline(sources, toy(), Options(beam_size=2)))
    assert written(results[0]) == "uno <b>rojo</b> <i>perro</i>."
    for source, result in zip(sources, results, strict=True):
        assert is_faithful(source, result)


TAGS = st.sampled_from([Tag("<br>"), Tag("<code>x</code>"), Tag("<x id='1'/>")])
NAMES = st.sampled_from("biu")
PROTECTED_SCRAPS = [
    "%s",
    "{name}",
    "$VAR",
    "3 km",
    "https://a.b/c",
    "🎉",
    "&amp;",
    "<b>",
    "</b>",
    "<br>",
    "{{x}}",
    "me@x.org",
]
OTHER_SCRAPS = ["hello", "world", ", ", ".", "{", "}", "$", "%", "3", "km", "&", "<", ">", "d", "s", "1", "@"]
SPACES_AND_LETTERS = [" ", " ", "\n", "\u00a0", "中文", "e\u0301"]
SCRAPS = st.sampled_from([*PROTECTED_SCRAPS, *OTHER_SCRAPS, *SPACES_AND_LETTERS])
TEXTS = st.lists(SCRAPS, max_size=6).map("".join)


@st.composite
def sentences(draw: st.DrawFn) -> Inline:
    """Return a sentence whose tags nest, cut out of a longer text, so that partners may be missing."""
    parts: list[str | Tag] = []
    opened: list[str] = [draw(NAMES) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(0, 10))):
        kind = draw(st.sampled_from(["text", "text", "open", "close", "point"]))
        if kind == "text":
            parts.append(draw(TEXTS))
        elif kind == "point":
            parts.append(draw(TAGS))
        elif kind == "open":
            opened.append(draw(NAMES))
            parts.append(Tag(f"<{opened[-1]}>", "open"))
        elif opened:
            parts.append(Tag(f"</{opened.pop()}>", "close"))
    return tuple(parts)


@settings(deadline=None, max_examples=60)
@given(st.lists(sentences(), max_size=3), st.lists(TEXTS, min_size=1), st.booleans(), st.booleans(), st.randoms())
def test_nothing_is_lost_whatever_the_model_writes(
    batch: list[Inline], texts: list[str], aligns: bool, has_placeholders: bool, rng: Any
) -> None:
    def answer(line: str) -> tuple[str, Links]:
        text = rng.choice([*texts, line, " ".join(reversed(line.split())), f"{line} {TOKENS[0]}"])
        links = [(rng.randrange(12), tgt) for tgt in range(len(text.split())) if rng.random() < 0.9]
        return text, tuple(sorted(links))

    results = list(translate_inline(batch, Stub(answer, aligns=aligns, has_placeholders=has_placeholders), Options()))
    assert len(results) == len(batch)
    for source, result in zip(batch, results, strict=True):
        assert is_faithful(source, result)
        tags = sorted(part.raw for part in source if isinstance(part, Tag))
        assert sorted(part.raw for part in result if isinstance(part, Tag)) == tags
        assert shape_of(result) == shape_of(source)


@pytest.mark.parametrize(
    ("source", "text", "links", "expected"),
    [
        (("a ", B, "river", END_B), "einem fluss", ((1, 0), (1, 1)), "einem <b>fluss</b>"),
        (("my ", B, "river", END_B), "mein langer fluss", ((0, 0), (1, 1), (1, 2)), "mein <b>langer fluss</b>"),
        (("red , ", B, "are playing", END_B), "rot , spielen", ((0, 0), (2, 1), (3, 2)), "rot , <b>spielen</b>"),
    ],
)
def test_a_span_begins_with_no_word_of_the_text_before_it(
    source: Inline, text: str, links: Links, expected: str
) -> None:
    (found,) = translate_inline([source], Stub(lambda _: (text, links)), Options())
    assert written(found) == expected


@given(text=st.text(alphabet="ab \0\t\n\r\v\x1b\x85\u2028\ufffe\udc80\U0010ffff", max_size=12))
@settings(max_examples=60, deadline=None)
def test_control_characters_that_the_model_writes_become_spaces(text: str) -> None:
    for source in [("one two.",), ("one ", B, "two", END_B, ".")]:
        (found,) = translate_inline([source], Stub(lambda _: (text, ())), Options(), warn=False)
        written = "".join(part for part in found if isinstance(part, str))
        assert not set(written) & set("\0\t\n\r\v\x1b\x85\u2028\ufffe\udc80")
        assert is_faithful(source, found)


def test_a_control_character_of_the_source_stays() -> None:
    (found,) = translate_inline([("a \x1b[1m b",)], Stub(lambda _: ("c \x1b[1m\0 d", ())), Options())
    assert found == ("c \x1b[1m  d",)


class LineByLine(ByRule):
    """Reads a line when the translation of the one before it has been taken."""

    def translate(self, lines: Iterable[str], options: Options, *how: Any) -> Iterator[Translation]:
        for line in lines:
            yield from super().translate([line], options)


def test_sentences_without_words_do_not_delay_later_ones() -> None:
    texts = ["1", "one", "2", "two", "three", "3"]
    read: list[str] = []

    translator = LineByLine(str.upper)

    def chunks() -> Iterator[Chunk]:
        for text in texts:
            read.append(text)
            yield chunk_of([(text,)], translator)

    with Progress("translating", quiet=True) as bar:
        found = translate_sentences(chunks(), translator, Options(), bar)
        for number, text in enumerate(texts):
            (sentence,) = next(found).sentences
            (candidate,) = sentence.results
            assert (sentence.source, candidate.content) == ((text,), (text.upper(),))
            assert len(read) <= number + 2
