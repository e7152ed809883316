"""The result of bench.rivals.quality as the tables of docs/rivals.md; `bench.tables` puts them there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench import RESULTS, grid
from bench.rivals.quality import LADDER_0, LADDER_HALF, NO_MODEL, ONE_CALL, OURS
from bench.rivals.systems import SYSTEMS
from retcon.lab.report.cells import DASH, change, number

RESULT = RESULTS / "rivals.json"
TITLES = {
    NO_MODEL: "**retcon**, no model", ONE_CALL: "**retcon**, one call", LADDER_0: "**retcon**, `ask` at 0",
    LADDER_HALF: "**retcon**, `ask` at .5",
} | {name: system.title for name, system in SYSTEMS.items()}  # fmt: skip
ORDER = RESULTS / "order.json"
NO_ORDER = "*No run yet: `python -m bench.rivals.order --model FOLDER --replies OUT`.*"
NOT_YET = "*No run yet: `bench/rivals/run.sh`, then `python -m bench.rivals.quality --out bench/results/rivals.json`.*"


def summary(found: Mapping[str, Any]) -> str:
    """The mean of the domains: right by both judges at each budget, false answers, utility, what a question costs."""
    budgets = found["budgets"]
    head = [
        "system",
        *(f"right at {b}" for b in budgets),
        "false answers",
        "utility at .5",
        "tokens a question",
        "domains",
    ]
    rows = []
    for name in _ranked(found["mean"]):
        row = found["mean"][name]
        rows.append([
            TITLES[name], *(number(each) for each in row["both"]["budgets"]), number(row["false"]["mean"]),
            number(row["utility"]["mean"], signed=True), f"{row['tokens']:,.0f}", str(row["domains"]),
        ])  # fmt: skip
    return grid(head, rows)


def _ranked(mean: Mapping[str, Any]) -> list[str]:
    """Ours first, then the rest by right answers."""
    others = sorted((name for name in mean if name not in OURS), key=lambda name: -mean[name]["both"]["mean"])
    return [*(name for name in OURS if name in mean), *others]


def by_domain(found: Mapping[str, Any]) -> str:
    """Right by both judges and by each, mean over budgets, in every domain; why where there is no score."""
    names = list(found["domains"])
    rows = []
    for name in (*OURS, *SYSTEMS):
        cells = [_domain_cell(name, found["domains"][domain]) for domain in names]
        if any(cells):
            rows.append([TITLES[name], *(cell or DASH for cell in cells)])
    return grid(["system", *(f"{name}: both (llm, strict)" for name in names)], rows)


def _domain_cell(name: str, domain: Mapping[str, Any]) -> str:
    row = domain["systems"].get(name)
    if row is None:
        return ""
    if row.get("why"):
        return f"not measured: {row['why']}"
    both, llm, strict = (number(row[key]["mean"]) for key in ("both", "llm", "strict"))
    total = domain["questions"]["histories"]
    done = row["ingest"]["histories"] if "ingest" in row else total
    return f"{both} ({llm}, {strict})" + (f", {done} of {total} histories" if done < total else "")


def differences(found: Mapping[str, Any], ours: str, measure: str = "both") -> str:
    """One of ours less every rival, mean over budgets, in every domain, with its interval."""
    names = list(found["domains"])
    rows = []
    for name in SYSTEMS:
        cells = [found["domains"][domain]["differences"].get(name, {}).get(ours) for domain in names]
        if any(cells):
            rows.append([TITLES[name], *(_gap(cell["mean"][measure]) if cell else DASH for cell in cells)])
    return grid([f"{TITLES[ours]} less", *names], rows)


def _gap(found: Mapping[str, float]) -> str:
    return change(found["mean"], found["low"], found["high"])


def costs(found: Mapping[str, Any]) -> str:
    """What each system asks a model for at ingest and at a question, and what it could not parse."""
    rows = []
    for name in SYSTEMS:
        rows_of = [each["systems"][name] for each in found["domains"].values() if name in each["systems"]]
        if rows_of:
            rows.append([TITLES[name], *_cost_cells(rows_of)])
    head = [
        "system",
        "calls a 1,000 turns",
        "tokens a 1,000 turns",
        "calls a question",
        "replies not parsed",
        "histories",
    ]
    return grid(head, rows)


def _cost_cells(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    took = [row["ingest"] for row in rows]
    turns = sum(each["turns"] for each in took)
    calls, tokens = (sum(each[key] for each in took) for key in ("calls", "tokens"))
    writes = [row["writes"] for row in rows if row.get("writes") is not None]
    parsed = [each["unparsed"] for each in took if each["unparsed"] is not None]
    return [
        f"{1000 * calls / turns:,.0f}" if turns else DASH, f"{1000 * tokens / turns:,.0f}" if turns else DASH,
        f"{sum(writes) / len(writes):.2g}" if writes else DASH,
        ", ".join(f"{each:.0%}" for each in parsed) or DASH, str(sum(each["histories"] for each in took)),
    ]  # fmt: skip


def ahead(found: Mapping[str, Any]) -> str:
    """Every domain and budget at which a rival is ahead of the same kind of ours, by right answers of both judges."""
    rows = []
    for domain, each in found["domains"].items():
        for name, gaps in each["differences"].items():
            mine = ONE_CALL if SYSTEMS[name].model or SYSTEMS[name].folder else NO_MODEL
            for budget, gap in zip(found["budgets"], gaps[mine]["budgets"], strict=True):
                if gap["both"]["mean"] < 0:
                    rows.append([domain, TITLES[name], str(budget), TITLES[mine], _gap(gap["both"])])
    return grid(["domain", "ahead", "budget", "of", "ours less theirs"], rows) if rows else "*None.*"


def leads(found: Mapping[str, Any]) -> str:
    """Who is ahead of each of ours in the mean over budgets, in every domain, by either measure; a star: surely."""
    rows = []
    for domain, each in found["domains"].items():
        for mine in OURS:
            gaps = {name: gap[mine]["mean"] for name, gap in each["differences"].items()}
            rows.append([domain, TITLES[mine], *(_leading(gaps, measure) for measure in ("both", "utility"))])
    return grid(["domain", "ours", "ahead in right answers", "ahead in utility at .5"], rows)


def _leading(gaps: Mapping[str, Mapping[str, Any]], measure: str) -> str:
    behind = sorted((gap[measure]["mean"], name) for name, gap in gaps.items() if gap[measure]["mean"] < 0)
    said = [f"{TITLES[name]} {number(-mean)}{'*' * (gaps[name][measure]['high'] < 0)}" for mean, name in behind]
    return ", ".join(said) or DASH


_SHOWN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "rivals-summary": summary,
    "rivals-domains": by_domain,
    "rivals-costs": costs,
    "rivals-ahead": ahead,
    "rivals-leads": leads,
    "rivals-no-model": partial(differences, ours=NO_MODEL),
    "rivals-one-call": partial(differences, ours=ONE_CALL),
    "rivals-ladder": partial(differences, ours=LADDER_HALF, measure="utility"),
}


def _show(name: str) -> str:
    return _SHOWN[name](json.loads(RESULT.read_text(encoding="utf-8"))) if RESULT.is_file() else NOT_YET


def order_table(found: Mapping[str, Any]) -> str:
    """What differs in each pair of texts, in every domain and in the mean of them, with its interval."""
    names = [*found["questions"], "mean"]
    rows = [[pair, *(_gap(each[name]) for name in names)] for pair, each in found["pairs"].items()]
    return grid(["right by both judges", *names], rows)


def _show_order() -> str:
    return order_table(json.loads(ORDER.read_text(encoding="utf-8"))) if ORDER.is_file() else NO_ORDER


TABLES: Mapping[str, Callable[[], str]] = {name: partial(_show, name) for name in _SHOWN} | {
    "rivals-order": _show_order
}
