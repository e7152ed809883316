"""After RecMem: turns stay as they are until something recurs; what recurs is consolidated into one record.

A turn that is near to earlier ones joins their group; a group of three is written into one record by the model, anew
each time it has grown by three. A record stands in for the turns of its group.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import Setup
from bench.rivals.systems.vectors import Vectors, ask_all
from retcon.note import Note

NEAR, RECURS, LARGEST = 0.6, 3, 12  # cosine within a group; turns that make a record; turns of one at most
PROMPT = (
    "These notes are about one thing that came up again and again. Write one short note that keeps every fact, name and"
    " date in them.\n\n{turns}\n\nNote:"
)


class RecMem:
    """Groups of turns, and records of the groups that recur."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.turns, self.shown = setup.model, Vectors(setup.encode), Vectors(setup.encode)

    def add(self, history: Sequence[Note]) -> None:
        self.turns.add_turns(history)
        groups = self._groups()
        recurring = [group for group in groups if len(group) >= RECURS]
        texts = ["\n".join(self.turns.texts[place] for place in group) for group in recurring]
        self.shown.add(ask_all(self.model, [PROMPT.format(turns=text) for text in texts], max_tokens=128))
        self.shown.add(self.turns.texts[place] for group in groups if len(group) < RECURS for place in group)

    def _groups(self) -> list[list[int]]:
        """Each turn goes to the group whose first turn is nearest, if it is near enough, or begins one."""
        groups: list[list[int]] = []
        for place, row in enumerate(self.turns.rows):
            open_ones = [group for group in groups if len(group) < LARGEST]
            near = self.turns.rows[[group[0] for group in open_ones]] @ row if open_ones else []
            best = max(range(len(open_ones)), key=lambda i: float(near[i]), default=None)
            if best is not None and near[best] >= NEAR:
                open_ones[best].append(place)
            else:
                groups.append([place])
        return groups

    def context(self, question: str, budget: int) -> Sequence[str]:
        return self.shown.nearest(question)


def open(name: str, setup: Setup) -> RecMem:  # noqa: A001
    """An empty one."""
    return RecMem(setup)
