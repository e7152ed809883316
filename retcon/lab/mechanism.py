"""Why a tight budget favours a record and a loose one raw notes: the paper's surrogate over finitely many queries.

A query drawn with weight F is worth s_B(q), the signed fidelity of the best-ranked note that is retrieved and applies:
+1 right, -1 misleading, 0 nothing. Swapping the notes of a cluster for a record changes that on two regions alone:

    X = H \\ G         the record speaks, no raw note fitted     coverage     C = Pr(X) E[record | X]
    J in H & G        the record takes a raw note's place       replacement  R = Pr(J) E[record - raw | J]

with H the queries that the record supports and G those for which a raw note fits. A change anywhere else is spillover.
Nothing here is measured: the surrogate explains the direction of a change, it is not the accuracy of an answer.

Swap -> decompose -> Effects           one operator at one budget
Population, budgets -> sweep -> Sweep  every operator at every budget, G from packing real costs
gains -> joint                         when to replace, and with which operator
predicted, true -> plug_in             what a wrong prediction can cost at most
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retcon.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

RETAIN = "retain"
BUDGETS = (16, 32, 64, 128, 256, 512)
_SUM = 1e-9  # how far from 1 the weights may add up
_MOST = 1 << 53  # past it floats stop being exact


# -- one operator at one budget ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Swap:
    """One operator's swap at one budget, query by query. Sequences become read-only arrays of one length.

    `before` and `after` are the contributions s_B(q, M) of the raw notes and of what stands in their place; on J
    `before` is the fidelity of the incumbent raw note. `record` counts only inside H.
    """

    F: Floats  # weights of the queries, which add up to 1
    G: Mask  # raw-grounded: retention retrieves a note of the cluster that applies
    H: Mask  # supported by the record
    J: Mask  # inside H & G: retrieval changes from a raw note to the record
    before: Floats
    record: Floats
    after: Floats
    X: Mask = field(init=False)  # H \ G

    def __post_init__(self) -> None:
        n = np.size(self.F)
        _keep(self, F=_weights(self.F), **{name: _mask(name, getattr(self, name), n) for name in "GHJ"})
        _keep(self, **{name: _fidelity(name, getattr(self, name), (n,)) for name in ("before", "record", "after")})
        outside = self.J & ~(self.H & self.G)
        if outside.any():
            raise InputError(f"J must lie inside H and G: query {outside.argmax()} does not")
        _keep(self, X=self.H & ~self.G)

    @property
    def change(self) -> Floats:
        """What each query gains, d(q)."""
        return self.after - self.before

    @property
    def residual(self) -> Floats:
        """What of each query's change neither coverage nor replacement explains."""
        explained: Floats = np.where(self.X, self.record, 0.0) + np.where(self.J, self.record - self.before, 0.0)
        return self.change - explained

    @property
    def localized(self) -> bool:
        """Whether the swap changes retrieval only as the decomposition assumes."""
        return not self.residual.any()


def localize(*, F: ArrayLike, G: ArrayLike, H: ArrayLike, J: ArrayLike, before: ArrayLike, record: ArrayLike) -> Swap:  # noqa: N803
    """The swap under the assumption: the record is read on X and J, and all other queries keep what they had."""
    given: dict[str, Any] = {"F": F, "G": G, "H": H, "J": J, "before": before, "record": record}
    same = Swap(**given | {"after": before})
    if (spoken := same.X & (same.before != 0)).any():
        q = spoken.argmax()
        raise InputError(f"retention must contribute 0 where only the record speaks: query {q} has {same.before[q]:g}")
    return Swap(**given | {"after": np.where(same.X | same.J, same.record, same.before)})


@dataclass(frozen=True)
class Term:
    """A probability times a conditional mean; both are 0 where the region has no weight."""

    probability: float
    mean: float

    @property
    def value(self) -> float:
        return self.probability * self.mean


@dataclass(frozen=True)
class Effects:
    """What a swap does to the surrogate utility: gain = C + R + spillover."""

    coverage: Term  # C
    replacement: Term  # R
    spillover: float  # 0 where retrieval changes on X and J only
    gain: float  # the change of E_F[s_B], taken from the contributions and not from the terms


def decompose(swap: Swap) -> Effects:
    """The swap's coverage, replacement and spillover, and its gain."""
    return Effects(
        coverage=_term(swap.F, swap.X, swap.record),
        replacement=_term(swap.F, swap.J, swap.record - swap.before),
        spillover=float(swap.F @ swap.residual),  # the total less C and R, without their rounding: an exact 0 stays one
        gain=float(swap.F @ swap.change),
    )


