"""A process killed at any moment leaves a store that opens, holds all it acknowledged and nothing half-written."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import fixed_clock, raw
from killing import AT_CALL, IN_LOG, IN_PARENT, Tell, moments, told_before_death
from test_postings import check_file, expected_index, stored_index

from retcon import Memory, Note
from retcon.store import postings, writing

BATCH = 40
KILLS = 48
ROUND = 3  # batches between an open and a close
CALLS = 20_000  # of Python and C functions; more than one batch takes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def batch(number: int) -> list[dict[str, str]]:
    draw = random.Random(number)
    words = ["cat", "dog", "red", "moved", "Berlin", "train", "coffee", "green", "paid", "2026"]
    return [
        {
            "id": f"{number}-{i}",
            "text": " ".join(draw.choices(words, k=12)),
            "session": f"s{i % 3}",
            "user_id": f"u{i % 2}",
        }
        for i in range(BATCH)
    ]


def add_for_ever(path: Path, first: int, tell: Tell) -> None:
    """Adds batch after batch, each one transaction, and tells a batch's number once it is committed."""
    for number in itertools.count(first):
        if (number - first) % ROUND == 0:
            memory = Memory(path, now=fixed_clock)
        memory.add(batch(number))
        tell(number)
        if (number - first) % ROUND == ROUND - 1:
            memory.close()  # which copies the log into the file


def delete_and_add_for_ever(path: Path, tell: Tell) -> None:
    """Deletes the oldest batch and adds a new one, each in one transaction, again and again."""
    memory = Memory(path, now=fixed_clock)
    for turn in itertools.count():
        ids = [note.id for note in memory.get_all()]
        memory.delete(ids[:BATCH])
        memory.add(batch(1 + int(ids[-1].split("-")[0])))
        tell(turn)


def check_after_kill(path: Path, acknowledged: int) -> int:
    """The last batch that is in the store: all acknowledged ones are, whole, and at most one more, whole."""
    check_file(path)
    with Memory(path, now=fixed_clock) as memory:
        notes = memory.get_all()
        found = [note.id for note in notes]
        last = len(found) // BATCH - 1
        assert last in (acknowledged, acknowledged + 1)
        assert found == [note["id"] for number in range(last + 1) for note in batch(number)]
        connection = raw(path)
        (indexed,) = connection.execute("SELECT count(*) FROM doc").fetchone()
        sums = connection.execute("SELECT sum(notes), sum(length), sum(slots) FROM scope").fetchone()
        (lengths,) = connection.execute("SELECT sum(length) FROM doc").fetchone()
        connection.close()
        assert (indexed, *sums) == (len(found), len(found), lengths, len(found)) or not found
        return last


def check_kills(path: Path, kills: int, seed: int = 0) -> None:
    """Adds batches in a child that dies `kills` times, in another way each time, and checks the store after each."""
    last, seen = -1, 0
    for moment in itertools.islice(moments(seed, path, calls=CALLS, log=600_000), kills):
        told = told_before_death(partial(add_for_ever, path, last + 1), moment)
        assert told == list(range(last + 1, last + 1 + len(told)))
        assert len(told) >= moment.told
        last = check_after_kill(path, last + len(told))
        seen += 1
    assert seen == kills
    with Memory(path, now=fixed_clock) as memory:
        memory.add(batch(last + 1))
        notes = memory.get_all()
        assert len(notes) == (last + 2) * BATCH
        assert stored_index(memory, path) == expected_index(notes)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several index flushes within one batch."""
    monkeypatch.setattr(writing, "FLUSH", 16)
    monkeypatch.setattr(postings, "TAIL", 4)
    monkeypatch.setattr(postings, "BLOCK", 32)


@pytest.mark.usefixtures("small_blocks")
def test_a_kill_at_any_moment_keeps_every_acknowledged_batch_and_no_half_of_one(path: Path) -> None:
    check_kills(path, KILLS)


def check_kills_in_deletes(path: Path, kills: int, seed: int = 1) -> None:
    with Memory(path, now=fixed_clock) as memory:
        for number in range(6):
            memory.add(batch(number))
    ways = (AT_CALL, IN_PARENT, IN_LOG)
    for moment in itertools.islice(moments(seed, path, calls=2 * CALLS, log=100_000, ways=ways), kills):
        told_before_death(partial(delete_and_add_for_ever, path), moment)
        check_file(path)
        with Memory(path, now=fixed_clock) as memory:
            notes = memory.get_all()
            oldest = int(notes[0].id.split("-")[0])
            kept = range(oldest, oldest + len(notes) // BATCH)
            assert len(kept) in (5, 6)
            assert [note.id for note in notes] == [note["id"] for number in kept for note in batch(number)]
            assert stored_index(memory, path) == expected_index(notes)
            if len(kept) == 5:  # it died between the two
                memory.add(batch(kept.stop))


def test_a_kill_during_delete_leaves_all_of_it_or_nothing(path: Path) -> None:
    check_kills_in_deletes(path, 12)


def test_an_error_in_the_middle_of_a_bulk_add_leaves_nothing(memory: Memory, path: Path) -> None:
    memory.add(batch(0))

    def lines() -> list[str]:
        return ['{"text": "one more"}', '{"text": ""}']

    def interrupted() -> Iterator[Note]:
        for note in memory.get_all():
            yield replace(note, id=note.id + "-again")
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="line 2: a note needs some text"):
        memory.load(lines())
    with pytest.raises(KeyboardInterrupt):
        memory.store.add(interrupted())
    assert len(memory.get_all()) == BATCH
    assert stored_index(memory, path) == expected_index(memory.get_all())
