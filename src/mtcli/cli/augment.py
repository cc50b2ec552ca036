"""`mtcli augment`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.input_files import check_monolingual
from mtcli.cli.option_kinds import choice, decimal, flag, language_option, number, option, output_file
from mtcli.cli.options import (
    LATEST,
    BeamOption,
    DeviceOption,
    ForceOption,
    ModelsOption,
    ReplaceOption,
    ToOption,
    TopKOption,
    model_option,
    only_target,
)
from mtcli.cli.process import note
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.recipes.augment import AugmentModels, Synthesis, SynthesisMethod

EXAMPLES = (
    "mtcli augment --model runs/deen -i mono.de -o synthetic.tsv",
    "mtcli augment --model runs/deen --reverse runs/ende -i mono.de -o synthetic.tsv --keep 0.8 --tag",
    "mtcli augment --model runs/ende --forward -i mono.en -o synthetic.jsonl.gz",
)


def augment(
    input_: Annotated[
        str,
        option("-i", "--input", panel=panels.DATA, metavar="FILE", help="Text in one language, one sentence per line."),
    ],
    output: Annotated[
        Path,
        output_file(
            "-o",
            "--output",
            panel=panels.OUTPUT,
            metavar="FILE",
            help="The pairs to write: x.tsv or x.jsonl, also with .gz. They have columns or keys for the scores.",
        ),
    ],
    replace: ReplaceOption = False,
    model: ModelsOption = None,
    reverse: Annotated[
        Path | None,
        model_option(
            "--reverse",
            metavar="DIR",
            help="A model of the opposite direction, which scores the pairs too.",
            show_default="only --model scores them",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        language_option(
            "--from",
            help="Language of the text, if the model translates from several.",
            show_default="the source language of the model",
        ),
    ] = None,
    to: ToOption = None,
    forward: Annotated[
        bool,
        flag(
            "--forward",
            panel=panels.DATA,
            help="The translations are the targets of the pairs (self-training). By default they are the sources "
            "(back-translation), and the text is in the target language of the pairs.",
        ),
    ] = False,
    tag: Annotated[
        bool,
        flag(
            "--tag",
            panel=panels.DATA,
            help="Begin each synthetic source with the token <bt>, so that the model can tell it from others.",
        ),
    ] = False,
    method: Annotated[
        str,
        choice(
            "--method",
            panel=panels.SEARCH,
            values=("beam", "sample", "noise"),
            help="How to translate. beam: the best translation. sample: one drawn at random. noise: the best one with "
            "words dropped and moved.",
        ),
    ] = "beam",
    beam_size: BeamOption = None,
    n_best: Annotated[
        int,
        number("--n-best", panel=panels.SEARCH, within=limits.BEAM_SIZE, help="Translations, and pairs, of each line."),
    ] = 1,
    top_k: TopKOption = None,
    seed: Annotated[
        int | None,
        number(
            "--seed",
            panel=panels.SAMPLING,
            within=limits.SEED,
            help="The seed of --method sample and noise.",
            show_default="1",
        ),
    ] = None,
    keep: Annotated[
        float,
        number(
            "--keep",
            panel=panels.OUTPUT,
            within=limits.SHARE,
            parser=decimal,
            metavar="SHARE",
            help="Write only this share of the pairs, those with the best scores.",
        ),
    ] = 1.0,
    force: ForceOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Make synthetic training pairs from text in one language. If it was interrupted, run the same command again."""
    if top_k is not None and method != "sample":
        raise UsageError("--top-k: only with --method sample")
    if seed is not None and method == "beam":
        raise UsageError("--seed: only with --method sample or noise")
    if tag and forward:
        raise UsageError("--tag: not with --forward, whose sources are not synthetic")
    if forward and method == "noise":
        raise UsageError("--method noise: not with --forward: a model would learn to write targets with noise")
    if beam_size is not None and method == "sample":
        raise UsageError("--beam-size: not with --method sample")

    from mtcli.recipes.augment import Synthesis, augment
    from mtcli.recipes.augment_output import PairOutput
    from mtcli.runtime.outputs import check_outputs
    from mtcli.translate.backends.exported import provenance

    target = only_target(to)
    check_monolingual({"--input": input_})
    folders = model or [LATEST]
    synthesis = Synthesis(cast("SynthesisMethod", method), forward, tag, n_best, keep, 1 if seed is None else seed)
    search = {"beam_size": beam_size, "top_k": top_k}
    given = {name: value for name, value in search.items() if value is not None}
    PairOutput(output, "", "").check()
    check_outputs([output], [input_], models=[*folders, reverse], force=force)
    if method == "sample" and any(provenance(folder) is not None for folder in folders):
        raise UsageError("--method sample: not with an exported model; give the run itself with --model")
    models = _load(folders, reverse, given, device, from_, target)
    src, tgt = models.languages if forward else reversed(models.languages)
    chosen = {**given, "replace": replace, "from": from_, "to": target}
    identity = _identity(input_, folders, reverse, synthesis, chosen)
    pairs = PairOutput(output, src, tgt)
    report = augment(Path(input_), pairs, models, synthesis, identity, replace_invalid=replace, force=force)
    for line in str(report).split("\n"):
        note(line)


def _load(
    folders: Sequence[Path], reverse: Path | None, given: dict[str, Any], device: str, src: str | None, to: str | None
) -> "AugmentModels":
    """Load the models.

    Args:
        folders: `--model`.
        reverse: `--reverse`.
        given: The options of the search that are set.
        device: `--device`.
        src: `--from`.
        to: `--to`.

    Raises:
        UsageError: The model does not have this direction, or `reverse` not the opposite one.
        ModelError: A folder has no usable model.
    """
    from dataclasses import replace

    from mtcli.recipes.augment import AugmentModels, chosen_direction
    from mtcli.runtime.device import pick_device
    from mtcli.translate.backends.pytorch import PyTorchBackend
    from mtcli.translate.loading import load

    translator, options, _ = load(folders, device, given=given)
    direction = chosen_direction(translator.backend, src, to)
    if translator.tokenizer.tags and (to is not None or translator.backend.info.directions):
        options = replace(options, to=direction.tgt)
    scorer = None
    if reverse is not None:
        scorer = PyTorchBackend.load(reverse, pick_device(device))
        if direction.reversed() not in scorer.directions:
            raise UsageError(
                f"--reverse {reverse}: translates {', '.join(map(str, scorer.directions))}; this needs a model of "
                f"{direction.reversed()}"
            )
    return AugmentModels(translator, options, direction, scorer)


def _identity(
    input_: str, folders: Sequence[Path], reverse: Path | None, synthesis: "Synthesis", given: dict[str, Any]
) -> dict[str, Any]:
    """Return everything that decides the pairs, by the name that a message can use."""
    from mtcli import __version__
    from mtcli.runtime.files import sha256
    from mtcli.storage.model_folder import model_digest

    digests = {
        "--model": [model_digest(folder) for folder in folders],
        "--reverse": model_digest(reverse) if reverse else None,
    }
    options = {f"--{name.replace('_', '-')}": value for name, value in {**asdict(synthesis), **given}.items()}
    return {"--input": sha256(Path(input_)), **digests, **options, "the version of mtcli": __version__}
