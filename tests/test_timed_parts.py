from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli.training.time.timed_parts import FIRST_PART, Deadline, parts, spread


class Clock:
    """A clock that only advances when work is done."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def work(total: int, allowed: float, seconds_each: float, slower: float = 1.0, after: float = 0.5) -> tuple[int, float]:
    """Return how many items are done and how many seconds they take; each `slower` times as long from `after` on."""
    clock = Clock()
    done = 0
    for part in parts(total, Deadline(clock.now + allowed, clock)):
        assert part.start == done
        factor = slower if clock.now - 1000 >= after * allowed else 1.0
        clock.now += len(part) * seconds_each * factor
        done = part.stop
    return done, clock.now - 1000


def test_without_a_deadline_there_is_one_part() -> None:
    assert list(parts(5000, None)) == [range(5000)]


@given(st.integers(0, 10_000), st.floats(0.01, 1000), st.floats(1e-6, 10), st.floats(1, 5), st.floats(0, 1))
def test_work_ends_in_time_at_any_speed(total: int, allowed: float, each: float, slower: float, after: float) -> None:
    done, seconds = work(total, allowed, each, slower, after)
    first = min(total, FIRST_PART) * each * slower
    assert seconds <= max(1.25 * allowed, allowed + 2 * first)
    assert done >= min(total, FIRST_PART)
    if slower == 1:
        assert seconds <= allowed + first
        if total * each <= 0.99 * allowed:
            assert done == total
        else:
            assert done >= min(total, 0.9 * allowed / each - 2 * FIRST_PART)


def test_parts_grow_and_only_the_last_one_is_small() -> None:
    clock = Clock()
    sizes = []
    for part in parts(1000, Deadline(clock.now + 1e9, clock)):
        clock.now += 0.001 * len(part)
        sizes.append(len(part))
    assert sizes == [16, 128, 856]
    assert all(later >= earlier for earlier, later in pairwise(sizes[:-1]))


def test_a_fixed_cost_of_each_part_is_learnt() -> None:
    clock = Clock()
    sizes = []
    for part in parts(1000, Deadline(clock.now + 5, clock)):
        clock.now += 0.5 + 0.001 * len(part)
        sizes.append(len(part))
    assert clock.now - 1000 <= 5
    assert sum(sizes) >= 700  # 520 if the fixed time counted as time of the items


@pytest.mark.parametrize("total", [0, 1, 15, 17])
def test_few_items(total: int) -> None:
    assert work(total, 0.001, 1.0)[0] == min(total, FIRST_PART)
    assert work(total, 1000, 1.0)[0] == total


def test_spread_is_a_fixed_random_order() -> None:
    items = list(range(10_000))
    assert sorted(spread(items)) == items
    assert spread(items) == spread(items)
    assert 4000 < sum(spread(items)[:100]) / 100 < 6000
