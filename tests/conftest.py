"""What several test files share: Hypothesis profiles, a memory on a file, and the index as plain values."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from retcon import Memory

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job: tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
settings.register_profile("quick", deadline=None, max_examples=40, suppress_health_check=_QUIET)
settings.register_profile("deep", deadline=None, max_examples=1000, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


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


def bytes_of(path: Path) -> bytes:
    """Every byte that the store has on disk."""
    return b"".join(file.read_bytes() for file in files_of(path))


def raw(path: Path) -> sqlite3.Connection:
    """A plain connection to the store's file, set up by nobody."""
    return sqlite3.connect(path, isolation_level=None, timeout=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path, now=fixed_clock, new_id=counted_ids()) as opened:
        yield opened


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
