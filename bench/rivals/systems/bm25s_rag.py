"""Retrieval by bm25s, a turn a document, with the stemmer that its README shows."""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import TOP_K, Setup, lines
from retcon.note import Note


class Bm25sRag:
    """The best turns by BM25 (Lucene's form, k1 1.5, b .75: its defaults)."""

    def __init__(self) -> None:
        import bm25s
        import Stemmer

        self.bm25s, self.stemmer = bm25s, Stemmer.Stemmer("english")
        self.index, self.turns = bm25s.BM25(), list[str]()

    def add(self, history: Sequence[Note]) -> None:
        self.turns = lines(history)
        self.index.index(self._words(self.turns), show_progress=False)

    def context(self, question: str, budget: int) -> Sequence[str]:
        k = min(TOP_K, len(self.turns))
        found, _ = self.index.retrieve(self._words([question]), corpus=self.turns, k=k, show_progress=False)
        return [str(each) for each in found[0]]

    def _words(self, texts: Sequence[str]) -> object:
        return self.bm25s.tokenize(list(texts), stopwords="en", stemmer=self.stemmer, show_progress=False)


def open(name: str, setup: Setup) -> Bm25sRag:  # noqa: A001
    """An empty one."""
    return Bm25sRag()
