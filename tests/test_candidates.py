"""The candidate cap: what an action gets of the notes that were found."""

from __future__ import annotations

from retcon import Memory
from retcon.candidates import gather
from retcon.note import EXTRACT, RETAIN, Hit, Note
from retcon.passages import LONG, is_long, split
from retcon.tokens import counter

LETTERS = counter(len)


def hits(*sizes: int, score: float = 1.0) -> list[Hit]:
    """Notes that cost so many letters, best first."""
    return [Hit(Note(id=str(i), text="x" * size), score, i + 1) for i, size in enumerate(sizes)]


def story(place: int, about: str) -> str:
    """A long text, one sentence of which is about something."""
    filler = [f"On day {i} nothing of note was said by anybody at the old harbour." for i in range(30)]
    return " ".join([*filler[:place], about, *filler[place:]])


def test_the_candidate_cap_drops_in_rank_order_but_never_the_best() -> None:
    cluster = gather("q", hits(3000, 500, 1600, 400), count=LETTERS, cap=2048)
    assert [hit.id for hit in cluster.hits] == ["0", "1", "3"]  # the large one leaves half of the cap to the others
    assert gather("q", hits(3000, 3000, 3000), count=LETTERS, cap=2048).costs == (3000,)
    assert [hit.id for hit in gather("q", hits(3000, 20, score=0), count=LETTERS, cap=2048).hits] == ["1"]
    cluster = gather("q", hits(500, 1600, 1500, 40), count=LETTERS, cap=2048)
    assert [hit.id for hit in cluster.hits] == ["0", "2", "3"]
    assert cluster.costs == (500, 1500, 40)
    assert [(drop.id, drop.code) for drop in cluster.dropped] == [("1", "cap")]
    assert cluster.dropped[0].reason == "needs 1600 tokens, 1548 left under the candidate cap of 2048"


def test_twenty_long_notes_fit_under_the_cap_each_with_the_passage_that_was_asked_for() -> None:
    with Memory(":memory:") as memory:
        memory.add([{"id": str(i), "text": story(i, f"My parrot number {i} is green.")} for i in range(20)])
        cluster = memory.recall("parrot green", 256).cluster
        assert len(cluster.hits) == 20
        assert sum(cluster.costs) <= memory.cap
        for hit in cluster.hits:
            assert f"parrot number {hit.id} is green" in hit.text
            assert hit.text in hit.note.text
            assert hit.note == memory.get(hit.id)
            assert hit.span is not None
            assert hit.note.text[slice(*hit.span)].strip() == hit.text


def test_a_long_note_is_whole_where_the_cap_has_room() -> None:
    with Memory(":memory:") as memory:
        memory.add(story(7, "My parrot is green."), id="long")
        found = memory.recall("parrot", 2048, action=RETAIN)
        assert found.cluster.hits[0].span is None
        assert found.sources[0].whole
        assert story(7, "My parrot is green.") in found.text


def test_room_under_the_cap_goes_to_the_neighbours_of_the_best_passages_first() -> None:
    with Memory(":memory:", cap=500) as memory:
        memory.add([{"id": str(i), "text": story(15, f"My parrot number {i} is green.")} for i in range(3)])
        memory.add("Parrot parrot.", id="short")
        cluster = memory.recall("parrot", 256).cluster
        assert len(cluster.hits) == 4
        assert sum(cluster.costs) <= 500
        sizes = [len(hit.text) for hit in cluster.hits if hit.id != "short"]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > sizes[-1]


def test_a_part_of_a_note_is_marked_where_it_was_cut_and_its_source_names_note_and_span() -> None:
    with Memory(":memory:", cap=200) as memory:
        memory.add(story(15, "My parrot is green."), id="long")
        found = memory.recall("parrot", 200, action=RETAIN)
        (source,) = found.sources
        assert source.id == "long"
        assert not source.whole
        assert source.span is not None
        assert memory.get("long").text[slice(*source.span)].strip() == source.text
        assert found.text.endswith(f"... {source.text} ...")
        extract = memory.recall("parrot", 64, action=EXTRACT)
        assert "My parrot is green." in extract.text
        assert extract.sources[0].span == source.span


def test_a_long_note_is_found_by_its_best_passage_and_lends_no_words_to_the_next_turn() -> None:
    with Memory(":memory:") as memory:
        asked = "We keep a parrot in the green house."
        memory.add(
            [{"id": "long", "text": story(3, asked), "session": "s"}, {"id": "next", "text": "I see.", "session": "s"}]
        )
        memory.add([{"id": "short", "text": asked, "session": "t"}, {"id": "reply", "text": "I see.", "session": "t"}])
        found = [hit.id for hit in memory.search("parrot green house")]
        assert set(found) == {"long", "short", "reply"}
        (hit,) = (hit for hit in memory.search("parrot") if hit.id == "long")
        assert hit.passage is not None
        assert asked in hit.note.text[slice(*hit.passage)]
        assert hit.to_dict()["memory"] == story(3, asked)


def test_passages_cover_a_text_without_a_gap_and_end_with_a_sentence() -> None:
    text = story(9, "My parrot is green.")
    spans = split(text)
    assert "".join(text[start:stop] for start, stop in spans) == text
    assert all(text[:stop].rstrip().endswith(".") for _, stop in spans)
    assert len(spans) > 3
    assert split("") == [(0, 0)]


def test_a_text_without_a_sentence_end_is_split_by_words() -> None:
    text = "word " * (5 * LONG)
    spans = split(text)
    assert "".join(text[start:stop] for start, stop in spans) == text
    assert max(len(text[start:stop].split()) for start, stop in spans) <= LONG
    assert not is_long("word " * LONG)
    assert is_long("猫" * (2 * LONG + 2))


def test_a_budget_with_room_for_all_candidates_gets_further_ones_and_shows_all_of_them() -> None:
    with Memory(":memory:") as memory:
        memory.add([{"id": str(i), "text": f"My parrot number {i} is green.", "session": str(i)} for i in range(60)])
        shown: list[set[str]] = []
        for budget in (64, 128, 256, 512, 1024):
            for action in (RETAIN, EXTRACT, None):
                found = memory.recall("parrot", budget, action=action)
                ids = {source.id for source in found.sources}
                assert found.tokens <= budget
                assert action == RETAIN or not shown or ids >= shown[-1]
                if len(found.cluster.hits) > memory.top_k:
                    assert ids == {hit.id for hit in found.cluster.hits}
            shown.append(ids)
        assert [len(ids) for ids in shown] == sorted(len(ids) for ids in shown)
        assert len(shown[0]) < memory.top_k < len(shown[-1])


def test_no_further_candidate_enters_where_the_first_ones_do_not_all_fit() -> None:
    with Memory(":memory:") as memory:
        memory.add([f"My parrot number {i} is green, and its cage stands by the window." for i in range(60)])
        assert len(memory.recall("parrot", 256).cluster.hits) == memory.top_k
