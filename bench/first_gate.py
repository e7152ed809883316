"""The frozen analysis of bench/prereg.md: policies made from fit and calibration questions, scored on the gate.

    python -m bench.first_gate --out bench/results/first_gate.json

Rows: bench/results/rows, locomo-product.parquet and locomo-product-gate.parquet; for what its addendum asks beside
them pool-product.parquet and locomo-abstention.parquet. With --rehearse the calibration questions stand in for the gate
and a part of the fit questions for calibration: a trial that leaves the gate shut.

Policies are learned from the model judge's verdicts alone, then frozen, and both judges score the same ones. (As it was
first run, the strict judge's column held policies learned anew from its own verdicts.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import grid, keep, out_parser
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    FREE,
    JUDGES,
    LEARNS,
    ROWS,
    SEED,
    SIX,
    expect_silence,
    halves,
    panel_of,
    parts,
)
from retcon.lab import fit_ladder as ladder
from retcon.lab.calibrate import upper_bound
from retcon.lab.crossfit import (
    LADDERS,
    REFERENCE,
    Calibrated,
    CrossFit,
    Direct,
    Policy,
    Rules,
    best_fixed,
    default_policies,
    holdout,
    learned_ladder,
)
from retcon.lab.learn import summarise
from retcon.lab.outcomes import Outcomes, Panel, panel, read
from retcon.lab.stats import interval, resample

CAP = 0.02
SHIPPED, CAPPED = "ladder", "calibrated, cap .02"
PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
LEARNED: dict[str, Policy] = {
    REFERENCE: best_fixed(0), "direct": Direct(), "certified": Calibrated(certified=True), "ladder": learned_ladder,
}  # fmt: skip
RIVALS = ("best fixed, twice the budget", "best fixed, asked again", "vote of two")
RULES = Rules(alpha=ALPHA, delta=DELTA, seed=SEED)


def analyse(rows: Outcomes, gate: Outcomes | None, pool: Outcomes, judge: str) -> dict[str, Any]:
    """Every policy on the gate, the shipped one against the selected action and against its rivals at equal spend."""
    fit, calibration, opened = parts(rows, gate, judge)
    rules, three, elsewhere = RULES, (fit, calibration, opened), panel(pool, judge=LEARNS)
    scored = holdout(fit, calibration, opened, policies=default_policies(fit), rules=rules)
    capped = holdout(fit, calibration, opened, policies={CAPPED: Calibrated()}, rules=replace(rules, cap=CAP))
    scored = replace(scored, results={**scored.results, CAPPED: capped.results[CAPPED]})
    found = summarise(scored, reference=REFERENCE, draws=DRAWS)
    return {
        **found,
        "parts": {"fit": len(fit.questions), "calibration": len(calibration.questions), "gate": len(opened.questions)},
        "primary": against(scored, SHIPPED, REFERENCE),
        "rivals": {name: against(scored, SHIPPED, name) for name in RIVALS},
        "gap_closed": gap_closed(scored),
        "harm": {name: harm(scored, name) for name in (SHIPPED, "direct", "calibrated", CAPPED, "certified")},
        "thresholds": {
            name: {str(budget): _plain(asdict(each)) for budget, each in taus[0].items()}
            for name, taus in scored.thresholds.items()
        },
        "six_features": beside(three, rules, SIX),
        "no_model": beside(tuple(panel_of(each, FREE) for each in three), rules, SIX),
        "across": beside((*halves(elsewhere), opened), rules, SIX),
        "across_no_model": beside((*halves(panel_of(elsewhere, FREE)), panel_of(opened, FREE)), rules, SIX),
        "spend": spend(fit, opened),
    }


def beside(three: tuple[Panel, ...], rules: Rules, features: Sequence[str]) -> dict[str, Any]:
    """The learned policies with these features alone, against the action selected per budget on the same questions."""
    fit, calibration, opened = (each.with_features(features) for each in three)
    scored = holdout(fit, calibration, opened, policies=LEARNED, rules=rules)
    found = summarise(scored, reference=REFERENCE, draws=DRAWS)
    kept = [row for row in found["policies"] if row["policy"] in (*LEARNED, "vote of two", "action oracle")]
    return {
        "policies": kept,
        "gap_closed": gap_closed(scored),
        "harm": {name: harm(scored, name) for name in ("direct", "certified", "ladder")},
    }


def false_answers(fit: Panel, calibration: Panel, asked: Panel, rules: Rules) -> dict[str, Any]:
    """How often each policy's last reply is an answer, where memory holds none; no judge is needed to tell."""
    scored = holdout(fit, calibration, expect_silence(asked), policies=default_policies(fit), rules=rules)
    draws = resample(len(asked.questions), seed=SEED, draws=DRAWS)
    out, whole = {}, 1 - scored.results["retention"].utility
    for name, found in scored.results.items():
        if "oracle" in name or not found.seen.all():
            continue
        spoke = 1 - found.utility
        out[name] = {
            "rate": [float(value) for value in spoke.mean(axis=0)], **asdict(interval(spoke.mean(axis=1), draws)),
            "less_retention": asdict(interval((spoke - whole).mean(axis=1), draws)),
            "calls": float(found.calls.mean()),
        }  # fmt: skip
    return {"questions": len(asked.questions), "policies": out}


