"""Tables of a report: cells against arithmetic written out here, on made-up outcomes and on the pilot's real ones."""

from __future__ import annotations

import json
import math
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retcon.crossfit import LADDERS, LEARNERS, Rules, crossfit
from retcon.errors import InputError
from retcon.ladder import learn, plan
from retcon.outcomes import Outcomes, from_rows, panel, read
from retcon.stats import crossover, kappa, resample, sign_flip
from retcon.study.tables import SPECS, Readings, Study, Table, Value, arms, tables

PILOT = Path(os.environ.get("RETCON_PILOT") or Path(__file__).parents[2] / "shared" / "pilot" / "outcomes.csv")
RAW = ("single-session-user", "multi-session", "temporal-reasoning", "knowledge-update")
PAPER = ("retain", "abstract-agnostic", "merge-agnostic", "rewrite-agnostic")
EVERY = (*PAPER, "extract", "abstract", "merge")
KEYS = (
    "operator-gains", "locomo-gains", "cross-model", "full-history", "per-type", "routing-baselines",
    "budget-pressure", "operator-pairs", "fit-strata", "joint-routing", "mlp-check", "independent", "all-actions",
    "cost", "unsupported", "judges", "per-token", "budget-needed", "ladders", "false-answers", "crossover",
)  # fmt: skip
DRAWS = 200
Row = dict[str, Any]


def made(
    dataset: str = "longmemeval",
    setting: str = "controlled",
    *,
    questions: int = 36,
    budgets: Sequence[int] = (32, 64, 128),
    actions: Sequence[str] = EVERY,
    realizations: int = 1,
    talks: int | None = None,
    seed: int = 0,
    prefix: str = "q",
    **same: Any,
) -> list[Row]:
    """Made-up outcomes: retention is right where its notes fit, the others where the question's type suits them."""
    rng = random.Random(seed)
    rows = []
    for q in range(questions):
        kind, tokens = rng.randrange(4), rng.randrange(20, 200)
        about = {
            "dataset": dataset, "setting": setting, "question_id": f"{prefix}{q:03}",
            "conversation": f"{prefix}{q:03}" if talks is None else f"c{q % talks}", "type": RAW[kind],
            "notes": rng.randrange(1, 9), "cluster_tokens": tokens, "sessions": rng.randrange(1, 4),
            "inconsistency": rng.randrange(100) / 100, "similarity": rng.randrange(100) / 100, "abstention": "",
            "model": "made-up", "reader": "made-up", **same,
        }  # fmt: skip
        for budget in budgets:
            fit = min(1.0, budget / tokens)
            for place, action in enumerate(actions):
                for realization in range(realizations):
                    right = rng.random() < (fit if action == "retain" else 0.7 if kind == place % 4 else 0.3)
                    written = action not in ("retain", "extract")
                    rows.append(
                        about
                        | {"budget": budget, "action": action, "realization": realization, "fit": fit}
                        | {"context_tokens": rng.randrange(1, budget), "generated_tokens": 20 if written else 0}
                        | {"prompted_tokens": 90 if written else 0, "model_calls": int(written)}
                        | {"reader_tokens": budget + 40, "seconds": rng.randrange(8) / 8}
                        | {"abstained": int(not right and rng.random() < 0.7)}
                        | {"unsupported": int(rng.random() < 0.2) if written else None}
                        | {"judge_llm": int(right), "judge_overlap": int(right and rng.random() < 0.8)}
                    )
    return rows


def everything() -> list[Row]:
    """Two benchmarks, two settings, three parts, questions without an answer."""
    part = {f"f{q:03}": ("fit", "calibration", "gate", "fit")[q % 4] for q in range(40)}
    full = made("longmemeval", "full-history", questions=40, seed=2, prefix="f")
    return [
        *made(realizations=2),
        *made("locomo", "controlled", questions=40, budgets=(16, 32, 64), talks=8, seed=1, prefix="l"),
        *(row | {"fold": part[row["question_id"]]} for row in full),
        *made("locomo", "controlled", questions=6, budgets=(16, 32), talks=3, seed=3, prefix="n", abstention="yes"),
    ]


