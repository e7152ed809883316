"""A store moved row by row, from a file to a server or back, under the same numbers: rankings and checksums stay.

The copy grows beside its goal, as a file or schema named `..._moving`, and takes the goal's name only when every table
has as many rows as the source's, with the same hash. A move that was stopped goes on from there; where the source has
changed meanwhile, it begins anew. The source is read in one view, and never written.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from retcon.errors import InputError, StoreError
from retcon.store.backup import flush
from retcon.store.checking import damaged_notes
from retcon.store.checksum import checksum
from retcon.store.database import Database
from retcon.store.places import is_postgres, load_postgres, open_store
from retcon.store.sql import EVERYTHING, SqlStore
from retcon.store.sqlite import SqliteStore

BATCH = 1000  # rows of one transaction
BYTES = 16 << 20  # of what they hold, about

Progress = Callable[[int, int], None]  # rows that are there, rows in all


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is copied, in the order of its key."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


def _table(name: str, key: str, columns: str) -> Table:
    return Table(name, tuple(key.split()), tuple(columns.split()))


TRUTH = (  # follows from the notes, so that a move which was stopped goes on after what is there
    _table("scope", "id", "id user_id agent_id run_id notes length slots total"),
    _table(
        "note", "seq",
        "seq id scope slot session speaker timestamp at text metadata created_at follows supersedes sum live"
        " expires_at",
    ),
    _table("doc", "note", "scope slot note length terms passages"),
    _table("posting", "scope term", "scope term df peak low tail"),
    _table("block", "scope term first", "id scope term first data"),
)  # fmt: skip
DERIVED = (  # may have changed without a note: copied anew
    _table("embedder", "id", "id name dim probe"),
    _table("pool", "id", "id scope embedder next added removed top"),
    _table("vector", "id", "id pool note slot part data"),
    _table("record", "id", "id action budget text about sum"),
    _table("record_source", "note record", "note record"),
    _table(
        "reply", "key",
        "key model text prompt_tokens completion_tokens seconds finish logprob bytes used sum",
    ),
    _table("reply_source", "note reply", "note reply"),
)  # fmt: skip
TABLES = TRUTH + DERIVED
SINGLE = {  # tables of one row
    "seal": "notes sum deletes purged purged_at language",
    "reply_tally": "entries bytes hits misses clock",
}
NUMBERED = ("note", "embedder", "pool", "vector")  # numbers of deleted rows never come again


class Draft(Protocol):
    """The copy as it grows, beside its goal."""

    store: SqlStore

    def begin_anew(self) -> None: ...
    def set_numbers(self, connection: Database, numbers: dict[str, int]) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has brought to its goal."""

    notes: int
    rows: int
    resumed: int  # rows that an earlier try had brought


def move(source: SqlStore, draft: Draft, numbers: Callable[[Database], dict[str, int]], progress: Progress) -> Moved:
    """Copy all of the source into the draft, compare, and let it take its goal's place."""
    with source._read() as origin:
        counts = {table.name: _count(origin, table) for table in TABLES}
        mark = _mark(origin)
        if _read_mark(draft.store) not in (None, mark):
            draft.begin_anew()
        _prepare(draft.store, mark)
        resumed = done = sum(_count_in(draft.store, table) for table in TRUTH)
        whole = sum(counts.values())
        progress(done, whole)
        for table in TABLES:
            for batch in _rest(origin, draft.store, table):
                _put(draft.store, table, batch)
                done += len(batch)
                progress(done, whole)
        _finish_rows(origin, draft, numbers(origin))
        _compare(origin, draft.store, counts)
    draft.finish()
    return Moved(counts["note"], whole, resumed)


def _mark(origin: Database) -> str:
    """What the truth of the source is known by."""
    return repr(origin.execute("SELECT notes, sum, deletes, language FROM seal").fetchone())


def _read_mark(store: SqlStore) -> str | None:
    """The mark of the source that the draft was begun from; None where it was not begun yet."""
    with store._writing(EVERYTHING) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS move (mark text)")
        row = connection.execute("SELECT mark FROM move").fetchone()
        return None if row is None else str(row[0])


def _prepare(store: SqlStore, mark: str) -> None:
    with store._writing(EVERYTHING) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS move (mark text)")
        connection.execute("DELETE FROM move")
        connection.execute("INSERT INTO move VALUES (?)", (mark,))
        for table in reversed(DERIVED):
            connection.execute(f"DELETE FROM {table.name}")


def _rest(origin: Database, store: SqlStore, table: Table) -> Iterator[list[tuple[Any, ...]]]:
    """What the draft lacks of a table, in the order of its key and some rows at a time."""
    for rows in _pages(origin, table, _last(store, table)):
        yield from _portions(rows)


def _pages(connection: Database, table: Table, last: tuple[Any, ...] = ()) -> Iterator[list[tuple[Any, ...]]]:
    """The rows after the one with that key, a page at a time."""
    key, places = ", ".join(table.key), [table.columns.index(column) for column in table.key]
    while True:
        where = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if last else ""
        query = f"SELECT {', '.join(table.columns)} FROM {table.name} {where} ORDER BY {key} LIMIT {BATCH}"
        rows = [tuple(row) for row in connection.execute(query, last)]
        if not rows:
            return
        yield rows
        last = tuple(rows[-1][place] for place in places)


