"""Rows of the `note` table as notes, each held against its checksum; scopes and filters as SQL conditions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from retcon.filters import Facts, compile_check, facts_asked, last_moment, same
from retcon.note import Filter, Note, Scope
from retcon.store.checksum import checksum
from retcon.store.database import IN, Damage, Many

_SUMMED = (
    "note.seq, note.id, scope.user_id, scope.agent_id, scope.run_id, note.slot, note.session, note.speaker,"
    " note.timestamp, note.at, note.text, note.metadata, note.created_at, before.id, older.id,"
    " note.live, note.expires_at"
)
_LINKED = """
FROM note JOIN scope ON scope.id = note.scope
LEFT JOIN note AS before ON before.seq = note.follows
LEFT JOIN note AS older ON older.seq = note.supersedes
"""
SUMMED = f"SELECT {_SUMMED}, note.sum {_LINKED}"  # what a note's checksum is over, then the checksum
DERIVED = {  # the same of derived texts
    "record": "SELECT id, action, budget, text, about, sum FROM record",
    "reply": "SELECT key, model, text, prompt_tokens, completion_tokens, seconds, finish, logprob, sum FROM reply",
}
_NEWER = "LEFT JOIN note AS newer ON newer.supersedes = note.seq\n"
NOTE = f"SELECT {_SUMMED}, note.sum, newer.id {_LINKED}{_NEWER}"
NOTE_AND_BEFORE = f"SELECT {_SUMMED}, note.sum, newer.id, before.text {_LINKED}{_NEWER}"  # with the turn before it
VERSIONS = """
WITH RECURSIVE
  older (seq) AS (
    SELECT seq FROM note WHERE id IN (SELECT value FROM json_each(?))
    UNION SELECT supersedes FROM note JOIN older USING (seq) WHERE supersedes IS NOT NULL
  ),
  version (seq) AS (
    SELECT seq FROM older
    UNION SELECT note.seq FROM note JOIN version ON note.supersedes = version.seq
  )
"""  # of the notes with these ids, a JSON list: all of each chain of corrections
SLOT = 5  # where a row of the NOTE query has the slot
_COMMON, SUM = 15, 17  # so many columns every checksum is over; where the row has the checksum itself


def sum_note(row: Sequence[Any]) -> int:
    """The checksum of a note, over all columns of a SUMMED or NOTE row that come before the kept one.

    The last two, `live` and `expires_at`, count only where one of them is set: so rows from before there were such
    columns keep the checksum that they have.
    """
    rest = row[_COMMON:SUM]
    return checksum(*row[:_COMMON], *(rest if rest[0] or rest[1] is not None else ()))


def is_damaged(row: Sequence[Any]) -> bool:
    """Whether the note in a SUMMED or NOTE row is not what was written."""
    return bool(sum_note(row) != row[SUM])


def read_note(row: Sequence[Any]) -> Note:
    """The note in a row of the NOTE query; an error where it is not what was written."""
    if is_damaged(row):
        name = row[1] if isinstance(row[1], str) else "?"
        raise Damage(f"note {name!r} does not match its checksum; 'retcon check' says what to do")
    return Note(
        id=row[1], text=row[10], speaker=row[7], session=row[6], timestamp=row[8],
        user_id=row[2] or None, agent_id=row[3] or None, run_id=row[4] or None,
        metadata=read_metadata(row[11]), follows=row[13], supersedes=row[14], superseded_by=row[18], created_at=row[12],
        live=bool(row[15]), expires_at=row[16],
    )  # fmt: skip


def read_metadata(stored: str) -> dict[str, Any]:
    """The metadata in a row."""
    if stored == "{}":
        return {}
    try:
        found: dict[str, Any] = json.loads(stored)
    except (TypeError, ValueError) as error:
        raise Damage("the metadata of a note is malformed") from error
    return found


UNEXPIRED = "(note.expires_at IS NULL OR note.expires_at > ?)"  # both are UTC to the second, so texts compare as times


@lru_cache(maxsize=4096)
def epoch(timestamp: str) -> float:
    """Seconds since 1970 of an ISO timestamp; one without a zone is read as UTC."""
    moment = datetime.fromisoformat(timestamp)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


FACT_PLACES = (6, 7, 9, 12, 11)  # where a row of the NOTE query has what a filter may ask about
_FACTS = dict(zip(Facts._fields, ("session", "speaker", "at", "created_at", "metadata"), strict=True))


def facts(only: Filter) -> str:
    """The columns that `check_of` reads for this filter; those that it does not ask about are left empty."""
    asked = facts_asked(only.condition) | ({"metadata"} if only.metadata else set())
    return ", ".join(f"note.{column}" if name in asked else "NULL" for name, column in _FACTS.items())


def check_of(only: Filter) -> Callable[[Sequence[Any]], bool] | None:
    """A test of a row of facts for what SQL does not decide of the filter; None where it decides all."""
    if not only.metadata and only.condition is None:
        return None
    check = None if only.condition is None else compile_check(only.condition)
    wanted = tuple(only.metadata.items())

    def passes(row: Sequence[Any]) -> bool:
        session, speaker, at, created_at, stored = row
        metadata = {} if stored is None else read_metadata(stored)
        for key, value in wanted:
            if not same(metadata.get(key), value):
                return False
        return check is None or check(Facts(session, speaker, at, _read_time(created_at), metadata))

    return passes


def _read_time(stored: str | None) -> float | None:
    try:
        return epoch(stored) if stored else None
    except (TypeError, ValueError) as error:
        raise Damage("the time of a note is malformed") from error


def time_of(note: Note) -> float | None:
    """When the note is of, in seconds since 1970: its timestamp, or for a live note without one when it was stored."""
    moment = note.timestamp or (note.created_at if note.live else None)
    return epoch(moment) if moment else None


def conditions(scope: Scope, only: Filter) -> tuple[list[str], list[Any]]:
    """SQL conditions with their values for a scope and the parts of a filter that SQL decides."""
    where, values = ["true"], []
    for name in ("user_id", "agent_id", "run_id"):
        if (value := getattr(scope, name)) is not None:
            where.append(f"scope.{name} = ?")
            values.append(value)
    if only.session is not None:
        where.append("note.session = ?")
        values.append(only.session)
    if only.since:
        where.append("note.at >= ?")
        values.append(epoch(only.since))
    if only.until:
        where.append("note.at <= ?")
        values.append(_end_of(only.until))
    if only.now is not None:
        where.append(UNEXPIRED)
        values.append(only.now)
    if only.without:
        where.append(f"NOT (note.id {IN})")
        values.append(Many(only.without))
    return where, values


def _end_of(until: str) -> float:
    """The last moment that `until` covers: a bare date means all of that day."""
    return last_moment(epoch(until)) if len(until) == 10 else epoch(until)
