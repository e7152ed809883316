"""The schema, one step per version. A step is never edited once released: a change is another step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from retcon.errors import SchemaError, StoreError
from retcon.store.checksum import checksum, total
from retcon.store.reindexing import rebuild_index
from retcon.store.rows import DERIVED

APPLICATION_ID = 0x7265746E  # "retn" in the file header tells our files from other people's


@dataclass(frozen=True, slots=True)
class Step:
    """From one version of the schema to the next: statements, then work on the rows."""

    script: str
    then: Callable[[sqlite3.Connection], None] = lambda _: None


# 1: notes (the truth), their index, and the records that stand on notes.
_V1 = """
CREATE TABLE scope (
  id INTEGER PRIMARY KEY,
  user_id TEXT NOT NULL, agent_id TEXT NOT NULL, run_id TEXT NOT NULL,  -- '' where the caller named none
  notes INTEGER NOT NULL DEFAULT 0,   -- indexed notes: BM25's N
  length INTEGER NOT NULL DEFAULT 0,  -- sum of their lengths
  slots INTEGER NOT NULL DEFAULT 0,   -- next free slot
  UNIQUE (user_id, agent_id, run_id)
) STRICT;

CREATE TABLE note (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  scope INTEGER NOT NULL REFERENCES scope (id), slot INTEGER NOT NULL,  -- its place among the scope's notes
  session TEXT, speaker TEXT,
  timestamp TEXT, at REAL,            -- the caller's words, and seconds since 1970 for range queries
  text TEXT NOT NULL,
  metadata TEXT NOT NULL,
  created_at TEXT NOT NULL,
  follows INTEGER REFERENCES note (seq),
  supersedes INTEGER UNIQUE REFERENCES note (seq),
  UNIQUE (scope, slot)
) STRICT;
CREATE INDEX note_session ON note (scope, session, seq);
CREATE INDEX note_at ON note (scope, at);
CREATE INDEX note_follows ON note (follows) WHERE follows IS NOT NULL;

-- Raw notes never change. INSERT OR REPLACE would slip past the update trigger: the insert trigger stops it.
CREATE TRIGGER note_is_immutable
BEFORE UPDATE OF seq, id, scope, slot, session, speaker, timestamp, at, text, metadata, created_at ON note
BEGIN SELECT RAISE(ABORT, 'a raw note cannot be changed: supersede it'); END;
CREATE TRIGGER note_is_not_replaced
BEFORE INSERT ON note WHEN
  EXISTS (SELECT 1 FROM note WHERE id = NEW.id)
  OR EXISTS (SELECT 1 FROM note WHERE seq = NEW.seq)
  OR EXISTS (SELECT 1 FROM note WHERE scope = NEW.scope AND slot = NEW.slot)
  OR (NEW.supersedes IS NOT NULL AND EXISTS (SELECT 1 FROM note WHERE supersedes = NEW.supersedes))
BEGIN SELECT RAISE(ABORT, 'a raw note cannot be replaced: supersede it'); END;
CREATE TRIGGER note_is_not_pushed_out
BEFORE UPDATE OF supersedes ON note WHEN EXISTS (
  SELECT 1 FROM note WHERE supersedes = NEW.supersedes AND seq <> NEW.seq
)
BEGIN SELECT RAISE(ABORT, 'a raw note cannot be replaced: supersede it'); END;

