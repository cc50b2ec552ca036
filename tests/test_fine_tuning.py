"""Fine-tuning: the model it starts from is validated first, and stays the run's model if nothing is better."""

import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS

from mtcli.config.build import build
from mtcli.data.prepare import prepare
from mtcli.report.run_record import read_run
from mtcli.runtime.distributed import Group
from mtcli.storage import model_file
from mtcli.storage.events import best_of, read_events
from mtcli.training.evaluator import Evaluator
from mtcli.training.trainer import Trainer

Train = Callable[..., Path]

WORSE = ("train.max_steps=20", "train.lr=1", "train.warmup_steps=1", "train.average=1")
"""Settings of a fine-tuning that spoils the model."""


def events(run: Path) -> list[dict[str, Any]]:
    found, damaged = read_events(run / "metrics.jsonl")
    assert not damaged
    return found


@pytest.fixture(scope="module")
def trained(train_toy: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned enough to become worse."""
    sets = ("train.max_steps=150", "train.lr=1e-2", "train.valid_every=150", "train.save_every=150", "train.average=1")
    return train_toy(tmp_path_factory.mktemp("runs") / "trained", *sets)


def without_clocks(run: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key != "seconds"} for event in events(run)]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return model_file.parameters(model_file.load_model(path)[0])


def assert_same_weights(path: Path, other: Path) -> None:
    others = weights(other)
    for name, tensor in weights(path).items():
        assert torch.equal(tensor, others[name]), name


def test_the_starting_model_is_validated_before_the_first_step(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=10", init=toy_run)
    validations = [event for event in events(run) if event["event"] == "valid"]
    assert [event["step"] for event in validations] == [0, 10]
    before = [event for event in events(toy_run) if event["event"] == "valid"][-1]
    assert validations[0]["bleu"] == before["bleu"]  # the same model on the same held-out pairs
    assert validations[0]["loss"] == pytest.approx(before["loss"], rel=1e-6)
    assert '<th scope="row">0</th>' in (run / "report.html").read_text()
    new = train_toy(tmp_path / "new", "train.max_steps=10")
    assert [event["step"] for event in events(new) if event["event"] == "valid"] == [10]


def test_the_curves_of_tensorboard_begin_at_step_0(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train_toy(tmp_path / "run", "train.max_steps=10", "train.tensorboard=true", init=toy_run)
    curves = accumulators.EventAccumulator(str(run / "tensorboard"))
    curves.Reload()
    assert [point.step for point in curves.Scalars("valid/loss")] == [0, 10]


def test_a_model_that_becomes_worse_is_not_published(
    train_toy: Train, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mtcli")
    run = train_toy(tmp_path / "run", *WORSE, "train.keep=1", init=trained)
    assert_same_weights(run, trained)
    end = events(run)[-1]
    assert (end["event"], end["step"], end["best_step"]) == ("end", 20, 0)
    assert next(event for event in events(run) if event["event"] == "test")["steps"] == [0]
    assert "the weights it started from stay the run's model" in caplog.text
    remark = "Fine-tuning made the model no better, so this is the model that it started from (step 0)."
    assert remark in (run / "report.html").read_text()
    assert remark in (run / "README.md").read_text()


def test_a_model_that_becomes_better_is_published(
    train_toy: Train, toy_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mtcli")
    run = train_toy(tmp_path / "run", "train.max_steps=40", "train.average=1", "train.lr=1e-2", init=toy_run)
    assert events(run)[-1]["best_step"] > 0
    assert re.search(
        r"fine-tuning: validation loss on the validation pairs: \d\.\d{3} before, \d\.\d{3} after", caplog.text
    )
    assert "Fine-tuning made the model no better" not in (run / "README.md").read_text()


@pytest.mark.parametrize(
    ("kind", "moment"), [(Evaluator, "validate_start"), (Trainer, "step"), (Trainer, "_write_report")]
)
def test_a_run_that_is_killed_before_its_first_step_ends_like_an_undisturbed_one(
    kind: type, moment: str, train_toy: Train, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    straight = train_toy(tmp_path / "straight", *WORSE, init=trained)
    with monkeypatch.context() as patch:
        patch.setattr(kind, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(tmp_path / "run", *WORSE, init=trained)
    run = train_toy(tmp_path / "run", *WORSE)
    assert without_clocks(run) == without_clocks(straight)
    for name in ("model.safetensors", "checkpoints/step-00000020/model.safetensors"):
        assert (run / name).read_bytes() == (straight / name).read_bytes()


@pytest.fixture
def timed_trainer(toy_tsv: Path, trained: Path, tmp_path: Path) -> Callable[[Path], Trainer]:
    """Return a function that begins a fine-tuning with a time budget, and validates the model it starts from."""

    def begin(init: Path) -> Trainer:
        values = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx"}
        config = build(None, values, [*TOY_SETTINGS, "train.time=1h", "train.average=1"])
        run = tmp_path / "run"
        run.mkdir()
        shutil.copy(trained / "config.toml", run)
        model, _, tokenizer = model_file.load_model(init)
        data = prepare(config, run, init=(tokenizer, "checksum"))
        trainer = Trainer(config, run, torch.device("cpu"), data, time.monotonic(), Group())
        trainer.start_from(model, init)
        trainer.evaluator.validate_start()
        return trainer

    return begin


def finish_with_a_small_sample(trainer: Trainer) -> None:
    """Validate the current weights as step 5, on so few pairs that they count as the best; compare them, and end."""
    state = trainer.session.state
    state.step = 5
    state.valid_pairs = 3
    trainer.evaluator.validate()
    assert state.best_step == 5
    trainer.checkpoints.save()
    trainer.evaluator.compare_with_start()
    state.finished = "budget used"
    trainer.checkpoints.save()


def test_with_a_time_budget_both_models_are_compared_on_the_same_pairs(
    timed_trainer: Callable[[Path], Trainer], trained: Path
) -> None:
    trainer = timed_trainer(trained)
    for parameter in trainer.learner.model.parameters():
        parameter.data += torch.randn_like(parameter)
    finish_with_a_small_sample(trainer)
    run = trainer.session.run
    assert trainer.session.state.start_is_best
    assert_same_weights(run, trained)
    best = best_of(events(run))
    assert best is not None
    assert (best["event"], best["step"], best["pairs"]) == ("start", 0, 3)
    state = json.loads((run / "checkpoints/step-00000005/state.json").read_text())
    assert (state["best_step"], state["start_pairs"]) == (0, 3)


def test_with_a_time_budget_a_better_model_stays(
    timed_trainer: Callable[[Path], Trainer], train_toy: Train, trained: Path, tmp_path: Path
) -> None:
    poor = train_toy(tmp_path / "poor", "train.max_steps=1", "train.lr=1", "train.warmup_steps=1")
    trainer = timed_trainer(poor)
    model_file.set_parameters(trainer.learner.model, weights(trained), trained)
    finish_with_a_small_sample(trainer)
    assert trainer.session.state.best_steps == [5]
    assert_same_weights(trainer.session.run, trained)
    assert read_run(trainer.session.run, "cpu").remark == ""
