"""The words for a place -> the store there: a file's path, ":memory:", or postgresql://..."""

from __future__ import annotations

import importlib
from hashlib import blake2b
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

from retcon.errors import InputError, MissingExtraError
from retcon.language import Language
from retcon.store.connections import Sync
from retcon.store.sql import SqlStore
from retcon.store.sqlite import SqliteStore


def is_postgres(path: str) -> bool:
    """Whether the words for a store are a URL of PostgreSQL."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.lower() in ("postgresql", "postgres")


def shown(path: str) -> str:
    """The words for a store as they may be printed: of a URL no user, no password and no option."""
    if not is_postgres(path):
        return path
    try:
        parts = urlsplit(path)
        schema = dict(parse_qsl(parts.query)).get("schema")
    except ValueError:
        return "a URL that cannot be read"
    place = parts.netloc.rpartition("@")[2] + parts.path
    return f"postgresql://{place}" + (f"?schema={schema}" if schema else "")


def beside(path: str) -> str:
    """What the names of a server's own files begin with: beside the store's, or here where it has none."""
    if not is_postgres(path):
        return path
    name = blake2b(shown(path).encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"retcon-postgres-{name}"


def open_store(path: str, *, sync: Sync = "full", language: Language | None = None) -> SqlStore:
    """The store in that file, or at that URL."""
    if not is_postgres(path):
        return SqliteStore(path, sync=sync, language=language)
    if sync != "full":
        raise InputError("sync is a file's: of PostgreSQL the server's own synchronous_commit decides")
    store: SqlStore = load_postgres().PostgresStore(path, language=language)
    return store


def load_postgres(part: str = "") -> ModuleType:
    """The store on PostgreSQL, or a part of it; its packages are optional."""
    try:
        return importlib.import_module(f"retcon.store.postgres{part}")
    except ImportError as error:
        if not (error.name or "psycopg").startswith("psycopg"):
            raise
        raise MissingExtraError("a store on PostgreSQL", "postgres") from error
