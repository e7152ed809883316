"""The LangChain middleware in a real agent: what is recalled, kept and sent, and what it costs."""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from test_examples import ROOT, run_example

from integrations.langchain_agents import Agent, fake_model, memory_tokens, recalled, shown
from retcon import Memory, Note, Recall
from retcon.errors import InputError, MissingExtraError
from retcon.integrations.extra import needs
from retcon.integrations.langchain import HEADING, BudgetedMemory


@pytest.fixture
def notes() -> Iterator[Memory]:
    with Memory(":memory:") as opened:
        yield opened


def answer_from_memory(messages: list[BaseMessage]) -> AIMessage:
    """A reader that knows nothing but what it was sent."""
    known = "Pixel" in shown(messages)
    return AIMessage("The cat is called Pixel." if known else "I do not know.")


# -- the frame ---------------------------------------------------------------------------------------------------------


def test_package_of_integrations_loads_no_framework() -> None:
    code = "import retcon.integrations, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & {"langchain", "langchain_core", "langgraph"}


def test_missing_framework_fails_with_its_install_line() -> None:
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'retcon-memory\[langchain\]'"),
        needs("langchain", "memory in LangChain"),
    ):
        importlib.import_module("no_such_framework")


def test_the_example_runs_and_recalls(tmp_path: Path) -> None:
    printed = run_example(ROOT / "examples" / "integrations" / "langchain_agent.py", tmp_path, "-W", "error")
    assert "Pixel" in printed


def test_the_python_of_the_page_runs_and_recalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "langchain.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    assert code.count('"openai:gpt-4o-mini"') == 2
    scope: dict[str, Any] = {"model": fake_model()}
    exec(code.replace('"openai:gpt-4o-mini"', "model"), scope)
    assert "Pixel" in recalled(scope["model"].received[-1])
    assert "Pixel" in scope["documents"][0].page_content
    assert "Pixel" in scope["shorter"][0].page_content
    scope["memory"].close()
    scope["store"].memory.close()


# -- one conversation and the next -------------------------------------------------------------------------------------


def test_a_fact_told_in_one_conversation_is_recalled_in_the_next_within_the_budget(notes: Memory) -> None:
    agent = Agent(notes, answer=answer_from_memory, budget=64, user_id="ann")
    agent.say("I adopted a cat. Her name is Pixel, and she is three years old.", "monday")
    assert agent.say("What is my cat called?", "tuesday") == "The cat is called Pixel."
    assert 0 < memory_tokens(agent.model.received[-1]) <= 64


def test_the_same_holds_for_an_agent_that_is_awaited(notes: Memory) -> None:
    agent = Agent(notes, answer=answer_from_memory, budget=64, user_id="ann")

    async def scene() -> str:
        await agent.asay("I adopted a cat. Her name is Pixel.", "monday")
        return await agent.asay("What is my cat called?", "tuesday")

    assert asyncio.run(scene()) == "The cat is called Pixel."
    assert 0 < memory_tokens(agent.model.received[-1]) <= 64
    assert [note.speaker for note in notes.get_all(user_id="ann")] == ["user", "assistant"] * 2


def test_where_memory_has_nothing_on_the_question_nothing_is_added(notes: Memory) -> None:
    agent = Agent(notes, user_id="ann")
    agent.say("I adopted a cat.", "monday")
    agent.say("Explain quantum chromodynamics", "tuesday")
    assert agent.model.received[-1][-1].content == "Explain quantum chromodynamics"


def test_what_is_kept_is_what_was_said_by_both_word_for_word(notes: Memory) -> None:
    agent = Agent(notes, answer=lambda _: AIMessage("Noted: 725."), user_id="ann")
    agent.say("The rent is 725 a month.", "monday")
    said = [(note.text, note.speaker, note.session, note.user_id) for note in notes.get_all()]
    assert said == [
        ("The rent is 725 a month.", "user", "monday", "ann"),
        ("Noted: 725.", "assistant", "monday", "ann"),
    ]


# -- the budget --------------------------------------------------------------------------------------------------------

