"""Connections to PostgreSQL: a pool per process, transactions that know what they lock, and errors in our words.

Nothing waits for ever: a connection, a lock and an answer have `timeout` seconds each, also where the network swallows
what is sent. A connection that the server has dropped is found when a transaction begins, and another one taken, until
that time is over: so a restart of the server is a pause, not an error. A child of a fork opens a pool of its own.

Writers lock scopes, not the store. Each takes the store's lock, shared, and then those of its scopes in their order;
one that touches everything takes the store's lock for itself. So no two of them wait for each other.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from retcon import deadline
from retcon.errors import BusyError, DeadlineError, RetconError, StoreError
from retcon.store.checksum import total
from retcon.store.database import Damage
from retcon.store.postgres import bulk
from retcon.store.postgres.migrations import SHARDS
from retcon.store.postgres.statements import to_postgres
from retcon.store.postgres.texts import decode_text, encode_text
from retcon.store.postgres.url import Place

RV = TypeVar("RV")

GRACE = 5.0  # seconds that the server has to say itself that a statement took too long
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class LostConnectionError(StoreError):
    """The server went away in the middle of a transaction; `unknown` where that was its very end."""

    def __init__(self, message: str, *, unknown: bool) -> None:
        self.unknown = unknown
        super().__init__(message)


class InTheWayError(BusyError):
    """Two writers waited for each other, and this one was given up: made again, it comes through."""


class SilenceError(psycopg.OperationalError):
    """The server did not answer in time."""


class Session(psycopg.Connection[Any]):
    """A connection on which no answer takes longer than `limit` seconds, nor comes past the caller's deadline."""

    limit: float = 30.0

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """What the generator gives in the end."""
        end = time.monotonic() + min(self.limit, deadline.seconds_left()) + GRACE
        try:
            return super().wait(_until(gen, end), *args, **options)
        except SilenceError:
            self.pgconn.finish()  # it is in the middle of an answer
            raise


def _until(gen: PQGen[RV], end: float) -> PQGen[RV]:
    """The same, with an error once nothing was to be read or written at `end`; bytes that come then have some time."""
    late = math.inf  # from when on nothing is waited for: a program that was stopped for a while still reads its answer
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            now = time.monotonic()
            if now >= end and (not ready or now >= late):
                raise SilenceError("no answer in time")
            late = min(late, now + GRACE) if now >= end else math.inf
            wanted = gen.send(ready)
    except StopIteration as stop:
        found: RV = stop.value
        return found


class _TextDumper(Dumper):
    """Texts with what PostgreSQL cannot hold marked."""

    oid = 25

    def dump(self, obj: Any) -> bytes:
        return encode_text(str(obj))


class _TextLoader(Loader):
    """The texts as they were."""

    def load(self, data: Any) -> str:
        return decode_text(bytes(data))


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


class PostgresConnection:
    """A session behind SQLite's words, for what both stores share."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.session.pgconn.transaction_status != TransactionStatus.IDLE

    def execute(self, sql: str, parameters: Any = (), /) -> psycopg.Cursor[Any]:
        """The rows of a statement in SQLite's words."""
        return self.session.execute(to_postgres(sql), parameters or None, binary=True)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> psycopg.Cursor[Any]:
        """A statement in SQLite's words for each of the rows."""
        rows = list(parameters)
        if len(rows) == 1:
            return self.execute(sql, rows[0])
        if len(rows) > bulk.FEW and (found := bulk.find(sql)) is not None:
            return self.session.execute(found.statement, bulk.encode(found, rows))
        cursor = self.session.cursor()
        if rows:
            cursor.executemany(to_postgres(sql), rows)
        return cursor

    def change_seal(self, notes: int, summed: int, deletes: int) -> None:
        """Count so many notes, checksums and deletes more in this connection's part of the seal."""
        shard = self.session.info.backend_pid % SHARDS
        update = "UPDATE seal_part SET notes = notes + %s, sum = wrap(sum::numeric + %s), deletes = deletes + %s"
        self.session.execute(f"{update} WHERE shard = %s", (notes, total([summed]), deletes, shard))


