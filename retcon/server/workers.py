"""Where the work is done: a few threads for reads, one for writes, some more for what may wait for a model.

SQLite takes one write at a time, so one thread writes and nobody polls for the lock; on PostgreSQL a few do. Each
thread has a connection.
Keys that want threads at the same time get the same time on them, and no key has all of them: what one key asks for
stands in no other's way, however much or long it is.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from retcon.deadline import Stop
from retcon.deadline import context as deadline_context
from retcon.errors import DeadlineError
from retcon.server import logs
from retcon.server.limits import Limits
from retcon.server.refusals import Refusal
from retcon.serving import ignore_error

T = TypeVar("T")

LATELY = 10.0  # seconds for which a key that asked counts as one that may ask again
USUAL = 0.01  # seconds that a job is taken to need while nothing is known of its key's


@dataclass(frozen=True, slots=True, eq=False)
class QueuedCall:
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


@dataclass(slots=True, eq=False)
class _Account:
    """What a pool knows of one key."""

    waiting: deque[QueuedCall] = field(default_factory=deque)
    running: int = 0
    used: float = 0.0  # the key's clock: seconds of threads that it has used
    usual: float = USUAL  # seconds that a job of it took lately


class Pool:
    """Threads that take jobs from the keys so that each key gets the same time. They start when they are first needed.

    Next is the key that has used least, by a clock of its own: a job moves it on by what the key's jobs take, and a key
    that was away begins where the others are now. Jobs that take equally long come from the keys in turn. A key has two
    thirds of the threads at most, so that one is left for who comes next, and where `crowded` says so only that many
    while others have asked lately: threads of Python share one lock. The empty key, where there are no keys, has all.

    Clocks decide who is next and nothing else: an error in them is logged, and the jobs are done all the same.
    """

    def __init__(
        self,
        name: str,
        size: int,
        crowded: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] | None = None,
    ) -> None:
        """`cost` is the clock, read on the thread, by which a job is charged; by default the same as `clock`."""
        self.name, self.size, self.share, self.clock = name, size, max(1, size * 2 // 3), clock
        self.cost = cost or clock
        self.crowded = self.share if crowded is None else crowded
        self._lately: OrderedDict[str, float] = OrderedDict()  # when each key asked last
        self._accounts: OrderedDict[str, _Account] = OrderedDict()  # who waits longest for a turn comes first
        self._now = 0.0  # the clock of the key that had the last turn
        self._threads: list[threading.Thread] = []
        self._change = threading.Condition()
        self._closed = False

    @property
    def queued(self) -> int:
        """Jobs that wait."""
        with self._change:
            return self._count_queued()

    @property
    def working(self) -> int:
        """Threads that are at work."""
        with self._change:
            return self._count_working()

    @property
    def broken(self) -> bool:
        """Whether a thread has ended that should be there; the next job brings another."""
        with self._change:
            return not self._closed and not all(each.is_alive() for each in self._threads)

    def submit(self, key: str, call: Callable[[], Any]) -> QueuedCall:
        """The job, which is done when its key has its turn."""
        job = QueuedCall(key, call)
        with self._change:
            self._staff(self._count_working() + self._count_queued() + 1)
            self._lately[key] = self.clock()
            self._lately.move_to_end(key)
            account = self._accounts.setdefault(key, _Account())
            if not account.waiting:
                self._accounts.move_to_end(key)
            account.waiting.append(job)
            self._change.notify()
        return job

    def cancel(self, job: QueuedCall) -> bool:
        """Whether the job will never begin; it leaves the queue at once."""
        if not job.future.cancel():
            return False
        with self._change:
            account = self._accounts.get(job.key)
            if account is not None and job in account.waiting:
                account.waiting.remove(job)
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

    def _count_queued(self) -> int:
        return sum(len(account.waiting) for account in self._accounts.values())

    def _count_working(self) -> int:
        return sum(account.running for account in self._accounts.values())

    def _staff(self, jobs: int) -> None:
        """One more thread where there are fewer than jobs; those that have died do not count."""
        self._threads = [each for each in self._threads if each.is_alive()]
        if len(self._threads) >= min(self.size, jobs):
            return
        thread = threading.Thread(target=self._work, name=f"retcon-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more: those that there are do the work
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._take()) is not None:
            began = self.cost()
            job.run()
            took = self.cost() - began
            with self._change:
                self._accounts[job.key].running -= 1
                self._safely(partial(self._settle, job.key, took), None)
                if self._closed:
                    self._change.notify_all()
            del job  # its result is not held until the next one comes

    def _take(self) -> QueuedCall | None:
        """The first job of the key whose turn it is; None when there will be no more."""
        with self._change:
            while not (free := self._free()):
                if self._closed and not self._count_queued():
                    return None
                self._change.wait()
            key = self._safely(partial(self._least, free), free[0])
            account = self._accounts[key]
            account.running += 1
            self._accounts.move_to_end(key)
            return account.waiting.popleft()

    def _free(self) -> list[str]:
        """Keys that wait and may have a further thread, who waits longest first."""
        share = self._safely(self._share, self.crowded)
        return [
            key for key, account in self._accounts.items() if account.waiting and (not key or account.running < share)
        ]

    def _share(self) -> int:
        """Threads that one key may have now."""
        since = self.clock() - LATELY
        while self._lately and next(iter(self._lately.values())) < since:
            self._lately.popitem(last=False)
        return self.crowded if len(self._lately) > 1 else self.share

    def _least(self, free: Sequence[str]) -> str:
        """The key that has used least, charged with what its jobs usually take."""
        for each in free:
            self._accounts[each].used = max(self._accounts[each].used, self._now)
        key = min(free, key=lambda each: self._accounts[each].used)  # of equals, who waits longest
        account = self._accounts[key]
        busy = (each.used for each in self._accounts.values() if each.waiting or each.running)
        self._now = max(self._now, min(busy))  # not past a key at work: what it has not used stays its own
        account.used += account.usual
        return key

    def _settle(self, key: str, took: float) -> None:
        """Correct what the key was charged when its job began; who has nothing to do and no debt is forgotten."""
        account = self._accounts[key]
        account.used += took - account.usual
        account.usual = (account.usual + took) / 2
        for name, each in list(self._accounts.items()):
            if not each.waiting and not each.running and (each.used <= self._now or name not in self._lately):
                del self._accounts[name]

    def _safely(self, act: Callable[[], T], otherwise: T) -> T:
        """What comes of it, and after an error, which would be the thread's end, the other."""
        try:
            return act()
        except Exception as error:
            logs.event(logging.ERROR, "fault", pool=self.name, **logs.describe(error))
            return otherwise


