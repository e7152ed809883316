"""`filters` say which notes by operators, in Mem0's words; they mask before ranking and cannot widen a scope."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import fixed_clock
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory, Note, Scope, Where
from retcon.errors import InputError
from retcon.filters import DEEPEST, MOST, MOST_VALUES, OPERATORS
from retcon.retrieve import RETRIEVERS

pytestmark = pytest.mark.both_stores

NOTES: list[dict[str, Any]] = [
    {"id": "1", "text": "cat one", "speaker": "Ann", "session": "s1", "timestamp": "2026-05-01T10:00",
     "metadata": {"topic": "cats", "pages": 3, "tags": ["pet", "red"], "done": True}},
    {"id": "2", "text": "cat two", "speaker": "Bob", "session": "s1", "timestamp": "2026-05-02",
     "metadata": {"topic": "rent", "pages": 10, "place": "Köln"}},
    {"id": "3", "text": "cat three", "speaker": "Ann", "session": "s2", "timestamp": "2026-05-02T23:30",
     "metadata": {"topic": "cats", "pages": "many", "session": "other"}},
    {"id": "4", "text": "cat four", "live": False},
]  # fmt: skip


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path, now=fixed_clock) as opened:
        opened.add(NOTES, user_id="ann")
        opened.add("cat five", id="5", user_id="bob", metadata={"topic": "cats"})
        yield opened


def ids(memory: Memory, filters: Any, **words: Any) -> str:
    """The ids that pass, as get_all lists them; search and the fill of recall must agree."""
    listed = [note.id for note in memory.get_all(filters=filters, **words)]
    assert sorted(hit.id for hit in memory.search("cat", filters=filters, **words)) == sorted(listed)
    filled = memory.recall("nothing alike", 500, filters=filters, action="retain", **words)
    assert sorted(source.id for source in filled.sources) == sorted(listed)
    return "".join(listed)


@pytest.mark.parametrize(("filters", "expected"), [
    ({}, "12345"),
    ({"topic": "cats"}, "135"),
    ({"topic": {"eq": "cats"}}, "135"),
    ({"topic": {"$eq": "cats"}}, "135"),
    ({"metadata.topic": "cats"}, "135"),
    ({"metadata": {"topic": "cats", "pages": {"lt": 5}}}, "1"),
    ({"topic": {"ne": "cats"}}, "24"),
    ({"topic": {"in": ["rent", "dogs"]}}, "2"),
    ({"topic": {"nin": ["rent", "dogs"]}}, "1345"),
    ({"topic": None}, "4"),
    ({"topic": {"ne": None}}, "1235"),
    ({"pages": {"gt": 3}}, "2"),
    ({"pages": {"gte": 3}}, "12"),
    ({"pages": {"gte": 3, "lt": 10}}, "1"),
    ({"pages": {"gte": "a"}}, "3"),
    ({"done": {"gte": 0}}, ""),
    ({"done": True}, "1"),
    ({"done": 1}, ""),
    ({"done": {"ne": 1}}, "12345"),
    ({"done": {"in": [1]}}, ""),
    ({"done": {"nin": [True]}}, "2345"),
    ({"pages": {"in": [3.0]}}, "1"),
    ({"metadata.text": None}, "12345"),
    ({"tags": {"contains": "red"}}, "1"),
    ({"tags": {"eq": ["pet", "red"]}}, "1"),
    ({"topic": {"contains": "at"}}, "135"),
    ({"place": {"icontains": "KÖL"}}, "2"),
    ({"speaker": "Ann"}, "13"),
    ({"speaker": {"in": ["Ann", None]}}, "1345"),
    ({"session": "s1"}, "12"),
    ({"metadata.session": "other"}, "3"),
    ({"timestamp": "2026-05-02"}, "23"),
    ({"timestamp": {"gte": "2026-05-02"}}, "235"),
    ({"timestamp": {"gt": "2026-05-01"}}, "235"),
    ({"timestamp": {"lte": "2026-05-01"}}, "1"),
    ({"timestamp": {"lte": "2026-05-01T09:00"}}, ""),
    ({"timestamp": {"lt": "2026-05-02"}}, "1"),
    ({"timestamp": {"ne": "2026-05-02"}}, "145"),
    ({"timestamp": {"in": ["2026-05-01", "2026-05-09", None]}}, "145"),
    ({"timestamp": {"nin": ["2026-05-01", "2026-05-09"]}}, "234"),
    ({"timestamp": None}, "4"),
    ({"since": "2026-05-02", "until": "2026-05-02"}, "23"),
    ({"created_at": {"gte": "2026-05-09"}}, "12345"),
    ({"created_at": {"gt": "2026-05-09"}}, ""),
    ({"user_id": "bob"}, "5"),
    ({"user_id": {"eq": "bob"}}, "5"),
    ({"AND": [{"user_id": "ann"}, {"topic": "cats"}]}, "13"),
    ({"and": [{"user_id": "ann"}, {"AND": [{"user_id": "ann"}]}]}, "1234"),
    ({"OR": [{"topic": "rent"}, {"session": "s2"}]}, "23"),
    ({"$or": [{"topic": "rent"}, {"session": "s2"}]}, "23"),
    ({"NOT": [{"topic": "cats"}, {"topic": "rent"}]}, "4"),
    ({"not": {"topic": "cats", "session": "s1"}}, "2345"),
    ({"user_id": "ann", "NOT": {"OR": [{"pages": {"gt": 5}}, {"AND": [{"speaker": "Ann"}, {"session": "s1"}]}]}}, "34"),
])  # fmt: skip
def test_filters_mean_what_they_say(memory: Memory, filters: dict[str, Any], expected: str) -> None:
    assert ids(memory, filters) == expected


@pytest.mark.parametrize("moment", ["00:00:00", "23:59:59.9995", "23:59:59.999999"])
@pytest.mark.parametrize("day", ["2026-05-09", "1969-12-31", "2199-12-31"])
def test_every_moment_of_a_day_belongs_to_it_and_no_other_does(day: str, moment: str) -> None:
    after = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    with Memory(":memory:") as memory:
        memory.add("cat", id="1", timestamp=f"{day}T{moment}")
        memory.add("cat", id="2", timestamp=f"{after}T00:00:00")
        for filters in ({"timestamp": day}, {"timestamp": {"lte": day}}, {"timestamp": {"in": [day]}}, {"until": day}):
            assert ids(memory, filters) == "1"
        assert ids(memory, {"timestamp": {"gt": day}}) == "2"
        assert ids(memory, None, until=day) == "1"


def test_metadata_as_a_keyword_tells_true_from_one() -> None:
    with Memory(":memory:") as memory:
        memory.add("cat", id="1", metadata={"n": 1, "deep": [{"n": 1}]})
        memory.add("cat", id="2", metadata={"n": True, "deep": [{"n": True}]})
        for wanted, found in ((1, "1"), (True, "2")):
            assert ids(memory, None, metadata={"n": wanted}) == found
            assert ids(memory, {"deep": {"eq": [{"n": wanted}]}}) == found


def test_filters_and_the_other_words_hold_together(memory: Memory) -> None:
    assert ids(memory, {"topic": "cats"}, user_id="ann") == "13"
    assert ids(memory, {"topic": "cats", "user_id": "ann"}, user_id="ann", session="s2") == "3"
    assert ids(memory, {"topic": "cats"}, metadata={"pages": 3}, until="2026-05-01") == "1"


@pytest.mark.parametrize(("filters", "told"), [
    (["topic"], "filters are a mapping of names to values, not list"),
    ("topic", "filters are a mapping"),
    ({1: 2}, "filters are a mapping"),
    ({"topic": ["a"]}, "filters: say 'topic': {'in': [...]} for one of a list, or {'eq': [...]}"),
    ({"topic": {}}, "filters: 'topic' has no condition"),
    ({"topic": {"like": "a"}}, f"filters: 'topic' has no operator 'like': {' '.join(OPERATORS)}"),
    ({"topic": {"in": "cats"}}, "filters: 'topic' in takes a list, not 'cats'"),
    ({"topic": {"in": [["cats"]]}}, "filters: 'topic' in takes texts, numbers, true, false or null"),
    ({"topic": {"gt": None}}, "filters: 'topic' gt needs a value"),
    ({"topic": {"gt": True}}, "filters: 'topic' gt takes a number or text, not True"),
    ({"topic": {"gt": [1]}}, "filters: 'topic' gt takes a number or text"),
    ({"topic": {"icontains": 3}}, "filters: 'topic' icontains takes text, not 3"),
    ({"topic": {"eq": float("nan")}}, "metadata must be plain JSON"),
    ({"text": "cat one"}, "filters: 'text' of a note is no condition; 'metadata.KEY' names a key of the metadata"),
    ({"id": "1"}, "filters: 'id' of a note is no condition"),
    ({"AND": [{"expires_at": "2026-01-01"}]}, "filters: 'expires_at' of a note is no condition"),
    ({"": 1}, "filters: a name is empty"),
    ({"speaker": 3}, "filters: 'speaker' eq takes text, not 3"),
    ({"timestamp": {"gte": "May"}}, "timestamp 'May' is not ISO 8601"),
    ({"timestamp": {"contains": "2026"}}, "filters: 'timestamp' contains is for texts and lists"),
    ({"metadata": 3}, "filters.metadata is an object"),
    ({"AND": []}, "AND in filters takes a list of conditions"),
    ({"OR": {"a": 1, "b": 2}}, "OR in filters takes a list of conditions"),
    ({"or": "a"}, "OR in filters takes a list of conditions"),
    ({"NOT": [{}]}, "NOT in filters holds a condition that says nothing"),
    ({"OR": [{"a": 1}, {}]}, "OR in filters holds a condition that says nothing"),
    ({"user_id": {"in": ["ann", "bob"]}}, "user_id in filters is one id"),
    ({"user_id": None}, "user_id in filters is one id"),
    ({"user_id": " "}, "filters.user_id is empty"),
    ({"user_id": "ann", "AND": [{"user_id": "bob"}]}, "filters name two values of user_id"),
    ({"OR": [{"user_id": "ann"}, {"topic": "cats"}]}, "user_id in filters stands at the top or under AND"),
    ({"NOT": [{"agent_id": "a"}]}, "agent_id in filters stands at the top or under AND"),
    ({"AND": [{"NOT": {"AND": [{"run_id": "r"}]}}]}, "run_id in filters stands at the top or under AND"),
])  # fmt: skip
def test_filters_that_are_off_are_one_clear_line(memory: Memory, filters: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        memory.search("cat", filters=filters)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


def test_an_id_of_the_call_and_another_in_filters_is_an_error(memory: Memory) -> None:
    with pytest.raises(InputError, match=r"user_id and filters\.user_id differ"):
        memory.get_all(user_id="ann", filters={"user_id": "bob"})


def test_where_takes_filters_and_a_scope_in_them_is_its_scope() -> None:
    found = Where.of(filters={"AND": [{"user_id": "ann"}, {"run_id": "r"}]})
    assert found.scope == Scope("ann", None, "r")
    assert not found.only


def test_what_works_on_a_whole_scope_refuses_filters(memory: Memory) -> None:
    with pytest.raises(InputError, match="all notes of a scope"):
        memory.delete_all(where=Where.of(filters={"user_id": "ann", "topic": "cats"}))
    assert memory.delete_all(where=Where.of(filters={"user_id": "bob"})).notes == 1
    assert len(memory.get_all()) == 4


# -- hostile input -----------------------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": "cats"}
    for _ in range(levels - 1):
        found = {"NOT": [found]}
    return found


def test_depth_conditions_and_values_are_bounded(memory: Memory) -> None:
    Where.of(filters=nested(DEEPEST))
    Where.of(filters={f"k{number}": 1 for number in range(MOST)})
    Where.of(filters={"k": {"in": list(range(MOST_VALUES))}})
    for over, told in (
        (nested(DEEPEST + 1), "levels deep"),
        (nested(900), "levels deep"),
        ({f"k{number}": 1 for number in range(MOST + 1)}, "100 conditions"),
        ({"OR": [{"k": number} for number in range(MOST + 1)]}, "100 conditions"),
        ({"a": {"in": list(range(600))}, "b": {"in": list(range(401))}}, "1,000 values"),
        ({"k": {"eq": json.loads("[" * 100 + "]" * 100)}}, "levels deep"),
        ({"k": 10**5000}, "metadata must be plain JSON"),
    ):
        with pytest.raises(InputError, match=told):
            memory.get_all(filters=over)


def test_the_time_for_a_note_does_not_grow_with_the_values(path: Path) -> None:
    """A thousand values cost a few times one value's time, not a thousand times it."""
    with Memory(path, now=fixed_clock) as memory:
        memory.add([{"text": f"n{i}", "metadata": {"k": i}, "timestamp": "2026-05-01"} for i in range(3000)])

        def spent(size: int) -> float:
            days = [datetime.fromtimestamp(86_400 * day, UTC).date().isoformat() for day in range(size)]
            filters = {"k": {"nin": [-each for each in range(1, size + 1)]}, "timestamp": {"nin": days}}
            started = time.process_time()
            assert len(memory.get_all(filters=filters)) == 3000
            return time.process_time() - started

        half = MOST_VALUES // 2
        assert min(spent(half) for _ in range(3)) < 20 * min(spent(1) for _ in range(3))


