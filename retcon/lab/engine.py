"""Where the models of a labelling run are: in this process, or in the processes of a Ray cluster.

An engine opens models. What it opens is a `Chat` like any other, so that labelling itself is the same on every engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from retcon.errors import InputError
from retcon.model import Chat, chat

LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)


class Engine(Protocol):
    """Opens models for labelling, each for as long as its block runs."""

    def open_model(
        self, where: str, *, name: str | None, timeout: float, concurrency: int
    ) -> AbstractContextManager[Chat]: ...


class LocalEngine:
    """Models in this process, or asked from it."""

    @contextlib.contextmanager
    def open_model(self, where: str, *, name: str | None, timeout: float, concurrency: int) -> Iterator[Chat]:
        """The model meant by that text."""
        # a server that restarts during a run of hours is tried again by every ask
        made = chat(where, name=name, timeout=timeout, concurrency=concurrency, remember=0.0)
        try:
            yield made
        finally:
            getattr(made, "close", lambda: None)()  # closing is optional for a model


@contextlib.contextmanager
def start_engine(name: str, *, address: str | None = None, workers: int | None = None) -> Iterator[Engine]:
    """The engine of that name; one of Ray at `address`, or with a Ray of its own that ends with the block."""
    check_engine(name, address=address, workers=workers)
    if name == LOCAL:
        yield LocalEngine()
        return
    from retcon.lab.on_ray import start_ray

    with start_ray(address, workers=workers) as engine:
        yield engine


def check_engine(name: str, *, address: str | None = None, workers: int | None = None) -> None:
    """An error where there is no such engine, where its part is not installed, or where it takes no such setting."""
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    if name == RAY:
        from retcon.lab.on_ray import load_ray

        load_ray()
    elif address is not None or workers is not None:
        raise InputError(f"an address of a cluster and a number of workers are for the engine {RAY}, not for {name}")
