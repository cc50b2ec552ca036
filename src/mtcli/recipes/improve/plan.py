"""`mtcli improve --dry-run`: the stages and their commands, before anything is measured or written."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mtcli.corpus.readers.sources import parse_source
from mtcli.recipes.improve.commands import Scores, Stages, Training
from mtcli.recipes.improve.material import Lines, Material, Synthetic
from mtcli.recipes.improve.method import Method
from mtcli.recipes.improve.pairs import choose_splits, corpus_pairs
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.monolingual import Text
from mtcli.text.lines import Counts

ASSUMPTIONS = (
    "assuming that each training uses its share of the budget, that translating takes no time, and that each model is "
    "better than the one before"
)

MANY_EPOCHS = 1000.0
"""Assumed number of epochs of the plain model, so that all monolingual lines are useful."""


def plan(request: ImproveRequest) -> str:
    """Return the stages with their commands and shares of the budget, as lines of text.

    Args:
        request: The request.

    Raises:
        DataError: The pairs or the texts cannot be used.
    """
    stages = _PlannedStages(request)
    Method(stages, _PlannedMaterial(stages)).run()
    lines = [f"The stages, {ASSUMPTIONS}:"]
    for name, command in stages.commands:
        amount = stages.amounts.get(name)
        share = f" ({amount / request.budget.total:.0%} of the budget)" if amount else ""
        lines.append(f"{name}{share}: {shlex.join(['mtcli', *command])}")
    return "\n".join(lines)


class _PlannedStages(Stages):
    """Stages that are noted and not run."""

    def __init__(self, request: ImproveRequest):
        super().__init__(request)
        self.commands: list[tuple[str, list[str]]] = []
        self.amounts: dict[str, float] = {}
        """The share of the budget of each training."""
        self._decisions: dict[str, Any] = {}

    def remaining(self) -> float:
        return self.budget.total - sum(self.amounts.values())

    def decide(self, name: str, decision: Callable[[], Any]) -> Any:
        if name not in self._decisions:
            self._decisions[name] = decision()
        return self._decisions[name]

    def train(self, name: str, corpora: Sequence[str], amount: Callable[[], float], **options: Any) -> Training:
        given = amount()
        super().train(name, corpora, lambda: given, **options)
        self.amounts[name] = given
        return self.trainings[name]

    def copy_run(self, run: Path, folder: Path) -> None:
        pass

    def result_of(self, folder: Path) -> Training:
        amount = float(self.commands[-1][1][-1].removesuffix("s"))
        return Training(str(folder), int(amount), amount, MANY_EPOCHS, "budget used", limit=amount)

    def score(self, stage: str, *folders: str) -> Scores:
        self.run(f"{stage}, validation", lambda: self.score_command("valid", *folders))
        better = float(len(self.commands))
        return Scores(better, better, 0.0)

    def run(self, name: str, command: Callable[[], list[str]], *, is_captured: bool = False) -> str:
        self.commands.append((name, command()))
        return "{}"

    def seconds_of(self, name: str) -> float:
        return 0.0


class _PlannedMaterial(Material):
    """Material whose files are not written."""

    def __init__(self, stages: Stages):
        self._lines: dict[Path, int] = {}
        """Number of lines that each file of pairs is made of."""
        super().__init__(stages)

    def _write_pairs(self) -> dict[str, Any]:
        splits = choose_splits(self.data)
        sizes: dict[str, Any] = {"train": []}
        for corpus, spec in enumerate(self.data.train):
            pairs = corpus_pairs(parse_source(spec).path, self.data)
            sizes["train"].append(sum(1 for _ in splits.training_pairs(corpus, pairs, Counts())))
        for name, given, held_out in (
            ("valid", self.data.valid, splits.held_out.n_valid),
            ("test", self.data.test, splits.held_out.n_test),
        ):
            sizes[name] = sum(1 for _ in corpus_pairs(given, self.data)) if given else held_out
            self._check_held_out(name, given, sizes[name])
        return sizes

    def _held_out(self) -> frozenset[str]:
        return frozenset()

    def _untagged(self, corpus: Path) -> Path:
        return corpus

    def side(self, *, source: bool) -> Lines:
        name = f"train.{self.data.src if source else self.data.tgt}.txt"
        return Lines(Text(self.folder / name), self.num_pairs)

    def _text_for_tokenizer(self, lines: Lines, *, source: bool) -> Path:
        return self.folder / f"text.{self.data.src if source else self.data.tgt}.txt"

    def translate(
        self, name: str, model: str, lines: Lines, how: Sequence[str], *, at_most: int, amount: float
    ) -> list[Path]:
        path = self._augment(f"{name}-1", model, how)
        self._lines[path] = min(lines.number, at_most)
        return [path]

    def merge(self, name: str, files: Sequence[Path]) -> Synthetic:
        return Synthetic(self.request.out / f"{name}.jsonl", sum(self._lines[file] for file in files))
