"""Estimators against closed forms, rivals and constructed answers; and the router that is made of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_outcomes import renamed, world

from retcon.errors import InputError, MissingExtraError
from retcon.lab.fit import (
    DECAYS,
    ESTIMATORS,
    LAMBDAS,
    LINEAR,
    WIDTHS,
    GainRidge,
    Linear,
    Mlp,
    Nearest,
    Ridge,
    Trees,
    _sigmoid,
    _slopes,
    choose_penalty,
    find_estimator,
    fit,
    folds,
    predictor,
    question_groups,
    ridge,
    row_groups,
    rows,
)
from retcon.lab.outcomes import from_rows, panel
from retcon.route import Router

Array = NDArray[np.float64]


def data(n: int = 60, features: int = 5, actions: int = 3, *, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)) * 10.0 ** rng.integers(-1, 2, features) + rng.normal(size=features)
    return x, np.clip(x @ rng.normal(size=(features, actions)) * 0.05 + rng.normal(size=(n, actions)), 0, 1)


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [1e-4, 0.01, 1.0, 100.0])
def test_ridge_is_scikit_learns_with_alpha_n_lambda(penalty: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, u = data()
    ours, theirs = ridge(x, u, penalty=penalty), linear_model.Ridge(alpha=len(x) * penalty, solver="svd").fit(x, u)
    np.testing.assert_allclose(ours.theta, theirs.coef_, atol=1e-10)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_, atol=1e-10)
    np.testing.assert_allclose(ours(x), theirs.predict(x), atol=1e-10)


@pytest.mark.parametrize("penalty", LAMBDAS)
def test_ridge_is_the_closed_form(penalty: float) -> None:
    x, u = data(seed=1)
    centred = x - x.mean(axis=0)
    theta = np.linalg.solve(
        centred.T @ centred + len(x) * penalty * np.eye(x.shape[1]), centred.T @ (u - u.mean(axis=0))
    )
    found = ridge(x, u, penalty=penalty)
    np.testing.assert_allclose(found.theta, theta.T, atol=1e-10)
    np.testing.assert_allclose(found.intercept, u.mean(axis=0) - x.mean(axis=0) @ theta, atol=1e-10)


def test_ridge_minimises_what_it_says() -> None:
    x, u = data(seed=2)
    best = ridge(x, u, penalty=0.3)

    def loss(theta: Array, intercept: Array) -> float:
        wrong = u - x @ theta.T - intercept
        return float((wrong**2).sum() / len(x) + 0.3 * (theta**2).sum())

    rng, low = np.random.default_rng(0), loss(best.theta, best.intercept)
    for _ in range(50):
        step = 1e-3 * rng.normal(size=(best.theta.shape[0], best.theta.shape[1] + 1))
        assert loss(best.theta + step[:, :-1], best.intercept + step[:, -1]) > low


def test_without_a_penalty_collinear_features_get_the_solution_of_least_norm() -> None:
    x, u = data(40, 3, seed=3)
    x = np.column_stack([x, x[:, 0] - 2 * x[:, 1], np.full(len(x), 7.0), np.zeros(len(x))])
    found = ridge(x, u, penalty=0.0)
    least = np.linalg.pinv(x - x.mean(axis=0)) @ (u - u.mean(axis=0))
    np.testing.assert_allclose(found.theta, least.T, atol=1e-10)
    np.testing.assert_allclose(found(x), ridge(x[:, :3], u, penalty=0.0)(x[:, :3]), atol=1e-10)


def test_rows_that_are_all_alike_predict_the_mean() -> None:
    u = np.array([[0.0, 1.0], [1.0, 0.5]])
    for penalty in (0.0, 1.0):
        np.testing.assert_allclose(ridge(np.ones((2, 3)), u, penalty=penalty)(np.ones((1, 3))), [[0.5, 0.75]])


def test_the_penalty_is_chosen_over_whole_groups() -> None:
    """Each group's rows are copies with one noisy target: folds of rows know the answers, folds of groups do not."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(30), 4)
    x, u = rng.normal(size=(30, 25))[groups], rng.random((30, 1))[groups]
    grouped = choose_penalty(x, u, groups, seed=0)
    by_row = choose_penalty(x, u, np.arange(len(x)), seed=0)
    assert grouped >= 100 * by_row
    errors = [grouped_error(x, u, groups, penalty) for penalty in LAMBDAS]
    assert LAMBDAS[int(np.argmin(errors))] == grouped


