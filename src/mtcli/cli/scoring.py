"""`mtcli eval` and `mtcli score`."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli.cli.options import (
    LATEST,
    BeamOption,
    DeviceOption,
    EngineOption,
    LengthPenaltyOption,
    ModelOption,
    ReplaceOption,
    flag,
    must_exist,
    note,
)
from mtcli.errors import DataError, UsageError

log = logging.getLogger(__name__)


def evaluate(
    model: ModelOption = LATEST,
    bleu: Annotated[bool, flag("--bleu", help="Compute BLEU; this is what is computed if no metric is named.")] = False,
    chrf: Annotated[bool, flag("--chrf", help="Compute chrF.")] = False,
    ter: Annotated[bool, flag("--ter", help="Compute TER.")] = False,
    split: Annotated[str, typer.Option(metavar="test|valid", help="The pairs of the run to score on.")] = "test",
    src_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Source sentences to translate and score, one per line; - is standard input."
        ),
    ] = None,
    ref_file: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Reference translations, one per line; repeat it for several references."),
    ] = None,
    hyp_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Score these finished translations; no model is used.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="DIR|FILE",
            help="Another model, or a file of its translations, to test for a significant difference.",
        ),
    ] = None,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    by_length: Annotated[bool, flag("--by-length", help="Also compute BLEU by length of the source.")] = False,
    confidence: Annotated[
        bool, flag("--confidence", help="Add 95% confidence intervals by bootstrap resampling.")
    ] = False,
    lowercase: Annotated[bool, flag("--lowercase", help="Ignore upper and lower case.")] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tokenizer that sacrebleu uses for BLEU.",
            show_default="by target language, usually 13a",
        ),
    ] = None,
    json_: Annotated[bool, flag("--json", help="Print JSON; without --compare it is sacrebleu's own format.")] = False,
    replace: ReplaceOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Score a model on its test pairs or on files, or score finished translations. Scores are sacrebleu's."""
    from mtcli.evaluation import metrics
    from mtcli.runtime.output_checks import check_outputs

    other = Path(against) if against and Path(against).is_dir() else None
    _check_use(split, src_file, ref_file, hyp_file, against, needs_sources=by_length or other is not None)
    if by_length and json_:
        raise UsageError("--by-length: not with --json")
    if tokenize is not None:
        metrics.check_tokenizer(tokenize)
    files = [src_file, hyp_file, *(ref_file or ()), None if other else against]
    check_outputs(["-"], files, models=[None if hyp_file else model, other])
    must_exist(*files)  # before minutes of translating

    from mtcli.data.overlap import warn_of_training_sources
    from mtcli.report.messages import first_remark

    translator = None if hyp_file else _translator(model, device, engine, beam_size, length_penalty)
    other_translator = _translator(other, device, engine, beam_size, length_penalty) if other else None
    if ref_file:
        sources, references = _files(src_file, ref_file, replace)
    else:
        sources, references = _split(model, other, split)
    if tokenize is None:
        tokenize = _tokenizer(model, translator, other_translator)
        metrics.check_tokenizer(tokenize)
    chosen: Any = [name for name, on in (("bleu", bleu), ("chrf", chrf), ("ter", ter)) if on] or ["bleu"]
    _warn_of_spaces(references[0], chosen, tokenize)
    for folder in (model if translator else None, other):
        if folder and sources:
            warn_of_training_sources(folder, sources)

    hypotheses = _translations(translator, sources, hyp_file, replace)
    if tokenize != "none" and metrics.looks_tokenised(hypotheses):
        told = "score raw text, or take --tokenize none and compare with nothing else"
        log.warning("these translations look tokenised already: %s", told)
    systems = [hypotheses]
    how: Any = {"lowercase": lowercase, "tokenize": tokenize}
    if against:
        systems.append(_translations(other_translator, sources, against, replace))
        compared = metrics.compare(hypotheses, systems[1], references, sources, metrics=chosen, **how)
        note(f"A is {hyp_file or model}, B is {against}")
        print(compared.to_json() if json_ else compared.to_text())
    else:
        scores = metrics.score(hypotheses, references, metrics=chosen, confidence=confidence, **how)
        print(metrics.to_json(scores) if json_ else metrics.to_text(scores))
        remark = first_remark((one.name, one.value) for one in scores)
        if remark and not (translator and _is_demo(model)):
            log.warning("%s", remark)
    if by_length:
        buckets = [metrics.by_source_length(sources or [], system, references, **how) for system in systems]
        print(metrics.lengths_to_text(buckets))


def _check_use(
    split: str,
    src_file: str | None,
    ref_file: list[str] | None,
    hyp_file: str | None,
    against: str | None,
    *,
    needs_sources: bool,
) -> None:
    """See that the options name something to score and something to score it against.

    Raises:
        UsageError: They do not.
    """
    if split not in ("test", "valid"):
        raise UsageError(f"--split {split}: choose from test, valid")
    if (src_file or hyp_file) and not ref_file:
        raise UsageError("give the references with --ref-file")
    if ref_file and not (src_file or hyp_file):
        raise UsageError("give --src-file to translate, or --hyp-file to score")
    if ref_file and not src_file and needs_sources:
        option = f"--compare {against}" if against and Path(against).is_dir() else "--by-length"
        raise UsageError(f"{option}: needs the sources; give --src-file")


