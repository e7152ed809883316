"""Intervals and sign flips against loops, against SciPy, against the paper's own rows, and under a true null."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest
import scipy.stats  # type: ignore[import-untyped, unused-ignore]
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.lab.stats import (
    Alternative,
    Estimate,
    Resamples,
    Tally,
    changes,
    crossover,
    interval,
    intervals,
    kappa,
    operator_gains,
    operator_pairs,
    replicates,
    resample,
    sign_flip,
    units,
)

Array = NDArray[np.float64]
thirds = st.integers(-3, 3).map(lambda k: k / 3)
maybe_thirds = st.one_of(thirds, st.just(nan))
SENSES: tuple[Alternative, ...] = ("greater", "less", "two-sided")


def verdicts(helped: int, harmed: int, n: int = 75) -> Array:
    """Differences of n questions with one realization each."""
    return np.array([1.0] * helped + [-1.0] * harmed + [0.0] * (n - helped - harmed))


def simulated(questions: int, actions: int, seed: int, realizations: int = 1) -> Array:
    """Verdicts [question, budget, action, realization]: questions differ in difficulty, actions in nothing."""
    rng = np.random.default_rng(seed)
    easy = rng.beta(1, 1, questions)[:, None, None, None]
    return (rng.random((questions, 4, actions, realizations)) < easy).astype(float)


# ---- the independent unit


def test_a_question_is_its_own_unit_unless_clusters_are_named() -> None:
    assert units(3).tolist() == [0, 1, 2]
    assert units(5, ["b", "a", "b", "c", "a"]).tolist() == [0, 1, 0, 2, 1]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_renaming_clusters_changes_no_draw(labels: list[int]) -> None:
    first, second = (
        resample(len(labels), seed=3, draws=20, clusters=c) for c in (labels, [f"c{9 - x}" for x in labels])
    )
    assert np.array_equal(first.counts, second.counts)
    assert np.array_equal(first.unit, second.unit)


@given(st.lists(maybe_thirds, min_size=1, max_size=12), st.integers(0, 9))
def test_clusters_of_one_question_equal_no_clusters_exactly(values: list[float], seed: int) -> None:
    n = len(values)
    alone = [f"q{i * 7 % 13}" for i in range(n)]
    plain, single = resample(n, seed=seed, draws=50), resample(n, seed=seed, draws=50, clusters=alone)
    assert repr(interval(values, plain)) == repr(interval(values, single))  # repr: NaN equals NaN
    assert sign_flip(values, seed=seed) == sign_flip(values, seed=seed, clusters=alone)


# ---- the bootstrap


def test_every_resample_draws_as_many_units_as_there_are_and_the_seed_decides_which() -> None:
    drawn = resample(40, seed=1, draws=2_500)
    assert drawn.counts.shape == (2_500, 40)
    assert set(drawn.counts.sum(axis=1).tolist()) == {40}
    assert np.array_equal(drawn.counts, resample(40, seed=1, draws=2_500).counts)
    assert not np.array_equal(drawn.counts, resample(40, seed=2, draws=2_500).counts)
    # a count is binomial(40, 1/40): mean 1, variance 39/40
    assert drawn.counts.mean(axis=0) == pytest.approx(np.ones(40), abs=0.1)
    assert drawn.counts.var() == pytest.approx(39 / 40, abs=0.02)


def by_loops(values: Array, drawn: Resamples, level: float) -> Estimate:
    """The interval as one would explain it: put the questions of each drawn unit on a heap and take its mean."""
    means = []
    for counts in drawn.counts.tolist():
        heap = [v for v, unit in zip(values, drawn.unit, strict=True) for _ in range(counts[unit]) if not isnan(v)]
        means += [sum(heap) / len(heap)] if heap else []
    there = values[~np.isnan(values)]
    if not len(there):
        return Estimate(nan, nan, nan, 0)
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2)) if means else (nan, nan)
    return Estimate(sum(there) / len(there), low, high, len(there))


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.lists(st.lists(maybe_thirds, min_size=3, max_size=3), min_size=n, max_size=n),
            st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=n, max_size=n)),
        )
    ),
    st.sampled_from((0.5, 0.9, 0.95)),
)
def test_intervals_equal_naive_loops(case: tuple[list[list[float]], list[int] | None], level: float) -> None:
    values, clusters = np.array(case[0]), case[1]
    drawn = resample(len(values), seed=5, draws=60, clusters=clusters)
    for column, found in zip(values.T, intervals(values, drawn, level=level), strict=True):
        wanted = by_loops(column, drawn, level)
        assert found.n == wanted.n
        numbers = [found.mean, found.low, found.high]
        assert numbers == pytest.approx([wanted.mean, wanted.low, wanted.high], abs=1e-9, nan_ok=True)


def test_a_column_alone_and_among_others_has_the_same_interval() -> None:
    values = np.random.default_rng(0).integers(-3, 4, (30, 5)) / 3
    drawn = resample(30, seed=1, draws=500)
    assert [interval(column, drawn) for column in values.T] == intervals(values, drawn)


def test_working_in_blocks_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-3, 4, (30, 5)) / 3
    drawn = resample(30, seed=1, draws=500)
    whole = intervals(values, drawn)
    monkeypatch.setattr("retcon.lab.stats._SUMMED", 30 * 7)  # 500 = 71 x 7 + 3
    assert intervals(values, drawn) == whole


def test_interval_agrees_with_scipy_bootstrap() -> None:
    rng = np.random.default_rng(4)
    ours, theirs = rng.random(75) < 0.6, rng.random(75) < 0.4
    found = interval(ours.astype(float) - theirs, resample(75, seed=1))
    rival = scipy.stats.bootstrap(
        (ours.astype(float), theirs.astype(float)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        paired=True, n_resamples=10_000, method="percentile", rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    assert found.mean == pytest.approx(ours.mean() - theirs.mean())
    assert (found.low, found.high) == pytest.approx((rival.low, rival.high), abs=1 / 75 + 1e-9)  # one question


def test_clustered_interval_agrees_with_scipy_bootstrap_of_cluster_sums() -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 25, 300)
    values = rng.normal(0.1, 1, 300) + rng.normal(0, 1, 25)[labels]
    sums, sizes = np.bincount(labels, values, 25), np.bincount(labels, minlength=25)
    rival = scipy.stats.bootstrap(
        (sums, sizes),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True, n_resamples=10_000, method="percentile", rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    found = interval(values, resample(300, seed=1, clusters=labels.tolist()))
    assert (found.low, found.high) == pytest.approx((rival.low, rival.high), abs=0.02)
    assert found.high - found.low > 1.5 * np.diff(_ends(interval(values, resample(300, seed=1))))[0]


def _ends(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


# gain, low, high, helped, harmed of 75 questions, one realization: the paper's LoCoMo table, its full-history table and
# the second model of its cross-model table. Counts fix the sample, so its intervals must come out again.
PUBLISHED = [
    (0.360, 0.227, 0.480, 30, 3), (0.347, 0.227, 0.467, 29, 3), (0.133, 0.013, 0.253, 16, 6),
    (0.173, 0.040, 0.307, 20, 7), (0.253, 0.120, 0.387, 24, 5), (0.133, 0.000, 0.267, 19, 9),
    (0.000, -0.107, 0.107, 8, 8), (-0.013, -0.107, 0.080, 6, 7), (-0.027, -0.120, 0.067, 6, 8),
    (-0.027, -0.093, 0.053, 3, 5), (-0.040, -0.120, 0.040, 3, 6), (0.000, -0.093, 0.093, 6, 6),
    (0.360, 0.240, 0.480, 28, 1), (0.173, 0.040, 0.307, 20, 7), (0.027, -0.107, 0.160, 13, 11),
    (-0.027, -0.147, 0.093, 9, 11),
    (0.480, 0.360, 0.600, 37, 1), (0.360, 0.227, 0.493, 32, 5), (0.253, 0.120, 0.387, 24, 5),
    (-0.147, -0.267, -0.027, 7, 18),
]  # fmt: skip


def test_published_intervals_come_out_of_published_counts() -> None:
    columns = np.stack([verdicts(helped, harmed) for *_, helped, harmed in PUBLISHED], axis=1)
    found = intervals(columns, resample(75, seed=1))
    for row, (gain, low, high, *_) in zip(found, PUBLISHED, strict=True):
        assert row.mean == pytest.approx(gain, abs=6e-4)
        assert _ends(row) == pytest.approx((low, high), abs=1 / 75 + 1e-3)  # one question, and their rounding


@given(st.permutations(range(12)), st.lists(maybe_thirds, min_size=12, max_size=12))
def test_order_of_questions_changes_nothing_when_their_draws_move_along(order: list[int], values: list[float]) -> None:
    column, drawn = np.array(values), resample(12, seed=2, draws=80)
    moved = replace(drawn, unit=drawn.unit[order])
    assert repr(interval(column[order], moved)) == repr(interval(column, drawn))
    assert repr(interval(column[order], drawn).mean) == repr(interval(column, drawn).mean)
    assert sign_flip(column[order], seed=1) == pytest.approx(sign_flip(column, seed=9))


def test_thirds_that_cancel_make_a_zero_that_no_interval_excludes() -> None:
    values = np.array([1 / 3, 1 / 3, 1 / 3, -1.0] * 10) - 1e-17
    found = interval(values, resample(40, seed=1, draws=2_000))
    assert (found.mean, found.excludes()) == (0.0, False)
    drawn = replicates(values[:, None], resample(40, seed=1, draws=2_000))
    assert (drawn == 0).any()
    assert ((drawn == 0) | (np.abs(drawn) > 1e-3)).all()


def test_an_end_at_the_value_does_not_exclude_it() -> None:
    assert Estimate(0.1, 0.01, 0.2, 5).excludes()
    assert Estimate(0.1, 0.01, 0.2, 5).excludes(0.3)
    assert not Estimate(0.1, 0.0, 0.2, 5).excludes()
    assert not Estimate(nan, nan, nan, 0).excludes()


def test_the_95_percent_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(11)
    columns = rng.choice((-1.0, 0.0, 1.0), (100, 2_000), p=(0.2, 0.5, 0.3))
    found = intervals(columns, resample(100, seed=1, draws=1_000))
    covered = np.mean([not row.excludes(0.1) for row in found])
    assert 0.925 < covered < 0.965


def test_shuffled_actions_are_called_different_about_5_times_in_100() -> None:
    """A router or table that finds something in shuffled labels has read the answer somewhere."""
    outcomes = simulated(200, 4, seed=7)[..., 0]  # [question, budget, action]
    rng = np.random.default_rng(8)
    shuffled = [rng.permuted(outcomes[:, draw % 4], axis=1) for draw in range(1_000)]  # [question, action]
    gains = np.stack([draw[:, 1] - draw[:, 0] for draw in shuffled], axis=1)
    found = intervals(gains, resample(200, seed=1, draws=1_000))
    assert 0.03 < np.mean([row.excludes() for row in found]) < 0.08
    flips = [sign_flip(column, seed=1, alternative="two-sided") for column in gains.T]
    assert 0.02 < np.mean(np.array(flips) <= 0.05) < 0.06  # exact, and a little below its level


def test_intervals_of_clustered_data_without_clusters_are_overconfident() -> None:
    """Why conversations are resampled: 20 conversations of 15 questions that share their luck."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(20), 15)
    columns = rng.normal(0, 0.5, (300, 400)) + rng.normal(0, 0.5, (20, 400))[labels]
    plain = intervals(columns, resample(300, seed=1, draws=1_000))
    honest = intervals(columns, resample(300, seed=1, draws=1_000, clusters=labels.tolist()))
    assert np.mean([row.excludes() for row in plain]) > 0.3
    assert np.mean([row.excludes() for row in honest]) < 0.13


