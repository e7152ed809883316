"""What both servers stand on: plain error lines, sockets, and HTTP that no slow or rude client holds up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError
from serving import until

from retcon.errors import InputError
from retcon.serving import bracketed, complaint, error_body, http_server, is_loopback, line, listening

SECONDS = 0.5  # that a request may take to come in, in these tests


# -- words -------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 50))
def test_line_is_one_printable_line_of_at_most_so_many_characters(text: str, most: int) -> None:
    found = line(text, most)
    assert len(found) <= most
    assert found.isprintable()
    assert error_body("code", text).isascii()


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    number: int = 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "name is missing"),
        ({"name": "x", "zanzibar\n": 1}, "'zanzibar\\n' is not known here"),
        ({"name": "x", "number": "zanzibar"}, "number: Input should be a valid integer"),
        ({"number": "x", "a": 1, "b": 2, "c": 3}, "(and 2 more)"),
    ],
)
def test_complaint_names_the_place_and_quotes_no_value(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        Shape.model_validate(given)
    found = complaint(wrong.value.errors())
    assert told in found
    assert found.isprintable()
    assert "zanzibar" not in found.replace("'zanzibar\\n'", "")


# -- sockets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("LOCALHOST", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_loopback_is_this_machine_alone(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_socket_that_listens_can_be_reached_and_sends_small_answers_at_once(host: str) -> None:
    with listening(host, 0) as opened:
        assert opened.proto == socket.IPPROTO_TCP
        socket.create_connection(("127.0.0.1", opened.getsockname()[1]), timeout=5).close()


@pytest.mark.parametrize("host", ["256.1.1.1", "no such host", "a" * 300, "\udcff", "192.0.2.1"])
def test_address_that_cannot_be_had_is_one_line(host: str) -> None:
    with pytest.raises(InputError, match=r"^cannot listen on") as error:
        listening(host, 0)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


def test_ipv6_stands_in_brackets() -> None:
    assert (bracketed("::1"), bracketed("box.lan")) == ("[::1]", "box.lan")


# -- slow clients ------------------------------------------------------------------------------------------------------


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers `fine` once the whole body is there."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    server = http_server(app, seconds=SECONDS, grace=1)
    with listening("127.0.0.1", 0) as opened:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        until(lambda: server.started)
        yield opened.getsockname()[:2]
        server.should_exit = True
        thread.join(10)


def served(client: socket.socket, request: bytes) -> bool:
    """Whether the app answers the request."""
    client.sendall(request)
    said = b""
    while not said.endswith(b"fine") and (more := client.recv(1000)):
        said += more
    return said.startswith(b"HTTP/1.1 200 OK")


def closed_after(client: socket.socket) -> float:
    """Seconds until the server hangs up; what it said before goes unread."""
    started = time.monotonic()
    client.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while client.recv(65_536):
            pass
    return time.monotonic() - started


BEGUN = [
    b"", b"GET", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
]  # fmt: skip


@pytest.mark.parametrize("begun", BEGUN)
def test_request_that_never_comes_in_is_hung_up_on(address: tuple[str, int], begun: bytes) -> None:
    with socket.create_connection(address) as client:
        client.sendall(begun)
        assert SECONDS * 0.8 <= closed_after(client) < SECONDS + 3


def test_head_that_dribbles_is_hung_up_on_all_the_same(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < started + 10:
                client.sendall(b"A: b\r\n")
                time.sleep(0.05)
        assert time.monotonic() < started + SECONDS + 3


def test_connection_waits_longer_between_requests_and_not_within_one(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=5) as client:
        for _ in range(2):
            assert served(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(SECONDS * 1.5)
        client.sendall(b"GET / HT")
        assert closed_after(client) < SECONDS + 3


@pytest.mark.parametrize(
    "head", [b"A: " + b"x" * 200_000, b"".join(b"A%d: b\r\n" % n for n in range(20_000))], ids=["long", "many"]
)
def test_head_that_is_too_large_is_refused(address: tuple[str, int], head: bytes) -> None:
    with socket.create_connection(address, timeout=5) as client, contextlib.suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        time.sleep(0.1)
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 431")
    with socket.create_connection(address, timeout=5) as client:
        assert served(client, b"GET / HTTP/1.0\r\n\r\n")
