"""Calibration outcomes -> Threshold: the margin tau from which a router may replace raw notes.

Each calibration question of one budget brings three numbers: the advantage s = mu(o+) - mu(retain) that the router
predicts, and the true utilities of o+ (`chosen`) and of retention (`retained`), each in [0, 1]. The policy of tau
replaces iff s >= tau. A question is harmed when it was replaced and chosen < retained, compared exactly.

**The paper's rule** takes the most accurate threshold among those that harmed no calibration question. It is an
operating rule: it says nothing about questions that were not seen.

**The certified rule** bounds the harm rate H(tau), the share of all questions of the population that tau harms. Why it
may choose among the observed advantages and still be exact: raising tau can only take replacements away, so on any
sample the harm count, and with it its Clopper-Pearson bound, can only fall. Hence if any tau with H(tau) > alpha
passes, so does every tau above it that is still too harmful, up to the edge of the harmful region. There one fixed tau
(or a limit of such) stands for all of them: its count is binomial with a rate above alpha, so its exact bound comes out
at or below alpha with probability delta at most. So with probability 1 - delta every threshold that passes is safe, all
at once, and the most accurate of them may be picked by looking. (The argument of risk-controlling prediction sets,
Bates et al. 2021, for a 0/1 loss, where the binomial makes it exact.)

What it needs, and what it is not:
- The router was fixed before, on other questions; advantages are computed as they will be when it serves.
- One row per question. Two budgets or two realizations of one question are not two questions: average realizations
  first, calibrate each budget alone, and use `joint_thresholds` to speak of all budgets at once.
- Questions are drawn independently from the population served. Questions of one conversation are not: with few
  conversations the promise is about more questions of those conversations, not about new ones.
- A share delta of calibration sets may mislead; and what is bounded is how often harm occurs, not how bad it is.

"None qualifies" (tau = inf, never replace) is a normal answer: see `smallest_n`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retcon.errors import InputError

ByBudget = Mapping[int, tuple[ArrayLike, ArrayLike, ArrayLike]]  # (advantage, chosen, retained) of each budget
RULES = ("paper", "certified")
JOINTS = ("split", "any", "each")

_Floats = NDArray[np.float64]
_SAME = 1e-12  # accuracies closer than this differ by rounding only


@dataclass(frozen=True, slots=True)
class Threshold:
    """A margin from which replacing is accepted, with what it did on the calibration questions."""

    tau: float  # accept iff s >= tau; inf: never
    accepted: int  # calibration questions at or above it
    harms: int  # those of them that were harmed
    questions: int
    accuracy: float  # of the policy on the calibration questions; 0 where there are none
    bound: float | None  # exact upper bound on the harm rate, 0 for tau = inf; None: nothing was certified
    alpha: float | None = None
    delta: float | None = None  # the level this threshold was tested at, after any split over budgets


def paper_threshold(advantage: ArrayLike, chosen: ArrayLike, retained: ArrayLike, *, cap: float = 0.0) -> Threshold:
    """The paper's threshold: the most accurate one that harms at most a share `cap` of all calibration questions.

    Candidates are the observed advantages and abstain-all, as the text says: where calibration bears it out, tau may be
    zero or negative, and then replaces where a direct router (s > 0) would not. Of equally accurate thresholds the
    highest is taken, so abstain-all wins unless replacing is strictly better.
    """
    if not 0 <= cap <= 1:
        raise InputError(f"a cap on harm is from 0 to 1, not {cap}")
    rows = _rows(advantage, chosen, retained)
    sweep = _sweep(_candidates(rows.advantage), rows.advantage, rows.gain, rows.harmed_at)
    # harms / n and not cap * n: 29 / 100 is the 0.29 that was typed, 0.29 * 100 is less than 29
    return rows.at(sweep.best(sweep.harms / max(rows.n, 1) <= cap, rows.n))


def certified_threshold(
    advantage: ArrayLike, chosen: ArrayLike, retained: ArrayLike, *, alpha: float = 0.05, delta: float = 0.10
) -> Threshold:
    """The most accurate threshold with P(harm rate over all questions <= alpha) >= 1 - delta, or tau = inf.

    The sweep runs from abstain-all downwards over the observed advantages, equal ones together, and ends where the
    exact upper bound first exceeds alpha. Of equally accurate thresholds the highest is taken.
    """
    _check_levels(alpha, delta)
    rows = _rows(advantage, chosen, retained)
    sweep = _sweep(_candidates(rows.advantage), rows.advantage, rows.gain, rows.harmed_at)
    tau = sweep.best(sweep.passing(rows.n, alpha, delta), rows.n)
    harms = int(np.count_nonzero(rows.harmed_at >= tau))
    return rows.at(tau, bound=_bound_of(tau, harms, rows.n, delta), alpha=alpha, delta=delta)


def certified_among_replacements(
    advantage: ArrayLike,
    chosen: ArrayLike,
    retained: ArrayLike,
    *,
    grid: Iterable[float],
    alpha: float = 0.05,
    delta: float = 0.10,
) -> Threshold:
    """The most accurate threshold of `grid` with P(harm rate among replaced questions <= alpha) >= 1 - delta, or inf.

    This rate may rise as tau does, so observed advantages cannot be candidates: `grid` must have been fixed on other
    questions. It is tested from the strictest value down, each at level delta, until the first that fails (fixed-
    sequence testing): the first value that is truly too harmful is wrongly passed with probability delta at most, and
    nothing after it is reached otherwise. A value that accepts fewer than `smallest_n(alpha, delta)` questions fails,
    and ends the test; so begin the grid at a value that should accept more than that.
    """
    _check_levels(alpha, delta)
    rows = _rows(advantage, chosen, retained)
    sweep = _sweep(_grid_candidates(grid), rows.advantage, rows.gain, rows.harmed_at)
    tested = zip(sweep.harms.tolist(), sweep.accepted.tolist(), strict=True)
    passed = [_bound(harms, accepted, delta) <= alpha for harms, accepted in tested]
    tau = sweep.best(np.logical_and.accumulate([True, *passed[1:]]), rows.n)
    found = rows.at(tau)
    return rows.at(tau, bound=_bound_of(tau, found.harms, found.accepted, delta), alpha=alpha, delta=delta)


def thresholds(
    by_budget: ByBudget,
    *,
    rule: str = "paper",
    cap: float = 0.0,
    alpha: float = 0.05,
    delta: float = 0.10,
    joint: str = "split",
) -> dict[int, Threshold]:
    """A threshold per budget by the paper's rule or the certified one; "each": every budget is certified at delta."""
    if rule not in RULES:
        raise InputError(f"the rule is {' or '.join(RULES)}, not {rule!r}")
    if joint not in JOINTS:
        raise InputError(f"budgets are joined by {', '.join(JOINTS)}, not {joint!r}")
    if rule == "paper":
        return {budget: paper_threshold(*rows, cap=cap) for budget, rows in by_budget.items()}
    if joint == "each":
        return {b: certified_threshold(*rows, alpha=alpha, delta=delta) for b, rows in by_budget.items()}
    return joint_thresholds(by_budget, alpha=alpha, delta=delta, how="any" if joint == "any" else "split")


