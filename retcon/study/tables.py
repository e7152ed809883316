"""Outcomes -> the tables of a report: the paper's twelve, and nine that it lacks.

A table is a value: its cells carry the number, its interval and the rows that it comes from, so that Markdown, a page
and figures can all be drawn from it. Whatever rows there are, every table is returned; one that they cannot fill says
why. For each dataset and setting the resamples are drawn once, and every column of every table is read off them.

Questions to which "not in memory" is the right answer (column `abstention` is "yes") stand in a table of their own and
in no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon import crossfit, ladder, stats
from retcon.crossfit import LADDERS, LEARNERS, ORACLES, REFERENCE, TWICE, VOTE, CrossFit, Policy, Result, Rules
from retcon.errors import InputError, RetconError
from retcon.features import FEATURES, TYPES
from retcon.note import EXTRACT, RETAIN
from retcon.outcomes import JUDGE, Outcomes, Panel, panel, run_mean, type_index
from retcon.stats import Estimate, Gain, Resamples
from retcon.study import published
from retcon.study.published import (
    CONTROLLED,
    DASH,
    FULL_HISTORY,
    LOCOMO,
    LONGMEMEVAL,
    bracket,
    chance,
    change,
    number,
    stratum,
    tally,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Progress = Callable[[int, int], None]  # tables done, of so many

OPERATORS = ("abstract", "merge", "rewrite")  # in the order of the paper's tables
PAIRS = (("merge", "abstract"), ("abstract", "rewrite"), ("merge", "rewrite"))
REFERENCES = ("none", "full")  # no memory at all, and no budget
PACKINGS = ("retrel", "trunc")  # retention in another order, or with its last note cut
AGNOSTIC, FOCUSED, UNSAID = "agnostic", "focused", ""
DATASETS = {LONGMEMEVAL: "LongMemEval", "longmemeval-pool": "LongMemEval, pooled", LOCOMO: "LoCoMo"}
SETTINGS = (CONTROLLED, FULL_HISTORY, "product")
NAMES = {
    RETAIN: "Retention", "retrel": "Retention by relevance", "trunc": "Truncation", "none": "No memory",
    "full": "No budget",
}  # fmt: skip
POLICIES = {
    "retention": "Retention", "training-selected operator": "Training-selected fixed operator",
    REFERENCE: "Best fixed action", "evidence-fit rule": "Evidence-fit rule", "k-NN": "k-NN utility router",
    "direct": "Direct utility", "calibrated": "Calibrated-safe", "certified": "Certified-safe",
    "ladder": "Ladder", "ladder, one order a budget": "Ladder, one order a budget",
    "best fixed, asked again": "Best fixed action, asked again", TWICE: "Best fixed action, twice the budget",
    VOTE: "Vote of two", "binary oracle": "Binary oracle (hindsight)", "action oracle": "Action oracle (hindsight)",
}  # fmt: skip
KINDS = dict(zip(TYPES, ("Single-session", "Multi-session", "Temporal", "Knowledge-update"), strict=True))
REGIMES = ((5.0, "Severely tight"), (33.0, "Tight"), (75.0, "Transition"), (math.inf, "Loose"))  # full fit below, in %
SPENDING = {  # column -> head, decimals
    "context_tokens": ("Context tokens", 1), "prompted_tokens": ("Tokens read to write it", 1),
    "generated_tokens": ("Tokens written", 1), "model_calls": ("Model calls", 2),
    "reader_tokens": ("Reader tokens", 1), "seconds": ("Seconds", 2),
}  # fmt: skip
STRATUM = 10  # questions that both fit strata need
WITHIN = (3, 1)  # points below the best accuracy
ORDERS = 600  # ladders compared at most: more actions, shorter ladders
FOLDS = ("fit", "calibration", "gate")
GATE_CAP = 0.05  # harm that the independent evaluation's calibration may observe; the paper does not state its own


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a table: as shown, its interval, and the outcomes that it comes from as a filter on columns."""

    text: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    rows: Mapping[str, Any] | None = None


Cell = Value | str
Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table in plain words, with the paper's own rows and marks of what differs from the paper."""

    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    published: tuple[tuple[str, ...], ...] = ()
    marks: tuple[str, ...] = ()
    missing: str | None = None  # why these outcomes cannot fill it


def tables(
    outcomes: Outcomes, *, judge: str | None = None, draws: int = 10_000, seed: int = 20260716, repeats: int = 1,
    progress: Progress | None = None,
) -> list[Table]:  # fmt: skip
    """Every table, in the order of the paper and then ours; the same outcomes give the same tables.

    `judge` decides what is right (the model judge where there is one), `repeats` is the ways to deal the folds of
    everything cross-fitted. Of several models on the same questions, the one with most rows stands in all tables but
    the cross-model one. Give it `outcomes.where(dataset=...)` to have every table of another dataset.
    """
    readings = Readings(outcomes, judge=judge, draws=draws, seed=seed, repeats=repeats)
    made = []
    for done, spec in enumerate(SPECS, 1):
        made.append(spec.table(readings))
        if progress is not None:
            progress(done, len(SPECS))
    return made


# -- which action is what ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arms:
    """The actions of some outcomes in their roles."""

    operators: Mapping[str, str]  # abstract, merge, rewrite -> the action that is the paper's operator
    choices: tuple[str, ...]  # what a product would choose between: of an operator's two forms the focused one
    order: tuple[str, ...]  # all actions as a table lists them
    names: Mapping[str, str]  # what people call them
    focused: bool  # whether the operators saw the question, as the paper's did not


def arms(outcomes: Outcomes) -> Arms:
    """Which actions are the paper's operators, written without the question, and what to call every action."""
    forms = _forms(outcomes)
    by: dict[str, dict[str, str]] = {AGNOSTIC: {}, UNSAID: {}, FOCUSED: {}}
    for name, (base, form) in forms.items():
        by[form][base] = name
    chosen = next((some for some in by.values() if some), {})
    written = [name for some in by.values() for name in some.values()]
    first = [RETAIN, EXTRACT, *written]
    rest = [name for name in outcomes.actions if name not in (*first, *REFERENCES)]
    out = {*REFERENCES, *PACKINGS, *(name for base, name in by[AGNOSTIC].items() if base in by[FOCUSED])}
    return Arms(
        operators={name: chosen[name] for name in OPERATORS if name in chosen},
        choices=tuple(name for name in outcomes.actions if name not in out),
        order=tuple(name for name in (*first, *rest, *REFERENCES) if name in outcomes.actions),
        names={name: _name(name, *forms.get(name, (name, UNSAID))) for name in outcomes.actions},
        focused=chosen is by[FOCUSED] and bool(chosen),
    )


def _forms(outcomes: Outcomes) -> dict[str, tuple[str, str]]:
    """Action -> operator and form, in the order of the paper.

    `merge-agnostic` and `qmerge` say what they are; merge beside the first is focused, beside the second agnostic.
    """
    have, columns = set(outcomes.actions), outcomes.columns
    said = dict(zip(columns["action"].tolist(), columns["focus"].tolist(), strict=True)) if "focus" in columns else {}
    short, long = any(f"q{name}" in have for name in OPERATORS), any(f"{name}-{AGNOSTIC}" in have for name in OPERATORS)
    found = {}
    for base in OPERATORS:
        plain = AGNOSTIC if short else FOCUSED if long else said.get(base, UNSAID)
        forms = {base: plain if plain in (AGNOSTIC, FOCUSED) else UNSAID}
        forms |= {f"{base}-{AGNOSTIC}": AGNOSTIC, f"q{base}": FOCUSED}
        found.update({name: (base, form) for name, form in forms.items() if name in have})
    return found


