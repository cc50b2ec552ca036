"""Numbers in messages."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 pair`, `1,234 pairs`.

    Args:
        number: How many there are.
        noun: The singular.
        plural: The plural; None: the singular and an s.
    """
    form = noun if number == 1 else plural or f"{noun}s"
    return f"{number:,} {form}"


def every(number: int, noun: str) -> str:
    """Return an interval: `every step`, `every 1,234 steps`."""
    return f"every {noun}" if number == 1 else f"every {counted(number, noun)}"
