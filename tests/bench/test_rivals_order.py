"""The order of lines, the unit and the retriever are taken apart: one thing differs in every pair."""

from __future__ import annotations

from typing import Any

import pytest

from bench.rivals.order import PAIRS, SYSTEMS, analyse, table, take, texts
from bench.rivals.page import order_table
from retcon.lab.data.question import BenchmarkQuestion
from retcon.lab.protocols import PROTOCOLS, Case, cases
from retcon.note import Note
from retcon.pack import render
from retcon.tokens import counter

TURNS = (
    "My cat Pixel sleeps all day.", "The weather was fine.", "Pixel the cat ate a fish. Then it rained for hours.",
    "We talked about bread.", "My cat hates the rain.",
)  # fmt: skip
COUNT = counter("estimate")


@pytest.fixture
def case() -> Case:
    history = tuple(Note(f"n{i}", text, session="s", timestamp=f"2026-03-0{i + 1}") for i, text in enumerate(TURNS))
    asked = BenchmarkQuestion(
        id="q",
        dataset="own",
        type="single-session",
        raw_type="",
        text="What did my cat eat?",
        answer="a fish",
        history=history,
        conversation="c",
    )
    return next(iter(cases([asked], PROTOCOLS["product"])))


@pytest.mark.parametrize("budget", [16, 40, 64, 512])
def test_every_text_is_within_the_budget(case: Case, budget: int) -> None:
    found = texts(case, [hit.note for hit in case.cluster.hits], budget)
    assert set(found) == set(SYSTEMS)
    assert all(COUNT(text) <= budget for text in found.values())


def test_the_same_lines_stand_in_another_order(case: Case) -> None:
    found = texts(case, [hit.note for hit in case.cluster.hits], 512)
    for by_time, ranked in PAIRS[:3]:
        assert sorted(found[by_time].split("\n")) == sorted(found[ranked].split("\n"))
    assert found["turns-by-time"].split("\n") == [render(note) for note in case.question.history]
    assert found["turns"] != found["turns-by-time"]
    assert found["extract"] != found["extract-ranked"]


def test_take_cuts_the_first_turn_that_does_not_fit(case: Case) -> None:
    notes = list(case.question.history)
    whole = COUNT(render(notes[0])) + 12
    taken = take(notes, whole, COUNT)
    assert [note.id for note, _ in taken] == ["n0", "n1"]
    assert taken[0][1] == render(notes[0])
    assert render(notes[1]).startswith(taken[1][1].rstrip("… "))
    assert taken[1][1] != render(notes[1])


def rows() -> list[dict[str, Any]]:
    right = {"extract": 1.0, "extract-ranked": 0.0}
    return [
        {
            "domain": domain, "system": system, "question_id": f"q{q}", "budget": budget, "evidence": 1.0,
            "answer": 0.0, "judge_llm": right.get(system, 0.5), "judge_strict": 1.0,
        }
        for domain in ("a", "b") for system in SYSTEMS for q in range(3) for budget in (64, 128, 256, 512)
    ]  # fmt: skip


def test_a_difference_is_that_of_its_pair() -> None:
    found = analyse(rows())
    assert found["pairs"]["extract less extract-ranked"]["mean"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert found["pairs"]["turns less bm25s"]["a"]["mean"] == 0.0
    assert found["questions"] == {"a": 3, "b": 3}


def test_a_verdict_that_could_not_be_read_counts_as_no() -> None:
    unread = [row | {"judge_llm": None} for row in rows()]
    assert all(value == 0 for each in analyse(unread)["right"].values() for at in each.values() for value in at)


def test_questions_keep_their_place_in_every_system() -> None:
    by = table(reversed(rows()), lambda row: float(row["question_id"][1:]))
    assert by["a"]["turns"][:, 0].tolist() == [0, 1, 2]


def test_the_table_shows_every_pair() -> None:
    text = order_table(analyse(rows()))
    assert text.count("\n") == len(PAIRS) + 1
    assert "+1.000 [+1.000, +1.000]" in text
