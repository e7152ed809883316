"""Curves and cross-fitted policies -> the figures of a report, as SVG (light and dark) and PNG.

Every figure is narrow, so that it can be read on a telephone, and stacks what it compares. A colour always has a second
sign beside it: a marker, a name at the line's end, a text in the bar. The same numbers give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from retcon.crossfit import CrossFit, Result
from retcon.errors import MissingExtraError
from retcon.note import RETAIN
from retcon.stats import Estimate
from retcon.study import published
from retcon.study.curves import FAMILIES, Curve, Group, cited, over_budgets, per_budget
from retcon.study.tables import DATASETS, OPERATORS, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDE = 4.6  # inches; 331 units of an SVG, about what a telephone shows one to one
PANEL = 1.95  # inches that the axes of a panel are high, about

# Okabe and Ito's colours, a little darker on white and lighter on black: (light, dark).
INK, FAINT, RULE, PAPER = ("#1f2328", "#e6e8eb"), ("#6b727a", "#9aa3ad"), ("#d9dde1", "#343b43"), ("#ffffff", "#12161b")
BLUE, VERMILLION, GREEN = ("#0072b2", "#58b5ee"), ("#d05300", "#ff9350"), ("#00875f", "#35c59a")
PURPLE, ORANGE, SKY = ("#b0558c", "#e6a0ca"), ("#b87f00", "#f2b732"), ("#3c8fc2", "#a5d6f7")
GREY = ("#8b939b", "#8a929a")
THEME = (INK, FAINT, RULE, PAPER, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
LOOKS = {  # action -> colour, marker
    RETAIN: (INK, "o"),
    "abstract": (BLUE, "s"),
    "merge": (VERMILLION, "^"),
    "rewrite": (GREEN, "D"),
    "extract": (PURPLE, "v"),
    "hybrid": (ORANGE, "p"),
    "trunc": (SKY, "<"),
    "retrel": (GREY, ">"),
}
NO_BUDGET = {"full": "all, no budget", "none": "no memory"}
SPARE = ((ORANGE, "h"), (SKY, "8"), (PURPLE, "<"), (GREY, ">"), (BLUE, "d"), (GREEN, "H"))
UNSAID = {"svg": ("Date", "Creator"), "png": ("Software",)}  # what changes the bytes and not the picture
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "retcon",
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud, and takes the page's font
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT[0],
    "text.color": INK[0],
    "axes.labelcolor": INK[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.8,
}
_COLOUR = re.compile("(?<=: )#[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture with the numbers behind it; `missing` says why there is none."""

    key: str
    title: str
    caption: str
    svg: str
    svg_dark: str
    png: bytes
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Value | str, ...], ...] = ()
    missing: str | None = None


def figures(groups: Sequence[Group]) -> list[Figure]:
    """Every figure that these outcomes allow, in reading order."""
    made = [*(crossover(group) for group in groups), pressure(groups)]
    routed = [group for group in groups if group.every is not None]
    return made + [draw(group) for draw in (needed, spend, mix) for group in routed]


# -- the crossover -----------------------------------------------------------------------------------------------------


def crossover(group: Group) -> Figure:
    """Accuracy against budget, a panel for each family of actions, retention in all of them."""
    families = [name for name in FAMILIES if any(c.family == name for c in group.curves[1:])]
    rows = max(len(families), 1)

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for place, axes in enumerate(panels):
            chosen = [c for c in group.curves[1:] if families and c.family == families[place]]
            axes.set_ylim(0, _top(group))
            _accuracy_panel(axes, group, group.curves[0], chosen)
            axes.set_title(FAMILIES[families[place]] if families else "Retention", pad=8)
            axes.set_ylabel("answers judged right")
            axes.tick_params(labelbottom=True)
        panels[-1].set_xlabel("budget: tokens of memory that the reader may see")
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")

    return Figure(
        f"crossover-{group.key}",
        f"When does replacing notes pay? {group.name}",
        _crossover_caption(group),
        *_drawn(compose, height=0.35 + 2.55 * rows, title=f"accuracy against budget, {group.name}"),
        columns=("Action", *(f"{b} tokens" for b in group.budgets), "Gain turns to loss at"),
        rows=tuple(_curve_row(group, curve) for curve in group.curves),
    )


