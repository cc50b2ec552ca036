"""Beam search (§6.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mtcli.config.schema import LengthNormalization
from mtcli.data.tokenizer import BOS, EOS
from mtcli.errors import NotFiniteError
from mtcli.inference.length import length_penalty
from mtcli.inference.search.constraints import Constraints, Limits
from mtcli.inference.search.encoding import encode
from mtcli.inference.search.hypothesis import Hypothesis
from mtcli.nn.cpu_kernels import log_softmax_, top_continuations
from mtcli.nn.transformer import Transformer

MAX_SHARED_BEAM = 8
"""Beam size up to which the hypotheses of a sentence share their rows of the cache, see `Cache`."""


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
        """Return the beams after one step, and the parent of each hypothesis as an index into L, (B, ≤ W)."""
        parent = expansion.parent.gather(1, expansion.kept)
        token = expansion.token.gather(1, expansion.kept)
        # Continuations that end are kept only where there are too few others, and are never continued.
        log_prob = expansion.log_prob.gather(1, expansion.kept).masked_fill(token == EOS, -torch.inf)
        before = self.tokens.gather(1, parent.unsqueeze(2).expand(-1, -1, self.tokens.size(2)))
        tokens = torch.cat((before, token.unsqueeze(2)), dim=2)
        return _Beams(self.sentences, log_prob, tokens), parent

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
    constraints = Constraints(limits, src.device)
    cache = encode(model, src, share_rows=beam_size <= MAX_SHARED_BEAM)
    beams = _Beams.initial(len(src), src.device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    while beams.sentences:
        logits = model.step(beams.last, cache)
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
            cache.select(parents)
        else:
            index = torch.tensor(active, dtype=torch.long, device=src.device)
            beams = beams.select(active, index)
            cache.select(parents[index], index)
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
