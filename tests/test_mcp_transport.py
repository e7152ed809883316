"""How the MCP server is reached, left and ended: cancellation, many clients, keys, headers, signals."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, complaint, document, one_line
from conftest import raw
from mcp_servers import PYTHON, Listening, Talk, by_hand, call, environment, over_http, over_stdio, play, until
from misbehaving import Server, completion, held, says, slow

pytest.importorskip("mcp")

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from retcon import Memory

KEY = "a key of some length"
NOTHING = says(completion("NOT IN MEMORY"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with over_http(tmp_path_factory.mktemp("mcp") / "plain.db") as server:
        yield server


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    db = tmp_path_factory.mktemp("mcp") / "keyed.db"
    options = ("--key-env", "THE_KEY", "--allow-host", "box.lan", "--host", "0.0.0.0")
    with over_http(db, *options, THE_KEY=KEY) as server:
        yield Listening(server.url.replace("0.0.0.0", "127.0.0.1"), db, server.process)


# -- a client that does not wait ---------------------------------------------------------------------------------------


@dataclass
class Thinking:
    """A server with a model that never finds an answer, and takes its time for what is queued."""

    server: Listening
    model: Server


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thinking]:
    db = tmp_path_factory.mktemp("mcp") / "thinking.db"
    with Server(always=NOTHING) as model, over_http(db, "--model", model.base, "--model-name", "m") as server:
        yield Thinking(server, model)


async def impatient(talk: Talk, model: Server, who: str) -> None:
    """Ask, do not wait, and see that no further look is taken, which one who waits would see."""
    release = threading.Event()
    await talk.give("add_memory", text=f"My cat is Pixel. I am {who}.", user_id=who)
    model.queue.append(held(release, NOTHING))
    asked = {"question": f"Which dog has {who}?", "user_id": who}
    asking = asyncio.create_task(talk.client.call_tool("ask_memory", asked, read_timeout_seconds=2))
    await until(lambda: model.active > 0)
    with pytest.raises((MCPError, TimeoutError)):
        await asking
    assert (await talk.give("search_memories", query="cat", user_id=who))["count"] == 1
    release.set()
    await until(lambda: model.active == 0)
    answer = await talk.give("ask_memory", question=f"Which fish has {who}?", user_id=who)
    assert not answer["in_memory"]
    assert "answer" not in answer
    assert len(answer["looks"]) > 1
    assert sum("dog" in json.dumps(one.body) for one in model.seen if who in json.dumps(one.body)) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_question_nobody_waits_for_ends_and_the_server_goes_on_over_http(mode: str, thinking: Thinking) -> None:
    async def scene() -> None:
        async with thinking.server.talk(mode) as talk:
            await impatient(talk, thinking.model, mode)

    play(scene)


def test_a_question_nobody_waits_for_ends_and_the_server_goes_on_over_stdio(tmp_path: Path) -> None:
    async def scene() -> None:
        with Server(always=NOTHING) as model:
            async with over_stdio(tmp_path / "t.db", "--model", model.base, "--model-name", "m") as talk:
                await impatient(talk, model, "ann")

    play(scene)


def test_a_cancelled_write_is_there_whole_or_not_at_all(plain: Listening) -> None:
    turns = [{"role": "user", "content": f"fact number {n} about figs"} for n in range(400)]

    async def scene() -> None:
        async with plain.talk("legacy") as talk:
            for number, patience in enumerate((0.001, 0.01, 0.03, 0.1)):
                who = f"hasty-{number}"
                with contextlib.suppress(MCPError, TimeoutError):
                    await talk.client.call_tool(
                        "add_memory", {"messages": turns, "user_id": who}, read_timeout_seconds=patience
                    )
            await talk.give("add_memory", text="after all of them", user_id="last")

    play(scene)
    with Memory(plain.db) as memory:
        counts = [len(memory.get_all(user_id=f"hasty-{number}")) for number in range(4)]
        assert all(count % len(turns) == 0 for count in counts), counts


def test_questions_that_wait_for_a_model_hold_up_nothing_else(thinking: Thinking) -> None:
    model, who, release = thinking.model, {"user_id": "waiting"}, threading.Event()

    async def scene() -> None:
        async with thinking.server.talk() as talk, thinking.server.talk("legacy") as other:
            await talk.give("add_memory", text="My cat is Pixel.", **who)
            model.queue.extend(held(release) for _ in range(5))
            free = {"wrong_cost": 0, "max_looks": 1, **who}  # so that the first reply is the answer
            asked = [asyncio.create_task(talk.give("ask_memory", question=f"Which cat? {n}", **free)) for n in range(5)]
            await until(lambda: model.active >= 4)
            assert (await other.give("search_memories", query="cat", **who))["count"] == 1
            assert (await talk.give("add_memory", text="Another.", **who))["stored"] == 1
            assert not any(task.done() for task in asked)
            release.set()
            assert all(answer["answer"] == "fine" for answer in await asyncio.gather(*asked))

    play(scene)


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_a_call_that_takes_too_long_ends_and_so_does_its_work(how: str, tmp_path: Path) -> None:
    """A model that hangs: the one who asks is told, and the endpoint is no longer waited for."""
    db = tmp_path / "late.db"

    async def late(talk: Talk, model: Server) -> None:
        await talk.give("add_memory", text="My cat is Pixel.", user_id="ann")
        told = await talk.fail("ask_memory", question="Which cat?", user_id="ann")
        assert told == "not done within 2 seconds; nothing was written"
        assert len(model.seen) <= 1
        assert (await talk.give("search_memories", query="cat", user_id="ann"))["count"] == 1

    async def scene() -> None:
        with Server(always=slow(30)) as model:
            options = ("--model", model.base, "--model-name", "m", "--max-seconds", "2")
            if how == "stdio":
                async with over_stdio(db, *options) as talk:
                    await late(talk, model)
            else:
                with over_http(db, *options) as server:
                    async with server.talk() as talk:
                        await late(talk, model)

    play(scene)


def test_workers_are_idle_again_after_a_call_that_was_late_and_a_write_is_finished() -> None:
    from retcon import deadline
    from retcon.errors import DeadlineError
    from retcon.mcp import ToolWorkers

    go = threading.Event()

    def endless() -> None:
        while True:
            time.sleep(0.001)
            deadline.check()

    async def scene() -> None:
        workers = ToolWorkers(0.2)
        with pytest.raises(DeadlineError, match=r"0\.2 seconds"):
            await workers.run(endless)
        await until(lambda: workers.working == 0)
        asyncio.get_running_loop().call_later(0.5, go.set)
        assert await workers.run(lambda: go.wait(20), writes=True), "it had begun, so it is waited for"
        assert workers.finish(5)

    play(scene)


# -- many clients ------------------------------------------------------------------------------------------------------


def test_clients_of_one_store_lose_nothing_of_each_other(plain: Listening, tmp_path: Path) -> None:
    db = tmp_path / "shared.db"

    async def write(talk: Talk, who: str) -> None:
        await asyncio.gather(*(talk.give("add_memory", text=f"fig {n}", user_id=who) for n in range(8)))
        assert (await talk.give("search_memories", query="fig", top_k=100, user_id=who))["count"] == 8

    async def scene() -> None:
        async with over_stdio(db) as one, over_stdio(db, mode="auto") as two:
            await asyncio.gather(write(one, "one"), write(two, "two"))
        async with plain.talk("legacy") as three, plain.talk("auto") as four:
            await asyncio.gather(write(three, "three"), write(four, "four"))

    play(scene)
    with Memory(db) as memory:
        assert len(memory.get_all()) == 16


# -- who may call over HTTP --------------------------------------------------------------------------------------------


def post(server: Listening, body: bytes = b"{}", **headers: str) -> tuple[int, bytes]:
    """The status and body of a bare request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body, sent | {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    found = reply.status, reply.read()
    connection.close()
    return found


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:1"])
def test_a_name_that_is_not_ours_is_turned_away(host: str, plain: Listening) -> None:
    assert post(plain, host=host)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "https://localhost.evil.example:1", "null"])
