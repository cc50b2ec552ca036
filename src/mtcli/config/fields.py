"""The types of numbers in a configuration, with their bounds, and how a message shows a wrong value."""

import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, GroupedMetadata, Le
from pydantic import BeforeValidator

from mtcli import limits

LONGEST = 100
"""Characters of a wrong value or name that a message shows."""


def shown(value: object) -> str:
    """A value in a message, whatever its size, depth or number of digits."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = LONGEST
    try:
        return short.repr(value)
    except ValueError:  # Python writes no integer of so many digits
        return "an integer of thousands of digits"


def parse_duration(value: object) -> object:
    """Seconds from `90`, `"90s"`, `"30m"`, `"2h"` or `"1h30m"`.

    Raises:
        ValueError: The text is no duration.
    """
    if not isinstance(value, str):
        return value
    text = value.strip() + ("s" if value.strip()[-1:].isdigit() and not re.search("[hms]", value) else "")
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text)
    if not parts or not any(parts.groups()):
        raise ValueError("a duration is written 90s, 30m, 2h or 1h30m")
    return sum(float(n or 0) * unit for n, unit in zip(parts.groups(), (3600, 60, 1), strict=True))


def _number(value: object) -> object:
    """Refuse what pydantic would turn into a number: true would be 1, and "3" would be 3.

    Raises:
        ValueError: It is no number.
    """
    if isinstance(value, bool | str):
        raise ValueError("Input should be a number")
    return value


@dataclass(frozen=True)
class Within(GroupedMetadata):
    """Annotates a number with its bounds."""

    range: limits.Range

    def __iter__(self) -> Iterator[object]:
        yield Ge(self.range.min)
        yield Le(self.range.max)
        yield BeforeValidator(_number)


Seconds = Annotated[float, Within(limits.SECONDS), BeforeValidator(parse_duration)]
Decay = Annotated[float, Within(limits.BETA)]
