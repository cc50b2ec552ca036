import json
import shutil
from pathlib import Path

import pytest
from helpers.toy import save_toy

from mtcli import __version__
from mtcli.corpus.cache.info import DataInfo
from mtcli.errors import ModelError
from mtcli.exchange.export import export
from mtcli.report.info import summary
from mtcli.storage import checkpoint
from mtcli.storage.model_file import load_model, parameters
from mtcli.training.averaging import average_run


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_run, tmp_path / "run")


def test_summary_of_a_run(run: Path) -> None:
    found = dict(summary(run))
    model, info, _ = load_model(run)
    assert found["run"] == f"{run}: finished at step 20 (budget used)"
    assert found["languages"] == "en → xx"
    assert found["model"].startswith("1 + 1 layers, d_model 16, d_ff 32, 2 heads, post-norm, sinusoidal positions; ")
    assert found["model"].endswith(f"; {sum(t.numel() for t in parameters(model).values()):,} parameters")
    assert found["vocabulary"] == f"{info.tgt_vocab} tokens for both sides"
    assert "300 pairs read" in found["data"]
    assert found["used"].endswith("of 20 steps")
    assert found["best"].startswith("BLEU ")
    assert found["checkpoints"].startswith("whole: ")
    assert found["report"] == f"{run / 'report.html'}"
    assert found["translate"] == f'mtcli translate --model {run} "…"'
    assert found["score"] == f"mtcli eval --model {run}"
    assert not found.keys() & {"damaged", "resume"}


def test_damaged_and_unfinished_parts_are_named(run: Path) -> None:
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
    assert without["resume"] == "run the same `mtcli train` command again"
    damaged = dict(summary(newest))
    assert damaged["checkpoint"].startswith(f"{newest}: damaged (state.json")
    assert damaged["next"] == f"use another checkpoint; `mtcli info {run}` lists them"
    assert "translate" not in damaged
    whole = dict(summary(checkpoint.path_of(run / "checkpoints", 15)))
    assert whole["translate"].startswith("mtcli translate --model ")


def test_a_checkpoint_that_a_running_training_deletes_is_not_damaged(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = checkpoint.steps(run / "checkpoints")[0]
    verify = checkpoint.verify

    def delete_and_verify(path: Path) -> str | None:
        shutil.rmtree(oldest, ignore_errors=True)
        return verify(path)

    monkeypatch.setattr(checkpoint, "verify", delete_and_verify)
    assert "damaged" not in dict(summary(run))


def test_a_run_whose_corpus_cannot_be_looked_up_is_described_without_it(run: Path) -> None:
    info = DataInfo.read(run)
    info.settings["data"]["train"] = ["x" * 300 + "@2"]
    info.write(run)
    assert "corpus" not in dict(summary(run))


def test_a_file_that_is_deleted_has_no_size(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.walk", lambda _: [(str(run), [], ["config.toml", "deleted"])])
    assert dict(summary(run))["on disk"].endswith("kB")


def test_a_run_is_at_its_newest_undamaged_checkpoint_and_shown_by_its_own_name(run: Path) -> None:
    before = checkpoint.load(checkpoint.path_of(run / "checkpoints", 15))
    shutil.rmtree(checkpoint.path_of(run / "checkpoints", 20))
    checkpoint.write(run / "checkpoints", 17, b"", before.optimizer, before.state | {"step": 17, "seconds": 65.0})
    (run / "metrics.jsonl").write_text("")  # as if stopped before the first event
    link = run.with_name("latest")
    link.symlink_to(run.name)
    found = dict(summary(link))
    assert found["run"] == f"{run}: at step 17, unfinished"
    assert found["used"] == "17 steps and 1:05 of 20 steps"
    assert found["translate"] == f'mtcli translate --model {run} "…"'


def test_summary_of_other_folders(run: Path, tmp_path: Path) -> None:
    steps = average_run(run, tmp_path / "mean", 2)
    mean = dict(summary(tmp_path / "mean"))
    assert mean["average"] == str(tmp_path / "mean")
    assert mean["weights"] == f"the mean of the checkpoints of steps {steps[0]}, {steps[1]}"
    assert mean["score"] == f"mtcli eval --model {tmp_path / 'mean'}"
    (tmp_path / "toy").mkdir()
    save_toy(tmp_path / "toy")
    assert dict(summary(tmp_path / "toy"))["weights"] == "of step 1"
    export(tmp_path / "toy", "ctranslate2", tmp_path / "ct2", "int8")
    exported = dict(summary(tmp_path / "ct2"))
    assert exported["exported"] == f"{tmp_path / 'ct2'}: to ctranslate2 in int8, from toy, by mtcli {__version__}"
    assert exported["parity"] == "not compared with the run it is from"
    assert exported["translate"].startswith("mtcli translate")
    assert exported["serve"] == f"mtcli serve --model {tmp_path / 'ct2'}"
    assert "score" not in exported
    about = json.loads((tmp_path / "ct2" / "mtcli.json").read_text())
    for version in (None, "0.1.2"):  # the first ones did not name their version
        (tmp_path / "ct2" / "mtcli.json").write_text(json.dumps(about | {"mtcli": version}))
        with pytest.raises(ModelError, match=f"^{tmp_path / 'ct2'}: exported by mtcli 0.1, .*; export the model again"):
            summary(tmp_path / "ct2")
    (tmp_path / "toy" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="damaged"):
        summary(tmp_path / "toy")
    with pytest.raises(ModelError, match="no run and no model here"):
        summary(tmp_path)


def test_a_hugging_face_export_says_what_loads_it(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    save_toy(tmp_path / "toy")
    export(tmp_path / "toy", "huggingface", tmp_path / "hf")
    found = dict(summary(tmp_path / "hf"))
    assert found["exported"].startswith(f"{tmp_path / 'hf'}: to huggingface in float32, from toy")
    assert found["use"].startswith(f"transformers.AutoModelForSeq2SeqLM.from_pretrained('{tmp_path / 'hf'}')")
    assert "translate" not in found


@pytest.mark.parametrize("target", ["ctranslate2", "huggingface"])
def test_an_export_is_not_taken_for_a_missing_run(tmp_path: Path, target: str) -> None:
    (tmp_path / "toy").mkdir()
    save_toy(tmp_path / "toy")
    export(tmp_path / "toy", target, tmp_path / "out")
    with pytest.raises(ModelError, match=r"out: an exported model, .* name the run that it was exported from"):
        load_model(tmp_path / "out")
