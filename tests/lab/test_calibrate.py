"""Thresholds: the rules against brute force, the bound against SciPy and MAPIE, the promise against known harm."""

from __future__ import annotations

import csv
import json
import math
import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import certificate, pilot_file
from retcon.errors import InputError, RetconError
from retcon.lab.calibrate import (
    Threshold,
    certified_among_replacements,
    certified_threshold,
    joint_thresholds,
    paper_threshold,
    smallest_n,
    upper_bound,
)

stats = pytest.importorskip("scipy.stats")
ROOT = Path(__file__).parents[2]
INF = math.inf

Row = tuple[Fraction, Fraction, Fraction]  # advantage, chosen, retained, exactly
utilities = st.sampled_from([Fraction(k, r) for r in (1, 2, 3, 7) for k in range(r + 1)])
advantages = st.integers(-4, 8).map(lambda k: Fraction(k, 8))  # ties, zero and negative ones
rows = st.lists(st.tuples(advantages, utilities, utilities), max_size=40)
# mostly helped, so that small samples certify something
kind_rows = st.lists(
    st.tuples(advantages, st.sampled_from([Fraction(1), Fraction(1), Fraction(1), Fraction(1, 3)]), utilities),
    min_size=1,
    max_size=80,
)
levels = st.tuples(st.sampled_from([0.05, 0.1, 0.3]), st.sampled_from([0.025, 0.1, 0.4]))


def floats(questions: list[Row]) -> tuple[list[float], list[float], list[float]]:
    advantage, chosen, retained = ([float(row[i]) for row in questions] for i in range(3))
    return advantage, chosen, retained


def harmed(questions: list[Row], tau: float) -> int:
    return sum(s >= tau and chosen < retained for s, chosen, retained in questions)


def total(questions: list[Row], tau: float) -> Fraction:
    return sum((chosen if s >= tau else retained for s, chosen, retained in questions), Fraction(0))


def best(questions: list[Row], candidates: list[float]) -> float:
    """The reference: exact sums, the highest tau of the most accurate."""
    return max(candidates, key=lambda tau: (total(questions, tau), tau))


def observed(questions: list[Row]) -> list[float]:
    return [INF, *sorted({float(row[0]) for row in questions}, reverse=True)]


def check_counts(found: Threshold, questions: list[Row]) -> None:
    assert found.accepted == sum(s >= found.tau for s, _, _ in questions)
    assert found.harms == harmed(questions, found.tau)
    assert found.questions == len(questions)
    if questions:
        assert found.accuracy == pytest.approx(float(total(questions, found.tau) / len(questions)), abs=1e-12)


# - the paper's rule -


@given(rows, st.sampled_from([0.0, 0.05, 0.29, 1.0]))
def test_paper_rule_is_the_brute_force_one(questions: list[Row], cap: float) -> None:
    found = paper_threshold(*floats(questions), cap=cap)
    allowed = [tau for tau in observed(questions) if harmed(questions, tau) <= Fraction(str(cap)) * len(questions)]
    assert found.tau == best(questions, allowed)
    assert (found.bound, found.alpha, found.delta) == (None, None, None)
    check_counts(found, questions)


def test_paper_rule_goes_below_zero_where_the_questions_bear_it_out() -> None:
    found = paper_threshold([0.5, -0.25, -0.5], [1, 1, 0], [0, 0, 1])
    assert (found.tau, found.accepted, found.harms) == (-0.25, 2, 0)


def test_paper_rule_stops_above_the_first_harm() -> None:
    found = paper_threshold([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], [0, 0, 1, 0])
    assert (found.tau, found.accepted, found.harms, found.accuracy) == (0.8, 2, 0, 0.75)


def test_equal_advantages_are_accepted_together_or_not_at_all() -> None:
    assert paper_threshold([0.5, 0.5], [1, 0], [0, 1]).tau == INF
    assert paper_threshold([0.5, 0.5], [1, 0], [0, 1], cap=0.5).tau == INF  # no better than retention
    assert paper_threshold([0.5, 0.5, 0.5], [1, 1, 0], [0, 0, 1], cap=0.34).accepted == 3