# ---- sign flips


def brute_force(differences: list[float], alternative: Alternative) -> float:
    observed = sum(differences)
    hit: dict[Alternative, Callable[[float], bool]] = {
        "greater": lambda s: s >= observed - 1e-9,
        "less": lambda s: s <= observed + 1e-9,
        "two-sided": lambda s: abs(s) >= abs(observed) - 1e-9,
    }
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    flipped = (sum(s * d for s, d in zip(row, differences, strict=True)) for row in signs)
    return sum(map(hit[alternative], flipped)) / len(signs)


@given(st.lists(st.one_of(thirds, st.floats(-2, 2).map(lambda x: round(x, 3))), max_size=8, min_size=1))
def test_sign_flips_equal_brute_force(differences: list[float]) -> None:
    for sense in SENSES:
        assert sign_flip(differences, seed=1, alternative=sense) == pytest.approx(brute_force(differences, sense))


@given(st.lists(thirds, min_size=2, max_size=8), st.data())
def test_flips_of_clusters_equal_brute_force_over_cluster_sums(differences: list[float], data: st.DataObject) -> None:
    n = len(differences)
    labels = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    sums = [sum(d for d, at in zip(differences, labels, strict=True) if at == label) for label in set(labels)]
    for sense in SENSES:
        found = sign_flip(differences, seed=1, alternative=sense, clusters=labels)
        assert found == pytest.approx(brute_force(sums, sense))


