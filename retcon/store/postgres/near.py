"""Vectors that the server compares itself, where it has the extension pgvector: no program holds them in its memory.

The table `vector` stays the truth, as in a file. `near` is a second copy of it as pgvector's `halfvec`, the same
float16 numbers; it goes with its rows, is filled after them, and what it lacks is read from `vector`. So the extension
may come to a store later, and may go again: then vectors are searched in memory, as without it.

A search compares all vectors of its scopes, in one statement, with the query in float32. A scope that is larger than
that is worth has an index of its own (HNSW), made in the background. How far a search looks into it is measured when it
is made: as far as finds `RECALL` of what an exact search finds; where nothing does, the search stays exact. The scores
are computed here, of the numbers that the server found: so they are those of every other store.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.pq import Format

from retcon import deadline
from retcon.errors import BusyError, StoreError
from retcon.store import Nearest
from retcon.store.database import IN, Database, Many
from retcon.store.indexes import GROWN, INDEX_FROM, NARROW, RECALL, Indexes, Use
from retcon.store.matrices import find_starts
from retcon.store.postgres.connections import Connections, PostgresConnection, Session
from retcon.store.vectors import KEPT, Pool

OLDEST = (0, 8)  # of pgvector: halfvec, and a search with a filter that goes on until it has found enough
MOST_NUMBERS = 4000  # of a vector that an index takes, and a page holds
BATCH = 2000  # vectors that are copied at once
DEEPEST = 1000  # that pgvector lets a search look into an index
BEST = 100  # notes of a search by which the index is measured
QUERIES = 32  # of them
MOST_MEMORY = 1024  # megabytes that the server may take to make an index

_FIND = """
SELECT pg_extension.extversion, quote_ident(nspname), has_schema_privilege(pg_namespace.oid, 'USAGE'),
  (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
FROM (VALUES (1)) AS one LEFT JOIN pg_extension ON extname = 'vector'
LEFT JOIN pg_namespace ON pg_namespace.oid = extnamespace
"""
_IS_WHOLE = """EXISTS (SELECT 1 FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
  JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE nspname = current_schema AND relname = 'near' AND attname = 'data' AND NOT attisdropped)"""
# Row-level security is always on: a role sees the copies of the pools that it sees, and the owner all.
_MAKE = """
DROP TABLE IF EXISTS near, near_pool;
CREATE TABLE near_pool (
  pool bigint PRIMARY KEY REFERENCES pool (id) ON DELETE CASCADE,
  copied bigint NOT NULL DEFAULT 0,
  ef integer, measured bigint
);
CREATE TABLE near (
  id bigint PRIMARY KEY REFERENCES vector (id) ON DELETE CASCADE,
  pool bigint NOT NULL, slot bigint NOT NULL, part bigint NOT NULL, data {types}.halfvec NOT NULL
);
ALTER TABLE near ALTER COLUMN data SET STORAGE PLAIN, ALTER COLUMN data SET STATISTICS 0;
CREATE INDEX near_place ON near (pool, slot);
ALTER TABLE near ENABLE ROW LEVEL SECURITY;
ALTER TABLE near_pool ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON near USING (pool IN (SELECT id FROM pool))
  WITH CHECK (EXISTS (SELECT 1 FROM vector WHERE vector.id = near.id AND vector.pool = near.pool));
CREATE POLICY own ON near_pool USING (pool IN (SELECT id FROM pool)) WITH CHECK (pool IN (SELECT id FROM pool));
CREATE OR REPLACE FUNCTION near_is_granted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass(format('%I.near', TG_TABLE_SCHEMA)) IS NOT NULL THEN
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %1$I.near, %1$I.near_pool TO %2$I',
      TG_TABLE_SCHEMA, NEW.role);
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER near_is_granted AFTER INSERT ON tenant FOR EACH ROW EXECUTE FUNCTION near_is_granted();
DO $$ DECLARE each name; BEGIN
  FOR each IN SELECT DISTINCT role FROM tenant JOIN pg_roles ON rolname = role LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON near, near_pool TO %I', each);
  END LOOP;
