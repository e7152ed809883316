"""Bad input gives a clear error in one line, or the right result; and nothing is lost by it."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import bytes_of, files_of, raw
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory
from retcon.errors import ConflictError, InputError, NotFoundError, RetconError, RouterError, SchemaError, StoreError
from retcon.store.migrations import STEPS

ROOT = Path(__file__).resolve().parent.parent


def one_line(error: BaseException) -> str:
    message = str(error)
    assert message
    assert "\n" not in message
    assert len(message) < 600
    return message


def assert_refused(act: Callable[[], object], kind: type[RetconError] = InputError, says: str = "") -> None:
    with pytest.raises(kind) as caught:
        act()
    assert says in one_line(caught.value)


# -- texts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t\r ", "\u3000\u2003"])
def test_empty_text_is_refused(memory: Memory, text: str) -> None:
    assert_refused(lambda: memory.add(text), says="empty")
    assert_refused(lambda: memory.add(["fine", text]), says="empty")
    assert memory.get_all() == []


@pytest.mark.parametrize("text", [None, 7, 1.5, b"bytes", True, object(), [b"x"], {"text": 7}, [["nested"]], {}])
def test_what_is_no_text_is_refused(memory: Memory, text: Any) -> None:
    assert_refused(lambda: memory.add(text))
    assert memory.get_all() == []


def test_ten_megabytes_are_added_searched_and_recalled_in_seconds(memory: Memory) -> None:
    words = random.Random(0).choices(["cat", "house", "river", "green", "walked", "Tuesday"], k=10_000)
    text = "The needle is here. " + (" ".join(words) + ". ") * 180
    assert len(text) > 10_000_000
    started = time.process_time()
    (note,) = memory.add(text, user_id="ann")
    memory.add("a short one about a needle", user_id="ann")
    assert memory.get(note.id).text == text
    assert {hit.id for hit in memory.search("needle", user_id="ann")} >= {note.id}
    recall = memory.recall("where is the needle?", budget=64, user_id="ann")
    assert 0 < recall.tokens <= 64
    assert "needle" in recall.text
    assert time.process_time() - started < 60
    assert_refused(lambda: memory.add("x" * (64 * 2**20 + 1)), says="67,108,864 at most")


def test_one_unbroken_word_of_megabytes_does_not_hang(memory: Memory) -> None:
    started = time.process_time()
    memory.add(["x" * 1_000_000, "日" * 100_000, "a. " * 50_000, "\n" * 300_000 + "b"], user_id="ann")
    for query in ("x", "日日", "a", "b"):
        assert memory.recall(query, budget=32, user_id="ann").tokens <= 32
    assert time.process_time() - started < 60


def test_nul_bytes_come_back_exactly(memory: Memory, tmp_path: Path) -> None:
    text, data = "\0a cat\0 named\0\0Pixel\0", {"k\0": "\0v"}
    memory.add(text, id="a", user_id="ann", metadata=data)
    assert (memory.get("a").text, memory.get("a").metadata) == (text, data)
    assert [hit.text for hit in memory.search("Pixel\0", user_id="ann")] == [text]
    assert memory.recall("cat", budget=50, user_id="ann").tokens <= 50
    memory.export(tmp_path / "out.jsonl")
    with Memory(":memory:") as other:
        other.load(tmp_path / "out.jsonl")
        assert other.get("a").text == text
    assert_refused(lambda: memory.get("a\0"), says="NUL")
    assert_refused(lambda: memory.add("x", id="b\0"), says="NUL")
    assert_refused(lambda: memory.add("x", session="b\0"), says="NUL")
    assert_refused(lambda: memory.search("x", user_id="ann\0"), says="NUL")


@pytest.mark.parametrize("field", ["text", "id", "session", "speaker", "user_id", "metadata"])
def test_a_lone_surrogate_in_a_note_is_refused(memory: Memory, field: str) -> None:
    bad: Any = {"k": "\ud800"} if field == "metadata" else "half \ud83d of it"
    assert_refused(lambda: memory.add({"text": "fine"} | {field: bad}))
    assert memory.get_all() == []


def test_a_query_with_a_lone_surrogate_works(memory: Memory) -> None:
    memory.add("a cat", user_id="ann")
    for query in ("\ud800cat \udfff", "\ud83d", "cat\ud800"):
        memory.search(query, user_id="ann")
        assert memory.recall(query, budget=20, user_id="ann").text == "2026-05-09 a cat"


SYNTAX = [
    '"', "*", "cat*", 'NEAR(', "NEAR(cat dog, 5)", "-", "-cat", "cat AND OR NOT", "text:cat", "{text}: cat", "^cat",
    "cat OR", "(", ")", "((cat", "'", "''", "\\", "%", "_", "cat' --", ";", "?", ":1", "@x", "$1", "\0", "", " ",
    "'; DROP TABLE note; --", '" OR 1=1 --', "cat" * 20_000, "cat " * 20_000, "😀", "ﷺ", "\u202ecat",
]  # fmt: skip


@pytest.mark.parametrize("query", SYNTAX, ids=range(len(SYNTAX)))
def test_search_engine_syntax_in_a_query_is_only_words(memory: Memory, query: str) -> None:
    memory.add("the cat sat", user_id="ann")
    memory.add("near the dog", user_id="ann")
    memory.search(query, user_id="ann")
    assert memory.recall(query, budget=30, user_id="ann").tokens <= 30
    memory.decide(query, budget=30, user_id="ann")
    assert len(memory.get_all()) == 2
    assert [hit.text for hit in memory.search('"cat*" -sat NEAR(', user_id="ann")][:1] == ["the cat sat"]


@pytest.mark.parametrize("query", [None, 7, b"cat", ["cat"]])
def test_a_query_that_is_no_text_is_refused(memory: Memory, query: Any) -> None:
    assert_refused(lambda: memory.search(query), says="a query is text")
    assert_refused(lambda: memory.recall(query, budget=5), says="a query is text")


INJECTION = [
    "x'); DROP TABLE note; --",
    "' OR '1'='1",
    '"; DELETE FROM note; --',
    "%",
    "_",
    "\\'",
    "NULL",
    "[1]",
    '{"a":1}',
]


@pytest.mark.parametrize("nasty", INJECTION)
def test_sql_in_any_field_is_only_text(memory: Memory, nasty: str) -> None:
    memory.add("innocent", id="a", user_id="ann")
    memory.add(
        nasty, id=nasty, user_id=nasty, agent_id=nasty, run_id=nasty, session=nasty, speaker=nasty,
        metadata={nasty: nasty},
    )  # fmt: skip
    assert memory.get(nasty).text == nasty
    assert [note.id for note in memory.get_all(user_id=nasty, session=nasty, metadata={nasty: nasty})] == [nasty]
    assert memory.search("innocent", user_id=nasty) == []
    assert [hit.id for hit in memory.search("innocent", user_id="ann", session=None)] == ["a"]
    assert memory.history(nasty)[0].speaker == nasty
    assert memory.delete(nasty).notes == 1
    assert_refused(lambda: memory.get(nasty), NotFoundError)
    assert [note.id for note in memory.get_all()] == ["a"]


# -- numbers and names -------------------------------------------------------------------------------------------------


BUDGETS = [-1, -(10**9), 10**9, 10**5000, 1.5, float("nan"), float("inf"), True, "64", None, b"8", [64]]


@pytest.mark.parametrize("budget", BUDGETS, ids=range(len(BUDGETS)))
def test_a_budget_that_is_no_sensible_number_is_refused(memory: Memory, budget: Any) -> None:
    memory.add("a cat", user_id="ann")
    assert_refused(lambda: memory.recall("cat", budget=budget, user_id="ann"), says="budget")
    assert_refused(lambda: memory.decide("cat", budget=budget, user_id="ann"), says="budget")


@pytest.mark.parametrize("top_k", [0, -1, 10**5000, 1.5, True, "5", 10**6], ids=range(7))
def test_a_top_k_that_is_no_sensible_number_is_refused(memory: Memory, top_k: Any) -> None:
    assert_refused(lambda: memory.search("cat", top_k=top_k), says="top_k")
    assert_refused(lambda: Memory(":memory:", top_k=top_k), says="top_k")


def test_unknown_names_are_refused_with_the_known_ones(memory: Memory) -> None:
    assert_refused(lambda: memory.recall("x", action="summon"), says="retain")
    assert_refused(lambda: memory.recall("x", exclude=["summon"]), says="retain")
    assert_refused(lambda: Memory(":memory:", retriever="magic"), says="bm25")
    assert_refused(lambda: Memory(":memory:", counter="magic"), says="estimate")
    assert_refused(lambda: Memory(":memory:", embedder="magic"), says="hashing")
    assert_refused(lambda: memory.get("nobody"), NotFoundError, "'nobody'")
    assert_refused(lambda: memory.history("nobody"), NotFoundError)
    assert_refused(lambda: memory.delete("nobody"), NotFoundError)
    assert_refused(lambda: memory.supersede("nobody", "x"), NotFoundError)
    assert_refused(lambda: memory.add({"text": "x", "follows": "nobody"}), NotFoundError)
    assert_refused(lambda: memory.add({"text": "x", "colour": "red"}), says="metadata")
    assert_refused(lambda: memory.add(["x"], id="a"), says="each item")
    for bad in (None, 7, "", b"x"):
        assert_refused(lambda bad=bad: memory.get(bad))  # type: ignore[misc]
        assert_refused(lambda bad=bad: memory.add("x", session=bad) if bad is not None else memory.get(""))  # type: ignore[misc]


NO_TIMES = ["yesterday", "2026-13-01", "", 1e30, float("nan"), 10**5000, True, object(), b"2026"]


@pytest.mark.parametrize("value", NO_TIMES, ids=range(len(NO_TIMES)))
def test_a_timestamp_that_is_none_is_refused(memory: Memory, value: Any) -> None:
    assert_refused(lambda: memory.add("x", timestamp=value), says="ISO 8601")
    assert_refused(lambda: memory.search("x", since=value), says="ISO 8601")
    assert memory.get_all() == []


@pytest.mark.parametrize(
    "value",
    ["0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", -62135596800, 253402300799, 0, 1.5],
)
def test_the_first_and_last_moments_can_be_stored_and_asked_for(memory: Memory, value: Any) -> None:
    (note,) = memory.add("a cat", timestamp=value, user_id="ann")
    assert memory.search("cat", user_id="ann", since=note.timestamp, until=note.timestamp)
    assert memory.recall("cat", budget=30, user_id="ann").text


def _nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"leaf": 1}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_metadata_must_be_plain_json_that_can_be_read_back(memory: Memory) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for bad in ({"x": object()}, {"x": float("nan")}, {1: "x"}, ["x"], "x", {"x": {1, 2}}, {"x": 10**5000}, loop):
        assert_refused(lambda bad=bad: memory.add("x", metadata=bad), says="metadata")  # type: ignore[misc]
    for levels in (65, 500, 900, 100_000):
        assert_refused(lambda levels=levels: memory.add("x", metadata=_nest(levels)), says="metadata")  # type: ignore[misc]
    deepest = _nest(64)
    memory.add("x", metadata=deepest, id="a")
    assert memory.get("a").metadata == deepest


def test_a_conflicting_id_changes_nothing(memory: Memory) -> None:
    memory.add("first", id="a", user_id="ann")
    assert_refused(
        lambda: memory.add(["new one", {"text": "second", "id": "a"}], user_id="ann"), ConflictError, "another text"
    )
    assert_refused(lambda: memory.add("first", id="a", user_id="bob"), ConflictError, "another user_id")
    assert [note.text for note in memory.get_all()] == ["first"]


def test_naming_no_scope_does_not_empty_the_store(memory: Memory) -> None:
    memory.add("x", user_id="ann")
    assert_refused(memory.delete_all, says="everything=True")
    assert len(memory.get_all()) == 1


@given(st.text(), st.text(max_size=30), st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3))
def test_any_text_is_stored_exactly_or_refused_clearly(text: str, name: str, metadata: dict[str, Any]) -> None:
    with Memory(":memory:") as memory:
        try:
            (note,) = memory.add(text, session=name, speaker=name, user_id=name, metadata=metadata)
        except InputError as error:
            one_line(error)
            assert memory.get_all() == []
            return
        assert (note.text, note.session, note.speaker, note.user_id) == (text, name, name, name)
        assert note.metadata == metadata
        assert memory.get_all(user_id=name, session=name) == [note]
        memory.search(text, user_id=name)


anything = st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary()


@given(anything | st.lists(anything, max_size=3) | st.dictionaries(st.text(), anything, max_size=2))
def test_any_python_value_is_stored_or_refused_clearly(value: Any) -> None:
    with Memory(":memory:") as memory:
        for act in (
            lambda: memory.add(value),
            lambda: memory.add({"text": value, "session": value}),
            lambda: memory.add("x", timestamp=value),
            lambda: memory.search("x", metadata={"k": value}),
            lambda: memory.get(value),
            lambda: memory.recall("x", budget=value),
        ):
            try:
                act()
            except RetconError as error:
                one_line(error)


# -- files -------------------------------------------------------------------------------------------------------------


def digest(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files_of(path)}


def assert_refused_and_left(path: Path, kind: type[RetconError] = StoreError, says: str = "") -> None:
    before = digest(path)
    assert_refused(lambda: Memory(path), kind, says)
    assert digest(path) == before


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    draw = random.Random(0)
    contents = {
        "random.db": draw.randbytes(100_000),
        "short.db": b"hello",
        "text.db": b"Dear diary, today I wrote this file by hand.\n" * 100,
        "header.db": b"SQLite format 3\0" + draw.randbytes(5_000),
        "zeros.db": bytes(8192),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert_refused_and_left(path, says=str(path))


def test_a_place_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    assert_refused(lambda: Memory(tmp_path), StoreError, "folder")
    assert_refused(lambda: Memory(tmp_path / "no" / "such" / "x.db"), StoreError, "does not exist")
    (tmp_path / "plain").write_text("x")
    assert_refused(lambda: Memory(tmp_path / "plain" / "x.db"), StoreError)
    assert_refused(lambda: Memory(""), says="path")
    assert_refused(lambda: Memory("a\0b"), says="path")
    assert_refused(lambda: Memory("postgresql://127.0.0.1:1/x"), StoreError, "postgresql")
    assert_refused(lambda: Memory("mysql://localhost/x"), says="mysql")
    for bad in (None, 7, b"x.db"):
        assert_refused(lambda bad=bad: Memory(bad))  # type: ignore[misc]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plain"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("marks", [(0, 0), (0, 7), (0x12345678, 1)])
def test_another_programs_database_is_left_byte_for_byte(tmp_path: Path, mode: str, marks: tuple[int, int]) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE bookmark (url TEXT)")
    other.execute("INSERT INTO bookmark VALUES ('https://example.org')")
    other.execute(f"PRAGMA application_id = {marks[0]}")
    other.execute(f"PRAGMA user_version = {marks[1]}")
    other.commit()
    other.close()
    assert_refused_and_left(path, says="another program")
    again = sqlite3.connect(path)
    assert again.execute("SELECT url FROM bookmark").fetchall() == [("https://example.org",)]
    again.close()


def test_an_empty_database_with_another_programs_mark_is_left_alone(tmp_path: Path) -> None:
    for number, pragma in enumerate(("application_id = 5", "user_version = 1")):
        path = tmp_path / f"{number}.db"
        other = sqlite3.connect(path)
        other.execute(f"PRAGMA {pragma}")
        other.close()
        assert_refused_and_left(path, says="another program")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with Memory(path) as memory:
        memory.add("a cat")
        assert memory.search("cat")


@pytest.mark.parametrize("version", [len(STEPS) + 1, 99, -1])
def test_a_newer_schema_is_named_and_left_alone(path: Path, version: int) -> None:
    with Memory(path) as memory:
        memory.add("a cat")
    other = raw(path)
    other.execute(f"PRAGMA user_version = {version}")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    assert_refused_and_left(path, SchemaError, str(version))
    other = raw(path)
    assert other.execute("SELECT text FROM note").fetchall() == [("a cat",)]
    other.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store with some hundred notes."""
    path = tmp_path_factory.mktemp("sound") / "notes.db"
    draw = random.Random(5)
    with Memory(path) as memory:
        words = ["cat", "dog", "Berlin", "moved", "coffee", "blue", "train", "Tuesday"]
        memory.add([{"text": " ".join(draw.choices(words, k=9)), "session": f"s{i % 9}"} for i in range(400)])
        memory.purge()
    return path.read_bytes()