def _accuracy_panel(axes: Axes, group: Group, retention: Curve, curves: Sequence[Curve]) -> None:
    shown = [curve for curve in (*curves, retention) if curve.budgets]
    ends = []
    for place, curve in enumerate(shown):
        colour, marker = look(curve.action)
        xs, kept = _beside(curve.budgets, place, len(shown)), curve.action == RETAIN
        _dots(axes, xs, curve.accuracy, colour[0], marker, "--" if kept else "-", zorder=2 if kept else 3)
        ends.append((curve.action, xs[-1], curve.accuracy[-1].mean))
    _budget_axis(axes, group.budgets)
    for name, level in group.levels.items():
        axes.axhline(level.mean, color=FAINT[0], linewidth=1, linestyle=":", zorder=1)
        ends.append((NO_BUDGET.get(name, name), None, level.mean))
    _name_ends(axes, ends)


def _top(group: Group) -> float:
    every = [e.high for c in group.curves for e in c.accuracy] + [level.mean for level in group.levels.values()]
    return min(1.0, max([0.1, *every]) + 0.04)


def _crossover_caption(group: Group) -> str:
    turns = [(c.action, c.crossover.budget) for c in group.curves[1:] if c.crossover is not None]
    inside = [f"{name} at {budget:.0f}" for name, budget in turns if budget > 0 and isfinite(budget)]
    said = f" Where the mean gain over retention falls to zero: {', '.join(inside)} tokens." if inside else ""
    lines = " Dotted lines have no budget." if group.levels else ""
    return (
        f"Share of {len(group.questions)} questions answered right when the reader sees that many tokens at most."
        f" Dashed: raw notes, as many as fit (retain). Bars are 95% intervals over questions.{lines}{said}"
    )


def _curve_row(group: Group, curve: Curve) -> tuple[Value | str, ...]:
    at = dict(zip(curve.budgets, curve.accuracy, strict=True))
    cells = [
        _share(at[b], group.where(budget=b, action=curve.action)) if b in at else "not measured" for b in group.budgets
    ]
    return (curve.action, *cells, _turn(curve))


def _turn(curve: Curve) -> str:
    if curve.crossover is None:
        return ""
    said = [_tokens(value) for value in (curve.crossover.budget, curve.crossover.low, curve.crossover.high)]
    return f"{said[0]} [{said[1]}, {said[2]}]"


def _tokens(budget: float) -> str:
    return "below" if budget == 0 else f"{budget:.0f}" if isfinite(budget) else "beyond"


# -- pressure, not tokens ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """An operator's gains on some data: ours, or as published."""

    data: str
    action: str
    ours: bool
    budgets: tuple[int, ...]
    fit: tuple[float, ...] | None
    gain: tuple[Estimate, ...]


