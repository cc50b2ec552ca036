"""The cross-attention of given translations, computed with CTranslate2 for their word alignment."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtcli.translate.alignment import Weights

GROUP = 64
"""Pairs of similar length whose attention is computed together."""

BATCH_TOKENS = 2048
"""Source tokens that one thread encodes at a time."""


def forced_attention(
    native: Any, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], *, filler: str
) -> list[Weights]:
    """Return the attention weights of given translations, see `alignment.CrossAttention`.

    CTranslate2 returns attention for searches only. A search for alternatives decodes its prefix in one step, and ends
    there if the prefix has the maximum length of a translation. So the prefix is the translation, and shorter
    translations of a group are filled up, which does not change the attention of earlier tokens.

    Args:
        native: A `ctranslate2.Translator`, exported with `alignment_heads=0`.
        sources: The source tokens of N pairs, without `</s>`.
        targets: The target tokens of N pairs, without `</s>`.
        filler: Any target token.
    """
    weights: list[Weights] = [np.zeros((0, len(tokens)), dtype=np.float32) for tokens in sources]
    by_length = sorted((pair for pair, tokens in enumerate(targets) if tokens), key=lambda pair: len(targets[pair]))
    for first in range(0, len(by_length), GROUP):
        group = by_length[first : first + GROUP]
        length = len(targets[group[-1]])
        found = native.translate_batch(
            [sources[pair] for pair in group],
            target_prefix=[[*targets[pair], *[filler] * (length - len(targets[pair]))] for pair in group],
            max_decoding_length=length,
            max_input_length=0,
            return_alternatives=True,
            return_attention=True,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
        )
        for pair, result in zip(group, found, strict=True):
            weights[pair] = np.array(result.attention[0], dtype=np.float32)
    return weights
