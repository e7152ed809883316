"""What the REST service and the MCP server share: how an error is told, where to listen, how HTTP is spoken.

HTTP is spoken over h11. A client that does not get its request together in time is hung up on, and so is one that does
not take its answer: many that never do would use up all connections, or all memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from retcon import validate
from retcon.errors import InputError, quote

LONGEST = 300  # characters of a message
MOST_HEAD = 16_384  # bytes of a request's head
MOST_HEADERS = 100  # fields of a request's head
MOST_CONNECTIONS = 1_000  # open at once
SPARE_FILES = 64  # that the store and the model may need while every connection is taken
_IDLE = 30  # seconds that a connection is kept for a further request
_OUTGOING = 2**18  # bytes that the system keeps for a client that does not read; by itself it keeps megabytes
_AT_A_TIME = 8  # new connections that are taken before others have their turn
_WAITING = 256  # connections that nobody has taken yet
_PROXIED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
_BOTH = "a request has a Content-Length or a Transfer-Encoding, not both"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/\s]+))(?::[0-9]{1,5})?")


_TYPE = re.compile(r"str|int|float|bool|constrained-int|(?:list|dict|union|nullable)\[.*\]")  # in the place of an error
_KINDS = {
    "string_type": "text", "int_type": "a whole number", "int_parsing": "a whole number",
    "int_from_float": "a whole number", "float_type": "a number", "bool_type": "true or false",
    "bool_parsing": "true or false", "list_type": "a list", "dict_type": "an object", "model_type": "an object",
    "model_attributes_type": "an object", "finite_number": "a finite number",
}  # fmt: skip
_BOUNDS = {
    "greater_than_equal": ("ge", "or more"), "less_than_equal": ("le", "at most"),
    "too_short": ("min_length", "long at least"), "too_long": ("max_length", "long at most"),
}  # fmt: skip


def _ignore(_: str) -> None:
    pass


def one_line(text: str, most: int = LONGEST) -> str:
    """The text in one plain line of at most so many characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:most]


def error_body(code: str, message: str) -> bytes:
    """The JSON of an error; plain ASCII, so that nothing a caller sent can break it."""
    return json.dumps({"error": {"code": code, "message": one_line(message)}}).encode()


def complaint(errors: Sequence[Mapping[str, Any]], *, skip: int = 0) -> str:
    """What pydantic found wrong, three things at most, without quoting what was sent.

    `skip` leaves out the first parts of each place.
    """
    told: dict[str, list[str]] = {}  # place -> what may stand there, or what is wrong
    for each in errors:
        told.setdefault(_place(each["loc"][skip:]), []).append(_describe(each))
    said = [f"{where}{_either(what)}" for where, what in list(told.items())[:3]]
    return "; ".join(said) + (f" (and {len(told) - 3} more)" if len(told) > 3 else "")


def _describe(error: Mapping[str, Any]) -> str:
    """What is wrong, as the end of a sentence that begins with its place."""
    kind, limits = error["type"], error.get("ctx", {})
    known = {"missing": " is missing", "extra_forbidden": " is not known here"}
    known |= {name: f" is {what}" for name, what in _KINDS.items()}
    known |= {name: f" is {limits[bound]} {word}" for name, (bound, word) in _BOUNDS.items() if bound in limits}
    known |= {"literal_error": f" is {limits.get('expected')}"}
    return known.get(kind, f": {error['msg'].removeprefix('Value error, ')}")


def _either(what: Sequence[str]) -> str:
    """What may stand in one place: of several kinds, any."""
    first, *rest = dict.fromkeys(what)
    kinds = [each.removeprefix(" is ") for each in (first, *rest) if each.startswith(" is ")]
    return f" is {', '.join(kinds[:-1])} or {kinds[-1]}" if rest and len(kinds) == len(rest) + 1 else first


def _place(loc: Sequence[object]) -> str:
    """Where it is wrong, without the names of types that pydantic tried one after the other."""
    named = [_name(part) for part in loc if not (isinstance(part, str) and _TYPE.fullmatch(part))]
    return ".".join(named) or "the body"


def _name(part: object) -> str:
    text = str(part)
    return text if text.isascii() and text.isprintable() and len(text) <= 60 else ascii(text[:60])


