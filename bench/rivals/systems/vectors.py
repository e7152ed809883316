"""Texts by their nearness to a question: what the ideas of papers are built on here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from bench.rivals.base import TOP_K, lines
from bench.rivals.encoder import Encoder
from bench.rivals.endpoint import Endpoint
from retcon.note import Note

AT_ONCE = 24  # calls of one history


class Vectors:
    """Texts with their vectors; what is shown of one may differ from what it is found by."""

    def __init__(self, encode: Encoder) -> None:
        self.encode, self.texts = encode, list[str]()
        self.rows: NDArray[np.float32] = np.zeros((0, 1), np.float32)

    def add_turns(self, history: Sequence[Note]) -> None:
        """A text for every turn."""
        self.add(lines(history))

    def add(self, texts: Iterable[str], found_by: Sequence[str] | None = None) -> None:
        """These texts too."""
        new = list(texts)
        if new:
            rows = self.encode(list(found_by or new))
            self.rows = np.concatenate([self.rows, rows]) if len(self.texts) else rows
            self.texts += new

    def closeness(self, question: str) -> NDArray[np.float32]:
        """The cosine of each text to the question."""
        return np.asarray(self.rows @ self.encode([question])[0]) if self.texts else np.zeros(0, np.float32)

    def best(self, scores: NDArray[np.floating], k: int = TOP_K) -> list[int]:
        """Places of the highest scores, best first; of equals the earlier."""
        places: list[int] = np.argsort(-scores, kind="stable")[:k].tolist()
        return places

    def nearest(self, question: str, k: int = TOP_K) -> list[str]:
        """The nearest texts."""
        return [self.texts[place] for place in self.best(self.closeness(question), k)]


def ask_all(model: Endpoint, prompts: Sequence[str], *, max_tokens: int) -> list[str]:
    """What the model says to each, many at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda prompt: model.ask(prompt, max_tokens=max_tokens), prompts))


def scale(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """The values from 0 to 1; all 0 where they are equal."""
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    return (values - low) / (high - low) if high > low else np.zeros_like(values)
