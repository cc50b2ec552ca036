"""Text to ids and back: train, load, save, encode, decode (around Hugging Face `tokenizers`).

All three kinds are one model, byte-pair encoding with a byte fallback, so no input is ever unknown:

- `bpe`: pieces learnt by merging frequent neighbours, the paper's choice (§5.1);
- `word`: whole words; a word that is not in the vocabulary is spelt in characters;
- `char`: characters only.

A character that is not in the vocabulary is spelt in its UTF-8 bytes. Ids are laid out alike in every kind:

    0 <pad>   1 <s>   2 </s>   3…258 the bytes <0x00>…<0xFF>   then the alphabet, then the pieces

A piece carries the space before its word, and every line is given one in front, so a word is the same piece
at the start of a line and inside it. Decoding takes that one space away again. What encoding changes is Unicode
form (NFC) and a newline, which becomes a space; nothing else.

The special names are entries of the vocabulary, never patterns looked for in text: a literal `</s>` or `<0x0A>`
in a sentence is ordinary signs, letters and digits, which the word pattern never lets into one piece.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, trainers

from mtcli.errors import DataError, ModelError, UsageError
from mtcli.runtime.outputs import write_whole
from mtcli.runtime.regular_file import open_regular

__all__ = ["BOS", "EOS", "KINDS", "PAD", "Tokenizer", "default_vocab_size", "train"]

PAD, BOS, EOS = 0, 1, 2
KINDS = ("bpe", "word", "char")

SPECIALS = ["<pad>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RESERVED = SPECIALS + BYTES

# Letters with their marks, one digit, or a run of other signs, each with the space before it; then left-over
# spaces. The bound of 128 keeps a line without spaces from becoming one enormous "word".
WORD = r" ?[\p{L}\p{M}]{1,128}| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]{1,128}|\s{1,128}(?!\S)|\s{1,128}"
FRAME: dict[str, Any] = {  # a Hugging Face tokenizers file, all but its model
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"String": "\n"}, "content": " "},
            {"type": "Prepend", "prepend": " "},
        ],
    },
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": WORD}, "behavior": "Isolated", "invert": False},
    "post_processor": None,
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
}
MODEL: dict[str, Any] = {  # its model, all but ignore_merges, vocab and merges
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": True,
}
SEPARATE = "mtcli-separate-vocabularies"

MAX_FILE = 256 * 2**20  # bytes of tokenizer.json that are read
CHUNK = 4096  # lines handed to the native library at once
MAX_LINES = 1_000_000  # lines of each side that training looks at, evenly spread over the data
MAX_CHARS = 200_000_000  # and characters
MAX_LINE = 4096  # characters of one line that training looks at
MIN_FREQUENCY = 2  # a character, word or pair of pieces seen once is not worth an embedding
MIN_ALPHABET = 256  # an alphabet up to this size is kept whole; a larger one gets at most half of the pieces


def default_vocab_size(words: int, kind: str = "bpe") -> int:
    """The vocabulary size for a corpus of so many running words (both sides when they share one vocabulary).

    For `bpe` 100 · ∛words, from 512 to the paper's 37,000: about 2,700 for 20 thousand words, 8,900 for the
    700 thousand of Multi30K, 37,000 from 50 million. `word` and `char` take what the data repeats, up to 32,000
    and 8,000 pieces. In every kind training may end with fewer.
    """
    if kind != "bpe":
        return {"word": 32_000, "char": 8_000}[kind]
    rule: float = 100 * max(words, 0) ** (1 / 3)
    return max(512, min(37_000, 64 * round(rule / 64)))


class Tokenizer:
    """A source and a target vocabulary: two names for one table when `joint`."""

    def __init__(self, src: dict[str, Any], tgt: dict[str, Any] | None = None) -> None:
        """Take parsed `tokenizers` files; `tgt` None means both sides share `src`. See `train` and `load`."""
        self._src = _Side(src, "src")
        self._tgt = self._src if tgt is None else _Side(tgt, "tgt")
        self.joint: bool = tgt is None
        # A side whose text was too short for merges looks like char.
        kinds = {self._src.kind, self._tgt.kind}
        if len(kinds) > 1 and "word" in kinds:
            raise ModelError("not a tokenizer of mtcli: its two sides are of different types")
        self.kind: str = min(kinds)
        self.src_vocabulary, self.tgt_vocabulary = self._src.pieces, self._tgt.pieces
        self.src_size: int = len(self._src.pieces)
        self.tgt_size: int = len(self._tgt.pieces)
        newline = RESERVED.index("<0x0A>")
        self.forbidden: list[int] = [
            i for i, piece in enumerate(self._tgt.pieces) if i in (PAD, BOS, newline) or "\n" in piece
        ]

    def encode_src(self, texts: Sequence[str]) -> list[list[int]]:
        """Source lines to ids, without <s> and </s>, which the caller adds."""
        return self._src.encode(texts)

    def encode_tgt(self, texts: Sequence[str]) -> list[list[int]]:
        """Target lines to ids, without <s> and </s>, which the caller adds."""
        return self._tgt.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Target ids to lines of text; <pad>, <s> and </s> are dropped, broken UTF-8 becomes U+FFFD."""
        return self._tgt.decode(ids)

    def src_tokens(self, ids: Sequence[int]) -> list[str]:
        """Source ids as tokens to display; a space is written ▁."""
        return [self._src.pieces[i].replace(" ", "▁") for i in ids]

    def tgt_tokens(self, ids: Sequence[int]) -> list[str]:
        """Target ids as tokens to display; a space is written ▁."""
        return [self._tgt.pieces[i].replace(" ", "▁") for i in ids]

    def to_json(self) -> str:
        """The text of `tokenizer.json`: a Hugging Face file when joint, else two in a wrapper."""
        both = {"format": SEPARATE, "src": self._src.spec, "tgt": self._tgt.spec}
        return json.dumps(self._src.spec if self.joint else both, ensure_ascii=False, indent=1) + "\n"

    def digest(self) -> str:
        """SHA-256 of `to_json`, by which a model knows its tokenizer."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Read what `to_json` wrote; anything else is a ModelError."""
        try:
            spec = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"not JSON ({error}); was it cut short or written by another tool?") from None
        if not isinstance(spec, dict):
            raise ModelError("not a tokenizer: the file holds no JSON object")
        if spec.get("format") != SEPARATE:
            return cls(spec)
        if set(spec) != {"format", "src", "tgt"}:
            raise ModelError("not a tokenizer: separate vocabularies need just 'src' and 'tgt'")
        return cls(spec["src"], spec["tgt"])

    def save(self, path: Path) -> None:
        """Write `tokenizer.json` whole or not at all."""
        write_whole(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a `tokenizer.json`, checked before the native library sees it."""
        path = Path(path)
        try:
            with open_regular(path) as file:
                data = file.read(MAX_FILE + 1)
            if len(data) > MAX_FILE:
                raise ModelError(f"larger than {MAX_FILE >> 20} MiB, which no tokenizer is")
            return cls.from_json(data.decode("utf-8"))
        except OSError as error:
            raise ModelError(f"cannot read the tokenizer {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ModelError(f"cannot use the tokenizer {path}: not UTF-8") from None
        except ModelError as error:
            raise ModelError(f"cannot use the tokenizer {path}: {error}") from None


class _Side:
    """One vocabulary: its checked file, its pieces by id, and the native tokenizer."""

    def __init__(self, spec: dict[str, Any], name: str) -> None:
        self.pieces = _check(spec, name)
        model = spec["model"]
        self.spec = _spec(self.pieces[len(RESERVED) :], model["merges"], model["ignore_merges"])
        self.kind = "bpe" if model["merges"] else "word" if model["ignore_merges"] else "char"
        self.native = _native(lambda: HFTokenizer.from_str(json.dumps(self.spec, ensure_ascii=False)))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = []
        for start in range(0, len(texts), CHUNK):
            rows += self._encode_chunk(list(texts[start : start + CHUNK]))
        return rows

    def _encode_chunk(self, chunk: list[str]) -> list[list[int]]:
        encode = self.native.encode_batch_fast
        return [e.ids for e in _native(lambda: encode(chunk, add_special_tokens=False), chunk)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        kept = [[i for i in row if i > EOS] for row in rows]
        return list(_native(lambda: self.native.decode_batch(kept, skip_special_tokens=False)))


def _native(call: Callable[[], Any], texts: Iterable[str] = ()) -> Any:
    """Call the native library; its errors, and its panics (which are no Exception), become a ModelError.

    If one of `texts` holds half a surrogate pair, which is no text, the fault is the data's: a DataError.
    """
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        for text in texts:
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise DataError(f"text that is not valid Unicode: {text[:60]!r}") from None
        raise ModelError(f"the tokenizers library refuses it ({error})") from None


def _check(spec: Any, side: str) -> list[str]:
    """The pieces by id, if the file is one we could have written.

    The word pattern and the like must be ours too: a file from elsewhere may bring one that never ends.
    """

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise ModelError(f"not a tokenizer of mtcli: {what} ({side})")

    model: Any = spec.get("model") if isinstance(spec, dict) else None
    need(isinstance(model, dict), "it has no model")
    vocab, merges, whole = model.get("vocab"), model.get("merges"), model.get("ignore_merges")
    need(isinstance(vocab, dict) and isinstance(merges, list) and isinstance(whole, bool), "wrong types")
    frame = FRAME | {"model": MODEL | {"ignore_merges": whole, "vocab": vocab, "merges": merges}}
    need(spec == frame, "its normalizer, word pattern, decoder or model settings are others")
    need(all(type(i) is int for i in vocab.values()), "an id is no integer")
    pieces = sorted(vocab, key=vocab.__getitem__)
    need([vocab[p] for p in pieces] == list(range(len(pieces))), "its ids are not 0, 1, 2, …")
    need(pieces[: len(RESERVED)] == RESERVED, "the first 259 pieces are not <pad>, <s>, </s> and the bytes")
    need("" not in vocab, "a piece is empty")
    need(not (whole and merges), "it has both whole words and merges")
    for pair in merges:
        two = isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)
        need(two and {*pair, "".join(pair)} <= vocab.keys(), "a merge names pieces that it lacks")
    return pieces


class _Sample:
    """At most MAX_LINES lines and MAX_CHARS characters, evenly spread over a stream of unknown length.

    Every stride-th line is kept; when that is too much, every second one is let go and the stride doubles.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stride, self.seen, self.chars = 1, 0, 0

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
        """Running words of the whole stream, as six bytes each, which suits scripts without spaces too."""
        size = sum(len(x) if x.isascii() else len(x.encode("utf-8", "replace")) for x in self.lines)
        return size * self.stride // 6


def train(
    pairs: Iterable[tuple[str, str]] | Iterable[str],
    tgt: Iterable[str] | None = None,
    *,
    kind: str = "bpe",
    vocab_size: int | None = None,
    joint: bool = True,
) -> Tokenizer:
    """Learn a vocabulary from pairs, or from source lines and target lines `tgt`, which need not be parallel.

    `joint` learns one vocabulary from both sides, else each side gets its own of `vocab_size` pieces. Without a
    `vocab_size` the corpus decides (`default_vocab_size`). The same text gives the same vocabulary, to the byte.
    Of a large corpus a million lines of each side, evenly spread, are looked at.
    """
    if kind not in KINDS:
        raise UsageError(f"tokenizer type {kind!r} does not exist; choose one of {', '.join(KINDS)}")
    sides = _Sample(), _Sample()
    if tgt is None:
        for pair in pairs:
            sides[0].add(pair[0])
            sides[1].add(pair[1])
    else:
        for side, lines in zip(sides, (pairs, tgt), strict=True):
            for line in lines:
                side.add(line)  # type: ignore[arg-type]
    if joint:
        return Tokenizer(_train_side(sides, kind, vocab_size, "the text"))
    src, tgt_spec = (
        _train_side([side], kind, vocab_size, f"the {name} side")
        for side, name in zip(sides, ("source", "target"), strict=True)
    )
    return Tokenizer(src, tgt_spec)


def _train_side(samples: Sequence[_Sample], kind: str, vocab_size: int | None, name: str) -> dict[str, Any]:
    """One vocabulary from these lines, as the text of its file."""
    native = HFTokenizer.from_str(json.dumps(_spec([], [], False)))
    alphabet = _alphabet(native, samples)
    if not alphabet:
        raise DataError(f"no text to train a tokenizer on: {name} is empty or repeats no character")
    least = len(RESERVED) + min(len(alphabet), MIN_ALPHABET)
    if vocab_size is None:
        words = sum(sample.words() for sample in samples)
        size = max(default_vocab_size(words, kind), least + MIN_ALPHABET)
    else:
        size = vocab_size
    if size < least:
        raise UsageError(
            f"a vocabulary of {size} is too small: {name} needs at least {least} "
            f"({len(RESERVED)} special and byte pieces, {least - len(RESERVED)} characters)"
        )
    room = size - len(RESERVED)
    pieces = sorted(alphabet[: room if kind == "char" else max(MIN_ALPHABET, room // 2)])
    merges: list[list[str]] = []
    options: dict[str, Any] = {"vocab_size": room, "min_frequency": MIN_FREQUENCY, "show_progress": False}
    if kind == "bpe" and room > len(pieces):
        options |= {"initial_alphabet": pieces, "limit_alphabet": len(pieces)}
        native.train_from_iterator(_lines(samples), trainers.BpeTrainer(**options))
        model = json.loads(native.to_str())["model"]
        pieces, merges = sorted(model["vocab"], key=model["vocab"].__getitem__), model["merges"]
    elif kind == "word":
        native.model = models.WordLevel(unk_token="")
        native.train_from_iterator(_lines(samples), trainers.WordLevelTrainer(**options))
        vocab = json.loads(native.to_str())["model"]["vocab"]
        known = set(pieces)
        pieces += [word for word in sorted(vocab, key=vocab.__getitem__) if word not in known]
        pieces = pieces[:room]
    found = len(RESERVED) + len(pieces)
    if vocab_size is not None and found < vocab_size:
        raise DataError(
            f"a vocabulary of {vocab_size} is more than {name} can give: it repeats enough for {found}; "
            f"ask for {found} or fewer, or leave the size out"
        )
    return _spec(pieces, merges, kind == "word")


def _lines(samples: Sequence[_Sample]) -> Iterator[str]:
    return chain.from_iterable(sample.lines for sample in samples)


def _alphabet(native: HFTokenizer, samples: Sequence[_Sample]) -> list[str]:
    """The characters seen twice or more, by falling frequency, then by code point: ties never fall by chance."""
    counts: Counter[str] = Counter()

    def count() -> None:
        for line in _lines(samples):
            counts.update(native.normalizer.normalize_str(line))

    _native(count, _lines(samples))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [character for character, count in ordered if count >= MIN_FREQUENCY]


def _spec(pieces: list[str], merges: list[list[str]], whole: bool) -> dict[str, Any]:
    vocab = {piece: i for i, piece in enumerate(RESERVED + pieces)}
    return FRAME | {"model": MODEL | {"ignore_merges": whole, "vocab": vocab, "merges": merges}}
