"""Tables of a report where outcomes differ from the paper's, lack something or are odd: marks and reasons, no error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import (
    EVERY,
    KEYS,
    PAPER,
    Row,
    difference,
    drop,
    everything,
    find,
    made,
    one,
    pick,
    quick,
    table,
    tables,
)

from retcon.lab.outcomes import from_rows
from retcon.lab.report.build import SPECS
from retcon.lab.report.studies import Readings


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
        ("independent", "fold", "waits for outcomes: no rows say fit, calibration, gate"),
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
    found = tables(ODD[name](made(questions=8, budgets=(32, 64))), draws=20)
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
    readings = Readings(from_rows(part), draws=10, seed=1)
    for spec in SPECS:
        if spec.key != "mlp-check":  # as the other learned ones, only slower
            found = spec.table(readings)
            assert (found.missing is None) == bool(found.rows), spec.key
