"""`mtcli tokenizer`: train a tokenizer, encode and decode."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.input_files import check_standard_input, must_exist
from mtcli.cli.option_kinds import choice, flag, languages_option, number, output_file, text_file_option
from mtcli.cli.options import LATEST, ForceOption, ModelOption, ReplaceOption
from mtcli.cli.process import note
from mtcli.errors import DataError

TRAIN_EXAMPLES = ("mtcli tokenizer train text.en text.es -o tokenizer.json",)
ENCODE_EXAMPLES = ("mtcli tokenizer encode --model runs/ende -i in.txt",)
DECODE_EXAMPLES = ("mtcli tokenizer decode --model runs/ende -i ids.txt",)


MAX_DIGITS = 30
"""Digits of a token id that are read. Python refuses to read numbers with thousands of them."""


def train(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Text, one sentence per line; - is standard input.")
    ],
    output: Annotated[
        Path,
        output_file("-o", "--output", panel=panels.OUTPUT, metavar="FILE", help="The tokenizer.json to write."),
    ],
    type_: Annotated[
        str,
        choice(
            "--type",
            panel=panels.TOKENIZER,
            values=("bpe", "word", "char"),
            help="The kind of token: subword, word or character.",
        ),
    ] = "bpe",
    vocab_size: Annotated[
        int | None,
        number(
            "--vocab-size",
            panel=panels.TOKENIZER,
            within=limits.VOCABULARY,
            help="Number of tokens in the vocabulary.",
            show_default="chosen by the size of the text",
        ),
    ] = None,
    placeholders: Annotated[
        bool,
        flag(
            "--placeholders",
            panel=panels.TOKENIZER,
            help="Add the placeholder tokens, which a training with data.placeholders needs.",
        ),
    ] = False,
    target_languages: Annotated[
        list[str] | None,
        languages_option(
            "--target-language",
            help="Add a tag for this target language, which a training with several needs. Repeat the option for each.",
            show_default="no tags",
        ),
    ] = None,
    replace: ReplaceOption = False,
    force: ForceOption = False,
) -> None:
    """Train one tokenizer on all the files. An existing output is kept unless --force is given."""
    from mtcli.runtime.outputs import check_outputs
    from mtcli.runtime.progress import Progress
    from mtcli.text.lines import Counts
    from mtcli.text.tokenizer.learning import train_tokenizer_on_lines
    from mtcli.translate.streams import lines_of, report_counts

    check_standard_input({f"FILE {n}": name for n, name in enumerate(files, 1)})
    check_outputs([output], files, force=force)
    must_exist(*files)
    counts = Counts()

    def lines() -> Iterator[str]:
        with Progress("reading", unit="lines") as progress:
            for name in files:
                for line in lines_of(name, replace=replace, counts=counts):
                    progress.update()
                    yield line

    trained = train_tokenizer_on_lines(
        lines(),
        kind=type_,
        vocab_size=vocab_size,
        placeholders=placeholders,
        target_languages=list(dict.fromkeys(target_languages or ())),
    )
    report_counts(counts)
    trained.save(output)
    note(f"{trained.src_size} tokens in {output}")


def encode(
    input_: Annotated[
        str,
        text_file_option(
            "-i",
            "--input",
            help="Text, one sentence per line; - is standard input.",
        ),
    ] = "-",
    replace: ReplaceOption = False,
    model: ModelOption = LATEST,
    ids: Annotated[bool, flag("--ids", panel=panels.OUTPUT, help="Print token ids instead of tokens.")] = False,
    tgt: Annotated[
        bool, flag("--tgt", panel=panels.OUTPUT, help="Use the target vocabulary, if there are two.")
    ] = False,
) -> None:
    """Encode lines as tokens, separated by spaces; a space inside a token is written ▁."""
    from mtcli.runtime.outputs import check_outputs
    from mtcli.text.lines import Counts
    from mtcli.translate.streams import lines_of, report_counts

    check_outputs(["-"], [input_], models=[model])
    tokenizer = _load(model)
    counts = Counts()
    encode_lines = tokenizer.encode_tgt if tgt else tokenizer.encode_src
    tokens_of = tokenizer.tgt_tokens if tgt else tokenizer.src_tokens
    for line in lines_of(input_, replace=replace, counts=counts):
        (row,) = encode_lines([line])
        words = map(str, row) if ids else tokens_of(row)
        print(" ".join(words))
    report_counts(counts)


def decode(
    input_: Annotated[
        str,
        text_file_option(
            "-i",
            "--input",
            help="Token ids, separated by spaces, one sentence per line; - is standard input.",
        ),
    ] = "-",
    model: ModelOption = LATEST,
) -> None:
    """Decode lines of target token ids (as `encode --ids --tgt` prints them) to text."""
    from mtcli.runtime.outputs import check_outputs
    from mtcli.translate.streams import lines_of, name_of

    check_outputs(["-"], [input_], models=[model])
    tokenizer = _load(model)
    for line_number, line in enumerate(lines_of(input_, lenient=True), 1):
        ids = _token_ids(line, tokenizer.tgt_size, f"{name_of(input_)}:{line_number}")
        (text,) = tokenizer.decode([ids])
        print(text.replace("\n", " "))  # one line each, even of a token that contains a line break


def _token_ids(line: str, vocabulary: int, place: str) -> list[int]:
    """Return the token ids in a line.

    Args:
        line: Ids, separated by spaces.
        vocabulary: Number of tokens.
        place: File and line, for messages.

    Raises:
        DataError: A word is not the id of a token.
    """
    ids = []
    for word in line.split():
        if not re.fullmatch("[0-9]+", word):
            raise DataError(f"{place}: not a line of token ids")
        if len(word) > MAX_DIGITS or int(word) >= vocabulary:
            raise DataError(f"{place}: there is no token {word[:100]}; the last is {vocabulary - 1}")
        ids.append(int(word))
    return ids


def _load(model: Path) -> Any:
    """Return the tokenizer of a model, or the one in a .json file."""
    from mtcli.storage.model_folder import tokenizer_file
    from mtcli.text.tokenizer.tokenizer import Tokenizer

    return Tokenizer.load(model if model.suffix == ".json" else tokenizer_file(model))
