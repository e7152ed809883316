"""Features, utilities -> a predictor of the utility of every action; and, where it is linear, a Router.

The paper's estimator is ridge: one linear response per action, (1/n) sum of squares + lambda |theta|^2 with a free
intercept. n counts rows (question x budget), so scikit-learn's alpha is n lambda. One lambda serves all actions; it is
chosen by grouped cross-validation on squared error inside the training questions. The richer estimators keep the same
contract: rows and groups in, a predictor out, every hyper-parameter by cross-validation over the same groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError, MissingExtraError
from retcon.features import FEATURES
from retcon.lab.outcomes import Panel
from retcon.route import Router

Array = NDArray[np.float64]
Groups = NDArray[np.int64]
Predictor = Callable[[Array], Array]  # [n, feature] -> [n, action]

LAMBDAS = (0.0, *(10.0**power for power in range(-4, 3)))
INNER = 3  # folds of the inner cross-validation
NEIGHBOURS = (3, 5, 9, 15, 25, 51)
WIDTHS, DECAYS = (4, 8, 16), (1e-3, 1e-2, 1e-1)
EPOCHS, PATIENT, RATE = 300, 10, 0.02  # of the MLP: most epochs, how often the error is looked at, Adam's step
DEPTHS, TREES, SHRINK = (1, 2, 3), 150, 0.05


class Estimator(Protocol):
    """Learns the utility of every action from rows; `groups` says which rows belong to one question."""

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Predictor: ...


@dataclass(frozen=True, slots=True)
class Linear:
    """mu(a) = intercept(a) + <theta(a), psi>, with the penalty it was fitted under."""

    theta: Array  # [action, feature]
    intercept: Array  # [action]
    penalty: float  # lambda

    def __call__(self, x: Array) -> Array:
        mu: Array = x @ self.theta.T + self.intercept
        return mu


def folds(groups: Groups, k: int, *, seed: int) -> NDArray[np.int64]:
    """The fold of each row: groups shuffled by the seed, the largest dealt first, each to the smallest fold so far."""
    names, sizes = np.unique(groups, return_counts=True)
    if len(names) < k:
        raise InputError(f"{k} folds need {k} groups at least, there are {len(names)}")
    shuffled = np.random.default_rng(seed).permutation(len(names))
    dealt = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    fold_of, held = np.zeros(len(names), np.int64), np.zeros(k)
    for group in dealt:
        fold_of[group] = np.argmin(held)
        held[fold_of[group]] += sizes[group]
    found: NDArray[np.int64] = fold_of[np.searchsorted(names, groups)]
    return found


# -- ridge -------------------------------------------------------------------------------------------------------------


def ridge(x: Array, u: Array, *, penalty: float) -> Linear:
    """The exact minimiser; at penalty 0 the least-squares solution of least norm."""
    return next(_ridge_path(x, u, (penalty,)))


def _ridge_path(x: Array, u: Array, penalties: Sequence[float]) -> Iterator[Linear]:
    """One fit per penalty from one decomposition: X = U S V', theta = V (S^2 + n lambda)^-1 S U' y, both centred."""
    n, centre, mean = len(x), x.mean(axis=0), u.mean(axis=0)
    left, s, right = np.linalg.svd(x - centre, full_matrices=False)
    rank = s > s[:1].max(initial=0.0) * max(x.shape) * np.finfo(float).eps
    projected = left.T @ (u - mean)
    for penalty in penalties:
        shrunk = np.where(rank, s, 0.0) / np.where(rank, s * s + n * penalty, 1.0)
        theta = (right.T @ (shrunk[:, None] * projected)).T
        yield Linear(theta, mean - theta @ centre, penalty)


def choose_penalty(x: Array, u: Array, groups: Groups, *, seed: int, penalties: Sequence[float] = LAMBDAS) -> float:
    """The penalty of least grouped cross-validated squared error over all actions; of equals the largest."""
    fold, errors = folds(groups, INNER, seed=seed), np.zeros(len(penalties))
    for k in range(INNER):
        test = fold == k
        for i, model in enumerate(_ridge_path(x[~test], u[~test], penalties)):
            errors[i] += ((model(x[test]) - u[test]) ** 2).sum()
    best = errors.min()
    return max(p for p, error in zip(penalties, errors, strict=True) if error <= best * (1 + 1e-12))


@dataclass(frozen=True, slots=True)
class Ridge:
    """The paper's estimator. `standardise` scales features to unit variance before the penalty bites."""

    standardise: bool = False
    penalties: tuple[float, ...] = LAMBDAS

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Linear:
        scale = _scale(x) if self.standardise else np.ones(x.shape[1])
        penalty = choose_penalty(x / scale, u, groups, seed=seed, penalties=self.penalties)
        model = ridge(x / scale, u, penalty=penalty)
        return Linear(model.theta / scale, model.intercept, penalty)


