"""The measurements, each in a process of its own: arguments come in as JSON, the result goes out as JSON.

echo '{"count": 5}' | python -m bench.speed.stages imports
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.speed.clocks import Timing, clock, read_anonymous, summarize_times, time_call
from bench.speed.corpus import Corpus, corpus, indexed_texts, with_context
from bench.speed.rivals import Bm25s, Fts5, RankBm25, Rival, Tantivy, TantivyAlone
from retcon import Memory, Scope, pack
from retcon.candidates import gather
from retcon.features import features, query_type
from retcon.note import Note
from retcon.operate import ACTIONS, operate
from retcon.retrieve import K1, B, best
from retcon.store import Snapshot
from retcon.store.sqlite import SqliteStore
from retcon.words import index_counts, query_terms, spoken_date, stems, term_key

TOP = 20
BUDGET = 256  # tokens of a recall
WARM = 5  # queries before the clock runs
PATIENCE = 40.0  # seconds that one rival's queries may take in all
RANK_BM25_MOST = 100_000  # notes up to which rank_bm25 answers within seconds
TEXTS_MOST = 100_000  # notes up to which the agreement is checked from the texts alone
FEW = 100  # notes of the small user
OURS, DEFAULT = "retcon", "retcon, function words left out"


Times = dict[str, list[Timing]]


# -- adding ----------------------------------------------------------------------------------------------------------


def store(path: str, size: int, seed: int) -> dict[str, Any]:
    """One bulk add of `size` notes of one user; making up the notes is not on the clock."""
    source = _Stopwatch(corpus(seed).notes(size))
    target = SqliteStore(path)
    span = time_call(target.add, source)
    target.close()
    megabytes = Path(path).stat().st_size / 1e6
    rate = _rate(size, Timing(span.wall - source.wall, span.cpu - source.cpu))
    return rate | {"file_mb": megabytes, "peak_rss_mb": _peak()}


def users(path: str, size: int, seed: int) -> dict[str, Any]:
    """The same for notes of many users, a hundred each, session after session."""
    notes = list(corpus(seed).notes(size))
    owners = [replace(note, user_id=f"u{number // 20 % (size // FEW)}") for number, note in enumerate(notes)]
    target = SqliteStore(path)
    rate = _rate(size, time_call(target.add, owners))
    target.close()
    return {"users": size // FEW} | rate


def single(path: str, seed: int, count: int) -> dict[str, Any]:
    """Notes added one by one to the store, each in a transaction of its own; it grows by them."""
    notes = list(corpus(seed).notes(2 * count + WARM, part=1))
    times: Times = {"Memory.add": [], "store.add": []}
    with Memory(path) as memory:
        for number, note in enumerate(notes):
            session, label = f"late-{number // 20}", {"speaker": note.speaker, "timestamp": note.timestamp}
            if number % 2:
                name, span = "Memory.add", time_call(memory.add, note.text, user_id="u", session=session, **label)
            else:
                fresh = replace(note, id=f"late-{number}", session=session)
                name, span = "store.add", time_call(memory.store.add, [fresh])
            if number >= WARM:
                times[name].append(span)
    return {name: summarize_times(found) for name, found in times.items()}


# -- retrieval beside rivals -----------------------------------------------------------------------------------------


def retrieval(path: str, folder: str, size: int, seed: int, queries: Sequence[str]) -> dict[str, Any]:
    """The top 20 by our index and by each rival's, query by query in turn; and whether ours is what BM25 calls for."""
    notes = list(corpus(seed).notes(size))
    target = SqliteStore(path)
    systems: dict[str, Callable[[str], Any]] = {
        OURS: lambda query: _retrieve(target, stems(query)),
        DEFAULT: lambda query: _retrieve(target, query_terms(query)),
    }
    builds, rivals = _build_rivals(notes, Path(folder))
    systems |= {rival.name: partial(_ask, rival) for rival in rivals}
    times = _in_turn(systems, queries)
    agreed = _agreement(target, notes, queries)
    late = list(indexed_texts(corpus(seed).notes(25, part=1)))
    adds = {rival.name: [time_call(rival.add, text) for text in late][WARM:] for rival in rivals if rival.one_more}
    return {
        "build": {name: _rate(size, span) for name, span in builds.items()},
        "retrieval": {name: summarize_times(found) for name, found in times.items()},
        "ratio": {name: _ratio(times[OURS], times[name]) for name in times if name != OURS},
        "agreement": agreed,
        "single_add": {name: summarize_times(found) for name, found in adds.items()},
        "peak_rss_mb": _peak(),
    }


def _build_rivals(notes: Sequence[Note], folder: Path) -> tuple[dict[str, Timing], list[Rival]]:
    spans: dict[str, Timing] = {}
    rivals: list[Rival] = []
    texts = list(indexed_texts(notes))
    kinds: list[Any] = [Tantivy, TantivyAlone, Fts5, Bm25s] + ([RankBm25] if len(notes) <= RANK_BM25_MOST else [])
    for kind in kinds:
        rival = kind(folder / kind.__name__)
        read = [note.text for note in notes] if kind is TantivyAlone else texts
        spans[rival.name] = time_call(rival.build, read)
        rivals.append(rival)
    return spans, rivals


