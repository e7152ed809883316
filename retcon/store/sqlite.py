"""The embedded store: one SQLite file in WAL mode that holds notes, their index, vectors and records.

Every write is one `BEGIN IMMEDIATE` transaction, so that several processes and threads take turns and a kill leaves
either all of it or nothing. Each thread has a connection of its own; `:memory:` has one that all threads share.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.note import Filter, Note, Scope
from retcon.store import Deleted, Progress, Snapshot, postings, replies
from retcon.store.connections import Connections, intact
from retcon.store.replies import Kept, ReplyStats
from retcon.store.rows import NOTE, conditions, epoch, read_note
from retcon.store.snapshot import SqliteSnapshot
from retcon.words import CONTEXT, OWN, spoken_date, stem_words, term_key, words

FLUSH = 50_000  # notes whose index entries are written together during a bulk add
REWRITE = 128 * 2**20  # bytes: up to this size, some 80,000 short notes, every delete rewrites the file (1.4 s)


class SqliteStore:
    """Notes in one SQLite file."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        self.in_memory = self.path == ":memory:"
        self._connections = Connections(self.path, timeout)
        with self._connections.use():
            pass  # a file that cannot be used is told at once

    # -- notes -------------------------------------------------------------------------------------------------------

    def add(self, notes: Iterable[Note], *, progress: Progress | None = None) -> list[str]:
        """Ids of the notes, written in one transaction; a note that is there already, word for word, is passed over."""
        with self._writing() as connection:
            writer = _Writer(connection)
            ids = []
            for note in notes:
                writer.write(note)
                ids.append(note.id)
                if progress is not None:
                    progress(len(ids))
            writer.flush()
        return ids

    def get(self, note_id: str) -> Note:
        """The note with this id."""
        return self.get_many([note_id])[0]

    def get_many(self, note_ids: Sequence[str]) -> list[Note]:
        """The notes with these ids, in the order asked for."""
        with self._reading() as connection:
            rows = connection.execute(
                NOTE + "WHERE note.id IN (SELECT value FROM json_each(?))", (json.dumps(note_ids),)
            )
            found = {row[0]: read_note(row) for row in rows}
        for note_id in note_ids:
            if note_id not in found:
                raise NotFoundError(note_id)
        return [found[note_id] for note_id in note_ids]

    def all(
        self,
        scope: Scope,
        only: Filter | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        superseded: bool = False,
    ) -> Iterator[Note]:
        """Notes of the scope in the order they were added, those after the note `after`; superseded ones on request."""
        only = only or Filter()
        where, values = conditions(scope, only)
        if not superseded:
            where.append("newer.seq IS NULL")
        with self._reading() as connection:
            order, further = _from(connection, scope, after)
        query = f"{NOTE} WHERE {' AND '.join([*where, *further])} ORDER BY {order}"
        found = 0
        for row in self._rows(query, [*values, *further.values()]):
            note = read_note(row)
            if not all(note.metadata.get(key) == value for key, value in only.metadata.items()):
                continue
            if limit is not None and found >= limit:
                return
            found += 1
            yield note

    def count(self, scope: Scope) -> int:
        """How many notes the scope holds, superseded ones included."""
        where, values = conditions(scope, Filter())
        query = "SELECT count(*) FROM note JOIN scope ON scope.id = note.scope WHERE " + " AND ".join(where)
        with self._reading() as connection:
            return int(connection.execute(query, values).fetchone()[0])

    def history(self, note_id: str) -> list[Note]:
        """Every version of the note, oldest first."""
        query = """
        WITH RECURSIVE
          older (seq) AS (
            SELECT seq FROM note WHERE id = ?
            UNION SELECT supersedes FROM note JOIN older USING (seq) WHERE supersedes NOT NULL
          ),
          newer (seq) AS (
            SELECT seq FROM older
            UNION SELECT note.seq FROM note JOIN newer ON note.supersedes = newer.seq
          )
        """
        with self._reading() as connection:
            rows = connection.execute(query + NOTE + "WHERE note.seq IN newer ORDER BY note.seq", (note_id,)).fetchall()
        if not rows:
            raise NotFoundError(note_id)
        return [read_note(row) for row in rows]

    def delete(self, note_ids: Sequence[str]) -> Deleted:
        """What went: the notes with all that stands on them. A note they corrected becomes current again."""
        with self._writing() as connection, intact(self.path):
            notes, records = _delete(connection, note_ids)
        return Deleted(notes, records, not notes or self.purge(limit=REWRITE))

    def delete_all(self, scope: Scope) -> Deleted:
        """What went: every note of the scope with all that stands on it."""
        with self._writing() as connection:
            where, values = conditions(scope, Filter())
            scopes = [row[0] for row in connection.execute("SELECT id FROM scope WHERE " + " AND ".join(where), values)]
            notes = records = 0
            for scope_id in scopes:
                gone = _delete_scope(connection, scope_id)
                notes, records = notes + gone[0], records + gone[1]
        return Deleted(notes, records, not notes or self.purge(limit=REWRITE))

    def purge(self, *, limit: int | None = None) -> bool:
        """Whether deleted words are gone from the files, which are rewritten for it.

        SQLite zeroes what it deletes. But rows that it had moved from page to page before may have left copies in
        unused bytes, and only a rewrite is sure to drop those. False while another connection holds the log back, and
        where the file is larger than `limit` bytes.
        """
        if self.in_memory:
            return True
        with self._connections.use() as connection:
            connection.execute("PRAGMA busy_timeout = 250")
            try:
                if not _empty_log(connection):  # a rewrite under a reader would only swell the log
                    return False
                if limit is not None and _size(connection) > limit:
                    return False
                connection.execute("PRAGMA temp_store = FILE")
                connection.execute("VACUUM")
                return _empty_log(connection)
            except sqlite3.OperationalError:
                return False
            finally:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute(f"PRAGMA busy_timeout = {int(self.timeout * 1000)}")

    # -- the index ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self, scope: Scope) -> Iterator[Snapshot]:
        """One consistent view of the scope's notes and index, for as long as the block runs."""
        with self._reading() as connection:
            where, values = conditions(scope, Filter())
            query = f"SELECT id, notes, length, slots FROM scope WHERE {' AND '.join(where)}"
            query += " ORDER BY user_id, agent_id, run_id"  # decides ties, so not by which scope came first
            with intact(self.path):
                yield SqliteSnapshot(connection, connection.execute(query, values).fetchall())

    def unembedded(self, scope: Scope, embedder: str, *, limit: int) -> list[Note]:
        """Current notes of the scope that have no vector of this embedder yet."""
        where, values = conditions(scope, Filter())
        query = NOTE + (
            "LEFT JOIN vector ON vector.note = note.seq AND vector.embedder = ?"
            f" WHERE vector.note IS NULL AND newer.seq IS NULL AND {' AND '.join(where)} ORDER BY note.seq LIMIT ?"
        )
        with self._reading() as connection:
            return [read_note(row) for row in connection.execute(query, (embedder, *values, limit))]

    def put_vectors(self, embedder: str, vectors: Iterable[tuple[str, bytes]]) -> None:
        """Keep an embedder's vectors (note id, float32 bytes); notes deleted or corrected meanwhile are passed over."""
        query = """
        INSERT OR REPLACE INTO vector SELECT scope, ?, slot, seq, ? FROM note
        WHERE id = ? AND NOT EXISTS (SELECT 1 FROM note AS newer WHERE newer.supersedes = note.seq)
        """
        with self._writing() as connection:
            connection.executemany(query, [(embedder, data, note_id) for note_id, data in vectors])

    # -- records -----------------------------------------------------------------------------------------------------

    def put_record(
        self, record_id: str, *, action: str, budget: int, text: str, about: str, sources: Sequence[str]
    ) -> None:
        """Keep a generated text with the ids of the notes it was written from."""
        record = (record_id, action, budget, text, about)
        with self._writing() as connection:
            seqs = _seqs(connection, sources)
            connection.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)", record)
            links = [(seq, record_id) for seq in seqs]
            connection.executemany("INSERT OR IGNORE INTO record_source VALUES (?, ?)", links)

    def get_record(self, record_id: str) -> tuple[str, str] | None:
        """Text of a kept record and what is noted about it, or None."""
        with self._reading() as connection:
            row = connection.execute("SELECT text, about FROM record WHERE id = ?", (record_id,)).fetchone()
        return row if row is None else (row[0], row[1])

    def count_records(self) -> int:
        """How many records are kept."""
        with self._reading() as connection:
            return _count(connection, "record")

    def clear_records(self) -> int:
        """How many records went: all of them."""
        with self._writing() as connection:
            return connection.execute("DELETE FROM record").rowcount

    # -- replies -----------------------------------------------------------------------------------------------------

    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]:
        """The kept replies with these keys; they stand on the notes `sources` too from now on."""
        with self._writing() as connection:
            return replies.get(connection, keys, sources)

    def put_replies(
        self, given: Sequence[Kept], sources: Sequence[str] | None, *, most_bytes: int = replies.MOST_BYTES
    ) -> int:
        """How many replies are kept, in at most so many bytes, until a note in `sources` is deleted.

        A prompt holds text of notes, so nothing is kept where one of them is gone by now or none is named; None says
        that it stands on no note.
        """
        with self._writing() as connection:
            query = "SELECT count(*) FROM note WHERE id IN (SELECT value FROM json_each(?))"
            (known,) = connection.execute(query, (json.dumps(list(sources or ())),)).fetchone()
            if sources is not None and known < max(1, len(set(sources))):
                return 0
            return replies.put(connection, given, sources or (), most=most_bytes)

    def reply_stats(self) -> ReplyStats:
        """What is kept of replies, and how often it served."""
        with self._reading() as connection:
            return replies.stats(connection)

    def clear_replies(self) -> int:
        """How many kept replies went: all of them."""
        with self._writing() as connection:
            gone = replies.clear(connection)
        self.purge(limit=REWRITE)
        return gone

    def stats(self) -> dict[str, int | str]:
        """Facts about the file: its schema, counts, sizes in bytes, and "ok" or what SQLite's quick check found."""
        counted = ("note", "scope", "record", "vector")
        files = {"bytes": self.path, "wal_bytes": self.path + "-wal"}
        with self._reading() as connection:
            facts: dict[str, int | str] = {"schema": connection.execute("PRAGMA user_version").fetchone()[0]}
            facts |= {f"{table}s": _count(connection, table) for table in counted}
            facts |= {name: os.path.getsize(path) if os.path.exists(path) else 0 for name, path in files.items()}
            return facts | {"check": str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])}

    # -- connections -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection, once its thread is done with what it does; the store cannot be used after."""
        self._connections.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._connections.use() as connection:
            if connection.in_transaction:  # nested in a snapshot of the same thread
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    def _rows(self, query: str, values: Sequence[object]) -> Iterator[Sequence[Any]]:
        """Rows one by one, over a connection of their own: a listing half read stands in nobody's way."""
        if self.in_memory:
            with self._reading() as connection:
                rows = connection.execute(query, values).fetchall()
            yield from rows
        else:
            with self._connections.another() as connection:
                yield from connection.execute(query, values)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connections.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _empty_log(connection: sqlite3.Connection) -> bool:
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _size(connection: sqlite3.Connection) -> int:
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


