"""The removal of finished sentences from the batch."""

import numpy as np
import numpy.typing as npt

from mtcli.search.constraints import Ids

COMPACT_AT = 15 / 16
"""A search removes finished sentences from the batch once at most this share of its sentences is active.

Removing them one by one would launch more small copies than it saves.
"""


def rows_to_keep(is_active: npt.NDArray[np.bool_]) -> Ids | None:
    """Return the rows that the batch keeps, or None if it stays as it is.

    The last active sentences take the places of the finished ones, so that few rows are copied.

    Args:
        is_active: True for each sentence that is not finished, (B,).

    Returns:
        The row that takes each place, (B′,).
    """
    kept = int(is_active.sum())
    if kept > COMPACT_AT * len(is_active):
        return None
    rows = np.arange(kept)
    rows[~is_active[:kept]] = kept + np.flatnonzero(is_active[kept:])
    return rows