@pytest.mark.parametrize("alternative", SENSES)
def test_sign_flips_agree_with_scipy_permutation_test(alternative: Alternative) -> None:
    differences = np.random.default_rng(5).normal(0.3, 1, 11)
    rival = scipy.stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative=alternative
    )
    assert sign_flip(differences, seed=1, alternative=alternative) == pytest.approx(rival.pvalue)


@pytest.mark.parametrize(("helped", "harmed"), [(30, 3), (8, 8), (5, 12), (700, 640)])
def test_flips_of_single_verdicts_are_the_exact_binomial_test(helped: int, harmed: int) -> None:
    differences = verdicts(helped, harmed, helped + harmed + 40)
    for sense in SENSES:
        rival = scipy.stats.binomtest(helped, helped + harmed, 0.5, alternative=sense).pvalue
        assert sign_flip(differences, seed=1, alternative=sense) == pytest.approx(rival)


def test_flips_are_exact_up_to_20_sizes_and_for_any_number_of_averaged_verdicts() -> None:
    rng = np.random.default_rng(1)
    thirds_of_many, twenty = rng.integers(-3, 4, 1_000) / 3, rng.normal(0.2, 1, 20)
    for values in (thirds_of_many, twenty):
        assert len({sign_flip(values, seed=seed) for seed in range(2)}) == 1
    more = rng.normal(0.2, 1, 21)
    assert len({sign_flip(more, seed=seed) for seed in range(3)}) > 1
    assert sign_flip(more, seed=1) == sign_flip(more, seed=1)


