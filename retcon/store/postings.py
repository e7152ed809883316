"""The lexical index inside the SQLite file: which notes of a scope hold a term, how often, and how long they are.

A scope's term has one `posting` row (document frequency, bounds, and a short tail that takes new entries) and, once it
is common, `block` rows of up to 4,096 entries. Adding a note touches one small row per term; reading a common term
takes a few large blobs that numpy maps without copying. The forward side (`doc`) lists the terms of each note: it
serves exact scores for a handful of candidates, and tells a delete which rows to touch.

Everything here runs inside the caller's transaction, so that truth and index never part.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retcon.store import Postings

TAIL = 64  # entries a posting row keeps before they move to a block
BLOCK = 4096  # entries of a full block: 32 KiB
LIMIT = 65535  # counts and lengths saturate here

ENTRY = np.dtype([("key", "<i8"), ("count", "<u2")])  # one term of a doc row
_EMPTY = Postings(np.empty(0, "<u4"), np.empty(0, "<u2"), np.empty(0, "<u2"))


@dataclass(frozen=True, slots=True)
class Doc:
    """One note as the index sees it."""

    note: int  # its seq
    slot: int
    counts: Mapping[int, int]  # term key -> weighted count
    length: int


def insert(connection: sqlite3.Connection, scope: int, docs: Sequence[Doc], *, newest: bool) -> None:
    """Index the docs. `newest` promises slots above all that the scope has indexed, which makes it an append."""
    if not docs:
        return
    connection.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?)", _doc_rows(scope, docs))
    total = sum(doc.length for doc in docs)
    connection.execute(
        "UPDATE scope SET notes = notes + ?, length = length + ? WHERE id = ?", (len(docs), total, scope)
    )
    groups = list(_by_term(docs))
    found = _posting_rows(connection, scope, [key for key, _ in groups])
    if newest:
        rows = [_appended(connection, scope, key, found.get(key), new) for key, new in groups]
    else:
        rows = [_inserted(connection, scope, key, found.get(key), new) for key, new in groups]
    connection.executemany("INSERT OR REPLACE INTO posting VALUES (?, ?, ?, ?, ?, ?)", rows)


def remove(connection: sqlite3.Connection, scope: int, slots: Iterable[int]) -> None:
    """Take the notes in these slots out of the index; slots that are not indexed are passed over."""
    docs = _docs(connection, scope, slots)
    if not docs:
        return
    total = sum(doc.length for doc in docs)
    connection.execute(
        "UPDATE scope SET notes = notes - ?, length = length - ? WHERE id = ?", (len(docs), total, scope)
    )
    connection.executemany("DELETE FROM doc WHERE scope = ? AND slot = ?", [(scope, doc.slot) for doc in docs])
    groups = list(_by_term(docs))
    found = _posting_rows(connection, scope, [key for key, _ in groups])
    for key, gone in groups:
        _take_out(connection, scope, key, found[key], gone.slots)


def read(connection: sqlite3.Connection, scope: int, key: int, tail: bytes) -> Iterator[Postings]:
    """All entries of a term, oldest first, in pieces."""
    query = "SELECT data FROM block WHERE scope = ? AND term = ? ORDER BY first"
    for (data,) in connection.execute(query, (scope, key)):
        yield decode(data)
    if tail:
        yield decode(tail)


def decode(data: bytes) -> Postings:
    """The arrays of one blob, without copying: slots, then counts, then lengths."""
    n = len(data) // 8
    return Postings(
        np.frombuffer(data, "<u4", n), np.frombuffer(data, "<u2", n, 4 * n), np.frombuffer(data, "<u2", n, 6 * n)
    )


def encode(postings: Postings) -> bytes:
    """One blob of the arrays."""
    return postings.slots.tobytes() + postings.counts.tobytes() + postings.lengths.tobytes()


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


def _resize(connection: sqlite3.Connection, scope: int, notes: int, length: int) -> None:
    connection.execute("UPDATE scope SET notes = notes + ?, length = length + ? WHERE id = ?", (notes, length, scope))


def _doc_rows(scope: int, docs: Sequence[Doc]) -> Iterator[tuple[int, int, int, int, bytes]]:
    for doc in docs:
        entries = np.empty(len(doc.counts), ENTRY)
        entries["key"] = np.fromiter(doc.counts.keys(), np.int64, len(doc.counts))
        entries["count"] = np.minimum(np.fromiter(doc.counts.values(), np.int64, len(doc.counts)), LIMIT)
        yield scope, doc.slot, doc.note, doc.length, entries.tobytes()


def _docs(connection: sqlite3.Connection, scope: int, slots: Iterable[int]) -> list[Doc]:
    query = "SELECT note, slot, length, terms FROM doc WHERE scope = ? AND slot IN (SELECT value FROM json_each(?))"
    docs = []
    for note, slot, length, terms in connection.execute(query, (scope, json.dumps([int(s) for s in slots]))):
        entries = np.frombuffer(terms, ENTRY)
        docs.append(Doc(note, slot, dict(zip(entries["key"].tolist(), entries["count"].tolist(), strict=True)), length))
    return docs


def _by_term(docs: Sequence[Doc]) -> Iterator[tuple[int, Postings]]:
    """Entries of the docs grouped by term, slots ascending within a term."""
    ordered = sorted(docs, key=lambda doc: doc.slot)
    sizes = np.fromiter((len(doc.counts) for doc in ordered), np.int64, len(ordered))
    total = int(sizes.sum())
    if not total:
        return
    keys = np.fromiter((key for doc in ordered for key in doc.counts), np.int64, total)
    counts = np.fromiter((count for doc in ordered for count in doc.counts.values()), np.int64, total)
    slots = np.repeat(np.fromiter((doc.slot for doc in ordered), np.int64, len(ordered)), sizes)
    lengths = np.repeat(np.fromiter((doc.length for doc in ordered), np.int64, len(ordered)), sizes)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    entries = Postings(
        slots[order].astype("<u4"),
        np.minimum(counts[order], LIMIT).astype("<u2"),
        np.minimum(lengths[order], LIMIT).astype("<u2"),
    )
    starts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1))
    for start, stop, key in zip(starts, np.append(starts[1:], total), keys[starts].tolist(), strict=True):
        yield key, _slice(entries, start, stop)


def _slice(entries: Postings, start: int, stop: int) -> Postings:
    return Postings(entries.slots[start:stop], entries.counts[start:stop], entries.lengths[start:stop])


_Row = tuple[int, int, int, bytes]  # df, peak, low, tail


def _posting_rows(connection: sqlite3.Connection, scope: int, keys: Sequence[int]) -> dict[int, _Row]:
    query = "SELECT term, df, peak, low, tail FROM posting WHERE scope = ? AND term IN (SELECT value FROM json_each(?))"
    return {
        term: (df, peak, low, tail)
        for term, df, peak, low, tail in connection.execute(query, (scope, json.dumps(keys)))
    }


def _grown(row: _Row | None, new: Postings) -> tuple[int, int, int]:
    df, peak, low = row[:3] if row else (0, 0, LIMIT)
    return df + len(new.slots), max(peak, int(new.counts.max())), min(low, int(new.lengths.min()))


def _appended(
    connection: sqlite3.Connection, scope: int, key: int, row: _Row | None, new: Postings
) -> tuple[int, int, int, int, int, bytes]:
    tail = concat([decode(row[3]), new]) if row and row[3] else new
    if len(tail.slots) > TAIL:
        _spill(connection, scope, key, tail)
        tail = _EMPTY
    return scope, key, *_grown(row, new), encode(tail)


def _spill(connection: sqlite3.Connection, scope: int, key: int, entries: Postings) -> None:
    """Move entries that lie behind every block of the term into blocks, filling the last one first."""
    query = "SELECT id, first, data FROM block WHERE scope = ? AND term = ? ORDER BY first DESC LIMIT 1"
    last = connection.execute(query, (scope, key)).fetchone()
    if last is not None and len(last[2]) < 8 * BLOCK:
        entries = concat([decode(last[2]), entries])
        connection.execute("UPDATE block SET data = ? WHERE id = ?", (encode(_slice(entries, 0, BLOCK)), last[0]))
        entries = _slice(entries, BLOCK, len(entries.slots))
    rows = [
        (scope, key, int(entries.slots[start]), encode(_slice(entries, start, start + BLOCK)))
        for start in range(0, len(entries.slots), BLOCK)
    ]
    connection.executemany("INSERT INTO block (scope, term, first, data) VALUES (?, ?, ?, ?)", rows)


def _inserted(
    connection: sqlite3.Connection, scope: int, key: int, row: _Row | None, new: Postings
) -> tuple[int, int, int, int, int, bytes]:
    """The posting row after entries with older slots went to where they belong: a block, or the tail."""
    tail = decode(row[3]) if row else _EMPTY
    for i in range(len(new.slots)):
        entry = _slice(new, i, i + 1)
        slot = int(entry.slots[0])
        block = _covering(connection, scope, key, slot)
        if block is None:
            tail = _merged(tail, entry)
        else:
            merged = _merged(decode(block[1]), entry)
            _rewrite(connection, block[0], merged)
    return scope, key, *_grown(row, new), encode(tail)


def _covering(connection: sqlite3.Connection, scope: int, key: int, slot: int) -> tuple[int, bytes] | None:
    """The block (id, data) whose range takes the slot: the last one that starts at or before it, else the very first.

    None where the slot lies behind the last block, so belongs to the tail, or where there is no block.
    """
    before = "SELECT id, data, first FROM block WHERE scope = ? AND term = ? AND first <= ? ORDER BY first DESC LIMIT 1"
    after = "SELECT id, data, first FROM block WHERE scope = ? AND term = ? AND first > ? ORDER BY first LIMIT 1"
    found = connection.execute(before, (scope, key, slot)).fetchone()
    follower = connection.execute(after, (scope, key, slot)).fetchone()
    if found is None:
        return follower[:2] if follower else None
    if follower is None and slot > int(decode(found[1]).slots[-1]):
        return None
    block: tuple[int, bytes] = found[:2]
    return block


def _merged(entries: Postings, new: Postings) -> Postings:
    both = concat([entries, new]) if len(entries.slots) else new
    order = np.argsort(both.slots, kind="stable")
    return Postings(both.slots[order], both.counts[order], both.lengths[order])


def _take_out(connection: sqlite3.Connection, scope: int, key: int, row: _Row, slots: NDArray[np.uint32]) -> None:
    df = row[0] - len(slots)
    if df == 0:
        connection.execute("DELETE FROM posting WHERE scope = ? AND term = ?", (scope, key))
        connection.execute("DELETE FROM block WHERE scope = ? AND term = ?", (scope, key))
        return
    tail = decode(row[3])
    kept = _without(tail, slots)
    update = "UPDATE posting SET df = ?, tail = ? WHERE scope = ? AND term = ?"
    connection.execute(update, (df, encode(kept), scope, key))
    left = set(slots.tolist()) - set(tail.slots.tolist())
    while left:
        block = _covering(connection, scope, key, min(left))
        if block is None:  # cannot happen while df and the entries agree
            raise sqlite3.DatabaseError(f"the index of term {key} in scope {scope} lacks an entry")
        entries = decode(block[1])
        left -= set(entries.slots.tolist()) | {min(left)}
        kept = _without(entries, slots)
        if len(kept.slots):
            connection.execute(
                "UPDATE block SET first = ?, data = ? WHERE id = ?", (int(kept.slots[0]), encode(kept), block[0])
            )
        else:
            connection.execute("DELETE FROM block WHERE id = ?", (block[0],))


def _rewrite(connection: sqlite3.Connection, block: int, entries: Postings) -> None:
    first = int(entries.slots[0])
    connection.execute("UPDATE block SET first = ?, data = ? WHERE id = ?", (first, encode(entries), block))


def _without(entries: Postings, slots: NDArray[np.uint32]) -> Postings:
    keep = ~np.isin(entries.slots, slots)
    return Postings(entries.slots[keep], entries.counts[keep], entries.lengths[keep])
