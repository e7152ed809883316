"""Labelling on a real Ray: the local engine's outcomes, whatever dies on the way, within the endpoint's bounds."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import complaint, run
from local_model import needs_local_model, smollm
from misbehaving import Handler, Server, answers, says
from tiny_model import make_model, needs_torch
from waiting import until

from retcon.errors import InputError
from retcon.lab import label as labels
from retcon.lab.data import load
from retcon.lab.engine import LocalEngine, start_engine
from retcon.lab.outcomes import write
from retcon.lab.protocols import PROTOCOLS, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask

ROOT = Path(__file__).parents[2]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'retcon-memory[ray]'"
)
ARMS = ("retain", "extract", "merge", "rewrite")
SMALL: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
KEY = "sk-canary-8f2b1d7e55"


@cache
def cells(n: int = 3) -> tuple[labels.Cell, ...]:
    questions = [question for question in load("sample").questions if question.evidence][:n]
    return tuple(labels.cells(cases(questions, PROTOCOLS["controlled"]), ARMS, budgets=(32, 64), realizations=2))


@dataclass
class Clusters:
    """A Ray of two nodes on this machine, as a test may find one running."""

    address: str
    nodes: Any
    folder: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Two nodes with a processor each."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_TOKEN", "0" * 64)
    from ray.cluster_utils import Cluster

    folder = Path("/tmp") / f"retcon-{os.getpid()}"  # short: Ray's sockets lie below it
    with pytest.MonkeyPatch.context() as patch:
        # not `temp_dir`: a cluster's address is written to Ray's usual folder, and that may not exist
        patch.setenv("RAY_TMPDIR", str(folder))
        made = Cluster(initialize_head=True, head_node_args=SMALL | {"include_dashboard": False})
        made.add_node(**SMALL)
        yield Clusters(made.address, made, folder)
        made.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_ray(cluster: Clusters, server: Server, *, workers: int = 2, concurrency: int = 4) -> Iterator[Any]:
    """The model at the server, asked by workers of the cluster."""
    with ExitStack() as stack:
        engine = stack.enter_context(start_engine("ray", address=cluster.address, workers=workers))
        opened = engine.open_model(server.base, name="m", timeout=120.0, concurrency=concurrency)
        model = stack.enter_context(opened)
        until(lambda: len(worker_pids()) == workers)
        yield model


def worker_pids() -> list[int]:
    """The worker processes of this test's Ray that are up; one that was killed is not."""
    return [
        each.pid
        for each in psutil.Process().children(recursive=True)
        if each.is_running() and each.status() != psutil.STATUS_ZOMBIE and "ray::Worker" in " ".join(each.cmdline())
    ]


def pid_of(handler: Handler) -> int:
    """The worker process that sent a request, by the connection."""
    there = handler.client_address[1]
    for pid in worker_pids():
        for found in psutil.Process(pid).net_connections("tcp4"):
            if found.laddr and found.laddr.port == there:
                return pid
    raise AssertionError("no worker has that connection")


def label(model: Any, kept: ReplyCache, n: int = 3, **more: Any) -> labels.LabelRun:
    return labels.label(cells(n), model, kept, pause=lambda seconds: None, **more)


def plain_rows(found: labels.LabelRun) -> list[dict[str, Any]]:
    """The rows without how long they took, which is measured; NaN as None, which equals itself."""
    assert found.outcomes is not None
    return [
        {name: None if value != value else value for name, value in row.items() if name != "seconds"}
        for row in found.outcomes.rows()
    ]


def file_of(found: labels.LabelRun, path: Path) -> bytes:
    assert found.outcomes is not None
    write(found.outcomes, path)
    return path.read_bytes()


def body(asked: Any) -> str:
    return json.dumps(asked, sort_keys=True)


def counts(server: Server) -> Counter[str]:
    """How often each ask was sent."""
    return Counter(body(seen.body) for seen in server.seen)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ReplyCache]:
    opened = ReplyCache(tmp_path / "replies.db")
    yield opened
    opened.close()


@pytest.fixture
def local(tmp_path: Path) -> labels.LabelRun:
    """What the local engine makes of the same cells."""
    with Server(always=answers) as server:
        cache = ReplyCache(tmp_path / "local.db")
        with LocalEngine().open_model(server.base, name="m", timeout=120.0, concurrency=4) as model:
            found = label(model, cache)
        cache.close()
    return found


