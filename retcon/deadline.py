"""Until when the work at hand may run. A thread cannot be stopped from outside, so loops that may be long ask here.

    with deadline.until(time.monotonic() + 30):
        ...                     # deep down, once per note or sentence: deadline.check()

Outside of such a block nothing is ever late. The stretch between two checks is bounded, because every text function is
linear and works on one note of bounded length. A `Stop` makes work late from another thread, because nobody waits for
it any more. A `TimeLimit` is what a caller gives a model for one call; past it there is text all the same.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass

from retcon.errors import DeadlineError, InputError, quote

_END: ContextVar[float] = ContextVar("retcon_deadline", default=math.inf)
_STOP: ContextVar[Stop | None] = ContextVar("retcon_stop", default=None)


class Stop:
    """A switch for work that runs on another thread: once it is set, that work is late, and what it waits for ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: list[Callable[[], object]] = []
        self.is_set = False

    def set(self) -> None:
        """End the work: each thing that is waited for is told, once."""
        with self._lock:
            self.is_set, acts, self._acts = True, self._acts, []
        for act in acts:
            act()

    @contextmanager
    def calling(self, act: Callable[[], object]) -> Iterator[None]:
        """A block in which a stop calls `act`, at once where it came before."""
        with self._lock:
            late = self.is_set
            if not late:
                self._acts.append(act)
        if late:
            act()
        try:
            yield
        finally:
            with self._lock:
                if act in self._acts:
                    self._acts.remove(act)


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The seconds that a caller gives the model for one call, and when on the monotonic clock they are over."""

    seconds: float = math.inf
    end: float = math.inf

    @classmethod
    def of(cls, seconds: float) -> TimeLimit:
        """So many seconds from now on."""
        return cls(seconds, time.monotonic() + check_timeout(seconds))

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.end != math.inf and time.monotonic() >= self.end


UNLIMITED = TimeLimit()


def check_timeout(seconds: float) -> float:
    """The seconds, if a time-out can have so many."""
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not (seconds > 0 and math.isfinite(seconds)):
        raise InputError(f"a time-out is a number of seconds above 0, not {quote(seconds)}")
    return float(seconds)


@contextmanager
def until(end: float) -> Iterator[None]:
    """A block whose work must be done at `end` on the monotonic clock; within an earlier deadline that one counts."""
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def check() -> None:
    """Nothing, or an error once the deadline has passed or the work was stopped."""
    stop, end = _STOP.get(), _END.get()
    if stop is not None and stop.is_set:
        raise DeadlineError("the work was stopped: nobody waits for it")
    if end != math.inf and time.monotonic() >= end:
        raise DeadlineError("the time for this work is over")


def context(end: float = math.inf, stop: Stop | None = None) -> Context:
    """A copy of the caller's context in which work must be done at `end`, or ends with `stop`: for another thread."""
    with until(end):
        found = copy_context()
    if stop is not None:
        found.run(_STOP.set, stop)
    return found


@contextmanager
def on_stop(act: Callable[[], object]) -> Iterator[None]:
    """A block that waits for something: `act` is called, from another thread, when the work is stopped."""
    stop = _STOP.get()
    if stop is None:
        yield
        return
    with stop.calling(act):
        yield


def seconds_left() -> float:
    """Seconds until the deadline, not below 0; infinity where there is none."""
    end = _END.get()
    return end if end == math.inf else max(0.0, end - time.monotonic())
