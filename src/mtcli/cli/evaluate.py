"""`mtcli eval`."""

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mtcli.cli import completion, panels
from mtcli.cli.input_files import check_plain_text, check_standard_input, must_exist
from mtcli.cli.option_kinds import choice, flag, json_flag, option, pairs_option, text_file_option
from mtcli.cli.options import (
    LATEST,
    BeamOption,
    BleuTokenizerOption,
    DeviceOption,
    EngineOption,
    LengthPenaltyOption,
    ModelsOption,
    NoRepeatNgramOption,
    ReplaceOption,
    RerankOption,
    RerankWeightOption,
    TermsModeOption,
    TermsOption,
    ToOption,
    only_target,
)
from mtcli.cli.process import note
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.evaluation.evaluate import EvaluationRequest, Wrap
    from mtcli.evaluation.metrics import Metric
    from mtcli.evaluation.robustness import Robustness

log = logging.getLogger(__name__)

EXAMPLES = (
    "mtcli eval --bleu --chrf --confidence",
    "mtcli eval --model runs/ende --src-file in.en --ref-file ref.de",
    "mtcli eval --model runs/ende --pairs test.csv",
    "mtcli eval --hyp-file out.de --ref-file ref.de --lowercase --tokenize none",
    "mtcli eval --model runs/ende --compare runs/big --by-length",
    "mtcli eval --model runs/ende --robust",
)


