"""Retriever, compressor, summarizer and context edit, each in the part of LangChain that it is made for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import ContextEditingMiddleware, SummarizationMiddleware
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver

from integrations.langchain_agents import Agent, fake_model, shown
from retcon import Memory
from retcon.errors import StoreError
from retcon.integrations.langchain import BudgetedCompressor, MemoryRetriever, ShortenToolUsesEdit, summarizer
from retcon.model import FakeChat


@pytest.fixture
def notes() -> Iterator[Memory]:
    with Memory(":memory:") as opened:
        yield opened


# -- retriever ---------------------------------------------------------------------------------------------------------


class TestMemoryRetriever(RetrieversIntegrationTests):
    """LangChain's own suite for retrievers."""

    @pytest.fixture(autouse=True)
    def opened(self) -> Iterator[None]:
        with Memory(":memory:") as memory:
            memory.add([f"Cat number {number} is called Pixel {number}." for number in range(8)], user_id="ann")
            self.memory = memory
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return MemoryRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory, "user_id": "ann"}

    @property
    def retriever_query_example(self) -> str:
        return "What is the cat called?"


def test_documents_carry_what_is_known_of_the_notes_and_are_those_of_the_scope(notes: Memory) -> None:
    (note,) = notes.add("I adopted a cat.", user_id="ann", session="s1", speaker="Ann", timestamp="2026-05-09",
                        metadata={"topic": "pets"})  # fmt: skip
    notes.add("Bob's cat is old.", user_id="bob")
    notes.add("A cat, filtered out.", user_id="ann", metadata={"topic": "other"})
    retriever = MemoryRetriever(memory=notes, user_id="ann", filters={"topic": "pets"})
    (found,) = retriever.invoke("cat")
    assert (found.id, found.page_content) == (note.id, "I adopted a cat.")
    assert found.metadata["score"] > 0
    known = {"topic": "pets", "session": "s1", "speaker": "Ann", "timestamp": "2026-05-09", "rank": 1}
    assert known.items() <= found.metadata.items()


# -- compressor --------------------------------------------------------------------------------------------------------

LONG = "The weather was fine that day. " * 30
TEXTS = [
    f"{LONG} The cat is called Pixel. {LONG}",
    "Rent is 725 a month.",
    f"{LONG} Pixel the cat is three years old.",
]


def documents(texts: list[str]) -> list[Document]:
    return [Document(text, metadata={"source": number}) for number, text in enumerate(texts)]


def test_documents_are_cut_to_what_matters_in_their_order_and_say_so() -> None:
    found = BudgetedCompressor(budget=40).compress_documents(documents(TEXTS), "How old is the cat Pixel?")
    assert [document.metadata["source"] for document in found] == sorted(doc.metadata["source"] for doc in found)
    assert any("three years old" in document.page_content for document in found)
    for document in found:
        source = TEXTS[document.metadata["source"]]
        assert document.metadata.get("shortened", False) == (document.page_content != source)
        assert all(sentence in source for sentence in document.page_content.split("\n"))


@settings(max_examples=30)
@given(st.integers(0, 80), st.lists(st.sampled_from([*TEXTS, "", "  ", "猫" * 50, "x" * 500, "cat\ud800"]), max_size=6))
def test_documents_never_cost_more_than_the_budget_together(budget: int, texts: list[str]) -> None:
    with Memory(":memory:") as memory:
        found = BudgetedCompressor(budget=budget).compress_documents(documents(texts), "the cat")
        assert sum(memory.count(document.page_content) for document in found) <= budget


def test_everything_that_fits_comes_back_as_it_was() -> None:
    given_documents = documents(["The cat is called Pixel.", "Rent is 725 a month."])
    assert BudgetedCompressor(budget=500).compress_documents(given_documents, "cat") == given_documents


def test_where_no_word_meets_the_question_the_retriever_s_first_documents_stay() -> None:
    texts = [f"Entirely unrelated sentence number {number}." for number in range(5)]
    found = BudgetedCompressor(budget=12).compress_documents(documents(texts), "zebra")
    assert [document.page_content for document in found] == texts[:1]


def test_no_documents_are_none_and_the_awaited_form_is_the_same() -> None:
    compressor = BudgetedCompressor(budget=40)
    assert compressor.compress_documents([], "cat") == []
    awaited = asyncio.run(compressor.acompress_documents(documents(TEXTS), "cat"))
    assert awaited == compressor.compress_documents(documents(TEXTS), "cat")


def test_with_a_model_the_text_is_one_document_that_names_its_sources() -> None:
    model = FakeChat(lambda _: "Pixel the cat is three.")
    found = BudgetedCompressor(budget=20, options={"model": model}).compress_documents(documents(TEXTS), "the cat")
    (one,) = found
    assert one.page_content == "Pixel the cat is three."
    assert {"source": 2} in one.metadata["sources"]


# -- summarizer --------------------------------------------------------------------------------------------------------


def summarizing(notes: Memory, budget: int, answer: Any = None) -> tuple[Any, Any]:
    """An agent with the stock middleware and our summarizer, and its model."""
    model = fake_model(answer)
    stock = SummarizationMiddleware(
        fake_model(), trigger=("messages", 8), keep=("messages", 2), trim_tokens_to_summarize=None,
        summarizer=summarizer(notes, budget=budget, user_id="ann"),
    )  # fmt: skip
    return create_agent(model, middleware=[stock], checkpointer=InMemorySaver()), model


