"""An endpoint that is not there, or refuses the key: known at once, remembered for a while, and then tried again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from misbehaving import Server, completion, says, sends
from test_http import ASK, KEY, Waits, client, one, waits

from retcon import Memory
from retcon.errors import AuthError, InputError, ModelError, ModelUnavailableError
from retcon.model import HttpChat, HttpEmbed, Reply
from retcon.model.http import REMEMBER, Endpoint, _Client

__all__ = ["waits"]  # fixtures


class Clock:
    """Seconds that pass only where a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def closed() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else is given."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def ask(model: HttpChat) -> Reply | ModelError:
    (found,) = model([ASK])
    return found


REFUSALS = {"401": sends(b"bad key", 401), "403": sends(b"not you", 403)}


def test_a_refused_connection_is_not_retried(waits: Waits, closed: int) -> None:
    found = one(HttpChat(f"http://127.0.0.1:{closed}", "m", sleep=waits, retries=9))
    assert type(found) is ModelUnavailableError
    assert str(found) == f"http://127.0.0.1:{closed}/v1: no connection (Connection refused)"
    assert waits.seconds == []


def test_a_name_that_nobody_knows_is_not_retried(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unknown(host: Any, *rest: Any, **options: Any) -> Any:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = one(HttpChat("http://nowhere.invalid", "m", sleep=waits, retries=9))
    assert type(found) is ModelUnavailableError
    assert "no connection (Name or service not known)" in str(found)
    assert waits.seconds == []
    assert len(asked) == 1


def test_a_host_with_two_addresses_that_both_refuse_says_why(waits: Waits, closed: int) -> None:
    found = str(one(HttpChat(f"http://localhost:{closed}", "m", sleep=waits)))
    assert "no connection (Connection refused)" in found


def test_a_server_without_encryption_is_no_connection_and_not_retried(server: Server, waits: Waits) -> None:
    found = one(HttpChat(server.base.replace("http:", "https:"), "m", sleep=waits))
    assert type(found) is ModelUnavailableError
    assert waits.seconds == []


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_key_is_asked_with_once_for_a_while_and_then_again(
    server: Server, waits: Waits, clock: Clock, name: str
) -> None:
    server.always = REFUSALS[name]
    model = client(server, waits, clock=clock)
    first = ask(model)
    again = [ask(model) for _ in range(5)]
    assert {type(found) for found in (first, *again)} == {AuthError}
    assert len(server.seen) == 1
    assert all(str(found) == f"{first}; the next try is 30 s after this was first met" for found in again)
    clock.now += REMEMBER - 0.001
    ask(model)
    assert len(server.seen) == 1
    clock.now += 0.001
    assert type(ask(model)) is AuthError
    assert len(server.seen) == 2
    assert type(ask(model)) is AuthError
    assert len(server.seen) == 2  # remembered anew
    model.close()


def test_a_success_clears_what_was_remembered(server: Server, waits: Waits, clock: Clock) -> None:
    model = client(server, waits, clock=clock)
    server.queue.append(REFUSALS["401"])
    assert type(ask(model)) is AuthError
    clock.now += REMEMBER
    assert isinstance(ask(model), Reply)
    assert isinstance(ask(model), Reply)
    server.queue.append(REFUSALS["401"])
    assert type(ask(model)) is AuthError
    model.close()


def test_a_server_that_comes_up_is_found_after_the_while(waits: Waits, clock: Clock) -> None:
    with Server() as gone:
        port = gone.http.server_address[1]
    model = HttpChat(f"http://127.0.0.1:{port}", "m", sleep=waits, clock=clock, remember=5)
    assert type(ask(model)) is ModelUnavailableError
    with Server(port=port) as up:
        assert type(ask(model)) is ModelUnavailableError
        assert up.seen == []
        other = HttpChat(up.base, "m", sleep=waits, clock=clock)
        assert isinstance(ask(other), Reply)  # what a model remembers is its own: others may have another key
        other.close()
        clock.now += 5
        assert isinstance(ask(model), Reply)
    model.close()


def test_403_to_a_key_that_was_good_is_about_one_prompt(server: Server, waits: Waits) -> None:
    """Providers refuse a flagged prompt so: the asks of others go on."""
    model = client(server, waits)
    assert isinstance(ask(model), Reply)
    server.queue.append(REFUSALS["403"])
    assert type(ask(model)) is AuthError
    assert isinstance(ask(model), Reply)
    model.close()


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_other_failures_are_not_remembered(server: Server, waits: Waits, status: int) -> None:
    model = client(server, waits, retries=0)
    server.queue.append(sends(b"no", status))
    assert isinstance(ask(model), ModelError)
    assert isinstance(ask(model), Reply)
    model.close()


def test_a_batch_meets_a_refusal_once_for_each_request_that_was_under_way(server: Server, waits: Waits) -> None:
    server.always = REFUSALS["401"]
    model = client(server, waits, concurrency=2)
    found = model([ASK] * 20)
    model.close()
    assert {type(each) for each in found} == {AuthError}
    assert len(server.seen) <= 2


def test_remember_may_be_off_and_is_no_negative_number(server: Server, waits: Waits) -> None:
    server.always = REFUSALS["401"]
    model = client(server, waits, remember=0)
    assert [type(ask(model)) for _ in range(3)] == [AuthError] * 3
    model.close()
    assert len(server.seen) == 3
    for odd in (-1, float("nan")):
        with pytest.raises(InputError, match="remembered"):
            Endpoint("http://localhost", remember=odd)


def test_the_key_is_not_in_what_is_remembered(server: Server, waits: Waits) -> None:
    server.always = sends(f"who is {KEY}".encode(), 401)
    model = client(server, waits)
    assert KEY not in f"{ask(model)} {ask(model)} {model!r}"
    model.close()


def test_an_embedder_remembers_too(server: Server) -> None:
    server.always = REFUSALS["401"]
    embed = HttpEmbed(server.base, "m", KEY, dim=2)
    for _ in range(3):
        with pytest.raises(AuthError):
            embed(["a cat"])
    embed.close()
    assert len(server.seen) == 1


# -- in a memory -------------------------------------------------------------------------------------------------------


def test_recall_falls_back_at_once_and_ask_says_at_once_that_nobody_is_there(
    path: Path, closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    exchange = _Client._exchange

    async def counted(self: _Client, where: str, body: bytes) -> Any:
        tried.append(where)
        return await exchange(self, where, body)

    monkeypatch.setattr(_Client, "_exchange", counted)
    with Memory(path, model=f"http://127.0.0.1:{closed}", model_name="m") as memory:
        memory.add([f"The cat Pixel has check-up number {n} on {n} June." for n in range(1, 13)])
        for _ in range(3):
            found = memory.recall("When is the check-up?", 30, action="rewrite")
            assert found.text
            assert found.action in ("extract", "retain")
            (warning,) = found.warnings
            assert "Connection refused" in warning
            with pytest.raises(ModelUnavailableError, match="Connection refused"):
                memory.ask("When is the check-up?", 30)
    assert len(tried) <= 8  # as many as a model has under way at once; twelve notes and three asks have more to say


@pytest.mark.parametrize("name", REFUSALS)
def test_a_memory_pays_a_refused_key_one_request(path: Path, server: Server, name: str) -> None:
    server.always = REFUSALS[name]
    with Memory(path, model=server.base, model_name="m", api_key=KEY) as memory:
        memory.add([f"The cat Pixel has check-up number {n} on {n} June." for n in range(1, 13)])
        for action in ("merge", "abstract", "hybrid"):
            assert memory.recall("When is the check-up?", 30, action=action).warnings
        with pytest.raises(AuthError):
            memory.ask("When is the check-up?", 30)
    assert len(server.seen) == 1


def test_a_memory_goes_on_with_a_server_that_answers(path: Path, server: Server) -> None:
    server.always = says(completion("on 3 June"))
    with Memory(path, model=server.base, model_name="m") as memory:
        memory.add("The cat Pixel has a check-up on 3 June.")
        assert memory.ask("When is the check-up?", 30).text == "on 3 June"
