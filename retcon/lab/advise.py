"""Outcomes on your own questions -> which action at which budget, how sure that is, and how much budget is enough.

The best of several actions is flattered by having been chosen on the questions it is shown on. So its interval allows
for the choice (Bonferroni over the replacing actions), and beside it stands what choosing on some questions came to on
others. Where the interval holds zero the advice is to retain, with the number of questions that might tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from retcon.errors import InputError, MissingExtraError
from retcon.lab import bench, outcomes
from retcon.lab.fit import folds, question_groups
from retcon.lab.outcomes import Outcomes, Panel
from retcon.lab.report.figures import crossover_figure
from retcon.lab.report.studies import Readings
from retcon.lab.stats import Array, Estimate, Resamples, interval, intervals, resample
from retcon.note import RETAIN

LEVEL = 0.95
POINTS = 0.03  # of accuracy: a budget that is no further from the best is enough
FEW = 20  # questions below which no difference is called sure
_SAME = 1e-12  # means no further apart are equal
TRIES = 5  # folds: chosen on four of them, tried on the fifth


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget: the action that did best there, against retention."""

    budget: int
    best: str  # retain, where nothing did better
    rival: str  # the best of the other actions
    accuracy: Estimate
    retained: Estimate
    gain: Estimate  # of the rival over retention, allowing for the choice between them
    tried: float  # accuracy of the best action where it was chosen on other questions
    sure: bool
    needed: int | None = None  # questions that might tell, where it is not sure

    @property
    def use(self) -> str:
        """The advised action: what did best, where that is sure, else retain."""
        return self.best if self.sure else RETAIN


