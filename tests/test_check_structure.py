"""The script that compares the structure of translated documents by other programs."""

import random
from pathlib import Path

import check_structure
import pytest

from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator

PAGE = b"# One *two* `x`\n\nthree **four** [five](six) seven\n"


@pytest.mark.parametrize("name", check_structure.STUBS)
def test_markdown_keeps_its_structure_with_each_translator(name: str) -> None:
    outline = pytest.importorskip("html5lib") and check_structure.outline_of(PAGE, ".md")
    translator = ModelTranslator(check_structure.Rule(check_structure.STUBS[name]))
    found = check_structure.check(Path("a.md"), PAGE, outline, translator, Options())
    assert found in ("same", "unchanged")


def test_the_check_finds_another_structure() -> None:
    translator = ModelTranslator(check_structure.Rule(lambda line, _: line.upper()))
    assert check_structure.check(Path("a.md"), PAGE, "another", translator, Options()) == "differs"


def test_bad_translators_write_something_else() -> None:
    rng = random.Random(1)
    line = "one two three four five six"
    for name, rule in check_structure.STUBS.items():
        assert (rule(line, rng) == line) == (name == "copies")
