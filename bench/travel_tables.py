"""The tables of decisions over domains, from what `bench.travel` kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import grid
from bench.doc_tables import format_gain
from bench.travel import COSTS, FIXED, JUDGES, ORACLE, ROUTER, SHARES, SILENT, TWICE, VOTE
from retcon.lab.report.cells import number

Found = Mapping[str, Any]

NAMES = {
    FIXED: "the action selected per budget",
    **{f"fixed at {cost:g}": f"the same, selected at wrong_cost {cost:g}" for cost in COSTS[1:]},
    ROUTER: "router",
    "drafts 2": "two drafts, one kept",
    "drafts 3": "three drafts, one kept",
    TWICE: "the selected action at twice the budget",
    **{f"ladder {cost:g}": f"ladder, wrong_cost {cost:g}" for cost in (0, 0.25, 0.5, 1, 2)},
    "ladder 0.5, nothing written": "ladder, wrong_cost 0.5, whole notes and Extract alone",
    "free router": "router over whole notes and Extract",
    "safe": "safe, as preregistered (not shipped)",
    ORACLE: "oracle: a right action where there is one",
}
ONE_CALL = (ROUTER, "router, retrieval's features too", "drafts 2", "drafts 3", TWICE, "always abstract", ORACLE)
CURVE = (
    SILENT, "always retain", "always extract", FIXED, "fixed at 0.5", "fixed at 1", TWICE, VOTE, "ladder 0",
    "ladder 0.25", "ladder 0.5", "ladder 1", "ladder 2", "ladder 0.5, nothing written",
)  # fmt: skip


def name_of(policy: str) -> str:
    """A policy as people call it."""
    return NAMES.get(policy, policy)


def _signed(value: float) -> str:
    return number(value, signed=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _value(found: Found, domain: str, policy: str, judge: str, share: str, measure: str) -> float:
    """The mean over budgets."""
    return _mean(found["domains"][domain]["policies"][policy][judge][share][measure])


def _spent(found: Found, policy: str, what: str, share: str) -> float:
    """Calls or tokens, mean of the nested domains."""
    return _mean([found["domains"][domain]["policies"][policy][what][share] for domain in found["nested"]])


def _domain_head(found: Found) -> list[str]:
    return [name if name in found["nested"] else f"{name}, opened once" for name in found["domains"]]


def differences(found: Found, pairs: Sequence[tuple[str, str]], measure: str, share: str) -> str:
    """For each pair and judge the difference in every domain, and over the nested ones with its sign-flip test."""
    rows: list[Sequence[str]] = []
    for one, other in pairs:
        key = f"{one} less {other}"
        rows.append([f"*{name_of(one)}, less {name_of(other)}*", *[""] * (len(found["domains"]) + 3)])
        for judge in JUDGES:
            over, every = (found[part][key][judge][share][measure] for part in ("over nested", "over all"))
            cells = [
                format_gain(found["domains"][domain]["differences"][key][judge][share][measure]["by_question"])
                for domain in found["domains"]
            ]
            rows.append(
                [judge, *cells, f"**{_signed(over['mean'])}**", f"{over['p']:.3f}", f"{every['p']:.3f}"]
            )  # fmt: skip
    return grid(["", *_domain_head(found), "mean of the nested", "p, 5 domains", "p, 7"], rows)


def by_conversation(found: Found, pairs: Sequence[tuple[str, str, str, str]]) -> str:
    """Intervals by conversation of the headline differences."""
    rows = []
    for one, other, measure, share in pairs:
        for judge in JUDGES:
            cells = [
                format_gain(each[share][measure].get("by_conversation") or each[share][measure]["by_question"])
                for each in (
                    found["domains"][domain]["differences"][f"{one} less {other}"][judge] for domain in found["domains"]
                )
            ]
            rows.append([f"{name_of(one)}, less {name_of(other)}; {measure} at {share}; {judge}", *cells])
    return grid(["", *_domain_head(found)], rows)


def right_table(found: Found) -> str:
    """Right answers of answerable questions, mean over budgets, by policy and domain."""
    policies = (
        FIXED,
        *ONE_CALL[:-2],
        "safe",
        *(f"always {a}" for a in ACTIONS),
        VOTE,
        "ladder 0",
        "ladder 0.5",
        ORACLE,
    )
    rows = []
    for policy in policies:
        cells = [
            " \\| ".join(number(_value(found, domain, policy, judge, "0", "right")) for judge in JUDGES)
            for domain in found["domains"]
        ]
        mean = " \\| ".join(
            number(_mean([_value(found, domain, policy, judge, "0", "right") for domain in found["nested"]]))
            for judge in JUDGES
        )
        rows.append([name_of(policy), *cells, mean, f"{_spent(found, policy, 'calls', '0'):.1f}"])
    return grid(["", *_domain_head(found), "mean of the nested", "reader calls"], rows)


ACTIONS = ("retain", "extract", "merge", "abstract", "hybrid")


def curve_table(found: Found) -> str:
    """Right against wrong answers, mean of the nested domains, at each share of unanswerable questions."""
    rows = []
    for policy in CURVE:
        cells = []
        for share in SHARES:
            for judge in JUDGES:
                right, wrong = (
                    _mean([_value(found, d, policy, judge, f"{share:g}", measure) for d in found["nested"]])
                    for measure in ("right", "wrong")
                )
                cells.append(f"{number(right)} : {number(wrong)}")
        calls, tokens = (_spent(found, policy, what, "0.2") for what in ("calls", "tokens"))
        rows.append([name_of(policy), *cells, f"{calls:.1f}", f"{tokens:,.0f}"])
    head = [f"{share:.0%} unanswerable, {judge}" for share in SHARES for judge in JUDGES]
    return grid(["", *head, "reader calls", "model tokens"], rows)


def kinds_table(found: Found) -> str:
    """How often a policy answers where memory holds no answer, by kind of unanswerable question."""
    policies = ("always retain", "always extract", FIXED, "ladder 0", "ladder 0.5", "ladder 1", "ladder 2")
    rows = []
    for domain, each in found["domains"].items():
        for kind, count in each["questions"].items():
            if kind != "answerable":
                cells = [number(each["policies"][policy]["false answers"][kind]) for policy in policies]
                rows.append([domain, kind, str(count), *cells])
    return grid(["", "kind", "questions", *map(name_of, policies)], rows)


def confidence_table(found: Found) -> str:
    """How well a confidence learned elsewhere tells right replies from wrong ones."""
    rows = []
    for domain, each in found["domains"].items():
        sure = each["confidence"]
        kinds = ", ".join(f"{kind} {number(value)}" for kind, value in sure["auc by kind"].items())
        rows.append(
            [domain, f"{sure['replies']:,}", number(sure["auc"]), number(sure["auc of answerable"]), kinds,
             number(sure["calibration error"])]
        )  # fmt: skip
    head = ["", "replies", "right from wrong", "of answerable questions", "answerable from", "calibration error"]
    return grid(head, rows)


def safe_table(found: Found) -> str:
    """Right answers of whole notes that `safe` lost in a domain left out, with the exact upper bound (95 %)."""
    rows = []
    for domain, each in found["domains"].items():
        harm = each["harm"]["safe, as shipped"]
        cells = [f"{lost} (≤ {number(most)})" for lost, most in zip(harm["harms"], harm["at_most"], strict=True)]
        replaced = _mean(harm["replaced"])
        rows.append([domain, str(harm["questions"]), *cells, f"{replaced:.0%}"])
    return grid(["", "questions", "32", "64", "128", "256", "512", "replaced"], rows)


def chosen_table(found: Found) -> str:
    """What the other domains chose for each domain."""
    rows = []
    for domain, each in found["domains"].items():
        chosen = each["chosen"]
        router, drafts = chosen[ROUTER], chosen["drafts 2"]
        margin = "steps aside" if router["margin"] is None else f"margin {router['margin']:g}"
        climbs = (f"{order}, stop {stop:g}, accept {accept:g}" for order, stop, accept in chosen["ladder 0.5"].values())
        looks = "; ".join(dict.fromkeys(climbs))
        rows.append([domain, ", ".join(each["selected"]), margin, ", ".join(drafts["actions"]), looks])
    return grid(
        ["", "selected at 32 to 512", "router", "two drafts", "ladder at wrong_cost .5, small and large budgets"], rows
    )


def readme_table(found: Found) -> str:
    """Six rows: what is gained on domains that nothing was learned on."""
    lines = (
        ("router", "router less fixed", "right", "0"),
        ("two drafts", "drafts 2 less fixed", "right", "0"),
        ("three drafts", "drafts 3 less fixed", "right", "0"),
        ("ladder, wrong_cost 0", "ladder 0 less fixed", "right", "0"),
        ("ladder, wrong_cost .5, 20 % unanswerable", "ladder 0.5 less fixed", "utility 0.5", "0.2"),
        ("ladder, wrong_cost 1, 20 % unanswerable", "ladder 1 less fixed", "utility 1", "0.2"),
    )
    opened = [domain for domain in found["domains"] if domain not in found["nested"]]
    rows = []
    for label, pair, measure, share in lines:
        cells = []
        for judge in JUDGES:
            over = found["over nested"][pair][judge][share][measure]
            cells.append(f"{_signed(over['mean'])} ({_signed(min(over['each']))}…{_signed(max(over['each']))})")
        for domain in opened:
            gap = found["domains"][domain]["differences"][pair]["llm"][share][measure]["by_question"]
            cells.append(f"{_signed(gap['mean'])} [{_signed(gap['low'])}…{_signed(gap['high'])}]")
        rows.append([label, *cells, f"{_spent(found, pair.split(' less ')[0], 'calls', share):.1f}"])
    return grid(["", "five domains", "strict judge", *opened, "reader calls"], rows)


def corrected_table(found: Found) -> str:
    """The headline differences by both judges, and corrected by labelled replies."""
    rows = []
    for key, made in found["corrected"]["nested"].items():
        pair, of = key.split(", ", 1)
        measure, share = of.split(" at ")
        judged = [_signed(found["over nested"][pair][judge][share][measure]["mean"]) for judge in JUDGES]
        opened = [format_gain(each[key]) for name, each in found["corrected"].items() if name != "nested"]
        one = pair.split(" less ")[0]
        rows.append(
            [f"{name_of(one)}; {measure} at {float(share):.0%} unanswerable", *judged, format_gain(made), *opened]
        )
    names = [f"{name}, corrected" for name in found["corrected"] if name != "nested"]
    return grid(["", "nested, llm", "nested, strict", "nested, corrected", *names], rows)


def checks_table(found: Found) -> str:
    """The headline differences of each wave alone, and without questions that were made from others; model judge."""
    rows = []
    for key, parts in next(iter(found["domains"].values()))["checks"].items():
        for part in parts:
            cells = [format_gain(each["checks"][key][part]) for each in found["domains"].values()]
            rows.append([f"{name_of(key.split(' less ')[0])}; {key.split(', ', 1)[1]}; {part}", *cells])
    return grid(["", *_domain_head(found)], rows)


def before_table(found: Found) -> str:
    """Right answers of the action selected on LoCoMo and the pool alone, beside the one selected on the others."""
    rows = [
        [domain, number(value), number(_value(found, domain, FIXED, "llm", "0", "right"))]
        for domain, value in found["selected on two"].items()
    ]
    return grid(["", "selected on LoCoMo and LongMemEval", "selected on the other learning domains"], rows)


LADDERS = (
    ("ladder 0", FIXED), ("ladder 0", VOTE), ("ladder 0", TWICE), ("drafts 3", "ladder 0"), (VOTE, FIXED),
    (ORACLE, FIXED),
)  # fmt: skip
HEADLINES = (
    ("drafts 2", FIXED, "right", "0"), ("ladder 0", FIXED, "right", "0"), ("ladder 0", VOTE, "right", "0"),
    ("ladder 0.5", FIXED, "utility 0.5", "0.2"), ("ladder 1", FIXED, "utility 1", "0.2"),
    ("ladder 0.5", FIXED, "accuracy", "0.2"),
)  # fmt: skip
TABLES: dict[str, Callable[[Found], str]] = {
    "domains-readme": readme_table,
    "domains-checks": checks_table,
    "domains-before": before_table,
    "domains-corrected": corrected_table,
    "domains-right": right_table,
    "domains-one-call": lambda found: differences(found, [(name, FIXED) for name in ONE_CALL], "right", "0"),
    "domains-drafts": lambda found: differences(found, [("drafts 2", TWICE), ("drafts 3", TWICE)], "right", "0"),
    "domains-free": lambda found: differences(
        found, [("free router", "always extract"), ("evidence-fit", "always extract")], "right", "0"
    ),
    "domains-ladder": lambda found: differences(found, LADDERS, "right", "0"),
    "domains-price-half": lambda found: differences(
        found,
        [("ladder 0.5", FIXED), ("ladder 0.5", "fixed at 0.5"), ("ladder 0.5, nothing written", FIXED)],
        "utility 0.5",
        "0.2",
    ),
    "domains-price-one": lambda found: differences(
        found, [("ladder 1", FIXED), ("ladder 1", "fixed at 1")], "utility 1", "0.2"
    ),
    "domains-accuracy": lambda found: differences(
        found, [("ladder 0.5", FIXED), ("ladder 0.5", VOTE), ("ladder 1", FIXED)], "accuracy", "0.2"
    ),
    "domains-curve": curve_table,
    "domains-kinds": kinds_table,
    "domains-confidence": confidence_table,
    "domains-safe": safe_table,
    "domains-chosen": chosen_table,
    "domains-conversations": lambda found: by_conversation(found, HEADLINES),
}
