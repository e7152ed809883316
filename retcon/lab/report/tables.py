"""Outcomes -> the tables of a report: the paper's twelve, and nine that it lacks.

Whatever rows there are, every table is returned; one that they cannot fill says why.

    studies.py        outcomes as arrays, the draws of every interval, cross-fitted policies
    cells.py          a table as a value, and how numbers are written in it
    paper_tables.py   the paper's tables
    more_tables.py    those that it lacks
"""

from __future__ import annotations

from collections.abc import Callable

from retcon.lab.outcomes import Outcomes
from retcon.lab.report.cells import Cells, Table, Value
from retcon.lab.report.more_tables import MORE
from retcon.lab.report.paper_tables import PAPER
from retcon.lab.report.studies import Readings, Study, arms

__all__ = ["SPECS", "Cells", "Progress", "Readings", "Study", "Table", "Value", "arms", "tables"]

Progress = Callable[[int, int], None]  # tables done, of so many

SPECS = (*PAPER, *MORE)


def tables(
    outcomes: Outcomes, *, judge: str | None = None, draws: int = 10_000, seed: int = 20260716, repeats: int = 1,
    model: str = "", progress: Progress | None = None,
) -> list[Table]:  # fmt: skip
    """Every table, in the order of the paper and then ours; the same outcomes give the same tables.

    `judge` decides what is right (the model judge where there is one), `repeats` is the ways to deal the folds of
    everything cross-fitted, `model` names the model where the rows do not. Of several models on the same questions, the
    one with most rows stands in all tables but the cross-model one. Give it `outcomes.where(dataset=...)` to have every
    table of another dataset.
    """
    readings = Readings(outcomes, judge=judge, draws=draws, seed=seed, repeats=repeats, model=model)
    made = []
    for done, spec in enumerate(SPECS, 1):
        made.append(spec.table(readings))
        if progress is not None:
            progress(done, len(SPECS))
    return made