def test_random_flips_agree_with_the_exact_distribution() -> None:
    rng = np.random.default_rng(2)
    differences = rng.normal(0.12, 1, 150)
    # the sum of flips is all but normal here
    wanted = scipy.stats.norm.sf(differences.sum() / np.sqrt((differences**2).sum()))
    assert sign_flip(differences, seed=1, draws=40_000) == pytest.approx(wanted, abs=0.01)
    assert sign_flip(np.abs(differences), seed=1, draws=999) == 1 / 1_000  # never zero


def test_p_is_one_where_nothing_differs() -> None:
    for sense in SENSES:
        assert sign_flip(np.zeros(30), seed=1, alternative=sense) == 1.0
        assert sign_flip([nan, 0.0], seed=1, alternative=sense) == 1.0
        assert sign_flip([1 / 3, 1 / 3, 1 / 3, -1.0], seed=1, clusters="aaaa", alternative=sense) == 1.0


@given(st.lists(maybe_thirds, min_size=1, max_size=15))
def test_flips_mirror_and_ignore_scale_and_questions_without_a_difference(differences: list[float]) -> None:
    column = np.array(differences)
    p = sign_flip(column, seed=1)
    assert sign_flip(-column, seed=1, alternative="less") == pytest.approx(p)
    assert sign_flip(1e-6 * column, seed=1) == pytest.approx(p)
    assert sign_flip([*differences, nan, 0.0], seed=1) == pytest.approx(p)


