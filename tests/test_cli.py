import csv
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from conftest import toy_pairs
from helpers.documentation import parse
from helpers.harness import mtcli, run
from helpers.points import strike_in
from helpers.processes import HANGS
from helpers.toy import save_toy
from typer.main import get_command
from typer.testing import CliRunner

from mtcli.cli import app, main
from mtcli.cli.commands import NAMES_A_FILE
from mtcli.errors import ModelError, UsageError
from mtcli.storage.run_name import point_to
from mtcli.text.tokenizer.vocabulary_file import RESERVED

LONG = " ".join(["stone", "bird"] * 500)

EN_XX = ("--src", "en", "--tgt", "xx")

SETTINGS = (
    "model.d_model=16", "model.num_encoder_layers=1", "model.num_decoder_layers=1", "train.batch_tokens=256",
    "train.precision=fp32", "train.engine=false", "decode.max_extra=2",
)  # fmt: skip
SMALL = tuple(word for setting in SETTINGS for word in ("--set", setting))


def test_each_input_line_gives_one_output_line(toy_run: Path, tmp_path: Path) -> None:
    text = f"red tree.\n\n  \n{LONG}\nsun\u2028moon\x85 bird\x0b.\nlast line without an end".encode()
    done = mtcli("translate", "--model", toy_run, "--max-length", "9", cwd=tmp_path, stdin=text)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 7
    assert lines[-1] == ""
    assert [bool(line) for line in lines[:6]] == [True, False, False, True, True, True]
    assert b"line 4: a sentence has more tokens" in done.stderr
    (tmp_path / "in.txt").write_bytes(text)
    again = mtcli("translate", "--model", toy_run, "--max-length", "9", "-i", "in.txt", "-o", "out.txt", cwd=tmp_path)
    assert again.stdout == b""
    assert (tmp_path / "out.txt").read_bytes() == done.stdout


