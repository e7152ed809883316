"""The analyses behind docs/results: right on made-up outcomes, and the committed results are those of the rows."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from bench import doc_tables, evaluation, findings, first_gate, judges, ladder_depth, large_budgets, transfer
from bench.doc_tables import load
from bench.evaluation import FREE, ROWS, SIX, panel_of, round_numbers, rows_of, ways_to_draw
from bench.findings import crossing, first_fall, gain_of, gains, pairs, unsupported_claims
from bench.runs import GROUPS, RUNS
from retcon.lab.crossfit import holdout
from retcon.lab.outcomes import Panel, from_rows, panel
from retcon.lab.stats import resample

BUDGETS = (32, 128)
IDS = ("question_id", "conversation", "twin")
APART = {"locomo-product-gate", "locomo-independent-gate", "retrieval-features"}  # gates, and what is no outcome
RIVALS = ("rivals", "rivals-histories", "rivals-order")  # in a form of their own
Verdict = Callable[[int, int, str], float]


def make_panel(
    verdict: Verdict, *, questions: int = 8, actions: Sequence[str] = ("retain", "merge"), fit: float = 0.5
) -> Panel:
    """A panel of two conversations whose verdicts a function of question, budget and action gives."""
    rows: list[Mapping[str, Any]] = [
        {
            "question_id": f"q{q}", "conversation": f"c{q % 2}", "budget": budget, "action": action, "fit": fit,
            "judge_llm": verdict(q, budget, action), "abstained": 0.0, "type": "temporal",
        }
        for q in range(questions) for budget in BUDGETS for action in actions
    ]  # fmt: skip
    return panel(from_rows(rows))


# -- crossover ---------------------------------------------------------------------------------------------------------


def columns(low: float, high: float, n: int = 40) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[n, 2] with these means."""
    return np.tile([low, high], (n, 1))


def test_the_crossover_is_interpolated_in_log2_of_the_budget_and_in_full_fit() -> None:
    found = crossing(columns(0.5, -0.5), columns(0.2, 0.8), BUDGETS, resample(40, seed=1, draws=200))
    assert found["budget"] == pytest.approx(64)
    assert found["full_fit"]["share"] == pytest.approx(0.5)
    assert (found["low"], found["high"], found["no_zero"]) == (pytest.approx(64), pytest.approx(64), 0)
    quarter = crossing(columns(0.1, -0.3), columns(0.2, 0.8), BUDGETS, resample(40, seed=1, draws=200))
    assert quarter["budget"] == pytest.approx(32 * 2**0.5)
    assert quarter["full_fit"]["share"] == pytest.approx(0.35)


@pytest.mark.parametrize(("low", "high", "side"), [(0.4, 0.1, "above"), (-0.1, -0.4, "below"), (-0.1, 0.4, "above")])
def test_gains_that_never_fall_to_zero_have_no_crossover(low: float, high: float, side: str) -> None:
    found = crossing(columns(low, high), columns(0.2, 0.8), BUDGETS, resample(40, seed=1, draws=200))
    assert (found["budget"], found["side"], found["no_zero"]) == (None, side, 1)
    assert round_numbers(found)["full_fit"] == {"share": None, "low": None, "high": None, "no_zero": 1.0}
    assert doc_tables.at_budget(found, BUDGETS) == {"above": "above 128", "below": "below 32"}[side]


def test_how_often_resamples_have_no_zero_is_counted() -> None:
    rng = np.random.default_rng(5)
    values = np.stack([np.full(60, 0.5), rng.choice([-1.0, 1.0], 60, p=[0.55, 0.45])], axis=1)
    draws = resample(60, seed=2, draws=2000)
    found = crossing(values, columns(0.2, 0.8, 60), BUDGETS, draws)
    means = draws.counts @ values / 60
    assert found["no_zero"] == pytest.approx(float((means[:, 1] > 1e-9).mean()))
    assert 0 < found["no_zero"] < 1


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=4), st.lists(st.floats(-1, -0.01), min_size=1, max_size=4))
def test_a_zero_lies_between_the_last_gain_and_the_first_loss(up: list[float], down: list[float]) -> None:
    ys, xs = np.array([[*up, *down]]), np.arange(float(len(up) + len(down)))[None]
    assert len(up) - 1 <= first_fall(xs, ys)[0] <= len(up)


# -- operators ---------------------------------------------------------------------------------------------------------


