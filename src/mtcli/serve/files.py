"""The routes for files: upload, translation and download."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from mtcli.serve.bodies import Bodies
from mtcli.serve.translation import TranslationService
from mtcli.serve.uploads import attachment, read_upload, translated_name

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


def file_routes(service: TranslationService, bodies: Bodies, read_methods: list[str]) -> APIRouter:
    """Return the routes that translate a file and give it back.

    Args:
        service: The models.
        bodies: Receives the requests.
        read_methods: The methods of the download.
    """
    router = APIRouter()
    store = FileStore()
    free = asyncio.Semaphore(service.limits.files)

    @asynccontextmanager
    async def one_of_few() -> AsyncIterator[None]:
        if free.locked():
            raise HTTPException(503, "too many files are being translated; try again later", {"Retry-After": "10"})
        async with free:
            yield

    @router.post("/translate_file")
    async def translate_file(request: Request) -> dict[str, str]:
        upload = await read_upload(request, bodies, service.limits)
        service.check_key(upload.api_key)
        async with one_of_few():
            translated = await service.translate_file(request, upload)
        name = translated_name(upload.name, translated.target)
        key = store.add(name, translated.content)
        return {"translatedFileUrl": f"{request.base_url}download_file/{key}/{quote(name, safe='')}"}

    @router.api_route("/download_file/{key}/{name}", methods=read_methods)
    async def download_file(key: str, name: str) -> Response:
        content = store.find(key, name)
        if content is None:
            raise HTTPException(404, "no such file; a translated file is kept for half an hour at most")
        headers = {**DOWNLOAD_HEADERS, "Content-Disposition": attachment(name)}
        return Response(content, media_type="application/octet-stream", headers=headers)

    return router
