"""Numbers -> text and cells of a table.

A cell carries the number, its interval and the rows that it comes from, so that Markdown, a page and figures can all be
drawn from one table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retcon.lab.stats import Crossover, Estimate

DASH = "–"
_ZERO = re.compile(r"^([+-]?)0\.")


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


def text_of(cell: Cell) -> str:
    """The cell as it is shown."""
    return cell if isinstance(cell, str) else cell.text


# -- text --------------------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """.480, or +.480 where signed; a dash for what is not there."""
    if not math.isfinite(value):
        return DASH
    text = f"{round(value, digits) + 0.0:{'+' if signed else ''}.{digits}f}"  # no -.000
    return _ZERO.sub(r"\1.", text)


def bracket(low: float, high: float, *, signed: bool = True) -> str:
    """An interval: [+.373, +.582]."""
    return f"[{number(low, signed=signed)}, {number(high, signed=signed)}]"


def change(mean: float, low: float, high: float) -> str:
    """A difference with its interval: +.480 [+.373, +.582]."""
    return f"{number(mean, signed=True)} {bracket(low, high)}"


def chance(p: float) -> str:
    """A p value."""
    return "below .001" if p < 0.001 else number(p)


def tally(gain: float, helped: float, harmed: float) -> str:
    """A gain with the questions helped and harmed in a run: +.037 (0.7/0.3)."""
    return f"{number(gain, signed=True)} ({helped:.1f}/{harmed:.1f})"


def stratum(gain: float, helped: float, harmed: float, n: int) -> str:
    """A gain with the rates helped and harmed and the size: +.343 (.38/.04; 36)."""
    return f"{number(gain, signed=True)} ({number(helped, 2)}/{number(harmed, 2)}; {n})"


def count(value: float) -> str:
    """Whole numbers as such, means over repeats with a decimal."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def join(names: Sequence[str]) -> str:
    """a, b and c; names that hold a comma themselves are set apart by semicolons."""
    if len(names) < 2:
        return "".join(names)
    mark = "; " if any("," in name for name in names) else ", "
    return f"{mark.join(names[:-1])}{';' if mark == '; ' else ''} and {names[-1]}"


# -- cells -------------------------------------------------------------------------------------------------------------


def estimate_cell(text: str, found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """The text with the number's interval, a dash where nothing was measured."""
    if not found.n:
        return DASH
    return Value(text, _finite(found.mean), _finite(found.low), _finite(found.high), rows)


def gain_cell(found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """A difference with its interval."""
    return estimate_cell(change(found.mean, found.low, found.high), found, rows)


def rate_cell(found: Estimate | None, rows: Mapping[str, Any]) -> Cell:
    """An accuracy or a rate; its interval is not shown."""
    return DASH if found is None else estimate_cell(number(found.mean), found, rows)


def plain_cell(value: float, text: str, rows: Mapping[str, Any]) -> Cell:
    """A number that has no interval."""
    return Value(text, mean=_finite(value), rows=rows) if math.isfinite(value) else DASH


def crossover_cell(found: Crossover, budgets: Sequence[int], rows: Mapping[str, Any]) -> Value:
    """A crossover budget with its interval; "below" and "above" stand for what lies outside the budgets."""
    ends = (found.budget, found.low, found.high)
    texts = [_budget(end, budgets) for end in ends]
    mean, low, high = (_finite(end) if end > 0 else None for end in ends)
    return Value(f"{texts[0]} [{texts[1]}, {texts[2]}]", mean, low, high, rows)


def _budget(value: float, budgets: Sequence[int]) -> str:
    if math.isnan(value):
        return DASH
    return f"below {budgets[0]}" if value == 0 else f"above {budgets[-1]}" if math.isinf(value) else f"{value:.0f}"


def _finite(value: float) -> float | None:
    """None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None
