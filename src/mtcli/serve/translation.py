"""Translate requests: check them, run the pipeline of documents in a thread, and wait for the result."""

import asyncio
import hmac
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.html import html_spans, html_structure
from mtcli.documents.formats.plain_text import read_text
from mtcli.documents.formats.registry import read_document
from mtcli.documents.formats.slots import SlotDocument
from mtcli.documents.formats.structure import VerifiedDocument
from mtcli.documents.lines import BySentence
from mtcli.documents.markup.inline import Inline, text_of
from mtcli.documents.pipeline import translate_document, translate_segments
from mtcli.errors import DataError, ModelError, MtcliError, StorageError
from mtcli.serve.batcher import (
    CHECKED_CHARACTERS,
    AbandonedError,
    FullError,
    TooLongError,
    WaitingTranslator,
)
from mtcli.serve.models import ChosenModel, Models, ServedModel
from mtcli.serve.requests import CorrectionRequest, RequestLimits, TranslationRequest
from mtcli.serve.uploads import Upload
from mtcli.terms.terms import Terms, parse_terms
from mtcli.text.language_identifier import IdentifiedLanguage
from mtcli.translate.line_warnings import warnings_of
from mtcli.translate.translation import Candidate, Translation
from mtcli.translate.windows import Reading

if TYPE_CHECKING:  # servers without a memory do not load its readers
    from mtcli.translate.memory import MemoryMatch

log = logging.getLogger(__name__)

MAX_TERMS = 1000
"""Lines of the terms of a request."""

MAX_THREADS = 256
"""Requests that are translated at a time. Their threads mostly wait for the model."""

FORMATS = ("text", "html")

MESSAGES_WITHOUT_TEXTS = (RuntimeError, MemoryError, OSError)
"""Errors of the model or of the system, whose messages do not quote texts. Those of a `ValueError` may."""

_TAG = re.compile(r"<[^<>]*>")

R = TypeVar("R")


@dataclass(frozen=True)
class TranslatedTexts:
    """The answer to a request for texts."""

    src: str
    """Source language."""
    confidence: float
    """See `ChosenModel.confidence`."""
    texts: list[list[str]]
    """The different translations of each text, best first."""
    matches: "list[list[MemoryMatch]]"
    """What the memory has for the sentences of each text."""