def _from(connection: sqlite3.Connection, scope: Scope, after: str | None) -> tuple[str, dict[str, int]]:
    """By what to order the notes of a scope, and the conditions, with their values, under which they come after one.

    Where one row of `scope` holds them all, its slots are in the order of `seq` and have an index: no sort, and no walk
    through what comes before.
    """
    place = None
    if after is not None:
        place = connection.execute("SELECT scope, slot, seq FROM note WHERE id = ?", (after,)).fetchone()
        if place is None:
            raise NotFoundError(after)
    where, values = conditions(scope, Filter())
    rows = connection.execute(f"SELECT id FROM scope WHERE {' AND '.join(where)} LIMIT 2", values).fetchall()
    if len(rows) == 1 and (place is None or place[0] == rows[0][0]):
        return "note.slot", {"note.scope = ?": rows[0][0]} | ({} if place is None else {"note.slot > ?": place[1]})
    return "note.seq", {} if place is None else {"note.seq > ?": place[2]}


def _seqs(connection: sqlite3.Connection, note_ids: Sequence[str]) -> list[int]:
    query = "SELECT id, seq FROM note WHERE id IN (SELECT value FROM json_each(?))"
    found = dict(connection.execute(query, (json.dumps(note_ids),)).fetchall())
    for note_id in note_ids:
        if note_id not in found:
            raise NotFoundError(note_id)
    return [found[note_id] for note_id in note_ids]