# -- the same outcomes -------------------------------------------------------------------------------------------------


@needs_ray
def test_outcomes_are_those_of_the_local_engine_and_the_same_bytes_from_the_same_replies(
    cluster: Clusters, kept: ReplyCache, local: labels.LabelRun, tmp_path: Path
) -> None:
    with Server(always=answers) as server:
        with open_ray(cluster, server) as model:
            found = label(model, kept)
            again = label(model, kept)
        with LocalEngine().open_model(server.base, name="m", timeout=120.0, concurrency=4) as model:
            offline = label(model, kept)
        assert set(counts(server).values()) == {1}, "nothing is asked for twice"
    assert plain_rows(found) == plain_rows(local)
    assert (found.calls, found.reused, found.failures) == (local.calls, local.reused, {})
    assert (again.calls, offline.calls) == (0, 0)
    written = [file_of(each, tmp_path / "o.csv") for each in (found, again, offline)]
    assert len(set(written)) == 1
    assert found.answers == again.answers == offline.answers


@needs_ray
@needs_local_model
def test_a_gguf_is_held_by_a_worker_and_gives_the_local_engines_outcomes(
    cluster: Clusters, kept: ReplyCache, tmp_path: Path
) -> None:
    todo = [cell for cell in cells(1) if cell.arm in ("retain", "merge") and cell.budget + cell.realization == 32]
    runs: list[labels.LabelRun] = []
    with start_engine("ray", address=cluster.address, workers=1) as engine:
        for each in (engine, LocalEngine()):
            cache = ReplyCache(tmp_path / f"{len(runs)}.db")
            with each.open_model(str(smollm()), name=None, timeout=600.0, concurrency=16) as model:
                runs.append(labels.label(todo, model, cache, judged=False))
            cache.close()
    assert runs[0].failures == {}
    assert plain_rows(runs[0]) == plain_rows(runs[1])


@needs_ray
@needs_torch
def test_a_transformers_folder_is_held_by_workers_and_gives_the_local_engines_outcomes(
    cluster: Clusters, tmp_path: Path
) -> None:
    folder, runs = make_model(tmp_path / "model", room=8192), list[labels.LabelRun]()
    with start_engine("ray", address=cluster.address, workers=2) as engine:
        for each in (engine, LocalEngine()):
            cache = ReplyCache(tmp_path / f"{len(runs)}.db")
            with each.open_model(str(folder), name=None, timeout=600.0, concurrency=16) as model:
                runs.append(labels.label(cells(1), model, cache, judged=False))
            cache.close()
    assert runs[0].failures == {}
    assert plain_rows(runs[0]) == plain_rows(runs[1])


# -- killed ------------------------------------------------------------------------------------------------------------


class Holding:
    """Answers so many readers' asks, then holds each until it is let go; `held` is what it holds, and whose it is."""

    def __init__(self, free: int, *, whose: bool = True) -> None:
        self.free, self.whose, self.go = free, whose, threading.Event()
        self.held: dict[str, int] = {}
        self.lock = threading.Lock()

    def __call__(self, handler: Handler) -> None:
        with self.lock:
            self.free -= "<memory>" in body(handler.asked)
            hold = self.free < 0
        if hold:
            pid = pid_of(handler) if self.whose else 0
            with self.lock:
                self.held.setdefault(body(handler.asked), pid)
            assert self.go.wait(300), "nobody let it go"
        answers(handler)


@needs_ray
def test_a_killed_worker_loses_nothing_and_only_what_was_in_its_hands_is_asked_again(
    cluster: Clusters, kept: ReplyCache, local: labels.LabelRun
) -> None:
    holding = Holding(free=9)
    with (
        Server(always=holding) as server, ThreadPoolExecutor(1) as pool,
        open_ray(cluster, server, workers=2, concurrency=4) as model,
    ):  # fmt: skip
        run = pool.submit(label, model, kept)
        until(lambda: len(holding.held) == 4)
        assert kept.stats().entries == len(server.seen) - 4, "answers are kept while others are still under way"
        victim = next(iter(holding.held.values()))
        lost = {ask for ask, pid in holding.held.items() if pid == victim}
        os.kill(victim, signal.SIGKILL)
        until(lambda: all(counts(server)[ask] == 2 for ask in lost))
        holding.go.set()
        found = run.result(300)
    assert plain_rows(found) == plain_rows(local)
    assert found.failures == {}
    assert {ask for ask, times in counts(server).items() if times > 1} == lost
    assert sum(counts(server).values()) == local.calls + len(lost)
    assert kept.stats().entries == local.calls


