"""The application of `mtcli serve`: its routes and their answers, and the translated files until their download."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from mtcli import __version__
from mtcli.documents.formats.registry import MODULES, TABLES
from mtcli.serve.models import Models, ServedModel, percent, through_pivots
from mtcli.serve.origin_check import OriginCheck
from mtcli.serve.other_apis import DEEPL, TRANSLATING_PATHS, other_routes
from mtcli.serve.page import PageData, page_data, render
from mtcli.serve.requests import (
    Bodies,
    CorrectionRequest,
    DetectionRequest,
    RequestLimits,
    TranslationRequest,
    read_request,
)
from mtcli.serve.translation import TranslatedTexts, TranslationService
from mtcli.serve.uploads import attachment, read_upload, translated_name
from mtcli.text.languages import english_name
from mtcli.translate.loading import load
from mtcli.translate.translation import Candidate, Translation

if TYPE_CHECKING:  # servers without a memory do not load its readers
    from mtcli.serve.corrections import MemorySources

log = logging.getLogger(__name__)

KEPT_SECONDS = 1800.0
"""Time in which a translated file can be downloaded."""

KEPT_BYTES = 2**26
"""Bytes of all translated files. Above it, the oldest are removed, but never the last one."""

DOWNLOAD_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "no-store",
}
"""A translated page comes from a stranger, so a browser saves it and never shows it as a page of this server."""

FRONTEND_TIMEOUT = 500
"""Milliseconds without typing before LibreTranslate's page sends the text."""

MEDIA_TYPES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")

ALLOWED_METHODS = ("GET", "HEAD", "POST")
ALLOWED_HEADERS = ("Authorization", "Content-Type")
EXPOSED_HEADERS = ("Content-Disposition", "Retry-After")
"""What pages of allowed origins may send, and read of an answer."""

READ_METHODS = ["GET", "HEAD"]
"""FastAPI does not answer HEAD on GET routes unless it is listed. The server omits the body of the answer."""


Route = TypeVar("Route", bound=Callable[..., Any])


@dataclass(frozen=True)
class ServerSettings:
    """What a server answers, and to whom."""

    limits: RequestLimits = field(default_factory=RequestLimits)
    """Limits of a request."""
    api_key: str | None = None
    """The key that every request for translation must have; None: no key is needed."""
    host: str | None = None
    """Answer only under this name and those of the loopback interface; None: under any name. See `OriginCheck`."""
    allow_origins: Sequence[str] = ()
    """Origins whose pages may use the server, see `origin_check.checked_origin`."""
    apis: Collection[str] = ()
    """APIs of other services to answer too, see `other_apis.APIS`."""


def create_app(models: Sequence[ServedModel], settings: ServerSettings) -> ASGIApp:
    """Create the application.

    Args:
        models: At least one.
        settings: The settings of the server.

    Raises:
        UsageError: Two models translate the same pair of languages.
    """
    limits = settings.limits
    service = TranslationService(Models(models), limits, settings.api_key)
    bodies = Bodies(limits.all_bodies, limits.seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="mtcli", version=__version__, lifespan=lifespan, openapi_url="/spec", docs_url=None, redoc_url=None
    )
    app.router.redirect_slashes = False  # the addresses with a slash at the end have routes of their own
    translating = [path for api, path in TRANSLATING_PATHS.items() if api in settings.apis]
    app.add_middleware(OriginCheck, host=settings.host, allowed=settings.allow_origins, translating=translating)
    app.add_exception_handler(HTTPException, _error_answer)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _unexpected_error_answer)
    app.include_router(_translation_routes(service, bodies))
    app.include_router(_file_routes(service, bodies))
    app.include_router(_information_routes(service, bodies))
    app.include_router(other_routes(service, bodies, settings.apis))
    app.include_router(_page_route([model.shown for model in models]))
    if not settings.allow_origins:
        return app
    # outside of the application, so that a page can also read what is wrong with its request
    return CORSMiddleware(app, settings.allow_origins, ALLOWED_METHODS, ALLOWED_HEADERS, expose_headers=EXPOSED_HEADERS)


