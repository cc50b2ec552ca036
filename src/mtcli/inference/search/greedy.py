"""Greedy search and sampling: one token after the other, without going back."""

import math

import torch
from torch import Tensor

from mtcli.data.batching import pad
from mtcli.data.tokenizer import BOS, EOS
from mtcli.errors import NotFiniteError
from mtcli.inference.search.constraints import Constraints, Limits
from mtcli.inference.search.encoding import encode
from mtcli.inference.search.hypothesis import Hypothesis
from mtcli.inference.search.sampling import Choice, most_likely
from mtcli.nn.cpu_kernels import log_softmax_
from mtcli.nn.transformer import Transformer

COMPACT_AT = 7 / 8
"""Greedy search removes finished rows from the batch once at most this share of its rows is active.

Copying the caches more often would take longer than computing a few finished rows.
"""


@torch.inference_mode()
def greedy_search(model: Transformer, src: Tensor, limits: Limits, choose: Choice = most_likely) -> list[Hypothesis]:
    """Translate each sentence token by token, without going back.

    Args:
        model: In evaluation mode.
        src: Source ids that end in `</s>`, padded, (B, S).
        limits: Constraints for the B sentences.
        choose: `most_likely` or a `sampler`.

    Returns:
        One translation of each sentence. Its score is its log-probability.

    Raises:
        NotFiniteError: The log-probability of a translation is NaN or infinite.
    """
    device = src.device
    constraints = Constraints(limits, device)
    cache = encode(model, src)
    ids: list[list[int]] = [[] for _ in range(len(src))]
    log_probs = [0.0 for _ in range(len(src))]
    finished: set[int] = set()
    sentences = list(range(len(src)))  # the sentence of each row
    last = torch.full((len(src),), BOS, device=device)

    def history() -> Tensor:
        return pad([ids[sentence] for sentence in sentences]).to(device)

    t = 0
    while sentences:
        logits = model.step(last, cache)
        log_p = log_softmax_(logits)
        constraints.apply(log_p, sentences, t, history)
        last = choose(log_p, sentences)
        gains = log_p.gather(1, last[:, None]).squeeze(1).tolist()
        del logits, log_p  # to free their memory before the next step
        active = []  # the rows that are not finished
        for row, (sentence, token, gain) in enumerate(zip(sentences, last.tolist(), gains, strict=True)):
            if sentence in finished:
                continue
            log_probs[sentence] += gain
            if token == EOS:
                finished.add(sentence)
            else:
                ids[sentence].append(token)
                active.append(row)
        if len(active) <= COMPACT_AT * len(sentences):
            rows = torch.tensor(active, dtype=torch.long, device=device)
            sentences = [sentences[row] for row in active]
            last = last[rows]
            cache.select(None, rows)
        t += 1
    if not all(map(math.isfinite, log_probs)):
        raise NotFiniteError
    return [Hypothesis(y, log_prob) for y, log_prob in zip(ids, log_probs, strict=True)]
