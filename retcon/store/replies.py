"""Kept replies of a model: the table `reply`, bounded in bytes, the least lately used leave first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from retcon.store import Kept, ReplyStats
from retcon.store.checksum import checksum
from retcon.store.database import IN, Database, Many
from retcon.store.rows import DERIVED

MOST_BYTES = 64 * 2**20
_OVERHEAD = 200  # bytes of a row and its index entries beside the text, about
_ROOM = 0.9  # share of the bound that is kept when it is reached, so that not every write evicts


_INSERT = (
    "INSERT INTO reply"
    " (key, model, text, prompt_tokens, completion_tokens, seconds, finish, logprob, sum, bytes, used)"
    " SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, clock FROM reply_tally WHERE true ON CONFLICT (key) DO NOTHING"
)
_LINK = "INSERT OR IGNORE INTO reply_source (note, reply) SELECT seq, ? FROM note WHERE id = ?"


def get(connection: Database, keys: Sequence[str], sources: Sequence[str]) -> dict[str, Kept]:
    """The replies kept under these keys. They count as used now, and stand on these notes too from now on."""
    listed = Many(dict.fromkeys(keys))
    query = f"{DERIVED['reply']} WHERE key {IN}"
    rows = connection.execute(query, (listed,))
    found = {row[0]: Kept(*row[:8]) for row in rows if checksum(*row[:8]) == row[8]}  # a damaged one is asked again
    missed = len(listed) - len(found)
    connection.execute(
        "UPDATE reply_tally SET clock = clock + 1, hits = hits + ?, misses = misses + ?", (len(found), missed)
    )
    connection.execute(f"UPDATE reply SET used = (SELECT clock FROM reply_tally) WHERE key {IN}", (Many(found),))
    connection.executemany(_LINK, [(key, note) for key in found for note in sources])
    return found


def put(connection: Database, replies: Sequence[Kept], sources: Sequence[str], *, most: int) -> int:
    """How many replies were new and are kept; the first one under a key stays."""
    connection.execute("UPDATE reply_tally SET clock = clock + 1")  # first: others who write it wait for us
    before = stats(connection).entries
    sized = [(reply, len(reply.text.encode()) + _OVERHEAD) for reply in replies]
    kept = [(reply, size) for reply, size in sized if size <= most]
    rows = [(*(values := _as_stored(reply)), checksum(*values), size) for reply, size in kept]
    connection.executemany(_INSERT, rows)
    connection.executemany(_LINK, [(reply.key, note) for reply, _ in kept for note in sources])
    added = stats(connection).entries - before
    _evict(connection, most)
    return added


def _as_stored(reply: Kept) -> tuple[object, ...]:
    """The reply's values as SQLite gives them back: seconds and logprob as floats, and no zero below zero."""
    logprob = None if reply.logprob is None else reply.logprob + 0.0
    return (*astuple(reply)[:5], reply.seconds + 0.0, reply.finish, logprob)


def stats(connection: Database) -> ReplyStats:
    """Counts and bytes."""
    return ReplyStats(*connection.execute("SELECT entries, bytes, hits, misses FROM reply_tally").fetchone())


def clear(connection: Database) -> int:
    """How many replies went: all of them; the tally starts again."""
    gone = stats(connection).entries
    connection.execute("DELETE FROM reply")
    connection.execute("UPDATE reply_tally SET hits = 0, misses = 0")
    return gone


def _evict(connection: Database, most: int) -> None:
    total = stats(connection).bytes
    if total <= most:
        return
    query = (
        "DELETE FROM reply WHERE key IN ("
        "SELECT key FROM (SELECT key, bytes, sum(bytes) OVER (ORDER BY used, key) AS gone FROM reply)"
        " AS each WHERE gone - bytes < ?)"
    )
    connection.execute(query, (total - int(most * _ROOM),))
