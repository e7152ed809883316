"""Confidence: a reply held against the raw notes, and how likely that makes it right."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.confidence import SIGNALS, Confidence, Witnesses
from retcon.errors import RouterError
from retcon.language import language
from retcon.note import Cluster, Hit, Note

PLAIN = Confidence(signals=("held", "stated"), weights=(3.0, 2.0), intercept=-2.0)
CAT = "What is Ann's cat called?"


def cluster(query: str, *notes: Note, spoken: str = "english", scores: tuple[float, ...] = ()) -> Cluster:
    given = scores or tuple(1.0 / rank for rank in range(1, len(notes) + 1))
    hits = tuple(Hit(note, given[rank], rank + 1) for rank, note in enumerate(notes))
    return Cluster(query, hits, language=language(spoken))


def note(text: str, speaker: str | None = None, day: str | None = None) -> Note:
    return Note(text[:40], text, speaker=speaker, timestamp=day)


TALK = (
    note("My cat is called Pixel. It rained all day.", "Ann", "2026-05-09"),
    note("My dog is called Rex. He likes the garden.", "Bob", "2026-05-10"),
    note("The rent is 740 euros a month from June on.", "Ann", "2026-05-20"),
)


def signals(query: str, reply: str, *notes: Note, shown: str = "", **options: Any) -> dict[str, float]:
    return Witnesses.of(cluster(query, *(notes or TALK), **options)).signals(reply, shown)


# -- signals -----------------------------------------------------------------------------------------------------------


def test_a_reply_that_a_note_states_is_held_and_one_that_nothing_states_is_not() -> None:
    stated, made_up = (signals(CAT, reply) for reply in ("Pixel", "Whiskers"))
    assert stated["held"] > 0.9
    assert stated["stated"] == 1.0
    assert (made_up["held"], made_up["stated"]) == (0.0, 0.0)
    assert PLAIN(stated) > 0.9 > 0.2 > PLAIN(made_up)


def test_words_of_the_question_are_not_evidence_for_a_reply() -> None:
    assert signals(CAT, "Ann's cat is called Whiskers")["stated"] == 0.0
    assert signals(CAT, "Ann's cat is called Pixel")["stated"] == 1.0


def test_a_reply_is_held_by_the_sentence_that_the_question_is_about() -> None:
    twice = (*TALK, note("Pixel is a word from printing.", "Bob"))
    found = signals(CAT, "Pixel", *twice[::-1])
    assert found["rank"] == math.log1p(3)
    assert found["said"] == 1.0


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What is Ann's cat called?", 1.0),
        ("What is Bob's cat called?", -1.0),
        ("What is the cat called?", 0.0),
    ],
)
def test_the_named_speaker_speaks_for_a_reply_and_another_one_against_it(question: str, said: float) -> None:
    assert signals(question, "Pixel")["said"] == said


def test_a_sentence_that_speaks_of_the_named_one_is_no_evidence_against_a_reply() -> None:
    told = (note("Ann has a cat called Pixel.", "Bob"), note("It rained.", "Ann"))
    assert signals(CAT, "Pixel", *told)["said"] == 0.0


def test_days_and_numbers_of_the_question_are_looked_for_beside_the_reply() -> None:
    rent = "What did the rent cost in June?"
    assert signals(rent, "740 euros")["dated"] == 1.0
    assert signals(rent.replace("June", "August"), "740 euros")["dated"] == -1.0
    assert signals(CAT, "Pixel")["dated"] == 0.0
    assert signals("What was said on 9 May 2026 about the cat?", "It is called Pixel")["dated"] == 1.0


def test_a_note_without_a_timestamp_is_of_the_day_it_was_stored_where_it_was_added_live() -> None:
    stored = Note("live", "My cat is called Pixel.", created_at="2026-05-09T10:00:00Z", live=True)
    asking = "What did I call my cat in May?"
    assert signals(asking, "Pixel", stored)["dated"] == 1.0
    assert signals(asking, "Pixel", replace(stored, live=False))["dated"] == -1.0


def test_a_text_that_repeats_the_question_is_an_echo() -> None:
    assert signals(CAT, "Pixel", shown="The cat is called something.")["echoed"] == 1.0
    assert signals(CAT, "Pixel", shown="It rained.")["echoed"] == 0.0


def test_flat_is_the_fifth_score_over_the_best_and_never_below_zero() -> None:
    many = tuple(note(f"note {number} of the cat") for number in range(6))
    assert signals(CAT, "x", *many, scores=(4.0, 3.0, 2.0, 2.0, 1.0, 0.0))["flat"] == 0.25
    assert signals(CAT, "x", *many, scores=(4.0, 3.0, 2.0, 2.0, -8.0, -9.0))["flat"] == 0.0  # a reranker's
    assert signals(CAT, "x", *many, scores=(-1.0,) * 6)["flat"] == 0.0
    assert signals(CAT, "x", *many[:4], scores=(4.0, 4.0, 4.0, 4.0))["flat"] == 0.0  # a small memory has no fifth


@pytest.mark.parametrize(
    ("spoken", "question", "text", "right", "wrong"),
    [
        ("german", "Wie heißt Annas Katze?", "Meine Katze heißt Pixel.", "Pixel", "Mimi"),
        ("french", "Comment s'appelle le chat d'Anne ?", "Mon chat s'appelle Pixel.", "Pixel", "Minou"),
        ("none", "猫叫什么名字?", "我的猫叫小白。", "小白", "大黄"),
    ],
)
def test_other_languages_tell_a_stated_reply_from_one_that_nothing_states(
    spoken: str, question: str, text: str, right: str, wrong: str
) -> None:
    told = (note(text, "Anna"), note("2026 740", "Bob"))
    stated, made_up = (signals(question, reply, *told, spoken=spoken) for reply in (right, wrong))
    assert stated["stated"] == 1.0
    assert made_up["stated"] == 0.0
    assert PLAIN(stated) > PLAIN(made_up)


def test_inflected_words_count_as_the_same() -> None:
    found = signals("Was kaufte Anna?", "zwei Katzen", note("Ich habe zwei Katzen gekauft.", "Anna"), spoken="german")
    assert found["stated"] == 1.0


hostile = st.text(st.characters(codec="utf-8") | st.sampled_from("Ann cat 9 May\x00\n.?!'\"猫\u202e"), max_size=60)


@given(
    query=hostile,
    reply=hostile,
    shown=hostile,
    texts=st.lists(st.tuples(hostile, hostile | st.none()), max_size=5),
    scores=st.lists(st.floats(-100, 100), min_size=5, max_size=5),
)
def test_signals_of_any_text_are_finite_and_in_range(
    query: str, reply: str, shown: str, texts: list[tuple[str, str | None]], scores: list[float]
) -> None:
    notes = [Note(f"n{number}", text, speaker=speaker or None) for number, (text, speaker) in enumerate(texts)]
    found = signals_of(query, reply, shown, notes, scores)
    assert tuple(found) == SIGNALS
    for name in ("held", "stated", "flat", "echoed"):
        assert 0 <= found[name] <= 1
    assert found["said"] in (-1.0, 0.0, 1.0)
    assert -1 <= found["dated"] <= 1
    assert 0 <= found["rank"] <= math.log1p(len(notes))
    assert 0 <= PLAIN(found) <= 1


def signals_of(query: str, reply: str, shown: str, notes: list[Note], scores: list[float]) -> dict[str, float]:
    return Witnesses.of(cluster(query, *notes, scores=tuple(scores))).signals(reply, shown)


def test_without_candidates_nothing_speaks_for_a_reply() -> None:
    found = Witnesses.of(Cluster(CAT, ())).signals("Pixel", "")
    assert found == dict.fromkeys(SIGNALS, 0.0)


# -- the confidence ----------------------------------------------------------------------------------------------------


def test_a_confidence_is_the_logistic_of_its_signals() -> None:
    mine = Confidence(signals=("said", "held"), weights=(-1.0, 2.0), intercept=0.5)
    given = dict.fromkeys(SIGNALS, 9.0) | {"said": 1.0, "held": 0.25}
    assert mine(given) == pytest.approx(1 / (1 + math.exp(-(0.5 - 1.0 + 0.5))))


@pytest.mark.parametrize(("intercept", "sure"), [(1e6, 1.0), (-1e6, 0.0), (1e308, 1.0), (-1e308, 0.0)])
def test_the_largest_numbers_still_give_a_probability(intercept: float, sure: float) -> None:
    assert Confidence(signals=(), weights=(), intercept=intercept)({}) == sure


def test_a_confidence_comes_back_from_json_as_it_was() -> None:
    mine = Confidence(signals=SIGNALS, weights=(0.1, -2.0, 1 / 3, 0.0, 1e-9, 5.0, 7.0), intercept=-1.25)
    assert Confidence.from_dict(json.loads(json.dumps(mine.to_dict()))) == mine


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"signals": ("held", "mood")}, "the confidence reads mood; known are held, stated"),
        ({"signals": ("held",)}, "needs 1 distinct signals, and a weight for each"),
        ({"signals": ("held", "held")}, "distinct signals"),
        ({"weights": (1.0, math.nan)}, "must be finite"),
        ({"intercept": math.inf}, "must be finite"),
    ],
)
def test_a_confidence_that_cannot_be_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RouterError, match=said):
        replace(PLAIN, **change)


def test_candidates_are_read_once_and_only_where_there_is_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Cluster] = []
    inner = Witnesses.of
    monkeypatch.setattr(Witnesses, "of", lambda found: read.append(found) or inner(found))  # type: ignore[func-returns-value]
    found = cluster(CAT, *TALK)
    weigh = PLAIN.weigh(found)
    assert read == []
    assert weigh("Pixel", "") > weigh("Whiskers", "")
    assert read == [found]
