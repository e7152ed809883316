"""LangGraph stores: `[item.dict() for item in store.search(...)]`, or what the SDK's `search_items` returns, as JSON.

Each item has namespace, key, value, created_at and updated_at. The words are the first of text, content, memory and
data in its value that is text (LangMem keeps them one level down); a value without any is kept as JSON. The rest of the
value, the namespace and the key go into the metadata.

A namespace is somebody's by convention alone. `Options.namespace` says how to read it: "memories/{user_id}". If it does
not, parts that are plain words for what is kept, such as "memories", are passed over, and the others are taken for
user_id, agent_id and run_id, in this order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from retcon.errors import InputError, quote
from retcon.grant import IDS
from retcon.importing.base import Found, Json, Options, Skipped, given

WORDS = ("text", "content", "memory", "data")
KINDS = {"memories", "memory", "facts", "fact", "profile", "profiles", "users", "user", "docs", "documents", "store"}
KINDS |= {"preferences", "semantic", "episodic", "procedural", "collection", "notes", "agents", "agent"}
_FIELD = re.compile(r"\{(\w++)\}")  # of a pattern of namespaces


def read(document: Json, options: Options) -> Iterator[Found | Skipped]:
    """The items of the file."""
    listed = document if isinstance(document.value, list) else document.get("items")
    if listed.none:
        raise InputError(f"{document.place} has no 'items': save [item.dict() for item in store.search(...)]")
    for each in listed.items():
        namespace = _namespace(each.get("namespace", "prefix"))
        key, value = each.get("key").id() or "", each.get("value")
        text, rest = _words(value.object())
        if not text.strip():
            yield Skipped("item without a value")
            continue
        times = given(timestamp=each.get("updated_at", "updatedAt", "created_at", "createdAt").value)
        yield Found(
            place=each.place, text=text, source_id=json.dumps([namespace, key]),
            fields=_scope(namespace, options.namespace, each.place) | times,
            metadata={"namespace": namespace, "key": key} | rest,
        )  # fmt: skip


def _namespace(found: Json) -> list[str]:
    if isinstance(found.value, str):
        return found.value.split(".")
    return [part.id() or "" for part in found.items()]


def _words(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a value, and the rest of it."""
    for name in WORDS:
        inner = value.get(name)
        if isinstance(inner, str) and inner.strip():
            return inner, {other: each for other, each in value.items() if other != name}
        if isinstance(inner, dict):
            text, rest = _words(inner)
            return text, {other: each for other, each in value.items() if other != name} | rest
    return (json.dumps(value, ensure_ascii=False) if value else ""), {}


def _scope(namespace: Sequence[str], pattern: str | None, place: str) -> dict[str, str]:
    if pattern is None:
        parts = [part for part in namespace if part and part.lower() not in KINDS]
        return dict(zip(IDS, parts, strict=False))
    wanted = pattern.strip("/").split("/")
    names = [_FIELD.fullmatch(part) for part in wanted]
    if bad := [match[1] for match in names if match and match[1] not in IDS]:
        raise InputError(f"a namespace has {', '.join(f'{{{name}}}' for name in IDS)}, not {quote(bad[0], 40)}")
    fits = len(wanted) == len(namespace) and all(
        match or part in ("*", have) for match, part, have in zip(names, wanted, namespace, strict=True)
    )
    if not fits:
        raise InputError(f"{place}.namespace is {quote('/'.join(namespace))}, which is not {quote(pattern)}")
    return {match[1]: have for match, have in zip(names, namespace, strict=True) if match and have}
