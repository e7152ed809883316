"""What a function gave for the texts met lately, kept where the garbage collector does not look.

Each time that CPython's collector goes through all objects, it walks through every entry of an `lru_cache`, and of an
object whose class derives from `dict`: with the words of a large memory that takes 40 ms. A plain dict of texts and
numbers it passes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T", str, int)


class Memo(Generic[T]):
    """A function of one text that remembers what it gave; once that is `most` texts, it begins anew.

    What it gave for a text of more than `longest` characters it does not remember.
    """

    def __init__(self, function: Callable[[str], T], most: int, *, longest: float = math.inf) -> None:
        self.function: Callable[[str], T] = function
        self.most, self.longest = most, longest
        self.known: dict[str, T] = {}
        self._find: Callable[[str], T] = self.known.__getitem__

    def __call__(self, text: str) -> T:
        return self.known.get(text) or self._learn(text)

    def each(self, texts: Sequence[str]) -> list[T]:
        """What the function gives for each of the texts."""
        try:
            return list(map(self._find, texts))
        except KeyError:
            return [self.known.get(text) or self._learn(text) for text in texts]

    def _learn(self, text: str) -> T:
        found = self.function(text)
        if len(text) <= self.longest:
            if len(self.known) >= self.most:
                self.forget()
            self.known[text] = found
        return found

    def forget(self) -> None:
        """Remember nothing of what it gave so far."""
        self.known.clear()
