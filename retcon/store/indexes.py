"""An index for each large pool of vectors: a cache beside the store, made from it and never believed without it.

Up to `INDEX_FROM` vectors a pool is searched by a plain matrix product. Past that its vectors are kept in lists around
centroids (faiss, IVF with float16, extra `index`), and a search looks into the lists that are closest to the query. How
many, is measured when an index is made: as many as find `RECALL` of what an exact search finds.

What an index finds is looked up in the store, in the searcher's own transaction: a vector that is gone, of another pool
or newer than that transaction is not there. Vectors that came after the index are searched exactly, and taken in before
the next search. A file of an index has a random name that its pool notes together with what it holds; a purge removes
every file that holds a vector which was deleted, and those that no pool names.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.store import Nearest
from retcon.store.database import Database
from retcon.store.matrices import Matrix, read
from retcon.store.vectors import Pool, cosines, find_pool, locate

INDEX_FROM = 100_000  # vectors above which a pool has an index
RECALL = 0.99  # of an exact search's best 100, for queries made of the pool's own vectors
NARROW = 20_000  # notes up to which those that pass a filter are compared one by one
SAVE_AFTER = 10_000  # vectors that came since the file was written
GROWN = 2.0  # times the vectors that the centroids were learned from, where they are learned anew

Use = Callable[[], AbstractContextManager[Database]]


@dataclass
class Index:
    """A pool's index in this process, and what of the pool it holds."""

    faiss: Any
    learned: int  # from so many vectors
    ids: NDArray[np.int64]  # of the vectors it holds, ascending
    slots: NDArray[np.int64]
    removed: int  # as the pool counted when they were last compared
    saved: int = 0  # how many vectors the file holds
    nprobe: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)  # one that changes it, or searches it, at a time

    @property
    def top(self) -> int:
        return int(self.ids[-1]) if len(self.ids) else -1


