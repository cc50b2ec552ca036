"""The budget of a run: how much of its steps or time is used, and how it ends sooner once nothing improves."""

from dataclasses import dataclass

from mtcli.config import Config, TrainConfig
from mtcli.optim import cooldown_begins
from mtcli.state import State


@dataclass(frozen=True)
class Budget:
    """What a run may use, in steps or seconds; where both are given, whichever is used up first."""

    train: TrainConfig
    scoring: float
    """How long it takes to score the test pairs, in validations."""

    @classmethod
    def of(cls, config: Config, valid: int, test: int) -> "Budget":
        """That of a run with so many validation and test pairs."""
        search = (1 + config.decode.beam_size) / 2  # times a greedy one's; 2.8 at 5 (scripts/bench_decode.py)
        return cls(config.train, search * test / max(1, valid))

    @property
    def limits(self) -> list[float | None]:
        """Steps and seconds."""
        return [self.train.max_steps, self.train.time]

    def used(self, state: State) -> float:
        """The share that is used, 0 … 1 and beyond; what comes after the last step belongs to a budget of time."""
        shares = [0.0]
        if self.train.max_steps:
            shares.append(state.step / self.train.max_steps)
        if self.train.time:
            after = state.validation_seconds * ((2 if self.train.average > 1 else 1) + self.scoring)
            shares.append(state.seconds / max(self.train.time - 1.1 * after, 1e-9))
        return max(shares) / state.share

    def ends(self, state: State) -> str | None:
        """Why training is over, if it is: not before a cool-down that the schedule has, nor in the midst of it.

        Nor before the first step, however little time there is: a run without a model would be of no use.
        """
        if self._nothing_improves(state) and cooldown_begins(self.train) is None:
            return "nothing improved"
        if not state.step or self.used(state) < 1:
            return None
        return "budget used" if state.share == 1 else "cut short, as nothing improved"

    def renew(self, state: State) -> None:
        """Forget that the run has ended, or was cut short, if that was under another budget."""
        if state.budget not in (None, self.limits):
            state.finished, state.stale, state.share, state.budget = None, 0, 1.0, None

    def cool_down_early(self, state: State) -> bool:
        """Where nothing improves, begin the cool-down at once, as if the budget had been so much smaller."""
        begins, used = cooldown_begins(self.train), self.used(state)
        if begins is None or used >= begins or not self._nothing_improves(state):
            return False
        state.share, state.budget = state.share * used / begins, self.limits
        return True

    def _nothing_improves(self, state: State) -> bool:
        return 0 < self.train.patience <= state.stale
