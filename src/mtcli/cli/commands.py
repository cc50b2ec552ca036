"""The Typer app: every command with its examples, and the options of `mtcli` itself."""

import logging
import os
import re
import signal
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mtcli.cli import (
    augment,
    average,
    data,
    distill,
    evaluate,
    explain,
    export,
    import_model,
    improve,
    info,
    panels,
    score,
    serve,
    tokenizer,
    train,
    translate,
)
from mtcli.cli.option_kinds import flag
from mtcli.cli.options import MODEL_VARIABLE
from mtcli.errors import StoppedError, UsageError

NAMES_A_FILE = re.compile(r"\b(?:FILE|DIR|PATH|MODEL|RUN|SOURCE|PAIRS)\b")
"""Found in the metavar of an option or argument that names a file or a folder."""

SEVERAL_RANKS = ("train", "translate")
"""Commands that torchrun may start on several ranks."""


class _Command(typer.core.TyperCommand):
    """A command that shows `--help` in its last panel. If it has no `--model`, the error names its argument instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            UsageError: `--model` is given to a command that takes the model as its argument, or the name of a file or
                folder is empty.
        """
        try:
            if not ctx.resilient_parsing:
                self._refuse_empty_names(ctx, args)
            return super().parse_args(ctx, args)
        except Exception as error:
            # The class of the error, NoSuchOption, is not public in typer.
            metavar = self._metavar_of_model()
            if getattr(error, "option_name", None) != "--model" or metavar is None:
                raise
        command = f"{ctx.command_path} {metavar}"
        raise UsageError(f"--model: not an option here; give the folder as the argument: {command}")

    def _refuse_empty_names(self, ctx: Any, args: list[str]) -> None:
        """Raise a UsageError for an empty name of a file or folder, which `Path` reads as the current folder."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            values = given.get(parameter.name)
            if values != "" and not (isinstance(values, list | tuple) and "" in values):
                continue
            if NAMES_A_FILE.search(parameter.metavar or ""):
                is_option = parameter.param_type_name == "option"
                name = max(parameter.opts, key=len) if is_option else parameter.metavar
                raise UsageError(f"{name}: the name is empty; give a name")

    def _metavar_of_model(self) -> str | None:
        """Return the name, as in the help, of the argument that names a model; None if there is none."""
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.envvar == MODEL_VARIABLE:
                return parameter.metavar
        return None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, `--help` among them."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.name == "help":
                parameter.rich_help_panel = panels.OTHER
                parameter.metavar = ""  # otherwise its type, <bool>, is shown
        return parameters


class _Group(typer.core.TyperGroup):
    """A command with commands, whose help omits the type of flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command.

        Raises:
            StoppedError: Ctrl-C ended it. Typer would exit without a message.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            from mtcli.runtime.signals import QuietInterrupt, stopped

            if isinstance(error, QuietInterrupt):
                raise
            raise StoppedError(stopped(signal.SIGINT), signal.SIGINT) from error

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, `--help` among them."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


app = typer.Typer(
    name="mtcli",
    cls=_Group,
    help='Train the Transformer of "Attention Is All You Need" on parallel text, translate with it and score it.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
tokenizer_app = typer.Typer(
    cls=_Group, no_args_is_help=True, help="Train a tokenizer, or encode and decode text with one."
)
data_app = typer.Typer(
    cls=_Group, no_args_is_help=True, help="Report problems in sentence pairs, or remove the pairs that have problems."
)


def _show_versions(context: typer.Context, wanted: bool) -> None:
    """Print the versions and exit, if the option is given and the line is not only completed."""
    if wanted and not context.resilient_parsing:
        _print_versions()
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        flag(
            "--version",
            panel=panels.OPTIONS,
            callback=_show_versions,
            is_eager=True,
            help="Show the versions of mtcli, Python and PyTorch, and the device.",
        ),
    ] = False,
) -> None:
    """Check how the process was started, before its command runs."""
    from mtcli.runtime import torchrun

    command = context.invoked_subcommand
    if command not in SEVERAL_RANKS:
        if torchrun.started_by_torchrun() and torchrun.size() > 1:
            raise UsageError(f"{command}: one process does this; start it without torchrun")
        torchrun.leave()
        return
    missing = torchrun.missing()
    if os.environ.get("WORLD_SIZE", "1") != "1" and missing:
        logging.getLogger(__name__).warning(
            "WORLD_SIZE=%s is ignored, without %s: this process works alone; start several with torchrun",
            os.environ["WORLD_SIZE"],
            " and ".join(missing),
        )


def _print_versions() -> None:
    import platform
    from importlib.metadata import version

    from mtcli import __version__

    print(f"mtcli {__version__}\nPython {platform.python_version()}\nPyTorch {version('torch')}", flush=True)
    from mtcli.runtime import torchrun

    torchrun.leave()
    # PyTorch takes a second to import, so this comes after the lines that do not need it.
    from mtcli.runtime.device import describe, pick_device

    print(f"device {describe(pick_device())}")


def _register(group: typer.Typer, name: str, function: Callable[..., None], examples: tuple[str, ...]) -> None:
    group.command(name, cls=_Command, epilog=_epilog(examples))(function)


def _epilog(examples: tuple[str, ...]) -> str:
    title = "Example" if len(examples) == 1 else "Examples"
    return "\n\n".join((f"[bold]{title}[/]", *examples))  # typer prints each paragraph on a line of its own


_register(app, "train", train.train, train.EXAMPLES)
_register(app, "translate", translate.translate, translate.EXAMPLES)
_register(app, "eval", evaluate.evaluate, evaluate.EXAMPLES)
_register(app, "score", score.score, score.EXAMPLES)
_register(app, "explain", explain.explain, explain.EXAMPLES)
_register(app, "augment", augment.augment, augment.EXAMPLES)
_register(app, "distill", distill.distill, distill.EXAMPLES)
_register(app, "improve", improve.improve, improve.EXAMPLES)
_register(app, "average", average.average, average.EXAMPLES)
_register(app, "export", export.export, export.EXAMPLES)
_register(app, "import", import_model.import_model, import_model.EXAMPLES)
_register(app, "info", info.info, info.EXAMPLES)
_register(app, "serve", serve.serve, serve.EXAMPLES)
_register(tokenizer_app, "train", tokenizer.train, tokenizer.TRAIN_EXAMPLES)
_register(tokenizer_app, "encode", tokenizer.encode, tokenizer.ENCODE_EXAMPLES)
_register(tokenizer_app, "decode", tokenizer.decode, tokenizer.DECODE_EXAMPLES)
_register(data_app, "check", data.check, data.CHECK_EXAMPLES)
_register(data_app, "clean", data.clean, data.CLEAN_EXAMPLES)

app.add_typer(
    tokenizer_app,
    name="tokenizer",
    epilog=_epilog((*tokenizer.TRAIN_EXAMPLES, *tokenizer.ENCODE_EXAMPLES, *tokenizer.DECODE_EXAMPLES)),
)
app.add_typer(data_app, name="data", epilog=_epilog((*data.CHECK_EXAMPLES, *data.CLEAN_EXAMPLES)))
