"""A small SQLite file of the server's own, beside the store, which only its owner may read or write."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from retcon.errors import BusyError, StoreError

PATIENCE = 10.0  # seconds to wait for another process that writes


class Private:
    """The file, opened at first use by one connection that all threads share, one at a time."""

    def __init__(self, path: str | os.PathLike[str], schema: str, *, patience: float = PATIENCE) -> None:
        self.path, self._schema, self._patience = os.fspath(path), schema, patience
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @property
    def exists(self) -> bool:
        """Whether there is anything to read."""
        return self._connection is not None or self.path == ":memory:" or os.path.exists(self.path)

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this block alone; the file is made where there is none."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _open(self.path, self._schema, self._patience)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                if getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY":
                    raise BusyError(f"{self.path}: another process keeps it locked; try again") from error
                raise StoreError(f"{self.path}: cannot be read or written ({error})") from error

    def close(self) -> None:
        """Close the file; it is opened again if it is needed."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _open(path: str, schema: str, patience: float) -> sqlite3.Connection:
    if path != ":memory:":
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(path, 0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=patience, check_same_thread=False)
    try:
        for statement in schema.split(";"):
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection
