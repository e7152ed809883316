"""One plain sentence of why: true for every action and way a recall can end, and without a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory, Router, sample
from retcon.errors import ModelError
from retcon.model.fake import FakeChat
from retcon.note import Cluster, Decision, Dropped, Hit, Note, Recall, Source
from retcon.operate import ACTIONS
from retcon.why import WHAT, explain

HIT = Hit(Note("a", "I adopted a cat."), 1.0, 1)
QUESTION = "How much is the rent of the flat?"


def decided(action: str = "retain", **given: Any) -> Decision:
    """A decision whose numbers led to its action."""
    utilities = {"retain": 0.5, "extract": 0.4, "merge": 0.3}
    if action != "retain":
        utilities[action] = 0.9
    plain: dict[str, Any] = {
        "action": action, "utilities": utilities, "advantage": 0.4 if action != "retain" else -0.1, "threshold": 0.0,
        "features": {"fit": 0.5, "notes": 3.0}, "reason": "", "router": "r", "budget": 64,
    }  # fmt: skip
    return Decision(**(plain | given))


def recalled(action: str = "retain", **given: Any) -> Recall:
    """A recall that left a note out for the budget."""
    decision = given.pop("decision", None) or decided(action)
    plain: dict[str, Any] = {
        "text": "I adopted a cat.", "tokens": 5, "budget": decision.budget, "query": "cat?", "action": action,
        "decision": decision, "sources": (Source("a", "I adopted a cat.", whole=True),),
        "dropped": (Dropped("b", "budget", "too long"),), "cluster": Cluster("cat?", (HIT,)), "tried": (action,),
    }  # fmt: skip
    return Recall(**(plain | given))


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as opened:
        opened.add([row["text"] for row in sample.notes()])
        yield opened


# -- by hand: one sentence a case --------------------------------------------------------------------------------------


def test_whole_notes_are_kept_where_shortening_would_not_clearly_help() -> None:
    only = decided(utilities={"retain": 0.5, "extract": 0.4})
    assert explain(recalled(decision=only)) == "Whole notes: shortening would not clearly help here."
    assert explain(recalled()) == "Whole notes: shortening or rewriting would not clearly help here."


def test_a_lead_under_the_threshold_is_no_clear_help() -> None:
    close = decided(utilities={"retain": 0.24, "extract": 0.34}, advantage=0.1, threshold=0.2)
    assert explain(recalled(decision=close)) == "Whole notes: shortening would not clearly help here."


@pytest.mark.parametrize("action", [name for name in WHAT if name != "retain"])
def test_every_action_that_replaces_says_what_it_is_and_that_it_should_help(action: str) -> None:
    told = explain(recalled(action))
    what = WHAT[action][0].upper() + WHAT[action][1:]
    assert told == f"{what}: not all notes fit, and this should answer better than whole notes."
    roomy = decided(action, features={"fit": 1.0})
    assert explain(recalled(action, decision=roomy)) == f"{what}: this should answer better than whole notes."
    tight = decided(action, features={"fit": 0.0}, advantage=-0.1)
    assert explain(recalled(action, decision=tight)) == f"{what}: no note fits whole."


def test_all_notes_that_fit_are_said_to_fit_whatever_the_action_is_called() -> None:
    repeats = (Dropped("b", "duplicate", "says the same as a"),)
    for action in ("retain", "extract", "hybrid"):
        assert explain(recalled(action, dropped=())) == "Whole notes: everything that was found fits."
        assert explain(recalled(action, dropped=repeats)) == "Whole notes: everything that was found fits."
    part = (Source("a", "a cat", whole=False),)
    assert explain(recalled("extract", dropped=(), sources=part)).startswith("The sentences that matter: ")


def test_an_action_that_was_asked_for_is_said_to_be() -> None:
    forced = decided("merge", forced=True)
    assert explain(recalled("merge", decision=forced)) == "One text merged from the notes, as asked for."


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("merge", "extract", "The model could not be used, so this is the sentences that matter."),
        ("extract", "retain", "Shortening left nothing to show, so this is whole notes."),
        ("shout", "retain", "Shout gave nothing to show, so this is whole notes."),
    ],
)
def test_a_fall_back_says_what_failed_and_what_this_is(first: str, then: str, told: str) -> None:
    assert explain(recalled(then, decision=decided(first), tried=(first, then))) == told


def test_a_next_look_names_what_was_tried() -> None:
    assert explain(recalled(tried=("extract", "retain"))) == (
        "Whole notes: the next way to look, after the sentences that matter."
    )
    third = recalled(tried=("merge", "extract", "retain"))
    assert explain(third).endswith("after one text merged from the notes and the sentences that matter.")


def test_nothing_to_say_is_said() -> None:
    assert explain(recalled(text="", decision=decided(budget=0))) == "No text: the budget is zero."
    assert explain(recalled(text="", cluster=Cluster("cat?", ()))) == "No text: there are no notes here to recall."
    assert explain(recalled(text="")) == "No text: nothing that was found fits the budget."


def test_what_the_scores_did_not_lead_to_is_not_called_better() -> None:
    ladder = decided("merge", utilities={"retain": 0.9, "extract": 0.4, "merge": 0.1}, advantage=-0.5)
    first = replace(ladder, order=("merge", "retain"))
    assert explain(recalled("merge", decision=first)).endswith(": the first of several ways to look.")
    assert explain(recalled("merge", decision=ladder)).endswith(": the usual choice at this budget.")
    safe = decided(advantage=0.4, utilities={"retain": 0.5, "merge": 0.9}, order=("retain", "merge"))
    assert explain(recalled(decision=safe)) == "Whole notes: the first of several ways to look."
    alone = decided(utilities={"retain": 0.5})
    assert explain(recalled(decision=alone)) == "Whole notes: there is no other way to choose."
    rest = decided("merge", utilities={"merge": 0.5, "extract": 0.4})
    assert explain(recalled("merge", decision=rest)).endswith(": this should answer best of what is left.")


# -- of real recalls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 1, 16, 64, 256, 100_000])
def test_recall_and_its_json_carry_the_sentence(memory: Memory, budget: int) -> None:
    found = memory.recall(QUESTION, budget)
    assert found.why == explain(found) == found.to_dict()["why"]
    assert "\n" not in found.why
    assert found.why.endswith(".")


def test_an_empty_memory_and_a_budget_of_nothing_say_so() -> None:
    with Memory(":memory:") as empty:
        assert empty.recall("anything").why == "No text: there are no notes here to recall."
        empty.add("My cat is called Pixel.")
        assert empty.recall("cat?", 0).why == "No text: the budget is zero."
        assert empty.recall("cat?", 256).why == "Whole notes: everything that was found fits."
        assert empty.recall("the capital of France?", fill=False).why == "Nothing in memory is about this."
        assert empty.recall("cat?", fill=False, user_id="bob").why == "No text: there are no notes here to recall."


def test_a_second_look_and_a_forced_action_say_so(memory: Memory) -> None:
    first = memory.recall(QUESTION, 32)
    second = first.escalate()
    assert second is not None
    assert "the next way to look, after" in second.why
    assert memory.recall(QUESTION, 32, action="retain").why == "Whole notes, as asked for."


def test_a_model_that_fails_is_said_to_have_failed() -> None:
    eager = Router.load(
        {
            "format": 1, "name": "eager", "kind": "learned", "actions": ["retain", "merge"], "features": ["fit"],
            "weights": {"retain": [0.0], "merge": [0.0]}, "intercepts": {"retain": 0.1, "merge": 0.9},
        }
    )  # fmt: skip

    def fails(_: object) -> str:
        raise ModelError("gone")

    with Memory(":memory:", router=eager, model=FakeChat(fails)) as memory:
        memory.add([row["text"] for row in sample.notes()])
        assert memory.recall(QUESTION, 32).why.startswith("The model could not be used, so this is ")
    invents = FakeChat(["The rent is 999 euros."] * 9)
    with Memory(":memory:", router=eager, model=invents, guard="strict") as memory:
        memory.add([row["text"] for row in sample.notes()])
        for _ in range(2):  # the second time what it wrote is on file
            assert memory.recall(QUESTION, 32).why.startswith("What the model wrote could not be used, so this is ")
    with Memory(":memory:", router=eager, model=FakeChat(lambda _: "The rent is paid monthly.")) as memory:
        memory.add([row["text"] for row in sample.notes()])
        assert memory.recall(QUESTION, 32).why == (
            "One text merged from the notes: not all notes fit, and this should answer better than whole notes."
        )


@given(
    action=st.sampled_from([*ACTIONS]),
    tried=st.lists(st.sampled_from([*ACTIONS]), unique=True),
    forced=st.booleans(),
    budget=st.integers(0, 5000),
    text=st.sampled_from(["", "I adopted a cat."]),
    fit=st.floats(0, 1),
    advantage=st.floats(-1, 1),
)
def test_the_sentence_is_one_line_without_a_number_whatever_happened(
    action: str, tried: list[str], forced: bool, budget: int, text: str, fit: float, advantage: float
) -> None:
    decision = decided("extract", forced=forced, budget=budget, features={"fit": fit}, advantage=advantage)
    told = explain(recalled(action, decision=decision, text=text, tried=(*tried, action)))
    assert told[0].isupper()
    assert told.endswith(".")
    assert not any(sign.isdigit() or sign == "\n" for sign in told)
    assert len(told) < 260