END $$;
"""  # fmt: skip


class Half:
    """A vector on its way to the server, as float16."""

    kind = ">f2"

    def __init__(self, row: NDArray[Any]) -> None:
        self.row = row


class Single(Half):
    """The same as float32."""

    kind = ">f4"


class VectorDumper(Dumper):
    """pgvector's own bytes: how many numbers, two bytes of nothing, the numbers. The statement casts them."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return np.array([len(obj.row), 0], ">u2").tobytes() + bytes(obj.row.astype(obj.kind).tobytes())


psycopg.adapters.register_dumper(Half, VectorDumper)
psycopg.adapters.register_dumper(Single, VectorDumper)


@dataclass(frozen=True, slots=True)
class Extension:
    """pgvector as this store may use it; without a version, why it does not."""

    version: str = ""
    types: str = ""  # the schema of its types, quoted
    why: str = ""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """How far the vectors of a pool are copied, and how deep a search looks into its index."""

    copied: int
    ef: int  # 0: there is none that is good enough
    measured: int  # how many vectors there were when that was found out; 0: never


@dataclass(frozen=True, slots=True)
class Place:
    """A pool, and the slots that its notes have in a view of several scopes."""

    pool: Pool
    start: int
    end: int


# -- the extension ---------------------------------------------------------------------------------------------------


def find_extension(session: Session, lock: int, *, wanted: bool) -> Extension:
    """pgvector with our tables for it, which are made where they can be."""
    if not wanted:
        return Extension(why="switched off in the URL")
    version, types, allowed, available = _look(session)
    if version is None and available is not None and _is_new(available):
        with contextlib.suppress(psycopg.Error), session.transaction():
            session.execute("CREATE EXTENSION vector SCHEMA public")
        version, types, allowed, available = _look(session)
    if version is None:
        why = "not installed on the server" if available is None else "CREATE EXTENSION vector needs an administrator"
        return Extension(why=why)
    if not _is_new(version):
        return Extension(why=f"version {version}, and 0.8 is the oldest that is used")
    if not allowed:
        return Extension(why=f"no right to use the schema {types}")
    return _make_tables(session, lock, version, types)


def _look(session: Session) -> tuple[str | None, str, bool, str | None]:
    found: tuple[str | None, str, bool, str | None] = session.execute(_FIND).fetchone()  # type: ignore[assignment]
    return found


def _is_new(version: str) -> bool:
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    return tuple(numbers) >= OLDEST


def _make_tables(session: Session, lock: int, version: str, types: str) -> Extension:
    try:
        if not is_whole(session):
            with session.transaction():
                session.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
                if not is_whole(session):
                    session.execute(_MAKE.format(types=types))
    except errors.InsufficientPrivilege:
        return Extension(why="the owner of the tables has not opened the store since it is there")
    row = session.execute(
        "SELECT has_table_privilege('near', 'SELECT') AND has_table_privilege('near_pool', 'SELECT'),"
        " has_table_privilege('near', 'INSERT') AND has_table_privilege('near_pool', 'INSERT')"
    ).fetchone()
    readable, writable = row or (False, False)
    return Extension(version, types, writable=writable) if readable else Extension(why="no right to read its table")


def is_whole(connection: Database | Session) -> bool:
    """Whether our table is there, with its vectors: they go with the extension."""
    row = connection.execute(f"SELECT {_IS_WHOLE}").fetchone()
    return bool(row and row[0])


# -- the store's vectors ---------------------------------------------------------------------------------------------


