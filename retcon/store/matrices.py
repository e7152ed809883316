"""Vectors held in this process: a matrix for each pool, brought up to date before it is searched.

A matrix is float32: NumPy multiplies that at the speed of memory, and float16 ten times slower. All matrices of a
store together take at most `MOST_BYTES`; those searched longest ago go first. A pool that is larger alone is read
from the file in blocks at every search, and none of it is held.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.store import Nearest
from retcon.store.database import Database
from retcon.store.vectors import Pool, unpack

MOST_BYTES = 2**30  # of vectors held by one open store
BLOCK = 20_000  # vectors that are read at once


@dataclass(frozen=True, slots=True)
class Matrix:
    """Vectors of a pool in the order they were kept; passages of one note stand together."""

    ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    rows: NDArray[np.float32]
    starts: NDArray[np.int64]  # the first row of each note
    removed: int  # as the pool counted them when these were read

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Nearest:
        """The k notes whose best passage is closest to the vector, among the slots that are allowed."""
        scores = self.rows @ vector
        best = scores if len(self.starts) == len(scores) else np.maximum.reduceat(scores, self.starts)
        slots = self.slots[self.starts]
        keep = best > 0
        if allowed is not None:
            keep &= allowed[slots]
        at = np.flatnonzero(keep)
        if len(at) > k:
            at = at[best[at] >= np.partition(best[at], len(at) - k)[len(at) - k]]
            at = at[np.lexsort((slots[at], -best[at]))[:k]]  # of equals the oldest, as everywhere
        return Nearest(slots[at], best[at].astype(np.float64), self._parts(scores, at))

    def _parts(self, scores: NDArray[np.float32], notes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which passage of each of these notes is the closest."""
        ends = np.append(self.starts, len(scores))
        return np.array([scores[ends[note] : ends[note + 1]].argmax() for note in notes.tolist()], np.int64)


class Matrices:
    """The matrices of one store, by pool."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._held: OrderedDict[int, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What the matrices take."""
        return sum(matrix.rows.nbytes for matrix in self._held.values())

    def blocks(self, connection: Database, pool: Pool) -> Iterator[Matrix]:
        """All vectors of the pool as the connection's transaction sees them, in one matrix or in several."""
        if 4 * pool.dim * pool.size > self.most_bytes:
            yield from read(connection, pool)
            return
        with self._lock:
            held = self._held.get(pool.id)
            matrix = load(connection, pool) if held is None else update(connection, pool, held)
            self._held[pool.id] = matrix
            self._held.move_to_end(pool.id)
            while self.bytes > self.most_bytes and len(self._held) > 1:
                self._held.popitem(last=False)
        newer = int(np.searchsorted(matrix.ids, pool.top, side="right"))  # kept since this transaction began
        yield matrix if newer == len(matrix.ids) else cut(matrix, newer)

    def clear(self) -> None:
        """Let all of them go."""
        with self._lock:
            self._held.clear()


def read(connection: Database, pool: Pool, after: int = -1) -> Iterator[Matrix]:
    """The vectors of the pool that were kept after that one, in blocks; no note is in two of them."""
    query = "SELECT id, slot, data FROM vector WHERE pool = ? AND id > ? ORDER BY id"
    cursor = connection.execute(query, (pool.id, after))
    rest: list[tuple[int, int, bytes]] = []
    while rows := cursor.fetchmany(BLOCK):
        deadline.check()
        rows = rest + rows
        cut_at = len(rows)
        while len(rows) == BLOCK + len(rest) and cut_at > 1 and rows[cut_at - 1][1] == rows[-1][1]:
            cut_at -= 1  # the last note may go on in the next block
        rest = rows[cut_at:]
        if cut_at:
            yield _matrix(rows[:cut_at], pool)
    if rest:
        yield _matrix(rest, pool)


def _matrix(rows: list[tuple[int, int, bytes]], pool: Pool) -> Matrix:
    slots = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    return Matrix(ids, slots, unpack([row[2] for row in rows], pool.dim), find_starts(slots), pool.removed)


def find_starts(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each note begins."""
    return np.flatnonzero(np.diff(slots, prepend=-1))


def load(connection: Database, pool: Pool) -> Matrix:
    """All vectors of the pool."""
    empty = Matrix(
        np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, pool.dim), np.float32), np.empty(0, np.int64),
        pool.removed,
    )  # fmt: skip
    return extend(empty, list(read(connection, pool)), room=pool.size)


def update(connection: Database, pool: Pool, held: Matrix) -> Matrix:
    """The matrix with what the pool has got and lost since; one that is newer than the pool stays as it is."""
    if pool.removed > held.removed:
        query = "SELECT id FROM vector WHERE pool = ? AND id <= ? ORDER BY id"
        last = int(held.ids[-1]) if len(held.ids) else -1
        there = np.fromiter((row[0] for row in connection.execute(query, (pool.id, last))), np.int64)
        held = keep_rows(held, np.isin(held.ids, there, assume_unique=True), pool.removed)
    last = int(held.ids[-1]) if len(held.ids) else -1
    return extend(held, list(read(connection, pool, last))) if pool.top > last else held


def keep_rows(held: Matrix, keep: NDArray[np.bool_], removed: int) -> Matrix:
    """The matrix without the other rows."""
    slots = held.slots[keep]
    return Matrix(held.ids[keep], slots, held.rows[keep], find_starts(slots), removed)


def cut(matrix: Matrix, rows: int) -> Matrix:
    """The first rows of the matrix."""
    starts = matrix.starts[: np.searchsorted(matrix.starts, rows)]
    return replace(
        matrix, ids=matrix.ids[:rows], slots=matrix.slots[:rows], rows=matrix.rows[:rows], starts=starts
    )  # fmt: skip


def extend(held: Matrix, more: list[Matrix], *, room: int = 0) -> Matrix:
    """The matrix with more rows after its own. What has room is written in place: those who use it see no change."""
    if not more:
        return held
    size, new = len(held.ids), sum(len(each.ids) for each in more)
    rows = _room(held.rows, max(size + new, room))
    np.concatenate([each.rows for each in more], out=rows[size : size + new])
    ids, slots = (
        np.concatenate([getattr(held, name), *(getattr(each, name) for each in more)]) for name in ("ids", "slots")
    )
    return Matrix(ids, slots, rows[: size + new], find_starts(slots), held.removed)


def _room(rows: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """An array of that many rows or more that begins with these."""
    base = rows.base if isinstance(rows.base, np.ndarray) and rows.base.shape[1:] == rows.shape[1:] else rows
    if len(base) >= size:
        return base
    larger = np.empty((size + size // 4 if len(rows) else size, rows.shape[1]), np.float32)
    larger[: len(rows)] = rows
    return larger
