"""The forms in which people type sentence pairs."""

import unicodedata
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli.text.invented_symbols import symbol
from mtcli.text.letter_case import is_cased
from mtcli.text.lines import Pair
from mtcli.text.placeholders import TOKENS
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG
from mtcli.text.typed_forms import FORMS, SymbolPlace, joined, with_symbol

PAIRS: dict[tuple[str, str], list[Pair]] = {
    ("en", "de"): [
        ("Two dogs run, and the man’s hat falls.", "Zwei Hunde rennen, und der Hut des Mannes fällt."),
        ("I don't know Tom, who has 2 cats.", "Ich kenne Tom nicht, der 2 Katzen hat."),
        ("Really?", "Wirklich?"),
        ("See https://example.com/a?b=3 or write to ana@example.com!", "Siehe https://example.com/a?b=3!"),
        (f"{TOKENS[0]} opens {TOKENS[1]}.", f"{TOKENS[0]} öffnet {TOKENS[1]}."),
        ("Hi. How are you?", "Hallo. Wie geht's?"),
    ],
    ("en", "es"): [
        ("Hey, how are you?", "Oye, ¿cómo estás?"),
        ("What?! No!", "¡¿Qué?! ¡No!"),
    ],
    ("es", "en"): [("Mañana compro pan, leche y azúcar.", "I buy bread, milk and sugar tomorrow.")],
    ("en", "zh"): [("I like iPhones, and you?", "我喜欢 iPhone，你呢？"), ("He is here.", "他在这里。")],
    ("zh", "en"): [("他在这里。", "He is here.")],
    ("hi", "en"): [("मैं घर जा रहा हूँ।", "I am going home.")],
    ("ru", "tr"): [("Привет, как дела?", "Merhaba, iki elma ister misin?")],
    ("el", "fr"): [("Τι κάνεις;", "Comment ça va ?"), ("Ο κόσμος είναι μεγάλος.", "Le monde est grand.")],
    ("en", "th"): [("I am hungry.", "ฉันหิว")],
    ("ar", "fr"): [("كيف حالك؟", "Comment vas-tu ?")],
}
CASES = [(languages, pair) for languages, pairs in PAIRS.items() for pair in pairs]
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" .,!?¿¡'’aB1;…")), max_size=40)


def applied(name: str, pair: Pair, languages: tuple[str, str] = ("en", "de"), seed: int = 1) -> Pair | None:
    return FORMS[name](pair, languages, Random(seed))


def letters(text: str) -> str:
    """The letters of a text without case, accents and final forms of a sigma."""
    plain = unicodedata.normalize("NFD", text.casefold())
    return "".join(one for one in plain if unicodedata.category(one)[0] != "M").replace("ς", "σ").replace("ı", "i")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("languages", "pair"), CASES)
def test_a_form_depends_on_the_pair_and_the_seed(name: str, languages: tuple[str, str], pair: Pair) -> None:
    for seed in range(20):
        changed = applied(name, pair, languages, seed)
        assert changed == applied(name, pair, languages, seed)
        assert changed != pair
        tagged = applied(name, (BACK_TRANSLATION_TAG + pair[0], pair[1]), languages, seed)
        assert tagged == (changed and (BACK_TRANSLATION_TAG + changed[0], changed[1]))


@pytest.mark.parametrize("name", FORMS)
@given(src=TEXT, tgt=TEXT, seed=st.integers(0, 99))
def test_a_form_of_any_text_adds_no_line(name: str, src: str, tgt: str, seed: int) -> None:
    changed = applied(name, (src, tgt), ("en", "es"), seed)
    if changed is not None:
        for before, after in zip((src, tgt), changed, strict=True):
            assert after.count("\n") <= before.count("\n")


@pytest.mark.parametrize("name", ["capitals", "title case", "lower case"])
@pytest.mark.parametrize(("languages", "pair"), CASES)
def test_case_changes_nothing_else(name: str, languages: tuple[str, str], pair: Pair) -> None:
    changed = applied(name, pair, languages)
    if changed is not None:
        assert [letters(text) for text in changed] == [letters(text) for text in pair]


@pytest.mark.parametrize("name", ["capitals", "title case", "lower case", "chat"])
@pytest.mark.parametrize("src", ["你好！", "नमस्ते।", "كيف حالك؟", "გამარჯობა.", "123 !"])
def test_a_source_without_case(name: str, src: str) -> None:
    assert applied(name, (src, "Hello there."), ("xx", "en")) is None


def test_capitals_follow_both_languages() -> None:
    assert applied("capitals", ("Two big dogs", "iki büyük köpek"), ("en", "tr")) == ("TWO BIG DOGS", "İKİ BÜYÜK KÖPEK")
    assert applied("capitals", ("the street", "die Straße")) == ("THE STREET", "DIE STRASSE")
    assert applied("capitals", ("I see.", "我明白了。"), ("en", "zh")) == ("I SEE.", "我明白了。")
    assert applied("capitals", ("I like iPhones.", "我喜欢 iPhone。"), ("en", "zh")) == (
        "I LIKE IPHONES.",
        "我喜欢 iPhone。",
    )
    assert applied("capitals", ("我喜欢 iPhone。", "I like iPhones."), ("zh", "en")) is None
    assert applied("capitals", ("NASA 1", "die Nasa")) is None


