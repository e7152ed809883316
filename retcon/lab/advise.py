"""Outcomes of questions -> Advice: which router suits this reader, how sure that is, and what cannot be told.

    utility = right - wrong_cost * wrong

An answer to an unanswerable question is wrong, an abstention is 0. Compared are the router that ships ("default"), the
best fixed action at each budget ("fixed") and a router learned on these questions ("learned"). The last two are
cross-fitted: no question is scored by what was chosen or learned on it. The default was learned elsewhere, so it is
where the doubt goes: another is advised only where its interval over the default, widened for the number of rivals,
leaves zero out. At each budget the default's choices are held against every action in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.lab import bench, learn, outcomes
from retcon.lab.crossfit import Direct, Policy, Rules, best_fixed, learned_ladder
from retcon.lab.fit import folds, question_groups
from retcon.lab.fit_ladder import Plan, constant_plan, decisions, walk
from retcon.lab.outcomes import Outcomes, Panel
from retcon.lab.stats import Array, Estimate, Resamples, interval, resample
from retcon.ladder import DEFAULT_WRONG_COST
from retcon.route import Router, default_router

DEFAULT, FIXED, LEARNED, LADDER = "default", "fixed", "learned", "ladder"
LEVEL = 0.95
POWER = 0.8  # chance that so many questions show a difference of that size
POINTS = 0.03  # of utility: a budget that is no further from the best is enough
SMALL = 0.05  # of utility: a difference worth knowing about
FEW = 20  # questions below which no difference is called sure
TRIES, REPEATS = 5, 5  # folds, chosen on four of them and tried on the fifth; ways to deal them
_SAME = 1e-12  # numbers no further apart are equal


@dataclass(frozen=True, slots=True)
class Score:
    """What a policy came to, means over questions: of the replies so many right, wrong, and none given."""

    name: str
    right: float
    wrong: float
    none: float
    utility: float
    over_default: Estimate | None = None  # None for the default itself, and where it is the same everywhere
    over_fixed: Estimate | None = None
    calls: float = 1.0  # of the reader


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget: the default's choices there, and every action beside them."""

    budget: int
    takes: Mapping[str, float]  # action -> share of the questions for which the default takes it
    default: Score
    actions: tuple[Score, ...]
    rival: str  # the best of the actions that are not the default's throughout
    gain: Estimate  # the rival over the default, allowing for the choice among the actions
    sure: bool  # whether the gain is above zero, or below it, by more than chance
    needed: int | None  # questions that would show it, where it is above and not sure

    @property
    def usual(self) -> str:
        """The action that the default takes most often."""
        return max(self.takes, key=self.takes.__getitem__)

    @property
    def use(self) -> str:
        """The default, or the action that is surely better."""
        return self.rival if self.sure and self.gain.low > 0 else DEFAULT


