"""Questions with known types -> the query-type model, and probabilities that an honest experiment may train on.

The model is multinomial logistic regression on yes/no cues: mean log-loss + penalty/2 |W|^2, intercepts free.
Publishers mean different things by the same type and mix the types differently, so questions from other sources may
have intercepts of their own: what they teach is which cue goes with which type among them, not how common a type is.
Serving (`retcon.features.query_type`) reads finished weights and never loads this file. A router must not be trained on
what the model says of questions that it has learned by heart, so training questions get `out_of_fold` probabilities.

Wherever questions are asked for, their `cue_matrix` will do: computed once, it serves any number of splits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retcon.errors import InputError
from retcon.features import TYPES, QueryTypes, cue_pattern, cue_text

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Hits = NDArray[np.bool_]  # [questions, cues]

# What a person asking that kind of question tends to write; whole, common words, "|" between alternatives.
CUES = {
    "how many": "how many",
    "how much": "how much",
    "how long": "how (?:long|old|soon|far)",
    "how many days": "how many (?:days|weeks|months|years)",
    "unit of time": "days?|weeks?|months?|years?|nights?|hours?",
    "asks when": "ago|passed|elapsed|between|since|when (?:did|do|does|was|were|is|are|will)|what (?:date|month|year)",
    "around an event": "before|after|while|during|when (?:i|my|we|he|she|they)",
    "order": "first|second|order|earlier|later|earliest",
    "recent span": r"yesterday|(?:last|past) (?:(?:few|two|three|\d+) )?(?:days?|weeks?|months?|years?|weekend|\w+day)",
    "last": "last",
    "this span": "this (?:week|month|year|spring|summer|autumn|fall|winter|season)",
    "until": "until|till|by when|due|deadline|next",
    "a month": "january|february|march|april|may|june|july|august|september|october|november|december",
    "a year": r"(?:19|20)\d\d",
    "from one to another": "from (?:.* )?to",
    "one of two": "(?:which|who) (?:.* )?or",
    "total": "total|altogether|combined|in all|overall|sum|average|across",
    "compare": "difference|compared|than|percentage|most(?! recent)|least|each|both|together|in common",
    "different": "different|various|types of|kinds of",
    "all of them": "all|every|everything|everyone|list|overview|whole|which of",
    "several": r"(?:which|what) \w+s (?:have|has|do|does|did|are|were)",
    "money": "spend|spent|costs?|saved?|earn(?:ed)?|raised?|worth|price",
    "did": "did",
    "was": "was|were|had",
    "is": "is|are|am|what s|who s|where s",
    "does": "do|does",
    "has": "have|has|been",
    "will": "will|would|going to",
    "state": "(?:have|has) (?:i|my|we|he|she|they)|(?:do|am) i|(?:is|are) my",
    "latest": "current|currently|now|latest|recent|recently|so far|still|these days|nowadays|at the moment|at present|"
    "presently|today|yet|any ?more|newest|updated",
    "changed": "previous|previously|former|formerly|initially|used? to|switch(?:ed)?|changed?|new|in the end|moved",
    "habit": "how (?:often|frequently)|usually|every|daily|weekly|what (?:time|day) (?:.* )?do i",
    "you": "you|your",
    "earlier talk": "remind me|our (?:previous|last|earlier)|conversation|chat|you (?:told|said|mentioned)",
    "advice": "recommend|suggest|suggestions?|recommendations?|tips?|advice|ideas?|should i",
    "a name": "name|called|what (?:colou?r|breed|kind|type|brand)",
    "asks who or where": "who|whose|whom|where",
    "asks what": "what|which",
    "asks why or how": "why|how|reason",
    "i": "i|my|me|mine",
    "we": "we|our|us",
    "they": "he|she|his|her|him|they|their|them",
}
PATTERNS = tuple(cue_pattern(cue) for cue in CUES.values())
PENALTIES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)  # strongest first: each fit starts from the one before it
_FREE = 1e-8  # penalty of the intercepts; only keeps that of a type without questions finite
_OWN = 1e-4  # and of those that a source has of its own
_STEPS, _HALVINGS, _CLOSE = 100, 30, 1e-8
# Adding a constant to all types changes no probability, and the penalty makes W's rows sum to 0: W = Z BASIS'.
_BASIS = np.array([[-1, -1, -1], [1, -1, -1], [0, 2, -1], [0, 0, 3]]) / np.sqrt([2, 6, 12])  # orthonormal columns
_PAIRS = (_BASIS[:, :, None] * _BASIS[:, None, :]).reshape(len(TYPES), -1)


def cue_matrix(queries: Sequence[str], patterns: Sequence[re.Pattern[str]] = PATTERNS) -> Hits:
    """True where the cue is in the question: one row a question, one column a cue."""
    texts = [cue_text(query) for query in queries]
    found = [[pattern.search(text) is not None for pattern in patterns] for text in texts]
    return np.array(found, np.bool_).reshape(len(texts), len(patterns))


def train(
    queries: Sequence[str] | Hits,
    types: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    penalty: float | None = None,
    folds: int = 3,
    seed: int = 0,
    weights: ArrayLike | None = None,
    sources: ArrayLike | None = None,
) -> QueryTypes:
    """The model learned from questions and the places of their types in `TYPES`.

    Without a penalty the one of `PENALTIES` with the lowest cross-validated log-loss is taken, questions of one group
    always in the same fold. The order of the questions changes nothing. `weights` says how much each question counts.
    Questions whose source is not "" share intercepts of their own; the others give the model its intercepts and its
    prior.
    """
    hits, truth = _check_training(queries, types)
    counts, names = _check_shares(len(truth), weights, sources)
    if penalty is None:
        penalty = best_penalty(hits, truth, groups=groups, folds=folds, seed=seed)
    elif not (np.isfinite(penalty) and penalty > 0):
        raise InputError(f"the penalty must be above 0, not {penalty}")
    (w,) = fit_path(hits, truth, (penalty,), weights=counts, sources=names)
    odds = w[:, 1:] - w[:, :1]  # against the first type
    own = np.flatnonzero(names == "")
    prior = np.bincount(truth[own], counts[own], minlength=len(TYPES)) / counts[own].sum()
    return QueryTypes(PATTERNS, tuple(map(tuple, odds[1:].tolist())), tuple(odds[0].tolist()), tuple(prior.tolist()))


def probabilities(model: QueryTypes, queries: Sequence[str] | Hits) -> Array:
    """Type probabilities [questions, types], as the model gives them one by one but not rounded."""
    hits = _hits(queries, model.patterns)
    moved = np.einsum("qc,ct->qt", hits.astype(np.float64), np.array(model.weights))  # row by row, whatever the others
    odds = np.array(model.intercepts) + moved
    guessed = np.exp(_log_softmax(np.column_stack((np.zeros(len(hits)), odds))))
    return np.where(hits.any(axis=1, keepdims=True), guessed, np.array(model.prior))


def out_of_fold(
    queries: Sequence[str] | Hits,
    types: ArrayLike,
    groups: ArrayLike,
    *,
    penalty: float | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Array:
    """Each question's probabilities [questions, types] from a model that saw no question of its group.

    The penalty, unless it is given, is chosen inside each training part too, so a row does not depend in any way on the
    types in its own group.
    """
    hits, truth = _check_training(queries, types)
    labels = _labels(groups, len(truth))
    fold, out = deal(labels, folds=folds, seed=seed), np.empty((len(truth), len(TYPES)))
    for f in np.unique(fold):
        seen = fold != f
        model = train(hits[seen], truth[seen], groups=labels[seen], penalty=penalty, seed=seed)
        out[~seen] = probabilities(model, hits[~seen])
    return out


def split_probabilities(
    queries: Sequence[str] | Hits,
    types: ArrayLike,
    groups: ArrayLike,
    *,
    training: ArrayLike,
    penalty: float | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Array:
    """Probabilities for an experiment with a training part (a mask): no row depends on its question's own type.

    Training questions get out-of-fold probabilities, all others those of one model of all training questions. The types
    of the others are not looked at.
    """
    seen, truth = np.asarray(training, np.bool_), np.asarray(types)
    hits = _hits(queries)
    labels = _labels(groups, len(hits))
    if not len(seen) == len(truth) == len(hits):
        raise InputError(f"{len(hits)} questions, {len(truth)} types and a mask of {len(seen)}")
    if len(both := np.intersect1d(labels[seen], labels[~seen])):
        raise InputError(f"{len(both)} groups are in the training part and outside it, {both[0]} for one")
    out = probabilities(train(hits[seen], truth[seen], groups=labels[seen], penalty=penalty, seed=seed), hits)
    out[seen] = out_of_fold(hits[seen], truth[seen], labels[seen], folds=folds, penalty=penalty, seed=seed)
    return out


def best_penalty(hits: Hits, types: Places, *, groups: ArrayLike | None = None, folds: int = 3, seed: int = 0) -> float:
    """The penalty with the lowest cross-validated log-loss on these questions; of equal ones the strongest."""
    labels = _by_content(hits, types) if groups is None else _labels(groups, len(types))
    fold, loss = deal(labels, folds=folds, seed=seed), np.zeros(len(PENALTIES))
    for f in np.unique(fold):
        seen, x = fold != f, _with_one(hits[fold == f])
        for i, w in enumerate(fit_path(hits[seen], types[seen], PENALTIES)):
            loss[i] -= _log_softmax(x @ w)[np.arange(len(x)), types[~seen]].sum()
    return PENALTIES[int(loss.argmin())]


def deal(groups: ArrayLike, *, folds: int, seed: int) -> Places:
    """A fold for each question: groups stay whole, and neither types nor the order of the questions play a part."""
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    if folds < 2 or len(names) < 2:
        raise InputError(f"cross-validation needs two folds and two groups at least, not {folds} and {len(names)}")
    return np.random.default_rng(seed).permutation(len(names))[group] % folds


def fit_path(
    hits: Hits,
    types: Places,
    penalties: Sequence[float],
    *,
    weights: ArrayLike | None = None,
    sources: ArrayLike | None = None,
) -> list[Array]:
    """Weights [1 + cues, types] for each penalty, the intercepts first, by Newton steps from the fit before."""
    share, names = _check_shares(len(types), weights, sources)
    others = np.unique(names[names != ""])
    marked = np.column_stack((hits, names[:, None] == others))
    rows, place = np.unique(marked, axis=0, return_inverse=True)  # alike questions are one row with counts
    counts = np.zeros((len(rows), len(TYPES)))
    np.add.at(counts, (place.ravel(), types), share / share.sum())
    x, out, cues = _with_one(rows), [], hits.shape[1]
    z = np.zeros((x.shape[1], len(TYPES) - 1))
    with _one_thread():
        for penalty in penalties:
            z = _newton(x, counts, z, np.array([_FREE] + [penalty] * cues + [_OWN] * len(others))[:, None])
            out.append((z @ _BASIS.T)[: 1 + cues])
    return out


def _one_thread() -> AbstractContextManager[Any]:
    """Keeps linear algebra in one thread: systems this small only lose by being divided, most of all on a busy machine.

    threadpoolctl comes with scikit-learn; without it the same numbers take longer.
    """
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    limit: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(limits=1, user_api="blas")
    return limit


def _newton(x: Array, counts: Array, z: Array, ridge: Array) -> Array:
    """The z [1 + cues, 3] that minimises the loss; steps are halved while they do not lower it."""
    p, k = z.shape
    share = counts.sum(axis=1)
    loss, q = _loss(x, counts, z, ridge)
    for _ in range(_STEPS):
        slope = x.T @ (share[:, None] * q - counts) @ _BASIS + ridge * z
        mean = q @ _BASIS
        bend = share[:, None] * (q @ _PAIRS - (mean[:, :, None] * mean[:, None, :]).reshape(-1, k * k))
        spread = (bend[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        hessian = (x.T @ spread).reshape(p, k, k, p).transpose(0, 1, 3, 2).reshape(p * k, p * k)
        step = np.linalg.solve(hessian + np.diag(np.repeat(ridge, k)), slope.ravel()).reshape(p, k)
        for scale in 0.5 ** np.arange(_HALVINGS):
            trial = z - scale * step
            lower, q = _loss(x, counts, trial, ridge)
            if lower <= loss + 1e-14:
                break
        z, loss = trial, lower
        if scale * np.abs(step).max() < _CLOSE:
            break
    return z


def _loss(x: Array, counts: Array, z: Array, ridge: Array) -> tuple[float, Array]:
    """Mean log-loss with its penalty, and the probabilities behind it."""
    log = _log_softmax(x @ z @ _BASIS.T)
    return float(-(counts * log).sum() + (ridge * z * z).sum() / 2), np.exp(log)


def _log_softmax(odds: Array) -> Array:
    lowered = odds - odds.max(axis=1, keepdims=True)
    return np.asarray(lowered - np.log(np.exp(lowered).sum(axis=1, keepdims=True)), np.float64)


def _with_one(hits: Hits) -> Array:
    return np.column_stack((np.ones(len(hits)), hits.astype(np.float64)))


def _by_content(hits: Hits, types: Places) -> Places:
    """A number for each question that does not depend on their order, but for questions alike in cues and type."""
    rank = np.empty(len(types), np.int64)
    rank[np.lexsort((types, *hits.T))] = np.arange(len(types))
    return rank


def _hits(queries: Sequence[str] | Hits, patterns: Sequence[re.Pattern[str]] = PATTERNS) -> Hits:
    """The cue matrix of questions, or the one that was handed in."""
    if not (isinstance(queries, np.ndarray) and queries.dtype == np.bool_):
        return cue_matrix(list(queries), patterns)
    if queries.ndim != 2 or queries.shape[1] != len(patterns):
        raise InputError(f"a cue matrix has {len(patterns)} columns, not the shape {queries.shape}")
    return queries


def _check_training(queries: Sequence[str] | Hits, types: ArrayLike) -> tuple[Hits, Places]:
    """Cues and types, checked."""
    hits, truth = _hits(queries), np.asarray(types)
    if len(hits) != len(truth) or not len(hits):
        raise InputError(f"{len(hits)} questions and {len(truth)} types to learn from")
    if truth.dtype.kind not in "iu" or truth.min() < 0 or truth.max() >= len(TYPES):
        raise InputError(f"types are whole numbers from 0 to {len(TYPES) - 1}, places in {', '.join(TYPES)}")
    return hits, truth.astype(np.int64)


def _check_shares(n: int, weights: ArrayLike | None, sources: ArrayLike | None) -> tuple[Array, NDArray[np.str_]]:
    """How much each question counts, and where it is from, checked."""
    share = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    names = np.full(n, "") if sources is None else np.asarray(sources, np.str_)
    if share.shape != (n,) or names.shape != (n,):
        raise InputError(f"{n} questions, weights of shape {share.shape} and sources of shape {names.shape}")
    if not (np.isfinite(share).all() and (share > 0).all()):
        raise InputError("the weight of a question must be above 0")
    if not (names == "").any():
        raise InputError('no question has the source "", whose mix of types the model takes')
    return share, names


def _labels(groups: ArrayLike, n: int) -> NDArray[np.generic]:
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(f"{n} questions and groups of shape {labels.shape}")
    return labels
