"""Retrieval: BM25 as others compute it, scopes apart, filters, scripts other than English."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retcon import Filter, Memory, Scope
from retcon.errors import InputError
from retcon.model import HashingEmbed
from retcon.passages import is_long
from retcon.retrieve import _PLAIN, K1, RETRIEVERS, B, best
from retcon.sample import notes, questions
from retcon.words import index_counts, query_terms, spoken_date, stems

pytestmark = pytest.mark.both_stores

DATA = Path(os.environ.get("RETCON_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(scope="module")
def sample() -> Any:
    with Memory(":memory:") as memory:
        memory.add([{k: v for k, v in note.items() if k != "supersedes"} for note in notes()])
        yield memory


def rival_scores(corpus: Sequence[Sequence[str]], query: Sequence[str]) -> np.ndarray[Any, Any]:
    """Scores by bm25s, which leaves the constant factor k1 + 1 out."""
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64")
    index.index([list(text) for text in corpus], show_progress=False)
    known = [word for word in dict.fromkeys(query) if word in index.vocab_dict]
    return np.asarray(index.get_scores(known)) * (K1 + 1) if known else np.zeros(len(corpus))


def highest(scores: Mapping[str, float]) -> list[float]:
    return sorted((score for score in scores.values() if score > 0), reverse=True)[:20]


def test_plain_bm25_agrees_with_an_independent_implementation(sample: Memory) -> None:
    texts = [_PLAIN.findall(note.text.lower()) for note in sample.get_all()]
    ids = [note.id for note in sample.get_all()]
    plain = copy(sample)
    plain.retriever = "bm25-plain"
    for question in questions():
        expected = dict(zip(ids, rival_scores(texts, _PLAIN.findall(question.question.lower())), strict=True))
        hits = plain.search(question.question, top_k=20)
        assert [hit.score for hit in hits] == pytest.approx(highest(expected), abs=1e-6)
        assert all(hit.score == pytest.approx(expected[hit.id], abs=1e-6) for hit in hits)


def test_bm25_agrees_with_an_independent_implementation_over_the_same_terms(sample: Memory) -> None:
    stored = sample.get_all()
    before = {note.id: note.text for note in stored}
    corpus = []
    for note in stored:
        own = f"{note.speaker} {note.text} {spoken_date(note.timestamp)}"
        context = before.get(note.follows or "", "")
        counts = index_counts(own, "" if is_long(note.text) or is_long(context) else context)
        corpus.append([term for term, count in counts.items() for _ in range(count)])
    for question in questions():
        expected = dict(zip((n.id for n in stored), rival_scores(corpus, query_terms(question.question)), strict=True))
        with sample.store.snapshot(Scope()) as snapshot:
            found = best(snapshot, dict.fromkeys(query_terms(question.question), 1.0), 20)
        assert found.scores == pytest.approx(highest(expected), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=80
    ),
    query=st.lists(st.sampled_from("abcdefghijk"), min_size=1, max_size=6),
    k=st.integers(1, 10),
)
def test_skipping_work_never_changes_the_top_k(texts: list[str], query: list[str], k: int) -> None:
    """MaxScore against every note scored; single letters give long posting lists and many ties."""
    memory = Memory(":memory:")
    memory.add(texts)
    with memory.store.snapshot(Scope()) as snapshot:
        terms = dict.fromkeys(stems(" ".join(query)), 1.0)
        found, everything = best(snapshot, terms, k), best(snapshot, terms, len(texts) + 1)
    assert found.slots == everything.slots[:k]
    assert found.scores == everything.scores[:k]
    memory.close()


def test_another_scope_changes_no_score() -> None:
    with Memory(":memory:") as memory:
        memory.add(["the cat sat here", "a dog ran", "cat and dog and bird"], user_id="a")
        before = [(hit.id, hit.score) for hit in memory.search("cat dog", user_id="a")]
        memory.add([f"cat dog bird {i} " + "cat " * i for i in range(50)], user_id="b")
        assert [(hit.id, hit.score) for hit in memory.search("cat dog", user_id="a")] == before
        assert len(memory.search("cat", user_id="b", top_k=100)) == 50


def test_a_query_sees_every_scope_that_has_the_ids_it_names() -> None:
    with Memory(":memory:") as memory:
        memory.add("cat one", id="1", user_id="a", run_id="r1")
        memory.add("cat two", id="2", user_id="a", run_id="r2")
        memory.add("cat three", id="3", user_id="b", run_id="r1")
        assert {hit.id for hit in memory.search("cat", user_id="a")} == {"1", "2"}
        assert {hit.id for hit in memory.search("cat", run_id="r1")} == {"1", "3"}
        assert {hit.id for hit in memory.search("cat")} == {"1", "2", "3"}
        assert memory.search("cat", user_id="nobody") == []


def test_several_scopes_score_like_one_scope_with_all_their_notes() -> None:
    texts = [f"{'cat ' * (i % 3)}dog {'bird ' * (i % 5)}n{i}" for i in range(60)]
    with Memory(":memory:") as apart, Memory(":memory:") as together:
        for i, text in enumerate(texts):
            apart.add(text, id=f"{i}", user_id="a", run_id=f"r{i % 7}")
            together.add(text, id=f"{i}", user_id="a")
        found = {hit.id: hit.score for hit in apart.search("cat bird", user_id="a", top_k=60)}
        assert found == {hit.id: hit.score for hit in together.search("cat bird", user_id="a", top_k=60)}


@pytest.mark.parametrize("retriever", list(RETRIEVERS))
def test_filters_hold_in_every_retriever(retriever: str) -> None:
    with Memory(":memory:", retriever=retriever) as memory:
        for day in range(1, 21):
            memory.add(
                f"cat number {day}", id=f"{day}", session=f"s{day % 2}", timestamp=f"2026-05-{day:02}T12:00",
                metadata={"kind": "even" if day % 2 == 0 else "odd", "nested": {"a": [day % 3]}},
            )  # fmt: skip

        def ids(**only: Any) -> set[int]:
            return {int(hit.id) for hit in memory.search("cat number", top_k=50, **only)}

        assert ids() == set(range(1, 21))
        assert ids(session="s1") == set(range(1, 21, 2))
        assert ids(since="2026-05-05", until="2026-05-07") == {5, 6, 7}
        assert ids(since="2026-05-05T13:00") == set(range(6, 21))
        assert ids(metadata={"kind": "even"}) == set(range(2, 21, 2))
        assert ids(metadata={"nested": {"a": [0]}}, session="s1", until="2026-05-09") == {3, 9}
        assert ids(metadata={"absent": None}) == set(range(1, 21))
        assert ids(session="no such") == set()


def test_the_turn_before_helps_to_find_a_turn() -> None:
    with Memory(":memory:") as memory:
        memory.add("What is the name of your sister?", session="s", speaker="bo")
        memory.add("Marguerite.", id="answer", session="s", speaker="ann")
        memory.add("Rain again today.", session="t")
        assert "answer" in {hit.id for hit in memory.search("sister's name")}


def test_notes_are_found_by_their_date_in_words() -> None:
    with Memory(":memory:") as memory:
        memory.add("We went sailing.", id="may", timestamp="2026-05-09")
        memory.add("We went sailing.", id="june", timestamp="2026-06-09")
        assert memory.search("Where did we go in May?")[0].id == "may"


def test_cjk_and_accented_notes_are_found() -> None:
    with Memory(":memory:") as memory:
        memory.add("我上周在北京收养了一只猫，名字叫像素。", id="zh")
        memory.add("昨日、東京で友達と寿司を食べました。", id="ja")
        memory.add("어제 서울에서 친구를 만났어요", id="ko")
        memory.add("J'ai réservé une table au café de l'Étoile.", id="fr")
        memory.add("Ich fahre nächsten März nach Köln.", id="de")
        assert memory.search("北京的猫叫什么名字？")[0].id == "zh"
        assert memory.search("東京で何を食べた")[0].id == "ja"
        assert memory.search("서울에서 누구를")[0].id == "ko"
        assert memory.search("cafe etoile")[0].id == "fr"
        assert memory.search("KÖLN")[0].id == "de"
        assert memory.search("KOLN")[0].id == "de"


def test_one_huge_note_does_not_push_the_others_out() -> None:
    with Memory(":memory:") as memory:
        memory.add("My cat Pixel weighs 4 kilos.", id="cat")
        memory.add("data:image/png;base64," + "Qk1GgAAAAAAAADYAAAAoAAAAEAA" * 400)
        assert "Pixel" in memory.recall("What is my pet called?", budget=256).text


def test_a_failing_embedder_is_not_called_a_damaged_file() -> None:
    class Failing(HashingEmbed):
        def __call__(self, texts: Sequence[str], /) -> Any:
            if texts == ["q"]:
                raise ValueError("rate limit")
            return super().__call__(texts)

    with Memory(":memory:", retriever="dense", embedder=Failing()) as memory:
        memory.add("a cat")
        with pytest.raises(ValueError, match="rate limit"):
            memory.search("q")


def test_sample_near_duplicates_are_marked_in_clusters(sample: Memory) -> None:
    marked = [hit for question in questions() for hit in sample.search(question.question) if hit.duplicate_of]
    assert marked
    for hit in marked:
        assert sample.get(hit.duplicate_of or "").speaker == hit.note.speaker


def test_recall_tops_up_with_newest_notes_and_search_does_not() -> None:
    with Memory(":memory:") as memory:
        memory.add("I adopted a hamster.", id="old")
        memory.add("It rained.", id="new")
        assert memory.search("zebra") == []
        assert [source.id for source in memory.recall("zebra", 64).sources] == ["new", "old"]


def test_unknown_retriever_is_a_clear_error() -> None:
    with pytest.raises(InputError, match="choose one of bm25, bm25-plain, dense, hybrid"):
        Memory(":memory:", retriever="bm42")


def test_filter_is_true_only_where_it_filters() -> None:
    assert not Filter()
    assert all((Filter(session="s"), Filter(since="2026-01-01"), Filter(metadata={"a": 1})))


@pytest.mark.skipif(not (DATA / "locomo10.json").is_file(), reason="LoCoMo is not here (RETCON_DATA)")
def test_default_finds_the_promised_share_of_locomo_evidence() -> None:
    from bench.retrieval import conversations, recall_by_memory

    shares = [
        share for _, turns, asked in conversations(DATA / "locomo10.json") for share in recall_by_memory(turns, asked)
    ]
    assert len(shares) > 1500
    assert np.mean(shares) >= 0.717
