"""The training corpora in plan, report, model card and info: weights, shares, tags, and synthetic pairs."""

from pathlib import Path

import pytest
from conftest import TOY_SETTINGS, toy_pairs, write_tsv

from mtcli.cli import app
from mtcli.config.build import build
from mtcli.corpus.cache import encoded_pairs
from mtcli.corpus.cache.corpora import SYNTHETIC_HELD_OUT
from mtcli.corpus.cache.prepare import prepare
from mtcli.corpus.cache.training_sources import TrainingSource, is_synthetic
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.recipes.augment_output import PairOutput, write_best_pairs
from mtcli.report.info import summary
from mtcli.report.plan import describe_sources
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG

PAIRS = toy_pairs(60)


def write_synthetic(path: Path, pairs: list[tuple[str, str]], tag: str = "") -> Path:
    records = [{"translation": {"en": tag + src, "xx": tgt}, "log_prob": -1.0, "score": -1.0} for src, tgt in pairs]
    write_best_pairs(lambda: records, PairOutput(path, "en", "xx"), keep=1.0)
    return path


def test_a_file_of_augment_is_recognised_by_its_scores(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.jsonl", "a.tsv.gz", "a.jsonl.gz"):
        assert is_synthetic(str(write_synthetic(tmp_path / name, PAIRS[:3])), "en", "xx")
    (tmp_path / "rows.jsonl").write_text('{"en": "a", "xx": "b", "score": 1}\n[]\n')
    (tmp_path / "list.jsonl").write_text("[]\n")
    (tmp_path / "empty.tsv").touch()
    for name in ("rows.jsonl", "list.jsonl", "empty.tsv"):
        assert not is_synthetic(str(tmp_path / name), "en", "xx")
    assert not is_synthetic(str(write_tsv(tmp_path / "pairs.tsv", PAIRS)), "en", "xx")


def test_plan_report_card_and_info_describe_the_corpora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    held_out = write_tsv(Path("held-out.tsv"), PAIRS[:10])
    plain = write_tsv(Path("plain.tsv"), PAIRS[10:20])
    tagged = write_synthetic(Path("back.tsv"), PAIRS[20:50], BACK_TRANSLATION_TAG)
    forward = write_synthetic(Path("forward.jsonl"), PAIRS[50:])
    command = [
        "train", "--train", f"{plain}@2", "--train", str(tagged), "--train", f"{forward}@0.5", "--valid", str(held_out),
        "--test", str(held_out), "--src", "en", "--tgt", "xx", "--max-steps", "10", "--out", "run",
    ]  # fmt: skip
    for setting in (*TOY_SETTINGS, "train.engine=false"):
        command += ["--set", setting]
    app(command, standalone_mode=False)
    rows = [
        "plain.tsv: 10 pairs, weight 2, 36.4% of an epoch",
        "back.tsv: 30 pairs, weight 1, 54.5% of an epoch, synthetic, 30 with <bt>",
        "forward.jsonl: 10 pairs, weight 0.5, 9.09% of an epoch, synthetic",
        "all synthetic pairs: 63.6% of an epoch",
    ]
    page = Path("run/report.html").read_text(encoding="utf-8")
    card = Path("run/README.md").read_text(encoding="utf-8")
    for row in rows:
        name, _, text = row.partition(": ")
        assert row.replace("<bt>", "&lt;bt&gt;") in page
        assert f"- `{name}`: {text}" in card
    assert [text for heading, text in summary(Path("run")) if heading == "corpus"] == rows
    capsys.readouterr()
    app([*command, "--dry-run"], standalone_mode=False)
    plan = capsys.readouterr().out
    assert all(f"corpus      {row}\n" in plan for row in rows)


def test_no_synthetic_pair_is_held_out(tmp_path: Path) -> None:
    plain = str(write_tsv(tmp_path / "plain.tsv", PAIRS))
    options: dict[str, object] = {"data.src": "en", "data.tgt": "xx"}
    settings = ["tokenizer.vocab_size=320"]
    alone = prepare(build(None, options | {"data.train": [plain]}, settings), tmp_path / "alone")
    others = toy_pairs(120)[60:]
    synthetic = [*others, *((src, f"{tgt} x") for src, tgt in (*alone.valid, *alone.test))]
    path = str(write_synthetic(tmp_path / "back.tsv", synthetic, BACK_TRANSLATION_TAG))
    mixed = prepare(build(None, options | {"data.train": [path, plain]}, settings), tmp_path / "mixed")
    assert (mixed.valid, mixed.test) == (alone.valid, alone.test)
    assert mixed.counts["skipped"] == {SYNTHETIC_HELD_OUT: len(synthetic) - len(others)}
    assert mixed.counts["read"] == len(PAIRS) + len(synthetic)
    only = prepare(build(None, options | {"data.train": [path]}, settings), tmp_path / "only")
    assert only.test
    assert only.counts["skipped"] == {}


def test_no_pair_of_another_run_is_held_out(tmp_path: Path, toy_run: Path) -> None:
    """A model that starts from that run would score too high on them."""
    known = {src for src, _ in read_pairs(str(toy_run), "en", "xx")}
    new = [pair for pair in toy_pairs(600) if pair[0] not in known]
    plain = str(write_tsv(tmp_path / "new.tsv", new))
    options: dict[str, object] = {"data.src": "en", "data.tgt": "xx", "data.train": [plain, f"{toy_run}@0.5"]}
    data = prepare(build(None, options, ["tokenizer.vocab_size=320"]), tmp_path / "run")
    assert data.test
    assert known.isdisjoint(src for src, _ in (*data.valid, *data.test))
    only = prepare(
        build(None, options | {"data.train": [str(toy_run)]}, ["tokenizer.vocab_size=320"]), tmp_path / "only"
    )
    assert only.test


def test_tags_are_counted_in_each_corpus_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_pairs, "CHUNK_ROWS", 7)
    specs = []
    for number, tags in enumerate((3, 0, 20)):
        pairs = PAIRS[20 * number : 20 * number + 20]
        marked = [(BACK_TRANSLATION_TAG + src if row < tags else src, tgt) for row, (src, tgt) in enumerate(pairs)]
        specs.append(str(write_tsv(tmp_path / f"{number}.tsv", marked)))
    options = {"data.train": specs, "data.valid": specs[1], "data.test": specs[1], "data.src": "en", "data.tgt": "xx"}
    data = prepare(build(None, options, ["tokenizer.vocab_size=320"]), tmp_path / "run")
    assert data.train.chunks > 3
    assert [source.tagged for source in data.sources] == [3, 0, 20]


def test_a_single_plain_corpus_needs_no_description() -> None:
    plain = TrainingSource("a.tsv", Direction("en", "es"), 10, 1.0, 1.0, 0, False)
    assert describe_sources([plain]) == []
    assert describe_sources([]) == []
    synthetic = TrainingSource("a.tsv", Direction("en", "es"), 1, 1.0, 1.0, 0, True)
    assert describe_sources([synthetic]) == [("a.tsv", "1 pair, weight 1, 100% of an epoch, synthetic")]