def test_a_file_that_is_only_a_byte_order_mark_has_no_lines(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf")
    for given in ({"stdin": b"\xef\xbb\xbf"}, {}):
        source = () if given else ("-i", "in.txt")
        done = mtcli("translate", "--model", toy_run, *source, cwd=tmp_path, **given)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr


def test_output_formats_of_translate(toy_run: Path, tmp_path: Path) -> None:
    line = ("translate", "--model", toy_run, "--n-best", "3", "--max-length", "9", "red tree.", "")
    (tmp_path / "red tree.").write_text("blue tree.\n")
    done = mtcli(*line, cwd=tmp_path)
    plain = done.stdout.decode().splitlines()
    assert len(plain) == 4
    assert "-i red tree. translates the file" in done.stderr.decode()
    records = [json.loads(x) for x in mtcli(*line, "--format", "json", cwd=tmp_path).stdout.splitlines()]
    assert [r["sentence_id"] for r in records] == [0, 1]
    assert records[0]["translations"] == plain[:3]
    _, *others = records[0]["scores"]  # a wider search, for three texts, may find a better one than the first
    assert others == sorted(others, reverse=True)
    moses = [x.split(" ||| ") for x in mtcli(*line, "--format", "nbest", cwd=tmp_path).stdout.decode().splitlines()]
    assert [fields[1] for fields in moses] == plain
    assert all(len(fields) == 4 for fields in moses)


def test_json_counts_how_often_a_sample_was_drawn(toy_run: Path, tmp_path: Path) -> None:
    line = (
        "translate",
        "--model",
        toy_run,
        "--n-best",
        "3",
        "--max-length",
        "9",
        "--sample",
        "--top-k",
        "1",
        "red tree.",
    )
    record = json.loads(mtcli(*line, "--format", "json", cwd=tmp_path).stdout)
    assert record["draws"] == [12]
    assert mtcli(*line, cwd=tmp_path).stdout.decode().splitlines() == [record["translation"]]


def test_a_prefix_begins_every_translation(toy_run: Path, tmp_path: Path) -> None:
    done = mtcli(
        "translate", "--model", toy_run, "--prefix", "der eert", "--max-length", "9", "red.", "sun.", cwd=tmp_path
    )
    assert [line.startswith("der eert") for line in done.stdout.decode().splitlines()] == [True, True]


def test_eval_of_a_model_of_files_and_of_finished_translations_agree(toy_run: Path, tmp_path: Path) -> None:
    done = mtcli("eval", "--bleu", "--chrf", "--model", toy_run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bleu, signature, chrf, _ = done.stdout.decode().splitlines()
    assert bleu.startswith("BLEU = ")
    assert "tok:13a" in signature
    assert chrf.startswith("chrF2 = ")
    pairs = [json.loads(x)["translation"] for x in (toy_run / "data" / "test.jsonl").read_text().splitlines()]
    (tmp_path / "src").write_text("".join(p["en"] + "\n" for p in pairs))
    (tmp_path / "ref").write_text("".join(p["xx"] + "\n" for p in pairs))
    files = mtcli(
        "eval", "--chrf", "--bleu", "--model", toy_run, "--src-file", "src", "--ref-file", "ref", cwd=tmp_path
    )
    assert files.stdout == done.stdout
    with (tmp_path / "test.csv").open("w", newline="") as table:
        csv.writer(table, delimiter=";").writerows([("xx", "en"), *((p["xx"], p["en"]) for p in pairs), ("", "x")])
    of_table = mtcli("eval", "--chrf", "--bleu", "--model", toy_run, "--pairs", "test.csv", cwd=tmp_path)
    assert of_table.stdout == done.stdout
    assert b"line 1 names the columns" in of_table.stderr
    assert b"test.csv: skipped 1 pair: one side empty" in of_table.stderr
    mtcli("translate", "--as-is", "--model", toy_run, "-i", "src", "-o", "hyp", cwd=tmp_path)
    finished = mtcli("eval", "--chrf", "--bleu", "--hyp-file", "hyp", "--ref-file", "ref", cwd=tmp_path)
    assert finished.stdout == done.stdout
    assert done.stderr.count(b"BLEU below 5") == 1
    perfect = mtcli("eval", "--hyp-file", "ref", "--ref-file", "ref", "--json", cwd=tmp_path)
    assert b"6 test pairs are too few" in perfect.stderr
    assert b"BLEU above 90 is rare" not in perfect.stderr
    (tmp_path / "other").write_text("no\n" * 6)
    compared = mtcli("eval", "--hyp-file", "ref", "--ref-file", "ref", "--compare", "other", cwd=tmp_path)
    assert b"6 test pairs are too few" in compared.stderr
    (tmp_path / "many").write_text((tmp_path / "ref").read_text() * 5)
    easy = mtcli("eval", "--hyp-file", "many", "--ref-file", "many", cwd=tmp_path)
    assert b"BLEU above 90 is rare" in easy.stderr
    assert b"too few" not in easy.stderr
    form = json.loads(perfect.stdout)
    assert form["name"] == "BLEU"
    assert form["score"] == 100.0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("translate", "--model", "nowhere", "x"), 4, "nowhere: no model here"),
        (("eval", "--model", "nowhere"), 4, "nowhere: no model here"),
        (
            ("average", "--model", "x"),
            2,
            "--model: not an option here; give the folder as the argument: mtcli average RUN",
        ),
        (
            ("export", "--model=x"),
            2,
            "--model: not an option here; give the folder as the argument: mtcli export MODEL",
        ),
        (("info", "--model", "x"), 2, "--model: not an option here; give the folder as the argument: mtcli info DIR"),
        (("translate", "--model", "{run}/model.safetensors", "x"), 4, "is a file; give the folder of a run or model"),
        (("translate", "--model", "{run}", "--prefix", "é" * 4001, "x"), 2, "a prefix may have 2000 tokens at most"),
        (("translate", "--model", "{run}", "-i", ""), 2, "--input: the name is empty"),
        (("translate", "--model", "", "x"), 2, "--model: the name is empty"),
        (("translate", "--model", "{run}", "-o", "four/", "x"), 2, "four/: names a folder; name a file"),
        (("export", "{run}", "-o", "."), 2, "is or contains the current folder"),
        (("export", "{run}", "-o", ""), 2, "--output: the name is empty"),
        (("import", "{run}", "-o", "."), 2, "is or contains the current folder"),
        (("import", "x" * 300), 4, "cannot read this model (File name too long)"),
        (
            ("eval", "--hyp-file", "two", "--ref-file", "two", "--compare", "x" * 300),
            3,
            "cannot read it (File name too",
        ),
        (("import", "{run}", "-o", ""), 2, "--output: the name is empty"),
        (("average", "."), 4, ".: no run here"),
        (("average", "/"), 4, "/: no run here"),
        (("export", "/"), 4, "/: no model here"),
        (("average", "{run}", "-o", "-"), 2, "--output -: is a folder, not standard output"),
        (("train", "pairs.tsv", *EN_XX, "--out", ""), 2, "--out: the name is empty"),
        (("data", "clean", "pairs.tsv", "-o", "."), 2, ".: is a folder; name the output x.tsv, x.csv or x.jsonl"),
        (("data", "clean", "pairs.tsv", "-o", ""), 2, "--output: the name is empty; give a name"),
        (("data", "clean", "pairs.tsv", "-o", "-"), 2, "--output -: is written to a file, not to standard output"),
        (("data", "clean", "pairs.tsv", "-o", "out/"), 2, "--output out/: names a folder; name a file"),
        (("data", "clean", "pairs.tsv", "-o", "x.tsv", "--rejected", "-"), 2, "--rejected -: is written to a file"),
        (("tokenizer", "train", "two", "-o", "-"), 2, "--output -: is written to a file"),
        (("train", "", *EN_XX), 2, "CONFIG.toml|PAIRS: the name is empty"),
        (("train", ""), 2, "CONFIG.toml|PAIRS: the name is empty"),
        (("train", "pairs.tsv", *EN_XX, "--valid", ""), 2, "--valid: the name is empty"),
        (("train", "pairs.tsv@1_0", *EN_XX), 3, "pairs.tsv@1_0: no such file"),
        (("translate", "--model", "{run}", "-b", "1_0", "x"), 2, "'1_0' is not a whole number"),
        (("translate", "--model", "{run}", "--length-penalty", "1_0", "x"), 2, "'1_0' is not a number"),
        (("train", "pairs.tsv", *EN_XX, "--max-steps", "1_0"), 2, "'1_0' is not a whole number"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--chrf", "--tokenize", "none"), 2, "--tokenize: only for"),
        (("tokenizer", "decode", "--model", "{run}", "-i", "two"), 3, "two:1: not a line of token ids"),
        (("tokenizer", "decode", "--model", "{run}", "-i", "one_0"), 3, "one_0:1: not a line of token ids"),
        (("tokenizer", "decode", "--model", "{run}", "-i", "many"), 3, "many:1: there is no token 999"),
        (("tokenizer", "decode", "--model", "{run}", "-i", "invalid.tsv"), 3, "invalid.tsv:1: not a line of token ids"),
        (("export", "{run}", "--to", "../x"), 2, "--to ../x: choose from ctranslate2, huggingface"),
        (("data", "check", "/dev/null", "--src", "en", "--tgt", "es"), 3, "a pipe or device"),
        (("translate", "--model", "{run}", "--top-k", "3", "x"), 2, "--top-k: only with --sample"),
        (
            ("translate", "--model", "{run}", "x", "-o", "out.txt.gz"),
            2,
            "--output out.txt.gz: translations are not com",
        ),
        (("translate", "--model", "{run}", "-i", "two", "-o", "two.gz"), 2, "compressed; name it two.translated\n"),
        (("translate", "--model", "{run}", "--seed", "1", "x"), 2, "--seed: only with --sample"),
        (("translate", "--model", "{run}", "--sample", "-b", "2", "x"), 2, "--beam-size: not with --sample"),
        (("translate", "--model", "{run}", "--sample", "--length-penalty", "1", "x"), 2, "--length-penalty: not with"),
        (
            ("translate", "--model", "{run}", "--scores", "--format", "json", "x"),
            2,
            "--scores: only with --format text",
        ),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "-b", "2"), 2, "--beam-size: only with a model"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--length-penalty", "1"), 2, "--length-penalty: only with"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--no-repeat-ngram", "3"), 2, "--no-repeat-ngram: only w"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--engine", "torch"), 2, "--engine: only with a model"),
        (("translate", "--model", "{run}", "--format", "xml", "x"), 2, "text, json, nbest"),
        (("translate", "--model", "{run}", "-i", "absent.txt", "-o", "two"), 3, "absent.txt"),
        (("translate", "--model", "{run}", "--device", "abacus", "x"), 2, "abacus"),
        (("translate", "--model", "{run}", "--device", "cpu:x", "x"), 2, "cpu:x"),
        (("translate", "--model", "{run}", "-i", "two", "-o", "./two"), 2, "overwritten"),
        (("train", "--train", "pairs.tsv", *EN_XX, "--set", "model.d_ff=1000000000000"), 2, "model.d_ff"),
        (("eval", "--model", "{run}", "--src-file", "two", "--ref-file", "three"), 3, "3"),
        (("eval", "--hyp-file", "two", "--ref-file", "three"), 3, "3"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--model", "absent"), 4, "absent: no model here"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--model", "a", "--model", "b"), 2, "--model: give one at"),
        (("eval", "--hyp-file", "two"), 2, "--ref-file"),
        (("eval", "--pairs", "absent.csv", "--model", "{run}"), 3, "absent.csv: no such file"),
        (("eval", "--pairs", "x.csv", "--hyp-file", "two"), 2, "--pairs: not with --split, --src-file, --ref-file"),
        (("eval", "--src-file", "x.csv", "--ref-file", "x.csv", "--model", "{run}"), 2, "references with --pairs"),
        (("eval", "--hyp-file", "two", "--ref-file", "x.tsv.gz"), 2, "--ref-file x.tsv.gz: reads plain text"),
        (("score", "--src-file", "x.jsonl", "--tgt-file", "two", "--model", "{run}"), 2, "--src-file x.jsonl: reads"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--split", "test"), 2, "--split: not with files"),
        (("eval", "--model", "{run}", "--compare", "{run}", "--confidence"), 2, "--confidence: not with --compare"),
        (("explain", "x", "--model", "{run}", "--full", "--json"), 2, "--full: not with --json or --html"),
        (("explain", "x", "--model", "{run}", "--full", "--html", "x.html"), 2, "--full: not with --json or --html"),
        (("explain", "x", "--model", "{run}", "--neighbours"), 2, "--neighbours: only with --full, --json or --html"),
        (("explain", "x", "--model", "{run}", "--full", "--step", "1", "--neighbours"), 2, "--neighbours: not with"),
        (("eval", "--hyp-file", "-", "--ref-file", "-"), 2, "--hyp-file and --ref-file: only one of them can read"),
        (
            ("eval", "--src-file", "two", "--ref-file", "-", "--ref-file", "-", "--model", "{run}"),
            2,
            "only one of them",
        ),
        (("eval", "--hyp-file", "-", "--ref-file", "two", "--compare", "-"), 2, "--hyp-file and --compare: only one"),
        (("score", "--model", "{run}", "--src-file", "-", "--tgt-file", "-"), 2, "--src-file and --tgt-file: only one"),
        (("tokenizer", "train", "-", "-", "-o", "t.json"), 2, "only one of them can read standard input"),
        (("train", "pairs.tsv", *EN_XX, "--out", "/", "--dry-run"), 2, "which is not part of an mtcli run"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--compare", "{run}"), 2, "--src-file"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--by-length"), 2, "--src-file"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--compare", "three"), 3, "3"),
        (("eval", "--hyp-file", "two", "--ref-file", "two", "--compare", "absent"), 3, "absent"),
        (("eval", "--model", "nowhere", "--compare", "absent"), 3, "absent"),
        (("train", "absent.toml"), 2, "absent.toml"),
        (("train", "--train", "absent.tsv"), 3, "absent.tsv"),
        (("train", "--train", "two", "--preset", "huge"), 2, "tiny, small, base, big"),
        (("train", "pairs.tsv"), 2, "add --src en --tgt es, or whatever they are"),
        (("train", "pairs.tsv", "--src", "en"), 2, "add --tgt es"),
        (("train", "pairs.tsv", "--src", "../../x", "--tgt", "es"), 2, "data.src = '../../x': a language is named by"),
        (("train", "absent.csv"), 3, "absent.csv: no such file"),
        (("data", "check", "pairs.tsv", "--src", "../x"), 2, "--src '../x': a language is named by"),
        (("translate", "--to", "gn", "--to", "nah", "a"), 2, "--to: given more than once (gn, nah); "),
        (("eval", "--to", "gn", "--to", "nah"), 2, "--to: given more than once (gn, nah); "),
        (("explain", "--to", "gn", "--to", "gn", "a"), 2, "--to: given more than once (gn, gn); "),
        (("score", "--to", "gn", "--to", "nah", "--src-file", "two", "--tgt-file", "two"), 2, "(gn, nah); "),
        (
            ("augment", "--to", "gn", "--to", "nah", "-i", "two", "-o", "a.tsv"),
            2,
            "--to: given more than once (gn, nah)",
        ),
        (("data", "check", "pairs.tsv", "--tgt", "gn", "--tgt", "nah"), 2, "--tgt: given more than once (gn, nah); "),
        (
            ("data", "clean", "pairs.tsv", "-o", "a.tsv", "--src", "gn", "--src", "nah"),
            2,
            "--src: given more than once",
        ),
        (("train", "--set", "train.learning_rate=1"), 2, "no such key"),
        (("train", "--set", "nonsense"), 2, "section.key=value"),
        (("train", "--train", "invalid.tsv", *EN_XX), 3, "invalid.tsv:2: byte 5"),
        (("train", "--train", "empty.tsv", *EN_XX), 3, "no pair"),
        (("train", "--train", "pairs.tsv", *EN_XX, "--out", "two"), 2, "two"),
        (("tokenizer", "train", "two", "-o", "t.json", "--vocab-size", "9000"), 3, "9000"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    toy_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "three").write_text("a\nb\nc\n")
    (tmp_path / "one_0").write_text("1_0\n")
    (tmp_path / "many").write_text("9" * 5000)
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 9)
    (tmp_path / "invalid.tsv").write_bytes(b"a\tb\nabcd\xff\tb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mtcli", *(a.format(run=toy_run) for a in arguments)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert end.value.code == code, printed.err
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert (tmp_path / "two").read_text() == "a\nb\n"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("mtcli.training.run:train", ("train", "pairs.tsv", "--src", "en", "--tgt", "es")),
        ("mtcli.report.info:summary", ("info", "run")),
        ("mtcli.text.tokenizer.tokenizer:Tokenizer.load", ("tokenizer", "encode", "--model", "tokenizer.json")),
        ("mtcli.cli.process:check_current_folder", ("--version",)),
    ],
)
def test_ctrl_c_is_reported_in_one_line(tmp_path: Path, function: str, arguments: tuple[str, ...]) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 9)
    (tmp_path / "tokenizer.json").touch()
    done = run(*arguments, cwd=tmp_path, within=[partial(strike_in, function, 1, signal.SIGINT)])
    assert (done.code, done.out, done.err) == (130, "", "mtcli: stopped by Ctrl-C\n")


