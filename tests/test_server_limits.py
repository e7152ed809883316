"""Hostile and heavy callers: every input has an answer, every limit is told, nothing is done twice or half."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import fixed_clock, raw
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import bearer, client, error
from waiting import until

from retcon import Memory
from retcon.errors import InputError
from retcon.model import Ask, FakeChat
from retcon.server import Keys, Limits, logs
from retcon.server.idempotency import KEEP, Idempotency
from retcon.server.limits import Buckets

SMALL = Limits(body=4_000, text=100, query=50, messages=3, budget=500, top_k=5, page=4)


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "body", "code"),
    [
        ("/memories", {"text": "x" * 101}, "too_long"),
        ("/memories", {"messages": ["ok", "x" * 101]}, "too_long"),
        ("/memories", {"messages": ["a", "b", "c", "d"]}, "too_much"),
        ("/memories/n0/supersede", {"text": "x" * 101}, "too_long"),
        ("/search", {"query": "x" * 51}, "too_long"),
        ("/search", {"query": "a", "top_k": 6}, "too_much"),
        ("/search", {"query": "a", "limit": 6}, "too_much"),
        ("/recall", {"query": "a", "budget": 501}, "too_much"),
        ("/recall", {"query": "a", "budget": 10**300}, "too_much"),
        ("/decide", {"query": "a", "budget": 501}, "too_much"),
    ],
)
def test_what_is_over_a_limit_is_told_with_both_numbers(memory: Memory, route: str, body: Any, code: str) -> None:
    memory.add("a note")
    with client(memory, limits=SMALL) as http:
        assert error(http.post(route, json=body), 422) == code
        assert len(memory.get_all()) == 1
        assert error(http.get("/memories", params={"limit": 5}), 422) == "too_much"


@pytest.mark.parametrize("route", ["/", "/docs", "/health", "/openapi.json", "/page/sample.json", "/page/x/y"])
def test_where_no_key_is_asked_for_no_body_is_read(memory: Memory, route: str) -> None:
    keys = Keys(":memory:")
    key, _ = keys.add(admin=True)
    with client(memory, keys=keys) as http:
        for headers in ({}, bearer(key)):
            for content in (b"x", iter([b"x"])):
                assert error(http.request("GET", route, content=content, headers=headers), 413) == "too_large"
            assert http.request("GET", route, headers=headers).status_code in (200, 404)
        never = {"type": "http.request", "body": b"", "more_body": True}
        pending = partial(asked, path=route, more=[(b"transfer-encoding", b"chunked")])
        chunked = http.portal.call(pending, http.app, never)
        assert chunked["status"] == 413
        assert (b"connection", b"close") in chunked["headers"]
    keys.close()


@pytest.mark.parametrize("told", [True, False])
def test_body_over_the_limit_is_413_with_and_without_its_length(memory: Memory, told: bool) -> None:
    body = json.dumps({"text": "x" * 5_000}).encode()
    with client(memory, limits=SMALL) as http:
        content: Any = body if told else iter([body[:3_000], body[3_000:]])
        answer = http.post("/memories", content=content, headers={"content-type": "application/json"})
        assert error(answer, 413) == "too_large"
        assert memory.get_all() == []


@pytest.mark.parametrize(
    "odd", [{"body": 0}, {"seconds": -1.0}, {"rate": float("nan")}, {"threads": True}, {"text": float("inf")}]
)
def test_limits_that_make_no_sense_are_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Limits(**odd)


# -- rate and load -----------------------------------------------------------------------------------------------------


def test_bucket_lets_a_burst_through_then_a_steady_rate() -> None:
    buckets = Buckets(rate=10, burst=5)
    assert [buckets.wait("a", 0.0) for _ in range(5)] == [0.0] * 5
    assert buckets.wait("a", 0.0) == pytest.approx(0.1)
    assert buckets.wait("b", 0.0) == 0.0, "each key has its own"
    assert buckets.wait("a", 0.1) == 0.0
    allowed = sum(buckets.wait("a", 1 + i / 1000) == 0.0 for i in range(10_000))
    assert 100 <= allowed <= 106


def test_too_many_requests_of_one_key_are_429_and_others_go_on(memory: Memory) -> None:
    keys = Keys(":memory:")
    ann, bob = (keys.add(user_id=who)[0] for who in ("ann", "bob"))
    with client(memory, keys=keys, limits=Limits(rate=0.01, burst=2)) as http:
        answers = [http.get("/memories", headers=bearer(ann)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) >= 1
        assert http.get("/memories", headers=bearer(bob)).status_code == 200
        assert http.get("/memories", headers=bearer("rk-x-y")).status_code == 401
    keys.close()


class Slow:
    """A model that answers only once it is let go."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), threading.Semaphore(0)

    def __call__(self, ask: Ask) -> str:
        self.asked.release()
        assert self.go.wait(120)
        return "Pixel"


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