def _portions(rows: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """The rows in portions of bounded size."""
    portion: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size > BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _last(store: SqlStore, table: Table) -> tuple[Any, ...]:
    """The key of the last row that the draft has."""
    descending = ", ".join(f"{column} DESC" for column in table.key)
    with store._read() as connection:
        query = f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {descending} LIMIT 1"
        return tuple(connection.execute(query).fetchone() or ())


def _put(store: SqlStore, table: Table, rows: list[tuple[Any, ...]]) -> None:
    insert = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({', '.join('?' * len(table.columns))})"
    with store._writing(EVERYTHING) as connection:
        connection.executemany(insert, rows)


def _finish_rows(origin: Database, draft: Draft, numbers: dict[str, int]) -> None:
    """Copy the tables of one row, and let numbering go on where it was."""
    with draft.store._writing(EVERYTHING) as connection:
        for name, columns in SINGLE.items():
            row = origin.execute(f"SELECT {', '.join(columns.split())} FROM {name}").fetchone()
            change = ", ".join(f"{column} = ?" for column in columns.split())
            connection.execute(f"UPDATE {name} SET {change}", tuple(row))
        draft.set_numbers(connection, numbers)


def _compare(origin: Database, store: SqlStore, counts: dict[str, int]) -> None:
    """Nothing, or an error where the copy is not what the source is, or the source not what was written to it."""
    with store._read() as copy:
        for table in TABLES:
            found = _count(copy, table)
            if found != counts[table.name]:
                raise StoreError(
                    f"the copy has {found} rows of {table.name}, the source {counts[table.name]}: not moved"
                )
            if _hash(copy, table) != _hash(origin, table):
                raise StoreError(f"the rows of {table.name} are not the same in the copy as in the source: not moved")
        for name, columns in SINGLE.items():
            query = f"SELECT {', '.join(columns.split())} FROM {name}"
            if tuple(copy.execute(query).fetchone()) != tuple(origin.execute(query).fetchone()):
                raise StoreError(f"{name} is not the same in the copy as in the source: not moved")
        for note_id in damaged_notes(copy):
            raise StoreError(
                f"note {note_id!r} does not match its checksum in the source: 'retcon check' says what to do"
            )


def _hash(connection: Database, table: Table) -> bytes:
    """A hash of all rows, in the order of the key."""
    found = blake2b(digest_size=16)
    for rows in _pages(connection, table):
        for row in rows:
            found.update(checksum(*row).to_bytes(8, "little", signed=True))
    return found.digest()


def _count(connection: Database, table: Table) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])


def _count_in(store: SqlStore, table: Table) -> int:
    with store._read() as connection:
        return _count(connection, table)


class FileDraft:
    """A file that is renamed when it is complete."""

    def __init__(self, path: str) -> None:
        """Opens the draft of an earlier move, or makes one; refuses a goal that is there."""
        if os.path.lexists(path):
            raise InputError(f"{path} exists: name another file")
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise InputError(f"{path}: name a file in a folder that exists")
        self.goal, self.path = path, f"{path}_moving"
        self.store: SqlStore = SqliteStore(self.path)

    def begin_anew(self) -> None:
        """Let the draft go, and begin another."""
        self.store.close()
        self._remove()
        self.store = SqliteStore(self.path)

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(self.path + end).unlink(missing_ok=True)

    def set_numbers(self, connection: Database, numbers: dict[str, int]) -> None:
        """Let numbering go on after these."""
        for table, last in numbers.items():
            connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))

    def finish(self) -> None:
        """Let the draft take its goal's name: one file, with no log beside it."""
        with self.store._writing(EVERYTHING) as connection:
            connection.execute("DROP TABLE move")
        self.store.close()
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as last:
            last.execute("PRAGMA journal_mode = DELETE")
        if os.path.lexists(self.goal):
            raise InputError(f"{self.goal} exists by now: name another file")
        flush(Path(self.path))
        os.replace(self.path, self.goal)
        flush(Path(self.goal).parent)

    def close(self) -> None:
        """Close what is open; the draft stays for the next try."""
        self.store.close()


def numbers_of(connection: Database) -> dict[str, int]:
    """The last number that was given, by table."""
    found = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return {table: int(found.get(table, 0)) for table in NUMBERED}


def migrate(source: str, target: str, *, progress: Progress | None = None) -> Moved:
    """Move all that the store at `source` holds to a new one at `target`, which appears whole or not at all."""
    if ":memory:" in (source, target):
        raise InputError("a memory without a file is not moved: export it")
    if not is_postgres(source) and not os.path.isfile(source):
        raise StoreError(f"{source} does not exist")
    with contextlib.closing(open_store(source)) as origin:
        origin.limited = False
        numbers = load_postgres(".moving").numbers_of if is_postgres(source) else numbers_of
        made: Draft = load_postgres(".moving").SchemaDraft(target) if is_postgres(target) else FileDraft(target)
        with contextlib.closing(made) as draft:
            return move(origin, draft, numbers, progress or (lambda _, __: None))
