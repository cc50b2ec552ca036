"""From raw pairs to what training reads: the splits, the tokenizer and the encoded cache, in the run folder.

data/train.arrow   encoded training pairs        data/valid.jsonl, data/test.jsonl   raw held-out pairs
data/info.json     where it all came from; written last, so a folder without it is simply made again
"""

import hashlib
import json
import logging
import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mtcli.config import writing_systems
from mtcli.config.schema import Config
from mtcli.data import demo, sources
from mtcli.data.corpus import Pair, read_pairs
from mtcli.data.encoded_pairs import EncodedPairs, encode_pairs
from mtcli.data.held_out import HeldOut, choose_held_out
from mtcli.data.info import digest, read_data_info
from mtcli.data.lines import Counts, read_lines
from mtcli.data.overlap import count_trained_on
from mtcli.data.tokenizer import Tokenizer
from mtcli.data.tokenizer_training import train_tokenizer
from mtcli.errors import DataError, ModelError, StorageError, UsageError
from mtcli.evaluation import metrics
from mtcli.runtime.files import replace_file, storage_errors
from mtcli.runtime.regular_file import check_regular, open_regular

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """All that training needs of the data."""

    tokenizer: Tokenizer
    train: EncodedPairs
    weights: list[tuple[int, float]]
    """(rows, weight) of each training corpus in turn."""
    valid: list[Pair]
    test: list[Pair]
    counts: Json
    """Pairs read, and what became of each."""
    init: str | None
    """Checksum of the weights that the run starts from, where they are another model's."""


def prepare(config: Config, run: Path, *, init: tuple[Tokenizer, str] | None = None) -> Prepared:
    """Make the run folder's `tokenizer.json` and `data/`, or check and reuse those that are there.

    Args:
        config: Names the corpora.
        run: The run folder.
        init: A tokenizer to use instead of training one, and the checksum of the weights that training will
            start from (fine-tuning).

    Raises:
        UsageError: The run began with another `init`.
        DataError: The pairs cannot be read, none is left, or a file changed since the run began.
        ModelError: The tokenizer is not the one the run began with.
    """
    tokenizer, weights = init or (None, None)
    info_path = run / "data" / "info.json"
    with _note(config):
        if info_path.exists():
            ready = _reuse(config, run, info_path)
            if isinstance(ready, Prepared):
                same = tokenizer is None or tokenizer.digest() == ready.tokenizer.digest()
                if not same or (weights and weights != ready.init):
                    began = "with other weights" if same else "with another tokenizer"
                    remedy = "omit --init to resume, or start over with --overwrite"
                    raise UsageError(f"--init: {run} began {began} than this model's; {remedy}")
                return ready
            tokenizer = ready or tokenizer
        if not tokenizer and (run / "tokenizer.json").exists() and any((run / "checkpoints").glob("step-*")):
            tokenizer = Tokenizer.load(run / "tokenizer.json")  # the models need it, however much of `data/` is gone
        with storage_errors(run):
            info_path.unlink(missing_ok=True)
            info_path.parent.mkdir(parents=True, exist_ok=True)
        _make(config, run, info_path, tokenizer, weights)
        ready = _reuse(config, run, info_path)
        if not isinstance(ready, Prepared):
            raise DataError(f"{info_path.parent}: changed while it was being written; run the same command again")
        _warn_of_test_sets(config, ready)
        return ready


def prepared(config: Config, run: Path) -> Prepared | None:
    """What a run folder already holds of this configuration's data, if all of it; nothing is written.

    Raises:
        DataError: A file changed since the run began.
        ModelError: The tokenizer is not the one the run began with.
    """
    path = run / "data" / "info.json"
    found = _reuse(config, run, path) if path.exists() else None
    return found if isinstance(found, Prepared) else None


def check_inputs(config: Config) -> None:
    """See that what the configuration asks for is there: the files behind the corpora, an extra, BLEU's tokenizer.

    Raises:
        DataError: A file is not.
        UsageError: The extra or the tokenizer is not.
    """
    if config.train.tensorboard and find_spec("tensorboard") is None:
        raise UsageError("train.tensorboard: tensorboard is not installed; `pip install tensorboard` installs it")
    try:
        metrics.check_tokenizer(writing_systems.tokenizer_of(config))
    except UsageError as error:
        raise UsageError(f"train.bleu_tokenizer: {error}") from None
    with _note(config):
        input_files(config)