# ---- helped and harmed


def test_helped_and_harmed_in_three_senses_by_hand() -> None:
    operator = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, nan, 0]])
    retained = np.array([[0, 0, 0], [0, 1, 0], [1, 1, nan], [1, 1, 1]])
    # gains:             [1, 1, 0], [1, -1, 0], [-1, -1, -],  [0, -, -1]
    found = changes(operator, retained)
    assert found.questions == Tally(1, 2)
    assert found.per_run == Tally((2 + 1 + 0) / 3, (1 + 2 + 1) / 3)
    assert found.rate.helped == pytest.approx((2 / 4 + 1 / 3 + 0) / 3)
    assert found.rate.harmed == pytest.approx((1 / 4 + 2 / 3 + 1 / 3) / 3)


def test_runs_that_were_never_made_count_in_no_mean() -> None:
    once, padded = changes([[1], [0]], [[0], [1]]), changes([[1, nan], [0, nan]], [[0, 0], [1, 1]])
    assert once == padded
    nothing = changes(np.full((2, 1), nan), np.zeros((2, 1)))
    assert nothing.questions == Tally(0, 0)
    assert isnan(nothing.per_run.helped)
    assert isnan(nothing.rate.harmed)


@given(st.integers(1, 10), st.integers(1, 4), st.integers(0, 99))
def test_rates_of_single_verdicts_differ_by_the_mean_gain(n: int, runs: int, seed: int) -> None:
    operator, retained = np.random.default_rng(seed).integers(0, 2, (2, n, runs))
    found = changes(operator, retained)
    assert found.rate.helped - found.rate.harmed == pytest.approx((operator - retained).mean())
    assert found.per_run.helped == pytest.approx(n * found.rate.helped)


def test_the_papers_cell_of_nine_single_session_questions() -> None:
    """+0.037 (0.7/0.3): helped twice and harmed once in three runs of nine questions."""
    operator, retained = np.zeros((2, 9, 3))
    operator[0, 0] = operator[1, 2] = retained[5, 1] = 1
    row = operator_gains(
        operator[:, None, None], retained[:, None, None], budgets=[256], actions=["abstract"],
        resamples=resample(9, seed=1, draws=100),
    )[0]  # fmt: skip
    assert row.gain.mean == pytest.approx(0.037, abs=5e-4)
    assert (row.changes.per_run.helped, row.changes.per_run.harmed) == pytest.approx((2 / 3, 1 / 3))
    assert row.changes.questions == Tally(2, 1)


# ---- rows


BUDGETS, ACTIONS = [32, 64, 128, 256], ["abstract", "merge", "rewrite"]


def test_gains_are_of_paired_runs_averaged_within_the_question() -> None:
    operator, retained = simulated(20, 3, seed=1, realizations=3), simulated(20, 3, seed=2, realizations=3)
    operator[3, 0, 0] = nan  # a question without this cell
    operator[4, 1, 2, 0] = nan
    drawn = resample(20, seed=1, draws=300)
    rows = operator_gains(operator, retained, budgets=BUDGETS, actions=ACTIONS, resamples=drawn)
    assert [(row.action, row.budget) for row in rows] == list(itertools.product(ACTIONS, BUDGETS))
    for row in rows:
        b, a = BUDGETS.index(row.budget), ACTIONS.index(row.action)
        pairs = [
            [(o, r) for o, r in zip(operator[q, b, a], retained[q, b, a], strict=True) if not isnan(o)]
            for q in range(20)
        ]
        gains = [np.mean([o - r for o, r in runs]) if runs else nan for runs in pairs]
        assert row.gain == interval(gains, drawn)
        assert row.gain.n == (19 if (a, b) == (0, 0) else 20)
        assert row.p == pytest.approx(sign_flip(gains, seed=1))
        assert row.accuracy - row.retention == pytest.approx(row.gain.mean)
        assert row.accuracy == pytest.approx(np.mean([np.mean([o for o, _ in runs]) for runs in pairs if runs]))
        assert row.changes == changes(operator[:, b, a], retained[:, b, a])
        assert row.stratum == "all"


