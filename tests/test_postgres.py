"""A store on a PostgreSQL server: what its own database enforces, tells and survives."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import numpy as np
import psycopg
import pytest
from clusters import Cluster, schema_of
from command_line import run
from conftest import bytes_of, fixed_clock
from waiting import until

from retcon import Memory, Note, Scope
from retcon.errors import BusyError, DeadlineError, InputError, MissingExtraError, SchemaError, StoreError
from retcon.note import Filter
from retcon.store import places
from retcon.store.postgres import PostgresStore, connections, is_there
from retcon.store.postgres.migrations import STEPS
from retcon.store.postgres.url import parse


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    made = cluster.url()
    yield made
    cluster.drop(made)


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    with Memory(url, now=fixed_clock) as opened:
        yield opened


@pytest.fixture
def other(cluster: Cluster, url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another program's connection, which finds the tables by their names."""
    with closing(cluster.connect()) as connection:
        connection.execute(f"SET search_path = {schema_of(url)}")
        yield connection


# -- what the database itself enforces ---------------------------------------------------------------------------------

COLUMNS = {
    "seq": "99", "id": "'z'", "scope": "99", "slot": "99", "session": "'z'", "speaker": "'z'", "timestamp": "'z'",
    "at": "9.5", "text": "'z'", "metadata": "'z'", "created_at": "'z'", "live": "0", "expires_at": "'z'",
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_no_column_of_a_note_can_be_updated(memory: Memory, other: psycopg.Connection[object], column: str) -> None:
    memory.add("the words", id="a", user_id="ann")
    with pytest.raises(psycopg.errors.RaiseException, match="a raw note cannot be changed: supersede it"):
        other.execute(f"UPDATE note SET {column} = {COLUMNS[column]}")
    assert memory.get("a").text == "the words"


def test_an_upsert_does_not_reach_the_text(memory: Memory, other: psycopg.Connection[object]) -> None:
    memory.add("the words", id="a", user_id="ann")
    copy = "INSERT INTO note SELECT * FROM note ON CONFLICT (id) DO UPDATE SET text = 'other'"
    with pytest.raises(psycopg.errors.RaiseException, match="cannot be changed"):
        other.execute(copy)
    with pytest.raises(psycopg.errors.UniqueViolation):
        other.execute("INSERT INTO note SELECT * FROM note")


def test_notes_cannot_be_truncated_nor_written_without_a_checksum(
    memory: Memory, other: psycopg.Connection[object]
) -> None:
    memory.add("the words", id="a", user_id="ann")
    with pytest.raises(psycopg.errors.RaiseException, match="deleted one by one"):
        other.execute("TRUNCATE note CASCADE")
    with pytest.raises(psycopg.errors.RaiseException, match="without a checksum"):
        other.execute(
            "INSERT INTO note (id, scope, slot, text, metadata, created_at, sum)"
            " SELECT 'b', id, 9, 'x', '{}', '', 0 FROM scope"
        )
    assert len(memory.get_all()) == 1


def test_a_note_that_another_program_deletes_takes_what_stands_on_it(cluster: Cluster, url: str) -> None:
    with Memory(url) as memory, closing(cluster.connect()) as stranger:  # whose search path knows nothing of us
        memory.add(["one", "two"], user_id="ann")
        first, second = memory.get_all()
        memory.store.put_record("r", action="merge", budget=9, text="t", about="{}", sources=[first.id])
        memory.store.put_record("s", action="merge", budget=9, text="t", about="{}", sources=[second.id])
        stranger.execute(f"UPDATE {schema_of(url)}.note SET follows = NULL")
        stranger.execute(f"DELETE FROM {schema_of(url)}.note WHERE id = %s", (first.id,))
        assert memory.store.get_record("r") is None
        assert memory.store.get_record("s") is not None
        assert {problem.kind for problem in memory.check().problems} >= {"lost", "index"}


def test_a_note_that_another_program_changed_is_noticed_and_never_an_answer(
    memory: Memory, other: psycopg.Connection[object]
) -> None:
    memory.add(["a cat", "a dog"], user_id="ann")
    other.execute("SET session_replication_role = replica")  # triggers are off
    other.execute("UPDATE note SET text = 'a rat' WHERE text = 'a cat'")
    with pytest.raises(StoreError, match="does not match its checksum"):
        memory.get_all()
    assert [problem.kind for problem in memory.check().problems] == ["note", "file"]


def test_a_trigger_that_was_dropped_or_switched_off_is_noticed(
    url: str, memory: Memory, other: psycopg.Connection[object]
) -> None:
    other.execute("ALTER TABLE note DISABLE TRIGGER note_is_immutable")
    assert memory.stats()["check"] == "note_is_immutable of the schema is switched off"
    with pytest.raises(StoreError, match="switched off, by another program"):
        Memory(url)
    other.execute("DROP TRIGGER note_is_immutable ON note")
    assert [problem.kind for problem in memory.check().problems] == ["schema"]


def test_an_index_that_another_program_broke_is_made_again_by_a_repair(
    url: str, memory: Memory, other: psycopg.Connection[object]
) -> None:
    memory.add(["a cat", "a dog"], user_id="ann")
    found = memory.search("cat", user_id="ann")
    other.execute("DELETE FROM posting")
    assert run("check", "--db", url).exit_code == 1
    assert run("check", "--db", url, "--repair").exit_code == 0
    assert memory.search("cat", user_id="ann") == found


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_store_that_many_open_at_once_for_the_first_time_gets_one_schema(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        for opened in pool.map(PostgresStore, [url] * 8):
            with closing(opened):
                assert opened.stats()["check"] == "ok"


def test_another_programs_schema_and_a_newer_stores_are_left_alone(
    cluster: Cluster, url: str, other: psycopg.Connection[object]
) -> None:
    name = schema_of(url)
    other.execute(f"CREATE SCHEMA {name}")
    other.execute("CREATE TABLE theirs (a int)")
    with pytest.raises(StoreError, match="belongs to another program"):
        Memory(url)
    other.execute(f"DROP SCHEMA {name} CASCADE")
    Memory(url).close()
    other.execute("UPDATE setting SET version = 99")
    with pytest.raises(SchemaError, match=f"schema 99, this retcon knows up to {len(STEPS)}"):
        Memory(url)


def test_no_password_is_ever_told(cluster: Cluster, url: str) -> None:
    secret = url.replace("retcon@", "retcon:hush@")
    with Memory(secret) as memory:
        assert "hush" not in memory.store.path + str(memory.stats()) + repr(memory.store.beside)
    nowhere = f"postgresql://retcon:hush@127.0.0.1:1/postgres?schema={schema_of(url)}&timeout=1"
    with pytest.raises(StoreError) as told:
        Memory(nowhere)
    assert "hush" not in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mysql://x/y", "'mysql' is no kind of store"),
        ("postgresql://x/y?schema=No", "schema='No' is no name"),
        ("postgresql://x/y?schema=pg_mine", "is no name"),
        ("postgresql://x/y?pool_size=none", "pool_size='none' of the store's URL is not a number from 1 to 1000"),
        ("postgresql://x/y?timeout=0", "timeout='0' of the store's URL is not a number"),
    ],
)
def test_a_url_that_cannot_be_is_refused_in_one_line(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        Memory(given)
    assert "\n" not in str(told.value)


def test_options_of_ours_do_not_reach_libpq_and_others_do() -> None:
    place = parse("postgresql://ann:p%40ss@h:5/db?schema=team&pool_size=3&timeout=7&sslmode=require")
    assert place.conninfo == "postgresql://ann:p%40ss@h:5/db?sslmode=require"
    assert (place.shown, place.schema) == ("postgresql://h:5/db?schema=team", "team")
    assert (place.pool_size, place.timeout) == (3, 7.0)


def test_without_the_extra_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("retcon.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'retcon-memory\[postgres\]'"):
        Memory("postgresql://x/y")


def test_sync_is_a_files(url: str) -> None:
    with pytest.raises(InputError, match="synchronous_commit"):
        Memory(url, sync="normal")


def test_any_character_of_a_text_comes_back(memory: Memory) -> None:
    text = "a\0b \ue000n \ue000e \ue000 \U0001f600 \uffff e\u0301"
    memory.add(text, id="a", user_id="ann", metadata={"k": "\ue000n"})
    assert memory.get("a").text == text
    assert memory.get("a").metadata == {"k": "\ue000n"}
    assert memory.check().ok


# -- many at once ------------------------------------------------------------------------------------------------------


def test_writers_of_two_scopes_do_not_wait_for_each_other(url: str) -> None:
    with Memory(url + "&timeout=5") as memory:
        began, done = threading.Event(), threading.Event()

        def slow() -> Iterator[Note]:
            yield from [Note(f"a{i}", "of ann", user_id="ann") for i in range(3)]
            began.set()
            assert done.wait(30)

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: memory.store.put(slow()))
            began.wait(30)
            memory.add("of bob", id="b", user_id="bob")  # while ann's transaction may be open
            done.set()
            assert len(waiting.result()) == 3
        assert memory.store.count(Scope()) == 4