class TranslationService:
    """The models, and the requests that wait for them.

    Args:
        models: The models.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
    """

    def __init__(self, models: Models, limits: RequestLimits, api_key: str | None):
        self.models = models
        self.limits = limits
        self._api_key = api_key
        self._num_characters = 0
        """Of the texts that are being translated."""
        self._counting = Lock()
        self._turn = Lock()
        """Held by the long text that is being split into sentences."""
        self._turn_of_files = Lock()
        self._threads = ThreadPoolExecutor(MAX_THREADS, "request")
        for model in models.models:
            model.start(limits.waiting)

    def close(self) -> None:
        """End the threads that translate."""
        for batcher in {model.batcher for model in self.models.models}:
            batcher.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def needs_key(self) -> bool:
        """Requests for translation must have a key."""
        return self._api_key is not None

    @property
    def takes_corrections(self) -> bool:
        """Users may correct translations."""
        return any(model.corrections for model in self.models.models)

    def check_key(self, api_key: str) -> None:
        """Check the key of a request.

        Raises:
            HTTPException: 403: it is missing or wrong.
        """
        if self._api_key is not None and not hmac.compare_digest(api_key.encode(), self._api_key.encode()):
            raise HTTPException(403, "wrong api_key" if api_key else "this server asks for an api_key")

    def checked(self, fields: TranslationRequest) -> TranslationRequest:
        """Check the fields of a request, and return them with the codes of languages that this server uses.

        Raises:
            HTTPException: 403 for a missing or wrong key; 400 for a language, format or text that is not supported; 413
                for too many lines.
        """
        self.check_key(fields.api_key)
        source, target = self.models.resolve(fields.source, fields.target)
        if not self.models.is_same_language(source, target):
            self.models.candidates(source, target)
        if fields.format not in FORMATS:
            raise HTTPException(400, f"format {fields.format}: choose from {', '.join(FORMATS)}")
        if any("\0" in text for text in fields.texts):
            raise HTTPException(400, "q: a text contains a NUL character")
        num_lines = sum(text.count("\n") + 1 for text in fields.texts)
        if num_lines > self.limits.lines:
            raise HTTPException(413, f"{num_lines} lines; this server takes {self.limits.lines} at a time")
        return fields.model_copy(update={"source": source, "target": target})

    async def identify(self, text: str) -> list[IdentifiedLanguage]:
        """Return the languages of the server that a text may be in, the most probable first.

        Raises:
            HTTPException: 503: The server is busy.
        """
        return await self._in_thread(self.models.identify, text, characters=len(text))

    async def translate_texts(self, request: Request, fields: TranslationRequest) -> TranslatedTexts:
        """Translate all texts of a request sentence by sentence. Into the same language, they stay as they are.

        Raises:
            HTTPException: 413 for too long a sentence, 503 if the server is busy, 400 or 500 if the translation fails.
        """
        if self.models.is_same_language(fields.source, fields.target):
            return TranslatedTexts(fields.source, 0.0, [[text] for text in fields.texts], [[] for _ in fields.texts])
        choice = await self._choose(fields)

        def work(translator: WaitingTranslator) -> "tuple[list[list[str]], list[list[MemoryMatch]]]":
            return translate_texts(translator, choice.model, fields, self.limits.sentences)

        texts, matches = await self._run(request, choice.model, work, fields)
        return TranslatedTexts(choice.model.src, choice.confidence, texts, matches)

    async def translate_lines(
        self, request: Request, fields: TranslationRequest
    ) -> list[tuple[Translation, list[str]]]:
        """Translate all lines of the texts of a request, in order, with all candidates and word alignments.

        Into the same language, they stay as they are.

        Returns:
            Each line with its candidates, and the warnings about it.

        Raises:
            HTTPException: See `translate_texts`.
        """
        if self.models.is_same_language(fields.source, fields.target):
            lines = [line for text in fields.texts for line in _split_lines(text)]
            return [(Translation(line, (Candidate(line, 0.0, 0.0),)), []) for line in lines]
        model = (await self._choose(fields)).model

        def work(translator: WaitingTranslator) -> list[tuple[Translation, list[str]]]:
            found = translate_lines(translator, model, fields)
            return [(line, _warnings_of(line, model)) for line in found]

        return await self._run(request, model, work, fields)

    async def translate_file(self, request: Request, upload: Upload) -> tuple[bytes, str]:
        """Translate a file.

        Returns:
            Its translation, and the target language.

        Raises:
            HTTPException: 400 for a file that cannot be read, 413 for too many paragraphs; see also `translate_texts`.
        """
        source, target = self.models.resolve(upload.source, upload.target)
        upload = upload.model_copy(update={"source": source, "target": target})
        candidates = self.models.candidates(source, target)
        with _errors_as_answers():
            model, document = await self._in_thread(_read_with_first, upload, candidates)
        num_segments = len(document.segments)
        if num_segments > self.limits.segments:
            most = f"this server takes {self.limits.segments:,}"
            raise HTTPException(413, f"{upload.name}: {num_segments:,} paragraphs; {most} in a file")
        texts = map(text_of, document.segments)
        chosen = (await self._in_thread(self.models.choose, upload.source, upload.target, texts)).model
        if chosen is not model:  # some readers and writers depend on the languages
            with _errors_as_answers():
                model, document = await self._in_thread(_read_with_first, upload, [chosen, model])

        def work(translator: WaitingTranslator) -> bytes:
            options = model.options_to(upload.target, terms=_parse_request_terms(upload.terms))
            src, tgt = model.src, model.target_of(upload.target)
            memory = model.memory_to(upload.target)
            with translator.preparation():
                found = translate_document(
                    document, translator, options, src=src, tgt=tgt, quiet=True, warn=False, memory=memory
                )
            return document.write([segment.content() for segment in found])

        content = await self._run(request, model, work)
        return content, model.target_of(upload.target)

    async def correct(self, fields: CorrectionRequest) -> None:
        """Keep the correction of a translation, see `corrected_pairs`. The next request is translated with it.

        Raises:
            HTTPException: 403 if this server takes no corrections, or for a missing or wrong key; 400 for a text or
                languages that do not fit; 503 if the file cannot be written.
        """
        refused = HTTPException(403, "this server takes no corrections; start it with --corrections FILE")
        if not self.takes_corrections:
            raise refused
        self.check_key(fields.api_key)
        source, target = self.models.resolve(fields.source, fields.target)
        candidates = self.models.candidates(source, target)
        if len(candidates) > 1 and source == "auto":
            raise HTTPException(400, "source: this server has several source languages; name one")
        model = candidates[0]
        lines = _split_lines(fields.q)
        if len(lines) > self.limits.lines:
            raise HTTPException(413, f"{len(lines)} lines; this server takes {self.limits.lines} at a time")
        corrections = model.corrections.get(model.own_target(target))
        if corrections is None:
            raise refused
        from mtcli.serve.corrections import corrected_pairs

        try:
            pairs = corrected_pairs(lines, _split_lines(fields.s))
            await self._in_thread(corrections.add, pairs, fields.note)
        except StorageError as error:
            log.error("a correction was not kept: %s", error)
            raise HTTPException(503, "the correction cannot be kept; the server's log says why") from None
        except DataError as error:
            raise HTTPException(400, str(error)) from None

    async def _choose(self, fields: TranslationRequest) -> ChosenModel:
        """Return the model of a request, see `Models.choose`.

        Raises:
            HTTPException: 503: The server is busy.
        """
        if fields.source != "auto":
            return self.models.choose(fields.source, fields.target, ())
        texts = (_TAG.sub(" ", text) if fields.format == "html" else text for text in fields.texts)
        size = fields.num_characters
        return await self._in_thread(self.models.choose, fields.source, fields.target, texts, characters=size)

    def _in_thread(self, function: Callable[..., R], *arguments: Any, characters: int = 0) -> "asyncio.Future[R]":
        """Call a function in a thread of this service, for which the end of the server does not wait."""
        return asyncio.wrap_future(self._submit(characters, function, *arguments))

    def _submit(self, characters: int, function: Callable[..., R], *arguments: Any) -> "Future[R]":
        """Call a function in a thread. Its characters count until it ends, also after the request was answered.

        Raises:
            HTTPException: 503: With the texts of other requests, they are too many.
        """
        with self._counting:
            if self._num_characters + characters > self.limits.all_characters:
                raise HTTPException(503, "too many texts are in progress; try again soon", {"Retry-After": "1"})
            self._num_characters += characters

        def uncount(_: object) -> None:
            with self._counting:
                self._num_characters -= characters

        work = self._threads.submit(function, *arguments)
        work.add_done_callback(uncount)
        return work

    async def _run(
        self,
        request: Request,
        model: ServedModel,
        work: Callable[[WaitingTranslator], R],
        fields: TranslationRequest | None = None,
    ) -> R:
        """Run work that translates with a model in a thread, and wait until it ends.

        Args:
            request: The request. If its client disconnects, the work is abandoned.
            model: The model.
            work: Called with the translator of this request.
            fields: The fields of a request with texts; None: it is a file.

        Raises:
            HTTPException: 413 for too long a sentence or too many sentences, 503 if the server is busy or the time is
                over, 400 or 500 if the work fails.
        """
        is_file = fields is None
        characters = 0 if fields is None else fields.num_characters
        turn: Lock | None = None  # requests with short texts do not wait for each other
        if is_file:
            turn = self._turn_of_files
        elif characters > CHECKED_CHARACTERS:
            turn = self._turn
        translator = WaitingTranslator(
            model.translator,
            model.batcher,
            n_best=1 if fields is None else fields.alternatives + 1,
            max_tokens=self.limits.tokens,
            max_lines=self.limits.sentences,
            is_file=is_file,
            turn=turn,
        )
        future = self._submit(characters, work, translator)
        seconds = self.limits.file_seconds if is_file else self.limits.seconds
        with _errors_as_answers():
            return await _wait(request, future, translator, seconds, is_file=is_file)


