"""Where the work is done: a few threads for reads, one for writes, some more for what may wait for a model.

SQLite takes one write at a time, so one thread writes and nobody polls for the lock. Each thread has a connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from retcon.server.faults import Refused
from retcon.server.limits import Limits

T = TypeVar("T")


class Workers:
    """Runs calls on threads, within a deadline on the event loop's clock. Threads start when they are first needed."""

    def __init__(self, limits: Limits) -> None:
        self.seconds = limits.seconds
        self._sizes = {"read": limits.threads, "write": 1, "model": limits.model_threads}
        self._pools: dict[str, ThreadPoolExecutor] = {}

    async def read(self, call: Callable[[], T], deadline: float, *, model: bool = False) -> T:
        """What the call returns. One that takes too long is no longer waited for."""
        return await self._run("model" if model else "read", call, deadline, finish=False)

    async def write(self, call: Callable[[], T], deadline: float) -> T:
        """What the call returns. It is dropped if it cannot begin in time; once begun it is waited for to the end.

        So the caller always learns whether it was done: a write ends by itself, because the store gives up on a lock.
        """
        return await self._run("write", call, deadline, finish=True)

    def in_time(self, deadline: float) -> Callable[[object], None]:
        """A check for a call of several steps: an error once the deadline has passed and nobody waits for it."""
        end = time.monotonic() + deadline - asyncio.get_running_loop().time()

        def check(_: object) -> None:
            if time.monotonic() >= end:
                raise late(self.seconds)

        return check

    async def _run(self, kind: str, call: Callable[[], T], deadline: float, *, finish: bool) -> T:
        loop = asyncio.get_running_loop()
        if kind not in self._pools:
            self._pools[kind] = ThreadPoolExecutor(self._sizes[kind], thread_name_prefix=f"retcon-{kind}")
        begun = self._pools[kind].submit(contextvars.copy_context().run, call)
        waiting = asyncio.wrap_future(begun)
        await asyncio.wait({waiting}, timeout=max(0.0, deadline - loop.time()))
        if not waiting.done() and (begun.cancel() or not finish):
            waiting.add_done_callback(_forget)
            raise late(self.seconds)
        return await waiting

    def close(self) -> None:
        """Finish what was accepted, and end the threads."""
        while self._pools:
            self._pools.popitem()[1].shutdown(wait=True)


def late(seconds: float, **headers: str) -> Refused:
    """The answer to a request that took too long."""
    message = f"not done within {seconds:g} seconds; nothing was written"
    return Refused(504, "timeout", message, Retry_After="1", **headers)


def _forget(waiting: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not waiting.cancelled():
        waiting.exception()
