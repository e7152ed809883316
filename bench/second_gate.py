"""The frozen analysis of bench/prereg-second.md: ladders that cannot lose an answer of whole notes, on a second gate.

    python -m bench.second_gate --out bench/results/second_gate.json

Rows: locomo-second.parquet, questions of which no outcome existed before; the selected action and the
vote come from the fit questions of locomo-product.parquet, the ladders from the files that shipped when it was opened
(kept in bench/prereg/routers). All were learned from the model judge's verdicts; both judges score the same ones. With
--rehearse the calibration questions stand in for the second gate, which stays shut.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.domains import PREREG
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    JUDGES,
    SEED,
    Ways,
    estimate,
    parts,
    round_numbers,
    rows_of,
    ways_to_draw,
)
from retcon.lab.calibrate import upper_bound
from retcon.lab.crossfit import REFERENCE, VOTE, Result, Rules, best_fixed, holdout
from retcon.lab.fit_ladder import Array, Plan, serving_plan, walk, whole_first
from retcon.lab.outcomes import Outcomes, Panel
from retcon.note import RETAIN
from retcon.route import Router

SECOND = "locomo-second"
ROUTERS = ("locomo", "longmemeval")
PRIMARY = "locomo, whole notes first"
ORACLE = "action oracle"
Came = tuple[Array, Array, Array]  # utility, reader calls, tokens read and written, each [question, budget]


def policies(fit: Panel, calibration: Panel, opened: Panel) -> dict[str, Came]:
    """What every policy comes to, question by question and budget by budget."""
    rules = Rules(alpha=ALPHA, delta=DELTA, seed=SEED)
    scored = holdout(fit, calibration, opened, policies={REFERENCE: best_fixed(0)}, rules=rules).results
    found = {"whole notes": _walk_plan(opened, np.full((*opened.x.shape[:2], 1), opened.actions.index(RETAIN)))}
    found |= {name: _spend(scored[name]) for name in (REFERENCE, VOTE)}
    for name in ROUTERS:
        router = frozen_router(name)
        own = serving_plan(router, opened)
        first = whole_first(own)
        found[f"{name}, its own order"] = _walk_plan(opened, own)
        found[f"{name}, whole notes first"] = _walk_plan(opened, first)
        if any(map(router.bounds_ladder, opened.budgets)):
            found[f"{name}, certified or whole notes first"] = _walk_plan(opened, safe(router, opened, own, first))
    return found | {ORACLE: _spend(scored[ORACLE])}


def frozen_router(name: str) -> Router:
    """A router as it shipped when the gate was opened, whatever ships now."""
    return Router.load(PREREG / "routers" / f"{name}.json")


def safe(router: Router, opened: Panel, own: Plan, first: Plan) -> Plan:
    """The router's own orders at budgets where their harm is certified, and whole notes first elsewhere."""
    padded = np.concatenate([own, np.full((*own.shape[:2], 1), -1)], axis=2)
    bounded = np.array([router.bounds_ladder(budget) for budget in opened.budgets])
    return np.where(bounded[None, :, None], padded, first)


def _spend(each: Result) -> Came:
    return each.utility, each.calls, each.read + each.generated


def _walk_plan(opened: Panel, plan: Plan) -> Came:
    went = walk(opened, plan)
    return went.utility, went.calls, went.tokens


def analyse(rows: Outcomes, second: Outcomes | None, judge: str) -> dict[str, Any]:
    """Every policy against the action selected on fit questions, with its harm against whole notes."""
    fit, calibration, opened = parts(rows, second, judge)
    found, ways = policies(fit, calibration, opened), ways_to_draw(opened)
    whole = found["whole notes"][0]
    primary, base, top = (found[name][0].mean(axis=1) for name in (PRIMARY, REFERENCE, ORACLE))
    return {
        "questions": len(opened.questions), "budgets": list(opened.budgets),
        "policies": [line(name, came, found[REFERENCE][0], whole, ways) for name, came in found.items()],
        "primary": estimate(primary - base, ways),
        "gap_closed": float((primary - base).mean() / (top - base).mean()),
        "against_vote": estimate(primary - found[VOTE][0].mean(axis=1), ways),
        "against_own_order": {
            name: estimate(
                (found[f"{name}, whole notes first"][0] - found[f"{name}, its own order"][0]).mean(axis=1), ways
            )
            for name in ROUTERS
        },
    }  # fmt: skip


def line(name: str, came: Came, base: Array, whole: Array, ways: Ways) -> dict[str, Any]:
    """One policy: accuracy, difference from the selected action, exact harm at each budget, spend."""
    utility, calls, tokens = came
    n = len(utility)
    harms = np.count_nonzero(utility < whole, axis=0).tolist()
    return {
        "policy": name, "accuracy": utility.mean(axis=0).tolist(), "macro": float(utility.mean()),
        "against": None if utility is base else estimate((utility - base).mean(axis=1), ways),
        "harms": harms, "harm": sum(harms) / (n * len(harms)),
        "harm_at_most": [upper_bound(k, n, 0.025) for k in harms],
        "calls": float(calls.mean()), "tokens": float(tokens.mean()),
    }  # fmt: skip


def main() -> None:
    """Run the analysis, keep it."""
    parser = out_parser(__doc__, RESULTS / "second_gate.json")
    parser.add_argument("--rehearse", action="store_true", help="leave the second gate shut")
    options = parser.parse_args()
    rows = rows_of("locomo-product")
    second = None if options.rehearse else rows_of(SECOND)
    judged = {judge: analyse(rows, second, judge) for judge in JUDGES}
    keep(round_numbers({"seed": SEED, "draws": DRAWS, "rehearsal": options.rehearse, "judges": judged}), options.out)


if __name__ == "__main__":
    main()
