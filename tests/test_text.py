"""What holds for every text that a reader gets, whatever the notes: order, lines, dates, cuts, and what budgets add."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retcon import Memory, timeline
from retcon.extract import FLOOR, extract
from retcon.note import MARK, Cluster, Hit, Note
from retcon.pack import fit_fraction, pack_text, render, retain
from retcon.retrieve import search
from retcon.store.sqlite import SqliteStore
from retcon.timeline import begins_with_day, day, in_order, moment
from retcon.tokens import Counter, counter, cut, spans
from retcon.where import Where
from retcon.words import sentence_ends, words

ESTIMATE = counter("estimate")
GROWING = [ESTIMATE, counter("alphanumeric"), counter(len)]  # a longer text never costs less than a part of it
BUDGETS = st.integers(0, 300)

PARTS = [
    "I paid 1,299.99 for it", "on 12 May 2026", "May 3, 2026", "2026-05-12", "at 10:30", "5 p.m.", "Maria Lopez",
    "Dr. J. K. Lee", 'she said "never in my life" twice', "“quite so”", "the cat", "Pixel", "and", "who, as I said,",
    "x" * 90, "naïve", "我昨天买了一只猫", "👩‍👩‍👧", "\u0301", "one\ntwo", "\u2028", "(see below)", '"', "I'm", "...",
]  # fmt: skip
SENTENCE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=9).map(" ".join)
TEXT = st.one_of(
    st.lists(SENTENCE, min_size=1, max_size=3).map(". ".join),
    st.text(max_size=60),
    st.sampled_from(["", "  ", "same text.", "same text.", "Did she pay for the cat?", "w" * 400]),
)
STAMP = st.sampled_from([
    None, None, "2026-01-01", "2026-01-01", "2026-01-01T09:00", "2026-01-01T09:00+05:00", "2026-01-01T07:00Z",
    "2025-12-31T23:30:00-08:00", "soon",
])  # fmt: skip
SPEAKER = st.sampled_from([None, "ann", "Bob", "a\nb", ""])
STORED = "2026-02-0{}T12:00:00+00:00"


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Hostile notes in any rank, inserted one after the other; some answer an earlier or a later one."""
    size = draw(st.integers(0, 6))
    notes = [
        Note(
            f"n{i}", draw(TEXT.filter(str.strip)), draw(SPEAKER), timestamp=draw(STAMP), live=draw(st.booleans()),
            created_at=STORED.format(draw(st.integers(1, 3))),
            follows=draw(st.sampled_from([None, None, *(f"n{j}" for j in range(size) if j != i)])),
        )
        for i in range(size)
    ]  # fmt: skip
    ranked = draw(st.permutations(range(size)))
    hits = [Hit(notes[i], draw(st.floats(0, 9)), rank, place=i) for rank, i in enumerate(ranked, 1)]
    same: list[Hit] = []
    for hit in hits:
        first = draw(st.sampled_from([None, None, None, *(h for h in same if h.duplicate_of is None)]))
        again = hit if first is None else replace(hit, note=replace(hit.note, text=first.note.text))
        same.append(again if first is None else replace(again, duplicate_of=first.id))
    return Cluster(
        draw(st.sampled_from(["When did Maria Lopez pay for the cat?", "Pixel", "猫", "", "how much"])), tuple(same)
    )


# - order -


@given(clusters())
def test_notes_of_which_none_comes_before_its_question_are_in_the_order_that_looks_for_questions(
    cluster: Cluster,
) -> None:
    keys, place = timeline._keys(cluster.hits), {hit.id: i for i, hit in enumerate(cluster.hits)}
    asked = [place.get(hit.note.follows or "", i) for i, hit in enumerate(cluster.hits)]
    by_time = sorted(range(len(cluster.hits)), key=keys.__getitem__)
    assert timeline.order(cluster.hits) == timeline._put_replies_after(asked, keys, by_time)


@given(clusters())
def test_a_reply_never_stands_before_its_question(cluster: Cluster) -> None:
    shown = [note.id for note in in_order(cluster.hits)]
    assert sorted(shown) == sorted(note.id for note in cluster.notes)
    asked = {note.id: note.follows for note in cluster.notes}
    for note in cluster.notes:
        if note.follows in shown and not _in_a_circle(note.id, asked):
            assert shown.index(note.follows) < shown.index(note.id)


