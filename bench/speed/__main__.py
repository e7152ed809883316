"""Speed beside rivals, in one run: python -m bench.speed [--sizes 1000,100000,1000000] [--queries 100] [--quick]

Every stage runs in a process of its own, in a temporary folder that needs about 4 KB of disk a note and is removed
afterwards. Writes speed.json and speed.md (--quick: speed-quick.*) into the folder that --out names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.speed import earlier
from bench.speed.clocks import machine_facts
from bench.speed.page import page
from bench.speed.stages import queries_for

QUICK = (1_000, 20_000)
FULL = (1_000, 100_000, 1_000_000)
USERS_MOST = 100_000  # notes of the bulk add for many users
PACKAGES = ("numpy", "tantivy", "bm25s", "rank-bm25", "PyStemmer")


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="retcon-speed-", dir=options.temp) as folder:
        results = measure(options.sizes, options.queries, Path(folder), seed=options.seed)
    written = page(results)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "speed-quick" if options.quick else "speed"
    (options.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (options.out / f"{name}.md").write_text(written, encoding="utf-8")
    print(written)


def measure(sizes: tuple[int, ...], queries: int, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """All numbers of one run."""
    started, load = time.perf_counter(), [_load()]
    results: dict[str, Any] = {"machine": _machine(), "sizes": list(sizes), "queries": queries, "seed": seed}
    results["imports"] = _stage("imports", count=min(queries, 10))
    results["at"] = {}
    for size in sizes:
        results["at"][str(size)] = _at(size, queries, folder, seed)
        load.append(_load())
    most = min(max(sizes), USERS_MOST)
    results["users"] = {"notes": most} | _stage("users", path=str(folder / "users.db"), size=most, seed=seed)
    print("beside an earlier version ...", file=sys.stderr, flush=True)
    results["earlier"] = earlier.compare_all(sizes, queries, folder, seed=seed)
    return results | {"load": load, "seconds": time.perf_counter() - started}


def _at(size: int, queries: int, folder: Path, seed: int) -> dict[str, Any]:
    path, rivals = str(folder / f"{size}.db"), folder / f"rivals-{size}"
    rivals.mkdir()
    asked = queries_for(seed, queries, size)
    return {
        "store": _stage("store", path=path, size=size, seed=seed),
        "recall": _stage("recall", path=path, queries=asked),
        "retrieval": _stage("retrieval", path=path, folder=str(rivals), size=size, seed=seed, queries=asked),
        "small": _stage("small", path=path, own=str(folder / f"own-{size}.db"), seed=seed, count=queries),
        "single": _stage("single", path=path, seed=seed, count=queries),
    }


def _stage(name: str, **arguments: Any) -> dict[str, Any]:
    """The result of one stage, in a fresh process."""
    print(f"{name} {arguments.get('size', '')}".strip(), "...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench.speed.stages", name]
    done = subprocess.run(command, input=json.dumps(arguments), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _machine() -> dict[str, Any]:
    return machine_facts() | {"packages": {name: version(name) for name in PACKAGES}}


def _load() -> float | None:
    """Mean number of processes that wanted a core over the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_sizes, help="numbers of notes, comma-separated (default: 1000,100000,1000000)")
    parser.add_argument("--queries", type=int, default=100, help="queries at each size (default: 100)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="1,000 and 20,000 notes only: about a minute")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up notes and queries (default: 0)")
    parser.add_argument("--temp", type=Path, help="folder for the temporary files")
    options = parser.parse_args(arguments)
    options.sizes = options.sizes or (QUICK if options.quick else FULL)
    if options.queries < 1:
        parser.error("--queries must be 1 or more")
    return options


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a list of numbers: {text!r}") from None
    if min(sizes) < 100:
        raise argparse.ArgumentTypeError("sizes start at 100")
    return sizes


if __name__ == "__main__":
    main()
