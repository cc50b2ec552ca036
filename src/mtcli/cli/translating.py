"""`mtcli translate` and `mtcli explain`."""

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli.options import (
    LATEST,
    BeamOption,
    DeviceOption,
    EngineOption,
    LengthPenaltyOption,
    ModelOption,
    ReplaceOption,
    bounded,
    flag,
    must_exist,
    note,
)
from mtcli.errors import UsageError

N_BEST_HELP = (
    "Different translations of each line; the first is the same whatever N is. Where the beam finds fewer, wider "
    "searches add to them; with --sample, up to 4 × N are drawn."
)


def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Sentences to translate; without any, standard input is read."),
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option(
            "-i", "--input", metavar="FILE|-", help="A file to translate, one sentence per line; - is standard input."
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE|-", help="The file to write; - is standard output.")
    ] = "-",
    model: ModelOption = LATEST,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    n_best: Annotated[int, bounded(within=limits.BEAM_SIZE, metavar="N", help=N_BEST_HELP)] = 1,
    max_length: Annotated[
        int | None,
        bounded(
            within=limits.LENGTH, help="Most tokens of a translation.", show_default="those of the source and 50 more"
        ),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        bounded(
            within=limits.LENGTH,
            metavar="N",
            help="Never repeat a sequence of N tokens within a translation.",
            show_default="repetition is allowed",
        ),
    ] = None,
    sample: Annotated[bool, flag("--sample", help="Sample tokens at random instead of searching.")] = False,
    temperature: Annotated[
        float | None,
        bounded(
            within=limits.TEMPERATURE, help="With --sample: values below 1 favour likely tokens.", show_default="1"
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        bounded(
            within=limits.TOP_K, help="With --sample: draw from the K most likely tokens.", show_default="all tokens"
        ),
    ] = None,
    seed: Annotated[
        int | None, bounded(within=limits.SEED, help="With --sample: the seed of the random numbers.", show_default="1")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Text that every translation must begin with.")] = "",
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="text|json|nbest", help="Output format; nbest is Moses' id ||| text ||| scores."
        ),
    ] = "text",
    scores: Annotated[
        bool,
        flag("--scores", help="Begin each line with the score and a tab; a blank line stays blank."),
    ] = False,
    alignments: Annotated[
        bool,
        flag(
            "--alignments",
            help="End each line with a tab and the word alignment (0-0 1-2); a blank line stays blank.",
        ),
    ] = False,
    replace: ReplaceOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Translate sentences, a file or standard input, one line in, one line out; at a terminal, what you type."""
    if format_ not in ("text", "json", "nbest"):
        raise UsageError(f"--format {format_}: choose from text, json, nbest")
    if text and input_:
        raise UsageError(f"give either sentences or --input {input_}, not both")
    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
    given = {name: value for name, value in sampling.items() if value is not None}
    if given and not sample:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')}: only with --sample")
    from dataclasses import replace as with_changes
    from functools import partial

    from mtcli.inference.loading import load
    from mtcli.inference.streams import formatted, translations
    from mtcli.runtime import torchrun
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.runtime.outputs import is_special, open_output
    from mtcli.runtime.progress import on_terminal

    if torchrun.size() > 1 and "-" in (input_ or "-", output):
        raise UsageError("several ranks translate files, not standard input or output; give --input FILE --output FILE")
    if torchrun.size() > 1 and is_special(Path(output)):
        raise UsageError(f"--output {output}: several ranks write a regular file; give another")
    check_outputs([output], [] if text else [input_ or "-"], models=[model])
    must_exist(input_)
    translator, options, _ = load(model, device, engine)
    for name in filter(os.path.isfile, text or ()):
        told = "%s: translated as a sentence, though there is a file of that name; -i %s translates its lines"
        logging.getLogger(__name__).warning(told, name, name)
    options = with_changes(
        options,
        beam_size=options.beam_size if beam_size is None else beam_size,
        length_penalty=options.length_penalty if length_penalty is None else length_penalty,
        n_best=n_best,
        max_length=max_length,
        prefix=prefix,
        no_repeat_ngram=no_repeat_ngram or 0,
        sample=sample,
        alignments=alignments,
        **given,
    )
    render = partial(formatted, format_=format_, scores=scores, alignments=alignments, draws=sample)
    if torchrun.size() > 1:
        from mtcli.inference.sharding import translate_file

        translate_file(translator, str(input_), Path(output), options, render, replace=replace)
        return
    with open_output(output) as stream:
        shared = output == "-" and on_terminal(sys.stdout)
        found_all = translations(translator, text, input_, options, replace=replace, quiet=shared)
        for number, found in enumerate(found_all):
            stream.write("".join(f"{line}\n" for line in render(found, number)))
            stream.flush()


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence to translate.")],
    model: ModelOption = LATEST,
    layer: Annotated[
        int | None,
        bounded(
            within=limits.LAYERS,
            metavar="N",
            help="The encoder and decoder layer to show.",
            show_default="that of the sharpest cross-attention",
        ),
    ] = None,
    head: Annotated[
        int | None,
        bounded(
            within=limits.HEADS,
            metavar="N",
            help="The attention head to show.",
            show_default="the mean of all heads",
        ),
    ] = None,
    step: Annotated[
        int | None,
        bounded(
            within=limits.LENGTH,
            metavar="N",
            help="Show only this decoder step, in detail.",
            show_default="every step, with --full",
        ),
    ] = None,
    full: Annotated[bool, flag("--full", help="Show every matrix and every step.")] = False,
    neighbours: Annotated[bool, flag("--neighbours", help="Show the nearest embeddings of each token.")] = False,
    json_: Annotated[bool, flag("--json", help="Print every number as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with every layer and head.")
    ] = None,
    beam_size: BeamOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Show one translation step by step: tokens, matrices, attention, probabilities and beam search."""
    from dataclasses import replace as with_changes

    from mtcli.explain.as_json import to_dict
    from mtcli.explain.explanation import explain as explain_translation
    from mtcli.explain.page import to_html
    from mtcli.explain.text import to_text
    from mtcli.inference.pytorch_backend import Translator
    from mtcli.inference.streams import arguments
    from mtcli.runtime.device import pick_device
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.runtime.outputs import write_whole

    if str(html) == "-":
        raise UsageError("--html -: the page is written to a file; name one")
    check_outputs([html, "-"], models=[model])
    (text,) = arguments([text.replace("\n", " ")])
    translator, options, _ = Translator.load(model, pick_device(device))
    shape = translator.model.config
    layers = max(shape.num_encoder_layers, shape.num_decoder_layers)
    for name, value, most in (("--layer", layer, layers), ("--head", head, shape.num_heads)):
        if value is not None and value > most:
            raise UsageError(f"{name} {value}: this model has {most}")
    layer_index = None if layer is None else layer - 1
    head_index = None if head is None else head - 1
    step_index = None if step is None else step - 1
    if beam_size is not None:
        options = with_changes(options, beam_size=beam_size)
    found = explain_translation(translator, text, options, neighbours=neighbours)
    if step is not None and step > len(found.steps):
        raise UsageError(f"--step {step}: this translation has {len(found.steps)} steps")
    if html is not None:
        write_whole(html, to_html(found, layer_index, head_index).encode())
        note(f"wrote {html}")
    if json_:
        import json

        print(json.dumps(to_dict(found, layer_index or 0, head_index or 0), ensure_ascii=False))
    elif html is None:
        is_terminal = sys.stdout.isatty()
        text = to_text(
            found,
            layer_index,
            head_index,
            step=step_index,
            full=full,
            colour=is_terminal and "NO_COLOR" not in os.environ,
            width=shutil.get_terminal_size().columns if is_terminal else None,
        )
        print(text, end="")
