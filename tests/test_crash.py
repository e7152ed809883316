"""A process killed at any moment leaves a store that opens, holds all it acknowledged and nothing half-written."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import fixed_clock, raw
from test_postings import check_file, expected_index, stored_index

from retcon import Memory, Note
from retcon.store import postings, writing

BATCH = 40
KILLS = 50

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


def add_until_killed(path: Path, first: int, acknowledge: int) -> None:
    """Adds batch after batch, each one transaction, and writes a batch's number once it is committed."""
    memory = Memory(path, now=fixed_clock)
    for number in range(first, first + 100_000):
        memory.add(batch(number))
        os.write(acknowledge, b"%d\n" % number)


def killed_after(path: Path, first: int, seconds: float) -> int:
    """The last batch number that a child acknowledged before it was killed; `first` - 1 where it got to none."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            add_until_killed(path, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the child died by itself"
    with os.fdopen(reading) as pipe:
        return max([first - 1, *map(int, pipe.read().split())])


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


def test_a_kill_at_any_moment_keeps_every_acknowledged_batch_and_no_half_of_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FLUSH", 16)  # several index flushes within one batch
    monkeypatch.setattr(postings, "TAIL", 4)
    monkeypatch.setattr(postings, "BLOCK", 32)
    draw = random.Random(0)
    last, moved = -1, 0
    for _ in range(KILLS):
        before = last
        last = check_after_kill(path, killed_after(path, last + 1, draw.uniform(0.005, 0.12)))
        moved += last > before
    assert moved > KILLS // 4, "too few kills hit a store in use"
    with Memory(path, now=fixed_clock) as memory:
        memory.add(batch(last + 1))
        notes = memory.get_all()
        assert len(notes) == (last + 2) * BATCH
        assert stored_index(memory, path) == expected_index(notes)


def test_a_kill_during_delete_leaves_all_of_it_or_nothing(path: Path) -> None:
    with Memory(path, now=fixed_clock) as memory:
        for number in range(6):
            memory.add(batch(number))
    draw = random.Random(1)
    for _ in range(12):
        child = os.fork()
        if not child:
            memory = Memory(path, now=fixed_clock)
            while ids := [note.id for note in memory.get_all()]:
                memory.delete([note_id for note_id in ids if note_id.endswith(ids[0].split("-")[1])])
            os._exit(0)
        time.sleep(draw.uniform(0.01, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        check_file(path)
        with Memory(path, now=fixed_clock) as memory:
            notes = memory.get_all()
            assert stored_index(memory, path) == expected_index(notes)


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
