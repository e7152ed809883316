"""The chat proxy: what arrives at the model, what is stored, and what comes back, whatever either side does."""

from __future__ import annotations

import gzip
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint
from misbehaving import (
    Behaviour,
    Handler,
    Server,
    completion,
    cut_off,
    drips,
    drips_headers,
    hangs_up,
    held,
    not_http,
    says,
    sends,
)
from serving import bearer, client, error, served
from waiting import until

from retcon import Memory
from retcon.errors import InputError
from retcon.server import Keys, Limits, Upstream
from retcon.server.chat_memory import HEAD, TAIL
from retcon.store import connections

KEY = "sk-upstream-0123456789abcdefghij"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "cat"}'}}
BLOCK = re.compile(rf"\A{HEAD}.*{TAIL}", re.DOTALL)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


class Proxy:
    """The app in this process before an endpoint that a test tells what to do."""

    def __init__(self, http: Any, memory: Memory, server: Server) -> None:
        self.http, self.memory, self.server = http, memory, server

    def chat(self, *messages: Any, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        body = {"model": "m", "messages": list(messages), **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=headers or {})

    @property
    def got(self) -> list[dict[str, Any]]:
        """The messages that arrived last."""
        return list(self.server.seen[-1].body["messages"])

    @property
    def memory_text(self) -> str:
        """What of memory arrived last."""
        found = BLOCK.match(next(str(each["content"]) for each in reversed(self.got) if each["role"] == "user"))
        return found[0] if found else ""


def upstream(server: Server, **options: Any) -> Upstream:
    return Upstream(base=server.base, **{"key": KEY, "recent": 24, "budget": 120, **options})


@pytest.fixture
def proxy(memory: Memory, server: Server) -> Iterator[Proxy]:
    with client(memory, proxy=upstream(server)) as http:
        yield Proxy(http, memory, server)


OLD = [
    user("I adopted a cat named Pixel."), assistant("Congratulations on your new friend!"),
    user("The rent is 725 euros a month."), assistant("That is a lot of money."),
    user("My sister moved to Oslo in May."), assistant("Oslo is lovely in May."),
]  # fmt: skip


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_a_short_conversation_arrives_as_it_was_sent_with_every_field(proxy: Proxy) -> None:
    fields: dict[str, Any] = {"temperature": 0.25, "tools": [{"type": "function"}], "seed": 2**53}
    fields["made_up"] = {"a": [None, True]}
    messages = [{"role": "system", "content": "Be brief."}, user("Hello.")]
    answer = proxy.chat(*messages, **fields)
    assert answer.json() == completion()
    assert proxy.server.seen[-1].path == "/v1/chat/completions"
    assert proxy.server.seen[-1].body == {"model": "m", "messages": messages, **fields}


def test_old_turns_are_replaced_by_a_recall_that_holds_what_is_asked(proxy: Proxy) -> None:
    rules = {"role": "system", "content": "Be brief."}
    answer = proxy.chat(rules, *OLD, user("What is my cat called?"))
    assert proxy.got[0] == rules
    assert len(proxy.got) < 1 + len(OLD) + 1
    assert "Pixel" in proxy.memory_text
    assert proxy.got[-1]["content"] == proxy.memory_text + "What is my cat called?"
    assert answer.headers["x-retcon-replaced"] == str(len(OLD) + 2 - len(proxy.got))
    assert answer.headers["x-retcon-found"] == "true"
    assert answer.headers["x-retcon-action"] in answer.headers["x-retcon-reason"]
    assert int(answer.headers["x-retcon-tokens"]) == proxy.memory.count(proxy.memory_text) <= 120


def test_what_the_model_has_before_it_is_not_recalled_as_well(memory: Memory, server: Server) -> None:
    with client(memory, proxy=upstream(server, recent=10_000)) as http:
        opened = Proxy(http, memory, server)
        opened.chat(*OLD, user("Which cat is it, and what is the rent?"))
        assert opened.memory_text == ""
        assert len(opened.got) == len(OLD) + 1


def test_a_fact_told_in_one_conversation_is_recalled_in_the_next(proxy: Proxy) -> None:
    proxy.chat(user("Hi! My cat is called Pixel."))
    proxy.chat(user("Hi! What is my cat called?"))
    assert "Pixel" in proxy.memory_text


def test_nothing_is_put_in_where_memory_has_nothing_about_it(proxy: Proxy) -> None:
    answer = proxy.chat(*OLD, user("Zebra crossings?"))
    assert proxy.got[-1] == user("Zebra crossings?")
    assert (answer.headers["x-retcon-found"], answer.headers["x-retcon-tokens"]) == ("false", "0")


def test_calls_of_tools_arrive_with_their_results_and_parts_stay_parts(proxy: Proxy) -> None:
    turn = [
        user([{"type": "text", "text": "Where is my cat?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]),
        assistant(None, tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "on the mat"},
    ]
    proxy.chat(*OLD, *turn)
    assert proxy.got[-2:] == turn[-2:]
    assert proxy.got[-3]["content"][1:] == turn[0]["content"]
    assert "Pixel" in proxy.got[-3]["content"][0]["text"]


def test_the_budget_may_be_named_by_a_request_and_none_means_no_memory(proxy: Proxy) -> None:
    proxy.chat(*OLD, user("My cat?"), headers={"x-retcon-budget": "0"})
    assert proxy.memory_text == ""
    proxy.chat(*OLD, user("My cat?"), headers={"x-retcon-budget": "60"})
    assert 0 < proxy.memory.count(proxy.memory_text) <= 60
    assert error(proxy.chat(user("a"), headers={"x-retcon-budget": "99999"}), 422) == "too_much"
    assert error(proxy.chat(user("a"), headers={"x-retcon-budget": "-1"}), 422) == "bad_input"


def test_models_are_the_endpoints(proxy: Proxy) -> None:
    proxy.server.always = says({"object": "list", "data": [{"id": "m"}]})
    assert proxy.http.get("/v1/models").json()["data"] == [{"id": "m"}]
    proxy.http.get("/v1/models/meta/llama")
    assert [each.path for each in proxy.server.seen] == ["/v1/models", "/v1/models/meta/llama"]
    for name in ("..%2f..%2fadmin", "a%2f%2fb"):
        assert proxy.http.get(f"/v1/models/{name}").status_code == 404
    assert len(proxy.server.seen) == 2


def test_there_is_no_chat_without_an_endpoint(memory: Memory) -> None:
    with client(memory) as http:
        assert error(http.post("/v1/chat/completions", json={}), 404) == "no_route"


# -- what is stored ----------------------------------------------------------------------------------------------------


def stored(memory: Memory) -> list[str]:
    return [note.text for note in memory.get_all()]


def test_a_conversation_that_is_sent_again_each_turn_is_stored_once(proxy: Proxy) -> None:
    told = []
    for number in range(1, len(OLD) + 1, 2):
        told.append(proxy.chat(*OLD[:number]).headers["x-retcon-stored"])
        proxy.chat(*OLD[:number])  # as clients do that try again
    assert told == ["1", "2", "2"]
    assert stored(proxy.memory) == [each["content"] for each in OLD[:-1]]
    notes = proxy.memory.get_all()
    assert {note.session for note in notes} == {notes[0].session}
    assert [note.speaker for note in notes] == ["user", "assistant", "user", "assistant", "user"]
    assert [note.follows for note in notes] == [None, *(note.id for note in notes[:-1])]
    assert {note.user_id for note in notes} == {"default"}


def test_a_client_that_drops_the_beginning_stores_nothing_twice(proxy: Proxy) -> None:
    for number in range(1, len(OLD) + 1):
        proxy.chat(*OLD[max(0, number - 3) : number])
    assert stored(proxy.memory) == [each["content"] for each in OLD]


def test_rules_are_not_stored_and_results_of_tools_are(proxy: Proxy) -> None:
    tools = [assistant(None, tool_calls=[CALL]), {"role": "tool", "tool_call_id": "c1", "content": "on the mat"}]
    proxy.chat({"role": "developer", "content": "Be brief."}, user("Where?"), *tools)
    assert stored(proxy.memory) == ["Where?", "on the mat"]


@pytest.mark.parametrize("which", [slice(0, 1), slice(2, 3), slice(1, 3), slice(0, 3)])
def test_a_note_that_was_deleted_does_not_come_back_with_the_next_turn(
    memory: Memory, server: Server, which: slice
) -> None:
    with client(memory, proxy=upstream(server)) as http:
        Proxy(http, memory, server).chat(*OLD[:3])
    gone = memory.get_all()[which]
    memory.delete([note.id for note in gone])
    with client(memory, proxy=upstream(server)) as http:  # a server that was started anew remembers it too
        assert Proxy(http, memory, server).chat(*OLD[:5]).headers["x-retcon-stored"] == "2"
    left = [each["content"] for each in OLD[:5] if each["content"] not in [note.text for note in gone]]
    assert stored(memory) == left
    notes = memory.get_all()
    assert len({note.session for note in notes}) == 1
    assert notes[-1].follows == notes[-2].id


def test_another_branch_of_a_conversation_is_a_session_of_its_own(proxy: Proxy) -> None:
    proxy.chat(*OLD[:3])
    proxy.chat(*OLD[:2], user("The rent is 800 euros."))
    sessions = [note.session for note in proxy.memory.get_all()]
    assert stored(proxy.memory)[-1] == "The rent is 800 euros."
    assert len(set(sessions[:3])) == 1
    assert sessions[3] not in sessions[:3]


def test_a_session_that_is_named_holds_its_conversation(proxy: Proxy) -> None:
    proxy.chat(*OLD[:1], headers={"x-retcon-session": "s1"})
    proxy.chat(*OLD[:1], headers={"x-retcon-session": "s2"})
    assert [note.session for note in proxy.memory.get_all()] == ["s1", "s2"]


def test_what_was_said_is_stored_even_where_the_endpoint_fails(proxy: Proxy) -> None:
    proxy.server.always = hangs_up
    assert error(proxy.chat(*OLD[:1]), 502) == "upstream"
    assert stored(proxy.memory) == [OLD[0]["content"]]


def test_a_first_conversation_of_any_length_is_stored_whole(memory: Memory, server: Server) -> None:
    messages = [user(f"turn {number}") for number in range(25)]
    with client(memory, proxy=upstream(server), limits=Limits(messages=10)) as http:
        assert Proxy(http, memory, server).chat(*messages).headers["x-retcon-stored"] == "25"
    assert stored(memory) == [each["content"] for each in messages]


def test_the_same_request_many_times_at_once_is_stored_once(tmp_path: Path, server: Server) -> None:
    with Memory(tmp_path / "a.db") as memory, client(memory, proxy=upstream(server)) as http:
        opened = Proxy(http, memory, server)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: opened.chat(*OLD[: 1 + number % 6]), range(24)))
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(stored(memory)) == sorted(each["content"] for each in OLD)


# -- whose conversation ------------------------------------------------------------------------------------------------


def test_a_conversation_belongs_to_the_user_that_is_named_and_reaches_nobody_else(proxy: Proxy) -> None:
    proxy.chat(user("My cat is called Pixel."), user="ann")
    proxy.chat(user("My cat is called Bo."), headers={"x-retcon-user": "bob", "x-retcon-agent": "a9"})
    proxy.chat(user("My cat has no name."))
    assert [(note.user_id, note.agent_id) for note in proxy.memory.get_all()] == [
        ("ann", None), ("bob", "a9"), ("default", None),
    ]  # fmt: skip
    for name, word in (("ann", "Pixel"), ("bob", "Bo."), ("", "no name")):
        proxy.chat(user("Hello, what is my cat called?"), headers={"x-retcon-user": name} if name else None)
        assert [each for each in ("Pixel", "Bo.", "no name") if each in proxy.memory_text] == [word]


def test_a_key_bound_to_a_user_is_that_users_and_no_other(memory: Memory, server: Server, tmp_path: Path) -> None:
    with closing(Keys(tmp_path / "keys")) as keys:
        ann, _ = keys.add(user_id="ann")
        with client(memory, keys=keys, proxy=upstream(server)) as http:
            opened = Proxy(http, memory, server)
            assert error(opened.chat(user("Hi.")), 401) == "key"
            assert opened.chat(user("My cat is called Pixel."), headers=bearer(ann)).status_code == 200
            assert error(opened.chat(user("Hi."), user="bob", headers=bearer(ann)), 403) == "scope"
            assert error(http.get("/v1/models"), 401) == "key"
    assert [note.user_id for note in memory.get_all()] == ["ann"]
    assert len(server.seen) == 1
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_keys_quota_counts_what_was_said(memory: Memory, server: Server, tmp_path: Path) -> None:
    with closing(Keys(tmp_path / "keys")) as keys:
        ann, _ = keys.add(user_id="ann")
        with client(memory, keys=keys, limits=Limits(key_notes=2), proxy=upstream(server)) as http:
            opened = Proxy(http, memory, server)
            assert error(opened.chat(*OLD, headers=bearer(ann)), 507) == "quota"
            assert opened.chat(*OLD[:2], headers=bearer(ann)).status_code == 200
    assert server.seen[-1].body["messages"] == OLD[:2]


# -- keys of the endpoint ----------------------------------------------------------------------------------------------


def test_without_a_key_of_its_own_the_clients_key_goes_on(memory: Memory, server: Server) -> None:
    with client(memory, proxy=upstream(server, key=None)) as http:
        Proxy(http, memory, server).chat(user("Hi."), headers=bearer("sk-mine") | {"openai-project": "p"})
        Proxy(http, memory, server).chat(user("Hi."), headers=bearer("rk-0-x"))
    assert server.seen[0].headers["authorization"] == "Bearer sk-mine"
    assert server.seen[0].headers["openai-project"] == "p"
    assert "authorization" not in server.seen[1].headers


def test_a_key_of_this_server_never_goes_on(memory: Memory, server: Server, tmp_path: Path) -> None:
    with closing(Keys(tmp_path / "keys")) as keys:
        ann, _ = keys.add(user_id="ann")
        with client(memory, keys=keys, proxy=upstream(server, key=None)) as http:
            Proxy(http, memory, server).chat(user("Hi."), headers=bearer(ann))
    assert "authorization" not in server.seen[0].headers
    assert ann not in json.dumps([each.headers for each in server.seen])


@pytest.mark.parametrize(
    "behave",
    [
        says({"error": {"message": f"wrong key {KEY}"}}, 401), sends(f"who is {KEY}?".encode(), 500),
        sends(f"{{not json {KEY}".encode()), sends(b"", 302, location=f"http://127.0.0.1/{KEY}"), hangs_up, not_http,
        says(completion(), set_cookie=KEY, x_key=KEY), says(completion(KEY), openai_x=KEY),
    ],
)  # fmt: skip
def test_the_endpoints_key_is_in_no_answer_and_no_log(
    proxy: Proxy, behave: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="retcon")
    caplog.set_level(logging.INFO, logger="httpx")
    proxy.server.always = behave
    answer = proxy.chat(user("Hi."))
    assert proxy.server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in answer.text + repr(answer.headers) + caplog.text
    assert KEY not in repr(upstream(proxy.server))


# -- what comes back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
@pytest.mark.parametrize("body", [b'{"error": {"message": "no", "type": "t"}}', b"plain words", b""])
def test_an_error_of_the_endpoint_comes_back_as_it_is(proxy: Proxy, status: int, body: bytes) -> None:
    proxy.server.always = sends(body, status, retry_after="7", content_type="text/x")
    answer = proxy.chat(user("Hi."), stream=True)
    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["content-type"].startswith("text/x")
    assert answer.headers["x-retcon-stored"] == "1"


def test_headers_of_the_endpoint_that_are_about_the_answer_come_back_and_no_others(proxy: Proxy) -> None:
    told: dict[str, Any] = {"x_ratelimit_remaining_requests": "9", "openai_processing_ms": "3", "x_request_id": "up-1"}
    never: dict[str, Any] = {"access_control_allow_origin": "*", "set_cookie": "a=b", "server": "x"}
    proxy.server.always = says(completion(), **told, **never)
    headers = proxy.chat(user("Hi.")).headers
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["openai-processing-ms"] == "3"
    assert headers["x-upstream-request-id"] == "up-1"
    assert headers["x-request-id"] != "up-1"
    assert not {"access-control-allow-origin", "set-cookie"} & set(headers)


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (sends(b"<html>busy</html>"), "not JSON"), (sends(b""), "not JSON"), (cut_off, "cut off"),
        (hangs_up, "cut off"), (not_http, "cut off"), (sends(b"", 307, location="http://127.0.0.1:1/"), "elsewhere"),
        (sends(b"[" * 100_000), "not JSON"), (sends(b" " * (8 * 2**20 + 1)), "larger than"),
    ],
)  # fmt: skip
def test_an_endpoint_that_talks_nonsense_is_one_clear_error(proxy: Proxy, behave: Behaviour, words: str) -> None:
    proxy.server.always = behave
    answer = proxy.chat(user("Hi."))
    assert error(answer, 502) == "upstream"
    assert words in answer.json()["error"]["message"]
    assert proxy.server.base in answer.json()["error"]["message"]
    assert answer.headers["x-retcon-stored"] == "1"


