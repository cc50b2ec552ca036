"""The options of a translator, and its results. Hypotheses that have the same text are merged."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mtcli.config.schema import DecodeConfig, LengthNormalization, Precision
from mtcli.terms.terms import Terms, TermUse

if TYPE_CHECKING:
    from mtcli.translate.memory import MemoryMatch


@dataclass(frozen=True)
class Options:
    """Options of a search."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """The exponent α of the length penalty."""
    length_normalization: LengthNormalization = "wu"
    """The formula of the length penalty, see `search.length`."""
    early_stopping: bool = True
    """Stop as soon as `beam_size` translations are finished, see `search.beam`."""
    n_best: int = 1
    """Number of different translations of each line. See `Translator.translate`."""
    min_length: int = 1
    """Minimum number of tokens of a translation, unless its maximum is lower. With 1, no hypothesis is empty, as in
    fairseq and CTranslate2."""
    max_length: int | None = None
    """Maximum number of tokens of a translation; None: the number of the source plus `max_extra`."""
    max_extra: int = 50
    """See `max_length`."""
    prefix: str = ""
    """Text that every translation begins with."""
    no_repeat_ngram: int = 0
    """Block n-grams of this many tokens from repeating, except inside `prefix`; 0 disables."""
    sample: bool = False
    """Draw tokens at random instead of searching."""
    temperature: float = 1.0
    """Divides the logits of sampling; below 1 it favours likely tokens."""
    top_k: int = 0
    """Draw from this many most likely tokens; 0: from all."""
    seed: int = 1
    """Seed of sampling."""
    to: str = ""
    """Target language of a multilingual model, see `Tokenizer.tag_of`. Empty: each line begins with the tag of its
    target language."""
    scores: bool = True
    """Compute scores also where the search does not need them. Without, those of CTranslate2's greedy search are NaN:
    it then computes no log-probabilities, which takes a fifteenth of its time."""
    precision: Precision = "auto"
    """See `model.precision.decodes_in_bf16`."""
    alignments: bool = False
    """Align the words of each translation with those of its source."""
    align_characters: bool = False
    """With `alignments`: in scripts without spaces between words, each character is a word, see `character_spans`."""
    repair: bool = False
    """Replace translations that repeat themselves or are empty, see `Translator.translate`. It has no effect on samples
    and with a prefix."""
    terms: Terms | None = None
    """Terms to find in the sources and to use in the translations."""
    terms_mode: Literal["soft", "hard"] = "soft"
    """How terms are used. `soft`: written into the source, for a model that was trained with terms. `hard`: the search
    allows only translations that contain them."""
    retry_terms: bool = False
    """Translate lines again with hard terms if their soft translation lacks a term. An exported model does not."""

    @classmethod
    def of(cls, decode: DecodeConfig) -> "Options":
        """Return the default options of a model."""
        return cls(
            beam_size=decode.beam_size,
            length_penalty=decode.length_penalty,
            length_normalization=decode.length_normalization,
            early_stopping=decode.early_stopping,
            max_extra=decode.max_extra,
            precision=decode.precision,
        )

    def with_given(self, given: Mapping[str, Any]) -> "Options":
        """Return these options with those that the user set, by name; None: not set."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def repairs(self) -> bool:
        """Translations are replaced, see `repair`."""
        return self.repair and not self.sample and not self.prefix

    @property
    def is_calibrated(self) -> bool:
        """The confidence of a model holds: neither chance nor the user chooses tokens, or where a translation ends."""
        is_free = self.max_length is None and self.min_length <= 1 and not self.no_repeat_ngram
        return is_free and not self.sample and not self.prefix and self.terms is None


Links = tuple[tuple[int, int], ...]
"""Word alignment: indices of a source word and a target word, sorted. See `alignment.align`."""