def use(path: Path) -> None:
    """Everything one does with a store; only our own errors may come out."""
    try:
        with Memory(path) as memory:
            memory.search("cat in Berlin")
            memory.recall("coffee on Tuesday", budget=64)
            memory.get_all(superseded=True)
            memory.add("one more", session="s1")
            memory.delete(memory.get_all()[0].id)
    except RetconError as error:
        one_line(error)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.99])
def test_a_truncated_store_is_refused_or_read_never_a_surprise(path: Path, sound: bytes, part: float) -> None:
    path.write_bytes(sound[: int(len(sound) * part)])
    use(path)


def test_a_flipped_header_is_refused_and_left_alone(path: Path, sound: bytes) -> None:
    for at in (0, 5, 15):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0xFF]) + sound[at + 1 :])
        assert_refused_and_left(path, says="not a readable SQLite file")


def test_damage_anywhere_gives_our_error_or_a_result(path: Path, sound: bytes) -> None:
    draw = random.Random(7)
    for _ in range(60):
        broken = bytearray(sound)
        for _ in range(draw.choice([1, 3, 20])):
            at = draw.choice([draw.randrange(100), draw.randrange(len(broken))])
            broken[at : at + draw.choice([1, 8, 200])] = draw.randbytes(draw.choice([1, 8, 200]))
        for file in files_of(path):
            file.unlink()
        path.write_bytes(bytes(broken[: len(sound)]))
        use(path)


