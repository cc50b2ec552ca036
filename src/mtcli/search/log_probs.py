"""Log-probabilities of the next token, in blocks of sentences."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mtcli.model.fast.cpu_kernels import log_softmax_
from mtcli.model.fast.prepared import PreparedTransformer
from mtcli.search.encoding import Searched

BLOCK_SIZE = 2_560_000
"""Log-probabilities that a CPU computes together: 10 MB, those of 256 hypotheses for 10,000 tokens.

More take no less time.
"""


def log_probs(model: Searched, last: Tensor, cache: Any, num_sentences: int) -> Iterator[tuple[slice, Tensor]]:
    """Compute the log-probabilities of the next token of every hypothesis.

    Args:
        model: In evaluation mode.
        last: The last token of each hypothesis, (N,), grouped by sentence.
        cache: The cache of the tokens before `last`, to which `last` is added.
        num_sentences: B.

    Yields:
        Sentences of one block, as a slice of B, and the log-probabilities of their hypotheses, (rows of the block, V).
        The next block may overwrite them.
    """
    if not isinstance(model, PreparedTransformer):
        yield slice(0, num_sentences), log_softmax_(model.step(last, cache))
        return
    hidden = model.hidden(last, cache)  # (N, D)
    hypotheses_of_each = len(last) // num_sentences
    vocab_size = len(model.output.weight)
    sentences_of_block = max(1, BLOCK_SIZE // (hypotheses_of_each * vocab_size))
    blocks = torch.split(hidden, sentences_of_block * hypotheses_of_each)
    for number, block in enumerate(blocks):
        first = number * sentences_of_block
        yield slice(first, first + sentences_of_block), log_softmax_(model.output(block))
