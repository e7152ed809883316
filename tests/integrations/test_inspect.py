"""Inspect: the compaction strategy in its own handler and in a real evaluation, with its mock model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import inspect_ai
import pytest
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ModelOutput,
    compaction,
    get_model,
    modelapi,
)
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.scorer import includes
from inspect_ai.tool import ToolCall, tool
from test_examples import run_example

from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, fact, read
from retcon import Memory
from retcon.integrations.inspect import END, CompactionRetcon
from retcon.integrations.keeper import HEADING
from retcon.tokens import counter

BUDGET, KEEP, THRESHOLD = 150, 250, 700
ESTIMATE = counter("estimate")
pytestmark = pytest.mark.filterwarnings(  # streams that it leaves open, and its retries with the newest tenacity
    "ignore::ResourceWarning", "ignore:The 'initial' parameter is deprecated:DeprecationWarning"
)


class Reader(MockLLM):
    """The framework's mock model, with tokens counted on this machine: its default downloads a tokenizer."""

    async def count_text_tokens(self, text: str) -> int:
        return ESTIMATE(text)


@modelapi(name="reader")
def reader() -> type[Reader]:
    return Reader


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


def text_of(messages: list[ChatMessage]) -> str:
    return "\n".join(message.text for message in messages)


def reply(messages: list[ChatMessage], *_: Any) -> ModelOutput:
    return ModelOutput.from_content("reader", read(text_of(messages)))


class Talk:
    """A conversation through Inspect's own compaction handler."""

    def __init__(self, strategy: CompactionRetcon) -> None:
        self.model = get_model("reader/model", custom_outputs=reply, memoize=False)
        self.history: list[ChatMessage] = [
            ChatMessageSystem(content="Be brief."),
            ChatMessageUser(content="Let us talk."),
        ]
        self.handler = compaction(strategy, prefix=list(self.history), model=self.model)
        self.inputs: list[list[ChatMessage]] = []

    async def say(self, words: str) -> str:
        self.history.append(ChatMessageUser(content=words))
        shown, extra = await self.handler.compact_input(self.history)
        assert extra is None
        self.inputs.append(shown)
        output = await self.model.generate(shown)
        self.history.append(output.message)
        return str(output.completion)


def recalled(messages: list[ChatMessage]) -> list[str]:
    return [message.text for message in messages if (message.metadata or {}).get("retcon")]


def strategy(memory: Memory, **options: Any) -> CompactionRetcon:
    sized: dict[str, Any] = {"budget": BUDGET, "keep": KEEP, "threshold": THRESHOLD} | options
    return CompactionRetcon(memory, **sized)


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    async def scene() -> None:
        talk, work = Talk(strategy(memory)), []
        for number in range(TURNS):
            await talk.say(fact(number).told)
            work.append(memory.work())
        check_flat(work)
        everything = "\n".join(note.text for note in memory.get_all()) + text_of(talk.inputs[-1])
        assert all(fact(number).told in everything for number in range(TURNS))
        assert HEADING not in "\n".join(note.text for note in memory.get_all())
        for shown in talk.inputs:
            visible = {message.text for message in shown if not (message.metadata or {}).get("retcon")} - {"Noted."}
            assert not [text for text in visible if "code" in text and text in "".join(recalled(shown))]
            assert await talk.model.count_tokens(shown) <= THRESHOLD
            assert [await talk.model.count_tokens(text) <= BUDGET for text in recalled(shown)] in ([], [True])
            assert text_of(shown).startswith("Be brief.\nLet us talk.")
        assert len(talk.history) == 2 + 2 * TURNS

    asyncio.run(scene())


def test_fact_that_left_the_input_is_recalled_when_it_is_asked_for(memory: Memory) -> None:
    async def scene() -> None:
        talk = Talk(strategy(memory))
        for number in range(40):
            await talk.say(fact(number).told)
        for number in (0, 11, 39):
            talk.history.append(ChatMessageUser(content=fact(number).question))
            shown, _ = await talk.handler.compact_input(talk.history, force=True)
            assert (await talk.model.generate(shown)).completion == fact(number).answer

    asyncio.run(scene())


