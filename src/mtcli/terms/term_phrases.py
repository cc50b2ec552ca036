"""The tokens of terms: what a search requires so that a translation contains them."""

from collections.abc import Sequence

import numpy as np

from mtcli.search.required import Alternatives, RequiredPhrases, WordParts, length_after_word
from mtcli.terms.terms import Match
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.words import continues_word, ends_in_word

MAX_TOKENS = 500
"""Tokens of all phrases that the translation of a line must contain."""

FIRST_BYTE_OF_OTHER_SCRIPTS = 0x80
"""Bytes from here on are parts of characters, nearly all of them letters."""


class TermPhrases:
    """Makes required phrases of the terms in a source."""

    def __init__(self, tokenizer: Tokenizer):
        """Describe the target tokens of a model."""
        self.tokenizer = tokenizer
        texts = [_shown(tokenizer, token) for token in range(tokenizer.tgt_size)]
        self.words = WordParts(
            begins=np.array([continues_word(text) for text in texts]),
            ends=np.array([ends_in_word(text) for text in texts]),
        )
        self._tokens: dict[str, Alternatives] = {}

    def of(self, matches: Sequence[Match]) -> RequiredPhrases:
        """Return the phrases that a translation must contain for these terms.

        A term with characters that the model cannot write is not required, nor is one with which the phrases would have
        more than `MAX_TOKENS` tokens: the search takes a step for each token.
        """
        phrases = []
        remaining = MAX_TOKENS
        for match in matches:
            alternatives = tuple(tokens for form in match.forms for tokens in self._tokens_of(form))
            if not alternatives:
                continue
            length = length_after_word(alternatives, self.words)
            if length <= remaining:
                phrases.append(alternatives)
                remaining -= length
        return RequiredPhrases(phrases, self.words)

    def _tokens_of(self, form: str) -> Alternatives:
        """Return the tokens of a form after a space, and those without a space before it."""
        if form not in self._tokens:
            before = "(" if continues_word(form) or form[0].isalpha() else "a"
            start, after_space, joined = self.tokenizer.encode_tgt([before, form, before + form])
            found = [after_space]
            if joined[: len(start)] == start and len(joined) > len(start):
                found.append(joined[len(start) :])
            texts = self.tokenizer.decode(found)
            self._tokens[form] = tuple(
                tuple(tokens) for tokens, text in zip(found, texts, strict=True) if tokens and text == form
            )
        return self._tokens[form]


def _shown(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token, with ▁ for a space. Special tokens have none."""
    byte = tokenizer.tgt_byte_of.get(token)
    if byte is None:
        return "" if token in tokenizer.forbidden else tokenizer.tgt_tokens([token])[0]
    return "a" if byte >= FIRST_BYTE_OF_OTHER_SCRIPTS else chr(byte)
