"""Several processes behind one port: they share what they must, and come and go without a failed request."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import complaint, one_line, process
from conftest import raw
from serving import Served, bearer, error, served
from waiting import LONG, until

from retcon import Memory
from retcon.server import Keys

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
QUIET = ("--log", "error")


def children(running: Served) -> list[int]:
    """The processes that the parent has now."""
    path = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    return [int(each) for each in path.read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def connections(pid: int) -> int:
    """How many sockets a process has open."""
    folder = Path(f"/proc/{pid}/fd")
    found = 0
    for each in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(each).startswith("socket:")
    return found


@contextlib.contextmanager
def clients(count: int, url: str, **options: Any) -> Iterator[list[httpx.Client]]:
    """Clients with a connection each."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(httpx.Client(base_url=url, timeout=LONG, **options)) for _ in range(count)]


def test_processes_behind_one_port_serve_one_store_and_stop_with_exit_code_0(path: Path) -> None:
    with served(path, "--workers", "3", *QUIET) as running:
        first = children(running)
        assert len(first) == 3
        with clients(9, running.url) as many:
            ids = {each.post("/memories", json={"text": "a cat"}).json()["results"][0]["id"] for each in many}
            assert len(ids) == 9
            assert {each.get("/health").json()["notes"] for each in many} == {9}, "each sees what any of them wrote"
        running.process.send_signal(signal.SIGTERM)
        code, told = running.end()
    assert (code, told) == (0, [])
    assert not any(map(is_alive, first))
    with Memory(path) as memory:
        assert {note.id for note in memory.get_all()} == ids


def test_a_stop_that_reaches_parent_and_children_alike_still_finishes_what_was_accepted(path: Path) -> None:
    """As service managers send it: to every process of the service, so that a child gets it twice."""
    with served(path, "--workers", "2", "--drain", "1", *QUIET) as running:
        with clients(4, running.url) as many:
            ids = {each.post("/memories", json={"text": "a cat"}).json()["results"][0]["id"] for each in many}
        both = children(running)
        for pid in (*both, running.process.pid):
            os.kill(pid, signal.SIGTERM)
        code, told = running.end()
    assert (code, told) == (0, [])
    assert not any(map(is_alive, both))
    with Memory(path) as memory:
        assert {note.id for note in memory.get_all()} == ids


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Keys]]:
    """Two processes with small limits, and the keys that they know."""
    db = tmp_path_factory.mktemp("crew") / "notes.db"
    options = ("--workers", "2", "--rate", "0.001", "--burst", "25", "--max-notes-per-key", "10")
    with contextlib.closing(Keys(f"{db}.keys")) as keys:
        keys.add(admin=True)
        with served(db, *options, *QUIET) as running:
            yield running, keys


def test_connections_are_spread_evenly(crew: tuple[Served, Keys]) -> None:
    running, _ = crew
    before = {pid: connections(pid) for pid in children(running)}
    with clients(40, running.url) as many, ThreadPoolExecutor(20) as pool:
        assert {each.status_code for each in pool.map(lambda one: one.get("/health"), many)} == {200}
        taken = [connections(pid) - count for pid, count in before.items()]
    assert sum(taken) >= 40
    assert min(taken) >= 14, f"one has {taken[0]}, the other {taken[1]}"


def test_rate_of_a_key_holds_for_all_processes_together(crew: tuple[Served, Keys]) -> None:
    running, keys = crew
    key, _ = keys.add(user_id="rate")
    with clients(40, running.url, headers=bearer(key)) as many, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda http: http.get("/memories"), many))
    allowed = [answer for answer in answers if answer.status_code == 200]
    assert len(allowed) == 25
    assert {error(answer, 429) for answer in answers if answer not in allowed} == {"rate"}


