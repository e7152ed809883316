"""Results of a run -> Markdown: one table a question, and each goal met or missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.speed.stages import DEFAULT, FEW, OURS, TOP

Results = dict[str, Any]
NOT_MEASURED = "–"
EVEN = 1.25  # "as fast as": a quarter for chance and for the larger file's deeper trees


@dataclass(frozen=True, slots=True)
class Goal:
    """One target with what was measured."""

    what: str
    target: float
    measured: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target

    def row(self) -> list[str]:
        sign = "≥" if self.at_least else "≤"
        verdict = "met" if self.met else f"missed by {abs(self.measured / self.target - 1):.0%}"
        return [self.what, f"{sign} {plain(self.target)}{self.unit}", f"{plain(self.measured)}{self.unit}", verdict]


def goals(results: Results) -> list[Goal]:
    """Every goal that this run can judge."""
    largest = max(results["sizes"])
    at = {size: results["at"][str(size)] for size in results["sizes"]}
    top = at[largest]
    beside, small = top["retrieval"]["ratio"]["tantivy"], top["small"]["ratio"]
    out = [
        Goal(f"retrieval at {largest:,} notes, time over tantivy's", 2, beside["of_cpu_p50"], "×"),
        Goal(
            f"top-{TOP} agreement with exhaustive BM25, worst size", 0.99,
            min(found["retrieval"]["agreement"]["mean"] for found in at.values()), at_least=True,
        ),
        Goal(f"search of a user with {FEW} of {largest:,} notes over alone", EVEN, small["search"]["of_cpu_p50"], "×"),
        Goal("recall of that user over alone", EVEN, small["recall"]["of_cpu_p50"], "×"),
        Goal(
            f"features and route, {TOP} candidates, embeddings included, worst size", 1,
            max(found["recall"]["parts"]["the same with embedding"]["cpu_p50_ms"] for found in at.values()), " ms",
        ),
    ]  # fmt: skip
    for size, found in at.items():
        out.append(
            Goal(
                f"recall without a model over search, {size:,} notes",
                2,
                found["recall"]["ratio"]["of_cpu_p50"],
                "×",
            )
        )
    for name, found in results.get("earlier", {}).get("on", {}).items():
        on = name if name == "LoCoMo" else f"{name} notes"
        out.append(Goal(f"lexical recall over an earlier version's, {on}", EVEN, found["recall"]["ratio"], "×"))
        out.append(Goal(f"bulk add over an earlier version's, {on}", 3, found["add"]["ratio"], "×", at_least=True))
    out.append(Goal("import retcon over import numpy", 2, results["imports"]["ratio"]["of_best_cpu"], "×"))
    return out


def page(results: Results) -> str:
    """The whole report."""
    parts = [
        "# Speed", _about(results), "## Goals", table(results), "## Retrieval of the top 20", _retrieval(results),
        "## Adding", _adding(results), "## Recall", _recall(results),
        "## Beside an earlier version", _earlier(results),
        f"## A user with {FEW} notes among many", _small(results), "## Import and memory", _rest(results),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def section(results: Results) -> str:
    """The report without its title, headings one level lower: as a part of docs/speed.md."""
    return page(results).split("\n", 2)[2].strip().replace("\n## ", "\n### ")


def table(results: Results) -> str:
    """The goals as a table."""
    return _table(["goal", "target", "measured", ""], [goal.row() for goal in goals(results)])


def _about(results: Results) -> str:
    machine = results["machine"]
    load = ", ".join(NOT_MEASURED if value is None else f"{value:.1f}" for value in results["load"])
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"One run of `python -m bench.speed`: {results['queries']} queries at each size, {results['seconds'] / 60:.0f} "
        f"minutes, {machine['cores']} cores ({machine['processor']}, {machine['system']}), Python {machine['python']}, "
        f"SQLite {machine['sqlite']}, {packages}. Load average at the start and after each size: {load}.\n\n"
        "Times are milliseconds by the wall clock, p50 / p95, and in brackets the median of the calling thread's CPU "
        "time, which other work on the machine does not lengthen. Ratios and goals go by CPU time: the ratio of the "
        "medians, in brackets the median of the ratios query by query. All systems took turns at every query."
    )


def _retrieval(results: Results) -> str:
    names = list(
        dict.fromkeys(name for size in results["sizes"] for name in _at(results, size)["retrieval"]["retrieval"])
    )
    rows = []
    for name in names:
        row = [name]
        for size in results["sizes"]:
            found = _at(results, size)["retrieval"]
            row += [_times(found["retrieval"].get(name)), _ratio(found["ratio"].get(name), own=name == OURS)]
        rows.append(row)
    head = [""]
    for size in results["sizes"]:
        head += [f"{size:,} notes", "ours/theirs"]
    agreement = "; ".join(
        f"{size:,} notes {found['mean']:.4f} (worst query {found['least']:.2f}, from {found['from']})"
        for size in results["sizes"]
        for found in [_at(results, size)["retrieval"]["agreement"]]
    )
    return (
        f'{_table(head, rows)}\n\n"{OURS}" uses all words of the query, as the rivals do; "{DEFAULT}" is what '
        "`Memory` does by default.\n\n"
        f"Agreement of the top {TOP} with exhaustive BM25: {agreement}."
    )


def _adding(results: Results) -> str:
    sizes = results["sizes"]
    rows = [["retcon, bulk", *(_rate(_at(results, size)["store"]) for size in sizes)]]
    rivals = list(dict.fromkeys(name for size in sizes for name in _at(results, size)["retrieval"]["build"]))
    for name in rivals:
        rows.append([f"{name}, built", *(_rate(_at(results, size)["retrieval"]["build"].get(name)) for size in sizes)])
    for name in ("Memory.add", "store.add"):
        rows.append([f"retcon, one note, {name}", *(_times(_at(results, size)["single"].get(name)) for size in sizes)])
    for name in rivals:
        adds = [_at(results, size)["retrieval"]["single_add"].get(name) for size in sizes]
        if any(adds):
            rows.append([f"{name}, one text, committed", *map(_times, adds)])
    users = results["users"]
    return (
        _table(["", *(f"{size:,} notes" for size in sizes)], rows)
        + "\n\nRates are notes a second by the wall clock, in brackets per second of the calling thread's own time "
        "(tantivy indexes in threads of its own). retcon stores, links and indexes the notes in one transaction, "
        f"the rivals only index. {users['notes']:,} notes of {users['users']:,} users in one bulk add: {_rate(users)}. "
        "One note: ms, p50 / p95. bm25s and rank_bm25 take in a new text only by a rebuild."
    )


def _recall(results: Results) -> str:
    sizes = results["sizes"]
    found = [_at(results, size)["recall"] for size in sizes]
    rows = [[name, *(_times(at[name]) for at in found)] for name in ("search", "recall")]
    rows.append(["recall/search", *(_ratio(at["ratio"]) for at in found)])
    rows += [[f"of it: {name}", *(_times(at["parts"][name]) for at in found)] for name in found[0]["parts"]]
    return _table(["", *(f"{size:,} notes" for size in sizes)], rows)


def _earlier(results: Results) -> str:
    found = results.get("earlier", {"absent": "this run is older than the comparison"})
    if "absent" in found:
        return f"Not compared: {found['absent']}."
    on = found["on"]
    rows = [
        [
            what,
            *(
                f"{plain(at[verb]['now'])} / {plain(at[verb]['earlier'])} = {plain(at[verb]['ratio'])}"
                for at in on.values()
            ),
        ]
        for verb, what in (("add", "bulk add, notes a second"), ("search", "search, ms"), ("recall", "recall, ms"))
    ]
    return (
        _table(["now / earlier", *(name if name == "LoCoMo" else f"{name} notes" for name in on)], rows)
        + f"\n\nThe earlier version is commit {found['commit']}. It had no checksums, no second look at the best "
        "hundred candidates and no passages. All by the CPU time of two "
        "processes that take turns: the quickest bulk add (`Memory.add` of a list), the median query."
    )


def _small(results: Results) -> str:
    sizes = results["sizes"]
    found = [_at(results, size)["small"] for size in sizes]
    rows = []
    for verb in ("search", "recall"):
        rows += [[f"{verb}, {name}", *(_times(at[f"{verb} {name}"]) for at in found)] for name in ("crowded", "alone")]
        rows.append([f"{verb}, crowded/alone", *(_ratio(at["ratio"][verb]) for at in found)])
    return _table(["", *(f"in a store of {size:,}" for size in sizes)], rows)


def _rest(results: Results) -> str:
    imports = results["imports"]
    rows = []
    for size in results["sizes"]:
        at = _at(results, size)
        anonymous = at["recall"]["anonymous_mb"]
        own = NOT_MEASURED if anonymous is None else f"{anonymous:,.0f}"
        rows.append([
            f"{size:,}", f"{at['store']['file_mb']:,.0f}", f"{at['store']['peak_rss_mb']:,.0f}",
            f"{at['recall']['peak_rss_mb']:,.0f}", own,
        ])  # fmt: skip
    ours, numpy = imports["retcon"], imports["numpy"]
    return (
        f"`import retcon` {ours['best_cpu_ms']:.0f} ms, `import numpy` {numpy['best_cpu_ms']:.0f} ms of CPU time, best "
        f"of {ours['calls']} fresh processes each; by the wall clock {ours['p50_ms']:.0f} and {numpy['p50_ms']:.0f} ms "
        "at the median.\n\n"
        + _table(
            ["notes", "file, MB", "bulk add, peak RSS MB", "queries, peak RSS MB", "of it not pages of the file, MB"],
            rows,
        )
    )


def _at(results: Results, size: int) -> dict[str, Any]:
    found: dict[str, Any] = results["at"][str(size)]
    return found


def _times(found: dict[str, float] | None) -> str:
    if not found:
        return NOT_MEASURED
    return f"{plain(found['p50_ms'])} / {plain(found['p95_ms'])} ({plain(found['cpu_p50_ms'])})"


def _ratio(found: dict[str, float] | None, *, own: bool = False) -> str:
    if own:
        return "1"
    return f"{plain(found['of_cpu_p50'])} ({plain(found['median_cpu'])})" if found else NOT_MEASURED


def _rate(found: dict[str, float] | None) -> str:
    return f"{found['notes_per_s']:,.0f}/s ({found['notes_per_cpu_s']:,.0f}/s)" if found else NOT_MEASURED


def plain(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