@contextmanager
def _errors_as_answers() -> Iterator[None]:
    """Turn the errors of a translation into answers.

    Raises:
        HTTPException: 413 for too long a sentence or too many sentences, 503 if the server is busy or shutting down,
            400 for a text or file that cannot be translated, 500 for any other error, which is logged.
    """
    try:
        yield
    except FullError:
        raise HTTPException(503, "too many lines are waiting; try again soon", {"Retry-After": "1"}) from None
    except TooLongError as error:
        raise HTTPException(413, str(error)) from None
    except AbandonedError:
        raise HTTPException(503, "the server is shutting down", {"Retry-After": "10"}) from None
    except ModelError as error:
        raise HTTPException(500, str(error)) from None
    except MtcliError as error:
        raise HTTPException(400, str(error)) from None
    except HTTPException:
        raise
    except Exception as error:
        log.error("a request failed: %s", _description(error))
        raise HTTPException(500, "the translation failed; the server's log says why") from None


def _description(error: Exception) -> str:
    """Return type and place of an error, with its message unless that may quote the text of a user."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    described = f"{type(error).__name__} in {PurePath(place.filename).name}, line {place.lineno}"
    return f"{described}: {error}" if isinstance(error, MESSAGES_WITHOUT_TEXTS) else described


def _read(upload: Upload, model: ServedModel) -> Document:
    """Read a file.

    Raises:
        UsageError: Its type is unknown.
        DataError: It is broken or unsafe.
    """
    return read_document(upload.content, ReadOptions(upload.name, model.src, model.target_of(upload.target)))


def _read_with_first(upload: Upload, models: Sequence[ServedModel]) -> tuple[ServedModel, Document]:
    """Read a file for the first model that it fits. Some files declare their language.

    Raises:
        UsageError: Its type is unknown.
        DataError: It is broken or unsafe, or for other languages. The message is that of the first model.
    """
    try:
        return models[0], _read(upload, models[0])
    except DataError as error:
        for model in models[1:]:
            with suppress(DataError):
                return model, _read(upload, model)
        raise error


async def _wait(
    request: Request, work: "Future[R]", translator: WaitingTranslator, seconds: float, *, is_file: bool
) -> R:
    """Wait for work. If it takes too long or the client disconnects, cancel it.

    A file then waits until its thread is free, because it counts for the files that are translated at a time.

    Raises:
        HTTPException: 503: It was not ready in time.
    """
    result = asyncio.wrap_future(work)
    result.add_done_callback(_retrieve_exception)
    disconnected = asyncio.ensure_future(_disconnected(request))
    either: set[asyncio.Future[Any]] = {result, disconnected}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
    finally:
        disconnected.cancel()
        translator.cancel()
    if not work.cancel() and is_file:
        await asyncio.wait([result])
    raise HTTPException(503, f"not translated within {seconds:g} seconds; try again later", {"Retry-After": "10"})


def _retrieve_exception(work: "asyncio.Future[Any]") -> None:
    """Read the exception of abandoned work, which asyncio would otherwise log as never retrieved."""
    if not work.cancelled():
        work.exception()


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def translate_texts(
    translator: WaitingTranslator, model: ServedModel, fields: TranslationRequest, max_segments: int
) -> "tuple[list[list[str]], list[list[MemoryMatch]]]":
    """Return the different translations of each text, best first, and what the memory has for it.

    The nth translation of a text has the nth candidate of every sentence. A sentence with fewer candidates repeats its
    last one.

    Args:
        translator: The translator of the request.
        model: Its model.
        fields: The request.
        max_segments: Limit of the paragraphs of all texts.

    Raises:
        TooLongError: There are more paragraphs, or too many sentences.
        DataError: The terms are malformed, or too many.
        AbandonedError, FullError: See `WaitingTranslator.translate`.
    """
    documents = [document_of(text, fields.format) for text in fields.texts]
    segments = [segment for document in documents for segment in document.segments]
    if len(segments) > max_segments:
        raise TooLongError(f"{len(segments):,} paragraphs; this server takes {max_segments:,} in a request")
    options = model.options_to(fields.target, terms=_parse_request_terms(fields.terms))
    src, tgt = model.src, model.target_of(fields.target)
    memory = model.memory_to(fields.target)
    with translator.preparation():
        translator.check(map(text_of, segments), model.src)
        translated = translate_segments(
            segments, translator, options, src=src, tgt=tgt, quiet=True, warn=False, memory=memory
        )
    found: list[dict[str, None]] = [{} for _ in documents]
    for number in range(fields.alternatives + 1):
        contents = [segment.content(number) for segment in translated]
        for texts, text in zip(found, _written(documents, contents), strict=True):
            texts[text] = None
    of_segments = iter(translated)
    matches = [
        [match for segment in islice(of_segments, len(document.segments)) for match in segment.matches]
        for document in documents
    ]
    return [list(texts) for texts in found], matches


def translate_lines(translator: WaitingTranslator, model: ServedModel, fields: TranslationRequest) -> list[Translation]:
    """Translate the lines of all texts, with all candidates, and word alignments if the model has them.

    The nth candidate of a line has the nth candidate of every sentence.

    Args:
        translator: The translator of the request.
        model: Its model.
        fields: The request.

    Raises:
        DataError: The terms are malformed, or too many.
        AbandonedError, TooLongError, FullError: See `WaitingTranslator.translate`.
    """
    lines = [line for text in fields.texts for line in _split_lines(text)]
    terms = _parse_request_terms(fields.terms)
    options = model.options_to(fields.target, alignments=True, terms=terms)
    memory = model.memory_to(fields.target)
    by_line = BySentence(translator, model.src, model.target_of(fields.target), memory)
    with translator.preparation():
        translator.check(lines, model.src)
        return list(by_line.translate(lines, options, Reading(warn=False, quiet=True)))


def _warnings_of(line: Translation, model: ServedModel) -> list[str]:
    """Return the warnings about a line; none if the memory has translated all of it."""
    is_remembered = bool(line.memory) and all(match.is_exact for match in line.memory)
    is_whole = "".join("".join(match.sentence for match in line.memory).split()) == "".join(line.source.split())
    return [] if is_remembered and is_whole else warnings_of(line, model.translator.tokenizer)


def _parse_request_terms(field: str | list[str]) -> Terms | None:
    """Parse the terms of a request; None: it has none.

    Raises:
        DataError: They are malformed, or too many.
    """
    text = field if isinstance(field, str) else "\n".join(field)
    if not text.strip():
        return None
    lines = _split_lines(text)
    if len(lines) > MAX_TERMS:
        raise DataError(f"terms: {len(lines):,} lines; this server takes {MAX_TERMS:,}")
    return parse_terms(lines, "terms")


def document_of(text: str, form: str) -> Document:
    """Divide a text of a request into segments. HTML is written with the structure of its source, as a page is."""
    source = EncodedText(text)
    if form != "html":
        return read_text(source)
    marked = SlotDocument(source, html_spans(text, "q"))
    return VerifiedDocument(marked, text.encode(), lambda written: html_structure(written.decode()), "q")


def _written(documents: Sequence[Document], translations: Sequence[Inline]) -> list[str]:
    """Return the translated texts of documents, given the translations of all their segments."""
    texts = []
    start = 0
    for document in documents:
        end = start + len(document.segments)
        texts.append(document.write(translations[start:end]).decode())
        start = end
    return texts


def _split_lines(text: str) -> list[str]:
    """Split a text at LF or CRLF. An empty text has one line."""
    return [line.removesuffix("\r") for line in text.split("\n")]
