"""One optimizer step of `Trainer`: the gradient, its normalisation, its clipping, and the event that records it."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from torch import Tensor

from mtcli.config.build import build
from mtcli.config.schema import TrainConfig
from mtcli.corpus.batching import collate
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import DivergedError, ModelError
from mtcli.model.loss import reference_loss
from mtcli.runtime.distributed import Group
from mtcli.storage.events import METRICS_FORMAT, Metrics
from mtcli.training.trainer import Trainer

CPU = torch.device("cpu")
Start = Callable[..., Trainer]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A trainer in float64 on 60 pairs, without dropout."""
    pairs = write_tsv(tmp_path / "pairs.tsv", toy_pairs(60))

    def begin(*sets: str) -> Trainer:
        values = {"data.train": [str(pairs)], "data.src": "en", "data.tgt": "xx", "train.max_steps": 100}
        config = build(None, values, [*TOY_SETTINGS, "model.dropout=0", *sets])
        run = tmp_path / "run"
        trainer = Trainer(config, run, CPU, prepare(config, run), 0.0, Group())
        trainer.learner.model.double()
        return trainer

    return begin


def gradients(trainer: Trainer) -> dict[str, Tensor]:
    """Take a step, and return the gradients that the optimizer gets."""
    found: dict[str, Tensor] = {}
    optimizer = trainer.learner.optimizer
    step = optimizer.step

    def keep(gradients: list[Tensor], *args: Any, **options: Any) -> None:
        found.update(zip(optimizer.names, (gradient.clone() for gradient in gradients), strict=True))
        step(gradients, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizer, "step", keep)
        trainer.step(trainer.batches())
    return found


def norm(tensors: dict[str, Tensor]) -> float:
    return float(torch.linalg.vector_norm(torch.cat([t.flatten() for t in tensors.values()])))


def test_a_step_descends_the_smoothed_loss_at_the_learning_rate_of_the_schedule(start: Start) -> None:
    """The first step of Adam changes each number by the learning rate, against the sign of its gradient."""
    sets = ("train.batch_tokens=100000", "train.label_smoothing=0.3", "train.clip_norm=0")
    trainer = start(*sets, "train.lr=0.01", "train.warmup_steps=4")
    model = trainer.learner.model
    (rows,) = trainer.batch_plan.block(0, 0).batches
    batch = collate(trainer.learner.pairs, rows)
    logits = batch.at_targets(model(batch.src, batch.tgt_in))
    loss, nll = reference_loss(logits, batch.target, smoothing=0.3)
    parameters = dict(model.named_parameters())
    expected = torch.autograd.grad(loss / batch.tokens, list(parameters.values()))
    before = model.output.weight.detach().clone()
    found = gradients(trainer)
    assert trainer.session.state.loss == pytest.approx(loss.item(), rel=1e-12)
    assert trainer.session.state.nll == pytest.approx(nll.item(), rel=1e-12)
    for name, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)
    change = model.output.weight.detach() - before
    clear = found["tgt_embedding.tokens.weight"].abs() > 1e-5  # much more than the ε of Adam
    assert clear.any()
    wanted = -0.01 / 4 * found["tgt_embedding.tokens.weight"].sign()
    torch.testing.assert_close(change[clear], wanted[clear], rtol=1e-3, atol=0)


def test_accumulated_gradients_are_those_of_one_large_batch(start: Start) -> None:
    """An epoch has the same gradient in one batch and in many batches of different sizes."""
    whole = start("train.batch_tokens=100000", "train.clip_norm=0")
    (planned,) = whole.batch_plan.block(0, 0).batches
    small = start("train.batch_tokens=90", "train.clip_norm=0")
    block = small.batch_plan.block(0, 0)
    tokens = [block.tokens(batch) for batch in block.batches]
    assert len(tokens) > 5
    assert max(tokens) > 1.3 * min(tokens)
    parts = start("train.batch_tokens=90", "train.clip_norm=0", f"train.accumulate={len(tokens)}")
    expected, found = gradients(whole), gradients(parts)
    assert parts.session.state.epoch == whole.session.state.epoch == 1
    assert parts.session.state.tokens == whole.session.state.tokens == sum(tokens) == block.tokens(planned)
    assert parts.session.state.loss == pytest.approx(whole.session.state.loss, rel=1e-12)
    assert parts.session.state.nll == pytest.approx(whole.session.state.nll, rel=1e-12)
    assert expected.keys() == found.keys() == dict(parts.learner.model.named_parameters()).keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)


