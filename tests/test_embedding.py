"""Vectors in the store: made once, in batches that are kept, known by who made them, gone with their notes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import complaint, document, fine
from misbehaving import Server, held
from numpy.typing import NDArray
from waiting import until

from retcon import AsyncMemory, Memory, Scope
from retcon.embedding import BATCH, PROBES, Background, embed_missing, texts_of
from retcon.errors import InputError, ModelError
from retcon.model.embedders import FunctionEmbed
from retcon.note import Filter, Note
from retcon.where import Where

pytestmark = pytest.mark.both_stores

LONG = " ".join(f"Sentence number {n} says that box {n} is in room {n % 7} of the house." for n in range(40))


class Counted:
    """An embedder that hashes letters, remembers what it was asked, and fails from a certain call on."""

    def __init__(self, dim: int = 16, *, name: str = "counted", fails_at: int | None = None, turn: int = 0) -> None:
        self.dim, self.name, self.fails_at, self.turn = dim, name, fails_at, turn
        self.seen: list[str] = []
        self.calls = 0

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise ModelError("the endpoint is gone")
        self.seen += [text for text in texts if text not in PROBES]
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for sign in text.lower():
                row[(ord(sign) + self.turn) % self.dim] += 1.0
        return rows


def vectors(memory: Memory) -> int:
    return int(memory.stats()["vectors"])


# -- what is embedded --------------------------------------------------------------------------------------------------


def test_a_note_is_embedded_with_its_speaker_and_a_long_one_by_passages() -> None:
    assert texts_of(Note("a", "I have a cat.", speaker="Ann")) == ["Ann: I have a cat."]
    assert texts_of(Note("a", "I have a cat.")) == ["I have a cat."]
    parts = texts_of(Note("a", LONG, speaker="Ann"))
    assert len(parts) > 5
    assert all(part.startswith("Ann: Sentence number") for part in parts)
    assert " ".join(part.removeprefix("Ann: ") for part in parts) == LONG


def test_a_search_embeds_what_is_missing_and_nothing_twice(path: Path) -> None:
    embed = Counted()
    with Memory(path, embedder=embed) as memory:
        memory.add(["a cat", "a dog"])
        memory.search("cat")
        memory.add(LONG)
        memory.search("dog")
        memory.search("bird")
    assert sorted(embed.seen) == sorted(["a cat", "a dog", *texts_of(Note("x", LONG)), "cat", "dog", "bird"])
    again = Counted()
    with Memory(path, embedder=again) as memory:
        memory.search("cat")
    assert again.seen == ["cat"]


@pytest.mark.parametrize("scope", [{}, {"user_id": "ann"}])
def test_only_notes_of_the_scope_are_embedded(path: Path, scope: dict[str, Any]) -> None:
    embed = Counted()
    with Memory(path, embedder=embed) as memory:
        memory.add("a cat", user_id="ann")
        memory.add("a dog", user_id="bob")
        memory.search("bird", **scope)
    assert set(embed.seen) == {"a cat", "bird"} | (set() if scope else {"a dog"})


# -- Memory.embed ------------------------------------------------------------------------------------------------------


def test_embed_works_in_batches_and_tells_how_far_it_is(path: Path) -> None:
    steps: list[int] = []
    with Memory(path, embedder=Counted()) as memory:
        memory.add([f"note {n}" for n in range(2 * BATCH + 3)])
        assert memory.stats()["unembedded"] == 0  # nobody has asked for vectors yet
        assert memory.embed(progress=steps.append) == 2 * BATCH + 3
        assert steps == [BATCH, 2 * BATCH, 2 * BATCH + 3]
        assert (vectors(memory), memory.stats()["unembedded"]) == (2 * BATCH + 3, 0)
        assert memory.embed() == 0
        memory.add("one more")
        assert memory.stats()["unembedded"] == 1


def test_after_a_failure_the_next_call_goes_on_and_loses_one_batch_at_most(path: Path) -> None:
    with Memory(path, embedder=Counted(fails_at=4)) as memory:
        memory.add([f"note {n}" for n in range(3 * BATCH)])
        with pytest.raises(ModelError, match="gone"):
            memory.embed()
        assert vectors(memory) == 2 * BATCH  # the probe, then two batches
    embed = Counted()
    with Memory(path, embedder=embed) as memory:
        assert memory.embed() == BATCH
    assert len(embed.seen) == BATCH


def test_two_that_embed_at_once_keep_each_vector_once(path: Path) -> None:
    meet = threading.Barrier(2)

    class Meeting(Counted):
        def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            if texts != PROBES:
                meet.wait(60)
            return super().__call__(texts)

    with Memory(path, embedder=Counted()) as memory, Memory(path, embedder=Counted()) as other:
        memory.add([f"note {n}" for n in range(BATCH)])
        memory.embedder = other.embedder = Meeting()
        threads = [threading.Thread(target=each.embed) for each in (memory, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert vectors(memory) == BATCH
        assert memory.check().ok


def test_embed_of_an_async_memory_is_the_same(path: Path) -> None:
    import asyncio

    async def work() -> int:
        async with AsyncMemory(path, embedder=Counted()) as memory:
            await memory.add("a cat")
            return await memory.embed()

    assert asyncio.run(work()) == 1


# -- whose vectors they are --------------------------------------------------------------------------------------------


def test_another_embedder_does_not_use_the_vectors_and_makes_its_own(path: Path) -> None:
    for name in ("one", "other"):
        with Memory(path, embedder=Counted(name=name)) as memory:
            memory.add("a cat", id="a")
            assert memory.search("cat")
    with Memory(path, embedder=Counted(name="one")) as memory:
        assert vectors(memory) == 2
        assert memory.embed(drop_others=True) == 0
        assert vectors(memory) == 1
        assert memory.count_unpurged() == 1  # they leave the file with the next purge
        assert memory.check().ok


@pytest.mark.parametrize("changed", [Counted(turn=5), Counted(dim=8)])
def test_a_model_that_changed_under_its_name_is_another_embedder(path: Path, changed: Counted) -> None:
    with Memory(path, embedder=Counted()) as memory:
        memory.add(["a cat", "a dog"])
        memory.search("cat")
    with Memory(path, embedder=changed) as memory:
        assert memory.embed() == 2
        with memory.store.snapshot(Scope()) as snapshot:
            vector = changed(["a cat"])[0]
            assert len(snapshot.nearest("counted#2", vector, 9, Filter()).slots) == 2
    with Memory(path, embedder=Counted()) as memory:  # and the old one is still known
        assert memory.embed() == 0


def test_rounding_does_not_make_another_embedder(path: Path) -> None:
    noise = np.random.default_rng(0)
    exact = Counted()
    rough = FunctionEmbed("counted", lambda texts: exact(texts) * noise.uniform(0.99, 1.01, (len(texts), 16)))
    with Memory(path, embedder=exact) as memory:
        memory.add("a cat")
        memory.search("cat")
    with Memory(path, embedder=rough) as memory:
        assert memory.embed() == 0


def test_a_vector_of_another_dimension_is_refused(path: Path) -> None:
    with Memory(path, embedder=Counted()) as memory:
        memory.add("a cat", id="a")
        memory.embed()
        with pytest.raises(InputError, match="8 numbers do not fit the store's, which have 16"):
            memory.store.put_vectors("counted", [("a", np.ones((1, 8), np.float32))])


# -- vectors go with their notes ---------------------------------------------------------------------------------------


def test_vectors_go_with_deleted_corrected_and_purged_notes(path: Path) -> None:
    with Memory(path, embedder=Counted()) as memory:
        for number in range(6):
            memory.add(f"note {number}", id=f"n{number}", user_id="ann" if number < 4 else "bob")
        memory.embed()
        memory.delete("n0")
        assert vectors(memory) == 5
        memory.supersede("n1", "a correction", new_id="n9")
        assert vectors(memory) == 4
        memory.embed()
        assert vectors(memory) == 5
        memory.delete_all(user_id="bob")
        assert vectors(memory) == 3
        assert memory.purge()
        assert {hit.id for hit in memory.search("note", top_k=9)} == {"n9", "n2", "n3"}
        assert memory.check().ok


def test_a_note_that_is_current_again_gets_its_vector_again(path: Path) -> None:
    with Memory(path, embedder=Counted(), retriever="dense") as memory:
        memory.add(["first", "second"], user_id="ann")
        old = memory.get_all()[0]
        memory.supersede(old.id, "corrected", new_id="b")
        memory.embed()
        memory.delete("b", versions="one")
        assert memory.embed() == 1
        assert old.id in {hit.id for hit in memory.search("first", user_id="ann")}


# -- in the background -------------------------------------------------------------------------------------------------


def test_in_the_background_adds_do_not_wait_and_searches_use_what_there_is(path: Path) -> None:
    release = threading.Event()

    class Held(Counted):
        def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            if any(text.startswith("held") for text in texts):
                assert release.wait(60)
            return super().__call__(texts)

    with Memory(path, embedder=Held(), embed_in_background=True) as memory:
        memory.add("a cat")
        until(lambda: vectors(memory) == 1)
        memory.add("held back")
        assert memory.search("cat")[0].text == "a cat"
        assert vectors(memory) == 1
        release.set()
        until(lambda: vectors(memory) == 2)


def test_the_background_outlives_an_error_and_tries_again() -> None:
    turns = []

    def work() -> None:
        turns.append(1)
        if len(turns) < 3:
            raise ModelError("not now")
        if len(turns) == 3:
            raise ZeroDivisionError

    thread = Background(work, retry=0.01)
    until(lambda: len(turns) == 4)
    until(lambda: thread.error is None and thread.wait(0))
    thread.close()
    assert not thread._thread.is_alive()


def test_a_memory_closes_while_its_background_waits_for_an_endpoint(
    path: Path, server: Server, release: threading.Event
) -> None:
    server.always = held(release)
    with Memory(path, embedder=f"{server.base}#m", embed_in_background=True) as memory:
        memory.add("a cat")
        until(lambda: bool(server.seen))
        background = memory._background
    assert background is not None
    assert not background._thread.is_alive()
    assert not release.is_set()


# -- the command -------------------------------------------------------------------------------------------------------


def test_retcon_embed_makes_vectors_and_says_how_many(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_EMBEDDER", raising=False)
    with Memory(path) as memory:
        memory.add(["a cat", "a dog"])
    assert "embedded 2 notes, 2 vectors are kept" in fine("embed", "--embedder", "hashing", "--db", str(path))
    assert document("embed", str(path), "--embedder", "hashing") == {
        "embedded": 0, "vectors": 2, "embedder": "hashing",
    }  # fmt: skip
    assert "say which embedder" in complaint("embed", "--db", str(path))


def test_embed_missing_needs_no_name(path: Path) -> None:
    with Memory(path) as memory:
        memory.add("a cat")
        assert embed_missing(memory.store, Where(), Counted()) == 1
