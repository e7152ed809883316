"""Other finders of notes: plain BM25, bm25s, tantivy, MiniLM alone and joined with bm25s by reciprocal rank.

Each ranks the notes of one history. Its text is its best notes as rendered, cut where the budget ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.finding.ours import Answer
from retcon.model import Embed
from retcon.note import Note
from retcon.pack import render
from retcon.passages import split
from retcon.retrieve import plain_scores
from retcon.tokens import counter, cut
from retcon.words import words

MOST = 100  # notes that a rival ranks
RRF = 60  # the usual constant of reciprocal rank fusion
FILL = "fill"

_PLAIN = re.compile(r"[^\W_]+")
Search = Callable[[str], list[int]]  # query -> places of the best notes, best first


class Rival:
    """The notes of a history behind a search."""

    ways: tuple[str, ...] = (FILL,)

    def __init__(self, notes: Sequence[Note], search: Search) -> None:
        self.notes, self.search, self.count = notes, search, counter(None)
        self.lines = [render(note) for note in notes]

    def find(self, query: str, budgets: Sequence[int]) -> Answer:
        """The ranking, and the best notes within each budget."""
        places = self.search(query)
        texts = [self._fill(places, budget) for budget in budgets]
        return Answer([self.notes[place].id for place in places], {FILL: texts})

    def _fill(self, places: Sequence[int], budget: int) -> str:
        taken: list[str] = []
        used = 0
        for place in places:
            taken.append(self.lines[place])
            used += self.count(self.lines[place])
            if used > 2 * budget:  # joined, lines may cost less than apart, but never half
                break
        return cut("\n".join(taken), budget, self.count)

    def close(self) -> None:
        """Nothing is open."""


def rank(scores: NDArray[Any]) -> list[int]:
    """Places of the best scores above zero; of equal ones the older note first."""
    order = np.argsort(-scores, kind="stable")[:MOST]
    return [place for place in order.tolist() if scores[place] > 0]


def search_plain(notes: Sequence[Note]) -> Search:
    """The paper's BM25, as the retriever `bm25-plain` scores, over the bare words of each note."""
    counted = [Counter(_PLAIN.findall(note.text.lower())) for note in notes]
    return lambda query: rank(plain_scores(counted, list(dict.fromkeys(_PLAIN.findall(query.lower())))))


def search_bm25s(notes: Sequence[Note]) -> Search:
    """bm25s as its readme shows it: English stop words out, PyStemmer."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def read(texts: list[str]) -> list[list[str]]:
        read_texts: list[list[str]] = bm25s.tokenize(
            texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False
        )
        return read_texts

    index = bm25s.BM25()
    index.index(read([render(note) for note in notes]), show_progress=False)
    return lambda query: rank(index.get_scores(terms)) if (terms := read([query])[0]) else []


def search_tantivy(notes: Sequence[Note]) -> Search:
    """tantivy with its English stemming, any of the query's words."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("place", stored=True)
    builder.add_text_field("text", stored=False, tokenizer_name="en_stem")
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=50_000_000, num_threads=1)
    for place, note in enumerate(notes):
        writer.add_document(tantivy.Document(place=place, text=render(note)))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[int]:
        asked = index.parse_query(" ".join(words(query)), ["text"])
        hits = searcher.search(asked, min(MOST, len(notes))).hits
        return [searcher.doc(address)["place"][0] for _, address in hits]

    return search


def search_minilm(notes: Sequence[Note], embed: Embed, *, passages: bool) -> Search:
    """The cosine of the query and the note, "speaker: text"; with passages, that of a long note's best passage."""
    texts, owner = [], []
    for place, note in enumerate(notes):
        spans = split(note.text) if passages else [(0, len(note.text))]
        texts += [embedded_text(note, note.text[slice(*span)]) for span in spans]
        owner += [place] * len(spans)
    matrix, owners = embed(texts), np.asarray(owner)

    def search(query: str) -> list[int]:
        best = np.full(len(notes), -1.0)
        np.maximum.at(best, owners, (matrix @ embed([query])[0]).astype(np.float64))
        return rank(best + 2)  # every note has a cosine: the least that it can be is still a rank

    return search


def embedded_text(note: Note, text: str) -> str:
    """What is embedded of a note."""
    return f"{note.speaker}: {text}" if note.speaker else text


def join_ranks(*searches: Search) -> Search:
    """Several rankings joined by the sum of 1 / (60 + rank)."""

    def search(query: str) -> list[int]:
        joined: dict[int, float] = {}
        for each in searches:
            for at, place in enumerate(each(query), 1):
                joined[place] = joined.get(place, 0.0) + 1 / (RRF + at)
        return sorted(joined, key=lambda place: (-joined[place], place))[:MOST]

    return search