@dataclass(frozen=True, slots=True)
class GainRidge:
    """Ridge on retention and, with a penalty of its own, on every other action's gain over it (retain comes first)."""

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Linear:
        base = Ridge()(x, u[:, :1], groups, seed=seed)
        gain = Ridge()(x, u[:, 1:] - u[:, :1], groups, seed=seed)
        theta = np.concatenate([base.theta, base.theta + gain.theta])
        return Linear(theta, np.concatenate([base.intercept, base.intercept + gain.intercept]), gain.penalty)


# -- richer estimators -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nearest:
    """The mean utility of the k nearest training rows, features standardised."""

    neighbours: tuple[int, ...] = NEIGHBOURS

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Predictor:
        fold, errors = folds(groups, INNER, seed=seed), np.zeros(len(self.neighbours))
        for inner in range(INNER):
            test = fold == inner
            near = _neighbours(x[~test], x[test], max(self.neighbours))
            for i, k in enumerate(self.neighbours):
                errors[i] += ((u[~test][near[:, :k]].mean(axis=1) - u[test]) ** 2).sum()
        k = self.neighbours[int(np.argmin(errors))]
        return lambda new: u[_neighbours(x, new, k)].mean(axis=1)


def _neighbours(x: Array, new: Array, k: int) -> NDArray[np.int64]:
    """[n, k]: the rows of x nearest to each new row, the nearest first."""
    scale = _scale(x)
    rows, at = x / scale, new / scale
    far = (rows * rows).sum(axis=1) - 2 * at @ rows.T  # |a - b|^2 less |a|^2, which orders the same
    return np.argsort(far, axis=1, kind="stable")[:, :k]


@dataclass(frozen=True, slots=True)
class Trees:
    """Gradient-boosted trees, one ensemble per action; depth and number of trees by cross-validation."""

    depths: tuple[int, ...] = DEPTHS

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Predictor:
        steps = np.arange(9, TREES, 10)  # the numbers of trees that are looked at, less one

        def fit(x: Array, u: Array) -> Iterator[Predictor]:
            for depth in self.depths:
                boosted = [_boost(x, u[:, a], depth, seed) for a in range(u.shape[1])]
                for step in steps:
                    yield _predict_after(boosted, int(step))

        return list(fit(x, u))[_best(fit, x, u, groups, seed=seed)]


def _boost(x: Array, u: Array, depth: int, seed: int) -> Any:
    try:
        from sklearn.ensemble import GradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("boosted trees", "lab") from None
    model = GradientBoostingRegressor(
        n_estimators=TREES, learning_rate=SHRINK, max_depth=depth, min_samples_leaf=20, subsample=0.7, random_state=seed
    )
    return model.fit(x, u)


def _predict_after(boosted: Sequence[Any], step: int) -> Predictor:
    def predict(x: Array) -> Array:
        staged = [next(p for i, p in enumerate(model.staged_predict(x)) if i == step) for model in boosted]
        return np.stack(staged, axis=1)

    return predict


