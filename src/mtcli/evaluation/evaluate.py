"""Evaluate a model on its own pairs or on files, or finished translations: the work of `mtcli eval`."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mtcli.config.scores import DEFAULT, advice, bleu_tokenizer, tokenizer_of
from mtcli.config.toml_file import load as load_config
from mtcli.corpus import demo
from mtcli.corpus.cache.encoded_pairs import CHUNK_ROWS, EncodedPairs
from mtcli.corpus.held_out import HELD_OUT_SPLITS, read_directions
from mtcli.corpus.overlap import warn_of_training_sources
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError, UsageError
from mtcli.evaluation import metrics, robustness
from mtcli.evaluation.comparison import Comparison, compare
from mtcli.evaluation.metrics import LengthBucket, Metric, Score, formatted
from mtcli.evaluation.remarks import remarks, too_few_pairs
from mtcli.evaluation.robustness import Robustness
from mtcli.runtime.wording import counted
from mtcli.storage.model_folder import run_of
from mtcli.storage.translation_info import TranslationInfo
from mtcli.terms.report import TermsScore
from mtcli.terms.terms import Terms, read_terms
from mtcli.text.language_identifier import learned_from
from mtcli.text.languages import Direction, base, same
from mtcli.text.lines import Counts, Pair
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.writing_systems import unspaced
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.exported import parse_provenance, provenance
from mtcli.translate.loading import load, load_reranker
from mtcli.translate.streams import lines_of, report_counts
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

MAX_TRAINING_PAIRS = 100_000
"""Training pairs from which the translations of single words are learned, about."""

AS_TRANSLATE = "translated as by mtcli translate"
"""Follows the scores of such translations: sacrebleu's signature does not say how they were made."""

Wrap = Callable[[Translator, str, str], Translator]


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, against what, and how."""

    models: tuple[Path, ...]
    """The model to evaluate, or several that are combined. With `hyp_file`, it only decides the default of
    `tokenize`."""
    model_is_named: bool
    """The user named the model."""
    split: str = "test"
    """The pairs of the run, `test` or `valid`, that are used without files."""
    pairs: str | None = None
    """Pairs in any form that `--train` takes, used instead of those of the run."""
    src_file: str | None = None
    ref_files: tuple[str, ...] = ()
    hyp_file: str | None = None
    """Finished translations; no model is used."""
    other_model: Path | None = None
    """A model to compare with."""
    other_file: str | None = None
    """A file of translations to compare with."""
    to: str = ""
    """Target language of a multilingual model; empty: the one whose tag a line begins with.

    Of two models, one may be multilingual; the other ignores it.
    """
    metrics: tuple[Metric, ...] = ("bleu",)
    tokenize: str | None = None
    """sacrebleu's tokenizer for BLEU; None: by target language."""
    lowercase: bool = False
    confidence: bool = False
    by_length: bool = False
    beam_size: int | None = None
    length_penalty: float | None = None
    no_repeat_ngram: int | None = None
    rerank: Path | None = None
    """A model of the reverse direction that reranks the hypotheses of `models`."""
    rerank_weight: float | None = None
    terms: Path | None = None
    """Terms that models use, and whose use is counted."""
    terms_mode: str = "auto"
    """See `Translator.with_terms`."""
    engine: str | None = None
    device: str = "auto"
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD."""
    wrap: Wrap | None = None
    """Returns the translator of `mtcli translate`, given that of the models and the two languages: the translations
    are then those that this command writes. None: each line is given to the models as it is."""

    @property
    def model(self) -> Path:
        """The model to evaluate, or the first of several, whose pairs are used."""
        return self.models[0]

    @property
    def has_own_pairs(self) -> bool:
        """The pairs are those of the run."""
        return not (self.pairs or self.src_file or self.ref_files or self.hyp_file)

    @property
    def is_comparison(self) -> bool:
        """There is another system to compare with."""
        return self.other_model is not None or self.other_file is not None

    @property
    def is_of_the_run(self) -> bool:
        """A run is scored on its own test pairs by BLEU and chrF, with its own search, as its report shows them."""
        usual = EvaluationRequest(
            self.models, self.model_is_named, metrics=("bleu", "chrf"), engine=self.engine, device=self.device
        )
        return self == usual and len(self.models) == 1 and (self.model / "metrics.jsonl").exists()


@dataclass(frozen=True)
class DirectionEvaluation:
    """The scores of one system in one direction, and the comparison with another system."""

    direction: Direction | None
    """None: the pairs are not those of the run."""
    pairs: int
    """Number of translations that were scored."""
    scores: list[Score]
    """The scores; empty in the comparison of one direction, which has those of both systems."""
    comparison: Comparison | None
    buckets: list[list[LengthBucket]]
    """BLEU by length of the source for each system; empty unless it was requested."""
    sources: list[str] | None
    """The source sentences, if they are known."""
    terms: list[TermsScore]
    """The terms that each system uses; empty unless there are terms."""
    other_language: float | None
    """Share of the translations in another language of the run; None: not measured."""

    def to_text(self) -> str:
        """Return each score and its signature, one per line."""
        text = self.comparison.to_text() if self.comparison else metrics.to_text(self.scores)
        names = ("A: ", "B: ") if self.comparison else ("",)
        return "\n".join([text, *(f"{name}{score}" for name, score in zip(names, self.terms, strict=False))])

    def to_json(self) -> str:
        """Return the scores as sacrebleu's JSON, or the comparison as an object."""
        if self.comparison:
            return self.comparison.to_json(terms=[score.to_dict() for score in self.terms])
        return metrics.to_json(self.scores, [score.to_dict() for score in self.terms])