def load_app(
    folders: Sequence[Path],
    settings: ServerSettings,
    device: str = "auto",
    engine: str | None = "auto",
    memory: "MemorySources | None" = None,
    notices: list[str] | None = None,
) -> tuple[ASGIApp, list[tuple[str, str]]]:
    """Create the application for the models of runs, or for exported models.

    Args:
        folders: The runs or the exported models.
        settings: The settings of the server.
        device: See `loading.load`.
        engine: See `loading.load`.
        memory: Where the memories of the models come from.
        notices: Receives what the user should know about the memories.

    Returns:
        The application, and the code of the source and those of the targets of each model.

    Raises:
        ModelError: A folder has no usable model.
        DataError, StorageError: See `load_memories`.
        UsageError: The machine has no such device, or two models translate the same pair of languages.
    """
    models: list[ServedModel] = []
    for folder in folders:
        loaded = load([folder], device, engine, {"repair": True})
        show = partial(page_data, folder, public=settings.api_key is None)
        models += ServedModel.all_of(loaded, show)
    models += through_pivots(models)
    if memory:
        from mtcli.serve.corrections import load_memories

        pairs = [(model.src, target) for model in models for target in model.targets]
        memories = load_memories(memory, pairs, notices if notices is not None else [])
        for model in models:
            for target in model.targets:
                model.memories[target], corrections = memories[model.src, target]
                if corrections is not None:
                    model.corrections[target] = corrections
    return create_app(models, settings), [(model.src, ", ".join(model.targets)) for model in models]


async def _error_answer(request: Request, error: HTTPException) -> JSONResponse:
    answer = {"error": error.detail}
    if request.url.path.startswith(DEEPL):
        answer["message"] = error.detail
    return JSONResponse(answer, error.status_code, error.headers)


async def _unexpected_error_answer(request: Request, error: Exception) -> JSONResponse:
    """Answer in the form of other errors. The caller logs the error."""
    return JSONResponse({"error": "the request failed; the server's log says why"}, 500)


def _translation_routes(service: TranslationService, bodies: Bodies) -> APIRouter:
    """Return the routes that translate."""
    router = APIRouter()

    async def checked_request(request: Request) -> TranslationRequest:
        return service.checked(await read_request(request, bodies, service.limits, TranslationRequest))

    Checked = Annotated[TranslationRequest, Depends(checked_request)]

    @router.post("/translate/", include_in_schema=False)
    @router.post("/translate", openapi_extra=_body_of(TranslationRequest))
    async def translate(request: Request, fields: Checked) -> dict[str, Any]:
        return _libretranslate_answer(fields, await service.translate_texts(request, fields))

    @router.post("/suggest/", include_in_schema=False)
    @router.post("/suggest", openapi_extra=_body_of(CorrectionRequest))
    async def suggest(request: Request) -> dict[str, bool]:
        await service.correct(await read_request(request, bodies, service.limits, CorrectionRequest))
        return {"success": True}

    @router.post("/api/translate", openapi_extra=_body_of(TranslationRequest))
    async def translate_in_full(request: Request, fields: Checked) -> dict[str, Any]:
        translations = await service.translate_lines(request, fields)
        return {"lines": [_line_answer(line, warnings) for line, warnings in translations]}

    return router


def _readable(router: APIRouter, path: str, *more: str) -> Callable[[Route], Route]:
    """Return a decorator of the function that answers GET and HEAD at some addresses, the first of which is documented.

    A route with two methods would have one id twice in the specification, so one that is never reached stands there.
    """

    def register(route: Route) -> Route:
        for address in (path, *more):
            router.add_api_route(address, route, methods=READ_METHODS, include_in_schema=False)
        router.add_api_route(path, route, methods=["GET"])
        return route

    return register