@dataclass(frozen=True, slots=True)
class Mlp:
    """One hidden ReLU layer and a sigmoid per action; width, weight decay and epoch by cross-validation, then refit.

    Cross-entropy, full-batch Adam. All sizes train side by side: the narrow ones are wide ones with columns held at 0.
    """

    epochs: int = EPOCHS

    def __call__(self, x: Array, u: Array, groups: Groups, *, seed: int) -> Predictor:
        scale, centre = _scale(x), x.mean(axis=0)

        def fit(x: Array, u: Array) -> Iterator[Predictor]:
            for layers in _train_mlp((x - centre) / scale, u, self.epochs, seed):
                for layer in layers:
                    yield partial(_forward, layer, centre, scale)

        return list(fit(x, u))[_best(fit, x, u, groups, seed=seed)]


Layer = tuple[Array, Array, Array, Array]  # input weights [f, h], bias [h], output weights [h, a], bias [a]


def _train_mlp(x: Array, u: Array, epochs: int, seed: int) -> Iterator[list[Layer]]:
    """The weights of every size and decay (m of them) each time training has gone on for PATIENT epochs."""
    sizes = [(width, decay) for width in WIDTHS for decay in DECAYS]
    m, widest, f, a = len(sizes), max(WIDTHS), x.shape[1], u.shape[1]
    rng = np.random.default_rng(seed)
    alive = np.array([[unit < width for unit in range(widest)] for width, _ in sizes], float)[:, None, :]
    decay = np.array([d for _, d in sizes])[:, None, None]
    base = np.clip(u.mean(axis=0), 0.01, 0.99)
    w = [
        rng.normal(size=(1, f, widest)).repeat(m, 0) * np.sqrt(2 / f) * alive, np.zeros((m, 1, widest)),
        rng.normal(size=(1, widest, a)).repeat(m, 0) * 0.1 * alive.transpose(0, 2, 1),
        np.tile(np.log(base / (1 - base)), (m, 1, 1)),
    ]  # fmt: skip
    first, second = [np.zeros_like(part) for part in w], [np.zeros_like(part) for part in w]
    for epoch in range(1, epochs + 1):
        for i, slope in enumerate(_slopes(w, x, u, alive, decay)):  # Adam
            first[i] += 0.1 * (slope - first[i])
            second[i] += 0.001 * (slope * slope - second[i])
            step = first[i] / (1 - 0.9**epoch) / (np.sqrt(second[i] / (1 - 0.999**epoch)) + 1e-8)
            w[i] = w[i] - RATE * step
        if epoch % PATIENT == 0:
            yield [(w[0][i], w[1][i, 0], w[2][i], w[3][i, 0]) for i in range(m)]


def _slopes(w: Sequence[Array], x: Array, u: Array, alive: Array, decay: Array) -> list[Array]:
    """The gradient of the mean cross-entropy, summed over actions, plus decay / 2 times the squared weights."""
    hidden = np.maximum(x @ w[0] + w[1], 0)
    wrong = (_sigmoid(hidden @ w[2] + w[3]) - u) / len(x)  # at the outputs, [m, n, a]
    back = (wrong @ w[2].transpose(0, 2, 1)) * (hidden > 0)
    return [
        (x.T @ back) * alive + decay * w[0], back.sum(axis=1, keepdims=True) * alive,
        hidden.transpose(0, 2, 1) @ wrong + decay * w[2], wrong.sum(axis=1, keepdims=True),
    ]  # fmt: skip


def _forward(layer: Layer, centre: Array, scale: Array, x: Array) -> Array:
    hidden = np.maximum((x - centre) / scale @ layer[0] + layer[1], 0)
    return _sigmoid(hidden @ layer[2] + layer[3])


def _sigmoid(z: Array) -> Array:
    clipped: Array = 1 / (1 + np.exp(-np.clip(z, -40, 40)))
    return clipped


