"""A result of `bench.finding` -> the tables of its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import grid
from bench.budgets import BUDGETS
from bench.finding.compare import DENSE, HELD, JOINED, NESTED, OURS, PASSAGES, RECALL, close_gap, read_scores
from bench.finding.older import COMMIT
from bench.finding.rivals import FILL
from bench.finding.scoring import CLUSTER, DEPTHS, at, within
from retcon.lab.report.cells import bracket, change, number
from retcon.note import EXTRACT

Result = Mapping[str, Any]
FOUND = (*map(at, DEPTHS), CLUSTER)
UNTOLD = ((COMMIT, RECALL), (PASSAGES, FILL))  # texts that the page leaves out, to be short
GOALS = {OURS: 0.1, JOINED: 0.25}


def _title(name: str, domain: Result) -> list[str]:
    histories = len(domain["histories"])
    kept = f"{histories} histories" if histories > 1 else "one history"
    return [f"*{name}, {len(domain['gold']):,} questions, {kept}*"]


def found_table(result: Result) -> str:
    """Shares of the gold notes found, a block of finders a domain."""
    rows: list[list[str]] = []
    for name, domain in result["domains"].items():
        rows.append(_title(name, domain))
        rows += [[finder, *_means(scores, FOUND)] for finder, scores in read_scores(domain).items()]
    return grid(["", *FOUND], rows)


def survival_table(result: Result) -> str:
    """Shares of the answers that survive, a block of finders a domain."""
    rows: list[list[str]] = []
    for name, domain in result["domains"].items():
        rows.append(_title(name, domain))
        for finder, scores in read_scores(domain).items():
            for way in (EXTRACT, RECALL, FILL):
                if within(way, BUDGETS[0]) in scores and (finder, way) not in UNTOLD:
                    rows.append([f"{finder}: {way}", *_means(scores, [within(way, b) for b in BUDGETS])])
    return grid(["", *(f"{budget:,} tokens" for budget in BUDGETS)], rows)


def _means(scores: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    columns = (scores.get(name) for name in names)
    return ["" if each is None or np.isnan(each).all() else number(float(np.nanmean(each))) for each in columns]


def gap_table(result: Result) -> str:
    """How far ours is from each rival at the depths that count, drawn by question, and by history in the next line."""
    rows: list[list[str]] = []
    for name, domain in result["domains"].items():
        rows.append(_title(name, domain))
        for (ours, rival), here in _by_rival(result["differences"][name], map(at, HELD)).items():
            rows.append([f"{ours} less {rival}", *(change(row["mean"], *row["by_question"]) for row in here)])
            if all("by_history" in row for row in here):
                rows.append(["by history", *(bracket(*row["by_history"]) for row in here)])
    return grid(["", *map(at, HELD)], rows)


def text_gap_table(result: Result) -> str:
    """How far Extract is from each rival's text; a star where the interval by question leaves zero out."""
    rows: list[list[str]] = []
    for name, domain in result["domains"].items():
        rows.append(_title(name, domain))
        columns = [within(EXTRACT, budget) for budget in BUDGETS]
        for (ours, rival), here in _by_rival(result["differences"][name], columns).items():
            if (rival, FILL) not in UNTOLD:
                rows.append([f"{ours} less {rival}", *map(_star, here)])
    return grid(["", *(f"{budget:,} tokens" for budget in BUDGETS)], rows)


def _by_rival(differences: Sequence[Result], columns: Iterable[str]) -> dict[tuple[str, str], list[Result]]:
    """The rows of these columns by pair of ours as it ships and rival: words alone are held against words alone."""
    by_column = {(row["ours"], row["rival"], row["column"]): row for row in differences}
    wanted, out = list(columns), {}
    for ours, rival in dict.fromkeys((row["ours"], row["rival"]) for row in differences):
        here = [by_column[key] for column in wanted if (key := (ours, rival, column)) in by_column]
        if here and not ours.endswith(NESTED) and (ours != OURS or rival not in DENSE):
            out[ours, rival] = here
    return out


def _star(row: Result) -> str:
    low, high = row["by_question"]
    return number(row["mean"], signed=True) + ("*" if low > 0 or high < 0 else "")


def closed_table(result: Result) -> str:
    """What is closed of the older code's misses at 20, by domain."""
    found = [close_gap(result["domains"], finder) for finder in (OURS + NESTED, OURS, JOINED + NESTED, JOINED)]
    closed = [each for each in found if each is not None]
    if not closed:
        return grid(["not measured"], [])
    head = ["", *(f"{name} (misses {number(missed)})" for name, missed in closed[0].missed.items()), "all", "goal"]
    rows = [
        [
            each.finder, *map(_percent, each.shares.values()),
            f"**{_percent(each.all)}** [{100 * each.low:.0f}, {100 * each.high:.0f}]",
            _percent(GOALS[each.finder.removesuffix(NESTED)]),
        ]
        for each in closed
    ]  # fmt: skip
    return grid(head, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def below_table(result: Result) -> str:
    """Every held difference whose interval lies below zero."""
    rows = [
        [
            row["domain"], row["ours"], row["rival"], row["column"], change(row["mean"], *row["by_question"]),
            bracket(*row["by_history"]) if "by_history" in row else "one history", "" if row["goal"] else "no goal",
        ]
        for row in sorted(result["below"], key=lambda row: not row["goal"])
    ]  # fmt: skip
    return grid(["domain", "ours", "rival", "at", "difference", "by history", ""], rows or [["none"]])


def choice_table(result: Result) -> str:
    """The setting that the others chose for each domain, and evidence@20 beside the shipped one."""
    rows: list[list[str]] = []
    for kind, study in result["settings"].items():
        rows.append([f"*{kind}*"])
        for name, choice in study["chosen"].items():
            means, chosen = study["means"][name], choice["setting"]
            figures = (means[chosen], means[0], max(means), means[study["names"].index("all off")])
            rows.append([name, study["names"][chosen], f"{choice['margin']:g}", *map(number, figures)])
    return grid(["", "chosen by the others", "margin", "@20 so", "as shipped", "best in hindsight", "all off"], rows)


def settings_table(result: Result) -> str:
    """Evidence@20 of every setting of the grid on every domain, and the mean of those that choose."""
    rows: list[list[str]] = []
    names = list(result["domains"])
    for kind, study in result["settings"].items():
        if not study["means"]:  # left out, as the result says
            continue
        rows.append([f"*{kind}*"])
        for i, setting in enumerate(study["names"]):
            mean = np.mean([study["means"][name][i] for name in names if name in study["choosing"]])
            rows.append([setting, *(number(study["means"][name][i]) for name in names), number(float(mean))])
    return grid(["", *names, "mean of those that choose"], rows)


TABLES: Mapping[str, Callable[[Result], str]] = {
    "finding-closed": closed_table,
    "finding-below": below_table,
    "finding-found": found_table,
    "finding-gaps": gap_table,
    "finding-survival": survival_table,
    "finding-text-gaps": text_gap_table,
    "finding-choice": choice_table,
    "finding-settings": settings_table,
}
