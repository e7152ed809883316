"""Studies -> the figures of a report, as SVG (light and dark) and PNG, with the numbers behind each.

Every figure is narrow, so that it can be read on a telephone, and stacks what it compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from retcon.lab.crossfit import REFERENCE, TWICE, VOTE, CrossFit, Result
from retcon.lab.report import published
from retcon.lab.report.actions import FAMILIES, OPERATORS
from retcon.lab.report.cells import Cells, Value, crossover_cell, join
from retcon.lab.report.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    PAPER,
    PURPLE,
    VERMILLION,
    beside,
    budget_axis,
    dots,
    draw,
    name_ends,
    name_points,
    percent,
    points,
    rule,
    style_of,
)
from retcon.lab.report.published import CONTROLLED
from retcon.lab.report.studies import DATASETS, ActionCurve, Study, attempt
from retcon.lab.report.tables import budget_heads
from retcon.lab.stats import Estimate
from retcon.note import RETAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

NO_BUDGET = {"full": "no budget", "none": "no memory"}
READ = "budget: tokens of memory that the reader may see"
RIGHT = "answers judged right"


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture with the numbers behind it; `missing` says why there is none."""

    key: str
    title: str
    data: str  # what it is drawn from; "" where that is several
    caption: str
    svg: str = ""
    svg_dark: str = ""
    png: bytes = b""
    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()
    missing: str | None = None

    @property
    def name(self) -> str:
        """The title, and what it is drawn from."""
        return f"{self.title} {self.data}".strip()


def figures(studies: Sequence[Study]) -> list[Figure]:
    """Every figure that these outcomes allow, in reading order."""
    fitted = [study for study in studies if attempt(study.product_policies) is not None]
    made = [*(crossover_figure(study) for study in studies), pressure_figure(studies)]
    return made + [make(study) for make in (budget_figure, spend_figure, mix_figure) for study in fitted]


# -- the crossover -----------------------------------------------------------------------------------------------------


