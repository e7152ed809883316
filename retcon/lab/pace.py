"""How many requests an endpoint is sent, whoever sends: a bound that shrinks when it refuses and grows as it answers.

Whoever is refused slows everybody down: nobody sends before the time that the endpoint asks for is over, then half as
many are under way as before, and one more for every round that is answered.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds: a refusal that names no time is waited out from here, doubling


class Pace:
    """At most `most` requests under way at once. Times are those of `clock`, there for tests like `chance`."""

    def __init__(
        self, most: int, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self.most, self.clock, self.chance = most, clock, chance
        self.room = float(most)
        self._resume = self._slowed = float("-inf")  # when sending goes on; when the bound was last lowered
        self._row = 0  # refusals since the last answer, those of one moment counted once

    def may_send(self, under_way: int) -> bool:
        """Whether one more may go out now."""
        return under_way < int(self.room) and self.wait() == 0.0

    def wait(self) -> float:
        """Seconds for which nothing may go out."""
        return max(0.0, self._resume - self.clock())

    def answered(self) -> None:
        """The endpoint takes what it is sent."""
        self._row = 0
        self.room = min(self.room + 1.0 / self.room, float(self.most))

    def refused(self, sent: float, asked: float | None) -> None:
        """The endpoint refused what went out at `sent`, and asks to wait so many seconds, if it says.

        What had been sent before the bound was lowered says nothing of the new bound.
        """
        if sent > self._slowed:
            self.room, self._slowed, self._row = max(1.0, self.room / 2.0), self.clock(), self._row + 1
        self._resume = max(self._resume, self.clock() + self._delay(asked))

    def _delay(self, asked: float | None) -> float:
        if asked is not None:
            return min(asked + self.chance() * FIRST_WAIT, LONGEST_WAIT)
        return self.chance() * min(FIRST_WAIT * 2.0 ** min(self._row, 10), LONGEST_WAIT)
