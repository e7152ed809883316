"""What every SQL store does in the same way: notes, vectors, records and replies, in transactions that it is handed.

A subclass opens the transactions. What a write touches is told when it begins, for a store that locks less than all.
"""

from __future__ import annotations

import contextlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retcon import reading
from retcon.errors import InputError, NotFoundError, StoreError
from retcon.language import Language
from retcon.note import Filter, Note, Scope
from retcon.store import (
    Deleted,
    Kept,
    Order,
    Progress,
    ReplyStats,
    Snapshot,
    Unembedded,
    deleting,
    reindexing,
    replies,
    seal,
    vectors,
)
from retcon.store.checksum import checksum
from retcon.store.database import IN, Database, Many, translate_damage
from retcon.store.indexes import Indexes
from retcon.store.matrices import Matrices
from retcon.store.rows import DERIVED, FACT_PLACES, NOTE, VERSIONS, check_of, conditions, read_note
from retcon.store.service import SharedTables
from retcon.store.snapshot import SqlSnapshot
from retcon.store.writing import BATCH, Stored, Writer
from retcon.where import Where

if TYPE_CHECKING:
    from retcon.store.checking import Check


@dataclass(frozen=True, slots=True)
class Touches:
    """What a write changes: notes by their ids, scopes, or anything at all."""

    notes: Sequence[str] = ()
    scope: Scope | None = None
    scopes: Sequence[int] = ()  # by their numbers
    everything: bool = False


NOTHING, EVERYTHING = Touches(), Touches(everything=True)


