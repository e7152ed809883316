"""Whether the model's own word on a text, in one token, helps to choose between drafts (bench/prereg/wave4.md).

    python -m bench.draft_check --out bench/results/draft_check.json

Rows: wave 4 of each domain, the only one whose texts were there to be asked about. Drafts with and without the trait
`holds` are learned on wave 4 of the other learning domains; the selected action comes from their first three waves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench import RESULTS, grid, keep, out_parser
from bench.doc_tables import format_gain
from bench.evaluation import round_numbers
from bench.travel import (
    DRAWS,
    FIXED,
    FRESH,
    JUDGES,
    LEARNING,
    OPENED,
    SEED,
    WAVES,
    auc,
    draw_ways,
    estimate,
    measures,
    read_waves,
)
from retcon.drafts import TRAITS
from retcon.lab.domains import Domain, Policy, learn_fixed
from retcon.lab.fit_drafts import Writing, learn_drafts
from retcon.lab.report.cells import number
from retcon.lab.stats import sign_flip

COUNTS = (2, 3)
EARLIER = tuple(wave for wave in WAVES if wave not in FRESH)
MEASURES = (("right", 0.0), ("utility 0.5", 0.2))
PAIRS = tuple(
    pair
    for count in COUNTS
    for pair in (
        (f"drafts {count}, asked", f"drafts {count}"),
        (f"drafts {count}, asked", FIXED),
        (f"drafts {count}", FIXED),
    )
)


def without(domain: Domain) -> Domain:
    """The domain without the model's word."""
    return replace(domain, traits=domain.traits[..., : len(TRAITS)], trait_names=TRAITS)


def learn(rest: Sequence[Domain], earlier: Sequence[Domain]) -> dict[str, Policy]:
    """The policies that these domains teach."""
    found: dict[str, Policy] = {FIXED: learn_fixed(earlier)}
    for count in COUNTS:
        found[f"drafts {count}"] = _blind(learn_drafts([without(domain) for domain in rest], count))
        found[f"drafts {count}, asked"] = learn_drafts(rest, count)
    return found


def _blind(writing: Writing) -> Policy:
    return lambda domain: writing(without(domain))


def report(domain: Domain, learned: Mapping[str, Policy]) -> dict[str, Any]:
    """The figures of one domain."""
    ways, ends = draw_ways(domain), {name: policy(domain) for name, policy in learned.items()}
    found: dict[str, Any] = {"differences": {}, "asked": tell(domain)}
    for one, other in PAIRS:
        for judge in JUDGES:
            mine, theirs = (measures(ends[name], domain, judge) for name in (one, other))
            for measure, share in MEASURES:
                gap = estimate((mine[measure] - theirs[measure]).mean(axis=1), domain, share, ways)
                found["differences"].setdefault(f"{one} less {other}", {}).setdefault(judge, {})[measure] = gap
    found["right"] = {
        name: {
            judge: float(domain.weights(0.0) @ measures(each, domain, judge)["right"].mean(axis=1)) for judge in JUDGES
        }
        for name, each in ends.items()
    }
    found["chosen"] = {name: each.drafts.actions for name, each in learned.items() if isinstance(each, Writing)}
    return found


def tell(domain: Domain) -> dict[str, float]:
    """How well the model's word tells texts that are read right, and questions that can be answered."""
    said = domain.traits[..., len(TRAITS)]
    there = np.broadcast_to(domain.answerable[:, None, None], said.shape)
    right = domain.verdicts["llm"] > 0.5
    return {
        "right": auc(said[there], right[there], np.ones(int(there.sum()))),
        "answerable": auc(said.ravel(), there.ravel(), np.ones(said.size)),
        "yes": float((said > 0.5).mean()),
    }


def run() -> dict[str, Any]:
    """Nested over the learning domains, then the two that were opened once."""
    fresh = {name: read_waves(name, FRESH, holds=True) for name in (*LEARNING, *OPENED)}
    earlier = {name: read_waves(name, EARLIER) for name in LEARNING}
    found = {}
    for name in (*LEARNING, *OPENED):
        rest = [other for other in LEARNING if other != name]
        learned = learn([fresh[other] for other in rest], [earlier[other] for other in rest])
        found[name] = report(fresh[name], learned)
        print(name, flush=True)
    return {"seed": SEED, "draws": DRAWS, "domains": found, "over nested": over(found)}


def over(found: Mapping[str, Any]) -> dict[str, Any]:
    """The mean over the learning domains of every difference, with a sign-flip test."""
    out: dict[str, Any] = {}
    for pair, of in found[LEARNING[0]]["differences"].items():
        for judge in JUDGES:
            for measure in of[judge]:
                gaps = [found[name]["differences"][pair][judge][measure] for name in LEARNING]
                each = [gap["by_question"]["mean"] for gap in gaps]
                p = sign_flip(each, seed=SEED, alternative="two-sided")
                made = {"mean": float(np.mean(each)), "each": each, "p": p}
                out.setdefault(pair, {}).setdefault(judge, {})[measure] = made
    return out


# -- tables ------------------------------------------------------------------------------------------------------------


def differences_table(found: Mapping[str, Any]) -> str:
    """Right answers, every difference, each domain."""
    rows: list[Sequence[str]] = []
    domains = found["domains"]
    for pair, of in found["over nested"].items():
        rows.append([f"*{pair}*", *[""] * (len(domains) + 2)])
        for judge in JUDGES:
            cells = [format_gain(each["differences"][pair][judge]["right"]["by_question"]) for each in domains.values()]
            mean = of[judge]["right"]
            rows.append([judge, *cells, f"**{number(mean['mean'], signed=True)}**", f"{mean['p']:.3f}"])
    return grid(["", *domains, "mean of the nested", "p"], rows)


def asked_table(found: Mapping[str, Any]) -> str:
    """What the model's word tells, by domain."""
    rows = [
        [name, *(number(each["asked"][what]) for what in ("right", "answerable", "yes"))]
        for name, each in found["domains"].items()
    ]
    return grid(["", "AUC: read right or not", "AUC: answerable or not", "said yes"], rows)


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "draft-check": differences_table, "draft-check-asked": asked_table,
}  # fmt: skip


def main() -> None:
    """Run it, keep it."""
    options = out_parser(__doc__, RESULTS / "draft_check.json").parse_args()
    keep(round_numbers(run()), options.out)


if __name__ == "__main__":
    main()
