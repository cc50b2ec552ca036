"""The work after the last step: what it costs, and how much time is reserved for it."""

from dataclasses import dataclass
from typing import Literal

from mtcli.storage.state import State

MAX_RESERVED_SHARE = 0.3
"""Largest share of the time that is reserved for the work up to the last checkpoint."""

INITIAL_RESERVED_SHARE = 0.1
"""Share of the time that is reserved for this work before the first validation."""

ADDED_SHARE = 0.04
"""Largest share of the time that is reserved for what is added after the last checkpoint: engine and confidence."""

UNINTERRUPTED_CHECKPOINTS = 2
"""Converting the model and syncing its files cannot be interrupted. This many times the duration of a checkpoint before
the end of the time, they are no longer begun, and the comparison between them ends."""

RESERVE_FACTOR = 1.25
"""The reserved time is this many times the measured time, since the speed may change."""

Task = Literal["valid", "average", "start", "test"]
"""A part of the work, in this order: validating the last step, the average, and the starting model, and scoring."""


@dataclass(frozen=True)
class FinalWork:
    """The work after the last step."""

    valid: int = 0
    """Number of validation pairs."""
    test: int = 0
    """Number of test pairs."""
    beam_size: int = 4
    """Beam size of the test scores."""
    averages: bool = False
    """The last checkpoints are averaged, and the average is validated."""
    fine_tunes: bool = False
    """The run starts from another model, which is validated again."""
    compared: int = 0
    """Number of sentences whose translations are compared at the end; see `exchange.engine_export`."""
    calibrated: int = 0
    """Number of lines that are translated to calibrate the confidence; see `evaluation.confidence`."""

    @property
    def beam_cost(self) -> float:
        """Cost of beam search relative to greedy search; 2.8 was measured for a beam of 5 (scripts/bench_decode.py)."""
        return (1 + self.beam_size) / 2

    def costs(self) -> dict[Task, float]:
        """Return the cost of each task, in greedy translations, in the order of the tasks."""
        return {
            "valid": float(self.valid),
            "average": float(self.valid) if self.averages else 0.0,
            "start": float(self.valid) if self.fine_tunes else 0.0,
            "test": self.test * self.beam_cost,
        }

    def reserved_seconds(self, state: State, total: float) -> float:
        """Return the seconds that are reserved for this work.

        Args:
            state: The state after a step.
            total: Seconds from the first step to the end.
        """
        if state.pair_seconds:
            seconds_per_pair = RESERVE_FACTOR * state.pair_seconds
            reserved = seconds_per_pair * sum(self.costs().values()) + 3 * state.checkpoint_seconds
        else:
            reserved = INITIAL_RESERVED_SHARE * total
        return min(reserved, MAX_RESERVED_SHARE * total) + self._added_seconds(state, total)

    def _added_seconds(self, state: State, total: float) -> float:
        """Return the seconds that are reserved for the engine and the confidence."""
        comparing = 2 * self.compared * (1 + self.beam_cost)  # with two libraries and two searches
        calibrating = self.calibrated * self.beam_cost
        translating = RESERVE_FACTOR * (comparing + calibrating) * state.pair_seconds
        converting = state.checkpoint_seconds + uninterrupted_seconds(state) if self.compared else 0.0
        return min(translating + converting, ADDED_SHARE * total)


def uninterrupted_seconds(state: State) -> float:
    """Return how many seconds before the end of the time the engine is no longer begun, and its comparison ends."""
    return UNINTERRUPTED_CHECKPOINTS * state.checkpoint_seconds