def test_an_endpoint_that_nobody_listens_at_is_one_clear_error(memory: Memory) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        base = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with client(memory, proxy=Upstream(base=base)) as http:
            answer = http.post("/v1/chat/completions", json={"messages": [user("Hi.")]})
    assert error(answer, 502) == "upstream"
    assert "no connection" in answer.json()["error"]["message"]


@pytest.mark.parametrize("behave", [held, drips, drips_headers])
def test_an_endpoint_that_never_ends_its_answer_is_given_up(
    memory: Memory, server: Server, release: threading.Event, behave: Any
) -> None:
    server.always = behave(release)
    with client(memory, proxy=upstream(server, seconds=0.3)) as http:
        answer = Proxy(http, memory, server).chat(user("Hi."))
    assert error(answer, 504) == "upstream_timeout"
    assert "0.3 s" in answer.json()["error"]["message"]


# -- answers in events -------------------------------------------------------------------------------------------------


def events(*parts: bytes, release: threading.Event | None = None, end: bool = True) -> Behaviour:
    """Sends the parts, all but the first once it is let go; without an end it promises more and hangs up."""

    def behave(handler: Handler) -> None:
        handler.leave()
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("content-length", str(sum(map(len, parts)) + (0 if end else 9)))
        handler.end_headers()
        for number, part in enumerate(parts):
            if number and release is not None:
                assert release.wait(120), "nobody let it go"
            handler.wfile.write(part)
            handler.wfile.flush()

    return behave


