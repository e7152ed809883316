"""The embedded store: one SQLite file in WAL mode that holds notes, their index, vectors and records.

Every write is one `BEGIN IMMEDIATE` transaction, so that several processes and threads take turns and a kill leaves
either all of it or nothing. Each thread has a connection of its own; `:memory:` has one that all threads share.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from retcon.errors import InputError
from retcon.language import Language
from retcon.note import Note
from retcon.store import deleting, purging, seal, vectors
from retcon.store.connections import TIMEOUT, Connections, Sync, check_schema, translate_errors
from retcon.store.database import Database, translate_damage
from retcon.store.indexes import Indexes
from retcon.store.matrices import Matrices
from retcon.store.sql import NOTHING, SqlStore, Touches

if TYPE_CHECKING:
    from retcon.store.checking import Check

SYNCS = ("full", "normal")


class SqliteStore(SqlStore):
    """Notes in one SQLite file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = TIMEOUT,
        sync: Sync = "full",
        language: Language | None = None,
    ) -> None:
        """Opens the file, or makes it. With `sync` "normal" what was written last may be lost with the power.

        `language` is that of a file which holds no note yet; on another it must be the file's own.
        """
        if sync not in SYNCS:
            raise InputError(f"sync is 'full' or 'normal', not {str(sync)[:40]!r}")
        self.path = os.fspath(path)
        self.timeout = timeout
        self.in_memory = self.path == ":memory:"
        self.file = None if self.in_memory else self.path
        self.beside = self.path
        self._connections = Connections(self.path, timeout, sync)
        self._matrices, self._indexes = Matrices(), Indexes(self.path)
        try:
            with self._connections.use() as connection:  # a file that cannot be used is told at once
                check_schema(connection, self.path)
            if language is not None:
                self._fix_language(language)
        except BaseException:
            self._connections.close()
            raise

    def purge(self, *, at: str = "", now: str | None = None) -> bool:
        """Whether deleted words are gone from the files, which are rewritten for it; `at` is noted as the time of it.

        Notes that have expired by `now` are deleted first. False while another connection holds the log back; the file
        remembers that a purge is due.
        """
        if now is not None:
            self._delete_expired(now)
        if self.in_memory:
            return True
        with self._connections.use() as connection, translate_damage(self.path):
            self._connections.check_place()
            purged = purging.purge(connection, at=at, timeout=self.timeout)
        if purged:
            self._indexes.purge(self._read, self._writing)
        return purged

    def stats(self) -> dict[str, int | str]:
        """Facts about the file: schema, language, counts, sizes in bytes, and "ok" or what the quick check found."""
        counted = ("note", "scope", "record", "vector")
        files = {"bytes": self.path, "wal_bytes": self.path + "-wal"}
        with self._read() as connection:
            facts: dict[str, int | str] = {"schema": connection.execute("PRAGMA user_version").fetchone()[0]}
            facts |= {"language": seal.language_of(connection).name}
            facts |= {f"{table}s": deleting.count(connection, table) for table in counted}
            facts |= {"unembedded": vectors.count_unembedded(connection), "unpurged": seal.count_unpurged(connection)}
            facts |= {name: os.path.getsize(path) if os.path.exists(path) else 0 for name, path in files.items()}
            return facts | {"check": str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])}

    # -- the file ----------------------------------------------------------------------------------------------------

    def check(self) -> Check:
        """Whether the file holds what was written to it, and what to do where it does not."""
        from retcon.store.checking import check  # loaded where one is asked for

        with self._connections.use() as connection:
            return check(connection, self.path)

    # -- connections -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection, once its thread is done with what it does; the store cannot be used after."""
        self._matrices.clear()
        self._indexes.clear()
        self._connections.close()

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._connections.use() as connection, translate_damage(self.path):
            if connection.in_transaction:  # nested in a snapshot of the same thread
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    @contextlib.contextmanager
    def _writing(self, touches: Touches = NOTHING) -> Iterator[sqlite3.Connection]:
        with self._connections.write() as connection:
            yield connection

    @contextlib.contextmanager
    def _adding(self, batches: Iterator[list[Note]]) -> Iterator[tuple[Database, Iterator[list[Note]]]]:
        with self._connections.write() as connection:
            yield connection, batches

    def _translating(self) -> contextlib.AbstractContextManager[None]:
        return translate_errors(self.path)

    def _rows(self, query: str, values: Sequence[object]) -> Iterator[Sequence[Any]]:
        """Rows one by one, over a connection of their own: a listing half read stands in nobody's way."""
        if self.in_memory:
            with self._read() as connection:
                rows = connection.execute(query, values).fetchall()
            yield from rows
        else:
            with self._connections.another() as connection:
                yield from connection.execute(query, values)
