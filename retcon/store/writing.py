"""Bulk adds: notes in batches, their index entries in larger ones, all in the caller's transaction.

What waits to be written is bounded: a million notes take no more memory than the first fifty thousand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.language import Language
from retcon.memo import Memo
from retcon.note import Note
from retcon.passages import LONG, is_long, split
from retcon.store import postings, seal
from retcon.store.database import IN, Database, Many
from retcon.store.rows import NOTE, read_note, sum_note, time_of
from retcon.words import CONTEXT, OWN, hash_term, stem_word

BATCH = 500  # notes whose rows are written together
FLUSH = 50_000  # notes whose index entries are


@dataclass
class _OpenScope:
    id: int
    ids: tuple[str, str, str]
    next_slot: int
    saved_slot: int  # next_slot as the file has it
    began_empty: bool = False  # no note was ever in it before this add


_INSERT = (
    "INSERT INTO note"
    " (seq, id, slot, session, speaker, timestamp, at, text, metadata, created_at, live, expires_at,"
    " follows, supersedes, scope, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class _Turn(NamedTuple):
    """A note as the next turn needs it."""

    id: str | None
    seq: int | None
    keys: Sequence[int]  # terms that it lends to the turn after it


NO_TURN = _Turn(None, None, ())
_to_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


class Writer:
    """One bulk add: writes the rows of notes a batch at a time, and their index entries in larger batches."""

    def __init__(self, connection: Database, stored: Stored | None = None) -> None:
        """`stored` takes the notes as they are written, where the caller wants them back."""
        self.connection, self.stored = connection, stored
        self.language = seal.language_of(connection)
        self.scopes: dict[tuple[str, str, str], _OpenScope] = {}
        self.last: dict[tuple[int, str | None], _Turn] = {}  # (scope, session) -> the newest note of this add
        self.docs: dict[int, postings.Doc] = {}  # of this batch, by seq
        self.counted: list[postings.Counted] = []  # batches of docs, not yet in the index
        self.waiting = 0  # docs in them
        self.gone: set[int] = set()  # those of them that were corrected meanwhile, by seq
        self.added = 0
        self.next_seq = 0  # 0: not known yet
        self.sum = 0  # of the checksums of this add
        self.rows: list[tuple[Any, ...]] = []  # of notes, not yet in the file
        self.ids: set[str] = set()  # of this batch, written or not

    def write(self, notes: Sequence[Note]) -> None:
        """Store each note unless it is there already; refuse an id that another text has."""
        known = self._find_known([note.id for note in notes])
        self.ids.clear()
        for note in notes:
            if note.id in known or note.id in self.ids:
                self._pass_over(note)
            else:
                self.ids.add(note.id)
                self._add(note)
        self._write_rows()
        self._count_docs()
        if self.waiting >= FLUSH:
            self.flush()

    def _find_known(self, ids: Sequence[str]) -> set[str]:
        """Those ids that the file holds."""
        if len(ids) == 1:
            found = self.connection.execute("SELECT id FROM note WHERE id = ?", ids)
        else:
            found = self.connection.execute(f"SELECT id FROM note WHERE id {IN}", (Many(ids),))
        return {row[0] for row in found}

    def _pass_over(self, note: Note) -> None:
        self._write_rows()  # it may be one of them
        known = self.connection.execute(NOTE + "WHERE note.id = ?", (note.id,)).fetchone()
        _refuse_other(read_note(known), note)
        if self.stored is not None:
            self.stored.read_again(note.id)

    def _add(self, note: Note) -> None:
        scope = self._scope(note)
        before = self._before(scope, note)
        older = None if note.supersedes is None else self._take_out_superseded(scope, note, note.supersedes)
        slot, scope.next_slot = scope.next_slot, scope.next_slot + 1
        seq = self._take_seq()
        rest = (
            slot, note.session, note.speaker, note.timestamp, time_of(note), note.text,
            _to_json(dict(note.metadata)) if note.metadata else "{}", note.created_at or "",
        )  # fmt: skip
        last = (int(note.live), note.expires_at)
        summed = sum_note((seq, note.id, *scope.ids, *rest, before.id, note.supersedes, *last))
        self.sum += summed
        self.rows.append((seq, note.id, *rest, *last, before.seq, older, scope.id, summed))
        self.docs[seq] = doc = make_doc(scope.id, seq, slot, note, before.keys, self.language)
        self.last[scope.id, note.session] = _Turn(note.id, seq, () if doc.passages else doc.parts[0][1])
        if self.stored is not None:
            self.stored.take(note, before.id)

    def _write_rows(self) -> None:
        """Write the notes that wait; whoever looks one up in the file calls this first."""
        if self.rows:
            self.connection.executemany(_INSERT, self.rows)
            self.rows.clear()

    def _count_docs(self) -> None:
        """Make index entries of the batch's docs: these take a tenth of the objects."""
        if self.docs:
            self.counted.append(postings.count(list(self.docs.values())))
            self.waiting += len(self.docs)
            self.docs.clear()

    def flush(self) -> None:
        """Write the index entries that wait."""
        grown = [scope for scope in self.scopes.values() if scope.next_slot > scope.saved_slot]
        if grown:
            new = {scope.id for scope in grown if scope.saved_slot == 0}
            docs = postings.join(self.counted, without=self.gone)
            postings.insert(self.connection, docs, newest=True, first=new)
            update = "UPDATE scope SET slots = ?, total = total + ? WHERE id = ?"
            slots = [(scope.next_slot, scope.next_slot - scope.saved_slot, scope.id) for scope in grown]
            self.connection.executemany(update, slots)
        for scope in grown:
            scope.saved_slot = scope.next_slot
        self.counted.clear()
        self.gone.clear()
        self.waiting = 0

    def finish(self) -> None:
        """Write what waits, and the seal."""
        self.flush()
        if self.added:
            seal.change(self.connection, self.added, [self.sum])

    def _take_seq(self) -> int:
        """The number of the next note."""
        self.next_seq = self.next_seq + 1 if self.next_seq else seal.next_seq(self.connection)
        self.added += 1
        return self.next_seq

    def _scope(self, note: Note) -> _OpenScope:
        ids = key_of(note)
        if ids not in self.scopes:
            self.connection.execute("INSERT OR IGNORE INTO scope (user_id, agent_id, run_id) VALUES (?, ?, ?)", ids)
            query = "SELECT id, slots FROM scope WHERE user_id = ? AND agent_id = ? AND run_id = ?"
            scope, slots = self.connection.execute(query, ids).fetchone()
            self._open_scope(scope, ids, slots)
        return self.scopes[ids]

    def _open_scope(self, scope: int, ids: tuple[str, str, str], slots: int) -> None:
        self.scopes[ids] = _OpenScope(scope, ids, slots, slots, slots == 0)

    def _before(self, scope: _OpenScope, note: Note) -> _Turn:
        """The turn before this one: the one it names, else the newest of its session."""
        newest = self.last.get((scope.id, note.session))
        if note.follows is not None:
            if newest is not None and newest.id == note.follows:
                return newest
            self._write_rows()
            query = "SELECT id, seq, text FROM note WHERE id = ? AND scope = ?"
            found = self.connection.execute(query, (note.follows, scope.id)).fetchone()
            if found is None:
                raise NotFoundError(note.follows)
        elif note.session is None:
            return NO_TURN
        elif newest is not None:
            return newest
        elif scope.began_empty:
            return NO_TURN
        else:
            query = "SELECT id, seq, text FROM note WHERE scope = ? AND session = ? ORDER BY seq DESC LIMIT 1"
            found = self.connection.execute(query, (scope.id, note.session)).fetchone()
        return self._turn(found) if found else NO_TURN

    def _turn(self, row: Sequence[Any]) -> _Turn:
        """The turn in a row of id, seq and text."""
        return _Turn(row[0], row[1], context_keys(row[2], self.language))

    def _take_out_superseded(self, scope: _OpenScope, note: Note, supersedes: str) -> int:
        """Seq of the note that this one corrects, taken out of the index."""
        self._write_rows()
        query = (
            "SELECT old.seq, old.scope, old.slot, newer.id FROM note AS old"
            " LEFT JOIN note AS newer ON newer.supersedes = old.seq WHERE old.id = ?"
        )
        found = self.connection.execute(query, (supersedes,)).fetchone()
        if found is None:
            raise NotFoundError(supersedes)
        seq, owner, slot, newer = found
        if newer is not None:
            raise ConflictError(
                supersedes, "is of a note that was superseded before: correct the newest of its history", newer
            )
        if owner != scope.id:
            raise InputError(f"a note supersedes one of its own scope, and {note.supersedes!r} is in another")
        if slot < scope.saved_slot:
            postings.remove(self.connection, scope.id, [slot])
        elif self.docs.pop(seq, None) is None:
            self.gone.add(seq)
        self.connection.execute("DELETE FROM vector WHERE note = ?", (seq,))
        if self.stored is not None:
            self.stored.read_again(supersedes)
        return int(seq)


