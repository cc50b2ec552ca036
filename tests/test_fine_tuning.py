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
from mtcli.config.schema import LENGTH_PENALTY, Config, unset_settings
from mtcli.corpus.batching import BatchPlan
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import UsageError
from mtcli.report.plan import Plan
from mtcli.report.run_record import read_run
from mtcli.runtime.distributed import Group
from mtcli.storage import model_file
from mtcli.storage.events import best_of, read_events
from mtcli.storage.state import State
from mtcli.training.defaults import speed
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import describe_choice
from mtcli.training.defaults.workload import Workload
from mtcli.training.dry_run import dry_run, estimate_speed
from mtcli.training.evaluator import Evaluator
from mtcli.training.request import InitialModel, TrainingRequest, resolve
from mtcli.training.run import train
from mtcli.training.time import timed_parts
from mtcli.training.time.budget import Budget
from mtcli.training.trainer import Trainer

Train = Callable[..., Path]

WORSE = ("train.max_steps=20", "train.lr=1", "train.warmup_steps=1", "train.average=1")
"""Settings of a fine-tuning that spoils the model."""

QUICK = tuple(setting for setting in TOY_SETTINGS if setting.startswith(("train.precision", "decode.max_extra")))
"""Settings that shorten any training of a toy."""


def events(run: Path) -> list[dict[str, Any]]:
    found, damaged = read_events(run / "metrics.jsonl")
    assert not damaged
    return found


