"""How the server is reached: standard input and output, or streamable HTTP. Logs go to standard error, never a note.

HTTP listens on this machine alone unless a key is set. Host and Origin are checked by the mcp package, so that no web
page can reach the server under a name of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from retcon.errors import InputError
from retcon.mcp.majors import PARSE_ERROR, error_message, http_app, open_stdio
from retcon.mcp.server import ToolWorkers
from retcon.serving import error_body, host_name, http_server, is_loopback, is_proxied, listen, one_line, url_host

PATH = "/mcp"
GRACE = 3.0  # seconds that writes, and answers over HTTP, have to end
SECONDS = 30.0  # that a request over HTTP may take to come in
_EVERYWHERE = ("0.0.0.0", "::", "")
_ORDINARY = "ASGI callable returned without"  # how uvicorn calls a stream that ends with the server
_ORIGIN = re.compile(r"https?://[^/\s:@*?#\[\]]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


# -- standard input and output -----------------------------------------------------------------------------------------


def serve_stdio(server: Server[Any], workers: ToolWorkers, close: Callable[[], None]) -> None:
    """Answer on standard output what comes on standard input, until that ends or a signal comes."""
    _log_plainly()
    if sys.stdin.isatty():
        print("retcon: an MCP client speaks here, not a person; Ctrl-C ends it", file=sys.stderr)
    anyio.run(_stdio, server, workers, close)
    leave(workers, close)


async def _stdio(server: Server[Any], workers: ToolWorkers, close: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":  # where event loops take no signal handlers, and a signal just ends the process
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            loop.add_signal_handler(number, _end, workers, close, code)
    async with open_stdio() as (read, write), _refuse_bad_lines(read, write) as heard:
        await server.run(heard, write, server.create_initialization_options())


def _end(workers: ToolWorkers, close: Callable[[], None], code: int) -> None:
    """End the process: the thread that waits for standard input cannot be woken."""
    workers.finish(GRACE)
    close()
    os._exit(code)


@contextlib.asynccontextmanager
async def _refuse_bad_lines(read: Any, write: Any) -> AsyncIterator[ObjectReceiveStream[SessionMessage | Exception]]:
    """What is heard, less the lines that are no messages: those get an error, where the mcp package keeps silent."""
    send, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def relay() -> None:
        async with send, read:
            async for item in read:
                if not isinstance(item, Exception):
                    await send.send(item)
                elif (answer := refusal(item)) is not None:
                    await write.send(answer)

    async with anyio.create_task_group() as group:
        group.start_soon(relay)
        yield heard
        group.cancel_scope.cancel()


def refusal(error: Exception) -> SessionMessage | None:
    """The answer to a line that is no message, under its id where it has one; an empty line gets none."""
    given = error.errors()[0]["input"] if isinstance(error, ValidationError) else None
    if isinstance(given, str) and not given.strip():
        return None
    return error_message(PARSE_ERROR, "this line is no JSON-RPC message in UTF-8; nothing was done", _id_in(given))


def _id_in(given: Any) -> str | int | None:
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)  # takes half a surrogate pair, over which the strict parser stumbled
    found = given.get("id") if isinstance(given, dict) else None
    return found if isinstance(found, (str, int)) and not isinstance(found, bool) and _is_text(found) else None


def _is_text(value: str | int) -> bool:
    return isinstance(value, int) or value.isascii()


# -- HTTP --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, who may call, and under which names."""

    host: str = "127.0.0.1"
    port: int = 8765
    key: str | None = None
    names: tuple[str, ...] = ()  # that clients use for this machine, in the Host header
    origins: tuple[str, ...] = ()  # of web pages that may call, beside the server's own

    def __post_init__(self) -> None:
        if self.key is None and not is_loopback(self.host):
            raise InputError(f"{self.host or 'an empty host'} is reachable from elsewhere: --key-env NAME names a key")
        if self.key is None and self.names:
            raise InputError("--allow-host lets others in: --key-env NAME names the key they need")
        if self.host in _EVERYWHERE and not self.names:
            raise InputError("listening on every address needs --allow-host NAME: what clients call this machine")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InputError(f"--allow-origin is like https://box.lan:8443, not {origin[:80]!r}")

    @property
    def security(self) -> TransportSecuritySettings:
        """Which Host and Origin headers are let through.

        A proxy may change the port of a name, so any port goes with a Host. An Origin is the server's own to the
        letter: another port of this machine is another program's.
        """
        own = () if self.host in _EVERYWHERE or is_loopback(self.host) else (url_host(self.host),)
        names = (*_LOCAL, *own, *self.names)
        ports = ("", f":{self.port}") if self.port == 80 else (f":{self.port}",)
        return TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[each for name in names for each in (name, f"{name}:*")],
            allowed_origins=[*(f"http://{name}{port}" for name in names for port in ports), *self.origins],
        )


def serve_http(server: Server[Any], workers: ToolWorkers, close: Callable[[], None], address: Address) -> None:
    """Answer at `http://host:port/mcp` until a signal comes."""
    _log_plainly()
    with listen(address.host, address.port) as opened:
        host, port = opened.getsockname()[:2]
        security = replace(address, port=port).security
        app = http_app(server, PATH, security)
        app = RequireHost(RefuseProxies(app) if address.key is None else RequireKey(app, address.key))
        web = http_server(app, seconds=SECONDS, grace=GRACE)
        print(f"retcon: MCP at http://{url_host(host)}:{port}{PATH}, Ctrl-C ends it", file=sys.stderr, flush=True)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn passes a signal on once it has shut down: end here
            signal.signal(number, lambda *_: None)
        web.run(sockets=[opened])
    leave(workers, close)


class RequireHost:
    """An app that answers no Host header that is not a name and a port: `[::1]:x.evil.example` begins like ours."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] != "http" or (len(hosts) == 1 and host_name(hosts[0])):
            await self.app(scope, receive, send)
            return
        await _refuse(send, 421, error_body("host", "the Host header names no host"))


class RequireKey:
    """An app that answers those alone who send the key."""

    def __init__(self, app: Any, key: str) -> None:
        self.app, self._wanted = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or self._has_key(scope["headers"]):
            await self.app(scope, receive, send)
            return
        body = error_body("key", "send the key: Authorization: Bearer KEY")
        await _refuse(send, 401, body, (b"www-authenticate", b"Bearer"))

    def _has_key(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        sent = [value for name, value in headers if name == b"authorization"]
        return len(sent) == 1 and hmac.compare_digest(sent[0], self._wanted)


class RefuseProxies:
    """An app without a key, which answers nobody whom a proxy lets through: they may be anywhere."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not is_proxied(scope["headers"]):
            await self.app(scope, receive, send)
            return
        await _refuse(send, 403, error_body("proxy", "a proxy passes this on: name a key with --key-env"))


async def _refuse(send: Any, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# -- both --------------------------------------------------------------------------------------------------------------


def leave(workers: ToolWorkers, close: Callable[[], None]) -> None:
    """Wait for writes under way. A call that waits for a model does not hold the process."""
    if not workers.finish(GRACE):
        close()
        os._exit(0)


class _Plain(logging.Formatter):
    """One line, no stack: what a client sent may be in it."""

    def format(self, record: logging.LogRecord) -> str:
        kind = record.exc_info[0] if record.exc_info else None
        return "retcon: " + one_line(record.getMessage() + (f" ({kind.__name__})" if kind else ""))


def _log_plainly() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain())
    handler.addFilter(lambda record: not record.getMessage().startswith(_ORDINARY))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
