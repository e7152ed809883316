"""The same write with the same Idempotency-Key is done once, and answered the same each time.

What is kept of a request holds nobody's words: a keyed hash of what was asked, the ids that were given, when. The text
of the answer comes from the request that is repeated, so a deleted note leaves nothing here.

The ids of new notes follow from the key and the request. If the server is killed between a write and the memory of it,
the repeated request finds its notes there already.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from retcon.errors import StoreError
from retcon.server.faults import Refused
from retcon.server.keys import private

KEEP = 7 * 86_400  # seconds
SWEEP = 1_000  # answers kept between two looks for old ones
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS secret (value BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answer (
  owner TEXT NOT NULL, key TEXT NOT NULL, print BLOB NOT NULL, kept TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answer_at ON answer (at)
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One write that is asked for under an Idempotency-Key."""

    owner: str  # id of the caller's key
    key: str
    print: bytes  # a keyed hash of what is asked

    def id(self, number: int) -> str:
        """The id of the write's note of that number, the same whenever it is asked for."""
        return hashlib.blake2b(self.print, digest_size=16, salt=number.to_bytes(16, "big")).hexdigest()


class Once:
    """Which writes were done, in one small SQLite file that only its owner may read."""

    def __init__(self, path: str | os.PathLike[str], *, now: Callable[[], float] = time.time) -> None:
        self.path, self.now = os.fspath(path), now
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], _Queue] = {}
        self._since = 0
        self._connection: sqlite3.Connection | None = None
        self._secret = b""
        self._sweep()  # a file that cannot be used is told at once

    def turn(self, owner: str, key: str, asked: Any) -> Turn:
        """The write as it is remembered."""
        whole = json.dumps([owner, key, asked], sort_keys=True).encode()
        if not self._secret:
            with self._use() as connection:
                self._secret = _secret(connection)
        return Turn(owner, key, hashlib.blake2b(whole, key=self._secret, digest_size=32).digest())

    def find(self, turn: Turn) -> Any | None:
        """What was kept of the write, where it was done before; an error where the key stood for another one."""
        query = "SELECT print, kept FROM answer WHERE owner = ? AND key = ?"
        with self._use() as connection:
            row = connection.execute(query, (turn.owner, turn.key)).fetchone()
        if row is None:
            return None
        if not secrets.compare_digest(row[0], turn.print):
            raise Refused(422, "idempotency", "this Idempotency-Key was used for another request: take a new one")
        return json.loads(row[1])

    def keep(self, turn: Turn, kept: Any) -> None:
        """Remember that the write was done."""
        row = (turn.owner, turn.key, turn.print, json.dumps(kept), self.now())
        with self._use() as connection:
            connection.execute("INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?, ?)", row)
        self._since += 1
        if self._since >= SWEEP:
            self._sweep()

    @asynccontextmanager
    async def alone(self, owner: str, key: str, deadline: float) -> AsyncIterator[None]:
        """A block that one request at a time may be in, of those with the same key; TimeoutError past the deadline."""
        queue = self._turns.setdefault((owner, key), _Queue(asyncio.Lock()))
        queue.users += 1
        try:
            async with asyncio.timeout_at(deadline):
                await queue.lock.acquire()
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.users -= 1
            if not queue.users:
                self._turns.pop((owner, key), None)

    def close(self) -> None:
        """Close the file; it is opened again if it is needed."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = private(self.path, _SCHEMA)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{self.path}: what was done before cannot be read or written ({error})") from error

    def _sweep(self) -> None:
        self._since = 0
        with self._use() as connection:
            connection.execute("DELETE FROM answer WHERE at < ?", (self.now() - KEEP,))


def _secret(connection: sqlite3.Connection) -> bytes:
    """The file's own secret, made at first use."""
    fresh = secrets.token_bytes(32)
    connection.execute("INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)", (fresh,))
    (found,) = connection.execute("SELECT value FROM secret").fetchone()
    return bytes(found)


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock
    users: int = 0
