"""Text to token ids and back, on top of Hugging Face `tokenizers`; `text/tokenizer/learning.py` learns the vocabulary.

Three kinds are trained here. They are byte-pair encoding with byte fallback, so no input is ever unknown:

- `bpe`: subwords, learned by merging frequent neighbors, as in the paper (§5.1);
- `word`: whole words; a word that is not in the vocabulary is encoded as characters;
- `char`: characters only.

A character that is not in the vocabulary is encoded as its UTF-8 bytes. The ids have the same layout in every kind:

    0 <pad>   1 <s>   2 </s>   3…258 the bytes <0x00>…<0xFF>   then the characters, then the longer tokens

A model with several target languages has a token such as `>>gn<<` for each, which is put before the source.

A token includes the space before its word. Every line gets one space in front, so that a word is the same token at the
start of a line and inside it; decoding removes that space again. Encoding changes the text in two ways only: it
normalizes Unicode (NFC), and turns a newline into a space.

The special tokens are entries of the vocabulary and are never matched in text. The word pattern splits a literal `</s>`
or `<0x0A>` in a sentence into signs, letters and digits, so it can never become a special token.

A fourth kind, `sentencepiece`, comes only with imported models (`text/tokenizer/sentencepiece.py`). Its ids begin with
the same three special tokens. It has a token `<unk>` and, in most models, none for bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unicodedata import normalize

from tokenizers import Tokenizer as HFTokenizer

from mtcli.errors import ModelError, UsageError
from mtcli.runtime.files import read_regular
from mtcli.runtime.outputs import write_whole
from mtcli.text import languages
from mtcli.text.placeholders import TOKENS
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.sentencepiece import SentencePieceSide, sides_from_json, sides_to_json
from mtcli.text.tokenizer.vocabulary_file import (
    BYTES,
    RESERVED,
    SPECIALS,
    build_spec,
    call_native,
    check_spec,
    encode_lines,
    tokens_like,
)

KINDS = ("bpe", "word", "char")
NEWLINE = 0x0A

MARKER_BYTES = {"<bt>": 0xFF, "<term>": 0xF5, "<translation>": 0xF6, "</term>": 0xF7}
"""The bytes whose tokens mark something in a source. UTF-8 has none of 0xC0, 0xC1 and 0xF5 to 0xFF, so these tokens are
free, and every vocabulary trained here has them."""

LANGUAGE_TAG = re.compile(r">>([A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*)<<")
"""The token of a target language in a vocabulary trained here, such as `>>gn<<`. No token of a text is like it: the
word pattern separates letters and digits from signs."""

BACK_TRANSLATION_TAG = "<bt> "
"""Beginning of a source that a model wrote (Caswell et al. 2019). It is encoded as one token, see `TrainedSide.tag`."""

SEPARATE = "mtcli-separate-vocabularies"
"""Format name of a file with two vocabularies."""
SENTENCEPIECE = "mtcli-sentencepiece"
"""Format name of a file with the SentencePiece models of an imported model."""

MAX_FILE = 256 * 2**20
"""Size limit of `tokenizer.json` in bytes."""


@dataclass(frozen=True)
class Annotation:
    """A term of a source, and the translation that is written beside it."""

    start: int
    """Index of its first character in the source, normalized to NFC."""
    end: int
    """Index after its last character."""
    target: str


class Side(Protocol):
    """How one side is encoded."""

    kind: str
    tokens: list[str]
    """The vocabulary: tokens by id."""
    byte_of: dict[int, int]
    """The value of each token that stands for a byte."""
    tags: dict[str, int]
    """The id of each tag of a target language, by the language: `fra` for `>>fra<<`."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of lines, without `<s>` and `</s>`."""

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the lines of token ids, without special tokens."""

    def split(self, text: str) -> list[int]:
        """Return the ids of the tokens that form a text, which is a part of a word or a word with its space."""


class Tokenizer:
    """A source and a target side; they have the same vocabulary if `joint`."""

    def __init__(self, src: Side, tgt: Side) -> None:
        """Combine two sides, which may be one object.

        Raises:
            ModelError: They are of different kinds.
        """
        self._src = src
        self._tgt = tgt
        self.joint: bool = src is tgt or isinstance(src, SentencePieceSide)
        # A bpe side with too little text for any merge looks like char.
        kinds = {src.kind, tgt.kind}
        if len(kinds) > 1 and "word" in kinds:
            raise ModelError("not a tokenizer of mtcli: its two sides are of different types")
        self.kind: str = min(kinds)
        self.src_vocabulary: list[str] = src.tokens
        self.tgt_vocabulary: list[str] = tgt.tokens
        self.src_size: int = len(self.src_vocabulary)
        self.tgt_size: int = len(self.tgt_vocabulary)
        self.src_byte_of: dict[int, int] = src.byte_of
        """The value of each source token that stands for a byte."""
        self.tgt_byte_of: dict[int, int] = tgt.byte_of
        """The value of each target token that stands for a byte."""
        self.forbidden: list[int] = _never_generated(tgt)
        self.unknown: int | None = src.unknown if isinstance(src, SentencePieceSide) else None
        """Id of `<unk>`, which only the kind `sentencepiece` has."""
        self.back_translation_tag: int | None = src.tag if isinstance(src, TrainedSide) else None
        """Id of the token that `BACK_TRANSLATION_TAG` is encoded as. An imported vocabulary has none."""
        self.tags: dict[str, int] = src.tags
        """Ids of the tokens that choose the target language of a multilingual model: `fra` for `>>fra<<`."""
        self.has_placeholders: bool = {*TOKENS} <= {*src.tokens} and {*TOKENS} <= {*tgt.tokens}
        """It was trained for `text.placeholders`, so that the model knows the tokens of `placeholders.TOKENS`."""

    @classmethod
    def from_specs(cls, src: dict[str, Any], tgt: dict[str, Any] | None = None) -> Tokenizer:
        """Build a tokenizer from parsed Hugging Face files, one per side; `tgt` None: both sides share `src`.

        Raises:
            ModelError: A file is not one that this module wrote.
        """
        src_side = TrainedSide(src, "src")
        return cls(src_side, src_side if tgt is None else TrainedSide(tgt, "tgt"))

    @property
    def sides(self) -> tuple[Side, Side]:
        """The source and the target side; one object twice if both have one vocabulary, unless it is imported."""
        return self._src, self._tgt

    @property
    def sentencepiece(self) -> tuple[SentencePieceSide, SentencePieceSide] | None:
        """Both sides if the kind is `sentencepiece`, otherwise None."""
        if isinstance(self._src, SentencePieceSide) and isinstance(self._tgt, SentencePieceSide):
            return self._src, self._tgt
        return None

    @property
    def src_merges(self) -> list[tuple[str, str]]:
        """The pairs of source tokens that are merged, most frequent first; none for an imported tokenizer."""
        if not isinstance(self._src, TrainedSide):
            return []
        return [(left, right) for left, right in self._src.spec["model"]["merges"]]

    def tag_of(self, language: str) -> int:
        """Return the id of the tag that chooses a target language.

        Args:
            language: The name of a tag, such as `fra`, or another code of its language, such as `fr`.

        Raises:
            UsageError: The model has no such tag, or several.
        """
        if language in self.tags:
            return self.tags[language]
        if not self.tags:
            raise UsageError(f"--to {language}: this model translates into one language only; omit --to")
        same = [tag for tag in self.tags if languages.without_region(tag) == languages.without_region(language)]
        if len(same) != 1:
            raise UsageError(f"--to {language}: choose from {', '.join(sorted(self.tags))}")
        return self.tags[same[0]]

    def has_tag(self, language: str) -> bool:
        """Return True if the model has a tag for a target language, see `tag_of`."""
        try:
            self.tag_of(language)
        except UsageError:
            return False
        return True

    def with_tag(self, text: str, language: str) -> str:
        """Return a source with the tag of a target language, if the model has one and the text begins with none.

        Args:
            text: The source.
            language: See `tag_of`.
        """
        match = LANGUAGE_TAG.match(text)
        if (match is not None and match[1] in self.tags) or not self.has_tag(language):
            return text
        return f"{self.src_vocabulary[self.tag_of(language)]} {text}"

    def encode_src(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of source lines, without `<s>` and `</s>`."""
        tagged = [self._split_tags(text) for text in texts]
        rows = self._src.encode([text for _, text in tagged])
        return [tags + row for (tags, _), row in zip(tagged, rows, strict=True)]

    def _split_tags(self, text: str) -> tuple[list[int], str]:
        """Return the ids of the tags that a source begins with, and the rest of the source.

        These are the tag of a target language, such as `>>gn<<`, and `BACK_TRANSLATION_TAG`.
        """
        if self.back_translation_tag is None:
            return [], text
        tags: list[int] = []
        match = LANGUAGE_TAG.match(text) if self.tags else None
        if match is not None and match[1] in self.tags:
            tags.append(self.tags[match[1]])
            text = text[match.end() :].removeprefix(" ")
        if text.startswith(BACK_TRANSLATION_TAG):
            tags.append(self.back_translation_tag)
            text = text.removeprefix(BACK_TRANSLATION_TAG)
        return tags, text

    def encode_annotated(self, texts: Sequence[str], annotations: Sequence[Sequence[Annotation]]) -> list[list[int]]:
        """Return the token ids of source lines with the translations of terms, without `<s>` and `</s>`.

        A term becomes `<term>` term `<translation>` translation `</term>` (Dinu et al. 2019, with markers in place of
        factors). The parts of the line are encoded separately.

        Args:
            texts: The lines.
            annotations: The terms of each line, in their order and without overlap.
        """
        begin, middle, end = (marker_id(name) for name in ("<term>", "<translation>", "</term>"))
        tags: list[list[int]] = []
        parts: list[str] = []
        markers: list[int] = []  # the token after each part; EOS ends a line
        for text, terms in zip(texts, annotations, strict=True):
            line = normalize("NFC", text)
            of_line, sentence = self._split_tags(line)
            tags.append(of_line)
            after = len(line) - len(sentence)
            for term in terms:
                parts += [line[after : term.start], line[term.start : term.end], term.target]
                markers += [begin, middle, end]
                after = term.end
            parts.append(line[after:])
            markers.append(EOS)
        encoded = iter(self._src.encode([part.strip() for part in parts if part.strip()]))
        rows: list[list[int]] = []
        row: list[int] = []
        for part, marker in zip(parts, markers, strict=True):
            row += next(encoded) if part.strip() else []
            if marker == EOS:
                rows.append(row)
                row = []
            else:
                row.append(marker)
        return [of_line + row for of_line, row in zip(tags, rows, strict=True)]

    def encode_tgt(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of target lines, without `<s>` and `</s>`."""
        return self._tgt.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the lines of target token ids; drops special tokens and replaces broken UTF-8 by U+FFFD."""
        return self._tgt.decode(ids)

    def decode_src(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the lines of source token ids, as `decode` does for the target."""
        return self._src.decode(ids)

    def src_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return source tokens for display; a space is written ▁."""
        return [self.src_vocabulary[i].replace(" ", "▁") for i in ids]

    def tgt_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return target tokens for display; a space is written ▁."""
        return [self.tgt_vocabulary[i].replace(" ", "▁") for i in ids]

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`: a Hugging Face file if trained here and `joint`, otherwise our own."""
        indent = None if self.sentencepiece else 1
        return json.dumps(self._content(), ensure_ascii=False, indent=indent) + "\n"

    def _content(self) -> dict[str, Any]:
        if self.sentencepiece:
            return {"format": SENTENCEPIECE, **sides_to_json(*self.sentencepiece)}
        assert isinstance(self._src, TrainedSide)
        assert isinstance(self._tgt, TrainedSide)
        if self.joint:
            return self._src.spec
        return {"format": SEPARATE, "src": self._src.spec, "tgt": self._tgt.spec}

    def digest(self) -> str:
        """Return the SHA-256 of `to_json`, which identifies the tokenizer of a model."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Parse what `to_json` wrote.

        Raises:
            ModelError: The text is anything else.
        """
        try:
            spec = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"not JSON ({error}); was it cut short or written by another tool?") from None
        if not isinstance(spec, dict):
            raise ModelError("not a tokenizer: the file holds no JSON object")
        if spec.get("format") == SENTENCEPIECE:
            return cls(*sides_from_json(spec))
        if spec.get("format") != SEPARATE:
            return cls.from_specs(spec)
        if set(spec) != {"format", "src", "tgt"}:
            raise ModelError("not a tokenizer: separate vocabularies need just 'src' and 'tgt'")
        return cls.from_specs(spec["src"], spec["tgt"])

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`, whole or not at all."""
        write_whole(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a `tokenizer.json`, and check it before the native library sees it.

        Raises:
            ModelError: The file is missing, unreadable, or not one that `save` wrote.
        """
        path = Path(path)
        try:
            return cls.from_json(read_regular(path, most=MAX_FILE).decode("utf-8"))
        except OSError as error:
            raise ModelError(f"cannot read the tokenizer {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ModelError(f"cannot use the tokenizer {path}: not UTF-8") from None
        except ModelError as error:
            raise ModelError(f"cannot use the tokenizer {path}: {error}") from None


def marker_id(name: str) -> int:
    """Return the id of a marker in `MARKER_BYTES`."""
    return len(SPECIALS) + MARKER_BYTES[name]


def _never_generated(side: Side) -> list[int]:
    """Return the ids that a translation must not contain: `<pad>`, `<s>`, every token with a newline, and our tags."""
    never = {PAD, BOS, *(i for i, byte in side.byte_of.items() if byte == NEWLINE)}
    if isinstance(side, TrainedSide):
        never.update(side.tags.values())
    return [i for i, token in enumerate(side.tokens) if i in never or "\n" in token]


class TrainedSide:
    """One vocabulary: its checked file, its tokens by id, and the native tokenizer."""

    def __init__(self, spec: dict[str, Any], name: str) -> None:
        self.tokens = check_spec(spec, name)
        self.byte_of = {len(SPECIALS) + byte: byte for byte in range(len(BYTES))}
        self.tag = marker_id("<bt>")
        self.tags = tokens_like(LANGUAGE_TAG, self.tokens)
        model = spec["model"]
        self.spec = build_spec(self.tokens[len(RESERVED) :], model["merges"], whole_words=model["ignore_merges"])
        if model["merges"]:
            self.kind = "bpe"
        else:
            self.kind = "word" if model["ignore_merges"] else "char"
        self.native = call_native(lambda: HFTokenizer.from_str(json.dumps(self.spec, ensure_ascii=False)))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of lines, without `<s>` and `</s>`."""
        return [encoding.ids for encoding in encode_lines(self.native, texts)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the lines of token ids, without special tokens."""
        kept = [[i for i in row if i > EOS] for row in rows]
        return list(call_native(lambda: self.native.decode_batch(kept, skip_special_tokens=False)))

    def split(self, text: str) -> list[int]:
        """Return the ids of the tokens that form a text, which is a part of a word or a word with its space."""
        return [token.id for token in call_native(lambda: self.native.model.tokenize(text), [text])]
