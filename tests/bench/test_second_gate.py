"""The second gate: its questions are new, the committed result is that of the rows, whole notes first harms none."""

from __future__ import annotations

import numpy as np
import pytest

from bench import second_gate
from bench.doc_tables import load
from bench.domains import PREREG
from bench.evaluation import JUDGES, round_numbers, rows_of
from retcon.lab.fit_ladder import serving_plan, walk, whole_first
from retcon.lab.outcomes import panel
from retcon.route import SHIPPED, load_shipped

LADDERS = ("locomo", "locomo-free", "longmemeval", "longmemeval-free")


def ids(name: str) -> set[str]:
    return set((PREREG / f"locomo-{name}.txt").read_text(encoding="utf-8").split())


def test_the_questions_are_those_that_were_named_and_no_others_were_learned_from_or_opened() -> None:
    asked = set(rows_of(second_gate.SECOND).columns["question_id"].tolist())
    assert asked == ids("second")
    assert len(asked) == 335
    assert not any(asked & ids(name) for name in ("fit", "calibration", "gate", "tables", "rewrite", "abstention"))
    assert {name.split(":")[0] for name in asked} == {name.split(":")[0] for name in ids("gate")}


@pytest.mark.parametrize("judge", JUDGES)
def test_the_committed_result_is_that_of_the_rows(judge: str) -> None:
    found = second_gate.analyse(rows_of("locomo-product"), rows_of(second_gate.SECOND), judge)
    assert load("second_gate")["judges"][judge] == round_numbers(found)


@pytest.mark.parametrize("name", LADDERS)
@pytest.mark.parametrize("run", ["locomo-second", "locomo-product", "pool-product"])
def test_no_shipped_ladder_harms_after_a_look_at_whole_notes(name: str, run: str) -> None:
    for judge in JUDGES:
        made = panel(rows_of(run), judge=judge)
        whole = made.utility[:, :, made.actions.index("retain")]
        own = serving_plan(load_shipped(name), made)
        assert not np.any(walk(made, whole_first(own)).utility < whole)
        assert np.any(walk(made, own).utility < whole)  # or there was nothing to be safe from


def test_these_are_all_the_ladders_that_ship() -> None:
    assert sorted(name for name in SHIPPED if load_shipped(name).ladder is not None) == sorted(LADDERS)


def test_a_rehearsal_leaves_the_second_gate_shut() -> None:
    found = second_gate.analyse(rows_of("locomo-product"), None, "strict")
    assert found["questions"] == 200  # the calibration questions
