"""How tests wait: for something to happen, never for a time to pass, so that a busy machine is only slower."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 120.0  # seconds; reached only where something is broken


def until(condition: Callable[..., object], seconds: float = LONG) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)
