"""`mtcli translate`."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.option_kinds import choice, decimal, flag, number, option, output_file, text_file_option
from mtcli.cli.options import (
    LATEST,
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
    only_target,
)
from mtcli.cli.process import note, note_latest

EXAMPLES = (
    'mtcli translate "Hello World"',
    "mtcli translate -i in.txt -o out.txt --model runs/ende",
    "mtcli translate -i page.html -o page.de.html",
    "mtcli translate -i in.txt --n-best 5 --format json",
    "cat in.txt | mtcli translate --scores",
)

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
    from mtcli.documents.request import TextRequest, check
    from mtcli.documents.request import translate as run

    request = TextRequest(
        models=tuple(model or [LATEST]),
        texts=tuple(text or ()),
        input=input_,
        paragraphs=paragraphs,
        as_is=as_is,
        column=tuple(column or ()),
        replace=replace,
        rerank=rerank,
        rerank_weight=rerank_weight,
        pivot=pivot,
        to=only_target(to),
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        max_length=max_length,
        no_repeat_ngram=no_repeat_ngram,
        prefix=prefix,
        terms=terms,
        terms_mode=terms_mode,
        memory=tuple(memory or ()),
        memory_match=memory_match,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        output=output,
        format=format_,
        scores=scores,
        alignments=alignments,
        terms_report=terms_report,
        engine=engine,
        device=device,
    )
    check(request)
    note_latest(request.models)
    run(request, note)
