"""After A-MEM: every turn becomes a note with keywords and a context of one line, written by a model, and has links.

A note is found by its text with what was written about it, and is linked to its nearest earlier notes; what is shown
are the notes found and, after each, those that it links to. Neighbours are not rewritten as new notes come.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import Setup
from bench.rivals.systems.vectors import Vectors, ask_all
from retcon.note import Note

FOUND, LINKS = 10, 2  # notes found first, and links of each
PROMPT = (
    "Write about this note, on one line: three keywords, then after a semicolon one short phrase that says what it is"
    " about.\nNote: {turn}\nLine:"
)


class LinkedNotes:
    """Notes that are found by more than their words."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.notes, self.links = setup.model, Vectors(setup.encode), list[list[int]]()

    def add(self, history: Sequence[Note]) -> None:
        plain = Vectors(self.notes.encode)
        plain.add_turns(history)
        about = ask_all(self.model, [PROMPT.format(turn=turn) for turn in plain.texts], max_tokens=40)
        self.notes.add(plain.texts, [f"{turn} ({each.strip()})" for turn, each in zip(plain.texts, about, strict=True)])
        near = self.notes.rows @ self.notes.rows.T
        self.links = [self.notes.best(row[:place], LINKS) for place, row in enumerate(near)]

    def context(self, question: str, budget: int) -> Sequence[str]:
        first = self.notes.best(self.notes.closeness(question), FOUND)
        places = dict.fromkeys(each for place in first for each in (place, *self.links[place]))
        return [self.notes.texts[place] for place in places]


def open(name: str, setup: Setup) -> LinkedNotes:  # noqa: A001
    """An empty one."""
    return LinkedNotes(setup)
