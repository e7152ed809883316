"""Many rows at once on a PostgreSQL server: arrays arrive as they were, and a large add is what small ones are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psycopg")

from bench.speed.corpus import corpus
from retcon import Memory
from retcon.errors import ConflictError
from retcon.note import Note
from retcon.store.postgres import bulk
from retcon.store.postgres.connections import Connections, PostgresConnection, Session
from retcon.store.postgres.url import parse

VALUES = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "text": st.text() | st.text("\0\ue000ne"),
    "bytea": st.binary(),
    "double precision": st.floats(allow_nan=False),
}


@pytest.fixture(scope="module")
def connection(cluster: Cluster) -> Iterator[PostgresConnection]:
    session = Connections(parse(cluster.url())).open_one()
    yield PostgresConnection(session)
    session.close()


@given(data=st.data(), name=st.sampled_from(sorted(VALUES)))
def test_a_column_arrives_as_it_was(connection: PostgresConnection, data: st.DataObject, name: str) -> None:
    values = data.draw(st.lists(st.none() | VALUES[name], min_size=1))
    sent = bulk.encode_column(name, values)
    assert [row[0] for row in connection.execute(f"SELECT unnest(?::{name}[])", (sent,))] == values


def test_only_inserts_into_known_tables_are_turned() -> None:
    assert bulk.find("UPDATE note SET sum = ? WHERE seq = ?") is None
    assert bulk.find("INSERT INTO reply VALUES (?, ?)") is None
    found = bulk.find("INSERT OR REPLACE INTO posting VALUES (?, ?, ?, ?, ?, ?)")
    assert found is not None
    assert found.types == ("bigint",) * 5 + ("bytea",)
    assert "ON CONFLICT (scope, term) DO UPDATE" in found.statement


def notes_of(users: int, each: int) -> list[Note]:
    """Notes of several users, session by session in turn."""
    made = [list(corpus(3).notes(each, user_id=f"u{user}", part=user)) for user in range(users)]
    return [note for at in range(0, each, 20) for notes in made for note in notes[at : at + 20]]


def test_a_large_add_in_pieces_or_at_once_is_the_same_on_both_stores(cluster: Cluster, tmp_path: Path) -> None:
    notes = notes_of(4, 300)
    notes[700] = replace(notes[700], text="a long one. " * 400, expires_at="2030-01-01T00:00:00+00:00")
    queries = corpus(3).queries([note.text for note in notes], 12)
    url = cluster.url()
    with Memory(tmp_path / "notes.db") as file, Memory(url) as server:
        file.store.add(notes)
        for few in (notes[:3], notes[3:40], [*notes[:50], *notes[40:]]):  # small, then large over what is there
            server.store.add(few)
        for query in queries:
            for user in ("u0", "u3", None):
                assert server.search(query, user_id=user) == file.search(query, user_id=user)
        assert sorted(server.get_all(user_id="u1"), key=lambda note: note.id) == sorted(
            file.get_all(user_id="u1"), key=lambda note: note.id
        )
        assert server.store.check().problems == ()
    cluster.drop(url)


def test_a_recall_of_one_user_asks_the_server_few_questions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    execute = Session.execute

    def count(self: Session, query: Any, *args: Any, **options: Any) -> Any:
        asked.append(query)
        return execute(self, query, *args, **options)

    notes, url = notes_of(2, 2_000), cluster.url()  # so many that common terms have blocks
    with Memory(url) as memory:
        memory.store.add(notes)
        monkeypatch.setattr(Session, "execute", count)
        for query in corpus(3).queries([note.text for note in notes if note.user_id == "u0"], 10):
            asked.clear()
            memory.recall(query, budget=256, user_id="u0")
            assert 7 <= len(asked) <= 11
    cluster.drop(url)


def test_an_error_in_the_middle_of_a_large_add_leaves_nothing(cluster: Cluster) -> None:
    notes, url = notes_of(2, 600), cluster.url()
    with Memory(url) as memory:
        memory.add("here before", id=notes[900].id, user_id="u0")
        with pytest.raises(ConflictError):
            memory.store.add(notes)
        assert memory.stats()["notes"] == 1
        assert memory.store.add(notes[:900]) == [note.id for note in notes[:900]]
        assert memory.store.check().problems == ()
    cluster.drop(url)