def _ask(rival: Rival, query: str) -> Sequence[Any]:
    return rival.search(query, TOP)


def _retrieve(target: SqliteStore, terms: Sequence[str]) -> list[int]:
    with target.snapshot(Scope("u")) as snapshot:
        return best(snapshot, dict.fromkeys(terms, 1.0), TOP).slots


def _in_turn(systems: dict[str, Callable[[str], Any]], queries: Sequence[str]) -> Times:
    """Seconds of each system for each query. One that has used up its patience is not asked again."""
    times: Times = {name: [] for name in systems}
    names = list(systems)
    warm = queries[-WARM:]
    for number, query in enumerate([*warm, *queries]):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:  # whoever comes first finds the coldest caches
            if sum(span.wall for span in times[name]) < PATIENCE:
                span = time_call(systems[name], query)
                if number >= len(warm):
                    times[name].append(span)
    return times


# -- agreement with BM25 over every note -----------------------------------------------------------------------------


def _agreement(target: SqliteStore, notes: Sequence[Note], queries: Sequence[str]) -> dict[str, Any]:
    """Share of our top 20 that scoring every note also puts there; notes that tie with the last one count."""
    from_texts = len(notes) <= TEXTS_MOST
    scan = _text_scan(notes) if from_texts else None
    shares = []
    for query in queries:
        terms = list(dict.fromkeys(stems(query)))
        with target.snapshot(Scope("u")) as snapshot:
            scores = scan(terms) if scan else _posting_scan(snapshot, terms)
            found = best(snapshot, dict.fromkeys(terms, 1.0), TOP).slots
        wanted = min(TOP, int((scores > 0).sum()))
        last = np.sort(scores)[-wanted] if wanted else 0.0
        right = sum(scores[slot] > last - 1e-6 for slot in set(found))
        shares.append(right / wanted if wanted and len(found) == wanted else float(len(found) == wanted))
    return {
        "from": "the texts" if from_texts else "the posting lists",
        "mean": float(np.mean(shares)),
        "least": min(shares),
    }


def _bm25(tf: NDArray[np.float64], length: NDArray[np.float64], size: int, mean: float) -> NDArray[np.float64]:
    """What a term adds to the notes that hold it, as written in the literature."""
    idf = np.log(1 + (size - len(tf) + 0.5) / (len(tf) + 0.5))
    gains: NDArray[np.float64] = idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / mean))
    return gains


def _text_scan(notes: Sequence[Note]) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """BM25 of every note from the notes' words, without our index."""
    entries: dict[str, tuple[list[int], list[int]]] = {}
    lengths = np.zeros(len(notes))
    for number, (note, context) in enumerate(with_context(notes)):
        counts = index_counts(f"{note.speaker} {note.text} {spoken_date(note.timestamp)}", context)
        lengths[number] = sum(counts.values())
        for term, count in counts.items():
            where, many = entries.setdefault(term, ([], []))
            where.append(number)
            many.append(count)

    def scan(terms: Sequence[str]) -> NDArray[np.float64]:
        scores = np.zeros(len(notes))
        for term in terms:
            where, many = entries.get(term, ([], []))
            at = np.array(where, np.int64)
            scores[at] += _bm25(np.array(many, float), lengths[at], len(notes), float(lengths.mean()))
        return scores

    return scan


def _posting_scan(snapshot: Snapshot, terms: Sequence[str]) -> NDArray[np.float64]:
    """BM25 of every note from all entries of the query's posting lists."""
    scores = np.zeros(snapshot.slots)
    for key in snapshot.terms([term_key(term) for term in terms]):
        listed = snapshot.postings(key)
        gains = _bm25(listed.counts.astype(float), listed.lengths.astype(float), snapshot.notes, snapshot.mean_length)
        scores[listed.slots] += gains
    return scores


# -- recall ----------------------------------------------------------------------------------------------------------


def recall(path: str, queries: Sequence[str]) -> dict[str, Any]:
    """`Memory.search` and `Memory.recall` in turn, and the parts of a recall by themselves."""
    with Memory(path) as memory:
        systems: dict[str, Callable[[str], Any]] = {
            "search": partial(memory.search, user_id="u"),
            "recall": partial(memory.recall, user_id="u", budget=BUDGET),
        }
        times = _in_turn(systems, queries)
        parts = [_parts(memory, query) for query in queries]
    return {
        **{name: summarize_times(found) for name, found in times.items()},
        "ratio": _ratio(times["recall"], times["search"]),
        "parts": {name: summarize_times([part[name] for part in parts]) for name in parts[0]},
        "peak_rss_mb": _peak(),
        "anonymous_mb": read_anonymous(),
    }


