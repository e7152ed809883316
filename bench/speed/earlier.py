"""This version of retcon beside an earlier one, each in its own process: the same notes and queries, in turn.

The earlier version is commit 9b954fe, taken out of the project's own history with `git worktree` into a temporary
folder. Where there is no history, as in an installed package or a shallow clone, nothing is compared, and the reason is
told. Compared is the CPU time of the processes: of a bulk add by `Memory.add`, of `search` and of `recall`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import ROOT
from bench.speed import worker
from bench.speed.corpus import corpus
from bench.speed.stages import WARM, queries_for
from retcon.lab.data import load
from retcon.note import Note

EARLIER = "9b954fe"
MOST = 100_000  # notes: beyond them one comparison takes minutes
SMALL = 20_000  # notes up to which there are several bulk adds of each version, and the quickest counts
ROUNDS = 3
LOCOMO = "locomo10.json"
NAMES = ("earlier", "now")

Times = dict[str, dict[str, list[float]]]  # verb -> version -> seconds


class AbsentError(Exception):
    """The earlier version cannot be had here."""


def compare_all(sizes: Sequence[int], queries: int, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """What the two versions took on made notes of each size, and on LoCoMo's where they are at hand; or why nothing."""
    try:
        with check_out(ROOT) as tree:
            trees = dict(zip(NAMES, (tree, ROOT), strict=True))
            found = {
                f"{size:,}": _compare(trees, folder, _made(size, seed), queries_for(seed, queries, size))
                for size in sizes
                if size <= MOST
            }
            if (path := _data() / LOCOMO).is_file():
                found["LoCoMo"] = _compare(trees, folder, *_locomo(path, queries))
            return {"commit": EARLIER, "on": found}
    except AbsentError as error:
        return {"commit": EARLIER, "absent": str(error)}


@contextlib.contextmanager
def check_out(root: Path, commit: str = EARLIER) -> Iterator[Path]:
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
        raise AbsentError("git is not installed") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["git failed"])[-1]
        raise AbsentError(f"no commit {EARLIER} in the history here ({said})") from None


def _data() -> Path:
    return Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")


def _made(size: int, seed: int) -> list[dict[str, Any]]:
    return [_message(note) for note in corpus(seed).notes(size)]


def _locomo(path: Path, queries: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The turns of all conversations, and questions spread over them."""
    asked = load("locomo", folder=path.parent).questions
    histories = {question.conversation: question.history for question in asked}
    notes = {note.id: _message(note) for history in histories.values() for note in history}
    return list(notes.values()), [question.text for question in asked[:: max(1, len(asked) // queries)]][:queries]


def _message(note: Note) -> dict[str, Any]:
    fields = {"id": note.id, "text": note.text, "session": note.session, "speaker": note.speaker}
    return fields | {"timestamp": note.timestamp}


class Version:
    """A version of retcon at work in a process of its own."""

    def __init__(self, tree: Path) -> None:
        found = dict(os.environ) | {"PYTHONPATH": str(tree)}
        command = [sys.executable, str(Path(worker.__file__).resolve())]
        self.process = subprocess.Popen(
            command, env=found, cwd=tree, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, verb: str, *words: str) -> float:
        """Seconds of CPU time that the verb took there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([verb, *words]) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def _compare(
    trees: Mapping[str, Path], folder: Path, notes: Sequence[Mapping[str, Any]], queries: Sequence[str]
) -> dict[str, Any]:
    source = folder / f"earlier-{len(notes)}.jsonl"
    source.write_text("".join(json.dumps(note) + "\n" for note in notes), encoding="utf-8")
    versions = {name: Version(tree) for name, tree in trees.items()}
    try:
        adds = _time_adds(versions, folder, source, ROUNDS if len(notes) <= SMALL else 1)
        return summarize(len(notes), {"add": adds} | _time_queries(versions, queries))
    finally:
        for version in versions.values():
            version.close()


def _time_adds(versions: Mapping[str, Version], folder: Path, source: Path, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in versions}
    for number in range(rounds):
        for name, version in versions.items():
            if number:
                version.ask("close")
            times[name].append(version.ask("add", str(folder / f"{name}-{source.stem}-{number}.db"), str(source)))
    return times


def _time_queries(versions: Mapping[str, Version], queries: Sequence[str]) -> Times:
    times: Times = {verb: {name: [] for name in versions} for verb in ("search", "recall")}
    names = list(versions)
    for number, query in enumerate([*queries[-WARM:], *queries]):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for verb, found in times.items():
                span = versions[name].ask(verb, query)
                if number >= min(WARM, len(queries)):
                    found[name].append(span)
    return times


def summarize(notes: int, times: Times) -> dict[str, Any]:
    """Notes a second of the quickest bulk add, milliseconds of the median query, and ours over theirs."""
    then, now = (notes / min(times["add"][name]) for name in NAMES)
    found: dict[str, Any] = {"notes": notes, "add": {"earlier": then, "now": now, "ratio": now / then}}
    for verb in ("search", "recall"):
        before, after = (median(times[verb][name]) * 1e3 for name in NAMES)
        found[verb] = {"earlier": before, "now": after, "ratio": after / before}
    return found
