"""Plain JSON and JSONL: texts, messages with role and content, notes, or conversations that hold `messages`.

What a note may say is what `Memory.add` takes; `created_at` is when it happened, where there is no timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retcon import validate
from retcon.errors import InputError
from retcon.importing.base import Found, Json, Options, Skipped

LISTS = ("messages", "notes", "results", "memories", "items", "conversations")
NAMES = ("session", "conversation_id", "thread_id", "id")
FIXED = ("follows", "supersedes", "superseded_by", "live")  # links of a store to itself: `retcon load` reads those


def read(document: Json, options: Options) -> Iterator[Found | Skipped]:
    """What the document holds."""
    if isinstance(document.value, list):
        for each in document.items():
            yield from read(each, options)
        return
    listed = [name for name in LISTS if isinstance(document.value, dict) and isinstance(document.value.get(name), list)]
    if not listed:
        yield _one(document, {})
        return
    session = next((value for name in NAMES if (value := document.get(name).id())), None)
    for each in document.get(listed[0]).items():
        holds = isinstance(each.value, dict) and any(isinstance(each.value.get(name), list) for name in LISTS)
        yield from read(each, options) if holds else [_one(each, {"session": session} if session else {})]


def _one(each: Json, shared: dict[str, Any]) -> Found | Skipped:
    value = each.value
    if isinstance(value, dict):
        value = {name: inner for name, inner in value.items() if name not in FIXED}
        value = {"timestamp": value.pop("created_at"), **value} if "created_at" in value else value
        if "role" in value and not value.get("content") and not value.get("text"):
            return Skipped("message without words")
        if value.get("role") in ("system", "developer"):
            return Skipped(f"message of the {value['role']}")
    try:
        fields = validate.draft(value)
    except InputError as error:
        raise InputError(f"{each.place}: {error}") from None
    text, source, about = fields.pop("text"), fields.pop("id", None), fields.pop("metadata", None)
    place = Json(text, f"{each.place}.text")
    return Found(
        place=each.place, text=place.words(), source_id=Json(source, f"{each.place}.id").id(),
        fields=shared | fields, metadata=Json(about or {}, f"{each.place}.metadata").object(),
    )  # fmt: skip
