"""Many rows in one statement: each column goes to the server as one array, in PostgreSQL's own binary form.

    INSERT INTO doc VALUES (?, ?, ...)    with many rows
    INSERT INTO doc SELECT * FROM unnest(column, column, ...)    once

The server reads the arrays about as fast as a COPY, and unlike a COPY they go with ON CONFLICT, row-level security and
a pipeline of statements.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from retcon.store.postgres.statements import to_postgres
from retcon.store.postgres.texts import encode_text

FEW = 4  # rows up to which each has a statement of its own
TYPES = {  # of the tables that are written in bulk, in their order
    "scope": {"user_id": "text", "agent_id": "text", "run_id": "text"},
    "note": dict.fromkeys("seq scope slot follows supersedes sum live".split(), "bigint")
    | dict.fromkeys("id session speaker timestamp text metadata created_at expires_at".split(), "text")
    | {"at": "double precision"},
    "doc": dict.fromkeys("scope slot note length".split(), "bigint") | {"terms": "bytea", "passages": "bytea"},
    "posting": dict.fromkeys("scope term df peak low".split(), "bigint") | {"tail": "bytea"},
    "block": {"scope": "bigint", "term": "bigint", "first": "bigint", "data": "bytea"},
}
_OIDS = {"bigint": (20, 1016), "text": (25, 1009), "bytea": (17, 1001), "double precision": (701, 1022)}
_INSERT = re.compile(r"(INSERT (?:OR \w+ )?INTO (\w+)(?: \(([\w, ]+)\))?) VALUES \([?, ]+\)")
_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)
_BIGINT = np.dtype([("length", ">i4"), ("value", ">i8")])


class Bulk(NamedTuple):
    """An insert of many rows."""

    statement: str  # in PostgreSQL's words
    types: tuple[str, ...]  # of its columns


class Array(bytes):
    """A column as the server takes it."""


class _Bigints(Array):
    pass


class _Texts(Array):
    pass


class _Blobs(Array):
    pass


class _Doubles(Array):
    pass


_KINDS: dict[str, type[Array]] = {
    "bigint": _Bigints, "text": _Texts, "bytea": _Blobs, "double precision": _Doubles,
}  # fmt: skip


def register(adapters: AdaptersMap) -> None:
    """Let a connection take arrays as values."""
    for name, kind in _KINDS.items():
        words = {"oid": _OIDS[name][1], "format": Format.BINARY, "dump": lambda _, given: given}
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (Dumper,), words))


@lru_cache(maxsize=64)
def find(sql: str) -> Bulk | None:
    """The statement, in SQLite's words, for many rows at once; None where it is none of ours to be turned."""
    found = _INSERT.fullmatch(sql.strip())
    if found is None or found[2] not in TYPES:
        return None
    held = TYPES[found[2]]
    types = tuple(held.values() if found[3] is None else (held[name] for name in found[3].split(", ")))
    marks = ", ".join(f"?::{name}[]" for name in types)
    return Bulk(to_postgres(f"{found[1]} SELECT * FROM unnest({marks})"), types)


def encode(bulk: Bulk, rows: Iterable[Sequence[Any]]) -> list[Array]:
    """The values of the statement: an array for each column."""
    return [encode_column(name, column) for name, column in zip(bulk.types, zip(*rows, strict=True), strict=True)]


def encode_column(name: str, values: Sequence[Any]) -> Array:
    """The values, of the type with that name, as an array."""
    null = None in values
    head = struct.pack(">iiiii", 1, null, _OIDS[name][0], len(values), 1)  # dimensions, NULLs, type, size, first place
    return _KINDS[name](head + (_encode_bigints(values) if name == "bigint" and not null else _join(name, values)))


def _encode_bigints(values: Sequence[int]) -> bytes:
    out = np.empty(len(values), _BIGINT)
    out["length"], out["value"] = 8, values
    return out.tobytes()


def _join(name: str, values: Sequence[Any]) -> bytes:
    encode = _ENCODERS[name]
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            data = encode(value)
            parts += (_LENGTH(len(data)), data)
    return b"".join(parts)


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "text": encode_text,
    "bytea": bytes,
    "bigint": struct.Struct(">q").pack,
    "double precision": struct.Struct(">d").pack,
}
