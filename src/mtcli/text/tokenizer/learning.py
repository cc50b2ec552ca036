"""Learn the vocabulary of a tokenizer from text.

The same text gives the same vocabulary, byte for byte, on every machine. At most `MAX_LINES` lines of each side are
looked at, spread evenly over the corpus.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, pre_tokenizers, trainers

from mtcli.errors import DataError, UsageError
from mtcli.text.placeholders import TOKENS
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, KINDS, Side, Tokenizer, TrainedSide
from mtcli.text.tokenizer.vocabulary_file import RESERVED, build_spec, call_native

MAX_LINES = 1_000_000
"""Lines of each side that training looks at."""
MAX_CHARS = 200_000_000
"""Characters of each side that training looks at."""
MAX_LINE = 4096
"""Characters of one line that training looks at."""
MIN_FREQUENCY = 2
"""A character, a word or a pair of tokens that occurs only once is not worth an embedding."""
MIN_ALPHABET = 256
"""An alphabet up to this size is kept whole; a larger one gets at most half of the vocabulary."""


def default_vocab_size(words: int, kind: str = "bpe") -> int:
    """Return the default vocabulary size for a corpus.

    For `bpe` it is 100 · ∛words, from 512 to the paper's 37,000 (§5.1): about 2,700 for 20 thousand words, 8,900 for
    the 700 thousand of Multi30K, 37,000 from 50 million on. `word` and `char` take the tokens that the corpus repeats,
    up to 32,000 and 8,000. In every kind, a corpus with too little repetition gives fewer.

    Args:
        words: Running words of the corpus, of both sides if they share one vocabulary.
        kind: One of `KINDS`.
    """
    if kind != "bpe":
        return {"word": 32_000, "char": 8_000}[kind]
    size: float = 100 * max(words, 0) ** (1 / 3)
    return max(512, min(37_000, 64 * round(size / 64)))


def train_tokenizer(
    pairs: Iterable[tuple[str, str]],
    *,
    kind: str = "bpe",
    vocab_size: int | None = None,
    joint: bool = True,
    placeholders: bool = False,
    target_languages: Sequence[str] = (),
) -> Tokenizer:
    """Learn a tokenizer from sentence pairs.

    Args:
        pairs: Source and target text.
        kind: One of `KINDS`.
        vocab_size: Tokens in each vocabulary; None: `default_vocab_size`.
        joint: Learn one vocabulary from both sides; otherwise one for each side.
        placeholders: Give the vocabulary the placeholder tokens, also those that the text does not have.
        target_languages: Give the source vocabulary a tag for each of these languages.

    Raises:
        UsageError: There is no such kind, or `vocab_size` is too small for the characters of the text.
        DataError: The text is too short for `vocab_size`, or repeats no character.
    """
    _check_kind(kind)
    required = TOKENS if placeholders else ()
    src = _Sample()
    tgt = _Sample()
    for src_text, tgt_text in pairs:
        src.add(src_text.removeprefix(BACK_TRANSLATION_TAG))
        tgt.add(tgt_text)
    tags = [_tag_token(language) for language in target_languages]
    if joint:
        return Tokenizer.from_specs(_learn([src, tgt], kind, vocab_size, "the text", required, tags))
    src_spec = _learn([src], kind, vocab_size, "the source side", required, tags)
    tgt_spec = _learn([tgt], kind, vocab_size, "the target side", required)
    return Tokenizer.from_specs(src_spec, tgt_spec)


def _tag_token(language: str) -> str:
    """Return the token of a target language."""
    return f">>{language}<<"


def train_tokenizer_on_lines(
    lines: Iterable[str],
    *,
    kind: str = "bpe",
    vocab_size: int | None = None,
    placeholders: bool = False,
    target_languages: Sequence[str] = (),
) -> Tokenizer:
    """Learn a tokenizer with a joint vocabulary from lines of text; see `train_tokenizer`."""
    _check_kind(kind)
    required = TOKENS if placeholders else ()
    sample = _Sample()
    for line in lines:
        sample.add(line.removeprefix(BACK_TRANSLATION_TAG))
    tags = [_tag_token(language) for language in target_languages]
    return Tokenizer.from_specs(_learn([sample], kind, vocab_size, "the text", required, tags))


def extend(
    side: Side, lines: Iterable[str], vocab_size: int | None = None, target_languages: Sequence[str] = ()
) -> TrainedSide:
    """Add the tokens that the text of another language needs to a vocabulary of the kind `bpe`.

    The text is split into the tokens of the vocabulary, after characters are added that are new, and then more
    neighbors are merged. The ids of the tokens that the vocabulary has stay the same.

    Args:
        side: The vocabulary.
        lines: The text.
        vocab_size: Tokens afterwards; None: as many more as a vocabulary of the text alone has by default.
        target_languages: Languages for which tags are added.

    Raises:
        UsageError: The vocabulary is of another kind, or too large.
    """
    if not isinstance(side, TrainedSide) or side.kind != "bpe":
        raise UsageError(f"only a bpe vocabulary can be extended, not a {side.kind} vocabulary")
    if len(side.tokens) > MAX_EXTENDED:
        raise UsageError(
            f"a vocabulary of more than {MAX_EXTENDED:,} tokens cannot be extended; set tokenizer.transfer to new"
        )
    sample = _Sample()
    for line in lines:
        sample.add(line.removeprefix(BACK_TRANSLATION_TAG))
    tags = [_tag_token(language) for language in target_languages]
    room = default_vocab_size(sample.words()) - len(RESERVED) if sample.lines else 0
    if vocab_size is not None:
        room = max(vocab_size - len(side.tokens) - len(tags), 0)
    known = set(side.tokens)
    characters = [character for character in _alphabet(side.native, [sample]) if character not in known]
    added = sorted(characters[: min(room, max(MIN_ALPHABET, room // 2))])
    tokens = [*side.tokens[len(RESERVED) :], *added]
    merges = list(side.spec["model"]["merges"])
    base = TrainedSide(build_spec(tokens, merges, whole_words=False), "the vocabulary")
    known.update(added)
    room -= len(added)
    for left, right in _learn_further_merges(base, sample, room):
        if left + right not in known:
            if room == 0:
                break
            room -= 1
            known.add(left + right)
            tokens.append(left + right)
        merges.append([left, right])
    return TrainedSide(build_spec([*tokens, *tags], merges, whole_words=False), "the vocabulary")


FIRST_PRIVATE = 0xF0000
"""Code point of the private character that stands for token 0 where further merges are learned."""
MAX_EXTENDED = 100_000
"""Tokens of a vocabulary that can be extended at most: each has a private character, of which there are 131,068."""


def _learn_further_merges(side: TrainedSide, sample: _Sample, room: int) -> list[tuple[str, str]]:
    """Return merges of the tokens that a text is split into, most frequent first.

    The trainer merges characters, so each token becomes a character. Words are split where they have bytes, which no
    merge may have.

    Args:
        side: Splits the text.
        sample: The text.
        room: The most tokens that the merges may add.
    """

    def lines() -> Iterator[str]:
        native = side.native
        for line in sample.lines:
            words = native.pre_tokenizer.pre_tokenize_str(native.normalizer.normalize_str(line))
            yield " ".join(_as_characters(side, word) for word, _ in words)

    native = HFTokenizer(models.BPE())
    native.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=len(side.tokens) + room, min_frequency=MIN_FREQUENCY, show_progress=False)
    native.train_from_iterator(lines(), trainer)
    merges = json.loads(native.to_str())["model"]["merges"]
    return [(_as_text(side, left), _as_text(side, right)) for left, right in merges]


def _as_characters(side: TrainedSide, word: str) -> str:
    return "".join(" " if i in side.byte_of else chr(FIRST_PRIVATE + i) for i in side.split(word))


def _as_text(side: TrainedSide, characters: str) -> str:
    return "".join(side.tokens[ord(character) - FIRST_PRIVATE] for character in characters)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"tokenizer type {kind!r} does not exist; choose one of {', '.join(KINDS)}")


class _Sample:
    """At most MAX_LINES lines and MAX_CHARS characters, spread evenly over a stream of unknown length.

    Every stride-th line is kept. When there are too many, every second line is dropped and the stride doubles.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stride = 1
        self.seen = 0
        self.chars = 0

    def add(self, text: str) -> None:
        if self.seen % self.stride == 0:
            self.lines.append(text[:MAX_LINE])
            self.chars += len(self.lines[-1])
            while len(self.lines) > 1 and (len(self.lines) > MAX_LINES or self.chars > MAX_CHARS):
                del self.lines[1::2]
                self.stride *= 2
                self.chars = sum(map(len, self.lines))
        self.seen += 1

    def words(self) -> int:
        """Return the running words of the whole stream, estimated as six bytes each, for scripts without spaces too."""
        size = sum(len(x) if x.isascii() else len(x.encode("utf-8", "replace")) for x in self.lines)
        return size * self.stride // 6


