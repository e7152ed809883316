"""A small SQLite file of the server's own, beside the store, which only its owner may read or write."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from retcon.errors import BusyError, StoreError
from retcon.store.service import Lock, ServiceTables

PATIENCE = 10.0  # seconds to wait for another process that writes


class PrivateFile:
    """The file, opened at first use by one connection that all threads share, one at a time."""

    def __init__(self, path: str | os.PathLike[str], schema: str, *, patience: float = PATIENCE) -> None:
        self.path, self._schema, self._patience = os.fspath(path), schema, patience
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._place: tuple[int, int] | None = None  # device and number of the file that is open
        self._whole = False  # whether it has all tables

    @property
    def exists(self) -> bool:
        """Whether there is a file, or anything else that cannot be told from one, under that name."""
        try:
            return self.path == ":memory:" or _place(self.path) is not None
        except OSError:
            return True

    @contextmanager
    def use(self, *, make: bool = True) -> Iterator[sqlite3.Connection]:
        """The connection, for this block alone, to the file that has the name now.

        Where there is none, it is made, or without `make` an error; then an empty one is no file of ours either.
        """
        with self._lock:
            try:
                self._follow()
                if self._connection is None:
                    self._connection = _open(self.path, self._schema if make else "", self._patience, make=make)
                    self._place = None if self.path == ":memory:" else _place(self.path)
                    self._whole = make
                elif make and not self._whole:
                    _prepare(self._connection, self._schema)
                    self._whole = True
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                if getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY":
                    raise BusyError(f"{self.path}: another process keeps it locked; try again") from error
                raise StoreError(f"{self.path}: cannot be read or written ({error})") from error

    @contextmanager
    def alone(self, *_: Lock) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed at the end of the block; nobody else writes meanwhile, whatever is locked."""
        with self.use() as connection, exclusive(connection):
            yield connection
            connection.execute("COMMIT")

    def _follow(self) -> None:
        """Let go of a file that was removed, or that another one took the name of."""
        if self._connection is not None and self.path != ":memory:" and _place(self.path) != self._place:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the file; it is opened again if it is needed."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def tables_in(
    place: str | os.PathLike[str] | ServiceTables, schema: str, *, patience: float = PATIENCE
) -> ServiceTables:
    """Tables in a file of that name; those of a store are themselves."""
    if isinstance(place, (str, os.PathLike)):
        return PrivateFile(place, schema, patience=patience)
    return place


@contextmanager
def exclusive(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that nobody else writes in; what the block has not committed is dropped."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _open(path: str, schema: str, patience: float, *, make: bool) -> sqlite3.Connection:
    if path != ":memory:":
        os.close(os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600))
        os.chmod(path, 0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=patience, check_same_thread=False)
    try:
        _prepare(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, schema: str) -> None:
    for statement in schema.split(";"):
        connection.execute(statement)


def _place(path: str) -> tuple[int, int] | None:
    """What tells the file from any other; None where there is none. A link that leads nowhere is no "none"."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise
        return None
    return found.st_dev, found.st_ino
