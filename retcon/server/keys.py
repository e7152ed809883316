"""Bearer keys: 256 random bits each, kept only as a keyed hash, each bound to a scope or good for everything.

A key reads `rk-ID-SECRET`. The id finds its row and is no secret; the secret is compared in constant time with what is
kept, a BLAKE2b hash under a salt of the key's own. A secret of 256 bits cannot be guessed at any speed of hashing.

Keys are in a small file beside the store, or in tables of a store that machines share. Whatever is wrong with them
closes the server: only where there never was one are there no keys.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from retcon import validate
from retcon.errors import InputError, StoreError
from retcon.grant import IDS, Grant, find_crossings
from retcon.note import Scope
from retcon.server.private_file import tables_in
from retcon.store.database import Database
from retcon.store.service import ServiceTables

LONGEST = 128  # characters of a key that are looked at
PATIENCE = 0.5  # seconds to wait for another process: the server looks here before it does anything else
# WAL: who writes holds up no reader; put back at each commit, so that a copy of the file alone has every key
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA wal_autocheckpoint = 1;
CREATE TABLE IF NOT EXISTS key (
  id TEXT PRIMARY KEY, name TEXT NOT NULL,
  salt BLOB NOT NULL, hash BLOB NOT NULL,
  user_id TEXT, agent_id TEXT, run_id TEXT, admin INTEGER NOT NULL,
  created_at TEXT NOT NULL, revoked_at TEXT
) STRICT
"""
_NO_KEY = "a file of keys without a key in it; 'retcon keys add' makes one, and without the file there are no keys"
_LOST = "keys were made here, and none is left: 'retcon keys add' makes one, and none opens the server"
_ALL = ("keys",)  # the lock of who makes or revokes one
_INSERT = (
    "INSERT INTO key (id, name, salt, hash, user_id, agent_id, run_id, admin, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NO_SALT, _NO_HASH = bytes(16), bytes(32)


@dataclass(frozen=True, slots=True)
class Entry:
    """One key as it may be shown."""

    id: str
    name: str
    scope: Scope
    admin: bool
    created_at: str
    revoked_at: str | None

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain JSON values."""
        bound = {name: value for name in IDS if (value := getattr(self.scope, name)) is not None}
        rest = {"admin": self.admin, "created_at": self.created_at, "revoked_at": self.revoked_at}
        return {"id": self.id, "name": self.name, **bound, **rest}


def utc_now() -> datetime:
    """When a key is made or revoked, unless another clock is given."""
    return datetime.now(UTC)


class Keys:
    """Keys in a store's tables, or in one small SQLite file, which only its owner may read.

    They are made with the first key; changes count at once, in tables that machines share within a second.
    """

    def __init__(self, place: str | os.PathLike[str] | ServiceTables, *, now: Callable[[], datetime] = utc_now) -> None:
        self.remote = not isinstance(place, (str, os.PathLike))
        self.now, self._tables = now, tables_in(place, _SCHEMA, patience=PATIENCE)
        self._seen = False  # whether there were keys at an earlier look: then nothing opens the server again

    def add(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        admin: bool = False,
        name: str = "",
    ) -> tuple[str, Entry]:
        """The new key, which is shown this once, and its entry.

        A scope that crosses the one of another key is refused: each could write what the other reads.
        """
        scope = validate.scope(user_id, agent_id, run_id)
        if admin == (scope != Scope()):
            raise InputError("bind the key with a user_id, agent_id or run_id, or make it an admin key: one of the two")
        label = validate.name("name", name) if name else ""
        key_id, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_bytes(16)
        row = (
            key_id, label, salt, _hash(secret, salt), scope.user_id, scope.agent_id, scope.run_id, int(admin),
            self._stamp(),
        )  # fmt: skip
        with self._tables.alone(_ALL) as connection:
            _refuse_crossing([(scope, "this key"), *((each, f"key {held}") for each, held in _active(connection))])
            connection.execute(_INSERT, row)
        return f"rk-{key_id}-{secret}", Entry(key_id, label or "", scope, admin, row[-1], None)

    def check(self) -> None:
        """Nothing, or an error where two keys cross, which an older retcon let happen."""
        if self._tables.exists:
            with self._read() as connection:
                _refuse_crossing([(each, f"key {held}") for each, held in _active(connection)])

    def entries(self) -> list[Entry]:
        """Every key ever made, revoked ones too, oldest first."""
        rows = self._rows(
            "SELECT id, name, user_id, agent_id, run_id, admin, created_at, revoked_at FROM key ORDER BY rowid"
        )
        return [Entry(row[0], row[1], Scope(*row[2:5]), bool(row[5]), row[6], row[7]) for row in rows]

    def revoke(self, key_id: str) -> Entry:
        """The key, which no longer opens anything."""
        validate.note_id(key_id)
        update = "UPDATE key SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?"
        if self._tables.exists:
            with self._tables.alone(_ALL) as connection:
                connection.execute(update, (self._stamp(), key_id))
        found = [entry for entry in self.entries() if entry.id == key_id]
        if not found:
            raise InputError(f"no key has the id {key_id[:40]!r}: 'retcon keys list' shows them")
        return found[0]

    def exist(self) -> bool:
        """Whether a key was ever made: from then on the server is closed to whoever has none.

        A file without a key is an error, not an open door: it was cut off, or is none of ours.
        """
        if not self._seen and self._tables.exists:
            self._seen = bool(self._rows("SELECT 1 FROM key LIMIT 1"))
            if not self._seen and self._had_keys():
                raise StoreError(f"{self._tables.path}: {_LOST if self.remote else _NO_KEY}")
        return self._seen

    def _had_keys(self) -> bool:
        """Whether it is strange that there is none."""
        if self.remote:
            return bool(self._rows("SELECT 1 FROM service WHERE closed"))
        return self._tables.path != ":memory:"

    def grant(self, key: str) -> Grant | None:
        """What the key opens; None for one that is wrong or revoked."""
        query = "SELECT salt, hash, user_id, agent_id, run_id, admin FROM key WHERE id = ? AND revoked_at IS NULL"
        return grant_of(key, lambda key_id: (self._rows(query, key_id) or [None])[0])

    def changes(self, since: int) -> list[Any]:
        """Keys of tables that were made or revoked since a change: its number, id, whether it counts, what it opens."""
        query = "SELECT change, id, revoked_at IS NULL, salt, hash, user_id, agent_id, run_id, admin FROM key"
        return self._rows(f"{query} WHERE change > ? ORDER BY change", since)

    def close(self) -> None:
        """Close the file, or the connections."""
        self._tables.close()

    def _rows(self, query: str, *values: str | int) -> list[Any]:
        """What the query finds; nothing where no key was ever made, and then no file is made either."""
        if not self._tables.exists and not self._seen:
            return []
        with self._read() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _read(self) -> Iterator[Database]:
        """The tables, which are not made here."""
        try:
            with self._tables.use(make=self._tables.path == ":memory:") as connection:
                yield connection
        except StoreError as error:
            if "no such table" not in str(error.__cause__):
                raise
            raise StoreError(f"{self._tables.path}: {_NO_KEY}") from error

    def _stamp(self) -> str:
        return self.now().isoformat(timespec="seconds")


def grant_of(key: str, find: Callable[[str], Any]) -> Grant | None:
    """What the key opens, where `find` gives what is kept of a key's id; None for one that is wrong or revoked."""
    _, key_id, secret = [*key[:LONGEST].split("-", 2), "", ""][:3]
    row = find(_plain(key_id))
    salt, kept = (_NO_SALT, _NO_HASH) if row is None else row[:2]
    same = hmac.compare_digest(_hash(secret, salt), kept)
    if row is None or not same or not key.startswith("rk-") or len(key) > LONGEST:
        return None
    return Grant(key_id, Scope(*row[2:5]), bool(row[5]))


def _active(connection: Database) -> list[tuple[Scope, str]]:
    """The scope and the id of every key that is bound and not revoked."""
    query = "SELECT id, user_id, agent_id, run_id FROM key WHERE revoked_at IS NULL AND admin = 0 ORDER BY rowid"
    return [(Scope(*row[1:]), str(row[0])) for row in connection.execute(query)]


def _refuse_crossing(held: list[tuple[Scope, str]]) -> None:
    found = next(find_crossings(held), None)
    if found is not None:
        first, second = (f"{who} ({_describe(scope)})" for who in found for scope, name in held if name == who)
        raise InputError(
            f"{first} and {second} share notes and neither has all of the other's, so each could write what the other "
            "reads: bind one further, or 'retcon keys revoke' one"
        )


def _describe(scope: Scope) -> str:
    return ", ".join(f"{name} {value}" for name in IDS if (value := getattr(scope, name)) is not None)


def _hash(secret: str, salt: bytes) -> bytes:
    return hashlib.blake2b(_plain(secret).encode(), key=salt, digest_size=32, person=b"retcon key").digest()


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