def pressure(groups: Sequence[Group]) -> Figure:
    """Gain against tokens, and the same gains against the share of questions whose evidence fits whole."""
    key, title = "pressure", "Is it the number of tokens, or whether the evidence fits?"
    fits = [group for group in groups if group.full_fit is not None and len(group.paper_actions) > 1]
    chosen = [group for group in fits if group.setting == "controlled"] or fits
    if not chosen:
        why = "no outcomes of the paper's operators say how much of the evidence fits"
        return Figure(key, title, "", "", "", b"", missing=why)
    lines = [line for group in chosen for line in _ours(group)] + list(_published())
    data = list(dict.fromkeys(line.data for line in lines))
    styles = dict(zip(data, ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1))), strict=False))

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(2, 1, sharey=True)
        for line in lines:
            for axes, xs in zip(panels, (line.budgets, line.fit), strict=True):
                if xs is not None:
                    _gain_line(axes, line, xs, styles.get(line.data, "-"))
        _budget_axis(panels[0], sorted({b for line in lines for b in line.budgets}))
        panels[0].set(title="Against tokens", xlabel="budget in tokens")
        panels[1].set(
            title="Against pressure: the same gains",
            xlabel="questions whose evidence all fits, raw",
            xlim=(-0.03, 1.03),
        )
        panels[1].xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        for axes in panels:
            axes.grid(axis="y", color=RULE[0], linewidth=0.7)
            axes.axhline(0, color=INK[0], linewidth=1, zorder=1)
            axes.set_ylabel("gain over retention, points")
            axes.yaxis.set_major_formatter(lambda value, _: _points(value))
        _pressure_legend(canvas, lines, styles)

    return Figure(
        key, title, _pressure_caption(groups, chosen),
        *_drawn(compose, height=6.9, title="gain over retention against tokens and against fit"),
        columns=("Data", "Operator", "Budget", "Evidence fits whole", "Gain over retention"),
        rows=tuple(row for group in chosen for row in _pressure_rows(group)),
    )  # fmt: skip


def _ours(group: Group) -> Iterator[Line]:
    fit = dict(zip(group.budgets, group.full_fit or (), strict=True))
    for curve in group.curves[1:]:
        if curve.action in group.paper_actions:
            share = tuple(fit[budget] for budget in curve.budgets)
            yield Line(group.name, curve.action, True, curve.budgets, share, curve.gain)


def _published() -> Iterator[Line]:
    """The paper's gains. Of LoCoMo it does not print how much fits."""
    share = {row["budget"]: row["full"] / 100 for row in published.BUDGETPRESSURE.rows}
    for table, fit in ((published.OPERATORSTATS, share), (published.LOCOMOSTATS, None)):
        for action in STEMS:
            rows = [row for row in table.rows if row["operator"] == action]
            budgets = tuple(row["budget"] for row in rows)
            gains = tuple(Estimate(row["gain"], row["low"], row["high"], table.questions) for row in rows)
            data = f"{DATASETS[table.dataset]}, paper"
            yield Line(data, action, False, budgets, None if fit is None else tuple(fit[b] for b in budgets), gains)


def _gain_line(axes: Axes, line: Line, xs: Sequence[float], style: Any) -> None:
    colour, marker = look(line.action)
    if line.ours:
        return _dots(axes, xs, line.gain, colour[0], marker, style)
    hollow = {"markerfacecolor": PAPER[0], "markeredgecolor": colour[0], "markersize": 5, "markeredgewidth": 1}
    axes.plot(
        xs, [e.mean for e in line.gain], color=colour[0], linestyle=style, linewidth=1, marker=marker, alpha=0.75,
        zorder=2, **hollow,
    )  # fmt: skip
    return None


