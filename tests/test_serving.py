"""What both servers stand on: plain error lines, sockets, and HTTP that no slow or rude client holds up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError
from waiting import until

from retcon.errors import InputError
from retcon.serving import (
    MOST_HEAD,
    MOST_HEADERS,
    ConnectionLimit,
    complaint,
    error_body,
    host_name,
    http_server,
    is_loopback,
    listen,
    one_line,
    url_host,
)

SECONDS = 0.5  # that a request may take to come in, in these tests


# -- words -------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 50))
def test_line_is_one_printable_line_of_at_most_so_many_characters(text: str, most: int) -> None:
    found = one_line(text, most)
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
        ({"name": "x", "number": "zanzibar"}, "number is a whole number"),
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
    with listen(host, 0) as opened:
        assert opened.proto == socket.IPPROTO_TCP
        socket.create_connection(("127.0.0.1", opened.getsockname()[1]), timeout=120).close()


@pytest.mark.parametrize("host", ["256.1.1.1", "no such host", "a" * 300, "\udcff", "192.0.2.1"])
def test_address_that_cannot_be_had_is_one_line(host: str) -> None:
    with pytest.raises(InputError, match=r"^cannot listen on") as error:
        listen(host, 0)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("header", "name"),
    [("localhost", "localhost"), ("127.0.0.1:80", "127.0.0.1"), ("[::1]", "::1"), ("[::1]:8700", "::1"),
     ("[::1].evil.example", ""), ("[::1]evil.example", ""), ("[::1]:x.evil.example", ""), ("[localhost]", ""),
     ("127.0.0.1:evil.example", ""), ("evil.example@127.0.0.1", ""), ("a b", ""), ("", ""), ("::1", ""),
     ("localhost:", ""), ("localhost:123456", "")],
)  # fmt: skip
def test_a_host_header_is_a_name_and_a_port_or_nothing(header: str, name: str) -> None:
    assert host_name(header) == name


def test_ipv6_stands_in_brackets() -> None:
    assert (url_host("::1"), url_host("box.lan")) == ("[::1]", "box.lan")


# -- slow clients ------------------------------------------------------------------------------------------------------


LARGE = 40  # MiB of an answer, more than any system keeps for a socket that is not read


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers `fine` once the whole body is there; at /large much more, piece by piece; at /whole in one piece."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    pieces = {"/large": [bytes(65_536)] * (LARGE * 16), "/whole": [bytes(LARGE * 2**20)]}.get(scope["path"], [b"fine"])
    length = str(sum(map(len, pieces))).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    for number, piece in enumerate(pieces, 1):
        await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})


@dataclass
class Listening:
    """A server in a thread, and what it told."""

    address: tuple[str, int]
    server: Any
    told: list[str]

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)


@contextlib.contextmanager
def running(seconds: float, **options: Any) -> Iterator[Listening]:
    told: list[str] = []
    server = http_server(app, seconds=seconds, grace=1, tell=told.append, **options)
    with listen("127.0.0.1", 0) as opened:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        until(lambda: server.started)
        try:
            yield Listening(opened.getsockname()[:2], server, told)
        finally:
            server.should_exit = True
            thread.join(120)


@pytest.fixture(scope="module")
def served_here() -> Iterator[Listening]:
    with running(SECONDS) as server:
        yield server


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[str, int]]:
    """A server that a busy machine is never too slow for."""
    with running(30) as server:
        yield server.address


@pytest.fixture
def address(served_here: Listening) -> tuple[str, int]:
    return served_here.address


def served(client: socket.socket, request: bytes) -> bool:
    """Whether the app answers the request."""
    client.sendall(request)
    said = b""
    while not said.endswith(b"fine") and (more := client.recv(1000)):
        said += more
    return said.startswith(b"HTTP/1.1 200 OK")


def is_hung_up_on(client: socket.socket) -> bool:
    """Whether the server hangs up at last; what it said before goes unread."""
    client.settimeout(120)
    with contextlib.suppress(ConnectionError):
        while client.recv(65_536):
            pass
    return True


def sent(client: socket.socket, line: bytes) -> bool:
    """Whether the other side still takes what is sent."""
    try:
        client.sendall(line)
    except ConnectionError:
        return False
    return True


BEGUN = [
    b"", b"GET", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
]  # fmt: skip


@pytest.mark.parametrize("begun", BEGUN)
def test_request_that_never_comes_in_is_hung_up_on(address: tuple[str, int], begun: bytes) -> None:
    started = time.monotonic()
    with socket.create_connection(address) as client:
        client.sendall(begun)
        assert is_hung_up_on(client)
    assert time.monotonic() - started >= SECONDS * 0.8


def test_head_that_dribbles_is_hung_up_on_all_the_same(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        until(lambda: not sent(client, b"A: b\r\n"))


def test_connection_waits_longer_between_requests_and_not_within_one(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=120) as client:
        for _ in range(2):
            assert served(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(SECONDS * 1.5)
        client.sendall(b"GET / HT")
        assert is_hung_up_on(client)


@pytest.mark.parametrize(
    "head", [b"A: " + b"x" * 200_000, b"".join(b"A%d: b\r\n" % n for n in range(20_000))], ids=["long", "many"]
)
def test_head_that_is_too_large_is_refused(address: tuple[str, int], head: bytes) -> None:
    with socket.create_connection(address, timeout=120) as client, contextlib.suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        time.sleep(0.1)
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 431")
    with socket.create_connection(address, timeout=120) as client:
        assert served(client, b"GET / HTTP/1.0\r\n\r\n")


# -- clients that do not read ------------------------------------------------------------------------------------------


def deaf(address: tuple[str, int], path: str) -> socket.socket:
    """A client that asks and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("path", ["/large", "/whole"])
