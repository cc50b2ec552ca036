"""Guess the two languages of a corpus from the names of its files and columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mtcli.corpus.readers.rows import dataset_keys, dataset_name, find_keys, parquet_keys
from mtcli.corpus.readers.sources import corpus_errors, file_form, files_with_prefix, resolve, two_names
from mtcli.corpus.readers.tables import first_row
from mtcli.corpus.readers.xml_pairs import xml_languages
from mtcli.errors import UsageError
from mtcli.text.languages import base, is_plausible, known, same
from mtcli.text.lines import read_lines

_NAME = r"[A-Za-z]{2,3}(?:[-_](?:[A-Z]{2}|[A-Z][a-z]{3}))?"
_PAIR = re.compile(rf"(?<![A-Za-z0-9])(?=({_NAME})(?:[-_]to[-_]|[-_2])({_NAME})(?![A-Za-z0-9]))")
"""`en-de`, `en_de`, `en2de`, `eng-deu`, `en-zh_CN`."""

JSON_LINES = 1000
"""Lines of a JSON file in which a first object is searched."""


@dataclass(frozen=True)
class GuessedLanguages:
    """Source and target language."""

    src: str
    tgt: str
    where: str
    """Where they were found, for messages: `from the name en-de`."""

    def __str__(self) -> str:
        return f"{self.src} → {self.tgt} ({self.where})"

    def are(self, src: str, tgt: str) -> bool:
        """Return True if these codes are of the same languages."""
        return same(self.src, src) and same(self.tgt, tgt)


@dataclass(frozen=True)
class _Found:
    """The languages that a corpus names, in its order."""

    languages: tuple[str, ...]
    where: str
    ordered: bool = True
    """The first language is the source. Files that only differ in their language have no order."""


def guess_languages(specs: Sequence[str], src: str | None, tgt: str | None) -> GuessedLanguages:
    """Guess the languages of all corpora, and which one is the source.

    A pair of codes in a name, such as `en-de`, is source and target, and columns are source and target in their order.
    Of two files whose names differ only in the language, the English one is the source.

    Args:
        specs: The corpora, in any form that `--train` takes.
        src, tgt: The languages that the user gave; None: not given.

    Raises:
        DataError: There is nothing at one of `specs`.
        UsageError: The names do not give two languages, or different corpora have different languages.
    """
    first, *others = guess_each(specs, src, tgt)
    for other in others:
        if not other.are(first.src, first.tgt):
            raise UsageError(f"{', '.join(specs)}: seem to be {first} and {other}; {_ask(src, tgt)}")
    return first


def guess_each(specs: Sequence[str], src: str | None, tgt: str | None) -> list[GuessedLanguages]:
    """Guess the languages of each corpus. If its own names do not say them, it has those of the first that do.

    A code of three letters may be any word, as in `en-new`. It is taken for a language if the name is that of another
    corpus but for this code, as `es-nah.tsv` beside `es-gn.tsv`.

    Args:
        specs, src, tgt: See `guess_languages`.

    Raises:
        DataError: There is nothing at one of `specs`.
        UsageError: No name gives two languages, some names give none or may give others while others give different
            languages, or two corpora have the same languages in opposite order.
    """
    guesses = [_guess(spec, src, tgt) for spec in specs]
    guesses = [
        guess or _guess_beside(spec, specs, guesses, src, tgt) for guess, spec in zip(guesses, specs, strict=True)
    ]
    known_guesses = [guess for guess in guesses if guess]
    if not known_guesses:
        names = ", ".join(specs)
        raise UsageError(f"{names}: no name of a file or column says which languages these are; {_ask(src, tgt)}")
    first = known_guesses[0]
    for guess in known_guesses:
        if guess.are(first.tgt, first.src):
            raise UsageError(f"{', '.join(specs)}: seem to be {first} and {guess}; {_ask(src, tgt)}")
        if not guess.are(first.src, first.tgt) and len(known_guesses) < len(specs):
            unnamed = specs[guesses.index(None)]
            raise UsageError(
                f"{unnamed}: no name says which languages these are, and the others are {first} and {guess}; give "
                "--src and --tgt once for each --train"
            )
    return [guess or first for guess in guesses]


def _guess_beside(
    spec: str, specs: Sequence[str], guesses: Sequence[GuessedLanguages | None], src: str | None, tgt: str | None
) -> GuessedLanguages | None:
    """Return the languages of a corpus whose name has a code that may be any word, given the guesses for all corpora.

    Raises:
        UsageError: The name is not like that of another corpus.
    """
    for other, guess in zip(specs, guesses, strict=True):
        if guess is None:
            continue
        pair = _in_name(Path(spec).name, (guess.src, guess.tgt))
        if pair is None:
            continue
        first, second = pair.languages
        found = GuessedLanguages(src or first, tgt or second, pair.where)
        if found.are(guess.src, guess.tgt):
            return found
        own = Path(spec).name
        between = own[own.index(first) + len(first) : own.rindex(second)]
        if own.replace(first + between + second, guess.src + between + guess.tgt) == Path(other).name:
            return found
        raise UsageError(
            f"{spec}: its name may say {first} and {second}, and {other} is {guess.src} → {guess.tgt}; give --src and "
            "--tgt once for each --train"
        )
    return None


def contradiction(spec: str, src: str, tgt: str) -> str | None:
    """Return the languages that the name of a file or folder says: one of two given ones, and a third; otherwise None.

    Args:
        spec: A corpus, or another file of pairs.
        src, tgt: The given languages.
    """
    try:
        pair = _in_name(spec, (src, tgt))
    except OSError:  # of a name that is too long: reading the pairs reports it
        return None
    if pair is None:
        return None
    is_given = [any(same(language, given) for given in (src, tgt)) for language in pair.languages]
    return None if all(is_given) or not any(is_given) else " and ".join(pair.languages)


def name_says(path: Path, src: str, tgt: str) -> bool:
    """Return True if the name of a file has these languages, in this order."""
    pair = _in_name(path.name, (src, tgt))
    return pair is not None and same(pair.languages[0], src) and same(pair.languages[1], tgt)


def names_sides(spec: str) -> bool:
    """Return True if a file can be read without its languages: a table, or rows with keys like `source` and `target`.

    Raises:
        DataError: The file cannot be read.
    """
    path = Path(spec)
    with corpus_errors(spec):
        form = file_form(path)
        if form == "json":
            return find_keys(_json_keys(path), "src", "tgt") is not None
        if form == "parquet":
            return find_keys(parquet_keys(path), "src", "tgt") is not None
    return form in ("tsv", "csv", "xliff")


def _ask(src: str | None, tgt: str | None) -> str:
    missing = [option for option, code in (("--src en", src), ("--tgt es", tgt)) if code is None]
    return f"add {' '.join(missing)}, or whatever they are"


def _guess(spec: str, src: str | None, tgt: str | None) -> GuessedLanguages | None:
    """Return the languages of one corpus; None: its names do not give exactly two.

    Raises:
        UsageError: They give two, but not which one is the source.
    """
    with corpus_errors(spec):
        found = _find(spec, [code for code in (src, tgt) if code is not None])
    if found is None:
        return None
    if src is not None or tgt is not None:  # the other language is the other one of two
        others = [name for name in found.languages if not same(name, src or tgt or "")]
        if len(found.languages) != 2 or len(others) != 1:
            return None
        return GuessedLanguages(src or others[0], tgt or others[0], found.where)
    if len(found.languages) > 2:
        return None
    first, second = found.languages
    if not found.ordered:
        if [base(first), base(second)].count("en") != 1:
            holds = f"{spec}: holds {first} and {second} ({found.where})"
            remedy = f"add --src {first} --tgt {second}, or --src {second} --tgt {first}"
            raise UsageError(f"{holds}, and nothing says which is the source; {remedy}")
        if base(second) == "en":
            first, second = second, first
    return GuessedLanguages(first, second, found.where)


def _find(spec: str, given: Sequence[str]) -> _Found | None:
    """Return the languages that a corpus names, or None if they are fewer than two.

    The name of the corpus can hold a pair of codes, such as `en-de`. If two columns have these languages, the pair
    selects these columns and gives their order.

    Args:
        spec: The corpus.
        given: The languages that the user gave.
    """
    named = _in_columns_or_suffixes(spec)
    pair = _in_name(spec, [*given, *(named.languages if named else ())])
    if named is None or len(named.languages) < 2:
        return pair
    if pair is None:
        return named
    first, second = ([name for name in named.languages if same(language, name)] for language in pair.languages)
    return _Found((first[0], second[0]), named.where) if first and second else named


def _in_name(spec: str, certain: Sequence[str] = ()) -> _Found | None:
    """Return the pair of codes in the configuration of a data set, or in the name of a file or its folder.

    Args:
        spec: The corpus.
        certain: Codes that are languages here, also if they are unknown.
    """
    name, config, _ = dataset_name(spec)
    path = Path(name.partition(",")[0])
    for text in (config or "", path.name, path.parent.name):
        for accepts in (_are_known_languages, _may_be_languages):
            matches = [(match[1], match[2]) for match in _PAIR.finditer(text)]
            pairs = {(_as_code(one), _as_code(other)) for one, other in matches if accepts(one, other, certain)}
            if len(pairs) == 1:
                return _Found(pairs.pop(), f"from the name {text}")
            if pairs:
                break
    return None


def _are_known_languages(first: str, second: str, certain: Sequence[str]) -> bool:
    """Return True if two codes in a name are two languages that are known or certain."""
    is_known = all(known(code) or code in certain for code in (first, second))
    return is_known and not same(_as_code(first), _as_code(second))


def _may_be_languages(first: str, second: str, certain: Sequence[str]) -> bool:
    """Return True if two codes in a name are a language and a rare one.

    Beside a known language, a code of two letters is enough. Three letters may be any word, so the other code must be
    certain.
    """
    for code, other in ((first, second), (second, first)):
        is_certain = any(same(code, each) for each in certain)
        if is_certain or (known(code) and len(other) == 2):
            return other.islower() and is_plausible(other)
    return False


def _in_columns_or_suffixes(spec: str) -> _Found | None:
    """Return the languages in the names of columns, or in the suffixes of files; None: no such names."""
    path = Path(spec)
    form = file_form(path)
    if form in ("tsv", "csv"):
        cells = first_row(form, read_lines(path, lenient=True))
        return _Found(_languages(_as_code(cell) for cell in cells), f"from the first line of {path}")
    if form == "tmx" or form == "xliff":
        return _Found(_without_regions(xml_languages(form, path)), f"named in {path}")
    if form == "json":
        return _Found(_languages(_json_keys(path)), f"from the keys of {path}")
    if form == "parquet":
        return _Found(_languages(parquet_keys(path)), f"from the columns of {path}")
    sides = _files_by_language(path)
    if len(sides) > 1:
        names = " and ".join(map(str, sides.values()))
        return _Found(tuple(sides), f"from the names of {names}", ordered=False)
    halves = two_names(spec)
    if halves:
        plain_names = [re.sub(r"\.gz$", "", file.name) for file in halves]
        return _Found(_languages(name.rpartition(".")[2] for name in plain_names), "from the names of the two files")
    only = next(iter(sides), "SRC")
    form, _ = resolve(spec, only, "TGT")  # reports what is missing
    if form == "dataset" and not _in_name(spec):
        return _Found(_languages(dataset_keys(spec)), f"from the columns of {spec}")
    return None


def _files_by_language(prefix: Path) -> dict[str, Path]:
    """Return the files `PREFIX.LANGUAGE`, plain or `.gz`, by language: known ones, and those that the prefix names."""
    found: dict[str, Path] = {}
    named = {code for match in _PAIR.finditer(prefix.name) for code in match.groups()}
    for language, file in files_with_prefix(prefix):
        if (known(language) or language in named) and file.is_file():
            found.setdefault(language, file)
    return found


def _languages(names: Iterable[str]) -> tuple[str, ...]:
    """Return the known languages, each once. Among more than two, `id` is a column of numbers and not Indonesian."""
    found = list(dict.fromkeys(name for name in names if known(name)))
    return tuple(name for name in found if len(found) < 3 or name != "id")


def _without_regions(languages: Iterable[str]) -> tuple[str, ...]:
    """Return the known languages, each once: `en` for `en-US`, unless the languages differ in their regions only."""
    found = list(dict.fromkeys(language for language in languages if known(language)))
    bases = tuple(dict.fromkeys(base(language) or language for language in found))
    return bases if len(bases) > 1 else tuple(found)


def _as_code(name: str) -> str:
    """Return a name as a configuration writes it: `en` for `EN` or `English`, `zh_CN` unchanged."""
    name = name.strip()
    if re.fullmatch(_NAME, name) and not name.isupper():
        return name
    return known(name) or name


def _json_keys(path: Path) -> list[str]:
    """Return the keys of the first object in a JSON file, or of its `translation`; empty: there is none."""
    for line in islice(read_lines(path, lenient=True), JSON_LINES):
        try:
            row = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            return []
        if isinstance(row, dict) and row:
            inner = row.get("translation", row)
            return list(inner) if isinstance(inner, dict) else []
    return []
