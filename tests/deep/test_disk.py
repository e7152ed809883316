"""The disk fails, or the power does, at every point of a write: what was acknowledged is there, and nothing is half."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from counts import factor, keep

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler (cc)"
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("shim") / "faults.so"
    source = str(HERE / "faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(built), source, "-ldl"], check=True)
    return built


def drive(shim: Path, *args: str) -> Any:
    env = os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "disk.py"), *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_write_whose_disk_fails_at_any_point_ends_in_one_line_and_leaves_all_or_nothing(
    shim: Path, tmp_path: Path
) -> None:
    found = drive(shim, "faults", str(tmp_path), str(factor()))
    keep("faults", {**found["operations"], "tried": found["tried"], "refused": found["refused"]})
    assert found["violations"] == []
    assert set(found["operations"]) == {"add", "supersede", "delete", "purge", "migrate"}
    assert min(found["operations"].values()) >= 20
    assert found["refused"] > found["tried"] * 0.9, "the faults did not reach the store"


def test_power_lost_at_any_point_loses_nothing_that_was_acknowledged(shim: Path, tmp_path: Path) -> None:
    found = drive(shim, "power", str(tmp_path), str(factor()), "7", "full")
    keep("power", {name: found[name] for name in ("entries", "acts", "tried")})
    assert found["violations"] == []
    assert found["entries"] > 500
    assert found["tried"] >= 30


def test_without_a_sync_at_every_write_power_lost_does_lose_writes_and_the_harness_sees_it(
    shim: Path, tmp_path: Path
) -> None:
    found = drive(shim, "power", str(tmp_path), str(max(factor() / 4, 0.02)), "7", "normal")
    assert any("were acknowledged" in violation for violation in found["violations"])
    assert all("were acknowledged" in violation for violation in found["violations"]), (
        "a store was damaged, not only late"
    )
