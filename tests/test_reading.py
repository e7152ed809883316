"""A text is read once for all who ask, and what is kept of it changes nothing, outlives no delete and stays small."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import counted_ids, fixed_clock
from hypothesis import given
from hypothesis import strategies as st
from test_text import TEXT, clusters

from retcon import Memory, reading, sample, tokens, words
from retcon.extract import extract
from retcon.language import ENGLISH, Language, language
from retcon.note import Cluster, Recall
from retcon.passages import split
from retcon.reading import LONGEST, Reading, Readings, read
from retcon.repeats import mark_duplicates
from retcon.tokens import counter, spans

QUERIES = [question.question for question in sample.questions()]
LANGUAGES = [ENGLISH, language("german"), language("japanese"), language("turkish")]


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


def show(found: Reading, by: Language) -> list[Any]:
    """All that a reading holds."""
    said = [(sentence.text, sentence.stem_of, sentence.stems) for sentence in found.sentences]
    return [found.language, found.stems, found.distinct, found.passages, said, found.spans, by.name]


# - what it is -


@given(TEXT, st.sampled_from(LANGUAGES))
def test_a_reading_holds_what_the_language_says(text: str, by: Language) -> None:
    found = read(text, by)
    assert list(found.stems) == by.stems(text)
    assert found.distinct == set(by.stems(text))
    assert list(found.passages) == split(text)
    assert [sentence.text for sentence in found.sentences] == words.sentences(text)
    for sentence in found.sentences:
        assert list(sentence.stem_of) == list(dict.fromkeys(by.words(sentence.text)))
        assert sentence.stems == set(by.stems(sentence.text)) == set(sentence.stem_of.values())
        assert set(sentence.telling) == sentence.stems - (by.common - reading.NEGATIONS)
    assert list(found.spans.places) == spans(text)
    assert list(map(list, found.spans.words)) == [by.words(text[start:end]) for start, end in spans(text)]


@given(st.lists(st.tuples(TEXT, st.sampled_from(LANGUAGES)), max_size=6))
def test_what_was_read_before_changes_no_reading(asked: list[tuple[str, Language]]) -> None:
    warm = [show(read(text, by), by) for text, by in [*asked, *reversed(asked)]]
    assert warm == [show(Reading(text, by), by) for text, by in [*asked, *reversed(asked)]]


def test_a_reading_is_never_that_of_another_language() -> None:
    german, text = language("german"), "Die Katzen schliefen on the windowsills"
    assert list(read(text, ENGLISH).stems) == ENGLISH.stems(text) != german.stems(text)
    assert list(read(text, german).stems) == german.stems(text)
    assert list(read(text, ENGLISH).stems) == ENGLISH.stems(text)


# - results -


@given(clusters(), st.integers(0, 120))
def test_extract_says_the_same_of_notes_that_were_read_before(cluster: Cluster, budget: int) -> None:
    count = counter("estimate")
    reading.forget()
    first = extract(cluster, budget, count=count)
    assert extract(cluster, budget, count=count) == first
    marked = mark_duplicates(cluster.hits)
    reading.forget()
    assert mark_duplicates(cluster.hits) == marked


def all_of(found: Recall) -> list[Any]:
    """What a caller sees of a recall, but for the time that it took."""
    shown = [found.text, found.tokens, found.sources, found.dropped, found.evidence, found.why, found.decision]
    return [*shown, found.warnings, found.cluster.hits, found.cluster.costs]


@pytest.mark.parametrize("budget", [40, 256])
def test_a_recall_is_the_same_cold_and_warm(path: Path, budget: int) -> None:
    with Memory(path, now=fixed_clock, new_id=counted_ids()) as memory:
        memory.add(sample.notes())
        found = []
        for query in QUERIES:
            reading.forget()
            found.append((all_of(memory.recall(query, budget)), memory.search(query)))
        assert [(all_of(memory.recall(query, budget)), memory.search(query)) for query in QUERIES] == found


# - what is kept -


@given(st.lists(st.text(max_size=30)))
def test_no_more_is_kept_than_there_is_room_for(texts: list[str]) -> None:
    lately = Readings(most=50)
    for text in texts:
        lately.read(text, ENGLISH)
        assert lately.characters == sum(len(found.text) for found in lately.kept.values()) <= 50


def test_a_text_that_comes_back_is_not_read_again_unless_it_is_huge() -> None:
    assert read("Ann has a cat.", ENGLISH) is read("Ann has a cat.", ENGLISH)
    huge = "x" * (LONGEST + 1)
    assert read(huge, ENGLISH) is not read(huge, ENGLISH)


@pytest.mark.parametrize("how", ["delete", "delete_all", "purge"])
def test_nothing_of_a_deleted_note_is_kept(path: Path, how: str) -> None:
    lately = reading.LATELY
    with Memory(path, now=fixed_clock) as memory:
        memory.add("Ann keeps the key under the blue stone.", id="n", expires_at=timedelta(hours=1))
        memory.recall("Where is the key?")
        assert any("blue stone" in text for _, text in lately.kept)
        assert any("blue stone" in line for line in tokens.line_sums.known)
        if how == "purge":
            memory.now = lambda: fixed_clock() + timedelta(days=1)
            memory.purge()
        else:
            memory.delete("n") if how == "delete" else memory.delete_all(everything=True)
        assert not lately.kept
        assert not tokens.line_sums.known
