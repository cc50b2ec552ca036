"""The work after the last step: what it costs, and how much time is reserved for it."""

from dataclasses import dataclass
from typing import Literal

from mtcli.storage.state import State

MAX_RESERVED_SHARE = 0.3
"""Largest share of the time that is reserved for the work after the last step, without converting and calibrating."""

INITIAL_RESERVED_SHARE = 0.1
"""Share of the time that is reserved for this work before the first validation."""

ENGINE_SHARE = 0.02
"""Largest share of the time that is reserved for converting the model, which the other work does not need."""

CALIBRATION_SHARE = 0.02
"""Largest share of the time that is reserved for calibrating the confidence of translations."""

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
        more = self._engine_seconds(state, total) + self._calibration_seconds(state, total)
        return min(reserved, MAX_RESERVED_SHARE * total) + more

    def _engine_seconds(self, state: State, total: float) -> float:
        """Return the seconds that are reserved for converting the model and comparing its translations."""
        if not self.compared:
            return 0.0
        comparing = 2 * self.compared * (1 + self.beam_cost) * state.pair_seconds  # with two libraries and two searches
        return min(RESERVE_FACTOR * comparing + state.checkpoint_seconds, ENGINE_SHARE * total)

    def _calibration_seconds(self, state: State, total: float) -> float:
        """Return the seconds that are reserved for calibrating the confidence."""
        translating = self.calibrated * self.beam_cost * state.pair_seconds
        return min(RESERVE_FACTOR * translating, CALIBRATION_SHARE * total)
