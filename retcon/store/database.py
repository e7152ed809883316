"""What the parts that all SQL stores share may ask of a connection: SQLite's, or PostgreSQL's behind the same words.

Statements are written in SQLite's words, in a form that `postgres.statements` turns into PostgreSQL's. A list goes in
as one value: `x IN (SELECT value FROM json_each(?))` with `Many(values)`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from retcon.errors import RetconError, StoreError

Values = Sequence[Any] | Mapping[str, Any]


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def fetchmany(self, size: int = ..., /) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection, in a transaction that the caller began."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Rows: ...


@runtime_checkable
class Sealing(Protocol):
    """A connection that adds to the store's seal by itself."""

    def change_seal(self, notes: int, summed: int, deletes: int) -> None: ...


class Damage(Exception):  # noqa: N818 - not an error of its own: a store says where it is, and raises a StoreError
    """Something that was read is not what was written."""


class Many(list[Any]):
    """Values that go into a statement as one list."""


sqlite3.register_adapter(Many, json.dumps)

IN = "IN (SELECT value FROM json_each(?))"


@contextlib.contextmanager
def translate_damage(path: str) -> Iterator[None]:
    """What reading a damaged file may raise, as one of our errors."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, RetconError):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        message = f"{path}: the index or a row cannot be read ({what}): 'retcon check' says what to do"
        raise StoreError(message) from error
