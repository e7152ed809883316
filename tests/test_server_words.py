"""What the service takes of other memories' words: PUT, filters with operators, expiry; and the owner's hook."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import bytes_of, fixed_clock
from serving import bearer, client, error
from waiting import until

from retcon import Memory, Note
from retcon.errors import RefusedError
from retcon.server import Keys, Limits


@pytest.fixture
def http(memory: Memory) -> Iterator[Any]:
    with client(memory) as opened:
        yield opened


def add(http: Any, text: str, **more: Any) -> str:
    answer = http.post("/memories", json={"text": text, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["results"][0]["id"])


# -- PUT ---------------------------------------------------------------------------------------------------------------


def test_put_is_a_correction_that_recall_finds(http: Any, memory: Memory) -> None:
    first = add(http, "The cat is called Pixel.", user_id="ann", metadata={"k": 1})
    made = http.put(f"/memories/{first}", json={"text": "The cat is called Dot."}).json()
    assert (made["event"], made["memory"], made["supersedes"]) == ("UPDATE", "The cat is called Dot.", first)
    assert made["id"] != first
    assert [hit.text for hit in memory.search("cat")] == ["The cat is called Dot."]
    assert memory.get(made["id"]).metadata == {"k": 1}
    assert http.get(f"/memories/{first}").json()["superseded_by"] == made["id"]


def test_put_by_the_first_id_corrects_the_newest_version(http: Any, memory: Memory) -> None:
    first = add(http, "version 1")
    for number in (2, 3, 4):
        assert http.put(f"/memories/{first}", json={"text": f"version {number}"}).status_code == 200
    assert [note.text for note in memory.history(first)] == [f"version {number}" for number in (1, 2, 3, 4)]


def test_put_again_with_the_same_words_changes_nothing(http: Any, memory: Memory) -> None:
    first = add(http, "version 1", session="s")
    body = {"text": "version 2", "metadata": {"k": 1}, "timestamp": "2026-05-01", "expires_at": "2100-01-01"}
    made = http.put(f"/memories/{first}", json=body).json()
    again = http.put(f"/memories/{first}", json=body).json()
    assert again == {"id": made["id"], "memory": "version 2", "event": "NONE", "created_at": made["created_at"]}
    assert len(memory.history(first)) == 2
    assert http.put(f"/memories/{first}", json=body | {"metadata": {"k": 2}}).json()["event"] == "UPDATE"


def test_put_with_an_idempotency_key_is_done_once(http: Any, memory: Memory) -> None:
    first = add(http, "version 1")
    head = {"Idempotency-Key": "k1"}
    answers = [http.put(f"/memories/{first}", json={"text": "version 2"}, headers=head).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(memory.history(first)) == 2


@pytest.mark.parametrize("body", [{}, {"text": ""}, {"text": "x", "memory": "x"}, {"text": 3}, {"data": "x"}])
def test_put_that_cannot_be_used_is_told(http: Any, memory: Memory, body: dict[str, Any]) -> None:
    first = add(http, "version 1")
    error(http.put(f"/memories/{first}", json=body), 422)
    assert error(http.put("/memories/nobody", json={"text": "x"}), 404) == "not_found"
    assert len(memory.get_all(superseded=True)) == 1


# -- filters -----------------------------------------------------------------------------------------------------------

FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"topic": {"in": ["cats", "dogs"]}}, ["a", "b"]),
    ({"AND": [{"user_id": "ann"}, {"NOT": [{"topic": "cats"}]}]}, ["b", "c"]),
    ({"timestamp": {"gte": "2026-05-02", "lt": "2026-05-03"}}, ["b"]),
]


@pytest.fixture
def filled(http: Any) -> Any:
    for number, (name, topic) in enumerate((("a", "cats"), ("b", "dogs"), ("c", "rent")), 1):
        more = {"metadata": {"topic": topic}, "timestamp": f"2026-05-0{number}"}
        add(http, f"note {name}", id=name, user_id="ann", **more)
    return http


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_every_read_takes_filters_with_operators(filled: Any, filters: dict[str, Any], expected: list[str]) -> None:
    for path in ("/search", "/recall"):
        body = {"query": "note", "filters": filters} | ({"action": "retain"} if path == "/recall" else {})
        answer = filled.post(path, json=body).json()
        found = answer["results"] if path == "/search" else answer["sources"]
        assert sorted(each["id"] for each in found) == expected
    assert filled.post("/decide", json={"query": "note", "filters": filters}).status_code == 200
    listed = filled.get("/memories", params={"filters": json.dumps(filters)}).json()["results"]
    assert [each["id"] for each in listed] == expected


@pytest.mark.parametrize("filters", [{"a": {"like": 1}}, {"OR": []}, {"user_id": {"in": ["ann"]}}, {"metadata": 3}])
def test_filters_that_are_off_are_a_422_of_one_line(filled: Any, filters: dict[str, Any]) -> None:
    for path in ("/search", "/recall", "/decide"):
        assert error(filled.post(path, json={"query": "note", "filters": filters}), 422) == "bad_input"
    assert error(filled.get("/memories", params={"filters": json.dumps(filters)}), 422) == "bad_input"


@pytest.mark.parametrize("text", ["[1]", "{", '"x"', "{" * 2000, '{"a": 1, "a": 2}'])
def test_filters_in_an_address_are_one_json_object(filled: Any, text: str) -> None:
    assert filled.get("/memories", params={"filters": text}).status_code in (400, 422)


@pytest.fixture
def keyed(memory: Memory) -> Iterator[tuple[Any, dict[str, str]]]:
    """A service where ann and bob have a note each, and bob's key."""
    memory.add("annsecret cat", id="ann-1", user_id="ann", metadata={"topic": "cats"})
    memory.add("bobsecret cat", id="bob-1", user_id="bob", metadata={"topic": "cats"})
    keys = Keys(":memory:")
    head = bearer(keys.add(user_id="bob")[0])
    with client(memory, keys=keys, limits=Limits(rate=0)) as http:
        yield http, head
    keys.close()


