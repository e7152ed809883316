"""Retrieval by MiniLM vectors in Chroma, a turn a document, cosine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from bench.rivals.base import TOP_K, Setup, lines
from retcon.note import Note


class ChromaRag:
    """The nearest turns by its HNSW index."""

    def __init__(self, setup: Setup) -> None:
        self.encode, self.turns = setup.encode, new_collection()

    def add(self, history: Sequence[Note]) -> None:
        texts = lines(history)
        for start in range(0, len(texts), 1000):
            some = texts[start : start + 1000]
            ids = [str(start + place) for place in range(len(some))]
            self.turns.add(ids=ids, documents=some, embeddings=self.encode.floats(some))

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.turns.query(query_embeddings=self.encode.floats([question]), n_results=TOP_K)
        return list((found["documents"] or [[]])[0])


def new_collection() -> Any:
    """An empty collection in this process, by cosine."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.EphemeralClient(settings=Settings(anonymized_telemetry=False))
    return client.create_collection(
        uuid.uuid4().hex, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )


def open(name: str, setup: Setup) -> ChromaRag:  # noqa: A001
    """An empty one."""
    return ChromaRag(setup)
