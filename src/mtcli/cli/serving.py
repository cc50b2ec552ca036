"""`mtcli serve`."""

import sys
from typing import Annotated

import typer

from mtcli.cli.options import LATEST, DeviceOption, ModelOption
from mtcli.errors import UsageError

LIMITS = "Limits"


def serve(
    model: ModelOption = LATEST,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0: on every network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 5000,
    api_key: Annotated[
        str | None, typer.Option(envvar="MTCLI_API_KEY", metavar="KEY", help="Without it, nothing is translated.")
    ] = None,
    max_body: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Of a request.", rich_help_panel=LIMITS)
    ] = 1_000_000,
    max_lines: Annotated[int, typer.Option(min=1, metavar="N", help="Of a request.", rich_help_panel=LIMITS)] = 500,
    max_pieces: Annotated[int, typer.Option(min=1, metavar="N", help="Of a line.", rich_help_panel=LIMITS)] = 512,
    max_waiting: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines that wait for the model.", rich_help_panel=LIMITS)
    ] = 2_000,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="For a request to arrive, then to be answered.", rich_help_panel=LIMITS
        ),
    ] = 60.0,
    device: DeviceOption = "auto",
) -> None:
    """Translate over HTTP: a page to type in, and the LibreTranslate API for programs. Needs the extra `serve`."""
    try:
        from mtcli.serve.app import LOOPBACK, RequestLimits, load_app
        from mtcli.serve.connection import listen, server
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "h11", "starlette"):
            raise
        raise UsageError(f"{error.name} is not installed; `pip install fastapi uvicorn h11` brings it") from None
    limits = RequestLimits(max_body, max_lines, max_pieces, max_waiting, timeout)
    where = f"[{host}]" if ":" in host else host
    app, (src, tgt) = load_app(model, device, limits, api_key, LOOPBACK if where in LOOPBACK else None)
    listening = listen(host, port)
    address = f"http://{where}:{listening.getsockname()[1]}/"
    print(f"{src} → {tgt} at {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server(app, timeout).run(sockets=[listening])
