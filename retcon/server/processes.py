"""Several processes behind one port: a parent that listens, starts them, watches them and passes signals on.

Each child is the same command again, with the listening socket handed down: so a child that is started later, after a
crash or for a rolling restart, runs the code and reads the settings of that moment. A child says when it is ready. One
that dies is started again. SIGHUP replaces them one by one: the new one is ready before the old one is told to retire.
The first SIGTERM or SIGINT lets all of them finish, the second ends all of them at once. A child whose parent is gone
finishes what it has and ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from retcon.errors import InputError
from retcon.server import logs
from retcon.server.board import Board
from retcon.server.metrics import Metrics

VARIABLE = "RETCON_SERVE_CHILD"  # how a child is told what it inherits
MOST = 64  # processes
READY, RETIRE = b"1", b"r"
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before the next start of a child that keeps dying
STEADY = 60.0  # seconds after which a child counts as one that does not keep dying
FORCED = 1


# -- a child's side ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a child has from its parent."""

    listening: int
    channel: int  # to the parent; it ends when the parent does
    board: Board
    number: int  # from 0; the same for the one that takes its place

    def open_socket(self) -> socket.socket:
        """The socket that all processes listen on."""
        return socket.socket(fileno=self.listening)

    def say_ready(self) -> None:
        """Let the parent know that requests are served."""
        with contextlib.suppress(OSError):
            os.write(self.channel, READY)

    def hear(self) -> bytes:
        """What the parent says; nothing where it has ended."""
        with contextlib.suppress(OSError):
            return os.read(self.channel, 1)
        return b""


def inherited() -> Inherited | None:
    """What this process has from a parent, where it is a child."""
    given = os.environ.pop(VARIABLE, "")
    if not given:
        return None
    listening, channel, board, slot, number = map(int, given.split(":"))
    for fd in (listening, channel, board):
        os.set_inheritable(fd, False)
    return Inherited(listening, channel, Board(board, slot), number)


