"""The service beside an earlier version of it and a bare route: python -m bench.speed.service [--workers 2]

    python -m bench.speed.service              100,000 notes, 50 clients, 6 rounds of 10 s for each: about 5 minutes
    python -m bench.speed.service --quick      2,000 notes, 5 clients, 2 rounds of 2 s

All three servers run from the beginning to the end, and the same clients ask one after the other, a short round each,
whoever goes first changing: so a busy moment hits all alike. The earlier version is commit 9b954fe (`earlier.py`), with
a store that it has filled itself with the same notes. The new one runs with `--workers` processes where `retcon serve`
knows that option. Writes service.json into the folder that `--out` names. Clients and servers share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import ROOT, keep
from bench.load import USER, ClientTally, Server, Work, count_missing, drive, machine, running
from bench.speed.corpus import corpus
from bench.speed.earlier import EARLIER, AbsentError, Version, check_out
from bench.speed.scale import service_table
from bench.speed.server import cpu_of
from retcon.note import Note

OPTIONS = ("notes", "clients", "seconds", "rounds", "adds", "seed", "workers")
SYSTEMS = ("earlier", "now", "bare")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds, and what they say."""
    texts = corpus(options.seed)
    notes = list(texts.notes(options.notes, user_id=USER))
    work = Work(texts.queries([note.text for note in notes], 500), options.adds)
    reading = Work(work.queries, 0.0, [note.id for note in notes[:5_000]], bare=True)
    with check_out(ROOT) as tree, contextlib.ExitStack() as stack:
        trees = {"earlier": tree, "now": ROOT}
        stores = {name: fill(trees[name], folder / f"{name}.db", notes) for name in trees}
        servers = {
            name: stack.enter_context(serving(stores[name], trees[name], options.workers if name == "now" else 0))
            for name in trees
        }
        servers["bare"] = stack.enter_context(running(("bench.load", "--bare", str(stores["now"]))))
        tallies = take_turns(servers, {"earlier": work, "now": work, "bare": reading}, options)
        lost = {name: count_missing(stores[name], tallies[name].written) for name in trees}
    found = {name: tally.summary() for name, tally in tallies.items()}
    return {
        "machine": machine(), "commit": EARLIER, "options": {name: getattr(options, name) for name in OPTIONS},
        "workers": options.workers if knows_workers() else None, "systems": found, "lost": lost,
        "written": {name: len(tallies[name].written) for name in trees},
        "ratios": {other: compare(found["now"], found[other]) for other in ("earlier", "bare")},
        "errors": [f"{name}: {each}" for name, tally in tallies.items() for each in tally.errors][:20],
    }  # fmt: skip


def fill(tree: Path, db: Path, notes: Sequence[Note]) -> Path:
    """The path of a store that this version of the project has filled with the notes."""
    source = db.with_suffix(".jsonl")
    fields = ("id", "text", "session", "speaker", "timestamp")
    lines = (json.dumps({name: getattr(note, name) for name in fields}) + "\n" for note in notes)
    source.write_text("".join(lines), encoding="utf-8")
    version = Version(tree)
    try:
        version.ask("add", str(db), str(source))
        version.ask("close")
    finally:
        version.close()
    return db


def serving(db: Path, tree: Path, workers: int) -> contextlib.AbstractContextManager[Server]:
    """The service of that version over the store."""
    command = ["retcon", "serve", "--db", str(db), "--port", "0", "--json", "--log", "warning"]
    if workers and knows_workers():
        command += ["--workers", str(workers)]
    return running(command, tree)


def knows_workers() -> bool:
    """Whether this version's service can be several processes."""
    asked = subprocess.run(
        [sys.executable, "-m", "retcon", "serve", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return "--workers" in asked.stdout


def take_turns(
    servers: dict[str, Server], works: dict[str, Work], options: argparse.Namespace
) -> dict[str, ClientTally]:
    """What the clients saw of each server in all rounds; a first round, half as long, warms up and does not count."""
    tallies = {name: ClientTally() for name in servers}
    for number in range(options.rounds + 1):
        for name in in_turn(number):
            server, seconds = servers[name], options.seconds if number else options.seconds / 2
            spent = cpu_of(server.process.pid)
            crowd = drive(server, works[name], options.clients, seconds, options.seed + 1_000 * number, None)
            tally = asyncio.run(crowd)
            tally.server_cpu = cpu_of(server.process.pid) - spent
            tallies[name].written |= tally.written
            tallies[name].errors += tally.errors
            if number:
                add_up(tallies[name], tally)
            print(f"{number} {name}: {tally.summary()['per_second']:.0f} a second", file=sys.stderr, flush=True)
            time.sleep(0.2)  # what it does after its last answer is not the next one's
    return tallies


def in_turn(number: int) -> Iterator[str]:
    """The servers, another one first in every round."""
    for place in range(len(SYSTEMS)):
        yield SYSTEMS[(number + place) % len(SYSTEMS)]


def add_up(total: ClientTally, tally: ClientTally) -> None:
    """Count a round in."""
    for kind, seconds in tally.seconds.items():
        total.seconds[kind] += seconds
    total.took += tally.took
    total.client_cpu += tally.client_cpu
    total.server_cpu += tally.server_cpu


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """Ours over theirs."""
    times = {name: ours["all"][f"{name}_ms"] / theirs["all"][f"{name}_ms"] for name in ("p50", "p95")}
    return {"per_second": ours["per_second"] / theirs["per_second"], **times}


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    options = _options(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="retcon-service-") as folder:
            found = measure(options, Path(folder))
    except AbsentError as error:
        raise SystemExit(f"nothing to compare with: {error}") from None
    options.out.mkdir(parents=True, exist_ok=True)
    keep(found, options.out / ("service-quick.json" if options.quick else "service.json"))
    print(service_table(found))
    if found["errors"] or any(found["lost"].values()):
        raise SystemExit(f"errors: {found['errors']}, lost: {found['lost']}")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one round")
    parser.add_argument("--adds", type=float, default=0.2, help="share of requests that write (default: 0.2)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the new service (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a try")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the results")
    options = parser.parse_args(arguments)
    sizes = {"notes": 2_000, "clients": 5, "rounds": 2, "seconds": 2.0} if options.quick else {
        "notes": 100_000, "clients": 50, "rounds": 6, "seconds": 10.0,
    }  # fmt: skip
    for name, value in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


if __name__ == "__main__":
    main()
