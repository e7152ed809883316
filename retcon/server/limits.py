"""How much is too much, and who asks too often."""

from __future__ import annotations

from dataclasses import dataclass, fields

from retcon.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on requests; each is checked before any work is done."""

    body: int = 2**20  # bytes of a request
    text: int = 100_000  # characters of one note
    query: int = 10_000  # characters of a query or question
    messages: int = 1_000  # notes of one add
    budget: int = 32_768  # tokens
    top_k: int = 100
    page: int = 1_000  # notes of one page
    rate: float = 100.0  # requests a second of one key, on average; 0: any number
    burst: int = 200  # requests of one key at once
    seconds: float = 30.0  # for one request
    in_flight: int = 128  # requests at once, running and waiting together
    threads: int = 2  # reads at once; SQLite takes one write at a time anyway
    model_threads: int = 8  # reads at once that may ask a model

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
                raise InputError(f"the limit {each.name} is a number from 0 on, not {str(value)[:40]!r}")
            if not value and each.name not in ("rate", "budget"):
                raise InputError(f"the limit {each.name} is 0: nothing could be served")


class Buckets:
    """A bucket of requests for each key, refilled at a steady rate. One thread asks."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, float(burst)
        self._left: dict[str, tuple[float, float]] = {}  # key -> requests left, and when that was

    def wait(self, key: str, now: float) -> float:
        """Seconds until the key may ask again; 0 means now, and takes one request out of its bucket."""
        if not self.rate:
            return 0.0
        left, at = self._left.get(key, (self.burst, now))
        left = min(self.burst, left + max(0.0, now - at) * self.rate)
        allowed = left >= 1
        self._left[key] = (left - allowed, now)
        return 0.0 if allowed else (1 - left) / self.rate