def _pressure_legend(canvas: Canvas, lines: Sequence[Line], styles: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    names = dict.fromkeys(line.action for line in lines if line.ours)
    handles = [
        Line2D([], [], color=look(name)[0][0], marker=look(name)[1], markersize=6, linewidth=0, label=name)
        for name in names
    ]
    for data, ours in {line.data: line.ours for line in lines}.items():
        face = {} if ours else {"markerfacecolor": PAPER[0], "linewidth": 1}
        handles.append(
            Line2D([], [], color=INK[0], linestyle=styles.get(data, "-"), marker="o", markersize=5, label=data, **face)
        )
    canvas.legend(handles=handles, loc="outside upper left", ncols=2, handlelength=2.6, columnspacing=1.2)


def _pressure_caption(groups: Sequence[Group], chosen: Sequence[Group]) -> str:
    lone = " Only one dataset was measured here." if len({group.dataset for group in chosen}) < 2 else ""
    out = [group.name for group in groups if group not in chosen]
    left = (
        f" Left out: {_listed(out)}, where candidates are whatever a retriever found, most of it beside the point."
        if out and all(group.setting == "controlled" for group in chosen)
        else ""
    )
    return (
        "Gain of each operator over raw notes, in percentage points, with 95% intervals. Above: by budget. Below: the"
        " same points by the share of questions whose evidence fits whole. If what counts is pressure and not tokens,"
        f" datasets differ above and fall together below.{lone} Hollow marks are the paper's, with {published.MODEL};"
        f" of LoCoMo it does not print how much fits.{left}"
    )


def _pressure_rows(group: Group) -> Iterator[tuple[Value | str, ...]]:
    for line in _ours(group):
        for budget, fit, gain in zip(line.budgets, line.fit or (), line.gain, strict=True):
            rows = group.where(budget=budget, action=[RETAIN, line.action])
            share = Value(f"{fit:.1%}", rows=group.where(budget=budget, action=RETAIN))
            yield group.name, line.action, str(budget), share, _gain(gain, rows)


# -- policies ----------------------------------------------------------------------------------------------------------


LINES = {  # policy -> colour, marker, line, and what it is called in a figure
    "retention": (INK, "o", "--", "retain"),
    "best fixed action": (BLUE, "s", "-", "best fixed action"),
    "direct": (GREEN, "D", "-", "router"),
    "ladder": (VERMILLION, "^", "-", "ladder"),
    "action oracle": (GREY, "v", ":", "hindsight"),
}
KINDS = {  # how a policy spends -> colour, marker
    "one fixed action": (BLUE, "s"),
    "a router picks one": (GREEN, "D"),
    "a ladder may look again": (VERMILLION, "^"),
    "as much spent otherwise": (PURPLE, "p"),
    "hindsight, out of reach": (GREY, "v"),
}
NAMED = {  # policies named in the figure of spend; the others are in its numbers
    "retention": "retain", "best fixed action": "best fixed action", "direct": "router", "calibrated": "calibrated",
    "ladder": "ladder", "best fixed, asked again": "asked again", "vote of two": "vote of two",
    "best fixed, twice the budget": "twice the budget", "action oracle": "hindsight",
}  # fmt: skip


def needed(fitted: Fitted) -> Figure:
    """Accuracy of the policies against budget: which budget buys what."""
    panel, group = fitted.fit.panel, fitted.group
    resamples = _resamples(fitted)
    shown = {name: fitted.fit.results[name] for name in LINES if name in fitted.fit.results}
    estimates = {name: intervals(_seen(result), resamples) for name, result in shown.items()}

    def compose(canvas: Canvas) -> None:
        axes, ends = canvas.subplots(), []
        for place, (name, found) in enumerate(estimates.items()):
            colour, marker, line, _ = LINES[name]
            xs = _beside(panel.budgets, place, len(shown))
            _dots(axes, xs, found, colour[0], marker, line)
            ends.append((LINES[name][3], xs[-1], found[-1].mean))
        _budget_axis(axes, panel.budgets)
        axes.set_ylim(0, min(1.0, max(e.high for found in estimates.values() for e in found) + 0.05))
        _name_ends(axes, ends)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("budget: tokens of memory that the reader may see")
        axes.set_ylabel("answers judged right")

    return Figure(
        f"budget-{group.key}",
        f"What budget do I need? {group.name}",
        f"Accuracy of each policy on questions it was not learned from, choosing between {_listed(panel.actions)}."
        f" {_enough(panel.budgets, estimates)}Hindsight picks the best action of every question after the fact: the"
        " ceiling of any choice between these actions.",
        *_drawn(compose, height=3.5, title=f"accuracy of policies against budget, {group.name}"),
        columns=("Policy", *(f"{b} tokens" for b in panel.budgets)),
        rows=tuple(
            (LINES[name][3], *(_share(e, _all(fitted, budget=b)) for b, e in zip(panel.budgets, found, strict=True)))
            for name, found in estimates.items()
        ),
    )


def _enough(budgets: Sequence[int], estimates: Mapping[str, Sequence[Estimate]]) -> str:
    """The smallest budgets at which other policies reach what retention has at the largest, in a sentence."""
    aim = estimates["retention"][-1].mean
    reached: dict[int, list[str]] = {}
    for name in ("best fixed action", "direct", "ladder"):
        found = next((b for b, e in zip(budgets, estimates.get(name, ()), strict=False) if e.mean >= aim), None)
        if found is not None and found < budgets[-1]:
            reached.setdefault(found, []).append(f"the {LINES[name][3]}")
    said = [f"{_listed(names)} with {budget}" for budget, names in sorted(reached.items())]
    return f"Raw notes reach {aim:.1%} with {budgets[-1]} tokens, {_listed(said)}. " if said else ""


def spend(fitted: Fitted) -> Figure:
    """Macro accuracy of every policy against the tokens that it spends on a question."""
    results = [
        each for name, each in fitted.fit.results.items() if name not in ("MLP", "certified") and each.seen.all()
    ]
    estimates = intervals(np.stack([run_mean(each.utility) for each in results], axis=1), _resamples(fitted))
    tokens = [float(np.mean(each.read + each.generated)) for each in results]
    calls = [float(np.mean(each.calls)) for each in results]
    counted = "context_tokens" in fitted.fit.panel.tokens
    xs = tokens if counted else calls

    def compose(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for x, estimate, each in zip(xs, estimates, results, strict=True):
            colour, marker = KINDS[_kind(each.name)]
            if each.name in NAMED:
                _dots(axes, [x], [estimate], colour[0], marker, "", size=7.5)
            elif each.name.startswith("always "):
                axes.plot([x], [estimate.mean], marker, color=colour[0], alpha=0.45, markersize=4.5, zorder=2)
        low, high = min(e.low for e in estimates), max(e.high for e in estimates)
        axes.set_ylim(max(0, low - 0.03), min(1, high + 0.03))
        axes.set_xlim(0, max(xs) * 1.22)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.grid(color=RULE[0], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set_xlabel("tokens read and written for a question" if counted else "reader calls for a question")
        axes.set_ylabel("answers judged right")
        _kind_legend(canvas, [each.name for each in results])
        canvas.draw_without_rendering()
        every = zip((each.name for each in results), xs, estimates, strict=True)
        _name_points(axes, [(NAMED[name], x, e) for name, x, e in every if name in NAMED])

    group = fitted.group
    written = "" if "generated_tokens" in fitted.fit.panel.tokens else " What operators wrote was not counted here."
    return Figure(
        f"spend-{group.key}",
        f"What does a right answer cost? {group.name}",
        f"Each point is a policy over all budgets ({_listed([str(b) for b in fitted.fit.panel.budgets])} tokens), with"
        f" its 95% interval; further left is cheaper, further up is better. Small squares: always the same action. A"
        " ladder reads again where the reader found no answer, so it is compared with other ways to spend as much."
        f"{written}",
        *_drawn(compose, height=4.9, title=f"accuracy against spend, {group.name}"),
        columns=("Policy", "Accuracy, mean of budgets", "Reader calls", "Tokens"),
        rows=tuple(
            (each.name, _share(e, _all(fitted)), f"{c:.2f}", f"{t:.0f}" if counted else "")
            for each, e, c, t in zip(results, estimates, calls, tokens, strict=True)
        ),
    )  # fmt: skip


def _kind(name: str) -> str:
    fixed, router, ladder, otherwise, hindsight = KINDS
    if "oracle" in name:
        return hindsight
    if name.startswith("ladder"):
        return ladder
    if name in ("best fixed, asked again", "best fixed, twice the budget", "vote of two"):
        return otherwise
    chooses = ("evidence-fit rule", "k-NN", "MLP", "direct", "calibrated", "certified")
    return router if name in chooses else fixed


def _kind_legend(canvas: Canvas, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    there = {_kind(name) for name in names}
    handles = [
        Line2D([], [], color=colour[0], marker=marker, markersize=7, linewidth=0, label=kind)
        for kind, (colour, marker) in KINDS.items()
        if kind in there
    ]
    canvas.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1.2)


def mix(fitted: Sequence[Fitted]) -> Figure:
    """Which actions the direct router takes at each budget, a panel for each set of actions."""
    bars = sum(len(each.fit.panel.budgets) for each in fitted)
    group = fitted[0].group

    def compose(canvas: Canvas) -> None:
        panels = canvas.subplots(
            len(fitted), 1, sharex=True, squeeze=False,
            gridspec_kw={"height_ratios": [len(each.fit.panel.budgets) for each in fitted]},
        )[:, 0]  # fmt: skip
        for axes, each in zip(panels, fitted, strict=True):
            _stack(axes, each)
            _mix_legend(axes, each)
            axes.tick_params(labelbottom=True)
        panels[-1].set_xlabel("share of questions")

    return Figure(
        f"mix-{group.key}",
        f"What does the router choose? {group.name}",
        "Share of questions for which the direct router takes each action, on questions it was not learned from. Raw"
        " notes should take over as the budget grows, if the mechanism holds.",
        *_drawn(compose, height=0.4 + 0.95 * len(fitted) + 0.42 * bars, title=f"actions chosen, {group.name}"),
        columns=("Actions", "Budget", "Chosen"),
        rows=tuple(row for each in fitted for row in _mix_rows(each)),
    )


def _stack(axes: Axes, each: Fitted) -> None:
    shares, panel = each.fit.results["direct"].chosen.mean(axis=0), each.fit.panel  # [b, a]
    ys = range(len(panel.budgets))
    left = np.zeros(len(panel.budgets))
    for a, name in enumerate(panel.actions):
        colour, _ = look(name)
        axes.barh(ys, shares[:, a], left=left, height=0.72, color=colour[0], edgecolor=PAPER[0], linewidth=1.2)
        for y, share, start in zip(ys, shares[:, a], left, strict=True):
            if share >= 0.09:
                axes.text(
                    start + share / 2, y, f"{share:.0%}", ha="center", va="center", color=PAPER[0], fontsize=9,
                    fontweight="bold",
                )  # fmt: skip
        left += shares[:, a]
    axes.set_yticks(list(ys), [f"{b} tokens" for b in panel.budgets])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _mix_legend(axes: Axes, each: Fitted) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=look(name)[0][0], label=name) for name in each.fit.panel.actions]
    legend = axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, handlelength=1, handleheight=0.9,
        columnspacing=1.1, borderaxespad=0.2, title=f"Choosing between {each.label}", alignment="left",
        title_fontproperties={"weight": "bold", "size": 10.5},
    )  # fmt: skip
    legend.set_in_layout(True)


