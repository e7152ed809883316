"""Ten times the kills of tests/test_crash.py, each store with moments of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from counts import scale
from test_crash import KILLS, check_kills, check_kills_in_deletes, small_blocks

__all__ = ["small_blocks"]  # a fixture


@pytest.mark.parametrize("seed", range(100, 100 + scale(10)))
@pytest.mark.usefixtures("small_blocks")
def test_kills_at_any_moment_keep_every_acknowledged_batch(path: Path, seed: int) -> None:
    check_kills(path, KILLS, seed)


@pytest.mark.parametrize("seed", range(200, 200 + scale(10)))
def test_kills_during_deletes_leave_all_of_each_or_nothing(path: Path, seed: int) -> None:
    check_kills_in_deletes(path, 12, seed)