class Indexes:
    """The indexes of one store."""

    def __init__(self, path: str, *, least: int = INDEX_FROM) -> None:
        self.least = least
        self.folder = None if path == ":memory:" else Path(f"{os.path.abspath(path)}.vectors")
        self._held: dict[int, Index] = {}
        self._lock = threading.Lock()

    # -- outside of a search's transaction -----------------------------------------------------------------------------

    def refresh(self, pools: list[Pool], reading: Use, writing: Use) -> None:
        """Bring the indexes of the large ones among these pools up to date."""
        large = [pool for pool in pools if pool.size > self.least]
        if not large or load_faiss() is None:
            return
        with self._lock:
            for pool in large:
                index = self._held.get(pool.id)
                if index is not None and (index.top, index.removed) == (pool.top, pool.removed):
                    continue
                with reading() as connection:
                    index = self._update(connection, pool, index)
                self._held[pool.id] = index
                if len(index.ids) - index.saved > SAVE_AFTER or not index.saved:
                    self._save(pool, index, writing)

    def _update(self, connection: Database, pool: Pool, index: Index | None) -> Index:
        index = index or self._read_file(connection, pool)
        if index is None or pool.size > GROWN * index.learned:
            return build(connection, pool)
        if pool.removed > index.removed:
            drop_gone(connection, pool, index)
        for block in read(connection, pool, index.top):
            add(index, block)
        return index

    def _read_file(self, connection: Database, pool: Pool) -> Index | None:
        faiss = load_faiss()
        query = "SELECT indexed, learned, nprobe FROM pool WHERE id = ?"
        name, learned, nprobe = connection.execute(query, (pool.id,)).fetchone() or (None, 0, 0)
        if name is None or self.folder is None or not (self.folder / name).is_file():
            return None
        try:
            found = faiss.read_index(str(self.folder / name))
            held = np.sort(_held_ids(found))
        except (RuntimeError, AttributeError):  # no index of ours, or half of one
            return None
        if found.d != pool.dim:
            return None
        index = Index(found, learned, held, np.zeros(len(held), np.int64), -1, len(held), nprobe)
        drop_gone(connection, pool, index)
        return index

    def _save(self, pool: Pool, index: Index, writing: Use) -> None:
        """Write the index to a file, and note in its pool what it is."""
        if self.folder is None:
            return
        faiss, name = load_faiss(), f"{os.urandom(16).hex()}.faiss"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        draft = self.folder / f"{name}.new"
        try:
            faiss.write_index(index.faiss, str(draft))
            draft.chmod(0o600)
            draft.rename(self.folder / name)
        finally:
            draft.unlink(missing_ok=True)
        with writing() as connection:
            update = "UPDATE pool SET indexed = ?, indexed_removed = ?, learned = ?, nprobe = ? WHERE id = ?"
            connection.execute(update, (name, index.removed, index.learned, index.nprobe, pool.id))
            named = _named(connection)
        index.saved = len(index.ids)
        self._unlink(lambda file: file not in named)

    def purge(self, reading: Use, writing: Use) -> None:
        """Leave no file that holds a vector which was deleted; indexes in this process are written anew."""
        if self.folder is None or not self.folder.is_dir():
            return
        with self._lock:
            with reading() as connection:
                stale = "SELECT id FROM pool WHERE indexed IS NOT NULL AND indexed_removed <> removed"
                for (pool_id,) in connection.execute(stale).fetchall():
                    index, pool = self._held.get(pool_id), find_pool(connection, pool_id)
                    if index is not None and pool is not None and index.removed < pool.removed:
                        drop_gone(connection, pool, index)
                pools = {pool_id: find_pool(connection, pool_id) for pool_id in self._held}
            for pool_id, pool in pools.items():
                if pool is None:
                    del self._held[pool_id]
                elif self._held[pool_id].removed == pool.removed:
                    self._save(pool, self._held[pool_id], writing)
            with writing() as connection:
                connection.execute("UPDATE pool SET indexed = NULL WHERE indexed_removed <> removed")
                named = _named(connection)
            self._unlink(lambda file: file not in named)
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # where nothing is left

    def _unlink(self, unwanted: Callable[[str], bool]) -> None:
        for file in self.folder.iterdir() if self.folder is not None and self.folder.is_dir() else ():
            if unwanted(file.name):
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Let all of them go."""
        with self._lock:
            self._held.clear()

    # -- in a search's transaction -------------------------------------------------------------------------------------

    def search(
        self, connection: Database, pool: Pool, vector: NDArray[np.float32], k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> Nearest | None:  # fmt: skip
        """The k closest notes of the pool that are allowed; None where the pool has no index here."""
        index = self._held.get(pool.id)
        if index is None:
            return None
        if allowed is not None:
            passing = np.flatnonzero(allowed)
            if len(passing) <= NARROW:
                return _gather(cosines(connection, pool, passing.tolist(), vector).items(), k)
        found = dict(search(connection, pool, index, vector, k, allowed))
        for block in read(connection, pool, index.top):
            near = block.search(vector, k, allowed)
            found |= {
                slot: (score, part)
                for slot, score, part in zip(
                    near.slots.tolist(), near.scores.tolist(), near.parts.tolist(), strict=True
                )
            }
        return _gather(found.items(), k)


def search(
    connection: Database,
    pool: Pool,
    index: Index,
    vector: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None,
) -> Iterator[tuple[int, tuple[float, int]]]:
    """Slots of the closest notes that the index holds and the store confirms, with cosine and passage."""
    faiss = load_faiss()
    wanted, options = k, {"nprobe": index.nprobe}
    if allowed is not None:
        with index.turn:
            ids_held, slots = index.ids, index.slots
        bits = np.zeros(int(ids_held[-1]) + 1 if len(ids_held) else 1, bool)
        inside = slots < len(allowed)
        bits[ids_held[inside]] = allowed[slots[inside]]
        packed = np.packbits(bits, bitorder="little")
        options["sel"] = faiss.IDSelectorBitmap(packed)
    while True:
        with index.turn:
            scores, ids = index.faiss.search(vector[None], wanted, params=faiss.SearchParametersIVF(**options))
        near = {int(each): float(score) for each, score in zip(ids[0], scores[0], strict=True) if each >= 0}
        best: dict[int, tuple[float, int]] = {}
        for vector_id, slot, part in locate(connection, pool, list(near)):
            score = near[vector_id]
            if score > 0 and (slot not in best or score > best[slot][0]):
                best[slot] = score, part
        if len(best) >= k or len(near) < wanted or wanted >= 8 * k:  # many passages of a few notes: look further
            yield from best.items()
            return
        wanted *= 2


def _gather(found: Any, k: int) -> Nearest:
    rows = sorted(((score, -slot, part) for slot, (score, part) in found if score > 0), reverse=True)[:k]
    return Nearest(
        np.array([-row[1] for row in rows], np.int64), np.array([row[0] for row in rows], np.float64),
        np.array([row[2] for row in rows], np.int64),
    )  # fmt: skip


# -- making and keeping ------------------------------------------------------------------------------------------------


def build(connection: Database, pool: Pool) -> Index:
    """An index of all vectors of the pool, with centroids learned from a sample of them."""
    faiss = load_faiss()
    lists = int(2 ** np.round(np.log2(2 * np.sqrt(pool.size))))
    sample = _sample(connection, pool, 40 * lists)
    made = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(pool.dim), pool.dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT,
        False,
    )  # fmt: skip
    made.cp.niter, made.cp.min_points_per_centroid = 8, 1
    made.train(sample)
    empty = np.empty(0, np.int64)
    index = Index(made, pool.size, empty, empty, pool.removed)
    for block in read(connection, pool):
        deadline.check()
        add(index, block)
    index.nprobe = choose_nprobe(made, sample)
    return index


def _sample(connection: Database, pool: Pool, size: int) -> NDArray[np.float32]:
    """So many vectors of the pool, from all over it."""
    step = max(1, pool.size // size)
    parts = [block.rows[::step].copy() for block in read(connection, pool)]
    return np.concatenate(parts)


def choose_nprobe(made: Any, sample: NDArray[np.float32], queries: int = 64, best: int = 100) -> int:
    """In how many lists to look, so that enough of an exact search is found.

    A question is not as close to any note as notes are to each other: a query here lies between two of the vectors.
    """
    faiss, chance = load_faiss(), np.random.default_rng(0)
    one, other = (sample[chance.choice(len(sample), queries)] for _ in range(2))
    asked = 0.8 * one + 0.6 * other
    asked /= np.maximum(np.linalg.norm(asked, axis=1, keepdims=True), 1e-9)
    exact = made.search(asked, best, params=faiss.SearchParametersIVF(nprobe=made.nlist))[1]
    lists = int(made.nlist)
    nprobe = max(1, lists // 64)
    while nprobe < lists:
        found = made.search(asked, best, params=faiss.SearchParametersIVF(nprobe=nprobe))[1]
        shared = np.mean([len(np.intersect1d(a, b)) / best for a, b in zip(found, exact, strict=True)])
        if shared >= RECALL:
            break
        nprobe = int(nprobe * 1.25) + 1
    return min(nprobe, lists)


def add(index: Index, block: Matrix) -> None:
    """Take the vectors of the block in."""
    with index.turn:
        index.faiss.add_with_ids(np.ascontiguousarray(block.rows), block.ids)
        index.ids, index.slots = np.append(index.ids, block.ids), np.append(index.slots, block.slots)


def drop_gone(connection: Database, pool: Pool, index: Index) -> None:
    """Take out what the pool has lost, and learn whose the others are."""
    query = "SELECT id, slot FROM vector WHERE pool = ? AND id <= ? ORDER BY id"
    rows = np.array(connection.execute(query, (pool.id, index.top)).fetchall(), np.int64).reshape(-1, 2)
    gone = np.setdiff1d(index.ids, rows[:, 0], assume_unique=True)
    kept = np.isin(rows[:, 0], index.ids, assume_unique=True)
    with index.turn:
        if len(gone):
            index.faiss.remove_ids(load_faiss().IDSelectorBatch(gone))
        index.ids, index.slots, index.removed = rows[kept, 0].copy(), rows[kept, 1].copy(), pool.removed


def _held_ids(made: Any) -> NDArray[np.int64]:
    """Ids of the vectors that an index holds."""
    faiss, lists = load_faiss(), made.invlists
    sizes = [(each, lists.list_size(each)) for each in range(made.nlist)]
    parts = [faiss.rev_swig_ptr(lists.get_ids(each), size).copy() for each, size in sizes if size]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _named(connection: Database) -> set[str]:
    return {row[0] for row in connection.execute("SELECT indexed FROM pool WHERE indexed IS NOT NULL")}


_MISSING: list[bool] = []


def load_faiss() -> Any:
    """The package, or None where it is missing; then one warning says what it is for."""
    try:
        import faiss
    except ImportError:
        if not _MISSING:
            _MISSING.append(True)
            text = f"more than {INDEX_FROM} vectors are searched one by one: pip install 'retcon-memory[index]'"
            warnings.warn(text, stacklevel=2)
        return None
    return faiss
