"""Listen, serve, and stop without losing what was accepted.

The first SIGTERM or SIGINT closes the door: requests that were accepted are finished and answered, then the threads end
and the caller may close the store. The second ends the process at once; the store is made to survive that too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from retcon.errors import InputError, MissingExtraError
from retcon.memory import Memory
from retcon.server import create_app, logs
from retcon.server.gate import is_loopback
from retcon.server.keys import Keys
from retcon.server.limits import Limits

HOST, PORT = "127.0.0.1", 8700
FORCED = 1  # exit code after a second signal
PATIENCE = 60.0  # seconds beyond a request's own limit that a stop waits for the last answer


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def serve(
    memory: Memory,
    *,
    host: str = HOST,
    port: int = PORT,
    keys: Keys | None = None,
    limits: Limits | None = None,
    reports: Path | None = None,
    log: str = "info",
    ready: Callable[[Address], None] | None = None,
) -> None:
    """Serve the memory until a signal says stop. `ready` is called with the address once clients can connect."""
    uvicorn = _library()
    limits = limits or Limits()
    check_host(host, keys)
    app = create_app(memory, keys=keys, limits=limits, reports=reports)
    listening = _listen(host, port)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", server_header=False, proxy_headers=False, ws="none",
        timeout_graceful_shutdown=int(limits.seconds + PATIENCE), timeout_keep_alive=30, backlog=256,
        h11_max_incomplete_event_size=16_384,
    )  # fmt: skip
    logs.to_stream(log)
    server = uvicorn.Server(config)
    with _signals(server):
        if ready is not None:
            ready(Address(host, listening.getsockname()[1]))
        server.run(sockets=[listening])
    logs.LOGGER.info("stopped")


def check_host(host: str, keys: Keys | None) -> None:
    """Nothing, or an error: without keys only this machine may connect."""
    if is_loopback(host) or (keys is not None and keys.exist()):
        return
    raise InputError(
        f"to listen on {host[:80]!r} the server needs keys: 'retcon keys add' makes one; without keys use 127.0.0.1"
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named: 40 ms a request otherwise
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(256)
        return listening
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host[:80]}:{port}: {why}") from None


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


def _library() -> Any:
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("the REST service", "server") from None
    return uvicorn
