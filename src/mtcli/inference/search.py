"""Search for translations, from source ids to target ids: greedy search, sampling and beam search.

Shapes: B sentences, W beams, N hypotheses (at most B × W, grouped by sentence), V target vocabulary, t tokens so far.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mtcli.config.schema import LengthNormalization
from mtcli.data.batching import pad
from mtcli.data.tokenizer import BOS, EOS, PAD
from mtcli.errors import NotFiniteError
from mtcli.inference.length import length_penalty
from mtcli.nn.attention import Cache
from mtcli.nn.cpu_kernels import argmax, log_softmax_, top_continuations
from mtcli.nn.transformer import Transformer

COMPACT_AT = 7 / 8
"""Greedy search removes finished rows from the batch once at most this share of its rows is active.

Copying the caches more often would take longer than computing a few finished rows.
"""

ENCODE_ROWS = 64
"""Sources that a CPU encodes together."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    ids: list[int]
    """Its tokens, without `<s>` and `</s>`."""
    log_prob: float
    """log P(y | x) in nats."""
    penalty: float = 1.0
    """The length penalty, see `inference.length`."""

    @property
    def score(self) -> float:
        """The log-probability divided by the length penalty. Hypotheses are ranked by it."""
        return self.log_prob / self.penalty


@dataclass(frozen=True)
class Limits:
    """Constraints on the translations of B sentences."""

    max_length: Sequence[int]
    """Maximum number of tokens of each translation, without `</s>`, (B,)."""
    forbidden: Sequence[int] = ()
    """Tokens that are never chosen."""
    prefix: Sequence[Sequence[int]] | None = None
    """Tokens that each translation must begin with, none of them in `forbidden`, (B,)."""
    no_repeat_ngram: int = 0
    """Block n-grams of this size from repeating, except inside the prefix; 0 disables."""
    min_length: int = 0
    """Minimum number of tokens of each translation, unless its maximum is lower."""


class _Constraints:
    """Applies `Limits` to the log-probabilities of the next token."""

    def __init__(self, limits: Limits, device: torch.device):
        self.limits = limits
        self.forbidden = torch.tensor(list(limits.forbidden), dtype=torch.long, device=device)
        self.first_forced = 0 if limits.prefix else min(limits.max_length, default=0)
        """The first position at which some sentence has only one choice."""

    def apply(self, log_p: Tensor, sentences: Sequence[int], t: int, history: Callable[[], Tensor]) -> None:
        """Set the log-probabilities of tokens that may not come next to −∞, in place.

        Args:
            log_p: Log-probabilities of the token at position `t`, (N, V).
            sentences: The sentences that the rows of `log_p` belong to, in order, each with equally many rows.
            t: The position, from 0.
            history: Returns the t tokens of each row so far, (N, t). Called only where they are needed.
        """
        log_p.index_fill_(1, self.forbidden, -torch.inf)
        forced = self._forced_tokens(sentences, t)
        by_sentence = log_p.view(len(sentences), -1, log_p.size(1))
        forced_log_p = {i: by_sentence[i, :, token].clone() for i, token in forced.items()}
        if t < self.limits.min_length:
            log_p[:, EOS] = -torch.inf
        n = self.limits.no_repeat_ngram
        if 0 < n <= t:
            _block_repeated_ngrams(log_p, history(), n)
        for i, token in forced.items():  # last: a forced token may repeat an n-gram
            by_sentence[i] = -torch.inf
            by_sentence[i, :, token] = forced_log_p[i]

    def _forced_tokens(self, sentences: Sequence[int], t: int) -> dict[int, int]:
        """Return the token of each sentence that has no choice at position `t`, by index into `sentences`.

        It is the next token of the prefix, or `</s>` at the maximum length.
        """
        if t < self.first_forced:
            return {}
        forced = {}
        for i, sentence in enumerate(sentences):
            prefix = self.limits.prefix[sentence] if self.limits.prefix else ()
            if t < len(prefix):
                forced[i] = prefix[t]
            elif t >= self.limits.max_length[sentence]:
                forced[i] = EOS
        return forced