def _files(src_file: str | None, ref_files: list[str], replace: bool) -> tuple[list[str] | None, list[list[str]]]:
    """The sources, if there is a file of them, and each set of references."""
    from mtcli.inference.streams import lines_of

    references = [list(lines_of(path, replace=replace)) for path in ref_files]
    if not src_file:
        return None, references
    sources = list(lines_of(src_file, replace=replace))
    if len(sources) != len(references[0]):
        raise DataError(f"{src_file} has {len(sources)} lines, {ref_files[0]} {len(references[0])}")
    return sources, references


def _split(model: Path, other: Path | None, split: str) -> tuple[list[str], list[list[str]]]:
    """Sources and references of a model's own test or validation pairs.

    Raises:
        UsageError: Another run has other pairs: each may have been trained on pairs that test the other.
    """
    from mtcli.data.splits import read_split

    pairs = read_split(model, split)
    exists = other is not None and (other / "data" / f"{split}.jsonl").exists()  # an exported model has none
    if other and exists and sorted(read_split(other, split, missing_ok=True)) != sorted(pairs):
        raise UsageError(
            f"--compare {other}: its {split} pairs are not those of {model}, and it may be trained on some of these; "
            "give pairs that neither was trained on by --src-file and --ref-file"
        )
    return [src for src, _ in pairs], [[tgt for _, tgt in pairs]]


def _translations(
    translator: "_Translator | None", sources: list[str] | None, path: str | None, replace: bool
) -> list[str]:
    """Those of a model, or those in a file."""
    from mtcli.inference.streams import lines_of

    return translator.translate(sources or []) if translator else list(lines_of(path or "-", replace=replace))


@dataclass(frozen=True)
class _Translator:
    """A model that is loaded, and its target language."""

    translate: Callable[[list[str]], list[str]]
    tgt: str


def _translator(
    model: Path, device: str, engine: str | None, beam_size: int | None, length_penalty: float | None
) -> _Translator:
    """Load a model; this comes first, since without a model nothing else matters."""
    from dataclasses import replace as with_changes

    from mtcli.inference.loading import load

    translator, options, (_, tgt) = load(model, device, engine)
    if beam_size is not None:
        options = with_changes(options, beam_size=beam_size)
    if length_penalty is not None:
        options = with_changes(options, length_penalty=length_penalty)

    def translate(sources: list[str]) -> list[str]:
        return [t.text for t in translator.translate(sources, options, total=len(sources))]

    return _Translator(translate, tgt)


def _is_demo(model: Path) -> bool:
    """Return True for a run of the built-in demo, which is known to be easy."""
    from mtcli.config.toml_file import load

    path = model / "config.toml"
    return path.is_file() and not load(path).data.train


def _tokenizer(model: Path, *translators: _Translator | None) -> str:
    """BLEU's tokenizer where none is given: that of the run's training, or of the target language.

    Translations in a file have the language of the model that `--model` names, if it is a run.
    """
    from mtcli.config.toml_file import load
    from mtcli.config.writing_systems import DEFAULT, bleu_tokenizer, tokenizer_of

    named = translators[0] is not None or model != LATEST
    if named and (model / "config.toml").is_file():
        return tokenizer_of(load(model / "config.toml"))
    loaded = [translator for translator in translators if translator]
    return bleu_tokenizer(loaded[0].tgt) if loaded else DEFAULT


def _warn_of_spaces(references: list[str], chosen: list[str], tokenizer: str) -> None:
    """Warn where a score counts the words of a language that is written without spaces between them."""
    from mtcli.config.writing_systems import advice, unspaced

    wrong = advice(references, tokenizer) if "bleu" in chosen else None
    if wrong:
        log.warning("the references are %s (--tokenize)", wrong)
    if "ter" in chosen and unspaced(references):
        log.warning("the references are written without spaces, and TER counts words between spaces: use --chrf")


def score(
    src_file: Annotated[Path, typer.Option(metavar="FILE", help="Source sentences, one per line.")],
    tgt_file: Annotated[Path, typer.Option(metavar="FILE", help="Their translations, one per line.")],
    model: ModelOption = LATEST,
    replace: ReplaceOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Score given translations with the model: log P(y | x) in nats, a tab, and its mean per token, for each line.

    A pair with a blank side gives a blank line.
    """
    from mtcli.data.corpus import two_files
    from mtcli.data.lines import Counts
    from mtcli.inference.pytorch_backend import Translator
    from mtcli.inference.scoring import likelihoods
    from mtcli.inference.streams import report_counts
    from mtcli.runtime.device import pick_device
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.runtime.progress import on_terminal

    check_outputs(["-"], [src_file, tgt_file], models=[model])
    must_exist(str(src_file), str(tgt_file))
    translator, *_ = Translator.load(model, pick_device(device))
    counts = Counts()
    pairs = two_files(src_file, tgt_file, replace, counts)
    for found in likelihoods(translator, pairs, quiet=on_terminal(sys.stdout)):
        print(f"{found.log_prob:.4f}\t{found.mean:.4f}" if found else "")
    report_counts(counts)