def _in_a_circle(start: str, asked: dict[str, str | None]) -> bool:
    """Whether the way back from a note never ends."""
    seen: set[str] = set()
    at: str | None = start
    while at is not None and at in asked:
        if at in seen:
            return True
        seen.add(at)
        at = asked[at]
    return False


@given(clusters())
def test_notes_that_answer_none_are_in_order_of_time_and_ties_in_order_of_insertion(cluster: Cluster) -> None:
    free = tuple(replace(hit, note=replace(hit.note, follows=None)) for hit in cluster.hits)
    place = {hit.id: hit.place for hit in free}
    dated = [(moment(note), place[note.id]) for note in in_order(free) if moment(note) is not None]
    assert dated == sorted(dated)


@given(clusters())
def test_a_note_without_a_time_stands_after_the_one_inserted_before_it(cluster: Cluster) -> None:
    free = sorted((replace(hit, note=replace(hit.note, follows=None)) for hit in cluster.hits), key=lambda h: h.place)
    shown = [note.id for note in in_order(free)]
    for before, hit in pairwise(free):
        if moment(hit.note) is None:
            assert shown.index(before.id) < shown.index(hit.id)


@given(clusters(), BUDGETS, st.sampled_from(GROWING), st.sampled_from(["rank", "cheapest"]))
def test_retain_shows_a_note_a_line_in_that_order(
    cluster: Cluster, budget: int, count: Counter, order: Literal["rank", "cheapest"]
) -> None:
    packed = retain(cluster, budget, count=count, order=order)
    used = {source.id for source in packed.sources}
    lines = [render(note) for note in in_order(cluster.hits) if note.id in used]
    assert packed.text == "\n".join(lines)
    assert all(len(line.splitlines()) <= 1 for line in lines)


@given(clusters(), BUDGETS, st.sampled_from(GROWING))
def test_extract_shows_a_note_a_line_in_that_order(cluster: Cluster, budget: int, count: Counter) -> None:
    packed = extract(cluster, budget, count=count)
    assert packed.tokens == (count(packed.text) if packed.text else 0) <= budget
    lines = packed.text.split("\n") if packed.sources else []
    used = {source.id: source.text for source in packed.sources}
    shown = [used[note.id] for note in in_order(cluster.hits) if note.id in used]
    assert len(lines) == len(shown)
    for line, text in zip(lines, shown, strict=True):
        assert all(piece.strip() in line for piece in text.splitlines() if piece.strip())


def test_of_several_scopes_ties_keep_the_order_of_insertion() -> None:
    store = SqliteStore(":memory:")
    users = ("zoe", "ann", "zoe", "bob", "ann")
    store.add(
        [Note(f"n{i}", f"The cat said {i}.", user_id=user, created_at="2026-01-01") for i, user in enumerate(users)]
    )
    hits = search(store, "cat", Where())
    assert [note.id for note in in_order(hits)] == ["n0", "n1", "n2", "n3", "n4"]
    store.close()


@pytest.mark.parametrize("stamp", [None, "2026-01-01"])
@pytest.mark.parametrize("action", ["retain", "extract"])
def test_a_dialogue_whose_times_tie_or_are_missing_comes_out_as_it_was_said(stamp: str | None, action: str) -> None:
    said = [
        "Did the vet call?",
        "Yes, the vet called about the cat.",
        "What did the vet want?",
        "The vet wants 80 euros.",
    ]
    with Memory(":memory:") as memory:
        memory.add([{"text": text, "speaker": "ab"[i % 2], "timestamp": stamp} for i, text in enumerate(said)])
        lines = memory.recall("What does the vet want?", 96, action=action).text.split("\n")
    assert [re.sub(r"^(?:[\d-]+ )?[ab]: ", "", line) for line in lines] == said


# - dates -


@given(clusters(), BUDGETS)
def test_no_date_stands_twice_before_a_note(cluster: Cluster, budget: int) -> None:
    notes = [replace(note, text=f"{day(note)} {note.text}") for note in cluster.notes]
    again = Cluster(cluster.query, tuple(replace(hit, note=n) for hit, n in zip(cluster.hits, notes, strict=True)))
    for text in (retain(again, budget, count=ESTIMATE).text, extract(again, budget, count=ESTIMATE).text):
        twice = re.search(r"(\d{4}-\d\d-\d\d)(?: \w+:)? \1", text)
        assert not twice or any(twice.group() in note.text for note in cluster.notes)  # as somebody wrote it


