"""The command line: parse, call one plain function, print. Nothing heavy is imported until a command needs it."""

import errno
import logging
import os
import re
import sys
from typing import Annotated

import typer

from mtcli.cli import models, process, scoring, serving, text, training, translating
from mtcli.cli.options import flag
from mtcli.errors import MtcliError, UsageError

app = typer.Typer(
    name="mtcli",
    help='Train the Transformer of "Attention Is All You Need" on parallel text, translate with it and score it.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; the only place that turns an error into a line and an exit code."""
    from mtcli.runtime.progress import show_log

    try:
        process.open_streams()
        process.limit_spinning()
        try:
            show_log()
            process.check_current_folder()
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk still has its line and its exit code
    except MtcliError as error:
        _fail(str(error), error.exit_code, error)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        code = 2 if error.errno == errno.ENAMETOOLONG else 5
        _fail(f"{error.filename or 'output'}: {error.strerror or error}", code, error)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a native library is no Exception
        if isinstance(error, MemoryError) or re.search(_OUT_OF_MEMORY, str(error)):
            _fail("out of memory; try a smaller model, beam, file or --set train.batch_tokens", 5, error)
        if _NO_DESCRIPTOR in str(error):
            _fail(str(error), 5, error)
        code = 1 if isinstance(error, Exception) else 4
        _fail(f"unexpected {type(error).__name__}: {error}; MTCLI_DEBUG=1 shows where; please report it", code, error)


# The last two are said where a thread found no room for its stack.
_OUT_OF_MEMORY = "out of memory|can't allocate memory|Resource temporarily unavailable|can't start new thread"

_LONGEST = 4000
"""Characters of a message."""

_NO_DESCRIPTOR = os.strerror(errno.EMFILE)


def _fail(message: str, code: int, error: BaseException) -> None:
    if os.environ.get("MTCLI_DEBUG") == "1":
        raise error
    if _NO_DESCRIPTOR in message and "ulimit" not in message:  # every reader of files may meet it
        message, code = f"{message}; raise the limit of open files (ulimit -n) and run the same command again", 5
    if len(message) > _LONGEST:  # as with a name of a hundred thousand characters
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    from mtcli.runtime.terminal import printable

    print(f"mtcli: {printable(message)}", file=sys.stderr)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        import platform
        from importlib.metadata import version

        from mtcli import __version__

        print(f"mtcli {__version__}\nPython {platform.python_version()}\nPyTorch {version('torch')}", flush=True)
        from mtcli.runtime import torchrun

        torchrun.leave()
        # The import takes a second, so it comes after the lines that do not need it.
        from mtcli.runtime.device import describe, pick_device

        print(f"device {describe(pick_device())}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        flag(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the versions of mtcli, Python and PyTorch, and the device.",
        ),
    ] = False,
) -> None:
    from mtcli.runtime import torchrun

    if context.invoked_subcommand not in ("train", "translate"):
        if torchrun.started_by_torchrun() and torchrun.size() > 1:
            raise UsageError(f"{context.invoked_subcommand}: one process does this; start it without torchrun")
        torchrun.leave()
    elif os.environ.get("WORLD_SIZE", "1") != "1" and (missing := torchrun.missing()):
        told = "WORLD_SIZE=%s is ignored, without %s: this process works alone; start several with torchrun"
        logging.getLogger(__name__).warning(told, os.environ["WORLD_SIZE"], " and ".join(missing))


def _examples(*lines: str) -> str:
    return "\n\n".join(("[bold]Examples[/]", *lines))  # a line of its own each


app.command(
    epilog=_examples(
        "mtcli train",
        "mtcli train pairs.csv --src en --tgt es --time 30m",
        "mtcli train data/train --src en --tgt de --out runs/ende",
        "mtcli train --init runs/ende --train news.tsv --out runs/news --time 10m",
    )
)(training.train)
app.command(
    epilog=_examples(
        'mtcli translate "Hello World"',
        "mtcli translate -i in.txt -o out.txt --model runs/ende",
        "mtcli translate -i in.txt --n-best 5 --format json",
        "cat in.txt | mtcli translate --scores",
    )
)(translating.translate)
app.command(
    "eval",
    epilog=_examples(
        "mtcli eval --bleu --chrf --confidence",
        "mtcli eval --model runs/ende --src-file in.en --ref-file ref.de",
        "mtcli eval --hyp-file out.de --ref-file ref.de --lowercase --tokenize none",
        "mtcli eval --model runs/ende --compare runs/big --by-length",
    ),
)(scoring.evaluate)
app.command(epilog=_examples("mtcli score --src-file in.en --tgt-file out.es"))(scoring.score)
app.command(
    epilog=_examples('mtcli explain "Hello World"', 'mtcli explain "Hello World" --html hello.html'),
)(translating.explain)
app.command(epilog=_examples("mtcli average runs/ende -n 5"))(training.average)
app.command(
    epilog=_examples("mtcli export --to ctranslate2 --quantization int8", "mtcli export runs/ende --to huggingface"),
)(models.export)
app.command(epilog=_examples("mtcli info", "mtcli info runs/ende-ctranslate2"))(models.info)
app.command(epilog=_examples("mtcli serve", "mtcli serve --model runs/ende --port 8080"))(serving.serve)
app.add_typer(
    text.tokenizer_app,
    name="tokenizer",
    epilog=_examples(
        "mtcli tokenizer train text.en text.es -o tokenizer.json",
        "mtcli tokenizer encode --model runs/ende -i in.txt",
    ),
)
app.add_typer(
    text.data_app,
    name="data",
    epilog=_examples(
        "mtcli data check pairs.tsv --src en --tgt es",
        "mtcli data clean pairs.tsv -o clean.tsv --src en --tgt es",
    ),
)
