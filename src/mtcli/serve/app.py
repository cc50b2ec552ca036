"""The application of `mtcli serve`: its routes and their answers."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from mtcli.serve.bodies import Bodies
from mtcli.serve.files import file_routes
from mtcli.serve.models import Models, ServedModel, percent
from mtcli.serve.origin_check import OriginCheck
from mtcli.serve.page import PageData, page_data, render
from mtcli.serve.requests import DetectionRequest, RequestLimits, TranslationRequest, read_request
from mtcli.serve.translation import TranslatedTexts, TranslationService
from mtcli.text.languages import english_name
from mtcli.translate.loading import load
from mtcli.translate.translation import Translation

READ_METHODS = ["GET", "HEAD"]
"""FastAPI does not answer HEAD on GET routes unless it is listed. The server omits the body of the answer."""


def create_app(
    models: Sequence[ServedModel],
    limits: RequestLimits | None = None,
    api_key: str | None = None,
    *,
    host: str | None = None,
) -> FastAPI:
    """Create the application.

    Args:
        models: At least one.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
        host: Answer only under this name and those of the loopback interface; None: under any name. See `OriginCheck`.

    Raises:
        UsageError: Two models translate the same pair of languages.
    """
    limits = limits or RequestLimits()
    service = TranslationService(Models(models), limits, api_key)
    bodies = Bodies(limits.all_bodies, limits.seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="mtcli", lifespan=lifespan, openapi_url=None)
    app.add_middleware(OriginCheck, host=host)
    app.add_exception_handler(HTTPException, _error_answer)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _unexpected_error_answer)
    app.include_router(_translation_routes(service, bodies))
    app.include_router(file_routes(service, bodies, READ_METHODS))
    app.include_router(_information_routes(service, bodies))
    app.include_router(_page_route([model.shown for model in models]))
    return app


def load_app(
    folders: Sequence[Path],
    device: str,
    limits: RequestLimits,
    api_key: str | None,
    host: str | None = None,
    engine: str | None = "auto",
) -> tuple[FastAPI, list[tuple[str, str]]]:
    """Create the application for the models of runs, or for exported models.

    Args:
        folders: The runs or the exported models.
        device: See `loading.load`.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
        host: See `create_app`.
        engine: See `loading.load`.

    Returns:
        The application, and the codes of source and target of each model.

    Raises:
        ModelError: A folder has no usable model.
        UsageError: The machine has no such device, or two models translate the same pair of languages.
    """
    models = []
    for folder in folders:
        translator, options, languages = load(folder, device, engine)
        targets = tuple(sorted(translator.tokenizer.tags))
        shown = page_data(folder, languages, targets, public=api_key is None)
        models.append(ServedModel(translator, options, languages, shown))
    return create_app(models, limits, api_key, host=host), [model.languages for model in models]


async def _error_answer(request: Request, error: HTTPException) -> JSONResponse:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _unexpected_error_answer(request: Request, error: Exception) -> JSONResponse:
    """Answer in the form of other errors. The caller logs the error."""
    return JSONResponse({"error": "the request failed; the server's log says why"}, 500)


def _translation_routes(service: TranslationService, bodies: Bodies) -> APIRouter:
    """Return the routes that translate."""
    router = APIRouter()

    async def checked_request(request: Request) -> TranslationRequest:
        return service.checked(await read_request(request, bodies, service.limits, TranslationRequest))

    Checked = Annotated[TranslationRequest, Depends(checked_request)]

    @router.post("/translate")
    async def translate(request: Request, fields: Checked) -> dict[str, Any]:
        return _libretranslate_answer(fields, await service.translate_texts(request, fields))

    @router.post("/api/translate")
    async def translate_in_full(request: Request, fields: Checked) -> dict[str, Any]:
        translations = await service.translate_lines(request, fields)
        return {"lines": [_line_answer(line, warnings) for line, warnings in translations]}

    return router


def _information_routes(service: TranslationService, bodies: Bodies) -> APIRouter:
    """Return the routes that describe the server, and the one that identifies languages."""
    router = APIRouter()
    models = service.models
    targets = models.targets_by_source()
    names = _names(models.codes)

    @router.api_route("/languages", methods=READ_METHODS)
    async def languages() -> list[dict[str, Any]]:
        return [{"code": code, "name": name, "targets": targets.get(code, [])} for code, name in names.items()]

    @router.api_route("/health", methods=READ_METHODS)
    async def health() -> dict[str, Any]:
        batchers = [model.batcher for model in models.models]
        if not all(batcher.alive for batcher in batchers):
            raise HTTPException(500, "the translating thread has ended; restart the server")
        return {"status": "ok", "waiting": sum(batcher.waiting for batcher in batchers)}

    @router.post("/detect")
    async def detect(request: Request) -> list[dict[str, Any]]:
        fields = await read_request(request, bodies, service.limits, DetectionRequest)
        service.check_key(fields.api_key)
        guesses = await service.identify(fields.q)
        found = [{"language": guess.language, "confidence": percent(guess.probability)} for guess in guesses]
        return found or [{"language": models.codes[0], "confidence": 0.0}]

    return router


def _names(codes: Sequence[str]) -> dict[str, str]:
    """Return the English name of each language code, followed by the code if several codes have the same name."""
    names = {code: english_name(code) for code in codes}
    occurrences = Counter(names.values())
    return {code: name if occurrences[name] == 1 else f"{name} ({code})" for code, name in names.items()}


def _page_route(shown: Sequence[PageData]) -> APIRouter:
    router = APIRouter()
    html, policy = render(shown)

    @router.api_route("/", methods=READ_METHODS)
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
    if fields.is_list:
        return answer
    return {name: values[0] for name, values in answer.items()}


def _line_answer(line: Translation, warnings: Sequence[str]) -> dict[str, Any]:
    candidates = [
        {
            "text": candidate.text,
            "log_prob": candidate.log_prob,
            "score": candidate.score,
            "alignment": candidate.alignment,
        }
        for candidate in line.candidates
    ]
    return {"source": line.source, "candidates": candidates, "warnings": warnings}
