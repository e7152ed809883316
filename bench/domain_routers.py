"""The routers learned on many domains, from the committed rows: python -m bench.domain_routers

`domains` learns from the five domains with permissive licences; `domains-nc` from all seven, LoCoMo and timelineqa
among them, which are under CC BY-NC 4.0, and says so. Each has the actions selected per budget, the margin by which it
may leave them (none where the inner loop showed no gain), thresholds for `safe`, drafts, a confidence, and a ladder for
each price of a wrong answer. What they are worth on a domain left out is in docs/results/domains.md (`bench.travel`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import ROOT
from bench.evaluation import rows_of
from bench.travel import LEARNING, OPENED, WAVES, learn_shipped_safe, read_waves
from retcon.confidence import Confidence
from retcon.drafts import Drafts
from retcon.lab.domains import Domain, rank_actions
from retcon.lab.fit_drafts import learn_drafts
from retcon.lab.fit_price import PRICES, choose_climbs, fit_confidence, to_ladder
from retcon.lab.learn import read_provenance
from retcon.route import Router

ROUTERS = ROOT / "retcon" / "routers"
COUNTS = (2, 3)  # of drafts
DECIMALS = 6
LICENCES = {
    "domains": "learned from data under permissive licences: LongMemEval (MIT), LifeBench (Apache 2.0),"
    " MemoryAgentBench (MIT), FriendsQA (Apache 2.0), TimeQA (BSD 3-Clause)",
    "domains-nc": "CC BY-NC 4.0 (LoCoMo, TimelineQA): learned from data that may not be used commercially",
}


def make_router(name: str, domains: Sequence[Domain]) -> Router:
    """The router that these domains teach."""
    safe = learn_shipped_safe(domains)
    aside = safe.aside
    first, confidence, response = domains[0], fit_confidence(domains), aside.response
    return Router(
        name=name,
        actions=first.actions,
        features=aside.form.features,
        weights={action: _round(response.theta[a]) for a, action in enumerate(first.actions)},
        intercepts={action: _round([response.intercept[a]])[0] for a, action in enumerate(first.actions)},
        thresholds=dict(zip(first.budgets, _round(safe.taus), strict=True)),
        budgets=first.budgets,
        embedder="hashing",
        counter="estimate",
        provenance=_tell(name, domains),
        fit_rules=True,
        fixed={budget: tuple(row) for budget, row in zip(first.budgets, rank_actions(domains), strict=True)},
        margin=aside.margin,
        drafts={count: _round_drafts(learn_drafts(domains, count).drafts) for count in COUNTS},
        confidence=round_confidence(confidence),
        prices={price: to_ladder(choose_climbs(domains, price)) for price in PRICES},
    )


def _tell(name: str, domains: Sequence[Domain]) -> dict[str, Any]:
    rows = [rows_of(f"{domain.name}-wave{wave}") for domain in domains for wave in WAVES]
    known = [read_provenance(each) for each in rows]
    shared = {key: value for key, value in known[0].items() if all(each.get(key) == value for each in known)}
    questions = sum(len(domain.questions) for domain in domains)
    return {
        **{key: value for key, value in shared.items() if key not in ("embedder", "counter", "license")},
        "what": f"Learned from {questions} questions of {len(domains)} domains, which weigh alike.",
        "domains": [domain.name for domain in domains],
        "license": LICENCES[name],
        "types": "guessed",
        "judge": "llm",
        "thresholds": "at each budget the strictest of the domains' thresholds, each certified (alpha .05, delta .10)"
        " for a response learned on the others",
        "command": "python -m bench.domain_routers",
    }


def _round(numbers: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(number), DECIMALS) + 0.0 for number in numbers)


def _round_drafts(drafts: Drafts) -> Drafts:
    return replace(
        drafts, weights=_round(drafts.weights), levels=_round(drafts.levels), slopes=_round(drafts.slopes)
    )  # fmt: skip


def round_confidence(confidence: Confidence) -> Confidence:
    """With as many decimals as a file has."""
    return replace(confidence, weights=_round(confidence.weights), intercept=_round([confidence.intercept])[0])


def main() -> None:
    """Both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROUTERS)
    options = parser.parse_args()
    for name, chosen in (("domains", LEARNING), ("domains-nc", (*LEARNING, *OPENED))):
        made = make_router(name, [read_waves(each) for each in chosen])
        made.save(options.out / f"{name}.json")
        print(name, {budget: row[0] for budget, row in made.fixed.items()}, "margin", made.margin)
        print("  thresholds", {b: tau if np.isfinite(tau) else None for b, tau in made.thresholds.items()})
        for price, ladder in made.prices.items():
            print(" ", price, [" > ".join(order) for order in ladder.orders], ladder.stops, ladder.accepts)


if __name__ == "__main__":
    main()