class Connections:
    """A pool of connections to one store."""

    def __init__(self, place: Place) -> None:
        self.place, self.timeout = place, place.timeout
        self._pools: dict[int, ConnectionPool[Session]] = {}  # by process; a parent's is never touched
        self._lock = threading.Condition()
        self._own = threading.local()  # this thread's read, and how many blocks it is in
        self._users = 0  # blocks of all threads
        self._closed = False
        self.store_lock = self.lock_of("store")
        _EVERY.add(self)

    def begin_child(self) -> None:
        """Go on in the child of a fork: other threads are gone, and what the parent has open is never touched."""
        self._lock, self._own, self._users = threading.Condition(), threading.local(), 0

    def lock_of(self, *names: str) -> int:
        """The number of the lock with these names, in this schema."""
        data = "\0".join((self.place.schema, *names)).encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)

    def open_one(self) -> Session:
        """A connection beside the pool, ready for use; an error at once where there is no server."""
        if self._closed:
            raise StoreError("the memory is closed")
        with self.translating():
            session = Session.connect(self.place.conninfo, autocommit=True, **self._keywords())
            try:
                self._set_up(session)
            except BaseException:
                session.close()
                raise
            return session

    def _keywords(self) -> dict[str, Any]:
        seconds = max(2, math.ceil(self.timeout))  # libpq takes no less
        given = psycopg.conninfo.conninfo_to_dict(self.place.conninfo)
        ours = {
            "connect_timeout": seconds, "tcp_user_timeout": int(self.timeout * 1000), "keepalives_idle": 30,
            "application_name": "retcon", "client_encoding": "UTF8",
        }  # fmt: skip
        return {name: value for name, value in ours.items() if name not in given}

    def _set_up(self, session: Session) -> None:
        session.limit = self.timeout
        session.adapters.register_dumper(str, _TextDumper)
        bulk.register(session.adapters)
        for oid in (25, 1043, 19, 705):
            session.adapters.register_loader(oid, _TextLoader)
            session.adapters.register_loader(oid, _BinaryTextLoader)
        milliseconds = int(self.timeout * 1000)
        session.execute(
            f'SET search_path = "{self.place.schema}"; SET lock_timeout = {milliseconds};'
            f" SET statement_timeout = {milliseconds + int(GRACE * 500)}; SET idle_in_transaction_session_timeout = 0;"
            " SET standard_conforming_strings = on; SET client_min_messages = error"
        )

    @property
    def pool(self) -> ConnectionPool[Session]:
        """This process's pool."""
        with self._lock:
            if os.getpid() not in self._pools:
                self._pools[os.getpid()] = ConnectionPool(
                    self.place.conninfo, connection_class=Session, min_size=1, max_size=self.place.pool_size,
                    timeout=self.timeout, kwargs={"autocommit": True, **self._keywords()}, configure=self._set_up,
                    open=True, max_idle=300, reconnect_timeout=self.timeout, name="retcon",
                )  # fmt: skip
            return self._pools[os.getpid()]

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """A block that `close` waits for; none begins after, but within another one."""
        inside = getattr(self._own, "depth", 0)
        with self._lock:
            if self._closed and not inside:
                raise StoreError("the memory is closed")
            self._users += 1
        self._own.depth = inside + 1
        try:
            yield
        finally:
            self._own.depth = inside
            with self._lock:
                self._users -= 1
                self._lock.notify_all()

    # -- transactions ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self, *, limited: bool = True) -> Iterator[PostgresConnection]:
        """A connection with one view of the store; within another such block of this thread, that one's."""
        held: PostgresConnection | None = getattr(self._own, "connection", None)
        if held is not None:
            with self.translating():
                yield held
            return
        with self._begun(_READ, limited=limited) as connection:
            self._own.connection = connection
            try:
                yield connection
            finally:
                self._own.connection = None

    @contextlib.contextmanager
    def write(self, *, limited: bool = True) -> Iterator[PostgresConnection]:
        """A connection in a transaction; one that may take long has no limit but the caller's deadline."""
        with self._begun(_WRITE, limited=limited) as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, begin: str, *, limited: bool = True) -> Iterator[PostgresConnection]:
        with self.using(), self.translating():
            session = self._take(begin, limited)
            ending = False
            try:
                yield PostgresConnection(session)
                ending = True
                if session.execute("COMMIT").statusmessage != "COMMIT":  # a statement had failed, and nobody told us
                    raise StoreError(f"{self.place.shown}: the transaction had failed before; nothing was written")
            except BaseException as error:
                if session.broken or session.closed:
                    raise self._lost(error, unknown=ending and begin == _WRITE) from error
                with contextlib.suppress(psycopg.Error):
                    session.execute("ROLLBACK")
                raise
            finally:
                session.limit = self.timeout
                self._give_back(session)

    def _take(self, begin: str, limited: bool) -> Session:
        """A connection on which a transaction has begun; one that was dropped meanwhile is passed over."""
        end = time.monotonic() + min(self.timeout, deadline.seconds_left())
        while True:
            session = self.pool.getconn(timeout=max(0.01, end - time.monotonic()))
            try:
                if not limited:
                    session.limit = math.inf
                session.execute(f"{begin}; {self._limits(limited)}")
                return session
            except psycopg.OperationalError as error:
                self._give_back(session)
                if not session.closed or time.monotonic() > end:
                    raise
                if isinstance(error, SilenceError):
                    raise
            except BaseException:
                self._give_back(session)
                raise

    def _limits(self, limited: bool) -> str:
        """How long a statement of the transaction may take, for the server to know."""
        seconds = min(deadline.seconds_left(), self.timeout + GRACE / 2 if limited else math.inf)
        # rounded up: a statement that the server ends at the caller's deadline must not end before it
        milliseconds = 0 if seconds == math.inf else max(1, math.ceil(seconds * 1000) + 1)
        return f"SET LOCAL statement_timeout = {milliseconds}"

    def _give_back(self, session: Session) -> None:
        if session.pgconn.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            session.close()
        pool = self._pools.get(os.getpid())
        if pool is None:
            session.close()
        else:
            pool.putconn(session)

    def _lost(self, error: BaseException, *, unknown: bool) -> BaseException:
        if not isinstance(error, psycopg.Error):
            return error
        if isinstance(error, SilenceError) and deadline.seconds_left() <= 0 and not unknown:
            return DeadlineError("the time for this work is over; nothing was written")
        rest = "whether the last write counts is not known" if unknown else "nothing was written"
        return LostConnectionError(
            f"{self.place.shown}: the connection to the server was lost; {rest} ({_one_line(error)})", unknown=unknown
        )

    def lock(self, connection: PostgresConnection, keys: Iterable[int] | None) -> None:
        """Wait for the turn of this transaction in these scopes; None stands for the store."""
        execute = connection.session.execute
        if keys is None:
            execute("SELECT pg_advisory_xact_lock(%s)", (self.store_lock,))
            return
        query = "SELECT pg_advisory_xact_lock_shared(%s)"
        execute(query, (self.store_lock,))
        for key in sorted(set(keys)):
            execute("SELECT pg_advisory_xact_lock(%s)", (key,))

    def close(self) -> None:
        """Close this process's connections, once their users are done with what they do."""
        self._closed = True
        with self._lock:
            self._lock.wait_for(lambda: self._users == 0, timeout=self.timeout)
            pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close(timeout=GRACE)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """PostgreSQL's errors as ours, in one line with the place, which shows no password."""
        try:
            yield
        except Damage as error:
            raise StoreError(f"{self.place.shown}: {_one_line(error)}") from error
        except (PoolTimeout, PoolClosed) as error:
            raise self._no_connection(error) from error
        except psycopg.Error as error:
            raise self._ours(error) from error

    def _no_connection(self, error: Exception) -> RetconError:
        if self._closed:
            return StoreError("the memory is closed")
        if deadline.seconds_left() <= 0:
            return DeadlineError("the time for this work is over; nothing was written")
        pool = self._pools.get(os.getpid())
        stats = pool.get_stats() if pool is not None else {}
        if stats.get("pool_size", 0) >= self.place.pool_size and not stats.get("pool_available", 0):
            return BusyError(
                f"{self.place.shown}: all {self.place.pool_size} connections were in use for {self.timeout:g} s;"
                " try again, or add ?pool_size=NUMBER to the URL"
            )
        return StoreError(f"{self.place.shown}: no connection to the server within {self.timeout:g} s; try again")

    def _ours(self, error: psycopg.Error) -> RetconError:
        shown, said = self.place.shown, _one_line(error)
        if isinstance(error, (errors.QueryCanceled, SilenceError)) and deadline.seconds_left() <= 0:
            return DeadlineError("the time for this work is over; nothing was written")
        for kinds, kind, message in _KNOWN:
            if isinstance(error, kinds):
                return kind(f"{shown}: {message.format(said=said, timeout=self.timeout)}")
        return StoreError(f"{shown}: {said}")


