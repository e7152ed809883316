"""Keys of a store on another machine, held in memory: a request costs no question to it.

What is held is at most a second old. Past that, a request waits until the changes since then are read, and where they
cannot be read nobody comes in. A key that is not known may be new: for it a tenth of a second is old. All requests that
wait share one question, so that many wrong keys ask no more often than one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from retcon.errors import StoreError
from retcon.grant import Grant
from retcon.server.keys import Keys, grant_of
from retcon.serving import ignore_error

FRESH = 1.0  # seconds for which what was read counts
SOON = 0.1  # the same for a key that is not known: it may be new
WHOLE = 60.0  # seconds after which all keys are read again, for what another program did to them


class KnownKeys:
    """The keys, with the two questions that a server has."""

    def __init__(self, keys: Keys, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` is how long a request may wait for them."""
        self._keys, self._seconds, self._clock = keys, seconds, clock
        self._held: dict[str, Any] = {}  # id -> salt, hash and what it opens
        self._exist = False
        self._change = 0
        self._read_at = self._whole_at = -float("inf")
        self._reading: asyncio.Future[None] | None = None

    async def find(self, key: str) -> Grant | None:
        """What the key opens, by what is held; one that is not known is looked for again."""
        await self.refresh()
        found = self.grant(key)
        if found is None and key:
            await self.refresh(SOON)
            found = self.grant(key)
        return found

    async def refresh(self, fresh: float = FRESH) -> None:
        """Wait until what is held is fresh enough; half-way there it is read already, and nobody waits."""
        age = self._clock() - self._read_at
        if age < fresh / 2:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._read))
            self._reading.add_done_callback(ignore_error)
        if age >= fresh:
            try:
                await asyncio.wait_for(asyncio.shield(self._reading), self._seconds)
            except TimeoutError:
                raise StoreError("the keys could not be read in time") from None

    def exist(self) -> bool:
        """Whether a key was ever made."""
        return self._exist

    def grant(self, key: str) -> Grant | None:
        """What the key opens; None for one that is wrong or revoked."""
        return grant_of(key, self._held.get)

    def _read(self) -> None:
        began = self._clock()
        whole = began - self._whole_at >= WHOLE
        rows = self._keys.changes(0 if whole else self._change)
        held = {} if whole else dict(self._held) if rows else self._held
        for _, key_id, counts, *opens in rows:
            if counts:
                held[key_id] = opens
            else:
                held.pop(key_id, None)
        self._exist = self._exist or bool(held) or self._keys.exist()
        self._held, self._read_at = held, began
        self._change = max([0 if whole else self._change, *(row[0] for row in rows)])
        self._whole_at = began if whole else self._whole_at
