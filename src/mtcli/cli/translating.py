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
    must_exist,
)
from mtcli.errors import UsageError

N_BEST_HELP = (
    "Different translations of each line; the first is the same whatever N is. Where the beam finds fewer, wider "
    "searches add to them; with --sample, up to 4 × N are drawn."
)


def translate(
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences to translate.")] = None,
    input_: Annotated[str | None, typer.Option("-i", "--input", metavar="FILE|-", help="A file; - is stdin.")] = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE|-", help="Where to write.")] = "-",
    model: ModelOption = LATEST,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    n_best: Annotated[int, bounded(within=limits.BEAM_SIZE, metavar="N", help=N_BEST_HELP)] = 1,
    max_length: Annotated[int | None, bounded(within=limits.LENGTH, help="Most pieces of a translation.")] = None,
    no_repeat_ngram: Annotated[
        int | None,
        bounded(within=limits.LENGTH, metavar="N", help="Let no N pieces in a row come twice in a translation."),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw pieces at random.")] = False,
    temperature: Annotated[
        float | None, bounded(within=limits.TEMPERATURE, help="With --sample; below 1 is safer. 1 unless given.")
    ] = None,
    top_k: Annotated[
        int | None, bounded(within=limits.TOP_K, help="With --sample: among the K likeliest pieces.")
    ] = None,
    seed: Annotated[int | None, bounded(within=limits.SEED, help="With --sample; 1 unless given.")] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Begin every translation with this.")] = "",
    format_: Annotated[str, typer.Option("--format", metavar="text|json|nbest", help="Of the output.")] = "text",
    scores: Annotated[
        bool,
        typer.Option("--scores", help="The score of each translation, and a tab, first; a blank line stays blank."),
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="A tab, and which source word each word comes from (0-0 1-2), last; a blank line stays blank.",
        ),
    ] = False,
    replace: ReplaceOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Translate arguments, a file, standard input, or line by line at a terminal. One line in, one line out."""
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

    from mtcli.inference.ctranslate2_backend import load
    from mtcli.inference.streams import formatted, translations
    from mtcli.runtime import torchrun
    from mtcli.runtime.outputs import check_outputs, is_special, open_output
    from mtcli.runtime.progress import on_terminal

    if torchrun.size() > 1 and "-" in (input_ or "-", output):
        raise UsageError("several workers share files, not standard input or output; give --input FILE --output FILE")
    if torchrun.size() > 1 and is_special(Path(output)):
        raise UsageError(f"--output {output}: several workers write a regular file; give another")
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
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence.")],
    model: ModelOption = LATEST,
    layer: Annotated[
        int | None,
        bounded(within=limits.LAYERS, metavar="N", help="Encoder and decoder layer; the sharpest cross-attention."),
    ] = None,
    head: Annotated[
        int | None, bounded(within=limits.HEADS, metavar="N", help="Attention head; the mean of all heads.")
    ] = None,
    step: Annotated[
        int | None, bounded(within=limits.LENGTH, metavar="N", help="Only this decoder step, in detail.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every matrix and every step.")] = False,
    neighbours: Annotated[bool, typer.Option("--neighbours", help="The nearest embeddings of each token.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Every number as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="A page with every layer and head.")
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
    from mtcli.runtime.distributed import pick_device
    from mtcli.runtime.outputs import check_outputs, write_whole

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
        print(f"wrote {html}", file=sys.stderr)
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