def test_gains_are_those_of_the_rows_and_drawn_by_question_and_conversation() -> None:
    """Merge is right wherever retention is wrong at 32 tokens; neither is ever right at 128."""
    built = make_panel(lambda q, budget, action: float(budget == 32 and (q < 2) == (action == "retain")))
    ways = ways_to_draw(built, draws=200)
    first, second = gains(built, ways, ("merge",))
    assert (first["retention"], first["accuracy"], first["helped"], first["harmed"]) == (0.25, 0.75, 6, 2)
    assert first["by_question"]["mean"] == first["by_conversation"]["mean"] == pytest.approx(0.5)
    assert second["by_question"] == {"mean": 0, "low": 0, "high": 0, "n": 8}
    assert gain_of(built, "merge").mean(axis=0).tolist() == [0.5, 0]


def test_a_pair_is_compared_at_every_budget_and_over_all() -> None:
    right = {("extract", 32): 1.0, ("extract", 128): 1.0, ("merge", 32): 0.0, ("merge", 128): 1.0}
    built = make_panel(
        lambda q, budget, action: right.get((action, budget), 0.0), actions=("retain", "extract", "merge")
    )
    (found,) = pairs(built, ways_to_draw(built, draws=100), [("extract", "merge")])
    assert [found["budgets"][str(b)]["by_question"]["mean"] for b in BUDGETS] == [1, 0]
    assert found["mean"]["by_question"]["mean"] == 0.5


def test_unsupported_counts_the_records_that_were_written_and_nothing_else() -> None:
    rows = [
        {"question_id": f"q{q}", "budget": 32, "action": action, "judge_llm": 0.0, "unsupported": said}
        for q in range(4)
        for action, said in (("retain", None), ("merge", float(q == 0)), ("hybrid", 1.0 if q == 3 else None))
    ]
    found = unsupported_claims(from_rows(rows))
    assert list(found) == ["hybrid", "merge"]
    assert (found["hybrid"]["records"], found["hybrid"]["mean"]) == (1, 1), (
        "where nothing was written nothing is claimed"
    )
    assert (found["merge"]["records"], found["merge"]["mean"], found["merge"]["budgets"]) == (4, 0.25, {"32": 0.25})


# -- judges ------------------------------------------------------------------------------------------------------------


def make_labels(
    right: Sequence[int], said: Sequence[int], silent: Sequence[int] | None = None
) -> judges.LabelledAnswers:
    """As many labels of each action in turn, one judge's verdicts for all."""
    size = len(right)
    verdicts = dict.fromkeys(judges.NAMES, np.array(said, bool))
    action = np.array([judges.ACTIONS[i % 5] for i in range(size)])
    return judges.LabelledAnswers(
        action, np.array(right, bool), np.zeros(size, bool), np.array(silent or [0] * size), verdicts
    )


def test_trust_counts_what_a_judge_finds_and_lets_pass() -> None:
    found = judges.trust(np.array([1, 1, 1, 0, 0, 0], bool), np.array([1, 1, 0, 1, 0, 0], bool))
    assert [(found[name]["k"], found[name]["n"]) for name in ("accuracy", "precision", "recall", "let_pass")] == [
        (4, 6), (2, 3), (2, 3), (1, 3),
    ]  # fmt: skip


@given(st.integers(0, 30), st.integers(1, 30))
def test_shares_have_the_exact_interval(k: int, extra: int) -> None:
    n = k + extra
    found = judges.share(k, n)
    assert found["low"] == pytest.approx(0 if k == 0 else beta.ppf(0.025, k, n - k + 1), abs=1e-9)
    assert found["high"] == pytest.approx(beta.ppf(0.975, k + 1, n - k), abs=1e-9)


def test_a_judge_that_errs_alike_everywhere_favours_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "DRAWS", 200)
    alike = judges.favours(np.ones(50, bool), make_labels([1] * 25 + [0] * 25, [1] * 50))
    assert (alike["largest_difference"], alike["p"]) == (pytest.approx(0), 1)
    labels = make_labels([0] * 50, [1] * 50)
    partial = judges.favours(labels.action == "retain", labels)
    assert (partial["largest_difference"], partial["added"]["retain"]) == (1, 1)
    assert partial["p"] < 0.01


def make_end(answered: float, right: float, n: int = 40) -> judges.PolicyEnd:
    """A policy that answers so many questions, so many of them right by the judge."""
    said, good = (np.arange(n)[None, :, None] < round(share * n) for share in (answered, right))
    return judges.PolicyEnd(good & said, said, np.zeros((1, n, 1), np.int64), np.zeros((1, n, 1), np.int64))


