"""One size: ours loaded once, then each rival beside it: loaded, and asked the same queries in turn with ours.

Most notes are one user's; the first 100 are another's. Both users are asked for by every query, each with queries of
its own. A rival that is stopped while it loads has no searches; one that has used up its time for loading, but runs, is
searched with what it holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.rivals.speed.process import Limits, Process, StoppedError
from bench.rivals.speed.systems import OURS, OURS_VECTORS, SYSTEMS, System
from bench.speed.corpus import corpus
from bench.speed.stages import queries_for
from retcon.note import Note

BIG, SMALL, FEW = "u", "small", 100
WARM = 3
LATE = 30  # single adds
Row = dict[str, Any]
Span = Mapping[str, float]
Asked = dict[str, list[Span]]  # "retcon recall u" -> what each query took


@dataclass(frozen=True, slots=True)
class Work:
    """What everybody gets at one size."""

    size: int
    source: Path  # notes, a line each
    pools: Path  # vectors at hand
    queries: Mapping[str, Sequence[str]]  # by user
    late: Sequence[Mapping[str, str]]  # notes for single adds

    @property
    def folder(self) -> Path:
        """Where stores are."""
        return self.source.parent


def prepare(folder: Path, size: int, queries: int, seed: int) -> Work:
    """The notes of one size in a file, and the queries."""
    made, source = corpus(seed), folder / f"notes-{size}.jsonl"
    few = list(made.notes(FEW, user_id=SMALL, part=2))
    with source.open("w", encoding="utf-8") as file:
        notes = chain(few, made.notes(size - FEW, user_id=BIG))  # the few first: who does not load all has them
        file.writelines(json.dumps(_told(note)) + "\n" for note in notes)
    late = [_told(note) | {"id": f"late-{number}"} for number, note in enumerate(made.notes(LATE, part=1))]
    asked = {BIG: queries_for(seed, queries, size - FEW), SMALL: made.queries([note.text for note in few], queries)}
    return Work(size, source, folder, asked, late)


def _told(note: Note) -> dict[str, str]:
    fields = {"id": note.id, "text": note.text, "user": note.user_id or "", "session": note.session or ""}
    return fields | {"speaker": note.speaker or "", "timestamp": note.timestamp or ""}


# -- ours --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_ours(work: Work, limits: Limits) -> Iterator[tuple[dict[str, Process], dict[str, Row]]]:
    """Ours with all notes, without vectors and with them, and their rows; ended with the block."""
    with contextlib.ExitStack() as stack:
        running: dict[str, Process] = {}
        rows: dict[str, Row] = {}
        for name in (OURS, OURS_VECTORS):
            process, loaded = start(SYSTEMS[name], work, limits)
            running[name] = stack.enter_context(process)
            rows[name] = {"load": loaded, "limits": _stated(limits)}
        asked = take_turns(running, {}, work, limits)
        for name, process in running.items():
            rows[name] |= _searches(asked, name) | finish(process, SYSTEMS[name], work, limits)
            rows[name]["load_average"] = os.getloadavg()[0]
        yield running, rows


# -- a rival -----------------------------------------------------------------------------------------------------------


def measure(system: System, work: Work, ours: Mapping[str, Process], limits: Limits) -> Row:
    """A rival's row, beside ours; or why it has none, with how far it came."""
    row: Row = {"limits": _stated(limits), "load_average": os.getloadavg()[0]}
    try:
        process, row["load"] = start(system, work, limits)
        with process:
            if not row["load"]["whole"]:
                row["why"] = _short(row["load"]["notes"], work.size, f"in {limits.load_s:.0f} s")
            asked = take_turns(ours, {system.name: process}, work, limits)
            row |= _searches(asked, system.name) | {"ratio": ratios(asked, system.name)}
            row |= finish(process, system, work, limits)
    except StoppedError as stopped:
        row["why"] = _short(stopped.notes, work.size, stopped.why)
    finally:
        shutil.rmtree(work.folder / f"{system.name}-{work.size}", ignore_errors=True)
    return row


def _short(notes: int, size: int, why: str) -> str:
    if why.startswith(("fails", "its process")):
        return f"not measured: {why} after {notes:,} of {size:,} notes"
    return f"not reached: {notes:,} of {size:,} notes {why}" if notes < size else f"not reached: no search {why}"


