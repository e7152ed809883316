"""The mechanism drawn: a sweep over budgets -> the bytes of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from retcon.errors import MissingExtraError
from retcon.lab.mechanism import Floats, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any kind of colour vision; every meaning has a second sign beside its colour.
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
UNSAID = {"svg": ("Date", "Creator"), "png": ("Software",)}  # what changes the bytes and not the picture
TITLE = "What a record adds and what it costs, by budget (made-up notes and queries)"
INK, FAINT = "#222222", "#8a8a8a"
STYLES = ((BLUE, "-"), (GREEN, "--"), (PURPLE, "-."), (ORANGE, ":"))
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "retcon",  # ids in the file are the same each time
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.6,
}


def draw(fine: Sweep, *, marks: Sequence[int], kind: str = "svg") -> bytes:
    """The picture as a file's bytes, the same for the same sweep: effects per operator, then the decision."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtraError("drawing a plot", "lab") from None
    with style.context(["default", SETTINGS]):
        figure = Figure(figsize=(9.6, 7.2), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06), facecolor="white")
        _compose(figure, fine, marks)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=150, metadata={"Title": TITLE, **dict.fromkeys(UNSAID[kind])})
    return file.getvalue()


def _compose(figure: Figure, fine: Sweep, marks: Sequence[int]) -> None:
    count = len(fine.operators)
    grid = figure.add_gridspec(2, count, height_ratios=(1, 1.05), hspace=0.08)
    first: Axes | None = None
    for o, name in enumerate(fine.operators):
        axes = figure.add_subplot(grid[0, o], sharey=first)
        _effects(axes, fine, o, marks)
        axes.set_title(name, loc="left", fontweight="bold")
        first = first or axes
        axes.set_xlabel("budget in tokens")
        axes.tick_params(labelleft=o == 0)
    if first is not None:
        first.set_ylabel("change of surrogate utility")
        handles, labels = first.get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=len(labels),
            frameon=False,
            title=TITLE,
            title_fontsize=12,
        )
    _decision(figure.add_subplot(grid[1, :]), fine, marks)


def _effects(axes: Axes, fine: Sweep, o: int, marks: Sequence[int]) -> None:
    """One operator: what coverage adds above the zero line, what replacement takes below it, and their sum."""
    from matplotlib.patheffects import withStroke

    parts = [
        ("coverage", fine.coverage[:, o], SKY, None),
        ("replacement", fine.replacement[:, o], ORANGE, "///"),
        ("spillover", fine.spillover[:, o], PURPLE, "..."),
    ]
    for (name, _, colour, hatch), (low, high) in zip(parts, _stack([part[1] for part in parts]), strict=True):
        if (low != high).any():
            axes.fill_between(
                fine.budgets,
                low,
                high,
                facecolor=colour,
                edgecolor=INK,
                linewidth=0,
                hatch=hatch,
                alpha=0.75,
                label=name,
            )
    axes.plot(fine.budgets, fine.gain[:, o], color=INK, linewidth=2, label="net gain")
    halo = withStroke(linewidth=3, foreground="white")
    _ground(axes, marks)
    for turn in fine.crossings(fine.operators[o]):
        axes.plot([turn], [0], "o", color="white", markeredgecolor=INK, markeredgewidth=1.6, markersize=7, zorder=5)
        note = axes.annotate(f"{turn:.0f}", (turn, 0), (5, 6), textcoords="offset points", fontweight="bold")
        note.set_path_effects([halo])


def _stack(parts: Sequence[Floats]) -> Iterator[tuple[Floats, Floats]]:
    """The edges of each part: positive values pile up from zero, negative ones down."""
    top, bottom = np.zeros_like(parts[0]), np.zeros_like(parts[0])
    for part in parts:
        up, down = top + np.maximum(part, 0), bottom + np.minimum(part, 0)
        yield np.where(part >= 0, top, down), np.where(part >= 0, up, bottom)
        top, bottom = up, down


def _decision(axes: Axes, fine: Sweep, marks: Sequence[int]) -> None:
    """Every operator's net gain, and over it the action that the joint rule takes."""
    styles = {name: STYLES[o % len(STYLES)] for o, name in enumerate(fine.operators)}
    for o, name in enumerate(fine.operators):
        colour, line = styles[name]
        axes.plot(fine.budgets, fine.gain[:, o], color=colour, linestyle=line, linewidth=2.2, label=name)
    _ground(axes, marks)
    low, high = float(min(fine.gain.min(), 0)), float(max(fine.gain.max(), 0))
    unit = (high - low) or 1.0
    for start, end, action in _runs(fine):
        colour = styles[action][0] if action in styles else FAINT
        axes.axvspan(start, end, color=colour, alpha=0.12, linewidth=0)
        if end / start > (fine.budgets[-1] / fine.budgets[0]) ** 0.08:  # wide enough to stand under its name
            axes.text((start * end) ** 0.5, high + 0.14 * unit, action, ha="center", va="center", fontweight="bold")
    axes.set_ylim(low - 0.06 * unit, high + 0.24 * unit)
    axes.set_title("the joint rule: the largest gain above zero, else retain", loc="left")
    shown = _space_out(marks, 1 / 16)
    axes.set_xticks(shown, [f"{mark}\n{fine.grounded[fine.budgets.index(mark)]:.0%}" for mark in shown])
    axes.set_xlabel("budget in tokens, and the share of queries for which a raw note fits")
    axes.set_ylabel("net gain over retention")
    axes.legend(loc="lower left", frameon=False)


def _runs(fine: Sweep) -> Iterator[tuple[float, float, str]]:
    """Stretches of budgets with one action: from, to, action. Neighbours meet half way on the log axis."""
    start, actions = float(fine.budgets[0]), fine.actions
    for i, (budget, action) in enumerate(zip(fine.budgets, actions, strict=True)):
        last = i == len(actions) - 1
        if last or actions[i + 1] != action:
            end = float(budget) if last else (budget * fine.budgets[i + 1]) ** 0.5
            yield start, end, action
            start = end


def _ground(axes: Axes, marks: Sequence[int]) -> None:
    """The log2 axis with its budgets, and the zero line."""
    axes.set_xscale("log", base=2)
    shown = _space_out(marks, 1 / 7)
    axes.set_xticks(shown, [str(mark) for mark in shown])
    axes.minorticks_off()
    axes.margins(x=0)
    axes.axhline(0, color=INK, linewidth=1)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)


def _space_out(marks: Sequence[int], share: float) -> list[int]:
    """The marks that stand at least that share of the axis from the one before, so that no labels touch."""
    kept = [marks[0]]
    least = (marks[-1] / marks[0]) ** share
    for mark in marks[1:]:
        if mark / kept[-1] >= least:
            kept.append(mark)
    return kept