def test_more_requests_than_can_be_held_are_503_at_once(path: Path, slow: Slow) -> None:
    limits = Limits(in_flight=2, model_threads=1)
    with Memory(path, model=FakeChat(slow)) as memory, client(memory, limits=limits) as http:
        memory.add("a cat named Pixel")
        with ThreadPoolExecutor(2) as pool:
            held = [pool.submit(http.post, "/ask", json={"query": "cat"}) for _ in range(2)]
            slow.asked.acquire()
            until(lambda: "retcon_in_flight 2" in http.get("/metrics").text)
            answer = http.post("/search", json={"query": "cat"})
            assert error(answer, 503) == "overloaded"
            assert answer.headers["retry-after"] == "1"
            assert http.get("/health").status_code == 200
            slow.go.set()
            assert [each.result().status_code for each in held] == [200, 200]
        assert http.post("/search", json={"query": "cat"}).status_code == 200


def test_key_that_is_revoked_during_its_request_opens_no_further_one(path: Path, slow: Slow) -> None:
    keys = Keys(":memory:")
    key, entry = keys.add(user_id="ann")
    with Memory(path, model=FakeChat(slow)) as memory, client(memory, keys=keys) as http:
        memory.add("a cat named Pixel", user_id="ann")
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(http.post, "/ask", json={"query": "cat"}, headers=bearer(key))
            slow.asked.acquire()
            keys.revoke(entry.id)
            assert http.post("/search", json={"query": "cat"}, headers=bearer(key)).status_code == 401
            slow.go.set()
            assert held.result().status_code == 200
        assert http.post("/ask", json={"query": "cat"}, headers=bearer(key)).status_code == 401
    keys.close()


def test_read_that_takes_too_long_is_504(path: Path, slow: Slow) -> None:
    with Memory(path, model=FakeChat(slow)) as memory, client(memory, limits=Limits(seconds=0.2)) as http:
        memory.add("a cat named Pixel")
        assert error(http.post("/ask", json={"query": "cat"}), 504) == "timeout"
        slow.go.set()


def test_ask_that_is_late_takes_no_further_look(path: Path) -> None:
    looks: list[Ask] = []
    late = threading.Event()
    late.set()

    def unsure(ask: Ask) -> str:
        looks.append(ask)
        assert late.wait(120)
        return "NOT IN MEMORY"

    body = {"query": "cat", "max_looks": 10}
    with Memory(path, model=FakeChat(unsure)) as memory:
        memory.add([f"the cat number {n} is Pixel" for n in range(5)])
        with client(memory) as http:
            assert len(http.post("/ask", json=body).json()["looks"]) > 1, "there is more than one look to take"
        looks.clear()
        late.clear()
        with client(memory, limits=Limits(seconds=1)) as http:
            answer = http.post("/ask", json={"query": "cat Pixel", "max_looks": 10})
            assert error(answer, 504) == "timeout"
            late.set()
        assert len(looks) <= 1  # the threads have ended


def test_ask_takes_ten_looks_at_most(memory: Memory) -> None:
    with client(memory) as http:
        assert error(http.post("/ask", json={"query": "cat", "max_looks": 10}), 422) == "no_model"
        assert error(http.post("/ask", json={"query": "cat", "max_looks": 11}), 422) == "bad_input"


def began(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> threading.Event:
    """What is set once a note is being added."""
    begun, add = threading.Event(), memory.add

    def told(*args: Any, **options: Any) -> Any:
        begun.set()
        return add(*args, **options)

    monkeypatch.setattr(memory, "add", told)
    return begun


def test_write_that_could_not_begin_in_time_was_not_done_and_one_that_began_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(path) as memory, client(memory, limits=Limits(seconds=2)) as http:
        begun = began(monkeypatch, memory)
        other = raw(path)
        other.execute("BEGIN IMMEDIATE")  # another program writes
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(http.post, "/memories", json={"text": "began"})
            assert begun.wait(120)  # the one thread that writes waits for the lock by now, or is about to
            answer = http.post("/memories", json={"text": "never began"})
            assert error(answer, 504) == "timeout"
            assert "nothing was written" in answer.json()["error"]["message"]
            assert not first.done()
            other.execute("COMMIT")
            assert first.result().status_code == 200
        other.close()
        assert [note.text for note in memory.get_all()] == ["began"]


async def asked(app: Any, *messages: dict[str, Any], path: str = "/memories", more: Any = ()) -> dict[str, Any]:
    """How the answer to a POST begins whose body comes so, and no further: the test client sends a body whole."""
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *more],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "http_version": "1.1", "scheme": "http",
        "root_path": "",
    }  # fmt: skip
    coming, sent = list(messages), []

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop(0)
        await asyncio.sleep(120)
        raise AssertionError("nobody waits so long")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]


