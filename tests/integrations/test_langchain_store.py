"""The LangGraph store, operation by operation beside `InMemoryStore`, which is the reference: no suite is published."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from retcon import Memory
from retcon.errors import InputError
from retcon.integrations.langgraph import MemoryStore

ANN, BOB = ("memories", "ann"), ("memories", "bob")
ANN_30 = {"name": "Ann", "age": 30}


@pytest.fixture
def ours() -> Iterator[MemoryStore]:
    with Memory(":memory:") as memory:
        yield MemoryStore(memory)


@pytest.fixture
def both(ours: MemoryStore) -> tuple[MemoryStore, InMemoryStore]:
    return ours, InMemoryStore()


def plain(item: Item | None) -> tuple[Any, ...] | None:
    """An item without its times, which no two stores share."""
    return None if item is None else (item.namespace, item.key, item.value)


def listed(items: list[Item]) -> list[tuple[Any, ...]]:
    """Items in an order of our own: without a query none is promised."""
    return sorted((item.namespace, item.key, json.dumps(item.value, sort_keys=True)) for item in items)


def filled(store: Any) -> Any:
    store.put(("docs",), "root", {"kind": "report", "pages": 3, "text": "on cats"})
    store.put(
        ("docs", "a"), "one", {"kind": "report", "pages": 10, "text": "on dogs", "by": {"name": "Ann", "age": 30}}
    )
    store.put(("docs", "a", "x"), "two", {"kind": "memo", "pages": 7, "tags": ["red", "blue"]})
    store.put(("docs", "b"), "one", {"kind": "memo", "text": "no pages"})
    store.put(("other", "a"), "one", {"kind": "report", "pages": 3})
    return store


# -- random operations -------------------------------------------------------------------------------------------------

labels = st.sampled_from(["a", "b", "docs"])
namespaces = st.lists(labels, min_size=1, max_size=4).map(tuple)
keys = st.sampled_from(["k1", "k2", "", " ", "ключ", "x" * 2000])
values = st.dictionaries(
    st.sampled_from(["n", "text", "by"]),
    st.one_of(st.integers(0, 5), st.sampled_from(["cat", "dog"]), st.lists(st.integers(0, 2)), st.just({"in": 1})),
)
puts = st.tuples(namespaces, keys, st.one_of(st.none(), values)).map(lambda made: PutOp(*made))
gets = st.tuples(namespaces, keys).map(lambda made: GetOp(*made))
filters = st.one_of(
    st.none(),
    st.just({"text": "cat"}),
    st.just({"text": {"$ne": "cat"}}),
    st.just({"by": {"in": 1}}),
    st.builds(lambda n: {"n": n}, st.lists(st.integers(0, 2))),
)
searches = st.tuples(st.lists(labels, max_size=4).map(tuple), filters).map(lambda made: SearchOp(*made, limit=1000))
patterns = st.builds(
    MatchCondition,
    st.sampled_from(["prefix", "suffix"]),
    st.lists(st.one_of(labels, st.just("*")), min_size=1, max_size=3).map(tuple),
)
depths = st.one_of(st.none(), st.integers(1, 3))
lists = st.tuples(st.lists(patterns, max_size=2).map(tuple), depths).map(lambda made: ListNamespacesOp(*made))
batches = st.lists(st.lists(st.one_of(puts, puts, gets, searches), max_size=5), max_size=12)


@given(batches, lists)
def test_any_operations_give_what_the_reference_gives(rounds: list[list[Any]], listing: ListNamespacesOp) -> None:
    reference = InMemoryStore()
    with Memory(":memory:") as memory:
        store = MemoryStore(memory)
        for ops in rounds:
            for op, mine, theirs in zip(ops, store.batch(ops), reference.batch(ops), strict=True):
                if isinstance(op, SearchOp):
                    assert listed(mine) == listed(theirs)
                elif isinstance(op, GetOp):
                    assert plain(mine) == plain(theirs)
                else:
                    assert mine is theirs is None
        # the reference also lists namespaces that were only read from, or emptied: those are put aside
        for empty in [name for name, items in reference._data.items() if not items]:
            del reference._data[empty]
        assert store.batch([listing]) == reference.batch([listing])


# -- what the documentation says, one by one ---------------------------------------------------------------------------


def test_get_gives_the_item_with_its_times_and_none_where_there_is_none(ours: MemoryStore) -> None:
    ours.put(ANN, "cat", {"text": "Pixel"})
    first = ours.get(ANN, "cat")
    assert first is not None
    assert first.created_at == first.updated_at
    assert first.created_at.tzinfo is not None
    ours.put(ANN, "cat", {"text": "Pixie"})
    second = ours.get(ANN, "cat")
    assert second is not None
    assert second.value == {"text": "Pixie"}
    assert second.created_at == first.created_at < second.updated_at
    assert ours.get(ANN, "dog") is None
    assert ours.get(BOB, "cat") is None


def test_delete_takes_the_item_and_is_silent_where_there_is_none(both: tuple[MemoryStore, InMemoryStore]) -> None:
    for store in both:
        store.put(ANN, "cat", {"text": "Pixel"})
        store.delete(ANN, "cat")
        store.delete(ANN, "cat")
        assert store.get(ANN, "cat") is None
        assert store.search(ANN) == []


def test_reads_of_a_batch_see_the_store_before_its_puts_and_the_last_put_of_a_key_wins(
    both: tuple[MemoryStore, InMemoryStore],
) -> None:
    for store in both:
        store.put(ANN, "cat", {"n": 0})
        ops = [PutOp(ANN, "cat", {"n": 1}), GetOp(ANN, "cat"), PutOp(ANN, "cat", {"n": 2}), SearchOp(ANN)]
        _, got, _, found = store.batch(ops)
        assert got.value == {"n": 0}
        assert [item.value for item in found] == [{"n": 0}]
        assert store.get(ANN, "cat").value == {"n": 2}


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "report"},
        {"kind": {"$eq": "report"}},
        {"kind": {"$ne": "report"}},
        {"pages": {"$gt": 3}},
        {"pages": {"$gte": 3}},
        {"pages": {"$lt": 10, "$gte": 7}},
        {"pages": {"$lte": 3}, "kind": "report"},
        {"by": {"name": "Ann"}},
        {"by": {"age": {"$gt": 20}}},
        {"tags": ["red", "blue"]},
        {"tags": ["red"]},
        {"nothing": None},
    ],
    ids=str,
)
def test_filters_pass_what_the_reference_lets_pass(asked: dict[str, Any]) -> None:
    numbers = "pages" in asked or "age" in str(asked)  # the reference raises where a value to compare is missing
    prefix: tuple[str, ...] = ("docs", "a") if numbers else ()
    reference = filled(InMemoryStore())
    if numbers:
        reference.put(("docs", "a", "x"), "two", {"kind": "memo", "pages": 7, "by": {"age": 0}})
    with Memory(":memory:") as memory:
        store = filled(MemoryStore(memory))
        if numbers:
            store.put(("docs", "a", "x"), "two", {"kind": "memo", "pages": 7, "by": {"age": 0}})
        found = store.search(prefix, filter=asked)
        assert listed(found) == listed(reference.search(prefix, filter=asked))
        assert all(item.score is None for item in found)


def test_a_value_that_cannot_be_compared_is_passed_over_where_the_reference_fails(ours: MemoryStore) -> None:
    filled(ours)
    assert {item.key for item in ours.search(("docs",), filter={"pages": {"$gt": 5}})} == {"one", "two"}
    with pytest.raises(TypeError):
        filled(InMemoryStore()).search(("docs",), filter={"pages": {"$gt": 5}})


def test_unknown_operator_is_an_error_as_in_the_reference(both: tuple[MemoryStore, InMemoryStore]) -> None:
    for store in both:
        with pytest.raises(ValueError, match=r"\$like"):
            filled(store).search(("docs",), filter={"kind": {"$like": "rep"}})


def test_pages_of_a_search_hold_every_item_once(ours: MemoryStore) -> None:
    for number in range(23):
        ours.put((*ANN, f"part{number % 3}"), f"k{number}", {"text": f"cat number {number}", "even": number % 2 == 0})
    for options, every in (({}, 23), ({"query": "cat number"}, 23), ({"filter": {"even": True}}, 12)):
        pages = [ours.search(ANN, limit=5, offset=start, **options) for start in range(0, 30, 5)]
        assert len({item.key for page in pages for item in page}) == sum(map(len, pages)) == every


def test_query_ranks_by_words_and_fills_up_with_the_rest_as_the_reference_does(ours: MemoryStore) -> None:
    ours.put(ANN, "rent", {"text": "The rent is 725 a month."})
    ours.put(ANN, "cat", {"text": "The cat is called Pixel."})
    ours.put(ANN, "unsearched", {"text": "The cat is called Secret."}, index=False)
    found = ours.search(ANN, query="What is the cat called?")
    assert found[0].key == "cat"
    assert found[0].score is not None
    assert [item.score for item in found if item.key == "unsearched"] == [None]
    assert len(found) == 3
    assert [item.key for item in ours.search(ANN, query="cat", limit=1)] == ["cat"]


def test_a_filter_reaches_past_the_hits_that_it_does_not_let_pass(ours: MemoryStore) -> None:
    for number in range(60):
        ours.put(ANN, f"k{number}", {"text": "cat " * 3, "wanted": False})
    ours.put(ANN, "last", {"text": "one cat among many other words of this long text", "wanted": True})
    (found,) = ours.search(ANN, query="cat", filter={"wanted": True}, limit=1)
    assert found.key == "last"
    assert found.score is not None


@pytest.mark.parametrize(
    ("index", "found"),
    [(["title"], "title"), (["parts[*].text"], "parts"), (["parts[-1].text"], "last"), (False, None)],
)
def test_index_says_which_fields_are_searched(ours: MemoryStore, index: Any, found: str | None) -> None:
    words = {"title": "zebra", "parts": "yak", "last": "emu"}
    value = {"title": "zebra", "parts": [{"text": "yak"}, {"text": "emu"}], "note": "gnu"}
    ours.put(ANN, "k", value, index=index)
    hit = {name for name, word in words.items() if ours.search(ANN, query=word)[0].score is not None}
    assert hit == ({"parts", "last"} if found == "parts" else {found} if found else set())
    assert ours.search(ANN, query="gnu")[0].score is None
    item = ours.get(ANN, "k")
    assert item is not None
    assert item.value == value


def test_fields_of_the_store_are_searched_unless_the_item_says_otherwise() -> None:
    with Memory(":memory:") as memory:
        store = MemoryStore(memory, fields=["title"])
        store.put(ANN, "k", {"title": "zebra", "body": "yak"})
        store.put(ANN, "own", {"title": "okapi", "body": "emu"}, index=["body"])
        scored = {word: store.search(ANN, query=word, limit=1)[0].score for word in ("zebra", "yak", "okapi", "emu")}
        assert {word for word, score in scored.items() if score is not None} == {"zebra", "emu"}


@pytest.mark.parametrize("asked", [{}, {"prefix": ("docs",)}, {"suffix": ("a",)}, {"prefix": ("docs", "*")},
    {"prefix": ("docs",), "suffix": ("*", "x")}, {"max_depth": 1}, {"prefix": ("docs",), "max_depth": 2},
    {"limit": 2}, {"limit": 2, "offset": 1}, {"offset": 9}])  # fmt: skip
def test_namespaces_are_listed_as_the_reference_lists_them(
    both: tuple[MemoryStore, InMemoryStore], asked: dict[str, Any]
) -> None:
    mine, theirs = (filled(store).list_namespaces(**asked) for store in both)
    assert mine == theirs


def test_a_namespace_without_items_is_not_listed_also_where_only_a_deeper_one_has_some(ours: MemoryStore) -> None:
    ours.put(("a", "b", "c"), "k", {"n": 1})
    ours.put(("a", "b"), "k", {"n": 1})
    ours.delete(("a", "b"), "k")
    ours.get(("never", "put"), "k")
    assert ours.list_namespaces() == [("a", "b", "c")]


@pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("langgraph", "x"), (1,)])
def test_invalid_namespaces_are_refused_with_the_framework_s_error(ours: MemoryStore, namespace: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        ours.put(namespace, "k", {"n": 1})
    if namespace and namespace[0] != "langgraph":
        with pytest.raises(InvalidNamespaceError):
            ours.batch([PutOp(namespace, "k", {"n": 1})])


def test_a_negative_page_is_a_clear_error(ours: MemoryStore) -> None:
    for asked in ({"limit": -1}, {"offset": -1}):
        with pytest.raises(InputError, match="0 or more"):
            ours.search(ANN, **asked)
        with pytest.raises(InputError, match="0 or more"):
            ours.list_namespaces(**asked)


def test_time_to_live_is_refused_as_in_the_reference(both: tuple[MemoryStore, InMemoryStore]) -> None:
    for store in both:
        with pytest.raises(NotImplementedError):
            store.put(ANN, "k", {"n": 1}, ttl=5)


def test_a_value_that_is_no_json_is_a_clear_error_and_leaves_the_item_as_it_was(ours: MemoryStore) -> None:
    ours.put(ANN, "k", {"n": 1})
    with pytest.raises(InputError, match="plain JSON"):
        ours.put(ANN, "k", {"n": object()})
    item = ours.get(ANN, "k")
    assert item is not None
    assert item.value == {"n": 1}


def test_an_unknown_operation_is_refused_as_in_the_reference(both: tuple[MemoryStore, InMemoryStore]) -> None:
    for store in both:
        with pytest.raises((ValueError, TypeError)):
            store.batch(["drop"])


def test_what_is_read_is_a_copy(ours: MemoryStore) -> None:
    ours.put(ANN, "k", {"n": [1]})
    for read in (ours.get(ANN, "k"), *ours.search(ANN)):
        assert read is not None
        read.value["n"].append(2)
    item = ours.get(ANN, "k")
    assert item is not None
    assert item.value == {"n": [1]}


def test_two_equal_texts_in_one_batch_are_two_items(ours: MemoryStore) -> None:
    ours.batch([PutOp(ANN, "k1", {"text": "The same cat."}), PutOp(ANN, "k2", {"text": "The same cat."})])
    assert {item.key for item in ours.search(ANN, query="cat") if item.score is not None} == {"k1", "k2"}


def test_awaited_operations_do_the_same(ours: MemoryStore) -> None:
    async def scene() -> None:
        await asyncio.gather(*(ours.aput(ANN, f"k{n}", {"text": f"cat {n}"}) for n in range(10)))
        item = await ours.aget(ANN, "k3")
        assert item is not None
        assert item.value == {"text": "cat 3"}
        assert len(await ours.asearch(("memories",), query="cat", limit=100)) == 10
        await ours.adelete(ANN, "k3")
        assert await ours.aget(ANN, "k3") is None
        assert await ours.alist_namespaces() == [ANN]

    asyncio.run(scene())


# -- what this store adds ----------------------------------------------------------------------------------------------


def test_every_version_of_an_item_stays_until_it_is_deleted(ours: MemoryStore) -> None:
    for name in ("Pixel", "Pixie", "Bo"):
        ours.put(ANN, "cat", {"text": name})
    assert [item.value["text"] for item in ours.history(ANN, "cat")] == ["Pixel", "Pixie", "Bo"]
    ours.delete(ANN, "cat")
    assert ours.history(ANN, "cat") == []


def test_recall_packs_the_newest_versions_under_a_prefix_into_a_budget(ours: MemoryStore) -> None:
    ours.put(ANN, "cat", {"text": "The cat is called Pixel."})
    ours.put(ANN, "cat", {"text": "The cat is called Pixie."})
    ours.put(BOB, "cat", {"text": "The cat is called Tom."})
    found = ours.recall(ANN, "What is the cat called?", 32, fill=False)
    assert "Pixie" in found.text
    assert "Pixel" not in found.text
    assert "Tom" not in found.text
    assert found.tokens <= 32
    assert {"Pixie", "Tom"} <= set(ours.recall(("memories",), "cat called", 64).text.replace(".", "").split())


def test_writers_of_one_item_in_threads_lose_no_version(ours: MemoryStore) -> None:
    def write(number: int) -> None:
        for turn in range(10):
            ours.put(ANN, "k", {"n": number * 10 + turn})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(item.value["n"] for item in ours.history(ANN, "k")) == list(range(40))
    assert len(ours.search(ANN)) == 1


def test_two_stores_on_one_file_see_each_other_and_a_new_one_finds_all(path: Path) -> None:
    with Memory(path) as one, Memory(path) as two:
        MemoryStore(one).put(ANN, "k", {"n": 1})
        MemoryStore(two).put(ANN, "k", {"n": 2})
        item = MemoryStore(one).get(ANN, "k")
        assert item is not None
        assert item.value == {"n": 2}
    with Memory(path) as again:
        assert [each.value["n"] for each in MemoryStore(again).history(ANN, "k")] == [1, 2]
