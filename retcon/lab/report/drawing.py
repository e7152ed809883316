"""What every figure of a report shares: colours for light and dark pages, intervals, axes, names that do not collide.

Colours are Okabe and Ito's, told apart with any kind of colour vision, a little darker on white and lighter on black;
each has a second sign beside it (a marker, a name, a number in the bar). The same picture gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from retcon.errors import MissingExtraError
from retcon.lab.stats import Estimate
from retcon.note import RETAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Colour = tuple[str, str]  # on a light page, on a dark one
Box = tuple[float, float, float, float]  # left, bottom, right, top

WIDE = 4.6  # inches; 331 units of an SVG, about what a telephone shows one to one
PANEL = 1.95  # inches that the axes of a panel are high, about
LINE = 15  # points that a name needs

INK, FAINT, RULE, PAPER = ("#1f2328", "#e6e8eb"), ("#6b727a", "#9aa3ad"), ("#d9dde1", "#343b43"), ("#ffffff", "#12161b")
BLUE, VERMILLION, GREEN = ("#0072b2", "#58b5ee"), ("#d05300", "#ff9350"), ("#00875f", "#35c59a")
PURPLE, ORANGE, SKY = ("#b0558c", "#e6a0ca"), ("#b87f00", "#f2b732"), ("#3c8fc2", "#a5d6f7")
GREY = ("#8b939b", "#8a929a")
THEME = (INK, FAINT, RULE, PAPER, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
STYLES: dict[str, tuple[Colour, str]] = {  # operator or action -> colour, marker
    RETAIN: (INK, "o"),
    "abstract": (BLUE, "s"),
    "merge": (VERMILLION, "^"),
    "rewrite": (GREEN, "D"),
    "extract": (PURPLE, "v"),
    "hybrid": (ORANGE, "p"),
    "trunc": (SKY, "<"),
    "retrel": (GREY, ">"),
}
SPARE = ((ORANGE, "h"), (SKY, "8"), (PURPLE, "<"), (GREY, ">"), (BLUE, "d"), (GREEN, "H"))
UNSAID = {"svg": ("Date", "Creator"), "png": ("Software",)}  # what changes the bytes and not the picture
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "retcon",  # ids in the file are the same each time
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud, and takes the page's font
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT[0],
    "text.color": INK[0],
    "axes.labelcolor": INK[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "text.parse_math": False,  # a dollar in a name is a dollar
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.8,
}
_COLOUR = re.compile("(?<=: )#[0-9a-f]{6}")


def style_of(action: str) -> tuple[Colour, str]:
    """Colour and marker of an operator or action; one that nobody knows gets a spare of its own, always the same."""
    return STYLES[action] if action in STYLES else SPARE[sum(map(ord, action)) % len(SPARE)]


def draw(compose: Callable[[Canvas], None], *, height: float, title: str) -> tuple[str, str, bytes]:
    """The picture as a light SVG, a dark one and a PNG."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtraError("the figures of a report", "lab") from None
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
    return svg, darken(svg), files["png"].getvalue()


def darken(svg: str) -> str:
    """The SVG for a dark page."""
    other = dict(THEME)
    return _COLOUR.sub(lambda found: other.get(found.group(), found.group()), svg)


def use_page_colours(svg: str) -> str:
    """The SVG with its colours as variables of the page that it stands in: --c0, --c1 ... in the order of THEME."""
    place = {colour[0]: f"var(--c{i})" for i, colour in enumerate(THEME)}
    return _COLOUR.sub(lambda found: place.get(found.group(), found.group()), svg)


# -- marks and axes ----------------------------------------------------------------------------------------------------


def dots(
    axes: Axes, xs: Sequence[float], found: Sequence[Estimate], colour: Colour, marker: str, line: Any = "", *,
    size: float = 6, zorder: float = 3,
) -> None:  # fmt: skip
    """Means with their intervals, joined by a line where one is asked for."""
    means = np.array([e.mean for e in found])
    spread = np.abs(np.array([[e.mean - e.low, e.high - e.mean] for e in found]).T)
    axes.errorbar(
        xs, means, yerr=spread, color=colour[0], linestyle=line or "none", marker=marker, markersize=size,
        markeredgecolor=PAPER[0], markeredgewidth=0.7, elinewidth=1.1, zorder=zorder,
    )  # fmt: skip


def budget_axis(axes: Axes, budgets: Sequence[int]) -> None:
    """A log2 axis with the budgets that have room for their number."""
    axes.set_xscale("log", base=2)
    shown = _apart(budgets)
    axes.set_xticks(shown, [str(budget) for budget in shown])
    axes.minorticks_off()
    axes.set_xlim(budgets[0] / 1.18, budgets[-1] * 1.18)
    rule(axes)


