"""Histories and questions -> what each rival would show, and what that cost. Kept as JSON lines, resumable.

    python -m bench.rivals.contexts --out DIR                                          all that need no model
    python -m bench.rivals.contexts --out DIR --endpoint http://127.0.0.1:8100/v1      those that ask one, too
    python -m bench.rivals.contexts --out DIR --folder MODEL --systems longllmlingua   those that load one
    python -m bench.rivals.contexts --out DIR --share 1/4 ...                          a quarter of the histories
    RETCON_VECTORS=FILE python -m bench.rivals.contexts --vectors                      of all turns and questions
    python -m bench.rivals.contexts --list                                             what there is

A history is the unit: its lines are written once it is done, and one that is there is not done again. A rival that
fails on a history writes why instead, and its questions have no context. The files hold text of the benchmarks and
are not committed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from bench.rivals.base import COUNTER, Rival, Setup, Spent, fit, lines
from bench.rivals.encoder import Encoder
from bench.rivals.endpoint import Call, Endpoint
from bench.rivals.questions import BUDGETS, DOMAINS, questions_of
from bench.rivals.systems import SYSTEMS, System
from retcon.lab.data.question import BenchmarkQuestion
from retcon.tokens import counter


@dataclass(frozen=True, slots=True)
class Job:
    """One history of a domain, with the questions about it."""

    domain: str
    conversation: str
    questions: tuple[BenchmarkQuestion, ...]


def jobs(domains: Sequence[str], limit: int | None = None, turns: int | None = None) -> Iterator[Job]:
    """Every history with its questions; with a limit one history of each domain, and so many questions."""
    for domain in domains:
        for name, some in groupby(questions_of(domain), key=lambda question: question.conversation):
            asked = tuple(some)[:limit]
            if turns is not None:
                asked = tuple(replace(each, history=each.history[:turns]) for each in asked)
            yield Job(domain, name, asked)
            if limit is not None:
                break


def share(every: Sequence[Job], part: str, weigh: Callable[[Job], int]) -> list[Job]:
    """A process's share of the histories, as `number/of` says, the longest first; shares weigh about the same."""
    number, of = map(int, part.split("/"))
    if not 1 <= number <= of:
        raise SystemExit(f"--share {part}: say 1/4 to 4/4")
    shares: list[list[Job]] = [[] for _ in range(of)]
    for job in sorted(every, key=weigh, reverse=True):
        min(shares, key=lambda some: sum(map(weigh, some))).append(job)
    return shares[number - 1]


def _turns(job: Job) -> int:
    return len(job.questions[0].history)


def _questions(job: Job) -> int:
    return len(job.questions)


