"""Candidates ordered anew: each step by what it promises, and all of them on a small chat."""

from __future__ import annotations

import numpy as np
import pytest

from retcon import Memory, rerank
from retcon.rerank import Settings, lift_hop, lift_sessions, lift_speaker, rank_hop_terms, weigh_terms
from retcon.words import query_terms

OFF = Settings(frame=1, number=1, speaker=1, role=1, hop=0, session=0)


def lifted(query: str, *speakers: str | None) -> list[float]:
    scores = np.ones(len(speakers))
    lift_speaker(scores, query, speakers)
    return scores.tolist()


def test_words_of_the_questions_frame_weigh_less_and_numbers_more() -> None:
    weights = weigh_terms(query_terms("How many times did she mention room 12 of the museum?"))
    assert weights == {"mani": 0.5, "time": 0.5, "mention": 0.5, "room": 1.0, "12": 1.3, "museum": 1.0}


def test_the_one_speaker_whom_the_query_names_is_lifted() -> None:
    assert lifted("What does Ann's brother do?", "Ann", "Bo", None) == [1.5, 1.0, 1.0]


def test_two_named_speakers_lift_nobody() -> None:
    assert lifted("Where did Ann and Bo meet?", "Ann", "Bo", "Cy") == [1.0, 1.0, 1.0]


def test_a_function_word_names_nobody() -> None:
    assert lifted("Will it rain on me?", "Will", "Me") == [1.0, 1.0]


def test_the_users_words_count_more_than_the_assistants() -> None:
    assert lifted("Which car do I drive?", "user", "assistant") == [1.5, 1.0]


def test_a_query_about_what_you_said_lifts_no_role() -> None:
    assert lifted("Which car did you recommend?", "user", "assistant") == [1.0, 1.0]


def test_without_an_assistant_there_is_no_role() -> None:
    assert lifted("Which car do I drive?", "user", "bo") == [1.0, 1.0]


def test_hop_words_are_the_rare_ones_of_the_best_notes_that_were_not_asked_for() -> None:
    texts = [["marek", "is", "my", "physio"], ["the", "physio", "call"]]
    idf = {"marek": 3.0, "physio": 2.0, "call": 0.5}
    assert rank_hop_terms(texts, [2.0, 1.0], ["marek"], idf) == ["physio", "call"]


def test_a_hop_gives_a_share_of_the_best_score_at_most() -> None:
    scores = np.array([4.0, 1.0, 1.0])
    lift_hop(scores, np.array([0.0, 2.0, 1.0]))
    assert scores.tolist() == pytest.approx([4.0, 1.8, 1.4])
    lift_hop(scores, np.zeros(3))
    assert scores.tolist() == pytest.approx([4.0, 1.8, 1.4])


def test_a_note_gains_from_the_best_note_of_its_session() -> None:
    scores = np.array([4.0, 1.0, 1.0, 2.0])
    lift_sessions(scores, ["a", "a", None, None])
    assert scores.tolist() == pytest.approx([6.0, 3.0, 1.5, 3.0])


def test_settings_of_nothing_leave_the_order_as_it_was() -> None:
    scores = np.array([3.0, 2.0, 1.0])
    lift_speaker(scores, "Ann", ["Bo", "Cy", "Ann"], OFF)
    lift_hop(scores, np.array([0.0, 0.0, 5.0]), OFF)
    lift_sessions(scores, ["s", "t", "s"], OFF)
    assert scores.tolist() == [3.0, 2.0, 1.0]


def test_what_the_best_notes_tell_lifts_another_that_does_not_hold_the_name() -> None:
    with Memory(":memory:") as memory:
        memory.add([{"text": f"Marek {is_it} our physio.", "session": is_it} for is_it in ("is", "was", "remains")])
        memory.add("The physio moved to the Lindenhof clinic in our town.", id="where", session="b")
        memory.add("The dentist moved to the Rosenhof clinic in our town.", id="other", session="c")
        memory.add([{"text": f"We had soup number {i} for lunch.", "session": f"d{i}"} for i in range(40)])
        found = [hit.id for hit in memory.search("Which clinic is Marek's?")]
    assert found.index("where") < found.index("other")


def test_the_shipped_settings_are_the_defaults() -> None:
    assert Settings() == rerank.SHIPPED
