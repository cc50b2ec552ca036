"""The data of a run: build it in the run folder, or check and reuse what is there.

data/train.arrow                     encoded training pairs
data/valid.jsonl, data/test.jsonl    held-out pairs as text
data/corrections.jsonl               with data.corrections: the corrections
data/terms.json                      with data.terms: the words that translate each other
data/info.json                       what all of it was made from; without it, the data is built again
"""

import logging
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mtcli.config import scores
from mtcli.config.schema import Config
from mtcli.corpus.cache.build import CORRECTIONS_FILE, FILES, TERMS_FILE, build_data
from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.corpus.cache.info import (
    DataInfo,
    PairCounts,
    check_unchanged,
    data_settings,
    fingerprint,
    info_path,
    input_files,
    input_specs,
)
from mtcli.corpus.cache.parent import Parent, TakenOver
from mtcli.corpus.cache.tokenizer_file import check_given_tokenizer, given_tokenizer
from mtcli.corpus.cache.training_sources import TrainingSource, sampling_weights, training_sources
from mtcli.corpus.held_out import ByDirection, read_directions, read_split
from mtcli.corpus.overlap import count_trained_on, share_of
from mtcli.corpus.readers.rows import check_dataset
from mtcli.corpus.readers.sources import resolve
from mtcli.errors import DataError, ModelError, StorageError, UsageError
from mtcli.runtime.files import check_regular, read_regular, storage_errors
from mtcli.terms.annotation import TermAnnotator, annotators_from_json
from mtcli.text.languages import Direction
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The data of a run, ready for training."""

    tokenizer: Tokenizer
    train: EncodedPairs
    weights: list[tuple[int, float]]
    """(rows, weight) of each training corpus, in order, see `sampling_weights`."""
    sources: list[TrainingSource]
    """The training corpora in words and numbers."""
    valid_split: ByDirection
    """The validation pairs of each direction."""
    test_split: ByDirection
    counts: PairCounts
    """Pairs read, and what they were used for or why they were skipped."""
    init: str | None
    """Checksum of the weights that the run starts from; None: they are random."""
    corrections: Sequence[Pair] = ()
    """With `data.corrections`, the corrections that are trained on."""
    terms: Mapping[Direction, TermAnnotator] | None = None
    """Finds terms in the pairs of each direction; None: `data.terms` is off, or the pairs were annotated when they were
    prepared."""
    transfer: TakenOver | None = None
    """What was taken from a model of other languages; None: the run starts from none."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that are trained, each once."""
        return tuple(dict.fromkeys(source.direction for source in self.sources))

    @cached_property
    def valid(self) -> list[Pair]:
        """The validation pairs of all directions, as the model takes their sources: with a tag, if it has tags."""
        return self._tagged(self.valid_split)

    @cached_property
    def test(self) -> list[Pair]:
        """The test pairs of all directions, see `valid`."""
        return self._tagged(self.test_split)

    def directions_of(self, name: Literal["valid", "test"]) -> list[Direction]:
        """Return the direction of each pair of `valid` or `test`."""
        split = self.valid_split if name == "valid" else self.test_split
        return [direction for direction, pairs in split.items() for _ in pairs]

    def _tagged(self, split: ByDirection) -> list[Pair]:
        return [
            (self.tokenizer.with_tag(src, direction.tgt), tgt)
            for direction, pairs in split.items()
            for src, tgt in pairs
        ]

    @property
    def fine_tunes(self) -> bool:
        """Training starts from a model of the same languages, which is of use before the first step."""
        return self.init is not None and self.transfer is None


def check_inputs(config: Config, *, open_data_sets: bool = False) -> None:
    """Check that everything which the configuration names exists: corpora and extras.

    Args:
        config: The configuration.
        open_data_sets: Also open folders and Hub data sets, and check that they have both languages; and load the
            tokenizer of `tokenizer.file`. A run that has its data needs neither.

    Raises:
        DataError: A corpus is missing.
        ModelError: The tokenizer of `tokenizer.file` is missing or damaged.
        UsageError: An extra is missing, or the tokenizer of `tokenizer.file` does not fit.
    """
    if config.train.tensorboard and find_spec("tensorboard") is None:
        raise UsageError("train.tensorboard: tensorboard is not installed; `pip install tensorboard` installs it")
    with _note(config):
        input_files(config)
        if open_data_sets:
            given_tokenizer(config)
            for spec, languages in input_specs(config):
                form, _ = resolve(spec, *languages)
                if form == "dataset":
                    check_dataset(spec, *languages)


