"""A store that any released version made opens, is brought up to date, and answers as one that is made today."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import fixed_clock, raw

from retcon import Memory
from retcon.store import migrations
from retcon.store.migrations import STEPS

STORES = Path(__file__).parent / "stores"
QUESTIONS = [
    "How much did the vet cost?",
    "When does my flight leave?",
    "What is the cat called?",
    "café 猫",
    "old note",
]


def schemas() -> list[str]:
    return sorted(path.stem for path in STORES.glob("schema-*.sqlite"))


@pytest.fixture(params=schemas())
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, object]]:
    path = tmp_path / "old.db"
    shutil.copyfile(STORES / f"{request.param}.sqlite", path)
    return path, json.loads((STORES / f"{request.param}.json").read_text(encoding="utf-8"))


def test_there_is_a_store_of_every_schema_that_was_released() -> None:
    assert schemas() == [f"schema-{number}" for number in range(2, len(STEPS) + 1)]


def test_an_old_store_holds_what_it_held(old: tuple[Path, dict[str, object]]) -> None:
    path, known = old
    with Memory(path) as memory:
        notes = memory.get_all(superseded=True)
        assert [note.to_dict() for note in notes] == known["notes"]
        histories = {note.id: [each.id for each in memory.history(note.id)] for note in notes}
        assert histories == known["histories"]
        assert memory.cache_stats() == known["cache"]
        assert memory.stats()["schema"] == len(STEPS)
        assert memory.check().problems == ()


def test_an_old_store_answers_as_a_new_one_with_the_same_notes(
    old: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    path, _ = old
    with Memory(path, now=fixed_clock) as memory, Memory(tmp_path / "new.db", now=fixed_clock) as fresh:
        fresh.load(memory.lines())
        for user, agent in (("ann", None), ("ben", None), (None, "helper"), (None, None)):
            for question in QUESTIONS:
                ours, theirs = (each.search(question, user_id=user, agent_id=agent) for each in (memory, fresh))
                assert ours == theirs
                for budget in (16, 64, 256):
                    assert recalled(memory, question, budget, user, agent) == recalled(
                        fresh, question, budget, user, agent
                    )


def recalled(memory: Memory, question: str, budget: int, user: str | None, agent: str | None) -> tuple[object, ...]:
    found = memory.recall(question, budget, user_id=user, agent_id=agent)
    return found.text, found.decision, found.sources, found.dropped


def test_an_old_store_can_be_written_to(old: tuple[Path, dict[str, object]]) -> None:
    path, _ = old
    with Memory(path) as memory:
        memory.add("The parrot is called Kiwi.", user_id="ann", session="s0")
        memory.supersede(memory.get_all(user_id="ben")[0].id, "Corrected.")
        memory.delete(memory.get_all(user_id="ann")[1].id)
        assert "Kiwi" in memory.recall("parrot", 32, user_id="ann").text
        assert memory.check().problems == ()


def test_a_program_of_the_version_before_cannot_write_into_a_store_that_was_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copyfile(STORES / "schema-2.sqlite", path)
    older = raw(path)  # has it open since before
    older.execute("SELECT count(*) FROM note").fetchone()
    with Memory(path) as memory:
        columns = "(id, scope, slot, text, metadata, created_at)"
        with pytest.raises(sqlite3.IntegrityError, match="close every program of an older retcon"):
            older.execute(f"INSERT INTO note {columns} VALUES ('late', 1, 999, 'late', '{{}}', '')")
        older.close()
        assert memory.check().problems == ()


@pytest.mark.parametrize("schema", schemas()[:-1])
def test_a_migration_that_is_cut_off_leaves_the_old_store(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    shutil.copyfile(STORES / f"{schema}.sqlite", path)
    known = json.loads((STORES / f"{schema}.json").read_text(encoding="utf-8"))

    def cut_off(_: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", (*STEPS[:-1], replace(STEPS[-1], then=cut_off)))
        with pytest.raises(KeyboardInterrupt):
            Memory(path)
    with Memory(path) as memory:
        assert [note.to_dict() for note in memory.get_all(superseded=True)] == known["notes"]
        assert memory.check().problems == ()
