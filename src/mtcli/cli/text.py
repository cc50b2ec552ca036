"""`mtcli tokenizer` and `mtcli data`: the commands that look at text without a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli.options import LATEST, ForceOption, ModelOption, ReplaceOption, bounded, flag, must_exist, note
from mtcli.errors import DataError, UsageError

tokenizer_app = typer.Typer(no_args_is_help=True, help="Train a tokenizer, or encode and decode text with one.")
data_app = typer.Typer(no_args_is_help=True, help="Check sentence pairs for problems, and remove those that have some.")

PATH_HELP = "Pairs, in any form that `mtcli train --train` takes."
SrcOption = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Source language code, as in file and column names.",
        show_default="from the names of files and columns",
    ),
]
TgtOption = Annotated[
    str | None,
    typer.Option(metavar="CODE", help="Target language code.", show_default="from the names of files and columns"),
]
SwapOption = Annotated[bool, flag("--swap", help="Swap source and target.")]
ValidOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="Validation pairs; report their sources that are here too.")
]
TestOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="Test pairs; report their sources that are here too.")
]
LengthOption = Annotated[
    int, bounded(within=limits.CHARACTERS, help="Most characters of a side; a Chinese character counts as three.")
]
RatioOption = Annotated[
    float, bounded(within=limits.RATIO, help="Largest ratio of the longer side to the shorter, beyond 25 characters.")
]


@tokenizer_app.command("train")
def tokenizer_train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text, one sentence per line.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The tokenizer.json to write.")],
    type_: Annotated[
        str, typer.Option("--type", metavar="bpe|word|char", help="The kind of token: subword, word or character.")
    ] = "bpe",
    vocab_size: Annotated[
        int | None,
        bounded(within=limits.VOCABULARY, help="Tokens in the vocabulary.", show_default="by the size of the text"),
    ] = None,
    replace: ReplaceOption = False,
    force: ForceOption = False,
) -> None:
    """Train one tokenizer on all the files. An existing output is kept unless --force is given."""
    from mtcli.data.lines import read_lines
    from mtcli.data.tokenizer_training import train_tokenizer_on_lines
    from mtcli.runtime.output_checks import check_outputs

    check_outputs([output], files, force=force)
    must_exist(*map(str, files))

    def lines() -> Iterator[str]:
        for path in files:
            yield from read_lines(path, replace=replace)

    learned = train_tokenizer_on_lines(lines(), kind=type_, vocab_size=vocab_size)
    learned.save(output)
    note(f"{learned.src_size} tokens in {output}")


@tokenizer_app.command("encode")
def tokenizer_encode(
    model: ModelOption = LATEST,
    input_: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE|-", help="Text, one sentence per line; - is standard input.")
    ] = "-",
    ids: Annotated[bool, flag("--ids", help="Print token ids instead of tokens.")] = False,
    tgt: Annotated[bool, flag("--tgt", help="Use the target vocabulary, where there are two.")] = False,
    replace: ReplaceOption = False,
) -> None:
    """Encode lines as tokens, separated by spaces; a space inside a token is written ▁."""
    from mtcli.inference.streams import lines_of
    from mtcli.runtime.output_checks import check_outputs

    check_outputs(["-"], [input_], models=[model])
    found = _tokenizer(model)
    for line in lines_of(input_, replace=replace):
        row = (found.encode_tgt if tgt else found.encode_src)([line])[0]
        tokens = found.tgt_tokens if tgt else found.src_tokens
        print(" ".join(map(str, row) if ids else tokens(row)))


@tokenizer_app.command("decode")
def tokenizer_decode(
    model: ModelOption = LATEST,
    input_: Annotated[
        str,
        typer.Option(
            "-i",
            "--input",
            metavar="FILE|-",
            help="Token ids, separated by spaces, one sentence per line; - is standard input.",
        ),
    ] = "-",
) -> None:
    """Decode lines of target token ids (as `encode --ids --tgt` prints them) to text."""
    from mtcli.inference.streams import lines_of
    from mtcli.runtime.output_checks import check_outputs

    check_outputs(["-"], [input_], models=[model])
    found = _tokenizer(model)
    for number, line in enumerate(lines_of(input_), 1):
        try:
            ids = [int(word) for word in line.split()]
        except ValueError:
            raise DataError(f"line {number}: not a line of piece ids") from None
        if wrong := [i for i in ids if not 0 <= i < found.tgt_size]:
            raise DataError(f"line {number}: there is no piece {wrong[0]}; the last is {found.tgt_size - 1}")
        print(found.decode([ids])[0])


def _tokenizer(model: Path) -> Any:
    from mtcli.data.tokenizer import Tokenizer

    return Tokenizer.load(model if model.suffix == ".json" else model / "tokenizer.json")


@data_app.command("check")
def data_check(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help=PATH_HELP)],
    src: SrcOption = None,
    tgt: TgtOption = None,
    swap: SwapOption = False,
    valid: ValidOption = None,
    test: TestOption = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A run, to report how its tokenizer encodes the pairs.")
    ] = None,
    max_length: LengthOption = 1000,
    max_ratio: RatioOption = 3.0,
    json_: Annotated[bool, flag("--json", help="Print JSON.")] = False,
) -> None:
    """Report problems in sentence pairs: counts, examples with line numbers, and what to do. Changes nothing."""
    from mtcli.data.quality import report
    from mtcli.runtime.output_checks import check_outputs

    pairs = _corpus(paths, src, tgt, swap, valid, test, max_length, max_ratio)
    check_outputs(["-"], pairs.files(), models=[model])
    found = report.check(pairs, model)
    print(report.to_json(found) if json_ else report.to_text(found))


@data_app.command("clean")
def data_clean(
    path: Annotated[str, typer.Argument(metavar="PATH", help=PATH_HELP)],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="The file to write: x.tsv, x.csv, x.jsonl or a prefix for two files; with .gz, compressed.",
        ),
    ],
    src: SrcOption = None,
    tgt: TgtOption = None,
    swap: SwapOption = False,
    valid: ValidOption = None,
    test: TestOption = None,
    max_length: LengthOption = 1000,
    max_ratio: RatioOption = 3.0,
    rejected: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the removed pairs with the reasons, as JSON lines.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the pairs without errors or warnings, in their order, and report what was removed and why.

    Existing outputs are kept unless --force is given.
    """
    from mtcli.data.quality import clean

    pairs = _corpus([path], src, tgt, swap, valid, test, max_length, max_ratio)
    done = clean.clean(pairs, output, rejected, force=force)
    print(clean.to_text(done))


