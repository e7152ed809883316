"""Who may come in. One ASGI layer around the app, passed by every request, in this order:

    host and origin   without keys: only this machine, only under its own names, through no proxy that says it is one,
                      no writes from other sites' pages
    key               with keys: `Authorization: Bearer`, except on the pages that tell nothing
    rate              each key has its own bucket, the same at all servers on the store, from which a large body takes
                      more; who is over it is told so with a delay, so that asking on and on gains nothing
    size              a body is read only up to the limit; none at all where no key is asked for. All that are still
                      coming in have so many bytes together, and each key its share of them
    load              so many requests at once, and so many of each key; more are turned away at once rather than kept
                      waiting. A place is taken only when the request is wholly in: who sends slowly holds none

Then one count and one log line for each, whatever happened.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from retcon.errors import RetconError
from retcon.grant import EVERYTHING, Grant
from retcon.server import logs
from retcon.server.keys import Keys
from retcon.server.known_keys import KnownKeys
from retcon.server.limits import Limits, Shares
from retcon.server.metrics import Metrics
from retcon.server.rates import Rates
from retcon.server.readiness import Readiness
from retcon.server.refusals import Refusal, refusal_of
from retcon.server.workers import late_refusal
from retcon.serving import error_body, host_name, is_loopback, is_proxied
from retcon.trace import span

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/docs", "/openapi.json", "/favicon.ico")  # pages that tell nothing of anybody's notes
CHUNK = 65_536  # bytes of an answer that are sent at once, the next when these have gone out
DELAY = 0.5  # seconds before a key that asks too often is told so
HALF = 16_384  # bytes that a request counts for while it comes in, at least: its connection has a price too
SAFE = ("GET", "HEAD")
METHODS = (*SAFE, "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"SAMEORIGIN",
    b"cache-control": b"no-store",
}


class Admission:
    """The layer around the app."""

    def __init__(
        self, app: App, *, keys: Keys | None, limits: Limits, rates: Rates, metrics: Metrics, readiness: Readiness
    ) -> None:
        self.app, self.limits, self.metrics, self.readiness = app, limits, metrics, readiness
        self.keys = KnownKeys(keys, limits.seconds) if keys is not None and keys.remote else keys
        self._rates = rates
        self._places = Shares(limits.in_flight, limits.key_in_flight)
        self._bodies = Shares(limits.bodies, limits.key_bodies)
        metrics.watch("retcon_in_flight", lambda: {(): self._places.taken})
        metrics.watch("retcon_incoming_bytes", lambda: {(): self._bodies.taken})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._handle(
                dict(scope), receive, _Answer(send, secrets.token_hex(8), _method(scope), self.readiness)
            )
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        started = time.perf_counter()
        held, key = False, ""
        try:
            if isinstance(self.keys, KnownKeys):
                await self.keys.find(_key(_headers(scope)))
            grant = self._admit(scope)
            key = grant.id if grant else ""
            if grant is not None and self._needs_key():
                await self._check_rate(key, scope)
            deadline = asyncio.get_running_loop().time() + self.limits.seconds
            body = await self._body(scope, receive, deadline, key)
            held = self._take_place(scope, key)
            scope.setdefault("state", {}).update(grant=grant, deadline=deadline)
            with span("retcon.request", caller=_headers(scope), method=answer.method) as current:
                await self.app(_prepare(scope), _replay(body, receive), answer)
                current.set_attribute("route", _route(scope))
                current.set_attribute("status", answer.status)
        except (Refusal, RetconError) as error:
            no = error if isinstance(error, Refusal) else refusal_of(error)
            self.metrics.count("retcon_refused_total", reason=no.code)
            await answer.refuse(no)
        except Exception as error:
            logs.event(logging.ERROR, "fault", request=answer.id, **logs.describe(error))
            message = f"a fault of the server, in its log under {answer.id}"
            await answer.refuse(Refusal(500, "fault", message))
        finally:
            if held:
                self._places.give(key)
            self._record(scope, answer, time.perf_counter() - started)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _admit(self, scope: Scope) -> Grant | None:
        """What the caller may see; None for one without a key, on a page that needs none."""
        headers = _headers(scope)
        if not self._needs_key():
            _check_local(scope, headers)
            return EVERYTHING
        sent = _key(headers)
        grant = self.keys.grant(sent) if sent and self.keys is not None else None
        if grant is None:
            if "authorization" in headers or not _is_open(scope["path"]):
                raise Refusal(401, "key", "send a valid key: Authorization: Bearer rk-...", WWW_Authenticate="Bearer")
            return None
        return grant

    async def _check_rate(self, key: str, scope: Scope) -> None:
        """Nothing, or after a moment an error: the key asks too often."""
        wait = await self._rates.wait(key)
        if wait:
            await asyncio.sleep(min(wait, DELAY))
            message = f"more than {self.limits.rate:g} requests a second with this key"
            close = {"Connection": "close"} if _has_body(scope) else {}  # what it still sends is not read
            raise Refusal(429, "rate", message, Retry_After=str(max(1, round(wait + 0.5))), **close)

    def _needs_key(self) -> bool:
        """Whether there are keys, so that one is needed."""
        return self.keys is not None and self.keys.exist()

    def _take_place(self, scope: Scope, key: str) -> bool:
        """Whether the request now counts as one in flight; pages do not."""
        if _is_page(scope["path"]) or scope["path"] in ("/health", "/ready", "/metrics"):
            return False
        if self._places.key_full(key):
            raise _busy(f"{self._places.each} requests of this key are in work already")
        if self._places.full():
            raise Refusal(503, "overloaded", "too many requests at once; nothing was written", Retry_After="1")
        self._places.take(key)
        return True

    async def _body(self, scope: Scope, receive: Receive, deadline: float, key: str) -> bytes:
        headers = _headers(scope)
        most = 0 if _is_open(scope["path"]) else self.limits.body
        length = headers.get("content-length", "")
        if (length.isdecimal() and int(length[:20]) > most) or (not most and "transfer-encoding" in headers):
            raise _too_large(most)
        taken = 0
        try:
            self._make_room(key, HALF)
            parts, size, more, taken = [], 0, True, HALF
            while more:
                message = await self._part(receive, deadline)
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), bool(message.get("more_body"))
                if size > most:
                    raise _too_large(most)
                if size > taken:
                    self._make_room(key, size - taken)
                    taken = size
            self._rates.charge(key, size // CHUNK)
            return b"".join(parts)
        finally:
            if taken:
                self._bodies.give(key, taken)

    def _make_room(self, key: str, amount: int) -> None:
        """Count more bytes of a request that comes in, or refuse them."""
        if self._bodies.key_full(key, amount):
            raise _busy("too many requests of this key are still coming in", Connection="close")
        if self._bodies.full(amount):
            message = "too many requests are still coming in; nothing was written"
            raise Refusal(503, "overloaded", message, Retry_After="1", Connection="close")
        self._bodies.take(key, amount)

    async def _part(self, receive: Receive, deadline: float) -> Message:
        """What comes next of the request."""
        left = deadline - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(receive(), max(0.001, left))
        except TimeoutError:
            raise late_refusal(self.limits.seconds, Connection="close") from None
        if message["type"] == "http.disconnect":
            raise Refusal(400, "cut_off", "the connection ended before the request did")  # nobody reads this
        return message

    # -- what is told --------------------------------------------------------------------------------------------------

    def _record(self, scope: Scope, answer: _Answer, seconds: float) -> None:
        state = scope.get("state") or {}
        grant = state.get("grant")
        route = _route(scope)
        self.metrics.count("retcon_requests_total", route=route, method=answer.method, status=str(answer.status))
        self.metrics.took(route, seconds)
        logs.event(
            logging.INFO, "request", request=answer.id, method=answer.method, route=route, status=answer.status,
            ms=round(seconds * 1000, 2), bytes=answer.size, key=grant.id if grant else None,
        )  # fmt: skip


class _Answer:
    """Sends the answer on, with our headers, and remembers what it was. To HEAD it sends no body."""

    def __init__(self, send: Send, request_id: str, method: str, readiness: Readiness) -> None:
        self._send, self.id, self.method, self._readiness = send, request_id, method, readiness
        self.status, self.size = 0, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", ())}
            ours = [pair for pair in HEADERS.items() if pair[0] not in present]
            if self._readiness.draining and b"connection" not in present:
                ours.append((b"connection", b"close"))  # the client's next connection goes to another process
            message["headers"] = [*message.get("headers", ()), *ours, (b"x-request-id", self.id.encode())]
        elif message["type"] == "http.response.body":
            await self._pass_on(b"" if self.method == "HEAD" else message.get("body", b""), message)
            return
        await self._send(message)

    async def _pass_on(self, body: bytes, message: Message) -> None:
        """Send the body in pieces: what the client has not taken is not copied for it."""
        self.size += len(body)
        more = bool(message.get("more_body"))
        for start in range(0, max(1, len(body)), CHUNK):
            part, last = body[start : start + CHUNK], start + CHUNK >= len(body)
            await self._send({"type": "http.response.body", "body": part, "more_body": more or not last})

    async def refuse(self, no: Refusal) -> None:
        """Send an error, unless an answer has begun."""
        if self.status:
            return
        body = error_body(no.code, no.message)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in no.headers.items()]
        await self({"type": "http.response.start", "status": no.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The route as it is written in app.py, with no id in it."""
    return str(getattr(scope.get("route"), "path", "other"))


