"""`retcon migrate`: a store goes to a server and back, with everything in it, whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from command_line import document, run
from conftest import counted_ids, fixed_clock

from retcon import Memory
from retcon.errors import InputError, StoreError
from retcon.store import Kept, moving
from retcon.store.moving import migrate

WORDS = "cat dog rent flat Pixel blue red one two Berlin moved adopted 725 May".split()


def fill(memory: Memory, notes: int = 150) -> None:
    """A store with something of everything."""
    draw = random.Random(7)
    for number in range(notes):
        text = " ".join(draw.choices(WORDS, k=draw.randint(2, 14))) + ("\0" if number % 50 == 0 else "")
        memory.add(
            text, user_id=f"u{number % 3}", session=draw.choice([None, "s", "t"]), speaker=draw.choice([None, "Ann"]),
            metadata=draw.choice([None, {"k": number}]), timestamp=draw.choice([None, "2026-05-09"]),
        )  # fmt: skip
    memory.add("long " * 2000 + "zebra", user_id="u1", expires_at="2030-01-01")
    memory.supersede("n5", "the cat moved to Berlin")
    memory.delete(["n9", "n10"])
    memory.embed()
    memory.store.put_record("r", action="merge", budget=9, text="written", about="{}", sources=["n1", "n2"])
    memory.store.put_replies([Kept("k", "m", "said", 1, 2, 0.5, "stop", -1.5)], ["n3"])


def told(memory: Memory) -> dict[str, Any]:
    """What a memory says, in all ways."""
    found: dict[str, Any] = {"all": memory.get_all(superseded=True), "language": memory.language}
    for query in ("blue cat in Berlin", "zebra", "who adopted Pixel on 9 May?"):
        for user in ("u0", "u1", None):
            hits = memory.search(query) if user is None else memory.search(query, user_id=user)
            found[f"{query} {user}"] = [(hit.id, hit.score) for hit in hits]
    found["recall"] = memory.recall("blue cat", 200, user_id="u1").text
    found["record"] = memory.store.get_record("r")
    found["reply"] = memory.store.get_replies(["k"])
    found["history"] = memory.history("n5")
    counted = ("notes", "scopes", "records", "vectors", "unembedded", "unpurged", "language")
    return found | {name: memory.stats()[name] for name in counted}


def opened(place: Path | str) -> Memory:
    return Memory(place, now=fixed_clock, new_id=counted_ids(), embedder="hashing", retriever="hybrid")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with opened(tmp_path / "a.db") as memory:
        fill(memory)
    return tmp_path / "a.db"


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    made = cluster.url()
    yield made
    cluster.drop(made)


def test_a_store_goes_to_a_server_and_back_and_says_the_same(file: Path, url: str, tmp_path: Path) -> None:
    with opened(file) as memory:
        before = told(memory)
    done = document("migrate", "--from", str(file), "--to", url)
    assert done["notes"] == before["notes"]
    with opened(url) as memory:
        assert told(memory) == before
        assert memory.check().problems == ()
        memory.add("another one", id="new", user_id="u1")
    done = document("migrate", "--from", url, "--to", str(tmp_path / "b.db"))
    assert done["notes"] == before["notes"] + 1
    with opened(tmp_path / "b.db") as memory:
        assert memory.get("new").text == "another one"
        assert memory.check().problems == ()
        memory.delete("new")
        memory.add("and one more", id="newer", user_id="u1")
        assert memory.store.place("newer") > memory.store.place("n1")
    assert sorted(path.name for path in tmp_path.glob("b.db*")) == ["b.db"]


class Stopped(Exception):  # noqa: N818
    """As by a kill."""


@pytest.mark.parametrize("to_server", [True, False])
def test_a_move_that_was_stopped_anywhere_goes_on_from_there(
    file: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_server: bool
) -> None:
    monkeypatch.setattr(moving, "BATCH", 40)
    if not to_server:
        migrate(str(file), url)
    source, target = (str(file), url) if to_server else (url, str(tmp_path / "b.db"))
    resumed = []
    for stop in (3, 5, 9):
        calls = iter(range(stop))

        def progress(_: int, __: int, left: Iterator[int] = calls) -> None:
            if next(left, None) is None:
                raise Stopped

        with pytest.raises(Stopped):
            migrate(source, target, progress=progress)
    done = migrate(source, target, progress=lambda now, whole: resumed.append((now, whole)))
    assert done.resumed == resumed[0][0] > 300
    assert resumed[-1][0] == resumed[-1][1] == done.rows
    with opened(target) as memory, opened(file) as origin:
        assert told(memory) == told(origin)
        assert memory.check().problems == ()


def test_a_move_begins_anew_where_the_source_has_changed(file: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "BATCH", 40)

    def stop(now: int, _: int) -> None:
        if now > 120:
            raise Stopped

    with pytest.raises(Stopped):
        migrate(str(file), url, progress=stop)
    with opened(file) as memory:
        memory.delete("n20")
        before = told(memory) | {"unpurged": 0}  # at its close
    assert migrate(str(file), url).resumed == 0
    with opened(url) as memory:
        assert told(memory) == before


def test_a_half_made_copy_is_no_store_yet(file: Path, url: str, cluster: Cluster) -> None:
    def stop(_: int, __: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        migrate(str(file), url, progress=stop)
    with opened(url) as memory:
        assert memory.get_all() == []


def test_a_move_takes_no_place_that_holds_notes(file: Path, url: str, tmp_path: Path) -> None:
    with Memory(url) as memory:
        memory.add("here before", id="a")
    with pytest.raises(InputError, match="holds notes"):
        migrate(str(file), url)
    (tmp_path / "b.db").write_text("")
    with pytest.raises(InputError, match="exists"):
        migrate(url, str(tmp_path / "b.db"))
    with pytest.raises(StoreError, match="does not exist"):
        migrate(str(tmp_path / "none.db"), url)
    assert "export it" in run("migrate", "--from", ":memory:", "--to", url).stderr
    with Memory(url) as memory:
        assert [note.id for note in memory.get_all()] == ["a"]


def test_a_copy_that_is_not_the_same_does_not_take_its_place(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = moving._put

    def put(store: Any, table: moving.Table, rows: list[tuple[Any, ...]]) -> None:
        usual(store, table, rows[:-1] if table.name == "posting" else rows)

    monkeypatch.setattr(moving, "_put", put)
    with pytest.raises(StoreError, match="rows of posting, the source"):
        migrate(str(file), url)
    with opened(url) as memory:
        assert memory.get_all() == []


def test_a_damaged_note_is_not_moved(file: Path, url: str) -> None:
    import sqlite3

    connection = sqlite3.connect(file)
    connection.execute("DROP TRIGGER note_is_immutable")
    connection.execute("UPDATE note SET text = 'other' WHERE id = 'n1'")
    connection.execute(
        "CREATE TRIGGER note_is_immutable BEFORE UPDATE OF\n  seq, id, scope, slot, session, speaker, timestamp, at,"
        " text, metadata, created_at, live, expires_at ON note\n"
        "BEGIN SELECT RAISE(ABORT, 'a raw note cannot be changed: supersede it'); END"
    )
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="'n1' does not match its checksum"):
        migrate(str(file), url)
