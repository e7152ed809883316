"""Does the database hold what was written to it? The same looks as at a file, but those at the file itself."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import psycopg

from retcon.errors import StoreError
from retcon.store.checking import REPAIR, SHARED, SHOWN, Check, Finder, Problem, count_again, drop_damaged
from retcon.store.database import Damage
from retcon.store.postgres.connections import PostgresConnection
from retcon.store.postgres.migrations import schema_problems
from retcon.store.postgres.near import Near, near_problems
from retcon.store.reindexing import rebuild_index

if TYPE_CHECKING:
    from retcon.store.postgres.connections import Connections

RESTORE = "restore a backup of the database (pg_restore), or save what is sound ('retcon export --skip-damaged')"
REMADE = "take the schema from a sound store, or copy this one to a new schema: 'retcon migrate'"


def check(connections: Connections, near: Near) -> Check:
    """What is wrong with the store, all of it in one view."""
    with connections.read(limited=False) as connection:
        return _check(connection, connections.place.schema, near)


def repair(connections: Connections, near: Near) -> Check:
    """What is still wrong once index and seal were made again, and damaged records and replies dropped."""
    with connections.write(limited=False) as connection:
        connections.lock(connection, None)
        drop_damaged(connection)
        rebuild_index(connection)
        count_again(connection)
    return check(connections, near)


def _check(connection: PostgresConnection, schema: str, near: Near) -> Check:
    missing = schema_problems(connection.session, schema)
    problems = [Problem("schema", problem, REMADE) for problem in missing]
    copies: Finder = ("derived", REPAIR, lambda view: near_problems(view, near.extension))
    for finder in (*SHARED, copies):
        problems += _look(finder, connection)
    (notes,) = connection.execute("SELECT count(*) FROM note").fetchone() or (0,)
    return Check(int(notes), tuple(dict.fromkeys(problems)), (f"vectors: pgvector {near.said(connection)}",))


def _look(finder: Finder, connection: PostgresConnection) -> list[Problem]:
    """What one look finds; where the database cannot be read that far, that, and the next look goes on."""
    kind, advice, find = finder
    found: list[Problem] = []
    try:
        with connection.session.transaction():  # a savepoint
            found += [Problem(kind, what, advice) for what in islice(find(connection), SHOWN)]
    except (psycopg.Error, Damage, StoreError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if connection.session.closed:
            raise
        found.append(Problem("file", f"cannot be read: {' '.join(str(error).split())[:200]}", RESTORE))
    return found
