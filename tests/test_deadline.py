"""Work stops at its deadline, and only there."""

from __future__ import annotations

import math
import time

import pytest

from retcon import Memory, deadline
from retcon.errors import DeadlineError
from retcon.model import Ask, FakeChat

pytestmark = pytest.mark.both_stores

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def test_without_a_deadline_nothing_is_late() -> None:
    deadline.check()
    assert deadline.seconds_left() == math.inf


def test_past_its_deadline_a_check_raises() -> None:
    with deadline.until(time.monotonic()), pytest.raises(DeadlineError):
        deadline.check()
    deadline.check()


def test_an_inner_deadline_cannot_outlast_the_outer_one() -> None:
    with deadline.until(time.monotonic()), deadline.until(time.monotonic() + 3600):
        assert deadline.seconds_left() == 0.0
        with pytest.raises(DeadlineError):
            deadline.check()
    with deadline.until(time.monotonic() + 3600):
        deadline.check()
        assert 0 < deadline.seconds_left() <= 3600


def test_a_stop_makes_work_late_only_in_the_context_that_was_given_it() -> None:
    stop = deadline.Stop()
    inside = deadline.context(stop=stop)
    inside.run(deadline.check)
    stop.set()
    with pytest.raises(DeadlineError, match="nobody waits"):
        inside.run(deadline.check)
    deadline.check()


def test_a_stop_tells_each_wait_that_is_under_way_once() -> None:
    stop, told = deadline.Stop(), []

    def wait(name: str) -> None:
        with deadline.on_stop(lambda: told.append(name)):
            if name == "during":
                stop.set()
                stop.set()

    inside = deadline.context(stop=stop)
    for name in ("before", "during", "after"):
        inside.run(wait, name)
    wait("outside")
    assert told == ["during", "after"]


@pytest.mark.sqlite
def test_a_statement_of_the_store_ends_at_the_deadline_and_the_store_goes_on(memory: Memory) -> None:
    memory.add("a cat", id="a")
    with deadline.until(time.monotonic() + 0.05), pytest.raises(DeadlineError), memory.store._connections.use() as used:
        used.execute(ENDLESS).fetchall()
    assert memory.get("a").text == "a cat"


@pytest.mark.sqlite
def test_a_read_within_a_read_leaves_the_deadline_in_force(memory: Memory) -> None:
    memory.add("a cat", id="a")

    def nested() -> None:
        with deadline.until(time.monotonic() + 0.05), memory.store._connections.use() as used:
            memory.get("a")
            used.execute(ENDLESS).fetchall()

    with pytest.raises(DeadlineError):
        nested()


def test_a_write_that_is_late_writes_nothing(memory: Memory) -> None:
    memory.add("a cat", id="a")

    def too_long() -> None:
        with deadline.until(time.monotonic() + 0.05), memory.store._connections.write() as connection:
            connection.execute("DELETE FROM note")
            connection.execute(ENDLESS).fetchall()

    with pytest.raises(DeadlineError):
        too_long()
    assert memory.get("a").text == "a cat"
    memory.add("a dog", id="b")
    assert memory.check().ok


@pytest.mark.sqlite
def test_a_listing_ends_at_the_deadline(memory: Memory) -> None:
    memory.add([f"note {number}" for number in range(3000)])
    with deadline.until(time.monotonic()), pytest.raises(DeadlineError):
        memory.get_all()
    assert len(memory.get_all()) == 3000


@pytest.mark.parametrize("action", [None, "retain", "extract"])
def test_a_recall_past_its_deadline_stops_and_the_memory_works_on(action: str | None) -> None:
    with Memory(":memory:") as memory:
        memory.add(["the cat sat on the mat", "the dog ran"])
        with deadline.until(time.monotonic()), pytest.raises(DeadlineError):
            memory.recall("cat", 64, action=action)
        assert "cat" in memory.recall("cat", 64, action=action).text


@pytest.mark.parametrize("action", ["merge", "abstract", "rewrite", "hybrid"])
def test_nothing_takes_the_place_of_an_action_that_ran_out_of_time(action: str) -> None:
    def slow(ask: Ask) -> str:
        time.sleep(max(0.0, deadline.seconds_left()) if deadline.seconds_left() < math.inf else 0.0)
        return "The cat sat on the mat."

    with Memory(":memory:", model=FakeChat(slow)) as memory:
        memory.add([f"the cat sat on the mat and looked at the dog, for {n} days in all" for n in range(9)])
        with deadline.until(time.monotonic() + 1), pytest.raises(DeadlineError):
            memory.recall("cat", 64, action=action)
        assert memory.recall("cat", 64, action=action).action == action
