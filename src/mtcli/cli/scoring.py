"""`mtcli eval`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.options import (
    LATEST,
    BeamOption,
    DeviceOption,
    EngineOption,
    LengthPenaltyOption,
    ModelOption,
    ReplaceOption,
)
from mtcli.errors import DataError, UsageError


def evaluate(
    model: ModelOption = LATEST,
    bleu: Annotated[bool, typer.Option("--bleu", help="BLEU (the default).")] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="chrF.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="TER.")] = False,
    split: Annotated[str, typer.Option(metavar="test|valid", help="Of the model's own data.")] = "test",
    src_file: Annotated[str | None, typer.Option(metavar="FILE", help="Sources to translate; - is stdin.")] = None,
    ref_file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="References; may be given several times.")
    ] = None,
    hyp_file: Annotated[str | None, typer.Option(metavar="FILE", help="Score these translations instead.")] = None,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="95% intervals by bootstrap.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str | None, typer.Option(help="sacrebleu's tokenizer for BLEU; 13a unless given.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="sacrebleu's own JSON.")] = False,
    replace: ReplaceOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Score a model on its test split, on two files, or score finished translations. sacrebleu, with signatures."""
    from mtcli import evaluate

    if split not in ("test", "valid"):
        raise UsageError(f"--split {split}: choose from test, valid")
    if (src_file or hyp_file) and not ref_file:
        raise UsageError("give the references with --ref-file")
    if ref_file and not (src_file or hyp_file):
        raise UsageError("give --src-file to translate, or --hyp-file to score")

    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
    sources: list[str] = []
    translate = None if hyp_file else _translator(model, device, engine, beam_size, length_penalty)
    if ref_file:
        references = [list(lines_of(path, replace=replace)) for path in ref_file]
        if src_file:
            sources = list(lines_of(src_file, replace=replace))
    else:
        from mtcli.prepare import read_split

        pairs = read_split(model, split)
        sources, references = [s for s, _ in pairs], [[t for _, t in pairs]]
    if translate is None:
        hypotheses = list(lines_of(hyp_file or "-", replace=replace))
    else:
        if len(sources) != len(references[0]):
            raise DataError(f"{src_file} has {len(sources)} lines, {(ref_file or ['?'])[0]} {len(references[0])}")
        hypotheses = translate(sources)
    wanted = [name for name, on in (("bleu", bleu), ("chrf", chrf), ("ter", ter)) if on] or ["bleu"]
    found = evaluate.score(
        hypotheses,
        references,
        metrics=wanted,  # type: ignore[arg-type]
        lowercase=lowercase,
        tokenize=tokenize,
        confidence=confidence,
    )
    print(evaluate.to_json(found) if json_ else evaluate.to_text(found))


def _translator(
    model: Path, device: str, engine: str | None, beam_size: int | None, length_penalty: float | None
) -> Callable[[list[str]], list[str]]:
    """What translates lines with the model; loaded first, since without a model nothing else matters."""
    from dataclasses import replace as with_changes

    from mtcli.engine import load

    translator, options = load(model, device, engine)
    if beam_size is not None:
        options = with_changes(options, beam_size=beam_size)
    if length_penalty is not None:
        options = with_changes(options, length_penalty=length_penalty)
    return lambda sources: [t.text for t in translator.translate(sources, options, total=len(sources))]
