"""Panel with abstentions -> Ladder: in which order to try actions, and where to stop.

A look recalls with one action and asks the reader; an abstention leads to the next look, the end of the order to "not
in memory". An order of looks is worth its final utility less a price for every reader call and generated token, so that
a look which does not pay is not in the order. All orders of a few looks are walked on the training questions, the best
of them kept, and a ridge response per order (features, and a free level at every budget) says which to use for a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import perm

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.features import FEATURES
from retcon.lab.fit import ridge
from retcon.lab.outcomes import Panel
from retcon.ladder import TIED, Ladder
from retcon.note import Decision
from retcon.route import Router

Array = NDArray[np.float64]
Order = tuple[int, ...]  # places of actions in a panel
Plan = NDArray[np.int64]  # [q, b, look], -1 after the last look

CALL_PRICE = 0.01  # utility that one more reader call must bring
TOKEN_PRICE = 0.0  # the same, for one generated token
LOOKS = 4
KEPT = 20  # orders that the ridge chooses between
PENALTY = 0.1
LEVEL = 3.0  # scale of the budget indicators beside standardised features: large, so hardly shrunk
MOST_ORDERS = 20_000


@dataclass(frozen=True, slots=True)
class Walk:
    """What plans came to, each [q, b]: final utility, reader calls, tokens read and generated, look that answered."""

    utility: Array
    calls: Array
    read: Array
    generated: Array
    last: NDArray[np.int64]  # the action whose answer stands (the last one tried, where all abstained)
    replaced: NDArray[np.bool_]  # whether in some realization that action is not retention

    @property
    def tokens(self) -> Array:
        """Tokens the reader was shown and tokens that operators wrote."""
        return self.read + self.generated


def orders(actions: int, *, looks: int = LOOKS) -> list[Order]:
    """Every ordered choice of one to `looks` actions, the short ones first."""
    if looks < 1:
        raise InputError(f"a ladder has one look at least, not {looks}")
    if sum(perm(actions, k) for k in range(1, looks + 1)) > MOST_ORDERS:
        raise InputError(f"{actions} actions have more than {MOST_ORDERS} orders of {looks} looks: try fewer of either")
    return [order for k in range(1, looks + 1) for order in permutations(range(actions), k)]


def walk(panel: Panel, plan: Plan) -> Walk:
    """What came of following a plan, from outcomes as they were measured, averaged over realizations.

    An action that stands twice in an order is asked again: its next realization answers, where there is one.
    """
    if panel.abstained is None and plan.shape[2] > 1:
        raise InputError("a ladder needs a column 'abstained' without gaps in the outcomes")
    walks = [_walk_run(panel, plan, run) for run in range(panel.runs.shape[3])]
    complete = [each for each in walks if not np.isnan(each.utility).any()]
    if not complete:
        raise InputError("no realization holds every action of the ladder for every question")
    mean = {
        name: np.mean([getattr(each, name) for each in complete], axis=0) for name in ("calls", "read", "generated")
    }
    replaced = np.any([each.replaced for each in complete], axis=0)
    return Walk(utility=_final(panel, plan, complete), last=complete[0].last, replaced=replaced, **mean)


def _final(panel: Panel, plan: Plan, complete: Sequence[Walk]) -> Array:
    """Final utility; a plan of one look has its action's own mean (retention's over all its runs)."""
    mean: Array = np.mean([each.utility for each in complete], axis=0)
    single = np.take_along_axis(panel.utility, plan[:, :, :1], axis=2)[:, :, 0]
    return np.where((plan >= 0).sum(axis=2) == 1, single, mean)


def _walk_run(panel: Panel, plan: Plan, run: int) -> Walk:
    shape, realizations = plan.shape[:2], panel.runs.shape[3]
    q, b = np.ogrid[: shape[0], : shape[1]]
    utility, last = np.zeros(shape), np.full(shape, -1)
    calls, read, generated = np.zeros((3, *shape))
    going = np.ones(shape, bool)
    for look in range(plan.shape[2]):
        action = plan[:, :, look]
        going &= action >= 0
        place = np.maximum(action, 0)
        asked_before = (plan[:, :, :look] == action[:, :, None]).sum(axis=2)
        r = (run + asked_before) % realizations
        utility, last = np.where(going, panel.runs[q, b, place, r], utility), np.where(going, action, last)
        calls += going
        for name, total in (("context_tokens", read), ("generated_tokens", generated)):
            if name in panel.tokens:
                total += going * panel.tokens[name][q, b, place]
        if panel.abstained is not None:
            going &= panel.abstained[q, b, place, r] > 0.5
    return Walk(utility, calls, read, generated, last, last > 0)


def worth(panel: Panel, every: Sequence[Order], *, call_price: float, token_price: float) -> Array:
    """[order, q, b]: final utility of each order less what it spent."""
    values = np.empty((len(every), len(panel.questions), len(panel.budgets)))
    for place, order in enumerate(every):
        went = walk(panel, constant_plan(panel, order))
        values[place] = went.utility - call_price * went.calls - token_price * went.generated
    return values


def constant_plan(panel: Panel, order: Order) -> Plan:
    """The same order for every question and budget."""
    return np.broadcast_to(np.array(order), (len(panel.questions), len(panel.budgets), len(order)))


def per_budget(values: Array, every: Sequence[Order]) -> list[Order]:
    """The order of highest mean worth at each budget; of equals the one with fewer looks."""
    return [every[int(np.argmax(values[:, :, b].mean(axis=1)))] for b in range(values.shape[2])]


def fit_ladder(
    panel: Panel, *, looks: int = LOOKS, call_price: float = CALL_PRICE, token_price: float = TOKEN_PRICE,
    kept: int = KEPT, penalty: float = PENALTY,
) -> Ladder:  # fmt: skip
    """The ladder learned from every question of the panel."""
    every = orders(len(panel.actions), looks=min(looks, len(panel.actions)))
    values = worth(panel, every, call_price=call_price, token_price=token_price)
    best = _best_orders(values, kept)
    targets = values[best].transpose(1, 2, 0).reshape(-1, len(best))
    scale = panel.x.reshape(-1, panel.x.shape[2]).std(axis=0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    level = np.broadcast_to(LEVEL * np.eye(len(panel.budgets)), (*panel.x.shape[:2], len(panel.budgets)))
    rows = np.concatenate([panel.x / scale, level], axis=2).reshape(len(targets), -1)
    model = ridge(rows, targets, penalty=penalty)
    theta, levels = model.theta[:, : len(scale)] / scale, LEVEL * model.theta[:, len(scale) :]
    return Ladder(
        orders=tuple(tuple(panel.actions[a] for a in every[place]) for place in best),
        features=panel.features,
        weights=tuple(tuple(map(float, row)) for row in theta),
        intercepts={
            budget: tuple(map(float, model.intercept + levels[:, b])) for b, budget in enumerate(panel.budgets)
        },
        call_price=call_price,
        token_price=token_price,
    )


def _best_orders(values: Array, kept: int) -> NDArray[np.int64]:
    """Places of the orders of highest mean worth, rising; of orders that came to the same everywhere the first."""
    flat = values.reshape(len(values), -1)
    different = np.sort(np.unique(flat, axis=0, return_index=True)[1])
    ranked = different[np.argsort(-flat[different].mean(axis=1), kind="stable")]
    return np.sort(ranked[:kept])


def plan(ladder: Ladder, panel: Panel) -> Plan:
    """The order that the ladder gives each question and budget, as places of the panel's actions."""
    place = {name: i for i, name in enumerate(panel.actions)}
    longest = max(map(len, ladder.orders))
    table = np.array([[place[name] for name in order] + [-1] * (longest - len(order)) for order in ladder.orders])
    columns = [panel.features.index(name) for name in ladder.features]
    scores = panel.x[:, :, columns] @ np.array(ladder.weights).T
    scores += np.array([ladder.levels(budget) for budget in panel.budgets])
    found: Plan = table[np.argmax(np.round(scores, TIED), axis=2)]
    return found