@dataclass(frozen=True, slots=True)
class Advice:
    """What a user's own questions say."""

    questions: int
    units: int  # that are independent: questions, or conversations
    group: str
    judge: str
    actions: tuple[str, ...]
    standings: tuple[Standing, ...]
    enough: int  # the smallest budget within `points` of the best
    points: float = POINTS

    @property
    def few(self) -> bool:
        """Whether the questions are too few to tell anything apart."""
        return self.units < FEW

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain JSON values."""
        plain = asdict(self) | {"few": self.few}
        plain["standings"] = [asdict(each) | {"use": each.use} for each in self.standings]
        return plain


def advise(panel: Panel, *, points: float = POINTS, draws: int = 10_000, seed: int = 0) -> Advice:
    """The advice that these outcomes support."""
    if len(panel.actions) < 2:
        raise InputError("there is nothing to advise on: the outcomes are of retain alone")
    if len(panel.questions) < bench.FEWEST:
        raise InputError(
            f"advice needs {bench.FEWEST} questions with complete outcomes, there are {len(panel.questions)}"
        )
    group = bench.independent_unit(panel)
    clusters = panel.conversations if group == "conversation" else None
    units = len(set(clusters)) if clusters is not None else len(panel.questions)
    drawn = resample(len(panel.questions), seed=seed, draws=draws, clusters=clusters)
    tried = _try_on_others(panel, group, seed)
    standings = [_standing(panel, b, drawn, units, float(tried[b])) for b in range(len(panel.budgets))]
    return Advice(
        questions=len(panel.questions), units=units, group=group, judge=panel.judge, actions=panel.actions,
        standings=tuple(standings), enough=_enough(standings, points), points=points,
    )  # fmt: skip


def _standing(panel: Panel, b: int, drawn: Resamples, units: int, tried: float) -> Standing:
    utility = panel.utility[:, b]
    means = utility.mean(axis=0)
    rival = 1 + int(np.argmax(means[1:]))
    best = rival if means[rival] > means[0] + _SAME else 0  # ties go to retain
    level = 1 - (1 - LEVEL) / (len(panel.actions) - 1)
    gain = interval(utility[:, rival] - utility[:, 0], drawn, level=level)
    accuracy, retained = intervals(utility[:, [best, 0]], drawn, level=LEVEL)
    sure = units >= FEW and (best == 0 or gain.low > 0)
    needed = None if sure or best == 0 else _questions_needed(gain, units)
    return Standing(
        panel.budgets[b], panel.actions[best], panel.actions[rival], accuracy, retained, gain, tried, sure, needed
    )


def _try_on_others(panel: Panel, group: str, seed: int) -> Array:
    """[b]: accuracy of the action of highest mean on the other folds."""
    fold = folds(question_groups(panel, group), TRIES, seed=seed)
    out = np.empty((len(panel.questions), len(panel.budgets)))
    for k in range(TRIES):
        test = fold == k
        best = np.argmax(panel.utility[~test].mean(axis=0), axis=1)  # of equals the first, which is retain
        out[test] = panel.utility[test][:, np.arange(len(best)), best]
    mean: Array = out.mean(axis=0)
    return mean


def _questions_needed(gain: Estimate, units: int) -> int | None:
    """Units at which an interval around the same gain would leave zero out: its width falls with their root."""
    half = gain.mean - gain.low
    return max(FEW, ceil(units * (half / gain.mean) ** 2)) if gain.mean > 0 and half > 0 else None


def _enough(standings: list[Standing], points: float) -> int:
    best = max(each.accuracy.mean for each in standings)
    return min(each.budget for each in standings if each.accuracy.mean >= best - points - _SAME)


# -- in words ----------------------------------------------------------------------------------------------------------


def describe(advice: Advice) -> list[str]:
    """The advice in plain sentences."""
    what = "question" if advice.group == "question" else "conversation"
    said = []
    if advice.few:
        said.append(
            f"{advice.units} {what}s are too few to tell: below {FEW} every difference may be chance; what follows is"
            " what was seen, not what to expect"
        )
    said += [_line(each, f"{advice.units} {what}s", advice) for each in advice.standings]
    best = max(advice.standings, key=lambda each: (each.accuracy.mean, -each.budget))
    within = f"{100 * advice.points:g} points"
    said.append(
        f"smallest budget within {within} of the best ({share(best.accuracy.mean)} at {best.budget}): {advice.enough}"
    )
    return said


def _line(each: Standing, units: str, advice: Advice) -> str:
    at = f"at {each.budget} tokens"
    pair = f"{share(each.accuracy.mean)} against {share(each.retained.mean)} for retain, {_gain(each.gain)}"
    if each.best == RETAIN:
        word = "use retain" if each.sure else "retain led"
        nearest = f"{each.rival}, the nearest, {_gain(each.gain)}"
        return f"{at} {word}: {share(each.retained.mean)}, no action did better ({nearest})"
    if each.sure:
        return f"{at} use {each.best}: {pair}; {share(each.tried)} where the action was chosen on other questions"
    more = f"; about {each.needed} might" if each.needed and not advice.few else ""
    return f"{at} {each.best} led with {pair}: {units} cannot tell, so keep to retain{more}"


def _gain(found: Estimate) -> str:
    return f"{format_gain(found.mean)} [{format_gain(found.low)}, {format_gain(found.high)}]"


def share(value: float) -> str:
    """A share of 1 with two decimals and no leading zero: .61"""
    return f"{value:.2f}".removeprefix("0")


def format_gain(value: float) -> str:
    """A difference of shares: +.19"""
    return f"{value:+.2f}".replace("0.", ".", 1)


def describe_policies(summary: Mapping[str, Any] | None) -> list[str]:
    """What choosing for each question came to, on questions the router had not seen, in plain sentences."""
    rows = {row["policy"]: row for row in summary["policies"]} if summary is not None else {}
    said = []
    for name, what in (("calibrated", "the router"), ("ladder", "the ladder of second looks")):
        if name in rows and rows[name]["against"] is not None:
            row, against = rows[name], Estimate(**rows[name]["against"])
            calls = f" at {row['calls']:.2f} reader calls" if row["calls"] > 1.005 else ""
            verdict = "better" if against.low > 0 else "worse" if against.high < 0 else "no difference that is sure"
            said.append(
                f"{what}, on questions it had not seen: {share(row['macro'])}{calls}, {_gain(against)} against the best"
                f" fixed action: {verdict}"
            )
    return said


# -- on disk -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """Advice, the router that goes with it, and where they are."""

    advice: Advice
    study: bench.StudyResult
    files: Mapping[str, Path]

    @property
    def lines(self) -> list[str]:
        """All of it in plain sentences."""
        left = self.study.incomplete
        gone = [f"{len(left)} questions are left out, an outcome of theirs is missing"] if left else []
        return [*describe(self.advice), *describe_policies(self.study.crossfit), *gone]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        files = {what: str(path) for what, path in self.files.items()}
        return self.advice.to_dict() | {"lines": self.lines, "files": files, "crossfit": self.study.crossfit}


def write_advice(table: Outcomes, out: Path, *, judge: str, draws: int = 10_000, seed: int = 0) -> AdviceResult:
    """The advice that the outcomes of one dataset and setting support; the router and a figure go to the folder."""
    found = bench.run_study(table, judge=judge, name="advised", draws=draws, seed=seed)
    rows, _ = bench.split_complete(table, judge=judge)
    panel = outcomes.panel(rows, actions=bench.choose_actions(rows.actions), judge=judge) if len(rows) else None
    if panel is None or len(panel.questions) < bench.FEWEST:
        raise InputError(f"advice needs {bench.FEWEST} questions with complete outcomes, there are {found.questions}")
    files = {"outcomes": out / bench.OUTCOMES, **bench.write_results([found], out)}
    files |= _draw_crossover(table, out, judge, draws, seed)
    return AdviceResult(advise(panel, draws=draws, seed=seed), found, files)


def _draw_crossover(table: Outcomes, out: Path, judge: str, draws: int, seed: int) -> dict[str, Path]:
    """The crossover as a picture; nothing where matplotlib is not installed."""
    readings = Readings(table, judge=judge, draws=draws, seed=seed)
    try:
        figure = crossover_figure(readings.studies[0])
    except MissingExtraError:
        return {}
    path = out / "crossover.svg"
    path.write_text(figure.svg, encoding="utf-8")
    return {"figure": path}