def key_of(note: Note) -> tuple[str, str, str]:
    """Whose note it is, as the table of scopes says it."""
    return note.user_id or "", note.agent_id or "", note.run_id or ""


class Stored:
    """The notes of an add as they are in the file, without reading them back; some have to be, and are named."""

    def __init__(self) -> None:
        self.notes: dict[str, Note] = {}
        self.unread: dict[str, None] = {}  # ids, in order

    def take(self, note: Note, follows: str | None) -> None:
        """Count the note, which was written with this link, among them."""
        if note.metadata or note.created_at is None:  # comes back in another form
            self.read_again(note.id)
        else:
            self.notes[note.id] = note if note.follows == follows else _relink(note, follows)

    def read_again(self, note_id: str) -> None:
        """This one is not, or no longer, as it was handed in."""
        self.unread[note_id] = None


def _relink(note: Note, follows: str | None) -> Note:
    """The note with another link: what `replace` gives, sooner."""
    return Note(
        note.id, note.text, note.speaker, note.session, note.timestamp, note.user_id, note.agent_id, note.run_id,
        note.metadata, follows, note.supersedes, note.superseded_by, note.created_at, note.live, note.expires_at,
    )  # fmt: skip


@lru_cache(maxsize=8)
def _keys_of(language: Language) -> Memo[int]:
    """Word -> key of its term, for the words of a language met lately; nothing else needs to remember them."""
    stem = stem_word if language.is_english else lambda word: language.stem_words([word])[0]
    return Memo(lambda word: hash_term(stem(word)), 1 << 17)