def check_expiry(value: object) -> None:
    """Nothing, or an error where a note cannot expire at that time, as it may come in JSON."""
    if value is not None and not isinstance(value, str):
        raise InputError("expires_at is ISO 8601 in text, such as 2026-12-31T18:00, or never")
    try:
        validate.expiry(value, now="")
    except InputError:
        raise InputError(f"expires_at {quote(value)} is not ISO 8601, such as 2026-12-31T18:00, or never") from None


def ignore_error(waiting: asyncio.Future[Any]) -> None:
    """Look at the error of work that nobody waits for any more: asyncio complains about one that nobody saw."""
    if not waiting.cancelled():
        waiting.exception()


# -- where to listen ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)  # every request asks twice
def is_loopback(host: str, *, otherwise: bool = False) -> bool:
    """Whether the name or address is this machine's own; `otherwise` is for what is no address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return otherwise


def host_name(header: str) -> str:
    """The name or address in a Host header, without the port; empty where it is neither."""
    found = _HOST.fullmatch(header)
    return (found[1] or found[2]) if found else ""


def is_proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy has left its mark; not every proxy does."""
    return any(name.lower() in _PROXIED for name, _ in headers)


def url_host(host: str) -> str:
    """The host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, at IPv4 where the host has both."""
    opened: socket.socket | None = None
    try:
        found = {each[0] for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        family = socket.AF_INET if socket.AF_INET in found else socket.AF_INET6
        # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named: 40 ms a request otherwise
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _OUTGOING)  # each connection inherits it
        opened.bind((host, port))
        opened.listen(_WAITING)
        return opened
    except (OSError, OverflowError, UnicodeError) as error:
        if opened is not None:
            opened.close()
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host[:80]} port {port}: {why}") from None


# -- HTTP --------------------------------------------------------------------------------------------------------------


MakeDoor = Callable[[socket.socket, Callable[[], asyncio.Protocol], Callable[[], int]], Any]


def http_server(
    app: Any,
    *,
    seconds: float,
    grace: float,
    connections: int = MOST_CONNECTIONS,
    tell: Callable[[str], None] = _ignore,
    door: MakeDoor | None = None,
) -> Any:
    """A uvicorn server for the app. A request may take `seconds` to come in, and as long to take what is sent for it.

    A stop waits `grace` for answers. `connections` are open at once at most, fewer where the system allows fewer files.
    `tell` is called with a word for each connection that is ended or refused here, before the app knows of it. `door`
    takes connections from the socket where several processes listen on it.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """A server that takes few new connections at a time, so that many of them hold up nobody who has one."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            if door is not None:
                await super().startup([])
                self.servers = [door(each, self._connect, self._count) for each in sockets or ()]
                return
            await super().startup(sockets)
            for each in sockets or ():
                each.listen(_WAITING)  # asyncio takes as many at a time as it lets wait

        def _connect(self) -> Any:
            shared = {"server_state": self.server_state, "app_state": self.lifespan.state}
            return self.config.http_protocol_class(config=self.config, **shared)  # type: ignore[call-arg]

        def _count(self) -> int:
            return len(self.server_state.connections)

    limit = ConnectionLimit(min(connections, max(1, _files() - SPARE_FILES)), tell)
    config = uvicorn.Config(
        app, http=_protocol(seconds, limit, tell), log_config=None, access_log=False, lifespan="on", ws="none",
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=int(grace), timeout_keep_alive=_IDLE,
        backlog=_AT_A_TIME, h11_max_incomplete_event_size=MOST_HEAD,
    )  # fmt: skip
    return Server(config)


class Caller(Protocol):
    """A connection as the limit knows it."""

    @property
    def address(self) -> str: ...  # of the other side

    @property
    def waits(self) -> bool: ...  # no whole request of it is in: nobody loses an answer when it ends

    def drop(self) -> None: ...


