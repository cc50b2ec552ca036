"""The encoder's part of a search."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.model.attention import MASK_ALIGNMENT
from mtcli.model.cache import Cache
from mtcli.model.ensemble import Ensemble, EnsembleCache
from mtcli.model.fast.prepared import PreparedTransformer
from mtcli.model.transformer import Transformer
from mtcli.text.special_tokens import PAD

ENCODE_ROWS = 64
"""Sources that a CPU encodes together."""


Searched = Transformer | PreparedTransformer | Ensemble
"""A model as a search uses it."""


def encode(model: Searched, src: Tensor, *, share_rows: bool = False) -> Any:
    """Encode `src` (B, S), and return the cache before the first step, for `step` of the same model.

    A CPU encodes a few rows at a time, each part as wide as its longest row. Neighbours have similar lengths, so there
    is less padding to compute, and the activations of a part stay in a core's own cache.
    """
    if isinstance(model, Ensemble):
        return EnsembleCache([encode(member, src, share_rows=share_rows) for member in model.members])
    if src.device.type != "cpu" or len(src) == 0:
        padding = -src.size(1) % MASK_ALIGNMENT
        parts = [model.encode(F.pad(src, (0, padding), value=PAD))]
    else:
        parts = [model.encode(_without_padding(part)) for part in torch.split(src, ENCODE_ROWS)]
    if isinstance(model, PreparedTransformer):
        return model.start(parts, share_rows=share_rows)
    caches = [model.start(memory, mask, share_rows=share_rows) for memory, mask in parts]
    return Cache.joined(caches) if src.device.type == "cpu" else caches[0]


def _without_padding(src: Tensor) -> Tensor:
    """Remove the columns of `src` (B, S) that are only padding."""
    width = int((src != PAD).sum(dim=1).max())
    return src[:, :width]