def test_a_read_only_folder_is_a_clear_error_and_loses_nothing(path: Path) -> None:
    with Memory(path) as memory:
        memory.add("a cat")
    before = bytes_of(path)
    script = f"""
import os, sys
sys.dont_write_bytecode = True
from retcon import Memory
from retcon.errors import StoreError
Memory(":memory:").close()  # imports all it needs while it may
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for name in ("notes.db", "new.db"):
    try:
        Memory({str(path.parent)!r} + "/" + name)
    except StoreError as error:
        print(error)
"""
    folders = [path.parent, *(f for f in path.parents[1:-2] if f.stat().st_uid == os.getuid())]
    modes = [folder.stat().st_mode for folder in folders]
    try:
        for folder in folders[1:]:
            folder.chmod(folder.stat().st_mode | 0o055)
        path.parent.chmod(0o555)
        path.chmod(0o444)
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [str(path), str(path.with_name("new.db"))]
    assert done.stdout.count("write the file and its folder") == 2
    assert bytes_of(path) == before


def test_after_close_everything_says_so(memory: Memory, tmp_path: Path) -> None:
    memory.add("a cat", id="a")
    recall = memory.recall("cat", budget=5)
    memory.close()
    memory.close()
    for act in (
        lambda: memory.add("x"),
        lambda: memory.get("a"),
        lambda: memory.get_all(),
        lambda: memory.search("x"),
        lambda: memory.recall("x"),
        lambda: memory.delete("a"),
        lambda: memory.purge(),
        lambda: memory.export(tmp_path / "x.jsonl"),
        lambda: memory.load(["{}"]),
    ):
        assert_refused(act, StoreError, "closed")
    assert not (tmp_path / "x.jsonl").exists()
    assert recall.escalate() is not None  # it needs the notes it holds, and no store


