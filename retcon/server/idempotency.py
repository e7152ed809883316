"""The same write with the same Idempotency-Key is done once, and answered the same each time.

What is kept of a request holds nobody's words: keyed hashes of its key and of what was asked, the ids that were given,
when. The text of the answer comes from the request that is repeated, so a deleted note leaves nothing here.

The ids of new notes follow from the key and the request. If the server is killed between a write and the memory of it,
the repeated request finds its notes there already.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from retcon.errors import StoreError
from retcon.server import logs
from retcon.server.private_file import tables_in
from retcon.server.refusals import Refusal
from retcon.store.database import Database
from retcon.store.service import Lock, ServiceTables

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
class KeyedWrite:
    """One write that is asked for under an Idempotency-Key."""

    owner: str  # id of the caller's key
    key: str  # a keyed hash of the Idempotency-Key
    fingerprint: bytes  # a keyed hash of what is asked

    def note_id(self, number: int) -> str:
        """The id of the write's note of that number, the same whenever it is asked for."""
        return hashlib.blake2b(self.fingerprint, digest_size=16, salt=number.to_bytes(16, "big")).hexdigest()


class Idempotency:
    """Which writes were done: in tables of the store, or in one small SQLite file that only its owner may read."""

    def __init__(self, place: str | os.PathLike[str] | ServiceTables, *, now: Callable[[], float] = time.time) -> None:
        self.now, self._tables = now, tables_in(place, _SCHEMA)
        self._since = 0
        self._sweep()  # a file that cannot be used is told at once
        with self._tables.alone(("secret",)) as connection:
            self.secret = _secret(connection)  # known to servers on these tables alone

    def identify(self, owner: str, key: str, asked: Any) -> KeyedWrite:
        """The write as it is remembered."""
        whole = json.dumps([owner, key, asked], sort_keys=True).encode()
        return KeyedWrite(owner, self._hash(json.dumps([owner, key]).encode()).hex(), self._hash(whole))

    def _hash(self, what: bytes) -> bytes:
        return hashlib.blake2b(what, key=self.secret, digest_size=32).digest()

    def do_once(self, write: KeyedWrite, do: Callable[[], Any], *locks: Lock) -> tuple[Any, bool]:
        """What is kept of the write, and whether it was done before; if not, it is done now, in its turn.

        Servers that share the tables take turns where they have a lock in common. An error where the key stood for
        another write.
        """
        done: list[Any] = []
        try:
            with self._tables.alone(("answer", write.owner, write.key), *locks) as connection:
                kept = _find(connection, write)
                if kept is not None:
                    return kept, True
                done.append(do())
                row = (write.owner, write.key, write.fingerprint, json.dumps(done[0]), self.now())
                connection.execute("INSERT INTO answer VALUES (?, ?, ?, ?, ?)", row)
        except StoreError as error:
            if not done:
                raise
            # it is written; a repeated request finds its notes by their ids
            logs.event(logging.WARNING, "not remembered", error=type(error.__cause__ or error).__name__)
        self._since += 1
        if self._since >= SWEEP:
            with suppress(StoreError):  # the write is done, whatever becomes of old answers
                self._sweep()
        return done[0], False

    def in_turn(self, do: Callable[[], Any], *locks: Lock) -> Any:
        """What comes of it, while no other server does something with one of these locks."""
        done: list[Any] = []
        try:
            with self._tables.alone(*locks):
                done.append(do())
        except StoreError:
            if not done:  # or it is done, whatever became of the turn
                raise
        return done[0]

    def was_done(self, write: KeyedWrite) -> bool:
        """Whether the write was done, by any server on these tables."""
        with self._tables.use() as connection:
            return _find(connection, write) is not None

    def close(self) -> None:
        """Close the file, or the connections."""
        self._tables.close()

    def _sweep(self) -> None:
        self._since = 0
        with self._tables.use() as connection:
            connection.execute("DELETE FROM answer WHERE at < ?", (self.now() - KEEP,))


def _secret(connection: Database) -> bytes:
    """The tables' own secret, made at first use."""
    fresh = secrets.token_bytes(32)
    connection.execute("INSERT INTO secret (value) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)", (fresh,))
    (found,) = connection.execute("SELECT value FROM secret").fetchone()
    return bytes(found)


def _find(connection: Database, write: KeyedWrite) -> Any | None:
    query = "SELECT print, kept FROM answer WHERE owner = ? AND key = ?"
    row = connection.execute(query, (write.owner, write.key)).fetchone()
    if row is None:
        return None
    if not secrets.compare_digest(bytes(row[0]), write.fingerprint):
        raise Refusal(422, "idempotency", "this Idempotency-Key was used for another request: take a new one")
    return json.loads(row[1])
