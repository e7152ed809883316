"""Where the work is done: a few threads for reads, one for writes, some more for what may wait for a model.

SQLite takes one write at a time, so one thread writes and nobody polls for the lock. Each thread has a connection.
Keys that want threads at the same time get the same time on them, and no key has all of them: what one key asks for
stands in no other's way, however much or long it is.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from retcon.deadline import until
from retcon.errors import DeadlineError
from retcon.server.faults import Refused
from retcon.server.limits import Limits

T = TypeVar("T")

LATELY = 10.0  # seconds for which a key that asked counts as one that may ask again
USUAL = 0.01  # seconds that a job is taken to need while nothing is known of its key's


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One call that a key waits for."""

    key: str
    call: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Do it, unless nobody waits any more."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.call())
        except BaseException as error:
            self.future.set_exception(error)


class Pool:
    """Threads that take jobs from the keys so that each key gets the same time. They start when they are first needed.

    Next is the key that has used least, by a clock of its own: a job moves it on by what the key's jobs take, and a key
    that was away begins where the others are now. Jobs that take equally long come from the keys in turn. A key has two
    thirds of the threads at most, so that one is left for who comes next, and where `crowded` says so only that many
    while others have asked lately: threads of Python share one lock. The empty key, where there are no keys, has all.
    """

    def __init__(
        self, name: str, size: int, crowded: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.size, self.share, self.clock = name, size, max(1, size * 2 // 3), clock
        self.crowded = self.share if crowded is None else crowded
        self._lately: OrderedDict[str, float] = OrderedDict()  # when each key asked last
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()  # who waits longest for a turn comes first
        self._running: Counter[str] = Counter()
        self._used: dict[str, float] = {}  # each key's clock: seconds of threads that it has used
        self._usual: dict[str, float] = {}  # seconds that a job of the key took lately
        self._now = 0.0  # the clock of the key that had the last turn
        self._threads: list[threading.Thread] = []
        self._change = threading.Condition()
        self._closed = False

    @property
    def queued(self) -> int:
        """Jobs that wait."""
        with self._change:
            return sum(map(len, self._waiting.values()))

    @property
    def working(self) -> int:
        """Threads that are at work."""
        with self._change:
            return self._running.total()

    def submit(self, key: str, call: Callable[[], Any]) -> Job:
        """The job, which is done when its key has its turn."""
        job = Job(key, call)
        with self._change:
            self._lately[key] = self.clock()
            self._lately.move_to_end(key)
            self._waiting.setdefault(key, deque()).append(job)
            wanted = self._running.total() + sum(map(len, self._waiting.values()))
            if len(self._threads) < min(self.size, wanted):
                self._threads.append(threading.Thread(target=self._work, name=f"retcon-{self.name}", daemon=True))
                self._threads[-1].start()
            self._change.notify()
        return job

    def cancel(self, job: Job) -> bool:
        """Whether the job will never begin; it leaves the queue at once."""
        if not job.future.cancel():
            return False
        with self._change:
            jobs = self._waiting.get(job.key)
            if jobs is not None and job in jobs:
                jobs.remove(job)
                if not jobs:
                    del self._waiting[job.key]
        return True

    def close(self) -> None:
        """Finish what was accepted, and end the threads; a later job starts new ones."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        with self._change:
            self._threads.clear()
            self._closed = False

    def _work(self) -> None:
        while (job := self._take()) is not None:
            began = self.clock()
            job.run()
            with self._change:
                self._count(job.key, self.clock() - began)
                if self._closed:
                    self._change.notify_all()
            del job  # its result is not held until the next one comes

    def _count(self, key: str, took: float) -> None:
        """Correct what the key was charged when its job began; who has nothing to do and no debt is forgotten."""
        usual = self._usual[key]
        self._used[key] += took - usual
        self._usual[key] = (usual + took) / 2
        self._running[key] -= 1
        self._running += Counter()  # without keys that run nothing
        for each in [each for each, used in self._used.items() if used <= self._now or each not in self._lately]:
            if each not in self._waiting and each not in self._running:
                del self._used[each], self._usual[each]

    def _take(self) -> Job | None:
        with self._change:
            while (job := self._next()) is None:
                if self._closed and not self._waiting:
                    return None
                self._change.wait()
            self._running[job.key] += 1
            return job

    def _share(self) -> int:
        """Threads that one key may have now."""
        since = self.clock() - LATELY
        while self._lately and next(iter(self._lately.values())) < since:
            self._lately.popitem(last=False)
        return self.crowded if len(self._lately) > 1 else self.share

    def _next(self) -> Job | None:
        """The first job of the key that has used least, of those that may have a further thread."""
        share = self._share()
        free = [key for key in self._waiting if not key or self._running[key] < share]
        if not free:
            return None
        for key in free:
            self._used[key] = max(self._used.get(key, 0.0), self._now)
        key = min(free, key=self._used.__getitem__)  # of equals, who waits longest
        self._now = self._used[key]
        self._used[key] += self._usual.setdefault(key, USUAL)
        job = self._waiting[key].popleft()
        if self._waiting[key]:
            self._waiting.move_to_end(key)
        else:
            del self._waiting[key]
        return job


class Workers:
    """Runs calls on threads, within a deadline on the event loop's clock."""

    def __init__(self, limits: Limits) -> None:
        self.seconds = limits.seconds
        reads = Pool("read", limits.threads, crowded=max(1, limits.threads // 3))
        self.pools = {"read": reads, "write": Pool("write", 1), "model": Pool("model", limits.model_threads)}

    async def read(self, key: str, call: Callable[[], T], deadline: float, *, model: bool = False) -> T:
        """What the call returns. One that takes too long is no longer waited for, and ends at its next check."""
        return await self._run(self.pools["model" if model else "read"], key, call, deadline, finish=False)

    async def write(self, key: str, call: Callable[[], T], deadline: float) -> T:
        """What the call returns. It is dropped if it cannot begin in time; once begun it is waited for to the end.

        So the caller always learns whether it was done: a write ends by itself, because the store gives up on a lock.
        """
        return await self._run(self.pools["write"], key, call, deadline, finish=True)

    async def _run(self, pool: Pool, key: str, call: Callable[[], T], deadline: float, *, finish: bool) -> T:
        left = deadline - asyncio.get_running_loop().time()
        end = math.inf if finish else time.monotonic() + left
        job = pool.submit(key, partial(contextvars.copy_context().run, _within, end, call))
        waiting: asyncio.Future[T] = asyncio.wrap_future(job.future)
        await asyncio.wait({waiting}, timeout=max(0.0, left))
        if not waiting.done() and (pool.cancel(job) or not finish):
            waiting.add_done_callback(_forget)
            raise late(self.seconds)
        try:
            return await waiting
        except DeadlineError:
            raise late(self.seconds) from None

    def close(self) -> None:
        """Finish what was accepted, and end the threads."""
        for pool in self.pools.values():
            pool.close()


def _within(end: float, call: Callable[[], T]) -> T:
    with until(end):
        return call()


def late(seconds: float, **headers: str) -> Refused:
    """The answer to a request that took too long."""
    message = f"not done within {seconds:g} seconds; nothing was written"
    return Refused(504, "timeout", message, Retry_After="1", **headers)


def _forget(waiting: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not waiting.cancelled():
        waiting.exception()
