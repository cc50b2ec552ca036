"""The requests of `mtcli serve`, and their answers."""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mtcli.errors import MtcliError
from mtcli.inference.ctranslate2_backend import Engine
from mtcli.inference.line_translator import LineTranslator, Options, Translation
from mtcli.inference.loading import load
from mtcli.serve.batcher import Batcher, FullError
from mtcli.serve.guard import Guard
from mtcli.serve.page import PageData, page_data, render

log = logging.getLogger(__name__)

MOST_ALTERNATIVES = 9

CODES = (
    "ar Arabic, bg Bulgarian, bn Bengali, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, es "
    "Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, ga Irish, gl Galician, he Hebrew, hi Hindi, "
    "hr Croatian, hu Hungarian, id Indonesian, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, nl "
    "Dutch, pl Polish, pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovenian, sq Albanian, sr Serbian, sv "
    "Swedish, th Thai, tr Turkish, uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese"
)
NAMES = dict(code.split() for code in CODES.split(", "))
"""What `/languages` calls a code; another is called by itself."""


@dataclass(frozen=True)
class RequestLimits:
    """What a request may ask for."""

    body: int = 1_000_000
    """Bytes of a request."""
    lines: int = 500
    """Lines of a request, over all its texts."""
    pieces: int = 512
    """Pieces of a line."""
    waiting: int = 2_000
    """Lines that wait for the model; while there are so many, requests are turned away."""
    seconds: float = 60.0
    """That a request may take to arrive, and then to be answered."""


class Ask(BaseModel):
    """A request for translation; other fields are ignored, as LibreTranslate's clients expect."""

    q: str | list[str]
    source: str = "auto"
    target: str = ""
    """Empty: the one there is."""
    format: str = "text"
    alternatives: int = Field(default=0, ge=0, le=MOST_ALTERNATIVES)
    api_key: str = ""

    @property
    def texts(self) -> list[str]:
        """One, or those of the list."""
        return [self.q] if isinstance(self.q, str) else self.q


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def create_app(
    translator: LineTranslator,
    options: Options,
    languages: tuple[str, str],
    limits: RequestLimits | None = None,
    api_key: str | None = None,
    *,
    page_data: PageData | None = None,
    host: str | None = None,
) -> FastAPI:
    """The application.

    Args:
        translator: Is used by one thread.
        options: How to search; `n_best` and `alignments` are the request's.
        languages: Codes of source and target.
        limits: What a request may ask for.
        api_key: Without it, nothing is translated; None: it is not asked for.
        page_data: What the page shows; None: the languages only.
        host: Answer only under this name and those of the loopback interface; None: under any. See `guard.Guard`.
    """
    src, tgt = languages
    limits = limits or RequestLimits()
    shown = page_data or PageData(src, tgt, aligns=True)
    batcher = Batcher(translator, limits.waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(title="mtcli", lifespan=lifespan, openapi_url=None)
    app.add_middleware(Guard, host=host)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def asked(request: Request) -> Ask:
        ask = _parse(request.headers.get("content-type", ""), await _body(request, limits))
        if api_key is not None and not hmac.compare_digest(ask.api_key.encode(), api_key.encode()):
            raise HTTPException(403, "wrong api_key" if ask.api_key else "this server asks for an api_key")
        if ask.source not in (src, "auto") or ask.target not in (tgt, ""):
            raise HTTPException(400, f"no model for {ask.source} → {ask.target}; there is one for {src} → {tgt}")
        if ask.format != "text":
            raise HTTPException(400, f"format {ask.format}: only text can be translated")
        if any("\0" in text for text in ask.texts):
            raise HTTPException(400, "q: a text has a NUL character, which no text has")
        return ask

    async def translated(request: Request, ask: Ask, *, alignments: bool) -> list[Translation]:
        if (n := sum(text.count("\n") + 1 for text in ask.texts)) > limits.lines:
            raise HTTPException(413, f"{n} lines; this server takes {limits.lines} at a time")
        lines = [line for text in ask.texts for line in _lines(text)]
        await asyncio.to_thread(_check_pieces, lines, translator, limits)
        changed = replace(options, n_best=ask.alternatives + 1, alignments=alignments)
        try:
            return await _answer(request, batcher.submit(lines, changed), limits.seconds)
        except FullError:
            raise HTTPException(503, "too many lines are waiting; try again soon", {"Retry-After": "1"}) from None
        except MtcliError as error:
            raise HTTPException(400, str(error)) from None
        except HTTPException:
            raise
        except Exception as error:
            log.error("a request failed: %s: %s", type(error).__name__, error)
            raise HTTPException(500, "the translation failed; the server's log says why") from None

    Asked = Annotated[Ask, Depends(asked)]

    @app.post("/translate")
    async def translate(request: Request, ask: Asked) -> dict[str, Any]:
        found = iter(await translated(request, ask, alignments=False))
        texts = [[next(found) for _ in _lines(text)] for text in ask.texts]
        ranked = [_ranked(text) for text in texts]
        one = isinstance(ask.q, str)
        answer: dict[str, Any] = {"translatedText": ranked[0][0] if one else [best for best, *_ in ranked]}
        if ask.alternatives:
            answer["alternatives"] = ranked[0][1:] if one else [others for _, *others in ranked]
        if ask.source == "auto":  # clients read it, and a confidence of 0 claims nothing
            guess = {"language": src, "confidence": 0.0}
            answer["detectedLanguage"] = guess if one else [guess] * len(texts)
        return answer

    @app.post("/api/translate")
    async def translate_in_full(request: Request, ask: Asked) -> dict[str, Any]:
        return {"lines": [_record(line) for line in await translated(request, ask, alignments=shown.aligns)]}

    @app.get("/languages")
    async def pairs() -> list[dict[str, Any]]:
        return [
            {"code": code, "name": NAMES.get(code, code), "targets": [tgt] if code == src else []} for code in languages
        ]

    @app.post("/detect")
    async def detect() -> None:
        raise HTTPException(501, f"this server has one model, {src} → {tgt}, and cannot tell languages apart")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        if not batcher.alive:
            raise HTTPException(500, "the translating thread has ended; restart the server")
        return {"status": "ok", "waiting": batcher.waiting}

    html, policy = render(shown)

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"})

    return app


def load_app(
    folder: Path, device: str, limits: RequestLimits, api_key: str | None, host: str | None = None
) -> tuple[FastAPI, tuple[str, str]]:
    """The application for the model of a run, or an exported one, and its languages.

    Raises:
        ModelError: There is no usable model.
        UsageError: There is no such device.
    """
    translator, options, languages = load(folder, device)
    aligns = not isinstance(translator, Engine)
    shown = page_data(folder, languages, aligns=aligns, public=api_key is None)
    return create_app(translator, options, languages, limits, api_key, page_data=shown, host=host), languages


async def _body(request: Request, limits: RequestLimits) -> bytes:
    """The body, unless it is too large (by what it says of itself, or by what arrives) or too slow."""
    found = bytearray()
    too_large = HTTPException(413, f"the request is larger than {limits.body:,} bytes; send the text in parts")
    if int(request.headers.get("content-length", 0)) > limits.body:
        raise too_large
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                found += chunk
                if len(found) > limits.body:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {limits.seconds:g} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request broke off") from None
    return bytes(found)


def _parse(content_type: str, body: bytes) -> Ask:
    """A request from JSON or from a form."""
    try:
        match content_type.partition(";")[0].strip().lower():
            case "application/json":
                return Ask.model_validate_json(body)
            case "application/x-www-form-urlencoded":
                fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=1000)
                return Ask.model_validate({name: v[0] if len(v) == 1 else v for name, v in fields.items()})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"][:1])) or "the request"
        raise HTTPException(400, f"{where}: {problem['msg']}") from None
    except ValueError as error:
        raise HTTPException(400, f"the request is no form: {error}") from None
    raise HTTPException(415, "send application/json or application/x-www-form-urlencoded")