ONE, TWO = b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\ndata: [DONE]\n\n'


def test_events_pass_through_byte_by_byte(proxy: Proxy) -> None:
    for cut in range(len(ONE + TWO)):
        proxy.server.always = events((ONE + TWO)[:cut], (ONE + TWO)[cut:])
        answer = proxy.chat(*OLD, user("Hi."), stream=True)
        assert answer.content == ONE + TWO
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-retcon-replaced"] != "0"
    assert proxy.server.seen[-1].body["stream"] is True


def test_events_that_are_packed_pass_through_as_they_are(proxy: Proxy) -> None:
    body = gzip.compress(ONE + TWO)
    proxy.server.always = sends(body, content_type="text/event-stream", content_encoding="gzip")
    assert proxy.chat(user("Hi."), stream=True).content == ONE + TWO  # the client unpacks it


def test_an_endpoint_that_dies_in_the_middle_of_events_ends_them_with_an_error(proxy: Proxy) -> None:
    for cut in range(len(ONE + ONE)):
        proxy.server.always = events((ONE + ONE)[:cut], end=False)
        said = proxy.chat(user("Hi."), stream=True).content
        *whole, last = [part for part in said.split(b"\n\n") if part.strip()]
        assert all(json.loads(part.strip().removeprefix(b"data: ")) == {"n": 1} for part in whole)
        assert len(whole) == ((ONE + ONE)[:cut] + b"!").count(b"}\n")
        assert json.loads(last.strip().removeprefix(b"data: "))["error"]["code"] == "upstream"


