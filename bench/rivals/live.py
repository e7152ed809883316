"""A batch that callers join and leave while it runs: rows come in one by one, and each is handed back as it ends.

`retcon.lab.gpu.flow` says all rows of a list to their end. Here the list never ends: between two tokens, rows that have
arrived are read and put beside those under way. Joining costs about as much as a few tokens, so arrivals wait
for a few.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from retcon.lab.gpu.flow import LEAVE, Flow, Row, _Batch

EVERY = 6  # tokens between two joins


class Live:
    """Answers rows as they arrive, in a thread of its own."""

    def __init__(self, flow: Flow, *, tokens: int, most: int, gather: float = 0.01) -> None:
        self.flow, self.tokens, self.most, self.gather = flow, tokens, most, gather
        self._arrived: queue.SimpleQueue[tuple[Row, Callable[[], None]] | None] = queue.SimpleQueue()
        self._done: dict[Row, Callable[[], None]] = {}
        self.batches, self.largest = 0, 0  # joins, and the most rows that were under way at once
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, row: Row) -> None:
        """Wait until the row has ended. Rows of several threads are said together."""
        ended = threading.Event()
        self._arrived.put((row, ended.set))
        ended.wait()

    def close(self) -> None:
        """End once every row under way has ended."""
        self._arrived.put(None)
        self._thread.join()

    def _serve(self) -> None:
        waiting: deque[Row] = deque()
        batch: _Batch | None = None
        since, going = 0, True
        with self.flow.torch.inference_mode():
            while going or waiting or batch is not None:
                going = self._take(waiting, idle=batch is None and not waiting) and going
                try:
                    if waiting and (batch is None or since >= EVERY):
                        batch, since = self._admit(waiting, batch), 0
                    elif batch is not None:
                        self.flow._step(batch)
                        since += 1
                    batch = self._release(batch)
                except self.flow.torch.OutOfMemoryError:
                    self._begin_again(waiting)
                    batch = None

    def _take(self, waiting: deque[Row], *, idle: bool) -> bool:
        """Move arrivals to those that wait; where nothing goes on, wait for one, and a moment for others."""
        block: float | None = None
        while True:
            try:
                found = self._arrived.get(block=idle or block is not None, timeout=None if idle else block)
            except queue.Empty:
                return True
            if found is None:
                return False
            row, done = found
            row.reach = len(row.ids)
            self._done[row] = done
            waiting.append(row)
            if idle:
                idle, block = False, self.gather

    def _admit(self, waiting: deque[Row], batch: _Batch | None) -> _Batch:
        under_way = [] if batch is None else batch.rows
        longest = max(len(row.ids) + row.ask.max_tokens for row in (*under_way, *waiting))
        room = max(1, min(self.most, self.tokens // longest) - len(under_way))
        new = [waiting.popleft() for _ in range(min(len(waiting), room))]
        joined = self.flow._join(batch, self.flow._begin(new))
        self.batches, self.largest = self.batches + 1, max(self.largest, len(joined.rows))
        return joined

    def _release(self, batch: _Batch | None) -> _Batch | None:
        """Hand back the rows that have ended; the batch without them once they are many."""
        if batch is None:
            return None
        for row in batch.rows:
            if row in self._done and self.flow._has_ended(row):
                self._done.pop(row)()
        stays = self.flow._find_unfinished(batch)
        if not stays:
            return None
        if len(stays) <= LEAVE * len(batch.rows):
            self.flow._keep(batch, stays)
        return batch

    def _begin_again(self, waiting: deque[Row]) -> None:
        """All rows that have not ended wait again, in smaller batches; one that is too large alone is given up."""
        torch: Any = self.flow.torch
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.tokens //= 2
        rows = [*self._done]
        waiting.clear()
        for row in rows:
            row.said, row.logprobs, row.too_large = [], [], len(rows) == 1
            if row.too_large:
                self._done.pop(row)()
            else:
                waiting.append(row)