class Log:
    """Lines of one rival in a file; what a killed run left half written is passed over."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        self.done = {(row["domain"], row["conversation"]) for row in read(path) if row["what"] == "history"}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        text = "\n" + "".join(json.dumps(row) + "\n" for row in rows)  # what a kill left of a line ends here
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none where there is no file."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def run(system: System, job: Job, setup: Setup, log: Log) -> None:
    """Take in one history, answer its questions, write it all down."""
    about = {"system": system.name, "domain": job.domain, "conversation": job.conversation}
    if setup.endpoint is not None:
        key = f"{system.name}/{job.domain}/{job.conversation}/{os.getpid()}"
        setup = replace(setup, endpoint=replace(setup.endpoint, key=key))
    meter = Meter(system, setup.endpoint)
    try:
        rival = system.open(setup)
        ingest = meter.measure(lambda: rival.add(job.questions[0].history))
        shown = [row for question in job.questions for row in _show(rival, question, meter, about)]
    except Exception as error:
        why = f"{type(error).__name__}: {str(error)[:300]}"
        traceback.print_exc()
        log.add([{"what": "history", **about, "error": why, **asdict(meter.total)}])
        return
    turns = len(job.questions[0].history)
    log.add([{"what": "history", **about, "turns": turns, "error": "", **asdict(ingest)}, *shown])


def _show(rival: Rival, question: BenchmarkQuestion, meter: Meter, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    count = counter(COUNTER)
    for budget in BUDGETS:
        pieces: list[str] = []
        spent = meter.measure(lambda: pieces.extend(rival.context(question.text, budget)))  # noqa: B023
        text = fit(pieces, budget, count)
        yield {
            "what": "context", **about, "question_id": question.id, "budget": budget, "text": text,
            "tokens": count(text), **asdict(spent),
        }  # fmt: skip


class Meter:
    """What a rival spends while something is done; tokens are those that the endpoint counted."""

    def __init__(self, system: System, endpoint: Endpoint | None) -> None:
        self.endpoint = endpoint if system.model else None
        module = importlib.import_module(f"bench.rivals.systems.{system.module}")
        self.parsed: Callable[[Call], bool] = getattr(module, "parsed", lambda call: bool(call.text.strip()))
        self.total = Spent()

    def measure(self, work: Callable[[], object]) -> Spent:
        """Do it, and say what it cost."""
        began = time.perf_counter()
        try:
            work()
        finally:
            spent = self._read(time.perf_counter() - began)
            self.total = Spent(*(a + b for a, b in zip(_numbers(self.total), _numbers(spent), strict=True)))
        return spent

    def _read(self, seconds: float) -> Spent:
        calls = self.endpoint.drain() if self.endpoint is not None else []
        return Spent(
            len(calls), sum(each.prompted for each in calls), sum(each.generated for each in calls),
            sum(not self.parsed(each) for each in calls), round(seconds, 3),
        )  # fmt: skip


def _numbers(spent: Spent) -> tuple[Any, ...]:
    return tuple(asdict(spent).values())


def encode_all(every: Sequence[Job]) -> int:
    """How many turns and questions now have a vector; each is kept in the file that RETCON_VECTORS names."""
    turns = [text for job in every for text in lines(job.questions[0].history)]
    return len(Encoder()([*turns, *(question.text for job in every for question in job.questions)]))


def main() -> None:
    """The contexts of the rivals asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", help="names with commas; by default all that can run with what is given")
    parser.add_argument("--domains", default=",".join(DOMAINS))
    parser.add_argument("--endpoint", action="append", default=[], help="base URL of a model; several share the work")
    parser.add_argument("--name", default="local", help="what the model is called there")
    parser.add_argument("--folder", default="", help="of the model, for what loads it itself")
    parser.add_argument("--threads", type=int, default=1, help="histories at once")
    parser.add_argument("--share", default="1/1", help="do a share of the histories, such as 1/4")
    parser.add_argument("--limit", type=int, help="one history a domain, so many questions of it")
    parser.add_argument("--turns", type=int, help="so many turns of a history, for a trial")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--vectors", action="store_true", help="only encode turns and questions, into RETCON_VECTORS")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.list or (options.out is None and not options.vectors):
        for each in SYSTEMS.values():
            print(f"{each.name:26}{'model' if each.model else 'folder' if each.folder else '':8}{each.title}")
        return
    every = list(jobs(options.domains.split(","), options.limit, options.turns))
    if options.vectors:
        print(f"{encode_all(every):,} texts encoded")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    given = {"model": bool(options.endpoint), "folder": bool(options.folder)}
    shared = [each for each in SYSTEMS.values() if not each.alone]
    able = [each.name for each in shared if all(given[need] for need in given if getattr(each, need))]
    names = options.systems.split(",") if options.systems else able
    encode, urls, turn = Encoder(), cycle(options.endpoint or [None]), threading.Lock()

    def work(given: tuple[str, Job]) -> None:
        name, job = given
        log = logs[name]
        if (job.domain, job.conversation) in log.done:
            return
        with turn:
            url = next(urls)
        began = time.perf_counter()
        run(SYSTEMS[name], job, Setup(encode, Endpoint(url, options.name) if url else None, options.folder), log)
        print(f"{time.strftime('%H:%M:%S')} {name} {job.domain} {job.conversation}"
              f" {time.perf_counter() - began:.1f} s", flush=True)  # fmt: skip

    logs = {name: Log(options.out / f"{name}.jsonl") for name in names}
    # what a memory costs grows with turns, what a compressor costs with questions
    mine = {name: share(every, options.share, _questions if SYSTEMS[name].folder else _turns) for name in names}
    todo = [(name, job) for name in names for job in mine[name]]
    with ThreadPoolExecutor(options.threads) as pool:
        list(pool.map(work, todo))


if __name__ == "__main__":
    main()
