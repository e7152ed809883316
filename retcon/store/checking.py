"""Does the file hold what was written to it? Everything is read once, and compared with what can be known.

    pages      SQLite's own integrity check, foreign keys
    schema     tables, indexes and triggers against those that this version makes
    notes      each against its checksum, all of them against the seal: one that vanished is missed
    index      against one made anew from the notes
    the rest   records, replies and vectors, which can be made again

Nothing is written. `repair` makes again what follows from the notes, and accepts that what vanished is gone.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import BusyError, SchemaError, StoreError
from retcon.store import postings
from retcon.store.checksum import checksum, total
from retcon.store.connections import TIMEOUT, connect, schema_problems, translate_errors
from retcon.store.database import Damage, Database
from retcon.store.migrations import read_schema, schema
from retcon.store.reindexing import batches, docs_of, rebuild_index
from retcon.store.rows import DERIVED, SUMMED, is_damaged
from retcon.store.vectors import KEPT

SHOWN = 20  # problems of one kind that are named
_BATCH = 1000  # notes whose index entries are compared at once
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.s3fs", "glusterfs")

RESTORE = "restore a backup ('retcon restore'), or save what is sound ('retcon export --skip-damaged') and load it anew"
REPAIR = "'retcon check --repair' makes it again from the notes"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that is not as it was written, and what to do about it."""

    kind: str  # file | schema | note | lost | index | derived
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class Check:
    """What a check has found. `hints` are about where the file lies, and no damage."""

    notes: int
    problems: tuple[Problem, ...]
    hints: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the file holds what was written to it."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The check as plain JSON values."""
        problems = [asdict(problem) for problem in self.problems]
        return {"ok": self.ok, "notes": self.notes, "problems": problems, "hints": list(self.hints)}


def check(connection: sqlite3.Connection, path: str) -> Check:
    """What is wrong with the file, all of it in one view."""
    problems: list[Problem] = []
    notes = 0
    with _one_view(connection):
        for kind, advice, find in _FINDERS:
            problems += _look(kind, advice, find, connection)
        with suppress(sqlite3.Error):
            notes = int(connection.execute("SELECT count(*) FROM note").fetchone()[0])
    return Check(notes, tuple(dict.fromkeys(problems)), tuple(hints(path)))


