"""`mtcli explain`."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.option_kinds import flag, json_flag, number, output_file
from mtcli.cli.options import LATEST, BeamOption, DeviceOption, ModelsOption, ToOption, only_target
from mtcli.cli.process import note
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.explain.explanation import Explanation
    from mtcli.translate.backends.pytorch import PyTorchBackend

EXAMPLES = (
    'mtcli explain "Hello World"',
    'mtcli explain "Hello World" --step 1',
    'mtcli explain "Hello World" --layer 2 --head 3 --full',
    'mtcli explain "Hello World" --html hello.html',
)


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence to translate.")],
    model: ModelsOption = None,
    to: ToOption = None,
    beam_size: BeamOption = None,
    layer: Annotated[
        int | None,
        number(
            "--layer",
            panel=panels.VIEW,
            within=limits.LAYERS,
            help="The encoder and decoder layer to show, from 1.",
            show_default="the sharpest cross-attention; 1 with --head, --step, --full or --json",
        ),
    ] = None,
    head: Annotated[
        int | None,
        number(
            "--head",
            panel=panels.VIEW,
            within=limits.HEADS,
            help="The attention head to show, from 1.",
            show_default="the mean of all heads; 1 with --layer, --step, --full or --json",
        ),
    ] = None,
    step: Annotated[
        int | None,
        number(
            "--step",
            panel=panels.VIEW,
            within=limits.LENGTH,
            help="Show one decoder step with its matrices instead of the summary; not with --json or --html.",
            show_default="a summary of all steps",
        ),
    ] = None,
    full: Annotated[
        bool,
        flag(
            "--full",
            panel=panels.VIEW,
            help="Show every matrix and every step; with --step, whole matrices. Not with --json or --html.",
        ),
    ] = False,
    neighbours: Annotated[
        bool,
        flag(
            "--neighbours",
            panel=panels.VIEW,
            help="With --full, --json or --html: show the nearest embeddings of each token; not with --step.",
        ),
    ] = False,
    json_: Annotated[bool, json_flag("Print every number as JSON.")] = False,
    html: Annotated[
        Path | None,
        output_file(
            "--html",
            panel=panels.OUTPUT,
            metavar="FILE",
            help="Write a page with every layer and head.",
            show_default="no page",
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show one translation step by step: tokens, matrices, attention, probabilities and beam search."""
    from mtcli.explain.explanation import explain as explain_translation
    from mtcli.runtime.outputs import check_outputs
    from mtcli.runtime.wording import counted
    from mtcli.translate.loading import load_with_pytorch
    from mtcli.translate.streams import arguments

    target = only_target(to)
    _check_options(step, full, neighbours, json_, html)
    models = model or [LATEST]
    check_outputs([html, "-"], models=models)
    (sentence,) = arguments([text.replace("\n", " ")])
    backend = load_with_pytorch(models, device)
    if target:
        backend.check_target(target)
    _check_layer_and_head(backend, layer, head)
    options = backend.default_options.with_given({"to": target, "beam_size": beam_size})
    explanation = explain_translation(backend, sentence, options, neighbours=neighbours)
    if step is not None and step > len(explanation.steps):
        raise UsageError(f"--step {step}: this translation has {counted(len(explanation.steps), 'step')}")
    layer_index = _index(layer)
    head_index = _index(head)
    if html is not None:
        _write_page(html, explanation, layer_index, head_index)
    if json_:
        _print_json(explanation, layer_index or 0, head_index or 0)
    elif html is None:
        _print_text(explanation, layer_index, head_index, _index(step), full)


def _check_options(step: int | None, full: bool, neighbours: bool, json_: bool, html: Path | None) -> None:
    """Refuse options that would have no effect together.

    Raises:
        UsageError: An option has no effect.
    """
    shows_all = json_ or html is not None
    if step is not None and shows_all:
        raise UsageError("--step: not with --json or --html, which show all steps")
    if full and shows_all:
        raise UsageError("--full: not with --json or --html, which contain every step already")
    if neighbours and step is not None:
        raise UsageError("--neighbours: not with --step")
    if neighbours and not (full or shows_all):
        raise UsageError("--neighbours: only with --full, --json or --html")


def _check_layer_and_head(backend: "PyTorchBackend", layer: int | None, head: int | None) -> None:
    """Check that the model has this layer and head.

    Raises:
        UsageError: It has fewer.
    """
    shape = backend.model.config
    layers = max(shape.num_encoder_layers, shape.num_decoder_layers)
    if layer is not None and layer > layers:
        raise UsageError(f"--layer {layer}: this model has {layers}")
    if head is not None and head > shape.num_heads:
        raise UsageError(f"--head {head}: this model has {shape.num_heads}")


def _index(number_from_1: int | None) -> int | None:
    return None if number_from_1 is None else number_from_1 - 1


def _write_page(path: Path, explanation: "Explanation", layer: int | None, head: int | None) -> None:
    from mtcli.explain.page import to_html
    from mtcli.runtime.outputs import write_whole

    write_whole(path, to_html(explanation, layer, head).encode())
    note(f"wrote {path}")


def _print_json(explanation: "Explanation", layer: int, head: int) -> None:
    from mtcli.explain.as_json import to_dict

    print(json.dumps(to_dict(explanation, layer, head), ensure_ascii=False))


def _print_text(explanation: "Explanation", layer: int | None, head: int | None, step: int | None, full: bool) -> None:
    from mtcli.explain.text import to_text

    is_terminal = sys.stdout.isatty()
    text = to_text(
        explanation,
        layer,
        head,
        step=step,
        full=full,
        colour=is_terminal and "NO_COLOR" not in os.environ,
        width=shutil.get_terminal_size().columns if is_terminal else None,
    )
    print(text, end="")
