"""Policies learned with one reader, scored with another (bench/prereg/wave4.md).

    python -m bench.reader_transfer --out bench/results/reader_transfer.json

Rows: wave 1 of friendsqa and longmemeval, once written and read by the model of 1.5B, once by that of 0.5B; the large
one judges both. A policy is learned on one of the two domains, its questions in two halves, and scored on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench import RESULTS, grid, keep, out_parser
from bench.doc_tables import format_gain
from bench.evaluation import round_numbers
from bench.travel import (
    DRAWS,
    FIXED,
    JUDGES,
    LEARNING,
    ROUTER,
    SEED,
    SERVED,
    Learn,
    draw_ways,
    estimate,
    halves,
    measures,
    play_always,
    read_runs,
    read_waves,
)
from retcon.lab.domains import Domain, Played, Policy, learn_fixed
from retcon.lab.fit_aside import learn_aside
from retcon.lab.fit_price import learn_price
from retcon.lab.report.cells import number
from retcon.note import RETAIN

DOMAINS = ("friendsqa", "longmemeval")
LARGE, SMALL = "1.5B", "0.5B"
READERS = {LARGE: "", SMALL: "-small"}
PRICES = (0.0, 0.5, 1.0)
LEARNERS: Mapping[str, Learn] = {
    FIXED: learn_fixed,
    ROUTER: partial(learn_aside, features=SERVED),
    **{f"ladder {price:g}": partial(learn_price, wrong_cost=price) for price in PRICES},
}
SHIPS = (1, 2, 3)  # waves of the policies that shipped when these rows were made


def measure_of(policy: str) -> tuple[str, float]:
    """What a policy is measured by, and at which share of unanswerable questions."""
    price = float(policy.removeprefix("ladder ")) if policy.startswith("ladder") else 0.0
    return (f"utility {price:g}", 0.2) if price else ("right", 0.0)


def read_wave(domain: str, reader: str) -> Domain:
    """Wave 1 of a domain by a reader."""
    return read_runs(domain, [f"{domain}-wave1{READERS[reader]}"])


def learn_all(domains: Sequence[Domain]) -> dict[str, Policy]:
    """Every policy; one domain is learned from in halves."""
    parts = domains if len(domains) > 1 else halves(domains[0])
    return {name: learn(parts) for name, learn in LEARNERS.items()}


def differ(one: Played, other: Played, domain: Domain, policy: str) -> dict[str, Any]:
    """One end less another by both judges, in what the policy is measured by."""
    measure, share = measure_of(policy)
    ways = {"by_question": draw_ways(domain)["by_question"]}
    return {
        judge: estimate(
            (measures(one, domain, judge)[measure] - measures(other, domain, judge)[measure]).mean(axis=1),
            domain, share, ways,
        )["by_question"]
        for judge in JUDGES
    }  # fmt: skip


def value(played: Played, domain: Domain, policy: str) -> dict[str, float]:
    """What a policy comes to by both judges."""
    measure, share = measure_of(policy)
    return {
        judge: float(domain.weights(share) @ measures(played, domain, judge)[measure].mean(axis=1)) for judge in JUDGES
    }


def run() -> dict[str, Any]:
    """Both directions, both readers; then what ships, on the small reader."""
    rows = {(name, reader): read_wave(name, reader) for name in DOMAINS for reader in READERS}
    found: dict[str, Any] = {"seed": SEED, "draws": DRAWS, "pairs": [], "shipped": []}
    for tested in DOMAINS:
        (taught,) = (name for name in DOMAINS if name != tested)
        learned = {reader: learn_all([rows[taught, reader]]) for reader in READERS}
        for reader, other in ((LARGE, SMALL), (SMALL, LARGE)):
            domain = rows[tested, reader]
            for policy in LEARNERS:
                own, foreign = (learned[each][policy](domain) for each in (reader, other))
                found["pairs"].append({
                    "scored": tested, "reader": reader, "policy": policy, "own": value(own, domain, policy),
                    "other": value(foreign, domain, policy), "gap": differ(foreign, own, domain, policy),
                })  # fmt: skip
        found["shipped"] += shipped(tested, rows[tested, SMALL], learned[SMALL][FIXED])
    return found


def shipped(tested: str, domain: Domain, own: Policy) -> list[dict[str, Any]]:
    """What is learned with the large reader on the other domains, on the small reader's rows."""
    learned = learn_all([read_waves(name, SHIPS) for name in LEARNING if name != tested])
    base, whole = own(domain), play_always(RETAIN, domain)
    return [
        {
            "scored": tested, "policy": name, "value": value(played, domain, name),
            "less_own_fixed": differ(played, base, domain, name), "less_whole": differ(played, whole, domain, name),
        }
        for name, played in ((name, policy(domain)) for name, policy in learned.items())
    ]  # fmt: skip


# -- tables ------------------------------------------------------------------------------------------------------------


def _both(values: Mapping[str, float]) -> str:
    return " \\| ".join(number(values[judge]) for judge in JUDGES)


def pairs_table(found: Mapping[str, Any]) -> str:
    """A policy learned with its own reader, with the other one, and the difference."""
    rows = [
        [
            row["scored"], row["reader"], row["policy"], _both(row["own"]), _both(row["other"]),
            *(format_gain(row["gap"][judge]) for judge in JUDGES),
        ]
        for row in found["pairs"]
    ]  # fmt: skip
    head = ["scored on", "reader", "policy", "learned with it", "learned with the other", "difference", "strict"]
    return grid(head, rows)


def shipped_table(found: Mapping[str, Any]) -> str:
    """Policies of the large reader on the small one's rows."""
    rows = [
        [
            row["scored"], row["policy"], _both(row["value"]),
            *(format_gain(row[of][judge]) for of in ("less_own_fixed", "less_whole") for judge in JUDGES),
        ]
        for row in found["shipped"]
    ]  # fmt: skip
    gaps = ("less the action selected for this reader", "strict", "less whole notes", "strict")
    return grid(["scored on", "policy", "value", *gaps], rows)


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "reader-pairs": pairs_table, "reader-shipped": shipped_table,
}  # fmt: skip


def main() -> None:
    """Run it, keep it."""
    keep(round_numbers(run()), out_parser(__doc__, RESULTS / "reader_transfer.json").parse_args().out)


if __name__ == "__main__":
    main()
