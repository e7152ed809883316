"""The lexical index inside the database: which notes of a scope hold a term, how often, and how long they are.

A scope's term has one `posting` row (document frequency, bounds, and a short tail that takes new entries) and, once it
is common, `block` rows of up to 4,096 entries. Adding a note touches one small row per term; reading a common term
takes a few large blobs that numpy maps without copying. The forward side (`doc`) lists the terms of each note: it
serves exact scores for a handful of candidates, and tells a delete which rows to touch.

Everything here runs inside the caller's transaction, so that truth and index never part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, compress, groupby
from operator import itemgetter, or_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retcon.store import Postings
from retcon.store.database import IN, Damage, Database, Many

TAIL = 64  # entries a posting row keeps before they move to a block
BLOCK = 4096  # entries of a full block: 32 KiB
ROWS = 250_000  # entries of several scopes that are written together
LIMIT = 65535  # counts and lengths saturate here

ENTRY = np.dtype([("key", "<i8"), ("count", "<u2")])  # one term of a doc row
_TAIL_ENTRY = np.dtype([("slot", "<u4"), ("count", "<u2"), ("length", "<u2")])  # appending to a tail joins bytes
_EMPTY = Postings(np.empty(0, "<u4"), np.empty(0, "<u2"), np.empty(0, "<u2"))


class Doc(NamedTuple):
    """One note as the index sees it."""

    scope: int
    note: int  # its seq
    slot: int
    parts: Sequence[tuple[int, Sequence[int]]]  # weight, keys of the terms that have it, repeated as they occur
    passages: Sequence[Sequence[int]] = ()  # of a long note: keys of the terms of each


_DocRow = tuple[int, int, int, int, bytes, bytes | None]  # scope, slot, note, length, terms, passages


@dataclass(frozen=True, slots=True)
class Counted:
    """Docs with their terms counted, one doc after the other, each term of a doc once."""

    rows: Sequence[_DocRow]  # of the forward side, the slots of a scope ascending
    sizes: NDArray[np.int64]  # terms of each doc
    keys: NDArray[np.int64]
    counts: NDArray[np.uint16]


def count(docs: Sequence[Doc]) -> Counted:
    """The docs, of which those of one scope come with ascending slots, as they are kept."""
    runs = [keys for doc in docs for _, keys in doc.parts]
    sizes = np.fromiter(map(len, runs), np.int64, len(runs))
    keys = np.fromiter(chain.from_iterable(runs), np.int64, int(sizes.sum()))
    of = np.repeat(np.arange(len(docs)), [len(doc.parts) for doc in docs])
    weights = np.array([weight for doc in docs for weight, _ in doc.parts], np.int64)
    lengths = np.minimum(np.bincount(of, weights * sizes, len(docs)), LIMIT).astype(np.int64)
    rows = np.repeat(of, sizes)
    counts = _count_first(keys, rows, np.repeat(weights, sizes))
    kept = counts > 0
    keys, held = keys[kept], np.bincount(rows[kept], minlength=len(docs))
    times = np.minimum(counts[kept], LIMIT).astype("<u2")
    return Counted(list(_doc_rows(docs, lengths.tolist(), _cut_terms(keys, times, held))), held, keys, times)


def _count_first(keys: NDArray[np.int64], rows: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a row has a key for the first time: the weight of all of them; elsewhere 0."""
    order = _sort(keys)
    starts = _starts(keys[order], rows[order])
    counts = np.zeros(len(keys), np.int64)
    if len(keys):
        counts[order[starts]] = np.add.reduceat(weights[order], starts)
    return counts


def join(parts: Sequence[Counted], *, without: Collection[int] = ()) -> Counted:
    """The parts as one, less the notes that are gone since."""
    if len(parts) == 1 and not without:
        return parts[0]
    rows = list(chain.from_iterable(part.rows for part in parts))
    sizes, keys, counts = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("sizes", "keys", "counts")
    )
    if without:
        stays = np.array([row[2] not in without for row in rows])
        kept = np.repeat(stays, sizes)
        rows, sizes, keys, counts = list(compress(rows, stays)), sizes[stays], keys[kept], counts[kept]
    return Counted(rows, sizes, keys, counts)


def insert(connection: Database, counted: Counted, *, newest: bool, first: Collection[int] = ()) -> None:
    """Index the docs. `newest` promises slots above all that their scopes have indexed, which makes it an append.

    `first` are scopes that have indexed none.
    """
    if not counted.rows:
        return
    rows = sorted(counted.rows, key=itemgetter(0, 1))  # in the order of their table
    connection.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?)", rows)
    _resize(connection, [_growth(scope, list(docs)) for scope, docs in groupby(rows, itemgetter(0))])
    for groups in _by_term(counted):
        _place(connection, groups, _append if newest else _insert_older, first)


