"""Adds to a server: what `Writer` does, with few questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from retcon.note import Note
from retcon.store.database import Many
from retcon.store.writing import NO_TURN, Writer, key_of

_NUMBERS = """
SELECT nextval(numbers.name) FROM (SELECT pg_get_serial_sequence('note', 'seq')::regclass AS name OFFSET 0) AS numbers,
  generate_series(1, ?)
"""
_SCOPES = """
SELECT id, slots, user_id, agent_id, run_id FROM scope
JOIN unnest(?::text[], ?::text[], ?::text[]) AS asked (user_id, agent_id, run_id) USING (user_id, agent_id, run_id)
"""
_NEWEST = """
SELECT asked.scope, asked.session, newest.id, newest.seq, newest.text
FROM unnest(?::bigint[], ?::text[]) AS asked (scope, session), LATERAL (
  SELECT id, seq, text FROM note WHERE note.scope = asked.scope AND note.session = asked.session
  ORDER BY seq DESC LIMIT 1
) AS newest
"""


class PostgresWriter(Writer):
    """The same adds, with numbers from the server's sequence, as others add at the same time.

    What a batch will ask for one by one is asked for at once, before it: a question to a server takes time.
    """

    seqs: Iterator[int] = iter(())

    def write(self, notes: Sequence[Note]) -> None:
        """Store each note unless it is there already; refuse an id that another text has."""
        if notes:
            self.seqs = iter([row[0] for row in self.connection.execute(_NUMBERS, (len(notes),))])
        if len(notes) > 1:
            self._open_scopes(list({key_of(note): None for note in notes if key_of(note) not in self.scopes}))
            self._find_newest(notes)
        super().write(notes)

    def _open_scopes(self, keys: Sequence[tuple[str, str, str]]) -> None:
        if keys:
            insert = "INSERT OR IGNORE INTO scope (user_id, agent_id, run_id) VALUES (?, ?, ?)"
            self.connection.executemany(insert, keys)
            for scope, slots, *key in self.connection.execute(_SCOPES, _columns(keys)):
                self._open_scope(scope, (key[0], key[1], key[2]), slots)

    def _find_newest(self, notes: Sequence[Note]) -> None:
        """Look up the newest notes of the batch's sessions that this add has not come across."""
        asked: dict[tuple[int, str], None] = {}
        for note in notes:
            scope = self.scopes[key_of(note)]
            if note.session is not None and not scope.began_empty and (scope.id, note.session) not in self.last:
                asked[scope.id, note.session] = None
        if asked:
            self.last |= dict.fromkeys(asked, NO_TURN)
            for scope_id, session, *row in self.connection.execute(_NEWEST, _columns(asked)):
                self.last[scope_id, session] = self._turn(row)

    def _take_seq(self) -> int:
        self.added += 1
        return next(self.seqs)


def _columns(rows: Iterable[Sequence[Any]]) -> list[Many]:
    return [Many(column) for column in zip(*rows, strict=True)]
