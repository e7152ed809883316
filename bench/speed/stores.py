"""A file beside a PostgreSQL server, in one run: python -m bench.speed.stores [--stages 1000000:1000,5000000:10000]

    python -m bench.speed.stores                               1,000,000 notes of 1,000 users
    python -m bench.speed.stores --stages 1000000:1000,5000000:10000 --keep FOLDER
    python -m bench.speed.stores --quick                       20,000 notes of 20 users: under a minute

A stage is so many notes of so many users in all; beside them one heavy user has `--heavy` notes, added first. Each
stage goes on where the one before it ended, and asks the same users, those of the first stage, so that what a fuller
store costs them is seen. Notes are added user by user, some users at a time, in one transaction each; the stores take
turns at that and at every query, and whoever goes first changes. Answers that differ between the stores are counted.

`--keep` leaves the stores in a folder, and a run that was stopped goes on there. `--minutes` ends the adding after so
long: what is measured then is what there is. Writes stores.json (--quick: stores-quick.json) into the folder that
`--out` names; `python -m bench.tables` makes the tables of docs/scale.md from it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import ROOT, keep
from bench.speed.clocks import Timing, clock, machine_facts, read_anonymous, summarize_times, time_call
from bench.speed.corpus import Corpus, corpus
from bench.speed.scale import stores_table
from bench.speed.server import SETTINGS, Server, started
from retcon import Memory, reading
from retcon.errors import NotFoundError
from retcon.note import Note

STORES = ("sqlite", "postgres")
FULL, QUICK = ((1_000_000, 1_000),), ((20_000, 20), (40_000, 60))
HEAVY, QUICK_HEAVY = 50_000, 5_000
CHUNK = 50_000  # notes that are added at a time
SINGLE = 200  # notes added one by one at each stage
WARM = 10
BUDGET = 256  # tokens of a recall


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with so many notes; `number` is the part of the corpus that they come from."""

    name: str
    number: int
    notes: int

    def make(self, seed: int) -> list[Note]:
        """All of the notes."""
        return list(corpus_of(seed).notes(self.notes, user_id=self.name, part=self.number))


@functools.cache
def corpus_of(seed: int) -> Corpus:
    """The corpus of a seed, made once."""
    return corpus(seed)


def plan(stages: Sequence[tuple[int, int]], heavy: int) -> list[list[User]]:
    """Who is added in each stage: the new users share the notes that are missing."""
    out: list[list[User]] = []
    notes = users = 0
    for more_notes, more_users in stages:
        each, rest = divmod(more_notes - notes, more_users - users)
        new = [User(f"u{n}", n + 10, each + (n - users < rest)) for n in range(users, more_users)]
        out.append(([] if out or not heavy else [User("heavy", 9, heavy)]) + new)
        notes, users = more_notes, more_users
    return out


