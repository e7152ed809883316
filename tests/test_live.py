"""A note that is added as it is said, without a timestamp, is of the day it was stored; a loaded one is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import fixed_clock, raw

from retcon import Memory
from retcon.errors import ConflictError, InputError
from retcon.note import Note

pytestmark = pytest.mark.both_stores

STORES = Path(__file__).parent / "stores"


def lives(notes: list[Note]) -> dict[str, bool]:
    return {note.id: note.live for note in notes}


def test_an_add_without_a_timestamp_is_live_and_any_other_is_not(memory: Memory) -> None:
    memory.add("said now", id="now")
    memory.add("said then", id="then", timestamp="2026-05-01")
    memory.add([{"text": "a", "id": "a"}, {"text": "b", "id": "b", "timestamp": "2026-05-02"}])
    memory.add({"text": "no date, please", "id": "undated", "live": False})
    assert lives(memory.get_all()) == {
        "now": True, "then": False, "a": True, "b": False, "undated": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    "said", [{"created_at": "1999-01-01"}, {"live": True}, {"created_at": "1999-01-01", "live": True}]
)
def test_when_a_note_was_stored_is_not_the_callers_to_say(memory: Memory, said: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="created_at and live are the memory's to say: timestamp is when"):
        memory.add([{"text": "fine"}, {"text": "said"} | said])
    assert memory.get_all() == []


def test_a_correction_of_an_undated_note_is_undated_without_stamp_and_of_a_dated_one_is_not(path: Path) -> None:
    with Memory(path, stamp=False, now=fixed_clock) as memory:
        memory.add("a", id="a")
        memory.add("b", id="b", timestamp="2026-05-01")
        assert (memory.supersede("a", "x").timestamp, memory.supersede("b", "y").timestamp) == (
            None, "2026-05-09T12:00:00+00:00",
        )  # fmt: skip


def test_a_correction_is_dated_by_its_timestamp_or_live(memory: Memory) -> None:
    memory.add("the rent is 700", id="a")
    memory.add("the rent is 600", id="b", timestamp="2026-05-01")
    assert memory.supersede("a", "the rent is 725").live
    dated = memory.supersede("b", "the rent is 650")
    assert dated.timestamp == "2026-05-09T12:00:00+00:00"
    assert not dated.live


def test_without_stamp_no_note_is_live(path: Path) -> None:
    with Memory(path, stamp=False) as memory:
        memory.add("said now", id="a")
        assert not memory.get("a").live
        assert not memory.supersede("a", "said later").live


def test_the_same_note_added_live_and_not_live_is_no_conflict(path: Path) -> None:
    with Memory(path, stamp=False, now=fixed_clock) as memory:
        memory.add("the same", id="a")
    with Memory(path) as memory:
        memory.add("the same", id="a")
        assert not memory.get("a").live
        with pytest.raises(ConflictError, match="another text"):
            memory.add("another", id="a")


def test_live_survives_an_export_and_a_load(memory: Memory, tmp_path: Path) -> None:
    memory.add("said now", id="a")
    memory.add("said then", id="b", timestamp="2026-05-01")
    memory.supersede("a", "said again", new_id="c")
    with Memory(tmp_path / "copy.db") as copy:
        copy.load(memory.lines())
        assert copy.get_all(superseded=True) == memory.get_all(superseded=True)
        assert list(copy.lines()) == list(memory.lines())


@pytest.mark.parametrize(
    "line",
    [
        {"text": "no word of it"},
        {"text": "stored when?", "live": True},
        {"text": "dated", "live": True, "created_at": "2026-05-01T10:00:00Z", "timestamp": "2026-05-01"},
        {"text": "stored long ago", "created_at": "2026-05-01T10:00:00Z"},
    ],
)
def test_a_line_of_another_program_is_never_live(memory: Memory, line: dict[str, Any]) -> None:
    memory.load([json.dumps(line)])
    assert not memory.get_all()[0].live


def test_live_must_be_true_or_false(memory: Memory) -> None:
    with pytest.raises(InputError, match="live is true or false, not 'yes'"):
        memory.add({"text": "x", "live": "yes"})
    with pytest.raises(InputError, match="line 1: live is true or false"):
        memory.load(['{"text": "x", "live": 1, "created_at": "2026-05-01"}'])


def test_since_and_until_take_a_live_note_by_the_day_on_which_it_was_stored(path: Path) -> None:
    moment = datetime(2026, 5, 9, 23, 30, tzinfo=UTC)
    with Memory(path, now=lambda: moment) as memory:
        memory.add("the cat is fine", id="live")
        memory.add({"text": "the cat was ill", "id": "undated", "live": False})
        memory.add("the cat came", id="dated", timestamp="2026-05-01")

        def found(read: Callable[..., list[Any]], **words: str) -> list[str]:
            return sorted(each.id for each in read(**words))

        for read in (memory.get_all, lambda **words: memory.search("cat", **words)):
            assert found(read, since="2026-05-09", until="2026-05-09") == ["live"]
            assert found(read, since="2026-05-10") == []
            assert found(read, until="2026-05-08") == ["dated"]
            assert found(read) == ["dated", "live", "undated"]


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.sqlite
@pytest.mark.parametrize("change", ["live = 0", "live = 1", "expires_at = '2026-01-01T00:00:00+00:00'"])
@pytest.mark.parametrize("note_id", ["plain", "live", "short"])
def test_a_change_of_either_column_by_another_program_is_noticed(path: Path, change: str, note_id: str) -> None:
    with Memory(path, now=fixed_clock) as memory:
        memory.add("a plain note", id="plain", timestamp="2026-05-01")
        memory.add("a live note", id="live")
        memory.add("a short one", id="short", expires_at="2100-01-01")
        connection = raw(path)
        connection.execute("DROP TRIGGER note_is_immutable")
        before = connection.execute("SELECT live, expires_at FROM note WHERE id = ?", (note_id,)).fetchone()
        connection.execute(f"UPDATE note SET {change} WHERE id = ?", (note_id,))
        after = connection.execute("SELECT live, expires_at FROM note WHERE id = ?", (note_id,)).fetchone()
        connection.close()
        told = [problem.what for problem in memory.check().problems if problem.kind == "note"]
        assert told == ([f"note {note_id!r} does not match its checksum"] if before != after else [])


def test_damage_from_before_a_migration_still_shows_after_it(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copyfile(STORES / "schema-3.sqlite", path)
    connection = raw(path)
    connection.execute("DROP TRIGGER note_is_immutable")
    connection.execute("UPDATE note SET text = 'changed' WHERE id = 'n3'")
    connection.close()
    with Memory(path) as memory:
        assert [each.what for each in memory.check().problems if each.kind == "note"] == [
            "note 'n3' does not match its checksum"
        ]