# -- the parent's ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Child:
    """One process as its parent knows it."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    number: int
    slot: int
    started: float
    ready: bool = False
    retiring: bool = False


@dataclass(slots=True)
class Supervisor:
    """Starts and watches so many processes, until a signal says stop."""

    listening: socket.socket
    count: int
    ready: Callable[[], None]  # called once, when all serve
    _board: Board = field(init=False)
    _children: list[Child] = field(default_factory=list)
    _due: list[tuple[float, int]] = field(default_factory=list)  # when to start a child, and its number
    _deaths: dict[int, int] = field(default_factory=dict)  # in a row, by number
    _rolling: deque[int] = field(default_factory=deque)  # numbers that wait to be replaced
    _told: bool = False  # that all serve
    _stops: int = 0
    _code: int = 0
    _events: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def run(self) -> int:
        """The exit code, once every child has ended."""
        self._board = Board.make(2 * self.count + 2)
        with self._signals() as wakeup:
            self._events.register(wakeup, selectors.EVENT_READ, None)
            self._start(0)  # alone: it may have to make the store, or to say why it cannot
            while self._children or (self._due and not self._stops):
                self._turn(wakeup)
        self._events.close()
        self._board.close()
        return self._code

    def _turn(self, wakeup: socket.socket) -> None:
        for key, _ in self._events.select(self._wait()):
            if key.data is None:
                for number in wakeup.recv(4096):
                    self._hear(number)
            else:
                self._listen_to(key.data)
        self._reap()
        now = time.monotonic()
        for at, number in [each for each in self._due if each[0] <= now and not self._stops]:
            self._due.remove((at, number))
            self._start(number)

    def _wait(self) -> float | None:
        return max(0.0, min(at for at, _ in self._due) - time.monotonic()) if self._due and not self._stops else None

    def _hear(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP and not self._stops and self._told:
            logs.event(logging.INFO, "rolling restart")
            self._rolling = deque(dict.fromkeys((*self._rolling, *range(self.count))))
            self._roll()

    def _listen_to(self, child: Child) -> None:
        with contextlib.suppress(OSError):
            if child.channel.recv(64):
                child.ready = True
                self._go_on(child)
                return
        self._events.unregister(child.channel)  # it has ended, or will

    def _go_on(self, child: Child) -> None:
        """What comes next when a child serves."""
        logs.event(logging.INFO, "process ready", process=child.number, pid=child.process.pid)
        older = [each for each in self._children if each.number == child.number and each is not child]
        for each in older:
            self._retire(each)
        if self._rolling and self._rolling[0] == child.number:
            self._rolling.popleft()
            self._roll()
        if not self._told and not self._stops:
            missing = set(range(self.count)) - {each.number for each in self._children}
            for number in sorted(missing):
                self._start(number)
            if not missing and all(each.ready for each in self._children):
                self._told = True
                self.ready()

    # -- starting and ending -------------------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        taken = {child.slot for child in self._children}
        slot = next(each for each in range(1, self._board.slots) if each not in taken)
        fds = (self.listening.fileno(), theirs.fileno(), self._board.fd)
        told = ":".join(map(str, (*fds, slot, number)))
        command = [sys.executable, *sys.orig_argv[1:]]
        with theirs:
            process = subprocess.Popen(
                command, pass_fds=fds, env=os.environ | {VARIABLE: told}, stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the parent, which passes it on once
            )  # fmt: skip
        child = Child(process, ours, number, slot, time.monotonic())
        self._children.append(child)
        self._events.register(ours, selectors.EVENT_READ, child)

    def _retire(self, child: Child) -> None:
        if not child.retiring:
            child.retiring = True
            with contextlib.suppress(OSError):
                child.channel.send(RETIRE)

    def _stop(self) -> None:
        self._stops += 1
        self.listening.close()  # or who comes later would wait for nobody
        if self._stops > 1:
            self._code = FORCED
        for child in self._children:
            child.process.send_signal(signal.SIGKILL if self._stops > 1 else signal.SIGTERM)

    def _reap(self) -> None:
        for child in [each for each in self._children if each.process.poll() is not None]:
            self._children.remove(child)
            with contextlib.suppress(KeyError):
                self._events.unregister(child.channel)
            child.channel.close()
            self._keep_counts(child.slot)
            self._miss(child, child.process.returncode)
            self._roll()

    def _miss(self, child: Child, code: int) -> None:
        """What comes next when a child has ended."""
        if self._stops or child.retiring:
            in_time = child.ready or code != -signal.SIGTERM  # it had not begun to listen to signals
            self._code = max(self._code, int(code != 0 and in_time and not child.retiring))
            return
        if not self._told:  # it has said why
            self._code = abs(code) or FORCED
            self._stop()
            return
        logs.event(logging.ERROR, "process ended", process=child.number, pid=child.process.pid, code=code)
        twins = [each for each in self._children if each.number == child.number]
        if any(each.started < child.started for each in twins):
            logs.event(logging.ERROR, "rolling restart given up", process=child.number)
            self._rolling.clear()  # the one that it was to replace goes on
        elif not twins:
            self._start_again(child)

    def _start_again(self, child: Child) -> None:
        steady = child.ready and time.monotonic() - child.started > STEADY
        deaths = 0 if steady else self._deaths.get(child.number, 0)
        self._deaths[child.number] = deaths + 1
        self._due.append((time.monotonic() + PAUSES[min(deaths, len(PAUSES) - 1)], child.number))

    def _roll(self) -> None:
        """Start the next one that takes another's place, unless one is on its way, or too many still finish."""
        while self._rolling and not self._stops:
            held = [each for each in self._children if each.number == self._rolling[0] and not each.retiring]
            if any(not each.ready for each in held) or len(self._children) >= self._board.slots - 1:
                return
            if held:
                self._start(held[0].number)
                return
            self._rolling.popleft()  # it has died, and is being started anyway

    def _keep_counts(self, slot: int) -> None:
        """Add what an ended process counted to the parent's slot; its gauges ended with it."""
        counted = self._board.take(slot)
        if counted is not None:
            before = self._board.take(self._board.slot)
            ended = Metrics.sum([*([before] if before else []), counted | {"gauges": []}])
            self._board.publish(ended.to_dict())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """A socket on which the numbers of signals arrive."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        before: dict[int, Any] = {each: signal.signal(each, lambda *_: None) for each in wanted}
        old = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(old)
            for each, handler in before.items():
                signal.signal(each, handler)
            reading.close()
            writing.close()


def check_count(count: int) -> None:
    """Nothing, or an error where the system cannot hand a socket down to another process, or so many are too many."""
    if os.name != "posix":
        raise InputError("--workers needs a system that hands open sockets on to other processes: Linux, macOS or BSD")
    if not 1 <= count <= MOST:
        raise InputError(f"--workers is a number from 1 to {MOST}, not {count}")