def test_one_file_may_be_standard_input(toy_run: Path, tmp_path: Path) -> None:
    lines = b"red tree.\nblue sun.\n"
    (tmp_path / "two").write_bytes(lines)
    model = ("--model", toy_run)
    plain = mtcli("score", *model, "--src-file", "two", "--tgt-file", "two", cwd=tmp_path)
    assert len(plain.stdout.splitlines()) == 2
    for files in (("-", "two"), ("two", "-")):
        piped = mtcli("score", *model, "--src-file", files[0], "--tgt-file", files[1], cwd=tmp_path, stdin=lines)
        assert piped.stdout == plain.stdout, piped.stderr
    short = mtcli("score", *model, "--src-file", "-", "--tgt-file", "two", cwd=tmp_path, stdin=b"red tree.\n")
    assert short.returncode == 3
    assert b"standard input has 1 line but two has 2" in short.stderr
    scores = mtcli("eval", "--hyp-file", "-", "--ref-file", "two", cwd=tmp_path, stdin=lines)
    assert scores.stdout.startswith(b"BLEU = "), scores.stderr


def test_tokenizer_train_encode_and_decode(tmp_path: Path) -> None:
    text = "".join(f"{a}\n{b}\n" for a, b in toy_pairs(100))
    (tmp_path / "text").write_text(text)
    assert mtcli("tokenizer", "train", "text", "-o", "tokenizer.json", cwd=tmp_path).returncode == 0
    piped = mtcli("tokenizer", "train", "-", "-o", "piped.json", cwd=tmp_path, stdin=text.encode())
    assert piped.returncode == 0, piped.stderr
    assert (tmp_path / "piped.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    ids = mtcli("tokenizer", "encode", "--model", "tokenizer.json", "--ids", "--tgt", cwd=tmp_path, stdin=text.encode())
    back = mtcli("tokenizer", "decode", "--model", "tokenizer.json", cwd=tmp_path, stdin=ids.stdout)
    assert back.stdout.decode() == text
    wrong = mtcli("tokenizer", "decode", "--model", "tokenizer.json", cwd=tmp_path, stdin=b"3 999999\n")
    assert wrong.returncode == 3
    line_break = RESERVED.index("<0x0A>")
    broken = mtcli("tokenizer", "decode", "--model", "tokenizer.json", cwd=tmp_path, stdin=f"{line_break}\n".encode())
    assert broken.stdout.count(b"\n") == 1


def test_replaced_bytes_and_dropped_marks_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfred \xff tree.\nred tree.\n")
    notice = "text: dropped the byte-order mark at its start\nread 1 invalid byte as U+FFFD\n"
    train = ("tokenizer", "train", "text", "-o", "t.json")
    assert mtcli(*train, "--replace", cwd=tmp_path).stderr.decode().startswith(notice)
    encode = ("tokenizer", "encode", "--model", "t.json", "-i", "text")
    assert mtcli(*encode, "--replace", cwd=tmp_path).stderr.decode() == notice
    score = ("eval", "--hyp-file", "text", "--ref-file", "text", "--replace")
    twice = f"{notice.splitlines()[0]}\n" * 2 + "read 2 invalid bytes as U+FFFD\n"
    assert mtcli(*score, cwd=tmp_path).stderr.decode().startswith(twice)


def test_options_without_effect_are_reported(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("red.,blue.\n")
    line = ("translate", "--model", toy_run, "--max-length", "2", "--length-penalty", "1", "-i", "in.txt", "-b")
    greedy = mtcli(*line, "1", cwd=tmp_path).stderr.decode()
    assert "--length-penalty: has no effect" in greedy
    (tmp_path / "terms.tsv").write_text("red\tder\n")
    for others in (["2"], ["1", "--scores"], ["1", "--n-best", "2"], ["1", "--terms", "terms.tsv"]):
        assert "has no effect" not in mtcli(*line, *others, cwd=tmp_path).stderr.decode()
    scores = mtcli("eval", "--model", toy_run, "-b", "1", "--length-penalty", "1", cwd=tmp_path)
    assert b"--length-penalty: has no effect" in scores.stderr


def test_a_model_is_scored_without_repeated_ngrams(tmp_path: Path) -> None:
    model = save_toy(tmp_path)
    (tmp_path / "in").write_text("one one one.\nred dog dog.\n")
    search = ("--model", model, "--no-repeat-ngram", "1")
    assert mtcli("translate", *search, "-i", "in", "-o", "out", cwd=tmp_path).returncode == 0
    files = ("--src-file", "in", "--ref-file", "out", "--chrf")
    assert b"chrF2 = 100.0" in mtcli("eval", *search, *files, cwd=tmp_path).stdout
    assert b"chrF2 = 100.0" not in mtcli("eval", "--model", model, *files, cwd=tmp_path).stdout


def test_bash_completes_a_command(tmp_path: Path) -> None:
    done = mtcli(cwd=tmp_path, _MTCLI_COMPLETE="complete_bash", COMP_WORDS="mtcli tr", COMP_CWORD="1")
    assert done.stdout.split() == [b"train", b"translate"]


def test_train_names_the_run_and_links_it_as_latest(tmp_path: Path) -> None:
    pairs = "".join(f"{b}\t{a}\n" for a, b in toy_pairs(60))
    folder = tmp_path / "my data"
    folder.mkdir()
    (folder / "pairs é.tsv").write_text(pairs)
    sets = [*SMALL, "--max-steps", "2"]
    line = ["train", "--train", "my data/pairs é.tsv", "--swap", "--src", "en", "--tgt", "xx", *sets]
    done = mtcli(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert "\ndevice: cpu" in done.stderr.decode()
    assert done.stdout == b""
    assert (tmp_path / "runs" / "latest").readlink() == Path("pairs é-en-xx")
    assert json.loads((tmp_path / "runs/latest/data/test.jsonl").read_text().splitlines()[0])["translation"].keys() == {
        "en",
        "xx",
    }
    again = mtcli(*line, cwd=tmp_path)
    assert b"finished at step 2" in again.stderr
    assert mtcli("translate", "red.", "--max-length", "4", cwd=tmp_path).returncode == 0
    mtcli(*line, "--out", "runs/other", cwd=tmp_path)
    for refused, code in ((["--set", "model.dropout=0.3"], 2), (["--out", "my data"], 2), (["--init", "runs"], 4)):
        assert mtcli(*line, *refused, cwd=tmp_path).returncode == code
        assert (tmp_path / "runs" / "latest").readlink() == Path("other")
    assert mtcli(*line, cwd=tmp_path).returncode == 0  # finished: nothing is trained
    assert (tmp_path / "runs" / "latest").readlink() == Path("other")
    where = {"MTCLI_MODEL": str(tmp_path / "runs" / "pairs é-en-xx")}
    done = mtcli("average", "-n", "1", cwd=tmp_path, **where)
    assert f"averaged 1 checkpoint (step 2) into {where['MTCLI_MODEL']}-average\n" in done.stderr.decode()


@pytest.mark.parametrize("command", [("translate", "x"), ("serve", "--port", "0")])
@pytest.mark.parametrize(
    ("terminal", "model", "named"),
    [(True, (), True), (False, (), False), (True, ("--model", "runs/other"), False)],
)
def test_the_run_trained_last_is_named_on_a_terminal(
    command: tuple[str, ...],
    terminal: bool,
    model: tuple[str, ...],
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mtcli.runtime.progress.on_terminal", lambda stream: terminal and stream is sys.stderr)
    Path("runs").mkdir()
    Path("runs/latest").symlink_to("deleted")
    result = CliRunner().invoke(app, [*command, *model])
    assert isinstance(result.exception, ModelError)
    assert result.stderr == ("using runs/latest → runs/deleted\n" if named else "")


def test_latest_does_not_leave_a_better_model_for_one_without_a_right_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, bleu, chrf in (("good", 30.0, 50.0), ("useless", 0.04, 3.0), ("worse", 20.0, 40.0)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").touch()
        event = {"event": "valid", "step": 1, "format": 2, "metric": "bleu", "pairs": 200, "of": 200, "loss": 1.0}
        (folder / "metrics.jsonl").write_text(json.dumps(event | {"bleu": bleu, "chrf": chrf}) + "\n")
    link = tmp_path / "latest"
    found = []
    for name in ("useless", "good", "useless", "worse"):
        point_to(link, tmp_path / name)
        found.append(str(link.readlink()))
    assert found == ["useless", "good", "good", "worse"]
    assert "its BLEU is 0.0" in caplog.text


def test_train_takes_a_csv_as_its_only_argument(tmp_path: Path) -> None:
    rows = "".join(f'"{b}";"{a}"\r\n' for a, b in toy_pairs(60))
    (tmp_path / "my pairs.csv").write_bytes(b"\xef\xbb\xbf" + f"German;English\r\n{rows}".encode())
    small = [*SMALL, "--max-steps", "2"]
    done = mtcli("train", "my pairs.csv", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    said = done.stderr.decode()
    assert said.startswith("languages: de → en, from the first line of my pairs.csv; --src and --tgt choose others\n")
    assert "my pairs.csv: 60 pairs read, 60 used" in said
    assert "my pairs.csv: 2 columns, separated by semicolons" in said
    assert (tmp_path / "runs" / "latest").readlink() == Path("my pairs-de-en")
    done = mtcli("train", "my pairs.csv", *small, "--src", "en", "--tgt", "de", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    refused = mtcli("train", "my pairs.csv", *small, "--train", "my pairs.csv@2", cwd=tmp_path)
    assert refused.returncode == 2
    assert "(data.train: my pairs.csv → my pairs.csv, my pairs.csv@2); use these" in refused.stderr.decode()


def test_a_stderr_that_the_shell_closed_does_not_change_the_results(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_text("red tree.\n")
    line = ("eval", "--hyp-file", "hyp", "--ref-file", "hyp")
    told = mtcli(*line, cwd=tmp_path)
    assert b"1 test pair" in told.stderr
    words = ["bash", "-c", f"{shlex.quote(sys.executable)} -m mtcli {' '.join(line)} 2>&-"]
    closed = subprocess.run(words, cwd=tmp_path, stdout=subprocess.PIPE, timeout=HANGS)
    assert (told.returncode, closed.returncode) == (0, 0)
    assert told.stdout == closed.stdout


def test_help_of_every_command_shows_its_options(tmp_path: Path) -> None:
    for command in (["train"], ["translate"], ["eval"], ["explain"], ["tokenizer", "train"]):
        done = mtcli(*command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert b"--" in done.stdout
        examples = re.findall(r"^.*?(mtcli .*?)\s*$", done.stdout.decode().partition("Examples")[2], re.MULTILINE)
        assert len(examples) > 2 or command[0] not in ("train", "translate", "eval")
        for example in examples:
            assert example.startswith(f"mtcli {command[0]}")
            parse(example)


def test_version_shows_what_a_bug_report_needs(tmp_path: Path) -> None:
    lines = mtcli("--version", cwd=tmp_path).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["mtcli", "Python", "PyTorch", "device"]
    assert lines[2] == f"PyTorch {version('torch')}"


def test_eval_compares_two_systems(toy_run: Path, tmp_path: Path) -> None:
    pairs = [json.loads(x)["translation"] for x in (toy_run / "data" / "test.jsonl").read_text().splitlines()]
    (tmp_path / "src").write_text("".join(p["en"] + "\n" for p in pairs))
    (tmp_path / "ref").write_text("".join(p["xx"] + "\n" for p in pairs))
    line = ["eval", "--model", toy_run, "-b", "1", "--bleu", "--chrf", "--compare"]
    done = mtcli(*line, "ref", "--by-length", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"A is {toy_run}, B is ref" in done.stderr.decode()
    bleu, signature, chrf, _, sentences, *shown = done.stdout.decode().splitlines()
    assert bleu.startswith("BLEU = ")
    assert " in A, 100.0 " in bleu
    assert "tok:13a" in signature
    assert chrf.startswith("chrF2 = ")
    assert sentences == f"Sentences: {len(pairs)} better in B by chrF, 0 worse, 0 the same"
    assert sum(text.startswith("line ") for text in shown) == min(10, len(pairs))
    assert any(f"  source     {p['en']}" in shown for p in pairs)
    assert re.fullmatch(r"\S+ words: [\d.]+ in A, 100\.0 in B, \d+ sources", shown[-1])
    files = ["eval", "--hyp-file", "src", "--src-file", "src", "--ref-file", "ref", "--compare", "ref", "--json"]
    found = json.loads(mtcli(*files, cwd=tmp_path).stdout)
    assert found["differences"][0]["b"]["score"] == pytest.approx(100.0)
    assert found["better"] == len(pairs)


def options_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every option and argument of a command and its subcommands, with the name of the command."""
    for inner in getattr(command, "commands", {}).items():
        yield from options_of(inner[1], f"{name} {inner[0]}")
    yield from ((name, parameter) for parameter in command.params if parameter.name != "help")


def test_every_empty_name_of_a_file_or_folder_is_refused() -> None:
    named = set()
    for command, parameter in options_of(get_command(app), "mtcli"):
        if not NAMES_A_FILE.search(parameter.metavar or ""):
            continue
        is_option = parameter.param_type_name == "option"
        name = max(parameter.opts, key=len) if is_option else parameter.metavar
        empty = [(name, ""), (f"{name}=",)] if is_option else [("",)]
        for arguments in empty:
            result = CliRunner().invoke(app, [*command.split()[1:], *arguments])
            assert isinstance(result.exception, UsageError), (command, arguments)
            assert str(result.exception).startswith(f"{name}: the name is empty")
        named.add(name)
    assert {"--out", "--output", "--input", "--model", "--train", "--ref-file", "--terms", "--compare"} <= named
    assert {"MODEL", "RUN", "DIR", "SOURCE", "PATH", "FILE", "CONFIG.toml|PAIRS"} <= named


def test_every_option_has_help_and_flags_show_no_type() -> None:
    found = list(options_of(get_command(app), "mtcli"))
    assert {"mtcli train", "mtcli translate", "mtcli data clean"} <= {name for name, _ in found}
    for name, parameter in found:
        if "completion" in parameter.name:
            continue
        where = f"{name}: {parameter.name}"
        assert re.fullmatch(r"[A-Z].*[.]", parameter.help, flags=re.DOTALL), where
        if getattr(parameter, "is_flag", False) and not parameter.secondary_opts:
            assert parameter.metavar == "", where
