"""The least that a lexical store can be: bm25s over texts, and one FTS5 table. No dates, no corrections, no budget."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rivals.speed.stores import TOP, Found, Note

WORD = re.compile(r"\w+")


class Bm25s:
    """bm25s as its README shows it; a user's mask is made once."""

    batch = 20_000

    def __init__(self, folder: Path, encode: Any) -> None:
        import bm25s
        import Stemmer

        self.bm25s, self.stemmer = bm25s, Stemmer.Stemmer("english")
        self.kept: list[Found] = []

    def add(self, notes: Sequence[Note]) -> None:
        self.kept += [Found(note["user"], note["text"]) for note in notes]

    def finish(self) -> None:
        self.index, self.masks = self.bm25s.BM25(), dict[str, NDArray[np.int64]]()
        self.index.index(self._words([each.text for each in self.kept]), show_progress=False)

    def add_one(self, note: Note) -> None:
        self.add([note])
        self.finish()

    def search(self, query: str, user: str) -> Sequence[Found]:
        if user not in self.masks:
            self.masks[user] = np.array([each.user == user for each in self.kept], np.int64)
        places, scores = self.index.retrieve(
            self._words([query]), k=TOP, weight_mask=self.masks[user], show_progress=False
        )
        return [self.kept[place] for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    def _words(self, texts: list[str]) -> Any:
        return self.bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer, show_progress=False)

    def close(self) -> None:
        """Nothing is held."""


class Fts5:
    """One table, porter stemming, the best by bm25() among the matches of any word."""

    batch = 20_000

    def __init__(self, folder: Path, encode: Any) -> None:
        self.connection = sqlite3.connect(folder / "fts5.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -65536", "mmap_size = 1073741824"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.execute(
            "CREATE VIRTUAL TABLE note USING fts5 (user UNINDEXED, text, tokenize='porter unicode61')"
        )

    def add(self, notes: Sequence[Note]) -> None:
        self.connection.execute("BEGIN")
        rows = [(note["user"], note["text"]) for note in notes]
        self.connection.executemany("INSERT INTO note (user, text) VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.add([note])

    def search(self, query: str, user: str) -> Sequence[Found]:
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(WORD.findall(query)))
        found = "SELECT user, text FROM note WHERE note MATCH ? AND user = ? ORDER BY bm25(note) LIMIT ?"
        return [Found(*row) for row in self.connection.execute(found, (match, user, TOP))]

    def close(self) -> None:
        self.connection.close()
