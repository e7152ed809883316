"""Retrieval by MiniLM vectors in LanceDB, a turn a row, exact cosine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from bench.rivals.base import TOP_K, Setup, lines
from retcon.note import Note


class LanceRag:
    """The nearest turns."""

    def __init__(self, setup: Setup) -> None:
        import lancedb

        self.encode, self.folder = setup.encode, tempfile.TemporaryDirectory()
        self.db = lancedb.connect(self.folder.name)

    def add(self, history: Sequence[Note]) -> None:
        texts = lines(history)
        rows = [{"text": text, "vector": vector} for text, vector in zip(texts, self.encode(texts), strict=True)]
        self.table = self.db.create_table("turns", data=rows)

    def context(self, question: str, budget: int) -> Sequence[str]:
        query = self.table.search(self.encode([question])[0]).distance_type("cosine").limit(TOP_K)
        return [str(row["text"]) for row in query.to_list()]


def open(name: str, setup: Setup) -> LanceRag:  # noqa: A001
    """An empty one."""
    return LanceRag(setup)
