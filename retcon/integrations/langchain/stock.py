"""For LangChain's own middleware: a summarizer, and an edit that shortens tool results in place of clearing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from retcon import Memory
from retcon.integrations.budget import fit
from retcon.integrations.extra import needs
from retcon.integrations.langchain.messages import (
    CountTokens,
    Owner,
    UserId,
    config,
    is_summary,
    last_said,
    session_of,
    store,
    text_of,
)
from retcon.tokens import check_budget

with needs("langchain", "memory in LangChain"):
    from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
    from langchain_core.messages.utils import count_tokens_approximately
    from langgraph.runtime import get_runtime


def summarizer(
    memory: Memory,
    *,
    budget: int = 1024,
    user_id: UserId = None,
    agent_id: str | None = None,
    token_counter: CountTokens = count_tokens_approximately,
) -> Callable[[list[BaseMessage]], str]:
    """A summarizer for `SummarizationMiddleware(..., summarizer=..., trim_tokens_to_summarize=None)`.

    The messages become notes, and the text is what memory recalls of the conversation for its newest question: made
    from what was said, never from an older summary, and without a model unless the memory has one.
    """
    owner, budget = Owner(user_id, agent_id), check_budget(budget)

    def summarize(messages: list[BaseMessage]) -> str:
        runtime = get_runtime() if config() else None
        words, session = owner.words(runtime), session_of(messages, runtime)
        store(memory, [message for message in messages if not is_summary(message)], session=session, **words)
        at = last_said(messages)
        found = fit(
            partial(memory.recall, "" if at is None else text_of(messages[at]), session=session, **words),
            budget,
            lambda text: token_counter([HumanMessage(text)]),
        )
        return "" if found is None else found.text

    return summarize


@dataclass(frozen=True)
class ShortenToolUsesEdit:
    """An edit for `ContextEditingMiddleware`: old tool results are shortened to what matters for their own question.

    Past `trigger` tokens, all results but the newest `keep` are cut to `budget` tokens each, verbatim. A result is
    shortened for the question that it was fetched for, so it reads the same in every later call.
    """

    trigger: int = 100_000
    keep: int = 3
    budget: int = 64
    exclude_tools: Sequence[str] = ()
    shorten: Callable[[str, str, int], str] = field(default_factory=lambda: lru_cache(1024)(_shorten), repr=False)

    def apply(self, messages: list[Any], *, count_tokens: CountTokens) -> None:
        """Shortens results in the list of messages; the framework made that list for this call."""
        if count_tokens(messages) <= self.trigger:
            return
        results = [at for at, message in enumerate(messages) if isinstance(message, ToolMessage)]
        for at in results[: max(0, len(results) - self.keep)]:
            text, message = text_of(messages[at]), messages[at]
            if message.name in self.exclude_tools or not text or count_tokens([message]) <= self.budget:
                continue
            asked = last_said(messages[:at])
            question = "" if asked is None else text_of(messages[asked])
            messages[at] = self._shortened(message, text, question, count_tokens)

    def _shortened(self, message: ToolMessage, text: str, question: str, count_tokens: CountTokens) -> ToolMessage:
        edit = {"context_editing": {"cleared": True, "strategy": "shorten_tool_uses"}}
        about = {"artifact": None, "response_metadata": {**message.response_metadata, **edit}}
        room = self.budget
        while True:
            shorter = message.model_copy(update={"content": self.shorten(text, question, room), **about})
            used = count_tokens([shorter])
            if used <= self.budget or room == 0:
                return shorter
            room = max(0, min(room - 1, room * self.budget // used))


def _shorten(text: str, question: str, budget: int) -> str:
    """What matters of a text for a question, verbatim, within the budget."""
    with Memory(":memory:", stamp=False) as memory:
        memory.add(text)
        return memory.recall(question, budget).text