def has_info(run: Path) -> bool:
    """Return True if a run folder has prepared data, which may be out of date."""
    return info_path(run).exists()


def starts_from_model(run: Path) -> bool:
    """Return True if a run folder has data that was prepared for fine-tuning. If that cannot be read, it has none."""
    try:
        return DataInfo.read(run).init is not None
    except (OSError, ValueError):
        return False


def prepare(config: Config, run: Path, *, init: Parent | None = None) -> Prepared:
    """Build `tokenizer.json` and `data/` in the run folder, or check and reuse them.

    Args:
        config: Names the corpora.
        run: The run folder.
        init: The model that training starts from.

    Raises:
        UsageError: The run began with another `init`.
        DataError: The pairs cannot be read, none is left, or a file changed since the run began.
        ModelError: The tokenizer is not the one that the run began with.
    """
    with _note(config):
        info = _read_info(config, run)
        damaged = _damaged_file(run, info) if info else None
        if info and not damaged:
            ready = _open(run, info)
            _check_init(run, ready.tokenizer, ready.init, ready.transfer, init)
            return ready
        tokenizer, weights, transfer = _starting_point(config, run, info, damaged, init)
        path = info_path(run)
        with storage_errors(run):
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
        parent = init if init is not None and transfer is None and init.has_child(config) else None
        info = build_data(config, run, tokenizer, weights, parent=parent, transfer=transfer)
        check_unchanged(config, info.inputs)  # while they were read
        built = _open(run, info)
        _warn_of_useless_scores(config, built)
        return built


def prepared(config: Config, run: Path) -> Prepared | None:
    """Return the data that a run folder already has for this configuration; None: some is missing or damaged.

    Raises:
        DataError: A corpus changed since the run began.
        ModelError: The tokenizer is not the one that the run began with.
    """
    info = _read_info(config, run)
    if info is None or _damaged_file(run, info):
        return None
    return _open(run, info)


def reopen(run: Path) -> Prepared:
    """Open the data that rank 0 has just prepared and checked.

    Raises:
        StorageError: This machine does not see it.
    """
    path = info_path(run)
    if not path.exists():
        raise StorageError(f"{run}: not on {platform.node()}; give an --out on a file system that all machines share")
    return _open(run, DataInfo.read(run))


def _read_info(config: Config, run: Path) -> DataInfo | None:
    """Return `data/info.json` if it belongs to this configuration; None: the data must be built.

    Raises:
        DataError: A corpus changed since the run began.
        ModelError: `tokenizer.file` changed since the run began.
    """
    path = info_path(run)
    if not path.exists():
        return None
    try:
        info = DataInfo.read(run)
        settings = info.recorded_settings()
        if {*info.files} - {CORRECTIONS_FILE, TERMS_FILE} != {*FILES}:
            raise ValueError("it names other files")
    except (OSError, ValueError):
        log.warning("%s cannot be read; preparing the data again", path)
        return None
    if settings != data_settings(config):
        return None  # a run with checkpoints refuses other settings, so this one starts from scratch
    check_unchanged(config, info.inputs)
    check_given_tokenizer(config, info.files["tokenizer.json"]["sha256"])
    return info


def _damaged_file(run: Path, info: DataInfo) -> str | None:
    """Return the first prepared file that is not as `info.json` describes it; None: all are complete.

    Raises:
        ModelError: It is the tokenizer, and building the data would replace it by another one.
    """
    for name in (*FILES, CORRECTIONS_FILE, TERMS_FILE):
        if name not in info.files:
            continue
        path = run / name
        if _is_regular(path) and fingerprint(path)["sha256"] == info.files[name]["sha256"]:
            continue
        if name == "tokenizer.json" and path.exists():
            raise ModelError(f"{path}: not the tokenizer this run began with; put it back, or use --overwrite")
        if name == "tokenizer.json" and info.transfer:
            raise ModelError(f"{path}: missing; put it back, or use --overwrite")
        if name == "tokenizer.json" and info.init:
            raise ModelError(f"{path}: missing; copy that of the model which --init named, or use --overwrite")
        log.warning("%s is damaged or missing; preparing the data again", path)
        return name
    return None


def _is_regular(path: Path) -> bool:
    try:
        check_regular(path)
    except OSError:
        return False
    return True


