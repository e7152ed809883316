"""Vectors of notes, one for each passage: kept by embedder, gone with their notes, missing ones found in order.

An embedder is known by its name and by its vector of a fixed text: a model that was changed under the same name gets
a name of its own (`NAME#2`), so that its vectors never meet those of the old one. The vectors of one scope by one
embedder are a pool. A pool counts what came (`added`, `top`) and what went (`removed`), so whoever holds a copy of it
knows what it lacks. All notes of a pool below the slot `next` have a vector, or need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.note import Filter, Note, Scope
from retcon.store import Unembedded
from retcon.store.database import Database, Many
from retcon.store.rows import NOTE, SLOT, conditions, read_note

SAME = 0.99  # cosine of two vectors of one text from which the model is the same: rounding is not what changes it
KEPT = np.float16  # half the bytes of float32; cosines differ by less than .001


@dataclass(frozen=True, slots=True)
class Pool:
    """The vectors of one scope by one embedder, as their pool counts them."""

    id: int
    scope: int
    dim: int
    added: int
    removed: int
    top: int  # the newest vector's id

    @property
    def size(self) -> int:
        """How many there are."""
        return self.added - self.removed


def identify(connection: Database, name: str, probe: NDArray[np.float32]) -> str | None:
    """Under which name the file knows the embedder that has this vector for the fixed text; None where under none."""
    for known, dim, data in _namesakes(connection, name):
        if dim == len(probe) and (data is None or _is_same(np.frombuffer(data, np.float32), probe)):
            return str(known)
    return None


def register(connection: Database, name: str, probe: NDArray[np.float32]) -> str:
    """The name under which the file knows the embedder from now on."""
    if (known := identify(connection, name, probe)) is not None:
        return known
    others = len(_namesakes(connection, name))
    known = f"{name}#{others + 1}" if others else name
    connection.execute("INSERT INTO embedder (name, dim, probe) VALUES (?, ?, ?)", (known, len(probe), probe.tobytes()))
    return known


def _namesakes(connection: Database, name: str) -> list[tuple[str, int, bytes | None]]:
    """Name, size and probe of the embedders of that name, with a number behind it or without, newest first."""
    rows = connection.execute("SELECT name, dim, probe FROM embedder ORDER BY id DESC").fetchall()
    return [row for row in rows if row[0] == name or _is_numbered(row[0], name)]


def _is_numbered(known: str, name: str) -> bool:
    """Whether it is the name with a number behind it."""
    return known.startswith(f"{name}#") and known[len(name) + 1 :].isdecimal()


def _is_same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(one, other)) or float(one @ other) >= SAME


def find_pools(connection: Database, name: str, scopes: Sequence[int]) -> list[Pool]:
    """The pools that an embedder has in these scopes, given by their ids."""
    query = """
    SELECT pool.id, pool.scope, embedder.dim, pool.added, pool.removed, pool.top
    FROM pool JOIN embedder ON embedder.id = pool.embedder
    WHERE embedder.name = ? AND pool.scope IN (SELECT value FROM json_each(?)) AND pool.added > pool.removed
    """
    return [Pool(*row) for row in connection.execute(query, (name, Many(scopes)))]


def find_pool(connection: Database, pool: int) -> Pool | None:
    """The pool with this number, if it is still there."""
    query = """
    SELECT pool.id, pool.scope, embedder.dim, pool.added, pool.removed, pool.top
    FROM pool JOIN embedder ON embedder.id = pool.embedder WHERE pool.id = ?
    """
    row = connection.execute(query, (pool,)).fetchone()
    return None if row is None else Pool(*row)


def locate(connection: Database, pool: Pool, ids: Sequence[int]) -> list[tuple[int, int, int]]:
    """Id, slot and passage of those of the vectors that are in the pool."""
    query = "SELECT id, slot, part FROM vector WHERE id IN (SELECT value FROM json_each(?)) AND pool = ?"
    return connection.execute(query, (Many(ids), pool.id)).fetchall()


def find_unembedded(connection: Database, scope: Scope, only: Filter, name: str, limit: int) -> Unembedded:
    """Current notes of the scope that have no vector of this embedder yet, and have not expired."""
    where, values = conditions(scope, Filter())
    query = f"""
    SELECT scope.id, scope.slots, coalesce(pool.id, -1), coalesce(pool.next, 0) FROM scope
    LEFT JOIN pool ON pool.scope = scope.id AND pool.embedder = (SELECT id FROM embedder WHERE name = ?)
    WHERE {" AND ".join(where)} AND scope.slots > coalesce(pool.next, 0)
    """
    alive, moments = conditions(Scope(), Filter(now=only.now))
    missing = f"""
    {NOTE} LEFT JOIN vector ON vector.note = note.seq AND vector.pool = ? AND vector.part = 0
    WHERE note.scope = ? AND note.slot >= ? AND vector.id IS NULL AND newer.seq IS NULL AND {" AND ".join(alive)}
    ORDER BY note.slot LIMIT ?
    """
    found: list[Note] = []
    upto: dict[int, int] = {}
    for scope_id, slots, pool, start in connection.execute(query, (name, *values)).fetchall():
        left = limit - len(found)
        rows = connection.execute(missing, (pool, scope_id, start, *moments, left)).fetchall()
        found += map(read_note, rows)
        if rows:
            upto[scope_id] = rows[-1][SLOT] if len(rows) == left else slots - 1
        if len(found) >= limit:
            break
    return Unembedded(found, upto)


@dataclass
class _Keeper:
    """Writes vectors of one embedder."""

    connection: Database
    embedder: int
    dim: int
    pools: dict[int, int] = field(default_factory=dict)

    def keep(self, note_id: str, rows: NDArray[np.float32]) -> None:
        """Keep the vectors of a note's passages; nothing where the note was deleted or corrected meanwhile."""
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise InputError(f"vectors of {rows.shape[-1]} numbers do not fit the store's, which have {self.dim}")
        query = """
        SELECT seq, scope, slot FROM note
        WHERE id = ? AND NOT EXISTS (SELECT 1 FROM note AS newer WHERE newer.supersedes = note.seq)
        """
        place = self.connection.execute(query, (note_id,)).fetchone()
        if place is None:
            return
        seq, scope, slot = place
        pool = self.find_pool(scope)
        data = [(pool, seq, slot, part, row.astype(KEPT).tobytes()) for part, row in enumerate(rows)]
        insert = "INSERT OR IGNORE INTO vector (pool, note, slot, part, data) VALUES (?, ?, ?, ?, ?)"
        added = self.connection.executemany(insert, data).rowcount
        if added > 0:
            update = "UPDATE pool SET added = added + ?, top = (SELECT max(id) FROM vector WHERE pool = ?) WHERE id = ?"
            self.connection.execute(update, (added, pool, pool))

    def find_pool(self, scope: int) -> int:
        """The pool for vectors of that scope, made where there is none."""
        if scope not in self.pools:
            place = (scope, self.embedder)
            self.connection.execute("INSERT OR IGNORE INTO pool (scope, embedder) VALUES (?, ?)", place)
            query = "SELECT id FROM pool WHERE scope = ? AND embedder = ?"
            (self.pools[scope],) = self.connection.execute(query, place).fetchone()
        return self.pools[scope]


