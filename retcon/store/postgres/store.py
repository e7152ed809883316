"""The shared store: what `SqlStore` does, in transactions of PostgreSQL that many programs run at once."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.errors import StoreError
from retcon.language import Language
from retcon.note import Filter, Note, Scope
from retcon.store import Nearest, Progress, Snapshot, deleting, seal, vectors
from retcon.store.database import IN, Database, Many, translate_damage
from retcon.store.matrices import Matrices, read
from retcon.store.places import beside
from retcon.store.postgres import purging
from retcon.store.postgres.ahead import AheadSnapshot, open_view
from retcon.store.postgres.connections import Connections, InTheWayError, LostConnectionError, PostgresConnection
from retcon.store.postgres.migrations import STEPS, check_server, migrate, schema_problems
from retcon.store.postgres.near import Extension, Near, Place, find_extension
from retcon.store.postgres.service import PostgresServiceTables
from retcon.store.postgres.statements import to_postgres
from retcon.store.postgres.url import parse
from retcon.store.postgres.writing import PostgresWriter
from retcon.store.rows import conditions
from retcon.store.sql import NOTHING, SqlStore, Touches
from retcon.store.vectors import Pool
from retcon.store.writing import BATCH, key_of

if TYPE_CHECKING:
    from retcon.store.checking import Check

P = ParamSpec("P")
T = TypeVar("T")

MOST_LOCKS = 64  # scopes that a write locks one by one; more, and it locks the store
PAGE = 2000  # rows of a listing that are fetched at once


def _again(*, repeatable: bool) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """A call that is made again, while there is time, where the server went away or another writer was in the way.

    One that is not `repeatable` is not made again where it may have counted.
    """

    def decorate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @functools.wraps(method)
        def call(self: PostgresStore, /, *args: P.args, **options: P.kwargs) -> T:
            end = time.monotonic() + min(self.timeout, deadline.seconds_left())
            while True:
                try:
                    return method(self, *args, **options)
                except (LostConnectionError, InTheWayError) as error:
                    if time.monotonic() >= end or (getattr(error, "unknown", False) and not repeatable):
                        raise
                    time.sleep(0.02)

        return call

    return decorate


class PostgresSnapshot(AheadSnapshot):
    """The same view, read in few statements, and with vectors that the server compares."""

    _connection: PostgresConnection
    _indexes: Near

    def _search(
        self, pools: Sequence[Pool], vector: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> list[Nearest]:
        """The k closest notes of the pools, by the server where it has them; what came since is read."""
        states = self._indexes.states(self._connection, pools)
        found = super()._search([pool for pool in pools if pool.id not in states], vector, k, allowed)
        places = [
            Place(pool, self._start[pool.scope], self._ends[pool.scope]) for pool in pools if pool.id in states
        ]  # fmt: skip
        if places:
            found.append(self._indexes.find(self._connection, places, states, vector, k, allowed))
        for place in places:
            mask = None if allowed is None else allowed[place.start : place.end]
            copied = states[place.pool.id].copied
            for block in read(self._connection, place.pool, copied) if copied < place.pool.top else ():
                near = block.search(vector, k, mask)
                found.append(Nearest(near.slots + place.start, near.scores, near.parts))
        return found


class PostgresStore(SqlStore):
    """Notes in a PostgreSQL database, which many programs may use at once."""

    snapshots: type[PostgresSnapshot] = PostgresSnapshot
    writers = PostgresWriter
    rewrites_by_itself = False  # nobody else could read meanwhile
    no_backup = "pg_dump saves a database; 'retcon migrate --from postgresql://... --to FILE' copies it into a file"
    _connections: Connections
    _indexes: Near

    def __init__(
        self, url: str, *, language: Language | None = None, schema: str | None = None, strict: bool = True
    ) -> None:
        """Opens the store that the URL names, or makes it; `language` is that of one which holds no note yet."""
        place = parse(url) if schema is None else replace(parse(url), schema=schema)
        self.path, self.timeout, self.schema = place.shown, place.timeout, place.schema
        self.beside, self.at_once = beside(url), place.pool_size
        self._connections = Connections(place)
        self._matrices, extension = Matrices(), Extension()
        with self._connections.translating(), contextlib.closing(self._connections.open_one()) as session:
            session.limit = math.inf
            session.execute("SET statement_timeout = 0")
            check_server(session)
            migrate(session, self.schema, self._connections.store_lock)
            extension = find_extension(session, self._connections.store_lock, wanted=place.pgvector)
            for problem in schema_problems(session, self.schema) if strict else ():
                raise StoreError(f"{self.path}: {problem}, by another program: 'retcon check --repair' says what to do")
        self._indexes = Near(self._connections, extension)
        try:
            if language is not None:
                self._fix_language(language)
        except BaseException:
            self._connections.close()
            raise

    # -- calls that are made again -----------------------------------------------------------------------------------

    get_many = _again(repeatable=True)(SqlStore.get_many)
    place = _again(repeatable=True)(SqlStore.place)
    count = _again(repeatable=True)(SqlStore.count)
    history = _again(repeatable=True)(SqlStore.history)
    delete = _again(repeatable=False)(SqlStore.delete)
    delete_all = _again(repeatable=False)(SqlStore.delete_all)
    count_unpurged = _again(repeatable=True)(SqlStore.count_unpurged)
    identify_embedder = _again(repeatable=True)(SqlStore.identify_embedder)
    find_unembedded = _again(repeatable=True)(SqlStore.find_unembedded)
    _put_vectors = _again(repeatable=True)(SqlStore.put_vectors)
    put_record = _again(repeatable=True)(SqlStore.put_record)
    get_record = _again(repeatable=True)(SqlStore.get_record)
    count_records = _again(repeatable=True)(SqlStore.count_records)
    clear_records = _again(repeatable=False)(SqlStore.clear_records)
    get_replies = _again(repeatable=True)(SqlStore.get_replies)
    put_replies = _again(repeatable=True)(SqlStore.put_replies)
    reply_stats = _again(repeatable=True)(SqlStore.reply_stats)
    clear_replies = _again(repeatable=False)(SqlStore.clear_replies)

    @_again(repeatable=True)
    def put(self, notes: Iterable[Note]) -> list[Note]:
        """What `add` does, with the notes as they are stored; one that is there by now is passed over."""
        return super().put(notes)

    def add(self, notes: Iterable[Note], *, progress: Progress | None = None) -> list[str]:
        """Ids of the notes, written in one transaction; a note that is there already, word for word, is passed over."""
        if isinstance(notes, (list, tuple)):
            return self._add_again(notes, progress)
        return super().add(notes, progress=progress)

    @_again(repeatable=True)
    def _add_again(self, notes: Sequence[Note], progress: Progress | None) -> list[str]:
        return super().add(notes, progress=progress)

    @contextlib.contextmanager
    def snapshot(self, scope: Scope) -> Iterator[Snapshot]:
        """One consistent view of the scope's notes and index, for as long as the block runs."""
        with self._read() as connection:
            language, scopes, expiring = open_view(connection, scope)
            held = (connection, scopes, self._matrices, self._indexes)
            yield self.snapshots(*held, language=language, expiring=expiring)

    def put_vectors(
        self, embedder: str, given: Iterable[tuple[str, NDArray[np.float32]]], upto: Mapping[int, int] | None = None
    ) -> None:
        """Keep an embedder's vectors, and let the server have them too; see `SqlStore.put_vectors`."""
        rows = list(given)
        self._put_vectors(embedder, rows, upto)
        if self._indexes.extension.version:
            with self._read() as connection:
                query = f"SELECT DISTINCT scope FROM note WHERE id {IN}"
                scopes = [row[0] for row in connection.execute(query, (Many(note_id for note_id, _ in rows),))]
                pools = vectors.find_pools(connection, embedder, scopes)
            self._indexes.refresh(pools, self._read, self._writing)

    def copy_vectors(self) -> None:
        """Let the server have all vectors that it lacks, where it compares them."""
        with self._read() as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM embedder")]
            scopes = [scope for (scope,) in connection.execute("SELECT id FROM scope")]
            pools = [pool for name in names for pool in vectors.find_pools(connection, name, scopes)]
        if self._indexes.extension.version:
            self._indexes.refresh(pools, self._read, self._writing)

    # -- the database ------------------------------------------------------------------------------------------------

    def purge(self, *, at: str = "", now: str | None = None) -> bool:
        """Whether deleted words are gone from the tables' files, which are rewritten for it.

        Notes that have expired by `now` are deleted first. False while a reader might still see what was deleted; the
        store remembers that a purge is due. The server's log and its backups have words until they are recycled.
        """
        if now is not None:
            self._delete_expired(now)
        with self._connections.translating():
            return purging.purge(self._connections, at=at)

    def stats(self) -> dict[str, int | str]:
        """Facts about the store: schema, language, counts, sizes in bytes, and "ok" or what the quick check found."""
        with self._read() as connection:
            facts: dict[str, int | str] = {"schema": len(STEPS), "language": seal.language_of(connection).name}
            facts |= {f"{table}s": deleting.count(connection, table) for table in ("note", "scope", "record", "vector")}
            facts |= {"unembedded": vectors.count_unembedded(connection), "unpurged": seal.count_unpurged(connection)}
            facts |= {"bytes": self._size(connection), "wal_bytes": 0}
            problems = schema_problems(connection.session, self.schema)
            server = connection.session.info.server_version
            facts |= {"server": f"PostgreSQL {server // 10000}.{server % 10000}"}
            return facts | {"pgvector": self._indexes.said(connection), "check": "; ".join(problems) or "ok"}

    def _size(self, connection: PostgresConnection) -> int:
        query = """
        SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0) FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = ? AND relkind = 'r'
        """
        return int((connection.execute(query, (self.schema,)).fetchone() or (0,))[0])

    def check(self) -> Check:
        """Whether the store holds what was written to it, and what to do where it does not."""
        from retcon.store.postgres.checking import check  # loaded where one is asked for

        return check(self._connections, self._indexes)

    def service_tables(self) -> PostgresServiceTables:
        """What the servers on this store share; the caller closes it."""
        return PostgresServiceTables(self._connections.place)

    def close(self) -> None:
        """Close every connection; the store cannot be used after."""
        self._matrices.clear()
        self._indexes.clear()
        self._connections.close()

    def _read(self) -> contextlib.AbstractContextManager[PostgresConnection]:
        return self._reading_damage()

    @contextlib.contextmanager
    def _reading_damage(self) -> Iterator[PostgresConnection]:
        with self._connections.read(limited=self.limited) as connection, translate_damage(self.path):
            yield connection

    @contextlib.contextmanager
    def _writing(self, touches: Touches = NOTHING) -> Iterator[PostgresConnection]:
        with self._connections.write(limited=not touches.everything) as connection:
            if touches != NOTHING:
                self._connections.lock(connection, self._keys(connection, touches))
            yield connection

    @contextlib.contextmanager
    def _adding(self, batches: Iterator[list[Note]]) -> Iterator[tuple[Database, Iterator[list[Note]]]]:
        """A few notes lock their scopes; many, of which the scopes are not known yet, lock the store."""
        with self._connections.using():
            first = next(batches, [])
            few = len(first) < BATCH
            keys = {key_of(note) for note in first}
            with self._connections.write(limited=few) as connection:
                self._connections.lock(connection, self._locks(keys) if few else None)
                with contextlib.nullcontext() if few else connection.session.pipeline():  # the server works meanwhile
                    yield connection, chain([first] if first else [], batches)

    def _keys(self, connection: PostgresConnection, touches: Touches) -> list[int] | None:
        """The locks of the scopes that a write touches; None where it locks the store."""
        if touches.everything:
            return None
        keys: set[tuple[str, str, str]] = set()
        named = "SELECT user_id, agent_id, run_id FROM scope WHERE "
        if touches.scope is not None:
            where, values = conditions(touches.scope, Filter())
            keys |= set(connection.execute(named + " AND ".join(where), values))
        if touches.notes:
            owned = f"id IN (SELECT scope FROM note WHERE note.id {IN})"
            keys |= set(connection.execute(named + owned, (Many(touches.notes),)))
        if touches.scopes:
            keys |= set(connection.execute(f"{named}id {IN}", (Many(touches.scopes),)))
        return self._locks(keys)

    def _locks(self, keys: set[tuple[str, str, str]]) -> list[int] | None:
        return [self._connections.lock_of("scope", *key) for key in keys] if len(keys) <= MOST_LOCKS else None

    def _translating(self) -> contextlib.AbstractContextManager[None]:
        return self._connections.translating()

    def _rows(self, query: str, values: Sequence[object]) -> Iterator[Sequence[Any]]:
        """The rows, where a page holds all of them; else one by one, over a connection of their own."""
        bounded = " LIMIT " in query  # by the caller, who wants no more
        with self._read() as connection:
            rows = connection.execute(query if bounded else f"{query} LIMIT {PAGE + 1}", values).fetchall()
        if bounded or len(rows) <= PAGE:
            yield from rows
            return
        with (
            self._connections.translating(), contextlib.closing(self._connections.open_one()) as session,
            session.transaction(), session.cursor("listing") as cursor,
        ):  # fmt: skip
            cursor.itersize = PAGE
            cursor.execute(to_postgres(query), values)
            yield from cursor
