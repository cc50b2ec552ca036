"""`mtcli serve`."""

import os
import sys
from typing import Annotated

import typer

from mtcli import limits
from mtcli.cli.options import LATEST, DeviceOption, ModelOption, bounded
from mtcli.errors import UsageError

LIMITS = "Limits"

KEY_VARIABLE = "MTCLI_API_KEY"


def serve(
    model: ModelOption = LATEST,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on; 0.0.0.0 is every network interface.")
    ] = "127.0.0.1",
    port: Annotated[int, bounded(within=limits.PORT, help="The port; 0 takes a free one.")] = 5000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=KEY_VARIABLE, metavar="KEY", help="A key that every request must carry.", show_default="no key"
        ),
    ] = None,
    max_body: Annotated[
        int, bounded(within=limits.BODY, metavar="BYTES", help="Largest request.", rich_help_panel=LIMITS)
    ] = 1_000_000,
    max_lines: Annotated[
        int, bounded(within=limits.LINES, metavar="N", help="Most lines of a request.", rich_help_panel=LIMITS)
    ] = 500,
    max_pieces: Annotated[
        int, bounded(within=limits.LENGTH, metavar="N", help="Most tokens of a line.", rich_help_panel=LIMITS)
    ] = 512,
    max_waiting: Annotated[
        int,
        bounded(
            within=limits.LINES,
            metavar="N",
            help="Most lines that wait for the model; beyond, requests get 503.",
            rich_help_panel=LIMITS,
        ),
    ] = 2_000,
    timeout: Annotated[
        float,
        bounded(
            within=limits.TIMEOUT,
            metavar="SECONDS",
            help="Time for a request to arrive, and again for it to be answered.",
            rich_help_panel=LIMITS,
        ),
    ] = 60.0,
    device: DeviceOption = "auto",
) -> None:
    """Serve a translation page and the LibreTranslate API over HTTP. Needs the extra `serve`."""
    _check_key(api_key)
    if not host.strip():
        raise UsageError(
            "--host is empty; give an address, 127.0.0.1 for this machine only or 0.0.0.0 for every network"
        )
    try:
        from mtcli.serve.app import load_app
        from mtcli.serve.guard import is_loopback
        from mtcli.serve.requests import RequestLimits
        from mtcli.serve.server import listen, server
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "h11", "starlette"):
            raise
        raise UsageError(f"{error.name} is not installed; `pip install fastapi uvicorn h11` brings it") from None
    from mtcli.runtime.terminal import printable

    asked = RequestLimits(max_body, max_lines, max_pieces, max_waiting, timeout)
    listening = listen(host, port)
    address, port = listening.getsockname()[:2]
    app, (src, tgt) = load_app(model, device, asked, api_key, host if is_loopback(address) else None)
    where = f"[{host}]" if ":" in host else host
    found = printable(f"{src} → {tgt}")
    print(f"{found} at http://{where}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server(app, timeout).run(sockets=[listening])


def _check_key(api_key: str | None) -> None:
    """Refuse a key that protects nothing, or that no request can hold.

    Raises:
        UsageError: The option or the variable is empty, blank or not UTF-8.
    """
    if api_key is None and KEY_VARIABLE in os.environ:  # typer takes an empty variable for one that is not set
        api_key = os.environ[KEY_VARIABLE]
    if api_key is None:
        return
    if not api_key.strip():
        raise UsageError(f"--api-key or {KEY_VARIABLE} is empty; give a key, or neither to serve without one")
    try:
        api_key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"--api-key or {KEY_VARIABLE} is not UTF-8; give another key") from None
