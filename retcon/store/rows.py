"""Rows of the `note` table as notes, and scopes and filters as SQL conditions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from retcon.note import Filter, Note, Scope

NOTE = """
SELECT note.id, note.text, note.speaker, note.session, note.timestamp, scope.user_id, scope.agent_id, scope.run_id,
  note.metadata, before.id, older.id, newer.id, note.created_at, note.seq, note.slot
FROM note JOIN scope ON scope.id = note.scope
LEFT JOIN note AS before ON before.seq = note.follows
LEFT JOIN note AS older ON older.seq = note.supersedes
LEFT JOIN note AS newer ON newer.supersedes = note.seq
"""


def read_note(row: Sequence[Any]) -> Note:
    """The note in a row of the NOTE query."""
    return Note(
        id=row[0], text=row[1], speaker=row[2], session=row[3], timestamp=row[4],
        user_id=row[5] or None, agent_id=row[6] or None, run_id=row[7] or None,
        metadata=read_metadata(row[8]), follows=row[9], supersedes=row[10], superseded_by=row[11], created_at=row[12],
    )  # fmt: skip


def read_metadata(stored: str) -> dict[str, Any]:
    """The metadata in a row."""
    try:
        found: dict[str, Any] = json.loads(stored)
    except (TypeError, ValueError) as error:
        raise sqlite3.DatabaseError("the metadata of a note is malformed") from error
    return found


def epoch(timestamp: str) -> float:
    """Seconds since 1970 of an ISO timestamp; one without a zone is read as UTC."""
    moment = datetime.fromisoformat(timestamp)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def conditions(scope: Scope, only: Filter) -> tuple[list[str], list[Any]]:
    """SQL conditions with their values for a scope and the parts of a filter that SQL decides."""
    where, values = ["1"], []
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
    return where, values


def _end_of(until: str) -> float:
    """The last moment that `until` covers: a bare date means all of that day."""
    return epoch(until) + (86_399.999 if len(until) == 10 else 0.0)
