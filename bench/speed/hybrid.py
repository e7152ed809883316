"""Search by words and by meaning at once, beside LanceDB and a plain matrix product, in one run:

    python -m bench.speed.hybrid [--size 1000000] [--queries 100]

The notes are those of `corpus`. Their vectors are made up with the clustering of real ones: 384 numbers whose variances
fall as rank ** -0.8, around a common mean, in 8,000 topics of uneven size that lie in 500 themes; a query keeps less of
its topic than a note. The figures were fitted to all-MiniLM-L6-v2 on 82,441 passages of seven sets of chats and texts,
and on their questions. There a passage's closest other one has a cosine of .63, .78 and .94 (tenth, half, nine tenths),
its hundredth .36, .51 and .76, and a question's closest passage .59, .74 and .85. What the made ones have is in the
results. Writes hybrid.json into the folder that --out names. Needs the extra `index` and, for the rival, lancedb; about
8 KB of disk a note.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import ROOT
from bench.speed.corpus import corpus
from bench.speed.stages import queries_for
from retcon import Memory, Scope
from retcon.note import Filter
from retcon.store.vectors import unpack

DIM, TOPICS, THEMES = 384, 8_000, 500
SLOPE, MEAN = 0.8, 0.32
TOP, WARM = 100, 5
PACKAGES = ("numpy", "faiss-cpu", "lancedb")


class Made:
    """Made-up vectors: the same for the same texts."""

    name, dim = "made", DIM

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        spread = np.arange(1, DIM + 1) ** (-SLOPE / 2)
        self.spread = (spread / np.linalg.norm(spread)).astype(np.float32)
        self.mean = self._draw(chance, 1)[0] * MEAN / 1.0
        themes = self._draw(chance, THEMES)
        self.topics = 0.6 * themes[chance.integers(0, THEMES, TOPICS)] + 0.8 * self._draw(chance, TOPICS)
        sizes = 1 / np.arange(1, TOPICS + 1) ** 0.6
        self.ends = np.cumsum(sizes / sizes.sum())

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        return self._around(texts, low=0.7, high=0.95)

    def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """Vectors of questions: further from their topic."""
        return self._around(texts, low=0.6, high=0.85)

    def _around(self, texts: Sequence[str], low: float, high: float) -> NDArray[np.float32]:
        chance = np.random.default_rng(zlib.crc32("\n".join(texts).encode()))
        topics = np.minimum(np.searchsorted(self.ends, chance.random(len(texts))), TOPICS - 1)
        share = chance.uniform(low, high, (len(texts), 1)).astype(np.float32)
        rows: NDArray[np.float32] = (
            self.mean + share * self.topics[topics] + np.sqrt(1 - share**2) * self._draw(chance, len(texts))
        )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def _draw(self, chance: np.random.Generator, count: int) -> NDArray[np.float32]:
        return chance.standard_normal((count, DIM), np.float32) * self.spread


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="retcon-hybrid-", dir=options.temp) as folder:
        results = measure(options.size, options.queries, Path(folder), seed=options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "hybrid.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


def measure(size: int, queries: int, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """All numbers of one run."""
    started, asked = time.perf_counter(), queries_for(seed, queries + WARM, size)
    results: dict[str, Any] = {"machine": _machine(), "size": size, "queries": queries, "seed": seed}
    path = str(folder / "store.db")
    with Memory(path, embedder=Made(), retriever="bm25") as memory:
        memory.store.add(corpus(seed).notes(size))
        results["embed_s"] = _clock(memory.embed)[1]
        results["index_s"] = _clock(lambda: memory.store.refresh_indexes(Scope(), "made"))[1]
        results["vectors"] = memory.stats()["vectors"]
        results["ours"] = _search(memory, asked)
        results |= {
            "rss_mb": _peak(),
            "file_mb": _size(folder, "store.db"),
            "index_mb": _size(folder, "store.db.vectors"),
        }
    ids, rows = _rows(path)
    vectors = Made()
    wanted = [vectors.embed_query([query])[0] for query in asked]
    exact = [np.argpartition(-(rows @ each), TOP)[:TOP] for each in wanted]
    results["made"] = describe(rows, np.stack(wanted))
    results["matrix"] = _summary(_times(wanted, lambda each: np.argpartition(-(rows @ each), TOP)[:TOP]))
    results["recall"] = _recall(path, ids, rows, wanted, exact)
    results["lancedb"] = _lancedb(folder / "lance", rows, wanted, exact)
    return results | {"load": os.getloadavg()[0], "seconds": time.perf_counter() - started}


def _search(memory: Memory, asked: Sequence[str]) -> dict[str, Any]:
    """Seconds of a search by words, by meaning and by both, query by query in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("bm25", "dense", "hybrid")}
    for query in asked:
        for name, each in times.items():
            memory.retriever = name
            began, cpu = time.perf_counter(), time.process_time()
            memory.search(query, top_k=20)
            each.append((time.perf_counter() - began, time.process_time() - cpu))
    found = {name: _summary(each[WARM:]) for name, each in times.items()}
    pairs = [(hybrid[0] / words[0]) for hybrid, words in zip(times["hybrid"][WARM:], times["bm25"][WARM:], strict=True)]
    ratio = found["hybrid"]["p50_ms"] / found["bm25"]["p50_ms"]
    return found | {"ratio": ratio, "median_ratio": float(np.median(pairs))}


