"""How long a writer waits beside deletes and the purge after them, on a store of 100 MB.

    python -m bench.deletes --out bench/results/deletes.json
    python -m bench.deletes --megabytes 5 --deletes 10             a try

One process writes a note at a time, all the while, and notes how long each write took. This process, with the server's
purge in the background, deletes 40 notes from 40 threads at once and waits until their words have left the files. The
writer's waits are told for before, during the deletes and the purge, and all together.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bench.speed.corpus import corpus
from retcon import Memory
from retcon.store.purging import Purger

QUIET = 5.0  # seconds of writing before the deletes
PAUSE = 0.005  # seconds between two writes
EVERY = 60.0  # seconds between two purges, as in the server
BATCH = 20_000  # notes of one add while the store is made


def fill(path: Path, megabytes: float) -> list[str]:
    """Ids of a hundred notes of the store, which is made that large."""
    texts = endless_texts()
    with Memory(path) as memory:
        ids = [note.id for note in memory.add([{"text": next(texts), "user_id": "hostile"} for _ in range(100)])]
        while os.path.getsize(path) < megabytes * 1e6:
            memory.add([{"text": next(texts), "user_id": "honest"} for _ in range(BATCH)])
            memory.purge()
    return ids


def endless_texts() -> Iterator[str]:
    """Texts without an end."""
    known = [note.text for note in corpus(1).notes(2000)]
    for number in count():
        yield f"{known[number % len(known)]} number {number}"


def write(path: Path, talk: Connection) -> None:
    """Writes until told to stop; sends (when it began, how long it took) of every write."""
    waits = []
    with Memory(path) as memory:
        talk.send("ready")
        while not talk.poll():
            began = time.monotonic()
            memory.add("a note of an honest user", user_id="honest")
            waits.append((began, time.monotonic() - began))
            time.sleep(PAUSE)
        memory.close(purge=False)
    talk.send(waits)


def measure(path: Path, ids: list[str]) -> dict[str, Any]:
    """The writer's waits, in seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    writer = context.Process(target=write, args=(path, theirs))
    writer.start()
    ours.recv()
    time.sleep(QUIET)
    with Memory(path) as memory:
        began = time.monotonic()
        with ThreadPoolExecutor(len(ids)) as pool:
            took = list(pool.map(lambda note_id: _time_delete(memory, note_id), ids))
        deleted = time.monotonic()
        purger = Purger(memory.count_unpurged, memory.purge, every=EVERY)
        while memory.count_unpurged():
            time.sleep(0.05)
        purged = time.monotonic()
        purger.close()
    ours.send("stop")
    waits = ours.recv()
    writer.join()
    beside = [wait for at, wait in waits if began <= at + wait and at <= purged]
    return {
        "deletes": len(ids), "delete_seconds": _spread(took), "until_purged_s": purged - began,
        "purge_s": purged - deleted, "alone": _spread([wait for at, wait in waits if at < began]),
        "beside": _spread(beside), "writes_beside": len(beside),
    }  # fmt: skip


def _time_delete(memory: Memory, note_id: str) -> float:
    began = time.monotonic()
    memory.delete(note_id)
    return time.monotonic() - began


def _spread(seconds: list[float]) -> dict[str, float]:
    return {f"p{share}": float(np.percentile(seconds, share)) for share in (50, 95)} | {"max": max(seconds)}


def table(found: dict[str, Any]) -> str:
    """What was measured, as a table."""
    rows = [("writes before the deletes", "alone"), ("writes beside the deletes and the purge", "beside")]
    lines = ["| | p50 | p95 | longest |", "|---|---:|---:|---:|"]
    lines += [f"| {what} | {_cells(found[name])} |" for what, name in rows]
    lines.append(f"| {found['deletes']} deletes, each | {_cells(found['delete_seconds'])} |")
    lines.append(f"| all {found['deletes']} purged from the files after | | | {found['until_purged_s']:.1f} s |")
    return "\n".join(lines) + f"\n\n{found['megabytes']:.0f} MB, {found['writes_beside']:,} writes beside the deletes."


def _cells(spread: dict[str, float]) -> str:
    return " | ".join(f"{spread[name] * 1000:,.0f} ms" for name in ("p50", "p95", "max"))


def main() -> int:
    """Measure, print, keep; 1 where the writer waited too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--deletes", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.db"
        ids = fill(path, given.megabytes)
        found = {"megabytes": os.path.getsize(path) / 1e6} | measure(path, ids[: given.deletes])
    print(table(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(found["beside"]["p95"] >= 1)


if __name__ == "__main__":
    sys.exit(main())
