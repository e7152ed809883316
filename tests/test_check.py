"""Damage is noticed, on reading, at opening, and by a check that says what to do; what follows from notes is mended."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from conftest import fixed_clock, raw

from retcon import Memory, Scope
from retcon.errors import StoreError
from retcon.store.checking import Check, check_file

TALK = ["I adopted a cat named Pixel.", "The vet cost 84 euros.", "The rent is 725 a month."]


@pytest.fixture
def filled(path: Path) -> Path:
    with Memory(path, now=fixed_clock) as memory:
        for number, text in enumerate(TALK):
            memory.add(
                text, id=f"n{number}", user_id="ann", session="s", timestamp="2026-05-09", metadata={"k": number}
            )
        memory.add("Bo is a dog", id="b0", user_id="bob")
        memory.supersede("n2", "The rent is 800 a month.", new_id="n3")
        memory.store.put_vectors("e", [("n0", np.ones((1, 4), np.float32))])
        memory.store.put_record("r", action="merge", budget=9, text="a cat", about="{}", sources=["n0"])
    return path


def change(path: Path, *statements: str) -> None:
    """Another program's hand: no trigger in its way, and none missing afterwards."""
    connection = raw(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, statement in triggers:
        connection.execute(statement)
    connection.close()


def kinds(found: Check) -> set[str]:
    return {problem.kind for problem in found.problems}


def test_a_store_in_use_is_sound(filled: Path) -> None:
    found = check_file(str(filled))
    assert (found.ok, found.notes, found.hints) == (True, 5, ())
    with Memory(filled) as memory:
        memory.delete("n1")
        memory.delete("n3")
        assert memory.check().ok
        memory.delete_all(user_id="ann")
        assert memory.check() == Check(1, ())


COLUMNS = {
    "text": "'The vet cost 85 euros.'", "metadata": "'{\"k\": 7}'", "speaker": "'Eve'", "session": "'t'", "id": "'n9'",
    "timestamp": "'2026-05-08'", "at": "0.5", "created_at": "'2020'", "slot": "77", "scope": "2", "follows": "NULL",
    "supersedes": "4", "seq": "99",
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_no_changed_column_of_a_note_is_served_and_the_check_names_the_note(filled: Path, column: str) -> None:
    change(filled, "PRAGMA foreign_keys = OFF", f"UPDATE note SET {column} = {COLUMNS[column]} WHERE id = 'n1'")
    name = "n9" if column == "id" else "n1"
    with Memory(filled) as memory:
        with pytest.raises(StoreError, match=f"note '{name}' does not match its checksum"):
            memory.get(name)
        with pytest.raises(StoreError, match="does not match its checksum"):
            memory.get_all()
        assert memory.get("n0").text == TALK[0]
    problems = check_file(str(filled)).problems
    assert any(name in problem.what and problem.kind == "note" for problem in problems)
    assert all(problem.advice for problem in problems)


def test_a_recall_over_a_damaged_note_says_so(filled: Path) -> None:
    change(filled, "UPDATE note SET text = 'The vet cost 85 euros.' WHERE id = 'n1'")
    with Memory(filled) as memory, pytest.raises(StoreError, match="'n1' does not match its checksum"):
        memory.recall("What did the vet cost?", budget=64, user_id="ann")


@pytest.mark.parametrize("column", ["user_id", "agent_id", "run_id"])
def test_notes_that_were_moved_to_another_owner_are_not_served(filled: Path, column: str) -> None:
    change(filled, f"UPDATE scope SET {column} = 'eve' WHERE user_id = 'bob'")
    scope = replace(Scope(), **{column: "eve"})
    with Memory(filled) as memory, pytest.raises(StoreError, match="'b0' does not match its checksum"):
        list(memory.store.all(scope))
    assert "note" in kinds(check_file(str(filled)))


def test_a_note_that_vanished_is_missed(filled: Path) -> None:
    change(filled, "PRAGMA foreign_keys = OFF", "DELETE FROM note WHERE id = 'b0'", "DELETE FROM doc WHERE note = 4")
    found = check_file(str(filled))
    assert any("should hold 5 notes and holds 4" in problem.what for problem in found.problems)
    mended = check_file(str(filled), mend=True)
    assert mended.ok, mended.problems


def test_a_note_that_was_deleted_and_put_in_anew_by_another_program_is_noticed(filled: Path) -> None:
    columns = (
        "seq, id, scope, slot, session, speaker, timestamp, at, text, metadata, created_at, follows, supersedes, sum"
    )
    connection = raw(filled)
    row = connection.execute(f"SELECT {columns} FROM note WHERE id = 'b0'").fetchone()
    connection.execute("DELETE FROM note WHERE id = 'b0'")
    changed = (*row[:8], "Bo is a cat", *row[9:])
    connection.execute(f"INSERT INTO note ({columns}) VALUES ({', '.join('?' * 14)})", changed)
    connection.close()
    with Memory(filled) as memory, pytest.raises(StoreError, match="checksum"):
        memory.get("b0")
    assert "note" in kinds(check_file(str(filled)))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM posting WHERE rowid IN (SELECT rowid FROM posting LIMIT 1)",
        "UPDATE posting SET df = df + 1",
        "UPDATE posting SET peak = 0",
        "DELETE FROM doc",
        "UPDATE doc SET length = length + 1",
        "UPDATE doc SET terms = x''",
        "UPDATE scope SET notes = notes + 1",
        "UPDATE scope SET total = 0",
        "UPDATE scope SET slots = 0",
        "INSERT INTO block (scope, term, first, data) VALUES (1, 5, 0, x'0000000000000000')",
    ],
)  # fmt: skip
def test_an_index_that_does_not_match_the_notes_is_found_and_made_again(filled: Path, statement: str) -> None:
    if "rowid" in statement:
        statement = "DELETE FROM posting WHERE term = (SELECT min(term) FROM posting)"
    with Memory(filled, now=fixed_clock) as memory:
        before = memory.search("the vet and the cat", user_id="ann")
    change(filled, statement)
    assert "index" in kinds(check_file(str(filled)))
    assert check_file(str(filled), mend=True).ok
    with Memory(filled) as memory:
        assert memory.search("the vet and the cat", user_id="ann") == before
        assert memory.check().ok


