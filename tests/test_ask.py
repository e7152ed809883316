"""The ladder: recall, read, and while the reader finds no answer, the next best recall."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from conftest import counted_ids, fixed_clock
from hypothesis import given
from hypothesis import strategies as st

from retcon import Look, Memory, Recall, Usage
from retcon.errors import AuthError, InputError, ModelError, ModelTimeoutError, RateLimitError
from retcon.ladder import DEFAULT_ORDER
from retcon.model import Ask, FakeChat, Reply
from retcon.note import Packed, Scope
from retcon.operate import ACTIONS
from retcon.route import Router, load_shipped
from retcon.store import Snapshot

STORY = (
    ("I adopted a cat named Pixel from the shelter in Leeds. It rained all day and the bus was late.", "2026-05-09"),
    ("Pixel's check-up with Dr Lam is on 12 June. I still need a carrier for the way there.", "2026-05-20"),
    ("The vet moved Pixel's check-up to 14 June at 9:30 and it will cost 45 pounds.", "2026-06-01"),
)
QUERY = "When is Pixel's check-up?"
NO = "NOT IN MEMORY"


def reads(ask: Ask) -> bool:
    """Whether this ask goes to the reader, not to a writer."""
    return "<memory>" in ask.messages[1]["content"]


def wrote(ask: Ask) -> str:
    """Words that tell operators apart."""
    content = ask.messages[1]["content"]
    return f"Pixel has a check-up{'!' * content.count('<note>')} {content.rpartition('. At most')[0].split()[-1]}"


class Both(FakeChat):
    """A model that reads by a rule, and writes the same words always or something else for every operator."""

    def __init__(self, read: Callable[[Ask], str] = lambda ask: NO, written: str | None = None) -> None:
        super().__init__(lambda ask: read(ask) if reads(ask) else wrote(ask) if written is None else written)

    @property
    def readings(self) -> list[Ask]:
        return [ask for ask in self.asked if reads(ask)]


def remembering(chat: Any, **options: Any) -> Memory:
    options = {"router": "evidence-fit"} | options  # no ladder of its own: every action has its turn
    memory = Memory(":memory:", model=chat, now=fixed_clock, new_id=counted_ids(), **options)
    for number, (text, day) in enumerate(STORY):
        memory.add(text, id=f"s{number}", speaker="ann", timestamp=day)
    return memory


def actions(found: Any) -> list[str]:
    return [look.recall.action for look in found.looks]


def plain(found: Recall | None) -> dict[str, Any]:
    assert found is not None
    return {name: value for name, value in found.to_dict().items() if name != "usage"}


# -- ask ---------------------------------------------------------------------------------------------------------------


def test_ask_stops_at_the_first_answer() -> None:
    with remembering(Both(lambda ask: " 14 June at 9:30\n")) as memory:
        found = memory.ask(QUERY, 40)
    assert (found.text, actions(found), found.warnings) == ("14 June at 9:30", ["extract"], ())
    assert not found.looks[0].abstained
    assert found.question == QUERY


@pytest.mark.parametrize(
    ("budget", "climb"),
    [
        (40, ["extract", "merge", "abstract", "retain", "hybrid", "rewrite"]),
        (400, ["retain", "extract", "merge", "abstract", "hybrid", "rewrite"]),  # all fits: the router retains first
    ],
)
def test_ask_climbs_the_ladder_after_the_routers_choice_and_repeats_no_action(budget: int, climb: list[str]) -> None:
    for looks in range(1, 7):
        with remembering(Both()) as memory:
            found = memory.ask(QUERY, budget, max_looks=looks)
        assert actions(found) == climb[:looks]
        assert found.text is None
        assert all(look.abstained for look in found.looks)
    with remembering(Both()) as memory:
        assert actions(memory.ask(QUERY, budget)) == climb[:4]
        assert actions(memory.ask(QUERY, budget, max_looks=100)) == climb


def test_a_router_that_knows_every_action_sets_the_order() -> None:
    names = ("retain", "rewrite", "merge", "extract", "hybrid", "abstract")
    known = Router(
        name="all", actions=names, features=(), weights=dict.fromkeys(names, ()),
        intercepts={name: 1 - place / 10 for place, name in enumerate(("merge", "rewrite", "extract", *names))
                    if name in names},
    )  # fmt: skip
    order = sorted(names, key=lambda name: -known.intercepts[name])
    with remembering(Both(), router=known) as memory:
        found = memory.ask(QUERY, 40, max_looks=100)
    assert actions(found) == order


def test_the_answer_of_a_later_look_is_found() -> None:
    replies = iter([NO, "I don't know.", "14 June"])
    with remembering(Both(lambda ask: next(replies))) as memory:
        found = memory.ask(QUERY, 40)
    assert found.text == "14 June"
    assert actions(found) == ["extract", "merge", "abstract"]
    assert [look.abstained for look in found.looks] == [True, True, False]
    assert [look.reply for look in found.looks] == [NO, "I don't know.", "14 June"]


def test_every_look_and_its_cost_are_there_and_add_up() -> None:
    chat = Both()
    with remembering(chat) as memory:
        found = memory.ask(QUERY, 40, max_looks=6)
    total = Usage()
    for look in found.looks:
        total += look.usage
    assert found.usage == total
    assert found.usage.model_calls == len(chat.asked)
    calls = [look.usage.model_calls for look in found.looks]
    assert calls == [1, 2, 2, 1, 1, 4]  # without room for a note, Hybrid writes what Abstract wrote
    assert found.usage.prompt_tokens == sum(
        chat._count(message["content"]) for ask in chat.asked for message in ask.messages
    )


def test_a_text_that_was_read_before_is_not_read_again() -> None:
    """Merge and Abstract write the same words here, so that there is nothing new to read in the second."""
    chat = Both(written="Pixel has a check-up.")
    with remembering(chat) as memory:
        found = memory.ask(QUERY, 40, max_looks=6)
    texts = [look.recall.text for look in found.looks]
    assert len(set(texts)) < len(texts)
    assert len(chat.readings) == len(set(texts))


def test_asking_again_costs_nothing() -> None:
    chat = Both()
    with remembering(chat) as memory:
        first = memory.ask(QUERY, 40)
        asked = len(chat.asked)
        again = memory.ask(QUERY, 40)
        assert len(chat.asked) == asked
    assert (again.text, actions(again)) == (first.text, actions(first))
    assert (again.usage.model_calls, again.usage.tokens) == (0, 0)


def test_a_limit_on_spend_ends_the_climb() -> None:
    with remembering(Both()) as memory:
        costs = [look.usage.tokens for look in memory.ask(QUERY, 40, max_looks=3).looks]
    assert all(costs)
    for limit, looks in ((1, 1), (costs[0], 1), (costs[0] + 1, 2), (sum(costs[:2]), 2), (sum(costs[:2]) + 1, 3)):
        with remembering(Both()) as memory:
            found = memory.ask(QUERY, 40, max_tokens=limit, max_looks=3)
        assert len(found.looks) == looks
        assert found.text is None


@pytest.mark.parametrize("options", [{"max_looks": 0}, {"max_looks": 101}, {"max_tokens": 0}, {"max_tokens": -1}])
def test_limits_that_allow_nothing_are_refused(options: dict[str, int]) -> None:
    with remembering(Both()) as memory, pytest.raises(InputError, match="whole number"):
        memory.ask(QUERY, 40, **options)  # type: ignore[arg-type]


def test_every_look_is_shown_as_it_happens() -> None:
    seen: list[Look] = []
    known: list[int] = []
    chat = Both(lambda ask: known.append(len(seen)) or NO)  # type: ignore[func-returns-value]
    with remembering(chat) as memory:
        found = memory.ask(QUERY, 40, seen=seen.append)
    assert tuple(seen) == found.looks
    assert known == [0, 1, 2, 3]  # looks already shown when the reader was asked


def test_without_a_reader_ask_is_refused_and_budget_zero_asks_nothing() -> None:
    with Memory(":memory:") as memory, pytest.raises(InputError, match="needs a reader"):
        memory.ask(QUERY)
    chat = Both()
    with remembering(chat) as memory, Memory(":memory:", model=chat) as empty:
        nothing = memory.ask(QUERY, 0)
        assert (nothing.text, {look.recall.text for look in nothing.looks}) == (None, {""})
        assert (empty.ask(QUERY, 40).text, len(empty.ask(QUERY, 40).looks)) == (None, 1)
    assert chat.asked == []


def test_ask_looks_only_at_the_scope_it_is_given() -> None:
    chat = Both(lambda ask: "Rex" if "Rex" in ask.messages[1]["content"] else NO)
    with remembering(chat) as memory:
        memory.add("My dog is called Rex.", user_id="bob")
        assert memory.ask("What is the dog called?", 40, user_id="bob").text == "Rex"
        assert memory.ask("What is the dog called?", 40, session="none").text is None


# -- a reader that fails -----------------------------------------------------------------------------------------------


def failing(*replies: str | ModelError) -> Both:
    queue = iter(replies)

    def read(ask: Ask) -> str:
        found = next(queue)
        if isinstance(found, ModelError):
            raise found
        return found

    return Both(read)


def test_a_reader_that_fails_at_every_look_raises_its_first_error() -> None:
    first = RateLimitError("slow down", retry_after=2.0)
    seen: list[Look] = []
    chat = failing(first, ModelError("odd"), ModelTimeoutError("late"), ModelError("no"))
    with remembering(chat) as memory, pytest.raises(RateLimitError) as caught:
        memory.ask(QUERY, 40, seen=seen.append)
    assert caught.value is first
    assert [type(look.error).__name__ for look in seen] == [
        "RateLimitError", "ModelError", "ModelTimeoutError", "ModelError",
    ]  # fmt: skip


def test_a_refused_key_ends_the_looks_at_once() -> None:
    seen: list[Look] = []
    with remembering(failing(AuthError("no key"), "14 June")) as memory, pytest.raises(AuthError, match="no key"):
        memory.ask(QUERY, 40, seen=seen.append)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ((ModelTimeoutError("late"), "14 June"), "14 June"),
        ((ModelTimeoutError("late"), NO, ModelTimeoutError("late"), NO), None),
        ((NO, ModelTimeoutError("late"), ModelTimeoutError("late"), ModelTimeoutError("late")), None),
    ],
)
def test_a_look_that_fails_is_a_warning_where_another_was_read(
    replies: Sequence[str | ModelError], text: str | None
) -> None:
    with remembering(failing(*replies)) as memory:
        found = memory.ask(QUERY, 40)
    assert found.text == text
    assert found.warnings
    assert all(warning.startswith("the reader failed on what") for warning in found.warnings)
    assert all("late" in warning for warning in found.warnings)
    failed = [look for look in found.looks if look.error is not None]
    assert len(failed) == len(found.warnings)
    assert all(look.abstained and not look.reply and look.usage.model_calls for look in failed)
    assert json.loads(json.dumps(found.to_dict()))["looks"][found.looks.index(failed[0])]["error"] == "late"


class Loose:
    """A model that breaks the protocol when it reads."""

    name = kind = "loose"

    def __init__(self, does: Callable[[], Any]) -> None:
        self.does = does

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return self.does()  # type: ignore[no-any-return]


@pytest.mark.parametrize("does", [list, lambda: [None], lambda: [Reply(None, 1, 1, 0.0, "stop")], lambda: 1 / 0])  # type: ignore[arg-type]
def test_a_reader_that_breaks_the_protocol_is_a_typed_error(does: Callable[[], Any]) -> None:
    with remembering(Loose(does)) as memory, pytest.raises(ModelError):
        memory.ask(QUERY, 40)


@given(st.lists(st.text(max_size=30) | st.just(NO), min_size=40, max_size=40), st.integers(0, 120))
def test_whatever_the_reader_says_every_look_keeps_its_budget(replies: list[str], budget: int) -> None:
    queue = iter(replies)
    with remembering(FakeChat(lambda ask: next(queue))) as memory:
        found = memory.ask(QUERY, budget, max_looks=6)
    assert all(look.recall.tokens <= budget for look in found.looks)
    assert len(set(actions(found))) <= len(found.looks) <= 6
    assert (found.text is None) == found.looks[-1].abstained
    assert all(look.abstained for look in found.looks[:-1])


# -- escalate ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Memory, Both, list[Scope]]]:
    chat, scopes = Both(), []
    with remembering(chat) as memory:
        inner = memory.store.snapshot

        def snapshot(scope: Scope) -> AbstractContextManager[Snapshot]:
            scopes.append(scope)
            return inner(scope)

        monkeypatch.setattr(memory.store, "snapshot", snapshot)
        yield memory, chat, scopes


def test_escalate_repeats_neither_retrieval_nor_generation(counted: tuple[Memory, Both, list[Scope]]) -> None:
    memory, chat, scopes = counted
    looks: list[Recall] = []
    found: Recall | None = memory.recall(QUERY, 40)
    while found is not None:
        looks.append(found)
        found = found.escalate()
    assert [look.action for look in looks] == ["extract", "merge", "abstract", "retain", "hybrid", "rewrite"]
    assert len(scopes) == 1
    written = len(chat.asked)
    assert written == 1 + 1 + 1 + 3
    again = looks[0].escalate()
    assert plain(again) | {"record": 0} == plain(looks[1]) | {"record": 0}
    assert (len(chat.asked), len(scopes)) == (written, 1)
    assert all(look.tokens <= 40 for look in looks)


def test_ask_retrieves_once(counted: tuple[Memory, Both, list[Scope]]) -> None:
    memory, _, scopes = counted
    assert len(memory.ask(QUERY, 40, max_looks=6).looks) == 6
    assert len(scopes) == 1


def test_a_caller_with_only_json_gets_the_same_by_excluding_what_was_tried() -> None:
    with remembering(Both()) as memory:
        held: Recall | None = memory.recall(QUERY, 40)
        sent = json.loads(json.dumps(memory.recall(QUERY, 40).to_dict()))
        assert "again" not in sent
        while held is not None and (held := held.escalate()) is not None:
            found = memory.recall(QUERY, 40, exclude=sent["tried"])
            assert plain(found) | {"record": 0} == plain(held) | {"record": 0}
            sent = json.loads(json.dumps(found.to_dict()))
        with pytest.raises(InputError, match="no action is left"):
            memory.recall(QUERY, 40, exclude=sent["tried"])


def test_without_a_model_the_ladder_has_two_looks() -> None:
    with remembering(None) as memory:
        first = memory.recall(QUERY, 40)
        second = first.escalate()
        assert second is not None
        assert (first.action, second.action, second.escalate()) == ("extract", "retain", None)
        assert second.tried == ("extract", "retain")


def test_a_recall_made_by_hand_ends_its_ladder() -> None:
    from dataclasses import replace

    with remembering(None) as memory:
        assert replace(memory.recall(QUERY, 40), again=None).escalate() is None


def test_a_look_that_fails_takes_what_was_not_tried_and_escalate_gives_no_text_twice() -> None:
    chat = FakeChat(lambda ask: "")
    with remembering(chat) as memory:
        first = memory.recall(QUERY, 40)
        second = first.escalate()
        assert second is not None
        assert (first.action, second.decision.action, second.action) == ("extract", "merge", "retain")
        assert second.tried == ("extract", "merge", "retain")
        assert second.escalate() is None  # every other writer fails too, and nothing new can take its place
        assert len(chat.asked) == 1 + 1 + 1 + 3


def test_ask_reports_looks_that_fell_back_and_reads_no_text_twice() -> None:
    chat = Both(written="")
    with remembering(chat) as memory:
        found = memory.ask(QUERY, 40, max_looks=6)
    assert [look.recall.decision.action for look in found.looks] == [
        "extract",
        "merge",
        "abstract",
        "hybrid",
        "rewrite",
    ]
    assert len(chat.readings) == 2  # extract's text and retain's
    assert len(found.warnings) == 4
    assert found.usage.model_calls == len(chat.asked)


def test_an_operator_of_ones_own_is_on_the_ladder() -> None:
    from retcon.operate import Job, record, register

    @register("timeline", about="one dated line per event")
    def _timeline(job: Job) -> Packed:
        return record(job, "One line per event{aim}.")

    try:
        with remembering(Both()) as memory:
            assert actions(memory.ask(QUERY, 40, max_looks=100)) == [*DEFAULT_ORDER, "timeline"]
        with remembering(Both(), router=None) as memory:  # a ladder that was learned without it
            order = memory.decide(QUERY, 40).order
            assert "timeline" not in order
            assert actions(memory.ask(QUERY, 40, max_looks=100)) == [*order, "timeline"]
    finally:
        del ACTIONS["timeline"]


def test_the_default_climbs_the_ladder_it_ships_with_and_stops_at_its_end() -> None:
    with remembering(Both(), router=None) as memory:
        decision = memory.decide(QUERY, 40)
        assert decision.router == "domains"
        assert 1 < len(decision.order) < len(DEFAULT_ORDER)
        assert actions(memory.ask(QUERY, 40, max_looks=100)) == list(decision.order)
        whole = memory.decide(QUERY, 4000)
        assert (whole.action, whole.order[0]) == ("retain", "retain")


def test_the_default_serves_any_model_without_a_word_and_certifies_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with remembering(Both(), router=None) as memory:
        found = memory.decide(QUERY, 64, safe=True)
        assert (found.warnings, found.certified) == ((), False)
        assert memory.ask(QUERY, 64).warnings == ()
    with remembering(Both(), router="longmemeval") as memory:  # asked for by name, it says what it was learned with
        assert [warning for warning in memory.decide(QUERY, 64).warnings if "model" in warning]
    with Memory(":memory:") as memory:  # who will read this is not known
        memory.add("The rent is 725 euros.")
        assert not memory.decide("What is the rent?", 64).certified
    reader = Both()
    reader.name = str(load_shipped("longmemeval").provenance["reader"])
    with remembering(reader, router="longmemeval") as memory:  # another renderer: quietly, nothing is certified
        found = memory.decide(QUERY, 64, safe=True)
        assert (found.certified, found.warnings) == (False, ())
    monkeypatch.setattr("retcon.pack.RENDERER", load_shipped("longmemeval").provenance["renderer"])
    with remembering(reader, router="longmemeval") as memory:
        assert memory.decide(QUERY, 64, safe=True).certified
        assert not memory.decide(QUERY, 64).certified  # no threshold counts
        assert not memory.decide(QUERY, 65, safe=True).certified  # no budget that was certified
    with remembering(reader, router="locomo") as memory:  # calibrated on 200 questions of two conversations
        assert not memory.decide(QUERY, 64, safe=True).certified
