"""Query, candidate notes, budget -> the eleven numbers a router sees, all known before anything is generated.

They come from the query and the retrieved candidates alone; nothing here knows a right answer. The paper's one-hot
query type is unknown at query time, so a small classifier over readable cues (`querytype.json`) gives probabilities.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError, quote
from retcon.words import words

TYPES = ("single_session", "multi_session", "temporal", "knowledge_update")
SPREAD = ("inconsistency", "similarity")  # of the notes' embeddings
FEATURES = ("budget", "notes", "pressure", "fit", "sessions", *SPREAD, *TYPES)
PLACES = {name: place for place, name in enumerate(FEATURES)}  # in a feature vector
BUDGET_UNIT = 512  # the paper's scale for the budget feature
_MOST = 1 << 53  # a budget past it is no number of tokens, and floats stop being exact
_GAP = "(?:.* )?"  # in a cue: any words, or none
_READ = 1000  # characters of a query that the type classifier reads


def features(
    *,
    budget: int,
    costs: Sequence[int],
    fit: float,
    sessions: Sequence[str | None],
    vectors: NDArray[np.floating],
    types: Sequence[float],
) -> NDArray[np.float64]:
    """The eleven features in the order of `FEATURES`; `costs`, `sessions` and `vectors` have one entry a note."""
    found = measure(budget=budget, costs=costs, fit=fit, sessions=sessions, vectors=vectors, types=types)
    return np.array([found[name] for name in FEATURES], np.float64)


def measure(
    *,
    budget: int,
    costs: Sequence[int],
    fit: float,
    sessions: Sequence[str | None],
    vectors: NDArray[np.floating] | None = None,
    types: Sequence[float] | None = None,
) -> dict[str, float]:
    """The features by name, without those of vectors and of the query's type where these are not given."""
    if budget < 0:
        raise InputError(f"the budget must be 0 or more, not {quote(budget)}")
    if not len(costs) == len(sessions) == (len(costs) if vectors is None else len(vectors)):
        many = "no" if vectors is None else len(vectors)
        raise InputError(f"{len(costs)} costs, {len(sessions)} sessions and {many} vectors for one cluster")
    if types is not None and len(types) != len(TYPES):
        raise InputError(f"{len(types)} query type probabilities, {len(TYPES)} are needed")
    budget = min(budget, _MOST)
    found = {
        "budget": budget / BUDGET_UNIT,
        "notes": float(len(costs)),
        "pressure": sum(costs) / max(budget, 1),  # at budget 0 it is the cost itself: finite, and monotone in B
        "fit": fit,
        "sessions": float(len(set(sessions))),  # notes without a session share one
    }
    if vectors is not None:
        found |= zip(SPREAD, spread(vectors), strict=True)
    if types is not None:
        found |= zip(TYPES, types, strict=True)
    return found


def spread(vectors: NDArray[np.floating]) -> tuple[float, float]:
    """Mean squared distance of the rows from their mean, and mean pairwise cosine (1 for fewer than two rows).

    With m the mean of n unit rows: distance = 1 - |m|^2, and the cosines of all pairs sum to (n^2 |m|^2 - n) / 2. Rows
    are scaled to length 1 first; a zero row stays, at cosine 0 to every other.
    """
    n = len(vectors)
    if n == 0:
        return 0.0, 1.0
    rows = np.asarray(vectors, np.float64)
    squares = (rows * rows).sum(axis=1)
    if not np.isfinite(squares).all():
        raise InputError("the embedder gave numbers that are not finite")
    present = squares > 0
    rows = rows / np.sqrt(np.where(present, squares, 1.0))[:, None]
    mean = rows.sum(axis=0) / n
    length, share = float((mean * mean).sum()), float(present.sum()) / n  # |m|^2 and mean |v|^2
    distance = max(share - length, 0.0)
    return distance, 1.0 if n == 1 else min(max((n * length - share) / (n - 1), -1.0), 1.0)


@dataclass(frozen=True, slots=True)
class QueryTypes:
    """A multinomial logistic model: each cue found in the query moves the log-odds of a type against the first.

    A text without any cue says nothing about its type, and gets the prior.
    """

    patterns: tuple[re.Pattern[str], ...]
    weights: tuple[tuple[float, ...], ...]  # one row a cue, one column a type after the first
    intercepts: tuple[float, ...]
    prior: tuple[float, ...]  # one a type

    def __call__(self, query: str) -> tuple[float, float, float, float]:
        text = cue_text(query)
        found = [row for pattern, row in zip(self.patterns, self.weights, strict=True) if pattern.search(text)]
        single, multi, temporal, update = self._guess(found) if found else self.prior
        return single, multi, temporal, update

    def _guess(self, found: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
        odds = [math.fsum(column) for column in zip(self.intercepts, *found, strict=True)]
        top = max(0.0, *odds)
        lifted = [math.exp(-top), *(math.exp(o - top) for o in odds)]
        total = math.fsum(lifted)
        return tuple(round(value / total, 6) for value in lifted)  # alike on every libm


def query_type(query: str) -> tuple[float, float, float, float]:
    """Probabilities that the query is single-session, multi-session, temporal, knowledge-update.

    They come from how the query is put: nonsense, and any text without a cue in it, gets the prior.
    """
    return _query_types()(query)


def cue_text(query: str) -> str:
    """The words of a query between single spaces, one at each end: what cues are looked for in."""
    return f" {' '.join(words(query[:_READ]))} "


def cue_pattern(cue: str) -> re.Pattern[str]:
    """A cue as a pattern of whole words."""
    choices = "|".join(map(_linear, _choices(cue)))
    return re.compile(f" (?:{choices}) ")  # the leading space lets the search skip from word to word


def _linear(choice: str) -> str:
    """A choice that has words between its two ends, looked for once, from its first beginning: a later one has no other
    end after it."""
    first, gap, last = choice.partition(_GAP)
    return rf"(?<=\A )(?>(?:.*? )??{first}){gap}{last}" if gap else choice


def _choices(cue: str) -> list[str]:
    """The cue cut at each "|" outside of parentheses."""
    out, depth = [""], 0
    for c in cue:
        depth += (c == "(") - (c == ")")
        if c == "|" and not depth:
            out.append("")
        else:
            out[-1] += c
    return out


@lru_cache(maxsize=1)
def _query_types() -> QueryTypes:
    stored = json.loads(Path(__file__).with_name("querytype.json").read_text("utf-8"))
    cues = stored["cues"]
    return QueryTypes(
        tuple(cue_pattern(cue["words"]) for cue in cues),
        tuple(tuple(cue["weights"][name] for name in TYPES[1:]) for cue in cues),
        tuple(stored["intercepts"][name] for name in TYPES[1:]),
        tuple(stored["prior"][name] for name in TYPES),
    )
