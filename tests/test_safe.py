"""Safe recalls by thresholds, and ladders that lose no answer of whole notes: by a look at them first, or certified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_ask import NO, QUERY, Both, actions, remembering

from retcon import Memory
from retcon.errors import InputError, ModelTimeoutError, RouterError
from retcon.features import FEATURES, TYPES
from retcon.lab.calibrate import upper_bound
from retcon.lab.fit_ladder import decisions as decide_all
from retcon.lab.fit_ladder import serving_plan, walk, whole_first
from retcon.lab.learn import calibrate_router
from retcon.lab.outcomes import Panel, from_rows, panel
from retcon.ladder import Ladder
from retcon.model import FakeChat
from retcon.route import Router, load_shipped

NAMES = ("retain", "extract", "merge")
BUDGETS = (32, 64)


def climbing(*order: str, **options: Any) -> Router:
    """A router whose ladder has this one order."""
    steps = Ladder(orders=(order,), features=(), weights=((),), intercepts=dict.fromkeys(BUDGETS, (0.0,)))
    given: dict[str, Any] = {
        "name": "climbing", "actions": NAMES, "features": (), "weights": dict.fromkeys(NAMES, ()),
        "intercepts": dict.fromkeys(NAMES, 0.0), "budgets": BUDGETS, "ladder": steps,
    }  # fmt: skip
    return Router(**given | options)


Said = st.sampled_from(("right", "wrong", "none"))
Cells = st.lists(st.tuples(Said, Said, Said, Said, Said, Said), min_size=1, max_size=8)


def outcomes(cells: Sequence[tuple[str, ...]], fit: float = 0.5) -> Panel:
    """A panel of these replies: three actions at two budgets, question by question."""
    return panel(from_rows(table(cells, fit)))


def table(cells: Sequence[tuple[str, ...]], fit: float = 0.5) -> list[dict[str, Any]]:
    """Its rows."""
    about = {"fit": fit, "notes": 3, **{f"p_{name}": 0.25 for name in TYPES}}
    return [
        about | {
            "question_id": f"q{q:02}", "conversation": f"c{q}", "budget": budget, "action": action,
            "judge_llm": said == "right", "abstained": said == "none",
        }
        for q, cell in enumerate(cells)
        for (budget, action), said in zip([(b, a) for b in BUDGETS for a in NAMES], cell, strict=True)
    ]  # fmt: skip


# -- on outcomes -------------------------------------------------------------------------------------------------------


@given(Cells, st.permutations(NAMES), st.integers(1, 3))
def test_whole_notes_first_never_harms(cells: list[tuple[str, ...]], order: list[str], looks: int) -> None:
    made = outcomes(cells)
    plan = serving_plan(climbing(*order[:looks]), made)
    went = walk(made, whole_first(plan))
    assert np.all(went.utility >= made.utility[:, :, made.actions.index("retain")])


@given(Cells, st.permutations(NAMES), st.integers(1, 3))
def test_whole_notes_first_loses_nothing_but_what_whole_notes_get_wrong(
    cells: list[tuple[str, ...]], order: list[str], looks: int
) -> None:
    made = outcomes(cells)
    plan = serving_plan(climbing(*order[:looks]), made)
    assert made.abstained is not None
    silent = made.abstained[:, :, made.actions.index("retain"), 0] > 0
    own, first = walk(made, plan).utility, walk(made, whole_first(plan)).utility
    if "retain" not in order[:looks]:
        assert np.array_equal(own[silent], first[silent])  # after silence it is the ladder's own order


def test_retention_moves_to_the_front_and_the_rest_keep_their_order() -> None:
    plan = np.array([[[2, 0, 1], [1, 2, -1], [0, 2, -1], [1, -1, -1]]])
    assert whole_first(plan).tolist() == [[[0, 2, 1, -1], [0, 1, 2, -1], [0, 2, -1, -1], [0, 1, -1, -1]]]


def test_where_all_fits_a_router_by_fit_begins_with_whole_notes_itself() -> None:
    router = climbing("merge", "extract", fit_rules=True)
    plan = serving_plan(router, outcomes([("none",) * 6], fit=1.0))
    assert [[NAMES[a] for a in order if a >= 0] for order in plan[0]] == [["retain", "merge", "extract"]] * 2
    part = outcomes([("none",) * 6], fit=0.5).with_features(("budget", "fit"))  # says nothing of how many notes
    assert [[NAMES[a] for a in order if a >= 0] for order in serving_plan(router, part)[0]] == [
        ["merge", "extract"]
    ] * 2


# -- the certificate ---------------------------------------------------------------------------------------------------


def calibrated(harmed: int, n: int = 60, **options: Any) -> Router:
    """Calibrated where merge, the only look, loses so many of n questions at 64 tokens, and none at 32."""
    cells = [("wrong", "wrong", "right", "right", "right", "wrong" if q < harmed else "right") for q in range(n)]
    found, _ = calibrate_router(climbing("merge"), outcomes(cells), rule="certified", **options)
    return found


def test_a_certificate_counts_what_the_ladder_harmed() -> None:
    found = calibrated(4, joint="each", delta=0.1)
    assert found.certificate is not None
    assert found.certificate["ladder"]["budgets"] == {
        "32": {"harms": 0, "questions": 60, "bound": upper_bound(0, 60, 0.1), "delta": 0.1},
        "64": {"harms": 4, "questions": 60, "bound": upper_bound(4, 60, 0.1), "delta": 0.1},
    }
    split = calibrated(4, joint="split", delta=0.1).certificate
    assert split is not None
    assert split["ladder"]["budgets"]["64"]["bound"] == upper_bound(4, 60, 0.05)  # two budgets share delta


def test_a_ladder_is_bounded_only_where_the_certificate_says_so() -> None:
    found = calibrated(4, joint="each", delta=0.1, alpha=0.05)
    assert [found.bounds_ladder(budget) for budget in (32, 64, 48)] == [True, False, False]
    assert calibrated(4, joint="each", alpha=0.2).bounds_ladder(64)
    assert Router.from_dict(found.to_dict()).bounds_ladder(32)
    assert found.certificate is not None
    alike = replace(found, certificate={**found.certificate, "conversations": 59})
    assert not alike.bounds_ladder(32)  # two questions of one conversation are not two
    old = {name: value for name, value in found.certificate.items() if name != "ladder"}
    assert not replace(found, certificate=old).bounds_ladder(32)
    assert not replace(found, certificate=None).bounds_ladder(32)


@pytest.mark.parametrize("change", [{"ladder": None}, {"ladder": climbing("extract").ladder}, {"fit_rules": True}])
def test_a_bound_is_about_one_ladder_and_no_other(change: dict[str, Any]) -> None:
    found = calibrated(0, joint="each")
    assert found.bounds_ladder(32)
    assert not replace(found, **change).bounds_ladder(32)


def test_a_bound_is_about_the_orders_that_are_served_after_calibration() -> None:
    steps = Ladder(
        orders=(("retain",), ("merge",)), features=("budget",), weights=((0.0,), (1.0,)),
        intercepts={32: (0.5, 0.0), 64: (0.5, 0.0)},
    )  # fmt: skip
    learned = climbing("merge", ladder=steps)  # at 32 and 64 tokens the order of retain is worth more, at 512 merge's
    cells = [("right", "right", "wrong", "right", "right", "wrong")] * 60
    rows = [row | {"budget": {32: 32, 64: 512}[row["budget"]]} for row in table(cells)]
    found, _ = calibrate_router(learned, panel(from_rows(rows)), rule="certified", joint="each")
    assert found.decide([1.0] * len(FEATURES), budget=512).order == ("merge",)
    assert found.certificate is not None
    assert found.certificate["ladder"]["budgets"]["512"]["harms"] == 60
    assert not found.bounds_ladder(512)


def test_outcomes_on_which_no_ladder_can_be_walked_are_certified_without_it() -> None:
    cells = [("wrong", "wrong", "right") * 2] * 60
    rows = [row | {"realization": int(row["question_id"][1:]) % 2 * (row["action"] == "merge")} for row in table(cells)]
    found, _ = calibrate_router(climbing("merge"), panel(from_rows(rows)), rule="certified")
    assert found.certificate is not None
    assert "ladder" not in found.certificate


@pytest.mark.parametrize(
    "said", [[], {}, {"budgets": {"32": 1}}, {"budgets": {"32": {"bound": 2.0}}}, {"budgets": {"32": {"bound": True}}}]
)
def test_a_certificate_that_is_malformed_about_the_ladder_is_refused(said: Any) -> None:
    found = calibrated(4)
    with pytest.raises(RouterError, match="says of the ladder"):
        replace(found, certificate={**(found.certificate or {}), "ladder": said})


def test_the_shipped_ladders_are_bounded_where_their_harm_was_rare() -> None:
    longmemeval, locomo = load_shipped("longmemeval"), load_shipped("locomo")
    assert [longmemeval.bounds_ladder(budget) for budget in (32, 64, 128, 256)] == [True, True, False, False]
    assert not any(locomo.bounds_ladder(budget) for budget in (32, 64, 128, 256))  # two conversations


# -- one text ----------------------------------------------------------------------------------------------------------


def weighing(**options: Any) -> Router:
    """A router that likes merge a little better than whole notes, and asks for more than that."""
    likes = {"retain": 0.5, "extract": 0.25, "merge": 0.625}
    mine: dict[str, Any] = {"intercepts": likes, "ladder": None, "thresholds": {32: 0.25, 64: 0.125}}
    return climbing("merge", **mine | options)


def test_a_recall_looks_at_thresholds_only_if_it_is_to_be_safe() -> None:
    with remembering(Both(), router=weighing()) as memory:
        plain, safe = memory.recall(QUERY, 32), memory.recall(QUERY, 32, safe=True)
        assert (plain.action, plain.decision.threshold, plain.decision.safe) == ("merge", 0.0, False)
        assert (safe.action, safe.decision.threshold, safe.decision.safe) == ("retain", 0.25, True)
        assert memory.recall(QUERY, 64, safe=True).action == "merge"
        assert [memory.decide(QUERY, 32, safe=each).action for each in (False, True)] == ["merge", "retain"]
        assert safe.decision.to_dict()["threshold"] == 0.25
    with remembering(Both(), router=weighing(thresholds={32: np.inf})) as memory:
        never = memory.decide(QUERY, 32, safe=True)
        assert (never.action, never.to_dict()["threshold"]) == ("retain", None)


def test_after_a_safe_recall_the_next_one_is_safe_too() -> None:
    with remembering(Both(), router=weighing()) as memory:
        second = memory.recall(QUERY, 32, safe=True).escalate()
        assert second is not None
        assert (second.action, second.decision.safe) == ("extract", True)
        forced = memory.recall(QUERY, 32, action="merge", safe=True)
        assert (forced.action, forced.decision.safe, forced.decision.certified) == ("merge", True, False)
        assert "the router's own choice is retain" in forced.decision.reason


def test_a_safe_recall_whose_writer_fails_falls_back_by_the_thresholds() -> None:
    likes = {"retain": 0.5, "extract": 0.625, "merge": 1.0}
    fallen = []
    for tau in (0.125, 0.25):
        fails = FakeChat([ModelTimeoutError("late")])
        with remembering(fails, router=weighing(intercepts=likes, thresholds={32: tau})) as memory:
            fallen.append(memory.recall(QUERY, 32, safe=True).action)
    assert fallen == ["extract", "retain"]


@pytest.mark.parametrize("router", ["evidence-fit", climbing("merge")])
def test_safe_needs_a_router_with_thresholds(router: Any) -> None:
    with remembering(Both(), router=router) as memory:
        for call in (memory.recall, memory.decide):
            with pytest.raises(InputError, match=r"safe needs thresholds, and router .* has none") as caught:
                call(QUERY, 32, safe=True)
            assert "\n" not in str(caught.value)


def test_a_decision_is_certified_only_if_it_is_safe() -> None:
    found = calibrated(0, joint="each")
    same = [1.0] * len(FEATURES)
    assert found.decide(same, budget=32, safe=True).certified
    assert not found.decide(same, budget=32).certified


@given(Cells, st.permutations(NAMES), st.sampled_from([None, 0.0, 0.25]))
def test_what_is_calibrated_is_what_a_safe_recall_does(
    cells: list[tuple[str, ...]], ranked: list[str], margin: float | None
) -> None:
    made = outcomes(cells)
    likes = {"retain": 0.5, "extract": 0.75, "merge": 0.625}
    router = climbing("merge", intercepts=likes, ladder=None, fixed={32: tuple(ranked)}, margin=margin)
    found, taus = calibrate_router(router, made)
    for place, budget in enumerate(made.budgets):
        decisions = [d for cell, d in decide_all(found, made, safe=True) if cell[1] == place]
        assert sum(d.action != "retain" for d in decisions) == taus[budget].accepted
        picked = [made.utility[q, place, made.actions.index(d.action)] for q, d in enumerate(decisions)]
        assert np.mean(picked) == pytest.approx(taus[budget].accuracy)


# -- when it serves ----------------------------------------------------------------------------------------------------


def test_a_safe_ask_looks_at_whole_notes_before_the_ladder() -> None:
    with remembering(Both(), router=climbing("merge", "extract")) as memory:
        found = memory.ask(QUERY, 40, safe=True)
        assert actions(found) == ["retain", "merge", "extract"]
        assert found.looks[0].recall.decision.order == ("retain", "merge", "extract")
        assert found.looks[0].recall.decision.reason.startswith("retain: whole notes first")
        assert actions(memory.ask(QUERY, 40)) == ["merge", "extract"]


@pytest.mark.parametrize("order", [("merge", "extract"), ("merge", "retain"), ("retain", "merge")])
def test_max_looks_bounds_the_looks_after_that_at_whole_notes(order: tuple[str, ...]) -> None:
    rest = [action for action in order if action != "retain"]
    with remembering(Both(), router=climbing(*order)) as memory:
        for most in (1, 2, 3):
            assert actions(memory.ask(QUERY, 40, safe=True, max_looks=most)) == ["retain", *rest[:most]]


def test_max_looks_bounds_them_without_a_ladder_too() -> None:
    with remembering(Both()) as memory:
        assert [len(memory.ask(QUERY, 40, safe=True, max_looks=most).looks) for most in (1, 2, 4)] == [2, 3, 5]


def test_where_the_reader_fails_at_whole_notes_no_other_look_may_answer_for_them() -> None:
    replies: Iterator[str | None] = iter([None, "14 June"])

    def read(ask: Any) -> str:
        if (reply := next(replies)) is None:
            raise ModelTimeoutError("the reader took too long")
        return reply

    with remembering(Both(read), router=climbing("extract")) as memory:
        with pytest.raises(ModelTimeoutError):
            memory.ask(QUERY, 60, safe=True)
        assert memory.ask(QUERY, 60, safe=True).text == "14 June"  # nothing was lost by it


def test_an_answer_of_whole_notes_stands() -> None:
    reader = Both(lambda ask: "12 June")
    with remembering(reader, router=climbing("merge", "extract")) as memory:
        found = memory.ask(QUERY, 60, safe=True)
    assert (found.text, actions(found)) == ("12 June", ["retain"])
    assert len(reader.asked) == 1  # nothing was written


@pytest.mark.parametrize("router", ["evidence-fit", climbing("retain", "merge"), None, "longmemeval-free"])
def test_any_router_can_be_asked_safely(router: Any) -> None:
    with remembering(Both(), router=router) as memory:
        found = memory.ask(QUERY, 40, safe=True)
        looks = actions(found)
        assert looks[0] == "retain"
        assert len(looks) == len(set(looks)) > 1
        assert found.text is None


def known(router: str) -> Both:
    """A reader by the name of the one that a shipped router was certified with."""
    reader = Both()
    reader.name = str(load_shipped(router).provenance["reader"])
    return reader


def test_a_certificate_does_not_stand_in_for_the_look_at_whole_notes() -> None:
    with remembering(known("longmemeval"), router="longmemeval") as memory:
        assert memory.router.bounds_ladder(32)
        found = memory.ask(QUERY, 32, safe=True)
        assert actions(found)[0] == "retain"
        assert not any(look.recall.decision.certified for look in found.looks)


@given(st.lists(st.booleans(), min_size=8, max_size=8), st.sampled_from((24, 32, 40, 64, 128)))
def test_what_whole_notes_answer_is_what_a_safe_ask_answers(speaks: list[bool], budget: int) -> None:
    heard: dict[str, str] = {}  # a text is answered, or not, the same way every time

    def read(ask: Any) -> str:
        number = len(heard)
        return heard.setdefault(ask.messages[1]["content"], f"answer {number}" if speaks[number % 8] else NO)

    with remembering(Both(read), router=climbing("retain")) as memory:
        whole = memory.ask(QUERY, budget)
    with remembering(Both(read), router=None) as memory:
        found = memory.ask(QUERY, budget, safe=True)
    if whole.text is not None:
        assert found.text == whole.text


def test_the_plan_of_the_rows_is_the_order_that_is_served() -> None:
    router = load_shipped("longmemeval")
    with Memory(":memory:", model=known("longmemeval"), router=router) as memory:
        for number in range(30):
            memory.add(f"Note {number}: Pixel the cat went to the vet on day {number} and it cost {number} pounds.")
        for budget in (32, 64, 128, 256):
            decision = memory.decide("What did the vet cost?", budget)
            about = {"question_id": "q", "conversation": "c", "budget": budget, "judge_llm": 0, "abstained": 1}
            seen = {name: decision.features[name] for name in ("notes", "fit")}
            types = {f"p_{name}": decision.features[name] for name in TYPES}
            made = panel(from_rows([about | seen | types | {"action": name} for name in router.actions]))
            order = [made.actions[a] for a in serving_plan(router, made)[0, 0] if a >= 0]
            assert order == list(decision.order)
