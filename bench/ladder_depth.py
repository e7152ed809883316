"""How far to climb: right answers, and answers where memory holds none, for every number of looks that is allowed.

    python -m bench.ladder_depth --out bench/results/ladder_depth.json

The shipped ladders, on questions that they did not learn from: LoCoMo's fit and calibration questions, and the part of
LongMemEval's pool that only calibrated thresholds, which ladders have none of. `max_looks` cuts an order short. A false
answer is any answer to a question that the history cannot answer.
"""

from __future__ import annotations

from typing import Any

from bench import RESULTS, keep, out_parser
from bench.evaluation import (
    DRAWS,
    JUDGES,
    SEED,
    estimate,
    expect_silence,
    round_numbers,
    rows_of,
    unlearned,
    ways_to_draw,
)
from bench.large_budgets import ROUTERS
from retcon.lab.fit_ladder import LOOKS, Array, Walk, serving_plan, walk, whole_first
from retcon.lab.outcomes import Panel, panel
from retcon.route import Router, load_shipped

SAFE = "whole notes first"
RUNS = {"locomo-product": "locomo-abstention", "pool-product": "pool-abstention"}  # answerable -> not answerable


def climb(router: Router, made: Panel) -> dict[str, Walk]:
    """What the ladder comes to with one look, two, and so on, and with all of them after one at whole notes."""
    order = serving_plan(router, made)
    cut = {str(most): order[:, :, :most] for most in range(1, 1 + min(LOOKS, len(router.actions)))}
    return {name: walk(made, plan) for name, plan in {**cut, SAFE: whole_first(order)}.items()}


def compare_depths(router: Router, asked: Panel, unanswerable: Panel) -> list[dict[str, Any]]:
    """A line a number of looks: right answers and false ones, each also as the difference from the line before."""
    right = climb(router, asked)
    false = {name: 1 - each.utility for name, each in climb(router, expect_silence(unanswerable)).items()}
    before = dict(zip(right, [None, *right], strict=False))
    return [
        {
            "looks": name, "right": float(came.utility.mean()), "calls": float(came.calls.mean()),
            "gain": _more(right[last].utility, came.utility, asked) if last else None,
            "false": float(false[name].mean()),
            "more_false": _more(false[last], false[name], unanswerable) if last else None,
        }
        for (name, came), last in zip(right.items(), before.values(), strict=True)
    ]  # fmt: skip


def _more(before: Array, after: Array, made: Panel) -> dict[str, Any]:
    return estimate((after - before).mean(axis=1), ways_to_draw(made))


def run() -> dict[str, Any]:
    """Both benchmarks, both ladders, both judges."""
    found: dict[str, Any] = {}
    for judge in JUDGES:
        found[judge] = {}
        for name, other in RUNS.items():
            every = panel(rows_of(name), judge=judge)
            asked = unlearned(every) if name.startswith("pool") else every
            unanswerable = panel(rows_of(other), judge=judge)
            found[judge][name] = {
                "questions": len(asked.questions), "unanswerable": len(unanswerable.questions),
                "routers": {each: compare_depths(load_shipped(each), asked, unanswerable) for each in ROUTERS},
            }  # fmt: skip
    plain: dict[str, Any] = round_numbers({"seed": SEED, "draws": DRAWS, "judges": found})
    return plain


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "ladder_depth.json").parse_args().out)


if __name__ == "__main__":
    main()