def _starting_point(
    config: Config, run: Path, info: DataInfo | None, damaged: str | None, init: Parent | None
) -> tuple[Tokenizer | None, str | None, TakenOver | None]:
    """Return what the data is built with: the tokenizer, the checksum of the initial weights, and what was taken over.

    A run keeps the tokenizer and the checksum that it began with. If these are lost, it keeps the tokenizer that its
    models depend on. The tokenizer is None to train one, and what was taken over is None if that is not known yet.

    Raises:
        ModelError: The tokenizer of `tokenizer.file` is missing, damaged, or not that of the models.
        UsageError: The run began with another `init`, or the tokenizer of `tokenizer.file` does not fit.
    """
    path = run / "tokenizer.json"
    if info and damaged != "tokenizer.json":
        tokenizer = Tokenizer.load(path)
        _check_init(run, tokenizer, info.init, info.transfer, init)
        return tokenizer, info.init, info.transfer
    if init is not None:
        if init.has_child(config):
            return given_tokenizer(config), init.weights, None
        return init.tokenizer, init.weights, None
    has_models = any((run / "checkpoints").glob("step-*"))
    if has_models and path.exists():
        tokenizer_of_models = Tokenizer.load(path)
        check_given_tokenizer(config, tokenizer_of_models.digest())
        return tokenizer_of_models, None, None
    return given_tokenizer(config), None, None


def _check_init(
    run: Path, tokenizer: Tokenizer, weights: str | None, transfer: TakenOver | None, init: Parent | None
) -> None:
    """Raise a UsageError if the run began with a tokenizer or weights other than those of `init`."""
    if init is None:
        return
    if init.tokenizer.digest() != (transfer.parent if transfer else tokenizer.digest()):
        began = "with another tokenizer"
    elif init.weights != weights:
        began = "with other weights"
    else:
        return
    remedy = "omit --init to resume, or start over with --overwrite"
    raise UsageError(f"--init: {run} began {began} than this model's; {remedy}")


def _open(run: Path, info: DataInfo) -> Prepared:
    """Open the data that `info.json` describes.

    Raises:
        DataError: Its files do not belong together.
    """
    train = EncodedPairs(run / "data" / "train.arrow")
    if sum(rows for rows, _ in info.weights) != len(train):
        raise DataError(f"{run / 'data'}: its files do not belong together; delete it to prepare the data again")
    sources = training_sources(info)
    return Prepared(
        tokenizer=Tokenizer.load(run / "tokenizer.json"),
        train=train,
        weights=sampling_weights(info),
        sources=sources,
        valid_split=read_directions(run, "valid", empty_ok=True),
        test_split=read_directions(run, "test", empty_ok=True),
        counts=info.counts,
        init=info.init,
        corrections=read_split(run, "corrections") if CORRECTIONS_FILE in info.files else (),
        terms=_terms(run, [source.direction for source in sources]) if TERMS_FILE in info.files else None,
        transfer=info.transfer,
    )


def _terms(run: Path, directions: Iterable[Direction]) -> dict[Direction, TermAnnotator]:
    """Read what finds terms in the pairs of each direction.

    Raises:
        DataError: The file is missing or damaged.
    """
    path = run / TERMS_FILE
    try:
        return annotators_from_json(read_regular(path), list(dict.fromkeys(directions)))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete {run / 'data'} to prepare the data again") from None


def _warn_of_useless_scores(config: Config, ready: Prepared) -> None:
    """Warn, before hours of training, about what would make the scores of this run meaningless."""
    splits = (("validation", "valid", ready.valid), ("test", "test", ready.test))
    for noun, name, pairs in splits:
        specs = [spec for spec, _ in config.data.given_splits(name)]
        if not specs:
            continue  # held out by source
        seen = count_trained_on(ready.train, ready.tokenizer, [src for src, _ in pairs])
        if seen:
            share = share_of(seen, len(pairs), f"{noun} source")
            log.warning("%s: %s also in the training data: its scores will be too high", ", ".join(specs), share)
    for direction in ready.directions:
        held_out = (*ready.valid_split.get(direction, ()), *ready.test_split.get(direction, ()))
        advice = scores.advice((tgt for _, tgt in held_out), scores.tokenizer_of(config, direction.tgt))
        if advice:
            log.warning("the targets are %s; give the language by --tgt, or --tokenize", advice)


@contextmanager
def _note(config: Config) -> Iterator[None]:
    """Add the note of the configuration, which says where its data comes from, to an error about the data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error} ({config.data.note})" if config.data.note else str(error)) from None
