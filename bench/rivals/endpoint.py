"""A model at an OpenAI-compatible endpoint, and what each rival spends there.

The key that a rival sends names it, so that the server can tell callers apart: `drain` gives the replies that this key
got since the last time, whatever library asked for them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Call:
    """One reply: what it cost, and what was said."""

    prompted: int
    generated: int
    text: str
    tools: tuple[tuple[str, str], ...] = ()  # name and arguments of each tool that it called
    asked_tools: bool = False  # whether it was given tools to call


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is (`.../v1`), what it is called, and under which key it is asked."""

    url: str
    name: str
    key: str = "none"

    def chat(self, messages: Sequence[dict[str, str]], *, max_tokens: int, temperature: float = 0.0) -> str:
        """What the model says."""
        plain = {"model": self.name, "messages": list(messages), "max_tokens": max_tokens, "temperature": temperature}
        said: str = self._post("/chat/completions", plain)["choices"][0]["message"]["content"] or ""
        return said

    def ask(self, text: str, *, max_tokens: int) -> str:
        """What the model says to one message."""
        return self.chat([{"role": "user", "content": text}], max_tokens=max_tokens)

    def drain(self) -> list[Call]:
        """The replies under this key since the last call of this."""
        found = self._post("/spent", {})["calls"]
        return [Call(**{**each, "tools": tuple(map(tuple, each["tools"]))}) for each in found]

    def _post(self, path: str, plain: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url + path, json.dumps(plain).encode(), headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            return json.load(reply)


def gives_object(call: Call) -> bool:
    """Whether a reply is one JSON object."""
    try:
        return isinstance(json.loads(call.text), dict)
    except ValueError:
        return False
