"""Letter case by the rules of a language."""

import pytest

from mtcli.text.letter_case import capitalized, has_case, lower, title, upper


@pytest.mark.parametrize(
    ("language", "text", "capitals"),
    [
        ("en", "don't go", "DON'T GO"),
        ("de", "große Straße", "GROSSE STRASSE"),
        ("tr", "ıssız iki İl", "ISSIZ İKİ İL"),
        ("tur", "diyor", "DİYOR"),
        ("en", "diyor", "DIYOR"),
        ("el", "Καλημέρα ο κόσμος", "ΚΑΛΗΜΕΡΑ Ο ΚΟΣΜΟΣ"),
        ("ka", "გამარჯობა", "გამარჯობა"),
        ("zh", "你好", "你好"),
    ],
)
def test_capitals(language: str, text: str, capitals: str) -> None:
    assert upper(text, language) == capitals


@pytest.mark.parametrize(
    ("language", "text", "small"),
    [
        ("en", "HELLO I", "hello i"),
        ("tr", "ISSIZ İKİ", "ıssız iki"),
        ("en", "İSTANBUL", "istanbul"),
        ("el", "Ο ΚΟΣΜΟΣ ΣΑΣ", "ο κοσμος σας"),
    ],
)
def test_lower_case(language: str, text: str, small: str) -> None:
    assert lower(text, language) == small


@pytest.mark.parametrize(
    ("language", "text", "titled"),
    [
        ("en", "a man's “old” hat, well-known.", "A Man's “Old” Hat, Well-known."),
        ("tr", "iki ılık (ince) su", "İki Ilık (İnce) Su"),
        ("hr", "ǆep", "ǅep"),
        ("de", "ß bleibt", "ß Bleibt"),
        ("fr", "l'homme USA", "L'homme USA"),
        ("el", "άνθρωπος", "Άνθρωπος"),
    ],
)
def test_title_case(language: str, text: str, titled: str) -> None:
    assert title(text, language) == titled


def test_only_the_first_letter_is_capitalized() -> None:
    assert capitalized("¿qué haces, peter?", "es") == "¿Qué haces, peter?"
    assert capitalized("123 dogs", "en") == "123 dogs"
    assert capitalized("...", "en") == "..."


def test_texts_without_case() -> None:
    assert has_case("Ж 1")
    assert not any(map(has_case, ["你好 1", "გამარჯობა", "नमस्ते", "شكرا", "123 !?"]))
