"""Damaged, missing and malicious files of a model to import: refused with one line, and nothing is written."""

import json
import os
import random
import resource
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.harness import Result, cut, flip, limit, refused, run
from helpers.marian import TAGS, marian_folder
from safetensors.torch import load_file, save_file

from faults.conftest import Case
from faults.inputs import Count
from faults.test_security import is_safe, pickles

FILES = ("config.json", "source.spm", "target.spm", "vocab.json", "model.safetensors")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be imported."""
    return marian_folder(tmp_path_factory.mktemp("importing") / "origin", tags=TAGS)


@pytest.fixture
def changed(origin: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(origin, tmp_path / "changed"))


def imported(folder: Path, **how: Any) -> Result:
    """The result of importing a folder; where it failed, nothing was written."""
    out = folder.with_name("out")
    shutil.rmtree(out, ignore_errors=True)
    done = run("import", folder, "-o", out, **how)
    if done.code:
        assert not out.exists()
        assert not list(out.parent.glob(".out*"))
    return done


def test_100_import_spm_damaged(case: Case, origin: Path, changed: Path, rng: random.Random, count: Count) -> None:
    for name in ("source.spm", "target.spm"):
        for content in (b"", b"a text file\n" * 9, b"\x80\x04N.", os.urandom(500)):
            (changed / name).write_bytes(content)
            with case.fault():
                refused(imported(changed), 4, name)
        for damage in (cut, flip):
            for _ in range(count(20, 1)):
                shutil.copy(origin / name, changed)
                damage(changed / name, rng)
                with case.fault():
                    done = imported(changed)
                    assert done.code in (0, 4), done.err  # a flipped bit may be in the text of a piece, or in a score
                    if done.code:
                        refused(done, 4, name)
        shutil.copy(origin / name, changed)


def test_101_import_file_missing(case: Case, origin: Path, changed: Path) -> None:
    for name in FILES:
        (changed / name).unlink()
        with case.fault():
            refused(imported(changed), 4, name)
        shutil.copy(origin / name, changed)
    (changed / "tokenizer_config.json").unlink()
    with case.fault():
        refused(imported(changed), 2, "does not name its languages; give --src")
    with case.fault():
        refused(run("import", changed.parent / "absent" / "x" / "y"), 4, "no such folder")
    with case.fault():
        refused(run("import", origin / "config.json"), 4, "is a file")


DAMAGED_JSON: list[bytes] = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": 1' * 9, b"[" * 100_000]
WRONG_CONFIG: dict[str, list[Any]] = {
    "d_model": [0, -2, 31, 10**30, "32", None, True, 1e400],
    "encoder_layers": [0, 10**9, 2.5, "2"],
    "encoder_attention_heads": [3],
    "pad_token_id": [-1, 10**9, None, "0"],
    "eos_token_id": [[0, 1]],
    "decoder_start_token_id": [10**6],
    "dropout": [1.0, -1, "nan"],
    "vocab_size": [10**30],
    "max_position_embeddings": [0],
    "num_beams": [0, 10**9],
    "length_penalty": [-1, 1e300],
    "activation_function": [7, {}, "x" * 10_000],
}


def test_102_import_json_damaged(case: Case, origin: Path, changed: Path, rng: random.Random, count: Count) -> None:
    (changed / "generation_config.json").unlink(missing_ok=True)
    for name in ("config.json", "vocab.json", "tokenizer_config.json"):
        for content in rng.sample(DAMAGED_JSON, count(len(DAMAGED_JSON), 2)):
            (changed / name).write_bytes(content)
            with case.fault():
                refused(imported(changed), 4, name)
        shutil.copy(origin / name, changed)
    whole = json.loads((origin / "config.json").read_text())
    wrong = [(key, value) for key, values in WRONG_CONFIG.items() for value in values]
    for key, value in rng.sample(wrong, count(len(wrong), 6)):
        (changed / "config.json").write_text(json.dumps({**whole, key: value}))
        with case.fault():
            done = imported(changed)
            refused(done, 4)
            assert len(done.last) < 1000
    shutil.copy(origin / "config.json", changed)
    vocab = json.loads((origin / "vocab.json").read_text())
    for damage in ({**vocab, "new": 10**9}, {**vocab, "new": 0}, {**vocab, "</s>": "0"}, {**vocab, "<unk>": None}, {}):
        (changed / "vocab.json").write_text(json.dumps(damage))
        with case.fault():
            refused(imported(changed), 4, "vocab.json")


def test_103_import_pickled_code(case: Case, origin: Path, changed: Path, tmp_path: Path, rng: random.Random) -> None:
    (changed / "model.safetensors").unlink()
    weights = changed / "pytorch_model.bin"
    canary = tmp_path / "canary"
    for content in pickles(canary, tmp_path):
        weights.write_bytes(content)
        with case.fault():
            done = imported(changed)
            refused(done, 4, "pytorch_model.bin")
            is_safe(done, canary, 4)
    tensors = load_file(origin / "model.safetensors")
    for saved in (
        [1, 2],
        {"model.shared.weight": 3},
        {1: torch.zeros(2)},
        torch.zeros(2),
        {"a": torch.tensor(torch.nan)},
    ):
        torch.save(saved, weights)
        with case.fault():
            refused(imported(changed), 4, "pytorch_model.bin")
    torch.save(tensors, weights)
    assert imported(changed).code == 0
    cut(weights, rng)
    with case.fault():
        refused(imported(changed), 4, "pytorch_model.bin")


def test_104_import_wrong_sizes(case: Case, origin: Path, changed: Path, rng: random.Random, count: Count) -> None:
    whole = load_file(origin / "model.safetensors")
    names = rng.sample(sorted(whole), count(len(whole), 2))
    for name in names:
        shape = whole[name].shape
        for tensor in (None, torch.zeros(3), torch.full(shape, torch.inf), torch.zeros(shape, dtype=torch.int32)):
            tensors = {key: value for key, value in {**whole, name: tensor}.items() if value is not None}
            save_file(tensors, changed / "model.safetensors")
            with case.fault():
                if tensor is None and name == "final_logits_bias":
                    assert imported(changed).code == 0  # zeros, as in transformers
                else:
                    refused(imported(changed), 4, name)
    for damage in (cut, flip):
        shutil.copy(origin / "model.safetensors", changed)
        damage(changed / "model.safetensors", rng)
        with case.fault():
            done = imported(changed)
            assert done.code in (0, 4), done.err  # the origin has no checksums: a flipped bit of a weight is not found
            assert "Traceback" not in done.err


def test_105_import_special_files(case: Case, origin: Path, changed: Path) -> None:
    for name in FILES:
        (changed / name).unlink()
        os.mkfifo(changed / name)
        with case.fault():
            refused(imported(changed), 4, name)
        (changed / name).unlink()
        (changed / name).mkdir()
        with case.fault():
            refused(imported(changed), 4, name)
        (changed / name).rmdir()
        shutil.copy(origin / name, changed)


def test_106_import_output(case: Case, origin: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    for out in (tmp_path / "file", tmp_path / "mine", origin):
        before = sorted(path.name for path in out.iterdir()) if out.is_dir() else None
        with case.fault():
            refused(run("import", origin, "-o", out), 2, str(out))
            assert before == (sorted(path.name for path in out.iterdir()) if out.is_dir() else None)
    with case.fault():
        done = run("import", origin, "-o", tmp_path / "out", within=[partial(limit, resource.RLIMIT_FSIZE, 50_000)])
        refused(done, 5, str(tmp_path / "out"))
        assert not list(tmp_path.glob("*out*"))
