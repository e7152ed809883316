"""What a system costs before it does anything: the time of its import, and the packages that come with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote, urlparse

from packaging.requirements import Requirement

from bench.rivals.speed.systems import System

STARTS = 3  # fresh processes whose import counts, after one that reads the files from the disk
CLOCK = "(time.perf_counter(), time.process_time())"


def costs(system: System, starts: int = STARTS) -> dict[str, Any]:
    """Milliseconds of its import, packages and megabytes on disk, and versions; or why it is not installed."""
    try:
        closed = closure(system.packages)
    except PackageNotFoundError as error:
        return {"why": f"not installed: {error.name}"}
    return import_time(system.imports, starts) | {
        "packages": len(closed), "mb": sum(size(each) for each in closed.values()) / 1e6,
        "versions": {name: distribution(name).version for name in system.packages},
    }  # fmt: skip


@cache
def import_time(statement: str, starts: int = STARTS) -> dict[str, float]:
    """Milliseconds at the median of some fresh processes, by the wall clock and of CPU time."""
    code = f"import time; a = {CLOCK}; {statement}; b = {CLOCK}; print(b[0] - a[0], b[1] - a[1])"
    found = dict(os.environ) | {"MEM0_TELEMETRY": "False"}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    runs = []
    for _ in range(starts + 1):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=found)
        runs.append([float(word) * 1e3 for word in done.stdout.split()[-2:]])
    walls, cpus = zip(*runs[1:], strict=True)
    return {"import_ms": median(walls), "import_cpu_ms": median(cpus)}


def closure(names: Iterable[str]) -> dict[str, Distribution]:
    """These distributions and all that they need here, by name."""
    closed: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(name, "") for name in names]
    while left:
        name, extra = left.pop()
        if (key := (_plain(name), extra)) in seen:
            continue
        seen.add(key)
        found = closed.setdefault(key[0], distribution(name))
        left += [(needed.name, each) for needed in _needs(found, extra) for each in ("", *sorted(needed.extras))]
    return closed


def _needs(found: Distribution, extra: str) -> Iterator[Requirement]:
    """What a distribution needs here, with an extra or without."""
    for line in found.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            yield needed


def size(found: Distribution) -> int:
    """Bytes of its files, without compiled ones; of a project that is installed in place, its package folder's."""
    listed = [Path(str(found.locate_file(path))) for path in found.files or () if path.suffix != ".pyc"]
    return sum(path.stat().st_size for path in [*listed, *_in_place(found)] if path.is_file())


def _in_place(found: Distribution) -> Iterator[Path]:
    told = json.loads(found.read_text("direct_url.json") or "{}")
    if told.get("dir_info", {}).get("editable"):
        folder = Path(unquote(urlparse(told["url"]).path)) / found.metadata["Name"].split("-")[0]
        yield from (path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