def chunks(users: Sequence[User]) -> Iterator[list[User]]:
    """Users whose notes are added together."""
    some: list[User] = []
    for user in users:
        some.append(user)
        if sum(each.notes for each in some) >= CHUNK:
            yield some
            some = []
    if some:
        yield some


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The two stores, and what is known of them."""

    memories: dict[str, Memory]
    server: Server
    file: Path
    seed: int
    until: float = float("inf")  # by the clock: when the adding ends

    def order(self, turn: int) -> list[str]:
        """The stores, whoever's turn it is first."""
        return list(STORES if turn % 2 else reversed(STORES))

    def cpu(self, name: str) -> float:
        """Processor time of the server, which a file has none of."""
        return self.server.cpu() if name == "postgres" else 0.0


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All numbers of one run."""
    began = time.perf_counter()
    until = began + options.minutes * 60
    with started(folder / "postgres") as server, contextlib.ExitStack() as opened:
        places: dict[str, Any] = {"sqlite": folder / "stores.db", "postgres": server.url}
        memories = {name: opened.enter_context(Memory(places[name])) for name in STORES}
        run = Run(memories, server, folder / "stores.db", options.seed, until)
        found = []
        planned = plan(options.stages, options.heavy)
        for users in planned:
            found.append(_stage(run, users, planned[0], options))
        about = {"postgres": server.version(), "settings": SETTINGS}
    return {
        "machine": machine_facts() | about, "queries": options.queries, "seed": options.seed, "heavy": options.heavy,
        "stages": found, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def _stage(run: Run, users: Sequence[User], first: Sequence[User], options: argparse.Namespace) -> dict[str, Any]:
    bulk = fill(run, users)
    ordinary = [user for user in first if user.name != "heavy"]
    heavy = [user for user in first if user.name == "heavy"]
    held = {name: memory.stats()["notes"] for name, memory in run.memories.items()}
    found: dict[str, Any] = {
        "notes": held, "users": {name: memory.stats()["scopes"] for name, memory in run.memories.items()},
        "each": ordinary[0].notes, "bulk": bulk, "single": add_single(run, ordinary), "load": os.getloadavg()[0],
    }  # fmt: skip
    print("recall ...", file=sys.stderr, flush=True)
    asked = {"ordinary": ordinary} | ({"heavy": heavy} if heavy else {})
    found["recall"] = {kind: ask(run, who, options.queries) for kind, who in asked.items()}
    with run.server.connect() as connection:
        connection.execute("CHECKPOINT")
    found["disk"] = {name: disk(run, name, int(held[name])) for name in STORES}
    if options.purge and users is first:
        print("purge ...", file=sys.stderr, flush=True)
        found["purge_s"] = purge(run)
    found["memory"] = {name: memory_of(run, name, ordinary, int(held[name])) for name in STORES}
    return found


def fill(run: Run, users: Sequence[User]) -> dict[str, Any]:
    """Notes a second of each store: of all chunks, the first and the last; those that are there are passed over."""
    spans: dict[str, list[tuple[int, Timing, float]]] = {name: [] for name in STORES}
    for number, some in enumerate(chunks(users)):
        if time.perf_counter() > run.until:
            print("time is over: measured is what there is", file=sys.stderr)
            break
        notes = [note for user in some for note in user.make(run.seed)]
        for name in run.order(number):
            if _holds(run.memories[name], notes[-1]):
                continue
            spent = run.cpu(name)
            span = time_call(run.memories[name].store.add, notes)
            spans[name].append((len(notes), span, run.cpu(name) - spent))
            print(f"{name} {number + 1}: {len(notes) / span.wall:,.0f} notes/s", file=sys.stderr, flush=True)
    return {name: _rates(found) for name, found in spans.items() if found}


def _holds(memory: Memory, note: Note) -> bool:
    """Whether the note is there, and so its chunk: a chunk is one transaction."""
    try:
        memory.store.get(note.id)
    except NotFoundError:
        return False
    return True


def _rates(found: Sequence[tuple[int, Timing, float]]) -> dict[str, float]:
    def rate(some: Sequence[tuple[int, Timing, float]]) -> float:
        return sum(notes for notes, _, _ in some) / sum(span.wall for _, span, _ in some)

    notes, few = sum(each[0] for each in found), max(1, len(found) // 5)
    return {
        "notes": notes, "seconds": sum(span.wall for _, span, _ in found), "notes_per_s": rate(found),
        "first_per_s": rate(found[:few]), "last_per_s": rate(found[-few:]),
        "client_cpu_us": sum(span.cpu for _, span, _ in found) / notes * 1e6,
        "server_cpu_us": sum(server for _, _, server in found) / notes * 1e6,
    }  # fmt: skip


def add_single(run: Run, users: Sequence[User]) -> dict[str, Any]:
    """Notes added one by one by `Memory.add`, to one user after the other, each in a transaction of its own."""
    times: dict[str, list[Timing]] = {name: [] for name in STORES}
    texts = [note.text for note in corpus_of(run.seed).notes(SINGLE + WARM, part=3)]
    server = 0.0
    for number, text in enumerate(texts):
        user = users[number % len(users)]
        for name in run.order(number):
            spent = run.cpu(name)
            span = time_call(run.memories[name].add, text, user_id=user.name, session=f"late-{number % 7}")
            if number >= WARM:
                times[name].append(span)
                server += run.cpu(name) - spent
    found = {name: summarize_times(spans) for name, spans in times.items()}
    return found | {"ratio": _ratio(times), "server_cpu_ms": server / SINGLE * 1e3}


def purge(run: Run) -> dict[str, float]:
    """Seconds that each store takes to rewrite its files after a delete; writers wait, on a server readers too."""
    for memory in run.memories.values():
        memory.add("to be gone", user_id="gone")
        memory.delete_all(user_id="gone")
    return {name: time_call(run.memories[name].purge).wall for name in STORES}


def ask(run: Run, users: Sequence[User], count: int) -> dict[str, Any]:
    """Recalls and searches of these users, one of them a query, in turn on both stores."""
    times: dict[str, dict[str, list[Timing]]] = {verb: {name: [] for name in STORES} for verb in ("search", "recall")}
    server, differs = 0.0, 0
    for number, (user, query) in enumerate(questions(run.seed, users, count + WARM)):
        texts = {}
        for name in run.order(number):
            for verb, call in _calls(run.memories[name], query, user.name).items():
                spent = run.cpu(name) if verb == "recall" else 0.0
                reading.forget()  # what the other store has just had this process work out
                texts[name, verb], span = clock(call)
                if number >= WARM:
                    times[verb][name].append(span)
                    server += run.cpu(name) - spent if verb == "recall" else 0.0
        differs += any(_shown(texts["sqlite", verb]) != _shown(texts["postgres", verb]) for verb in times)
    found = {
        verb: {name: summarize_times(spans) for name, spans in of.items()} | {"ratio": _ratio(of)}
        for verb, of in times.items()
    }
    return found | {"differ": differs, "server_cpu_ms": server / count * 1e3, "notes_each": users[0].notes}


def _calls(memory: Memory, query: str, user: str) -> dict[str, Callable[[], Any]]:
    return {
        "search": functools.partial(memory.search, query, user_id=user),
        "recall": functools.partial(memory.recall, query, user_id=user, budget=BUDGET),
    }


def _shown(found: Any) -> Any:
    """What must be the same on both: the text of a recall, texts and scores of a search; late notes have other ids."""
    return found.text if hasattr(found, "text") else [(hit.note.text, hit.score) for hit in found]


def questions(seed: int, users: Sequence[User], count: int) -> list[tuple[User, str]]:
    """So many questions, each of another user while there are enough, about notes of theirs."""
    made, out = corpus_of(seed), []
    few = [users[int(at)] for at in np.linspace(0, len(users) - 1, min(len(users), count)).astype(int)]
    for number, user in enumerate(few):
        texts = [note.text for note in made.notes(min(user.notes, 1_000), user_id=user.name, part=user.number)]
        many = len(range(number, count, len(few)))
        out += [(user, query) for query in replace(made, seed=seed + number).queries(texts, many)]
    return out[:count]


def _ratio(times: dict[str, list[Timing]]) -> dict[str, float]:
    """PostgreSQL's time by the wall clock over the file's: of the medians, the 95th percentiles, and query by query."""
    ours, theirs = (np.array([span.wall for span in times[name]]) for name in ("postgres", "sqlite"))
    return {
        "of_p50": float(np.median(ours) / np.median(theirs)),
        "of_p95": float(np.percentile(ours, 95) / np.percentile(theirs, 95)),
        "median": float(np.median(ours / theirs)),
    }


# -- size --------------------------------------------------------------------------------------------------------------


def disk(run: Run, name: str, notes: int) -> dict[str, Any]:
    """Bytes on disk: of the file, or of all tables and indexes; a log is apart, and does not grow with the notes."""
    if name == "sqlite":
        size, log = run.file.stat().st_size, Path(f"{run.file}-wal")
        return {"bytes": size, "per_note": size / notes, "log": log.stat().st_size if log.exists() else 0}
    parts = """
    SELECT regexp_replace(relname, '_[0-9]+$', ''), sum(pg_total_relation_size(pg_class.oid))::bigint,
      sum(pg_indexes_size(pg_class.oid))::bigint FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = 'retcon' AND relkind = 'r' GROUP BY 1
    """
    with run.server.connect() as connection:
        tables = {row[0]: {"bytes": row[1], "indexes": row[2]} for row in connection.execute(parts)}
        row = connection.execute("SELECT sum(size)::bigint FROM pg_ls_waldir()").fetchone()
    size = sum(table["bytes"] for table in tables.values())
    large = {name: table for name, table in tables.items() if table["bytes"] > size / 100}
    return {"bytes": size, "per_note": size / notes, "log": int(row[0]) if row else 0, "tables": large}


def memory_of(run: Run, name: str, users: Sequence[User], notes: int) -> dict[str, Any]:
    """Megabytes of a fresh process that asks 50 questions, and of the server's processes."""
    where = str(run.file) if name == "sqlite" else run.server.url
    asked = [(user.name, query) for user, query in questions(run.seed, users, 50)]
    given = json.dumps({"where": where, "asked": asked})
    command = [sys.executable, "-m", "bench.speed.stores", "--asking"]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if name == "postgres":
        found["server_mb"] = run.server.own_mb()
    own = (found["anonymous_mb"] or 0.0) + found.get("server_mb", 0.0)
    return found | {"bytes_per_note": own * 1e6 / notes}


