"""From `expires_at` on a note is not recalled; it stays until it is purged. The clock is the memory's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import bytes_of
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory
from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.model import FakeChat
from retcon.retrieve import RETRIEVERS
from retcon.store.deleting import EXPIRED

pytestmark = pytest.mark.both_stores

NOON = datetime(2026, 5, 9, 12, tzinfo=UTC)


class Clock:
    """A clock that goes only when it is set."""

    def __init__(self) -> None:
        self.moment = NOON

    def __call__(self) -> datetime:
        return self.moment

    def go(self, **ahead: float) -> None:
        self.moment += timedelta(**ahead)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(path: Path, clock: Clock) -> Iterator[Memory]:
    with Memory(path, now=clock, model=FakeChat(lambda _: "a cat")) as opened:
        yield opened


READS: dict[str, Callable[[Memory], list[str]]] = {
    "search": lambda memory: [hit.id for hit in memory.search("cat")],
    "recall": lambda memory: [source.id for source in memory.recall("cat", 200, action="retain").sources],
    "decide": lambda memory: ["old"] if memory.decide("cat", 200).features["notes"] else [],
    "ask": lambda memory: [source.id for source in memory.ask("cat?", 200).looks[0].recall.sources],
    "get_all": lambda memory: [note.id for note in memory.get_all()],
    "fill": lambda memory: [source.id for source in memory.recall("nothing like it", 200, action="retain").sources],
}


@pytest.mark.parametrize("given_", [
    "2026-05-09T13:00", "2026-05-09T13:00:00Z", "2026-05-09T15:00:00+02:00", timedelta(hours=1),
    datetime(2026, 5, 9, 13), datetime(2026, 5, 9, 9, tzinfo=timezone(timedelta(hours=-4))),
])  # fmt: skip
def test_every_way_to_say_when_is_kept_as_the_same_moment(memory: Memory, given_: Any) -> None:
    memory.add("the code is 4711", id="a", expires_at=given_)
    memory.add([{"text": "the code is 4712", "id": "b", "expires_at": given_}])
    assert {memory.get(each).expires_at for each in "ab"} == {"2026-05-09T13:00:00+00:00"}


def test_a_bare_date_is_its_first_moment_and_never_is_none(memory: Memory) -> None:
    memory.add("a", id="a", expires_at="2026-12-31")
    memory.add("b", id="b", expires_at=date(2026, 12, 31))
    memory.add("c", id="c", expires_at="never")
    assert [memory.get(each).expires_at for each in "abc"] == ["2026-12-31T00:00:00+00:00"] * 2 + [None]


@pytest.mark.parametrize("wrong", ["soon", "", 3600, True, ["2026-01-01"], "2026-13-01", timedelta.max, "9999-99"])
def test_what_is_no_moment_is_one_clear_line(memory: Memory, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^expires_at .* is not ISO 8601") as error:
        memory.add("x", expires_at=wrong)
    assert "\n" not in str(error.value)
    assert memory.get_all() == []


@pytest.mark.parametrize("read", READS)
def test_an_expired_note_is_not_read(memory: Memory, clock: Clock, read: str) -> None:
    memory.add("an old cat", id="old", expires_at=timedelta(hours=1))
    clock.go(minutes=59, seconds=59)
    assert READS[read](memory) == ["old"]
    clock.go(seconds=1)
    assert READS[read](memory) == []


def test_get_and_history_and_get_all_on_request_still_show_it(memory: Memory, clock: Clock) -> None:
    memory.add("an old cat", id="old", expires_at=timedelta(hours=1))
    clock.go(hours=2)
    assert memory.get("old").text == "an old cat"
    assert [note.id for note in memory.history("old")] == ["old"]
    assert [note.id for note in memory.get_all(expired=True)] == ["old"]
    assert [json.loads(line)["id"] for line in memory.lines()] == ["old"]


@pytest.mark.parametrize("retriever", RETRIEVERS)
@pytest.mark.parametrize("words", [{}, {"user_id": "ann"}, {"session": "s1"}, {"filters": {"pages": {"gt": 3}}}])
def test_what_is_left_keeps_the_scores_it_had(path: Path, clock: Clock, retriever: str, words: dict[str, Any]) -> None:
    with Memory(path, retriever=retriever, embedder="hashing", now=clock) as memory:
        for number in range(40):
            memory.add(
                f"cat {'Berlin ' * (number % 4)}note {number}", id=f"n{number}", user_id="ann" if number % 3 else "bob",
                session=f"s{number % 2}", metadata={"pages": number % 7},
                expires_at=timedelta(hours=1) if number % 5 == 0 else None,
            )  # fmt: skip
        before = {hit.id: hit.score for hit in memory.search("cat Berlin", top_k=100, **words)}
        clock.go(hours=1)
        after = memory.search("cat Berlin", top_k=100, **words)
        left = [each for each in before if int(each[1:]) % 5]
        if retriever in ("bm25", "hybrid"):  # where what stands around a note counts too
            assert {hit.id for hit in after} == set(left)
        else:
            assert [(hit.id, hit.score) for hit in after] == [(each, before[each]) for each in left]


def test_an_expired_note_is_not_sent_to_an_embedder(path: Path, clock: Clock) -> None:
    with Memory(path, retriever="dense", embedder="hashing", now=clock) as memory:
        memory.add("an old cat", id="old", expires_at=timedelta(hours=1))
        clock.go(hours=1)
        memory.search("cat")
        assert memory.stats()["vectors"] == 0


# -- corrections -------------------------------------------------------------------------------------------------------


def test_a_correction_expires_with_the_note_unless_it_says_otherwise(memory: Memory) -> None:
    for name in "abc":
        memory.add("the code is 4711", id=name, expires_at="2026-06-01")
    assert memory.supersede("a", "4712").expires_at == "2026-06-01T00:00:00+00:00"
    assert memory.supersede("b", "4712", expires_at="2026-07-01").expires_at == "2026-07-01T00:00:00+00:00"
    assert memory.supersede("c", "4712", expires_at="never").expires_at is None


def test_correcting_an_expired_note_asks_for_how_long(memory: Memory, clock: Clock) -> None:
    memory.add("the code is 4711", id="a", expires_at=timedelta(hours=1))
    clock.go(hours=1)
    with pytest.raises(InputError, match="note 'a' expired at 2026-05-09T13:00:00"):
        memory.supersede("a", "4712")
    assert memory.supersede("a", "4712", expires_at="never").text == "4712"


def test_the_same_note_again_keeps_the_expiry_it_has_and_gets_none_where_it_has_none(memory: Memory) -> None:
    memory.add("the code", id="a", expires_at=timedelta(hours=1))
    memory.add("the cat", id="b")
    memory.add("the code", id="a", expires_at="2026-05-09T15:00:00+02:00")
    memory.add("the code", id="a")
    memory.add("the code", id="a", expires_at=timedelta(hours=2))
    with pytest.raises(ConflictError, match=r"'b' is taken by a note that never expires: supersede it"):
        memory.add("the cat", id="b", expires_at=timedelta(hours=2))
    assert [memory.get(each).expires_at for each in "ab"] == ["2026-05-09T13:00:00+00:00", None]


# -- purging -----------------------------------------------------------------------------------------------------------


def test_a_purge_removes_expired_notes_with_their_records_and_words(memory: Memory, path: Path, clock: Clock) -> None:
    memory.add("a zebracode for the door", id="a", user_id="ann", expires_at=timedelta(hours=1))
    memory.add("the cat is grey", id="b", user_id="ann")
    memory.store.put_record("r", action="merge", budget=9, text="zebracode", about="{}", sources=["a", "b"])
    assert memory.count_unpurged() == 0
    clock.go(hours=1)
    assert memory.count_unpurged() == 1
    assert memory.purge()
    assert memory.count_unpurged() == 0
    with pytest.raises(NotFoundError):
        memory.get("a")
    assert memory.store.get_record("r") is None
    assert b"zebracode" not in bytes_of(path)
    assert [note.id for note in memory.get_all(expired=True)] == ["b"]
    assert memory.check().problems == ()


@pytest.mark.parametrize("place", ["file", ":memory:"])
def test_a_purge_takes_what_has_expired_and_only_that(path: Path, clock: Clock, place: str) -> None:
    with Memory(path if place == "file" else place, now=clock) as memory:
        memory.add("soon gone", id="a", expires_at=timedelta(hours=1))
        memory.add("later gone", id="b", expires_at=timedelta(hours=3))
        clock.go(hours=2)
        assert memory.purge(expired=False)
        assert [note.id for note in memory.get_all(expired=True)] == ["a", "b"]
        assert memory.purge()
        assert [note.id for note in memory.get_all(expired=True)] == ["b"]


@pytest.mark.sqlite
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("purge", [False, True])
def test_no_close_deletes_what_has_expired(path: Path, clock: Clock, purge: bool, deleted: bool) -> None:
    memory = Memory(path, now=clock)
    memory.add("soon gone", id="a", expires_at=timedelta(hours=1))
    memory.add("a zebracode", id="b")
    clock.go(hours=2)
    if deleted:
        memory.delete("b")
    memory.close(purge=purge)
    if deleted and purge:
        assert b"zebracode" not in bytes_of(path)
    with Memory(path, now=clock) as again:
        assert again.get("a").text == "soon gone"
        assert again.count_unpurged() == 1 + (deleted and not purge)


@pytest.mark.sqlite
def test_a_poll_for_expired_notes_reads_no_note_that_does_not_expire(memory: Memory) -> None:
    """A server asks every minute: the plan may walk the index of expiries, which is partial, and no table."""
    with memory.store._read() as connection:
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + EXPIRED, {"now": "2026"})]
    scans = [step for step in plan if step.startswith("SCAN") and step != "SCAN gone"]
    assert scans
    assert all(step.endswith("INDEX note_expires") for step in scans)


CHAIN = st.lists(st.sampled_from(["never", "past", "future"]), min_size=1, max_size=5)


@given(chains=st.lists(CHAIN, min_size=1, max_size=3))
def test_a_purge_changes_nothing_that_is_recalled(chains: list[list[str]]) -> None:
    """Above all it brings no corrected version back."""
    clock = Clock()
    expiry: dict[str, str | timedelta] = {"never": "never", "past": timedelta(hours=1), "future": timedelta(hours=3)}
    with Memory(":memory:", now=clock) as memory:
        for number, chain in enumerate(chains):
            memory.add("cat 0", id=f"{number}-0", session="s", expires_at=expiry[chain[0]])
            for version, when in enumerate(chain[1:], 1):
                memory.supersede(
                    f"{number}-{version - 1}", f"cat {version}", new_id=f"{number}-{version}", expires_at=expiry[when]
                )
        clock.go(hours=2)
        listed = [note.id for note in memory.get_all()]
        found = {hit.id for hit in memory.search("cat", top_k=50)}
        assert (
            found
            == set(listed)
            == {f"{number}-{len(chain) - 1}" for number, chain in enumerate(chains) if chain[-1] != "past"}
        )
        assert memory.purge()
        assert [note.id for note in memory.get_all()] == listed
        assert {hit.id for hit in memory.search("cat", top_k=50)} == found
        assert not any(
            note.expires_at == "2026-05-09T13:00:00+00:00" for note in memory.get_all(superseded=True, expired=True)
        )
        assert memory.check().problems == ()


@pytest.mark.sqlite
def test_expiry_survives_an_export_a_load_and_a_backup(memory: Memory, tmp_path: Path, clock: Clock) -> None:
    memory.add("the code", id="a", expires_at=timedelta(hours=1))
    memory.backup(tmp_path / "saved.db")
    with Memory(tmp_path / "copy.db", now=clock) as copy, Memory(tmp_path / "saved.db", now=clock) as saved:
        copy.load(memory.lines())
        assert copy.get("a") == saved.get("a") == memory.get("a")
        clock.go(hours=1)
        assert copy.search("code") == saved.search("code") == []
