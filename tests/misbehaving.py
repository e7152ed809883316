"""A local server that speaks the chat protocol, well or badly, as each test tells it."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Behaviour = Callable[["Handler"], None]


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any


def completion(text: Any = "fine", **fields: Any) -> dict[str, Any]:
    """A reply in the protocol's shape."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage} | fields


@dataclass
class Server:
    """Answers requests by the queued behaviours in turn, then by `always`. `peak` is the most under way at once."""

    always: Behaviour = field(default_factory=lambda: says(completion()))
    queue: deque[Behaviour] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    peak: int = 0
    active: int = 0
    lock: Any = field(default_factory=threading.Lock)
    port: int = 0  # any that is free

    def __enter__(self) -> Self:
        handler = type("Bound", (Handler,), {"owner": self})
        self.http = _Quiet(("127.0.0.1", self.port), handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up on a slow reply is part of the test."""


class Handler(BaseHTTPRequestHandler):
    """One connection. HTTP/1.0: each request closes it, unless a behaviour says otherwise."""

    owner: Server
    asked: Any
    under_way = False

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.asked = json.loads(self.rfile.read(length) or b"null")
        with self.owner.lock:
            self.owner.seen.append(Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.owner.active += 1
            self.owner.peak = max(self.owner.peak, self.owner.active)
            behave = self.owner.queue.popleft() if self.owner.queue else self.owner.always
        self.under_way = True
        try:
            behave(self)
        finally:
            self.leave()

    def leave(self) -> None:
        """No longer under way: before the last byte goes out, since whoever reads it may come again at once."""
        with self.owner.lock:
            self.owner.active -= self.under_way
            self.under_way = False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """A whole answer."""
        self.leave()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def says(plain: Any, status: int = 200, **headers: str) -> Behaviour:
    """Answers with this as JSON."""
    return lambda handler: handler.reply(status, json.dumps(plain).encode(), **headers)


def sends(body: bytes, status: int = 200, **headers: str) -> Behaviour:
    """Answers with these bytes."""
    return lambda handler: handler.reply(status, body, **headers)


def answers(handler: Handler) -> None:
    """Labels, judges and writes well: its words depend on nothing but the request."""
    asked = handler.asked["messages"][1]["content"]
    digest = hashlib.sha256(json.dumps(handler.asked, sort_keys=True).encode()).hexdigest()
    said = f"record {digest[:6]}" if "<note>" in asked else f"reply {digest[:4]}"
    if "<reply>" in asked:
        said = "yes" if int(digest[:2], 16) % 2 else "No."
    reply = completion(said)
    reply["choices"][0]["logprobs"] = {"content": [{"logprob": -int(digest[2:4], 16) / 256}]}
    handler.reply(200, json.dumps(reply).encode())


def held(release: threading.Event, then: Behaviour | None = None) -> Behaviour:
    """Answers only once it is let go."""

    def behave(handler: Handler) -> None:
        assert release.wait(120), "nobody let it go"
        (then or says(completion()))(handler)

    return behave


def slow(seconds: float, then: Behaviour | None = None) -> Behaviour:
    """Waits before it answers."""

    def behave(handler: Handler) -> None:
        time.sleep(seconds)
        (then or says(completion()))(handler)

    return behave


def drips(release: threading.Event, step: float = 0.02) -> Behaviour:
    """Until it is let go a byte now and then, which no read time-out notices."""

    def behave(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000000")
        handler.end_headers()
        while not release.wait(step):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return behave


def drips_headers(release: threading.Event, step: float = 0.02) -> Behaviour:
    """Header lines without an end, until it is let go."""

    def behave(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
        while not release.wait(step):
            handler.wfile.write(b"x-more: 1\r\n")
            handler.wfile.flush()

    return behave


def cut_off(handler: Handler) -> None:
    """Promises more than it sends."""
    handler.leave()
    body = json.dumps(completion()).encode()
    handler.send_response(200)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])


def hangs_up(handler: Handler) -> None:
    """Closes the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def not_http(handler: Handler) -> None:
    """Speaks another protocol."""
    handler.wfile.write(b"SSH-2.0-x\r\n")