def repair(connection: sqlite3.Connection, path: str) -> Check:
    """What is still wrong once schema, index and seal were made again, and damaged records and replies dropped."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _repair_schema(connection)
        drop_damaged(connection)
        rebuild_index(connection)
        count_again(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("REINDEX")
    return check(connection, path)


def check_file(path: str, *, mend: bool = False) -> Check:
    """The check of the store at that path, even of one that cannot be opened otherwise; with `mend` after a repair."""
    if not any(os.path.exists(path + end) and os.path.getsize(path + end) for end in ("", "-wal")):
        return Check(0, (Problem("lost", "the file is empty, and a store never is", RESTORE),), tuple(hints(path)))
    try:
        with translate_errors(path), closing(connect(path, TIMEOUT)) as connection:
            return (repair if mend else check)(connection, path)
    except (BusyError, SchemaError):
        raise
    except StoreError as error:
        return Check(0, (Problem("file", str(error), RESTORE),), tuple(hints(path)))


def damaged_notes(connection: Database) -> Iterator[str]:
    """Ids of the notes that do not match their checksum."""
    for row in connection.execute(SUMMED):
        if is_damaged(row):
            yield str(row[1])


def hints(path: str) -> Iterator[str]:
    """What is unwise about where the file lies."""
    with suppress(OSError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            yield f"others on this machine may read the file (mode {mode:o}): chmod 600 {path}"
    kind = _file_system(path)
    if kind in _NETWORK:
        yield f"the file is on a network drive ({kind}), whose locks may fail: keep it on a local disk, and back it up"


# -- what is looked at -------------------------------------------------------------------------------------------------


def _pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({SHOWN})"):
        if line != "ok":
            yield " ".join(str(line).split())[:300]


def _links(connection: sqlite3.Connection) -> Iterator[str]:
    for table, row, parent, _ in islice(connection.execute("PRAGMA foreign_key_check"), SHOWN):
        yield f"row {row} of {table} names a {parent} that is not there"


def _schema(connection: sqlite3.Connection) -> Iterator[str]:
    yield from schema_problems(connection)


def _strangers(connection: sqlite3.Connection) -> Iterator[str]:
    for name in sorted(set(read_schema(connection)) - set(schema())):
        yield f"{name} is not part of the schema: another program made it"


def _notes(connection: Database) -> Iterator[str]:
    for note_id in islice(damaged_notes(connection), SHOWN):
        yield f"note {note_id!r} does not match its checksum"


def _seal(connection: Database) -> Iterator[str]:
    """The seal is over the checksums as they are kept, so that a damaged note is not told of twice."""
    sums = [row[0] for row in connection.execute("SELECT sum FROM note")]
    expected, summed = connection.execute("SELECT notes, sum FROM seal").fetchone()
    if len(sums) != expected:
        yield f"the store should hold {expected} notes and holds {len(sums)}"
    elif total(sums) != summed:
        yield f"the {expected} notes are not the ones that were written: some were lost or exchanged"


def _scopes(connection: Database) -> Iterator[str]:
    query = """
    SELECT id, total, slots, (SELECT count(*) FROM note WHERE note.scope = scope.id),
      (SELECT coalesce(max(slot), -1) FROM note WHERE note.scope = scope.id),
      notes, (SELECT count(*) FROM doc WHERE doc.scope = scope.id),
      length, (SELECT coalesce(sum(length), 0) FROM doc WHERE doc.scope = scope.id)
    FROM scope
    """
    for scope, counted, slots, found, last, *pairs in connection.execute(query):
        if counted != found or slots <= last or pairs[0] != pairs[1] or pairs[2] != pairs[3]:
            yield f"the counts of scope {scope} are wrong"


def _index(connection: Database) -> Iterator[str]:
    ids = [row[0] for row in connection.execute("SELECT id FROM scope")]
    for scope in ids:
        yield from islice(_index_of(connection, scope), SHOWN)
    for table in ("doc", "posting", "block", "pool"):
        query = f"SELECT count(*) FROM {table} WHERE scope NOT IN (SELECT id FROM scope)"
        if connection.execute(query).fetchone()[0]:
            yield f"{table} has rows of a scope that is not there"


def _index_of(connection: Database, scope: int) -> Iterator[str]:
    """Whether the forward side is what the notes give, and the postings hold just what the forward side does."""
    stored = connection.execute(
        "SELECT slot, note, length, terms, passages FROM doc WHERE scope = ? ORDER BY slot", (scope,)
    )
    made = (row[1:] for docs in batches(docs_of(connection, scope), _BATCH) for row in postings.count(docs).rows)
    for expected, found in zip_longest(made, stored):
        if expected != found:
            slot = min(row[0] for row in (expected, found) if row is not None)
            yield f"the index of scope {scope} is not what its notes give, from slot {slot} on"
            break
    if _forward_print(connection, scope) != _posting_print(connection, scope):
        yield f"the postings of scope {scope} do not hold what its notes hold"


def _forward_print(connection: Database, scope: int) -> int:
    """A fingerprint of all (term, slot, count, length) of the forward side, whatever their order."""
    rows = connection.execute("SELECT slot, length, terms FROM doc WHERE scope = ?", (scope,))
    found = 0
    while batch := rows.fetchmany(_BATCH):
        entries = np.frombuffer(b"".join(row[2] for row in batch), postings.ENTRY)
        sizes = [len(row[2]) // postings.ENTRY.itemsize for row in batch]
        slots = np.repeat(np.array([row[0] for row in batch], np.uint64), sizes)
        lengths = np.repeat(np.array([row[1] for row in batch], np.uint64), sizes)
        found += _print(entries["key"].astype(np.uint64), slots, entries["count"].astype(np.uint64), lengths)
    return found % 2**64


def _posting_print(connection: Database, scope: int) -> int:
    """The same of the postings; a list whose own numbers or order are wrong makes it another."""
    query = "SELECT term, df, peak, low, tail FROM posting WHERE scope = ?"
    found = 0
    for term, df, peak, low, tail in connection.execute(query, (scope,)).fetchall():
        entries = postings.concat(list(postings.read(connection, scope, term, tail)))
        slots, counts, lengths = (part.astype(np.uint64) for part in (entries.slots, entries.counts, entries.lengths))
        sound = df == len(slots) > 0 and bool((slots[1:] > slots[:-1]).all())
        sound = sound and peak >= counts.max() and low <= lengths.min()
        found += _print(np.full(len(slots), term % 2**64, np.uint64), slots, counts, lengths) if sound else 1
    query = "SELECT count(*) FROM block WHERE scope = ? AND term NOT IN (SELECT term FROM posting WHERE scope = ?)"
    return (found + int(connection.execute(query, (scope, scope)).fetchone()[0])) % 2**64


def _print(*columns: NDArray[np.uint64]) -> int:
    """The sum of a hash of each row (splitmix64 over its columns)."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
        return int(mixed.sum(dtype=np.uint64))


