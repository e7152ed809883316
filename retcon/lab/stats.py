"""Outcomes -> paired intervals, sign-flip tests and the rows of a table. Arrays in, frozen rows out.

Budgets and realizations repeat a measurement; they are no further sample. So realizations are averaged within a
question first, and what is drawn is the independent unit: a question, or a whole conversation where questions share
one. `units` is the only place that says which. `resample` draws once, and every column of every table is read off the
same draws, so that numbers side by side differ by what was measured and never by chance.

Draws belong to positions. Means, tallies and exact p do not depend on the order of the rows; the last digit of an
interval does, so sort questions by id before they come here. NaN stands for "not there": a question outside the
stratum, a realization that was not run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, floor, nan
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retcon.errors import InputError

Array = NDArray[np.float64]
Alternative = Literal["greater", "less", "two-sided"]
ALTERNATIVES = ("greater", "less", "two-sided")

_DIGITS = 12  # decimals kept of a mean: sums of thirds that cancel are zero, on every machine
_TIE = 1e-9  # values no further apart are equal
_DRAWN = 1 << 18  # entries of [draw, unit] drawn at a time: they stay in the processor's cache
_SUMMED = 1 << 23  # and multiplied at a time: 64 MB
_MOST_SUMS = 1 << 20  # that the exact sign-flip test enumerates: 20 units of different sizes, far more of like size


# ---- the independent unit and the paired bootstrap


def units(n: int, clusters: Iterable[Hashable] | None = None) -> NDArray[np.intp]:
    """The independent unit of each of n questions: itself, or its cluster; numbered as they first appear."""
    if n < 1:
        raise InputError(f"statistics need at least 1 question, not {n}")
    if clusters is None:
        return np.arange(n)
    seen: dict[Hashable, int] = {}
    unit = np.array([seen.setdefault(label, len(seen)) for label in clusters], np.intp)
    if len(unit) != n:
        raise InputError(f"{len(unit)} cluster labels for {n} questions")
    return unit


@dataclass(frozen=True, slots=True, eq=False)
class Resamples:
    """The draws of a paired bootstrap, made once for all columns."""

    counts: NDArray[np.int16]  # [draw, unit] how often a unit was drawn
    unit: NDArray[np.intp]  # [question]
    seed: int

    def totals(self, columns: Array) -> Array:
        """The sum of each column over each resample, [column, draw]; `columns` is [unit, column]."""
        draws, size = self.counts.shape
        blocks = (self.counts[at : at + rows] for at, rows in _blocks(draws, size, _SUMMED))
        return np.concatenate([columns.T @ block.T.astype(np.float64) for block in blocks], axis=1)


def resample(n: int, *, seed: int, draws: int = 10_000, clusters: Iterable[Hashable] | None = None) -> Resamples:
    """The resamples of n questions, or of their clusters where labels are given (one label a question).

    With few clusters (LoCoMo has ten conversations) percentile intervals are too narrow: read them as a lower bound on
    the doubt.
    """
    if draws < 1:
        raise InputError(f"a bootstrap needs at least 1 draw, not {draws}")
    unit = units(n, clusters)
    size = int(unit.max()) + 1
    rng = np.random.default_rng(seed)
    blocks = [_draw_counts(rng, rows, size) for _, rows in _blocks(draws, size, _DRAWN)]
    return Resamples(np.concatenate(blocks), unit, seed)


def _blocks(draws: int, size: int, entries: int) -> Iterator[tuple[int, int]]:
    """Where each block of draws starts, and how many it has."""
    rows = max(1, entries // size)
    return ((at, min(rows, draws - at)) for at in range(0, draws, rows))


def _draw_counts(rng: np.random.Generator, draws: int, size: int) -> NDArray[np.int16]:
    picked = rng.integers(size, size=(draws, size)) + size * np.arange(draws)[:, None]
    return np.bincount(picked.ravel(), minlength=draws * size).reshape(draws, size).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n questions and its interval."""

    mean: float
    low: float
    high: float
    n: int

    def excludes(self, value: float = 0.0) -> bool:
        """Whether the value lies outside the interval; False where there is no interval."""
        return value < self.low or value > self.high