hostile = st.lists(
    st.sampled_from(["cat", "猫は家に", "x" * 200, "🐈🐈🐈", "a-b_c/d", "1234567890", "\u0000", "é" * 30, "\n"])
)


@settings(max_examples=25)
@given(st.integers(0, 120), st.lists(hostile.map(" ".join), min_size=1, max_size=6))
def test_memory_never_adds_more_than_the_budget_as_the_framework_counts_it(budget: int, texts: list[str]) -> None:
    with Memory(":memory:") as memory:
        memory.add([f"The cat: {text}" for text in texts], user_id="ann")
        agent = Agent(memory, budget=budget, user_id="ann", saver=None)
        agent.say("What about the cat?")
        assert memory_tokens(agent.model.received[-1]) <= budget


@pytest.mark.parametrize("budget", [0, 5, 60, 120, 300])
def test_the_budget_holds_by_a_counter_that_counts_much_more(notes: Memory, budget: int) -> None:
    def count(messages: Any) -> int:
        return sum(len(str(message.text)) for message in messages)

    notes.add([f"The cat ate fish number {number}." for number in range(30)], user_id="ann")
    agent = Agent(notes, budget=budget, user_id="ann", token_counter=count)
    agent.say("What did the cat eat?")
    (sent,) = agent.model.received[-1]
    assert count([sent]) - len("What did the cat eat?") <= budget
    assert ("fish" in str(sent.text)) == (budget >= 120)


def test_the_budget_holds_for_a_question_with_an_image(notes: Memory) -> None:
    notes.add("The cat is called Pixel.", user_id="ann")
    agent = Agent(notes, budget=40, user_id="ann")
    parts = [{"type": "text", "text": "Is this my cat?"}, {"type": "image", "url": "https://example.com/cat.png"}]
    agent.say(parts)
    (sent,) = agent.model.received[-1]
    assert list(sent.content[:2]) == parts
    assert "Pixel" in sent.content[2]["text"]
    assert count_tokens_approximately([sent]) - count_tokens_approximately([HumanMessage(parts)]) <= 40
    assert notes.get_all(user_id="ann")[1].text == "Is this my cat?"


