"""The clock of a machine steps back an hour, under a program and under its server: no note, order or time-out is lost.

A library that is loaded before all others (clock_back.c) turns the wall clock back for real programs: a Python that
uses the store, and a PostgreSQL server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clusters
import pytest
from clusters import Cluster
from waiting import until

from retcon import Memory
from retcon.errors import StoreError
from retcon.store.postgres import connections

USER = """
import json, sys, time
from datetime import datetime, timedelta, UTC
from pathlib import Path
from retcon import Memory

place, flag = sys.argv[1:]
soon = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
with Memory(place, new_id=lambda: "n6") as memory:
    before = time.time()
    for number in range(3):
        memory.add(f"early cat {number}", id=f"n{number}", user_id="ann", session="s", expires_at=soon)
    Path(flag).touch()
    stepped = time.time() - before
    for number in range(3, 6):
        memory.add(f"late cat {number}", id=f"n{number}", user_id="ann", session="s")
    memory.supersede("n3", "corrected cat")
    memory.delete("n4")
    notes = memory.get_all(user_id="ann")
    print(json.dumps({
        "stepped": stepped, "order": [note.id for note in notes],
        "follows": {note.id: note.follows for note in notes},
        "found": sorted(hit.id for hit in memory.search("cat", user_id="ann")),
        "created": [note.created_at for note in notes],
        "problems": [problem.what for problem in memory.check().problems], "purged": memory.purge(),
    }))
"""


@pytest.fixture(scope="module")
def shim() -> Iterator[Path]:
    """The library, in a folder where the server's user may read it."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = Path(tempfile.mkdtemp(prefix="retcon-clock-", dir="/tmp"))
    folder.chmod(0o755)
    library, source = folder / "clock_back.so", Path(__file__).with_name("clock_back.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    yield library
    shutil.rmtree(folder)


@pytest.fixture
def flag(shim: Path) -> Iterator[Path]:
    """The file by which the clock steps back."""
    yield shim.with_suffix(".flag")
    shim.with_suffix(".flag").unlink(missing_ok=True)


@pytest.fixture
def stepping(shim: Path, flag: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server whose clock can step back."""
    if clusters.binaries() is None:
        pytest.skip(clusters.REASON)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(shim))
        patch.setenv("CLOCK_BACK", str(flag))
        started = clusters.started()
        running = started.__enter__()
    try:
        yield running
    finally:
        started.__exit__(None, None, None)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_clock_that_steps_back_in_a_session_changes_no_order_and_loses_no_note(
    store: str, shim: Path, flag: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if store == "sqlite":
        place = str(tmp_path / "a.db")
    else:
        cluster: Cluster = request.getfixturevalue("stepping")
        place = cluster.url()
    environment = {**os.environ, "LD_PRELOAD": str(shim), "CLOCK_BACK": str(flag)}
    command = [sys.executable, "-c", USER, place, str(flag)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert told["stepped"] < -3000  # it did step back
    assert told["order"] == ["n0", "n1", "n2", "n5", "n6"]  # the order of insertion, a correction last
    assert told["follows"]["n1"] == "n0"
    assert told["found"] == ["n0", "n1", "n2", "n5", "n6"]  # by this clock none of them has expired yet
    assert told["created"][0] > told["created"][-1]  # as the clock said, and nobody relied on it
    assert told["problems"] == []
    assert told["purged"]
    with Memory(place) as memory:
        assert [note.id for note in memory.get_all(user_id="ann")] == told["order"]


def test_a_servers_clock_that_steps_back_in_a_statement_is_no_hang(
    stepping: Cluster, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL measures its time-outs by the wall clock; ours are by one that never steps."""
    monkeypatch.setattr(connections, "GRACE", 0.5)
    with Memory(stepping.url(timeout=2)) as memory, ThreadPoolExecutor(1) as pool, stepping.connect() as other:
        memory.add("a cat", id="a")

        def wait() -> None:
            with memory.store._read() as connection:
                connection.execute("SELECT pg_sleep(600)")

        waiting = pool.submit(wait)
        query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND state = 'active'"
        until(lambda: other.execute(query).fetchone() == (1,))
        flag.touch()
        with pytest.raises(StoreError, match=r"longer than 2 s|did not answer within 2 s|was lost"):
            waiting.result(timeout=120)
        assert memory.get("a").text == "a cat"
        assert memory.add("a dog", id="b")