@cache
def whole() -> tuple[Table, ...]:
    return tuple(tables(from_rows(everything()), draws=DRAWS))


def quick(rows: Iterable[Row], *keys: str, draws: int = DRAWS, **options: Any) -> dict[str, Table]:
    """Some tables alone, so that a test need not wait for the others."""
    given = {"judge": None, "seed": 20260716, "repeats": 1} | options
    readings = Readings(from_rows(rows), draws=draws, **given)
    return {spec.key: spec.table(readings) for spec in SPECS if spec.key in keys}


def one(rows: Iterable[Row], key: str, **options: Any) -> Table:
    return quick(rows, key, **options)[key]


def table(key: str) -> Table:
    return next(each for each in whole() if each.key == key)


def find(table: Table, *start: str) -> tuple[Any, ...]:
    """The cells after those that a row begins with."""
    assert table.missing is None, table.missing
    (found,) = [row for row in table.rows if row[: len(start)] == start]
    return found[len(start) :]


def text(cell: Value | str) -> str:
    return cell.text if isinstance(cell, Value) else cell


def pick(rows: Iterable[Row], **only: Any) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in only.items())]


def means(rows: Iterable[Row], name: str = "judge_llm") -> dict[str, float]:
    """Question -> mean over its rows."""
    by: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by[row["question_id"]].append(row[name])
    return {question: fmean(values) for question, values in by.items()}


def mean(rows: Iterable[Row], name: str = "judge_llm") -> float:
    return fmean(means(rows, name).values())


def difference(rows: list[Row], action: str, budget: int, base: str = "retain") -> dict[str, float]:
    one, two = (means(pick(rows, action=name, budget=budget)) for name in (action, base))
    return {question: one[question] - two[question] for question in one}


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
    first = tables(from_rows(rows), draws=50)
    random.Random(5).shuffle(rows)
    assert tables(from_rows(rows), draws=50) == first


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


def test_progress_counts_every_table() -> None:
    seen: list[tuple[int, int]] = []
    tables(
        from_rows(made(questions=3, budgets=(32,))), draws=5, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(done, 21) for done in range(1, 22)]


def test_a_judge_that_is_not_there_is_an_error_and_one_that_is_decides() -> None:
    rows = made(actions=PAPER, budgets=(32,))
    with pytest.raises(InputError, match="no judge 'human'; there are llm, overlap"):
        tables(from_rows(rows), judge="human")
    found = one(rows, "all-actions", judge="overlap")
    assert find(found, "LongMemEval, controlled", "Retention")[0].mean == pytest.approx(
        mean(pick(rows, action="retain"), "judge_overlap")
    )


# -- which action is what ----------------------------------------------------------------------------------------------


def roles(*actions: str, **same: str) -> Any:
    return arms(from_rows([{"question_id": "q", "budget": 1, "action": a, "judge_llm": 1} | same for a in actions]))


def test_agnostic_operators_are_the_papers_wherever_there_are_any() -> None:
    ours = roles("retain", "merge", "merge-agnostic", "abstract", "extract")
    assert ours.operators == {"merge": "merge-agnostic"}
    assert ours.names["merge"] == "Merge, focused"
    assert ours.names["merge-agnostic"] == "Merge, agnostic"
    assert ours.choices == ("retain", "abstract", "extract", "merge")
    assert not ours.focused


def test_beside_a_q_form_the_plain_name_is_agnostic() -> None:
    pilot = roles("retain", "merge", "abstract", "qmerge", "qrewrite", "hybrid", "none", "full", "trunc", "retrel")
    assert pilot.operators == {"abstract": "abstract", "merge": "merge"}
    assert pilot.names["merge"] == "Merge, agnostic"
    assert pilot.names["qrewrite"] == "Rewrite, focused"
    assert pilot.names["full"] == "No budget"
    assert pilot.choices == ("retain", "abstract", "hybrid", "qmerge", "qrewrite")
    assert pilot.order[0] == "retain"
    assert pilot.order[-2:] == ("none", "full")
    assert sorted(pilot.order) == sorted(pilot.names)