def test_a_web_page_from_elsewhere_is_turned_away(origin: str, plain: Listening) -> None:
    assert post(plain, origin=origin)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_web_page_of_another_port_is_turned_away_and_one_of_ours_is_not(host: str, plain: Listening) -> None:
    for origin in (
        f"http://{host}",
        f"http://{host}:{plain.port + 1}",
        f"https://{host}:{plain.port}",
        f"http://{host}:",
    ):
        assert post(plain, origin=origin)[0] == 403, origin
    assert post(plain, origin=f"http://{host}:{plain.port}")[0] not in (401, 403, 421)


def test_a_web_page_that_is_named_is_let_in(tmp_path: Path) -> None:
    with over_http(tmp_path / "o.db", "--allow-origin", "https://box.lan:8443") as server:
        assert post(server, origin="https://box.lan:8443")[0] not in (401, 403, 421)
        for origin in ("https://box.lan", "http://box.lan:8443", "https://box.lan:8443.evil.example"):
            assert post(server, origin=origin)[0] == 403


@pytest.mark.parametrize(
    "host", ["[::1].evil.example", "[::1]:x.evil.example", "127.0.0.1:evil.example", "localhost:1:2"]
)
def test_a_name_that_only_begins_like_ours_is_turned_away(host: str, plain: Listening) -> None:
    assert post(plain, host=host)[0] == 421


