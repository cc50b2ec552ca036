"""From source ids to target ids: greedy search, sampling and beam search over one step function of the model.

Shapes: B sentences, W beams, N = B × W hypotheses, V pieces. Nothing here knows text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mtcli.data.batching import pad
from mtcli.data.tokenizer import BOS, EOS, PAD
from mtcli.nn.attention import Cache
from mtcli.nn.transformer import Transformer

KEPT = 7 / 8
"""Of a batch, what still grows when the finished are dropped: copying the caches costs more than a few idle rows."""

PART = 64
"""Sources that a CPU encodes together."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its pieces without `<s>` and `</s>`, log P(y | x) in nats, and the score it ranks by."""

    ids: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Limits:
    """What a search must keep to, for each of B sentences."""

    max_length: Sequence[int]
    """Most pieces, `</s>` not counted."""
    forbidden: Sequence[int] = ()
    """Pieces that are never chosen."""
    prefix: Sequence[Sequence[int]] | None = None
    """Pieces that each translation must begin with."""
    no_repeat_ngram: int = 0
    """No piece is chosen that makes the last so many pieces a run that the translation has already; 0: any is."""


def length_penalty(n: int | Tensor, alpha: float) -> float | Tensor:
    """Wu et al. 2016, equation 14, as §6.1 uses it: lp(Y) = ((5 + n) / 6)^α, n pieces with `</s>`."""
    return ((5 + n) / 6) ** alpha


class _Constraints:
    """Log-probabilities of the next piece (N, V) with the pieces that may not come set to −∞."""

    def __init__(self, limits: Limits, device: torch.device):
        self.limits = limits
        self.free_until = 0 if limits.prefix else min(limits.max_length, default=0)  # the same for all sentences
        self.forbidden = torch.tensor(list(limits.forbidden), dtype=torch.long, device=device)

    def __call__(self, log_p: Tensor, sentences: Sequence[int], t: int, history: Callable[[], Tensor]) -> Tensor:
        """Position `t` of the translations of these sentences; rows of `log_p` are in their order, W each.

        `history` gives the t pieces that each row has so far, (N, t), where they are needed.
        """
        V, W = log_p.size(-1), log_p.size(0) // len(sentences)
        log_p.index_fill_(1, self.forbidden, -torch.inf)
        only: dict[int, int] = {}
        for i, sentence in enumerate(sentences if t >= self.free_until else ()):
            prefix = self.limits.prefix[sentence] if self.limits.prefix else ()
            if t < len(prefix):
                only[i] = prefix[t]
            elif t >= self.limits.max_length[sentence]:
                only[i] = EOS
        rows = log_p.view(-1, W, V)
        kept = {i: rows[i, :, piece].clone() for i, piece in only.items()}
        if 0 < self.limits.no_repeat_ngram <= t:
            _forbid_repeats(log_p, history(), self.limits.no_repeat_ngram)
        for i, piece in only.items():  # whatever it repeats
            rows[i] = -torch.inf
            rows[i, :, piece] = kept[i]
        return log_p