class Near(Indexes):
    """The vectors of one store that the server compares; those of other pools are searched in memory."""

    def __init__(self, connections: Connections, extension: Extension, *, least: int = INDEX_FROM) -> None:
        super().__init__(":memory:", least=least)
        self.extension = extension
        self._connections = connections
        self._builders: dict[tuple[int, int], Builder] = {}  # by process and pool

    def said(self, connection: Database) -> str:
        """The version in use, or why there is none."""
        why = self.extension.why or ("" if is_whole(connection) else "it was dropped since the store was opened")
        return f"not in use: {why}" if why else self.extension.version

    def states(self, connection: Database, pools: Sequence[Pool]) -> Mapping[int, State]:
        """Of the pools that the server can search; none where the extension has gone meanwhile."""
        if not self.extension.version or not pools:
            return {}
        query = f"""
        SELECT pool, copied, coalesce(ef, 0), coalesce(measured, 0) FROM near_pool WHERE pool {IN} AND {_IS_WHOLE}
        """
        rows = connection.execute(query, (Many(pool.id for pool in pools),))
        return {pool: State(*rest) for pool, *rest in rows}

    # -- outside of a search's transaction -----------------------------------------------------------------------------

    def refresh(self, pools: list[Pool], reading: Use, writing: Use) -> None:
        """Copy what came since, and have large pools indexed; what the server cannot search is refreshed here."""
        if not self.extension.version:
            super().refresh(pools, reading, writing)
            return
        with reading() as connection:
            whole = is_whole(connection)
            states = self.states(connection, pools) if whole else {}
        ours = [pool for pool in pools if whole and self._is_ours(pool, states.get(pool.id))]
        super().refresh([pool for pool in pools if pool not in ours], reading, writing)
        for pool in ours:
            state = states.get(pool.id)
            if self.extension.writable and (state is None or state.copied < pool.top):
                self._copy(pool, writing)
            if pool.size > self.least and pool.size > GROWN * (state.measured if state else 0):
                self._start(pool)

    def _is_ours(self, pool: Pool, state: State | None) -> bool:
        return pool.dim <= MOST_NUMBERS and (self.extension.writable or state is not None)

    def _copy(self, pool: Pool, writing: Use) -> None:
        """Copy what is lacking, for half of the time there is; the rest, and what another is busy with, comes later."""
        more, least = True, deadline.seconds_left() / 2
        with contextlib.suppress(BusyError):
            while more and deadline.seconds_left() >= least:
                with writing() as connection:
                    more = copy_some(connection, pool, self.extension.types)

    def _start(self, pool: Pool) -> None:
        """Make the pool's index in the background, unless somebody does."""
        with self._lock:
            key = os.getpid(), pool.id
            builder = self._builders.get(key)
            if builder is None or (builder.made and pool.size > GROWN * builder.pool.size):
                self._builders[key] = Builder(self._connections, self.extension.types, pool)
                self._builders[key].start()

    def wait(self) -> None:
        """Until no index is being made here."""
        for (process, _), builder in list(self._builders.items()):
            if process == os.getpid():
                builder.join()

    def clear(self) -> None:
        """Let everything go: what is being made is given up."""
        for (process, _), builder in list(self._builders.items()):
            if process == os.getpid():
                builder.give_up()
        super().clear()

    # -- in a search's transaction -------------------------------------------------------------------------------------

    def find(
        self, connection: PostgresConnection, places: Sequence[Place], states: Mapping[int, State],
        vector: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None,
    ) -> Nearest:  # fmt: skip
        """The k closest notes of these pools that are allowed, of what is copied."""
        search = Search(connection, self.extension.types, vector, k, allowed)
        if search.few is not None:
            return search.gather(search.one_by_one(places))
        plain, rows = [], []
        for place in places:
            ef = states[place.pool.id].ef
            found = search.by_index(place, ef) if ef else None
            if found is None:
                plain.append(place)
            else:
                rows += found
        return search.gather(rows + (search.exactly(plain) if plain else []))