@pytest.mark.parametrize("wrong", [{"budget": -1}, {"window": -5}, {"keep": ["human", "robot"]}, {"user_id": " "}])
def test_wrong_options_are_clear_errors(notes: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BudgetedMemory(notes, **wrong)


# -- 300 turns ---------------------------------------------------------------------------------------------------------


class Counting(Memory):
    """A memory that counts what it is asked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.recalls = self.adds = 0

    def recall(self, *args: Any, **options: Any) -> Recall:
        self.recalls += 1
        return super().recall(*args, **options)

    def add(self, *args: Any, **options: Any) -> list[Note]:
        self.adds += 1
        return super().add(*args, **options)


def turn(number: int) -> str:
    """A turn with a fact of its own; every tenth asks for one of long before."""
    if number % 10 == 9:
        return f"What is the code of locker {number // 2}?"
    return f"The code of locker {number} is {number * 7919 % 10007}."


def test_over_300_turns_memory_stays_in_its_budget_loses_no_fact_and_does_the_same_work_each_turn() -> None:
    with Counting(":memory:") as memory:
        agent = Agent(memory, budget=96, window=600, user_id="ann", saver=InMemorySaver())
        counted, sent, work, starts = 0, [], [], []

        def count(messages: Any) -> int:
            nonlocal counted
            counted += len(messages)
            return int(count_tokens_approximately(messages))

        agent.middleware.count = count
        for number in range(300):
            before = memory.recalls, memory.adds, counted
            agent.say(turn(number), "one")
            work.append((memory.recalls - before[0], memory.adds - before[1]))
            messages = agent.model.received[-1]
            sent.append(counted - before[2])
            starts.append(messages[0].id)
            assert memory_tokens(messages) <= 96
            assert count_tokens_approximately(messages) <= 600 + 96 + 40
            if number % 10 == 9 and (number // 2) % 10 != 9:
                assert f"locker {number // 2} is {number // 2 * 7919 % 10007}." in shown(messages)
        texts = [note.text for note in memory.get_all(user_id="ann")]
        assert texts == [text for number in range(300) for text in (turn(number), "Understood.")]
        assert set(work) <= {(1, 2), (2, 2)}  # a second recall where the framework counts more than we do
        assert max(sent[50:]) <= max(sent[:50]) + 2  # messages looked at: bounded by the window, not by the history
        assert len(set(starts)) <= 40  # the beginning of what is sent moves rarely
        assert len(agent.state("one")) == 600


# -- the prompt cache --------------------------------------------------------------------------------------------------


def rendered(messages: list[BaseMessage]) -> str:
    """A call as a provider reads it; memory is the last thing in a human message."""
    return "".join(
        f"<{message.type}>{message.text}{message.model_dump().get('tool_calls') or ''}" for message in messages
    )


def test_what_was_sent_up_to_the_recalled_text_is_the_beginning_of_the_next_call(notes: Memory) -> None:
    notes.add([f"The cat ate fish number {number}." for number in range(9)], user_id="ann", session="earlier")
    agent = Agent(notes, budget=64, user_id="ann")
    for number in range(12):
        agent.say(f"Tell me about fish number {number} and the cat.")
    calls = [rendered(messages) for messages in agent.model.received]
    assert all(HEADING in call for call in calls)
    for call, after in pairwise(calls):
        assert after.startswith(call.partition(f"\n\n{HEADING}")[0])


@tool
def look_up(name: str) -> str:
    """Looks something up."""
    return f"{name}: nothing new. " * 5


def call_tools(times: int) -> Any:
    """A model that calls the tool so many times, then answers."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        done = sum(isinstance(message, ToolMessage) for message in messages[last:])
        if done < times:
            call = {"name": "look_up", "args": {"name": f"cat {done}"}, "id": f"c{len(messages)}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return AIMessage("Done.")

    return answer


def test_within_a_run_with_tools_each_call_begins_with_the_whole_call_before_and_memory_is_asked_once() -> None:
    with Counting(":memory:") as memory:
        memory.add("The cat is called Pixel.", user_id="ann")
        agent = Agent(memory, tools=[look_up], answer=call_tools(3), user_id="ann")
        agent.say("What about the cat?")
        calls = [rendered(messages) for messages in agent.model.received]
        assert len(calls) == 4
        assert memory.recalls == 1
        assert "Pixel" in calls[0]
        assert all(after.startswith(call) for call, after in pairwise(calls))


# -- what the model sees anyway ----------------------------------------------------------------------------------------


def test_what_the_model_sees_anyway_is_not_recalled_again(notes: Memory) -> None:
    agent = Agent(notes, user_id="ann")
    agent.say("My cat is called Pixel.", "monday")
    agent.say("My dog is called Bo.", "tuesday")
    agent.say("What are my cat and my dog called?", "tuesday")
    text = recalled(agent.model.received[-1])
    assert "Pixel" in text
    assert "Bo" not in text


def test_without_a_checkpointer_the_caller_s_history_is_not_recalled_again_nor_kept_twice(notes: Memory) -> None:
    agent = Agent(notes, user_id="ann", saver=None)
    history: list[dict[str, str]] = []
    for text in ("My cat is called Pixel.", "My dog is called Bo.", "What is my cat called?"):
        history.append({"role": "user", "content": text})
        reply = agent.graph.invoke({"messages": history})["messages"][-1]
        history.append({"role": "assistant", "content": str(reply.text)})
    assert recalled(agent.model.received[-1]) == ""
    said = [note.text for note in notes.get_all(user_id="ann") if note.speaker == "user"]
    assert said == ["My cat is called Pixel.", "My dog is called Bo.", "What is my cat called?"]


def test_a_thread_whose_messages_nobody_keeps_recalls_its_own_past(notes: Memory) -> None:
    agent = Agent(notes, user_id="ann", saver=None)
    agent.say("My cat is called Pixel.", "one")
    agent.say("What is my cat called?", "one")
    assert len(agent.model.received[-1]) == 1
    assert "Pixel" in recalled(agent.model.received[-1])
    assert {note.session for note in notes.get_all()} == {"one"}


def test_turns_that_the_window_leaves_out_are_recalled_and_stay_in_the_state(notes: Memory) -> None:
    agent = Agent(notes, budget=64, window=120, user_id="ann", tools=[look_up], answer=call_tools(1))
    agent.say("My cat is called Pixel.")
    for number in range(8):
        agent.say(f"Let us talk about something else, the weather of day {number} perhaps.")
    agent.say("What is my cat called?")
    sent = agent.model.received[-1]
    assert "Pixel" in recalled(sent)
    assert not [message for message in sent if message.text == "My cat is called Pixel."]
    assert isinstance(sent[0], HumanMessage)
    for at, message in enumerate(sent):  # no result without its call
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in str(sent[at - 1])
    assert agent.state()[0].text == "My cat is called Pixel."


def test_neither_messages_nor_checkpoints_hold_what_was_recalled(notes: Memory) -> None:
    notes.add("The cat is called Pixel.", user_id="ann")
    agent = Agent(notes, user_id="ann")
    agent.say("What is my cat called?")
    assert "Pixel" in recalled(agent.model.received[-1])
    assert "Pixel" not in shown(agent.state())
    assert "Pixel" not in str([saved.checkpoint for saved in agent.saver.list(None)])
    assert "Pixel" not in str(agent.saver.storage) + str(agent.saver.writes) + str(agent.saver.blobs)


# -- whose memory ------------------------------------------------------------------------------------------------------


def test_each_user_of_one_agent_has_a_memory_of_their_own(notes: Memory) -> None:
    agent = Agent(notes, user_id=lambda runtime: runtime.context["user"])
    agent.say("My cat is called Pixel.", "a", {"user": "ann"})
    agent.say("What is my cat called?", "b", {"user": "bob"})
    assert recalled(agent.model.received[-1]) == ""
    agent.say("What is my cat called?", "c", {"user": "ann"})
    assert "Pixel" in recalled(agent.model.received[-1])


@pytest.mark.parametrize("nobody", [None, "", "  ", 7])
def test_a_run_of_nobody_is_refused_before_anything_is_read_or_kept(notes: Memory, nobody: Any) -> None:
    notes.add("The cat is called Pixel.", user_id="ann")
    agent = Agent(notes, user_id=lambda runtime: runtime.context["user"])
    with pytest.raises(InputError, match="user_id must name somebody"):
        agent.say("What is the cat called?", context={"user": nobody})
    assert agent.model.received == []
    assert len(notes.get_all()) == 1


# -- mishaps -----------------------------------------------------------------------------------------------------------


def test_what_the_user_said_is_kept_where_the_model_fails_and_once_where_the_run_is_repeated(
    notes: Memory,
) -> None:
    def fail(_: list[BaseMessage]) -> AIMessage:
        raise RuntimeError("the model is down")

    agent = Agent(notes, answer=fail, user_id="ann")
    with pytest.raises(RuntimeError, match="down"):
        agent.say("My cat is called Pixel.")
    assert [note.text for note in notes.get_all()] == ["My cat is called Pixel."]
    agent.model.answer = answer_from_memory
    agent.graph.invoke(None, {"configurable": {"thread_id": "t1"}})
    agent.say("What is my cat called?")
    said = [note.text for note in notes.get_all() if note.speaker == "user"]
    assert said == ["My cat is called Pixel.", "What is my cat called?"]


def test_a_note_that_the_owner_refuses_is_not_kept_and_the_run_goes_on() -> None:
    def refuse(note: Note) -> Note | None:
        return None if "password" in note.text else replace(note, text=note.text.upper())

    with Memory(":memory:", before_store=refuse) as memory:
        agent = Agent(memory, user_id="ann")
        with pytest.warns(UserWarning, match="not kept"):
            assert agent.say("My password is hunter2.") == "Understood."
        assert [note.text for note in memory.get_all()] == ["UNDERSTOOD."]


@pytest.mark.parametrize(
    "odd", ["", "   ", "\ud800 half", "\u0000", [{"type": "image", "url": "https://example.com/a.png"}]]
)
def test_odd_messages_end_no_run(notes: Memory, odd: Any) -> None:
    agent = Agent(notes, user_id="ann")
    assert agent.say(odd) == "Understood."
    assert agent.say("And now?") == "Understood."


def test_names_of_speakers_and_ids_of_threads_may_be_anything(notes: Memory) -> None:
    agent = Agent(notes, user_id="ann")
    thread = uuid4()
    for name in ("Ann", " ", "a\nb", "x" * 3000, None):
        message = HumanMessage("My cat is called Pixel.", name=name)
        agent.graph.invoke({"messages": [message]}, {"configurable": {"thread_id": thread}})
    assert {note.session for note in notes.get_all()} == {str(thread)}
    speakers = [note.speaker for note in notes.get_all() if note.speaker != "assistant"]
    assert speakers == ["Ann", "user", "user", "x" * 200, "user"]
    assert recalled(agent.model.received[-1]) == ""


def test_a_run_that_waits_for_a_person_goes_on_elsewhere_with_the_same_memory(notes: Memory) -> None:
    @tool
    def confirm(name: str) -> str:
        """Asks a person."""
        return str(interrupt("sure?"))

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if any(isinstance(message, ToolMessage) for message in messages):
            return AIMessage("Done.")
        return AIMessage("", tool_calls=[{"name": "confirm", "args": {"name": "x"}, "id": "c1", "type": "tool_call"}])

    notes.add("The cat is called Pixel.", user_id="ann")
    first = Agent(notes, tools=[confirm], answer=answer, user_id="ann")
    first.say("Rename the cat?")
    other = Agent(notes, tools=[confirm], answer=answer, user_id="ann", saver=first.saver)
    other.graph.invoke(Command(resume="yes"), {"configurable": {"thread_id": "t1"}})
    assert recalled(first.model.received[-1]) == recalled(other.model.received[-1]) != ""


def test_tool_results_are_kept_where_that_is_asked_for(notes: Memory) -> None:
    agent = Agent(notes, tools=[look_up], answer=call_tools(1), user_id="ann", keep=("human", "ai", "tool"))
    agent.say("Look up the cat.")
    assert [note.speaker for note in notes.get_all()] == ["user", "look_up", "assistant"]


def test_beside_the_framework_s_summaries_what_they_replaced_is_recalled_and_no_summary_is_kept(notes: Memory) -> None:
    summaries = SummarizationMiddleware(
        fake_model(), trigger=("messages", 6), keep=("messages", 2), summarizer=lambda _: "They talked."
    )
    agent = Agent(notes, user_id="ann", before=[summaries])
    agent.say("My cat is called Pixel.")
    for number in range(6):
        agent.say(f"The weather of day {number} was fine.")
    agent.say("What is my cat called?")
    assert "They talked." in shown(agent.state())
    assert "Pixel" not in shown(agent.state())
    assert "Pixel" in recalled(agent.model.received[-1])
    assert not [note for note in notes.get_all() if "They talked" in note.text]


def test_a_summary_beside_what_the_user_says_next_is_not_taken_for_theirs(notes: Memory) -> None:
    def fail(_: list[BaseMessage]) -> AIMessage:
        raise RuntimeError("the model is down")

    summaries = SummarizationMiddleware(
        fake_model(), trigger=("messages", 5), keep=("messages", 1), summarizer=lambda _: "They talked."
    )
    agent = Agent(notes, user_id="ann", before=[summaries])
    agent.say("My cat is called Pixel.")
    agent.say("My dog is called Bo.")
    agent.model.answer = fail
    with pytest.raises(RuntimeError, match="down"):
        agent.say("The rent is 725.")
    assert [message.type for message in agent.state()] == ["human", "human"]  # the summary, and what was said
    agent.model.answer = answer_from_memory
    agent.say("And now?")
    assert not [note for note in notes.get_all() if "They talked" in note.text]


def test_it_composes_with_a_plain_agent_of_two_lines(notes: Memory) -> None:
    graph = create_agent(fake_model(), middleware=[BudgetedMemory(notes)])
    graph.invoke({"messages": [("user", "My cat is called Pixel.")]})
    assert [note.text for note in notes.get_all()] == ["My cat is called Pixel.", "Understood."]
