"""The routers that ship, from the committed rows: python -m bench.shipped_routers

Each looks at budget, fit and the type of the question alone, retains where everything fits, replaces where nothing
does, has a threshold per budget with a certificate (alpha .05, delta .10 at each budget alone) and a ladder. Two learn
from LongMemEval's pool, 60 % of its questions, and calibrate on the rest; two from LoCoMo's fit questions, calibrated
on its calibration questions: data under CC BY-NC 4.0, which those two files say. "-free" knows the actions that no
model writes. The gate is in none.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from bench import ROOT
from bench.evaluation import ALPHA, DELTA, FREE, ROWS, SEED, SIX, halves, panel_of
from retcon.lab.learn import calibrate_router, fit_router, read_provenance
from retcon.lab.outcomes import Outcomes, Panel, panel, read
from retcon.route import Router

ROUTERS = ROOT / "retcon" / "routers"
LICENCES = {
    "longmemeval": "MIT (LongMemEval)",
    "locomo": "CC BY-NC 4.0 (LoCoMo): learned from data that may not be used commercially",
}
DATA = {"longmemeval": "LongMemEval's pooled evidence turns", "locomo": "LoCoMo"}
TABLES = {"longmemeval": "pool-product.parquet", "locomo": "locomo-product.parquet"}


def parts(name: str, rows: Outcomes) -> tuple[Panel, Panel]:
    """Questions to learn from, and to calibrate on."""
    if name == "longmemeval":
        return halves(panel(rows, judge="llm"))
    return panel(rows.where(fold="fit"), judge="llm"), panel(rows.where(fold="calibration"), judge="llm")


def router(name: str, *, free: bool, folder: Path = ROWS) -> Router:
    """One of the routers that ship."""
    table = folder / TABLES[name]
    rows = read(table)
    learn, calibrate = (each.with_features(SIX) for each in parts(name, rows))
    if free:
        learn, calibrate = panel_of(learn, FREE), panel_of(calibrate, FREE)
    about = {
        "what": f"Learned from {_many(learn)} questions of {DATA[name]}, calibrated on {_many(calibrate)} others.",
        "license": LICENCES[name],
        "rows": f"bench/results/rows/{table.name}, sha256 {hashlib.sha256(table.read_bytes()).hexdigest()[:16]}",
        "command": "python -m bench.shipped_routers",
    }
    found = fit_router(rows, learn, name=f"{name}-free" if free else name, seed=SEED, fit_rules=True, about=about)
    made = read_provenance(rows.where(action=learn.actions))
    return calibrate_router(
        found, calibrate, rule="certified", alpha=ALPHA, delta=DELTA, joint="each", provenance=made
    )[0]


def _many(found: Panel) -> int:
    return len(found.questions)


def main() -> None:
    """All four files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROUTERS)
    options = parser.parse_args()
    for name in TABLES:
        for free in (False, True):
            made = router(name, free=free)
            made.save(options.out / f"{made.name}.json")
            taus = {budget: round(tau, 3) for budget, tau in made.thresholds.items()}
            print(f"{made.name}: {', '.join(made.actions)}; thresholds {taus}")


if __name__ == "__main__":
    main()
