"""Runs with a time budget end in time, at any speed and changing load: `Trainer`'s loop on a simulated clock."""

import dataclasses
import logging
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv

from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.corpus.cache.prepare import Prepared, prepare
from mtcli.errors import InterruptedTrainingError
from mtcli.evaluation import metrics
from mtcli.evaluation.confidence import TooFewError, num_calibration_lines
from mtcli.runtime.distributed import Group
from mtcli.storage import checkpoint
from mtcli.storage.state import COMPARABLE_PAIRS
from mtcli.text.languages import Direction
from mtcli.training import after_training, evaluator, saving, validation
from mtcli.training import trainer as trainer_module
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.workload import Workload
from mtcli.training.evaluator import Evaluator
from mtcli.training.saving import Checkpoints
from mtcli.training.session import Session
from mtcli.training.time.budget import MIN_VALIDATIONS, SAVES
from mtcli.training.time.timed_parts import FIRST_PART
from mtcli.training.trainer import Trainer

EN_ES = Direction("en", "es")
PAIRS = 1000
"""Number of validation pairs, and of test pairs."""


@dataclasses.dataclass
class World:
    """A simulated machine: how long its work takes in seconds, and how much slower it is at which time."""

    step: float
    validation: float
    """Greedy translation of all pairs by a model that ends its sentences."""
    call: float = 0.0
    """Fixed time of a call of the translator."""
    preparing: float = 5.0
    first: float = 1.0
    """Additional time of the first step."""
    save: float = 0.2
    load: Callable[[float], float] = lambda now: 1.0
    """Factor by which everything is slower at a time."""
    early: int = 50
    """Before this step, translating takes four times as long, since the model does not end its sentences."""
    now: float = 0.0
    rates: list[float] = dataclasses.field(default_factory=list)
    saved: list[int] = dataclasses.field(default_factory=list)
    published: list[int] = dataclasses.field(default_factory=list)
    longest_step: float = 0.0
    scored: int = 0
    scores: dict[int, float] = dataclasses.field(default_factory=dict)
    """Scores of the validations of some steps, by step."""
    loss: Callable[[int], float] = lambda step: 2.0 + 1 / (step + 1)
    """The validation loss after a step."""
    stop_at: float = math.inf
    signals: list[int] = dataclasses.field(default_factory=list)
    paused: float = 0.0
    """Time that validations and saves took."""
    paused_before_last_step: float = 0.0
    last_step_at: float = 0.0

    def work(self, seconds: float) -> float:
        """Advance the clock by some work, and return how long it took."""
        seconds *= self.load(self.now)
        self.now += seconds
        return seconds

    def pause(self, seconds: float) -> None:
        """Advance the clock by work of a validation or a save."""
        self.paused += self.work(seconds)

    def clock(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("data")
    config = asked(write_tsv(folder / "pairs.tsv", toy_pairs(60)))
    found = prepare(config, folder)
    held_out = {EN_ES: [("a", "b")] * PAIRS}
    return dataclasses.replace(found, valid_split=held_out, test_split=held_out)


def asked(path: Path | str = "x.tsv", *sets: str, **options: object) -> Config:
    values = {"data.train": [str(path)], "data.src": "en", "data.tgt": "xx", **options}
    adapting = ("train.warmup_steps", "train.valid_every", "train.save_every")
    return build(None, values, [*(s for s in TOY_SETTINGS if not s.startswith(adapting)), *sets])


class Slow:
    """A backend and its translator, which takes simulated time and returns its input."""

    def __init__(self, world: World, step: int):
        self.world, self.step = world, step

    def translate(self, lines: list[str], options: Any, *_: object) -> Iterator[Any]:
        cost = self.world.validation / PAIRS * (1 + options.beam_size) / 2
        self.world.pause(self.world.call + len(lines) * cost * (4 if self.step < self.world.early else 1))
        if options.beam_size > 1:
            self.world.scored += len(lines)
        return iter([SimpleNamespace(text=line) for line in lines])


@pytest.fixture
def simulate(data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Run the loop of `Trainer` in a world, where steps, translating and saving only take simulated time."""
    begun: list[tuple[Session, World]] = []

    def run(
        world: World, *sets: str, stopped: Session | None = None, on_gpu: bool = False, **options: object
    ) -> Session:
        config = with_defaults(asked("x.tsv", *sets, **options), Workload(10**6, 10**7, "cpu", valid=PAIRS))
        folder = tmp_path / str(len(begun))
        folder.mkdir()
        trainer = Trainer(config, folder, torch.device("cpu"), data, 0.0, Group())
        session = trainer.session
        session.clock = world.clock
        session.budget = dataclasses.replace(session.budget, on_gpu=on_gpu)
        begun.append((session, world))
        if stopped is None:
            world.work(world.preparing)
        else:
            session.counted_until = world.now
            session.state.set_values(stopped.state.values())
        trainer.run_until_done(world.signals)
        return session

    def step(self: Trainer, batches: object) -> None:
        world = begun[-1][1]
        world.rates.append(self.next_learning_rate())
        world.longest_step = max(
            world.longest_step, world.work(world.step + (0 if self.session.state.step else world.first))
        )
        self.session.state.step += 1
        world.last_step_at = world.now
        world.paused_before_last_step = world.paused
        if world.now >= world.stop_at:
            world.signals.append(signal.SIGTERM)

    def write(folder: Path, step: int, *_: object) -> None:
        world = begun[-1][1]
        world.pause(world.save)
        world.saved.append(step)

    def score(hypotheses: list[str], *_: object, **__: object) -> list[Any]:
        step = begun[-1][0].state.step
        value = begun[-1][1].scores.get(step, 20 + step / 1000)
        one = SimpleNamespace(name="BLEU", value=value, confidence=None, signature="")
        return [one, one]

    def negative_log_likelihood(translator: Slow, pairs: list[Any], *_: object) -> tuple[float, int]:
        return translator.world.loss(translator.step) * len(pairs), len(pairs)

    def calibrate(run: Path, pairs: list[Any], device: str, seconds_left: Callable[[], float]) -> None:
        session, world = begun[-1]
        cost = world.validation / PAIRS * session.budget.final_work.beam_cost
        for _ in range(num_calibration_lines(len(pairs)) // FIRST_PART):
            if FIRST_PART * cost < seconds_left():
                world.work(FIRST_PART * cost)
        session.count_time()
        raise TooFewError

    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(after_training, "update_confidence", calibrate)
    monkeypatch.setattr(Evaluator, "backend_in_eval_mode", lambda self: Slow(begun[-1][1], self.session.state.step))
    monkeypatch.setattr(validation, "ModelTranslator", lambda backend: backend)
    monkeypatch.setattr(Checkpoints, "scheduled", lambda self: list(begun[-1][1].saved))
    monkeypatch.setattr(checkpoint, "write", write)
    monkeypatch.setattr(checkpoint, "verify", lambda path: None)
    monkeypatch.setattr(checkpoint, "prune", lambda *_: None)
    monkeypatch.setattr(saving, "publish", lambda run, steps, info: begun[-1][1].published.extend(steps))
    monkeypatch.setattr(evaluator, "weights_of", lambda *_: nullcontext())
    monkeypatch.setattr(trainer_module, "write_report", lambda *_: None)
    monkeypatch.setattr(validation, "_negative_log_likelihood", negative_log_likelihood)
    monkeypatch.setattr(metrics, "score", score)
    return run


def events(session: Session, kind: str) -> list[dict[str, Any]]:
    return [event for event in session.metrics.read()[0] if event["event"] == kind]


def check(session: Session, world: World, budget: float) -> None:
    """Check that a run ended in time, with a finished schedule, a validation and a model."""
    # No forecast can shorten a step, nor the smallest part of a validation.
    part = FIRST_PART * world.validation / PAIRS * 4 * 2.5 * 5
    assert world.now <= 1.1 * budget + world.longest_step + part
    assert session.state.finished == "budget used"
    assert session.state.step == len(world.rates) >= 1
    assert world.published
    assert events(session, "valid")
    last = max(world.longest_step / session.budget.training_time(session.state), 1 / session.state.step)
    assert world.rates[-1] <= session.config.train.lr * min(1, 0.05 + 3 * last / session.config.train.cooldown)


def suddenly(at: float, factor: float) -> Callable[[float], float]:
    return lambda now: factor if now >= at else 1.0


SPEEDS = [0.01, 0.1, 1.0, 10.0]
COSTS = [0.1, 2.0, 60.0]
LOADS: dict[str, Callable[[float], float]] = {
    "none": lambda now: 1.0,
    "from 40%": suddenly(60, 5.0),
    "from 80%": suddenly(120, 5.0),
    "until 40%": lambda now: 5.0 if now < 60 else 1.0,
}


CASES = [(speed, cost, load) for speed in SPEEDS for cost in COSTS for load in LOADS]
CASES += [(100.0, 2.0, "none"), (100.0, 0.1, "from 40%")]


@pytest.mark.parametrize(("speed", "cost", "load"), CASES)
def test_training_ends_in_time_at_any_speed_and_load(
    simulate: Callable[..., Session], speed: float, cost: float, load: str
) -> None:
    world = World(1 / speed, cost, load=LOADS[load])
    session = simulate(world, **{"train.time": 150})
    check(session, world, 150)


def test_a_slow_first_step_is_not_taken_for_the_speed(
    simulate: Callable[..., Session], caplog: pytest.LogCaptureFixture
) -> None:
    """The first step of a GPU loads its kernels. The second step has the learning rate of a run without this time."""
    world = World(step=0.1, validation=0.1, first=30.0)
    with caplog.at_level(logging.INFO, logger="mtcli.training.log"):
        session = simulate(world, **{"train.time": 600})
    check(session, world, 600)
    usual = World(step=0.1, validation=0.1)
    simulate(usual, **{"train.time": 600})
    assert world.rates[:2] == usual.rates[:2]
    assert "0.1 seconds a step: about 5," in caplog.text


@pytest.mark.parametrize(
    ("faster", "save", "validation_seconds"),
    [(1 / 3, 0.1, 2.0), (1 / 3, 10.0, 60.0), (1.0, 0.1, 60.0), (1.0, 10.0, 2.0), (3.0, 10.0, 60.0), (10.0, 0.1, 2.0)],
)
def test_validations_and_saves_on_a_gpu_cost_less_than_5_percent_at_any_speed(
    simulate: Callable[..., Session], faster: float, save: float, validation_seconds: float
) -> None:
    """The intervals of a time budget follow the measured durations. 2 s stand for 55 steps of base on an H200."""
    world = World(step=2.0 / faster, validation=validation_seconds, call=0.5, save=save)
    session = simulate(world, on_gpu=True, **{"train.time": 3600})
    check(session, world, 3600)
    training_seconds = world.last_step_at - world.preparing
    assert world.paused_before_last_step < 0.05 * training_seconds
    assert len(events(session, "valid")) >= 4
    assert len(world.saved) >= 4


def test_a_short_time_on_a_gpu_is_used(simulate: Callable[..., Session]) -> None:
    """Translating takes a GPU about as long for few pairs as for many. A tenth of the time may be left, not a fifth."""
    world = World(step=0.033, validation=0.1, call=0.3, save=0.1, preparing=17.0)
    session = simulate(world, on_gpu=True, **{"train.time": 60})
    check(session, world, 60)
    assert world.now >= 0.9 * 60


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.message for record in caplog.records if record.levelno >= logging.WARNING)


def test_a_time_that_is_too_short_is_reported_after_the_first_steps(
    simulate: Callable[..., Session], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = World(step=1.0, validation=2.0)
    session = simulate(world, **{"train.time": 150})
    (warning,) = (r for r in caplog.records if "is too short" in r.message)
    assert "a time of 2:30 is too short at this speed: about 1" in warning.message
    assert "needs 500 or more; give it --time 13m" in warning.message
    assert session.state.step < 150
    assert max(world.rates) == pytest.approx(session.config.train.lr, rel=0.1)  # the warm-up is shortened
    first_validation = next(r for r in caplog.records if "valid loss" in r.message)
    assert caplog.records.index(warning) < caplog.records.index(first_validation)
    caplog.clear()
    simulate(World(step=0.1, validation=2.0), "train.seed=2", **{"train.time": 151})
    assert "0.1 seconds a step: about 1,3" in caplog.text
    (warning_of_pairs,) = warnings(caplog).splitlines()
    assert "far too few for a usable translator" in warning_of_pairs  # the toy corpus is small at any speed


def test_given_intervals_and_warm_up_do_not_adapt(
    simulate: Callable[..., Session], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(step=1.0, validation=2.0)
    sets = ("train.warmup_steps=400", "train.valid_every=20", "train.save_every=10")
    session = simulate(world, *sets, **{"train.time": 150})
    check(session, world, 150)
    steps = len(world.rates)
    assert world.rates[50] == pytest.approx(session.config.train.lr * 51 / 400)
    validated = dict.fromkeys(e["step"] for e in events(session, "valid"))  # the last step on all pairs again, if due
    assert [*validated] == [*range(20, steps, 20), steps]
    assert {*range(10, steps, 10)} <= {*world.saved}
    assert f"ended within its warm-up, after {steps} of 400 steps" in warnings(caplog)


def test_a_quiet_machine_validates_and_scores_everything(simulate: Callable[..., Session]) -> None:
    world = World(step=0.02, validation=1.0)
    session = simulate(world, **{"train.time": 150})
    check(session, world, 150)
    found = events(session, "valid")
    assert {e["pairs"] for e in found} == {PAIRS}
    assert MIN_VALIDATIONS <= len(found) <= MIN_VALIDATIONS + 2
    assert [e["kept"] for e in events(session, "average")] == [False]
    assert [(e["pairs"], e["of"]) for e in events(session, "test")] == [(PAIRS, PAIRS)]
    assert world.now >= 0.97 * 150  # nearly all of the time is used
    assert max(world.rates) == pytest.approx(session.config.train.lr, rel=0.05)
    assert session.budget.warmup_steps(session.state) == 400


@pytest.mark.parametrize("call", [0.1, 0.4, 0.8])
def test_a_translator_that_is_slow_with_few_pairs_does_not_waste_the_time(
    simulate: Callable[..., Session], call: float
) -> None:
    world = World(step=0.2, validation=1.0, call=call)
    session = simulate(world, **{"train.time": 150})
    check(session, world, 150)
    assert world.now >= 0.9 * 150
    assert [(e["pairs"], e["of"]) for e in events(session, "test")] == [(PAIRS, PAIRS)]


def test_validations_of_different_size_show_the_same_sentences(
    data: Prepared, simulate: Callable[..., Trainer]
) -> None:
    data.valid[:] = [(f"source {number}", "b") for number in range(PAIRS)]
    try:
        trainer = simulate(World(step=0.2, validation=1.0, call=0.4), **{"train.time": 150})
    finally:
        data.valid[:] = [("a", "b")] * PAIRS
    found = events(trainer, "valid")
    assert len({e["pairs"] for e in found}) > 1
    sources = {tuple(sample["src"] for sample in e["samples"]) for e in found}
    assert len(sources) == 1
    assert len(set(*sources)) == 3


def test_a_run_without_held_out_pairs_uses_its_time(data: Prepared, simulate: Callable[..., Session]) -> None:
    data.valid.clear()
    data.test.clear()
    try:
        world = World(step=0.1, validation=0.0)
        session = simulate(world, **{"train.time": 60})
    finally:
        data.valid.extend([("a", "b")] * PAIRS)
        data.test.extend([("a", "b")] * PAIRS)
    assert 50 <= world.now <= 66
    assert world.published[-1] == session.state.step
    assert not events(session, "test")
    assert MIN_VALIDATIONS <= len(world.saved) <= SAVES + MIN_VALIDATIONS + 2


@pytest.mark.parametrize("steps", [3, 100, 5000])
def test_steps_and_time_together_end_with_the_first(simulate: Callable[..., Session], steps: int) -> None:
    world = World(step=0.5, validation=2.0)
    session = simulate(world, **{"train.time": 150, "train.max_steps": steps})
    check(session, world, 150)
    assert session.state.step == steps if steps <= 100 else 150 < session.state.step < 300
    assert session.budget.warmup_steps(session.state) <= max(1, 0.21 * session.state.step)


def test_one_step_and_a_model_if_preparing_takes_the_whole_time(simulate: Callable[..., Session]) -> None:
    world = World(step=1.0, validation=2.0, preparing=500)
    session = simulate(world, **{"train.time": 150})
    assert session.state.step == 1
    assert world.now < 510
    assert world.published
    assert [e["pairs"] for e in events(session, "valid")][-1] >= FIRST_PART
    assert not events(session, "test")


def test_the_loss_selects_among_validations_of_few_pairs(simulate: Callable[..., Session]) -> None:
    """BLEU rises in all of them, but it cannot be compared on so few pairs."""
    world = World(step=1.0, validation=200.0, early=0, loss=lambda step: 2.0 + abs(step - 200) / 1000)
    session = simulate(world, "train.patience=2", "train.cooldown=0", "train.average=1", **{"train.time": 1200})
    validations = events(session, "valid")
    assert {event["metric"] for event in validations} == {"loss"}
    assert {event["pairs"] for event in validations} == {32}
    lowest = min(validations, key=lambda event: float(event["loss"]))
    assert validations.index(lowest) == len(validations) - 3
    assert session.state.best_step == lowest["step"]
    assert session.state.finished == "nothing improved"


def test_an_average_on_few_pairs_must_be_better_to_be_kept(simulate: Callable[..., Session]) -> None:
    session = simulate(World(step=1.0, validation=200.0), **{"train.time": 150})
    last = events(session, "valid")[-1]
    (average,) = events(session, "average")
    assert average["pairs"] == last["pairs"] < COMPARABLE_PAIRS
    assert average["bleu"] == last["bleu"]
    assert not average["kept"]
    assert session.state.averaged == []


def test_a_stopped_run_resumes_with_the_rest_of_its_time(
    simulate: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Session] = []
    beginning = Trainer.run_until_done

    def keep(self: Trainer, received: list[int]) -> None:
        made.append(self.session)
        beginning(self, received)

    monkeypatch.setattr(Trainer, "run_until_done", keep)
    world = World(step=0.5, validation=2.0, stop_at=70)
    with pytest.raises(InterruptedTrainingError):
        simulate(world, **{"train.time": 150})
    (stopped,) = made
    assert 70 <= stopped.state.seconds == world.now <= 72
    steps = stopped.state.step
    paused = 10_000
    world.now, world.stop_at = world.now + paused, math.inf
    world.signals.clear()
    session = simulate(world, stopped=stopped, **{"train.time": 150})
    assert session.state.seconds == pytest.approx(world.now - paused)
    assert 0.97 * 150 <= session.state.seconds <= 150
    assert session.state.step > 1.5 * steps
    assert world.rates[steps] == pytest.approx(world.rates[steps - 1], rel=0.05)  # the schedule continues
    assert world.rates[-1] < 0.05 * max(world.rates)
    longer = World(step=0.5, validation=2.0, now=world.now)
    extended = simulate(longer, stopped=session, **{"train.time": 300})
    assert 0.97 * 300 <= extended.state.seconds <= 300


def test_patience_counts_the_validations_since_the_best_one(simulate: Callable[..., Session]) -> None:
    scores = {10: 20.0, 20: 19.0, 30: 21.0, 40: 20.0, 50: 20.5, 60: 20.0, 70: 30.0}
    world = World(step=0.1, validation=1.0, scores=scores)
    sets = ("train.valid_every=10", "train.patience=3", "train.average=1", "train.cooldown=0")
    session = simulate(world, *sets, **{"train.max_steps": 100})
    assert session.state.finished == "nothing improved"
    assert {10, 20, 30, 40, 50, 60} <= {*world.saved}
    assert 0 not in world.saved
    assert session.state.step == 60  # three validations after step 30; that of step 20 does not count
    assert session.state.best_step == 30


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_decays_reaches_its_peak_at_a_changing_speed(
    simulate: Callable[..., Session], schedule: str
) -> None:
    world = World(step=0.05, validation=1.0, load=suddenly(75, 3.0))
    session = simulate(world, f'train.schedule="{schedule}"', "train.warmup_steps=200", **{"train.time": 150})
    peak = session.config.train.lr
    assert world.rates[:200] == pytest.approx([peak * step / 200 for step in range(1, 201)])
    assert max(world.rates) == peak
    assert world.rates[-1] < peak / 30


@pytest.mark.parametrize("schedule", ['train.schedule="linear"', "train.cooldown=0"])
def test_a_run_that_ends_as_nothing_improves_keeps_its_best_model(
    simulate: Callable[..., Session], schedule: str
) -> None:
    world = World(step=0.1, validation=10.0, early=0, scores={step: 50 - step / 100 for step in range(2000)})
    session = simulate(world, schedule, "train.patience=1", "train.average=1", **{"train.time": 150})
    state = session.state
    assert state.finished == "nothing improved"
    assert COMPARABLE_PAIRS <= state.best_pairs < PAIRS
    assert state.best_step is not None
    assert state.best_step < state.step
    assert state.best_step in world.published


@pytest.mark.parametrize(("average", "steps"), [(1, [40]), (2, [30, 40]), (5, [10, 20, 30, 40])])
def test_the_last_checkpoints_are_averaged(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, average: int, steps: list[int]
) -> None:
    config = asked("x.tsv", f"train.average={average}", **{"train.max_steps": 40})
    trainer = Trainer(config, tmp_path, torch.device("cpu"), data, 0.0, Group())
    trainer.session.state.step = 40
    monkeypatch.setattr(Checkpoints, "scheduled", lambda self: [10, 20, 30, 40])
    monkeypatch.setattr(checkpoint, "verify", lambda path: None)
    assert trainer.evaluator._steps_to_average() == steps


def test_a_validation_of_few_pairs_takes_a_sample_of_all(data: Prepared, tmp_path: Path) -> None:
    pairs = [(f"source {i}", f"target {i}") for i in range(500)]
    data = dataclasses.replace(data, valid_split={EN_ES: pairs})

    def valid(**budget: object) -> Sequence[Any]:
        return Trainer(asked(**budget), tmp_path, torch.device("cpu"), data, 0.0, Group()).evaluator.valid.pairs

    assert valid(**{"train.max_steps": 5}) == pairs
    sample = valid(**{"train.time": 5})
    assert sorted(sample) == sorted(pairs)
    assert 100 < sum(pairs.index(pair) for pair in sample[:FIRST_PART]) / FIRST_PART < 400