def test_one_realization_needs_no_axis_and_one_retention_serves_all_actions() -> None:
    operator, retained = simulated(15, 3, seed=1)[..., 0], simulated(15, 1, seed=2)[..., 0]
    drawn = resample(15, seed=1, draws=100)
    short = operator_gains(operator, retained, budgets=BUDGETS, actions=ACTIONS, resamples=drawn)
    full = operator_gains(
        operator[..., None],
        np.repeat(retained, 3, axis=2)[..., None],
        budgets=BUDGETS,
        actions=ACTIONS,
        resamples=drawn,
    )
    assert short == full


def test_a_stratum_is_the_table_of_its_questions_alone() -> None:
    operator, retained = simulated(30, 3, seed=3, realizations=2), simulated(30, 3, seed=4, realizations=2)
    fits = np.random.default_rng(5).random((30, 4)) < 0.4
    temporal = np.arange(30) % 3 == 0
    drawn = resample(30, seed=1, draws=200)
    rows = operator_gains(
        operator, retained, budgets=BUDGETS, actions=ACTIONS, resamples=drawn,
        strata={"complete": fits, "incomplete": ~fits, "temporal": temporal, "none": np.zeros(30, bool)},
    )  # fmt: skip
    assert len(rows) == 4 * 3 * 4
    for row in rows[:36]:
        b, a = BUDGETS.index(row.budget), ACTIONS.index(row.action)
        inside = {"complete": fits[:, b], "incomplete": ~fits[:, b], "temporal": temporal}[row.stratum]
        part = operator[inside, b, a], retained[inside, b, a]
        alone = operator_gains(
            part[0][:, None, None], part[1][:, None, None], budgets=[row.budget], actions=[row.action],
            resamples=resample(int(inside.sum()), seed=1, draws=10),
        )[0]  # fmt: skip
        assert row.gain.n == inside.sum()
        assert (row.gain.mean, row.accuracy, row.p) == pytest.approx((alone.gain.mean, alone.accuracy, alone.p))
        assert row.changes == alone.changes
    assert all(row.gain.n == 0 and isnan(row.gain.low) and row.p == 1.0 for row in rows[36:])


