"""Which sentences a model was trained on, found in the encoded training pairs of its run folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtcli.data.encoded_pairs import EncodedPairs
from mtcli.data.tokenizer import Tokenizer
from mtcli.errors import DataError, ModelError

log = logging.getLogger(__name__)

Keys = npt.NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def warn_of_training_sources(model: Path, sources: Sequence[str]) -> None:
    """Warn where sources to be scored are among those that a model was trained on.

    A folder without the training pairs of its model, such as an export, is passed over.

    Args:
        model: A run folder or one of its checkpoints.
        sources: Of the test set.
    """
    run = next((folder for folder in (model, model.parent.parent) if _cache(folder).is_file()), None)
    if run is None:
        return
    try:
        seen = count_trained_on(EncodedPairs(_cache(run)), Tokenizer.load(run / "tokenizer.json"), sources)
    except (DataError, ModelError) as error:
        log.warning("whether %s was trained on these sources is not known: %s", model, error)
        return
    if seen:
        told = f"{seen:,} of {len(sources):,} test sources are in this model's training data"
        log.warning("%s: %s: its score is too high", model, told)


def count_trained_on(pairs: EncodedPairs, tokenizer: Tokenizer, sources: Sequence[str]) -> int:
    """How many of these sentences are sources of training pairs, compared as the model reads them.

    The encoded pairs are read once, in chunks. A row whose length and three of whose tokens are those of a sentence
    is compared with it in full.
    """
    stripped = [source.strip() for source in sources]
    sentences = [np.array(ids, dtype=np.int32) for ids in tokenizer.encode_src([text for text in stripped if text])]
    if not sentences:
        return 0
    wanted = {sentence.tobytes() for sentence in sentences}
    keys = np.unique([_keys(sentence, np.array([0, len(sentence)]))[0] for sentence in sentences])
    found = set[bytes]()
    for values, offsets in pairs.sources():
        for row in np.flatnonzero(np.isin(_keys(values, offsets), keys)):
            text = values[offsets[row] : offsets[row + 1]].tobytes()
            if text in wanted:
                found.add(text)
    return sum(sentence.tobytes() in found for sentence in sentences)


def _keys(values: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32]) -> Keys:
    """A number for each row that equal rows share, from its length and its first, middle and last token."""
    starts, ends = offsets[:-1], offsets[1:]
    keys = (ends - starts).astype(np.uint64)
    if not len(values):
        return keys
    last = len(values) - 1
    for place in (starts, (starts + ends) // 2, ends - 1):
        keys = keys * _FACTOR + values[place.clip(0, last)].astype(np.uint64)
    return keys


def _cache(folder: Path) -> Path:
    return folder / "data" / "train.arrow"
