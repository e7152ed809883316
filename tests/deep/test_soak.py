"""Ten minutes of mixed traffic: the server's memory and open files stay as they are, and nobody gets an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from counts import keep, scale

ROOT = Path(__file__).parents[2]
SECONDS = 600
WARM = 300  # seconds after which caches have filled: a shorter run cannot tell that from a leak


def test_memory_and_handles_of_a_server_under_mixed_traffic_stay_flat(tmp_path: Path) -> None:
    seconds, out = scale(SECONDS, 15), tmp_path / "soak.json"
    options = ["--soak", str(seconds), "--notes", "20000", "--clients", "20", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "bench.load", *options], cwd=ROOT, capture_output=True, check=False)
    assert out.exists(), done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["soak"]
    keep("soak", {name: found[name] for name in ("seconds", "clients", "notes", "requests", "resident", "handles")})
    assert found["errors"] == []
    assert found["requests"] > seconds
    assert found["handles"]["flat"]
    assert found["resident"]["flat"] or seconds < WARM
