"""The models that a caller may hand in: text -> vectors (`Embed`) and asks -> replies (`Chat`).

| adapter | what it talks to | extra |
|---|---|---|
| `HttpChat`, `HttpEmbed` | any OpenAI-compatible endpoint | `http` |
| `GgufChat` | a GGUF file, in this process | `local` |
| `HfChat` | a transformers model, in this process, in large batches | `gpu` |
| `FakeChat` | nothing: replies queued by a test | |
| `CassetteChat` | a file of recorded replies | |
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from retcon.errors import InputError
from retcon.model.base import Ask, Chat, Reply
from retcon.model.embed import Embed, HashingEmbed, WordLlamaEmbed, embedder

if TYPE_CHECKING:
    from retcon.model.cassette import CassetteChat
    from retcon.model.fake import FakeChat
    from retcon.model.gguf import GgufChat
    from retcon.model.hf import HfChat
    from retcon.model.http import HttpChat, HttpEmbed

# Loaded at first use: a memory without a model pays for none of them.
_ADAPTERS = {
    "CassetteChat": "cassette", "FakeChat": "fake", "GgufChat": "gguf", "HfChat": "hf", "HttpChat": "http",
    "HttpEmbed": "http",
}  # fmt: skip


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
        if os.path.isfile(os.path.join(spec, "config.json")):
            from retcon.model.hf import HfChat

            return HfChat(spec, name=name)
        raise InputError(
            f"unknown model {spec!r}: a base URL (http://...), the path of a .gguf file, the folder of a transformers"
            " model, or a Chat object"
        )
    if not isinstance(spec, Chat):
        raise InputError(f"a model needs name, kind and a call, {type(spec).__name__} lacks one of them")
    return spec


__all__ = [
    "Ask", "CassetteChat", "Chat", "Embed", "FakeChat", "GgufChat", "HashingEmbed", "HfChat", "HttpChat", "HttpEmbed",
    "Reply", "WordLlamaEmbed", "chat", "embedder",
]  # fmt: skip
