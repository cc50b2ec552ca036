"""Fixtures that count faults: each test injects some, and a table at the end shows how many were survived.

A test is named after its case in README.md, `test_NUMBER_name`, and uses the fixture `case`. `scripts/faults` runs all
tests with full counts. In the default suite the same tests inject only a few faults each.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from conftest import toy_pairs, write_tsv
from helpers import points
from helpers.harness import Job, outcome, run, run_alone, start, whole

FULL = 300
"""Kills of a full run. The counts of all other faults are proportional to it."""


@dataclass
class Case:
    """The faults that were injected under the number of a case, and how many were survived."""

    name: str
    injected: int = 0
    survived: int = 0
    skipped: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.injected - self.survived

    @contextmanager
    def fault(self, n: int = 1) -> Iterator[None]:
        """Count the `n` faults of a block. They are survived unless the block raises."""
        before = self.injected
        self.injected += n
        try:
            yield
        except pytest.skip.Exception:
            self.injected = before
            raise
        self.survived += n


cases = pytest.StashKey[dict[int, Case]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", type=int, metavar="N", help=f"run all faults, in proportion to N kills ({FULL}: full counts)"
    )


def kills(config: pytest.Config) -> int | None:
    """Return the option `--kills`; None in the default suite, which does not have it."""
    return config.getoption("kills", None)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The row of this test's case in the table."""
    return case_of(request.config, request.function.__name__)


def case_of(config: pytest.Config, test: str) -> Case:
    """Return the row of a test. Tests with the same number share a row, whose name is the shortest of theirs."""
    number, _, name = test.removeprefix("test_").replace("_", "-").partition("-")
    row = config.stash.setdefault(cases, {}).setdefault(int(number), Case(name))
    row.name = min(row.name, name, key=len)
    return row


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`count(full, quick)`: the number of faults to inject, `full` at 300 kills and `quick` in the default suite."""
    n = kills(request.config)
    return lambda full, quick: quick if n is None else max(1, math.ceil(full * n / FULL))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers, the same in every run of this test."""
    return random.Random(request.node.name)


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A small training, and its result without faults."""
    folder = tmp_path_factory.mktemp("job")
    pairs = toy_pairs(200)
    for name, part in {"train": pairs[:180], "valid": pairs[180:190], "test": pairs[190:]}.items():
        write_tsv(folder / f"{name}.tsv", part)
    job = Job(folder, folder / "clean")
    server = start("--version")  # the fork server takes seconds to start its first child
    done = run_alone(*job.command(job.clean), cwd=folder)
    assert (server.wait().code, done.code) == (0, 0), done.err
    return job


@pytest.fixture(scope="session")
def begun(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its 25th step. Tests copy it."""
    out = tmp_path_factory.mktemp("begun") / "run"
    assert run(*job.command(out), within=[partial(points.strike_in, points.BACKWARD, 50)]).code == -9
    assert whole(out)[-1] == 24
    return out


@pytest.fixture(scope="session")
def seen(job: Job, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All points (see `points.py`) of a run from start to end, in order."""
    folder = tmp_path_factory.mktemp("seen")
    assert run(*job.command(folder / "run"), within=[partial(points.record, folder / "run", folder / "log")]).code == 0
    assert outcome(folder / "run") == outcome(job.clean)  # recording does not change the result
    return (folder / "log").read_text().splitlines()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        case_of(item.config, item.originalname).skipped.append(report.longrepr[2].removeprefix("Skipped: "))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if kills(config) is None:
        return
    found = config.stash.get(cases, {})
    line = "{:>4} {:<34}{:>9}{:>10}{:>6}".format
    terminalreporter.section("faults")
    terminalreporter.line(line("", "case", "injected", "survived", "lost"))
    for number, row in sorted(found.items()):
        if row.injected:
            terminalreporter.line(line(number, row.name, row.injected, row.survived, row.lost))
        for reason in dict.fromkeys(row.skipped):
            terminalreporter.line(f"{number:>4} {row.name:<34} skipped: {reason}")
    totals = (sum(getattr(row, what) for row in found.values()) for what in ("injected", "survived", "lost"))
    terminalreporter.line(line("", f"{sum(bool(row.injected) for row in found.values())} cases", *totals))
