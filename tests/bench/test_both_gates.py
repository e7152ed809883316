"""Both gates with unanswerable questions in their own share: right on made-up outcomes, and committed as rows say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import ROOT, both_gates, first_gate, headline, second_gate
from bench.doc_tables import load
from bench.evaluation import JUDGES, LEARNS, expect_silence, halves, parts, round_numbers, rows_of, unlearned
from retcon.lab.crossfit import REFERENCE, VOTE, best_fixed, vote_of_two
from retcon.lab.fit_ladder import walk
from retcon.lab.outcomes import Panel, from_rows, panel

DATA = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")


def make_panel(said: dict[str, list[str]], talks: int = 2) -> Panel:
    """A panel at one budget; for each action what it said to each question: right, wrong or none."""
    return panel(from_rows([
        {
            "question_id": f"q{q}", "conversation": f"c{q % talks}", "budget": 32, "action": action,
            "fit": 0.5 + q / 99, "judge_llm": word == "right", "abstained": word == "none", "type": "temporal",
            "logprob": -1.0,
        }
        for action, words in said.items() for q, word in enumerate(words)
    ]))  # fmt: skip


# -- one frozen policy -------------------------------------------------------------------------------------------------


def test_what_is_learned_does_not_depend_on_who_scores() -> None:
    llm, strict = (parts(rows_of("locomo-product"), rows_of("locomo-second"), judge) for judge in JUDGES)
    for one, two in zip(llm[:2], strict[:2], strict=True):
        assert (one.judge, two.judge, one.questions) == (LEARNS, LEARNS, two.questions)
        assert np.array_equal(one.runs, two.runs)
    assert [llm[2].judge, strict[2].judge] == list(JUDGES)


def test_both_judges_score_the_same_answers_of_the_same_policies() -> None:
    kept = load("first_gate")["judges"]
    spent = {judge: {row["policy"]: row["calls"] for row in kept[judge]["policies"]} for judge in JUDGES}
    assert spent["llm"] == spent["strict"]
    assert kept["llm"]["thresholds"] == kept["strict"]["thresholds"]
    second = load("second_gate")["judges"]
    own = [row for judge in JUDGES for row in second[judge]["policies"] if row["policy"] not in ("action oracle",)]
    assert len({(row["policy"], row["calls"], row["tokens"]) for row in own}) == len(own) // 2


def test_the_routers_of_the_second_gate_stay_as_they_were() -> None:
    for name in second_gate.ROUTERS:
        router = second_gate.frozen_router(name)
        assert router.name == name
        assert router.ladder is not None
        assert router.provenance["judge"] == LEARNS


def test_committed_figures_of_the_first_gate_are_those_of_the_rows() -> None:
    fit, calibration, opened = parts(rows_of("locomo-product"), rows_of("locomo-product-gate"), "strict")
    kept = {row["policy"]: row["macro"] for row in load("first_gate")["judges"]["strict"]["policies"]}
    selected = walk(opened, best_fixed(0)(fit, calibration, first_gate.RULES)(opened.without_outcomes()))
    assert kept[REFERENCE] == pytest.approx(selected.utility.mean())
    assert kept[VOTE] == pytest.approx(vote_of_two(fit, opened).utility.mean())


# -- questions that no router learned from -----------------------------------------------------------------------------


def test_questions_are_told_apart_by_name_whatever_was_measured_of_them() -> None:
    names = [set(unlearned(panel(rows_of(run), judge="strict")).questions) for run in ("pool-product", "pool-wide")]
    assert names[0] == names[1]
    assert len(names[0]) == 188
    learned, _ = halves(panel(rows_of("pool-product"), judge=LEARNS))
    assert not names[0] & set(learned.questions)


# -- unanswerable questions --------------------------------------------------------------------------------------------


def test_where_there_is_no_answer_only_silence_is_right() -> None:
    made = make_panel({"retain": ["none", "wrong"], "merge": ["right", "none"]})
    quiet = expect_silence(made)
    at = [quiet.questions.index(name) for name in ("q0", "q1")]
    assert quiet.utility[at, 0].tolist() == [[1, 0], [0, 1]]
    assert walk(quiet, np.zeros((2, 1, 1), np.int64)).utility[at, 0].tolist() == [1, 0]


def test_a_mixture_weighs_both_kinds_by_their_share() -> None:
    words = {"retain": ["right"] * 8, "merge": ["wrong"] * 8}
    study = both_gates.Study(make_panel(words), make_panel(words), make_panel(words), "locomo")
    found = both_gates.mix(study, np.full(8, 0.5), np.full(8, -1.0), 0.25)
    assert set(found) == {"by_question", "by_conversation"}
    for each in found.values():
        assert (each["mean"], each["low"], each["high"], each["n"]) == (0.125, 0.125, 0.125, 16)


def test_conversations_are_drawn_for_both_kinds_at_once() -> None:
    """Gains of one conversation are paid for in the same one: drawn together, they cancel in every draw."""
    words = {"retain": ["right"] * 8, "merge": ["wrong"] * 8}
    made = make_panel(words)
    gain = np.array([1.0 if name == "c0" else -1.0 for name in made.conversations])
    found = both_gates.mix(both_gates.Study(made, made, made, "locomo"), gain, -gain, 0.5)
    assert (found["by_conversation"]["low"], found["by_conversation"]["high"]) == (0, 0)
    assert found["by_question"]["low"] < 0 < found["by_question"]["high"]


@pytest.mark.skipif(not (DATA / "locomo10.json").is_file(), reason="RETCON_DATA: no published files here")
def test_the_shares_are_those_of_the_published_files() -> None:
    talks = json.loads((DATA / "locomo10.json").read_text(encoding="utf-8"))
    locomo = [asked["category"] == 5 for talk in talks for asked in talk["qa"]]
    gold = json.loads((DATA / "longmemeval_gold_evidence_500.json").read_text(encoding="utf-8"))
    longmemeval = [asked["question_id"].endswith("_abs") for asked in gold]
    found = {"LoCoMo": locomo, "LongMemEval": longmemeval}
    assert {name: (len(every), sum(every)) for name, every in found.items()} == both_gates.PUBLISHED


def test_the_safe_ladder_answers_wherever_whole_notes_do_and_more() -> None:
    for study in load("both_gates")["judges"][LEARNS]["studies"].values():
        lines = {row["policy"]: row for row in study["policies"]}
        safe, whole = lines[both_gates.SAFE], lines[both_gates.WHOLE]
        assert safe["false_less_whole"]["by_question"]["mean"] == pytest.approx(
            safe["false"] - whole["false"], abs=2e-6
        )
        assert safe["false_less_whole"]["by_question"]["low"] > 0


@pytest.mark.parametrize("judge", JUDGES)
def test_committed_figures_of_both_gates_are_those_of_the_rows(judge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = load("both_gates")["judges"][judge]["studies"]
    study, share = both_gates.studies(judge)["LoCoMo"], kept["LoCoMo"]["share"]
    monkeypatch.setattr(both_gates, "DRAWS", 100)  # intervals differ, means do not
    found: Any = round_numbers(both_gates.compare(study, share))
    for one, two in zip(kept["LoCoMo"]["policies"], found["policies"], strict=True):
        for name in ("policy", "right", "false", "own_share", "calls"):
            assert one[name] == pytest.approx(two[name], abs=2e-6) if name != "policy" else one[name] == two[name]


def test_every_headline_table_can_be_made_from_the_committed_results() -> None:
    for name, make in headline.tables().items():
        text = make()
        assert len({line.count("|") for line in text.splitlines()}) == 1, name
        assert "nan" not in text.lower().replace("none", ""), name
