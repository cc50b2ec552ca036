"""Translate the requests of `mtcli serve`: check them, give their lines to the batcher, wait for the result."""

import asyncio
import hmac
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from mtcli.errors import ModelError, MtcliError, UsageError
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.translation import Options, Translation
from mtcli.serve.batcher import Batcher, FullError
from mtcli.serve.requests import RequestLimits, TranslationRequest

log = logging.getLogger(__name__)


class TranslationService:
    """One model and the requests that wait for it.

    Args:
        translator: Used by one thread at a time.
        options: Search options; each request sets `n_best`, `alignments` and `to`.
        languages: Codes of source and target. A multilingual model has its tags as targets instead.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
    """

    def __init__(
        self,
        translator: LineTranslator,
        options: Options,
        languages: tuple[str, str],
        limits: RequestLimits,
        api_key: str | None,
    ):
        self.src, self.tgt = languages
        tags = sorted(translator.tokenizer.tags)
        self.is_multilingual = bool(tags)
        """A request chooses one of several target languages."""
        self.targets = tags or [self.tgt]
        """Codes of the target languages."""
        self.limits = limits
        self.batcher = Batcher(translator, limits.waiting)
        self._translator = translator
        self._options = options
        self._api_key = api_key

    def check(self, fields: TranslationRequest) -> None:
        """Check the fields of a request.

        Raises:
            HTTPException: 403 for a missing or wrong key; 400 for a language, format or text that is not supported.
        """
        if self._api_key is not None and not hmac.compare_digest(fields.api_key.encode(), self._api_key.encode()):
            raise HTTPException(403, "wrong api_key" if fields.api_key else "this server asks for an api_key")
        self._check_languages(fields)
        if fields.format != "text":
            raise HTTPException(400, f"format {fields.format}: only text can be translated")
        if any("\0" in text for text in fields.texts):
            raise HTTPException(400, "q: a text contains a NUL character")

    def _check_languages(self, fields: TranslationRequest) -> None:
        """Check the source and the target language of a request.

        Raises:
            HTTPException: The model does not have them, or a multilingual model needs a target language.
        """
        known_targets = ", ".join(self.targets)
        if self.is_multilingual and not fields.target:
            raise HTTPException(400, f"target: this model has several target languages; choose from {known_targets}")
        is_known = fields.source in (self.src, "auto") and self._has_target(fields.target)
        if not is_known:
            pair = f"{self.src} → {known_targets}"
            raise HTTPException(400, f"no model for {fields.source} → {fields.target}; there is one for {pair}")

    def _has_target(self, target: str) -> bool:
        if not self.is_multilingual:
            return target in (self.tgt, "")
        try:
            self._translator.tokenizer.tag_of(target)
        except UsageError:
            return False
        return True

    async def translate(self, request: Request, fields: TranslationRequest, *, alignments: bool) -> list[Translation]:
        """Translate all lines of all texts of a request, in order.

        Raises:
            HTTPException: 413 for too much text, 503 if the server is busy, 400 or 500 if the translation fails.
        """
        num_lines = sum(text.count("\n") + 1 for text in fields.texts)
        if num_lines > self.limits.lines:
            raise HTTPException(413, f"{num_lines} lines; this server takes {self.limits.lines} at a time")
        lines = [line for text in fields.texts for line in split_lines(text)]
        await asyncio.to_thread(self._check_tokens, lines)
        to = fields.target if self.is_multilingual else ""
        options = replace(self._options, n_best=fields.alternatives + 1, alignments=alignments, to=to)
        try:
            submitted = self.batcher.submit(lines, options)
            return await _wait(request, submitted, self.limits.seconds)
        except FullError:
            raise HTTPException(503, "too many lines are waiting; try again soon", {"Retry-After": "1"}) from None
        except ModelError as error:
            raise HTTPException(500, str(error)) from None
        except MtcliError as error:
            raise HTTPException(400, str(error)) from None
        except HTTPException:
            raise
        except Exception as error:
            log.error("a request failed: %s: %s", type(error).__name__, error)
            raise HTTPException(500, "the translation failed; the server's log says why") from None

    def _check_tokens(self, lines: Sequence[str]) -> None:
        """Check the length of each line.

        Raises:
            HTTPException: A line has too many tokens.
        """
        limit = self.limits.tokens
        for number, line in enumerate(lines, 1):
            # An ASCII line has at most one token per character, and one for the space before it. Normalization can make
            # other lines longer.
            if line.isascii() and len(line) < limit:
                continue
            num_tokens = len(self._translator.tokenizer.encode_src([line])[0])
            if num_tokens > limit:
                raise HTTPException(413, f"line {number} has {num_tokens} tokens; this server takes {limit} in a line")


def split_lines(text: str) -> list[str]:
    """Split a text at LF or CRLF. An empty text has one line."""
    return [line.removesuffix("\r") for line in text.split("\n")]


async def _wait(request: Request, submitted: Sequence[Future[Translation]], seconds: float) -> list[Translation]:
    """Wait for translations. They are cancelled if they take too long or if the client disconnects.

    Raises:
        HTTPException: 503: They were not ready in time.
    """
    work = asyncio.gather(*map(asyncio.wrap_future, submitted))
    work.add_done_callback(_retrieve_exception)
    disconnected = asyncio.ensure_future(_disconnected(request))
    either: set[asyncio.Future[Any]] = {work, disconnected}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
    finally:
        disconnected.cancel()
        work.cancel()
        for line in submitted:  # `work.cancel()` reaches them only in the next iteration of the event loop
            line.cancel()
    raise HTTPException(503, f"not translated within {seconds:g} seconds; try again later", {"Retry-After": "10"})


def _retrieve_exception(work: "asyncio.Future[list[Translation]]") -> None:
    """Read the exception of cancelled work, which asyncio would otherwise log as never retrieved."""
    if not work.cancelled():
        work.exception()


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