# - numbers that refuse to be written -


def huge() -> int:
    return 10**5000  # not a constant: pytest's plugins write those out


class RefusingError(Exception):
    """An error that fails when it is asked what it says."""

    def __str__(self) -> str:
        return str(huge())


class HugeIndex:
    def __index__(self) -> int:
        return huge()


def raising(error: Exception) -> Callable[[str], int]:
    def count(text: str) -> int:
        raise error

    return count


BAD_COUNTERS: dict[str, Callable[[str], Any]] = {
    "huge": lambda text: huge(),
    "huge index": lambda text: HugeIndex(),
    "huge for the whole": lambda text: huge() if len(text) > 30 else 3,
    "negative": lambda text: -5,
    "hugely negative": lambda text: -huge(),
    "a float": lambda text: 1.5,
    "not a number": lambda text: float("nan"),
    "text": lambda text: "7",
    "nothing": lambda text: None,
    "a list": lambda text: [huge()],
    "raises": raising(RuntimeError("no\n" * 5000)),
    "raises what cannot be said": raising(RefusingError()),
}


@pytest.mark.parametrize("action", ["retain", "extract"])
@pytest.mark.parametrize("bad", BAD_COUNTERS)
def test_a_bad_counter_is_one_clear_line(bad: str, action: str) -> None:
    with Memory(":memory:", counter=BAD_COUNTERS[bad]) as memory:
        memory.add(["the cat sat on the mat and was very happy about it", "dog cat"])
        with pytest.raises(InputError, match="token counter") as caught:
            memory.recall("cat", 64, action=action)
        one_line(caught.value)


@pytest.mark.parametrize("kind", ["huge", "negative", "in a list", "a float"])
def test_a_huge_value_from_outside_is_one_clear_line(kind: str) -> None:
    value: Any = {"huge": huge(), "negative": -huge(), "in a list": [huge()], "a float": 1e308}[kind]
    with Memory(":memory:") as memory:
        memory.add("the cat sat")
        calls: list[Callable[[], object]] = [
            lambda: memory.recall("cat", value),
            lambda: memory.recall("cat", action=value),
            lambda: memory.recall("cat", exclude=[value]),
            lambda: memory.recall("cat", since=value),
            lambda: memory.search("cat", top_k=value),
            lambda: memory.add("x", timestamp=value),
            lambda: Memory(":memory:", top_k=value),
            lambda: Memory(":memory:", cap=value),
            lambda: Memory(":memory:", retriever=value),
            lambda: Memory(":memory:", router=value),
            lambda: Memory(":memory:", guard=value),
        ]
        if value != 1e308:  # as metadata it is plain JSON
            calls.append(lambda: memory.add("x", metadata={"a": value}))
        for call in calls:
            with pytest.raises((InputError, RouterError)) as caught:
                call()
            one_line(caught.value)