@needs_ray
def test_a_worker_killed_with_nothing_in_its_hands_costs_nothing(
    cluster: Clusters, kept: ReplyCache, local: labels.LabelRun
) -> None:
    holding = Holding(free=5)
    with (
        Server(always=holding) as server, ThreadPoolExecutor(1) as pool,
        open_ray(cluster, server, workers=2, concurrency=1) as model,
    ):  # fmt: skip
        run = pool.submit(label, model, kept)
        until(lambda: len(holding.held) == 1)
        (idle,) = set(worker_pids()) - set(holding.held.values())
        os.kill(idle, signal.SIGKILL)
        until(lambda: idle not in worker_pids())
        holding.go.set()
        found = run.result(300)
    assert plain_rows(found) == plain_rows(local)
    assert set(counts(server).values()) == {1}


@needs_ray
def test_an_ask_over_which_workers_die_is_given_up_and_the_others_are_measured(
    cluster: Clusters, kept: ReplyCache
) -> None:
    poison: list[str] = []

    def kills(handler: Handler) -> None:
        if not poison and "<note>" in body(handler.asked):
            poison.append(body(handler.asked))
        if body(handler.asked) in poison:
            os.kill(pid_of(handler), signal.SIGKILL)
        answers(handler)

    with Server(always=kills) as server, open_ray(cluster, server, workers=2, concurrency=1) as model:
        found = label(model, kept, 1, attempts=1)
    assert counts(server).pop(poison[0]) == 3
    assert {times for ask, times in counts(server).items() if ask not in poison} == {1}
    assert list(found.failures) == ["write: model_unavailable"]
    assert len(plain_rows(found)) + sum(found.failures.values()) == len(cells(1))


# -- within the endpoint's bounds --------------------------------------------------------------------------------------


class Crowd:
    """Answers once `enough` requests have been under way at the same time."""

    def __init__(self, enough: int) -> None:
        self.enough = enough

    def __call__(self, handler: Handler) -> None:
        until(lambda: handler.owner.peak >= self.enough)
        time.sleep(0.005)  # for one too many to come in
        answers(handler)


@needs_ray
def test_over_all_workers_no_more_requests_are_under_way_than_allowed(cluster: Clusters, kept: ReplyCache) -> None:
    with Server(always=Crowd(6)) as server, open_ray(cluster, server, workers=3, concurrency=6) as model:
        found = label(model, kept)
    assert server.peak == 6
    assert found.failures == {}


