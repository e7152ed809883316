"""postgresql://user:password@host/database?schema=team -> where the store is, and how it may be shown.

Options of ours are taken out of the URL, all others are libpq's own: schema (of the tables, `retcon`), pool_size
(connections at most, 10), timeout (seconds to wait for a connection, a lock or an answer, 30) and pgvector (off:
vectors are searched in memory, whatever the server has).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from retcon.errors import InputError
from retcon.store.places import shown

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,54}")  # room for a suffix within PostgreSQL's 63 bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is."""

    conninfo: str
    shown: str  # no user, no password, no option
    schema: str = "retcon"
    pool_size: int = 10
    timeout: float = 30.0
    pgvector: bool = True  # wherever it is there


def parse(url: str) -> Place:
    """The place that the URL names."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise InputError(f"the URL of the store cannot be read: {error}") from None
    ours = {name: options.pop(name) for name in ("schema", "pool_size", "timeout", "pgvector") if name in options}
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options, quote_via=quote), ""))
    schema = _schema(ours.get("schema", "retcon"))
    size = int(_number("pool_size", ours.get("pool_size", "10"), 1, 1000))
    return Place(
        conninfo, shown(url), schema, size, _number("timeout", ours.get("timeout", "30"), 0.1, 3600),
        _switch("pgvector", ours.get("pgvector", "on")),
    )  # fmt: skip


def _schema(name: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise InputError(f"schema={name[:80]!r} is no name: a small letter, then up to 54 letters, digits or _")
    return name


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise InputError(f"{name}={text[:40]!r} of the store's URL is not a number from {least:g} to {most:g}")
    return number


def _switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise InputError(f"{name}={text[:40]!r} of the store's URL is neither on nor off")
    return text == "on"
