"""ChatGPT: conversations.json of a data export, or the zip that holds it.

A conversation is a tree: `mapping` has nodes with a message, a parent and children; an answer that was written anew, or
a question that was edited, is another branch. `current_node` is the end of the branch that one sees, and that branch is
taken; with `all_branches` every message is, in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retcon.errors import InputError, quote
from retcon.importing.base import Found, Json, Options, Skipped, given, joined

SPOKEN = ("user", "assistant")
KINDS = ("text", "multimodal_text")


def read(document: Json, options: Options) -> Iterator[Found | Skipped]:
    """The messages of the file."""
    listed = document if isinstance(document.value, list) else document.get("conversations")
    if listed.none:
        raise InputError(f"{document.place} is no list of conversations")
    for each in listed.items():
        nodes = each.get("mapping").object()
        branch = _branch(each, nodes)
        taken = _by_time(nodes) if options.all_branches else branch
        for name in taken:
            yield _message(each, Json(nodes[name], f"{each.place}.mapping.{name}"))
        spoken = sum(1 for name in nodes if name not in branch and _is_spoken(nodes[name]))
        if not options.all_branches:
            yield from [Skipped("message of another branch")] * spoken


def _branch(conversation: Json, nodes: dict[str, Any]) -> list[str]:
    """The nodes from the first to the current one."""
    at: Any = conversation.get("current_node").id() or next(reversed(nodes), None)
    found: dict[str, None] = {}
    while at is not None:
        if at not in nodes or at in found:
            why = "is its own ancestor" if at in found else "is not there"
            raise InputError(f"{conversation.place}.mapping: the node {quote(at, 60)} {why}")
        found[at] = None
        at = Json(nodes[at], f"{conversation.place}.mapping.{at}").get("parent").id()
    return list(reversed(found))


def _by_time(nodes: dict[str, Any]) -> list[str]:
    def key(name: str) -> float:
        message = nodes[name].get("message") if isinstance(nodes[name], dict) else None
        time = message.get("create_time") if isinstance(message, dict) else None
        return time if isinstance(time, (int, float)) else 0.0

    return sorted(nodes, key=key)


def _is_spoken(node: Any) -> bool:
    message = node.get("message") if isinstance(node, dict) else None
    author = message.get("author") if isinstance(message, dict) else None
    return isinstance(author, dict) and author.get("role") in SPOKEN


def _message(conversation: Json, node: Json) -> Found | Skipped:
    message = node.get("message")
    if message.none:
        return Skipped("node without a message")
    role, content = message.get("author").get("role").text(), message.get("content")
    if role not in SPOKEN:
        return Skipped(f"message of the {role}")
    hidden = message.get("metadata").mapping().get("is_visually_hidden_from_conversation")
    if hidden or content.none or message.get("recipient").value not in (None, "all"):
        return Skipped("hidden message" if hidden else "call of a tool")
    kind = content.get("content_type").text()
    text = joined(content.get("parts")) if kind in KINDS else ""
    if not text.strip():
        return Skipped("message without words" if kind in KINDS else f"message of the kind {kind}")
    when = message.get("create_time").value or conversation.get("create_time").value
    return Found(
        place=message.place, text=text, source_id=message.get("id").id(),
        fields=given(speaker=role, session=conversation.get("conversation_id", "id").id(), timestamp=when),
        metadata=given(title=conversation.get("title").text() or None),
    )  # fmt: skip
