"""What commands read and write: lines without end, inputs that cannot be read, outputs that would destroy something."""

import gzip
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest

from faults.conftest import Case
from faults.harness import Job, Result, run
from faults.inputs import failed, train
from mtcli.lines import LINE_BYTES, read_lines

MIB = 2**20


def packed(path: Path, mebibytes: int, *, first: bytes = b"") -> Path:
    """A `.gz` file of a first line and an endless one of so many MiB, which takes a thousandth of that on disk."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(first)
        file.writelines(repeat(b"tree " * (MIB // 5), mebibytes))
    return path


def test_80_line_without_end(case: Case, job: Job, tmp_path: Path) -> None:
    text = packed(tmp_path / "text.gz", 17, first=b"red tree.\n")
    pairs = packed(tmp_path / "pairs.tsv.gz", 17, first=b"red tree.\tder eert.\n")
    plain = tmp_path / "plain"
    plain.write_bytes(gzip.decompress(text.read_bytes()))
    model = ("--model", job.clean)
    commands: list[Callable[[], Result]] = [
        lambda: run("translate", *model, "-i", text, "-o", tmp_path / "out"),
        lambda: run("tokenizer", "train", text, "-o", tmp_path / "out"),
        lambda: run("eval", "--hyp-file", text, "--ref-file", text),
        lambda: run("score", *model, "--src-file", text, "--tgt-file", text),
        lambda: run("data", "check", pairs),
        lambda: run("data", "clean", pairs, "-o", tmp_path / "out.tsv"),
        lambda: train(str(pairs), tmp_path / "run"),
    ]
    for command in commands:
        with case.fault():
            failed(command(), 3, ".gz:2: longer than 16 MiB")
    for command in (("translate", *model), ("tokenizer", "encode", *model)):
        with case.fault():
            done = run(*command, stdin=plain)
            assert (done.code, done.last.partition(";")[0]) == (
                3,
                "mtcli: standard input:2: longer than 16 MiB, the limit",
            )


def test_80_the_longest_line_that_is_read(tmp_path: Path) -> None:
    for end in (b"\n", b"\n.\n", b""):
        (tmp_path / "text").write_bytes(b"x" * LINE_BYTES + end)
        assert len(next(read_lines(tmp_path / "text"))) == LINE_BYTES
    assert len(next(read_lines([b"x" * LINE_BYTES + b"\n"]))) == LINE_BYTES


def test_80_no_more_of_a_file_is_read_than_its_line_may_have() -> None:
    asked = list[int]()

    class Endless:
        def readline(self, size: int) -> bytes:
            asked.append(size)
            return b"x" * size

    with pytest.raises(Exception, match="longer than 16 MiB"):
        next(read_lines(Endless()))  # type: ignore[arg-type]
    assert asked == [LINE_BYTES + 1]