def joint_thresholds(
    by_budget: ByBudget,
    *,
    alpha: float = 0.05,
    delta: float = 0.10,
    how: Literal["split", "any"] = "split",
) -> dict[int, Threshold]:
    """A certified threshold per budget, all of them right at once with probability 1 - delta.

    "split": every budget is certified alone at delta / number of
    budgets; its harm rate is at most alpha. "any": one tau for all budgets, and a question counts as harmed if it is
    harmed at any of them; that rate is at most alpha, and so is each budget's. It needs the same questions in the same
    order at every budget. Its `bound` is that of the joint rate, its `harms` those of the budget.
    """
    _check_levels(alpha, delta)
    if not by_budget:
        raise InputError("no budget to calibrate")
    if how == "split":
        level = delta / len(by_budget)
        return {b: certified_threshold(*rows, alpha=alpha, delta=level) for b, rows in by_budget.items()}
    if how == "any":
        return _share_threshold({b: _rows(*rows) for b, rows in by_budget.items()}, alpha, delta)
    raise InputError(f"budgets are joined by 'split' or 'any', not {how!r}")


def upper_bound(harms: int, n: int, delta: float) -> float:
    """The exact one-sided Clopper-Pearson bound: the largest rate p with P(Binomial(n, p) <= harms) > delta.

    Whatever the true rate is, the bound of a sample falls below it with probability delta at most. Of n = 0 nothing is
    known: 1.
    """
    _check_level("delta", delta)
    return _bound(*_check_counts(harms, n), delta)


