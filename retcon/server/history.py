"""The messages of a chat request -> its turns, which of them stay, and names for what was said.

A turn begins with a user's message and goes on to the next one, so a call of a tool never parts from its result. System
and developer messages belong to no turn: they stay where they are.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from retcon.errors import InputError
from retcon.note import Scope

MOST = 10_000  # messages of a request
RULES = ("system", "developer")  # roles of messages that are no part of the conversation

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One message that says something in words."""

    index: int  # of the message in the request
    role: str
    speaker: str
    text: str


@dataclass(frozen=True)
class History:
    """A conversation as a client sends it: all of it, every time."""

    messages: Sequence[Message]

    @classmethod
    def read(cls, given: object) -> History:
        """The messages, every one of them checked for what is read of it."""
        if not isinstance(given, list) or not given:
            raise InputError("messages is a list of messages, one at least")
        if len(given) > MOST:
            raise InputError(f"messages has {len(given):,} messages, this server takes {MOST:,} at most")
        for index, message in enumerate(given):
            _check(index, message)
        return cls(given)

    @cached_property
    def said(self) -> list[Said]:
        """What was said in words, in order, rules left out."""
        found = ((i, message, text_of(message)) for i, message in enumerate(self.messages) if not _is_rule(message))
        return [
            Said(i, message["role"], message.get("name") or message["role"], text)
            for i, message, text in found
            if text and not text.isspace()
        ]

    @cached_property
    def turns(self) -> list[int]:
        """The indexes at which turns begin, in order."""
        spoken = [i for i, message in enumerate(self.messages) if not _is_rule(message)]
        asked = [i for i in spoken if self.messages[i]["role"] == "user"]
        return sorted({*spoken[:1], *asked})

    @property
    def question(self) -> int | None:
        """The index of the user's newest message; None where no user has said a thing."""
        return next((i for i in reversed(self.turns) if self.messages[i]["role"] == "user"), None)

    def find_start(self, recent: int, count: Callable[[str], int]) -> int:
        """The index from which on messages stay: the newest whole turns within so many tokens, the last one always.

        What does not stay is not counted. The start moves by several turns at once, half of those that fit at most, and
        rests in between: so a model that keeps what it has read finds the same beginning again.
        """
        if not self.turns:
            return 0
        first, room = len(self.turns), recent
        while first > 0 and (room := room - self._cost(first - 1, count)) >= 0:
            first -= 1
        if first == 0:
            return 0
        fitting = len(self.turns) - first
        step = 1 << max(0, (fitting // 2).bit_length() - 1)
        return self.turns[min(-(-first // step) * step, len(self.turns) - 1)]

    def _cost(self, turn: int, count: Callable[[str], int]) -> int:
        end = self.turns[turn + 1] if turn + 1 < len(self.turns) else len(self.messages)
        inside = (message for message in self.messages[self.turns[turn] : end] if not _is_rule(message))
        return sum(count(written(message)) for message in inside)

    def name(self, number: int, scope: Scope, session: str | None, secret: bytes) -> str:
        """An id for the thing said of that number, the same whenever it is sent again, with or without its beginning.

        It follows from what was said and what was said right before it; where the same follows the same again, they are
        counted. The hash is keyed: an id tells nothing of words that were not stored.
        """
        before, this = self._place(number)
        whole = json.dumps([*astuple(scope), session, *before, *this, self._repeats[number]]).encode()
        return hashlib.blake2b(whole, key=secret[:64], digest_size=16, person=b"retcon chat").hexdigest()

    @cached_property
    def _repeats(self) -> list[int]:
        """How often each thing said was said before, right after the same."""
        seen: Counter[object] = Counter()
        out = []
        for place in map(self._place, range(len(self.said))):
            out.append(seen[place])
            seen[place] += 1
        return out

    def _place(self, number: int) -> tuple[tuple[str, str], tuple[str, str]]:
        before = ("", "") if not number else (self.said[number - 1].speaker, self.said[number - 1].text)
        return before, (self.said[number].speaker, self.said[number].text)


def text_of(message: Message) -> str:
    """The words of a message; of parts, those that are text, a line each."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def written(message: Message) -> str:
    """The message as it is counted: its words, and the calls of tools as JSON."""
    calls = [message[name] for name in ("tool_calls", "function_call") if message.get(name)]
    return "\n".join([text_of(message), *map(json.dumps, calls)])


def put_before(message: Message, text: str) -> dict[str, Any]:
    """The message with the text before its own words, which stay as they are."""
    content = message.get("content")
    parts: Any = [{"type": "text", "text": text}, *content] if isinstance(content, list) else text + (content or "")
    return {**message, "content": parts}


def _is_rule(message: Message) -> bool:
    return message["role"] in RULES


def _check(index: int, message: object) -> None:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not message["role"]:
        raise InputError(f"messages.{index} is an object with a role")
    name, content = message.get("name"), message.get("content")
    if name is not None and not isinstance(name, str):
        raise InputError(f"messages.{index}.name is text")
    if isinstance(content, list):
        if not all(_is_part(part) for part in content):
            raise InputError(f"messages.{index}.content is text, or a list of parts with a type")
    elif content is not None and not isinstance(content, str):
        raise InputError(f"messages.{index}.content is text, a list of parts, or null")


def _is_part(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("type") != "text" or isinstance(part.get("text"), str)
