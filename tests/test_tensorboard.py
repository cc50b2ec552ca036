"""What TensorBoard shows is what `metrics.jsonl` says, whatever happened to the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults.harness import outcome

from mtcli import prepare, trainer
from mtcli.errors import UsageError
from mtcli.run_folder import Metrics

pytest.importorskip("tensorboard")

Train = Callable[..., Path]
Curves = dict[str, list[tuple[int, float]]]


def curves(run: Path) -> Curves:
    """As TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard")).Reload()
    return {tag: [(p.step, p.value) for p in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def told(run: Path) -> Curves:
    """The same from `metrics.jsonl`, but for the pace."""
    wanted: Curves = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        for name in {"train": ("loss", "nll", "lr", "grad_norm"), "valid": ("loss", "bleu", "chrf")}.get(
            line["event"], ()
        ):
            wanted.setdefault(f"{line['event']}/{name}", []).append((line["step"], pytest.approx(line[name], rel=1e-6)))
    return wanted


def train_line(step: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "epoch": 0,
        "loss": 1 / step,
        "nll": 0.5,
        "lr": 0.1,
        "grad_norm": 1.0,
        "tokens": 100,
        "seconds": seconds,
    } | more


def test_a_run_that_went_back_shows_no_step_twice(tmp_path: Path) -> None:
    killed = Metrics(tmp_path, tensorboard=True)
    saved = killed.cut(0)
    saved += killed.append("train", 50, train_line(50, 2.0))
    saved += killed.append("valid", 50, {"loss": 2.0, "bleu": 1.5, "chrf": 9.0, "samples": [], "seconds": 4.0})
    saved += killed.append("train", 100, train_line(100, 5.0))
    killed.append("train", 150, train_line(150, 6.0, loss=9.0))
    assert curves(tmp_path)["train/loss"][-1] == (150, 9.0)
    resumed = Metrics(tmp_path, tensorboard=True)
    assert resumed.cut(saved) == saved
    resumed.append("train", 150, train_line(150, 7.0, loss=0.25))
    found = curves(tmp_path)
    assert found.pop("train/tokens_per_second") == [(100, 100.0), (150, 50.0)]  # the validation took no pace
    assert found == told(tmp_path)
    assert found["train/loss"][-1] == (150, 0.25)
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join([b"{" + lines[0], *lines[1:]]))
    Metrics(tmp_path, tensorboard=True).cut(sum(map(len, lines)) + 1)
    assert curves(tmp_path)["train/loss"] == found["train/loss"][1:]


def test_it_changes_nothing_else_and_may_be_asked_for_at_any_time(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 5)
    run, plain = tmp_path / "run", tmp_path / "plain"
    for out, more in ((run, "train.tensorboard=true"), (plain, "train.tensorboard=false")):
        train_toy(out, "train.max_steps=10", more)
    watched = {k: v for k, v in outcome(run).items() if not k.startswith(("tensorboard/", "config.toml"))}
    assert watched == {k: v for k, v in outcome(plain).items() if k != "config.toml"}
    assert {k: v for k, v in curves(run).items() if "tokens" not in k} == told(run)
    train_toy(plain, "train.max_steps=10", "train.tensorboard=true")  # finished, and only shown
    assert {k: v for k, v in curves(plain).items() if "tokens" not in k} == told(plain)
    train_toy(plain, "train.max_steps=5", overwrite=True)  # which knows the folder as its own
    assert not (plain / "tensorboard").exists()


def test_a_full_disk_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtcli import tensorboard

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    metrics = Metrics(tmp_path, tensorboard=True)
    metrics.cut(0)
    monkeypatch.setattr(tensorboard.RecordWriter, "write", full)
    said: list[str] = []
    monkeypatch.setattr(tensorboard.log, "warning", lambda text, *values: said.append(text % values))
    metrics.append("train", 50, train_line(50, 2.0))
    metrics.append("train", 100, train_line(100, 3.0))
    assert said == [
        "tensorboard/ cannot be written ([Errno 28] No space left on device); metrics.jsonl has its figures"
    ]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_without_the_extra_the_remedy_is_named(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="`pip install tensorboard`"):
        train_toy(tmp_path / "run", "train.tensorboard=true")
    assert not (tmp_path / "run").exists()
