"""Beam search (§6.1)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.config.schema import LengthNormalization
from mtcli.errors import NotFiniteError
from mtcli.model.ensemble import SearchModel
from mtcli.runtime.device import copy_to
from mtcli.search.constraints import Constraints, Ids, Limits
from mtcli.search.length import length_penalty
from mtcli.search.step import Continuations, Expansion, Hypothesis, rows_to_keep
from mtcli.text.special_tokens import BOS, EOS

MAX_SHARED_BEAM = 8
"""Beam size up to which the hypotheses of a sentence share their rows of the cache, see `Cache`."""


@torch.inference_mode()
def beam_search(
    model: SearchModel,
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

    The host waits for the device once a step: for the continuations. It keeps the tokens of the hypotheses, and decides
    which sentences are complete.

    Args:
        model: In evaluation mode.
        src: Source ids that end in `</s>`, padded, (B, S).
        limits: Constraints for the B sentences.
        beam_size: W.
        alpha: α of the length penalty; 0: none.
        normalization: The length penalty, see `search.length`.
        early_stopping: Stop as soon as W hypotheses are finished.
        observe: Called with every step.

    Returns:
        The finished translations of each sentence, at least one, best first. With early stopping, there are at most W.

    Raises:
        NotFiniteError: A log-probability is NaN, or a sentence has no translation with a finite one.
    """
    device = src.device
    constraints = Constraints(limits, device)
    cache = model.start(src, share_rows=beam_size <= MAX_SHARED_BEAM)
    penalty = partial(length_penalty, alpha=alpha, normalization=normalization)
    beams = Beams(len(src), beam_size, penalty, early_stopping=early_stopping)
    scores = torch.zeros(len(src), 1, device=device)  # log-probability of each hypothesis, best first, (B, L)
    last = torch.full((len(src), 1), BOS, device=device)  # the last token of each hypothesis, (B, L)
    while len(beams.sentences):
        parts = []
        for block, log_p in model.step(last.flatten(), cache):
            constraints.apply(log_p, beams.sentences[block], beams.length, partial(beams.history, block))
            parts.append(Continuations.best(scores[block], log_p, beam_size))
        del log_p  # to free its memory before the caches are copied
        continuations = Continuations.joined(parts)
        scores, parents, last = continuations.beams()
        expansion = beams.finish(continuations.to_host())
        if observe is not None:
            observe(expansion)
        is_active = beams.extend(expansion)
        rows = rows_to_keep(is_active)
        if rows is None:
            cache.select(parents)
            continue
        beams.select(rows)
        index = copy_to(device, torch.from_numpy(rows))
        scores, parents, last = (x.index_select(0, index) for x in (scores, parents, last))
        cache.select(parents, rows)
    return beams.ranked()


class Beams:
    """The hypotheses of B sentences on the host: the tokens of the unfinished ones, and the finished ones."""

    def __init__(
        self, num_sentences: int, beam_size: int, penalty: Callable[[int], float], *, early_stopping: bool
    ) -> None:
        """Start with one empty hypothesis of each sentence. Arguments are those of `beam_search`."""
        self.beam_size = beam_size
        self.penalty = penalty
        self.early_stopping = early_stopping
        self.sentences: Ids = np.arange(num_sentences)
        """The sentence of each row, (B,). Some of them may be complete."""
        self.tokens: Ids = np.empty((num_sentences, 1, 0), dtype=np.int64)
        """The tokens so far of the unfinished hypotheses, without `<s>`, (B, L, t)."""
        self.finished: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
        """The finished hypotheses of each sentence."""
        self._num_finished = np.zeros(num_sentences, dtype=np.int64)  # of each sentence
        self._is_complete = np.zeros(num_sentences, dtype=bool)  # of each sentence

    @property
    def length(self) -> int:
        """The number of tokens so far, t."""
        return int(self.tokens.shape[2])

    def history(self, block: slice) -> Ids:
        """Return the tokens so far of a block of the rows, (hypotheses, t)."""
        return self.tokens[block].reshape(-1, self.length)

    def finish(self, expansion: Expansion) -> Expansion:
        """Add the finished continuations of one step to `finished`, and return the expansion with them."""
        log_prob = expansion.log_prob[:, : self.beam_size]
        may_finish = (expansion.token[:, : self.beam_size] == EOS) & np.isfinite(log_prob)
        places = []
        for row, place in np.argwhere(may_finish).tolist():
            sentence = self.sentences[row]
            is_full = self.early_stopping and self._num_finished[sentence] >= self.beam_size
            if is_full or self._is_complete[sentence]:
                continue
            ids = self.tokens[row, expansion.parent[row, place]].tolist()
            hypothesis = Hypothesis(ids, float(log_prob[row, place]), self.penalty(len(ids) + 1))
            self.finished[sentence].append(hypothesis)
            self._num_finished[sentence] += 1
            places.append((row, place))
        return replace(expansion, finished=places)

    def extend(self, expansion: Expansion) -> npt.NDArray[np.bool_]:
        """Continue with the hypotheses that stay in the beam, and return True for each row that is not complete, (B,).

        Raises:
            NotFiniteError: A log-probability is NaN.
        """
        parent = np.take_along_axis(expansion.parent, expansion.kept, axis=1)
        token = np.take_along_axis(expansion.token, expansion.kept, axis=1)
        before = np.take_along_axis(self.tokens, parent[:, :, None], axis=1)
        self.tokens = np.concatenate((before, token[:, :, None]), axis=2)
        log_prob = np.take_along_axis(expansion.log_prob, expansion.kept[:, :1], axis=1)[:, 0]
        best_unfinished = np.where(token[:, 0] == EOS, -np.inf, log_prob)
        is_active = ~self._is_complete[self.sentences]
        if np.isnan(best_unfinished[is_active]).any():  # NaN ranks first
            raise NotFiniteError
        is_active &= np.isfinite(best_unfinished)
        best_scores = best_unfinished / self.penalty(self.length)
        for row in np.flatnonzero(is_active & (self._num_finished[self.sentences] >= self.beam_size)):
            is_active[row] = not self._may_stop(self.finished[self.sentences[row]], best_scores[row])
        self._is_complete[self.sentences] = ~is_active
        return is_active

    def _may_stop(self, finished: Sequence[Hypothesis], best_unfinished: float) -> bool:
        """Return True if the search of a sentence may stop, see `beam_search`.

        Args:
            finished: Its finished hypotheses, at least W.
            best_unfinished: Score of the best unfinished hypothesis at its current length.
        """
        if self.early_stopping:
            return True
        scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
        return best_unfinished <= scores[self.beam_size - 1]

    def select(self, rows: Ids) -> None:
        """Remove the other rows."""
        self.sentences = self.sentences[rows]
        self.tokens = self.tokens[rows]

    def ranked(self) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of each sentence, best first.

        Raises:
            NotFiniteError: A sentence has none.
        """
        if not all(self.finished):
            raise NotFiniteError
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in self.finished]
