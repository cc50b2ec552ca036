"""How likely a model finds given translations: log P(y | x) of pairs, by teacher forcing as in training.

The pieces of a translation are those that the tokenizer makes of its text. The decoder could have come to the same
text by others, with a probability of their own; it seldom does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch
from torch.nn import functional as F

from mtcli.data.batching import Batch, plan_epoch
from mtcli.data.corpus import Pair
from mtcli.data.tokenizer import PAD
from mtcli.errors import DataError
from mtcli.inference.line_translator import LONGEST, WINDOW
from mtcli.inference.pytorch_backend import BATCH_TOKENS, Translator
from mtcli.nn.loss import CPU_CHUNK as CHUNK
from mtcli.runtime.progress import Progress


@dataclass(frozen=True)
class Likelihood:
    """Of one pair."""

    log_prob: float
    """log P(y | x) in nats."""
    pieces: int
    """Of the translation, with `</s>`."""

    @property
    def mean(self) -> float:
        """A piece, in nats."""
        return self.log_prob / self.pieces


def likelihoods(translator: Translator, pairs: Iterable[Pair], *, quiet: bool = False) -> Iterator[Likelihood | None]:
    """One for each pair, in their order; None for a pair with a blank side, of which the model is not asked.

    Args:
        translator: The model, with its tokenizer and device.
        pairs: Source and translation as raw text; read in windows, so any number will do.
        quiet: Without a progress bar.

    Raises:
        DataError: A side has more than `LONGEST` pieces.
    """
    encode_src, encode_tgt = translator.tokenizer.encode_src, translator.tokenizer.encode_tgt
    pairs = iter(pairs)
    with Progress("scoring", unit="pairs", quiet=quiet) as bar:
        for first in count(1, WINDOW):
            if not (window := list(islice(pairs, WINDOW))):
                return
            kept = [i for i, sides in enumerate(window) if all(side.strip() for side in sides)]
            src, tgt = encode_src([window[i][0] for i in kept]), encode_tgt([window[i][1] for i in kept])
            for i, *both in zip(kept, src, tgt, strict=True):
                if (longest := max(map(len, both))) > LONGEST:
                    raise DataError(
                        f"pair {first + i} has a side of {longest:,} pieces, and {LONGEST:,} is the most; "
                        "leave it out, or split it"
                    )
            found: list[Likelihood | None] = [None] * len(window)
            lengths = (np.array([len(row) for row in side], dtype=np.int32) for side in (src, tgt))
            for rows in plan_epoch(*lengths, batch_tokens=BATCH_TOKENS[translator.device.type], key=None):
                scored = _batch(translator, [src[r] for r in rows], [tgt[r] for r in rows])
                for r, log_prob in zip(rows, scored, strict=True):
                    found[kept[r]] = Likelihood(log_prob, len(tgt[r]) + 1)
                bar.update(len(rows))
            yield from found


@torch.inference_mode()
def _batch(translator: Translator, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> list[float]:
    """log P(y | x) of each of these B pairs of ids, which are without `</s>`."""
    model, batch = translator.model, Batch.of(src, tgt).to(translator.device)
    real = batch.tgt_out != PAD
    hidden, target = model.decode(batch.tgt_in, *model.encode(batch.src))[real], batch.tgt_out[real]
    parts = zip(torch.split(hidden, CHUNK), torch.split(target, CHUNK), strict=True)  # all logits may fill the memory
    nll = torch.cat([F.cross_entropy(model.output(h), t, reduction="none") for h, t in parts]).cpu().double()
    total: list[float] = nll.new_zeros(len(tgt)).index_add_(0, real.nonzero()[:, 0].cpu(), -nll).tolist()
    return total
