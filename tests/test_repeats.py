"""Notes that say no more than a better one: which are marked, and that none is that adds a word that tells."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retcon import Memory, repeats
from retcon.note import Hit, Note
from retcon.repeats import mark_duplicates


def test_near_duplicates_are_recognised_and_changed_numbers_are_not() -> None:
    said = [
        "My dentist appointment is on Tuesday at 14:30 with Dr Lam.",
        "As I said, my dentist appointment is on Tuesday at 14:30 with Dr Lam.",
        "My dentist appointment is on Tuesday at 15:30 with Dr Lam.",
        "My dentist appointment is not on Tuesday at 14:30 with Dr Lam.",
        "Bought new running shoes.",
    ]
    hits = mark_duplicates([Hit(Note(id=str(i), text=text), 1.0, i + 1) for i, text in enumerate(said)])
    assert [hit.duplicate_of for hit in hits] == [None, "0", None, None, None]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "My son is allergic to peanuts so please never order that dish at the party on the weekend",
            "My son is allergic to cashews so please never order that dish at the party on the weekend",
        ),
        (
            "I think my knee does need another operation before the long summer hike with the group",
            "I think my knee doesn't need another operation before the long summer hike with the group",
        ),
        (
            "I am living with my sister in Paris near the river now",
            "I am living with my sister in Rome near the river now",
        ),
    ],
)
def test_a_changed_word_is_never_dropped_as_a_duplicate(older: str, newer: str) -> None:
    with Memory(":memory:") as memory:
        memory.add(older, id="old", timestamp="2026-01-01")
        memory.add(newer, id="new", timestamp="2026-05-01")
        for action in ("retain", "extract"):
            recall = memory.recall(newer, budget=500, action=action)
            assert {source.id for source in recall.sources} == {"old", "new"}


def every_pair(hits: Sequence[Hit]) -> list[str | None]:
    """What `mark_duplicates` promises, by comparing each note with all before it."""
    said = [repeats._read_hit(hit) for hit in hits]
    twins: list[str | None] = []
    for i in range(len(hits)):
        firsts = (j for j in range(i) if twins[j] is None)
        twins.append(next((hits[j].id for j in firsts if repeats._same(said[j], said[i])), None))
    return twins


_SPOKEN = st.sampled_from("cat dog fish ate paid the a of to again said yes not 5 7".split())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.lists(_SPOKEN, max_size=12), st.integers(0, 40), st.booleans()), max_size=16))
def test_near_duplicates_are_those_that_comparing_every_pair_finds(drawn: list[tuple[list[str], int, bool]]) -> None:
    texts: list[list[str]] = []
    for said, at, anew in drawn:  # a new text, or one from before with a word or two changed
        before = texts[at % len(texts)] if texts and not anew else []
        cut = at % (len(before) + 1)
        texts.append([*before[:cut], *said[: 2 if before else 12], *before[cut + at % 2 :]])
    hits = [Hit(Note(str(i), " ".join(text), speaker="ann"), 1.0, i + 1) for i, text in enumerate(texts)]
    expected = every_pair(hits)
    for few in (0, 50):  # by bits, and pair by pair
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repeats, "FEW", few)
            assert [hit.duplicate_of for hit in mark_duplicates(hits)] == expected


def test_two_people_saying_the_same_are_not_duplicates() -> None:
    pair = [Note(id="0", text="I love the sea", speaker="ann"), Note(id="1", text="I love the sea", speaker="bo")]
    assert mark_duplicates([Hit(note, 1.0, i) for i, note in enumerate(pair, 1)])[1].duplicate_of is None
