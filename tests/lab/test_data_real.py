"""The publishers' files of LongMemEval and LoCoMo, where they are at hand: the known counts, costs and splits."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from retcon.lab.data import (
    NOT_IN_MEMORY,
    Dataset,
    answerable,
    by_cost,
    evidence_cost,
    full_fit,
    independent,
    load,
    locomo,
    paper_like,
)
from retcon.lab.data.splits import INDEPENDENT, PAPER_TEST
from retcon.note import Note
from retcon.tokens import counter

DATA = Path(os.environ.get("RETCON_DATA") or Path(__file__).parents[3] / "shared" / "data")


def needs(*files: str) -> pytest.MarkDecorator:
    """Skips a test where the benchmark's files are not at hand."""
    missing = [name for name in files if not (DATA / name).is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(files)}: set RETCON_DATA to their folder")


gold_file = needs("longmemeval_gold_evidence_500.json")
locomo_file = needs("locomo10.json")
audit_file = needs("locomo10.json", "locomo_audit_errors.json")


@lru_cache
def real(name: str, **options: bool) -> Dataset:
    return load(name, folder=DATA, **options)


# ---- LongMemEval, the real file


@gold_file
def test_longmemeval_has_500_questions_with_the_publishers_counts_of_each_type() -> None:
    questions = real("longmemeval-gold").questions
    assert Counter(question.raw_type for question in questions) == {
        "multi-session": 133,
        "temporal-reasoning": 133,
        "knowledge-update": 78,
        "single-session-user": 70,
        "single-session-assistant": 56,
        "single-session-preference": 30,
    }
    assert Counter(question.type for question in questions) == {
        "single_session": 156,
        "multi_session": 133,
        "temporal": 133,
        "knowledge_update": 78,
    }
    assert real("longmemeval-gold").skipped == {}


@gold_file
def test_longmemeval_has_896_gold_turns_and_21_questions_without_one_all_abstentions() -> None:
    questions = real("longmemeval-gold").questions
    assert Counter(note.speaker for question in questions for note in question.evidence) == {
        "user": 842,
        "assistant": 54,
    }
    assert sum(question.abstention for question in questions) == 30
    bare = [question for question in questions if not question.evidence]
    assert len(bare) == 21
    assert all(question.abstention for question in bare)


@gold_file
def test_longmemeval_costs_and_full_fit_rates_are_the_known_ones() -> None:
    questions = real("longmemeval-gold").questions
    count = counter("alphanumeric")
    assert statistics.median(count(note.text) for question in questions for note in question.evidence) == 56
    rates = full_fit(questions, (32, 64, 128, 256))
    assert [round(100 * rate, 1) for rate in rates.values()] == [4.4, 21.7, 67.2, 93.1]


@gold_file
def test_longmemeval_dates_are_iso_and_evidence_is_chronological() -> None:
    for question in real("longmemeval-gold").questions:
        stamps = [note.timestamp or "" for note in question.evidence]
        assert stamps == sorted(stamps)
        for stamp in (question.date or "", *stamps):
            assert len(stamp) == len("2023-05-30T23:40")
            assert stamp.startswith("202")


@gold_file
def test_paper_like_split_is_350_75_75_with_the_papers_test_types() -> None:
    questions = real("longmemeval-gold").questions
    for abstentions in (True, False):
        split = paper_like(questions, abstentions=abstentions)
        assert {part: len(ids) for part, ids in split.parts.items()} == {"train": 350, "dev": 75, "test": 75}
        assert Counter(question.type for question in split.take("test", questions)) == PAPER_TEST
    assert all(question.evidence for question in split.take("test", questions))


# ---- LoCoMo, the real file


@locomo_file
def test_locomo_has_the_publishers_counts_of_each_category() -> None:
    loaded = real("locomo")
    skipped = sum(map(len, loaded.skipped.values()))
    assert len(loaded.questions) + skipped == 1986
    assert {reason: len(ids) for reason, ids in loaded.skipped.items()} == {
        locomo.NO_EVIDENCE: 4,
        locomo.UNRESOLVED: 4,
    }
    full = Counter(question.raw_type for question in loaded.questions)
    assert full == {"single-hop": 840, "multi-hop": 279, "temporal": 321, "open-domain": 92, "adversarial": 446}


