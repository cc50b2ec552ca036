import pytest
from helpers.documents import ByRule

from mtcli.documents.lines import BySentence
from mtcli.text.frame import end_of_frame, inside_of_frame
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
        ("12) ", "one two", ""),
        ("[ ] ", "one two", ""),
        ("", "one?", "??"),
        ("", "one!", "!! 😀"),
        ("", "one?", "!"),
        ("", "one!?", "!!"),
        ("", "one.", "..."),
        ("", "one two", " #three"),
        ("", "one #two and #three", ""),
        ("- [ ] ", "one", ""),
        ("# ", "one", ""),
        ("–", "one", ""),
        ("...", "one", ""),
        ("", "one", "…"),
        ("((", "one.", "))"),
        ("(", "one (two) three", ")"),
        ("(", "one", ")."),
        ("😀 (", "one", ")"),
        ("_", "one", "_"),
        ("", "choice a)", ""),
        ("", "(one) two", ""),
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
        ("what???", "WHAT???"),
        ("no!!!! 😀", "NO!!!! 😀"),
        ("one??? two!!! three", "ONE??? TWO!!! THREE"),
        ("(one). (two).", "(ONE). (TWO)."),
        ("...one – two…", "...ONE  TWO…"),
        ("((one))", "((ONE))"),
        ("- one - two", "- ONE - TWO"),
        ("“one”", "“ONE”"),
        ("[ ] one", "[ ] ONE"),
        ("one #two", "ONE #two"),
        ("one | two", "ONE | TWO"),
        ("one → two", "ONE → TWO"),
        ("part 3 | the return", "PART 3 | THE RETURN"),
        ("* rooms 2 * baths 1 * garden", "* ROOMS 2 * BATHS 1 * GARDEN"),
    ],
)
def test_signs_around_a_sentence_stay_even_if_the_model_writes_none(line: str, expected: str) -> None:
    translator = ByRule(lambda text: "".join(each for each in text if each.isalnum() or each.isspace()).upper())
    translator.aligns = False
    (found,) = BySentence(translator, "en", "de").translate([line], Options(), Reading(warn=False, quiet=True))
    assert found.text == expected


@pytest.mark.parametrize(
    ("sentence", "translation", "after", "expected"),
    [
        ("One!", "Eins!", "!!", "Eins!!!"),
        ("One!", "Eins.", "!!", "Eins!!!"),
        ("One?", "Eins", "??", "Eins???"),
        ("One?", "什么？", "??", "什么？？？"),
        ("什么？", "What?", "？", "What??"),
        ("One?", "ماذا؟", "??", "ماذا؟؟؟"),
        ("One", "Eins.", "…", "Eins…"),
        ("One.", "Eins.", "...", "Eins...."),
        ("One", "Eins.", ").", "Eins)."),
        ("One", "Eins.", ")", "Eins.)"),
        ("One...", "Eins...", " #two", "Eins... #two"),
    ],
)
def test_marks_after_a_sentence_fit_its_translation(sentence: str, translation: str, after: str, expected: str) -> None:
    assert "".join(end_of_frame(sentence, translation, after)) == expected


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("Place the lamp here.", "la lámpara aquí.", "La lámpara aquí."),
        ("The iPhone is here.", "iPhone está aquí.", "iPhone está aquí."),
        ("the lamp", "la lámpara", "la lámpara"),
        ("All about vitamin A", "Todo sobre la vitamina", "Todo sobre la vitamina"),
        ("Good morning…", "Buenos días.", "Buenos días…"),
        ("Good morning", " Buenos días ", "Buenos días"),
    ],
)
def test_the_beginning_and_the_end_of_a_translation_are_as_in_its_line(
    line: str, translation: str, expected: str
) -> None:
    translator = ByRule(lambda text: translation)
    translator.aligns = False
    (found,) = BySentence(translator, "en", "es").translate([line], Options(), Reading(warn=False, quiet=True))
    assert found.text == expected


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("I\u00a0don’t know, “yes”, no.", 'I don\'t know, "yes", no.'),
        ("It is 5\u00a0km away.", "It is 5\u00a0km away."),
        ("See https://a.org/x–y now", "See https://a.org/x–y now"),
    ],
)
def test_a_model_is_given_plain_signs_for_those_that_it_does_not_know(line: str, given: str) -> None:
    """Protected text stays: the model should copy it."""
    lines = []

    def rule(text: str) -> str:
        lines.append(text)
        return text

    (found,) = BySentence(ByRule(rule), "en", "de").translate([line], Options(), Reading(warn=False, quiet=True))
    assert lines == [given]
    assert found.text == line


def test_a_translation_has_the_quotation_marks_and_apostrophes_of_its_line() -> None:
    translator = ByRule(str.upper)
    translator.aligns = False
    lines = ["I don’t say “yes”.", "I don’t say 'yes'.", "I don´t know."]
    found = BySentence(translator, "en", "de").translate(lines, Options(), Reading(warn=False, quiet=True))
    assert [each.text for each in found] == ["I DON’T SAY “YES”.", "I DON'T SAY 'YES'.", "I DON'T KNOW."]
