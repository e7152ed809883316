"""The store's seal: how many notes the file should hold, the sum of their checksums, how many deletes wait for a purge.

The seal changes in the transaction of every write, by what that write did. So a note that another program took out, put
in or changed, and one that vanished with a damaged page, shows as soon as somebody counts (`checking.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import TypeGuard

from retcon.errors import StoreError
from retcon.language import Language, find_name, language
from retcon.store.checksum import total
from retcon.store.database import IN, Database, Many, Sealing
from retcon.store.rows import NOTE, SUMMED, read_note, sum_note


def language_of(connection: Database) -> Language:
    """The language that the store is indexed in."""
    (name,) = connection.execute("SELECT language FROM seal").fetchone()
    return find_language(name)


def find_language(name: str) -> Language:
    """The language that a store names."""
    if find_name(name) != name:
        what = f"the store is indexed in {str(name)[:40]!r}, which this installation does not know"
        raise StoreError(f"{what}: install a newer PyStemmer, or 'retcon reindex --language english'")
    return language(name)


def set_language(connection: Database, new: Language) -> None:
    """Note in which language the store is indexed."""
    connection.execute("UPDATE seal SET language = ?", (new.name,))


def next_seq(connection: Database) -> int:
    """The number of the next note; numbers of deleted ones never come again."""
    queries = ("SELECT max(seq) FROM sqlite_sequence WHERE name = 'note'", "SELECT max(seq) FROM note")
    return 1 + max(connection.execute(query).fetchone()[0] or 0 for query in queries)


def change(connection: Database, notes: int, new: Collection[int], *, gone: Collection[int] = ()) -> None:
    """Count so many notes more, or less, the checksums that came and those that went; a delete is to be purged."""
    if not new and not gone:
        return
    if _adds_up(connection):  # many write at once: it adds up there
        connection.change_seal(notes, total([*new, *(-each for each in gone)]), int(notes < 0))
        return
    (known,) = connection.execute("SELECT sum FROM seal").fetchone()
    summed = total([known, *new, *(-each for each in gone)])
    update = "UPDATE seal SET notes = notes + ?, sum = ?, deletes = deletes + ?"
    connection.execute(update, (notes, summed, int(notes < 0)))


def _adds_up(connection: Database) -> TypeGuard[Sealing]:
    """Whether the connection adds to the seal by itself. SQLite's is told at once: to look for the method is slow."""
    return not isinstance(connection, sqlite3.Connection) and isinstance(connection, Sealing)


def sums_of(connection: Database, seqs: Collection[int]) -> list[int]:
    """The checksums of these notes as they are kept."""
    return [row[0] for row in connection.execute(f"SELECT sum FROM note WHERE seq {IN}", (Many(sorted(seqs)),))]


def check(connection: Database, seqs: Collection[int]) -> None:
    """Nothing, or an error where one of these notes is not what was written: a new checksum would hide it."""
    for row in connection.execute(f"{NOTE} WHERE note.seq {IN}", (Many(sorted(seqs)),)):
        read_note(row)


def renew(connection: Database, seqs: Collection[int]) -> list[int]:
    """New checksums of these notes, whose links have changed, written and returned."""
    rows = connection.execute(f"{SUMMED} WHERE note.seq {IN}", (Many(sorted(seqs)),)).fetchall()
    sums = {row[0]: sum_note(row) for row in rows}
    connection.executemany("UPDATE note SET sum = ? WHERE seq = ?", [(each, seq) for seq, each in sums.items()])
    return list(sums.values())


def deletes(connection: Database) -> int:
    """How many deletes there ever were."""
    return int(connection.execute("SELECT deletes FROM seal").fetchone()[0])


def count_unpurged(connection: Database) -> int:
    """How many deletes wait for a purge."""
    return int(connection.execute("SELECT deletes - purged FROM seal").fetchone()[0])


def mark_unpurged(connection: Database) -> None:
    """One more delete waits for a purge."""
    if _adds_up(connection):
        connection.change_seal(0, 0, 1)
        return
    connection.execute("UPDATE seal SET deletes = deletes + 1")


def mark_purged(connection: Database, upto: int, at: str) -> None:
    """The first so many deletes wait no longer; those that came meanwhile do."""
    connection.execute(
        "UPDATE seal SET purged = CASE WHEN purged > ? THEN purged ELSE ? END, purged_at = ?", (upto, upto, at)
    )