def evaluate(
    split: Annotated[
        str | None,
        choice(
            "--split",
            panel=panels.DATA,
            values=("test", "valid"),
            help="The pairs of the run to score on; not with files.",
            show_default="test",
        ),
    ] = None,
    pairs: Annotated[
        str | None,
        pairs_option(
            "--pairs",
            help="Pairs to score on, in any form that `mtcli train --train` takes, such as a CSV file.",
            show_default="the pairs of the run",
        ),
    ] = None,
    src_file: Annotated[
        str | None,
        text_file_option(
            "--src-file",
            help="Source sentences to translate, one per line; - is standard input.",
            show_default="the pairs of the run",
        ),
    ] = None,
    ref_file: Annotated[
        list[str] | None,
        text_file_option(
            "--ref-file",
            help="Reference translations, one per line. Repeat the option for several references.",
            show_default="the pairs of the run",
        ),
    ] = None,
    hyp_file: Annotated[
        str | None,
        text_file_option(
            "--hyp-file",
            help="Finished translations to score, one per line.",
            show_default="the model's translations",
        ),
    ] = None,
    replace: ReplaceOption = False,
    model: ModelsOption = None,
    rerank: RerankOption = None,
    rerank_weight: RerankWeightOption = None,
    to: ToOption = None,
    bleu: Annotated[
        bool, flag("--bleu", panel=panels.SCORES, help="Compute BLEU. Without --chrf or --ter, this is the default.")
    ] = False,
    chrf: Annotated[bool, flag("--chrf", panel=panels.SCORES, help="Compute chrF.")] = False,
    ter: Annotated[bool, flag("--ter", panel=panels.SCORES, help="Compute TER.")] = False,
    compare: Annotated[
        str | None,
        option(
            "--compare",
            panel=panels.SCORES,
            metavar="DIR|FILE",
            autocompletion=completion.models,
            help="Another model, or a file of its translations, to test for a significant difference.",
            show_default="no comparison",
        ),
    ] = None,
    confidence: Annotated[
        bool,
        flag(
            "--confidence",
            panel=panels.SCORES,
            help="Add 95% confidence intervals by bootstrap resampling. --compare always adds them.",
        ),
    ] = False,
    by_length: Annotated[
        bool, flag("--by-length", panel=panels.SCORES, help="Also compute BLEU by length of the source.")
    ] = False,
    robust: Annotated[
        bool,
        flag(
            "--robust",
            panel=panels.SCORES,
            help="Score the pairs in the forms in which people type: capitals, errors, emoji, several sentences.",
        ),
    ] = False,
    as_translate: Annotated[
        bool,
        flag(
            "--as-translate",
            panel=panels.SCORES,
            help="Translate as mtcli translate does, which splits lines into sentences, recases and searches again: "
            "the scores of what users get. Otherwise, a model gets each line as it is, as for the scores of training.",
        ),
    ] = False,
    lowercase: Annotated[bool, flag("--lowercase", panel=panels.SCORES, help="Ignore upper and lower case.")] = False,
    tokenize: BleuTokenizerOption = None,
    beam_size: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    no_repeat_ngram: NoRepeatNgramOption = None,
    terms: TermsOption = None,
    terms_mode: TermsModeOption = None,
    json_: Annotated[
        bool,
        json_flag("Print JSON. Without --compare, the format is sacrebleu's."),
    ] = False,
    engine: EngineOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Score a model on its test pairs or on files, or score finished translations, with sacrebleu."""
    from mtcli.evaluation.evaluate import EvaluationRequest

    is_model = compare is not None and os.path.isdir(compare)  # noqa: PTH112 - the name may be too long for a path
    other_model = Path(compare) if compare is not None and is_model else None
    models = tuple(model or [LATEST])
    request = EvaluationRequest(
        models=models,
        model_is_named=models != (LATEST,),
        split=split or "test",
        pairs=pairs,
        src_file=src_file,
        ref_files=tuple(ref_file or ()),
        hyp_file=hyp_file,
        other_model=other_model,
        other_file=None if other_model else compare,
        metrics=_metrics(bleu, chrf, ter, robust=robust),
        to=only_target(to) or "",
        tokenize=tokenize,
        lowercase=lowercase,
        confidence=confidence,
        by_length=by_length,
        beam_size=beam_size,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        rerank=rerank,
        rerank_weight=rerank_weight,
        terms=terms,
        terms_mode=terms_mode or "auto",
        engine=engine,
        device=device,
        replace=replace,
        wrap=_translator_of_translate() if as_translate else None,
    )
    _check_combinations(request, split, terms_mode, json_)
    if robust:
        _check_robust(request)
    _check(request)
    if robust:
        _evaluate_robustness(request, json_)
    else:
        _evaluate(request, json_)


def _translator_of_translate() -> "Wrap":
    """Return the translator of lines that `mtcli translate` uses."""
    from mtcli.documents.lines import BySentence

    return BySentence


def _check_combinations(request: "EvaluationRequest", split: str | None, terms_mode: str | None, as_json: bool) -> None:
    """Refuse options that contradict each other or have no effect together.

    Args:
        request: All other options.
        split: The value of `--split`; None: it is not set.
        terms_mode: The value of `--terms-mode`; None: it is not set.
        as_json: `--json` is set.

    Raises:
        UsageError: There are such options.
    """
    has_files = bool(request.src_file or request.ref_files or request.hyp_file)
    if request.by_length and as_json:
        raise UsageError("--by-length: not with --json")
    if request.confidence and request.is_comparison:
        raise UsageError("--confidence: not with --compare, which always computes the intervals")
    if request.tokenize is not None and "bleu" not in request.metrics and not request.by_length:
        raise UsageError("--tokenize: only for BLEU; add --bleu, or omit it")
    if split is not None and has_files:
        raise UsageError("--split: not with files, which replace the pairs of the run")
    if request.rerank_weight is not None and request.rerank is None:
        raise UsageError("--rerank-weight: only with --rerank")
    if terms_mode is not None and (request.terms is None or request.hyp_file is not None):
        raise UsageError("--terms-mode: only with --terms and a model that translates")
    if request.rerank is not None and request.terms is not None:
        raise UsageError("--rerank: not with --terms")
    if request.pairs is not None and (split is not None or has_files):
        raise UsageError("--pairs: not with --split, --src-file, --ref-file or --hyp-file")


def _evaluate(request: "EvaluationRequest", as_json: bool) -> None:
    """Evaluate, and print the result."""
    from mtcli.evaluation.evaluate import evaluate, warnings_about
    from mtcli.evaluation.metrics import lengths_to_text

    evaluation = evaluate(request)
    _note_systems(request)
    print(evaluation.to_json() if as_json else evaluation.to_text())
    for warning in warnings_about(evaluation):
        log.warning("%s", warning)
    for each in evaluation.directions:
        if each.buckets:
            print(lengths_to_text(each.buckets))


def _note_systems(request: "EvaluationRequest") -> None:
    """Say which systems are compared."""
    if request.is_comparison:
        ours = request.hyp_file or " + ".join(map(str, request.models))
        note(f"A is {ours}, B is {request.other_model or request.other_file}")


def _check_robust(request: "EvaluationRequest") -> None:
    """Refuse options that have no meaning for the forms in which people type.

    Raises:
        UsageError: One of them is set.
    """
    options = {
        "--ter": "ter" in request.metrics,
        "--compare": request.is_comparison,
        "--confidence": request.confidence,
        "--by-length": request.by_length,
        "--hyp-file": request.hyp_file is not None,
        "--terms": request.terms is not None,
    }
    for name, is_set in options.items():
        if is_set:
            raise UsageError(f"{name}: not with --robust")
    if len(request.ref_files) > 1:
        raise UsageError("--robust: give one --ref-file")


def _evaluate_robustness(request: "EvaluationRequest", as_json: bool) -> None:
    """Evaluate the forms in which people type, and print the result."""
    from mtcli.evaluation.evaluate import evaluate_robustness
    from mtcli.evaluation.robustness import MAX_PAIRS

    way = "as by mtcli translate" if request.wrap else "as they are, without what mtcli translate does first"
    note(f"each form: the first {MAX_PAIRS} pairs that can have it; lines translated {way}")
    found = evaluate_robustness(request)
    print(found.to_json() if as_json else found.to_text())
    if request.is_of_the_run:
        _record_robustness(request.model, found)


def _record_robustness(run: Path, found: "Robustness") -> None:
    """Write the scores into the run, and into its report."""
    from mtcli.report.robustness import record

    try:
        record(run, json.loads(found.to_json()))
    except OSError as error:
        log.warning("%s: the scores could not be added to the report (%s)", run, error.strerror)
        return
    note(f"added to {run / 'report.html'}")


def _metrics(bleu: bool, chrf: bool, ter: bool, *, robust: bool = False) -> "tuple[Metric, ...]":
    """Return the chosen metrics. If none is chosen, this is BLEU, or BLEU and chrF for the forms of `--robust`."""
    chosen: list[Metric] = []
    is_default = not (bleu or chrf or ter)
    if bleu or is_default:
        chosen.append("bleu")
    if chrf or (robust and is_default):
        chosen.append("chrf")
    if ter:
        chosen.append("ter")
    return tuple(chosen)


def _check(request: "EvaluationRequest") -> None:
    """Check that the options name something to score and something to score it against, before minutes of work.

    Raises:
        UsageError: They do not.
        DataError: A file cannot be read.
    """
    from mtcli.evaluation.metrics import check_tokenizer
    from mtcli.runtime.outputs import check_outputs

    if (request.src_file or request.hyp_file) and not request.ref_files:
        raise UsageError("give the references with --ref-file")
    if request.ref_files and not (request.src_file or request.hyp_file):
        raise UsageError("give --src-file to translate, or --hyp-file to score")
    if request.ref_files and not request.src_file:
        if request.other_model:
            raise UsageError(f"--compare {request.other_model}: needs the sources; give --src-file")
        if request.by_length:
            raise UsageError("--by-length: needs the sources; give --src-file")
        if request.terms:
            raise UsageError("--terms: needs the sources; give --src-file")
    if request.hyp_file and request.rerank:
        raise UsageError("--rerank: only with a model that translates, not with finished translations")
    if request.hyp_file and len(request.models) > 1:
        raise UsageError("--model: give one at most with --hyp-file, because no model translates")
    if request.hyp_file and not request.other_model:
        _refuse_search_options(request)
    if request.length_penalty is not None and request.beam_size == 1 and request.terms is None:
        log.warning("--length-penalty: has no effect on the single hypothesis of --beam-size 1")
    if request.tokenize is not None:
        check_tokenizer(request.tokenize)
    files = {"--src-file": request.src_file, "--hyp-file": request.hyp_file, "--compare": request.other_file}
    for number, file in enumerate(request.ref_files, 1):
        files["--ref-file" if number == 1 else f"--ref-file (number {number})"] = file
    check_standard_input(files)
    check_plain_text(files, "give a table of sources and references with --pairs")
    models = () if request.hyp_file else request.models
    check_outputs(["-"], [*files.values(), request.pairs], models=[*models, request.rerank, request.other_model])
    must_exist(*files.values(), str(request.terms) if request.terms else None)


def _refuse_search_options(request: "EvaluationRequest") -> None:
    """Refuse the options of the search where no model translates.

    Raises:
        UsageError: One of them is set.
    """
    options = {
        "--to": request.to or None,
        "--beam-size": request.beam_size,
        "--length-penalty": request.length_penalty,
        "--no-repeat-ngram": request.no_repeat_ngram,
        "--engine": request.engine,
        "--as-translate": request.wrap,
    }
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name}: only with a model that translates, not with finished translations")
