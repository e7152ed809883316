"""The numbers that the paper prints, typed in once, by the label of the table that they stand in.

"Retain or Consolidate? Budget-Dependent Operator Selection for Language Agent Memory" (Kang, Liu et al.). Rows are
facts to stand beside our own; nothing is computed from them. Words stay words: "<.001" is the paper's "below .001".
`cells` writes them as our tables write theirs, and with the same functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = Mapping[str, Any]

MODEL = "DeepSeek-V3.2"  # writes, answers and judges, unless a row names another
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


def _table(
    label: str, setting: str, realizations: int, columns: str, body: str, dataset: str = LONGMEMEVAL
) -> Published:
    """A table from lines of cells between bars."""
    names = columns.split()
    lines = [[_cell(cell.strip()) for cell in line.split("|")] for line in body.strip().splitlines()]
    rows = tuple(dict(zip(names, cells, strict=True)) for cells in lines)
    return Published(label, dataset, setting, 75, realizations, rows)


def _cell(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _policies(label: str, setting: str, realizations: int, body: str) -> Published:
    """A table of policies, a row for each policy and budget from lines of accuracy and harms at four budgets."""
    wide = _table(label, setting, realizations, "policy 32 64 128 256 macro", body)
    long = [
        {"policy": row["policy"], "budget": budget, "accuracy": accuracy, "harms": int(harms), "macro": row["macro"]}
        for row in wide.rows
        for budget in (32, 64, 128, 256)
        for accuracy, harms in [map(float, row[str(budget)].split())]
    ]
    return replace(wide, rows=tuple(long))


OPERATORSTATS = _table("operatorstats", CONTROLLED, 3, "operator budget gain low high p", """
    abstract | 32  | +.480 | +.373 | +.582 | <.001
    abstract | 64  | +.333 | +.204 | +.458 | <.001
    abstract | 128 | +.142 | +.044 | +.244 | .005
    abstract | 256 | -.080 | -.169 | +.005 | .969
    merge    | 32  | +.458 | +.347 | +.569 | <.001
    merge    | 64  | +.316 | +.191 | +.436 | <.001
    merge    | 128 | +.080 | -.036 | +.196 | .108
    merge    | 256 | -.107 | -.204 | -.013 | .989
    rewrite  | 32  | +.196 | +.116 | +.280 | <.001
    rewrite  | 64  | +.187 | +.067 | +.307 | .002
    rewrite  | 128 | +.098 | -.018 | +.218 | .061
    rewrite  | 256 | -.084 | -.178 | +.009 | .967
""")  # fmt: skip

LOCOMOSTATS = _table("locomostats", CONTROLLED, 1, "budget operator gain low high helped harmed", """
    16  | abstract | +.360 | +.227 | +.480 | 30 | 3
    16  | merge    | +.347 | +.227 | +.467 | 29 | 3
    16  | rewrite  | +.133 | +.013 | +.253 | 16 | 6
    32  | abstract | +.173 | +.040 | +.307 | 20 | 7
    32  | merge    | +.253 | +.120 | +.387 | 24 | 5
    32  | rewrite  | +.133 | +.000 | +.267 | 19 | 9
    64  | abstract | +.000 | -.107 | +.107 | 8  | 8
    64  | merge    | -.013 | -.107 | +.080 | 6  | 7
    64  | rewrite  | -.027 | -.120 | +.067 | 6  | 8
    128 | abstract | -.027 | -.093 | +.053 | 3  | 5
    128 | merge    | -.040 | -.120 | +.040 | 3  | 6
    128 | rewrite  | +.000 | -.093 | +.093 | 6  | 6