def decisions(router: Router, panel: Panel, *, safe: bool = False) -> Iterator[tuple[tuple[int, ...], Decision]]:
    """(place of question and budget, what the router decides there) as when it serves, among the panel's actions.

    A panel that does not say how many notes there were had some.
    """
    known = [action for action in router.actions if action in panel.actions]
    places = [FEATURES.index(name) for name in panel.features]
    for cell in np.ndindex(*panel.x.shape[:2]):
        x = np.array([float(name == "notes") for name in FEATURES])
        x[places] = panel.x[cell]
        yield cell, router.decide(x, budget=panel.budgets[cell[1]], available=known, safe=safe)


def serving_plan(router: Router, panel: Panel) -> Plan:
    """The order that a router's ladder gives each question and budget when it serves."""
    found = np.full((*panel.x.shape[:2], len(panel.actions)), -1, np.int64)
    for cell, decision in decisions(router, panel):
        found[cell][: len(decision.order)] = [panel.actions.index(action) for action in decision.order]
    return found


def whole_first(plan: Plan) -> Plan:
    """The same orders after a look at whole notes: where those answer, that answer stands, so none of them is lost.

    Retention is the first action of every panel.
    """
    later = np.where(plan == 0, -1, plan)
    later = np.take_along_axis(later, np.argsort(later < 0, axis=2, kind="stable"), axis=2)
    return np.concatenate([np.zeros((*plan.shape[:2], 1), np.int64), later], axis=2)
