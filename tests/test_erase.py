"""After a delete the words are nowhere in the store's files: the bytes are read, and canaries were there before."""

from __future__ import annotations

import os
import random
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import bytes_of, fixed_clock, raw
from waiting import until

from retcon import Memory
from retcon.store import seal
from retcon.store.purging import Purger
from retcon.store.vectors import KEPT

pytestmark = pytest.mark.both_stores

# Digits first: no canary shares a beginning with another word, and each is one match of this pattern.
CANARY = re.compile(rb"\d{7}(?:text|id|session|speaker|meta|user|record|about)qz")


def canary(number: int, kind: str) -> str:
    return f"{number:07d}{kind}qz"


def canaries(path: Path) -> set[str]:
    """Every canary in any byte of the store's files."""
    return {found.decode() for found in CANARY.findall(bytes_of(path))}


def settled(memory: Memory, path: Path) -> set[str]:
    """The canaries after a checkpoint, when all of them are in the main file."""
    if not isinstance(path, str):
        connection = raw(path)
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        connection.close()
    return canaries(path)


def draft(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": canary(number, "id"),
        "text": f"something plain and {canary(number, 'text')}",
        "speaker": canary(number, "speaker"),
        "session": "shared",
        "metadata": {"key": canary(number, "meta")},
    } | fields


KINDS = ("id", "text", "speaker", "meta")


def all_of(number: int, *kinds: str) -> set[str]:
    return {canary(number, kind) for kind in kinds or KINDS}


def test_delete_erases_a_note_from_every_file_and_leaves_its_neighbours(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2, session=canary(2, "session")), draft(3)], user_id="ann")
    assert settled(memory, path) == all_of(1) | all_of(2, *KINDS, "session") | all_of(3)
    assert memory.delete(canary(2, "id")).notes == 1
    assert memory.purge()
    assert canaries(path) == all_of(1) | all_of(3)


def test_the_note_after_a_deleted_one_is_no_longer_found_by_its_words(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2), draft(3)], user_id="ann")
    assert [hit.id for hit in memory.search(canary(1, "text"), user_id="ann")] == [canary(1, "id"), canary(2, "id")]
    memory.delete(canary(1, "id"))
    assert memory.search(canary(1, "text"), user_id="ann") == []
    assert memory.get(canary(2, "id")).follows is None
    assert memory.purge()
    assert canaries(path) == all_of(2) | all_of(3)


def test_delete_takes_the_records_and_vectors_that_stand_on_the_note(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2)], user_id="ann")
    rows = np.full((1, 64), 0.1234567, np.float32)
    vector = rows.astype(KEPT).tobytes()
    memory.store.put_vectors("test", [(canary(1, "id"), rows)])
    for number, sources in ((1, [1]), (2, [1, 2]), (3, [2])):
        memory.store.put_record(
            canary(number, "record"),
            action="merge",
            budget=64,
            text=f"made from {canary(number, 'record')}",
            about=canary(number, "about"),
            sources=[canary(source, "id") for source in sources],
        )
    records = {canary(number, kind) for number in (1, 2, 3) for kind in ("record", "about")}
    assert settled(memory, path) == all_of(1) | all_of(2) | records
    assert vector in bytes_of(path)
    assert memory.delete(canary(1, "id")).records == 2
    assert memory.purge()
    assert (memory.store.get_record(canary(3, "record")) or ("",))[0] == f"made from {canary(3, 'record')}"
    assert canaries(path) == all_of(2) | all_of(3, "record", "about")
    assert vector[:16] not in bytes_of(path)


def test_delete_all_erases_the_scope_with_its_name(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2)], user_id=canary(1, "user"))
    memory.add(draft(3), user_id=canary(1, "user"), run_id="other")
    memory.add(draft(4), user_id="bob")
    assert canary(1, "user") in settled(memory, path)
    assert memory.delete_all(user_id=canary(1, "user")).notes == 3
    assert memory.purge()
    assert canaries(path) == all_of(4)
    assert memory.delete_all(everything=True).notes == 1
    assert memory.purge()
    assert canaries(path) == set()


def test_a_superseded_text_goes_with_its_note_and_the_correction_stays(memory: Memory, path: Path) -> None:
    memory.add(draft(1), user_id="ann")
    memory.supersede(canary(1, "id"), canary(2, "text"), new_id=canary(2, "id"), speaker="me", metadata={})
    memory.delete(canary(1, "id"), versions="one")
    assert memory.purge()
    assert canaries(path) == all_of(2, "id", "text")
    assert [note.supersedes for note in memory.history(canary(2, "id"))] == [None]


@pytest.mark.sqlite
def test_a_replaced_record_leaves_nothing_behind(memory: Memory, path: Path) -> None:
    memory.add(draft(1), user_id="ann")
    for number in (1, 2):
        text = canary(number, "about") * 300
        memory.store.put_record("r", action="merge", budget=9, text=text, about="x", sources=[canary(1, "id")])
    assert settled(memory, path) == all_of(1) | {canary(2, "about")}