""", LOCOMO)  # fmt: skip

CROSSMODEL = _table("crossmodel", CONTROLLED, 3, "model budget retention abstract gain low high helped harmed", """
    DeepSeek-V3.2 | 32  | .040 | .520 | +.480 | +.373 | +.582 | 49 | 2
    DeepSeek-V3.2 | 64  | .253 | .587 | +.333 | +.204 | +.458 | 37 | 10
    DeepSeek-V3.2 | 128 | .502 | .644 | +.142 | +.044 | +.244 | 22 | 11
    DeepSeek-V3.2 | 256 | .751 | .671 | -.080 | -.169 | +.005 | 8  | 18
    GLM-5.2       | 32  | .027 | .507 | +.480 | +.360 | +.600 | 37 | 1
    GLM-5.2       | 64  | .267 | .627 | +.360 | +.227 | +.493 | 32 | 5
    GLM-5.2       | 128 | .453 | .707 | +.253 | +.120 | +.387 | 24 | 5
    GLM-5.2       | 256 | .707 | .560 | -.147 | -.267 | -.027 | 7  | 18
""")  # fmt: skip  # GLM-5.2: one realization

RETRIEVED = _table("retrieved", FULL_HISTORY, 1, "budget retention abstract gain low high helped harmed oracle", """
    32  | .040 | .400 | +.360 | +.240 | +.480 | 28 | 1  | .413
    64  | .240 | .413 | +.173 | +.040 | +.307 | 20 | 7  | .507
    128 | .427 | .453 | +.027 | -.107 | +.160 | 13 | 11 | .600
    256 | .480 | .453 | -.027 | -.147 | +.093 | 9  | 11 | .600
""")  # fmt: skip

PERTYPE = _table("pertype", CONTROLLED, 3, "type n operator gain helped harmed", """
    Single-session   | 9  | abstract | +.037 | 0.7 | 0.3
    Single-session   | 9  | merge    | -.037 | 0.0 | 0.3
    Single-session   | 9  | rewrite  | -.037 | 1.0 | 1.3
    Multi-session    | 13 | abstract | +.051 | 2.7 | 2.0
    Multi-session    | 13 | merge    | +.179 | 2.3 | 0.0
    Multi-session    | 13 | rewrite  | -.077 | 0.7 | 1.7
    Temporal         | 13 | abstract | -.154 | 1.7 | 3.7
    Temporal         | 13 | merge    | -.051 | 2.0 | 2.7
    Temporal         | 13 | rewrite  | +.051 | 2.3 | 1.7
    Knowledge-update | 40 | abstract | -.125 | 2.0 | 7.0
    Knowledge-update | 40 | merge    | -.233 | 1.0 | 10.3
    Knowledge-update | 40 | rewrite  | -.142 | 2.3 | 8.0
    All              | 75 | abstract | -.080 | 7.0 | 13.0
    All              | 75 | merge    | -.107 | 5.3 | 13.3
    All              | 75 | rewrite  | -.084 | 6.3 | 12.7
""")  # fmt: skip

ROUTERBASELINES = _policies("routerbaselines", CONTROLLED, 3, """
    Retention                        | .039 0 | .261 0  | .521 0  | .745 0  | -
    Training-selected fixed operator | .493 5 | .569 13 | .631 14 | .631 26 | -
    Evidence-fit rule                | .493 5 | .563 12 | .681 3  | .729 4  | -
    k-NN utility router              | .487 4 | .556 14 | .618 13 | .747 6  | -
    Direct utility                   | .545 3 | .618 12 | .640 14 | .745 10 | -
    Calibrated-safe                  | .487 1 | .403 3  | .613 2  | .742 1  | -
""")  # fmt: skip

BUDGETPRESSURE = _table("budgetpressure", CONTROLLED, 3, "budget fit full zero partial regime", """
    32  | .065 | 1.3  | 78.7 | 20.0 | Severely tight
    64  | .424 | 9.3  | 10.7 | 80.0 | Tight
    128 | .718 | 52.0 | 1.3  | 46.7 | Transition
    256 | .911 | 85.3 | 0.0  | 14.7 | Loose