def _mix_rows(each: Fitted) -> Iterator[tuple[Value | str, ...]]:
    panel, chosen = each.fit.panel, each.fit.results["direct"].chosen.mean(axis=0)
    for b, budget in enumerate(panel.budgets):
        said = ", ".join(f"{name} {chosen[b, a]:.0%}" for a, name in enumerate(panel.actions) if chosen[b, a] > 0)
        yield each.label, str(budget), Value(said, rows=_all(each, budget=budget))


def _resamples(fitted: Fitted) -> Resamples:
    group = fitted.group
    return resample(len(fitted.fit.panel.questions), seed=group.seed, draws=group.draws)


def _seen(result: Result) -> Any:
    return np.where(result.seen, result.utility, np.nan)


def _all(fitted: Fitted, **more: Any) -> dict[str, Any]:
    """The filter for the rows that a policy is read off."""
    panel = fitted.fit.panel
    return fitted.group.where(**{"budget": list(panel.budgets)} | more, action=list(panel.actions))


# -- drawing -----------------------------------------------------------------------------------------------------------


def look(action: str) -> tuple[tuple[str, str], str]:
    """Colour (light, dark) and marker of an action; variants of an operator share its own."""
    stem = stem_of(action)
    return LOOKS[stem] if stem in LOOKS else SPARE[sum(map(ord, stem)) % len(SPARE)]


