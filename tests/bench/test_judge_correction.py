"""Figures corrected by labels, on made populations where it is known who is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.evaluation import rows_of
from bench.judge_correction import Cells, Worth, corrected
from bench.judge_labels import NAMES, Labels, agreement, as_labels, draw_weights, kappa, read_labels, run
from bench.judge_sample import (
    ABSTAINED,
    ANSWERED,
    DOMAINS,
    UNANSWERABLE,
    WAVES,
    draw,
    name_texts,
    show,
    stratum,
    wanted,
)
from bench.travel import play_always, read_waves
from retcon.errors import InputError
from retcon.lab.domains import REFUSED

QUESTIONS, BUDGETS, ACTIONS = 60, (64, 256), ("retain", "extract", "merge", "abstract")
Row = dict[str, Any]


def population(seed: int, shifted: bool = False) -> list[Row]:
    """Replies of seven domains with their truth; what a verdict is worth differs by domain.

    `shifted`: it also differs by action, against copied texts.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for d, domain in enumerate(DOMAINS):
        for q in range(QUESTIONS):
            answerable, ease = q % 5 > 0, rng.uniform()
            for budget in BUDGETS:
                for a, action in enumerate(ACTIONS):
                    abstained = bool(rng.uniform() < 0.3)
                    said = verdicts(rng, ease + 0.1 * a, answerable, abstained)
                    worth = 0.3 + 0.05 * d - (0.3 if shifted and a < 2 else 0)
                    shares = {(1, 1): 0.95, (1, 0): worth, (0, 1): 0.8, (0, 0): 0.04 + 0.02 * d}
                    right = answerable and not abstained and rng.uniform() < shares[said]
                    rows.append(
                        {
                            "domain": domain, "question_id": f"{domain}-{q}", "twin": f"{domain}-{q - q % 5}",
                            "budget": budget, "action": action, "kind": "answerable" if answerable else "removed",
                            "abstained": float(abstained), "truth": bool(right), "reply": f"{q} {budget} {action}",
                            "judge_llm": said[0], "judge_strict": said[1], "judge_f1": 0, "judge_overlap": 0,
                        }
                    )  # fmt: skip
    return rows


def verdicts(rng: np.random.Generator, ease: float, answerable: bool, abstained: bool) -> tuple[int, int]:
    """What both judges say: more often right where it is easy."""
    if abstained:
        return int(not answerable), int(not answerable)
    if not answerable:
        return int(rng.uniform() < 0.05), 0
    llm = int(rng.uniform() < 0.2 + 0.6 * ease)
    return llm, int(rng.uniform() < (0.3 if llm else 0.05))


def labels_of(rows: list[Row], seed: int, slips: float = 0.0) -> Labels:
    """Labels of a sample; an abstention is right where there is no answer. Each reader slips that often."""
    rng = np.random.default_rng(seed)
    kept = []
    for row in name_texts(draw(rows, seed), seed):
        truth = row["truth"] if row["abstained"] == 0 else row["kind"] != "answerable"
        said = [int(truth != (rng.uniform() < slips)) for _ in range(2)]
        judges = {name: int(row[f"judge_{name}"] > 0.5) for name in NAMES}
        kept.append(row | {"judges": judges, "right": said, "unsure": [0, 0]})
    return as_labels(kept)


def policy(rows: list[Row], choose: Any) -> list[Row]:
    """One row for each question and budget: the action that `choose` names."""
    return [row for row in rows if row["action"] == choose(row)]


def true_worth(rows: list[Row], cost: float = 0.0) -> float:
    """Mean over domains of right - cost * wrong."""
    means = []
    for domain in DOMAINS:
        here = [row for row in rows if row["domain"] == domain]
        means.append(np.mean([row["truth"] - cost * (not row["truth"] and not row["abstained"]) for row in here]))
    return float(np.mean(means))


def always(action: str) -> Any:
    return lambda row: action


# -- the estimator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_the_corrected_figure_finds_the_truth_where_the_judge_does_not(cost: float) -> None:
    errors, judged = [], []
    for seed in range(8):
        rows = population(seed)
        mine = policy(rows, always("abstract"))
        found = corrected(Cells.of(mine), labels_of(rows, seed), worth=Worth(wrong_cost=cost), draws=50)
        errors.append(found.mean - true_worth(mine, cost))
        seen = [row | {"truth": row["judge_llm"] > 0.5 and row["kind"] == "answerable"} for row in mine]
        judged.append(true_worth(seen, cost) - true_worth(mine, cost))
    assert abs(np.mean(errors)) < 0.01 * (1 + cost)
    assert np.mean(judged) > 0.05 * (1 + cost)


