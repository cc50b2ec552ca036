"""Flip a bit or truncate a file anywhere in a run folder: the damage is detected, or has no effect."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from helpers.harness import Job, contents, cut, flip, outcome, run, whole

from faults.conftest import Case

Count = Callable[[int, int], int]


def damaged(original: Path, out: Path, rng: random.Random, names: list[str]) -> tuple[str, dict[str, bytes]]:
    """Copy a run and damage one of these files. Return its name and the new content of the folder."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(original, out)
    name = rng.choice(names)
    rng.choice([flip, flip, flip, cut])(out / name, rng)
    return name, contents(out)


def test_22_bitflip_anywhere_then_train(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    """Train again in a finished run: the damage is refused and nothing changed, or repaired, or never read."""
    out = tmp_path / "run"
    names = sorted(contents(job.clean))
    newest = f"step-{whole(job.clean)[-1]:08d}"
    for _ in range(count(1500, 2)):
        name, before = damaged(job.clean, out, rng, names)
        with case.fault():
            done = run(*job.command(out))
            assert "Traceback" not in done.err
            if done.code == 0:
                after = outcome(out, but=name)
                assert after == outcome(job.clean, but=name)
                if (out / name).read_bytes() == before[name] and "damaged" not in done.err:
                    assert name == "metrics.jsonl" or ("checkpoints/" in name and newest not in name)  # not read
            else:
                assert done.code in (2, 3, 4), done.err
                assert done.last.startswith("mtcli: ")
                assert Path(name).name in done.last or (name == "config.toml" and "→" in done.last)
                assert contents(out) == before


def test_22_bitflip_anywhere_then_translate(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    """Translate with the published model: it is refused, or gives the same translations."""
    out = tmp_path / "run"
    text = tmp_path / "text"
    text.write_text("".join(line.partition("\t")[0] + "\n" for line in (job.folder / "test.tsv").open()))
    wanted = run("translate", "--model", job.clean, "--input", text)
    assert (wanted.code, wanted.out.count("\n")) == (0, 10)
    for _ in range(count(500, 2)):
        name, before = damaged(job.clean, out, rng, ["model.safetensors", "tokenizer.json", "config.toml"])
        with case.fault():
            done = run("translate", "--model", out, "--input", text)
            assert "Traceback" not in done.err
            if done.code == 0:
                assert done.out == wanted.out
            else:
                assert (done.code, done.out) == (4, ""), done.err
                assert name in done.last or str(out) in done.last
            assert contents(out) == before
