"""Mem0: what `Memory.get_all`, `MemoryClient.get_all`, `GET /memories` or a search returns, saved as JSON.

Each memory has `id` and `memory`, and may have user_id, agent_id, run_id, actor_id, role, created_at, updated_at,
expiration_date, metadata and categories. Its text is of when it was last updated.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from retcon.errors import InputError, quote
from retcon.importing.base import Found, Json, Options, Skipped, given

_READ = {"id", "memory", "text", "data", "user_id", "agent_id", "run_id", "actor_id", "role", "created_at"}
_READ |= {"updated_at", "expiration_date", "metadata"}
_LEFT = {"hash", "score", "event", "previous_memory"}  # of the service, or of one answer


def read(document: Json, _: Options) -> Iterator[Found | Skipped]:
    """The memories of the file."""
    listed = document if isinstance(document.value, list) else document.get("results", "memories", "data")
    if listed.none:
        raise InputError(f"{document.place} has no 'results': save what get_all returns")
    for each in listed.items():
        rest = {name: value for name, value in each.object().items() if name not in _READ | _LEFT}
        yield Found(
            place=each.place, text=each.get("memory", "text", "data").words(), source_id=each.get("id").id(),
            fields=_fields(each), metadata=each.get("metadata").mapping() | given(**rest),
        )  # fmt: skip


def _fields(each: Json) -> dict[str, Any]:
    return given(
        user_id=each.get("user_id").id(), agent_id=each.get("agent_id").id(), run_id=each.get("run_id").id(),
        speaker=each.get("actor_id", "role").text(), timestamp=each.get("updated_at", "created_at").value,
        expires_at=_expiry(each.get("expiration_date")),
    )  # fmt: skip


def _expiry(given: Json) -> str | None:
    """The first moment after the last day of a memory."""
    if given.none:
        return None
    try:
        day = date.fromisoformat((given.text() or "")[:10])
        return (datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        raise InputError(f"{given.place} is a date such as 2026-12-31, not {quote(given.value)}") from None
