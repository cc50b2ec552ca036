"""`tokenizer.file`: training with a tokenizer that exists already."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv

from mtcli.cli.tokenizer import train as train_command
from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.config.toml_file import to_toml
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import ModelError, UsageError
from mtcli.text.tokenizer.learning import train_tokenizer, train_tokenizer_on_lines
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.dry_run import dry_run
from mtcli.training.request import resolve
from mtcli.training.run import train
from mtcli.translate.loading import load

PAIRS = toy_pairs(100)
TEXT = [text for pair in PAIRS for text in pair]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Write a tokenizer that no training on `PAIRS` would train."""
    path = tmp_path / "given" / "tokenizer.json"
    path.parent.mkdir()
    train_tokenizer_on_lines([text.upper() for text in TEXT] + TEXT, vocab_size=330).save(path)
    return path


def config(tmp_path: Path, file: Path | str, *sets: str, src: str = "en", tgt: str = "xx") -> Config:
    pairs = write_tsv(tmp_path / "toy.tsv", PAIRS)
    values = {"data.train": [str(pairs)], "data.src": src, "data.tgt": tgt, "tokenizer.file": str(file)}
    return build(None, values, sets)


def separate(folder: Path, src: str, tgt: str) -> Path:
    """Write a tokenizer with two vocabularies into the folder of a run from one language into another."""
    folder.mkdir()
    train_tokenizer(PAIRS, vocab_size=300, joint=False).save(folder / "tokenizer.json")
    (folder / "config.toml").write_text(to_toml(build(None, {"data.src": src, "data.tgt": tgt})))
    return folder


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_given_tokenizer_is_used_and_copied(tmp_path: Path, given: Path, as_folder: bool) -> None:
    named = given.parent if as_folder else given
    ready = prepare(config(tmp_path, named), tmp_path / "run")
    assert ready.tokenizer.digest() == Tokenizer.load(given).digest()
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == given.read_bytes()


def test_a_resumed_run_refuses_another_tokenizer_and_needs_no_file(tmp_path: Path, given: Path) -> None:
    wanted = config(tmp_path, given)
    run = tmp_path / "run"
    prepare(wanted, run)
    copy = (run / "tokenizer.json").read_bytes()
    for is_lost in (False, True):
        train_tokenizer_on_lines(TEXT, vocab_size=300).save(given)
        if is_lost:
            (run / "tokenizer.json").unlink()
        with pytest.raises(ModelError, match=r"changed since this run began \(SHA-256 then .*, now .*\); put the old"):
            prepare(wanted, run)
        given.write_bytes(copy)
        prepare(wanted, run)
        assert (run / "tokenizer.json").read_bytes() == copy
    given.unlink()
    prepare(wanted, run)
    (run / "data" / "train.arrow").unlink()
    prepare(wanted, run)
    assert (run / "tokenizer.json").read_bytes() == copy


def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path: Path, given: Path) -> None:
    with pytest.raises(ModelError, match=r"none: No such file.*; name a run folder, or a file that `mtcli tokenizer"):
        prepare(config(tmp_path, tmp_path / "none"), tmp_path / "run")
    given.write_text(given.read_text()[:100])
    with pytest.raises(ModelError, match=r"tokenizer\.file: cannot use .*not JSON"):
        prepare(config(tmp_path, given), tmp_path / "run")


def test_separate_vocabularies_need_their_direction(tmp_path: Path) -> None:
    run = separate(tmp_path / "forward", "en", "xx")
    ready = prepare(config(tmp_path, run), tmp_path / "run")
    assert not ready.tokenizer.joint
    with pytest.raises(UsageError, match="has vocabularies for en → xx, and this training is xx → en; name one with a"):
        prepare(config(tmp_path, run, src="xx", tgt="en"), tmp_path / "other")
    (run / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"no config\.toml beside it says for which languages"):
        prepare(config(tmp_path, run), tmp_path / "other")


@pytest.mark.parametrize("setting", ["vocab_size=500", "type=word", "joint=false"])
def test_settings_of_a_new_tokenizer_are_refused_beside_a_file(setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(UsageError, match=rf"tokenizer\.{name}: is for a new tokenizer, and tokenizer\.file names one"):
        build(None, {}, ["tokenizer.file=x", f"tokenizer.{setting}"])


def test_the_vocabulary_size_of_the_demo_is_no_setting_of_the_user() -> None:
    assert build(None, {}, ["tokenizer.file=x"]).tokenizer.vocab_size is None


def test_a_model_to_start_from_brings_its_own_tokenizer(toy_run: Path, toy_tsv: Path) -> None:
    values = {"data.train": [str(toy_tsv)]}
    with pytest.raises(UsageError, match=r"--init brings the tokenizer of its model, so omit tokenizer\.file"):
        resolve(None, values, ["tokenizer.file=x"], init=toy_run)


def test_a_tokenizer_in_the_run_folder_is_not_overwritten(tmp_path: Path, toy_run: Path, toy_tsv: Path) -> None:
    values = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx"}
    with pytest.raises(UsageError, match="--out"):
        resolve(None, values, [f"tokenizer.file={toy_run}"], out=toy_run, overwrite=True)


def test_a_missing_tokenizer_deletes_no_run(tmp_path: Path, train_toy: Callable[..., Path], given: Path) -> None:
    run = tmp_path / "run"
    train_toy(run, "train.max_steps=1")
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(ModelError, match="No such file"):
        train(config(tmp_path, "none"), run, torch.device("cpu"), overwrite=True)
    assert (run / "model.safetensors").read_bytes() == before


def test_models_of_other_pairs_can_be_combined(tmp_path: Path, toy_run: Path) -> None:
    settings = [text for text in TOY_SETTINGS if not text.startswith("tokenizer.")]
    run = tmp_path / "run"
    train(config(tmp_path, toy_run, *settings, "train.max_steps=1"), run, torch.device("cpu"))
    translator, _, _ = load((toy_run, run), "cpu")
    assert translator.tokenizer.digest() == Tokenizer.load(toy_run / "tokenizer.json").digest()


def test_placeholder_tokens_can_be_trained_in_advance(tmp_path: Path, given: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.placeholders: the given tokenizer has no placeholder tokens"):
        prepare(config(tmp_path, given, "data.placeholders=true"), tmp_path / "run")
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    train_command([str(tmp_path / "text.txt")], tmp_path / "with.json", placeholders=True)
    ready = prepare(config(tmp_path, tmp_path / "with.json", "data.placeholders=true"), tmp_path / "run")
    assert ready.tokenizer.has_placeholders


def test_the_plan_names_the_file(tmp_path: Path, given: Path) -> None:
    rows = dict(dry_run(config(tmp_path, given, "train.max_steps=5"), tmp_path / "run", torch.device("cpu")))
    assert rows["vocabulary"] == f"330 tokens (bpe, joint), from {given}"
    assert not (tmp_path / "run").exists()


def test_an_imported_tokenizer_is_refused(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "sentencepiece", ("src", "tgt"))
    with pytest.raises(UsageError, match="is of an imported model; fine-tune that with --init"):
        prepare(config(tmp_path, given), tmp_path / "run")
