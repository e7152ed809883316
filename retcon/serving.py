"""What the REST service and the MCP server share: how an error is told, where to listen, how HTTP is spoken.

HTTP is spoken over h11, because it bounds what a request's head may weigh, and a client that does not get its request
together in time is hung up on: many that never do would use up all connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from retcon.errors import InputError

LONGEST = 300  # characters of a message
_HEAD = 16_384  # bytes of a request's head that are waited for
_IDLE = 30  # seconds that a connection is kept for a further request
_WAITING = 256  # connections that nobody has taken yet
_PROXIED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")


def line(text: str, most: int = LONGEST) -> str:
    """The text in one plain line of at most so many characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:most]


def error_body(code: str, message: str) -> bytes:
    """The JSON of an error; plain ASCII, so that nothing a caller sent can break it."""
    return json.dumps({"error": {"code": code, "message": line(message)}}).encode()


def complaint(errors: Sequence[Mapping[str, Any]], *, skip: int = 0) -> str:
    """What pydantic found wrong, three things at most, without quoting what was sent.

    `skip` leaves out the first parts of each place.
    """
    told = [_wrong(each, skip) for each in errors[:3]]
    return "; ".join(told) + (f" (and {len(errors) - 3} more)" if len(errors) > 3 else "")


def _wrong(error: Mapping[str, Any], skip: int) -> str:
    where = ".".join(_name(part) for part in error["loc"][skip:]) or "the body"
    known = {"missing": f"{where} is missing", "extra_forbidden": f"{where} is not known here"}
    return known.get(error["type"], f"{where}: {error['msg'].removeprefix('Value error, ')}")


def _name(part: object) -> str:
    text = str(part)
    return text if text.isascii() and text.isprintable() and len(text) <= 60 else ascii(text[:60])


# -- where to listen ---------------------------------------------------------------------------------------------------


def is_loopback(host: str, *, otherwise: bool = False) -> bool:
    """Whether the name or address is this machine's own; `otherwise` is for what is no address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return otherwise


def proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy has left its mark; not every proxy does."""
    return any(name.lower() in _PROXIED for name, _ in headers)


def bracketed(host: str) -> str:
    """The host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, at IPv4 where the host has both."""
    opened: socket.socket | None = None
    try:
        found = {each[0] for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        family = socket.AF_INET if socket.AF_INET in found else socket.AF_INET6
        # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named: 40 ms a request otherwise
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(_WAITING)
        return opened
    except (OSError, OverflowError, UnicodeError) as error:
        if opened is not None:
            opened.close()
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host[:80]} port {port}: {why}") from None


# -- HTTP --------------------------------------------------------------------------------------------------------------


def http_server(app: Any, *, seconds: float, grace: float) -> Any:
    """A uvicorn server for the app. A request may take `seconds` to come in, a stop waits `grace` for answers."""
    import uvicorn

    config = uvicorn.Config(
        app, http=_protocol(seconds), log_config=None, access_log=False, lifespan="on", ws="none", server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=int(grace), timeout_keep_alive=_IDLE, backlog=_WAITING,
        h11_max_incomplete_event_size=_HEAD,
    )  # fmt: skip
    return uvicorn.Server(config)


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """A connection that is closed when a request does not come in within `seconds`."""

        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._calm()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._calm()
            elif self._late is None:
                self._late = self.loop.call_later(seconds, self.transport.close)

        def _calm(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Protocol