def _term(weights: Floats, region: Mask, values: Floats) -> Term:
    probability = float(weights[region].sum())
    return Term(probability, float(weights[region] @ values[region]) / probability if probability else 0.0)


# -- when and which ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Joint:
    """The surrogate's decision for each row of gains."""

    action: Ints  # 0 retain, k the k-th operator
    advantage: Floats  # Gamma, the best operator's gain over retention


def joint(gains: ArrayLike) -> Joint:
    """When to replace and with which operator, for gains of shape (..., operators).

    Retention gains 0 and wins a tie with it; among operators that tie above it the first is taken.
    """
    table = _finite("gains", gains)
    best = table.argmax(axis=-1)  # the first of equals
    advantage = table.max(axis=-1)
    return Joint(action=np.where(advantage > 0, best + 1, 0), advantage=advantage)


@dataclass(frozen=True, eq=False)
class PlugIn:
    """What acting on predictions costs, and the most it can: regret <= bound."""

    chosen: Ints  # 0 retain, k the k-th operator
    best: Ints
    regret: Floats  # true utility of the best action less that of the chosen one
    epsilon: Floats  # the largest error of a prediction

    @property
    def bound(self) -> Floats:
        """Twice the error: the best action may look worse by epsilon, and the chosen one better."""
        return 2 * self.epsilon


def plug_in(predicted: ArrayLike, true: ArrayLike) -> PlugIn:
    """Regret and bound for utilities of shape (..., actions), retention first. Ties go to the first."""
    guess, truth = _finite("predicted", predicted), _finite("true", true)
    if guess.shape != truth.shape:
        raise InputError(f"predicted utilities have shape {guess.shape}, true ones {truth.shape}")
    chosen = guess.argmax(axis=-1)
    got = np.take_along_axis(truth, chosen[..., None], axis=-1)[..., 0]
    return PlugIn(chosen, truth.argmax(axis=-1), truth.max(axis=-1) - got, np.abs(guess - truth).max(axis=-1))


# -- a population with budgets -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """A quantity that grows with the budget from `low` towards `high`, half of the way at `half` tokens."""

    low: float
    high: float
    half: float

    def __post_init__(self) -> None:
        if not (self.half > 0 and np.isfinite((self.low, self.high, self.half)).all()):
            raise InputError(f"a curve needs finite ends and a half-way budget above 0, not {self}")

    def __call__(self, budget: float) -> float:
        return self.low + (self.high - self.low) * (budget / (budget + self.half))


@dataclass(frozen=True)
class Operator:
    """What an operator's record holds at a budget, and how well."""

    name: str
    coverage: Growth  # share of the queries that the record supports
    fidelity: Growth  # signed fidelity where no exact detail is asked for
    loss: float = 0.0  # fidelity that a query for an exact detail loses

    def __post_init__(self) -> None:
        if self.name == RETAIN:
            raise InputError(f"an operator cannot be called {RETAIN}")
        _within(f"coverage of {self.name}", (self.coverage.low, self.coverage.high), 0, 1)
        _within(f"fidelity of {self.name}", (self.fidelity.low, self.fidelity.high), -1, 1)
        _within(f"loss of {self.name}", (self.loss,), 0, 2)


@dataclass(frozen=True, eq=False)
class Population:
    """Notes in clusters, the queries they are asked, and the operators that could replace a cluster."""

    costs: Ints  # (notes,) tokens
    clusters: Ints  # (notes,) which cluster a note is in; each is packed into the budget on its own
    phi: Floats  # (notes, queries) signed fidelity, 0 where a note does not apply; the best-ranked note first
    F: Floats  # (queries,) weights
    turn: Floats  # (queries,) in [0, 1]: a record that covers the share c holds the queries with turn < c
    detail: Floats  # (queries,) in [0, 1]: how far the answer hangs on an exact date, name or number
    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        _keep(self, costs=_costs(self.costs), F=_weights(self.F), operators=tuple(self.operators))
        _keep(self, clusters=_labels(self.clusters, len(self.costs)))
        n = len(self.F)
        _keep(self, phi=_fidelity("phi", self.phi, (len(self.costs), n)))
        _keep(self, **{name: _within(name, getattr(self, name), 0, 1, (n,)) for name in ("turn", "detail")})
        names = [operator.name for operator in self.operators]
        if not names or len(set(names)) < len(names):
            raise InputError(f"operators need names of their own, at least one: {', '.join(names) or 'none given'}")


