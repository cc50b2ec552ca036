"""The engine of a run: written at the end of training, used instead of PyTorch only where it is proven equal."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import toy_pairs, write_tsv
from helpers.command import call

from mtcli.config.schema import Config, DecodeConfig, ModelConfig, TrainConfig
from mtcli.errors import ModelError
from mtcli.exchange import engine_export as writing
from mtcli.report.info import summary
from mtcli.storage import ENGINE, PROVENANCE, model_folder
from mtcli.storage.state import State
from mtcli.training import after_training
from mtcli.training.after_training import update_run_engine
from mtcli.training.time.final_work import uninterrupted_seconds
from mtcli.translate.backends import run_engine
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.backends.run_engine import RunEngine, SearchComparison
from mtcli.translate.loading import load
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

pytest.importorskip("ctranslate2")

HELD_OUT = toy_pairs(60, seed=9)
SOURCES = [src for src, _ in HELD_OUT]
SETTINGS = ("train.max_steps=20", "train.lr=0.02", "train.average=1")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("held-out") / "valid.tsv", HELD_OUT)


@pytest.fixture(scope="module")
def trained(train_toy: Callable[..., Path], held_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an engine. Do not change it."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return train_toy(out, *SETTINGS, f'data.valid="{held_out}"')


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy with the same times of the files."""
    return shutil.copytree(trained, tmp_path / "run")