def test_an_event_is_passed_on_before_the_next_one_is_there(
    tmp_path: Path, server: Server, release: threading.Event
) -> None:
    server.always = events(ONE, TWO, release=release)
    body = {"messages": [user("Hi.")], "stream": True}
    with (
        served(tmp_path / "a.db", "--proxy", server.base) as running,
        running.http.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        parts = answer.iter_raw()
        said = b""
        while len(said) < len(ONE):
            said += next(parts)
        assert said == ONE
        release.set()
        assert b"".join(parts) == TWO


def test_a_client_that_hangs_up_ends_the_request_to_the_endpoint(
    tmp_path: Path, server: Server, release: threading.Event
) -> None:
    ended = threading.Event()

    def waits_for_the_end(handler: Handler) -> None:
        handler.leave()
        handler.connection.settimeout(120)
        if handler.connection.recv(1) == b"":
            ended.set()

    server.always = waits_for_the_end
    with served(tmp_path / "a.db", "--proxy", server.base) as running:
        body = json.dumps({"messages": [user("Hi.")]}).encode()
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as opened:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
            opened.sendall(head.encode() + body)
            until(lambda: server.seen)
        assert ended.wait(120)


def test_a_client_that_does_not_read_is_cut_off_and_the_endpoint_is_let_go(tmp_path: Path, server: Server) -> None:
    ended = threading.Event()

    def sends_on_and_on(handler: Handler) -> None:
        handler.leave()
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"data: " + b"x" * 60_000 + b"\n\n")
        except OSError:
            ended.set()

    server.always = sends_on_and_on
    with served(tmp_path / "a.db", "--proxy", server.base, "--max-seconds", "1") as running:
        body = json.dumps({"messages": [user("Hi.")]}).encode()
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as opened:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
            opened.sendall(head.encode() + body)
            assert ended.wait(120)
        assert running.http.get("/health").json()["ok"]


