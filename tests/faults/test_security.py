"""Malicious files: their content is never executed, and sizes are refused before memory is allocated."""

import copy
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.harness import Job, Result, run
from tokenizers import Tokenizer as HFTokenizer

from faults.conftest import Case
from faults.inputs import Count, failed
from faults.test_input import peak


class Planted:
    """An object that creates a file when it is unpickled."""

    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


def pickles(canary: Path, folder: Path) -> list[bytes]:
    """Return such an object in three forms: two pickle protocols, and the archive of `torch.save`."""
    torch.save({"weight": Planted(canary)}, folder / "saved")
    return [(folder / "saved").read_bytes(), pickle.dumps(Planted(canary)), pickle.dumps(Planted(canary), protocol=0)]


def is_safe(done: Result, canary: Path, *codes: int) -> None:
    assert done.code in codes, done.err
    assert "Traceback" not in done.err
    assert "mtcli: unexpected" not in done.err
    assert not canary.exists()


def test_66_pickle_file(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    canary = tmp_path / "canary"
    planted = pickles(canary, tmp_path)
    pickle.loads(planted[1])
    assert canary.exists()  # the object works
    canary.unlink()

    names = sorted(str(p.relative_to(job.clean)) for p in job.clean.rglob("*") if p.is_file() and p.name != ".lock")
    names = [name for name in names if not name.startswith("checkpoints") or name.startswith(newest(job.clean))]
    must = ["model.safetensors", "tokenizer.json"]  # every command reads these two
    for name in must + rng.sample(sorted(set(names) - set(must)), count(len(names) - 2, 1)):
        shutil.copytree(job.clean, tmp_path / "run", symlinks=True)
        (tmp_path / "run" / name).write_bytes(rng.choice(planted))
        with case.fault():
            if name in must:
                done = run("translate", "--model", tmp_path / "run", "red tree.")
                failed(done, 4, name)
                is_safe(done, canary, 4)
            is_safe(run(*job.command(tmp_path / "run")), canary, 0, 2, 3, 4)
        shutil.rmtree(tmp_path / "run")

    (tmp_path / "in").mkdir()
    specs = ["t.tsv", "t.tsv.gz", "t.jsonl", "t.parquet", "t.pkl", "t.pt", "config.toml", "in"]
    for i, name in enumerate(rng.sample(specs, count(len(specs), 1))):
        path = tmp_path / ("in/train.pkl" if name == "in" else name)
        path.write_bytes(planted[i % len(planted)])
        line = [path] if name == "config.toml" else ["--train", tmp_path / name]
        with case.fault():
            is_safe(run("train", *line, "--out", tmp_path / "out"), canary, 2, 3)
    (tmp_path / "text").write_bytes(planted[1])
    with case.fault():
        is_safe(run("translate", "--model", job.clean, "-i", tmp_path / "text"), canary, 3)


def newest(run_folder: Path) -> str:
    return f"checkpoints/{max(p.name for p in (run_folder / 'checkpoints').iterdir())}"


TAG = "!!python/object/apply:os.mkdir ['{canary}']\n"
BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]\n" for i in range(12))


def test_68_yaml_tag_and_alias_bomb(case: Case, tmp_path: Path, count: Count) -> None:
    canary = tmp_path / "canary"
    texts = {"tag": TAG.format(canary=canary), "bomb": BOMB}
    for text in texts.values():
        (tmp_path / "config.yaml").write_text(text)
        with case.fault():
            done = run("train", tmp_path / "config.yaml", "--out", tmp_path / "run")
            failed(done, 2, "config.yaml", "TOML")
            assert not canary.exists()
    for name, text in list(texts.items())[: count(2, 0)]:  # a data set's README begins with YAML
        folder = tmp_path / name
        folder.mkdir()
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\nx: {text}---\n")
        (folder / "train.jsonl").write_text('{"en": "red", "de": "der"}\n')
        with case.fault():
            done = run("train", "--train", folder, "--tgt", "de", "--max-steps", "1", "--out", tmp_path / "run",
                       env={"HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"})  # fmt: skip
            is_safe(done, canary, 0, 3)


