"""A version of retcon at work for `bench.speed.earlier`: what comes in, a line each, is done, and its CPU time told.

Runs with any version on its path, so it uses public names only, which all of them have.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retcon import Memory

BUDGET = 256  # tokens of a recall


def main() -> None:
    """Answer until nothing more comes in."""
    worker = Worker()
    for line in sys.stdin:
        verb, *words = json.loads(line)
        print(json.dumps(getattr(worker, verb)(*words)), flush=True)


class Worker:
    """One memory at a time; every verb returns seconds."""

    memory: Memory

    def add(self, path: str, source: str) -> float:
        """One bulk add of all notes of a JSONL file to a new memory."""
        self.memory = Memory(path)
        with Path(source).open(encoding="utf-8") as file:
            notes = [json.loads(line) for line in file]
        return _time(self.memory.add, notes, user_id="u")

    def search(self, query: str) -> float:
        """One search."""
        return _time(self.memory.search, query, user_id="u")

    def recall(self, query: str) -> float:
        """One recall."""
        return _time(self.memory.recall, query, BUDGET, user_id="u")

    def close(self) -> float:
        """The end of the memory."""
        return _time(self.memory.close)


def _time(call: Callable[..., Any], *words: Any, **options: Any) -> float:
    started = time.process_time()
    call(*words, **options)
    return time.process_time() - started


if __name__ == "__main__":
    main()
