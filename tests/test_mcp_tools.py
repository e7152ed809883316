"""What a model gets from the tools: numbers as clients send them, lists, and what a recall says of itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_servers import in_process, play

pytest.importorskip("mcp")

from retcon import Memory
from retcon.errors import InputError
from retcon.grant import bound_to
from retcon.mcp import ToolVerbs, schema
from retcon.mcp.server import NOTHING
from retcon.mcp.tools import TOOLS
from retcon.note import Scope

RECALL = TOOLS["recall_memories"]
WHOLE = st.integers(-(10**17), 10**17)


# -- what clients send -------------------------------------------------------------------------------------------------


@given(WHOLE, st.sampled_from([str, "{}.0".format, " {} ".format, "{:+d}".format]))
def test_a_whole_number_is_taken_as_any_client_sends_it(number: int, write: Any) -> None:
    for sent in (number, write(number)):
        read = RECALL.read({"query": "x", "budget": sent}, bound=True)
        assert isinstance(read, schema.RecallArguments)
        assert type(read.budget) is int
        assert read.budget == number


@given(st.integers(-(2**53), 2**53).map(float))
def test_a_number_with_a_point_and_no_fraction_is_whole(number: float) -> None:
    read = RECALL.read({"query": "x", "budget": number}, bound=True)
    assert isinstance(read, schema.RecallArguments)
    assert read.budget == number


@given(
    st.floats().filter(lambda number: not number.is_integer())
    | st.text().filter(lambda text: not text.strip().lstrip("+-").replace(".0", "").isdigit())
    | st.booleans()
    | st.lists(st.integers())
)
def test_what_is_no_whole_number_is_refused_in_one_line(sent: object) -> None:
    with pytest.raises(InputError, match="budget"):
        RECALL.read({"query": "x", "budget": sent}, bound=True)


def test_a_null_is_an_argument_that_was_left_out() -> None:
    read = TOOLS["list_memories"].read(dict.fromkeys(schema.ListArguments.model_fields), bound=False)
    assert read == schema.ListArguments()


def test_a_yes_that_came_as_text_is_taken() -> None:
    for sent, meant in (("true", True), ("False", False), (True, True)):
        read = TOOLS["ask_memory"].read({"question": "x", "safe": sent}, bound=True)
        assert isinstance(read, schema.AskArguments)
        assert read.safe is meant


# -- lists -------------------------------------------------------------------------------------------------------------


def listed(verbs: ToolVerbs, **given: Any) -> list[str]:
    """The texts of every page, which must agree on how many there are."""
    texts: list[str] = []
    while True:
        page = verbs.page(schema.ListArguments(**given))
        texts += [each.text for each in page.memories]
        if page.next is None:
            assert page.total == len(texts)
            return texts
        given["cursor"] = page.next


@given(st.lists(st.sampled_from(["ann", "bob"]), max_size=12), st.integers(1, 5), st.sampled_from([None, "ann"]))
def test_pages_hold_every_memory_once_newest_first(whose: list[str], limit: int, bound: str | None) -> None:
    with Memory(":memory:") as memory:
        for number, who in enumerate(whose):
            memory.add(f"note {number}", user_id=who)
        verbs = ToolVerbs(memory, bound_to(Scope(bound)))
        wanted = [f"note {number}" for number, who in enumerate(whose) if bound in (None, who)]
        assert listed(verbs, limit=limit) == wanted[::-1]
        assert listed(verbs, limit=limit, user_id="ann") == [
            f"note {number}" for number, who in enumerate(whose) if who == "ann"
        ][::-1]  # fmt: skip


@pytest.mark.parametrize("scope", [Scope(), Scope("ann")])
def test_a_cursor_goes_on_after_corrections_and_additions(scope: Scope) -> None:
    with Memory(":memory:") as memory:
        for number in range(6):
            memory.add(f"note {number}", id=f"n{number}", user_id="ann")
        verbs = ToolVerbs(memory, bound_to(scope))
        first = verbs.page(schema.ListArguments(limit=2))
        assert first.next == "n4"
        memory.supersede("n4", "the last page ended here")
        memory.add("later", user_id="ann")
        second = verbs.page(schema.ListArguments(limit=9, cursor=first.next))
        assert [each.id for each in second.memories] == ["n3", "n2", "n1", "n0"]
        memory.delete("n4")
        with pytest.raises(InputError, match="list anew"):
            verbs.page(schema.ListArguments(cursor=first.next))


def test_a_list_can_be_narrowed_and_long_memories_are_cut() -> None:
    with Memory(":memory:") as memory:
        memory.add("x" * 10_000, session="s1", timestamp="2026-05-09", metadata={"n": 1})
        memory.add("short", session="s2", timestamp="2026-06-09")
        verbs = ToolVerbs(memory)
        (long,) = verbs.page(schema.ListArguments(session="s1")).memories
        assert len(long.text) == schema.BRIEF
        assert long.truncated
        assert listed(verbs, since="2026-06-01") == ["short"]
        assert listed(verbs, until="2026-06-01T00:00", limit=1) == ["x" * schema.BRIEF]


# -- what a recall says of itself --------------------------------------------------------------------------------------


def test_more_is_said_only_where_something_was_left_out() -> None:
    with Memory(":memory:") as memory:
        memory.add("I adopted a cat named Pixel. " + "She is grey and sleeps all day on the warm windowsill. " * 3)
        memory.add("The cat eats at eight.")
        verbs = ToolVerbs(memory)
        for budget in range(4, 200, 7):
            found = verbs.recall(schema.RecallArguments(query="Which cat did I adopt?", budget=budget))
            complete = found.left_out == 0 and all(source.whole for source in found.sources)
            assert found.more is not complete
        assert not found.more
        every = verbs.recall(schema.RecallArguments(query="cat", budget=30, exclude=["retain"]))
        assert set(every.tried) == {"retain", "extract"}
        assert not every.more


@pytest.mark.parametrize("notes", [(), ("I adopted a cat named Pixel.",)])
@pytest.mark.parametrize("query", ["Which cat did I adopt?", "What is the capital of France?"])
def test_a_recall_of_nothing_says_so_in_words_and_has_no_text(query: str, notes: tuple[str, ...]) -> None:
    async def scene(memory: Memory) -> None:
        async with in_process(ToolVerbs(memory), None) as talk:
            said = (await talk.client.call_tool("recall_memories", {"query": query})).content
            found = await talk.give("recall_memories", query=query)
            first = getattr(said[0], "text", "")
            assert first == (found["text"] or NOTHING)
            assert bool(found["text"]) == bool(found["sources"]) == bool(found["tokens"])
            assert found["found"] or not found["text"]
            assert not found["more"]

    with Memory(":memory:") as memory:
        for text in notes:
            memory.add(text)
        play(partial(scene, memory))