@pytest.mark.parametrize(
    ("languages", "pair", "bare"),
    [
        (("en", "de"), ("A dog.", "Ein Hund."), ("A dog", "Ein Hund")),
        (("en", "es"), ("Hey, how are you?", "Oye, ¿cómo estás?"), ("Hey, how are you", "Oye, cómo estás")),
        (("en", "es"), ("What?!", "¡¿Qué?!"), ("What", "Qué")),
        (("en", "es"), ("Who? Come on!", "¿Quién? ¡Vamos!"), ("Who? Come on", "¿Quién? Vamos")),
        (("en", "es"), ("Who? Him?", "¿Quién? Él?"), ("Who? Him", "¿Quién? Él")),
        (("zh", "fr"), ("你好吗？", "Comment vas-tu ?"), ("你好吗", "Comment vas-tu")),
        (("el", "en"), ("Τι κάνεις;", "How are you?"), ("Τι κάνεις", "How are you")),
        (("hi", "ar"), ("मैं ठीक हूँ।", "كيف حالك؟"), ("मैं ठीक हूँ", "كيف حالك")),
        (("en", "th"), ("I am hungry.", "ฉันหิว"), ("I am hungry", "ฉันหิว")),
        (("en", "de"), ("A dog.", "Ein Hund"), None),
        (("en", "de"), ("A dog", "Ein Hund."), None),
        (("en", "de"), ("see: a;", "siehe: a;"), None),
        (("en", "de"), ("...", "..."), None),
    ],
)
def test_no_final_mark(languages: tuple[str, str], pair: Pair, bare: Pair | None) -> None:
    assert applied("no final mark", pair, languages) == bare


def test_doubled_final_marks_are_the_same_on_both_sides() -> None:
    for seed in range(20):
        changed = applied("doubled final mark", ("你好吗？", "¿Qué tal?"), ("zh", "es"), seed)
        assert changed in [("你好吗？？", "¿Qué tal??"), ("你好吗？？？", "¿Qué tal???")]
    assert applied("doubled final mark", ("Stop!", "Halt.")) is None
    assert applied("doubled final mark", ("Well...", "Nun...")) is None


def test_chat() -> None:
    found = {applied("chat", ("I don't know, Tom.", "Ich weiß es nicht, Tom."), seed=seed) for seed in range(20)}
    assert found == {
        ("i dont know, tom", "Ich weiß es nicht, Tom"),
        ("i dont know tom", "Ich weiß es nicht, Tom"),
    }
    assert applied("chat", ("ok", "gut")) is None
    assert applied("chat", ("it costs 1,000 'dollars'", "x")) is None


@pytest.mark.parametrize(
    ("language", "src", "expected"),
    [
        ("es", "¿Qué año es, señor?", {"¿Que ano es, senor?"}),
        ("de", "Fünf süße Äpfel", {"Funf susse Apfel", "Fuenf suesse Aepfel"}),
        ("vi", "Tôi không biết đường.", {"Toi khong biet duong."}),
        ("el", "Τι κάνεις;", {"Τι κανεις;"}),
        ("ru", "Мой ёж", {"Мой еж"}),
        ("tr", "Işık çıktı.", {"Isik cikti."}),
        ("fr", "été https://example.com/été", {"ete https://example.com/été"}),
    ],
)
def test_no_accents(language: str, src: str, expected: set[str]) -> None:
    found = {applied("no accents", (src, "Ziel"), (language, "en"), seed) for seed in range(20)}
    assert found == {(text, "Ziel") for text in expected}


@pytest.mark.parametrize("src", ["A dog.", "你好！", "नमस्ते।", "café".replace("é", ""), "하나"])
def test_a_source_without_accents(src: str) -> None:
    assert applied("no accents", (src, "Ziel"), ("xx", "en")) is None


def test_chat_omits_accents_of_some_sources() -> None:
    found = {applied("chat", ("¿Cómo estás?", "How are you?"), ("es", "en"), seed) for seed in range(30)}
    assert found == {("cómo estás", "How are you"), ("como estas", "How are you")}


def test_missing_spaces() -> None:
    found = {applied("missing spaces", ("Hi, Tom. Go!", "Hallo"), seed=seed) for seed in range(30)}
    assert found == {(src, "Hallo") for src in ("Hi,Tom. Go!", "Hi, Tom.Go!", "Hi,Tom.Go!")}
    assert applied("missing spaces", ("A dog.", "Hund")) is None
    assert applied("missing spaces", ("costs 1, 2 or 3", "x")) is None


@given(seed=st.integers(0, 10_000))
def test_typing_errors_are_in_words_of_letters(seed: int) -> None:
    kept = f"https://example.com/page 1234 {TOKENS[3]} ana@example.com {{name}} %s A320 <b>"
    src = f"{kept} wonderful mornings"
    changed = applied("typing errors", (src, "Ziel"), seed=seed)
    assert changed is not None
    assert changed[0].startswith(kept)
    assert changed[0] != src
    assert changed[1] == "Ziel"


