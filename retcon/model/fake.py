"""A model for tests: answers from a queue or by a rule, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from retcon.errors import InputError, ModelError
from retcon.model.base import Ask, Reply, clean
from retcon.tokens import counter

Rule = Callable[[Ask], str]


class FakeChat:
    """Replies taken one by one from a queue of texts, errors and rules; a rule alone answers every ask.

    `asked` holds every ask so far, in order. Tokens are counted by the estimate. Like a real model it may say more than
    `max_tokens`: what it is given is what it says.
    """

    kind = "fake"

    def __init__(self, replies: Iterable[str | ModelError | Rule] | Rule = (), name: str = "fake") -> None:
        self.name = name
        self.asked: list[Ask] = []
        self._rule = replies if callable(replies) else None
        self._queue = deque(() if callable(replies) else replies)
        self._count = counter("estimate")
        self._lock = threading.Lock()

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Ask) -> Reply | ModelError:
        with self._lock:
            self.asked.append(ask)
            found = self._rule or self._next()
        if isinstance(found, ModelError):
            return found
        text = clean(found(ask) if callable(found) else found)
        prompt = sum(self._count(message["content"]) for message in ask.messages)
        return Reply(text, prompt, self._count(text), 0.0, "stop")

    def _next(self) -> str | ModelError | Rule:
        if not self._queue:
            raise InputError(f"the fake model {self.name!r} was asked {len(self.asked)} times and has no reply left")
        return self._queue.popleft()
