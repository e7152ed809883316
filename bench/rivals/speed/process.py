"""A worker seen from outside: it is asked, and stopped where it takes too long or too much memory."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench import ROOT
from bench.rivals.speed.worker import memory

OPENING = 120.0  # seconds until a system must be open
LOOK = 0.25  # seconds between two looks at its memory


@dataclass(frozen=True, slots=True)
class Limits:
    """What one system may take at one size."""

    load_s: float  # of a bulk add
    memory_gb: float  # that are no pages of files
    patience_s: float = 12.0  # of all its searches of one kind, and of all its single adds


class StoppedError(Exception):
    """It did not get there: why, in the words of a cell, and how many notes it had taken in."""

    def __init__(self, why: str, notes: int = 0) -> None:
        super().__init__(why)
        self.why, self.notes = why, notes


class Process:
    """One system in a process of its own. Whatever ends it, the process is gone afterwards."""

    def __init__(self, command: Sequence[str], memory_gb: float) -> None:
        found = dict(os.environ) | {"PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.memory_gb, self.progress = memory_gb, 0
        self.process = subprocess.Popen(
            command, env=found, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @classmethod
    def start(cls, store: str, folder: Path, pools: Path, *, memory_gb: float, kind: str = "pooled") -> Self:
        """A worker with an empty store, open."""
        folder.mkdir(parents=True, exist_ok=True)
        module = [sys.executable, "-m", "bench.rivals.speed.worker"]
        made = cls([*module, store, str(folder), str(pools), kind], memory_gb)
        try:
            made.wait(OPENING)
        except BaseException:
            made.kill()
            raise
        return made

    def ask(self, verb: str, *words: Any, seconds: float = OPENING) -> Any:
        """What the verb gave."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a process that is gone is noticed when its answer is read
            self.process.stdin.write(json.dumps([verb, *words]) + "\n")
            self.process.stdin.flush()
        return self.wait(seconds)

    def wait(self, seconds: float) -> Any:
        """The next answer, or StoppedError after so many seconds, too much memory, an error or the process's end."""
        ends = time.monotonic() + seconds
        while True:
            line = self._next(ends, seconds)
            if "progress" in line:
                self.progress = int(line["progress"])
            elif "error" in line:
                raise StoppedError(f"fails: {line['error']}", self.progress)
            else:
                return line["done"]

    def _next(self, ends: float, seconds: float) -> Any:
        while True:
            try:
                line = self.lines.get(timeout=LOOK)
            except queue.Empty:
                self._check(ends, seconds)
                continue
            if line is None:
                raise StoppedError(f"its process ended with {self.process.wait()}", self.progress)
            self._check(ends + LOOK, seconds)
            return json.loads(line)

    def _check(self, ends: float, seconds: float) -> None:
        if memory(self.process.pid).get("own_mb", 0.0) > self.memory_gb * 1000:
            self.kill()
            raise StoppedError(f"within {self.memory_gb:g} GB", self.progress)
        if time.monotonic() > ends:
            self.kill()
            raise StoppedError(f"in {seconds:.0f} s", self.progress)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self.lines.put(line)
        self.lines.put(None)

    def close(self) -> None:
        """Let it close its store, then end it."""
        with contextlib.suppress(StoppedError):
            if self.process.poll() is None:
                self.ask("close", seconds=30.0)
        self.kill()

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
