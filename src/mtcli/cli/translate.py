"""`mtcli translate`, and the checks of what it reads and writes before a model is loaded."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace as with_changes
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.input_files import must_exist
from mtcli.cli.option_kinds import choice, decimal, flag, number, option, output_file, text_file_option
from mtcli.cli.options import (
    LATEST,
    NEAR_PERCENT,
    AutoEngineOption,
    BeamOption,
    DeviceOption,
    LengthPenaltyOption,
    MemoryMatchOption,
    MemoryOption,
    ModelsOption,
    NoRepeatNgramOption,
    PivotOption,
    ReplaceOption,
    RerankOption,
    RerankWeightOption,
    TermsModeOption,
    TermsOption,
    ToOption,
    TopKOption,
)
from mtcli.cli.process import note, note_latest
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtcli.terms.report import TermsReport
    from mtcli.terms.terms import Terms
    from mtcli.text.languages import Direction
    from mtcli.translate.loading import LoadedModel
    from mtcli.translate.memory import Memory, MemoryUse
    from mtcli.translate.translation import Options, Translation
    from mtcli.translate.translator import Translator

log = logging.getLogger(__name__)

EXAMPLES = (
    'mtcli translate "Hello World"',
    "mtcli translate -i in.txt -o out.txt --model runs/ende",
    "mtcli translate -i page.html -o page.de.html",
    "mtcli translate -i in.txt --n-best 5 --format json",
    "cat in.txt | mtcli translate --scores",
)

GC_THRESHOLD = 100_000
"""New objects after which Python looks for cycles, instead of 700. The objects of a window live until it is translated
and form no cycles. Looking for them took a tenth of the time of mtcli's own work."""

N_BEST_HELP = (
    "Number of different translations of each line. The first one does not depend on N. If the beam finds fewer, wider "
    "searches add to them; with --sample, up to 4 × N are drawn."
)