def pack(costs: ArrayLike, budget: int, clusters: ArrayLike | None = None) -> Mask:
    """Which notes fit, the cheapest of each cluster first. What fits a budget fits every larger one."""
    each = _costs(costs)
    groups = _labels(np.zeros(len(each), np.int64) if clusters is None else clusters, len(each))
    order = np.lexsort((each, groups))  # by cluster, then cost, then place
    used = each[order].cumsum()
    starts = np.searchsorted(groups[order], groups[order])  # for each note the first place of its cluster
    fits = np.empty(len(each), np.bool_)
    fits[order] = used - (used - each[order])[starts] <= _budget(budget)
    return fits


@dataclass(frozen=True, eq=False)
class Retention:
    """What retention gives each query at a budget."""

    G: Mask
    contribution: Floats  # s_B(q, M)


def retention(population: Population, budget: int) -> Retention:
    """The queries that a packed note applies to, and the fidelity of the best-ranked such note."""
    applies = (population.phi != 0) & pack(population.costs, budget, population.clusters)[:, None]  # (notes, queries)
    first = applies.argmax(axis=0)
    grounded = applies.any(axis=0)
    return Retention(grounded, np.where(grounded, population.phi[first, np.arange(len(first))], 0.0))


def swap(population: Population, operator: Operator, budget: int, *, evict: bool = False) -> Swap:
    """The operator's swap at that budget. The record takes the place of every raw note it speaks for: J = H & G.

    With `evict` the raw notes leave altogether, as in a context that holds the record alone: what they said and the
    record does not is lost, outside H, and shows as spillover.
    """
    return _swap(population, operator, budget, retention(population, budget), evict=evict)


def _swap(population: Population, operator: Operator, budget: int, raw: Retention, *, evict: bool) -> Swap:
    supported = population.turn < operator.coverage(budget)
    record = np.clip(operator.fidelity(budget) - operator.loss * population.detail, -1, 1)
    given: dict[str, Any] = {
        "F": population.F,
        "G": raw.G,
        "H": supported,
        "J": supported & raw.G,
        "before": raw.contribution,
        "record": record,
    }
    return Swap(**given, after=np.where(supported, record, 0.0)) if evict else localize(**given)


@dataclass(frozen=True, eq=False)
class Sweep:
    """The effects of every operator at every budget: arrays of shape (budgets, operators)."""

    budgets: tuple[int, ...]
    operators: tuple[str, ...]
    grounded: Floats  # (budgets,) Pr_F(G), the share of queries for which a raw note fits
    coverage: Floats  # C
    replacement: Floats  # R
    spillover: Floats
    gain: Floats

    @property
    def actions(self) -> tuple[str, ...]:
        """The joint rule's action at each budget."""
        return tuple((RETAIN, *self.operators)[k] for k in joint(self.gain).action)

    def crossings(self, operator: str) -> tuple[float, ...]:
        """The budgets at which the operator's gain turns, maybe none."""
        if operator not in self.operators:
            raise InputError(f"unknown operator {operator!r}: known are {', '.join(self.operators)}")
        return crossings(self.budgets, self.gain[:, self.operators.index(operator)])


def sweep(population: Population, budgets: Sequence[int] = BUDGETS, *, evict: bool = False) -> Sweep:
    """Coverage, replacement, spillover and gain of each operator at each budget."""
    each = _check_rising(budgets)
    raws = [retention(population, budget) for budget in each]
    effects = [
        [decompose(_swap(population, operator, budget, raw, evict=evict)) for operator in population.operators]
        for budget, raw in zip(each, raws, strict=True)
    ]
    return Sweep(
        budgets=each,
        operators=tuple(operator.name for operator in population.operators),
        grounded=np.array([population.F[raw.G].sum() for raw in raws]),
        coverage=np.array([[found.coverage.value for found in row] for row in effects]),
        replacement=np.array([[found.replacement.value for found in row] for row in effects]),
        spillover=np.array([[found.spillover for found in row] for row in effects]),
        gain=np.array([[found.gain for found in row] for row in effects]),
    )


def crossings(budgets: Sequence[int], gains: ArrayLike) -> tuple[float, ...]:
    """The budgets at which a gain turns from positive to not, or back; straight lines on a log2 axis in between."""
    x, y = np.log2(_check_rising(budgets)), _finite("gains", gains)
    if y.shape != x.shape:
        raise InputError(f"{y.size} gains for {x.size} budgets")
    at = np.flatnonzero((y[:-1] > 0) != (y[1:] > 0))
    share = y[at] / (y[at] - y[at + 1])
    return tuple(float(2**place) for place in x[at] + share * (x[at + 1] - x[at]))


