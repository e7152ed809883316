"""Drafts: what a text shows of a question, and which of several texts is kept for it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.confidence import Witnesses
from retcon.drafts import TRAITS, traits
from retcon.note import Cluster, Hit, Note

NOTES = (
    Note("n1", "I adopted a cat. Her name is Pixel.", "ann", "s1", "2026-05-09T10:00"),
    Note("n2", "The cat likes the garden.", "ann", "s1", "2026-05-10T10:00"),
)
ASKED = Witnesses.of(Cluster("What is the name of the cat?", tuple(Hit(note, 1.0, i) for i, note in enumerate(NOTES))))


def test_traits_are_those_of_a_hand_computation() -> None:
    # three sentences; "name" is in one of them, "cat" in two
    name, cat = (math.log1p(3.5 / (seen + 0.5)) for seen in (1, 2))
    found = traits("Ann adopted a cat. The name is Pixel.", ASKED)
    assert found == pytest.approx({"best": name / (name + cat), "covered": 1.0, "length": math.log1p(8), "hedged": 0.0})


@pytest.mark.parametrize(
    "text",
    [
        "Her grandparents are not mentioned.",
        "The memory doesn't specify when.",
        "The notes do not say where he lives.",
        "It was never explicitly stated.",
        "There is no specific information about the cat.",
        "The date is unknown.",
    ],
)
def test_a_text_that_names_what_it_does_not_know_is_hedged(text: str) -> None:
    assert traits(text, ASKED)["hedged"] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "Her grandparents live in Basel.",
        "I will never give up.",
        "I haven't specifically looked for bottles.",
        "She does not like the garden.",
        "I did not say hello.",
    ],
)
def test_a_plain_denial_is_not_hedged(text: str) -> None:
    assert traits(text, ASKED)["hedged"] == 0.0


@given(st.text(max_size=200))
def test_traits_are_finite_and_no_sentence_covers_more_than_its_text(text: str) -> None:
    found = traits(text, ASKED)
    assert tuple(found) == TRAITS
    assert all(map(math.isfinite, found.values()))
    assert 0.0 <= found["best"] <= found["covered"] <= 1.0


def test_a_text_without_words_shows_nothing() -> None:
    assert set(traits("", ASKED).values()) == {0.0}