def copy_some(connection: Database, pool: Pool, types: str) -> bool:
    """Whether there may be more to copy, after some vectors were; waits for nobody."""
    connection.execute("INSERT OR IGNORE INTO near_pool (pool) VALUES (?)", (pool.id,))
    row = connection.execute("SELECT copied FROM near_pool WHERE pool = ? FOR UPDATE NOWAIT", (pool.id,)).fetchone()
    if row is None:
        return False
    query = "SELECT id, slot, part, data FROM vector WHERE pool = ? AND id > ? ORDER BY id LIMIT ? FOR KEY SHARE NOWAIT"
    rows = connection.execute(query, (pool.id, row[0], BATCH)).fetchall()
    if rows:
        insert = f"INSERT OR IGNORE INTO near (id, pool, slot, part, data) VALUES (?, ?, ?, ?, ?::{types}.halfvec)"
        values = [(each, pool.id, slot, part, Half(np.frombuffer(data, KEPT))) for each, slot, part, data in rows]
        connection.executemany(insert, values)
        connection.execute("UPDATE near_pool SET copied = ? WHERE pool = ?", (rows[-1][0], pool.id))
    return len(rows) == BATCH


# -- searching -------------------------------------------------------------------------------------------------------

Row = tuple[int, int, bytes]  # slot, passage, vector


class Search:
    """One question to the server."""

    def __init__(
        self, connection: PostgresConnection, types: str, vector: NDArray[np.float32], k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> None:  # fmt: skip
        self.connection, self.types, self.vector, self.k, self.allowed = connection, types, vector, k, allowed
        narrow = allowed is not None and np.count_nonzero(allowed) <= NARROW
        self.few = np.flatnonzero(allowed) if allowed is not None and narrow else None
        self._by_cosine = (
            f"near.data::{types}.vector OPERATOR({types}.<#>) ?::{types}.vector, near.slot + each.start LIMIT ?"
        )

    def exactly(self, places: Sequence[Place]) -> list[Row]:
        """The closest of all vectors of these pools, enough for k notes."""
        where, values = self._passing("near.slot + each.start")
        query = f"""
        SELECT near.slot + each.start, near.part, near.data
        FROM unnest(?::bigint[], ?::bigint[]) AS each (pool, start) JOIN near ON near.pool = each.pool {where}
        ORDER BY {self._by_cosine}
        """
        return self._enough(query, Many(each.pool.id for each in places), Many(each.start for each in places), *values)

    def one_by_one(self, places: Sequence[Place]) -> list[Row]:
        """The same among the few notes that are allowed."""
        assert self.few is not None
        pools, starts, slots = Many(), Many(), Many()
        for place in places:
            inside = (self.few[(self.few >= place.start) & (self.few < place.end)] - place.start).tolist()
            pools += [place.pool.id] * len(inside)
            starts += [place.start] * len(inside)
            slots += inside
        query = f"""
        SELECT near.slot + each.start, near.part, near.data
        FROM unnest(?::bigint[], ?::bigint[], ?::bigint[]) AS each (pool, start, slot)
        JOIN near ON near.pool = each.pool AND near.slot = each.slot ORDER BY {self._by_cosine}
        """
        return self._enough(query, pools, starts, slots)

    def _enough(self, query: str, *values: Any) -> list[Row]:
        limit = 2 * self.k
        while True:
            rows: list[Row] = self.connection.execute(query, (*values, Single(self.vector), limit)).fetchall()
            if len(rows) < limit or len({row[0] for row in rows}) >= self.k:
                return rows
            limit *= 4  # many passages of a few notes: look further

    def by_index(self, place: Place, ef: int) -> list[Row] | None:
        """What the pool's index gives; None where that is less than k notes."""
        where, values = self._passing(f"near.slot + {place.start}")
        limit, kind = 2 * self.k, f"{self.types}.halfvec({place.pool.dim})"
        query = f"""
        SELECT near.slot + {place.start}, near.part, near.data FROM near WHERE near.pool = {place.pool.id} {where}
        ORDER BY (near.data::{kind}) OPERATOR({self.types}.<#>) ?::{kind} LIMIT ?
        """
        self.connection.session.execute(
            f"SET LOCAL hnsw.ef_search = {min(DEEPEST, max(ef, limit))};"
            " SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL enable_sort = off"
        )
        rows: list[Row] = self.connection.execute(query, (*values, Half(self.vector), limit)).fetchall()
        self.connection.session.execute("SET LOCAL enable_sort = on")
        return rows if len({row[0] for row in rows}) >= self.k else None

    def _passing(self, slot: str) -> tuple[str, list[Any]]:
        """The condition for what is allowed: one bit for each slot."""
        if self.allowed is None:
            return "", []
        bits = np.packbits(self.allowed, bitorder="little").tobytes()
        return f"AND CASE WHEN {slot} < {len(self.allowed)} THEN get_bit(?::bytea, {slot}) = 1 ELSE false END", [bits]

    def gather(self, rows: Sequence[Row]) -> Nearest:
        """The k best notes with the cosines of their best passages."""
        if not rows:
            return Nearest(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64))
        scores = unpack([row[2] for row in rows], len(self.vector)) @ self.vector
        slots, parts = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
        order = np.lexsort((parts, -scores, slots))
        first = order[find_starts(slots[order])]  # the best passage of each note
        first = first[scores[first] > 0]
        best = first[np.lexsort((slots[first], -scores[first]))[: self.k]]
        return Nearest(slots[best], scores[best].astype(np.float64), parts[best])