def interval(values: ArrayLike, resamples: Resamples, *, level: float = 0.95) -> Estimate:
    """The mean of one column [question] with its percentile interval."""
    return intervals(_floats(values, 1)[:, None], resamples, level=level)[0]


def intervals(values: ArrayLike, resamples: Resamples, *, level: float = 0.95) -> list[Estimate]:
    """The mean of each column of [question, column] with its percentile interval.

    The mean is a ratio, sum over number of questions, in each resample as in the sample: NaN entries count in neither.
    Resamples that hold none of a column's questions say nothing about it. A column of NaN alone has n = 0.
    """
    columns, tails = _floats(values, 2), _tails(level)
    drawn = np.sort(replicates(columns, resamples).T)  # [column, draw], NaN last
    low, high = (_quantile(drawn, tail).tolist() for tail in tails)
    n = (~np.isnan(columns)).sum(axis=0).tolist()
    return [Estimate(*row) for row in zip(_round(_mean(columns, 0)).tolist(), low, high, n, strict=True)]


def replicates(values: ArrayLike, resamples: Resamples) -> Array:
    """The mean of each column in each resample, [draw, column]; NaN where it holds none of the column's questions."""
    sums, sizes = _by_unit(_floats(values, 2), resamples.unit)
    distinct, which = np.unique(sizes, axis=1, return_inverse=True)  # most columns hold the same questions
    totals, held = np.split(resamples.totals(np.hstack([sums, distinct])), [sums.shape[1]])
    with np.errstate(invalid="ignore"):
        return _round(totals / held[which.ravel()]).T


