"""Questions of a domain, a finder -> columns: one character a question, so that every score can be kept.

A column of gold notes holds how many were found, in base 36; a column of an answer's survival holds 1 or 0; "-" stands
where nothing was asked, or nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from string import ascii_lowercase, digits
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.budgets import BUDGETS
from bench.extract import SURVIVES, answer_words, content, survival
from bench.finding.ours import Answer
from retcon.lab.data.question import BenchmarkQuestion
from retcon.lab.protocols import chain_turns
from retcon.note import Note
from retcon.pack import render

DEPTHS = (5, 10, 20, 50)
CLUSTER, NOTHING = "cluster", "-"
DIGITS = digits + ascii_lowercase

Columns = Mapping[str, str]


class Finder(Protocol):
    """A history that can be asked. Its ways are the kinds of text that it gives."""

    ways: tuple[str, ...]

    def find(self, query: str, budgets: Sequence[int]) -> Answer: ...

    def close(self) -> None: ...


Make = Callable[[Sequence[Note]], Finder]


def at(depth: int) -> str:
    """The name of the column of gold notes among so many."""
    return f"@{depth}"


def within(way: str, budget: int) -> str:
    """The name of the column of answers that survive in so many tokens."""
    return f"{way} {budget}"


def group(questions: Iterable[BenchmarkQuestion]) -> list[list[BenchmarkQuestion]]:
    """The questions of each history."""
    return [list(asked) for _, asked in groupby(questions, key=lambda question: id(question.history))]


def measure(questions: Iterable[BenchmarkQuestion], make: Make) -> Columns:
    """The columns of one finder."""
    out: dict[str, list[str]] = {}
    for finder, question in _open(questions, make):
        for name, mark in score(finder, question).items():
            out.setdefault(name, []).append(mark)
    return {name: "".join(marks) for name, marks in out.items()}


def _open(questions: Iterable[BenchmarkQuestion], make: Make) -> Iterator[tuple[Finder, BenchmarkQuestion]]:
    for asked in group(questions):
        finder = make(list(chain_turns(asked[0].history)))
        yield from ((finder, question) for question in asked)
        finder.close()


def score(finder: Finder, question: BenchmarkQuestion) -> dict[str, str]:
    """The mark of one question in each column."""
    wanted = words_to_survive(question)
    found = finder.find(question.text, BUDGETS if wanted else ())
    marks = count_found(found.ranked, question)
    if found.cluster is not None:
        marks[CLUSTER] = DIGITS[sum(_is_inside(found.cluster, note, question) for note in distinct(question.evidence))]
    for way in finder.ways:
        texts = found.texts[way] if wanted else [None] * len(BUDGETS)
        marks |= {within(way, budget): _mark(wanted, text) for budget, text in zip(BUDGETS, texts, strict=True)}
    return marks


def _mark(wanted: frozenset[str], text: str | None) -> str:
    return NOTHING if text is None else str(int(survives(wanted, text)))


def survives(wanted: frozenset[str], text: str) -> bool:
    """Whether enough of the words are in the text; what `survival` says, with lines that recur read once."""
    held: set[str] = set().union(*(_read_line(line) for line in text.split("\n")))
    return len(wanted & held) / len(wanted) >= SURVIVES


@lru_cache(maxsize=100_000)
def _read_line(line: str) -> frozenset[str]:
    return content(line)


def count_found(ranked: Sequence[str], question: BenchmarkQuestion) -> dict[str, str]:
    """How many gold notes are among the best, by depth."""
    gold = {note.id for note in question.evidence}
    return {at(depth): DIGITS[len(gold.intersection(ranked[:depth]))] for depth in DEPTHS}


def words_to_survive(question: BenchmarkQuestion) -> frozenset[str]:
    """The words of its answer; none where its own evidence does not hold enough of them."""
    words = answer_words(question.text, question.answer)
    held = words and survival(words, "\n".join(map(render, question.evidence))) >= SURVIVES
    return words if held else frozenset()


def distinct(notes: Iterable[Note]) -> list[Note]:
    return list({note.id: note for note in notes}.values())


def _is_inside(cluster: Mapping[str, str | None], note: Note, question: BenchmarkQuestion) -> bool:
    """Whether the note is in the cluster with what it says of the answer."""
    shown = cluster.get(note.id, "")
    if shown is None or not shown:
        return shown is None
    words = answer_words(question.text, question.answer)
    held = words & content(note.text)
    return not held or survives(held, shown)


# - columns as numbers -


def describe(questions: Sequence[BenchmarkQuestion]) -> dict[str, object]:
    """What the columns of a domain need to be read: questions of each history, and gold notes of each question."""
    return {
        "histories": [len(asked) for asked in group(questions)],
        "gold": "".join(DIGITS[len(distinct(question.evidence))] for question in questions),
    }


def read_column(name: str, marks: str, gold: str) -> NDArray[np.float64]:
    """The column as shares of the gold notes, or as 1 and 0; NaN where nothing can be said."""
    if name.startswith("@") or name == CLUSTER:
        return np.array([int(mark, 36) / int(of, 36) for mark, of in zip(marks, gold, strict=True)])
    return np.array([np.nan if mark == NOTHING else float(mark) for mark in marks])
