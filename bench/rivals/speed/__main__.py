"""Speed and cost beside rivals, without a language model:

    python -m bench.rivals.speed [--sizes 1000,100000,1000000] [--queries 50] [--systems mem0,chroma]

Every system has a process of its own and gets the same notes, the same vectors (made beforehand) and the same queries
with the same filter, the best 20 of one user, in turn with ours. Who takes more than the time or memory that is stated
for a size is stopped, and its row says how far it came. What is done is kept in the file that --out names after every
system and size, so a run that was stopped goes on; --fresh begins anew. Rivals that are not installed say so. Needs
what requirements/rivals-speed.lock pins; with --embedding torch, transformers and MiniLM too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import RESULTS, keep, out_parser
from bench.rivals.speed import turns
from bench.rivals.speed.costs import costs
from bench.rivals.speed.page import report
from bench.rivals.speed.process import Limits, Process, StoppedError
from bench.rivals.speed.systems import OURS, OURS_VECTORS, RIVALS, SYSTEMS
from bench.rivals.speed.vectors import make_pools
from bench.speed.clocks import processor
from bench.speed.hybrid import Made

SIZES = (1_000, 100_000, 1_000_000)
LOAD_S = {10_000: 60.0, 100_000: 330.0}  # seconds that a bulk add may take, up to so many notes
LARGE_S = 240.0  # beyond
HOPELESS = 2.0  # times the limit that a bulk add would take at the rate of the size before: not tried
ENOUGH = 10_000  # notes from which a rate says something of larger sizes
SAMPLE, ASKED = 300, 10  # notes and queries with the real encoder

Results = dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not measured yet, print, write."""
    options = _options(arguments)
    results = _open(options)
    began, before = time.perf_counter(), results["seconds"]
    with tempfile.TemporaryDirectory(prefix="retcon-rivals-", dir=options.temp) as folder:
        for _ in steps(results, options, Path(folder)):
            results["seconds"] = before + time.perf_counter() - began
            save(results, options.out)
    print(report(results))


