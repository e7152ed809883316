"""A consistent view of the notes and postings of one or more scopes, for the length of one read transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.language import Language
from retcon.note import Filter, Note, Scope
from retcon.store import Facts, Forward, Lists, Nearest, Passages, Postings, TermStats, postings, seal, vectors
from retcon.store.database import IN, Database, Many
from retcon.store.indexes import Indexes
from retcon.store.matrices import Matrices
from retcon.store.rows import NOTE, SLOT, check_of, conditions, facts, read_note
from retcon.store.vectors import Pool

FEW = 100  # values up to which a statement names each; for more one JSON list is quicker than to prepare it anew
STEP = 20  # values by which statements differ, so that they are few and stay prepared


class SqlSnapshot:
    """The notes of the given scope rows. Slots of the second scope go on where those of the first end, and so forth."""

    def __init__(
        self,
        connection: Database,
        scopes: Sequence[tuple[int, int, int, int]],
        matrices: Matrices | None = None,
        indexes: Indexes | None = None,
        *,
        language: Language | None = None,
    ) -> None:
        """`scopes` holds (id, notes, length, slots) of each scope; vectors may be held in memory, or in an index."""
        self._connection, self._matrices = connection, matrices or Matrices()
        self._indexes = indexes or Indexes(":memory:")
        self.language = language or seal.language_of(connection)
        self._ids = [row[0] for row in scopes]
        self._starts = [0, *accumulate(row[3] for row in scopes)]
        self._start = dict(zip(self._ids, self._starts, strict=False))
        self._ends = dict(zip(self._ids, self._starts[1:], strict=True))
        self._rows: dict[int, list[tuple[int, int, bytes]]] = {}  # term -> (scope, df, tail), as read by `terms`
        self._terms: dict[int, TermStats | None] = {}  # as read so far; None: no note holds it
        self._lists: dict[int, Postings] = {}  # of terms, as read so far
        self._docs: dict[int, tuple[int, bytes]] = {}  # slot -> length and terms of its note, as read so far
        self._notes: dict[int, Note] = {}  # slot -> its note, as read so far
        self.notes = sum(row[1] for row in scopes)
        self.mean_length = sum(row[2] for row in scopes) / self.notes if self.notes else 0.0
        self.slots = self._starts[-1]

    def terms(self, keys: Sequence[int]) -> Mapping[int, TermStats]:
        """Frequency and bounds of those terms that occur."""
        new = [key for key in keys if key not in self._terms]
        self._terms |= dict.fromkeys(new)
        for scope, term, df, peak, low, tail in self._posting_rows(new) if new else ():
            known = self._terms[term]
            if known is None:
                self._rows[term] = [(scope, df, tail)]
                self._terms[term] = TermStats(df, peak, low)
            else:
                self._rows[term].append((scope, df, tail))
                self._terms[term] = TermStats(df + known.df, max(peak, known.peak), min(low, known.low))
        return {key: found for key in keys if (found := self._terms[key]) is not None}

    def postings(self, key: int) -> Postings:
        """Every note that holds a term which `terms` has found; read once."""
        if key not in self._lists:
            parts = []
            for scope, df, tail in self._rows[key]:
                start = np.uint32(self._start[scope])
                for part in self._list(scope, key, tail, df):
                    parts.append(Postings(part.slots + start, part.counts, part.lengths) if start else part)
            self._lists[key] = postings.concat(parts)
        return self._lists[key]

    def lists(self, keys: Sequence[int]) -> Lists:
        """The same of several terms. Rare ones are short, and read as one."""
        rows = [row for key in keys for row in self._rows[key]]
        if len(self._ids) == 1 and all(postings.is_whole(tail, df) for _, df, tail in rows):
            return Lists(postings.decode_tail(b"".join([tail for _, _, tail in rows])), [df for _, df, _ in rows])
        every = [self.postings(key) for key in keys]
        return Lists(postings.concat(every), [len(listed.slots) for listed in every])

    def _list(self, scope: int, key: int, tail: bytes, df: int) -> Iterator[Postings]:
        """The entries of a term in one scope, in pieces."""
        return postings.read(self._connection, scope, key, tail, df=df)

    def forward(self, slots: NDArray[np.int64], keys: Sequence[int]) -> Forward:
        """How often each of the notes holds each of the terms, and how long the notes are."""
        found = self._read_docs(slots.tolist())
        entries = np.frombuffer(b"".join([terms for _, terms in found]), postings.ENTRY)
        row = np.repeat(np.arange(len(found)), [len(terms) // postings.ENTRY.itemsize for _, terms in found])
        counts = np.zeros((len(found), len(keys)), np.uint16)
        entry_keys, entry_counts = np.ascontiguousarray(entries["key"]), entries["count"]
        for column, key in enumerate(keys):
            at = (entry_keys == key).nonzero()[0]
            counts[row[at], column] = entry_counts[at]
        return Forward(counts, np.array([length for length, _ in found], np.uint16))

    def passages(self, slots: NDArray[np.int64], keys: Sequence[int]) -> Passages:
        """How often each passage of the long ones among the notes holds each of the terms, and how long it is."""
        long = list(self._passage_rows(slots))
        if not long:
            return Passages(np.empty(0, np.int64), np.empty((0, len(keys)), np.uint16), np.empty(0, np.uint16))
        place = {slot: row for row, slot in enumerate(slots.tolist())}
        found = [(place[slot], *postings.decode_passages(data)) for slot, data in long]
        sizes = np.concatenate([part[1] for part in found])
        rows = np.repeat(np.array([part[0] for part in found], np.int64), [len(part[1]) for part in found])
        terms = np.concatenate([part[2] for part in found])
        owner = np.repeat(np.arange(len(sizes)), sizes)
        counts = np.zeros((len(sizes), len(keys)), np.uint16)
        for column, key in enumerate(postings.shorten(np.array(keys, np.int64)).tolist()):
            counts[:, column] = np.bincount(owner[terms == key], minlength=len(sizes))
        return Passages(rows, counts, sizes.astype(np.uint16))

    def mask(self, only: Filter) -> NDArray[np.bool_] | None:
        """Which slots pass the filter; None where all do."""
        if not replace(only, without=()):
            return self._leave_out(only.without, self._unexpired(only.now))
        mask = np.zeros(self.slots, bool)
        check = check_of(only)
        where, values = conditions(Scope(), only)
        query = f"SELECT slot, {facts(only)} FROM note WHERE scope = ? AND {' AND '.join(where)}"
        for scope in self._ids:
            start = self._start[scope]
            for slot, *row in self._connection.execute(query, (scope, *values)):
                mask[start + slot] = check is None or check(row)
        return mask

    def _unexpired(self, now: str | None) -> NDArray[np.bool_] | None:
        if now is None:
            return None
        query = f"SELECT scope, slot FROM note WHERE scope {IN} AND expires_at <= ?"
        expired = self._connection.execute(query, (Many(self._ids), now)).fetchall()
        if not expired:
            return None
        mask = np.ones(self.slots, bool)
        mask[[self._start[scope] + slot for scope, slot in expired]] = False
        return mask

    def _leave_out(self, ids: Sequence[str], mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """The mask without these notes: found by their ids, so that it costs the same in a store of any size."""
        if not ids:
            return mask
        query = f"SELECT scope, slot FROM note WHERE id {IN}"
        found = [each for each in self._connection.execute(query, (Many(ids),)) if each[0] in self._start]
        mask = np.ones(self.slots, bool) if mask is None else mask
        mask[[self._start[scope] + slot for scope, slot in found]] = False
        return mask

    def fetch(self, slots: Sequence[int]) -> list[Note]:
        """The notes in these slots, in the order asked for."""
        for scope, local in self._by_scope([slot for slot in slots if slot not in self._notes]):
            start = self._start[scope]
            for row in self._rows_of(f"{NOTE}WHERE note.scope = ? AND note.slot", scope, local):
                self._notes[start + row[SLOT]] = read_note(row)
        return [self._notes[slot] for slot in slots]

    def places(self, slots: Sequence[int]) -> list[int]:
        """The place of each note in the order of insertion; of several scopes, over all of them."""
        if len(self._ids) <= 1:
            return list(slots)
        found: dict[int, int] = {}
        query = f"SELECT slot, seq FROM note WHERE scope = ? AND slot {IN}"
        for scope, local in self._by_scope(slots):
            for slot, seq in self._connection.execute(query, (scope, Many(local))):
                found[self._start[scope] + slot] = seq
        return [found[slot] for slot in slots]

    def facts(self, slots: Sequence[int]) -> Facts:
        """Who said each note, and in which session."""
        found: dict[int, tuple[str | None, tuple[int, str] | None]] = {}
        for scope, local in self._by_scope(slots):
            start = self._start[scope]
            rows = self._rows_of("SELECT slot, speaker, session FROM note WHERE scope = ? AND slot", scope, local)
            found |= {
                start + slot: (speaker, None if session is None else (scope, session))
                for slot, speaker, session in rows
            }
        every = [found[slot] for slot in slots]
        return Facts([speaker for speaker, _ in every], [session for _, session in every])

    def texts(self) -> Iterator[tuple[int, Note]]:
        """Every current note with its slot, oldest first within a scope."""
        query = NOTE + "WHERE note.scope = ? AND newer.seq IS NULL ORDER BY note.slot"
        for scope in self._ids:
            for row in self._connection.execute(query, (scope,)):
                yield self._start[scope] + row[SLOT], read_note(row)

    def recent(self, limit: int, only: Filter) -> list[int]:
        """Slots of the newest current notes that pass the filter, newest first."""
        where, values = conditions(Scope(), only)
        check = check_of(only)
        one = len(self._ids) == 1  # slots are in the order of `seq`, and have an index
        query = (
            f"SELECT note.scope, note.slot, {facts(only)} FROM note "
            f"LEFT JOIN note AS newer ON newer.supersedes = note.seq "
            f"WHERE note.scope {'= ?' if one else IN} AND newer.seq IS NULL AND {' AND '.join(where)} "
            f"ORDER BY {'note.slot' if one else 'note.seq'} DESC{f' LIMIT {int(limit)}' if check is None else ''}"
        )
        whose = self._ids[0] if one else Many(self._ids)
        found: list[int] = []
        for scope, slot, *row in self._connection.execute(query, (whose, *values)):
            if check is not None and not check(row):
                continue
            found.append(self._start[scope] + slot)
            if len(found) >= limit:
                break
        return found

    def nearest(self, embedder: str, vector: NDArray[np.float32], k: int, only: Filter) -> Nearest:
        """The k notes that pass the filter and are closest to the vector, by this embedder."""
        pools = vectors.find_pools(self._connection, embedder, self._ids)
        return best_of(self._search(pools, vector, k, self.mask(only)), k)

    def _search(
        self, pools: Sequence[Pool], vector: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> list[Nearest]:
        """The k closest notes of each pool that are allowed, or more of them."""
        found = []
        for pool in pools:
            start = self._start[pool.scope]
            mask = None if allowed is None else allowed[start : self._ends[pool.scope]]
            listed = self._indexes.search(self._connection, pool, vector, k, mask)
            if listed is not None:
                found.append(Nearest(listed.slots + start, listed.scores, listed.parts))
                continue
            for block in self._matrices.blocks(self._connection, pool):
                deadline.check()
                near = block.search(vector, k, mask)
                found.append(Nearest(near.slots + start, near.scores, near.parts))
        return found

    def cosines(self, embedder: str, vector: NDArray[np.float32], slots: Sequence[int]) -> Nearest:
        """How close each of these notes is to the vector; those without one of this embedder are left out."""
        pools = {pool.scope: pool for pool in vectors.find_pools(self._connection, embedder, self._ids)}
        rows: list[tuple[int, float, int]] = []
        for scope, local in self._by_scope(slots):
            if scope in pools:
                best = vectors.cosines(self._connection, pools[scope], local, vector)
                rows += [(self._start[scope] + slot, score, part) for slot, (score, part) in best.items()]
        return Nearest(
            np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64),
            np.array([row[2] for row in rows], np.int64),
        )  # fmt: skip

    def _posting_rows(self, keys: Sequence[int]) -> Iterable[tuple[int, int, int, int, int, bytes]]:
        if len(self._ids) == 1:
            query = "SELECT scope, term, df, peak, low, tail FROM posting WHERE scope = ? AND term"
            return self._rows_of(query, self._ids[0], keys)
        query = f"SELECT scope, term, df, peak, low, tail FROM posting WHERE scope {IN} AND term {IN}"
        return self._connection.execute(query, (Many(self._ids), Many(keys)))

    def _read_docs(self, slots: Sequence[int]) -> list[tuple[int, bytes]]:
        """Length and terms of the notes in these slots, each read once."""
        for scope, local in self._by_scope([slot for slot in slots if slot not in self._docs]):
            start = self._start[scope]
            rows = self._rows_of("SELECT slot, length, terms FROM doc WHERE scope = ? AND slot", scope, local)
            self._docs |= {start + slot: (length, terms) for slot, length, terms in rows}
        return [self._docs[slot] for slot in slots]

    def _passage_rows(self, slots: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        query = "SELECT slot, passages FROM doc INDEXED BY doc_long WHERE scope = ? AND passages IS NOT NULL AND slot"
        for scope, local in self._by_scope(slots.tolist()):
            for slot, data in self._rows_of(query, scope, local):
                yield self._start[scope] + slot, data

    def _rows_of(self, query: str, scope: int, values: Sequence[int]) -> Iterable[Any]:
        """The rows of a query that ends with the column which must have one of the values."""
        if len(values) > FEW:
            return self._connection.execute(f"{query} {IN}", (scope, Many(values)))
        named = [*values, *[values[-1]] * (-len(values) % STEP)]  # the last again and again, which changes nothing
        return self._connection.execute(_name_values(query, len(named)), (scope, *named))

    def _by_scope(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """The slots as (scope, slots within that scope)."""
        if len(self._ids) == 1 and len(slots):
            yield self._ids[0], list(slots)
        elif len(slots):
            places = np.asarray(slots, np.int64)
            owners = np.searchsorted(self._starts, places, side="right") - 1
            for owner in np.unique(owners).tolist():
                yield self._ids[owner], (places[owners == owner] - self._starts[owner]).tolist()


@lru_cache(maxsize=64)
def _name_values(query: str, many: int) -> str:
    """The query with a place for each of so many values at its end."""
    return f"{query} IN ({', '.join('?' * many)})"


def best_of(found: Sequence[Nearest], k: int) -> Nearest:
    """The k best of several finds."""
    if not found:
        return Nearest(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64))
    slots, scores = np.concatenate([each.slots for each in found]), np.concatenate([each.scores for each in found])
    at = np.lexsort((slots, -scores))[:k]
    return Nearest(slots[at], scores[at], np.concatenate([each.parts for each in found])[at])