def _body_of(fields: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a request with some fields for the specification of the API."""
    content = {media_type: {"schema": fields.model_json_schema()} for media_type in MEDIA_TYPES}
    return {"requestBody": {"content": content, "required": True}}


def _information_routes(service: TranslationService, bodies: Bodies) -> APIRouter:
    """Return the routes that describe the server, and the one that identifies languages."""
    router = APIRouter()
    models = service.models
    targets = models.targets_by_source()
    names = {code: english_name(code) for code in models.codes}
    occurrences = Counter(names.values())
    names = {code: name if occurrences[name] == 1 else f"{name} ({code})" for code, name in names.items()}

    @_readable(router, "/languages", "/languages/")
    async def languages() -> list[dict[str, Any]]:
        return [{"code": code, "name": name, "targets": targets.get(code, [])} for code, name in names.items()]

    @_readable(router, "/frontend/settings")
    async def settings() -> dict[str, Any]:
        src, tgt = models.pairs[0]
        return {
            "charLimit": service.limits.body,
            "frontendTimeout": FRONTEND_TIMEOUT,
            "apiKeys": service.needs_key,
            "keyRequired": service.needs_key,
            "suggestions": service.takes_corrections,
            "filesTranslation": True,
            "supportedFilesFormat": sorted(MODULES.keys() - TABLES),
            "language": {
                "source": {"code": src, "name": names[src]},
                "target": {"code": tgt, "name": names[tgt]},
            },
        }

    @_readable(router, "/health")
    async def health() -> dict[str, Any]:
        batchers = [model.batcher for model in models.models]
        if not all(batcher.alive for batcher in batchers):
            raise HTTPException(500, "the translating thread has ended; restart the server")
        return {"status": "ok", "waiting": sum(batcher.waiting for batcher in set(batchers))}

    @router.post("/detect/", include_in_schema=False)
    @router.post("/detect", openapi_extra=_body_of(DetectionRequest))
    async def detect(request: Request) -> list[dict[str, Any]]:
        fields = await read_request(request, bodies, service.limits, DetectionRequest)
        service.check_key(fields.api_key)
        guesses = await service.identify(fields.q)
        found = [{"language": guess.language, "confidence": percent(guess.probability)} for guess in guesses]
        return found or [{"language": models.codes[0], "confidence": 0.0}]

    return router


def _page_route(shown: Sequence[PageData]) -> APIRouter:
    router = APIRouter()
    html, policy = render(shown)

    @_readable(router, "/")
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"})

    return router


def _libretranslate_answer(fields: TranslationRequest, found: TranslatedTexts) -> dict[str, Any]:
    """Return the answer of LibreTranslate's API. If `q` is a list, each field is a list with one value per text."""
    answer: dict[str, list[Any]] = {"translatedText": [texts[0] for texts in found.texts]}
    if fields.alternatives:
        answer["alternatives"] = [texts[1:] for texts in found.texts]
    if fields.source == "auto":
        detected = {"language": found.src, "confidence": found.confidence}
        answer["detectedLanguage"] = [detected for _ in found.texts]
    if any(found.matches):
        answer["memory"] = [[match.record() for match in matches] for matches in found.matches]
    if fields.is_list:
        return answer
    return {name: values[0] for name, values in answer.items()}


def _line_answer(line: Translation, warnings: Sequence[str]) -> dict[str, Any]:
    candidates = list(map(_candidate_answer, line.candidates))
    answer = {"source": line.source, "candidates": candidates, "warnings": warnings}
    return {**answer, "memory": [match.record() for match in line.memory]} if line.memory else answer


def _candidate_answer(candidate: Candidate) -> dict[str, Any]:
    """Return one translation of a line. It has a confidence only if that of its model is calibrated."""
    answer: dict[str, Any] = {
        "text": candidate.text,
        "log_prob": candidate.log_prob,
        "score": candidate.score,
        "alignment": candidate.alignment,
    }
    if candidate.confidence is not None:
        answer["confidence"] = round(candidate.confidence, 1)
    return answer


@dataclass(frozen=True)
class StoredFile:
    """A translated file."""

    name: str
    content: bytes
    stored: float
    """Time in seconds."""


@dataclass
class FileStore:
    """Translated files, in memory, until they are downloaded or expire."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    """By a random key, oldest first."""

    def add(self, name: str, content: bytes) -> str:
        """Keep a file, and return its key."""
        key = secrets.token_urlsafe(16)
        self.files[key] = StoredFile(name, content, time.monotonic())
        self._remove_old()
        while len(self.files) > 1 and sum(len(file.content) for file in self.files.values()) > KEPT_BYTES:
            del self.files[next(iter(self.files))]
        return key

    def find(self, key: str, name: str) -> bytes | None:
        """Return the content of a file; None: there is none with this key and name."""
        self._remove_old()
        file = self.files.get(key)
        return file.content if file is not None and file.name == name else None

    def _remove_old(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        for key in [key for key, file in self.files.items() if file.stored < oldest]:
            del self.files[key]


def _file_routes(service: TranslationService, bodies: Bodies) -> APIRouter:
    """Return the routes that translate a file and give it back."""
    router = APIRouter()
    store = FileStore()
    free = asyncio.Semaphore(service.limits.files)

    @asynccontextmanager
    async def one_of_few() -> AsyncIterator[None]:
        if free.locked():
            raise HTTPException(503, "too many files are being translated; try again later", {"Retry-After": "10"})
        async with free:
            yield

    @router.post("/translate_file/", include_in_schema=False)
    @router.post("/translate_file")
    async def translate_file(request: Request) -> dict[str, str]:
        upload = await read_upload(request, bodies, service.limits)
        service.check_key(upload.api_key)
        async with one_of_few():
            content, target = await service.translate_file(request, upload)
        name = translated_name(upload.name, target)
        key = store.add(name, content)
        return {"translatedFileUrl": f"{request.base_url}download_file/{key}/{quote(name, safe='')}"}

    @_readable(router, "/download_file/{key}/{name}")
    async def download_file(key: str, name: str) -> Response:
        content = store.find(key, name)
        if content is None:
            raise HTTPException(404, "no such file; a translated file is kept for half an hour at most")
        headers = {**DOWNLOAD_HEADERS, "Content-Disposition": attachment(name)}
        return Response(content, media_type="application/octet-stream", headers=headers)

    return router
