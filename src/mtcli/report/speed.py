"""Training speed, computed from the events of `metrics.jsonl`."""

from collections.abc import Iterable
from typing import Any


class SpeedMeter:
    """Computes the target tokens per second between two `train` events.

    The time of a validation does not count if it comes right after a `train` event. A validation between two `train`
    events counts: the time at which it began is not recorded.
    """

    def __init__(self) -> None:
        self._step = 0
        """The step of the last `train` event."""
        self._seconds = 0.0
        """The time used until that event, and until the end of the validations that directly follow it."""

    def add(self, event: dict[str, Any]) -> float | None:
        """Add the next event. All events must be added, in order.

        Returns:
            The target tokens per second since the previous `train` event; None for the first one and other events.
        """
        before = self._seconds
        if event["event"] == "train":
            self._step = event["step"]
            self._seconds = event["seconds"]
            if 0 < before < self._seconds:
                return float(event["tokens"] / (self._seconds - before))
        elif before > 0 and event["step"] == self._step and "seconds" in event:
            self._seconds = event["seconds"]
        return None


def speeds(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return pairs of a step and the target tokens per second before it."""
    meter = SpeedMeter()
    found = []
    for event in events:
        speed = meter.add(event)
        if speed is not None:
            found.append((float(event["step"]), speed))
    return found