def _block_repeated_ngrams(log_p: Tensor, history: Tensor, n: int) -> None:
    """Set the log-probability of each token that would complete a repeated n-gram to −∞, in place.

    Args:
        log_p: (N, V).
        history: Tokens so far, (N, t), where t ≥ n.
        n: Tokens of an n-gram.
    """
    ngrams = history.unfold(1, n, 1)  # (N, t − n + 1, n)
    last = history[:, None, history.size(1) - n + 1 :]  # (N, 1, n − 1), to which the next token will be appended
    begins_alike = (ngrams[:, :, :-1] == last).all(dim=2)
    row, place = begins_alike.nonzero(as_tuple=True)
    log_p[row, ngrams[row, place, -1]] = -torch.inf


def _encode(model: Transformer, src: Tensor) -> Cache:
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


Choice = Callable[[Tensor, Sequence[int]], Tensor]
"""Chooses the next tokens (B,) from log-probabilities (B, V) and the sentence of each row (B,)."""


def most_likely(log_p: Tensor, sentences: Sequence[int] = ()) -> Tensor:
    """Return the most likely token of each row; a `Choice`."""
    return argmax(log_p)


def sampler(temperature: float, top_k: int, generator: torch.Generator | Sequence[torch.Generator]) -> Choice:
    """Return a `Choice` that draws from softmax(log_p / temperature).

    Args:
        temperature: Above 0; below 1 it favours likely tokens.
        top_k: Draw from this many most likely tokens; 0: from all.
        generator: One for all sentences, or one for each. With one for each, what is drawn for a sentence does not
            depend on the other sentences of the batch.

    The `Choice` raises `NotFiniteError` if a probability is NaN.
    """

    def choose(log_p: Tensor, sentences: Sequence[int] = ()) -> Tensor:
        if 0 < top_k < log_p.size(-1):
            threshold = log_p.topk(top_k, dim=-1).values[:, -1:]
            log_p = log_p.masked_fill(log_p < threshold, -torch.inf)
        p = (log_p / temperature).softmax(dim=-1).cpu()
        if bool(p[:, 0].isnan().any()):  # a softmax with one NaN has only NaN
            raise NotFiniteError
        if isinstance(generator, torch.Generator):
            drawn = torch.multinomial(p, 1, generator=generator).squeeze(1)
        else:
            rows = zip(p, sentences, strict=True)
            drawn = torch.cat([torch.multinomial(row, 1, generator=generator[sentence]) for row, sentence in rows])
        return drawn.to(log_p.device)

    return choose


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
    constraints = _Constraints(limits, device)
    cache = _encode(model, src)
    ids: list[list[int]] = [[] for _ in range(len(src))]
    log_probs = [0.0 for _ in range(len(src))]
    finished: set[int] = set()
    sentences = list(range(len(src)))  # the sentence of each row
    last = torch.full((len(src),), BOS, device=device)

    def history() -> Tensor:
        return pad([ids[sentence] for sentence in sentences]).to(device)

    t = 0
    while sentences:
        logits, cache = model.step(last, cache)
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
            cache = cache.select(rows, rows)
        t += 1
    if not all(map(math.isfinite, log_probs)):
        raise NotFiniteError
    return [Hypothesis(y, log_prob) for y, log_prob in zip(ids, log_probs, strict=True)]


@dataclass(frozen=True)
class Expansion:
    """One step of a beam search over B sentences: C ≤ 2W continuations of each, best first."""

    sentences: Sequence[int]
    """The sentences that are still searched, (B,)."""
    log_prob: Tensor
    """Log-probability of each continuation, (B, C); −∞: there are fewer than C."""
    parent: Tensor
    """The hypothesis that each continues, (B, C), as an index into the previous step's `kept`."""
    token: Tensor
    """The token that each appends, (B, C)."""
    kept: Tensor
    """The continuations that stay in the beam, as indices into C, (B, ≤ W)."""
    finished: Sequence[tuple[int, int]]
    """Row and index into C of each continuation that is a finished translation."""


