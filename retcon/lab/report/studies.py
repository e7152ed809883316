"""Outcomes -> studies: one dataset and setting by one model, as arrays, with the draws of every interval.

What tables, figures and findings are read off. For each study the resamples are drawn once and policies are
cross-fitted once, so that a number is the same wherever it stands. Questions to which "not in memory" is the right
answer (column `abstention` is "yes") are studies of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError, RetconError
from retcon.lab import crossfit, stats
from retcon.lab import fit_ladder as ladder
from retcon.lab.crossfit import LADDERS, LEARNERS, REFERENCE, CrossFit, Policy, Rules
from retcon.lab.outcomes import JUDGE, Outcomes, Panel, panel, run_mean
from retcon.lab.report import published
from retcon.lab.report.actions import OPERATORS, REFERENCES, cut, roles
from retcon.lab.report.published import CONTROLLED, FULL_HISTORY, LOCOMO, LONGMEMEVAL
from retcon.lab.stats import Crossover, Estimate, Gain, Resamples
from retcon.note import RETAIN

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

DATASETS = {LONGMEMEVAL: "LongMemEval", "longmemeval-pool": "LongMemEval, pooled", LOCOMO: "LoCoMo"}
SETTINGS = (CONTROLLED, FULL_HISTORY, "product")
SEED = 20260716  # of every interval and fold
ORDERS = 600  # ladders compared at most: more actions, shorter ladders
NOTHING = "there are no outcomes of questions that memory answers"
LONGEST_KEY = 60  # characters of a file name
LONGEST_NAME = 32  # characters of a dataset and setting in a legend


@dataclass(frozen=True, slots=True)
class ActionCurve:
    """One action at every budget at which it was measured."""

    action: str
    name: str  # for people
    family: str
    budgets: tuple[int, ...]
    accuracy: tuple[Estimate, ...]
    gain: tuple[Estimate, ...]  # over retention; empty for retention itself
    crossover: Crossover | None  # None where a gain is missing, or there is one budget


# -- one dataset and setting -------------------------------------------------------------------------------------------


class Study:
    """The outcomes of one dataset and setting by one model, as arrays over q questions, b budgets, a actions, r runs.

    Questions stand in the order of their ids, so that a draw is of the same questions in every table. What was not
    measured is NaN.
    """

    def __init__(
        self, table: Outcomes, where: Mapping[str, Any], *, model: str, judge: str, draws: int, seed: int,
        repeats: int = 1,
    ) -> None:  # fmt: skip
        column = table.columns
        self.table, self.where, self.model, self.judge = table, where, model, judge
        self.draws, self.seed, self.repeats = draws, seed, repeats
        self.mark = ""  # what tells its key from that of a study with a like name
        self._fits: dict[str, CrossFit] = {}
        self.dataset, self.setting = str(column["dataset"][0]), str(column["setting"][0])
        self.actions, self.roles = table.actions, roles(table)
        self.questions = sorted(set(column["question_id"].tolist()))
        self.every = sorted(set(column["budget"].tolist()))
        runs = sorted(set(column["realization"].tolist()))
        axes = (self.questions, self.every, self.actions, runs)
        names = ("question_id", "budget", "action", "realization")
        self.at = tuple(_places(column[name], axis) for name, axis in zip(names, axes, strict=True))
        self.shape = tuple(map(len, axes))
        self.verdicts: Array = column[JUDGE + judge]

    # in words

    @property
    def name(self) -> str:
        """For people: LongMemEval, controlled."""
        named = (DATASETS.get(self.dataset, self.dataset), self.setting.replace("-", " "))
        return ", ".join(part for part in named if part) or "all outcomes"

    @property
    def brief(self) -> str:
        """The name for a figure, cut where it would not fit."""
        return cut(self.name, LONGEST_NAME) + self.mark

    @property
    def key(self) -> str:
        """For file names."""
        raw = "-".join(filter(None, (self.dataset, self.setting))) or "all"
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in raw.lower())
        return plain[:LONGEST_KEY] + self.mark

    @property
    def sample(self) -> str:
        """What was measured, as a sentence of a caption."""
        talks = f" of {len(set(self.conversations))} conversations" if self.clustered else ""
        runs = f"{self.shape[3]} realizations" if self.shape[3] > 1 else "one realization"
        return f"{self.name}: {self.shape[0]} questions{talks}, {runs}, judge {self.judge}."

    def marks(self, label: str) -> list[str]:
        """What differs from the paper's table of that label."""
        paper, found = published.TABLES[label], []
        if self.model != published.MODEL:
            found.append(f"another model ({self.model})" if self.model else "the rows do not name their model")
        if self.dataset != paper.dataset:
            found.append(f"different data ({DATASETS.get(self.dataset, self.dataset) or 'unnamed'})")
        if self.setting != paper.setting:
            found.append(f"another setting ({self.setting or 'unnamed'}; the paper: {paper.setting})")
        if self.shape[0] != paper.questions:
            found.append(f"{self.shape[0]} questions (the paper: {paper.questions})")
        if self.shape[3] == 1 < paper.realizations:
            found.append("one realization")
        if self.judge != "llm":
            found.append(f"another judge ({self.judge})")
        if self.roles.focused:
            found.append("operators saw the question")
        if absent := [name for name in OPERATORS if self.roles.operators and name not in self.roles.operators]:
            found.append(f"{' and '.join(absent)} not measured")
        return found

    def cite(self, actions: Sequence[str], budgets: int | Sequence[int] | None = None, **more: Any) -> dict[str, Any]:
        """The filter that finds the rows of a value again."""
        at = {} if budgets is None else {"budget": budgets if isinstance(budgets, int) else list(budgets)}
        return {**self.where, **at, "action": list(actions), **more}

    # what is drawn

    @cached_property
    def conversations(self) -> list[str]:
        """[q]"""
        return self.per_question("conversation")

    @property
    def clustered(self) -> bool:
        """Whether questions share conversations, and there are enough of these to draw from.

        One conversation drawn again and again is always the same: no interval, no folds. With so few, questions are
        taken as independent, which they are not quite.
        """
        return crossfit.FOLDS <= len(set(self.conversations)) < len(self.questions)

    @cached_property
    def resamples(self) -> Resamples:
        """The draws of every interval: of conversations where questions share them, else of questions."""
        clusters = self.conversations if self.clustered else None
        return stats.resample(len(self.questions), seed=self.seed, draws=self.draws, clusters=clusters)

    @cached_property
    def by_question(self) -> Resamples:
        """Draws of questions, whatever they share."""
        if not self.clustered:
            return self.resamples
        return stats.resample(len(self.questions), seed=self.seed, draws=self.draws)

    def estimate(self, values: Array) -> Estimate:
        """The mean of [q] with its interval."""
        return stats.interval(values, self.resamples)

    def estimates(self, values: Array) -> list[Estimate]:
        """The mean of each column of [q, column] with its interval."""
        return stats.intervals(values, self.resamples)

    def by_cell(self, values: Array) -> dict[tuple[str, int], Estimate]:
        """Of [q, b, a] the mean of each action at each of `budgets` at which it was measured."""
        cells = [(action, budget) for budget in self.budgets for action in self.actions]
        found = self.estimates(values[:, self._columns(self.budgets)].reshape(len(values), -1))
        return {cell: each for cell, each in zip(cells, found, strict=True) if each.n}

    def over_budgets(self, of: Panel, values: Array) -> Estimate:
        """The mean of a panel's [q, b], each question averaged over budgets first."""
        return self.estimate(run_mean(self.spread(of, values)))

    # what was measured

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """Those above zero at which retention was measured; all of them where there are none."""
        if RETAIN not in self.actions:
            return tuple(self.every)
        known = present(self.utility[:, :, self.actions.index(RETAIN)])
        found = (budget for budget, column in zip(self.every, known.T, strict=True) if budget and column.any())
        return tuple(found) or tuple(self.every)

    @property
    def shown_budgets(self) -> tuple[int, ...]:
        """The budgets of figures and findings."""
        return tuple(budget for budget in self.budgets if budget > 0)

    @cached_property
    def runs(self) -> Array:
        """[q, b, a, r] utility."""
        return _cell_means(self.verdicts, self.at, self.shape)

    @cached_property
    def utility(self) -> Array:
        """[q, b, a], the mean over realizations; retention's over all its runs."""
        return _cell_means(self.verdicts, self.at[:3], self.shape[:3])

    @cached_property
    def retained(self) -> Array:
        """[q, b, a, r]: the retention that belongs to each run: its own pair, else the plain ones, else any."""
        self._needs([RETAIN])
        pair, mine = self.table.columns["pair"], self.table.columns["action"] == RETAIN
        (q, b, _, r), shape = self.at, (*self.shape[:2], self.shape[3])

        def over(rows: Mask) -> Array:
            return _cell_means(np.where(rows, self.verdicts, np.nan), (q, b, r), shape)

        plain = over(mine & (pair == ""))
        out = np.repeat(np.where(np.isnan(plain), over(mine), plain)[:, :, None], self.shape[2], axis=2)
        for place, name in enumerate(self.actions):
            if (own := mine & (pair == name)).any():
                paired = over(own)
                out[:, :, place] = np.where(np.isnan(paired), out[:, :, place], paired)
        return out

    @cached_property
    def fit(self) -> Array:
        """[q, b of budgets], the share of candidate notes that retention packs."""
        found = self.mean("fit")
        if found is None or RETAIN not in self.actions:
            raise InputError("the rows do not say which share of the notes retention packs (column fit)")
        return self.values(RETAIN, found)

    @property
    def fit_shares(self) -> Array:
        """[b of budgets], the share of questions whose candidate notes all fit."""
        return run_mean(np.where(np.isnan(self.fit), np.nan, self.fit >= 1).T)

    @cached_property
    def full_fit(self) -> dict[int, float] | None:
        """The same by budget; None where the rows do not say it of every budget."""
        try:
            found = dict(zip(self.budgets, self.fit_shares.tolist(), strict=True))
        except InputError:
            return None
        return None if any(math.isnan(found[budget]) for budget in self.shown_budgets) else found

    def mean(self, name: str) -> Array | None:
        """[q, b, a] of a column, None where the rows lack it."""
        found = self.table.columns.get(name)
        if found is None or np.isnan(found).all():
            return None
        return _cell_means(found, self.at[:3], self.shape[:3])

    def values(self, action: str, of: Array | None = None) -> Array:
        """[q, b of budgets]: utility of an action, or what else was measured of it."""
        return (self.utility if of is None else of)[:, self._columns(self.budgets), self.actions.index(action)]

    def gain(self, action: str) -> Array:
        """[q, b of budgets]: gain over the paired retention."""
        place = self.actions.index(action)
        return run_mean(self.runs[:, :, place] - self.retained[:, :, place])[:, self._columns(self.budgets)]

    def gains(
        self, actions: Sequence[str], *, strata: Mapping[str, Mask] | None = None,
        budgets: Sequence[int] | None = None, resamples: Resamples | None = None,
    ) -> list[Gain]:  # fmt: skip
        """A row for each stratum, action and budget that was measured."""
        budgets = self.budgets if budgets is None else budgets
        at = np.ix_(range(self.shape[0]), self._columns(budgets), [self.actions.index(name) for name in actions])
        found = stats.operator_gains(
            self.runs[at], self.retained[at], budgets=budgets, actions=actions,
            resamples=resamples or self.resamples, strata=strata,
        )  # fmt: skip
        return [each for each in found if each.gain.n]

    def operators(self) -> dict[str, str]:
        """The paper's operators -> their actions here."""
        if not self.roles.operators:
            raise InputError(f"{self.name}: there are no outcomes of {', '.join(OPERATORS)}")
        return dict(self.roles.operators)

    def per_question(self, name: str) -> list[str]:
        """[q] of a column that belongs to the question."""
        out = [""] * self.shape[0]
        for q, value in zip(self.at[0].tolist(), self.table.columns[name].tolist(), strict=True):
            out[q] = value
        return out

    # action against budget

    @cached_property
    def curves(self) -> tuple[ActionCurve, ...]:
        """A curve for each action that has a budget, retention first."""
        order = [name for name in self.roles.order if name not in REFERENCES]
        return tuple(curve for name in order if (curve := self._curve(name)).budgets)

    def _curve(self, action: str) -> ActionCurve:
        values = self.values(action)
        at = [b for b, budget in enumerate(self.budgets) if budget > 0 and present(values[:, b]).any()]
        budgets = tuple(self.budgets[b] for b in at)
        accuracy = tuple(self.estimates(values[:, at])) if at else ()
        shown = (action, self.roles.short(action), self.roles.family(action), budgets, accuracy)
        if action == RETAIN or not at:
            return ActionCurve(*shown, (), None)
        gains = self.gain(action)[:, at]
        whole = len(at) > 1 and present(gains).any(axis=0).all()
        turn = stats.crossover(gains, budgets, self.resamples) if whole else None
        return ActionCurve(*shown, tuple(self.estimates(gains)), turn)

    @property
    def operator_curves(self) -> list[ActionCurve]:
        """The curves of the paper's operators."""
        return [curve for curve in self.curves if curve.action in self.roles.operators.values()]

    @cached_property
    def levels(self) -> dict[str, Estimate]:
        """The accuracy of what has no budget: everything read, or nothing."""
        there = [name for name in REFERENCES if name in self.actions]
        found = {name: self.estimate(run_mean(self.utility[:, :, self.actions.index(name)])) for name in there}
        return {name: each for name, each in found.items() if each.n}

    # for learning

    def panel(self, actions: Sequence[str]) -> Panel:
        """The questions that have every one of these actions at every budget."""
        self._needs([RETAIN, *actions])
        places = [self.actions.index(name) for name in actions]
        there = present(self.utility[:, :, places])
        at: Mask = np.all(there.any(axis=0, keepdims=True), axis=(0, 2)) & np.isin(self.every, self.budgets)
        whole: Mask = np.all(there[:, at], axis=(1, 2))
        if not at.any() or not whole.any():
            raise InputError(f"{self.name}: no question has outcomes of all of {', '.join(actions)}")
        q, b, a, _ = self.at
        keep = whole[q] & at[b] & np.isin(a, places) & present(self.verdicts)
        rows = Outcomes({name: column[keep] for name, column in self.table.columns.items()})
        return panel(rows, actions=actions, judge=self.judge)

    def spread(self, of: Panel, values: Array) -> Array:
        """[q, b of panel]: a panel's values at this study's questions, NaN for those it left out."""
        place = {name: i for i, name in enumerate(self.questions)}
        out = np.full((self.shape[0], values.shape[1]), np.nan)
        out[[place[name] for name in of.questions]] = values
        return out

    def paper_policies(self) -> CrossFit:
        """The paper's policies over its actions, but for the slow one."""
        policies = {"retention": crossfit.always(0), **LEARNERS}
        del policies["MLP"]
        return self._fit("paper", [RETAIN, *self.operators().values()], policies)

    def mlp_policy(self) -> CrossFit:
        """The MLP on the folds of the paper's policies."""
        return self._fit("MLP", [RETAIN, *self.operators().values()], {"MLP": LEARNERS["MLP"]})

    def product_policies(self) -> CrossFit:
        """Policies of one call, and ladders, over what a product would choose between."""
        names = (REFERENCE, "direct", "calibrated", "certified")
        policies = {"retention": crossfit.always(0), **{name: LEARNERS[name] for name in names}, **LADDERS}
        return self._fit("product", self.roles.choices, policies)

    def _fit(self, kind: str, actions: Sequence[str], policies: Mapping[str, Policy]) -> CrossFit:
        if kind not in self._fits:
            of = self.panel(actions)
            able = [name for name in policies if of.abstained is not None or name not in LADDERS]
            able = [name for name in able if "fit" in of.features or name != "evidence-fit rule"]
            chosen = {name: policies[name] for name in able}
            rules = self.rules(len(of.actions))
            self._fits[kind] = crossfit.crossfit(of, policies=chosen, rules=rules, repeats=self.repeats)
        return self._fits[kind]

    def rules(self, actions: int, cap: float = 0.0) -> Rules:
        """What policies share: folds by conversation where questions share them."""
        group = "conversation" if self.clustered else "question"
        return Rules(group=group, seed=self.seed, looks=looks_for(actions), cap=cap)

    def _needs(self, actions: Sequence[str]) -> None:
        if absent := [name for name in actions if name not in self.actions]:
            raise InputError(f"{self.name}: there are no outcomes of {', '.join(absent)}")

    def _columns(self, budgets: Sequence[int]) -> list[int]:
        return [self.every.index(budget) for budget in budgets]


