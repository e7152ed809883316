"""BudgetedMemory: middleware that owns when an agent recalls and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from retcon import Memory, Recall, Where
from retcon.errors import InputError
from retcon.integrations.budget import fit
from retcon.integrations.extra import needs
from retcon.integrations.langchain.messages import (
    SPEAKERS,
    CountTokens,
    Owner,
    UserId,
    digest,
    index_of,
    is_said,
    last_said,
    newest,
    note_id,
    session_of,
    store,
    text_of,
    thread_of,
    with_memory,
)
from retcon.tokens import check_budget

with needs("langchain", "memory in LangChain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, PrivateStateAttr
    from langchain_core.messages import BaseMessage
    from langchain_core.messages.utils import count_tokens_approximately
    from langgraph.channels.untracked_value import UntrackedValue

SEEN = 1000  # messages, the newest: so many values may a filter name


class MemoryState(AgentState):
    """What the middleware keeps beside the messages: no words of any note are in a checkpoint."""

    retcon_first: Annotated[str | None, PrivateStateAttr]  # id of the first message that is sent
    retcon_text: Annotated[str | None, UntrackedValue, PrivateStateAttr]  # recalled for this run


class BudgetedMemory(AgentMiddleware):
    """Recalls into the model call within a budget, keeps what was said. No model is asked, unless the memory has one.

    Once a run: what memory has for the newest question, less what the model sees anyway, goes behind the text of that
    question. Everything before it stays byte for byte what was sent the turn before: a provider's prompt cache holds.
    The agent's own messages are left as they are.
    """

    state_schema = MemoryState

    def __init__(
        self,
        memory: Memory,
        *,
        budget: int = 256,
        window: int | None = None,
        user_id: UserId = None,
        agent_id: str | None = None,
        keep: Sequence[str] = ("human", "ai"),
        safe: bool = False,
        token_counter: CountTokens = count_tokens_approximately,
        seen: Callable[[Recall], None] | None = None,
    ) -> None:
        """`budget` is what memory may add to a model call, as `token_counter` counts it, heading included.

        `window` bounds the conversation that is sent: past so many tokens, the oldest turns are left out of the call,
        down to half of it, and are recalled like anything else; the turn in progress is always sent whole.
        `user_id` is whose memory: an id, or a function from the agent's runtime to one. `keep` says which messages
        become notes: human, ai, tool. `safe` is that of `Memory.recall`. `seen` is called with each recall.
        """
        super().__init__()
        self.memory, self.budget, self.safe, self.seen = memory, check_budget(budget), safe, seen
        self.window = None if window is None else check_budget(window)
        self.owner, self.count = Owner(user_id, agent_id), token_counter
        if unknown := set(keep) - set(SPEAKERS):
            raise InputError(f"keep names messages of type {', '.join(SPEAKERS)}, not {', '.join(sorted(unknown))}")
        self.keep = frozenset(keep)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Recalls for the newest question, then keeps it: it is in memory whatever becomes of the run."""
        messages = state["messages"]
        first = self._first(messages, state.get("retcon_first"))
        text = self._recall(messages[first:], runtime)
        self._keep(newest(messages), messages, runtime)
        return {"retcon_first": messages[first].id if messages else None, "retcon_text": text}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """The same, on a thread."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        """What the model answers to the messages of the window with what was recalled."""
        return handler(self._place(request))

    async def awrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[Any]]) -> Any:
        """The same, awaited."""
        return await handler(await asyncio.to_thread(self._place, request))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """Keeps what was said after the newest question."""
        messages = state["messages"]
        at = last_said(messages)
        self._keep(messages if at is None else messages[at + 1 :], messages, runtime)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """The same, on a thread."""
        await asyncio.to_thread(self.after_agent, state, runtime)

    def _place(self, request: ModelRequest) -> ModelRequest:
        """The request with the messages of the window and, behind the newest question, what was recalled for it."""
        messages = list(request.messages[index_of(request.messages, request.state.get("retcon_first")) :])
        text = request.state.get("retcon_text")
        if text is None:  # a run that another process began
            text = self._recall(messages, request.runtime)
        at = last_said(messages)
        if text and at is not None:
            messages[at] = with_memory(messages[at], text)
        return request.override(messages=messages)

    def _recall(self, visible: Sequence[BaseMessage], runtime: Any) -> str:
        """What memory has for the newest of these messages, without what they say themselves; it fits the budget."""
        at = last_said(visible)
        if at is None or not (question := text_of(visible[at])):
            return ""
        where, alone = self._unseen(visible, runtime), self.count([visible[at]])
        found = fit(
            lambda budget: self.memory.recall(question, budget, where=where, fill=False, safe=self.safe),
            self.budget,
            lambda text: self.count([with_memory(visible[at], text)]) - alone,
        )
        if found is not None and self.seen is not None:
            self.seen(found)
        return "" if found is None else found.text

    def _unseen(self, visible: Sequence[BaseMessage], runtime: Any) -> Where:
        """The user's notes but those of messages that the model sees anyway.

        With a checkpointer these have ids that stay, and so have their notes; else they are known by their words.
        """
        words = self.owner.words(runtime)
        if thread := thread_of(runtime):
            return Where.of(**words).without(note_id(message, session=thread, **words) for message in visible)
        digests = [digest(text) for message in visible[-SEEN:] if (text := text_of(message))]
        return Where.of(**words, filters={"metadata.said": {"nin": digests}})

    def _keep(self, messages: Sequence[BaseMessage], every: Sequence[BaseMessage], runtime: Any) -> None:
        kept = [message for message in messages if message.type in self.keep]
        store(self.memory, kept, session=session_of(every, runtime), **self.owner.words(runtime))

    def _first(self, messages: Sequence[BaseMessage], known: str | None) -> int:
        """Where the messages that are sent begin: moved, if the window is full, to leave it half empty.

        It moves rarely, so that the beginning of what is sent mostly stays the same.
        """
        if self.window is None:
            return 0
        first = index_of(messages, known)
        turns = [first, *(at for at in range(first + 1, len(messages)) if is_said(messages[at]))]
        sizes = [
            sum(self.count([message]) for message in messages[start:end])
            for start, end in zip(turns, [*turns[1:], len(messages)], strict=True)
        ]
        left = total = 0
        for turn, size in enumerate(sizes):
            total += size
            if total > self.window:
                while left < turn and total > self.window // 2:
                    total -= sizes[left]
                    left += 1
        return turns[left]
