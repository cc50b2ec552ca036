"""Find sentences that a model was trained on, by the encoded training pairs in its run folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ids
from mtcli.errors import DataError, ModelError
from mtcli.runtime.wording import counted
from mtcli.terms.annotation import without_annotations
from mtcli.text.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Keys = npt.NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def warn_of_training_sources(
    model: Path, run: Path, sources: Sequence[str], *, noun: str = "test source", score: str = "its score"
) -> None:
    """Warn if a model was trained on some of the sentences that are about to be scored.

    Args:
        model: The model, for messages.
        run: The folder of its run. A folder without training pairs, such as an export, is not checked.
        sources: The sentences of the test set in the model's source language.
        noun: What these sentences are, for messages.
        score: What is too high if the model was trained on them, for messages.
    """
    cache = run / "data" / "train.arrow"
    if not cache.is_file():
        return
    try:
        seen = count_trained_on(EncodedPairs(cache), Tokenizer.load(run / "tokenizer.json"), sources)
    except (DataError, ModelError) as error:
        log.warning("cannot tell if %s was trained on these sources: %s", model, error)
        return
    if seen:
        share = share_of(seen, len(sources), noun)
        log.warning("%s: %s in this model's training data: %s is too high", model, share, score)


def share_of(seen: int, of: int, noun: str) -> str:
    """Return the start of a sentence: `1 of 9 test sources is`, `2 of 9 test sources are`."""
    return f"{seen:,} of {counted(of, noun)} {'is' if seen == 1 else 'are'}"


def count_trained_on(pairs: EncodedPairs, tokenizer: Tokenizer, sources: Sequence[str]) -> int:
    """Count the sentences that are also the source of a training pair, compared as token ids.

    The encoded pairs are read once, chunk by chunk. Only the rows whose key (see `_keys`) is that of a sentence are
    compared in full. With `text.placeholders`, a training source in which a token replaced text is not found.
    """
    texts = [source.strip() for source in sources]
    sentences = [np.array(ids, dtype=np.int32) for ids in tokenizer.encode_src([text for text in texts if text])]
    if not sentences:
        return 0
    wanted = {sentence.tobytes() for sentence in sentences}
    keys = np.unique([_keys(sentence, np.array([0, len(sentence)]))[0] for sentence in sentences])
    found = set[bytes]()
    may_have_terms = tokenizer.sentencepiece is None  # otherwise the ids of the markers are those of ordinary tokens
    for src in pairs.sources():
        values, offsets = without_annotations(*src) if may_have_terms else src
        for row in np.flatnonzero(np.isin(_keys(values, offsets), keys)):
            ids = values[offsets[row] : offsets[row + 1]].tobytes()
            if ids in wanted:
                found.add(ids)
    return sum(sentence.tobytes() in found for sentence in sentences)


def _keys(values: Ids, offsets: Ids) -> Keys:
    """Return a key for each row, made of its length and its first, middle and last token. Equal rows have equal keys.

    Args:
        values: The ids of all rows.
        offsets: (rows + 1,), where each row starts in `values`, and the end of the last one.
    """
    starts = offsets[:-1]
    ends = offsets[1:]
    keys = (ends - starts).astype(np.uint64)
    if not len(values):
        return keys
    last = len(values) - 1
    for place in (starts, (starts + ends) // 2, ends - 1):
        keys = keys * _FACTOR + values[place.clip(0, last)].astype(np.uint64)
    return keys
