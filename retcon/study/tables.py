"""Outcomes -> the tables of a report: the paper's twelve, and nine that it lacks.

A table is a value: its cells carry the number, its interval and the rows that it comes from, so that Markdown, a page
and figures can all be drawn from it. Whatever rows there are, every table is returned; one that they cannot fill says
why. For each dataset and setting the resamples are drawn once, and every column of every table is read off them.

Questions to which "not in memory" is the right answer (column `abstention` is "yes") stand in a table of their own and
in no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import perm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon import ladder
from retcon.crossfit import (
    LADDERS,
    LEARNERS,
    ORACLES,
    REFERENCE,
    TWICE,
    VOTE,
    Calibrated,
    CrossFit,
    Direct,
    Policy,
    Result,
    Rules,
    always,
    crossfit,
    evidence_fit,
    trained_fixed,
)
from retcon.errors import InputError
from retcon.features import FEATURES, TYPES
from retcon.ladder import RUNGS, Walked, walk
from retcon.note import EXTRACT, RETAIN
from retcon.outcomes import JUDGE, Outcomes, Panel, panel, run_mean, type_index
from retcon.stats import (
    Estimate,
    Gain,
    Resamples,
    by_stratum,
    crossover,
    interval,
    intervals,
    kappa,
    operator_pairs,
    replicates,
    resample,
)
from retcon.study import published
from retcon.study.published import CONTROLLED, FULL_HISTORY, LOCOMO, LONGMEMEVAL

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]  # tables done, of so many

OPERATORS = ("abstract", "merge", "rewrite")  # in the order of the paper's tables
PAIRS = (("merge", "abstract"), ("abstract", "rewrite"), ("merge", "rewrite"))
REFERENCES = ("none", "full")  # no memory at all, and no budget
AGNOSTIC, FOCUSED = "agnostic", "focused"
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
STRATUM = 10  # questions that both fit strata need
ORDERS = 600  # ladders compared at most: more actions, shorter ladders
GATE_CAP = 0.05  # harm that the independent evaluation's calibration may observe; the paper does not state its own
FOLDS = ("fit", "calibration", "gate")
DASH = "–"


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a table: as shown, its interval, and the outcomes that it comes from as a filter on columns."""

    text: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    rows: Mapping[str, Any] | None = None


Cells = tuple[Value | str, ...]


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
    report = _Report(outcomes, judge=judge, draws=draws, seed=seed, repeats=repeats)
    made = []
    for done, spec in enumerate(SPECS, 1):
        made.append(spec.table(report))
        if progress is not None:
            progress(done, len(SPECS))
    return made


# -- which action is what ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arms:
    """The actions of some outcomes in their roles."""

    operators: Mapping[str, str]  # abstract, merge, rewrite -> the action that is the paper's operator
    choices: tuple[str, ...]  # what a product would choose between: focused forms where there are both
    order: tuple[str, ...]  # all actions as a table lists them
    names: Mapping[str, str]  # what people call them
    focused: bool  # whether the operators saw the question, as the paper's did not


def arms(outcomes: Outcomes) -> Arms:
    """Which actions are the paper's operators, written without the question, and what to call every action."""
    form = _forms(outcomes)
    of = {kind: {base: name for name, (base, found) in form.items() if found == kind} for kind in set(_kinds(form))}
    chosen = of.get(AGNOSTIC) or of.get("") or of.get(FOCUSED) or {}
    operators = {name: chosen[name] for name in OPERATORS if name in chosen}
    names = {name: _name(name, *form.get(name, (name, ""))) for name in outcomes.actions}
    both = set(of.get(AGNOSTIC, {})) & set(of.get(FOCUSED, {}))
    left_out = {*REFERENCES, "retrel", "trunc", *(of[AGNOSTIC][base] for base in both)}
    first = [RETAIN, EXTRACT, *(name for kind in (AGNOSTIC, "", FOCUSED) for name in of.get(kind, {}).values())]
    rest = [name for name in outcomes.actions if name not in first and name not in REFERENCES]
    order = [name for name in (*first, *rest, *REFERENCES) if name in names]
    return Arms(
        operators=operators,
        choices=tuple(name for name in outcomes.actions if name not in left_out),
        order=tuple(dict.fromkeys(order)),
        names=names,
        focused=bool(operators) and all(form[name][1] == FOCUSED for name in operators.values()),
    )


def _forms(outcomes: Outcomes) -> dict[str, tuple[str, str]]:
    """Action -> operator and form. `merge-agnostic` says it; merge beside `qmerge` is agnostic, beside it focused."""
    have = set(outcomes.actions)
    short, long = any(f"q{name}" in have for name in OPERATORS), any(name.endswith("-" + AGNOSTIC) for name in have)
    said = dict(zip(outcomes.columns["action"].tolist(), outcomes.columns.get("focus", []), strict=False))
    found = {}
    for name in sorted(have):
        if name.endswith("-" + AGNOSTIC):
            found[name] = (name.removesuffix("-" + AGNOSTIC), AGNOSTIC)
        elif name[1:] in OPERATORS and name.startswith("q"):
            found[name] = (name[1:], FOCUSED)
        elif name in OPERATORS:
            found[name] = (name, AGNOSTIC if short else said.get(name) or (FOCUSED if long else ""))
    return found