def test_a_stop_lets_an_answer_in_events_come_to_its_end(
    tmp_path: Path, server: Server, release: threading.Event
) -> None:
    server.always = events(ONE, TWO, release=release)
    body = {"messages": [user("Hi.")], "stream": True}
    with served(tmp_path / "a.db", "--proxy", server.base) as running:
        with running.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            parts = answer.iter_raw()
            said = next(parts)
            running.process.terminate()
            release.set()
            assert said + b"".join(parts) == ONE + TWO
        assert running.end()[0] == 0


# -- hostile requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_json"), (b"{", 400, "bad_json"), (b"\xff\xfe", 400, "bad_json"), (b"[]", 422, "bad_input"),
        (b"3", 422, "bad_input"), (b"{}", 422, "bad_input"), (b'{"messages": []}', 422, "bad_input"),
        (b'{"messages": 1, "messages": 2}', 400, "bad_json"), (b"[" * 100_000, 400, "bad_json"),
        (b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}', 400, "bad_json"),
        (b'{"messages": [{"role": "user", "content": "a"}], "x": 1e999}', 400, "bad_json"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 422, "bad_input"),
        (b'{"messages": [{"role": "user", "content": "a"}], "user": 3}', 422, "bad_input"),
        (b'{"messages": [{"role": "user", "content": "a", "name": "a\\u0000b"}]}', 422, "bad_input"),
        (b'{"messages": [{"role": "user", "content": "' + b"a" * 100_001 + b'"}]}', 422, "bad_input"),
        (b'{"messages": [' + b'{"role":"user","content":"a"},' * 10_000 + b'{"role":"user"}]}', 422, "bad_input"),
        (b" " * (2**20 + 1), 413, "too_large"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_used_is_one_clear_error_and_goes_nowhere(
    proxy: Proxy, body: bytes, status: int, code: str
) -> None:
    assert error(proxy.http.post("/v1/chat/completions", content=body), status) == code
    assert proxy.server.seen == []
    assert stored(proxy.memory) == []


@pytest.mark.parametrize(
    "options",
    [
        {"base": "localhost:8000"}, {"base": "http://u:p@h/v1"}, {"key": "a\nb"}, {"budget": -1}, {"recent": -1},
        {"seconds": 0.0}, {"user": " "}, {"budget": 40_000},
    ],
)  # fmt: skip
def test_a_proxy_that_cannot_be_is_told_at_once(memory: Memory, options: dict[str, Any]) -> None:
    with pytest.raises(InputError), client(memory, proxy=Upstream(**{"base": "http://127.0.0.1:1/v1", **options})):
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--proxy-user", "ann"), "--proxy URL"), (("--proxy", "nowhere"), "is a URL like"),
        (("--proxy", "http://127.0.0.1:1", "--proxy-key-env", "NOT_SET"), "NOT_SET"),
    ],
)  # fmt: skip
def test_options_of_the_proxy_that_are_off_are_told_in_one_line(db: Path, options: Any, words: str) -> None:
    assert words in complaint("serve", *options)
    assert not db.exists()