def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences to translate.", show_default="standard input"),
    ] = None,
    input_: Annotated[
        str | None,
        text_file_option(
            "-i",
            "--input",
            help="A document, or plain text with one sentence per line; - is standard input.",
            show_default="standard input",
        ),
    ] = None,
    paragraphs: Annotated[
        bool,
        flag(
            "--paragraphs",
            panel=panels.DATA,
            help="Plain text has paragraphs: split them into sentences, translate these, and join them again.",
        ),
    ] = False,
    as_is: Annotated[
        bool,
        flag(
            "--as-is",
            panel=panels.DATA,
            help="Give each line to the model as it is: do not split it into sentences, protect text in it, or replace "
            "translations that repeat themselves.",
        ),
    ] = False,
    column: Annotated[
        list[str] | None,
        option(
            "--column",
            panel=panels.DATA,
            metavar="NAME",
            help="A column of a .csv or .tsv file to translate, by its name or number; repeat it for several.",
            show_default="none",
        ),
    ] = None,
    replace: ReplaceOption = False,
    model: ModelsOption = None,
    rerank: RerankOption = None,
    rerank_weight: RerankWeightOption = None,
    pivot: PivotOption = None,
    to: ToOption = None,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    n_best: Annotated[int, number("--n-best", panel=panels.SEARCH, within=limits.BEAM_SIZE, help=N_BEST_HELP)] = 1,
    max_length: Annotated[
        int | None,
        number(
            "--max-length",
            panel=panels.SEARCH,
            within=limits.LENGTH,
            help="Maximum number of tokens of a translation.",
            show_default="usually 50 more than the source",
        ),
    ] = None,
    no_repeat_ngram: NoRepeatNgramOption = None,
    prefix: Annotated[
        str,
        option(
            "--prefix",
            panel=panels.SEARCH,
            metavar="TEXT",
            help="Text that every translation must begin with.",
            show_default="none",
        ),
    ] = "",
    terms: TermsOption = None,
    terms_mode: TermsModeOption = None,
    memory: MemoryOption = None,
    memory_match: MemoryMatchOption = None,
    sample: Annotated[
        bool,
        flag(
            "--sample",
            panel=panels.SAMPLING,
            help="Sample tokens at random instead of searching; not with -b or --length-penalty.",
        ),
    ] = False,
    temperature: Annotated[
        float | None,
        number(
            "--temperature",
            panel=panels.SAMPLING,
            within=limits.TEMPERATURE,
            parser=decimal,
            metavar="NUMBER",
            help="With --sample: values below 1 favour likely tokens.",
            show_default="1",
        ),
    ] = None,
    top_k: TopKOption = None,
    seed: Annotated[
        int | None,
        number(
            "--seed",
            panel=panels.SAMPLING,
            within=limits.SEED,
            help="With --sample: the seed of the random numbers.",
            show_default="1",
        ),
    ] = None,
    output: Annotated[
        str,
        option(
            "-o",
            "--output",
            panel=panels.OUTPUT,
            metavar="FILE|-",
            help="The file to write; - is standard output.",
        ),
    ] = "-",
    format_: Annotated[
        str,
        choice(
            "--format",
            panel=panels.OUTPUT,
            values=("text", "json", "nbest"),
            help="Output format. nbest is Moses' id ||| text ||| scores.",
        ),
    ] = "text",
    scores: Annotated[
        bool,
        flag(
            "--scores",
            panel=panels.OUTPUT,
            help="With --format text: begin each line with the score and a tab; a blank line stays blank.",
        ),
    ] = False,
    alignments: Annotated[
        bool,
        flag(
            "--alignments",
            panel=panels.OUTPUT,
            help="Add the word alignment (0-0 1-2); in text, at the end of each line that is not blank, after a tab.",
        ),
    ] = False,
    terms_report: Annotated[
        Path | None,
        output_file(
            "--terms-report",
            panel=panels.OUTPUT,
            metavar="FILE",
            help="With --terms: write which terms were used where, to a .tsv or .jsonl file.",
            show_default="a summary on standard error",
        ),
    ] = None,
    engine: AutoEngineOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Translate sentences, a document, or lines of text. On a terminal, translate what you type."""
    sampling = {"temperature": temperature, "top_k": top_k, "seed": seed}
    search: dict[str, Any] = {
        "to": to,
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "n_best": n_best,
        "max_length": max_length,
        "prefix": prefix,
        "no_repeat_ngram": no_repeat_ngram,
        "sample": sample,
        "alignments": alignments,
        **sampling,
    }
    if sample:
        unused = {"beam_size": beam_size, "length_penalty": length_penalty, "rerank": rerank}
        _refuse(unused, "not with --sample")
    else:
        _refuse(sampling, "only with --sample")
    if rerank is None:
        _refuse({"rerank_weight": rerank_weight}, "only with --rerank")
    if scores and format_ != "text":
        raise UsageError("--scores: only with --format text; the other formats always contain the scores")
    is_ranked = n_best > 1 or terms is not None  # required terms are searched with a wider beam
    if length_penalty is not None and beam_size == 1 and not is_ranked and format_ == "text" and not scores:
        log.warning("--length-penalty: has no effect on the single hypothesis of --beam-size 1")
    models = model or [LATEST]
    if pivot is not None:
        not_through = {"sample": sample or None, "terms": terms, "rerank": rerank, "prefix": prefix or None}
        _refuse(not_through, "not with --pivot")
    check_files(text, input_, output, [*models, *(each for each in (rerank, pivot) if each)])
    columns = tuple(column or ())
    as_document = is_document_input(text, input_, output, paragraphs=paragraphs, columns=columns)
    if as_document:
        only_text = format_ == "text"
        unsuitable = {"scores": scores, "alignments": alignments, "format": not only_text, "n_best": n_best > 1}
        _refuse_for_documents({**unsuitable, "prefix": prefix, "replace": replace, "as_is": as_is})
    if terms is None:
        _refuse({"terms_mode": terms_mode, "terms_report": terms_report}, "only with --terms")
    else:
        _refuse({"rerank": rerank}, "not with --terms")
    known_terms = None if terms is None else read_checked_terms(terms, terms_report, input_, output, models)
    if memory:
        _refuse_with_memory({"as_is": as_is, "prefix": prefix, "sample": sample})
        check_memory(memory, output)
    else:
        _refuse({"memory_match": memory_match}, "only with --memory")
    if format_ != "json":
        _refuse({"memory_match": memory_match}, "only with --format json, which shows near matches")

    from mtcli.runtime import torchrun
    from mtcli.terms.report import open_report
    from mtcli.translate.streams import formatted

    note_latest(models)
    loaded = _load(models, device, engine, search, rerank, rerank_weight)
    translator: Translator
    translator, options, (src, tgt) = loaded if pivot is None else _through(pivot, loaded, device, engine, search)
    warn_of_files(text or ())
    shows_scores = scores or format_ != "text"
    options = with_changes(options, scores=shows_scores or n_best > 1, repair=not as_is)
    if known_terms is not None:
        options = translator.with_terms(options, known_terms, terms_mode or "auto")
    entries = used = None
    if memory:
        from mtcli.translate.memory import MemoryUse

        used = MemoryUse()
        entries = _read_memory(memory, src, to or tgt, memory_match or NEAR_PERCENT, shows_near=format_ == "json")
    if not (as_document or as_is):
        from mtcli.documents.lines import BySentence

        translator = BySentence(translator, src, tgt, entries)
    with open_report(terms_report) as report:
        if as_document:
            from mtcli.documents.formats.format import ReadOptions
            from mtcli.documents.pipeline import translate_file

            read_options = ReadOptions(input_ or "", src, to or tgt, columns)
            segments = translate_file(text, input_, output, translator, options, read_options, entries)
            if options.terms:
                for source, translation in (pair for segment in segments for pair in segment.texts()):
                    report.add_sentence(source, translation, options.terms)
            if used is not None:
                for segment in segments:
                    used.add(segment.matches)
        else:
            render = partial(formatted, format_=format_, scores=scores, alignments=alignments, draws=sample)
            _translate(translator, options, render, text, input_, output, replace, report, used)
    if options.terms and torchrun.size() == 1:
        note(report.summary())
    if entries is not None and used is not None and torchrun.size() == 1:
        note(used.summary(shows_near=entries.has_near))


def _read_memory(paths: list[Path], src: str, tgt: str, near: int, *, shows_near: bool) -> "Memory":
    """Read a translation memory, and print how many entries it has.

    Args:
        paths: Its files.
        src: Source language.
        tgt: Target language.
        near: The least similarity of a near match in per cent.
        shows_near: The output has near matches; otherwise they are not searched for.

    Raises:
        DataError: A file cannot be read, or is for other languages.
    """
    from mtcli.runtime import torchrun
    from mtcli.runtime.wording import counted
    from mtcli.translate.memory import read_memory

    notices: list[str] = []
    memory = read_memory(paths, src, tgt, near=near / 100 if shows_near else 1.0, notices=notices)
    if torchrun.size() == 1:
        for notice in [*notices, f"memory: {counted(len(memory), 'entry', 'entries')}"]:
            note(notice)
    return memory


def _load(
    models: list[Path],
    device: str,
    engine: str,
    search: dict[str, Any],
    rerank: Path | None,
    rerank_weight: float | None,
) -> "LoadedModel":
    """Load the models, and the one that reranks their hypotheses.

    Args:
        models: The folders of the models.
        device: The device to compute on.
        engine: The library that computes, or `auto`.
        search: The options of the search, see `Options.with_given`.
        rerank: The folder of the model that reranks; None: none does.
        rerank_weight: The weight of its log-probability; None: the default.

    Raises:
        ModelError: A folder has no usable model.
        UsageError: An option does not fit the models.
    """
    from mtcli.translate.loading import load, load_reranker

    # The engine of a run is proven for the best hypothesis, and reranking needs all of them.
    library = None if rerank and engine == "auto" else engine
    loaded = load(models, device, library, search)
    if rerank:
        loaded.translator.rerank = load_reranker(rerank, rerank_weight, device, loaded)
    return loaded


def _through(
    pivot: Path, first: "LoadedModel", device: str, engine: str, search: dict[str, Any]
) -> "tuple[Translator, Options, Direction]":
    """Load the model that translates the result of the first one further. See `_load`.

    Raises:
        UsageError: It does not translate from the language into which the first one does, or not into that of `--to`.
    """
    from mtcli.translate.loading import load
    from mtcli.translate.pivot import PivotTranslator, meeting_directions

    translator, options, _ = load([pivot], device, engine, search)
    before, after = meeting_directions(first.translator.backend, translator.backend, options.to)
    to = before.tgt if first.translator.tokenizer.tags else ""
    note(f"{before.src} → {after.tgt} through {after.src}")
    first_options = with_changes(first.options, to=to, n_best=1)
    return PivotTranslator(first.translator, first_options, translator), options, before._replace(tgt=after.tgt)


def _refuse(options: dict[str, Any], reason: str) -> None:
    """Raise a UsageError with this reason if one of the options is set."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name.replace('_', '-')}: {reason}")


