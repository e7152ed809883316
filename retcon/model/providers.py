"""Providers by name: "openai:gpt-4o-mini" -> the address of an OpenAI-compatible endpoint, a model there, its key.

One table for whatever is asked there, chat models and embedders. A provider's key is looked for under the provider's
own variable and is sent to that provider alone: to the scheme, host and port of its address, and over plain HTTP only
to this machine. RETCON_API_KEY is the caller's word for whatever model is named, so it goes wherever that model is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from retcon.errors import InputError

RETCON_KEY = "RETCON_API_KEY"  # for whatever endpoint the caller has named


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider listens, and the environment variables that hold its key and, if any, another address of it."""

    base: str
    key: str | None = None  # None: it runs on this machine and asks for none
    address: str | None = None


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "ollama": Provider("http://localhost:11434/v1"),
    "lmstudio": Provider("http://localhost:1234/v1"),
    "vllm": Provider("http://localhost:8000/v1"),
    "llamacpp": Provider("http://localhost:8080/v1"),
}
_PORTS = {"http": 80, "https": 443}
_NAMED = re.compile(r"\A([A-Za-z][A-Za-z0-9_-]++):(?![/\\])(.*)", re.DOTALL)  # two letters or more: C:\ is a disk


@dataclass(frozen=True, slots=True)
class Named:
    """A model that was named with its provider."""

    provider: str
    model: str

    @property
    def known(self) -> bool:
        """Whether the table has the provider."""
        return self.provider in PROVIDERS

    @property
    def base(self) -> str:
        """The URL to post to."""
        found = PROVIDERS[self.provider]
        return (os.environ.get(found.address) if found.address else None) or found.base

    def find_key(self, given: str | None = None) -> str | None:
        """The key: the caller's, the provider's own, or retcon's; an error where the provider wants one."""
        found = PROVIDERS[self.provider]
        own = os.environ.get(found.key) if found.key and _is_private(self.base) else None
        key = given or own or os.environ.get(RETCON_KEY) or None
        if key is None and found.key and os.environ.get(found.key):
            raise InputError(f"{found.key} is not sent over plain HTTP to {self.base}: use https, or {RETCON_KEY}")
        if key is None and found.key is not None and self.base == found.base:
            raise InputError(f"{self.provider}:{self.model} needs a key: set {found.key}")
        return key


def split(spec: str) -> Named | None:
    """The provider and the model that the text names; None where it has not that form, as a URL or a path."""
    found = _NAMED.fullmatch(spec.strip())
    if found is None or spec.lower().startswith(("http:", "https:")):
        return None
    named = Named(found[1].lower(), found[2].strip())
    if named.known and not named.model:
        raise InputError(f"name the model too: {named.provider}:NAME")
    return named


def find_key(url: str, given: str | None = None) -> str | None:
    """The key for an endpoint: the caller's, retcon's own, or that of the provider who listens at this very origin."""
    if given is not None:
        return given
    there = _origin(url) if _is_private(url) else None
    fitting = (
        each.key for name, each in PROVIDERS.items() if each.key and there and _origin(Named(name, "").base) == there
    )
    return os.environ.get(RETCON_KEY) or next((os.environ.get(key) for key in fitting), None) or None


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Scheme, host and port of the URL; None where it has none that can be read."""
    try:
        found = urlsplit(url)
        return found.scheme, found.hostname, found.port or _PORTS.get(found.scheme)
    except ValueError:
        return None


def _is_private(url: str) -> bool:
    """Whether nobody on the way to the URL can read a key: over TLS, or to this machine."""
    origin = _origin(url)
    return origin is not None and (origin[0] == "https" or _is_loopback(origin[1] or ""))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def list_known() -> str:
    """The providers, as they may stand in a message."""
    return ", ".join(PROVIDERS)
