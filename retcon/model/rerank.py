"""What a reranker is to retcon: a query and texts in, as many scores out. Only their order counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retcon.errors import MalformedReplyError

Score = Callable[[str, Sequence[str]], Any]  # query, texts -> a number each
TIMEOUT = 10.0  # seconds; an order that comes later helps nobody


@runtime_checkable
class Rerank(Protocol):
    """Scores texts by how well they answer a query; higher is better."""

    @property
    def name(self) -> str: ...

    def __call__(self, query: str, texts: Sequence[str], /) -> NDArray[np.float64]: ...


class FunctionRerank:
    """A function that scores texts, as a reranker: what it gives is checked. With `alone` one call goes at a time."""

    def __init__(self, name: str, score: Score, *, alone: bool = False) -> None:
        self.name, self._score = name, score
        self._turn = threading.Lock() if alone else nullcontext()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __call__(self, query: str, texts: Sequence[str], /) -> NDArray[np.float64]:
        with self._turn:
            return check_scores(self.name, self._score(query, texts), len(texts))


def check_scores(name: str, found: object, count: int) -> NDArray[np.float64]:
    """The scores as an array; an error where they are not so many finite numbers."""
    try:
        scores = np.asarray(found, np.float64)
    except (TypeError, ValueError):
        raise MalformedReplyError(f"{name}: gave {type(found).__name__}, which are no scores") from None
    if scores.shape != (count,) or not np.isfinite(scores).all():
        raise MalformedReplyError(f"{name}: gave scores of shape {scores.shape} for {count} texts, or not finite ones")
    return scores
