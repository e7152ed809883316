"""LangMem: a store manager whose model inserts and patches memories by calling tools, over LangGraph's store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.rivals.base import TOP_K, Setup, batches
from bench.rivals.encoder import DIM
from bench.rivals.endpoint import Call
from retcon.note import Note
from retcon.pack import render

NAMESPACE = ("memories", "{langgraph_user_id}")
USER = {"configurable": {"langgraph_user_id": "user"}}


class Manager:
    """`create_memory_store_manager` with its own instructions."""

    def __init__(self, setup: Setup) -> None:
        from langchain_openai import ChatOpenAI
        from langgraph.store.memory import InMemoryStore
        from langmem import create_memory_store_manager

        at = setup.model
        model = ChatOpenAI(model=at.name, base_url=at.url, api_key=at.key, temperature=0, timeout=600)
        store = InMemoryStore(index={"dims": DIM, "embed": setup.encode.floats})
        self.manager = create_memory_store_manager(model, namespace=NAMESPACE, store=store)

    def add(self, history: Sequence[Note]) -> None:
        for batch in batches(history):
            messages = [{"role": "user", "content": render(note)} for note in batch]
            self.manager.invoke({"messages": messages}, config=USER)

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.manager.search(query=question, limit=TOP_K, config=USER)
        return [_text(each.value) for each in found]


def _text(value: Any) -> str:
    """The text of a memory, however deep it lies."""
    while not isinstance(value, str):
        inner = value.get("content") if isinstance(value, dict) else getattr(value, "content", None)
        value = json.dumps(value, default=str) if inner is None else inner
    return value


def parsed(call: Call) -> bool:
    """Whether it can use a reply: calls of tools whose arguments are an object."""
    return bool(call.tools) and all(isinstance(json.loads(arguments), dict) for _, arguments in call.tools)


def open(name: str, setup: Setup) -> Manager:  # noqa: A001
    """An empty one."""
    return Manager(setup)
