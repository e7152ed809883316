"""Advice on made outcomes whose truth is known: what is sure is found, what is not there is not invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from retcon.errors import InputError
from retcon.features import TYPES
from retcon.lab.advice_page import own_page, sample_page
from retcon.lab.advise import (
    DEFAULT,
    FIXED,
    LEARNED,
    Advice,
    advise,
    check_cost,
    price,
    questions_needed,
    read_advice,
    router_plan,
)
from retcon.lab.outcomes import Outcomes, from_rows, panel
from retcon.lab.stats import Estimate
from retcon.memory import Memory
from retcon.model import FakeChat
from retcon.route import Router, default_router

BUDGETS = (64, 256)
Chance = Callable[[float], float]  # of a right answer, by the fit of the question


def always(action: str, *others: str) -> Router:
    """A router that takes one action for everything."""
    actions = tuple(sorted({"retain", action, *others}, key=lambda name: (name != "retain", name)))
    return Router(
        name=f"always-{action}", actions=actions, features=("fit",), weights=dict.fromkeys(actions, (0.0,)),
        intercepts={name: float(name == action) for name in actions},
    )  # fmt: skip


def made(
    right: Mapping[str, float | Chance], *, n: int, seed: int, unanswerable: float = 0.0, silent: float = 0.5,
    budgets: Sequence[int] = BUDGETS,
) -> Outcomes:  # fmt: skip
    """Questions that each action answers with its chance; of wrong replies a share is an abstention instead."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        gone, fit = i < n * unanswerable, float(rng.random())
        for budget in budgets:
            known = _known(rng, fit)
            for action, chance in right.items():
                good = not gone and rng.random() < (chance(fit) if callable(chance) else chance)
                rows.append(
                    {
                        "dataset": "mine", "setting": "product", "question_id": f"q{i:03}", "budget": budget,
                        "action": action, "abstention": "yes" if gone else "", "judge_x": float(good),
                        "abstained": float(not good and rng.random() < silent), "reader": "r", **known,
                    }
                )  # fmt: skip
    return from_rows(rows)


def _known(rng: Generator, fit: float) -> dict[str, float]:
    types = dict(zip((f"p_{name}" for name in TYPES), rng.dirichlet(np.ones(len(TYPES))).tolist(), strict=True))
    seen = {"notes": float(rng.integers(1, 20)), "cluster_tokens": float(rng.integers(90, 2000)), "sessions": 1.0}
    return {**seen, "fit": fit, "inconsistency": 0.1, "similarity": 0.5, **types}


def advice_of(table: Outcomes, router: Router | None = None, **more: Any) -> Advice:
    found = panel(table)
    kinds = dict(zip(table.columns["question_id"], table.columns["abstention"], strict=True))
    gone = np.array([kinds[name] == "yes" for name in found.questions])
    return advise(found, gone, router=router, **{"draws": 1000, **more})


# -- what is sure is found ---------------------------------------------------------------------------------------------


def test_a_fixed_action_that_is_surely_better_than_the_default_is_advised_with_its_true_gain() -> None:
    table = made({"retain": 0.2, "extract": 0.3, "merge": 0.7}, n=120, seed=1, unanswerable=0.2)
    found = advice_of(table, always("extract", "merge"))
    assert found.use == FIXED
    assert found.fixed == {64: "merge", 256: "merge"}
    gain = found.score(FIXED).over_default
    assert gain is not None
    assert gain.low < 0.8 * 0.4 * 1.25 < gain.high, "a reply more is right, and a quarter of one less wrong, at cost .5"
    assert [each.use for each in found.standings] == ["merge", "merge"]
    said = own_page(found, {}).markdown()
    assert "USE A FIXED ACTION at each budget, merge at 64, 256 tokens: +." in said