class SqlStore(ABC):
    """Notes in a database."""

    path: str  # where it is, as it may be shown
    file: str | None = None  # where it is one
    beside: str  # what the names of a server's own files begin with
    in_memory = False
    rewrites_by_itself = True  # to purge what was deleted, in the background and when it is closed
    at_once: int | None = None  # calls that it serves at the same time; None: as many as come
    limited = True  # whether a statement has a time-out, where the store knows any
    no_backup = "a memory without a file has no backup: export it"
    snapshots: type[SqlSnapshot] = SqlSnapshot
    writers: type[Writer] = Writer
    _matrices: Matrices
    _indexes: Indexes
    _connections: Any

    # -- what a subclass provides --------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self) -> AbstractContextManager[Database]:
        """A connection with one view of the database; within another such block of this thread, that one's."""

    @abstractmethod
    def _writing(self, touches: Touches = NOTHING) -> AbstractContextManager[Database]:
        """A connection in a transaction that counts when the block ends without an error."""

    @abstractmethod
    def _adding(self, batches: Iterator[list[Note]]) -> AbstractContextManager[tuple[Database, Iterator[list[Note]]]]:
        """The same for notes that are added, with all of their batches."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[object]) -> Iterator[Sequence[Any]]:
        """Rows one by one, over a connection of their own: a listing half read stands in nobody's way."""

    @abstractmethod
    def _translating(self) -> AbstractContextManager[None]:
        """A block in which the database's errors come out as ours."""

    @abstractmethod
    def purge(self, *, at: str = "", now: str | None = None) -> bool:
        """Whether deleted words are gone from the files; notes that have expired by `now` are deleted first."""

    @abstractmethod
    def stats(self) -> dict[str, int | str]:
        """Facts about the store: schema, language, counts, sizes in bytes, and "ok" or what a quick check found."""

    @abstractmethod
    def check(self) -> Check:
        """Whether the store holds what was written to it, and what to do where it does not."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection; the store cannot be used after."""

    # -- notes -------------------------------------------------------------------------------------------------------

    def add(self, notes: Iterable[Note], *, progress: Progress | None = None) -> list[str]:
        """Ids of the notes, written in one transaction; a note that is there already, word for word, is passed over."""
        return self._write(notes, None, progress)

    def put(self, notes: Iterable[Note]) -> list[Note]:
        """What `add` does, with the notes as they are stored."""
        stored = Stored()
        ids = self._write(notes, stored, None)
        unread = list(stored.unread)
        found = stored.notes | dict(zip(unread, self.get_many(unread) if unread else (), strict=True))
        return [found[note_id] for note_id in ids]

    def _write(self, notes: Iterable[Note], stored: Stored | None, progress: Progress | None) -> list[str]:
        with self._adding(_batches(notes)) as (connection, batches):
            with translate_damage(self.path):
                writer = self.writers(connection, stored)
            ids: list[str] = []
            for batch in batches:  # the caller's own errors stay what they are
                with translate_damage(self.path):
                    writer.write(batch)
                for note in batch:
                    ids.append(note.id)
                    if progress is not None:
                        progress(len(ids))
            with translate_damage(self.path):
                writer.finish()
        return ids

    def get(self, note_id: str) -> Note:
        """The note with this id."""
        return self.get_many([note_id])[0]

    def get_many(self, note_ids: Sequence[str]) -> list[Note]:
        """The notes with these ids, in the order asked for."""
        with self._read() as connection:
            rows = connection.execute(f"{NOTE}WHERE note.id {IN}", (Many(note_ids),))
            found = {row[1]: read_note(row) for row in rows}
        for note_id in note_ids:
            if note_id not in found:
                raise NotFoundError(note_id)
        return [found[note_id] for note_id in note_ids]

    def all(
        self,
        scope: Scope,
        only: Filter | None = None,
        *,
        after: str | int | None = None,
        limit: int | None = None,
        superseded: bool = False,
        skip_damaged: bool = False,
        order: Order = "oldest",
    ) -> Iterator[Note]:
        """Notes of the scope in the order they were added, or the other way round; from a note or place on.

        Superseded ones come on request.
        """
        only = Filter() if only is None else only
        check = check_of(only)
        where, values = conditions(scope, only)
        if not superseded:
            where.append("newer.seq IS NULL")
        with self._read() as connection:
            by, further = _from(connection, scope, after, order)
        query = f"{NOTE} WHERE {' AND '.join([*where, *further])} ORDER BY {by}"
        if limit is not None and check is None and not skip_damaged:
            query += f" LIMIT {int(limit)}"
        found = 0
        for row in self._rows(query, [*values, *further.values()]):
            try:
                with self._translating(), translate_damage(self.path):
                    note = read_note(row)
            except StoreError:
                if skip_damaged:
                    continue
                raise
            if check is not None and not check([row[place] for place in FACT_PLACES]):
                continue
            if limit is not None and found >= limit:
                return
            found += 1
            yield note

    def place(self, note_id: str) -> int:
        """Where the note stands in the order of all notes; no other will ever stand there."""
        with self._read() as connection:
            return deleting.seqs_of(connection, [note_id])[0]

    def count(self, scope: Scope, *, superseded: bool = True, now: str | None = None) -> int:
        """How many notes the scope holds, with superseded ones or without; with `now`, less those expired by then."""
        where, values = conditions(scope, Filter())
        named = " AND ".join(where)
        column = "total" if superseded else "notes"
        query = f"SELECT coalesce(sum({column}), 0) FROM scope WHERE {named}"
        with self._read() as connection:
            held = int(connection.execute(query, values).fetchone()[0])
            return (
                held
                if now is None
                else held - deleting.count_expired(connection, named, values, now, superseded=superseded)
            )

    def history(self, note_id: str) -> list[Note]:
        """Every version of the note, oldest first."""
        query = VERSIONS + NOTE + "WHERE note.seq IN (SELECT seq FROM version) ORDER BY note.seq"
        with self._read() as connection:
            rows = connection.execute(query, (Many([note_id]),)).fetchall()
        if not rows:
            raise NotFoundError(note_id)
        with self._translating(), translate_damage(self.path):
            return [read_note(row) for row in rows]

    def delete(self, note_ids: Sequence[str], *, versions: bool = False) -> Deleted:
        """What went: the notes with all that stands on them. A note they corrected becomes current again.

        With `versions` every version of each note goes with it.
        """
        with self._writing(Touches(notes=note_ids)) as connection, translate_damage(self.path):
            chosen = deleting.find_versions(connection, note_ids) if versions else note_ids
            notes, records = deleting.delete(connection, chosen)
        reading.forget()
        return Deleted(notes, records, self.in_memory or not notes)

    def delete_all(self, scope: Scope) -> Deleted:
        """What went: every note of the scope with all that stands on it."""
        with self._writing(Touches(scope=scope)) as connection, translate_damage(self.path):
            where, values = conditions(scope, Filter())
            scopes = [row[0] for row in connection.execute("SELECT id FROM scope WHERE " + " AND ".join(where), values)]
            notes = records = 0
            for scope_id in scopes:
                gone = deleting.delete_scope(connection, scope_id)
                notes, records = notes + gone[0], records + gone[1]
        reading.forget()
        return Deleted(notes, records, self.in_memory or not notes)

    def service_tables(self) -> SharedTables | None:
        """What the servers on this store share; None where they keep it in files beside the store."""
        return None

    def count_unpurged(self, *, now: str | None = None) -> int:
        """How many deletes there were whose words may still lie in the files, and notes that have expired by now."""
        with self._read() as connection:
            return self._count_expired(connection, now) + (0 if self.in_memory else seal.count_unpurged(connection))

    def count_due(self, *, now: str) -> int:
        """The same of what is to be purged in the background."""
        if self.rewrites_by_itself:
            return self.count_unpurged(now=now)
        with self._read() as connection:
            return self._count_expired(connection, now)

    def purge_due(self, *, at: str, now: str) -> bool:
        """Whether that is done: a store that many share rewrites its files only when it is told to."""
        if self.rewrites_by_itself:
            return self.purge(at=at, now=now)
        self._delete_expired(now)
        return True

    def _count_expired(self, connection: Database, now: str | None) -> int:
        return 0 if now is None else len(deleting.find_expired(connection, now))

    def _delete_expired(self, now: str) -> None:
        with self._read() as connection:
            due = deleting.find_expired(connection, now)
        if due:
            with self._writing(EVERYTHING) as connection, translate_damage(self.path):
                deleting.delete(connection, deleting.find_expired(connection, now))
            reading.forget()

    # -- the index ---------------------------------------------------------------------------------------------------

    @property
    def language(self) -> Language:
        """The language that the notes are indexed in. Another process may change it at any time."""
        with self._read() as connection:
            return seal.language_of(connection)

    def reindex(self, language: Language | None = None, *, progress: Progress | None = None) -> int:
        """How many notes are in the index, which was made anew, in that language or else in the store's own."""
        with self._writing(EVERYTHING) as connection, translate_damage(self.path):
            return reindexing.reindex(connection, language or seal.language_of(connection), progress)

    @contextlib.contextmanager
    def snapshot(self, scope: Scope) -> Iterator[Snapshot]:
        """One consistent view of the scope's notes and index, for as long as the block runs."""
        with self._read() as connection:
            where, values = conditions(scope, Filter())
            query = f"SELECT id, notes, length, slots FROM scope WHERE {' AND '.join(where)}"
            query += " ORDER BY user_id, agent_id, run_id"  # decides ties, so not by which scope came first
            scopes = connection.execute(query, values).fetchall()
            yield self.snapshots(connection, scopes, self._matrices, self._indexes)

    # -- vectors -----------------------------------------------------------------------------------------------------

    def identify_embedder(self, name: str, probe: NDArray[np.float32]) -> str:
        """Under which name the file keeps the vectors of the embedder that has this vector for a fixed text."""
        with self._read() as connection:
            known = vectors.identify(connection, name, probe)
        if known is None:
            with self._writing(EVERYTHING) as connection:
                known = vectors.register(connection, name, probe)
        return known

    def find_unembedded(self, whose: Where, embedder: str, *, limit: int) -> Unembedded:
        """Current notes of the scope that have no vector of this embedder yet, and have not expired."""
        with self._read() as connection:
            return vectors.find_unembedded(connection, whose.scope, whose.only, embedder, limit)

    def put_vectors(
        self,
        embedder: str,
        given: Iterable[tuple[str, NDArray[np.float32]]],
        upto: Mapping[int, int] | None = None,
    ) -> None:
        """Keep an embedder's vectors: a note's id and a row for each passage of it.

        Notes deleted or corrected meanwhile are passed over.
        """
        rows = list(given)
        touches = Touches(notes=[note_id for note_id, _ in rows], scopes=list(upto or ()))
        with self._writing(touches) as connection:
            vectors.put(connection, embedder, rows, upto or {})

    def refresh_indexes(self, scope: Scope, embedder: str) -> None:
        """Bring the indexes of the scope's vectors up to date, where there are so many that they have one."""
        where, values = conditions(scope, Filter())
        with self._read() as connection:
            query = f"SELECT id FROM scope WHERE {' AND '.join(where)}"
            scopes = [row[0] for row in connection.execute(query, values)]
            pools = vectors.find_pools(connection, embedder, scopes)
        self._indexes.refresh(pools, self._read, self._writing)

    def drop_vectors(self, *, keep: str) -> int:
        """How many vectors went: those of every other embedder."""
        with self._writing(EVERYTHING) as connection:
            gone = vectors.drop(connection, keep)
            if gone:
                seal.mark_unpurged(connection)
            return gone

    # -- records -----------------------------------------------------------------------------------------------------

    def put_record(
        self, record_id: str, *, action: str, budget: int, text: str, about: str, sources: Sequence[str]
    ) -> None:
        """Keep a generated text with the ids of the notes it was written from."""
        record = (record_id, action, int(budget), text, about)
        with self._writing() as connection, translate_damage(self.path):
            seqs = deleting.seqs_of(connection, sources)
            connection.execute(_PUT_RECORD, (*record, checksum(*record)))
            connection.execute("DELETE FROM record_source WHERE record = ?", (record_id,))
            links = [(seq, record_id) for seq in seqs]
            connection.executemany("INSERT OR IGNORE INTO record_source (note, record) VALUES (?, ?)", links)

    def get_record(self, record_id: str) -> tuple[str, str] | None:
        """Text of a kept record and what is noted about it, or None; one that is damaged is as if it were not there."""
        query = DERIVED["record"] + " WHERE id = ?"
        with self._read() as connection:
            row = connection.execute(query, (record_id,)).fetchone()
        return None if row is None or checksum(*row[:5]) != row[5] else (row[3], row[4])

    def count_records(self) -> int:
        """How many records are kept."""
        with self._read() as connection:
            return deleting.count(connection, "record")

    def clear_records(self) -> int:
        """How many records went: all of them."""
        with self._writing() as connection:
            gone = connection.execute("DELETE FROM record").rowcount
            if gone:
                seal.mark_unpurged(connection)
            return gone

    # -- replies -----------------------------------------------------------------------------------------------------

    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]:
        """The kept replies with these keys; they stand on the notes `sources` too from now on."""
        with self._writing() as connection, translate_damage(self.path):
            return replies.get(connection, keys, sources)

    def put_replies(
        self, given: Sequence[Kept], sources: Sequence[str] | None, *, most_bytes: int = replies.MOST_BYTES
    ) -> int:
        """How many replies are kept, in at most so many bytes, until a note in `sources` is deleted.

        A prompt holds text of notes, so nothing is kept where one of them is gone by now or none is named; None says
        that it stands on no note.
        """
        with self._writing() as connection, translate_damage(self.path):
            query = f"SELECT count(*) FROM note WHERE id {IN}"
            (known,) = connection.execute(query, (Many(sources or ()),)).fetchone()
            if sources is not None and known < max(1, len(set(sources))):
                return 0
            return replies.put(connection, given, sources or (), most=most_bytes)

    def reply_stats(self) -> ReplyStats:
        """What is kept of replies, and how often it served."""
        with self._read() as connection:
            return replies.stats(connection)

    def clear_replies(self) -> int:
        """How many kept replies went: all of them."""
        with self._writing() as connection, translate_damage(self.path):
            gone = replies.clear(connection)
            if gone:
                seal.mark_unpurged(connection)
            return gone

    def _fix_language(self, new: Language) -> None:
        """Index in that language from now on, where nothing is indexed yet."""
        if self.language == new:
            return
        with self._writing(EVERYTHING) as connection:
            known = seal.language_of(connection)
            if deleting.count(connection, "note") and known != new:
                command = f"retcon reindex {shlex.quote(self.path)} --language {new.name}"
                raise InputError(f"{self.path} is indexed in {known.name}, not in {new.name}: '{command}' changes that")
            seal.set_language(connection, new)