def example(*, clusters: int = 32, notes: int = 6, queries: int = 3) -> Population:
    """A made-up population in which every action wins somewhere. The numbers are chosen to be looked at, not measured.

    Clusters of so many notes, small and large ones, and each note answers so many queries. Abstract says a little about
    much, Merge more and more exactly, Rewrite is the most faithful and the slowest to cover; exact details suffer in
    that order.
    """
    if min(clusters, notes, queries) < 1:
        raise InputError(f"a population needs 1 or more of each, not {clusters}, {notes} and {queries}")
    m, n = clusters * notes, clusters * notes * queries
    place, scale = np.arange(n), np.geomspace(14, 64, clusters).repeat(notes)
    return Population(
        costs=(scale * (0.5 + _spread(m, np.pi))).round().astype(np.int64),
        clusters=np.arange(clusters).repeat(notes),
        phi=np.where(place // queries == np.arange(m)[:, None], 0.9, 0.0),
        F=np.full(n, 1 / n),
        turn=_spread(n, (np.sqrt(5) - 1) / 2),
        detail=_spread(n, np.sqrt(2)),
        operators=(
            Operator("merge", Growth(0.0, 0.95, 28), Growth(0.55, 0.85, 48), loss=0.25),
            Operator("abstract", Growth(0.0, 0.82, 5), Growth(0.55, 0.70, 64), loss=0.40),
            Operator("rewrite", Growth(0.0, 1.0, 170), Growth(0.80, 0.92, 64), loss=0.10),
        ),
    )


def _spread(n: int, irrational: float) -> Floats:
    """Numbers in [0, 1) that lie evenly without chance: the multiples of an irrational, less their whole part."""
    multiples: Floats = np.arange(n, dtype=np.float64) * irrational
    return multiples % 1


# -- what may come in --------------------------------------------------------------------------------------------------


def _keep(owner: object, **values: object) -> None:
    """Set fields of a frozen object; arrays are closed for writing."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(owner, name, value)


def _finite(name: str, given: ArrayLike) -> Floats:
    """A copy as floats, none of them missing, with at least one entry along every axis."""
    try:
        values = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, in rows of one length") from None
    if not values.ndim or not values.size or not np.isfinite(values).all():
        raise InputError(f"{name} must be one or more finite numbers")
    return values


def _within(name: str, given: ArrayLike, low: float, high: float, shape: tuple[int, ...] | None = None) -> Floats:
    values = _finite(name, given)
    if shape is not None and values.shape != shape:
        raise InputError(f"{name} has shape {values.shape}, {shape} is needed")
    outside = (values < low) | (values > high)
    if outside.any():
        raise InputError(f"{name} must lie in [{low:g}, {high:g}], not {values[outside][0]:g}")
    return values


def _fidelity(name: str, given: ArrayLike, shape: tuple[int, ...]) -> Floats:
    return _within(f"fidelity {name!r}", given, -1, 1, shape)


def _weights(given: ArrayLike) -> Floats:
    values = _finite("weights F", given)
    if values.ndim != 1:
        raise InputError(f"weights F have shape {values.shape}, one row is needed")
    if (values < 0).any():
        raise InputError(f"weights F must be 0 or more, not {values.min():g}")
    if abs((total := float(values.sum())) - 1) > _SUM:
        raise InputError(f"weights F must add up to 1, not {total:g}")
    return values


def _mask(name: str, given: ArrayLike, n: int) -> Mask:
    complaint = InputError(f"{name} must be true or false for each of {n} queries")
    try:
        values = np.array(given)
    except ValueError:
        raise complaint from None
    if values.dtype != np.bool_ or values.shape != (n,):
        raise complaint
    return values


def _costs(given: ArrayLike) -> Ints:
    values = _finite("costs", given)
    if values.ndim != 1 or (values < 1).any() or (values > _MOST / values.size).any() or (values % 1).any():
        raise InputError("costs must be whole tokens, 1 or more for each note")
    return values.astype(np.int64)


def _labels(given: ArrayLike, n: int) -> Ints:
    values = _finite("clusters", given)
    if values.shape != (n,) or (values % 1).any():
        raise InputError(f"clusters must be one whole number for each of {n} notes")
    return values.astype(np.int64)


def _budget(budget: int) -> int:
    try:
        whole = index(budget)
    except TypeError:
        raise InputError(f"a budget must be whole tokens, not {budget!r}") from None
    if not 1 <= whole <= _MOST:
        raise InputError(f"a budget must be 1 token or more, and below 2**53, not {whole}")
    return whole


def _check_rising(budgets: Sequence[int]) -> tuple[int, ...]:
    each = tuple(_budget(budget) for budget in budgets)
    if not each or any(b <= a for a, b in pairwise(each)):
        raise InputError(f"budgets must rise, and be at least one: {', '.join(map(str, each)) or 'none given'}")
    return each
