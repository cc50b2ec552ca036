"""Drafts: the hypotheses of a search as text. Drafts that have the same text are merged."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Draft:
    """One hypothesis of a search, or several merged ones with the same text."""

    text: str
    ids: tuple[int, ...]
    """Target ids without `</s>`."""
    log_prob: float
    """In nats."""
    penalty: float = 1.0
    """The length penalty, see `search.length`."""
    draws: int = 1
    """How often sampling drew the text."""
    reverse_log_prob: float | None = None
    """log P(source | text) under a reverse model, in nats; None without reranking."""
    reverse_weight: float = 0.0
    """The weight of `reverse_log_prob` in the score."""

    @property
    def score(self) -> float:
        """The log-probability divided by the length penalty. Drafts are ranked by it.

        With reranking, the weighted log-probability of the source is first added, see `translate.reranking`.
        """
        if self.reverse_log_prob is None:
            return self.log_prob / self.penalty
        return (self.log_prob + self.reverse_weight * self.reverse_log_prob) / self.penalty


Rerank = Callable[[Sequence[str], Sequence[Sequence[Draft]]], list[list[Draft]]]
"""Returns the drafts of each of several lines with other scores, the best one first; see `reranking.Reranker`."""


def merge_by_text(drafts: Iterable[Draft], *, sampled: bool) -> list[Draft]:
    """Merge the drafts of one source that have the same text.

    Args:
        drafts: All hypotheses of a search, best first, or samples in the order of their draws; at least one.
        sampled: They are samples.

    Returns:
        One draft for each text. The first text stays first. The others are sorted by score; those of samples stay in
        the order of their first draws.
    """
    by_text: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_text.setdefault(draft.text, []).append(draft)
    first, *others = (_merge(same_text) for same_text in by_text.values())
    if not sampled:
        others = sorted_by_score(others)
    return [first, *others]


def add_new_texts(found: Sequence[Draft], more: Iterable[Draft]) -> list[Draft]:
    """Add those drafts of a further search whose texts are new. The first draft stays first.

    Args:
        found: Drafts with different texts; at least one.
        more: Drafts with different texts.

    Returns:
        The first draft of `found`, then all others sorted by score.
    """
    texts = {draft.text for draft in found}
    new = [draft for draft in more if draft.text not in texts]
    return [found[0], *sorted_by_score([*found[1:], *new])]


def _merge(same_text: Sequence[Draft]) -> Draft:
    """Add up the probabilities of the token sequences of one text. A sequence that was drawn twice counts once."""
    if len(same_text) == 1:
        return same_text[0]
    by_ids = {draft.ids: draft for draft in same_text}
    if len(by_ids) == 1:
        return replace(same_text[0], draws=len(same_text))
    most_likely = max(by_ids.values(), key=lambda draft: draft.log_prob)
    ratio = math.fsum(math.exp(draft.log_prob - most_likely.log_prob) for draft in by_ids.values())
    log_prob = min(0.0, most_likely.log_prob + math.log(ratio))  # rounding may take the sum above 1
    return replace(most_likely, log_prob=log_prob, draws=len(same_text))


def sorted_by_score(drafts: Iterable[Draft]) -> list[Draft]:
    """Return drafts with the highest score first. Of equal scores, the earlier draft stays first."""
    return sorted(drafts, key=lambda draft: -draft.score)
