"""Nothing is done twice in a recall, nothing is computed that no router reads, and a bulk add is many single ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import Stemmer
from conftest import counted_ids, fixed_clock, raw
from numpy.typing import NDArray

from retcon import Memory, Note, Scope, reading, repeats, sample, words
from retcon.errors import ConflictError, InputError, RouterError
from retcon.features import FEATURES, SPREAD, TYPES
from retcon.model import HashingEmbed
from retcon.repeats import mark_duplicates
from retcon.route import Router, default_router
from retcon.store.writing import BATCH

pytestmark = pytest.mark.both_stores

QUERIES = [question.question for question in sample.questions()]
BUDGETS = (0, 40, 256, 4_000)
SPREADS = Router(  # the one kind that needs embeddings
    name="spread", actions=("retain", "extract"), features=("similarity",),
    weights={"retain": (1.0,), "extract": (0.0,)}, intercepts={"retain": 0.0, "extract": 0.5},
)  # fmt: skip


@pytest.fixture
def talk(path: Path) -> Iterator[Memory]:
    with Memory(path, now=fixed_clock, new_id=counted_ids()) as memory:
        memory.add(sample.notes())
        yield memory


class Tally:
    """A token counter that keeps how often it was asked for each text."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, text: str) -> int:
        self.asked[text] += 1
        return len(text.split())


class Refusing:
    """An embedder that must not be asked."""

    name, dim = "refusing", 4

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        raise AssertionError(f"asked to embed {len(texts)} texts")


# -- a recall ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("action", [None, "retain", "extract"])
def test_a_recall_counts_each_text_once(talk: Memory, path: Path, budget: int, action: str | None) -> None:
    tally = Tally()
    with Memory(path, counter=tally) as memory:
        for query in QUERIES[:5]:
            tally.asked.clear()
            memory.recall(query, budget, action=action).escalate()
            assert set(tally.asked.values()) <= {1}, tally.asked.most_common(1)