class Refusing:
    """Refuses the first `many` requests, once all are there, and asks to wait; then notes when requests come."""

    def __init__(self, many: int, seconds: float) -> None:
        self.many, self.seconds = many, seconds
        self.refused = self.came = 0.0
        self.peak, self.lock, self.left = 0, threading.Lock(), many

    def __call__(self, handler: Handler) -> None:
        with self.lock:
            self.left -= 1
            left = self.left
        if left >= 0:
            until(lambda: self.left <= 0)
            self.refused = self.refused or time.monotonic()
            says({"error": {"message": "slow down"}}, 429, retry_after=str(self.seconds))(handler)
            return
        self.came = self.came or time.monotonic()
        if left >= -self.many // 2:  # nothing of this round is answered before all of it is here
            until(lambda: self.left <= -self.many // 2)
            time.sleep(0.05)  # for one too many to come in
            with self.lock:
                self.peak = max(self.peak, handler.owner.active)
        answers(handler)


@needs_ray
def test_a_refusal_holds_every_worker_back_for_as_long_as_the_endpoint_asks_and_halves_what_is_under_way(
    cluster: Clusters, kept: ReplyCache
) -> None:
    refusing = Refusing(8, 1.0)
    with Server(always=refusing) as server, open_ray(cluster, server, workers=2, concurrency=8) as model:
        found = label(model, kept)
    assert found.failures == {}
    assert refusing.came - refusing.refused >= 1.0
    assert refusing.peak == 4


@needs_ray
def test_an_endpoint_that_takes_few_at_once_is_labelled_without_a_failure(
    cluster: Clusters, kept: ReplyCache, local: labels.LabelRun
) -> None:
    def narrow(handler: Handler) -> None:
        if handler.owner.active > 3:
            says({"error": {"message": "too many"}}, 429, retry_after="0.05")(handler)
        else:
            time.sleep(0.01)
            answers(handler)

    with Server(always=narrow) as server, open_ray(cluster, server, workers=2, concurrency=12) as model:
        found = label(model, kept)
    assert found.failures == {}
    assert plain_rows(found) == plain_rows(local)


@needs_ray
@pytest.mark.parametrize("status", [500, 429])
def test_what_keeps_failing_is_tried_as_often_as_without_ray_then_counted(
    cluster: Clusters, kept: ReplyCache, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retcon.lab.on_ray.FIRST_WAIT", 0.001)
    monkeypatch.setattr("retcon.lab.pace.FIRST_WAIT", 0.001)
    with (
        Server(always=says({"error": {"message": "down"}}, status)) as server,
        open_ray(cluster, server, workers=2, concurrency=2) as model,
    ):
        first, second = model([Ask(({"role": "user", "content": word},), 8) for word in ("a", "b")])
    assert {type(first).__name__, type(second).__name__} <= {"ModelUnavailableError", "RateLimitError"}
    assert set(counts(server).values()) == {5}


# -- on a cluster ------------------------------------------------------------------------------------------------------


@needs_ray
def test_the_key_reaches_the_endpoint_and_no_file_of_the_cluster(
    cluster: Clusters, kept: ReplyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETCON_API_KEY", KEY)
    with Server(always=answers) as server, open_ray(cluster, server) as model:
        label(model, kept, 1)
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}
    files = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@needs_ray
def test_workers_are_on_every_node_and_a_node_that_goes_down_loses_nothing(
    cluster: Clusters, kept: ReplyCache, local: labels.LabelRun
) -> None:
    node = cluster.nodes.add_node(**SMALL)
    raylet = node.all_processes["raylet"][0].process.pid
    holding = Holding(free=9)
    with (
        Server(always=holding) as server, ThreadPoolExecutor(1) as pool,
        open_ray(cluster, server, workers=6, concurrency=6) as model,
    ):  # fmt: skip
        run = pool.submit(label, model, kept)
        until(lambda: len(holding.held) == 6)
        there = {each.pid for each in psutil.Process(raylet).children()} & set(holding.held.values())
        assert there, "some workers are on that node"
        cluster.nodes.remove_node(node, allow_graceful=False)
        for pid in there:  # a machine that goes down takes them along
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        lost = {ask for ask, pid in holding.held.items() if pid in there}
        until(lambda: all(counts(server)[ask] == 2 for ask in lost))
        holding.go.set()
        found = run.result(300)
    assert plain_rows(found) == plain_rows(local)
    assert {ask for ask, times in counts(server).items() if times > 1} == lost


# -- as a command ------------------------------------------------------------------------------------------------------

COMMAND = (
    "label", "sample", "--sample", "4", "--budgets", "32,64", "--actions", "retain,extract,merge", "--model-name", "m",
    "--concurrency", "4",
)  # fmt: skip


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a person who has set nothing up."""
    ours = ("RETCON_", "OPENAI_", "RAY_")
    known = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return known | {"PYTHONPATH": str(ROOT), "HOME": str(folder), "TMPDIR": tempfile.gettempdir()}


def start(folder: Path, server: Server, *more: str, **env: str) -> subprocess.Popen[str]:
    """The command line as anybody runs it, in that folder, in a group of its own as at a terminal."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "retcon", *COMMAND, "--model", server.base, *more], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings(folder) | env, start_new_session=True,
    )  # fmt: skip


def finished(folder: Path, server: Server, *more: str, **env: str) -> tuple[str, str]:
    """What a run that must succeed says, on both streams."""
    process = start(folder, server, *more, **env)
    said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    return said, told


def csv_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "outcomes.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@needs_ray
def test_a_ray_of_its_own_is_quiet_and_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    before = set(Path(tempfile.gettempdir()).glob("retcon-ray-*"))
    with Server(always=answers) as server:
        finished(tmp_path / "local", server)
        paid = len(server.seen)
        said, told = finished(tmp_path / "ray", server, "--engine", "ray")
        assert len(server.seen) == 2 * paid
        assert server.peak <= 4
    assert said == f"wrote 24 outcomes to outcomes.csv; {paid} calls paid, 0 from the cache\n"
    assert all(line.startswith("retcon: ") for line in told.splitlines())
    assert csv_rows(tmp_path / "ray") == csv_rows(tmp_path / "local")
    assert sorted(path.name for path in (tmp_path / "ray").iterdir()) == ["outcomes.csv", "replies.db"]
    assert set(Path(tempfile.gettempdir()).glob("retcon-ray-*")) <= before


@needs_ray
def test_ctrl_c_ends_every_process_and_the_next_run_pays_for_what_is_left(tmp_path: Path) -> None:
    holding = Holding(free=3, whose=False)
    with Server(always=answers) as server:
        finished(tmp_path / "whole", server)
        paid = len(server.seen)
    with Server(always=holding) as server:
        process = start(tmp_path / "cut", server, "--engine", "ray")
        until(lambda: len(holding.held) == 4)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        said, told = process.communicate(timeout=120)
        holding.go.set()
        assert (process.returncode, said) == (130, "")
        assert "Traceback" not in told
        psutil.wait_procs(family, timeout=120)
        assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        until(lambda: server.active == 0)
        finished(tmp_path / "cut", server, "--engine", "ray")
        assert len(server.seen) == paid + 4, "of the four that were under way nobody knows; the rest is kept"
    assert csv_rows(tmp_path / "cut") == csv_rows(tmp_path / "whole")


@pytest.fixture
def head(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A cluster that somebody started with `ray start`: its addresses, and the token that it wants."""
    ports = [free_port(), free_port()]
    folder = tempfile.mkdtemp(prefix="rt-")
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "1" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    command = (
        f"start --head --block --node-ip-address 127.0.0.1 --port {ports[0]} --ray-client-server-port {ports[1]}"
        f" --temp-dir {folder} --num-cpus 1 --object-store-memory {80 * 2**20} --include-dashboard=false"
    )
    ray = Path(sys.executable).with_name("ray")
    process = subprocess.Popen(
        [ray, *command.split()], env=surroundings(tmp_path) | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: all(map(listens, ports)))
    yield env | {"direct": f"127.0.0.1:{ports[0]}", "client": f"ray://127.0.0.1:{ports[1]}"}
    process.terminate()
    process.wait(60)
    shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


@needs_ray
def test_an_existing_cluster_is_used_by_either_address_and_left_running(tmp_path: Path, head: dict[str, str]) -> None:
    env = {name: value for name, value in head.items() if name.startswith("RAY_")}
    with Server(always=answers) as server:
        finished(tmp_path / "local", server)
        paid = len(server.seen)
        for way in ("direct", "client"):
            finished(tmp_path / way, server, "--engine", "ray", "--ray-address", head[way], **env)
            assert csv_rows(tmp_path / way) == csv_rows(tmp_path / "local")
    assert len(server.seen) == 3 * paid


# -- what does not work ------------------------------------------------------------------------------------------------


def test_without_the_extra_it_fails_once_with_the_install_line(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = complaint(*COMMAND, "--model", "http://127.0.0.1:1/v1", "--engine", "ray")
    assert said == "labelling on Ray needs an optional part: pip install 'retcon-memory[ray]'"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "dask"), "no engine 'dask'; there are local, ray"),
        (("--workers", "2"), "an address of a cluster and a number of workers are for the engine ray, not for local"),
        (("--ray-address", "auto"), "an address of a cluster and a number of workers are for the engine ray"),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(db: Path, options: Sequence[str], said: str) -> None:
    assert complaint(*COMMAND, "--model", "http://127.0.0.1:1/v1", *options).startswith(said)


@needs_ray
def test_an_address_where_nobody_listens_is_one_line(db: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    result = run(*COMMAND, "--model", "http://127.0.0.1:1/v1", "--engine", "ray", "--ray-address", where)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"retcon: no Ray cluster at {where}: Connection refused\n")


@needs_ray
def test_a_model_that_is_not_on_the_node_is_said_with_the_node(cluster: Clusters, tmp_path: Path) -> None:
    with start_engine("ray", address=cluster.address, workers=1) as engine:
        opened = engine.open_model(str(tmp_path / "no.gguf"), name=None, timeout=9.0, concurrency=1)
        with pytest.raises(InputError, match=r"a worker on .*: there is no model file"):
            opened.__enter__()