def start(system: System, work: Work, limits: Limits) -> tuple[Process, Row]:
    """The system with the notes in it, and what that took."""
    folder = work.folder / f"{system.name}-{work.size}"
    shutil.rmtree(folder, ignore_errors=True)
    process = Process.start(system.store, folder, work.pools, memory_gb=limits.memory_gb)
    try:
        loaded = process.ask("load", str(work.source), limits.load_s, seconds=1.5 * limits.load_s + 10)
        loaded["per_s"], loaded["per_cpu_s"] = (loaded["notes"] / loaded[key] for key in ("wall_s", "cpu_s"))
        return process, loaded | {"peak_mb": process.ask("size").get("peak_mb")}
    except BaseException:
        process.kill()
        raise


def take_turns(ours: Mapping[str, Process], rival: Mapping[str, Process], work: Work, limits: Limits) -> Asked:
    """What every system took for every query, one after the other, another one first each time.

    The first few are not counted. Where one of them has used up its patience for a user, that user's queries are over.
    """
    asked: Asked = {}
    systems = [*ours.items(), *rival.items()]
    for user, queries in work.queries.items():
        spent = dict.fromkeys(dict(systems), 0.0)
        for number, query in enumerate([*queries[-WARM:], *queries]):
            turn = number % len(systems)
            for name, process in systems[turn:] + systems[:turn]:
                for verb in ("search", "recall") if SYSTEMS[name].kind == "ours" else ("search",):
                    span = process.ask(verb, query, user, seconds=10 * limits.patience_s)
                    asked.setdefault(f"{name} {verb} {user}", []).append(span)
                    spent[name] += span["wall"]
            if max(spent.values()) > limits.patience_s:
                break
    warm = min(WARM, *map(len, work.queries.values()))
    return {key: spans[min(warm, len(spans) - 1) :] for key, spans in asked.items()}


def finish(process: Process, system: System, work: Work, limits: Limits) -> Row:
    """Single adds, while patience lasts, and what it takes of memory and disk."""
    row: Row = {"size": process.ask("size")}
    spans: list[Span] = []
    for note in () if system.rebuilds and work.size > 20_000 else work.late:
        spans.append(process.ask("add", note, seconds=10 * limits.patience_s))
        if sum(span["wall"] for span in spans) > limits.patience_s:
            break
    return row | ({"add": summarize(spans)} if spans else {})


# -- figures -----------------------------------------------------------------------------------------------------------


def _searches(asked: Asked, name: str) -> Row:
    """What a system's calls took, for the large user and for the small one."""
    row: Row = {}
    for key, spans in asked.items():
        system, verb, user = key.split(" ")
        if system == name:
            found = summarize(spans) | {"found": float(np.mean([span["found"] for span in spans]))}
            foreign = sum(span.get("foreign", 0) for span in spans)
            row[verb if user == BIG else f"small {verb}"] = found | {"foreign": foreign}
    return row


def summarize(spans: Sequence[Span]) -> dict[str, float]:
    """Milliseconds at the median and the 95th percentile, by the wall clock and of CPU time, and of how many calls."""
    wall, cpu = (np.array([span[key] for span in spans]) * 1e3 for key in ("wall", "cpu"))
    return {
        "p50_ms": float(np.median(wall)), "p95_ms": float(np.percentile(wall, 95)),
        "cpu_p50_ms": float(np.median(cpu)), "calls": len(spans),
    }  # fmt: skip


def ratios(asked: Asked, name: str) -> dict[str, float]:
    """A rival's search over each of our calls, at the median of the same queries, by either clock."""
    found = {}
    for user, mark in ((BIG, ""), (SMALL, "small ")):
        theirs = asked[f"{name} search {user}"]
        for ours in (OURS, OURS_VECTORS):
            for verb in ("search", "recall"):
                for clock in ("wall", "cpu"):
                    mine = asked[f"{ours} {verb} {user}"][: len(theirs)]
                    over = median(span[clock] for span in theirs) / median(span[clock] for span in mine)
                    found[f"{mark}{ours} {verb} {clock}"] = over
    return found


def _stated(limits: Limits) -> dict[str, float]:
    return {"load_s": limits.load_s, "memory_gb": limits.memory_gb, "patience_s": limits.patience_s}
