"""The two layouts of the cache, with keys and values of one number: the sentence, the position and the hypothesis."""

import numpy as np
import pytest
import torch
from torch import Tensor

from mtcli.model.cache import ALIGNMENT, Cache

LAYERS = 3
BETWEEN_LAYERS = 10_000
"""The numbers of a layer are larger by this than those of the layer before it."""


def start(B: int, *, share_rows: bool) -> Cache:
    first = torch.arange(float(B)).view(B, 1, 1, 1)
    layers = [first + BETWEEN_LAYERS * layer for layer in range(LAYERS)]
    mask = torch.zeros(B, 1, 1, 1)
    mask[1:] = -1.0
    return Cache([(memory, memory + 10) for memory in layers], mask, [], share_rows=share_rows)


def step(cache: Cache, numbers: Tensor) -> None:
    """Append a number of each hypothesis, (B, L)."""
    cache.add_columns(numbers.size(1))
    first = cache.rows(numbers.unsqueeze(2)).unsqueeze(1)
    for layer in range(LAYERS):
        k = first + BETWEEN_LAYERS * layer
        cache.write(layer, k, k + 0.5)


def histories(cache: Cache, L: int) -> list[list[list[float]]]:
    """Return the keys that each hypothesis attends to: for each sentence, for each hypothesis, by position.

    They are those of the first layer. The keys and values of all layers must belong to the same tokens.
    """
    keys = cache.own[0][0]
    for layer, (keys_of_layer, values) in enumerate(cache.own):
        assert torch.equal(keys_of_layer, keys + BETWEEN_LAYERS * layer)
        assert torch.equal(values, keys_of_layer + 0.5)
    if cache.own_mask is None:
        return keys.view(-1, L, cache.length).tolist()
    attended = cache.own_mask[:, 0] == 0  # (B, L, columns)
    return [[keys[row, 0, seen, 0].tolist() for seen in attended[row]] for row in range(len(keys))]


@pytest.mark.parametrize("share_rows", [False, True])
def test_select_reorders_hypotheses_and_removes_sentences(share_rows: bool) -> None:
    cache = start(2, share_rows=share_rows)
    step(cache, torch.tensor([[1.0], [2.0]]))
    cache.select(torch.tensor([[0, 0], [0, 0]]))
    step(cache, torch.tensor([[10.0, 11], [20, 21]]))
    assert histories(cache, 2) == [[[1, 10], [1, 11]], [[2, 20], [2, 21]]]
    memory = cache.memory[0][0]
    cache.select(torch.tensor([[1, 1], [1, 0]]))
    assert cache.memory[0][0] is memory
    step(cache, torch.tensor([[100.0, 101], [200, 201]]))
    assert histories(cache, 2) == [[[1, 11, 100], [1, 11, 101]], [[2, 21, 200], [2, 20, 201]]]
    cache.select(torch.tensor([[1, 0]]), np.array([1]))
    assert histories(cache, 2) == [[[2, 20, 201], [2, 21, 200]]]
    for layer, (memory_keys, memory_values) in enumerate(cache.memory):
        assert memory_keys.flatten().tolist() == [1 + BETWEEN_LAYERS * layer]
        assert memory_values.flatten().tolist() == [11 + BETWEEN_LAYERS * layer]
    assert cache.mask.flatten().tolist() == [-1]


@pytest.mark.parametrize("share_rows", [False, True])
def test_buffers_grow_with_the_hypotheses_and_are_written_in_place(share_rows: bool) -> None:
    """A random search of three hypotheses. Steps that need no larger buffer use the same memory."""
    cache = start(2, share_rows=share_rows)
    generator = torch.Generator().manual_seed(1)
    step(cache, torch.tensor([[0.0], [1.0]]))
    expected = [[[0.0]], [[1.0]]]
    addresses = set()
    for number in range(1, 3 * ALIGNMENT):
        parents = torch.randint(len(expected[0]), (2, 3), generator=generator)
        cache.select(parents)
        numbers = torch.arange(6.0).view(2, 3) + 6 * number
        step(cache, numbers)
        expected = [
            [
                [*expected[row][parent], new]
                for parent, new in zip(parents[row].tolist(), numbers[row].tolist(), strict=True)
            ]
            for row in range(2)
        ]
        assert histories(cache, 3) == expected
        addresses.add(cache.own[0][0].data_ptr())
    assert cache.length == 3 * ALIGNMENT
    if share_rows:
        assert len(addresses) <= 5


def test_without_beams_only_sentences_are_selected() -> None:
    cache = start(3, share_rows=False)
    step(cache, torch.tensor([[1.0], [2.0], [3.0]]))
    cache.select(None, np.array([2, 0]))
    step(cache, torch.tensor([[30.0], [10.0]]))
    assert histories(cache, 1) == [[[3, 30]], [[1, 10]]]
    assert cache.memory[0][0].flatten().tolist() == [2, 0]
