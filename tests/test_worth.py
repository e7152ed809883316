"""What a sentence is worth: replies go with their questions, repeats wait, long questions and numbers count."""

from __future__ import annotations

import pytest
from hypothesis import given
from test_text import clusters

from retcon.extract import Runs, extract
from retcon.note import Cluster, Hit, Note
from retcon.reading import read
from retcon.tokens import counter
from retcon.worth import Piece, rank, read_lines, read_query

ESTIMATE = counter("estimate")


def rank_notes(query: str, *notes: Note, scores: tuple[float, ...] = ()) -> list[Piece]:
    given_scores = scores or tuple(9.0 - i for i in range(len(notes)))
    hits = tuple(Hit(note, score, i + 1) for i, (note, score) in enumerate(zip(notes, given_scores, strict=True)))
    return rank_cluster(Cluster(query, hits))


def rank_cluster(cluster: Cluster) -> list[Piece]:
    lines = read_lines(cluster)
    return rank(lines, read_query(cluster.query, lines, cluster.language), cluster.hits)


def order(query: str, *notes: Note, scores: tuple[float, ...] = ()) -> list[str]:
    return [piece.text for piece in rank_notes(query, *notes, scores=scores)]


# - replies -

ASKED = Note("q", "Have you ever seen the pyramids of Giza?", "Ann", "s1")
REPLY = Note("a", "Oh yes, we loved it! It was hot.", "Bob", "s1", follows="q")
OTHER = Note("b", "The new office has a kitchen.", "Bob", "s2", follows="x")


def test_a_reply_that_shares_no_word_with_the_query_goes_with_its_question() -> None:
    told = order("Has Bob seen the pyramids of Giza?", ASKED, OTHER, REPLY, scores=(5.0, 3.1, 3.0))
    assert told.index("Oh yes, we loved it!") < told.index(OTHER.text)


def test_without_the_link_the_same_reply_gains_nothing() -> None:
    loose = Note("a", REPLY.text, "Bob", "s1")
    linked, alone = (
        {piece.text: piece.score for piece in rank_notes("Has Bob seen the pyramids?", ASKED, note)}
        for note in (REPLY, loose)
    )
    assert linked["Oh yes, we loved it!"] > alone["Oh yes, we loved it!"]
    assert linked["It was hot."] == alone["It was hot."]  # only the best sentence of a reply gains


def test_a_turn_after_a_statement_gains_nothing() -> None:
    statement = Note("q", "I have seen the pyramids of Giza.", "Ann", "s1")
    linked, alone = (
        rank_notes("pyramids of Giza", statement, Note("a", "Nice shoes.", "Bob", "s1", follows=follows))[-1].score
        for follows in ("q", None)
    )
    assert linked == alone


# - repeats -


def note(number: int, text: str, speaker: str | None = "Ann", day: str = "2026-05-09") -> Note:
    return Note(f"n{number}", text, speaker, f"s{number}", day)


def test_a_list_is_spread_over_notes_instead_of_repeating_one() -> None:
    said = [
        note(0, "We went to Paris and Rome together. We went to Rome. We went to Paris."),
        note(1, "In spring we saw Lisbon."),
    ]
    query = "Which cities did we go to?"
    assert order(query, *said)[:2] == ["We went to Paris and Rome together.", "In spring we saw Lisbon."]
    text = extract(Cluster(query, tuple(Hit(n, 9.0, i + 1) for i, n in enumerate(said))), 32, count=ESTIMATE).text
    assert "Lisbon" in text


@pytest.mark.parametrize(
    "other",
    [
        note(1, "I do not eat peanuts."),
        note(1, "I eat peanuts.", "Bob"),
        note(1, "I eat peanuts now.", day="2026-06-01"),
        note(1, "I eat 3 peanuts."),
    ],
    ids=["negation", "speaker", "day", "number"],
)
def test_what_differs_in_a_negation_a_speaker_a_day_or_a_number_is_no_repeat(other: Note) -> None:
    first, filler = note(0, "I eat peanuts."), note(2, "Rain again.")
    told = order("Do you eat peanuts?", first, other, filler, scores=(9.0, 8.0, 1.0))
    assert told.index(other.text) < told.index("Rain again.")


def test_a_sentence_is_no_repeat_of_several_others_together() -> None:
    said = [note(0, "Eve lives in Oslo."), note(1, "Bob moved to Rome."), note(2, "Bob lives in Oslo.")]
    told = order("Bob Oslo", *said, note(3, "Rain again."), scores=(9.0, 9.0, 3.0, 0.1))
    assert told == [*(each.text for each in said), "Rain again."]


def test_what_repeats_another_is_still_told_where_there_is_room() -> None:
    said = note(0, "The red cat sleeps here. The cat sleeps.", None)
    assert extract(Cluster("cat", (Hit(said, 1.0, 1),)), 64, count=ESTIMATE).text == f"2026-05-09 {said.text}"


@given(clusters())
def test_every_sentence_is_ranked_exactly_once(cluster: Cluster) -> None:
    there = [(line.hit, line.place) for line in read_lines(cluster)]
    assert sorted((piece.hit, piece.place) for piece in rank_cluster(cluster)) == there


# - questions and numbers -


def test_a_long_sentence_that_ends_as_a_question_counts_in_full() -> None:
    told = "My son Francis, who is 21 and studies law in Ghent, wants to move out, so what should we tell him now?"
    short = "What should we tell Francis?"
    by_text = {piece.text: piece.score for piece in rank_notes("Francis", note(0, f"{told} {short}"))}
    assert by_text[told] == pytest.approx(2 * by_text[short])


def test_a_number_of_the_query_weighs_more_than_another_word_as_rare() -> None:
    told = order("coach 1953", note(0, "He was the coach. It was 1953."))
    assert told == ["It was 1953.", "He was the coach."]


@given(clusters())
def test_ascii_text_gives_the_overlaps_that_all_sentences_together_give(cluster: Cluster) -> None:
    lines = read_lines(cluster)
    target = read_query(cluster.query, lines, cluster.language)
    for line in lines:
        runs = read(line.text, cluster.language).spans.words
        every = [target.share({target.terms[word] for word in run if word in target.terms}) for run in runs]
        assert target.overlaps(line.text, runs) == every


@given(clusters())
def test_the_smallest_part_of_a_sentence_is_the_first_of_all_parts(cluster: Cluster) -> None:
    lines = read_lines(cluster)
    target = read_query(cluster.query, lines, cluster.language)
    for piece in rank(lines, target, cluster.hits):
        runs = Runs(piece, target)
        assert runs.smallest == runs.take(0)
