"""Listen, serve, and stop without losing what was accepted.

The first SIGTERM or SIGINT closes the door: requests that were accepted are finished and answered, then the threads end
and the caller may close the store. The second ends the process at once; the store is made to survive that too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from retcon.errors import InputError, MissingExtraError
from retcon.memory import Memory
from retcon.server import create_app, logs
from retcon.server.keys import Keys
from retcon.server.limits import Limits
from retcon.server.upstream import Upstream
from retcon.serving import http_server, is_loopback, listen, url_host

HOST, PORT = "127.0.0.1", 8700
TURN = 0.001  # seconds after which a thread at work lets another one go on; by default Python takes 0.005
SLACK = 1.0  # seconds: a body that is late is told so before the connection is closed
FORCED = 1  # exit code after a second signal
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
    log: str = "info",
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the memory until a signal says stop. `ready` is called with the URL once clients can connect."""
    limits = limits or Limits()
    check_host(host, keys)
    app = create_app(memory, keys=keys, limits=limits, reports=reports, proxy=proxy)
    try:
        longest = max(limits.seconds, proxy.seconds if proxy else 0.0)
        server = http_server(
            app, seconds=limits.seconds + SLACK, grace=longest + PATIENCE, connections=limits.connections,
            tell=lambda reason: app.state.service.metrics.count("retcon_refused_total", reason=reason),
        )  # fmt: skip
    except ModuleNotFoundError:
        raise MissingExtraError("the REST service", "server") from None
    opened = listen(host, port)
    sys.setswitchinterval(TURN)
    logs.to_stream(log)
    with _signals(server):
        if ready is not None:
            ready(f"http://{url_host(host)}:{opened.getsockname()[1]}")
        server.run(sockets=[opened])
    logs.LOGGER.info("stopped")


def check_host(host: str, keys: Keys | None) -> None:
    """Nothing, or an error: without keys only this machine may connect."""
    if is_loopback(host) or (keys is not None and keys.exist()):
        return
    raise InputError(
        f"to listen on {host[:80]!r} the server needs keys: 'retcon keys add' makes one; without keys use 127.0.0.1"
    )


@contextlib.contextmanager
def _signals(server: Any) -> Iterator[None]:
    """The first signal asks the server to stop, the second ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        if server.should_exit:
            os._exit(FORCED)
        server.should_exit = True

    server.capture_signals = contextlib.nullcontext  # it would send itself the signal again once it has stopped
    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
