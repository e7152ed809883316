"""LangChain's SummarizationMiddleware: a running summary in place of older messages, the newest ones kept.

The chat grows batch by batch, and before each turn of the agent the middleware may summarise, as it does in an agent.
It knows no question: the summary and the kept messages are its answer to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.rivals.base import Setup, batches
from retcon.note import Note
from retcon.pack import render

TRIGGER, KEEP = ("tokens", 4000), ("messages", 20)  # as its page shows it


class Summary:
    """The messages of an agent's state, with the middleware in between."""

    def __init__(self, setup: Setup) -> None:
        from langchain.agents.middleware import SummarizationMiddleware
        from langchain_openai import ChatOpenAI

        at = setup.model
        model = ChatOpenAI(model=at.name, base_url=at.url, api_key=at.key, temperature=0, timeout=600)
        self.middleware = SummarizationMiddleware(model=model, trigger=TRIGGER, keep=KEEP)
        self.messages: list[Any] = []

    def add(self, history: Sequence[Note]) -> None:
        from langchain_core.messages import HumanMessage
        from langgraph.runtime import Runtime

        for batch in batches(history):
            self.messages += [HumanMessage(render(note)) for note in batch]
            changed = self.middleware.before_model({"messages": self.messages}, Runtime())
            if changed is not None:
                self.messages = changed["messages"][1:]  # the first says that all before it go

    def context(self, question: str, budget: int) -> Sequence[str]:
        return [str(message.content) for message in self.messages]


def open(name: str, setup: Setup) -> Summary:  # noqa: A001
    """An empty one."""
    return Summary(setup)