def _places(column: NDArray[Any], axis: Sequence[Any]) -> NDArray[np.intp]:
    place = {value: i for i, value in enumerate(axis)}
    return np.array([place[value] for value in column.tolist()], np.intp)


def attempt(fit: Callable[[], CrossFit]) -> CrossFit | None:
    """The policies; None where the rows do not allow them."""
    try:
        return fit()
    except RetconError:
        return None


def present(values: Array) -> Mask:
    """Where something was measured."""
    return np.asarray(~np.isnan(values), np.bool_)


def _cell_means(values: Array, at: tuple[NDArray[np.intp], ...], shape: tuple[int, ...]) -> Array:
    """The mean of the rows of each cell, NaN where there are none."""
    there, flat, size = present(values), np.ravel_multi_index(at, shape), math.prod(shape)
    sums = np.bincount(flat[there], values[there], minlength=size)
    counts = np.bincount(flat[there], minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(shape)


# -- all of them -------------------------------------------------------------------------------------------------------


class Readings:
    """The studies in some outcomes.

    `model` is the name of the model where the rows have none.
    """

    def __init__(
        self, outcomes: Outcomes, *, judge: str | None = None, draws: int = 10_000, seed: int = SEED,
        repeats: int = 1, model: str = "",
    ) -> None:  # fmt: skip
        if judge is not None and judge not in outcomes.judges:
            raise InputError(f"no judge {judge!r}; there are {', '.join(outcomes.judges)}")
        self.judge, self.draws, self.seed, self.repeats, self.model = judge, draws, seed, repeats, model
        silent = _column(outcomes, "abstention") == "yes"
        self.models = self._studies(outcomes, ~silent)
        self.studies, self.silent = (
            [max(some, key=lambda study: len(study.table)) for some in each]
            for each in (self.models, self._studies(outcomes, silent))
        )

    def _studies(self, outcomes: Outcomes, mask: Mask) -> list[list[Study]]:
        """The studies of each dataset and setting, one a model."""
        key = [_column(outcomes, name).tolist() for name in ("dataset", "setting", "model", "reader")]
        groups: dict[tuple[str, ...], list[int]] = {}
        for row in np.flatnonzero(mask).tolist():
            groups.setdefault(tuple(part[row] for part in key), []).append(row)
        made: dict[tuple[str, ...], list[Study]] = {}
        for names in sorted(groups, key=_rank):
            several = sum(other[:2] == names[:2] for other in groups) > 1
            rows = Outcomes({name: column[groups[names]] for name, column in outcomes.columns.items()})
            if (found := self._study(rows, names, several)) is not None:
                made.setdefault(names[:2], []).append(found)
        return list(made.values())

    def _study(self, rows: Outcomes, names: tuple[str, ...], several: bool) -> Study | None:
        """None where the judge has no verdict on any of them."""
        where: dict[str, Any] = {"dataset": names[0], "setting": names[1]}
        if several:
            told = zip(("model", "reader"), names[2:], strict=True)
            where |= {name: value for name, value in told if name in rows.columns}
        if "abstention" in rows.columns:
            where["abstention"] = sorted(set(rows.columns["abstention"].tolist()))
        judges = [name for name in rows.judges if not np.isnan(rows.columns[JUDGE + name]).all()]
        judge = self.judge or ("llm" if "llm" in judges else next(iter(judges), ""))
        if judge not in judges:
            return None
        model = _model(*names[2:]) or self.model
        settings = {"draws": self.draws, "seed": self.seed, "repeats": self.repeats}
        return Study(rows, where, model=model, judge=judge, **settings)

    @cached_property
    def shown(self) -> list[Study]:
        """The studies of figures and findings: raw notes, which all is compared with, were measured under a budget."""
        found: list[Study] = []
        for study in self.studies:
            if RETAIN in study.actions and study.shown_budgets:
                same = sum(study.key == other.key.removesuffix(other.mark) for other in found)
                study.mark = f"-{same + 1}" if same else ""
                found.append(study)
        return found

    def nearest(self, label: str, why: str = NOTHING, only: Callable[[Study], bool] = lambda study: True) -> Study:
        """The study that comes nearest to that of the paper's table: its setting first, then its dataset."""
        paper = published.TABLES[label]

        def far(study: Study) -> tuple[bool, ...]:
            name = study.dataset
            return study.setting != paper.setting, name != paper.dataset, not name.startswith(paper.dataset)

        found = sorted(filter(only, self.studies), key=far)
        if not found:
            raise InputError(why)
        return found[0]

    def every(self, needed: str | None = None, why: str = "") -> list[Study]:
        """All studies, or those whose rows have a column."""
        if not self.studies:
            raise InputError(NOTHING)
        found = [study for study in self.studies if needed is None or study.mean(needed) is not None]
        if not found:
            raise InputError(why)
        return found


def _column(outcomes: Outcomes, name: str) -> NDArray[Any]:
    return outcomes.columns.get(name, np.full(len(outcomes), "", object))


def _rank(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Where a dataset and setting stand in a report: the known ones first."""
    known = [[*DATASETS], [*SETTINGS]]
    at = [some.index(name) if name in some else len(some) for name, some in zip(names, known, strict=False)]
    return (at[0], names[0], at[1], *names[1:])


def _model(writer: str, reader: str) -> str:
    return f"{writer} writes, {reader} reads" if writer and reader and writer != reader else reader or writer


def looks_for(actions: int) -> int:
    """Looks of a ladder over so many actions."""
    fits = [
        looks for looks in range(1, ladder.LOOKS + 1) if sum(math.perm(actions, k + 1) for k in range(looks)) <= ORDERS
    ]
    return max(fits, default=1)