def _recall(
    path: str, ids: NDArray[np.int64], rows: NDArray[np.float32], wanted: Sequence[NDArray[np.float32]], exact: Any
) -> dict[str, float]:
    """Which share of an exact search's best the store's own search finds, by notes."""
    places = ids[:, 1]
    shared: dict[int, list[float]] = {20: [], TOP: []}
    with Memory(path, embedder=Made()) as memory:
        memory.store.refresh_indexes(Scope(), "made")
        with memory.store.snapshot(Scope()) as snapshot:
            for vector, best in zip(wanted, exact, strict=True):
                order = best[np.argsort(-(rows[best] @ vector))]
                notes = list(dict.fromkeys(places[order].tolist()))
                for k, each in shared.items():
                    found = snapshot.nearest("made", vector, k, Filter()).slots.tolist()
                    each.append(len({*found} & {*notes[:k]}) / min(k, len(notes)))
    return {f"at_{k}": float(np.mean(each)) for k, each in shared.items()}


def _lancedb(folder: Path, rows: NDArray[np.float32], wanted: Any, exact: Any) -> dict[str, Any] | None:
    """The same vectors in LanceDB, with the index that it makes by default and one tuned for recall."""
    try:
        import lancedb
        import pyarrow as pa
        from lancedb.index import IvfPq
    except ImportError:
        return None
    began = time.perf_counter()
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), DIM))])
    table = lancedb.connect(str(folder)).create_table("notes", schema=schema)
    for start in range(0, len(rows), 50_000):
        part = rows[start : start + 50_000]
        flat = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), DIM)
        table.add(pa.table({"id": pa.array(np.arange(start, start + len(part))), "vector": flat}, schema=schema))
    added = time.perf_counter() - began
    built = _clock(lambda: table.create_index("vector", config=IvfPq(distance_type="dot")))[1]
    found: dict[str, Any] = {"add_s": added, "index_s": built, "mb": _size(folder.parent, folder.name)}
    for name, refine in (("default", None), ("refined", 10)):

        def look(vector: NDArray[np.float32], refine: int | None = refine) -> list[int]:
            query = table.search(vector).distance_type("dot").select(["id", "_distance"]).limit(TOP)
            query = query if refine is None else query.refine_factor(refine).nprobes(200)
            return list(query.to_arrow()["id"].to_pylist())

        answers = [look(each) for each in wanted]
        shared = [len({*each} & {*best.tolist()}) / TOP for each, best in zip(answers, exact, strict=True)]
        found[name] = _summary(_times(wanted, look)) | {"recall_at_100": float(np.mean(shared))}
    return found