@dataclass(frozen=True)
class Evaluation:
    """The scores of one system, or the comparison of two, in one direction or several."""

    directions: list[DirectionEvaluation]
    as_translate: bool = False
    """The models translated as `mtcli translate` does, see `EvaluationRequest.wrap`."""

    @property
    def means(self) -> list[float]:
        """The mean of each metric over the directions."""
        by_metric = zip(*([score.value for score in each.scores] for each in self.directions), strict=True)
        return [sum(values) / len(values) for values in by_metric]

    @property
    def mean_other_language(self) -> float | None:
        """The mean share of translations in another language; None: not measured."""
        shares = [each.other_language for each in self.directions if each.other_language is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def mean_differences(self) -> dict[str, float]:
        """The mean of the differences from the other model over the directions, by metric; empty without one."""
        differences: dict[str, list[float]] = {}
        for each in self.directions:
            for one in each.comparison.differences if each.comparison else ():
                differences.setdefault(one.name, []).append(one.b.score - one.a.score)
        return {name: sum(values) / len(values) for name, values in differences.items()}

    def _comparisons_to_text(self) -> str:
        """Return the comparison of each direction, and the mean differences."""
        parts = []
        for each in self.directions:
            if each.comparison is not None:
                parts += [f"{each.direction}, {counted(each.pairs, 'pair')}", each.comparison.to_text(), ""]
        means = ", ".join(f"{name} {mean:+.1f}" for name, mean in self.mean_differences.items())
        return "\n".join([*parts, f"mean of {len(self.directions)} directions, B against A: {means}"])

    def to_text(self) -> str:
        """Return the scores of one direction, or a table with a line for each and the means; or the comparisons."""
        text = self._scores_to_text()
        return f"{text}\n{AS_TRANSLATE}" if self.as_translate else text

    def _scores_to_text(self) -> str:
        if len(self.directions) == 1:
            return self.directions[0].to_text()
        if self.mean_differences:
            return self._comparisons_to_text()
        names = [score.name for score in self.directions[0].scores]
        rows = [["direction", "pairs", *names]]
        for each in self.directions:
            values = [formatted(score.value, score.confidence) for score in each.scores]
            rows.append([str(each.direction), f"{each.pairs:,}", *values])
        total = sum(each.pairs for each in self.directions)
        rows.append(["mean", f"{total:,}", *(formatted(mean, None) for mean in self.means)])
        if self.mean_other_language is not None:
            shares = [*(each.other_language for each in self.directions), self.mean_other_language]
            rows[0].append("other language")
            for row, share in zip(rows[1:], shares, strict=True):
                row.append("" if share is None else f"{100 * share:.1f}%")
        signatures = (f"{score.name}: {score.signature}" for each in self.directions for score in each.scores)
        return "\n".join([*_aligned(rows), *dict.fromkeys(signatures)])

    def to_json(self) -> str:
        """Return the JSON of one direction, or an object with the list `directions` and the object `mean`.

        If the models translated as `mtcli translate` does, each object has the key `as_translate`.
        """
        text = self._scores_to_json()
        if not self.as_translate:
            return text
        found = json.loads(text)
        for each in found if isinstance(found, list) else [found]:
            each["as_translate"] = True
        return json.dumps(found, indent=1, ensure_ascii=False)

    def _scores_to_json(self) -> str:
        if len(self.directions) == 1:
            return self.directions[0].to_json()
        directions = [
            {
                **(each.direction._asdict() if each.direction else {}),
                "pairs": each.pairs,
                "scores": [json.loads(score.json) for score in each.scores],
                "other_language": each.other_language,
                **({} if each.comparison is None else asdict(each.comparison)),
            }
            for each in self.directions
        ]
        if self.mean_differences:
            return json.dumps({"directions": directions, "mean": self.mean_differences}, indent=1, ensure_ascii=False)
        names = [score.name for score in self.directions[0].scores]
        mean = {**dict(zip(names, self.means, strict=True)), "other_language": self.mean_other_language}
        return json.dumps({"directions": directions, "mean": mean}, indent=1, ensure_ascii=False)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


@dataclass(frozen=True)
class _System:
    """A loaded model that translates."""

    backend: Backend
    translate: Callable[[str, list[str]], list[str]]
    """Returns the translations of sources, given `_Texts.to`."""
    src: str
    """Source language."""
    tgt: str
    """Target language. For a multilingual model, that of the request, if it names one."""
    to: str
    """The language of the tag that lines get which begin with none; empty: they stay without."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.backend.tokenizer

    def tagged(self, sources: Sequence[str], to: str) -> list[str]:
        """Return sources as the model takes them.

        Args:
            sources: The sources.
            to: See `_Texts.to`.
        """
        language = to or self.to
        return [self.tokenizer.with_tag(source, language) for source in sources] if language else [*sources]


@dataclass(frozen=True)
class _Texts:
    """What is translated and scored in one direction."""

    direction: Direction | None
    """See `DirectionEvaluation`."""
    sources: list[str] | None
    """None: there are none, because no model translates."""
    references: list[list[str]]
    to: str = ""
    """The target language, if the pairs are of one of several directions."""


def evaluate(request: EvaluationRequest) -> Evaluation:
    """Translate if needed, and score.

    Raises:
        UsageError: An unknown target language, a tokenizer that cannot be used, a comparison of runs with different
            test pairs, or an option that is for one direction, and the run has several.
        DataError: A file cannot be read, or files have different numbers of lines.
        ModelError: There is no usable model.
    """
    own = own_directions(request)
    if len(own) > 1:
        _check_options_for_several(request, own)
    terms = read_terms(request.terms) if request.terms else None
    to = own[0].tgt if len(own) == 1 else ""
    translator = None if request.hyp_file else _load(request.models, request, request.rerank, terms=terms, to=to)
    other_translator = _load([request.other_model], request, terms=terms, to=to) if request.other_model else None
    if len(own) > 1 and request.other_model and other_translator:
        _check_directions(request.other_model, other_translator, own)
    _check_target(request.to, translator, other_translator)
    counts = Counts()
    texts = _texts(request, translator, counts)
    finished = _finished(request.hyp_file, request, texts[0].references, counts)
    other_finished = _finished(request.other_file, request, texts[0].references, counts)
    report_counts(counts)
    identifier = None
    if len(texts) > 1:
        run = run_of(request.model)
        identifier = learned_from(read_directions(run, name, empty_ok=True) for name in HELD_OUT_SPLITS)
    found = []
    for each in texts:
        sources = each.sources or []
        tokenize = request.tokenize
        if tokenize is None:
            tokenize = _default_tokenizer(request, translator, other_translator, each.to)
            metrics.check_tokenizer(tokenize)
        _warn_of_spaces(each.references[0], request.metrics, tokenize)
        _warn_of_training_pairs(request, each, translator, other_translator)
        hypotheses = translator.translate(each.to, sources) if translator else finished
        if tokenize != "none" and metrics.looks_tokenised(hypotheses):
            log.warning(
                "these translations look tokenized already: score raw text, or use --tokenize none; "
                "such a score is comparable only with scores of the same tokenized text"
            )
        systems = [hypotheses]
        if request.is_comparison:
            systems.append(other_translator.translate(each.to, sources) if other_translator else other_finished)
        scored = _score(request, systems, each, tokenize)
        if terms is not None:
            scored = replace(scored, terms=[TermsScore.of(terms, sources, system) for system in systems])
        if identifier is not None:
            scored = replace(scored, other_language=identifier.share_of_others(hypotheses, sources, each.to))
        found.append(scored)
    return Evaluation(found, as_translate=request.wrap is not None)


def _warn_of_training_pairs(
    request: EvaluationRequest, texts: _Texts, translator: _System | None, other: _System | None
) -> None:
    """Warn if a model was trained on some of the pairs."""
    for system, models in ((translator, request.models), (other, (request.other_model,))):
        for model in models:
            if model and system and texts.sources:
                warn_of_training_sources(model, run_of(model), system.tagged(texts.sources, texts.to))
    if request.rerank:
        reverse = request.rerank
        score = "the score with --rerank"
        warn_of_training_sources(reverse, run_of(reverse), texts.references[0], noun="reference", score=score)


def _directions_to_score(request: EvaluationRequest) -> list[Direction]:
    """Return the directions of the run's own pairs that a request is about; none if it names other pairs.

    Raises:
        UsageError: The run has no pairs of the target language.
        DataError: The run has no pairs.
    """
    if not request.has_own_pairs:
        return []
    known = list(read_directions(run_of(request.model), request.split))
    if not request.to or len(known) == 1:
        return known
    found = [direction for direction in known if direction.tgt == request.to]
    if not found:
        found = [direction for direction in known if base(direction.tgt) and base(direction.tgt) == base(request.to)]
    if not found:
        targets = ", ".join(sorted({direction.tgt for direction in known}))
        raise UsageError(f"--to {request.to}: choose from {targets}")
    return found


def own_directions(request: EvaluationRequest) -> list[Direction]:
    """Return the same as `_directions_to_score`, or none if the run has no pairs, which `evaluate` reports."""
    try:
        return _directions_to_score(request)
    except DataError:
        return []


def _check_options_for_several(request: EvaluationRequest, directions: Sequence[Direction]) -> None:
    """Check that no option is for one direction.

    Raises:
        UsageError: One is.
    """
    for name, is_set in {
        "--compare with a file": request.other_file is not None,
        "--by-length": request.by_length,
        "--terms": request.terms is not None,
        "--rerank": request.rerank is not None,
    }.items():
        if is_set:
            every = ", ".join(map(str, directions))
            raise UsageError(f"{name}: for one direction, and the run has {every}; choose one with --to")


def _check_directions(model: Path, system: _System, directions: Sequence[Direction]) -> None:
    """Check that a model translates into the languages of several directions.

    Raises:
        UsageError: It does not.
    """
    for direction in directions:
        known = system.tokenizer.has_tag(direction.tgt) if system.tokenizer.tags else same(direction.tgt, system.tgt)
        if not known:
            raise UsageError(f"--compare {model}: does not translate {direction}; choose a direction with --to")


def evaluate_robustness(request: EvaluationRequest) -> Robustness:
    """Translate and score the test pairs in the forms in which people type.

    Raises:
        UsageError: A model with several target languages and none of them chosen, or see `evaluate`.
        DataError: See `evaluate`.
        ModelError: There is no usable model.
    """
    own = own_directions(request)
    to = own[0].tgt if len(own) == 1 else ""
    translator = _load(request.models, request, request.rerank, warn=False, to=to)
    _check_target(request.to, translator)
    if translator.tokenizer.tags and not translator.to:
        raise UsageError("--robust: this model has several target languages; choose one with --to")
    counts = Counts()
    texts, *others = _texts(request, translator, counts)
    if others:
        every = ", ".join(str(each.direction) for each in (texts, *others))
        raise UsageError(f"the run has several directions ({every}); choose one with --to")
    sources = texts.sources or []
    references = texts.references[0]
    report_counts(counts)
    tokenize = _default_tokenizer(request, translator, None) if request.tokenize is None else request.tokenize
    metrics.check_tokenizer(tokenize)
    _warn_of_spaces(references, request.metrics, tokenize)
    for model in request.models:
        warn_of_training_sources(model, run_of(model), translator.tagged(sources, ""))
    pairs = list(zip(sources, references, strict=True))
    few = too_few_pairs(len(pairs))
    if few:
        log.warning("%s", few)
    languages = (translator.src, translator.tgt)
    found = robustness.variants(pairs, languages)
    options: dict[str, Any] = {"lowercase": request.lowercase, "tokenize": tokenize}
    known = robustness.known_words(_training_pairs(run_of(request.models[0]), translator.tokenizer))
    translate = partial(translator.translate, "")
    return robustness.measure(found, pairs, translate, metrics=request.metrics, known=known, **options)


def _training_pairs(run: Path, tokenizer: Tokenizer) -> Iterator[Pair]:
    """Yield about `MAX_TRAINING_PAIRS` training pairs of a run, at even distances; none if they are missing."""
    path = run / "data" / "train.arrow"
    if not path.is_file():
        return
    try:
        pairs = EncodedPairs(path)
    except DataError as error:
        log.warning("no single words are translated: %s", error)
        return
    step = max(1, len(pairs) // MAX_TRAINING_PAIRS)
    for start in range(0, len(pairs), step * CHUNK_ROWS):
        rows = [pairs[row] for row in range(start, min(len(pairs), start + step * CHUNK_ROWS), step)]
        src, tgt = ([side.tolist() for side in sides] for sides in zip(*rows, strict=True))
        yield from zip(tokenizer.decode_src(src), tokenizer.decode(tgt), strict=True)


def _score(request: EvaluationRequest, systems: list[list[str]], texts: _Texts, tokenize: str) -> DirectionEvaluation:
    """Score the translations of one system, and compare them with those of another one."""
    references = texts.references
    sources = texts.sources
    options: dict[str, Any] = {"lowercase": request.lowercase, "tokenize": tokenize}
    buckets = []
    if request.by_length:
        buckets = [metrics.by_source_length(sources or [], system, references, **options) for system in systems]
    ours, *others = systems
    comparison = None
    if others:
        comparison = compare(ours, others[0], references, sources, metrics=request.metrics, **options)
    scores = []
    if comparison is None or texts.to:  # the JSON of several directions has both
        scores = metrics.score(ours, references, metrics=request.metrics, confidence=request.confidence, **options)
    return DirectionEvaluation(
        texts.direction, len(ours), scores, comparison, buckets, sources, terms=[], other_language=None
    )


def warnings_about(evaluation: Evaluation) -> list[str]:
    """Return warnings: too few pairs, or a score that is too low to be useful or too high to be believed.

    The built-in demo is known to be easy, so its sentences get no warning about the score. Several directions get none.
    """
    one, *others = evaluation.directions
    if others:
        return []
    found = remarks(((score.name, score.value) for score in one.scores), one.pairs)
    if found and one.sources and _are_of_demo(one.sources):
        few = too_few_pairs(one.pairs)
        return [few] if few else []
    return found


def _load(
    models: Sequence[Path],
    request: EvaluationRequest,
    rerank: Path | None = None,
    *,
    terms: Terms | None = None,
    warn: bool = True,
    to: str = "",
) -> _System:
    """Load models that translate together, see `EvaluationRequest`.

    Args:
        models: The models.
        request: The options.
        rerank: See `EvaluationRequest.rerank`.
        terms: The terms of the request.
        warn: Warn about lines unlike those of training.
        to: The target language if the request names none.
    """
    given = {
        "beam_size": request.beam_size,
        "length_penalty": request.length_penalty,
        "no_repeat_ngram": request.no_repeat_ngram,
    }
    engine = request.engine
    if request.wrap and not rerank:
        engine = engine or "auto"
    loaded = load(models, request.device, engine, given)
    model, options, (src, tgt) = loaded
    tag = request.to or (to if model.tokenizer.has_tag(to) else "")
    if tag and model.tokenizer.tags:
        options = replace(options, to=tag)
        tgt = tag
    if rerank:
        reranked = loaded._replace(options=options)
        model.rerank = load_reranker(rerank, request.rerank_weight, request.device, reranked)
    if terms:
        options = model.with_terms(options, terms, request.terms_mode)
    translator: Translator = model
    if request.wrap:
        translator = request.wrap(model, src, tgt)
        options = replace(options, scores=False, repair=True)

    def translate(to: str, sources: list[str]) -> list[str]:
        chosen = replace(options, to=to) if translator.tokenizer.has_tag(to) else options
        # The windows of `mtcli translate`: near-ties may depend on the lines of a batch.
        reading = Reading(total=len(sources), warn=warn, growing=request.wrap is not None)
        return [found.text for found in translator.translate(sources, chosen, reading)]

    return _System(translator.backend, translate, src, tgt, options.to)


def _check_target(language: str, *translators: _System | None) -> None:
    """Check that every multilingual model has a target language, and that there is such a model.

    Raises:
        UsageError: A model has no such target language, or none is multilingual.
    """
    if not language:
        return
    backends = [translator.backend for translator in translators if translator]
    multilingual = [backend for backend in backends if backend.tokenizer.tags]
    for backend in multilingual or backends:
        backend.check_target(language)


def _texts(request: EvaluationRequest, translator: _System | None, counts: Counts) -> list[_Texts]:
    """Return the sources, if there are any, and the references of each direction. `counts` is updated by reading.

    Raises:
        UsageError: Another run has other pairs, or see `_directions_to_score`.
        DataError: They cannot be read, or there are none.
    """
    if request.pairs is not None and translator:
        return [_read_table(request.pairs, translator, request, counts)]
    if request.ref_files:
        return [_read_files(request, counts)]
    directions = _directions_to_score(request)
    split = read_directions(run_of(request.model), request.split)
    found = []
    for direction in directions:
        pairs = split[direction]
        if request.other_model is not None:
            _check_same_pairs(request.model, request.other_model, request.split, direction, pairs)
        to = direction.tgt if len(directions) > 1 else ""
        found.append(_Texts(direction, [src for src, _ in pairs], [[tgt for _, tgt in pairs]], to))
    return found


def _read_table(spec: str, translator: _System, request: EvaluationRequest, counts: Counts) -> _Texts:
    """Read pairs in any form that `--train` takes, in the languages of the model, and report what was skipped.

    Raises:
        DataError: They cannot be read, there are none, or pairs were skipped and a file of translations has a line for
            each of them.
    """
    pairs = list(read_pairs(spec, translator.src, translator.tgt, replace=request.replace, counts=counts))
    for reason, number in counts.skipped.items():
        log.warning("%s: skipped %s: %s", spec, counted(number, "pair"), reason)
    if not pairs:
        raise DataError(f"{spec}: no pairs")
    if counts.skipped and request.other_file:
        raise DataError(f"{spec}: has empty sides; remove these pairs, and their lines in {request.other_file}")
    return _Texts(None, [src for src, _ in pairs], [[tgt for _, tgt in pairs]])


def _read_files(request: EvaluationRequest, counts: Counts) -> _Texts:
    src_file = request.src_file
    ref_files = request.ref_files
    references = [list(lines_of(path, replace=request.replace, counts=counts)) for path in ref_files]
    sources = list(lines_of(src_file, replace=request.replace, counts=counts)) if src_file else None
    for name, lines in [(src_file, sources), *zip(ref_files, references, strict=True)]:
        if lines is not None:
            _check_length(str(name), lines, ref_files[0], references[0])
    return _Texts(None, sources, references)


def _check_length(name: str, lines: list[str], ref_name: str, reference: list[str]) -> None:
    """Check that a text has as many lines as a reference, before minutes of translation.

    Raises:
        DataError: It has not.
    """
    if len(lines) != len(reference):
        lengths = f"{name} has {counted(len(lines), 'line')}, {ref_name} {len(reference):,}"
        raise DataError(f"{lengths}; line n of one must belong to line n of the other")


def _check_same_pairs(model: Path, other: Path, split: str, direction: Direction, pairs: Sequence[Pair]) -> None:
    """Check that another run has the same test or validation pairs.

    Raises:
        UsageError: It has others. Each run may have been trained on test pairs of the other.
    """
    if _has_other_pairs(run_of(other), split, direction, pairs):
        raise UsageError(
            f"--compare {other}: its {split} pairs are not those of {model}, and it may be trained on some of these; "
            "give pairs that neither was trained on by --pairs, or by --src-file and --ref-file"
        )


def _has_other_pairs(run: Path, split: str, direction: Direction, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return True if a folder has test or validation pairs, as an export has not, and they are others."""
    if not (run / "data" / f"{split}.jsonl").exists():
        return False
    directions = read_directions(run, split, empty_ok=True)
    own = (
        directions.get(direction, []) if len(directions) > 1 else [pair for own in directions.values() for pair in own]
    )
    return sorted(own) != sorted(pairs)


def _finished(file: str | None, request: EvaluationRequest, references: list[list[str]], counts: Counts) -> list[str]:
    """Read finished translations; none without a file.

    Raises:
        DataError: The file cannot be read, or has another number of lines than the references.
    """
    if file is None:
        return []
    lines = list(lines_of(file, replace=request.replace, counts=counts))
    ref_name = request.ref_files[0] if request.ref_files else "the references"
    _check_length(file, lines, ref_name, references[0])
    return lines


def _are_of_demo(sources: list[str]) -> bool:
    """Return True if all sentences are held-out sentences of the built-in demo."""
    corpus = demo.load()
    held_out = {src for src, _ in (*corpus.valid, *corpus.test)}
    return all(source in held_out for source in sources)


def _default_tokenizer(
    request: EvaluationRequest, translator: _System | None, other: _System | None, language: str = ""
) -> str:
    """Return BLEU's tokenizer: that of the run or the model, otherwise that of the target language.

    Translations in a file have the language of the model that `--model` names, if it does, or of the other model.
    """
    config_file = run_of(request.model) / "config.toml"
    if (request.model_is_named or translator) and config_file.is_file():
        config = load_config(config_file)
        return tokenizer_of(config, language or request.to)
    system = translator or other
    if translator is None and request.model_is_named:
        info = _info_of(request.model)
        chosen, tgt = info.bleu_tokenizer, info.tgt
    elif system is not None:
        chosen, tgt = system.backend.info.bleu_tokenizer, system.tgt
    else:
        return DEFAULT
    return chosen or bleu_tokenizer(language or request.to or tgt)


def _info_of(model: Path) -> TranslationInfo:
    """Return what the file of a model or an exported folder says about it.

    Raises:
        ModelError: The folder has no usable model.
    """
    about = provenance(model)
    if about is not None:
        return parse_provenance(model, about).model
    from mtcli.storage.model_file import load_model  # imports PyTorch, which takes seconds

    _, info, _ = load_model(model)
    return info


def _warn_of_spaces(references: list[str], chosen: tuple[Metric, ...], tokenizer: str) -> None:
    """Warn if a score counts the words of a language that is written without spaces."""
    problem = advice(references, tokenizer) if "bleu" in chosen else None
    if problem:
        log.warning("the references are %s (--tokenize)", problem)
    if "ter" in chosen and unspaced(references):
        log.warning("the references are written without spaces, and TER counts words between spaces: use --chrf")
