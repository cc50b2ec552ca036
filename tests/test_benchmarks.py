"""The benchmarks of docs/performance.md."""

import json
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def write_pairs(path: Path) -> Path:
    """Write pairs whose words are enough for a vocabulary of 10,000."""
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=8)) for _ in range(4000)]
    sides = [" ".join(draw.choices(words, k=12)) for _ in range(2000)]
    path.write_text("".join(f"{source}\t{source[::-1]}\n" for source in sides))
    return path


@pytest.mark.slow
def test_our_trainer_and_the_plain_loop_train_on_the_same_pairs(tmp_path: Path) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.tsv"))
    options = ["--src", "en", "--tgt", "de", "--runs", "1", "--steps", "5", "--precision", "fp32"]
    command = [sys.executable, str(SCRIPTS / "bench_train.py"), "--train", pairs, *options]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (figures,) = json.loads(output.splitlines()[-1])["pairs"]
    # Dropout is drawn in another order.
    assert figures["mtcli_loss_nats_per_token"] == pytest.approx(figures["baseline_loss_nats_per_token"], rel=0.02)
    assert figures["ratio"] > 0
