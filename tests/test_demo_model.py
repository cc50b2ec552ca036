"""What the documentation shows the quickstart model doing, it does: every sentence in it is translated correctly."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from demo import source_key

from mtcli.corpus.demo import load

SHOWN = {
    "Hello World": "Hola Mundo",
    "Hello world": "Hola mundo",
    "How are you?": "¿Cómo estás?",
    "Good morning, friend": "Buenos días, amigo",
    "Good night": "Buenas noches",
    "The dog sees the cat.": "El perro ve al gato.",
    "The cat sees the dog.": "El gato ve al perro.",
    "The old king reads a book.": "El rey viejo lee un libro.",
    "I don't know the old king's name.": "No sé el nombre del rey viejo.",
    "Ana's brother lives in Madrid.": "El hermano de Ana vive en Madrid.",
}
"""Sentences that the README, the help texts, the pages and docs/ show, and their translations."""


def test_every_word_shown_was_learned_from_pairs() -> None:
    known = Counter(word for en, _ in load().train for word in source_key(en).split())
    for sentence in SHOWN:
        for word in source_key(sentence).split():
            assert known[word] >= 8, (sentence, word)


def test_hello_world_is_composed_rather_than_remembered() -> None:
    sources = {source_key(en) for en, _ in load().train}
    assert source_key("Hello World") not in sources


@pytest.mark.slow
def test_the_quickstart_model_translates_what_is_shown(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mtcli", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    run("train")
    translated = run("translate", *SHOWN).splitlines()
    assert dict(zip(SHOWN, translated, strict=True)) == SHOWN
