"""How much the deep tests do: all of it, or the part that RETCON_DEEP says, a number in (0, 1]."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def factor() -> float:
    """The part of the full counts to run; 1 where nothing is said."""
    given = os.environ.get("RETCON_DEEP", "1")
    try:
        found = float(given)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise ValueError(f"RETCON_DEEP is a number above 0 and at most 1, not {given!r}")
    return found


def scale(full: int, least: int = 1) -> int:
    """That part of a full count, and `least` where it is less."""
    return max(least, round(full * factor()))


def keep(name: str, found: dict[str, Any]) -> None:
    """Write what a test has counted into the folder that RETCON_DEEP_KEEP names, if it names one."""
    given = os.environ.get("RETCON_DEEP_KEEP")
    if given:
        text = json.dumps({"share": factor()} | found, indent=1)
        Path(given, f"deep-{name}.json").write_text(text + "\n", encoding="utf-8")