def crossover_figure(study: Study) -> Figure:
    """Accuracy against budget, a panel for each family of actions, retention in all of them."""
    retention, others = study.curves[0], study.curves[1:]
    families = [name for name in FAMILIES if any(curve.family == name for curve in others)] or [""]

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(len(families), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, family in zip(panels, families, strict=True):
            axes.set(ylim=(0, _top(study)), title=FAMILIES.get(family, "Retention"), ylabel=RIGHT)
            axes.tick_params(labelbottom=True)
            _accuracies(axes, study, [*(curve for curve in others if curve.family == family), retention])
        panels[-1].set_xlabel(READ)
        panels[0].yaxis.set_major_formatter(percent)

    return Figure(
        f"crossover-{study.key}",
        "When does replacing raw notes pay?",
        study.name,
        _crossover_caption(study),
        *draw(compose, height=0.35 + 2.55 * len(families), title=f"accuracy against budget, {study.name}"),
        columns=("Action", *budget_heads(study.shown_budgets), "Gain falls to zero at"),
        rows=tuple(_curve_row(study, curve) for curve in study.curves),
    )


def _accuracies(axes: Axes, study: Study, curves: Sequence[ActionCurve]) -> None:
    ends: list[tuple[str, float | None, float]] = []
    for place, curve in enumerate(curves):
        colour, marker = style_of(study.roles.operator(curve.action))
        xs, kept = beside(curve.budgets, place, len(curves)), curve.action == RETAIN
        dots(axes, xs, curve.accuracy, colour, marker, "--" if kept else "-", zorder=2 if kept else 3)
        ends.append((curve.name, xs[-1], curve.accuracy[-1].mean))
    budget_axis(axes, study.shown_budgets)
    for name, level in study.levels.items():
        axes.axhline(level.mean, color=GREY[0], linewidth=1, linestyle=":", zorder=1)
        ends.append((NO_BUDGET[name], None, level.mean))
    name_ends(axes, ends)


def _top(study: Study) -> float:
    every = [e.high for curve in study.curves for e in curve.accuracy] + [e.mean for e in study.levels.values()]
    return min(1.0, max([0.1, *every]) + 0.04)


def _crossover_caption(study: Study) -> str:
    turns = [(curve, curve.crossover.budget) for curve in study.operator_curves if curve.crossover is not None]
    inside = [f"{curve.name} at {budget:.0f}" for curve, budget in turns if budget > 0 and isfinite(budget)]
    said = f" The paper's operators stop gaining over raw notes here: {join(inside)} tokens." if inside else ""
    levels = {"full": "reading everything without a budget", "none": "reading nothing"}
    lines = [levels[name] for name in study.levels]
    return (
        f"Share of {len(study.questions)} questions answered right, when the reader sees at most that many tokens"
        " of memory. Dashed: raw notes, as many as fit. Bars are 95 % intervals."
        f"{f' Dotted: {join(lines)}.' if lines else ''}{said}"
    )


def _curve_row(study: Study, curve: ActionCurve) -> Cells:
    at = dict(zip(curve.budgets, curve.accuracy, strict=True))
    cite = study.cite
    cells = (_value(at[b], cite([curve.action], b)) if b in at else "not measured" for b in study.shown_budgets)
    rows = cite([RETAIN, curve.action], curve.budgets)
    turn = "" if curve.crossover is None else crossover_cell(curve.crossover, curve.budgets, rows)
    return study.roles.names[curve.action], *cells, turn


# -- pressure, not tokens ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GainLine:
    """An operator's gains on some data: ours, or as published."""

    data: str
    operator: str
    ours: bool
    budgets: tuple[int, ...]
    fit: tuple[float, ...] | None
    gain: tuple[Estimate, ...]


def pressure_figure(studies: Sequence[Study]) -> Figure:
    """Gain against tokens, and the same gains against the share of questions whose evidence fits whole."""
    key, title = "pressure", "Is it the number of tokens, or whether the evidence fits?"
    known = [study for study in studies if study.full_fit is not None and study.operator_curves]
    chosen = [study for study in known if study.setting == CONTROLLED] or known
    if not chosen:
        why = "no outcomes of the paper's operators say how much of the evidence fits"
        return Figure(key, title, "", "", missing=why)
    lines = [line for study in chosen for line in _our_lines(study)] + list(_paper_lines())
    data = list(dict.fromkeys(line.data for line in lines))
    styles = dict(zip(data, ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1))), strict=False))

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(2, 1, sharey=True)
        for line in lines:
            for axes, xs in zip(panels, (line.budgets, line.fit), strict=True):
                if xs is not None:
                    _gains(axes, line, xs, styles.get(line.data, "-"))
        budget_axis(panels[0], sorted({budget for line in lines for budget in line.budgets}))
        panels[0].set(title="Against tokens", xlabel="budget in tokens")
        panels[1].set(title="Against pressure: the same gains", xlim=(-0.03, 1.03))
        panels[1].set_xlabel("questions whose evidence all fits, raw")
        panels[1].xaxis.set_major_formatter(percent)
        for axes in panels:
            rule(axes)
            axes.axhline(0, color=INK[0], linewidth=1, zorder=1.5)
            axes.set_ylabel("gain over raw notes, points")
            axes.yaxis.set_major_formatter(points)
        _pressure_legend(canvas, lines, styles)

    return Figure(
        key, title, "", _pressure_caption(studies, chosen),
        *draw(compose, height=6.9, title="gain over retention against tokens and against fit"),
        columns=("Data", "Operator", "Budget", "Evidence fits whole", "Gain over retention"),
        rows=tuple(row for study in chosen for row in _pressure_rows(study)),
    )  # fmt: skip


def _our_lines(study: Study) -> Iterator[GainLine]:
    fit = study.full_fit or {}
    for curve in study.operator_curves:
        shares = tuple(fit[budget] for budget in curve.budgets)
        yield GainLine(study.brief, study.roles.operator(curve.action), True, curve.budgets, shares, curve.gain)


def _paper_lines() -> Iterator[GainLine]:
    """The paper's gains. Of LoCoMo it does not print how much fits."""
    share_of = {row["budget"]: row["full"] / 100 for row in published.TABLES["budgetpressure"].rows}
    for label, fit in (("operatorstats", share_of), ("locomostats", None)):
        table = published.TABLES[label]
        for operator in OPERATORS:
            rows = [row for row in table.rows if row["operator"] == operator]
            budgets = tuple(row["budget"] for row in rows)
            gains = tuple(Estimate(row["gain"], row["low"], row["high"], table.questions) for row in rows)
            shares = None if fit is None else tuple(fit[budget] for budget in budgets)
            yield GainLine(f"{DATASETS[table.dataset]}, paper", operator, False, budgets, shares, gains)


def _gains(axes: Axes, line: GainLine, xs: Sequence[float], style: Any) -> None:
    colour, marker = style_of(line.operator)
    if line.ours:
        return dots(axes, xs, line.gain, colour, marker, style)
    hollow: dict[str, Any] = {"markerfacecolor": PAPER[0], "markeredgecolor": colour[0], "markersize": 5}
    means = [e.mean for e in line.gain]
    axes.plot(xs, means, color=colour[0], linestyle=style, linewidth=1, marker=marker, alpha=0.75, **hollow)
    return None