def _best(
    fit: Callable[[Array, Array], Iterator[Predictor]], x: Array, u: Array, groups: Groups, *, seed: int
) -> int:  # fmt: skip
    """Which of the candidates that `fit` gives has the least grouped cross-validated squared error."""
    fold, errors = folds(groups, INNER, seed=seed), []
    for k in range(INNER):
        test = fold == k
        errors.append([((model(x[test]) - u[test]) ** 2).sum() for model in fit(x[~test], u[~test])])
    return int(np.argmin(np.sum(errors, axis=0)))


def _scale(x: Array) -> Array:
    spread = x.std(axis=0)
    return np.where(spread > 1e-12, spread, 1.0)


ESTIMATORS: Mapping[str, Estimator] = {
    "ridge": Ridge(),
    "ridge-standardised": Ridge(standardise=True),
    "gain": GainRidge(),
    "knn": Nearest(),
    "mlp": Mlp(),
    "trees": Trees(),
}
LINEAR = ("ridge", "ridge-standardised", "gain")  # what a router file can hold


# -- from a panel ------------------------------------------------------------------------------------------------------


def rows(panel: Panel) -> tuple[Array, Array]:
    """The panel's features [q b, f] and utilities [q b, a], a row for each question and budget."""
    return panel.x.reshape(-1, panel.x.shape[2]), panel.utility.reshape(-1, len(panel.actions))


def row_groups(panel: Panel, group: str = "question") -> Groups:
    """A number per row of `rows`: which question, or conversation, it belongs to."""
    return np.repeat(question_groups(panel, group), len(panel.budgets))


def question_groups(panel: Panel, group: str = "question") -> Groups:
    """A number per question: itself, or its conversation, numbered in the order in which the panel meets them."""
    if group == "question":
        return np.arange(len(panel.questions))
    if group != "conversation":
        raise InputError(f"questions are grouped by question or conversation, not by {group!r}")
    place = {name: i for i, name in enumerate(dict.fromkeys(panel.conversations))}
    return np.array([place[name] for name in panel.conversations])


def predictor(
    panel: Panel, estimator: str | Estimator = "ridge", *, group: str = "question", seed: int = 0
) -> Predictor:
    """The estimator fitted to every row of the panel."""
    x, u = rows(panel)
    return find_estimator(estimator)(x, u, row_groups(panel, group), seed=seed)


def find_estimator(estimator: str | Estimator) -> Estimator:
    """The estimator of that name."""
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise InputError(f"no estimator {estimator!r}; there are {', '.join(ESTIMATORS)}")
    return ESTIMATORS[estimator]


def fit(
    panel: Panel, *, name: str, estimator: str = "ridge", group: str = "question", seed: int = 0,
    embedder: str | None = None, counter: str | None = None, provenance: Mapping[str, Any] | None = None,
) -> Router:  # fmt: skip
    """A direct router learned from every row of the panel. `provenance` is kept in it; counts and lambda are added."""
    find_estimator(estimator)  # a name that nobody has is an error of its own
    if estimator not in LINEAR:
        raise InputError(f"a router file holds {', '.join(LINEAR)}; {estimator} is for comparisons in crossfit")
    model = predictor(panel, estimator, group=group, seed=seed)
    assert isinstance(model, Linear)
    known = tuple(f for f in panel.features if f in FEATURES)
    return Router(
        name=name,
        actions=panel.actions,
        features=known,
        weights={action: tuple(map(float, model.theta[a])) for a, action in enumerate(panel.actions)},
        intercepts={action: float(model.intercept[a]) for a, action in enumerate(panel.actions)},
        budgets=panel.budgets,
        embedder=embedder,
        counter=counter,
        provenance={
            **(provenance or {}),
            "estimator": estimator, "lambda": model.penalty, "questions": len(panel.questions),
            "rows": len(panel.questions) * len(panel.budgets), "realizations": panel.runs.shape[3],
        },
    )  # fmt: skip
