"""What the defaults depend on, besides the settings that are given."""

from dataclasses import dataclass

import numpy as np
import torch

from mtcli.corpus.batching import weight_of_rows, weights_within
from mtcli.corpus.cache.prepare import Prepared
from mtcli.runtime.device import UNKNOWN_GPU, Gpu, gpu_of
from mtcli.training.defaults.corpus_sizes import CorpusSize, corpus_size


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
    """Validation pairs."""
    fine_tunes: bool = False
    """Training starts from another model."""
    tgt_vocab: int = 10_000
    """Size of the target vocabulary, which matters for the speed of fine-tuning, and of any training on CUDA."""
    gpu: Gpu = UNKNOWN_GPU
    """The limits of the GPU on CUDA."""

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
            len(data.valid),
            fine_tunes=data.init is not None,
            tgt_vocab=data.tokenizer.tgt_size,
            gpu=gpu_of(device) if device.type == "cuda" else UNKNOWN_GPU,
        )

    @property
    def size(self) -> CorpusSize:
        """The defaults for a corpus of this size."""
        return corpus_size(self.pairs)

    @property
    def batch_tokens(self) -> int:
        """The usual tokens per batch for a corpus of this size on this device."""
        return self.size.batch if self.device == "cpu" else self.size.gpu_batch