_PUT_RECORD = """
INSERT INTO record (id, action, budget, text, about, sum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET action = excluded.action, budget = excluded.budget, text = excluded.text,
  about = excluded.about, sum = excluded.sum
"""
_SLOT = """
SELECT coalesce(
  (SELECT slot FROM note WHERE seq = :place AND scope = :scope),
  (SELECT {end}(slot) FROM note WHERE scope = :scope AND +seq {side} :place), {none}
)"""
_SLOTS = {  # the slot of a place, or where its note is gone the one before it in that order, by the index of slots
    "oldest": _SLOT.format(end="max", side="<", none=-1),
    "newest": _SLOT.format(end="min", side=">", none=1 << 62),
}


def _from(connection: Database, scope: Scope, after: str | int | None, order: Order) -> tuple[str, dict[str, int]]:
    """By what to order the notes of a scope, and the conditions, with their values, under which they come after one.

    Where one row of `scope` holds them all, its slots are in the order of `seq` and have an index: no sort, and no walk
    through what comes before.
    """
    place = deleting.seqs_of(connection, [after])[0] if isinstance(after, str) else after
    where, values = conditions(scope, Filter())
    rows = connection.execute(f"SELECT id FROM scope WHERE {' AND '.join(where)} LIMIT 2", values).fetchall()
    beyond, way = (">", "") if order == "oldest" else ("<", " DESC")
    if len(rows) != 1:
        return f"note.seq{way}", {} if place is None else {f"note.seq {beyond} ?": place}
    further = {"note.scope = ?": rows[0][0]}
    if place is not None:
        named = {"place": place, "scope": rows[0][0]}
        further[f"note.slot {beyond} ?"] = connection.execute(_SLOTS[order], named).fetchone()[0]
    return f"note.slot{way}", further


def _batches(notes: Iterable[Note]) -> Iterator[list[Note]]:
    """The notes, some at a time; where getting the next one fails, those before it come first."""
    source = iter(notes)
    while True:
        batch: list[Note] = []
        try:
            for note in islice(source, BATCH):
                batch.append(note)
        except Exception:
            if batch:
                yield batch
            raise
        if not batch:
            return
        yield batch
