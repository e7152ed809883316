"""A study -> what the figures and findings of a report speak of: accuracy and gain against budget, with intervals.

Everything is read off the arrays and draws of the tables, so that a number in a picture is the number in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.lab.crossfit import CrossFit
from retcon.lab.outcomes import run_mean
from retcon.lab.report.studies import AGNOSTIC, FOCUSED, OPERATORS, REFERENCES, Study
from retcon.lab.stats import Crossover, Estimate, crossover, interval, intervals
from retcon.note import RETAIN

Array = NDArray[np.float64]

WRITTEN, OTHER = "written", "other"
FAMILIES = {
    AGNOSTIC: "Written without the question",
    FOCUSED: "Written for the question",
    WRITTEN: "Written by a model",
    OTHER: "Other ways to fill the budget",
}
LONGEST_KEY = 60  # characters of a file name
LONGEST_NAME = 32  # characters of a dataset and setting in a legend
LONGEST = 20  # characters of a name in the margin of a figure
SHORT = {"retrel": "By relevance"}  # where a name would be too long for the margin of a figure


@dataclass(frozen=True, slots=True)
class Curve:
    """One action at every budget at which it was measured."""

    action: str
    name: str  # for people
    family: str
    budgets: tuple[int, ...]
    accuracy: tuple[Estimate, ...]
    gain: tuple[Estimate, ...]  # over retention; empty for retention itself
    crossover: Crossover | None  # None where a gain is missing, or there is one budget


@dataclass(frozen=True, eq=False)
class Group:
    """One dataset and setting, with the policies that were cross-fitted on it."""

    study: Study
    paper: CrossFit | None = None  # choosing between the paper's actions
    every: CrossFit | None = None  # choosing between all that a product would offer
    mark: str = ""  # what tells its key from that of a group with a like name

    @property
    def name(self) -> str:
        """For people: LongMemEval, controlled."""
        return self.study.about

    @property
    def brief(self) -> str:
        """The name for a figure, cut where it would not fit."""
        return _cut(self.name, LONGEST_NAME) + self.mark

    @property
    def key(self) -> str:
        """For file names."""
        raw = "-".join(filter(None, (self.study.dataset, self.study.setting))) or "all"
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in raw.lower())
        return plain[:LONGEST_KEY] + self.mark

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budgets above zero at which retention was measured."""
        return tuple(budget for budget in self.study.budgets if budget > 0)

    @property
    def controlled(self) -> bool:
        """Whether the candidates are the evidence itself."""
        return self.study.setting == "controlled"

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """A curve for each action that has a budget, retention first."""
        order = [name for name in self.study.arms.order if name not in REFERENCES]
        return tuple(curve for name in order if (curve := self._curve(name)).budgets)

    def _curve(self, action: str) -> Curve:
        study = self.study
        values = study.values(action)
        at = [b for b, budget in enumerate(study.budgets) if budget > 0 and not np.isnan(values[:, b]).all()]
        budgets = tuple(study.budgets[b] for b in at)
        accuracy = tuple(intervals(values[:, at], study.resamples)) if at else ()
        shown = (action, self.short(action), self.family(action), budgets, accuracy)
        if action == RETAIN or not at:
            return Curve(*shown, (), None)
        gains = study.gain(action)[:, at]
        whole = len(at) > 1 and not np.isnan(gains).all(axis=0).any()
        turn = crossover(gains, budgets, study.resamples) if whole else None
        return Curve(*shown, tuple(intervals(gains, study.resamples)), turn)

    def curve(self, action: str) -> Curve | None:
        """The curve of one action."""
        return next((curve for curve in self.curves if curve.action == action), None)

    def family(self, action: str) -> str:
        """Who writes the text, and knowing what."""
        name = self.study.arms.names[action]
        said = next((form for form in (AGNOSTIC, FOCUSED) if name.endswith(f", {form}")), None)
        return said or (WRITTEN if action in OPERATORS else OTHER)

    def short(self, action: str) -> str:
        """The name of an action, without the form that the family says."""
        name = SHORT.get(action) or self.study.arms.names.get(action, action).split(",")[0]
        return _cut(name, LONGEST)

    def operator(self, action: str) -> str:
        """The paper's operator behind a variant; the action itself where there is none."""
        base = self.short(action).lower()
        return base if base in OPERATORS else action

    @property
    def operators(self) -> list[Curve]:
        """The curves of the paper's operators."""
        chosen = self.study.arms.operators.values()
        return [curve for curve in self.curves if curve.action in chosen]

    @cached_property
    def levels(self) -> dict[str, Estimate]:
        """The accuracy of what has no budget: everything read, or nothing."""
        study = self.study
        there = [name for name in REFERENCES if name in study.actions]
        means = {name: run_mean(study.utility[:, :, study.actions.index(name)]) for name in there}
        return {name: interval(mean, study.resamples) for name, mean in means.items() if not np.isnan(mean).all()}

    @cached_property
    def full_fit(self) -> dict[int, float] | None:
        """Budget -> share of questions whose candidate notes all fit; None where the rows do not say."""
        try:
            fit = self.study.fit
        except InputError:
            return None
        known = np.where(np.isnan(fit), np.nan, fit >= 1)
        shares = run_mean(known.T).tolist()
        found = {budget: share for budget, share in zip(self.study.budgets, shares, strict=True) if share == share}
        return found if set(self.budgets) <= set(found) else None


def _cut(text: str, longest: int) -> str:
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def over_budgets(group: Group, fit: CrossFit, values: Array) -> Estimate:
    """The mean over questions of values [q, b] of a cross-fit, averaged over budgets."""
    return interval(run_mean(group.study.spread(fit.panel, values)), group.study.resamples)


def per_budget(group: Group, fit: CrossFit, values: Array) -> list[Estimate]:
    """The mean over questions of values [q, b] of a cross-fit, at each of its budgets."""
    return intervals(group.study.spread(fit.panel, values), group.study.resamples)


def cited(group: Group, fit: CrossFit, budgets: int | Sequence[int] | None = None) -> dict[str, Any]:
    """The filter for the rows that a policy is read off."""
    return group.study.cite(fit.panel.actions, fit.panel.budgets if budgets is None else budgets)