@pytest.mark.parametrize("how", judges.HOW)
def test_a_judge_without_errors_needs_no_correction(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "DRAWS", 100)
    labels = make_labels([1, 0] * 20, [1, 0] * 20)
    found = judges.correct_gain(make_end(0.9, 0.6), make_end(0.5, 0.4), labels, "llm", judges.ACTIONS, how)
    assert found["mean"] == pytest.approx(0.2)


def test_wrong_answers_that_a_judge_lets_pass_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge calls every answer right and half are: answering 40 % more is worth 20 %."""
    monkeypatch.setattr(judges, "DRAWS", 100)
    labels = make_labels([1, 0] * 20, [1] * 40)
    found = judges.correct_gain(make_end(0.9, 0.9), make_end(0.5, 0.5), labels, "llm", judges.ACTIONS, judges.HOW[0])
    assert found["mean"] == pytest.approx(0.2)
    assert found["low"] < 0.2 < found["high"]


def test_a_label_without_its_row_is_an_error() -> None:
    with pytest.raises(KeyError):
        judges.join_labels([{"question_id": "nobody", "budget": 32, "action": "retain"}], rows_of("locomo-rewrite"))


# -- what is committed -------------------------------------------------------------------------------------------------


def test_committed_findings_are_those_of_the_rows() -> None:
    kept = load("findings")
    assert kept["unsupported"]["locomo-rewrite"] == round_numbers(unsupported_claims(rows_of("locomo-rewrite")))
    study = kept["judges"]["strict"]["history"]["locomo-rewrite"]
    assert study == round_numbers(findings.history("strict"))["locomo-rewrite"]


def test_committed_trust_in_judges_is_that_of_the_labels() -> None:
    labels = judges.join_labels(json.loads(judges.LABELS.read_text(encoding="utf-8")), rows_of(judges.RUN))
    kept = load("judges")
    assert (kept["labels"], kept["doubtful"]) == (len(labels.right), labels.doubtful.sum())
    for name, said in labels.verdicts.items():
        assert kept["judges"]["every label"][name]["all"] == round_numbers(judges.trust(said, labels.right))


def test_committed_transfer_is_that_of_the_rows() -> None:
    three = transfer.directions("llm")["LoCoMo to LongMemEval"]
    kept = load("transfer")["judges"]["llm"]["LoCoMo to LongMemEval"]["no model"]["six"]
    fit, calibration, test = (panel_of(each, FREE).with_features(SIX) for each in three)
    scored = holdout(fit, calibration, test, policies={"direct": transfer.POLICIES["direct"]}, rules=transfer.RULES)
    (direct,) = (row for row in kept["policies"] if row["policy"] == "direct")
    assert round_numbers(scored.results["direct"].macro) == direct["macro"]


def test_rows_hold_ids_and_numbers_and_nobodys_words() -> None:
    runs = {path.stem for path in ROWS.glob("*.parquet")} - APART - set(RIVALS)
    every = {run.name for run in RUNS}
    later = set(GROUPS["rivals"])  # whose run may be still to come
    assert every - later <= {name.removesuffix("-gate") for name in runs}
    assert {name.removesuffix("-gate") for name in runs} <= every
    tables = {run: {name: each.tolist() for name, each in rows_of(run).columns.items()} for run in sorted(runs)}
    for run, columns in (
        tables | {name: pq.read_table(ROWS / f"{name}.parquet").to_pydict() for name in RIVALS}
    ).items():
        assert len(columns["conversation"]) > 100
        for name, column in columns.items():
            words = [value for value in set(column) if isinstance(value, str)]
            longest = 100 if name in IDS else 50  # TimeQA's ids hold the title of a page
            assert max(map(len, words), default=0) <= longest, (run, name)
            assert not any(" " in value for value in words), (run, name)


@pytest.mark.parametrize(
    "module",
    [evaluation, findings, large_budgets, ladder_depth, transfer, judges, doc_tables],
    ids=lambda module: module.__name__,
)
def test_no_analysis_after_the_gate_reads_its_rows(module: ModuleType) -> None:
    assert "product-gate" not in inspect.getsource(module)
    assert "product-gate" in inspect.getsource(first_gate)


def test_every_table_can_be_made_from_the_committed_results() -> None:
    for name, make in doc_tables.tables().items():
        text = make()
        assert len({line.count("|") for line in text.splitlines()}) == 1, name
        assert "nan" not in text.lower(), name
