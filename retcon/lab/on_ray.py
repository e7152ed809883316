"""Labelling on Ray: a model that is held, or asked, by worker processes on one machine or many (extra `ray`).

This process decides, and keeps every reply in the cache the moment that it is here; workers hold nothing but a model.
So a worker may die at any time: what it had answered is kept, and only the asks that were in its hands are sent again,
to another. How many requests are under way over all workers is decided here too, by one `Pace`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retcon import __version__
from retcon.cache import Arrived, in_order
from retcon.errors import InputError, MissingExtraError, ModelError, ModelUnavailableError, message_of
from retcon.lab.pace import FIRST_WAIT, LONGEST_WAIT, Pace
from retcon.lab.ray_worker import Facts, Plan, Worker
from retcon.model import Ask, Reply, chat, is_endpoint
from retcon.model.http import HttpChat

RETRIES = 4  # of an ask whose failure may pass, as an endpoint is tried again without Ray
DEATHS = 3  # of workers over one ask, or one after the other without a reply in between: then it is given up
KNOCK = 10.0  # seconds for a connection to a cluster
START = 300.0  # seconds for the first worker to come up
BATCH = 512  # asks that a model of the kind hf is handed at once; others get one at a time
OBJECTS = 80 * 2**20  # bytes of Ray's object store on this machine, near the least that it takes; asks are small
ENDPOINT_WORKERS = 2
TOKEN = secrets.token_hex(32)  # of a Ray of our own, which would else write one to the user's home
SHARE = 0.01  # of a processor, for a worker that only waits for an endpoint


# -- the engine --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def start_ray(address: str | None = None, *, workers: int | None = None) -> Iterator[RayEngine]:
    """The engine, on the cluster at `address` ("auto", HOST:PORT, ray://...), else on a Ray of its own.

    A Ray that this process has started before is used as it is, and left running.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield RayEngine(ray, workers)
        return
    with _own_ray() if address is None else _joined(address):
        yield RayEngine(ray, workers)


def load_ray() -> Any:
    """The library; an error with its install line where it is absent."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry of any kind
    try:
        import ray  # seconds, so only where it is asked for
    except ImportError:
        raise MissingExtraError("labelling on Ray", "ray") from None
    return ray


@contextlib.contextmanager
def _own_ray() -> Iterator[None]:
    """A small quiet Ray on this machine, whose processes and files are gone afterwards."""
    ray, folder = load_ray(), tempfile.mkdtemp(prefix="retcon-ray-")
    os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)
    try:
        ray.init(
            address="local", num_cpus=max(1, os.cpu_count() or 1), object_store_memory=OBJECTS, include_dashboard=False,
            log_to_driver=False, logging_level=logging.ERROR, _temp_dir=folder,
        )  # fmt: skip
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        if os.environ.get("RAY_AUTH_TOKEN") == TOKEN:
            del os.environ["RAY_AUTH_TOKEN"]


@contextlib.contextmanager
def _joined(address: str) -> Iterator[None]:
    """A connection to a cluster that runs already."""
    ray = load_ray()
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ImportError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise InputError(f"no Ray cluster at {address}: {message_of(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """An error where nobody listens at an address with a port: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"no Ray cluster at {address}: {getattr(error, 'strerror', None) or error}") from None


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Models in worker processes of the Ray that this process is connected to."""

    ray: Any
    workers: int | None = None  # of each model; None: as many as fit its kind

    @contextlib.contextmanager
    def open_model(self, where: str, *, name: str | None, timeout: float, concurrency: int) -> Iterator[RayChat]:
        """The model meant by that text, with workers that have come up, or will."""
        plan = _plan(where, name, timeout, concurrency)
        kind = "http" if plan.endpoint else "gguf" if plan.where.endswith(".gguf") else "hf"
        count, needs = self._size(kind)
        crew = _Crew(self.ray, plan, count, needs)
        try:
            crew.start()
            yield RayChat(crew, Pace(concurrency if plan.endpoint else count), size=BATCH if kind == "hf" else 1)
        finally:
            crew.close()

    def _size(self, kind: str) -> tuple[int, Mapping[str, float]]:
        """How many workers a model of that kind has, and what each of them takes of the cluster."""
        have = self.ray.cluster_resources()
        nodes, gpus = sum(node["Alive"] for node in self.ray.nodes()), int(have.get("GPU", 0))
        if kind == "http":
            return self.workers or max(ENDPOINT_WORKERS, nodes), {"num_cpus": SHARE}
        if kind == "hf" and gpus:
            return self.workers or gpus, {"num_cpus": SHARE, "num_gpus": 1}
        return self.workers or nodes, {"num_cpus": 1}


def _plan(where: str, name: str | None, timeout: float, concurrency: int) -> Plan:
    """What a worker must know of the model. The key of an endpoint is looked up here, not where the worker runs."""
    if not is_endpoint(where):
        return Plan(str(Path(where).absolute()), name, timeout=timeout)
    made = chat(where, name=name, timeout=timeout, concurrency=concurrency)
    assert isinstance(made, HttpChat)
    return Plan(
        made.endpoint.base, made.name, endpoint=True, key=made.endpoint.key, timeout=timeout, at_once=concurrency
    )


# -- the workers -------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Member:
    """A worker, and how many parcels are in its hands."""

    actor: Any
    busy: int = 0
    dead: bool = False


class _Crew:
    """The workers of one model. One that dies is replaced; one that comes up late joins."""

    def __init__(self, ray: Any, plan: Plan, count: int, needs: Mapping[str, float]) -> None:
        self.ray, self.plan, self.count = ray, plan, count
        self._made = ray.remote(Worker).options(
            max_concurrency=plan.at_once, max_restarts=0, scheduling_strategy="SPREAD", **needs
        )
        self.facts: Facts | None = None
        self.members: list[_Member] = []
        self.starting: dict[Any, _Member] = {}
        self._deaths = 0  # since a worker last came up or answered

    def start(self) -> None:
        """Hire all, and wait for the first to come up."""
        for _ in range(self.count):
            self._hire()
        until = time.monotonic() + START
        while not self.members:
            if (left := until - time.monotonic()) <= 0:
                free = {name: self.ray.available_resources().get(name, 0.0) for name in ("CPU", "GPU")}
                raise InputError(
                    f"no worker came up within {START:.0f} s: the cluster has {free['CPU']:g} processors"
                    f" and {free['GPU']:g} GPUs free"
                )
            for ref in self.wait([], left):
                self.welcome(ref)

    def wait(self, refs: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the results, and of the workers that are coming up, that are there within so many seconds."""
        every = [*refs, *self.starting]
        if not every:
            time.sleep(seconds)
            return []
        ready, rest = self.ray.wait(every, num_returns=1, timeout=None if math.isinf(seconds) else seconds)
        more = self.ray.wait(rest, num_returns=len(rest), timeout=0)[0] if rest and ready else []
        return [*ready, *more]

    def welcome(self, ref: Any) -> None:
        """The worker that came up joins; an error where it cannot be of use, on this node or at all."""
        member = self.starting.pop(ref)
        try:
            facts: Facts = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            return self.bury(member, error)
        if facts.error is not None:
            raise InputError(f"a worker on {facts.node}: {facts.error}")
        if facts.version != __version__:
            raise InputError(f"a worker on {facts.node} has retcon {facts.version}, this is {__version__}")
        if self.facts is not None and facts.name != self.facts.name:
            raise InputError(f"a worker on {facts.node} has the model {facts.name}, another has {self.facts.name}")
        self.facts, self._deaths = self.facts or facts, 0
        self.members.append(member)
        return None

    def bury(self, member: _Member, error: Exception) -> None:
        """A worker that died is replaced; an error where workers only die."""
        if member.dead:
            return
        member.dead = True
        self.members = [each for each in self.members if each is not member]
        _kill(self.ray, member)  # one that is merely out of reach must not come back
        if "No module named 'retcon" in str(error):
            raise InputError(
                f"a node of the cluster has no retcon: install retcon-memory=={__version__} there"
            ) from None
        self._deaths += 1
        if self._deaths > max(DEATHS, self.count):
            raise ModelUnavailableError(f"{self._deaths} workers died one after the other: {message_of(error)}")
        self._hire()

    def send(self, asks: Sequence[Ask]) -> tuple[Any, _Member]:
        """The result to come, and the worker in whose hands it is: the least busy."""
        member = min(self.members, key=lambda each: each.busy)
        member.busy += 1
        return member.actor.ask.remote(self.plan, asks), member

    def answered(self) -> None:
        self._deaths = 0

    def close(self) -> None:
        """End all workers."""
        for member in (*self.members, *self.starting.values()):
            _kill(self.ray, member)

    def _hire(self) -> None:
        member = _Member(self._made.remote())
        self.starting[member.actor.describe.remote(self.plan)] = member