def _check_pieces(lines: Sequence[str], translator: LineTranslator, limits: RequestLimits) -> None:
    for number, line in enumerate(lines, 1):
        if len(line.encode()) < limits.pieces:  # a piece is a byte at least
            continue
        pieces = len(translator.tokenizer.encode_src([line])[0])
        if pieces > limits.pieces:
            raise HTTPException(413, f"line {number} has {pieces} pieces; this server takes {limits.pieces} in a line")


async def _answer(request: Request, submitted: Sequence[Future[Translation]], seconds: float) -> list[Translation]:
    """The translations, or a refusal when they take too long; they are called off when the client has left."""
    work = asyncio.gather(*map(asyncio.wrap_future, submitted))
    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio complains of it, called off
    left = asyncio.ensure_future(_left(request))
    either: set[asyncio.Future[Any]] = {work, left}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
    finally:
        left.cancel()
        work.cancel()
        for line in submitted:  # by itself that reaches them only when the loop comes round, and the answer is out
            line.cancel()
    raise HTTPException(503, f"not translated within {seconds:g} seconds; try again later", {"Retry-After": "10"})


async def _left(request: Request) -> None:
    """Until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _ranked(lines: Sequence[Translation]) -> list[str]:
    """The different translations of a text, the best first; a line that has fewer than another repeats its last."""
    ranks = max(len(line.candidates) for line in lines)
    return ["\n".join(_of_rank(line, rank) for line in lines) for rank in range(ranks)]


def _of_rank(line: Translation, rank: int) -> str:
    return line.candidates[min(rank, len(line.candidates) - 1)].text


def _record(line: Translation) -> dict[str, Any]:
    candidates = [
        {"text": c.text, "log_prob": c.log_prob, "score": c.score, "alignment": c.alignment} for c in line.candidates
    ]
    return {"source": line.source, "candidates": candidates}
