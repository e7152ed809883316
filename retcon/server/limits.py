"""How much is too much, and who asks too often."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from retcon.errors import InputError
from retcon.store.purging import EVERY


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
    page_bytes: int = 2**20  # of the notes in one answer, about; one note always fits
    rate: float = 100.0  # requests a second of one key, on average, each 64 KiB of a body one; 0: any number
    burst: int = 200  # requests of one key at once
    seconds: float = 30.0  # for one request
    in_flight: int = 128  # requests at once that are wholly in, running and waiting together
    key_in_flight: int = 32  # of them, of one key
    bodies: int = 64 * 2**20  # bytes of requests that are still coming in
    key_bodies: int = 16 * 2**20  # of them, of one key
    key_notes: int = 0  # notes in the scope of one key; 0: any number
    connections: int = 1_000  # open at once
    threads: int = 3  # reads at once, of one key two thirds of them; SQLite takes one write at a time anyway
    purge_every: float = EVERY  # seconds at least between two rewrites of the file after deletes
    model_threads: int = 8  # reads at once that may ask a model, of one key two thirds of them

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
                raise InputError(f"the limit {each.name} is a number from 0 on, not {str(value)[:40]!r}")
            if not value and each.name not in ("rate", "budget", "key_notes"):
                raise InputError(f"the limit {each.name} is 0: nothing could be served")


class Shares:
    """So much of something: together, and for each key, which never has more than three quarters of it.

    The empty key, where there are no keys, may have it all.
    """

    def __init__(self, most: int, each: int) -> None:
        self.most, self.each, self.taken = most, min(each, max(1, most * 3 // 4)), 0
        self._held: Counter[str] = Counter()

    def key_full(self, key: str, amount: int = 1) -> bool:
        """Whether that much more would be over the key's own share."""
        return bool(key) and self._held[key] + amount > self.each

    def full(self, amount: int = 1) -> bool:
        """Whether there is not that much left for anybody."""
        return self.taken + amount > self.most

    def take(self, key: str, amount: int = 1) -> None:
        """Count it as taken."""
        self.taken += amount
        self._held[key] += amount

    def give(self, key: str, amount: int = 1) -> None:
        """Count it as free again."""
        self.taken -= amount
        self._held[key] -= amount
        if not self._held[key]:
            del self._held[key]


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

    def charge(self, key: str, more: int) -> None:
        """Count a request for so many more; the key then waits longer for its next one."""
        if more and key in self._left:
            left, at = self._left[key]
            self._left[key] = (left - more, at)
