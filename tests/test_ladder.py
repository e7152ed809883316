"""The loop of ask, with recalls and replies from a list: it needs no model and no store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.errors import AuthError, ModelError, ModelTimeoutError, RouterError
from retcon.ladder import DEFAULT_ORDER, Answer, Ladder, Look, climb, finish, first_look, next_look, take_look
from retcon.note import Cluster, Decision, Hit, Note, Recall, Usage

CLUSTER = Cluster("where?", (Hit(Note("a", "a cat"), 1.0, 1),))


def decide(action: str, order: Sequence[str] = ()) -> Decision:
    return Decision(action, {}, 0.0, 0.0, {}, "retain: it fits", "r", 64, certified=True, order=tuple(order))


def recall(*tried: str, cluster: Cluster = CLUSTER) -> Recall:
    action = tried[-1]
    return Recall(action, 2, 64, "where?", action, decide(action), (), (), cluster, tried=tried)


def play(
    replies: Sequence[str | ModelError], *, cluster: Cluster = CLUSTER, sure: Mapping[str, float] = {}, **options: Any
) -> Answer:
    """What comes of these replies to `DEFAULT_ORDER`; an empty one abstains. Every look costs ten tokens.

    `sure`: how likely each reply is right.
    """
    said: Iterator[str | ModelError] = iter(replies)

    def read(found: Recall) -> Look:
        reply = next(said)
        if isinstance(reply, ModelError):
            return Look(found, "", True, Usage(1, 10), reply)
        return Look(found, reply, not reply, Usage(1, 10), confidence=sure.get(reply))

    def find_next(tried: tuple[str, ...]) -> Recall | None:
        left = [action for action in DEFAULT_ORDER if action not in tried]
        return recall(*tried, left[0], cluster=cluster) if left else None

    first = recall(DEFAULT_ORDER[0], cluster=cluster)
    seen = options.pop("seen", None)
    return finish(climb("where?", first, read=read, find_next=find_next, **{"max_looks": 9, **options}), seen)


def test_the_first_answer_ends_the_climb() -> None:
    found = play(["", "", "at home", "never read"])
    assert (found.text, len(found.looks), found.usage.tokens) == ("at home", 3, 30)


def test_where_no_look_answers_every_action_had_its_turn() -> None:
    found = play([""] * 6)
    assert found.text is None
    assert tuple(look.recall.action for look in found.looks) == DEFAULT_ORDER


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        ({"max_looks": 2}, 2),
        ({"max_looks": 2, "safe": True}, 3),
        ({"max_tokens": 20}, 2),
        ({"max_tokens": 21}, 3),
        ({"steps": DEFAULT_ORDER[:4]}, 4),
        ({"cluster": Cluster("where?", ())}, 1),
    ],
)
def test_a_bound_ends_the_climb(options: dict[str, Any], looks: int) -> None:
    assert len(play([""] * 6, **options).looks) == looks


def test_a_reader_that_fails_is_a_warning_and_where_it_always_fails_its_first_error() -> None:
    late = ModelTimeoutError("late")
    found = play([late, "at home"])
    assert found.text == "at home"
    assert found.warnings == (f"the reader failed on what {DEFAULT_ORDER[0]} gave: late",)
    with pytest.raises(ModelTimeoutError, match="late"):
        play([late, ModelError("other")], max_looks=2)


def test_a_refused_key_or_a_failed_safe_look_ends_the_climb() -> None:
    with pytest.raises(AuthError):
        play([AuthError("no"), "never read"])
    with pytest.raises(ModelTimeoutError):
        play([ModelTimeoutError("late"), "never read"], safe=True)


def test_looks_are_seen_as_they_come() -> None:
    seen: list[Look] = []
    found = play(["", "at home"], seen=seen.append)
    assert len(seen) == 2
    assert tuple(seen) == found.looks


def test_the_first_look_is_the_ladders_or_at_whole_notes() -> None:
    free = decide("merge", ("merge", "retain", "extract"))
    assert first_look(decide("merge"), whole=False) == decide("merge")
    assert first_look(free, whole=False) == take_look(free, "merge")
    assert first_look(free, whole=False).reason.startswith("merge: look 1 of the ladder merge > retain > extract; ")
    whole = first_look(free, whole=True)
    assert (whole.action, whole.order, whole.certified) == ("retain", ("retain", "merge", "extract"), False)


def test_an_action_of_ones_own_comes_after_the_default_order() -> None:
    assert next_look(("mine", "merge"), ("extract",)) == "merge"
    assert next_look(("mine", "merge"), ("merge",)) == "mine"


# -- by confidence -----------------------------------------------------------------------------------------------------

SURE = {"home": 0.3, "work": 0.6, "here": 0.6, "there": 0.9}


def test_a_climb_goes_on_until_a_reply_is_sure_enough_and_gives_that_one() -> None:
    found = play(["home", "", "work", "there", "never read"], sure=SURE, stop=0.8, accept=0.5)
    assert (found.text, found.confidence, len(found.looks), found.refused) == ("there", 0.9, 4, False)
    assert [look.confidence for look in found.looks] == [0.3, None, 0.6, 0.9]


def test_at_the_end_of_a_climb_the_surest_reply_is_given_and_of_equals_the_first() -> None:
    found = play(["home", "work", "here", ""], sure=SURE, stop=0.8, accept=0.6, steps=DEFAULT_ORDER[:4])
    assert (found.text, found.confidence, len(found.looks)) == ("work", 0.6, 4)
    assert found.look is found.looks[1]
    assert found.to_dict()["look"] == 2


def test_a_reply_below_the_accept_is_refused_and_still_stands_in_its_look() -> None:
    found = play(["home", "", "work", ""], sure=SURE, stop=0.8, accept=0.7, steps=DEFAULT_ORDER[:4])
    assert (found.text, found.refused, found.confidence, found.look.reply) == (None, True, 0.6, "work")
    assert found.warnings == ()
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["answer"], told["in_memory"], told["refused"], told["confidence"]) == (None, False, True, 0.6)
    assert (told["look"], told["looks"][2]["confidence"]) == (3, 0.6)


def test_where_no_look_answers_nothing_is_refused() -> None:
    found = play([""] * 6, sure=SURE, stop=0.8, accept=0.7)
    assert (found.text, found.refused, found.confidence) == (None, False, None)
    assert found.look is found.looks[-1]
    assert found.to_dict()["look"] is None


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        ({"max_looks": 2}, 2),
        ({"max_tokens": 20}, 2),
        ({"steps": DEFAULT_ORDER[:3]}, 3),
        ({"late": iter([False, False, True]).__next__}, 3),
    ],
)
def test_a_bound_ends_a_climb_by_confidence_with_the_surest_reply_so_far(options: dict[str, Any], looks: int) -> None:
    found = play(["work", "home", "home", "there"], sure=SURE, stop=0.8, accept=0.5, **options)
    assert (found.text, len(found.looks)) == ("work", looks)
    assert bool(found.warnings) == ("late" in options)


def test_an_answer_of_whole_notes_stands_at_any_price_where_it_shall_be_safe() -> None:
    found = play(["home", "there"], sure=SURE, stop=0.8, accept=0.7, safe=True)
    assert (found.text, found.confidence, len(found.looks), found.refused) == ("home", 0.3, 1, False)
    later = play(["", "home", "work"], sure=SURE, stop=0.8, accept=0.7, safe=True, max_looks=2)
    assert (later.text, len(later.looks), later.refused) == (None, 3, True)


@pytest.mark.parametrize("error", [ModelTimeoutError("late"), AuthError("no key")])
def test_a_failure_after_a_reply_is_a_warning_whether_the_reply_is_given_or_refused(error: ModelError) -> None:
    for accept, text in ((0.5, "work"), (0.7, None)):
        found = play(["work", error], sure=SURE, stop=0.8, accept=accept, max_looks=2)
        assert (found.text, found.refused) == (text, text is None)
        assert found.warnings == (f"the reader failed on what {DEFAULT_ORDER[1]} gave: {error}",)


def test_a_reply_of_unknown_confidence_ends_the_climb_and_is_given() -> None:
    found = play(["somewhere"], stop=1.0, accept=1.0)
    assert (found.text, found.confidence, len(found.looks)) == ("somewhere", None, 1)


@given(
    st.lists(st.none() | st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 6),
    st.booleans(),
)
def test_whatever_the_confidences_are_the_rule_holds(
    sure: list[float | None], stop: float, accept: float, most: int, safe: bool
) -> None:
    replies = [f"r{place}" if p is not None else "" for place, p in enumerate(sure)]
    known = {reply: p for reply, p in zip(replies, sure, strict=True) if p is not None}
    found = play(replies, sure=known, stop=stop, accept=accept, max_looks=most, safe=safe)
    seen = [look.confidence for look in found.looks if look.confidence is not None]
    whole = safe and found.looks[0].confidence is not None
    assert all(p < stop for p in seen[:-1])
    assert len(found.looks) <= most + safe
    assert found.confidence == max(seen, default=None)
    assert (found.text is not None) == (bool(seen) and (whole or max(seen) >= accept))
    assert found.refused == (bool(seen) and found.text is None)
    if found.text is not None:
        assert known[found.text] == found.confidence


PRICED = Ladder(
    orders=(("extract", "merge"), ("retain",)), features=("fit",), weights=((0.5,), (1.0,)),
    intercepts={64: (0.0, 0.1)}, stops={32: 0.4, 128: 0.8}, accepts={64: 0.3},
)  # fmt: skip


def test_stops_and_accepts_are_interpolated_in_log_budget_and_the_nearest_holds_beyond() -> None:
    assert [PRICED.stop(budget) for budget in (0, 32, 64, 128, 4096)] == pytest.approx([0.4, 0.4, 0.6, 0.8, 0.8])
    assert [PRICED.accept(budget) for budget in (1, 64, 512)] == [0.3, 0.3, 0.3]
    plain = replace(PRICED, stops={}, accepts={})
    assert (plain.stop(64), plain.accept(64), plain.needs_confidence, PRICED.needs_confidence) == (0, 0, False, True)


def test_a_ladder_with_stops_comes_back_from_json_and_one_without_says_nothing_of_them() -> None:
    assert Ladder.from_dict(json.loads(json.dumps(PRICED.to_dict()))) == PRICED
    plain = replace(PRICED, stops={}, accepts={}).to_dict()
    assert {"stops", "accepts"}.isdisjoint(plain)


@pytest.mark.parametrize("name", ["stops", "accepts"])
@pytest.mark.parametrize("levels", [{64: 1.5}, {64: -0.1}, {64: math.nan}, {0: 0.5}, {True: 0.5}, {1 << 60: 0.5}])
def test_stops_and_accepts_that_cannot_be_are_one_clear_line(name: str, levels: dict[int, float]) -> None:
    with pytest.raises(RouterError, match=f"{name} are confidences from 0 to 1"):
        replace(PRICED, **{name: levels})  # type: ignore[arg-type]