def put(
    connection: Database,
    name: str,
    vectors: Iterable[tuple[str, NDArray[np.float32]]],
    upto: Mapping[int, int],
) -> None:
    """Keep an embedder's vectors, by note a row for each passage; `upto` says how far no note of a scope lacks one."""
    given = list(vectors)
    query = "SELECT id, dim FROM embedder WHERE name = ?"
    known = connection.execute(query, (name,)).fetchone()
    if known is None and given:
        connection.execute("INSERT INTO embedder (name, dim) VALUES (?, ?)", (name, given[0][1].shape[1]))
        known = connection.execute(query, (name,)).fetchone()
    if known is None:
        return
    keeper = _Keeper(connection, *known)
    for note_id, rows in given:
        keeper.keep(note_id, rows)
    for scope, slot in upto.items():
        if connection.execute("SELECT 1 FROM scope WHERE id = ?", (scope,)).fetchone() is not None:
            update = "UPDATE pool SET next = ? WHERE id = ? AND next < ?"
            connection.execute(update, (slot + 1, keeper.find_pool(scope), slot + 1))


def look_again(connection: Database, seqs: Iterable[int]) -> None:
    """Let the notes with these numbers, which are current again, be found where they lack vectors."""
    update = """
    UPDATE pool SET next = (SELECT slot FROM note WHERE seq = ?)
    WHERE scope = (SELECT scope FROM note WHERE seq = ?) AND next > (SELECT slot FROM note WHERE seq = ?)
    """
    connection.executemany(update, [(seq, seq, seq) for seq in seqs])


def drop(connection: Database, keep: str) -> int:
    """How many vectors went: those of every other embedder."""
    others = "SELECT id FROM embedder WHERE name <> ?"
    query = f"SELECT coalesce(sum(added - removed), 0) FROM pool WHERE embedder IN ({others})"
    (gone,) = connection.execute(query, (keep,)).fetchone()
    connection.execute("DELETE FROM embedder WHERE name <> ?", (keep,))
    return int(gone)


def count_unembedded(connection: Database) -> int:
    """How many current notes lack a vector of the embedder that came last; 0 where there was none."""
    newest = connection.execute("SELECT max(id) FROM embedder").fetchone()[0]
    if newest is None:
        return 0
    (current,) = connection.execute("SELECT coalesce(sum(notes), 0) FROM scope").fetchone()
    query = "SELECT count(*) FROM pool JOIN vector ON vector.pool = pool.id AND part = 0 WHERE pool.embedder = ?"
    (embedded,) = connection.execute(query, (newest,)).fetchone()
    return max(0, int(current) - int(embedded))


def cosines(
    connection: Database, pool: Pool, slots: Sequence[int], vector: NDArray[np.float32]
) -> dict[int, tuple[float, int]]:
    """The best cosine of each of these notes of the pool that has vectors, and the passage it is of."""
    query = """
    SELECT note.slot, vector.part, vector.data FROM note
    CROSS JOIN vector ON vector.note = note.seq AND vector.pool = ?
    WHERE note.scope = ? AND note.slot IN (SELECT value FROM json_each(?))
    """  # CROSS keeps the order of the tables: by the vectors of a pool it would read all of them
    rows = connection.execute(query, (pool.id, pool.scope, Many(slots))).fetchall()
    scores = unpack([data for _, _, data in rows], pool.dim) @ vector
    best: dict[int, tuple[float, int]] = {}
    for (slot, part, _), score in zip(rows, scores.tolist(), strict=True):
        if slot not in best or score > best[slot][0]:
            best[slot] = score, part
    return best


def unpack(data: Sequence[bytes], dim: int) -> NDArray[np.float32]:
    """Kept vectors as rows."""
    return np.frombuffer(b"".join(data), KEPT).reshape(len(data), dim).astype(np.float32)