def test_operators_that_saw_the_question_stand_in_and_are_marked() -> None:
    focused = roles("retain", "merge", focus="focused")
    assert focused.operators == {"merge": "merge"}
    assert focused.focused
    unsaid = roles("retain", "merge")
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


def test_a_ladders_false_answers_are_those_of_the_rung_that_stops() -> None:
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
    steps = plan(learn(panel(from_rows(known), actions=actions), rungs=4), asked)
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


# -- what differs from the paper, and what is missing ------------------------------------------------------------------


def test_marks_say_what_differs_from_the_paper() -> None:
    assert table("operator-gains").marks == ("another model (made-up)", "36 questions (the paper: 75)")
    assert "one realization" in table("full-history").caption
    assert "one realization" in one(made(actions=PAPER), "all-actions").marks
    rows = made("locomo", "full-history", questions=75, actions=("retain", "merge-agnostic"), talks=9)
    found = quick(rows, "per-type", "operator-gains", "locomo-gains", "full-history")
    assert found["per-type"].marks == (
        "another model (made-up)", "different data (LoCoMo)", "another setting (full-history; the paper: controlled)",
        "one realization", "abstract and rewrite not measured",
    )  # fmt: skip
    assert found["operator-gains"].missing == (
        "there are no rows of LongMemEval or of data of your own; LoCoMo has the next table"
    )
    assert "another setting (full-history; the paper: controlled)" in found["locomo-gains"].marks
    assert found["full-history"].missing == "LoCoMo, full history: there are no outcomes of abstract"
    paper = [row | {"model": "DeepSeek-V3.2", "reader": "DeepSeek-V3.2"} for row in made(questions=75, realizations=3)]
    assert one(paper, "operator-gains").marks == ()


def test_a_model_that_the_rows_do_not_name_is_called_as_the_caller_says() -> None:
    unnamed, named = drop("model", "reader")(made(actions=PAPER)), made(actions=PAPER)
    assert "the rows do not name their model" in one(unnamed, "operator-gains").marks
    assert one(unnamed, "operator-gains", model="qwen").marks[0] == "another model (qwen)"
    assert not any("model" in mark for mark in one(unnamed, "operator-gains", model="DeepSeek-V3.2").marks)
    assert one(named, "operator-gains", model="qwen").marks[0] == "another model (made-up)"


def test_an_action_that_no_ladder_can_name_leaves_out_the_ladders_alone() -> None:
    for name in ("x" * 101, "bell\a"):
        named = [row | {"action": name} if row["action"] == "extract" else row for row in everything()]
        found = quick((row for row in named if row["setting"] == "controlled"), "ladders", "false-answers", "cost")
        assert found["ladders"].missing is not None
        assert "names of 1 to 100 printable characters" in found["ladders"].missing
        assert found["cost"].missing is None
        assert "Ladder" not in [row[1] for row in found["false-answers"].rows]
        assert len(found["false-answers"].rows) == len(EVERY)


def test_own_data_takes_the_papers_tables_and_is_marked() -> None:
    found = one(made("support logs", "product", actions=PAPER), "operator-gains")
    assert "different data (support logs)" in found.marks
    assert "another setting (product; the paper: controlled)" in found.marks


@pytest.mark.parametrize(
    ("key", "gone", "reason"),
    [
        ("budget-pressure", "fit", "which share of the notes retention packs"),
        ("fit-strata", "fit", "which share of the notes retention packs"),
        ("unsupported", "unsupported", "whether a claim lacks support"),
        ("per-token", "context_tokens", "how many tokens were read"),
        ("ladders", "abstained", "where the reader abstained"),
        ("judges", "judge_overlap", "verdicts of one judge only"),
        ("independent", "fold", "marked fit, calibration, gate"),
        ("false-answers", "abstention", "questions that memory does not answer"),
        ("cross-model", "model", "of one model"),
    ],
)
def test_a_table_that_the_rows_cannot_fill_says_why(key: str, gone: str, reason: str) -> None:
    rows = [{name: value for name, value in row.items() if name != gone} for row in made(questions=20, budgets=(32,))]
    found = one(rows, key)
    assert found.missing is not None
    assert reason in found.missing
    assert (found.columns, found.rows, found.published) == ((), (), ())
    assert found.caption