def test_body_that_dribbles_in_too_slowly_is_504_and_the_connection_ends(memory: Memory) -> None:
    with client(memory, limits=Limits(seconds=0.1)) as http:
        begun = {"type": "http.request", "body": b'{"text": ', "more_body": True}
        answer = http.portal.call(asked, http.app, begun)
        assert answer["status"] == 504
        assert (b"connection", b"close") in answer["headers"]
    assert memory.get_all() == []


def test_request_whose_client_went_away_before_its_end_is_not_done(memory: Memory) -> None:
    with client(memory) as http:
        whole = {"type": "http.request", "body": b'{"text": "x"}', "more_body": True}
        assert http.portal.call(asked, http.app, whole, {"type": "http.disconnect"})["status"] == 400
        assert memory.get_all() == []
        assert http.portal.call(asked, http.app, whole | {"more_body": False})["status"] == 200


# -- once --------------------------------------------------------------------------------------------------------------


def test_repeated_write_is_done_once_also_after_a_restart(path: Path) -> None:
    body = {"messages": ["one", "two"], "user_id": "ann", "metadata": {"a": 1}}
    answers = []
    for _ in range(2):
        with Memory(path) as memory, client(memory) as http:
            for _ in range(2):
                answers.append(http.post("/memories", json=body, headers={"Idempotency-Key": "k"}))
            other = http.post("/memories", json=body | {"user_id": "bob"}, headers={"Idempotency-Key": "k"})
            assert error(other, 422) == "idempotency"
            assert len(memory.get_all()) == 2
    assert len({answer.content for answer in answers}) == 1
    assert Path(f"{path}.requests").stat().st_mode & 0o777 == 0o600


def test_repeated_supersede_and_delete_give_their_first_answer(path: Path) -> None:
    with Memory(path) as memory, client(memory) as http:
        memory.add("old", id="n", timestamp="2026-01-01")
        for key, method, route, body in (
            ("s", "POST", "/memories/n/supersede", {"text": "new"}),
            ("d", "DELETE", "/memories/n", None),
        ):
            answers = [http.request(method, route, json=body, headers={"Idempotency-Key": key}) for _ in range(3)]
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
        assert memory.get_all(superseded=True) == []  # every version went


def test_duplicates_at_the_same_time_are_one_write(path: Path) -> None:
    with Memory(path) as memory, client(memory) as http, ThreadPoolExecutor(8) as pool:
        send = lambda _: http.post("/memories", json={"text": "one"}, headers={"Idempotency-Key": "k"})  # noqa: E731
        answers = list(pool.map(send, range(24)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert len(memory.get_all()) == 1


@pytest.mark.parametrize("verb", ["add", "supersede"])
def test_write_whose_memory_was_lost_in_a_crash_is_still_done_once(path: Path, verb: str) -> None:
    """Between the commit of the notes and the memory of the request the server may be killed."""
    ticks = iter(range(1, 100))
    clock = lambda: fixed_clock().replace(minute=next(ticks) % 60)  # noqa: E731
    with Memory(path, now=clock) as memory:
        memory.add("old", id="n", timestamp="2026-01-01")
        route, body = ("/memories", {"text": "x"}) if verb == "add" else ("/memories/n/supersede", {"text": "x"})
        answers = []
        for _ in range(2):
            with client(memory) as http:
                answers.append(http.post(route, json=body, headers={"Idempotency-Key": "k"}))
            forget = sqlite3.connect(f"{path}.requests")
            forget.execute("DELETE FROM answer")
            forget.commit()
            forget.close()
        assert {answer.status_code for answer in answers} == {200}
        assert answers[0].content == answers[1].content
        assert len(memory.get_all(superseded=True)) == 2


def test_what_is_kept_of_a_request_holds_no_word_of_it_and_ends(tmp_path: Path, memory: Memory) -> None:
    once = Idempotency(tmp_path / "o", now=lambda: 1.0)
    with client(memory, idempotency=once) as http:
        http.post("/memories", json={"text": "zanzibar"}, headers={"Idempotency-Key": "order-4711"})
    once.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("o*"))
    assert b"zanzibar" not in kept
    assert b"order-4711" not in kept
    Idempotency(tmp_path / "o", now=lambda: KEEP + 5.0).close()
    left = sqlite3.connect(tmp_path / "o")
    assert left.execute("SELECT count(*) FROM answer").fetchone() == (0,)
    left.close()


@pytest.mark.parametrize("key", ["", "a b", "k" * 201, "\xe9"])
def test_idempotency_key_that_is_none_is_refused(memory: Memory, key: str) -> None:
    with client(memory) as http:
        answer = http.post("/memories", json={"text": "x"}, headers={"Idempotency-Key": key.encode("latin-1")})
        error(answer, 422)
        assert memory.get_all() == []


# -- where from --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8700", "10.0.0.1", "localhost.evil.example", "", "[::2]"]
)
def test_without_keys_another_host_name_is_refused(memory: Memory, host: str) -> None:
    with client(memory) as http:
        assert error(http.get("/memories", headers={"host": host}), 403) == "host"
        assert error(http.post("/memories", json={"text": "x"}, headers={"host": host}), 403) == "host"
        assert memory.get_all() == []