def _pressure_legend(canvas: Canvas, lines: Sequence[GainLine], styles: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for operator in dict.fromkeys(line.operator for line in lines):
        colour, marker = style_of(operator)
        label = operator.capitalize()
        handles.append(Line2D([], [], color=colour[0], marker=marker, markersize=6, linewidth=0, label=label))
    for data, ours in {line.data: line.ours for line in lines}.items():
        face: dict[str, Any] = {} if ours else {"markerfacecolor": PAPER[0], "linewidth": 1}
        style = {"linestyle": styles.get(data, "-"), "marker": "o", "markersize": 5, "label": data}
        handles.append(Line2D([], [], color=INK[0], **style, **face))
    canvas.legend(handles=handles, loc="outside upper left", ncols=2, handlelength=2.6, columnspacing=1.2)


def _pressure_caption(studies: Sequence[Study], chosen: Sequence[Study]) -> str:
    lone = " Only one dataset was measured here." if len({study.dataset for study in chosen}) < 2 else ""
    out = [study.name for study in studies if study not in chosen]
    left = (
        f" Left out: {join(out)}, where candidates are whatever a retriever found, most of it beside the point."
        if out and all(study.setting == CONTROLLED for study in chosen)
        else ""
    )
    return (
        "Gain of each operator over raw notes, in percentage points, with 95 % intervals. Above: by budget. Below: the"
        " same points by the share of questions whose evidence fits whole. If what counts is pressure and not tokens,"
        f" datasets differ above and fall together below.{lone} Hollow marks are the paper's, with {published.MODEL};"
        f" of LoCoMo it does not print how much fits.{left}"
    )


def _pressure_rows(study: Study) -> Iterator[Cells]:
    fit, cite = study.full_fit or {}, study.cite
    for curve in study.operator_curves:
        for budget, gain in zip(curve.budgets, curve.gain, strict=True):
            fits = Value(f"{fit[budget]:.1%}", rows=cite([RETAIN], budget))
            yield study.name, curve.name, str(budget), fits, _value(gain, cite([RETAIN, curve.action], budget), "+.3f")


# -- policies ----------------------------------------------------------------------------------------------------------

LINES = {  # policy -> colour, marker, line, and what it is called in a figure
    "retention": (INK, "o", "--", "raw notes"),
    REFERENCE: (BLUE, "s", "-", "best fixed action"),
    "direct": (GREEN, "D", "-", "router"),
    "ladder": (VERMILLION, "^", "-", "ladder"),
    "action oracle": (GREY, "v", ":", "hindsight"),
}
KINDS = {  # how a policy spends -> colour, marker, and the policies named in the figure
    "one fixed action": (BLUE, "s", {"retention": "raw notes", REFERENCE: "best fixed"}),
    "a router picks one": (GREEN, "D", {"direct": "direct", "calibrated": "calibrated"}),
    "a ladder may look again": (VERMILLION, "^", {"ladder": "ladder"}),
    "as much spent otherwise": (
        PURPLE, "p", {"best fixed, asked again": "asked again", VOTE: "vote of two", TWICE: "twice the budget"},
    ),
    "hindsight, out of reach": (GREY, "v", {"action oracle": "hindsight"}),
}  # fmt: skip


def budget_figure(study: Study) -> Figure:
    """Accuracy of the policies against budget: which budget buys what."""
    fit = study.product_policies()
    budgets, shown = fit.panel.budgets, [name for name in LINES if name in fit.results]
    tested = {name: np.where(fit.results[name].seen, fit.results[name].utility, np.nan) for name in shown}
    found = {name: study.estimates(study.spread(fit.panel, values)) for name, values in tested.items()}
    choices = [study.roles.names[action] for action in fit.panel.actions]

    def compose(canvas: Canvas) -> None:
        axes = canvas.subplots()
        ends: list[tuple[str, float | None, float]] = []
        for place, (name, estimates) in enumerate(found.items()):
            colour, marker, line, called = LINES[name]
            xs = beside(budgets, place, len(found))
            dots(axes, xs, estimates, colour, marker, line)
            ends.append((called, xs[-1], estimates[-1].mean))
        budget_axis(axes, budgets)
        axes.set(ylim=(0, min(1.0, max(e.high for each in found.values() for e in each) + 0.05)), ylabel=RIGHT)
        axes.set_xlabel(READ)
        axes.yaxis.set_major_formatter(percent)
        name_ends(axes, ends, panel=2.8)

    return Figure(
        f"budget-{study.key}",
        "What budget do I need?",
        study.name,
        f"Accuracy of each policy on questions it was not learned from, choosing between {join(choices)}."
        f" {_enough(budgets, found)}Hindsight picks the best action of every question after the fact: the ceiling of"
        " any choice between these actions.",
        *draw(compose, height=3.5, title=f"accuracy of policies against budget, {study.name}"),
        columns=("Policy", *budget_heads(budgets)),
        rows=tuple(
            (
                LINES[name][3],
                *(_value(e, study.cite(fit.panel.actions, b)) for b, e in zip(budgets, estimates, strict=True)),
            )
            for name, estimates in found.items()
        ),
    )


def _enough(budgets: Sequence[int], found: Mapping[str, Sequence[Estimate]]) -> str:
    """The smallest budgets at which other policies reach what retention has at the largest, in a sentence."""
    aim = found["retention"][-1].mean
    reached: dict[int, list[str]] = {}
    for name in (REFERENCE, "direct", "ladder"):
        at = next((b for b, e in zip(budgets, found.get(name, ()), strict=False) if e.mean >= aim), None)
        if at is not None and at < budgets[-1]:
            reached.setdefault(at, []).append(f"the {LINES[name][3]}")
    said = [f"{join(names)} with {budget}" for budget, names in sorted(reached.items())]
    return f"Raw notes reach {aim:.1%} with {budgets[-1]} tokens, {join(said)}. " if said else ""


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """A policy over all budgets: its accuracy, and what a question cost it."""

    name: str
    accuracy: Estimate
    calls: float
    tokens: float


def spend_figure(study: Study) -> Figure:
    """Accuracy of every policy against the tokens that it spends on a question."""
    fit = study.product_policies()
    policies = [_cost(study, fit, each) for each in fit.results.values() if each.seen.all()]
    fixed = list(_fixed_costs(study, fit))
    counted, written = (name in fit.panel.tokens for name in ("context_tokens", "generated_tokens"))
    marks = {name: (kind, called) for kind, (_, _, names) in KINDS.items() for name, called in names.items()}
    named = [(*marks[each.name], each) for each in policies if each.name in marks]

    spelt = "tokens for a question, read and written" if written else "tokens that the reader sees for a question"
    label = spelt if counted else "reader calls for a question"

    def at(each: PolicyCost) -> float:
        return each.tokens if counted else each.calls

    def compose(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for kind, _, each in named:
            dots(axes, [at(each)], [each.accuracy], *KINDS[kind][:2], size=7.5)
        for each in fixed:
            axes.plot([at(each)], [each.accuracy.mean], "s", color=BLUE[0], alpha=0.45, markersize=4.5, zorder=2)
        ends = [end for each in policies for end in (each.accuracy.low, each.accuracy.high)]
        axes.set(ylim=(max(0, min(ends) - 0.03), min(1, max(ends) + 0.03)), ylabel=RIGHT)
        axes.set_xlim(0, max(map(at, (*policies, *fixed))) * 1.22)
        axes.yaxis.set_major_formatter(percent)
        axes.set_xlabel(label)
        rule(axes, "both")
        _kind_legend(canvas, [kind for kind, _, _ in named])
        name_points(canvas, axes, [(called, at(each), each.accuracy) for _, called, each in named])

    unsaid = "" if written else " What operators wrote is not in these rows, so only what was read counts."
    return Figure(
        f"spend-{study.key}",
        "What does a right answer cost?",
        study.name,
        f"Each point is a policy over all budgets ({join([str(b) for b in fit.panel.budgets])} tokens), with its 95 %"
        " interval; further left is cheaper, further up is better. Small squares: always the same action. A ladder"
        f" reads again where the reader found no answer, so it stands beside other ways to spend as much.{unsaid}",
        *draw(compose, height=4.9, title=f"accuracy against spend, {study.name}"),
        columns=("Policy", "Accuracy, mean of budgets", "Reader calls", "Tokens"),
        rows=tuple(
            (each.name, _value(each.accuracy, rows), Value(f"{each.calls:.2f}", rows=rows),
             Value(f"{each.tokens:.0f}", rows=rows) if counted else "")
            for each in (*policies, *fixed) for rows in [study.cite(fit.panel.actions, fit.panel.budgets)]
        ),
    )  # fmt: skip


def _cost(study: Study, fit: CrossFit, result: Result) -> PolicyCost:
    tokens = float(np.mean(result.read + result.generated))
    return PolicyCost(result.name, study.over_budgets(fit.panel, result.utility), float(np.mean(result.calls)), tokens)


def _fixed_costs(study: Study, fit: CrossFit) -> Iterator[PolicyCost]:
    """Each action, always taken."""
    panel = fit.panel
    for a, action in enumerate(panel.actions[1:], 1):
        spent = [panel.tokens[name][:, :, a] for name in ("context_tokens", "generated_tokens") if name in panel.tokens]
        tokens = sum(float(each.mean()) for each in spent)
        name = f"always {study.roles.names[action]}"
        yield PolicyCost(name, study.over_budgets(panel, panel.utility[:, :, a]), 1.0, tokens)


def _kind_legend(canvas: Canvas, kinds: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour[0], marker=marker, markersize=7, linewidth=0, label=kind)
        for kind, (colour, marker, _) in KINDS.items()
        if kind in kinds
    ]
    canvas.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1.2)


