"""The loop of ask, with recalls and replies from a list: it needs no model and no store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from retcon.errors import AuthError, ModelError, ModelTimeoutError
from retcon.ladder import DEFAULT_ORDER, Answer, Look, climb, finish, first_look, next_look, take_look
from retcon.note import Cluster, Decision, Hit, Note, Recall, Usage

CLUSTER = Cluster("where?", (Hit(Note("a", "a cat"), 1.0, 1),))


def decide(action: str, order: Sequence[str] = ()) -> Decision:
    return Decision(action, {}, 0.0, 0.0, {}, "retain: it fits", "r", 64, certified=True, order=tuple(order))


def recall(*tried: str, cluster: Cluster = CLUSTER) -> Recall:
    action = tried[-1]
    return Recall(action, 2, 64, "where?", action, decide(action), (), (), cluster, tried=tried)


def play(replies: Sequence[str | ModelError], *, cluster: Cluster = CLUSTER, **options: Any) -> Answer:
    """What comes of these replies to `DEFAULT_ORDER`; an empty one abstains. Every look costs ten tokens."""
    said: Iterator[str | ModelError] = iter(replies)

    def read(found: Recall) -> Look:
        reply = next(said)
        if isinstance(reply, ModelError):
            return Look(found, "", True, Usage(1, 10), reply)
        return Look(found, reply, not reply, Usage(1, 10))

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
