"""`mtcli data`: check and clean sentence pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.option_kinds import decimal, json_flag, number, only, output_file, pairs_option
from mtcli.cli.options import ForceOption, SrcOption, SwapOption, TgtOption, model_option
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.corpus.quality.corpus import Corpus

CHECK_EXAMPLES = (
    "mtcli data check pairs.tsv --src en --tgt es",
    "mtcli data check data/train --src en --tgt de --valid data/valid --test data/test",
)
CLEAN_EXAMPLES = ("mtcli data clean pairs.tsv -o clean.tsv --src en --tgt es",)

PATH_HELP = "Pairs, in any form that `mtcli train --train` takes."

ValidOption = Annotated[
    str | None,
    pairs_option(
        "--valid",
        help="Validation pairs, whose sources should not be among the pairs.",
        show_default="none",
    ),
]
TestOption = Annotated[
    str | None,
    pairs_option(
        "--test",
        help="Test pairs, whose sources should not be among the pairs.",
        show_default="none",
    ),
]
LengthOption = Annotated[
    int,
    number(
        "--max-length",
        panel=panels.CHECKS,
        within=limits.CHARACTERS,
        help="Maximum number of characters of a side; a Chinese character counts as three.",
    ),
]
RatioOption = Annotated[
    float,
    number(
        "--max-ratio",
        panel=panels.CHECKS,
        within=limits.RATIO,
        parser=decimal,
        metavar="NUMBER",
        help="Maximum length of a side: NUMBER × the length of the other side + 25 characters.",
    ),
]


def check(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help=PATH_HELP)],
    src: SrcOption = None,
    tgt: TgtOption = None,
    swap: SwapOption = False,
    valid: ValidOption = None,
    test: TestOption = None,
    max_length: LengthOption = 1000,
    max_ratio: RatioOption = 3.0,
    model: Annotated[
        Path | None,
        model_option(
            "--model",
            metavar="DIR",
            help="A run, to report how its tokenizer encodes the pairs.",
            show_default="none",
        ),
    ] = None,
    json_: Annotated[bool, json_flag("Print JSON.")] = False,
) -> None:
    """Report problems in sentence pairs: counts, examples with line numbers, and what to do. Changes nothing."""
    from mtcli.corpus.quality import report
    from mtcli.runtime.outputs import check_outputs
    from mtcli.storage.model_folder import run_of

    groups = _by_languages(paths, _only_language("--src", src), _only_language("--tgt", tgt))
    if len(groups) > 1 and (valid or test):
        directions = ", ".join(f"{one} → {other}" for one, other in groups)
        raise UsageError(
            f"--valid and --test: for one pair of languages, and these are {directions}; check each by itself"
        )
    reports = []
    for (own_src, own_tgt), own_paths in groups.items():
        corpus = _corpus(own_paths, own_src, own_tgt, swap, valid, test, max_length, max_ratio)
        check_outputs(["-"], corpus.files(), models=[model])
        found = report.check(corpus, run_of(model) if model else None)
        if json_:
            reports.append(report.to_json(found))
            continue
        heading = f"{own_src} → {own_tgt}: {', '.join(own_paths)}\n\n" if len(groups) > 1 else ""
        reports.append(f"{heading}{report.to_text(found)}")
    if json_:
        print(reports[0] if len(reports) == 1 else "[\n" + ",\n".join(reports) + "\n]")
    else:
        print("\n\n".join(reports))


def clean(
    path: Annotated[str, typer.Argument(metavar="PATH", help=PATH_HELP)],
    output: Annotated[
        Path,
        output_file(
            "-o",
            "--output",
            panel=panels.OUTPUT,
            metavar="PATH",
            help="The file to write: x.tsv, x.csv, x.jsonl or a prefix for two files; with .gz, compressed.",
        ),
    ],
    src: SrcOption = None,
    tgt: TgtOption = None,
    swap: SwapOption = False,
    valid: ValidOption = None,
    test: TestOption = None,
    max_length: LengthOption = 1000,
    max_ratio: RatioOption = 3.0,
    rejected: Annotated[
        Path | None,
        output_file(
            "--rejected",
            panel=panels.OUTPUT,
            metavar="FILE",
            help="Write the removed pairs with the reasons, as JSON lines.",
            show_default="not written",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the pairs without errors or warnings, in the same order, and report what was removed and why.

    Existing outputs are kept unless --force is given.
    """
    from mtcli.corpus.quality import clean

    own_src = _only_language("--src", src)
    own_tgt = _only_language("--tgt", tgt)
    corpus = _corpus([path], own_src, own_tgt, swap, valid, test, max_length, max_ratio)
    cleaned = clean.clean(corpus, output, rejected, force=force)
    print(clean.to_text(cleaned))


def _only_language(name: str, codes: list[str] | None) -> str | None:
    """Return the value of `--src` or `--tgt`, which training takes once for each corpus.

    Raises:
        UsageError: It is given more than once.
    """
    return only(name, codes, "run the command once for each pair of languages")


def _corpus(
    paths: list[str],
    src: str | None,
    tgt: str | None,
    swap: bool,
    valid: str | None,
    test: str | None,
    max_length: int,
    max_ratio: float,
) -> "Corpus":
    """Return the pairs with their languages.

    Raises:
        UsageError: A wrong language code, the same language twice, or languages that cannot be guessed.
        DataError: Pairs are missing.
    """
    from mtcli.corpus.quality.corpus import Corpus
    from mtcli.corpus.readers.sources import parse_source

    without_weights = [parse_source(path).path for path in paths]
    _check_code("--src", src)
    _check_code("--tgt", tgt)
    if src is None or tgt is None:
        src, tgt = _guess(without_weights, src, tgt)
    if src == tgt:
        raise UsageError(f"--src and --tgt are both {src!r}; name the two languages")
    return Corpus(without_weights, src, tgt, swap, valid, test, max_length, max_ratio)


def _by_languages(paths: list[str], src: str | None, tgt: str | None) -> dict[tuple[str | None, str | None], list[str]]:
    """Return the paths by their pair of languages, if their names give several; otherwise all, with what is given."""
    from mtcli.corpus.readers.language_guess import guess_each
    from mtcli.corpus.readers.sources import parse_source
    from mtcli.text.languages import same

    if len(paths) == 1 or (src is not None and tgt is not None):
        return {(src, tgt): paths}
    try:
        guesses = guess_each([parse_source(path).path for path in paths], src, tgt)
    except UsageError:  # which reading the pairs reports, unless the files need no languages
        return {(src, tgt): paths}
    found: dict[tuple[str | None, str | None], list[str]] = {}
    for path, guess in zip(paths, guesses, strict=True):
        alike = (each for each in guesses if same(each.src, guess.src) and same(each.tgt, guess.tgt))
        first = next(alike)
        found.setdefault((first.src, first.tgt), []).append(path)
    return found if len(found) > 1 else {(src, tgt): paths}


def _check_code(option_name: str, code: str | None) -> None:
    from mtcli.text.languages import checked

    if code is None:
        return
    try:
        checked(code)
    except ValueError as error:
        raise UsageError(f"{option_name} {code!r}: {error}") from None


def _guess(paths: list[str], src: str | None, tgt: str | None) -> tuple[str, str]:
    """Guess the languages from names. If no name gives them and the files need none, they are `src` and `tgt`."""
    from mtcli.corpus.readers.language_guess import guess_languages, names_sides

    try:
        guess = guess_languages(paths, src, tgt)
    except UsageError:
        if all(map(names_sides, paths)):
            return src or "src", tgt or "tgt"
        raise
    return guess.src, guess.tgt
