"""Deletes: notes with all that stands on them, in the caller's transaction; neighbours are linked past the gap."""

from __future__ import annotations

from collections.abc import Sequence

from retcon.errors import NotFoundError
from retcon.store import postings, seal, vectors
from retcon.store.database import IN, Database, Many
from retcon.store.rows import NOTE, SLOT, VERSIONS, read_note
from retcon.store.writing import context_keys, make_doc


def delete(connection: Database, note_ids: Sequence[str]) -> tuple[int, int]:
    """Counts of notes and records removed. Survivors that leaned on them are linked past them and indexed anew."""
    seqs = set(seqs_of(connection, note_ids))
    chosen = Many(sorted(seqs))
    query = f"SELECT seq, follows, supersedes FROM note WHERE seq {IN}"
    links = {seq: (before, older) for seq, before, older in connection.execute(query, (chosen,))}
    places: dict[int, list[int]] = {}
    for scope, slot in connection.execute(f"SELECT scope, slot FROM note WHERE seq {IN}", (chosen,)):
        places.setdefault(scope, []).append(slot)
    followers = [
        (seq, follows)
        for seq, follows in connection.execute(f"SELECT seq, follows FROM note WHERE follows {IN}", (chosen,))
        if seq not in seqs
    ]
    newer = connection.execute(f"SELECT seq, supersedes FROM note WHERE supersedes {IN}", (chosen,)).fetchall()
    relinked = {seq for seq, _ in [*followers, *newer]} - seqs
    seal.check(connection, relinked)
    sums = seal.sums_of(connection, seqs | relinked)
    revived = {older for _, older in links.values() if older is not None and older not in seqs}

    for scope, slots in places.items():
        postings.remove(connection, scope, slots)
    connection.execute(f"UPDATE note SET supersedes = NULL WHERE seq {IN}", (chosen,))
    corrected = {gone: link[1] for gone, link in links.items()}
    for seq, older in newer:
        if seq not in seqs:
            kept = _survivor(older, seqs, corrected)
            revived.discard(kept or -1)
            connection.execute("UPDATE note SET supersedes = ? WHERE seq = ?", (kept, seq))
    before = {gone: link[0] for gone, link in links.items()}
    connection.executemany(
        "UPDATE note SET follows = ? WHERE seq = ?", [(_survivor(gone, seqs, before), seq) for seq, gone in followers]
    )
    connection.execute(f"UPDATE note SET follows = NULL WHERE seq {IN}", (chosen,))
    standing = f"SELECT count(DISTINCT record) FROM record_source WHERE note {IN}"
    (records,) = connection.execute(standing, (chosen,)).fetchone()
    connection.execute(f"DELETE FROM note WHERE seq {IN}", (chosen,))
    connection.executemany(_REJOIN, [(seq,) for seq, _ in followers])
    seal.change(connection, -len(seqs), seal.renew(connection, relinked), gone=sums)
    _reindex(connection, {seq for seq, _ in followers} | revived)
    vectors.look_again(connection, revived)
    for scope, slots in places.items():
        connection.execute("UPDATE scope SET total = total - ? WHERE id = ?", (len(slots), scope))
    connection.execute(f"DELETE FROM scope WHERE id {IN} AND total <= 0", (Many(places),))
    return len(seqs), int(records)


# A turn that is left with none before it follows the one before it in its session, as if it were added now.
_REJOIN = """
UPDATE note SET follows = (
  SELECT max(before.seq) FROM note AS before
  WHERE before.scope = note.scope AND before.session = note.session AND before.seq < note.seq
) WHERE seq = ? AND follows IS NULL
"""


def _survivor(seq: int | None, gone: set[int], link: dict[int, int | None]) -> int | None:
    """The first note along the links that stays."""
    while seq is not None and seq in gone:
        seq = link[seq]
    return seq


