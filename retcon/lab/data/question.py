"""Benchmarks in one form: whatever file it comes from, a question is a `BenchmarkQuestion`, its turns are `Note`s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from retcon.errors import InputError
from retcon.note import Note
from retcon.tokens import Counter, counter

NOT_IN_MEMORY = "not in memory"  # the right answer to a question that the history does not answer


@dataclass(frozen=True, slots=True)
class BenchmarkQuestion:
    """One question with its right answer, the turns that hold it and all that was said before.

    `evidence` is a part of `history` wherever there is a history; questions of one conversation share one tuple.
    `answer`, `type`, `evidence`, `abstention` and `trap` are labels: a policy under test must not read them.
    """

    id: str
    dataset: str
    text: str
    answer: str
    type: str | None  # one of `retcon.features.TYPES`; None where the publisher's kind has no counterpart
    raw_type: str  # the publisher's own word
    conversation: str  # questions of one conversation are not independent
    date: str | None = None  # when it is asked, ISO 8601
    evidence: tuple[Note, ...] = ()  # the gold turns, oldest first; empty where none is known
    history: tuple[Note, ...] = field(default=(), repr=False)  # every turn, oldest first; empty where the file has none
    abstention: bool = False  # the history holds no answer
    trap: str | None = None  # the wrong answer that an adversarial question invites


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a file gave: its questions, those left out by reason, and those whose labels were corrected, by label."""

    questions: tuple[BenchmarkQuestion, ...]
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # reason -> question ids
    corrected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # "answer" | "evidence" -> question ids


def gather(
    path: Path,
    questions: Iterable[BenchmarkQuestion],
    skipped: Mapping[str, Sequence[str]] | None = None,
    corrected: Mapping[str, Sequence[str]] | None = None,
) -> Dataset:
    """The questions of one file; an error where there is none or where two have one id."""
    found = tuple(questions)
    seen: set[str] = set()
    for question in found:
        if question.id in seen:
            raise InputError(f"{path}: two questions have the id {question.id!r}")
        seen.add(question.id)
    if not found and not skipped:
        raise InputError(f"{path} holds no question")
    return Dataset(found, _as_tuples(skipped or {}), _as_tuples(corrected or {}))


def _as_tuples(ids: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    return {reason: tuple(some) for reason, some in ids.items() if some}


def answerable(questions: Iterable[BenchmarkQuestion]) -> tuple[BenchmarkQuestion, ...]:
    """The questions that the history answers and whose gold turns are known."""
    return tuple(question for question in questions if question.evidence and not question.abstention)


def evidence_cost(question: BenchmarkQuestion, count: Counter | None = None) -> int:
    """Tokens of the raw text of all gold turns; in the paper's alphanumeric tokens unless a counter is given."""
    count = count or counter("alphanumeric")
    return sum(count(note.text) for note in question.evidence)


def full_fit(
    questions: Iterable[BenchmarkQuestion], budgets: Iterable[int], count: Counter | None = None
) -> dict[int, float]:
    """Budget -> share of the questions with known evidence that retention packs whole.

    Cheapest-first packing takes in every turn exactly where all of them together cost no more than the budget.
    """
    costs = [evidence_cost(question, count) for question in questions if question.evidence]
    if not costs:
        raise InputError("no question with known evidence: the full-fit rate has nothing to count")
    return {budget: sum(cost <= budget for cost in costs) / len(costs) for budget in budgets}


def sort_by_time(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The notes oldest first, equals in the order given; in the order given throughout where one has no time."""
    given = tuple(notes)
    stamps = [note.timestamp for note in given if note.timestamp is not None]
    return tuple(sorted(given, key=lambda note: moment(note.timestamp or ""))) if len(stamps) == len(given) else given


def moment(timestamp: str) -> datetime:
    """The point in time that an ISO 8601 text names; UTC where it names no zone."""
    read = datetime.fromisoformat(timestamp)
    return read if read.tzinfo else read.replace(tzinfo=UTC)
