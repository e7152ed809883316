"""The properties that everything stands on, each on a thousand examples instead of forty."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from counts import scale

TESTS = Path(__file__).parents[1]
EXAMPLES = 1000
FILES = {path.stem.removeprefix("test_"): path for path in TESTS.rglob("test_*.py")}
CORE = (
    "ask", "cache", "extract", "fidelity", "fit_ladder", "hostile", "injection", "memory", "operate", "pack", "perform",
    "postings", "retrieve", "route", "safe", "store", "tokens", "words",
)  # fmt: skip


@pytest.mark.parametrize("name", CORE)
def test_a_property_holds_on_many_examples(name: str, tmp_path: Path) -> None:
    many = {"HYPOTHESIS_PROFILE": "deep", "HYPOTHESIS_EXAMPLES": str(scale(EXAMPLES, 10))}
    ours = [f"--basetemp={tmp_path / 'base'}", "-o", f"cache_dir={tmp_path / 'cache'}"]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "hypothesis", *ours, str(FILES[name])]
    done = subprocess.run(command, cwd=TESTS.parent, env=os.environ | many, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