def _place(connection: Database, groups: Sequence[_NewRow], place: _Placing, first: Collection[int]) -> None:
    """Write the posting rows with these entries; what has no room in them goes to blocks."""
    known = _posting_rows(connection, [group[:2] for group in groups if group[0] not in first])
    spilled: dict[_Term, Postings] = {}
    rows = [
        group
        if group[2] <= TAIL and not (known and group[:2] in known)  # a new term: its entries are its tail
        else place(connection, known.get(group[:2]), _Group(*group), spilled)
        for group in groups
    ]
    connection.executemany("INSERT OR REPLACE INTO posting VALUES (?, ?, ?, ?, ?, ?)", rows)
    _spill(connection, spilled, _last_blocks(connection, [term for term in spilled if term[0] not in first]))


def remove(connection: Database, scope: int, slots: Iterable[int]) -> None:
    """Take the notes in these slots out of the index; slots that are not indexed are passed over."""
    query = f"SELECT scope, slot, note, length, terms, NULL FROM doc WHERE scope = ? AND slot {IN} ORDER BY slot"
    docs = connection.execute(query, (scope, Many(int(slot) for slot in slots))).fetchall()
    if not docs:
        return
    _resize(connection, [(-len(docs), -sum(doc[3] for doc in docs), scope)])
    connection.executemany("DELETE FROM doc WHERE scope = ? AND slot = ?", [doc[:2] for doc in docs])
    for groups in _by_term(_read_terms(docs)):
        known = _posting_rows(connection, [group[:2] for group in groups])
        for group in groups:
            _take_out(connection, scope, known[group[:2]], _Group(*group))


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


def _growth(scope: int, rows: Sequence[_DocRow]) -> tuple[int, int, int]:
    return len(rows), sum(row[3] for row in rows), scope


def _resize(connection: Database, grown: Sequence[tuple[int, int, int]]) -> None:
    """Count notes, and their length, to their scope."""
    connection.executemany("UPDATE scope SET notes = notes + ?, length = length + ? WHERE id = ?", grown)