def test_equal_accuracy_goes_to_the_higher_threshold() -> None:
    assert paper_threshold([0.9, 0.5, 0.1], [1, 0, 1], [0, 0, 1]).tau == 0.9
    assert paper_threshold([0.9, 0.5], [1, 0], [1, 0]).tau == INF
    thirds = paper_threshold([0.9, 0.8, 0.7, 0.6], [1, 2 / 3, 2 / 3, 0], [1, 1 / 3, 1 / 3, 2 / 3], cap=1)
    assert thirds.tau == 0.7
    back = paper_threshold([0.9, 0.8, 0.7], [0.1, 0.2, 0.0], [0.0, 0.0, 0.3], cap=1)
    assert back.tau == 0.8


def test_gains_that_cancel_are_no_gain_despite_rounding() -> None:
    chosen, retained = [0.1, 0.2, 0.0], [0.0, 0.0, 0.3]  # in floating point .1 + .2 - .3 > 0
    assert 0.1 + 0.2 - 0.3 > 0
    assert paper_threshold([0.5, 0.5, 0.5], chosen, retained, cap=1).tau == INF


def test_a_cap_admits_the_share_that_was_typed() -> None:
    chosen = [0.0] * 29 + [1.0] * 71
    found = paper_threshold(np.ones(100), chosen, [1 - u for u in chosen], cap=0.29)
    assert (found.tau, found.harms) == (1.0, 29)  # although .29 * 100 < 29 in floating point


# - the certified rule -


@given(kind_rows, levels)
def test_certified_rule_is_the_brute_force_one(questions: list[Row], level: tuple[float, float]) -> None:
    alpha, delta = level
    found = certified_threshold(*floats(questions), alpha=alpha, delta=delta)
    passed = [INF]
    for tau in observed(questions)[1:]:
        if stats.binom.cdf(harmed(questions, tau), len(questions), alpha) > delta:
            break
        passed.append(tau)
    assert found.tau == best(questions, passed)
    assert (found.alpha, found.delta) == level
    check_counts(found, questions)
    assert found.bound is not None
    assert found.bound <= alpha
    if found.tau < INF:
        assert found.bound == upper_bound(found.harms, len(questions), delta)


@given(kind_rows, st.permutations(range(80)))
def test_the_order_of_the_questions_does_not_matter(questions: list[Row], order: list[int]) -> None:
    mixed = [questions[i] for i in order if i < len(questions)]
    assert certified_threshold(*floats(mixed), alpha=0.1) == certified_threshold(*floats(questions), alpha=0.1)
    assert paper_threshold(*floats(mixed)) == paper_threshold(*floats(questions))


@given(kind_rows)
def test_allowing_more_harm_or_more_doubt_never_costs_accuracy(questions: list[Row]) -> None:
    data = floats(questions)
    by_alpha = [certified_threshold(*data, alpha=alpha).accuracy for alpha in (0.02, 0.05, 0.1, 0.2, 0.5)]
    by_delta = [certified_threshold(*data, alpha=0.1, delta=delta).accuracy for delta in (0.01, 0.1, 0.3, 0.6)]
    by_cap = [paper_threshold(*data, cap=cap).accuracy for cap in (0, 0.02, 0.1, 0.5, 1)]
    for accuracies in (by_alpha, by_delta, by_cap):
        assert accuracies == sorted(accuracies)


@given(kind_rows)
def test_a_higher_threshold_never_harms_more(questions: list[Row]) -> None:
    strict_first = [harmed(questions, tau) for tau in observed(questions)]
    bounds = [upper_bound(harms, len(questions), 0.1) for harms in strict_first]
    assert strict_first == sorted(strict_first)
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(("alpha", "n"), [(0.02, 114), (0.05, 45), (0.10, 22)])
def test_without_harm_the_smallest_n_certifies_and_one_less_does_not(alpha: float, n: int) -> None:
    assert smallest_n(alpha, 0.10) == n
    for questions, tau in ((n, 0.5), (n - 1, INF)):
        found = certified_threshold([0.5] * questions, [1] * questions, [0] * questions, alpha=alpha)
        assert found.tau == tau