def dark(svg: str) -> str:
    """The SVG for a dark page."""
    other = dict(THEME)
    return _COLOUR.sub(lambda found: other.get(found.group(), found.group()), svg)


def _drawn(compose: Callable[[Canvas], None], *, height: float, title: str) -> tuple[str, str, bytes]:
    """The picture as a light SVG, a dark one and a PNG."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtraError("the figures of a report", "report") from None
    files = {}
    with style.context(["default", SETTINGS]):
        canvas = Canvas(figsize=(WIDE, height), facecolor=PAPER[0])
        canvas.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.07, hspace=0.05))
        compose(canvas)
        for kind, unsaid in UNSAID.items():
            files[kind] = BytesIO()
            said = {"Title": title, **dict.fromkeys(unsaid)}
            canvas.savefig(files[kind], format=kind, dpi=200, metadata=said)
    svg = files["svg"].getvalue().decode()
    return svg, dark(svg), files["png"].getvalue()


def _dots(
    axes: Axes, xs: Sequence[float], found: Sequence[Estimate], colour: str, marker: str, line: str, *, size: float = 6,
    zorder: float = 3,
) -> None:  # fmt: skip
    """Means with their intervals, joined by a line."""
    means = np.array([e.mean for e in found])
    spread = np.abs(np.array([[e.mean - e.low, e.high - e.mean] for e in found]).T)
    axes.errorbar(
        xs, means, yerr=spread, color=colour, linestyle=line or "none", marker=marker, markersize=size,
        markeredgecolor=PAPER[0], markeredgewidth=0.7, elinewidth=1.1, zorder=zorder,
    )  # fmt: skip


def _budget_axis(axes: Axes, budgets: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    shown = _apart(budgets)
    axes.set_xticks(shown, [str(budget) for budget in shown])
    axes.minorticks_off()
    axes.set_xlim(budgets[0] / 1.18, budgets[-1] * 1.18)
    axes.grid(axis="y", color=RULE[0], linewidth=0.7)
    axes.set_axisbelow(True)


def _beside(budgets: Sequence[int], place: int, of: int) -> list[float]:
    """The budgets moved a little on the log axis, so that the bars of several lines stand beside each other."""
    return [budget * 2 ** (0.05 * (place - (of - 1) / 2)) for budget in budgets]


def _apart(budgets: Sequence[int], share: float = 0.1) -> list[int]:
    """The budgets far enough from the one before for their labels not to touch."""
    kept = [budgets[0]]
    least = (budgets[-1] / budgets[0]) ** share
    for budget in budgets[1:]:
        if budget / kept[-1] >= least:
            kept.append(budget)
    return kept


def _name_ends(axes: Axes, ends: Sequence[tuple[str, float | None, float]]) -> None:
    """Names beside the right ends of lines, moved apart where they would touch. The y axis must have its limits."""
    low, high = axes.get_ylim()
    gap = (high - low) * 15 / (72 * PANEL)  # a line of text is 15 points high
    order = sorted(range(len(ends)), key=lambda i: ends[i][2])
    ys = _spread([ends[i][2] for i in order], gap, low + gap / 2, high)
    for i, y in zip(order, ys, strict=True):
        name, x, mean = ends[i]
        line = {"arrowstyle": "-", "color": FAINT[0], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4 if x else 0}
        axes.annotate(
            name, (1 if x is None else x, mean), (1.035, y), xycoords=("axes fraction" if x is None else "data", "data"),
            textcoords=("axes fraction", "data"), va="center", fontsize=9.5, annotation_clip=False, arrowprops=line,
            color=FAINT[0] if x is None else INK[0],
        )  # fmt: skip


def _spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Sorted values moved as little as need be to stand a gap apart, within the limits where they can."""
    moved = list(values)
    for _ in range(200):
        for i in range(len(moved) - 1):
            short = gap - (moved[i + 1] - moved[i])
            if short > 0:
                moved[i], moved[i + 1] = moved[i] - short / 2, moved[i + 1] + short / 2
        if moved:
            moved[0], moved[-1] = max(moved[0], low), min(moved[-1], high)
    return moved


