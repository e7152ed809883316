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

from retcon.errors import InputError
from retcon.model.base import Ask, Chat, Reply
from retcon.model.cassette import CassetteChat
from retcon.model.embed import Embed, HashingEmbed, WordLlamaEmbed, embedder
from retcon.model.fake import FakeChat
from retcon.model.gguf import GgufChat
from retcon.model.hf import HfChat
from retcon.model.http import HttpChat, HttpEmbed


def chat(
    spec: str | Chat,
    *,
    name: str | None = None,
    key: str | None = None,
    timeout: float = 60.0,
    concurrency: int = 8,
    retries: int = 4,
) -> Chat:
    """The model meant by a base URL, by the path of a .gguf file, or by an object that is one."""
    if isinstance(spec, str):
        if spec.lower().startswith(("http://", "https://")):
            return HttpChat(spec, name, key=key, timeout=timeout, concurrency=concurrency, retries=retries)
        if spec.lower().endswith(".gguf"):
            return GgufChat(spec, name=name, timeout=timeout)
        raise InputError(f"unknown model {spec!r}: a base URL (http://...), the path of a .gguf file, or a Chat object")
    if not isinstance(spec, Chat):
        raise InputError(f"a model needs name, kind and a call, {type(spec).__name__} lacks one of them")
    return spec


__all__ = [
    "Ask", "CassetteChat", "Chat", "Embed", "FakeChat", "GgufChat", "HashingEmbed", "HfChat", "HttpChat", "HttpEmbed",
    "Reply", "WordLlamaEmbed", "chat", "embedder",
]  # fmt: skip
