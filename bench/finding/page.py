"""A result of `bench.finding` -> the tables of its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench import grid
from bench.budgets import BUDGETS
from bench.finding.compare import JOINED, NESTED, OURS, close_gap, is_ours, read_scores
from bench.finding.older import COMMIT
from bench.finding.rivals import FILL
from bench.finding.scoring import CLUSTER, DEPTHS, at, within
from retcon.lab.report.cells import bracket, change, number
from retcon.note import EXTRACT

Result = Mapping[str, Any]
FOUND = (*map(at, DEPTHS), CLUSTER)
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
            for way in (EXTRACT, "recall", FILL):
                if within(way, BUDGETS[0]) in scores:
                    rows.append([f"{finder}: {way}", *_means(scores, [within(way, b) for b in BUDGETS])])
    return grid(["", *(f"{budget:,} tokens" for budget in BUDGETS)], rows)


def _means(scores: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    columns = (scores.get(name) for name in names)
    return ["" if each is None or np.isnan(each).all() else number(float(np.nanmean(each))) for each in columns]


def difference_table(result: Result, columns: Mapping[str, str], ours: str) -> str:
    """How far ours is from each rival, with intervals by question, and by history beneath where there are several."""
    rows: list[list[str]] = []
    for name, domain in result["domains"].items():
        here = {(row["rival"], row["column"]): row for row in result["differences"][name] if row["ours"] == ours}
        if not here:
            continue
        rows.append(_title(name, domain))
        for rival in dict.fromkeys(rival for rival, _ in here):
            cells = [here.get((rival, column)) for column in columns]
            rows.append(
                [rival, *("" if cell is None else change(cell["mean"], *cell["by_question"]) for cell in cells)]
            )
            if any(cell and "by_history" in cell for cell in cells):
                rows.append(["by history", *("" if cell is None else bracket(*cell["by_history"]) for cell in cells)])
    return grid([f"{ours} less", *columns.values()], rows)


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
        rows.append([f"*{kind}*"])
        for i, setting in enumerate(study["names"]):
            mean = np.mean([study["means"][name][i] for name in names if name in study["choosing"]])
            rows.append([setting, *(number(study["means"][name][i]) for name in names), number(float(mean))])
    return grid(["", *names, "mean of those that choose"], rows)


def say_left_out(result: Result) -> str:
    """What could not be measured, a line each; empty where everything was."""
    return "\n".join(f"Left out: {line}" for line in result["left_out"])


def tables() -> dict[str, Callable[[Result], str]]:
    """Every table of the page by its name there."""
    depths = {name: name for name in FOUND}
    shown = {within(EXTRACT, budget): f"{budget:,} tokens" for budget in BUDGETS}
    return {
        "finding-closed": closed_table,
        "finding-below": below_table,
        "finding-found": found_table,
        "finding-survival": survival_table,
        "finding-gaps": partial(difference_table, columns=depths, ours=OURS),
        "finding-gaps-joined": partial(difference_table, columns=depths, ours=JOINED),
        "finding-text-gaps": partial(difference_table, columns=shown, ours=OURS),
        "finding-text-gaps-joined": partial(difference_table, columns=shown, ours=JOINED),
        "finding-choice": choice_table,
        "finding-settings": settings_table,
    }


__all__ = ["COMMIT", "is_ours", "say_left_out", "tables"]
