"""The service under many clients: how quick, how many, and whether a write was ever lost.

    python -m bench.load --out bench/results/load.json                         100,000 notes, 50 clients, a minute
    python -m bench.load --notes 2000 --clients 5 --seconds 5                  a try
    python -m bench.load --attacked 30 --out bench/results/load.json           one hostile key beside the clients
    python -m bench.load --soak 600 --out bench/results/load.json              mixed traffic: are memory and files flat?

1. `retcon serve` over a store of so many notes of one user; every client recalls and adds, one request at a time.
2. A bare FastAPI route that reads one row of the same file, under the same clients: what HTTP in Python costs alone.
3. The service again, killed with SIGKILL in the middle of it.

After 1 and 3 every write that was acknowledged must be in the store, word for word. Clients and server share this
machine, so the client speaks HTTP over bare sockets, and the processor time of both is reported. The exit code is 1 if
a request failed or a write was lost.

`--attacked` and `--soak` do only that, and keep what else the file holds. The attacker is a process of its own with a
key of its own; it does not wait when it is told to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench import ROOT
from bench.speed.corpus import corpus
from retcon import Memory, Note
from retcon.server import Keys, Limits

OPTIONS = ("notes", "clients", "seconds", "adds", "threads", "kill_after", "seed")
USER, ENEMY = "u", "eve"
BUDGET = 256
HONEST_KEYS = 10  # that the clients share
LARGE_NOTES, LARGE_TEXT = 370, 95_000  # what the hostile key has stored, and characters of each
TEXTS = ("cat " + "," * 90_000 + "x", "cat " + "." * 60_000, "cat " + "!?" * 40_000, "cat" + " ," * 45_000)


@dataclass
class ClientTally:
    """What the clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)  # id -> text, acknowledged
    began: float = 0.0
    took: float = 0.0
    client_cpu: float = 0.0
    server_cpu: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Requests a second and times in milliseconds, by kind."""
        kinds = {kind: _times(times) for kind, times in self.seconds.items()}
        every = [second for times in self.seconds.values() for second in times]
        return {
            "requests": len(every), "errors": len(self.errors), "per_second": len(every) / self.took,
            "all": _times(every), **kinds, "client_cpu": self.client_cpu / self.took,
            "server_cpu": self.server_cpu / self.took,
        }  # fmt: skip


def _times(seconds: Sequence[float]) -> dict[str, float]:
    p50, p95, p99 = (float(q) * 1000 for q in np.quantile(np.asarray(seconds), (0.5, 0.95, 0.99)))
    return {"count": len(seconds), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "max_ms": max(seconds) * 1000}


# -- a light client ----------------------------------------------------------------------------------------------------


class Connection:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, key: str = "") -> None:
        self._reader, self._writer = reader, writer
        self._said = f"Host: {host}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\n{self._said}Content-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        top = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(top.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return int(top[9:12]), await self._reader.readexactly(length)

    def begin(self, path: str, length: int, body: bytes = b"") -> None:
        """Send the head of a request, and perhaps not all of its body."""
        method = "POST" if length else "GET"
        head = f"{method} {path} HTTP/1.1\r\n{self._said}Content-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)

    async def wait_for_end(self) -> None:
        """Wait until the server hangs up; what it says is read."""
        while await self._reader.read(65_536):
            pass

    def stop_reading(self) -> None:
        """Read nothing any more."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def line(url: str, key: str = "") -> AsyncIterator[Connection]:
    """A connection to the server."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**20)
    try:
        yield Connection(reader, writer, place.netloc, key)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Work:
    """What the clients ask for."""

    queries: Sequence[str]
    adds: float  # share of writes
    ids: Sequence[str] = ()  # of the bare route
    bare: bool = False
    keys: Sequence[str] = ("",)


async def client(number: int, url: str, work: Work, until: float, tally: ClientTally, seed: int) -> None:
    """One client: a request, its answer, the next, until the time is over or the server is gone."""
    rng = np.random.default_rng((seed, number))
    try:
        async with line(url, work.keys[number % len(work.keys)]) as connection:
            for turn in range(sys.maxsize):
                if time.perf_counter() >= until:
                    return
                await _one(connection, f"{number}-{turn}", work, rng, tally)
    except (OSError, asyncio.IncompleteReadError) as error:
        tally.errors.append(type(error).__name__)


async def _one(connection: Connection, name: str, work: Work, rng: np.random.Generator, tally: ClientTally) -> None:
    query = work.queries[int(rng.integers(len(work.queries)))]
    kind, method, path, body, text = "recall", "POST", "/recall", b"", ""
    if work.bare:
        kind, method, path = "bare", "GET", f"/note/{work.ids[int(rng.integers(len(work.ids)))]}"
    elif rng.random() < work.adds:
        text = f"client {name} says: {query}"
        kind, path, body = "add", "/memories", json.dumps({"text": text, "user_id": USER}).encode()
    else:
        body = json.dumps({"query": query, "budget": BUDGET, "user_id": USER}).encode()
    started = time.perf_counter()
    status, answer = await connection.ask(method, path, body)
    tally.seconds[kind].append(time.perf_counter() - started)
    if status != 200:
        tally.errors.append(f"{kind} {status} {answer[:200].decode(errors='replace')}")
    elif kind == "add":
        tally.written[json.loads(answer)["results"][0]["id"]] = text


async def drive(
    server: Server, work: Work, clients: int, seconds: float, seed: int, kill_after: float | None
) -> ClientTally:
    """What so many clients see of the server in so many seconds."""
    tally = ClientTally(began=time.perf_counter())
    cpu, theirs = time.process_time(), server.cpu()
    until = tally.began + seconds
    crowd = [asyncio.create_task(client(n, server.url, work, until, tally, seed)) for n in range(clients)]
    if kill_after is not None:
        await asyncio.sleep(kill_after)
        server.process.kill()
    await asyncio.gather(*crowd)
    tally.took = time.perf_counter() - tally.began
    tally.client_cpu = time.process_time() - cpu
    tally.server_cpu = server.cpu() - theirs if kill_after is None else 0.0
    return tally


# -- servers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str

    @property
    def resident(self) -> int:
        """Bytes of memory that it holds."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak(self) -> int:
        """The most bytes of memory that it ever held."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(each.split()[1]) * 1024 for each in lines if each.startswith("VmHWM"))

    @property
    def handles(self) -> int:
        """Files and sockets that it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(command: Sequence[str], tree: Path = ROOT) -> Iterator[Server]:
    """The server that the command starts and that prints its address as JSON; stopped at the end of the block.

    `tree` is the folder of the project's version that runs it.
    """
    whose = os.environ | {"PYTHONPATH": str(tree)}
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, cwd=tree, env=whose)
    try:
        assert process.stdout is not None
        said = ""
        while not said.rstrip().endswith("}"):
            if not (read := process.stdout.readline()):
                raise SystemExit(f"{' '.join(command)} did not start")
            said += read
        yield Server(process, json.loads(said)["url"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def serve_command(db: Path, threads: int) -> Sequence[str]:
    """The command of the service."""
    return ("retcon", "serve", "--db", str(db), "--port", "0", "--json", "--log", "warning", "--threads", str(threads))


def bare(db: str) -> None:
    """Serve one route that reads one row: what `python -m bench.load --bare DB` does."""
    import socket
    import threading

    import uvicorn
    from fastapi import FastAPI

    app, local = FastAPI(openapi_url=None), threading.local()

    @app.get("/note/{note_id}")
    def note(note_id: str) -> dict[str, str]:
        if not hasattr(local, "connection"):
            local.connection = sqlite3.connect(db)
        (text,) = local.connection.execute("SELECT text FROM note WHERE id = ?", (note_id,)).fetchone()
        return {"id": note_id, "text": text}

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # see retcon/server/run.py
    listening.bind(("127.0.0.1", 0))
    listening.listen(256)
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])


