"""The usable cores, and the threads that compute on them."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtcli.runtime import cores, memory
from mtcli.runtime.cores import Cores, usable_cores


@given(st.lists(st.integers()), st.integers(1, 4))
def test_map_yields_the_results_in_order(items: list[int], size: int) -> None:
    assert list(Cores(size).map(str, items)) == [str(item) for item in items]


@pytest.mark.parametrize("size", [2, 3])
def test_as_many_threads_as_cores_compute_at_the_same_time(size: int) -> None:
    together = threading.Barrier(size, timeout=60)  # raises unless so many threads meet

    def meet(_: int) -> int:
        together.wait()
        return torch.get_num_threads()

    assert list(Cores(size).map(meet, range(3 * size))) == [1] * 3 * size


def test_a_thread_that_divides_its_own_work_computes_it_itself() -> None:
    cores = Cores(2)

    def row(number: int) -> list[tuple[int, bool]]:
        own = threading.current_thread()
        return list(cores.map(lambda item: (number * item, threading.current_thread() is own), range(3)))

    assert list(cores.map(row, range(5))) == [[(number * item, True) for item in range(3)] for number in range(5)]


def test_one_core_is_the_calling_thread() -> None:
    (found,) = Cores(1).map(lambda _: threading.current_thread(), [0])
    assert found is threading.current_thread()


@pytest.mark.parametrize("size", [1, 3])
def test_the_first_error_is_raised_after_all_threads_have_stopped(size: int) -> None:
    running = set()

    def fail(number: int) -> int:
        running.add(number)
        time.sleep(0.02)
        running.remove(number)
        if number >= 2:
            raise ValueError(str(number))
        return number

    found = Cores(size).map(fail, range(20))
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(found)
    assert not running


def test_results_are_computed_a_few_ahead_of_their_consumer() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = Cores(3).map(str, items())
    next(found)
    assert len(taken) == 4
    found.close()  # type: ignore[attr-defined]
    assert len(taken) == 4


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A machine with a number of cores for this process, without a quota."""

    def build(num_cores: int) -> Path:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(num_cores)))
        monkeypatch.setattr(memory, "CGROUP", tmp_path)
        monkeypatch.setattr(cores, "CGROUP", tmp_path)
        monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "own")
        (tmp_path / "own").write_text("0::/slice/job\n")
        job = tmp_path / "slice" / "job"
        job.mkdir(parents=True, exist_ok=True)
        return job

    return build


def test_the_affinity_counts(machine: Callable[..., Path]) -> None:
    machine(5)
    assert usable_cores() == 5


@pytest.mark.parametrize(("quota", "expected"), [
        ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("max 100000", 8), ("", 8), ("x y", 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("outer", [False, True])
def test_the_quota_of_a_control_group_counts(
    quota: str, expected: int, outer: bool, machine: Callable[..., Path]
) -> None:
    job = machine(8)
    ((job.parent if outer else job) / "cpu.max").write_text(quota)
    assert usable_cores() == expected


def test_the_smallest_quota_counts(machine: Callable[..., Path]) -> None:
    job = machine(8)
    (job / "cpu.max").write_text("500000 100000")
    (job.parent / "cpu.max").write_text("300000 100000")
    assert usable_cores() == 3


@pytest.mark.parametrize(("quota", "expected"), [("250000", 3), ("-1", 8)])
def test_the_quota_of_an_old_control_group_counts(quota: str, expected: int, machine: Callable[..., Path]) -> None:
    folder = machine(8).parents[1] / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores() == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("1", 1), ("99", 8), ("4,2", 4), ("", 8), ("0", 8), ("x", 8)]
)
def test_omp_num_threads_is_an_upper_limit(
    value: str, expected: int, machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(8)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert usable_cores() == expected


@pytest.mark.parametrize(
    ("local", "value", "expected"), [(2, "1", 4), (3, "1", 2), (20, "1", 1), (2, "2", 2), (2, "", 4)]
)
def test_ranks_on_a_machine_share_its_cores(
    local: int, value: str, expected: int, machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun sets `OMP_NUM_THREADS=1` itself."""
    machine(8)
    launched = {
        "RANK": 0,
        "WORLD_SIZE": 2 * local,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 1,
        "LOCAL_WORLD_SIZE": local,
    }
    for name, number in launched.items():
        monkeypatch.setenv(name, str(number))
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert usable_cores() == expected
