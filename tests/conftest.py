"""What several test files share: Hypothesis profiles, a memory on a file, and the index as plain values."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import clusters
import pytest
from browser import chromium, written_report
from clusters import Cluster
from hypothesis import HealthCheck, settings
from local_model import smollm
from misbehaving import Server

from retcon import Memory
from retcon.cli.doctor import KEYS, READ
from retcon.model import GgufChat, HttpChat

if TYPE_CHECKING:
    from page_site import Site
    from playwright.sync_api import Browser

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job: tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
settings.register_profile("quick", deadline=None, max_examples=40, suppress_health_check=_QUIET)
_EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "1000"))
settings.register_profile("deep", deadline=None, max_examples=_EXAMPLES, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


RUNNING: list[Cluster] = []  # the server of this test process


def fixed_clock() -> datetime:
    """The same moment at every call."""
    return datetime(2026, 5, 9, 12, 0, tzinfo=UTC)


def counted_ids() -> Callable[[], str]:
    """Ids n0, n1, n2 ..."""
    numbers = itertools.count()
    return lambda: f"n{next(numbers)}"


def files_of(path: Path) -> list[Path]:
    """The files of a store that exist."""
    return [file for end in ("", "-wal", "-shm") if (file := Path(f"{path}{end}")).exists()]


def bytes_of(path: Path | str) -> bytes:
    """Every byte that the store has on disk; of PostgreSQL its tables and indexes."""
    if isinstance(path, str):
        return RUNNING[0].bytes_of(path)
    return b"".join(file.read_bytes() for file in files_of(path))


def raw(path: Path) -> sqlite3.Connection:
    """A plain connection to the store's file, set up by nobody."""
    return sqlite3.connect(path, isolation_level=None, timeout=30)


@pytest.fixture
def server() -> Iterator[Server]:
    """A model's endpoint that does what a test tells it."""
    with Server() as opened:
        yield opened


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What slow replies wait for; set at the end of a test, so that a call which waited for them would never end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of this test process."""
    if clusters.binaries() is None:
        pytest.skip(clusters.REASON)
    with clusters.started() as running:
        RUNNING[:] = [running]
        yield running


@pytest.fixture(scope="session")
def vector_cluster() -> Iterator[Cluster]:
    """Another one, which has the extension pgvector."""
    programs = clusters.binaries_with_pgvector()
    if programs is None:
        pytest.skip(clusters.PGVECTOR)
    with clusters.started(programs) as running:
        yield running


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """Where a new store may be: a file, or in tests marked `both_stores` also a URL on a PostgreSQL server."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield tmp_path / "notes.db"
        return
    request.getfixturevalue("monkeypatch").chdir(tmp_path)  # a service on a server keeps its own files there
    running: Cluster = request.getfixturevalue("cluster")
    url = running.url()
    yield url
    running.drop(url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests marked `both_stores` on each store; those of them marked `sqlite` are about the file itself."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "path" in metafunc.fixturenames and "both_stores" in marks and "sqlite" not in marks:
        metafunc.parametrize("path", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path, now=fixed_clock, new_id=counted_ids()) as opened:
        yield opened


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and the path of a store in it that is not there yet."""
    monkeypatch.chdir(tmp_path)
    for name in (*READ, *KEYS, "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RETCON_DB", str(tmp_path / "t.db"))
    return tmp_path / "t.db"


@pytest.fixture
def cats(db: Path) -> Path:
    """A store with two notes of ann's and one of bob's."""
    with Memory(db) as memory:
        memory.add("I adopted a cat named Pixel.", id="a1", user_id="ann", session="s1", timestamp="2026-05-09")
        memory.add("The rent is 725 a month.", id="a2", user_id="ann", session="s2", metadata={"n": 3})
        memory.add("My cat is called Bo.", id="b1", user_id="bob")
    return db


@pytest.fixture(scope="module")
def local() -> Iterator[GgufChat]:
    """The small real model, in this process."""
    found = smollm()
    assert found is not None
    with GgufChat(found, context=1024, threads=1, timeout=300) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(local: GgufChat) -> Iterator[HttpChat]:
    """The same model through its own endpoint on this machine."""
    model = HttpChat(local.served.base, "smollm2", key=local.served.key, timeout=300, concurrency=1)
    yield model
    model.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def site(tmp_path: Path, browser: Browser) -> Iterator[Site]:
    from page_site import Site  # needs the extra [server]

    with ExitStack() as stack:
        yield Site(tmp_path, browser, stack)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return written_report(tmp_path / "made")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the folders that are run apart unless they are asked for by name, as `make test-deep` does."""
    name = collection_path.name
    apart = name in ("deep", "clients", "integrations") and collection_path.parent == Path(__file__).parent
    return True if apart and not any(name in Path(argument).parts for argument in config.args) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of that folder."""
    for item in items:
        if "deep" in item.path.parts:
            item.add_marker("deep")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With RETCON_NO_SKIP set, as in CI, a skipped test fails the run; only real benchmark data may be absent."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if not os.environ.get("RETCON_NO_SKIP") or reporter is None or hasattr(session.config, "workerinput"):
        return
    reasons = {str(report.longrepr) for report in reporter.stats.get("skipped", [])}
    unexplained = sorted(reason for reason in reasons if "RETCON_DATA" not in reason)
    if unexplained:
        reporter.write_line(f"skipped, which RETCON_NO_SKIP forbids: {'; '.join(unexplained)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
