"""The OpenAI Agents SDK: real runs with its scripted model, a wrapped session and the filter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, Session, SQLiteSession, function_tool
from agents.testing import ModelCall, ScriptedModel, assistant_message, function_call
from test_examples import run_example

from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, check_kept, fact, read
from retcon import Memory
from retcon.errors import InputError
from retcon.integrations.keeper import HEADING
from retcon.integrations.openai_agents import RetconSession, budget_filter

BUDGET, RECALL = 900, 128


def dump(items: Any) -> str:
    return json.dumps(items, ensure_ascii=False)


class Reader(ScriptedModel):
    """The SDK's scripted model, answering from what each call shows it."""

    def __init__(self) -> None:
        super().__init__([])

    def answer(self, call: ModelCall) -> Any:
        return [assistant_message(read(dump(call.input)))]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


def config(memory: Memory, **options: Any) -> RunConfig:
    sized: dict[str, Any] = {"budget": BUDGET, "recall": RECALL} | options
    return RunConfig(call_model_input_filter=budget_filter(memory, user_id="ann", **sized), tracing_disabled=True)


def say(model: Reader, session: Any, text: str, settings: RunConfig) -> str:
    """One run of an agent."""
    from agents.testing import ModelStep

    model.enqueue(ModelStep.respond(model.answer))
    agent = Agent(name="helper", instructions="Be brief.", model=model)
    return str(asyncio.run(Runner.run(agent, text, session=session, run_config=settings)).final_output)


def test_fact_of_one_conversation_is_recalled_in_the_next_within_the_budget(memory: Memory) -> None:
    model, settings = Reader(), config(memory)
    one = RetconSession(SQLiteSession("one"), memory, user_id="ann")
    two = RetconSession(SQLiteSession("two"), memory, user_id="ann")
    assert isinstance(one, Session)
    say(model, one, fact(7).told, settings)
    assert say(model, two, fact(7).question, settings) == fact(7).answer
    assert model.last_call is not None
    shown = model.last_call.input[0]["content"].removesuffix(fact(7).question).strip()
    assert shown.startswith(HEADING)
    assert fact(7).question not in shown
    assert memory.count(shown) <= RECALL


def test_another_user_learns_nothing(memory: Memory) -> None:
    model = Reader()
    say(model, RetconSession(SQLiteSession("one"), memory, user_id="ann"), fact(7).told, config(memory))
    settings = RunConfig(call_model_input_filter=budget_filter(memory, user_id="bob"), tracing_disabled=True)
    assert say(model, RetconSession(SQLiteSession("b"), memory, user_id="bob"), fact(7).question, settings) == UNKNOWN


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    model, settings, work = Reader(), config(memory), []
    wrapped = SQLiteSession("long")
    session = RetconSession(wrapped, memory, user_id="ann")
    for number in range(TURNS):
        say(model, session, fact(number).told, settings)
        work.append(memory.work())
    assert max(cost(memory, call) for call in model.calls) <= BUDGET
    check_flat(work)
    check_kept(memory, user_id="ann")
    assert len(asyncio.run(wrapped.get_items())) == 2 * TURNS
    asked = [0, 41, 150, 299]
    assert [say(model, session, fact(number).question, settings) for number in asked] == [
        fact(number).answer for number in asked
    ]


def cost(memory: Memory, call: ModelCall) -> int:
    """All that the call sent, by the memory's counter."""
    return memory.count(call.system_instructions or "") + sum(memory.count(dump(item)) for item in call.input)


def test_recalled_text_is_never_stored(memory: Memory) -> None:
    model, settings = Reader(), config(memory)
    session = RetconSession(SQLiteSession("one"), memory, user_id="ann")
    for text in (fact(1).told, fact(1).question, fact(1).question):
        say(model, session, text, settings)
    assert not [note for note in memory.get_all() if HEADING in note.text]
    assert HEADING not in dump(asyncio.run(session.get_items()))


def run_tool(memory: Memory, output: str, **options: Any) -> ScriptedModel:
    """The model after a run in which it called a tool once."""

    @function_tool
    def look_up() -> str:
        """Look it up."""
        return output

    model = ScriptedModel([[function_call("look_up", {}, call_id="c1")], [assistant_message("Done.")]])
    agent = Agent(name="helper", instructions="Be brief.", model=model, tools=[look_up])
    session = RetconSession(SQLiteSession("tool"), memory, user_id="ann")
    asyncio.run(Runner.run(agent, fact(3).question, session=session, run_config=config(memory, **options)))
    return model


def test_memory_stays_the_same_through_all_calls_of_a_turn(memory: Memory) -> None:
    memory.add(fact(3).told, user_id="ann")
    first, second = run_tool(memory, "nothing").calls
    assert fact(3).answer in dump(first.input)
    assert second.input[0] == first.input[0]


def test_long_tool_output_is_cut_to_what_matters_and_kept_whole_in_the_session(memory: Memory) -> None:
    output = "The weather in Oslo was grey and cold all week long. " * 200 + fact(3).told
    last = run_tool(memory, output).calls[-1]
    assert cost(memory, last) <= BUDGET
    assert fact(3).answer in last.input[-1]["output"]


def test_turn_over_the_budget_is_one_clear_error_and_loses_nothing(memory: Memory) -> None:
    model, session = Reader(), RetconSession(SQLiteSession("one"), memory, user_id="ann")
    long = "word " * 2000
    with pytest.raises(InputError, match=r"the last turn has \d+ tokens and the instructions \d+, budget 900"):
        say(model, session, long, config(memory))
    say(Reader(), session, "Hello.", config(memory))
    assert long in [note.text for note in memory.get_all(user_id="ann")]


def test_question_of_a_process_that_ended_before_the_reply_is_stored_by_the_next(
    tmp_path: Path, memory: Memory
) -> None:
    file = tmp_path / "chats.db"
    asyncio.run(SQLiteSession("one", file).add_items([{"role": "user", "content": fact(5).told}]))
    again = RetconSession(SQLiteSession("one", file), memory, user_id="ann")
    for _ in range(2):
        asyncio.run(again.get_items())
    assert [note.text for note in memory.get_all(user_id="ann")] == [fact(5).told]


def test_what_is_popped_or_cleared_is_gone_from_memory_too(memory: Memory) -> None:
    session, model = RetconSession(SQLiteSession("one"), memory, user_id="ann"), Reader()
    memory.add("Of another session.", user_id="ann", session="other")
    say(model, session, fact(1).told, config(memory))
    assert len(memory.get_all(session="one")) == 2
    asyncio.run(session.pop_item())
    assert [note.speaker for note in memory.get_all(session="one")] == ["user"]
    asyncio.run(session.clear_session())
    assert [note.session for note in memory.get_all()] == ["other"]
    assert asyncio.run(session.get_items()) == []


@pytest.mark.parametrize("recent", [3, 4, 5])
def test_window_begins_with_a_user_message(memory: Memory, recent: int) -> None:
    session = RetconSession(SQLiteSession("one"), memory, recent=recent, user_id="ann")
    for number in range(4):
        say(Reader(), session, fact(number).told, config(memory))
    items = asyncio.run(session.get_items())
    assert items[0]["role"] == "user"
    assert len(items) == 2 * (recent // 2)
    assert len(asyncio.run(session.get_items(limit=8))) == 8


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "openai_agents.py", tmp_path)
