"""Letta: an agent file (.af), of the older form with one agent and of the newer one with `agents` and `blocks`.

Blocks of core memory become notes with their label in the metadata; a block that has changed since is a correction.
Messages of users and assistants become notes of a session. Letta wraps what a user says in JSON, and an assistant
speaks by calling send_message: both are unwrapped. Archival passages are in no agent file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from retcon.errors import InputError
from retcon.importing.base import Found, Json, Options, Skipped, given, joined

SPOKEN = ("user", "assistant")


def read(document: Json, _: Options) -> Iterator[Found | Skipped]:
    """The blocks and messages of the file."""
    if not document.get("agents").none:
        blocks = {each.get("id").id(): each for each in document.get("blocks").items()}
        for agent in document.get("agents").items():
            named = [each.id() for each in agent.get("block_ids").items()]
            yield from _agent(agent, [blocks[name] for name in named if name in blocks])
    elif not document.get("messages").none or not document.get("core_memory").none:
        yield from _agent(document, list(document.get("core_memory").items()))
    else:
        raise InputError(f"{document.place} is no agent file: it has neither 'agents' nor 'messages'")


def _agent(agent: Json, blocks: Sequence[Json]) -> Iterator[Found | Skipped]:
    name = agent.get("name").text() or agent.get("id").id() or "agent"
    for block in blocks:
        label = block.get("label").text() or "block"
        if not (block.get("value").text() or "").strip():
            yield Skipped("empty block")
            continue
        times = given(timestamp=block.get("updated_at", "created_at").value)
        yield Found(
            place=block.place, text=block.get("value").words(), source_id=json.dumps([name, "block", label]),
            fields={"agent_id": name} | times, metadata={"block": label},
        )  # fmt: skip
    for number, message in enumerate(agent.get("messages").items()):
        yield _message(name, number, message)


def _message(agent: str, number: int, message: Json) -> Found | Skipped:
    role = message.get("role").text()
    if role not in SPOKEN:
        return Skipped(f"message of the {role}")
    text = _user_words(joined(message.get("content", "text"))) if role == "user" else _assistant_words(message)
    if not text.strip():
        return Skipped("message without words")
    source = message.get("id").id()
    return Found(
        place=message.place, text=text, source_id=json.dumps([agent, source if source is not None else number, text]),
        fields=given(agent_id=agent, speaker=role, session=agent, timestamp=message.get("created_at").value),
    )  # fmt: skip


def _user_words(text: str) -> str:
    """What the user said; nothing where the agent told itself something, such as a heartbeat."""
    inside = _parse(text)
    if not isinstance(inside, dict) or "type" not in inside:
        return text
    return str(inside.get("message") or "") if inside["type"] == "user_message" else ""


def _assistant_words(message: Json) -> str:
    """What the assistant said to the user: by its tool for that, else as plain content."""
    said = []
    for call in message.get("tool_calls").items():
        function = call.get("function")
        if not function.none and function.get("name").value == "send_message":
            inside = _parse(function.get("arguments").text() or "")
            said.append(str(inside.get("message") or "") if isinstance(inside, dict) else "")
    return "\n".join(filter(None, said)) or ("" if said else joined(message.get("content", "text")))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
