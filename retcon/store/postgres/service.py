"""What the servers on one PostgreSQL store share: tables in the store's schema, made when a server first needs them.

They have the names and columns of the small files that servers keep beside a store in a file, so that statements are
the same. They hold nobody's words: of keys and requests only hashes, and whose notes a key opens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from retcon.errors import SchemaError, StoreError
from retcon.store.postgres.connections import Connections, PostgresConnection, Session
from retcon.store.postgres.migrations import migrate
from retcon.store.postgres.url import Place, parse
from retcon.store.service import Lock, Taken

CONNECTIONS = 6  # of one process, beside those to the notes

_FIRST = """
CREATE TABLE service (version integer NOT NULL, closed boolean NOT NULL DEFAULT false);  -- one row
INSERT INTO service (version) VALUES (0);
CREATE SEQUENCE key_change;
CREATE TABLE key (
  id text COLLATE "C" PRIMARY KEY, name text COLLATE "C" NOT NULL,
  salt bytea NOT NULL, hash bytea NOT NULL,
  user_id text COLLATE "C", agent_id text COLLATE "C", run_id text COLLATE "C", admin integer NOT NULL,
  created_at text COLLATE "C" NOT NULL, revoked_at text COLLATE "C",
  rowid bigint GENERATED ALWAYS AS IDENTITY, change bigint NOT NULL DEFAULT 0
);
CREATE INDEX key_changed ON key (change);
CREATE FUNCTION key_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SELECT nextval(%L)', format('%I.key_change', TG_TABLE_SCHEMA)) INTO NEW.change;
  EXECUTE format('UPDATE %I.service SET closed = true WHERE NOT closed', TG_TABLE_SCHEMA);
  RETURN NEW;
END $$;
CREATE TRIGGER key_changes BEFORE INSERT OR UPDATE ON key FOR EACH ROW EXECUTE FUNCTION key_changes();
CREATE TABLE secret (value bytea NOT NULL, single boolean PRIMARY KEY DEFAULT true CHECK (single));
CREATE TABLE answer (
  owner text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, print bytea NOT NULL, kept text NOT NULL,
  at double precision NOT NULL,
  PRIMARY KEY (owner, key)
);
CREATE INDEX answer_at ON answer (at);
CREATE UNLOGGED TABLE bucket (
  key text COLLATE "C" PRIMARY KEY, left_over double precision NOT NULL, at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION take_requests(
  whose text, rate double precision, burst double precision, debt double precision, most integer,
  OUT taken integer, OUT wait double precision
) LANGUAGE plpgsql AS $$
DECLARE held record; now_at timestamptz; remaining double precision;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO bucket VALUES (whose, burst, clock_timestamp()) ON CONFLICT DO NOTHING;
  SELECT * INTO held FROM bucket WHERE key = whose FOR UPDATE;
  now_at := clock_timestamp();
  remaining := least(burst, held.left_over + greatest(0, extract(epoch FROM now_at - held.at)) * rate) - debt;
  taken := least(most, greatest(0, floor(remaining)));
  wait := CASE WHEN taken > 0 THEN 0 ELSE (1 - remaining) / rate END;
  UPDATE bucket SET left_over = remaining - taken, at = now_at WHERE key = whose;
END $$;
ALTER TABLE key ALTER COLUMN name SET STATISTICS 0;
ALTER TABLE key ALTER COLUMN user_id SET STATISTICS 0;
ALTER TABLE key ALTER COLUMN agent_id SET STATISTICS 0;
ALTER TABLE key ALTER COLUMN run_id SET STATISTICS 0;
REVOKE ALL ON service, key, secret, answer, bucket FROM PUBLIC;
"""
STEPS = (_FIRST,)


class PostgresServiceTables:
    """The tables, over a few connections of their own: a write may hold one while it uses another for its notes."""

    def __init__(self, place: Place) -> None:
        self._connections = Connections(replace(place, pool_size=min(CONNECTIONS, place.pool_size)))
        self._made = False

    @property
    def path(self) -> str:
        """Where the store is, as it may be shown."""
        return self._connections.place.shown

    @property
    def exists(self) -> bool:
        """Whether the tables are there."""
        if not self._made:
            with self._connections.translating(), contextlib.closing(self._connections.open_one()) as session:
                self._made = self._version(session) == len(STEPS)
        return self._made

    @contextlib.contextmanager
    def use(self, *, make: bool = True) -> Iterator[PostgresConnection]:
        """A connection in a transaction, which is committed at the end of the block."""
        if make and not self.exists:
            self._make()
        with self._connections.write() as connection:
            yield connection

    @contextlib.contextmanager
    def alone(self, *locks: Lock) -> Iterator[PostgresConnection]:
        """The same, beside no other with one of its locks, at any server."""
        with self.use() as connection:
            for key in sorted({self._connections.lock_of("service", *names) for names in locks}):
                connection.session.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            yield connection

    def take(self, key: str, *, rate: float, burst: float, debt: float, most: int) -> Taken:
        """Up to so many requests of the key, after a debt is paid; the server's clock counts."""
        with self.use() as connection:
            query = "SELECT * FROM take_requests(%s, %s, %s, %s, %s::integer)"
            values = (key, float(rate), float(burst), float(debt), most)
            taken, wait = connection.session.execute(query, values).fetchone() or (0, 1.0)
        return Taken(taken, wait)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _make(self) -> None:
        """Make the tables, and the store where there is none; several programs may try at once."""
        place, lock = self._connections.place, self._connections.store_lock
        with self._connections.translating(), contextlib.closing(self._connections.open_one()) as session:
            migrate(session, place.schema, lock)
            with session.transaction():
                session.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
                for step in STEPS[self._version(session) :]:
                    session.execute(step)
                session.execute("UPDATE service SET version = %s", (len(STEPS),))
        self._made = True

    def _version(self, session: Session) -> int:
        (there,) = session.execute("SELECT to_regclass('service') IS NOT NULL").fetchone() or (False,)
        if not there:
            return 0
        (found,) = session.execute("SELECT version FROM service").fetchone() or (None,)
        if found is None:
            raise StoreError(f"{self.path}: the row of the table service is missing, by another program")
        if found > len(STEPS):
            raise SchemaError(found, len(STEPS))
        return int(found)


def open_service(url: str) -> PostgresServiceTables:
    """The tables of the store at that URL; none are made yet."""
    return PostgresServiceTables(parse(url))
