"""Clocks of the speed benchmarks, and where they ran."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Timing(NamedTuple):
    """Seconds of one call: by the wall clock, and of this thread's own work, which other processes do not lengthen."""

    wall: float
    cpu: float


def clock(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, Timing]:
    """What the call gives, and how long it took."""
    wall, cpu = time.perf_counter(), time.thread_time()
    out = call(*args, **options)
    return out, Timing(time.perf_counter() - wall, time.thread_time() - cpu)


def time_call(call: Callable[..., Any], *args: Any, **options: Any) -> Timing:
    """How long the call took."""
    return clock(call, *args, **options)[1]


def summarize_times(spans: Sequence[Timing]) -> dict[str, float]:
    """Milliseconds at the median and at the 95th percentile, the median of the thread's own, and of how many calls."""
    middle, high = np.percentile([span.wall for span in spans], (50, 95)) * 1e3
    own = np.median([span.cpu for span in spans]) * 1e3
    return {"p50_ms": float(middle), "p95_ms": float(high), "cpu_p50_ms": float(own), "calls": len(spans)}


def read_anonymous() -> float | None:
    """Megabytes now that are no pages of a file; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    found = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("RssAnon")]
    return int(found[0]) / 1e3 if found else None


def machine_facts() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "processor": processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
    }  # fmt: skip


def processor() -> str:
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        for line in cpu.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