def test_a_router_learned_on_the_questions_is_advised_where_no_fixed_action_does_as_well() -> None:
    right: dict[str, float | Chance] = {
        "retain": lambda fit: 0.9 if fit > 0.5 else 0.1,
        "extract": lambda fit: 0.1 if fit > 0.5 else 0.9,
    }
    found = advice_of(made(right, n=160, seed=2), always("extract"))
    assert found.use == LEARNED
    assert found.learned_over_fixed.low > 0
    said = own_page(found, {"router": "advice/router.json"}).markdown()
    assert "USE THE ROUTER LEARNED ON YOUR QUESTIONS" in said
    assert "router='advice/router.json'" in said


def test_a_default_that_is_surely_the_best_is_kept_and_called_so() -> None:
    found = advice_of(made({"retain": 0.2, "extract": 0.8, "merge": 0.3}, n=100, seed=3), always("extract", "merge"))
    assert found.use == DEFAULT
    assert all(each.sure and each.use == DEFAULT for each in found.standings)
    assert found.standings[0].takes == {"extract": 1.0}
    assert "At 64 tokens the default HOLDS" in sample_page(found).markdown()


def test_where_the_default_is_beaten_at_one_budget_that_budget_alone_is_named() -> None:
    low = made({"retain": 0.3, "extract": 0.7}, n=80, seed=4, budgets=(64,))
    high = made({"retain": 0.8, "extract": 0.3}, n=80, seed=4, budgets=(256,))
    found = advice_of(from_rows([*low.rows(), *high.rows()]), always("extract"))
    assert [each.use for each in found.standings] == [DEFAULT, "retain"]
    said = sample_page(found).markdown()
    assert "At 64 tokens the default HOLDS" in said
    assert "At 256 tokens the default does NOT hold: retain +." in said
    assert "recall(..., action='retain')" in said


# -- what is not there is not invented ---------------------------------------------------------------------------------


def test_actions_that_are_all_alike_hardly_ever_unseat_the_default() -> None:
    """Two rivals at 97.5 % and three actions at 98.3 % each: of 60 draws one or two may be misled."""
    uses, budgets = [], []
    for seed in range(60):
        table = made({"retain": 0.4, "extract": 0.4, "merge": 0.4}, n=40, seed=seed, unanswerable=0.2)
        found = advice_of(table, always("extract", "merge"), draws=500, seed=seed)
        uses.append(found.use != DEFAULT)
        budgets += [each.use != DEFAULT for each in found.standings]
    assert sum(uses) <= 4
    assert sum(budgets) <= 9


def test_what_was_chosen_on_other_questions_does_not_look_better_than_it_is() -> None:
    names = ("retain", "extract", "merge")
    best, fixed = [], []
    for seed in range(20):
        table = made(dict.fromkeys(names, 0.5), n=40, seed=seed, silent=1.0, budgets=(64,))
        found = advice_of(table, always("extract", "merge"), draws=100, seed=seed)
        best.append(max(found.score(name).utility for name in names))
        fixed.append(found.score(FIXED).utility)
    assert np.mean(best) > 0.55, "with hindsight"
    assert np.mean(fixed) < 0.52


def test_thirty_questions_cannot_tell_yet_and_say_how_many_would() -> None:
    found = advice_of(made({"retain": 0.4, "extract": 0.4, "merge": 0.48}, n=30, seed=9), always("extract", "merge"))
    assert found.use == DEFAULT
    assert found.small_needed is not None
    assert found.small_needed > 300
    said = own_page(found, {}).markdown()
    assert "KEEP THE ROUTER THAT SHIPS" in said
    assert "30 questions cannot tell yet" in said
    assert f"one of .05 takes about {found.small_needed:,} questions" in said


def test_as_many_questions_as_would_do_show_the_gain_four_times_in_five() -> None:
    right = {"retain": 0.3, "extract": 0.5}
    pilot = advice_of(made(right, n=400, seed=0, budgets=(64,)), always("retain", "extract"))
    gain = pilot.score(FIXED).over_default
    assert gain is not None
    n = questions_needed(gain, 400, size=0.25)  # .2 more right, a tenth less wrong, at cost .5 and half silent
    assert n is not None
    assert 60 < n < 250
    shown = 0
    for seed in range(1, 61):
        found = advice_of(made(right, n=n, seed=seed, budgets=(64,)), always("retain", "extract"), draws=400)
        shown += found.use != DEFAULT
    assert 0.62 <= shown / 60 <= 0.95


