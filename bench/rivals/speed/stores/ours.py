"""retcon: by words, as it comes; and with vectors, where a search joins both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.speed.stores import TOP, Found, Note
from retcon import Memory

BUDGET = 256  # tokens of a recall
FIELDS = ("id", "text", "session", "speaker", "timestamp")


class Words:
    """A memory in a file, without a model."""

    batch = 20_000

    def __init__(self, folder: Path, encode: Any) -> None:
        self.memory, self.users = self.open(str(folder / "store.db"), encode), set[str]()

    def open(self, path: str, encode: Any) -> Memory:
        """The memory itself."""
        return Memory(path)

    def add(self, notes: Sequence[Note]) -> None:
        user = notes[0]["user"]
        self.users.add(user)
        self.memory.add([{name: note[name] for name in FIELDS} for note in notes], user_id=user)

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.add([note])

    def search(self, query: str, user: str) -> Sequence[Found]:
        return [
            Found(hit.note.user_id or "", hit.note.text) for hit in self.memory.search(query, user_id=user, top_k=TOP)
        ]

    def recall(self, query: str, user: str) -> str:
        """What a prompt would hold: at most 256 tokens."""
        return self.memory.recall(query, BUDGET, user_id=user).text

    def close(self) -> None:
        self.memory.close()


class Vectors(Words):
    """The same with vectors: made when notes are added, and a large pool's index before the first search."""

    def open(self, path: str, encode: Any) -> Memory:
        return Memory(path, embedder=encode)

    def finish(self) -> None:
        self.memory.embed()
        for user in self.users:
            self.memory.search("anything at all", user_id=user)

    def add_one(self, note: Note) -> None:
        self.add([note])
        self.memory.embed(user_id=note["user"])