def _reindex(connection: Database, seqs: set[int]) -> None:
    """Bring the index entries of these notes up to date with their links; superseded ones stay out."""
    query = NOTE + "WHERE note.seq = ?"
    place = "SELECT scope, (SELECT text FROM note AS before WHERE before.seq = note.follows) FROM note WHERE seq = ?"
    language = seal.language_of(connection)
    stale: dict[int, list[int]] = {}
    docs: dict[int, list[postings.Doc]] = {}
    for seq in sorted(seqs):
        row = connection.execute(query, (seq,)).fetchone()
        note, slot = read_note(row), row[SLOT]
        scope, context = connection.execute(place, (seq,)).fetchone()
        stale.setdefault(scope, []).append(slot)
        if note.superseded_by is None:
            doc = make_doc(scope, seq, slot, note, context_keys(context or "", language), language)
            docs.setdefault(scope, []).append(doc)
    for scope, slots in stale.items():
        postings.remove(connection, scope, slots)
        ordered = sorted(docs.get(scope, []), key=lambda doc: doc.slot)
        postings.insert(connection, postings.count(ordered), newest=False)


def delete_scope(connection: Database, scope: int) -> tuple[int, int]:
    """Counts of notes and records removed: all of the scope's."""
    (records,) = connection.execute(_STANDING, (scope,)).fetchone()
    for table in ("posting", "block", "doc", "pool"):
        connection.execute(f"DELETE FROM {table} WHERE scope = ?", (scope,))
    sums = [row[0] for row in connection.execute("SELECT sum FROM note WHERE scope = ?", (scope,))]
    connection.execute("UPDATE note SET follows = NULL, supersedes = NULL WHERE scope = ?", (scope,))
    notes = connection.execute("DELETE FROM note WHERE scope = ?", (scope,)).rowcount
    connection.execute("DELETE FROM scope WHERE id = ?", (scope,))
    seal.change(connection, -notes, [], gone=sums)
    return notes, int(records)


_STANDING = """
SELECT count(DISTINCT record) FROM note JOIN record_source ON record_source.note = note.seq WHERE note.scope = ?
"""


def find_versions(connection: Database, note_ids: Sequence[str]) -> list[str]:
    """Ids of every version of these notes, all of which must be there."""
    seqs_of(connection, note_ids)
    query = VERSIONS + "SELECT id FROM note JOIN version USING (seq)"
    return [row[0] for row in connection.execute(query, (Many(note_ids),))]


def find_expired(connection: Database, now: str) -> list[str]:
    """Ids of the notes that have expired by now.

    Where such a note is a correction, and no newer one corrects it, the versions before it are among them: deleting it
    alone would make them current again.
    """
    return [row[0] for row in connection.execute(EXPIRED, {"now": now})]


# Both halves of the last union go by an index; one condition with OR would read every note.
EXPIRED = """
WITH RECURSIVE gone (seq) AS (
  SELECT note.seq FROM note LEFT JOIN note AS newer ON newer.supersedes = note.seq
  WHERE note.expires_at <= :now AND newer.seq IS NULL
  UNION SELECT note.supersedes FROM note JOIN gone USING (seq) WHERE note.supersedes IS NOT NULL
)
SELECT id FROM note WHERE seq IN (SELECT seq FROM gone)
UNION SELECT id FROM note WHERE expires_at <= :now
"""


def count_expired(connection: Database, where: str, values: Sequence[object], now: str, *, superseded: bool) -> int:
    """How many notes of the scopes that `where` names have expired by now, superseded ones among them or not."""
    current = "" if superseded else "AND NOT EXISTS (SELECT 1 FROM note AS newer WHERE newer.supersedes = note.seq)"
    query = f"""
    SELECT count(*) FROM scope JOIN note ON note.scope = scope.id
    WHERE {where} AND note.expires_at <= ? {current}
    """
    return int(connection.execute(query, (*values, now)).fetchone()[0])


def count(connection: Database, table: str) -> int:
    """How many rows the table has."""
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def seqs_of(connection: Database, note_ids: Sequence[str]) -> list[int]:
    """Where the notes with these ids stand."""
    found = dict(connection.execute(f"SELECT id, seq FROM note WHERE id {IN}", (Many(note_ids),)).fetchall())
    for note_id in note_ids:
        if note_id not in found:
            raise NotFoundError(note_id)
    return [found[note_id] for note_id in note_ids]
