"""Sizes that no machine here holds, worked out from what was measured: python -m bench.speed.paper [--core-hour 0.05]

Prints the tables "on paper" of docs/scale.md for your own prices and your own traffic. Every line is one multiplication
with its factors written out; what was measured comes from bench/results/stores.json, what is assumed from the options.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from bench import RESULTS, grid
from bench.speed.scale import NAMES, Results, notes_of, plain

HUNDRED_MILLION = 100_000_000
HOURS = 730  # of a month
DAY = 86_400  # seconds
REWRITE = 2.0  # a purge needs room for a second copy


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the reader may change; prices are in dollars, and nobody's list price."""

    users: float = 10_000_000
    notes: float = 1_000  # of a user
    recalls: float = 10  # of a user, a day
    adds: float = 10  # of a user, a day
    peak: float = 3.0  # the busiest moment over the mean
    busy: float = 0.6  # share of a core that is used at that moment
    http: float = 1.5  # ms of a core that HTTP costs a request, beside the call itself
    partition: float = 100_000_000  # notes that one database holds
    copies: float = 3  # of a database: one that writes, the others read and stand by
    resident: float = 0.1  # share of the bytes that is asked for, and so held in memory
    core_hour: float = 0.04
    memory_month: float = 3.0  # a GB of memory for a month
    disk_month: float = 0.1  # a GB of disk for a month


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity with how it comes about."""

    what: str
    how: str
    value: float
    unit: str = ""

    def row(self) -> list[str]:
        """As a row of a table."""
        return [self.what, self.how, f"{plain(self.value)}{self.unit}"]


def hundred_million_table(stores: Results) -> str:
    """100,000,000 notes in one store: time to add, size, time of a recall."""
    stage = stores["stages"][-1]
    rows = []
    for name, shown in NAMES.items():
        rate = (stage["bulk"].get(name) or stores["stages"][0]["bulk"][name])["last_per_s"]
        size, times = stage["disk"][name]["per_note"], stage["recall"]["ordinary"]["recall"][name]
        hours = HUNDRED_MILLION / rate / 3600
        rows.append([
            shown, f"{HUNDRED_MILLION:,} / {rate:,.0f} a second = {hours:.1f} h",
            f"{HUNDRED_MILLION:,} × {size:,.0f} B = {HUNDRED_MILLION * size / 1e9:,.0f} GB",
            f"{plain(times['p50_ms'])} / {plain(times['p95_ms'])} ms, while what is asked for is in memory",
            _purge(stores["stages"][0], name),
        ])  # fmt: skip
    head = (f"from {notes_of(stage):,} notes", "bulk add, one process", "on disk", "recall, p50 / p95", "purge")
    return grid(head, rows)


def _purge(stage: Results, name: str) -> str:
    """How long a rewrite of all files would take, if it takes as long for every note."""
    if "purge_s" not in stage:
        return "not measured (`--purge`)"
    seconds, notes = stage["purge_s"][name], notes_of(stage)
    return f"{plain(seconds)} s / {notes:,} × {HUNDRED_MILLION:,} = {seconds / notes * HUNDRED_MILLION / 3600:.1f} h"


def internet_table(stores: Results, given: Assumptions | None = None) -> str:
    """A deployment for many users, line by line."""
    return grid(("", "arithmetic", ""), [line.row() for line in work_out(stores, given or Assumptions())])


def assumptions_table(given: Assumptions | None = None) -> str:
    """What is assumed, with the option that changes it."""
    told = given or Assumptions()
    rows = [[f"`{option_of(name)}`", _ABOUT[name], plain(value)] for name, value in vars_of(told).items()]
    return grid(("option", "means", "assumed"), rows)


def work_out(stores: Results, given: Assumptions) -> Iterator[Line]:
    """Every quantity, in the order in which they come about."""
    stage = stores["stages"][-1]
    asked, single = stage["recall"]["ordinary"], stage["single"]
    per_note = stage["disk"]["postgres"]["per_note"]
    notes = given.users * given.notes
    yield Line("notes", f"{given.users:,.0f} users × {given.notes:,.0f}", notes)
    size = notes * per_note / 1e9
    yield Line("bytes of one copy", f"× {per_note:,.0f} B a note (measured)", size / 1e3, " TB")
    partitions = math.ceil(notes / given.partition)
    yield Line("databases, split by user", f"/ {given.partition:,.0f} notes in each", partitions)
    yield Line("servers of databases", f"× {given.copies:g} copies", partitions * given.copies)
    rates = {}
    for what, count, client, server in (
        ("recalls", given.recalls, asked["recall"]["postgres"]["cpu_p50_ms"], asked["server_cpu_ms"]),
        ("adds", given.adds, single["postgres"]["cpu_p50_ms"], single["server_cpu_ms"]),
    ):
        rates[what] = rate = given.users * count / DAY * given.peak
        yield Line(f"{what} a second at the peak", f"{given.users:,.0f} × {count:g} / {DAY:,} s × {given.peak:g}", rate)
        yield Line(
            f"cores of services for {what}",
            f"× ({plain(client)} ms (measured, median) + {given.http:g} of HTTP) / {given.busy:g} busy",
            rate * (client + given.http) / 1e3 / given.busy,
        )  # fmt: skip
        yield Line(
            f"cores of databases for {what}",
            f"{plain(rate)} × {plain(server)} ms (measured) / {given.busy:g} busy", rate * server / 1e3 / given.busy,
        )  # fmt: skip
        rates[f"{what} cores"] = rate * (client + given.http + server) / 1e3 / given.busy
    yield from _prices(given, size, rates)


def _prices(given: Assumptions, size: float, rates: dict[str, float]) -> Iterator[Line]:
    cores = rates["recalls cores"] + rates["adds cores"]
    compute = cores * HOURS * given.core_hour
    yield Line("cores a month", f"{plain(cores)} × {HOURS} h × ${given.core_hour:g}", compute, " $")
    resident = size * given.resident * given.copies
    memory = resident * given.memory_month
    yield Line(
        "memory a month",
        f"{plain(size)} GB × {given.resident:g} asked for × {given.copies:g} copies × ${given.memory_month:g}",
        memory, " $",
    )  # fmt: skip
    disk = size * REWRITE * given.copies * given.disk_month
    yield Line(
        "disk a month",
        f"{plain(size)} GB × {REWRITE:g} (room for a purge) × {given.copies:g} copies × ${given.disk_month:g}",
        disk, " $",
    )  # fmt: skip
    millions = given.users * given.recalls * HOURS * 3600 / DAY / 1e6
    total = compute + memory + disk
    yield Line("a month", "the three together", total, " $")
    yield Line("**a million recalls**", f"/ {plain(millions)} million recalls a month", total / millions, " $")
    own = rates["recalls cores"] * HOURS * given.core_hour / millions
    yield Line("of it cores that recall", f"{plain(rates['recalls cores'])} cores alone, / the same", own, " $")
    yield Line("a user, a year", f"a month × 12 / {given.users:,.0f}", total * 12 / given.users, " $")


_ABOUT = {
    "users": "who have notes", "notes": "of a user", "recalls": "of a user, a day", "adds": "notes of a user, a day",
    "peak": "the busiest moment over the mean", "busy": "share of a core that is used at that moment",
    "http": "ms of a core that HTTP costs a request, beside the call itself",
    "partition": "notes that one database holds", "copies": "of a database: one writes, the others stand by",
    "resident": "share of the bytes that is asked for, and so held in memory",
    "core_hour": "dollars, a core for an hour",
    "memory_month": "dollars, a GB of memory for a month", "disk_month": "dollars, a GB of disk for a month",
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Print the tables for the reader's own figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars_of(Assumptions()).items():
        told = f"{_ABOUT[name]} (default: %(default)s)"
        parser.add_argument(option_of(name), type=float, default=value, help=told)
    given = Assumptions(**vars(parser.parse_args(arguments)))
    if min(vars_of(given).values()) <= 0:
        parser.error("every figure must be above 0")
    stores: Any = json.loads((RESULTS / "stores.json").read_text(encoding="utf-8"))
    print("\n\n".join((hundred_million_table(stores), assumptions_table(given), internet_table(stores, given))))


def option_of(name: str) -> str:
    """The option that sets a figure."""
    return f"--{name.replace('_', '-')}"


def vars_of(given: Assumptions) -> dict[str, float]:
    """The figures by their names."""
    return {each.name: getattr(given, each.name) for each in fields(given)}


if __name__ == "__main__":
    main()
