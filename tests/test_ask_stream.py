"""An ask as it happens: each look, then the answer; in Python, awaited, and as server-sent events."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from local_model import needs_local_model
from misbehaving import Handler, Server, completion, held, says
from serving import bearer, client, error, served
from test_ask import NO, QUERY, STORY, Both, remembering
from waiting import LONG, until

from retcon import Answer, AsyncMemory, Look, Memory, deadline
from retcon.errors import AuthError, DeadlineError, InputError, ModelError, ModelUnavailableError
from retcon.model import Ask, FakeChat, GgufChat
from retcon.server import Keys, Limits

pytestmark = pytest.mark.both_stores

EVENTS = {"accept": "text/event-stream"}


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_a_stream_gives_each_look_and_then_what_ask_gives() -> None:
    replies = iter([NO, NO, "14 June"] * 2)
    with remembering(Both(lambda ask: next(replies))) as memory:
        *looks, answer = memory.ask_stream(QUERY, 40)
    with remembering(Both(lambda ask: next(replies))) as memory:
        asked = memory.ask(QUERY, 40)
    assert isinstance(answer, Answer)
    assert [type(look) for look in looks] == [Look] * 3
    assert answer.text == asked.text == "14 June"
    assert tuple(looks) == answer.looks
    assert [look.reply for look in answer.looks] == [look.reply for look in asked.looks]


def test_a_look_is_given_before_the_next_one_is_paid_for() -> None:
    chat = Both()
    with remembering(chat) as memory:
        stream = memory.ask_stream(QUERY, 40)
        assert chat.asked == []
        known = [len(chat.readings) for step in stream if isinstance(step, Look)]
    assert known == [1, 2, 3, 4]


def test_who_closes_a_stream_pays_for_no_further_look() -> None:
    chat = Both()
    with remembering(chat) as memory:
        stream = memory.ask_stream(QUERY, 40)
        next(stream)
        paid = len(chat.asked)
        stream.close()
        assert list(stream) == []
    assert len(chat.asked) == paid


@pytest.mark.parametrize("options", [{"budget": -1}, {"max_looks": 0}, {"timeout": 0}, {"question": 7}])
def test_what_is_wrong_with_a_stream_is_told_when_it_is_made(options: dict[str, Any]) -> None:
    with remembering(Both()) as memory, pytest.raises(InputError):
        memory.ask_stream(**{"question": QUERY, **options})
    with Memory(":memory:") as memory, pytest.raises(InputError, match="needs a reader"):
        memory.ask_stream(QUERY)


# -- awaited -----------------------------------------------------------------------------------------------------------


def test_an_awaited_stream_gives_the_same_steps(path: Path) -> None:
    async def main() -> None:
        replies = iter([NO, "14 June"])
        chat = Both(lambda ask: next(replies))
        async with AsyncMemory(path, model=chat, router="evidence-fit") as memory:
            await memory.add([text for text, _ in STORY])
            *looks, answer = [step async for step in memory.ask_stream(QUERY, 40)]
            assert isinstance(answer, Answer)
            assert (answer.text, answer.looks) == ("14 June", tuple(looks))
            with pytest.raises(InputError):
                await anext(memory.ask_stream(QUERY, -1))

    asyncio.run(main())


def test_leaving_an_awaited_stream_ends_the_request_under_way_and_makes_no_other(
    path: Path, server: Server, release: threading.Event
) -> None:
    """The endpoint never answers the second reader: only a request that is let go lets the memory close."""
    looks = iter([says(completion(NO)), held(release)])
    server.always = lambda handler: (next(looks) if reads(handler) else says(completion("Pixel has a date.")))(handler)

    async def main() -> None:
        options: Any = {"model": server.base, "model_name": "m", "router": "evidence-fit", "timeout": LONG}
        async with AsyncMemory(path, **options) as memory:
            await memory.add([text for text, _ in STORY])

            async def follow() -> None:
                async with aclosing(memory.ask_stream(QUERY, 40)) as stream:
                    async for step in stream:
                        seen.append(step)

            task = asyncio.create_task(follow())
            await asyncio.to_thread(until, lambda: sum(map(asks_reader, server.seen)) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            asked.append(len(server.seen))

    seen: list[object] = []
    asked: list[int] = []
    asyncio.run(main())
    assert len(seen) == 1
    assert not release.is_set()
    assert asked == [len(server.seen)]


def reads(handler: Handler) -> bool:
    return "<memory>" in handler.asked["messages"][1]["content"]


def asks_reader(seen: Any) -> bool:
    return "<memory>" in seen.body["messages"][1]["content"]


# -- server-sent events ------------------------------------------------------------------------------------------------


def parse(text: str) -> list[tuple[str, Any]]:
    """Name and data of each event."""
    assert text.endswith("\n\n")
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def telling(memory: Memory) -> None:
    memory.add([text for text, _ in STORY])


def test_ask_as_events_tells_each_look_and_ends_with_the_answer_of_the_json_form(path: Path) -> None:
    replies = iter([NO, "14 June ☕\n\nevent: seen"])
    chat = Both(lambda ask: next(replies))
    with Memory(path, model=chat, router="evidence-fit") as memory, client(memory) as http:
        telling(memory)
        answer = http.post("/ask", json={"question": QUERY, "budget": 40}, headers=EVENTS)
        again = http.post("/ask", json={"question": QUERY, "budget": 40}).json()
        counted = http.get("/metrics").text
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    events = parse(answer.text)
    assert [name for name, _ in events] == ["seen", "seen", "answer"]
    assert [data["look"] for _, data in events[:2]] == [1, 2]
    assert [data["abstained"] for _, data in events[:2]] == [True, False]
    assert set(events[0][1]) == {
        "look", "action", "tokens", "budget", "abstained", "confidence", "error", "usage",
    }  # fmt: skip
    last = events[-1][1]
    assert last["answer"] == again["answer"] == "14 June ☕\n\nevent: seen"
    assert [look["action"] for look in last["looks"]] == [data["action"] for _, data in events[:2]]
    assert f"retcon_model_calls_total {last['usage']['model_calls']}" in counted


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/event-stream", "text/event-stream"),
        ("TEXT/event-stream; charset=utf-8, */*", "text/event-stream"),
        ("application/json, text/event-stream", "application/json"),
        ("text/event-stream, application/json", "text/event-stream"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ],
)
def test_the_form_that_accept_names_first_is_sent(path: Path, accept: str, kind: str) -> None:
    with Memory(path, model=FakeChat(lambda ask: "Pixel")) as memory, client(memory) as http:
        memory.add("a cat named Pixel")
        answer = http.post("/ask", json={"query": "cat"}, headers={"accept": accept})
    assert answer.headers["content-type"] == kind


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": "cat", "budget": 10**9}, 422, "too_much"),
        ({"question": "x" * 10_001}, 422, "too_long"),
        ({}, 422, "bad_input"),
        ({"question": "cat", "user_id": "bob"}, 403, "scope"),
    ],
)
def test_what_fails_before_the_first_event_has_its_status(path: Path, body: Any, status: int, code: str) -> None:
    keys = Keys(":memory:")
    key, _ = keys.add(user_id="ann")
    with Memory(path, model=FakeChat(lambda ask: "Pixel")) as memory, client(memory, keys=keys) as http:
        memory.add("a cat named Pixel", user_id="ann")
        plain = http.post("/ask", json=body, headers=bearer(key))
        answer = http.post("/ask", json=body, headers=EVENTS | bearer(key))
        assert error(answer, status) == error(plain, status)
        assert answer.json() == plain.json()
        assert error(answer, status) == code
        assert error(http.post("/ask", json=body, headers=EVENTS), 401) == "key"
    keys.close()


@pytest.mark.parametrize(
    ("failure", "calls"), [(AuthError("the endpoint: 401"), 1), (ModelUnavailableError("the endpoint: no one"), 2)]
)
def test_a_model_that_fails_at_every_look_is_an_error_before_any_event(
    path: Path, failure: ModelError, calls: int
) -> None:
    chat = FakeChat([failure] * 5)
    with Memory(path, model=chat, router="evidence-fit") as memory, client(memory) as http:
        memory.add("a cat named Pixel")
        answer = http.post("/ask", json={"query": "cat", "max_looks": calls}, headers=EVENTS)
        assert error(answer, 502) == failure.code
    assert answer.json()["error"]["message"] == str(failure)
    assert len(chat.asked) >= calls


def test_a_look_that_nobody_read_comes_with_the_first_that_was_read_and_did_not_abstain(path: Path) -> None:
    replies: Iterator[Any] = iter([ModelUnavailableError("gone for a while"), NO, "14 June"])

    def read(ask: object) -> str:
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return str(reply)

    with Memory(path, model=Both(read), router="evidence-fit") as memory, client(memory) as http:
        telling(memory)
        answer = http.post("/ask", json={"question": QUERY, "budget": 40}, headers=EVENTS)
    first, second, third, last = parse(answer.text)
    assert (first[0], first[1]["error"], first[1]["abstained"]) == ("seen", "gone for a while", False)
    assert [each[1]["abstained"] for each in (second, third)] == [True, False]
    assert (last[0], last[1]["answer"]) == ("answer", "14 June")


def test_a_stream_that_takes_too_long_ends_with_an_error_and_no_further_look(
    path: Path, release: threading.Event
) -> None:
    def read(ask: object) -> str:
        if len(chat.readings) > 1:
            assert release.wait(LONG)
        return NO

    chat = Both(read)
    with Memory(path, model=chat, router="evidence-fit") as memory:
        telling(memory)
        with client(memory, limits=Limits(seconds=2)) as http:
            answer = http.post("/ask", json={"query": QUERY, "budget": 40}, headers=EVENTS)
            release.set()
    first, last = parse(answer.text)
    assert first[0] == "seen"
    assert (last[0], last[1]["error"]["code"]) == ("error", "timeout")
    assert len(chat.readings) == 2  # the threads have ended


def test_a_stream_holds_its_place_like_any_request(path: Path, release: threading.Event) -> None:
    begun = threading.Event()

    def read(ask: object) -> str:
        begun.set()
        assert release.wait(LONG)
        return "Pixel"

    limits = Limits(in_flight=1)
    with Memory(path, model=FakeChat(read)) as memory, client(memory, limits=limits) as http:
        memory.add("a cat named Pixel")
        thread = threading.Thread(target=lambda: http.post("/ask", json={"query": "cat"}, headers=EVENTS))
        thread.start()
        assert begun.wait(LONG)
        assert error(http.post("/ask", json={"query": "cat"}, headers=EVENTS), 503) == "overloaded"
        release.set()
        thread.join()
        assert http.post("/ask", json={"query": "cat"}, headers=EVENTS).status_code == 200


# -- over a real connection --------------------------------------------------------------------------------------------


def test_over_the_wire_a_look_arrives_while_the_next_is_read_and_hanging_up_ends_that_one(
    tmp_path: Path, server: Server, release: threading.Event
) -> None:
    db = tmp_path / "m.db"
    with Memory(db) as memory:
        telling(memory)
    looks = iter([says(completion(NO)), held(release)])
    server.always = lambda handler: (next(looks) if reads(handler) else says(completion("Pixel has a date.")))(handler)
    options = ("--model", server.base, "--model-name", "m", "--router", "evidence-fit")
    with served(db, *options) as program:
        body = {"question": QUERY, "budget": 40}
        with program.http.stream("POST", "/ask", json=body, headers=EVENTS) as answer:
            assert answer.status_code == 200
            coming = answer.iter_lines()
            assert next(coming) == "event: seen"
            assert json.loads(next(coming).removeprefix("data: "))["look"] == 1
            until(lambda: sum(map(asks_reader, server.seen)) == 2)
        until(lambda: "retcon_in_flight 0" in program.http.get("/metrics").text)  # it does not wait for the model
        assert not release.is_set()
        asked = len(server.seen)
        server.always = says(completion("14 June"))
        again = program.http.post("/ask", json=body | {"budget": 41}, headers=EVENTS)
        assert parse(again.text)[-1][1]["answer"] == "14 June"
        assert asked == 3  # one record was written, and two texts read


def test_hanging_up_before_the_first_look_ends_the_request_to_the_model(
    tmp_path: Path, server: Server, release: threading.Event
) -> None:
    db = tmp_path / "m.db"
    with Memory(db) as memory:
        telling(memory)
    server.always = held(release)
    with served(db, "--model", server.base, "--model-name", "m", "--router", "evidence-fit") as program:
        host, port = program.url.removeprefix("http://").split(":")
        body = json.dumps({"question": QUERY, "budget": 40}).encode()
        head = f"POST /ask HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
        with socket.create_connection((host, int(port)), timeout=LONG) as caller:
            caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: server.seen)
        until(lambda: "retcon_in_flight 0" in program.http.get("/metrics").text)
    assert not release.is_set()
    assert len(server.seen) == 1


def test_the_document_names_both_forms_of_the_answer(memory: Memory) -> None:
    with client(memory) as http:
        document = http.get("/openapi.json").json()
    assert list(document["paths"]["/ask"]["post"]["responses"]["200"]["content"]) == [
        "application/json",
        "text/event-stream",
    ]


def test_a_memory_that_was_stopped_is_late_and_asks_nobody() -> None:
    stop, chat = deadline.Stop(), Both()
    stop.set()
    with remembering(chat) as memory, pytest.raises(DeadlineError, match="stopped"):
        deadline.context(stop=stop).run(memory.ask, QUERY, 40)
    assert chat.asked == []


@needs_local_model
def test_a_model_in_this_process_ends_at_its_next_token_when_it_is_stopped(local: GgufChat) -> None:
    stop = deadline.Stop()
    stop.set()
    ask = Ask(({"role": "user", "content": "Count from one to a thousand, in words."},), max_tokens=900)
    (found,) = deadline.context(stop=stop).run(local, [ask])
    assert isinstance(found, ModelError)