@dataclass(frozen=True)
class _Beams:
    """The unfinished hypotheses of B sentences: L ≤ W of each. At the start there is one."""

    sentences: list[int]
    """The sentences that are still searched, (B,)."""
    log_prob: Tensor
    """Log-probability of each hypothesis, best first, (B, L); −∞: there are fewer than L."""
    tokens: Tensor
    """`<s>` and the t tokens so far, (B, L, 1 + t)."""

    @classmethod
    def initial(cls, num_sentences: int, device: torch.device) -> "_Beams":
        log_prob = torch.zeros(num_sentences, 1, device=device)
        tokens = torch.full((num_sentences, 1, 1), BOS, device=device)
        return cls(list(range(num_sentences)), log_prob, tokens)

    @property
    def length(self) -> int:
        """The number of tokens so far, t."""
        return self.tokens.size(2) - 1

    @property
    def last(self) -> Tensor:
        """The last token of each hypothesis, (N,)."""
        return self.tokens[:, :, -1].flatten()

    def history(self) -> Tensor:
        """Return the tokens so far without `<s>`, (N, t)."""
        return self.tokens[:, :, 1:].flatten(0, 1)

    def extended(self, expansion: Expansion) -> tuple["_Beams", Tensor]:
        """Return the beams after one step, and the parent of each hypothesis as an index into N, (B, ≤ W)."""
        B, L = self.log_prob.shape
        parent = expansion.parent.gather(1, expansion.kept)
        token = expansion.token.gather(1, expansion.kept)
        # Continuations that end are kept only where there are too few others, and are never continued.
        log_prob = expansion.log_prob.gather(1, expansion.kept).masked_fill(token == EOS, -torch.inf)
        before = self.tokens.gather(1, parent.unsqueeze(2).expand(-1, -1, self.tokens.size(2)))
        tokens = torch.cat((before, token.unsqueeze(2)), dim=2)
        first_hypothesis = L * torch.arange(B, device=parent.device)[:, None]
        return _Beams(self.sentences, log_prob, tokens), first_hypothesis + parent

    def select(self, rows: Sequence[int], index: Tensor) -> "_Beams":
        """Return the beams of some sentences. `rows` are indices into B; `index` has the same as a tensor, (B′,)."""
        return _Beams([self.sentences[row] for row in rows], self.log_prob[index], self.tokens[index])


