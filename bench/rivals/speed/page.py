"""The result of bench.rivals.speed as the tables of docs/rivals-speed.md; `bench.tables` puts them there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bench import RESULTS, grid
from bench.rivals.speed.systems import OURS, OURS_VECTORS, SYSTEMS
from bench.speed.page import Goal, plain
from retcon.lab.report.cells import DASH

RESULT = RESULTS / "rivals_speed.json"
NOT_YET = "*No run yet: `python -m bench.rivals.speed --embedding`.*"
LARGE = 100_000  # notes from which the goals count
TEN = 10.0
LANCE = "lancedb-words"

Results = Mapping[str, Any]
Row = Mapping[str, Any]


def sizes(results: Results) -> list[int]:
    """Every size that was measured."""
    return sorted({int(key.split("@")[1]) for key in results["rows"]})


def names(results: Results) -> list[str]:
    """Every system that was measured, in the order of the list."""
    known = {key.split("@")[0] for key in results["rows"]}
    return [name for name in SYSTEMS if name in known]


def about(results: Results) -> str:
    """Where, when and with what."""
    machine, asked = results["machine"], results["settings"]
    versions = {name: number for cost in results["costs"].values() for name, number in cost.get("versions", {}).items()}
    loads = [row["load_average"] for row in results["rows"].values() if "load_average" in row]
    return (
        f"{results['seconds'] / 60:.0f} minutes on {machine['cores']} cores ({machine['processor']}), Python"
        f" {machine['python']}; {asked['queries']} queries of each user at each size, fewer where a system's patience"
        f" ended; load average {min(loads):.1f} to {max(loads):.1f}. Versions: "
        + ", ".join(f"{name} {number}" for name, number in sorted(versions.items())) + "."
    )  # fmt: skip


# -- searches ----------------------------------------------------------------------------------------------------------


def searches(results: Results, mark: str = "") -> str:
    """Milliseconds of a search of the best 20, p50 / p95, and how many whole recalls of ours it takes."""
    rows = []
    for name in names(results):
        verbs = ("search", "recall") if SYSTEMS[name].kind == "ours" else ("search",)
        for verb in verbs:
            title = f"{SYSTEMS[name].title}, {verb}" if len(verbs) > 1 else SYSTEMS[name].title
            cells = [_searched(results, name, size, mark, verb) for size in sizes(results)]
            rows.append([title, SYSTEMS[name].by, *cells])
    return grid(["", "found by", *(f"{size:,} notes" for size in sizes(results))], rows)


def _searched(results: Results, name: str, size: int, mark: str, verb: str) -> str:
    row = _row(results, name, size)
    found = row.get(f"{mark}{verb}")
    if found is None:
        return str(row.get("why", DASH))
    cell = f"{plain(found['p50_ms'])} / {plain(found['p95_ms'])}{_times_ours(row, mark)}"
    if row.get("why"):
        cell += f", {row['why'].removeprefix('not reached: ')}"
    if found.get("foreign"):
        cell += f", {found['foreign'] / found['calls']:.1f} of 20 another user's"
    return cell


def _times_ours(row: Row, mark: str) -> str:
    """A rival's search in recalls of ours, by words and with vectors."""
    if "ratio" not in row:
        return ""
    bare, full = (row["ratio"][f"{mark}{ours} recall wall"] for ours in (OURS, OURS_VECTORS))
    return f" = {plain(bare)}× ({plain(full)}×)"


def processor(results: Results) -> str:
    """The same searches by CPU time of all threads, at the median, and the ratio by it."""
    head = ["", *(f"{size:,} notes: CPU ms (× our recall)" for size in sizes(results))]
    rows = []
    for name in names(results):
        cells = []
        for size in sizes(results):
            row = _row(results, name, size)
            found, ratio = row.get("search"), row.get("ratio", {}).get(f"{OURS} recall cpu")
            more = f" ({plain(ratio)})" if ratio else ""
            cells.append(f"{plain(found['cpu_p50_ms'])}{more}" if found else DASH)
        rows.append([SYSTEMS[name].title, *cells])
    return grid(head, rows)


# -- adds --------------------------------------------------------------------------------------------------------------


def adds(results: Results) -> str:
    """Notes a second of a bulk add, until the first search can come, and milliseconds of one note by itself."""
    head = [""]
    for size in sizes(results):
        head += [f"bulk, {size:,}", f"one more at {size:,}, ms"]
    head.append("outlives the process")
    rows = []
    for name in names(results):
        cells = [cell for size in sizes(results) for cell in _adds(name, _row(results, name, size))]
        rows.append([SYSTEMS[name].title, *cells, "yes" if SYSTEMS[name].durable else "no"])
    return grid(head, rows)