@dataclass(frozen=True, slots=True)
class Advice:
    """What the questions say."""

    use: str  # default, fixed or learned
    router: Mapping[str, Any]  # the default: its name, and the reader that it was learned with
    reader: str
    dataset: str
    questions: int
    unanswerable: int
    units: int  # that are independent: questions, or conversations
    group: str
    judge: str
    self_judged: bool
    wrong_cost: float
    actions: tuple[str, ...]
    scores: tuple[Score, ...]  # default, fixed, learned, ladder, then each action
    ranked: Mapping[int, tuple[str, ...]]  # budget -> the actions, the best on all of the questions first
    standings: tuple[Standing, ...]
    learned_over_fixed: Estimate
    needed: int | None  # questions that would show the lead of the best rival over the default
    unseen: float  # a smaller difference to the default goes unseen with so many questions
    small_needed: int | None  # questions that would show a difference of `SMALL`
    enough: int  # the smallest budget within `points` of the best
    points: float = POINTS
    unpriced: Advice | None = None  # the same where a wrong answer costs nothing

    @property
    def fixed(self) -> dict[int, str]:
        """Budget -> the best action on all of the questions."""
        return {budget: actions[0] for budget, actions in self.ranked.items()}

    @property
    def few(self) -> bool:
        """Whether the questions are too few to tell anything apart."""
        return self.units < FEW

    def score(self, name: str) -> Score:
        """The score of a policy or an action."""
        return next(each for each in self.scores if each.name == name)

    @property
    def rival(self) -> Score:
        """Of fixed and learned, the one with the higher utility."""
        return max(self.score(FIXED), self.score(LEARNED), key=lambda score: score.utility)

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain JSON values."""
        plain = asdict(replace(self, unpriced=None)) | {"few": self.few}
        plain["unpriced"] = None if self.unpriced is None else self.unpriced.to_dict()
        plain["standings"] = [asdict(each) | {"usual": each.usual, "use": each.use} for each in self.standings]
        plain["fixed"] = {str(budget): action for budget, action in self.fixed.items()}
        plain["ranked"] = {str(budget): list(actions) for budget, actions in self.ranked.items()}
        return plain


# -- right, wrong, or no answer ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Priced:
    """A panel whose utilities are priced, and the replies behind them, each [q, b, a, realization]."""

    panel: Panel
    right: Array
    wrong: Array
    unanswerable: NDArray[np.bool_]  # [q]


def price(panel: Panel, unanswerable: NDArray[np.bool_], *, wrong_cost: float = DEFAULT_WRONG_COST) -> Priced:
    """The panel with right - wrong_cost * wrong in place of verdicts."""
    if panel.abstained is None:
        raise InputError("advice needs to know where the reader abstained: a column 'abstained' without gaps")
    gave = 1 - panel.abstained
    right = np.where(unanswerable[:, None, None, None], 0.0, panel.runs) * gave
    wrong = gave - right
    return Priced(_with_runs(panel, right - wrong_cost * wrong), right, wrong, unanswerable)


def _with_runs(panel: Panel, runs: Array) -> Panel:
    """The panel with other numbers in place of verdicts."""
    retained = np.repeat(runs[:, :, :1], runs.shape[2], axis=2)
    return replace(panel, runs=runs, retained=retained, retentions=outcomes.run_mean(runs[:, :, 0]))


@dataclass(frozen=True, slots=True)
class _Reply:
    """What plans came to, each [q, b], averaged over the plans."""

    utility: Array
    right: Array
    wrong: Array
    calls: Array


def _follow(priced: Priced, plans: Sequence[Plan]) -> _Reply:
    """What came of each plan, in the mean."""
    parts = [_with_runs(priced.panel, runs) for runs in (priced.right, priced.wrong)]
    walks = [[walk(panel, plan) for panel in (priced.panel, *parts)] for plan in plans]
    utility, right, wrong = (np.mean([went[i].utility for went in walks], axis=0) for i in range(3))
    return _Reply(utility, right, wrong, np.mean([went[0].calls for went in walks], axis=0))


# -- who is compared ---------------------------------------------------------------------------------------------------


def router_plan(panel: Panel, router: Router) -> Plan:
    """The action that a router takes for each question and budget, as when it serves."""
    plan = np.zeros((*panel.x.shape[:2], 1), np.int64)
    for cell, decision in decisions(router, panel):
        plan[cell] = panel.actions.index(decision.action)
    return plan


def cross_fit(panel: Panel, policy: Policy, *, group: str, seed: int = 0) -> list[Plan]:
    """Plans for every question by a policy that was learned on others; one for each way to deal the folds."""
    return [_deal(panel, policy, Rules(group=group, seed=seed + repeat)) for repeat in range(REPEATS)]


def _deal(panel: Panel, policy: Policy, rules: Rules) -> Plan:
    plan = np.full((*panel.x.shape[:2], len(panel.actions)), -1, np.int64)
    fold = folds(question_groups(panel, rules.group), TRIES, seed=rules.seed)
    for k in range(TRIES):
        train, test = (panel.take(np.flatnonzero(mask)) for mask in (fold != k, fold == k))
        made = policy(train, train, rules)(test.without_outcomes())
        plan[fold == k, :, : made.shape[2]] = made
    return plan


# -- the advice --------------------------------------------------------------------------------------------------------


def advise(
    panel: Panel, unanswerable: NDArray[np.bool_] | None = None, *, router: Router | None = None, reader: str = "",
    grader: str = "", wrong_cost: float = DEFAULT_WRONG_COST, points: float = POINTS, draws: int = 10_000,
    seed: int = 0,
) -> Advice:  # fmt: skip
    """The advice that these outcomes support; `router` stands in for the one that ships."""
    _check(panel, wrong_cost)
    router = router or default_router(writes=True)
    there = np.zeros(len(panel.questions), bool) if unanswerable is None else unanswerable
    priced = price(panel, there, wrong_cost=wrong_cost)
    group = bench.independent_unit(panel)
    clusters = panel.conversations if group == "conversation" else None
    units = len(set(clusters)) if clusters is not None else len(panel.questions)
    drawn = resample(len(panel.questions), seed=seed, draws=draws, clusters=clusters)
    plan = router_plan(priced.panel, router)
    replies = _replies(priced, plan, group, seed)
    scores = tuple(_score(name, reply, replies, drawn) for name, reply in replies.items())
    standings = tuple(_standing(b, panel, plan, replies, drawn, units) for b in range(len(panel.budgets)))
    over = interval(_lead(replies, LEARNED, FIXED), drawn, level=LEVEL)
    made = Advice(
        use=DEFAULT, router={"name": router.name, "reader": str(router.provenance.get("reader", ""))}, reader=reader,
        dataset=panel.dataset, questions=len(panel.questions), unanswerable=int(there.sum()), units=units, group=group,
        judge=panel.judge, self_judged=bool(grader) and grader == reader, wrong_cost=wrong_cost, actions=panel.actions,
        scores=scores, ranked=_rank(priced.panel),
        standings=standings, learned_over_fixed=over, needed=None, unseen=0.0, small_needed=None,
        enough=_enough(standings, points), points=points,
    )  # fmt: skip
    return _decide(made)


def _rank(panel: Panel) -> dict[int, tuple[str, ...]]:
    """Budget -> the actions by their mean utility, the best first; of equals the first of the panel."""
    means = panel.utility.mean(axis=0)
    return {
        budget: tuple(panel.actions[a] for a in np.argsort(-np.round(means[b], 12), kind="stable"))
        for b, budget in enumerate(panel.budgets)
    }


def _check(panel: Panel, wrong_cost: float) -> None:
    if len(panel.actions) < 2:
        raise InputError("there is nothing to advise on: the outcomes are of retain alone")
    if len(panel.questions) < bench.FEWEST:
        raise InputError(
            f"advice needs {bench.FEWEST} questions with complete outcomes, there are {len(panel.questions)}"
        )
    check_cost(wrong_cost)


def check_cost(wrong_cost: float) -> None:
    """An error where no wrong answer can cost that."""
    if not 0 <= wrong_cost < float("inf"):
        raise InputError(f"a wrong answer costs 0 or more, not {wrong_cost:g}")


def _replies(priced: Priced, plan: Plan, group: str, seed: int) -> dict[str, _Reply]:
    """Who is compared -> what came of it."""
    panel = priced.panel
    policies: dict[str, Policy] = {FIXED: best_fixed(0), LEARNED: Direct(), LADDER: learned_ladder}
    plans = {DEFAULT: [plan]}
    plans |= {name: cross_fit(panel, policy, group=group, seed=seed) for name, policy in policies.items()}
    plans |= {name: [constant_plan(panel, (a,))] for a, name in enumerate(panel.actions)}
    return {name: _follow(priced, some) for name, some in plans.items()}


def _lead(replies: Mapping[str, _Reply], name: str, over: str) -> Array:
    """[q]: how much more one came to than the other, mean over budgets."""
    lead: Array = (replies[name].utility - replies[over].utility).mean(axis=1)
    return lead


PLANNED, RIVALS = (DEFAULT, FIXED, LEARNED, LADDER), (FIXED, LEARNED)
RIVAL_LEVEL = 1 - (1 - LEVEL) / len(RIVALS)


def _score(name: str, reply: _Reply, replies: Mapping[str, _Reply], drawn: Resamples) -> Score:
    def over(other: str) -> Estimate | None:
        lead = _lead(replies, name, other)
        return interval(lead, drawn, level=RIVAL_LEVEL) if name != other and np.abs(lead).max() > _SAME else None

    # the best "always" is known with hindsight alone, so none is set beside what was chosen without it
    return _tell(name, reply, slice(None), over(DEFAULT), over(FIXED) if name in PLANNED else None)


def _tell(
    name: str, reply: _Reply, at: Any, over_default: Estimate | None = None, over_fixed: Estimate | None = None
) -> Score:
    """The means of a policy at some budgets."""
    right, wrong, utility, calls = (
        float(part[:, at].mean()) for part in (reply.right, reply.wrong, reply.utility, reply.calls)
    )
    return Score(name, right, wrong, max(0.0, 1 - right - wrong), utility, over_default, over_fixed, calls)


def _standing(
    b: int, panel: Panel, plan: Plan, replies: Mapping[str, _Reply], drawn: Resamples, units: int
) -> Standing:
    level = 1 - (1 - LEVEL) / len(panel.actions)
    shares = [float((plan[:, b, 0] == a).mean()) for a in range(len(panel.actions))]
    takes = {name: share for name, share in zip(panel.actions, shares, strict=True) if share}
    actions = []
    for name in panel.actions:
        lead = replies[name].utility[:, b] - replies[DEFAULT].utility[:, b]
        same = takes.get(name) == 1.0
        actions.append(_tell(name, replies[name], b, None if same else interval(lead, drawn, level=level)))
    others = [each for each in actions if each.over_default is not None]
    rival = max(others, key=lambda each: each.utility)  # of equals the first, which is retain
    gain = rival.over_default
    assert gain is not None
    sure = units >= FEW and gain.excludes(0.0)
    needed = None if sure or gain.mean <= 0 else questions_needed(gain, units, level=level)
    return Standing(
        panel.budgets[b], takes, _tell(DEFAULT, replies[DEFAULT], b), tuple(actions), rival.name, gain, sure, needed
    )


def _decide(made: Advice) -> Advice:
    """The advice with its choice, and what more questions would show."""
    leads = {name: made.score(name).over_default for name in RIVALS}
    sure = [name for name, lead in leads.items() if lead is not None and lead.low > 0 and not made.few]
    use = DEFAULT if not sure else sure[0]
    if len(sure) == 2 and made.learned_over_fixed.low > 0:
        use = LEARNED
    gain = made.rival.over_default
    known = [lead for lead in leads.values() if lead is not None]
    wide = max((lead.high - lead.low for lead in known), default=0.0) / 2
    shown = max(known, key=lambda lead: lead.high - lead.low, default=None)
    ask = use == DEFAULT and gain is not None and gain.mean > 0
    return replace(
        made,
        use=use,
        needed=questions_needed(gain, made.units) if ask and gain is not None else None,
        unseen=wide,
        small_needed=None if shown is None else questions_needed(shown, made.units, size=SMALL),
    )


def questions_needed(
    gain: Estimate, units: int, *, level: float = RIVAL_LEVEL, size: float | None = None
) -> int | None:
    """Units with which a gain of that size (None: as seen) leaves zero out of its interval four times in five.

    The width of an interval falls with the root of their number; None where nothing varies.
    """
    half, size = (gain.high - gain.low) / 2, gain.mean if size is None else size
    if half <= 0 or size <= 0:
        return None
    more = 1 + NormalDist().inv_cdf(POWER) / NormalDist().inv_cdf((1 + level) / 2)
    return max(FEW, ceil(units * (half * more / size) ** 2))


def _enough(standings: Sequence[Standing], points: float) -> int:
    """The smallest budget at which the best action comes within those points of the best of all."""
    at = {each.budget: max(score.utility for score in each.actions) for each in standings}
    return min(budget for budget, utility in at.items() if utility >= max(at.values()) - points - _SAME)


def read_advice(
    rows: Outcomes, *, judge: str, wrong_cost: float = DEFAULT_WRONG_COST, draws: int = 10_000, seed: int = 0
) -> tuple[Advice, Priced]:
    """The advice of questions that have every outcome, and the priced panel behind it."""
    if not len(rows):
        raise InputError(f"advice needs {bench.FEWEST} questions with complete outcomes, there are 0")
    panel = outcomes.panel(rows, actions=bench.choose_actions(rows.actions), judge=judge)
    marks = rows.columns.get("abstention", np.full(len(rows), "", object))
    kinds = dict(zip(rows.columns["question_id"].tolist(), marks.tolist(), strict=True))
    unanswerable = np.array([kinds[name] == "yes" for name in panel.questions])
    known = learn.read_provenance(rows)
    names = {"reader": known.get("reader", ""), "grader": known.get("grader", "") if judge == "llm" else ""}

    def at(cost: float) -> Advice:
        return advise(panel, unanswerable, wrong_cost=cost, draws=draws, seed=seed, **names)

    made = at(wrong_cost)
    if wrong_cost > 0:
        made = replace(made, unpriced=at(0.0))
    return made, price(panel, unanswerable, wrong_cost=wrong_cost)
