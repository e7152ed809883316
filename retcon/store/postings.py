"""The lexical index inside the database: which notes of a scope hold a term, how often, and how long they are.

A scope's term has one `posting` row (document frequency, bounds, and a short tail that takes new entries) and, once it
is common, `block` rows of up to 4,096 entries. Adding a note touches one small row per term; reading a common term
takes a few large blobs that numpy maps without copying. The forward side (`doc`) lists the terms of each note: it
serves exact scores for a handful of candidates, and tells a delete which rows to touch.

Everything here runs inside the caller's transaction, so that truth and index never part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retcon.store import Postings
from retcon.store.database import IN, Damage, Database, Many

TAIL = 64  # entries a posting row keeps before they move to a block
BLOCK = 4096  # entries of a full block: 32 KiB
LIMIT = 65535  # counts and lengths saturate here

ENTRY = np.dtype([("key", "<i8"), ("count", "<u2")])  # one term of a doc row
_TAIL_ENTRY = np.dtype([("slot", "<u4"), ("count", "<u2"), ("length", "<u2")])  # appending to a tail joins bytes
_EMPTY = Postings(np.empty(0, "<u4"), np.empty(0, "<u2"), np.empty(0, "<u2"))


class Doc(NamedTuple):
    """One note as the index sees it."""

    note: int  # its seq
    slot: int
    parts: Sequence[tuple[int, Sequence[int]]]  # weight, keys of the terms that have it, repeated as they occur
    passages: Sequence[Sequence[int]] = ()  # of a long note: keys of the terms of each

    @property
    def length(self) -> int:
        return min(sum(weight * len(keys) for weight, keys in self.parts), LIMIT)


def insert(connection: Database, scope: int, docs: Sequence[Doc], *, newest: bool, first: bool = False) -> None:
    """Index the docs. `newest` promises slots above all that the scope has indexed, which makes it an append.

    `first` promises that it has indexed none.
    """
    if not docs:
        return
    docs = sorted(docs, key=lambda doc: doc.slot)
    terms, lengths = _count_terms(docs), [doc.length for doc in docs]
    connection.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?)", _doc_rows(scope, docs, lengths, terms))
    _resize(connection, scope, len(docs), sum(lengths))
    groups = _by_term(terms, [doc.slot for doc in docs], lengths)
    found = {} if first else _posting_rows(connection, scope, [group[0] for group in groups])
    place = _append if newest else _insert_older
    spilled: dict[int, Postings] = {}
    rows = [
        (scope, *group)
        if group[1] <= TAIL and group[0] not in found  # a new term: its entries are its tail
        else place(connection, scope, found.get(group[0]), _Group(*group), spilled)
        for group in groups
    ]
    connection.executemany("INSERT OR REPLACE INTO posting VALUES (?, ?, ?, ?, ?, ?)", rows)
    _spill(connection, scope, spilled, {} if first else _last_blocks(connection, scope, list(spilled)))


_DocRow = tuple[int, int, int, int, bytes, bytes | None]


def rows(scope: int, docs: Sequence[Doc]) -> Iterator[_DocRow]:
    """The rows of the forward side that these docs, whose slots ascend, give."""
    return _doc_rows(scope, docs, [doc.length for doc in docs], _count_terms(docs))


def remove(connection: Database, scope: int, slots: Iterable[int]) -> None:
    """Take the notes in these slots out of the index; slots that are not indexed are passed over."""
    query = f"SELECT slot, length, terms FROM doc WHERE scope = ? AND slot {IN} ORDER BY slot"
    docs = connection.execute(query, (scope, Many(int(slot) for slot in slots))).fetchall()
    if not docs:
        return
    lengths = [doc[1] for doc in docs]
    _resize(connection, scope, -len(docs), -sum(lengths))
    connection.executemany("DELETE FROM doc WHERE scope = ? AND slot = ?", [(scope, doc[0]) for doc in docs])
    terms = _read_terms([doc[2] for doc in docs])
    groups = [_Group(*group) for group in _by_term(terms, [doc[0] for doc in docs], lengths)]
    found = _posting_rows(connection, scope, [group.key for group in groups])
    for group in groups:
        _take_out(connection, scope, found[group.key], group)


def read(connection: Database, scope: int, key: int, tail: bytes, *, df: int = -1) -> Iterator[Postings]:
    """All entries of a term, oldest first, in pieces; where the tail has all `df` of them, no block is looked for."""
    if not is_whole(tail, df):
        query = "SELECT data FROM block WHERE scope = ? AND term = ? ORDER BY first"
        for (data,) in connection.execute(query, (scope, key)):
            yield decode(data)
    if tail:
        yield decode_tail(tail)


def is_whole(tail: bytes, df: int) -> bool:
    """Whether the tail has all entries of the term."""
    return len(tail) == df * _TAIL_ENTRY.itemsize


def decode(data: bytes) -> Postings:
    """The arrays of a block, without copying: slots, then counts, then lengths."""
    n = len(data) // 8
    return Postings(
        np.frombuffer(data, "<u4", n), np.frombuffer(data, "<u2", n, 4 * n), np.frombuffer(data, "<u2", n, 6 * n)
    )


def encode(postings: Postings) -> bytes:
    """The arrays as a block."""
    return postings.slots.tobytes() + postings.counts.tobytes() + postings.lengths.tobytes()


def decode_tail(data: bytes) -> Postings:
    """The arrays of a tail, without copying."""
    entries = np.frombuffer(data, _TAIL_ENTRY)
    return Postings(entries["slot"], entries["count"], entries["length"])


def encode_tail(postings: Postings) -> bytes:
    """The arrays as a tail."""
    entries = np.empty(len(postings.slots), _TAIL_ENTRY)
    entries["slot"], entries["count"], entries["length"] = postings.slots, postings.counts, postings.lengths
    return entries.tobytes()


def concat(parts: Sequence[Postings]) -> Postings:
    """The parts as one list."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _EMPTY
    return Postings(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


def _resize(connection: Database, scope: int, notes: int, length: int) -> None:
    connection.execute("UPDATE scope SET notes = notes + ?, length = length + ? WHERE id = ?", (notes, length, scope))


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of several docs, one doc after the other, each term of a doc once."""

    keys: NDArray[np.int64]
    counts: NDArray[np.uint16]
    sizes: NDArray[np.int64]  # terms of each doc
    order: NDArray[np.int64]  # by key, and by doc within a key


def _count_terms(docs: Sequence[Doc]) -> _Terms:
    runs = [keys for doc in docs for _, keys in doc.parts]
    sizes = np.fromiter(map(len, runs), np.int64, len(runs))
    keys = np.fromiter(chain.from_iterable(runs), np.int64, int(sizes.sum()))
    rows = np.repeat(np.repeat(np.arange(len(docs)), [len(doc.parts) for doc in docs]), sizes)
    weights = np.repeat(np.array([weight for doc in docs for weight, _ in doc.parts], np.int64), sizes)
    order = np.argsort(keys, kind="stable")
    starts = _starts(keys[order], rows[order])
    counts = np.zeros(len(keys), np.int64)
    if len(keys):
        counts[order[starts]] = np.add.reduceat(weights[order], starts)
    kept = counts > 0  # where a doc has a term for the first time
    place = np.cumsum(kept) - 1
    return _Terms(
        keys[kept],
        np.minimum(counts[kept], LIMIT).astype("<u2"),
        np.bincount(rows[kept], minlength=len(docs)),
        place[order[starts]],
    )


def _read_terms(blobs: Sequence[bytes]) -> _Terms:
    entries = np.frombuffer(b"".join(blobs), ENTRY)
    sizes = np.array([len(blob) // ENTRY.itemsize for blob in blobs], np.int64)
    return _Terms(entries["key"], entries["count"], sizes, np.argsort(entries["key"], kind="stable"))


def _starts(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a row differs from the row before it."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def _doc_rows(scope: int, docs: Sequence[Doc], lengths: Sequence[int], terms: _Terms) -> Iterator[_DocRow]:
    entries = np.empty(len(terms.keys), ENTRY)
    entries["key"], entries["count"] = terms.keys, terms.counts
    data, ends = entries.tobytes(), (np.cumsum(terms.sizes) * ENTRY.itemsize).tolist()
    for doc, length, start, end in zip(docs, lengths, [0, *ends], ends, strict=False):
        yield scope, doc.slot, doc.note, length, data[start:end], _encode_passages(doc.passages)


def _encode_passages(passages: Sequence[Sequence[int]]) -> bytes | None:
    """How many there are, how long each is, and the terms of one after the other."""
    if not passages:
        return None
    head = [len(passages), *map(len, passages)]
    keys = np.fromiter(chain.from_iterable(passages), np.int64)
    return np.array(head, "<u4").tobytes() + shorten(keys).tobytes()


def decode_passages(data: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Lengths of the passages, and the terms of one after the other."""
    numbers = np.frombuffer(data, "<u4")
    start = 1 + int(numbers[0])
    return numbers[1:start], numbers[start:]


def shorten(keys: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The keys as they are kept of passages: 32 bits tell the few terms of a query apart."""
    return (keys & 0xFFFFFFFF).astype("<u4")


class _Group(NamedTuple):
    """Entries of one term, slots ascending."""

    key: int
    df: int
    peak: int
    low: int
    data: bytes  # as in a tail


def _by_term(terms: _Terms, slots: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int, int, int, bytes]]:
    """The terms of docs with these slots, which ascend, grouped by key: the fields of a `_Group` each."""
    if not len(terms.keys):
        return []
    keys, order = terms.keys[terms.order], terms.order
    entries = np.empty(len(keys), _TAIL_ENTRY)
    entries["slot"] = np.repeat(np.array(slots, "<u4"), terms.sizes)[order]
    entries["count"] = terms.counts[order]
    entries["length"] = np.repeat(np.array(lengths, "<u2"), terms.sizes)[order]
    starts = _starts(keys)
    dfs = np.diff(starts, append=len(keys)).tolist()
    peaks = np.maximum.reduceat(entries["count"], starts).tolist()
    lows = np.minimum.reduceat(entries["length"], starts).tolist()
    data, ends = entries.tobytes(), (np.append(starts[1:], len(keys)) * _TAIL_ENTRY.itemsize).tolist()
    blobs = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return list(zip(keys[starts].tolist(), dfs, peaks, lows, blobs, strict=True))


def _slice(entries: Postings, start: int, stop: int) -> Postings:
    return Postings(entries.slots[start:stop], entries.counts[start:stop], entries.lengths[start:stop])


_Row = tuple[int, int, int, bytes]  # df, peak, low, tail


def _posting_rows(connection: Database, scope: int, keys: Sequence[int]) -> dict[int, _Row]:
    query = f"SELECT term, df, peak, low, tail FROM posting WHERE scope = ? AND term {IN}"
    return {term: (df, peak, low, tail) for term, df, peak, low, tail in connection.execute(query, (scope, Many(keys)))}


def _grow(row: _Row | None, new: _Group) -> tuple[int, int, int]:
    return (row[0] + new.df, max(row[1], new.peak), min(row[2], new.low)) if row else (new.df, new.peak, new.low)


_NewRow = tuple[int, int, int, int, int, bytes]  # of `posting`


def _append(_: Database, scope: int, row: _Row | None, new: _Group, spilled: dict[int, Postings]) -> _NewRow:
    """The posting row with newer entries; a tail that is full is `spilled`."""
    tail = row[3] + new.data if row else new.data
    if len(tail) > TAIL * _TAIL_ENTRY.itemsize:
        spilled[new.key] = decode_tail(tail)
        tail = b""
    return scope, new.key, *_grow(row, new), tail


_LAST_BLOCKS = f"""
SELECT block.term, block.id, block.data FROM block JOIN (
  SELECT term, max(first) AS first FROM block WHERE scope = ? AND term {IN} GROUP BY term
) AS last ON last.term = block.term AND last.first = block.first WHERE block.scope = ? AND length(block.data) < ?
"""


def _last_blocks(connection: Database, scope: int, keys: Sequence[int]) -> dict[int, tuple[int, bytes]]:
    """The last block of each of the terms, by its id, where it has room."""
    if not keys:
        return {}
    rows = connection.execute(_LAST_BLOCKS, (scope, Many(keys), scope, 8 * BLOCK))
    return {term: (block, data) for term, block, data in rows}


def _spill(
    connection: Database, scope: int, spilled: Mapping[int, Postings], last: Mapping[int, tuple[int, bytes]]
) -> None:
    """Move entries that lie behind every block of their terms into blocks, filling the last ones first."""
    rows: list[tuple[int, int, int, bytes]] = []
    for key, entries in spilled.items():
        if key in last:
            block, data = last[key]
            entries = concat([decode(data), entries])
            full = encode(_slice(entries, 0, BLOCK))
            connection.execute("UPDATE block SET data = ? WHERE id = ? AND scope = ?", (full, block, scope))
            entries = _slice(entries, BLOCK, len(entries.slots))
        for start in range(0, len(entries.slots), BLOCK):
            some = _slice(entries, start, start + BLOCK)
            rows.append((scope, key, int(some.slots[0]), encode(some)))
    connection.executemany("INSERT INTO block (scope, term, first, data) VALUES (?, ?, ?, ?)", rows)


def _insert_older(
    connection: Database, scope: int, row: _Row | None, new: _Group, spilled: dict[int, Postings]
) -> _NewRow:
    """The posting row after entries with older slots went to where they belong: a block, or the tail."""
    if row is None:
        return _append(connection, scope, row, new, spilled)
    tail, entries, at = decode_tail(row[3]), decode_tail(new.data), 0
    while at < new.df:
        block = _find_block(connection, scope, new.key, int(entries.slots[at]))
        until = new.df if block is None else max(at + 1, int(np.searchsorted(entries.slots, block[2])))
        some = _slice(entries, at, until)
        if block is None:
            tail = _merge(tail, some)
        else:
            _rewrite(connection, scope, block[0], _merge(decode(block[1]), some))
        at = until
    return scope, new.key, *_grow(row, new), encode_tail(tail)


def _find_block(connection: Database, scope: int, key: int, slot: int) -> tuple[int, bytes, int] | None:
    """The block whose range takes the slot: the last one that starts at or before it, else the very first.

    Comes as (id, data, end): slots from this one up to `end` belong to it too. None where the slot lies behind the last
    block, so belongs to the tail, or where there is no block.
    """
    before = "SELECT id, data, first FROM block WHERE scope = ? AND term = ? AND first <= ? ORDER BY first DESC LIMIT 1"
    after = "SELECT id, data, first FROM block WHERE scope = ? AND term = ? AND first > ? ORDER BY first LIMIT 1"
    found = connection.execute(before, (scope, key, slot)).fetchone()
    follower = connection.execute(after, (scope, key, slot)).fetchone()
    if found is None:
        return follower if follower else None
    last = int(decode(found[1]).slots[-1])
    if follower is None and slot > last:
        return None
    return found[0], found[1], follower[2] if follower else last + 1


def _merge(entries: Postings, new: Postings) -> Postings:
    both = concat([entries, new]) if len(entries.slots) else new
    order = np.argsort(both.slots, kind="stable")
    return Postings(both.slots[order], both.counts[order], both.lengths[order])


def _take_out(connection: Database, scope: int, row: _Row, gone: _Group) -> None:
    key, df = gone.key, row[0] - gone.df
    if df == 0:
        connection.execute("DELETE FROM posting WHERE scope = ? AND term = ?", (scope, key))
        connection.execute("DELETE FROM block WHERE scope = ? AND term = ?", (scope, key))
        return
    slots, tail = decode_tail(gone.data).slots, decode_tail(row[3])
    kept = _drop(tail, slots)
    update = "UPDATE posting SET df = ?, tail = ? WHERE scope = ? AND term = ?"
    connection.execute(update, (df, encode_tail(kept), scope, key))
    left = set(slots.tolist()) - set(tail.slots.tolist())
    while left:
        block = _find_block(connection, scope, key, min(left))
        if block is None:  # cannot happen while df and the entries agree
            raise Damage(f"the index of term {key} in scope {scope} lacks an entry")
        entries = decode(block[1])
        left -= set(entries.slots.tolist()) | {min(left)}
        kept = _drop(entries, slots)
        if len(kept.slots):
            _rewrite(connection, scope, block[0], kept)
        else:
            connection.execute("DELETE FROM block WHERE id = ? AND scope = ?", (block[0], scope))


def _rewrite(connection: Database, scope: int, block: int, entries: Postings) -> None:
    update = "UPDATE block SET first = ?, data = ? WHERE id = ? AND scope = ?"
    connection.execute(update, (int(entries.slots[0]), encode(entries), block, scope))


def _drop(entries: Postings, slots: NDArray[np.uint32]) -> Postings:
    keep = ~np.isin(entries.slots, slots)
    return Postings(entries.slots[keep], entries.counts[keep], entries.lengths[keep])
