"""What the defaults depend on, besides the settings that are given, and the defaults by size of the corpus."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from mtcli.config.presets import Preset
from mtcli.corpus.batching import weight_of_rows, weights_within
from mtcli.corpus.cache.prepare import Prepared
from mtcli.corpus.cache.training_sources import TrainingSource
from mtcli.runtime.device import UNKNOWN_GPU, Gpu, gpu_of
from mtcli.text.languages import Direction

PAPER_LENGTH_PENALTY = 0.6
"""The paper's exponent α (§6.1)."""

SMALL_LENGTH_PENALTY = 1.5
"""A model that has seen few pairs ends its translations too early.

On the held-out pairs of four corpora of 3,000 to 8,600 pairs, 1.5 gave 0.6 to 2.7 chrF more than 0.6, and from 0.7 BLEU
less to 0.4 more; in one model of five directions, 0.1 to 1.5 chrF more in each, and 0 to 1.7 BLEU less
(docs/results.md). After 100 minutes of Multi30K, 2.5 was worse than 0.6 on test pairs.
"""

BEAM_COST = 3
"""About the cost of the default beam search relative to greedy search, see `FinalWork.beam_cost`."""


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
    length_penalty: float = PAPER_LENGTH_PENALTY
    """Exponent α of the length penalty of beam search."""


CORPUS_SIZES = (
    # Tatoeba en-de, 3,000 pairs: half the tokens per batch in the same CPU time were measured (docs/results.md). The
    # other values are those of Multi30K.
    CorpusSize(10_000, "tiny", 0.3, 40, 1024, 4096, SMALL_LENGTH_PENALTY),
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


def _corpus_size(pairs: int) -> CorpusSize:
    """Return the defaults for a corpus with this many training pairs."""
    return next(size for size in CORPUS_SIZES if pairs < size.below)


@dataclass(frozen=True)
class Workload:
    """The corpus and the machine."""

    pairs: int
    """Training pairs."""
    epoch_tokens: int
    """Tokens per epoch as batches count them: the longer side of each pair, `</s>` included, times its weight."""
    device: str
    """`cpu`, `cuda` or `mps`."""
    ranks: int = 1
    """Number of processes that train together."""
    valid: int = 0
    """Pairs that a validation translates. A correction, which takes beam search, counts as `BEAM_COST` pairs."""
    fine_tunes: bool = False
    """Training starts from another model."""
    has_parent: bool = False
    """That model is of other languages."""
    corrections: int = 0
    """Corrections that the model is to learn."""
    tgt_vocab: int = 10_000
    """Size of the target vocabulary, which matters for the speed of fine-tuning, and of any training on CUDA."""
    gpu: Gpu = UNKNOWN_GPU
    """The limits of the GPU on CUDA."""
    texts: int | None = None
    """Training pairs, of which those that are trained in both directions count once; None: all count."""
    fewest_real_pairs: int | None = None
    """Training pairs of the smallest direction that are not synthetic, unless all are; None: `pairs`."""

    @classmethod
    def of(cls, data: Prepared, device: torch.device, ranks: int) -> "Workload":
        """Count the prepared data.

        Args:
            data: The prepared data.
            device: The device of one rank.
            ranks: Number of processes that train together.
        """
        pairs = data.train
        epoch_tokens = 0.0
        for chunk in range(pairs.chunks):
            rows, src, tgt = pairs.lengths([chunk])
            widths = np.maximum(src, tgt) + 1
            weights = weight_of_rows(weights_within(rows, data.weights))
            epoch_tokens += float((weights * widths).sum())
        return cls(
            len(pairs),
            round(epoch_tokens),
            device.type,
            ranks,
            len(data.valid) + BEAM_COST * len(data.corrections),
            fine_tunes=data.init is not None,
            has_parent=data.transfer is not None,
            corrections=len(data.corrections),
            tgt_vocab=data.tokenizer.tgt_size,
            gpu=gpu_of(device) if device.type == "cuda" else UNKNOWN_GPU,
            texts=sum(source.pairs for source in data.sources if not source.is_reversed),
            fewest_real_pairs=min(_real_pairs(data.sources, direction) for direction in data.directions),
        )

    @property
    def size(self) -> CorpusSize:
        """The defaults for a corpus of this size."""
        return _corpus_size(self.pairs if self.texts is None else self.texts)

    @property
    def length_penalty(self) -> float:
        """The exponent of the length penalty for the direction of which the model learns least.

        Synthetic pairs do not count, so that the models that `mtcli improve` compares have the same.
        """
        pairs = self.pairs if self.fewest_real_pairs is None else self.fewest_real_pairs
        return _corpus_size(pairs).length_penalty

    @property
    def batch_tokens(self) -> int:
        """The usual tokens per batch for a corpus of this size on this device."""
        return self.size.batch if self.device == "cpu" else self.size.gpu_batch


def _real_pairs(sources: Sequence[TrainingSource], direction: Direction) -> int:
    """Return the number of pairs of a direction that are not synthetic, or of all if there are no others."""
    own = [source for source in sources if source.direction == direction]
    return sum(source.pairs for source in own if not source.synthetic) or sum(source.pairs for source in own)
