import json
import logging
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from mtcli.config.build import build
from mtcli.config.schema import TrainConfig
from mtcli.config.scores import selection_metric_of_run
from mtcli.corpus.cache.training_sources import TrainingSource
from mtcli.storage.events import best_of, read_events
from mtcli.storage.state import State
from mtcli.text.languages import Direction
from mtcli.training import validation
from mtcli.training.log import (
    log_next,
    log_samples,
    log_scores,
    log_selection,
    log_unused_cores,
    warn_of_few_pairs,
)

Train = Callable[..., Path]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "mtcli")
    return caplog


def corpus(tgt: str, pairs: int) -> TrainingSource:
    return TrainingSource("x.tsv", Direction("en", tgt), pairs, 1.0, 1.0, 0, synthetic=False)


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


@pytest.mark.parametrize(
    ("micro_batches", "batch_tokens", "cores", "expected"),
    [
        (2, 4096, 2, ""),
        (2, 4096, 8, "a step uses 2 of 8 cores; --set train.micro_batches=8 uses 8 of them"),
        (2, 1024, 16, "a step uses 2 of 16 cores; --set train.micro_batches=4 uses 4 of them"),
        (2, 512, 16, "a step uses 2 of 16 cores; a larger train.batch_tokens than 512 can use more of them"),
    ],
)
def test_cores_that_a_step_does_not_use_are_reported(
    micro_batches: int, batch_tokens: int, cores: int, expected: str, logged: pytest.LogCaptureFixture
) -> None:
    log_unused_cores(TrainConfig(micro_batches=micro_batches, batch_tokens=batch_tokens), cores)
    assert expected in logged.text
    assert bool(logged.text) is bool(expected)


def test_missing_validation_pairs_are_reported_once(
    train_toy: Train, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("red tree.\tder eert.\n" * 3)
    train_toy(tmp_path / "run", "train.max_steps=20", "train.valid_every=2", "tokenizer.vocab_size=270", spec=few)
    messages = [line for line in logged.messages if "no validation pairs" in line]
    assert messages == ["no validation pairs: the last checkpoint becomes the model"]


@pytest.mark.parametrize(
    ("source", "pairs", "level", "beginning"),
    [
        ("a.tsv", 60, "WARNING", "60 training pairs: far too few for a usable translator"),
        ("a.tsv", 5000, "INFO", "5,000 training pairs: few for everyday sentences"),
        ("a.tsv", 30_000, None, ""),
        (None, 60, None, ""),
    ],
)
def test_what_helps_with_few_training_pairs(
    caplog: pytest.LogCaptureFixture, source: str | None, pairs: int, level: str | None, beginning: str
) -> None:
    given = {"data.train": [source], "data.src": "en", "data.tgt": "es"} if source else {}
    with caplog.at_level("INFO"):
        warn_of_few_pairs(build(None, given, []), [corpus("es", pairs)])
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
    for message in caplog.messages:
        assert message.startswith(beginning)
        assert "--init" in message
        assert "docs/small-languages.md" in message


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
    assert selection_metric_of_run([("de", 1)]) == selection_metric_of_run([("zh", 29)]) == "loss"
    assert [selection_metric_of_run([("de", valid)]) for valid in (0, 30)] == ["combined", "combined"]
    assert selection_metric_of_run([("zh", 30)]) == "chrf"
    one, other = Direction("en", "de"), Direction("en", "fr")
    log_selection({one: 1}, State(metric="loss"))
    (line,) = logged.messages
    assert line == (
        "1 validation pair is too few to choose the best model by BLEU or chrF: the validation loss chooses it; "
        "name 30 or more pairs with --valid"
    )
    log_selection({one: 30}, State())
    assert logged.messages == [line]
    log_selection({one: 500, other: 29}, State(metric="loss"))
    assert logged.messages[1].startswith("29 validation pairs of en → fr are too few to choose the best model")
    log_selection({one: 500, other: 0}, State())
    assert len(logged.messages) == 2
    log_selection({one: 0, other: 0}, State())
    assert logged.messages[2] == "no validation pairs: the last checkpoint becomes the model"


def test_few_pairs_are_those_of_the_smallest_direction(logged: pytest.LogCaptureFixture) -> None:
    config = build(None, {"data.train": ["x.tsv"]})
    warn_of_few_pairs(config, [corpus("gn", 60_000), corpus("cni", 2000), corpus("cni", 2000)])
    warn_of_few_pairs(config, [corpus("gn", 29_999)])
    warn_of_few_pairs(config, [corpus("gn", 60_000), corpus("cni", 30_000)])
    few, single = logged.messages
    assert few.startswith("en → cni: 4,000 training pairs: far too few for a usable translator")
    assert single.startswith("29,999 training pairs: few for everyday sentences")


def test_three_figures_together_select_a_model() -> None:
    first = {"bleu": 20.0, "chrf": 40.0, "loss": 2.0, "pairs": 500, "of": 500}
    more_bleu = first | {"bleu": 25.0, "chrf": 39.0, "loss": 2.3}
    less_bleu = first | {"bleu": 19.0, "chrf": 42.0, "loss": 1.9}
    state = State(metric="combined")
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
    events = [found | {"event": "valid", "metric": "combined"} for found in (first, more_bleu, less_bleu, more_bleu)]
    assert best_of(events) == events[2]


def test_the_order_of_the_validations_does_not_matter() -> None:
    """Each of these is better than the next one by two figures of three, and the last one better than the first."""
    ranks = ((3, 2, 1), (2, 1, 3), (1, 3, 2))
    validations = [
        {"bleu": 20.0 + bleu, "chrf": 40.0 + 1.1 * chrf, "loss": 2.0 - 0.07 * low_loss, "pairs": 500, "of": 500}
        for bleu, chrf, low_loss in ranks
    ]
    chosen = set()
    for order in permutations(validations):
        state = State(metric="combined")
        for each in order:
            state.record_if_best(each)
        chosen.add(state.best)
    assert len(chosen) == 1


def test_a_run_that_compared_by_majority_resumes_with_the_combined_score(tmp_path: Path) -> None:
    values = State(metric="combined", compared_by="combined", best=(20.0, 40.0, -2.0), best_pairs=500).values()
    (tmp_path / "state.json").write_text(json.dumps(values | {"metric": "majority", "compared_by": "majority"}))
    state = State.of(tmp_path)
    assert state.metric == state.selection_metric == "combined"
    assert not state.record_if_best({"bleu": 20.1, "chrf": 40.1, "loss": 2.5, "pairs": 500, "of": 500})
    line = {"event": "valid", "step": 1, "bleu": 20.0, "chrf": 40.0, "loss": 2.0, "metric": "majority"}
    line |= {"pairs": 500, "of": 500, "format": 2}
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(line)}\n")
    events, damaged = read_events(tmp_path / "metrics.jsonl")
    assert damaged == 0
    assert best_of(events) == events[0]
    assert events[0]["metric"] == "combined"


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
