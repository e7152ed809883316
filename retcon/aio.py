"""AsyncMemory: the same words as Memory, awaited. The work runs on a few threads, each with a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from retcon.errors import StoreError
from retcon.ladder import Answer
from retcon.memory import DEFAULT_PATH, Memory
from retcon.note import Decision, Hit, Note, Recall
from retcon.store import Deleted
from retcon.store.checking import Check

P = ParamSpec("P")
T = TypeVar("T")


class AsyncMemory:
    """Memory for asyncio code. Takes what `Memory` takes, and every method takes what `Memory`'s takes."""

    def __init__(self, *args: Any, threads: int = 4, **options: Any) -> None:
        """Opens the file like `Memory(path, **options)`; at most `threads` calls run at once."""
        self.memory = Memory(*(args or (DEFAULT_PATH,)), **options)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="retcon")
        self._closed = False

    async def add(self, *args: Any, **options: Any) -> list[Note]:
        """The notes as stored; see `Memory.add`."""
        return await self._run(self.memory.add, *args, **options)

    async def supersede(self, *args: Any, **options: Any) -> Note:
        """The correction as stored; see `Memory.supersede`."""
        return await self._run(self.memory.supersede, *args, **options)

    async def delete(self, *args: Any, **options: Any) -> Deleted:
        """What went; see `Memory.delete`."""
        return await self._run(self.memory.delete, *args, **options)

    async def delete_all(self, **options: Any) -> Deleted:
        """What went; see `Memory.delete_all`."""
        return await self._run(self.memory.delete_all, **options)

    async def purge(self) -> bool:
        """Whether deleted words are gone from the files; see `Memory.purge`."""
        return await self._run(self.memory.purge)

    async def unpurged(self) -> int:
        """How many deletes wait for a purge; see `Memory.unpurged`."""
        return await self._run(self.memory.unpurged)

    async def check(self) -> Check:
        """Whether the file holds what was written to it; see `Memory.check`."""
        return await self._run(self.memory.check)

    async def backup(self, *args: Any, **options: Any) -> Check:
        """The check of the copy; see `Memory.backup`."""
        return await self._run(self.memory.backup, *args, **options)

    async def get(self, *args: Any, **options: Any) -> Note:
        """The note with this id; see `Memory.get`."""
        return await self._run(self.memory.get, *args, **options)

    async def get_all(self, **options: Any) -> list[Note]:
        """Notes in the order they were added; see `Memory.get_all`."""
        return await self._run(self.memory.get_all, **options)

    async def history(self, *args: Any, **options: Any) -> list[Note]:
        """Every version of the note; see `Memory.history`."""
        return await self._run(self.memory.history, *args, **options)

    async def search(self, *args: Any, **options: Any) -> list[Hit]:
        """The best notes for the query; see `Memory.search`."""
        return await self._run(self.memory.search, *args, **options)

    async def decide(self, *args: Any, **options: Any) -> Decision:
        """The decision alone; see `Memory.decide`."""
        return await self._run(self.memory.decide, *args, **options)

    async def recall(self, *args: Any, **options: Any) -> Recall:
        """The best text within the budget; see `Memory.recall`."""
        return await self._run(self.memory.recall, *args, **options)

    async def ask(self, *args: Any, **options: Any) -> Answer:
        """The reader's answer; see `Memory.ask`."""
        return await self._run(self.memory.ask, *args, **options)

    async def stats(self) -> Any:
        """What the store holds; see `Memory.stats`."""
        return await self._run(self.memory.stats)

    async def cache_stats(self) -> dict[str, int]:
        """What is kept of a model's work; see `Memory.cache_stats`."""
        return await self._run(self.memory.cache_stats)

    async def clear_cache(self) -> dict[str, int]:
        """How many records and replies went; see `Memory.clear_cache`."""
        return await self._run(self.memory.clear_cache)

    async def escalate(self, recall: Recall) -> Recall | None:
        """The next best recall after this one; see `Recall.escalate`."""
        return await self._run(recall.escalate)

    async def export(self, *args: Any, **options: Any) -> int:
        """How many notes were written; see `Memory.export`."""
        return await self._run(self.memory.export, *args, **options)

    async def load(self, *args: Any, **options: Any) -> int:
        """How many new notes came in; see `Memory.load`."""
        return await self._run(self.memory.load, *args, **options)

    async def close(self, *, purge: bool = True) -> None:
        """Finish what runs, then close the file; see `Memory.close`."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, wait=True)
        await asyncio.to_thread(self.memory.close, purge=purge)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        if self._closed:
            raise StoreError("the memory is closed")
        context = copy_context()  # the thread's spans belong to the caller's
        work = partial(context.run, partial(call, *args, **options))
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