def _kinds(form: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    return (kind for _, kind in form.values())


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
        self.questions, q = np.unique(column["question_id"].astype(str), return_inverse=True)
        self.every, b = np.unique(column["budget"], return_inverse=True)
        place = {name: i for i, name in enumerate(self.actions)}
        a = np.array([place[name] for name in column["action"].tolist()])
        runs, r = np.unique(column["realization"], return_inverse=True)
        self.at, self.shape = (q, b, a, r), (len(self.questions), len(self.every), len(self.actions), len(runs))

    @property
    def about(self) -> str:
        """The data in words."""
        return ", ".join(filter(None, (DATASETS.get(self.dataset, self.dataset), self.setting))) or "these rows"

    @property
    def sample(self) -> str:
        """What was measured, as a sentence of a caption."""
        talks = f" of {len(set(self.conversations))} conversations" if self.clustered else ""
        runs = f"{self.shape[3]} realizations" if self.shape[3] > 1 else "one realization"
        return f"{self.about}: {len(self.questions)} questions{talks}, {runs}, judge {self.judge}."

    @property
    def drawn(self) -> str:
        """How intervals are made, as a sentence of a caption."""
        if self.clustered:
            return (
                f"Brackets hold 95 % intervals from {self.draws:,} resamples of whole conversations, since questions of"
                " one conversation are not independent; with so few of them they are rather too narrow."
            )
        return f"Brackets hold 95 % intervals from {self.draws:,} resamples of questions, all actions paired."

    @cached_property
    def conversations(self) -> list[str]:
        """[q]"""
        return self._per_question("conversation")

    @cached_property
    def types(self) -> NDArray[np.int64]:
        """[q], the place in TYPES or -1."""
        return np.array([type_index(raw) for raw in self._per_question("type")])

    @property
    def clustered(self) -> bool:
        """Whether questions share conversations, so that these are what is drawn."""
        return len(set(self.conversations)) < len(self.questions)

    @cached_property
    def resamples(self) -> Resamples:
        """The draws of every interval: of conversations where questions share them, else of questions."""
        clusters = self.conversations if self.clustered else None
        return resample(len(self.questions), seed=self.seed, draws=self.draws, clusters=clusters)

    @cached_property
    def by_question(self) -> Resamples:
        """Draws of questions, whatever they share."""
        same = not self.clustered
        return self.resamples if same else resample(len(self.questions), seed=self.seed, draws=self.draws)

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """Those at which retention was measured; all of them where it never was."""
        if RETAIN not in self.actions:
            return tuple(self.every.tolist())
        measured = ~np.isnan(self.utility[:, :, self.actions.index(RETAIN)]).all(axis=0)
        return tuple(self.every[measured].tolist())

    @cached_property
    def runs(self) -> Array:
        """[q, b, a, r] utility."""
        return self._mean(self.verdicts, self.at, self.shape)

    @cached_property
    def utility(self) -> Array:
        """[q, b, a], the mean over realizations; retention's over all its runs."""
        return self._mean(self.verdicts, self.at[:3], self.shape[:3])

    @property
    def verdicts(self) -> Array:
        """A number for each row."""
        return np.asarray(self.table.columns[JUDGE + self.judge], np.float64)

    def mean(self, name: str) -> Array | None:
        """[q, b, a] of a column, None where the rows lack it."""
        found = self.table.columns.get(name)
        if found is None or np.isnan(found).all():
            return None
        return self._mean(found, self.at[:3], self.shape[:3])

    @cached_property
    def retained(self) -> Array:
        """[q, b, a, r]: the retention that belongs to each run: its own pair, else the plain ones, else any."""
        if RETAIN not in self.actions:
            raise InputError("there are no outcomes of retain to compare with")
        pair, mine = self.table.columns["pair"], self.table.columns["action"] == RETAIN
        q, b, _, r = self.at
        shape = (*self.shape[:2], self.shape[3])

        def over(rows: NDArray[np.bool_]) -> Array:
            return self._mean(np.where(rows, self.verdicts, np.nan), (q, b, r), shape)

        plain, some = over(mine & (pair == "")), over(mine)
        out = np.repeat(np.where(np.isnan(plain), some, plain)[:, :, None], self.shape[2], axis=2)
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
        return found[:, self._columns(self.budgets), self.actions.index(RETAIN)]

    def values(self, action: str, of: Array | None = None) -> Array:
        """[q, b of budgets]: utility of an action, or what else was measured of it."""
        return (self.utility if of is None else of)[:, self._columns(self.budgets), self.actions.index(action)]

    def gain(self, action: str) -> Array:
        """[q, b of budgets]: gain over the paired retention."""
        place = self.actions.index(action)
        return run_mean(self.runs[:, :, place] - self.retained[:, :, place])[:, self._columns(self.budgets)]

    def gains(
        self, actions: Sequence[str], *, strata: Mapping[str, NDArray[np.bool_]] | None = None,
        budgets: Sequence[int] | None = None, resamples: Resamples | None = None,
    ) -> list[Gain]:  # fmt: skip
        """A row for each stratum, action and budget that was measured."""
        budgets = self.budgets if budgets is None else budgets
        at = np.ix_(range(self.shape[0]), self._columns(budgets), [self.actions.index(name) for name in actions])
        everything = {"all": np.ones(self.shape[0], np.bool_)}
        found = by_stratum(
            self.runs[at], self.retained[at], everything if strata is None else strata, budgets=budgets,
            actions=actions, resamples=resamples or self.resamples,
        )  # fmt: skip
        return [each for each in found if each.gain.n]

    def operators(self) -> dict[str, str]:
        """The paper's operators -> their actions here."""
        if not self.arms.operators:
            raise InputError(f"{self.about}: there are no outcomes of {', '.join(OPERATORS)}")
        return dict(self.arms.operators)

    def panel(self, actions: Sequence[str]) -> Panel:
        """The questions that have every one of these actions at every budget."""
        if RETAIN not in self.actions:
            raise InputError("there are no outcomes of retain to compare with")
        places = [self.actions.index(name) for name in actions]
        there = ~np.isnan(self.utility[:, :, places])
        measured = there.any(axis=0).all(axis=1) & np.isin(self.every, self.budgets)
        whole = there[:, measured].all(axis=(1, 2))
        if not measured.any() or not whole.any():
            raise InputError(f"{self.about}: no question has outcomes of all of {', '.join(actions)}")
        q, b, a, _ = self.at
        keep = whole[q] & measured[b] & np.isin(a, places) & ~np.isnan(self.verdicts)
        rows = Outcomes({name: column[keep] for name, column in self.table.columns.items()})
        return panel(rows, actions=actions, judge=self.judge)

    def spread(self, of: Panel, values: Array) -> Array:
        """[q, b of panel]: a panel's values at this study's questions, NaN for those it left out."""
        out = np.full((self.shape[0], values.shape[1]), np.nan)
        out[np.searchsorted(self.questions, of.questions)] = values
        return out

    def cite(self, actions: Sequence[str], budgets: int | Sequence[int] | None = None, **more: Any) -> dict[str, Any]:
        """The filter that finds the rows of a value again."""
        at = {} if budgets is None else {"budget": budgets if isinstance(budgets, int) else list(budgets)}
        return {**self.where, **at, "action": list(actions), **more}

    def marks(self, label: str) -> list[str]:
        """What differs from the paper's table of that label."""
        paper, found = published.TABLES[label], []
        if self.model != published.MODEL:
            found.append(f"another model ({self.model})" if self.model else "the rows do not name their model")
        if self.dataset != paper.dataset:
            found.append(f"different data ({DATASETS.get(self.dataset, self.dataset) or 'unnamed'})")
        if self.setting != paper.setting:
            found.append(f"another setting ({self.setting or 'unnamed'}; the paper: {paper.setting})")
        if len(self.questions) != paper.questions:
            found.append(f"{len(self.questions)} questions (the paper: {paper.questions})")
        if self.shape[3] == 1 < paper.realizations:
            found.append("one realization")
        if self.judge != "llm":
            found.append(f"another judge ({self.judge})")
        if self.arms.focused:
            found.append("operators saw the question")
        if absent := [name for name in OPERATORS if self.arms.operators and name not in self.arms.operators]:
            found.append(f"{' and '.join(absent)} not measured")
        return found

    def _columns(self, budgets: Sequence[int]) -> list[int]:
        return [int(place) for place in np.searchsorted(self.every, budgets)]

    def _per_question(self, name: str) -> list[str]:
        out = [""] * self.shape[0]
        for q, value in zip(self.at[0].tolist(), self.table.columns[name].tolist(), strict=True):
            out[q] = value
        return out

    @staticmethod
    def _mean(values: Array, at: tuple[NDArray[np.intp], ...], shape: tuple[int, ...]) -> Array:
        """The mean of the rows of each cell, NaN where there are none."""
        there, flat = ~np.isnan(values), np.ravel_multi_index(at, shape)
        size = math.prod(shape)
        sums = np.bincount(flat[there], values[there], minlength=size)
        counts = np.bincount(flat[there], minlength=size)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(shape)


class _Report:
    """The studies in some outcomes, and the policies fitted to them, each once."""

    def __init__(self, outcomes: Outcomes, *, judge: str | None, draws: int, seed: int, repeats: int) -> None:
        if judge is not None and judge not in outcomes.judges:
            raise InputError(f"no judge {judge!r}; there are {', '.join(outcomes.judges)}")
        self.judge, self.draws, self.seed, self.repeats = judge, draws, seed, repeats
        marked = outcomes.columns.get("abstention", np.full(len(outcomes), "", object)) == "yes"
        self.models = self._studies(outcomes, ~marked)
        self.studies = [max(some, key=lambda study: len(study.table)) for some in self.models]
        self.silent = [some[0] for some in self._studies(outcomes, marked)]
        self._fitted: dict[tuple[int, str], CrossFit] = {}

    def _studies(self, outcomes: Outcomes, mask: NDArray[np.bool_]) -> list[list[Study]]:
        """The studies of each dataset and setting, one a model."""
        columns = outcomes.columns
        empty = np.full(len(outcomes), "", object)
        key = [columns.get(name, empty) for name in ("dataset", "setting", "model", "reader")]
        groups: dict[tuple[str, ...], list[int]] = {}
        for row in np.flatnonzero(mask).tolist():
            groups.setdefault(tuple(str(part[row]) for part in key), []).append(row)
        made: dict[tuple[str, ...], list[Study]] = {}
        for names in sorted(groups, key=_place):
            several = sum(other[:2] == names[:2] for other in groups) > 1
            table = Outcomes({name: column[groups[names]] for name, column in columns.items()})
            if (found := self._study(table, names, several)) is not None:
                made.setdefault(names[:2], []).append(found)
        return list(made.values())

    def _study(self, table: Outcomes, names: tuple[str, ...], several: bool) -> Study | None:
        where: dict[str, Any] = {"dataset": names[0], "setting": names[1]}
        if several:
            where |= {name: value for name, value in zip(("model", "reader"), names[2:], strict=True) if value}
        if "abstention" in table.columns:
            where["abstention"] = sorted(set(table.columns["abstention"].tolist()))
        judges = [name for name in table.judges if not np.isnan(table.columns[JUDGE + name]).all()]
        judge = self.judge or ("llm" if "llm" in judges else next(iter(judges), ""))
        if judge not in judges:
            return None
        return Study(table, where, model=_model(*names[2:]), judge=judge, draws=self.draws, seed=self.seed)

    def pick(self, label: str, why: str, only: Callable[[Study], bool] = lambda study: True) -> Study:
        """The study nearest to that of the paper's table: its setting first, then its dataset."""
        paper = published.TABLES[label]

        def far(study: Study) -> tuple[bool, bool, bool]:
            return (
                study.setting != paper.setting,
                study.dataset != paper.dataset,
                not study.dataset.startswith(paper.dataset),
            )

        found = sorted(filter(only, self.studies), key=far)
        if not found:
            raise InputError(why)
        return found[0]

    def main(self, label: str) -> Study:
        """The study of the paper's controlled tables, or what comes nearest."""
        return self.pick(label, "there are no outcomes of questions that memory answers")

    def routed(self, study: Study) -> CrossFit:
        """The paper's policies over its actions, but for the slow one."""
        learners = {name: policy for name, policy in LEARNERS.items() if name != "MLP"}
        return self._fit(study, "routed", [RETAIN, *study.operators().values()], {"retention": always(0), **learners})

    def nonlinear(self, study: Study) -> CrossFit:
        """The MLP on the folds of `routed`."""
        return self._fit(study, "MLP", [RETAIN, *study.operators().values()], {"MLP": LEARNERS["MLP"]})

    def climbed(self, study: Study) -> CrossFit:
        """Policies of one call and ladders over what a product would choose between."""
        names = (REFERENCE, "direct", "calibrated", "certified")
        policies = {"retention": always(0)} | {name: LEARNERS[name] for name in names}
        return self._fit(study, "climbed", study.arms.choices, policies, LADDERS)

    def _fit(
        self, study: Study, kind: str, actions: Sequence[str], policies: Mapping[str, Policy],
        ladders: Mapping[str, Policy] | None = None,
    ) -> CrossFit:  # fmt: skip
        key = (id(study), kind)
        if key not in self._fitted:
            made = study.panel(actions)
            every = {**policies, **(ladders or {} if made.abstained is not None else {})}
            every = {name: each for name, each in every.items() if each is not evidence_fit or "fit" in made.features}
            rules = Rules(group=_group(study), seed=self.seed, rungs=_rungs(len(made.actions)))
            self._fitted[key] = crossfit(made, policies=every, rules=rules, repeats=self.repeats)
        return self._fitted[key]


def _place(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Where a dataset and setting stand in a report: the known ones first."""
    known, settings = list(DATASETS), list(SETTINGS)
    dataset, setting = names[0], names[1]
    return (
        known.index(dataset) if dataset in known else len(known),
        dataset,
        settings.index(setting) if setting in settings else len(settings),
        names,
    )


def _model(writer: str, reader: str) -> str:
    return f"{writer} writes, {reader} reads" if writer and reader and writer != reader else reader or writer


def _group(study: Study) -> str:
    return "conversation" if study.clustered else "question"


def _rungs(actions: int) -> int:
    """Rungs of a ladder over so many actions."""
    fits = [rungs for rungs in range(1, RUNGS + 1) if sum(perm(actions, k) for k in range(1, rungs + 1)) <= ORDERS]
    return max(fits, default=1)


# -- numbers as text ---------------------------------------------------------------------------------------------------


def _number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """.480, or +.480 where signed; a dash for what is not there."""
    if not math.isfinite(value):
        return DASH
    text = f"{round(value, digits) + 0.0:{'+' if signed else ''}.{digits}f}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def _bracket(low: float, high: float, *, signed: bool = True) -> str:
    return f"[{_number(low, signed=signed)}, {_number(high, signed=signed)}]"


def _change(mean: float, low: float, high: float) -> str:
    return f"{_number(mean, signed=True)} {_bracket(low, high)}"


def _count(value: float) -> str:
    """Whole numbers as such, means over repeats with a decimal."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def _p(value: float) -> str:
    return "below .001" if value < 0.001 else _number(value)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _value(text: str, found: Estimate, rows: Mapping[str, Any]) -> Value | str:
    """The value with its interval, a dash where nothing was measured."""
    if not found.n:
        return DASH
    return Value(text, _finite(found.mean), _finite(found.low), _finite(found.high), rows)


def _gained(found: Estimate, rows: Mapping[str, Any]) -> Value | str:
    return _value(_change(found.mean, found.low, found.high), found, rows)


def _shared(found: Estimate, rows: Mapping[str, Any]) -> Value | str:
    """An accuracy or a rate."""
    return _value(_number(found.mean), found, rows)


def _plain(value: float, text: str, rows: Mapping[str, Any]) -> Value | str:
    """A number without an interval."""
    return Value(text, mean=_finite(value), rows=rows) if math.isfinite(value) else DASH


# -- the paper's tables ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Body:
    columns: tuple[str, ...]
    rows: list[Cells]
    note: str = ""  # what a caption adds of these rows
    marks: Sequence[str] = ()
    published: Sequence[tuple[str, ...]] = ()


def _operator_gains(report: _Report) -> _Body:
    why = "there are no rows of LongMemEval or of data of your own; LoCoMo has the next table"
    study = report.pick("operatorstats", why, lambda study: study.dataset != LOCOMO)
    name = {action: operator.capitalize() for operator, action in study.operators().items()}
    rows: list[Cells] = [
        (name[g.action], str(g.budget), _gained(g.gain, cited), _plain(g.p, _p(g.p), cited))
        for g in study.gains(list(name))
        for cited in [study.cite([RETAIN, g.action], g.budget)]
    ]
    paper = [
        (row["operator"].capitalize(), str(row["budget"]), _change(row["gain"], row["low"], row["high"]), _paper_p(row))
        for row in published.OPERATORSTATS.rows
    ]
    columns = ("Operator", "Budget", "Paired gain [95 % CI]", "one-sided p")
    return _Body(columns, rows, f"{study.sample} {study.drawn}", study.marks("operatorstats"), paper)


def _paper_p(row: published.Row) -> str:
    return "below .001" if row["p"] == "<.001" else _number(row["p"])


def _locomo_gains(report: _Report) -> _Body:
    study = report.pick("locomostats", "there are no rows of LoCoMo", lambda study: study.dataset == LOCOMO)
    name = {action: operator.capitalize() for operator, action in study.operators().items()}
    clustered = {(g.action, g.budget): g.gain for g in study.gains(list(name))}
    rows: list[tuple[int, Cells]] = []
    for g in study.gains(list(name), resamples=study.by_question):
        cited, whole, did = study.cite([RETAIN, g.action], g.budget), clustered[g.action, g.budget], g.changes.questions
        cells: Cells = (
            str(g.budget), name[g.action], _value(_number(g.gain.mean, signed=True), g.gain, cited),
            _value(_bracket(g.gain.low, g.gain.high), g.gain, cited),
            _value(_bracket(whole.low, whole.high), whole, cited) if study.clustered else DASH,
            f"{did.helped}/{did.harmed}",
        )  # fmt: skip
        rows.append((g.budget, cells))
    paper = [
        (
            str(row["budget"]), row["operator"].capitalize(), _number(row["gain"], signed=True),
            _bracket(row["low"], row["high"]), DASH, f"{row['helped']}/{row['harmed']}",
        )
        for row in published.LOCOMOSTATS.rows
    ]  # fmt: skip
    columns = (
        "Budget", "Operator", "Paired gain", "95 % interval, questions", "95 % interval, conversations",
        "Helped/harmed",
    )  # fmt: skip
    by_budget = [cells for _, cells in sorted(rows, key=lambda row: row[0])]
    note = f"{study.sample} Both intervals come from {study.draws:,} resamples, of questions and of conversations."
    return _Body(columns, by_budget, note, study.marks("locomostats"), paper)


def _abstract_rows(study: Study) -> Iterator[tuple[Gain, tuple[Value | str, ...]]]:
    """Retention, abstract, gain and helped/harmed at each budget."""
    if "abstract" not in study.operators():
        raise InputError(f"{study.about}: there are no outcomes of abstract")
    action = study.operators()["abstract"]
    for g in study.gains([action]):
        cited, did = study.cite([RETAIN, action], g.budget), g.changes.questions
        yield g, (
            str(g.budget), _plain(g.retention, _number(g.retention), study.cite([RETAIN], g.budget)),
            _plain(g.accuracy, _number(g.accuracy), study.cite([action], g.budget)), _gained(g.gain, cited),
            f"{did.helped}/{did.harmed}",
        )  # fmt: skip


def _paper_abstract(row: published.Row) -> tuple[str, ...]:
    gain = _change(row["gain"], row["low"], row["high"])
    accuracy = (_number(row["retention"]), _number(row["abstract"]))
    return (str(row["budget"]), *accuracy, gain, f"{row['helped']}/{row['harmed']}")


def _cross_model(report: _Report) -> _Body:
    several = [some for some in report.models if len(some) > 1]
    if not several:
        raise InputError("the rows are of one model: label the same questions with a second one")
    some = next(
        (some for some in several if (some[0].dataset, some[0].setting) == (LONGMEMEVAL, CONTROLLED)), several[0]
    )
    rows: list[Cells] = [(study.model or "unnamed", *cells) for study in some for _, cells in _abstract_rows(study)]
    marks = [mark for mark in some[0].marks("crossmodel") if not mark.startswith("another model")]
    if len({tuple(study.questions.tolist()) for study in some}) > 1:
        marks.append("the models were not asked the same questions")
    paper = [(row["model"], *_paper_abstract(row)) for row in published.CROSSMODEL.rows]
    columns = ("Model", "Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed")
    return _Body(columns, rows, f"{some[0].sample} {some[0].drawn}", marks, paper)


def _full_history(report: _Report) -> _Body:
    why = "there are no rows of a full history, where a retriever finds the notes"
    study = report.pick("retrieved", why, lambda study: study.setting in SETTINGS and study.setting != CONTROLLED)
    rows: list[Cells] = []
    for g, cells in _abstract_rows(study):
        both = np.stack([_at(study, run_mean(part), g) for part in (study.runs, study.retained)])
        best = interval(both.max(axis=0), study.resamples)  # NaN where either is
        rows.append((*cells, _shared(best, study.cite([RETAIN, g.action], g.budget))))
    paper = [(*_paper_abstract(row), _number(row["oracle"])) for row in published.RETRIEVED.rows]
    columns = ("Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed", "Binary oracle")
    return _Body(columns, rows, f"{study.sample} {study.drawn}", study.marks("retrieved"), paper)


def _at(study: Study, values: Array, g: Gain) -> Array:
    """[q] of [q, b, a], at a gain's budget and action."""
    return values[:, study.every.tolist().index(g.budget), study.actions.index(g.action)]


def _per_type(report: _Report) -> _Body:
    study = report.main("pertype")
    raw = np.array(study._per_question("type"), object)
    strata = {KINDS[name]: study.types == place for place, name in enumerate(TYPES)}
    strata |= {"Other": study.types < 0, "All": np.ones(len(raw), np.bool_)}
    strata = {name: mask for name, mask in strata.items() if mask.any()}
    operators, budget = study.operators(), study.budgets[-1]
    found = {(g.stratum, g.action): g for g in study.gains(list(operators.values()), strata=strata, budgets=[budget])}
    rows: list[Cells] = []
    for name, mask in strata.items():
        cells: list[Value | str] = [name, str(int(mask.sum()))]
        for operator in OPERATORS:
            g = found.get((name, operators.get(operator, "")))
            cited = study.cite([RETAIN, operators.get(operator, "")], budget, type=sorted(set(raw[mask].tolist())))
            cells.append(DASH if g is None else _value(_by_run(g), g.gain, cited))
        rows.append(tuple(cells))
    paper = [
        (kind, str(some[0]["n"]), *(_paper_type(row) for row in some))
        for kind in dict.fromkeys(row["type"] for row in published.PERTYPE.rows)
        for some in [[row for row in published.PERTYPE.rows if row["type"] == kind]]
    ]
    columns = ("Question type", "n", *(name.capitalize() for name in OPERATORS))
    return _Body(columns, rows, f"At {budget} tokens. {study.sample}", study.marks("pertype"), paper)


def _by_run(g: Gain) -> str:
    did = g.changes.per_run
    return f"{_number(g.gain.mean, signed=True)} ({did.helped:.1f}/{did.harmed:.1f})"


def _paper_type(row: published.Row) -> str:
    return f"{_number(row['gain'], signed=True)} ({row['helped']:.1f}/{row['harmed']:.1f})"


def _routing(report: _Report) -> _Body:
    study = report.main("routerbaselines")
    fitted = report.routed(study)
    order = [name for name in POLICIES if name in fitted.results and name not in (VOTE, TWICE)]
    rows = [_policy_row(study, fitted.panel, POLICIES[name], fitted.results[name]) for name in order]
    budgets = fitted.panel.budgets
    columns = ("Policy", *_heads(budgets), "Macro")
    note = f"{study.sample} {_folds(fitted)}"
    marks = [*study.marks("routerbaselines"), *_gaps(study, fitted.panel)]
    return _Body(columns, rows, note, marks, _paper_policies(published.ROUTERBASELINES, budgets))


def _policy_row(study: Study, of: Panel, name: str, found: Result) -> Cells:
    """Accuracy with harms in parentheses at each budget, and the mean over budgets."""
    utility, harms = study.spread(of, found.utility), found.harmed.sum(axis=0)
    cells = [
        _value(f"{_number(each.mean)} ({_count(harms[b])})", each, study.cite(of.actions, of.budgets[b]))
        for b, each in enumerate(intervals(utility, study.resamples))
    ]
    macro = interval(run_mean(utility), study.resamples)
    return (name, *cells, _shared(macro, study.cite(of.actions, of.budgets)))


def _heads(budgets: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{budget} tokens" for budget in budgets)


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


def _paper_policies(paper: published.Published, budgets: Sequence[int]) -> list[tuple[str, ...]]:
    found = {(row["policy"], row["budget"]): row for row in paper.rows}
    out = []
    for name in dict.fromkeys(row["policy"] for row in paper.rows):
        rows = [found.get((name, budget)) for budget in budgets]
        cells = (f"{_number(row['accuracy'])} ({row['harms']})" if row else DASH for row in rows)
        macro = found[name, 32]["macro"]
        out.append((name, *cells, _number(macro) if macro != "-" else DASH))
    return out


def _budget_pressure(report: _Report) -> _Body:
    study = report.main("budgetpressure")
    rows: list[Cells] = []
    for b, budget in enumerate(study.budgets):
        fit, cited = study.fit[:, b], study.cite([RETAIN], budget)
        known = fit[~np.isnan(fit)]
        if not len(known):
            continue
        full, zero = 100 * float((known >= 1).mean()), 100 * float((known <= 0).mean())
        shares = [_plain(share, f"{share:.1f}", cited) for share in (full, zero, 100 - full - zero)]
        mean = _shared(interval(fit, study.resamples), cited)
        rows.append((str(budget), mean, *shares, next(name for below, name in REGIMES if full < below)))
    paper = [
        (str(row["budget"]), _number(row["fit"]), *(f"{row[name]:.1f}" for name in ("full", "zero", "partial")), row["regime"])
        for row in published.BUDGETPRESSURE.rows
    ]  # fmt: skip
    columns = ("Budget", "Mean fit", "Full (%)", "Zero (%)", "Partial (%)", "Regime")
    return _Body(columns, rows, study.sample, study.marks("budgetpressure"), paper)


def _operator_pairs(report: _Report) -> _Body:
    study = report.main("operatorpairwise")
    operators = study.operators()
    pairs = [(operators[one], operators[two]) for one, two in PAIRS if one in operators and two in operators]
    if not pairs:
        raise InputError(f"{study.about}: there are outcomes of one operator only")
    utility = np.stack([study.values(name) for name in operators.values()], axis=2)
    found = operator_pairs(
        utility, budgets=study.budgets, actions=list(operators.values()), resamples=study.resamples, pairs=pairs
    )
    by_cell = {(each.first, each.second, each.budget): each for each in found}
    rows: list[Cells] = []
    for budget in study.budgets:
        cells: list[Value | str] = [str(budget)]
        for names in PAIRS:
            one, two = (operators.get(name, "") for name in names)
            pair = by_cell.get((one, two, budget))
            cells.append(DASH if pair is None else _gained(pair.difference, study.cite([one, two], budget)))
        rows.append(tuple(cells))
    paper = [
        (str(budget), *(_change(row["difference"], row["low"], row["high"]) for row in some))
        for budget in dict.fromkeys(row["budget"] for row in published.OPERATORPAIRWISE.rows)
        for some in [[row for row in published.OPERATORPAIRWISE.rows if row["budget"] == budget]]
    ]
    columns = ("Budget", *(f"{one.capitalize()} - {two.capitalize()}" for one, two in PAIRS))
    return _Body(columns, rows, f"{study.sample} {study.drawn}", study.marks("operatorpairwise"), paper)


def _fit_strata(report: _Report) -> _Body:
    study = report.main("mechanismfit")
    strata = {"incomplete": study.fit < 1, "complete": study.fit >= 1}  # NaN is in neither
    enough = [b for b, _ in enumerate(study.budgets) if min(mask[:, b].sum() for mask in strata.values()) >= STRATUM]
    if not enough:
        raise InputError(f"at no budget are there {STRATUM} questions whose notes all fit and {STRATUM} whose do not")
    budgets = [study.budgets[b] for b in enough]
    inside = {name: mask[:, enough] for name, mask in strata.items()}
    operators = {action: name for name, action in study.operators().items()}
    found = {(g.action, g.budget, g.stratum): g for g in study.gains(list(operators), strata=inside, budgets=budgets)}
    rows: list[Cells] = []
    for action, name in operators.items():
        for b, budget in enumerate(budgets):
            for stratum, mask in inside.items():
                if (g := found.get((action, budget, stratum))) is not None:
                    cited = study.cite([RETAIN, action], budget, question_id=study.questions[mask[:, b]].tolist())
                    did = (g.changes.rate.helped, g.changes.rate.harmed)
                    rows.append(
                        (
                            name.capitalize(),
                            str(budget),
                            stratum,
                            _value(_stratum(g.gain.mean, *did, g.gain.n), g.gain, cited),
                        )
                    )
    paper = [
        (row["operator"].capitalize(), str(row["budget"]), row["fit"],
         _stratum(row["gain"], row["helped"], row["harmed"], row["n"]))
        for row in published.MECHANISMFIT.rows
    ]  # fmt: skip
    columns = ("Operator", "Budget", "Retention fit", "Gain (helped/harmed; n)")
    return _Body(columns, rows, study.sample, study.marks("mechanismfit"), paper)


def _stratum(gain: float, helped: float, harmed: float, n: int) -> str:
    return f"{_number(gain, signed=True)} ({_number(helped, 2)}/{_number(harmed, 2)}; {n})"


def _joint_routing(report: _Report) -> _Body:
    study = report.main("unified")
    fitted = report.routed(study)
    of, rows = fitted.panel, list[Cells]()
    for name in ("direct", "calibrated", "certified"):
        found = fitted.results[name]
        utility, gain = study.spread(of, found.utility), study.spread(of, found.utility - of.retentions)
        measured = zip(intervals(utility, study.resamples), intervals(gain, study.resamples), strict=True)
        for b, (accuracy, gained) in enumerate(measured):
            cited = study.cite(of.actions, of.budgets[b])
            harms = float(found.harmed[:, b].sum())
            cells = (_shared(accuracy, cited), _gained(gained, cited), _plain(harms, _count(harms), cited))
            rows.append((name.capitalize(), str(of.budgets[b]), *cells))
    paper = [
        (row["policy"], str(row["budget"]), _number(row["accuracy"]), _change(row["gain"], row["low"], row["high"]),
         str(row["harms"]))
        for row in published.UNIFIED.rows
    ]  # fmt: skip
    columns = ("Policy", "Budget", "Accuracy", "Gain [95 % CI]", "Harm")
    marks = [*study.marks("unified"), *_gaps(study, of)]
    return _Body(columns, rows, f"{study.sample} {_folds(fitted)} {study.drawn}", marks, paper)


def _mlp_check(report: _Report) -> _Body:
    study = report.main("mlpcapacity")
    linear, other = report.routed(study), report.nonlinear(study)
    of = linear.panel
    results = (linear.results["direct"], other.results["MLP"])
    both = np.stack([study.spread(of, found.utility) for found in results], axis=2)
    pairs = operator_pairs(
        both, budgets=of.budgets, actions=("ridge", "MLP"), resamples=study.resamples, pairs=[("MLP", "ridge")]
    )
    rows: list[Cells] = []
    for b, pair in enumerate(pairs):
        cited = study.cite(of.actions, pair.budget)
        accuracy = (_shared(each, cited) for each in intervals(both[:, b], study.resamples))
        rows.append((str(pair.budget), *accuracy, _gained(pair.difference, cited), _plain(pair.p, _p(pair.p), cited)))
    paper = [
        (str(row["budget"]), _number(row["ridge"]), _number(row["mlp"]), _change(row["difference"], row["low"], row["high"]), DASH)
        for row in published.MLPCAPACITY.rows
    ]  # fmt: skip
    columns = ("Budget", "Ridge accuracy", "MLP accuracy", "Difference from ridge [95 % CI]", "two-sided p")
    marks = [*study.marks("mlpcapacity"), *_gaps(study, of)]
    return _Body(columns, rows, f"{study.sample} {_folds(linear)} {study.drawn}", marks, paper)


def _independent(report: _Report) -> _Body:
    why = f"no rows are marked {', '.join(FOLDS)} in a column fold, which keeps the questions apart"
    study = report.pick("routeAgate", why, lambda study: set(FOLDS) <= set(study._per_question("fold")))
    names = {action: f"Fixed {name}" for name, action in study.operators().items()}
    whole = study.panel([RETAIN, *names])
    policies: dict[str, Policy] = {
        "Retention": always(0),
        **{names[action]: always(place) for place, action in enumerate(whole.actions) if action in names},
        "Per-budget policy selected on fit data": trained_fixed(0), "Direct ridge": Direct(),
        "Frozen safe router": Calibrated(), "Certified safe router": Calibrated(certified=True),
    }  # fmt: skip
    parts = _parts(study, whole)
    rules = Rules(group=_group(study), seed=report.seed, cap=GATE_CAP, rungs=_rungs(len(study.arms.choices)))
    rows = [_gate_row(study, parts, name, _walked(parts, policy, rules)) for name, policy in policies.items()]
    best = np.argmax(parts["gate"].utility, axis=2)[:, :, None]
    rows.append(_gate_row(study, parts, "Action oracle", walk(parts["gate"], best)))
    rows += _gate_ladder(study, rules, whole.budgets)
    gate = parts["gate"]
    sizes = ", ".join(f"{len(part.questions)} {name}" for name, part in parts.items())
    note = f"{study.sample} {sizes}. Calibration may observe harm in {GATE_CAP:.0%} of its questions."
    marks = [mark for mark in study.marks("routeAgate") if " questions (" not in mark]
    if len(gate.questions) != published.ROUTE_A_GATE.questions:
        marks.append(f"{len(gate.questions)} gate questions (the paper: {published.ROUTE_A_GATE.questions})")
    columns = ("Policy", *_heads(whole.budgets), "Macro")
    marks += _gaps(study, whole)
    return _Body(columns, rows, note, marks, _paper_policies(published.ROUTE_A_GATE, whole.budgets))


def _parts(study: Study, whole: Panel) -> dict[str, Panel]:
    fold = dict(zip(study.questions.tolist(), study._per_question("fold"), strict=True))
    dealt = np.array([fold[name] for name in whole.questions])
    parts = {name: whole.take(np.flatnonzero(dealt == name)) for name in FOLDS}
    if empty := [name for name, part in parts.items() if not part.questions]:
        raise InputError(f"no {empty[0]} question has outcomes of all of {', '.join(whole.actions)}")
    return parts


def _walked(parts: Mapping[str, Panel], policy: Policy, rules: Rules) -> Walked:
    """What a policy came to at the gate; it was made before it saw it."""
    frozen = policy(parts["fit"], parts["calibration"], rules)
    return walk(parts["gate"], frozen(parts["gate"].hidden()))


def _gate_row(study: Study, parts: Mapping[str, Panel], name: str, went: Walked) -> Cells:
    gate = parts["gate"]
    harmed = (went.replaced & (went.utility < gate.retentions - 1e-12)).astype(float)
    nothing = np.zeros((*went.utility.shape, len(gate.actions)))
    spent = (went.calls, went.read, went.generated)
    found = Result(name, went.utility, harmed, went.replaced.astype(float), *spent, nothing, ~np.isnan(went.utility))
    return tuple(
        replace(cell, rows={**cell.rows, "fold": "gate"}) if isinstance(cell, Value) and cell.rows else cell
        for cell in _policy_row(study, gate, name, found)
    )


def _gate_ladder(study: Study, rules: Rules, budgets: Sequence[int]) -> list[Cells]:
    """Ours, over what a product would choose between."""
    try:
        whole = study.panel(study.arms.choices)
        parts = _parts(study, whole)
    except InputError:
        return []
    if whole.budgets != tuple(budgets) or whole.abstained is None:
        return []
    policies = {"Best fixed action, all actions": trained_fixed(0), "Ladder, all actions": LADDERS["ladder"]}
    return [_gate_row(study, parts, name, _walked(parts, policy, rules)) for name, policy in policies.items()]


# -- ours --------------------------------------------------------------------------------------------------------------


def _budgets(studies: Sequence[Study]) -> list[int]:
    return sorted({budget for study in studies for budget in study.budgets})


def _under(study: Study, budgets: Sequence[int], cells: Mapping[int, Value | str]) -> tuple[Value | str, ...]:
    """Cells in the columns of several studies' budgets."""
    return tuple(cells.get(budget, DASH) for budget in budgets)


def _all_actions(report: _Report) -> _Body:
    budgets, rows = _budgets(report.studies), list[Cells]()
    for study in report.studies:
        for action in study.arms.order:
            values = study.values(action)
            found = intervals(values, study.resamples)
            cells = {b: _shared(each, study.cite([action], b)) for b, each in zip(study.budgets, found, strict=True)}
            rows.append((study.about, study.arms.names[action], *_under(study, budgets, cells), *_aside(study, action)))
    columns = ("Data", "Action", *_heads(budgets), "Macro [95 % CI]")
    return _Body(columns, rows, _samples(report.studies), _runs_mark(report.studies))


def _aside(study: Study, action: str) -> tuple[Value | str, ...]:
    """The mean over budgets; of an action that knows no budget, all there is."""
    known = ~np.isnan(study.values(action)).all(axis=0)
    whole = study.values(action) if known.all() else study.utility[:, :, study.actions.index(action)]
    if known.any() and not known.all():  # a mean over other budgets would not compare
        return (DASH,)
    found = interval(run_mean(whole), study.resamples)
    text = f"{_number(found.mean)} {_bracket(found.low, found.high, signed=False)}"
    return (_value(text, found, study.cite([action])),)


def _samples(studies: Sequence[Study]) -> str:
    if not studies:
        raise InputError("there are no outcomes of questions that memory answers")
    drawn = dict.fromkeys(study.drawn for study in studies)
    return " ".join([*(study.sample for study in studies), *drawn])


def _runs_mark(studies: Sequence[Study]) -> list[str]:
    marks = ["one realization"] if all(study.shape[3] == 1 for study in studies) else []
    return marks + [f"{study.about}: operators saw the question" for study in studies if study.arms.focused]


SPENDING = {
    "context_tokens": ("Context tokens", 1), "prompted_tokens": ("Tokens read to write it", 1),
    "generated_tokens": ("Tokens written", 1), "model_calls": ("Model calls", 2),
    "reader_tokens": ("Reader tokens", 1), "seconds": ("Seconds", 2),
}  # fmt: skip


def _cost(report: _Report) -> _Body:
    rows, columns = list[Cells](), {name: None for name in SPENDING}
    means = {(id(study), name): study.mean(name) for study in report.studies for name in SPENDING}
    if all(mean is None for mean in means.values()):
        raise InputError(f"the rows do not say what was spent (columns {', '.join(SPENDING)})")
    for study in report.studies:
        for action in study.arms.order:
            cells = [
                _spent(study, action, mean, SPENDING[name][1]) for name in columns for mean in [means[id(study), name]]
            ]
            rows.append((study.about, study.arms.names[action], *cells))
    heads = tuple(head for head, _ in SPENDING.values())
    return _Body(("Data", "Action", *heads), rows, _samples(report.studies), _runs_mark(report.studies))


def _spent(study: Study, action: str, mean: Array | None, digits: int) -> Value | str:
    if mean is None:
        return DASH
    found = interval(run_mean(mean[:, :, study.actions.index(action)]), study.resamples)
    return _value(f"{found.mean:.{digits}f}", found, study.cite([action]))


def _unsupported(report: _Report) -> _Body:
    studies = [study for study in report.studies if study.mean("unsupported") is not None]
    if not studies:
        raise InputError("the rows do not say whether a claim lacks support (column unsupported)")
    return _rates(studies, "unsupported")


def _rates(studies: Sequence[Study], column: str, *, flip: bool = False) -> _Body:
    """The mean of a column for each action and budget."""
    budgets, rows = _budgets(studies), list[Cells]()
    for study in studies:
        mean = study.mean(column)
        assert mean is not None
        for action in study.arms.order:
            values = study.values(action, 1 - mean if flip else mean)
            if not np.isnan(values).all():
                found = zip(study.budgets, intervals(values, study.resamples), strict=True)
                cells = {budget: _shared(each, study.cite([action], budget)) for budget, each in found}
                rows.append((study.about, study.arms.names[action], *_under(study, budgets, cells)))
    return _Body(("Data", "Action", *_heads(budgets)), rows, _samples(studies), _runs_mark(studies))


def _judges(report: _Report) -> _Body:
    judges = sorted({name for study in report.studies for name in study.table.judges})
    if len(judges) < 2:
        raise InputError("there are the verdicts of one judge only")
    first = report.studies[0].judge
    others = [name for name in judges if name != first]
    rows: list[Cells] = []
    graded = False
    for study in report.studies:
        for action in (*study.arms.order, None):
            mine = np.ones(len(study.table), bool) if action is None else study.table.columns["action"] == action
            cited = study.cite(study.actions if action is None else [action])
            verdicts = {name: study.table.columns[JUDGE + name][mine] for name in judges}
            graded |= any(_graded(each) for each in verdicts.values())
            accuracy = [_accuracy(each, cited) for each in (verdicts[name] for name in (first, *others))]
            agreed = [cell for name in others for cell in _agreement(verdicts[first], verdicts[name], cited)]
            rows.append((study.about, "All" if action is None else study.arms.names[action], *accuracy, *agreed))
    pairs = [head for name in others for head in (f"{first} and {name} agree", f"kappa, {first} and {name}")]
    marks = ["graded verdicts count as right from one half on where agreement is counted"] if graded else []
    columns = ("Data", "Action", *(f"Right by {name}" for name in (first, *others)), *pairs)
    return _Body(columns, rows, _samples(report.studies), marks + _runs_mark(report.studies))


def _graded(verdicts: Array) -> bool:
    return bool((~np.isin(verdicts[~np.isnan(verdicts)], (0, 1))).any())


def _accuracy(verdicts: Array, cited: Mapping[str, Any]) -> Value | str:
    known = verdicts[~np.isnan(verdicts)]
    mean = float(known.mean()) if len(known) else math.nan
    return _plain(mean, _number(mean), cited)


def _agreement(one: Array, two: Array, cited: Mapping[str, Any]) -> tuple[Value | str, Value | str]:
    known = ~np.isnan(one) & ~np.isnan(two)
    if not known.any():
        return DASH, DASH
    a, b = (one[known] >= 0.5).astype(float), (two[known] >= 0.5).astype(float)
    raw, chance = float((a == b).mean()), kappa(a, b)
    return _plain(raw, _number(raw), cited), _plain(chance, _number(chance), cited)


def _per_token(report: _Report) -> _Body:
    studies = [study for study in report.studies if study.mean("context_tokens") is not None]
    if not studies:
        raise InputError("the rows do not say how many tokens were read (column context_tokens)")
    budgets, rows = _budgets(studies), list[Cells]()
    for study in studies:
        tokens = study.mean("context_tokens")
        for action in study.arms.order:
            right = intervals(study.values(action), study.resamples)
            read = intervals(study.values(action, tokens), study.resamples)
            cells = {
                budget: _plain(100 * u.mean / t.mean, _number(100 * u.mean / t.mean), study.cite([action], budget))
                for budget, u, t in zip(study.budgets, right, read, strict=True)
                if u.n and t.mean > 0
            }
            if cells:
                rows.append((study.about, study.arms.names[action], *_under(study, budgets, cells)))
    return _Body(("Data", "Action", *_heads(budgets)), rows, _samples(studies), _runs_mark(studies))


WITHIN = (3, 1)  # points below the best


def _needed(report: _Report) -> _Body:
    budgets, rows = _budgets(report.studies), list[Cells]()
    for study in report.studies:
        for action in study.arms.order:
            values = study.values(action)
            if not np.isnan(values).all(axis=0).any():
                named = (study.about, study.arms.names[action])
                rows.append((*named, *_buys(study, study.budgets, values, [action], budgets)))
        rows += _policy_buys(report, study, budgets)
    columns = ("Data", "Action or policy", *_heads(budgets), *(f"Budget within {points} points" for points in WITHIN))
    return _Body(columns, rows, _samples(report.studies), _runs_mark(report.studies))


def _policy_buys(report: _Report, study: Study, budgets: Sequence[int]) -> list[Cells]:
    """The row of the policy of highest mean accuracy; none where nothing can be cross-fitted."""
    try:
        fitted = report.climbed(study)
    except InputError:
        return []
    honest = [found for name, found in fitted.results.items() if name not in (*ORACLES, TWICE)]
    best, of = max(honest, key=lambda found: found.macro), fitted.panel
    values = study.spread(of, best.utility)
    name = f"Best policy: {POLICIES[best.name]}"
    return [(study.about, name, *_buys(study, of.budgets, values, of.actions, budgets))]


def _buys(
    study: Study, at: Sequence[int], values: Array, actions: Sequence[str], budgets: Sequence[int]
) -> tuple[Value | str, ...]:
    """Accuracy at each budget, and the smallest budgets that come near the best."""
    found = intervals(values, study.resamples)
    cells = {budget: _shared(each, study.cite(actions, budget)) for budget, each in zip(at, found, strict=True)}
    means = np.array([[each.mean for each in found]])
    drawn = replicates(values, study.resamples)
    drawn = drawn[~np.isnan(drawn).any(axis=1)]
    return (*_under(study, budgets, cells), *(_smallest(study, at, means, drawn, actions, p) for p in WITHIN))


def _smallest(
    study: Study, at: Sequence[int], means: Array, drawn: Array, actions: Sequence[str], points: int
) -> Value | str:
    cited, needed = study.cite(actions, at), _enough(at, means, points)[0]
    if not len(drawn):
        return _plain(needed, f"{needed:.0f}", cited)
    ends = np.sort(_enough(at, drawn, points))
    last = len(ends) - 1
    low, high = ends[math.floor(0.025 * last)], ends[math.ceil(0.975 * last)]
    return Value(f"{needed:.0f} [{low:.0f}, {high:.0f}]", float(needed), float(low), float(high), cited)


def _enough(at: Sequence[int], means: Array, points: int) -> Array:
    """The smallest budget whose mean is within so many points of the row's best."""
    near = means >= means.max(axis=1, keepdims=True) - points / 100 - 1e-9
    return np.asarray(at, np.float64)[near.argmax(axis=1)]


def _ladders(report: _Report) -> _Body:
    rows, told, reasons = list[Cells](), list[Study](), list[str]()
    for study in report.studies:
        try:
            fitted = report.climbed(study)
        except InputError as error:
            reasons.append(str(error))
            continue
        if fitted.panel.abstained is None:
            reasons.append(f"{study.about}: the rows do not say where the reader abstained (column abstained)")
            continue
        told.append(study)
        base = fitted.results[REFERENCE]
        order = [name for name in POLICIES if name in fitted.results and name != "binary oracle"]
        rows += [_spend_row(study, fitted.panel, fitted.results[name], base) for name in order]
    if not rows:
        raise InputError("; ".join(reasons) or "there are no outcomes of questions that memory answers")
    columns = (
        "Data", "Policy", "Accuracy", "Difference from the best fixed action [95 % CI]", "Harm (%)", "Reader calls",
        "Tokens read", "Tokens written",
    )  # fmt: skip
    fitted = report.climbed(told[0])
    note = f"{_samples(told)} {_folds(fitted)} A further call must bring {fitted.rules.call_price:g} of accuracy."
    return _Body(columns, rows, note, _runs_mark(told))


def _spend_row(study: Study, of: Panel, found: Result, base: Result) -> Cells:
    cited = study.cite(of.actions, of.budgets)

    def over(values: Array) -> Estimate:
        return interval(run_mean(study.spread(of, values)), study.resamples)

    difference: Value | str = DASH
    if found.name != base.name:
        difference = _gained(over(found.utility - base.utility), cited)  # NaN where either was not measured
    harm, calls = over(100 * found.harmed), over(found.calls)
    known = {"context_tokens": found.read, "generated_tokens": found.generated}
    spent = [
        _value(f"{each.mean:.1f}", each, cited) if name in of.tokens else DASH
        for name, values in known.items()
        for each in [over(values)]
    ]
    cells = (_value(f"{harm.mean:.1f}", harm, cited), _value(f"{calls.mean:.2f}", calls, cited))
    return (study.about, POLICIES[found.name], _shared(over(found.utility), cited), difference, *cells, *spent)


def _false_answers(report: _Report) -> _Body:
    if not report.silent:
        raise InputError("there are no rows of questions that memory does not answer (column abstention)")
    known = [study for study in report.silent if study.mean("abstained") is not None]
    if not known:
        raise InputError("the rows do not say where the reader abstained (column abstained)")
    body = _rates(known, "abstained", flip=True)
    rows = [*body.rows, *(row for study in known for row in _false_ladder(report, study, _budgets(known)))]
    return replace(body, rows=sorted(rows, key=lambda row: [study.about for study in known].index(str(row[0]))))


def _false_ladder(report: _Report, silent: Study, budgets: Sequence[int]) -> Iterator[Cells]:
    """The ladder learned on all answerable questions of the same data, on these."""
    for study in report.studies:
        if (study.dataset, study.setting) != (silent.dataset, silent.setting):
            continue
        try:
            learned, asked = study.panel(study.arms.choices), silent.panel(study.arms.choices)
        except (InputError, ValueError):
            continue
        if learned.abstained is None or asked.abstained is None or learned.features != asked.features:
            continue
        steps = ladder.learn(learned, rungs=_rungs(len(learned.actions)))
        says = replace(asked, runs=asked.abstained, retentions=run_mean(asked.abstained[:, :, 0]))
        wrong = 1 - walk(says, ladder.plan(steps, asked)).utility
        found = zip(asked.budgets, intervals(silent.spread(asked, wrong), silent.resamples), strict=True)
        cells = {budget: _shared(each, silent.cite(asked.actions, budget)) for budget, each in found}
        yield (silent.about, "Ladder", *_under(silent, budgets, cells))


def _crossovers(report: _Report) -> _Body:
    rows: list[Cells] = []
    for study in report.studies:
        for action in study.arms.order:
            if action == RETAIN or len(study.budgets) < 2 or RETAIN not in study.actions:
                continue
            gain = study.gain(action)
            if not np.isnan(gain).all(axis=0).any():
                rows.append((study.about, study.arms.names[action], *_crossing(study, action, gain)))
    if not rows:
        raise InputError("a crossover needs retention and another action at two budgets or more")
    columns = ("Data", "Action", "Crossover budget [95 % CI]", "Resamples that cross (%)", "Full fit there (%)")
    return _Body(columns, rows, _samples(report.studies), _runs_mark(report.studies))


def _crossing(study: Study, action: str, gain: Array) -> tuple[Value | str, ...]:
    found, at = crossover(gain, study.budgets, study.resamples), study.budgets
    cited = study.cite([RETAIN, action], at)
    ends = [_budget(value, at) for value in (found.budget, found.low, found.high)]
    numbers = [_finite(value) if value > 0 else None for value in (found.budget, found.low, found.high)]
    share = 100 * found.share
    place = Value(f"{ends[0]} [{ends[1]}, {ends[2]}]", *numbers, cited)
    return (place, _plain(share, f"{share:.0f}", cited), _pressure(study, found.budget))


def _budget(value: float, at: Sequence[int]) -> str:
    if math.isnan(value):
        return DASH
    return f"below {at[0]}" if value == 0 else f"above {at[-1]}" if math.isinf(value) else f"{value:.0f}"


def _pressure(study: Study, budget: float) -> Value | str:
    """The share of questions whose notes all fit at a budget, between the measured ones linear in log2 B."""
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
    build: Callable[[_Report], _Body]

    def table(self, report: _Report) -> Table:
        """The table, or why it cannot be made of these rows."""
        try:
            body = self.build(report)
            if not body.rows:
                raise InputError("no row could be filled from these outcomes")
        except InputError as error:
            return Table(self.key, self.title, self.caption, (), (), missing=str(error))
        caption = f"{self.caption} {body.note}".strip()
        rows, marks = tuple(body.rows), tuple(dict.fromkeys(body.marks))
        return Table(self.key, self.title, caption, body.columns, rows, tuple(body.published), marks)


SPECS = (
    _Spec("operator-gains", "What each operator gains over keeping raw notes",
          "An operator replaces the raw notes by a text that it wrote from them. Its gain is its share of right answers"
          " minus that of retention, on the same questions at the same budget; p is the chance of so large a gain if"
          " every question's sign were a coin toss, so near 0 it helps and near 1 it does not.", _operator_gains),
    _Spec("locomo-gains", "The same on LoCoMo, whose evidence is shorter",
          "Gain over retention on the same questions at the same budget; helped and harmed count the questions that an"
          " operator turned from wrong to right, or from right to wrong.", _locomo_gains),
    _Spec("cross-model", "Does it hold for another model?",
          "Retention against Abstract on the same questions, once for each model that wrote and answered.",
          _cross_model),
    _Spec("full-history", "When the notes have to be found first",
          "A retriever finds candidates in the whole history; retention and Abstract get the same ones. The binary oracle"
          " picks the better of the two for every question with hindsight: no policy can, it says how much there is to"
          " win.", _full_history),
    _Spec("per-type", "Which questions gain and which lose at the loosest budget",
          "Gain over retention by type of question, with the questions helped and harmed in one run in parentheses"
          " (mean over runs).", _per_type),
    _Spec("routing-baselines", "Learned routers against simple rules",
          "Share of right answers of each policy, with the number of harmful replacements in parentheses: a generated"
          " text was chosen where retention did better. Every policy is learned on some questions and tested on others;"
          " oracles look at the answer and only say what is left to win.", _routing),
    _Spec("budget-pressure", "How much of the evidence fits",
          "Mean share of the candidate notes that retention packs, and the share of questions of which all, none or some"
          " fit. The regime goes by full fit: below 5 % severely tight, below 33 % tight, below 75 % transition.",
          _budget_pressure),
    _Spec("operator-pairs", "One operator against another",
          "Difference in the share of right answers between two operators on the same questions; above zero the one"
          " named first is better.", _operator_pairs),
    _Spec("fit-strata", "Gains where notes do not fit, losses where they do",
          "Gain over retention, apart for questions of which all candidate notes fit and for the others; in parentheses"
          f" the rates helped and harmed and the questions. Budgets at which both kinds have {STRATUM} questions.",
          _fit_strata),
    _Spec("joint-routing", "When to replace and by what, decided together",
          "The direct router takes the action of highest predicted utility. The calibrated one replaces only above a"
          " margin that harmed nobody on calibration questions, the certified one above a margin with a proven bound on"
          " harm. Gain is over retention, harm counts worse replacements.", _joint_routing),
    _Spec("mlp-check", "Would a nonlinear router do better?",
          "A small neural network in place of the linear model, learned and tested on the same folds; p is of two-sided"
          " sign flips.", _mlp_check),
    _Spec("independent", "Everything frozen before the last questions are opened",
          "Policies are learned on fit questions and calibrated on others, then scored once on the gate questions, which"
          " neither saw: share of right answers, harmful replacements in parentheses. The oracle has hindsight.",
          _independent),
    _Spec("all-actions", "Every action at every budget",
          "Share of right answers of each action that was measured, generated and verbatim, with the mean over budgets."
          " Agnostic texts were written without the question, focused ones with it.", _all_actions),
    _Spec("cost", "What an action costs",
          "Means over questions and all budgets: tokens handed to the reader, tokens that a model read and wrote to make"
          " them, its calls, the reader's own tokens, and seconds in all.", _cost),
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
          "Share of right answers that each budget buys, and the smallest budget within 3 and within 1 points of the best"
          " one, with the range it takes over resamples. The best policy is the one of highest mean accuracy among the"
          " cross-fitted ones, picked with hindsight.", _needed),
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
