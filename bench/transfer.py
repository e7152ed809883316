"""Learned on one benchmark, scored on the other: LongMemEval's pool and LoCoMo's fit and calibration questions.

    python -m bench.transfer --out bench/results/transfer.json

Every policy is frozen before it meets the other benchmark. From LongMemEval 60 % of the questions are learned from and
40 % calibrate (`evaluation.halves`); from LoCoMo its fit and its calibration questions. With all eleven features, and
with the six that say nothing of how large a store is (`evaluation.SIX`); with five actions, and with the two that need
no model to write. Beside each stands what the same policy comes to at home, cross-fitted by question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    FREE,
    JUDGES,
    LEARNS,
    SEED,
    SIX,
    Ways,
    estimate,
    halves,
    panel_of,
    round_numbers,
    rows_of,
    ways_to_draw,
)
from retcon.features import FEATURES
from retcon.lab.crossfit import (
    LADDERS,
    LEARNERS,
    REFERENCE,
    VOTE,
    CrossFit,
    Policy,
    Rules,
    always,
    crossfit,
    holdout,
)
from retcon.lab.outcomes import Panel, panel

Three = tuple[Panel, Panel, Panel]

RULES = Rules(alpha=ALPHA, delta=DELTA, seed=SEED)
ONE_ORDER = "ladder, one order a budget"
POLICIES: dict[str, Policy] = {
    "retention": always(0),
    **{name: LEARNERS[name] for name in (REFERENCE, "evidence-fit rule", "direct", "certified")},
    **{name: LADDERS[name] for name in ("ladder", ONE_ORDER)},
}
LINES = (*POLICIES, VOTE, "action oracle")
SETS = {"eleven": FEATURES, "six": SIX}
CHOICES: dict[str, Sequence[str] | None] = {"five": None, "no model": FREE}
REPEATS = 5
DEALT, DEALS = (REFERENCE, "direct", "certified", "ladder"), 20


def directions(judge: str) -> dict[str, Three]:
    """Questions to learn from and to calibrate on, as `LEARNS` saw them, and those that this judge scores."""
    pool, locomo = (panel(rows_of(name), judge=judge) for name in ("pool-product", "locomo-product"))
    fit, calibration = (
        panel(rows_of("locomo-product").where(fold=name), judge=LEARNS) for name in ("fit", "calibration")
    )
    learned = halves(panel(rows_of("pool-product"), judge=LEARNS))
    return {"LongMemEval to LoCoMo": (*learned, locomo), "LoCoMo to LongMemEval": (fit, calibration, pool)}


def score_transfer(three: Three, features: Sequence[str], actions: Sequence[str] | None) -> dict[str, Any]:
    """Every policy on the other benchmark, against the action selected per budget on the first one."""
    fit, calibration, test = (
        (each if actions is None else panel_of(each, actions)).with_features(features) for each in three
    )
    scored = holdout(fit, calibration, test, policies=POLICIES, rules=RULES)
    home = crossfit(test, policies=POLICIES, rules=RULES, repeats=REPEATS) if test.judge == LEARNS else None
    ways = ways_to_draw(test)
    return {
        "learned": len(fit.questions), "calibrated": len(calibration.questions), "scored": len(test.questions),
        "budgets": list(test.budgets), "policies": [line(scored, home, name, ways) for name in LINES],
    }  # fmt: skip


def deal_again(pool: Panel, test: Panel, features: Sequence[str]) -> dict[str, Any]:
    """How far the luck of dealing LongMemEval's questions to learning and calibration moves what comes of it."""
    pool, test = pool.with_features(features), test.with_features(features)
    found: dict[str, list[float]] = {name: [] for name in DEALT}
    for seed in range(DEALS):
        scored = holdout(*halves(pool, seed), test, policies={name: POLICIES[name] for name in DEALT}, rules=RULES)
        for name, values in found.items():
            values.append(scored.results[name].macro)
    return {
        name: {"mean": float(np.mean(values)), "least": min(values), "most": max(values), "deals": DEALS}
        for name, values in found.items()
    }


def line(scored: CrossFit, home: CrossFit | None, name: str, ways: Ways) -> dict[str, Any]:
    """One policy: accuracy, difference from the selected action, harm, spend, and the same policy at home, where it is
    learned from the verdicts that score it."""
    each, base = scored.results[name], scored.results[REFERENCE]
    gap = (each.utility - base.utility).mean(axis=1)
    return {
        "policy": name, "accuracy": each.utility.mean(axis=0).tolist(), "macro": each.macro,
        "against": None if name == REFERENCE else estimate(gap, ways), "harm": float(each.harmed.mean()),
        "calls": float(each.calls.mean()), "tokens": float((each.read + each.generated).mean()),
        "home": None if home is None else home.results[name].macro,
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Both directions under both judges."""
    judged = {
        judge: {
            way: {
                choice: {size: score_transfer(three, names, actions) for size, names in SETS.items()}
                for choice, actions in CHOICES.items()
            }
            for way, three in directions(judge).items()
        }
        for judge in JUDGES
    }
    pool = panel(rows_of("pool-product"), judge=LEARNS)
    again = {
        judge: {
            size: deal_again(pool, panel(rows_of("locomo-product"), judge=judge), names) for size, names in SETS.items()
        }
        for judge in JUDGES
    }
    about = {"seed": SEED, "draws": DRAWS, "repeats": REPEATS}
    found: dict[str, Any] = round_numbers({**about, "judges": judged, "dealt_again": again})
    return found


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "transfer.json").parse_args().out)


if __name__ == "__main__":
    main()
