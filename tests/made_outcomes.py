"""Made-up outcomes that fill every table of a report, some or all of those tables, and arithmetic on the rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from retcon.lab.outcomes import from_rows
from retcon.lab.report.build import SPECS
from retcon.lab.report.cells import Value
from retcon.lab.report.studies import Readings
from retcon.lab.report.tables import Table

RAW = ("single-session-user", "multi-session", "temporal-reasoning", "knowledge-update")
PAPER = ("retain", "abstract-agnostic", "merge-agnostic", "rewrite-agnostic")
EVERY = (*PAPER, "extract", "abstract", "merge")
KEYS = (
    "operator-gains", "locomo-gains", "cross-model", "full-history", "per-type", "routing-baselines",
    "budget-pressure", "operator-pairs", "fit-strata", "joint-routing", "mlp-check", "independent", "all-actions",
    "cost", "unsupported", "judges", "per-token", "budget-needed", "ladders", "false-answers", "crossover",
)  # fmt: skip
DRAWS = 200
Row = dict[str, Any]


def made(
    dataset: str = "longmemeval",
    setting: str = "controlled",
    *,
    questions: int = 36,
    budgets: Sequence[int] = (32, 64, 128),
    actions: Sequence[str] = EVERY,
    realizations: int = 1,
    talks: int | None = None,
    seed: int = 0,
    prefix: str = "q",
    **same: Any,
) -> list[Row]:
    """Made-up outcomes: retention is right where its notes fit, the others where the question's type suits them."""
    rng = random.Random(seed)
    rows = []
    for q in range(questions):
        kind, tokens = rng.randrange(4), rng.randrange(20, 200)
        about = {
            "dataset": dataset, "setting": setting, "question_id": f"{prefix}{q:03}",
            "conversation": f"{prefix}{q:03}" if talks is None else f"c{q % talks}", "type": RAW[kind],
            "notes": rng.randrange(1, 9), "cluster_tokens": tokens, "sessions": rng.randrange(1, 4),
            "inconsistency": rng.randrange(100) / 100, "similarity": rng.randrange(100) / 100, "abstention": "",
            "model": "made-up", "reader": "made-up", **same,
        }  # fmt: skip
        for budget in budgets:
            fit = min(1.0, budget / tokens)
            for place, action in enumerate(actions):
                for realization in range(realizations):
                    right = rng.random() < (fit if action == "retain" else 0.7 if kind == place % 4 else 0.3)
                    written = action not in ("retain", "extract")
                    rows.append(
                        about
                        | {"budget": budget, "action": action, "realization": realization, "fit": fit}
                        | {"context_tokens": rng.randrange(1, budget), "generated_tokens": 20 if written else 0}
                        | {"prompted_tokens": 90 if written else 0, "model_calls": int(written)}
                        | {"reader_tokens": budget + 40, "seconds": rng.randrange(8) / 8}
                        | {"abstained": int(not right and rng.random() < 0.7)}
                        | {"unsupported": int(rng.random() < 0.2) if written else None}
                        | {"judge_llm": int(right), "judge_overlap": int(right and rng.random() < 0.8)}
                    )
    return rows


def everything() -> list[Row]:
    """Two benchmarks, two settings, three parts, questions without an answer."""
    part = {f"f{q:03}": ("fit", "calibration", "gate", "fit")[q % 4] for q in range(40)}
    full = made("longmemeval", "full-history", questions=40, seed=2, prefix="f")
    return [
        *made(realizations=2),
        *made("locomo", "controlled", questions=40, budgets=(16, 32, 64), talks=8, seed=1, prefix="l"),
        *(row | {"fold": part[row["question_id"]]} for row in full),
        *made("locomo", "controlled", questions=6, budgets=(16, 32), talks=3, seed=3, prefix="n", abstention="yes"),
    ]


@cache
def whole() -> tuple[Table, ...]:
    return tables(everything(), draws=DRAWS)


def tables(rows: Iterable[Row], **options: Any) -> tuple[Table, ...]:
    """Every table of these rows."""
    readings = Readings(from_rows(rows), **options)
    return tuple(spec.table(readings) for spec in SPECS)


def quick(rows: Iterable[Row], *keys: str, draws: int = DRAWS, **options: Any) -> dict[str, Table]:
    """Some tables alone, so that a test need not wait for the others."""
    readings = Readings(from_rows(rows), draws=draws, **options)
    return {spec.key: spec.table(readings) for spec in SPECS if spec.key in keys}


def one(rows: Iterable[Row], key: str, **options: Any) -> Table:
    return quick(rows, key, **options)[key]


def table(key: str) -> Table:
    return next(each for each in whole() if each.key == key)


def find(table: Table, *start: str) -> tuple[Any, ...]:
    """The cells after those that a row begins with."""
    assert table.missing is None, table.missing
    (found,) = [row for row in table.rows if row[: len(start)] == start]
    return found[len(start) :]


def text(cell: Value | str) -> str:
    return cell.text if isinstance(cell, Value) else cell


def pick(rows: Iterable[Row], **only: Any) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in only.items())]


def means(rows: Iterable[Row], name: str = "judge_llm") -> dict[str, float]:
    """Question -> mean over its rows."""
    by: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by[row["question_id"]].append(row[name])
    return {question: fmean(values) for question, values in by.items()}


def mean(rows: Iterable[Row], name: str = "judge_llm") -> float:
    return fmean(means(rows, name).values())


def difference(rows: list[Row], action: str, budget: int, base: str = "retain") -> dict[str, float]:
    one, two = (means(pick(rows, action=name, budget=budget)) for name in (action, base))
    return {question: one[question] - two[question] for question in one}


def drop(*names: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{name: value for name, value in row.items() if name not in names} for row in rows]
