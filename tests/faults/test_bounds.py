"""Numbers beyond all bounds, and folders that hold what no run wrote: refused with a line, and nothing waits."""

from pathlib import Path

from faults.conftest import Case
from faults.harness import Job, Result, run
from faults.inputs import Count

SETTINGS = {
    "tokenizer.vocab_size": ["1000000000", "true", '"9"'],
    "model.d_model": ["100000000000000000000", "65538", "-2", "true"],
    "model.num_encoder_layers": ["1000000000", "0x" + "f" * 5000],
    "model.max_positions": ["1e400", "-5"],
    "train.time": ["true", "inf", "nan", "1e300", "9" * 400],
    "train.lr": ["true", "1e31", "nan"],
    "train.seed": ["-1", str(2**63), "1.5"],
    "train.max_steps": ["10000000000"],
    "decode.beam_size": ["1000000"],
    "decode.length_penalty": ["1e300", "inf"],
    "data.valid": ['"a\\u0000b"'],
}

OPTIONS = {
    "translate": [
        ("-b", ["1000000", "0", "1" * 5000]),
        ("--n-best", ["1000000000", "-1"]),
        ("--length-penalty", ["1e300", "inf", "nan", "-0.5"]),
        ("--temperature", ["inf", "nan", "0"]),
        ("--max-length", ["1000000000000"]),
        ("--top-k", ["-1", str(10**30)]),
        ("--seed", [str(2**64)]),
    ],
    "eval": [("-b", ["1000000"]), ("--length-penalty", ["nan"])],
    "average": [("-n", ["0", "1000000000"])],
    "serve": [("--timeout", ["inf", "nan", "1e300"]), ("--port", ["65536"]), ("--max-body", [str(10**18)])],
}


def refused_number(done: Result, *words: str) -> None:
    """Assert that a number was refused: by the command line in its box, or by the configuration in a line."""
    assert done.code == 2, done.err
    assert "unexpected" not in done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def test_94_number_out_of_bounds(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    settings = [(name, value) for name, values in SETTINGS.items() for value in values]
    for name, value in settings[: count(len(settings), 12)]:
        with case.fault():
            done = run(*job.command(tmp_path / "run", "--dry-run", "--set", f"{name}={value}"))
            refused_number(done, name)
            assert len(done.err) < 1000
    options = [(command, name, value) for command, rows in OPTIONS.items() for name, vs in rows for value in vs]
    for command, name, value in options[: count(len(options), 12)]:
        with case.fault():
            refused_number(run(command, "--model" if command != "average" else "-o", job.clean, f"{name}={value}"
                               if name.startswith("--") else name + value), name)  # fmt: skip
    for weight in ("1e308", "inf", "nan", "0", "-1", "10001"):
        with case.fault():
            spec = f"{job.folder / 'train.tsv'}@{weight}"
            done = run("train", "--train", spec, "--tgt", "xx", "--dry-run", cwd=tmp_path)
            refused_number(done, "weight after @")
    with case.fault():
        done = run(
            "tokenizer", "train", job.folder / "train.tsv", "-o", tmp_path / "t.json", "--vocab-size", str(10**9)
        )
        refused_number(done, "--vocab-size")
    assert not list(tmp_path.iterdir())