def _corpus(
    paths: list[str],
    src: str | None,
    tgt: str | None,
    swap: bool,
    valid: str | None,
    test: str | None,
    max_length: int,
    max_ratio: float,
) -> Any:
    from mtcli.data.quality.survey import Corpus
    from mtcli.data.sources import parse_source

    bare = [parse_source(path).path for path in paths]
    src, tgt = _languages(bare, src, tgt)
    if src == tgt:
        raise UsageError(f"--src and --tgt are both {src!r}; name the two languages")
    return Corpus(bare, src, tgt, swap, valid, test, max_length, max_ratio)


def _languages(paths: list[str], src: str | None, tgt: str | None) -> tuple[str, str]:
    """Return the languages of pairs; `src` and `tgt` if no name gives them and the files can be read without."""
    from mtcli.config.languages import checked
    from mtcli.data.language_guess import guess_languages, names_sides

    for option, code in (("--src", src), ("--tgt", tgt)):
        try:
            checked(code or "en")
        except ValueError as error:
            raise UsageError(f"{option} {code!r}: {error}") from None
    if src is not None and tgt is not None:
        return src, tgt
    try:
        guess = guess_languages(paths, src, tgt)
    except UsageError:
        if all(map(names_sides, paths)):
            return src or "src", tgt or "tgt"
        raise
    return guess.src, guess.tgt