def test_a_live_note_shows_the_day_it_was_stored_unless_it_has_a_time() -> None:
    stored = Note("a", "I got a cat.", live=True, created_at="2026-05-09T23:59:00+00:00")
    assert render(stored) == "2026-05-09 I got a cat."
    assert render(replace(stored, live=False)) == "I got a cat."
    assert render(replace(stored, timestamp="2025-01-02T10:00")) == "2025-01-02 I got a cat."


@pytest.mark.parametrize("text", ["2026-05-12 moved", "12 May 2026: moved", "May 12, 2026 moved", '"2026-05-12" moved'])
def test_a_date_that_the_text_begins_with_is_not_written_before_it(text: str) -> None:
    assert render(Note("a", text, "ann", timestamp="2026-05-12T09:00")) == f"ann: {text}"
    assert render(Note("a", text, timestamp="2026-05-13")) == f"2026-05-13 {text}"


def test_a_longer_number_is_not_that_date() -> None:
    assert not begins_with_day("2026-05-123 parts", "2026-05-12")


def test_points_in_time_are_compared_not_their_spelling() -> None:
    notes = [Note("a", "1", timestamp="2026-01-01T09:00+05:00"), Note("b", "2", timestamp="2026-01-01T05:00Z")]
    hits = [Hit(note, 1.0, rank, place=rank) for rank, note in enumerate(notes, 1)]
    assert [note.id for note in in_order(hits)] == ["a", "b"]
    assert moment(notes[0]) < moment(notes[1])  # type: ignore[operator]
    assert datetime(2026, 1, 1, 4, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) == moment(notes[0])


# - cuts -

MEANT = re.compile(
    r"1,299\.99|12 May 2026|May 3, 2026|2026-05-12|10:30|5 p\.m\.|Maria Lopez|J\. K\. Lee|\"never in my life\""
    r"|“quite so”|\w[\w'’]*"
)


def cuts_nothing(text: str, start: int, end: int) -> bool:
    """Whether neither end of text[start:end] stands inside of something that is one."""
    return not any(found.start() < at < found.end() for found in MEANT.finditer(text) for at in (start, end))


@given(SENTENCE, st.integers(1, 80), st.sampled_from(GROWING))
def test_cut_divides_no_word_number_date_name_or_quote(text: str, budget: int, count: Counter) -> None:
    kept = cut(text, budget, count)
    assert not text.isascii() or cuts_nothing(text, 0, len(kept))


@given(clusters(), BUDGETS, st.sampled_from(GROWING))
def test_extract_divides_none_of_them_either_and_marks_every_cut(cluster: Cluster, budget: int, count: Counter) -> None:
    packed = extract(cluster, budget, count=count)
    notes = {note.id: note.text for note in cluster.notes}
    for source in packed.sources:
        text = notes[source.id]
        for piece in [] if source.whole or not text.isascii() else source.text.split("\n"):
            places = [found.start() for found in re.finditer(re.escape(piece), text)]
            assert any(cuts_nothing(text, at, at + len(piece)) for at in places)
            if not any(_is_sentence(text, at, at + len(piece)) for at in places):
                assert MARK.strip() in packed.text


def _is_sentence(text: str, start: int, end: int) -> bool:
    """Whether a sentence may begin and end there."""
    before, after = text[:start].rstrip(), text[end:].lstrip()
    return (not before or before[-1] in ".!?\"')…" or "\n" in text[len(before) : start]) and (
        not after or text[end - 1] in ".!?\"'):…" or text[end : end + 1] in "\n\r"
    )


@given(st.lists(SENTENCE, min_size=1, max_size=4), st.integers(1, 120), st.sampled_from(GROWING))
def test_a_record_ends_at_a_sentence_or_with_the_mark(said: list[str], budget: int, count: Counter) -> None:
    text = ". ".join(" ".join(each.split()) for each in said)
    kept = pack_text(text, budget, count)
    assert not kept or count(kept) <= budget
    assert not kept or kept == text or kept.endswith((MARK, ".", "…", '."', ".”"))


