"""How much of what a question needs is found: ours and rivals, on all domains, in one run. No model writes or reads.

    python -m bench.finding [--limit N] [--only DOMAIN ...] [--out PATH]

For each question with known evidence: the share of its gold notes among the best 5, 10, 20 and 50; the share inside the
cluster that an action gets; and whether the words of its answer survive (60 % of them, `bench.extract`) at 32 to 1,024
tokens: for ours in what Extract shows, for a rival in its best notes, cut where the budget ends. Every finder gets the
same turns with the same heads (date, speaker). LoCoMo has been looked at since the first version; timelineqa sets
nothing. Differences are paired by question, with 95 % intervals from 10,000 draws.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench import grid, keep, out_parser
from bench.budgets import BUDGETS, domains
from bench.extract import SURVIVES, answer_words, survival
from bench.speed.rivals import Tantivy
from retcon import Memory
from retcon.lab.data.question import BenchmarkQuestion, answerable
from retcon.lab.protocols import chain_turns
from retcon.note import EXTRACT, Note
from retcon.pack import render
from retcon.tokens import counter, cut
from retcon.words import COMMON, stems

DEPTHS = (5, 10, 20, 50)
OURS = "retcon"


class Finder(Protocol):
    """A history that can be searched."""

    def rank(self, query: str) -> Sequence[str]:
        """Ids of the best notes, best first."""
        ...

    def text(self, query: str, budget: int) -> str:
        """What a reader would be given."""
        ...

    def cluster(self, query: str) -> Sequence[str] | None:
        """Ids of the notes that an action works on; None where there is no such thing."""
        ...


class Ours:
    """A memory as it comes, with the options of the row."""

    def __init__(self, notes: Sequence[Note], **options: Any) -> None:
        self.memory = Memory(":memory:", **options)
        self.memory.store.add(list(chain_turns(notes)))

    def rank(self, query: str) -> Sequence[str]:
        return [hit.id for hit in self.memory.search(query, top_k=max(DEPTHS))]

    def text(self, query: str, budget: int) -> str:
        return self.memory.recall(query, budget, action=EXTRACT).text

    def cluster(self, query: str) -> Sequence[str] | None:
        return [hit.id for hit in self.memory.recall(query, 0).cluster.hits]


@dataclass
class Filled:
    """A rival: its best notes, until the budget ends."""

    notes: Sequence[Note]
    search: Callable[[str, int], Sequence[int]]
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines, self.count = [render(note) for note in self.notes], counter(None)

    def rank(self, query: str) -> Sequence[str]:
        return [self.notes[i].id for i in self.search(query, max(DEPTHS))]

    def text(self, query: str, budget: int) -> str:
        return cut("\n".join(self.lines[i] for i in self.search(query, 20)), budget, self.count)

    def cluster(self, query: str) -> Sequence[str] | None:
        return None


def bm25s(notes: Sequence[Note]) -> Finder:
    """bm25s as its readme shows it: English stop words out, stemmed, over the rendered notes."""
    import bm25s as library

    index = library.BM25(k1=1.2, b=0.75, method="lucene")
    index.index([_telling(render(note)) for note in notes], show_progress=False)

    def search(query: str, k: int) -> Sequence[int]:
        found, scores = index.retrieve([_telling(query)], k=min(k, len(notes)), show_progress=False)
        return [int(i) for i, score in zip(found[0], scores[0], strict=True) if score > 0]

    return Filled(notes, search)


def _telling(text: str) -> list[str]:
    return [term for term in stems(text) if term not in COMMON] or ["?"]


def tantivy(notes: Sequence[Note]) -> Finder:
    """tantivy, English stemming, over the rendered notes."""
    folder = tempfile.TemporaryDirectory()
    index = Tantivy(Path(folder.name) / "index")
    index.build([render(note) for note in notes])

    def search(query: str, k: int, _keep: object = folder) -> Sequence[int]:
        return [address.doc for _, address in index.search(" ".join(stems(query)), k)]

    return Filled(notes, search)


FINDERS: Mapping[str, Callable[[Sequence[Note]], Finder]] = {
    OURS: Ours,
    "bm25-plain": lambda notes: Ours(notes, retriever="bm25-plain"),
    "bm25s": bm25s,
    "tantivy": tantivy,
}


# - scoring -


@dataclass(frozen=True, slots=True)
class Scores:
    """One row a question: found at each depth, inside the cluster, survived at each budget (nan: not asked)."""

    found: list[list[float]]
    clustered: list[float]
    survived: list[list[float]]


def measure(questions: Iterable[BenchmarkQuestion], make: Callable[[Sequence[Note]], Finder]) -> Scores:
    """The scores of one finder on the questions of a domain."""
    out = Scores([], [], [])
    for finder, question in _open(questions, make):
        gold = {note.id for note in question.evidence}
        ranked = finder.rank(question.text)
        out.found.append([len(gold.intersection(ranked[:depth])) / len(gold) for depth in DEPTHS])
        inside = finder.cluster(question.text)
        out.clustered.append(float("nan") if inside is None else len(gold.intersection(inside)) / len(gold))
        out.survived.append(_survive(finder, question))
    return out


def _survive(finder: Finder, question: BenchmarkQuestion) -> list[float]:
    words = answer_words(question.text, question.answer)
    if not words or survival(words, "\n".join(map(render, question.evidence))) < SURVIVES:
        return [float("nan")] * len(BUDGETS)
    return [float(survival(words, finder.text(question.text, budget)) >= SURVIVES) for budget in BUDGETS]


def _open(
    questions: Iterable[BenchmarkQuestion], make: Callable[[Sequence[Note]], Finder]
) -> Iterator[tuple[Finder, BenchmarkQuestion]]:
    for _, group in groupby(questions, key=lambda question: id(question.history)):
        asked = list(group)
        finder = make(asked[0].history)
        yield from ((finder, question) for question in asked)


def interval(ours: Sequence[float], theirs: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> str:
    """The mean difference in pairs with its 95 % interval; questions that one side lacks are left out."""
    each = np.asarray(ours) - np.asarray(theirs)
    each = each[~np.isnan(each)]
    if not len(each):
        return ""
    rng = np.random.default_rng(seed)
    means = np.concatenate([each[rng.integers(0, len(each), (500, len(each)))].mean(1) for _ in range(draws // 500)])
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{each.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def table(found: Mapping[str, Mapping[str, Scores]]) -> str:
    """A block of rows a domain: ours, each rival, and how far ours is from it."""
    head = ["", *(f"@{depth}" for depth in DEPTHS), "cluster", *(f"{budget} tokens" for budget in BUDGETS)]
    rows: list[list[str]] = []
    for domain, by_finder in found.items():
        rows.append([f"*{domain}, {len(by_finder[OURS].found):,} questions*"])
        columns = {name: _columns(scores) for name, scores in by_finder.items()}
        for name, each in columns.items():
            rows.append([name, *("" if np.isnan(column).all() else f"{np.nanmean(column):.3f}" for column in each)])
        for name, each in columns.items():
            if name != OURS:
                pairs = zip(columns[OURS], each, strict=True)
                rows.append([f"{OURS} - {name}", *(interval(a, b) for a, b in pairs)])
    return grid(head, rows)


def _columns(scores: Scores) -> list[list[float]]:
    found, survived = zip(*scores.found, strict=True), zip(*scores.survived, strict=True)
    return [*map(list, found), scores.clustered, *map(list, survived)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = out_parser(__doc__)
    parser.add_argument("--limit", type=int, help="questions a domain, spread over all of them")
    parser.add_argument("--only", choices=list(domains()), nargs="+", help="these domains alone")
    args = parser.parse_args(argv)
    found: dict[str, dict[str, Scores]] = {}
    for domain, load in domains().items():
        if args.only and domain not in args.only:
            continue
        questions = answerable(load())
        step = max(1, -(-len(questions) // args.limit)) if args.limit else 1
        found[domain] = {name: measure(questions[::step], make) for name, make in FINDERS.items()}
        print(domain, len(questions[::step]), file=sys.stderr, flush=True)
    print(table(found))
    plain = {d: {n: _columns(s) for n, s in each.items()} for d, each in found.items()}
    keep({"depths": DEPTHS, "budgets": BUDGETS, "scores": plain}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
