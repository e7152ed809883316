"""One system at work in its process: a line in is a verb with its words, a line out is what came of it, in JSON.

    python -m bench.rivals.speed.worker MODULE.CLASS FOLDER POOLS KIND

FOLDER is the system's own, POOLS holds the vectors at hand, KIND is `pooled` or `minilm`. While notes are loaded, lines
`{"progress": N}` tell how far it is, so that whoever stops it knows. What a library prints goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TextIO

from bench.rivals.speed.stores import Note, Store, open_store
from bench.rivals.speed.vectors import open_vectors


class Worker:
    """One store; every verb gives something that fits in a line."""

    def __init__(self, where: str, folder: Path, encode: Any, tell: Callable[[Any], None]) -> None:
        self.folder, self.tell, self.encode = folder, tell, encode
        self.store: Store = open_store(where, folder, encode)

    def load(self, source: str, seconds: float) -> dict[str, Any]:
        """A bulk add of a JSONL file's notes, ended after so many seconds; reading the file is not on the clock."""
        wall = cpu = 0.0
        done = 0
        for notes in _batches(Path(source), self.store.batch):
            wall, cpu, _ = _time(wall, cpu, self.store.add, notes)
            done += len(notes)
            self.tell({"progress": done})
            if wall > seconds:
                return {"notes": done, "whole": False, "wall_s": wall, "cpu_s": cpu}
        added = wall
        wall, cpu, _ = _time(wall, cpu, self.store.finish)
        return {"notes": done, "whole": True, "wall_s": wall, "cpu_s": cpu, "finish_s": wall - added}

    def add(self, note: Note) -> dict[str, Any]:
        """One note by itself."""
        return _span(*_time(0.0, 0.0, self.store.add_one, note)[:2])

    def search(self, query: str, user: str) -> dict[str, Any]:
        """One search; how many notes came, and how many of them were another user's."""
        wall, cpu, found = _time(0.0, 0.0, self.store.search, query, user)
        return _span(wall, cpu) | {"found": len(found), "foreign": sum(each.user != user for each in found)}

    def recall(self, query: str, user: str) -> dict[str, Any]:
        """One recall, for a store that has it."""
        recall: Callable[..., str] = getattr(self.store, "recall")  # noqa: B009
        wall, cpu, text = _time(0.0, 0.0, recall, query, user)
        return _span(wall, cpu) | {"found": len(text)}

    def encode_texts(self, texts: Sequence[str]) -> dict[str, Any]:
        """The vectors of these texts, made and dropped."""
        return _span(*_time(0.0, 0.0, self.encode, texts)[:2])

    def size(self) -> dict[str, Any]:
        """Memory of this process, now and at most, and the files of the store."""
        files = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return memory(os.getpid()) | {"disk_mb": files / 1e6}

    def close(self) -> dict[str, Any]:
        """The end."""
        self.store.close()
        return {}


def memory(process: int) -> dict[str, float]:
    """Megabytes of a process: at most, now, and of those the ones that are no pages of a file. Empty off Linux."""
    status = Path(f"/proc/{process}/status")
    try:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    except OSError:
        return {}
    known = {"peak_mb": "VmHWM", "rss_mb": "VmRSS", "own_mb": "RssAnon"}
    return {name: int(lines[key].split()[0]) / 1e3 for name, key in known.items() if key in lines}


def _batches(source: Path, most: int) -> Iterator[list[Note]]:
    """The notes of a file, so many at once at most, and one user's alone."""
    with source.open(encoding="utf-8") as file:
        while lines := list(islice(file, most)):
            notes: list[Note] = [json.loads(line) for line in lines]
            yield from (list(some) for _, some in groupby(notes, key=lambda note: note["user"]))


def _time(wall: float, cpu: float, call: Callable[..., Any], *words: Any) -> tuple[float, float, Any]:
    """Both clocks moved on by a call, and what it gave; the CPU time is of all threads."""
    began, worked = time.perf_counter(), time.process_time()
    given = call(*words)
    return wall + time.perf_counter() - began, cpu + time.process_time() - worked, given


def _span(wall: float, cpu: float) -> dict[str, Any]:
    return {"wall": wall, "cpu": cpu}


def serve(worker: Worker, lines: Iterator[str], tell: Callable[[Any], None]) -> None:
    """Answer every line; an error is an answer too."""
    for line in lines:
        verb, *words = json.loads(line)
        try:
            tell({"done": getattr(worker, verb)(*words)})
        except Exception as error:
            tell({"error": describe(error)})


def describe(error: Exception) -> str:
    """The error in one short line."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}"[:300]


def main(arguments: Sequence[str]) -> None:
    """Open the store, say so, then answer until nothing more comes in."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    where, folder, pools, kind = arguments
    tell = _teller(out)
    try:
        worker = Worker(where, Path(folder), open_vectors(Path(pools), kind), tell)
    except Exception as error:
        return tell({"error": describe(error)})
    tell({"done": memory(os.getpid())})
    serve(worker, iter(sys.stdin), tell)
    out.flush()
    os._exit(0)  # what libraries left running ends with it


def _teller(out: TextIO) -> Callable[[Any], None]:
    def tell(what: Any) -> None:
        print(json.dumps(what), file=out, flush=True)

    return tell


if __name__ == "__main__":
    main(sys.argv[1:])