""")  # fmt: skip

OPERATORPAIRWISE = _table("operatorpairwise", CONTROLLED, 3, "budget first second difference low high", """
    32  | merge    | abstract | -.013 | -.093 | +.067
    32  | abstract | rewrite  | +.298 | +.196 | +.396
    32  | merge    | rewrite  | +.284 | +.173 | +.396
    64  | merge    | abstract | -.009 | -.080 | +.058
    64  | abstract | rewrite  | +.133 | +.027 | +.240
    64  | merge    | rewrite  | +.124 | +.018 | +.227
    128 | merge    | abstract | -.022 | -.093 | +.049
    128 | abstract | rewrite  | +.027 | -.062 | +.120
    128 | merge    | rewrite  | +.004 | -.089 | +.098
    256 | merge    | abstract | -.031 | -.111 | +.049
    256 | abstract | rewrite  | +.018 | -.062 | +.098
    256 | merge    | rewrite  | -.013 | -.107 | +.080
""")  # fmt: skip

MECHANISMFIT = _table("mechanismfit", CONTROLLED, 3, "operator budget fit gain helped harmed n", """
    abstract | 128 | incomplete | +.343 | .38 | .04 | 36
    abstract | 128 | complete   | -.043 | .06 | .10 | 39
    abstract | 256 | incomplete | -.061 | .21 | .27 | 11
    abstract | 256 | complete   | -.083 | .07 | .16 | 64
    merge    | 128 | incomplete | +.324 | .41 | .08 | 36
    merge    | 128 | complete   | -.145 | .06 | .21 | 39
    merge    | 256 | incomplete | +.152 | .27 | .12 | 11
    merge    | 256 | complete   | -.151 | .04 | .19 | 64
    rewrite  | 128 | incomplete | +.306 | .39 | .08 | 36
    rewrite  | 128 | complete   | -.094 | .08 | .17 | 39
    rewrite  | 256 | incomplete | -.061 | .18 | .24 | 11
    rewrite  | 256 | complete   | -.089 | .07 | .16 | 64
""")  # fmt: skip

UNIFIED = _table("unified", CONTROLLED, 3, "policy budget accuracy gain low high harms", """
    Direct     | 32  | .545 | +.507 | +.404 | +.607 | 3
    Direct     | 64  | .618 | +.357 | +.227 | +.483 | 12
    Direct     | 128 | .640 | +.119 | +.015 | +.224 | 14
    Direct     | 256 | .745 | +.000 | -.061 | +.064 | 10
    Calibrated | 32  | .487 | +.449 | +.345 | +.551 | 1
    Calibrated | 64  | .403 | +.142 | +.056 | +.234 | 3
    Calibrated | 128 | .613 | +.092 | +.034 | +.160 | 2
    Calibrated | 256 | .742 | -.003 | -.009 | +.000 | 1
""")  # fmt: skip

MLPCAPACITY = _table("mlpcapacity", CONTROLLED, 3, "budget ridge mlp difference low high", """
    32  | .545 | .529 | -.016 | -.049 | +.007
    64  | .618 | .604 | -.013 | -.040 | +.004
    128 | .640 | .644 | +.004 | -.027 | +.036
    256 | .745 | .708 | -.037 | -.102 | +.024
""")  # fmt: skip

ROUTE_A_GATE = _policies("routeAgate", FULL_HISTORY, 1, """
    Retention                              | .173 0 | .267 0 | .387 0 | .480 0 | .327
    Fixed abstract                         | .373 2 | .400 4 | .480 1 | .453 6 | .427
    Fixed merge                            | .387 2 | .453 2 | .467 2 | .520 3 | .457
    Fixed rewrite                          | .320 2 | .440 1 | .440 2 | .480 3 | .420
    Per-budget policy selected on fit data | .387 2 | .453 2 | .467 2 | .520 3 | .457
    Direct ridge                           | .347 2 | .440 2 | .480 1 | .520 2 | .447
    Frozen safe router                     | .347 2 | .307 2 | .440 0 | .480 2 | .393
    Action oracle                          | .440 0 | .520 0 | .493 0 | .560 0 | .503
