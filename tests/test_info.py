import shutil
from pathlib import Path

import pytest
from toy import save_toy

from mtcli import checkpoint
from mtcli.average import average_run
from mtcli.errors import ModelError
from mtcli.export import export
from mtcli.info import summary
from mtcli.model_file import load_model, parameters


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_run, tmp_path / "run")


def test_a_run_in_words(run: Path) -> None:
    found = dict(summary(run))
    model, info, _ = load_model(run)
    assert found["run"] == f"{run}: finished at step 20 (budget used)"
    assert found["languages"] == "en → xx"
    assert found["model"].startswith("1 + 1 layers, d_model 16, d_ff 32, 2 heads, post-norm, sinusoidal positions; ")
    assert found["model"].endswith(f"; {sum(t.numel() for t in parameters(model).values()):,} parameters")
    assert found["vocabulary"] == f"{info.tgt_vocab} pieces for both sides"
    assert "300 pairs read" in found["data"]
    assert found["used"].endswith("of 20 steps")
    assert found["best"].startswith("BLEU ")
    assert found["checkpoints"].startswith("whole: ")
    assert found["translate"] == f'mtcli translate --model {run} "…"'
    assert "damaged" not in found


def test_what_is_damaged_or_unfinished_is_said(run: Path) -> None:
    newest = max((run / "checkpoints").iterdir())
    (newest / "state.json").write_bytes(b"{")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([*lines[:-1], "{"]))
    found = summary(run)
    assert ("run", f"{run}: at step 15, unfinished (figures up to step 20)") in found
    assert [text for name, text in found if name == "damaged"] == [
        "the checkpoint of step 20: state.json has another size than its manifest says",
        "1 line of metrics.jsonl",
    ]
    (run / "model.safetensors").unlink()
    without = dict(summary(run))
    assert without["model"].startswith("none yet")
    assert "translate" not in without
    assert dict(summary(newest))["checkpoint"].startswith(f"{newest}: damaged (state.json")


def test_a_run_stands_at_its_newest_whole_checkpoint_and_is_shown_by_its_own_name(run: Path) -> None:
    before = checkpoint.load(checkpoint.path_of(run / "checkpoints", 15))
    shutil.rmtree(checkpoint.path_of(run / "checkpoints", 20))
    checkpoint.write(run / "checkpoints", 17, b"", before.optimizer, before.state | {"step": 17, "seconds": 65.0})
    (run / "metrics.jsonl").write_text("")  # stopped before its first line
    link = run.with_name("latest")
    link.symlink_to(run.name)
    found = dict(summary(link))
    assert found["run"] == f"{run}: at step 17, unfinished"
    assert found["used"] == "17 steps and 1:05 of 20 steps"
    assert found["translate"] == f'mtcli translate --model {run} "…"'


def test_other_folders(run: Path, tmp_path: Path) -> None:
    steps = average_run(run, tmp_path / "mean", 2)
    mean = dict(summary(tmp_path / "mean"))
    assert mean["weights"] == f"the mean of the checkpoints of steps {steps[0]}, {steps[1]}"
    (tmp_path / "toy").mkdir()
    save_toy(tmp_path / "toy")
    assert dict(summary(tmp_path / "toy"))["weights"] == "of step 1"
    export(tmp_path / "toy", "ctranslate2", tmp_path / "ct2", "int8")
    exported = dict(summary(tmp_path / "ct2"))
    assert "to ctranslate2 in int8" in exported["exported"]
    assert exported["parity"] == "not compared with the run it is from"
    assert exported["translate"].startswith("mtcli translate")
    (tmp_path / "toy" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="damaged"):
        summary(tmp_path / "toy")
    with pytest.raises(ModelError, match="no run and no model here"):
        summary(tmp_path)
