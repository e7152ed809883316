"""What the servers on one store share beside its notes, and how they reach it: keys, answered requests, rates.

A store on a server has tables for that, so that machines share them. Beside a file, servers keep small files.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from retcon.store.database import Database

Lock = tuple[str, ...]  # names of what is locked


class ServiceTables(Protocol):
    """Tables that several servers use at once."""

    @property
    def path(self) -> str: ...  # as it may be shown

    @property
    def exists(self) -> bool: ...  # whether they were ever made

    def use(self, *, make: bool = True) -> AbstractContextManager[Database]:
        """A connection for this block. Tables that are not there are made, or without `make` an error."""
        ...

    def alone(self, *locks: Lock) -> AbstractContextManager[Database]:
        """A transaction that is committed at the end of the block, beside no other with one of its locks."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """How many requests were taken out of a bucket; if none, how long to wait."""

    requests: int
    wait: float


class SharedBuckets(Protocol):
    """A bucket of requests for each key, out of which several servers take."""

    def take(self, key: str, *, rate: float, burst: float, debt: float, most: int) -> Taken:
        """Up to so many requests of the key, after a debt is paid."""
        ...

    def close(self) -> None: ...


class SharedTables(ServiceTables, SharedBuckets, Protocol):
    """Both, where they are in one place."""
