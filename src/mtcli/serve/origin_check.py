"""Refuse requests for another host name and requests from pages of other sites.

The API key is checked in `translation.py`.
"""

import re
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mtcli.errors import UsageError

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?P<rest>(:(?P<port>\d+))?)"
)

DEFAULT_PORTS = {"http": "80", "https": "443"}
"""Browsers leave these ports out of an origin."""

SAFE_METHODS = ("GET", "HEAD")
"""These methods change nothing, and a page of another site cannot read their answer."""


def checked_origin(origin: str) -> str:
    """Return an origin as browsers send it: `https://example.org`, with a port if it is not the usual one.

    Raises:
        UsageError: It is not an origin of one site.
    """
    parsed = _ORIGIN.fullmatch(origin.lower().removesuffix("/"))
    if parsed is None:
        example = "such as https://example.org or chrome-extension://…, without a path"
        raise UsageError(f"--allow-origin {origin}: not an origin; give scheme and host of one site, {example}")
    default = DEFAULT_PORTS.get(parsed["scheme"])
    return parsed["scheme"] + "://" + (parsed["host"] if parsed["port"] == default else parsed["host"] + parsed["rest"])


def is_loopback(name: str) -> bool:
    """Return True if a name or address, without a port, is the loopback interface: `localhost`, 127.x.y.z or ::1.

    An IPv4 address may be written as one of IPv6, such as `::ffff:127.0.0.1`.
    """
    name = name.lower().removesuffix(".")
    if name == "localhost":
        return True
    try:
        address = ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


class OriginCheck:
    """ASGI middleware that checks the `Host` and `Origin` of each request before it is routed.

    The check of `Host` prevents DNS rebinding: a page of another site cannot use a server on this machine under a name
    that it resolves to this machine. The check of `Origin` prevents such a page from sending POST requests.

    Args:
        app: The application.
        host: Answer only under this name and those of the loopback interface; None: under any name.
        allowed: Origins of other sites whose pages may send any request.
        translating: Paths whose GET requests translate. They are checked as POST requests are.
    """

    def __init__(
        self, app: ASGIApp, host: str | None = None, allowed: Collection[str] = (), translating: Collection[str] = ()
    ):
        self.app = app
        self.host = host.lower() if host is not None else None
        self.allowed = allowed
        self.translating = translating

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the application, or refuse it with 421 or 403."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._answers_as(headers.get("host", "")):
            error = f"this server answers as localhost, 127.0.0.1 or [::1], not as {headers.get('host', '')!r}"
            await JSONResponse({"error": error}, 421)(scope, receive, send)
        elif not (self._is_safe(scope) or _is_own_page(headers) or self._is_allowed(headers)):
            error = f"a page of another site ({headers.get('origin', 'unknown')}) may not use this server"
            await JSONResponse({"error": error}, 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_safe(self, scope: Scope) -> bool:
        return scope["method"] in SAFE_METHODS and scope["path"].rstrip("/") not in self.translating

    def _is_allowed(self, headers: Headers) -> bool:
        origins = headers.getlist("origin")
        return len(origins) == 1 and origins[0] in self.allowed

    def _answers_as(self, host: str) -> bool:
        if self.host is None:
            return True
        found = re.fullmatch(r"(\[[^][]*\]|[^][:]*)(:\d+)?", host)
        if found is None:
            return False
        name = found[1].lower()
        return is_loopback(name) or name.removesuffix(".") == self.host


def _is_own_page(headers: Headers) -> bool:
    """Return False for a request that a browser sends for a page of another server.

    Programs send neither header. Browsers send `Origin` with every POST, and `Sec-Fetch-Site` if they trust the
    connection (localhost or HTTPS). `Sec-Fetch-Site` works behind a proxy that changes `Host`, too.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origins = [origin.partition("://")[2].lower() for origin in headers.getlist("origin")]
    host = headers.get("host", "").lower()
    return not origins or (host != "" and set(origins) == {host})