def steps(results: Results, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """One thing after the other is added to the results: costs, each system at each size, the real encoder."""
    make_pools(folder, Made())
    for name in (OURS, OURS_VECTORS, *options.systems):
        if name not in results["costs"]:
            results["costs"][name] = costs(SYSTEMS[name])
            yield
    for size in options.sizes:
        yield from at_size(results, options, folder, size)
    if options.embedding:
        yield from with_encoder(results, options, folder)


def at_size(results: Results, options: argparse.Namespace, folder: Path, size: int) -> Iterator[None]:
    """Each system at one size, ours first."""
    rows, limits = results["rows"], limits_for(size, options)
    todo = [name for name in options.systems if key(name, size) not in rows]
    if not todo and key(OURS, size) in rows:
        return
    _say(f"{size:,} notes ...")
    work = turns.prepare(folder, size, options.queries, options.seed)
    with turns.open_ours(work, limits) as (running, made):
        rows |= {key(name, size): row for name, row in made.items() if key(name, size) not in rows}
        yield
        for name in todo:
            _say(f"{name} {size:,} ...")
            why = results["costs"][name].get("why") or hopeless(rows, name, size, limits)
            rows[key(name, size)] = {"why": why} if why else turns.measure(SYSTEMS[name], work, running, limits)
            yield
    shutil.rmtree(folder / f"{OURS}-{size}", ignore_errors=True)
    shutil.rmtree(folder / f"{OURS_VECTORS}-{size}", ignore_errors=True)
    work.source.unlink()


def hopeless(rows: Mapping[str, Any], name: str, size: int, limits: Limits) -> str | None:
    """Why a system is not tried at a size, by what it took at the largest size below; None where it is."""
    if (most := SYSTEMS[name].most) is not None and size > most:
        return "not tried: see bench.speed"
    below = [int(each.split("@")[1]) for each in rows if each.startswith(f"{name}@") and int(each.split("@")[1]) < size]
    if not below:
        return None
    row, at = rows[key(name, max(below))], max(below)
    if "load" not in row:
        return f"not tried: {row['why']} at {at:,} notes" if row.get("why") else None
    if at < ENOUGH:
        return None
    if (needed := size / row["load"]["per_s"]) > HOPELESS * limits.load_s:
        return f"not tried: {needed:,.0f} s at the rate of {at:,} notes (limit {limits.load_s:.0f})"
    taken = row.get("size", {}).get("own_mb", 0.0) * size / at / 1000
    if taken > 1.25 * limits.memory_gb:
        return f"not tried: {taken:.0f} GB of memory at the rate of {at:,} notes (limit {limits.memory_gb:g})"
    return None


def with_encoder(results: Results, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """A sample with MiniLM in place of vectors at hand, for ours and for every rival that uses vectors."""
    work = turns.prepare(folder, SAMPLE + turns.FEW, ASKED, options.seed)
    for name in (OURS_VECTORS, *(each for each in options.systems if SYSTEMS[each].by != "words")):
        if name not in results["embedding"] and not results["costs"][name].get("why"):
            _say(f"{name} with the real encoder ...")
            results["embedding"][name] = encode_sample(name, work, limits_for(work.size, options))
            yield


def encode_sample(name: str, work: turns.Work, limits: Limits) -> dict[str, Any]:
    """What the sample took with the real encoder; or why not."""
    try:
        with Process.start(
            SYSTEMS[name].store, work.folder / f"{name}-encoder", work.pools, memory_gb=limits.memory_gb, kind="minilm"
        ) as process:
            texts = [note["text"] for note in work.late]
            process.ask("encode_texts", texts)  # the first ones take longer
            loaded = process.ask("load", str(work.source), limits.load_s, seconds=2 * limits.load_s)
            spans = [process.ask("search", query, turns.BIG) for query in work.queries[turns.BIG]]
            single = [process.ask("encode_texts", [query]) for query in work.queries[turns.SMALL]]
    except StoppedError as stopped:
        return {"why": f"not measured: {stopped.why}"}
    return {
        "per_s": loaded["notes"] / loaded["wall_s"],
        "search": turns.summarize(spans), "encode_query": turns.summarize(single), "notes": loaded["notes"],
    }  # fmt: skip


def key(name: str, size: int) -> str:
    """Where a row is kept."""
    return f"{name}@{size}"


def limits_for(size: int, options: argparse.Namespace) -> Limits:
    """What a system may take at a size."""
    load_s = options.load_s or next((limit for most, limit in LOAD_S.items() if size <= most), LARGE_S)
    return Limits(load_s=load_s, memory_gb=options.memory_gb, patience_s=options.patience_s)


# -- the file ----------------------------------------------------------------------------------------------------------


def _open(options: argparse.Namespace) -> Results:
    """What an earlier run kept, if it asked the same; else nothing yet."""
    settings = {"queries": options.queries, "seed": options.seed}
    if options.out.is_file() and not options.fresh:
        known: Results = json.loads(options.out.read_text(encoding="utf-8"))
        if known["settings"] != settings:
            raise SystemExit(f"{options.out.name} was measured with {known['settings']}, not {settings}: say --fresh")
        return known
    return {
        "machine": _machine(), "settings": settings, "costs": {}, "rows": {}, "embedding": {}, "seconds": 0.0,
    }  # fmt: skip


def save(results: Results, path: Path) -> None:
    """The whole file, or the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    keep(results, beside)
    beside.replace(path)


def _machine() -> dict[str, Any]:
    return {
        "processor": processor(), "cores": os.cpu_count(), "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }  # fmt: skip


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = out_parser(__doc__, RESULTS / "rivals_speed.json")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="numbers of notes (default: 1000,100000,1000000)")
    parser.add_argument("--systems", type=_names, default=RIVALS, help=f"of {', '.join(RIVALS)} (default: all)")
    parser.add_argument("--queries", type=_whole, default=50, help="of each of two users at each size (default: 50)")
    parser.add_argument("--embedding", action="store_true", help="also a sample with the real encoder, MiniLM")
    parser.add_argument("--load-s", type=float, help="seconds of a bulk add (default: 60, 330 or 240, by size)")
    parser.add_argument("--memory-gb", type=float, default=8.0, help="of one system (default: 8)")
    parser.add_argument("--patience-s", type=float, default=12.0, help="of a system's searches at a size (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="of notes and queries (default: 0)")
    parser.add_argument("--temp", type=Path, help="folder for stores: about 8 KB a note")
    parser.add_argument("--fresh", action="store_true", help="forget what --out holds")
    return parser.parse_args(arguments)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(_whole(part) for part in text.split(","))
    if min(sizes) < 2 * turns.FEW:
        raise argparse.ArgumentTypeError(f"sizes start at {2 * turns.FEW}")
    return tuple(sorted(sizes))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(",")) if text else ()
    if unknown := [name for name in names if name not in RIVALS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(RIVALS)}")
    return names


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a number of 1 or more: {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