def test_quota_holds_where_processes_add_at_the_same_time(crew: tuple[Served, Keys]) -> None:
    running, keys = crew
    key, _ = keys.add(user_id="quota")
    together = threading.Barrier(24)
    with clients(24, running.url, headers=bearer(key)) as many, ThreadPoolExecutor(24) as pool:

        def add(number: int) -> httpx.Response:
            keyed = {"Idempotency-Key": f"k{number}"} if number % 2 else {}
            together.wait()
            return many[number].post("/memories", json={"text": f"note {number}"}, headers=keyed)

        answers = list(pool.map(add, range(24)))
    assert sorted(answer.status_code for answer in answers) == [200] * 10 + [507] * 14


def test_page_cursor_is_valid_at_every_process(crew: tuple[Served, Keys]) -> None:
    running, keys = crew
    key, _ = keys.add(user_id="cursor")
    with clients(10, running.url, headers=bearer(key)) as many:
        for number, each in enumerate(many):
            assert each.post("/memories", json={"text": f"note {number}"}).status_code == 200
        cursor, seen = None, list[str]()
        for each in many:
            page = each.get("/memories", params={"limit": 1} | ({"cursor": cursor} if cursor else {})).json()
            seen += [note["memory"] for note in page["results"]]
            cursor = page["next"]
    assert seen == [f"note {number}" for number in range(10)]


def test_key_that_is_revoked_stops_working_at_every_process(crew: tuple[Served, Keys]) -> None:
    running, keys = crew
    key, entry = keys.add(user_id="revoked")
    with clients(8, running.url, headers=bearer(key)) as many:
        assert {each.get("/memories").status_code for each in many} == {200}
        keys.revoke(entry.id)
        assert {each.get("/memories").status_code for each in many} == {401}


def test_process_that_dies_is_started_again_and_the_others_go_on(path: Path) -> None:
    with served(path, "--workers", "2", *QUIET) as running:
        kept, killed = children(running)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(children(running)) == 2 and killed not in children(running))
        assert kept in children(running)
        with clients(8, running.url) as many:
            assert {each.get("/health").status_code for each in many} == {200}
        both = children(running)
        running.process.kill()
        until(lambda: not any(map(is_alive, both)))  # they do not outlive their parent
        _, told = running.end()
    assert [(line["event"], line["pid"], line["code"]) for line in told] == [("process ended", killed, -9)]


def test_stop_finishes_what_every_process_accepted_and_a_second_signal_ends_at_once(path: Path) -> None:
    for second in (False, True):
        with served(path, "--workers", "2", *QUIET) as running, clients(6, running.url) as many:
            many[0].post("/memories", json={"text": "before"})
            other = raw(path)
            other.execute("BEGIN IMMEDIATE")  # the writes wait for this
            with ThreadPoolExecutor(6) as pool:
                asked = [pool.submit(each.post, "/memories", json={"text": "during"}) for each in many]
                until(lambda: "retcon_in_flight 6" in running.http.get("/metrics").text)
                running.process.send_signal(signal.SIGTERM)
                until(lambda: not accepts(running.url))
                if second:
                    running.process.send_signal(signal.SIGTERM)
                    assert running.process.wait(LONG) == 1
                else:
                    other.execute("COMMIT")
                    assert [each.result(LONG).status_code for each in asked] == [200] * 6
                    assert running.process.wait(LONG) == 0
                for each in asked:
                    with contextlib.suppress(httpx.TransportError):
                        each.result(LONG)
            other.close()


def accepts(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=LONG).status_code == 200
    except httpx.TransportError:
        return False


def counted(running: Served) -> int:
    """Adds that the metrics know of."""
    lines = running.http.get("/metrics").text.splitlines()
    (line,) = [each for each in lines if each.startswith('retcon_requests_total{route="/memories",method="POST"')]
    return int(line.split()[-1])


