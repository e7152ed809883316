"""The copy of a store that grows in a schema beside its goal."""

from __future__ import annotations

import contextlib

from retcon.errors import InputError
from retcon.store.database import Database
from retcon.store.moving import NUMBERED
from retcon.store.postgres.connections import Connections, Session
from retcon.store.postgres.store import PostgresStore
from retcon.store.postgres.url import parse

SUFFIX = "_moving"


class SchemaDraft:
    """A schema that is renamed when it is complete."""

    def __init__(self, url: str) -> None:
        """Opens the draft of an earlier move, or makes one; refuses a goal that holds notes."""
        place = parse(url)
        self.path, self.goal, self.name = place.shown, place.schema, place.schema + SUFFIX
        self._url, self._goal = url, Connections(place)
        with self._goal.translating(), contextlib.closing(self._goal.open_one()) as session:
            self._refuse_filled(session)
        self.store = self._open()

    def _open(self) -> PostgresStore:
        store = PostgresStore(self._url, schema=self.name)
        store.limited = False
        return store

    def _refuse_filled(self, session: Session) -> None:
        row = session.execute("SELECT to_regclass(%s) IS NOT NULL", (f'"{self.goal}".note',)).fetchone()
        if row == (True,) and session.execute(f'SELECT 1 FROM "{self.goal}".note LIMIT 1').fetchone() is not None:
            raise InputError(f"{self.path} holds notes: name another ?schema=, or delete them first")
        row = session.execute("SELECT to_regclass(%s) IS NOT NULL", (f'"{self.goal}".key',)).fetchone()
        if row == (True,) and session.execute(f'SELECT 1 FROM "{self.goal}".key LIMIT 1').fetchone() is not None:
            raise InputError(
                f"{self.path} holds keys of a service: name another ?schema=, and make keys after the move"
            )

    def begin_anew(self) -> None:
        """Let the draft go, and begin another."""
        self.store.close()
        with self._goal.translating(), contextlib.closing(self._goal.open_one()) as session:
            session.execute(f'DROP SCHEMA IF EXISTS "{self.name}" CASCADE')
        self.store = self._open()

    def set_numbers(self, connection: Database, numbers: dict[str, int]) -> None:
        """Let numbering go on after these."""
        for table in (*numbers, "scope", "block"):
            key = "seq" if table == "note" else "id"
            (most,) = connection.execute(f"SELECT coalesce(max({key}), 0) FROM {table}").fetchone()
            last = max(most, numbers.get(table, 0))
            sequence = "'block_id'" if table == "block" else f"pg_get_serial_sequence('{table}', '{key}')"
            if last:
                connection.execute(f"SELECT setval({sequence}, ?)", (last,))

    def finish(self) -> None:
        """Let the draft take its goal's name, in one transaction."""
        self.store.copy_vectors()
        self.store.close()
        with (
            self._goal.translating(), contextlib.closing(self._goal.open_one()) as session, session.transaction(),
        ):  # fmt: skip
            session.execute("SELECT pg_advisory_xact_lock(%s)", (self._goal.store_lock,))
            self._refuse_filled(session)
            session.execute(f'DROP TABLE "{self.name}".move')
            session.execute(f'DROP SCHEMA IF EXISTS "{self.goal}" CASCADE')
            session.execute(f'ALTER SCHEMA "{self.name}" RENAME TO "{self.goal}"')

    def close(self) -> None:
        """Close what is open; the draft stays for the next try."""
        self.store.close()
        self._goal.close()


def numbers_of(connection: Database) -> dict[str, int]:
    """The last number that was given, by table."""
    found: dict[str, int] = {}
    for table in NUMBERED:
        key = "seq" if table == "note" else "id"
        query = f"SELECT pg_sequence_last_value(pg_get_serial_sequence('{table}', '{key}')::regclass)"
        found[table] = int(connection.execute(query).fetchone()[0] or 0)
    return found