@dataclass
class _Scope:
    id: int
    next_slot: int
    saved_slot: int  # next_slot as the file has it
    pending: dict[int, postings.Doc] = field(default_factory=dict)  # by slot, not yet in the index


_INSERT = (
    "INSERT INTO note"
    " (id, scope, slot, session, speaker, timestamp, at, text, metadata, created_at, follows, supersedes)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A note as the next turn needs it."""

    id: str | None
    seq: int | None
    keys: Sequence[int]  # terms of its text, in order


_NO_TURN = _Turn(None, None, ())
_to_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


class _Writer:
    """One bulk add: writes notes row by row and their index entries in large batches."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.scopes: dict[tuple[str, str, str], _Scope] = {}
        self.last: dict[tuple[int, str | None], _Turn] = {}  # (scope, session) -> the newest note of this add
        self.waiting = 0

    def write(self, note: Note) -> None:
        """Store one note unless it is there already; refuse an id that another text has."""
        if self.connection.execute("SELECT 1 FROM note WHERE id = ?", (note.id,)).fetchone() is not None:
            known = self.connection.execute(NOTE + "WHERE note.id = ?", (note.id,)).fetchone()
            _refuse_other(read_note(known), note)
            return
        scope = self._scope(note)
        before = self._before(scope, note)
        older = self._superseded(scope, note)
        slot, scope.next_slot = scope.next_slot, scope.next_slot + 1
        values = (
            note.id, scope.id, slot, note.session, note.speaker,
            note.timestamp, epoch(note.timestamp) if note.timestamp else None, note.text,
            _to_json(dict(note.metadata)) if note.metadata else "{}", note.created_at or "", before.seq, older,
        )  # fmt: skip
        seq = self.connection.execute(_INSERT, values).lastrowid
        assert seq is not None
        keys = term_keys(note.text)
        self.last[scope.id, note.session] = _Turn(note.id, seq, keys)
        scope.pending[slot] = make_doc(seq, slot, note, keys, before.keys)
        self.waiting += 1
        if self.waiting >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write the index entries that wait."""
        for scope in self.scopes.values():
            if scope.next_slot > scope.saved_slot:
                postings.insert(self.connection, scope.id, list(scope.pending.values()), newest=True)
                scope.pending.clear()
                self.connection.execute("UPDATE scope SET slots = ? WHERE id = ?", (scope.next_slot, scope.id))
                scope.saved_slot = scope.next_slot
        self.waiting = 0

    def _scope(self, note: Note) -> _Scope:
        ids = (note.user_id or "", note.agent_id or "", note.run_id or "")
        if ids not in self.scopes:
            self.connection.execute("INSERT OR IGNORE INTO scope (user_id, agent_id, run_id) VALUES (?, ?, ?)", ids)
            query = "SELECT id, slots FROM scope WHERE user_id = ? AND agent_id = ? AND run_id = ?"
            scope, slots = self.connection.execute(query, ids).fetchone()
            self.scopes[ids] = _Scope(scope, slots, slots)
        return self.scopes[ids]

    def _before(self, scope: _Scope, note: Note) -> _Turn:
        """The turn before this one: the one it names, else the newest of its session."""
        newest = self.last.get((scope.id, note.session))
        if note.follows is not None:
            if newest is not None and newest.id == note.follows:
                return newest
            query = "SELECT id, seq, text FROM note WHERE id = ? AND scope = ?"
            found = self.connection.execute(query, (note.follows, scope.id)).fetchone()
            if found is None:
                raise NotFoundError(note.follows)
        elif note.session is None:
            return _NO_TURN
        elif newest is not None:
            return newest
        else:
            query = "SELECT id, seq, text FROM note WHERE scope = ? AND session = ? ORDER BY seq DESC LIMIT 1"
            found = self.connection.execute(query, (scope.id, note.session)).fetchone()
        return _Turn(found[0], found[1], term_keys(found[2])) if found else _NO_TURN

    def _superseded(self, scope: _Scope, note: Note) -> int | None:
        """Seq of the note that this one corrects, taken out of the index."""
        if note.supersedes is None:
            return None
        query = (
            "SELECT old.seq, old.scope, old.slot, newer.id FROM note AS old"
            " LEFT JOIN note AS newer ON newer.supersedes = old.seq WHERE old.id = ?"
        )
        found = self.connection.execute(query, (note.supersedes,)).fetchone()
        if found is None:
            raise NotFoundError(note.supersedes)
        seq, owner, slot, newer = found
        if newer is not None:
            raise ConflictError(f"note {note.supersedes!r} was superseded by {newer!r} before: supersede that one")
        if owner != scope.id:
            raise InputError(f"a note supersedes one of its own scope, and {note.supersedes!r} is in another")
        if scope.pending.pop(slot, None) is None:
            postings.remove(self.connection, scope.id, [slot])
        self.connection.execute("DELETE FROM vector WHERE note = ?", (seq,))
        return int(seq)


class _Keys(dict[str, int]):
    """Word -> key of its term, for the words met lately."""

    def __missing__(self, word: str) -> int:
        if len(self) >= 1 << 17:
            self.clear()
        key = self[word] = term_key(stem_words([word])[0])
        return key


_key_of = _Keys().__getitem__


def term_keys(text: str) -> list[int]:
    """Keys of the text's terms, in order."""
    return list(map(_key_of, words(text)))


def make_doc(seq: int, slot: int, note: Note, keys: Sequence[int], context: Sequence[int]) -> postings.Doc:
    """The note as the index sees it: found by its words, speaker and date, and by the turn before it."""
    label = _label_keys(note.speaker, note.timestamp)
    return postings.Doc(seq, slot, ((OWN, keys), (OWN, label), (CONTEXT, context)))


@lru_cache(maxsize=1 << 12)
def _label_keys(speaker: str | None, timestamp: str | None) -> tuple[int, ...]:
    return tuple(term_keys(f"{speaker or ''} {spoken_date(timestamp)}"))


def _refuse_other(known: Note, note: Note) -> None:
    for name in ("text", "speaker", "session", "timestamp", "user_id", "agent_id", "run_id", "metadata"):
        ours, theirs = getattr(known, name), getattr(note, name)
        if ours != theirs and not (name == "metadata" and dict(ours) == dict(theirs)):
            raise ConflictError(f"the id {note.id!r} is taken by a note with another {name}")
    if note.supersedes is not None and note.supersedes != known.supersedes:
        raise ConflictError(f"the id {note.id!r} is taken by a note that does not supersede {note.supersedes!r}")


def _delete(connection: sqlite3.Connection, note_ids: Sequence[str]) -> tuple[int, int]:
    """Counts of notes and records removed. Survivors that leaned on them are linked past them and indexed anew."""
    seqs = set(_seqs(connection, note_ids))
    chosen = json.dumps(sorted(seqs))
    inside = "IN (SELECT value FROM json_each(?))"
    query = f"SELECT seq, follows, supersedes FROM note WHERE seq {inside}"
    links = {seq: (before, older) for seq, before, older in connection.execute(query, (chosen,))}
    places: dict[int, list[int]] = {}
    for scope, slot in connection.execute(f"SELECT scope, slot FROM note WHERE seq {inside}", (chosen,)):
        places.setdefault(scope, []).append(slot)
    followers = [
        (seq, follows)
        for seq, follows in connection.execute(f"SELECT seq, follows FROM note WHERE follows {inside}", (chosen,))
        if seq not in seqs
    ]
    newer = connection.execute(f"SELECT seq, supersedes FROM note WHERE supersedes {inside}", (chosen,)).fetchall()
    revived = {older for _, older in links.values() if older is not None and older not in seqs}

    for scope, slots in places.items():
        postings.remove(connection, scope, slots)
    connection.execute(f"UPDATE note SET supersedes = NULL WHERE seq {inside}", (chosen,))
    corrected = {gone: link[1] for gone, link in links.items()}
    for seq, older in newer:
        if seq not in seqs:
            kept = _survivor(older, seqs, corrected)
            revived.discard(kept or -1)
            connection.execute("UPDATE note SET supersedes = ? WHERE seq = ?", (kept, seq))
    before = {gone: link[0] for gone, link in links.items()}
    connection.executemany(
        "UPDATE note SET follows = ? WHERE seq = ?", [(_survivor(gone, seqs, before), seq) for seq, gone in followers]
    )
    connection.execute(f"UPDATE note SET follows = NULL WHERE seq {inside}", (chosen,))
    records = _count(connection, "record")
    connection.execute(f"DELETE FROM note WHERE seq {inside}", (chosen,))
    connection.executemany(_REJOIN, [(seq,) for seq, _ in followers])
    _reindex(connection, {seq for seq, _ in followers} | revived)
    connection.execute(
        "DELETE FROM scope WHERE notes = 0 AND NOT EXISTS (SELECT 1 FROM note WHERE note.scope = scope.id)"
    )
    return len(seqs), records - _count(connection, "record")


# A turn that is left with none before it follows the one before it in its session, as if it were added now.
_REJOIN = """
UPDATE note SET follows = (
  SELECT max(before.seq) FROM note AS before
  WHERE before.scope = note.scope AND before.session = note.session AND before.seq < note.seq
) WHERE seq = ? AND follows IS NULL
"""


def _survivor(seq: int | None, gone: set[int], link: dict[int, int | None]) -> int | None:
    """The first note along the links that stays."""
    while seq is not None and seq in gone:
        seq = link[seq]
    return seq


def _reindex(connection: sqlite3.Connection, seqs: set[int]) -> None:
    """Bring the index entries of these notes up to date with their links; superseded ones stay out."""
    query = NOTE + "WHERE note.seq = ?"
    place = "SELECT scope, (SELECT text FROM note AS before WHERE before.seq = note.follows) FROM note WHERE seq = ?"
    stale: dict[int, list[int]] = {}
    docs: dict[int, list[postings.Doc]] = {}
    for seq in sorted(seqs):
        row = connection.execute(query, (seq,)).fetchone()
        note, slot = read_note(row), row[14]
        scope, context = connection.execute(place, (seq,)).fetchone()
        stale.setdefault(scope, []).append(slot)
        if note.superseded_by is None:
            doc = make_doc(seq, slot, note, term_keys(note.text), term_keys(context or ""))
            docs.setdefault(scope, []).append(doc)
    for scope, slots in stale.items():
        postings.remove(connection, scope, slots)
        postings.insert(connection, scope, docs.get(scope, []), newest=False)


def _delete_scope(connection: sqlite3.Connection, scope: int) -> tuple[int, int]:
    records = _count(connection, "record")
    for table in ("posting", "block", "doc", "vector"):
        connection.execute(f"DELETE FROM {table} WHERE scope = ?", (scope,))
    connection.execute("UPDATE note SET follows = NULL, supersedes = NULL WHERE scope = ?", (scope,))
    notes = connection.execute("DELETE FROM note WHERE scope = ?", (scope,)).rowcount
    connection.execute("DELETE FROM scope WHERE id = ?", (scope,))
    return notes, records - _count(connection, "record")


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
