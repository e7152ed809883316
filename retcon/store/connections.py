"""Connections to the store's file: one per thread, opened when first needed, and none across a fork.

SQLite's locks belong to a process. A child that inherits a connection believes in locks it does not hold, even on a new
connection to the same file, and then loses what it writes. So idle connections are closed before a fork, and both sides
open their own when they next need one.

A file that is moved, deleted or replaced under an open connection takes what is written next with it. So each
connection knows which file it opened, and a write looks for that file at its path before it counts as done. The log
that is left behind would be read into whatever file takes the place, so it is emptied into the file that it belongs to.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from retcon import deadline
from retcon.errors import BusyError, DeadlineError, StoreError
from retcon.store.database import Damage
from retcon.store.migrations import STEPS, migrate, read_schema, schema, version

T = TypeVar("T")

TIMEOUT = 30.0  # seconds to wait for another process that writes
PATIENCE = 5.0  # seconds that a fork waits for another thread's transaction
PRIVATE = 0o600  # only its owner may read or write a store's files; SQLite gives -wal and -shm the mode of the file
STEPS_BETWEEN_LOOKS = 20_000  # of SQLite's machine, about a millisecond, until the deadline is looked at again

Sync = Literal["full", "normal"]
Place = tuple[tuple[int, int] | None, ...]  # device and inode of the file and of its log


@dataclass
class _LockedConnection:
    """A connection with the lock that its user holds."""

    connection: sqlite3.Connection | None = None
    place: Place = ()
    lock: Any = field(default_factory=threading.RLock)
    users: int = 0  # nested uses by the thread that holds the lock

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Connections:
    """Connections to one file; `:memory:` has one that all threads share, one at a time."""

    def __init__(self, path: str, timeout: float, sync: Sync = "full") -> None:
        self.path, self.timeout, self.sync = path, timeout, sync
        self.in_memory = path == ":memory:"
        at = path if self.in_memory else os.path.abspath(path)  # the program may go to another folder
        self._at = (at, os.path.realpath(at) + "-wal")  # SQLite keeps the log beside the file, not beside a link to it
        self._by_thread: dict[threading.Thread | None, _LockedConnection] = {}
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None  # the one that was opened first
        self._closed = False
        _EVERY.add(self)

    @contextlib.contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; SQLite's errors come out as ours, and its statements end at the deadline."""
        locked = self._own()
        with translate_errors(self.path), locked.lock:
            if self._closed:
                raise StoreError("the memory is closed")
            if locked.connection is None:
                locked.connection, locked.place = self._open()
            locked.users += 1
            try:
                with _until_deadline(locked.connection) if locked.users == 1 else contextlib.nullcontext():
                    yield locked.connection
            finally:
                locked.users -= 1

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection in a transaction, which counts only while the file is where it was."""
        locked = self._own()
        with self.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self.check_place()
                connection.execute("COMMIT")
                self.check_place("what was written last may be lost")
            except BaseException:
                self._roll_back(locked)
                raise

    @contextlib.contextmanager
    def another(self) -> Iterator[sqlite3.Connection]:
        """A connection for this use alone, which any thread may go on with."""
        if self._closed:
            raise StoreError("the memory is closed")
        with (
            translate_errors(self.path), contextlib.closing(self._open()[0]) as connection, _until_deadline(connection)
        ):  # fmt: skip
            yield connection

    def _open(self) -> tuple[sqlite3.Connection, Place]:
        """A new connection, to the same file as the first, and where that is."""
        if self.in_memory:
            return connect(self.path, self.timeout, self.sync), ()
        before = _identity(self._at[0])
        if self._file not in (None, before):  # to open it would read the log that lies there into it
            raise _moved_error(self.path, "it was not opened")
        connection = connect(self._at[0], self.timeout, self.sync)
        place = tuple(map(_identity, self._at))
        if before not in (None, place[0]):
            connection.close()
            raise _moved_error(self.path, "it was not opened")
        self._file = place[0]
        return connection, place

    def check_place(self, outcome: str = "nothing was written") -> None:
        """Nothing, or an error where the file that this thread has open is no longer at its path.

        Asks for no lock: a fork that waits for this thread's transaction holds it.
        """
        locked = self._by_thread.get(None if self.in_memory else threading.current_thread())
        part = self._moved_part(locked.place) if locked is not None else None
        if part is not None:
            raise _moved_error(part, outcome)

    def _moved_part(self, place: Place) -> str | None:
        """The file, or its log, if it is no longer at its path."""
        for expected, path in zip(place, self._at, strict=False):
            if expected is not None and _identity(path) != expected:
                return path
        return None

    def _roll_back(self, locked: _LockedConnection) -> None:
        """Undo the transaction; a connection that cannot do even that is given up."""
        if locked.connection is None:
            return
        try:
            if locked.connection.in_transaction:
                locked.connection.execute("ROLLBACK")
            self._leave_no_log(locked)
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                locked.close()

    def _leave_no_log(self, locked: _LockedConnection) -> None:
        """Where the file was moved or replaced, put what its log holds into it: SQLite itself would leave the log."""
        if locked.connection is not None and self._moved_part(locked.place):
            locked.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close every connection, once its thread is done with what it does; none is opened after."""
        self._closed = True
        with self._lock:
            opened, self._by_thread = self._by_thread, {}
        for locked in opened.values():
            with locked.lock, translate_errors(self.path):
                with contextlib.suppress(sqlite3.Error):
                    self._leave_no_log(locked)
                locked.close()

    def _own(self) -> _LockedConnection:
        owner = None if self.in_memory else threading.current_thread()
        with self._lock:
            locked = self._by_thread.get(owner)
            if locked is None:
                for thread in [thread for thread in self._by_thread if thread and not thread.is_alive()]:
                    self._by_thread.pop(thread).close()
                locked = self._by_thread[owner] = _LockedConnection()
            return locked

    def before_fork(self) -> None:
        """Close the idle connections, and let no thread start to use one until the fork is done."""
        self._lock.acquire()
        for locked in [] if self.in_memory else self._by_thread.values():
            if locked.lock.acquire(timeout=PATIENCE):
                if not locked.users:
                    locked.close()
                locked.lock.release()

    def after_fork(self) -> None:
        """Go on in the parent."""
        self._lock.release()

    def begin_child(self) -> None:
        """Go on in the child: other threads are gone, their locks too, and what they had open is never touched."""
        self._lock = threading.Lock()
        _PARENTS.append(self._by_thread)
        inherited = self._by_thread.get(None)  # `:memory:` is this process's own copy now
        self._by_thread = {} if inherited is None else {None: _LockedConnection(inherited.connection)}


