"""What runs in a worker process of Ray: one model, opened when first needed, that answers what it is sent."""

from __future__ import annotations

import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from retcon import __version__
from retcon.errors import ModelError, RetconError
from retcon.model import Ask, Chat, HttpChat, Reply, chat


@dataclass(frozen=True, slots=True)
class Plan:
    """How a worker opens its model. It travels with every call, so that the key is kept in no table of the cluster."""

    where: str  # a base URL, or a path that is there on every node
    name: str | None
    endpoint: bool = False
    key: str | None = field(default=None, repr=False)
    timeout: float = 600.0
    at_once: int = 1  # asks that one worker may have in its hands


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker says of itself once it is up, or why it cannot be."""

    node: str
    version: str = __version__
    name: str = ""
    kind: str = ""
    error: str | None = None


class Worker:
    """Holds one model. Whether a failed ask is tried again is decided where the asks come from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chat: Chat | None = None

    def describe(self, plan: Plan) -> Facts:
        """The model that is here; it is loaded first."""
        try:
            opened = self._open(plan)
        except RetconError as error:
            return Facts(platform.node(), error=str(error))
        return Facts(platform.node(), name=opened.name, kind=opened.kind)

    def ask(self, plan: Plan, asks: Sequence[Ask]) -> list[Reply | ModelError]:
        """The replies, in the order of the asks."""
        return self._open(plan)(asks)

    def _open(self, plan: Plan) -> Chat:
        with self._lock:
            if self._chat is None:
                self._chat = _open(plan)
            return self._chat


def _open(plan: Plan) -> Chat:
    if not plan.endpoint:
        return chat(plan.where, name=plan.name, timeout=plan.timeout)
    options = {"timeout": plan.timeout, "concurrency": plan.at_once, "retries": 0, "remember": 0.0}
    return HttpChat(plan.where, plan.name, key=plan.key, **options)
