"""Sentences in capitals and title case are recased before and after a model translates them."""

import pytest
from conftest import toy_pairs
from helpers.documents import identity, translate_text

from mtcli.documents.lines import BySentence
from mtcli.text.letter_case import upper
from mtcli.text.recasing import Casing, Recaser
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

SENTENCES = [
    ("en", "The dog likes Anna, and I like her too."),
    ("en", "Look at https://example.com/A?b=C and write to Me@Example.com now."),
    ("de", "Die große Straße ist heute leer."),
    ("tr", "İki ılık ırmak, iyi bir İzmir günü."),
    ("el", "Καλημέρα σας, τι κάνετε σήμερα;"),
    ("ru", "Я вижу Анну и её собаку."),
]
PLAIN = [
    "你好，世界。",
    "नमस्ते दुनिया",
    "გამარჯობა, მსოფლიო",
    "the dog",
    "The dog likes Anna.",
    "I am at NATO.",
    "",
    "42 %s",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = [(text.lower(), text) for _, text in SENTENCES for _ in range(3)]
    return train_tokenizer([*lines, *toy_pairs(50)])


@pytest.mark.parametrize(("language", "sentence"), SENTENCES)
def test_recasing_and_back_is_the_identity_where_nothing_is_translated(
    tokenizer: Tokenizer, language: str, sentence: str
) -> None:
    """It is for words in capitals by the rules of the language; addresses keep their case."""
    recaser = Recaser(tokenizer, language, language)
    address = "https://example.com/A?b=C"
    mail = "Me@Example.com"
    capitals = upper(sentence, language)
    for kept in (address, mail):
        capitals = capitals.replace(upper(kept, language), kept)
    text, casing = recaser.known_form(capitals)
    assert casing is Casing.CAPITALS
    assert len(text) == len(capitals)
    assert text != capitals
    assert not text.isupper()
    assert recaser.restored(text, casing, [address, mail]) == capitals


@pytest.mark.parametrize("text", PLAIN)
def test_other_sentences_stay_as_they_are(tokenizer: Tokenizer, text: str) -> None:
    assert Recaser(tokenizer, "en", "de").known_form(text) == (text, Casing.SENTENCE)


def test_a_title_becomes_a_sentence(tokenizer: Tokenizer) -> None:
    recaser = Recaser(tokenizer, "en", "de")
    text, casing = recaser.known_form("The Dog Likes Anna, And I Like Her Too.")
    assert casing is Casing.TITLE
    assert text.startswith("The dog likes ")
    assert " and I like her too." in text
    assert recaser.restored("Der Hund mag Anna.", casing) == "Der Hund mag Anna."


def test_the_model_is_given_the_known_form_and_the_line_is_in_capitals() -> None:
    """Lines, documents and their tags: a identity translator shows what comes back, and what was asked."""
    text = "LOOK AT THE DOG. IT LIKES %s AND ANNA!"
    assert translate_text(text, identity(), Options(), src="en", tgt="de") == text
    lines = [text, "", "look at 5 km", "LOOK AT THE HOUSE"]
    found = list(BySentence(identity(), "en", "de").translate(lines, Options(), Reading(warn=False, quiet=True)))
    assert [each.text for each in found] == lines


def test_a_translation_of_a_line_in_capitals_is_in_capitals_by_the_rules_of_its_language() -> None:
    translator = identity()
    (found,) = BySentence(translator, "en", "tr").translate(
        ["LOOK AT THIS SHIP"], Options(), Reading(warn=False, quiet=True)
    )
    assert translator.lines == ["Look at this ship"]
    assert found.text == "LOOK AT THİS SHİP"
