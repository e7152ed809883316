"""What a rival is: it takes in a history, and gives what it would show for a question. We cut that to the budget.

Every rival gets the same turns in the same words (date, speaker, text), in batches that follow the sessions. What it
gives are pieces, the best first; whole pieces are taken in that order while they fit, and the first that does not is
cut where the budget ends. So no rival loses anything to a gap at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Protocol

from bench.rivals.encoder import Encoder
from bench.rivals.endpoint import Endpoint
from retcon.note import Note
from retcon.pack import render
from retcon.tokens import Counter, counter, cut

COUNTER = "estimate"
TOP_K = 20  # pieces asked for where a rival's own default is less: so many fill the largest budget
BATCH = 32  # turns that are added at once, at most; a batch never spans two sessions


@dataclass(frozen=True, slots=True)
class Setup:
    """What a rival may use: the encoder that all of them have, and a model at an endpoint where there is one."""

    encode: Encoder
    endpoint: Endpoint | None = None
    folder: str = ""  # of the model itself, for what must look inside it

    @property
    def model(self) -> Endpoint:
        """The endpoint, for a rival that needs one."""
        if self.endpoint is None:
            raise SystemExit("this rival needs a model: say --endpoint")
        return self.endpoint


class Rival(Protocol):
    """A memory under comparison. One object holds one history."""

    def add(self, history: Sequence[Note]) -> None:
        """Take in the history, oldest turn first."""

    def context(self, question: str, budget: int) -> Sequence[str]:
        """What it would show for the question, the best first."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a rival showed within the budget, and what it asked a model for."""

    text: str
    tokens: int
    spent: Spent


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls of a model, tokens that it read and wrote, and replies that the rival could not use."""

    calls: int = 0
    prompted: int = 0
    generated: int = 0
    unparsed: int = 0
    seconds: float = field(default=0.0, compare=False)


def lines(history: Sequence[Note]) -> list[str]:
    """Every turn as all rivals get it."""
    return [render(note) for note in history]


def when(note: Note) -> datetime:
    """The time of a turn, for a rival that wants one; the first of times where it has none."""
    found = datetime.fromisoformat(note.timestamp) if note.timestamp else datetime(1970, 1, 1, tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def batches(history: Sequence[Note], most: int = BATCH) -> Iterator[list[Note]]:
    """The turns of a session together, at most so many at once."""
    for _, some in groupby(history, key=lambda note: note.session):
        turns = list(some)
        yield from (turns[start : start + most] for start in range(0, len(turns), most))


def fit(pieces: Sequence[str], budget: int, count: Counter | None = None) -> str:
    """The pieces in their order while they fit, the first that does not fit cut; never more than the budget."""
    count = count or counter(COUNTER)
    kept = ""
    for piece in pieces:
        if not piece.strip():
            continue
        longer = f"{kept}\n{piece}" if kept else piece
        if count(longer) > budget:
            return cut(longer, budget, count)
        kept = longer
    return kept
