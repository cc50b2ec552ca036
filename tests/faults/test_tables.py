"""Tables with one broken row, and language codes that are invalid or missing."""

import gzip
import random
from pathlib import Path

import pytest
from helpers.harness import run

from faults.conftest import Case
from faults.inputs import PAIRS, Count, failed, read, refused, train

ROWS = [f"{a.decode()};{b.decode()}" for a, b in PAIRS]
BROKEN = {
    "a separator too many": (lambda row: row + ";", "3 columns, and line 1 has 2"),
    "a separator too few": (lambda row: row.replace(";", " "), "1 column, and line 1 has 2"),
    "an open quotation mark": (lambda row: '"' + row, "a quotation mark opens in this row and is never closed"),
    "one that is closed too early": (lambda row: '"' + row.replace(" ", '" ', 1), "not CSV"),
    "a lone carriage return": (lambda row: row.replace(" ", "\r", 1), "a carriage return outside of quotation marks"),
    "NUL": (lambda row: row + "\0", "is NUL"),
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_98_csv_with_a_broken_row(case: Case, tmp_path: Path, delimiter: str, rng: random.Random, count: Count) -> None:
    for name, (damage, said) in BROKEN.items():
        for packed in (False, True):
            number = rng.randrange(2, len(ROWS) + 1)
            rows = list(ROWS)
            rows[number - 1] = damage(rows[number - 1])
            text = "".join(row + "\r\n" for row in rows).replace(";", delimiter).encode()
            path = tmp_path / f"{name}.csv{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(text) if packed else text)
            with case.fault(), refused(f"{path}:{number}: ", said):
                read(str(path))
    for _ in range(count(3, 1)):
        with case.fault():
            failed(train(str(path), tmp_path / "run"), 3, f"{path}:{number}: ")
    sound = tmp_path / "sound.csv"
    sound.write_text("\n".join(ROWS).replace(";", delimiter))
    assert read(str(sound))[0] == [(a.decode(), b.decode()) for a, b in PAIRS]


def test_99_languages(case: Case, tmp_path: Path, count: Count) -> None:
    pairs = tmp_path / "in" / "pairs.tsv"
    pairs.parent.mkdir()
    pairs.write_text("a\tb\n" * 30)
    (tmp_path / "in" / "config.toml").write_text(f'[data]\ntrain = ["{pairs}"]\nsrc = "en"\ntgt = "../../up"\n')
    codes = ["../../up", "/up", "a b", "", "..", "a\nb"]
    commands = [("data", "check", pairs), ("data", "clean", pairs, "-o", tmp_path / "in" / "out"), ("train", pairs)]
    lines = [(*words, "--src", "en", "--tgt", code) for code in codes[: count(6, 1)] for words in commands]
    lines += [("train", tmp_path / "in" / "config.toml"), ("train", pairs), ("train", pairs, "--tgt", "es")]
    before = {path for path in tmp_path.rglob("*") if path != tmp_path / "in"}
    for line in lines:
        with case.fault():
            failed(run(*line, cwd=tmp_path / "in"), 2)
            assert {path for path in tmp_path.rglob("*") if path != tmp_path / "in"} == before