def rule(axes: Axes, axis: Any = "y") -> None:
    """Faint lines behind everything."""
    axes.grid(axis=axis, color=RULE[0], linewidth=0.7)
    axes.set_axisbelow(True)


def percent(value: float, _: Any = None) -> str:
    """A share on an axis."""
    return f"{value:.0%}"


def points(value: float, _: Any = None) -> str:
    """A gain on an axis, in percentage points."""
    whole = round(100 * value)
    return f"{'+' if whole > 0 else '−'}{abs(whole)}" if whole else "0"


def beside(budgets: Sequence[int], place: int, of: int) -> list[float]:
    """The budgets moved a little on the log axis, so that the bars of several lines stand beside each other."""
    return [budget * 2 ** (0.05 * (place - (of - 1) / 2)) for budget in budgets]


def _apart(budgets: Sequence[int], share: float = 0.1) -> list[int]:
    kept = [budgets[0]]
    least = (budgets[-1] / budgets[0]) ** share
    for budget in budgets[1:]:
        if budget / kept[-1] >= least:
            kept.append(budget)
    return kept


# -- names -------------------------------------------------------------------------------------------------------------


def name_ends(axes: Axes, ends: Sequence[tuple[str, float | None, float]], *, panel: float = PANEL) -> None:
    """Names (with x and y of a line's end) in the right margin, moved apart where they would touch.

    An end without an x belongs to a level that runs through. The y axis must have its limits.
    """
    low, high = axes.get_ylim()
    gap = (high - low) * LINE / (72 * panel)
    order = sorted(range(len(ends)), key=lambda i: ends[i][2])
    for i, y in zip(order, _spread([ends[i][2] for i in order], gap, low + gap / 2, high), strict=True):
        name, x, mean = ends[i]
        across = "axes fraction" if x is None else "data"
        line = {"arrowstyle": "-", "color": FAINT[0], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4 if x else 0}
        axes.annotate(
            name, (1 if x is None else x, mean), (1.035, y), xycoords=(across, "data"),
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


def name_points(canvas: Canvas, axes: Axes, named: Sequence[tuple[str, float, Estimate]]) -> None:
    """A name beside each point, where it covers no other name, point or bar; the axes must have their limits."""
    canvas.draw_without_rendering()  # the layout decides where points are
    unit = canvas.dpi / 72
    place = axes.transData.transform
    taken: list[Box] = []
    for _, x, e in named:
        (left, mid), bottom, top = place((x, e.mean)), place((x, e.low))[1], place((x, e.high))[1]
        taken += [(left - 5 * unit, mid - 5 * unit, left + 5 * unit, mid + 5 * unit), (left - 1, bottom, left + 1, top)]
    for name, x, e in sorted(named, key=lambda point: (-point[2].mean, point[0])):
        dx, dy, box = _free(place((x, e.mean)), 5.2 * len(name) * unit, 10 * unit, unit, taken, axes.bbox.extents)
        taken.append(box)
        far = abs(dx) + abs(dy) > 24
        line = {"arrowstyle": "-", "color": FAINT[0], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3} if far else None
        note = axes.annotate(
            name, (x, e.mean), (dx, dy), textcoords="offset points", ha="left" if dx >= 0 else "right", va="center",
            fontsize=9.5, arrowprops=line, zorder=6,
        )  # fmt: skip
        note.set_in_layout(False)


def _free(at: Any, wide: float, high: float, unit: float, taken: Sequence[Box], frame: Any) -> tuple[float, float, Box]:
    """Offset in points, and box, of the nearest place for a name that is free, or as free as can be."""
    tried: list[tuple[float, int, float, float, Box]] = []
    for dx in (8, -8, 20, -20, 32, -32, 44, -44):
        for dy in (0, 7, -7, 14, -14, 22, -22, 32, -32, 44, -44)[0 if abs(dx) == 8 else 3 :]:  # else its line is flat
            left, mid = at[0] + dx * unit - (wide if dx < 0 else 0), at[1] + dy * unit
            box = (left, mid - high / 2, left + wide, mid + high / 2)
            over = sum(_overlap(box, other) for other in taken) + 10 * _outside(box, frame)
            tried.append((100 * over + abs(dx) + 1.2 * abs(dy), len(tried), dx, dy, box))
    return min(tried)[2:]


def _overlap(a: Box, b: Box) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, wide) * max(0.0, high)


def _outside(box: Box, frame: Any) -> float:
    over = (frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3])
    return float(sum(max(0.0, side) for side in over))
