"""The checkpoints of a run use its tokenizer, its pairs and its settings, however they are named."""

import shutil
from pathlib import Path

import pytest

from mtcli.corpus.held_out import read_split
from mtcli.evaluation.evaluate import EvaluationRequest, evaluate
from mtcli.report.info import summary
from mtcli.storage import checkpoint
from mtcli.storage.model_file import load_model
from mtcli.storage.model_folder import run_of, tokenizer_file


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_run, tmp_path / "run")


def newest(run: Path) -> Path:
    return checkpoint.steps(run / "checkpoints")[-1]


def test_the_run_of_a_checkpoint(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "best").symlink_to(newest(run))
    elsewhere = (run / "checkpoints").rename(tmp_path / "moved")
    (run / "checkpoints").symlink_to(elsewhere)
    assert run_of(run) == run
    assert run_of(newest(run)) == run
    (run / "checkpoints").unlink()
    elsewhere.rename(run / "checkpoints")
    assert run_of(tmp_path / "best") == run
    monkeypatch.chdir(newest(run))
    assert run_of(Path()) == run
    assert load_model(Path())[1] == load_model(newest(run))[1]
    exported = run / "exports" / "mine"
    exported.mkdir(parents=True)
    assert tokenizer_file(exported) == exported / "tokenizer.json"


def test_a_checkpoint_is_scored_as_its_run_is(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace("[train]", '[train]\nbleu_tokenizer = "char"'))
    (found,) = evaluate(EvaluationRequest((newest(run),), model_is_named=True, beam_size=1)).directions
    assert found.pairs == len(read_split(run, "test"))
    assert "tok:char" in found.scores[0].signature
    assert dict(summary(newest(run)))["score"] == f"mtcli eval --model {newest(run)}"