def mix_figure(study: Study) -> Figure:
    """Which actions the direct router takes at each budget, a panel for each set of actions."""
    sets = {"the paper's actions": attempt(study.paper_policies), "all actions": attempt(study.product_policies)}
    fits = [(label, fit) for label, fit in sets.items() if fit is not None]
    bars = [len(fit.panel.budgets) for _, fit in fits]

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(len(fits), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": bars})[:, 0]
        for axes, (label, fit) in zip(panels, fits, strict=True):
            _bars(axes, study, fit)
            _bar_legend(axes, study, fit, f"Choosing between {label}")
            axes.tick_params(labelbottom=True)
        panels[-1].set_xlabel("share of questions")

    return Figure(
        f"mix-{study.key}",
        "What does the router choose?",
        study.name,
        "Share of questions for which the direct router takes each action, on questions it was not learned from. By the"
        " paper's account raw notes take over as the budget grows.",
        *draw(compose, height=0.4 + 0.95 * len(fits) + 0.42 * sum(bars), title=f"actions chosen, {study.name}"),
        columns=("Choosing between", "Budget", "Chosen"),
        rows=tuple(row for label, fit in fits for row in _mix_rows(study, label, fit)),
    )


def _bars(axes: Axes, study: Study, fit: CrossFit) -> None:
    shares, panel = fit.results["direct"].chosen.mean(axis=0), fit.panel  # [b, a]
    ys, left = range(len(panel.budgets)), np.zeros(len(panel.budgets))
    for a, action in enumerate(panel.actions):
        colour, _ = style_of(study.roles.operator(action))
        axes.barh(ys, shares[:, a], left=left, height=0.72, color=colour[0], edgecolor=PAPER[0], linewidth=1.2)
        for y, part, start in zip(ys, shares[:, a], left, strict=True):
            if part >= 0.09:
                inside: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "fontweight": "bold"}
                axes.text(start + part / 2, y, f"{part:.0%}", color=PAPER[0], **inside)
        left += shares[:, a]
    axes.set_yticks(list(ys), budget_heads(panel.budgets))
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _bar_legend(axes: Axes, study: Study, fit: CrossFit, title: str) -> None:
    from matplotlib.patches import Patch

    names = {action: study.roles.short(action) for action in fit.panel.actions}
    handles = [Patch(color=style_of(study.roles.operator(action))[0][0], label=name) for action, name in names.items()]
    across = min(max(48 // (max(map(len, names.values())) + 3), 1), 4)  # 48 letters stand beside each other
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=across, handlelength=1, handleheight=0.9,
        columnspacing=1.1, borderaxespad=0.2, title=title, alignment="left",
        title_fontproperties={"weight": "bold", "size": 10.5},
    )  # fmt: skip


def _mix_rows(study: Study, label: str, fit: CrossFit) -> Iterator[Cells]:
    chosen, names = fit.results["direct"].chosen.mean(axis=0), study.roles.names
    for b, budget in enumerate(fit.panel.budgets):
        parts = [(names[action], chosen[b, a]) for a, action in enumerate(fit.panel.actions)]
        said = "; ".join(f"{name} {part:.0%}" for name, part in parts if part > 0)
        yield label, str(budget), Value(said, rows=study.cite(fit.panel.actions, budget))


# -- numbers -----------------------------------------------------------------------------------------------------------


def _value(found: Estimate, rows: Mapping[str, Any], form: str = ".3f") -> Value:
    """A number with its interval."""
    text = f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"
    return Value(text, found.mean, found.low, found.high, rows)
