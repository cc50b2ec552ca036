from pathlib import Path

from mtcli.report.plan import describe_counts
from mtcli.runtime.wording import aligned, command, counted, every
from mtcli.training.validation import TestScores as Scores


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
