"""Every finder by its name, and every setting of ours: what a worker needs to measure a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from bench.finding import compare
from bench.finding.nested import Setting, joined_grid, lexical_grid
from bench.finding.older import COMMIT, Older
from bench.finding.ours import DEPTH, Ours
from bench.finding.rivals import Rival, join_ranks, search_bm25s, search_minilm, search_plain, search_tantivy
from bench.finding.scoring import Columns, Finder, count_found, group
from bench.finding.vectors import Vectors
from retcon import retrieve
from retcon.embedding import identify
from retcon.lab.data.question import BenchmarkQuestion
from retcon.lab.protocols import chain_turns
from retcon.note import Filter, Note, Scope
from retcon.store import Snapshot

Rank = Callable[[Snapshot, str, Setting], Sequence[int]]  # slots, best first


@lru_cache(maxsize=1)
def open_vectors(folder: Path) -> Vectors:
    """The vectors of the folder, read once a process."""
    return Vectors(folder)


def make_finder(name: str, notes: Sequence[Note], *, vectors: Path, older: Path | None) -> Finder:
    """The finder over the notes of one history."""
    if name == COMMIT:
        assert older is not None
        return Older(notes, older)
    if name == compare.OURS:
        return Ours(notes)
    if name == compare.JOINED:
        return Ours(notes, embedder=open_vectors(vectors), retriever="hybrid")
    return Rival(notes, SEARCHES[name](notes, vectors))


def _minilm(notes: Sequence[Note], vectors: Path, *, passages: bool) -> Any:
    return search_minilm(notes, open_vectors(vectors), passages=passages)


SEARCHES: Mapping[str, Callable[[Sequence[Note], Path], Any]] = {
    compare.PLAIN: lambda notes, _: search_plain(notes),
    compare.BM25S: lambda notes, _: search_bm25s(notes),
    compare.TANTIVY: lambda notes, _: search_tantivy(notes),
    compare.MINILM: partial(_minilm, passages=False),
    compare.PASSAGES: partial(_minilm, passages=True),
    compare.FUSED: lambda notes, vectors: join_ranks(
        search_bm25s(notes), search_minilm(notes, open_vectors(vectors), passages=False)
    ),
}


# - the settings -


def list_settings(kind: str) -> list[Setting]:
    """The grid of ours alone, or with MiniLM."""
    return lexical_grid() if kind == compare.OURS else joined_grid()


def measure_settings(questions: Sequence[BenchmarkQuestion], kind: str, vectors: Path) -> list[Columns]:
    """The columns of found notes of each setting, by calling the retriever itself: one store a history."""
    settings = list_settings(kind)
    out: list[dict[str, list[str]]] = [{} for _ in settings]
    for asked in group(questions):
        with _open_ranking(asked[0], kind, vectors) as (snapshot, rank):
            for question in asked:
                ranked = [rank(snapshot, question.text, setting) for setting in settings]
                ids = _read_ids(snapshot, ranked)
                for columns, slots in zip(out, ranked, strict=True):
                    for name, mark in count_found([ids[slot] for slot in slots], question).items():
                        columns.setdefault(name, []).append(mark)
    return [{name: "".join(marks) for name, marks in columns.items()} for columns in out]


def _read_ids(snapshot: Snapshot, ranked: Sequence[Sequence[int]]) -> dict[int, str]:
    slots = sorted({slot for each in ranked for slot in each})
    return {slot: note.id for slot, note in zip(slots, snapshot.fetch(slots), strict=True)}


@contextmanager
def _open_ranking(question: BenchmarkQuestion, kind: str, vectors: Path) -> Iterator[tuple[Snapshot, Rank]]:
    """A snapshot of the question's history, and what ranks its notes by a setting."""
    joined, notes = kind == compare.JOINED, list(chain_turns(question.history))
    ours = Ours(notes, embedder=open_vectors(vectors), retriever="hybrid") if joined else Ours(notes)
    if joined:
        ours.memory.search(question.text)  # every note gets its vectors
    with ours.memory.store.snapshot(Scope()) as snapshot:
        yield snapshot, _make_joined(ours, open_vectors(vectors)) if joined else _rank_lexical
    ours.close()


def _rank_lexical(snapshot: Snapshot, query: str, setting: Setting) -> Sequence[int]:
    return retrieve.bm25(snapshot, query, DEPTH, Filter(), settings=setting.steps).slots


def _make_joined(ours: Ours, embed: Vectors) -> Rank:
    """What ranks by words and meaning."""
    known = identify(ours.memory.store, embed)

    def rank(snapshot: Snapshot, query: str, setting: Setting) -> Sequence[int]:
        asking = retrieve.Asking(known, embed([query])[0])
        return retrieve.hybrid(snapshot, query, DEPTH, Filter(), asking, setting.steps).slots

    return rank
