import gzip
import json
import logging
import os
import shutil
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import toy_pairs, write_tsv

from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.corpus.cache import build as building
from mtcli.corpus.cache import info as data_info
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import Prepared, prepare
from mtcli.corpus.held_out import read_directions, read_split, source_key
from mtcli.corpus.quality.languages import SAMPLE
from mtcli.errors import DataError, ModelError, UsageError
from mtcli.runtime.progress import Progress
from mtcli.text.tokenizer.learning import train_tokenizer

PAIRS = toy_pairs(200)
MADE = ["tokenizer.json", "data/train.arrow", "data/valid.jsonl", "data/test.jsonl"]


def config(spec: str | Path, *sets: str, **data: Any) -> Config:
    values = {"data.train": [str(spec)], "data.src": "en", "data.tgt": "xx"}
    return build(None, values | {f"data.{k}": str(v) for k, v in data.items()}, ["tokenizer.vocab_size=320", *sets])


@pytest.fixture
def tsv(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_tsv(tmp_path / "in" / "toy.tsv", PAIRS)


def made(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in MADE}


def rows(ready: Prepared) -> list[tuple[list[int], list[int]]]:
    return [(a.tolist(), b.tolist()) for a, b in (ready.train[i] for i in range(len(ready.train)))]


def texts(ready: Prepared) -> list[tuple[str, str]]:
    """Return the training pairs as text, decoded by the tokenizer."""
    return [tuple(ready.tokenizer.decode([src, tgt])) for src, tgt in rows(ready)]  # type: ignore[misc]


def adds_up(counts: dict[str, Any]) -> bool:
    parts = [counts["train"], counts["valid"], counts["test"], *counts["skipped"].values()]
    return bool(counts["read"] == sum(parts))


# ---- the splits ----


def test_every_pair_is_in_one_split_and_no_source_in_two(tmp_path: Path) -> None:
    pairs = PAIRS + [(source.upper().replace(" ", "  "), target + " 42") for source, target in PAIRS[:100]]
    ready = prepare(config(write_tsv(tmp_path / "t.tsv", pairs)), tmp_path / "run")
    splits = [texts(ready), ready.valid, ready.test]
    assert sorted(p for split in splits for p in split) == sorted(pairs)
    keys = [{source_key(source) for source, _ in split} for split in splits]
    assert sum(map(len, keys)) == len(keys[0] | keys[1] | keys[2])
    assert all(3 <= len(split) <= 30 for split in splits[1:])
    assert ready.counts == {
        "read": 300,
        "train": len(splits[0]),
        "valid": len(ready.valid),
        "test": len(ready.test),
        "skipped": {},
    }
    assert read_split(tmp_path / "run", "test") == ready.test
    other = prepare(config(tmp_path / "t.tsv", "data.split_seed=2"), tmp_path / "other")
    assert other.test != ready.test


def test_runs_of_other_seeds_have_the_same_held_out_pairs(tmp_path: Path, tsv: Path) -> None:
    one, two = (prepare(config(tsv, f"train.seed={seed}"), tmp_path / str(seed)) for seed in (1, 2))
    assert (one.valid, one.test) == (two.valid, two.test)
    held = {source_key(src) for src, _ in (*one.valid, *one.test)}
    assert len(held) > 2
    for ready in (one, two):
        assert not held & {source_key(src) for src, _ in texts(ready)}


def test_a_warning_about_test_pairs_in_the_training_data(
    tmp_path: Path, tsv: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = write_tsv(tmp_path / "mine.tsv", [*PAIRS[:7], ("a new sentence", "x"), ("Red tree sun", "x")])
    prepare(config(tsv, test=mine), tmp_path / "run")
    assert f"{mine}: 7 of 9 test sources are also in the training data" in caplog.text
    caplog.clear()
    prepare(config(tsv), tmp_path / "held")
    prepare(config(tsv, test=mine), tmp_path / "run")  # a reused run warns only once
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_warning_about_a_corpus_without_held_out_pairs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few = write_tsv(tmp_path / "few.tsv", PAIRS[:3])
    alike = write_tsv(tmp_path / "alike.tsv", [("red", "der")] * 30)
    for path, reason in ((few, "fewer than 20 pairs"), (alike, "every source repeats too often")):
        caplog.clear()
        wanted = build(None, {"data.train": [str(path)], "data.src": "en", "data.tgt": "xx"})
        prepare(wanted, tmp_path / f"run-{path.stem}")
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
            f"{reason}: none are held out; give --valid and --test, or the model cannot be scored"
        ]
    caplog.clear()
    given = {"data.train": [str(few)], "data.valid": str(alike), "data.test": str(alike)}
    prepare(build(None, given), tmp_path / "given")
    assert "held out" not in caplog.text


SENTENCES = [
    ("the children are playing with a ball in the garden .", "los niños están jugando con una pelota en el jardín ."),
    ("my sister reads a very good book every night .", "mi hermana lee un libro muy bueno todas las noches ."),
    ("we often eat bread and cheese with our friends .", "a menudo comemos pan y queso con nuestros amigos ."),
    ("she does not want to go home before the evening .", "ella no quiere volver a casa antes de la noche ."),
]
"""English and Spanish, lowercased and tokenized."""


def numbered_sentences(n: int) -> list[tuple[str, str]]:
    return [(f"{number} {src}", f"{number} {tgt}") for number in range(n // 4) for src, tgt in SENTENCES]


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"src": "en", "tgt": "es"}, None),
        ({"src": "es", "tgt": "en"}, "use --swap, or --src en --tgt es"),
        ({"src": "es", "tgt": "en", "swap": True}, None),
        ({"src": "en", "tgt": "es", "swap": True}, "omit --swap, or --src es --tgt en"),
        ({"src": "xx", "tgt": "en"}, "use --swap, or --src en --tgt xx"),  # one language is unknown
        ({"src": "en", "tgt": "xx"}, None),
    ],
)
def test_a_warning_about_swapped_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], remedy: str | None
) -> None:
    greetings = [(f"Hi {number}!", f"¡Hola {number}!") for number in range(3 * SAMPLE)]
    path = write_tsv(tmp_path / "pairs.tsv", [*greetings, *numbered_sentences(SAMPLE)])  # some corpora begin like this
    given = {"data.train": [str(path)], **{f"data.{name}": value for name, value in options.items()}}
    wanted = build(None, given, ["tokenizer.vocab_size=320", 'data.variants="off"'])
    prepare(wanted, tmp_path / "run")
    prepare(wanted, tmp_path / "run")  # a reused run does not warn again
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(remedy)
    if remedy:
        assert warnings[0].startswith(f"{path}: the sides look swapped: ")
        assert warnings[0].endswith(f"; {remedy}")


