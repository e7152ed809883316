"""LlamaIndex: the memory block under a real Memory and agent, with the mock model, and the postprocessor."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.memory import Memory as History
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from test_examples import run_example

from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, check_kept, fact, read
from retcon import Memory
from retcon.integrations.keeper import HEADING
from retcon.integrations.llamaindex import RetconMemoryBlock, RetconPostprocessor

T = TypeVar("T")
LIMIT, BUDGET = 700, 128
ENGINES: list[AsyncEngine] = []  # open ones
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # of its own workflows


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


class Chat:
    """An agent on the framework's mock model, which answers from what it is shown; every call is kept."""

    def __init__(self) -> None:
        self.calls: list[list[ChatMessage]] = []
        self.model = MockFunctionCallingLLM(response_generator=self._reply, is_chat_model=True)
        self.agent = FunctionAgent(tools=[], llm=self.model, streaming=False)

    def _reply(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.calls.append(list(messages))
        return ChatMessage(role="assistant", content=read("\n".join(message.content or "" for message in messages)))

    async def say(self, text: str, history: History) -> str:
        return str(await self.agent.run(text, memory=history))


def history(memory: Memory, session: str, limit: int = LIMIT) -> History:
    block = RetconMemoryBlock(memory=memory, budget=BUDGET, user_id="ann")
    return stock_history([block], session, limit)


def stock_history(blocks: list[Any], session: str = "one", limit: int = LIMIT) -> History:
    ENGINES.append(create_async_engine("sqlite+aiosqlite:///:memory:"))
    return History.from_defaults(session_id=session, token_limit=limit, memory_blocks=blocks, async_engine=ENGINES[-1])


def play(scene: Coroutine[Any, Any, T]) -> T:
    """What the scene gives back; the framework's database connections are closed after it."""

    async def whole() -> T:
        try:
            return await scene
        finally:
            while ENGINES:
                await ENGINES.pop().dispose()

    return asyncio.run(whole())


def tokens(text: str) -> int:
    return len(get_tokenizer()(text))


def shown(messages: Sequence[ChatMessage]) -> str:
    """What the memory block put into the call, without LlamaIndex's template around it."""
    first = messages[0].content or ""
    return (
        first.split("<memory>")[-1].split("</memory>")[0].strip().removeprefix("<memory>") if HEADING in first else ""
    )


def test_fact_of_one_conversation_is_recalled_in_the_next_within_the_budget(memory: Memory) -> None:
    async def scene() -> None:
        chat = Chat()
        await chat.say(fact(7).told, history(memory, "one"))
        assert await chat.say(fact(7).question, history(memory, "two")) == fact(7).answer
        assert tokens(shown(chat.calls[-1])) <= BUDGET

    play(scene())


def test_stock_block_learns_nothing_from_a_short_conversation_which_is_why_ours_reads_the_history(
    memory: Memory,
) -> None:
    class Stock(BaseMemoryBlock[str]):
        put: list[ChatMessage] = []  # noqa: RUF012

        async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
            return ""

        async def _aput(self, messages: list[ChatMessage]) -> None:
            self.put.extend(messages)

    stock = Stock(name="stock")
    play(Chat().say(fact(7).told, stock_history([stock])))
    assert stock.put == []


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    async def scene() -> None:
        chat, talk, work = Chat(), history(memory, "long"), []
        for number in range(TURNS):
            await chat.say(fact(number).told, talk)
            work.append(memory.work())
        check_flat(work)
        check_kept(memory, user_id="ann")
        assert len(memory.get_all(session="long")) == 2 * TURNS
        for number in (0, 41, 150, 299):
            assert await chat.say(fact(number).question, talk) == fact(number).answer
        assert max(tokens(shown(call)) for call in chat.calls) <= BUDGET
        for call in chat.calls:
            frame = tokens("<memory><memory></memory></memory>") + 8  # LlamaIndex does not count its own template
            assert sum(tokens(message.content or "") for message in call) <= LIMIT + frame

    play(scene())


def test_truncation_packs_again_where_the_stock_block_drops_everything(memory: Memory) -> None:
    memory.add([fact(number).told for number in range(30)], user_id="ann")

    async def scene() -> None:
        block = RetconMemoryBlock(memory=memory, budget=BUDGET, user_id="ann")
        asked = [ChatMessage(role="user", content=fact(4).question)]
        content = await block.aget(asked, session_id="one")
        for less in (20, 60, tokens(content) - 50):
            shorter = await block.atruncate(content, less)
            assert shorter is not None
            assert fact(4).answer in shorter
            assert tokens(shorter) <= tokens(content) - less
        assert await block.atruncate(content, tokens(content)) is None
        assert await block.atruncate("Not a text of this block. " * 20, 40)

    play(scene())


def test_memory_over_the_limit_is_shortened_by_the_framework_and_still_answers(memory: Memory) -> None:
    memory.add([fact(number).told for number in range(30)], user_id="ann")

    async def scene() -> None:
        talk = history(memory, "one", limit=120)
        await talk.aput(ChatMessage(role="user", content=fact(4).question))
        seen = await talk.aget()
        assert 0 < tokens(shown(seen)) <= 120 - tokens(fact(4).question)
        assert fact(4).answer in shown(seen)

    play(scene())


def test_every_turn_is_stored_once_by_reads_ejections_saves_and_another_process(memory: Memory) -> None:
    async def scene() -> None:
        talk, said = history(memory, "one", limit=200), []
        for number in range(12):
            said += [fact(number).told, f"Noted, number {number}."]
            await talk.aput_messages([ChatMessage(role="user", content=said[-2])])
            if number % 3:  # now and then nothing is read before it leaves the history
                await talk.aget()
            await talk.aput(ChatMessage(role="assistant", content=said[-1]))
            if number == 6:  # as another process would go on
                talk.memory_blocks = [RetconMemoryBlock(memory=memory, budget=BUDGET, user_id="ann")]
        for _ in range(2):
            await talk.memory_blocks[0].asave(talk)
        assert [note.text for note in memory.get_all(session="one")] == said

    play(scene())


def test_chat_engine_that_hands_over_its_input_twice_stores_it_once(memory: Memory) -> None:
    chat = Chat()
    engine = SimpleChatEngine.from_defaults(llm=chat.model, memory=history(memory, "one"))
    engine.chat(fact(1).told)
    assert str(engine.chat("Fine.")) == "Noted."
    assert [note.text for note in memory.get_all(session="one")] == [fact(1).told, "Noted.", "Fine."]
    play(asyncio.sleep(0))


def test_another_user_learns_nothing(memory: Memory) -> None:
    memory.add(fact(7).told, user_id="bob")
    assert play(Chat().say(fact(7).question, history(memory, "one"))) == UNKNOWN


def nodes(count: int = 12) -> list[NodeWithScore]:
    texts = [f"{fact(number).told} " + "It was grey and cold in Oslo. " * 20 for number in range(count)]
    made = [TextNode(text=text, metadata={"page": number}) for number, text in enumerate(texts)]
    return [NodeWithScore(node=node, score=1 - number / 20) for number, node in enumerate(made)]


@pytest.mark.parametrize("budget", [0, 30, 64, 200, 800])
def test_packed_nodes_cost_no_more_than_the_budget_with_their_metadata(budget: int) -> None:
    given = nodes()
    packed = RetconPostprocessor(budget=budget).postprocess_nodes(given, query_str=fact(9).question)
    assert sum(tokens(node.node.get_content(metadata_mode=MetadataMode.LLM)) for node in packed) <= budget
    assert budget < 64 or fact(9).answer in "".join(node.text for node in packed)
    assert [node.text for node in given] == [node.text for node in nodes()]
    assert [node.score for node in packed] == sorted((node.score for node in packed), reverse=True)


def test_nodes_that_fit_come_back_as_they_are() -> None:
    given = nodes(3)
    assert RetconPostprocessor(budget=10_000).postprocess_nodes(given, query_str="Anything?") == given


def test_nodes_without_a_query_still_fit() -> None:
    packed = RetconPostprocessor(budget=100).postprocess_nodes(nodes())
    assert 0 < sum(tokens(node.node.get_content(metadata_mode=MetadataMode.LLM)) for node in packed) <= 100


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "llamaindex.py", tmp_path)