def grouped_error(x: Array, u: Array, groups: NDArray[np.int64], penalty: float) -> float:
    fold = folds(groups, 3, seed=0)
    return sum(
        float(((ridge(x[fold != k], u[fold != k], penalty=penalty)(x[fold == k]) - u[fold == k]) ** 2).sum())
        for k in range(3)
    )


def test_of_equally_good_penalties_the_largest_is_taken() -> None:
    x, groups = np.zeros((12, 2)), np.arange(12)  # nothing to learn from: all penalties predict the mean
    assert choose_penalty(x, np.random.default_rng(0).random((12, 2)), groups, seed=0) == max(LAMBDAS)


def test_one_penalty_serves_all_actions() -> None:
    """The one of least error over all columns, not a column's own."""
    rng = np.random.default_rng(8)
    x, groups = rng.normal(size=(90, 12)), np.arange(90)
    clear, noise = x[:, :1] * 0.1, rng.random((90, 1))
    own = [choose_penalty(x, column, groups, seed=0) for column in (clear, noise)]
    both = choose_penalty(x, np.hstack([clear, noise]), groups, seed=0)
    assert own[0] == 0.0 < both <= own[1]
    assert Ridge()(x, np.hstack([clear, noise]), groups, seed=0).penalty == both


# -- folds -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(2, 5), st.integers(0, 3))
def test_folds_keep_groups_whole_and_are_balanced(labels: list[int], k: int, seed: int) -> None:
    groups = np.array(labels)
    if len(set(labels)) < k:
        with pytest.raises(InputError, match=f"{k} folds need {k} groups at least, there are {len(set(labels))}"):
            folds(groups, k, seed=seed)
        return
    fold = folds(groups, k, seed=seed)
    assert set(fold.tolist()) == set(range(k))
    assert all(len(set(fold[groups == group].tolist())) == 1 for group in set(labels))
    sizes = np.bincount(fold, minlength=k)
    assert sizes.max() - sizes.min() <= np.bincount(groups).max()
    assert np.array_equal(fold, folds(groups, k, seed=seed))


def test_folds_of_single_questions_differ_by_one_at_most_and_by_the_seed() -> None:
    groups = np.arange(23)
    dealt = [folds(groups, 5, seed=seed) for seed in range(4)]
    assert all(np.ptp(np.bincount(fold)) <= 1 for fold in dealt)
    assert len({tuple(fold.tolist()) for fold in dealt}) == 4


# -- the other estimators ----------------------------------------------------------------------------------------------


def test_gain_is_ridge_on_retention_and_on_differences() -> None:
    x, u = data(90, seed=4)
    groups = np.repeat(np.arange(30), 3)
    found = GainRidge()(x, u, groups, seed=1)
    base, gain = (Ridge()(x, part, groups, seed=1) for part in (u[:, :1], u[:, 1:] - u[:, :1]))
    np.testing.assert_allclose(found(x)[:, :1], base(x), atol=1e-12)
    np.testing.assert_allclose(found(x)[:, 1:] - found(x)[:, :1], gain(x), atol=1e-12)
    assert found.penalty == gain.penalty


def test_standardised_ridge_does_not_care_for_units() -> None:
    x, u = data(90, seed=6)
    groups = np.arange(90)
    one = Ridge(standardise=True)(x, u, groups, seed=0)
    two = Ridge(standardise=True)(x * [1, 10, 100, 0.1, 3], u, groups, seed=0)
    np.testing.assert_allclose(one(x), two(x * [1, 10, 100, 0.1, 3]), atol=1e-10)


@pytest.mark.parametrize("k", [1, 5, 9])
def test_nearest_is_scikit_learns(k: int) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    x, u = data(80, seed=7)
    new = data(30, seed=8)[0]
    ours = Nearest((k,))(x, u, np.arange(80), seed=0)
    theirs = neighbors.KNeighborsRegressor(k).fit(x / x.std(axis=0), u)
    np.testing.assert_allclose(ours(new), theirs.predict(new / x.std(axis=0)), atol=1e-12)


def test_nearest_chooses_how_many_by_whole_groups() -> None:
    """Rows of a group are neighbours with one noisy target: alone they would be asked, across groups many must be."""
    rng = np.random.default_rng(9)
    groups = np.repeat(np.arange(60), 4)
    x = rng.normal(size=(60, 2))[groups] + 1e-3 * rng.normal(size=(240, 2))
    u = rng.random((60, 1))[groups]
    new = rng.normal(size=(40, 2))
    grouped, by_row = (Nearest((3, 51))(x, u, by, seed=0)(new).std() for by in (groups, np.arange(240)))
    assert grouped < 0.5 * by_row