def _method(scope: Scope) -> str:
    return str(scope["method"]) if scope["method"] in METHODS else "other"


def _prepare(scope: Scope) -> Scope:
    """The scope as the routes read it, changed in place.

    HEAD is GET without a body. The address of a note stays as it was sent, percent-encoded: a "/" in an id is none
    between parts, and the routes decode the id.
    """
    scope["method"] = "GET" if scope["method"] == "HEAD" else scope["method"]
    sent = scope.get("raw_path")
    if sent and scope["path"].startswith("/memories/"):
        scope["path"] = sent.decode("latin-1")
    return scope


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, as if it came just now; then whatever else comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by lower-case name; of two with one name the first, of two keys none."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key == "authorization" and key in found else found.get(key, value.decode("latin-1"))
    return found


def _key(headers: dict[str, str]) -> str:
    """The key that was sent; empty where there is none."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def _has_body(scope: Scope) -> bool:
    headers = _headers(scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _busy(why: str, **headers: str) -> Refusal:
    return Refusal(429, "busy_key", f"{why}; nothing was written", Retry_After="1", **headers)


def _too_large(most: int) -> Refusal:
    message = f"a request may have {most:,} bytes" if most else "no body is taken here"
    return Refusal(413, "too_large", message, Connection="close")


def _is_page(path: str) -> bool:
    return path in OPEN or (path.startswith("/page/") and path != "/page/report.json")


def _is_open(path: str) -> bool:
    return path in ("/health", "/ready") or _is_page(path)


def _check_local(scope: Scope, headers: dict[str, str]) -> None:
    """Only this machine, under its own names (a page of another site may point its name here), no foreign writes."""
    client = scope.get("client")
    if client and not is_loopback(client[0], otherwise=True):
        raise Refusal(
            403, "local", "without keys the server answers this machine only: make one with 'retcon keys add'"
        )
    if is_proxied(scope["headers"]):  # to us its callers, from anywhere, look like this machine
        raise Refusal(403, "proxy", "a proxy passes this on: make a key with 'retcon keys add'")
    if not is_loopback(host_name(headers.get("host", ""))):
        raise Refusal(403, "host", "without keys the server answers to localhost and 127.0.0.1 only")
    if scope["method"] in SAFE:
        return
    foreign = "origin" in headers and _site(headers["origin"]) != headers.get("host", "").lower()
    if foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refusal(403, "origin", "without keys the server takes no writes from pages of other sites")


def _site(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return "null"
