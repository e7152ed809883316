"""After OSL-MR: what to retain is learned under a bound on what may be kept; here a share of a history's tokens.

A linear score of a turn, from what is known when it is stored, is fitted to which turns turned out to be evidence in
the other domains (never the one at hand). Turns are kept by score per token until the bound, and search goes over them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bench.domains import load, read_ids
from bench.rivals.base import COUNTER, Setup, lines
from bench.rivals.questions import DOMAINS
from bench.rivals.systems.vectors import Vectors
from retcon.note import Note
from retcon.tokens import counter
from retcon.words import stems

BOUND, PENALTY = 0.5, 1.0
_DIGITS, _NAMES = re.compile(r"\d+"), re.compile(r"(?<=[a-z,] )[A-Z]\w+")


class LearnedRetention:
    """The turns that the learned score keeps."""

    def __init__(self, setup: Setup) -> None:
        self.kept, self.count = Vectors(setup.encode), counter(COUNTER)

    def add(self, history: Sequence[Note]) -> None:
        texts = lines(history)
        costs = np.array([max(self.count(text), 1) for text in texts])
        x = _features(history)
        worth = np.column_stack([np.ones(len(x)), x]) @ _learn(_domain_of(history[0]))
        room, chosen = BOUND * costs.sum(), []
        for place in np.argsort(-worth / costs, kind="stable").tolist():
            if costs[place] <= room:
                room -= costs[place]
                chosen.append(place)
        self.kept.add(texts[place] for place in sorted(chosen))

    def context(self, question: str, budget: int) -> Sequence[str]:
        return self.kept.nearest(question)


def _features(history: Sequence[Note]) -> NDArray[np.float64]:
    """Length, numbers, names, questions, and the share of words that no earlier turn had."""
    seen: set[str] = set()
    rows = []
    for note in history:
        own = set(stems(note.text))
        new = len(own - seen) / max(len(own), 1)
        seen |= own
        text = note.text
        rows.append((np.log1p(len(own)), len(_DIGITS.findall(text)), len(_NAMES.findall(text)), "?" in text, new))
    return np.array(rows, float)


@cache
def _notes_of(domain: str) -> frozenset[tuple[str, str]]:
    histories = {question.conversation: question.history for question in load(domain)}
    return frozenset((note.id, note.text) for history in histories.values() for note in history)


def _domain_of(note: Note) -> str:
    return next((domain for domain in DOMAINS if (note.id, note.text) in _notes_of(domain)), "")


@cache
def _learn(left: str) -> NDArray[np.float64]:
    """Ridge weights of what evidence looks like, over the first wave of the other domains, each weighing the same."""
    xs, ys, weights = [], [], []
    for domain in DOMAINS:
        if domain != left:
            x, y = _evidence(domain)
            xs.append(np.column_stack([np.ones(len(x)), x]))
            ys.append(y)
            weights.append(np.full(len(y), 1 / len(y)))
    x, y, w = np.concatenate(xs), np.concatenate(ys), np.concatenate(weights)
    penalty = PENALTY / 1000 * np.diag([0.0, *[1.0] * (x.shape[1] - 1)])
    return np.linalg.solve((x * w[:, None]).T @ x + penalty, (x * w[:, None]).T @ y)


def _evidence(domain: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features of all turns that the first wave is about, and whether each is evidence of any of its questions."""
    wanted = set(read_ids(domain, "wave1"))
    asked = [question for question in load(domain) if question.id in wanted]
    gold = {note.id for question in asked for note in question.evidence}
    histories = {question.conversation: question.history for question in asked}.values()
    marks = [float(note.id in gold) for history in histories for note in history]
    return np.concatenate([_features(history) for history in histories]), np.array(marks)


def open(name: str, setup: Setup) -> LearnedRetention:  # noqa: A001
    """An empty one."""
    return LearnedRetention(setup)