def spend(fit: Panel, opened: Panel) -> list[dict[str, float]]:
    """The ladder at several prices of a call: what it spends, and what it comes to."""
    points = []
    for price in PRICES:
        went = ladder.walk(opened, ladder.plan(ladder.fit_ladder(fit, call_price=price), opened))
        values = {name: float(getattr(went, name).mean()) for name in ("utility", "calls", "read", "generated")}
        points.append({"price": price, **values})
    return points


def against(scored: CrossFit, name: str, other: str) -> dict[str, Any]:
    """The paired difference in accuracy over the budgets that both have, drawn by question and by conversation."""
    mine, theirs = scored.results[name], scored.results[other]
    both = mine.seen & theirs.seen
    gains = _means(np.where(both, mine.utility - theirs.utility, np.nan))
    size = len(scored.panel.questions)
    draws = {
        "by_question": resample(size, seed=SEED, draws=DRAWS),
        "by_conversation": resample(size, seed=SEED, draws=DRAWS, clusters=scored.panel.conversations),
    }
    return {how: asdict(interval(gains, some)) for how, some in draws.items()} | {
        "calls": [float(np.nanmean(np.where(both, each.calls, np.nan))) for each in (mine, theirs)],
        "budgets": [budget for b, budget in enumerate(scored.panel.budgets) if both[:, b].any()],
    }


def gap_closed(scored: CrossFit) -> dict[str, float]:
    """(shipped - selected) / (oracle - selected), with its bootstrap interval over questions."""
    best, base, top = (scored.results[name].utility.mean(axis=1) for name in (SHIPPED, REFERENCE, "action oracle"))
    counts = np.random.default_rng(SEED).integers(0, len(base), (DRAWS, len(base)))
    shares = (best - base)[counts].mean(axis=1) / (top - base)[counts].mean(axis=1)
    low, high = np.percentile(shares, [2.5, 97.5])
    return {"share": float((best - base).mean() / (top - base).mean()), "low": float(low), "high": float(high)}


def harm(scored: CrossFit, name: str) -> dict[str, Any]:
    """Harmed questions at each budget with the exact two-sided 95 % interval."""
    found = scored.results[name]
    counts, n = found.harmed.sum(axis=0).astype(int).tolist(), len(scored.panel.questions)
    return {
        str(budget): {"harmed": k, "n": n, "rate": k / n, "low": _lower(k, n), "high": upper_bound(k, n, 0.025)}
        for budget, k in zip(scored.panel.budgets, counts, strict=True)
    }


def _lower(k: int, n: int) -> float:
    return 1 - upper_bound(n - k, n, 0.025)


def _means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    there = ~np.isnan(values)
    return np.asarray(np.nansum(values, axis=1) / np.maximum(there.sum(axis=1), 1))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value in (float("inf"), None) else value for name, value in values.items()}


def table(result: dict[str, Any]) -> str:
    """Every policy on the gate, as Markdown, under the primary judge with the strict one beside it."""
    first, second = (result["judges"][judge] for judge in JUDGES)
    strict = {row["policy"]: row["macro"] for row in second["policies"]}
    head = ["policy", *(str(budget) for budget in first["budgets"]), "macro", "against the selected action", "harm"]
    lines = []
    for row in first["policies"]:
        cells = ["" if value is None else f"{value:.3f}" for value in row["accuracy"]]
        gain = row["against"]
        shown = "" if gain is None else f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"
        tail = [f"{row['macro']:.3f}", shown, f"{row['harm']:.3f}", f"{row['calls']:.2f}", f"{row['tokens']:.0f}"]
        name = f"**{row['policy']}**" if row["policy"] == SHIPPED else row["policy"]
        lines.append([name, *cells, *tail, f"{strict[row['policy']]:.3f}"])
    return grid([*head, "calls", "tokens", "macro, strict judge"], lines)


def main() -> None:
    """Run the analysis, print it, keep it."""
    parser = out_parser(__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--rehearse", action="store_true", help="leave the gate shut")
    options = parser.parse_args()
    rows = read(options.rows / "locomo-product.parquet")
    gate = None if options.rehearse else read(options.rows / "locomo-product-gate.parquet")
    pool, unanswerable = (read(options.rows / f"{name}.parquet") for name in ("pool-product", "locomo-abstention"))
    fit, calibration, _ = parts(rows, gate, LEARNS)
    result = {
        "rehearsal": options.rehearse, "seed": SEED, "draws": DRAWS, "alpha": ALPHA, "delta": DELTA,
        "ladders": list(LADDERS), "learned": LEARNS,
        "judges": {judge: analyse(rows, gate, pool, judge) for judge in JUDGES},
        "false_answers": false_answers(fit, calibration, panel(unanswerable, judge=LEARNS), RULES),
    }  # fmt: skip
    print(table(result))
    for judge in JUDGES:
        found = result["judges"][judge]
        print(judge, json.dumps({name: found[name] for name in ("primary", "gap_closed", "rivals")}, indent=1))
    keep(result, options.out)


if __name__ == "__main__":
    main()