def _name(action: str, base: str, form: str) -> str:
    return NAMES.get(action) or base.capitalize() + (f", {form}" if form else "")


# -- one dataset and setting -------------------------------------------------------------------------------------------


class Study:
    """The outcomes of one dataset and setting by one model, as arrays over q questions, b budgets, a actions, r runs.

    Questions stand in the order of their ids, so that a draw is of the same questions in every table. What was not
    measured is NaN.
    """

    def __init__(
        self, table: Outcomes, where: Mapping[str, Any], *, model: str, judge: str, draws: int, seed: int
    ) -> None:
        column = table.columns
        self.table, self.where, self.model, self.judge = table, where, model, judge
        self.draws, self.seed = draws, seed
        self.dataset, self.setting = str(column["dataset"][0]), str(column["setting"][0])
        self.actions, self.arms = table.actions, arms(table)
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
    def about(self) -> str:
        """LongMemEval, controlled."""
        named = (DATASETS.get(self.dataset, self.dataset), self.setting.replace("-", " "))
        return ", ".join(part for part in named if part) or "all outcomes"

    @property
    def sample(self) -> str:
        """What was measured, as a sentence of a caption."""
        talks = f" of {len(set(self.conversations))} conversations" if self.clustered else ""
        runs = f"{self.shape[3]} realizations" if self.shape[3] > 1 else "one realization"
        return f"{self.about}: {self.shape[0]} questions{talks}, {runs}, judge {self.judge}."

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
        if self.arms.focused:
            found.append("operators saw the question")
        if absent := [name for name in OPERATORS if self.arms.operators and name not in self.arms.operators]:
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
        """Whether questions share conversations, so that these are what is drawn."""
        return len(set(self.conversations)) < len(self.questions)

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

    # what was measured

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """Those above zero at which retention was measured; all of them where there are none."""
        if RETAIN not in self.actions:
            return tuple(self.every)
        known = _there(self.utility[:, :, self.actions.index(RETAIN)])
        found = (budget for budget, column in zip(self.every, known.T, strict=True) if budget and column.any())
        return tuple(found) or tuple(self.every)

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
        found = stats.by_stratum(
            self.runs[at], self.retained[at], {"all": np.ones(self.shape[0], np.bool_)} if strata is None else strata,
            budgets=budgets, actions=actions, resamples=resamples or self.resamples,
        )  # fmt: skip
        return [each for each in found if each.gain.n]

    def operators(self) -> dict[str, str]:
        """The paper's operators -> their actions here."""
        if not self.arms.operators:
            raise InputError(f"{self.about}: there are no outcomes of {', '.join(OPERATORS)}")
        return dict(self.arms.operators)

    def per_question(self, name: str) -> list[str]:
        """[q] of a column that belongs to the question."""
        out = [""] * self.shape[0]
        for q, value in zip(self.at[0].tolist(), self.table.columns[name].tolist(), strict=True):
            out[q] = value
        return out

    # for learning

    def panel(self, actions: Sequence[str]) -> Panel:
        """The questions that have every one of these actions at every budget."""
        self._needs([RETAIN, *actions])
        places = [self.actions.index(name) for name in actions]
        there = _there(self.utility[:, :, places])
        at: Mask = np.all(there.any(axis=0, keepdims=True), axis=(0, 2)) & np.isin(self.every, self.budgets)
        whole: Mask = np.all(there[:, at], axis=(1, 2))
        if not at.any() or not whole.any():
            raise InputError(f"{self.about}: no question has outcomes of all of {', '.join(actions)}")
        q, b, a, _ = self.at
        keep = whole[q] & at[b] & np.isin(a, places) & _there(self.verdicts)
        rows = Outcomes({name: column[keep] for name, column in self.table.columns.items()})
        return panel(rows, actions=actions, judge=self.judge)

    def spread(self, of: Panel, values: Array) -> Array:
        """[q, b of panel]: a panel's values at this study's questions, NaN for those it left out."""
        place = {name: i for i, name in enumerate(self.questions)}
        out = np.full((self.shape[0], values.shape[1]), np.nan)
        out[[place[name] for name in of.questions]] = values
        return out

    def _needs(self, actions: Sequence[str]) -> None:
        if absent := [name for name in actions if name not in self.actions]:
            raise InputError(f"{self.about}: there are no outcomes of {', '.join(absent)}")

    def _columns(self, budgets: Sequence[int]) -> list[int]:
        return [self.every.index(budget) for budget in budgets]


def _places(column: NDArray[Any], axis: Sequence[Any]) -> NDArray[np.intp]:
    place = {value: i for i, value in enumerate(axis)}
    return np.array([place[value] for value in column.tolist()], np.intp)


def _there(values: Array) -> Mask:
    return np.asarray(~np.isnan(values), np.bool_)


