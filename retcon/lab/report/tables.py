"""Studies -> a table as a value. Whatever rows there are, every table is made; one that they cannot fill says why.

actions.py        which action is the paper's operator, and what people call it
studies.py        outcomes as arrays, the draws of every interval, cross-fitted policies
cells.py          how numbers are written
paper_tables.py   the paper's twelve tables, ours beside its own
more_tables.py    nine that it lacks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retcon.errors import InputError, RetconError
from retcon.lab.crossfit import REFERENCE, TWICE, VOTE, CrossFit
from retcon.lab.report.cells import Cells
from retcon.lab.report.studies import Readings, Study

POLICIES = {
    "retention": "Retention", "training-selected operator": "Training-selected fixed operator",
    REFERENCE: "Best fixed action", "evidence-fit rule": "Evidence-fit rule", "k-NN": "k-NN utility router",
    "direct": "Direct utility", "calibrated": "Calibrated-safe", "certified": "Certified-safe",
    "ladder": "Ladder", "ladder, whole notes first": "Ladder, whole notes first",
    "ladder, one order a budget": "Ladder, one order a budget",
    "best fixed, asked again": "Best fixed action, asked again", TWICE: "Best fixed action, twice the budget",
    VOTE: "Vote of two", "binary oracle": "Binary oracle (hindsight)", "action oracle": "Action oracle (hindsight)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A table in plain words, with the paper's own rows and marks of what differs from the paper."""

    key: str
    title: str
    caption: str
    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()
    published: tuple[tuple[str, ...], ...] = ()
    marks: tuple[str, ...] = ()
    missing: str | None = None  # why these outcomes cannot fill it


@dataclass(frozen=True, slots=True)
class Body:
    """What fills a table."""

    columns: tuple[str, ...]
    rows: Sequence[Cells]
    note: str = ""  # what the caption adds of these rows
    marks: Sequence[str] = ()
    published: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """A table's key and words, and what fills it."""

    key: str
    title: str
    caption: str
    fill: Callable[[Readings], Body]

    def table(self, readings: Readings) -> Table:
        """The table, or why it cannot be made of these rows."""
        try:
            body = self.fill(readings)
            if not body.rows:
                raise InputError("no row could be filled from these outcomes")
        except RetconError as error:
            return Table(self.key, self.title, self.caption, missing=str(error))
        caption, marks = f"{self.caption} {body.note}".strip(), tuple(dict.fromkeys(body.marks))
        return Table(self.key, self.title, caption, body.columns, tuple(body.rows), body.published, marks)


def budget_heads(budgets: Sequence[int]) -> tuple[str, ...]:
    """A column's head for each budget."""
    return tuple(f"{budget} tokens" for budget in budgets)


def how_drawn(*studies: Study) -> str:
    """How intervals are made, as a sentence of a caption."""
    start = f"Intervals are 95 %, from {studies[0].draws:,} resamples of"
    shared = [study.name for study in studies if study.clustered]
    if not shared:
        return f"{start} questions, all actions paired."
    few = "since questions of one conversation are not independent; with few conversations they are rather too narrow."
    if len(shared) == len(studies):
        return f"{start} whole conversations, {few}"
    return f"{start} questions, or of whole conversations for {' and '.join(shared)}, {few}"


def how_folded(fitted: CrossFit) -> str:
    """How policies were learned and tested, as a sentence of a caption."""
    repeated = f", mean of {fitted.repeats} ways to deal them" if fitted.repeats > 1 else ""
    return f"{fitted.folds} folds by {fitted.rules.group}{repeated}: three train, one calibrates, one tests."