# -- the measurement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilledStore:
    """A store with the honest user's notes, and questions about them."""

    db: Path
    notes: list[Note]
    queries: list[str]


def fill_store(options: argparse.Namespace, folder: Path) -> FilledStore:
    """The store that every run begins with."""
    db, texts = folder / "load.db", corpus(options.seed)
    notes = list(texts.notes(options.notes, user_id=USER))
    with Memory(db) as memory:
        memory.store.add(notes)
    return FilledStore(db, notes, texts.queries([note.text for note in notes], 500))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All three runs, and what they say."""
    store = fill_store(options, folder)
    db, notes, queries = store.db, store.notes, store.queries
    work = Work(queries, options.adds)
    crowd = {"clients": options.clients, "seconds": options.seconds, "seed": options.seed}
    with running(serve_command(db, options.threads)) as server:
        ours = asyncio.run(drive(server, work, **crowd, kill_after=None))
    lost = count_missing(db, ours.written)
    reading = Work(queries, 0.0, [note.id for note in notes[:5_000]], bare=True)
    with running(("bench.load", "--bare", str(db))) as server:
        plain = asyncio.run(drive(server, reading, **crowd, kill_after=None))
    with running(serve_command(db, options.threads)) as server:
        killed = asyncio.run(drive(server, work, **crowd | {"seed": options.seed + 1}, kill_after=options.kill_after))
    with Memory(db) as memory:
        check = memory.stats()["check"]
    ours_said, bare_said = ours.summary(), plain.summary()
    return {
        "machine": machine(),
        "options": {name: getattr(options, name) for name in OPTIONS},
        "served": ours_said | {"written": len(ours.written), "lost": lost},
        "bare": bare_said,
        "ratios": {
            "per_second": ours_said["per_second"] / bare_said["per_second"],
            "p50": ours_said["all"]["p50_ms"] / bare_said["all"]["p50_ms"],
            "p95": ours_said["all"]["p95_ms"] / bare_said["all"]["p95_ms"],
        },
        "killed": {
            "after": options.kill_after, "written": len(killed.written), "lost": count_missing(db, killed.written),
            "check": check, "refused": [each for each in killed.errors if " " in each],
        },
        "errors": [*ours.errors, *plain.errors][:20],
    }  # fmt: skip


def count_missing(db: Path, written: dict[str, str]) -> int:
    """How many acknowledged writes are not in the store, word for word."""
    connection = sqlite3.connect(db)
    found = dict(connection.execute("SELECT id, text FROM note"))
    connection.close()
    return sum(found.get(note_id) != text for note_id, text in written.items())


# -- one hostile key ---------------------------------------------------------------------------------------------------


async def slow_bodies(url: str, key: str) -> None:
    """A request that never comes in."""
    async with line(url, key) as connection:
        connection.begin("/memories", 1_000, b"{")
        await connection.wait_for_end()


async def unread_pages(url: str, key: str) -> None:
    """A large page that nobody reads."""
    async with line(url, key) as connection:
        connection.stop_reading()
        connection.begin("/memories?limit=1000", 0)
        await asyncio.sleep(30)


async def silent_connections(url: str, key: str) -> None:
    """A connection that says nothing."""
    async with line(url, key) as connection:
        await connection.wait_for_end()


async def texts_that_were_quadratic(url: str, key: str) -> None:
    """Recalls over texts that a pattern once took minutes for."""
    body = json.dumps({"query": "cat", "budget": 64, "session": "texts"}).encode()
    await _again(url, key, lambda turn: ("POST", "/recall", body))


async def huge_recalls(url: str, key: str) -> None:
    """The largest budget over the largest notes, with every candidate."""
    query = " ".join(f"word{n % 50}" for n in range(1_200))
    body = json.dumps({"query": query, "budget": 32_768, "session": "large", "candidates": True}).encode()
    await _again(url, key, lambda turn: ("POST", "/recall", body))


async def wrong_json(url: str, key: str) -> None:
    """A megabyte that is no JSON."""
    bodies = (b"[" * 1_000_000, b'{"text": "x", ' * 60_000, b'{"metadata": {' + b'"a": 1, ' * 100_000 + b'"a": 1}}')
    await _again(url, key, lambda turn: ("POST", "/memories", bodies[turn % len(bodies)]))


async def deletes(url: str, key: str) -> None:
    """Add a note and delete it."""
    async with line(url, key) as connection:
        while True:
            status, answer = await connection.ask("POST", "/memories", b'{"text": "gone soon"}')
            if status == 200:
                note = json.loads(answer)["results"][0]["id"]
                await connection.ask("DELETE", f"/memories/{note}")


async def _again(url: str, key: str, request: Callable[[int], tuple[str, str, bytes]]) -> None:
    async with line(url, key) as connection:
        for turn in range(sys.maxsize):
            await connection.ask(*request(turn))


Attack = Callable[[str, str], Awaitable[None]]
ATTACKS: dict[str, tuple[Attack, int]] = {  # what one connection does, and how many do it
    "slow bodies": (slow_bodies, 140),
    "unread pages": (unread_pages, 30),
    "texts that were quadratic": (texts_that_were_quadratic, 16),
    "deletes": (deletes, 40),
    "huge recalls": (huge_recalls, 16),
    "wrong JSON": (wrong_json, 20),
    "silent connections": (silent_connections, 2_000),
}


async def attack(name: str, url: str, key: str, seconds: float) -> None:
    """Attack for so long; a connection that ends is made again."""
    one, count = ATTACKS[name]

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError, ValueError):
                await one(url, key)
            await asyncio.sleep(0.01)  # this process, too, must not stand still

    crowd = [asyncio.create_task(again()) for _ in range(count)]
    await asyncio.sleep(seconds)
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


@contextlib.contextmanager
def attacker(name: str, url: str, key: str, seconds: float) -> Iterator[None]:
    """A process that attacks during the block."""
    command = [sys.executable, "-m", "bench.load", "--attacker", name, url, key, str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def measure_attacks(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The clients alone, then beside each attack."""
    store = fill_store(options, folder)
    db = store.db
    with Memory(db) as memory:
        words = " ".join(f"word{n}" for n in range(12_000))[:LARGE_TEXT]
        memory.add([f"{n} {words}" for n in range(options.large)], user_id=ENEMY, session="large")
        memory.add(list(TEXTS), user_id=ENEMY, session="texts")
    with contextlib.closing(Keys(f"{db}.keys")) as keys:
        honest = [keys.add(user_id=USER)[0] for _ in range(HONEST_KEYS)]
        enemy, _ = keys.add(user_id=ENEMY)
    work = Work(store.queries, options.adds, keys=honest)
    found = {}
    for name in ("", *options.attacks):
        with running(serve_command(db, options.threads)) as server, contextlib.ExitStack() as beside:
            if name:
                beside.enter_context(attacker(name, server.url, enemy, options.attacked + 60))
                time.sleep(options.head_start)
            crowd = drive(server, work, options.clients, options.attacked, options.seed, None)
            tally = asyncio.run(crowd)
            found[name or "alone"] = tally.summary() | {"peak": server.peak, "said": sorted(set(tally.errors))[:5]}
        print(f"{name or 'alone'}: {json.dumps(found[name or 'alone']['all'])}", file=sys.stderr)
    alone = found.pop("alone")
    for run in found.values():
        run |= {f"{name}_ratio": run["all"][f"{name}_ms"] / alone["all"][f"{name}_ms"] for name in ("p50", "p95")}
    return {
        "machine": machine(), "alone": alone, "attacks": found,
        "options": {name: getattr(options, name) for name in ("notes", "clients", "attacked", "adds", "large", "seed")},
    }  # fmt: skip


