"""Servers for tests whose translations never end, or end when the test allows it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

ALLOWED = "allowed"
"""The file in the current folder for which translations wait, see `wait_for_permission`."""


def wait_for_permission() -> None:
    """Let translations in this process print `begun`, and continue when the file `ALLOWED` exists."""

    from mtcli.translate.translator import ModelTranslator

    translate = ModelTranslator.translate

    def waiting(self: ModelTranslator, *arguments: Any, **options: Any) -> Iterator[Any]:
        print("begun", flush=True)
        while not Path(ALLOWED).exists():
            time.sleep(0.001)
        yield from translate(self, *arguments, **options)

    patch.object(ModelTranslator, "translate", waiting).start()


def serve_endlessly() -> None:
    """Serve in this process, and print the port and what the server begins to do.

    It never reads `endless.txt`. Its time for a shutdown is a second.
    """
    from mtcli.documents.formats import registry
    from mtcli.runtime.progress import show_log
    from mtcli.serve import translation
    from mtcli.serve.app import ServerSettings, create_app
    from mtcli.serve.models import ServedModel
    from mtcli.serve.requests import RequestLimits
    from mtcli.serve.server import listen, server
    from mtcli.translate.translation import Options

    read_document = registry.read_document

    def read(content: bytes, options: Any) -> Any:
        if "endless" in options.name:
            print("reads", flush=True)
            time.sleep(3600)
        return read_document(content, options)

    show_log()
    patch.object(translation, "read_document", read).start()
    app = create_app(
        [ServedModel(EndlessTranslator(), Options(), "en", ("es",))], ServerSettings(RequestLimits(seconds=3600))
    )
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    server(app, 1.0).run([listening])


class EndlessTranslator:
    tokenizer = MagicMock(tags={}, encode_src=lambda texts: [[1] for _ in texts])
    target_tokenizer = tokenizer
    longest_src = 99
    backend = MagicMock(tokenizer=tokenizer)
    aligns = False

    def translate(self, *arguments: Any, **options: Any) -> None:
        print("begun", flush=True)
        time.sleep(3600)