def change_proof(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = run / ENGINE / PROVENANCE
    about = json.loads(path.read_text())
    change(about["proof"])
    path.write_text(json.dumps(about))


def uses_engine(run: Path, device: str = "cpu", **options: Any) -> bool:
    translator, _, _ = load([run], device, "auto", options)
    return isinstance(translator.backend, RunEngine)


def engine_row(run: Path) -> str:
    return dict(summary(run))["engine"]


def test_both_libraries_give_the_same_translations(trained: Path) -> None:
    engine, options, languages = load([trained], "cpu", "auto")
    pytorch, options_of_pytorch, languages_of_pytorch = load([trained], "cpu", "torch")
    assert isinstance(engine.backend, RunEngine)
    assert isinstance(pytorch.backend, PyTorchBackend)
    assert (options, languages) == (options_of_pytorch, languages_of_pytorch)
    assert [search.beam_size for search in engine.backend.proof.searches] == [1, 4]
    assert all(search.sentences == writing.NUM_SENTENCES for search in engine.backend.proof.searches)
    assert engine_row(trained).startswith("ctranslate2 on a CPU: ")
    for changed in (
        options,
        replace(options, beam_size=1),
        replace(options, beam_size=1, max_length=2),
        replace(options, length_penalty=0.0, max_length=3),
    ):
        pairs = zip(engine.translate(SOURCES, changed), pytorch.translate(SOURCES, changed), strict=True)
        for ours, theirs in pairs:
            assert ours.text == theirs.text
            assert ours.candidates[0].score == pytest.approx(theirs.candidates[0].score, abs=1e-4)


def test_a_command_without_pytorch(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; from mtcli.cli.entry import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "translate", "--model", str(trained), "red tree."]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.split()[-1] == "False"
    assert done.stdout == call(capsys, "translate", "--model", trained, "--engine", "torch", "red tree.")


def test_options_that_only_pytorch_supports(trained: Path) -> None:
    assert uses_engine(trained, beam_size=2, max_length=9)
    assert not uses_engine(trained, n_best=2)
    assert not uses_engine(trained, beam_size=17)
    assert uses_engine(trained, alignments=True)
    assert not uses_engine(trained, early_stopping=False)
    assert not uses_engine(trained, precision="bf16")
    engine, options, _ = load([trained], "cpu", "auto")
    pytorch, _, _ = load([trained], "cpu", "torch")
    several = replace(options, n_best=3, alignments=True)
    assert list(engine.translate(SOURCES[:5], several)) == list(pytorch.translate(SOURCES[:5], several))


def test_greedy_repairs_without_pytorch(trained: Path) -> None:
    """A token that would repeat an n-gram is never the next one, with either library.

    After so few steps a model usually repeats itself, in lines that are longer than any pair of its training.
    """
    engine, options, _ = load([trained], "cpu", "auto")
    pytorch, _, _ = load([trained], "cpu", "torch")
    lines = [" ".join(SOURCES[first : first + 3]) for first in range(20)]
    repaired = replace(options, beam_size=1, scores=True, repair=True)
    found = list(engine.translate(lines, repaired, Reading(warn=False)))
    expected = list(pytorch.translate(lines, repaired, Reading(warn=False)))
    assert isinstance(engine.backend, RunEngine)
    assert engine.backend.pytorch is None
    assert [one.text for one in found] == [one.text for one in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.candidates[0].score == pytest.approx(theirs.candidates[0].score, abs=1e-4)


def test_alignments_without_pytorch(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytorch, options, _ = load([trained], "cpu", "torch")
    aligned = replace(options, alignments=True)
    expected = [found.candidates[0] for found in pytorch.translate(SOURCES, aligned)]
    engine, _, _ = load([trained], "cpu", "auto")
    monkeypatch.setattr("mtcli.translate.backends.pytorch.PyTorchBackend.load", None)
    for ours, candidate in zip(engine.translate(SOURCES, aligned), expected, strict=True):
        assert (ours.text, ours.candidates[0].alignment) == (candidate.text, candidate.alignment)


def test_only_on_a_cpu(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses_engine(trained, "auto") == (not torch.cuda.is_available())
    monkeypatch.setattr("mtcli.runtime.device.pick_device", lambda name: torch.device("cuda"))
    assert run_engine.load_run_engine(trained, "auto", Options()) is None
    assert run_engine.load_run_engine(trained, "cuda", Options()) is None


def test_pytorch_is_imported_only_if_there_may_be_a_gpu(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(run_engine, "_may_have_gpu", lambda: False)
    monkeypatch.setattr("mtcli.runtime.device.pick_device", None)
    assert run_engine._is_cpu("auto")


def worse(proof: dict[str, Any]) -> None:
    proof["searches"][1]["equal"] -= 5


def other_scores(proof: dict[str, Any]) -> None:
    proof["searches"][0]["max_score_difference"] = 0.00101


def other_version(proof: dict[str, Any]) -> None:
    proof["ctranslate2"] = "4.0.0"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (worse, "differs from PyTorch: 59 of 64 translations equal (beam 4), fewer than 98%"),
        (
            other_scores,
            "differs from PyTorch: 64 of 64 translations equal (greedy), scores differ by up to 0.00101, "
            "more than 0.001",
        ),
        (other_version, "was compared with ctranslate2 4.0.0"),
        (dict.clear, "has no comparison"),
        (lambda proof: proof["searches"].clear(), "nothing was compared"),
    ],
)
def test_pytorch_translates_without_a_proof(run: Path, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    change_proof(run, change)
    assert not uses_engine(run)
    assert engine_row(run).startswith("torch: ")
    assert reason in engine_row(run)


def keep_time(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_pytorch_translates_if_the_model_is_another(run: Path) -> None:
    model = run / "model.safetensors"
    contents = [path.read_bytes() for path in run.glob("checkpoints/*/model.safetensors")]
    other = next(content for content in contents if content != model.read_bytes())
    assert len(other) == model.stat().st_size
    keep_time(model, other)
    assert not uses_engine(run)
    assert "model.safetensors has changed" in engine_row(run)
    with pytest.raises(ModelError, match="has changed since"):
        load([run], "cpu", "ctranslate2")


def test_a_loaded_engine_does_not_translate_with_another_model(run: Path) -> None:
    engine, options, _ = load([run], "cpu", "auto")
    assert isinstance(engine.backend, RunEngine)
    model = run / "model.safetensors"
    contents = [path.read_bytes() for path in run.glob("checkpoints/*/model.safetensors")]
    model.write_bytes(next(content for content in contents if content != model.read_bytes()))
    with pytest.raises(ModelError, match="has another model"):
        list(engine.translate(SOURCES[:1], replace(options, n_best=2)))


def test_pytorch_translates_if_the_model_was_edited(run: Path) -> None:
    model = run / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert "model.safetensors has changed" in engine_row(run)
    with pytest.raises(ModelError, match="damaged"):
        load([run], "cpu", "auto")


def test_a_copied_run_keeps_its_engine(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    hash_file = model_folder.sha256
    monkeypatch.setattr(model_folder, "sha256", lambda path: read.append(path) or hash_file(path))
    assert uses_engine(run)
    assert read == []  # a large model is not read at every start
    (run / "model.safetensors").touch()
    assert uses_engine(run)
    assert read == [run / "model.safetensors"]


def test_pytorch_translates_if_a_file_changed(run: Path) -> None:
    (run / ENGINE / "model.bin").write_bytes(b"damaged")
    assert not uses_engine(run)
    (run / "tokenizer.json").write_text((run / "tokenizer.json").read_text() + " ")
    assert "tokenizer.json has changed" in engine_row(run)
    shutil.rmtree(run / ENGINE)
    assert not uses_engine(run)
    assert engine_row(run).startswith("torch: training wrote no engine; ")
    assert "the same `mtcli train` command writes it" in engine_row(run)


def test_the_engine_that_the_user_asks_for(run: Path) -> None:
    change_proof(run, worse)
    translator, _, _ = load([run], "cpu", "ctranslate2")
    assert type(translator.backend) is CTranslate2Backend
    shutil.rmtree(run / ENGINE)
    with pytest.raises(ModelError, match="no exported model here"):
        load([run], "cpu", "ctranslate2")


def test_a_killed_conversion_is_repeated(
    run: Path, train_toy: Callable[..., Path], held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    valid = f'data.valid="{held_out}"'
    shutil.rmtree(run / ENGINE)
    with monkeypatch.context() as patch:
        patch.setattr(writing, "compare", killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(run, *SETTINGS, valid)
    assert not (run / ENGINE).exists()
    assert not uses_engine(run)
    left = run / f".{ENGINE}.tmp"  # a process that was killed cannot delete it
    left.mkdir()
    (left / "model.bin").write_bytes(b"incomplete")
    train_toy(run, *SETTINGS, valid)
    assert uses_engine(run)
    assert not left.exists()


def test_a_failure_leaves_a_finished_run(
    run: Path, train_toy: Callable[..., Path], held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    shutil.rmtree(run / ENGINE)
    monkeypatch.setattr(writing, "write_model", full)
    train_toy(run, *SETTINGS, f'data.valid="{held_out}"')
    assert not (run / ENGINE).exists()
    assert not uses_engine(run)


@pytest.mark.parametrize(
    ("sources", "seconds"), [(SOURCES, 0.0), (SOURCES[:5], 60.0), (["red " * 200] * 30, 60.0), (SOURCES, 1e-9)]
)
def test_no_engine_without_time_or_sentences(run: Path, sources: Sequence[str], seconds: float) -> None:
    change_proof(run, lambda proof: proof["model"].update(digest="another"))
    with nullcontext() if seconds == 60 else pytest.raises(writing.NoTimeError):
        writing.update_engine(run, sources, lambda: seconds)
    assert not (run / ENGINE).exists()


@pytest.mark.parametrize(
    ("in_budget", "remedy"),
    [(True, "run the same command again"), (False, "`mtcli export {run} --to ctranslate2` converts it")],
)
def test_too_little_time_is_reported(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_budget: bool, remedy: str
) -> None:
    shutil.rmtree(run / ENGINE)
    monkeypatch.setattr(writing, "MIN_SENTENCES", 1000)  # the time is over before as many are compared
    monkeypatch.setattr(writing, "_short_sentences", lambda sources, tokenizer: [*sources] * 20)
    monkeypatch.setattr("mtcli.training.after_training.can_have_engine", lambda config, num: True)
    session: Any = SimpleNamespace(
        run=run,
        data=SimpleNamespace(valid=HELD_OUT, test=[]),
        config=Config(train=TrainConfig(time=3600)),
        state=SimpleNamespace(seconds=3590, checkpoint_seconds=0),
        count_time=lambda: None,
        clock=iter([0.0, *[9.0] * 2, *[100.0] * 9]).__next__,
    )
    with caplog.at_level(logging.INFO):
        update_run_engine(session, [], in_budget=in_budget)
    assert f"no time was left to convert the model for faster translation; {remedy.format(run=run)}" in caplog.text


def test_the_engine_leaves_the_time_that_is_reserved_for_work_without_interruption(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    monkeypatch.setattr(after_training, "update_engine", lambda run, sources, seconds_left: left.append(seconds_left()))
    state = State(seconds=90.0, save_seconds=1.5)
    session: Any = SimpleNamespace(
        run=run,
        data=SimpleNamespace(valid=HELD_OUT, test=[]),
        config=Config(train=TrainConfig(time=100)),
        state=state,
        count_time=lambda: None,
        clock=lambda: 0.0,
    )
    after_training.update_run_engine(session, [], in_budget=True)
    assert left == [10.0 - uninterrupted_seconds(state)]
    assert uninterrupted_seconds(state) > 0


def test_training_after_a_conversion_gives_the_same_model(
    train_toy: Callable[..., Path], held_out: Path, tmp_path: Path
) -> None:
    models = []
    for name, engine in (("a", "false"), ("b", "true"), ("c", "false")):
        out = train_toy(tmp_path / name, "train.max_steps=2", f'data.valid="{held_out}"', f"train.engine={engine}")
        assert (out / ENGINE).exists() == (engine == "true")
        models.append((out / "model.safetensors").read_bytes())
    assert models[0] == models[1] == models[2]


def test_models_that_cannot_be_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = writing.MIN_SENTENCES
    assert writing.can_have_engine(Config(), enough)
    assert not writing.can_have_engine(Config(), enough - 1)
    assert not writing.can_have_engine(Config(train=TrainConfig(engine=False)), enough)
    assert not writing.can_have_engine(Config(decode=DecodeConfig(early_stopping=False)), enough)
    assert not writing.can_have_engine(Config(decode=DecodeConfig(precision="bf16")), enough)
    assert not writing.can_have_engine(Config(model=ModelConfig(d_k=16)), enough)
    monkeypatch.setattr(writing, "find_spec", lambda name: None)
    assert not writing.can_have_engine(Config(), enough)


def test_agreement_of_a_search() -> None:
    search = SearchComparison(beam_size=1, sentences=50, equal=49, max_score_difference=1e-5)
    assert search.agrees
    assert str(search) == "49 of 50 translations equal (greedy)"
    assert not search.model_copy(update={"equal": 48}).agrees
    assert not search.model_copy(update={"max_score_difference": float("nan")}).agrees
    assert not search.model_copy(update={"sentences": 0, "equal": 0}).agrees
