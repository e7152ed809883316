"""`retcon.tools()`: schemas for tool-calling APIs, and the dispatcher that runs a call."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from integrations.talk import TURNS, Counted, check_flat, check_kept, fact

import retcon
from retcon import Memory
from retcon.errors import InputError, NotFoundError
from retcon.integrations.keeper import HEADING, Keeper, find_tail, shorten
from retcon.integrations.tools import ALL, NOTHING, Tools


@pytest.fixture
def kit(memory: Memory) -> Tools:
    return retcon.tools(memory, user_id="ann", budget=40, names=ALL)


def test_schema_of_each_tool_names_the_arguments_of_its_function_in_every_shape(kit: Tools) -> None:
    for function, chat, plain, block in zip(kit.functions, kit.openai, kit.responses, kit.anthropic, strict=True):
        name, takes = function.__name__, list(inspect.signature(function).parameters)
        schema = chat["function"]["parameters"]
        assert chat["type"] == plain["type"] == "function"
        assert name == chat["function"]["name"] == plain["name"] == block["name"]
        assert schema == plain["parameters"] == block["input_schema"]
        assert list(schema["properties"]) == takes
        assert all(set(each) == {"type", "description"} for each in schema["properties"].values())
        assert chat["function"]["description"] == plain["description"] == block["description"]
        json.dumps([chat, plain, block])


def test_three_tools_are_offered_unless_more_are_named_and_cost_few_tokens(memory: Memory) -> None:
    kit = retcon.tools(memory)
    assert [tool["name"] for tool in kit.anthropic] == ["recall_memories", "add_memory", "search_memories"]
    assert memory.count(json.dumps(kit.anthropic)) < 600
    with pytest.raises(InputError, match="there is no tool 'forget'"):
        retcon.tools(memory, names=["forget"])


def test_what_one_call_stores_another_recalls_within_the_budget(kit: Tools, memory: Memory) -> None:
    for number in range(30):
        kit.call("add_memory", {"text": f"Locker {number} opens with the code {number * 37}, which I keep in mind."})
    said = kit.call("recall_memories", '{"query": "Which code opens locker 7?"}')
    assert "259" in said
    assert memory.count(said) <= 40
    assert memory.count(kit.call("search_memories", {"query": "locker", "top_k": 30})) <= 40
    assert kit.call("recall_memories", {"query": "volcano eruptions"}) == NOTHING


def test_correction_takes_the_place_of_the_older_memory_and_a_delete_removes_both(kit: Tools, memory: Memory) -> None:
    old = kit.call("add_memory", {"text": "My cat is called Pixel."}).split()[-1].rstrip(".")
    kit.call("add_memory", {"text": "My cat is called Bo.", "supersedes": old})
    assert "Bo" in kit.call("recall_memories", {"query": "cat"})
    assert "Pixel" not in kit.call("recall_memories", {"query": "cat"})
    kit.call("delete_memory", {"memory_id": old})
    assert memory.get_all(superseded=True) == []


def test_another_users_memory_does_not_exist(kit: Tools, memory: Memory) -> None:
    (other,) = memory.add("Bob's cat is called Tom.", user_id="bob")
    assert kit.call("recall_memories", {"query": "cat"}) == NOTHING
    for name, arguments in (
        ("delete_memory", {"memory_id": other.id}),
        ("add_memory", {"text": "x", "supersedes": other.id}),
    ):
        with pytest.raises(NotFoundError):
            kit.call(name, arguments)
    assert memory.get(other.id).text == "Bob's cat is called Tom."


def test_answer_comes_in_the_shape_of_the_call(kit: Tools) -> None:
    kit.call("add_memory", {"text": "My cat is called Pixel."})
    arguments = {"query": "cat"}
    chat = SimpleNamespace(
        id="c1", type="function", function=SimpleNamespace(name="recall_memories", arguments=json.dumps(arguments))
    )
    item = {"type": "function_call", "call_id": "c2", "name": "recall_memories", "arguments": json.dumps(arguments)}
    block = SimpleNamespace(type="tool_use", id="c3", name="recall_memories", input=arguments)
    text = kit.call("recall_memories", arguments)
    assert kit.answer(chat) == {"role": "tool", "tool_call_id": "c1", "content": text}
    assert kit.answer(item) == {"type": "function_call_output", "call_id": "c2", "output": text}
    assert kit.answer(block) == {"type": "tool_result", "tool_use_id": "c3", "content": text, "is_error": False}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "the arguments are not JSON"),
        ("[1]", "the arguments are not an object"),
        ('{"words": "x"}', "search_memories takes no 'words'; it takes query, top_k"),
        ("{}", "search_memories needs query"),
        ('{"query": ""}', "query is empty: say what to look for"),
        ('{"query": 3}', "query must be text"),
        ('{"query": "x", "top_k": "many"}', "top_k must be a whole number"),
        ('{"query": "x", "top_k": 1e999}', "top_k must be a whole number"),
    ],
)  # fmt: skip
def test_bad_arguments_are_told_to_the_model_in_one_line(kit: Tools, given: str, said: str) -> None:
    call = {"type": "tool_use", "id": "1", "name": "search_memories", "input": given}
    answer = kit.answer(call)
    assert (answer["content"], answer["is_error"]) == (f"Error: {said}", True)


def test_call_of_a_tool_that_is_not_of_the_kit_is_an_error_and_can_be_told_before(kit: Tools) -> None:
    assert "add_memory" in kit
    assert "get_weather" not in kit
    with pytest.raises(InputError, match="there is no tool 'get_weather'"):
        kit.answer({"id": "1", "function": {"name": "get_weather", "arguments": "{}"}})


@pytest.mark.parametrize("top_k", [3, 3.0, "3", "3.0", None])
def test_whole_number_is_taken_as_any_model_sends_it(kit: Tools, top_k: Any) -> None:
    assert kit.call("search_memories", {"query": "cat", "top_k": top_k}) == NOTHING


def test_300_turns_of_an_agent_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(path: Path) -> None:
    with Counted(path) as memory:
        kit, work = retcon.tools(memory, user_id="ann", budget=64), []
        for number in range(TURNS):
            kit.call("add_memory", {"text": fact(number).told})
            assert memory.count(kit.call("recall_memories", {"query": fact(number // 2).question})) <= 64
            work.append(memory.work())
        check_flat(work)
        check_kept(memory, user_id="ann")
        for number in (0, 41, 150, 299):
            assert fact(number).answer in kit.call("recall_memories", {"query": fact(number).question})


# -- what the integrations share ---------------------------------------------------------------------------------------


@given(
    st.integers(0, 200),
    st.lists(st.text(st.characters(), min_size=1, max_size=60).filter(str.strip), min_size=1, max_size=8),
)
def test_recalled_text_holds_the_budget_by_any_count_heading_included(budget: int, texts: list[str]) -> None:
    with Memory(":memory:") as memory:
        keeper = Keeper(memory, budget, {"user_id": "ann"})
        keeper.store([{"role": "user", "content": text} for text in texts])
        for count in (memory.count, len, lambda text: 3 * len(text.split())):
            assert count(keeper.recall(texts[0], count=count)) <= budget


def test_few_notes_are_shown_whole_where_the_question_shares_no_word_with_them_and_many_are_not(memory: Memory) -> None:
    keeper = Keeper(memory, 128, {"user_id": "ann"})
    keeper.store([{"role": "user", "content": text} for text in ("Pixel sleeps on the sofa.", "Noted.", "Noted.")])
    assert keeper.recall("Volcano?").startswith(HEADING)
    keeper.store([{"role": "user", "content": f"Remark {number} on the garden in spring."} for number in range(60)])
    assert keeper.recall("Volcano?") == ""


def test_turn_that_the_owner_refuses_is_left_out_with_a_warning_and_the_others_are_kept(tmp_path: Path) -> None:
    def refuse(note: retcon.Note) -> retcon.Note:
        if "secret" in note.text:
            raise retcon.RefusedError("it holds a secret")
        return note

    with Memory(tmp_path / "m.db", before_store=refuse) as memory:
        turns = [{"role": "user", "content": text} for text in ("one", "a secret", "two", "secret")]
        with pytest.warns(UserWarning, match="a turn was not kept: it holds a secret"):
            stored = Keeper(memory, 64, {}).store(turns)
        assert [note.text for note in stored] == ["one", "two"]


@example(" " * 400, 3)
@example("a \ud800 b " * 40, 9)
@given(st.text(max_size=400), st.integers(0, 60))
def test_shortened_text_fits(text: str, budget: int) -> None:
    with Memory(":memory:") as memory:
        cut = shorten(text, "Which code opens it?", budget, memory)
        assert memory.count(cut) <= budget
        assert cut == text or memory.count(text) > budget


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), st.integers(0, 40))
def test_tail_begins_at_the_earliest_turn_from_which_everything_fits(items: list[tuple[int, bool]], room: int) -> None:
    first = find_tail(items, room, cost=lambda item: item[0], starts=lambda item: item[1])
    fits = [at for at, item in enumerate(items) if item[1] and sum(cost for cost, _ in items[at:]) <= room]
    assert first == min(fits, default=len(items))
