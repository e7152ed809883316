"""Questions made by a swap: only where nothing in the history answers them, and told apart by kind and twin."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bench.unanswerable import (
    ANSWERABLE,
    PERSON,
    PUBLISHED,
    REMOVED,
    THING,
    TIME,
    History,
    Spot,
    find_owner,
    is_answered,
    kind_of,
    make,
    shift_years,
    spots,
    twin_of,
)
from retcon.lab.data.question import NOT_IN_MEMORY, BenchmarkQuestion
from retcon.note import Note

TALK = (
    Note("1", "I think I left my bike at the harbour on Monday.", "Anna Berg", "a", "2024-03-04T10:00"),
    Note("2", "Anna, you should call the harbour office.", "Tom Ek", "a", "2024-03-04T10:01"),
    Note("3", "I bought a violin for my sister in March.", "Tom Ek", "b", "2024-03-10T10:00"),
    Note("4", "Tom, I saw a guitar for 300 crowns.", "Anna Berg", "d", "2024-03-10T10:01"),
    Note("5", "I told Tom and Anna that I will paint the fence.", "Lisa Dahl", "c", "2024-06-01T10:00"),
    Note("6", "Lisa, I can help you with it.", "Anna Berg", "c", "2024-06-01T10:01"),
)


def ask(text: str, answer: str, *evidence: int, history: tuple[Note, ...] = TALK) -> BenchmarkQuestion:
    gold = tuple(history[place] for place in evidence)
    return BenchmarkQuestion(
        "q", "made up", text, answer, "single_session", "single_session", "c", evidence=gold, history=history
    )


def made(question: BenchmarkQuestion) -> dict[str, str]:
    return {kind_of(each): each.text for each in make([question])}


def spot(question: BenchmarkQuestion, kind: str) -> Spot:
    return next(each for each in spots(question.text, History(question.history)) if each.kind == kind)


def test_a_person_is_swapped_for_one_who_has_nothing_to_do_with_it() -> None:
    assert (
        made(ask("Where did Anna leave her blue bike?", "at the harbour", 0))[PERSON]
        == "Where did Lisa leave her blue bike?"
    )


def test_whoever_was_there_takes_nobodys_place() -> None:
    question = ask("Where did Anna leave her blue bike?", "at the harbour", 0)
    history = History(TALK)
    assert is_answered(question, spot(question, PERSON), "Tom", history)  # in the scene, where the bike is spoken of
    assert not is_answered(question, spot(question, PERSON), "Lisa", history)


def test_a_question_that_names_two_people_is_left_alone() -> None:
    assert PERSON not in made(ask("Where did Anna tell Tom that she left her bike?", "at the harbour", 0))


def test_a_month_is_swapped_for_one_in_which_nothing_of_the_kind_was_said() -> None:
    question = ask("What did Tom buy for his sister in March?", "a violin", 2)
    new = made(question)[TIME]
    assert new.startswith("What did Tom buy for his sister in ")
    assert "March" not in new
    again = replace(TALK[2], id="7", text="I bought a drum for my sister.", timestamp="2024-10-03T10:00")
    assert is_answered(question, spot(question, TIME), "October", History((*TALK, again)))


def test_a_thing_is_swapped_for_one_of_its_sort_that_some_note_names() -> None:
    question = ask("How much did Tom pay his sister's teacher for the violin?", "100 crowns", 2)
    assert made(question)[THING] == "How much did Tom pay his sister's teacher for the guitar?"
    without = ask(question.text, question.answer, 2, history=TALK[:3])
    assert THING not in made(without)


def test_nothing_is_swapped_where_a_note_says_the_same_of_the_new_one() -> None:
    known = replace(TALK[3], text="Tom, you paid the teacher of your sister for the guitar too.")
    assert THING not in made(
        ask("How much did Tom pay his sister's teacher for the violin?", "100 crowns", 2, history=(*TALK[:3], known))
    )


@pytest.mark.parametrize(
    "text",
    [
        "Did Anna leave her bike at the harbour?",  # no is an answer
        "What does Anna usually do with her bike?",  # so is any habit
        "What did Anna say?",  # nothing to hold on to
    ],
)
def test_what_anything_may_answer_is_left_alone(text: str) -> None:
    assert make([ask(text, "at the harbour", 0)]) == []


def test_years_move_to_before_all_that_the_page_tells_of() -> None:
    page = (
        Note("1", "He was born in 1950 and moved to Oslo.", "Jan Moe", "p"),
        Note("2", "He led the club from 1990 to 1994.", "Jan Moe", "p"),
    )
    question = ask("Which club did Jan Moe lead from 1990 to 1994?", "the club", 1, history=page)
    years = shift_years(question, spot(question, TIME), History(page), random.Random(1))
    assert years is not None
    first, last = (int(year) for year in years.split(" to "))
    assert last - first == 4
    assert last < 1950


def test_facts_are_swapped_among_names_of_one_sort() -> None:
    facts = tuple(
        Note(str(number), f"{number}. {text}", "facts", "f")
        for number, text in enumerate(
            (
                "The capital of Norway is Lima.", "Norway is located in the continent of Asia.",
                "Ann Lee was born in Oslo.", "Bo Ek was born in Bern.", "The capital of Chile is Rome.",
            )
        )
    )  # fmt: skip
    asked = ask("Which continent is Norway located in?", "Asia", 1, history=facts)
    other = replace(ask("What is the capital city of Chile?", "Rome", 4, history=facts), id="r")
    assert [each.text for each in make([asked, other]) if kind_of(each) == THING] == [
        "Which continent is Chile located in?"
    ]


def test_the_owner_of_a_history_is_whom_many_questions_name() -> None:
    questions = [ask(f"What did Anna Berg do on day {day}?", "slept", 0) for day in range(8)]
    assert find_owner(questions) == "Anna Berg"
    assert find_owner(questions[:3]) is None


def test_a_made_question_has_no_answer_and_names_its_twin() -> None:
    question = ask("Where did Anna leave her blue bike?", "at the harbour", 0)
    (new,) = [each for each in make([question]) if kind_of(each) == PERSON]
    assert (new.answer, new.evidence, new.abstention, new.history) == (NOT_IN_MEMORY, (), True, question.history)
    assert twin_of(new) == question.id


def test_the_same_questions_come_out_every_time() -> None:
    question = ask("What did Tom buy for his sister in March?", "a violin", 2)
    assert make([question]) == make([question])


@pytest.mark.parametrize(
    ("name", "kind", "twin"),
    [
        ("conv-26:qa152", PUBLISHED, "conv-26:qa152"),
        ("gpt4_70e84552_abs", PUBLISHED, "gpt4_70e84552"),
        ("friendsqa-s04_How-removed", REMOVED, "friendsqa-s04_How"),
        ("friendsqa-s04_How-removed~2", REMOVED, "friendsqa-s04_How"),
        ("timelineqa-p0-r12", REMOVED, "timelineqa-p0-r12"),
        ("a1~person", PERSON, "a1"),
    ],
)
def test_an_id_says_kind_and_twin(name: str, kind: str, twin: str) -> None:
    question = replace(ask("?", "", 0), id=name, abstention=True)
    assert (kind_of(question), twin_of(question)) == (kind, twin)
    assert kind_of(replace(question, abstention=False)) == ANSWERABLE
