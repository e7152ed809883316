"""AsyncMemory does what Memory does, many calls at once, and survives a cancelled one."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
from conftest import counted_ids, fixed_clock

from retcon import AsyncMemory, Memory
from retcon.errors import InputError, NotFoundError, StoreError

pytestmark = pytest.mark.both_stores


def test_every_method_has_its_awaited_twin() -> None:
    def public(kind: type) -> set[str]:
        return {name for name, member in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}

    assert public(Memory) - public(AsyncMemory) <= {"lines", "stats"}
    assert all(
        inspect.isasyncgenfunction(twin) if name == "ask_stream" else inspect.iscoroutinefunction(twin)
        for name, twin in inspect.getmembers(AsyncMemory, inspect.isfunction) if name[0] != "_"
    )  # fmt: skip


def test_all_methods_answer_as_memory_does(path: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncMemory(path, now=fixed_clock, new_id=counted_ids()) as memory:
            await memory.add(["I adopted a cat named Pixel.", "It is grey."], user_id="ann")
            new = await memory.supersede("n1", "It is black.")
            assert (await memory.get("n0")).text == "I adopted a cat named Pixel."
            assert len(await memory.get_all(user_id="ann")) == 2
            assert [note.id for note in await memory.history(new.id)] == ["n1", new.id]
            assert (await memory.search("cat", user_id="ann", top_k=1))[0].id == "n0"
            assert (await memory.decide("cat", budget=64, user_id="ann")).action
            recall = await memory.recall("Which cat?", budget=64, user_id="ann")
            assert "Pixel" in recall.text
            assert (await memory.escalate(recall)) is not None
            assert await memory.export(tmp_path / "out.jsonl") == 3
            assert await memory.load(tmp_path / "out.jsonl") == 0
            assert (await memory.delete("n0")).notes == 1
            assert await memory.purge()
            assert (await memory.delete_all(user_id="ann")).notes == 2
            with pytest.raises(NotFoundError):
                await memory.get("n0")
            with pytest.raises(InputError):
                await memory.recall("x", budget=-1)

    asyncio.run(main())


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_many_calls_at_once_lose_nothing(path: Path, where: str) -> None:
    async def main() -> None:
        async with AsyncMemory(path if where == "file" else where, threads=8) as memory:

            async def work(i: int) -> None:
                await memory.add(f"zebra{i} was seen", id=f"n{i}", user_id="ann")
                recall = await memory.recall(f"zebra{i}?", budget=100, user_id="ann")
                assert f"zebra{i} was seen" in recall.text

            await asyncio.gather(*(work(i) for i in range(60)))
            assert len(await memory.get_all(user_id="ann")) == 60

    asyncio.run(main())


def test_a_cancelled_call_leaves_the_memory_usable(path: Path) -> None:
    began, release = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        for i in range(10):
            began.set()
            assert release.wait(120)
            yield json.dumps({"text": f"slow {i}", "user_id": "ann"})

    async def main() -> None:
        async with AsyncMemory(path) as memory:
            task = asyncio.create_task(memory.load(slow()))
            await asyncio.to_thread(began.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(memory.load(slow()), 0.01)
            release.set()
            await memory.add("fast", user_id="ann")
            notes = await memory.get_all(user_id="ann")
            # A transaction that had begun is finished whole by its thread; one that had not is never begun.
            assert len(notes) in (1, 11, 21)
            assert (await memory.recall("fast", budget=20, user_id="ann")).text

    asyncio.run(main())


def test_close_waits_for_what_runs(path: Path) -> None:
    began, release = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        for i in range(5):
            began.set()
            assert release.wait(120)
            yield json.dumps({"text": f"slow {i}"})

    async def main() -> None:
        memory = AsyncMemory(path)
        task = asyncio.create_task(memory.load(slow()))
        await asyncio.to_thread(began.wait)
        closing = asyncio.create_task(memory.close())
        await asyncio.sleep(0.03)
        assert not closing.done()
        release.set()
        await closing
        assert await task == 5
        with pytest.raises(StoreError, match="closed"):
            await memory.get_all()
        await memory.close()

    asyncio.run(main())
    with Memory(path) as again:
        assert len(again.get_all()) == 5


def test_a_call_runs_in_the_context_of_its_caller() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []

    def count(text: str) -> int:
        seen.append(who.get())
        return len(text.split())

    async def scenario() -> None:
        async with AsyncMemory(":memory:", counter=count) as memory:
            who.set("ann")
            await memory.add("The rent is 725 euros.")
            await memory.recall("What is the rent?", 20)

    asyncio.run(scenario())
    assert set(seen) == {"ann"}
