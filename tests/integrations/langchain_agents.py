"""Agents of LangChain on its own fake model, which records what it receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.checkpoint.memory import InMemorySaver

from retcon import Memory
from retcon.integrations.langchain import HEADING, BudgetedMemory

Answer = Callable[[list[BaseMessage]], AIMessage]


class FakeModel(GenericFakeChatModel):
    """The framework's fake model: replies by a function of what it received, and keeps that."""

    received: list[list[BaseMessage]] = []  # noqa: RUF012  (a field of a pydantic model, which copies it)
    answer: Any

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self.received.append(list(messages))
        self.messages = iter([self.answer(messages)])
        return super()._generate(messages, *args, **options)

    def bind_tools(self, tools: Any, **options: Any) -> FakeModel:
        return self


def fake_model(answer: Answer | None = None) -> FakeModel:
    """A model that answers by the function, or that it has understood."""
    return FakeModel(messages=iter([]), answer=answer or (lambda _: AIMessage("Understood.")), received=[])


class Agent:
    """An agent with a memory, its model, and what the memory recalled."""

    def __init__(
        self,
        memory: Memory,
        *,
        answer: Answer | None = None,
        tools: Sequence[Any] = (),
        before: Sequence[Any] = (),
        saver: Any = "own",
        **options: Any,
    ) -> None:
        self.model, self.memory = fake_model(answer), memory
        self.middleware = BudgetedMemory(memory, **options)
        self.saver = InMemorySaver() if saver == "own" else saver
        self.graph = create_agent(
            self.model, list(tools), middleware=[*before, self.middleware], checkpointer=self.saver,
            context_schema=dict,
        )  # fmt: skip

    def say(self, text: Any, thread: str = "t1", context: Any = None) -> str:
        """What the agent answers."""
        config = {"configurable": {"thread_id": thread}}
        state = self.graph.invoke({"messages": [HumanMessage(text)]}, config, context=context)
        return str(state["messages"][-1].text)

    async def asay(self, text: str, thread: str = "t1") -> str:
        """The same, awaited."""
        config = {"configurable": {"thread_id": thread}}
        state = await self.graph.ainvoke({"messages": [HumanMessage(text)]}, config)
        return str(state["messages"][-1].text)

    def state(self, thread: str = "t1") -> list[BaseMessage]:
        """The messages of a thread, as the framework keeps them."""
        return list(self.graph.get_state({"configurable": {"thread_id": thread}}).values["messages"])


def shown(messages: Sequence[BaseMessage]) -> str:
    """All that a model read, as one text."""
    return "\n".join(str(message.text) for message in messages)


def recalled(messages: Sequence[BaseMessage]) -> str:
    """What memory added to a call."""
    return "".join(str(message.text).partition(HEADING)[2] for message in messages).strip()


def memory_tokens(messages: Sequence[BaseMessage]) -> int:
    """What memory added to a call, heading and all, as the framework counts it: with it, less without it."""
    without = [
        message.model_copy(update={"content": str(message.text).partition(f"\n\n{HEADING}")[0]})
        if isinstance(message.content, str)
        else message
        for message in messages
    ]
    return int(count_tokens_approximately(list(messages)) - count_tokens_approximately(without))
