"""The service under many clients: how quick, how many, and whether a write was ever lost.

    python -m bench.load --out bench/results/load.json                         100,000 notes, 50 clients, a minute
    python -m bench.load --notes 2000 --clients 5 --seconds 5                  a try

1. `retcon serve` over a store of so many notes of one user; every client recalls and adds, one request at a time.
2. A bare FastAPI route that reads one row of the same file, under the same clients: what HTTP in Python costs alone.
3. The service again, killed with SIGKILL in the middle of it.

After 1 and 3 every write that was acknowledged must be in the store, word for word. Clients and server share this
machine, so the client speaks HTTP over bare sockets, and the processor time of both is reported. The exit code is 1 if
a request failed or a write was lost.
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
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench import ROOT
from bench.speed.corpus import corpus
from retcon import Memory
from retcon.server import Limits

USER = "u"
BUDGET = 256


@dataclass
class Tally:
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


class Line:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        top = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(top.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return int(top[9:12]), await self._reader.readexactly(length)


@contextlib.asynccontextmanager
async def line(url: str) -> AsyncIterator[Line]:
    """A connection to the server."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**20)
    try:
        yield Line(reader, writer, place.netloc)
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


async def client(number: int, url: str, work: Work, until: float, tally: Tally, seed: int) -> None:
    """One client: a request, its answer, the next, until the time is over or the server is gone."""
    rng = np.random.default_rng((seed, number))
    try:
        async with line(url) as connection:
            for turn in range(sys.maxsize):
                if time.perf_counter() >= until:
                    return
                await _one(connection, f"{number}-{turn}", work, rng, tally)
    except (OSError, asyncio.IncompleteReadError) as error:
        tally.errors.append(type(error).__name__)


async def _one(connection: Line, name: str, work: Work, rng: np.random.Generator, tally: Tally) -> None:
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


async def _crowd(
    server: Server, work: Work, clients: int, seconds: float, seed: int, kill_after: float | None
) -> Tally:
    tally = Tally(began=time.perf_counter())
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

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """The server that the command starts and that prints its address as JSON; stopped at the end of the block."""
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
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


def served(db: Path, threads: int) -> Sequence[str]:
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


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All three runs, and what they say."""
    db, texts = folder / "load.db", corpus(options.seed)
    with Memory(db) as memory:
        notes = list(texts.notes(options.notes, user_id=USER))
        memory.store.add(notes)
    queries = texts.queries([note.text for note in notes], 500)
    work = Work(queries, options.adds)
    crowd = {"clients": options.clients, "seconds": options.seconds, "seed": options.seed}
    with running(served(db, options.threads)) as server:
        ours = asyncio.run(_crowd(server, work, **crowd, kill_after=None))
    lost = missing(db, ours.written)
    reading = Work(queries, 0.0, [note.id for note in notes[:5_000]], bare=True)
    with running(("bench.load", "--bare", str(db))) as server:
        plain = asyncio.run(_crowd(server, reading, **crowd, kill_after=None))
    with running(served(db, options.threads)) as server:
        killed = asyncio.run(_crowd(server, work, **crowd | {"seed": options.seed + 1}, kill_after=options.kill_after))
    with Memory(db) as memory:
        check = memory.stats()["check"]
    ours_said, bare_said = ours.summary(), plain.summary()
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
        "options": {name: value for name, value in vars(options).items() if name not in ("out", "bare")},
        "served": ours_said | {"written": len(ours.written), "lost": lost},
        "bare": bare_said,
        "ratios": {
            "per_second": ours_said["per_second"] / bare_said["per_second"],
            "p50": ours_said["all"]["p50_ms"] / bare_said["all"]["p50_ms"],
            "p95": ours_said["all"]["p95_ms"] / bare_said["all"]["p95_ms"],
        },
        "killed": {"after": options.kill_after, "written": len(killed.written), "lost": missing(db, killed.written),
                   "check": check, "refused": [each for each in killed.errors if " " in each]},
        "errors": [*ours.errors, *plain.errors][:20],
    }  # fmt: skip


def missing(db: Path, written: dict[str, str]) -> int:
    """How many acknowledged writes are not in the store, word for word."""
    connection = sqlite3.connect(db)
    found = dict(connection.execute("SELECT id, text FROM note"))
    connection.close()
    return sum(found.get(note_id) != text for note_id, text in written.items())


def table(found: dict[str, Any]) -> str:
    """The run as Markdown: the service, the bare route, and the one over the other."""
    served, bare, options = found["served"], found["bare"], found["options"]
    cores, ratios, killed = found["machine"]["cores"], found["ratios"], found["killed"]
    where = f"{options['clients']} clients, {options['seconds']:.0f} s, {options['notes']:,} notes, {cores} cores"

    def processor(run: dict[str, Any]) -> str:
        return f"{1000 * run['server_cpu'] / run['per_second']:.1f} ms"

    def cells(name: str, rate: float, times: dict[str, float], errors: str = "", lost: str = "") -> list[str]:
        return [name, f"{rate:.0f}", f"{times['p50_ms']:.0f} ms", f"{times['p95_ms']:.0f} ms", errors, lost]

    rows = [[where, "requests a second", "p50", "p95", "errors", "writes lost"], ["---"] * 6]
    rows += [cells(kind, served[kind]["count"] / options["seconds"], served[kind]) for kind in ("recall", "add")]
    lost = f"{served['lost']} of {served['written']:,}"
    rows.append(cells("both", served["per_second"], served["all"], str(served["errors"]), lost))
    rows.append(cells("a bare route, one SQLite read", bare["per_second"], bare["all"], str(bare["errors"])))
    over = [f"{ratios[name]:.2g}" for name in ("per_second", "p50", "p95")]
    rows.append(["the service over the bare route", *over, "", ""])
    rows.append(["processor time a request: service, bare", processor(served), processor(bare), *[""] * 3])
    rows.append(
        [f"killed after {killed['after']:.0f} s of this", *[""] * 4, f"{killed['lost']} of {killed['written']:,}"]
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON to this file")
    parser.add_argument("--bare", metavar="DB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        return bare(options.bare)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["errors"] or found["served"]["lost"] or found["killed"]["lost"] or found["killed"]["refused"]:
        raise SystemExit(1)
    return None


if __name__ == "__main__":
    main()