def test_mlp_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(10)
    sizes = [(width, decay) for width in (2, 3) for decay in (0.01, 0.1)]
    alive = np.array([[unit < width for unit in range(3)] for width, _ in sizes], float)[:, None, :]
    decay = np.array([d for _, d in sizes])[:, None, None]
    x, u = rng.normal(size=(7, 4)), rng.random((7, 2))
    w = [
        rng.normal(size=(4, 4, 3)) * alive,
        rng.normal(size=(4, 1, 3)) * alive,
        rng.normal(size=(4, 3, 2)) * alive.transpose(0, 2, 1),
        rng.normal(size=(4, 1, 2)),
    ]

    def loss(w: list[Array]) -> Array:
        p = _sigmoid(np.maximum(x @ w[0] + w[1], 0) @ w[2] + w[3])
        entropy = -(u * np.log(p) + (1 - u) * np.log(1 - p)).sum(axis=2).mean(axis=1)
        squares = (w[0] ** 2).sum(axis=(1, 2)) + (w[2] ** 2).sum(axis=(1, 2))
        return np.asarray(entropy + decay[:, 0, 0] / 2 * squares)

    for part, slope in enumerate(_slopes(w, x, u, alive, decay)):
        for cell in np.ndindex(*slope.shape[1:]):
            up, down = ([each.copy() for each in w] for _ in range(2))
            up[part][(slice(None), *cell)] += 1e-6
            down[part][(slice(None), *cell)] -= 1e-6
            numeric = (loss(up) - loss(down)) / 2e-6
            dead = alive[:, 0, cell[-1] if part < 2 else cell[0]] == 0 if part < 3 else np.zeros(4, bool)
            np.testing.assert_allclose(slope[(slice(None), *cell)][~dead], numeric[~dead], atol=1e-6)
            assert (slope[(slice(None), *cell)][dead] == 0).all()  # the columns of narrower sizes stay where they are


def test_mlp_learns_what_no_line_can_say() -> None:
    rng = np.random.default_rng(11)
    x = rng.choice(np.array([-1.0, 1.0]), (200, 2))
    u = np.column_stack([x[:, 0] * x[:, 1] > 0, x[:, 0] * x[:, 1] < 0]).astype(float)
    groups = np.arange(200)
    crossed = Mlp(epochs=150)(x, u, groups, seed=0)(x)
    assert np.abs(crossed - u).mean() < 0.2
    assert np.abs(Ridge()(x, u, groups, seed=0)(x) - u).mean() > 0.4
    assert ((crossed > 0) & (crossed < 1)).all()
    assert np.array_equal(crossed, Mlp(epochs=150)(x, u, groups, seed=0)(x))
    assert (WIDTHS, DECAYS) == ((4, 8, 16), (1e-3, 1e-2, 1e-1))


def test_trees_find_a_step() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(12)
    x = rng.random((120, 2))
    u = np.where(x[:, :1] > 0.6, 0.9, 0.0)
    found = Trees((1,))(x, u, np.arange(120), seed=0)
    new = np.array([[0.1, 0.5], [0.9, 0.5]])
    assert np.abs(found(new)[:, 0] - [0.0, 0.9]).max() < 0.1


def test_trees_without_scikit_learn_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    x, u = data(30)
    with pytest.raises(MissingExtraError, match=r"boosted trees needs .*retcon-memory\[lab\]"):
        Trees((1,))(x, u, np.arange(30), seed=0)


# -- from a panel ------------------------------------------------------------------------------------------------------


def test_rows_are_question_by_budget_and_carry_their_group() -> None:
    found = panel(from_rows(world(9, talks=3)))
    x, u = rows(found)
    assert (x.shape, u.shape) == ((18, 11), (18, 3))
    assert np.array_equal(x[3], found.x[1, 1])
    assert np.array_equal(u[3], found.utility[1, 1])
    assert row_groups(found).tolist() == [q for q in range(9) for _ in range(2)]
    talks = question_groups(found, "conversation")
    for one in range(9):
        for two in range(9):
            assert (talks[one] == talks[two]) == (found.conversations[one] == found.conversations[two])
    with pytest.raises(InputError, match="grouped by question or conversation, not by 'day'"):
        question_groups(found, "day")