def _forbid_repeats(log_p: Tensor, history: Tensor, n: int) -> None:
    """Set the pieces of `log_p` (N, V) to −∞ that would end an n-gram which its row of `history` (N, t) has already."""
    ngrams = history.unfold(1, n, 1)  # (N, t − n + 1, n)
    last = history[:, None, history.size(1) - n + 1 :]  # the n − 1 pieces that the next one comes after
    row, place = (ngrams[:, :, :-1] == last).all(dim=2).nonzero(as_tuple=True)
    log_p[row, ngrams[row, place, -1]] = -torch.inf


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in the memory of the logits (N, V): as much again at each step costs more than arithmetic."""
    return torch.log_softmax(logits, dim=-1, out=logits)


Choice = Callable[[Tensor, Sequence[int]], Tensor]
"""Log-probabilities (B, V), and the number of the sentence in each row → the chosen pieces (B,)."""


def most_likely(log_p: Tensor, sentences: Sequence[int] = ()) -> Tensor:
    """The likeliest piece of each row."""
    V = log_p.size(1)
    R = math.isqrt(V)  # a maximum without its place is found many times as fast, so first in which R pieces it is
    blocks = log_p[:, : V - V % R].view(len(log_p), V // R, R).amax(dim=2)
    if V % R:
        blocks = torch.cat((blocks, log_p[:, V - R :].amax(dim=1, keepdim=True)), dim=1)
    first = (blocks.argmax(dim=1, keepdim=True) * R).clamp(max=V - R)
    inside = log_p.gather(1, first + torch.arange(R, device=log_p.device)).argmax(dim=1, keepdim=True)
    return (first + inside).squeeze(1)


def continuations(scores: Tensor, log_p: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest continuations of each sentence's hypotheses, best first.

    They are the top k of the W·V sums `scores + log_p` of a sentence, found without ranking all of them: with the
    pieces in about √V blocks of as many neighbours, the k best are within the k blocks that have the largest maxima.

    Args:
        scores: Log-probability of each hypothesis, (B, W).
        log_p: Log-probability of each next piece, (N, V).
        k: At most W·V.

    Returns:
        Log-probability, the hypothesis (a place among the W) and the piece, (B, k) each.
    """
    (B, W), V, device = scores.shape, log_p.size(1), scores.device
    G = math.isqrt(V)
    R = V // G if k <= W * G else 0  # block g holds the R pieces from g·R on; those from R·G on are in none
    rest = torch.arange(R * G, V, device=device)
    parent = torch.arange(W, device=device).repeat_interleave(len(rest)).expand(B, -1)
    piece = rest.repeat(W).expand(B, -1)
    if R:
        maxima = log_p[:, : R * G].view(B, W, G, R).amax(dim=3) + scores.unsqueeze(2)
        block = maxima.flatten(1).topk(k, dim=1, sorted=False).indices
        inside = (block % G * R).unsqueeze(2) + torch.arange(R, device=device)
        parent = torch.cat(((block // G).repeat_interleave(R, dim=1), parent), dim=1)
        piece = torch.cat((inside.flatten(1), piece), dim=1)
    total = log_p.view(B, W * V).gather(1, parent * V + piece) + scores.gather(1, parent)
    best, index = total.topk(k, dim=1)
    return best, parent.gather(1, index), piece.gather(1, index)


def sampler(temperature: float, top_k: int, generator: torch.Generator | Sequence[torch.Generator]) -> Choice:
    """Draw from softmax(log_p / temperature), among the `top_k` likeliest pieces (0: all).

    With a generator for each sentence, what is drawn for one does not depend on which others are in the batch.
    """

    def choose(log_p: Tensor, sentences: Sequence[int] = ()) -> Tensor:
        if top_k and top_k < log_p.size(-1):
            least = log_p.topk(top_k, dim=-1).values[:, -1:]
            log_p = log_p.masked_fill(log_p < least, -torch.inf)
        p = (log_p / temperature).softmax(dim=-1).cpu()
        if isinstance(generator, torch.Generator):
            drawn = torch.multinomial(p, 1, generator=generator).squeeze(1)
        else:
            rows = zip(p, sentences, strict=True)
            drawn = torch.cat([torch.multinomial(row, 1, generator=generator[s]) for row, s in rows])
        return drawn.to(log_p.device)

    return choose


def _begin(model: Transformer, src: Tensor) -> Cache:
    """The cache before the first step, for sources (B, S) of which neighbours are of like length.

    A CPU encodes them in parts, each as wide as its longest: less padding is computed, and the activations of a part
    stay in a core's own cache.
    """
    if src.device.type != "cpu" or not len(src):
        return model.start(*model.encode(src))
    parts = [src[first : first + PART] for first in range(0, len(src), PART)]
    widths = [int((part != PAD).sum(dim=1).max()) for part in parts]
    encoded = (model.encode(part[:, :width]) for part, width in zip(parts, widths, strict=True))
    return Cache.joined([model.start(*memory) for memory in encoded])


@torch.inference_mode()
def greedy_search(model: Transformer, src: Tensor, limits: Limits, choose: Choice = most_likely) -> list[Hypothesis]:
    """One translation of each sentence, choosing piece after piece.

    Args:
        model: In evaluation mode.
        src: (B, S) ids ending in `</s>`, padded.
        limits: For each of the B sentences.
        choose: Picks the next piece; `most_likely` or a `sampler`.
    """
    constrain = _Constraints(limits, src.device)
    cache = _begin(model, src)
    sentences = list(range(len(src)))  # those that still grow, in the order of the rows below
    last = torch.full((len(src),), BOS, device=src.device)
    ids: list[list[int]] = [[] for _ in sentences]
    log_probs = [0.0] * len(src)
    done: set[int] = set()

    def history() -> Tensor:
        return pad([ids[sentence] for sentence in sentences]).to(src.device)

    t = 0
    while sentences:
        logits, cache = model.step(last, cache)
        log_p = constrain(_log_softmax(logits), sentences, t, history)
        last = choose(log_p, sentences)
        pieces, gains = last.tolist(), log_p.gather(1, last[:, None]).squeeze(1).tolist()
        del logits, log_p
        going = []
        for row, (sentence, piece, gain) in enumerate(zip(sentences, pieces, gains, strict=True)):
            if sentence in done:
                continue
            log_probs[sentence] += gain
            if piece == EOS:
                done.add(sentence)
            else:
                ids[sentence].append(piece)
                going.append(row)
        if len(going) <= KEPT * len(sentences):
            rows = torch.tensor(going, dtype=torch.long, device=src.device)
            sentences, last, cache = [sentences[row] for row in going], last[rows], cache.select(rows, rows)
        t += 1
    return [Hypothesis(y, log_p, log_p) for y, log_p in zip(ids, log_probs, strict=True)]


@dataclass(frozen=True)
class Expansion:
    """What one step of a beam search found for the B sentences still searched: C ≤ 2W continuations each."""

    sentences: Sequence[int]
    """Which sentences, (B,)."""
    log_prob: Tensor
    """Of each continuation, best first, (B, C); −∞: none."""
    parent: Tensor
    """The hypothesis that each continues, (B, C): a place in the `kept` of the step before."""
    piece: Tensor
    """What each adds, (B, C)."""
    kept: Tensor
    """The places, among the C, of those that go on, (B, ≤ W)."""
    finished: Sequence[tuple[int, int]]
    """Row and place of those that are translations now."""


@torch.inference_mode()
def beam_search(
    model: Transformer,
    src: Tensor,
    limits: Limits,
    *,
    beam_size: int,
    alpha: float,
    observe: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence found with `beam_size` hypotheses a step, best first.

    A hypothesis that ends among the best `beam_size` continuations of a step is finished and leaves its place to
    the next one; a sentence is done, and leaves the batch, with `beam_size` finished hypotheses. They rank by
    log P(y | x) / lp(y). One at the length limit ends there, with the probability of doing so.

    Args:
        model: In evaluation mode.
        src: (B, S) ids ending in `</s>`, padded.
        limits: For each of the B sentences.
        beam_size: W.
        alpha: α of the length penalty; 0: none.
        observe: Is shown every step.
    """
    W, V, device = beam_size, model.output.out_features, src.device
    constrain = _Constraints(limits, device)
    cache = _begin(model, src)
    sentences = list(range(len(src)))
    finished: list[list[Hypothesis]] = [[] for _ in sentences]
    last = torch.full((len(src),), BOS, device=device)
    scores = torch.zeros(len(src), 1, device=device)  # log-probability of each live hypothesis; at first one each
    history = torch.empty(len(src), 1, 0, dtype=torch.long, device=device)
    t = 0
    while sentences:
        logits, cache = model.step(last, cache)
        log_p = constrain(_log_softmax(logits), sentences, t, partial(history.flatten, 0, 1))
        B, live = scores.shape
        # 2W candidates hold at least W that do not end, since each hypothesis can end in one way only.
        best, parent, piece = continuations(scores, log_p, min(2 * W, live * V))
        del logits, log_p
        ends = piece == EOS
        penalty = length_penalty(t + 1, alpha)
        ended = []
        for row, at in (ends[:, :W] & best[:, :W].isfinite()).nonzero().tolist():
            if len(finished[sentences[row]]) < W:
                log_prob = float(best[row, at])
                ids = history[row, parent[row, at]].tolist()
                finished[sentences[row]].append(Hypothesis(ids, log_prob, log_prob / float(penalty)))
                ended.append((row, at))
        # The W best that go on; where fewer do, the rest has probability 0 and is never finished.
        scores, order = best.masked_fill(ends, -torch.inf).topk(min(W, best.size(1)), dim=1)
        if observe is not None:
            observe(Expansion(sentences, best, parent, piece, order, ended))
        parent, last = parent.gather(1, order), piece.gather(1, order)
        history = torch.cat((history.gather(1, parent.unsqueeze(2).expand(-1, -1, t)), last.unsqueeze(2)), dim=2)
        alive = scores[:, 0].isfinite().tolist()
        done = [row for row, s in enumerate(sentences) if len(finished[s]) >= W or not alive[row]]
        hypotheses = torch.arange(B, device=device)[:, None] * live + parent
        kept = None
        if done:
            going = sorted(set(range(B)) - set(done))
            sentences = [sentences[row] for row in going]
            kept = torch.tensor(going, dtype=torch.long, device=device)
            scores, history, last, hypotheses = scores[kept], history[kept], last[kept], hypotheses[kept]
        cache, last = cache.select(hypotheses.flatten(), kept), last.flatten()
        t += 1
    return [sorted(found, key=lambda h: -h.score) for found in finished]
