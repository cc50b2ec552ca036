"""What a user asks `mtcli translate` for: its checks before a model is loaded, and the work."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from mtcli.documents.formats import registry
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.lines import BySentence
from mtcli.documents.pipeline import translate_file
from mtcli.errors import UsageError
from mtcli.runtime import torchrun
from mtcli.runtime.files import check_readable
from mtcli.runtime.outputs import check_outputs, is_special, open_output
from mtcli.runtime.progress import on_terminal
from mtcli.runtime.wording import counted
from mtcli.terms.report import ENDINGS, TermsReport, open_report
from mtcli.terms.terms import Terms, read_terms
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts
from mtcli.translate.loading import LoadedModel, load, load_reranker
from mtcli.translate.pivot import PivotTranslator, meeting_directions
from mtcli.translate.streams import arguments, formatted, input_lines, report_counts, typed_lines
from mtcli.translate.translation import Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

if TYPE_CHECKING:  # most commands have no memory, and do not load its readers
    from mtcli.translate.memory import Memory, MemoryUse

log = logging.getLogger(__name__)

GC_THRESHOLD = 100_000
"""New objects after which Python looks for cycles, instead of 700. The objects of a window live until it is translated
and form no cycles. Looking for them took a tenth of the time of mtcli's own work."""

SEARCH = (
    "to", "beam_size", "length_penalty", "n_best", "max_length", "prefix", "no_repeat_ngram", "sample", "alignments",
    "temperature", "top_k", "seed",
)  # fmt: skip
"""The fields of a request that are `Options` of the search."""

Note = Callable[[str], None]
"""Prints a line for people on standard error."""


@dataclass(frozen=True)
class TextRequest:
    """What to translate, with which models, and how. A field has the name of its option."""

    models: tuple[Path, ...]
    """The model, or several that are combined."""
    texts: tuple[str, ...] = ()
    """Sentences given as arguments."""
    input: str | None = None
    """A document, or lines of text; `-` or None: standard input."""
    paragraphs: bool = False
    """Plain text has paragraphs."""
    as_is: bool = False
    """Each line is given to the model as it is."""
    column: tuple[str, ...] = ()
    """The columns of a table to translate."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD."""
    rerank: Path | None = None
    """A model of the reverse direction that reranks the hypotheses."""
    rerank_weight: float | None = None
    pivot: Path | None = None
    """A model that translates the translations of `models` further."""
    to: str | None = None
    beam_size: int | None = None
    length_penalty: float | None = None
    n_best: int = 1
    max_length: int | None = None
    no_repeat_ngram: int | None = None
    prefix: str = ""
    terms: Path | None = None
    terms_mode: str | None = None
    """See `Translator.with_terms`."""
    memory: tuple[Path, ...] = ()
    """Files of a translation memory."""
    memory_match: int | None = None
    """The least similarity of a near match in per cent; None: `memory.NEAR`."""
    sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    seed: int | None = None
    output: str = "-"
    """The file to write; `-` is standard output."""
    format: str = "text"
    """See `streams.formatted`."""
    scores: bool = False
    """Begin lines of text with the score."""
    alignments: bool = False
    terms_report: Path | None = None
    engine: str = "auto"
    device: str = "auto"

    @cached_property
    def is_document(self) -> bool:
        """The input is translated as a document, not line by line.

        Raises:
            UsageError: The type of the file is unknown, or does not suit `paragraphs` or `column`.
        """
        name = "-" if self.texts else self.input or "-"
        return registry.is_document(name, paragraphs=self.paragraphs, columns=bool(self.column))

    @cached_property
    def known_terms(self) -> Terms | None:
        """The terms.

        Raises:
            DataError: The file cannot be read or is malformed.
        """
        return None if self.terms is None else read_terms(self.terms)

    @property
    def search(self) -> dict[str, Any]:
        """The options of the search, see `Options.with_given`."""
        return {name: getattr(self, name) for name in SEARCH}

    def is_set(self, name: str) -> bool:
        """Return True if the user gave this option."""
        return bool(getattr(self, name) != getattr(TextRequest, name))


def check(request: TextRequest) -> None:
    """Check a request before a model is loaded.

    Raises:
        UsageError: Two inputs, options that cannot be combined, an output that would overwrite something, or a type of
            file or of output that is not supported.
        DataError: A file cannot be read, or is malformed.
        StorageError: An output cannot be written.
    """
    _check_files(request)
    _check_combinations(request)
    if request.terms is not None:
        _check_terms(request)
    if request.memory:
        from mtcli.translate.memory import check_memory_file

        check_readable(*request.memory)
        check_outputs([request.output], request.memory)
        for path in request.memory:
            check_memory_file(path)