@pytest.mark.parametrize("name", ["forwarded", "x-forwarded-for", "X-Forwarded-Host", "x-real-ip", "via"])
def test_without_a_key_what_a_proxy_passes_on_is_turned_away(name: str, plain: Listening, keyed: Listening) -> None:
    status, body = post(plain, b"{}", **{name: "127.0.0.1"})
    assert status == 403
    assert json.loads(body)["error"]["code"] == "proxy"
    assert post(keyed, b"{}", authorization=f"Bearer {KEY}", **{name: "127.0.0.1"})[0] not in (401, 403, 421)


def test_bodies_that_are_too_large_or_no_messages_are_refused_and_the_server_goes_on(plain: Listening) -> None:
    assert post(plain, b"x" * (5 * 2**20))[0] == 413
    for junk in (b"junk", b"\xff", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}', b"[" * 9999):
        status, body = post(plain, junk)
        assert 400 <= status < 500 or (status == 500 and sys.executable != PYTHON)  # so says major 1 of mcp
        assert b"Traceback" not in body

    async def scene() -> None:
        async with plain.talk() as talk:
            assert (await talk.give("add_memory", text="Still here.", user_id="still"))["stored"] == 1

    play(scene)


@pytest.mark.parametrize(
    "sent", [None, "Bearer", "Bearer wrong", f"bearer {KEY}", f"Basic {KEY}", KEY, f"Bearer {KEY} ", "Bearer caf\xe9"]
)
def test_without_the_key_there_is_no_answer(sent: str | None, keyed: Listening) -> None:
    headers: dict[str, Any] = {} if sent is None else {"authorization": sent}
    status, body = post(keyed, **headers)
    if sent == f"Bearer {KEY} ":  # white space around a header's value is no part of it
        assert status != 401
    else:
        assert status == 401
        assert json.loads(body)["error"]["code"] == "key"


@pytest.mark.parametrize("host", ["box.lan", "box.lan:8765", "127.0.0.1:1"])
def test_with_the_key_a_named_host_is_let_in(host: str, keyed: Listening) -> None:
    assert post(keyed, authorization=f"Bearer {KEY}", host=host)[0] not in (401, 403, 421)
    assert post(keyed, authorization=f"Bearer {KEY}", host="evil.example")[0] == 421


def test_with_the_key_the_client_works(keyed: Listening) -> None:
    async def scene() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as web,
            Client(streamable_http_client(keyed.url, http_client=web)) as client,
        ):
            assert (await Talk(client).give("add_memory", text="Hello."))["stored"] == 1
        with pytest.raises(BaseException):  # noqa: B017, PT011  a group of the transport's own errors
            async with Client(keyed.url) as client:
                await client.list_tools()

    play(scene)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_stdio_with_everything_stored(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with by_hand(tmp_path / "t.db") as say:
        for n in range(5):
            say(call(n + 1, "add_memory", text=f"fig {n}"))
        process: subprocess.Popen[bytes] = say(call(9, "add_memory", text="the last fig"), answered=False)
        play(lambda: until(lambda: _stored(tmp_path / "t.db") == 6))
        process.send_signal(number)
        assert process.wait(120) == code
    with Memory(tmp_path / "t.db") as memory:
        assert len(memory.get_all()) == 6


def _stored(db: Path) -> int:
    with contextlib.closing(raw(db)) as connection:
        return int(connection.execute("SELECT count(*) FROM note").fetchone()[0])


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_a_model_that_never_answers_does_not_hold_the_process(how: str, tmp_path: Path) -> None:
    release = threading.Event()
    with Server(always=held(release)) as model:
        options = ("--model", model.base, "--model-name", "slow")
        if how == "stdio":
            with by_hand(tmp_path / "t.db", *options) as say:
                say(call(1, "add_memory", text="My cat is Pixel."))
                process = say(call(2, "ask_memory", question="Which cat?"), answered=False)
                _wait_for(model)
                process.communicate(timeout=110)  # the client went away
                assert process.returncode == 0
        else:
            with over_http(tmp_path / "t.db", *options) as server:
                play(lambda: _ask_in_vain(server, model))
        release.set()


def _wait_for(model: Server) -> None:
    play(lambda: until(lambda: model.active > 0))


async def _ask_in_vain(server: Listening, model: Server) -> None:
    async with server.talk("legacy") as talk:
        await talk.give("add_memory", text="My cat is Pixel.")
        question = asyncio.create_task(talk.client.call_tool("ask_memory", {"question": "Which cat?"}))
        await until(lambda: model.active > 0)
        server.process.terminate()
        assert await asyncio.to_thread(server.process.wait, 110) == 0
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)