class ConnectionLimit:
    """Every open connection, and who must go when there are too many.

    It is one that waits, of the address that has most: who opens a thousand connections loses some of those, and
    nobody else does. Of these it is the oldest that never had an answer, then the oldest: behind a proxy all have one
    address, and who does nothing goes before who pauses.
    """

    def __init__(self, most: int, tell: Callable[[str], None] = _ignore) -> None:
        self.most, self._tell = most, tell
        self._size = 0
        self._held: dict[
            str, tuple[dict[Caller, None], dict[Caller, None]]
        ] = {}  # unanswered and answered ones, by address

    def __len__(self) -> int:
        return self._size

    def enter(self, caller: Caller) -> None:
        """Let the connection in; where that is one too many, another one is dropped, or this one."""
        self._held.setdefault(caller.address, ({}, {}))[0][caller] = None
        self._size += 1
        if self._size > self.most:
            self._tell("connections")
            last = self._last() or caller
            self.leave(last)
            last.drop()

    def mark_answered(self, caller: Caller) -> None:
        """The connection had an answer."""
        unanswered, answered = self._held.get(caller.address, ({}, {}))
        if caller in unanswered:
            del unanswered[caller]
            answered[caller] = None

    def leave(self, caller: Caller) -> None:
        """The connection has ended."""
        both = self._held.get(caller.address, ({}, {}))
        for part in both:
            if caller in part:
                del part[caller]
                self._size -= 1
        if not any(both):
            self._held.pop(caller.address, None)

    def _last(self) -> Caller | None:
        """Who goes: nearly always the very first that is looked at."""
        for both in sorted(self._held.values(), key=lambda both: -sum(map(len, both))):
            for part in both:
                for caller in part:
                    if caller.waits:
                        return caller
        return None


def _files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 2**31
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return found if found != resource.RLIM_INFINITY else 2**31


def _protocol(seconds: float, limit: ConnectionLimit, tell: Callable[[str], None]) -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

    class Strict(h11.Connection):
        """HTTP without what two readers could understand in two ways, and with a bound on the whole of a head.

        h11 bounds what it still waits for: a head that comes in one piece could be of any size.
        """

        def next_event(self) -> Any:
            event = super().next_event()
            if isinstance(event, h11.Request):
                names = {name for name, _ in event.headers}
                if {b"content-length", b"transfer-encoding"} <= names:
                    raise h11.RemoteProtocolError(_BOTH)
            if isinstance(event, (h11.Request, h11.EndOfMessage)):
                size = sum(len(name) + len(value) + 4 for name, value in event.headers)
                size += len(getattr(event, "target", b""))
                if size > MOST_HEAD or len(event.headers) > MOST_HEADERS:
                    raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
            return event

    class Connection(H11Protocol):
        """A connection that ends when a request does not come in, or an answer does not go out, within `seconds`."""

        _late: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.conn = Strict(h11.SERVER, MOST_HEAD)

        @property
        def address(self) -> str:
            return self.client[0] if self.client else ""

        @property
        def waits(self) -> bool:
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def drop(self) -> None:
            self.transport.abort()

        def on_response_complete(self) -> None:
            limit.mark_answered(self)
            super().on_response_complete()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # whatever the client has not taken counts as not written
            _give_up_after(2 * seconds, transport)
            limit.enter(self)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            limit.leave(self)
            self._cancel("_late")
            self._cancel("_stuck")
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stuck is None:
                self._stuck = self.loop.call_later(seconds, self._give_up)

        def resume_writing(self) -> None:
            self._cancel("_stuck")
            super().resume_writing()

        def _give_up(self) -> None:
            tell("unread")
            self.transport.abort()  # close() would wait for what nobody takes

        def send_400_response(self, msg: str) -> None:
            status, why = _why(sys.exc_info()[1])
            body = error_body("http", why)
            tell("http")
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            answer = h11.Response(
                status_code=status, headers=[*headers, (b"connection", b"close")], reason=STATUS_PHRASES[status]
            )
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _watch(self) -> None:
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._cancel("_late")
            elif self._late is None:
                self._late = self.loop.call_later(seconds, self.transport.close)

        def _cancel(self, name: str) -> None:
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

    return Connection


def _give_up_after(seconds: float, transport: asyncio.Transport) -> None:
    """Have the system, too, give up on a client that takes nothing: what it keeps is out of our sight."""
    opened = transport.get_extra_info("socket")
    if hasattr(socket, "TCP_USER_TIMEOUT") and opened is not None:
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(2**31 - 1, int(seconds * 1000)))


def _why(error: BaseException | None) -> tuple[int, str]:
    """Status and words for a request that h11 refused; its own words may quote what was sent."""
    if getattr(error, "error_status_hint", 400) == 431:
        return 431, f"a request's head may have {MOST_HEAD:,} bytes and {MOST_HEADERS} fields"
    return 400, _BOTH if error is not None and str(error) == _BOTH else "this is no HTTP request that can be understood"