def _derived_rows(connection: Database) -> Iterator[str]:
    for table, query in DERIVED.items():
        for row in connection.execute(query):
            if checksum(*row[:-1]) != row[-1]:
                yield f"{table} {str(row[0])[:40]!r} does not match its checksum"
    entries, size = connection.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM reply").fetchone()
    if (entries, size) != connection.execute("SELECT entries, bytes FROM reply_tally").fetchone():
        yield "the tally of kept replies is wrong"
    query = """
    SELECT note, data, dim FROM vector JOIN pool ON pool.id = vector.pool JOIN embedder ON embedder.id = pool.embedder
    """
    for note, data, dim in connection.execute(query):
        if len(data) != dim * KEPT().itemsize or not np.isfinite(np.frombuffer(data, KEPT)).all():
            yield f"the vector of note {note} is no vector"
    query = (
        "SELECT count(*) FROM pool WHERE added - removed <> (SELECT count(*) FROM vector WHERE vector.pool = pool.id)"
    )
    if connection.execute(query).fetchone()[0]:
        yield "the vectors of a scope are not as many as they were"


Finder = tuple[str, str, Callable[[Any], Iterator[str]]]
SHARED: tuple[Finder, ...] = (  # what can be looked at in any database
    ("note", f"delete it, or {RESTORE}", _notes),
    ("lost", f"{RESTORE}; 'retcon check --repair' accepts the loss", _seal),
    ("index", REPAIR, _scopes),
    ("index", REPAIR, _index),
    ("derived", REPAIR, _derived_rows),
)
_FINDERS: tuple[Finder, ...] = (
    ("file", RESTORE, _pages),
    ("file", RESTORE, _links),
    ("schema", REPAIR, _schema),
    ("schema", "ask that program to take it out, or drop it if nobody needs it", _strangers),
    *SHARED,
)


def _look(
    kind: str, advice: str, find: Callable[[sqlite3.Connection], Iterator[str]], connection: sqlite3.Connection
) -> list[Problem]:
    """What one look finds; where the file cannot be read that far, that."""
    found: list[Problem] = []
    try:
        for what in islice(find(connection), SHOWN):
            found.append(Problem(kind, what, advice))
    except (sqlite3.Error, Damage, StoreError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        found.append(Problem("file", f"cannot be read: {' '.join(str(error).split())[:200]}", RESTORE))
    return found


@contextmanager
def _one_view(connection: sqlite3.Connection) -> Iterator[None]:
    """One view of the file for a block; a connection that is in a transaction has one already."""
    began = not connection.in_transaction
    if began:
        connection.execute("BEGIN")
    try:
        yield
    finally:
        if began and connection.in_transaction:
            connection.execute("ROLLBACK")


# -- repair ------------------------------------------------------------------------------------------------------------


def _repair_schema(connection: sqlite3.Connection) -> None:
    """Put back missing or changed triggers and indexes; a table cannot be made again."""
    found = read_schema(connection)
    for name, statement in schema().items():
        kind = statement.split()[1].upper()
        if found.get(name) != statement and kind in ("TRIGGER", "INDEX", "UNIQUE"):
            connection.execute(f"DROP {'TRIGGER' if kind == 'TRIGGER' else 'INDEX'} IF EXISTS {name}")
            connection.execute(statement)


def drop_damaged(connection: Database) -> None:
    for table, query in DERIVED.items():
        rows = connection.execute(query).fetchall()
        key = "id" if table == "record" else "key"
        gone = [(row[0],) for row in rows if checksum(*row[:-1]) != row[-1]]
        connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", gone)
    connection.execute(
        "UPDATE reply_tally SET (entries, bytes) = (SELECT count(*), coalesce(sum(bytes), 0) FROM reply)"
    )


def count_again(connection: Database) -> None:
    connection.execute(
        "UPDATE scope SET total = (SELECT count(*) FROM note WHERE note.scope = scope.id),"
        " slots = (SELECT CASE WHEN slots > last THEN slots ELSE 1 + last END FROM"
        " (SELECT coalesce(max(slot), -1) AS last FROM note WHERE note.scope = scope.id) AS newest)"
    )
    sums = [row[0] for row in connection.execute("SELECT sum FROM note")]
    connection.execute("UPDATE seal SET notes = ?, sum = ?", (len(sums), total(sums)))


def _file_system(path: str) -> str:
    """The kind of file system that the path is on, where the machine tells; empty where it does not."""
    found, best = "", -1
    with suppress(OSError):
        where = os.path.realpath(path)
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, kind, *_ = line.split()
                point = point.replace("\\040", " ")
                if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) > best:
                    found, best = kind, len(point)
    return found
