"""The confidence of translations: calibrated on held-out pairs, equal in both libraries, absent where none is known."""

import json
import logging
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import toy_pairs, write_tsv
from helpers.command import call
from helpers.documents import translate_bytes
from helpers.servers import started

from mtcli.documents.formats.format import ReadOptions
from mtcli.errors import MtcliError
from mtcli.evaluation import confidence as fitting
from mtcli.evaluation.confidence import ScoredLine, TooFewError, fit, noisy_pairs, reliability, update_confidence
from mtcli.report.info import summary
from mtcli.report.run_report import write_report
from mtcli.serve.app import ServerSettings, load_app
from mtcli.storage import CONFIDENCE
from mtcli.translate.confidence import Confidence, features, read_confidence, store_confidence
from mtcli.translate.loading import load
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

HELD_OUT = toy_pairs(120, seed=9)
LINES = ["red blue tree.", "Ana 42 moon house?", "stone."]


def invented(number: int, seed: int, *, noisy: bool = False) -> list[ScoredLine]:
    """Return translations whose chrF falls with the negative log-likelihood per token, with an error."""
    random = Random(seed)
    examples = []
    for _ in range(number):
        src = random.randint(3, 30)
        tgt = max(1, round(src * random.uniform(0.7, 1.3)))
        nll = random.uniform(3, 5) if noisy else random.gammavariate(4, 0.15)
        chrf = 5 * random.random() if noisy else 90 * math.exp(-nll) + random.gauss(0, 8)
        examples.append(ScoredLine(features(-nll * (tgt + 1), tgt, src), min(100.0, max(0.0, chrf)), noisy))
    return examples


EXAMPLES = [*invented(1000, seed=1), *invented(100, seed=2, noisy=True)]


@pytest.fixture(scope="module")
def fitted() -> Confidence:
    return fit(EXAMPLES, beam_size=4)


def confidence_of(fitted: Confidence, example: ScoredLine) -> float:
    return fitted.chrf_at(fitted.weighted_sum(example.values))


def test_each_tenth_of_unseen_translations_has_the_chrf_that_its_confidence_says(fitted: Confidence) -> None:
    unseen = [(confidence_of(fitted, example), example.chrf) for example in invented(5000, seed=3)]
    tenths = reliability(unseen)
    assert len(tenths) == len(fitted.tenths) == 10
    assert max(abs(tenth.confidence - tenth.chrf) for tenth in tenths) < 3
    assert max(abs(tenth.confidence - tenth.chrf) for tenth in fitted.tenths) < 6  # fewer pairs, each unseen too
    assert tenths[-1].chrf - tenths[0].chrf > 30


def test_noisy_lines_have_low_confidence_and_do_not_change_that_of_sentences(fitted: Confidence) -> None:
    usual = invented(300, seed=4)
    without = fit([example for example in EXAMPLES if not example.is_noisy], beam_size=4)
    changes = [abs(confidence_of(fitted, example) - confidence_of(without, example)) for example in usual]
    assert sum(changes) / len(changes) < 1.5
    noise = [confidence_of(fitted, example) for example in invented(300, seed=5, noisy=True)]
    assert max(noise) < 15 < sum(confidence_of(without, example) for example in usual) / len(usual)


def test_noise_among_the_sentences_does_not_change_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "NOISE_WEIGHT", 0.0)
    usual = [example for example in EXAMPLES if not example.is_noisy]
    noise = [replace(example, chrf=0.0, is_noisy=True) for example in usual[::10]]
    found = fit([*usual, *noise], beam_size=4).points
    assert np.array(found) == pytest.approx(np.array(fit(usual, beam_size=4).points))


def test_the_map_never_falls_and_stays_within_its_points(fitted: Confidence) -> None:
    sums = [point[0] for point in fitted.points]
    width = sums[-1] - sums[0]
    places = [sums[0] - width + 3 * width * number / 1000 for number in range(1001)]
    values = [fitted.chrf_at(place) for place in places]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (fitted.points[0][1], fitted.points[-1][1])
    assert all(fitted.chrf_at(place) == pytest.approx(value) for place, value in fitted.points)


def test_less_probable_translations_have_less_confidence(fitted: Confidence) -> None:
    values = [fitted.of(-nll, 12, 12) for nll in range(0, 60, 2)]
    assert None not in values
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]
    assert fitted.of(math.nan, 12, 12) is None


def test_the_pairs_of_a_fit_may_all_be_equal() -> None:
    same = [ScoredLine(features(-3.0, 5, 5), 40.0)] * 200
    assert fit(same, beam_size=1).of(-3.0, 5, 5) == pytest.approx(40)
    assert fit(same, beam_size=1).of(-90.0, 2, 5) == pytest.approx(40)


