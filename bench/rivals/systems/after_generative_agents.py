"""After Generative Agents: recency, importance and relevance, each from 0 to 1, added up.

Recency decays by .995 an hour, or a turn where there are no dates; a model rates the importance of every turn from 1 to
10; relevance is the cosine to the question. Reflections and plans are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from bench.rivals.base import Setup
from bench.rivals.endpoint import Call
from bench.rivals.systems.vectors import Vectors, ask_all, scale
from retcon.lab.data.question import moment
from retcon.note import Note

DECAY = 0.995
PROMPT = (
    "On a scale of 1 to 10, where 1 is an everyday matter (brushing teeth, making the bed) and 10 is a turning point in"
    " a life (a break-up, a place at a university), how important is this memory likely to be?\nMemory: {turn}\nReply"
    " with one number."
)
_NUMBER = re.compile(r"\d+")


class GenerativeAgents:
    """Turns with a time and an importance each."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.turns = setup.model, Vectors(setup.encode)

    def add(self, history: Sequence[Note]) -> None:
        self.turns.add_turns(history)
        said = ask_all(self.model, [PROMPT.format(turn=turn) for turn in self.turns.texts], max_tokens=4)
        self.importance = np.array([_rating(each) for each in said])
        stamps = [note.timestamp for note in history]
        if all(stamps):
            hours = np.array([moment(str(each)).timestamp() / 3600 for each in stamps])
        else:
            hours = np.arange(len(history), dtype=float)
        self.recency = DECAY ** (hours.max() - hours)

    def context(self, question: str, budget: int) -> Sequence[str]:
        near = self.turns.closeness(question)
        return [
            self.turns.texts[place]
            for place in self.turns.best(scale(self.recency) + scale(self.importance) + scale(near))
        ]


def _rating(said: str) -> float:
    found = _NUMBER.search(said)
    return float(min(max(int(found[0]), 1), 10)) if found else 1.0


def parsed(call: Call) -> bool:
    """Whether there is a number in the reply."""
    return _NUMBER.search(call.text) is not None


def open(name: str, setup: Setup) -> GenerativeAgents:  # noqa: A001
    """An empty one."""
    return GenerativeAgents(setup)
