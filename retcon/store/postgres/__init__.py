"""The shared store: PostgreSQL through psycopg, with the same notes, index, rankings and promises as a file."""

from __future__ import annotations

from contextlib import closing

from retcon.store.checking import Check
from retcon.store.postgres.checking import repair
from retcon.store.postgres.connections import Connections
from retcon.store.postgres.migrations import find_version
from retcon.store.postgres.service import open_service
from retcon.store.postgres.store import PostgresStore
from retcon.store.postgres.url import parse


def check_url(url: str, *, mend: bool = False) -> Check:
    """The check of the store at that URL; with `mend` after a repair."""
    with closing(PostgresStore(url, strict=False)) as store:
        return repair(store._connections, store._indexes) if mend else store.check()


def is_there(url: str) -> bool:
    """Whether there is a store at that URL; none is made."""
    connections = Connections(parse(url))
    with connections.translating(), closing(connections.open_one()) as session:
        return find_version(session, connections.place.schema) is not None


__all__ = ["PostgresStore", "check_url", "is_there", "open_service"]
