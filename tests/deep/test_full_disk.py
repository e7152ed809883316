"""The disk of a PostgreSQL server is full: a clear line, nothing lost, and all goes on when there is room."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import clusters
import counts
import pytest

from retcon import Memory, Scope
from retcon.errors import StoreError


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """The library that makes a disk full."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = Path("/tmp") / f"{tmp_path.name}-full_disk.so"  # where the server's user may read it
    source = Path(__file__).with_name("full_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def test_a_full_disk_is_told_in_one_line_and_loses_nothing(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if clusters.binaries() is None:
        pytest.skip(clusters.REASON)
    flag = shim.with_suffix(".flag")
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("FULL_DISK", str(flag))
    try:
        with clusters.started() as cluster:
            monkeypatch.delenv("LD_PRELOAD")
            for turn in range(counts.scale(20, least=2)):
                _fill(cluster.url(), flag, turn)
    finally:
        flag.unlink(missing_ok=True)
        shim.unlink()


def _add_for_ever(memory: Memory, stored: list[str]) -> None:
    for number in itertools.count():
        memory.add(f"{number} " + "words of some length " * 40, id=f"n{number}", user_id="ann")
        stored.append(f"n{number}")


def _fill(url: str, flag: Path, turn: int) -> None:
    stored: list[str] = []
    with Memory(url) as memory:
        memory.add([{"text": f"before {turn} {number}", "id": f"b{number}"} for number in range(20)], user_id="ann")
        stored += [f"b{number}" for number in range(20)]
        flag.touch()
        with pytest.raises(StoreError, match="the server's disk is full; nothing was written") as told:
            _add_for_ever(memory, stored)
        assert "\n" not in str(told.value)
        assert memory.search(f"before {turn}", user_id="ann")
        assert sorted(note.id for note in memory.get_all()) == sorted(stored)
        flag.unlink()
        memory.add("there is room again", id="after", user_id="ann")
        assert memory.store.count(Scope()) == len(stored) + 1
        assert memory.check().problems == ()