# What a reader takes for one thing, made without the patterns of the package; each stands between plain words.
ATOMS = [
    "$5 million", "1 000 000 euros", "€ 3,50", "20 %", "-5 °C", "1,299.99", "US$40", "EUR 5 million", "5万円", "3.5 km",
    "+1 415 555 0134", "(415) 555-0134", "DE89 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 19", "BA 2490",
    "twenty one", "one hundred and five", "12 May 2026", "May 3, 2026", "12 mai 2026", "12. Mai 2026", "2026-05-12",
    "12 de mayo de 2026", "12 мая 2026", "2026年5月12日", "12-14 May 2026", "10:30 pm", "5 p.m.", "Maria Lopez",
    "Łukasz Żółć", "Ёлка Иванова", "Lord of the Rings", "J.K. Rowling", "U.S. Army", "Dr. J. K. Lee", "Żaneta O’Brien",
    "https://a.example/b_(c)?d=1&e=2,3", "www.example.org/x.html", "ann+b@mail.example.org",
    '"I left. You stayed."', "“We sold it. “Never again.” So be it.”", "«Non. Jamais.»", "‘I don’t. Not now.’",
    "'It's mine. Go.'", '"He said "no way" to me."', "「行く。来る。」",
]  # fmt: skip
PLAIN = ["then", "we saw", "because of", "and after", "so she", "it was", "near", "again", "with"]