def _refuse_with_memory(options: dict[str, Any]) -> None:
    """Raise a UsageError if one of these options is set."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')}: not with --memory")


def _refuse_for_documents(options: dict[str, Any]) -> None:
    """Raise a UsageError if one of these options is set."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')}: not supported for documents or with --paragraphs")


def _translate(
    translator: "Translator",
    options: "Options",
    render: "Callable[[Translation, int], Iterator[str]]",
    text: list[str] | None,
    input_: str | None,
    output: str,
    replace: bool,
    report: "TermsReport",
    used: "MemoryUse | None",
) -> None:
    """Translate, and write each translation as soon as it is known."""
    gc.set_threshold(GC_THRESHOLD)
    from mtcli.runtime import torchrun
    from mtcli.runtime.outputs import open_output
    from mtcli.runtime.progress import on_terminal
    from mtcli.translate.streams import translations

    if torchrun.size() > 1:
        from mtcli.translate.sharding import translate_file

        translate_file(translator, str(input_), Path(output), options, render, replace=replace)
        return
    quiet = output == "-" and on_terminal(sys.stdout)  # a progress bar would mix with the translations
    with open_output(output) as stream:
        found = translations(translator, text, input_, options, replace=replace, quiet=quiet)
        for number_of_line, translation in enumerate(found):
            report.add(translation.terms)
            if used is not None:
                used.add(translation.memory)
            lines = render(translation, number_of_line)
            stream.write("".join(f"{line}\n" for line in lines))
            stream.flush()


