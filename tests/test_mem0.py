"""`retcon.mem0.Memory` takes Mem0's words and gives Mem0's shapes, on raw notes that stay."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import counted_ids, fixed_clock

from retcon.errors import InputError, NotFoundError
from retcon.mem0 import Memory

pytestmark = pytest.mark.both_stores

EVERYBODY = {"user_id": "*"}  # Mem0's own word for it
MESSAGES = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "I adopted a cat named Pixel.", "name": "ann"},
    {"role": "assistant", "content": "Lovely!"},
]


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path, now=fixed_clock, new_id=counted_ids()) as opened:
        yield opened


@pytest.fixture
def cat(memory: Memory) -> str:
    return str(memory.add("I adopted a cat.", user_id="ann", metadata={"topic": "pets"})["results"][0]["id"])


def test_add_stores_messages_as_they_are_and_gives_mem0s_answer(memory: Memory) -> None:
    assert memory.add(MESSAGES, user_id="ann", infer=False) == {
        "results": [
            {"id": "n0", "memory": "I adopted a cat named Pixel.", "event": "ADD", "actor_id": "ann", "role": None},
            {"id": "n1", "memory": "Lovely!", "event": "ADD", "actor_id": None, "role": "assistant"},
        ]
    }
    assert [note.text for note in memory.memory.get_all(user_id="ann")] == ["I adopted a cat named Pixel.", "Lovely!"]


def test_infer_says_what_happens_instead_and_loses_nothing(memory: Memory) -> None:
    with pytest.warns(UserWarning, match="stored as they are, no facts are extracted; recall shortens them"):
        memory.add(MESSAGES, user_id="ann", infer=True)
    assert len(memory.memory.get_all()) == 2


def test_a_memory_looks_like_mem0s(memory: Memory, cat: str) -> None:
    expected = {
        "id": cat, "memory": "I adopted a cat.", "hash": hashlib.md5(b"I adopted a cat.").hexdigest(),
        "metadata": {"topic": "pets"}, "created_at": "2026-05-09T12:00:00+00:00",
        "updated_at": "2026-05-09T12:00:00+00:00", "user_id": "ann", "role": "user",
    }  # fmt: skip
    assert memory.get(cat) == expected
    assert memory.get_all(user_id="ann") == {"results": [expected]}
    (found,) = memory.search("cat", user_id="ann", limit=5)["results"]
    assert found.pop("score") > 0
    assert found == expected


def test_an_update_keeps_the_id_and_the_history(memory: Memory, cat: str) -> None:
    assert memory.update(cat, data="I adopted a dog.") == {"message": "Memory updated successfully!"}
    assert memory.update(cat, text="I adopted a bird.", metadata={"sure": True}) == {
        "message": "Memory updated successfully!"
    }
    for found in (
        memory.get(cat),
        *memory.get_all(user_id="ann")["results"],
        *memory.search("adopted", user_id="ann")["results"],
    ):
        assert found is not None
        assert (found["id"], found["memory"]) == (cat, "I adopted a bird.")
        assert found["metadata"] == {"topic": "pets", "sure": True}
    events = memory.history(cat)
    assert [(each["event"], each["old_memory"], each["new_memory"]) for each in events] == [
        ("ADD", None, "I adopted a cat."), ("UPDATE", "I adopted a cat.", "I adopted a dog."),
        ("UPDATE", "I adopted a dog.", "I adopted a bird."),
    ]  # fmt: skip
    assert {each["memory_id"] for each in events} == {cat}


def test_an_update_of_metadata_alone_keeps_the_words(memory: Memory, cat: str) -> None:
    memory.update(cat, metadata={"topic": "animals"})
    found = memory.get(cat)
    assert found is not None
    assert (found["memory"], found["metadata"]) == ("I adopted a cat.", {"topic": "animals"})


def test_a_delete_takes_every_version(memory: Memory, cat: str) -> None:
    memory.update(cat, "I adopted a dog.")
    assert memory.delete(cat) == {"message": "Memory deleted successfully!"}
    assert memory.get(cat) is None
    assert memory.history(cat) == []
    assert memory.search("adopted", user_id="ann") == {"results": []}
    with pytest.raises(NotFoundError):
        memory.delete(cat)
    with pytest.raises(NotFoundError):
        memory.update(cat, "x")


def test_delete_all_wants_an_id_and_reset_wants_none(memory: Memory, cat: str) -> None:
    memory.add("Bob's note", user_id="bob")
    with pytest.raises(InputError, match=r"name a user_id.*reset\(\) deletes everything"):
        memory.delete_all()
    assert memory.delete_all(user_id="ann") == {"message": "Memories deleted successfully!"}
    assert [each["memory"] for each in memory.get_all(filters=EVERYBODY)["results"]] == ["Bob's note"]
    memory.reset()
    assert memory.get_all(filters=EVERYBODY) == {"results": []}


@pytest.mark.parametrize(("filters", "expected"), [
    ({"user_id": "ann"}, {"one", "two"}),
    ({"user_id": 7}, {"three"}),
    ({"AND": [{"user_id": "ann"}, {"pages": {"gte": 2}}]}, {"two"}),
    ({"user_id": "*", "topic": "*"}, {"one", "three"}),
    ({"user_id": "*", "NOT": [{"topic": "*"}]}, {"two"}),
    ({"user_id": "*", "OR": [{"topic": {"icontains": "CAT"}}, {"pages": {"in": [2]}}]}, {"one", "two"}),
    ({"user_id": "*", "actor_id": "ann"}, {"two"}),
    ({"user_id": "*", "role": "user"}, {"one", "three"}),
    ({"user_id": "*", "updated_at": {"gt": "2026-05-09"}}, set()),
    *(({join: [EVERYBODY, {"updated_at": {"gt": "2026-05-09"}}]}, set()) for join in ("AND", "and", "$and")),
    *(({"user_id": "*", join: [{"actor_id": "ann"}]}, {"two"}) for join in ("or", "$or")),
    ({"user_id": "*", "not": {"actor_id": "ann"}}, {"one", "three"}),
])  # fmt: skip
def test_filters_are_mem0s(memory: Memory, filters: dict[str, Any], expected: set[str]) -> None:
    memory.add("cat one", user_id="ann", metadata={"topic": "cats", "pages": 1})
    memory.add({"role": "user", "name": "ann", "content": "cat two"}, user_id="ann", metadata={"pages": 2})
    memory.add("cat three", user_id="7", metadata={"topic": "rent"})
    for found in (memory.search("cat", filters=filters), memory.get_all(filters=filters)):
        assert {each["memory"].removeprefix("cat ") for each in found["results"]} == expected


def test_limit_top_k_and_threshold(memory: Memory) -> None:
    memory.add([{"role": "user", "content": f"{'cat ' * n}number {n}"} for n in range(1, 31)], user_id="ann")
    assert len(memory.search("cat", user_id="ann")["results"]) == 20
    assert len(memory.get_all(user_id="ann")["results"]) == 20
    best = memory.search("cat", user_id="ann", limit=2)["results"]
    assert best == memory.search("cat", user_id="ann", top_k=2)["results"]
    assert memory.search("cat", user_id="ann", limit=2, threshold=best[0]["score"])["results"] == best[:1]
    with pytest.raises(InputError, match="limit and top_k are the same"):
        memory.search("cat", user_id="ann", limit=2, top_k=2)


def test_a_memory_lives_until_the_end_of_its_expiration_date(path: Path) -> None:
    moment = [fixed_clock()]
    with Memory(path, now=lambda: moment[0]) as memory:
        (made,) = memory.add("the code", user_id="ann", expiration_date="2026-05-09")["results"]
        found = memory.get(made["id"])
        assert found is not None
        assert found["expiration_date"] == "2026-05-09"
        assert memory.search("code", user_id="ann")["results"]
        moment[0] += timedelta(hours=12)  # midnight
        assert memory.search("code", user_id="ann") == memory.get_all(user_id="ann") == {"results": []}
        assert len(memory.get_all(user_id="ann", show_expired=True)["results"]) == 1
        memory.update(made["id"], expiration_date=None)
        assert memory.search("code", user_id="ann")["results"]
        with pytest.raises(InputError, match="expiration_date is a date"):
            memory.add("x", user_id="ann", expiration_date="soon")


@pytest.mark.parametrize("wrong", [3, None, ["a text"], [3], {"content": "x", "odd": 1}])
def test_messages_that_are_none_are_told(memory: Memory, wrong: Any) -> None:
    with pytest.raises(InputError):
        memory.add(wrong, user_id="ann")


def test_a_configuration_of_mem0_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="a Mem0 configuration says nothing to retcon"):
        Memory.from_config({"llm": {"provider": "openai"}})


def test_an_update_without_anything_or_with_two_texts_is_told(memory: Memory, cat: str) -> None:
    with pytest.raises(InputError, match="give text, metadata or expiration_date"):
        memory.update(cat)
    with pytest.raises(InputError, match="text and data are the same"):
        memory.update(cat, text="a", data="b")


MEM0 = {  # mem0ai 2.2.1: the parameters of each verb, but for those that steer its own model or reranker
    "add": "messages user_id agent_id run_id metadata timestamp expiration_date infer",
    "search": "query top_k filters threshold",
    "get": "memory_id",
    "get_all": "filters top_k show_expired",
    "update": "memory_id text metadata expiration_date data",
    "delete": "memory_id",
    "delete_all": "user_id agent_id run_id",
    "history": "memory_id",
    "reset": "",
    "close": "",
}


@pytest.mark.parametrize("verb", MEM0)
def test_every_verb_takes_the_parameters_of_mem0s(verb: str) -> None:
    assert set(MEM0[verb].split()) <= set(inspect.signature(getattr(Memory, verb)).parameters)


# -- whose memories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda memory: memory.add("x"),
    lambda memory: memory.search("cat"),
    lambda memory: memory.get_all(),
    lambda memory: memory.search("cat", filters={"topic": "pets"}),
    lambda memory: memory.get_all(filters={"OR": [{"user_id": "ann"}, {"topic": "pets"}]}),
    lambda memory: memory.get_all(filters={"NOT": [{"user_id": "ann"}]}),
    lambda memory: memory.get_all(filters={"user_id": None}),
])  # fmt: skip
def test_a_call_that_names_nobody_is_refused_as_mem0_does(memory: Memory, cat: str, call: Any) -> None:
    with pytest.raises(InputError, match="name a user_id, agent_id or run_id"):
        call(memory)
    assert [note.id for note in memory.memory.get_all()] == [cat]


CALLS: dict[str, tuple[Any, str]] = {
    "memory_type": (lambda memory: memory.add("x", user_id="ann", memory_type="procedural_memory"), "not asked here"),
    "prompt": (lambda memory: memory.add("x", user_id="ann", prompt="p"), "not asked here"),
    "output_format": (lambda memory: memory.add("x", user_id="ann", output_format="v1.1"), "answers are"),
    "rerank": (lambda memory: memory.search("x", user_id="ann", rerank=True), "not asked here"),
    "version": (lambda memory: memory.search("x", user_id="ann", version="v2"), "answers are"),
    "page": (lambda memory: memory.get_all(user_id="ann", page=2), "lists in pages"),
    "odd": (lambda memory: memory.get_all(user_id="ann", odd=2), "unexpected keyword argument 'odd'$"),
    "chat": (lambda memory: memory.chat("x"), r"memory\.memory\.ask"),
    "recall": (lambda memory: memory.recall("x"), r"memory\.memory\.recall"),
}


@pytest.mark.parametrize("word", CALLS)
def test_a_word_of_mem0_with_nothing_to_act_on_ends_in_one_line(memory: Memory, word: str) -> None:
    call, told = CALLS[word]
    with pytest.raises((TypeError, AttributeError), match=rf"'{word}'.*{told}" if word != "odd" else told) as error:
        call(memory)
    assert "\n" not in str(error.value)
    assert memory.memory.get_all() == []


@pytest.mark.parametrize("make", [lambda: Memory(config={}), lambda: Memory({"llm": {}})])  # type: ignore[arg-type]
def test_a_configuration_given_to_the_class_is_refused_too(make: Any) -> None:
    with pytest.raises(InputError, match="a Mem0 configuration says nothing to retcon"):
        make()
