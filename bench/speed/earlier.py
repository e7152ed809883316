"""This version of retcon beside an earlier one, each in a process of its own: the same notes, the same queries, in turn.

    python -m bench.speed.earlier 1000 20000

The earlier version is commit 9b954fe, taken out of the project's own history with `git worktree` into a temporary
folder. Where there is no history, as in an installed package or a shallow clone, nothing is compared, and the reason is
told. This file is also what runs in both processes: there it uses public names only, which both versions have.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

EARLIER = "9b954fe"
ROUNDS = 3  # bulk adds of each version, each into a file of its own; the quickest counts
SMALL = 20_000  # notes up to which there is more than one round
BUDGET = 256
WARM = 5


class Absent(Exception):
    """Why the earlier version cannot be had here."""


@contextlib.contextmanager
def checked_out(root: Path, commit: str = EARLIER) -> Iterator[Path]:
    """A folder with the project's files as of that commit, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="retcon-earlier-") as folder:
        target = Path(folder) / "tree"
        _git(root, "worktree", "add", "--detach", str(target), commit)
        try:
            yield target
        finally:
            _git(root, "worktree", "remove", "--force", str(target))


def _git(root: Path, *words: str) -> None:
    try:
        subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Absent("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise Absent(f"git has no commit {EARLIER} here: {error.stderr.strip().splitlines()[-1]}") from None


class Version:
    """A version of retcon at work in another process."""

    def __init__(self, tree: Path) -> None:
        found = dict(os.environ) | {"PYTHONPATH": str(tree)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work"], env=found, cwd=tree, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, verb: str, *words: Any) -> Any:
        """What that verb gives there."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([verb, *words]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def compare(trees: dict[str, Path], folder: Path, notes: Sequence[dict[str, Any]], queries: Sequence[str]) -> Any:
    """Seconds of CPU time of each version: of bulk adds, and of every search and recall."""
    versions = {name: Version(tree) for name, tree in trees.items()}
    source = folder / f"notes-{len(notes)}.jsonl"
    source.write_text("".join(json.dumps(note) + "\n" for note in notes), encoding="utf-8")
    try:
        adds = _bulk_adds(versions, folder, source, ROUNDS if len(notes) <= SMALL else 1)
        return {"add": adds, **_queries(versions, queries)}
    finally:
        for version in versions.values():
            version.close()


def _bulk_adds(versions: dict[str, Version], folder: Path, source: Path, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in versions}
    for number in range(rounds):
        for name, version in versions.items():
            times[name].append(version.ask("add", str(folder / f"{name}-{source.stem}-{number}.db"), str(source)))
    return times


def _queries(versions: dict[str, Version], queries: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = {verb: {name: [] for name in versions} for verb in ("search", "recall")}
    names = list(versions)
    for number, query in enumerate([*queries[-WARM:], *queries]):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for verb, found in times.items():
                span = versions[name].ask(verb, query)
                if number >= WARM:
                    found[name].append(span)
    return times


# -- in the other process --------------------------------------------------------------------------------------------


def work() -> None:
    """Do what comes in, a line each, and tell how many seconds of CPU time it took."""
    from retcon import Memory

    memory: Any = None
    for line in sys.stdin:
        verb, *words = json.loads(line)
        if verb == "add":
            if memory is not None:
                memory.close()
            memory = Memory(words[0])
            with open(words[1], encoding="utf-8") as file:
                notes = [json.loads(row) for row in file]
            span = _time(memory.add, notes, user_id="u")
        elif verb == "search":
            span = _time(memory.search, words[0], user_id="u")
        else:
            span = _time(memory.recall, words[0], BUDGET, user_id="u")
        print(json.dumps(span), flush=True)


def _time(call: Any, *words: Any, **options: Any) -> float:
    started = time.process_time()
    call(*words, **options)
    return time.process_time() - started


if __name__ == "__main__" and "--work" in sys.argv:
    work()
