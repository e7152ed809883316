"""The newest turns that fit: what a chat does that keeps no memory."""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import COUNTER, Setup, fit, lines
from retcon.note import Note
from retcon.tokens import counter


class Newest:
    """Whole turns from the end, shown in their order; of the newest its beginning where it alone is too long."""

    def __init__(self) -> None:
        self.count, self.turns = counter(COUNTER), list[str]()

    def add(self, history: Sequence[Note]) -> None:
        self.turns += lines(history)

    def context(self, question: str, budget: int) -> Sequence[str]:
        kept: list[str] = []
        for turn in reversed(self.turns):
            if kept and self.count("\n".join([turn, *kept])) > budget:
                break
            kept.insert(0, turn)
        return [fit(kept, budget, self.count)]


def open(name: str, setup: Setup) -> Newest:  # noqa: A001
    """An empty one."""
    return Newest()
