"""Translation memories: exact and near matches, and translations that use them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.documents import capitals, translate_bytes
from helpers.harness import mtcli
from helpers.toy import PAIRS, save_toy
from hypothesis import given
from hypothesis import strategies as st

from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.registry import read_document
from mtcli.documents.lines import BySentence
from mtcli.documents.pipeline import translate_document
from mtcli.errors import DataError
from mtcli.text.words import word_texts, words_of
from mtcli.translate.memory import Entry, Memory, MemoryMatch, compared_words, names_languages, read_memory
from mtcli.translate.translation import Options, Translation
from mtcli.translate.windows import Reading


def memory_of(*pairs: tuple[str, str], near: float = 0.85) -> Memory:
    memory = Memory(near)
    for source, translation in pairs:
        memory.add(Entry(source, translation, "memory.tsv"))
    return memory


def percents(memory: Memory, sentence: str) -> int | None:
    found = memory.find(sentence)
    return None if found is None else found.percent


# ---- matches ----


def test_an_exact_match_differs_only_in_white_space() -> None:
    memory = memory_of(("Caf\u00e9  for two.", "Café für zwei."), ("Hello", "Hallo"))
    for sentence in ("Café for two.", " Cafe\u0301\u00a0for \t two. ", "Café\u2009for\ntwo."):
        match = memory.find(sentence)
        assert match is not None
        assert match.is_exact
        assert match.entry.translation == "Café für zwei."
        assert match.sentence == sentence
    assert memory.exact("hello") is None


def test_of_several_translations_the_last_one_counts() -> None:
    memory = Memory()
    assert not memory.add(Entry("Hello  there", "a"))
    assert not memory.add(Entry("Hello there", "a"))
    assert memory.add(Entry("Hello there ", "b"))
    assert len(memory) == 1
    match = memory.exact("Hello there")
    assert match is not None
    assert match.entry == Entry("Hello there ", "b")


@pytest.mark.parametrize("mark", ["- ", "* ", "2. ", "• ", "# "])
def test_an_item_of_a_list_is_found_without_its_mark(mark: str) -> None:
    memory = memory_of((f"{mark}Two eggs", f"{mark}Zwei Eier"))
    for text, expected in ((f"{mark}Two eggs", f"{mark}Zwei Eier"), ("Two eggs", "Zwei Eier")):
        match = memory.exact(text)
        assert match is not None
        assert match.entry.translation == expected
    options = ReadOptions("list.txt", "en", "de")
    content = translate_bytes(f"{mark}Two eggs\n".encode(), options, capitals(), Options(), memory=memory)
    assert content.decode() == f"{mark}Zwei Eier\n"
    memory.add(Entry("Two eggs", "2 Eier"))
    match = memory.exact("Two eggs")
    assert match is not None
    assert match.entry.translation == "2 Eier"
    assert memory_of((f"{mark}Two eggs", "Zwei Eier")).exact("Two eggs") is None


@pytest.mark.parametrize(("first", "second"), [("", "- "), ("- ", ""), ("- ", "* ")])
def test_of_a_line_and_an_item_of_a_list_the_later_one_counts(first: str, second: str) -> None:
    def found(memory: Memory) -> str:
        match = memory.exact("Two eggs")
        assert match is not None
        return match.entry.translation

    memory = memory_of((f"{first}Two eggs", f"{first}Zwei Eier"), (f"{second}Two eggs", f"{second}2 Eier"))
    assert found(memory) == "2 Eier"
    memory.add(Entry(f"{first}Two eggs", f"{first}Zwei Eier"))
    assert found(memory) == "Zwei Eier"


def test_a_near_match_has_most_words_in_their_order() -> None:
    ten = "one two three four five six seven eight nine ten"
    memory = memory_of((ten, "zehn"), ("something else", "anderes"))
    assert percents(memory, ten) == 100
    assert percents(memory, ten.replace("five", "5")) == 90
    assert percents(memory, ten.replace("five", "5").replace("six", "6")) is None
    assert percents(memory, ten.upper()) == 99  # never exact
    assert percents(memory, " ".join(reversed(ten.split()))) is None
    assert percents(memory, "") is None
    assert percents(memory, "something") is None
    assert percents(memory_of((ten, "zehn"), near=0.75), ten.replace("five", "5").replace("six", "6")) == 80
    assert percents(memory_of((ten, "zehn"), near=1.0), ten.replace("five", "5")) is None


def test_a_near_match_without_its_rarest_words_is_found() -> None:
    """With 17 of 23 words in each of two texts of 23 and 17 words, the similarity is 0.85, as in exact arithmetic."""
    common = [f"w{number}" for number in range(17)]
    often = [(f"{word} x{number}", "y") for word in common for number in range(2)]
    memory = memory_of((" ".join(common), "found"), *often)
    assert percents(memory, " ".join([*common, *(f"rare{number}" for number in range(6))])) == 85


def test_an_entry_that_is_added_later_is_found() -> None:
    memory = memory_of(("a b c d e f g h", "1"))
    assert percents(memory, "a b c d e f g h i") == 94
    memory.add(Entry("m n o p q r s t", "2"))
    memory.add(Entry("a b c d e f g h", "3"))
    assert percents(memory, "m n o p q r s t u") == 94
    match = memory.find("a b c d e f g h i")
    assert match is not None
    assert match.entry.translation == "3"


def similarity(one: Sequence[str], two: Sequence[str]) -> float:
    """Return the similarity of two texts by the textbook algorithm of the longest common subsequence."""
    lengths = [0] * (len(two) + 1)
    for word in one:
        diagonal = 0
        for number, other in enumerate(two, 1):
            above = lengths[number]
            lengths[number] = diagonal + 1 if word == other else max(above, lengths[number - 1])
            diagonal = above
    return 2 * lengths[-1] / (len(one) + len(two))


TEXTS = st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=12)


@given(TEXTS, st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), st.sampled_from([0.5, 0.7, 0.85, 0.95]))
def test_the_index_finds_what_a_comparison_with_each_entry_finds(texts: list[str], sentence: str, least: float) -> None:
    memory = memory_of(*((text, text) for text in texts), near=least)
    best = max(similarity(compared_words(text), compared_words(sentence)) for text in texts)
    found = memory.find(sentence)
    if found is None:
        assert best < least
    elif sentence in texts:
        assert found.similarity == best == 1.0
    else:
        assert found.similarity == min(best, 0.99)


@given(st.text(alphabet=st.sampled_from("aB1_ .,-é\u0301猫ว่")))
def test_the_texts_of_words(line: str) -> None:
    assert word_texts(line) == [word.text for word in words_of(line)]


# ---- files ----

TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Good morning</seg></tuv><tuv xml:lang="de"><seg>Guten Morgen</seg></tuv></tu>
</body></tmx>"""

