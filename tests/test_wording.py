import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import run, start, until
from helpers.toy import save_toy, toy

from mtcli.config.schema import DecodeConfig
from mtcli.report.plan import describe_counts
from mtcli.runtime.progress import _Formatter
from mtcli.runtime.wording import aligned, command, counted, every, one_line, printable
from mtcli.storage.model_file import ModelInfo, model_bytes, parameters
from mtcli.training.validation import TestScores as Scores

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202een\r\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("en → es, ¡olé! 漢字 नमस्ते \u200f", "en → es, ¡olé! 漢字 नमस्ते \u200f"),
        ("\x1b[2J\x07\0\x7f\x9b", r"\x1b[2J\x07\x00\x7f\x9b"),
        ("a\nb\rc\td\u2028", r"a\nb\rc\td\u2028"),
        ("\u202eabc", r"\u202eabc"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_control_characters_are_escaped_in_log_lines() -> None:
    record = logging.LogRecord("mtcli", logging.WARNING, "", 0, "line 1: %s", (HOSTILE,), None)
    assert _Formatter().format(record) == r"warning: line 1: \x1b]0;owned\x07\x9b31m\u202een\r\n"


def hostile_info() -> ModelInfo:
    """The metadata of a model whose language codes contain control characters."""
    pieces = toy().tokenizer
    return ModelInfo.model_construct(
        model=toy().model.config, decode=DecodeConfig(), src=HOSTILE, tgt=HOSTILE, joint=pieces.joint, step=1,
        longest_src=64, src_vocab=pieces.src_size, tgt_vocab=pieces.tgt_size, tokenizer=pieces.digest(),
    )  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = save_toy(tmp_path)
    (folder / "model.safetensors").write_bytes(model_bytes(parameters(toy().model), hostile_info()))
    return folder


def is_harmless(output: str) -> None:
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(output)


def test_control_characters_are_escaped_in_metadata_of_a_model(hostile: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    exported.mkdir()
    about: dict[str, Any] = {"format": 2, "to": HOSTILE, "mtcli": HOSTILE, "quantization": HOSTILE}
    about["model"] = hostile_info().model_dump(mode="json")
    (exported / "mtcli.json").write_text(json.dumps(about))
    for words in (["info", hostile], ["info", exported], ["translate", "--model", exported, "one"]):
        done = run(*words)
        assert "owned" in done.out + done.err
        is_harmless(done.out + done.err)


def test_control_characters_are_escaped_in_the_address_of_a_server(hostile: Path) -> None:
    child = start("serve", "--model", hostile, "--port", "0")
    printed = child.folder / "err"
    until(lambda: printed.exists() and "\n" in printed.read_text(), child)
    child.send(signal.SIGKILL)
    said = child.wait().err
    assert "owned" in said
    is_harmless(said)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("Hola Mundo", 10, "Hola Mundo"),
        ("Hola Mundo", 9, "Hola Mun…"),
        ("a\tb\x1b[31mc\r\n", 99, r"a\tb\x1b[31mc\r\n"),
        ("a\u2028b\u202ec", 99, r"a\u2028b\u202ec"),
        ("你好世界", 8, "你好世界"),
        ("你好世界", 7, "你好世…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("می\u200cخواهم", 20, "می\u200cخواهم"),  # joiners are kept
        ("", 5, ""),
    ],
)
def test_one_line(text: str, width: int, shown: str) -> None:
    assert one_line(text, width) == shown


def test_a_number_with_its_noun() -> None:
    numbers = (0, 1, 2, 1234)
    assert [counted(n, "pair") for n in numbers] == ["0 pairs", "1 pair", "2 pairs", "1,234 pairs"]
    assert counted(2, "entry", "entries") == "2 entries"
    assert [every(n, "step") for n in (1, 2, 1234)] == ["every step", "every 2 steps", "every 1,234 steps"]


def test_a_table_has_columns_of_equal_width() -> None:
    rows = [("", "BLEU", "end"), ("plain", "9.5", "")]
    assert aligned(rows) == ["       BLEU  end", "plain  9.5"]
    assert aligned(rows, numeric=True) == ["       BLEU  end", "plain   9.5"]


def test_messages_about_one_pair() -> None:
    assert str(Scores(pairs=1, of=1, beam_size=4, scores=[])).startswith("1 test pair, beam 4")
    counts = {"read": 1, "train": 1, "valid": 0, "test": 0, "skipped": {}}
    assert describe_counts(counts).startswith("1 pair read: 1 to train on")


def test_commands_are_quoted_for_a_shell() -> None:
    assert command("eval", Path("runs/demo")) == "mtcli eval --model runs/demo"
    assert command("translate", Path("my runs/a"), '"…"') == "mtcli translate --model 'my runs/a' \"…\""