def _asking() -> dict[str, Any]:
    """What `--asking` does: questions to a store, and the memory that this process has in the end."""
    given = json.loads(sys.stdin.read())
    with Memory(given["where"]) as memory:
        for user, query in given["asked"]:
            memory.recall(query, user_id=user, budget=BUDGET)
        return {"anonymous_mb": read_anonymous()}


# -- the command -------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    options = _options(arguments)
    if options.asking:
        print(json.dumps(_asking()))
        return
    with _place(options) as folder:
        results = measure(options, folder)
    name = "stores-quick" if options.quick else "stores"
    options.out.mkdir(parents=True, exist_ok=True)
    keep(results, options.out / f"{name}.json")
    print(stores_table(results))


@contextlib.contextmanager
def _place(options: argparse.Namespace) -> Iterator[Path]:
    """The folder of the stores: the one to keep, or one for the length of the block."""
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        yield options.keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="retcon-stores-", dir=options.temp) as folder:
        Path(folder).chmod(0o755)  # the server may run as another user
        yield Path(folder).resolve()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=_stages, help="NOTES:USERS, comma-separated (default: 1000000:1000)")
    parser.add_argument("--heavy", type=int, help="notes of the heavy user (default: 50000)")
    parser.add_argument("--queries", type=int, default=200, help="of each kind at each stage (default: 200)")
    parser.add_argument("--quick", action="store_true", help="two small stages")
    parser.add_argument("--purge", action="store_true", help="time a purge at the first stage, too")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end the adding after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up notes and queries (default: 0)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the results")
    parser.add_argument("--temp", type=Path, help="folder for the temporary files")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the stores, which stay there")
    parser.add_argument("--asking", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.stages = options.stages or (QUICK if options.quick else FULL)
    options.heavy = (QUICK_HEAVY if options.quick else HEAVY) if options.heavy is None else options.heavy
    if options.queries < 1:
        parser.error("--queries must be 1 or more")
    return options


def _stages(text: str) -> tuple[tuple[int, int], ...]:
    try:
        stages = tuple((int(notes), int(users)) for notes, users in (part.split(":") for part in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a list of NOTES:USERS: {text!r}") from None
    grown = zip(((0, 0), *stages), stages, strict=False)
    if not all(new[1] > old[1] and new[0] - old[0] >= 20 * (new[1] - old[1]) for old, new in grown):
        raise argparse.ArgumentTypeError("each stage has more users than the one before, and 20 notes for each of them")
    return stages


if __name__ == "__main__":
    main()
