import pytest
from helpers.documents import ByRule

from mtcli.documents.lines import BySentence
from mtcli.text.frame import inside_of_frame
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("(", "one two.", ")"),
        ("[", "one two", "]"),
        ('"', "one two.", '"'),
        ("“", "one", "”"),
        ("« ", "one", " »"),
        ('("', "one", '")'),
        ("(", "one two.", ""),
        ("", "one two.", ")"),
        ("- ", "one", ""),
        ("a) ", "one two", ""),
        ("1.- ", "one two", ""),
        ("[ ] ", "one two", ""),
        ("", "one?", "??"),
        ("", "one!", "!! 😀"),
        ("", "one?", "!"),
        ("", "one.", "..."),
        ("", "one two", " #three"),
        ("", "one 😀", ""),
        ("", "one...", ""),
        ("", "one :)", ""),
        ("", "f(x)", ""),
        ("", "(c) 2020 one", ""),
        ("", "“one”, said Tom.", ""),
        ("", "the dogs’", ""),
        ("", "‘twas nice", ""),
        ("", "[b]one[/b]", ""),
        ("", "3. one", ""),
        ("", "(1)", ""),
        ("", "???", ""),
    ],
)
def test_the_frame_of_a_sentence(before: str, inside: str, after: str) -> None:
    text = before + inside + after
    start, end = inside_of_frame(text)
    assert (text[:start], text[start:end], text[end:]) == (before, inside, after)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("(one two.)", "(ONE TWO)"),
        ("what???", "WHAT??"),
        ("no!!!! 😀", "NO!!! 😀"),
        ("- one - two", "- ONE - TWO"),
        ("“one”", "“ONE”"),
        ("[ ] one", "[ ] ONE"),
        ("one #two", "ONE #two"),
        ("one | two", "ONE | TWO"),
        ("one → two", "ONE → TWO"),
    ],
)
def test_signs_around_a_sentence_stay_even_if_the_model_writes_none(line: str, expected: str) -> None:
    translator = ByRule(lambda text: "".join(each for each in text if each.isalpha() or each.isspace()).upper())
    translator.aligns = False
    (found,) = BySentence(translator, "en", "de").translate([line], Options(), Reading(warn=False, quiet=True))
    assert found.text == expected
