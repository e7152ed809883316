"""Drafts: what a text shows of a question, and which of several texts is kept for it."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import Server, held
from test_perform import QUERY, STORY, remembering

from retcon import AsyncMemory, Memory, Recall, Router, deadline
from retcon.confidence import Witnesses
from retcon.drafts import TRAITS, Drafts, traits
from retcon.errors import DeadlineError, InputError, ModelError, RouterError
from retcon.model import Ask, FakeChat
from retcon.note import Cluster, Hit, Note
from retcon.why import explain

NOTES = (
    Note("n1", "I adopted a cat. Her name is Pixel.", "ann", "s1", "2026-05-09T10:00"),
    Note("n2", "The cat likes the garden.", "ann", "s1", "2026-05-10T10:00"),
)
ASKED = Witnesses.of(Cluster("What is the name of the cat?", tuple(Hit(note, 1.0, i) for i, note in enumerate(NOTES))))


def test_traits_are_those_of_a_hand_computation() -> None:
    # three sentences; "name" is in one of them, "cat" in two
    name, cat = (math.log1p(3.5 / (seen + 0.5)) for seen in (1, 2))
    found = traits("Ann adopted a cat. The name is Pixel.", ASKED)
    assert found == pytest.approx({"best": name / (name + cat), "covered": 1.0, "length": math.log1p(8), "hedged": 0.0})


@pytest.mark.parametrize(
    "text",
    [
        "Her grandparents are not mentioned.",
        "The memory doesn't specify when.",
        "The notes do not say where he lives.",
        "It was never explicitly stated.",
        "There is no specific information about the cat.",
        "The date is unknown.",
    ],
)
def test_a_text_that_names_what_it_does_not_know_is_hedged(text: str) -> None:
    assert traits(text, ASKED)["hedged"] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "Her grandparents live in Basel.",
        "I will never give up.",
        "I haven't specifically looked for bottles.",
        "She does not like the garden.",
        "I did not say hello.",
    ],
)
def test_a_plain_denial_is_not_hedged(text: str) -> None:
    assert traits(text, ASKED)["hedged"] == 0.0


@given(st.text(max_size=200))
def test_traits_are_finite_and_no_sentence_covers_more_than_its_text(text: str) -> None:
    found = traits(text, ASKED)
    assert tuple(found) == TRAITS
    assert all(map(math.isfinite, found.values()))
    assert 0.0 <= found["best"] <= found["covered"] <= 1.0


def test_a_text_without_words_shows_nothing() -> None:
    assert set(traits("", ASKED).values()) == {0.0}


# -- which one is kept -------------------------------------------------------------------------------------------------


ACTIONS = ("retain", "extract", "merge", "abstract")
TWO = Drafts(
    actions=("merge", "abstract"), traits=TRAITS, weights=(2.0, 1.0, 0.0, -1.0), levels=(0.0, 0.0), slopes=(0.0, 0.0)
)
MIXED = replace(TWO, actions=("extract", "abstract"))
GOOD, POOR = "Pixel's check-up is on 14 June at 9:30.", "The vet will cost 45 pounds."


def travelling(*drafts: Drafts, **more: Any) -> Router:
    """A router that steps aside for abstract, and carries these drafts."""
    given_: dict[str, Any] = {
        "name": "travelling", "actions": ACTIONS, "features": (), "weights": dict.fromkeys(ACTIONS, ()),
        "intercepts": dict.fromkeys(ACTIONS, 0.5),
        "fixed": dict.fromkeys((32, 64), ("abstract", "merge", "extract", "retain")),
        "drafts": {len(each.actions): each for each in drafts},
    }  # fmt: skip
    return Router(**given_ | more)


def writing(*replies: str | ModelError, drafts: Drafts = TWO, **options: Any) -> Memory:
    return remembering(FakeChat(replies), **{"router": travelling(drafts)} | options)


def scores(found: Recall) -> dict[str, float]:
    return {draft.action: draft.score for draft in found.drafts}


@pytest.mark.parametrize(("replies", "kept"), [((GOOD, POOR), "merge"), ((POOR, GOOD), "abstract")])
def test_the_text_of_the_highest_score_is_kept_and_the_reason_names_all(replies: tuple[str, str], kept: str) -> None:
    with writing(*replies) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    assert (found.action, found.text) == (kept, GOOD)
    assert found.drafts[0].action == kept
    told = ", ".join(f"{draft.action} {draft.score:.3f}" for draft in found.drafts)
    assert found.decision.reason == (
        f"{kept}: the best of 2 drafts by what they show ({told}); the router's own choice is abstract: selected at 32"
        " tokens (the nearest learned); the router steps aside"
    )
    others = {"merge": "a summary of the notes", "abstract": "one text merged from the notes"}
    assert found.why == explain(found)
    assert found.why.endswith(f": kept over {others[kept]}.")
    assert not found.decision.certified
    assert not found.decision.forced


def test_scores_are_those_of_the_traits() -> None:
    chosen = replace(TWO, levels=(0.5, 0.25), slopes=(-1.0, 0.0))
    with writing(POOR, GOOD, drafts=chosen) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    witnesses = Witnesses.of(found.cluster)
    shown = {"merge": traits(POOR, witnesses), "abstract": traits(GOOD, witnesses)}
    worth = {name: 2 * each["best"] + each["covered"] - each["hedged"] for name, each in shown.items()}
    expected = {"merge": worth["merge"] + 0.5 - math.log2(40 / 128), "abstract": worth["abstract"] + 0.25}
    assert scores(found) == pytest.approx(expected)
    assert found.action == max(expected, key=expected.__getitem__)


def test_of_two_texts_that_tie_the_earlier_is_kept() -> None:
    with writing(GOOD, GOOD) as memory:
        assert memory.recall(QUERY, 40, drafts=2).action == "merge"


def test_every_text_that_was_written_is_paid_for_once_and_then_on_file() -> None:
    with writing(POOR, GOOD) as memory:
        first, again = (memory.recall(QUERY, 40, drafts=2) for _ in range(2))
        assert first.usage.model_calls == 2
        assert first.usage.prompt_tokens > 0
        assert again.usage.model_calls == again.usage.tokens == 0
        assert again.record is not None
        assert again.record.reused
        assert (again.text, scores(again)) == (first.text, scores(first))
        alone = memory.recall(QUERY, 40, action="merge")
        assert (alone.text, alone.usage.model_calls) == (POOR, 0)  # the other text was kept too


def test_a_draft_without_a_model_costs_nothing() -> None:
    with writing(POOR, drafts=MIXED) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    assert set(scores(found)) == {"extract", "abstract"}
    assert found.usage.model_calls == 1
    assert (found.action, found.record) == ("extract", None)


def test_without_being_asked_one_text_is_written() -> None:
    with writing(GOOD) as memory:
        found = memory.recall(QUERY, 40)
        assert (found.action, found.drafts, found.usage.model_calls) == ("abstract", (), 1)
        assert memory.recall(QUERY, 40, drafts=1).drafts == ()


# -- what can go wrong -------------------------------------------------------------------------------------------------


def test_a_draft_that_fails_is_left_out_with_a_warning() -> None:
    with writing(ModelError("gone"), POOR) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    assert (found.action, found.text, [*scores(found)]) == ("abstract", POOR, ["abstract"])
    assert found.warnings == ("merge failed, so it is not among the drafts: gone",)
    assert found.decision.reason.startswith("abstract: the only draft there is (abstract ")
    assert found.why == "A summary of the notes: the only text that could be written."
    assert found.tried == ("abstract",)


def test_where_every_draft_fails_an_action_without_a_model_takes_over() -> None:
    with writing(ModelError("gone"), ModelError("away")) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    assert found.text
    assert found.action == "extract"
    assert found.warnings == ("merge failed, so extract took its place: merge: gone; abstract: away",)
    assert found.usage.model_calls == 2
    assert found.drafts == ()


def test_a_strict_guard_drops_a_draft_that_invents() -> None:
    with writing("The check-up of Pixel costs 9999 pounds.", POOR, guard="strict") as memory:
        found = memory.recall(QUERY, 40, drafts=2)
    assert found.text == POOR
    (warning,) = found.warnings
    assert warning == "merge failed, so it is not among the drafts: no source supports the number '9999 pounds'"
    with writing("When is the check-up of Pixel? It costs 9999 pounds.", POOR) as memory:
        kept = memory.recall(QUERY, 40, drafts=2)
    assert kept.action == "merge"
    assert [each for each in kept.warnings if each.startswith("the merge record may be wrong: ")]


@pytest.mark.parametrize(("drafts", "calls"), [(MIXED, 1), (TWO, 1)])
def test_drafts_share_one_time_out_and_what_is_there_is_chosen_from(
    path: Path, server: Server, release: threading.Event, drafts: Drafts, calls: int
) -> None:
    server.always = held(release)
    with Memory(path, model=server.base, model_name="m", router=travelling(drafts)) as memory:
        memory.add([text for text, _ in STORY])
        found = memory.recall(QUERY, 40, drafts=2, timeout=0.5)
    assert (found.action, found.usage.model_calls) == ("extract", calls)  # after one that was late none is asked
    assert found.text
    (warning,) = found.warnings
    paid = [action for action in drafts.actions if action != "extract"]
    assert all(f"{action}{end}" in warning for action, end in zip(paid, (" failed", ": m: no reply"), strict=False))
    assert "within the 0.5 s" in warning
    assert not release.is_set()


def test_when_the_caller_has_gone_no_further_draft_is_written() -> None:
    gone = deadline.Stop()

    def leaves(ask: Ask) -> str:
        gone.set()
        return POOR

    chat = FakeChat(leaves)
    with remembering(chat, router=travelling(TWO)) as memory:
        with pytest.raises(DeadlineError):
            deadline.context(stop=gone).run(memory.recall, QUERY, 40, drafts=2)
        assert len(chat.asked) == 1


# -- escalate, exclude, and what does not go together ------------------------------------------------------------------


def test_the_texts_not_kept_may_still_be_looked_at() -> None:
    with writing(POOR, GOOD) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
        assert found.tried == ("abstract",)
        after = found.escalate()
        assert after is not None
        assert (after.action, after.text, after.usage.model_calls) == ("merge", POOR, 0)
        assert after.tried == ("abstract", "merge")


def test_excluded_actions_are_not_written() -> None:
    with writing(POOR) as memory:
        found = memory.recall(QUERY, 40, drafts=2, exclude=["abstract"])
        assert (found.action, [*scores(found)], found.usage.model_calls) == ("merge", ["merge"], 1)
        assert found.tried == ("abstract", "merge")
        none = memory.recall(QUERY, 40, drafts=2, exclude=["abstract", "merge"])
    assert (none.action, none.drafts) == ("extract", ())
    assert none.warnings == ("none of the drafts merge, abstract can be written, so extract took their place",)


def test_without_a_model_the_drafts_that_need_none_are_left() -> None:
    with remembering(None, router=travelling(MIXED)) as memory:
        found = memory.recall(QUERY, 40, drafts=2)
        assert (found.action, [*scores(found)]) == ("extract", ["extract"])
    with remembering(None, router=travelling(TWO)) as memory:
        assert memory.recall(QUERY, 40, drafts=2).warnings == (
            "none of the drafts merge, abstract can be written, so extract took their place",
        )


def test_no_notes_and_no_budget_are_as_they_are_without_drafts() -> None:
    with writing() as memory:
        assert memory.recall(QUERY, 0, drafts=2).text == ""
        assert memory.recall(QUERY, 40, drafts=2, user_id="nobody").why.startswith("No text: there are no notes")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"drafts": 3}, "router 'travelling' has no drafts of 3 texts; it has drafts of 2 texts"),
        ({"drafts": 0}, "drafts"),
        ({"drafts": 11}, "drafts"),
        ({"drafts": 2, "safe": True}, "leave out safe and action, or drafts"),
        ({"drafts": 2, "action": "merge"}, "leave out safe and action, or drafts"),
    ],
)
def test_drafts_that_make_no_sense_are_one_clear_line(options: dict[str, Any], said: str) -> None:
    with writing() as memory, pytest.raises(InputError, match=said) as caught:
        memory.recall(QUERY, 40, **options)
    assert "\n" not in str(caught.value)


def test_a_router_without_drafts_says_so() -> None:
    with remembering(FakeChat()) as memory, pytest.raises(InputError, match="of 2 texts; it has none"):
        memory.recall(QUERY, 40, drafts=2)


def test_async_memory_takes_drafts_too() -> None:
    async def go() -> Recall:
        async with AsyncMemory(":memory:", model=FakeChat([POOR, GOOD]), router=travelling(TWO)) as memory:
            await memory.add([text for text, _ in STORY])
            return await memory.recall(QUERY, 40, drafts=2)

    found = asyncio.run(go())
    assert found.text == GOOD
    assert [draft["action"] for draft in found.to_dict()["drafts"]] == ["abstract", "merge"]


# -- the router's file -------------------------------------------------------------------------------------------------


def test_drafts_are_saved_with_their_router(tmp_path: Path) -> None:
    router = travelling(TWO, replace(TWO, actions=("retain", "merge", "abstract"), levels=(0,) * 3, slopes=(1,) * 3))
    router.save(tmp_path / "router.json")
    assert Router.load(tmp_path / "router.json") == router


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": ["merge"]}, "needs a level and a slope"),
        ({"actions": ["merge", "merge"]}, "distinct names"),
        ({"actions": ["merge", "shout"]}, "the drafts name shout, which the router does not know"),
        ({"traits": ["best", "charm"]}, "traits must be distinct names out of best, covered, length, hedged"),
        ({"weights": [1.0]}, "1 weights, 4 traits"),
        ({"levels": [1.0, math.inf]}, "finite"),
        ({"slopes": [1.0, "2"]}, "not a number"),
        ({"slope": [1.0]}, "unknown entries: slope"),
        ({"actions": "merge"}, "not a list"),
    ],
)
def test_malformed_drafts_are_one_clear_line(change: dict[str, Any], said: str) -> None:
    plain = travelling(TWO).to_dict()
    plain["drafts"] = {"2": plain["drafts"]["2"] | change}
    with pytest.raises(RouterError, match=said) as caught:
        Router.from_dict(plain)
    assert "\n" not in str(caught.value)


def test_drafts_stand_under_the_number_of_their_texts() -> None:
    plain = travelling(TWO).to_dict()
    for wrong in ("1", "3"):
        with pytest.raises(RouterError, match=f"drafts of {wrong} texts name 2 actions"):
            Router.from_dict(plain | {"drafts": {wrong: plain["drafts"]["2"]}})
