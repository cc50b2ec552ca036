"""Write pairs of sentences in every form that `--train` accepts, and read them with readers and commands."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import toy_pairs
from helpers.harness import SETTINGS, Job, Result, run

from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError
from mtcli.text.lines import Counts, Pair

Count = Callable[[int, int], int]
RawPair = tuple[bytes, bytes]

PREFIX = "prefix"
PACKED = "packed prefix"
TWO = "two files"
TSV = "tsv"
TSV_GZ = "tsv.gz"
JSONL = "jsonl"
PARQUET = "parquet"
FOLDER = "folder"
BY_FILE = (PREFIX, PACKED, TWO)
TEXT = (*BY_FILE, TSV, TSV_GZ, JSONL)
FORMS = (*TEXT, PARQUET, FOLDER)

LOG = ("device: ", "training the tokenizer", "warning: ")
"""Starts of lines on stderr that do not report a failure."""


def raw(pairs: Sequence[Pair]) -> list[RawPair]:
    return [(a.encode(), b.encode()) for a, b in pairs]


PAIRS = raw([(f"{a} {i}", f"{b} {i}") for i, (a, b) in enumerate(toy_pairs(40))])
"""Each sentence ends with the number of its pair."""


def with_at(line: int, src: bytes | None = None, tgt: bytes | None = None) -> list[RawPair]:
    """Return the pairs with other sides in one line, counted from 1."""
    pairs = list(PAIRS)
    a, b = pairs[line - 1]
    pairs[line - 1] = (a if src is None else src, b if tgt is None else tgt)
    return pairs


def aligned(pairs: Sequence[Pair]) -> bool:
    """Return True if both sides of each pair end with the same number."""
    return all(a.split()[-1] == b.split()[-1] for a, b in pairs)


def write(folder: Path, form: str, pairs: Sequence[RawPair], end: bytes = b"\n", last: bool = True) -> str:
    """Write pairs in a form, and return the `--train` argument that reads them.

    Args:
        folder: A new folder.
        form: One of FORMS.
        pairs: Any bytes.
        end: The end of each line.
        last: The last line has this end too.
    """
    folder.mkdir(parents=True)

    def lines(rows: Sequence[bytes]) -> bytes:
        return end.join(rows) + (end if last and rows else b"")

    if form in BY_FILE:
        pack = gzip.compress if form == PACKED else bytes
        names = [folder / f"t.{side}{'.gz' if form == PACKED else ''}" for side in ("en", "de")]
        for i, name in enumerate(names):
            name.write_bytes(pack(lines([pair[i] for pair in pairs])))
        return f"{names[0]},{names[1]}" if form == TWO else str(folder / "t")
    if form == JSONL:
        (folder / "t.jsonl").write_bytes(lines([b'{"en": "%s", "de": "%s"}' % pair for pair in pairs]))
        return str(folder / "t.jsonl")
    if form in (TSV, TSV_GZ):
        raw = lines([b"\t".join(pair) for pair in pairs])
        (folder / f"t.{form}").write_bytes(gzip.compress(raw) if form == TSV_GZ else raw)
        return str(folder / f"t.{form}")
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.array([pair[i] for pair in pairs], pa.binary()).view(pa.string()) for i in (0, 1)]
    pq.write_table(pa.table(columns, names=["en", "de"]), folder / "t.parquet")
    return str(folder if form == FOLDER else folder / "t.parquet")


def read(spec: str, **options: Any) -> tuple[list[Pair], Counts]:
    """Read the pairs of a source, and assert that the counts add up."""
    counts = Counts()
    pairs = list(read_pairs(spec, "en", "de", counts=counts, **options))
    assert counts.read == counts.used + sum(counts.skipped.values())
    assert counts.used == len(pairs)
    return pairs, counts


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Assert that the block raises a DataError of one line with all these words."""
    with pytest.raises(DataError) as caught:
        yield
    is_one_line(f"mtcli: {caught.value}\n", *words)


def is_one_line(err: str, *words: str) -> None:
    assert len(err.splitlines()) == 1, err
    assert err.startswith("mtcli: "), err
    for word in words:
        assert word in err, err


def failed(done: Result, code: int, *words: str) -> None:
    """Assert that a command ended with this code, no output, and one line with all these words."""
    assert (done.code, done.out) == (code, ""), done.err
    is_one_line("".join(line for line in done.err.splitlines(True) if not line.startswith(LOG)), *words)


QUICK = ("train.engine", "train.precision", "decode.max_extra")
"""Settings without which the end of a training takes longer than its step."""


def train(spec: str, out: Path, *more: str, **options: Any) -> Result:
    small = {name: SETTINGS[name] for name in SETTINGS if name.startswith("model.") or name in QUICK}
    settings = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    return run(
        "train",
        "--train",
        spec,
        "--src",
        "en",
        "--tgt",
        "de",
        "--out",
        out,
        "--max-steps",
        "1",
        *settings,
        *more,
        **options,
    )


def translate(job: Job, text: bytes, folder: Path, *more: str | Path) -> Result:
    (folder / "input").write_bytes(text)
    return run("translate", "--model", job.clean, "-b", "1", "--max-length", "4", *more, stdin=folder / "input")
