"""Who asks too often, counted for all servers on a store together.

Each key has one bucket that all of them take from. A server takes a few requests at a time, so that most requests cost
no write; what it has not used after a second is lost. So the keys' requests at all servers together are never more than
what went into the bucket. Where the bucket cannot be reached, a server counts for itself until it can.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from retcon.errors import StoreError
from retcon.server import logs
from retcon.server.limits import Buckets
from retcon.server.private_file import PrivateFile
from retcon.store.service import SharedBuckets, Taken

KEPT = 1.0  # seconds for which a server may use what it took
SHARE = 10  # a server takes at most this part of what comes in a second, or of a full bucket
PATIENCE = 0.1  # seconds to wait for another process on this machine, which needs a thousandth of that
ALONE = 5.0  # seconds for which a server counts for itself after the bucket could not be reached
# What it holds is worth nothing after a crash: it need not be on disk
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS bucket (
  key TEXT PRIMARY KEY, left_over REAL NOT NULL, at REAL NOT NULL
) STRICT, WITHOUT ROWID
"""


@dataclass(slots=True)
class Portion:
    """What a server has taken for a key."""

    left: int = 0
    until: float = 0.0
    debt: int = 0
    refused_until: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Rates:
    """Requests of each key, so many a second on average and so many at once."""

    def __init__(
        self, rate: float, burst: int, shared: SharedBuckets | None, *, remote: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`shared` are buckets of several servers; those that are `remote` are asked on a thread."""
        self.rate, self.burst, self._shared, self._remote, self._clock = rate, burst, shared, remote, clock
        self.portion = max(1, int(min(rate, burst) / SHARE))
        self._own = Buckets(rate, burst)
        self._alone_until = -math.inf
        self._portions: dict[str, Portion] = {}

    async def wait(self, key: str) -> float:
        """Seconds until the key may ask again; 0 means now, and counts as one request."""
        now = self._clock()
        if not self.rate or self._shared is None or now < self._alone_until:
            return self._own.wait(key, now)
        portion = self._portions.setdefault(key, Portion())
        if portion.left and now < portion.until:
            portion.left -= 1
            return 0.0
        async with portion.turn:
            return await self._take(key, portion)

    def charge(self, key: str, more: int) -> None:
        """Count a request for so many more; the key then waits longer for its next one."""
        self._own.charge(key, more)
        portion = self._portions.get(key)
        if more and portion is not None:
            paid = min(more, portion.left)
            portion.left, portion.debt = portion.left - paid, portion.debt + more - paid

    async def _take(self, key: str, portion: Portion) -> float:
        now = self._clock()
        if portion.left and now < portion.until:  # another request of the key has fetched some
            portion.left -= 1
            return 0.0
        if now < portion.refused_until and not portion.debt:
            return portion.refused_until - now
        debt, portion.debt = portion.debt, 0
        try:
            taken = await self._ask(key, debt)
        except StoreError as error:
            logs.event(logging.WARNING, "rates", **logs.describe(error))
            self._alone_until = self._clock() + ALONE
            return self._own.wait(key, now)
        portion.left, portion.until, portion.refused_until = max(0, taken.requests - 1), now + KEPT, now + taken.wait
        return taken.wait

    async def _ask(self, key: str, debt: int) -> Taken:
        assert self._shared is not None
        if self._remote:
            return await asyncio.to_thread(self._ask_now, key, debt)
        return self._ask_now(key, debt)

    def _ask_now(self, key: str, debt: int) -> Taken:
        assert self._shared is not None
        return self._shared.take(key, rate=self.rate, burst=self.burst, debt=debt, most=self.portion)


class BucketFile:
    """The buckets of all servers on one machine, in a small file beside the store."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = PrivateFile(path, _SCHEMA, patience=PATIENCE), clock

    def take(self, key: str, *, rate: float, burst: float, debt: float, most: int) -> Taken:
        """Up to so many requests of the key, after a debt is paid.

        The clock counts from the machine's start: one that went back refills nothing, and counts from there.
        """
        with self._file.alone() as connection:
            now = self._clock()
            found = connection.execute("SELECT left_over, at FROM bucket WHERE key = ?", (key,)).fetchone()
            left, at = (float(burst), now) if found is None else (found[0], min(found[1], now))
            left = min(float(burst), left + (now - at) * rate) - debt
            taken = min(most, max(0, math.floor(left)))
            connection.execute("INSERT OR REPLACE INTO bucket VALUES (?, ?, ?)", (key, left - taken, now))
        return Taken(taken, 0.0 if taken else (1 - left) / rate)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