def _cell_means(values: Array, at: tuple[NDArray[np.intp], ...], shape: tuple[int, ...]) -> Array:
    """The mean of the rows of each cell, NaN where there are none."""
    there, flat, size = _there(values), np.ravel_multi_index(at, shape), math.prod(shape)
    sums = np.bincount(flat[there], values[there], minlength=size)
    counts = np.bincount(flat[there], minlength=size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(shape)


class Readings:
    """The studies in some outcomes, and the policies fitted to them, each once."""

    def __init__(self, outcomes: Outcomes, *, judge: str | None, draws: int, seed: int, repeats: int) -> None:
        if judge is not None and judge not in outcomes.judges:
            raise InputError(f"no judge {judge!r}; there are {', '.join(outcomes.judges)}")
        self.judge, self.draws, self.seed, self.repeats = judge, draws, seed, repeats
        silent = _column(outcomes, "abstention") == "yes"
        self.models = self._studies(outcomes, ~silent)
        self.studies, self.silent = (
            [max(some, key=lambda study: len(study.table)) for some in each]
            for each in (self.models, self._studies(outcomes, silent))
        )
        self._fitted: dict[tuple[Study, str], CrossFit] = {}

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
        return Study(rows, where, model=_model(*names[2:]), judge=judge, draws=self.draws, seed=self.seed)

    def pick(self, label: str, why: str, only: Callable[[Study], bool]) -> Study:
        """The study nearest to that of the paper's table: its setting first, then its dataset."""
        paper = published.TABLES[label]

        def far(study: Study) -> tuple[bool, ...]:
            name = study.dataset
            return study.setting != paper.setting, name != paper.dataset, not name.startswith(paper.dataset)

        found = sorted(filter(only, self.studies), key=far)
        if not found:
            raise InputError(why)
        return found[0]

    def main(self, label: str) -> Study:
        """The study of the paper's controlled tables, or what comes nearest."""
        return self.pick(label, NOTHING, lambda study: True)

    def every(self, needed: str | None = None, why: str = "") -> list[Study]:
        """All studies, or those whose rows have a column."""
        if not self.studies:
            raise InputError(NOTHING)
        found = [study for study in self.studies if needed is None or study.mean(needed) is not None]
        if not found:
            raise InputError(why)
        return found

    def routed(self, study: Study) -> CrossFit:
        """The paper's policies over its actions, but for the slow one."""
        policies = {"retention": crossfit.always(0), **LEARNERS}
        del policies["MLP"]
        return self._fit(study, "routed", [RETAIN, *study.operators().values()], policies)

    def nonlinear(self, study: Study) -> CrossFit:
        """The MLP on the folds of `routed`."""
        return self._fit(study, "MLP", [RETAIN, *study.operators().values()], {"MLP": LEARNERS["MLP"]})

    def climbed(self, study: Study) -> CrossFit:
        """Policies of one call, and ladders, over what a product would choose between."""
        names = (REFERENCE, "direct", "calibrated", "certified")
        policies = {"retention": crossfit.always(0), **{name: LEARNERS[name] for name in names}, **LADDERS}
        return self._fit(study, "climbed", study.arms.choices, policies)

    def _fit(self, study: Study, kind: str, actions: Sequence[str], policies: Mapping[str, Policy]) -> CrossFit:
        if (study, kind) not in self._fitted:
            of = study.panel(actions)
            able = [name for name in policies if of.abstained is not None or name not in LADDERS]
            able = [name for name in able if "fit" in of.features or name != "evidence-fit rule"]
            chosen = {name: policies[name] for name in able}
            rules = self.rules(study, len(of.actions))
            self._fitted[study, kind] = crossfit.crossfit(of, policies=chosen, rules=rules, repeats=self.repeats)
        return self._fitted[study, kind]

    def rules(self, study: Study, actions: int, cap: float = 0.0) -> Rules:
        """What policies share: folds by conversation where questions share them."""
        group = "conversation" if study.clustered else "question"
        return Rules(group=group, seed=self.seed, rungs=_rungs(actions), cap=cap)


_Report = Readings
NOTHING = "there are no outcomes of questions that memory answers"


def _column(outcomes: Outcomes, name: str) -> NDArray[Any]:
    return outcomes.columns.get(name, np.full(len(outcomes), "", object))


def _rank(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Where a dataset and setting stand in a report: the known ones first."""
    known = [[*DATASETS], [*SETTINGS]]
    at = [some.index(name) if name in some else len(some) for name, some in zip(names, known, strict=False)]
    return (at[0], names[0], at[1], *names[1:])


def _model(writer: str, reader: str) -> str:
    return f"{writer} writes, {reader} reads" if writer and reader and writer != reader else reader or writer


def _rungs(actions: int) -> int:
    """Rungs of a ladder over so many actions."""
    fits = [
        rungs for rungs in range(1, ladder.RUNGS + 1) if sum(math.perm(actions, k + 1) for k in range(rungs)) <= ORDERS
    ]
    return max(fits, default=1)


# -- cells -------------------------------------------------------------------------------------------------------------


def _value(text: str, found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """The text with the number's interval, a dash where nothing was measured."""
    if not found.n:
        return DASH
    return Value(text, _finite(found.mean), _finite(found.low), _finite(found.high), rows)


def _gained(found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """A difference with its interval."""
    return _value(change(found.mean, found.low, found.high), found, rows)


def _share(found: Estimate, rows: Mapping[str, Any]) -> Cell:
    """An accuracy or a rate; its interval is not shown."""
    return _value(number(found.mean), found, rows)


def _plain(value: float, text: str, rows: Mapping[str, Any]) -> Cell:
    """A number that has no interval."""
    return Value(text, mean=_finite(value), rows=rows) if math.isfinite(value) else DASH


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _count(value: float) -> str:
    """Whole numbers as such, means over repeats with a decimal."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def _heads(budgets: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{budget} tokens" for budget in budgets)


def _drawn(*studies: Study) -> str:
    """How intervals are made, as a sentence of a caption."""
    start = f"Intervals are 95 %, from {studies[0].draws:,} resamples of"
    shared = [study.about for study in studies if study.clustered]
    if not shared:
        return f"{start} questions, all actions paired."
    few = "since questions of one conversation are not independent; with few conversations they are rather too narrow."
    if len(shared) == len(studies):
        return f"{start} whole conversations, {few}"
    return f"{start} questions, or of whole conversations for {' and '.join(shared)}, {few}"


def _samples(studies: Sequence[Study]) -> str:
    return " ".join(study.sample for study in studies)


def _marks(studies: Sequence[Study]) -> list[str]:
    """Marks of a table that the paper lacks."""
    marks = ["one realization"] if all(study.shape[3] == 1 for study in studies) else []
    return marks + [f"{study.about}: operators saw the question" for study in studies if study.arms.focused]


# -- the paper's tables ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Body:
    columns: tuple[str, ...]
    rows: Sequence[Cells]
    note: str = ""  # what the caption adds of these rows
    marks: Sequence[str] = ()
    published: tuple[tuple[str, ...], ...] = ()


def _of_paper(label: str, study: Study, columns: tuple[str, ...], rows: Sequence[Cells], *, note: str = "") -> _Body:
    """A table of the paper, made from one study."""
    said = f"{note} {study.sample} {_drawn(study)}".strip()
    return _Body(columns, rows, said, study.marks(label), published.cells(label))


def _operator_gains(readings: Readings) -> _Body:
    why = "there are no rows of LongMemEval or of data of your own; LoCoMo has the next table"
    study = readings.pick("operatorstats", why, lambda study: study.dataset != LOCOMO)
    name = {action: operator.capitalize() for operator, action in study.operators().items()}
    rows = []
    for g in study.gains(list(name)):
        cited = study.cite([RETAIN, g.action], g.budget)
        rows.append((name[g.action], str(g.budget), _gained(g.gain, cited), _plain(g.p, chance(g.p), cited)))
    return _of_paper("operatorstats", study, ("Operator", "Budget", "Paired gain [95 % CI]", "one-sided p"), rows)


def _locomo_gains(readings: Readings) -> _Body:
    study = readings.pick("locomostats", "there are no rows of LoCoMo", lambda study: study.dataset == LOCOMO)
    name = {action: operator.capitalize() for operator, action in study.operators().items()}
    clustered = {(g.action, g.budget): g.gain for g in study.gains(list(name))}
    rows = []
    for g in sorted(study.gains(list(name), resamples=study.by_question), key=lambda g: g.budget):
        cited, whole, did = study.cite([RETAIN, g.action], g.budget), clustered[g.action, g.budget], g.changes.questions
        rows.append((
            str(g.budget), name[g.action], _value(number(g.gain.mean, signed=True), g.gain, cited),
            _value(bracket(g.gain.low, g.gain.high), g.gain, cited),
            _value(bracket(whole.low, whole.high), whole, cited) if study.clustered else DASH,
            f"{did.helped}/{did.harmed}",
        ))  # fmt: skip
    columns = (
        "Budget", "Operator", "Paired gain", "95 % interval, questions", "95 % interval, conversations",
        "Helped/harmed",
    )  # fmt: skip
    note = f"{study.sample} {study.draws:,} resamples of questions, and as many of whole conversations beside them."
    return replace(_of_paper("locomostats", study, columns, rows), note=note)


def _against_abstract(study: Study) -> Iterator[tuple[Gain, Cells]]:
    """Budget, retention, abstract, gain and helped/harmed."""
    if (action := study.operators().get("abstract")) is None:
        raise InputError(f"{study.about}: there are no outcomes of abstract")
    for g in study.gains([action]):
        cited, did = study.cite([RETAIN, action], g.budget), g.changes.questions
        yield g, (
            str(g.budget), _plain(g.retention, number(g.retention), study.cite([RETAIN], g.budget)),
            _plain(g.accuracy, number(g.accuracy), study.cite([action], g.budget)), _gained(g.gain, cited),
            f"{did.helped}/{did.harmed}",
        )  # fmt: skip


def _cross_model(readings: Readings) -> _Body:
    several = [some for some in readings.models if len(some) > 1]
    if not several:
        raise InputError("the rows are of one model: label the same questions with a second one")
    several.sort(key=lambda some: (some[0].dataset, some[0].setting) != (LONGMEMEVAL, CONTROLLED))
    some = several[0]
    rows = [(study.model or "unnamed", *cells) for study in some for _, cells in _against_abstract(study)]
    columns = ("Model", "Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed")
    body = _of_paper("crossmodel", some[0], columns, rows)
    marks = [mark for mark in body.marks if not mark.startswith("another model")]
    if any(study.questions != some[0].questions for study in some):
        marks.append("the models were not asked the same questions")
    return replace(body, marks=marks)


def _full_history(readings: Readings) -> _Body:
    why = "there are no rows of a full history, where a retriever finds the notes"
    study = readings.pick("retrieved", why, lambda study: study.setting in SETTINGS and study.setting != CONTROLLED)
    rows = []
    for g, cells in _against_abstract(study):
        b, a = study.every.index(g.budget), study.actions.index(g.action)
        best = np.maximum(*(run_mean(part[:, b, a]) for part in (study.runs, study.retained)))  # NaN where either is
        rows.append((*cells, _share(study.estimate(best), study.cite([RETAIN, g.action], g.budget))))
    columns = ("Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed", "Binary oracle")
    return _of_paper("retrieved", study, columns, rows)


def _per_type(readings: Readings) -> _Body:
    study = readings.main("pertype")
    raw, budget, operators = study.per_question("type"), study.budgets[-1], study.operators()
    kinds = np.array([type_index(kind) for kind in raw])
    strata: dict[str, Mask] = {KINDS[name]: kinds == place for place, name in enumerate(TYPES)}
    strata |= {"Other": kinds < 0, "All": np.ones(len(kinds), np.bool_)}
    strata = {name: mask for name, mask in strata.items() if mask.any()}
    found = {(g.stratum, g.action): g for g in study.gains(list(operators.values()), strata=strata, budgets=[budget])}
    rows = []
    for name, mask in strata.items():
        cells: list[Cell] = [name, str(int(mask.sum()))]
        here = sorted({kind for kind, inside in zip(raw, mask, strict=True) if inside})
        for action in (operators.get(operator, "") for operator in OPERATORS):
            g, cited = found.get((name, action)), study.cite([RETAIN, action], budget, type=here)
            cells.append(DASH if g is None else _value(_by_run(g), g.gain, cited))
        rows.append(tuple(cells))
    columns = ("Question type", "n", *(name.capitalize() for name in OPERATORS))
    return _of_paper("pertype", study, columns, rows, note=f"At {budget} tokens.")


def _by_run(g: Gain) -> str:
    return tally(g.gain.mean, g.changes.per_run.helped, g.changes.per_run.harmed)


def _routing(readings: Readings) -> _Body:
    study = readings.main("routerbaselines")
    fitted = readings.routed(study)
    of, found = fitted.panel, fitted.results
    order = [name for name in POLICIES if name in found and name not in (VOTE, TWICE)]
    rows = [_policy_row(study, of, POLICIES[name], found[name].utility, found[name].harmed) for name in order]
    return _of_policies("routerbaselines", study, of, rows, _folds(fitted))


def _of_policies(label: str, study: Study, of: Panel, rows: Sequence[Cells], note: str) -> _Body:
    body = _of_paper(label, study, ("Policy", *_heads(of.budgets), "Macro"), rows, note=note)
    return replace(body, marks=[*body.marks, *_gaps(study, of)], published=published.cells(label, of.budgets))


def _policy_row(study: Study, of: Panel, name: str, utility: Array, harmed: Array, **more: Any) -> Cells:
    """Accuracy with harms in parentheses at each budget, and the mean over budgets; both arrays are [q, b]."""
    spread, harms = study.spread(of, utility), harmed.sum(axis=0)
    cells = [
        _value(f"{number(each.mean)} ({_count(harms[b])})", each, study.cite(of.actions, of.budgets[b], **more))
        for b, each in enumerate(study.estimates(spread))
    ]
    return (name, *cells, _share(study.estimate(run_mean(spread)), study.cite(of.actions, of.budgets, **more)))


def _folds(fitted: CrossFit) -> str:
    repeated = f", mean of {fitted.repeats} ways to deal them" if fitted.repeats > 1 else ""
    return f"{fitted.folds} folds by {fitted.rules.group}{repeated}: three train, one calibrates, one tests."


def _gaps(study: Study, of: Panel) -> list[str]:
    """What the learners had to do without."""
    found = []
    if absent := [name for name in FEATURES if name not in of.features]:
        found.append(f"the router sees no {' or '.join(absent)}, which the rows lack")
    if left := len(study.questions) - len(of.questions):
        found.append(f"{left} of {len(study.questions)} questions left out: some action has no outcome")
    return found


def _budget_pressure(readings: Readings) -> _Body:
    study = readings.main("budgetpressure")
    rows = []
    for b, budget in enumerate(study.budgets):
        fit, cited = study.fit[:, b], study.cite([RETAIN], budget)
        known = fit[_there(fit)]
        if len(known):
            full, zero = 100 * float((known >= 1).mean()), 100 * float((known <= 0).mean())
            shares = [_plain(share, f"{share:.1f}", cited) for share in (full, zero, 100 - full - zero)]
            regime = next(name for below, name in REGIMES if full < below)
            rows.append((str(budget), _share(study.estimate(fit), cited), *shares, regime))
    columns = ("Budget", "Mean fit", "Full (%)", "Zero (%)", "Partial (%)", "Regime")
    return _of_paper("budgetpressure", study, columns, rows)


def _operator_pairs(readings: Readings) -> _Body:
    study = readings.main("operatorpairwise")
    operators = study.operators()
    pairs = [(operators[one], operators[two]) for one, two in PAIRS if one in operators and two in operators]
    if not pairs:
        raise InputError(f"{study.about}: there are outcomes of one operator only")
    actions = list(operators.values())
    utility = np.stack([study.values(name) for name in actions], axis=2)
    measured = stats.operator_pairs(
        utility, budgets=study.budgets, actions=actions, resamples=study.resamples, pairs=pairs
    )
    found = {(pair.first, pair.second, pair.budget): pair.difference for pair in measured}
    rows = []
    for budget in study.budgets:
        both = [(operators.get(one, ""), operators.get(two, "")) for one, two in PAIRS]
        cells = [
            _gained(found[*pair, budget], study.cite(pair, budget)) if (*pair, budget) in found else DASH
            for pair in both
        ]
        rows.append((str(budget), *cells))
    columns = ("Budget", *(f"{one.capitalize()} - {two.capitalize()}" for one, two in PAIRS))
    return _of_paper("operatorpairwise", study, columns, rows)


def _fit_strata(readings: Readings) -> _Body:
    study = readings.main("mechanismfit")
    strata: dict[str, Mask] = {"incomplete": study.fit < 1, "complete": study.fit >= 1}  # NaN is in neither
    sizes = np.min([mask.sum(axis=0) for mask in strata.values()], axis=0)
    budgets = [budget for budget, size in zip(study.budgets, sizes, strict=True) if size >= STRATUM]
    if not budgets:
        raise InputError(f"at no budget are there {STRATUM} questions whose notes all fit and {STRATUM} whose do not")
    inside = {name: mask[:, sizes >= STRATUM] for name, mask in strata.items()}
    name = {action: operator.capitalize() for operator, action in study.operators().items()}
    found = study.gains(list(name), strata=inside, budgets=budgets)
    rows = []
    for g in sorted(found, key=lambda g: (list(name).index(g.action), g.budget)):  # stable: incomplete first
        chosen = inside[g.stratum][:, budgets.index(g.budget)]
        ids = [question for question, mine in zip(study.questions, chosen, strict=True) if mine]
        text = stratum(g.gain.mean, g.changes.rate.helped, g.changes.rate.harmed, g.gain.n)
        cell = _value(text, g.gain, study.cite([RETAIN, g.action], g.budget, question_id=ids))
        rows.append((name[g.action], str(g.budget), g.stratum, cell))
    return _of_paper("mechanismfit", study, ("Operator", "Budget", "Retention fit", "Gain (helped/harmed; n)"), rows)


def _joint_routing(readings: Readings) -> _Body:
    study = readings.main("unified")
    fitted = readings.routed(study)
    of, rows = fitted.panel, list[Cells]()
    for name in ("direct", "calibrated", "certified"):
        found = fitted.results[name]
        accuracy = study.estimates(study.spread(of, found.utility))
        gain = study.estimates(study.spread(of, found.utility - of.retentions))
        for b, budget in enumerate(of.budgets):
            cited, harms = study.cite(of.actions, budget), float(found.harmed[:, b].sum())
            cells = (_share(accuracy[b], cited), _gained(gain[b], cited), _plain(harms, _count(harms), cited))
            rows.append((name.capitalize(), str(budget), *cells))
    columns = ("Policy", "Budget", "Accuracy", "Gain [95 % CI]", "Harm")
    body = _of_paper("unified", study, columns, rows, note=_folds(fitted))
    return replace(body, marks=[*body.marks, *_gaps(study, of)])


def _mlp_check(readings: Readings) -> _Body:
    study = readings.main("mlpcapacity")
    fitted = readings.routed(study)
    of, rows = fitted.panel, list[Cells]()
    results = (fitted.results["direct"], readings.nonlinear(study).results["MLP"])
    both = np.stack([study.spread(of, found.utility) for found in results], axis=2)
    names = ("ridge", "MLP")
    pairs = stats.operator_pairs(
        both, budgets=of.budgets, actions=names, resamples=study.resamples, pairs=[names[::-1]]
    )
    for b, pair in enumerate(pairs):
        cited = study.cite(of.actions, pair.budget)
        accuracy = [_share(each, cited) for each in study.estimates(both[:, b])]
        rows.append(
            (str(pair.budget), *accuracy, _gained(pair.difference, cited), _plain(pair.p, chance(pair.p), cited))
        )
    columns = ("Budget", "Ridge accuracy", "MLP accuracy", "Difference from ridge [95 % CI]", "two-sided p")
    body = _of_paper("mlpcapacity", study, columns, rows, note=_folds(fitted))
    return replace(body, marks=[*body.marks, *_gaps(study, of)])


def _independent(readings: Readings) -> _Body:
    why = f"no rows are marked {', '.join(FOLDS)} in a column fold, which keeps the questions apart"
    study = readings.pick("routeAgate", why, lambda study: set(FOLDS) <= set(study.per_question("fold")))
    names = {action: f"Fixed {name}" for name, action in study.operators().items()}
    whole = study.panel([RETAIN, *names])
    parts, rules = _parts(study, whole), readings.rules(study, len(study.arms.choices), GATE_CAP)
    fixed = {names[name]: crossfit.always(place) for place, name in enumerate(whole.actions) if name in names}
    policies: dict[str, Policy] = {
        "Retention": crossfit.always(0), **{names[name]: fixed[names[name]] for name in names},
        "Per-budget policy selected on fit data": crossfit.trained_fixed(0), "Direct ridge": crossfit.Direct(),
        "Frozen safe router": crossfit.Calibrated(), "Certified safe router": crossfit.Calibrated(certified=True),
    }  # fmt: skip
    rows = [_gate_row(study, parts, name, policy, rules) for name, policy in policies.items()]
    rows.append(_gate_row(study, parts, "Action oracle", None, rules))
    rows += _gate_ladder(study, rules, whole.budgets)
    sizes = ", ".join(f"{len(part.questions)} {name}" for name, part in parts.items())
    note = f"Questions: {sizes}. Calibration may observe harm in {GATE_CAP:.0%} of its questions."
    body, gate = _of_policies("routeAgate", study, whole, rows, note), len(parts["gate"].questions)
    marks = [mark for mark in body.marks if "questions (the paper" not in mark]
    if gate != published.ROUTE_A_GATE.questions:
        marks.append(f"{gate} gate questions (the paper: {published.ROUTE_A_GATE.questions})")
    return replace(body, marks=marks)


def _parts(study: Study, whole: Panel) -> dict[str, Panel]:
    fold = dict(zip(study.questions, study.per_question("fold"), strict=True))
    dealt = np.array([fold[name] for name in whole.questions])
    parts = {name: whole.take(np.flatnonzero(dealt == name)) for name in FOLDS}
    if empty := [name for name, part in parts.items() if not part.questions]:
        raise InputError(f"no {empty[0]} question has outcomes of all of {', '.join(whole.actions)}")
    return parts


def _gate_row(study: Study, parts: Mapping[str, Panel], name: str, policy: Policy | None, rules: Rules) -> Cells:
    """What a policy came to at the gate, made before it saw it; without one, the best action of each question."""
    gate = parts["gate"]
    if policy is None:
        plan = np.argmax(gate.utility, axis=2)[:, :, None]
    else:
        plan = policy(parts["fit"], parts["calibration"], rules)(gate.hidden())
    went = ladder.walk(gate, plan)
    harmed = went.replaced & (went.utility < gate.retentions - 1e-12)
    return _policy_row(study, gate, name, went.utility, harmed.astype(np.float64), fold="gate")


def _gate_ladder(study: Study, rules: Rules, budgets: Sequence[int]) -> list[Cells]:
    """Ours, over what a product would choose between, where the rows have it."""
    try:
        whole = study.panel(study.arms.choices)
        parts = _parts(study, whole)
    except RetconError:
        return []
    if whole.budgets != tuple(budgets) or whole.abstained is None:
        return []
    policies = {
        "Best fixed action, all actions": crossfit.trained_fixed(0),
        "Ladder, all actions": crossfit.learned_ladder,
    }
    return [_gate_row(study, parts, name, policy, rules) for name, policy in policies.items()]


# -- ours --------------------------------------------------------------------------------------------------------------


def _grid(
    studies: Sequence[Study], cells: Callable[[Study], Mapping[tuple[str, int], Cell]], *,
    aside: Callable[[Study, str], Cells] | None = None, heads: tuple[str, ...] = (),
) -> _Body:  # fmt: skip
    """A row for each study and action that has a cell, and a column for each budget of any of the studies."""
    budgets, rows = sorted({budget for study in studies for budget in study.budgets}), list[Cells]()
    for study in studies:
        found = cells(study)
        for action in study.arms.order:
            more = () if aside is None else aside(study, action)
            if more or any((action, budget) in found for budget in budgets):
                row = (found.get((action, budget), DASH) for budget in budgets)
                rows.append((study.about, study.arms.names[action], *row, *more))
    note = f"{_samples(studies)} {_drawn(*studies)}"
    return _Body(("Data", "Action", *_heads(budgets), *heads), rows, note, _marks(studies))


def _shares(study: Study, values: Array) -> dict[tuple[str, int], Cell]:
    """A rate for each action and budget."""
    return {cell: _share(each, study.cite([cell[0]], cell[1])) for cell, each in study.by_cell(values).items()}


def _all_actions(readings: Readings) -> _Body:
    return _grid(
        readings.every(), lambda study: _shares(study, study.utility), aside=_macro, heads=("Macro [95 % CI]",)
    )


def _macro(study: Study, action: str) -> Cells:
    """The mean over budgets; of an action that knows no budget, all there is."""
    known = _there(study.values(action)).any(axis=0)
    if known.any() and not known.all():  # a mean over other budgets would not compare
        return (DASH,)
    whole = study.values(action) if known.any() else study.utility[:, :, study.actions.index(action)]
    found = study.estimate(run_mean(whole))
    text = f"{number(found.mean)} {bracket(found.low, found.high, signed=False)}"
    return (_value(text, found, study.cite([action], study.budgets if known.any() else None)),)


def _cost(readings: Readings) -> _Body:
    studies, rows = readings.every(), list[Cells]()
    if not any(study.mean(name) is not None for study in studies for name in SPENDING):
        raise InputError(f"the rows do not say what was spent (columns {', '.join(SPENDING)})")
    for study in studies:
        spent = {name: mean for name in SPENDING if (mean := study.mean(name)) is not None}
        cells = [(action, name) for action in study.arms.order for name in spent]
        values = [run_mean(spent[name][:, :, study.actions.index(action)]) for action, name in cells]
        found = dict(zip(cells, study.estimates(np.stack(values, axis=1)) if values else [], strict=True))
        for action in study.arms.order:
            row = [_spent(found.get((action, name)), name, study.cite([action])) for name in SPENDING]
            rows.append((study.about, study.arms.names[action], *row))
    columns = ("Data", "Action", *(head for head, _ in SPENDING.values()))
    return _Body(columns, rows, f"{_samples(studies)} {_drawn(*studies)}", _marks(studies))


def _spent(found: Estimate | None, name: str, cited: Mapping[str, Any]) -> Cell:
    return DASH if found is None else _value(f"{found.mean:.{SPENDING[name][1]}f}", found, cited)


def _unsupported(readings: Readings) -> _Body:
    studies = readings.every("unsupported", "the rows do not say whether a claim lacks support (column unsupported)")
    return _grid(studies, lambda study: _shares(study, _known(study.mean("unsupported"))))


def _known(values: Array | None) -> Array:
    assert values is not None
    return values


def _judges(readings: Readings) -> _Body:
    studies = readings.every()
    first = studies[0].judge
    others = sorted({name for study in studies for name in study.table.judges} - {first})
    if not others:
        raise InputError("there are the verdicts of one judge only")
    rows, graded = list[Cells](), False
    for study in studies:
        for action in (*study.arms.order, None):
            mine = np.ones(len(study.table), np.bool_) if action is None else study.table.columns["action"] == action
            cited = study.cite(study.actions if action is None else [action])
            said = {name: study.table.columns[JUDGE + name][mine] for name in (first, *others)}
            graded |= any(not np.isin(each[_there(each)], (0, 1)).all() for each in said.values())
            right = [_right(each, cited) for each in said.values()]
            agreed = [cell for name in others for cell in _agreement(said[first], said[name], cited)]
            rows.append((study.about, "All" if action is None else study.arms.names[action], *right, *agreed))
    pairs = [head for name in others for head in (f"{first} and {name} agree", f"kappa, {first} and {name}")]
    marks = ["graded verdicts count as right from one half on where agreement is counted"] if graded else []
    columns = ("Data", "Action", *(f"Right by {name}" for name in (first, *others)), *pairs)
    return _Body(columns, rows, _samples(studies), marks + _marks(studies))


def _right(verdicts: Array, cited: Mapping[str, Any]) -> Cell:
    known = verdicts[_there(verdicts)]
    mean = float(known.mean()) if len(known) else math.nan
    return _plain(mean, number(mean), cited)


def _agreement(one: Array, two: Array, cited: Mapping[str, Any]) -> tuple[Cell, Cell]:
    known = _there(one + two)
    if not known.any():
        return DASH, DASH
    a, b = (one[known] >= 0.5).astype(np.float64), (two[known] >= 0.5).astype(np.float64)
    raw, beyond = float((a == b).mean()), stats.kappa(a, b)
    return _plain(raw, number(raw), cited), _plain(beyond, number(beyond), cited)


def _per_token(readings: Readings) -> _Body:
    studies = readings.every("context_tokens", "the rows do not say how many tokens were read (column context_tokens)")
    return _grid(studies, _bought)


def _bought(study: Study) -> dict[tuple[str, int], Cell]:
    """Accuracy for 100 tokens shown: a ratio of means, in every resample as in the sample."""
    tokens, cells = _known(study.mean("context_tokens")), dict[tuple[str, int], Cell]()
    for action in study.actions:
        right, read = (stats.replicates(study.values(action, of), study.resamples) for of in (study.utility, tokens))
        for b, budget in enumerate(study.budgets):
            both = _there(study.values(action)[:, b] + study.values(action, tokens)[:, b])
            u, t = (float(study.values(action, of)[both, b].sum()) for of in (study.utility, tokens))
            some = read[:, b] > 0
            if t > 0 and some.any():
                low, high = np.quantile(100 * right[some, b] / read[some, b], (0.025, 0.975)).tolist()
                cited = study.cite([action], budget)
                cells[action, budget] = Value(number(100 * u / t), 100 * u / t, low, high, cited)
    return cells


def _needed(readings: Readings) -> _Body:
    studies, rows = readings.every(), list[Cells]()
    budgets = sorted({budget for study in studies for budget in study.budgets})
    for study in studies:
        for action in study.arms.order:
            values = study.values(action)
            if _there(values).any(axis=0).all():
                named = (study.about, study.arms.names[action])
                rows.append((*named, *_buys(study, study.budgets, values, [action], budgets)))
        rows += _policy_buys(readings, study, budgets)
    near = [f"Budget within {points} point{'s' if points > 1 else ''}" for points in WITHIN]
    columns = ("Data", "Action or policy", *_heads(budgets), *near)
    return _Body(columns, rows, f"{_samples(studies)} {_drawn(*studies)}", _marks(studies))


def _policy_buys(readings: Readings, study: Study, budgets: Sequence[int]) -> list[Cells]:
    """The row of the policy of highest mean accuracy; none where nothing can be cross-fitted."""
    try:
        fitted = readings.climbed(study)
    except RetconError:
        return []
    honest = [found for name, found in fitted.results.items() if name not in (*ORACLES, TWICE)]
    best, of = max(honest, key=lambda found: found.macro), fitted.panel
    cells = _buys(study, of.budgets, study.spread(of, best.utility), of.actions, budgets)
    return [(study.about, f"Best policy: {POLICIES[best.name]}", *cells)]


def _buys(study: Study, at: Sequence[int], values: Array, actions: Sequence[str], budgets: Sequence[int]) -> Cells:
    """Accuracy at each budget, and the smallest budgets that come near the best."""
    found = dict(zip(at, study.estimates(values), strict=True))
    cells = [_share(found[budget], study.cite(actions, budget)) if budget in found else DASH for budget in budgets]
    means = np.array([[each.mean for each in found.values()]])
    drawn = stats.replicates(values, study.resamples)
    drawn = drawn[_there(drawn).all(axis=1)]
    cited = study.cite(actions, at)
    return (*cells, *(_smallest(at, means, drawn if len(drawn) else means, points, cited) for points in WITHIN))


def _smallest(at: Sequence[int], means: Array, drawn: Array, points: int, cited: Mapping[str, Any]) -> Value:
    needed, ends = float(_enough(at, means, points)[0]), np.sort(_enough(at, drawn, points))
    last = len(ends) - 1
    low, high = float(ends[math.floor(0.025 * last)]), float(ends[math.ceil(0.975 * last)])
    return Value(f"{needed:.0f} [{low:.0f}, {high:.0f}]", needed, low, high, cited)


def _enough(at: Sequence[int], means: Array, points: int) -> Array:
    """The smallest budget whose mean is within so many points of its row's best."""
    near = means >= means.max(axis=1, keepdims=True) - points / 100 - 1e-9
    return np.array([at[place] for place in near.argmax(axis=1).tolist()], np.float64)


def _ladders(readings: Readings) -> _Body:
    rows, told, reasons = list[Cells](), list[Study](), list[str]()
    for study in readings.every():
        try:
            fitted = readings.climbed(study)
        except RetconError as error:
            reasons.append(str(error))
            continue
        if fitted.panel.abstained is None:
            reasons.append(f"{study.about}: the rows do not say where the reader abstained (column abstained)")
            continue
        told.append(study)
        found = fitted.results
        order = [name for name in POLICIES if name in found and name != "binary oracle"]
        rows += [_spend_row(study, fitted.panel, found[name], found[REFERENCE]) for name in order]
    if not told:
        raise InputError("; ".join(reasons))
    columns = (
        "Data", "Policy", "Accuracy", "Difference from the best fixed action [95 % CI]", "Harm (%)", "Reader calls",
        "Tokens read", "Tokens written",
    )  # fmt: skip
    folds = " ".join(dict.fromkeys(_folds(readings.climbed(study)) for study in told))
    price = readings.climbed(told[0]).rules.call_price
    note = f"{folds} A further call must bring {price:g} of accuracy. {_samples(told)} {_drawn(*told)}"
    return _Body(columns, rows, note, _marks(told))


def _spend_row(study: Study, of: Panel, found: Result, base: Result) -> Cells:
    """Means over the budgets that were measured; differences over those that both have."""
    spent = {"context_tokens": found.read, "generated_tokens": found.generated}
    measured = (found.utility, found.utility - base.utility, 100 * found.harmed, found.calls, *spent.values())
    columns = np.stack([run_mean(study.spread(of, values)) for values in measured], axis=1)
    accuracy, difference, harm, calls, *tokens = study.estimates(columns)
    cited = study.cite(of.actions, of.budgets)
    return (
        study.about, POLICIES[found.name], _share(accuracy, cited),
        DASH if found.name == base.name else _gained(difference, cited), _value(f"{harm.mean:.1f}", harm, cited),
        _value(f"{calls.mean:.2f}", calls, cited),
        *(
            _value(f"{each.mean:.1f}", each, cited) if name in of.tokens else DASH
            for name, each in zip(spent, tokens, strict=True)
        ),
    )  # fmt: skip


def _false_answers(readings: Readings) -> _Body:
    if not readings.silent:
        raise InputError("there are no rows of questions that memory does not answer (column abstention)")
    studies = [study for study in readings.silent if study.mean("abstained") is not None]
    if not studies:
        raise InputError("the rows do not say where the reader abstained (column abstained)")
    body = _grid(studies, lambda study: _shares(study, 1 - _known(study.mean("abstained"))))
    budgets = sorted({budget for study in studies for budget in study.budgets})
    rows = []
    for study in studies:
        rows += [row for row in body.rows if row[0] == study.about]
        rows += _false_ladder(readings, study, budgets)
    return replace(body, rows=rows)


def _false_ladder(readings: Readings, silent: Study, budgets: Sequence[int]) -> list[Cells]:
    """The ladder learned on all answerable questions of the same data, on these; none where that cannot be."""
    same = [each for each in readings.studies if (each.dataset, each.setting) == (silent.dataset, silent.setting)]
    try:
        learned, asked = (study.panel(same[0].arms.choices) for study in (same[0], silent)) if same else (None, None)
    except RetconError:
        return []
    if learned is None or asked is None or learned.abstained is None or asked.abstained is None:
        return []
    if learned.features != asked.features:
        return []
    steps = ladder.learn(learned, rungs=_rungs(len(learned.actions)))
    says = replace(asked, runs=asked.abstained, retentions=run_mean(asked.abstained[:, :, 0]))
    wrong = silent.spread(asked, 1 - ladder.walk(says, ladder.plan(steps, asked)).utility)
    found = dict(zip(asked.budgets, silent.estimates(wrong), strict=True))
    cells = [_share(found[b], silent.cite(asked.actions, b)) if b in found else DASH for b in budgets]
    return [(silent.about, "Ladder", *cells)]


def _crossovers(readings: Readings) -> _Body:
    studies, rows = readings.every(), list[Cells]()
    for study in studies:
        if RETAIN not in study.actions or len(study.budgets) < 2 or study.budgets[0] < 1:
            continue
        for action in study.arms.order:
            gain = study.gain(action)
            if action not in (RETAIN, *PACKINGS) and _there(gain).any(axis=0).all():
                rows.append((study.about, study.arms.names[action], *_crossing(study, action, gain)))
    if not rows:
        raise InputError("a crossover needs retention and another action at two budgets or more")
    columns = ("Data", "Action", "Crossover budget [95 % CI]", "Resamples that cross (%)", "Full fit there (%)")
    return _Body(columns, rows, f"{_samples(studies)} {_drawn(*studies)}", _marks(studies))


def _crossing(study: Study, action: str, gain: Array) -> Cells:
    at = study.budgets
    found, cited = stats.crossover(gain, at, study.resamples), study.cite([RETAIN, action], at)
    ends = (found.budget, found.low, found.high)
    point, low, high = (_finite(end) if end > 0 else None for end in ends)
    texts = [_budget(end, at) for end in ends]
    share = 100 * found.share
    place = Value(f"{texts[0]} [{texts[1]}, {texts[2]}]", point, low, high, cited)
    return (place, _plain(share, f"{share:.0f}", cited), _pressure(study, found.budget))


def _budget(value: float, at: Sequence[int]) -> str:
    if math.isnan(value):
        return DASH
    return f"below {at[0]}" if value == 0 else f"above {at[-1]}" if math.isinf(value) else f"{value:.0f}"


def _pressure(study: Study, budget: float) -> Cell:
    """The share of questions whose notes all fit at a budget, between measured ones linear in log2 B."""
    if study.mean("fit") is None or not 0 < budget < math.inf:
        return DASH
    full = run_mean(np.where(np.isnan(study.fit), np.nan, study.fit >= 1).T)
    share = 100 * float(np.interp(math.log2(budget), np.log2(study.budgets), full))
    return _plain(share, f"{share:.0f}", study.cite([RETAIN], study.budgets))


# -- the list ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spec:
    """A table's key and words, and what fills it."""

    key: str
    title: str
    caption: str
    build: Callable[[Readings], _Body]

    def table(self, readings: Readings) -> Table:
        """The table, or why it cannot be made of these rows."""
        try:
            body = self.build(readings)
            if not body.rows:
                raise InputError("no row could be filled from these outcomes")
        except RetconError as error:
            return Table(self.key, self.title, self.caption, (), (), missing=str(error))
        caption, marks = f"{self.caption} {body.note}".strip(), tuple(dict.fromkeys(body.marks))
        return Table(self.key, self.title, caption, body.columns, tuple(body.rows), body.published, marks)


SPECS = (
    _Spec("operator-gains", "What each operator gains over keeping raw notes",
          "An operator replaces the raw notes by a text that it wrote from them. Its gain is its share of right answers"
          " minus that of retention, on the same questions at the same budget; p is the chance of so large a gain if"
          " every question's sign were a coin toss, so near 0 it helps and near 1 it does not.", _operator_gains),
    _Spec("locomo-gains", "The same on LoCoMo, whose evidence is shorter",
          "Gain over retention on the same questions at the same budget; helped and harmed count the questions that an"
          " operator answered better, or worse. Questions of one conversation are not independent, so there is a second"
          " interval; with few conversations it is rather too narrow.", _locomo_gains),
    _Spec("cross-model", "Does it hold for another model?",
          "Retention against Abstract on the same questions, once for each model that wrote and answered.",
          _cross_model),
    _Spec("full-history", "When the notes have to be found first",
          "A retriever finds candidates in the whole history; retention and Abstract get the same ones. The binary"
          " oracle picks the better of the two for every question with hindsight: no policy can, it says how much there"
          " is to win.", _full_history),
    _Spec("per-type", "Which questions gain and which lose at the loosest budget",
          "Gain over retention by type of question, with the questions helped and harmed in one run in parentheses"
          " (mean over runs).", _per_type),
    _Spec("routing-baselines", "Learned routers against simple rules",
          "Share of right answers of each policy, with the number of harmful replacements in parentheses: another"
          " action was chosen where retention did better. Every policy is learned on some questions and tested on"
          " others; oracles look at the answer and only say what is left to win.", _routing),
    _Spec("budget-pressure", "How much of the evidence fits",
          "Mean share of the candidate notes that retention packs, and the share of questions of which all, none or"
          " some fit. The regime goes by full fit: below 5 % severely tight, below 33 % tight, below 75 % transition.",
          _budget_pressure),
    _Spec("operator-pairs", "One operator against another",
          "Difference in the share of right answers between two operators on the same questions; above zero the one"
          " named first is better.", _operator_pairs),
    _Spec("fit-strata", "Gain where the notes do not all fit, and where they do",
          "Gain over retention, apart for questions of which all candidate notes fit and for the others; in parentheses"
          f" the rates helped and harmed and the questions. Budgets at which both kinds have {STRATUM} questions.",
          _fit_strata),
    _Spec("joint-routing", "When to replace and by what, decided together",
          "The direct router takes the action of highest predicted utility. The calibrated one replaces only above a"
          " margin that harmed nobody on calibration questions; the certified one above a margin whose harm rate is at"
          f" most {100 * Rules().alpha:g} % with {100 - 100 * Rules().delta:g} % confidence. Gain is over retention,"
          " harm counts worse replacements.", _joint_routing),
    _Spec("mlp-check", "Would a nonlinear router do better?",
          "A small neural network in place of the linear model, learned and tested on the same folds; p is of two-sided"
          " sign flips.", _mlp_check),
    _Spec("independent", "Everything frozen before the last questions are opened",
          "Policies are learned on fit questions and calibrated on others, then scored once on the gate questions,"
          " which neither saw: share of right answers, harmful replacements in parentheses. The oracle has hindsight.",
          _independent),
    _Spec("all-actions", "Every action at every budget",
          "Share of right answers of each action that was measured, and its mean over budgets; no memory and no budget"
          " at all stand there too. Agnostic texts were written without the question, focused ones with it.",
          _all_actions),
    _Spec("cost", "What an action costs",
          "Means over questions and all budgets: tokens handed to the reader, tokens that a model read and wrote to"
          " make them, its calls, the reader's own tokens, and seconds in all.", _cost),
    _Spec("unsupported", "How often a generated text says what its notes do not",
          "Share of generated texts with a number, date, name, negation or quote that the notes do not bear out, by a"
          " deterministic check.", _unsupported),
    _Spec("judges", "Do the judges agree?",
          "Share of answers that each judge calls right, the share on which two judges agree, and Cohen's kappa, which"
          " is 0 for agreement by chance and 1 for full agreement.", _judges),
    _Spec("per-token", "Accuracy bought by 100 tokens",
          "Share of right answers divided by the mean tokens that the reader was shown, times 100. An action that uses"
          " less of its budget scores higher here than its accuracy alone would say.", _per_token),
    _Spec("budget-needed", "What budget do I need?",
          "Share of right answers that each budget buys, and the smallest budget within 3 points and within 1 point of"
          " the best one, with the range that it takes over resamples. The best policy is the one of highest mean"
          " accuracy among the cross-fitted ones, picked with hindsight.", _needed),
    _Spec("ladders", "A second look against the same spend otherwise",
          "A ladder asks again with another action where the reader found no answer. It reads more, so it stands beside"
          " other ways to spend as much: the best fixed action at twice the budget (where that was measured), the same"
          " asked again, a vote of two. Everything is learned on other questions; figures are means over budgets.",
          _ladders),
    _Spec("false-answers", "Answers where memory holds none",
          "Questions to which 'not in memory' is right: the share that were answered all the same, lower is better. The"
          " ladder was learned on the other questions; it answers as soon as one of its rungs does.", _false_answers),
    _Spec("crossover", "The budget at which replacing stops paying",
          "Where the mean gain over retention first falls to zero, between measured budgets linear in log2 of the"
          " budget; 'below' and 'above' say that it does so outside them. Full fit is the share of questions whose"
          " candidate notes would all fit there: the paper's claim is that this, not tokens, decides.", _crossovers),
)  # fmt: skip