def _check_files(request: TextRequest) -> None:
    """Check input and output.

    Raises:
        UsageError: Two inputs, an output that would overwrite something or that is named as if it were compressed or of
            another type, a file of unknown type, or something that several ranks cannot read or write.
        DataError: The input cannot be read.
        StorageError: The output cannot be written.
    """
    output = request.output
    name = request.input or "-"
    has_ranks = torchrun.size() > 1
    if request.texts and request.input:
        raise UsageError(f"give either sentences or --input {request.input}, not both")
    if has_ranks and "-" in (name, output):
        raise UsageError("several ranks translate files, not standard input or output; give --input FILE --output FILE")
    if has_ranks and is_special(Path(output)):
        raise UsageError(f"--output {output}: several ranks write a regular file; give another")
    if output.lower().endswith(".gz"):
        example = registry.free_name(PurePath(output).with_suffix(""), name)
        raise UsageError(f"--output {output}: translations are not compressed; name it {example}")
    models = [*request.models, *(model for model in (request.rerank, request.pivot) if model is not None)]
    check_outputs([output], [] if request.texts else [name], models=models)
    check_readable(request.input)
    if request.is_document and has_ranks:
        raise UsageError("several ranks translate lines of text, not documents; start one process")
    if request.is_document:
        registry.check_output_name(name, output)


def _check_combinations(request: TextRequest) -> None:
    """Refuse options that contradict each other or have no effect together.

    Raises:
        UsageError: There are such options.
    """
    is_sampled = request.sample
    for_lines = ("scores", "alignments", "format", "n_best", "prefix", "replace", "as_is")
    only_text = "only with --format text; the other formats always contain the scores"
    only_json = "only with --format json, which shows near matches"
    refusals: tuple[tuple[bool, tuple[str, ...], str], ...] = (
        (is_sampled, ("beam_size", "length_penalty", "rerank"), "not with --sample"),
        (not is_sampled, ("temperature", "top_k", "seed"), "only with --sample"),
        (request.rerank is None, ("rerank_weight",), "only with --rerank"),
        (request.format != "text", ("scores",), only_text),
        (request.pivot is not None, ("sample", "terms", "rerank", "prefix"), "not with --pivot"),
        (request.is_document, for_lines, "not supported for documents or with --paragraphs"),
        (request.terms is None, ("terms_mode", "terms_report"), "only with --terms"),
        (request.terms is not None, ("rerank",), "not with --terms"),
        (bool(request.memory), ("as_is", "prefix", "sample"), "not with --memory"),
        (not request.memory, ("memory_match",), "only with --memory"),
        (request.format != "json", ("memory_match",), only_json),
    )
    for applies, names, reason in refusals:
        for name in names:
            if applies and request.is_set(name):
                raise UsageError(f"--{name.replace('_', '-')}: {reason}")
    is_ranked = request.n_best > 1 or request.terms is not None  # required terms are searched with a wider beam
    has_one = request.beam_size == 1 and not is_ranked and request.format == "text" and not request.scores
    if request.length_penalty is not None and has_one:
        log.warning("--length-penalty: has no effect on the single hypothesis of --beam-size 1")


def _check_terms(request: TextRequest) -> None:
    """Read the terms, and check their report.

    Raises:
        UsageError: The report would overwrite something or has an unknown ending, or several ranks would write it.
        DataError: The file of terms cannot be read or is malformed.
        StorageError: The report cannot be written.
    """
    report = request.terms_report
    check_readable(request.terms)
    check_outputs([request.output, report], [request.input, request.terms, *request.memory], models=request.models)
    if report is not None and report.suffix.lower() not in ENDINGS:
        raise UsageError(f"--terms-report {report}: write a {' or '.join(ENDINGS)} file")
    if report is not None and torchrun.size() > 1:
        raise UsageError("--terms-report: not with several ranks; --format json lists the terms of each line")
    _ = request.known_terms


def translate(request: TextRequest, note: Note) -> None:
    """Translate what a request asks for, and write it.

    Args:
        request: The request, which is checked.
        note: Prints what the user should know.

    Raises:
        ModelError: There is no usable model.
        UsageError: An option does not fit the models, or a package is missing.
        DataError: The input, the terms or the memory cannot be read.
        StorageError: An output cannot be written.
        NotFiniteError: See `Translator.translate`.
    """
    # The engine of a run is proven for the best hypothesis, and reranking needs all of them.
    engine = None if request.rerank and request.engine == "auto" else request.engine
    loaded = load(request.models, request.device, engine, request.search)
    if request.rerank:
        loaded.translator.rerank = load_reranker(request.rerank, request.rerank_weight, request.device, loaded)
    if request.to and request.pivot is None:
        loaded.translator.backend.check_target(request.to)
    translator: Translator = loaded.translator
    options = loaded.options
    src, tgt = loaded.languages
    if request.pivot is not None:
        translator, options, (src, tgt) = _through(request.pivot, loaded, request, note)
    _warn_of_files(request.texts)
    has_scores = request.scores or request.format != "text" or request.n_best > 1
    options = replace(options, scores=has_scores, repair=not request.as_is)
    if request.known_terms is not None:
        options = translator.with_terms(options, request.known_terms, request.terms_mode or "auto")
    memory = used = None
    if request.memory:
        from mtcli.translate.memory import MemoryUse

        used = MemoryUse()
        memory = _read_memory(request, src, request.to or tgt, note)
    with open_report(request.terms_report) as report:
        if request.is_document:
            read_options = ReadOptions(request.input or "", src, request.to or tgt, request.column)
            _translate_document(request, translator, options, read_options, memory, report, used)
        else:
            if not request.as_is:
                translator = BySentence(translator, src, tgt, memory)
            translate_lines(request, translator, options, report, used)
    if options.terms and torchrun.size() == 1:
        note(report.summary())
    if memory is not None and used is not None and torchrun.size() == 1:
        note(used.summary(shows_near=memory.has_near))


