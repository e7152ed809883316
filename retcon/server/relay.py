"""The model behind the chat proxy: an OpenAI-compatible endpoint, whose answers pass through.

An answer in events is sent on line by line as it comes. Any other answer is sent on whole, once it is all there: so an
endpoint that breaks off, or says what is no JSON, is told as such. An error of the endpoint comes back as it is. What
goes wrong on the way is one of ours: 502, 504, or in the middle of events an event with an error.

The endpoint's key travels in one header and nowhere else: an answer that quotes it goes on without it, events apart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response

from retcon.errors import MissingExtraError
from retcon.server.refusals import Refusal
from retcon.server.stream import TYPE, Receive, Send, wait_for_end
from retcon.server.upstream import Upstream
from retcon.serving import error_body, is_loopback

MOST = 8 * 2**20  # bytes of an answer that is not in events
LINE = 2**16  # bytes of a line of events that are held back until it ends
CONNECT = 10.0  # seconds
SENT = ("openai-organization", "openai-project", "openai-beta")  # headers of a client that go to the endpoint
TOLD = ("content-type", "content-encoding", "retry-after", "retry-after-ms", "x-should-retry")  # and that come back
TOLD_BEGINNINGS = ("openai-", "x-ratelimit-")


class Connections:
    """The connections to the endpoint, of one event loop."""

    def __init__(self, upstream: Upstream) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("the chat proxy", "http") from None
        self.upstream, self.httpx = upstream, httpx
        host = httpx.URL(upstream.base).host
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=min(CONNECT, upstream.seconds)),  # the whole has a time-out of its own
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            follow_redirects=False, trust_env=not is_loopback(host),
        )  # fmt: skip

    def ask(self, path: str, client: Mapping[str, str], body: bytes | None, *, passes_key: bool) -> Any:
        """The request to the endpoint; a key of the client's own goes on only where `passes_key` says so."""
        headers = {name: client[name] for name in SENT if name in client}
        headers |= {"accept-encoding": "identity", "user-agent": "retcon", "accept": client.get("accept", "*/*")}
        if body is not None:
            headers["content-type"] = "application/json"
        if self.upstream.key:
            headers["authorization"] = f"Bearer {self.upstream.key}"
        elif passes_key and "authorization" in client:
            headers["authorization"] = client["authorization"]
        method = "GET" if body is None else "POST"
        return self._client.build_request(method, self.upstream.base + path, headers=headers, content=body)

    async def send(self, request: Any) -> Any:
        """The answer, of which the head is there."""
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        """Close them."""
        await self._client.aclose()

    def explain(self, error: Exception) -> Refusal:
        """What went wrong on the way to the endpoint or back, in our words."""
        where = self.upstream.base
        if isinstance(error, (TimeoutError, self.httpx.TimeoutException)):
            return Refusal(504, "upstream_timeout", f"{where}: no complete answer within {self.upstream.seconds:g} s")
        if isinstance(error, self.httpx.ConnectError):
            return Refusal(502, "upstream", f"{where}: no connection")
        return Refusal(502, "upstream", f"{where}: the answer was cut off or is not HTTP")


class Relay(Response):
    """The endpoint's answer to one request, as it comes; a client that hangs up ends it."""

    def __init__(self, connections: Connections, request: Any, headers: Mapping[str, str]) -> None:
        super().__init__()
        self.connections, self.request, self.ours = connections, request, headers
        self._begun = False

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send what comes, until it ends or nobody reads it."""
        gone = asyncio.ensure_future(wait_for_end(receive))
        work = asyncio.ensure_future(self._relay(send))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (gone, work):
                each.cancel()
            await asyncio.wait({gone, work})
        if not work.cancelled():
            self._finish(work)

    def _finish(self, work: asyncio.Future[None]) -> None:
        try:
            work.result()
        except Refusal as no:
            no.headers |= self.ours
            raise

    async def _relay(self, send: Send) -> None:
        try:
            async with asyncio.timeout(self.connections.upstream.seconds):
                response = await self.connections.send(self.request)
                try:
                    await self._pass_on(response, send)
                finally:
                    await response.aclose()
        except (TimeoutError, self.connections.httpx.HTTPError, self.connections.httpx.StreamError) as error:
            no = self.connections.explain(error)
            if not self._begun:
                raise no from None
            event = b"\ndata: " + error_body(no.code, no.message) + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": False})

    async def _pass_on(self, response: Any, send: Send) -> None:
        if response.status_code == 200 and response.headers.get("content-type", "").startswith(TYPE):
            await self._begin(response, send, {"x-accel-buffering": "no"})
            parts = response.aiter_raw()
            async for part in parts if "content-encoding" in response.headers else whole_lines(parts):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        body = await self._read(response)
        await self._begin(response, send, {"content-length": str(len(body))})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _begin(self, response: Any, send: Send, more: Mapping[str, str]) -> None:
        told = [(name, value) for name, value in response.headers.items() if _is_told(name)]
        if "x-request-id" in response.headers:
            told.append(("x-upstream-request-id", response.headers["x-request-id"]))
        pairs = [*told, *self.ours.items(), *more.items()]
        head = [(name.encode(), self._hide_key(value.encode("latin-1", "replace"))) for name, value in pairs]
        self._begun = True
        await send({"type": "http.response.start", "status": response.status_code, "headers": head})

    async def _read(self, response: Any) -> bytes:
        """All of an answer that is not in events, if it is one."""
        where, said = self.connections.upstream.base, bytearray()
        async for part in response.aiter_raw():
            said += part
            if len(said) > MOST:
                raise Refusal(502, "upstream", f"{where}: the answer is larger than {MOST:,} bytes")
        if 300 <= response.status_code < 400:
            raise Refusal(502, "upstream", f"{where}: it sends us elsewhere, give the final base URL")
        plain = response.status_code < 400 and "content-encoding" not in response.headers
        if plain and not _is_json(bytes(said)):
            raise Refusal(502, "upstream", f"{where}: the answer is not JSON ({len(said):,} bytes)")
        return self._hide_key(bytes(said))

    def _hide_key(self, said: bytes) -> bytes:
        key = self.connections.upstream.key
        return said.replace(key.encode(), b"[key]") if key else said


async def whole_lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts as they come, each up to the end of its last line: nobody can read half a line, nor take it back."""
    rest = b""
    async for part in parts:
        whole = rest + part
        cut = whole.rfind(b"\n") + 1
        cut = len(whole) if len(whole) - cut > LINE else cut
        rest = whole[cut:]
        if cut:
            yield whole[:cut]
    if rest:
        yield rest


def _is_told(name: str) -> bool:
    return name in TOLD or name.startswith(TOLD_BEGINNINGS)


def _is_json(said: bytes) -> bool:
    try:
        json.loads(said)
    except (ValueError, RecursionError):
        return False
    return True