@pytest.fixture(scope="module")
def trained(train_toy: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned enough to become worse."""
    sets = ("train.max_steps=150", "train.lr=1e-2", "train.valid_every=150", "train.save_every=150", "train.average=1")
    return train_toy(tmp_path_factory.mktemp("runs") / "trained", *sets)


@pytest.fixture(scope="module")
def worse(train_toy: Train, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that started from it and became worse."""
    return train_toy(tmp_path_factory.mktemp("runs") / "worse", *WORSE, init=trained)


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
    (average,) = (event for event in events(run) if event["event"] == "average")
    assert average["steps"] == [5, 10]  # of this run, without the model that it started from
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
    kind: type,
    moment: str,
    train_toy: Train,
    trained: Path,
    worse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(tmp_path / "run", *WORSE, init=trained)
    run = train_toy(tmp_path / "run", *WORSE)
    assert without_clocks(run) == without_clocks(worse)
    for name in ("model.safetensors", "checkpoints/step-00000020/model.safetensors"):
        assert (run / name).read_bytes() == (worse / name).read_bytes()


@pytest.fixture
def timed_trainer(toy_tsv: Path, trained: Path, tmp_path: Path) -> Callable[[Path], Trainer]:
    """Return a function that begins a fine-tuning with a time budget, and validates the model it starts from."""

    def begin(init: Path) -> Trainer:
        values = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx"}
        config = build(None, values, [*TOY_SETTINGS, "train.time=1h", "train.average=1", "train.keep=1"])
        run = tmp_path / "run"
        run.mkdir()
        shutil.copy(trained / "config.toml", run)
        model, info, tokenizer = model_file.load_model(init)
        data = prepare(config, run, init=Parent(tokenizer, "checksum", info.src, info.tgt))
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
    documented = {"kept", "loss", "bleu", "chrf", "tokenize", "metric", "pairs", "of", "samples", "seconds"}
    assert best.keys() == documented | {"event", "step"}
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


# ---- defaults ----

OPUS = {
    "model.d_model": 512,
    "model.d_ff": 2048,
    "model.num_heads": 8,
    "model.num_encoder_layers": 6,
    "model.num_decoder_layers": 6,
    "model.activation": "swish",
    "model.output_bias": True,
}
"""The shape of most OPUS-MT models."""


def tuned(pairs: int, *sets: str, device: str = "cpu", **options: object) -> tuple[Config, Workload]:
    """Return the configuration of a fine-tuning of a model of OPUS-MT, and its workload."""
    config = build(None, {"data.train": ["x.tsv"], **options}, sets, initial=OPUS)
    workload = Workload(pairs, 20 * pairs, device, fine_tunes=True, tgt_vocab=58_101)
    return with_defaults(config, workload), workload


def test_fine_tuning_with_the_papers_schedule_has_a_tenth_of_its_learning_rate() -> None:
    config, _ = tuned(2000, 'train.schedule="paper"')
    assert config.train.lr == 0.1
    assert config.peak_learning_rate == pytest.approx(0.1 * (512 * 4000) ** -0.5)  # 7e-5, as with other schedules


def test_fine_tuning_has_its_own_defaults() -> None:
    config, workload = tuned(2000)
    train = config.train
    assert (train.lr, train.patience, train.batch_tokens) == (7e-5, 5, 512)
    assert train.max_steps == 780  # ten epochs of 78 steps
    assert train.warmup_steps == 78
    assert "train.patience" in config.chosen
    text = describe_choice(config, workload, resumed=False)
    assert text.startswith("fine-tuning on 2,000 pairs, no budget, CPU, about 10 epochs: ")
    assert "peak learning rate 7e-05, 78 warm-up steps" in text
    assert "patience of 5 validations" in text


def test_options_of_the_user_win_over_the_defaults_of_fine_tuning() -> None:
    sets = ("train.lr=1e-3", "train.warmup_steps=7", "train.patience=3", "train.batch_tokens=4000", "model.dropout=0.3")
    config, _ = tuned(2000, *sets, **{"train.time": "1h"})
    train = config.train
    assert (train.lr, train.warmup_steps, train.patience, train.batch_tokens) == (1e-3, 7, 3, 4000)
    assert config.model.dropout == 0.3
    assert "train.patience" not in config.chosen


def test_training_options_of_a_preset_are_not_for_fine_tuning() -> None:
    config, _ = tuned(2000, preset="big")
    assert (config.train.lr, config.train.batch_tokens) == (5e-5, 512)
    assert config.model.d_model == 512


def test_the_batch_of_fine_tuning_grows_with_the_corpus() -> None:
    batches = [tuned(pairs)[0].train.batch_tokens for pairs in (100, 2000, 4000, 10_000, 100_000, 10**7)]
    assert batches == [512, 512, 1024, 2048, 4096, 4096]
    assert tuned(2000, device="cuda")[0].train.batch_tokens == 2048


def test_a_run_from_random_weights_keeps_its_patience() -> None:
    config = with_defaults(build(None, {"data.train": ["x.tsv"]}), Workload(2000, 40_000, "cpu"))
    assert config.train.patience == 10
    assert "train.patience" not in config.chosen


def test_the_pace_of_fine_tuning_follows_the_size_of_the_model() -> None:
    small = {**OPUS, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
    slow, workload = tuned(100_000)
    fast = with_defaults(build(None, {"data.train": ["x.tsv"]}, initial=small), workload)
    assert fast.preset == slow.preset
    assert (fast.train.max_steps or 0) > 1.5 * (slow.train.max_steps or 0)  # as many as the time of a run allows


def test_a_resumed_fine_tuning_keeps_its_values() -> None:
    began, workload = tuned(2000)
    again = build(None, {"data.train": ["x.tsv"]})  # without --init, which a resumed run no longer needs
    kept = with_defaults(again, workload, began)
    assert (kept.train, kept.preset, kept.model.d_model) == (began.train, began.preset, 512)


def test_a_resumed_fine_tuning_needs_neither_its_model_nor_its_shape(
    toy_tsv: Path, toy_run: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(toy_run, tmp_path / "model")
    run = tmp_path / "run"
    sets = ("train.valid_every=100", "train.engine=false", *QUICK)

    def go(steps: int, init: Path | None = None, *more: str) -> None:
        options = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx", "train.max_steps": steps}
        request = resolve(None, options, (*sets, *more), out=run, init=init)
        train(request.config, request.run, torch.device("cpu"), init=request.init)

    go(1, model)
    shutil.rmtree(model)
    go(2)
    assert State.of(run / "checkpoints" / "step-00000002").finished
    with pytest.raises(UsageError, match=r"model\.d_ff: 32 → 64"):
        go(3, None, "model.d_ff=64")


def test_fine_tuning_keeps_the_length_penalty_and_a_child_does_not(
    toy_tsv: Path, toy_run: Path, tmp_path: Path
) -> None:
    def asked(run: str, init: Path | None, *sets: str, src: str = "en") -> TrainingRequest:
        options = {"data.train": [str(toy_tsv)], "data.src": src, "data.tgt": "xx", "train.max_steps": 1}
        return resolve(None, options, ["train.engine=false", *QUICK, *sets], out=tmp_path / run, init=init)

    for run, init, sets in (("one", toy_run, ["decode.length_penalty=0.9"]), ("two", tmp_path / "one", [])):
        request = asked(run, init, *sets)
        train(request.config, request.run, torch.device("cpu"), init=request.init)
        _, info, _ = model_file.load_model(tmp_path / run)
        assert info.decode.length_penalty == 0.9
    assert asked("two", None).config.decode.length_penalty == 0.9  # a resumed run
    assert LENGTH_PENALTY in unset_settings(asked("child", tmp_path / "one", src="de").config)


def test_the_initial_model_is_read_once(toy_tsv: Path, toy_run: Path, tmp_path: Path) -> None:
    model = shutil.copytree(toy_run, tmp_path / "model")
    options = {"data.train": [str(toy_tsv)], "train.max_steps": 1}
    request = resolve(None, options, ["train.engine=false", *QUICK], out=tmp_path / "run", init=model)
    shutil.rmtree(model)
    train(request.config, request.run, torch.device("cpu"), init=request.init)
    assert State.of(tmp_path / "run" / "checkpoints" / "step-00000001").finished


def test_a_resumed_fine_tuning_keeps_its_time_and_languages(toy_tsv: Path, toy_run: Path, tmp_path: Path) -> None:
    pairs = shutil.copy(toy_tsv, tmp_path / "pairs.en-de.tsv")  # the languages of the model are en and xx
    run = tmp_path / "run"
    begun = resolve(
        None, {"data.train": [str(pairs)], "train.time": 0.001}, ["train.engine=false"], out=run, init=toy_run
    )
    train(begun.config, run, torch.device("cpu"), init=begun.init)
    resumed = resolve(None, {"data.train": [str(pairs)]}, ["train.engine=false"], out=run)
    assert (resumed.config.train.time, resumed.config.data.src, resumed.config.data.tgt) == (0.001, "en", "xx")


# ---- the plan ----


def test_a_dry_run_plans_the_model_that_is_given(toy_tsv: Path, toy_run: Path, tmp_path: Path) -> None:
    _, info, _ = model_file.load_model(toy_run)
    shape = {f"model.{name}": value for name, value in info.model.model_dump(exclude_none=True).items()}
    options = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx", "train.max_steps": 20}
    config = build(None, options, initial=shape)
    rows = dict(dry_run(config, tmp_path / "run", torch.device("cpu"), init=InitialModel.load(toy_run)))
    parameters = sum(tensor.numel() for tensor in weights(toy_run).values())
    assert f"{parameters:,} parameters; 1 encoder and 1 decoder layers, d_model 16" in rows["model"]
    assert rows["settings"].startswith("fine-tuning on 288 pairs, 20 steps, CPU")
    assert "peak learning rate 0.0003 after 2 steps" in rows["schedule"]
    assert "early after 5 validations" in rows["budget"]


def test_the_time_for_scoring_the_starting_model_again_is_reserved() -> None:
    config, _ = tuned(2000, **{"train.time": "1h"})
    state = State(pair_seconds=0.1)
    budgets = [Budget.of(config, 1000, 100, fine_tunes=fine_tunes) for fine_tunes in (False, True)]
    assert budgets[1].training_time(state) < budgets[0].training_time(state)


def test_the_time_of_a_step_is_not_proportional_to_its_tokens(
    toy_tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_steps(config: Config, *_: object) -> tuple[int, float]:
        return 10, 10 * (0.6 + 0.001 * config.train.batch_tokens)  # 0.6 seconds for Adam

    monkeypatch.setattr("mtcli.training.dry_run._time_steps", time_steps)
    monkeypatch.setattr("mtcli.training.dry_run.MAX_STEP_SECONDS", 0.2)
    monkeypatch.setattr("mtcli.training.dry_run.LAYER_SECONDS", 0.0)
    monkeypatch.setitem(speed.SPEED, "cpu", 1e7)
    monkeypatch.setattr(timed_parts, "MIN_MARGINAL_SHARE", 0.0)
    values = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx"}
    config = build(None, values, [*TOY_SETTINGS, "train.batch_tokens=1000", "train.max_steps=1"])
    data = prepare(config, tmp_path)
    cpu = torch.device("cpu")
    batches = BatchPlan(data.train, 1000, 1, data.weights)
    plan = Plan.of(config, data, batches, cpu, ranks=1)
    rows, num_src, num_tgt = plan.largest
    found = estimate_speed(config, data, cpu, plan)
    largest = min(1000, rows * max(num_src, num_tgt))
    assert 1 / found.steps_per_second == pytest.approx(0.6 + 0.001 * largest, rel=1e-6)
