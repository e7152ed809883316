"""Zep: pages of thread messages (`thread.list_messages`) and of facts (`graph.edge.list`), saved as JSON.

A page has `items` (formerly `messages`, `facts` or `edges`). A message has uuid, role, name, content, created_at and
metadata, an edge a fact with the time from which it held. A fact that no longer holds is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from retcon.errors import InputError
from retcon.importing.base import Found, Json, Options, Skipped, given


def read(document: Json, _: Options) -> Iterator[Found | Skipped]:
    """The messages and facts of the file."""
    pages = [document] if isinstance(document.value, list) else _pages(document)
    if not pages:
        raise InputError(f"{document.place} has no 'items': save a page of messages or of edges")
    for page in pages:
        for each in page.items():
            yield _fact(each) if "fact" in each.object() else _message(each)


def _pages(document: Json) -> list[Json]:
    found = (document.get(name) for name in ("items", "messages", "facts", "edges"))
    return [each for each in found if not each.none]


def _fact(edge: Json) -> Found | Skipped:
    if not edge.get("invalid_at", "expired_at").none:
        return Skipped("fact that no longer holds")
    return Found(
        place=edge.place, text=edge.get("fact").words(), source_id=edge.get("uuid").id(),
        fields=given(timestamp=edge.get("valid_at", "created_at").value),
        metadata=edge.get("attributes").mapping() | given(relation=edge.get("name").text()),
    )  # fmt: skip


def _message(message: Json) -> Found | Skipped:
    if not (message.get("content").text() or "").strip():
        return Skipped("message without words")
    role = message.get("role", "role_type").text()
    if role == "system":
        return Skipped("message of the system")
    return Found(
        place=message.place, text=message.get("content").words(), source_id=message.get("uuid").id(),
        fields=given(
            speaker=message.get("name").text() or role, session=message.get("thread_uuid", "thread_id").id(),
            timestamp=message.get("reference_time", "created_at").value,
        ),
        metadata=message.get("metadata").mapping(),
    )  # fmt: skip
