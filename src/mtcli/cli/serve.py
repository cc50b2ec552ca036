"""`mtcli serve`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from mtcli import limits
from mtcli.cli import completion, panels
from mtcli.cli.input_files import must_exist
from mtcli.cli.option_kinds import decimal, flag, number, option, output_file
from mtcli.cli.options import (
    LATEST,
    NEAR_PERCENT,
    AutoEngineOption,
    DeviceOption,
    MemoryMatchOption,
    MemoryOption,
    models_option,
)
from mtcli.cli.process import note, note_latest
from mtcli.errors import UsageError

EXAMPLES = (
    "mtcli serve",
    "mtcli serve --model runs/ende --port 8080",
    "mtcli serve --model runs/ende --model runs/deen",
)

KEY_VARIABLE = "MTCLI_API_KEY"

INSTALL = "pip install fastapi uvicorn h11 python-multipart sentencex"

APIS = ("deepl", "get", "opus-cat")
"""Those of `serve.other_apis`, which is imported later."""

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
    key_in_query: Annotated[
        bool,
        flag(
            "--key-in-query",
            panel=panels.SERVER,
            help="Accept the key in the query of an address, which proxies and browsers write to their logs.",
        ),
    ] = False,
    api: Annotated[
        list[str] | None,
        option(
            "--api",
            panel=panels.SERVER,
            metavar="deepl|get|opus-cat",
            autocompletion=completion.values(APIS),
            help="Answer requests in the form of another service too; repeat it, or separate several by commas.",
            show_default="LibreTranslate's only",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        option(
            "--allow-origin",
            panel=panels.SERVER,
            metavar="ORIGIN",
            help="Let the pages of another site use the server, such as https://example.org; repeat it for several.",
            show_default="none",
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
    memory: MemoryOption = None,
    memory_match: MemoryMatchOption = None,
    corrections: Annotated[
        Path | None,
        output_file(
            "--corrections",
            panel=panels.SERVER,
            metavar="FILE",
            help="Let users correct translations. Corrections are appended to this .tsv file and used at once. Needs a "
            "key, unless the server listens on this machine only.",
            show_default="corrections are refused",
        ),
    ] = None,
    engine: AutoEngineOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Serve a translation page and the LibreTranslate API over HTTP. Needs the extra `serve`."""
    _check_key(api_key)
    apis = _checked_apis(api or ())
    _check_memory(memory, memory_match, corrections)
    if not host.strip():
        raise UsageError(
            "--host is empty; give an address, 127.0.0.1 for this machine only or 0.0.0.0 for every network"
        )
    try:
        import sentencex  # noqa: F401 - documents import it when they need it

        from mtcli.serve.app import ServerSettings, load_app
        from mtcli.serve.origin_check import checked_origin, is_loopback
        from mtcli.serve.requests import RequestLimits
        from mtcli.serve.server import listen, server
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL_PACKAGES:
            raise
        raise UsageError(f"{error.name} is not installed; `{INSTALL}` brings it") from None
    from mtcli.runtime.memory import used
    from mtcli.runtime.wording import printable

    request_limits = RequestLimits(
        max_body, max_lines, max_tokens, max_waiting, timeout, max_file, key_in_query=key_in_query
    )
    origins = [checked_origin(origin) for origin in allow_origin or ()]
    listening = listen(host, port)
    address, port = listening.getsockname()[:2]
    own_host = host if is_loopback(address) else None
    if corrections is not None and api_key is None and own_host is None:
        raise UsageError(
            "--corrections: anyone on the network could write to the file; give --api-key, or --host 127.0.0.1"
        )
    sources = None
    if memory or corrections is not None:
        from mtcli.serve.corrections import MemorySources

        sources = MemorySources(memory or (), corrections, (memory_match or NEAR_PERCENT) / 100)
    models = model or [LATEST]
    note_latest(models)
    notices: list[str] = []
    settings = ServerSettings(request_limits, api_key, own_host, origins, apis)
    app, pairs = load_app(models, settings, device, engine, sources, notices)
    for notice in notices:
        note(notice)
    url_host = f"[{host}]" if ":" in host else host
    languages = printable(", ".join(f"{src} → {tgt}" for src, tgt in pairs))
    if len(models) > 1:
        print(f"{len(models)} models, {used() / 1e9:.1f} GB of memory in use", file=sys.stderr)
    print(f"{languages} at http://{url_host}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server(app, timeout).run(sockets=[listening])


def _checked_apis(names: Sequence[str]) -> set[str]:
    """Return the names of other services, which may be separated by commas.

    Raises:
        UsageError: A name is unknown.
    """
    found = {name.strip().lower() for each in names for name in each.split(",")}
    for name in sorted(found - set(APIS)):
        raise UsageError(f"--api {name}: choose from {', '.join(APIS)}")
    return found


def _check_memory(memory: list[Path] | None, memory_match: int | None, corrections: Path | None) -> None:
    """Check the files of a memory before the models are loaded.

    Raises:
        UsageError: An option has no effect, or the file of corrections has another type or is a file of the memory.
        DataError: A file cannot be read.
    """
    must_exist(*map(str, memory or ()))
    if memory:
        from mtcli.translate.memory import check_memory_file

        for path in memory:
            check_memory_file(path)
    if memory_match is not None and not memory and corrections is None:
        raise UsageError("--memory-match: only with --memory or --corrections")
    if corrections is None:
        return
    if corrections.suffix.lower() != ".tsv":
        raise UsageError(
            f"--corrections {corrections}: is a table with tabs; name it {corrections.with_suffix('.tsv')}"
        )
    if any(path.resolve() == corrections.resolve() for path in memory or ()):
        raise UsageError(f"--corrections {corrections}: is read as a memory too; omit --memory {corrections}")


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
