"""Panel, policies -> CrossFit: honest estimates, learned on some questions, calibrated on others, tested on the rest.

Five folds grouped by question (or conversation): three train, one calibrates, one tests, rotated, so that every
question is tested once. A policy is handed training and calibration outcomes and gives back a plan maker; the plan
maker sees of its test questions only what is known before generation. What a plan came to is then read off the measured
outcomes. The oracles alone look at what they are scored on, and are called so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.lab import calibrate, fit_ladder
from retcon.lab.calibrate import Threshold
from retcon.lab.fit import Estimator, Predictor, folds, predictor, question_groups
from retcon.lab.fit_ladder import CALL_PRICE, LOOKS, TOKEN_PRICE, Plan, Walk, walk
from retcon.lab.outcomes import Panel, run_mean
from retcon.lab.querytype import split_probabilities

Array = NDArray[np.float64]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """What policies share: how questions are grouped, harm's limits, prices, and the seed of all inner choices."""

    group: str = "question"
    cap: float = 0.0  # harm frequency that the paper's calibration may observe
    alpha: float = 0.05  # harm rate that the certificate bounds ...
    delta: float = 0.10  # ... up to this chance
    call_price: float = CALL_PRICE
    token_price: float = TOKEN_PRICE
    looks: int = LOOKS
    seed: int = 0


PlanMaker = Callable[[Panel], Plan]


