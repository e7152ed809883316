"""How full texts are, and the runs that wait for outcomes: counted right, drawn before, and no one's result is read."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from bench import ROOT, audit_ids, fill
from bench.doc_tables import load
from bench.domains import PREREG
from bench.evaluation import round_numbers, rows_of
from bench.runs import GROUPS, RUNS, questions, read_part
from retcon.lab.outcomes import from_rows

DATA = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
AUDIT = [run for run in RUNS if run.name in GROUPS["audit"]]


def test_fill_is_the_mean_share_of_the_budget_and_apart_where_not_all_notes_fit() -> None:
    same = {"budget": 32, "action": "retain", "judge_llm": 0.0}
    cells = [(8, 1.0), (16, 0.5), (0, 0.2), (32, 1.0)]  # tokens of the text, share of notes that fit
    rows = [
        {"question_id": f"q{q}", "context_tokens": tokens, "fit": fit} | same for q, (tokens, fit) in enumerate(cells)
    ]
    found = fill.fill(from_rows(rows))
    assert found["retain"]["32"] == {"all": 0.4375, "pressed": 0.25, "empty": 0.25, "n": 4, "n_pressed": 2}


def test_no_verdict_is_read() -> None:
    assert "judge" not in inspect.getsource(fill).lower().replace("verdict", "")


def test_committed_fill_is_that_of_the_rows() -> None:
    kept = load("fill")
    assert kept["controlled"]["locomo-controlled"] == round_numbers(fill.fill(rows_of("locomo-controlled")))
    assert kept["domains"]["factcon"] == round_numbers(fill.fill(fill.domain_rows("factcon")))
    for actions in kept["domains"].values():
        assert all(cell["all"] <= 1 for at in actions.values() for cell in at.values()), "everything shown counts"


# -- runs that wait ----------------------------------------------------------------------------------------------------


def test_the_parts_of_the_independent_evaluation_share_no_question_or_conversation() -> None:
    (run,) = (run for run in AUDIT if run.name == "locomo-independent")
    ids = {part.rpartition("/")[2]: read_part(run, part) for part in run.ids}
    assert {part: len(some) for part, some in ids.items()} == audit_ids.SIZES
    for part, some in ids.items():
        assert len(set(some)) == len(some)
        assert {name.split(":")[0] for name in some} == set(audit_ids.CONVERSATIONS[part])
    seen = {name for part in audit_ids.USED for name in (PREREG / f"locomo-{part}.txt").read_text().split()}
    assert not any(seen & set(some) for some in ids.values())


def test_the_gate_of_the_independent_evaluation_has_no_outcome_in_its_protocol() -> None:
    gate = set(read_part(next(run for run in AUDIT if run.name == "locomo-independent"), "independent/gate"))
    for run in ("locomo-history", "locomo-rewrite"):
        assert not gate & set(rows_of(run).columns["question_id"].tolist())


@pytest.mark.skipif(not (DATA / "locomo10.json").is_file(), reason="RETCON_DATA: no published files here")
def test_the_questions_are_those_that_the_seed_draws() -> None:
    for name, some in audit_ids.draw().items():
        kept = (PREREG / f"{name}.txt").read_text(encoding="utf-8").split()
        assert kept == [question.id for question in some], name


@pytest.mark.skipif(not (DATA / "locomo10.json").is_file(), reason="RETCON_DATA: no published files here")
def test_every_run_of_the_audit_finds_its_questions() -> None:
    sizes = {"locomo-independent": 300, "longmemeval-paired": 75}
    for run in AUDIT:
        picked = list(questions(run))
        assert len(picked) == sizes.get(run.name, 160)
        assert {fold for fold, _ in picked} == ({"fit", "calibration", "gate"} if len(run.ids) > 1 else {""})
        assert all(question.evidence for _, question in picked)
