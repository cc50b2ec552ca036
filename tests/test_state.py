"""The state of a training: the figures of its validations, in memory and in the file of a checkpoint."""

import json
from pathlib import Path

import pytest

from mtcli.config.scores import SelectionMetric
from mtcli.errors import ModelError
from mtcli.storage.state import Figures, FiguresWithCorrections, OneFigure, State, ThreeFigures

VALIDATION = {"bleu": 31.5, "chrf": 55.25, "loss": 1.75, "pairs": 500, "of": 500}
VALIDATION |= {"corrections": {"given": 3, "forgets": False}}
START = VALIDATION | {"bleu": 32.0, "corrections": {"given": 0, "forgets": True}}

WRITTEN = [
    ("bleu", "[31.5, -1.75]", "[32.0, -1.75]"),
    ("chrf", "[55.25, -1.75]", "[55.25, -1.75]"),
    ("loss", "[-1.75, -1.75]", "[-1.75, -1.75]"),
    ("combined", "[31.5, 55.25, -1.75]", "[32.0, 55.25, -1.75]"),
    ("corrections", "[31.5, 55.25, -1.75, 3.0, -0.0]", "[32.0, 55.25, -1.75, 0.0, -1.0]"),
]
"""What version 0.3 wrote of `VALIDATION` and `START`, by what selects the best model."""

NAMED: dict[str, Figures] = {
    "bleu": OneFigure(selecting=31.5, negative_loss=-1.75),
    "chrf": OneFigure(selecting=55.25, negative_loss=-1.75),
    "loss": OneFigure(selecting=-1.75, negative_loss=-1.75),
    "combined": ThreeFigures(bleu=31.5, chrf=55.25, negative_loss=-1.75),
    "corrections": FiguresWithCorrections(bleu=31.5, chrf=55.25, negative_loss=-1.75, given=3.0, not_forgotten=-0.0),
}


def as_json(state: State) -> str:
    return json.dumps(state.values())


@pytest.mark.parametrize(("metric", "best", "start"), WRITTEN)
def test_figures_are_written_as_lists(metric: SelectionMetric, best: str, start: str) -> None:
    state = State(metric=metric)
    assert state.record_if_best(VALIDATION)
    state.record_start(START)
    assert f'"best": {best}, "best_pairs": 500, "start": {start}, "start_pairs": 500' in as_json(state)


@pytest.mark.parametrize(("metric", "best", "start"), WRITTEN)
def test_figures_in_the_file_of_an_earlier_checkpoint_have_names(
    metric: SelectionMetric, best: str, start: str, tmp_path: Path
) -> None:
    values = State(metric=metric, compared_by=metric).values()
    values |= {"best": json.loads(best), "best_pairs": 500, "start": json.loads(start), "start_pairs": 500}
    (tmp_path / "state.json").write_text(json.dumps(values))
    state = State.of(tmp_path)
    assert type(state.best) is type(state.start) is type(NAMED[metric])
    assert state.best == NAMED[metric]
    assert as_json(state) == json.dumps(values)
    of_another_rank = State()
    of_another_rank.set_values(json.loads(as_json(state)))
    assert (of_another_rank, type(of_another_rank.best)) == (state, type(state.best))
    assert not state.record_if_best(VALIDATION)  # no better than itself
    assert state.record_if_best(VALIDATION | {"bleu": 31.75, "chrf": 55.5, "loss": 1.5})


@pytest.mark.parametrize("figures", [[], [1.0], [1.0] * 4, [1.0, "x"], [1.0, 1e30], 1.0])
def test_other_figures_are_refused(figures: object, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(State().values() | {"best": figures}))
    with pytest.raises(ModelError, match="not a state of this version"):
        State.of(tmp_path)