Box = tuple[float, float, float, float]  # left, bottom, right, top


def _name_points(axes: Axes, points: Sequence[tuple[str, float, Estimate]]) -> None:
    """A name beside each point, where it covers no other name, point or bar; the axes must have their limits."""
    unit = axes.figure.dpi / 72
    place = axes.transData.transform
    taken: list[Box] = []
    for _, x, e in points:
        (left, mid), bottom, top = place((x, e.mean)), place((x, e.low))[1], place((x, e.high))[1]
        taken += [(left - 5 * unit, mid - 5 * unit, left + 5 * unit, mid + 5 * unit), (left - 1, bottom, left + 1, top)]
    for name, x, e in sorted(points, key=lambda point: (-point[2].mean, point[0])):
        at = place((x, e.mean))
        dx, dy, box = _free(at, 5.2 * len(name) * unit, 10 * unit, unit, taken, axes.bbox.extents)
        taken.append(box)
        far = abs(dx) + abs(dy) > 24
        line = {"arrowstyle": "-", "color": FAINT[0], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3} if far else None
        note = axes.annotate(
            name, (x, e.mean), (dx, dy), textcoords="offset points", ha="left" if dx >= 0 else "right", va="center",
            fontsize=9, arrowprops=line, zorder=6,
        )  # fmt: skip
        note.set_in_layout(False)