_EVERY: weakref.WeakSet[Connections] = weakref.WeakSet()
_PARENTS: list[object] = []  # connections that a forked child inherited in use: closing them would harm the parent


def _for_each(act: Callable[[Connections], None]) -> Callable[[], None]:
    def act_on_each() -> None:
        for connections in list(_EVERY):
            act(connections)

    return act_on_each


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_for_each(Connections.before_fork),
        after_in_parent=_for_each(Connections.after_fork),
        after_in_child=_for_each(Connections.begin_child),
    )


def connect(path: str, timeout: float, sync: Sync = "full") -> sqlite3.Connection:
    """A connection that is set up, to a file that has the newest schema. A file that is not ours is left as it is."""
    _make_private(path)
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY", "cache_size = -65536"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA trusted_schema = OFF")  # a hostile file runs no functions
        connection.execute("PRAGMA cell_size_check = ON")  # a damaged page is noticed when it is read
        found = _patiently(lambda: version(connection), timeout)
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), timeout)
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
        if found < len(STEPS):  # otherwise no write lock is asked for, so that a long write elsewhere delays nobody
            migrate(connection)
            _close_to_others(path)
    except UnicodeDecodeError as error:  # SQLite's message quotes a damaged schema
        connection.close()
        raise sqlite3.DatabaseError("malformed database schema") from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Nothing, or an error where another program dropped or changed one of our tables, indexes or triggers."""
    for problem in schema_problems(connection):
        raise StoreError(f"{path}: {problem}, by another program: 'retcon check --repair' mends it, or says what to do")


def schema_problems(connection: sqlite3.Connection) -> list[str]:
    """What of our schema is missing or changed."""
    found = read_schema(connection)
    return [
        f"{name} of the schema is {'changed' if name in found else 'missing'}"
        for name, statement in schema().items()
        if found.get(name) != statement
    ]


def _make_private(path: str) -> None:
    """Make the file, if there is none, so that only its owner may read it. What is wrong with the path SQLite says."""
    if path != ":memory:":
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))


def _close_to_others(path: str) -> None:
    """Take the rights of others off a file that an older version made."""
    if path != ":memory:":
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.chmod(path + end, PRIVATE)


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of the file; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _moved_error(path: str, outcome: str) -> StoreError:
    return StoreError(f"{path}: the file was moved, deleted or replaced while it was open; {outcome}; open it again")


@contextlib.contextmanager
def _until_deadline(connection: sqlite3.Connection) -> Iterator[None]:
    """A block in which a statement is stopped once the caller's time is over."""
    if deadline.seconds_left() == math.inf:
        yield
        return
    connection.set_progress_handler(lambda: int(deadline.seconds_left() <= 0), STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


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
def translate_errors(path: str) -> Iterator[None]:
    """SQLite's errors as ours, in one line with the path."""
    try:
        yield
    except (sqlite3.Error, Damage) as error:
        message = " ".join(str(error).split())[:300]
        if message == "interrupted":
            raise DeadlineError("the time for this work is over; nothing was written") from error
        if isinstance(error, sqlite3.OperationalError) and ("locked" in message or "busy" in message):
            raise BusyError(f"{path}: another process kept the store locked; try again") from error
        raise StoreError(f"{path}: {_hint(path, message)}") from error


def _hint(path: str, message: str) -> str:
    folder = os.path.dirname(path) or "."
    if "unable to open" in message or "readonly" in message:
        if os.path.isdir(path):  # False, not an error, where we may not even look
            return "this is a folder: name a file in it"
        if not os.path.isdir(folder):
            return f"the folder {folder!r} does not exist, or is closed to this user"
        return f"{message}: retcon must be able to write the file and its folder"
    if "not a database" in message or "malformed" in message:
        return f"not a readable SQLite file ({message}); the file was left as it is; 'retcon check' says what to do"
    return message
