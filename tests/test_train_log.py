import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcli.config.build import build
from mtcli.config.scores import selection_metric_of_run
from mtcli.storage.events import best_of
from mtcli.storage.state import State
from mtcli.training import validation
from mtcli.training.log import log_next, log_samples, log_scores, log_selection, warn_of_few_pairs

Train = Callable[..., Path]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "mtcli")
    return caplog


def test_a_sample_is_cut_to_one_line(logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    log_samples([{"src": "a\x1b[2Jb\rc", "ref": "", "hyp": "no " * 500}])
    (line,) = logged.messages
    assert len(line) <= 80
    assert line.startswith(r"    a\x1b[2Jb\rc → no no no")
    assert line.endswith("…")


def scores(bleu: float) -> validation.TestScores:
    return validation.TestScores(100, 100, 4, [{"name": "BLEU", "score": bleu, "confidence": None, "signature": ""}])


def test_unusual_scores_are_explained(logged: pytest.LogCaptureFixture) -> None:
    for bleu, demo, warnings in [(0.6, False, 1), (38.0, False, 0), (98.0, False, 1), (98.0, True, 0)]:
        logged.clear()
        log_scores(scores(bleu), demo=demo)
        assert logged.messages[0] == f"100 test pairs, beam 4: BLEU {bleu:.1f}"
        assert [record.levelname for record in logged.records[1:]] == ["WARNING" if warnings else "INFO"]


@pytest.mark.parametrize("demo", [False, True])
def test_few_test_pairs_are_explained(logged: pytest.LogCaptureFixture, demo: bool) -> None:
    perfect = {"name": "BLEU", "score": 100.0, "confidence": (100.0, 0.0), "signature": ""}
    log_scores(validation.TestScores(1, 1, 4, [perfect]), demo=demo)
    assert logged.messages[1].startswith("1 test pair is too few")
    assert len(logged.messages) == 2


def test_the_end_names_the_report_and_the_next_commands(
    train_toy: Train, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    run = train_toy(tmp_path / "my run", "train.max_steps=3")
    expected = [
        f"report:    {run / 'report.html'}",
        f"translate: mtcli translate --model '{run}' \"…\"",
        f"score:     mtcli eval --model '{run}'",
    ]
    assert logged.messages[-3:] == expected
    logged.clear()
    train_toy(run, "train.max_steps=3")  # already finished
    assert logged.messages[-3:] == expected
    assert "finished at step 3 (budget used); a larger --max-steps or --time continues training" in logged.text
    assert "resuming" not in logged.text
    train_toy(run, "train.max_steps=4")
    assert "resuming at step 3" in logged.messages
    log_next(run, test=False)
    assert logged.messages[-1].startswith("translate: ")


def test_missing_validation_pairs_are_reported_once(
    train_toy: Train, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("red tree.\tder eert.\n" * 3)
    train_toy(tmp_path / "run", "train.max_steps=20", "train.valid_every=2", "tokenizer.vocab_size=270", spec=few)
    messages = [line for line in logged.messages if "no validation pairs" in line]
    assert messages == ["no validation pairs: the last checkpoint becomes the model"]


@pytest.mark.parametrize(("source", "pairs", "warned"), [("a.tsv", 60, 1), ("a.tsv", 5000, 0), (None, 60, 0)])
def test_far_too_few_training_pairs(
    logged: pytest.LogCaptureFixture, source: str | None, pairs: int, warned: int
) -> None:
    given = {"data.train": [source], "data.src": "en", "data.tgt": "es"} if source else {}
    warn_of_few_pairs(build(None, given, []), pairs)
    assert len(logged.messages) == warned
    if warned:
        assert logged.messages[0].startswith("60 training pairs: far too few for a usable translator")


def test_a_training_that_ends_within_its_warmup_is_reported_before_its_first_step(
    train_toy: Train, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    train_toy(tmp_path / "long", "train.max_steps=2", "train.warmup_steps=2")
    assert not [line for line in logged.messages if "warm-up" in line]
    train_toy(tmp_path / "short", "train.max_steps=1", "train.warmup_steps=2")
    before, after = (line for line in logged.messages if "warm-up" in line)
    assert before.startswith("train.max_steps = 1: training will end within its warm-up of 2 steps; give it more")
    assert after.startswith("ended within its warm-up, after 1 of 2 steps")


def test_few_validation_pairs_select_by_loss(logged: pytest.LogCaptureFixture) -> None:
    assert selection_metric_of_run("de", 1) == selection_metric_of_run("zh", 29) == "loss"
    assert [selection_metric_of_run("de", valid) for valid in (0, 30)] == ["majority", "majority"]
    assert selection_metric_of_run("zh", 30) == "chrf"
    log_selection(1, State(metric="loss"))
    (line,) = logged.messages
    assert line == (
        "1 validation pair is too few to choose the best model by BLEU or chrF: the validation loss chooses it; "
        "name 30 or more pairs with --valid"
    )
    log_selection(30, State())
    assert logged.messages == [line]


def test_the_majority_of_three_figures_selects_a_model() -> None:
    first = {"bleu": 20.0, "chrf": 40.0, "loss": 2.0, "pairs": 500, "of": 500}
    more_bleu = first | {"bleu": 25.0, "chrf": 39.0, "loss": 2.1}
    less_bleu = first | {"bleu": 19.0, "chrf": 41.0, "loss": 1.9}
    state = State(metric="majority")
    decisions = [state.record_if_best(found) for found in (first, first, more_bleu, less_bleu)]
    assert decisions == [True, False, False, True]
    state.set_values(json.loads(json.dumps(state.values())))
    same_scores = less_bleu | {"loss": 1.8}
    assert not state.record_if_best(more_bleu)
    assert state.record_if_best(same_scores)
    state.record_start(same_scores)
    assert state.start_is_better()  # of two models that are as good, the starting model stays
    state.record_start(more_bleu)
    assert not state.start_is_better()
    events = [found | {"event": "valid", "metric": "majority"} for found in (first, more_bleu, less_bleu, more_bleu)]
    assert best_of(events) == events[2]


def test_a_model_selected_by_loss_has_the_lowest() -> None:
    state = State(metric="loss")
    poor = {"bleu": 80.0, "chrf": 90.0, "loss": 2.03, "pairs": 1, "of": 1}
    good = poor | {"bleu": 5.0, "chrf": 20.0, "loss": 0.40}
    assert state.record_if_best(poor)
    assert state.record_if_best(good)
    assert not state.record_if_best(good)
    assert not state.record_if_best(poor)
    events = [found | {"event": "valid", "metric": "loss"} for found in (poor, good, poor)]
    assert best_of(events) == events[1]
