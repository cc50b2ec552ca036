"""The removal of finished sentences from the batch."""

import numpy as np
import numpy.typing as npt

from mtcli.inference.search.constraints import Ids

COMPACT_AT = 7 / 8
"""A search removes finished sentences from the batch once at most this share of its sentences is active.

Copying the caches more often would take longer than computing a few finished sentences.
"""


def rows_to_keep(is_active: npt.NDArray[np.bool_]) -> Ids | None:
    """Return the indices of the active sentences, (B′,), or None if the batch stays as it is. `is_active` is (B,)."""
    rows = np.flatnonzero(is_active)
    return rows if len(rows) <= COMPACT_AT * len(is_active) else None
