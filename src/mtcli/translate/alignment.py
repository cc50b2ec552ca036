"""Word alignment of translations, computed from the cross-attention of any backend.

A word is a run of characters without whitespace; words are counted from 0. For documents, each character of a script
without spaces between words is a word, so that tags are placed inside a sentence. Each target word is aligned with one
source word: the one that `alignment_layer` attends to most, averaged over its heads and summed over the tokens of the
word.

This module does not import PyTorch, so that an exported model loads quickly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.words import word_spans
from mtcli.translate.translation import Candidate, Links
from mtcli.translate.windows import SourceLine

Weights = npt.NDArray[np.float32]
"""Attention weights (T, S) of one pair, or more rows and columns, which are not used."""

WordSpans = Callable[[str], Sequence[tuple[int, int]]]
"""Returns start and end of each word of a text."""

CrossAttention = Callable[[Sequence[SourceLine], Sequence[Sequence[int]]], Sequence[Weights]]
"""See `Backend.cross_attention`."""


def alignment_layer(num_layers: int) -> int:
    """Return the index of the decoder layer whose cross-attention gives the alignment.

    It is the last but one of four or more, and otherwise the last. Garg et al. (2019) also choose the last but one, of
    six. Of the links of which IBM Model 1 is sure, the four layers of a Multi30K model find 14, 78, 92 and 84%, those
    of the demo model 67, 81, 96 and 95%, and the two layers of a smaller demo model 69 and 90%
    (`scripts/check_alignment.py`).

    Args:
        num_layers: Number of decoder layers.
    """
    return num_layers - 2 if num_layers >= 4 else num_layers - 1


def align(
    tokenizer: Tokenizer,
    sources: Sequence[SourceLine],
    candidates: Sequence[Sequence[Candidate]],
    cross_attention: CrossAttention,
    *,
    words: WordSpans = word_spans,
) -> list[list[Candidate]]:
    """Add to every translation of B lines its word alignment.

    Args:
        tokenizer: The model's tokenizer.
        sources: The B lines.
        candidates: The translations of each line, with their ids.
        cross_attention: Computes the weights of the model.
        words: Divides a text into words.
    """
    pairs = [(source, each) for source, of_line in zip(sources, candidates, strict=True) for each in of_line]
    all_weights = iter(cross_attention([source for source, _ in pairs], [candidate.ids for _, candidate in pairs]))
    aligned: list[list[Candidate]] = []
    for source, of_line in zip(sources, candidates, strict=True):
        src_words = _src_words(tokenizer, source.line, source.ids, words)
        aligned.append([])
        for candidate in of_line:
            tgt_words = _tgt_words(tokenizer, candidate.text, candidate.ids, words)
            weights = next(all_weights)[: len(candidate.ids), : len(source.ids)]
            aligned[-1].append(replace(candidate, alignment=link(weights, src_words, tgt_words)))
    return aligned


def link(weights: Weights, src_words: Sequence[Sequence[int]], tgt_words: Sequence[Sequence[int]]) -> Links:
    """Link each target word to the source word that its tokens attend to most.

    Args:
        weights: (T, S) over the tokens of one pair.
        src_words: The words that each source token belongs to.
        tgt_words: The words that each target token belongs to.
    """
    word_weights = _membership(tgt_words).T @ weights @ _membership(src_words)
    if not word_weights.size:
        return ()
    best_src_words = word_weights.argmax(axis=1).tolist()
    return tuple(sorted((src, tgt) for tgt, src in enumerate(best_src_words)))


def _membership(words: Sequence[Sequence[int]]) -> Weights:
    """Return a matrix (tokens, words) that is 1 where the token belongs to the word, and otherwise 0."""
    num_words = 1 + max((word for token_words in words for word in token_words), default=-1)
    membership = np.zeros((len(words), num_words), dtype=np.float32)
    for token, token_words in enumerate(words):
        membership[token, list(token_words)] = 1
    return membership


def _src_words(tokenizer: Tokenizer, line: str, ids: Sequence[int], words: WordSpans) -> list[list[int]]:
    """Return the words of a source line that each token belongs to. The tag of a target language belongs to none.

    If the line begins with the tag, this counts as its first word, which is linked with no other.
    """
    tokens = tokenizer.src_tokens(ids)
    has_tag = bool(ids) and ids[0] in tokenizer.tags.values()
    if not tokenizer.sentencepiece:
        found = words_of_tokens(normalize("NFC", line), tokens, ids, tokenizer.src_byte_of, words)
    else:
        if has_tag and not line.startswith(tokens[0]):
            tokens[0] = ""  # an option added it
        found = _words_of_normalized(line, tokens, ids, tokenizer.src_byte_of, words)
    return [[], *found[1:]] if has_tag else found


def _tgt_words(tokenizer: Tokenizer, text: str, ids: Sequence[int], words: WordSpans) -> list[list[int]]:
    """Return the words of a translation that each token belongs to."""
    tokens = tokenizer.tgt_tokens(ids)
    if not tokenizer.sentencepiece:
        return words_of_tokens(text, tokens, ids, tokenizer.tgt_byte_of, words)
    return _words_of_normalized(text, tokens, ids, tokenizer.tgt_byte_of, words)


def _words_of_normalized(
    text: str, tokens: Sequence[str], ids: Sequence[int], byte_of: Mapping[int, int], words: WordSpans
) -> list[list[int]]:
    """Return the words of a text that was normalized before it was split into tokens.

    SentencePiece may replace one character by several. If the number of words changes, no word is aligned.
    """
    found = words_of_tokens(None, tokens, ids, byte_of, words)
    num_words = len({word for token_words in found for word in token_words})
    return found if num_words == len(words(text)) else [[] for _ in ids]


def words_of_tokens(
    text: str | None,
    tokens: Sequence[str],
    ids: Sequence[int],
    byte_of: Mapping[int, int],
    words: WordSpans = word_spans,
) -> list[list[int]]:
    """Return the words that each token belongs to: none for a token of spaces, rarely more than one.

    Args:
        text: The text of the tokens, with or without the space before the first word. None: what the tokens show,
            for a tokenizer that normalizes text before splitting it.
        tokens: The tokens as `Tokenizer.src_tokens` shows them: one character for each character of the text, or the
            name of a byte.
        ids: The token ids, which distinguish a byte from a token that only looks like one.
        byte_of: The value of each token id that stands for a byte.
        words: Divides the text into words.
    """
    characters = _characters(tokens, ids, byte_of)
    if text is None:
        text = "".join(character for character, _ in characters)
    owners = [character_tokens for _, character_tokens in characters]
    owners = owners[len(owners) - len(text) :]  # drops the space before the first word where `text` lacks it
    words_of: list[list[int]] = [[] for _ in ids]
    for word, (start, end) in enumerate(words(text)):
        for token in chain.from_iterable(owners[start:end]):
            if word not in words_of[token]:
                words_of[token].append(word)
    return words_of


def _characters(tokens: Sequence[str], ids: Sequence[int], byte_of: Mapping[int, int]) -> list[tuple[str, list[int]]]:
    """Return the characters of the decoded text, each with the positions of the tokens that it comes from."""
    characters: list[tuple[str, list[int]]] = []
    byte_run: list[int] = []  # positions of the byte tokens since the last other token
    for position, (token, token_id) in enumerate(zip(tokens, ids, strict=True)):
        if token_id in byte_of:
            byte_run.append(position)
            continue
        characters += _characters_of_bytes(byte_run, ids, byte_of)
        byte_run = []
        characters += [(character, [position]) for character in token.replace("▁", " ")]
    return characters + _characters_of_bytes(byte_run, ids, byte_of)


def _characters_of_bytes(
    run: Sequence[int], ids: Sequence[int], byte_of: Mapping[int, int]
) -> list[tuple[str, list[int]]]:
    """Return the characters of a run of byte tokens in UTF-8; if invalid, one replacement character per byte."""
    values = bytes(byte_of[ids[position]] for position in run)
    try:
        text = values.decode()
    except UnicodeDecodeError:
        return [("\ufffd", [position]) for position in run]
    characters = []
    start = 0
    for character in text:
        end = start + len(character.encode())
        characters.append((character, list(run[start:end])))
        start = end
    return characters