def test_clustered_draws_give_clustered_p() -> None:
    operator, retained = simulated(24, 2, seed=1), simulated(24, 2, seed=2)
    labels = [q // 6 for q in range(24)]
    drawn = resample(24, seed=1, draws=50, clusters=labels)
    row = operator_gains(operator, retained, budgets=BUDGETS, actions=["merge", "rewrite"], resamples=drawn)[0]
    gains = (operator - retained)[:, 0, 0, 0]
    assert row.p == sign_flip(gains, seed=1, clusters=labels) != sign_flip(gains, seed=1)
    pairs = operator_pairs(operator, budgets=BUDGETS, actions=["merge", "rewrite"], resamples=drawn)
    differences = operator[:, :, 0, 0] - operator[:, :, 1, 0]
    plain, clustered = (
        [sign_flip(column, seed=1, alternative="two-sided", clusters=c) for column in differences.T]
        for c in (None, labels)
    )
    assert [pair.p for pair in pairs] == clustered != plain


def test_pairs_compare_accuracies_whatever_the_retention_runs_gave() -> None:
    outcomes = simulated(25, 3, seed=6, realizations=3)
    outcomes[0, 0, 0, 1:] = nan  # averaged over what is there
    drawn = resample(25, seed=1, draws=200)
    wanted = [("merge", "abstract"), ("abstract", "rewrite")]
    rows = operator_pairs(outcomes, budgets=BUDGETS, actions=ACTIONS, resamples=drawn, pairs=wanted)
    assert [(row.first, row.second, row.budget) for row in rows] == [(*pair, b) for pair in wanted for b in BUDGETS]
    accuracy = np.nanmean(outcomes, axis=3)
    for row in rows:
        b, first, second = BUDGETS.index(row.budget), ACTIONS.index(row.first), ACTIONS.index(row.second)
        difference = accuracy[:, b, first] - accuracy[:, b, second]
        assert row.difference == interval(difference, drawn)
        assert row.p == pytest.approx(sign_flip(difference, seed=1, alternative="two-sided"))
    everyone = operator_pairs(outcomes, budgets=BUDGETS, actions=ACTIONS, resamples=drawn)
    assert [(row.first, row.second) for row in everyone[::4]] == list(itertools.combinations(ACTIONS, 2))


def test_tables_without_cells_are_empty() -> None:
    outcomes, drawn = simulated(5, 1, seed=1), resample(5, seed=1, draws=10)
    assert operator_gains(outcomes, outcomes, budgets=BUDGETS, actions=["merge"], resamples=drawn, strata={}) == []
    assert operator_pairs(outcomes, budgets=BUDGETS, actions=["merge"], resamples=drawn) == []
    assert intervals(np.zeros((5, 0)), drawn) == []


# ---- the crossover


def gains_with_means(means: list[float], n: int = 50, noise: float = 0.0) -> Array:
    wobble = np.random.default_rng(0).normal(0, noise, (n, len(means))) if noise else np.zeros((n, len(means)))
    return np.asarray(means + wobble - wobble.mean(axis=0))


@pytest.mark.parametrize(
    ("means", "budget"),
    [
        ([0.4, 0.2, 0.1, -0.1], 128 * 2**0.5),  # half way on the log scale
        ([0.4, 0.2, -0.1, -0.3], 64 * 2 ** (2 / 3)),
        ([0.4, 0.2, 0.0, -0.3], 128),  # reaches zero at a budget
        ([0.3, -0.1, 0.2, -0.2], 32 * 2**0.75),  # the first of two
        ([-0.1, 0.2, -0.2, -0.2], 64 * 2**0.5),  # not the way up
        ([0.4, 0.2, 0.1, 0.1], inf),
        ([0.0, -0.2, -0.1, -0.1], 0),
    ],
)
def test_crossover_is_linear_in_log_budget(means: list[float], budget: float) -> None:
    found = crossover(gains_with_means(means), BUDGETS, resample(50, seed=1, draws=50))
    assert (found.budget, found.low, found.high) == pytest.approx((budget, budget, budget))
    assert found.share == float(0 < budget < inf)


def test_crossover_interval_holds_the_crossing_and_widens_with_noise() -> None:
    drawn = resample(200, seed=1, draws=2_000)
    quiet, loud = (crossover(gains_with_means([0.4, 0.2, 0.1, -0.2], 200, s), BUDGETS, drawn) for s in (0.3, 1.0))
    for found in (quiet, loud):
        assert found.budget == pytest.approx(128 * 2 ** (1 / 3))
        assert found.low < found.budget < found.high
    assert loud.high - loud.low > quiet.high - quiet.low
    assert quiet.share == 1.0


def test_resamples_that_never_cross_leave_the_interval_open() -> None:
    found = crossover(gains_with_means([0.4, 0.2, 0.1, -0.01], 200, 1.0), BUDGETS, resample(200, seed=1, draws=2_000))
    assert found.high == inf
    assert 0.3 < found.share < 0.8
    assert 128 < found.budget < 256


def test_crossover_equals_loops_over_resamples() -> None:
    gains = np.random.default_rng(2).integers(-3, 4, (20, 4)) / 3 + np.array([0.5, 0.2, 0.0, -0.3])
    gains[3, 1] = nan
    drawn = resample(20, seed=4, draws=400)
    crossings = []
    for row in replicates(gains, drawn):
        falls = [i for i in range(3) if row[i] > 0 >= row[i + 1]]
        if falls:
            at = falls[0]
            crossings.append(32 * 2 ** float(np.interp(0, [row[at + 1], row[at]], [at + 1, at])))
        else:
            crossings.append(inf if row[-1] > 0 else 0.0)
    found, ordered = crossover(gains, BUDGETS, drawn, level=0.9), sorted(crossings)
    assert (found.low, found.high) == pytest.approx((ordered[19], ordered[380]))  # .05 x 399 down, .95 x 399 up
    assert found.share == pytest.approx(np.mean([0 < x < inf for x in crossings]))


# ---- two judges


def test_kappa_by_hand() -> None:
    # both yes 20, first only 5, second only 10, both no 15: agreed .7, by chance .5
    first = [1] * 25 + [0] * 25
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(np.array(first, bool), second) == kappa(second, first) == pytest.approx(0.4)
    assert kappa(first, first) == 1.0
    assert kappa([1, 0], [0, 1]) == -1.0
    assert isnan(kappa([1, 1], [1, 1]))


# ---- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resample(0, seed=1), "at least 1 question, not 0"),
        (lambda: resample(3, seed=1, draws=0), "at least 1 draw, not 0"),
        (lambda: resample(3, seed=1, clusters="ab"), "2 cluster labels for 3 questions"),
        (lambda: interval([1.0, 2.0], resample(3, seed=1, draws=5)), "2 rows of values for 3 questions"),
        (lambda: interval([[1.0]], resample(1, seed=1, draws=5)), "1 dimensions, not 2"),
        (lambda: interval([inf], resample(1, seed=1, draws=5)), "1 of 1 values are infinite"),
        (lambda: interval([1.0], resample(1, seed=1, draws=5), level=1.0), "between 0 and 1, not at 1.0"),
        (lambda: sign_flip([1.0], seed=1, alternative="more"), "not 'more'"),  # type: ignore[arg-type]
        (lambda: gains_of(actions=["merge"]), "4 budgets and 1 actions"),
        (lambda: gains_of(retention=np.zeros((5, 4, 2))), r"\(5, 4, 2\) for utilities of shape \(5, 4, 3\)"),
        (lambda: gains_of(questions=6), "5 rows of values for 6 questions"),
        (lambda: gains_of(strata={"odd": np.zeros(4, bool)}), r"'odd' has shape \(4,\)"),
        (lambda: pairs_of("extract"), "no outcomes of extract; there are abstract, merge, rewrite"),
        (lambda: crossover(np.zeros((2, 2)), [64, 32], resample(2, seed=1, draws=5)), r"not \[64, 32\]"),
        (lambda: crossover(np.zeros((2, 2)), [1, 2, 4], resample(2, seed=1, draws=5)), "2 columns of gains for 3"),
        (lambda: crossover([[nan, 1.0]], [1, 2], resample(1, seed=1, draws=5)), "gains at every budget"),
        (lambda: kappa([1, 0], [1]), "not 2 and 1"),
        (lambda: kappa([], []), "not 0 and 0"),
        (lambda: kappa([0.5], [1]), "a verdict is 0 or 1"),
    ],
)
def test_bad_input_is_one_clear_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def gains_of(
    *,
    actions: list[str] = ACTIONS,
    retention: Array | None = None,
    questions: int = 5,
    strata: dict[str, NDArray[np.bool_]] | None = None,
) -> object:
    outcomes = np.ones((5, 4, 3))
    retained, drawn = outcomes if retention is None else retention, resample(questions, seed=1, draws=5)
    return operator_gains(outcomes, retained, budgets=BUDGETS, actions=actions, resamples=drawn, strata=strata)


def pairs_of(name: str) -> object:
    drawn = resample(5, seed=1, draws=5)
    return operator_pairs(
        np.ones((5, 4, 3)), budgets=BUDGETS, actions=ACTIONS, resamples=drawn, pairs=[("merge", name)]
    )
