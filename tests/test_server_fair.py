"""One key's work stands in no other's way: places, threads, bytes, notes, and time that is over."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import document
from hypothesis import example, given
from hypothesis import strategies as st
from misbehaving import Server, says, slow
from serving import bearer, client, error, served
from waiting import until

from retcon import Memory, deadline
from retcon.errors import DeadlineError
from retcon.model import Ask, FakeChat
from retcon.server import Keys, Limits
from retcon.server.limits import Shares
from retcon.server.workers import Pool

# -- threads -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pool(size: int) -> Iterator[Pool]:
    made = Pool("test", size)
    yield made
    made.close()


def held(at: Pool, key: str, go: threading.Event) -> threading.Event:
    """A job that holds a thread until it is let go; the event says that it has begun."""
    begun = threading.Event()

    def job() -> None:
        begun.set()
        assert go.wait(20)

    at.submit(key, job)
    return begun


def test_threads_take_work_from_the_keys_in_turn() -> None:
    done: list[str] = []
    with pool(1) as at:
        go = threading.Event()
        assert held(at, "first", go).wait(10)
        jobs = [at.submit("eve", lambda n=n: done.append(f"eve{n}")) for n in range(100)]  # type: ignore[misc]
        jobs += [at.submit(who, lambda who=who: done.append(who)) for who in ("ann", "bob")]  # type: ignore[misc]
        assert at.queued == 102
        go.set()
        for job in jobs:
            job.future.result(10)
    assert done[:4] == ["eve0", "ann", "bob", "eve1"]
    assert done[4:] == [f"eve{n}" for n in range(2, 100)]


def test_no_key_has_all_threads_but_the_one_where_there_are_no_keys() -> None:
    with pool(3) as at:
        go = threading.Event()
        begun = [held(at, "eve", go) for _ in range(5)]
        assert begun[0].wait(10)
        assert begun[1].wait(10)
        assert at.submit("ann", lambda: "mine").future.result(10) == "mine", "there is a thread for others"
        assert not begun[2].is_set()
        assert at.working == 2
        go.set()
        assert all(each.wait(10) for each in begun)
    with pool(3) as at:
        go = threading.Event()
        assert all(held(at, "", go).wait(10) for _ in range(3))
        go.set()


def test_a_key_has_fewer_threads_while_others_ask_too() -> None:
    made = Pool("test", 3, crowded=1)
    go = threading.Event()
    assert made.submit("ann", lambda: "mine").future.result(10) == "mine"
    begun = [held(made, "eve", go) for _ in range(3)]
    assert begun[0].wait(10)
    assert made.submit("ann", lambda: "mine").future.result(10) == "mine"
    assert [each.is_set() for each in begun] == [True, False, False]
    go.set()
    made.close()


def test_job_that_is_cancelled_leaves_the_queue_and_one_that_runs_does_not() -> None:
    with pool(1) as at:
        go = threading.Event()
        running = at.submit("ann", lambda: go.wait(20))
        until(lambda: at.working == 1)
        waiting = at.submit("ann", lambda: pytest.fail("nobody waits for it"))
        assert at.cancel(waiting)
        assert at.queued == 0
        assert not at.cancel(running)
        go.set()
        assert running.future.result(10)


def test_key_whose_only_job_was_cancelled_leaves_the_thread_at_work() -> None:
    with pool(1) as at:
        first, second = threading.Event(), threading.Event()
        assert held(at, "a", first).wait(10)
        begun = held(at, "b", second)
        third = at.submit("c", lambda: pytest.fail("nobody waits for it"))
        first.set()
        assert begun.wait(10)
        assert at.cancel(third)
        second.set()
        assert at.submit("d", lambda: "done").future.result(10) == "done"
        assert not at.broken


ACTS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["", *"abcdef"])),
    st.tuples(st.sampled_from(["cancel", "finish", "wait"]), st.integers(0, 30)),
)


@example([*(("submit", key) for key in "abc"), ("finish", 0), ("cancel", 0), ("finish", 0)], 1, 1)
@given(st.lists(ACTS, min_size=10, max_size=40), st.sampled_from([1, 1, 2, 3]), st.integers(1, 2))
def test_every_job_that_is_not_cancelled_is_done_in_whatever_order_things_happen(
    acts: list[tuple[str, Any]], size: int, crowded: int
) -> None:
    now, gates, jobs, lock = [0.0], [], [], threading.Lock()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    at = Pool("test", size, min(crowded, max(1, size * 2 // 3)), clock=lambda: now[0])

    def work(key: str, gate: threading.Event) -> str:
        with lock:
            running[key] += 1
            most[key] = max(most[key], running[key])
        assert gate.wait(20)
        with lock:
            running[key] -= 1
        return key

    for act, what in acts:
        if act == "submit":
            gates.append(threading.Event())
            jobs.append(at.submit(what, partial(work, what, gates[-1])))
        elif act == "wait":
            now[0] += what
        elif act == "cancel" and (waiting := [job for job in jobs if not (job.future.running() or job.future.done())]):
            at.cancel(waiting[what % len(waiting)])
        elif act == "finish" and (begun := [number for number, job in enumerate(jobs) if job.future.running()]):
            number = begun[what % len(begun)]
            gates[number].set()
            jobs[number].future.result(10)
        time.sleep(0.0002)  # the threads go on meanwhile
    for gate in gates:
        gate.set()
    for job in jobs:
        assert job.future.cancelled() or job.future.result(10) == job.key
    assert all(at.submit(key, lambda: "last").future.result(10) == "last" for key in ("a", "e"))
    assert not at.broken
    until(lambda: at.working == 0)
    assert at.queued == 0
    assert len(at._threads) <= size
    at.close()
    assert all(number <= (size if not key else at.share) for key, number in most.items())


@pytest.mark.parametrize("part", ["_least", "_settle", "_share"])
def test_error_in_the_clocks_of_keys_ends_no_thread(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def fails(*_: object) -> None:
        raise KeyError(part)

    monkeypatch.setattr(Pool, part, fails)
    with pool(1) as at:
        for key in ("a", "b", "a"):
            assert at.submit(key, lambda: "done").future.result(10) == "done"
        assert not at.broken


def dies(at: Pool) -> None:
    """End a thread of the pool by an error that nothing foresees."""
    take, at._take = at._take, lambda: None  # type: ignore[method-assign]
    at.submit("a", lambda: "done")
    at.submit("a", lambda: "done")
    until(lambda: at.broken)
    at._take = take  # type: ignore[method-assign]


def test_thread_that_has_died_is_replaced_with_the_next_job() -> None:
    with pool(1) as at:
        dies(at)
        assert at.submit("b", lambda: "done").future.result(10) == "done"
        assert not at.broken
        until(lambda: at.queued == 0)


def test_health_fails_while_a_thread_is_dead(memory: Memory) -> None:
    with client(memory) as http:
        assert http.get("/health").status_code == 200
        dies(http.app.state.service.workers.pools["write"])
        assert error(http.get("/health"), 503) == "threads"
        assert http.post("/memories", json={"text": "a cat"}).status_code == 200
        assert http.get("/health").status_code == 200


def test_keys_that_wait_at_the_same_time_get_the_same_time() -> None:
    """Jobs of eve take ten times as long as those of ann, so ann has about ten for each of hers."""
    order, now, go = [], [0.0], threading.Event()

    def job(who: str, seconds: float) -> None:
        order.append(who)
        now[0] += seconds

    at = Pool("test", 1, clock=lambda: now[0])
    assert held(at, "first", go).wait(10)
    jobs = [at.submit("eve", lambda: job("eve", 1.0)) for _ in range(20)]
    jobs += [at.submit("ann", lambda: job("ann", 0.1)) for _ in range(60)]
    go.set()
    for each in jobs:
        each.future.result(10)
    at.close()
    done = order[: len(order) - order[::-1].index("ann")]  # while both had something to do
    assert done.count("ann") == 60
    assert 5 <= done.count("eve") <= 8


def test_clocks_of_keys_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retcon.server.workers.LATELY", 0.0)
    with pool(2) as at:
        for n in range(100):
            at.submit(f"key{n}", time.monotonic).future.result(10)
        until(lambda: at.working == 0)
        assert len(at._accounts) < 10


def test_a_large_body_counts_for_more_requests(memory: Memory, two: tuple[Keys, str, str]) -> None:
    keys, ann, eve = two
    with client(memory, keys=keys, limits=Limits(rate=0.01, burst=5)) as http:
        large = {"text": "x" * 80_000, "metadata": {"more": "y" * 300_000}}
        assert http.post("/memories", json=large, headers=bearer(eve)).status_code == 200
        answer = http.post("/memories", json=large, headers=bearer(eve))
        assert error(answer, 429) == "rate"
        assert answer.headers["connection"] == "close", "what it still sends is not read"
        assert [http.get("/memories", headers=bearer(ann)).status_code for _ in range(5)] == [200] * 5
    with client(memory) as http:
        assert http.post("/memories", json=large).status_code == 200, "without keys nothing is counted"


def test_pool_that_closes_finishes_what_it_took() -> None:
    done: list[int] = []
    with pool(2) as at:
        for n in range(50):
            at.submit("ann", lambda n=n: done.append(n))  # type: ignore[misc]
    assert sorted(done) == list(range(50))
    assert at.submit("ann", lambda: "again").future.result(10) == "again", "an app may be started again"
    at.close()


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(1, 4))), st.integers(1, 10), st.integers(1, 5))
def test_shares_never_hold_more_than_they_may(asked: list[tuple[str, int]], most: int, each: int) -> None:
    shares, taken = Shares(most, each), []
    for key, amount in asked:
        if not shares.key_full(key, amount) and not shares.full(amount):
            shares.take(key, amount)
            taken.append((key, amount))
        assert shares.taken == sum(amount for _, amount in taken) <= most
        for who in ("a", "b"):
            assert sum(amount for key, amount in taken if key == who) <= each
    assert shares.each <= max(1, most * 3 // 4), "something is left for others"
    for key, amount in taken:
        shares.give(key, amount)
    assert shares.taken == 0
    assert not shares._held


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two() -> Iterator[tuple[Keys, str, str]]:
    keys = Keys(":memory:")
    yield keys, keys.add(user_id="ann")[0], keys.add(user_id="eve")[0]
    keys.close()


def test_a_key_has_its_own_places_and_others_have_theirs(path: Path, two: tuple[Keys, str, str]) -> None:
    keys, ann, eve = two
    go, asked = threading.Event(), threading.Semaphore(0)

    def model(ask: Ask) -> str:
        asked.release()
        assert go.wait(20)
        return "Pixel"

    limits = Limits(in_flight=4, key_in_flight=2)
    with Memory(path, model=FakeChat(model)) as memory, client(memory, keys=keys, limits=limits) as http:
        memory.add("a cat named Pixel", user_id="eve")
        with ThreadPoolExecutor(2) as threads:
            waiting = [
                threads.submit(http.post, "/ask", json={"query": f"cat {n}"}, headers=bearer(eve)) for n in range(2)
            ]
            for _ in range(2):
                assert asked.acquire(timeout=10)
            answer = http.post("/search", json={"query": "cat"}, headers=bearer(eve))
            assert error(answer, 429) == "busy_key"
            assert answer.headers["retry-after"] == "1"
            assert "nothing was written" in answer.text
            assert http.post("/search", json={"query": "cat"}, headers=bearer(ann)).status_code == 200
            go.set()
            assert [each.result().status_code for each in waiting] == [200, 200]
        assert http.post("/search", json={"query": "cat"}, headers=bearer(eve)).status_code == 200


def begun(url: str, key: str, length: int = 1000) -> socket.socket:
    """A connection with the head of a request, and one byte of its body."""
    host, _, port = url.removeprefix("http://").partition(":")
    opened = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST /memories HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n"
    opened.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
    return opened


def gauge(running: Any, key: str, name: str) -> int:
    text = running.http.get("/metrics", headers=bearer(key)).text
    return int(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def test_bodies_that_never_come_in_take_no_place_from_anybody(db: Path) -> None:
    ann, eve, root = (
        document("keys", "add", *bound)["key"] for bound in (("--user-id", "ann"), ("--user-id", "eve"), ("--admin",))
    )
    with served(db, "--log", "error") as running, contextlib.ExitStack() as opened:
        for _ in range(140):
            opened.enter_context(begun(running.url, eve))
        until(lambda: gauge(running, root, "retcon_incoming_bytes") >= 140 * 16_384)
        assert gauge(running, root, "retcon_in_flight") == 0
        for _ in range(5):
            answer = running.http.post("/memories", json={"text": "a note"}, headers=bearer(ann))
            assert answer.status_code == 200, answer.text


def test_a_key_has_its_share_of_bytes_that_are_still_coming_in(memory: Memory, two: tuple[Keys, str, str]) -> None:
    from test_server_limits import asked

    keys, ann, eve = two
    limits = Limits(key_bodies=20_000, bodies=45_000, seconds=1)
    half = {"type": "http.request", "body": b"x", "more_body": True}
    with client(memory, keys=keys, limits=limits) as http:

        async def scene() -> list[int]:
            import asyncio

            async def send(key: str) -> dict[str, Any]:
                return await asked(http.app, half, more=[(b"authorization", f"Bearer {key}".encode())])

            first = asyncio.create_task(send(eve))
            while "retcon_incoming_bytes 16384" not in http.app.state.service.metrics.text():
                await asyncio.sleep(0.01)
            second, third = await send(eve), asyncio.create_task(send(ann))
            assert (b"connection", b"close") in second["headers"]
            return [second["status"], (await third)["status"], (await first)["status"]]

        assert http.portal.call(scene) == [429, 504, 504]
        assert "retcon_incoming_bytes 0" in http.app.state.service.metrics.text()


# -- notes -------------------------------------------------------------------------------------------------------------


def test_a_key_stores_up_to_its_quota_and_an_admin_any_number(memory: Memory) -> None:
    keys = Keys(":memory:")
    ann, root = keys.add(user_id="ann")[0], keys.add(admin=True)[0]
    with client(memory, keys=keys, limits=Limits(key_notes=3)) as http:
        assert http.post("/memories", json={"messages": ["a", "b"]}, headers=bearer(ann)).status_code == 200
        over = http.post("/memories", json={"messages": ["c", "d"]}, headers=bearer(ann))
        assert error(over, 507) == "quota"
        assert len(memory.get_all()) == 2, "all of an add, or nothing"
        (last,) = http.post("/memories", json={"text": "c", "id": "mine"}, headers=bearer(ann)).json()["results"]
        assert http.post("/memories", json={"text": "c", "id": "mine"}, headers=bearer(ann)).status_code == 200
        correct = f"/memories/{last['id']}/supersede"
        assert error(http.post(correct, json={"text": "C"}, headers=bearer(ann)), 507) == "quota"
        assert http.post("/memories", json={"text": "x", "user_id": "ann"}, headers=bearer(root)).status_code == 200
        for note in memory.get_all()[:2]:
            assert http.delete(f"/memories/{note.id}", headers=bearer(ann)).status_code == 200
        assert http.post(correct, json={"text": "C"}, headers=bearer(ann)).status_code == 200
    keys.close()


# -- pages -------------------------------------------------------------------------------------------------------------

SMALL_PAGE = Limits(page_bytes=5_000)


@given(
    st.lists(st.integers(1, 3_000), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from(["a", "é", "\x01", "🐈"]),
)
def test_pages_are_bounded_in_bytes_and_hold_every_note_once(sizes: list[int], limit: int, sign: str) -> None:
    with Memory(":memory:") as memory, client(memory, limits=SMALL_PAGE) as http:
        texts = [f"{number}" + sign * size for number, size in enumerate(sizes)]
        for text in texts:
            memory.add(text)
        found: list[str] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            answer = http.get("/memories", params=query)
            page = answer.json()
            assert 1 <= len(page["results"]) <= limit
            assert len(answer.content) <= 5_100 or len(page["results"]) == 1
            found += [note["memory"] for note in page["results"]]
            if page["next"] is None:
                break
            query = {"limit": limit, "cursor": page["next"]}
        assert found == texts


def test_a_text_stands_once_in_every_answer(memory: Memory) -> None:
    word = "zanzibar" * 100
    (note,) = memory.add(f"cat {word}")
    with client(memory) as http:
        paths = ("", f"/{note.id}", f"/{note.id}/history", f"/{note.id}/sources")
        asked: list[tuple[str, str, Any]] = [("GET", f"/memories{path}", None) for path in paths]
        asked += [("POST", "/search", {"query": "cat"}), ("POST", "/memories", {"text": f"dog {word}"})]
        for method, path, body in asked:
            assert http.request(method, path, json=body).text.count(word) == 1, path


def test_lists_that_are_no_pages_give_the_beginning_of_what_they_have_no_room_for(path: Path) -> None:
    texts = [f"cat number {n} " + "meow " * 500 for n in range(6)]
    with (
        Memory(path, model=FakeChat(lambda ask: "Six cats meow.")) as memory,
        client(memory, limits=SMALL_PAGE) as http,
    ):
        for text in texts:
            memory.add(text, metadata={"long": "x" * 500})
        recall = http.post(
            "/recall", json={"query": "cat", "budget": 64, "action": "abstract", "candidates": True}
        ).json()
        lists = [http.post("/search", json={"query": "cat"}).json()["results"], recall["candidates"]]
        lists.append(http.get(f"/memories/{recall['record']['id']}/sources").json()["results"])
        for found in lists:
            assert len(found) >= 3
            assert len(json.dumps(found)) < 5_000 + 6 * 1_000
            assert "truncated" not in found[0]
            cut = [each for each in found if each.get("truncated")]
            assert cut
            assert all(len(each["memory"]) == 200 and "metadata" not in each for each in cut)
            whole = http.get(f"/memories/{cut[0]['id']}").json()
            assert whole["memory"].startswith(cut[0]["memory"])
            assert whole["memory"] in texts


def test_history_comes_page_by_page(memory: Memory) -> None:
    (note,) = memory.add("version 0 " + "x" * 1_000)
    ids = [note.id]
    for n in range(1, 12):
        ids.append(memory.supersede(ids[-1], f"version {n} " + "x" * 1_000).id)
    with client(memory, limits=SMALL_PAGE) as http:
        for start in (ids[0], ids[5], ids[-1]):
            found, cursor, pages = [], None, 0
            while pages == 0 or cursor is not None:
                page = http.get(f"/memories/{start}/history", params={"cursor": cursor} if cursor else {}).json()
                found += [version["id"] for version in page["results"]]
                cursor, pages = page["next"], pages + 1
            assert found == ids
            assert pages > 2
        assert error(http.get(f"/memories/{note.id}/history", params={"cursor": "x"}), 422) == "bad_input"


def test_pages_that_nobody_reads_hold_little_memory(path: Path) -> None:
    with Memory(path) as memory:
        for n in range(120):
            memory.add(f"{n} " + "word " * 19_000)  # 95 KB each, 11 MB in all
    with served(path, "--log", "error", "--max-seconds", "2") as running, contextlib.ExitStack() as opened:
        process = f"/proc/{running.process.pid}"
        assert running.http.get("/memories", params={"limit": 1000}).json()["next"]
        before = resident(process)
        host, _, port = running.url.removeprefix("http://").partition(":")
        for _ in range(30):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((host, int(port)))
            deaf.sendall(f"GET /memories?limit=1000 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        counted = lambda: running.http.get("/metrics").text.count('retcon_refused_total{reason="unread"} 30')  # noqa: E731
        until(counted, 60)
        until(lambda: "retcon_in_flight 0" in running.http.get("/metrics").text)
        assert peak(process) - before < 150 * 2**20, "30 pages of 11 MB, twice each, were 660 MB"


def resident(process: str) -> int:
    return int(Path(f"{process}/statm").read_text().split()[1]) * resource.getpagesize()


def peak(process: str) -> int:
    line = next(line for line in Path(f"{process}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


# -- time that is over -------------------------------------------------------------------------------------------------


def idle(http: Any) -> Callable[[], bool]:
    pools = http.app.state.service.workers.pools.values()
    return lambda: all(pool.working == pool.queued == 0 for pool in pools)


@pytest.mark.parametrize("path_", ["/ask", "/recall"])
def test_after_a_504_no_thread_waits_for_an_endpoint_that_hangs(path: Path, path_: str) -> None:
    with Server(always=slow(30)) as model:
        memory = Memory(path, model=model.base, model_name="m")
        with memory, client(memory, limits=Limits(seconds=0.5)) as http:
            memory.add("a cat named Pixel")
            body = {"query": "cat"} | ({"action": "abstract"} if path_ == "/recall" else {})
            answer = http.post(path_, json=body)
            assert error(answer, 504) == "timeout"
            assert answer.json()["error"]["message"] == "not done within 0.5 seconds; nothing was written"
            until(idle(http))
            assert len(model.seen) <= 1, "nothing is asked again"


def test_after_a_504_no_thread_waits_between_retries(path: Path) -> None:
    with Server(always=says({"error": "try later"}, 429, retry_after="30")) as model:
        memory = Memory(path, model=model.base, model_name="m")
        with memory, client(memory, limits=Limits(seconds=0.5)) as http:
            memory.add("a cat named Pixel")
            assert error(http.post("/ask", json={"query": "cat"}), 504) == "timeout"
            until(idle(http))


def test_after_a_504_no_thread_is_at_work_on_a_text(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def endless(*_: Any, **__: Any) -> Any:
        try:
            while True:
                time.sleep(0.001)
                deadline.check()
        finally:
            ended.set()

    monkeypatch.setattr(memory, "recall", endless)
    with client(memory, limits=Limits(seconds=0.3)) as http:
        assert error(http.post("/recall", json={"query": "cat"}), 504) == "timeout"
        assert ended.wait(10)
        until(idle(http))
        monkeypatch.undo()
        assert http.post("/recall", json={"query": "cat"}).status_code == 200


def test_action_that_is_late_is_no_reason_for_another_action(path: Path) -> None:
    def late(ask: Ask) -> str:
        time.sleep(0.02)
        deadline.check()
        return "Pixel"

    with Memory(path, model=FakeChat(late)) as memory:
        memory.add("a cat named Pixel")
        with pytest.raises(DeadlineError), deadline.until(time.monotonic() + 0.01):
            memory.recall("cat", 64, action="abstract")
        assert memory.recall("cat", 64, action="abstract").action == "abstract"


def test_slow_work_of_one_key_holds_up_no_other(path: Path, two: tuple[Keys, str, str]) -> None:
    keys, ann, eve = two
    go, started = threading.Event(), threading.Semaphore(0)
    with Memory(path) as memory, client(memory, keys=keys) as http:
        search = memory.search

        def stuck(query: str, **more: Any) -> Any:
            if more["where"].scope.user_id == "eve":
                started.release()
                assert go.wait(20)
            return search(query, **more)

        memory.search = stuck  # type: ignore[method-assign]
        with ThreadPoolExecutor(10) as threads:
            waiting = [
                threads.submit(http.post, "/search", json={"query": "cat"}, headers=bearer(eve)) for _ in range(10)
            ]
            assert started.acquire(timeout=10)
            for _ in range(3):
                assert http.post("/search", json={"query": "cat"}, headers=bearer(ann)).status_code == 200
            assert not any(each.done() for each in waiting)
            go.set()
            assert {each.result().status_code for each in waiting} == {200}


# -- what is counted ---------------------------------------------------------------------------------------------------


def test_metrics_name_every_reason_and_the_length_of_every_queue(memory: Memory) -> None:
    with client(memory, limits=Limits(query=5)) as http:
        http.post("/search", json={"query": "too long"})
        http.post("/search", content=b"{", headers={"content-type": "application/json"})
        http.get("/memories/none")
        http.get("/memories", headers={"host": "evil.example"})
        text = http.get("/metrics").text
        for reason in ("too_long", "bad_json", "not_found", "host"):
            assert f'retcon_refused_total{{reason="{reason}"}} 1' in text
        for pool in ("read", "write", "model"):
            assert f'retcon_queued{{pool="{pool}"}} 0' in text
            assert f'retcon_working{{pool="{pool}"}} 0' in text
        assert "retcon_incoming_bytes" in text


# -- bodies that say two things ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "a", "text": "b"}',
        b'{"text": "a", "metadata": {"x": 1, "x": 2}}',
        b'{"messages": [{"content": "a", "role": "user", "content": "b"}]}',
        b'{"text": "a", "\\u0074ext": "b"}',
    ],
)
def test_name_that_stands_twice_in_an_object_is_refused(memory: Memory, body: bytes) -> None:
    with client(memory) as http:
        answer = http.post("/memories", content=body, headers={"content-type": "application/json"})
        assert error(answer, 400) == "bad_json"
        assert "stands twice" in answer.json()["error"]["message"]
        assert memory.get_all() == []
        assert error(http.get("/memories", params={"metadata": '{"a": 1, "a": 2}'}), 400) == "bad_json"
