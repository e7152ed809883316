"""A table as a value, and how its cells, captions and marks are written.

Cells carry the number, its interval and the rows that it comes from, so that Markdown, a page and figures can all be
drawn from one table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retcon.errors import InputError, RetconError
from retcon.lab.crossfit import REFERENCE, TWICE, VOTE, CrossFit
from retcon.lab.report.published import DASH, change, number
from retcon.lab.report.studies import Readings, Study
from retcon.lab.stats import Estimate

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
class Value:
    """One number of a table: as shown, its interval, and the outcomes that it comes from as a filter on columns."""

    text: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    rows: Mapping[str, Any] | None = None


Cell = Value | str
Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table in plain words, with the paper's own rows and marks of what differs from the paper."""

    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
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
    build: Callable[[Readings], Body]

    def table(self, readings: Readings) -> Table:
        """The table, or why it cannot be made of these rows."""
        try:
            body = self.build(readings)
            if not body.rows:
                raise InputError("no row could be filled from these outcomes")
        except RetconError as error:
            return Table(self.key, self.title, self.caption, (), (), missing=str(error))
        caption, marks = f"{self.caption} {body.note}".strip(), tuple(dict.fromkeys(body.marks))
        return Table(self.key, self.title, caption, body.columns, tuple(body.rows), body.published, marks)


# -- cells -------------------------------------------------------------------------------------------------------------


def valued(text: str, found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """The text with the number's interval, a dash where nothing was measured."""
    if not found.n:
        return DASH
    return Value(text, finite(found.mean), finite(found.low), finite(found.high), rows)


def gained(found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """A difference with its interval."""
    return valued(change(found.mean, found.low, found.high), found, rows)


def rate(found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """An accuracy or a rate; its interval is not shown."""
    return valued(number(found.mean), found, rows)


def plain(value: float, text: str, rows: Mapping[str, Any]) -> Cell:
    """A number that has no interval."""
    return Value(text, mean=finite(value), rows=rows) if math.isfinite(value) else DASH


def finite(value: float) -> float | None:
    """None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None


def count(value: float) -> str:
    """Whole numbers as such, means over repeats with a decimal."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def budget_heads(budgets: Sequence[int]) -> tuple[str, ...]:
    """A column's head for each budget."""
    return tuple(f"{budget} tokens" for budget in budgets)


# -- its caption and marks ---------------------------------------------------------------------------------------------


def how_drawn(*studies: Study) -> str:
    """How intervals are made, as a sentence of a caption."""
    start = f"Intervals are 95 %, from {studies[0].draws:,} resamples of"
    shared = [study.about for study in studies if study.clustered]
    if not shared:
        return f"{start} questions, all actions paired."
    few = "since questions of one conversation are not independent; with few conversations they are rather too narrow."
    if len(shared) == len(studies):
        return f"{start} whole conversations, {few}"
    return f"{start} questions, or of whole conversations for {' and '.join(shared)}, {few}"


def samples(studies: Sequence[Study]) -> str:
    """What was measured, a sentence for each study."""
    return " ".join(study.sample for study in studies)


def marks_of(studies: Sequence[Study]) -> list[str]:
    """Marks of a table that the paper lacks."""
    marks = ["one realization"] if all(study.shape[3] == 1 for study in studies) else []
    return marks + [f"{study.about}: operators saw the question" for study in studies if study.arms.focused]


def how_folded(fitted: CrossFit) -> str:
    """How policies were learned and tested, as a sentence of a caption."""
    repeated = f", mean of {fitted.repeats} ways to deal them" if fitted.repeats > 1 else ""
    return f"{fitted.folds} folds by {fitted.rules.group}{repeated}: three train, one calibrates, one tests."
