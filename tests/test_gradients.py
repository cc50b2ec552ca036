"""The gradient of a step on a CPU: micro-batches that the cores compute at the same time."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from torch import Tensor

from mtcli.config.build import build
from mtcli.corpus.batching import BatchPlan, Position
from mtcli.corpus.cache.prepare import prepare
from mtcli.model.fast.cpu_kernels import dropout, dropout_seed
from mtcli.runtime.cores import Cores
from mtcli.runtime.distributed import Group
from mtcli.storage.model_file import ModelInfo
from mtcli.training.gradients import GpuGradients
from mtcli.training.learner import Learner
from mtcli.training.loading import load_batches

CPU = torch.device("cpu")
State = dict[str, Tensor]


@pytest.fixture
def train_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[State, State]]:
    """A function that takes three steps on so many cores, and returns the weights and the state of Adam."""
    pairs = write_tsv(tmp_path / "pairs.tsv", toy_pairs(120))

    def take(cores: Cores, *sets: str, whole: bool = False, double: bool = False) -> tuple[State, State]:
        values = {"data.train": [str(pairs)], "data.src": "en", "data.tgt": "xx", "train.max_steps": 100}
        config = build(None, values, [*TOY_SETTINGS, *sets])
        data = prepare(config, tmp_path / "run")
        info = ModelInfo(
            model=config.model, decode=config.decode, src="en", tgt="xx", src_vocab=data.tokenizer.src_size,
            tgt_vocab=data.tokenizer.tgt_size, joint=data.tokenizer.joint, tokenizer="", step=0, longest_src=50,
        )  # fmt: skip
        monkeypatch.setattr("mtcli.training.learner.cores_for", lambda device: cores)
        learner = Learner(config, info, data.train, CPU, Group())
        if double:
            learner.model.double()
        if whole:
            learner.gradients = GpuGradients(
                learner.objective, learner.optimizer.parameters, config.train, learner.group, CPU
            )
        plan = BatchPlan(data.train, config.train.batch_tokens, 1, data.weights)
        batches = load_batches(plan.batches_from(Position()), Group(), CPU, config.train.micro_batches)
        for step in range(1, 4):
            drawn = [next(batches) for _ in range(config.train.accumulate)]
            learner.step(drawn, step, learning_rate=0.01).read()
        return learner.model.state_dict(), learner.optimizer.state()

    return take


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("sets", [("train.micro_batches=5",), ("train.micro_batches=2", "train.accumulate=3")])
def test_the_number_of_cores_changes_no_bit(
    train_steps: Callable[..., tuple[State, State]], precision: str, sets: tuple[str, ...]
) -> None:
    wide = ("model.d_model=64", "train.weight_decay=0.1", f"train.precision={precision}", *sets)
    expected = train_steps(Cores(1), *wide)
    for size in (2, 3, 7):
        torch.testing.assert_close(train_steps(Cores(size), *wide), expected, rtol=0, atol=0)


def test_the_sum_of_micro_batches_is_the_gradient_of_the_batch(
    train_steps: Callable[..., tuple[State, State]],
) -> None:
    no_dropout = ("model.dropout=0", "train.batch_tokens=600")
    expected = train_steps(Cores(1), *no_dropout, "train.micro_batches=1", double=True)
    for number in (2, 3, 1000):  # the last is more than there are rows
        found = train_steps(Cores(2), *no_dropout, f"train.micro_batches={number}", double=True)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("more", [(), ("model.output_bias=true",), ("model.output_bias=true", "tokenizer.joint=false")])
def test_gradients_on_a_device_are_those_on_cores(
    train_steps: Callable[..., tuple[State, State]], more: tuple[str, ...]
) -> None:
    sets = ("model.dropout=0", "train.micro_batches=2", "train.accumulate=2", *more)
    expected = train_steps(Cores(2), *sets)
    torch.testing.assert_close(train_steps(Cores(1), *sets, whole=True), expected, rtol=0, atol=0)


def test_dropout_draws_from_the_seed_of_its_thread() -> None:
    x = torch.ones(1000)
    with dropout_seed(1):
        first = dropout(x, 0.5)
    with dropout_seed(2):
        other = dropout(x, 0.5)
    with dropout_seed(1):
        assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(other, first)

    def draw(seed: int) -> list[Tensor]:
        with dropout_seed(seed):
            return [dropout(x, 0.5) for _ in range(20)]

    expected = [draw(seed) for seed in range(6)]
    found = list(Cores(3).map(draw, range(6)))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_training_on_a_cpu_does_not_import_the_compiler(tmp_path: Path, toy_tsv: Path) -> None:
    """`torch._dynamo` takes more than a second to import."""
    code = (
        "import sys; from mtcli.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "assert 'torch.optim' in sys.modules; assert 'torch._dynamo' not in sys.modules"
    )
    names = ["--src", "en", "--tgt", "xx", "--max-steps", "1", "--set", "train.engine=false"]
    sets = [word for setting in TOY_SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-c", code, "train", str(toy_tsv), *names, *sets]
    subprocess.run(command, cwd=tmp_path, check=True)
