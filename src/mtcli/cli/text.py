"""`mtcli tokenizer`: the commands that look at text without a model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli.cli.options import LATEST, ModelOption, ReplaceOption
from mtcli.errors import DataError

tokenizer_app = typer.Typer(no_args_is_help=True, help="Train a tokenizer, or look at what one does.")


@tokenizer_app.command("train")
def tokenizer_train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text, one sentence a line.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="tokenizer.json")],
    type_: Annotated[str, typer.Option("--type", metavar="bpe|word|char", help="What a piece is.")] = "bpe",
    vocab_size: Annotated[int | None, typer.Option(min=1, help="Pieces; from the size of the text.")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Learn one vocabulary from all the files."""
    from mtcli import tokenizer
    from mtcli.corpus import read_lines

    def lines() -> Iterator[str]:
        for path in files:
            yield from read_lines(path, replace=replace)

    learnt = tokenizer.train(lines(), [], kind=type_, vocab_size=vocab_size)
    learnt.save(output)
    print(f"{learnt.src_size} pieces in {output}", file=sys.stderr)


@tokenizer_app.command("encode")
def tokenizer_encode(
    model: ModelOption = LATEST,
    input_: Annotated[str, typer.Option("-i", "--input", metavar="FILE|-", help="Text.")] = "-",
    ids: Annotated[bool, typer.Option("--ids", help="Numbers instead of pieces.")] = False,
    tgt: Annotated[bool, typer.Option("--tgt", help="With the target vocabulary.")] = False,
    replace: ReplaceOption = False,
) -> None:
    """Lines to pieces, with a space between them; a piece's own space is written ▁."""
    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
    found = _tokenizer(model)
    for line in lines_of(input_, replace=replace):
        row = (found.encode_tgt if tgt else found.encode_src)([line])[0]
        pieces = found.tgt_pieces if tgt else found.src_pieces
        print(" ".join(map(str, row) if ids else pieces(row)))


@tokenizer_app.command("decode")
def tokenizer_decode(
    model: ModelOption = LATEST,
    input_: Annotated[str, typer.Option("-i", "--input", metavar="FILE|-", help="Lines of ids.")] = "-",
) -> None:
    """Lines of target ids (as `encode --ids --tgt` prints them) back to text."""
    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
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
    from mtcli.tokenizer import Tokenizer

    return Tokenizer.load(model if model.suffix == ".json" else model / "tokenizer.json")