@torch.inference_mode()
def beam_search(
    model: Transformer,
    src: Tensor,
    limits: Limits,
    *,
    beam_size: int,
    alpha: float,
    normalization: LengthNormalization = "wu",
    early_stopping: bool = True,
    observe: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate each sentence by beam search (§6.1).

    In each step, a continuation that ends in `</s>` and is among the best W of its sentence is finished. The beam
    then consists of the best W continuations that do not end. The search of a sentence stops as soon as W hypotheses
    are finished, or none can be continued. They are ranked by log P(y | x) / lp(y). A hypothesis of maximum length
    must end there, with the probability that the model gives to ending.

    Without early stopping, the search continues after W hypotheses are finished while the score of the best unfinished
    one, at its current length, is above the W-th best score of the finished ones. transformers calls this rule
    `early_stopping=False`.

    Args:
        model: In evaluation mode.
        src: Source ids that end in `</s>`, padded, (B, S).
        limits: Constraints for the B sentences.
        beam_size: W.
        alpha: α of the length penalty; 0: none.
        normalization: The length penalty, see `inference.length`.
        early_stopping: Stop as soon as W hypotheses are finished.
        observe: Called with every step.

    Returns:
        The finished translations of each sentence, at least one, best first. With early stopping, there are at most W.

    Raises:
        NotFiniteError: A log-probability is NaN, or a sentence has no translation with a finite one.
    """
    penalty = partial(length_penalty, alpha=alpha, normalization=normalization)
    constraints = _Constraints(limits, src.device)
    cache = _encode(model, src)
    beams = _Beams.initial(len(src), src.device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    while beams.sentences:
        logits, cache = model.step(beams.last, cache)
        log_p = log_softmax_(logits)
        constraints.apply(log_p, beams.sentences, beams.length, beams.history)
        max_finished = [beam_size] * len(beams.sentences)
        if early_stopping:
            max_finished = [beam_size - len(finished[sentence]) for sentence in beams.sentences]
        expansion = _expand(beams, log_p, beam_size, max_finished)
        del logits, log_p  # to free their memory before the caches are copied
        for row, place in expansion.finished:
            finished[beams.sentences[row]].append(_finished_hypothesis(beams, expansion, row, place, penalty))
        if observe is not None:
            observe(expansion)
        beams, parents = beams.extended(expansion)
        best_log_prob = beams.log_prob[:, 0].tolist()
        if any(map(math.isnan, best_log_prob)):  # NaN ranks first
            raise NotFiniteError
        current_penalty = penalty(beams.length)
        active = []
        for row, sentence in enumerate(beams.sentences):
            best_score = best_log_prob[row] / current_penalty
            can_continue = math.isfinite(best_log_prob[row])
            if can_continue and not _is_complete(finished[sentence], best_score, beam_size, early_stopping):
                active.append(row)
        if len(active) == len(beams.sentences):
            cache = cache.select(parents.flatten())
        else:
            index = torch.tensor(active, dtype=torch.long, device=src.device)
            beams = beams.select(active, index)
            cache = cache.select(parents[index].flatten(), index)
    if not all(finished):
        raise NotFiniteError
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in finished]


def _expand(beams: _Beams, log_p: Tensor, beam_size: int, max_finished: Sequence[int]) -> Expansion:
    """Find the continuations of one step.

    Args:
        beams: The beams before the step.
        log_p: Log-probabilities of the next token, (N, V).
        beam_size: W.
        max_finished: How many hypotheses of each sentence may finish in this step, (B,).
    """
    L = beams.log_prob.size(1)
    V = log_p.size(1)
    # A hypothesis ends in one way only, so at least W of 2W continuations do not end.
    log_prob, parent, token = top_continuations(beams.log_prob, log_p, min(2 * beam_size, L * V))
    ends = token == EOS
    kept = log_prob.masked_fill(ends, -torch.inf).topk(min(beam_size, log_prob.size(1)), dim=1).indices
    finished = []
    num_free = list(max_finished)
    may_finish = ends[:, :beam_size] & log_prob[:, :beam_size].isfinite()
    for row, place in may_finish.nonzero().tolist():
        if num_free[row] > 0:
            num_free[row] -= 1
            finished.append((row, place))
    return Expansion(beams.sentences, log_prob, parent, token, kept, finished)


def _is_complete(finished: Sequence[Hypothesis], best_unfinished: float, beam_size: int, early_stopping: bool) -> bool:
    """Return True if the search of a sentence is over, see `beam_search`.

    Args:
        finished: Its finished hypotheses.
        best_unfinished: Score of the best unfinished hypothesis at its current length.
        beam_size: W.
        early_stopping: Stop as soon as W hypotheses are finished.
    """
    if len(finished) < beam_size:
        return False
    if early_stopping:
        return True
    scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
    return best_unfinished <= scores[beam_size - 1]


def _finished_hypothesis(
    beams: _Beams, expansion: Expansion, row: int, place: int, penalty: Callable[[int], float]
) -> Hypothesis:
    """Return the hypothesis that a continuation finishes: `row` is an index into B, `place` one into C."""
    ids = beams.tokens[row, expansion.parent[row, place], 1:].tolist()
    log_prob = float(expansion.log_prob[row, place])
    return Hypothesis(ids, log_prob, penalty(len(ids) + 1))