def test_stdout_is_the_protocols_alone_and_no_log_holds_a_note(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize",
         "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(1, "add_memory", text="xylophone secret"), call(2, "get_memory", id=["xylophone"]),
        call(3, "add_memory", text="xylophone", metadata={"a": float("nan")}), call(4, "nope", text="xylophone"),
        {"jsonrpc": "2.0", "id": 5, "method": "xylophone", "params": {"a": "xylophone"}},
    ]  # fmt: skip
    command = [sys.executable, "-m", "retcon", "mcp", "--db", str(tmp_path / "t.db")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path
    )
    assert process.stdin is not None
    assert process.stdout is not None
    heard: list[Any] = []
    for line in lines:
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        if "id" in line:
            heard.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=120)
    assert sorted(message["id"] for message in heard) == [0, 1, 2, 3, 4, 5]
    assert rest == b""
    assert b"xylophone" not in errors
    assert b"Traceback" not in errors
    assert process.returncode == 0


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ("--http --host 0.0.0.0", "--key-env"),
        ("--http --host 192.0.2.1", "--key-env"),
        ("--http --host example.com", "--key-env"),
        ("--http --allow-host box.lan", "--key-env"),
        ("--http --key-env NOT_SET", "NOT_SET"),
        ("--http --host 0.0.0.0 --key-env PATH", "--allow-host"),
        ("--http --port 70000", "65535"),
        ("--key-env PATH", "--http"),
        ("--user-id=", "user_id is empty"),
        ("--tools nope", "'nope'"),
        ("--tools ask_memory", "--model"),
        ("--budget -5", "-5"),
        ("--model http://127.0.0.1:1/v1", "--model-name"),
        ("--db no/such/folder/t.db", "no/such/folder"),
        ("--http --host 192.0.2.1 --key-env PATH", "cannot listen on 192.0.2.1"),
    ],
)
def test_bad_use_is_told_in_one_line(options: str, phrase: str, db: Path) -> None:
    assert phrase in complaint("mcp", *options.split())


def test_a_port_that_is_taken_is_told_in_one_line(plain: Listening, db: Path) -> None:
    assert f"port {plain.port}" in complaint("mcp", "--http", "--port", str(plain.port))


def test_the_configuration_it_prints_starts_it(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_DB")
    entry = document("mcp", "--db", "a b.db", "-u", "ann", "--budget", "99", "--no-focus", "--tools", "all")[
        "mcpServers"
    ]["retcon"]
    assert not Path("a b.db").exists()

    async def scene() -> None:
        server = StdioServerParameters(**entry, env=environment(), cwd="/")
        with open(os.devnull, "w") as nowhere:
            async with Client(stdio_client(server, errlog=nowhere)) as client:
                talk = Talk(client)
                await talk.give("add_memory", text="Hello.")
                assert (await talk.give("recall_memories", query="hello"))["budget"] == 99

    play(scene)
    with Memory("a b.db") as memory:
        assert [note.user_id for note in memory.get_all()] == ["ann"]


def test_the_configuration_for_http_names_the_variable_and_not_the_key(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    given = ["--http", "--host", "0.0.0.0", "--allow-host", "box.lan", "--key-env", "THE_KEY"]
    entry = document("mcp", *given)["mcpServers"]["retcon"]
    assert entry["url"] == "http://box.lan:8765/mcp"
    assert entry["headers"] == {"Authorization": "Bearer ${THE_KEY}"}


def test_without_the_extra_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; sys.argv = ['retcon', 'mcp']; from retcon.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False
    )
    assert done.returncode == 2
    assert "pip install 'retcon-memory[mcp]'" in one_line(done.stderr)


def test_other_verbs_load_nothing_of_the_server() -> None:
    code = "import sys, retcon.cli; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(out.stdout.split()) & {"mcp", "pydantic", "uvicorn", "starlette", "anyio"}