class Policy(Protocol):
    """Training and calibration outcomes in, a plan maker out."""

    def __call__(self, train: Panel, calibration: Panel, rules: Rules, /) -> PlanMaker: ...


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on every question, each array [q, b], averaged over repeats."""

    name: str
    utility: Array
    harmed: Array  # whether the final utility is below retention's; as a share of repeats
    replaced: Array  # whether the answer that stands is not from retention
    calls: Array
    read: Array
    generated: Array
    chosen: Array  # [q, b, a]: how often each action's answer stood
    seen: NDArray[np.bool_]  # [q, b]: where the outcomes could score it (a doubled budget may not have been measured)

    @property
    def macro(self) -> float:
        """Mean accuracy over budgets."""
        return float(np.nanmean(np.where(self.seen, self.utility, np.nan)))


@dataclass(frozen=True, slots=True)
class CrossFit:
    """Every policy on the same questions, folds and outcomes."""

    panel: Panel
    results: Mapping[str, Result]
    rules: Rules
    folds: int
    repeats: int
    thresholds: Mapping[str, tuple[Mapping[int, Threshold], ...]] = field(default_factory=dict)  # one entry a rotation


# -- policies of one call ----------------------------------------------------------------------------------------------


def always(action: int) -> Policy:
    """The same action for everything."""

    def policy(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        return lambda seen: fit_ladder.constant_plan(seen, (action,))

    return policy


def best_fixed(first: int) -> Policy:
    """The action of highest mean training utility at each budget, out of those from place `first` on."""

    def policy(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        best = first + np.argmax(train.utility[:, :, first:].mean(axis=0), axis=1)
        return lambda seen: np.broadcast_to(best[:, None], (len(seen.questions), len(best), 1))

    return policy


def evidence_fit(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
    """Retain if everything fits, else the operator selected on training questions."""
    operator = best_fixed(1)(train, calibration, rules)
    return lambda seen: np.where(seen.fit[:, :, None] >= 1, 0, operator(seen))


@dataclass(frozen=True, slots=True)
class Direct:
    """The action of highest predicted utility; ties go to retain."""

    estimator: str | Estimator = "ridge"

    def __call__(self, train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        model = predictor(train, self.estimator, group=rules.group, seed=rules.seed)
        return lambda seen: np.argmax(predict(model, seen), axis=2)[:, :, None]  # argmax keeps the first of equals


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The best replacing action where its predicted advantage reaches the budget's calibrated threshold."""

    certified: bool = False
    estimator: str | Estimator = "ridge"

    def __call__(self, train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        model = predictor(train, self.estimator, group=rules.group, seed=rules.seed)
        taus = np.array([each.tau for each in thresholds(model, calibration, rules, certified=self.certified).values()])

        def make(seen: Panel) -> Plan:
            best, advantage = advantages(model, seen)
            return np.where(advantage >= taus, best, 0)[:, :, None]

        return make


def thresholds(model: Predictor, panel: Panel, rules: Rules, *, certified: bool) -> dict[int, Threshold]:
    """The threshold of each budget on these calibration questions, for a frozen predictor."""
    return calibrate.thresholds(
        columns_by_budget(panel, *advantages(model, panel)),
        rule="certified" if certified else "paper", cap=rules.cap, alpha=rules.alpha, delta=rules.delta, joint="each",
    )  # fmt: skip


def columns_by_budget(panel: Panel, best: NDArray[np.int64], advantage: Array) -> dict[int, tuple[Array, Array, Array]]:
    """Budget -> (advantage, utility of the best replacing action, utility of retention), a row a question."""
    chosen = np.take_along_axis(panel.utility, best[:, :, None], axis=2)[:, :, 0]
    return {budget: (advantage[:, b], chosen[:, b], panel.utility[:, b, 0]) for b, budget in enumerate(panel.budgets)}


def predict(model: Predictor, panel: Panel) -> Array:
    """[q, b, a]: predicted utility."""
    mu = model(panel.x.reshape(-1, panel.x.shape[2]))
    return mu.reshape(*panel.x.shape[:2], -1)


def advantages(model: Predictor, panel: Panel) -> tuple[NDArray[np.int64], Array]:
    """[q, b] each: the best replacing action, and its predicted advantage over retention."""
    mu = predict(model, panel)
    best = 1 + np.argmax(mu[:, :, 1:], axis=2)
    return best, np.take_along_axis(mu, best[:, :, None], axis=2)[:, :, 0] - mu[:, :, 0]


# -- ladders, and what the same spend buys otherwise -------------------------------------------------------------------


def learned_ladder(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
    """The ladder learned per budget and features."""
    learned = fit_ladder.fit_ladder(
        train, looks=rules.looks, call_price=rules.call_price, token_price=rules.token_price
    )
    return lambda seen: fit_ladder.plan(learned, seen)


def safe_ladder(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
    """The learned ladder after a look at whole notes, which can harm no question."""
    own = learned_ladder(train, calibration, rules)
    return lambda seen: fit_ladder.whole_first(own(seen))


def budget_ladder(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
    """The best order at each budget, the same for every question."""
    every = fit_ladder.orders(len(train.actions), looks=min(rules.looks, len(train.actions)))
    values = fit_ladder.worth(train, every, call_price=rules.call_price, token_price=rules.token_price)
    best = fit_ladder.per_budget(values, every)
    longest = max(map(len, best))
    table = np.array([[*order, *[-1] * (longest - len(order))] for order in best])
    return lambda seen: np.broadcast_to(table, (len(seen.questions), *table.shape))


def ask_again(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
    """The best fixed action, asked once more where the reader abstains."""
    once = best_fixed(0)(train, calibration, rules)
    return lambda seen: np.repeat(once(seen), 2, axis=2)


LEARNERS: Mapping[str, Policy] = {
    "training-selected operator": best_fixed(1),
    "best fixed action": best_fixed(0),
    "evidence-fit rule": evidence_fit,
    "k-NN": Direct("knn"),
    "MLP": Direct("mlp"),
    "direct": Direct(),
    "calibrated": Calibrated(),
    "certified": Calibrated(certified=True),
}
LADDERS: Mapping[str, Policy] = {
    "ladder": learned_ladder,
    "ladder, whole notes first": safe_ladder,
    "ladder, one order a budget": budget_ladder,
    "best fixed, asked again": ask_again,
}
CALIBRATED = {"calibrated": False, "certified": True}  # the policies with thresholds: whether certified
TWICE, VOTE = "best fixed, twice the budget", "vote of two"
ORACLES = ("binary oracle", "action oracle")
REFERENCE = "best fixed action"


# -- running them ------------------------------------------------------------------------------------------------------


def crossfit(
    panel: Panel, *, policies: Mapping[str, Policy] | None = None, rules: Rules = Rules(), k: int = FOLDS,  # noqa: B008
    repeats: int = 1, fold_of: NDArray[np.int64] | None = None, queries: Mapping[str, str] | None = None,
    scored: Panel | None = None, progress: Callable[[int, int], None] | None = None,
) -> CrossFit:  # fmt: skip
    """Every policy on every question. `repeats` averages over that many ways to deal the folds.

    `scored` holds the same questions as another judge saw them: policies are learned on `panel` and scored on it.

    `fold_of` deals them by hand (a number below k for each of the panel's questions). With `queries` (question id ->
    text) the types are those a classifier gives that was trained on the rotation's training questions alone; these
    get the probabilities of models that did not see them.
    """
    if len(panel.actions) < 2:
        raise InputError("there is nothing to choose between: the outcomes are of retain alone")
    scored = panel if scored is None else _same_questions(panel, scored)
    chosen = default_policies(panel) if policies is None else dict(policies)
    scores: dict[str, list[_Score]] = {name: [] for name in [*chosen, *_extras(panel)]}
    found: list[Mapping[str, Mapping[int, Threshold]]] = []
    done, total = 0, repeats * k
    for repeat in range(repeats):
        if fold_of is None:
            dealt = folds(question_groups(panel, rules.group), k, seed=rules.seed + repeat)
        else:
            dealt = _check_folds(panel, fold_of, k)
        sheets = {name: _Score(panel) for name in scores}
        for fold in range(k):
            split = _split(panel, scored, dealt, fold, k, queries, rules)
            _rotate(split, chosen, rules, sheets)
            found.append(_thresholds_by_rule(split, rules))
            done += 1
            if progress is not None:
                progress(done, total)
        for name, sheet in sheets.items():
            scores[name].append(sheet)
    results = {name: _mean(name, sheets) for name, sheets in scores.items()}
    by_rule = {name: tuple(each[name] for each in found) for name in CALIBRATED}
    return CrossFit(scored, results, rules, k, repeats, by_rule)


def _same_questions(panel: Panel, scored: Panel) -> Panel:
    """The other judge's panel in the order of the first."""
    for what in ("actions", "budgets", "features"):
        if getattr(panel, what) != getattr(scored, what):
            raise InputError(f"the panel that scores differs in its {what}")
    place = {name: i for i, name in enumerate(scored.questions)}
    if set(place) != set(panel.questions):
        raise InputError("the panel that scores is of other questions")
    return scored.take(np.array([place[name] for name in panel.questions]))


def holdout(
    train: Panel, calibration: Panel, test: Panel, *, policies: Mapping[str, Policy] | None = None,
    rules: Rules = Rules(),  # noqa: B008
) -> CrossFit:  # fmt: skip
    """Every policy learned on the first questions, calibrated on the second, and scored once on the third."""
    if shared := set(test.questions) & {*train.questions, *calibration.questions}:
        raise InputError(f"{len(shared)} test questions were learned from, the first: {min(shared)}")
    if shared := set(train.questions) & set(calibration.questions):
        raise InputError(f"{len(shared)} calibration questions were learned from, the first: {min(shared)}")
    for what in ("actions", "budgets", "features"):
        if len({getattr(part, what) for part in (train, calibration, test)}) > 1:
            raise InputError(f"the three parts differ in their {what}")
    chosen = default_policies(train) if policies is None else dict(policies)
    sheets = {name: _Score(test) for name in [*chosen, *_extras(test)]}
    split = _Split(train, calibration, test.without_outcomes(), test, np.arange(len(test.questions)))
    _rotate(split, chosen, rules, sheets)
    found = {name: (each,) for name, each in _thresholds_by_rule(split, rules).items()}
    return CrossFit(test, {name: _mean(name, [sheet]) for name, sheet in sheets.items()}, rules, 1, 1, found)


def default_policies(panel: Panel) -> dict[str, Policy]:
    """Retention, every fixed operator, the paper's learners and baselines; ladders where abstentions are known."""
    fixed = {("retention" if a == 0 else f"always {name}"): always(a) for a, name in enumerate(panel.actions)}
    every = {**fixed, **LEARNERS, **(LADDERS if panel.abstained is not None else {})}
    return {name: each for name, each in every.items() if each is not evidence_fit or "fit" in panel.features}


def extra_names(panel: Panel) -> tuple[str, ...]:
    """What stands beside the policies in every result: oracles, and other ways to spend as much as a ladder."""
    return tuple(_extras(panel))


@dataclass(frozen=True, slots=True)
class _Split:
    train: Panel
    calibration: Panel
    seen: Panel  # the test questions without their outcomes
    test: Panel
    index: NDArray[np.int64]  # the test questions' places in the whole panel


def _thresholds_by_rule(split: _Split, rules: Rules) -> dict[str, dict[int, Threshold]]:
    """What `calibrated` and `certified` come to on this split."""
    model = predictor(split.train, group=rules.group, seed=rules.seed)
    return {
        name: thresholds(model, split.calibration, rules, certified=certified) for name, certified in CALIBRATED.items()
    }


def _check_folds(panel: Panel, fold_of: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The folds that the caller dealt, if they are folds."""
    dealt = np.asarray(fold_of)
    if dealt.shape != (len(panel.questions),) or not np.isin(dealt, np.arange(k)).all():
        raise InputError(f"fold_of must hold a number below {k} for each of {len(panel.questions)} questions")
    return dealt


def _split(
    panel: Panel, scored: Panel, dealt: NDArray[np.int64], fold: int, k: int, queries: Mapping[str, str] | None,
    rules: Rules,
) -> _Split:  # fmt: skip
    if k < 3:
        raise InputError(f"{k} folds: training, calibration and test need three at least")
    calibrates = dealt == (fold + 1) % k
    tests = dealt == fold
    where = [np.flatnonzero(mask) for mask in (~tests & ~calibrates, calibrates, tests)]
    if min(map(len, where)) == 0:
        raise InputError("a fold is empty")
    if queries is not None:
        panel = _guess_types(panel, where, queries, rules)
    train_, calibration, test = (panel.take(index) for index in where)
    return _Split(train_, calibration, test.without_outcomes(), scored.take(where[2]), where[2])


def _guess_types(panel: Panel, where: Sequence[NDArray[np.int64]], queries: Mapping[str, str], rules: Rules) -> Panel:
    """The panel with a classifier's probabilities, trained on the first index, out of fold there."""
    if missing := [name for name in panel.questions if name not in queries]:
        raise InputError(f"{len(missing)} questions have no text, the first: {missing[0]}")
    trains = np.isin(np.arange(len(panel.questions)), where[0]) & (panel.types >= 0)
    groups = question_groups(panel, rules.group)
    apart = np.where(trains, groups, -1 - groups)  # one without a type may share a conversation with one that has it
    texts = [queries[name] for name in panel.questions]
    return panel.with_types(split_probabilities(texts, panel.types, apart, training=trains, seed=rules.seed))


class _Score:
    """The arrays of one policy in one repeat, filled in fold by fold."""

    def __init__(self, panel: Panel) -> None:
        shape = (len(panel.questions), len(panel.budgets))
        self.utility, self.harmed, self.replaced, self.calls, self.read, self.generated = np.full((6, *shape), np.nan)
        self.chosen = np.zeros((*shape, len(panel.actions)))

    def put(self, index: NDArray[np.int64], went: Walk, test: Panel) -> None:
        known = ~np.isnan(went.utility)
        self.utility[index], self.calls[index] = went.utility, went.calls
        self.read[index], self.generated[index] = went.read, went.generated
        worse = went.replaced & (went.utility < test.retentions - 1e-12)
        self.harmed[index] = np.where(known, worse, np.nan)
        self.replaced[index] = np.where(known, went.replaced, np.nan)
        q, b = np.ogrid[: len(index), : went.last.shape[1]]
        hits = np.zeros((*went.last.shape, self.chosen.shape[2]))
        hits[q, b, np.maximum(went.last, 0)] = went.last >= 0
        self.chosen[index] = hits


def _rotate(split: _Split, policies: Mapping[str, Policy], rules: Rules, sheets: Mapping[str, _Score]) -> None:
    for name, policy in policies.items():
        plan = policy(split.train, split.calibration, rules)(split.seen)
        sheets[name].put(split.index, walk(split.test, plan), split.test)
    for name, extra in _extras(split.test).items():
        sheets[name].put(split.index, extra(split, rules), split.test)


Extra = Callable[[_Split, Rules], Walk]


def _extras(panel: Panel) -> dict[str, Extra]:
    """What no plan can say: oracles, and rivals that spend as much as a ladder in another way."""
    extras: dict[str, Extra] = {"binary oracle": _binary_oracle, "action oracle": _action_oracle}
    if panel.abstained is not None:
        extras[VOTE] = _vote
        if any(2 * budget in panel.budgets for budget in panel.budgets):
            extras[TWICE] = _twice
    return extras


def _binary_oracle(split: _Split, rules: Rules) -> Walk:
    """Hindsight between retention and the operator selected on training questions."""
    operator = best_fixed(1)(split.train, split.calibration, rules)(split.seen)
    gain = np.take_along_axis(split.test.utility, operator, axis=2)[:, :, 0] - split.test.utility[:, :, 0]
    return walk(split.test, np.where(gain[:, :, None] > 0, operator, 0))


def _action_oracle(split: _Split, rules: Rules) -> Walk:
    """Hindsight over all actions."""
    return walk(split.test, np.argmax(split.test.utility, axis=2)[:, :, None])


def _twice(split: _Split, rules: Rules) -> Walk:
    """The best fixed action of twice the budget; NaN where that budget was not measured."""
    plan = best_fixed(0)(split.train, split.calibration, rules)(split.seen)
    at, went = split.test.budgets, walk(split.test, plan)
    nowhere = len(at)
    double = [at.index(2 * budget) if 2 * budget in at else nowhere for budget in at]

    def shift(values: Array) -> Array:
        return np.concatenate([values, np.full((len(values), 1), np.nan)], axis=1)[:, double]

    last = np.concatenate([went.last, np.full((len(went.last), 1), -1)], axis=1)[:, double]
    spent = (shift(went.calls), shift(went.read), shift(went.generated))
    return Walk(shift(went.utility), *spent, last, last > 0)


def _vote(split: _Split, rules: Rules) -> Walk:
    return vote_of_two(split.train, split.test)


def vote_of_two(train: Panel, test: Panel) -> Walk:
    """Two actions always asked, the pair learned per budget: the likelier answer stands, an abstention never wins."""
    pairs = [(a, c) for a in range(len(test.actions)) for c in range(len(test.actions)) if a != c]
    learned = np.stack([_ask_both(train, pair).utility for pair in pairs])
    best = np.argmax(np.nan_to_num(learned.mean(axis=1), nan=-1.0), axis=0)
    votes = [_ask_both(test, pair) for pair in pairs]

    def pick(name: str) -> Array:
        return np.stack([getattr(votes[best[b]], name)[:, b] for b in range(len(best))], axis=1)

    spent = (pick("calls"), pick("read"), pick("generated"))
    return Walk(pick("utility"), *spent, pick("last").astype(np.int64), pick("replaced").astype(bool))


def _ask_both(panel: Panel, pair: tuple[int, int]) -> Walk:
    """Both actions asked. Without log-probabilities the first of two answers stands."""
    assert panel.abstained is not None
    first, second = pair
    silent = panel.abstained > 0.5
    swap = silent[:, :, first] & ~silent[:, :, second]
    if panel.logprob is not None:
        likelier = panel.logprob[:, :, second] > panel.logprob[:, :, first]
        swap |= likelier & (silent[:, :, first] == silent[:, :, second])
    both = ~np.isnan(panel.runs[:, :, first] + panel.runs[:, :, second])  # a realization that lacks one is no vote
    utility = run_mean(np.where(both, np.where(swap, panel.runs[:, :, second], panel.runs[:, :, first]), np.nan))
    spent = [
        panel.tokens[name][:, :, first] + panel.tokens[name][:, :, second] if name in panel.tokens else 0 * utility
        for name in ("context_tokens", "generated_tokens")
    ]
    last = np.where(swap, second, first)
    calls = np.full(utility.shape, 2.0)
    return Walk(utility, calls, spent[0], spent[1], last[:, :, 0], np.asarray((last > 0).any(axis=2)))


def _mean(name: str, sheets: Sequence[_Score]) -> Result:
    def mean(part: str) -> Array:
        return np.asarray(np.mean([getattr(sheet, part) for sheet in sheets], axis=0))

    parts = {part: mean(part) for part in ("utility", "harmed", "replaced", "calls", "read", "generated", "chosen")}
    return Result(name, seen=~np.isnan(parts["utility"]), **parts)
