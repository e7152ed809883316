"""The questions of the seven domains: drawn by a seed, each wave fair, every made question beside its twin."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from bench import ROOT
from bench.domains import ASKED, DOMAINS, FROM_TWINS, OPENED_ONCE, UNANSWERABLE, WAVES, draw, load, read_ids
from bench.runs import FIVE, GROUPS, RUNS
from bench.unanswerable import ANSWERABLE, MADE, MARK, PUBLISHED, REMOVED, kind_of
from retcon.lab.data.question import BenchmarkQuestion
from retcon.note import Note

DATA = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
NOTE = Note("n", "text")
# Of the texts of all made questions that the files name, in their order: labels are of these texts and no others.
TEXTS = {
    "longmemeval": "89ba954d62f686e6",
    "lifebench": "00a89473203c88b9",
    "factcon": "02a2558051d0ace2",
    "friendsqa": "4d74d98a87f880f6",
    "timeqa": "7fd996f5b0f3413b",
}


def question(name: str, conversation: str, *, abstention: bool = False) -> BenchmarkQuestion:
    evidence = () if abstention else (NOTE,)
    return BenchmarkQuestion(
        name, "d", "?", "!", None, "", conversation, evidence=evidence, history=(NOTE,), abstention=abstention
    )


def made_ids(name: str, wave: str) -> list[str]:
    return [each for each in read_ids(name, wave) if each.rpartition(MARK)[2] in MADE]


@pytest.mark.parametrize("name", DOMAINS)
def test_no_question_is_in_two_waves(name: str) -> None:
    waves = [set(read_ids(name, wave)) for wave in WAVES]
    assert all(len(some) == len(read_ids(name, wave)) for some, wave in zip(waves, WAVES, strict=True))
    assert not any(one & other for one, other in combinations(waves, 2))


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("name", DOMAINS)
def test_a_made_question_is_labelled_beside_its_twin(name: str, wave: str) -> None:
    ids, made = set(read_ids(name, wave)), made_ids(name, wave)
    assert {each.rpartition(MARK)[0] for each in made} <= ids
    assert len(made) <= FROM_TWINS
    assert not made or name not in OPENED_ONCE


@pytest.mark.parametrize("name", DOMAINS)
def test_the_files_name_questions_that_the_data_hold(name: str) -> None:
    if not (DATA / "domains").is_dir():
        pytest.skip("the benchmark files are not here: set RETCON_DATA")
    known = {each.id: each for each in load(name)}
    for wave in WAVES:
        drawn = [known[each] for each in read_ids(name, wave)]
        kinds = Counter(map(kind_of, drawn))
        assert kinds[ANSWERABLE] == ASKED
        assert kinds.total() - ASKED <= UNANSWERABLE


@pytest.mark.parametrize("name", TEXTS)
def test_the_made_questions_are_still_those_that_were_read_and_drawn(name: str) -> None:
    if not (DATA / "domains").is_dir():
        pytest.skip("the benchmark files are not here: set RETCON_DATA")
    known = {each.id: each for each in load(name)}
    drawn = (known[each] for wave in WAVES for each in read_ids(name, wave))
    texts = "\n".join(each.text for each in drawn if kind_of(each) in MADE)
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == TEXTS[name]


def test_conversations_give_questions_in_turn() -> None:
    some = [question(f"{c}{i}", c) for c in "abcdefghij" for i in range(100)]
    for wave in draw(some, "seed").values():
        assert set(Counter(each.conversation for each in wave).values()) == {ASKED // 10}


def test_a_draw_takes_made_ones_with_their_twins_then_published_ones_and_fills_up_with_removed_ones() -> None:
    asked = [question(f"q{i}", f"c{i % 7}") for i in range(1000)]
    made = [replace(each, id=f"{each.id}{MARK}person", evidence=(), abstention=True) for each in asked]
    published = [question(f"p{i}", "c", abstention=True) for i in range(10)]
    removed = [question(f"r{i}-removed", "c", abstention=True) for i in range(500)]
    for wave in draw([*asked, *made, *published, *removed], "seed").values():
        kinds = Counter(map(kind_of, wave))
        assert (kinds[ANSWERABLE], kinds["person"], kinds.total()) == (ASKED, FROM_TWINS, ASKED + UNANSWERABLE)
        assert kinds[PUBLISHED] in (2, 3)
        assert kinds[REMOVED] == UNANSWERABLE - FROM_TWINS - kinds[PUBLISHED]


def test_another_seed_draws_other_questions() -> None:
    some = [question(f"q{i}", f"c{i % 7}") for i in range(1000)]
    assert draw(some, "one") == draw(some, "one")
    assert draw(some, "one") != draw(some, "another")


def test_the_runs_go_through_all_domains_wave_by_wave() -> None:
    apart = GROUPS["rivals"]
    names = [run.name for run in RUNS if run.abstentions is None and not run.small and run.name not in apart]
    assert names == [f"{name}-{wave}" for wave in WAVES for name in DOMAINS]
    assert [name for wave in WAVES for name in GROUPS[wave]] == names
    assert all(run.budgets == FIVE for run in RUNS if run.abstentions is None)
