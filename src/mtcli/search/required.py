"""Beam search for translations that contain required phrases: dynamic beam allocation (Post and Vilar 2018).

Hypotheses are compared only with those that contain as many tokens of the phrases: each such group, a bank, has a share
of the beam. Otherwise hypotheses without the phrases, which are more likely, would fill the beam, and the phrases would
be appended at the end. As in Hu et al. (2019), the beam takes the best hypothesis of each bank, then the second, and so
on. The states of the hypotheses, which tell the phrases that a hypothesis contains so far, are on the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.config.schema import LengthNormalization
from mtcli.errors import NotFiniteError
from mtcli.model.ensemble import SearchModel
from mtcli.model.fast.cpu_kernels import top_continuations
from mtcli.runtime.device import copy_to
from mtcli.search.beam import MAX_SHARED_BEAM, Beams
from mtcli.search.constraints import Constraints, Ids, Limits, block_repeated_ngrams
from mtcli.search.length import length_penalty
from mtcli.search.step import Expansion, Hypothesis, rows_to_keep
from mtcli.text.special_tokens import BOS, EOS, PAD

ROOT = 0
NONE = -1

Alternatives = tuple[tuple[int, ...], ...]
"""The token sequences of one required phrase, of which one must appear."""

_Candidate = tuple[float, int, int]
"""Log-probability of a continuation, the hypothesis that it continues, and the token that it appends."""

MAX_WIDTH = 32
"""Hypotheses of a sentence, at most, unless the beam size is larger."""


@dataclass(frozen=True)
class WordParts:
    """Which tokens extend a word; a phrase is met only if it is not part of a longer word."""

    begins: npt.NDArray[np.bool_]
    """True for each token that begins inside a word: it extends the word before it, (V,)."""
    ends: npt.NDArray[np.bool_]
    """True for each token that ends inside a word: the next token may extend it, (V,)."""


def length_after_word(alternatives: Alternatives, words: WordParts) -> int:
    """Return the number of tokens with which a phrase can be written after any text: those of its shortest alternative.

    An alternative that would extend a word before it counts only if all do.
    """
    lengths = [len(tokens) for tokens in alternatives if not words.begins[tokens[0]]]
    return min(lengths or map(len, alternatives))


class PhraseState(NamedTuple):
    """The phrases in a hypothesis."""

    met: int = 0
    """Bit i is set if phrase i is in the hypothesis."""
    node: int = ROOT
    """Place in the tree of the phrases, after the last tokens."""
    last: int = NONE
    """The phrase that the last token completed, or `NONE`. It is no longer met if the next token extends its word."""
    in_word: bool = False
    """The last token ends inside a word."""


class RequiredPhrases:
    """The phrases that the translation of one sentence must contain, in any order and without overlap.

    The alternatives of all phrases are a tree whose edges are tokens. A hypothesis is at one node of it: the root, or
    inside phrases that its last tokens have begun. A phrase that breaks off begins again.
    """

    def __init__(self, phrases: Sequence[Alternatives], words: WordParts):
        """Initialise the tree.

        Args:
            phrases: The alternatives of each phrase, none of them empty.
            words: Describes the tokens.
        """
        self.words = words
        self.lengths = [length_after_word(alternatives, words) for alternatives in phrases]
        """The number of tokens of each phrase, if it is written after a word."""
        self.total = sum(self.lengths)
        """The number of tokens with which all phrases can be written."""
        self._children: list[dict[int, int]] = [{}]
        self._completed: list[list[int]] = [[]]  # the phrases that end at each node
        self._below: list[dict[int, int]] = [{}]  # phrases that can be completed from each node: tokens to their end
        for phrase, alternatives in enumerate(phrases):
            for tokens in alternatives:
                self._add(phrase, tokens)

    def _add(self, phrase: int, tokens: Sequence[int]) -> None:
        """Add one alternative to the tree."""
        node = ROOT
        for position, token in enumerate(tokens):
            child = self._children[node].get(token)
            if child is None:
                child = len(self._children)
                self._children[node][token] = child
                self._children.append({})
                self._completed.append([])
                self._below.append({})
            node = child
            distance = len(tokens) - position - 1
            if distance:
                self._below[node][phrase] = min(distance, self._below[node].get(phrase, distance))
        self._completed[node].append(phrase)

    def remaining(self, state: PhraseState) -> int:
        """Return the number of tokens with which all phrases can be met."""
        missing = sum(length for phrase, length in enumerate(self.lengths) if not state.met >> phrase & 1)
        best = missing
        for phrase, distance in self._below[state.node].items():
            if not state.met >> phrase & 1:
                best = min(best, missing - self.lengths[phrase] + distance)
        return best

    def next_tokens(self, state: PhraseState) -> list[int]:
        """Return the tokens that begin or continue a phrase that is not met."""
        tokens = []
        if state.node != ROOT:
            tokens += [token for token, child in self._children[state.node].items() if self._leads_on(child, state.met)]
        for token, child in self._children[ROOT].items():
            extends_word = state.in_word and self.words.begins[token]
            if not extends_word and self._leads_on(child, state.met):
                tokens.append(token)
        return list(dict.fromkeys(tokens))

    def after(self, state: PhraseState, token: int) -> PhraseState:
        """Return the state after one more token."""
        if token == EOS:
            return state
        in_word = bool(self.words.ends[token])
        extends_word = state.in_word and bool(self.words.begins[token])
        longer = self._children[state.node].get(token) if state.node != ROOT else None
        met = state.met
        if state.last != NONE and (longer is not None or extends_word):
            met &= ~(1 << state.last)  # the phrase is a part of another phrase or word
        child = longer
        if child is None and not extends_word:
            child = self._children[ROOT].get(token)
        if child is None:
            return PhraseState(met, in_word=in_word)
        for phrase in self._completed[child]:
            if not met >> phrase & 1:
                return PhraseState(met | 1 << phrase, child, phrase, in_word)
        return PhraseState(met, child if self._leads_on(child, met) else ROOT, in_word=in_word)

    def _leads_on(self, node: int, met: int) -> bool:
        """Return True if a phrase that is not met ends at a node or below it."""
        return any(not met >> phrase & 1 for phrase in (*self._completed[node], *self._below[node]))


def width_for(phrases: RequiredPhrases, beam_size: int) -> int:
    """Return the number of hypotheses of a sentence: more than the beam size, for the banks of its phrases."""
    return max(beam_size, min(MAX_WIDTH, 2 * (beam_size + phrases.total)))


@torch.inference_mode()
def required_search(
    model: SearchModel,
    src: Tensor,
    limits: Limits,
    required: Sequence[RequiredPhrases],
    *,
    beam_size: int,
    alpha: float,
    normalization: LengthNormalization = "wu",
) -> list[list[Hypothesis]]:
    """Translate each sentence by beam search. Every translation contains the required phrases.

    A continuation that ends in `</s>` is finished if its hypothesis contains all phrases, and it is among the best W
    of those that do. The search of a sentence stops as soon as W hypotheses are finished and no unfinished one, at its
    current length, has a better score than the best of them. The maximum length is raised where the phrases and the
    prefix need more tokens. Repeated n-grams are not blocked inside the phrases.

    Args:
        model: In evaluation mode.
        src: Source ids that end in `</s>`, padded, (B, S).
        limits: Constraints for the B sentences.
        required: The phrases of each sentence.
        beam_size: W.
        alpha: α of the length penalty; 0: none.
        normalization: The length penalty, see `search.length`.

    Returns:
        The finished translations of each sentence, at least one, best first.

    Raises:
        NotFiniteError: A log-probability is NaN, or a sentence has no translation with a finite one.
    """
    device = src.device
    limits = _with_room(limits, required)
    constraints = Constraints(replace(limits, no_repeat_ngram=0), device)
    widths = [width_for(phrases, beam_size) for phrases in required]
    cache = model.start(src, share_rows=max(widths) <= MAX_SHARED_BEAM)
    penalty = partial(length_penalty, alpha=alpha, normalization=normalization)
    beams = _RequiredBeams(required, limits.max_length, beam_size, widths, penalty)
    last = torch.full((len(src), 1), BOS, device=device)
    while len(beams.sentences):
        wanted = beams.next_tokens()
        parts = []
        for block, log_p in model.step(last.flatten(), cache):
            constraints.apply(log_p, beams.sentences[block], beams.length, partial(beams.history, block))
            parts.append(_candidates(log_p, wanted[block], beams, block, limits))
        del log_p  # to free its memory before the caches are copied
        gains = np.concatenate([part for part, _ in parts])
        tokens = np.concatenate([part for _, part in parts])
        expansion = beams.finish(beams.expansion(gains, tokens))
        is_active = beams.extend(expansion)
        parents = np.take_along_axis(expansion.parent, expansion.kept, axis=1)
        rows = rows_to_keep(is_active)
        if rows is not None:
            beams.select(rows)
            parents = parents[rows]
        last = copy_to(device, torch.from_numpy(beams.tokens[:, :, -1].copy()))
        cache.select(copy_to(device, torch.from_numpy(parents)), rows)
    return beams.ranked()


def _with_room(limits: Limits, required: Sequence[RequiredPhrases]) -> Limits:
    """Raise the maximum lengths to the number of tokens that the prefix and the phrases need."""
    prefixes = limits.prefix or [()] * len(required)
    needed = [len(prefix) + phrases.total for prefix, phrases in zip(prefixes, required, strict=True)]
    return replace(limits, max_length=[max(pair) for pair in zip(limits.max_length, needed, strict=True)])


def _candidates(
    log_p: Tensor, wanted: Ids, beams: "_RequiredBeams", block: slice, limits: Limits
) -> tuple[npt.NDArray[np.float64], Ids]:
    """Return the tokens that may continue each hypothesis of a block: its most likely ones, and those of phrases.

    Args:
        log_p: Log-probabilities of the next token, (B × L, V).
        wanted: The next tokens of phrases, padded with `PAD`, (B, L, P).
        beams: The hypotheses.
        block: The sentences of the block.
        limits: The constraints of the search.

    Returns:
        Log-probabilities and tokens, (B, L, K + P) each; −∞: no candidate.
    """
    B, L, P = wanted.shape
    ids = copy_to(log_p.device, torch.from_numpy(wanted.reshape(B * L, P)))
    log_p_wanted = log_p.gather(1, ids)
    if 0 < limits.no_repeat_ngram <= beams.length:
        history = copy_to(log_p.device, torch.from_numpy(beams.history(block)))
        by_sentence = log_p.view(B, L, -1)
        in_prefix = copy_to(log_p.device, torch.from_numpy(_rows_in_prefix(beams, block, limits)))
        unblocked = by_sentence[in_prefix]
        block_repeated_ngrams(log_p, history, limits.no_repeat_ngram)
        by_sentence[in_prefix] = unblocked
    # At most W continuations of a hypothesis can stay in a bank, and one more can end.
    K = min(beams.beam_size + 1, log_p.size(1))
    log_p_best, _, best = top_continuations(log_p.new_zeros(B * L, 1), log_p, K)
    tokens = np.concatenate((best.cpu().numpy(), wanted.reshape(B * L, P)), axis=1)
    gains = torch.cat((log_p_best, log_p_wanted), dim=1).double().cpu().numpy()
    is_wanted = (tokens[:, :K, None] == tokens[:, None, K:]).any(axis=2)
    gains[:, :K][is_wanted] = -np.inf  # the same candidates as among the others
    gains[:, K:][tokens[:, K:] == PAD] = -np.inf
    return gains.reshape(B, L, K + P), tokens.reshape(B, L, K + P)


def _rows_in_prefix(beams: "_RequiredBeams", block: slice, limits: Limits) -> Ids:
    """Return the sentences of a block whose next token is one of their prefix, as indices into the block."""
    if limits.prefix is None:
        return np.empty(0, dtype=np.int64)
    lengths = np.array([len(limits.prefix[sentence]) for sentence in beams.sentences[block]])
    return np.flatnonzero(beams.length < lengths)


class _RequiredBeams(Beams):
    """The hypotheses of B sentences, and the phrases in each of them."""

    def __init__(
        self,
        required: Sequence[RequiredPhrases],
        max_length: Sequence[int],
        beam_size: int,
        widths: Sequence[int],
        penalty: Callable[[int], float],
    ) -> None:
        """Start with one empty hypothesis of each sentence.

        Args:
            required: The phrases of each sentence.
            max_length: Maximum number of tokens of each translation.
            beam_size: W.
            widths: Number of hypotheses of each sentence.
            penalty: The length penalty of a number of tokens.
        """
        super().__init__(len(required), beam_size, penalty, early_stopping=False)
        self.required = required
        self.max_length = max_length
        self.widths = widths
        self.scores = np.zeros((len(required), 1))
        """Log-probability of each unfinished hypothesis; −∞: there are fewer than L. (B, L)."""
        self.states: list[list[PhraseState]] = [[PhraseState()] for _ in required]
        """The phrases in each unfinished hypothesis, without places for those that are lacking."""

    def next_tokens(self) -> Ids:
        """Return the tokens that begin or continue a phrase in each hypothesis, padded with `PAD`, (B, L, P)."""
        next_tokens: list[list[list[int]]] = []
        for sentence, states in zip(self.sentences, self.states, strict=True):
            phrases = self.required[sentence]
            next_tokens.append([phrases.next_tokens(state) for state in states])
        P = max(len(tokens) for row in next_tokens for tokens in row)
        padded = np.full((len(next_tokens), self.scores.shape[1], P), PAD, dtype=np.int64)
        for row, of_hypotheses in enumerate(next_tokens):
            for hypothesis, tokens in enumerate(of_hypotheses):
                padded[row, hypothesis, : len(tokens)] = tokens
        return padded

    def expansion(self, gains: npt.NDArray[np.float64], tokens: Ids) -> Expansion:
        """Choose among the candidates of one step, (B, L, K) each.

        Returns:
            The continuations that end, then those that stay in the beam, best first.

        Raises:
            NotFiniteError: A log-probability is NaN.
        """
        B = len(self.sentences)
        places = self.beam_size + max(self.widths)
        log_prob = np.full((B, places), -np.inf)
        parent = np.zeros((B, places), dtype=np.int64)
        token = np.full((B, places), EOS, dtype=np.int64)
        totals = self.scores[:, :, None] + gains
        for row in range(B):
            if self._is_complete[self.sentences[row]]:
                self.states[row] = []
                continue
            if np.isnan(totals[row]).any():
                raise NotFiniteError
            ended, kept, states = self._best_of_banks(row, totals[row], tokens[row])
            for first, continuations in ((0, ended), (self.beam_size, kept)):
                end = first + len(continuations)
                log_prob[row, first:end] = [value for value, _, _ in continuations]
                parent[row, first:end] = [hypothesis for _, hypothesis, _ in continuations]
                token[row, first:end] = [next_token for _, _, next_token in continuations]
            self.states[row] = states
        kept_places = np.tile(np.arange(self.beam_size, places), (B, 1))
        self.scores = log_prob[:, self.beam_size :]
        return Expansion(log_prob, parent, token, kept_places)

    def _best_of_banks(
        self, row: int, totals: npt.NDArray[np.float64], tokens: Ids
    ) -> tuple[list[_Candidate], list[_Candidate], list[PhraseState]]:
        """Choose among the candidates (L, K) of one sentence.

        Returns:
            The continuations that end, those that stay in the beam, and the states of the latter.
        """
        sentence = self.sentences[row]
        phrases = self.required[sentence]
        room = self.max_length[sentence] - self.length - 1  # tokens after the next one
        banks: dict[int, list[tuple[_Candidate, PhraseState]]] = {}
        order = np.argsort(-totals, axis=None, kind="stable")
        for place in order[: np.isfinite(totals).sum()].tolist():
            hypothesis, column = divmod(place, totals.shape[1])
            token = int(tokens[hypothesis, column])
            state = phrases.after(self.states[row][hypothesis], token)
            remaining = phrases.remaining(state)
            if remaining > (0 if token == EOS else room):
                continue
            candidate = (float(totals[hypothesis, column]), hypothesis, token)
            banks.setdefault(remaining, []).append((candidate, state))
        full = banks.get(0, [])
        ended = [candidate for candidate, _ in full[: self.beam_size] if candidate[2] == EOS]
        banks[0] = [(candidate, state) for candidate, state in full if candidate[2] != EOS]
        # The best of each bank, then the second of each, and so on.
        rounds = zip_longest(*(banks[remaining] for remaining in sorted(banks)))
        in_turn = [choice for choices in rounds for choice in choices if choice is not None]
        kept = sorted(in_turn[: self.widths[sentence]], key=lambda choice: -choice[0][0])
        return ended, [candidate for candidate, _ in kept], [state for _, state in kept]

    def _may_stop(self, finished: Sequence[Hypothesis], best_unfinished: float) -> bool:
        return best_unfinished <= max(hypothesis.score for hypothesis in finished)

    def select(self, rows: Ids) -> None:
        """Remove the other rows."""
        super().select(rows)
        self.scores = self.scores[rows]
        self.states = [self.states[row] for row in rows]