def test_over_300_turns_history_is_replaced_by_texts_within_the_budget_made_from_what_was_said(
    notes: Memory,
) -> None:
    agent, model = summarizing(notes, budget=80)
    config = {"configurable": {"thread_id": "t1"}}
    said = ["My cat is called Pixel."]
    said += [f"Day {number}: the weather was fine, and the cat Pixel slept." for number in range(299)]
    raw = "\n".join([*said, "Understood."])
    summaries = set()
    for text in said:
        agent.invoke({"messages": [("user", text)]}, config)
        first = model.received[-1][0]
        if first.additional_kwargs.get("lc_source") == "summarization":
            words = str(first.text).partition("\n\n")[2]
            summaries.add(words)
            assert count_tokens_approximately([HumanMessage(words)]) <= 80
            assert "summary of the conversation" not in words  # none is made from another
            for part in re.sub(r"(?m)^(\d{4}-\d\d-\d\d )?((user|assistant): )?", "", words).splitlines():
                assert part.strip(". ") in raw
    assert len(summaries) > 5
    kept = [note.text for note in notes.get_all(user_id="ann", session="t1") if note.speaker == "user"]
    assert kept == said[: len(kept)]
    assert len(kept) >= len(said) - 4  # what is not replaced yet is in the state
    everything = "\n".join([*kept, shown(agent.get_state(config).values["messages"])])
    assert all(text in everything for text in said)


def test_where_the_memory_fails_history_stays_as_it_was(notes: Memory) -> None:
    agent, _ = summarizing(notes, budget=80)
    config = {"configurable": {"thread_id": "t1"}}
    for number in range(3):
        agent.invoke({"messages": [("user", f"Fact {number}.")]}, config)
    notes.close()
    agent.invoke({"messages": [("user", "Fact 3.")]}, config)
    with pytest.raises(StoreError, match="closed"):
        agent.invoke({"messages": [("user", "Fact 4.")]}, config)
    assert "Fact 0." in shown(agent.get_state(config).values["messages"])


def test_the_summarizer_works_outside_of_a_run(notes: Memory) -> None:
    messages = [HumanMessage("The cat is called Pixel.", id="m1"), AIMessage("Noted.", id="m2")]
    assert "Pixel" in summarizer(notes, budget=64)(messages)
    assert summarizer(notes, budget=0)(messages) == ""


# -- context edit ------------------------------------------------------------------------------------------------------


@tool
def read_page(number: int) -> str:
    """Reads a page."""
    return f"{LONG} The code of locker {number} is {number * 7919}. {LONG}"


def reading(pages: int) -> Any:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        done = sum(isinstance(message, ToolMessage) for message in messages)
        if done == pages:
            return AIMessage("Done.")
        call = {"name": "read_page", "args": {"number": done}, "id": f"c{done}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])

    return answer


def test_old_tool_results_are_cut_to_what_matters_for_their_question_and_stay_whole_in_the_state(notes: Memory) -> None:
    edit = ShortenToolUsesEdit(trigger=1000, keep=1, budget=40)
    agent = Agent(
        notes, tools=[read_page], answer=reading(4), before=[ContextEditingMiddleware(edits=[edit])], user_id="ann"
    )
    agent.say("What is the code of each locker?")
    sent = [message for message in agent.model.received[-1] if isinstance(message, ToolMessage)]
    assert len(sent) == 4
    for number, message in enumerate(sent[:-1]):
        assert count_tokens_approximately([message]) <= 40
        assert f"locker {number} is {number * 7919}" in str(message.text)
    assert sent[-1].text == read_page.invoke({"number": 3})
    assert [str(message.text) for message in agent.state() if isinstance(message, ToolMessage)] == [
        read_page.invoke({"number": number}) for number in range(4)
    ]


def test_a_shortened_result_reads_the_same_in_every_later_call(notes: Memory) -> None:
    edit = ShortenToolUsesEdit(trigger=1000, keep=1, budget=18)
    agent = Agent(
        notes, tools=[read_page], answer=reading(4), before=[ContextEditingMiddleware(edits=[edit])], user_id="ann"
    )
    agent.say("What is the code of each locker?")
    agent.say("And what is the weather like?")
    texts = [
        {message.tool_call_id: str(message.text) for message in call if isinstance(message, ToolMessage)}
        for call in agent.model.received
    ]
    assert all("locker" in text and "weather" not in text for text in list(texts[-1].values())[:-1])
    for early, late in pairwise(texts[2:]):
        assert {name: text for name, text in early.items() if len(text) < 500}.items() <= late.items()


def test_below_the_trigger_for_the_newest_and_for_excluded_tools_nothing_is_cut() -> None:
    call = {"name": "read_page", "args": {}, "id": "c1", "type": "tool_call"}
    messages = [
        HumanMessage("?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(LONG, tool_call_id="c1", name="read_page"),
    ]
    edits = [ShortenToolUsesEdit(keep=0), ShortenToolUsesEdit(trigger=1, keep=2)]
    for edit in (*edits, ShortenToolUsesEdit(trigger=1, keep=0, exclude_tools=["read_page"])):
        edited = list(messages)
        edit.apply(edited, count_tokens=count_tokens_approximately)
        assert edited == messages


@pytest.mark.parametrize("budget", [0, 1, 5, 30])
def test_a_result_is_never_longer_than_the_budget_allows_words(budget: int) -> None:
    messages: list[Any] = [HumanMessage("locker?"), ToolMessage(f"locker {LONG}", tool_call_id="c1")]
    ShortenToolUsesEdit(trigger=1, keep=0, budget=budget).apply(messages, count_tokens=count_tokens_approximately)
    empty = count_tokens_approximately([ToolMessage("", tool_call_id="c1")])
    assert count_tokens_approximately([messages[1]]) <= max(budget, empty)