def check_files(text: list[str] | None, input_: str | None, output: str, models: Sequence[Path]) -> None:
    """Check input and output before the model is loaded.

    Raises:
        UsageError: Two inputs, an output that would overwrite something or that is named as if it were compressed, or
            standard streams with several ranks.
        DataError: The input cannot be read.
        StorageError: The output cannot be written.
    """
    from mtcli.documents.formats.registry import free_name
    from mtcli.runtime import torchrun
    from mtcli.runtime.outputs import check_outputs, is_special

    if text and input_:
        raise UsageError(f"give either sentences or --input {input_}, not both")
    if torchrun.size() > 1 and "-" in (input_ or "-", output):
        raise UsageError("several ranks translate files, not standard input or output; give --input FILE --output FILE")
    if torchrun.size() > 1 and is_special(Path(output)):
        raise UsageError(f"--output {output}: several ranks write a regular file; give another")
    if output.lower().endswith(".gz"):
        example = free_name(PurePath(output).with_suffix(""), input_ or "-")
        raise UsageError(f"--output {output}: translations are not compressed; name it {example}")
    inputs = [] if text else [input_ or "-"]
    check_outputs([output], inputs, models=models)
    must_exist(input_)


def is_document_input(
    text: list[str] | None, input_: str | None, output: str, *, paragraphs: bool, columns: tuple[str, ...]
) -> bool:
    """Return True if the input is translated as a document, False if line by line.

    Raises:
        UsageError: The type of the file is unknown, the output has the suffix of another type, or several ranks would
            translate a document.
    """
    from mtcli.documents.formats.registry import check_output_name, is_document
    from mtcli.runtime import torchrun

    found = is_document("-" if text else input_ or "-", paragraphs=paragraphs, columns=bool(columns))
    if found and torchrun.size() > 1:
        raise UsageError("several ranks translate lines of text, not documents; start one process")
    if found:
        check_output_name(input_ or "-", output)
    return found


def read_checked_terms(
    terms: Path, report: Path | None, input_: str | None, output: str, models: Sequence[Path]
) -> "Terms":
    """Read the terms, and check their report before the model is loaded.

    Raises:
        UsageError: The report would overwrite something or has an unknown ending, or several ranks would write it.
        DataError: The file of terms cannot be read or is malformed.
        StorageError: The report cannot be written.
    """
    from mtcli.runtime import torchrun
    from mtcli.runtime.outputs import check_outputs
    from mtcli.terms.report import ENDINGS
    from mtcli.terms.terms import read_terms

    must_exist(str(terms))
    check_outputs([output, report], [input_, terms], models=models)
    if report is not None and report.suffix.lower() not in ENDINGS:
        raise UsageError(f"--terms-report {report}: write a {' or '.join(ENDINGS)} file")
    if report is not None and torchrun.size() > 1:
        raise UsageError("--terms-report: not with several ranks; --format json lists the terms of each line")
    return read_terms(terms)


def check_memory(memory: Sequence[Path], output: str) -> None:
    """Check the files of a translation memory before the model is loaded.

    Raises:
        UsageError: The output would overwrite one.
        DataError: One cannot be read, or its type is unknown.
    """
    from mtcli.runtime.outputs import check_outputs
    from mtcli.translate.memory import check_memory_file

    must_exist(*map(str, memory))
    check_outputs([output], memory)
    for path in memory:
        check_memory_file(path)


def warn_of_files(texts: Sequence[str]) -> None:
    """Warn about sentences that are also names of files, which are probably meant."""
    for name in texts:
        if os.path.isfile(name):  # noqa: PTH113 - a sentence may be too long for a path
            log.warning(
                "%s: translated as a sentence, though there is a file of that name; -i %s translates the file",
                name,
                name,
            )