@given(st.sampled_from([0.02, 0.05, 0.1, 0.5]), st.sampled_from([0.01, 0.1, 0.5]), st.integers(0, 12))
def test_smallest_n_is_where_the_bound_first_reaches_alpha(alpha: float, delta: float, harms: int) -> None:
    n = smallest_n(alpha, delta, harms)
    assert upper_bound(harms, n, delta) <= alpha < upper_bound(harms, n - 1, delta)


# - normal answers and bad input -


def test_no_calibration_question_gives_abstain_all() -> None:
    assert paper_threshold([], [], []) == Threshold(INF, 0, 0, 0, 0.0, None)
    assert certified_threshold([], [], []) == Threshold(INF, 0, 0, 0, 0.0, 0.0, 0.05, 0.10)
    assert certified_among_replacements([], [], [], grid=[0.5]).tau == INF
    assert joint_thresholds({64: ([], [], [])}, how="any")[64].tau == INF


def test_where_every_replacement_harms_none_qualifies() -> None:
    s, chosen, retained = np.linspace(-1, 1, 500), np.zeros(500), np.ones(500)
    never = Threshold(INF, 0, 0, 500, 1.0, 0.0, 0.05, 0.10)
    assert paper_threshold(s, chosen, retained).tau == INF
    assert certified_threshold(s, chosen, retained) == never
    assert certified_among_replacements(s, chosen, retained, grid=[0.5, 0.0]) == never
    assert set(joint_thresholds({32: (s, chosen, retained), 64: (s, chosen, retained)}, how="any").values()) == {never}


def test_a_threshold_is_a_plain_finite_number_or_inf() -> None:
    found = certified_threshold(np.full(50, -0.0), np.ones(50, dtype=bool), np.zeros(50, dtype=np.int8))
    assert type(found.tau) is float
    assert math.copysign(1, found.tau) == 1
    assert {type(value) for value in (found.accepted, found.harms, found.questions)} == {int}
    assert json.dumps([found.tau, found.accuracy, found.bound]) == json.dumps([0.0, 1.0, upper_bound(0, 50, 0.1)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (([0.1, math.nan], [1, 1], [0, 0]), "advantage holds 1 of 2"),
        (([0.1, INF], [1, 1], [0, 0]), "advantage holds 1 of 2"),
        (([0.1, 0.2], [1, math.nan], [0, 0]), "chosen holds 1 of 2"),
        (([0.1, 0.2], [1, 1], [math.nan, math.nan]), "retained holds 2 of 2"),
        (([0.1, 0.2], [1, 1], [0]), "2 of advantage, 2 of chosen, 1 of retained"),
        (([0.1, 0.2], [1, 1.5], [0, 0]), "1 of 2 in chosen"),
        (([0.1, 0.2], [1, 1], [-0.5, 0]), "1 of 2 in retained"),
        (([[0.1, 0.2]], [[1, 1]], [[0, 0]]), "shape"),
        ((["a"], [1], [0]), "advantage must be numbers"),
        (([[1], [1, 2]], [1, 1], [0, 0]), "advantage must be numbers"),
    ],
)
def test_rows_that_cannot_be_used_are_a_clear_error(data: Any, said: str) -> None:
    for rule in (paper_threshold, certified_threshold):
        with pytest.raises(InputError, match=re.escape(said)):
            rule(*data)
    with pytest.raises(InputError, match=re.escape(said)):
        certified_among_replacements(*data, grid=[0.5])
    for how in ("split", "any"):
        with pytest.raises(RetconError, match=re.escape(said)):
            joint_thresholds({64: data}, how=how)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_levels_outside_zero_and_one_are_a_clear_error(level: float) -> None:
    for ask in (
        lambda: certified_threshold([0.5], [1], [0], alpha=level),
        lambda: certified_threshold([0.5], [1], [0], delta=level),
        lambda: certified_among_replacements([0.5], [1], [0], grid=[0.5], delta=level),
        lambda: joint_thresholds({64: ([0.5], [1], [0])}, alpha=level),
        lambda: upper_bound(0, 10, level),
        lambda: smallest_n(level, 0.1),
    ):
        with pytest.raises(InputError, match="between 0 and 1"):
            ask()


