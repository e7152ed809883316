"""Memory's contract: what add takes, what recall promises, what comes back the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import counted_ids, fixed_clock
from hypothesis import given
from hypothesis import strategies as st

from retcon import Cluster, Memory, Note, Recall
from retcon.errors import ConflictError, InputError, RetconError, StoreError

pytestmark = pytest.mark.both_stores

ROOT = Path(__file__).resolve().parent.parent


def texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes]


# -- add ---------------------------------------------------------------------------------------------------------------


def test_a_text_becomes_one_note_with_all_it_was_given(memory: Memory) -> None:
    (note,) = memory.add(
        "I adopted a cat named Pixel.", user_id="ann", agent_id="bot", run_id="r", session="s1", speaker="Ann",
        timestamp="2026-05-09T10:00", metadata={"source": "chat", "n": [1, None, {"x": 1.5}]},
    )  # fmt: skip
    assert note == Note(
        "n0", "I adopted a cat named Pixel.", "Ann", "s1", "2026-05-09T10:00:00", "ann", "bot", "r",
        {"source": "chat", "n": [1, None, {"x": 1.5}]}, created_at="2026-05-09T12:00:00+00:00",
    )  # fmt: skip
    assert memory.get(note.id) == note


def test_messages_become_notes_that_follow_each_other(memory: Memory) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "What is my cat called?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look"}}]},
        {"role": "tool", "content": "Pixel", "tool_call_id": "c1"},
        {"role": "assistant", "content": [{"type": "text", "text": "Pixel,"}, {"type": "image_url"}, "of course."]},
        {"role": "user", "name": "Ann", "content": "Thanks"},
        {"role": "assistant", "content": ""},
    ]
    notes = memory.add(messages, user_id="ann")
    assert [(note.speaker, note.text) for note in notes] == [
        ("user", "What is my cat called?"),
        ("tool", "Pixel"),
        ("assistant", "Pixel,\nof course."),
        ("Ann", "Thanks"),
    ]
    assert [note.follows for note in notes] == [None, "n0", "n1", "n2"]
    assert memory.add([{"role": "assistant", "content": None, "tool_calls": []}]) == []


def test_what_an_item_says_goes_before_what_the_call_says_and_none_says_nothing(memory: Memory) -> None:
    items: list[dict[str, Any]] = [
        {"text": "a", "user_id": "bob", "id": "x"},
        {"text": "b", "user_id": None, "id": None, "session": None},
    ]
    notes = memory.add(items, user_id="ann", session="s")
    assert [(note.user_id, note.session) for note in notes] == [("bob", "s"), ("ann", "s")]
    assert (notes[0].id, bool(notes[1].id)) == ("x", True)


def test_items_of_one_list_may_belong_to_several_people(memory: Memory) -> None:
    items = [{"text": f"turn {i}", "user_id": "ab"[i % 2]} for i in range(4)]
    assert [note.follows for note in memory.add(items)] == [None, None, "n0", "n1"]


def test_adding_the_same_note_again_changes_nothing(memory: Memory) -> None:
    first = memory.add("a cat", id="x", user_id="ann", metadata={"k": 1})
    assert memory.add("a cat", id="x", user_id="ann", metadata={"k": 1}) == first
    assert len(memory.get_all()) == 1
    others: list[dict[str, Any]] = [{"text": "a dog"}, {"speaker": "bob"}, {"session": "s"}, {"metadata": {}}]
    for other in [*others, {"user_id": "bob"}]:
        with pytest.raises(ConflictError, match="the id 'x' is taken"):
            memory.add({"text": "a cat", "id": "x", "user_id": "ann", "metadata": {"k": 1}} | other)


@pytest.mark.parametrize(
    ("given_time", "stored"),
    [
        ("2026-05-09", "2026-05-09"),
        (date(2026, 5, 9), "2026-05-09"),
        ("2026-05-09 10:00", "2026-05-09T10:00:00"),
        ("2026-05-09T10:00:00Z", "2026-05-09T10:00:00+00:00"),
        (datetime(2026, 5, 9, 10, tzinfo=UTC), "2026-05-09T10:00:00+00:00"),
        (0, "1970-01-01T00:00:00+00:00"),
    ],
)
def test_a_timestamp_may_come_in_any_common_form(memory: Memory, given_time: Any, stored: str) -> None:
    assert memory.add("x", timestamp=given_time)[0].timestamp == stored


# -- supersede ---------------------------------------------------------------------------------------------------------


def test_recall_prefers_the_correction_and_history_keeps_both(memory: Memory) -> None:
    memory.add("The cat is called Pixel.", id="a", user_id="ann", speaker="Ann", session="s", metadata={"k": 1})
    new = memory.supersede("a", "The cat is called Vector.", timestamp="2026-06-01")
    assert (new.supersedes, new.user_id, new.speaker, new.session, new.metadata) == ("a", "ann", "Ann", "s", {"k": 1})
    recall = memory.recall("What is the cat called?", budget=100, user_id="ann")
    assert "Vector" in recall.text
    assert "Pixel" not in recall.text
    assert [hit.id for hit in memory.search("Pixel", user_id="ann")] == [new.id]  # found by the turn before it
    assert texts(memory.get_all(user_id="ann")) == ["The cat is called Vector."]
    assert texts(memory.get_all(user_id="ann", superseded=True)) == [
        "The cat is called Pixel.", "The cat is called Vector.",
    ]  # fmt: skip
    assert texts(memory.history(new.id)) == texts(memory.history("a"))
    assert memory.get("a").superseded_by == new.id
    again = memory.supersede("a", "The cat is called Vector.", timestamp="2026-06-01", new_id=new.id)
    assert again == memory.get(new.id)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_filters_choose_by_session_time_and_metadata_everywhere(memory: Memory) -> None:
    for day in range(1, 10):
        memory.add(
            f"cat number {day}", user_id="ann", session=f"s{day % 2}", timestamp=f"2026-05-0{day}T23:30",
            metadata={"day": day},
        )  # fmt: skip
    memory.add("cat with no date", user_id="ann")

    def found(**only: Any) -> list[set[str]]:
        listed = {note.text for note in memory.get_all(user_id="ann", **only)}
        searched = {hit.text for hit in memory.search("cat", user_id="ann", **only)}
        recalled = {source.text for source in memory.recall("cat", 500, user_id="ann", action="retain", **only).sources}
        return [listed, searched, recalled]

    days = [(3, "2026-05-03"), (5, "2026-05-05")]
    assert found(since=days[0][1], until=days[1][1]) == [{f"cat number {day}" for day in (3, 4, 5)}] * 3
    assert found(until="2026-05-03T10:00") == [{"cat number 1", "cat number 2"}] * 3
    assert found(session="s0") == [{f"cat number {day}" for day in (2, 4, 6, 8)}] * 3
    assert found(metadata={"day": 7}) == [{"cat number 7"}] * 3
    assert found(session="s1", since="2026-05-08") == [{"cat number 9"}] * 3
    assert found(session="nowhere") == [set()] * 3


def test_top_k_and_limit_bound_what_comes_back(memory: Memory) -> None:
    memory.add([f"cat {i}" for i in range(30)], user_id="ann")
    assert [hit.rank for hit in memory.search("cat", user_id="ann", top_k=7)] == list(range(1, 8))
    assert len(memory.search("cat", user_id="ann")) == 20
    assert texts(memory.get_all(user_id="ann", limit=2)) == ["cat 0", "cat 1"]
    assert texts(memory.get_all(user_id="ann", limit=2, after=memory.get_all(user_id="ann")[0].id)) == [
        "cat 1",
        "cat 2",
    ]
    assert memory.search("unheard", user_id="ann") == []
    assert memory.search("cat", user_id="bob") == []


# -- recall ------------------------------------------------------------------------------------------------------------


def filled() -> Memory:
    memory = Memory(":memory:", now=fixed_clock, new_id=counted_ids())
    for i in range(12):
        memory.add(f"On day {i} Ann fed the cat {i} times. Then it rained. She paid {i * 3} euros.", user_id="ann")
    return memory


def test_a_forced_action_is_the_one_that_runs_and_the_reason_says_so() -> None:
    with filled() as memory:
        for action in ("retain", "extract"):
            recall = memory.recall("What did Ann pay on day 3?", budget=60, user_id="ann", action=action)
            assert recall.action == recall.decision.action == action
            assert recall.decision.forced
            assert "asked for by the caller" in recall.decision.reason


def test_escalation_walks_through_every_action_once_and_ends() -> None:
    with filled() as memory:
        recall: Recall | None = memory.recall("What did Ann pay?", budget=60, user_id="ann")
        seen = []
        while recall is not None:
            seen.append(recall.action)
            assert recall.tokens <= 60
            last, recall = recall, recall.escalate()
        assert sorted(seen) == ["extract", "retain"]
        assert set(last.tried) == {"extract", "retain"}
        second = memory.recall("What did Ann pay?", budget=60, user_id="ann", exclude=seen[:1])
        assert second.action == seen[1]


def test_budget_zero_is_empty_and_less_is_an_error() -> None:
    with filled() as memory:
        empty = memory.recall("What did Ann pay?", budget=0, user_id="ann")
        assert (empty.text, empty.tokens, empty.sources) == ("", 0, ())
        with pytest.raises(InputError, match="budget"):
            memory.recall("What did Ann pay?", budget=-1, user_id="ann")


def test_every_candidate_is_either_used_or_dropped_with_a_reason() -> None:
    with filled() as memory:
        for action in ("retain", "extract"):
            recall = memory.recall("What did Ann pay on day 3?", budget=50, user_id="ann", action=action)
            used, dropped = {source.id for source in recall.sources}, {drop.id for drop in recall.dropped}
            assert used | dropped == {f"n{i}" for i in range(12)}
            assert all(
                drop.reason and drop.code in ("budget", "duplicate", "cap", "no_match") for drop in recall.dropped
            )


def test_an_empty_memory_recalls_nothing_and_says_why(memory: Memory) -> None:
    recall = memory.recall("anything", budget=64, user_id="nobody")
    assert (recall.text, recall.tokens, recall.sources, recall.dropped) == ("", 0, (), ())
    assert recall.decision.reason


def test_decide_agrees_with_recall() -> None:
    with filled() as memory:
        for budget in (8, 64, 4000):
            recall = memory.recall("What did Ann pay?", budget=budget, user_id="ann")
            assert memory.decide("What did Ann pay?", budget=budget, user_id="ann") == recall.decision


def half(text: str) -> int:
    return len(text) // 2


def constant(text: str) -> int:
    return 7


def odd(text: str) -> int:
    return len(text) % 11  # falls as text grows


def squared(text: str) -> int:
    return len(text) ** 2


COUNTERS: list[str | Callable[[str], int]] = ["estimate", "alphanumeric", len, half, constant, odd, squared]
notes_of_any_kind = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=200).filter(lambda text: bool(text.strip()))
        | st.sampled_from(
            ["日本語のテキスト。猫がいる。", "😀👩‍👩‍👧 cat", "a\u0301" * 30, "cat\r\n\u2028cat", "\0cat", "ﷺ" * 5]
        ),
        st.sampled_from([None, "Ann", "日", "x" * 50]),
        st.sampled_from([None, "2026-05-09", "1999-12-31T23:59"]),
    ),
    max_size=6,
)


@given(notes_of_any_kind, st.text(max_size=40), st.sampled_from(COUNTERS), st.integers(0, 300), st.data())
def test_recall_never_costs_more_than_the_budget(
    notes: list[tuple[str, str | None, str | None]], query: str, counter: Any, budget: int, data: st.DataObject
) -> None:
    with Memory(":memory:", counter=counter) as memory:
        for text, speaker, timestamp in notes:
            memory.add(text, speaker=speaker, timestamp=timestamp)
        action = data.draw(st.sampled_from([None, "retain", "extract"]))
        recall: Recall | None = memory.recall(query, budget=budget, action=action)
        while recall is not None:
            assert recall.tokens <= budget
            assert recall.tokens == (memory.count(recall.text) if recall.text else 0)
            recall = recall.escalate()


def test_a_counter_that_fails_is_named_in_one_line() -> None:
    def broken(text: str) -> int:
        raise RuntimeError("no\nvocabulary")

    for bad in (broken, lambda text: -1, lambda text: "many", lambda text: None):
        with Memory(":memory:", counter=bad) as memory:  # type: ignore[arg-type]
            memory.add("a cat")
            with pytest.raises(InputError, match="token counter") as caught:
                memory.recall("cat", budget=10)
            assert "\n" not in str(caught.value)


# -- the same again ----------------------------------------------------------------------------------------------------

SAME = """
import json, sys
from retcon import Memory
with Memory(sys.argv[1]) as memory:
    for query in ("What did Ann pay on day 3?", "cat", "rain", "unheard"):
        for budget in (0, 16, 64, 4000):
            recall = memory.recall(query, budget=budget, user_id="ann").to_dict()
            del recall["usage"]
            print(json.dumps(recall))