def attacked_table(found: dict[str, Any]) -> str:
    """What the honest clients saw, alone and beside each attack."""
    if "attacked" not in found:
        return "*Not measured yet: `python -m bench.load --attacked 30 --out bench/results/load.json`*"
    run, options = found["attacked"], found["attacked"]["options"]
    where = f"{options['clients']} clients, {options['attacked']:.0f} s each, {options['notes']:,} notes"
    head = [where, "requests a second", "p50", "p95", "p50, times alone", "p95, times alone", "errors", "most memory"]

    def cells(name: str, each: dict[str, Any]) -> list[str]:
        times = [f"{each['all'][f'{name}_ms']:.0f} ms" for name in ("p50", "p95")]
        ratios = [f"{each[f'{name}_ratio']:.2f}" if f"{name}_ratio" in each else "" for name in ("p50", "p95")]
        rest = [str(each["errors"]), f"{each['peak'] / 2**20:.0f} MB"]
        return [name, f"{each['per_second']:.0f}", *times, *ratios, *rest]

    rows = [head, ["---"] * len(head), cells("alone", run["alone"])]
    return _grid([*rows, *(cells(name, each) for name, each in run["attacks"].items())])


# -- a long run --------------------------------------------------------------------------------------------------------


async def _mixed_client(
    number: int, url: str, queries: Sequence[str], until: float, tally: ClientTally, seed: int
) -> None:
    """One client that writes, reads, corrects and deletes, and leaves as many notes as it found."""
    rng = np.random.default_rng((seed, number))
    held: list[str] = []
    async with line(url) as connection:
        while time.perf_counter() < until:
            query = queries[int(rng.integers(len(queries)))]
            kind, method, path, body = _draw_request(rng, query, held, number)
            started = time.perf_counter()
            status, answer = await connection.ask(method, path, json.dumps(body).encode() if body else b"")
            tally.seconds[kind].append(time.perf_counter() - started)
            if status != 200:
                tally.errors.append(f"{kind} {status} {answer[:200].decode(errors='replace')}")
            elif kind in ("add", "supersede"):
                written = json.loads(answer)
                held += [written["id"]] if kind == "supersede" else [each["id"] for each in written["results"]]
            elif kind == "delete":
                held.clear()


