"""Vectors that a PostgreSQL server with pgvector compares: found, filtered, deleted and moved as in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest
from clusters import Cluster, schema_of
from command_line import document, run
from conftest import fixed_clock
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from numpy.typing import NDArray
from test_migrate import fill, opened, told
from twins import TwinMachine
from waiting import until

from retcon import Memory, Scope
from retcon.errors import StoreError
from retcon.note import Filter
from retcon.store import Nearest
from retcon.store.moving import migrate
from retcon.store.postgres import near
from retcon.store.postgres.store import PostgresStore

Connection = psycopg.Connection[tuple[object, ...]]
CLOSE = 1e-6  # by so much two stores' cosines may differ: both add up the same float16 numbers in float32


@pytest.fixture
def url(vector_cluster: Cluster) -> Iterator[str]:
    made = vector_cluster.url()
    yield made
    vector_cluster.drop(made)


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    with Memory(url, now=fixed_clock) as opened:
        yield opened


@pytest.fixture
def other(vector_cluster: Cluster, url: str) -> Iterator[Connection]:
    """Another program's connection, which finds the tables by their names."""
    with closing(vector_cluster.connect()) as connection:
        connection.execute(f"SET search_path = {schema_of(url)}, public")
        yield connection


@pytest.fixture
def fresh(vector_cluster: Cluster) -> Iterator[tuple[str, Connection]]:
    """The URL of a store in a database of its own, without the extension, and a connection to that database."""
    name = f"d{schema_of(vector_cluster.url())}"
    with closing(vector_cluster.connect()) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = vector_cluster.url().replace("/postgres?", f"/{name}?")
    with closing(
        psycopg.connect(
            host=str(vector_cluster.folder), port=vector_cluster.port, user="retcon", dbname=name, autocommit=True
        )
    ) as inside:
        inside.execute(f"SET search_path = {schema_of(url)}, public")
        yield url, inside
    with closing(vector_cluster.connect()) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def rows_of(count: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    made = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


def keep(
    memory: Memory, rows: NDArray[np.float32], *, name: str = "test", user: str = "ann", passages: int = 1
) -> None:
    """A note with vectors for every so many rows."""
    ids = [f"{user}{number}" for number in range(len(rows) // passages)]
    odd = [{"session": "odd"} if number % 2 else {} for number in range(len(ids))]
    memory.add(
        [{"text": f"note {note_id}", "id": note_id, **more} for note_id, more in zip(ids, odd, strict=True)],
        user_id=user,
    )
    parts = rows.reshape(len(ids), passages, -1)
    memory.store.put_vectors(name, list(zip(ids, parts, strict=True)))


def nearest(
    memory: Memory, vector: NDArray[np.float32], k: int = 10, only: Filter | None = None, *, name: str = "test",
    scope: Scope | None = None,
) -> Nearest:  # fmt: skip
    with memory.store.snapshot(scope or Scope()) as snapshot:
        return snapshot.nearest(name, vector, k, only or Filter())


def same(one: Nearest, other: Nearest) -> None:
    """The same notes with the same cosines in the same order, but for notes that are closer together than rounding."""
    np.testing.assert_allclose(one.scores, other.scores, atol=CLOSE)
    first, second = (dict(zip(each.slots.tolist(), each.scores.tolist(), strict=True)) for each in (one, other))
    for slot in first.keys() | second.keys():
        last = one.scores[-1]
        assert first.get(slot, last) == pytest.approx(second.get(slot, last), abs=CLOSE)


def store_of(memory: Memory) -> PostgresStore:
    assert isinstance(memory.store, PostgresStore)
    return memory.store


def held_here(memory: Memory) -> int:
    """Bytes of vectors in this program's memory."""
    return store_of(memory)._matrices.bytes


# -- the same answers --------------------------------------------------------------------------------------------------


@settings(max_examples=15, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**16), notes=st.integers(1, 60), passages=st.integers(1, 3), dim=st.sampled_from([3, 16, 384]),
    k=st.integers(1, 30), data=st.data(),
)  # fmt: skip
def test_a_server_finds_what_a_file_finds(
    vector_cluster: Cluster, seed: int, notes: int, passages: int, dim: int, k: int, data: st.DataObject
) -> None:
    rows = rows_of(notes * passages, dim, seed)
    rows[-1] = rows[0]  # equals are told apart by their age
    url = vector_cluster.url()
    with Memory(":memory:", now=fixed_clock) as file, Memory(url, now=fixed_clock) as server:
        for memory in (file, server):
            for user in ("ann", "bob"):
                keep(memory, rows, user=user, passages=passages)
        ids = [f"{user}{number}" for user in ("ann", "bob") for number in range(notes)]
        gone = data.draw(st.lists(st.sampled_from(ids), max_size=5, unique=True))
        without = tuple(data.draw(st.lists(st.sampled_from(ids), max_size=5, unique=True)))
        for memory in (file, server):
            if gone:
                memory.delete(gone)
        for scope in (Scope(), Scope("bob"), Scope("nobody")):
            for only in (Filter(), Filter(without=without), Filter(session="odd"), Filter(session="none")):
                query = rows_of(1, dim, seed + 1)[0]
                found = nearest(server, query, k, only, scope=scope)
                same(nearest(file, query, k, only, scope=scope), found)
                named = rows[found.slots % notes * passages + found.parts].astype(np.float16).astype(np.float32)
                np.testing.assert_allclose(named @ query, found.scores, atol=CLOSE)
        assert held_here(server) == 0
        assert server.check().problems == ()
    vector_cluster.drop(url)


def test_recall_says_the_same_and_holds_no_vectors(tmp_path: Path, url: str) -> None:
    answers = []
    for place in (tmp_path / "a.db", url):
        with opened(place) as memory:
            fill(memory)
            answers.append(told(memory))
            if place == url:
                assert held_here(memory) == 0
                assert store_of(memory)._indexes.extension.version
    first, second = answers
    assert first.keys() == second.keys()
    for name in first:
        if isinstance(first[name], list) and first[name] and isinstance(first[name][0], tuple):
            assert [hit[0] for hit in first[name]] == [hit[0] for hit in second[name]]
            np.testing.assert_allclose([hit[1] for hit in first[name]], [hit[1] for hit in second[name]], atol=CLOSE)
        else:
            assert first[name] == second[name]


def test_embedders_of_two_sizes_stand_side_by_side(memory: Memory) -> None:
    small, large = rows_of(40, 8), rows_of(40, 96)
    keep(memory, small, name="small")
    memory.store.put_vectors("large", [(f"ann{number}", row[None]) for number, row in enumerate(large)])
    assert nearest(memory, small[7], 1, name="small").slots.tolist() == [7]
    assert nearest(memory, large[9], 1, name="large").slots.tolist() == [9]
    assert memory.store.drop_vectors(keep="large") == 40
    assert nearest(memory, small[7], 1, name="small").slots.tolist() == []
    assert nearest(memory, large[9], 1, name="large").slots.tolist() == [9]


def test_vectors_of_more_numbers_than_the_extension_indexes_are_searched_in_memory(memory: Memory) -> None:
    rows = rows_of(3, near.MOST_NUMBERS + 1)
    keep(memory, rows)
    assert nearest(memory, rows[1], 1).slots.tolist() == [1]
    assert held_here(memory) == rows.nbytes


def test_the_same_random_calls_give_the_same_answers_on_a_server_with_pgvector(vector_cluster: Cluster) -> None:
    TwinMachine.cluster = vector_cluster
    short = settings(
        max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), database=None,
        phases=(Phase.generate,),
    )  # fmt: skip
    run_state_machine_as_test(TwinMachine, settings=short)


# -- an index ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(memory: Memory) -> NDArray[np.float32]:
    """The rows of a pool that has an index."""
    rows = rows_of(1500, 16)
    store_of(memory)._indexes.least = 1000
    keep(memory, rows)
    store_of(memory)._indexes.wait()
    return rows


def test_a_large_pool_gets_an_index_that_finds_what_an_exact_search_finds(
    memory: Memory, other: Connection, indexed: NDArray[np.float32]
) -> None:
    assert other.execute("SELECT measured, ef >= 100 FROM near_pool").fetchone() == (1500, True)
    shared = []
    for query in rows_of(30, 16, 5):
        exact = set(np.argsort(-(indexed @ query))[:20].tolist())
        shared.append(len(exact & set(nearest(memory, query, 20).slots.tolist())) / 20)
    assert np.mean(shared) >= 0.95
    with store_of(memory)._connections.read() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")  # what this connection did is told when it is done
    query = "SELECT sum(idx_scan) >= 30 FROM pg_stat_user_indexes WHERE indexrelname ~ '^near_pool_[0-9]+$'"
    until(lambda: other.execute(query).fetchone() == (True,))


def test_an_index_honours_filters_and_deletes(memory: Memory, indexed: NDArray[np.float32]) -> None:
    query = indexed[7]
    ids = [f"ann{slot}" for slot in nearest(memory, query, 20).slots.tolist()]
    assert ids[0] == "ann7"
    left = nearest(memory, query, 20, Filter(without=tuple(ids[:10]))).slots.tolist()
    assert not set(ids[:10]) & {f"ann{slot}" for slot in left}
    assert len(left) == 20
    memory.delete("ann7")
    assert 7 not in nearest(memory, query, 20).slots.tolist()
    memory.add("new", id="new", user_id="ann")
    memory.store.put_vectors("test", [("new", query[None])])
    assert nearest(memory, query, 1).slots.tolist() == [1500]


def test_a_wide_filter_on_a_large_pool_is_exact_or_finds_as_many(
    memory: Memory, indexed: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "NARROW", 10)  # so that what is allowed is told as bits
    query = rows_of(1, 16, 9)[0]
    closest = np.argsort(-(indexed @ query))
    without = tuple(f"ann{slot}" for slot in closest[:1100].tolist())
    found = nearest(memory, query, 50, Filter(without=without)).slots.tolist()
    positive = [slot for slot in closest[1100:].tolist() if indexed[slot].astype(np.float16) @ query > 0]
    assert found == positive[:50]


def test_a_store_that_is_closed_while_an_index_is_made_gives_it_up(url: str, other: Connection) -> None:
    with Memory(url) as memory:
        keep(memory, rows_of(200, 8))
        store_of(memory)._indexes.least = 100
        other.execute("BEGIN; SELECT pg_current_xact_id()")  # an index waits for all who were there before it
        memory.store.refresh_indexes(Scope("ann"), "test")
    other.execute("ROLLBACK")
    with Memory(url) as memory:
        store_of(memory)._indexes.least = 100
        memory.store.refresh_indexes(Scope("ann"), "test")
        store_of(memory)._indexes.wait()
        assert other.execute("SELECT measured FROM near_pool").fetchone() == (200,)
        assert other.execute("SELECT bool_and(indisvalid) FROM pg_index").fetchone() == (True,)


# -- what goes with a note ---------------------------------------------------------------------------------------------


def test_a_deleted_note_takes_its_copies_along_whoever_deletes_it(memory: Memory, other: Connection) -> None:
    keep(memory, rows_of(6, 8), passages=2)
    memory.delete("ann0")
    assert other.execute("SELECT count(*) FROM near").fetchone() == (4,)
    other.execute("DELETE FROM vector WHERE note = (SELECT seq FROM note WHERE id = 'ann1')")
    assert other.execute("SELECT count(*) FROM near").fetchone() == (2,)
    memory.delete_all(user_id="ann")
    assert other.execute("SELECT count(*) FROM near").fetchone() == (0,)


def test_a_purge_leaves_no_byte_of_a_deleted_vector(vector_cluster: Cluster, memory: Memory, url: str) -> None:
    rows = rows_of(3, 64)
    keep(memory, rows)
    kept, copied = rows[1].astype(np.float16).tobytes(), rows[1].astype("<f2").tobytes()
    assert vector_cluster.bytes_of(url).count(kept) == 2
    memory.delete("ann1")
    assert memory.purge()
    assert copied not in vector_cluster.bytes_of(url)
    assert rows[0].astype(np.float16).tobytes() in vector_cluster.bytes_of(url)


def test_a_purge_drops_the_index_of_a_pool_that_is_gone(
    memory: Memory, other: Connection, indexed: NDArray[np.float32]
) -> None:
    named = "SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema AND indexname ~ '^near_pool_[0-9]+$'"
    assert other.execute(named).fetchone() == (1,)
    memory.store.drop_vectors(keep="another")
    assert memory.purge()
    assert other.execute(named).fetchone() == (0,)


def test_with_row_level_security_a_role_finds_its_own_vectors_alone(
    memory: Memory, url: str, other: Connection
) -> None:
    rows = rows_of(10, 8)
    for user in ("ann", "bob"):
        keep(memory, rows, user=user)
    role = f"role_{schema_of(url)}"
    other.execute("SELECT secure_rows(true)")
    other.execute(f"CREATE ROLE {role} LOGIN")
    other.execute("SELECT grant_user(%s, 'ann')", (role,))
    with Memory(url.replace("retcon@", f"{role}@")) as tenant:
        assert store_of(tenant)._indexes.extension.version
        found = nearest(tenant, rows[3], 20)
        assert sorted(found.slots.tolist()) == sorted(nearest(memory, rows[3], 20, scope=Scope("ann")).slots.tolist())
        tenant.add("mine", id="mine", user_id="ann")
        tenant.store.put_vectors("test", [("mine", rows[3][None])])
        assert 10 in nearest(tenant, rows[3], 20).slots.tolist()
        assert held_here(tenant) == 0
    other.execute(f"SET ROLE {role}")
    assert other.execute("SELECT count(*) FROM near").fetchone() == (11,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("INSERT INTO near SELECT 99, max(pool) + 1, 1, 0, '[1]' FROM near")
    other.execute("RESET ROLE")
    other.execute(f"DROP OWNED BY {role}")
    other.execute(f"DROP ROLE {role}")


# -- an extension that comes and goes ----------------------------------------------------------------------------------


def test_a_store_begun_without_the_extension_uses_it_once_it_is_there(fresh: tuple[str, Connection]) -> None:
    url, inside = fresh
    rows = rows_of(30, 8)
    with Memory(url + "&pgvector=off") as memory:
        keep(memory, rows)
        assert memory.stats()["pgvector"] == "not in use: switched off in the URL"
        before = nearest(memory, rows[4])
        assert held_here(memory) == rows.nbytes
    with Memory(url) as memory:
        memory.store.refresh_indexes(Scope(), "test")
        assert inside.execute("SELECT count(*) FROM near").fetchone() == (30,)
        same(nearest(memory, rows[4]), before)
        assert held_here(memory) == 0
        assert str(memory.stats()["pgvector"]).startswith("0.")


def test_an_extension_that_is_dropped_costs_nothing_but_memory_and_may_come_back(fresh: tuple[str, Connection]) -> None:
    url, inside = fresh
    rows = rows_of(30, 8)
    with Memory(url) as memory:
        keep(memory, rows)
        before = nearest(memory, rows[4])
        inside.execute("DROP EXTENSION vector CASCADE")
        same(nearest(memory, rows[4]), before)
        assert held_here(memory) == rows.nbytes
        assert memory.stats()["pgvector"] == "not in use: it was dropped since the store was opened"
        memory.store.refresh_indexes(Scope(), "test")
        memory.delete("ann4")
        assert memory.check().problems == ()
    with Memory(url) as memory:
        memory.store.refresh_indexes(Scope(), "test")
        assert inside.execute("SELECT count(data) FROM near").fetchone() == (29,)
        assert 4 not in nearest(memory, rows[4]).slots.tolist()
        assert memory.check().problems == ()


def test_a_user_who_may_not_create_the_extension_works_without_it(fresh: tuple[str, Connection]) -> None:
    url, inside = fresh
    role = f"plain_{schema_of(url)}"
    inside.execute(f"CREATE ROLE {role} LOGIN")
    inside.execute(f"GRANT CREATE ON DATABASE {url.split('/')[3].split('?')[0]} TO {role}")
    rows = rows_of(5, 8)
    with Memory(url.replace("retcon@", f"{role}@")) as memory:
        keep(memory, rows)
        assert memory.stats()["pgvector"] == "not in use: CREATE EXTENSION vector needs an administrator"
        assert nearest(memory, rows[1], 1).slots.tolist() == [1]
    inside.execute("CREATE EXTENSION vector SCHEMA public")
    with Memory(url.replace("retcon@", f"{role}@")) as memory:
        memory.store.refresh_indexes(Scope(), "test")
        assert nearest(memory, rows[1], 1).slots.tolist() == [1]
        assert held_here(memory) == 0
    inside.execute(f"DROP OWNED BY {role} CASCADE")
    inside.execute(f"DROP ROLE {role}")


# -- moving, checking, telling -----------------------------------------------------------------------------------------


def test_a_store_moves_to_the_server_and_back_with_its_vectors(tmp_path: Path, url: str, other: Connection) -> None:
    first, last = tmp_path / "a.db", tmp_path / "b.db"
    with opened(first) as memory:
        fill(memory)
    migrate(str(first), url)
    assert other.execute("SELECT (SELECT count(*) FROM near) = (SELECT count(*) FROM vector)").fetchone() == (True,)
    migrate(url, str(last))
    query = rows_of(1, 256)[0]
    found = []
    for place in (first, url, last):
        with opened(place) as memory:
            with memory.store._read() as connection:
                name, dim = connection.execute("SELECT name, dim FROM embedder").fetchone()
            query = rows_of(1, dim)[0]
            found.append(nearest(memory, query, 20, name=name))
            assert memory.check().problems == ()
    same(found[0], found[1])
    same(found[0], found[2])


def test_a_copy_that_was_changed_is_found_and_repaired(url: str, other: Connection, db: object) -> None:
    with Memory(url) as memory:
        keep(memory, rows_of(5, 8))
        other.execute("UPDATE near SET data = '[1,0,0,0,0,0,0,0]' WHERE slot = 2")
        other.execute("DELETE FROM near WHERE slot = 3")
        told = [problem.what for problem in memory.check().problems]
        assert told[0] == "pgvector's table lacks vectors that the store has"
        assert "is not that vector" in told[1]
    assert run("check", "--repair", "--db", url).exit_code == 0
    assert other.execute("SELECT count(*) FROM near").fetchone() == (0,)  # vectors are made again, and then copied
    with Memory(url) as memory:
        memory.store.put_vectors("test", [("ann0", rows_of(1, 8))])
        assert memory.check().problems == ()
        assert other.execute("SELECT count(*) FROM near").fetchone() == (1,)


def test_check_and_doctor_say_whether_pgvector_is_in_use(url: str, db: object) -> None:
    with Memory(url) as memory:
        memory.add("a cat")
    assert document("doctor", "--db", url, "--json")["store"]["pgvector"].startswith("0.")
    assert "pgvector 0." in run("doctor", "--db", url).stdout
    assert document("check", "--db", url, "--json")["hints"][0].startswith("vectors: pgvector 0.")
    off = url + "&pgvector=off"
    assert document("check", "--db", off, "--json")["hints"] == [
        "vectors: pgvector not in use: switched off in the URL"
    ]


def test_a_word_for_pgvector_that_is_no_switch_is_refused(url: str) -> None:
    with pytest.raises(Exception, match="pgvector='maybe' of the store's URL is neither on nor off"):
        Memory(url + "&pgvector=maybe")


def test_a_server_that_goes_away_in_a_search_is_told(memory: Memory, other: Connection) -> None:
    rows = rows_of(5, 8)
    keep(memory, rows)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'retcon'"

    def search() -> None:
        with memory.store.snapshot(Scope()) as snapshot:
            other.execute(cut)
            snapshot.nearest("test", rows[0], 3, Filter())

    with pytest.raises(StoreError, match="lost"):
        search()
    assert nearest(memory, rows[0], 1).slots.tolist() == [0]