def linear_world() -> tuple[list[dict[str, Any]], dict[str, tuple[float, float, float]]]:
    """Outcomes whose utilities are linear in fit and notes, exactly."""
    truth = {
        "retain": (0.1, 0.6, 0.01),
        "extract": (0.5, 0.1, 0.0),
        "merge": (0.3, -0.1, 0.05),
    }
    rows_ = world(40)
    for row in rows_:
        level, fit_, notes = truth[row["action"]]
        row["judge_llm"] = level + fit_ * row["fit"] + notes * row["notes"]
    return rows_, truth


def test_a_constructed_problem_is_recovered() -> None:
    made, truth = linear_world()
    found = panel(from_rows(made))
    router = fit(found, name="linear")
    assert router.provenance["lambda"] == 0.0
    for action, (level, fit_, notes) in truth.items():
        weights = dict(zip(router.features, router.weights[action], strict=True))
        assert weights.pop("fit") == pytest.approx(fit_, abs=1e-8)
        assert weights.pop("notes") == pytest.approx(notes, abs=1e-8)
        assert router.utilities(found.x[0, 0])[action] == pytest.approx(
            level + fit_ * found.fit[0, 0] + notes * found.x[0, 0, 1], abs=1e-8
        )
        types = [weights.pop(name) for name in ("single_session", "multi_session", "temporal", "knowledge_update")]
        assert np.ptp(types) == pytest.approx(0, abs=1e-8)
        assert all(weight == pytest.approx(0, abs=1e-8) for weight in weights.values())
    decisions = [router.decide(found.x[q, b], budget=found.budgets[b]) for q in range(40) for b in range(2)]
    assert [found.actions.index(each.action) for each in decisions] == found.utility.argmax(axis=2).ravel().tolist()


@pytest.mark.parametrize("estimator", LINEAR)
def test_a_router_predicts_what_its_estimator_does(estimator: str, tmp_path: Path) -> None:
    found = panel(from_rows(world(20)))
    router = fit(
        found, name="r", estimator=estimator, seed=3, embedder="hashing", counter="estimate", provenance={"a": 1}
    )
    model = predictor(found, estimator, seed=3)
    x, _ = rows(found)
    for row, mu in zip(x[:10], model(x[:10]), strict=True):
        assert list(router.utilities(row).values()) == pytest.approx(mu.tolist(), abs=1e-12)
    assert (router.actions, router.features, router.budgets) == (found.actions, found.features, found.budgets)
    assert (router.embedder, router.counter, router.thresholds) == ("hashing", "estimate", {})
    assert isinstance(model, Linear)
    assert dict(router.provenance) == {
        "a": 1, "estimator": estimator, "lambda": model.penalty, "questions": 20, "rows": 40, "realizations": 1,
    }  # fmt: skip
    router.save(tmp_path / "r.json")
    assert Router.load(tmp_path / "r.json") == router


def test_estimators_that_no_file_can_hold_are_told_from_names_that_nobody_has() -> None:
    found = panel(from_rows(world(8)))
    for name in set(ESTIMATORS).difference(LINEAR):
        with pytest.raises(InputError, match=f"{name} is for comparisons in crossfit"):
            fit(found, name="r", estimator=name)
    with pytest.raises(InputError, match="no estimator 'rigde'; there are ridge, "):
        fit(found, name="r", estimator="rigde")
    with pytest.raises(InputError, match="3 folds need 3 groups at least, there are 2"):
        fit(panel(from_rows(world(2))), name="r")
    assert find_estimator(ESTIMATORS["knn"]) is ESTIMATORS["knn"]


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in ("mlp", "trees")])
def test_names_and_orders_change_no_prediction(estimator: str) -> None:
    made = world(25)
    one = panel(from_rows(made))
    for seed in range(3):
        two = panel(from_rows(renamed(made, seed)), actions=["merge", "extract", "retain"])
        x, _ = rows(one)
        assert np.array_equal(predictor(one, estimator)(x), predictor(two, estimator)(x))


def test_one_budget_and_one_action_beside_retain_are_enough() -> None:
    found = panel(from_rows(world(12)), actions=["retain", "merge"], budgets=[64])
    router = fit(found, name="small")
    assert (router.actions, router.budgets) == (("retain", "merge"), (64,))
    assert router.decide(found.x[0, 0], budget=64).action in router.actions