def test_its_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    inside, widths, errors = 0, [], []
    for seed in range(30):
        rows = population(seed)
        mine, base = policy(rows, always("abstract")), policy(rows, always("retain"))
        found = corrected(Cells.of(mine), labels_of(rows, seed), against=Cells.of(base), draws=300)
        expected = true_worth(mine) - true_worth(base)
        inside += found.low <= expected <= found.high
        widths.append(found.high - found.low)
        errors.append(found.mean - expected)
    assert inside >= 27  # of 30 at 95 %
    assert np.mean(widths) < 6 * np.std(errors)  # and not by being wide: 4 would be exact


def test_one_judge_alone_is_corrected_to_the_same_truth() -> None:
    rows = population(3)
    mine, labels = policy(rows, always("merge")), labels_of(rows, 3)
    for judges in (("llm",), ("strict",), ("llm", "strict")):
        found = corrected(Cells.of(mine), labels, judges=judges, draws=300)
        assert found.low <= true_worth(mine) <= found.high


def test_the_check_finds_the_truth_where_a_verdict_is_worth_more_to_one_policy() -> None:
    plain, checked = [], []
    for seed in range(12):
        rows = population(seed, shifted=True)
        mine, labels = policy(rows, always("retain")), labels_of(rows, seed)
        truth = true_worth(mine)
        plain.append(corrected(Cells.of(mine), labels, judges=("llm",), draws=10).mean - truth)
        checked.append(corrected(Cells.of(mine), labels, judges=("llm",), checked=True, draws=10).mean - truth)
    assert np.mean(plain) > 0.03
    assert abs(np.mean(checked)) < 0.015


def test_an_abstention_needs_no_judge() -> None:
    rows = [row | {"abstained": 1.0, "judge_llm": 1.0, "judge_strict": 1.0} for row in population(1)]
    mine, labels = Cells.of(policy(rows, always("merge"))), labels_of(population(1), 1)
    assert corrected(mine, labels, draws=10).mean == 0
    right = corrected(mine, labels, worth=Worth(abstention=1), unanswerable=0.4, draws=10)
    assert (right.mean, right.low, right.high) == pytest.approx((0.4, 0.4, 0.4))


def test_a_policy_less_itself_is_nothing() -> None:
    rows = population(2)
    mine = Cells.of(policy(rows, always("merge")))
    found = corrected(mine, labels_of(rows, 2), against=mine, worth=Worth(1), unanswerable=0.2, draws=50)
    assert (found.mean, found.low, found.high) == (0, 0, 0)


def test_wrong_input_is_named() -> None:
    rows = population(2)
    mine, labels = policy(rows, always("merge")), labels_of(rows, 2)
    with pytest.raises(InputError, match="same questions"):
        corrected(Cells.of(mine), labels, against=Cells.of(mine[:-20]))
    with pytest.raises(InputError, match="between 0 and 1"):
        corrected(Cells.of(mine), labels, unanswerable=40)
    answerable = [row for row in mine if row["kind"] == "answerable" or row["domain"] != "longmemeval"]
    with pytest.raises(InputError, match="longmemeval has no unanswerable question"):
        corrected(Cells.of(answerable), labels, unanswerable=0.2)
    with pytest.raises(InputError, match="without a reply"):
        Cells.of([])


def test_what_a_policy_came_to_on_the_kept_rows_is_read_cell_by_cell() -> None:
    domain = read_waves("timeqa", WAVES)
    played = play_always("merge", domain)
    rows = [row for wave in WAVES for row in rows_of(f"timeqa-wave{wave}").rows() if row["action"] == "merge"]
    mine, same = Cells.of_played([(domain, played)]), Cells.of(row | {"domain": "timeqa"} for row in rows)
    assert len(mine) == len(same) == len(domain.questions) * len(domain.budgets)
    assert {reply for reply, silent in zip(mine.reply, mine.abstained, strict=True) if not silent} == {
        reply for reply, silent in zip(same.reply, same.abstained, strict=True) if not silent
    }
    labels = read_labels()
    for part, worth in ((0.0, Worth()), (0.4, Worth(wrong_cost=1, abstention=1))):
        one, other = (corrected(cells, labels, unanswerable=part, worth=worth, draws=20) for cells in (mine, same))
        assert one.mean == pytest.approx(other.mean)
        assert (one.low, one.high) == pytest.approx((other.low, other.high))
    refused = Cells.of_played([(domain, replace(played, action=np.full_like(played.action, REFUSED)))])
    assert corrected(refused, labels, worth=Worth(abstention=1), unanswerable=0.2, draws=5).mean == pytest.approx(0.2)