def test_other_bad_use_is_a_clear_error() -> None:
    for ask in (
        lambda: paper_threshold([0.5], [1], [0], cap=1.5),
        lambda: paper_threshold([0.5], [1], [0], cap=math.nan),
        lambda: upper_bound(3, 2, 0.1),
        lambda: upper_bound(-1, 2, 0.1),
        lambda: upper_bound([0, 1], 8, 0.1),  # type: ignore[arg-type]
        lambda: upper_bound(0.5, 2, 0.1),  # type: ignore[arg-type]
        lambda: smallest_n(0.1, 0.1, -1),
        lambda: certified_among_replacements([0.5], [1], [0], grid=[math.nan]),
        lambda: certified_among_replacements([0.5], [1], [0], grid=[-INF]),
        lambda: joint_thresholds({}),
        lambda: joint_thresholds({64: ([0.5], [1], [0])}, how="both"),  # type: ignore[arg-type]
        lambda: joint_thresholds({32: ([0.5], [1], [0]), 64: ([], [], [])}, how="any"),
    ):
        with pytest.raises(InputError):
            ask()


# - the bound -


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
def test_the_bound_is_scipys(n: int, share: float, delta: float) -> None:
    harms = math.floor(share * n)
    exact = stats.beta.ppf(1 - delta, harms + 1, n - harms) if harms < n else 1.0
    assert upper_bound(harms, n, delta) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize("n", [10_000, 1_000_000])
def test_the_bound_is_scipys_for_many_questions(n: int) -> None:
    for harms in (0, 1, 7, n // 1000, n // 20, n // 2, n - 2, n - 1):
        for delta in (1e-4, 0.1, 0.9):
            exact = stats.beta.ppf(1 - delta, harms + 1, n - harms)
            assert abs(upper_bound(harms, n, delta) - exact) < 1e-10, (harms, delta)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_the_bound_never_promises_what_the_binomial_does_not(harms: int, more: int, delta: float) -> None:
    bound = upper_bound(harms, harms + more, delta)
    if bound < 1:
        assert stats.binom.cdf(harms, harms + more, bound) <= delta * (1 + 1e-9)


def test_the_bound_of_nothing_is_one_and_of_no_harm_has_a_closed_form() -> None:
    assert upper_bound(0, 0, 0.1) == 1.0
    assert upper_bound(5, 5, 0.1) == 1.0
    for n in (1, 22, 45, 114, 10**6):
        assert upper_bound(0, n, 0.1) == pytest.approx(-math.expm1(math.log(0.1) / n), rel=1e-12)


# - harm among replacements -

grids = st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.1, 0.25, 0.5, 0.75, INF]), max_size=6)


@given(kind_rows, levels, grids)
def test_harm_among_replacements_is_tested_in_a_fixed_sequence(
    questions: list[Row], level: tuple[float, float], grid: list[float]
) -> None:
    alpha, delta = level
    found = certified_among_replacements(*floats(questions), grid=grid, alpha=alpha, delta=delta)
    passed = [INF]
    for tau in sorted(set(grid) - {INF}, reverse=True):
        accepted = sum(s >= tau for s, _, _ in questions)
        if stats.binom.cdf(harmed(questions, tau), accepted, alpha) > delta:
            break
        passed.append(tau)
    assert found.tau == best(questions, passed)
    check_counts(found, questions)
    if found.tau < INF:
        assert found.bound == upper_bound(found.harms, found.accepted, delta)


def test_a_strict_value_that_fails_ends_the_sequence() -> None:
    s = np.repeat([0.9, 0.1], [30, 500])
    harmed_at_the_top = s == 0.9
    data = s, ~harmed_at_the_top, harmed_at_the_top
    assert certified_among_replacements(*data, grid=[0.9, 0.1], alpha=0.1).tau == INF
    assert certified_among_replacements(*data, grid=[0.1], alpha=0.1).tau == 0.1  # 30 of 530: no monotone family


