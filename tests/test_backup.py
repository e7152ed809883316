"""A backup is whole, checked and private, and a restore brings it back, whoever has the store open meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from command_line import complaint, document, fine
from conftest import bytes_of, fixed_clock, raw

from retcon import AsyncMemory, Memory
from retcon.errors import BusyError, InputError, StoreError
from retcon.store.backup import backup, restore

STORES = Path(__file__).parent / "stores"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def texts(path: Path) -> list[str]:
    with Memory(path) as memory:
        return [note.text for note in memory.get_all(superseded=True)]


def test_a_backup_is_one_sound_private_file_that_opens_like_any_store(memory: Memory, path: Path, copy: Path) -> None:
    memory.add(["a cat", "a dog"], user_id="ann")  # still in the log: a copy of notes.db alone would not have them
    found = memory.backup(copy)
    assert (found.ok, found.notes) == (True, 2)
    assert [file.name for file in sorted(copy.parent.glob("copy*"))] == ["copy.db"]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert texts(copy) == ["a cat", "a dog"]


def test_a_backup_holds_no_deleted_words(memory: Memory, copy: Path) -> None:
    memory.add(["a 7777777canaryqz", "a dog"], user_id="ann")
    memory.delete(memory.get_all()[0].id)
    assert memory.count_unpurged() == 1
    memory.backup(copy)
    assert b"7777777canaryqz" not in bytes_of(copy)
    with Memory(copy) as copied:
        assert copied.count_unpurged() == 0


def test_a_backup_beside_a_writer_is_one_moment_of_the_store(memory: Memory, path: Path, tmp_path: Path) -> None:
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            memory.add([f"pair {number} left", f"pair {number} right"], user_id="ann")
            number += 1
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        for number in range(5):
            assert backup(str(path), tmp_path / f"copy{number}.db").notes % 2 == 0
    finally:
        stop.set()
        writer.join()
    counts = [len(texts(tmp_path / f"copy{number}.db")) for number in range(5)]
    assert counts == sorted(counts)


def test_a_backup_replaces_a_file_only_when_told(memory: Memory, copy: Path) -> None:
    copy.write_text("dear")
    memory.add("a cat")
    with pytest.raises(InputError, match="exists: replace it with --replace"):
        memory.backup(copy)
    assert copy.read_text() == "dear"
    memory.backup(copy, replace=True)
    assert texts(copy) == ["a cat"]


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_store_is_not_backed_up_onto_itself(memory: Memory, path: Path, end: str) -> None:
    memory.add("a cat")
    with pytest.raises(InputError, match="is the store itself"):
        memory.backup(f"{path}{end}", replace=True)


def test_a_backup_needs_a_folder_and_a_store(memory: Memory, tmp_path: Path, copy: Path) -> None:
    memory.add("a cat")
    with pytest.raises(InputError, match="a folder that exists"):
        memory.backup(tmp_path / "absent" / "copy.db")
    with pytest.raises(InputError, match="no such store"):
        backup(str(tmp_path / "absent.db"), copy)
    with Memory(":memory:") as nowhere, pytest.raises(InputError, match="has no backup"):
        nowhere.backup(copy)


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_backup_takes_no_place_beside_a_log_that_would_be_read_into_it(memory: Memory, copy: Path, end: str) -> None:
    memory.add("a cat")
    memory.backup(copy)
    Path(f"{copy}{end}").touch()
    with pytest.raises(InputError, match="a store in use, or one whose program was killed"):
        memory.backup(copy, replace=True)


def test_what_a_killed_backup_left_goes_with_a_later_one(memory: Memory, copy: Path) -> None:
    memory.add("a cat")
    old, new = (copy.with_name(f"copy.db.{name}.part") for name in ("0123abcd", "4567abcd"))
    for left in (old, new):
        left.touch()
    os.utime(old, (0, 0))
    memory.backup(copy)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_store_that_cannot_be_opened_is_set_aside_for_its_backup(memory: Memory, path: Path, copy: Path) -> None:
    memory.add("a cat")
    memory.backup(copy)
    memory.close()
    broken = b"no database at all" * 400
    path.write_bytes(broken)
    assert restore(copy, str(path), replace=True).ok
    assert texts(path) == ["a cat"]
    assert path.with_name(f"{path.name}.damaged").read_bytes() == broken


def test_a_restore_into_a_locked_store_gives_up(
    memory: Memory, path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("a cat")
    memory.backup(copy)
    memory.add("a dog")
    monkeypatch.setattr("retcon.store.backup.TIMEOUT", 0.2)
    other = raw(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BusyError):
        restore(copy, str(path), replace=True)
    other.execute("ROLLBACK")
    other.close()
    assert [note.text for note in memory.get_all()] == ["a cat", "a dog"]


def test_a_store_that_is_not_sound_is_never_copied_over_a_good_backup(memory: Memory, path: Path, copy: Path) -> None:
    memory.add("a cat", id="a")
    memory.backup(copy)
    connection = raw(path)
    connection.execute("UPDATE seal SET notes = 2")
    connection.close()
    with pytest.raises(StoreError, match="not sound, so it was not copied"):
        memory.backup(copy, replace=True)
    assert texts(copy) == ["a cat"]
    assert not list(copy.parent.glob("*.part*"))


def test_restore_brings_back_what_the_backup_holds_into_a_store_in_use(memory: Memory, path: Path, copy: Path) -> None:
    memory.add(["a cat", "a dog"], user_id="ann")
    memory.backup(copy)
    memory.delete_all(user_id="ann")
    memory.add("a bird", user_id="bob")
    with pytest.raises(InputError, match="exists"):
        restore(copy, str(path))
    found = restore(copy, str(path), replace=True)
    assert (found.ok, found.notes) == (True, 2)
    assert [note.text for note in memory.get_all()] == ["a cat", "a dog"]
    assert memory.search("bird") == []
    memory.add("a fish", user_id="ann")
    assert [hit.text for hit in memory.search("fish", user_id="ann")] == ["a fish"]
    assert memory.check().ok


def test_restore_makes_a_store_where_there_is_none(memory: Memory, copy: Path, tmp_path: Path) -> None:
    memory.add("a cat")
    memory.backup(copy)
    restore(copy, str(tmp_path / "new.db"))
    assert texts(tmp_path / "new.db") == ["a cat"]
    assert stat.S_IMODE((tmp_path / "new.db").stat().st_mode) == 0o600


def test_a_damaged_backup_is_refused_and_the_store_stays(memory: Memory, path: Path, copy: Path) -> None:
    memory.add("a cat")
    memory.backup(copy)
    connection = raw(copy)
    connection.execute("DROP TRIGGER note_is_immutable")
    connection.execute("UPDATE note SET text = 'a dog'")
    connection.close()
    with pytest.raises(StoreError, match="not sound"):
        restore(copy, str(path), replace=True)
    copy.write_bytes(os.urandom(10_000))
    with pytest.raises(StoreError, match="not a readable SQLite file"):
        restore(copy, str(path), replace=True)
    with pytest.raises(InputError, match="no such backup"):
        restore(copy.with_name("absent.db"), str(path), replace=True)
    assert [note.text for note in memory.get_all()] == ["a cat"]
    assert not list(path.parent.glob("*.part*"))


def test_a_backup_of_an_older_version_is_restored_and_brought_up_to_date(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes((STORES / "schema-2.sqlite").read_bytes())
    known = json.loads((STORES / "schema-2.json").read_text(encoding="utf-8"))
    before = old.read_bytes()
    found = restore(old, str(tmp_path / "new.db"))
    assert (found.ok, found.notes) == (True, len(known["notes"]))
    assert old.read_bytes() == before


def test_async_memory_backs_up_and_checks(tmp_path: Path, copy: Path) -> None:
    async def main() -> None:
        async with AsyncMemory(tmp_path / "notes.db", now=fixed_clock) as memory:
            await memory.add("a cat")
            assert (await memory.check()).ok
            assert (await memory.backup(copy)).notes == 1

    asyncio.run(main())
    assert texts(copy) == ["a cat"]


def test_the_commands_back_up_and_restore(db: Path, cats: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    assert fine("backup", copy) == f"{db} is saved in {copy}: 3 notes, checked\n"
    assert "exists" in complaint("backup", copy)
    fine("delete", "--everything", "--yes")
    assert "exists" in complaint("restore", copy)
    assert document("restore", copy, "--replace") == {"path": str(db), "notes": 3}
    assert "Pixel" in fine("recall", "cat", "-u", "ann")
    assert fine("check") == f"{db}: 3 notes, sound\n"
