"""The models of a server, and which of them a request uses."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from mtcli.errors import UsageError
from mtcli.serve.batcher import Batcher
from mtcli.serve.page import PageData
from mtcli.terms.terms import Terms
from mtcli.text.language_identifier import IdentifiedLanguage, LanguageIdentifier
from mtcli.text.languages import Direction
from mtcli.translate.loading import LoadedModel
from mtcli.translate.pivot import PivotTranslator
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

if TYPE_CHECKING:  # servers without a memory do not load its readers
    from mtcli.serve.corrections import CorrectionsFile
    from mtcli.translate.memory import Memory

_REGION = re.compile("[a-z]{2}|[0-9]{3}")


@dataclass
class ServedModel:
    """A model, and the queue of the lines that wait for it."""

    translator: Translator
    """Used by one thread at a time."""
    options: Options
    """Search options; each request sets `n_best`, `alignments` and `to`."""
    languages: tuple[str, str]
    """Codes of source and target. A multilingual model has its tags as targets instead."""
    page: PageData | None = None
    """What the page shows of it; None: the languages only."""
    own_targets: tuple[str, ...] = ()
    """The target languages of this source language; empty: all that the model has tags for."""
    partner: "ServedModel | None" = None
    """The same model with another source language, whose queue this one uses."""
    memories: "dict[str, Memory]" = field(default_factory=dict)
    """What is translated in place of the model, by target language."""
    corrections: "dict[str, CorrectionsFile]" = field(default_factory=dict)
    """Where corrections go, by target language; empty: they are refused."""
    through: tuple["ServedModel", ...] = ()
    """The two models, or directions of one, of a translation through a third language; empty for a model of its own."""
    in_use: Lock = field(default_factory=Lock)
    """Held while the model translates: a model of its own and those through it have a thread each."""
    batcher: Batcher = field(init=False)

    @classmethod
    def all_of(cls, loaded: LoadedModel, show: Callable[[Direction, tuple[str, ...]], PageData]) -> "list[ServedModel]":
        """Return a model once for each of its source languages.

        Args:
            loaded: The model.
            show: Returns what the page shows of a source language and its target languages.
        """
        translator = loaded.translator
        info = translator.backend.info
        targets: dict[str, list[str]] = {}
        for src, tgt in info.trained_directions:
            targets.setdefault(src, []).append(tgt)
        found: list[ServedModel] = []
        for src, of_source in targets.items():
            first = Direction(src, of_source[0])
            tags = tuple(of_source) if info.directions else tuple(sorted(translator.tokenizer.tags))
            own_targets = tags if translator.tokenizer.tags else ()
            page = show(first, own_targets)
            model = cls(translator, loaded.options, first, page, own_targets, found[0] if found else None)
            if model.partner:
                model.in_use = model.partner.in_use
            found.append(model)
        return found

    @property
    def src(self) -> str:
        """Code of the source language."""
        return self.languages[0]

    @property
    def tags(self) -> list[str]:
        """The target languages of a multilingual model; empty for other models."""
        return list(self.own_targets) or sorted(self.translator.target_tokenizer.tags)

    @property
    def shown(self) -> PageData:
        """What the page shows of it."""
        page = self.page or PageData(*self.languages, targets=tuple(self.tags))
        return replace(page, corrects=bool(self.corrections))

    @property
    def targets(self) -> list[str]:
        """Codes of the target languages."""
        return self.tags or [self.languages[1]]

    def start(self, max_waiting: int) -> None:
        """Start the thread that translates."""
        locks = {id(model.in_use): model.in_use for model in self.through or (self,)}  # one for both directions of one
        ordered = [locks[key] for key in sorted(locks)]
        self.batcher = self.partner.batcher if self.partner else Batcher(self.translator, max_waiting, ordered)

    def has_target(self, target: str) -> bool:
        """Return True if the model translates into this language. An empty code is any language."""
        if not self.tags or not target:
            return target in (*self.targets, "")
        tokenizer = self.translator.target_tokenizer
        try:
            tag = tokenizer.tag_of(target)
        except UsageError:
            return False
        return tag in {tokenizer.tag_of(own) for own in self.tags}

    def known_target(self, target: str) -> str:
        """Return the code of this server for the target language of a request, such as the tag `fra` for `fr`.

        Raises:
            UsageError: A multilingual model has no such target, or several.
        """
        if not self.tags:
            return self.languages[1]
        tokenizer = self.translator.target_tokenizer
        tag = tokenizer.tag_of(self.target_of(target))
        return next(own for own in self.tags if tokenizer.tag_of(own) == tag)

    def memory_to(self, target: str) -> "Memory | None":
        """Return the memory of a request; None: there is none."""
        return self.memories.get(self.known_target(target)) if self.memories else None

    def target_of(self, target: str) -> str:
        """Return the code of the target language of a request; if it names none, the only one, see `candidates`."""
        return target or self.targets[0]

    def options_to(self, target: str, *, alignments: bool = False, terms: Terms | None = None) -> Options:
        """Return the search options of a request.

        Raises:
            UsageError: The model cannot use terms.
        """
        options = replace(self.options, alignments=alignments, to=self.target_of(target) if self.tags else "")
        return options if terms is None else self.translator.with_terms(options, terms, "auto")


def through_pivots(models: Sequence[ServedModel]) -> list[ServedModel]:
    """Return what the models translate through a third language, for pairs that no model translates itself.

    Both steps may be directions of the same model. Of several third languages, that of the model which is given first
    is used.
    """
    found = []
    known = {(model.src, target) for model in models for target in model.targets}
    for first, second in product(models, models):
        src, pivot = first.src, second.src
        targets = [tgt for tgt in second.targets if tgt not in (src, pivot) and (src, tgt) not in known]
        if first is second or not first.has_target(pivot) or not targets:
            continue
        known.update((src, tgt) for tgt in targets)
        translator = PivotTranslator(first.translator, first.options_to(pivot), second.translator)
        own_targets = tuple(targets) if second.tags else ()
        names = " and ".join(dict.fromkeys(model.shown.name for model in (first, second)))
        page = PageData(src, targets[0], name=names, score=f"through {pivot}", targets=own_targets)
        languages = (src, targets[0])
        found.append(ServedModel(translator, second.options, languages, page, own_targets, through=(first, second)))
    return found


@dataclass(frozen=True)
class ChosenModel:
    """The model of a request."""

    model: ServedModel
    confidence: float
    """Per cent, of the source language; 0 if it was not detected."""


class Models:
    """All models of a server.

    Args:
        models: At least one, each with another pair of languages.

    Raises:
        UsageError: Two models translate the same pair.
    """

    def __init__(self, models: Sequence[ServedModel]):
        self.models = list(models)
        self.pairs = [(model.src, target) for model in models for target in model.targets]
        for pair in self.pairs:
            if self.pairs.count(pair) > 1:
                raise UsageError(f"two models translate {' → '.join(pair)}; give one for each pair of languages")
        self._identifier: LanguageIdentifier | None = None

    @property
    def codes(self) -> list[str]:
        """The codes of all languages, those of the sources first."""
        return list(dict.fromkeys([src for src, _ in self.pairs] + [tgt for _, tgt in self.pairs]))

    def targets_by_source(self) -> dict[str, list[str]]:
        """Return the target languages of each source language."""
        found: dict[str, list[str]] = {}
        for src, tgt in self.pairs:
            found.setdefault(src, []).append(tgt)
        return found

    def identify(self, text: str) -> list[IdentifiedLanguage]:
        """Return the languages of the server that a text may be in, the most probable first."""
        if self._identifier is None:  # takes half a second, which only requests of this kind need
            self._identifier = LanguageIdentifier(self.codes)
        return self._identifier.identify(text)

    def resolve(self, source: str, target: str) -> tuple[str, str]:
        """Return the codes of this server for the source and target of a request.

        Clients also send `EN`, `pt-br` for `pt_BR`, and `en-US` where this server has only `en`. Codes that match none
        are returned as they are.
        """
        return _matching(source, [src for src, _ in self.pairs]), _matching(target, [tgt for _, tgt in self.pairs])

    def is_same_language(self, source: str, target: str) -> bool:
        """Return True if source and target of a request are one language of this server, into which no model translates
        it.
        """
        src, tgt = (_matching(code, self.codes) for code in (source, target))
        return src == tgt and src in self.codes and (src, tgt) not in self.pairs

    def candidates(self, source: str, target: str) -> list[ServedModel]:
        """Return the models that a request may use, for one or several source languages.

        Those with this code of the target language come before those with another one, such as `fra` for `fr`.

        Args:
            source: Source language, see `resolve`, or `auto`.
            target: Target language, see `resolve`; may be empty where the source language has only one.

        Raises:
            HTTPException: 400: there is none, or a target language must be chosen.
        """
        found = [model for model in self.models if source in (model.src, "auto") and model.has_target(target)]
        if not found:
            pairs = ", ".join(f"{src} → {', '.join(targets)}" for src, targets in self.targets_by_source().items())
            raise HTTPException(400, f"no model for {source} → {target}; there is one for {pairs}")
        if not target:
            targets = [tgt for model in found for tgt in model.targets]
            if len(set(targets)) > 1:
                subject = "this model has" if len(found) == 1 else "there are"
                choices = ", ".join(dict.fromkeys(targets))
                raise HTTPException(400, f"target: {subject} several target languages; choose from {choices}")
        return sorted(found, key=lambda model: target not in model.targets)

    def choose(self, source: str, target: str, texts: Iterable[str]) -> ChosenModel:
        """Return the model of a request, by the language of its texts if the source is `auto`.

        Raises:
            HTTPException: See `candidates`.
        """
        candidates = self.candidates(source, target)
        if source != "auto":
            return ChosenModel(candidates[0], 0.0)
        guesses = {guess.language: guess.probability for guess in self.identify("\n".join(texts))}
        best = max(candidates, key=lambda model: guesses.get(model.src, 0.0))
        return ChosenModel(best, percent(guesses.get(best.src, 0.0)))


def _matching(code: str, known: Sequence[str]) -> str:
    """Return the known language code that a code stands for, or the code itself; see `Models.resolve`."""
    if code in known:
        return code
    normalized = _normalized(code)
    without_region, _, last = normalized.rpartition("_")
    wanted = [normalized, without_region] if _REGION.fullmatch(last) else [normalized]
    found = {_normalized(each): each for each in known}
    return next((found[each] for each in wanted if each in found), code)


def _normalized(code: str) -> str:
    return code.replace("-", "_").casefold()


def percent(probability: float) -> float:
    """Return a probability in per cent, as LibreTranslate writes a confidence."""
    return round(100 * probability, 1)
