"""Until when the work at hand may run. A thread cannot be stopped from outside, so loops that may be long ask here.

    with deadline.until(time.monotonic() + 30):
        ...                     # deep down, once per note or sentence: deadline.check()

Outside of such a block nothing is ever late. The stretch between two checks is bounded, because every text function is
linear and works on one note of bounded length.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context

from retcon.errors import DeadlineError

_END: ContextVar[float] = ContextVar("retcon_deadline", default=math.inf)


@contextmanager
def until(end: float) -> Iterator[None]:
    """A block whose work must be done at `end` on the monotonic clock; within an earlier deadline that one counts."""
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def check() -> None:
    """Nothing, or an error once the deadline has passed."""
    end = _END.get()
    if end != math.inf and time.monotonic() >= end:
        raise DeadlineError("the time for this work is over")


def context(end: float) -> Context:
    """A copy of the caller's context in which the work must be done at `end`: for a thread that does it."""
    with until(end):
        return copy_context()


def seconds_left() -> float:
    """Seconds until the deadline, not below 0; infinity where there is none."""
    end = _END.get()
    return end if end == math.inf else max(0.0, end - time.monotonic())