def test_the_questions_needed_grow_with_the_square_of_what_is_looked_for() -> None:
    gain = Estimate(0.1, -0.1, 0.3, 50)
    assert questions_needed(gain, 50, size=0.1) == questions_needed(gain, 50)
    ratio = (questions_needed(gain, 50, size=0.05) or 0) / (questions_needed(gain, 50, size=0.1) or 1)
    assert ratio == pytest.approx(4, rel=0.01)
    assert questions_needed(Estimate(0.0, 0.0, 0.0, 50), 50, size=0.1) is None
    assert questions_needed(Estimate(-0.1, -0.2, 0.0, 50), 50) is None


def test_below_twenty_questions_nothing_is_sure_and_that_is_said() -> None:
    found = advice_of(made({"retain": 0.0, "extract": 1.0}, n=12, seed=1), always("retain", "extract"))
    assert found.few
    assert found.use == DEFAULT
    assert all(each.use == DEFAULT for each in found.standings)
    said = own_page(found, {}).markdown()
    assert "12 questions are too few to tell" in said
    assert "Anything for sure" in said


def test_questions_of_few_conversations_count_as_those_conversations() -> None:
    table = made({"retain": 0.2, "extract": 0.8}, n=60, seed=1)
    assert advice_of(table, always("retain", "extract")).use == FIXED
    rows = [row | {"conversation": f"t{int(row['question_id'][1:]) % 6}"} for row in table.rows()]
    found = advice_of(from_rows(rows), always("retain", "extract"))
    assert (found.group, found.units, found.few, found.use) == ("conversation", 6, True, DEFAULT)


# -- right, wrong, or no answer ----------------------------------------------------------------------------------------


def test_an_answer_to_an_unanswerable_question_is_wrong_and_an_abstention_is_nothing() -> None:
    seen = _known(np.random.default_rng(0), 0.5)
    rows = [
        {"question_id": f"q{i}", "budget": 64, "action": action, "judge_x": judged, "abstained": silent,
         "abstention": gone, **seen}
        for i, gone, judged, silent in (
            (0, "", 1.0, 0.0), (1, "", 0.0, 0.0), (2, "", 0.0, 1.0), (3, "yes", 1.0, 1.0), (4, "yes", 1.0, 0.0),
        )
        for action in ("retain", "extract")
    ]  # fmt: skip
    table = from_rows(rows)
    found = panel(table)
    gone = np.array([name in ("q3", "q4") for name in found.questions])
    priced = price(found, gone, wrong_cost=0.5)
    by_name = dict(zip(found.questions, priced.panel.utility[:, 0, 0].tolist(), strict=True))
    assert by_name == {"q0": 1.0, "q1": -0.5, "q2": 0.0, "q3": 0.0, "q4": -0.5}
    score = advice_of(table).score("retain")
    assert (score.right, score.wrong, score.none) == pytest.approx((0.2, 0.4, 0.4))
    assert score.utility == pytest.approx(0.0)


def test_the_price_of_a_wrong_answer_turns_the_advice() -> None:
    """Bold is right more often, and wrong wherever it is not; shy says nothing instead."""
    bold = made({"retain": 0.55}, n=200, seed=1, silent=0.0, unanswerable=0.3)
    shy = made({"extract": 0.4}, n=200, seed=1, silent=1.0, unanswerable=0.3)
    table = from_rows([*bold.rows(), *shy.rows()])
    cheap = advice_of(table, always("extract"), wrong_cost=0.0)
    assert (cheap.use, set(cheap.fixed.values())) == (FIXED, {"retain"})
    dear = advice_of(table, always("retain", "extract"), wrong_cost=1.0)
    assert (dear.use, set(dear.fixed.values())) == (FIXED, {"extract"})
    assert advice_of(table, always("extract"), wrong_cost=1.0).use == DEFAULT


