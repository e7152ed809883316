"""LangGraph's InMemoryStore with a semantic index: a turn an item, found by `search`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import TOP_K, Setup, lines
from bench.rivals.encoder import DIM
from retcon.note import Note

NAMESPACE = ("user", "memories")


class LangGraphStore:
    """Items with a text each."""

    def __init__(self, setup: Setup) -> None:
        from langgraph.store.memory import InMemoryStore

        self.store = InMemoryStore(index={"dims": DIM, "embed": setup.encode.floats, "fields": ["text"]})

    def add(self, history: Sequence[Note]) -> None:
        for place, text in enumerate(lines(history)):
            self.store.put(NAMESPACE, str(place), {"text": text})

    def context(self, question: str, budget: int) -> Sequence[str]:
        return [str(each.value["text"]) for each in self.store.search(NAMESPACE, query=question, limit=TOP_K)]


def open(name: str, setup: Setup) -> LangGraphStore:  # noqa: A001
    """An empty one."""
    return LangGraphStore(setup)
