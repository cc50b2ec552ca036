"""Scores of text as people type it: `mtcli eval --robust`, and their place in the report of a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command import call

from mtcli.errors import UsageError
from mtcli.evaluation.robustness import (
    AS_IT_IS,
    JOINED,
    PLACES,
    Robustness,
    WordScores,
    known_words,
    measure,
    variants,
)
from mtcli.report import robustness
from mtcli.report.run_record import read_run
from mtcli.report.run_report import to_card, to_html, write_report
from mtcli.storage import ROBUSTNESS, model_file
from mtcli.text.lines import Pair
from mtcli.text.typed_forms import FORMS
from mtcli.translate.translator import ModelTranslator

PAIRS: list[Pair] = [
    ("Two dogs run, and Tom is near.", "Zwei Hunde rennen, und Tom ist in der Nähe."),
    ("I don't see the cat.", "Ich sehe die Katze nicht."),
    ("Where is the small house?", "Wo ist das kleine Haus?"),
    ("A woman reads a book in the café!", "Eine Frau liest im Café ein Buch!"),
    ("Five birds sit on the roof.", "Fünf Vögel sitzen auf dem Dach."),
    ("He opens the door, and she leaves.", "Er öffnet die Tür, und sie geht."),
    ("The sun is shining today.", "Die Sonne scheint heute."),
]


def scores_of(
    translate: Callable[[str], str], pairs: list[Pair] = PAIRS, languages: tuple[str, str] = ("en", "de")
) -> Robustness:
    found = variants(pairs, languages)
    return measure(
        found, pairs, lambda lines: [translate(line) for line in lines], metrics=("bleu", "chrf"), tokenize="13a"
    )


def test_a_model_that_translates_every_form_has_full_scores() -> None:
    lines = {src: tgt for variant in variants(PAIRS, ("en", "de")) for src, tgt in variant.pairs}
    found = scores_of(lines.__getitem__)
    assert [form.form for form in found.forms] == [AS_IT_IS, *FORMS, *JOINED]
    for form in found.forms:
        assert [score.value for score in form.scores] == pytest.approx([100, 100])
        assert form.shares == pytest.approx([1, 1])
        assert form.kept == (1.0 if form.form in PLACES else None)


def test_a_form_that_few_pairs_have_is_not_scored() -> None:
    pairs = [*PAIRS, *((f"Dog {number} runs.", f"Hund {number} rennt.") for number in range(100))]
    assert "no accents" not in [variant.form for variant in variants(pairs, ("en", "de"))]
    assert "no accents" in [variant.form for variant in variants(PAIRS, ("en", "de"))]


def test_single_words_are_compared_with_their_known_translations() -> None:
    names = [f"{a}{b}" for a in "abcdef" for b in "uvwxyz"]
    training = [(f"{name} {other}", f"x{name} {other}y") for name in names for other in names if name != other]
    known = known_words(training)
    assert known == known_words(training)
    assert len(known) == len(names)
    assert all(found == {f"x{name}", f"{name}y"} for name, found in known.items())
    assert known_words(training[:20]) == {}
    assert known_words([*training, ("rare", "selten")]) == known
    answers = {name: f"Der {name}Y." for name in names[:18]} | dict.fromkeys(names[18:27], "Ein Mann steht da.")
    variant = variants(PAIRS, ("en", "de"))[:1]
    found = measure(
        variant,
        PAIRS,
        lambda lines: [answers.get(line, "nichts") for line in lines],
        metrics=("bleu",),
        tokenize="13a",
        known=known,
    )
    assert found.words == WordScores(36, 0.5, 0.25)
    assert (
        "single words              36  50.0% with a known translation, 25.0% with more than 3 words" in found.to_text()
    )
    assert json.loads(found.to_json())[-1] == {"form": "single words", "lines": 36, "known": 0.5, "long": 0.25}


def test_a_model_that_knows_the_pairs_only_as_they_are_loses_in_every_other_form() -> None:
    known = dict(PAIRS)
    found = scores_of(lambda line: known.get(line, "nichts"))
    for form in found.forms:
        assert [score.value for score in form.plain] == pytest.approx([100, 100])
        if form.form == AS_IT_IS:
            assert form.shares == pytest.approx([1, 1])
        else:
            assert max(form.shares) < 0.5
        if form.form in PLACES:
            assert form.kept == 0


def test_a_lost_symbol_is_counted_and_the_rest_is_scored() -> None:
    found = variants(PAIRS, ("en", "de"))
    lines = {src: tgt for variant in found for src, tgt in variant.pairs}
    for variant in found:
        for (src, tgt), symbol in zip(variant.pairs, variant.symbols, strict=False):
            lines[src] = tgt.replace(symbol, "")
    for form in scores_of(lines.__getitem__).forms:
        assert form.shares == pytest.approx([1, 1])
        assert form.kept == (0.0 if form.form in PLACES else None)


def test_a_translation_of_the_pairs_as_they_are_is_brought_to_the_form() -> None:
    # Both references lack the mark in these forms, so a mark that the model adds costs it in the form only.
    pairs = [("Go.", "Geh."), ("A title", "Ein Titel")]
    lines = {src: tgt for variant in variants(pairs, ("en", "de")) for src, tgt in variant.pairs}
    found = {form.form: form for form in scores_of(lambda line: lines[line].rstrip(".") + ".", pairs).forms}
    assert found["no final mark"].plain[1].value == pytest.approx(100)
    assert found["no final mark"].scores[1].value < 100
    assert found["title case"].plain[1].value == found["title case"].scores[1].value < 100


def test_capitals_of_the_translation_are_no_error_in_title_case() -> None:
    lines = {src: tgt for variant in variants(PAIRS, ("en", "de")) for src, tgt in variant.pairs}
    found = scores_of(lambda line: lines[line].title())
    shares = {form.form: form.shares[0] for form in found.forms}
    scores = {form.form: form.scores[0].value for form in found.forms}
    assert scores["title case"] == pytest.approx(100)
    assert scores["lower case"] < 50
    assert shares["lower case"] == pytest.approx(1)


def test_each_form_takes_the_first_pairs_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.evaluation.robustness.MAX_PAIRS", 3)
    pairs = [("no mark", "ohne Zeichen"), *PAIRS]
    found = {variant.form: variant for variant in variants(pairs, ("en", "de"))}
    assert found[AS_IT_IS].rows == [(0,), (1,), (2,)]
    assert found["no final mark"].rows == [(1,), (2,), (3,)]
    assert found["two sentences"].rows == [(0, 1)]
    assert found["two sentences"].pairs == [(f"no mark {PAIRS[0][0]}", f"ohne Zeichen {PAIRS[0][1]}")]
    assert "four sentences" not in found
    again = {variant.form: variant for variant in variants(pairs, ("en", "de"))}
    assert [variant.pairs for variant in found.values()] == [variant.pairs for variant in again.values()]


def test_forms_that_a_language_does_not_have_are_omitted() -> None:
    pairs = [("你好。", "Hello."), ("他在这里。", "He is here.")]
    found = [variant.form for variant in variants(pairs, ("zh", "en"))]
    assert "no final mark" in found
    assert "two sentences" in found
    assert not {"capitals", "title case", "lower case", "chat", "typing errors"} & set(found)


def test_the_table_and_the_json_have_the_same_figures() -> None:
    known = dict(PAIRS)
    found = scores_of(lambda line: known.get(line, "Die Sonne scheint."))
    heading, *rows = found.to_text().splitlines()
    assert heading.split() == ["form", "lines", "BLEU", "plain", "share", "chrF2", "plain", "share", "kept"]
    objects = json.loads(found.to_json())
    assert [each["name"] for each in objects] == ["BLEU", "chrF2"] * len(found.forms)
    assert {each["signature"].split("|")[1] for each in objects if each["form"] == "title case"} == {"case:lc"}
    for row, each in zip(rows, objects[::2], strict=False):
        assert row.startswith(each["form"])
        figures = row.removeprefix(each["form"]).split()
        assert figures[:2] == [str(each["lines"]), f"{each['score']:.1f}"]
        if each["form"] != AS_IT_IS:
            assert figures[2:4] == [f"{each['plain']:.1f}", f"{each['share']:.0%}"]


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    """A copy of a run, with a report that names its folder."""
    folder = Path(shutil.copytree(toy_run, tmp_path / "run"))
    assert write_report(folder, "CPU")
    return folder


def test_the_scores_are_added_to_the_report_and_to_the_card(
    run: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    page, card = (run / "report.html").read_text(), (run / "README.md").read_text()
    assert "Not measured for this model." in page
    assert robustness.HEADING not in card
    objects = json.loads(call(capsys, "eval", "--robust", "--json", "--model", run))
    assert "6 test pairs are too few" in caplog.text
    recorded = robustness.recorded(run)
    assert [score.model_dump() for score in recorded] == [
        {"kept": None} | {key: each[key] for key in each if key in robustness.FormScore.model_fields}
        for each in objects
        if "name" in each
    ]
    new_page, new_card = (run / "report.html").read_text(), (run / "README.md").read_text()
    assert "Not measured for this model." not in new_page
    assert new_page.count(robustness.HEADING) == 1
    assert new_card.count(robustness.HEADING) == 1
    # The rest is as training wrote it, and a second measurement replaces the first.
    assert new_page.replace(robustness.section(run, recorded), robustness.section(run, [])) == page
    assert new_card.replace(robustness.card_section(recorded), "") == card
    call(capsys, "eval", "--robust", "--model", run)
    assert (run / "report.html").read_text() == new_page
    assert (run / "README.md").read_text() == new_card
    # A whole new report of the same model has the same sections.
    record = read_run(run, "CPU")
    assert robustness.section(run, recorded) in to_html(record)
    assert robustness.card_section(recorded) in to_card(record)


def test_scores_of_another_model_are_not_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "eval", "--robust", "--model", run)
    assert robustness.recorded(run)
    model, info, _ = model_file.load_model(run)
    (run / ROBUSTNESS).rename(run / "kept.json")
    assert robustness.recorded(run) == []
    (run / ROBUSTNESS).write_text("{}")
    assert robustness.recorded(run) == []
    (run / "kept.json").replace(run / ROBUSTNESS)
    next(model.parameters()).data.add_(1.0)
    (run / "model.safetensors").write_bytes(model_file.model_bytes(model_file.parameters(model), info))
    assert robustness.recorded(run) == []


def test_scores_with_another_search_are_not_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "eval", "--robust", "--model", run, "-b", 1)
    call(capsys, "eval", "--robust", "--model", run, "--split", "valid")
    call(capsys, "eval", "--robust", "--model", run, "--chrf")
    call(capsys, "eval", "--robust", "--model", run, "--as-translate")
    assert not (run / ROBUSTNESS).exists()


def test_a_report_without_a_place_for_the_scores_gets_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (run / "report.html").read_text()
    (run / "report.html").write_text(page.replace(robustness.section(run, []), ""))
    (run / "README.md").unlink()
    call(capsys, "eval", "--robust", "--model", run)
    assert (run / "report.html").read_text() == page.replace(
        robustness.section(run, []), robustness.section(run, robustness.recorded(run))
    )
    assert not (run / "README.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ter",), "--ter: not with --robust"),
        (("--confidence",), "--confidence: not with --robust"),
        (("--by-length",), "--by-length: not with --robust"),
        (("--compare", "other"), "--compare: not with --robust"),
        (("--hyp-file", "a", "--ref-file", "b"), "--hyp-file: not with --robust"),
        (("--terms", "a.tsv"), "--terms: not with --robust"),
        (("--src-file", "a", "--ref-file", "b", "--ref-file", "c"), "--robust: give one --ref-file"),
    ],
)
def test_options_that_say_nothing_about_the_forms_are_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=message):
        call(capsys, "eval", "--robust", *arguments)


def test_translating_as_translate_does_splits_the_lines(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    original = ModelTranslator._begin_window

    def noted(self: ModelTranslator, first: int, lines: list[str], *arguments: object, **options: object) -> object:
        asked.extend(lines)
        return original(self, first, lines, *arguments, **options)

    monkeypatch.setattr(ModelTranslator, "_begin_window", noted)
    monkeypatch.chdir(toy_run.parent)
    Path("src").write_text("Red sun here.\nBlue moon there.\n")
    Path("ref").write_text("Rot.\nBlau.\n")
    files = ("--src-file", "src", "--ref-file", "ref")
    joined = "Red sun here. Blue moon there."
    call(capsys, "eval", "--robust", "--model", toy_run, *files)
    assert joined in asked
    asked.clear()
    call(capsys, "eval", "--robust", "--model", toy_run, *files, "--as-translate")
    assert joined not in asked
    assert "Red sun here." in asked