def test_a_dropped_trigger_is_noticed_at_opening_and_put_back(filled: Path) -> None:
    connection = raw(filled)
    connection.execute("DROP TRIGGER note_is_immutable")
    connection.close()
    with pytest.raises(StoreError, match="note_is_immutable of the schema is missing"):
        Memory(filled)
    assert kinds(check_file(str(filled))) == {"schema"}
    assert check_file(str(filled), mend=True).ok
    connection = raw(filled)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE note SET text = 'other'")
    connection.close()
    Memory(filled).close()


def test_tables_of_other_programs_are_told_and_left_alone(filled: Path) -> None:
    connection = raw(filled)
    connection.execute("CREATE TABLE _replica (x)")
    connection.close()
    Memory(filled).close()
    assert [problem.what for problem in check_file(str(filled)).problems] == [
        "_replica is not part of the schema: another program made it"
    ]


def test_damaged_records_are_not_served_and_go_at_a_repair(filled: Path) -> None:
    change(filled, "UPDATE record SET text = 'a dog'")
    with Memory(filled) as memory:
        assert memory.store.get_record("r") is None
    assert kinds(check_file(str(filled))) == {"derived"}
    assert check_file(str(filled), mend=True).ok


def test_the_sound_notes_of_a_damaged_store_can_be_saved_and_loaded(filled: Path, tmp_path: Path) -> None:
    change(filled, "UPDATE note SET text = 'x' WHERE id IN ('n1', 'n2')")
    saved = tmp_path / "saved.jsonl"
    with Memory(filled) as memory:
        with pytest.raises(StoreError):
            memory.export(saved)
        assert not saved.exists()
        assert memory.export(saved, skip_damaged=True) == 3
    with Memory(tmp_path / "new.db") as memory:
        assert memory.load(saved) == 3
        assert [note.id for note in memory.get_all()] == ["n0", "b0", "n3"]
        assert memory.get("n3").supersedes is None
        assert memory.check().ok


