"""Budgets above 256 tokens: what each action is worth there, and what the routers that ship do where none was learned.

    python -m bench.large_budgets --out bench/results/large_budgets.json

Two kinds of rows. The `-large` runs have up to 200 candidates, so that there is something to leave out at 4,096 tokens.
The `-wide` runs have what `Memory` looks at by default (20 notes, 2,048 tokens), with every action: on these the
shipped routers decide as they would for a caller. They learned from 60 % of LongMemEval's pool, at 256 tokens and
below; here they are scored on the rest of it and on LoCoMo's fit and calibration questions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep, out_parser
from bench.evaluation import DRAWS, JUDGES, SEED, Ways, estimate, round_numbers, rows_of, unlearned, ways_to_draw
from bench.findings import gains
from retcon.lab import fit_ladder as ladder
from retcon.lab.fit_ladder import Plan, Walk, walk
from retcon.lab.outcomes import Panel, panel
from retcon.note import RETAIN
from retcon.route import Router, load_shipped

LARGE = ("locomo-large", "pool-large")
WIDE = ("locomo-wide", "pool-wide")
ROUTERS = ("longmemeval", "longmemeval-free")


def large(name: str, judge: str) -> dict[str, Any]:
    """Every action against whole notes, how many tokens it came to, and whole notes at most room less at least."""
    made = panel(rows_of(name), judge=judge)
    ways, whole = ways_to_draw(made), made.utility[:, :, made.actions.index(RETAIN)]
    kept = rows_of(name).columns
    shown = {
        action: [float(kept["context_tokens"][_cell(kept, action, budget)].mean()) for budget in made.budgets]
        for action in made.actions
    }
    return {
        "questions": len(made.questions), "budgets": list(made.budgets), "context_tokens": shown,
        "gains": gains(made, ways, made.actions[1:]), "room": estimate(whole[:, -1] - whole[:, 0], ways),
    }  # fmt: skip


def _cell(columns: Any, action: str, budget: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (columns["action"] == action) & (columns["budget"] == budget)
    return found


def wide(name: str, judge: str) -> dict[str, Any]:
    """The actions against whole notes on all questions; the shipped routers on questions they did not learn from."""
    made = panel(rows_of(name), judge=judge)
    fresh = unlearned(made) if name.startswith("pool") else made
    ways = ways_to_draw(fresh)
    return {
        "questions": len(made.questions), "budgets": list(made.budgets), "fresh": len(fresh.questions),
        "fit": made.fit.mean(axis=0).tolist(), "full_fit": (made.fit >= 1).mean(axis=0).tolist(),
        "gains": gains(made, ways_to_draw(made), made.actions[1:]),
        "retention": fresh.utility[:, :, fresh.actions.index(RETAIN)].mean(axis=0).tolist(),
        "routers": {each: score_router(load_shipped(each), fresh, ways) for each in ROUTERS},
    }  # fmt: skip


def score_router(router: Router, made: Panel, ways: Ways) -> dict[str, Any]:
    """What a router comes to in one look, and with its ladder, against whole notes at each budget."""
    once, climbing = walk(made, choose_actions(router, made)), walk(made, ladder.serving_plan(router, made))
    return {"one look": line(once, made, ways), "ladder": line(climbing, made, ways)}


def choose_actions(router: Router, made: Panel) -> Plan:
    """The one action that the router takes for every question and budget of a panel, with thresholds if it has any."""
    found = np.full((*made.x.shape[:2], 1), -1, np.int64)
    for cell, decision in ladder.decisions(router, made, safe=bool(router.thresholds)):
        found[cell] = made.actions.index(decision.action)
    return found


def line(came: Walk, made: Panel, ways: Ways) -> dict[str, Any]:
    """Accuracy, its difference from whole notes, how often these were replaced, and the calls, a value a budget."""
    gap = came.utility - made.utility[:, :, made.actions.index(RETAIN)]
    return {
        "accuracy": came.utility.mean(axis=0).tolist(),
        "gain": [estimate(gap[:, b], ways) for b in range(gap.shape[1])],
        "replaced": came.replaced.mean(axis=0).tolist(), "calls": came.calls.mean(axis=0).tolist(),
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Everything, under both judges."""
    judged = {
        judge: {
            "large": {name: large(name, judge) for name in LARGE},
            "wide": {name: wide(name, judge) for name in WIDE},
        }
        for judge in JUDGES
    }
    found: dict[str, Any] = round_numbers({"seed": SEED, "draws": DRAWS, "judges": judged})
    return found


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "large_budgets.json").parse_args().out)


if __name__ == "__main__":
    main()
