"""The figures of docs/results, from the committed results: python -m bench.doc_figures"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import RESULTS
from bench.doc_tables import FIRST, load, of_action, policy_name
from bench.findings import PRESPECIFIED
from bench.first_gate import SHIPPED
from bench.transfer import ONE_ORDER
from bench.travel import FIXED, JUDGES
from bench.travel_tables import name_of
from retcon.lab.crossfit import REFERENCE, TWICE, VOTE
from retcon.lab.report.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    VERMILLION,
    Colour,
    budget_axis,
    dots,
    draw,
    percent,
    points,
    rule,
)
from retcon.lab.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LINES: dict[str, tuple[str, Colour, str]] = {
    "longmemeval-controlled": ("LongMemEval", BLUE, "s"), "locomo-controlled": ("LoCoMo", VERMILLION, "^"),
    "longmemeval-small": ("LongMemEval, 0.5B", GREEN, "D"),
}  # fmt: skip
MARKS: dict[str, tuple[Colour, str]] = {
    "retention": (INK, "o"), REFERENCE: (GREEN, "D"), "direct": (VERMILLION, "^"), "certified": (VERMILLION, "v"),
    SHIPPED: (BLUE, "s"), ONE_ORDER: (BLUE, "p"), VOTE: (GREEN, "P"), "action oracle": (INK, "*"),
}  # fmt: skip


def crossover_figure(found: Mapping[str, Any]) -> str:
    """The gain of Abstract, written without the question, against the budget and against the share that fits whole."""

    def compose(canvas: Canvas) -> None:
        above, below = canvas.subplots(2, 1, sharey=True)
        budgets = sorted({b for run in LINES for b in found["judges"][FIRST]["crossovers"][run]["budgets"]})
        for run, (name, colour, marker) in LINES.items():
            study = found["judges"][FIRST]["crossovers"][run]
            gains = [Estimate(**row["by_question"]) for row in of_action(study, PRESPECIFIED)]
            for axes, xs in ((above, study["budgets"]), (below, study["full_fit"])):
                dots(axes, xs, gains, colour, marker, "-")
                axes.plot([], [], color=colour[0], marker=marker, label=name)
                axes.axhline(0, color=INK[0], linewidth=0.8)
        budget_axis(above, budgets)
        above.set(title="Gain of Abstract over whole notes", xlabel="tokens of memory", ylabel="points")
        above.yaxis.set_major_formatter(points)
        above.legend()
        below.set(xlabel="questions whose evidence fits whole", ylabel="points")
        below.xaxis.set_major_formatter(percent)
        rule(below)

    return draw(compose, height=5.6, title="gain of Abstract against budget and against full fit")[0]


def spend_figure(gate: Mapping[str, Any]) -> str:
    """Accuracy of every policy of the gate against reader calls and against tokens, the ladder at several prices."""
    policies = [row for row in gate["judges"][FIRST]["policies"] if row["policy"] != TWICE]  # it lacks a budget
    curve = sorted(gate["judges"][FIRST]["spend"], key=lambda point: float(point["calls"]))

    def compose(canvas: Canvas) -> None:
        above, below = canvas.subplots(2, 1, sharey=True)
        spent = [(p["calls"], p["read"] + p["generated"]) for p in curve]
        for axes, which, word in ((above, 0, "calls"), (below, 1, "tokens")):
            axes.plot([each[which] for each in spent], [p["utility"] for p in curve], color=BLUE[0], marker=".")
            for row in policies:
                colour, marker = MARKS.get(row["policy"], (GREY, "."))
                axes.plot(row[word], row["macro"], color=colour[0], marker=marker, linestyle="none")
            rule(axes)
            axes.yaxis.set_major_formatter(percent)
        above.set(title="Right by the model judge, 240 questions", xlabel="reader calls a question")
        below.set(xlabel="tokens read and written a question")
        for name, (colour, marker) in MARKS.items():
            below.plot([], [], color=colour[0], marker=marker, linestyle="none", label=policy_name(name))
        below.plot([], [], color=GREY[0], marker=".", linestyle="none", label="other policies")
        canvas.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=2)

    return draw(compose, height=6.4, title="accuracy against reader calls and tokens")[0]


PRICED = tuple(f"ladder {price:g}" for price in (0, 0.25, 0.5, 1, 2))
BESIDE: dict[str, tuple[Colour, str]] = {
    "always retain": (INK, "o"), "always extract": (VERMILLION, "^"), FIXED: (GREEN, "D"),
    "fixed at 0.5": (GREEN, "d"), "vote of two": (GREEN, "P"), "twice the budget": (GREY, "X"),
}  # fmt: skip


def curve_figure(found: Mapping[str, Any]) -> str:
    """Right against wrong answers, a fifth of the questions unanswerable: ladders by price, and what stands beside."""

    def place(policy: str, judge: str) -> tuple[float, float]:
        every = [found["domains"][domain]["policies"][policy][judge]["0.2"] for domain in found["nested"]]
        wrong, right = ([sum(each[name]) / len(each[name]) for each in every] for name in ("wrong", "right"))
        return sum(wrong) / len(wrong), sum(right) / len(right)

    def compose(canvas: Canvas) -> None:
        for axes, judge in zip(canvas.subplots(2, 1), JUDGES, strict=True):
            axes.plot(*zip(*(place(each, judge) for each in PRICED), strict=True), color=BLUE[0], marker="s")
            for policy, (colour, marker) in BESIDE.items():
                axes.plot(*place(policy, judge), color=colour[0], marker=marker, linestyle="none")
            axes.set(
                title=f"Right by {'the model judge' if judge == FIRST else 'the strict judge'}", xlabel="wrong answers"
            )
            axes.xaxis.set_major_formatter(percent)
            axes.yaxis.set_major_formatter(percent)
            rule(axes)
        axes.plot([], [], color=BLUE[0], marker="s", label="ladder, wrong_cost 0 to 2 (from the right)")
        for policy, (colour, marker) in BESIDE.items():
            axes.plot([], [], color=colour[0], marker=marker, linestyle="none", label=name_of(policy))
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=1)

    return draw(compose, height=7.2, title="right against wrong answers on domains left out")[0]


def main() -> None:
    """Draw all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    made = {
        "crossover": crossover_figure(load("findings")),
        "spend": spend_figure(load("first_gate")),
        "right-wrong": curve_figure(load("travel")),
    }
    for name, svg in made.items():
        (options.out / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
