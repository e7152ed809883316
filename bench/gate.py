"""The frozen analysis of bench/prereg.md: policies made from fit and calibration questions, scored once on the gate.

    python -m bench.gate --out bench/results/gate.json

Rows: bench/results/rows/locomo-product.parquet and locomo-product-gate.parquet. With --rehearse the calibration
questions stand in for the gate and a part of the fit questions for calibration: a trial that leaves the gate shut.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import ROOT
from retcon.calibrate import upper_bound
from retcon.crossfit import LADDERS, REFERENCE, Calibrated, CrossFit, Rules, default_policies, frozen
from retcon.learn import summarise
from retcon.outcomes import Outcomes, Panel, panel, read
from retcon.stats import interval, resample

ROWS = ROOT / "bench" / "results" / "rows"
SEED, DRAWS, ALPHA, DELTA, CAP = 20261115, 10_000, 0.05, 0.10, 0.02
JUDGES = ("llm", "strict")
SHIPPED, CAPPED = "ladder", "calibrated, cap .02"
RIVALS = ("best fixed, twice the budget", "best fixed, asked again", "vote of two")


def parts(rows: Outcomes, gate: Outcomes | None, judge: str) -> tuple[Panel, Panel, Panel]:
    """Fit, calibration and gate questions; without gate rows, calibration stands in for it (a rehearsal)."""
    fit, calibration = (panel(rows.where(fold=name), judge=judge) for name in ("fit", "calibration"))
    if gate is not None:
        return fit, calibration, panel(gate, judge=judge)
    half = np.arange(len(fit.questions)) % 3 == 0
    return fit.take(np.flatnonzero(~half)), fit.take(np.flatnonzero(half)), calibration


def analyse(rows: Outcomes, gate: Outcomes | None, judge: str) -> dict[str, Any]:
    """Every policy on the gate, the shipped one against the selected action and against its rivals at equal spend."""
    fit, calibration, opened = parts(rows, gate, judge)
    rules = Rules(alpha=ALPHA, delta=DELTA, seed=SEED)
    scored = frozen(fit, calibration, opened, policies=default_policies(fit), rules=rules)
    capped = frozen(fit, calibration, opened, policies={CAPPED: Calibrated()}, rules=replace(rules, cap=CAP))
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
    }


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
    lines = [f"| {' | '.join([*head, 'calls', 'tokens', 'macro, strict judge'])} |", "|---" * (len(head) + 3) + "|"]
    for row in first["policies"]:
        cells = ["" if value is None else f"{value:.3f}" for value in row["accuracy"]]
        gain = row["against"]
        shown = "" if gain is None else f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"
        tail = [f"{row['macro']:.3f}", shown, f"{row['harm']:.3f}", f"{row['calls']:.2f}", f"{row['tokens']:.0f}"]
        name = f"**{row['policy']}**" if row["policy"] == SHIPPED else row["policy"]
        cells += [*tail, f"{strict[row['policy']]:.3f}"]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def main() -> None:
    """Run the analysis, print it, keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--rehearse", action="store_true", help="leave the gate shut")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = read(options.rows / "locomo-product.parquet")
    gate = None if options.rehearse else read(options.rows / "locomo-product-gate.parquet")
    result = {
        "rehearsal": options.rehearse, "seed": SEED, "draws": DRAWS, "alpha": ALPHA, "delta": DELTA,
        "ladders": list(LADDERS), "judges": {judge: analyse(rows, gate, judge) for judge in JUDGES},
    }  # fmt: skip
    print(table(result))
    for judge in JUDGES:
        found = result["judges"][judge]
        print(judge, json.dumps({name: found[name] for name in ("primary", "gap_closed", "rivals")}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
