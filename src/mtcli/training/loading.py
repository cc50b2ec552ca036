"""The batches of a training: loaded for the rank that trains on them, and on a GPU ahead of time."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import torch

from mtcli.data.batching import Batch, PlannedBatch, collate
from mtcli.data.encoded_pairs import EncodedPairs
from mtcli.runtime.device import runs_ahead
from mtcli.runtime.distributed import Group
from mtcli.runtime.prefetch import iterate_ahead

NUM_AHEAD = 4
"""Batches that are loaded ahead of training on a GPU."""


@dataclass(frozen=True)
class LoadedBatch:
    """A planned batch and its tensors."""

    planned: PlannedBatch
    batch: Batch | None
    """The tensors, in host memory; None if another rank trains on this batch."""


def load_batches(
    pairs: EncodedPairs, planned: Iterator[PlannedBatch], group: Group, device: torch.device
) -> Generator[LoadedBatch]:
    """Yield the planned batches. The ranks take them in turn, and each loads its own.

    For a CUDA device, a thread plans and loads a few batches ahead, so that training does not wait for the disk or for
    the plan of the next epoch. Close the generator to end the thread. On a CPU, the thread would take a core from
    training, to save less than a thousandth of the time of a step.

    Args:
        pairs: The training pairs.
        planned: The batches of all ranks, from the first one of a step on.
        group: The ranks that train together.
        device: The device of this rank.
    """
    loaded = _load(pairs, planned, group, pinned=device.type == "cuda")
    if runs_ahead(device):
        loaded = iterate_ahead(loaded, ahead=NUM_AHEAD)
    yield from loaded


def _load(
    pairs: EncodedPairs, planned: Iterator[PlannedBatch], group: Group, *, pinned: bool
) -> Generator[LoadedBatch]:
    for index, each in enumerate(planned):
        batch = None
        if index % group.size == group.rank:
            batch = collate(pairs, each.rows)
            if pinned:
                batch = batch.pin_memory()
        yield LoadedBatch(each, batch)
