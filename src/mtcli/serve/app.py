"""The application of `mtcli serve`: its routes and their answers."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from mtcli.config.languages import english_name
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.loading import load
from mtcli.inference.translation import Options, Translation
from mtcli.serve.origin_check import OriginCheck
from mtcli.serve.page import PageData, page_data, render
from mtcli.serve.requests import RequestLimits, TranslationRequest, read_request
from mtcli.serve.translation import TranslationService, split_lines

READ_METHODS = ["GET", "HEAD"]
"""FastAPI does not answer HEAD on GET routes unless it is listed. The server omits the body of the answer."""


def create_app(
    translator: LineTranslator,
    options: Options,
    languages: tuple[str, str],
    limits: RequestLimits | None = None,
    api_key: str | None = None,
    *,
    page: PageData | None = None,
    host: str | None = None,
) -> FastAPI:
    """Create the application.

    Args:
        translator: Used by one thread at a time.
        options: Search options; each request sets `n_best`, `alignments` and `to`.
        languages: Codes of source and target.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
        page: The content of the page; None: the languages only.
        host: Answer only under this name and those of the loopback interface; None: under any name. See `OriginCheck`.
    """
    src, tgt = languages
    shown = page or PageData(src, tgt, aligns=True, targets=tuple(sorted(translator.tokenizer.tags)))
    service = TranslationService(translator, options, languages, limits or RequestLimits(), api_key)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.batcher.close()

    app = FastAPI(title="mtcli", lifespan=lifespan, openapi_url=None)
    app.add_middleware(OriginCheck, host=host)
    app.add_exception_handler(HTTPException, _error_answer)  # type: ignore[arg-type]
    app.include_router(_translation_routes(service, aligns=shown.aligns))
    app.include_router(_information_routes(service))
    app.include_router(_page_route(shown))
    return app


def load_app(
    folder: Path,
    device: str,
    limits: RequestLimits,
    api_key: str | None,
    host: str | None = None,
    engine: str | None = "auto",
) -> tuple[FastAPI, tuple[str, str]]:
    """Create the application for the model of a run, or for an exported model.

    Args:
        folder: The run or the exported model.
        device: See `loading.load`.
        limits: Limits of a request.
        api_key: The key that every request for translation must have; None: no key is needed.
        host: See `create_app`.
        engine: See `loading.load`.

    Returns:
        The application, and the codes of source and target.

    Raises:
        ModelError: The folder has no usable model.
        UsageError: The machine has no such device.
    """
    translator, options, languages = load(folder, device, engine)
    aligns = translator.aligns
    targets = tuple(sorted(translator.tokenizer.tags))
    shown = page_data(folder, languages, targets, aligns=aligns, public=api_key is None)
    return create_app(translator, options, languages, limits, api_key, page=shown, host=host), languages


async def _error_answer(request: Request, error: HTTPException) -> JSONResponse:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _translation_routes(service: TranslationService, *, aligns: bool) -> APIRouter:
    """Return the routes that translate.

    Args:
        service: The model.
        aligns: The model reports word alignments.
    """
    router = APIRouter()

    async def checked_request(request: Request) -> TranslationRequest:
        fields = await read_request(request, service.limits)
        service.check(fields)
        return fields

    Checked = Annotated[TranslationRequest, Depends(checked_request)]

    @router.post("/translate")
    async def translate(request: Request, fields: Checked) -> dict[str, Any]:
        translations = await service.translate(request, fields, alignments=False)
        return _libretranslate_answer(fields, translations, service.src)

    @router.post("/api/translate")
    async def translate_in_full(request: Request, fields: Checked) -> dict[str, Any]:
        translations = await service.translate(request, fields, alignments=aligns)
        return {"lines": [_line_answer(line) for line in translations]}

    return router


def _information_routes(service: TranslationService) -> APIRouter:
    """Return the routes that describe the server, and `/detect`, which it does not support."""
    router = APIRouter()
    src = service.src
    targets = service.targets
    names_of_targets = _names(targets)

    @router.api_route("/languages", methods=READ_METHODS)
    async def languages() -> list[dict[str, Any]]:
        listed = [{"code": src, "name": english_name(src), "targets": targets}]
        listed += [{"code": code, "name": name, "targets": []} for code, name in names_of_targets.items()]
        return listed

    @router.api_route("/health", methods=READ_METHODS)
    async def health() -> dict[str, Any]:
        if not service.batcher.alive:
            raise HTTPException(500, "the translating thread has ended; restart the server")
        return {"status": "ok", "waiting": service.batcher.waiting}

    @router.post("/detect")
    async def detect() -> None:
        raise HTTPException(501, f"this server has one model, {src} → {service.tgt}, and cannot detect languages")

    return router


def _names(codes: Sequence[str]) -> dict[str, str]:
    """Return the English name of each language code, followed by the code if several codes have the same name."""
    names = {code: english_name(code) for code in codes}
    occurrences = Counter(names.values())
    return {code: name if occurrences[name] == 1 else f"{name} ({code})" for code, name in names.items()}


def _page_route(shown: PageData) -> APIRouter:
    router = APIRouter()
    html, policy = render(shown)

    @router.api_route("/", methods=READ_METHODS)
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"})

    return router


def _libretranslate_answer(fields: TranslationRequest, translations: Sequence[Translation], src: str) -> dict[str, Any]:
    """Return the answer of LibreTranslate's API. If `q` is a list, each field is a list with one value per text."""
    lines = iter(translations)
    best: list[str] = []
    alternatives: list[list[str]] = []
    for text in fields.texts:
        first, *others = _joined_candidates([next(lines) for _ in split_lines(text)])
        best.append(first)
        alternatives.append(others)
    answer: dict[str, list[Any]] = {"translatedText": best}
    if fields.alternatives:
        answer["alternatives"] = alternatives
    if fields.source == "auto":  # clients read it; a confidence of 0 says that nothing was detected
        answer["detectedLanguage"] = [{"language": src, "confidence": 0.0} for _ in best]
    if fields.is_list:
        return answer
    return {name: values[0] for name, values in answer.items()}


def _joined_candidates(lines: Sequence[Translation]) -> list[str]:
    """Return the different translations of a text, best first.

    The nth translation joins the nth candidate of every line. A line with fewer candidates repeats its last one.
    """
    num_candidates = max(len(line.candidates) for line in lines)
    texts = []
    for n in range(num_candidates):
        chosen = [line.candidates[min(n, len(line.candidates) - 1)].text for line in lines]
        texts.append("\n".join(chosen))
    return texts


def _line_answer(line: Translation) -> dict[str, Any]:
    candidates = [
        {
            "text": candidate.text,
            "log_prob": candidate.log_prob,
            "score": candidate.score,
            "alignment": candidate.alignment,
        }
        for candidate in line.candidates
    ]
    return {"source": line.source, "candidates": candidates}
