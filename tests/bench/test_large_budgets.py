"""Budgets above the learned ones, and how far to climb: right on made-up outcomes, and committed as the rows say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import ladder_depth, large_budgets
from bench.doc_tables import load
from bench.evaluation import expect_silence, round_numbers, ways_to_draw
from retcon.lab.fit_ladder import serving_plan, walk
from retcon.lab.outcomes import Panel, from_rows, panel
from retcon.ladder import Ladder
from retcon.route import Router

BUDGETS = (512, 1024)


def router() -> Router:
    """Replaces where under half of the notes fit; looks at merge first, then at whole notes."""
    return Router(
        name="half", actions=("retain", "merge"), features=("fit",), weights={"retain": (1.0,), "merge": (-1.0,)},
        intercepts={"retain": 0.0, "merge": 1.0}, budgets=(32, 256),
        ladder=Ladder(
            orders=(("merge", "retain"),), features=("fit",), weights=((0.0,),), intercepts={32: (0.0,), 256: (0.0,)}
        ),
    )  # fmt: skip


def make_panel(cells: list[dict[str, Any]]) -> Panel:
    """A panel of such outcomes at both budgets; a question is a dict: fit, then what each action said."""
    return panel(from_rows([
        {
            "question_id": f"q{q}", "conversation": f"c{q}", "budget": budget, "action": action, "fit": cell["fit"],
            "judge_llm": cell[action] == "right", "abstained": cell[action] == "none", "type": "temporal",
        }
        for q, cell in enumerate(cells) for budget in BUDGETS for action in ("retain", "merge")
    ]))  # fmt: skip


CELLS = [
    {"fit": 0.9, "retain": "right", "merge": "wrong"},
    {"fit": 0.2, "retain": "wrong", "merge": "right"},
    {"fit": 0.2, "retain": "right", "merge": "none"},
    {"fit": 0.6, "retain": "none", "merge": "none"},
]


def places(made: Panel) -> list[int]:
    """Where the questions of CELLS stand in a panel."""
    return [made.questions.index(f"q{q}") for q in range(len(CELLS))]


def test_a_router_decides_for_a_panel_as_it_does_for_a_caller() -> None:
    made = make_panel(CELLS)
    once, climbing = large_budgets.choose_actions(router(), made), serving_plan(router(), made)
    chosen = [[made.actions[a] for a in once[q, :, 0]] for q in places(made)]
    assert chosen == [["retain"] * 2, ["merge"] * 2, ["merge"] * 2, ["retain"] * 2]
    assert {tuple(made.actions[a] for a in climbing[q, b]) for q in range(4) for b in range(2)} == {("merge", "retain")}


def test_what_a_served_router_comes_to_stands_beside_whole_notes() -> None:
    made = make_panel(CELLS)
    found = large_budgets.score_router(router(), made, ways_to_draw(made, draws=200))
    one, ladder = found["one look"], found["ladder"]
    assert one["accuracy"] == [0.5, 0.5]  # right, right, none, none
    assert [each["by_question"]["mean"] for each in one["gain"]] == [0, 0]
    assert (one["replaced"], one["calls"]) == ([0.5, 0.5], [1, 1])
    assert ladder["accuracy"] == [0.5, 0.5]  # wrong, right, right after a second look, none
    assert ladder["calls"] == [1.5, 1.5]


def test_more_looks_bring_right_answers_and_false_ones() -> None:
    nothing = [
        {"fit": 0.5, "retain": "none", "merge": "none"},
        {"fit": 0.5, "retain": "wrong", "merge": "none"},
        {"fit": 0.5, "retain": "none", "merge": "wrong"},
        {"fit": 0.5, "retain": "none", "merge": "none"},
    ]
    first, second, safe = ladder_depth.compare_depths(router(), make_panel(CELLS), make_panel(nothing))
    assert (first["right"], first["false"], first["gain"], first["calls"]) == (0.25, 0.25, None, 1)
    assert (second["right"], second["false"], second["calls"]) == (0.5, 0.5, 1.5)
    assert second["gain"]["by_question"]["mean"] == second["more_false"]["by_question"]["mean"] == 0.25
    assert (safe["looks"], safe["right"], safe["false"], safe["calls"]) == ("whole notes first", 0.5, 0.5, 1.25)


def test_a_false_answer_is_any_answer() -> None:
    made = make_panel(
        [{"fit": 0.5, "retain": "right", "merge": "right"}, {"fit": 0.5, "retain": "none", "merge": "none"}]
    )
    order = serving_plan(router(), made)
    assert sorted(walk(expect_silence(made), order).utility.mean(axis=1).tolist()) == [0, 1]


@pytest.mark.parametrize("name", large_budgets.WIDE)
def test_committed_figures_above_the_learned_budgets_are_those_of_the_rows(name: str) -> None:
    assert load("large_budgets")["judges"]["strict"]["wide"][name] == round_numbers(large_budgets.wide(name, "strict"))


def test_committed_figures_of_large_budgets_are_those_of_the_rows() -> None:
    kept = load("large_budgets")["judges"]["llm"]["large"]
    assert kept == {name: round_numbers(large_budgets.large(name, "llm")) for name in large_budgets.LARGE}
    assert all(study["budgets"] == [512, 1024, 2048, 4096] for study in kept.values())
    for study in kept.values():
        for tokens in study["context_tokens"].values():
            assert np.all(np.array(tokens) <= study["budgets"])


def test_committed_climbs_are_those_of_the_rows() -> None:
    assert load("ladder_depth") == ladder_depth.run()
