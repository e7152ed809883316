"""The cache of replies: every part of an ask is in its key, nothing is asked twice, and deleted notes take it along."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conftest import bytes_of, raw
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import Server

from retcon import Memory
from retcon.cache import CachedChat, Owners, cache_key, owners
from retcon.errors import BusyError, RateLimitError
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, Chat, FakeChat, HttpChat, Reply
from retcon.note import Note
from retcon.store import Kept, ReplyStats

pytestmark = pytest.mark.both_stores

KEY = "sk-canary-5555aaaa7777bbbb"


def ask(text: str, **fields: object) -> Ask:
    return Ask(({"role": "user", "content": text},), **{"max_tokens": 10, **fields})  # type: ignore[arg-type]


def echo() -> FakeChat:
    return FakeChat(lambda asked: "re: " + asked.messages[0]["content"])


def texts(found: list[object]) -> list[str]:
    return [reply.text for reply in found if isinstance(reply, Reply)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "replies.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Callable[..., ReplyCache]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(ReplyCache(file, **options)))


@pytest.fixture
def cache(opened: Callable[..., ReplyCache]) -> ReplyCache:
    return opened()


# -- the key ---------------------------------------------------------------------------------------------------------


def test_everything_that_changes_an_answer_changes_the_key() -> None:
    def key(chat: Chat, asked: Ask, realization: int = 0, prompt_version: str = "1", owned: Owners = ()) -> str:
        return cache_key(chat, asked, realization=realization, prompt_version=prompt_version, owned=owned)

    base = ask("a")
    other_kind = FakeChat()
    other_kind.kind = "http"
    changed: dict[str, object] = {
        "messages": ({"role": "system", "content": "a"},), "max_tokens": 11, "temperature": 0.1, "seed": 0,
        "logprobs": True,
    }  # fmt: skip
    assert set(changed) == {field.name for field in dataclasses.fields(Ask)}, "a new field must be in the key"
    keys = [
        key(FakeChat(), base),
        *(key(FakeChat(), dataclasses.replace(base, **{name: value})) for name, value in changed.items()),  # type: ignore[arg-type]
        key(FakeChat(name="other"), base),
        key(other_kind, base),
        key(FakeChat(), base, realization=1),
        key(FakeChat(), base, prompt_version="2"),
        key(FakeChat(), base, owned=(("", "", ""),)),
        key(FakeChat(), base, owned=(("ann", "", ""),)),
        key(FakeChat(), base, owned=(("", "ann", ""),)),
        key(FakeChat(), base, owned=(("ann", "", ""), ("bob", "", ""))),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == key(FakeChat(), ask("a"))


def test_key_of_a_prompt_without_anybodys_notes_is_as_it_always_was() -> None:
    """Replies of earlier runs are kept under such keys."""
    asked = Ask(({"role": "user", "content": "When did Ann adopt the cat?"},), 10)
    key = cache_key(FakeChat(), asked, realization=0, prompt_version="answer-1")
    assert key == "760a16d0f94e82774222e2149b80a56fe9e502cf88d3eefcf48503bd22833a6b"


def test_owners_are_the_scopes_each_once_in_whatever_order_the_notes_come() -> None:
    scopes = [("ann", "r"), (None, None), ("ann", None), ("ann", "r")]
    notes = [Note(id=str(n), text="t", user_id=user, run_id=run) for n, (user, run) in enumerate(scopes)]
    assert owners(notes) == owners(notes[::-1]) == (("", "", ""), ("ann", "", ""), ("ann", "", "r"))


@given(st.lists(st.text(), min_size=2, max_size=4))
def test_messages_do_not_run_into_each_other(parts: list[str]) -> None:
    apart = Ask(tuple({"role": "user", "content": part} for part in parts), 5)
    joined = ask("".join(parts), max_tokens=5)
    keys = {cache_key(FakeChat(), asked, realization=0, prompt_version="") for asked in (apart, joined)}
    assert len(keys) == 2


# -- the cached model ------------------------------------------------------------------------------------------------


def test_what_is_kept_is_not_asked_again_and_duplicates_are_asked_once(cache: ReplyCache) -> None:
    inner = echo()
    model = CachedChat(inner, cache, "1")
    assert isinstance(model, Chat)
    first = model([ask("a"), ask("b"), ask("a")])
    again = CachedChat(inner, cache, "1")
    assert again([ask("b"), ask("a")]) == first[1::-1]
    assert texts([*first]) == ["re: a", "re: b", "re: a"]
    assert [asked.messages[0]["content"] for asked in inner.asked] == ["a", "b"]
    assert (model.hits, model.misses, again.hits, again.misses) == (0, 2, 2, 0)
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses) == (2, 2, 2)
    assert stats.bytes > 0


def test_realization_and_prompt_version_are_kept_apart(cache: ReplyCache) -> None:
    inner = FakeChat(["0", "1", "v2"])
    for version, realization, text in (("1", 0, "0"), ("1", 1, "1"), ("2", 0, "v2"), ("1", 0, "0")):
        assert texts([*CachedChat(inner, cache, version, realization)([ask("a")])]) == [text]


def test_errors_are_given_back_and_never_kept(cache: ReplyCache) -> None:
    limit = RateLimitError("slow down")
    model = CachedChat(FakeChat([limit, "b", "a"]), cache, "1")
    assert model([ask("a"), ask("b"), ask("a")])[::2] == [limit, limit]
    assert texts([*model([ask("a"), ask("b")])]) == ["a", "b"]


@given(st.builds(Reply, st.text(), st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1e6),
                 st.sampled_from(["stop", "length"]), st.none() | st.floats(-1e6, 0)))  # fmt: skip
def test_a_reply_comes_back_as_it_was(reply: Reply) -> None:
    class One:
        name, kind = "one", "fake"

        def __call__(self, asks: object, /) -> list[object]:
            return [reply]

    cache = ReplyCache(":memory:")
    model = One()
    assert CachedChat(model, cache, "1")([ask("a")]) == [reply]  # type: ignore[arg-type]
    assert CachedChat(FakeChat([], name="one"), cache, "1")([ask("a")]) == [reply]
    cache.close()


def test_a_locked_cache_costs_a_call_and_not_the_answer() -> None:
    class Locked:
        def get_replies(self, keys: object, sources: object = ()) -> dict[str, Kept]:
            raise BusyError("locked")

        def put_replies(self, given: object, sources: object) -> int:
            raise BusyError("locked")

    assert texts([*CachedChat(echo(), Locked(), "1")([ask("a")])]) == ["re: a"]


# -- the file --------------------------------------------------------------------------------------------------------


def kept(key: str, size: int = 100) -> Kept:
    return Kept(key, "m", "x" * size, 1, 1, 0.0, "stop", None)


def test_the_bound_holds_and_the_least_lately_used_leave_first(opened: Callable[..., ReplyCache]) -> None:
    cache = opened(max_bytes=10 * 1200)
    for i in range(9):
        cache.put_replies([kept(f"k{i}", 1000)])
    assert set(cache.get_replies(["k0", "k1"])) == {"k0", "k1"}
    cache.put_replies([kept("new1", 1000), kept("new2", 1000)])
    assert cache.stats().bytes <= 10 * 1200
    found = set(cache.get_replies([*(f"k{i}" for i in range(9)), "new1", "new2"]))
    assert {"k0", "k1", "new1", "new2"} <= found
    assert "k2" not in found
    assert "k8" in found


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=30))
def test_the_bound_and_the_tally_hold_after_any_writes(writes: list[tuple[int, int]]) -> None:
    cache = ReplyCache(":memory:", max_bytes=5000)
    for number, size in writes:
        cache.put_replies([kept(str(number), size)])
        stats = cache.stats()
        held = cache.get_replies([str(i) for i in range(10)])
        assert stats.entries == len(held)
        assert stats.bytes == sum(len(each.text) + 200 for each in held.values()) <= 5000
    cache.close()


def test_a_reply_larger_than_the_bound_is_not_kept(opened: Callable[..., ReplyCache]) -> None:
    cache = opened(max_bytes=1000)
    assert cache.put_replies([kept("small"), kept("large", 5000)]) == 1
    assert set(cache.get_replies(["small", "large"])) == {"small"}


def test_the_first_reply_under_a_key_stays(cache: ReplyCache) -> None:
    assert cache.put_replies([kept("k", 1)]) == 1
    assert cache.put_replies([kept("k", 2)]) == 0
    assert cache.get_replies(["k"])["k"].text == "x"


def test_clear_empties_the_cache_and_its_bytes(cache: ReplyCache, file: Path) -> None:
    CachedChat(FakeChat(["7777777canaryqz"]), cache, "1")([ask("a")])
    assert b"7777777canaryqz" in bytes_of(file)
    assert cache.clear() == 1
    assert cache.stats() == ReplyStats(0, 0, 0, 0)
    assert b"7777777canaryqz" not in bytes_of(file)


def test_the_key_of_the_endpoint_is_not_in_the_cache(cache: ReplyCache, file: Path) -> None:
    with Server() as server:
        inner = HttpChat(server.base, "m", key=KEY)
        model = CachedChat(inner, cache, "1")
        assert texts([*model([ask("a")])]) == ["fine"]
        inner.close()
        assert server.seen[0].headers["authorization"].endswith(KEY)
    assert b"fine" in bytes_of(file)
    assert KEY.encode() not in bytes_of(file)
    assert KEY not in repr(model)


def _fill(path: Path, number: int) -> None:
    cache = ReplyCache(path, max_bytes=100_000)
    for turn in range(30):
        CachedChat(echo(), cache, "1")([ask(f"{(turn * 7 + number) % 40}")])
    cache.close()


def test_several_processes_share_one_file(opened: Callable[..., ReplyCache], file: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_fill, args=(file, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    cache = opened()
    stats = cache.stats()
    assert stats.hits + stats.misses == 90
    assert texts([*CachedChat(FakeChat(), cache, "1")([ask("0"), ask("7")])]) == ["re: 0", "re: 7"]


# -- in the notes' own file ------------------------------------------------------------------------------------------


def reply_canary(number: int) -> str:
    return f"{number:07d}replyqz"


def cached(memory: Memory, number: int, about: list[str]) -> CachedChat:
    model = CachedChat(FakeChat([f"said {reply_canary(number)}"]), memory.store, "1", about=about)
    model([ask(f"prompt {number}")])
    return model


def test_a_deleted_note_takes_every_reply_that_stands_on_it_out_of_the_files(memory: Memory, path: Path) -> None:
    memory.add([{"id": name, "text": f"note {name}"} for name in "abc"], user_id="ann")
    for number, about in ((1, ["a"]), (2, ["a", "b"]), (3, ["c"])):
        cached(memory, number, about)
    assert all(reply_canary(number).encode() in bytes_of(path) for number in (1, 2, 3))
    memory.delete("a")
    assert memory.purge()
    left = bytes_of(path)
    assert [reply_canary(number).encode() in left for number in (1, 2, 3)] == [False, False, True]
    assert memory.store.reply_stats().entries == 1
    memory.delete_all(user_id="ann")
    assert memory.purge()
    assert reply_canary(3).encode() not in bytes_of(path)
    assert memory.store.reply_stats().entries == memory.store.reply_stats().bytes == 0


def test_a_reply_found_again_stands_on_the_new_notes_too(memory: Memory) -> None:
    memory.add([{"id": "a", "text": "same words"}], user_id="ann")
    memory.add([{"id": "b", "text": "same words"}], user_id="bob")
    cached(memory, 1, ["a"])
    assert texts([*CachedChat(FakeChat(), memory.store, "1", about=["b"])([ask("prompt 1")])])
    memory.delete("b")
    assert memory.store.reply_stats().entries == 0


@pytest.mark.parametrize("about", [[], ["gone"], ["a", "gone"]])
def test_nothing_is_kept_that_no_delete_could_reach(memory: Memory, about: list[str]) -> None:
    memory.add([{"id": "a", "text": "note"}])
    assert cached(memory, 1, about).misses == 1
    assert memory.store.reply_stats().entries == 0


def test_a_file_of_the_first_schema_gains_the_cache_and_keeps_its_notes(tmp_path: Path) -> None:
    from retcon.store.migrations import APPLICATION_ID, STEPS, _statements

    path = tmp_path / "old.db"
    connection = raw(path)
    for statement in _statements(STEPS[0].script):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Memory(path) as memory:
        memory.add([{"id": "a", "text": "note"}])
        cached(memory, 1, ["a"])
        assert memory.store.reply_stats().entries == 1
        assert memory.store.stats()["schema"] == len(STEPS)
