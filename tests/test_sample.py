"""The sample conversation keeps its promises: ids, order, evidence, answers, repetitions and corrections."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import combinations, groupby

import pytest

from retcon.sample import Question, more_questions, notes, questions
from retcon.words import query_terms, stems

NOTES = notes()
QUESTIONS = [*questions(), *more_questions()]
BY_ID = {note["id"]: note for note in NOTES}
FOUR = ("single-session", "multi-session", "temporal", "knowledge-update")
FIELDS = {"id", "session", "timestamp", "speaker", "text"}


def of_type(*types: str) -> list[Question]:
    return [question for question in QUESTIONS if question.type in types]


def sessions_of(question: Question) -> set[str]:
    return {BY_ID[note_id]["session"] for note_id in question.evidence}


def when(note_id: str) -> datetime:
    return datetime.fromisoformat(BY_ID[note_id]["timestamp"])


def test_turns_and_questions_have_unique_ids() -> None:
    assert len(BY_ID) == len(NOTES)
    assert len({question.id for question in QUESTIONS}) == len(QUESTIONS)
    assert len({question.question for question in QUESTIONS}) == len(QUESTIONS)


def test_conversation_is_long_enough_to_be_worth_searching() -> None:
    assert len(NOTES) >= 400
    assert 28 <= len({note["session"] for note in NOTES}) <= 40
    assert (when(NOTES[-1]["id"]) - when(NOTES[0]["id"])).days >= 55


def test_every_turn_has_the_promised_fields_and_no_other() -> None:
    for note in NOTES:
        assert set(note) - {"supersedes"} == FIELDS
        assert note["speaker"] in ("user", "assistant")
        assert note["text"] == note["text"].strip() != ""


def test_sessions_are_contiguous_and_turns_are_numbered_from_one() -> None:
    runs = [
        (session, [note["id"] for note in run]) for session, run in groupby(NOTES, key=lambda note: note["session"])
    ]
    assert [session for session, _ in runs] == [f"s{number:02d}" for number in range(1, len(runs) + 1)]
    for session, ids in runs:
        assert ids == [f"{session}-{turn:02d}" for turn in range(1, len(ids) + 1)]


def test_turns_are_chronological_and_a_session_stays_within_one_day() -> None:
    stamps = [when(note["id"]) for note in NOTES]
    assert stamps == sorted(stamps)
    days = {(note["session"], note["timestamp"][:10]) for note in NOTES}
    assert len(days) == len({session for session, _ in days})


def test_turn_lengths_vary_and_some_user_turns_bury_a_fact() -> None:
    sizes = [len(note["text"].split()) for note in NOTES]
    assert min(sizes) >= 4
    assert 100 <= max(sizes) <= 130
    assert sum(note["speaker"] == "user" and size >= 60 for note, size in zip(NOTES, sizes, strict=True)) >= 15


def test_no_turn_repeats_another_word_for_word_within_a_session() -> None:
    said = Counter((note["session"], note["text"]) for note in NOTES)
    assert max(said.values()) == 1


def test_questions_cover_the_four_types_and_abstention() -> None:
    counts = Counter(question.type for question in QUESTIONS)
    assert set(counts) == {*FOUR, "abstention"}
    assert all(counts[kind] >= 15 for kind in FOUR)
    assert counts["abstention"] >= 6


def test_every_evidence_id_exists_once_and_lies_before_the_question() -> None:
    for question in QUESTIONS:
        assert len(set(question.evidence)) == len(question.evidence)
        assert all(when(note_id) < datetime.fromisoformat(question.date) for note_id in question.evidence)


def test_evidence_is_in_the_order_in_which_it_was_said() -> None:
    order = {note["id"]: position for position, note in enumerate(NOTES)}
    for question in QUESTIONS:
        positions = [order[note_id] for note_id in question.evidence]
        assert positions == sorted(positions)


def test_evidence_spans_as_many_sessions_as_the_type_says() -> None:
    assert all(len(sessions_of(question)) == 1 for question in of_type("single-session"))
    assert all(len(sessions_of(question)) >= 2 for question in of_type("multi-session", "knowledge-update"))
    assert all(question.evidence for question in of_type("temporal"))
    assert all(not question.evidence and question.answer == "not in memory" for question in of_type("abstention"))


@pytest.mark.parametrize("question", of_type("single-session", "knowledge-update"), ids=lambda question: question.id)
def test_stated_answers_stand_in_the_evidence(question: Question) -> None:
    newest = question.evidence[-1]  # of a fact that changed, only the last statement counts
    assert set(query_terms(question.answer)) <= set(stems(BY_ID[newest]["text"]))


@pytest.mark.parametrize("question", of_type("knowledge-update"), ids=lambda question: question.id)
def test_answers_that_changed_are_not_in_the_first_statement(question: Question) -> None:
    first = set(stems(BY_ID[question.evidence[0]]["text"]))
    assert not set(query_terms(question.answer)) <= first


def test_questions_are_not_their_evidence_in_the_same_words() -> None:
    def copied(question: Question) -> bool:
        asked = set(query_terms(question.question))
        said = {stem for note_id in question.evidence for stem in stems(BY_ID[note_id]["text"])}
        return asked <= said

    answerable = of_type(*FOUR)
    assert sum(copied(question) for question in answerable) <= len(answerable) // 10


def between(first: str, last: str) -> int:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).days


# The two days that each duration lies between, as the conversation gives them.
SPANS = {
    "How many days after moving house did I run the half marathon?": ("2026-04-24", "2026-04-26"),
    "How many weeks lay between Juniper's first and third visit to the vet?": ("2026-03-04", "2026-04-22"),
    "How many days after I applied for the Leeds post did they offer it to me?": ("2026-03-22", "2026-04-28"),
    "How many days are there between my last day at the archive and my first in Leeds?": ("2026-06-26", "2026-07-06"),
    "How many days before the ceremony do I fly out to Porto?": ("2026-06-11", "2026-06-13"),
    "How many days after the broad beans did we plant the potatoes?": ("2026-03-14", "2026-03-28"),
    "How many days after my brother's wedding is Mum's knee operation?": ("2026-06-13", "2026-07-08"),
    "How many days later than first agreed did I move into Quarry Lane?": ("2026-04-18", "2026-04-24"),
    "By how many days in total has the Steel Voices deadline been put back?": ("2026-04-30", "2026-05-29"),
    "How many days after I made my offer of £780 did I hear that I had the flat?": ("2026-03-13", "2026-03-20"),
    "How many days after my race is the hen weekend, as it's planned now?": ("2026-04-26", "2026-05-16"),
    "How many days did I wait for the crown after the dentist said that I needed one?": ("2026-04-02", "2026-04-30"),
}


def test_durations_agree_with_the_calendar() -> None:
    durations = [question for question in of_type("temporal") if question.answer.split()[-1] in ("days", "weeks")]
    assert {question.question for question in durations} == set(SPANS)
    for question in durations:
        number, unit = question.answer.split()
        assert int(number) * {"days": 1, "weeks": 7}[unit] == between(*SPANS[question.question])


def test_weekdays_named_beside_a_date_are_right() -> None:
    names = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    months = {"March": 3, "April": 4, "May": 5, "June": 6, "July": 7}
    found = 0
    for note in NOTES:
        said = note["text"].replace(",", "").replace(".", "").split()
        for name, day, month in zip(said, said[1:], said[2:], strict=False):
            if name in names and day.isdigit() and month in months:
                found += 1
                assert names[datetime(2026, months[month], int(day)).weekday()] == name, note["id"]
    assert found >= 40


def test_at_least_twelve_pairs_of_user_turns_say_the_same_in_different_sessions() -> None:
    said = [(note["session"], set(stems(note["text"]))) for note in NOTES if note["speaker"] == "user"]
    alike = [
        (one, other)
        for (one, a), (other, b) in combinations(said, 2)
        if one != other and len(a & b) >= 0.6 * len(a | b)
    ]
    assert len(alike) >= 12


def test_corrections_point_back_at_what_the_same_person_said() -> None:
    corrections = [note for note in NOTES if "supersedes" in note]
    assert 3 <= len(corrections) <= 6
    assert len({note["supersedes"] for note in corrections}) == len(corrections)
    for note in corrections:
        assert note["speaker"] == BY_ID[note["supersedes"]]["speaker"] == "user"
        assert note["supersedes"] < note["id"]
        assert set(stems(note["text"])) & set(query_terms(BY_ID[note["supersedes"]]["text"]))