# -- long conversations ------------------------------------------------------------------------------------------------


def test_a_turn_costs_the_same_after_300_turns_and_no_fact_is_lost(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    counted: list[str] = []
    connect = connections.connect

    def connect_traced(*given: Any, **named: Any) -> Any:
        opened = connect(*given, **named)
        opened.set_trace_callback(statements.append)
        return opened

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    monkeypatch.setattr(connections, "connect", connect_traced)
    facts = [f"Box {number} holds the thing{number} of shelf{number % 7}." for number in range(300)]
    work: list[tuple[int, int]] = []
    messages: list[dict[str, Any]] = []
    with Memory(tmp_path / "a.db", counter=count) as memory:
        options = {"recent": 60, "budget": 48}
        with client(memory, limits=Limits(rate=0), proxy=upstream(server, **options)) as http:
            opened = Proxy(http, memory, server)
            for number, fact in enumerate(facts):
                messages.append(user(f"{fact} What does Box {number * 7 % (number + 1)} hold?"))
                statements.clear()
                counted.clear()
                answer = opened.chat(*messages)
                work.append((len(statements), sum(map(len, counted))))
                assert count(opened.memory_text) <= 48
                assert len(opened.got) <= 2 * 60 // 8
                messages.append(assistant(answer.json()["choices"][0]["message"]["content"] + f" {number}"))
            told = [note.text for note in memory.get_all()]
            for number in (0, 123, 250):
                opened.chat(*messages, user(f"And what does Box {number} hold?"))
                assert f"thing{number} " in opened.memory_text
    assert told == [each["content"] for each in messages[:-1]]
    for kind in (0, 1):
        early, late = [max(part[kind] for part in work[start : start + 50]) for start in (50, 250)]
        assert late <= 1.25 * early, (early, late)