@locomo_file
def test_locomo_has_5882_turns_in_10_conversations_whose_questions_share_them() -> None:
    histories: dict[str, tuple[Note, ...]] = {}
    for question in real("locomo").questions:
        assert histories.setdefault(question.conversation, question.history) is question.history
    assert len(histories) == 10
    assert sum(map(len, histories.values())) == 5882
    assert len({note.id for history in histories.values() for note in history}) == 5882


@locomo_file
def test_locomo_full_fit_rates_are_the_known_ones() -> None:
    def percent(loaded: Dataset) -> list[float]:
        return [round(100 * rate, 1) for rate in full_fit(answerable(loaded.questions), (16, 32, 64, 128)).values()]

    every = real("locomo", partial=True)
    assert len(answerable(every.questions)) == 1536
    assert percent(every) == [6.2, 29.2, 74.2, 92.7]
    assert len(answerable(real("locomo").questions)) == 1532
    assert percent(real("locomo")) == [6.2, 29.3, 74.3, 92.8]


@locomo_file
def test_locomo_evidence_is_a_chronological_part_of_the_history() -> None:
    for question in real("locomo").questions:
        places = {id(note): place for place, note in enumerate(question.history)}
        found = [places[id(note)] for note in question.evidence]
        assert found == sorted(set(found))
        assert found


@locomo_file
def test_locomo_adversarial_questions_are_abstentions_with_the_trap_kept() -> None:
    for question in real("locomo").questions:
        assert question.abstention == (question.raw_type == "adversarial")
        assert (question.trap is not None) == question.abstention
        assert (question.answer == NOT_IN_MEMORY) == question.abstention
        assert (question.type is None) == question.abstention


@audit_file
def test_the_audit_corrects_answers_and_evidence_and_reports_which() -> None:
    plain = {question.id: question for question in real("locomo", partial=True).questions}
    loaded = real("locomo", corrections=True)
    fixed = {question.id: question for question in loaded.questions}
    # 99 answers are wrong by the audit; one of these questions has no evidence any more and is skipped
    assert {label: len(ids) for label, ids in loaded.corrected.items()} == {"answer": 98, "evidence": 96}
    assert {reason: len(ids) for reason, ids in loaded.skipped.items()} == {
        locomo.NO_EVIDENCE: 5,
        locomo.UNRESOLVED: 1,
    }
    assert fixed["conv-26:qa2"].answer == "Counseling or mental health"
    assert fixed["conv-26:qa1"].answer == plain["conv-26:qa1"].answer == "2022"
    assert [note.id for note in fixed["conv-26:qa1"].evidence] == ["conv-26:D1:14"]
    changed = {name for name, question in fixed.items() if name in plain and question != plain[name]}
    assert changed <= {name for ids in loaded.corrected.values() for name in ids}
    assert not any("answer is correct" in fixed[name].answer for name in loaded.corrected["evidence"])


@locomo_file
def test_the_locomo_sample_is_75_answerable_questions_spread_over_evidence_costs() -> None:
    questions = real("locomo").questions
    drawn = by_cost(questions)
    assert len(drawn) == 75
    assert not any(question.abstention for question in drawn)
    costs = sorted(evidence_cost(question) for question in answerable(questions))
    quarter = [costs[len(costs) * k // 4] for k in (1, 2, 3)]
    layers = Counter(sum(evidence_cost(question) > cut for cut in quarter) for question in drawn)
    assert set(layers) == {0, 1, 2, 3}
    assert all(17 <= n <= 21 for n in layers.values())
    assert len(by_cost(questions, 300)) == 300


@locomo_file
def test_independent_parts_of_locomo_share_no_conversation_and_are_near_their_shares() -> None:
    questions = answerable(real("locomo").questions)
    split = independent(questions)
    talks = [{question.conversation for question in split.take(part, questions)} for part in INDEPENDENT]
    assert sum(map(len, talks)) == len(set.union(*talks)) == 10
    for part, share in INDEPENDENT.items():
        assert abs(len(split.parts[part]) / len(questions) - share) < 0.05
