"""The numbers that the paper prints, by the label of the table that they stand in, as its rows and as text.

They are in published.json, typed in once: facts to stand beside our own; nothing is computed from them. Words stay
words: "<.001" is the paper's "below .001". `published_rows` writes them as our tables write theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retcon.lab.report.cells import DASH, bracket, chance, change, number, stratum, tally

Row = Mapping[str, Any]

LONGMEMEVAL, LOCOMO = "longmemeval", "locomo"
CONTROLLED, FULL_HISTORY = "controlled", "full-history"


@dataclass(frozen=True, slots=True)
class Published:
    """One table of the paper: what it was measured on, and its rows."""

    label: str
    dataset: str
    setting: str
    questions: int
    realizations: int
    rows: tuple[Row, ...]


def _load_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], **about: Any) -> Published:
    return Published(**about, rows=tuple(dict(zip(columns, row, strict=True)) for row in rows))


_PAPER = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
MODEL: str = _PAPER["model"]  # writes, answers and judges, unless a row names another
TABLES: Mapping[str, Published] = {table["label"]: _load_table(**table) for table in _PAPER["tables"]}


# -- as text -----------------------------------------------------------------------------------------------------------


COLUMNS = {  # of a table that has a row for each of the paper's, column by column as ours
    "operatorstats": ("operator", "budget", "change", "p"),
    "locomostats": ("budget", "operator", "gain", "interval", "dash", "helped/harmed"),
    "crossmodel": ("model", "budget", "retention", "abstract", "change", "helped/harmed"),
    "retrieved": ("budget", "retention", "abstract", "change", "helped/harmed", "oracle"),
    "budgetpressure": ("budget", "fit", "full", "zero", "partial", "regime"),
    "mechanismfit": ("operator", "budget", "fit", "stratum"),
    "unified": ("policy", "budget", "accuracy", "change", "harms"),
    "mlpcapacity": ("budget", "ridge", "mlp", "change", "dash"),
}
FORMATS: Mapping[str, Callable[[Row], str]] = {  # of columns that are more than a word or a number
    "operator": lambda row: row["operator"].capitalize(),
    "gain": lambda row: number(row["gain"], signed=True),
    "interval": lambda row: bracket(row["low"], row["high"]),
    "change": lambda row: change(row["gain"] if "gain" in row else row["difference"], row["low"], row["high"]),
    "p": lambda row: chance(0.0 if row["p"] == "<.001" else row["p"]),
    "helped/harmed": lambda row: f"{row['helped']}/{row['harmed']}",
    "tally": lambda row: tally(row["gain"], row["helped"], row["harmed"]),
    "stratum": lambda row: stratum(row["gain"], row["helped"], row["harmed"], row["n"]),
    "dash": lambda row: DASH,
    "full": lambda row: f"{row['full']:.1f}",
    "zero": lambda row: f"{row['zero']:.1f}",
    "partial": lambda row: f"{row['partial']:.1f}",
}


def published_rows(label: str, budgets: Sequence[int] = ()) -> tuple[tuple[str, ...], ...]:
    """A table's rows in the columns of ours; `budgets` are the columns of a table of policies."""
    rows = TABLES[label].rows
    if label in COLUMNS:
        return tuple(tuple(_cell(row, name) for name in COLUMNS[label]) for row in rows)
    if label == "pertype":
        by_type = _group(rows, "type").items()
        return tuple((kind, str(some[0]["n"]), *(_cell(row, "tally") for row in some)) for kind, some in by_type)
    if label == "operatorpairwise":
        by_budget = _group(rows, "budget").items()
        return tuple((str(budget), *(_cell(row, "change") for row in some)) for budget, some in by_budget)
    return tuple(_policy(name, some, budgets) for name, some in _group(rows, "policy").items())


def _cell(row: Row, name: str) -> str:
    if name in FORMATS:
        return FORMATS[name](row)
    return number(row[name]) if isinstance(row[name], float) else str(row[name])


def _group(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    return groups


def _policy(name: str, rows: Sequence[Row], budgets: Sequence[int]) -> tuple[str, ...]:
    """Accuracy with harms at each budget, and the mean over budgets where the paper states it."""
    at = {row["budget"]: f"{number(row['accuracy'])} ({row['harms']})" for row in rows}
    macro = rows[0]["macro"]
    return (name, *(at.get(budget, DASH) for budget in budgets), DASH if macro is None else number(macro))