def test_few_questions_in_a_stratum_are_not_shown() -> None:
    found = one(made(questions=9, actions=PAPER), "fit-strata")
    assert found.missing == "at no budget are there 10 questions whose notes all fit and 10 whose do not"


def test_questions_with_a_gap_are_left_out_of_what_is_learned_and_the_table_says_so() -> None:
    rows = made(actions=PAPER, budgets=(32, 64))
    silent = {("q007", "retain", budget) for budget in (32, 64)}
    rows = [row for row in rows if (row["question_id"], row["action"], row["budget"]) != ("q003", "merge-agnostic", 64)]
    for row in rows:
        if (row["question_id"], row["action"], row["budget"]) in silent:
            row["judge_llm"] = None
    found = quick(rows, "routing-baselines", "operator-gains")
    assert "2 of 36 questions left out: some action has no outcome" in found["routing-baselines"].marks
    gains = difference([row for row in rows if row["question_id"] != "q007"], "abstract-agnostic", 64)
    assert find(found["operator-gains"], "Abstract", "64")[0].mean == pytest.approx(fmean(gains.values()))


def drop(*names: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{name: value for name, value in row.items() if name not in names} for row in rows]


NEEDED = ("question_id", "budget", "action", "judge_llm")
ODD: Mapping[str, Callable[[list[Row]], list[Row]]] = {
    "one budget": lambda rows: pick(rows, budget=32),
    "one operator": lambda rows: [row for row in rows if row["action"] in ("retain", "merge-agnostic")],
    "retain alone": lambda rows: pick(rows, action="retain"),
    "no retention": lambda rows: [row for row in rows if row["action"] != "retain"],
    "one question": lambda rows: pick(rows, question_id="q000"),
    "no abstained column": drop("abstained"),
    "nothing but verdicts": lambda rows: [{name: row[name] for name in NEEDED} for row in rows],
    "retention at zero too": lambda rows: [*rows, *(row | {"budget": 0} for row in pick(rows, budget=32))],
    "budget nothing": lambda rows: [row | {"budget": 0} for row in pick(rows, budget=32)],
    "all without an answer": lambda rows: [row | {"abstention": "yes"} for row in rows],
    "one conversation": lambda rows: [row | {"conversation": "c"} for row in rows],
    "no verdict of the first judge": lambda rows: [row | {"judge_llm": None} for row in rows],
    "types nobody knows": lambda rows: [row | {"type": "riddle"} for row in rows],
    "all right": lambda rows: [row | {"judge_llm": 1, "abstained": 0} for row in rows],
    "features that disagree": lambda rows: [row | {"notes": place} for place, row in enumerate(rows)],
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_outcomes_give_tables_or_reasons_and_never_an_exception(name: str) -> None:
    found = tables(from_rows(ODD[name](made(questions=8, budgets=(32, 64)))), draws=20)
    assert tuple(each.key for each in found) == KEYS
    assert all((each.missing is None) == bool(each.rows) for each in found)
    json.dumps([asdict(each) for each in found], allow_nan=False)


@settings(max_examples=12)
@given(st.data())
def test_any_part_of_a_table_gives_tables_or_reasons(data: st.DataObject) -> None:
    rows = made(
        questions=data.draw(st.integers(1, 9)), budgets=(32, 64), actions=PAPER, talks=data.draw(st.integers(1, 9))
    )
    kept = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    gone = data.draw(st.sets(st.sampled_from(["fit", "type", "notes", "abstained", "conversation", "judge_overlap"])))
    part = drop(*gone)([rows[place] for place in sorted(kept)])
    readings = Readings(from_rows(part), judge=None, draws=10, seed=1, repeats=1)
    for spec in SPECS:
        if spec.key != "mlp-check":  # as the other learned ones, only slower
            found = spec.table(readings)
            assert (found.missing is None) == bool(found.rows), spec.key


# -- the pilot ---------------------------------------------------------------------------------------------------------

needs_pilot = pytest.mark.skipif(not PILOT.is_file(), reason="RETCON_DATA: no pilot outcomes here")


@cache
def pilot() -> dict[str, Table]:
    readings = Readings(read(PILOT), judge=None, draws=1000, seed=20260716, repeats=1)
    return {spec.key: spec.table(readings) for spec in SPECS if spec.key != "mlp-check"}


@needs_pilot
def test_pilot_accuracies_are_those_that_its_page_states() -> None:
    stated = {
        ("LongMemEval, controlled", "Retention"): ".033 .183 .273 .333",
        ("LongMemEval, controlled", "Abstract, agnostic"): ".157 .167 .220 .220",
        ("LongMemEval, controlled", "Abstract, focused"): ".397 .403 .390 .397",
        ("LoCoMo, full history", "Extract"): ".283 .350 .433 .442",
        ("LoCoMo, full history", "Hybrid"): ".208 .342 .408 .517",
    }
    for start, accuracies in stated.items():
        assert " ".join(text(cell) for cell in find(pilot()["all-actions"], *start)[:4]) == accuracies
    for data, none, full in (("LongMemEval, controlled", 0.027, 0.360), ("LoCoMo, full history", 0.025, 0.500)):
        for name, stated_ in (("No memory", none), ("No budget", full)):
            *at, macro = find(pilot()["all-actions"], data, name)
            assert set(at) == {"–"}
            assert round(macro.mean, 3) == stated_


@needs_pilot
def test_pilot_gains_turn_with_the_budget_and_are_differences_of_those_accuracies() -> None:
    for operator in ("Abstract", "Merge", "Rewrite"):
        tight, loose = (find(pilot()["operator-gains"], operator, budget)[0] for budget in ("32", "256"))
        assert tight.low > 0
        assert loose.mean < 0
    assert find(pilot()["operator-gains"], "Abstract", "32")[0].mean == pytest.approx(0.157 - 0.033, abs=0.001)
    assert find(pilot()["locomo-gains"], "256", "Merge")[0].mean == pytest.approx(0.375 - 0.500, abs=0.001)
    assert pilot()["locomo-gains"].marks[-1] == "rewrite not measured"


@needs_pilot
def test_pilot_judges_agree_as_its_page_states() -> None:
    assert round(find(pilot()["judges"], "LongMemEval, controlled", "All")[2].mean, 2) == 0.90
    assert round(find(pilot()["judges"], "LoCoMo, full history", "All")[2].mean, 2) == 0.80


@needs_pilot
def test_pilot_oracles_are_as_its_page_states_and_ladders_beat_the_best_fixed_action() -> None:
    assert round(find(pilot()["routing-baselines"], "Action oracle (hindsight)")[-1].mean, 3) == 0.420
    for data, oracle in (("LongMemEval, controlled", 0.577), ("LoCoMo, full history", 0.708)):
        assert round(find(pilot()["ladders"], data, "Action oracle (hindsight)")[0].mean, 3) == oracle
        _, gap, _, calls, _, _ = find(pilot()["ladders"], data, "Ladder")
        assert gap.low > 0
        assert 1 < calls.mean < 2


@needs_pilot
def test_pilot_lacks_what_its_page_says_it_lacks() -> None:
    missing = {key for key, each in pilot().items() if each.missing}
    assert missing == {"cross-model", "independent", "unsupported", "false-answers"}
    assert "the router sees no inconsistency or similarity, which the rows lack" in pilot()["joint-routing"].marks
    regimes = [row[-1] for row in pilot()["budget-pressure"].rows]
    assert regimes == ["Severely tight", "Tight", "Transition", "Loose"]


@needs_pilot
def test_pilot_study_matches_the_panel_that_routers_learn_from() -> None:
    rows = read(PILOT).where(dataset="longmemeval")
    study = Study(rows, {}, model="", judge="llm", draws=10, seed=1)
    of = study.panel(["retain", "merge", "abstract", "rewrite"])
    assert of.questions != tuple(study.questions)  # another order, which `spread` undoes
    merge = of.actions.index("merge")
    assert np.array_equal(study.spread(of, of.utility[:, :, merge]), study.values("merge"))
    assert np.array_equal(study.spread(of, of.fit), study.fit)