# -- against a plain evaluator -----------------------------------------------------------------------------------------

VALUES = st.sampled_from([None, True, False, 0, 1, 2.5, "a", "ab", "B", ["a"], ["a", 1]])
KEYS = st.sampled_from(["k", "l"])
SINGLES = st.sampled_from([None, True, 0, 1, 2.5, "a", "ab", "B"])


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    operator = draw(st.sampled_from(list(OPERATORS)))
    if operator in ("in", "nin"):
        value: Any = draw(st.lists(SINGLES, max_size=3))
    elif operator in ("gt", "gte", "lt", "lte"):
        value = draw(st.sampled_from([0, 1, 2.5, "a", "ab"]))
    elif operator in ("contains", "icontains"):
        value = draw(st.sampled_from(["a", "b"]))
    else:
        value = draw(VALUES)
    return {draw(KEYS): {operator: value}}


TREES = st.recursive(
    conditions(),
    lambda inner: st.builds(
        lambda join, parts: {join: parts},
        st.sampled_from(["AND", "OR", "NOT"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def naive(filters: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """The grammar written down a second time, as plainly as can be."""
    ((name, value),) = filters.items()
    if name in ("AND", "OR", "NOT"):
        results = [naive(part, metadata) for part in value]
        return {"AND": all(results), "OR": any(results), "NOT": not any(results)}[name]
    ((operator, wanted),) = value.items()
    have = metadata.get(name)
    if operator in ("eq", "ne"):
        return (
            json.dumps(have) == json.dumps(wanted) if str(operator) == "eq" else json.dumps(have) != json.dumps(wanted)
        )
    if operator in ("in", "nin"):
        return any(json.dumps(have) == json.dumps(each) for each in wanted) == (str(operator) == "in")
    if operator in ("contains", "icontains"):
        texts = [have] if isinstance(have, str) else have if isinstance(have, list) else []
        if operator == "icontains":
            return any(wanted in text.lower() for text in texts if isinstance(text, str))
        return isinstance(have, (str, list)) and wanted in have
    number = isinstance(have, (int, float)) and not isinstance(have, bool)
    if isinstance(have, str) != isinstance(wanted, str) or not (number or isinstance(have, str)):
        return False
    return bool({"gt": have > wanted, "gte": have >= wanted, "lt": have < wanted, "lte": have <= wanted}[operator])


@given(
    filters=TREES,
    stored=st.lists(st.dictionaries(KEYS, VALUES, max_size=2), min_size=1, max_size=5),
    retriever=st.sampled_from(list(RETRIEVERS)),
)
def test_every_retriever_and_listing_agrees_with_a_plain_evaluator(
    filters: dict[str, Any], stored: list[dict[str, Any]], retriever: str
) -> None:
    with Memory(":memory:", retriever=retriever, embedder="hashing") as memory:
        notes = memory.add([{"text": f"cat {number}", "metadata": each} for number, each in enumerate(stored)])
        expected = {note.id for note in notes if naive(filters, dict(note.metadata))}
        assert {note.id for note in memory.get_all(filters=filters)} == expected
        assert {hit.id for hit in memory.search("cat", filters=filters)} == expected


def test_filters_leave_the_scores_of_what_passes(memory: Memory) -> None:
    free = {hit.id: hit.score for hit in memory.search("cat one two", user_id="ann")}
    kept = {hit.id: hit.score for hit in memory.search("cat one two", user_id="ann", filters={"topic": {"ne": "cats"}})}
    assert kept == {note_id: free[note_id] for note_id in ("2", "4")}


def test_a_note_of_another_type_of_value_is_passed_over_not_an_error(memory: Memory) -> None:
    note: Note = memory.add("cat six", id="6", metadata={"pages": {"deep": [1]}, "tags": 7})[0]
    for operator in OPERATORS:
        wanted = ["x"] if operator in ("in", "nin") else "x"
        for name in ("pages", "tags"):
            found = [each.id for each in memory.get_all(filters={name: {operator: wanted}})]
            assert (note.id in found) == (operator in ("ne", "nin"))