def _parts(memory: Memory, query: str) -> dict[str, Timing]:
    """Seconds of each step that recall takes after its search."""
    hits = memory.search(query, user_id="u")
    found, counted = clock(lambda: gather(query, hits, count=memory.count, cap=memory.cap))
    vectors, embedded = clock(lambda: memory.embedder([note.text for note in found.notes]))
    x, described = clock(
        lambda: features(
            budget=BUDGET,
            costs=found.costs,
            fit=pack.fit_fraction(found, BUDGET, count=memory.count, costs=found.costs),
            sessions=[note.session for note in found.notes],
            vectors=vectors,
            types=query_type(query),
        )
    )
    decision, routed = clock(lambda: memory.router.decide(x, budget=BUDGET, available=ACTIONS))
    _, written = clock(lambda: operate(decision.action, found, BUDGET, count=memory.count))
    return {
        "count tokens of candidates": counted, "embed candidates": embedded, "features": described, "route": routed,
        "features and route": _sum(described, routed), "the same with embedding": _sum(embedded, described, routed),
        "write the text": written,
    }  # fmt: skip


def small(path: str, own: str, seed: int, count: int) -> dict[str, Any]:
    """A user with 100 notes among everybody else's, against the same notes in a file of their own."""
    notes = list(corpus(seed).notes(FEW, user_id="small", part=2))
    queries = corpus(seed).queries([note.text for note in notes], count)
    with Memory(path) as crowded, Memory(own) as alone:
        for memory in (crowded, alone):
            memory.store.add(notes)
        systems: dict[str, Callable[[str], Any]] = {}
        for name, memory in (("crowded", crowded), ("alone", alone)):
            systems[f"search {name}"] = partial(memory.search, user_id="small")
            systems[f"recall {name}"] = partial(memory.recall, user_id="small", budget=BUDGET)
        for query in queries:
            assert crowded.search(query, user_id="small") == alone.search(query, user_id="small"), query
        times = _in_turn(systems, queries)
    return {name: summarize_times(found) for name, found in times.items()} | {
        "ratio": {verb: _ratio(times[f"{verb} crowded"], times[f"{verb} alone"]) for verb in ("search", "recall")}
    }


# -- import ----------------------------------------------------------------------------------------------------------


def imports(count: int) -> dict[str, Any]:
    """Seconds that an import takes in a fresh process, retcon and numpy in turn."""
    clock = "(time.perf_counter(), time.process_time())"
    code = f"import time; a = {clock}; import {{}}; b = {clock}; print(b[0] - a[0], b[1] - a[1])"
    times: Times = {"retcon": [], "numpy": []}
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for number in range(count + 1):
        for name, found in times.items():
            run = [sys.executable, "-c", code.format(name)]
            out = subprocess.run(run, capture_output=True, text=True, check=True, env=compiled)
            if number:  # the first start reads the files from the disk, and compiles what has changed
                found.append(Timing(*map(float, out.stdout.split())))
    least = {name: min(span.cpu for span in found) for name, found in times.items()}
    return {name: {"best_cpu_ms": least[name] * 1e3, **summarize_times(found)} for name, found in times.items()} | {
        "ratio": _ratio(times["retcon"], times["numpy"]) | {"of_best_cpu": least["retcon"] / least["numpy"]}
    }


# -- clocks ----------------------------------------------------------------------------------------------------------


class _Stopwatch:
    """An iterable that keeps the time its items took to make."""

    def __init__(self, items: Iterable[Note]) -> None:
        self._items = iter(items)
        self.wall = self.cpu = 0.0

    def __iter__(self) -> Iterator[Note]:
        while True:
            item, span = clock(next, self._items, None)
            self.wall, self.cpu = self.wall + span.wall, self.cpu + span.cpu
            if item is None:
                return
            yield item


def _sum(*spans: Timing) -> Timing:
    return Timing(sum(span.wall for span in spans), sum(span.cpu for span in spans))


def _rate(notes: int, span: Timing) -> dict[str, float]:
    return {"seconds": span.wall, "notes_per_s": notes / span.wall, "notes_per_cpu_s": notes / span.cpu}


def _ratio(ours: Sequence[Timing], theirs: Sequence[Timing]) -> dict[str, float]:
    """Our time over theirs on the queries that both were asked: of the medians, and the median of the ratios."""
    both = min(len(ours), len(theirs))
    a, b = np.array(ours[:both]), np.array(theirs[:both])
    of_p50, of_cpu = (np.median(a, axis=0) / np.median(b, axis=0)).tolist()
    return {"of_p50": of_p50, "of_cpu_p50": of_cpu, "median_cpu": float(np.median(a[:, 1] / b[:, 1]))}


def _peak() -> float:
    """Megabytes of memory at this process's highest; pages of the mapped file count while they are in use."""
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


STAGES: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function for function in (store, users, single, retrieval, recall, small, imports)
}


def queries_for(seed: int, count: int, size: int) -> list[str]:
    """The queries of a run: about notes among the first 1,000, so that every size is asked the same."""
    made: Corpus = corpus(seed)
    return made.queries([note.text for note in made.notes(min(size, 1_000))], count)


if __name__ == "__main__":
    print(json.dumps(STAGES[sys.argv[1]](**json.loads(sys.stdin.read()))))
