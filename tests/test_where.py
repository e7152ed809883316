"""Whose notes, and which of them: one value, by itself or by keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from retcon import Filter, Memory, Scope, Where
from retcon.errors import InputError
from retcon.model import FakeChat
from retcon.retrieve import RETRIEVERS

pytestmark = pytest.mark.both_stores

WORDS: dict[str, Any] = {
    "user_id": "ann", "agent_id": "a", "run_id": "r", "session": "s1", "since": "2026-05-01",
    "until": datetime(2026, 5, 9, 10), "metadata": {"topic": "cats"},
}  # fmt: skip
CALLS: dict[str, Callable[..., Any]] = {
    "search": lambda memory, **words: [hit.id for hit in memory.search("cat", **words)],
    "decide": lambda memory, **words: memory.decide("cat", 32, **words),
    "recall": lambda memory, **words: memory.recall("cat", 32, **words),
    "ask": lambda memory, **words: memory.ask("cat?", 32, **words).text,
    "get_all": lambda memory, **words: memory.get_all(**words),
}
WHOLE: dict[str, Callable[..., Any]] = {
    "export": lambda memory, **words: memory.export(Path(memory.store.path).with_name("out.jsonl"), **words),
    "lines": lambda memory, **words: list(memory.lines(**words)),
    "delete_all": lambda memory, **words: memory.delete_all(**words).notes,
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "notes.db", model=FakeChat(lambda _: "a mat")) as opened:
        opened.add("The cat sat on the mat.", id="1", user_id="ann", session="s1", timestamp="2026-05-02")
        opened.add("The cat of Ann is grey.", id="2", user_id="ann", session="s2", timestamp="2026-05-03")
        opened.add("The cat of Bob is black.", id="3", user_id="bob", session="s1", timestamp="2026-05-04")
        yield opened


def test_keywords_make_a_scope_and_a_filter() -> None:
    found = Where.of(**WORDS)
    assert found.scope == Scope("ann", "a", "r")
    assert found.only == Filter("s1", "2026-05-01", "2026-05-09T10:00:00", {"topic": "cats"})
    assert Where.of() == Where.of(user_id=None, since=None) == Where()


@pytest.mark.parametrize(
    "words",
    [{"user_id": " "}, {"run_id": 7}, {"session": "a\0b"}, {"since": "May"}, {"metadata": [1]}, {"until": True}],
)
def test_a_keyword_that_is_off_is_an_input_error(words: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Where.of(**words)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("words", [{"user_id": "ann"}, {"user_id": "ann", "session": "s2"}, {"since": "2026-05-03"}])
def test_a_where_and_its_keywords_mean_the_same(memory: Memory, call: str, words: dict[str, Any]) -> None:
    assert CALLS[call](memory, where=Where.of(**words)) == CALLS[call](memory, **words)


def test_a_where_narrows(memory: Memory) -> None:
    assert [note.id for note in memory.get_all(where=Where.of(user_id="ann"))] == ["1", "2"]
    assert [note.id for note in memory.get_all(where=Where.of(user_id="ann", session="s2"))] == ["2"]


@pytest.mark.parametrize("call", WHOLE)
def test_what_works_on_a_whole_scope_takes_a_where_of_that_scope(memory: Memory, call: str) -> None:
    if call != "delete_all":
        assert WHOLE[call](memory, where=Where.of(user_id="ann")) == WHOLE[call](memory, user_id="ann")
    with pytest.raises(InputError, match="all notes of a scope"):
        WHOLE[call](memory, where=Where.of(user_id="ann", session="s1"))
    assert len(memory.get_all()) == 3
    with pytest.raises(TypeError, match=rf"^Memory.{call}\(\) got an unexpected keyword argument 'session'$"):
        WHOLE[call](memory, session="s1")
    if call == "delete_all":
        assert WHOLE[call](memory, where=Where.of(user_id="ann")) == 2


@pytest.mark.parametrize("call", [*CALLS, *WHOLE])
def test_both_at_once_are_one_clear_error(memory: Memory, call: str) -> None:
    with pytest.raises(InputError, match="give where or user_id, agent_id, not both"):
        (CALLS | WHOLE)[call](memory, where=Where(), user_id="ann", agent_id="a", run_id=None)
    with pytest.raises(InputError, match="where must be a Where, not str"):
        (CALLS | WHOLE)[call](memory, where="ann")


@pytest.mark.parametrize("call", [*CALLS, *WHOLE])
def test_an_unknown_keyword_is_the_type_error_that_python_raises(memory: Memory, call: str) -> None:
    with pytest.raises(TypeError, match=rf"^Memory.{call}\(\) got an unexpected keyword argument 'usr_id'$"):
        (CALLS | WHOLE)[call](memory, usr_id="ann")
    with pytest.raises(TypeError, match=r"^Where.of\(\) got an unexpected keyword argument 'usr_id'$"):
        Where.of(usr_id="ann")  # type: ignore[call-arg]


@pytest.mark.parametrize("retriever", RETRIEVERS)
@pytest.mark.parametrize("words", [{}, {"user_id": "ann"}, {"session": "s1"}, {"filters": {"metadata.n": None}}])
def test_notes_that_the_caller_has_are_left_out_whatever_else_is_asked(
    memory: Memory, retriever: str, words: dict[str, Any]
) -> None:
    where = Where.of(**words)
    with Memory(memory.store.path, retriever=retriever) as opened:
        for query in ("cat", "zebra"):  # found by its words, and as filler
            every = {source.id for source in opened.recall(query, 500, where=where).sources}
            for each in every:
                left = opened.recall(query, 500, where=where.without([each, "nobody's"]))
                assert {source.id for source in left.sources} == every - {each}
        listed = [note.id for note in opened.get_all(where=where)]
        left_listed = [note.id for note in opened.get_all(where=where.without(["1"]))]
        assert left_listed == [each for each in listed if each != "1"]


def test_an_expired_note_stays_left_out_beside_those_the_caller_has(memory: Memory) -> None:
    memory.add("The cat was at the vet.", id="4", user_id="ann", expires_at="2026-05-05")
    found = memory.search("cat", where=Where.of(user_id="ann").without(["1"]))
    assert [hit.id for hit in found] == ["2"]
