"""What this server shares with every other on its store: answered requests, the secret of cursors, rates.

Beside a store in a file they are in small files, for the processes of one machine. A store on PostgreSQL has tables for
them, for every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from retcon.server.idempotency import Idempotency
from retcon.server.limits import Limits
from retcon.server.rates import BucketFile, Rates
from retcon.store.service import SharedBuckets
from retcon.store.sql import SqlStore


@dataclass(frozen=True, slots=True)
class Sharing:
    """All of it, and how many writes the store takes at once."""

    idempotency: Idempotency
    rates: Rates
    writers: int
    _own: tuple[Idempotency | SharedBuckets, ...]  # what was opened here

    def close(self) -> None:
        """Close what was opened here."""
        for each in self._own:
            each.close()


def share(store: SqlStore, limits: Limits, idempotency: Idempotency | None = None) -> Sharing:
    """What the servers on this store share; answered requests may be kept elsewhere."""
    tables = store.service_tables()
    if tables is not None:
        once = idempotency or Idempotency(tables)
        return Sharing(once, Rates(limits.rate, limits.burst, tables, remote=True), limits.threads, (tables,))
    once = idempotency or Idempotency(":memory:" if store.in_memory else f"{store.beside}.requests")
    own: tuple[Idempotency, ...] = () if idempotency else (once,)
    if store.in_memory:
        return Sharing(once, Rates(limits.rate, limits.burst, None), 1, own)
    buckets = BucketFile(f"{store.beside}.rates")
    return Sharing(once, Rates(limits.rate, limits.burst, buckets), 1, (*own, buckets))
