"""The encoder's part of a search."""

import torch
from torch import Tensor

from mtcli.data.tokenizer import PAD
from mtcli.nn.attention import Cache
from mtcli.nn.transformer import Transformer

ENCODE_ROWS = 64
"""Sources that a CPU encodes together."""


def encode(model: Transformer, src: Tensor) -> Cache:
    """Encode `src` (B, S), and return the cache before the first step.

    A CPU encodes a few rows at a time, each part as wide as its longest row. Neighbours have similar lengths, so there
    is less padding to compute, and the activations of a part stay in a core's own cache.
    """
    if src.device.type != "cpu" or len(src) == 0:
        return model.start(*model.encode(src))
    caches = []
    for part in torch.split(src, ENCODE_ROWS):
        width = int((part != PAD).sum(dim=1).max())
        caches.append(model.start(*model.encode(part[:, :width])))
    return Cache.joined(caches)
