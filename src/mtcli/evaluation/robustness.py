"""How well a model translates text in the forms in which people type: the test pairs in each form, and their scores."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any

from mtcli.evaluation.metrics import Metric, Score, score
from mtcli.terms.annotation import TermAnnotator
from mtcli.text.invented_symbols import symbol
from mtcli.text.letter_case import upper
from mtcli.text.lines import Pair
from mtcli.text.typed_forms import FORMS, SymbolPlace, joined, with_symbol, without_final_mark
from mtcli.text.words import words_of

MAX_PAIRS = 500
"""Test pairs that are scored in each form, at most."""

MIN_SHARE = 0.02
"""Lines of a form, as a share of those of the pairs as they are, from which its scores say something."""

SEED = 1
"""The forms draw their random numbers from it, so that every model gets the same lines."""

AS_IT_IS = "as it is"
"""Name of the form of the test pairs."""

PLACES: dict[str, SymbolPlace] = {
    "symbol at the end": "end",
    "symbol at the start": "start",
    "symbol in the middle": "middle",
}
"""The forms with a symbol. The translations that keep it are counted, and scored without it: it is an easy word."""

SINGLE_WORDS = "single words"
"""Name of the form of words that are alone on a line."""

MAX_WORDS = 200
"""Words that are translated alone, at most."""

MIN_WORDS = 30
"""Words that are needed for a share that says something."""

MIN_DICE = 0.3
"""Association from which a word of the training pairs is known to have a translation."""

MIN_TIMES = 20
"""How often the training pairs have a word that is translated alone: a model cannot know rarer ones well."""

MAX_WORDS_OF_WORD = 3
"""Words of a translation of one word: a longer one is a sentence around it."""

JOINED = {"two sentences": 2, "three sentences": 3, "four sentences": 4}
"""The forms with several sentences on a line."""


@dataclass(frozen=True)
class Variant:
    """Test pairs in one form."""

    form: str
    rows: list[tuple[int, ...]]
    """The test pairs of each line, by their number."""
    pairs: list[Pair]
    """Each line in the form: its source and its reference."""
    write: list[Callable[[str], str]]
    """For each line: writes a translation of the pairs as they are in the form of the reference, without its symbol."""
    symbols: list[str] = field(default_factory=list)
    """The symbol of each line; empty in other forms."""

    @property
    def lowercase(self) -> bool:
        """Scores ignore case: it says nothing whether a translation of a title has capitals."""
        return self.form == "title case"


@dataclass(frozen=True)
class FormScores:
    """The scores of one form."""

    form: str
    lines: int
    scores: list[Score]
    plain: list[Score]
    """The scores on the same pairs as they are."""
    kept: float | None
    """Share of the translations that have the symbol of their source; None in other forms."""

    @property
    def shares(self) -> list[float]:
        """Each score as a share of that on the pairs as they are; 0 if that is 0."""
        return [
            ours.value / plain.value if plain.value else 0.0
            for ours, plain in zip(self.scores, self.plain, strict=True)
        ]


@dataclass(frozen=True)
class WordScores:
    """How words are translated that are alone on a line."""

    words: int
    known: float
    """Share of the words with a known translation, which may have one more word, such as an article."""
    long: float
    """Share of the words whose translation has more than `MAX_WORDS_OF_WORD` words."""


@dataclass(frozen=True)
class Robustness:
    """The scores of all forms, first those of the test pairs as they are."""

    forms: list[FormScores]
    words: WordScores | None = None
    """None: the training pairs are not known, or have too few words."""

    def to_text(self) -> str:
        """Return a table with a line for each form, and the signatures of the scores."""
        names = [one.name for one in self.forms[0].scores]
        heading = f"{'form':22} {'lines':>5}"
        heading += "".join(f" {name:>6} {'plain':>6} {'share':>6}" for name in names)
        lines = [f"{heading} {'kept':>6}", *map(_line, self.forms)]
        if self.words is not None:
            found = self.words
            lines.append(
                f"{SINGLE_WORDS:22} {found.words:>5,} {found.known:>6.1%} with a known translation, "
                f"{found.long:.1%} with more than {MAX_WORDS_OF_WORD} words"
            )
        return "\n".join([*lines, *self._signatures()])

    def _signatures(self) -> list[str]:
        """Return the different signatures, with the form that has another one than the first."""
        lines = []
        for form in (self.forms[0], *(form for form in self.forms if form.form == "title case")):
            prefix = "" if form.form == AS_IT_IS else f"{form.form}: "
            lines += [f"{prefix}{one.name} {one.signature}" for one in form.scores]
        return lines

    def to_json(self) -> str:
        """Return a list with an object for each form and metric: that of sacrebleu, and the keys of this table.

        The object of single words has no metric.
        """
        objects = []
        for form in self.forms:
            for ours, plain, share in zip(form.scores, form.plain, form.shares, strict=True):
                more: dict[str, Any] = {"form": form.form, "lines": form.lines, "plain": plain.value, "share": share}
                if form.kept is not None:
                    more["kept"] = form.kept
                objects.append(more | json.loads(ours.json))
        if self.words is not None:
            shares = {"known": self.words.known, "long": self.words.long}
            objects.append({"form": SINGLE_WORDS, "lines": self.words.words, **shares})
        return json.dumps(objects, indent=1, ensure_ascii=False)


def _line(form: FormScores) -> str:
    line = f"{form.form:22} {form.lines:>5,}"
    for ours, plain, share in zip(form.scores, form.plain, form.shares, strict=True):
        line += f" {ours.value:>6.1f}"
        line += " " * 14 if form.form == AS_IT_IS else f" {plain.value:>6.1f} {share:>6.0%}"
    return line.rstrip() if form.kept is None else f"{line} {form.kept:>6.1%}"


def variants(pairs: Sequence[Pair], languages: tuple[str, str]) -> list[Variant]:
    """Return the test pairs as they are, and in each form that the languages have.

    Of each form, the first `MAX_PAIRS` pairs to which it applies are taken. One of few pairs (`MIN_SHARE`) is omitted.

    Args:
        pairs: The test pairs.
        languages: Their languages.
    """
    first = list(pairs[:MAX_PAIRS])
    found = [Variant(AS_IT_IS, [(row,) for row in range(len(first))], first, [str] * len(first))]
    found += [_variant(form, pairs, languages) for form in FORMS]
    for name, number in JOINED.items():
        rows = [tuple(range(start, start + number)) for start in range(0, len(first) - number + 1, number)]
        lines = [joined([first[row] for row in group]) for group in rows]
        found.append(Variant(name, rows, lines, [str] * len(lines)))
    return [variant for variant in found if variant.pairs and len(variant.rows) >= MIN_SHARE * len(first)]


def _variant(form: str, pairs: Sequence[Pair], languages: tuple[str, str]) -> Variant:
    """Return the pairs in a form of `FORMS`."""
    random = Random(f"{SEED} {form}")
    rows: list[int] = []
    lines: list[Pair] = []
    symbols: list[str] = []
    for row, pair in enumerate(pairs):
        if len(lines) == MAX_PAIRS:
            break
        if form in PLACES:
            new = symbol(languages, random)
            changed = with_symbol(pair, languages, random, new, PLACES[form])
        else:
            new = ""
            changed = FORMS[form](pair, languages, random)
        if changed is not None:
            rows.append(row)
            lines.append(changed)
            symbols.append(new)
    references = [_without(tgt, new) for (_, tgt), new in zip(lines, symbols, strict=True)]
    write = [_writer(form, pairs[row][1], ref, languages[1]) for row, ref in zip(rows, references, strict=True)]
    return Variant(form, [(row,) for row in rows], lines, write, symbols if form in PLACES else [])


def _writer(form: str, plain: str, reference: str, language: str) -> Callable[[str], str]:
    """Return a function that changes a translation as a form changes a reference.

    Args:
        form: The form.
        plain: The reference as it is.
        reference: The reference in the form, without its symbol.
        language: Their language.
    """
    if form == "capitals":
        return partial(upper, language=language)
    if reference == plain:
        return str
    if reference == without_final_mark(plain, language):
        return partial(without_final_mark, language=language)
    if form == "doubled final mark":
        return partial(_with_more_marks, marks=reference[len(plain) :])
    return str


def _with_more_marks(text: str, marks: str) -> str:
    return text + marks if text.endswith(marks[0]) else text


def _without(text: str, symbol: str) -> str:
    """Return a text without its first such symbol, which may be empty."""
    return " ".join(text.replace(symbol, "", 1).split()) if symbol else text


def known_words(training: Iterable[Pair]) -> dict[str, frozenset[str]]:
    """Return frequent words of training pairs in lower case, with their translations: words that often occur with them.

    At most `MAX_WORDS` are chosen, always the same ones; none if there are fewer than `MIN_WORDS`.
    """
    pairs = list(training)
    partners = TermAnnotator.learn(pairs, max_share=1.0).partners
    times = Counter(word.text.lower() for src, _ in pairs for word in words_of(src))
    words = sorted(
        word
        for word, found in partners.items()
        if word.isalpha() and times[word] >= MIN_TIMES and max(found.values()) >= MIN_DICE
    )
    if len(words) < MIN_WORDS:
        return {}
    chosen = Random(SEED).sample(words, min(MAX_WORDS, len(words)))
    return {word: frozenset(partners[word]) for word in chosen}


def _word_scores(known: Mapping[str, frozenset[str]], translations: Sequence[str]) -> WordScores | None:
    """Score the translations of words, in their order."""
    if not known:
        return None
    num_known = num_long = 0
    for partners, translation in zip(known.values(), translations, strict=True):
        words = [word.text.lower() for word in words_of(translation) if word.text[0].isalnum()]
        num_known += len(words) <= 2 and not partners.isdisjoint(words)
        num_long += len(words) > MAX_WORDS_OF_WORD
    return WordScores(len(known), num_known / len(known), num_long / len(known))


def measure(
    found: Sequence[Variant],
    pairs: Sequence[Pair],
    translate: Callable[[list[str]], list[str]],
    *,
    metrics: Sequence[Metric],
    tokenize: str,
    lowercase: bool = False,
    known: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Robustness:
    """Translate the lines of all forms, and score them.

    Args:
        found: The forms, see `variants`.
        pairs: The test pairs.
        translate: Translates lines. It is called once.
        metrics: The metrics.
        tokenize: sacrebleu's tokenizer for BLEU.
        lowercase: Ignore case in all forms.
        known: Words to translate alone, with their known translations, see `known_words`.
    """
    plain_rows = sorted({row for variant in found for rows in variant.rows for row in rows})
    sources = [pairs[row][0] for row in plain_rows]
    in_forms = [src for variant in found[1:] for src, _ in variant.pairs]
    translations = translate([*sources, *in_forms, *known])
    plain = dict(zip(plain_rows, translations, strict=False))
    rest = iter(translations[len(sources) :])
    forms = []
    for variant in found:
        as_they_are = [_joined([plain[row] for row in rows]) for rows in variant.rows]
        hypotheses = as_they_are if variant.form == AS_IT_IS else [next(rest) for _ in variant.pairs]
        references = [tgt for _, tgt in variant.pairs]
        kept = [new in hypothesis for new, hypothesis in zip(variant.symbols, hypotheses, strict=False)]
        if variant.symbols:
            hypotheses = list(map(_without, hypotheses, variant.symbols))
            references = list(map(_without, references, variant.symbols))
        written = [write(line) for write, line in zip(variant.write, as_they_are, strict=True)]
        scored = partial(score, metrics=metrics, tokenize=tokenize, lowercase=lowercase or variant.lowercase)
        forms.append(
            FormScores(
                form=variant.form,
                lines=len(variant.pairs),
                scores=scored(hypotheses, [references]),
                plain=scored(written, [references]),
                kept=sum(kept) / len(kept) if kept else None,
            )
        )
    return Robustness(forms, _word_scores(known, list(rest)))


def _joined(translations: Sequence[str]) -> str:
    """Return the translations of several sentences on one line."""
    return joined([("", translation) for translation in translations])[1]
