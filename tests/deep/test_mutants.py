"""Store files with flipped bits, lost ends, swapped pages: no crash, no raw error, nothing false passes a check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from counts import keep, scale

HERE = Path(__file__).parent
MUTANTS = 10_000
EACH = 100  # mutants of one process


def drive(folder: Path, first: int, count: int) -> list[dict[str, Any]]:
    """What became of the mutants; one that ends the process is told as a crash."""
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-X", "faulthandler", str(HERE / "mutants.py"), str(folder), str(first), str(count)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        crash = {"kind": "crash", "number": rows[-1].get("begin", -1), "sound": False, "right": False}
        rows.append(crash | {"raw": [f"the process ended with {done.returncode}: {done.stderr[-500:]}"]})
    return [row for row in rows if "kind" in row]


def test_no_mutated_file_crashes_us_or_serves_a_false_note_that_a_check_does_not_tell(tmp_path: Path) -> None:
    wanted = scale(MUTANTS, 60)
    drive(tmp_path, 0, 0)  # makes the whole store
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda first: drive(tmp_path, first, min(EACH, wanted - first)), range(0, wanted, EACH))
        rows = [row for part in parts for row in part]
    told = Counter(f"{row['kind']}, {'sound' if row['sound'] else 'told'}" for row in rows)
    keep("mutants", {"tried": len(rows)} | dict(sorted(told.items())))
    assert [f"{row['number']}: {row['raw'][0]}" for row in rows if row["raw"]] == []
    assert [row for row in rows if row["sound"] and not row["right"]] == []
    assert len(rows) == wanted
    assert sum(not row["sound"] for row in rows) > wanted / 2, "mutations that hit nothing"