@pytest.mark.parametrize("host", ["localhost", "localhost:8700", "127.0.0.1:1", "127.9.9.9", "[::1]:8700", "LOCALHOST"])
def test_without_keys_this_machines_names_are_served(memory: Memory, host: str) -> None:
    with client(memory) as http:
        assert http.get("/memories", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9"}, {"origin": "http://["},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
    ],
)  # fmt: skip
def test_without_keys_pages_of_other_sites_can_write_nothing(memory: Memory, headers: dict[str, str]) -> None:
    memory.add("here", id="n", user_id="ann")
    with client(memory) as http:
        assert error(http.post("/memories", json={"text": "x"}, headers=headers), 403) == "origin"
        assert error(http.delete("/memories/n", headers=headers), 403) == "origin"
        assert error(http.delete("/memories?user_id=ann", headers=headers), 403) == "origin"
        assert len(memory.get_all()) == 1
        assert http.options("/memories", headers=headers).status_code == 403, "no preflight is granted"
        own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
        assert http.post("/memories", json={"text": "x"}, headers=own).status_code == 200


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"])
def test_without_keys_what_a_proxy_passes_on_is_refused_and_with_keys_served(memory: Memory, name: str) -> None:
    keys = Keys(":memory:")
    with client(memory, keys=keys) as http:
        for method, route in (("GET", "/memories"), ("GET", "/health"), ("POST", "/memories")):
            assert error(http.request(method, route, headers={name: "127.0.0.1"}), 403) == "proxy"
        key, _ = keys.add(admin=True)
        assert http.get("/memories", headers=bearer(key) | {name: "127.0.0.1"}).status_code == 200
    keys.close()


def test_text_sent_as_a_form_or_plain_is_refused(memory: Memory) -> None:
    with client(memory) as http:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = http.post("/memories", content=b'{"text": "x"}', headers={"content-type": kind})
            assert error(answer, 422) == "bad_input"
            assert answer.json()["error"]["message"] == "send the body with Content-Type: application/json"
        assert "Content-Type" not in http.post("/memories", json="x").text, "it has the type, and is no object"
        assert memory.get_all() == []


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    """One service for many requests, with a model that knows nothing."""
    with Memory(":memory:", model=FakeChat(lambda ask: "NOT IN MEMORY")) as memory, client(memory) as http:
        memory.add("a cat named Pixel", id="n")
        yield http


# -- hostile input -----------------------------------------------------------------------------------------------------

BODIES = [
    b"", b"{", b"null", b"[]", b'"text"', b"\x00", b"\xff\xfe", b'{"text": "\\ud800"}', b'{"text": "a\\u0000b"}',
    b'{"text": NaN}', b'{"metadata": {"a": NaN}, "text": "x"}', b'{"metadata": {"a": 1e999}, "text": "x"}',
    b'{"timestamp": 1e300, "text": "x"}', b'{"timestamp": -1e18, "text": "x"}', b'{"text": "x", "user_id": "\\u0000"}',
    b'{"budget": 1e400, "query": "x"}', b'{"budget": ' + b"9" * 5_000 + b', "query": "x"}', b"[" * 100_000,
    b'{"metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b', "text": "x"}', b'{"query": "\\udfff"}',
    b'{"query": "x", "filters": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}", b'{"query": "", "budget": 0}',
    b'{"question": "\\ud800"}', b'{"query": "x", "since": "0001-01-01T00:00:00+23:59"}', b'{"\\ud800": 1}',
    b'{"query": "x", "until": "9999-12-31T23:59:59.999999-23:59"}', b'{"query": "x", "exclude": ["\\u0000"]}',
]  # fmt: skip


