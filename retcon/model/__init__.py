"""The models that a caller may hand in: text -> vectors (`Embed`) and asks -> replies (`Chat`).

| adapter | what it talks to | extra |
|---|---|---|
| `HttpChat`, `HttpEmbed` | any OpenAI-compatible endpoint; by name where `providers` knows it | `http` |
| `GgufChat` | a GGUF file, in this process | `local` |
| `FakeChat` | nothing: replies queued by a test | |
| `embedder` | whatever a text, a function or an object means: see `embedders` | |

A package may add kinds of its own by an entry point of the group `retcon.models`: a function from the text that was
given to a Chat, or to None where it means something else. The laboratory adds the folder of a transformers model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from retcon.errors import InputError, quote
from retcon.model import providers
from retcon.model.base import Ask, Chat, Reply
from retcon.model.embed import Embed, HashingEmbed, WordLlamaEmbed
from retcon.model.embedders import embedder

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
    remember: float | None = None,
) -> Chat:
    """The model meant by "provider:model", a base URL, a .gguf file, the folder of a transformers model, or an object.

    Without a `key` that of the provider or RETCON_API_KEY is looked for. `timeout` is for one ask. An endpoint that
    cannot be reached, or refuses the key, is not tried again for `remember` seconds.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Chat):
            raise InputError(f"a model needs name, kind and a call, {type(spec).__name__} lacks one of them")
        return spec
    if is_endpoint(spec):
        from retcon.model.http import REMEMBER, HttpChat

        base, name, key = _locate(spec, name, key)
        remember = REMEMBER if remember is None else remember
        return HttpChat(
            base, name, key=key, timeout=timeout, concurrency=concurrency, retries=retries, remember=remember
        )
    if spec.lower().endswith(".gguf"):
        from retcon.model.gguf import GgufChat

        return GgufChat(spec, name=name, timeout=timeout)
    if (found := _open_plugin(spec, name)) is not None:
        return found
    raise unknown_model(spec)


def is_endpoint(spec: str) -> bool:
    """Whether a model is meant that is asked over HTTP: by a URL, or by a provider's name."""
    named = providers.split(spec)
    return spec.lower().startswith(("http://", "https://")) or (named is not None and named.known)


def _locate(spec: str, name: str | None, key: str | None) -> tuple[str, str | None, str | None]:
    """Base URL, model and key of an endpoint."""
    if (named := providers.split(spec)) is None:
        return spec, name, providers.find_key(spec, key)
    if name is not None and name != named.model:
        raise InputError(f"the model has two names, {named.model!r} in {spec!r} and {name!r}: give one")
    return named.base, named.model, named.find_key(key)


def unknown_model(spec: str) -> InputError:
    """The error where a text means no model: it says what there is."""
    if (named := providers.split(spec)) is not None:
        return InputError(f"unknown provider {quote(named.provider)}: one of {providers.list_known()}, or a base URL")
    return InputError(
        f"unknown model {quote(spec)}: a provider and its model (ollama:llama3.2), a base URL (http://...), the path of"
        " a .gguf file, the folder of a transformers model, or a Chat object"
    )


def _open_plugin(spec: str, name: str | None) -> Chat | None:
    from importlib.metadata import entry_points  # looked up only where nothing else is meant

    opened = (plugin.load()(spec, name=name) for plugin in entry_points(group="retcon.models"))
    return next((found for found in opened if found is not None), None)


__all__ = [
    "Ask", "Chat", "Embed", "FakeChat", "GgufChat", "HashingEmbed", "HttpChat", "HttpEmbed", "Reply", "WordLlamaEmbed",
    "chat", "embedder", "is_endpoint", "unknown_model",
]  # fmt: skip
