"""The budget of `mtcli improve`, and the shares of its stages."""

from dataclasses import dataclass
from typing import Literal

from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted

PLAIN_SHARE = 0.25
"""Share of the budget for training the plain model, with which the result is compared."""

REVERSE_SHARE = 0.27
"""Share of a round's budget for training its reverse model. With one round, it is a fifth of the whole budget."""

TRANSLATION_SHARE = 0.2
"""Largest share of a round's budget for translating monolingual text."""

TEACHERS_SHARE = 0.5
"""Largest share of the budget for the models whose translations diversify the pairs, the plain one included."""

MAX_TEACHERS = 3
"""Largest number of models of each direction in data diversification. Nguyen et al. (2020) found no gain from more."""

ROUND_COST = 5.0
"""A round takes about as much as this many trainings of the plain model until it stops improving."""

MAX_ROUNDS = 3
"""Largest number of rounds of synthesis and training. Hoang et al. (2018) found hardly any gain from more than two."""

MIN_SHARE = 0.1
"""A smaller rest of the budget is left unused."""

MIN_ROUND_SHARE = 0.25
"""A further round does not start with a smaller rest of the budget."""

MIN_EPOCHS = 5.0
"""If plain training for the whole budget would see each pair fewer times than this, there are no synthetic pairs.

The number of pairs is then not what limits the model. The value is an assumption, not a measurement.
"""

SAMPLE_LINES = 2000
"""Lines whose translation measures the speed, if the budget is a time."""

SYNTHETIC_PER_PAIR = 2.0
"""Largest number of synthetic pairs for each real one in an epoch; with more, the real pairs get a larger weight."""

MIN_USES = 2.0
"""A synthetic pair is made only if training can use it this many times."""


@dataclass(frozen=True)
class SharedBudget:
    """A time, or a number of training steps, for all stages together."""

    total: float
    unit: Literal["seconds", "steps"]

    @property
    def option(self) -> str:
        """The option of `improve` and `train` that gives such a budget."""
        return "--time" if self.is_time else "--max-steps"

    def options(self, amount: float) -> list[str]:
        """Return the options that give this amount of the budget to `mtcli train`."""
        whole = str(max(1, int(amount)))
        return [self.option, f"{whole}s" if self.is_time else whole]

    def in_words(self, amount: float) -> str:
        """Return an amount of the budget for a message, such as `45:00` or `9 training steps`."""
        return clock(amount) if self.is_time else counted(int(amount), "training step")

    @property
    def is_time(self) -> bool:
        """True if the budget is a time."""
        return self.unit == "seconds"


def planned_rounds(remaining: float, plain: float) -> int:
    """Return how many rounds to divide the rest of the budget into.

    Args:
        remaining: The rest of the budget.
        plain: What the plain model used of the budget until it stopped improving, or until its share was used.
    """
    return min(max(int(remaining / (ROUND_COST * plain)), 1), MAX_ROUNDS)


def number_of_teachers(total: float, plain: float, kinds: int) -> int:
    """Return how many models of each direction diversify the training pairs.

    Args:
        total: The whole budget.
        plain: See `planned_rounds`.
        kinds: 2: there are models of the opposite directions. 1: each model has both directions.
    """
    return min(max(int(TEACHERS_SHARE * total / (kinds * plain)), 1), MAX_TEACHERS)


def weight_of_pairs(real: float, synthetic: int) -> float:
    """Return the factor of the weights of the real pairs, so that an epoch has not too many synthetic ones.

    Args:
        real: Real pairs of an epoch without the factor.
        synthetic: Synthetic pairs of an epoch.
    """
    return max(1.0, round(synthetic / (SYNTHETIC_PER_PAIR * real), 2))


def useful_lines(real_uses: float) -> int:
    """Return the largest number of monolingual lines whose synthetic pairs training can use `MIN_USES` times.

    Args:
        real_uses: Number of pairs, each counted as often as it is used, that fit into the training.
    """
    share = SYNTHETIC_PER_PAIR / (1 + SYNTHETIC_PER_PAIR)
    return max(1, int(share * real_uses / MIN_USES))