def _learn(
    samples: Sequence[_Sample],
    kind: str,
    vocab_size: int | None,
    name: str,
    required: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> dict[str, Any]:
    """Learn one vocabulary, and return the content of its tokenizer file.

    Args:
        samples: The text.
        kind: One of `KINDS`.
        vocab_size: Tokens in the vocabulary; None: `default_vocab_size`.
        name: Stands for the text in messages.
        required: Characters that the vocabulary has in any case.
        tags: Tokens of target languages, which no text has. They are part of the size.
    """
    native = HFTokenizer.from_str(json.dumps(build_spec([], [], whole_words=False)))
    alphabet = _alphabet(native, samples)
    if not alphabet:
        raise DataError(f"no text to train a tokenizer on: {name} is empty or repeats no character")
    alphabet = [*required, *(character for character in alphabet if character not in required)]
    reserved = len(RESERVED) + len(tags)
    size = _choose_size(samples, kind, vocab_size, len(alphabet), name, reserved)
    room = size - reserved
    most_characters = room if kind == "char" else max(MIN_ALPHABET, room // 2)
    tokens = sorted(alphabet[:most_characters])
    merges: list[list[str]] = []
    if kind == "bpe" and room > len(tokens):
        tokens, merges = _learn_merges(native, samples, tokens, room)
    elif kind == "word":
        tokens = _add_words(native, samples, tokens, room)
    tokens = [*tokens, *tags]
    found = len(RESERVED) + len(tokens)
    if vocab_size is not None and found < vocab_size:
        raise DataError(
            f"a vocabulary of {vocab_size} is more than {name} can give: it repeats enough for {found}; "
            f"ask for {found} or fewer, or omit the size"
        )
    return build_spec(tokens, merges, whole_words=kind == "word")


def _choose_size(
    samples: Sequence[_Sample], kind: str, vocab_size: int | None, characters: int, name: str, reserved: int
) -> int:
    """Return the size of the vocabulary, `reserved` tokens included.

    Raises:
        UsageError: The given size is too small for the reserved tokens and the characters.
    """
    kept_characters = min(characters, MIN_ALPHABET)
    least = reserved + kept_characters
    if vocab_size is None:
        words = sum(sample.words() for sample in samples)
        return max(default_vocab_size(words, kind), least + MIN_ALPHABET)
    if vocab_size < least:
        raise UsageError(
            f"a vocabulary of {vocab_size} is too small: {name} needs at least {least} "
            f"({reserved} special and byte tokens, {kept_characters} characters)"
        )
    return vocab_size


def _learn_merges(
    native: HFTokenizer, samples: Sequence[_Sample], characters: list[str], room: int
) -> tuple[list[str], list[list[str]]]:
    """Learn byte-pair merges; return at most `room` tokens, characters first, and the merges."""
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
    )
    native.train_from_iterator(_lines(samples), trainer)
    model = json.loads(native.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), model["merges"]


def _add_words(native: HFTokenizer, samples: Sequence[_Sample], characters: list[str], room: int) -> list[str]:
    """Return at most `room` tokens: the characters, then the most frequent words."""
    trainer = trainers.WordLevelTrainer(vocab_size=room, min_frequency=MIN_FREQUENCY, show_progress=False)
    native.model = models.WordLevel(unk_token="")
    native.train_from_iterator(_lines(samples), trainer)
    vocab = json.loads(native.to_str())["model"]["vocab"]
    single = set(characters)
    words = [word for word in sorted(vocab, key=vocab.__getitem__) if word not in single]
    return [*characters, *words][:room]


def _lines(samples: Sequence[_Sample]) -> Iterator[str]:
    return chain.from_iterable(sample.lines for sample in samples)


def _alphabet(native: HFTokenizer, samples: Sequence[_Sample]) -> list[str]:
    """Return the characters that occur at least twice, most frequent first; ties are in code point order."""
    counts: Counter[str] = Counter()

    def count() -> None:
        for line in _lines(samples):
            counts.update(native.normalizer.normalize_str(line))

    call_native(count, _lines(samples))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [character for character, count in ordered if count >= MIN_FREQUENCY]