def _kill(ray: Any, member: _Member) -> None:
    with contextlib.suppress(Exception):  # the cluster may be gone itself
        ray.kill(member.actor)


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parcel:
    """Asks that travel together, by their places."""

    places: Sequence[int]
    tries: int = 0
    deaths: int = 0
    not_before: float = 0.0
    until: float = math.inf  # after that it is not tried again
    sent: float = 0.0
    member: _Member | None = field(default=None, repr=False)


class RayChat:
    """A model in the hands of workers. Replies are handed on as they come."""

    def __init__(self, crew: _Crew, pace: Pace, *, size: int) -> None:
        assert crew.facts is not None
        self.name, self.kind = crew.facts.name, crew.facts.kind
        self._crew, self._pace, self._size = crew, pace, size

    def __repr__(self) -> str:
        return f"RayChat({self.name!r}, {self._crew.count} workers)"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return in_order(self.arrivals(asks))

    def arrivals(self, asks: Sequence[Ask], /) -> Iterator[Arrived]:
        """The replies as they come."""
        places = range(len(asks))
        waiting = deque(_Parcel(places[start : start + self._size]) for start in places[:: self._size])
        under_way: dict[Any, _Parcel] = {}
        while waiting or under_way:
            self._send(asks, waiting, under_way)
            for ref in self._crew.wait(list(under_way), self._idle(waiting, under_way)):
                if ref not in under_way:
                    self._crew.welcome(ref)
                elif found := self._take(ref, under_way.pop(ref), waiting):
                    yield found  # at once: what comes next may fail, and this is paid for

    def _send(self, asks: Sequence[Ask], waiting: deque[_Parcel], under_way: dict[Any, _Parcel]) -> None:
        """Hand out as much as may be under way."""
        for _ in range(len(waiting)):
            if not self._crew.members or not self._pace.may_send(len(under_way)):
                return
            parcel, now = waiting.popleft(), self._pace.clock()
            if parcel.not_before > now:
                waiting.append(parcel)
                continue
            parcel.sent, parcel.until = now, min(parcel.until, now + self._crew.plan.timeout)
            ref, parcel.member = self._crew.send([asks[place] for place in parcel.places])
            under_way[ref] = parcel

    def _idle(self, waiting: deque[_Parcel], under_way: dict[Any, _Parcel]) -> float:
        """Seconds until something may be sent; for ever where only a result can change that."""
        if not waiting or len(under_way) >= int(self._pace.room) or not self._crew.members:
            return math.inf
        now = self._pace.clock()
        return max(0.01, self._pace.wait(), min(parcel.not_before for parcel in waiting) - now)

    def _take(self, ref: Any, parcel: _Parcel, waiting: deque[_Parcel]) -> dict[int, Reply | ModelError]:
        """What a result brings; what it leaves open waits again."""
        assert parcel.member is not None
        parcel.member.busy -= 1
        ray = self._crew.ray
        try:
            replies = ray.get(ref)
        except ray.exceptions.RayTaskError as error:  # raised by the model itself, as it would be without Ray
            raise error.cause from None
        except ray.exceptions.RayError as error:
            self._crew.bury(parcel.member, error)
            return self._again(parcel, error, waiting)
        self._crew.answered()
        return self._sort(parcel, replies, waiting)

    def _again(self, parcel: _Parcel, error: Exception, waiting: deque[_Parcel]) -> dict[int, Reply | ModelError]:
        """The asks of a worker that died are sent again, unless they are what kills."""
        parcel.deaths += 1
        if parcel.deaths < DEATHS:
            waiting.appendleft(parcel)
            return {}
        lost = ModelUnavailableError(f"{self.name}: {DEATHS} workers died over this ask: {message_of(error)}")
        return dict.fromkeys(parcel.places, lost)

    def _sort(
        self, parcel: _Parcel, replies: Sequence[Reply | ModelError], waiting: deque[_Parcel]
    ) -> dict[int, Reply | ModelError]:
        """The replies and the failures that last; an ask whose failure may pass is tried again later."""
        found: dict[int, Reply | ModelError] = {}
        for place, reply in zip(parcel.places, replies, strict=True):
            if isinstance(reply, ModelError) and reply.passing:
                delay = self._slow_down(parcel, reply)
                if parcel.tries < RETRIES and self._pace.clock() + delay < parcel.until:
                    later = self._pace.clock() + delay
                    waiting.append(_Parcel([place], parcel.tries + 1, parcel.deaths, later, parcel.until))
                    continue
            elif isinstance(reply, Reply):
                self._pace.answered()
            found[place] = reply
        return found

    def _slow_down(self, parcel: _Parcel, error: ModelError) -> float:
        """Seconds before this ask is tried again; where the endpoint asks for fewer requests, everybody waits."""
        if error.code == "model_rate_limit" or error.retry_after is not None:
            self._pace.refused(parcel.sent, error.retry_after)
            return self._pace.wait()
        return self._pace.chance() * min(FIRST_WAIT * 2.0**parcel.tries, LONGEST_WAIT)
