"""The models of a server, and which of them a request uses."""

import logging
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
from mtcli.translate.loading import LoadedModel
from mtcli.translate.pivot import PivotTranslator
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

if TYPE_CHECKING:  # servers without a memory do not load its readers
    from mtcli.serve.corrections import CorrectionsFile
    from mtcli.translate.memory import Memory

log = logging.getLogger(__name__)

_REGION = re.compile("[a-z]{2}|[0-9]{3}")


@dataclass
class ServedModel:
    """A source language of a model, and the queue of the lines that wait for it.

    A target language has a code in `targets`. A request may name it by another code, such as `fr` for `fra`, or not at
    all if there is only one: `own_target` returns the code in `targets`, by which memories and corrections are found,
    and `target_of` the code as the request has it, with which files and options are written.
    """

    translator: Translator
    """Used by one thread at a time."""
    options: Options
    """Search options; each request sets `n_best`, `alignments` and `to`."""
    src: str
    """Code of the source language."""
    targets: tuple[str, ...]
    """Codes of the target languages, at least one. A model of several has a tag for each, see `is_multilingual`."""
    page: PageData | None = None
    """What the page shows of it; None: the languages only."""
    partner: "ServedModel | None" = None
    """The same model with another source language, whose queue this one uses."""
    memories: "dict[str, Memory]" = field(default_factory=dict)
    """What is translated in place of the model, by target language."""
    corrections: "dict[str, CorrectionsFile]" = field(default_factory=dict)
    """Where corrections go, by target language; empty: they are refused."""
    locks: frozenset[Lock] = field(default_factory=lambda: frozenset({Lock()}))
    """Held while the model translates: its own, or those of the two models of a translation through a third language,
    because each queue has a thread."""
    batcher: Batcher = field(init=False)

    @classmethod
    def all_of(cls, loaded: LoadedModel, show: Callable[[str, tuple[str, ...]], PageData]) -> "list[ServedModel]":
        """Return a model once for each of its source languages.

        Args:
            loaded: The model.
            show: Returns what the page shows of a source language and its target languages.
        """
        translator = loaded.translator
        info = translator.backend.info
        tags = translator.tokenizer.tags
        targets: dict[str, list[str]] = {}
        for src, tgt in info.trained_directions:
            targets.setdefault(src, []).append(tgt)
        found: list[ServedModel] = []
        for src, of_source in targets.items():
            own = tuple(sorted(tags) if tags and not info.directions else of_source)
            model = cls(translator, loaded.options, src, own, show(src, own))
            if found:
                model.partner = found[0]
                model.locks = found[0].locks
            found.append(model)
        return found

    @property
    def is_multilingual(self) -> bool:
        """The model has tags, one of which each search needs, see `Options.to`."""
        return bool(self.translator.target_tokenizer.tags)

    @property
    def shown(self) -> PageData:
        """What the page shows of it."""
        page = self.page or PageData(self.src, self.targets)
        return replace(page, corrects=bool(self.corrections))

    def start(self, max_waiting: int) -> None:
        """Start the thread that translates."""
        if self.partner:
            self.batcher = self.partner.batcher
        else:
            self.batcher = Batcher(self.translator, max_waiting, sorted(self.locks, key=id))

    def own_target(self, target: str) -> str:
        """Return which of `targets` a request means, such as `fra` by `fr`; empty: none. An empty code is the first."""
        if target in self.targets or not target:
            return self.target_of(target)
        tokenizer = self.translator.target_tokenizer
        if not tokenizer.has_tag(target):
            return ""
        tag = tokenizer.tag_of(target)
        return next((own for own in self.targets if tokenizer.tag_of(own) == tag), "")

    def target_of(self, target: str) -> str:
        """Return the code of the target language of a request; if it names none, the only one, see `candidates`."""
        return target or self.targets[0]

    def memory_to(self, target: str) -> "Memory | None":
        """Return the memory of a request; None: there is none."""
        return self.memories.get(self.own_target(target))

    def options_to(self, target: str, *, alignments: bool = False, terms: Terms | None = None) -> Options:
        """Return the search options of a request.

        Raises:
            UsageError: The model cannot use terms.
        """
        to = self.target_of(target) if self.is_multilingual else ""
        options = replace(self.options, alignments=alignments, to=to)
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
        targets = tuple(tgt for tgt in second.targets if tgt not in (src, pivot) and (src, tgt) not in known)
        if first is second or not first.own_target(pivot) or not targets:
            continue
        known.update((src, tgt) for tgt in targets)
        log.info("%s → %s: through %s", src, ", ".join(targets), pivot)
        translator = PivotTranslator(first.translator, first.options_to(pivot), second.translator)
        names = " and ".join(dict.fromkeys(model.shown.name for model in (first, second)))
        page = PageData(src, targets, names, f"through {pivot}")
        locks = first.locks | second.locks
        found.append(ServedModel(translator, second.options, src, targets, page, locks=locks))
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
        found = [model for model in self.models if source in (model.src, "auto") and model.own_target(target)]
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
