"""Columns of several finders -> paired differences with intervals, and what was asked to be shown.

What is drawn is the question, 10,000 times; and, where the questions of a domain share several histories, also the
history, with all of its questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.budgets import BUDGETS
from bench.finding.older import COMMIT
from bench.finding.rivals import FILL
from bench.finding.scoring import CLUSTER, DEPTHS, at, read_column, within
from retcon.lab.stats import Estimate, intervals, replicates, resample
from retcon.note import EXTRACT

OURS, JOINED = "retcon", "retcon + MiniLM"
NESTED = ", nested"
PLAIN, BM25S, TANTIVY = "plain BM25", "bm25s", "tantivy"
MINILM, PASSAGES, FUSED = "MiniLM", "MiniLM, passages", "MiniLM + bm25s"
LEXICAL, DENSE = (PLAIN, BM25S, TANTIVY), (MINILM, PASSAGES, FUSED)
RECALL = "recall"
DRAWS, SEED = 10_000, 16
HELD = (5, 20)  # depths at which no rival may be ahead
NEARLY_ALL = 0.95  # a domain where the older code found more than that is not one to close a gap on

Scores = Mapping[str, NDArray[np.float64]]  # column -> a number a question


@dataclass(frozen=True, slots=True)
class Pair:
    """A column of ours less the rival's column that it is held against."""

    ours: str
    rival: str
    column: str
    other: str


def read_scores(domain: Mapping[str, Any]) -> dict[str, Scores]:
    """Finder -> its columns as numbers."""
    return {
        finder: {name: read_column(name, marks, domain["gold"]) for name, marks in columns.items()}
        for finder, columns in domain["finders"].items()
    }


def is_ours(finder: str) -> bool:
    return finder.startswith(OURS)


def list_pairs(scores: Mapping[str, Scores]) -> Iterator[Pair]:
    """Every column of ours that a rival has a counterpart of."""
    for ours in filter(is_ours, scores):
        for rival in (each for each in scores if not is_ours(each)):
            for column, other in _counterparts(rival):
                if column in scores[ours] and other in scores[rival]:
                    yield Pair(ours, rival, column, other)


def _counterparts(rival: str) -> Iterator[tuple[str, str]]:
    """A column of ours, and the rival's that says the same."""
    yield from ((name, name) for name in (*map(at, DEPTHS), CLUSTER))
    for way in (EXTRACT, RECALL):
        yield from ((within(way, b), within(way if rival == COMMIT else FILL, b)) for b in BUDGETS)


def differ(domain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every paired difference of a domain with its intervals, by question and by history."""
    scores = read_scores(domain)
    pairs = list(list_pairs(scores))
    if not pairs:
        return []
    each = np.stack([scores[p.ours][p.column] - scores[p.rival][p.other] for p in pairs], axis=1)
    by_question = intervals(each, resample(len(each), seed=SEED, draws=DRAWS))
    shared = list_histories(domain)
    by_history = (
        intervals(each, resample(len(each), seed=SEED, draws=DRAWS, clusters=shared)) if shared else by_question
    )
    return [
        {"ours": p.ours, "rival": p.rival, "column": p.column, "n": one.n, "mean": _short(one.mean)}
        | {"by_question": _ends(one)}
        | ({"by_history": _ends(two)} if shared else {})
        for p, one, two in zip(pairs, by_question, by_history, strict=True)
        if one.n
    ]


def list_histories(domain: Mapping[str, Any]) -> list[int]:
    """The history of each question; empty where there is one history, or one for each question."""
    sizes = domain["histories"]
    if len(sizes) == 1 or max(sizes) == 1:
        return []
    return [history for history, size in enumerate(sizes) for _ in range(size)]


def _ends(estimate: Estimate) -> list[float]:
    return [_short(estimate.low), _short(estimate.high)]


def _short(value: float) -> float:
    return round(value, 4)


# - what must be shown -


def find_below(differences: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Every difference at depth 5 or 20, or of Extract at a budget, whose interval by question lies below zero."""
    held = {*map(at, HELD), *(within(EXTRACT, budget) for budget in BUDGETS)}
    return [
        {"domain": domain, "goal": is_goal(row["ours"], row["rival"], row["column"])} | dict(row)
        for domain, rows in differences.items()
        for row in rows
        if row["column"] in held and row["by_question"][1] < 0
    ]


def is_goal(ours: str, rival: str, column: str) -> bool:
    """Whether ours was to be at least level: words alone with words alone, with MiniLM also with MiniLM alone.

    Survival was to be level with every rival's fill, with and without an embedder.
    """
    if rival == COMMIT or column.startswith(EXTRACT):
        return rival != COMMIT
    return rival in LEXICAL or (ours.startswith(JOINED) and rival in (MINILM, PASSAGES))


@dataclass(frozen=True, slots=True)
class Closed:
    """The share of what the older code misses at 20 that is found now: by domain, and over all of them."""

    finder: str
    missed: Mapping[str, float]  # by the older code, of the domains that count
    shares: Mapping[str, float]
    all: float
    low: float
    high: float


def close_gap(domains: Mapping[str, Mapping[str, Any]], finder: str) -> Closed | None:
    """What the finder closes; None where it or the older code was not measured."""
    gains, missed, drawn = {}, {}, []
    for name, domain in domains.items():
        if finder not in domain["finders"] or COMMIT not in domain["finders"]:
            continue
        scores = read_scores(domain)
        new, old = scores[finder][at(20)], scores[COMMIT][at(20)]
        if old.mean() < NEARLY_ALL:
            gains[name], missed[name] = float((new - old).mean()), float(1 - old.mean())
            both = np.stack([new - old, 1 - old], axis=1)
            drawn.append(replicates(both, resample(len(both), seed=SEED, draws=DRAWS)))
    if not gains:
        return None
    gained, open_before = np.sum(drawn, axis=0).T  # every domain has equal weight
    low, high = np.quantile(gained / open_before, (0.025, 0.975)).tolist()
    shares = {name: gains[name] / missed[name] for name in gains}
    return Closed(finder, missed, shares, sum(gains.values()) / sum(missed.values()), low, high)
