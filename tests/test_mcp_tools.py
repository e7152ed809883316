"""What a model gets from the tools: numbers as clients send them, lists, and what a recall says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_servers import in_process, play

pytest.importorskip("mcp")

from retcon import Memory
from retcon.errors import ConflictError, InputError
from retcon.grant import bound_to
from retcon.mcp import ToolVerbs, schema
from retcon.mcp.server import NOTHING, _footer
from retcon.mcp.tools import TOOLS
from retcon.note import Scope
from retcon.operate import ACTIONS
from retcon.tokens import counter

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


def is_blank(text: str) -> bool:
    """Whether a client means nothing by it."""
    return text.strip().lower() in ("", "none", "null")


@given(
    st.floats().filter(lambda number: not number.is_integer())
    | st.text().filter(lambda text: not text.strip().lstrip("+-").replace(".0", "").isdigit() and not is_blank(text))
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


MANY = tuple(f"On day {day} it rained on the {place}." for day in range(9) for place in ("garden", "roof", "shed"))


def said_by(memory: Memory, tools: str | None = None, **asked: Any) -> tuple[list[str], dict[str, Any]]:
    """The texts of a recall, as clients show them, and its values."""

    async def scene() -> tuple[list[str], dict[str, Any]]:
        async with in_process(ToolVerbs(memory), tools) as talk:
            said = await talk.client.call_tool("recall_memories", asked)
            return [getattr(each, "text", "") for each in said.content], await talk.give("recall_memories", **asked)

    return play(scene)


def test_a_recall_that_finds_nothing_gives_every_memory_where_they_fit() -> None:
    with Memory(":memory:") as memory:
        memory.add("Ann is allergic to peanuts.")
        memory.add("Ann's old flat.", id="flat")
        memory.supersede("flat", "Ann lives in Lisbon.")
        memory.add("Ann had a cold.", expires_at="2001-01-01")
        (text, line), found = said_by(memory, query="Which medication does she take?")
    assert not found["found"]
    assert not found["more"]
    assert text == found["text"]
    assert "allergic" in text
    assert "Lisbon" in text
    assert "flat" not in text
    assert "cold" not in text
    assert line == f"{NOTHING}; these are all memories."


@pytest.mark.parametrize(
    ("notes", "asked"),
    [
        ((), {}),
        (MANY, {}),
        (MANY[:2], {"budget": 5}),
        (MANY[:2], {"session": "s9"}),
        (MANY[:2], {"until": "2001-01-01"}),
    ],
)
def test_a_recall_that_finds_nothing_and_cannot_show_all_says_where_to_look(
    notes: tuple[str, ...], asked: dict[str, Any]
) -> None:
    with Memory(":memory:") as memory:
        memory.add(list(notes))
        query = {"query": "Which medication does she take?"} | asked
        (line,), found = said_by(memory, **query)
        (bare,), _ = said_by(memory, "recall_memories", **query)
    assert (found["text"], found["found"], found["sources"], found["more"]) == ("", False, [], False)
    assert line == f"{NOTHING}. list_memories shows what there is."
    assert bare == f"{NOTHING}.", "a tool that is not offered is not named"


def test_the_line_after_a_recall_costs_forty_tokens_at_most() -> None:
    with Memory(":memory:") as memory:
        memory.add(list(MANY))
        lines = [
            said_by(memory, query="When did it rain on the roof?", budget=budget)[0][1] for budget in (16, 64, 4096)
        ]
    longest = schema.RecallResult(
        text="x", found=True, tokens=32_768, budget=32_768, action="abstract", sources=[], left_out=1,
        tried=list(ACTIONS), more=True,
    )  # fmt: skip
    assert all(counter("bpe")(line) <= 40 for line in (*lines, _footer(longest)))


@pytest.mark.parametrize("sent", ["", " ", "null", "None", None])
def test_a_budget_that_is_a_word_for_nothing_is_the_usual_one(sent: str | None) -> None:
    given = RECALL.read({"query": "x", "budget": sent, "exclude": sent}, bound=True)
    assert isinstance(given, schema.RecallArguments)
    assert (given.budget, given.exclude) == (None, None)


@pytest.mark.parametrize("sent", ["extract", ["extract"], '["extract"]', '"extract"'])
def test_one_action_to_exclude_is_taken_alone_and_in_a_list(sent: object) -> None:
    given = RECALL.read({"query": "x", "exclude": sent}, bound=True)
    assert isinstance(given, schema.RecallArguments)
    assert given.exclude == ["extract"]


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_a_correction_of_a_corrected_memory_corrects_its_newest_version() -> None:
    with Memory(":memory:") as memory:
        verbs = ToolVerbs(memory)
        memory.add("The cat is Pixel.", id="old")

        def correct(text: str, **more: Any) -> schema.AddResult:
            return verbs.add(schema.AddArguments(text=text, supersedes="old", **more))

        first, second = correct("The cat is Dot."), correct("The cat is Bo.", id="bo")
        assert (first.stored, second.stored) == (1, 1)
        assert [note.text for note in memory.history("old")] == [
            "The cat is Pixel.",
            "The cat is Dot.",
            "The cat is Bo.",
        ]
        assert correct("The cat is Bo.") == schema.AddResult(ids=["bo"], stored=0)
        assert correct("The cat is Bo.", id="bo") == schema.AddResult(ids=["bo"], stored=0)
        with pytest.raises(ConflictError):
            correct("The cat is Max.", id="bo")
        assert len(memory.history("old")) == 3


def test_a_memory_can_expire_and_a_turn_can_have_a_name() -> None:
    with Memory(":memory:") as memory:
        verbs = ToolVerbs(memory)
        turn = schema.Message(role="user", content="I like figs.", name="Ann")
        (kept,) = verbs.add(schema.AddArguments(messages=[turn])).ids
        (brief,) = verbs.add(schema.AddArguments(text="Out until noon.", expires_at="2001-01-01T12:00")).ids
        assert memory.get(kept).speaker == "Ann"
        assert memory.get(brief).expires_at == "2001-01-01T12:00:00+00:00"
        assert listed(verbs) == ["I like figs."]
