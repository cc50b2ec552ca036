"""The batches of a training: loaded for the rank that trains on them, and on a GPU ahead of time."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mtcli.corpus.batching import Batch, PlannedBatch, collate
from mtcli.runtime.cores import iterate_ahead
from mtcli.runtime.device import runs_ahead
from mtcli.runtime.distributed import Group

NUM_AHEAD = 4
"""Batches that are loaded ahead of training on a GPU."""


@dataclass(frozen=True)
class LoadedBatch:
    """A planned batch and its tensors."""

    planned: PlannedBatch
    micro_batches: Sequence[Batch]
    """The tensors of its parts, in host memory; empty if another rank trains on this batch."""


def load_batches(
    planned: Iterator[PlannedBatch], group: Group, device: torch.device, num_micro_batches: int
) -> Generator[LoadedBatch]:
    """Yield the planned batches. The ranks take them in turn, and each loads its own.

    For a CUDA device, a thread plans and loads a few batches ahead, so that training does not wait for the disk or for
    the plan of the next epoch. Close the generator to end the thread. On a CPU, the thread would take a core from
    training, to save less than a thousandth of the time of a step.

    Args:
        planned: The batches of all ranks, from the first one of a step on.
        group: The ranks that train together.
        device: The device of this rank.
        num_micro_batches: The parts into which each batch is divided, on a CPU. On a GPU it has one.
    """
    if device.type != "cpu":
        num_micro_batches = 1
    loaded = _load(planned, group, num_micro_batches, pinned=device.type == "cuda")
    if runs_ahead(device):
        loaded = iterate_ahead(loaded, ahead=NUM_AHEAD)
    yield from loaded


def _load(
    planned: Iterator[PlannedBatch], group: Group, num_micro_batches: int, *, pinned: bool
) -> Generator[LoadedBatch]:
    for index, each in enumerate(planned):
        micro_batches: list[Batch] = []
        if index % group.size == group.rank:
            parts = np.array_split(each.rows, min(num_micro_batches, len(each.rows)))
            micro_batches = [collate(each.pairs, rows) for rows in parts]
        if pinned:
            micro_batches = [batch.pin_memory() for batch in micro_batches]
        yield LoadedBatch(each, micro_batches)