def _draw_request(rng: np.random.Generator, query: str, held: list[str], number: int) -> tuple[str, str, str, Any]:
    who = {"run_id": f"soak-{number}", "user_id": USER}
    if len(held) >= 20:
        return "delete", "DELETE", f"/memories?run_id=soak-{number}", None
    kinds = ("recall", "recall", "search", "list", "get", "add", "add", "supersede", "health")
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind in ("get", "supersede") and not held:
        kind = "add"
    asked: dict[str, tuple[str, str, Any]] = {
        "recall": ("POST", "/recall", {"query": query, "budget": BUDGET, "user_id": USER}),
        "search": ("POST", "/search", {"query": query, "user_id": USER}),
        "list": ("GET", "/memories?limit=100", None),
        "get": ("GET", f"/memories/{held[-1] if held else ''}", None),
        "add": ("POST", "/memories", {"text": f"client {number} says: {query}", **who}),
        "supersede": ("POST", f"/memories/{held[-1] if held else ''}/supersede", {"text": f"corrected: {query}"}),
        "health": ("GET", "/health", None),
    }
    return kind, *asked[kind]


async def _watch(server: Server, seconds: float, every: float) -> list[dict[str, float]]:
    """Memory and open files of the server, again and again."""
    began, seen = time.perf_counter(), []
    while (now := time.perf_counter() - began) < seconds:
        seen.append({"at": now, "resident": float(server.resident), "handles": float(server.handles)})
        await asyncio.sleep(every)
    return seen