def smallest_n(alpha: float, delta: float, harms: int = 0) -> int:
    """The fewest calibration questions with which so many harms still certify alpha at level delta."""
    _check_levels(alpha, delta)
    harms, _ = _check_counts(harms, harms)
    few, many = harms, 2 * harms + 1
    while _bound(harms, many, delta) > alpha:
        few, many = many, 2 * many
    return few + 1 + bisect_left(range(few + 1, many), True, key=lambda n: _bound(harms, n, delta) <= alpha)


# Rows: one budget's calibration questions.


@dataclass(frozen=True, slots=True)
class _Rows:
    advantage: _Floats
    chosen: _Floats
    retained: _Floats

    @property
    def n(self) -> int:
        return len(self.advantage)

    @property
    def gain(self) -> _Floats:
        return self.chosen - self.retained

    @property
    def harmed_at(self) -> _Floats:
        """The advantages of the questions that replacing would harm: tau harms those at or above it."""
        return self.advantage[self.chosen < self.retained]

    def at(
        self, tau: float, *, bound: float | None = None, alpha: float | None = None, delta: float | None = None
    ) -> Threshold:
        """What the policy of tau does here, and what is promised of it."""
        replaced = self.advantage >= tau
        utility = math.fsum(np.where(replaced, self.chosen, self.retained))  # of any order of the rows the same
        return Threshold(
            tau=tau,
            accepted=int(np.count_nonzero(replaced)),
            harms=int(np.count_nonzero(self.harmed_at >= tau)),
            questions=self.n,
            accuracy=utility / self.n if self.n else 0.0,
            bound=bound,
            alpha=alpha,
            delta=delta,
        )


def _rows(advantage: ArrayLike, chosen: ArrayLike, retained: ArrayLike) -> _Rows:
    named = {"advantage": advantage, "chosen": chosen, "retained": retained}
    rows = _Rows(**{name: _column(name, values) for name, values in named.items()})
    lengths = {name: len(getattr(rows, name)) for name in named}
    if len(set(lengths.values())) > 1:
        raise InputError("one row per question: " + ", ".join(f"{n} of {name}" for name, n in lengths.items()))
    for name in ("chosen", "retained"):
        if odd := int(np.count_nonzero(np.abs(getattr(rows, name) - 0.5) > 0.5)):
            raise InputError(f"utilities are from 0 to 1: {odd} of {rows.n} in {name} are not")
    return rows


def _column(name: str, values: ArrayLike) -> _Floats:
    try:
        column = np.asarray(values, dtype=float) + 0.0  # -0.0 becomes 0.0
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, one per question") from None
    if column.ndim != 1:
        raise InputError(f"{name} must be one number per question, not an array of shape {column.shape}")
    if odd := int(np.count_nonzero(~np.isfinite(column))):
        raise InputError(f"{name} holds {odd} of {len(column)} values that are not finite")
    return column


# The sweep: every candidate from the strictest down. Candidate 0 is abstain-all.


@dataclass(frozen=True, slots=True)
class _Sweep:
    tau: _Floats  # inf first, then falling
    accepted: NDArray[np.int64]
    harms: NDArray[np.int64]
    gain: _Floats  # total utility above retention's

    def passing(self, n: int, alpha: float, delta: float) -> NDArray[np.bool_]:
        """Which candidates pass: abstain-all, which harms nobody, and those with few enough harms among n."""
        return np.isposinf(self.tau) | (self.harms <= _most_harms(n, alpha, delta))

    def best(self, allowed: NDArray[np.bool_], n: int) -> float:
        """The most accurate allowed candidate, the strictest of equals."""
        top = self.gain[allowed].max()
        return float(self.tau[np.flatnonzero(allowed & (self.gain >= top - _SAME * n))[0]])


