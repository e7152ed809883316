"""Listen, serve, and stop without losing what was accepted.

The first SIGTERM or SIGINT closes the door: requests that were accepted are finished and answered, then the threads end
and the caller may close the store. With a time to drain, the door stays open that long while `/ready` says no. The
second signal ends the process at once; the store is made to survive that too.

One of several processes is told by its parent to retire: the others take new connections, and it closes each of its own
with the next answer on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from retcon.errors import InputError, MissingExtraError
from retcon.memory import Memory
from retcon.server import create_app, logs
from retcon.server.door import Door
from retcon.server.keys import Keys
from retcon.server.limits import Limits
from retcon.server.metrics import Metrics
from retcon.server.processes import RETIRE, Inherited, Supervisor
from retcon.server.readiness import Readiness
from retcon.server.upstream import Upstream
from retcon.serving import http_server, is_loopback, listen, url_host

HOST, PORT = "127.0.0.1", 8700
TURN = 0.001  # seconds after which a thread at work lets another one go on; by default Python takes 0.005
SLACK = 1.0  # seconds: a body that is late is told so before the connection is closed
FORCED = 1  # exit code after a second signal
LINGER = 10.0  # seconds that a retiring process waits for a further request on a connection that it has
SHOW = 1.0  # seconds between two looks at what another process counted
PATIENCE = 60.0  # seconds beyond a request's own limit that a stop waits for the last answer


def serve(
    memory: Memory,
    *,
    host: str = HOST,
    port: int = PORT,
    keys: Keys | None = None,
    limits: Limits | None = None,
    reports: Path | None = None,
    proxy: Upstream | None = None,
    drain: float = 0.0,
    log: str = "info",
    ready: Callable[[str], None] | None = None,
    child: Inherited | None = None,
) -> None:
    """Serve the memory until a signal says stop. `ready` is called with the URL once clients can connect.

    After the first signal it still serves for `drain` seconds, and `/ready` says no. A `child` is one of several
    processes: it listens where its parent does.
    """
    limits = limits or Limits()
    check_host(host, keys)
    readiness = Readiness()
    app = create_app(
        memory, keys=keys, limits=limits, reports=reports, proxy=proxy, readiness=readiness,
        board=child.board if child else None, purges=child is None or child.number == 0,
    )  # fmt: skip
    metrics = app.state.service.metrics
    member = None if child is None else _Member(child, readiness, metrics)
    try:
        longest = max(limits.seconds, proxy.seconds if proxy else 0.0)
        server = http_server(
            app, seconds=limits.seconds + SLACK, grace=longest + PATIENCE, connections=limits.connections,
            tell=lambda reason: metrics.count("retcon_refused_total", reason=reason),
            door=member.open_door if member else None,
        )  # fmt: skip
    except ModuleNotFoundError:
        raise MissingExtraError("the REST service", "server") from None
    opened = listen(host, port) if child is None else child.open_socket()
    sys.setswitchinterval(TURN)
    logs.to_stream(log)
    with _signals(server, readiness, drain, forced=child is None):
        if ready is not None:
            ready(_url(host, opened))
        if member is not None:
            member.leave = partial(_leave, server)
        server.run(sockets=[opened])
    if member is not None:
        member.publish()
    logs.LOGGER.info("stopped")


def supervise(
    workers: int, *, host: str = HOST, port: int = PORT, log: str = "info", ready: Callable[[str], None] | None = None
) -> int:
    """The exit code of so many processes that run this command behind one port, once all have ended."""
    opened = listen(host, port)
    logs.to_stream(log)
    with opened:
        told = (lambda: ready(_url(host, opened))) if ready else (lambda: None)
        return Supervisor(opened, workers, told).run()


def _url(host: str, opened: socket.socket) -> str:
    return f"http://{url_host(host)}:{opened.getsockname()[1]}"


def check_host(host: str, keys: Keys | None) -> None:
    """Nothing, or an error: without keys only this machine may connect."""
    if is_loopback(host) or (keys is not None and keys.exist()):
        return
    raise InputError(
        f"to listen on {host[:80]!r} the server needs keys: 'retcon keys add' makes one; without keys use 127.0.0.1"
    )


class _Member:
    """One of several processes: it says when it is ready, shows what it counts, and retires when it is told to."""

    def __init__(self, child: Inherited, readiness: Readiness, metrics: Metrics) -> None:
        self._child, self._readiness, self._metrics = child, readiness, metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self.leave: Callable[[], None] = lambda: None

    def open_door(self, opened: socket.socket, make: Callable[[], asyncio.Protocol], count: Callable[[], int]) -> Door:
        """Where connections come in; it is called when the service can answer."""
        self._count = count
        self._door = Door(opened, make, self._child.board, count)
        asyncio.get_running_loop().add_reader(self._child.channel, self._hear)
        self._begin(self._show())
        self._child.say_ready()
        return self._door

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _show(self) -> None:
        """Let the other processes read what this one counted, as long as it runs."""
        while True:
            self.publish()
            await asyncio.sleep(SHOW)

    def publish(self) -> None:
        """Show the others what was counted so far."""
        self._child.board.publish(self._metrics.to_dict())

    def _hear(self) -> None:
        """The parent says something, or has ended."""
        asyncio.get_running_loop().remove_reader(self._child.channel)
        self._begin(self._retire(LINGER if self._child.hear() == RETIRE else 0.0))

    async def _retire(self, seconds: float) -> None:
        """Take no further connection, close each with its next answer, and stop when there is none."""
        self._door.close()
        self._readiness.drain()
        end = time.monotonic() + seconds
        while self._count() and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self.leave()


@contextlib.contextmanager
def _signals(server: Any, readiness: Readiness, drain: float, *, forced: bool) -> Iterator[None]:
    """The first signal asks the server to stop, the second ends the process where it may be `forced`.

    One of several processes gets the first from its parent and perhaps from whoever stops the service as a whole; its
    parent is the one to end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    begun: list[threading.Timer] = []

    def stop(_: int, __: FrameType | None) -> None:
        if begun and forced:
            os._exit(FORCED)
        if begun:
            return
        begun.append(threading.Timer(drain, _leave, (server,)))
        if readiness.draining or not drain:
            _leave(server)
        else:
            begun[0].daemon = True
            begun[0].start()
        readiness.drain()

    server.capture_signals = contextlib.nullcontext  # it would send itself the signal again once it has stopped
    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _leave(server: Any) -> None:
    server.should_exit = True
