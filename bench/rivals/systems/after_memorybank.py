"""After MemoryBank: what is not recalled fades along a forgetting curve, exp(-t / S), and each recall strengthens it.

Time goes by sessions, since some histories have no dates. Recalls happen as the history goes on: what is said anew
recalls the nearest older turns if they are near enough. Shown is what is near to the question and has not faded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from bench.rivals.base import Setup
from bench.rivals.systems.vectors import Vectors
from retcon.note import Note

NEAR, RECALLED = 0.5, 3  # cosine from which a turn recalls another, and how many it recalls at most


class MemoryBank:
    """Turns with a strength and the session in which each was last recalled."""

    def __init__(self, setup: Setup) -> None:
        self.turns = Vectors(setup.encode)
        self.strength: NDArray[np.float64] = np.zeros(0)
        self.last: NDArray[np.float64] = np.zeros(0)
        self.now = 0

    def add(self, history: Sequence[Note]) -> None:
        for _, some in groupby(history, key=lambda note: note.session):
            session = list(some)
            before = len(self.turns.texts)
            self.turns.add_turns(session)
            self.now += 1
            self.strength = np.append(self.strength, np.ones(len(session)))
            self.last = np.append(self.last, np.full(len(session), float(self.now)))
            if before:
                self._recall(self.turns.rows[before:] @ self.turns.rows[:before].T)

    def _recall(self, near: NDArray[np.float32]) -> None:
        for row in near:
            places = [place for place in self.turns.best(row, RECALLED) if row[place] >= NEAR]
            self.strength[places] += 1
            self.last[places] = self.now

    def context(self, question: str, budget: int) -> Sequence[str]:
        kept = np.exp(-(self.now - self.last) / self.strength)
        return [self.turns.texts[place] for place in self.turns.best(self.turns.closeness(question) * kept)]


def open(name: str, setup: Setup) -> MemoryBank:  # noqa: A001
    """An empty one."""
    return MemoryBank(setup)
