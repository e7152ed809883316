"""Claude: conversations.json of a data export, or the zip that holds it.

A conversation has chat_messages in order, each with a sender (human or assistant), its text in parts and as a whole,
and attachments, whose extracted text becomes a note of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from retcon.errors import InputError
from retcon.importing.base import Found, Json, Options, Skipped, given

SPEAKERS = {"human": "user"}


def read(document: Json, _: Options) -> Iterator[Found | Skipped]:
    """The messages of the file."""
    listed = document if isinstance(document.value, list) else document.get("conversations")
    if listed.none:
        raise InputError(f"{document.place} is no list of conversations")
    for conversation in listed.items():
        messages = conversation.get("chat_messages")
        if messages.none:
            raise InputError(f"{conversation.place} has no 'chat_messages'")
        for message in messages.items():
            yield from _message(conversation, message)


def _message(conversation: Json, message: Json) -> Iterator[Found | Skipped]:
    sender = message.get("sender").text() or "unknown"
    fields = given(
        speaker=SPEAKERS.get(sender, sender), session=conversation.get("uuid").id(),
        timestamp=message.get("created_at").value or conversation.get("created_at").value,
    )  # fmt: skip
    about = given(title=conversation.get("name").text() or None)
    source, text = message.get("uuid").id(), _words(message)
    if text.strip():
        yield Found(place=message.place, text=text, source_id=source, fields=fields, metadata=about)
    else:
        yield Skipped("message without words")
    for number, file in enumerate(message.get("attachments").items()):
        inside = file.get("extracted_content").text()
        name = given(file_name=file.get("file_name").text() or None)
        if not inside or not inside.strip():
            yield Skipped("attachment without words")
            continue
        named = None if source is None else f"{source}/{number}"
        yield Found(place=file.place, text=inside, source_id=named, fields=fields, metadata=about | name)


def _words(message: Json) -> str:
    """The parts that are text; where there are none, the text as a whole."""
    parts = [part for part in message.get("content").items() if part.get("type").value == "text"]
    return "\n".join(part.get("text").text() or "" for part in parts) or message.get("text").text() or ""