def test_fact_of_one_conversation_is_recalled_in_the_next_only_across_samples(memory: Memory) -> None:
    async def scene(across: bool) -> str:
        told, asking = (Talk(strategy(memory, across=across, user_id=str(across))) for _ in range(2))
        await told.say(fact(7).told)
        await told.handler.compact_input(told.history, force=True)
        asking.history.append(ChatMessageUser(content=fact(7).question))
        shown, _ = await asking.handler.compact_input(asking.history, force=True)
        return str((await asking.model.generate(shown)).completion)

    assert asyncio.run(scene(across=True)) == fact(7).answer
    assert asyncio.run(scene(across=False)) == UNKNOWN


def test_what_an_earlier_compaction_showed_is_neither_stored_nor_shown_again(memory: Memory) -> None:
    async def scene() -> None:
        plan, model = strategy(memory), get_model("reader/model", memoize=False)
        shown = f"{HEADING}\nOld notes.\n{END}"
        messages: list[ChatMessage] = [
            ChatMessageUser(content=f"The task.\n{shown}"),  # as providers that join user messages send it
            *(ChatMessageAssistant(content=fact(number).told) for number in range(12)),
            ChatMessageUser(content=shown, metadata={"retcon": True}),
            ChatMessageUser(content="Go on."),
        ]
        made, _ = await plan.compact(model, messages, [])
        assert "Old notes." not in text_of(made)
        assert made[0].text.strip() == "The task."
        assert all(message.text.strip() for message in made)
        assert not [note for note in memory.get_all() if "Old notes." in note.text]

    asyncio.run(scene())


def test_tool_output_stays_with_its_call_and_one_that_is_too_long_is_cut(memory: Memory) -> None:
    async def scene() -> None:
        call = ToolCall(id="c", function="look", arguments={})
        output = "It was grey and cold in Oslo. " * 200 + fact(3).told
        messages: list[ChatMessage] = [
            ChatMessageUser(content=fact(3).question),
            ChatMessageAssistant(content="I look it up: the code of the locker.", tool_calls=[call]),
            ChatMessageTool(content=output, tool_call_id="c"),
        ]
        model = get_model("reader/model", memoize=False)
        made, _ = await strategy(memory).compact(model, messages, [])
        assert [message.role for message in made[-2:]] == ["assistant", "tool"]
        assert fact(3).answer in made[-1].text
        assert await model.count_tokens(made[-1:]) <= KEEP
        messages = [*made, ChatMessageUser(content="Go on."), ChatMessageAssistant(content="word " * KEEP)]
        await strategy(memory).compact(model, messages, [])
        texts = [note.text for note in memory.get_all()]
        assert output in texts
        assert made[-1].text not in texts

    asyncio.run(scene())


@tool
def look_up() -> Any:
    async def execute(number: int) -> str:
        """Look up a fact.

        Args:
            number: Which one.
        """
        return fact(number).told

    return execute


def test_agent_of_an_evaluation_answers_from_what_left_its_context(memory: Memory, tmp_path: Path) -> None:
    steps = 30
    sizes: list[int] = []

    def act(messages: list[ChatMessage], *_: Any) -> ModelOutput:
        sizes.append(sum(ESTIMATE(message.text) for message in messages))
        if len(sizes) <= steps:
            return ModelOutput.for_tool_call("reader", "look_up", {"number": len(sizes)})
        return ModelOutput.for_tool_call("reader", "submit", {"answer": read(text_of(messages) + fact(2).question)})

    sample = Sample(input=f"Look up {steps} facts. {fact(2).question}", target=fact(2).answer)
    plan = strategy(memory, threshold=1000)  # the tools and prompts of the agent take about 370
    agent = react(tools=[look_up()], compaction=plan)
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=[sample], solver=agent, scorer=includes(), message_limit=99),
        model=get_model("reader/model", custom_outputs=act, memoize=False), display="none",
        log_dir=str(tmp_path / "logs"),
    )  # fmt: skip
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert max(sizes) <= 1000
    assert [event for event in log.samples[0].events if event.event == "compaction"]


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "inspect_compaction.py", tmp_path)
