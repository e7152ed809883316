"""The database itself keeps raw notes as they are, and reading writes nothing."""

from __future__ import annotations

import hashlib
import sqlite3
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from conftest import bytes_of, fixed_clock, raw
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory, Note, Scope
from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.note import Filter
from retcon.store import Order
from retcon.store.places import open_store

pytestmark = pytest.mark.both_stores

COLUMNS = {
    "seq": 99,
    "id": "'other'",
    "scope": 99,
    "slot": 99,
    "session": "'other'",
    "speaker": "'other'",
    "timestamp": "'2020-01-01'",
    "at": 1.5,
    "text": "'other'",
    "metadata": "'{}'",
    "created_at": "'2020'",
    "live": 0,
    "expires_at": "'2020'",
}


@pytest.fixture
def filled(memory: Memory, path: Path) -> Path:
    memory.add("the first", id="a", user_id="ann", session="s", timestamp="2026-05-09", metadata={"k": 1})
    memory.add("the second", id="b", user_id="ann", session="s")
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    connection = raw(path)
    found = connection.execute("SELECT * FROM note ORDER BY seq").fetchall()
    connection.close()
    return found


def refused(path: Path, statement: str) -> None:
    before = rows(path)
    connection = raw(path)
    with pytest.raises(sqlite3.IntegrityError, match="a raw note cannot be"):
        connection.execute(statement)
    connection.close()
    assert rows(path) == before


@pytest.mark.sqlite
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"])
def test_no_column_of_a_note_can_be_updated(filled: Path, verb: str, column: str) -> None:
    refused(filled, f"{verb} note SET {column} = {COLUMNS[column]} WHERE id = 'a'")
    refused(filled, f"{verb} note SET {column} = {column} WHERE id = 'a'")


@pytest.mark.sqlite
@pytest.mark.parametrize("column", ["rowid", "_rowid_", "oid"])
@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"])
def test_no_note_can_be_put_in_another_place(filled: Path, verb: str, column: str) -> None:
    refused(filled, f"{verb} note SET {column} = 2 WHERE id = 'a'")
    refused(filled, f"{verb} note SET {column} = 99 WHERE id = 'a'")


@pytest.mark.sqlite
@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE"])
@pytest.mark.parametrize(
    ("seq", "name", "slot"), [("NULL", "a", 50), ("1", "new", 50), ("NULL", "new", 0), ("1", "a", 0)]
)
def test_no_note_can_be_replaced_by_id_seq_or_place(filled: Path, verb: str, seq: str, name: str, slot: int) -> None:
    columns = "(seq, id, scope, slot, text, metadata, created_at, sum)"
    refused(filled, f"{verb} INTO note {columns} VALUES ({seq}, '{name}', 1, {slot}, 'other', '{{}}', '', 1)")


@pytest.mark.sqlite
def test_an_upsert_does_not_reach_the_text(filled: Path) -> None:
    columns = "(id, scope, slot, text, metadata, created_at, sum)"
    refused(
        filled,
        f"INSERT INTO note {columns} VALUES ('a', 1, 50, 'x', '{{}}', '', 1) ON CONFLICT (id) DO UPDATE SET text = 'x'",
    )


@pytest.mark.sqlite
def test_no_note_can_be_replaced_through_the_correction_it_makes(memory: Memory, path: Path) -> None:
    """`supersedes` is unique too, so REPLACE would delete the note that already corrects the same one."""
    memory.add("old", id="a")
    memory.supersede("a", "new", new_id="b")
    columns = "(id, scope, slot, text, metadata, created_at, supersedes, sum)"
    refused(path, f"INSERT OR REPLACE INTO note {columns} VALUES ('c', 1, 50, 'x', '{{}}', '', 1, 1)")
    memory.add("third", id="d")
    refused(path, "UPDATE OR REPLACE note SET supersedes = 1 WHERE id = 'd'")


@pytest.mark.sqlite
def test_reading_changes_no_byte(memory: Memory, path: Path, tmp_path: Path) -> None:
    memory.add([f"note number {i} about cats" for i in range(50)], user_id="ann")
    memory.supersede(memory.get_all()[0].id, "a correction")
    assert memory.purge()
    watcher = raw(path)
    before = watcher.execute("PRAGMA data_version").fetchone(), hashlib.sha256(path.read_bytes()).hexdigest()
    first = memory.get_all(user_id="ann")[0]
    memory.search("cats", user_id="ann", session=None, top_k=5)
    memory.recall("cats", budget=64, user_id="ann").escalate()
    memory.recall("cats", budget=64, user_id="ann", action="extract")
    memory.decide("cats", budget=64, user_id="ann")
    memory.get(first.id)
    memory.history(first.id)
    memory.export(tmp_path / "out.jsonl")
    assert memory.load(tmp_path / "out.jsonl") == 0
    memory.add("note number 1 about cats", id=memory.get_all()[0].id, user_id="ann")
    after = watcher.execute("PRAGMA data_version").fetchone(), hashlib.sha256(path.read_bytes()).hexdigest()
    watcher.close()
    assert after == before


