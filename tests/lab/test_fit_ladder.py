"""Ladders: what an order of looks comes to, which orders are learned, and that serving follows what was learned."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_outcomes import Row, renamed, world

from retcon.errors import InputError, RouterError
from retcon.features import FEATURES
from retcon.lab.fit import fit
from retcon.lab.fit_ladder import (
    MOST_ORDERS,
    Plan,
    constant_plan,
    fit_ladder,
    orders,
    per_budget,
    plan,
    walk,
    worth,
)
from retcon.lab.outcomes import Panel, from_rows, panel
from retcon.ladder import Ladder
from retcon.route import Router


def made(questions: int = 20, **options: Any) -> Panel:
    return panel(from_rows(world(questions, **options)))


def vector(found: Panel, q: int, b: int) -> list[float]:
    """The eleven features of a cell, 0 for those that the panel lacks."""
    seen = dict(zip(found.features, found.x[q, b].tolist(), strict=True))
    return [seen.get(name, 0.0) for name in FEATURES]


def looks_of(plan: Plan, actions: Sequence[str]) -> list[tuple[str, ...]]:
    """The orders of a plan in words, question by question and budget by budget."""
    return [tuple(actions[a] for a in order if a >= 0) for order in plan.reshape(-1, plan.shape[2]).tolist()]


# -- walking -----------------------------------------------------------------------------------------------------------


def slow_walk(found: Panel, order: list[int], q: int, b: int, run: int) -> dict[str, float]:
    """One question, one budget, one realization, step by step."""
    assert found.abstained is not None
    spent = {"calls": 0.0, "read": 0.0, "generated": 0.0}
    asked: list[int] = []
    utility, last = 0.0, -1
    for action in order:
        if action < 0:
            break
        r = (run + asked.count(action)) % found.runs.shape[3]
        asked.append(action)
        spent["calls"] += 1
        spent["read"] += found.tokens["context_tokens"][q, b, action]
        spent["generated"] += found.tokens["generated_tokens"][q, b, action]
        utility, last = found.runs[q, b, action, r], action
        if not found.abstained[q, b, action, r]:
            break
    return spent | {"utility": utility, "last": last}


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4))
def test_a_walk_is_that_of_a_slow_simulation(seed: int, realizations: int, looks: int) -> None:
    found, rng = made(5, realizations=realizations, seed=seed % 97), np.random.default_rng(seed)
    steps = rng.integers(-1, 3, (5, 2, looks))
    steps[:, :, 0] = np.maximum(steps[:, :, 0], 0)
    went = walk(found, steps)
    for q in range(5):
        for b in range(2):
            order = steps[q, b].tolist()
            length = order.index(-1) if -1 in order else looks
            runs = [slow_walk(found, order, q, b, run) for run in range(realizations)]
            for name in ("calls", "read", "generated"):
                assert getattr(went, name)[q, b] == pytest.approx(np.mean([run[name] for run in runs]))
            single = length == 1 and (np.array(order[1:]) < 0).all()
            mean = found.utility[q, b, order[0]] if single else np.mean([run["utility"] for run in runs])
            assert went.utility[q, b] == pytest.approx(mean)
            assert went.last[q, b] == runs[0]["last"]
            assert went.replaced[q, b] == any(run["last"] > 0 for run in runs)
    assert np.array_equal(went.tokens, went.read + went.generated)


def test_a_repeated_action_is_asked_again_for_its_next_realization() -> None:
    rows = [
        {"question_id": "q", "budget": 32, "action": "retain", "realization": r, "judge_llm": r, "abstained": 1 - r}
        for r in (0, 1)
    ]
    rows += [row | {"action": "merge", "judge_llm": 0, "abstained": 1} for row in rows]
    found = panel(from_rows(rows))
    went = walk(found, constant_plan(found, (0, 0)))
    assert (went.utility[0, 0], went.calls[0, 0]) == (1.0, 1.5)  # run 0 abstains and asks run 1; run 1 answers at once
    assert walk(found, constant_plan(found, (0,))).utility[0, 0] == 0.5
    one = panel(from_rows([row for row in rows if row["realization"] == 0]))
    assert walk(one, constant_plan(one, (0, 0))).utility[0, 0] == 0.0  # the same reply once more


def test_a_realization_with_gaps_is_left_out_of_longer_walks() -> None:
    def without(*cells: tuple[str, int, str]) -> list[Row]:
        named = ("question_id", "realization", "action")
        return [row for row in world(6, realizations=2) if tuple(row[name] for name in named) not in cells]

    rows = without(("q003", 1, "merge"))
    found = panel(from_rows(rows))
    first = panel(from_rows([row for row in rows if row["realization"] == 0]))
    went = walk(found, constant_plan(found, (2, 1)))
    place = [first.questions.index(name) for name in found.questions]
    assert np.array_equal(went.utility, walk(first, constant_plan(first, (2, 1))).utility[place])
    broken = panel(from_rows(without(("q003", 1, "merge"), ("q004", 0, "merge"))))
    with pytest.raises(InputError, match="no realization holds every action"):
        walk(broken, constant_plan(broken, (2, 1)))


def test_without_abstentions_there_is_one_look_only() -> None:
    found = replace(made(4), abstained=None)
    assert np.array_equal(walk(found, constant_plan(found, (1,))).utility, found.utility[:, :, 1])
    with pytest.raises(InputError, match="a ladder needs a column 'abstained' without gaps"):
        walk(found, constant_plan(found, (1, 0)))


# -- orders ------------------------------------------------------------------------------------------------------------


def test_orders_are_all_ordered_choices_the_short_ones_first() -> None:
    every = orders(4, looks=3)
    assert len(every) == 4 + 12 + 24 == len(set(every))
    assert [len(order) for order in every] == sorted(len(order) for order in every)
    assert set(every) == {order for k in (1, 2, 3) for order in permutations(range(4), k)}
    assert len(orders(5, looks=4)) == 205
    assert orders(1, looks=1) == [(0,)]


def test_too_many_orders_or_too_few_looks_are_refused() -> None:
    with pytest.raises(InputError, match=f"more than {MOST_ORDERS} orders of 4 looks: try fewer"):
        orders(20, looks=4)
    with pytest.raises(InputError, match="one look at least, not 0"):
        orders(3, looks=0)


def relay(questions: int = 40) -> list[Row]:
    """Extract is right on even questions and abstains on odd ones; merge is right on odd ones and wrong on even ones.

    Retain abstains always. So extract > merge is always right, and merge > extract half of the time.
    """
    rows = []
    for row in world(questions):
        even = int(row["question_id"][1:]) % 2 == 0
        right = {"retain": False, "extract": even, "merge": not even}[row["action"]]
        silent = row["action"] == "retain" or (row["action"] == "extract" and not even)
        rows.append(row | {"judge_llm": int(right), "abstained": int(silent)})
    return rows


def test_the_best_order_of_a_constructed_population_is_found() -> None:
    found = panel(from_rows(relay()))
    extract, merge = (found.actions.index(name) for name in ("extract", "merge"))
    every = orders(3, looks=3)
    values = worth(found, every, call_price=0.01, token_price=0.0)
    assert per_budget(values, every) == [(extract, merge)] * 2
    assert values.mean(axis=(1, 2))[every.index((extract, merge))] == pytest.approx(1 - 0.01 * 1.5)
    assert values.mean(axis=(1, 2))[every.index((merge, extract))] == pytest.approx(0.5 - 0.01)
    learned = fit_ladder(found)
    steps = plan(learned, found)
    assert set(looks_of(steps, found.actions)) == {("extract", "merge")}
    assert (walk(found, steps).utility == 1).all()


def test_prices_make_ladders_shorter() -> None:
    found = panel(from_rows(relay()))
    every = orders(3, looks=3)

    def lengths(call: float, token: float) -> list[int]:
        return [len(order) for order in per_budget(worth(found, every, call_price=call, token_price=token), every)]

    assert lengths(0.99, 0.0) == [2, 2]
    assert lengths(1.01, 0.0) == [1, 1]  # a second call every other time must bring half a point
    assert lengths(0.0, 0.049) == [2, 2]
    assert lengths(0.0, 0.051) == [1, 1]  # merge writes 20 tokens
    for price, size in ((0.01, 2), (2.0, 1)):
        told = looks_of(plan(fit_ladder(found, call_price=price), found), found.actions)
        assert {len(looks) for looks in told} == {size}


def test_an_order_that_only_adds_idle_looks_is_not_kept() -> None:
    learned = fit_ladder(panel(from_rows(relay())))
    assert ("extract", "merge") in learned.orders
    assert ("extract", "merge", "retain") not in learned.orders  # merge never abstains: the same everywhere


def test_a_ladder_follows_features_and_budgets() -> None:
    """Which of two actions answers hangs on the type at 32 tokens; at 64 retention has it all."""
    rows = []
    for row in world(60):
        temporal = row["type"].startswith("temporal")
        wants = "retain" if row["budget"] == 64 else "merge" if temporal else "extract"
        rows.append(row | {"judge_llm": int(row["action"] == wants), "abstained": 0})
    found = panel(from_rows(rows))
    steps = plan(fit_ladder(found), found)
    assert (walk(found, steps).utility == 1).all()
    first = {(int(found.types[q]) == 2, b): found.actions[steps[q, b, 0]] for q in range(60) for b in range(2)}
    assert first == {(True, 0): "merge", (False, 0): "extract", (True, 1): "retain", (False, 1): "retain"}


def test_names_and_orders_change_no_ladder() -> None:
    rows = world(25)
    one = fit_ladder(panel(from_rows(rows)))
    for seed in range(3):
        assert fit_ladder(panel(from_rows(renamed(rows, seed)), actions=["merge", "extract", "retain"])) == one


def test_one_budget_and_one_action_beside_retain_are_enough() -> None:
    found = panel(from_rows(world(12)), actions=["retain", "merge"], budgets=[64])
    learned = fit_ladder(found)
    assert set(learned.orders) <= {("retain",), ("merge",), ("retain", "merge"), ("merge", "retain")}
    assert list(learned.intercepts) == [64]
    assert plan(learned, found).shape[:2] == (12, 1)


# -- serving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_serving_takes_the_order_that_was_learned(seed: int) -> None:
    found = made(40, actions=("retain", "extract", "merge", "abstract"), budgets=(16, 32, 64), seed=seed)
    learned = fit_ladder(found, kept=30)
    planned: Plan = plan(learned, found)
    told = looks_of(planned, found.actions)
    served = [
        learned.order(vector(found, q, b), budget=budget) for q in range(40) for b, budget in enumerate(found.budgets)
    ]
    assert served == told
    assert len(set(told)) > 1


def test_a_panel_without_some_features_is_served_alike() -> None:
    rows = [{k: v for k, v in row.items() if k not in ("inconsistency", "similarity")} for row in world(20)]
    found = panel(from_rows(rows))
    learned = fit_ladder(found)
    assert "similarity" not in learned.features
    told = looks_of(plan(learned, found), found.actions)
    assert [learned.order(vector(found, q, b), budget=found.budgets[b]) for q in range(20) for b in range(2)] == told


def two(**levels: tuple[float, float]) -> Ladder:
    """Two orders whose worth is their level alone."""
    return Ladder(
        orders=(("extract", "merge"), ("retain",)),
        features=(),
        weights=((), ()),
        intercepts={int(budget[1:]): pair for budget, pair in levels.items()},
    )


def test_levels_are_interpolated_in_log_budget_and_held_beyond() -> None:
    ladder = two(b32=(1.0, 0.0), b128=(0.0, 2.0))
    assert ladder.levels(32) == (1.0, 0.0)
    assert ladder.levels(64) == pytest.approx((0.5, 1.0))
    assert ladder.levels(128) == (0.0, 2.0)
    assert ladder.levels(0) == ladder.levels(1) == ladder.levels(32)
    assert ladder.levels(10**9) == ladder.levels(128)
    assert ladder.levels(45)[0] == pytest.approx(1 - math.log2(45 / 32) / 2)
    assert [ladder.order([0.0] * 11, budget=b)[0] for b in (1, 32, 48, 64, 500)] == [
        "extract", "extract", "extract", "retain", "retain",
    ]  # fmt: skip


def test_of_equally_good_orders_the_earlier_is_taken() -> None:
    assert two(b32=(0.5, 0.5)).order([0.0] * 11, budget=32) == ("extract", "merge")
    assert two(b32=(0.5, 0.5 + 1e-14)).order([0.0] * 11, budget=32) == ("extract", "merge")


def test_actions_that_are_not_available_are_left_out_of_an_order() -> None:
    ladder = two(b32=(1.0, 0.5))
    assert ladder.order([0.0] * 11, budget=32, available=["retain", "extract"]) == ("extract",)
    assert ladder.order([0.0] * 11, budget=32, available=["retain"]) == ("retain",)
    assert ladder.order([0.0] * 11, budget=32, available=["rewrite"]) == ()
    assert ladder.order([0.0] * 11, budget=32, available=[]) == ()


def test_a_router_gives_its_ladders_order_with_every_decision() -> None:
    found = made(30)
    router = replace(fit(found, name="r"), ladder=fit_ladder(found))
    for q in range(5):
        decision = router.decide(vector(found, q, 0), budget=32)
        assert router.ladder is not None
        assert decision.order == router.ladder.order(vector(found, q, 0), budget=32)
        assert decision.to_dict()["order"] == list(decision.order)
        free = router.decide(vector(found, q, 0), budget=32, available=["retain", "extract"])
        assert set(free.order) <= {"retain", "extract"}
        assert free == router.decide(vector(found, q, 0), budget=32, available=iter(["retain", "extract"]))
        assert router.decide(vector(found, q, 0), budget=32, exclude=["extract"]).order == decision.order
    assert replace(router, ladder=None).decide(vector(found, 0, 0), budget=32).order == ()


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain() -> dict[str, Any]:
    found = made(20)
    return replace(fit(found, name="r"), ladder=fit_ladder(found, kept=3)).to_dict()


def test_a_ladder_survives_its_file(tmp_path: Path, plain: dict[str, Any]) -> None:
    router = Router.load(plain)
    router.save(tmp_path / "r.json")
    assert Router.load(tmp_path / "r.json") == router
    assert Router.load(tmp_path / "r.json").ladder == router.ladder
    assert json.loads((tmp_path / "r.json").read_text()) == plain


FAULTS: list[tuple[str, Any, str]] = [
    ("orders", [], "orders must be lists of distinct actions"),
    ("orders", [[], ["retain"], ["merge"]], "orders must be lists of distinct actions"),
    ("orders", [["merge", "merge"], ["retain"], ["merge"]], "orders must be lists of distinct actions"),
    ("orders", ["retain", "merge", "extract"], "'retain' is not a list"),
    ("orders", [["retain"], ["merge"]], "there are 2 orders, and every one needs weights and a level"),
    ("orders", [["retain"], ["merge"], ["dream"]], "the ladder names dream, which the router does not know"),
    ("orders", [["retain"], ["merge"], [7]], "actions must be names"),
    ("orders", 3, "wrong shape"),
    ("features", ["colour"], "features must be distinct names out of budget, notes"),
    ("features", ["fit", "fit"], "features must be distinct names"),
    ("features", ["fit"], "every order needs 1 weights, one a feature"),
    ("weights", [[math.nan] * 11] * 3, "every number must be finite"),
    ("weights", [[True] * 11] * 3, "True is not a number"),
    ("weights", [[0.0] * 11] * 2, "there are 3 orders"),
    ("weights", [[0.0] * 10] * 3, "every order needs 11 weights"),
    ("intercepts", {}, "levels must be given at budgets of 1 or more"),
    ("intercepts", {"0": [0.0] * 3}, "levels must be given at budgets of 1 or more"),
    ("intercepts", {"-5": [0.0] * 3}, "levels must be given at budgets of 1 or more"),
    ("intercepts", {"many": [0.0] * 3}, "wrong shape"),
    ("intercepts", {"32": [0.0] * 2}, "there are 3 orders"),
    ("intercepts", {"32": [math.inf] * 3}, "every number must be finite"),
    ("call_price", math.nan, "every number must be finite"),
    ("call_price", "free", "'free' is not a number"),
    ("levles", {}, "the ladder has unknown entries: levles"),
]


@pytest.mark.parametrize(("key", "value", "said"), FAULTS)
def test_a_malformed_ladder_is_one_clear_line(plain: dict[str, Any], key: str, value: Any, said: str) -> None:
    broken = copy.deepcopy(plain)
    broken["ladder"][key] = value
    with pytest.raises(RouterError) as caught:
        Router.load(broken)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["orders", "features", "weights", "intercepts"])
def test_a_ladder_without_a_needed_entry_is_one_clear_line(plain: dict[str, Any], key: str) -> None:
    del plain["ladder"][key]
    with pytest.raises(RouterError, match=key):
        Router.load(plain)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.sampled_from(["retain", "fit"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_PLAIN = replace(fit(made(12), name="r"), ladder=fit_ladder(made(12), kept=3)).to_dict()


@example(0.25, "call_price")
@example(None, None)
@given(anything, st.sampled_from(["orders", "features", "weights", "intercepts", "call_price", "token_price", None]))
def test_any_ladder_is_a_ladder_or_a_router_error(value: Any, key: str | None) -> None:
    broken = copy.deepcopy(_PLAIN)
    if key is None:
        broken["ladder"] = value
    else:
        broken["ladder"][key] = value
    try:
        router = Router.load(broken)
    except RouterError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert set(router.decide([0.5] * 11, budget=48).order) <= set(router.actions)