def attacks() -> list[dict[str, Any]]:
    """Filters by which bob tries to see ann's notes."""
    ann, any_ = {"user_id": "ann"}, {"topic": {"ne": "x"}}
    found: list[dict[str, Any]] = [
        ann, {"user_id": {"eq": "ann"}}, {"user_id": {"$eq": "ann"}}, {"user_id": {"ne": "bob"}},
        {"user_id": {"in": ["ann", "bob"]}}, {"user_id": "*"}, {"user_id": None}, {"user_id": ["ann"]},
        {"metadata.user_id": "ann"}, {"metadata": {"user_id": "ann"}}, {"topic": "cats", "$or": [ann, any_]},
        {"AND": [{"user_id": "bob"}, {"OR": [ann, any_]}]}, {"AND": [{"user_id": "bob"}, ann]},
        {"NOT": [{"NOT": [ann]}]}, {"NOT": [{"user_id": "bob"}]}, {"NOT": {"topic": "x"}},
        {"OR": [any_, {"NOT": [any_]}]}, {"AND": [{"AND": [ann]}]}, {"and": [ann]}, {"user_id ": "ann"},
        {"USER_ID": "ann"}, {"scope": 1}, {"note.scope": "1) OR (1=1"}, {"topic": {"eq": "cats' OR 1=1 --"}},
    ]  # fmt: skip
    return found


@pytest.mark.parametrize("filters", attacks(), ids=json.dumps)
def test_no_filter_widens_what_a_key_may_see(keyed: tuple[Any, dict[str, str]], filters: dict[str, Any]) -> None:
    http, head = keyed
    for path, more in itertools.product(("/search", "/recall", "/decide"), ({}, {"user_id": "bob"})):
        answer = http.post(path, json={"query": "cat", "filters": filters, **more}, headers=head)
        assert answer.status_code in (200, 403, 422), answer.text
        assert "annsecret" not in answer.text
        assert "ann-1" not in answer.text
    answer = http.get("/memories", params={"filters": json.dumps(filters), "expired": True}, headers=head)
    assert answer.status_code in (200, 403, 422)
    assert "annsecret" not in answer.text