def test_gradients_do_not_carry_over_to_the_next_step(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = start("train.clip_norm=0", "train.lr=1e-30")  # so low that the weights do not change
    whole = start("train.batch_tokens=100000")
    block = whole.batch_plan.block(0, 0)
    monkeypatch.setattr(trainer.batch_plan, "block", lambda epoch, number: block)
    first, second = gradients(trainer), gradients(trainer)
    for name, gradient in first.items():
        torch.testing.assert_close(second[name], gradient, rtol=1e-9, atol=1e-12)


def test_dropout_has_another_seed_in_every_batch_of_every_step(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """And in every part of a batch."""
    trainer, seeds = start("train.accumulate=3", "train.micro_batches=2"), list[int]()

    @contextmanager
    def noted(seed: int) -> Iterator[None]:
        seeds.append(seed)
        yield

    monkeypatch.setattr("mtcli.training.gradients.dropout_seed", noted)
    gradients(trainer)
    gradients(trainer)
    assert len({*seeds}) == len(seeds) == 12


def test_gradient_is_clipped_to_norm_1_by_default(start: Start) -> None:
    def found(*sets: str) -> dict[str, Tensor]:
        trainer = start(*sets)
        with torch.no_grad():
            trainer.learner.model.output.weight *= 30
        return gradients(trainer)

    free = found("train.clip_norm=0")
    assert norm(free) > 2
    assert TrainConfig().clip_norm == 1.0
    for sets, limit in ((), 1.0), (("train.clip_norm=0.5",), 0.5):
        clipped = found(*sets)
        assert norm(clipped) == pytest.approx(limit, rel=1e-4)
        for name, gradient in free.items():  # clipped as a whole: the direction stays the same
            torch.testing.assert_close(clipped[name], gradient * (limit / norm(free)), rtol=1e-4, atol=1e-9)


def test_a_gradient_that_is_not_finite_changes_no_weight(start: Start) -> None:
    """The loss is finite here; only the norm of the gradient is not."""
    trainer = start()
    before = {name: p.detach().clone() for name, p in trainer.learner.model.named_parameters()}
    trainer.learner.model.output.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(DivergedError, match=r"step 1: the loss is [0-9.]+ and the gradient's norm (nan|inf)"):
        gradients(trainer)
    for name, p in trainer.learner.model.named_parameters():
        torch.testing.assert_close(p.detach(), before[name], rtol=0, atol=0)


def test_a_loss_of_another_rank_that_is_not_finite_changes_no_weight(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient is finite here; only the sum of the losses over the ranks is not."""
    trainer = start()
    before = deepcopy(trainer.learner.model.state_dict())
    monkeypatch.setattr(trainer.learner.group, "all_reduce_sum", lambda values: values + math.inf)
    with pytest.raises(DivergedError, match=r"step 1: the loss is inf and the gradient's norm \d"):
        gradients(trainer)
    torch.testing.assert_close(trainer.learner.model.state_dict(), before, rtol=0, atol=0)


def test_no_step_changes_a_weight_after_a_gradient_that_is_not_finite(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, the next step is launched before the figures of the last one are read."""
    monkeypatch.setattr("mtcli.training.trainer.runs_ahead", lambda device: True)
    trainer = start()
    gradients(trainer)
    spoils = trainer.learner.model.output.weight.register_hook(lambda gradient: gradient * math.nan)
    gradients(trainer)
    spoils.remove()
    learner = trainer.learner
    weights = deepcopy(learner.model.state_dict())
    moments = deepcopy(learner.optimizer.state())
    with pytest.raises(DivergedError, match=r"step 2: the loss is \d.* norm nan, on the training pairs \d"):
        gradients(trainer)
    assert trainer.session.state.step == 2
    torch.testing.assert_close(learner.model.state_dict(), weights, rtol=0, atol=0)
    torch.testing.assert_close(learner.optimizer.state(), moments, rtol=0, atol=0)
    with pytest.raises(DivergedError, match="step 2"):
        trainer.save()


def test_moments_that_are_not_finite_are_never_saved(start: Start) -> None:
    trainer = start()
    gradients(trainer)
    trainer.learner.optimizer.second_moments[0].view(-1)[0] = math.inf
    with pytest.raises(DivergedError, match="step 1: it left weights that are not finite"):
        trainer.save()
    assert not (trainer.session.run / "checkpoints").exists()


def test_train_events_hold_the_figures_of_their_steps(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.training.trainer.LOG_EVERY", 2)
    trainer = start("train.lr=0.01", "train.warmup_steps=4", "train.accumulate=2")
    gradients(trainer)
    before = norm(gradients(trainer))
    gradients(trainer)
    third_and_fourth = trainer.session.state.tokens
    gradients(trainer)
    first, second = (event for event in trainer.session.metrics.read()[0] if event["event"] == "train")
    assert [first["step"], second["step"]] == [2, 4]
    assert [first["lr"], second["lr"]] == pytest.approx([0.005, 0.01])
    assert min(first["grad_norm"], 1) == pytest.approx(before, rel=1e-4)
    assert second["tokens"] > third_and_fourth > 0
    assert trainer.session.state.tokens == 0
    for event in (first, second):  # nats per token, of a model that is hardly trained
        assert event["loss"] == pytest.approx(math.log(trainer.session.info.tgt_vocab), rel=0.3)
        assert event["nll"] == pytest.approx(event["loss"], rel=0.05)


def test_a_line_of_metrics_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size if path.is_file() else -1))

    monkeypatch.setattr(os, "fsync", fsync)
    metrics = Metrics(tmp_path)
    length = metrics.append("train", 1, {"loss": 2.0})
    assert synced == [("metrics.jsonl", length), (tmp_path.name, -1)]
    length += metrics.append("train", 2, {"loss": 1.0})
    assert synced[2:] == [("metrics.jsonl", length)]
    assert metrics.path.stat().st_size == length


def test_the_first_line_of_metrics_names_their_format(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for _ in range(2):  # the second time after all lines were deleted
        metrics.append("data", 0, {"read": 5})
        metrics.append("train", 1, {"loss": 2.0})
        first, second = map(json.loads, metrics.path.read_text().splitlines())
        assert first == {"event": "data", "step": 0, "format": METRICS_FORMAT, "read": 5}
        assert second == {"event": "train", "step": 1, "loss": 2.0}
        metrics.cut(0)


def test_metrics_of_version_0_1_are_refused(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.path.write_text(json.dumps({"event": "plan", "step": 0, "target_pieces": 7, "workers": 1}) + "\n")
    with pytest.raises(ModelError, match=f"^{tmp_path}: a run of mtcli 0.1, .*its model can still be used"):
        metrics.read()
    metrics.path.write_text('{"event": "pla\n{"event": "train", "step": 50, "tokens": 9, "seconds": 1.0}\n')
    assert metrics.read() == ([{"event": "train", "step": 50, "tokens": 9, "seconds": 1.0}], 1)