def test_too_few_pairs_to_tell_that_sides_are_swapped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few = write_tsv(tmp_path / "few.tsv", numbered_sentences(8))
    prepare(config(few, src="es", tgt="en"), tmp_path / "run")
    assert "swapped" not in caplog.text


def test_given_splits_are_used_as_they_are(tmp_path: Path, tsv: Path) -> None:
    valid, test = write_tsv(tmp_path / "v.tsv", PAIRS[:5]), write_tsv(tmp_path / "t.tsv", [*PAIRS[5:12], ("", "x")])
    both = prepare(config(tsv, valid=valid, test=test), tmp_path / "both")
    assert (both.valid, both.test, texts(both)) == (PAIRS[:5], PAIRS[5:12], PAIRS)
    assert both.counts["read"] == 200 + 5 + 8
    assert both.counts["skipped"] == {"one side empty": 1}
    one = prepare(config(tsv, valid=valid), tmp_path / "one")
    assert one.valid == PAIRS[:5]
    assert sorted(texts(one) + one.test) == sorted(PAIRS)
    assert one.test
    assert adds_up(both.counts)
    assert adds_up(one.counts)


def test_counts_add_up_whatever_is_skipped(tmp_path: Path) -> None:
    pairs = [*PAIRS, ("", "a"), ("b", " "), ("", ""), ("red " * 300, "red"), ("red", "der " * 300)]
    ready = prepare(config(write_tsv(tmp_path / "t.tsv", pairs), "data.max_length=50"), tmp_path / "run")
    skipped = ready.counts["skipped"]
    assert skipped["one side empty"] == 2
    assert skipped["both sides empty"] == 1
    assert 1 <= skipped["longer than 50 tokens"] <= 2  # one may be held out
    assert ready.counts["read"] == 205
    assert adds_up(ready.counts)


