"""From outcomes to a calibrated router that serves, and from cross-fitted results to a table."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ask import QUERY, Both, actions, remembering
from test_fit_ladder import vector
from test_outcomes import Row, csv_text, world
from typer.testing import CliRunner

from bench import pilot, pilot_file
from retcon import pack
from retcon.cli import app
from retcon.errors import InputError, RouterError
from retcon.features import FEATURES
from retcon.lab import fit
from retcon.lab import fit_ladder as ladder
from retcon.lab.calibrate import certified_threshold, joint_thresholds, paper_threshold
from retcon.lab.crossfit import LADDERS, TWICE, Direct, Rules, always, crossfit, default_policies
from retcon.lab.learn import calibrate_router, calibration_rows, fit_router, read_provenance, summarise
from retcon.lab.outcomes import COSTS, KEY, KNOWN_BEFORE, Outcomes, Panel, from_rows, panel
from retcon.lab.stats import interval, resample
from retcon.ladder import Ladder
from retcon.operate import PROMPTS
from retcon.route import Router

ROOT = Path(__file__).parents[2]
MADE = {
    "model": "fake", "reader": "fake", "grader": "big", "retriever": "bm25", "counter": "estimate",
    "embedder": "hashing", "renderer": pack.RENDERER, "prompts": PROMPTS,
}  # fmt: skip
GUESSED = {"p_single_session": 0.4, "p_multi_session": 0.3, "p_temporal": 0.2, "p_knowledge_update": 0.1}


def table(questions: int = 60, **options: Any) -> Outcomes:
    """Outcomes that say how they were made; focus is blank where no model writes."""
    rows = [
        row | MADE | {"focus": "focused" if row["action"] == "merge" else "", "conversation": row["question_id"]}
        for row in world(questions, **options)
    ]
    return from_rows(rows)


def part(rows: Outcomes, keep: Callable[[int], bool]) -> Outcomes:
    """The rows of the questions whose number is kept."""
    names = sorted({name for name in rows.columns["question_id"].tolist() if keep(int(name[1:]))})
    return rows.where(question_id=names)


def learned(**options: Any) -> tuple[Router, Panel]:
    """A router of the first forty questions, and the panel of the others."""
    rows = table()
    first = part(rows, lambda number: number < 40)
    router = fit_router(first, panel(first), name="learned", **options)
    return router, panel(part(rows, lambda number: number >= 40))


# -- fit ---------------------------------------------------------------------------------------------------------------


def test_a_router_keeps_what_its_rows_say_of_themselves() -> None:
    rows = table(20)
    router = fit_router(rows, panel(rows, judge="overlap"), name="r", group="conversation", about={"date": "today"})
    known = dict(router.provenance)
    assert (router.embedder, router.counter) == ("hashing", "estimate")
    for name in ("model", "reader", "grader", "retriever", "renderer", "prompts"):
        assert known[name] == MADE[name]
    assert (known["dataset"], known["setting"], known["focus"], known["date"]) == ("made", "up", "focused", "today")
    assert (known["judge"], known["group"]) == ("overlap", "conversation")
    assert (known["questions"], known["rows"], known["estimator"]) == (20, 40, "ridge")
    assert router.ladder is not None
    json.dumps(router.to_dict(), allow_nan=False)


def test_only_the_rows_of_the_routers_actions_speak_for_it() -> None:
    rows = [row | {"focus": {"merge": "focused", "extract": "agnostic"}.get(row["action"], "")} for row in world(20)]
    found = from_rows(rows)
    assert "focus" not in read_provenance(found)
    router = fit_router(found, panel(found, actions=["retain", "merge"]), name="r")
    assert router.provenance["focus"] == "focused"


def test_a_ladder_is_learned_only_from_abstentions_and_on_request() -> None:
    rows = world(20)
    silent = from_rows([{key: value for key, value in row.items() if key != "abstained"} for row in rows])
    assert fit_router(silent, panel(silent), name="r").ladder is None
    known = from_rows(rows)
    assert fit_router(known, panel(known), name="r", ladder=False).ladder is None
    priced = fit_router(known, panel(known), name="r", call_price=5.0, token_price=0.25).ladder
    assert priced is not None
    assert (priced.call_price, priced.token_price) == (5.0, 0.25)
    assert priced.order(vector(panel(known), 0, 0), budget=32) in {("retain",), ("extract",), ("merge",)}


# -- calibrate ---------------------------------------------------------------------------------------------------------


def handmade() -> tuple[Router, Panel]:
    """Ten questions at two budgets. The advantage is the number of notes / 10; 7 of them are harmed at 64 tokens."""
    router = Router(
        name="by hand", actions=("retain", "merge"), features=("notes",), budgets=(32, 64),
        weights={"retain": (0.0,), "merge": (0.1,)}, intercepts={"retain": 0.0, "merge": 0.0},
    )  # fmt: skip
    rows: list[Row] = []
    for q in range(10):
        for budget in (32, 64):
            about = {"question_id": f"q{q}", "budget": budget, "notes": q}
            kept = int(q in (2, 5)) if budget == 32 else int(q < 7)
            rows.append(about | {"action": "retain", "judge_llm": kept})
            rows.append(about | {"action": "merge", "judge_llm": int(q >= 5) if budget == 32 else int(q >= 7)})
    return router, panel(from_rows(rows))


def test_another_processors_last_bits_give_the_same_file() -> None:
    rows = table()
    one = panel(rows)
    other = replace(one, runs=one.runs * (1 - 1e-14))
    assert fit.fit(one, name="r").weights != fit.fit(other, name="r").weights
    assert ladder.fit_ladder(one).weights != ladder.fit_ladder(other).weights
    assert fit_router(rows, one, name="r").to_dict() == fit_router(rows, other, name="r").to_dict()


def test_paper_thresholds_are_those_of_the_arrays_written_by_hand() -> None:
    router, found = handmade()
    after, seen = calibrate_router(router, found)
    advantage = np.arange(10) * 0.1
    for budget, chosen, retained in (
        (32, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 1, 0, 0, 0, 0]),
        (64, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]),
    ):
        assert seen[budget] == paper_threshold(advantage, chosen, retained)
    # at 32 tokens 0.6 gains as much as 0.5 and 0.3, and is the strictest; at 64 all from 0.7 on gain
    assert dict(after.thresholds) == {32: pytest.approx(0.6), 64: pytest.approx(0.7)}
    assert (seen[32].accepted, seen[32].harms) == (4, 0)
    assert seen[32].accuracy == pytest.approx(0.6)
    assert after.certificate is None
    loose, _ = calibrate_router(router, found, cap=0.1)
    assert loose.thresholds[64] == pytest.approx(0.7)
    assert after.provenance["calibration"]["questions"] == 10
    assert after.provenance["calibration"]["thresholds"]["64"]["tau"] == after.thresholds[64]


@pytest.mark.parametrize("rule", ["paper", "certified"])
def test_a_calibrated_router_does_on_its_questions_what_was_counted(rule: str) -> None:
    router, found = learned()
    after, seen = calibrate_router(router, found, rule=rule, cap=0.1, alpha=0.4, delta=0.3, joint="each")
    for b, (budget, rows) in enumerate(calibration_rows(router, found).items()):
        decisions = [after.decide(vector(found, q, b), budget=budget, safe=True) for q in range(20)]
        assert [each.advantage for each in decisions] == rows[0].tolist()  # to the last bit
        taken = np.array([found.actions.index(each.action) for each in decisions])
        utility = found.utility[np.arange(20), b, taken]
        assert (taken > 0).sum() == seen[budget].accepted
        assert ((taken > 0) & (utility < found.retentions[:, b])).sum() == seen[budget].harms
        assert utility.mean() == pytest.approx(seen[budget].accuracy)
    assert any(each.accepted for each in seen.values())


def test_where_fit_rules_a_threshold_says_what_was_served() -> None:
    router, held = learned()
    ruled = replace(router, fit_rules=True)
    fit = np.array(held.fit)
    fit[0], fit[1] = 0.0, 1.0
    held = replace(held, x=np.where(np.arange(held.x.shape[2]) == held.features.index("fit"), fit[:, :, None], held.x))
    served, found = calibrate_router(ruled, held, rule="certified", alpha=0.5, delta=0.1, joint="each")
    for b, budget in enumerate(held.budgets):
        chosen = [
            served.decide(list(map(float, _full(held, q, b))), budget=budget, safe=True).action for q in range(len(fit))
        ]
        utility = [held.utility[q, b, held.actions.index(action)] for q, action in enumerate(chosen)]
        assert found[budget].accepted == sum(action != "retain" for action in chosen)
        assert found[budget].accuracy == pytest.approx(np.mean(utility))
        assert found[budget].harms == sum(np.array(utility) < held.utility[:, b, 0])
        assert chosen[0] != "retain"
        assert chosen[1] == "retain"


def test_a_bound_that_fit_breaks_is_no_certificate() -> None:
    router, held = learned()
    worse = held.runs.copy()
    worse[:, :, 0], worse[:, :, 1:] = 1.0, 0.0  # whatever replaces, harms
    nothing = np.where(np.arange(held.x.shape[2]) == held.features.index("fit"), 0.0, held.x)
    harmed = replace(held, x=nothing, runs=worse, retained=np.ones_like(worse), retentions=np.ones(worse.shape[:2]))
    served, found = calibrate_router(replace(router, fit_rules=True), harmed, rule="certified")
    assert {each.tau for each in found.values()} == {math.inf}
    assert not served.decide(list(map(float, _full(harmed, 0, 0))), budget=harmed.budgets[0], safe=True).certified


def _full(held: Panel, q: int, b: int) -> list[float]:
    return [held.x[q, b, held.features.index(name)] if name in held.features else 0.0 for name in FEATURES]


def test_a_router_may_look_at_a_few_features_alone() -> None:
    router, held = learned()
    few = held.with_features(["fit", "budget"])
    assert few.features == ("fit", "budget")
    assert np.array_equal(few.x[:, :, 0], held.fit)
    assert fit_router(table(), few, name="few").features == ("fit", "budget")
    for names, said in ((["nope"], "no feature 'nope'"), ([], "needs a feature")):
        with pytest.raises(InputError, match=said):
            held.with_features(names)
    assert router.features == held.features


def test_certified_thresholds_are_joined_as_asked() -> None:
    router, found = learned()
    rows = calibration_rows(router, found)
    options: dict[str, Any] = {"rule": "certified", "alpha": 0.4, "delta": 0.2}
    assert calibrate_router(router, found, joint="each", **options)[1] == {
        budget: certified_threshold(*each, alpha=0.4, delta=0.2) for budget, each in rows.items()
    }
    assert calibrate_router(router, found, **options)[1] == joint_thresholds(rows, alpha=0.4, delta=0.2, how="split")
    joined = calibrate_router(router, found, joint="any", **options)[1]
    assert joined == joint_thresholds(rows, alpha=0.4, delta=0.2, how="any")
    assert len({each.tau for each in joined.values()}) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "hope"}, "the rule is paper or certified, not 'hope'"),
        ({"rule": "certified", "joint": "hands"}, "budgets are joined by split, any, each, not 'hands'"),
        ({"cap": 3.0}, "a cap on harm is from 0 to 1"),
        ({"rule": "certified", "alpha": 1.0}, "alpha is between 0 and 1"),
    ],
)
def test_a_calibration_that_cannot_be_is_one_clear_line(options: dict[str, Any], said: str) -> None:
    router, found = handmade()
    with pytest.raises(InputError) as caught:
        calibrate_router(router, found, **options)
    assert said in str(caught.value)


def test_outcomes_that_do_not_fit_the_router_are_refused() -> None:
    router, found = learned()
    with pytest.raises(InputError, match="the router knows retain, extract, merge, the outcomes retain, merge"):
        calibrate_router(router, replace(panel(table(5), actions=["retain", "merge"]), dataset="other"))
    bare = from_rows([{key: value for key, value in row.items() if key != "fit"} for row in world(5)])
    with pytest.raises(InputError, match="the outcomes lack what the router looks at: fit"):
        calibrate_router(router, replace(panel(bare), dataset="other"))
    alone = replace(
        router, actions=("retain",), weights={"retain": router.weights["retain"]}, ladder=None,
        intercepts={"retain": 0.0},
    )  # fmt: skip
    with pytest.raises(InputError, match="knows retain alone"):
        calibrate_router(alone, replace(found, actions=("retain",)))


def test_questions_that_the_router_was_learned_from_are_refused() -> None:
    router, found = learned()
    calibrate_router(router, found)
    with pytest.raises(InputError, match=r"40 of 60 questions are among those .* learned from, q000 for one"):
        calibrate_router(router, panel(table()))
    calibrate_router(router, replace(panel(table()), dataset="another"))  # the same names, other questions


# -- the certificate ---------------------------------------------------------------------------------------------------


def certified(**options: Any) -> Router:
    router, found = learned(**options)
    return calibrate_router(router, found, rule="certified", alpha=0.4, delta=0.3)[0]


def test_a_certificate_says_what_was_found_and_survives_its_file(tmp_path: Path) -> None:
    router = certified()
    assert router.certificate is not None
    assert (router.certificate["alpha"], router.certificate["delta"], router.certificate["joint"]) == (
        0.4,
        0.3,
        "split",
    )
    found = router.certificate["budgets"]
    assert set(found) == {"32", "64"}
    assert all(each["bound"] <= 0.4 and each["delta"] == 0.15 for each in found.values())
    router.save(tmp_path / "r.json")
    assert Router.load(tmp_path / "r.json") == router


def test_a_decision_is_certified_only_where_the_certificate_speaks_of_it() -> None:
    router = certified()
    x = [0.5] * len(FEATURES)
    assert router.decide(x, budget=32, safe=True).certified
    assert router.decide(x, budget=32, available=["merge", "retain", "extract", "hybrid"], safe=True).certified
    assert not router.decide(x, budget=33, safe=True).certified
    assert not router.decide(x, budget=32, available=["retain", "extract"], safe=True).certified
    assert not router.decide(x, budget=32, exclude=["merge"], safe=True).certified
    assert not replace(router, certificate=None).decide(x, budget=32, safe=True).certified
    assert not learned()[0].decide(x, budget=32).certified
    paper, _ = calibrate_router(*learned())
    assert not paper.decide(x, budget=32, safe=True).certified
    assert not router.decide(x, budget=32).certified  # no threshold counts


def test_a_threshold_that_was_moved_is_no_longer_certified() -> None:
    router = certified()
    x = [0.5] * len(FEATURES)
    moved = replace(router, thresholds={32: -1.0, 64: router.thresholds[64]})
    assert not moved.decide(x, budget=32, safe=True).certified
    assert moved.decide(x, budget=64, safe=True).certified
    more = replace(router, thresholds={**router.thresholds, 128: 0.0})
    assert not more.decide(x, budget=128, safe=True).certified


def test_never_replacing_is_certified_too() -> None:
    router, found = learned()
    never, seen = calibrate_router(router, found, rule="certified", alpha=0.01)
    assert all(each.tau == math.inf for each in seen.values())
    decision = never.decide([0.5] * len(FEATURES), budget=32, safe=True)
    assert (decision.action, decision.certified) == ("retain", True)
    assert Router.from_dict(json.loads(json.dumps(never.to_dict()))).decide([0.5] * 11, budget=32, safe=True).certified


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        ({}, "a certificate needs alpha and delta between 0 and 1"),
        ({"alpha": 0, "delta": 0.1, "budgets": {}}, "a certificate needs alpha and delta"),
        ({"alpha": 0.1, "delta": "0.1", "budgets": {}}, "a certificate needs alpha and delta"),
        ({"alpha": 0.1, "delta": 0.1}, "a certificate needs budgets"),
        ({"alpha": 0.1, "delta": 0.1, "budgets": {"32": 0.5}}, "a certificate needs budgets, and the tau"),
        ({"alpha": 0.1, "delta": 0.1, "budgets": [32]}, "a certificate needs budgets"),
        ("yes", "wrong shape"),
        (7, "wrong shape"),
    ],
)
def test_a_malformed_certificate_is_one_clear_line(certificate: Any, said: str) -> None:
    with pytest.raises(RouterError) as caught:
        Router.load(certified().to_dict() | {"certificate": certificate})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"format": 2}, {"features": ["colour"]}, {"intercepts": {"retain": math.nan}}])
def test_a_learned_router_of_another_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RouterError):
        Router.load(certified().to_dict() | change)


# -- in a memory -------------------------------------------------------------------------------------------------------


def running(**options: Any) -> Any:
    """A memory whose actions are those of the certified router alone, at no other configuration than its own."""
    return remembering(Both(), **{"router": options.pop("router", None) or in_full()} | options)


def in_full() -> Router:
    """A certified router over every action that a memory with a model has."""
    every = ("retain", "extract", "merge", "abstract", "rewrite", "hybrid")
    rows = [
        row | MADE | GUESSED | {"focus": "focused", "conversation": row["question_id"]}
        for row in world(60, actions=every)
    ]
    first, second = ([row for row in rows if (int(row["question_id"][1:]) < 40) == side] for side in (True, False))
    router = fit_router(from_rows(first), panel(from_rows(first)), name="full")
    return calibrate_router(router, panel(from_rows(second)), rule="certified", alpha=0.4, delta=0.3)[0]


def test_a_memory_like_the_one_it_was_learned_on_is_certified() -> None:
    with running() as memory:
        decision = memory.decide(QUERY, 32, safe=True)
        assert (decision.certified, decision.warnings) == (True, ())
        assert memory.recall(QUERY, 32, safe=True).decision.certified
        assert not memory.decide(QUERY, 33, safe=True).certified
        assert not memory.decide(QUERY, 32, exclude=["merge"], safe=True).certified
        forced = memory.recall(QUERY, 32, action="retain", safe=True).decision
        assert (forced.certified, forced.forced) == (False, True)


@pytest.mark.parametrize(
    ("options", "learned_with", "here"),
    [
        ({"counter": "alphanumeric"}, "counter 'estimate'", "'alphanumeric'"),
        ({"retriever": "bm25-plain"}, "retriever 'bm25'", "'bm25-plain'"),
        ({"focus": False}, "focus 'focused'", "'agnostic'"),
    ],
)
def test_another_configuration_drops_the_certificate_and_names_both(
    options: dict[str, Any], learned_with: str, here: str
) -> None:
    with running(**options) as memory:
        decision, found = memory.decide(QUERY, 32, safe=True), memory.recall(QUERY, 32, safe=True)
    assert not decision.certified
    assert len(decision.warnings) == 1
    assert f"router 'full' was learned with {learned_with}, this memory has {here}" in decision.warnings[0]
    assert decision.warnings[0] in found.warnings
    assert decision.to_dict()["warnings"] == list(decision.warnings)


def test_another_embedder_or_model_drops_the_certificate_too() -> None:
    router = replace(in_full(), embedder="wordllama-256")
    with running(router=router, embedder="hashing") as memory:
        assert "embedder 'wordllama-256', this memory has 'hashing'" in memory.decide(QUERY, 32, safe=True).warnings[0]
    chat = Both()
    chat.name = "bigger"
    with remembering(chat, router=in_full()) as memory:
        decision = memory.decide(QUERY, 32, safe=True)
        assert "model 'fake', this memory has 'bigger'" in decision.warnings[0]
        assert not decision.certified


def certified_on(first: Row, second: Row) -> Router:
    """A certified router whose training rows say the first, its calibration rows the second."""
    each = world(60, actions=("retain", "extract"))
    rows = [row | MADE | GUESSED | {"conversation": row["question_id"]} for row in each]
    learned_from = from_rows([row | first for row in rows if int(row["question_id"][1:]) < 40])
    held = from_rows([row | second for row in rows if int(row["question_id"][1:]) >= 40])
    router, made = fit_router(learned_from, panel(learned_from), name="two"), read_provenance(held)
    return calibrate_router(router, panel(held), rule="certified", alpha=0.4, delta=0.3, provenance=made)[0]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {}, None),
        ({}, {"retriever": "dense"}, "retriever 'dense'"),
        ({"retriever": "dense"}, {}, "retriever 'dense'"),
        ({"retriever": ""}, {"retriever": "dense"}, "retriever 'dense'"),
        ({"p_temporal": 1.0} | dict.fromkeys([*GUESSED][:2], 0.0) | {"p_knowledge_update": 0.0}, {}, "types 'given'"),
        ({}, {"p_temporal": 1.0} | dict.fromkeys([*GUESSED][:2], 0.0) | {"p_knowledge_update": 0.0}, "types 'given'"),
    ],
)
def test_a_certificate_holds_only_where_both_training_and_calibration_were_as_here(
    first: Row, second: Row, said: str | None, tmp_path: Path
) -> None:
    certified_on(first, second).save(tmp_path / "r.json")
    with remembering(Both(), router=tmp_path / "r.json") as memory:
        decision = memory.decide(QUERY, 32, safe=True)
    assert decision.certified == (said is None)
    assert len(decision.warnings) == (0 if said is None else 1)
    assert all(said is not None and said in each for each in decision.warnings)


def test_ask_names_a_reader_that_the_router_was_not_learned_with() -> None:
    with running() as memory:
        assert not any("learned with" in each for each in memory.ask(QUERY, 32).warnings)
    router = in_full()
    other = replace(router, provenance={**router.provenance, "reader": "other", "answer_prompts": "0"})
    with running(router=other) as memory:
        said = memory.ask(QUERY, 32).warnings
        assert any("learned with reader 'other', this memory has 'fake'" in each for each in said)
        assert any("learned with answer_prompts '0'" in each for each in said)
        assert not memory.decide(QUERY, 32, safe=True).certified
        assert memory.decide(QUERY, 32, safe=True).warnings == ()


def test_calibration_keeps_what_its_rows_were(tmp_path: Path) -> None:
    router = certified_on({}, {"retriever": "dense"})
    kept = router.provenance["calibration"]
    assert kept["made"]["retriever"] == router.certificate["made"]["retriever"] == "dense"  # type: ignore[index]
    assert (kept["judge"], kept["questions"]) == ("llm", 20)
    assert kept["conversations"] <= 20
    plain = router.to_dict()
    plain["certificate"] = {**plain["certificate"], "made": 7}
    with pytest.raises(RouterError, match="what a certificate was made with"):
        Router.load(plain)


def test_a_number_and_its_text_are_the_same_configuration() -> None:
    router = in_full()
    assert router.provenance["prompts"] == "1"
    again = replace(router, provenance={**router.provenance, "prompts": 1})
    assert again.differences({"prompts": "1"}) == {}
    assert again.differences({"prompts": "2"}) == {"prompts": (1, "2")}


def climbing(*orders: tuple[str, ...]) -> Router:
    """A router that would retain, with a ladder whose first order is the best."""
    names = ("retain", "extract", "merge", "abstract")
    steps = Ladder(
        orders=orders, features=(), weights=((),) * len(orders),
        intercepts={64: tuple(1.0 - place for place in range(len(orders)))},
    )  # fmt: skip
    return Router(
        name="climbing", actions=names, features=(), weights=dict.fromkeys(names, ()),
        intercepts={name: float(name == "retain") for name in names}, ladder=steps,
    )  # fmt: skip


def test_ask_follows_the_learned_order_and_stops_at_its_end() -> None:
    router = climbing(("merge", "extract", "abstract"), ("retain",))
    with remembering(Both(), router=router) as memory:
        found = memory.ask(QUERY, 40)
        assert actions(found) == ["merge", "extract", "abstract"]
        assert found.text is None
        assert actions(memory.ask(QUERY, 40, max_looks=2)) == ["merge", "extract"]
        assert actions(memory.ask(QUERY, 40, max_looks=100)) == ["merge", "extract", "abstract"]
        assert [look.recall.decision.reason.split(";")[0] for look in found.looks] == [
            f"{name}: look {place} of the ladder merge > extract > abstract"
            for place, name in enumerate(("merge", "extract", "abstract"), 1)
        ]
        assert all(look.recall.decision.order == ("merge", "extract", "abstract") for look in found.looks)
    with remembering(Both(lambda ask: "14 June"), router=router) as memory:
        assert actions(memory.ask(QUERY, 40)) == ["merge"]


def test_a_ladder_of_one_look_asks_once() -> None:
    with remembering(Both(), router=climbing(("abstract",))) as memory:
        assert actions(memory.ask(QUERY, 40)) == ["abstract"]


def test_a_learned_ladder_of_real_outcomes_is_followed() -> None:
    with remembering(Both(), router=in_full()) as memory:
        order = memory.decide(QUERY, 32).order
        found = memory.ask(QUERY, 32)
        assert 0 < len(order) <= 4
        assert actions(found) == list(order)
        assert not any(look.recall.decision.certified for look in found.looks)


def test_escalation_follows_the_order_and_goes_on_after_its_end() -> None:
    with remembering(Both(), router=climbing(("merge", "extract"))) as memory:
        first = memory.recall(QUERY, 40)
        assert first.action == "retain"  # one look: the router's own choice
        seen = [first.action]
        found = first.escalate()
        while found is not None:
            seen.append(found.action)
            found = found.escalate()
        assert seen[:3] == ["retain", "merge", "extract"]
        assert sorted(seen) == sorted({*seen})
        assert "abstract" in seen
        assert memory.recall(QUERY, 40, exclude=["merge"]).action == "extract"


def test_looks_that_this_memory_does_not_have_are_passed_over() -> None:
    router = replace(
        climbing(("merge", "extract")), actions=("retain", "dream", "merge", "extract"),
        weights=dict.fromkeys(("retain", "dream", "merge", "extract"), ()),
        intercepts=dict.fromkeys(("retain", "dream", "merge", "extract"), 0.5),
        ladder=Ladder(orders=(("dream", "extract"),), features=(), weights=((),), intercepts={64: (1.0,)}),
    )  # fmt: skip
    with remembering(Both(), router=router) as memory:
        assert actions(memory.ask(QUERY, 40)) == ["extract"]


def test_serving_a_learned_router_loads_no_learning_code(tmp_path: Path) -> None:
    in_full().save(tmp_path / "router.json")
    code = (
        "import sys\nfrom retcon import Memory\n"
        f"memory = Memory(':memory:', router={str(tmp_path / 'router.json')!r})\n"
        "memory.add('I adopted a cat named Pixel.')\n"
        "found = memory.recall('Which cat?', 32)\n"
        "assert found.decision.router == 'full' and found.decision.order, found.decision\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('sklearn', 'scipy', 'pyarrow')"
        " or name.startswith('retcon.lab')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


# -- the table of policies ---------------------------------------------------------------------------------------------


def test_a_summary_holds_the_paired_differences_of_questions() -> None:
    found = panel(from_rows(world(30, budgets=(16, 32, 100))))
    policies = {"retention": always(0), "direct": Direct(), "ladder": LADDERS["ladder"]}
    fitted = crossfit(found, policies=policies, rules=Rules(seed=4))
    summary = summarise(fitted, reference="retention", draws=500)
    rows = {row["policy"]: row for row in summary["policies"]}
    assert list(rows) == list(fitted.results)
    assert (summary["questions"], summary["judge"], summary["reference"]) == (30, "llm", "retention")
    drawn = resample(30, seed=4, draws=500)
    for name in ("direct", "ladder", "action oracle"):
        result = fitted.results[name]
        expected = interval((result.utility - fitted.results["retention"].utility).mean(axis=1), drawn)
        assert rows[name]["against"] == {"mean": expected.mean, "low": expected.low, "high": expected.high, "n": 30}
        assert rows[name]["accuracy"] == pytest.approx(result.utility.mean(axis=0).tolist())
        assert rows[name]["macro"] == pytest.approx(float(result.utility.mean()))
        assert rows[name]["harm"] == pytest.approx(float(result.harmed.mean()))
        assert rows[name]["harms"] == pytest.approx(result.harmed.sum(axis=0).tolist())
        assert rows[name]["tokens"] == pytest.approx(float((result.read + result.generated).mean()))
    assert rows["retention"]["against"] is None
    assert rows["retention"]["calls"] == 1
    assert rows["ladder"]["calls"] > 1
    twice = rows[TWICE]  # measured at 16 tokens alone, and compared there alone
    assert twice["accuracy"][1:] == [None, None] == twice["harms"][1:]
    difference = fitted.results[TWICE].utility[:, 0] - fitted.results["retention"].utility[:, 0]
    assert twice["against"]["mean"] == pytest.approx(float(difference.mean()))
    json.dumps(summary, allow_nan=False)


def test_intervals_by_conversation_draw_conversations() -> None:
    found = panel(from_rows(world(30, talks=6)))
    policies = {"retention": always(0), "direct": Direct()}
    fitted = crossfit(found, policies=policies, rules=Rules(group="conversation"))
    row = next(r for r in summarise(fitted, reference="retention", draws=500)["policies"] if r["policy"] == "direct")
    values = (fitted.results["direct"].utility - fitted.results["retention"].utility).mean(axis=1)
    expected = interval(values, resample(30, seed=0, draws=500, clusters=found.conversations))
    assert (row["against"]["low"], row["against"]["high"]) == (expected.low, expected.high)


@pytest.mark.parametrize("budgets", [(64,), (32, 100)])
def test_a_summary_is_plain_json_for_any_budgets(budgets: tuple[int, ...]) -> None:
    found = panel(from_rows(world(20, budgets=budgets)))
    policies = {name: policy for name, policy in default_policies(found).items() if name != "MLP"}
    summary = summarise(crossfit(found, policies=policies), reference="retention", draws=100)
    json.dumps(summary, allow_nan=False)
    assert all(math.isfinite(row["macro"]) for row in summary["policies"])


def test_a_reference_that_nobody_is_says_who_is() -> None:
    fitted = crossfit(panel(from_rows(world(20))), policies={"retention": always(0)})
    with pytest.raises(InputError, match="no policy 'best'; there are retention, "):
        summarise(fitted, reference="best")


# -- what the docs say -------------------------------------------------------------------------------------------------


def test_the_code_of_the_docs_runs_in_the_order_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [row | {"fold": "train" if int(row["question_id"][1:]) < 30 else "held"} for row in world(45)]
    (tmp_path / "outcomes.csv").write_text(csv_text(rows), encoding="utf-8")
    for name in ("learning", "ladder"):
        scope: dict[str, Any] = {}
        for code in re.findall(r"```python\n(.*?)```", page(name), re.DOTALL):
            exec(code, scope)
        if "memory" in scope:
            assert scope["answer"].text is None
            assert [look.recall.action for look in scope["answer"].looks]
            scope["memory"].close()
    commands = re.findall(r"^\$ retcon ((?:fit|calibrate) .*)$", page("learning"), re.M)
    assert [CliRunner().invoke(app, shlex.split(command)).exit_code for command in commands] == [0, 0]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_the_pages_name_every_policy_and_every_column_that_is_read() -> None:
    text = page("learning") + page("ladder")
    every = set(default_policies(panel(from_rows(world(10))))) - {"always extract", "always merge"}
    for policy in every - {"best fixed, asked again", "ladder, one order a budget"}:
        assert policy in text
    for column in (
        *KEY,
        *KNOWN_BEFORE[:6],
        *COSTS,
        "abstained",
        "logprob",
        "unsupported",
        "conversation",
        "type",
        "fold",
    ):
        assert f"`{column}`" in text


def test_absent_outcomes_end_the_bench_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_PILOT", str(tmp_path / "none.csv"))
    with pytest.raises(SystemExit, match=r"no outcomes at .*none\.csv: set RETCON_PILOT"):
        pilot_file()


def test_the_bench_runs_and_its_tables_hold_what_was_measured() -> None:
    study = replace(pilot.STUDIES[0], dataset="made", setting="up", actions=("retain", "extract", "merge"))
    rows = from_rows(world(25))
    keys = [each.key for each in pilot.STUDIES]
    (one, two) = pilot.run(rows, repeats=1, draws=100, studies=[study])
    assert (one["judge"], two["judge"]) == ("llm", "overlap")
    result = {
        "studies": [each | {"study": key} for key in keys for each in (one, two)],
        "features": [{"features": "none", "direct": 0.5, "standardised": 0.5, "gain": 0.5, "best fixed action": 0.25}],
        "decide": pilot.decide_time(from_rows([row | LONGMEMEVAL for row in world(12, actions=pilot.FOCUSED)])),
    }
    text = pilot.tables(result)
    assert set(text) == {f"pilot-{name}" for name in PILOT_TABLES}
    direct = next(row for row in one["policies"] if row["policy"] == "direct")
    assert f"| {direct['macro']:.3f} |".replace("0.", ".") in text["pilot-controlled"]
    assert "MLP (1 repeat)" in text["pilot-controlled"]
    for name in PILOT_TABLES:
        assert all(line.count("|") == text[f"pilot-{name}"].splitlines()[0].count("|")
                   for line in text[f"pilot-{name}"].splitlines())  # fmt: skip


LONGMEMEVAL = {"dataset": "longmemeval", "setting": "controlled"}
PILOT_TABLES = ("controlled", "history", "ladders", "rivals", "no-model", "features", "decide")
