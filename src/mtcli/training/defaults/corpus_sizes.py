"""Defaults by size of the corpus."""

import math
from typing import NamedTuple

from mtcli.config.presets import Preset


class CorpusSize(NamedTuple):
    """Defaults for corpora with fewer than `below` training pairs."""

    below: float
    preset: Preset
    """The largest preset that is worth its time."""
    dropout: float
    """Dropout of that preset if it sees the pairs often."""
    epochs: int
    """Epochs of a run without a budget; early stopping may end it sooner."""
    batch: int
    """Tokens per batch on a CPU."""
    gpu_batch: int
    """Tokens per batch on a GPU, which small batches do not keep busy."""


CORPUS_SIZES = (
    # Multi30K, 29,000 pairs: 2,048 tokens were measured (configs/multi30k.toml). tiny with dropout 0.3 is the
    # published setting (Wu et al. 2021).
    CorpusSize(50_000, "tiny", 0.3, 40, 2048, 4096),
    # Tatoeba, 117,000 pairs: tiny with 4,096 tokens and dropout 0.1 was measured (docs/results.md). small and its
    # dropout are guesses, between that and d_model 512 with dropout 0.3, which is usual for IWSLT14's 160,000 pairs.
    CorpusSize(500_000, "small", 0.2, 30, 4096, 8192),
    # The paper, 4.5 million pairs: base, dropout 0.1 and 25,000 tokens (§5.1, §5.4, Table 3), about 20 epochs (§5.2).
    CorpusSize(5_000_000, "base", 0.1, 20, 4096, 25_000),
    # The paper's big on 36 million pairs: dropout 0.1 (§6.1), about 7 epochs.
    CorpusSize(math.inf, "big", 0.1, 7, 4096, 25_000),
)


def corpus_size(pairs: int) -> CorpusSize:
    """Return the defaults for a corpus with this many training pairs."""
    return next(size for size in CORPUS_SIZES if pairs < size.below)
