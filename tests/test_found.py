"""Whether anything in memory is about the query: what decides it, and what every face does with it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from hypothesis import given
from hypothesis import strategies as st
from serving import client

from retcon import Memory
from retcon.aio import AsyncMemory
from retcon.evidence import LARGEST, NOTHING, Match, QueryWord, Rule, query_words, settle, shipped_rule, weigh
from retcon.mcp.schema import RecallArguments
from retcon.mcp.verbs import ToolVerbs
from retcon.model.fake import FakeChat

ROOT = Path(__file__).parents[1]
NOTES = (
    "I adopted a cat named Pixel.",
    "Pixel's first vet visit cost 84 euros.",
    "We moved to Lisbon in March.",
    "My sister Dana teaches chemistry.",
)
OFF_TOPIC = ("What is the capital of France?", "How do I reverse a linked list in Python?", "asdkjhaskjdh")
ABOUT = ("When did I get my cat?", "Pixel", "How much did the vet cost?", "lisbon", "84 euros?")
WHOLE = ("What did we talk about?", "What do you know about me?", "What happened last time?")


def remember(*texts: str, **options: object) -> Memory:
    memory = Memory(":memory:", stamp=False, **options)  # type: ignore[arg-type]
    for text in texts:
        memory.add(text)
    return memory


def match(query: str, held: Sequence[str], notes: int = 200) -> Match:
    """One note found, which holds these words of the query."""
    words = query_words(query)
    return Match(words, np.array([[word.text in held for word in words]], bool), notes)


# -- the rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", OFF_TOPIC)
def test_an_off_topic_query_finds_nothing(query: str) -> None:
    found = remember(*NOTES).recall(query, 64)
    assert not found.found
    assert NOTHING in found.warnings
    assert found.text  # the newest notes fill up


@pytest.mark.parametrize("query", ABOUT)
@pytest.mark.parametrize("size", [2, 4])
def test_a_query_about_a_note_is_found_in_a_tiny_memory(query: str, size: int) -> None:
    memory = remember(*NOTES[:size])
    if size == 2 and query == "lisbon":
        assert not memory.recall(query, 64).found
    else:
        found = memory.recall(query, 64)
        assert found.found
        assert NOTHING not in found.warnings


@pytest.mark.parametrize("query", WHOLE)
@pytest.mark.parametrize("fill", [True, False])
def test_a_query_for_memory_as_a_whole_is_found_and_gets_the_newest_notes(query: str, fill: bool) -> None:
    found = remember(*NOTES).recall(query, 64, fill=fill)
    assert found.found
    assert NOTES[-1] in found.text
    assert found.evidence is not None
    assert found.evidence.words == 0


def test_an_empty_memory_has_nothing_and_no_warning() -> None:
    for query in (*OFF_TOPIC, *WHOLE):
        found = Memory(":memory:").recall(query, 64)
        assert (found.found, found.text, found.warnings) == (False, "", ())


def test_a_filter_that_no_note_passes_finds_nothing() -> None:
    memory = Memory(":memory:")
    memory.add(NOTES[0], session="s1")
    assert memory.recall("cat", 64, session="s1").found
    assert not memory.recall("cat", 64, session="s2").found
    assert not memory.recall(WHOLE[0], 64, session="s2").found


def test_a_query_that_names_a_speaker_is_about_memory() -> None:
    memory = Memory(":memory:")
    memory.add(NOTES[2], speaker="Chandler Bing")
    query = "Who sent greetings and compliments, by letter, to Chandler?"
    assert memory.recall(query, 64).found
    assert not memory.recall(query.replace("Chandler", "Rupert"), 64).found


@pytest.mark.parametrize(
    ("note", "about", "off"),
    [
        ("Я взяла кошку по имени Пиксель.", "Когда я взяла кошку?", "Столица Монголии?"),
        ("我养了一只猫，名字叫皮克。", "猫的名字", "长城有多长？"),
        ("猫のピクセルを飼っています。", "ピクセルは元気？", "首都はどこですか？"),
    ],
)
def test_other_scripts_are_found_by_one_word_that_is_there(note: str, about: str, off: str) -> None:
    memory = remember(note)
    assert memory.recall(about, 64).found
    assert not memory.recall(off, 64).found


def test_numbers_count_as_words_and_the_date_of_a_note_is_one_of_its_words() -> None:
    memory = Memory(":memory:")
    memory.add(NOTES[1], timestamp="2026-05-09")
    assert memory.recall("84", 64).found
    assert memory.recall("May 2026?", 64).found
    assert not memory.recall("97", 64).found


def test_evidence_says_what_it_was_read_from() -> None:
    evidence = remember(*NOTES).recall("Which hamster did the vet see?", 64).evidence
    assert evidence is not None
    assert (evidence.notes, evidence.words, evidence.missing) == (4, 3, ("hamster", "see"))
    assert 0 < evidence.covered < 1
    assert evidence.score > 0


@given(st.text(max_size=200), st.text(max_size=80))
def test_any_query_and_note_give_evidence_in_range(query: str, note: str) -> None:
    words = query_words(query)
    held = np.array([[word.text in note.lower() for word in words]], bool).reshape(1, len(words))
    found = weigh(Match(words, held, 1))
    assert 0 <= found.covered <= 1
    assert len(found.missing) <= len(words)
    assert found.found is True or settle(Match(words, held, 1)) is not True


def test_more_words_held_never_turn_found_into_not_found() -> None:
    query = "Which Portuguese harbour town sells grilled sardines near the river"
    texts = [word.text for word in query_words(query)]
    for notes in (3, 100, 5000, 10**7):
        said = [weigh(match(query, texts[:n], notes)).found for n in range(len(texts) + 1)]
        assert said == sorted(said)
        assert said[-1]


def test_a_larger_memory_asks_for_more_words_up_to_the_size_that_was_learned_on() -> None:
    rule = shipped_rule()
    assert rule.weights[0] > 0 > rule.weights[1]
    heights = [rule.measure(match("cat", ["cat"], notes))[1] for notes in (1, 3, 100, LARGEST, 10**9)]
    assert heights == sorted(heights)
    assert heights[-1] == math.log(LARGEST)


def test_names_count_more_and_everyday_words_less() -> None:
    rule = shipped_rule()
    assert rule.count(QueryWord("time", "time")) < rule.count(QueryWord("boat", "boat"))
    assert rule.count(QueryWord("boat", "boat")) < rule.count(QueryWord("pixel", "pixel", capital=True, first=True))
    assert [word.capital for word in query_words("Boats that Pixel likes")] == [False, True, False]


# -- embeddings --------------------------------------------------------------------------------------------------------


class Meaning:
    """An embedder for which every text that speaks of pets is one direction, and any other another."""

    name, dim = "meaning", 2

    def __call__(self, texts: Sequence[str], /) -> np.ndarray:
        return np.array([[1, 0] if "cat" in t or "pet" in t else [0, 1] for t in texts], np.float32)


@pytest.mark.parametrize("retriever", ["dense", "hybrid"])
def test_an_embedder_that_was_not_measured_is_trusted(retriever: str) -> None:
    memory = remember(NOTES[0], retriever=retriever, embedder=Meaning())
    found = memory.recall("pet ownership?", 64, fill=False)
    assert found.found
    assert NOTES[0] in found.text
    assert found.evidence is not None
    assert found.evidence.similarity == 1


@pytest.mark.parametrize("retriever", ["dense", "hybrid", "bm25-plain"])
def test_where_embeddings_compare_words_alone_the_words_decide(retriever: str) -> None:
    memory = remember(*NOTES, retriever=retriever)
    assert memory.recall("How much did the vet cost?", 64).found
    assert not memory.recall("What is the capital of France?", 64).found


def test_a_measured_embedder_needs_a_close_note() -> None:
    rule = Rule(0.5, 2.0, (1.0, 0.0), -10.0, {"meaning": 0.5, "hashing": None})
    near = match("boat", [])
    for similarity, embedder, found in ((0.6, "meaning", True), (0.4, "meaning", False), (0.9, "hashing", False)):
        seen = Match(near.words, near.held, 9, similarity=similarity, embedder=embedder)
        assert weigh(seen, rule).found is found


# -- without filler ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", OFF_TOPIC)
def test_without_fill_nothing_found_is_no_text_and_no_model_call(query: str) -> None:
    chat = FakeChat()
    memory = remember(*NOTES, model=chat)
    for action in (None, "retain", "extract", "merge"):
        found = memory.recall(query, 64, fill=False, action=action)
        assert (found.found, found.text, found.tokens, found.sources) == (False, "", 0, ())
        assert NOTHING in found.warnings
    answer = memory.ask(query, 64, fill=False)
    assert answer.text is None
    assert NOTHING in answer.warnings
    assert chat.asked == []


def test_without_fill_only_notes_that_match_are_there() -> None:
    memory = remember(*NOTES)
    assert [source.text for source in memory.recall("vet", 64, fill=False, action="retain").sources] == [NOTES[1]]
    assert len(memory.recall("vet", 64, action="retain").sources) == len(NOTES)


@given(st.integers(1, 120), st.sampled_from(["retain", "extract"]))
def test_filler_never_takes_the_place_of_a_note_that_matches(budget: int, action: str) -> None:
    with remember(*NOTES, "Dana has a cat too, an old one, and it is called Olive.") as memory:
        bare = memory.recall("Dana's cat", budget, fill=False, action=action)
        filled = memory.recall("Dana's cat", budget, action=action)
    assert {source.id for source in bare.sources} <= {source.id for source in filled.sources}


def test_decide_takes_fill_like_recall() -> None:
    memory = remember(*NOTES)
    bare, filled = (memory.decide("vet", 64, fill=fill).features["notes"] for fill in (False, True))
    assert (bare, filled) == (1, len(NOTES))


# -- faces -------------------------------------------------------------------------------------------------------------


def test_async_memory_takes_fill() -> None:
    async def main() -> None:
        async with AsyncMemory(":memory:") as memory:
            await memory.add(NOTES[0])
            found = await memory.recall(OFF_TOPIC[0], 64, fill=False)
        assert (found.found, found.text) == (False, "")

    asyncio.run(main())


def test_http_says_it_and_takes_fill() -> None:
    with remember(*NOTES) as memory, client(memory) as http:
        body = {"query": OFF_TOPIC[0], "budget": 64}
        filled = http.post("/recall", json=body).json()
        bare = http.post("/recall", json=body | {"fill": False}).json()
        about = http.post("/recall", json={"query": "vet", "budget": 64, "fill": False}).json()
    assert (filled["found"], bare["found"], about["found"]) == (False, False, True)
    assert filled["text"]
    assert (bare["text"], bare["warnings"]) == ("", [NOTHING])
    assert bare["evidence"]["missing"] == ["capital", "france"]


def test_the_mcp_tool_gives_no_text_where_nothing_is_about_the_query_unless_all_notes_fit() -> None:
    with remember(*NOTES) as memory:
        tools = ToolVerbs(memory, budget=24)
        nothing = tools.recall(RecallArguments(query=OFF_TOPIC[0]))
        everything = tools.recall(RecallArguments(query=OFF_TOPIC[0], budget=64))
        about = tools.recall(RecallArguments(query="vet"))
    assert (nothing.found, nothing.text, nothing.warnings, nothing.more) == (False, "", [NOTHING], False)
    assert (everything.found, everything.text.splitlines()) == (False, list(NOTES))
    assert (about.found, about.text) == (True, NOTES[1])


def test_the_command_says_it_and_prints_no_text_without_fill(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    run("add", NOTES[0], "--db", db, "--timestamp", "2026-05-09")
    filled = run("recall", OFF_TOPIC[0], "--db", db, "--text")
    bare = run("recall", OFF_TOPIC[0], "--db", db, "--text", "--no-fill")
    assert (filled.stdout.strip(), bare.stdout.strip()) == (f"2026-05-09 {NOTES[0]}", "")
    assert NOTHING in filled.stderr
    assert NOTHING in bare.stderr
    plain = json.loads(run("recall", OFF_TOPIC[0], "--db", db, "--json").stdout)
    assert plain["found"] is False
    assert plain["evidence"]["missing"] == ["capital", "france"]


# -- the calibration ---------------------------------------------------------------------------------------------------


def test_there_are_two_hundred_distinct_off_topic_queries() -> None:
    queries = (ROOT / "bench" / "offtopic.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(queries)) == len(queries) == 200


def test_measured_shares_are_within_what_is_promised() -> None:
    rows = {row["domain"]: row for row in json.loads((ROOT / "bench/results/found.json").read_text("utf-8"))["domains"]}
    assert len(rows) == 7
    shares = [row["answerable"][1] for row in rows.values()]
    assert sum(shares) / len(shares) <= 0.02
    assert all(row["lost"] <= 0.02 for row in rows.values())
    assert all(row["off-topic"][1] >= 0.5 for row in rows.values())


def test_most_off_topic_queries_find_nothing_in_a_small_memory() -> None:
    queries = (ROOT / "bench" / "offtopic.txt").read_text(encoding="utf-8").splitlines()
    memory = remember(*NOTES)
    found = [query for query in queries if memory.recall(query, 32).found]
    assert len(found) <= 10, found
