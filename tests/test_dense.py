"""Search by vectors: exactly plain cosine, within scope and filter, and up to date whoever writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from retcon import Memory, Scope
from retcon.embedding import texts_of
from retcon.note import Filter
from retcon.rerank import SHIPPED
from retcon.retrieve import Ranked, join
from retcon.store import Nearest
from retcon.store.matrices import Matrices

pytestmark = pytest.mark.both_stores

WORDS = "cat dog bird fish lisbon berlin train boat rent vet".split()
LONG = " ".join(f"Sentence {n} speaks of a {WORDS[n % 10]} and of the number {n} in some words." for n in range(40))


class Letters:
    """Vectors by pairs of letters: alike where words are."""

    name, dim = "letters", 64

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for one, two in pairwise(text):
                row[(ord(one) * 31 + ord(two)) % self.dim] += 1.0
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        return rows


def by_hand(memory: Memory, query: str, **words: Any) -> dict[str, float]:
    """The best cosine of each note's passages, computed from the notes."""
    embed = Letters()
    vector = embed([query])[0]
    best = {note.id: float((embed(texts_of(note)) @ vector).max()) for note in memory.get_all(**words)}
    return {note_id: score for note_id, score in best.items() if score > 0}


def found(memory: Memory, query: str, **words: Any) -> dict[str, float]:
    return {hit.id: hit.score for hit in memory.search(query, top_k=100, **words)}


def filled(path: Path | str, **options: Any) -> Memory:
    memory = Memory(path, embedder=Letters(), retriever="dense", **options)
    for number in range(30):
        text = LONG if number % 10 == 3 else f"{WORDS[number % 10]} {WORDS[number % 7]} {number}"
        memory.add(
            text, id=f"n{number}", user_id="ann" if number % 3 else "bob", session=f"s{number % 2}",
            speaker="Ann", metadata={"even": number % 2 == 0},
        )  # fmt: skip
    return memory


@pytest.mark.parametrize(
    "words",
    [{}, {"user_id": "ann"}, {"user_id": "bob"}, {"user_id": "ann", "session": "s1"}, {"metadata": {"even": True}}],
)
@pytest.mark.parametrize("most_bytes", [2**30, 0])
def test_dense_is_plain_cosine_of_the_best_passage(path: Path, words: dict[str, Any], most_bytes: int) -> None:
    with filled(path) as memory:
        memory.store._matrices = Matrices(most_bytes)
        for query in ("the vet in lisbon", "a boat", "number 39"):
            assert found(memory, query, **words) == pytest.approx(by_hand(memory, query, **words), abs=2e-3)
        assert memory.store._matrices.bytes <= most_bytes


def test_the_hit_names_the_passage_that_is_closest(path: Path) -> None:
    with Memory(path, embedder=Letters(), retriever="dense") as memory:
        memory.add(LONG)
        (hit,) = memory.search("Sentence 30 speaks of a cat and of the number 30 in some words.")
        assert hit.passage is not None
        assert "number 30" in LONG[slice(*hit.passage)]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "add", "long", "delete", "supersede", "other"]), st.integers(0, 20)), max_size=12
)


@given(CHANGES)
def test_what_is_held_in_memory_is_what_the_file_holds(changes: list[tuple[str, int]]) -> None:
    with Memory(":memory:", embedder=Letters(), retriever="dense") as memory:
        for number, (what, which) in enumerate(changes):
            ids = [note.id for note in memory.get_all()]
            if what in ("add", "long"):
                memory.add(LONG if what == "long" else f"{WORDS[which % 10]} {number}", id=f"n{number}")
            elif what == "other":
                memory.add(f"{WORDS[which % 10]} of bob", user_id="bob")
            elif ids and what == "delete":
                memory.delete(ids[which % len(ids)], versions="one")
            elif ids:
                memory.supersede(ids[which % len(ids)], f"not {WORDS[which % 10]}", new_id=f"n{number}")
            assert found(memory, "a cat in berlin") == pytest.approx(by_hand(memory, "a cat in berlin"), abs=2e-3)
        assert memory.check().ok


def test_what_another_process_writes_is_seen(path: Path) -> None:
    with filled(path) as memory, Memory(path, embedder=Letters(), retriever="dense") as other:
        assert "new" not in found(memory, "cat")
        other.add("cat", id="new", user_id="ann")
        other.embed()
        assert "new" in found(memory, "cat")
        other.delete("n1")
        assert "n1" not in found(memory, "cat")
        other.supersede("n2", "cat again", new_id="corrected")
        other.embed()
        now = found(memory, "cat")
        assert "corrected" in now
        assert "n2" not in now
        assert now == pytest.approx(by_hand(memory, "cat"), abs=2e-3)