@pytest.mark.sqlite
def test_the_paper_retriever_and_the_dense_one_leave_raw_notes_alone(path: Path) -> None:
    for retriever in ("bm25-plain", "dense", "hybrid"):
        with Memory(path, retriever=retriever, embedder="hashing") as memory:
            memory.add("a red cat", id="a", user_id="ann")
            before = rows(path)
            assert memory.search("red cat", user_id="ann")
            assert rows(path) == before


@pytest.mark.sqlite
def test_every_connection_checks_foreign_keys_and_zeroes_what_it_deletes(memory: Memory) -> None:
    with memory.store._connections.use() as connection:
        for pragma, value in (("foreign_keys", 1), ("secure_delete", 1), ("journal_mode", "wal"), ("synchronous", 2)):
            assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_a_corrected_note_has_no_vector_until_it_is_current_again(path: Path) -> None:
    with Memory(path, retriever="dense", embedder="hashing", now=fixed_clock) as memory:
        memory.add("a red cat", id="a", user_id="ann")
        assert [hit.id for hit in memory.search("red cat", user_id="ann")] == ["a"]
        memory.supersede("a", "a red cat, now grey", new_id="b")
        assert [hit.id for hit in memory.search("red cat", user_id="ann")] == ["b"]
        vector = np.ones((1, 8), np.float32)
        memory.store.put_vectors("late", [("a", vector), ("b", vector), ("gone", vector)])
        with memory.store.snapshot(Scope("ann")) as snapshot:
            near = snapshot.nearest("late", vector[0], 9, Filter())
            assert [note.id for note in snapshot.fetch(near.slots.tolist())] == ["b"]
        memory.delete("b", versions="one")
        assert [hit.id for hit in memory.search("red cat", user_id="ann")] == ["a"]


def test_get_many_keeps_order_and_names_the_first_that_is_missing(memory: Memory) -> None:
    memory.add(["one", "two", "three"])
    assert [note.text for note in memory.store.get_many(["n2", "n0", "n2"])] == ["three", "one", "three"]
    with pytest.raises(NotFoundError, match="no note has the id 'n9'"):
        memory.store.get_many(["n2", "n9"])


def test_a_chain_of_corrections_is_linked_past_a_deleted_link(memory: Memory) -> None:
    memory.add("one", id="a")
    for old, new in (("a", "b"), ("b", "c")):
        memory.supersede(old, new, new_id=new)
    with pytest.raises(ConflictError, match="the id 'a' is of a note that was superseded before"):
        memory.supersede("a", "again")
    memory.delete("b", versions="one")
    assert [(note.id, note.supersedes, note.superseded_by) for note in memory.history("a")] == [
        ("a", None, "c"),
        ("c", "a", None),
    ]
    memory.delete("c", versions="one")
    assert memory.get("a").superseded_by is None
    assert [hit.id for hit in memory.search("one")] == ["a"]


@pytest.mark.parametrize("named", [["a"], ["b"], ["c"], ["c", "a"]])
def test_a_delete_takes_every_version_by_the_id_of_any(memory: Memory, path: Path, named: list[str]) -> None:
    memory.add("onequagga", id="a", session="s")
    for old, new in (("a", "b"), ("b", "c")):
        memory.supersede(old, f"{new}quagga", new_id=new)
    memory.add("another turn", id="other", session="s")
    assert memory.delete(named).notes == 3
    assert [note.id for note in memory.get_all(superseded=True)] == ["other"]
    assert memory.get("other").follows is None
    assert memory.search("onequagga bquagga cquagga") == []
    assert memory.purge()
    assert b"quagga" not in bytes_of(path)
    assert memory.check().problems == ()


def test_a_delete_of_an_unknown_note_deletes_no_version_of_another(memory: Memory) -> None:
    memory.add("one", id="a")
    memory.supersede("a", "two", new_id="b")
    with pytest.raises(NotFoundError):
        memory.delete(["a", "nope"])
    with pytest.raises(InputError, match="versions is 'all' or 'one', not 'both'"):
        memory.delete("a", versions="both")  # type: ignore[arg-type]
    assert [note.id for note in memory.history("a")] == ["a", "b"]


def test_a_turn_whose_explicit_predecessor_goes_follows_its_session(memory: Memory) -> None:
    memory.add("first of the session", id="a", session="s")
    memory.add("elsewhere", id="b", session="t")
    memory.add({"text": "answers b", "id": "c", "session": "s", "follows": "b"})
    memory.delete("b")
    assert memory.get("c").follows == "a"