def _sweep(tau: _Floats, advantage: _Floats, gain: _Floats, harmed_at: _Floats) -> _Sweep:
    falling = np.argsort(-advantage, kind="stable")
    accepted = _count_reaching(tau, advantage)
    totals = np.concatenate([[0.0], np.cumsum(gain[falling])])
    return _Sweep(tau, accepted, _count_reaching(tau, harmed_at), totals[accepted])


def _count_reaching(tau: _Floats, values: _Floats) -> NDArray[np.int64]:
    """How many of the values are at or above each tau."""
    return len(values) - np.searchsorted(np.sort(values), tau, side="left")


def _candidates(advantage: _Floats) -> _Floats:
    return np.concatenate([[math.inf], np.unique(advantage)[::-1]])


def _grid_candidates(grid: Iterable[float]) -> _Floats:
    return _candidates(_column("grid", [tau for tau in grid if tau != math.inf]))


def _share_threshold(by_budget: Mapping[int, _Rows], alpha: float, delta: float) -> dict[int, Threshold]:
    """One tau for all budgets, certified for harm at any of them."""
    every = list(by_budget.values())
    n = every[0].n
    if any(rows.n != n for rows in every):
        raise InputError(f"'any' needs the same questions at every budget, not {[rows.n for rows in every]} of them")
    advantage, gain = (np.concatenate(parts) for parts in ([r.advantage for r in every], [r.gain for r in every]))
    # a question is harmed somewhere iff tau is at or below the highest advantage it is harmed at
    last = np.max([np.where(r.chosen < r.retained, r.advantage, -math.inf) for r in every], axis=0)
    harmed_at = last[last > -math.inf]
    sweep = _sweep(_candidates(advantage), advantage, gain, harmed_at)
    tau = sweep.best(sweep.passing(n, alpha, delta), n * len(every))
    bound = _bound_of(tau, int(np.count_nonzero(harmed_at >= tau)), n, delta)
    return {b: rows.at(tau, bound=bound, alpha=alpha, delta=delta) for b, rows in by_budget.items()}


# The binomial.


def _bound_of(tau: float, harms: int, n: int, delta: float) -> float:
    return 0.0 if tau == math.inf else _bound(harms, n, delta)


@lru_cache(maxsize=1 << 14)
def _most_harms(n: int, alpha: float, delta: float) -> int:
    """The most harms among n whose bound is at most alpha; -1 where not even none at all would do."""
    return bisect_right(range(n + 1), alpha, key=lambda harms: _bound(harms, n, delta)) - 1


@lru_cache(maxsize=1 << 14)
def _bound(harms: int, n: int, delta: float) -> float:
    """The root of P(Binomial(n, p) <= harms) = delta, found by halving to the last bit and rounded up."""
    low, high = 0.0, 1.0
    while harms < n and low < (middle := (low + high) / 2) < high:
        if _at_most(harms, n, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def _at_most(k: int, n: int, p: float) -> float:
    """P(Binomial(n, p) <= k) for k < n, from the shorter tail: all terms positive, the largest first."""
    odds = p / (1 - p)
    if k < (n + 1) * p:
        ratios = (i / ((n - i + 1) * odds) for i in range(k, 0, -1))
        return _mass(k, n, p) * _series(ratios)
    ratios = ((n - i) * odds / (i + 1) for i in range(k + 1, n))
    return 1 - _mass(k + 1, n, p) * _series(ratios)


def _series(ratios: Iterable[float]) -> float:
    """1 + r1 + r1 r2 + ... for falling ratios below 1, until what is left no longer counts."""
    term = total = 1.0
    for ratio in ratios:
        term *= ratio
        total += term
        if term < 1e-18 * total:
            break
    return total


def _mass(k: int, n: int, p: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


# Checks.


def _check_levels(alpha: float, delta: float) -> None:
    _check_level("alpha", alpha)
    _check_level("delta", delta)


def _check_level(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name} is between 0 and 1, not {value}")


def _check_counts(harms: int, n: int) -> tuple[int, int]:
    try:
        counts = index(harms), index(n)
    except TypeError:
        raise InputError(f"harms and n are whole numbers, not {harms!r} and {n!r}") from None
    if not 0 <= counts[0] <= counts[1]:
        raise InputError(f"{counts[0]} harms of {counts[1]} questions")
    return counts
