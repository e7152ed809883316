"""Cross-fitting: no policy sees what it is tested on, and what it came to is counted right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_outcomes import RAW, Row, renamed, world

from retcon.errors import InputError
from retcon.lab.calibrate import paper_threshold
from retcon.lab.crossfit import (
    LADDERS,
    LEARNERS,
    TWICE,
    VOTE,
    Calibrated,
    CrossFit,
    Direct,
    PlanMaker,
    Policy,
    Result,
    Rules,
    _ask_both,
    advantages,
    always,
    crossfit,
    default_policies,
    extra_names,
    holdout,
)
from retcon.lab.fit import Mlp, folds, predictor, question_groups
from retcon.lab.fit_ladder import Plan, constant_plan
from retcon.lab.outcomes import Panel, from_rows, panel
from retcon.lab.querytype import cue_matrix, split_probabilities

Dealt = NDArray[np.int64]
QUICK = {name: policy for name, policy in LEARNERS.items() if name != "MLP"} | {"MLP": Direct(Mlp(epochs=20))}


def made(questions: int = 40, **options: Any) -> Panel:
    return panel(from_rows(world(questions, **options)))


def dealt(found: Panel, k: int = 5) -> Dealt:
    return folds(np.arange(len(found.questions)), k, seed=1)


class Watched:
    """A policy that keeps, by question, the plan that was made of it, and every panel it was shown."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plans: dict[str, list[list[int]]] = {}
        self.shown: list[tuple[Panel, Panel, Panel]] = []

    def __call__(self, train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        make = self.policy(train, calibration, rules)

        def watched(seen: Panel) -> Plan:
            plan = make(seen)
            self.shown.append((train, calibration, seen))
            self.plans |= {name: plan[i].tolist() for i, name in enumerate(seen.questions)}
            return plan

        return watched


def plans(found: Panel, policies: Mapping[str, Policy], fold_of: Dealt, **options: Any) -> dict[str, Watched]:
    watched = {name: Watched(policy) for name, policy in policies.items()}
    crossfit(found, policies=watched, fold_of=fold_of, **options)
    return watched


# -- nobody looks ahead ------------------------------------------------------------------------------------------------


def scrambled(found: Panel, who: NDArray[np.bool_], seed: int) -> Panel:
    """The panel with any other outcomes for these questions; what is known before generation stays."""
    rng = np.random.default_rng(seed)

    def other(values: NDArray[np.float64]) -> NDArray[np.float64]:
        mask = who.reshape(-1, *[1] * (values.ndim - 1))
        return np.where(mask, (rng.random(values.shape) > 0.5).astype(float), values)

    changed: dict[str, Any] = {
        name: other(getattr(found, name)) for name in ("runs", "retained", "retentions", "abstained", "logprob")
    }
    return replace(found, tokens={name: other(values) for name, values in found.tokens.items()}, **changed)


def test_no_plan_depends_on_the_outcomes_it_is_tested_on() -> None:
    found = made(40)
    fold_of = dealt(found)
    policies: dict[str, Policy] = {**QUICK, **LADDERS}
    loose = Rules(alpha=0.6, delta=0.4)  # eight calibration questions certify little
    before = plans(found, policies, fold_of, rules=loose)
    moved = dict.fromkeys(policies, 0)
    for fold in range(5):
        after = plans(scrambled(found, fold_of == fold, fold), policies, fold_of, rules=loose)
        for name in policies:
            for place, question in enumerate(found.questions):
                changed = before[name].plans[question] != after[name].plans[question]
                if fold_of[place] == fold:
                    assert not changed, f"{name} looked at {question}"
                moved[name] += changed
    still = [name for name, times in moved.items() if not times]
    assert not still, f"the outcomes of others move nothing either: {still}"


def test_what_is_tested_shows_features_and_nothing_else() -> None:
    found = made(30)
    looked = []

    def peeks(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        def make(seen: Panel) -> Plan:
            looked.append(seen)
            wanted = np.where(np.isnan(seen.utility), -1.0, seen.utility)
            return np.asarray(np.argmax(wanted, axis=2)[:, :, None])  # all NaN: the first, retain

        return make

    result = crossfit(found, policies={"peeks": peeks}).results["peeks"]
    assert result.replaced.sum() == 0
    for seen in looked:
        assert np.isnan(seen.utility).all()
        assert (seen.abstained, seen.logprob, dict(seen.tokens)) == (None, None, {})


def test_training_calibration_and_test_questions_are_apart_and_all_are_tested_once() -> None:
    found = made(31)
    watched = plans(found, {"direct": Direct()}, dealt(found))["direct"]
    for train, calibration, seen in watched.shown:
        parts = [set(each.questions) for each in (train, calibration, seen)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 31
        assert len(parts[0]) > len(parts[1])
    assert sorted(watched.plans) == sorted(found.questions)
    assert sum(len(seen.questions) for _, _, seen in watched.shown) == 31


def test_conversations_stay_together() -> None:
    found = made(40, talks=9)
    watched = Watched(Direct())
    crossfit(found, policies={"direct": watched}, rules=Rules(group="conversation"), repeats=2)
    assert len(watched.shown) == 10
    for train, calibration, seen in watched.shown:
        parts = [set(each.conversations) for each in (train, calibration, seen)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 9


# -- guessed types -----------------------------------------------------------------------------------------------------

ASKED = {
    0: ("What is my cat's name?", "Where did I put the key?", "Who called?"),
    1: ("How many trips in total?", "How much did I spend altogether?", "Which of the various kinds do I own?"),
    2: ("When did I move?", "How many days ago was the test?", "Which came first?"),
    3: ("Where do I currently work?", "What is my latest address?", "How often do I still run?"),
}


def texts(found: Panel) -> dict[str, str]:
    return {
        name: ASKED[int(kind)][i % 3] for i, (name, kind) in enumerate(zip(found.questions, found.types, strict=True))
    }


def retyped(found: Panel, who: NDArray[np.bool_]) -> Panel:
    """The panel with another type for these questions."""
    types = np.where(who, (found.types + 1) % 4, found.types)
    return replace(found, types=types).with_types(np.eye(4)[types])


def test_guessed_types_do_not_depend_on_the_types_of_tested_or_calibrating_questions() -> None:
    found = made(36)
    fold_of, asked = dealt(found, 3), texts(found)
    before = plans(found, {"direct": Direct()}, fold_of, k=3, queries=asked)["direct"]
    other = retyped(found, fold_of != 0)  # fold 1 tests, fold 2 calibrates, fold 0 teaches
    after = plans(other, {"direct": Direct()}, fold_of, k=3, queries=asked)["direct"]
    for old, new in zip(before.shown[1], after.shown[1], strict=True):
        assert np.array_equal(old.x, new.x)
    tested = [q for q, place in zip(found.questions, fold_of, strict=True) if place == 1]
    assert [before.plans[q] for q in tested] == [after.plans[q] for q in tested]
    assert not np.array_equal(before.shown[0][2].x, after.shown[0][2].x)  # fold 2 teaches there
    given = plans(other, {"direct": Direct()}, fold_of, k=3)["direct"]  # types as they stand
    assert not np.array_equal(given.shown[1][2].x, before.shown[1][2].x)


def test_guessed_types_are_those_of_the_query_type_model() -> None:
    found = made(36, talks=12)
    groups, asked = question_groups(found, "conversation"), texts(found)
    fold_of, cues = folds(groups, 3, seed=1), cue_matrix([asked[name] for name in found.questions])
    watched = plans(found, {"direct": Direct()}, fold_of, k=3, queries=asked, rules=Rules(group="conversation"))[
        "direct"
    ]
    for fold, (train, calibration, seen) in enumerate(watched.shown):
        masks = [fold_of == (fold + step) % 3 for step in (2, 1, 0)]
        p = split_probabilities(cues, found.types, groups, training=masks[0], seed=0)
        for part, mask in zip((train, calibration, seen), masks, strict=True):
            np.testing.assert_allclose(part.x[:, 0, -4:], p[mask], atol=1e-12)


def test_questions_without_a_type_teach_the_type_model_nothing() -> None:
    rows = [row | ({"type": ""} if int(row["question_id"][1:]) % 3 == 0 else {}) for row in world(30)]
    found = panel(from_rows(rows))
    asked = dict.fromkeys(found.questions, "What is it?")
    result = crossfit(found, policies={"direct": Direct()}, queries=asked, k=3)
    assert not np.isnan(result.results["direct"].utility).any()
    with pytest.raises(InputError, match="30 questions have no text, the first: "):
        crossfit(found, policies={"direct": Direct()}, queries={})


# -- counting ----------------------------------------------------------------------------------------------------------

# Nine questions, one budget, folds of three: fold f is tested by what fold f + 2 taught (f + 1 calibrates).
RETAIN = (1, 1, 0, 0, 0, 1, 1, 0, 0)
MERGE = (0, 1, 0, 1, 1, 0, 1, 0, 0)
FIT = (1.0, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5)


def tiny() -> tuple[Panel, Dealt, list[int]]:
    rows: list[Row] = []
    for q, (retain, merge, fit) in enumerate(zip(RETAIN, MERGE, FIT, strict=True)):
        about = {"question_id": f"q{q}", "budget": 32, "fit": fit, "notes": q, "context_tokens": 10 + q}
        rows.append(about | {"action": "retain", "judge_llm": retain, "abstained": 1 - retain})
        rows.append(about | {"action": "merge", "judge_llm": merge, "abstained": 0})
    found = panel(from_rows(rows))
    place = [int(name[1:]) for name in found.questions]
    return found, np.array([q // 3 for q in place]), place


def test_a_small_example_is_as_counted_by_hand() -> None:
    found, fold_of, place = tiny()
    policies = {name: policy for name, policy in default_policies(found).items() if name != "MLP"}
    results = crossfit(found, fold_of=fold_of, k=3, policies=policies).results

    def of(name: str, part: str = "utility") -> list[float]:
        values = getattr(results[name], part)[:, 0].tolist()
        return [values[place.index(q)] for q in range(9)]

    assert of("retention") == list(RETAIN)
    assert of("always merge") == of("training-selected operator") == list(MERGE)
    # taught by fold 2 (a tie: retain), by fold 0 (2 against 1: retain), by fold 1 (1 against 2: merge)
    assert of("best fixed action") == [1, 1, 0, 0, 0, 1, 1, 0, 0]
    # all fits on questions 0 and 4: retain; merge elsewhere
    assert of("evidence-fit rule") == [1, 1, 0, 1, 0, 0, 1, 0, 0]
    assert of("evidence-fit rule", "replaced") == [0, 1, 1, 1, 0, 1, 1, 1, 1]
    assert of("always merge", "harmed") == [1, 0, 0, 0, 0, 1, 0, 0, 0]
    assert of("evidence-fit rule", "harmed") == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert of("binary oracle") == of("action oracle") == [1, 1, 0, 1, 1, 1, 1, 0, 0]
    # retain abstains where it is wrong: taught by folds 2 and 0 it is best alone, by fold 1 with merge after it
    assert of("ladder, one order a budget") == [1, 1, 0, 0, 0, 1, 1, 0, 0]
    assert of("ladder, one order a budget", "calls") == [1, 1, 1, 1, 1, 1, 1, 2, 2]
    assert of("retention", "read") == [10 + q for q in range(9)]
    assert of("ladder, one order a budget", "read") == [10 + q for q in range(7)] + [34, 36]
    assert results["retention"].macro == pytest.approx(4 / 9)
    assert results["always merge"].chosen[:, 0].tolist() == [[0, 1]] * 9


def test_retention_harms_nobody_and_oracles_are_never_beaten() -> None:
    for seed in range(3):
        found = made(40, seed=seed)
        policies: dict[str, Policy] = {**default_policies(found), "MLP": Direct(Mlp(epochs=10))}
        results = crossfit(found, policies=policies, rules=Rules(seed=seed)).results
        assert results["retention"].harmed.sum() == results["retention"].replaced.sum() == 0
        assert (results["retention"].calls == 1).all()
        best, binary = results["action oracle"], results["binary oracle"]
        for name, each in results.items():
            if name != TWICE:  # another budget
                assert (best.utility >= each.utility - 1e-12).all(), name
        for name in ("retention", "training-selected operator", "evidence-fit rule"):
            assert (binary.utility >= results[name].utility - 1e-12).all()
        assert best.harmed.sum() == binary.harmed.sum() == 0
        for each in results.values():
            assert (each.chosen.sum(axis=2)[each.seen] == 1).all()


def test_a_ladder_whose_answer_is_retentions_does_no_harm() -> None:
    """Retention has several runs: the one that the ladder saw may be below their mean, and nothing was replaced."""
    rows = []
    for row in world(20, actions=("retain", "merge")):
        rows.append(row | {"judge_llm": 0, "abstained": 0})
        if row["action"] == "retain":
            rows.append(row | {"pair": "merge", "judge_llm": 1})
    found = panel(from_rows(rows))
    assert (found.retentions == 0.5).all()

    def climbs(train: Panel, calibration: Panel, rules: Rules) -> PlanMaker:
        return lambda seen: constant_plan(seen, (0, 1))

    results = crossfit(found, policies={"climbs": climbs, "merge": always(1)}).results
    assert results["climbs"].harmed.sum() == results["climbs"].replaced.sum() == 0
    assert results["merge"].harmed.all()


def test_calibrated_replaces_where_the_threshold_of_its_rotation_is_reached() -> None:
    found = made(40)
    fold_of = dealt(found)
    watched = Watched(Calibrated())
    fitted = crossfit(found, policies={"calibrated": watched}, fold_of=fold_of, rules=Rules(cap=0.1))
    for fold, (train, calibration, seen) in enumerate(watched.shown):
        model = predictor(train)
        best, advantage = advantages(model, calibration)
        chosen = np.take_along_axis(calibration.utility, best[:, :, None], axis=2)[:, :, 0]
        there, margin = advantages(model, seen)
        for b, budget in enumerate(found.budgets):
            tau = paper_threshold(advantage[:, b], chosen[:, b], calibration.retentions[:, b], cap=0.1)
            assert fitted.thresholds["calibrated"][fold][budget] == tau
            expected = np.where(margin[:, b] >= tau.tau, there[:, b], 0).tolist()
            assert [watched.plans[q][b][0] for q in seen.questions] == expected


def test_certified_thresholds_say_what_they_promise() -> None:
    found = made(60)
    fitted = crossfit(found, policies={"direct": Direct()}, rules=Rules(alpha=0.3, delta=0.2))
    assert len(fitted.thresholds["certified"]) == 5
    for each in fitted.thresholds["certified"]:
        assert {budget: (t.alpha, t.delta, t.questions) for budget, t in each.items()} == {
            32: (0.3, 0.2, 12), 64: (0.3, 0.2, 12),
        }  # fmt: skip


def test_twice_the_budget_is_the_fixed_action_there() -> None:
    found = made(30, budgets=(16, 32, 100))
    results = crossfit(found, policies={"fixed": LEARNERS["best fixed action"]}).results
    twice, fixed = results[TWICE], results["fixed"]
    assert np.array_equal(twice.utility[:, 0], fixed.utility[:, 1])
    assert np.array_equal(twice.read[:, 0], fixed.read[:, 1])
    assert np.isnan(twice.utility[:, 1:]).all()
    assert twice.seen.all(axis=0).tolist() == [True, False, False]
    assert twice.macro == pytest.approx(float(fixed.utility[:, 1].mean()))


def test_a_vote_reads_two_answers_and_an_abstention_never_wins() -> None:
    rows = []
    for row in world(30):
        even = int(row["question_id"][1:]) % 2 == 0
        right = row["action"] == ("extract" if even else "merge")
        rows.append(row | {"judge_llm": int(right), "abstained": int(not right)})
    vote = crossfit(panel(from_rows(rows)), policies={"a": always(0)}).results[VOTE]
    assert (vote.utility == 1).all()
    assert (vote.calls == 2).all()
    # where both answer, the likelier stands
    rows = [row | {"abstained": 0, "logprob": -1.0 if row["judge_llm"] else -2.0} for row in rows]
    assert (crossfit(panel(from_rows(rows)), policies={"a": always(0)}).results[VOTE].utility == 1).all()


def test_a_vote_counts_only_realizations_in_which_both_were_asked() -> None:
    # extract was asked once and abstained; merge thrice: wrong, right, and at last it abstained
    rows = []
    for row in world(20, realizations=3):
        if row["action"] == "extract" and row["realization"]:
            continue
        right = row["action"] == "merge" and row["realization"] == 1
        silent = row["action"] != "merge" or row["realization"] == 2
        rows.append(row | {"judge_llm": int(right), "abstained": int(silent)})
    found = panel(from_rows(rows))
    vote = _ask_both(found, (found.actions.index("merge"), found.actions.index("extract")))
    assert vote.utility.tolist() == [[0.0, 0.0]] * 20
    back = _ask_both(found, (found.actions.index("extract"), found.actions.index("merge")))
    assert back.utility.tolist() == vote.utility.tolist()
    three = _ask_both(found, (found.actions.index("merge"), 0))
    assert np.allclose(three.utility, 1 / 3)


def test_another_judge_scores_what_the_first_one_taught() -> None:
    rows = world(60, realizations=1)
    first, second = (panel(from_rows(rows), judge=judge) for judge in ("llm", "overlap"))
    watched, alone = Watched(Direct()), Watched(Direct())
    crossfit(first, policies={"direct": alone})
    found = crossfit(first, policies={"direct": watched}, scored=second.take(np.arange(60)[::-1]))
    assert watched.plans == alone.plans
    assert (found.panel.judge, found.panel.questions) == ("overlap", first.questions)
    other = dict(zip(second.questions, second.utility, strict=True))
    for q, name in enumerate(first.questions):
        right = [other[name][b, order[0]] for b, order in enumerate(watched.plans[name])]
        assert right == found.results["direct"].utility[q].tolist()


def test_a_panel_that_scores_holds_the_same_questions() -> None:
    found = made(30)
    with pytest.raises(InputError, match="of other questions"):
        crossfit(found, scored=found.take(np.arange(29)))
    with pytest.raises(InputError, match="differs in its budgets"):
        crossfit(found, scored=replace(found, budgets=(32, 65)))


def test_frozen_parts_share_no_question_and_are_alike() -> None:
    found = made(30)
    parts = [found.take(np.arange(10) + at) for at in (0, 10, 20)]
    assert holdout(*parts, policies={"direct": Direct()}).results["direct"].seen.all()
    with pytest.raises(InputError, match="test questions were learned from"):
        holdout(parts[0], parts[1], parts[1])
    with pytest.raises(InputError, match="10 calibration questions were learned from"):
        holdout(parts[0], parts[0], parts[2])
    with pytest.raises(InputError, match="differ in their actions"):
        holdout(parts[0], parts[1], replace(parts[2], actions=("retain", "merge", "rewrite")))


def test_repeats_are_averaged() -> None:
    found = made(25)
    policies = {"direct": Direct(), "fixed": LEARNERS["best fixed action"]}
    each = [crossfit(found, policies=policies, fold_of=folds(np.arange(25), 5, seed=3 + r)) for r in range(3)]
    done: list[tuple[int, int]] = []
    mean = crossfit(
        found, policies=policies, repeats=3, rules=Rules(seed=3), progress=lambda *now: done.append(now)
    )  # fmt: skip
    assert done == [(i, 15) for i in range(1, 16)]
    for name in ("fixed", "action oracle", TWICE):  # direct: the inner folds follow the seed of the rules
        for part in ("utility", "harmed", "calls", "chosen"):
            expected = np.mean([getattr(one.results[name], part) for one in each], axis=0)
            np.testing.assert_allclose(getattr(mean.results[name], part), expected)


def numbers(fitted: CrossFit) -> dict[str, dict[str, NDArray[np.float64]]]:
    parts = [name for name in Result.__slots__ if name != "name"]
    return {name: {part: getattr(each, part) for part in parts} for name, each in fitted.results.items()}


@pytest.mark.parametrize("group", ["question", "conversation"])
def test_names_and_orders_change_no_result(group: str) -> None:
    rows = world(30, talks=10)
    rules = Rules(group=group)

    def run(rows: list[Row], actions: list[str]) -> dict[str, dict[str, NDArray[np.float64]]]:
        found = panel(from_rows(rows), actions=actions)
        policies = {name: policy for name, policy in default_policies(found).items() if name != "MLP"}
        return numbers(crossfit(found, policies=policies, rules=rules))

    one = run(rows, ["retain", "extract", "merge"])
    two = run(renamed(rows, 5), ["merge", "extract", "retain"])
    for name in one:
        for part in one[name]:
            assert np.array_equal(one[name][part], two[name][part], equal_nan=True), (name, part)


# -- what cannot be done -----------------------------------------------------------------------------------------------


def test_policies_are_those_that_the_outcomes_allow() -> None:
    found = made(20)
    assert {"evidence-fit rule", "ladder", "always merge"} <= set(default_policies(found))
    assert extra_names(found) == ("binary oracle", "action oracle", VOTE, TWICE)
    bare = panel(from_rows([{k: v for k, v in row.items() if k not in ("fit", "abstained")} for row in world(20)]))
    assert not {"evidence-fit rule", "ladder"} & set(default_policies(bare))
    assert extra_names(bare) == ("binary oracle", "action oracle")
    one = made(20, budgets=(64,))
    assert TWICE not in extra_names(one)
    result = crossfit(one, policies={"direct": Direct(), "ladder": LADDERS["ladder"]})
    assert result.results["ladder"].utility.shape == (20, 1)


def test_one_action_beside_retain_is_enough() -> None:
    found = panel(from_rows(world(30)), actions=["retain", "merge"])
    results = crossfit(found, policies={**QUICK, **LADDERS}).results
    assert all(np.isfinite(each.macro) for each in results.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 2}, "2 folds: training, calibration and test need three at least"),
        ({"k": 50}, "50 folds need 50 groups at least, there are 20"),
        ({"fold_of": np.zeros(20, int)}, "a fold is empty"),
        ({"fold_of": np.zeros(19, int)}, "fold_of must hold a number below 5 for each of 20 questions"),
        ({"fold_of": np.full(20, 5)}, "fold_of must hold a number below 5"),
        ({"rules": Rules(group="day")}, "grouped by question or conversation, not by 'day'"),
        ({"rules": Rules(cap=2)}, "a cap on harm is from 0 to 1"),
        ({"rules": Rules(alpha=0)}, "alpha is between 0 and 1"),
    ],
)
def test_what_cannot_be_split_is_one_clear_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        crossfit(made(20), policies={"a": always(0)}, **options)
    assert said in str(caught.value)


def test_retain_alone_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="nothing to choose between"):
        crossfit(panel(from_rows(world(20)), actions=["retain"]))


def test_types_are_the_made_up_worlds_own() -> None:
    assert sorted({row["type"] for row in world(40)}) == sorted(RAW)


def test_a_ladder_that_begins_with_whole_notes_harms_no_question_of_a_cross_fit() -> None:
    found = panel(from_rows(world(30)))
    results = crossfit(found, policies={**QUICK, **LADDERS}).results
    safe = results["ladder, whole notes first"]
    assert not safe.harmed.any()
    assert np.all(safe.utility >= found.utility[:, :, 0])
    assert results["ladder"].harmed.any()  # or there was nothing to be safe from