class Workers:
    """Runs calls on threads, within a deadline on the event loop's clock."""

    def __init__(self, limits: Limits, *, writers: int = 1) -> None:
        self.seconds = limits.seconds
        # by processor time: a job that waited because another key kept the processor busy costs its key nothing
        reads = Pool("read", limits.threads, crowded=max(1, limits.threads // 3), cost=time.thread_time)
        self.pools = {"read": reads, "write": Pool("write", writers), "model": Pool("model", limits.model_threads)}

    async def run(self, kind: str, key: str, call: Callable[[], T], deadline: float, stop: Stop | None = None) -> T:
        """What the call returns, from a thread of that kind of pool.

        A read that takes too long is no longer waited for, and ends at its next check. A write is dropped if it cannot
        begin in time; once begun it is waited for to the end, so that the caller always learns whether it was done: it
        ends by itself, because the store gives up on a lock. A `stop` makes a read late before its time.
        """
        pool, finish = self.pools[kind], kind == "write"
        left = deadline - asyncio.get_running_loop().time()
        context = deadline_context(math.inf if finish else time.monotonic() + left, stop)
        job = pool.submit(key, partial(context.run, call))
        waiting: asyncio.Future[T] = asyncio.wrap_future(job.future)
        await asyncio.wait({waiting}, timeout=max(0.0, left))
        if not waiting.done() and (pool.cancel(job) or not finish):
            waiting.add_done_callback(ignore_error)
            raise late_refusal(self.seconds)
        try:
            return await waiting
        except DeadlineError:
            raise late_refusal(self.seconds) from None

    @property
    def broken(self) -> list[str]:
        """Pools of which a thread has ended that should be there."""
        return [name for name, pool in self.pools.items() if pool.broken]

    def close(self) -> None:
        """Finish what was accepted, and end the threads."""
        for pool in self.pools.values():
            pool.close()


def late_refusal(seconds: float, **headers: str) -> Refusal:
    """The answer to a request that took too long."""
    message = f"not done within {seconds:g} seconds; nothing was written"
    return Refusal(504, "timeout", message, Retry_After="1", **headers)