def test_the_counts_of_the_demo_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtcli.corpus import demo

    whole = demo.load()
    fewer = type(whole)(**{name: getattr(whole, name)[:120] for name in ("train", "valid", "test")})
    monkeypatch.setattr(demo, "load", lambda: fewer)
    ready = prepare(build(None, {}, ["tokenizer.vocab_size=350"]), tmp_path / "run")
    assert (texts(ready), ready.valid, ready.test) == (fewer.train, fewer.valid, fewer.test)
    assert adds_up(ready.counts)


def test_weights_and_rows_of_each_corpus(tmp_path: Path, tsv: Path) -> None:
    other = write_tsv(tmp_path / "b.tsv", [*PAIRS[:30], ("red " * 300, "red")])
    empty = write_tsv(tmp_path / "c.tsv", [("", "x")])
    both = build(
        None,
        {
            "data.train": [f"{other}@2.5", f"{empty}@3", str(tsv)],
            "data.src": "en",
            "data.tgt": "xx",
            "data.valid": str(tsv),
            "data.test": str(tsv),
        },
        ["data.max_length=50", "tokenizer.vocab_size=320"],
    )
    assert prepare(both, tmp_path / "run").weights == [(30, 2.5), (0, 3.0), (200, 1.0)]


@pytest.mark.parametrize("pairs", [[("", "x")] * 30, [], [("red " * 300, "der")] * 5])
def test_nothing_left_to_train_on(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    path = write_tsv(tmp_path / "t.tsv", pairs)
    wanted = build(None, {"data.train": [str(path)], "data.src": "en", "data.tgt": "xx"}, ["data.max_length=50"])
    with pytest.raises(DataError):
        prepare(wanted, tmp_path / "run")


def test_weights_that_leave_no_pair_are_refused(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "t.tsv", PAIRS[:10])
    with pytest.raises(UsageError, match="an epoch has less than one pair by these weights"):
        prepare(config(f"{path}@0.09"), tmp_path / "run")


def test_training_with_a_small_weight_has_no_empty_epoch(
    tmp_path: Path, tsv: Path, train_toy: Callable[..., Path]
) -> None:
    for seed in range(1, 6):  # each pair comes once in 160 epochs, so half of the epochs draw none
        out = tmp_path / f"run{seed}"
        sets = ["train.max_steps=1", f"train.seed={seed}", "train.valid_every=1"]
        train_toy(out, *sets, spec=f"{tsv}@0.00625")
        assert (out / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["p.tsv.gz", "p.csv", "p.jsonl"])
def test_every_pass_shows_progress_even_if_it_finds_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    passes: dict[str, int] = {}

    def update(progress: Progress, n: int = 1) -> None:
        description = progress._display.description
        passes[description] = passes.get(description, 0) + n

    monkeypatch.setattr(Progress, "update", update)
    content = b"\n" * 5000
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(DataError, match="no pair to train on"):
        prepare(config(tmp_path / name), tmp_path / "run")
    assert passes == {"choosing held-out pairs": 5000, "reading": 5000}
    passes.clear()
    pairs = {"tsv": "a\tb", "csv": "a,b", "jsonl": '{"en": "a", "xx": "b"}'}
    content += f"{pairs[name.split('.')[1]]}\n".encode() * 40
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    prepare(config(tmp_path / name, "tokenizer.vocab_size=262", 'data.variants="off"'), tmp_path / "run")
    wanted = ["choosing held-out pairs", "reading", "reading for the tokenizer", "encoding"]
    assert passes == dict.fromkeys(wanted, 5000)


# ---- the same pairs in any form ----


def test_every_form_of_the_same_pairs_prepares_alike(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pairs = [*PAIRS[:80], ("", "x"), ("tab?\u2028é", "naïve 😀 \u0085 x"), ('"quoted', "NA")]
    for i, name in enumerate(("en", "xx")):
        content = "".join(f"{pair[i]}\n" for pair in pairs).encode()
        (folder / f"plain.{name}").write_bytes(content)
        (folder / f"crlf.{name}").write_bytes(content.replace(b"\n", b"\r\n"))
        (folder / f"zipped.{name}.gz").write_bytes(gzip.compress(content))
    write_tsv(folder / "t.tsv", pairs)
    (folder / "z.tsv.gz").write_bytes(gzip.compress((folder / "t.tsv").read_bytes()))
    records = [{"translation": {"xx": b, "en": a}} for a, b in pairs]
    (folder / "j.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    pq.write_table(pa.Table.from_pylist(records), folder / "p.parquet")
    pq.write_table(pa.Table.from_pylist([{"en": a, "xx": b} for a, b in pairs]), folder / "columns.parquet")
    forms = ["plain", "crlf", "zipped", "t.tsv", "z.tsv.gz", "j.jsonl", "p.parquet", "columns.parquet"]
    specs = [str(folder / form) for form in forms] + [f"{folder / 'plain.en'},{folder / 'plain.xx'}"]
    found = []
    for number, spec in enumerate(specs):
        ready = prepare(config(spec), tmp_path / str(number))
        found.append((made(tmp_path / str(number)), rows(ready), ready.valid, ready.test, ready.counts))
    assert found[0][4]["read"] == 83
    assert adds_up(found[0][4])
    for spec, one in zip(specs, found, strict=True):
        assert one == found[0], spec


def test_swapped_columns_are_the_other_direction(tmp_path: Path, tsv: Path) -> None:
    turned = write_tsv(tmp_path / "turned.tsv", [(b, a) for a, b in PAIRS])
    a = prepare(config(tsv), tmp_path / "a")
    b = prepare(config(turned, "data.swap=true"), tmp_path / "b")
    assert (rows(a), a.valid, a.test) == (rows(b), b.valid, b.test)


# ---- reuse ----

Ready = tuple[Config, Path]


@pytest.fixture
def ready(tmp_path: Path, tsv: Path) -> tuple[Config, Path]:
    prepare(config(tsv), tmp_path / "run")
    return config(tsv), tmp_path / "run"


@pytest.fixture
def no_encoding(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(building, "encode_pairs", refuse)


def test_each_file_is_hashed_once(tmp_path: Path, tsv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def noted(file: BinaryIO, name: str) -> object:
        hashed.append(os.fstat(file.fileno()).st_ino)
        return file_digest(file, name)

    monkeypatch.setattr("mtcli.corpus.cache.info.hashlib.file_digest", noted)
    prepare(config(tsv), tmp_path / "run")
    assert tsv.stat().st_ino in hashed
    assert len(hashed) == len({*hashed})


@pytest.mark.usefixtures("no_encoding")
def test_a_second_start_reuses_everything(ready: Ready, tsv: Path) -> None:
    settings, run = ready
    times = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    again = prepare(settings, run)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == times
    assert sorted(texts(again) + again.valid + again.test) == sorted(PAIRS)
    tsv.touch()
    prepare(settings, run)
    content = tsv.read_bytes()
    tsv.unlink()
    tsv.write_bytes(content)
    prepare(settings, run)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == times
    prepare(config(tsv, "data.note=other", "train.lr=0.5"), run)  # the data does not depend on these


@pytest.mark.usefixtures("no_encoding")
def test_changed_data_is_refused_with_both_hashes(ready: Ready, tsv: Path) -> None:
    settings, run = ready
    before = made(run)
    then = json.loads((run / "data" / "info.json").read_text())["inputs"][str(tsv)]["sha256"]
    tsv.write_bytes(tsv.read_bytes().replace(b"red", b"rad", 1))
    now = data_info.fingerprint(tsv)["sha256"]
    with pytest.raises(DataError, match=rf"toy\.tsv: changed since .*{then[:12]}.*{now[:12]}.*--overwrite"):
        prepare(settings, run)
    assert then != now
    assert made(run) == before


@pytest.mark.parametrize("name", ["data/train.arrow", "data/valid.jsonl", "data/test.jsonl"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_file_is_built_again_with_a_warning(
    ready: Ready, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, run = ready
    before = made(run)
    content = bytearray(before[name])
    content[len(content) // 2] ^= 4
    (run / name).unlink()
    if damage != "gone":
        (run / name).write_bytes(content if damage == "flip" else content[:-1])
    with caplog.at_level(logging.WARNING, "mtcli"):
        again = prepare(settings, run)
    assert f"{run / name} is damaged or missing" in caplog.text
    assert made(run) == before
    assert adds_up(again.counts)


INFOS: list[Callable[[bytes], bytes]] = [
    lambda info: b"",
    lambda info: info[:-2],
    lambda info: b"[1]",
    lambda info: b"{}",
    lambda info: b"[" * 100_000,
    lambda info: info.replace(b'"weights": [\n  [\n   1', b'"weights": [\n  [\n   2'),
    lambda info: info.replace(b'"read": 2', b'"read": 3'),
    lambda info: info.replace(b'"train": 1', b'"train": 7'),
    lambda info: info.replace(b'"size": ', b'"size": 1'),
    lambda info: info.replace(b'"inputs"', b'"imputs"'),
]


@pytest.mark.parametrize("change", INFOS)
def test_a_damaged_info_file_makes_the_data_again(
    ready: Ready, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    settings, run = ready
    before, path = made(run), run / "data" / "info.json"
    info = path.read_bytes()
    path.write_bytes(change(info))
    assert path.read_bytes() != info
    with caplog.at_level(logging.WARNING, "mtcli"):
        prepare(settings, run)
    assert f"{path} cannot be read" in caplog.text
    assert made(run) == before
    assert content_of(path.read_bytes()) == content_of(info)


def content_of(info: bytes) -> dict[str, Any]:
    return {key: value for key, value in json.loads(info).items() if key not in ("files", "sha256")}


def test_a_deleted_info_file_is_made_again(ready: Ready) -> None:
    settings, run = ready
    before, info = made(run), (run / "data" / "info.json").read_bytes()
    (run / "data" / "info.json").unlink()
    prepare(settings, run)
    assert made(run) == before
    assert content_of((run / "data" / "info.json").read_bytes()) == content_of(info)
    shutil.rmtree(run / "data")
    prepare(settings, run)
    assert made(run) == before


@pytest.mark.usefixtures("no_encoding")
def test_another_tokenizer_is_refused(ready: Ready) -> None:
    settings, run = ready
    train_tokenizer(PAIRS, vocab_size=300).save(run / "tokenizer.json")
    before = made(run)
    with pytest.raises(ModelError, match=r"tokenizer\.json: not the tokenizer this run began with"):
        prepare(settings, run)
    assert made(run) == before


def test_other_settings_prepare_the_data_again(ready: Ready, tsv: Path) -> None:
    _, run = ready
    before = made(run)
    prepare(config(tsv, "tokenizer.vocab_size=300"), run)
    assert made(run)["tokenizer.json"] != before["tokenizer.json"]
    prepare(config(tsv), run)
    assert made(run) == before


def test_the_initial_tokenizer_is_kept(tmp_path: Path, tsv: Path) -> None:
    given = train_tokenizer([(a.upper(), b.upper()) for a, b in PAIRS], vocab_size=310)
    run = tmp_path / "run"
    prepare(config(tsv), run, init=Parent(given, "checksum", "en", "xx"))
    before = made(run)
    assert before["tokenizer.json"] == given.to_json().encode()
    (run / "data" / "train.arrow").write_bytes(b"")
    again = prepare(config(tsv), run)  # without --init, which a resumed run no longer needs
    assert made(run) == before
    assert again.tokenizer.to_json() == given.to_json()
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    for lost in ("data/info.json", "data"):  # the models depend on this tokenizer
        shutil.rmtree(run / lost) if (run / lost).is_dir() else (run / lost).unlink()
        assert prepare(config(tsv), run).tokenizer.to_json() == given.to_json()


def test_a_given_tokenizer_is_never_replaced_by_a_trained_one(tmp_path: Path, tsv: Path) -> None:
    given = train_tokenizer([(a.upper(), b.upper()) for a, b in PAIRS], vocab_size=310)
    prepare(config(tsv), tmp_path, init=Parent(given, "checksum", "en", "xx"))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json: missing; copy that of the model which --init named"):
        prepare(config(tsv), tmp_path)
    given.save(tmp_path / "tokenizer.json")
    assert prepare(config(tsv), tmp_path).tokenizer.to_json() == given.to_json()


def test_a_missing_or_damaged_split(ready: Ready, tmp_path: Path) -> None:
    _, run = ready
    with pytest.raises(DataError, match=r"has no valid pairs \(an exported model has none\)"):
        read_split(tmp_path, "valid")
    (run / "data" / "test.jsonl").write_bytes(b"")
    assert read_directions(run, "test", empty_ok=True) == {}
    with pytest.raises(DataError, match="the test split is empty"):
        read_split(run, "test")
    (run / "data" / "test.jsonl").write_bytes(b'{"translation": {"en": "a", "xx": "b"}}\n{"trans')
    with pytest.raises(DataError, match=r"test\.jsonl:2: damaged"):
        read_split(run, "test")


@pytest.mark.usefixtures("no_encoding")
def test_a_new_or_missing_file_is_a_change(
    ready: Ready, tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a file of a folder."""
    settings, run = ready
    other = write_tsv(tmp_path / "other.tsv", PAIRS)
    monkeypatch.setattr(data_info, "source_files", lambda *spec: [tsv, other])
    with pytest.raises(DataError, match=r"other\.tsv: changed since.* then not there, now [0-9a-f]{12}"):
        prepare(settings, run)
    monkeypatch.setattr(data_info, "source_files", lambda *spec: [])
    with pytest.raises(DataError, match=r"toy\.tsv: changed since.* then [0-9a-f]{12}, now not there"):
        prepare(settings, run)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_data_set_that_is_not_found_changes_no_run_folder(
    tmp_path: Path, train_toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    run = train_toy(tmp_path / "old" / "run", "train.max_steps=1") if overwrite else tmp_path / "new" / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="from the Hub"):
        train_toy(run, spec="nobody-here/nothing:de-en", overwrite=overwrite)
    assert run.parent.exists() == overwrite
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_data_set_without_the_languages_leaves_no_run_folder(tmp_path: Path, train_toy: Callable[..., Path]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.jsonl").write_text('{"en": "a", "de": "b"}\n')
    with pytest.raises(DataError, match="no 'xx'; found 'en', 'de'"):
        train_toy(tmp_path / "run", spec=tmp_path / "in")
    assert not (tmp_path / "run").exists()


def test_data_that_is_built_again_keeps_the_weights_that_the_run_began_with(tmp_path: Path, tsv: Path) -> None:
    given = train_tokenizer(PAIRS, vocab_size=310)
    prepare(config(tsv), tmp_path / "run", init=Parent(given, "checksum", "en", "xx"))
    (tmp_path / "run" / "data" / "train.arrow").write_bytes(b"")
    assert prepare(config(tsv), tmp_path / "run").init == "checksum"
    with pytest.raises(UsageError, match="began with other weights"):
        prepare(config(tsv), tmp_path / "run", init=Parent(given, "other", "en", "xx"))
    (tmp_path / "run" / "data" / "train.arrow").write_bytes(b"")
    with pytest.raises(UsageError, match="began with other weights"):
        prepare(config(tsv), tmp_path / "run", init=Parent(given, "other", "en", "xx"))