""")  # fmt: skip

TABLES: Mapping[str, Published] = {
    each.label: each
    for each in (
        OPERATORSTATS, LOCOMOSTATS, CROSSMODEL, RETRIEVED, PERTYPE, ROUTERBASELINES, BUDGETPRESSURE, OPERATORPAIRWISE,
        MECHANISMFIT, UNIFIED, MLPCAPACITY, ROUTE_A_GATE,
    )
}  # fmt: skip


# -- as text -----------------------------------------------------------------------------------------------------------

DASH = "–"
_ZERO = re.compile(r"^([+-]?)0\.")


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


def _name(row: Row) -> str:
    return str(row["operator"]).capitalize()


def _change(row: Row) -> str:
    return change(row["gain"], row["low"], row["high"])


def _changed(row: Row) -> str:
    return f"{row['helped']}/{row['harmed']}"


def _abstract(row: Row) -> tuple[str, ...]:
    return (str(row["budget"]), number(row["retention"]), number(row["abstract"]), _change(row), _changed(row))


_CELLS: Mapping[str, Callable[[Row], tuple[str, ...]]] = {
    "operatorstats": lambda row: (
        _name(row), str(row["budget"]), _change(row), chance(0.0 if row["p"] == "<.001" else row["p"]),
    ),
    "locomostats": lambda row: (
        str(row["budget"]), _name(row), number(row["gain"], signed=True), bracket(row["low"], row["high"]), DASH,
        _changed(row),
    ),
    "crossmodel": lambda row: (row["model"], *_abstract(row)),
    "retrieved": lambda row: (*_abstract(row), number(row["oracle"])),
    "budgetpressure": lambda row: (
        str(row["budget"]), number(row["fit"]), f"{row['full']:.1f}", f"{row['zero']:.1f}", f"{row['partial']:.1f}",
        row["regime"],
    ),
    "mechanismfit": lambda row: (
        _name(row), str(row["budget"]), row["fit"], stratum(row["gain"], row["helped"], row["harmed"], row["n"]),
    ),
    "unified": lambda row: (
        row["policy"], str(row["budget"]), number(row["accuracy"]), _change(row), str(row["harms"]),
    ),
    "mlpcapacity": lambda row: (
        str(row["budget"]), number(row["ridge"]), number(row["mlp"]),
        change(row["difference"], row["low"], row["high"]), DASH,
    ),
}  # fmt: skip


def cells(label: str, budgets: Sequence[int] = ()) -> tuple[tuple[str, ...], ...]:
    """A table's rows in the columns of ours; `budgets` are the columns of a table of policies."""
    rows = TABLES[label].rows
    if label in _CELLS:
        return tuple(_CELLS[label](row) for row in rows)
    if label == "pertype":
        return tuple(
            (kind, str(some[0]["n"]), *(tally(row["gain"], row["helped"], row["harmed"]) for row in some))
            for kind, some in _grouped(rows, "type").items()
        )
    if label == "operatorpairwise":
        return tuple(
            (str(budget), *(change(row["difference"], row["low"], row["high"]) for row in some))
            for budget, some in _grouped(rows, "budget").items()
        )
    return tuple(_policy(name, some, budgets) for name, some in _grouped(rows, "policy").items())


def _grouped(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    return groups


def _policy(name: str, rows: Sequence[Row], budgets: Sequence[int]) -> tuple[str, ...]:
    """Accuracy with harms at each budget, and the mean over budgets where the paper states it."""
    at = {row["budget"]: f"{number(row['accuracy'])} ({row['harms']})" for row in rows}
    macro = rows[0]["macro"]
    return (name, *(at.get(budget, DASH) for budget in budgets), DASH if macro == "-" else number(macro))