def test_a_writer_that_waits_past_the_time_out_is_told_and_nothing_is_lost(url: str) -> None:
    with Memory(url) as memory, Memory(url + "&timeout=0.2") as hasty:
        memory.add("first", id="a", user_id="ann")
        with memory.store._connections.write() as connection:
            key = memory.store._connections.lock_of("scope", "ann", "", "")
            memory.store._connections.lock(connection, [key])
            with pytest.raises(BusyError, match=r"another writer kept its lock for 0\.2 s"):
                hasty.add("second", id="b", user_id="ann")
        assert hasty.add("second", id="b", user_id="ann")
        assert [note.id for note in memory.get_all()] == ["a", "b"]


def test_scopes_locked_in_any_order_end_in_no_deadlock(url: str) -> None:
    with Memory(url) as memory:

        def write(number: int) -> None:
            users = [f"u{(number + step) % 4}" for step in range(4)][:: 1 if number % 2 else -1]
            for turn in range(8):
                memory.add([{"text": f"{number} {turn} {user}", "user_id": user} for user in users])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        assert memory.store.count(Scope()) == 6 * 8 * 4
        assert memory.check().ok


def test_deletes_records_and_replies_at_once_end_in_no_deadlock(url: str) -> None:
    with Memory(url) as memory:
        memory.add([{"text": f"note {number}", "id": f"n{number}"} for number in range(60)], user_id="ann")

        def keep(number: int) -> None:
            for turn in range(20):
                sources = [f"n{(number * 7 + turn + step) % 60}" for step in (3, 1, 2)]
                try:
                    memory.store.put_record(f"r{turn}", action="merge", budget=9, text="x", about="{}", sources=sources)
                except InputError:
                    continue  # one of them was deleted

        def delete(number: int) -> None:
            for turn in range(10):
                memory.delete([f"n{number * 10 + turn}"])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda job: job[0](job[1]), [(keep, 0), (delete, 0), (keep, 1), (delete, 3), (delete, 5)]))
        assert memory.store.count(Scope()) == 30
        assert memory.check().ok


