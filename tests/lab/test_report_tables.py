"""Tables of a report: cells against arithmetic written out here, on made-up outcomes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from made_outcomes import (
    DRAWS,
    EVERY,
    KEYS,
    PAPER,
    difference,
    drop,
    everything,
    find,
    made,
    mean,
    means,
    one,
    pick,
    quick,
    table,
    tables,
    text,
    whole,
)

from retcon.errors import InputError
from retcon.lab.crossfit import LADDERS, LEARNERS, Rules, crossfit
from retcon.lab.fit_ladder import fit_ladder, plan
from retcon.lab.outcomes import Outcomes, from_rows, panel
from retcon.lab.report.actions import roles
from retcon.lab.report.build import SPECS, make_report
from retcon.lab.report.cells import Value
from retcon.lab.report.studies import Readings
from retcon.lab.stats import crossover, kappa, resample, sign_flip

# -- the list ----------------------------------------------------------------------------------------------------------


def test_every_table_is_returned_in_order_and_filled_where_the_rows_allow() -> None:
    assert tuple(each.key for each in whole()) == KEYS
    assert {each.key for each in whole() if each.missing} == {"cross-model"}


def test_tables_have_words_rows_as_wide_as_their_head_and_the_papers_rows_too() -> None:
    for each in whole():
        assert each.title
        assert len(each.caption) > 60
        for row in (*each.rows, *each.published):
            assert len(row) == len(each.columns), each.key
        assert bool(each.published) == (KEYS.index(each.key) < 12 and each.missing is None), each.key


def test_a_second_run_gives_the_same_tables_whatever_the_order_of_the_rows() -> None:
    rows = made(questions=30, budgets=(32, 64), talks=10)
    first = tables(rows, draws=50)
    random.Random(5).shuffle(rows)
    assert tables(rows, draws=50) == first


def test_tables_are_plain_json_without_numbers_that_are_none() -> None:
    again = json.loads(json.dumps([asdict(each) for each in whole()], allow_nan=False))
    assert [each["key"] for each in again] == list(KEYS)


def test_every_value_says_which_rows_it_comes_from() -> None:
    outcomes = from_rows(everything())
    for each in whole():
        for cell in (cell for row in each.rows for cell in row if isinstance(cell, Value)):
            assert cell.rows is not None
            assert len(outcomes.where(**cell.rows)), (each.key, cell)


def test_an_accuracy_is_the_mean_of_the_rows_that_it_names() -> None:
    outcomes, seen = from_rows(everything()), 0
    for row in table("all-actions").rows:
        for cell in row[2:]:
            if isinstance(cell, Value) and cell.rows is not None:
                found = outcomes.where(**cell.rows).columns["judge_llm"]
                assert cell.mean == pytest.approx(found.mean())
                assert cell.low is not None
                assert cell.high is not None
                assert cell.low <= found.mean() <= cell.high
                seen += 1
    assert seen == 3 * len(EVERY) * 4


def test_progress_counts_every_table_the_findings_and_the_figures() -> None:
    seen: list[tuple[int, int]] = []
    rows = made(questions=3, budgets=(32,))
    make_report(from_rows(rows), draws=5, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 23) for done in range(1, 24)]


def test_a_judge_that_is_not_there_is_an_error_and_one_that_is_decides() -> None:
    rows = made(actions=PAPER, budgets=(32,))
    with pytest.raises(InputError, match="no judge 'human'; there are llm, overlap"):
        tables(rows, judge="human")
    found = one(rows, "all-actions", judge="overlap")
    assert find(found, "LongMemEval, controlled", "Retention")[0].mean == pytest.approx(
        mean(pick(rows, action="retain"), "judge_overlap")
    )


# -- which action is what ----------------------------------------------------------------------------------------------


def roles_of(*actions: str, **same: str) -> Any:
    return roles(from_rows([{"question_id": "q", "budget": 1, "action": a, "judge_llm": 1} | same for a in actions]))


def test_agnostic_operators_are_the_papers_wherever_there_are_any() -> None:
    ours = roles_of("retain", "merge", "merge-agnostic", "abstract", "extract")
    assert ours.operators == {"merge": "merge-agnostic"}
    assert ours.names["merge"] == "Merge, focused"
    assert ours.names["merge-agnostic"] == "Merge, agnostic"
    assert ours.choices == ("retain", "abstract", "extract", "merge")
    assert not ours.focused


def test_beside_a_q_form_the_plain_name_is_agnostic() -> None:
    pilot = roles_of("retain", "merge", "abstract", "qmerge", "qrewrite", "hybrid", "none", "full", "trunc", "retrel")
    assert pilot.operators == {"abstract": "abstract", "merge": "merge"}
    assert pilot.names["merge"] == "Merge, agnostic"
    assert pilot.names["qrewrite"] == "Rewrite, focused"
    assert pilot.names["full"] == "No budget"
    assert pilot.choices == ("retain", "abstract", "hybrid", "qmerge", "qrewrite")
    assert pilot.order[0] == "retain"
    assert pilot.order[-2:] == ("none", "full")
    assert sorted(pilot.order) == sorted(pilot.names)


def test_operators_that_saw_the_question_stand_in_and_are_marked() -> None:
    focused = roles_of("retain", "merge", focus="focused")
    assert focused.operators == {"merge": "merge"}
    assert focused.focused
    unsaid = roles_of("retain", "merge")
    assert unsaid.operators == {"merge": "merge"}
    assert not unsaid.focused
    assert unsaid.names["merge"] == "Merge"
    rows = made(actions=("retain", "merge"), focus="focused")
    assert "operators saw the question" in one(rows, "operator-gains").marks


# -- the paper's tables ------------------------------------------------------------------------------------------------


def test_gains_are_differences_of_question_means_with_their_sign_flip_p() -> None:
    rows = pick(everything(), dataset="longmemeval", setting="controlled")
    gains = difference(rows, "merge-agnostic", 64)
    gain, p = find(table("operator-gains"), "Merge", "64")
    assert gain.mean == pytest.approx(fmean(gains.values()))
    assert gain.low < gain.mean < gain.high
    assert gain.text == f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]".replace("0.", ".")
    assert p.mean == pytest.approx(sign_flip([gains[name] for name in sorted(gains)], seed=20260716))


def test_intervals_come_from_one_set_of_draws_over_questions_by_id() -> None:
    rows = made(actions=PAPER, budgets=(32,))
    found = quick(rows, "operator-gains", "all-actions", seed=7)
    gain = find(found["operator-gains"], "Abstract", "32")[0]
    assert [gain.low, gain.high] == pytest.approx(ends(difference(rows, "abstract-agnostic", 32), seed=7))
    accuracy = find(found["all-actions"], "LongMemEval, controlled", "Abstract, agnostic")[0]
    alone = means(pick(rows, action="abstract-agnostic"))
    assert [accuracy.low, accuracy.high] == pytest.approx(ends(alone, seed=7))


def test_an_operator_is_compared_with_its_own_retentions() -> None:
    rows = made(actions=("retain", "merge-agnostic", "abstract-agnostic"), budgets=(32,), questions=12)
    mine = [row | {"pair": "merge-agnostic", "judge_llm": 1} for row in pick(rows, action="retain")]
    found = quick([*rows, *mine], "operator-gains", "all-actions")
    merge, abstract = (find(found["operator-gains"], name, "32")[0].mean for name in ("Merge", "Abstract"))
    assert merge == pytest.approx(mean(pick(rows, action="merge-agnostic")) - 1)
    assert abstract == pytest.approx(fmean(difference(rows, "abstract-agnostic", 32).values()))
    both = find(found["all-actions"], "LongMemEval, controlled", "Retention")[0].mean
    assert both == pytest.approx((mean(pick(rows, action="retain")) + 1) / 2)


def test_locomo_has_an_interval_over_questions_and_one_over_conversations() -> None:
    rows = pick(everything(), dataset="locomo", abstention="")
    talk = {row["question_id"]: row["conversation"] for row in rows}
    for budget, operator in product((16, 32, 64), ("abstract", "merge", "rewrite")):
        gains = difference(rows, f"{operator}-agnostic", budget)
        gain, alone, together, changed = find(table("locomo-gains"), str(budget), operator.capitalize())
        assert gain.mean == pytest.approx(fmean(gains.values()))
        assert changed == f"{sum(g > 0 for g in gains.values())}/{sum(g < 0 for g in gains.values())}"
        for cell, clusters in ((alone, None), (together, talk)):
            assert [cell.low, cell.high] == pytest.approx(ends(gains, clusters))


def ends(values: Mapping[str, float], clusters: Mapping[str, str] | None = None, seed: int = 20260716) -> list[float]:
    """The percentile interval of a mean over questions, the draws in the order of ids."""
    order = sorted(values)
    labels = None if clusters is None else [clusters[name] for name in order]
    drawn = resample(len(order), seed=seed, draws=DRAWS, clusters=labels)
    by_unit = np.zeros((2, drawn.counts.shape[1]))
    for unit, name in zip(drawn.unit.tolist(), order, strict=True):
        by_unit[:, unit] += values[name], 1
    sums, sizes = by_unit @ drawn.counts.T
    return [float(end) for end in np.quantile(sums / sizes, [0.025, 0.975])]


def test_full_history_sets_abstract_beside_retention_and_their_oracle() -> None:
    rows = pick(everything(), setting="full-history")
    one, two = (means(pick(rows, action=name, budget=64)) for name in ("retain", "abstract-agnostic"))
    retention, abstract, gain, changed, oracle = find(table("full-history"), "64")
    assert retention.mean == pytest.approx(fmean(one.values()))
    assert abstract.mean == pytest.approx(fmean(two.values()))
    assert gain.mean == pytest.approx(abstract.mean - retention.mean)
    assert oracle.mean == pytest.approx(fmean(max(one[name], two[name]) for name in one))
    assert changed == f"{sum(two[n] > one[n] for n in one)}/{sum(two[n] < one[n] for n in one)}"


def test_models_are_set_side_by_side() -> None:
    first, second = made(actions=PAPER), made(actions=PAPER, seed=9, model="other", reader="other")
    halves = [from_rows(part).columns for part in (first, second)]
    both = Outcomes({name: np.concatenate([half[name] for half in halves]) for name in halves[0]})
    readings = Readings(both, judge=None, draws=DRAWS, seed=1, repeats=1)
    found = {spec.key: spec.table(readings) for spec in SPECS if spec.key in ("cross-model", "operator-gains")}
    for name, rows in (("made-up", first), ("other", second)):
        retention, abstract, gain, _ = find(found["cross-model"], name, "64")
        assert retention.mean == pytest.approx(mean(pick(rows, action="retain", budget=64)))
        assert gain.mean == pytest.approx(fmean(difference(rows, "abstract-agnostic", 64).values()))
        assert set(both.where(**abstract.rows).columns["reader"]) == {name}
    assert "another model (made-up)" in found["operator-gains"].marks


def test_types_are_taken_at_the_loosest_budget_with_changes_per_run() -> None:
    rows = pick(everything(), dataset="longmemeval", setting="controlled", budget=128)
    kind = pick(rows, type="temporal-reasoning")
    n, _, merge, _ = find(table("per-type"), "Temporal")
    assert n == str(len(means(kind)))
    assert merge.mean == pytest.approx(fmean(difference(kind, "merge-agnostic", 128).values()))
    runs = [difference(pick(kind, realization=r), "merge-agnostic", 128).values() for r in (0, 1)]
    helped, harmed = (fmean(sum(sign * gain > 0 for gain in run) for run in runs) for sign in (1, -1))
    assert merge.text.endswith(f"({helped:.1f}/{harmed:.1f})")
    assert find(table("per-type"), "All")[0] == "36"


def test_routing_scores_are_those_of_the_cross_fit_and_harms_are_counted() -> None:
    rows = made(actions=PAPER)
    found = one(rows, "routing-baselines", seed=3)
    fitted = crossfit(panel(from_rows(rows)), policies={"direct": LEARNERS["direct"]}, rules=Rules(seed=3))
    direct = fitted.results["direct"]
    cells = find(found, "Direct utility")
    for b, cell in enumerate(cells[:3]):
        assert cell.mean == pytest.approx(direct.utility[:, b].mean())
        assert cell.text.endswith(f" ({direct.harmed[:, b].sum():.0f})")
        by_question = dict(zip(fitted.panel.questions, direct.utility[:, b].tolist(), strict=True))
        assert [cell.low, cell.high] == pytest.approx(ends(by_question, seed=3))
    assert cells[3].mean == pytest.approx(direct.macro)
    for budget, cell in zip((32, 64, 128), find(found, "Retention"), strict=False):
        assert cell.mean == pytest.approx(mean(pick(rows, action="retain", budget=budget)))
        assert cell.text.endswith(" (0)")
    names = [row[0] for row in found.rows]
    assert names[:3] == ["Retention", "Training-selected fixed operator", "Best fixed action"]
    assert "MLP" not in names
    assert "Evidence-fit rule" in names
    unknown = one(drop("fit")(rows), "routing-baselines")
    assert [row[0] for row in unknown.rows] == [name for name in names if name != "Evidence-fit rule"]
    assert "the router sees no fit, which the rows lack" in unknown.marks


def test_the_oracle_is_the_best_action_of_every_question() -> None:
    rows = made(actions=PAPER)
    at = [means(pick(rows, action=action, budget=64)) for action in PAPER]
    best = fmean(max(each[name] for each in at) for name in at[0])
    assert find(one(rows, "routing-baselines"), "Action oracle (hindsight)")[1].mean == pytest.approx(best)


def test_harms_averaged_over_repeats_have_a_decimal() -> None:
    found = one(made(actions=PAPER), "joint-routing", repeats=3)
    assert "mean of 3 ways to deal them" in found.caption
    harms = [row[4] for row in found.rows]
    assert any(text(cell) != f"{cell.mean:.0f}" for cell in harms if isinstance(cell, Value))


def test_joint_routing_gains_are_over_retention() -> None:
    rows = made(actions=PAPER)
    found = one(rows, "joint-routing")
    for policy in ("Direct", "Calibrated", "Certified"):
        for budget in (32, 64, 128):
            accuracy, gain, harm = find(found, policy, str(budget))
            retention = mean(pick(rows, action="retain", budget=budget))
            assert gain.mean == pytest.approx(accuracy.mean - retention)
            assert harm.mean >= 0


def test_the_mlp_stands_beside_the_ridge_of_the_same_folds() -> None:
    direct = [text(cell).split()[0] for cell in find(table("routing-baselines"), "Direct utility")[:3]]
    for budget, accuracy in zip((32, 64, 128), direct, strict=True):
        ridge, other, gap, p = find(table("mlp-check"), str(budget))
        assert ridge.text == accuracy
        assert gap.mean == pytest.approx(other.mean - ridge.mean)
        assert 0 < p.mean <= 1


def test_pressure_counts_whose_notes_all_fit_and_whose_do_not() -> None:
    fits = means(pick(everything(), dataset="longmemeval", setting="controlled", action="retain", budget=64), "fit")
    average, full, zero, partial, regime = find(table("budget-pressure"), "64")
    share = 100 * fmean(fit >= 1 for fit in fits.values())
    assert average.mean == pytest.approx(fmean(fits.values()))
    assert (full.mean, zero.mean, partial.mean) == pytest.approx((share, 0, 100 - share))
    assert (share, regime) == (25.0, "Tight")
    assert [row[-1] for row in table("budget-pressure").rows] == ["Tight", "Tight", "Transition"]


def test_pairs_compare_accuracies() -> None:
    rows = pick(everything(), dataset="longmemeval", setting="controlled")
    cells = find(table("operator-pairs"), "32")
    pairs = (("merge", "abstract"), ("abstract", "rewrite"), ("merge", "rewrite"))
    for cell, (first, second) in zip(cells, pairs, strict=True):
        gap = difference(rows, f"{first}-agnostic", 32, f"{second}-agnostic")
        assert cell.mean == pytest.approx(fmean(gap.values()))


def test_strata_keep_apart_the_questions_whose_notes_all_fit() -> None:
    rows = pick(everything(), dataset="longmemeval", setting="controlled", budget=128)
    fits = means(pick(rows, action="retain"), "fit")
    gains = difference(rows, "abstract-agnostic", 128)
    for name, inside in (
        ("complete", [q for q in fits if fits[q] >= 1]),
        ("incomplete", [q for q in fits if fits[q] < 1]),
    ):
        (cell,) = find(table("fit-strata"), "Abstract", "128", name)
        assert cell.mean == pytest.approx(fmean(gains[q] for q in inside))
        assert cell.text.endswith(f"; {len(inside)})")
        assert cell.rows["question_id"] == sorted(inside)


def test_the_gate_is_scored_with_what_was_frozen_before_it() -> None:
    rows = pick(everything(), setting="full-history", fold="gate")
    merge, retain = (means(pick(rows, action=name, budget=64)) for name in ("merge-agnostic", "retain"))
    cell = find(table("independent"), "Fixed merge")[1]
    assert cell.mean == pytest.approx(fmean(merge.values()))
    assert cell.text.endswith(f" ({sum(merge[name] < retain[name] for name in merge)})")
    assert cell.rows["fold"] == "gate"
    fitting = pick(everything(), setting="full-history", fold="fit", budget=64)
    best = max(PAPER, key=lambda name: mean(pick(fitting, action=name)))  # of equals the first, retain before all
    chosen = find(table("independent"), "Per-budget policy selected on fit data")[1]
    assert chosen.mean == pytest.approx(mean(pick(rows, action=best, budget=64)))
    assert "Questions: 20 fit, 10 calibration, 10 gate." in table("independent").caption


def test_gate_outcomes_do_not_change_what_policies_choose() -> None:
    rows = pick(everything(), setting="full-history")
    turned = [row | {"judge_llm": 1 - row["judge_llm"]} if row["fold"] == "gate" else row for row in rows]
    one_way, other = (one(some, "independent") for some in (rows, turned))
    for name in ("Direct ridge", "Frozen safe router", "Per-budget policy selected on fit data"):
        a, b = (find(found, name)[-1] for found in (one_way, other))
        assert a.mean == pytest.approx(1 - b.mean)  # the same actions, every verdict turned


# -- ours --------------------------------------------------------------------------------------------------------------


def test_costs_are_means_over_questions_and_budgets() -> None:
    rows = pick(everything(), dataset="locomo", abstention="", action="merge")
    cells = find(table("cost"), "LoCoMo, controlled", "Merge, focused")
    names = ("context_tokens", "prompted_tokens", "generated_tokens", "model_calls", "reader_tokens", "seconds")
    for cell, name in zip(cells, names, strict=True):
        assert cell.mean == pytest.approx(mean(rows, name))


def test_unsupported_is_the_share_of_generated_texts() -> None:
    rows = pick(everything(), dataset="locomo", abstention="", action="merge", budget=32)
    cell = find(table("unsupported"), "LoCoMo, controlled", "Merge, focused")[1]
    assert cell.mean == pytest.approx(mean(rows, "unsupported"))
    assert not [row for row in table("unsupported").rows if row[1] in ("Retention", "Extract")]


def test_judges_are_compared_answer_by_answer() -> None:
    rows = pick(everything(), dataset="locomo", abstention="", action="merge")
    first, second = ([row[f"judge_{name}"] for row in rows] for name in ("llm", "overlap"))
    right, other, agreed, beyond = find(table("judges"), "LoCoMo, controlled", "Merge, focused")
    assert (right.mean, other.mean) == pytest.approx((fmean(first), fmean(second)))
    assert agreed.mean == pytest.approx(fmean(a == b for a, b in zip(first, second, strict=True)))
    assert beyond.mean == pytest.approx(kappa(first, second))


def test_graded_verdicts_are_cut_at_one_half_and_the_table_says_so() -> None:
    rows = [row | {"judge_f1": row["judge_llm"] * 0.6 + 0.2} for row in made(actions=PAPER, budgets=(32,))]
    found = one(rows, "judges")
    assert any("from one half on" in mark for mark in found.marks)
    agree = find(found, "LongMemEval, controlled", "All")[3]
    assert found.columns[5] == "llm and f1 agree"
    assert agree.mean == 1.0


def test_accuracy_for_100_tokens_is_a_ratio_of_means() -> None:
    rows = pick(everything(), dataset="locomo", abstention="", action="extract", budget=64)
    cell = find(table("per-token"), "LoCoMo, controlled", "Extract")[2]
    assert cell.mean == pytest.approx(100 * mean(rows) / mean(rows, "context_tokens"))
    assert cell.low < cell.mean < cell.high


def test_the_budget_needed_is_the_smallest_one_near_the_best() -> None:
    rows = pick(everything(), dataset="locomo", abstention="")
    for action, name in (("retain", "Retention"), ("merge", "Merge, focused"), ("extract", "Extract")):
        at = {budget: mean(pick(rows, action=action, budget=budget)) for budget in (16, 32, 64)}
        *accuracy, within_three, within_one = find(table("budget-needed"), "LoCoMo, controlled", name)
        assert [cell.mean for cell in accuracy[:3]] == pytest.approx(list(at.values()))
        for cell, points in ((within_three, 0.03), (within_one, 0.01)):
            assert cell.mean == min(budget for budget in at if at[budget] >= max(at.values()) - points - 1e-9)
            assert cell.low <= cell.mean <= cell.high
    best = [row for row in table("budget-needed").rows if text(row[1]).startswith("Best policy: ")]
    assert [row[0] for row in best] == ["LongMemEval, controlled", "LongMemEval, full history", "LoCoMo, controlled"]


def test_ladders_are_cross_fitted_over_what_a_product_would_choose() -> None:
    rows = made(seed=4)
    actions = ["retain", "extract", "abstract", "merge", "rewrite-agnostic"]  # rewrite has no focused form here
    policies = {"ladder": LADDERS["ladder"], "best": LEARNERS["best fixed action"]}
    fitted = crossfit(panel(from_rows(rows), actions=actions), policies=policies, rules=Rules(seed=20260716))
    accuracy, gap, _, calls, read_, written = find(one(rows, "ladders"), "LongMemEval, controlled", "Ladder")
    ladder, best = fitted.results["ladder"], fitted.results["best"]
    assert accuracy.mean == pytest.approx(ladder.macro)
    assert gap.mean == pytest.approx(ladder.macro - best.macro)
    assert calls.mean == pytest.approx(ladder.calls.mean())
    assert read_.mean == pytest.approx(ladder.read.mean())
    assert written.mean == pytest.approx(ladder.generated.mean())


def test_questions_without_an_answer_stand_in_their_own_table_alone() -> None:
    rows = everything()
    silent = pick(rows, abstention="yes", action="merge", budget=32)
    cell = find(table("false-answers"), "LoCoMo, controlled", "Merge, focused")[1]
    assert cell.mean == pytest.approx(1 - mean(silent, "abstained"))
    others = [key for key in KEYS if key not in ("mlp-check", "ladders", "budget-needed", "false-answers")]
    without = quick([row for row in rows if row["abstention"] != "yes"], *others)
    assert [table(key) for key in others] == [without[key] for key in others]


def test_a_ladders_false_answers_are_those_of_the_look_that_stops() -> None:
    """Learned where the right answers are: here extract alone knows them, and merge never holds its tongue."""
    known = [row | {"judge_llm": int(row["action"] == "extract"), "abstained": 0} for row in made(budgets=(32, 64))]
    for row in known:
        if row["action"] == "extract" and row["question_id"] < "q010":
            row |= {"judge_llm": 0, "abstained": 1}
        elif row["action"] == "merge" and row["question_id"] < "q010":
            row |= {"judge_llm": 1}
    silent = made(budgets=(32, 64), prefix="n", seed=5, abstention="yes")
    found = find(one([*known, *silent], "false-answers"), "LongMemEval, controlled", "Ladder")
    actions = ["retain", "extract", "abstract", "merge", "rewrite-agnostic"]
    asked = panel(from_rows(silent), actions=actions)
    steps = plan(fit_ladder(panel(from_rows(known), actions=actions), looks=4), asked)
    assert set(steps[:, :, 0].ravel().tolist()) == {asked.actions.index("extract")}
    for b, (budget, cell) in enumerate(zip((32, 64), found, strict=True)):
        kept = {name: means(pick(silent, action=name, budget=budget), "abstained") for name in actions}
        orders = [[asked.actions[a] for a in order if a >= 0] for order in steps[:, b].tolist()]
        answered = [
            not all(kept[action][question] for action in order)
            for question, order in zip(asked.questions, orders, strict=True)
        ]
        assert cell.mean == pytest.approx(fmean(answered))


def test_a_crossover_is_that_of_the_mean_gains() -> None:
    rows = pick(everything(), dataset="longmemeval", setting="controlled")
    columns = [difference(rows, "merge-agnostic", budget) for budget in (32, 64, 128)]
    gains = np.array([[column[name] for column in columns] for name in sorted(columns[0])])
    right = crossover(gains, (32, 64, 128), resample(len(gains), seed=20260716, draws=DRAWS))
    place, share, _ = find(table("crossover"), "LongMemEval, controlled", "Merge, agnostic")
    assert share.mean == pytest.approx(100 * right.share)
    if 0 < right.budget < math.inf:
        assert place.mean == pytest.approx(right.budget)
    else:
        assert place.mean is None


def test_a_crossover_outside_the_budgets_is_said_in_words() -> None:
    rows = [row | {"judge_llm": int(row["action"] != "retain")} for row in made(actions=PAPER)]
    assert find(one(rows, "crossover"), "LongMemEval, controlled", "Merge, agnostic")[0].text.startswith("above 128 [")
    rows = [row | {"judge_llm": int(row["action"] == "retain")} for row in rows]
    place, share, full = find(one(rows, "crossover"), "LongMemEval, controlled", "Merge, agnostic")
    assert place.text == "below 32 [below 32, below 32]"
    assert (place.mean, place.low, place.high) == (None, None, None)
    assert (share.mean, full) == (0.0, "–")
