"""What a chat model is to retcon: a batch of asks in, as many replies or errors out, in the same order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from retcon.errors import ModelError


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: messages with a role and a content each, and how to answer them."""

    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer with what it cost."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    finish: str  # "stop", or "length" where the token ceiling cut it
    logprob: float | None = None  # mean over the answer's tokens, where the adapter gives it


@runtime_checkable
class Chat(Protocol):
    """A chat model. A call never raises for a failed ask: its error stands in its place. `close()` is optional."""

    @property
    def name(self) -> str: ...  # of the model, for reports and cache keys

    @property
    def kind(self) -> str: ...  # of the adapter: http, gguf, hf, fake

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]: ...


MOST_TOKENS = 2**31  # of one call: what a model says beyond that is no count


def token_count(value: object) -> int | None:
    """The value where it can be a number of tokens; None where it cannot."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < MOST_TOKENS else None  # type: ignore[operator, return-value]


def sanitize(reply: Reply) -> Reply:
    """The reply with numbers that can be added up, sent and kept: others count as nothing."""
    seconds, logprob = reply.seconds, reply.logprob
    return replace(
        reply, prompt_tokens=token_count(reply.prompt_tokens) or 0,
        completion_tokens=token_count(reply.completion_tokens) or 0,
        seconds=float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < MOST_TOKENS else 0.0,
        logprob=logprob if isinstance(logprob, float) and math.isfinite(logprob) else None,
    )  # fmt: skip


def plain_ask(ask: Ask) -> dict[str, Any]:
    """The ask as JSON values: everything in it that changes an answer."""
    plain = {name: getattr(ask, name) for name in ask.__slots__}
    return plain | {"messages": [dict(message) for message in ask.messages]}


def clean_messages(ask: Ask) -> list[dict[str, str]]:
    """The ask's messages as a model may be sent them."""
    return [{name: clean(value) for name, value in message.items()} for message in ask.messages]


def clean(text: str) -> str:
    """The text with half surrogate pairs replaced: JSON can carry them, UTF-8 and SQLite cannot."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
