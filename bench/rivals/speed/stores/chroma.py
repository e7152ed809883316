"""Chroma on disk: its HNSW index by cosine, the user in a note's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.speed.stores import TOP, Found, Note


class Chroma:
    """A collection of a persistent client."""

    batch = 5_000  # it takes 5,461 at most

    def __init__(self, folder: Path, encode: Any) -> None:
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(str(folder / "chroma"), settings=Settings(anonymized_telemetry=False))
        self.encode, space = encode, {"hnsw": {"space": "cosine"}}
        self.notes: Any = client.create_collection("notes", configuration=space, embedding_function=None)

    def add(self, notes: Sequence[Note]) -> None:
        texts = [note["text"] for note in notes]
        users: list[Any] = [{"user": note["user"]} for note in notes]
        self.notes.add(
            ids=[note["id"] for note in notes], documents=texts, embeddings=self.encode(texts), metadatas=users
        )

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.add([note])

    def search(self, query: str, user: str) -> Sequence[Found]:
        found = self.notes.query(
            query_embeddings=self.encode([query]),
            n_results=TOP,
            where={"user": user},
            include=["documents", "metadatas"],
        )
        texts, about = found["documents"][0], found["metadatas"][0]
        return [Found(str(each["user"]), text) for each, text in zip(about, texts, strict=True)]

    def close(self) -> None:
        """Nothing is held."""