def soak(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Mixed traffic for a long time, and whether memory and open files stay as they are."""
    store = fill_store(options, folder)
    db, queries = store.db, store.queries

    async def run(server: Server) -> tuple[ClientTally, list[dict[str, float]]]:
        tally = ClientTally(began=time.perf_counter())
        until = tally.began + options.soak
        crowd = [_mixed_client(n, server.url, queries, until, tally, options.seed) for n in range(options.clients)]
        watching = asyncio.create_task(_watch(server, options.soak, max(0.2, options.soak / 300)))
        await asyncio.gather(*crowd)
        seen = await watching
        tally.took = time.perf_counter() - tally.began
        return tally, seen

    with running(serve_command(db, options.threads)) as server:
        tally, seen = asyncio.run(run(server))
    return {
        "machine": machine(), "seconds": options.soak, "clients": options.clients, "notes": options.notes,
        "requests": tally.summary()["requests"], "errors": tally.errors[:20], "samples": seen,
        "resident": steady([each["resident"] for each in seen], [each["at"] for each in seen], 5 * 2**20),
        "handles": steady([each["handles"] for each in seen], [each["at"] for each in seen], 10),
    }  # fmt: skip


def steady(values: Sequence[float], at: Sequence[float], most: float) -> dict[str, Any]:
    """How the second half of a run went: its slope an hour and its range. Flat: it rises by less than `most`."""
    half = len(values) // 2
    later, when = np.asarray(values[half:]), np.asarray(at[half:])
    slope = float(np.polyfit(when, later, 1)[0]) if len(later) > 1 else 0.0
    rise = slope * float(when[-1] - when[0])
    return {
        "first": values[0], "last": values[-1], "most": max(values), "range": float(later.max() - later.min()),
        "slope_per_hour": slope * 3600, "rise": rise, "flat": rise < most,
    }  # fmt: skip


def soak_table(found: dict[str, Any]) -> str:
    """Whether memory and open files stay as they are."""
    if "soak" not in found:
        return "*Not measured yet: `python -m bench.load --soak 600 --out bench/results/load.json`*"
    run = found["soak"]
    minutes = run["seconds"] / 60
    head = [f"{minutes:.0f} minutes, {run['requests']:,} requests, {len(run['errors'])} errors", "at first", "at last",
            "most", "rise in the second half", "flat"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for name, unit, size in (("resident", " MB", 2**20), ("handles", "", 1)):
        cells = [f"{run[name][part] / size:,.0f}{unit}" for part in ("first", "last", "most", "rise")]
        rows.append(
            [{"resident": "memory", "handles": "open files"}[name], *cells, "yes" if run[name]["flat"] else "no"]
        )
    return _grid(rows)


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}


def _grid(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def table(found: dict[str, Any]) -> str:
    """The run as Markdown: the service, the bare route, and the one over the other."""
    service, bare, options = found["served"], found["bare"], found["options"]
    cores, ratios, killed = found["machine"]["cores"], found["ratios"], found["killed"]
    where = f"{options['clients']} clients, {options['seconds']:.0f} s, {options['notes']:,} notes, {cores} cores"

    def processor(run: dict[str, Any]) -> str:
        return f"{1000 * run['server_cpu'] / run['per_second']:.1f} ms"

    def cells(name: str, rate: float, times: dict[str, float], errors: str = "", lost: str = "") -> list[str]:
        return [name, f"{rate:.0f}", f"{times['p50_ms']:.0f} ms", f"{times['p95_ms']:.0f} ms", errors, lost]

    rows = [[where, "requests a second", "p50", "p95", "errors", "writes lost"], ["---"] * 6]
    rows += [cells(kind, service[kind]["count"] / options["seconds"], service[kind]) for kind in ("recall", "add")]
    lost = f"{service['lost']} of {service['written']:,}"
    rows.append(cells("both", service["per_second"], service["all"], str(service["errors"]), lost))
    rows.append(cells("a bare route, one SQLite read", bare["per_second"], bare["all"], str(bare["errors"])))
    over = [f"{ratios[name]:.2g}" for name in ("per_second", "p50", "p95")]
    rows.append(["the service over the bare route", *over, "", ""])
    rows.append(["processor time a request: service, bare", processor(service), processor(bare), *[""] * 3])
    rows.append(
        [f"killed after {killed['after']:.0f} s of this", *[""] * 4, f"{killed['lost']} of {killed['written']:,}"]
    )
    return _grid(rows)


def main() -> None:
    """Measure, print and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--adds", type=float, default=0.2, help="share of requests that write")
    parser.add_argument("--threads", type=int, default=Limits().threads, help="reads at once in the service")
    parser.add_argument("--kill-after", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attacked", type=float, metavar="SECONDS", help="beside each attack, for so long")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="NAME")
    parser.add_argument("--large", type=int, default=LARGE_NOTES, help="large notes of the hostile key")
    parser.add_argument("--head-start", type=float, default=3.0, metavar="SECONDS", help="of an attack")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="mixed traffic for so long")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON to this file")
    parser.add_argument("--bare", metavar="DB", help=argparse.SUPPRESS)
    parser.add_argument("--attacker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        return bare(options.bare)
    if options.attacker:
        name, url, key, seconds = options.attacker
        return asyncio.run(attack(name, url, key, float(seconds)))
    with tempfile.TemporaryDirectory() as folder:
        if options.attacked or options.soak:
            part = "attacked" if options.attacked else "soak"
            found = {part: (measure_attacks if options.attacked else soak)(options, Path(folder))}
        else:
            found = measure(options, Path(folder))
    return report(found, options.out)


def report(found: dict[str, Any], out: Path | None) -> None:
    """Print the numbers, keep them beside what the file holds, and fail where something did."""
    print(json.dumps(found, indent=1))
    if out:
        old = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        out.write_text(json.dumps(old | found, indent=1) + "\n", encoding="utf-8")
    lost = "served" in found and (
        found["errors"] or found["served"]["lost"] or found["killed"]["lost"] or found["killed"]["refused"]
    )
    runs = found.get("attacked", {}).get("attacks", {}).values()
    grown = "soak" in found and not (found["soak"]["resident"]["flat"] and found["soak"]["handles"]["flat"])
    if lost or grown or any(run["errors"] for run in runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