"""


def recalls(path: Path, seed: str) -> str:
    env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SAME, str(path)], capture_output=True, text=True, env=env, check=True)
    return done.stdout


def test_the_same_notes_give_the_same_recall_in_any_process_however_they_came_in(tmp_path: Path) -> None:
    drafts = [
        {"id": f"n{i}", "text": f"On day {i} Ann fed the cat {i} times. Then it rained. She paid {i * 3} euros.",
         "session": f"s{i % 3}", "user_id": "ann", "timestamp": f"2026-05-{1 + i:02d}"}
        for i in range(25)
    ]  # fmt: skip
    with Memory(tmp_path / "bulk.db", now=fixed_clock) as bulk:
        bulk.add(drafts)
        bulk.export(tmp_path / "out.jsonl")
    with Memory(tmp_path / "single.db", now=fixed_clock) as single:
        for draft in drafts:
            single.add(draft)
    with Memory(tmp_path / "loaded.db") as loaded:
        assert loaded.load(tmp_path / "out.jsonl") == 25
    expected = recalls(tmp_path / "bulk.db", "0")
    assert expected.count("\n") == 16
    assert recalls(tmp_path / "bulk.db", "1") == expected
    assert recalls(tmp_path / "single.db", "2") == expected
    assert recalls(tmp_path / "loaded.db", "3") == expected
    with Memory(tmp_path / "bulk.db") as one, Memory(tmp_path / "loaded.db") as two:
        assert one.recall("day 3", 64, user_id="ann") == two.recall("day 3", 64, user_id="ann")


plain_text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    max_leaves=5,
)
names = st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: bool(text.strip())
)


@given(
    st.lists(
        st.tuples(plain_text.filter(lambda text: bool(text.strip())), names, names, st.dictionaries(plain_text, values))
    )
)
def test_export_and_load_give_the_same_memory(drafts: list[tuple[str, str | None, str | None, dict[str, Any]]]) -> None:
    with Memory(":memory:", now=fixed_clock) as memory, Memory(":memory:") as other:
        for text, session, user_id, metadata in drafts:
            memory.add(text, session=session, user_id=user_id, metadata=metadata)
        notes = memory.get_all()
        if len(notes) > 1:
            memory.supersede(notes[0].id, "a correction\u2028 with\x85 odd\r\n breaks")
            memory.delete(notes[1].id)
        lines = list(memory.lines())
        assert other.load(lines) == len(lines)
        assert other.get_all(superseded=True) == memory.get_all(superseded=True)
        assert list(other.lines()) == lines
        assert other.load(lines) == 0
        query = " ".join(text for text, *_ in drafts)[:200]
        assert other.recall(query, 40) == memory.recall(query, 40)
        assert [(hit.id, hit.score) for hit in other.search(query)] == [
            (hit.id, hit.score) for hit in memory.search(query)
        ]


def test_export_is_whole_or_not_at_all(memory: Memory, tmp_path: Path) -> None:
    memory.add(["one", "two"], user_id="ann")
    memory.add("three", user_id="bob")
    target = tmp_path / "out.jsonl"
    assert memory.export(target, user_id="ann") == 2
    before = target.read_bytes()
    assert [json.loads(line)["text"] for line in before.decode().splitlines()] == ["one", "two"]

    def stop(written: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.export(target, progress=stop)
    assert target.read_bytes() == before
    with pytest.raises(StoreError, match="cannot write"):
        memory.export(tmp_path / "no" / "out.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir() if "jsonl" in file.name) == ["out.jsonl"]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "7", "null", '{"text": 7}', '{"no": "text"}', '{"text": "x", "metadata": {"a": NaN}}', "[" * 5000],
)
def test_a_bad_line_is_named_and_nothing_is_loaded(memory: Memory, tmp_path: Path, line: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "fine"}\n\n' + line + "\n")
    for source in (file, file.read_text().splitlines()):
        with pytest.raises(InputError, match=r"^line 3: ") as caught:
            memory.load(source)
        assert "\n" not in str(caught.value)
    assert memory.get_all() == []


def test_a_file_that_cannot_be_read_is_named(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    for name in ("missing.jsonl", "latin.jsonl", "."):
        with pytest.raises(InputError, match="cannot read"):
            memory.load(tmp_path / name)


def test_progress_is_told_of_every_note(memory: Memory) -> None:
    told: list[int] = []
    assert memory.load([json.dumps({"text": f"n {i}"}) for i in range(5)], progress=told.append) == 5
    assert told == [1, 2, 3, 4, 5]


def test_a_memory_closes_with_its_block_and_opens_again(path: Path) -> None:
    with Memory(path) as memory:
        memory.add("a cat", id="a")
    with pytest.raises(StoreError, match="closed"):
        memory.get("a")
    assert issubclass(StoreError, RetconError)
    with Memory(str(path)) as again:
        assert again.get("a").text == "a cat"
    assert not Path(f"{path}-wal").exists()


@pytest.mark.sqlite
def test_export_refuses_the_store_itself_and_keeps_a_file_named_like_its_part(path: Path, tmp_path: Path) -> None:
    with Memory(path) as memory:
        memory.add("a cat")
        for end in ("", "-wal", "-shm"):
            with pytest.raises(InputError, match="the store itself"):
                memory.export(f"{path}{end}")
        mine = tmp_path / "x.jsonl.part"
        mine.write_text("mine", encoding="utf-8")
        memory.export(tmp_path / "x.jsonl")
        assert mine.read_text(encoding="utf-8") == "mine"
        assert len(memory.get_all()) == 1


def test_a_correction_without_a_time_is_of_now(path: Path) -> None:
    with Memory(path, now=lambda: datetime(2026, 6, 1, tzinfo=UTC)) as memory:
        memory.add("The meeting room code is 1111 now.", timestamp="2026-01-01")
        memory.add("The meeting room code is 2222 now.", id="b", timestamp="2026-02-01")
        assert (memory.supersede("b", "The meeting room code is 3333 now.").timestamp or "").startswith("2026-06-01")
        text = memory.recall("What is the meeting room code?", budget=60, action="extract").text
        assert text.index("1111") < text.index("3333")
        memory.add("no time", id="c")
        assert memory.supersede("c", "still none").timestamp is None


def test_a_known_id_cannot_pass_as_a_correction(memory: Memory) -> None:
    memory.add("I have a cat", id="n1")
    memory.add("I have a dog", id="n2")
    with pytest.raises(ConflictError, match="does not supersede"):
        memory.supersede("n1", "I have a dog", new_id="n2")


def test_a_half_read_listing_in_memory_stands_in_nobodys_way() -> None:
    with Memory(":memory:") as memory:
        memory.add(["a b", "c d"])
        for line in memory.lines():
            memory.add(f"seen {len(line)}")
        assert len(memory.get_all()) == 4


def test_load_takes_a_file_with_a_byte_order_mark(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "a cat"}\n', encoding="utf-8-sig")
    assert memory.load(tmp_path / "b.jsonl") == 1


def test_ties_between_scopes_do_not_depend_on_which_scope_came_first(tmp_path: Path) -> None:
    with Memory(":memory:", now=fixed_clock) as memory, Memory(":memory:") as other:
        for user, name in (("1", "a"), (None, "b"), ("0", "c"), (None, "d")):
            memory.add("the same words", id=name, user_id=user)
        memory.delete("b")
        other.load(memory.lines())
        assert [hit.id for hit in memory.search("words")] == [hit.id for hit in other.search("words")]
        assert memory.recall("words", 40) == other.recall("words", 40)


def test_a_recall_knows_its_cluster_and_does_not_show_it() -> None:
    with Memory(":memory:", cap=20) as memory:
        memory.add([f"The cat number {i} sat on a mat in the house of ann." for i in range(5)])
        found = memory.recall("cat", 16)
        assert found.cluster.retrieved == tuple(memory.search("cat"))
        assert len(found.cluster.hits) < len(found.cluster.retrieved) == 5
        assert {hit.id for hit in found.cluster.over_cap} == {drop.id for drop in found.cluster.dropped}
        assert "cluster" not in found.to_dict()
        assert "Cluster(" not in repr(found)
        assert replace(found, cluster=Cluster("other", ())) == found
        assert all(again.cluster is found.cluster for again in [found.escalate()] if again is not None)