@st.composite
def notes_of_atoms(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A note of sentences of plain words and atoms, and where the atoms stand in it."""
    text, places = "", []
    for last in draw(st.lists(st.booleans(), min_size=1, max_size=7)):
        atom = draw(st.sampled_from(ATOMS))
        text += draw(st.sampled_from(PLAIN)) + " "
        places.append((len(text), len(text) + len(atom)))
        text += f"{atom} {draw(st.sampled_from(PLAIN))}{'.' if last else ''} "
    return text.rstrip(), places


@given(notes_of_atoms(), st.integers(1, 120), st.sampled_from(GROWING))
def test_no_cut_shows_a_part_of_what_is_one(
    note: tuple[str, list[tuple[int, int]]], budget: int, count: Counter
) -> None:
    text, places = note
    for kept in (cut(text, budget, count), pack_text(text, budget, count).removesuffix(MARK)):
        assert text.startswith(kept)
        assert not any(start < len(kept) < end for start, end in places), kept


@given(notes_of_atoms(), st.integers(1, 120), st.sampled_from(GROWING))
def test_a_record_that_was_cut_ends_at_a_full_stop_of_its_own_or_with_the_mark(
    note: tuple[str, list[tuple[int, int]]], budget: int, count: Counter
) -> None:
    text, places = note
    kept = pack_text(text, budget, count)
    if kept not in ("", text) and not kept.endswith(MARK):
        assert kept.endswith(".")
        assert not any(start < len(kept) <= end for start, end in places)


@given(notes_of_atoms())
def test_sentences_and_spans_begin_and_end_outside_of_what_is_one(note: tuple[str, list[tuple[int, int]]]) -> None:
    text, places = note
    edges = {at for span in spans(text) for at in span} | set(sentence_ends(text))
    assert not [text[start:end] for start, end in places if any(start < at < end for at in edges)]


@given(notes_of_atoms(), st.sampled_from(["then", "Maria Lopez", "5", "12 May", "house"]), BUDGETS)
def test_extract_shows_no_part_of_what_is_one_and_marks_the_side_it_cut(
    note: tuple[str, list[tuple[int, int]]], query: str, budget: int
) -> None:
    text, places = note
    packed = extract(Cluster(query, (Hit(Note("a", text), 1.0, 1),)), budget, count=ESTIMATE)
    shown = packed.text
    for piece in [piece for source in packed.sources for piece in source.text.split("\n")]:
        at = text.find(piece)
        assert at >= 0
        assert not any(start < edge < end for start, end in places for edge in (at, at + len(piece)))
        stop = at + len(piece)
        if text[stop:].strip() and not piece.endswith("."):
            assert f"{piece}{MARK}" in shown
        if text[:at].strip() and not text[:at].rstrip().endswith("."):
            assert re.search(rf"{re.escape(MARK.strip())} {re.escape(piece)}", shown)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("paid 1,299.99 to Maria Lopez", ["paid", "1,299.99", "to", "Maria Lopez"]),
        ("on 12 May 2026 at 10:30", ["on", "12 May 2026", "at", "10:30"]),
        ("she said “not so” and left", ["she", "said", "“not so”", "and", "left"]),
        ("until May 3, 2026, 5 p.m.", ["until", "May 3, 2026", ",", "5 p.m."]),
        ("Bank of America, Dr. Lee", ["Bank of America", ",", "Dr. Lee"]),
        ("and I Maria", ["and", "I", "Maria"]),
        ("Konto DE89 3704 0044 0532 0130 00 ok", ["Konto", "DE89 3704 0044 0532 0130 00", "ok"]),
        ("Total EUR 5 million, BA 2490", ["Total", "EUR 5 million", ",", "BA 2490"]),
        ("it’s 'cause of the dogs' bowl", ["it’s", "'cause", "of", "the", "dogs", "'", "bowl"]),
    ],
)
def test_what_a_cut_never_divides(text: str, whole: list[str]) -> None:
    assert [text[start:end] for start, end in spans(text)] == whole


def test_a_cut_sentence_keeps_the_words_asked_for_rather_than_its_beginning() -> None:
    note = Note(
        "a", "I went through all of the tests again in spring and now I am allergic to most shellfish and peanuts"
    )
    cluster = Cluster("What am I allergic to?", (Hit(note, 1.0, 1),))
    for budget in (8, 12, 16):
        text = extract(cluster, budget, count=ESTIMATE).text
        assert "allergic" in text
        assert text.startswith(MARK.strip())


# - what a budget adds -


def evidence(text: str) -> set[str]:
    return set(words(text))


@given(clusters(), st.integers(FLOOR, 200), st.integers(0, 400), st.sampled_from(GROWING))
@example(Cluster("猫", (Hit(Note("n0", "w" * 400), 1.0, 1), Hit(Note("n1", "猫 sat."), 0.5, 2))), 32, 500, counter(len))
def test_more_budget_never_takes_a_source_or_a_word_from_extract(
    cluster: Cluster, budget: int, more: int, count: Counter
) -> None:
    small, large = extract(cluster, budget, count=count), extract(cluster, budget + more, count=count)
    original = {hit.id: hit.duplicate_of or hit.id for hit in cluster.hits}
    assert {original[source.id] for source in small.sources} <= {original[source.id] for source in large.sources}
    assert evidence(small.text) <= evidence(large.text)


@given(clusters(), st.integers(FLOOR, 200), st.integers(0, 400), st.sampled_from(GROWING))
def test_whole_notes_once_all_fit_hold_whatever_extract_held_before(
    cluster: Cluster, budget: int, more: int, count: Counter
) -> None:
    if fit_fraction(cluster, budget + more, count=count) == 1:
        small, large = extract(cluster, budget, count=count), retain(cluster, budget + more, count=count)
        assert {source.id for source in small.sources} <= {source.id for source in large.sources}
        assert evidence(small.text) <= evidence(large.text)


@given(st.lists(st.tuples(TEXT, SPEAKER, STAMP), min_size=1, max_size=6), st.integers(FLOOR, 150), st.integers(0, 300))
def test_more_budget_never_shows_less_by_default(
    said: list[tuple[str, str | None, str | None]], budget: int, more: int
) -> None:
    turns = [
        {"text": text, "speaker": who or "ann", "timestamp": None if stamp == "soon" else stamp}
        for text, who, stamp in said
        if text.strip() and text.isprintable()
    ]
    with Memory(":memory:") as memory:
        if turns:
            memory.add(turns)
        small, large = (memory.recall("When did Maria Lopez pay?", tokens) for tokens in (budget, budget + more))
    assert {source.id for source in small.sources} <= {source.id for source in large.sources}
    assert evidence(small.text) <= evidence(large.text)
    assert small.tokens <= budget


def test_what_is_left_out_for_room_needs_more_than_is_left() -> None:
    texts = [
        "The cat sat on the mat.",
        "Rain.",
        "I saw the cat and the dog in the garden of the house.",
        "Sun all day.",
    ]
    cluster = Cluster("cat", tuple(Hit(Note(f"n{i}", text), 9.0 - i, i + 1) for i, text in enumerate(texts)))
    for budget in range(60):
        for drop in extract(cluster, budget, count=ESTIMATE).dropped:
            if found := re.search(r"needs (\d+) tokens, (-?\d+) left", drop.reason):
                assert int(found[1]) > int(found[2])