def _read_terms(rows: Sequence[_DocRow]) -> Counted:
    entries = np.frombuffer(b"".join([row[4] for row in rows]), ENTRY)
    sizes = np.array([len(row[4]) // ENTRY.itemsize for row in rows], np.int64)
    return Counted(rows, sizes, entries["key"], entries["count"])


def _sort(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the keys in ascending order, equal ones as they come: a stable `argsort`, several times as fast.

    Plain numbers sort fastest, so the place is packed into the low bits of each key. Keys that differ in those alone
    are rare: they show as a step down.
    """
    bits = len(keys).bit_length()
    order = np.sort(keys >> bits << bits | np.arange(len(keys))) & ((1 << bits) - 1)
    found = keys[order]
    return order if bool(np.all(found[1:] >= found[:-1])) else np.argsort(keys, kind="stable")


def _starts(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a row differs from the row before it."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = reduce(or_, [column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def _cut_terms(keys: NDArray[np.int64], counts: NDArray[np.uint16], sizes: NDArray[np.int64]) -> Iterator[bytes]:
    """The terms of each doc as its row has them."""
    entries = np.empty(len(keys), ENTRY)
    entries["key"], entries["count"] = keys, counts
    return _cut(entries.tobytes(), np.cumsum(sizes) * ENTRY.itemsize)


def _cut(data: bytes, ends: NDArray[np.int64]) -> Iterator[bytes]:
    start = 0
    for end in ends.tolist():
        yield data[start:end]
        start = end


def _doc_rows(docs: Sequence[Doc], lengths: Sequence[int], terms: Iterator[bytes]) -> Iterator[_DocRow]:
    for doc, length, data in zip(docs, lengths, terms, strict=True):
        yield doc.scope, doc.slot, doc.note, length, data, _encode_passages(doc.passages)


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
    """Entries of one term, slots ascending: the row of a new one."""

    scope: int
    key: int
    df: int
    peak: int
    low: int
    data: bytes  # as in a tail


_NewRow = tuple[int, int, int, int, int, bytes]  # of `posting`


def _by_term(counted: Counted) -> Iterator[list[_NewRow]]:
    """The entries of the docs grouped by scope and key, some scopes at a time: the fields of a `_Group` each."""
    if not len(counted.keys):
        return
    scopes, slots, _, lengths, _, _ = zip(*counted.rows, strict=True)
    entries = np.empty(len(counted.keys), _TAIL_ENTRY)  # in the order of the docs
    entries["slot"] = np.repeat(np.array(slots, "<u4"), counted.sizes)
    entries["count"] = counted.counts
    entries["length"] = np.repeat(np.array(lengths, "<u2"), counted.sizes)
    order, of = _sort(counted.keys), np.repeat(np.array(scopes, np.int64), counted.sizes)
    if len(several := sorted(set(scopes))) > 1:
        ranks = np.searchsorted(several, of).astype(np.min_scalar_type(len(several)))  # few bits sort fast
        order = order[np.argsort(ranks[order], kind="stable")]
    keys, of, entries = counted.keys[order], of[order], entries.view("<i8")[order].view(_TAIL_ENTRY)
    for start, stop in _pieces(_starts(of), len(keys)):
        yield _group(of[start:stop], keys[start:stop], entries[start:stop])


def _pieces(starts: NDArray[np.int64], end: int) -> Iterator[tuple[int, int]]:
    """From where to where the scopes that start here make up enough entries to be written together."""
    cuts = starts[_starts(starts // ROWS)].tolist() if end > ROWS else [0]
    return zip(cuts, [*cuts[1:], end], strict=True)


def _group(scopes: NDArray[np.int64], keys: NDArray[np.int64], entries: NDArray[Any]) -> list[_NewRow]:
    """The entries, in the order of their scopes and keys, grouped by both."""
    starts = _starts(scopes, keys)
    ends = np.append(starts[1:], len(keys))
    peaks = np.maximum.reduceat(entries["count"], starts).tolist()
    lows = np.minimum.reduceat(entries["length"], starts).tolist()
    blobs = _cut(entries.tobytes(), ends * _TAIL_ENTRY.itemsize)
    columns = scopes[starts].tolist(), keys[starts].tolist(), (ends - starts).tolist()
    return list(zip(*columns, peaks, lows, blobs, strict=True))


def _slice(entries: Postings, start: int, stop: int) -> Postings:
    return Postings(entries.slots[start:stop], entries.counts[start:stop], entries.lengths[start:stop])


_Row = tuple[int, int, int, bytes]  # df, peak, low, tail


_Term = tuple[int, int]  # scope, key


def _posting_rows(connection: Database, terms: Iterable[_Term]) -> dict[_Term, _Row]:
    query = f"SELECT scope, term, df, peak, low, tail FROM posting WHERE scope = ? AND term {IN}"
    return {
        (whose, term): (df, peak, low, tail)
        for scope, keys in _by_scope(terms)
        for whose, term, df, peak, low, tail in connection.execute(query, (scope, keys))
    }


def _by_scope(terms: Iterable[_Term]) -> Iterator[tuple[int, Many]]:
    """Each scope with the keys of its terms; those of a scope come together."""
    for scope, some in groupby(terms, itemgetter(0)):
        yield scope, Many(key for _, key in some)


def _grow(row: _Row | None, new: _Group) -> tuple[int, int, int]:
    return (row[0] + new.df, max(row[1], new.peak), min(row[2], new.low)) if row else (new.df, new.peak, new.low)


_Placing = Callable[[Database, "_Row | None", _Group, dict[_Term, Postings]], _NewRow]


def _append(_: Database, row: _Row | None, new: _Group, spilled: dict[_Term, Postings]) -> _NewRow:
    """The posting row with newer entries; a tail that is full is `spilled`."""
    tail = row[3] + new.data if row else new.data
    if len(tail) > TAIL * _TAIL_ENTRY.itemsize:
        spilled[new.scope, new.key] = decode_tail(tail)
        tail = b""
    return new.scope, new.key, *_grow(row, new), tail


_LAST_BLOCKS = f"""
SELECT block.scope, block.term, block.id, block.data FROM block JOIN (
  SELECT term, max(first) AS first FROM block WHERE scope = ? AND term {IN} GROUP BY term
) AS last ON last.term = block.term AND last.first = block.first WHERE block.scope = ? AND length(block.data) < ?
"""


def _last_blocks(connection: Database, terms: Iterable[_Term]) -> dict[_Term, tuple[int, bytes]]:
    """The last block of each of the terms, by its id, where it has room."""
    return {
        (whose, term): (block, data)
        for scope, keys in _by_scope(terms)
        for whose, term, block, data in connection.execute(_LAST_BLOCKS, (scope, keys, scope, 8 * BLOCK))
    }


def _spill(connection: Database, spilled: Mapping[_Term, Postings], last: Mapping[_Term, tuple[int, bytes]]) -> None:
    """Move entries that lie behind every block of their terms into blocks, filling the last ones first."""
    rows: list[tuple[int, int, int, bytes]] = []
    for (scope, key), entries in spilled.items():
        if (scope, key) in last:
            block, data = last[scope, key]
            entries = concat([decode(data), entries])
            full = encode(_slice(entries, 0, BLOCK))
            connection.execute("UPDATE block SET data = ? WHERE id = ? AND scope = ?", (full, block, scope))
            entries = _slice(entries, BLOCK, len(entries.slots))
        for start in range(0, len(entries.slots), BLOCK):
            some = _slice(entries, start, start + BLOCK)
            rows.append((scope, key, int(some.slots[0]), encode(some)))
    connection.executemany("INSERT INTO block (scope, term, first, data) VALUES (?, ?, ?, ?)", rows)


def _insert_older(connection: Database, row: _Row | None, new: _Group, spilled: dict[_Term, Postings]) -> _NewRow:
    """The posting row after entries with older slots went to where they belong: a block, or the tail."""
    if row is None:
        return _append(connection, row, new, spilled)
    scope = new.scope
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