# - all budgets at once -

aligned = st.lists(st.tuples(advantages, utilities, utilities, advantages, utilities, utilities), max_size=60)


@given(aligned, levels)
def test_one_tau_for_all_budgets_counts_a_question_once(questions: list[Any], level: tuple[float, float]) -> None:
    alpha, delta = level
    # most rows made harmless, or nothing would ever be certified
    budgets: dict[int, list[Row]] = {
        32: [(row[0], max(row[1], row[2]) if i % 7 else row[1], row[2]) for i, row in enumerate(questions)],
        64: [(row[3], max(row[4], row[5]) if i % 5 else row[4], row[5]) for i, row in enumerate(questions)],
    }
    found = joint_thresholds({b: floats(part) for b, part in budgets.items()}, alpha=alpha, delta=delta, how="any")

    def joint_harms(tau: float) -> int:
        return sum(any(harmed([row], tau) for row in pair) for pair in zip(*budgets.values(), strict=True))

    passed = [INF]
    for tau in observed([row for part in budgets.values() for row in part])[1:]:
        if stats.binom.cdf(joint_harms(tau), len(questions), alpha) > delta:
            break
        passed.append(tau)
    tau = best([row for part in budgets.values() for row in part], passed)
    for budget, part in budgets.items():
        assert found[budget].tau == tau
        check_counts(found[budget], part)
        assert found[budget].bound == (0.0 if tau == INF else upper_bound(joint_harms(tau), len(questions), delta))


def test_split_certifies_each_budget_at_its_share_of_delta() -> None:
    rng = np.random.default_rng(1)
    sets = {b: certificate.SimulatedPopulation(((0.0, 1.0, 0.01),)).draw(rng, 200) for b in (32, 64, 128, 256)}
    found = joint_thresholds(sets, alpha=0.05, delta=0.10)
    assert found == {b: certified_threshold(*rows, alpha=0.05, delta=0.025) for b, rows in sets.items()}
    assert all(threshold.tau < INF and threshold.delta == 0.025 for threshold in found.values())


# - MAPIE: the same selection where its p-value is exact, a subset of ours where it is looser -


