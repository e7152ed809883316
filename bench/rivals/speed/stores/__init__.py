"""Every system behind one face, a short file each; a package is imported only when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

TOP = 20
Note = Mapping[str, str]  # id, text, user, session, speaker, timestamp


class Found(NamedTuple):
    """One note that a search gave."""

    user: str
    text: str


class Store(Protocol):
    """One system with the notes of many users."""

    batch: int  # notes of one call of a bulk add

    def add(self, notes: Sequence[Note]) -> None:
        """Take in many, of one user."""

    def finish(self) -> None:
        """Whatever is still to do before the first search, such as building an index."""

    def add_one(self, note: Note) -> None:
        """Take in one, so that the next search finds it."""

    def search(self, query: str, user: str) -> Sequence[Found]:
        """The best 20 of that user, with their texts."""

    def close(self) -> None:
        """Let go of files."""


def open_store(where: str, folder: Path, encode: Any) -> Store:
    """An empty one: `where` is module.Class."""
    module, name = where.split(".")
    store: Store = getattr(importlib.import_module(f"bench.rivals.speed.stores.{module}"), name)(folder, encode)
    return store
