"""From a decision to text: whatever a model does, recall keeps its promises; records are views of raw notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import bytes_of, counted_ids, fixed_clock
from hypothesis import example, given
from hypothesis import strategies as st
from local_model import needs_local_model

from retcon import Memory, Recall
from retcon.errors import (
    AuthError,
    ContextTooLongError,
    InputError,
    MalformedReplyError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitError,
)
from retcon.model import Ask, Chat, FakeChat, Reply
from retcon.note import Packed
from retcon.operate import ACTIONS, Job, record, register
from retcon.route import Router
from retcon.tokens import counter

pytestmark = pytest.mark.both_stores

WRITERS = ("merge", "abstract", "rewrite", "hybrid")
STORY = (
    ("I adopted a cat named Pixel from the shelter in Leeds. It rained all day and the bus was late.", "2026-05-09"),
    ("Pixel's check-up with Dr Lam is on 12 June. I still need a carrier for the way there.", "2026-05-20"),
    ("The vet moved Pixel's check-up to 14 June at 9:30 and it will cost 45 pounds.", "2026-06-01"),
)
QUERY = "When is Pixel's check-up?"
FAITHFUL = "Pixel's check-up was moved to 14 June at 9:30."
DOUBTFUL = "Pixel's check-up costs 9999 pounds."


def remembering(chat: Chat | None = None, path: Path | str = ":memory:", **options: Any) -> Memory:
    """A memory with the story in it."""
    options = {"router": "evidence-fit"} | options
    memory = Memory(path, model=chat, now=fixed_clock, new_id=counted_ids(), **options)
    for number, (text, day) in enumerate(STORY):
        memory.add(text, id=f"s{number}", speaker="ann", timestamp=day, session="s")
    return memory


def saying(text: str = FAITHFUL, name: str = "fake") -> FakeChat:
    return FakeChat(lambda ask: text, name=name)


def plain(found: Recall) -> dict[str, Any]:
    """The recall without the time it took."""
    return {name: value for name, value in found.to_dict().items() if name != "usage"}


# -- whatever a model does ---------------------------------------------------------------------------------------------

ERRORS = (
    ModelError("refused"),
    AuthError("no key"),
    RateLimitError("slow down", retry_after=3.0),
    ContextTooLongError("too long"),
    MalformedReplyError("not JSON"),
    ModelTimeoutError("late"),
    ModelUnavailableError("gone"),
)
COUNTERS: dict[str, str | Callable[[str], int]] = {
    "estimate": "estimate",
    "alphanumeric": "alphanumeric",
    "characters": len,
    "square": lambda text: len(text) ** 2 // 40,  # the whole costs more than its parts
    "flat": lambda text: 7 + len(text) // 6,  # nothing is free
}


class Odd:
    """A model that keeps to no protocol: it hands back, or raises, what it was given."""

    name = kind = "odd"

    def __init__(self, does: object) -> None:
        self.does, self.calls = does, 0

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        self.calls += 1
        if isinstance(self.does, BaseException) and not isinstance(self.does, ModelError):
            raise self.does
        if callable(self.does):
            return self.does(asks)  # type: ignore[no-any-return]
        return [self.does for _ in asks]  # type: ignore[misc]


def reply(text: object) -> Reply:
    return Reply(text, 10, 5, 0.0, "stop")  # type: ignore[arg-type]


SENTENCES = st.lists(
    st.sampled_from(["Pixel's", "check-up", "is", "14 June", "9999", "Mallory", "not", '"', "\n", "<note>", "é", "猫"]),
    max_size=60,
).map(" ".join)
TEXTS = SENTENCES | st.text(max_size=300) | st.text(st.characters(), max_size=40) | st.just("word " * 5000)
BEHAVIOURS = (
    TEXTS.map(reply)
    | st.sampled_from(ERRORS)
    | st.sampled_from(
        [
            RuntimeError("boom"), KeyError("x"), RecursionError(), UnicodeError("?"), InputError("bad\nuse"),
            ModelTimeoutError("raised"), None, "text", 3, reply(None), reply(b"x"),
            lambda asks: [], lambda asks: None, lambda asks: [reply("x")] * (len(asks) + 1), lambda asks: iter(()),
        ]
    )
)  # fmt: skip


@given(
    does=BEHAVIOURS,
    action=st.sampled_from(WRITERS),
    budget=st.integers(0, 300),
    count=st.sampled_from(sorted(COUNTERS)),
    strict=st.booleans(),
    focus=st.booleans(),
)
@example(does=reply("\ud800"), action="merge", budget=64, count="estimate", strict=False, focus=True)
@example(does=reply("\0" * 50), action="rewrite", budget=64, count="estimate", strict=False, focus=True)
@example(does=reply("word " * 5000), action="hybrid", budget=60, count="square", strict=True, focus=False)
def test_whatever_a_model_returns_recall_keeps_its_promises(
    does: object, action: str, budget: int, count: str, strict: bool, focus: bool
) -> None:
    counting = counter(COUNTERS[count])
    options: dict[str, Any] = {"counter": COUNTERS[count], "guard": "strict" if strict else "warn", "focus": focus}
    with remembering(Odd(does), **options) as memory:
        before = memory.get_all()
        found = memory.recall(QUERY, budget, action=action)
        assert found.tokens == (counting(found.text) if found.text else 0) <= budget
        retained = memory.recall(QUERY, budget, action="retain")
        assert found.text or not retained.text
        assert memory.get_all() == before
        assert (found.action == action) == (not any("failed" in warning for warning in found.warnings))
        if found.action != action:
            assert (found.record, found.fidelity) == (None, None)
            assert (found.text, found.sources) == _by(memory, found.action, budget)
        assert "\n" not in "".join(found.warnings)
        found.text.encode()
        with remembering(Odd(does), **options) as other:
            assert plain(other.recall(QUERY, budget, action=action)) == plain(found)


def _by(memory: Memory, action: str, budget: int) -> tuple[str, object]:
    found = memory.recall(QUERY, budget, action=action)
    return found.text, found.sources


@given(st.text(max_size=200), st.integers(0, 200))
def test_a_model_changes_nothing_where_the_router_retains_or_extracts(text: str, budget: int) -> None:
    with remembering(saying(text)) as memory, remembering() as without:
        found = memory.recall(QUERY, budget)
        assert plain(found) == plain(without.recall(QUERY, budget))
        assert (found.record, found.fidelity) == (None, None)
        assert (found.usage.model_calls, found.usage.tokens) == (0, 0)


def test_a_tie_goes_to_retain_with_a_model_too() -> None:
    actions = ("retain", "extract", *WRITERS)
    even = Router(
        name="even", actions=actions, features=(), weights=dict.fromkeys(actions, ()),
        intercepts=dict.fromkeys(actions, 0.5),
    )  # fmt: skip
    with remembering(saying(), router=even) as memory:
        assert memory.recall(QUERY, 40).action == "retain"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("action", WRITERS)
def test_each_failure_is_in_the_warnings_and_the_best_action_without_a_model_is_reported(
    action: str, error: ModelError
) -> None:
    with remembering(FakeChat(lambda ask: _raised(error))) as memory:
        found = memory.recall(QUERY, 40, action=action)
    assert found.action == "extract"
    assert found.decision.action == action
    assert found.warnings == (f"{action} failed, so extract took its place: {error}",)
    assert found.tried == (action, "extract")
    assert found.usage.model_calls >= 1


def _raised(error: ModelError) -> str:
    raise error


# -- what stands in its place ------------------------------------------------------------------------------------------


def test_the_fallback_is_the_routers_choice_among_actions_without_a_model() -> None:
    failing = FakeChat(lambda ask: "")
    with remembering(failing) as memory:
        assert memory.recall(QUERY, 40, action="merge").action == "extract"  # by the evidence-fit rule
        assert memory.recall(QUERY, 400, action="merge").action == "retain"  # all fits


def test_where_that_text_is_empty_whole_notes_take_its_place() -> None:
    @register("mute", about="says nothing", needs_model=False)
    def _mute(job: Job) -> Packed:
        return Packed("", 0)

    mute = Router(
        name="mute", actions=("retain", "mute", "merge"), features=(),
        weights=dict.fromkeys(("retain", "mute", "merge"), ()), intercepts={"retain": 0.0, "mute": 1.0, "merge": 2.0},
    )  # fmt: skip
    try:
        with remembering(FakeChat(lambda ask: ""), router=mute) as memory:
            found = memory.recall(QUERY, 60)
            assert (found.decision.action, found.action) == ("merge", "retain")
            assert found.text
            silent = memory.recall(QUERY, 60, action="mute")
            assert (silent.action, silent.text) == ("retain", found.text)
            assert silent.warnings == ("mute found nothing to say within 60 tokens, so notes are retained",)
    finally:
        del ACTIONS["mute"]


@pytest.mark.parametrize("needs_model", [True, False])
def test_an_operator_of_ones_own_that_breaks_does_not_break_recall(needs_model: bool) -> None:
    @register("broken", about="divides by zero", needs_model=needs_model)
    def _broken(job: Job) -> Packed:
        return Packed(str(1 // 0), 1)

    always = Router(
        name="always", actions=("retain", "broken"), features=(), weights={"retain": (), "broken": ()},
        intercepts={"retain": 0.0, "broken": 1.0},
    )  # fmt: skip
    try:
        with remembering(saying(), router=always) as memory:
            found = memory.recall(QUERY, 60)
            assert (found.decision.action, found.action) == ("broken", "retain")
            assert "by zero" in found.warnings[0]
            assert memory.recall(QUERY, 60, action="merge").action == "merge"
    finally:
        del ACTIONS["broken"]


def test_a_counter_that_breaks_is_the_callers_error_and_not_hidden() -> None:
    def counting(text: str) -> int:
        if not strict:
            return len(text)
        raise RuntimeError("no tokenizer")

    strict = False
    with remembering(saying(), counter=counting) as memory:
        strict = True
        with pytest.raises(InputError, match="no tokenizer"):
            memory.recall(QUERY, 100, action="merge")


@pytest.mark.parametrize("action", WRITERS)
def test_no_budget_and_no_notes_give_empty_text_without_a_call_or_a_warning(action: str) -> None:
    chat = FakeChat()
    with remembering(chat) as memory, Memory(":memory:", model=chat) as empty:
        for found in (memory.recall(QUERY, 0, action=action), empty.recall(QUERY, 64, action=action)):
            assert (found.text, found.tokens, found.action, found.warnings) == ("", 0, action, ())
    assert chat.asked == []


def test_the_usage_of_a_failed_record_is_reported() -> None:
    with remembering(saying(DOUBTFUL), guard="strict") as memory:
        found = memory.recall(QUERY, 40, action="merge")
        assert found.action == "extract"
        assert found.usage.model_calls == 1
        assert found.usage.prompt_tokens > 100


# -- records are views -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [48, 84])  # at 84 Hybrid holds a whole note, at 48 Rewrite drops one
@pytest.mark.parametrize("action", WRITERS)
def test_the_same_recall_again_asks_nothing_and_gives_the_same(action: str, budget: int) -> None:
    chat = saying()
    with remembering(chat) as memory:
        first = memory.recall(QUERY, budget, action=action)
        asked = len(chat.asked)
        again = memory.recall(QUERY, budget, action=action)
        assert len(chat.asked) == asked > 0
        assert first.record == again.record is not None
        assert first.record is not None
        assert again.record is not None
        assert (first.record.reused, again.record.reused) == (False, True)
        assert plain(again) | {"record": None} == plain(first) | {"record": None}
        assert (again.usage.model_calls, again.usage.tokens) == (0, 0)


def test_a_record_says_what_made_it() -> None:
    with remembering(saying(name="m1")) as memory:
        found = memory.recall(QUERY, 60, action="merge").record
        assert found is not None
        assert (found.action, found.model, found.version, found.focus) == ("merge", "m1", "1", True)
        assert sorted(found.sources) == ["s0", "s1", "s2"]
        assert len(found.id) == len(found.content) == 64
        assert memory.store.get_record(found.id) is not None


def test_anything_that_changes_the_text_asks_again(path: Path) -> None:
    """Budget, query, focus, action, model, a new note in the cluster, a corrected one."""

    def asks(run: Callable[[Memory], object], name: str = "fake", **options: Any) -> int:
        chat = saying(name=name)
        with Memory(path, model=chat, now=fixed_clock, **options) as memory:
            run(memory)
        return len(chat.asked)

    def merge(memory: Memory, query: str = QUERY, budget: int = 60, action: str = "merge") -> Recall:
        return memory.recall(query, budget, action=action)

    remembering(path=path).close()
    assert asks(merge) == 1
    assert asks(merge) == 0
    assert asks(lambda memory: merge(memory, budget=61)) == 1
    assert asks(lambda memory: merge(memory, query="What does the check-up cost?")) == 1
    assert asks(lambda memory: merge(memory, action="abstract")) == 1
    assert asks(merge, name="another") == 1
    assert asks(merge, focus=False) == 1
    assert asks(merge) == 0
    with Memory(path) as memory:
        memory.add("Pixel likes fish.", id="more", timestamp="2026-06-02")
    assert asks(merge) == 1
    assert asks(merge) == 0
    with Memory(path) as memory:
        memory.supersede("s1", "Pixel's check-up with Dr Lam is on 13 June.", new_id="s1b")
    assert asks(merge) == 1
    assert asks(merge) == 0
    with Memory(path) as memory:
        memory.delete("s1b", versions="one")
    assert asks(merge) == 0  # the cluster is the old one again, and so is its record
    with Memory(path, counter="alphanumeric", model=saying()) as memory:
        found = merge(memory).record
        assert found is not None
        assert not found.reused  # the model's reply to the same prompt may be kept, the record is another


@pytest.mark.parametrize("action", ["merge", "abstract", "rewrite"])
def test_without_focus_a_record_serves_every_query_that_finds_the_same_notes(action: str) -> None:
    chat = saying()
    with remembering(chat, focus=False) as memory:
        queries = (QUERY, "Who is in Leeds? The bus, the shelter?", "What does it cost in pounds?")
        orders = {tuple(hit.id for hit in memory.search(query)) for query in queries}
        assert len(orders) > 1, "the queries must rank the notes differently"
        first, *others = (memory.recall(query, 60, action=action) for query in queries)
        assert len(chat.asked) == (3 if action == "rewrite" else 1)
        for other in others:
            assert other.record is not None
            assert other.record.reused
            assert other.record == first.record
            assert (other.text, other.sources) == (first.text, first.sources)
            assert other.query not in str(other.record)


def test_without_focus_a_hybrid_still_shows_the_notes_that_are_best_for_the_query() -> None:
    chat = saying()
    with remembering(chat, focus=False) as memory:
        first = memory.recall("What does the vet cost, and when is the check-up?", 84, action="hybrid")
        other = memory.recall("Which shelter in Leeds, and was the bus late?", 84, action="hybrid")
    assert [found.sources[0].whole for found in (first, other)] == [True, True]
    assert first.sources[0].id != other.sources[0].id
    assert all("Question:" not in ask.messages[1]["content"] for ask in chat.asked)


def test_a_reply_that_is_kept_costs_nothing_the_second_time() -> None:
    """Another budget for Rewrite may send the same prompt for a note: the record is new, the reply is not."""
    chat = saying()
    with remembering(chat, focus=False) as memory:
        memory.recall(QUERY, 15, action="rewrite")
        asked = len(chat.asked)
        found = memory.recall(QUERY, 16, action="rewrite")
        assert len(chat.asked) == asked  # a share of 12 tokens each, both times
        assert (found.usage.model_calls, found.usage.tokens) == (0, 0)


def test_a_record_is_never_a_source(path: Path) -> None:
    canary = "qzcanary"
    chat = saying(f"{canary} {FAITHFUL}")
    with remembering(chat, path=path) as memory:
        for action in (*WRITERS, *WRITERS):
            for budget in (60, 70, 120):
                memory.recall(QUERY, budget, action=action)
        memory.ask(QUERY, 60)
        assert all(canary not in note.text for note in memory.get_all())
        assert memory.search(canary) == []
    writing = [ask for ask in chat.asked if "<memory>" not in ask.messages[1]["content"]]
    assert len(writing) > 8
    assert not any(canary in message["content"] for ask in writing for message in ask.messages)


def test_deleting_one_source_removes_record_and_replies_to_the_last_byte(path: Path) -> None:
    made = b"7777777generatedqz"
    chat = saying(f"Pixel's check-up is {made.decode()}.")
    with remembering(chat, path=path) as memory:
        memory.add("A note that has nothing to do with it.", id="apart", user_id="bob")
        memory.recall("note", 40, user_id="bob", action="merge")
        for action in WRITERS:
            memory.recall(QUERY, 60, action=action)
        memory.ask(QUERY, 60)
        memory.store.purge()
        assert made in bytes_of(path)
        records, replies = memory.stats()["records"], memory.store.reply_stats().entries
        assert isinstance(records, int)
        assert records > 4
        deleted = memory.delete("s1")
        assert (deleted.records, memory.purge(), memory.stats()["records"]) == (records - 1, True, 1)
        assert memory.store.reply_stats().entries < replies
        memory.delete("apart")
        assert (memory.stats()["records"], memory.store.reply_stats().entries) == (0, 0)
        assert memory.purge()
        assert made not in bytes_of(path)


def test_a_record_that_cannot_be_kept_is_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    from retcon.errors import BusyError

    def busy(*_: object, **__: object) -> None:
        raise BusyError("locked")

    chat = saying()
    with remembering(chat) as memory:
        for name in ("put_record", "put_replies", "get_replies"):
            monkeypatch.setattr(memory.store, name, busy)
        for _ in range(2):
            assert memory.recall(QUERY, 60, action="merge").text == FAITHFUL
        assert len(chat.asked) == 2


def test_a_source_deleted_while_the_model_writes_leaves_nothing_behind() -> None:
    with remembering() as memory:

        def meanwhile(ask: Ask) -> str:
            memory.delete("s1")
            return FAITHFUL

        memory.chat = FakeChat(meanwhile)
        object.__setattr__(memory._performer, "chat", memory.chat)
        found = memory.recall(QUERY, 60, action="merge")
        assert found.text == FAITHFUL
        assert (memory.stats()["records"], memory.store.reply_stats().entries) == (0, 0)


def test_hybrid_that_needs_no_model_writes_no_record() -> None:
    chat = FakeChat()
    with remembering(chat) as memory:
        found = memory.recall(QUERY, 500, action="hybrid")
        assert found.text == memory.recall(QUERY, 500, action="retain").text
        assert (found.record, found.fidelity) == (None, None)
        assert memory.stats()["records"] == 0


# -- the guard ---------------------------------------------------------------------------------------------------------


def test_warn_keeps_the_record_and_names_the_claim() -> None:
    with remembering(saying(DOUBTFUL)) as memory:
        for reused in (False, True):
            found = memory.recall(QUERY, 40, action="merge")
            assert (found.text, found.action) == (DOUBTFUL, "merge")
            assert found.record is not None
            assert found.record.reused is reused
            assert found.fidelity is not None
            assert not found.fidelity.ok
            assert len(found.warnings) == 1
            assert "merge record may be wrong" in found.warnings[0]
            assert "9999" in found.warnings[0]


def test_strict_falls_back_and_names_the_claim_without_asking_twice() -> None:
    chat = saying(DOUBTFUL)
    with remembering(chat, guard="strict") as memory:
        for _ in range(2):
            found = memory.recall(QUERY, 40, action="merge")
            assert found.action == "extract"
            assert found.text == memory.recall(QUERY, 40, action="extract").text
            assert "9999" not in found.text
            assert "9999" in found.warnings[0]
            assert (found.record, found.fidelity) == (None, None)
        assert len(chat.asked) == 1
        assert memory.recall(QUERY, 400, action="abstract").action == "retain"


@pytest.mark.parametrize("guard", ["warn", "strict"])
def test_a_faithful_record_passes_both_guards(guard: Any) -> None:
    with remembering(saying(), guard=guard) as memory:
        found = memory.recall(QUERY, 40, action="merge")
        assert (found.action, found.text, found.warnings) == ("merge", FAITHFUL, ())
        assert found.fidelity is not None
        assert found.fidelity.ok
        assert found.fidelity.supported >= 2


def test_fidelity_is_of_generated_text_only_and_missing_is_seen_for_the_query_at_hand() -> None:
    with remembering(saying("Pixel is a cat."), focus=False) as memory:
        assert memory.recall(QUERY, 40).fidelity is None
        assert memory.recall(QUERY, 400, action="retain").fidelity is None
        first, second = (
            memory.recall(query, 60, action="merge").fidelity for query in (QUERY, "Which shelter is it from?")
        )
        assert first is not None
        assert second is not None
        assert any("14 June" in claim.text for claim in first.missing)
        assert [claim.text for claim in second.missing] != [claim.text for claim in first.missing]


def test_an_unknown_guard_is_refused() -> None:
    with pytest.raises(InputError, match="warn"):
        Memory(":memory:", guard="loose")  # type: ignore[arg-type]


def test_the_guard_watches_operators_of_ones_own() -> None:
    @register("guess", about="invents")
    def _guess(job: Job) -> Packed:
        return record(job, "Guess{aim}.")

    try:
        with remembering(saying(DOUBTFUL), guard="strict") as memory:
            found = memory.recall(QUERY, 40, action="guess")
            assert (found.action, found.decision.action) == ("extract", "guess")
            assert "9999" in found.warnings[0]
    finally:
        del ACTIONS["guess"]


# -- stable rendering --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["retain", "extract", *WRITERS])
def test_the_same_pack_renders_to_the_same_bytes_in_two_stores(action: str, tmp_path: Path) -> None:
    found = []
    for name in ("a.db", "b.db"):
        chat = saying()
        with remembering(chat, path=tmp_path / name) as memory:
            found.append((plain(memory.recall(QUERY, 60, action=action)), chat.asked))
    assert found[0] == found[1]


# -- a real model ------------------------------------------------------------------------------------------------------

SHORT = (
    ("I adopted a cat named Pixel in Leeds. It rained all day and the bus home was an hour late.", "2026-05-09"),
    ("Pixel's check-up with the vet is on 12 June. I still have to buy a carrier and some fish.", "2026-05-20"),
    ("The vet moved the check-up to 14 June at 9:30. It will cost 45 pounds, more than last year.", "2026-06-01"),
)


@pytest.fixture(params=["local", "served"])
def real(request: pytest.FixtureRequest) -> Iterator[Memory]:
    with Memory(":memory:", model=request.getfixturevalue(request.param), now=fixed_clock) as memory:
        for number, (text, day) in enumerate(SHORT):
            memory.add(text, id=f"s{number}", timestamp=day)
        yield memory


@needs_local_model
@pytest.mark.parametrize(("real", "budget"), [("local", 32), ("served", 64)], indirect=["real"])
@pytest.mark.parametrize("action", WRITERS)
def test_every_operator_writes_with_a_real_model_over_both_adapters(real: Memory, action: str, budget: int) -> None:
    found = real.recall(QUERY, budget, action=action)
    assert found.tokens == real.count(found.text) <= budget
    assert found.text
    assert found.action == action, found.warnings
    assert found.record is not None
    assert found.fidelity is not None
    assert found.usage.model_calls == (3 if action == "rewrite" else 1)
    assert found.usage.prompt_tokens > 100
    assert found.usage.completion_tokens > 0
    again = real.recall(QUERY, budget, action=action)
    assert (again.text, again.usage.model_calls) == (found.text, 0)
    assert len(real.get_all()) == 3


@needs_local_model
def test_recall_and_ask_run_with_a_real_model_over_both_adapters(real: Memory) -> None:
    found = real.recall(QUERY, 32)
    assert found.tokens <= 32
    assert found.usage.model_calls == ACTIONS[found.decision.action].needs_model
    answer = real.ask(QUERY, 32, max_looks=2)
    assert 1 <= len(answer.looks) <= 2
    assert all(0 < look.recall.tokens <= 32 for look in answer.looks)
    assert answer.usage.model_calls >= 1
    assert answer.text is None or answer.text == answer.looks[-1].reply != ""
    assert re.search(r"\d", answer.looks[0].recall.text)


def test_a_record_cut_within_its_first_sentence_says_so_each_time_it_is_shown() -> None:
    reply = "Pixel has a check-up with the vet at the end of the long street behind the old station of the town"
    with remembering(saying(reply)) as memory:
        for _ in range(2):  # the second one is the kept record
            found = memory.recall(QUERY, 16, action="merge")
            assert found.text.endswith(" ...")
            assert "the merge record was cut to fit 16 tokens" in found.warnings
        whole = memory.recall(QUERY, 200, action="merge")
    assert not any("cut to fit" in warning for warning in whole.warnings)