def mapie_thresholds(data: tuple[Any, Any, Any], alpha: float, delta: float) -> list[float]:
    """The thresholds that MAPIE's controller passes by fixed-sequence testing over the observed advantages."""
    control = pytest.importorskip("mapie.risk_control")
    s, chosen, retained = map(np.asarray, data)
    harm = control.BinaryRisk(
        risk_occurrence=lambda y_true, y_pred: (y_true == 1) & (y_pred == 1),
        risk_condition=lambda y_true, y_pred: np.repeat(True, len(y_true)),
        higher_is_better=False,
    )
    controller = control.BinaryClassificationController(
        predict_function=lambda x: np.column_stack([1 - x, x]),
        risk=harm,
        target_level=alpha,
        confidence_level=1 - delta,
        best_predict_param_choice=control.accuracy,
        list_predict_params=np.unique(s)[::-1],  # the strictest first
        fwer_method="fixed_sequence",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing could be controlled
        controller.calibrate(s, (chosen < retained).astype(int))
    return [float(tau) for tau in controller.valid_predict_params]


def most_accurate(data: tuple[Any, Any, Any], candidates: list[float]) -> float:
    s, chosen, retained = map(np.asarray, data)
    return max(candidates, key=lambda tau: (float(np.where(s >= tau, chosen, retained).sum()), tau))


@pytest.mark.parametrize("n", [64, 128, 256])  # k / n * n == k, so MAPIE's p-value is the binomial's
@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_selection_is_mapies_where_its_p_value_is_exact(n: int, alpha: float) -> None:
    rng = np.random.default_rng(n)
    chose = set()
    for harm in (0.0, alpha / 2, alpha, 2 * alpha):
        data = certificate.SimulatedPopulation(((0.0, 1.0, harm),)).draw(rng, n)
        theirs = mapie_thresholds(data, alpha, 0.1)
        ours = certified_threshold(*data, alpha=alpha, delta=0.1)
        assert ours.tau == most_accurate(data, [INF, *theirs])
        chose.add(ours.tau)
    assert len(chose) == 4  # four different answers were compared


def test_mapie_loses_a_harm_to_rounding_where_ours_does_not() -> None:
    n, harms, alpha = 341, 3, 0.02
    assert math.ceil(n * (harms / n)) == harms + 1
    assert stats.binom.cdf(harms, n, alpha) <= 0.1 < stats.binom.cdf(harms + 1, n, alpha)
    s = np.linspace(1, 0, n)
    bad = np.isin(np.arange(n), [10, 20, 30])
    data = s, ~bad, bad
    theirs, ours = mapie_thresholds(data, alpha, 0.1), certified_threshold(*data, alpha=alpha, delta=0.1)
    assert min(theirs) > s[30]  # it stops at the third harm
    assert ours.tau == 0.0  # all are accepted, three of them harmed
    assert ours.harms == 3


@given(st.integers(2, 400), st.integers(0, 40), st.sampled_from([0.02, 0.05, 0.1]))
def test_whatever_mapies_p_values_pass_our_bound_passes(n: int, harms: int, alpha: float) -> None:
    methods = pytest.importorskip("mapie.risk_control.methods")
    rate = np.array([min(harms, n) / n])
    ours = upper_bound(min(harms, n), n, 0.1) <= alpha
    with np.errstate(all="ignore"):  # its logarithm of 0 at rate 1
        binary, general = (
            methods.compute_hoeffding_bentkus_p_value(rate, n, alpha, exact)[0, 0] for exact in (True, False)
        )
    assert ours or binary > 0.1
    assert ours or general > 0.1
    if n * rate[0] == min(harms, n):
        assert ours == (binary <= 0.1)


# - the promise, on populations whose harm is known -


def test_population_harm_exceeds_alpha_at_most_delta_of_the_time() -> None:
    draws, rng = 400, np.random.default_rng(7)
    limit = 0.10 + 3 * math.sqrt(0.09 / draws)
    for name, population in certificate.simulated_populations(0.05).items():
        ((certified, _),) = certificate.measure(population, 300, [0.05], draws=draws, rng=rng)
        assert certified.exceeds <= limit, name
    # the populations can tell: the observed harm rate in place of its bound breaks the promise
    hair = certificate.simulated_populations(0.05)["harm a hair above alpha wherever it pays"]
    naive = [paper_threshold(*hair.draw(rng, 300), cap=0.05).tau for _ in range(draws)]
    assert np.mean([hair.harm(tau) > 0.05 for tau in naive]) > 2 * limit


def test_the_promise_is_not_wasted_where_harm_is_just_above_alpha() -> None:
    draws, n, alpha = 600, 300, 0.10
    hair = certificate.SimulatedPopulation(
        ((0.95, 1.0, 1.001 * alpha / 0.15), (0.85, 0.95, 1.001 * alpha / 0.15)), helped=0.9
    )
    ((certified, _),) = certificate.measure(hair, n, [alpha], draws=draws, rng=np.random.default_rng(3))
    most = max(k for k in range(n) if stats.binom.cdf(k, n, alpha) <= 0.1)
    exact = stats.binom.cdf(most, n, 1.001 * alpha)  # the chance that the sample lets the plateau pass
    assert exact > 0.05
    assert certified.exceeds == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / draws))


@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.10])
def test_a_population_with_a_quarter_of_alpha_gets_a_threshold(alpha: float) -> None:
    population = certificate.simulated_populations(alpha)[certificate.POWER]
    ((certified, _),) = certificate.measure(population, 300, [alpha], draws=200, rng=np.random.default_rng(5))
    assert 1 - certified.none >= 0.80
    assert certified.gain >= 0.80 * population.gain(0.0)  # and a threshold that is worth having


