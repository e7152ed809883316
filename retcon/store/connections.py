"""Connections to the store's file: one per thread, opened when first needed, and none across a fork.

SQLite's locks belong to a process. A child that inherits a connection believes in locks it does not hold, even on a new
connection to the same file, and then loses what it writes. So idle connections are closed before a fork, and both sides
open their own when they next need one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retcon.errors import BusyError, RetconError, StoreError
from retcon.store.migrations import STEPS, migrate, version

T = TypeVar("T")

PATIENCE = 5.0  # seconds that a fork waits for another thread's transaction


@dataclass
class _Line:
    """A connection with the lock that its user holds."""

    connection: sqlite3.Connection | None = None
    lock: Any = field(default_factory=threading.RLock)
    users: int = 0  # nested uses by the thread that holds the lock

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Connections:
    """Connections to one file; `:memory:` has one that all threads share, one at a time."""

    def __init__(self, path: str, timeout: float) -> None:
        self.path, self.timeout = path, timeout
        self.in_memory = path == ":memory:"
        self._lines: dict[threading.Thread | None, _Line] = {}
        self._lock = threading.Lock()
        self._closed = False
        _EVERY.add(self)

    @contextlib.contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; SQLite's errors come out as ours."""
        line = self._mine()
        with translated(self.path), line.lock:
            if self._closed:
                raise StoreError("the memory is closed")
            if line.connection is None:
                line.connection = connect(self.path, self.timeout)
            line.users += 1
            try:
                yield line.connection
            finally:
                line.users -= 1

    @contextlib.contextmanager
    def another(self) -> Iterator[sqlite3.Connection]:
        """A connection for this use alone, which any thread may go on with."""
        if self._closed:
            raise StoreError("the memory is closed")
        with translated(self.path), contextlib.closing(connect(self.path, self.timeout)) as connection:
            yield connection

    def close(self) -> None:
        """Close every connection, once its thread is done with what it does; none is opened after."""
        self._closed = True
        with self._lock:
            lines, self._lines = self._lines, {}
        for line in lines.values():
            with line.lock:
                line.hang_up()

    def _mine(self) -> _Line:
        owner = None if self.in_memory else threading.current_thread()
        with self._lock:
            line = self._lines.get(owner)
            if line is None:
                for thread in [thread for thread in self._lines if thread and not thread.is_alive()]:
                    self._lines.pop(thread).hang_up()
                line = self._lines[owner] = _Line()
            return line

    def before_fork(self) -> None:
        """Close the idle connections, and let no thread start to use one until the fork is done."""
        self._lock.acquire()
        for line in [] if self.in_memory else self._lines.values():
            if line.lock.acquire(timeout=PATIENCE):
                if not line.users:
                    line.hang_up()
                line.lock.release()

    def after_fork(self) -> None:
        """Go on in the parent."""
        self._lock.release()

    def begin_child(self) -> None:
        """Go on in the child: other threads are gone, their locks too, and what they had open is never touched."""
        self._lock = threading.Lock()
        _PARENTS.append(self._lines)
        self._lines = {owner: _Line(line.connection) for owner, line in self._lines.items() if owner is None}


_EVERY: weakref.WeakSet[Connections] = weakref.WeakSet()
_PARENTS: list[object] = []  # connections that a forked child inherited in use: closing them would harm the parent


def _each(act: Callable[[Connections], None]) -> Callable[[], None]:
    def act_on_each() -> None:
        for connections in list(_EVERY):
            act(connections)

    return act_on_each


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Connections.before_fork),
        after_in_parent=_each(Connections.after_fork),
        after_in_child=_each(Connections.begin_child),
    )


def connect(path: str, timeout: float) -> sqlite3.Connection:
    """A connection that is set up, to a file that has the newest schema. A file that is not ours is left as it is."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA mmap_size = 1073741824")
        found = _patiently(lambda: version(connection), timeout)
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), timeout)
        connection.execute("PRAGMA synchronous = NORMAL")
        if found < len(STEPS):  # otherwise no write lock is asked for, so that a long write elsewhere delays nobody
            migrate(connection)
    except UnicodeDecodeError as error:  # SQLite's message quotes a damaged schema
        connection.close()
        raise sqlite3.DatabaseError("malformed database schema") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _patiently(act: Callable[[], T], timeout: float) -> T:
    """What `act` returns. At the first open of a file by several processes SQLite answers "locked" without waiting."""
    until = time.monotonic() + timeout
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """SQLite's errors as ours, in one line with the path."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise BusyError(f"{path}: another process kept the store locked; try again") from error
        raise StoreError(f"{path}: {_hint(path, str(error))}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {_hint(path, str(error))}") from error


@contextlib.contextmanager
def intact(path: str) -> Iterator[None]:
    """Entries of the index that lead nowhere, as one of our errors."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, RetconError):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        message = f"{path}: the index cannot be read ({what}); if the file is damaged, export it and load a new one"
        raise StoreError(message) from error


def _hint(path: str, message: str) -> str:
    folder = os.path.dirname(path) or "."
    if "unable to open" in message or "readonly" in message:
        if os.path.isdir(path):  # False, not an error, where we may not even look
            return "this is a folder: name a file in it"
        if not os.path.isdir(folder):
            return f"the folder {folder!r} does not exist, or is closed to this user"
        return f"{message}: retcon must be able to write the file and its folder"
    if "not a database" in message or "malformed" in message:
        return f"not a readable SQLite file ({message}); the file was left as it is"
    return message
