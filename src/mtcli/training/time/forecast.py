"""A forecast of the duration of the next step."""

from collections import deque
from statistics import median

NUM_RECENT_STEPS = 9
"""The forecast is the median of this many steps, so that a single slow step does not count."""

REPORT_STEPS = 5
REPORT_SHARE = 0.2
"""The speed is reported after this many steps, or after two steps and this share of the budget if that comes first."""


class Forecast:
    """Forecasts the duration of the next step from the last steps of this process."""

    def __init__(self) -> None:
        self.steps = 0
        self._recent: deque[float] = deque(maxlen=NUM_RECENT_STEPS)
        self._was_reported = False
        self.unmeasured_steps = 0
        """Steps since `begin` or `measure`."""
        self._began = 0.0

    def begin(self, seconds: float) -> None:
        """Measure the following steps from this time on.

        Args:
            seconds: The time used so far.
        """
        self.unmeasured_steps = 0
        self._began = seconds

    def measure(self, seconds: float) -> None:
        """Add the mean duration of the unmeasured steps, of which there is at least one, and begin again.

        Args:
            seconds: The time used so far.
        """
        self.add((seconds - self._began) / self.unmeasured_steps)
        self.begin(seconds)

    def add(self, seconds: float) -> None:
        """Add the duration of a step. The second step replaces the first step of a process, which is always slower."""
        self.steps += 1
        if self.steps == 2:
            self._recent.clear()
        self._recent.append(seconds)

    def is_new(self, progress: float) -> bool:
        """Return True once: when the forecast is first worth reporting.

        Args:
            progress: See `Budget.progress`.
        """
        is_known = self.steps >= REPORT_STEPS or (self.steps > 1 and progress >= REPORT_SHARE)
        if self._was_reported or not is_known:
            return False
        self._was_reported = True
        return True

    @property
    def step_seconds(self) -> float:
        """Seconds of the next step; 0 before the first one."""
        return median(self._recent) if self._recent else 0.0