@pytest.mark.parametrize("route", ["/memories", "/search", "/recall", "/decide", "/ask", "/memories/n/supersede"])
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_hostile_body_has_a_plain_answer(shared: Any, route: str, body: bytes) -> None:
    answer = shared.post(route, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 409, 422)
    if answer.status_code != 200:
        error(answer, answer.status_code)
    json.loads(answer.content.decode())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)
FIELDS = st.sampled_from(
    ["text", "memory", "messages", "query", "question", "budget", "user_id", "metadata", "filters", "exclude", "action",
     "timestamp", "since", "session", "top_k", "threshold", "id", "new_id", "candidates", "max_looks", "max_tokens"]
)  # fmt: skip


@settings(max_examples=150)
@given(
    route=st.sampled_from(["/memories", "/search", "/recall", "/decide", "/ask"]), body=st.dictionaries(FIELDS, values)
)
def test_no_json_is_a_fault_of_the_server(shared: Any, route: str, body: Any) -> None:
    content = json.dumps({"query": "cat"} | body if route != "/memories" else body)
    answer = shared.post(route, content=content, headers={"content-type": "application/json"})
    assert answer.status_code < 500, answer.text
    json.loads(answer.content.decode())


@pytest.mark.parametrize(
    "note", ["%00", "%FF", "%ED%A0%80", "a%2Fb", "..%2F..", "%20", "x" * 2_000, "%F0%9F%98%80", "none?x=%00"]
)
@pytest.mark.parametrize("tail", ["", "/history", "/sources"])
def test_hostile_id_has_a_plain_answer(shared: Any, note: str, tail: str) -> None:
    answer = shared.get(f"/memories/{note}{tail}")
    assert answer.status_code in (404, 422)
    error(answer, answer.status_code)


def test_damaged_store_is_told_without_its_path(path: Path) -> None:
    with Memory(path) as memory, client(memory) as http:
        memory.add("a note")
        connection = raw(path)
        connection.execute("DROP TABLE posting")
        connection.close()
        answer = http.post("/search", json={"query": "note"})
        assert error(answer, 503) == "store"
        assert path.name not in answer.text


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("retcon.server", "uvicorn", "uvicorn.error")]
    before = [(each.handlers, each.level, each.propagate) for each in loggers]
    logs.to_stream("info", stream)
    yield stream
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def test_log_has_a_line_for_each_request_and_nobodys_words(memory: Memory, told: io.StringIO) -> None:
    keys = Keys(":memory:")
    key, entry = keys.add(user_id="ann")
    with client(memory, keys=keys) as http:
        headers = bearer(key) | {"Idempotency-Key": "idemkey"}
        note = http.post("/memories", json={"text": "zanzibar", "id": "xylophone"}, headers=headers).json()
        http.post("/recall", json={"query": "quetzal"}, headers=headers)
        http.get(f"/memories/{note['results'][0]['id']}?session=marzipan", headers=headers)
        http.get("/memories", params={"session": "marzipan"}, headers=headers)
        http.post("/memories", json={"text": "x", "timestamp": "kumquat"}, headers=headers)
        http.get("/memories", headers=bearer("rk-wrong-secret"))
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [line["status"] for line in lines] == [200, 200, 200, 200, 422, 401]
    assert [line["key"] for line in lines] == [entry.id] * 5 + [None]
    assert {line["route"] for line in lines} == {"/memories", "/recall", "/memories/{id}", "other"}
    words = (
        "zanzibar",
        "quetzal",
        "marzipan",
        "kumquat",
        "xylophone",
        "idemkey",
        "secret",
        key,
        note["results"][0]["id"],
    )
    assert not [word for word in words if word in told.getvalue()]
    keys.close()


def test_fault_is_logged_by_place_and_answered_in_one_line(
    memory: Memory, told: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("zanzibar")

    monkeypatch.setattr(memory, "search", broken)
    with client(memory) as http:
        answer = http.post("/search", json={"query": "quetzal"})
        assert error(answer, 500) == "fault"
    fault, request = [json.loads(line) for line in told.getvalue().splitlines()]
    assert (fault["event"], fault["error"], request["status"]) == ("fault", "ZeroDivisionError", 500)
    assert fault["request"] in answer.text
    assert any("test_server_limits.py" in place for place in fault["at"])
    assert "zanzibar" not in told.getvalue() + answer.text


def test_listening_where_somebody_listens_is_one_line(memory: Memory) -> None:
    from retcon.server.run import serve

    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="cannot listen on"),
    ):
        serve(memory, port=taken.getsockname()[1])