XLIFF = """<?xml version="1.0"?><xliff version="1.2"><file source-language="en" target-language="de"><body>
<trans-unit id="1"><source>Good night</source><target>Gute Nacht</target></trans-unit></body></file></xliff>"""


def test_a_memory_is_read_from_several_files_in_their_order(tmp_path: Path) -> None:
    files = {
        "a.tsv": "Hello\tHallo\nBye\tTschüss\nBye\tAuf Wiedersehen\n\tleer\n",
        "b.tmx": TMX,
        "c.xliff": XLIFF,
        "d.tsv": "source\ttranslation\tdate\tnote\nHello\tServus\t2026-11-25\tlater\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    notices: list[str] = []
    memory = read_memory([tmp_path / name for name in files], "en", "de", notices=notices)
    found = {source: memory.exact(source) for source in ("Hello", "Bye", "Good morning", "Good night")}
    assert {source: match and (match.entry.translation, match.entry.origin) for source, match in found.items()} == {
        "Hello": ("Servus", "d.tsv"),
        "Bye": ("Auf Wiedersehen", "a.tsv"),
        "Good morning": ("Guten Morgen", "b.tmx"),
        "Good night": ("Gute Nacht", "c.xliff"),
    }
    told = "\n".join(notices)
    assert "a.tsv: 1 pair replaces an earlier translation" in told
    assert "d.tsv: 1 pair replaces an earlier translation" in told
    assert "a.tsv: 1 of 4 pairs with an empty side" in told


@pytest.mark.parametrize("name", ["none.tsv", "folder", "text.docx"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.docx").write_bytes(b"PK")
    with pytest.raises(DataError, match=name):
        read_memory([tmp_path / name], "en", "de")


def test_a_file_may_name_its_languages(tmp_path: Path) -> None:
    (tmp_path / "neutral.tsv").write_text("source\ttranslation\na\tb\n")
    (tmp_path / "named.tsv").write_text("en\tde\na\tb\n")
    (tmp_path / "bare.tsv").write_text("a\tb\n")
    assert not names_languages(tmp_path / "neutral.tsv", "en", "de")
    assert not names_languages(tmp_path / "bare.tsv", "en", "de")
    assert names_languages(tmp_path / "named.tsv", "en", "de")
    assert not names_languages(tmp_path / "named.tsv", "fr", "es")
    (tmp_path / "corrections.es-nah.tsv").write_text("source\ttranslation\na\tb\n")
    assert names_languages(tmp_path / "corrections.es-nah.tsv", "es", "nah")
    assert not names_languages(tmp_path / "corrections.es-nah.tsv", "es", "gn")
    assert not names_languages(tmp_path / "corrections.es-nah.tsv", "nah", "es")


def test_a_file_whose_name_says_another_language_is_reported(tmp_path: Path) -> None:
    (tmp_path / "corrections.es-nah.tsv").write_text("source\ttranslation\na\tb\n")
    notices: list[str] = []
    read_memory([tmp_path / "corrections.es-nah.tsv"], "es", "gn", notices=notices)
    assert any("its name says es and nah, and it is used for es → gn" in notice for notice in notices)
    notices = []
    read_memory([tmp_path / "corrections.es-nah.tsv"], "es", "nah", notices=notices)
    assert not any("its name" in notice for notice in notices)


# ---- translations ----


def translated(lines: Sequence[str], memory: Memory, **changes: Any) -> tuple[list[Translation], list[str]]:
    """Return the translations of lines, and what the model was given. It writes capitals."""
    model = capitals()
    model.aligns = False
    found = list(
        BySentence(model, "en", "de", memory).translate(lines, Options(**changes), Reading(warn=False, quiet=True))
    )
    return found, model.lines


def test_a_sentence_of_the_memory_is_not_given_to_the_model() -> None:
    memory = memory_of(("How are you?", "Wie geht es?"), ("It costs 5 euros.", "Das kostet fünf Euro."))
    lines = ["Well then.  How  are you? It costs 5 euros.", "How are you?", "", "It costs 6 euros."]
    found, asked = translated(lines, memory)
    assert [each.text for each in found] == [
        "WELL THEN.  Wie geht es? Das kostet fünf Euro.",
        "Wie geht es?",
        "",
        "IT COSTS 6 EUROS.",
    ]
    assert asked == ["Well then.", "It costs 6 euros."]
    assert [[match.sentence for match in each.memory] for each in found] == [
        ["How  are you?", "It costs 5 euros."],
        ["How are you?"],
        [],
        [],
    ]


def test_a_line_of_the_memory_is_not_split_into_sentences() -> None:
    memory = memory_of(("Stop. Go on.", "Halt, weiter."), ("Stop.", "Halt."))
    found, asked = translated(["Stop.  Go on.", "Stop. Go on. Stop."], memory)
    assert [each.text for each in found] == ["Halt, weiter.", "Halt. GO ON. Halt."]
    assert asked == ["Go on."]


def test_a_near_match_is_offered_and_never_used() -> None:
    memory = memory_of(("the old king reads a very long book", "der alte König"))
    (found,), asked = translated(["the old king reads a very good book"], memory)
    assert found.text == "THE OLD KING READS A VERY GOOD BOOK"
    assert asked == [found.source]
    assert found.memory == (
        MemoryMatch(found.source, Entry("the old king reads a very long book", "der alte König", "memory.tsv"), 0.875),
    )


def test_the_memory_changes_nothing_for_other_sentences() -> None:
    lines = ["Sentence {name} one. And 5 km more!", "Two", "", "12"]
    without, _ = translated(lines, Memory())
    with_entries, _ = translated(lines, memory_of(("Three", "drei")))
    assert with_entries == without


def test_documents_use_the_memory(tmp_path: Path) -> None:
    memory = memory_of(
        ("A red dog.", "Ein roter Hund."),
        ("Read more here & there", "Mehr & mehr"),
        ("Two words. Three words.", "Fünf Wörter."),
    )
    page = (
        "<title>A  red\ndog.</title><p><b>A red dog.</b> Other text.</p><p> A <i>red</i> dog. </p>"
        '<p>Read <a href="x">more</a> here &amp; there</p><div>Two words. <br>Three words.</div>'
    )
    model = capitals()
    model.aligns = False
    document = read_document(page.encode(), ReadOptions("page.html", "en", "de"))
    found = translate_document(document, model, Options(), src="en", tgt="de", quiet=True, memory=memory)
    content = document.write([segment.content() for segment in found])
    assert content.decode() == (
        "<title>Ein roter Hund.</title><p><b>Ein roter Hund.</b> OTHER TEXT.</p><p> Ein <i>roter</i> Hund. </p>"
        '<p><a href="x">Mehr</a> &amp; mehr</p><div>Fünf <br> Wörter.</div>'
    )
    assert model.lines == ["Other text."]
    assert [len(segment.matches) for segment in found] == [1, 1, 1, 1, 1]


def test_a_page_with_nothing_of_the_memory_is_translated_as_without_it() -> None:
    page = b"<p>One <b>two</b>. Three.</p>"
    options = ReadOptions("page.html", "en", "de")
    model = capitals()
    model.aligns = False
    with_memory = translate_bytes(page, options, model, Options(), memory=memory_of(("Four", "vier")))
    assert with_memory == translate_bytes(page, options, model, Options())


# ---- the command ----


def test_mtcli_translate_takes_a_memory(tmp_path: Path) -> None:
    save_toy(tmp_path)
    source, target = PAIRS[7]
    near = " ".join(["one", "red", "dog", "cat"] * 3)
    memory = tmp_path / "memory.tsv"
    memory.write_text(f"sees red.\tMEMORIA ROJA.\n{near}\tcerca\n", encoding="utf-8")
    lines = f"{source}\nsees   red.\n{near.replace('cat', 'big', 1)}\n"
    command = ("translate", "--model", ".", "--memory", memory.name, "--device", "cpu")

    done = mtcli(*command, cwd=tmp_path, stdin=lines.encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[:2] == [target, "MEMORIA ROJA."]
    assert b"memory: 2 entries" in done.stderr
    assert b"memory: 1 sentence translated by it\n" in done.stderr

    done = mtcli(*command, "--format", "json", cwd=tmp_path, stdin=lines.encode())
    first, exact, offered = map(json.loads, done.stdout.decode().splitlines())
    assert "memory" not in first
    assert (exact["translation"], exact["memory"]) == (
        "MEMORIA ROJA.",
        [
            {
                "sentence": "sees   red.",
                "match": 100,
                "source": "sees red.",
                "translation": "MEMORIA ROJA.",
                "origin": "memory.tsv",
            }
        ],
    )
    assert [match["match"] for match in offered["memory"]] == [91]
    assert offered["translation"] != "cerca"
    assert b"1 sentence translated by it, 1 near match" in done.stderr
    done = mtcli(*command, "--format", "json", "--memory-match", "95", cwd=tmp_path, stdin=lines.encode())
    assert b"1 sentence translated by it, 0 near matches" in done.stderr

    (tmp_path / "page.html").write_text("<p><i>sees red.</i></p>")
    done = mtcli(*command, "-i", "page.html", "-o", "out.html", cwd=tmp_path)
    assert (tmp_path / "out.html").read_text() == "<p><i>MEMORIA ROJA.</i></p>", done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "m.tsv", "--as-is"], "--as-is: not with --memory"),
        (["--memory", "m.tsv", "--prefix", "x"], "--prefix: not with --memory"),
        (["--memory", "m.tsv", "--sample"], "--sample: not with --memory"),
        (["--memory", "m.tsv", "--memory-match", "90"], "--memory-match: only with --format json"),
        (["--memory-match", "90", "--format", "json"], "--memory-match: only with --memory"),
        (["--memory", "m.tsv", "-o", "m.tsv"], "m.tsv"),
        (["--memory", "none.tsv"], "none.tsv"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "m.tsv").write_text("a\tb\n")
    done = mtcli("translate", "Hello", "--model", "none", *options, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert message in done.stderr.decode()
    assert (tmp_path / "m.tsv").read_text() == "a\tb\n"


def test_data_check_shows_contradicting_corrections(tmp_path: Path) -> None:
    path = tmp_path / "corrections.tsv"
    head = "source\ttranslation\tdate\tnote"
    path.write_text(f"{head}\nGood day\tGuten Tag\t2026-11-24\t\nGood day\tGrüß Gott\t2026-11-25\tfor Vienna\n")
    done = mtcli("data", "check", path.name, "--src", "en", "--tgt", "de", cwd=tmp_path)
    shown = done.stdout.decode()
    assert "several translations" in shown
    assert "Good day  |  Guten Tag" in shown
    assert "Good day  |  Grüß Gott" in shown