def test_fixed_sequence_keeps_its_promise_where_every_value_is_too_harmful() -> None:
    rng, draws, alpha = np.random.default_rng(11), 400, 0.1
    population = certificate.SimulatedPopulation(((0.0, 1.0, 1.001 * alpha),))
    passed = 0
    for _ in range(draws):
        grid = np.linspace(0.8, 0, 17).tolist()
        passed += certified_among_replacements(*population.draw(rng, 300), grid=grid, alpha=alpha).tau < INF
    assert passed / draws <= 0.10 + 3 * math.sqrt(0.09 / draws)
    assert passed  # and it can pass


@pytest.mark.parametrize("how", ["split", "any"])
def test_all_budgets_at_once_keep_the_promise(how: Any) -> None:
    rng, draws, alpha = np.random.default_rng(13), 250, 0.1
    hair = certificate.simulated_populations(alpha)["harm a hair above alpha wherever it pays"]
    broken = 0
    for _ in range(draws):
        found = joint_thresholds({b: hair.draw(rng, 150) for b in range(4)}, alpha=alpha, how=how)
        taus = [threshold.tau for threshold in found.values()]
        if how == "split":
            broken += any(hair.harm(tau) > alpha for tau in taus)
        else:  # four independent budgets
            broken += 1 - math.prod(1 - hair.harm(tau) for tau in taus) > alpha
    assert broken / draws <= 0.10 + 3 * math.sqrt(0.09 / draws)


# - the measurement -


COLUMNS = "dataset setting question_id conversation type budget action notes cluster_tokens sessions fit judge_llm"


def pilot_rows(folder: Path) -> Path:
    """A small file of outcomes in the shape of the pilot's."""
    rng, path = np.random.default_rng(17), folder / "outcomes.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS.split())
        for data, setting, actions in certificate.SETTINGS.values():
            for question in range(12):
                for budget in certificate.BUDGETS:
                    for action in (*actions, "extract"):
                        known = (data, setting, f"q{question}", question % 3, "temporal-reasoning", budget, action)
                        out.writerow([*known, 2 + question % 4, 90, 2, min(1, budget / 90), int(rng.random() < 0.4)])
    return path


def test_the_measurement_runs_and_its_table_names_everything(tmp_path: Path) -> None:
    result = certificate.run(pilot_rows(tmp_path), draws=2)
    assert json.loads(json.dumps(result)) == result
    shown = certificate.table(result)
    for row in result["rows"]:
        assert f"| {row['population']} | {row['n']} |" in shown
    assert len(result["rows"]) == 3 * (3 * 6 + 3 * 8 + 4 + 8)


def test_a_router_that_is_fixed_predicts_what_the_normal_equations_say() -> None:
    rng = np.random.default_rng(19)
    x, u = rng.random((50, 3)), rng.random((50, 2))
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.Ridge(alpha=50 * certificate.LAMBDA).fit(x, u)
    assert certificate.ridge(x, u) == pytest.approx(model.predict(x), abs=1e-10)


def test_absent_outcomes_end_the_script_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_PILOT", str(tmp_path / "none.csv"))
    with pytest.raises(SystemExit, match="set RETCON_PILOT") as stop:
        pilot_file()
    assert "\n" not in str(stop.value)


def test_the_example_on_the_page_gives_what_it_says() -> None:
    page = (ROOT / "docs" / "certificate.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    promised = [line.split("  # ") for line in code.splitlines() if "  # " in line]
    assert len(promised) == 3
    for ask, says in promised:
        assert eval(f"[{ask}]", scope) == pytest.approx([float(x) for x in says.split(", ")], abs=5e-5)


def test_the_page_shows_the_kept_result_and_the_result_shows_the_promise() -> None:
    result = json.loads((ROOT / "bench" / "results" / "certificate.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "results" / "certificate.md").read_text(encoding="utf-8")
    assert f"<!-- table: certificate -->\n{certificate.table(result)}\n<!-- end -->" in page
    assert result["shown"]["holds"]
    assert result["shown"]["has_power"]
    assert result["draws"] == 1000
    assert [result["smallest_n"][alpha][0] for alpha in ("0.02", "0.05", "0.1")] == [114, 45, 22]