def test_rolling_restart_replaces_every_process_and_no_request_fails(path: Path) -> None:
    """Clients with connections that they keep, and clients that open one for each request, write and read all along."""
    stop, done, failed, written = threading.Event(), [0] * 6, list[str](), list[str]()

    def use(number: int, url: str) -> None:
        with contextlib.ExitStack() as stack:
            kept = stack.enter_context(httpx.Client(base_url=url, timeout=LONG))
            while not stop.is_set():
                http = kept if number % 2 else stack.enter_context(httpx.Client(base_url=url, timeout=LONG))
                try:
                    if done[number] % 3:
                        answer = http.post("/recall", json={"query": "cat", "budget": 20})
                    else:
                        answer = http.post("/memories", json={"text": f"cat {number} {done[number]}"})
                        written.append(answer.json()["results"][0]["id"])
                    if answer.status_code != 200:
                        failed.append(answer.text)
                except Exception as problem:
                    failed.append(repr(problem))
                finally:
                    if not number % 2:
                        http.close()
                done[number] += 1

    with served(path, "--workers", "2", *QUIET) as running, ThreadPoolExecutor(6) as pool:
        using = [pool.submit(use, number, running.url) for number in range(6)]
        try:
            for _ in range(2):
                before, counts = children(running), list(done)
                until(lambda counts=counts: all(now > then + 3 for now, then in zip(done, counts, strict=True)))
                running.process.send_signal(signal.SIGHUP)
                until(lambda before=before: len(children(running)) == 2 and not {*before} & {*children(running)})
                counts = list(done)
                until(lambda counts=counts: all(now > then + 3 for now, then in zip(done, counts, strict=True)))
        finally:
            stop.set()
        for each in using:
            each.result(LONG)
        until(lambda: counted(running) == len(written))  # by all processes, those that are gone too
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == (0, [])
    assert failed == []
    with Memory(path) as memory:
        assert set(written) == {note.id for note in memory.get_all()}


def test_restart_that_cannot_succeed_leaves_the_old_processes_serving(path: Path) -> None:
    with served(path, "--workers", "2", *QUIET) as running:
        before = children(running)
        keys = Path(f"{path}.keys")
        keys.write_bytes(b"no keys at all")  # a server does not start on that
        running.process.send_signal(signal.SIGHUP)
        assert running.process.stderr is not None
        told = ""
        while "rolling restart given up" not in told:
            told += running.process.stderr.readline()
        assert "file is not a database" in told
        keys.unlink()
        assert children(running) == before
        assert running.http.get("/health").status_code == 200


def test_drain_keeps_serving_while_ready_says_no(path: Path) -> None:
    for more in ((), ("--workers", "2")):
        with served(path, *more, "--drain", "3600", *QUIET) as running, clients(4, running.url) as many:
            assert {each.get("/ready").json()["ready"] for each in many} == {True}
            running.process.send_signal(signal.SIGTERM)
            until(lambda: all(each.get("/ready").status_code == 503 for each in many))
            assert error(many[0].get("/ready"), 503) == "draining"
            answer = many[1].post("/memories", json={"text": "a cat"})
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            assert many[2].get("/health").status_code == 200, "it lives"
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(LONG) == 1, "the second signal does not wait"


def test_short_drain_ends_by_itself(path: Path) -> None:
    with served(path, "--drain", "0.2", *QUIET) as running:
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == (0, [])


def test_bad_use_of_processes_is_one_line(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a number from 1 to 64" in complaint("serve", "--workers", "0")
    assert "a store that processes can share" in complaint("serve", "--workers", "2", "--db", ":memory:")
    monkeypatch.setattr("retcon.server.processes.os.name", "nt")
    assert "Linux, macOS or BSD" in complaint("serve", "--workers", "2")
    assert not db.exists()


def test_service_whose_first_process_cannot_start_ends_with_its_complaint(db: Path) -> None:
    db.write_bytes(b"not a store" * 100)
    told = process("serve", "--workers", "2", "--port", "0", "--db", str(db), cwd=db.parent)
    assert told.returncode == 2
    assert "t.db" in one_line(told.stderr.decode())