-- The index. No word is stored in it: a term is a 64-bit key.
CREATE TABLE doc (
  scope INTEGER NOT NULL, slot INTEGER NOT NULL,
  note INTEGER NOT NULL REFERENCES note (seq) ON DELETE CASCADE,
  length INTEGER NOT NULL,
  terms BLOB NOT NULL,                -- (key int64, count uint16) pairs
  PRIMARY KEY (scope, slot)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX doc_note ON doc (note);
CREATE TABLE posting (
  scope INTEGER NOT NULL, term INTEGER NOT NULL,
  df INTEGER NOT NULL, peak INTEGER NOT NULL, low INTEGER NOT NULL,
  tail BLOB NOT NULL,                 -- the newest postings; older ones are in block
  PRIMARY KEY (scope, term)
) STRICT, WITHOUT ROWID;
CREATE TABLE block (
  id INTEGER PRIMARY KEY,
  scope INTEGER NOT NULL, term INTEGER NOT NULL, first INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX block_term ON block (scope, term, first);
CREATE TABLE vector (
  scope INTEGER NOT NULL, embedder TEXT NOT NULL, slot INTEGER NOT NULL,
  note INTEGER NOT NULL REFERENCES note (seq) ON DELETE CASCADE,
  data BLOB NOT NULL,                 -- float32, unit length
  PRIMARY KEY (scope, embedder, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX vector_note ON vector (note);

-- Generated text is a view: it goes as soon as one note it stands on goes.
CREATE TABLE record (
  id TEXT PRIMARY KEY,
  action TEXT NOT NULL, budget INTEGER NOT NULL, text TEXT NOT NULL, about TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE record_source (
  note INTEGER NOT NULL REFERENCES note (seq), record TEXT NOT NULL REFERENCES record (id) ON DELETE CASCADE,
  PRIMARY KEY (note, record)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_source_record ON record_source (record);
CREATE TRIGGER note_takes_its_records BEFORE DELETE ON note
BEGIN DELETE FROM record WHERE id IN (SELECT record FROM record_source WHERE note = OLD.seq); END;
"""

# 2: replies of a model, kept so that the same ask is not paid for twice; they go with any note they stand on.
_V2 = """
CREATE TABLE reply (
  key TEXT PRIMARY KEY,               -- a hash of all that changes the answer
  model TEXT NOT NULL, text TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, seconds REAL NOT NULL,
  finish TEXT NOT NULL, logprob REAL,
  bytes INTEGER NOT NULL,
  used INTEGER NOT NULL               -- the tally's clock when it was last asked for
) STRICT;
CREATE INDEX reply_used ON reply (used, key, bytes);
CREATE TABLE reply_source (
  note INTEGER NOT NULL REFERENCES note (seq), reply TEXT NOT NULL REFERENCES reply (key) ON DELETE CASCADE,
  PRIMARY KEY (note, reply)
) STRICT, WITHOUT ROWID;
CREATE INDEX reply_source_reply ON reply_source (reply);
CREATE TABLE reply_tally (
  entries INTEGER NOT NULL, bytes INTEGER NOT NULL, hits INTEGER NOT NULL, misses INTEGER NOT NULL,
  clock INTEGER NOT NULL
) STRICT;
INSERT INTO reply_tally VALUES (0, 0, 0, 0, 0);
CREATE TRIGGER reply_comes AFTER INSERT ON reply
BEGIN UPDATE reply_tally SET entries = entries + 1, bytes = bytes + NEW.bytes; END;
CREATE TRIGGER reply_goes AFTER DELETE ON reply
BEGIN UPDATE reply_tally SET entries = entries - 1, bytes = bytes - OLD.bytes; END;
CREATE TRIGGER note_takes_its_replies BEFORE DELETE ON note
BEGIN DELETE FROM reply WHERE key IN (SELECT reply FROM reply_source WHERE note = OLD.seq); END;
"""

# 3: checksums of the rows that are read back, the notes of each scope counted, and a seal: what the file should hold.
_V3 = """
ALTER TABLE note ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE reply ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE scope ADD COLUMN total INTEGER NOT NULL DEFAULT 0;  -- all its notes, superseded ones too

CREATE TABLE seal (                   -- one row
  notes INTEGER NOT NULL,             -- how many notes the file holds
  sum INTEGER NOT NULL,               -- of their checksums
  deletes INTEGER NOT NULL,           -- how many there ever were
  purged INTEGER NOT NULL,            -- so many of them had left the files when they were last rewritten
  purged_at TEXT                      -- when that was
) STRICT;
INSERT INTO seal VALUES (0, 0, 0, 0, NULL);

-- Its list of columns keeps `note_is_immutable` from seeing `UPDATE note SET rowid = ...`.
CREATE TRIGGER note_keeps_its_place BEFORE UPDATE ON note WHEN OLD.seq IS NOT NEW.seq
BEGIN SELECT RAISE(ABORT, 'a raw note cannot be changed: supersede it'); END;
-- A program of an older version that has had the file open since before this step goes on writing without checksums.
CREATE TRIGGER note_has_a_checksum BEFORE INSERT ON note WHEN NEW.sum = 0
BEGIN SELECT RAISE(ABORT, 'written without a checksum: close every program of an older retcon'); END;
"""


_SUMMED_3 = """
SELECT note.seq, note.id, scope.user_id, scope.agent_id, scope.run_id, note.slot, note.session, note.speaker,
  note.timestamp, note.at, note.text, note.metadata, note.created_at, before.id, older.id
FROM note JOIN scope ON scope.id = note.scope
LEFT JOIN note AS before ON before.seq = note.follows
LEFT JOIN note AS older ON older.seq = note.supersedes
"""


def _seal_all(connection: sqlite3.Connection) -> None:
    """Give every row of an older file its checksum."""
    sums = {row[0]: checksum(*row) for row in connection.execute(_SUMMED_3)}
    connection.executemany("UPDATE note SET sum = ? WHERE seq = ?", [(each, seq) for seq, each in sums.items()])
    connection.execute("UPDATE scope SET total = (SELECT count(*) FROM note WHERE note.scope = scope.id)")
    update = "UPDATE seal SET notes = ?, sum = ?, deletes = ?"  # nobody counted: what was deleted may not be purged
    connection.execute(update, (len(sums), total(sums.values()), min(1, len(sums))))
    for table, key in (("record", "id"), ("reply", "key")):
        for row in connection.execute(DERIVED[table]).fetchall():
            connection.execute(f"UPDATE {table} SET sum = ? WHERE {key} = ?", (checksum(*row[:-1]), row[0]))


# 4: whether a note was added as it was said, and when it expires. Checksums stay: they skip columns that are not set.
_V4 = """
ALTER TABLE note ADD COLUMN live INTEGER NOT NULL DEFAULT 0;  -- without a timestamp, it is of the day it was stored
ALTER TABLE note ADD COLUMN expires_at TEXT;  -- UTC to the second: these texts compare as times
CREATE INDEX note_expires ON note (scope, expires_at) WHERE expires_at IS NOT NULL;
DROP TRIGGER IF EXISTS note_is_immutable;
CREATE TRIGGER note_is_immutable BEFORE UPDATE OF
  seq, id, scope, slot, session, speaker, timestamp, at, text, metadata, created_at, live, expires_at ON note
BEGIN SELECT RAISE(ABORT, 'a raw note cannot be changed: supersede it'); END;
"""

# 5: long notes are indexed by passages too, and neither borrow words from the turn before nor lend them to the next.
_V5 = """
ALTER TABLE doc ADD COLUMN passages BLOB;  -- of a long note: how many, their lengths, and 32 bits of each term's key
CREATE INDEX doc_long ON doc (scope, slot) WHERE passages IS NOT NULL;
ALTER TABLE seal ADD COLUMN language TEXT NOT NULL DEFAULT 'english';  -- that the notes are indexed in
"""

STEPS: tuple[Step, ...] = (Step(_V1), Step(_V2), Step(_V3, _seal_all), Step(_V4), Step(_V5, rebuild_index))


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest schema, in one transaction per step; several processes may try at once."""
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = _version(connection)
            if found == len(STEPS):
                connection.execute("COMMIT")
                return
            for statement in _statements(STEPS[found].script):
                connection.execute(statement)
            STEPS[found].then(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {found + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@lru_cache
def schema() -> dict[str, str]:
    """The statements that made the newest schema, by the name of the table, index or trigger."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection)
        return read_schema(connection)
    finally:
        connection.close()


def read_schema(connection: sqlite3.Connection) -> dict[str, str]:
    """The statements that made what is in this file, by name; SQLite's own tables are left out."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    return dict(connection.execute(query).fetchall())


def version(connection: sqlite3.Connection) -> int:
    """The file's schema version, by reading alone; an error where it is another program's file or a newer retcon's."""
    connection.execute("BEGIN")
    try:
        return _version(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and (tables or owner or found):
        raise StoreError("this SQLite file belongs to another program: choose another path")
    if not 0 <= found <= len(STEPS):
        raise SchemaError(found, len(STEPS))
    return int(found)


def _statements(script: str) -> list[str]:
    """The script cut into statements; `executescript` would commit the transaction it runs in."""
    out, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            out.append(statement)
            statement = ""
    return out
