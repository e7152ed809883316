"""Which form should a learned ladder have? Several, cross-fitted on the pilot's outcomes; the log keeps the table.

    python -m bench.ladder_forms --out bench/results/ladder_forms.json

Four folds train, one tests, 20 ways to deal them (by question on LongMemEval, by conversation on LoCoMo); every order
of up to four looks is walked, and a call costs .01. Rows from RETCON_PILOT or ../shared/pilot/outcomes.csv.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import grid, keep, out_parser, pilot_file
from bench.pilot import FOCUSED
from retcon.lab import fit_ladder as ladder
from retcon.lab.fit import folds, question_groups, ridge
from retcon.lab.fit_ladder import LEVEL, Order, constant_plan, walk, worth
from retcon.lab.outcomes import Panel, panel, read

Array = NDArray[np.float64]
REPEATS, FOLDS = 20, 5
STUDIES = {
    "LongMemEval": ("controlled", FOCUSED, "question"),
    "LoCoMo": ("full-history", FOCUSED, "conversation"),
    "LoCoMo, no model writes": ("full-history", ("retain", "extract", "trunc"), "conversation"),
}
FORMS: dict[str, dict[str, Any]] = {
    "best fixed action per budget": {"looks": 1, "by": "budget"},
    "one order for all": {"by": "all"},
    "one order per budget": {"by": "budget"},
    "ridge over the 10 best orders, features": {"kept": 10, "level": 0.0},
    "ridge over the 20 best orders, features": {"kept": 20, "level": 0.0},
    "**ridge over the 20 best orders, features and a level per budget**": {"kept": 20, "level": LEVEL},
    "the same over the 60 best orders": {"kept": 60, "level": LEVEL},
    "the same with a penalty of 1": {"kept": 20, "level": LEVEL, "penalty": 1.0},
    "the same over the 5 best orders of each budget": {"each": 5, "level": LEVEL},
}


def choose(values: Array, rows: Array, train: NDArray[Any], test: NDArray[Any], form: dict[str, Any]) -> NDArray[Any]:
    """[test question, budget]: the place of the order that a form picks."""
    mean = values[:, train].mean(axis=1)  # [order, budget]
    whole, shape = mean.mean(axis=1), (len(test), mean.shape[1])
    if "by" in form:
        return np.broadcast_to(mean.argmax(axis=0) if form["by"] == "budget" else whole.argmax(), shape)
    best = np.argsort(-whole, kind="stable")[: form.get("kept")]
    if "each" in form:
        best = np.unique(np.argsort(-mean, axis=0, kind="stable")[: form["each"]])
    width = rows.shape[2]
    targets = values[best][:, train].transpose(1, 2, 0).reshape(-1, len(best))
    model = ridge(rows[train].reshape(-1, width), targets, penalty=form.get("penalty", ladder.PENALTY))
    found: NDArray[Any] = best[model(rows[test].reshape(-1, width)).reshape(*shape, -1).argmax(axis=2)]
    return found


def study(made: Panel, group: str) -> dict[str, dict[str, float]]:
    """Accuracy and reader calls of every form."""
    every = ladder.orders(len(made.actions), looks=min(4, len(made.actions)))
    walked = [walk(made, constant_plan(made, order)) for order in every]
    final, calls = (np.stack([getattr(each, name) for each in walked]) for name in ("utility", "calls"))
    values = worth(made, every, call_price=ladder.CALL_PRICE, token_price=0.0)
    found = {name: _form(made, group, every, (final, calls, values), form) for name, form in FORMS.items()}
    return {name: {"accuracy": accuracy, "calls": called} for name, (accuracy, called) in found.items()}


def _form(
    made: Panel, group: str, every: list[Order], known: tuple[Array, Array, Array], form: dict[str, Any]
) -> tuple[float, float]:
    few = [i for i, order in enumerate(every) if len(order) <= form.get("looks", 4)]
    final, calls, values = (part[few] for part in known)
    scale = made.x.reshape(-1, made.x.shape[2]).std(axis=0)
    level = np.broadcast_to(form.get("level", 0.0) * np.eye(len(made.budgets)), (*made.x.shape[:2], len(made.budgets)))
    rows = np.concatenate([made.x / np.where(scale > 0, scale, 1.0), level], axis=2)
    groups, totals = question_groups(made, group), []
    for seed in range(REPEATS):
        dealt = folds(groups, FOLDS, seed=seed)
        for fold in range(FOLDS):
            train, test = np.flatnonzero(dealt != fold), np.flatnonzero(dealt == fold)
            place = choose(values, rows, train, test, form), test[:, None], np.arange(len(made.budgets))
            totals.append((final[place].sum(), calls[place].sum()))
    accuracy, called = np.sum(totals, axis=0) / (REPEATS * final[0].size)
    return float(accuracy), float(called)


def table(result: dict[str, Any]) -> str:
    """Accuracy, with reader calls in brackets, as Markdown."""
    rows = [
        [form, *(f"{found[form]['accuracy']:.3f} ({found[form]['calls']:.2f})" for found in result.values())]
        for form in next(iter(result.values()))
    ]
    return grid(["how an order is chosen", *result], rows)


def main() -> None:
    """Measure, print, keep."""
    options = out_parser(__doc__).parse_args()
    rows = read(pilot_file())
    result = {
        name: study(panel(rows.where(setting=setting), actions=actions), group)
        for name, (setting, actions, group) in STUDIES.items()
    }
    print(table(result))
    keep(result, options.out)


if __name__ == "__main__":
    main()
