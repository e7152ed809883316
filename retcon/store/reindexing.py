"""The index made again from the notes: after damage, in another language, or as a newer version makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice

from retcon.language import Language
from retcon.store import Progress, postings, seal
from retcon.store.database import Damage, Database
from retcon.store.rows import NOTE_AND_BEFORE, SLOT, read_note
from retcon.store.writing import FLUSH, context_keys, make_doc


def rebuild_index(connection: Database) -> None:
    """The index made from the notes; vectors are made again when they are next needed."""
    connection.execute("DELETE FROM vector")
    connection.execute("DELETE FROM pool")
    _index_notes(connection, skip_damaged=True)


def reindex(connection: Database, language: Language, progress: Progress | None = None) -> int:
    """How many notes are indexed now, in that language; vectors know no language and stay."""
    seal.set_language(connection, language)
    return _index_notes(connection, progress=progress)


def _index_notes(connection: Database, *, skip_damaged: bool = False, progress: Progress | None = None) -> int:
    """How many notes the lexical index holds, once it was emptied and made from the notes."""
    for table in ("posting", "block", "doc"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("UPDATE scope SET notes = 0, length = 0")
    ids = [row[0] for row in connection.execute("SELECT id FROM scope")]
    done = count(1)
    for scope in ids:
        for docs in batches(_tell(docs_of(connection, scope, skip_damaged=skip_damaged), done, progress), FLUSH):
            postings.insert(connection, postings.count(docs), newest=True)
    return next(done) - 1


def _tell(docs: Iterable[postings.Doc], done: Iterator[int], progress: Progress | None) -> Iterator[postings.Doc]:
    """The docs, each counted and told as it passes."""
    for doc in docs:
        number = next(done)
        if progress is not None:
            progress(number)
        yield doc


def docs_of(connection: Database, scope: int, *, skip_damaged: bool = False) -> Iterator[postings.Doc]:
    """The current notes of the scope as the index should see them."""
    query = NOTE_AND_BEFORE + "WHERE note.scope = ? AND newer.seq IS NULL ORDER BY note.slot"
    language = seal.language_of(connection)
    for row in connection.execute(query, (scope,)):
        try:
            note = read_note(row[:-1])
        except Damage:
            if skip_damaged:
                continue
            raise
        context = row[-1] if isinstance(row[-1], str) else ""
        yield make_doc(scope, row[0], row[SLOT], note, context_keys(context, language), language)


def batches(docs: Iterable[postings.Doc], size: int) -> Iterator[list[postings.Doc]]:
    """The docs, so many at a time."""
    waiting = iter(docs)
    while batch := list(islice(waiting, size)):
        yield batch
