"""Hits, a reranker -> the same hits, the best of them in the order in which they answer the query.

A reranker reads query and text together, which is better and slower than anything that looks at them apart, so it comes
last and sees few. Where it fails, or takes too long, the order before it stays, and the caller is told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from retcon import deadline
from retcon.errors import DeadlineError, RetconError, message_of
from retcon.model.rerank import TIMEOUT, Rerank
from retcon.note import Hit

DEPTH = 50  # hits that are ordered anew


@dataclass(frozen=True, slots=True)
class Reranked:
    """The hits, best first, and what went wrong, if anything."""

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()


def rerank_hits(rerank: Rerank, query: str, hits: Sequence[Hit]) -> Reranked:
    """The hits with the first of them ordered by the reranker. A place keeps its score: what fills up stays at 0."""
    first = [hit for hit in hits[:DEPTH] if hit.score > 0]
    if len(first) < 2:
        return Reranked(tuple(hits))
    try:
        with deadline.until(min(time.monotonic() + TIMEOUT, time.monotonic() + deadline.seconds_left())):
            scores = rerank(query, [text_of(hit) for hit in first])
    except DeadlineError:
        deadline.check()  # the caller's own time is over
        return Reranked(tuple(hits), (f"the reranker gave no scores within {TIMEOUT:g} s: the order before it stays",))
    except RetconError as error:
        return Reranked(tuple(hits), (f"the reranker failed, so the order before it stays: {message_of(error)}",))
    order = np.argsort(-scores, kind="stable").tolist()
    anew = [replace(first[old], rank=hit.rank, score=hit.score) for old, hit in zip(order, first, strict=True)]
    return Reranked((*anew, *hits[len(first) :]))


def text_of(hit: Hit) -> str:
    """What the reranker reads of a hit: who said it, and the passage that was found."""
    said = f"{hit.note.speaker}: " if hit.note.speaker else ""
    return said + (hit.note.text if hit.passage is None else hit.note.text[slice(*hit.passage)].strip())