_EVERY: weakref.WeakSet[Connections] = weakref.WeakSet()


def _begin_child() -> None:
    for connections in list(_EVERY):
        connections.begin_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)


_KNOWN: tuple[tuple[tuple[type[BaseException], ...], type[StoreError], str], ...] = (
    ((errors.LockNotAvailable,), BusyError, "another writer kept its lock for {timeout:g} s; try again"),
    (
        (errors.DeadlockDetected, errors.SerializationFailure, errors.UniqueViolation, errors.ForeignKeyViolation),
        InTheWayError,
        "another writer was in the way; nothing was written; try again",
    ),
    ((errors.QueryCanceled,), BusyError, "the server took longer than {timeout:g} s; nothing was written; try again"),
    ((SilenceError,), StoreError, "the server did not answer within {timeout:g} s; nothing was written"),
    ((errors.DiskFull,), StoreError, "the server's disk is full; nothing was written ({said})"),
    ((errors.OutOfMemory, errors.TooManyConnections), BusyError, "the server has no room: {said}"),
    (
        (errors.InvalidPassword, errors.InvalidAuthorizationSpecification),
        StoreError,
        "the server refuses us: {said}",
    ),
    ((errors.InsufficientPrivilege,), StoreError, "{said}: the store's user needs that right (docs/postgres.md)"),
)


def _one_line(error: BaseException) -> str:
    """What PostgreSQL says, without its hints and context."""
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return " ".join(said.split())[:300]


__all__ = ["Connections", "InTheWayError", "LostConnectionError", "PostgresConnection", "Session"]
