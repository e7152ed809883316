"""Other engines behind one face: build an index of texts, search it. Each is set up as it is fastest for one query.

A search ends with the places of the best texts, as it does for us when this is timed; no text is fetched.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retcon.retrieve import K1, B
from retcon.words import stems

WORD = re.compile(r"\w+")


class Rival(Protocol):
    """An index of texts. `one_more` is False where only a rebuild takes in another text."""

    name: str
    one_more: bool

    def build(self, texts: Sequence[str]) -> None:
        """Index the texts."""
        ...

    def search(self, query: str, top_k: int) -> Sequence[Any]:
        """Where the best texts are, best first."""
        ...

    def add(self, text: str) -> None:
        """Index one more text, so that the next search finds it."""
        ...


class _Rebuilt:
    """A rival that takes in a text only by indexing everything anew."""

    one_more = False

    def add(self, text: str) -> None:
        raise TypeError(f"{type(self).__name__} cannot take in one more text")


class Tantivy:
    """tantivy on disk, English stemming. Counting all matches is off, which lets it skip blocks (block-max WAND)."""

    name = "tantivy"
    one_more = True

    def __init__(self, folder: Path) -> None:
        import tantivy

        self._document = tantivy.Document
        folder.mkdir()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", stored=False, tokenizer_name="en_stem")
        self._index = tantivy.Index(builder.build(), path=str(folder))
        self._writer: Any = None

    def build(self, texts: Sequence[str]) -> None:
        writer = self._index.writer(256_000_000)
        for text in texts:
            writer.add_document(self._document(text=text))
        writer.commit()
        writer.wait_merging_threads()
        self._open()

    def search(self, query: str, top_k: int) -> Sequence[Any]:
        hits: Sequence[Any] = self._searcher.search(self._index.parse_query(query, ["text"]), top_k, count=False).hits
        return hits

    def add(self, text: str) -> None:
        if self._writer is None:
            self._writer = self._index.writer(64_000_000)
        self._writer.add_document(self._document(text=text))
        self._writer.commit()
        self._open()

    def _open(self) -> None:
        self._index.reload()
        self._searcher = self._index.searcher()


class TantivyAlone(Tantivy):
    """tantivy over the notes' own text: without the speaker, the date and the turn before, so about half the words."""

    name = "tantivy, own text"


class Fts5:
    """SQLite FTS5, porter stemming, ORDER BY bm25() over an OR of the words, in WAL mode as our own file is."""

    name = "fts5"
    one_more = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._connection = sqlite3.connect(folder / "fts5.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -65536", "mmap_size = 1073741824"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE VIRTUAL TABLE note USING fts5 (text, content='', tokenize='porter unicode61')")

    def build(self, texts: Sequence[str]) -> None:
        self._connection.execute("BEGIN")
        rows = ((place + 1, text) for place, text in enumerate(texts))
        self._connection.executemany("INSERT INTO note (rowid, text) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")
        self._size = len(texts)

    def search(self, query: str, top_k: int) -> Sequence[Any]:
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(WORD.findall(query)))
        found = "SELECT rowid FROM note WHERE note MATCH ? ORDER BY bm25(note) LIMIT ?"
        return [row[0] - 1 for row in self._connection.execute(found, (match, top_k))]

    def add(self, text: str) -> None:
        self._size += 1
        self._connection.execute("INSERT INTO note (rowid, text) VALUES (?, ?)", (self._size, text))


class Bm25s(_Rebuilt):
    """bm25s with our k1, b and stemmer; its numpy backend, scores computed at indexing time."""

    name = "bm25s"

    def __init__(self, folder: Path) -> None:
        import bm25s
        import Stemmer

        self._bm25s, self._stemmer = bm25s, Stemmer.Stemmer("english")
        self._index = bm25s.BM25(k1=K1, b=B)

    def build(self, texts: Sequence[str]) -> None:
        self._index.index(self._tokens(list(texts)), show_progress=False)

    def search(self, query: str, top_k: int) -> Sequence[Any]:
        found = self._index.retrieve(
            [list(dict.fromkeys(stems(query)))], k=top_k, show_progress=False, return_as="documents"
        )
        places: list[int] = np.asarray(found)[0].tolist()
        return places

    def _tokens(self, texts: list[str]) -> Any:
        return self._bm25s.tokenize(
            texts, token_pattern=r"(?u)\b\w+\b", stopwords=[], stemmer=self._stemmer, show_progress=False
        )


class RankBm25(_Rebuilt):
    """rank_bm25's BM25Okapi on stemmed words: every text scored in Python for every query."""

    name = "rank_bm25"

    def __init__(self, folder: Path) -> None:
        import rank_bm25

        self._make = rank_bm25.BM25Okapi

    def build(self, texts: Sequence[str]) -> None:
        self._index = self._make([stems(text) for text in texts], k1=K1, b=B)

    def search(self, query: str, top_k: int) -> Sequence[Any]:
        scores = self._index.get_scores(list(dict.fromkeys(stems(query))))
        places: list[int] = np.argsort(-scores)[:top_k].tolist()
        return places
