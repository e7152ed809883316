"""How one of several processes takes its connections from the socket that all of them listen on.

The system wakes every process for a connection. Who has more than another lets that one go first for a moment: so
connections, which clients keep open, are spread evenly. Nobody waits longer than that moment for one who is busy or
dead. A socket for each process (SO_REUSEPORT) would spread them by chance, and lose those that wait at one that ends.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from retcon.server.board import Board

COURTESY = 0.003  # seconds in which a process with fewer connections may take one first
FULL = 0.2  # seconds until another try where the system has no more files


class Door:
    """The listening socket as this process uses it; it is what uvicorn calls a server."""

    def __init__(
        self, opened: socket.socket, make: Callable[[], asyncio.Protocol], board: Board, count: Callable[[], int]
    ) -> None:
        """`make` makes the protocol of a connection, and `count` says how many there are."""
        self._socket, self._make, self._board, self._count = opened, make, board, count
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._closed = self._paused = False
        opened.setblocking(False)
        self._listen()

    @property
    def connections(self) -> int:
        """How many this process has."""
        return self._count() + len(self._opening)

    def close(self) -> None:
        """Take no further connections; the socket stays open for the other processes."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._board.show(self.connections, takes=False)

    async def wait_closed(self) -> None:
        """Wait for the connections that were just taken."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _listen(self) -> None:
        if not self._closed:
            self._board.show(self.connections)
            self._loop.add_reader(self._socket, self._knock)

    def _knock(self) -> None:
        self._board.show(self.connections)
        if self._board.has_more(self.connections):
            self._pause(COURTESY, take=True)
        else:
            self._take()

    def _pause(self, seconds: float, *, take: bool) -> None:
        self._paused = True
        self._loop.remove_reader(self._socket)
        self._loop.call_later(seconds, self._resume, take)

    def _resume(self, take: bool) -> None:
        self._paused = False
        if take and not self._closed:
            self._take()
        if not self._paused:
            self._listen()

    def _take(self) -> None:
        """One connection, if none of the others was quicker."""
        try:
            taken, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:  # no more files: the connection waits
            self._pause(FULL, take=False)
            return
        taken.setblocking(False)
        task: asyncio.Task[object] = self._loop.create_task(self._loop.connect_accepted_socket(self._make, taken))
        self._opening.add(task)
        task.add_done_callback(self._opened)
        self._board.show(self.connections)

    def _opened(self, task: asyncio.Task[object]) -> None:
        self._opening.discard(task)
        if not task.cancelled():
            task.exception()  # a client that is gone already