def unpack(data: Sequence[bytes], dim: int) -> NDArray[np.float32]:
    """Vectors as the server sends them, as rows."""
    numbers = np.frombuffer(b"".join(data), np.uint8).reshape(len(data), 4 + 2 * dim)[:, 4:]
    return np.ascontiguousarray(numbers).view(">f2").astype(np.float32)


# -- the index of a large pool ---------------------------------------------------------------------------------------


class Builder(threading.Thread):
    """Makes the index of one pool, over a connection of its own, and measures it."""

    def __init__(self, connections: Connections, types: str, pool: Pool) -> None:
        super().__init__(name="retcon-near", daemon=True)
        self.pool = pool
        self.made = False
        self._connections, self._types = connections, types
        self._session: Session | None = None
        self._given_up = False

    @property
    def index(self) -> str:
        """Its name."""
        return f"near_pool_{self.pool.id}"

    def run(self) -> None:
        """Make it; where that fails, or is the right of another, searches stay exact until a later program makes it."""
        with (
            contextlib.suppress(StoreError, psycopg.Error), contextlib.closing(self._connections.open_one()) as session,
        ):  # fmt: skip
            self._session, session.limit = session, math.inf
            session.execute("SET statement_timeout = 0; SET lock_timeout = 0")
            if not self._given_up:
                self._make(session)

    def give_up(self) -> None:
        """End it, and wait until it has ended."""
        self._given_up = True
        while self.is_alive():
            if self._session is not None:
                with contextlib.suppress(psycopg.Error):
                    self._session.cancel()
            self.join(0.1)

    def _make(self, session: Session) -> None:
        lock = self._connections.lock_of("near", str(self.pool.id))
        if session.execute("SELECT pg_try_advisory_lock(%s)", (lock,)).fetchone() != (True,):
            return  # another program makes it
        self._index(session)
        ef = self._measure(session)
        update = "UPDATE near_pool SET ef = %s, measured = %s WHERE pool = %s"
        session.execute(update, (ef, self.pool.size, self.pool.id))
        self.made = True

    def _index(self, session: Session) -> None:
        query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
        found = session.execute(query, (self.index,)).fetchone()
        if found == (True,):
            return
        if found is not None:  # half made
            session.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {self.index}")
        room = math.ceil(1.25 * self.pool.size * (2 * self.pool.dim + 400) / 2**20)
        session.execute(f"SET maintenance_work_mem = '{min(MOST_MEMORY, max(64, room))}MB'")
        session.execute(
            f"CREATE INDEX CONCURRENTLY {self.index} ON near USING hnsw"
            f" ((data::{self._types}.halfvec({self.pool.dim})) {self._types}.halfvec_ip_ops)"
            f" WHERE pool = {self.pool.id}"
        )

    def _measure(self, session: Session) -> int:
        """How deep a search must look; 0 where no depth is enough."""
        asked = self._queries(session)
        exact = [self._ids(session, query, 0) for query in asked]
        ef = BEST
        while ef <= DEEPEST:
            found = [self._ids(session, query, ef) for query in asked]
            shared = np.mean([len(a & b) / max(1, len(a)) for a, b in zip(exact, found, strict=True)])
            if shared >= RECALL:
                return ef
            ef = int(ef * 1.5)
        return 0

    def _queries(self, session: Session) -> list[NDArray[np.float32]]:
        """Points between two of the vectors each: a question is not as close to a note as notes are to each other."""
        step = max(1, self.pool.size // (2 * QUERIES))
        query = "SELECT data FROM near WHERE pool = %s AND slot %% %s = 0 LIMIT %s"
        rows = session.execute(query, (self.pool.id, step, 2 * QUERIES), binary=True).fetchall()
        found = unpack([row[0] for row in rows], self.pool.dim)
        asked = 0.8 * found[: len(found) // 2] + 0.6 * found[len(found) // 2 :][: len(found) // 2]
        return list(asked / np.maximum(np.linalg.norm(asked, axis=1, keepdims=True), 1e-9))

    def _ids(self, session: Session, query: NDArray[np.float32], ef: int) -> set[int]:
        search = Search(PostgresConnection(session), self._types, query, BEST)
        place = Place(self.pool, 0, 0)
        with session.transaction():
            rows = search.by_index(place, ef) if ef else search.exactly([place])
        return set(search.gather(rows or []).slots.tolist())


# -- looking after it ------------------------------------------------------------------------------------------------


def near_problems(connection: Database, extension: Extension) -> Iterator[str]:
    """What of the copies is not what the vectors are."""
    if not extension.version or not is_whole(connection):
        return
    query = """
    SELECT count(*) FROM near_pool JOIN vector ON vector.pool = near_pool.pool AND vector.id <= near_pool.copied
    LEFT JOIN near ON near.id = vector.id WHERE near.id IS NULL
    """
    if connection.execute(query).fetchone()[0]:
        yield "pgvector's table lacks vectors that the store has"
    query = """
    SELECT near.id, vector.note, vector.data, near.data,
      (near.pool, near.slot, near.part) = (vector.pool, vector.slot, vector.part)
    FROM near JOIN vector ON vector.id = near.id WHERE near.id > ? ORDER BY near.id LIMIT ?
    """
    last = 0
    while rows := connection.execute(query, (last, BATCH)).fetchall():  # in parts: all of them may not fit the memory
        last = rows[-1][0]
        for _, note, kept, copied, same_place in rows:
            if not same_place or np.frombuffer(copied, ">f2", offset=4).astype(KEPT).tobytes() != bytes(kept):
                yield f"pgvector's copy of a vector of note {note} is not that vector"


def tables(session: Session) -> list[str]:
    """Our tables for pgvector that are there; indexes of pools that are gone are dropped."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema AND tablename IN ('near', 'near_pool')"
    found = [str(row[0]) for row in session.execute(query)]
    stale = r"""
    SELECT indexname FROM pg_indexes WHERE schemaname = current_schema AND tablename = 'near'
    AND indexname ~ '^near_pool_\d+$' AND NOT EXISTS (SELECT 1 FROM pool WHERE 'near_pool_' || id = indexname)
    """
    for (name,) in session.execute(stale).fetchall() if found else ():
        session.execute(f"DROP INDEX IF EXISTS {name}")
    return found