def _adds(name: str, row: Row) -> tuple[str, str]:
    load, add = row.get("load"), row.get("add")
    bulk = f"{load['per_s']:,.0f}/s" if load else row.get("why", DASH)
    if load and not load["whole"]:
        bulk += f" ({row['why']})"
    one = f"{plain(add['p50_ms'])} / {plain(add['p95_ms'])}" if add else DASH
    if SYSTEMS[name].rebuilds and load:
        one = f"a rebuild: {one}" if add else f"a rebuild: {load['wall_s'] * 1e3:,.0f}"
    return bulk, one


# -- costs -------------------------------------------------------------------------------------------------------------


def costs(results: Results) -> str:
    """Packages, their megabytes, the time of the import, and what each size takes of memory and disk."""
    head = ["", "packages", "MB", "import ms", *(f"{size:,}: MB of memory, peak, disk" for size in sizes(results))]
    rows = []
    for name in names(results):
        cost = results["costs"].get(name, {})
        known = (
            [str(cost["packages"]), f"{cost['mb']:,.0f}", f"{cost['import_ms']:,.0f}"] if "mb" in cost else [DASH] * 3
        )
        rows.append([SYSTEMS[name].title, *known, *(_taken(name, _row(results, name, at)) for at in sizes(results))])
    return grid(head, rows)


def _taken(name: str, row: Row) -> str:
    found = row.get("size")
    if not found:
        return DASH
    disk = f"{found['disk_mb']:,.0f}" if SYSTEMS[name].durable else "none"
    own, peak = found.get("own_mb"), found.get("peak_mb")
    return f"{own:,.0f}, {peak:,.0f}, {disk}" if own and peak else f"{DASH}, {DASH}, {disk}"


def encoding(results: Results) -> str:
    """The same with MiniLM on this processor in place of vectors that are at hand."""
    if not results["embedding"]:
        return "*Not measured: `--embedding`.*"
    rows = []
    for name, found in results["embedding"].items():
        if "why" in found:
            rows.append([SYSTEMS[name].title, found["why"], DASH, DASH])
            continue
        rows.append([
            SYSTEMS[name].title, f"{found['per_s']:,.0f}/s",
            f"{plain(found['search']['p50_ms'])}", f"{plain(found['encode_query']['p50_ms'])}",
        ])  # fmt: skip
    return grid(["", "bulk add", "search, p50 ms", "of it the query's vector, ms"], rows)


# -- goals -------------------------------------------------------------------------------------------------------------


def goals(results: Results) -> str:
    """Each goal with what was measured, met or missed."""
    return grid(["goal", "target", "measured", ""], [goal.row() for goal in judged(results)])


def judged(results: Results) -> Iterator[Goal]:
    """Every goal that this run can judge."""
    for size in sizes(results):
        if size >= LARGE:
            yield from _recall_goals(results, size)
    for size in sizes(results):
        ours, theirs = (_row(results, name, size).get("load") for name in (OURS, LANCE))
        if ours and theirs and theirs["whole"]:
            over = ours["per_s"] / theirs["per_s"]
            yield Goal(f"bulk add at {size:,} notes, rate over LanceDB's full text", 1, over, "×", at_least=True)


def _recall_goals(results: Results, size: int) -> Iterator[Goal]:
    """A whole recall, ten times as fast as the search of each memory that has one at this size."""
    for name in names(results):
        row = _row(results, name, size)
        if SYSTEMS[name].kind == "memory" and "ratio" in row:
            held = f" ({row['load']['notes']:,} notes in it)" if row.get("why") else ""
            what = f"search of {SYSTEMS[name].title} over our whole recall at {size:,} notes{held}"
            yield Goal(what, TEN, row["ratio"][f"{OURS} recall wall"], "×", at_least=True)


# -- all of it ---------------------------------------------------------------------------------------------------------


def _row(results: Results, name: str, size: int) -> Row:
    row: Row = results["rows"].get(f"{name}@{size}", {})
    return row


_SHOWN: Mapping[str, Callable[[Results], str]] = {
    "rivals-speed-about": about,
    "rivals-speed-goals": goals,
    "rivals-speed-search": searches,
    "rivals-speed-small": partial(searches, mark="small "),
    "rivals-speed-processor": processor,
    "rivals-speed-add": adds,
    "rivals-speed-costs": costs,
    "rivals-speed-encoder": encoding,
}


def report(results: Results) -> str:
    """All tables."""
    return "\n\n".join(f"{name}\n\n{make(results)}" for name, make in _SHOWN.items())


def _show(name: str) -> str:
    return _SHOWN[name](json.loads(RESULT.read_text(encoding="utf-8"))) if RESULT.is_file() else NOT_YET


TABLES: Mapping[str, Callable[[], str]] = {name: partial(_show, name) for name in _SHOWN}
