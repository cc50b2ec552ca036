"""Types of the numbers in a configuration, with their bounds, and how a message shows a wrong value."""

import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, GroupedMetadata, Le
from pydantic import BeforeValidator

from mtcli import limits

LONGEST = 100
"""Maximum number of characters of a wrong value or name in a message."""

DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
PLAIN_NUMBER = re.compile(r"[^hms]*\d", re.ASCII)


def shown(value: object) -> str:
    """Return a value for a message, shortened if it is large, deeply nested or has many digits."""
    short = reprlib.Repr()
    short.maxstring = LONGEST
    short.maxother = LONGEST
    short.maxlong = LONGEST
    try:
        return short.repr(value)
    except ValueError:  # Python refuses to convert integers with thousands of digits to text
        return "an integer of thousands of digits"


def parse_duration(value: object) -> object:
    """Return the seconds of a text such as `90`, `90s`, `30m`, `2h` or `1h30m`; any other type as it is.

    Raises:
        ValueError: The text is no duration.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if PLAIN_NUMBER.fullmatch(text):
        text += "s"
    parts = DURATION.fullmatch(text)
    if not parts or not any(parts.groups()):
        raise ValueError("a duration is written 90s, 30m, 2h or 1h30m")
    hours, minutes, seconds = (float(number or 0) for number in parts.groups())
    return 3600 * hours + 60 * minutes + seconds


def _number(value: object) -> object:
    """Refuse what pydantic would convert to a number: true to 1, and "3" to 3.

    Raises:
        ValueError: The value is no number.
    """
    if isinstance(value, bool | str):
        raise ValueError("Input should be a number")
    return value


@dataclass(frozen=True)
class Within(GroupedMetadata):
    """Annotation of a number with its bounds."""

    range: limits.Range

    def __iter__(self) -> Iterator[object]:
        yield Ge(self.range.min)
        yield Le(self.range.max)
        yield BeforeValidator(_number)


Count = Annotated[int, Within(limits.COUNT)]
Seconds = Annotated[float, Within(limits.SECONDS), BeforeValidator(parse_duration)]
Decay = Annotated[float, Within(limits.BETA)]