def test_a_damaged_note_can_be_deleted_and_then_the_store_is_sound(filled: Path) -> None:
    change(filled, "UPDATE note SET text = 'x' WHERE id = 'b0'")
    with Memory(filled) as memory:
        memory.delete("b0")
        assert memory.check().ok


def test_a_delete_never_gives_a_damaged_neighbour_a_new_checksum(filled: Path) -> None:
    change(filled, "UPDATE note SET text = 'x' WHERE id = 'n1'")
    with Memory(filled) as memory:
        with pytest.raises(StoreError, match="'n1' does not match its checksum"):
            memory.delete("n0")  # n1 follows it
        assert memory.get("n0").text == TALK[0]
    assert "note" in kinds(check_file(str(filled)))


def test_the_command_says_what_is_wrong_and_what_to_do(db: Path, cats: Path) -> None:
    assert run("check").stdout == f"{db}: 3 notes, sound\n"
    change(db, "UPDATE note SET text = 'x' WHERE id = 'a2'")
    found = run("check")
    assert found.exit_code == 1
    assert "note: note 'a2' does not match its checksum" in found.stdout
    assert "what to do: delete it, or restore a backup" in found.stdout
    told = json.loads(run("check", "--json").stdout)
    assert (told["ok"], told["notes"], told["problems"][0]["kind"]) == (False, 3, "note")
    assert run("check", "--db", "absent.db").exit_code == 2


def test_the_command_repairs_what_follows_from_the_notes(db: Path, cats: Path) -> None:
    change(db, "DELETE FROM posting")
    assert run("check").exit_code == 1
    assert run("check", "--repair").stdout == f"{db}: 3 notes, sound\n"
    assert "Pixel" in run("recall", "cat", "-u", "ann").stdout


def test_a_file_that_is_no_store_is_one_clear_line(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"no database at all" * 400)
    (problem,) = check_file(str(garbage)).problems
    assert "not a readable SQLite file" in problem.what
    assert garbage.read_bytes() == b"no database at all" * 400


def test_an_emptied_file_is_told(filled: Path) -> None:
    filled.write_bytes(b"")
    assert [problem.kind for problem in check_file(str(filled)).problems] == ["lost"]
    assert filled.stat().st_size == 0


def test_a_file_that_others_may_read_is_hinted_at(filled: Path) -> None:
    filled.chmod(0o644)
    assert "chmod 600" in check_file(str(filled)).hints[0]
    assert check_file(str(filled)).ok


@pytest.mark.parametrize("slot", [100_000, 2**32 - 1])
def test_a_list_that_names_a_note_beyond_the_last_is_an_error_and_no_result(path: Path, slot: int) -> None:
    """Lists of rare words are added up as one; a place far outside must neither be passed over nor take memory."""
    with Memory(path, now=fixed_clock) as memory:
        memory.add([f"{'zebra' if number < 30 else 'okapi'} {number}" for number in range(60)])
        connection = raw(path)
        for scope, term, tail in connection.execute("SELECT scope, term, tail FROM posting WHERE df > 9").fetchall():
            harmed = bytearray(tail)
            harmed[-8:-4] = slot.to_bytes(4, "little")  # the last entry: slot, count, length
            connection.execute("UPDATE posting SET tail = ? WHERE scope = ? AND term = ?", (bytes(harmed), scope, term))
        connection.close()
        with pytest.raises(StoreError, match="cannot be read"):
            memory.search("zebra okapi")