def test_a_large_pool_of_vectors_has_an_index_in_memory_that_finds_what_an_exact_search_finds(url: str) -> None:
    draw = np.random.default_rng(3)
    rows = draw.normal(size=(400, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    with Memory(url + "&pgvector=off") as memory:
        memory.add([{"text": f"note {number}", "id": f"n{number}"} for number in range(400)], user_id="ann")
        memory.store.put_vectors("test", [(f"n{number}", row[None]) for number, row in enumerate(rows)])

        def nearest() -> list[str]:
            with memory.store.snapshot(Scope("ann")) as snapshot:
                found = snapshot.nearest("test", rows[7], 10, Filter())
                return [note.id for note in snapshot.fetch(found.slots.tolist())]

        exact = nearest()
        memory.store._indexes.least = 100
        memory.store.refresh_indexes(Scope("ann"), "test")
        assert memory.store._indexes._held
        assert len(set(nearest()) & set(exact)) >= 9
        memory.delete("n7")
        assert "n7" not in nearest()


# -- purging -----------------------------------------------------------------------------------------------------------


def test_an_open_reader_holds_the_words_back_and_the_caller_is_told(
    memory: Memory, url: str, other: psycopg.Connection[object]
) -> None:
    memory.add(["zebracode", "other"], user_id="ann")
    (first, _) = memory.get_all()
    with other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM note")
        assert not memory.delete(first.id).purged
        assert not memory.purge()
        assert memory.count_unpurged() == 1
    assert b"zebracode" in bytes_of(url)
    assert memory.purge()
    assert b"zebracode" not in bytes_of(url)
    assert memory.count_unpurged() == 0


def test_no_close_and_no_background_purge_rewrites_a_shared_store(url: str) -> None:
    with Memory(url) as memory:
        memory.add("zebracode", id="a")
        memory.delete("a")
        assert memory.count_due() == 0
        assert memory.purge_due()
    with Memory(url) as memory:
        assert memory.count_unpurged() == 1
        assert memory.purge()
    assert b"zebracode" not in bytes_of(url)


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_statement_ends_at_the_callers_deadline_and_the_store_goes_on(memory: Memory) -> None:
    import time

    from retcon import deadline

    memory.add("a cat", user_id="ann")
    end = deadline.until(time.monotonic() + 0.2)
    with end, pytest.raises(DeadlineError), memory.store._read() as connection:
        connection.execute("SELECT pg_sleep(60)")
    assert memory.search("cat", user_id="ann")


def test_a_pool_whose_connections_are_all_in_use_is_told(url: str) -> None:
    with Memory(url + "&pool_size=1&timeout=0.3") as memory, ThreadPoolExecutor(1) as pool:
        memory.add("a cat", id="a")
        with memory.store.snapshot(Scope()), pytest.raises(BusyError, match="all 1 connections were in use"):
            pool.submit(memory.get, "a").result()
        assert memory.get("a").text == "a cat"


# -- a server that fails -----------------------------------------------------------------------------------------------


def test_a_connection_cut_in_a_transaction_loses_nothing_that_was_there(
    memory: Memory, other: psycopg.Connection[object]
) -> None:
    memory.add("a cat", id="a")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'retcon'"

    def notes() -> Iterator[Note]:
        for number in range(600):
            if number == 550:  # the first 500 are written
                other.execute(cut)
            yield Note(f"n{number}", "half of them")

    with pytest.raises(StoreError, match="connection to the server was lost; nothing was written"):
        memory.store.add(notes())
    assert [note.id for note in memory.get_all()] == ["a"]
    other.execute(cut)
    assert memory.add("again", id="b")  # by itself
    other.execute(cut)
    assert memory.search("again")


def test_a_list_of_notes_is_added_again_where_the_connection_was_cut(
    memory: Memory, other: psycopg.Connection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = iter([True, True])
    usual = connections.Connections.lock

    def lock(self: connections.Connections, connection: connections.PostgresConnection, keys: object) -> None:
        if next(cuts, False):
            other.execute("SELECT pg_terminate_backend(%s)", (connection.session.info.backend_pid,))
        usual(self, connection, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(connections.Connections, "lock", lock)
    memory.add(["one", "two"], user_id="ann")
    assert memory.store.count(Scope("ann")) == 2
    assert next(cuts, None) is None


def test_a_write_whose_error_was_swallowed_is_not_taken_for_done(memory: Memory) -> None:
    memory.add("a cat", id="a")

    def write() -> None:
        with memory.store._writing() as connection, suppress(psycopg.Error):
            connection.execute("SELECT 1 / 0")

    with pytest.raises(StoreError, match="the transaction had failed before; nothing was written"):
        write()
    assert memory.get("a").text == "a cat"


def test_a_clock_that_steps_back_changes_no_order(url: str) -> None:
    hours = iter([12, 3, 1, 2])
    with Memory(url, now=lambda: fixed_clock().replace(hour=next(hours, 0))) as memory:
        for number in range(3):
            memory.add(f"note {number}", id=f"n{number}", user_id="ann", session="s")
        assert [note.id for note in memory.get_all()] == ["n0", "n1", "n2"]
        assert [note.follows for note in memory.get_all()] == [None, "n0", "n1"]
        assert memory.check().ok


# -- who may see what --------------------------------------------------------------------------------------------------


def test_with_row_level_security_a_role_sees_and_writes_its_own_users_alone(
    memory: Memory, url: str, other: psycopg.Connection[object]
) -> None:
    memory.add("the cat of ann", id="a", user_id="ann")
    memory.add("the cat of bob", id="b", user_id="bob")
    role = f"role_{schema_of(url)}"
    other.execute("SELECT secure_rows(true)")
    other.execute(f"CREATE ROLE {role} LOGIN")
    other.execute("SELECT grant_user(%s, 'ann')", (role,))
    with Memory(url.replace("retcon@", f"{role}@")) as tenant:
        assert [note.id for note in tenant.get_all()] == ["a"]
        assert [hit.id for hit in tenant.search("cat")] == ["a"]
        assert tenant.recall("cat", 100, user_id="bob").text == ""
        tenant.add("ann moved to Berlin", id="c", user_id="ann")
        with pytest.raises(StoreError, match="row-level security"):
            tenant.add("a word in bob's mouth", id="d", user_id="bob")
        with pytest.raises(InputError, match="no note has the id 'b'"):
            tenant.delete("b")
        assert tenant.delete("a").notes == 1
    assert sorted(note.id for note in memory.get_all()) == ["b", "c"]
    assert memory.check().ok
    other.execute(f"DROP OWNED BY {role}")
    other.execute(f"DROP ROLE {role}")


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_line_uses_the_store_that_the_url_names(url: str, db: object) -> None:
    assert run("add", "I adopted a cat named Pixel.", "--user-id", "ann", "--db", url).exit_code == 0
    assert "Pixel" in run("recall", "which cat?", "--user-id", "ann", "--db", url).stdout
    report = json.loads(run("doctor", "--db", url, "--json").stdout)
    assert report["store"]["notes"] == 1
    assert report["store"]["server"].startswith("PostgreSQL ")
    assert report["store"]["path"] == places.shown(url)
    assert "PostgreSQL" in run("doctor", "--db", url).stdout
    for verb in (("backup", "x.db"), ("restore", "x.db")):
        assert "pg_dump" in run(*verb, "--db", url).stderr


def test_a_verb_that_only_reads_makes_no_store(url: str, db: object) -> None:
    told = run("recall", "cat", "--db", url)
    assert told.exit_code == 2
    assert f"{places.shown(url)} does not exist yet" in told.stderr
    assert not is_there(url)


def test_a_program_that_closes_nothing_ends_without_a_word(url: str) -> None:
    code = "import sys; from retcon import Memory; Memory(sys.argv[1]).add('a cat', id='a')"
    command = [sys.executable, "-W", "error", "-c", code, url]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout + found.stderr == ""
    with Memory(url) as memory:
        assert memory.get("a").text == "a cat"


def test_doctor_makes_no_store_and_says_what_keeps_it_from_one(url: str, db: object, cluster: Cluster) -> None:
    report = json.loads(run("doctor", "--db", url, "--json").stdout)
    assert report["ok"]
    assert not report["store"]["exists"]
    nowhere = "postgresql://retcon:hush@127.0.0.1:1/x?timeout=1"
    told = run("doctor", "--db", nowhere, "--json")
    assert not json.loads(told.stdout)["ok"]
    assert "hush" not in told.stdout


def test_importing_retcon_loads_no_psycopg() -> None:
    code = "import retcon, sys; print('psycopg' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_a_thread_that_waits_for_a_connection_gets_the_next_free_one(url: str) -> None:
    with Memory(url + "&pool_size=1") as memory, ThreadPoolExecutor(4) as pool:
        memory.add("a cat", id="a")
        with memory.store.snapshot(Scope()):
            waiting = [pool.submit(memory.get, "a") for _ in range(4)]
            until(lambda: memory.store._connections.pool.get_stats().get("requests_waiting", 0) == 4)
        assert [each.result().text for each in waiting] == ["a cat"] * 4
