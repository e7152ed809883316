"""How far to climb: right answers, and answers where memory holds none, for every number of looks that is allowed.

    python -m bench.climb --out bench/results/climb.json

The shipped ladders, on questions that they did not learn from: LoCoMo's fit and calibration questions, and the part of
LongMemEval's pool that only calibrated thresholds, which ladders have none of. `max_looks` cuts an order short. A false
answer is any answer to a question that the history cannot answer.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.beyond import ROUTERS
from bench.findings import estimated, keep, rounded, rows_of, ways_to_draw
from bench.gate import DRAWS, JUDGES, ROWS, SEED, halves
from retcon.lab.fit_ladder import LOOKS, Array, Walked, served, walk, whole_first
from retcon.lab.outcomes import Panel, panel
from retcon.route import Router, load_shipped

SAFE = "whole notes first"
RUNS = {"locomo-product": "locomo-abstention", "pool-product": "pool-abstention"}  # answerable -> not answerable


def climbed(router: Router, made: Panel) -> dict[str, Walked]:
    """What the ladder comes to with one look, two, and so on, and with all of them after one at whole notes."""
    order = served(router, made)
    cut = {str(most): order[:, :, :most] for most in range(1, 1 + min(LOOKS, len(router.actions)))}
    return {name: walk(made, plan) for name, plan in {**cut, SAFE: whole_first(order)}.items()}


def silent(made: Panel) -> Panel:
    """The same questions where the only right thing is to abstain."""
    assert made.abstained is not None
    return replace(made, runs=made.abstained)


def ladder(router: Router, asked: Panel, unanswerable: Panel) -> list[dict[str, Any]]:
    """A line a number of looks: right answers and false ones, each also as the difference from the line before."""
    right = climbed(router, asked)
    false = {name: 1 - each.utility for name, each in climbed(router, silent(unanswerable)).items()}
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
    return estimated((after - before).mean(axis=1), ways_to_draw(made))


def run() -> dict[str, Any]:
    """Both benchmarks, both ladders, both judges."""
    found: dict[str, Any] = {}
    for judge in JUDGES:
        found[judge] = {}
        for name, other in RUNS.items():
            every = panel(rows_of(name), judge=judge)
            asked = halves(every)[1] if name.startswith("pool") else every
            unanswerable = panel(rows_of(other), judge=judge)
            found[judge][name] = {
                "questions": len(asked.questions), "unanswerable": len(unanswerable.questions),
                "routers": {each: ladder(load_shipped(each), asked, unanswerable) for each in ROUTERS},
            }  # fmt: skip
    plain: dict[str, Any] = rounded({"seed": SEED, "draws": DRAWS, "judges": found})
    return plain


def main() -> None:
    """Compute, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROWS.parent / "climb.json")
    options = parser.parse_args()
    keep(run(), options.out)


if __name__ == "__main__":
    main()
