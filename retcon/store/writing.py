"""Bulk adds: notes row by row, their index entries in large batches, all in the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.note import Note
from retcon.passages import is_long, split
from retcon.store import postings, seal
from retcon.store.rows import NOTE, read_note, sum_note, time_of
from retcon.words import CONTEXT, OWN, spoken_date, stem_words, term_key, words

FLUSH = 50_000  # notes whose index entries are written together during a bulk add


@dataclass
class _OpenScope:
    id: int
    ids: tuple[str, str, str]
    next_slot: int
    saved_slot: int  # next_slot as the file has it
    pending: dict[int, postings.Doc] = field(default_factory=dict)  # by slot, not yet in the index


_INSERT = (
    "INSERT INTO note"
    " (seq, id, slot, session, speaker, timestamp, at, text, metadata, created_at, live, expires_at,"
    " follows, supersedes, scope, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A note as the next turn needs it."""

    id: str | None
    seq: int | None
    keys: Sequence[int]  # terms that it lends to the turn after it


_NO_TURN = _Turn(None, None, ())
_to_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


class Writer:
    """One bulk add: writes notes row by row and their index entries in large batches."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.scopes: dict[tuple[str, str, str], _OpenScope] = {}
        self.last: dict[tuple[int, str | None], _Turn] = {}  # (scope, session) -> the newest note of this add
        self.waiting = 0
        self.next_seq = seal.next_seq(connection)
        self.sums: list[int] = []  # of the notes of this add

    def write(self, note: Note) -> None:
        """Store one note unless it is there already; refuse an id that another text has."""
        if self.connection.execute("SELECT 1 FROM note WHERE id = ?", (note.id,)).fetchone() is not None:
            known = self.connection.execute(NOTE + "WHERE note.id = ?", (note.id,)).fetchone()
            _refuse_other(read_note(known), note)
            return
        scope = self._scope(note)
        before = self._before(scope, note)
        older = self._take_out_superseded(scope, note)
        slot, scope.next_slot = scope.next_slot, scope.next_slot + 1
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        name = (seq, note.id)
        rest = (
            slot, note.session, note.speaker, note.timestamp, time_of(note), note.text,
            _to_json(dict(note.metadata)) if note.metadata else "{}", note.created_at or "",
        )  # fmt: skip
        last = (int(note.live), note.expires_at)
        self.sums.append(sum_note((*name, *scope.ids, *rest, before.id, note.supersedes, *last)))
        self.connection.execute(_INSERT, (*name, *rest, *last, before.seq, older, scope.id, self.sums[-1]))
        scope.pending[slot] = doc = make_doc(seq, slot, note, before.keys)
        self.last[scope.id, note.session] = _Turn(note.id, seq, () if doc.passages else doc.parts[0][1])
        self.waiting += 1
        if self.waiting >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write the index entries that wait."""
        for scope in self.scopes.values():
            if scope.next_slot > scope.saved_slot:
                postings.insert(self.connection, scope.id, list(scope.pending.values()), newest=True)
                scope.pending.clear()
                update = "UPDATE scope SET slots = ?, total = total + ? WHERE id = ?"
                self.connection.execute(update, (scope.next_slot, scope.next_slot - scope.saved_slot, scope.id))
                scope.saved_slot = scope.next_slot
        self.waiting = 0

    def finish(self) -> None:
        """Write what waits, and the seal."""
        self.flush()
        seal.change(self.connection, len(self.sums), self.sums)

    def _scope(self, note: Note) -> _OpenScope:
        ids = (note.user_id or "", note.agent_id or "", note.run_id or "")
        if ids not in self.scopes:
            self.connection.execute("INSERT OR IGNORE INTO scope (user_id, agent_id, run_id) VALUES (?, ?, ?)", ids)
            query = "SELECT id, slots FROM scope WHERE user_id = ? AND agent_id = ? AND run_id = ?"
            scope, slots = self.connection.execute(query, ids).fetchone()
            self.scopes[ids] = _OpenScope(scope, ids, slots, slots)
        return self.scopes[ids]

    def _before(self, scope: _OpenScope, note: Note) -> _Turn:
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
        return _Turn(found[0], found[1], context_keys(found[2])) if found else _NO_TURN

    def _take_out_superseded(self, scope: _OpenScope, note: Note) -> int | None:
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
            raise ConflictError(
                note.supersedes, "is of a note that was superseded before: correct the newest of its history", newer
            )
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


def context_keys(text: str) -> Sequence[int]:
    """Keys of the terms that a turn lends to the one after it: a long turn is about too much to lend any."""
    return () if is_long(text) else term_keys(text)


def make_doc(seq: int, slot: int, note: Note, context: Sequence[int]) -> postings.Doc:
    """The note as the index sees it: found by its words, speaker and date, and by the turn before it.

    A long note borrows nothing from the turn before it, and its passages are kept too: its best one counts.
    """
    label = _label_keys(note.speaker, note.timestamp)
    spans = split(note.text)
    if len(spans) == 1:
        return postings.Doc(seq, slot, ((OWN, term_keys(note.text)), (OWN, label), (CONTEXT, context)))
    passages = [[*term_keys(note.text[start:stop]), *label] for start, stop in spans]
    return postings.Doc(seq, slot, ((OWN, term_keys(note.text)), (OWN, label)), passages)


@lru_cache(maxsize=1 << 12)
def _label_keys(speaker: str | None, timestamp: str | None) -> tuple[int, ...]:
    return tuple(term_keys(f"{speaker or ''} {spoken_date(timestamp)}"))


def _refuse_other(known: Note, note: Note) -> None:
    for name in ("text", "speaker", "session", "timestamp", "user_id", "agent_id", "run_id", "metadata"):
        ours, theirs = getattr(known, name), getattr(note, name)
        if ours != theirs and not (name == "metadata" and dict(ours) == dict(theirs)):
            raise ConflictError(note.id, f"is taken by a note with another {name}")
    if note.expires_at is not None and known.expires_at is None:
        raise ConflictError(note.id, "is taken by a note that never expires: supersede it to change that")
    if note.supersedes is not None and note.supersedes != known.supersedes:
        raise ConflictError(note.id, "is taken by a note that does not supersede the same one")