def pharaoh(links: Links) -> str:
    """Write links in the Pharaoh format, `0-0 1-2`: source word and target word."""
    return " ".join(f"{src}-{tgt}" for src, tgt in links)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line: a hypothesis of a search as text, or several hypotheses with the same text.

    Several sequences of tokens may decode to one text. The probability of a text is the sum over the sequences that
    the search found. Its score is the logarithm of this sum, divided by the length penalty of the most likely sequence.
    """

    text: str
    log_prob: float
    """log P(text | line) in nats; may be NaN without `Options.scores`."""
    score: float
    """`log_prob` divided by `penalty`; see `Reranker` for another one. Translations are ranked by it."""
    ids: tuple[int, ...] = ()
    """Target ids of the most likely sequence, without `</s>`; empty if the text was joined from several searches."""
    penalty: float = 1.0
    """The length penalty of this sequence, see `search.length`."""
    alignment: Links = ()
    """Empty unless the options ask for alignments."""
    draws: int = 1
    """How often sampling drew this text."""
    confidence: float | None = None
    """The chrF that it is expected to have, 0 to 100, see `translate.confidence`; None if it is not known."""
    reverse_log_prob: float | None = None
    """log P(line | text) in nats under a reverse model, which then is part of the score; None without reranking."""


@dataclass(frozen=True)
class Translation:
    """A line and its translations, best first. A line that is blank or has no token has one, an empty text."""

    source: str
    candidates: tuple[Candidate, ...]
    terms: tuple[TermUse, ...] = ()
    """The terms of the line as far as it is translated, in its order, and where the best translation uses them."""
    memory: "tuple[MemoryMatch, ...]" = ()
    """The entries of a translation memory for its sentences, in their order: those that are used, and near matches."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


Rerank = Callable[[Sequence[str], Sequence[Sequence[Candidate]]], list[list[Candidate]]]
"""Returns the candidates of each of several lines with other scores, the best one first; see `scoring.Reranker`."""


def merge_by_text(hypotheses: Iterable[Candidate], *, sampled: bool) -> list[Candidate]:
    """Merge the hypotheses of one line that have the same text.

    Args:
        hypotheses: All hypotheses of a search, best first, or samples in the order of their draws; at least one.
        sampled: They are samples.

    Returns:
        One candidate for each text. The first text stays first. The others are sorted by score; those of samples stay
        in the order of their first draws.
    """
    by_text: dict[str, list[Candidate]] = {}
    for hypothesis in hypotheses:
        by_text.setdefault(hypothesis.text, []).append(hypothesis)
    first, *others = (_merge(same_text) for same_text in by_text.values())
    if not sampled:
        others = sorted_by_score(others)
    return [first, *others]


def add_new_texts(found: Sequence[Candidate], more: Iterable[Candidate]) -> list[Candidate]:
    """Add those candidates of a further search whose texts are new. The first candidate stays first.

    Args:
        found: Candidates with different texts; at least one.
        more: Candidates with different texts.

    Returns:
        The first candidate of `found`, then all others sorted by score.
    """
    texts = {candidate.text for candidate in found}
    new = [candidate for candidate in more if candidate.text not in texts]
    return [found[0], *sorted_by_score([*found[1:], *new])]


def _merge(same_text: Sequence[Candidate]) -> Candidate:
    """Add up the probabilities of the token sequences of one text. A sequence that was drawn twice counts once."""
    if len(same_text) == 1:
        return same_text[0]
    by_ids = {hypothesis.ids: hypothesis for hypothesis in same_text}
    if len(by_ids) == 1:
        return replace(same_text[0], draws=len(same_text))
    most_likely = max(by_ids.values(), key=lambda hypothesis: hypothesis.log_prob)
    ratio = math.fsum(math.exp(hypothesis.log_prob - most_likely.log_prob) for hypothesis in by_ids.values())
    log_prob = min(0.0, most_likely.log_prob + math.log(ratio))  # rounding may take the sum above 1
    return replace(most_likely, log_prob=log_prob, score=log_prob / most_likely.penalty, draws=len(same_text))


def sorted_by_score(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates with the highest score first. Of equal scores, the earlier one stays first."""
    return sorted(candidates, key=lambda candidate: -candidate.score)
