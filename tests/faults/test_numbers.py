"""Numbers that are no longer finite, and a batch that does not fit into memory."""

import math
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import SETTINGS, Job, address_space, contents, earlier, outcome, refused, run, unharmed

from faults.conftest import Case

Count = Callable[[int, int], int]


def spoil(nth: int, what: str) -> None:
    """Set one number in the nth step of this process: a weight to NaN before it, or a gradient to infinity in it."""
    from mtcli.training import learner

    clip = learner.clip_norm_
    update = learner.Adam.step
    steps = []

    def spoilt_clip(gradients: Any, *rest: Any) -> Any:
        steps.append(nth)
        if len(steps) == nth and what == "gradient":
            gradients[0].view(-1)[7] = math.inf
        return clip(gradients, *rest)

    def spoilt_update(self: Any, *arguments: Any, **options: Any) -> None:
        if len(steps) == nth - 1 and what == "weight":
            self.parameters[-1].data.view(-1)[7] = math.nan
        update(self, *arguments, **options)

    learner.clip_norm_ = spoilt_clip
    learner.Adam.step = spoilt_update  # type: ignore[method-assign]


def diverge(case: Case, job: Job, begun: Path, out: Path, nth: int, what: str, *words: str) -> None:
    shutil.copytree(begun, out)
    before = earlier(out)
    with case.fault():
        result = run(*job.command(out), within=[partial(spoil, nth, what)])
        refused(result, 6, "the last checkpoint is untouched", *words)
        unharmed(out, before)
        job.is_done(out)


def test_55_nan_loss(case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for nth in rng.sample(range(2, 10), count(8, 1)):
        spoilt = 23 + nth
        intervals = (int(SETTINGS[f"train.{which}_every"]) for which in ("save", "valid"))
        if any(
            spoilt % steps == 0 for steps in intervals
        ):  # the checkpoint is written before the next loss is computed
            words = [f"step {spoilt}:", "it left weights", "are not finite"]
        else:
            words = [f"step {spoilt + 1}:", "training pairs", "the loss is nan"]
        diverge(case, job, begun, tmp_path / str(nth), nth, "weight", *words)


@pytest.mark.slow
def test_55_nan_loss_of_a_learning_rate(case: Case, job: Job, tmp_path: Path) -> None:
    codes = []
    for i, rate in enumerate([1e6, 1e20, 1e30]):
        out = tmp_path / str(i)
        with case.fault():
            command = job.command(out, train__lr=rate, train__save_every=1, train__keep=1000, train__valid_every=1000)
            result = run(*command)
            codes.append(result.code)
            if result.code:
                refused(result, 6, "training pairs", "--set train.lr")
            before = contents(out)
            again = run(*command)
            assert again.code == result.code
            assert again.last == result.last or not result.code
            unharmed(out, before={})
            assert earlier(out).items() <= {n.removeprefix("checkpoints/"): c for n, c in before.items()}.items()
    assert 6 in codes


@pytest.mark.slow
def test_56_infinite_gradient(
    case: Case, job: Job, begun: Path, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for nth in rng.sample(range(2, 10), count(8, 1)):
        words = f"step {24 + nth}:", "training pairs", "the gradient's norm inf"
        diverge(case, job, begun, tmp_path / str(nth), nth, "gradient", *words)


@pytest.mark.slow
def test_57_oom_batch(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    def wide(out: Path) -> list[str]:
        return job.command(out, "--max-steps", "8", model__d_ff=8192, train__batch_tokens=1024, train__accumulate=1)

    assert run(*wide(tmp_path / "clean")).code == 0
    for i in range(count(2, 1)):
        out = tmp_path / str(i)
        with case.fault():
            refused(run(*wide(out), within=[partial(scarce, 6 - i)]), 5, "out of memory", "train.batch_tokens")
            unharmed(out, {})
            assert run(*wide(out)).code == 0
            assert outcome(out) == outcome(tmp_path / "clean")


def scarce(nth: int) -> None:
    """Allow this process no more memory from the nth batch on."""
    import torch

    real = torch.autograd.grad
    seen = 0

    def backward(*args: Any, **options: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == nth:
            address_space(0)
        return real(*args, **options)

    torch.autograd.grad = backward  # type: ignore[assignment]
