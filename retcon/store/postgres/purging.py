"""Purging in PostgreSQL: deleted rows stay in the files until a table is rewritten (VACUUM FULL).

A rewrite keeps rows that some older view might still see, so it waits until there is none. It locks one table after the
other. What it cannot reach is the server's log, its replicas and its backups: they have words until they are recycled.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

from psycopg import errors

from retcon.store import seal
from retcon.store.postgres import near
from retcon.store.postgres.connections import PostgresConnection, Session
from retcon.store.postgres.migrations import TABLES
from retcon.store.purging import PATIENCE

if TYPE_CHECKING:
    from retcon.store.postgres.connections import Connections

_OLDER = """
SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND age(backend_xmin) > age(%s::text::xid)
"""


def purge(connections: Connections, *, at: str) -> bool:
    """Whether the words of every delete so far are gone from the tables; not while another might still see them."""
    with contextlib.closing(connections.open_one()) as session:
        session.limit = math.inf
        session.execute(f"SET statement_timeout = 0; SET lock_timeout = {int(PATIENCE * 1000)}")
        connection = PostgresConnection(session)
        deletes = seal.deletes(connection)
        if not _is_seen_by_nobody(session):
            return False
        try:
            for table in (*TABLES, *near.tables(session)):
                session.execute(f"VACUUM (FULL) {table}")
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            return False
        seal.mark_purged(connection, deletes, at)
        return True


def _is_seen_by_nobody(session: Session) -> bool:
    """Whether no other view is older than this moment, after a while of waiting for it."""
    query = "SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::bigint % 4294967296)::text"
    (now,) = session.execute(query).fetchone() or ("0",)
    end = time.monotonic() + PATIENCE
    while session.execute(_OLDER, (now,)).fetchone() != (0,):
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True
