"""TensorBoard shows the figures of `metrics.jsonl`, also after a resumption or a failure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import outcome

from mtcli.corpus.cache import prepare
from mtcli.errors import UsageError
from mtcli.storage.events import Metrics
from mtcli.training import tensorboard, trainer

pytest.importorskip("tensorboard")

from tensorboard.summary.writer import event_file_writer
from tensorboard.summary.writer.record_writer import RecordWriter

from mtcli.training.tensorboard import CurveWriter

Train = Callable[..., Path]
Curves = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def names_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count event files from 0: TensorBoard reads them by name, in which 10 comes before 9 within one second."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def curves(run: Path) -> Curves:
    """Return the curves as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard")).Reload()
    return {tag: [(p.step, p.value) for p in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def recorded(run: Path) -> Curves:
    """Return the curves of `metrics.jsonl`, without the speed."""
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


def start(run: Path, metrics_bytes: int) -> Metrics:
    """Return the metrics of a run that starts, or resumes at a checkpoint, connected to TensorBoard."""
    metrics = Metrics(run)
    metrics.cut(metrics_bytes)
    history, _ = metrics.read()
    metrics.on_event = CurveWriter(run, history).add
    return metrics


def test_a_resumed_run_shows_no_step_twice(tmp_path: Path) -> None:
    killed = start(tmp_path, 0)
    saved = killed.append("train", 50, train_line(50, 2.0))
    valid = {"loss": 2.0, "bleu": 1.5, "chrf": 9.0, "metric": "bleu", "pairs": 200, "of": 200, "seconds": 4.0}
    saved += killed.append("valid", 50, valid)
    saved += killed.append("train", 100, train_line(100, 5.0))
    killed.append("train", 150, train_line(150, 6.0, loss=9.0))
    assert curves(tmp_path)["train/loss"][-1] == (150, 9.0)
    resumed = start(tmp_path, saved)
    resumed.append("train", 150, train_line(150, 7.0, loss=0.25))
    found = curves(tmp_path)
    assert found.pop("train/tokens_per_second") == [(100, 100.0), (150, 50.0)]  # without the time of the validation
    assert found == recorded(tmp_path)
    assert found["train/loss"][-1] == (150, 0.25)


def test_a_tensorboard_that_is_open_follows_a_resumed_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = start(tmp_path, 0)
    saved = killed.append("train", 50, train_line(50, 2.0))
    killed.append("train", 100, train_line(100, 5.0, loss=9.0))
    watching = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [point.step for point in watching.Scalars("train/loss")] == [50, 100]
    resumed = start(tmp_path, saved)
    resumed.append("train", 100, train_line(100, 7.0, loss=0.25))
    points = watching.Reload().Scalars("train/loss")
    assert [(point.step, point.value) for point in points] == [(50, pytest.approx(0.02)), (100, 0.25)]


def test_a_damaged_line_of_metrics_loses_one_point_only(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for step in (50, 100):
        metrics.append("train", step, train_line(step, step / 10))
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join([b"{" + lines[0], *lines[1:]]))
    start(tmp_path, sum(map(len, lines)) + 1)
    assert [step for step, _ in curves(tmp_path)["train/loss"]] == [100]


def test_tensorboard_changes_nothing_else_and_can_be_turned_on_later(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 5)
    run = tmp_path / "run"
    plain = tmp_path / "plain"
    for out, more in ((run, "train.tensorboard=true"), (plain, "train.tensorboard=false")):
        train_toy(out, "train.max_steps=10", more)
    watched = {k: v for k, v in outcome(run).items() if not k.startswith(("tensorboard/", "config.toml"))}
    assert watched == {k: v for k, v in outcome(plain).items() if k != "config.toml"}
    assert {k: v for k, v in curves(run).items() if "tokens" not in k} == recorded(run)
    train_toy(plain, "train.max_steps=10", "train.tensorboard=true")  # already finished: only its curves are written
    assert {k: v for k, v in curves(plain).items() if "tokens" not in k} == recorded(plain)
    train_toy(plain, "train.max_steps=5", overwrite=True)  # deletes the folder tensorboard/ too
    assert not (plain / "tensorboard").exists()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the error ends a thread of the library
def test_a_full_disk_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    metrics = start(tmp_path, 0)
    monkeypatch.setattr(RecordWriter, "write", full)
    messages: list[str] = []
    monkeypatch.setattr(tensorboard.log, "warning", lambda text, *values: messages.append(text % values))
    for step in range(50, 1000, 50):  # a thread of the library fails, which a later event notices
        metrics.append("train", step, train_line(step, step / 10))
    assert messages == [
        "cannot write tensorboard/ ([Errno 28] No space left on device); its figures are also in metrics.jsonl"
    ]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 19


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tensorboard").write_text("a file")
    metrics = start(tmp_path, 0)
    metrics.append("train", 50, train_line(50, 2.0))
    assert caplog.text.count("cannot write tensorboard/") == 1


def test_without_the_extra_the_remedy_is_named(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="`pip install tensorboard`"):
        train_toy(tmp_path / "run", "train.tensorboard=true")
    assert not (tmp_path / "run").exists()