def test_delete_of_thousands_at_once_takes_seconds(path: Path) -> None:
    store = open_store(str(path))
    with Memory(path) as memory:
        memory.add([{"text": f"note {i} cat {i % 7}", "id": f"n{i}"} for i in range(3000)], user_id="ann", session="s")
        assert memory.delete([f"n{i}" for i in range(0, 3000, 2)]).notes == 1500
        assert memory.get("n5").follows == "n3"
        assert store.count(Scope()) == 1500
    store.close()


# -- pages -------------------------------------------------------------------------------------------------------------

PEOPLE = st.sampled_from([None, "ann", "bob"])
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "delete", "supersede"]), PEOPLE, PEOPLE), max_size=14)


@given(STEPS, PEOPLE, PEOPLE, st.booleans(), st.integers(1, 4), st.sampled_from(["oldest", "newest"]))
def test_pages_that_go_on_after_the_last_note_are_the_whole_list(
    steps: list[tuple[str, str | None, str | None]],
    user: str | None,
    agent: str | None,
    superseded: bool,
    size: int,
    order: Order,
) -> None:
    with Memory(":memory:") as memory:
        for number, (verb, whose, through) in enumerate(steps):
            current = memory.get_all()
            if verb == "add" or not current:
                memory.add(f"note {number}", user_id=whose, agent_id=through)
            elif verb == "delete":
                memory.delete(current[number % len(current)].id)
            else:
                memory.supersede(current[number % len(current)].id, f"note {number}")
        listed = memory.get_all(user_id=user, agent_id=agent, superseded=superseded, order=order)
        assert len(listed) == memory.store.count(Scope(user, agent), superseded=superseded)
        added = [note.id for note in memory.get_all(superseded=True)][:: 1 if order == "oldest" else -1]
        assert [note.id for note in listed] == sorted((note.id for note in listed), key=added.index)
        pages: list[Note] = []
        while page := memory.get_all(
            user_id=user, agent_id=agent, superseded=superseded, order=order,
            limit=size, after=pages[-1].id if pages else None,
        ):  # fmt: skip
            pages += page
            assert len(pages) <= len(listed)
        assert pages == listed


def test_page_after_a_note_of_another_scope_or_of_nobody(memory: Memory) -> None:
    for number in range(4):
        memory.add(f"note {number}", id=f"n{number}", user_id="ann" if number % 2 else "bob")
    assert [note.id for note in memory.get_all(user_id="ann", after="n2")] == ["n3"]
    assert [note.id for note in memory.get_all(after="n1")] == ["n2", "n3"]
    assert [note.id for note in memory.get_all(user_id="ann", after="n2", order="newest")] == ["n1"]
    assert [note.id for note in memory.get_all(after="n2", order="newest")] == ["n1", "n0"]
    with pytest.raises(NotFoundError):
        memory.get_all(after="nobody")
    with pytest.raises(InputError, match="oldest or newest, not 'best'"):
        memory.get_all(order="best")  # type: ignore[arg-type]


@pytest.mark.sqlite
def test_page_of_one_users_notes_is_neither_sorted_nor_walked_to(memory: Memory, path: Path) -> None:
    for number in range(200):
        memory.add(f"note {number}", id=f"n{number}", user_id="ann" if number % 4 else "bob")

    def steps(after: str | None, order: Order = "oldest") -> int:
        """Rows that SQLite steps over, by its own count, until it has ten notes."""
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        with memory.store._connections.another() as connection, pytest.MonkeyPatch.context() as patch:
            connection.set_progress_handler(step, 1)
            patch.setattr(memory.store, "_rows", lambda query, values: connection.execute(query, values))
            assert len(memory.get_all(user_id="ann", after=after, limit=10, order=order)) == 10
        return taken

    assert abs(steps("n150") - steps(None)) < 100, "a deep page costs what the first one does"
    assert abs(steps("n50", "newest") - steps(None)) < 100, "in either order"
    assert steps(None) < 2_000, "an eleventh note is all that is read beyond the page"


class Who(StrEnum):
    ANN = "ann"


def test_texts_of_a_type_of_their_own_are_stored_as_plain_ones(memory: Memory) -> None:
    word: str = np.array(["a cat"])[0]
    memory.add(word, id=Who.ANN, user_id=Who.ANN, session=Who.ANN, speaker=Who.ANN, timestamp="2026-05-09")
    memory.store.put_record("r", action="merge", budget=True, text=word, about=Who.ANN, sources=["ann"])
    (note,) = memory.get_all(user_id="ann")
    assert (note.id, note.text, note.session) == ("ann", "a cat", "ann")
    assert memory.store.get_record("r") == ("a cat", "ann")
    assert memory.check().ok
