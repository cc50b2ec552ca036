"""Checkpoints that a thread writes are those that training would write itself."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.harness import outcome

from mtcli.errors import StorageError
from mtcli.storage import checkpoint, model_file
from mtcli.training import saving
from mtcli.training.learner import Learner
from mtcli.training.saving import BackgroundTask, HostCopy

Train = Callable[..., Path]
SETTINGS = ("train.max_steps=6", "train.save_every=2", "train.valid_every=4", "train.average=2", "decode.max_extra=1")


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "writes_in_background", lambda device: True)


def test_a_gpu_writes_in_the_background_and_a_cpu_does_not() -> None:
    assert saving.writes_in_background(torch.device("cuda"))
    assert not saving.writes_in_background(torch.device("cpu"))


def test_a_task_runs_in_a_thread_and_the_next_one_waits_for_it() -> None:
    tasks = BackgroundTask()
    may_end = threading.Event()
    order: list[str] = []

    def first() -> None:
        may_end.wait()
        order.append("first")

    tasks.start(first)
    assert not order
    threading.Timer(0.05, may_end.set).start()
    tasks.start(lambda: order.append("second"))
    assert order[0] == "first"
    tasks.wait()
    assert order == ["first", "second"]


def test_the_error_of_a_task_is_raised_once() -> None:
    def fail() -> None:
        raise StorageError("the disk is full")

    tasks = BackgroundTask()
    tasks.start(fail)
    with pytest.raises(StorageError, match="the disk is full"):
        tasks.wait()
    tasks.wait()
    tasks.start(fail)
    with pytest.raises(StorageError, match="the disk is full"):
        tasks.start(fail)
    tasks.wait()


def test_a_copy_keeps_its_values_when_the_tensors_change() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3).t(), "step": torch.tensor(3.0)}
    copies = HostCopy()
    taken = copies.take(tensors)
    copies.wait()
    tensors["a"] += 1
    assert torch.equal(taken["a"], torch.arange(6.0).view(2, 3).t())
    assert taken["a"].is_contiguous()
    again = copies.take(tensors)
    assert again["a"].data_ptr() == taken["a"].data_ptr()  # the memory is used again
    assert torch.equal(again["a"], tensors["a"])


def test_a_run_with_background_checkpoints_equals_one_without(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: None
) -> None:
    writers: set[threading.Thread] = set()
    write = checkpoint.write

    def noting(*arguments: Any) -> Path:
        writers.add(threading.current_thread())
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "write", noting)
    inside = train_toy(tmp_path / "background", *SETTINGS)
    assert threading.main_thread() not in writers
    monkeypatch.setattr(saving, "writes_in_background", lambda device: False)
    assert outcome(inside) == outcome(train_toy(tmp_path / "foreground", *SETTINGS))


def test_training_continues_while_a_checkpoint_is_written(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: None
) -> None:
    """The first checkpoint is complete only after a later step, and has the weights of its own step."""
    steps: list[int] = []
    third_step = threading.Event()
    model_bytes = model_file.model_bytes
    take_step = Learner.step

    def late_bytes(*arguments: Any) -> bytes:
        assert third_step.wait(timeout=60)
        return model_bytes(*arguments)

    def noted_step(self: Learner, batches: Any, number: int, *more: Any) -> Any:
        steps.append(number)
        result = take_step(self, batches, number, *more)
        if number == 3:
            third_step.set()
        return result

    monkeypatch.setattr(model_file, "model_bytes", late_bytes)
    monkeypatch.setattr(Learner, "step", noted_step)
    settings = ("train.max_steps=4", "train.save_every=2", "train.valid_every=4", "train.average=1", "train.keep=9")
    inside = train_toy(tmp_path / "background", *settings)
    assert steps == [1, 2, 3, 4]
    monkeypatch.setattr(saving, "writes_in_background", lambda device: False)
    assert outcome(inside) == outcome(train_toy(tmp_path / "foreground", *settings))


def test_a_failure_in_the_background_ends_training_with_its_message(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: None
) -> None:
    write = checkpoint.write

    def fail_at_4(folder: Path, step: int, *more: Any) -> Path:
        if step == 4:
            raise StorageError("no space left; free some space and run the same command again")
        return write(folder, step, *more)

    monkeypatch.setattr(checkpoint, "write", fail_at_4)
    with pytest.raises(StorageError, match="free some space"):
        train_toy(tmp_path / "run", *SETTINGS)
    assert [path.name for path in checkpoint.steps(tmp_path / "run" / "checkpoints")] == ["step-00000002"]
    monkeypatch.setattr(checkpoint, "write", write)
    resumed = train_toy(tmp_path / "run", *SETTINGS)
    assert outcome(resumed) == outcome(train_toy(tmp_path / "whole", *SETTINGS))


def test_a_failed_run_waits_for_its_last_checkpoint(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: None
) -> None:
    """The folder is locked until the thread has ended, and the error of training is the one that is reported."""
    failed = threading.Event()
    write = checkpoint.write
    take_step = Learner.step

    def late_write(*arguments: Any) -> Path:
        assert failed.wait(timeout=60)
        return write(*arguments)

    def fail_at_3(self: Learner, batches: Any, number: int, *more: Any) -> Any:
        if number == 3:
            failed.set()
            raise RuntimeError("broken")
        return take_step(self, batches, number, *more)

    monkeypatch.setattr(checkpoint, "write", late_write)
    monkeypatch.setattr(Learner, "step", fail_at_3)
    with pytest.raises(RuntimeError, match="broken"):
        train_toy(tmp_path / "run", *SETTINGS)
    assert [path.name for path in checkpoint.steps(tmp_path / "run" / "checkpoints")] == ["step-00000002"]
