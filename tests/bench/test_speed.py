"""The speed benchmark runs from end to end at a tiny size and writes what it measured. Nothing here is timed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.speed.corpus import FUNCTION, corpus, indexed_texts
from bench.speed.earlier import NAMES, AbsentError, check_out, summarize
from bench.speed.page import Goal
from retcon.words import index_counts, spoken_date

RIVALS = ("tantivy", "bm25s", "rank_bm25")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in RIVALS:
        pytest.importorskip(name)
    from bench.speed.__main__ import main

    out = tmp_path_factory.mktemp("speed")
    main(["--sizes", "200", "--queries", "3", "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def results(run: Path) -> Any:
    return json.loads((run / "speed.json").read_text(encoding="utf-8"))


def test_every_size_has_every_measurement(results: Any) -> None:
    assert list(results["at"]) == ["200"]
    for found in results["at"].values():
        assert found["store"]["notes_per_s"] > 0
        assert found["store"]["file_mb"] > 0
        assert found["recall"]["ratio"]["of_cpu_p50"] > 0
        assert found["small"]["ratio"]["recall"]["of_cpu_p50"] > 0
        assert found["single"]["Memory.add"]["p50_ms"] > 0
        assert set(found["retrieval"]["ratio"]) >= {*RIVALS, "fts5"}
        assert all(asked["calls"] == 3 for asked in found["retrieval"]["retrieval"].values())


def test_top_twenty_agree_with_bm25_over_every_note(results: Any) -> None:
    assert all(found["retrieval"]["agreement"]["least"] == 1.0 for found in results["at"].values())


def test_page_states_each_goal_with_its_verdict(run: Path) -> None:
    page = (run / "speed.md").read_text(encoding="utf-8")
    goals = page.split("## Goals")[1].split("##")[0].strip().splitlines()[2:]
    assert len(goals) == 7 + 2 * len(json.loads((run / "speed.json").read_text("utf-8"))["earlier"].get("on", ()))
    assert all(line.endswith(("| met |", "% |")) for line in goals)


def test_this_version_and_an_earlier_one_take_turns_or_the_reason_is_told(results: Any, run: Path) -> None:
    found, page = results["earlier"], (run / "speed.md").read_text(encoding="utf-8")
    if "absent" in found:
        assert found["absent"] in page
    else:
        assert all(
            at[verb][name] > 0 for at in found["on"].values() for verb in ("add", "search", "recall") for name in NAMES
        )
        assert found["on"]["200"]["notes"] == 200
        assert f"commit {found['commit']}" in page


def test_without_a_history_nothing_is_compared_and_the_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="no commit 9b954fe in the history here"), check_out(tmp_path):
        raise AssertionError("there is nothing to check out")


def test_of_two_versions_the_quickest_add_and_the_median_query_count() -> None:
    seconds = {"earlier": [2.0, 4.0, 3.0], "now": [1.0, 9.0, 2.0]}
    found = summarize(10, dict.fromkeys(("add", "search", "recall"), seconds))
    assert found["add"] == {"earlier": 5.0, "now": 10.0, "ratio": 2.0}
    assert found["recall"] == {"earlier": 3000.0, "now": 2000.0, "ratio": 2 / 3}


def test_temporary_files_are_removed(tmp_path: Path, run: Path) -> None:
    assert sorted(path.name for path in run.iterdir()) == ["speed.json", "speed.md"]


@pytest.mark.parametrize("wrong", [["--sizes", "many"], ["--sizes", "10"], ["--queries", "0"]])
def test_bad_use_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from bench.speed.__main__ import main

    with pytest.raises(SystemExit) as stopped:
        main(wrong)
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_seed_always_makes_the_same_notes_and_a_smaller_corpus_begins_a_larger_one() -> None:
    few, many = list(corpus(7).notes(300)), list(corpus(7).notes(1_500))
    assert few == many[:300]
    assert few != list(corpus(8).notes(300))


def test_notes_and_queries_have_the_stated_statistics() -> None:
    made = corpus(0)
    texts = [note.text for note in made.notes(2_000)]
    lengths = sorted(len(text.split()) for text in texts)
    assert 18 <= lengths[1_000] <= 22
    tally = Counter(word for text in texts for word in text.split())
    assert 0.35 < sum(tally[word] for word in FUNCTION) / tally.total() < 0.5
    asked = [query.split() for query in made.queries(texts, 200)]
    assert 11 < sum(map(len, asked)) / len(asked) < 13
    common = sum(word in FUNCTION for words in asked for word in words)
    assert 0.45 < common / sum(map(len, asked)) < 0.55


def test_rivals_read_the_words_that_our_index_reads() -> None:
    notes = list(corpus(0).notes(50))
    for number, text in enumerate(indexed_texts(notes)):
        note, before = notes[number], notes[number - 1].text if number % 20 else ""
        ours = index_counts(f"{note.speaker} {note.text} {spoken_date(note.timestamp)}", before)
        assert set(index_counts(text, "")) == set(ours)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("a", 2, 1.9), "met"),
        (Goal("a", 2, 3), "missed by 50%"),
        (Goal("a", 0.99, 0.99, at_least=True), "met"),
        (Goal("a", 10, 9, at_least=True), "missed by 10%"),
    ],
)
def test_a_goal_says_by_how_much_it_was_missed(goal: Goal, verdict: str) -> None:
    assert goal.row()[-1] == verdict