def _warn_of_test_sets(config: Config, ready: Prepared) -> None:
    """Warn about what would make the scores of this run meaningless, before hours of training."""
    for name, spec, pairs in (("validation", config.data.valid, ready.valid), ("test", config.data.test, ready.test)):
        if spec is None:
            continue  # held out by source
        seen = count_trained_on(ready.train, ready.tokenizer, [src for src, _ in pairs])
        if seen:
            told = f"{seen:,} of {len(pairs):,} {name} sources are also in the training data"
            log.warning("%s: %s: its scores will be too high", spec, told)
    targets = [tgt for _, tgt in (*ready.valid, *ready.test)]
    if advice := writing_systems.advice(targets, writing_systems.tokenizer_of(config)):
        log.warning("the targets are %s; give the language by --tgt, or --tokenize", advice)


@contextmanager
def _note(config: Config) -> Iterator[None]:
    """Let a failure say where this data comes from."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error} ({config.data.note})" if config.data.note else str(error)) from None


def reopen(run: Path) -> Prepared:
    """Open the data that rank 0 has just prepared and checked.

    Raises:
        StorageError: It is not there.
    """
    path = run / "data" / "info.json"
    if not path.exists():
        raise StorageError(f"{run}: not on {platform.node()}; give an --out on a file system that all machines share")
    return _open(run, read_data_info(path))


def read_split(run: Path, name: str, *, missing_ok: bool = False) -> list[Pair]:
    """The raw pairs of a run's `valid` or `test` split.

    Raises:
        DataError: The run has no such split, a damaged one, or an empty one and not `missing_ok`.
        ModelError: It is no regular file.
    """
    path = run / "data" / f"{name}.jsonl"
    try:
        check_regular(path)
    except FileNotFoundError:
        remedy = "give --src-file and --ref-file, or the --model of a run with data"
        raise DataError(f"{path}: no such split; {remedy}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); move it away") from None
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            src, tgt = json.loads(line)["translation"].values()
            f"{src}{tgt}".encode()  # half a surrogate pair is no text
            if not (isinstance(src, str) and isinstance(tgt, str)):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DataError(f"{path}:{number}: damaged; run the training command again to make it anew") from None
        pairs.append((src, tgt))
    if not pairs and not missing_ok:
        raise DataError(f"{path}: the {name} split is empty; give --src-file and --ref-file")
    return pairs


def _make(config: Config, run: Path, info_path: Path, init: Tokenizer | None, weights: str | None) -> None:
    data, folder = config.data, info_path.parent
    corpora = [sources.parse_source(spec) for spec in data.train]
    # The files as they are now, so that changing one while it is read is noticed.
    inputs = _inputs(config)
    built_in = demo.load() if not data.train else None
    held: dict[str, list[Pair]] = {"valid": [], "test": []}
    counts, apart = Counts(), Counts()
    for name, spec in (("valid", data.valid), ("test", data.test)):
        if spec is not None:
            given = Counts()
            held[name] = list(read_pairs(spec, data.src, data.tgt, swap=data.swap, replace=data.replace, counts=given))
            _log_counts(f"{spec} ({name})", given)
            apart.read += given.read
            apart.skipped = dict(Counter(apart.skipped) + Counter(given.skipped))
        elif built_in:
            held[name] = built_in.valid if name == "valid" else built_in.test
            apart.read += len(held[name])

    def read(into: Counts) -> Iterator[tuple[int, Pair]]:
        if built_in:
            for pair in built_in.train:
                into.read, into.used = into.read + 1, into.used + 1
                yield 0, pair
        for index, source in enumerate(corpora):
            pairs = read_pairs(source.path, data.src, data.tgt, swap=data.swap, replace=data.replace, counts=into)
            yield from ((index, pair) for pair in pairs)

    split = HeldOut(data.split_seed)
    if not built_in and (data.valid is None or data.test is None):
        split = choose_held_out(
            (pair for _, pair in read(Counts())),
            None if data.valid is None else 0,
            None if data.test is None else 0,
            data.split_seed,
        )
        _warn_of_missing_splits(config, split)

    def training(into: Counts, aside: dict[str, list[Pair]] | None = None) -> Iterator[tuple[int, Pair]]:
        for index, pair in read(into):
            name = split.split_of(pair[0])
            if name == "train":
                yield index, pair
            elif aside is not None:
                aside[name].append(pair)

    if next(training(seen := Counts()), None) is None:
        raise DataError(f"{', '.join(data.train)}: no pair to train on ({_in_words(seen)}); give more pairs")
    if init is None:
        log.info("training the tokenizer")
        wanted = config.tokenizer
        text = (pair for _, pair in training(Counts()))
        learnt = train_tokenizer(text, kind=wanted.type, vocab_size=wanted.vocab_size, joint=wanted.joint)
    else:
        learnt = init
    replace_file(run / "tokenizer.json", learnt.to_json().encode())
    with storage_errors(folder):
        cache = folder / "train.arrow"
        rows = encode_pairs(training(counts, held), learnt, cache, max_length=data.max_length, counts=counts)
    _log_counts(", ".join(data.train) or "the built-in demo", counts)
    if not rows:
        raise DataError(
            f"{', '.join(data.train)}: no pair to train on ({_in_words(counts)}); "
            "give shorter ones, or a larger --set data.max_length"
        )
    shares = [source.weight for source in corpora] or [1.0]
    if sum(rows[index] * weight for index, weight in enumerate(shares)) < 1:
        raise UsageError(f"{', '.join(data.train)}: an epoch has less than one pair by these weights; give larger ones")
    for name, held_pairs in held.items():
        lines = (
            json.dumps({"translation": {data.src: src, data.tgt: tgt}}, ensure_ascii=False) for src, tgt in held_pairs
        )
        replace_file(folder / f"{name}.jsonl", "".join(f"{line}\n" for line in lines).encode())
    info = {
        "inputs": inputs,
        "settings": _settings(config),
        "init": weights,
        "weights": [(rows[index], weight) for index, weight in enumerate(shares)],
        "counts": {
            "read": counts.read + apart.read,
            "train": rows.total(),
            **{name: len(held_pairs) for name, held_pairs in held.items()},
            "skipped": dict(Counter(counts.skipped) + Counter(apart.skipped)),
        },
        "files": {name: _facts(run / name) for name in _MADE},
    }
    info["sha256"] = digest(info)
    replace_file(info_path, json.dumps(info, indent=1).encode())


# The tokenizer first: `_reuse` relies on it.
_MADE = ("tokenizer.json", "data/train.arrow", "data/valid.jsonl", "data/test.jsonl")


def _reuse(config: Config, run: Path, info_path: Path) -> Prepared | Tokenizer | None:
    """What is already there, if it is whole and of these inputs.

    None where it must be made again, or the tokenizer where that is whole: pairs encoded anew must keep their ids.
    """
    try:
        info = read_data_info(info_path)
        made, inputs, settings = info["files"], info["inputs"], _recorded(info["settings"])
        if set(made) != {*_MADE}:
            raise ValueError("it names other files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.warning("%s cannot be read; preparing the data again", info_path)
        return None
    if settings != _settings(config):
        return None  # the configuration's own comparison has let this run go on, so it is being started afresh
    absent = {"sha256": "not there"}
    now = _inputs(config, known=inputs)
    for name in inputs | now:
        if now.get(name) != inputs.get(name):
            hashes = [files.get(name, absent)["sha256"] for files in (inputs, now)]
            raise DataError(
                f"{name}: changed since this run began (SHA-256 then {hashes[0][:12]}, now {hashes[1][:12]}); "
                "put the old file back, or start over with --overwrite"
            )
    for name in _MADE:
        if _is_regular(run / name) and _facts(run / name)["sha256"] == made[name]["sha256"]:
            continue
        if name == "tokenizer.json" and (run / name).exists():
            raise ModelError(f"{run / name}: not the tokenizer this run began with; put it back, or use --overwrite")
        if name == "tokenizer.json" and info["init"]:
            raise ModelError(f"{run / name}: missing; copy that of the model which --init named, or use --overwrite")
        log.warning("%s is damaged or missing; preparing the data again", run / name)
        return None if name == "tokenizer.json" else Tokenizer.load(run / "tokenizer.json")
    return _open(run, info)


def _open(run: Path, info: Json) -> Prepared:
    train = EncodedPairs(run / "data" / "train.arrow")
    if sum(rows for rows, _ in info["weights"]) != len(train):
        raise DataError(f"{run / 'data'}: its files do not belong together; delete it to prepare the data again")
    return Prepared(
        tokenizer=Tokenizer.load(run / "tokenizer.json"),
        train=train,
        weights=[(int(rows), float(weight)) for rows, weight in info["weights"]],
        valid=read_split(run, "valid", missing_ok=True),
        test=read_split(run, "test", missing_ok=True),
        counts=info["counts"],
        init=info["init"],
    )


def _settings(config: Config) -> Json:
    """The part of the configuration that the prepared data depends on."""
    return {
        "data": config.data.model_dump(mode="json", exclude={"note"}),
        "tokenizer": config.tokenizer.model_dump(mode="json"),
    }


def _recorded(settings: Json) -> Json:
    """The settings that `info.json` holds, with the defaults of keys that are newer than it.

    Raises:
        KeyError, TypeError, ValueError: They are not of that form.
    """
    data = dict(settings["data"])
    if "seed" in settings:  # version 0.1 chose the held-out pairs by train.seed
        data["split_seed"] = settings["seed"]
    return _settings(Config.model_validate({"data": data, "tokenizer": settings["tokenizer"]}))


def _inputs(config: Config, known: Json | None = None) -> Json:
    """Size, time and SHA-256 of every local file behind the corpora, by name.

    Where size and time are those `known`, so is the hash: hashing gigabytes at every start would take minutes.

    Raises:
        DataError: One cannot be read.
    """
    found: Json = {}
    for path in input_files(config):
        try:
            found[str(path)] = _facts(path, (known or {}).get(str(path)))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    return found


def input_files(config: Config) -> list[Path]:
    """Return every local file behind the corpora.

    Raises:
        DataError: One is missing.
    """
    data = config.data
    specs = [sources.parse_source(spec).path for spec in data.train] + [s for s in (data.valid, data.test) if s]
    return [path for spec in specs for path in sources.source_files(spec, data.src, data.tgt)]


def _is_regular(path: Path) -> bool:
    try:
        check_regular(path)
    except OSError:
        return False
    return True


def _facts(path: Path, known: Json | None = None) -> Json:
    status = path.stat()
    if known and (known["size"], known["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
        return known
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if known and digest == known["sha256"]:
        return known  # touched or copied, with the same content
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest}


def _warn_of_missing_splits(config: Config, split: HeldOut) -> None:
    """Warn where pairs should be held out, and none can be."""
    wanted = {"--valid": (config.data.valid, split.n_valid), "--test": (config.data.test, split.n_test)}
    missing = [option for option, (given, n) in wanted.items() if given is None and n == 0]
    if missing and split.n_pairs:
        few = "fewer than 20 pairs" if split.n_pairs < 20 else "every source repeats too often"
        log.warning("%s: none are held out; give %s, or the model cannot be scored", few, " and ".join(missing))


def _in_words(counts: Counts) -> str:
    parts = [f"{counts.read:,} pairs read", f"{counts.used:,} used"]
    return ", ".join(parts + [f"{n:,} skipped: {reason}" for reason, n in counts.skipped.items()])


def _log_counts(name: str, counts: Counts) -> None:
    log.info("%s: %s", name, _in_words(counts))
    for notice in dict.fromkeys(counts.notices):
        log.info("%s", notice)
    if counts.replaced:
        log.warning("%s: %s invalid bytes were read as U+FFFD", name, f"{counts.replaced:,}")