def test_a_recall_splits_each_note_into_sentences_once(talk: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    split = words.sentence_ends

    def count(text: str, **options: bool) -> Iterator[int]:
        asked[text] += 1
        return split(text, **options)

    monkeypatch.setattr(words, "sentence_ends", count)
    for query in QUERIES[:5]:
        asked.clear()
        reading.forget()
        found = talk.recall(query, 256, action="extract")
        assert set(asked.values()) == {1}
        assert asked.keys() <= {hit.text for hit in found.cluster.hits}


@pytest.mark.sqlite
@pytest.mark.parametrize("long", [False, True])
def test_a_recall_sends_no_statement_twice(talk: Memory, long: bool) -> None:
    if long:
        talk.add(" ".join(f"Bruno has bought a piano and {number} other things." for number in range(99)))
    sent: list[str] = []
    with talk.store._connections.use() as connection:
        connection.set_trace_callback(sent.append)
        for query in [*QUERIES[:5], "piano of Bruno"]:
            sent.clear()
            talk.recall(query)
            assert sent
            assert Counter(sent).most_common(1)[0][1] == 1


def test_no_embedder_is_asked_where_the_router_reads_no_embedding(talk: Memory, path: Path) -> None:
    for router in ("evidence-fit", "longmemeval-free", "locomo-free"):
        with Memory(path, router=router, embedder=Refusing(), retriever="bm25") as memory:
            assert memory.recall(QUERIES[0]).escalate() is not None
            assert memory.decide(QUERIES[0], exclude=["retain"]).action == "extract"


def test_notes_are_embedded_once_for_a_router_that_reads_it_whatever_is_then_tried(talk: Memory, path: Path) -> None:
    class Counting(HashingEmbed):
        calls = 0

        def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            Counting.calls += 1
            return super().__call__(texts)

    with Memory(path, router=SPREADS, embedder=Counting()) as memory:
        found = memory.recall(QUERIES[0])
        assert "similarity" in found.decision.features
        assert found.escalate() is not None
        assert Counting.calls == 1


# -- what a router reads -----------------------------------------------------------------------------------------------


def test_features_that_were_not_computed_are_absent(talk: Memory, path: Path) -> None:
    cheap = [name for name in FEATURES if name not in (*SPREAD, *TYPES)]
    assert list(talk.decide(QUERIES[0]).features) == cheap
    with Memory(path, router="longmemeval-free") as memory:
        assert list(memory.decide(QUERIES[0]).features) == [*cheap, *TYPES]
    with Memory(path, router=SPREADS) as memory:
        assert list(memory.decide(QUERIES[0]).features) == [*cheap, *SPREAD]


def test_a_router_reads_what_it_weighs_what_its_ladder_weighs_and_what_its_reasons_say() -> None:
    assert default_router().reads == {"budget", "notes", "fit", "sessions"}
    assert default_router(writes=True).reads >= set(TYPES)
    told = replace(SPREADS, features=(), weights={"retain": (), "extract": ()}, reasons={"retain": "$pressure is much"})
    assert told.reads == {"budget", "notes", "fit", "sessions", "pressure"}


def test_a_decision_by_names_is_the_decision_by_the_whole_vector() -> None:
    x = [0.5, 20.0, 2.0, 0.4, 3.0, 0.2, 0.7, 0.1, 0.2, 0.3, 0.4]
    named = dict(zip(FEATURES, x, strict=True))
    assert SPREADS.decide(named, budget=256) == SPREADS.decide(x, budget=256)
    few = {name: named[name] for name in SPREADS.reads}
    assert replace(SPREADS.decide(few, budget=256), features=named) == SPREADS.decide(x, budget=256)


def test_a_feature_that_the_router_reads_must_be_there() -> None:
    with pytest.raises(RouterError, match="reads features that are not there: similarity"):
        SPREADS.decide({"budget": 0.5, "notes": 2.0, "fit": 1.0, "sessions": 1.0}, budget=256)


# -- words -------------------------------------------------------------------------------------------------------------


def test_remembered_stems_are_the_stemmers_own() -> None:
    found = [word for note in sample.notes() for word in words.words(note["text"])] + ["ünïcode", "Ünïcode", "", "12"]
    assert words.stem_words(found) == Stemmer.Stemmer("english").stemWords(found)
    assert words.stem_words(found) == words.stem_words(found)


def test_duplicates_are_those_that_comparing_each_note_with_all_before_it_finds(talk: Memory) -> None:
    hits = [hit for query in QUERIES[:40] for hit in talk.search(query, top_k=12)]
    plain = [replace(hit, duplicate_of=None) for hit in {hit.id: hit for hit in hits}.values()]
    said = [repeats._read_hit(hit) for hit in plain]
    firsts: list[int] = []
    wanted: list[str | None] = []
    for i in range(len(plain)):
        twin = next((j for j in firsts if repeats._same(said[j], said[i])), None)
        wanted.append(None if twin is None else plain[twin].id)
        firsts += [i] if twin is None else []
    for size in (20, len(plain)):  # one by one, and by bits
        assert [hit.duplicate_of for hit in mark_duplicates(plain[:size])] == wanted[:size]
    assert any(wanted)


# -- adding ------------------------------------------------------------------------------------------------------------


def made(count: int) -> list[dict[str, Any]]:
    """Notes with every kind of link between them, and between one batch and the next."""
    out: list[dict[str, Any]] = []
    for number in range(count):
        note: dict[str, Any] = {"id": f"m{number}", "text": f"Note {number} on topic {number % 7}.", "user_id": "ann"}
        note |= {"session": f"s{number // 20}"} if number % 3 else {}
        note |= {"speaker": "Ann", "timestamp": f"2026-05-{number % 28 + 1:02}"} if number % 2 else {}
        note |= {"metadata": {"z": number, "a": [1]}} if number % 11 == 0 else {}
        note |= {"supersedes": f"m{number - 5}"} if number % 50 == 49 else {}
        note |= {"follows": f"m{number - 30}"} if number % 40 == 39 else {}
        out.append(note)
    return out


# Bounds, and where the entries of a term lie, depend on when they came.
TABLES = {"scope": "*", "note": "*", "seal": "*", "doc": "*", "posting": "scope, term, df"}


def test_a_bulk_add_leaves_what_single_adds_leave(tmp_path: Path) -> None:
    notes = [{"session": "alone"} | note for note in made(BATCH + 60)]  # notes of a list follow each other without one
    with Memory(tmp_path / "bulk.db", now=fixed_clock) as bulk, Memory(tmp_path / "single.db", now=fixed_clock) as one:
        bulk.add(notes)
        for note in notes:
            one.add(note)
        assert bulk.check().ok
    for table, columns in TABLES.items():
        found = []
        for name in ("bulk", "single"):
            with closing(raw(tmp_path / f"{name}.db")) as connection:
                found.append(connection.execute(f"SELECT {columns} FROM {table}").fetchall())
        assert found[0] == found[1], table


def test_what_an_add_returns_is_what_is_stored(memory: Memory) -> None:
    memory.add("Known before.", id="old", user_id="ann")
    notes = [*made(BATCH + 60), {"id": "old", "text": "Known before.", "user_id": "ann"}]
    notes.append(dict(notes[3]))  # the same again
    added = memory.add(notes)
    assert [note.id for note in added] == [note["id"] for note in notes]
    assert added == [memory.get(note["id"]) for note in notes]
    assert any(note.superseded_by for note in added)
    assert any(note.follows for note in added)
    assert next(list(note.metadata) for note in added if note.metadata) == ["a", "z"]


def test_of_two_faults_in_a_stream_the_first_is_told_and_nothing_is_stored(memory: Memory) -> None:
    memory.add("One text.", id="taken")

    def stream() -> Iterator[Note]:
        yield Note("fresh", "A new one.", created_at="2026-05-09T12:00:00+00:00")
        yield Note("taken", "Another text.", created_at="2026-05-09T12:00:00+00:00")
        raise InputError("the source broke later")

    with pytest.raises(ConflictError, match="taken"):
        memory.store.add(stream())
    assert [note.id for note in memory.get_all()] == ["taken"]


@pytest.mark.parametrize("place", [1, BATCH, BATCH + 1])
def test_an_id_may_come_twice_in_one_add_only_with_the_same_words(memory: Memory, place: int) -> None:
    notes = [{"id": f"n{number}", "text": f"Words {number}."} for number in range(BATCH + 5)]
    memory.add([*notes[: place + 1], notes[0], *notes[place + 1 :]])
    with pytest.raises(ConflictError, match="another text"):
        memory.add(
            [{"id": f"x{number}", "text": "Same."} for number in range(place)] + [{"id": "x0", "text": "Other."}]
        )
    assert memory.store.count(Scope()) == len(notes)


def test_progress_is_told_note_by_note(memory: Memory) -> None:
    told: list[int] = []
    memory.load((f'{{"text": "Line {number}."}}' for number in range(BATCH + 3)), progress=told.append)
    assert told == list(range(1, BATCH + 4))
