"""`mtcli serve`."""

import os
import sys
from pathlib import Path
from typing import Annotated

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.option_kinds import decimal, number, option
from mtcli.cli.options import LATEST, AutoEngineOption, DeviceOption, models_option
from mtcli.cli.process import note_latest
from mtcli.errors import UsageError

EXAMPLES = (
    "mtcli serve",
    "mtcli serve --model runs/ende --port 8080",
    "mtcli serve --model runs/ende --model runs/deen",
)

KEY_VARIABLE = "MTCLI_API_KEY"

INSTALL = "pip install fastapi uvicorn h11 python-multipart sentencex"

OPTIONAL_PACKAGES = ("fastapi", "uvicorn", "h11", "starlette", "python_multipart", "sentencex")


def serve(
    model: Annotated[
        list[Path] | None,
        models_option(
            "The run, checkpoint or exported model to serve. Repeat the option to serve several pairs of languages."
        ),
    ] = None,
    host: Annotated[
        str,
        option(
            "--host",
            panel=panels.SERVER,
            metavar="ADDRESS",
            help="The address to listen on; 0.0.0.0 is every network interface.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, number("--port", panel=panels.SERVER, within=limits.PORT, help="The port; 0 takes a free one.")
    ] = 5000,
    api_key: Annotated[
        str | None,
        option(
            "--api-key",
            panel=panels.SERVER,
            envvar=KEY_VARIABLE,
            metavar="KEY",
            help="A key that every request for a translation or detection must have.",
            show_default="no key",
        ),
    ] = None,
    max_body: Annotated[
        int,
        number(
            "--max-body", panel=panels.LIMITS, within=limits.BODY, metavar="BYTES", help="Maximum size of a request."
        ),
    ] = 1_000_000,
    max_lines: Annotated[
        int,
        number("--max-lines", panel=panels.LIMITS, within=limits.LINES, help="Maximum number of lines of a request."),
    ] = 500,
    max_tokens: Annotated[
        int,
        number(
            "--max-tokens", panel=panels.LIMITS, within=limits.LENGTH, help="Maximum number of tokens of a sentence."
        ),
    ] = 512,
    max_file: Annotated[
        int,
        number(
            "--max-file",
            panel=panels.LIMITS,
            within=limits.BODY,
            metavar="BYTES",
            help="Maximum size of a request with a file.",
        ),
    ] = 10_000_000,
    max_waiting: Annotated[
        int,
        number(
            "--max-waiting",
            panel=panels.LIMITS,
            within=limits.LINES,
            help="Maximum number of lines that wait for the model (further requests get 503), and of sentences in a "
            "request.",
        ),
    ] = 2_000,
    timeout: Annotated[
        float,
        number(
            "--timeout",
            panel=panels.LIMITS,
            within=limits.TIMEOUT,
            parser=decimal,
            metavar="SECONDS",
            help="Maximum time for a request to arrive, and then for its texts to be translated.",
        ),
    ] = 60.0,
    engine: AutoEngineOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Serve a translation page and the LibreTranslate API over HTTP. Needs the extra `serve`."""
    _check_key(api_key)
    if not host.strip():
        raise UsageError(
            "--host is empty; give an address, 127.0.0.1 for this machine only or 0.0.0.0 for every network"
        )
    try:
        import sentencex  # noqa: F401 - documents import it when they need it

        from mtcli.serve.app import load_app
        from mtcli.serve.origin_check import is_loopback
        from mtcli.serve.requests import RequestLimits
        from mtcli.serve.server import listen, server
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL_PACKAGES:
            raise
        raise UsageError(f"{error.name} is not installed; `{INSTALL}` brings it") from None
    from mtcli.runtime.memory import used
    from mtcli.runtime.wording import printable

    request_limits = RequestLimits(max_body, max_lines, max_tokens, max_waiting, timeout, max_file)
    listening = listen(host, port)
    address, port = listening.getsockname()[:2]
    own_host = host if is_loopback(address) else None
    models = model or [LATEST]
    note_latest(models)
    app, pairs = load_app(models, device, request_limits, api_key, own_host, engine)
    url_host = f"[{host}]" if ":" in host else host
    languages = printable(", ".join(f"{src} → {tgt}" for src, tgt in pairs))
    if len(pairs) > 1:
        print(f"{len(pairs)} models, {used() / 1e9:.1f} GB of memory in use", file=sys.stderr)
    print(f"{languages} at http://{url_host}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server(app, timeout).run(sockets=[listening])


def _check_key(api_key: str | None) -> None:
    """Refuse a key that protects nothing, or that no request can hold.

    Raises:
        UsageError: The option or the variable is empty, blank or not UTF-8.
    """
    if api_key is None and KEY_VARIABLE in os.environ:  # typer treats an empty variable as unset
        api_key = os.environ[KEY_VARIABLE]
    if api_key is None:
        return
    if not api_key.strip():
        raise UsageError(f"--api-key or {KEY_VARIABLE} is empty; give a key, or neither to serve without one")
    try:
        api_key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"--api-key or {KEY_VARIABLE} is not UTF-8; give another key") from None
