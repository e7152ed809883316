"""What the runs of `bench.speed.stores` and `bench.speed.service` say, as the tables of docs/scale.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import grid

NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
GOAL = 3.0  # PostgreSQL's p50 over the file's

Results = dict[str, Any]


def stores_table(results: Results) -> str:
    """Both stores at every size, and the one over the other."""
    stages: list[Results] = results["stages"]
    head = ["", *(f"{notes_of(stage):,} notes, {users_of(stage):,} users" for stage in stages)]
    rows: list[Sequence[str]] = []
    for kind in stages[0]["recall"]:
        rows += _asked(kind, [stage["recall"][kind] for stage in stages])
    return grid(head, rows + _adds(stages) + _sizes(stages))


def _asked(kind: str, found: Sequence[Results]) -> list[Sequence[str]]:
    who = "the heavy user" if kind == "heavy" else "a user"
    rows: list[Sequence[str]] = [_title(f"{who}, {found[0]['notes_each']:,} notes", found)]
    for verb in ("search", "recall"):
        for name, shown in NAMES.items():
            rows.append([f"{verb}, {shown}: p50 / p95, ms", *(_times(each[verb][name]) for each in found)])
        over = [each[verb]["ratio"] for each in found]
        rows.append([
            f"{verb}, PostgreSQL over SQLite",
            *(f"{_plain(each['of_p50'])} / {_plain(each['of_p95'])}" for each in over),
        ])  # fmt: skip
    rows.append(["processor time of the server, ms a recall", *(_plain(each["server_cpu_ms"]) for each in found)])
    rows.append(["answers that differ", *(str(each["differ"]) for each in found)])
    return rows


def _adds(stages: Sequence[Results]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [_title("adding", stages)]
    for name, shown in NAMES.items():
        cells = [f"{stage['bulk'][name]['notes_per_s']:,.0f}" if name in stage["bulk"] else "" for stage in stages]
        rows.append([f"bulk, {shown}: notes a second", *cells])
    for name, shown in NAMES.items():
        rows.append([f"one note, {shown}: p50 / p95, ms", *(_times(stage["single"][name]) for stage in stages)])
    return rows


def _sizes(stages: Sequence[Results]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [_title("size", stages)]
    for part, column, what in (("disk", "per_note", "on disk"), ("memory", "bytes_per_note", "in memory")):
        for name, shown in NAMES.items():
            cells = [f"{stage[part][name][column]:,.0f}" for stage in stages]
            rows.append([f"{what}, {shown}: bytes a note", *cells])
    return rows


def _title(words: str, columns: Sequence[Any]) -> list[str]:
    return [f"*{words}*", *[""] * len(columns)]


def notes_of(stage: Results) -> int:
    """How many notes both stores held."""
    return min(int(held) for held in stage["notes"].values())


def users_of(stage: Results) -> int:
    """How many users both stores held."""
    return min(int(held) for held in stage["users"].values())


def _times(found: Results) -> str:
    return f"{_plain(found['p50_ms'])} / {_plain(found['p95_ms'])}"


def _plain(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