def term_keys(text: str, language: Language) -> list[int]:
    """Keys of the text's terms, in order."""
    return _keys_of(language).each(language.words(text))


def context_keys(text: str, language: Language) -> Sequence[int]:
    """Keys of the terms that a turn lends to the one after it: a long turn is about too much to lend any."""
    return () if is_long(text) else term_keys(text, language)


def make_doc(scope: int, seq: int, slot: int, note: Note, context: Sequence[int], language: Language) -> postings.Doc:
    """The note as the index sees it: found by its words, speaker and date, and by the turn before it.

    A long note borrows nothing from the turn before it, and its passages are kept too: its best one counts.
    """
    label = _label_keys(note.speaker, note.timestamp, language)
    keys = term_keys(note.text, language)
    few = len(keys) <= LONG and note.text.isascii()  # where a term is a word: counting them again would say the same
    spans = [] if few else split(note.text)
    if len(spans) < 2:
        return postings.Doc(scope, seq, slot, ((OWN, keys), (OWN, label), (CONTEXT, context)))
    passages = [[*term_keys(note.text[start:stop], language), *label] for start, stop in spans]
    return postings.Doc(scope, seq, slot, ((OWN, keys), (OWN, label)), passages)


@lru_cache(maxsize=1 << 12)
def _label_keys(speaker: str | None, timestamp: str | None, language: Language) -> tuple[int, ...]:
    return tuple(term_keys(f"{speaker or ''} {language.spoken_date(timestamp)}", language))


def _refuse_other(known: Note, note: Note) -> None:
    for name in ("text", "speaker", "session", "timestamp", "user_id", "agent_id", "run_id", "metadata"):
        ours, theirs = getattr(known, name), getattr(note, name)
        if ours != theirs and not (name == "metadata" and dict(ours) == dict(theirs)):
            raise ConflictError(note.id, f"is taken by a note with another {name}")
    if note.expires_at is not None and known.expires_at is None:
        raise ConflictError(note.id, "is taken by a note that never expires: supersede it to change that")
    if note.supersedes is not None and note.supersedes != known.supersedes:
        raise ConflictError(note.id, "is taken by a note that does not supersede the same one")