def describe(rows: NDArray[np.float32], queries: NDArray[np.float32], sample: int = 200) -> dict[str, list[float]]:
    """Cosines of the closest and the hundredth vector, for notes and for queries: tenth, half, nine tenths."""
    at = np.random.default_rng(0).choice(len(rows), sample, replace=False)
    near: list[float] = []
    far: list[float] = []
    for place in at.tolist():
        scores = rows @ rows[place]
        scores[place] = -1
        best = np.sort(np.partition(scores, -100)[-100:])
        near.append(float(best[-1]))
        far.append(float(best[0]))
    asked = [float((rows @ each).max()) for each in queries[:sample]]
    return {
        name: np.percentile(each, [10, 50, 90]).round(3).tolist()
        for name, each in (("closest", near), ("hundredth", far), ("query_closest", asked))
    }


def _rows(path: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Id and slot of every vector in the store, and the vectors."""
    with Memory(path) as memory, memory.store._connections.use() as connection:
        places, parts = [], []
        cursor = connection.execute("SELECT id, slot, data FROM vector ORDER BY id")
        while block := cursor.fetchmany(50_000):
            places.append(np.array([row[:2] for row in block], np.int64))
            parts.append(unpack([row[2] for row in block], DIM))
    gc.collect()
    return np.concatenate(places), np.concatenate(parts)


def _times(wanted: Sequence[Any], call: Callable[[Any], Any]) -> list[tuple[float, float]]:
    times = []
    for each in wanted:
        began, cpu = time.perf_counter(), time.process_time()
        call(each)
        times.append((time.perf_counter() - began, time.process_time() - cpu))
    return times[WARM:]


def _summary(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = (np.array([each[i] for each in times]) * 1000 for i in (0, 1))
    return {
        "p50_ms": float(np.median(wall)), "p95_ms": float(np.percentile(wall, 95)),
        "cpu_p50_ms": float(np.median(cpu)),
    }  # fmt: skip


def _clock(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _size(folder: Path, name: str) -> float:
    place = folder / name
    files = [place] if place.is_file() else [each for each in place.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files) / 1e6


def _machine() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {"cores": os.cpu_count(), "python": platform.python_version(), "packages": packages}


def table(results: dict[str, Any]) -> str:
    """The run as Markdown."""
    ours, lance, recall = results["ours"], results["lancedb"], results["recall"]
    lines = [
        f"{results['vectors']:,} made-up vectors of {DIM} numbers, of {results['size']:,} notes; {results['queries']}"
        " queries.",
        "",
        "| search | p50 ms | p95 ms | of exact's best 100 |",
        "|---|---|---|---|",
        _line("retcon, words (`bm25`)", ours["bm25"]),
        _line("retcon, meaning (`dense`)", ours["dense"], recall["at_100"]),
        _line("retcon, both (`hybrid`)", ours["hybrid"]),
        _line("a plain matrix product, in memory", results["matrix"], 1.0),
    ]
    if lance is not None:
        lines += [
            _line("LanceDB, IVF_PQ as it comes", lance["default"], lance["default"]["recall_at_100"]),
            _line("LanceDB, 200 lists, refined", lance["refined"], lance["refined"]["recall_at_100"]),
        ]
    return "\n".join([*lines, "", _goals(results)])


def _goals(results: dict[str, Any]) -> str:
    ours, recall = results["ours"], results["recall"]
    return (
        f"Hybrid takes {ours['ratio']:.1f} times as long as words alone (goal: at most 3). The index finds"
        f" {recall['at_20']:.3f} of an exact search's best 20 (goal: at least .98) and {recall['at_100']:.3f} of its"
        f" best 100; making it took {results['index_s']:.0f} s. The process took {results['rss_mb']:,.0f} MB at most,"
        f" the store {results['file_mb']:,.0f} MB, the index {results['index_mb']:,.0f} MB."
    )


def _line(name: str, found: dict[str, float], recall: float | None = None) -> str:
    share = "" if recall is None else f"{recall:.3f}"
    return f"| {name} | {found['p50_ms']:.1f} | {found['p95_ms']:.1f} | {share} |"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="notes (default: 1,000,000)")
    parser.add_argument("--queries", type=int, default=100, help="(default: 100)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the results")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up notes and queries (default: 0)")
    parser.add_argument("--temp", type=Path, help="folder for the temporary files")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