def _tails(level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not at {level}")
    return (1 - level) / 2, (1 + level) / 2


def _quantile(ordered: Array, q: float) -> Array:
    """The q-quantile of each sorted row, linear between neighbours, NaN at the end left out."""
    last = np.maximum((~np.isnan(ordered)).sum(axis=1) - 1, 0)
    below = np.floor(q * last).astype(np.intp)
    rows, above = np.arange(len(ordered)), np.minimum(below + 1, last)
    left, right = ordered[rows, below], ordered[rows, above]
    return np.asarray(left + (q * last - below) * (right - left))


def _by_unit(columns: Array, unit: NDArray[np.intp]) -> tuple[Array, Array]:
    """Sum and number of each unit's values, both [unit, column]."""
    if len(columns) != len(unit):
        raise InputError(f"{len(columns)} rows of values for {len(unit)} questions")
    there = ~np.isnan(columns)
    sums, sizes = np.zeros((2, int(unit.max()) + 1, columns.shape[1]))
    np.add.at(sums, unit, np.where(there, columns, 0.0))
    np.add.at(sizes, unit, there)
    return sums, sizes


def _round(means: Array) -> Array:
    return np.asarray(np.round(means, _DIGITS) + 0.0)  # -0. becomes 0.


def _floats(values: ArrayLike, ndim: int) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim != ndim:
        raise InputError(f"values need {ndim} dimensions, not {array.ndim}")
    if np.isinf(array).any():
        raise InputError(f"{np.isinf(array).sum()} of {array.size} values are infinite")
    return array


def _mean(values: Array, axis: int) -> Array:
    """The mean of what is there along an axis, NaN where nothing is."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=axis) / (~np.isnan(values)).sum(axis=axis))


# ---- sign flips


def sign_flip(
    differences: ArrayLike,
    *,
    seed: int,
    alternative: Alternative = "greater",
    draws: int = 10_000,
    clusters: Iterable[Hashable] | None = None,
) -> float:
    """The p value of paired differences [question] if each unit's sign were a coin toss; 1 where all are zero.

    A tie with the observed sum counts as at least as extreme. Differences of averaged verdicts take few sizes, so
    their sums mostly coincide and all of them are enumerated: p is exact, whatever the seed. Where more than 2^20 sums
    differ (from 21 units of different size on) it is (1 + hits) / (1 + draws) over random flips.
    """
    if alternative not in ALTERNATIVES:
        raise InputError(f"the alternative is one of {', '.join(ALTERNATIVES)}, not {alternative!r}")
    column = _floats(differences, 1)[:, None]
    total = _by_unit(column, units(len(column), clusters))[0][:, 0]
    largest = np.abs(total).max()
    if largest <= _TIE * np.nansum(np.abs(column)):  # nothing but rounding is left
        return 1.0
    observed, (sizes, number) = float(total.sum() / largest), _sizes(np.abs(total) / largest)
    every = _enumerate_sums(sizes, number)
    if every is not None:
        sums, chances = every
        return min(1.0, float(chances[_extreme(sums, observed, alternative)].sum()))
    hits = _extreme(_flip_sums(sizes, number, draws, seed), observed, alternative).sum()
    return float((1 + hits) / (1 + draws))


def _sizes(total: Array) -> tuple[Array, NDArray[np.intp]]:
    """The sizes above zero that units have, and how many have each."""
    rounded, first, number = np.unique(np.round(total, _DIGITS), return_index=True, return_counts=True)
    return total[first][rounded > 0], number[rounded > 0]  # not the rounded ones: three thirds must make one


def _extreme(sums: Array, observed: float, alternative: Alternative) -> NDArray[np.bool_]:
    if alternative == "two-sided":
        return np.abs(sums) >= abs(observed) - _TIE
    return sums >= observed - _TIE if alternative == "greater" else sums <= observed + _TIE


def _enumerate_sums(sizes: Array, number: NDArray[np.intp]) -> tuple[Array, Array] | None:
    """Every sum that flips can give, with its probability; None where they are too many.

    Of m units of one size s, k stay positive with probability C(m, k) / 2^m and add s (2k - m).
    """
    sums: Array = np.zeros(1)
    chances: Array = np.ones(1)
    for size, m in zip(sizes.tolist(), number.tolist(), strict=True):
        if len(sums) * (m + 1) > _MOST_SUMS:
            return None
        coins = np.array([comb(m, k) / 2**m for k in range(m + 1)])
        wider = sums[:, None] + size * (2 * np.arange(m + 1) - m)
        likely = chances[:, None] * coins
        sums, same = np.unique(np.round(wider, _DIGITS), return_inverse=True)
        chances = np.asarray(np.bincount(same.ravel(), likely.ravel()), np.float64)
    return sums, chances


def _flip_sums(sizes: Array, number: NDArray[np.intp], draws: int, seed: int) -> Array:
    """The sums of random flips, [draw]."""
    rng, sums = np.random.default_rng(seed), np.zeros(draws)
    for size, m in zip(sizes.tolist(), number.tolist(), strict=True):
        sums += size * (2 * rng.binomial(m, 0.5, draws) - m)
    return sums


# ---- helped and harmed


@dataclass(frozen=True, slots=True)
class Tally:
    """How much got better and how much got worse."""

    helped: float
    harmed: float


@dataclass(frozen=True, slots=True)
class Changes:
    """Helped and harmed in the paper's three senses."""

    questions: Tally  # questions whose mean over realizations rose or fell
    per_run: Tally  # questions in one realization, mean over realizations
    rate: Tally  # share of the questions of one realization, mean over realizations


def changes(utility: ArrayLike, retention: ArrayLike) -> Changes:
    """What an operator changed against the retention run that it is paired with; both [question, realization]."""
    gain = _floats(utility, 2) - _floats(retention, 2)  # NaN: no such pair
    averaged, better, worse = _mean(gain, 1), gain > _TIE, gain < -_TIE
    there = (~np.isnan(gain)).sum(axis=0)
    ran, asked = there > 0, np.maximum(there, 1)
    return Changes(
        questions=Tally(int((averaged > _TIE).sum()), int((averaged < -_TIE).sum())),
        per_run=Tally(*(_average(change.sum(axis=0)[ran]) for change in (better, worse))),
        rate=Tally(*(_average((change.sum(axis=0) / asked)[ran]) for change in (better, worse))),
    )


def _average(runs: NDArray[np.number]) -> float:
    return float(runs.mean()) if len(runs) else nan


# ---- rows of the tables


@dataclass(frozen=True, slots=True)
class Gain:
    """One action against its paired retention, at one budget, in one stratum of the questions."""

    stratum: str
    action: str
    budget: int
    gain: Estimate
    accuracy: float
    retention: float  # accuracy of the paired retention runs
    p: float  # sign flips, one-sided: the action is better
    changes: Changes


@dataclass(frozen=True, slots=True)
class Pair:
    """The accuracy of one action minus another's at one budget."""

    first: str
    second: str
    budget: int
    difference: Estimate
    p: float  # sign flips, two-sided


def operator_gains(
    utility: ArrayLike,
    retention: ArrayLike,
    *,
    budgets: Sequence[int],
    actions: Sequence[str],
    resamples: Resamples,
    strata: Mapping[str, ArrayLike] | None = None,
    level: float = 0.95,
) -> list[Gain]:
    """A row for each stratum, action and budget, in that order; without strata all questions are one, "all".

    `utility` is [question, budget, action] or [question, budget, action, realization]; `retention` is the run that
    each entry is paired with, or broadcasts to it. A stratum is a mask [question] (a query type) or [question, budget]
    (whether retention packs everything); strata may overlap.
    """
    if strata is None:
        strata = {"all": np.ones(np.shape(utility)[:1], np.bool_)}
    operator = _outcomes(utility, budgets, actions)
    retained = _outcomes(_broadcast_retention(retention, np.shape(utility)), budgets, actions)
    unpaired = np.isnan(operator - retained)
    operator, retained = np.where(unpaired, nan, operator), np.where(unpaired, nan, retained)
    cells = [
        (name, a, b, inside[:, b])
        for name, mask in strata.items()
        for inside in [_mask(name, mask, operator.shape[:2])]
        for a in range(len(actions))
        for b in range(len(budgets))
    ]
    if not cells:
        return []
    gains = _mean(operator - retained, 3)  # [question, budget, action]
    columns = np.stack([np.where(inside, gains[:, b, a], nan) for _, a, b, inside in cells], axis=1)
    estimates = intervals(columns, resamples, level=level)
    return [
        Gain(
            stratum=name,
            action=actions[a],
            budget=budgets[b],
            gain=estimate,
            accuracy=_accuracy(operator[inside, b, a]),
            retention=_accuracy(retained[inside, b, a]),
            p=sign_flip(column, seed=resamples.seed, clusters=resamples.unit.tolist()),
            changes=changes(operator[inside, b, a], retained[inside, b, a]),
        )
        for (name, a, b, inside), column, estimate in zip(cells, columns.T, estimates, strict=True)
    ]


def operator_pairs(
    utility: ArrayLike,
    *,
    budgets: Sequence[int],
    actions: Sequence[str],
    resamples: Resamples,
    pairs: Sequence[tuple[str, str]] | None = None,
    level: float = 0.95,
) -> list[Pair]:
    """A row for each pair of actions (None: all) and budget; accuracies are compared, not gains.

    `utility` is [question, budget, action] or [question, budget, action, realization]. An action may as well be a
    policy: two routers are compared in the same way.
    """
    accuracy = _mean(_outcomes(utility, budgets, actions), 3)
    compared = list(combinations(actions, 2)) if pairs is None else pairs
    cells = [(first, second, b) for first, second in compared for b in range(len(budgets))]
    if not cells:
        return []
    at = {action: index for index, action in enumerate(actions)}
    if unknown := {name for first, second, _ in cells for name in (first, second)} - at.keys():
        raise InputError(f"no outcomes of {', '.join(sorted(unknown))}; there are {', '.join(actions)}")
    columns = np.stack([accuracy[:, b, at[first]] - accuracy[:, b, at[second]] for first, second, b in cells], axis=1)
    labels = resamples.unit.tolist()
    flips = [sign_flip(column, seed=resamples.seed, alternative="two-sided", clusters=labels) for column in columns.T]
    estimates = intervals(columns, resamples, level=level)
    return [
        Pair(first, second, budgets[b], estimate, p)
        for (first, second, b), estimate, p in zip(cells, estimates, flips, strict=True)
    ]


def _outcomes(utility: ArrayLike, budgets: Sequence[int], actions: Sequence[str]) -> Array:
    """Utilities as [question, budget, action, realization]."""
    array = np.asarray(utility, np.float64)
    array = _floats(array[..., None] if array.ndim == 3 else array, 4)
    if array.shape[1:3] != (len(budgets), len(actions)):
        raise InputError(f"utilities of shape {array.shape} for {len(budgets)} budgets and {len(actions)} actions")
    return array


def _broadcast_retention(retention: ArrayLike, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(np.asarray(retention, np.float64), shape)
    except ValueError:
        raise InputError(f"retention of shape {np.shape(retention)} for utilities of shape {shape}") from None


def _mask(name: str, mask: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    array = np.asarray(mask, np.bool_)
    if array.shape not in (shape, shape[:1]):
        raise InputError(f"stratum {name!r} has shape {array.shape}, the outcomes {shape}")
    return np.broadcast_to(array if array.ndim == 2 else array[:, None], shape)


def _accuracy(utility: Array) -> float:
    return float(_mean(_mean(utility, 1), 0))


# ---- the crossover


@dataclass(frozen=True, slots=True)
class Crossover:
    """The budget at which replacing stops paying, with its interval.

    0 stands for "below the smallest budget measured", inf for "above the largest".
    """

    budget: float
    low: float
    high: float
    share: float  # of resamples in which the mean gain crosses zero


def crossover(gains: ArrayLike, budgets: Sequence[int], resamples: Resamples, *, level: float = 0.95) -> Crossover:
    """Where the mean of gains [question, budget] first falls from above zero to it, linear in log2 B.

    Resamples without a crossing stay in the interval: one that ends above zero crosses past the largest budget, any
    other below the smallest.
    """
    columns, scale, tails = _floats(gains, 2), np.log2(_check_increasing(budgets)), _tails(level)
    if columns.shape[1] != len(scale):
        raise InputError(f"{columns.shape[1]} columns of gains for {len(scale)} budgets")
    if np.isnan(columns).all(axis=0).any():
        raise InputError("a crossover needs gains at every budget")
    point = _find_falls(_round(_mean(columns, 0))[None], scale)[0]
    means = replicates(columns, resamples)
    drawn = np.sort(_find_falls(means[~np.isnan(means).any(axis=1)], scale))
    if not len(drawn):
        return Crossover(float(point), nan, nan, 0.0)
    last = len(drawn) - 1  # the ends are draws, never between two: either may be infinite
    low, high = drawn[floor(tails[0] * last)], drawn[ceil(tails[1] * last)]
    inside = (drawn > 0) & np.isfinite(drawn)
    return Crossover(float(point), float(low), float(high), float(inside.sum() / len(means)))


def _check_increasing(budgets: Sequence[int]) -> Array:
    array = np.asarray(budgets, np.float64)
    if len(array) < 2 or array[0] <= 0 or (np.diff(array) <= 0).any():
        raise InputError(f"a crossover needs two or more increasing budgets above 0, not {list(budgets)}")
    return array


def _find_falls(means: Array, scale: Array) -> Array:
    """The budget at which each row of means first falls to zero; 0 and inf where it does so outside the scale."""
    falling = (means[:, :-1] > 0) & (means[:, 1:] <= 0)
    at, rows = falling.argmax(axis=1), np.arange(len(means))
    above, below = means[rows, at], means[rows, at + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        place = scale[at] + (scale[at + 1] - scale[at]) * above / (above - below)
    place = np.clip(place, scale[0], scale[-1])  # where nothing falls it is no number, or any
    outside = np.where(means[:, -1] > 0, np.inf, 0.0)
    return np.where(falling.any(axis=1), np.exp2(place), outside)


# ---- two judges


def kappa(a: ArrayLike, b: ArrayLike) -> float:
    """Cohen's kappa of two judges' verdicts (0 or 1); NaN where both always say the same one thing."""
    first, second = _floats(a, 1), _floats(b, 1)
    if len(first) != len(second) or not len(first):
        raise InputError(f"kappa needs as many verdicts of either judge, not {len(first)} and {len(second)}")
    if not np.isin([first, second], (0, 1)).all():
        raise InputError("a verdict is 0 or 1")
    agreed, p, q = (first == second).mean(), first.mean(), second.mean()
    chance = p * q + (1 - p) * (1 - q)
    return float((agreed - chance) / (1 - chance)) if chance < 1 else nan