def crafted(good: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return six malicious versions of a tokenizer, at each of which `tokenizers` panicked (its pull request 2151)."""

    def changed(**parts: Any) -> dict[str, Any]:
        return copy.deepcopy(good) | parts

    cls = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    merges = changed()
    merges["model"] |= {"vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}
    return {
        "truncate": changed(
            truncation={"direction": "Right", "max_length": 2, "stride": 5, "strategy": "LongestFirst"}
        ),
        "template": changed(
            post_processor={"type": "TemplateProcessing", "single": [cls], "pair": [cls], "special_tokens": {}}
        ),
        "merge": merges,
        "strip": changed(decoder={"type": "Strip", "content": "e", "start": 9, "stop": 9}),
        "fixed length": changed(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "precompiled": changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    }


def test_69_tokenizer_panics(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    good = json.loads((job.clean / "tokenizer.json").read_text())
    panics = 0
    for number, (name, spec) in enumerate(crafted(good).items()):
        text = json.dumps(spec)
        try:  # the case is real as long as the library itself falls over some of them
            native = HFTokenizer.from_str(text)
            native.decode(native.encode("tree tree tree").ids)
            native.decode_batch([[105]])
        except BaseException as error:
            panics += not isinstance(error, Exception)
        for kind, content in ((name, text), (f"{name} twice", json.dumps({"format": "mtcli-separate-vocabularies",
                                                                          "src": spec, "tgt": spec}))):  # fmt: skip
            folder = tmp_path / kind
            shutil.copytree(job.clean, folder, ignore=shutil.ignore_patterns("checkpoints", "data"))
            (folder / "tokenizer.json").write_text(content)
            with case.fault():
                if number < count(6, 2) and kind == name:
                    failed(run("translate", "--model", folder, "red tree."), 4, "tokenizer.json", "not a tokenizer")
                else:
                    from mtcli.errors import ModelError
                    from mtcli.text.tokenizer.tokenizer import Tokenizer

                    with pytest.raises(ModelError, match="not a tokenizer of mtcli"):
                        Tokenizer.load(folder / "tokenizer.json")
    assert panics, "tokenizers panics at none of these any more: find others"


def safetensors(header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, Callable[[], bytes]] = {
    "overlap": lambda: safetensors({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, bytes(12)),
    "hole": lambda: safetensors({"a": tensor(0, 4, [1]), "b": tensor(8, 12, [1])}, bytes(12)),
    "past the end": lambda: safetensors({"a": tensor(0, 4 << 40, [1 << 40])}, bytes(8)),
    "left over": lambda: safetensors({"a": tensor(0, 4, [1])}, bytes(400)),
    "turned": lambda: safetensors({"a": tensor(8, 0, [2])}, bytes(8)),
    "shape too large": lambda: safetensors({"a": tensor(0, 8, [1 << 40, 1 << 40])}, bytes(8)),
    "shape overflows": lambda: safetensors({"a": tensor(0, 8, [1 << 62, 4, 0])}, bytes(8)),
    "many dimensions": lambda: safetensors({"a": tensor(0, 4, [1] * 5000)}, bytes(4)),
    "empty and huge": lambda: safetensors({"a": tensor(0, 0, [0, (1 << 63) - 1])}),
    "strange type": lambda: safetensors({"a": tensor(0, 8, [2], "F99")}, bytes(8)),
    "small floats": lambda: safetensors({"a": tensor(0, 1, [2], "F4")}, bytes(1)),
    "e8m0": lambda: safetensors({"a": tensor(0, 2, [2], "F8_E8M0")}, bytes(2)),
    "complex": lambda: safetensors({"a": tensor(0, 8, [1], "C64")}, bytes(8)),
    "huge header": lambda: safetensors(b"{}", length=(1 << 63) - 1),
    "header past the end": lambda: safetensors(b"{}", length=90_000_000),
    "header of 99 MB": lambda: safetensors(b'{"__metadata__":{"x":"' + b"x" * 99_000_000 + b'"}}'),
    "deep header": lambda: safetensors(b"[" * 100_000),
    "deep metadata": lambda: safetensors({"__metadata__": {"mtcli": "[" * 100_000}}),
    "twice": lambda: safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(tensor(0, 4, [1])).encode(),) * 2), bytes(4)),
    "no object": lambda: safetensors(b"7"),
    "not UTF-8": lambda: safetensors(b'{"\xff": 1}'),
    "empty": lambda: b"",
    "cut": lambda: b"\x08\0\0",
    "many tensors": lambda: safetensors({f"t{i}": tensor(0, 0, [0]) for i in range(30_000)}),
}


def test_70_safetensors(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    from mtcli.errors import ModelError
    from mtcli.storage.model_file import load_model

    shutil.copy(job.clean / "tokenizer.json", tmp_path)
    path = tmp_path / "model.safetensors"
    plain, most = peak("translate", "--model", job.clean, "red tree.")
    assert plain.code == 0
    for number, (name, make) in enumerate(HOSTILE.items()):
        path.write_bytes(make())
        with case.fault():
            if number < count(len(HOSTILE), 1):
                done, memory = peak("translate", "--model", tmp_path, "red tree.")
                failed(done, 4, "model.safetensors")
                assert memory < most + 1024, name
            else:
                with pytest.raises(ModelError) as caught:
                    load_model(tmp_path)
                assert len(str(caught.value)) < 500, name
    path.unlink()
    with path.open("wb") as file:  # a sparse file whose header names a huge tensor
        size = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        file.write(safetensors({"a": tensor(0, size, [size // 4])}))
        file.truncate(file.tell() + size)
    with case.fault(), pytest.raises(ModelError, match="larger than this machine's memory"):
        load_model(tmp_path)