def _free(at: Any, wide: float, high: float, unit: float, taken: Sequence[Box], frame: Any) -> tuple[float, float, Box]:
    """Offset in points, and box, of the nearest place for a name that is free, or as free as can be."""
    best: tuple[float, float, float, Box] | None = None
    for reach in (8, 20, 32, 44):
        for dy in (0, 7, -7, 14, -14, 22, -22, 32, -32, 44, -44):
            for dx in (reach, -reach):
                left = at[0] + dx * unit - (wide if dx < 0 else 0)
                box = (left, at[1] + dy * unit - high / 2, left + wide, at[1] + dy * unit + high / 2)
                over = sum(_overlap(box, other) for other in taken) + _outside(box, frame)
                worth = over * 100 + abs(dx) + abs(dy) * 1.2
                if best is None or worth < best[0] - 1e-9:
                    best = (worth, dx, dy, box)
    assert best is not None
    return best[1:]


def _overlap(a: Box, b: Box) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, wide) * max(0.0, high)


def _outside(box: Box, frame: Any) -> float:
    return (
        float(
            max(0.0, frame[0] - box[0])
            + max(0.0, box[2] - frame[2])
            + max(0.0, frame[1] - box[1])
            + max(0.0, box[3] - frame[3])
        )
        * 10
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _share(found: Estimate, rows: Mapping[str, Any]) -> Value:
    said = f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    return Value(said, found.mean, found.low, found.high, rows)


def _gain(found: Estimate, rows: Mapping[str, Any]) -> Value:
    said = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    return Value(said, found.mean, found.low, found.high, rows)


def _points(value: float) -> str:
    """A gain in percentage points."""
    whole = round(100 * value)
    return f"{'+' if whole > 0 else '−'}{abs(whole)}" if whole else "0"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
