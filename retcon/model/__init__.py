"""The models that a caller may hand in: text -> vectors (`Embed`) and asks -> replies (`Chat`).

| adapter | what it talks to | extra |
|---|---|---|
| `HttpChat`, `HttpEmbed` | any OpenAI-compatible endpoint | `http` |
| `GgufChat` | a GGUF file, in this process | `local` |
| `FakeChat` | nothing: replies queued by a test | |

A package may add kinds of its own by an entry point of the group `retcon.models`: a function from the text that was
given to a Chat, or to None where it means something else. The laboratory adds the folder of a transformers model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from retcon.errors import InputError
from retcon.model.base import Ask, Chat, Reply
from retcon.model.embed import Embed, HashingEmbed, WordLlamaEmbed, embedder

if TYPE_CHECKING:
    from retcon.model.fake import FakeChat
    from retcon.model.gguf import GgufChat
    from retcon.model.http import HttpChat, HttpEmbed

# Loaded at first use: a memory without a model pays for none of them.
_ADAPTERS = {"FakeChat": "fake", "GgufChat": "gguf", "HttpChat": "http", "HttpEmbed": "http"}


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ADAPTERS[name]}"), name)


def chat(
    spec: str | Chat,
    *,
    name: str | None = None,
    key: str | None = None,
    timeout: float = 60.0,
    concurrency: int = 8,
    retries: int = 4,
) -> Chat:
    """The model meant by a base URL, a .gguf file, the folder of a transformers model, or an object that is one."""
    if isinstance(spec, str):
        if spec.lower().startswith(("http://", "https://")):
            from retcon.model.http import HttpChat

            return HttpChat(spec, name, key=key, timeout=timeout, concurrency=concurrency, retries=retries)
        if spec.lower().endswith(".gguf"):
            from retcon.model.gguf import GgufChat

            return GgufChat(spec, name=name, timeout=timeout)
        if (found := _open_plugin(spec, name)) is not None:
            return found
        raise InputError(
            f"unknown model {spec!r}: a base URL (http://...), the path of a .gguf file, the folder of a transformers"
            " model, or a Chat object"
        )
    if not isinstance(spec, Chat):
        raise InputError(f"a model needs name, kind and a call, {type(spec).__name__} lacks one of them")
    return spec


def _open_plugin(spec: str, name: str | None) -> Chat | None:
    from importlib.metadata import entry_points  # looked up only where nothing else is meant

    opened = (plugin.load()(spec, name=name) for plugin in entry_points(group="retcon.models"))
    return next((found for found in opened if found is not None), None)


__all__ = [
    "Ask", "Chat", "Embed", "FakeChat", "GgufChat", "HashingEmbed", "HttpChat", "HttpEmbed", "Reply", "WordLlamaEmbed",
    "chat", "embedder",
]  # fmt: skip