def test_a_snapshot_does_not_see_vectors_that_came_after_it(path: Path) -> None:
    embed = Letters()
    with filled(path) as memory, Memory(path, embedder=embed, retriever="dense") as other:
        memory.embed()
        name = memory._identify(embed).name
        vector = embed(["cat"])[0]
        with memory.store.snapshot(Scope("ann")) as snapshot:
            before = set(snapshot.nearest(name, vector, 99, Filter()).slots.tolist())
            other.add("cat", user_id="ann")
            assert found(other, "cat", user_id="ann")
            memory.store._matrices = other.store._matrices  # which has the newer one
            assert set(snapshot.nearest(name, vector, 99, Filter()).slots.tolist()) == before


def test_matrices_of_all_scopes_together_stay_within_their_bytes(path: Path | str) -> None:
    here = (
        f"{path}&pgvector=off" if isinstance(path, str) else path
    )  # a server that compares them itself holds none here
    with Memory(here, embedder=Letters(), retriever="dense") as memory:
        for user in range(6):
            memory.add([f"{word} {user}" for word in WORDS], user_id=f"u{user}")
        one = 10 * Letters.dim * 4
        memory.store._matrices = Matrices(3 * one)
        for user in (0, 1, 2, 3, 4, 5, 0):
            assert found(memory, "cat", user_id=f"u{user}") == pytest.approx(
                by_hand(memory, "cat", user_id=f"u{user}"), abs=2e-3
            )
            assert memory.store._matrices.bytes <= 3 * one
        assert len(memory.store._matrices._held) == 3


# -- hybrid ------------------------------------------------------------------------------------------------------------


def near(**scores: float) -> Nearest:
    slots = np.array([int(name[1:]) for name in scores], np.int64)
    return Nearest(slots, np.array(list(scores.values())), np.full(len(slots), 2, np.int64))


def test_the_join_adds_what_each_side_gives_divided_by_its_best() -> None:
    by_words = (Ranked([1, 2], [8.0, 4.0], passages={2: 5}), Ranked([3], [0.0]))
    joined = join(by_words, (near(n3=0.6, n2=0.3), near(n1=-0.1)))
    scores = dict(zip(joined.slots, joined.scores, strict=True))
    assert scores == pytest.approx({1: 1.0, 2: 0.5 + SHIPPED.meaning * 0.5, 3: SHIPPED.meaning})
    assert joined.slots == [1, 2, 3]
    assert joined.passages == {1: 0, 2: 5, 3: 2}  # of the side that says more


def test_the_join_stands_with_one_side_alone_or_none() -> None:
    assert join((Ranked([], []),), (near(),)).slots == []
    assert join((Ranked([4], [2.0]),), (near(),)).scores == [1.0]
    assert join((Ranked([], []),), (near(n4=0.2),)).scores == [SHIPPED.meaning]


def test_a_cosine_counts_from_where_unrelated_texts_are() -> None:
    joined = join((Ranked([1], [1.0]),), (near(n1=0.5, n2=0.75, n3=0.4),), floor=0.5)
    assert dict(zip(joined.slots, joined.scores, strict=True)) == pytest.approx({1: 1.0, 2: SHIPPED.meaning, 3: 0.0})


@pytest.mark.parametrize("base", [0.0, 2.0])
def test_the_floor_is_what_texts_about_different_things_have(base: float) -> None:
    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        rows = np.stack([np.random.default_rng(len(text)).standard_normal(400) for text in texts])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows + base * np.eye(1, 400)

    with Memory(":memory:", embedder=embed) as memory:
        floor = memory._identify(memory.embedder).floor
    assert floor == pytest.approx(base**2 / (1 + base**2), abs=0.1)


def test_hybrid_finds_what_either_side_finds(path: Path) -> None:
    class Topics:
        name, dim = "topics", 2

        def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            animal = [any(word in text for word in ("cat", "kitten", "pet")) for text in texts]
            return np.array([[1.0, 0.1] if each else [0.1, 1.0] for each in animal], np.float32)

    with Memory(path, embedder=Topics()) as memory:
        memory.add([f"train number {n} was late" for n in range(150)])
        memory.add(["the kitten sleeps", "Zanzibar was warm"])
        texts = [hit.text for hit in memory.search("pet in Zanzibar", top_k=2)]
        assert set(texts) == {"the kitten sleeps", "Zanzibar was warm"}