def _through(
    pivot: Path, first: LoadedModel, request: TextRequest, note: Note
) -> tuple[Translator, Options, Direction]:
    """Load the model that translates the result of the first one further.

    Raises:
        ModelError: The folder has no usable model.
        UsageError: It does not translate from the language into which the first one does, or not into that of `--to`.
    """
    translator, options, _ = load([pivot], request.device, request.engine, request.search)
    before, after = meeting_directions(first.translator.backend, translator.backend, options.to)
    to = before.tgt if first.translator.tokenizer.tags else ""
    note(f"{before.src} → {after.tgt} through {after.src}")
    first_options = replace(first.options, to=to, n_best=1)
    return PivotTranslator(first.translator, first_options, translator), options, before._replace(tgt=after.tgt)


def _warn_of_files(texts: Sequence[str]) -> None:
    """Warn about sentences that are also names of files, which are probably meant."""
    for name in texts:
        if os.path.isfile(name):  # noqa: PTH113 - a sentence may be too long for a path
            log.warning(
                "%s: translated as a sentence, though there is a file of that name; -i %s translates the file",
                name,
                name,
            )


def _read_memory(request: TextRequest, src: str, tgt: str, note: Note) -> "Memory":
    """Read the translation memory. Near matches are searched for if the output has them.

    Raises:
        DataError: A file cannot be read, or is for other languages.
    """
    from mtcli.translate.memory import NEAR, read_memory

    notices: list[str] = []
    near = 1.0
    if request.format == "json":
        near = NEAR if request.memory_match is None else request.memory_match / 100
    memory = read_memory(request.memory, src, tgt, near=near, notices=notices)
    if torchrun.size() == 1:
        for notice in [*notices, f"memory: {counted(len(memory), 'entry', 'entries')}"]:
            note(notice)
    return memory


def _translate_document(
    request: TextRequest,
    translator: Translator,
    options: Options,
    read_options: ReadOptions,
    memory: "Memory | None",
    report: TermsReport,
    used: "MemoryUse | None",
) -> None:
    """Translate a document, and count its terms and what the memory has for it."""
    segments = translate_file(request.texts, request.input, request.output, translator, options, read_options, memory)
    for segment in segments:
        if options.terms:
            for source, translation in segment.texts():
                report.add_sentence(source, translation, options.terms)
        if used is not None:
            used.add(segment.matches)


def translate_lines(
    request: TextRequest, translator: Translator, options: Options, report: TermsReport, used: "MemoryUse | None"
) -> None:
    """Translate arguments, a file, standard input, or the lines typed at a terminal.

    Each translation is written as soon as it is known.

    Args:
        request: The input and the output.
        translator: The model.
        options: Options of the search.
        report: Counts the terms.
        used: Counts what the memory has; None: there is no memory.
    """
    gc.set_threshold(GC_THRESHOLD)
    output = request.output
    render = partial(
        formatted,
        format_=request.format,
        scores=request.scores,
        alignments=request.alignments,
        draws=request.sample,
        reranked=request.rerank is not None,
    )
    if torchrun.size() > 1:
        from mtcli.translate import sharding  # which imports PyTorch

        source = str(request.input)
        sharding.translate_file(translator, source, Path(output), options, render, replace=request.replace)
        return
    quiet = output == "-" and on_terminal(sys.stdout)  # a progress bar would mix with the translations
    counts = Counts()
    found: Iterator[Translation]
    if request.texts:
        texts = arguments(request.texts)
        found = translator.translate(texts, options, Reading(total=len(texts), quiet=quiet, growing=True))
    elif request.input is None and on_terminal(sys.stdin):
        typed = (translator.translate([line], options, Reading(quiet=True)) for line in typed_lines())
        found = chain.from_iterable(typed)
    else:
        lines, ready = input_lines(request.input or "-", replace=request.replace, counts=counts)
        found = translator.translate(lines, options, Reading(ready=ready, quiet=quiet, growing=True))
    with open_output(output) as stream:
        for number, translation in enumerate(found):
            report.add(translation.terms)
            if used is not None:
                used.add(translation.memory)
            stream.write("".join(f"{line}\n" for line in render(translation, number)))
            stream.flush()
        report_counts(counts)
