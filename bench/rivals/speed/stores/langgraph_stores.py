"""LangGraph's stores with an index: a namespace a user, a note an item."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.rivals.speed.stores import TOP, Found, Note


class InMemory:
    """An InMemoryStore."""

    batch = 1_000

    def __init__(self, folder: Path, encode: Any) -> None:
        from langgraph.store.base import PutOp

        self.put, self.store = PutOp, self.open(folder, encode)

    def open(self, folder: Path, encode: Any) -> Any:
        """The store itself."""
        from langgraph.store.memory import InMemoryStore

        return InMemoryStore(index={"dims": encode.dim, "embed": encode.floats, "fields": ["text"]})

    def add(self, notes: Sequence[Note]) -> None:
        for some in _apart(notes):
            self.store.batch([self.put((note["user"],), note["id"], {"text": note["text"]}) for note in some])

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.store.put((note["user"],), note["id"], {"text": note["text"]})

    def search(self, query: str, user: str) -> Sequence[Found]:
        found = self.store.search((user,), query=query, limit=TOP)
        return [Found(each.namespace[0], each.value["text"]) for each in found]

    def close(self) -> None:
        """Nothing is held."""


class Sqlite(InMemory):
    """A SqliteStore, whose vectors are in sqlite-vec."""

    def open(self, folder: Path, encode: Any) -> Any:
        from langgraph.store.sqlite import SqliteStore

        connect = _loading().connect
        self.connection = connect(str(folder / "store.db"), check_same_thread=False, isolation_level=None)
        index: Any = {"dims": encode.dim, "embed": encode.floats, "text_fields": ["text"]}
        store = SqliteStore(self.connection, index=index)
        store.setup()
        return store

    def close(self) -> None:
        self.connection.close()


def _loading() -> Any:
    """A sqlite3 that loads extensions: this Python's own, or pysqlite3's where it was built without."""
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    import pysqlite3

    return pysqlite3


def _apart(notes: Sequence[Note]) -> Iterator[list[Note]]:
    """Batches without two equal texts, on which InMemoryStore.batch raises."""
    left = list(notes)
    while left:
        some = {note["text"]: note for note in reversed(left)}
        taken = {note["id"] for note in some.values()}
        yield [note for note in left if note["id"] in taken]
        left = [note for note in left if note["id"] not in taken]