def test_noise_keeps_tags_and_scripts_without_capitals() -> None:
    tagged = noisy_pairs([(">>fra<< Two dogs", "Deux chiens")], ("en", "fr"), ["fra"])
    assert [source[:7] for kind in tagged.values() for source, _ in kind] == [">>fra<<"] * 3
    assert tagged["capitals"] == [(">>fra<< TWO DOGS", "DEUX CHIENS")]
    assert sorted(tagged["characters"][0][0]) == sorted(">>fra<< Two dogs")
    assert noisy_pairs([("两只狗", "Two dogs")], ("zh", "en"))["capitals"] == []
    assert noisy_pairs(HELD_OUT, ("en", "xx")) == noisy_pairs(HELD_OUT, ("en", "xx"))


@pytest.fixture(scope="module")
def calibrated(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with confidence. Do not change it."""
    run = shutil.copytree(toy_run, tmp_path_factory.mktemp("runs") / "run")
    update_confidence(run, HELD_OUT, "cpu")
    return run


@pytest.fixture
def run(calibrated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(calibrated, tmp_path / "run")


def translated(run: Path, engine: str, lines: list[str], **options: Any) -> list[Candidate]:
    translator, defaults, _ = load([run], "cpu", engine)
    found = translator.translate(lines, replace(defaults, **options), Reading(quiet=True, warn=False))
    return [translation.candidates[0] for translation in found]


def records(capsys: pytest.CaptureFixture[str], run: Path, *arguments: str) -> list[dict[str, Any]]:
    printed = call(capsys, "translate", "--model", run, "--format", "json", "--device", "cpu", *arguments)
    return [json.loads(line) for line in printed.splitlines()]


def test_both_libraries_give_the_same_confidence(calibrated: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from mtcli.exchange.export import export

    export(calibrated, "ctranslate2", tmp_path / "exported")
    with_torch = [candidate.confidence for candidate in translated(calibrated, "torch", LINES)]
    with_engine = [candidate.confidence for candidate in translated(tmp_path / "exported", "ctranslate2", LINES)]
    assert with_torch == pytest.approx(with_engine, abs=0.05)
    assert all(value is not None and 0 <= value <= 100 for value in with_torch)


def test_json_has_the_confidence_of_a_line_which_is_the_mean_of_its_sentences(
    calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, together, number, blank = records(
        capsys, calibrated, "Red blue tree.", "Ana sees the moon in the river.",
        "Red blue tree. Ana sees the moon in the river.", "42", "",
    )  # fmt: skip
    lengths = [len(first["source"]), len(second["source"])]
    expected = (lengths[0] * first["confidence"] + lengths[1] * second["confidence"]) / sum(lengths)
    assert together["confidence"] == pytest.approx(expected, abs=0.11)  # each is rounded
    assert first["confidence"] != second["confidence"]
    assert "confidence" not in number | blank  # the model was not asked


def test_no_confidence_where_none_is_calibrated(
    calibrated: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "confidence" not in records(capsys, toy_run, *LINES)[0]
    assert "confidence" not in records(capsys, calibrated, "--prefix", "der", *LINES)[0]
    assert "confidence" not in records(capsys, calibrated, "--sample", *LINES)[0]
    assert "confidence" not in records(capsys, calibrated, "--max-length", "3", *LINES)[0]
    assert "confidence" not in records(capsys, calibrated, "--no-repeat-ngram", "2", *LINES)[0]
    assert translated(calibrated, "torch", LINES, scores=False)[0].confidence is not None
    translator, _, _ = load([calibrated], "cpu", "torch")
    assert ModelTranslator(translator.backend).confidence is None


def test_the_api_has_the_confidence_of_each_candidate(
    calibrated: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"q": ["Red blue tree.", "42"], "source": "en", "target": "xx", "alternatives": 2}
    found = {}
    for name, model in (("calibrated", calibrated), ("other", toy_run)):
        app, _ = load_app([model], ServerSettings(), "cpu")
        with started(app) as site:
            status, found[name], *_ = site.json("/api/translate", **asked)
            assert status == 200
    first, number = (line["candidates"] for line in found["calibrated"]["lines"])
    (expected,) = records(capsys, calibrated, "--n-best", "3", "Red blue tree.")
    assert first[0]["confidence"] == pytest.approx(expected["confidence"], abs=0.1)
    assert all("confidence" in candidate for candidate in first)
    assert "confidence" not in number[0] | found["other"]["lines"][0]["candidates"][0]


@pytest.mark.parametrize(("name", "is_rated"), [("a.xlf", True), ("a.html", False)])
def test_xliff_has_the_confidence_and_other_documents_do_not_pay_for_it(
    calibrated: Path, name: str, is_rated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator, options, _ = load([calibrated], "cpu", "torch")
    asked = []
    translate = translator.translate

    def noted(lines: Any, options: Options, *how: Any) -> Any:
        asked.append(options.scores)
        return translate(lines, options, *how)

    monkeypatch.setattr(translator, "translate", noted)
    unit = "<trans-unit><source>Red blue tree.</source></trans-unit>"
    content = (
        f'<xliff version="1.2"><file source-language="en">{unit}</file></xliff>' if is_rated else "<p>Red blue.</p>"
    )
    written = translate_bytes(
        content.encode(), ReadOptions(name, "en", "xx"), translator, replace(options, scores=False)
    )
    assert asked == [is_rated]
    found = re.search(rb'<alt-trans match-quality="(\d+)%"', written)
    assert bool(found) == is_rated
    if found:
        (expected,) = translated(calibrated, "torch", ["Red blue tree."])
        assert expected.confidence is not None
        assert int(found[1]) == round(expected.confidence)


def test_a_sentence_that_stays_untranslated_has_no_confidence_left(
    calibrated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mtcli.documents.markup.sentences._without_controls", lambda text, source: "")
    assert records(capsys, calibrated, *LINES)[0]["confidence"] == 0


def test_the_confidence_of_other_weights_does_not_count(run: Path, train_toy: Callable[..., Path]) -> None:
    stored = read_confidence(run)
    assert stored is not None
    (run / "README.md").unlink()
    assert read_confidence(run) == stored
    model = run / "model.safetensors"
    checkpoints = sorted((run / "checkpoints").iterdir())
    assert any(read_confidence(folder) == stored for folder in checkpoints) == any(
        (folder / "model.safetensors").read_bytes() == model.read_bytes() for folder in checkpoints
    )
    model.write_bytes((checkpoints[0] / "model.safetensors").read_bytes())
    assert read_confidence(run) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:100],
        lambda content: content.replace('"weights": [', '"weights": [1e999,'),
        lambda content: content.replace('"points": [', '"points": [[1e9, 3.0],'),
        lambda content: "[]",
    ],
)
def test_damaged_numbers_are_reported_and_not_used(
    run: Path, caplog: pytest.LogCaptureFixture, change: Callable[[str], str]
) -> None:
    path = run / CONFIDENCE
    path.write_text(change(path.read_text()))
    assert read_confidence(run) is None
    assert "no confidence, because its numbers cannot be read" in caplog.text
    assert translated(run, "torch", LINES)[0].confidence is None


def test_training_calibrates_on_its_validation_pairs(
    train_toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = write_tsv(tmp_path / "valid.tsv", HELD_OUT)
    settings = (f'data.valid="{held_out}"', "train.max_steps=4", "train.engine=false")
    with monkeypatch.context() as context:
        context.setattr("mtcli.training.after_training.MAX_CALIBRATION_SECONDS", 0.0)
        run = train_toy(tmp_path / "run", *settings)
        assert read_confidence(run) is None
    train_toy(tmp_path / "run", *settings)  # nothing is trained, and what was missing is added
    found = read_confidence(run)
    assert found is not None
    assert found.pairs == len(HELD_OUT)
    before = (run / CONFIDENCE).stat().st_mtime_ns
    train_toy(tmp_path / "run", *settings)
    assert (run / CONFIDENCE).stat().st_mtime_ns == before


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9])
def test_time_and_pairs_that_are_too_few(run: Path, seconds: float) -> None:
    (run / CONFIDENCE).unlink()
    assert update_confidence(run, HELD_OUT[:99], "cpu") is None
    with pytest.raises(TooFewError):
        update_confidence(run, HELD_OUT, "cpu", lambda: seconds)
    assert not (run / CONFIDENCE).exists()


def test_the_number_of_lines_that_a_calibration_translates() -> None:
    assert fitting.num_calibration_lines(99) == 0
    assert fitting.num_calibration_lines(10**6) == fitting.MAX_PAIRS + 3 * fitting.NOISY_LINES


def test_a_failure_leaves_the_run_without_confidence(
    train_toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MtcliError("a reason")

    monkeypatch.setattr("mtcli.training.after_training.update_confidence", fail)
    held_out = write_tsv(tmp_path / "valid.tsv", HELD_OUT)
    with caplog.at_level(logging.INFO):
        train_toy(tmp_path / "run", f'data.valid="{held_out}"', "train.max_steps=2", "train.engine=false")
    assert "the confidence of translations was not calibrated: a reason" in caplog.text


def test_the_report_the_model_card_and_info_show_it(run: Path, toy_run: Path) -> None:
    stored = read_confidence(run)
    assert stored is not None
    assert write_report(run, "cpu")
    page = (run / "report.html").read_text()
    assert page.count("<title>confidence ") == len(stored.tenths) == 10
    assert f"calibrated on {stored.pairs} validation pairs" in page
    card = (run / "README.md").read_text()
    section = card.partition("## Confidence\n")[2].partition("\n## ")[0]
    assert section.count("\n| ") == 1 + len(stored.tenths)
    assert dict(summary(run))["confidence"] == f"calibrated on {stored.pairs} pairs, beam {stored.beam_size}"
    assert "Confidence</h2>" not in (toy_run / "report.html").read_text()
    assert "## Confidence" not in (toy_run / "README.md").read_text()
    assert "confidence" not in dict(summary(toy_run))


def test_what_is_stored_is_what_was_fitted(run: Path, fitted: Confidence) -> None:
    store_confidence(run, fitted)
    assert read_confidence(run) == fitted
