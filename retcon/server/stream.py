"""Server-sent events: what a verb tells while it works, sent on as it comes.

The verb runs on a thread as every other does, within the same deadline, and holds its place until it has ended. What
goes wrong before the first event is answered with its status, as everywhere; after that it is an event, `error`. A
client that goes away stops the verb, and the model it waits for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import Response

from retcon.deadline import Stop
from retcon.errors import RetconError
from retcon.server.refusals import Refusal, refusal_of
from retcon.serving import error_body

TYPE = "text/event-stream"
HEADERS = [(b"content-type", TYPE.encode()), (b"x-accel-buffering", b"no")]  # no proxy may gather the events first

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, and plain JSON values."""

    name: str
    data: dict[str, Any]

    def encode(self) -> bytes:
        """The event as it is sent: one line of data, in ASCII, so that nothing in it can end the event early."""
        return f"event: {self.name}\ndata: {json.dumps(self.data, allow_nan=False)}\n\n".encode()


def is_wanted(request: Request) -> bool:
    """Whether the caller wants events: of the two forms of an answer, the first that its Accept header names."""
    named = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return next((each for each in named if each in (TYPE, "application/json")), None) == TYPE


class Channel:
    """From a thread that tells events to the event loop that sends them. There are as many as looks, and one."""

    def __init__(self) -> None:
        self.stop = Stop()
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Event | None] = asyncio.Queue()

    def fill(self, events: Callable[[], Iterable[Event]]) -> Event:
        """The last of the events, once all of them are on their way; for the thread."""
        last = None
        for last in events():
            self._loop.call_soon_threadsafe(self._waiting.put_nowait, last)
        assert last is not None
        return last

    def end(self, _: object = None) -> None:
        """Let the reader know that nothing more will come."""
        self._waiting.put_nowait(None)

    async def get(self) -> Event | None:
        """The next event; None once there will be no more."""
        return await self._waiting.get()


class EventStream(Response):
    """An answer in events, until the work that tells them has ended or the client has gone."""

    def __init__(self, channel: Channel, work: asyncio.Future[Any], refused: Callable[[str], None]) -> None:
        super().__init__()
        self.channel, self.work, self.refused = channel, work, refused

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send what comes; the place of this request is held until its thread is free."""
        gone = asyncio.ensure_future(wait_for_end(receive))
        for ending in (gone, self.work):
            ending.add_done_callback(self.channel.end)
        try:
            await self._send_all(gone, send)
        finally:
            gone.cancel()
            self.channel.stop.set()
            await asyncio.wait({self.work})
            with suppress(Exception, asyncio.CancelledError):
                self.work.result()

    async def _send_all(self, gone: asyncio.Future[None], send: Send) -> None:
        event = await self.channel.get()
        if event is None and not gone.done():
            self.work.result()  # raises: there is no answer without an event
        if event is not None:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        while event is not None and not gone.done():
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
            event = await self.channel.get()
        if not gone.done():
            await send({"type": "http.response.body", "body": self._last_words(), "more_body": False})

    def _last_words(self) -> bytes:
        """Nothing, or the error that ended the work after its first event."""
        try:
            self.work.result()
        except (Refusal, RetconError) as error:
            no = error if isinstance(error, Refusal) else refusal_of(error)
            self.refused(no.code)
            return b"event: error\ndata: " + error_body(no.code, no.message) + b"\n\n"
        return b""


async def wait_for_end(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
