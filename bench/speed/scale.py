"""What the runs of `bench.speed.stores` and `bench.speed.service` say, as the tables of docs/scale.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import grid
from bench.speed.page import Goal

NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
SLOWER, FASTER, SHORTER = 3.0, 2.0, 0.5  # goals: p50 over the file's; requests a second and p95 over the earlier ones

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
            *(f"{plain(each['of_p50'])} / {plain(each['of_p95'])}" for each in over),
        ])  # fmt: skip
    rows.append(["processor time of the server, ms a recall", *(plain(each["server_cpu_ms"]) for each in found)])
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
    if "purge_s" in stages[0]:
        for name, shown in NAMES.items():
            cells = [plain(stage["purge_s"][name]) if "purge_s" in stage else "" for stage in stages]
            rows.append([f"purge, {shown}: seconds", *cells])
    for part, column, what in (("disk", "per_note", "on disk"), ("memory", "bytes_per_note", "in memory")):
        for name, shown in NAMES.items():
            cells = [f"{stage[part][name][column]:,.0f}" for stage in stages]
            rows.append([f"{what}, {shown}: bytes a note", *cells])
    return rows


def _title(words: str, columns: Sequence[Any]) -> list[str]:
    return [f"*{words}*", *[""] * len(columns)]


def service_table(found: Results) -> str:
    """The service, the earlier one and the bare route under the same clients."""
    options, systems = found["options"], found["systems"]
    where = f"{options['clients']} clients, {options['notes']:,} notes, {found['machine']['cores']} cores"
    head = [where, "requests a second", "p50", "p95", "processor time a request", "errors", "writes lost"]
    processes = f"{found['workers']} processes" if found["workers"] else "one process"
    names = {
        "now": f"the service, {processes}",
        "earlier": f"commit {found['commit']}, one process",
        "bare": "a bare route",
    }
    rows: list[Sequence[str]] = []
    for name, shown in names.items():
        run = systems[name]
        lost = f"{found['lost'][name]} of {found['written'][name]:,}" if name in found["lost"] else ""
        cpu = f"{1000 * run['server_cpu'] / run['per_second']:.1f} ms"
        times = [f"{run['all'][f'{each}_ms']:.0f} ms" for each in ("p50", "p95")]
        rows.append([shown, f"{run['per_second']:.0f}", *times, cpu, str(run["errors"]), lost])
    for other, shown in (
        ("earlier", f"the service over {found['commit']}"),
        ("bare", "the service over the bare route"),
    ):
        over = [f"{found['ratios'][other][each]:.2f}" for each in ("per_second", "p50", "p95")]
        rows.append([shown, *over, "", "", ""])
    return grid(head, rows)


def goals_table(stores: Results, service: Results) -> str:
    """Each goal with what was measured."""
    goals = [
        Goal(
            f"recall of a user with {found['notes_each']:,} of {notes_of(stage):,} notes, PostgreSQL over SQLite, p50",
            SLOWER, found["recall"]["ratio"]["of_p50"], "×",
        )
        for stage in stores.get("stages", ())
        for found in stage["recall"].values()
    ]  # fmt: skip
    if service:
        over, shown = service["ratios"]["earlier"], f"over commit {service['commit']}'s"
        goals.append(Goal(f"requests a second {shown}", FASTER, over["per_second"], "×", at_least=True))
        goals.append(Goal(f"p95 of a request {shown}", SHORTER, over["p95"], "×"))
    return grid(("goal", "target", "measured", ""), [goal.row() for goal in goals])


def about(stores: Results) -> str:
    """Where it was measured, and how."""
    machine = stores["machine"]
    settings = ", ".join(f"`{name} = {value}`" for name, value in machine["settings"].items())
    load = ", ".join(f"{stage['load']:.1f}" for stage in stores["stages"])
    return (
        f"One run of `python -m bench.speed.stores`: {stores['queries']} queries of each kind at each size, "
        f"{stores['seconds'] / 60:.0f} minutes, {machine['cores']} cores ({machine['processor']}), Python "
        f"{machine['python']}, SQLite {machine['sqlite']}, PostgreSQL {machine['postgres']} on the same machine over a "
        f"Unix socket, with {settings}, and everything else as it comes. Load average at each size: {load}."
    )


def growth_table(stores: Results) -> str:
    """What changes from the first size to the last."""
    first, last = stores["stages"][0], stores["stages"][-1]
    looks: dict[str, Callable[[Results, str], float]] = {
        "recall, p50": lambda stage, name: stage["recall"]["ordinary"]["recall"][name]["p50_ms"],
        "recall, p95": lambda stage, name: stage["recall"]["ordinary"]["recall"][name]["p95_ms"],
        "one note added, p50": lambda stage, name: stage["single"][name]["p50_ms"],
        "one note added, p95": lambda stage, name: stage["single"][name]["p95_ms"],
        "bytes a note on disk": lambda stage, name: stage["disk"][name]["per_note"],
    }
    rows = [
        [what, *(f"{look(last, name) / look(first, name):.2f}" for name in NAMES)] for what, look in looks.items()
    ]  # fmt: skip
    rates = [last["bulk"].get(name) or first["bulk"][name] for name in NAMES]
    rows.append(["bulk add: notes a second at the end over the beginning", *(
        f"{rate['last_per_s'] / rate['first_per_s']:.2f}" for rate in rates
    )])  # fmt: skip
    return grid((f"{notes_of(last):,} over {notes_of(first):,} notes", *NAMES.values()), rows)


def notes_of(stage: Results) -> int:
    """How many notes both stores held."""
    return min(int(held) for held in stage["notes"].values())


def users_of(stage: Results) -> int:
    """How many users both stores held."""
    return min(int(held) for held in stage["users"].values())


def _times(found: Results) -> str:
    return f"{plain(found['p50_ms'])} / {plain(found['p95_ms'])}"


def plain(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
