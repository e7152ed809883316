"""Google's ADK: real runs with a model that only reads, the memory service and the callback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import load_memory, preload_memory
from google.genai import types
from test_examples import run_example

import retcon
from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, check_kept, fact, read
from retcon import Memory
from retcon.errors import NotFoundError
from retcon.integrations.adk import RetconMemoryService, store_turn

BUDGET = 128
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:google.adk")


class Reader(BaseLlm):
    """A model that answers from what each request shows it; every request is kept."""

    model: str = "reader"
    seen: list[str] = []  # noqa: RUF012
    calls: list[types.Part] = []  # noqa: RUF012  (what it does before it answers)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append(shown(llm_request))
        part = self.calls.pop(0) if self.calls else types.Part(text=read(self.seen[-1]))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def shown(request: LlmRequest) -> str:
    parts = [part for content in request.contents for part in content.parts or []]
    return "\n".join(part.text or str(part.function_response) for part in parts)


def remembered(seen: str) -> str:
    """What ADK put into the request from memory, without its own words around it."""
    return seen.split("<PAST_CONVERSATIONS>\n")[1].split("\n</PAST")[0] if "<PAST_CONVERSATIONS>" in seen else ""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


class Chat:
    """An agent with a runner of its own."""

    def __init__(self, memory: Memory, app: str = "app", **options: Any) -> None:
        self.model, self.app = Reader(seen=[], calls=[]), app
        asked: dict[str, Any] = {"tools": [preload_memory], "include_contents": "none"} | options
        agent = LlmAgent(name="helper", model=self.model, after_agent_callback=store_turn, **asked)
        self.service, self.sessions = RetconMemoryService(memory, budget=BUDGET), InMemorySessionService()
        self.runner = Runner(
            agent=agent, app_name=app, session_service=self.sessions, memory_service=self.service,
            auto_create_session=True,
        )  # fmt: skip

    async def say(self, words: str, session: str = "one", user: str = "ann") -> str:
        message = types.Content(role="user", parts=[types.Part(text=words)])
        said = ""
        async for event in self.runner.run_async(user_id=user, session_id=session, new_message=message):
            said = event.content.parts[0].text if event.is_final_response() and event.content else said
        return said


def test_fact_of_one_conversation_is_recalled_in_the_next_within_the_budget(memory: Memory) -> None:
    async def scene() -> None:
        chat = Chat(memory)
        await chat.say(fact(7).told, "one")
        assert await chat.say(fact(7).question, "two") == fact(7).answer
        assert 0 < memory.count(remembered(chat.model.seen[-1])) <= BUDGET
        assert await chat.say(fact(7).question, "three", user="bob") == UNKNOWN
        assert await Chat(memory, app="other").say(fact(7).question) == UNKNOWN

    asyncio.run(scene())


def test_model_may_ask_for_memory_itself(memory: Memory) -> None:
    async def scene() -> None:
        chat = Chat(memory, tools=[load_memory])
        await chat.say(fact(7).told, "one")
        chat.model.calls.append(types.Part.from_function_call(name="load_memory", args={"query": fact(7).question}))
        assert await chat.say(fact(7).question, "two") == fact(7).answer

    asyncio.run(scene())


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    async def scene() -> None:
        chat, work = Chat(memory), []
        for number in range(TURNS):
            await chat.say(fact(number).told)
            work.append(memory.work())
        check_flat(work)
        check_kept(memory, user_id="ann", agent_id="app")
        assert len(memory.get_all(session="one")) == 2 * TURNS
        for number in (0, 41, 150, 299):
            assert await chat.say(fact(number).question, "two") == fact(number).answer
        assert max(memory.count(remembered(seen)) for seen in chat.model.seen) <= BUDGET

    asyncio.run(scene())


def event(number: int) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=fact(number).told)])
    return Event(id=f"e{number}", author="user", content=content, timestamp=1_700_000_000.0 + number)


def test_event_is_stored_once_with_its_own_time_however_often_its_session_is_added(memory: Memory) -> None:
    async def scene() -> None:
        service, sessions = RetconMemoryService(memory), InMemorySessionService()
        session = await sessions.create_session(app_name="app", user_id="ann", session_id="s")
        await service.add_events_to_memory(app_name="app", user_id="ann", events=[event(2)], session_id="s")
        for number in range(3):
            session.events.append(event(number))
            await service.add_session_to_memory(session)
        notes = memory.get_all(user_id="ann")
        assert sorted(note.text for note in notes) == sorted(fact(number).told for number in range(3))
        assert notes[0].timestamp == "2023-11-14T22:13:22+00:00"

    asyncio.run(scene())


def test_entry_can_be_deleted_by_its_user_alone_and_does_not_come_back(memory: Memory) -> None:
    async def scene() -> None:
        service = RetconMemoryService(memory)
        whose: Any = {"app_name": "app", "user_id": "ann"}
        await service.add_events_to_memory(**whose, events=[event(1)])
        (entry,) = (await service.search_memory(**whose, query=fact(1).question)).memories
        with pytest.raises(NotFoundError):
            await service.delete_memory(app_name="app", user_id="bob", memory_id=entry.id)
        await service.delete_memory(**whose, memory_id=entry.id)
        await service.add_events_to_memory(**whose, events=[event(1)])
        assert memory.get_all(superseded=True) == []

    asyncio.run(scene())


def test_entries_without_ids_or_words_are_taken_as_they_are(memory: Memory) -> None:
    async def scene() -> None:
        service = RetconMemoryService(memory)
        entries = [
            MemoryEntry(content=types.Content(parts=[types.Part(text="Pixel is a cat.")]), author="ann"),
            MemoryEntry(content=types.Content(parts=[types.Part(text="hm", thought=True)])),
            MemoryEntry(content=types.Content()),
        ]
        await service.add_memory(app_name="app", user_id="ann", memories=entries, custom_metadata={"topic": "pets"})
        (note,) = memory.get_all()
        assert (note.text, note.speaker, note.metadata) == ("Pixel is a cat.", "ann", {"topic": "pets"})
        assert (await service.search_memory(app_name="app", user_id="ann", query=" ")).memories == []

    asyncio.run(scene())


@pytest.mark.parametrize("budget", [0, 8, 30, 64])
def test_search_holds_any_budget(memory: Memory, budget: int) -> None:
    async def scene() -> None:
        chat = Chat(memory)
        chat.service.budget = budget
        await chat.service.add_events_to_memory(app_name="app", user_id="ann", events=[event(n) for n in range(20)])
        await chat.say(fact(7).question)
        assert memory.count(remembered(chat.model.seen[-1])) <= budget

    asyncio.run(scene())


def test_agent_takes_the_functions_of_retcon_tools(memory: Memory) -> None:
    async def scene() -> None:
        chat = Chat(memory, tools=retcon.tools(memory, user_id="ann").functions)
        chat.model.calls.append(types.Part.from_function_call(name="add_memory", args={"text": fact(3).told}))
        await chat.say("Please remember it.")
        assert fact(3).told in [note.text for note in memory.get_all(user_id="ann")]

    asyncio.run(scene())


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "adk.py", tmp_path)
