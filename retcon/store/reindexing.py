"""The index made again from the notes: after damage, and where a newer version indexes them otherwise."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

from retcon.store import postings
from retcon.store.rows import NOTE_AND_BEFORE, SLOT, read_note
from retcon.store.writing import FLUSH, context_keys, make_doc


def rebuild_index(connection: sqlite3.Connection) -> None:
    """The index made from the notes; vectors are made again when they are next needed."""
    for table in ("posting", "block", "doc", "vector", "pool"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("UPDATE scope SET notes = 0, length = 0")
    ids = [row[0] for row in connection.execute("SELECT id FROM scope")]
    for scope in ids:
        for docs in batches(docs_of(connection, scope, skip_damaged=True), FLUSH):
            postings.insert(connection, scope, docs, newest=True)


def docs_of(connection: sqlite3.Connection, scope: int, *, skip_damaged: bool = False) -> Iterator[postings.Doc]:
    """The current notes of the scope as the index should see them."""
    query = NOTE_AND_BEFORE + "WHERE note.scope = ? AND newer.seq IS NULL ORDER BY note.slot"
    for row in connection.execute(query, (scope,)):
        try:
            note = read_note(row[:-1])
        except sqlite3.DatabaseError:
            if skip_damaged:
                continue
            raise
        context = row[-1] if isinstance(row[-1], str) else ""
        yield make_doc(row[0], row[SLOT], note, context_keys(context))


def batches(docs: Iterable[postings.Doc], size: int) -> Iterator[list[postings.Doc]]:
    """The docs, so many at a time."""
    waiting = iter(docs)
    while batch := list(islice(waiting, size)):
        yield batch