@pytest.mark.parametrize("seed", [1, 5, 26, 33])
def test_random_deletes_by_the_thousand_leave_no_copy(path: Path, seed: int) -> None:
    """Rows that SQLite moves between pages leave copies in unused bytes, which zeroing on delete does not reach.

    The seeds are ones where, without a rewrite of the file, words of deleted notes do stay behind.
    """
    draw = random.Random(seed)
    longest = draw.choice([20, 60, 300, 1500])
    live: dict[int, str] = {}
    made = 0
    with Memory(path, now=fixed_clock) as memory:
        for _ in range(40):
            new = []
            for _ in range(draw.randint(1, 80)):
                made += 1
                live[made] = f"{draw.getrandbits(32):08x}-{canary(made, 'id')}"
                session = f"{draw.randint(0, 9)}-{canary(made, 'session')}{'y' * draw.randint(0, 40)}"
                fields = {"id": live[made], "user_id": f"u{draw.randint(0, 2)}"}
                fields |= {"text": "ab " * draw.randint(1, longest) + canary(made, "text")}
                new.append(draft(made, **fields, session=draw.choice([session, None])))
            memory.add(new)
            for _ in range(draw.randint(0, 3)):
                gone = draw.sample(sorted(live), min(len(live), draw.choice([1, 2, 5, 60, 150])))
                if draw.random() < 0.5:
                    start = draw.randrange(len(live) + 1)
                    gone = sorted(live)[start : start + draw.choice([1, 5, 40])]
                memory.store.delete([live.pop(number) for number in gone])
        before = settled(memory, path)
        assert {canary(number, "text") for number in live} <= before
        assert memory.purge()
        left = {int(found[:7]) for found in canaries(path)}
        assert left == set(live)
        assert len(memory.get_all()) == len(live)


@pytest.mark.sqlite
def test_an_open_reader_holds_the_words_back_and_the_caller_is_told(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2)], user_id="ann")
    reader = raw(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM note").fetchone()
    deleted = memory.delete(canary(1, "id"))
    assert deleted.notes == 1
    assert not deleted.purged
    assert deleted.warning is not None
    assert "purge" in deleted.warning
    assert "\n" not in deleted.warning
    assert canary(1, "text") in canaries(path)
    assert not memory.purge()
    reader.execute("COMMIT")
    reader.close()
    assert memory.purge()
    assert canaries(path) == all_of(2)


@pytest.mark.sqlite  # of a server a short listing is read at once
def test_a_listing_half_read_is_such_a_reader(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2)], user_id="ann")
    lines = memory.lines()
    next(lines)
    memory.delete(canary(1, "id"))
    assert not memory.purge()
    assert memory.count_unpurged() == 1
    assert len(list(lines)) == 1  # it goes on in the view it began with
    assert memory.purge()
    assert canaries(path) == all_of(2)


def test_a_delete_rewrites_nothing_and_says_that_a_purge_is_due(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2)], user_id="ann")
    deleted = memory.delete(canary(1, "id"))
    assert (deleted.notes, deleted.purged) == (1, False)
    assert deleted.warning is not None
    assert memory.count_unpurged() == memory.stats()["unpurged"] == 1
    assert memory.search(canary(1, "text")) == []
    memory.delete_all(user_id="ann")
    assert memory.count_unpurged() == 2
    assert canary(1, "text") in canaries(path)
    assert memory.purge()
    assert memory.count_unpurged() == 0
    assert canaries(path) == set()


@pytest.mark.sqlite
def test_close_purges_where_a_delete_waits_for_it(path: Path) -> None:
    with Memory(path) as memory:
        memory.add([draft(1), draft(2)])
        memory.delete(canary(1, "id"))
        assert canary(1, "text") in canaries(path)
    assert canaries(path) == all_of(2)


@pytest.mark.sqlite
def test_a_purge_that_a_kill_prevented_is_done_by_whoever_opens_the_file_next(path: Path) -> None:
    with Memory(path) as memory:
        memory.add([draft(1), draft(2)])
    child = os.fork()
    if not child:
        try:
            Memory(path).delete(canary(1, "id"))
        finally:
            os._exit(0)  # as by a kill: the delete is committed, the rewrite was not begun
    os.waitpid(child, 0)
    assert canary(1, "text") in canaries(path)
    with Memory(path) as memory:
        assert memory.count_unpurged() == 1
        assert [note.id for note in memory.get_all()] == [canary(2, "id")]
    assert canaries(path) == all_of(2)


def test_the_background_purge_takes_up_what_was_left_and_what_comes(path: Path) -> None:
    with Memory(path) as memory:
        memory.add([draft(1), draft(2), draft(3)])
        memory.delete(canary(1, "id"))
        purger = Purger(memory.count_unpurged, memory.purge, every=0.01)
        try:
            until(lambda: memory.count_unpurged() == 0)
            memory.delete(canary(2, "id"))
            until(lambda: memory.count_unpurged() == 0)
        finally:
            purger.close()
        assert canaries(path) == all_of(3)


@pytest.mark.sqlite
def test_a_delete_beside_two_purges_is_not_forgotten(memory: Memory, path: Path) -> None:
    memory.add([draft(1), draft(2), draft(3)])
    memory.delete(canary(1, "id"))
    with memory.store._connections.use() as connection:
        begun = seal.deletes(connection)  # a purge of another process begins
        assert memory.purge()
        memory.delete(canary(2, "id"))
        seal.mark_purged(connection, begun, "")  # and ends after the one that came meanwhile
    assert memory.count_unpurged() == 1
    assert memory.purge()
    assert memory.count_unpurged() == 0
    assert canaries(path) == all_of(3)


def test_one_background_purge_serves_all_deletes_of_its_interval(memory: Memory) -> None:
    memory.add([draft(number) for number in range(1, 9)])
    purges = []
    begun = threading.Event()

    def purge() -> bool:
        purges.append(memory.count_unpurged())
        begun.set()
        return memory.purge()

    memory.delete(canary(1, "id"))
    purger = Purger(memory.count_unpurged, purge, every=3600)
    try:
        assert begun.wait(60)
        for number in range(2, 9):
            memory.delete(canary(number, "id"))
    finally:
        purger.close()
    assert purges == [1]
    assert memory.count_unpurged() == 7


def test_in_memory_there_is_no_file_to_purge() -> None:
    with Memory(":memory:") as memory:
        memory.add(draft(1))
        assert memory.delete(canary(1, "id")).purged
        assert memory.purge()