def test_client_that_does_not_take_its_answer_is_dropped(path: str) -> None:
    with contextlib.ExitStack() as opened, running(SECONDS) as server:
        for _ in range(5):
            opened.enter_context(deaf(server.address, path))
        until(lambda: server.told.count("unread") == 5)
        until(lambda: server.connections == 0)
        with socket.create_connection(server.address, timeout=5) as client:
            assert served(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_client_that_reads_gets_all_of_a_large_answer() -> None:
    with running(30) as server, deaf(server.address, "/large") as client:
        client.settimeout(20)
        read = 0
        while read < LARGE * 2**20 and (more := client.recv(2**20)):
            read += len(more)
        assert read >= LARGE * 2**20
        assert server.told == []


# -- HTTP that two readers could read in two ways ----------------------------------------------------------------------


def said(address: tuple[str, int], request: bytes) -> bytes:
    """All that the server says to the request before it hangs up."""
    found = b""
    with socket.create_connection(address, timeout=10) as client, contextlib.suppress(ConnectionError):
        client.sendall(request)
        while more := client.recv(65_536):
            found += more
    return found


@pytest.mark.parametrize("first", [b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked"])
def test_a_length_and_a_transfer_encoding_together_are_refused(patient: tuple[str, int], first: bytes) -> None:
    body = b"4\r\nfour\r\n0\r\n\r\n"
    answer = said(patient, b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + first + b"\r\n\r\n" + body)
    if b"Length" in first:
        assert answer.startswith(b"HTTP/1.1 400")
        assert b'"code": "http"' in answer
        assert b"not both" in answer
    else:
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("lengths", [(4, 5), (5, 4)])
def test_two_lengths_that_differ_are_refused(patient: tuple[str, int], lengths: tuple[int, int]) -> None:
    given = b"".join(b"Content-Length: %d\r\n" % length for length in lengths)
    assert said(patient, b"POST / HTTP/1.1\r\nHost: x\r\n" + given + b"\r\nfour!").startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"A: " + b"x" * 120_000 + b"\r\n", 431),
        (b"A: b\r\n" * 20_000, 431),
        (b"A: b\r\n" * MOST_HEADERS, 431),
        (b"A: b\r\n" * (MOST_HEADERS - 10), 200),
        (b"A: " + b"x" * (MOST_HEAD - 200) + b"\r\n", 200),
    ],
    ids=["long", "very many", "many", "some", "fits"],
)
def test_the_whole_of_a_head_is_bounded_also_where_it_comes_in_one_piece(
    patient: tuple[str, int], head: bytes, status: int
) -> None:
    answer = said(patient, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status) or (not answer and status == 431)  # reset while it still sent


# -- too many connections ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Guest:
    """A connection that only counts."""

    limit: ConnectionLimit
    address: str
    waits: bool = True
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True
        self.limit.leave(self)


def test_who_has_most_connections_loses_the_oldest_that_waits() -> None:
    limit = ConnectionLimit(5)
    guests = [Guest(limit, who) for who in ("ann", "eve", "eve", "eve", "ann")]
    guests[1].waits = False
    for guest in guests:
        limit.enter(guest)
    assert len(limit) == 5
    limit.enter(late := Guest(limit, "bob"))
    assert [guest.dropped for guest in (*guests, late)] == [False, False, True, False, False, False]
    for guest in guests:
        guest.waits = False
    late.waits = False
    limit.enter(last := Guest(limit, "ann", waits=False))
    assert last.dropped, "nobody who is answered goes"
    assert len(limit) == 5


def test_who_never_had_an_answer_goes_before_who_pauses() -> None:
    limit = ConnectionLimit(3)
    guests = [Guest(limit, "proxy") for _ in range(4)]
    for guest in guests:
        limit.enter(guest)
        if guest is guests[0]:
            limit.mark_answered(guest)
    assert [guest.dropped for guest in guests] == [False, True, False, False]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans())), st.integers(1, 4))
def test_a_crowd_is_never_larger_than_it_may_be(events: list[tuple[str, bool, bool]], most: int) -> None:
    limit = ConnectionLimit(most)
    inside: list[Guest] = []
    for who, waits, leaves in events:
        limit.enter(guest := Guest(limit, who, waits))
        inside = [each for each in (*inside, guest) if not each.dropped]
        if leaves and inside:
            limit.leave(inside.pop(0))
        assert len(limit) == len(inside) <= most


def test_many_connections_of_one_address_leave_room_for_another() -> None:
    with contextlib.ExitStack() as opened, running(30, connections=20) as server:
        honest = opened.enter_context(socket.create_connection(server.address, timeout=10))
        assert served(honest, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(60):
            opened.enter_context(socket.create_connection(server.address, source_address=("127.0.0.2", 0)))
        until(lambda: server.told.count("connections") == 41)
        until(lambda: server.connections == 20)
        assert served(honest, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "an idle one of who has few stays"
        other = opened.enter_context(socket.create_connection(server.address, timeout=10))
        assert served(other, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: server.connections == 20)
