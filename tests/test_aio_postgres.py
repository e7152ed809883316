"""Many tasks on few connections: none holds a thread while it waits, none is in the others' way, none is half done."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from clusters import Cluster, schema_of
from waiting import until

from retcon import AsyncMemory, Memory, Scope
from retcon.errors import StoreError

MANY = 500


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    made = cluster.url(pool_size=4)
    yield made
    cluster.drop(made)


@contextmanager
def held(cluster: Cluster, url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A block in which another program keeps everybody from reading notes."""
    with cluster.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {schema_of(url)}.note")
        yield other


def threads_of_ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("retcon_")]


def waiting_in_the_server(other: psycopg.Connection[tuple[object, ...]]) -> int:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"
    (found,) = other.execute(query).fetchone() or (0,)
    return int(str(found))


async def come_to(condition: object, *args: object) -> None:
    """Wait until it holds, on a thread of the event loop's own: that one is free, too."""
    await asyncio.to_thread(until, lambda: condition(*args))  # type: ignore[operator]


def test_500_recalls_on_4_connections_hold_4_threads_and_leave_the_event_loop_alone(cluster: Cluster, url: str) -> None:
    async def main() -> None:
        async with await AsyncMemory.open(url, threads=64) as memory:
            await memory.add("I adopted a cat named Pixel.", user_id="ann")
            with held(cluster, url) as other:
                tasks = [asyncio.create_task(memory.recall("which cat?", 100, user_id="ann")) for _ in range(MANY)]
                await come_to(
                    lambda: waiting_in_the_server(other) == 4
                )  # the event loop turns, and so does its executor
                assert len(threads_of_ours()) == 4
                assert not any(task.done() for task in tasks)
            assert {(await task).text for task in tasks} == {(await tasks[0]).text}
            assert "Pixel" in (await tasks[0]).text

    asyncio.run(main())


def test_waiting_for_a_turn_is_no_waiting_for_a_connection(cluster: Cluster, url: str) -> None:
    """The time-out of the store is far below the time that the last of them waits for its turn."""

    async def main() -> None:
        async with await AsyncMemory.open(url.replace("pool_size=4", "pool_size=1") + "&timeout=2") as memory:
            await memory.add("I adopted a cat named Pixel.", user_id="ann")
            slow = [asyncio.create_task(asyncio.wait_for(_sleep(memory, 0.25), None)) for _ in range(16)]
            await asyncio.gather(*slow)

    asyncio.run(main())


async def _sleep(memory: AsyncMemory, seconds: float) -> None:
    """A call that has a connection for so long."""

    def work() -> None:
        with memory.memory.store._read() as connection:
            connection.execute("SELECT pg_sleep(?)", (seconds,))

    await memory._run(work)


def test_a_task_that_is_cancelled_while_it_waits_does_nothing(cluster: Cluster, url: str) -> None:
    async def main() -> None:
        async with await AsyncMemory.open(url) as memory:
            await memory.add("first", id="first", user_id="ann")
            with held(cluster, url) as other:
                running = [asyncio.create_task(memory.get("first")) for _ in range(4)]
                await come_to(lambda: waiting_in_the_server(other) == 4)
                waiting = [asyncio.create_task(memory.add(f"n{i}", id=f"n{i}", user_id="ann")) for i in range(50)]
                await asyncio.sleep(0)
                for task in waiting[::2]:
                    task.cancel()
                gone = await asyncio.gather(*waiting[::2], return_exceptions=True)
                assert all(isinstance(each, asyncio.CancelledError) for each in gone)
            await asyncio.gather(*running, *waiting[1::2])
            found = {note.id for note in await memory.get_all(user_id="ann")}
            assert found == {"first"} | {f"n{i}" for i in range(1, 50, 2)}
            assert (await memory.check()).ok

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_it_runs_gives_its_connection_back(cluster: Cluster, url: str) -> None:
    async def main() -> None:
        async with await AsyncMemory.open(url) as memory:
            await memory.add("first", id="first", user_id="ann")
            with held(cluster, url) as other:
                running = [asyncio.create_task(memory.get("first")) for _ in range(4)]
                await come_to(lambda: waiting_in_the_server(other) == 4)
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
            again = await asyncio.gather(*(memory.get("first") for _ in range(20)))
            assert {note.text for note in again} == {"first"}

    asyncio.run(main())


def test_close_waits_for_what_was_taken_on_and_takes_on_no_more(cluster: Cluster, url: str) -> None:
    async def main() -> None:
        memory = await AsyncMemory.open(url)
        await memory.add("first", id="first", user_id="ann")
        with held(cluster, url) as other:
            taken = [asyncio.create_task(memory.add(f"n{i}", id=f"n{i}", user_id="ann")) for i in range(30)]
            await come_to(lambda: waiting_in_the_server(other) >= 1)
            closing = asyncio.create_task(memory.close())
            await asyncio.sleep(0)
            with pytest.raises(StoreError, match="closed"):
                await memory.get("first")
            assert not closing.done()
        await asyncio.gather(*taken)
        await closing

    asyncio.run(main())
    with Memory(url) as memory:
        assert memory.store.count(Scope("ann")) == 31


def test_a_busy_executor_of_the_event_loop_is_in_nobodys_way(url: str) -> None:
    async def main() -> None:
        release = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, release.wait)
        async with await AsyncMemory.open(url) as memory:
            await memory.add("first", id="first", user_id="ann")
            assert (await memory.get("first")).text == "first"
        release.set()
        await busy

    asyncio.run(main())


def test_a_server_that_does_not_answer_holds_up_no_other_task_while_it_is_opened() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
            url = f"postgresql://retcon@127.0.0.1:{silent.getsockname()[1]}/x?timeout=1"
            opening = asyncio.create_task(AsyncMemory.open(url))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not opening.done()  # and yet we are here
            with pytest.raises(StoreError):
                await opening

    asyncio.run(main())


def test_a_memory_whose_opener_was_cancelled_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began, release, closed = threading.Event(), threading.Event(), threading.Event()
    usual, usual_close = Memory.__init__, Memory.close

    def slow(self: Memory, *args: object, **options: object) -> None:
        began.set()
        assert release.wait(120)
        usual(self, *args, **options)  # type: ignore[arg-type]

    def close(self: Memory, *, purge: bool = True) -> None:
        usual_close(self, purge=purge)
        closed.set()

    monkeypatch.setattr(Memory, "__init__", slow)
    monkeypatch.setattr(Memory, "close", close)

    async def main() -> None:
        opening = asyncio.create_task(AsyncMemory.open(url))
        await asyncio.to_thread(began.wait, 120)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        release.set()
        assert await asyncio.to_thread(closed.wait, 120)

    asyncio.run(main())
