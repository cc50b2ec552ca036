"""Meaningless scores are refused before any work is done."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from conftest import toy_pairs, write_tsv
from helpers.harness import Job, run

from faults.conftest import Case
from faults.inputs import failed


def with_pairs(job: Job, out: Path, split: str, pairs: list[tuple[str, str]]) -> Path:
    """Return a copy of the model with another set of held-out pairs."""
    (out / "data").mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json", "config.toml", "data/valid.jsonl", "data/test.jsonl"):
        shutil.copyfile(job.clean / name, out / name)
    lines = [f'{{"translation": {{"en": "{src}", "xx": "{tgt}"}}}}\n' for src, tgt in pairs]
    (out / "data" / f"{split}.jsonl").write_text("".join(lines))
    return out


def test_86_compared_on_other_pairs(case: Case, job: Job, tmp_path: Path) -> None:
    held = {"valid": toy_pairs(200)[180:190], "test": toy_pairs(200)[190:]}
    for split, pairs in held.items():
        line = ("eval", "--model", job.clean, "--split", split, "-b", "1", "--compare")
        for name, others in (("other", toy_pairs(200)[100:110]), ("fewer", pairs[:-1]), ("empty", [])):
            other = with_pairs(job, tmp_path / f"{split}-{name}", split, others)
            with case.fault():
                done = run(*line, other)
                failed(done, 2, f"its {split} pairs are not those of", "--src-file and --ref-file")
                assert done.out == ""
        with case.fault():  # the same pairs in another order are the same set
            done = run(*line, with_pairs(job, tmp_path / f"{split}-same", split, pairs[::-1]))
            assert done.code == 0, done.err
    other = with_pairs(job, tmp_path / "files", "test", toy_pairs(200)[100:110])
    write_tsv(tmp_path / "ref", [])
    for name, side in (("src", 0), ("ref", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in held["test"]))
    with case.fault():
        files = ("--src-file", tmp_path / "src", "--ref-file", tmp_path / "ref")
        done = run("eval", "--model", job.clean, "-b", "1", "--compare", other, *files)
        assert done.code == 0, done.err


def test_87_unusable_tokenizer(case: Case, job: Job, tmp_path: Path) -> None:
    line = ["train", "--train", str(job.folder / "train.tsv"), "--src", "en", "--out", str(tmp_path / "run")]
    names = {"moses": "choose from 13a", "": "choose from 13a"}
    if find_spec("MeCab") is None:
        names["ja-mecab"] = "cannot be used"
    for name, told in names.items():
        for command in (
            [*line, "--tgt", "xx", "--tokenize", name],
            [*line, "--tgt", "zh", "--set", f'train.bleu_tokenizer="{name}"', "--dry-run"],
            ["eval", "--model", str(job.clean), "--tokenize", name],
        ):
            with case.fault():
                failed(run(*command), 2, name, told)
                assert not (tmp_path / "run").exists()
