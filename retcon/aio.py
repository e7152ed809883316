"""AsyncMemory: the same words as Memory, awaited. The work runs on a few threads, each with a connection of its own.

A call waits for its turn as an entry in a queue, not on a thread and not on a connection: there are never more threads
than the store has connections, so a thread that begins finds one, and the time-out for a connection begins only then.
Who is cancelled while waiting is taken out of the queue, and nothing of that call happens; a call that runs is finished
by its thread, whole. The event loop's own threads (`asyncio.to_thread`) are left to others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack

from retcon import deadline
from retcon.deadline import Stop
from retcon.errors import StoreError
from retcon.habits import Hints
from retcon.memory import DEFAULT_PATH, Memory
from retcon.model import Chat, Embed
from retcon.model.embedders import Encode
from retcon.model.rerank import Rerank, Score
from retcon.note import Recall
from retcon.perform import Guard
from retcon.route import Router
from retcon.screen import Hook
from retcon.store.connections import Sync

P = ParamSpec("P")
T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `Memory`, word for word."""

    router: Router | str | os.PathLike[str] | None
    counter: str | Callable[[str], int] | None
    retriever: str | None
    embedder: str | Embed | Encode | None
    embed_in_background: bool
    reranker: str | Rerank | Score | None
    top_k: int | None
    cap: int
    model: str | Chat | None
    model_name: str | None
    api_key: str | None
    timeout: float | None
    focus: bool
    guard: Guard
    sync: Sync
    language: str | None
    stamp: bool
    before_store: Hook | None
    now: Callable[[], datetime]
    new_id: Callable[[], str]


def _on_thread(
    method: Callable[Concatenate[Memory, P], T],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, T]]:
    """A method of Memory as one that is awaited: the same parameters, result and docstring."""

    @wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._run(partial(method, self.memory, *args, **options))

    return call


def _streamed(
    method: Callable[Concatenate[Memory, P], Generator[T, None, None]],
) -> Callable[Concatenate[AsyncMemory, P], AsyncGenerator[T, None]]:
    """A method of Memory that yields, as one to go through with `async for`: each step is awaited on a thread.

    Who leaves the loop, or is cancelled in it, also ends the step under way: a model is not waited for any more.
    """

    @wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **options: P.kwargs) -> AsyncGenerator[T, None]:
        steps, stop = method(self.memory, *args, **options), Stop()
        try:
            while (step := await self._run(partial(next, steps, None), stop)) is not None:
                yield step
        finally:
            stop.set()

    return call


class AsyncMemory(Hints):
    """Memory for asyncio code. Takes what `Memory` takes, and every method takes what `Memory`'s takes."""

    def __init__(
        self, path: str | os.PathLike[str] = DEFAULT_PATH, *, threads: int = 4, **options: Unpack[Options]
    ) -> None:
        """Opens the file like `Memory(path, **options)`; at most `threads` calls run at once, the others wait."""
        self.memory = Memory(path, **options)
        self._pool = ThreadPoolExecutor(min(threads, self.memory.store.at_once or threads), thread_name_prefix="retcon")
        self._closed = False

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str] = DEFAULT_PATH, *, threads: int = 4, **options: Unpack[Options]
    ) -> Self:
        """The same, opened on a thread: a server that is slow to answer, or gone, does not hold up the event loop."""
        made = _start(partial(cls, path, threads=threads, **options))
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            made.add_done_callback(_close_unwanted)
            raise

    add = _on_thread(Memory.add)
    supersede = _on_thread(Memory.supersede)
    delete = _on_thread(Memory.delete)
    delete_all = _on_thread(Memory.delete_all)
    purge = _on_thread(Memory.purge)
    count_unpurged = _on_thread(Memory.count_unpurged)
    purge_due = _on_thread(Memory.purge_due)
    count_due = _on_thread(Memory.count_due)
    embed = _on_thread(Memory.embed)
    get = _on_thread(Memory.get)
    get_all = _on_thread(Memory.get_all)
    history = _on_thread(Memory.history)
    search = _on_thread(Memory.search)
    decide = _on_thread(Memory.decide)
    recall = _on_thread(Memory.recall)
    ask = _on_thread(Memory.ask)
    ask_stream = _streamed(Memory.ask_stream)
    export = _on_thread(Memory.export)
    load = _on_thread(Memory.load)
    reindex = _on_thread(Memory.reindex)
    stats = _on_thread(Memory.stats)
    cache_stats = _on_thread(Memory.cache_stats)
    clear_cache = _on_thread(Memory.clear_cache)
    check = _on_thread(Memory.check)
    backup = _on_thread(Memory.backup)

    async def escalate(self, recall: Recall) -> Recall | None:
        """The next best recall after this one; see `Recall.escalate`."""
        return await self._run(recall.escalate)

    async def close(self, *, purge: bool = True) -> None:
        """Finish what runs, then close the file; see `Memory.close`."""
        self._closed = True
        await asyncio.wrap_future(_start(self._pool.shutdown))
        await asyncio.wrap_future(_start(partial(self.memory.close, purge=purge)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, work: Callable[[], T], stop: Stop | None = None) -> T:
        if self._closed:
            raise StoreError("the memory is closed")
        context = deadline.context(stop=stop)  # the caller's: the thread's spans belong to it
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, work)


def _start(work: Callable[[], T]) -> Future[T]:
    """The work on a thread of its own."""
    starter = ThreadPoolExecutor(1, thread_name_prefix="retcon-once")
    try:
        return starter.submit(work)
    finally:
        starter.shutdown(wait=False)


def _close_unwanted(made: Future[Any]) -> None:
    """Close a memory that was opened for somebody who has gone."""
    if not made.cancelled() and made.exception() is None:
        made.result().memory.close()
