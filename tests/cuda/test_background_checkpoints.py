"""Checkpoints of a training on the simulated CUDA device, which a thread writes."""

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.harness import outcome
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.config.build import build
from mtcli.runtime.device import pick_device
from mtcli.storage import checkpoint
from mtcli.training import saving
from mtcli.training.run import train
from mtcli.training.saving import HostCopy

pytestmark = needs_simulated_cuda

SETTINGS = ("train.save_every=2", "train.valid_every=4", "train.average=2", "decode.max_extra=1")


def train_on_device(folder: Path, name: str, max_steps: int) -> Counts:
    values = {"data.train": [str(folder / "toy.tsv")], "data.src": "en", "data.tgt": "xx"}
    config = build(None, values, [*TOY_SETTINGS, *SETTINGS, f"train.max_steps={max_steps}"])
    with counting() as counts:
        train(config, folder / name, pick_device())
    return counts


def train_without_threads(folder: Path, name: str, max_steps: int) -> None:
    with patch.object(saving, "writes_in_background", lambda device: False):
        train_on_device(folder, name, max_steps)


def copy_and_change() -> tuple[list[float], list[float], Counts]:
    """Return a copy before and after `HostCopy.wait`, of a tensor that is changed in between."""
    tensor = torch.ones(3).cuda()
    copies = HostCopy()
    with counting() as counts:
        (copied,) = copies.take({"tensor": tensor}).values()
        tensor.add_(1)
    before = copied.tolist()
    copies.wait()
    return before, copied.tolist(), counts


def test_a_copy_is_complete_after_waiting_and_has_the_values_of_its_step() -> None:
    before, after, counts = run(copy_and_change)
    assert before != [1.0, 1.0, 1.0]
    assert after == [1.0, 1.0, 1.0]
    assert counts.num_syncs == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("background")
    write_tsv(folder / "toy.tsv", toy_pairs())
    return folder


def test_they_equal_those_that_training_writes_itself(folder: Path) -> None:
    counts = run(train_on_device, folder, "threads", 4)
    run(train_without_threads, folder, "none", 4)
    assert outcome(folder / "threads") == outcome(folder / "none")
    num_saves = 2 + 1 + 1  # after steps 2 and 4, before averaging and at the end
    assert checkpoint.latest(folder / "threads" / "checkpoints") is not None
    assert waits_in(counts.syncs, "saving.py") == num_saves  # for the check that all weights are finite
    assert waits_in(counts.background_syncs, "saving.py") == 2 * num_saves  # for the weights, and for the moments


def waits_in(syncs: Counter[tuple[str, str]], file: str) -> int:
    return sum(number for (_, place), number in syncs.items() if place.startswith(file))