def test_a_filter_on_ones_own_scope_is_taken(keyed: tuple[Any, dict[str, str]]) -> None:
    http, head = keyed
    for filters in ({"user_id": "bob"}, {"AND": [{"user_id": "bob"}, {"topic": "cats"}]}):
        answer = http.post("/search", json={"query": "cat", "filters": filters}, headers=head).json()
        assert [hit["id"] for hit in answer["results"]] == ["bob-1"]


# -- expiry ------------------------------------------------------------------------------------------------------------


def test_expired_notes_are_served_on_request_alone_and_then_purged(path: Path) -> None:
    moment = [fixed_clock()]
    with Memory(path, now=lambda: moment[0]) as memory, client(memory, limits=Limits(purge_every=3600)) as http:
        add(http, "the zebracode", id="a", expires_at="2026-05-09T13:00")
        add(http, "a cat", id="b")
        assert http.get("/memories/a").json()["expires_at"] == "2026-05-09T13:00:00+00:00"
        moment[0] += timedelta(hours=1)
        assert http.post("/search", json={"query": "zebracode"}).json()["results"] == []
        assert [note["id"] for note in http.get("/memories").json()["results"]] == ["b"]
        shown = http.get("/memories", params={"expired": True}).json()["results"]
        assert [note["id"] for note in shown] == ["a", "b"]
        assert error(http.post("/memories", json={"text": "x", "expires_at": "soon"}), 422) == "bad_input"


def test_a_server_purges_expired_notes_by_itself(path: Path) -> None:
    moment = [fixed_clock()]
    with Memory(path, now=lambda: moment[0]) as memory, client(memory, limits=Limits(purge_every=0.01)) as http:
        add(http, "the zebracode", id="a", expires_at="2026-05-09T13:00")
        moment[0] += timedelta(hours=1)
        until(lambda: http.get("/memories/a").status_code == 404)
        until(lambda: b"zebracode" not in bytes_of(path) and not memory.count_unpurged())


# -- the owner's hook --------------------------------------------------------------------------------------------------


def screen(note: Note) -> Note:
    if "password" in note.text:
        raise RefusedError("it holds a password")
    return replace(note, text=re.sub(r"\d{4,}", "[number]", note.text))


def test_the_hook_redacts_and_refuses_what_clients_send(path: Path) -> None:
    with Memory(path, before_store=screen) as memory, client(memory) as http:
        answer = http.post("/memories", json={"text": "call 471147"}, headers={"Idempotency-Key": "k"})
        assert answer.json()["results"][0]["memory"] == "call [number]"
        again = http.post("/memories", json={"text": "call 471147"}, headers={"Idempotency-Key": "k"})
        assert again.json() == answer.json()
        first = answer.json()["results"][0]["id"]
        assert http.put(f"/memories/{first}", json={"text": "call 5811"}).json()["memory"] == "call [number]"
        for body in ({"text": "the password is x"}, {"messages": ["fine", "the password is x"]}):
            assert error(http.post("/memories", json=body), 422) == "refused"
        assert error(http.put(f"/memories/{first}", json={"text": "password"}), 422) == "refused"
        assert len(memory.get_all()) == 1
        assert b"471147" not in bytes_of(path)


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_a_conflict_names_ids_as_the_caller_gave_them(keyed: tuple[Any, dict[str, str]]) -> None:
    http, head = keyed

    def told(method: str, path: str, body: dict[str, Any], **more: str) -> str:
        answer = http.request(method, path, json=body, headers=head | more)
        assert error(answer, 409) == "conflict"
        return str(answer.json()["error"]["message"])

    assert http.post("/memories", json={"text": "one", "id": "mine"}, headers=head).status_code == 200
    assert (
        told("POST", "/memories", {"text": "two", "id": "mine"}) == "the id 'mine' is taken by a note with another text"
    )
    assert http.post("/memories/mine/supersede", json={"text": "three"}, headers=head).status_code == 200
    superseded = "the id 'mine' is of a note that was superseded before: correct the newest of its history"
    assert told("POST", "/memories/mine/supersede", {"text": "four"}) == superseded
    assert told("POST", "/memories", {"messages": [{"content": "x", "supersedes": "mine"}]}) == superseded
    assert told("POST", "/memories/bob-1/supersede", {"text": "x", "new_id": "mine"}).startswith(
        "the id 'mine' is taken"
    )
