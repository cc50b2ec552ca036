"""What mtcli needs of the library `tokenizers`: the file of a vocabulary trained here, and calls that may fail.

The model in the file is byte-pair encoding with byte fallback. `text/tokenizer/tokenizer.py` describes the kinds and
the layout of the ids.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as HFTokenizer

from mtcli.errors import DataError, ModelError

SPECIALS = ["<pad>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RESERVED = SPECIALS + BYTES
"""The tokens that every vocabulary trained here starts with."""

LINES = 4096
"""Lines per call of the native library."""

# Letters with their marks, one digit, or a run of other signs, each with the space before it; then the remaining
# spaces. The limit of 128 keeps a line without spaces from becoming one enormous "word".
WORD = r" ?[\p{L}\p{M}]{1,128}| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]{1,128}|\s{1,128}(?!\S)|\s{1,128}"
FRAME: dict[str, Any] = {
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
"""A Hugging Face tokenizer file without its model."""
MODEL: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": True,
}
"""The model in the file without `ignore_merges`, `vocab` and `merges`."""


def build_spec(tokens: list[str], merges: list[list[str]], *, whole_words: bool) -> dict[str, Any]:
    """Return the content of a Hugging Face tokenizer file.

    Args:
        tokens: The vocabulary after `RESERVED`, in the order of the ids.
        merges: Pairs of tokens to merge, most frequent first.
        whole_words: Look up whole words before merging; for the kind `word`.
    """
    vocab = {token: i for i, token in enumerate(RESERVED + tokens)}
    return FRAME | {"model": MODEL | {"ignore_merges": whole_words, "vocab": vocab, "merges": merges}}


def check_spec(spec: Any, side: str) -> list[str]:
    """Check that a file has the form that `build_spec` gives, and return its tokens by id.

    Everything except vocabulary and merges must be exactly ours: a file from elsewhere could contain a word pattern
    that takes exponential time.

    Raises:
        ModelError: It has another form.
    """

    def require(condition: bool, otherwise: str) -> None:
        if not condition:
            raise ModelError(f"not a tokenizer of mtcli: {otherwise} ({side})")

    model: Any = spec.get("model") if isinstance(spec, dict) else None
    require(isinstance(model, dict), "it has no model")
    vocab = model.get("vocab")
    merges = model.get("merges")
    whole_words = model.get("ignore_merges")
    right_types = isinstance(vocab, dict) and isinstance(merges, list) and isinstance(whole_words, bool)
    require(right_types, "wrong types")
    frame = FRAME | {"model": MODEL | {"ignore_merges": whole_words, "vocab": vocab, "merges": merges}}
    require(spec == frame, "its normalizer, word pattern, decoder or model settings are different")
    require(all(type(i) is int for i in vocab.values()), "an id is no integer")
    tokens = sorted(vocab, key=vocab.__getitem__)
    require([vocab[token] for token in tokens] == list(range(len(tokens))), "its ids are not 0, 1, 2, …")
    require(tokens[: len(RESERVED)] == RESERVED, "the first 259 tokens are not <pad>, <s>, </s> and the bytes")
    require("" not in vocab, "a token is empty")
    require(not (whole_words and merges), "it has both whole words and merges")
    require(all(_is_merge(pair, vocab) for pair in merges), "a merge names tokens that are not in the vocabulary")
    return tokens


def _is_merge(pair: Any, vocab: dict[str, int]) -> bool:
    """Return True if both halves of a merge and their concatenation are tokens."""
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(half, str) for half in pair)):
        return False
    return {*pair, "".join(pair)} <= vocab.keys()


def tokens_like(pattern: re.Pattern[str], tokens: Sequence[str]) -> dict[str, int]:
    """Return the ids of the tokens that match a pattern, by the text of its group."""
    matches = ((i, pattern.fullmatch(token)) for i, token in enumerate(tokens))
    return {match[1]: i for i, match in matches if match}


def encode_lines(native: HFTokenizer, lines: Sequence[str]) -> Iterator[Encoding]:
    """Encode lines, `LINES` at a time.

    Raises:
        DataError, ModelError: See `call_native`.
    """
    for start in range(0, len(lines), LINES):
        chunk = list(lines[start : start + LINES])
        yield from call_native(partial(native.encode_batch_fast, chunk, add_special_tokens=False), chunk)


def call_native(call: Callable[[], Any], texts: Iterable[str] = ()) -> Any:
    """Call the native library, and turn its errors into a ModelError.

    Args:
        call: Calls the library. A panic in it raises a BaseException that is not an Exception.
        texts: What the call encodes.

    Raises:
        DataError: The call failed, and one of `texts` contains a lone surrogate.
        ModelError: The call failed for another reason.
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