# -- labels ------------------------------------------------------------------------------------------------------------


def test_a_sample_stands_for_its_population() -> None:
    rows = population(5)
    drawn = draw(rows, 5)
    held = [row for row in rows if wanted(stratum(row))]
    assert sum(row["weight"] for row in drawn) == pytest.approx(len(held))
    assert len({(row["question_id"], row["budget"], row["action"]) for row in drawn}) == len(drawn)
    assert draw(rows, 5) == drawn != draw(rows, 6)
    assert min(min(ANSWERED.values()), min(UNANSWERABLE.values()), min(ABSTAINED.values())) > 1  # an error is seen


def test_a_sheet_shows_nothing_of_how_a_reply_came_about() -> None:
    row = population(5)[0] | {"id": "r001", "question": "Who?", "gold": "Ann", "raw_type": "plain", "weight": 2.0}
    assert set(show(row | {"kind": "answerable"})) == {"id", "question", "answer", "reply"}
    assert set(show(row | {"raw_type": "single-session-preference", "kind": "answerable"})) == {
        "id", "question", "rubric", "reply",
    }  # fmt: skip
    hidden = show(row | {"kind": "removed", "gold": "not in memory"})
    assert set(hidden) == {"id", "question", "no_answer", "reply"}


def test_labels_drawn_anew_keep_the_size_of_every_stratum_on_average() -> None:
    labels = labels_of(population(4), 4)
    drawn = draw_weights(labels, 4000)
    for number in np.unique(labels.stratum):
        here = labels.stratum == number
        assert drawn[:, here].sum(axis=1) == pytest.approx(labels.weight[here].sum())
    assert drawn.mean(axis=0) == pytest.approx(labels.weight, rel=0.2)


def test_kappa_is_one_for_the_same_and_nothing_for_chance() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.uniform(size=(2, 5000)) < 0.4
    assert kappa(one, one) == 1
    assert kappa(one, other) == pytest.approx(0, abs=0.05)
    assert kappa(np.array([True]), np.array([True])) is None
    both, only = np.array([1, 1, 1, 0, 0, 0, 1, 0]) == 1, np.array([1, 1, 0, 0, 0, 0, 1, 1]) == 1
    assert kappa(both, only) == pytest.approx(0.5)  # 6 of 8 the same, 1 in 2 by chance


def test_trust_of_a_judge_is_that_of_the_population_and_not_of_the_sample() -> None:
    rows = population(7)
    answered = [row for row in rows if row["kind"] == "answerable" and row["abstained"] == 0]
    passed = [row for row in answered if row["judge_llm"] > 0.5]
    precision = float(np.mean([row["truth"] for row in passed]))
    labels = labels_of(rows, 7)
    found = run(labels, draws=200)["judges"]["both readers, half where they differ"]["answerable, answered"]["llm"]
    assert found["precision"]["low"] <= precision <= found["precision"]["high"]
    says = float(np.mean([row["judge_llm"] > 0.5 for row in answered]))
    assert found["says_right"]["share"] == pytest.approx(says, abs=1e-6)  # strata know it exactly
    naive = labels.verdicts["strict"][labels.answerable & ~labels.abstained].mean()
    assert abs(naive - np.mean([row["judge_strict"] for row in answered])) > 0.05


def test_readers_that_differ_count_half_and_are_told() -> None:
    labels = labels_of(population(8), 8, slips=0.1)
    told = agreement(labels)
    assert 0.7 < told["same"] < 0.95
    assert told["differ"] == round((1 - told["same"]) * told["replies"])
    assert set(labels.truth.tolist()) == {0, 0.5, 1}


def test_the_kept_labels_are_of_both_readers_and_hold_no_text() -> None:
    labels = read_labels()
    assert len(set(labels.text.tolist())) >= 420
    assert set(labels.domain.tolist()) == set(DOMAINS)
    assert labels.right.shape == labels.unsure.shape == (len(labels), 2)
