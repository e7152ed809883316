"""A conversation of 300 turns with facts to find again, a model that only reads, and a memory that counts its work."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from retcon import Memory, Note, Recall
from retcon.tokens import counter

TURNS = 300
ROOT = Path(__file__).parents[2]
UNKNOWN = "I do not know."
_PARTS = ("Ba De Fi Go Lu Mi Re", "za ko nu ve li pa sto", "rin mar del sum tev quo lan")
_NAMES = ["".join(parts) for parts in itertools.product(*map(str.split, _PARTS))]
_TOLD = re.compile(r"locker of (\w+) opens with the code (\d+)")
_ASKED = re.compile(r"Which code opens the locker of (\w+)\?")


@dataclass(frozen=True)
class Fact:
    """Something that is told once, and asked for later."""

    told: str
    question: str
    answer: str


def fact(number: int) -> Fact:
    """The fact of that number; no two share a name or a code."""
    name, code = _NAMES[number], str(31_000 + number * 37)
    weather = ("It rained all morning", "The bus was late again", "Lunch was soup and bread")[number % 3]
    told = f"{weather}. By the way, the locker of {name} opens with the code {code}, please keep that in mind."
    return Fact(told, f"Which code opens the locker of {name}?", code)


def read(seen: str) -> str:
    """The reply of a model that knows what it is shown and nothing else; the question is the last one in there."""
    asked, told = _ASKED.findall(seen), dict(_TOLD.findall(seen))
    return told.get(asked[-1], UNKNOWN) if asked else "Noted."


NOON = datetime(2026, 5, 9, 12, tzinfo=UTC)


class Counted(Memory):
    """A memory that says how much work was asked of it since it was last told."""

    def __init__(self, *args: Any, **options: Any) -> None:
        estimate = counter("estimate")
        self.characters = self.calls = 0

        def count(text: str) -> int:
            self.characters += len(text)
            return estimate(text)

        # what a line shows of its time is part of the work, so a slow machine must not change it
        super().__init__(*args, counter=count, now=lambda: NOON, **options)

    def recall(self, *args: Any, **options: Any) -> Recall:
        self.calls += 1
        return super().recall(*args, **options)

    def add(self, *args: Any, **options: Any) -> list[Note]:
        self.calls += 1
        return super().add(*args, **options)

    def get_all(self, *args: Any, **options: Any) -> list[Note]:
        self.calls += 1
        return super().get_all(*args, **options)

    def work(self) -> tuple[int, int]:
        """Characters that were counted and calls that were made, since the last time this was asked."""
        done, self.characters, self.calls = (self.characters, self.calls), 0, 0
        return done


def check_flat(work: list[tuple[int, int]]) -> None:
    """A turn of the last hundred that works at all works no more than one of the hundred before, but for chance."""
    assert len(work) == TURNS
    early, late = ([each for each in part if each[0]] for part in (work[100:200], work[200:]))
    assert mean(each[0] for each in late) <= 1.2 * mean(each[0] for each in early)
    assert max(each[1] for each in late) <= max(each[1] for each in early)


def check_kept(memory: Memory, **scope: str) -> None:
    """Every fact of the conversation is in the raw store, word for word."""
    texts = {note.text for note in memory.get_all(**scope)}  # type: ignore[arg-type]
    assert {fact(number).told for number in range(TURNS)} <= texts