def test_typing_errors_change_a_share_of_the_letters() -> None:
    word = "abcdefghijklmnopqrstuvwxyz"
    text = " ".join([word] * 40)
    lengths = []
    for seed in range(50):
        changed = applied("typing errors", (text, ""), seed=seed)
        assert changed is not None
        wrong = sum(one != word for one in changed[0].split())
        lengths.append(wrong)
    # 31 errors of 1,040 letters are spread over 40 words: 40 * (1 - (39 / 40) ** 31) words have one.
    assert 19 < sum(lengths) / len(lengths) < 25


def test_typing_errors_need_words_of_letters() -> None:
    assert applied("typing errors", ("你好吗", "x"), ("zh", "en")) is None
    assert applied("typing errors", ("ฉันหิว", "x"), ("th", "en")) is None
    assert applied("typing errors", ("12 :) a", "x")) is None
    assert applied("typing errors", ("नमस्ते", "x"), ("hi", "en")) is not None


@pytest.mark.parametrize("place", ["start", "middle", "end"])
@pytest.mark.parametrize(("languages", "pair"), CASES)
def test_a_symbol_is_on_both_sides_once(place: SymbolPlace, languages: tuple[str, str], pair: Pair) -> None:
    for seed in range(200):
        random = Random(seed)
        new = symbol(languages, random)
        changed = with_symbol(pair, languages, random, new, place)
        if changed is None:
            assert place == "middle" or new in pair[0] + pair[1]
            continue
        for before, after in zip(pair, changed, strict=True):
            assert after.count(new) == 1
            start, _, end = after.partition(new)
            if place == "start":
                assert start == ""
            elif place == "middle":
                assert start.strip()
                assert end.strip()
            bare = "".join((start + end).split())
            full = "".join(before.split())
            is_without_mark = place == "end" and applied("no final mark", pair, languages) is not None
            assert bare == full or (is_without_mark and len(bare) < len(full))


def test_a_symbol_at_the_end_is_beside_the_final_mark_or_in_its_place() -> None:
    pair = ("A dog!", "Comment ça va !")
    found = {with_symbol(pair, ("en", "fr"), Random(seed), "😀", "end") for seed in range(200)}
    assert found == {
        ("A dog! 😀", "Comment ça va ! 😀"),
        ("A dog!😀", "Comment ça va !😀"),
        ("A dog 😀!", "Comment ça va 😀 !"),
        ("A dog😀!", "Comment ça va😀 !"),
        ("A dog 😀", "Comment ça va 😀"),
        ("A dog😀", "Comment ça va😀"),
    }


def test_a_symbol_in_the_middle_is_at_the_place_that_corresponds() -> None:
    random = Random(1)
    pair = ("Hello, how are you today?", "Hallo, wie geht es dir heute?")
    assert with_symbol(pair, ("en", "de"), random, "@ana", "middle") == (
        "Hello, @ana how are you today?",
        "Hallo, @ana wie geht es dir heute?",
    )
    pair = ("Today Peter is ill", "Heute ist Peter krank")
    assert with_symbol(pair, ("en", "de"), random, "@ana", "middle") == (
        "Today Peter @ana is ill",
        "Heute ist Peter @ana krank",
    )
    assert with_symbol(("Today, we go.", "Wir gehen heute."), ("en", "de"), random, "@ana", "middle") is None
    moved = ("Yes, I think that he will come tomorrow.", "Ich glaube er kommt morgen, ja.")
    assert with_symbol(moved, ("en", "de"), random, "@ana", "middle") is None
    chinese = with_symbol(("Hi, you!", "你好，你！"), ("en", "zh"), Random(4), "😀", "middle")
    assert chinese is not None
    assert chinese[1] == "你好，😀你！"


def test_symbols_are_written_alike_in_both_languages() -> None:
    for seed in range(3000):
        assert not any(character in ",\n" for character in symbol(("en", "de"), Random(seed)))
        assert ".5" not in symbol(("en", "de"), Random(seed)) or "/" in symbol(("en", "de"), Random(seed))
    assert len({symbol(("en", "de"), Random(seed)) for seed in range(3000)}) > 1500


def test_joined_sentences() -> None:
    assert joined([("A dog.", "狗。"), ("“A cat”", "“猫。”"), ("A cow.", "牛。"), ("Stop", "停"), ("Go", "走")]) == (
        "A dog. “A cat” A cow. Stop Go",
        "狗。“猫。”牛。停 走",
    )
    tag = BACK_TRANSLATION_TAG
    assert joined([("a.", "b."), (f"{tag}c.", "d."), (f"{tag}e.", "f.")]) == (f"{tag}a. c. e.", "b. d. f.")
    assert joined([("안녕.", "ฉันหิว"), ("네.", "ฉันหิว")]) == ("안녕. 네.", "ฉันหิว ฉันหิว")


def test_pairs_of_the_cases_have_case_or_not() -> None:
    """The cases test both: sources with letters in two cases, and without."""
    assert {any(map(is_cased, pair[0])) for _, pair in CASES} == {True, False}