def test_the_page_also_says_what_the_advice_is_where_wrong_answers_cost_nothing() -> None:
    bold = made({"retain": 0.55}, n=120, seed=1, silent=0.0, unanswerable=0.3)
    shy = made({"extract": 0.3}, n=120, seed=1, silent=1.0, unanswerable=0.3)
    table = from_rows([*bold.rows(), *shy.rows()])
    found, _ = read_advice(table, judge="x", wrong_cost=1.0, draws=500)
    assert found.unpriced is not None
    assert (found.unpriced.wrong_cost, found.unpriced.unpriced) == (0.0, None)
    assert set(found.fixed.values()) == {"extract"}
    assert set(found.unpriced.fixed.values()) == {"retain"}
    assert "With wrong answers for free (--wrong-cost 0) the advice is" in own_page(found, {}).markdown()
    assert "With wrong answers for free (--wrong-cost 0): " in sample_page(found).markdown()
    assert found.to_dict()["unpriced"]["wrong_cost"] == 0.0
    free, _ = read_advice(table, judge="x", wrong_cost=0.0, draws=500)
    assert free.unpriced is None
    assert "for free" not in own_page(free, {}).markdown()


def test_what_is_missing_among_the_questions_is_said() -> None:
    found = advice_of(made({"retain": 0.05, "extract": 0.05}, n=40, seed=1))
    said = own_page(found, {}).markdown()
    assert "False answers where memory holds none: none of the questions" in said
    assert "this reader is right in less than .10 of cases" in said
    more = made({"retain": 0.5, "extract": 0.5}, n=100, seed=1, unanswerable=0.2)
    known = [row | {"grader": "r", "judge_llm": row["judge_x"]} for row in more.rows()]
    judged, _ = read_advice(from_rows(known), judge="llm", draws=100)
    said = own_page(judged, {}).markdown()
    assert "the reader judged its own replies" in said
    assert "False answers" not in said


# -- the default, as it serves -----------------------------------------------------------------------------------------


def test_the_default_is_judged_by_the_decisions_that_a_memory_takes() -> None:
    from retcon.lab.data import load
    from retcon.lab.label import cells, label
    from retcon.lab.protocols import PROTOCOLS, cases
    from retcon.lab.reply_cache import ReplyCache

    asked = load("sample-more").questions[::12]
    model, router = FakeChat(lambda ask: "x", name="m"), default_router(writes=True)
    todo = cells(cases(asked, PROTOCOLS["product"]), router.actions, budgets=BUDGETS)
    table = label(todo, model, ReplyCache(":memory:"), judged=False).outcomes
    assert table is not None
    found = panel(table, actions=router.actions, judge="strict")
    plan = router_plan(found, router)
    texts = {question.id: question.text for question in asked}
    with Memory(":memory:", model=model) as memory:
        memory.add([note.to_dict() for note in asked[0].history])
        for q, name in enumerate(found.questions):
            for b, budget in enumerate(BUDGETS):
                assert found.actions[plan[q, b, 0]] == memory.decide(texts[name], budget).action


# -- what cannot be advised on -----------------------------------------------------------------------------------------


def test_advice_needs_a_choice_five_questions_abstentions_and_a_price() -> None:
    with pytest.raises(InputError, match="retain alone"):
        advice_of(made({"retain": 0.5}, n=10, seed=1))
    with pytest.raises(InputError, match="needs 5 questions with complete outcomes, there are 4"):
        advice_of(made({"retain": 0.5, "extract": 0.5}, n=4, seed=1))
    rows = [
        {name: value for name, value in row.items() if name != "abstained"}
        for row in made({"retain": 0.5, "extract": 0.5}, n=8, seed=1).rows()
    ]
    with pytest.raises(InputError, match="where the reader abstained"):
        advice_of(from_rows(rows))
    for cost in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="a wrong answer costs 0 or more"):
            check_cost(cost)
