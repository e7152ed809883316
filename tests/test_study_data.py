"""Datasets become the same questions whatever file they come from, and are split before any outcome exists."""

from __future__ import annotations

import json
import os
import pickle
import statistics
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retcon.errors import InputError, RetconError
from retcon.features import TYPES
from retcon.note import Note
from retcon.study import (
    NAMES,
    NOT_IN_MEMORY,
    Loaded,
    Question,
    answerable,
    by_cost,
    evidence_cost,
    full_fit,
    independent,
    load,
    locomo,
    longmemeval,
    own,
    paper_like,
    sample,
)
from retcon.study.splits import INDEPENDENT, PAPER_TEST
from retcon.tokens import counter

DATA = Path(os.environ.get("RETCON_DATA") or Path(__file__).parents[2] / "shared" / "data")


def needs(*files: str) -> pytest.MarkDecorator:
    """Skips a test where the benchmark's files are not at hand."""
    missing = [name for name in files if not (DATA / name).is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(files)}: set RETCON_DATA to their folder")


gold_file = needs("longmemeval_gold_evidence_500.json")
locomo_file = needs("locomo10.json")
audit_file = needs("locomo10.json", "locomo_audit_errors.json")


@lru_cache
def real(name: str, **options: bool) -> Loaded:
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
    def percent(loaded: Loaded) -> list[float]:
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


# ---- publishers' formats, in small


def turn(role: str, content: str, **more: bool) -> dict[str, Any]:
    return {"role": role, "content": content} | more


def published() -> list[dict[str, Any]]:
    """Two questions as in the publisher's files: sessions unsorted, a filler twice, a turn empty, a flag False."""
    cat = [turn("user", "I adopted a cat.", has_answer=True), turn("assistant", "Lovely!", has_answer=False)]
    name = [turn("user", "Hm."), turn("assistant", " "), turn("user", "The cat is Pixel.", has_answer=True)]
    filler = [turn("user", "What is 2 + 2?"), turn("assistant", "4")]
    return [
        {
            "question_id": "q1",
            "question_type": "multi-session",
            "question": "How many cats did I adopt?",
            "answer": 1,
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_session_ids": ["filler", "answer_q1_2", "answer_q1_1", "filler"],
            "haystack_dates": [
                "2023/05/22 (Mon) 10:00",
                "2023/05/25 (Thu) 09:05",
                "2023/05/20 (Sat) 02:21",
                "2023/05/23 (Tue) 10:00",
            ],
            "haystack_sessions": [filler, name, cat, filler],
            "answer_session_ids": ["answer_q1_1", "answer_q1_2"],
        },
        {
            "question_id": "q2_abs",
            "question_type": "single-session-preference",
            "question": "What is my dog called?",
            "answer": "You did not mention a dog.",
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_session_ids": ["answer_q2_abs_1"],
            "haystack_dates": ["2023/05/20 (Sat) 02:21"],
            "haystack_sessions": [[turn("user", "I like cats."), turn("assistant", "Me too.")]],
            "answer_session_ids": ["answer_q2_abs_1"],
        },
    ]


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("longmemeval-oracle", "longmemeval_oracle.json"),
        ("longmemeval-s", "longmemeval_s_cleaned.json"),
        ("longmemeval-s", "longmemeval_s.json"),
        ("longmemeval-s", "longmemeval_s"),
        ("longmemeval-m", "longmemeval_m_cleaned.json"),
    ],
)
def test_publishers_longmemeval_files_are_read_under_their_own_names(tmp_path: Path, name: str, file: str) -> None:
    write(tmp_path / file, published())
    assert [question.id for question in load(name, folder=tmp_path).questions] == ["q1", "q2_abs"]


def test_publishers_longmemeval_question_is_read_field_by_field(tmp_path: Path) -> None:
    one, two = longmemeval.load(write(tmp_path / "s.json", published())).questions
    assert (one.text, one.answer, one.type, one.raw_type) == (
        "How many cats did I adopt?", "1", "multi_session", "multi-session",
    )  # fmt: skip
    assert (one.dataset, one.conversation, one.date, one.abstention) == ("longmemeval", "q1", "2023-05-30T23:40", False)
    assert [note.id for note in one.history] == [
        "answer_q1_1:0", "answer_q1_1:1", "filler:0", "filler:1", "filler~2:0", "filler~2:1",
        "answer_q1_2:0", "answer_q1_2:2",
    ]  # fmt: skip
    assert one.evidence == (one.history[0], one.history[-1])
    assert one.evidence[1] == Note("answer_q1_2:2", "The cat is Pixel.", "user", "answer_q1_2", "2023-05-25T09:05")
    assert (two.type, two.abstention, two.evidence) == ("single_session", True, ())


def test_whole_sessions_stand_in_for_answer_sessions_without_a_flagged_turn(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", published())
    one, two = longmemeval.load(path, whole_sessions=True).questions
    assert one.evidence == longmemeval.load(path).questions[0].evidence
    assert [note.text for note in two.evidence] == ["I like cats.", "Me too."]


def test_histories_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", published())
    bare = longmemeval.load(path, histories=False).questions
    assert [question.history for question in bare] == [(), ()]
    assert [q.evidence for q in bare] == [q.evidence for q in longmemeval.load(path).questions]


def test_gold_form_and_publishers_form_give_the_same_evidence(tmp_path: Path) -> None:
    rows = published()
    full = longmemeval.load(write(tmp_path / "s.json", rows)).questions
    for row, question in zip(rows, full, strict=True):
        dates = dict(zip(row["haystack_session_ids"], row["haystack_dates"], strict=True))
        row["evidence_turn_ids"] = [note.id for note in question.evidence]
        row["evidence"] = [
            {"session_date": dates[note.session], "role": note.speaker, "content": note.text}
            for note in question.evidence
        ]
        del row["haystack_sessions"]
    path = write(tmp_path / "longmemeval_gold_evidence_500.json", rows)
    gold = load("longmemeval-gold", folder=tmp_path).questions
    assert [question.evidence for question in gold] == [question.evidence for question in full]
    with pytest.raises(InputError, match="no whole sessions"):
        longmemeval.load(path, whole_sessions=True)


@pytest.mark.parametrize("key", ["question_id", "question_type", "question", "answer", "haystack_sessions"])
def test_a_missing_key_is_named_in_one_line_with_the_place(tmp_path: Path, key: str) -> None:
    rows = published()
    del rows[1][key]
    path = write(tmp_path / "s.json", rows)
    with pytest.raises(InputError) as caught:
        longmemeval.load(path)
    assert str(caught.value) == f"{path}, element 2: {key!r} is missing"


@pytest.mark.parametrize("key", ["question_date", "haystack_session_ids", "haystack_dates", "answer_session_ids"])
def test_what_a_question_can_do_without_may_be_missing(tmp_path: Path, key: str) -> None:
    rows = published()
    for row in rows:
        del row[key]
    one, _ = longmemeval.load(write(tmp_path / "s.json", rows)).questions
    assert {note.text for note in one.evidence} == {"I adopted a cat.", "The cat is Pixel."}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2023/05/30 (Tue) 23:40", "2023-05-30T23:40"),
        ("2023/05/30 23:40", "2023-05-30T23:40"),
        ("2023-05-30T00:00:00+00:00", "2023-05-30T00:00"),
    ],
)
def test_longmemeval_dates_become_iso(written: str, meant: str) -> None:
    assert longmemeval.timestamp(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56"),
        ("12:09 am on 13 September, 2023", "2023-09-13T00:09"),
        ("12:30 pm on 1 January, 2024", "2024-01-01T12:30"),
    ],
)
def test_locomo_dates_become_iso(written: str, meant: str) -> None:
    assert locomo.timestamp(written) == meant


@pytest.mark.parametrize(
    "written", ["", "13:00 pm on 8 May, 2023", "1:56 pm on 31 June, 2023", "0:10 am on 8 Mai, 2023"]
)
def test_what_is_no_date_is_an_input_error(written: str) -> None:
    for read in (locomo.timestamp, longmemeval.timestamp):
        with pytest.raises(InputError, match="is no date such as"):
            read(written)


def talk() -> list[dict[str, Any]]:
    """One conversation as in the publisher's file, with every kind of evidence field that it has."""
    first = [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a photo of a cat"},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice. I saw a fox."},
    ]
    second = [
        {"speaker": "Ann", "dia_id": "D2:1", "text": "I moved to Rome."},
        {"speaker": "Bob", "dia_id": "D2:2", "text": "Wow."},
    ]
    asked: list[tuple[str, Any, list[str], int]] = [
        ("Where does Ann live?", "Rome", ["D2:1"], 4),
        ("Which animals were there?", "cat, fox", ["D1:2; D1:1"], 1),
        ("What year was it?", 2023, ["D1:02", "D1:1 D1:2"], 2),
        ("Does Ann like pets?", "Likely yes; she showed a cat", ["D1:1", "D1:1"], 3),
        ("Why?", "who knows", [], 3),
        ("What for?", "who knows", ["D1:1", "D"], 4),
        ("When?", "who knows", ["D9:9"], 2),
    ]
    qa = [{"question": q, "answer": a, "evidence": e, "category": c} for q, a, e, c in asked]
    qa.append({"question": "Where does Bob live?", "adversarial_answer": "Rome", "evidence": ["D2:1"], "category": 5})
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_10_date_time": "9:00 am on 9 May, 2023",
        "session_10": second,
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": first,
        "session_11_date_time": "9:00 am on 10 May, 2023",
    }
    return [{"sample_id": "conv-1", "conversation": conversation, "qa": qa, "session_summary": {}}]


def test_publishers_locomo_question_is_read_field_by_field(tmp_path: Path) -> None:
    write(tmp_path / "locomo10.json", talk())
    loaded = load("locomo", folder=tmp_path)
    assert loaded.skipped == {
        locomo.NO_EVIDENCE: ("conv-1:qa4",),
        locomo.UNRESOLVED: ("conv-1:qa5", "conv-1:qa6"),
    }
    lives, animals, year, pets, trap = loaded.questions
    assert lives.history == (
        Note("conv-1:D1:1", "Look! [a photo of a cat]", "Ann", "session_2", "2023-05-08T13:56"),
        Note("conv-1:D1:2", "Nice. I saw a fox.", "Bob", "session_2", "2023-05-08T13:56"),
        Note("conv-1:D2:1", "I moved to Rome.", "Ann", "session_10", "2023-05-09T09:00"),
        Note("conv-1:D2:2", "Wow.", "Bob", "session_10", "2023-05-09T09:00"),
    )
    assert lives.evidence == lives.history[2:3]
    assert animals.evidence == year.evidence == lives.history[:2]
    assert pets.evidence == lives.history[:1]
    assert year.answer == "2023"
    assert [question.type for question in loaded.questions] == [
        "single_session", "multi_session", "temporal", "multi_session", None,
    ]  # fmt: skip
    assert (trap.answer, trap.trap, trap.abstention) == (NOT_IN_MEMORY, "Rome", True)


def test_partial_evidence_counts_only_where_asked_for(tmp_path: Path) -> None:
    loaded = locomo.load(write(tmp_path / "locomo10.json", talk()), partial=True)
    assert loaded.skipped == {locomo.NO_EVIDENCE: ("conv-1:qa4",), locomo.UNRESOLVED: ("conv-1:qa6",)}
    assert {q.id: [note.id for note in q.evidence] for q in loaded.questions}["conv-1:qa5"] == ["conv-1:D1:1"]


def audit(**changes: Any) -> list[dict[str, Any]]:
    row = {
        "question_id": "locomo_0_qa0",
        "question": "Where does Ann live?",
        "error_type": "HALLUCINATION",
        "correct_evidence": ["D2:1", "D2:2"],
        "correct_answer": "In Rome",
    }
    return [row | changes]


def test_a_wrong_citation_keeps_its_answer_and_other_errors_do_not(tmp_path: Path) -> None:
    path = write(tmp_path / "locomo10.json", talk())
    fixed = locomo.load(path, corrections=write(tmp_path / "errors.json", audit()))
    assert fixed.corrected == {"answer": ("conv-1:qa0",), "evidence": ("conv-1:qa0",)}
    assert fixed.questions[0].answer == "In Rome"
    cited = locomo.load(path, corrections=write(tmp_path / "errors.json", audit(error_type="WRONG_CITATION")))
    assert cited.corrected == {"evidence": ("conv-1:qa0",)}
    assert cited.questions[0].answer == "Rome"
    assert [note.id for note in cited.questions[0].evidence] == ["conv-1:D2:1", "conv-1:D2:2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"question": "Where does Bob live?"}, "the audit has another question here"),
        ({"question_id": "locomo_7_qa0"}, "no question locomo_7_qa0 in"),
        ({"question_id": "q1"}, "is not of the form locomo_0_qa1"),
        ({"correct_answer": None}, "'correct_answer' is missing"),
    ],
)
def test_an_audit_of_other_questions_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "locomo10.json", talk())
    with pytest.raises(InputError, match=said):
        locomo.load(path, corrections=write(tmp_path / "errors.json", audit(**changes)))


# ---- a user's own file


def own_file(folder: Path, *rows: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


HISTORY = (
    {"id": "t2", "role": "assistant", "content": "Noted.", "timestamp": "2026-05-09T10:01"},
    {"id": "t1", "text": "I adopted\u2028a cat.", "speaker": "ann", "session": "s1", "timestamp": "2026-05-09T10:00"},
)


def test_own_questions_need_no_more_than_id_question_and_answer(tmp_path: Path) -> None:
    (question,) = load(own_file(tmp_path, {"id": "a", "question": "Why?", "answer": 42})).questions
    assert question == Question("a", "mine", "Why?", "42", None, "", "a")


def test_own_evidence_is_ids_of_the_history_or_notes(tmp_path: Path) -> None:
    base = {"question": "What?", "answer": "a cat"}
    rows = (
        base
        | {"id": "a", "type": "single-session", "history": list(HISTORY), "evidence": ["t1"], "date": "2026-05-10"},
        base | {"id": "b", "type": "temporal", "evidence": [{"text": "I adopted a cat."}, {"content": "It is Pixel."}]},
    )
    one, two = load(own_file(tmp_path, *rows)).questions
    assert [note.id for note in one.history] == ["t1", "t2"]
    assert one.evidence == one.history[:1]
    assert (one.type, one.raw_type, one.date) == ("single_session", "single-session", "2026-05-10")
    assert [(note.id, note.text) for note in two.evidence] == [("e1", "I adopted a cat."), ("e2", "It is Pixel.")]


def test_own_history_files_are_found_beside_the_questions_and_shared(tmp_path: Path) -> None:
    (tmp_path / "talks").mkdir()
    lines = "\n".join(json.dumps(note, ensure_ascii=False) for note in HISTORY)
    (tmp_path / "talks" / "ann.jsonl").write_text(lines, encoding="utf-8")
    base = {"question": "What?", "history_file": "talks/ann.jsonl"}
    rows = (base | {"id": "a", "answer": "a cat", "evidence": ["t1"]}, base | {"id": "b", "abstention": True})
    one, two = load(own_file(tmp_path, *rows)).questions
    assert one.history is two.history
    assert one.conversation == two.conversation == "talks/ann.jsonl"
    assert (two.answer, two.abstention) == (NOT_IN_MEMORY, True)


def test_notes_that_retcon_exports_are_a_history_file(tmp_path: Path) -> None:
    from retcon import Memory

    with Memory(":memory:") as memory:
        memory.add("I adopted a cat.", user_id="ann", session="s1", timestamp="2026-05-09T10:00")
        memory.add("It is called Pixel.", user_id="ann", session="s1", timestamp="2026-05-09T10:01")
        memory.export(tmp_path / "notes.jsonl")
    assert [note.text for note in own.notes_of(tmp_path / "notes.jsonl")] == ["I adopted a cat.", "It is called Pixel."]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a", "question": "Why?"}, "'answer' is missing"),
        ({"id": "a", "question": " ", "answer": "x"}, "'question' is empty"),
        ({"id": 1, "question": "Why?", "answer": "x"}, "'id' must be text, not a number"),
        ({"id": "a", "question": "Why?", "answer": True}, "'answer' must be text, not true or false"),
        ({"id": "a", "question": "Why?", "answer": "x", "histroy": []}, "there is no field 'histroy'"),
        ({"id": "a", "question": "Why?", "answer": "x", "type": "hard"}, "type 'hard' is unknown"),
        ({"id": "a", "question": "Why?", "answer": "x", "date": "soon"}, "timestamp 'soon' is not ISO 8601"),
        (
            {"id": "a", "question": "Why?", "answer": "x", "evidence": ["t9"]},
            "holds 't9', which is no id in the history",
        ),
        (
            {"id": "a", "question": "Why?", "answer": "x", "history": [{"text": ""}]},
            "'history', note 1: a note needs some",
        ),
        ({"id": "a", "question": "Why?", "answer": "x", "history": {}}, "'history' must be a list, not an object"),
        ({"id": "a", "question": "Why?", "answer": "x", "history_file": "no.jsonl"}, "No such file or directory"),
        ({"id": "a", "question": "Why?", "answer": "x", "abstention": "yes"}, "'abstention' must be true or false"),
        (["id"], "a JSON object is needed here, not a list"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, row: object, said: str) -> None:
    path = own_file(tmp_path, {"id": "ok", "question": "Why?", "answer": "x"}, row)
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2: ")
    assert said in message
    assert "\n" not in message


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Why?", "answer": "x"}
    with pytest.raises(InputError, match="two questions have the id 'a'"):
        load(own_file(tmp_path, row, row))


# ---- the shipped sample, and names


def test_the_sample_has_80_questions_over_one_shared_history() -> None:
    questions = load("sample").questions
    assert Counter(question.type for question in questions) == {
        "single_session": 18,
        "multi_session": 18,
        "temporal": 18,
        "knowledge_update": 20,
        None: 6,
    }
    assert all(question.history is questions[0].history for question in questions)
    assert len(questions[0].history) == 478
    assert all(note in question.history for question in questions for note in question.evidence)
    assert [q.id for q in questions if q.abstention] == [q.id for q in questions if not q.evidence]


def test_sample_full_fit_rates_are_those_of_total_costs() -> None:
    questions = load("sample").questions
    count = counter("alphanumeric")
    for budget, rate in full_fit(questions, (0, 32, 64, 128, 256, 10_000)).items():
        with_evidence = [question for question in questions if question.evidence]
        fitting = [q for q in with_evidence if sum(count(note.text) for note in q.evidence) <= budget]
        assert rate == len(fitting) / len(with_evidence)


def test_full_fit_of_no_evidence_is_an_error() -> None:
    with pytest.raises(InputError, match="no question with known evidence"):
        full_fit([], (32,))


def test_questions_are_of_known_types_hold_their_evidence_and_can_be_sent_to_another_process(tmp_path: Path) -> None:
    write(tmp_path / "longmemeval_oracle.json", published())
    write(tmp_path / "locomo10.json", talk())
    for name in ("sample", "longmemeval-oracle", "locomo"):
        loaded = load(name, folder=tmp_path)
        assert pickle.loads(pickle.dumps(loaded)) == loaded
        for question in loaded.questions:
            assert question.type is None or question.type in TYPES
            assert set(map(id, question.evidence)) <= set(map(id, question.history))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sample"])
def test_a_missing_file_says_in_one_line_where_to_get_it_and_where_to_put_it(tmp_path: Path, name: str) -> None:
    publisher = "github.com/snap-research/locomo" if name == "locomo" else "xiaowu0162/longmemeval-cleaned"
    with pytest.raises(InputError) as caught:
        load(name, folder=tmp_path)
    message = str(caught.value)
    assert message.startswith("no lo")
    assert f" in {tmp_path}: " in message
    assert publisher in message
    with pytest.raises(InputError, match="RETCON_DATA"):
        load(name)
    assert "\n" not in message


def test_a_missing_audit_says_where_to_get_it(tmp_path: Path) -> None:
    write(tmp_path / "locomo10.json", talk())
    with pytest.raises(InputError, match="locomo-audit"):
        load("locomo", folder=tmp_path, corrections=True)


def test_unknown_names_and_corrections_of_other_data_are_refused() -> None:
    with pytest.raises(InputError, match="no dataset is called 'locomo9'"):
        load("locomo9")
    with pytest.raises(InputError, match="label corrections exist for locomo"):
        load("sample", corrections=True)


# ---- files that are not what they should be

LOADERS: dict[str, tuple[Callable[[Path], Loaded], Callable[[], Any]]] = {
    "longmemeval": (lambda path: longmemeval.load(path, whole_sessions=True), published),
    "locomo": (locomo.load, talk),
    "audit": (lambda path: locomo.load(write(path.with_name("locomo10.json"), talk()), corrections=path), audit),
    "own": (
        own.load,
        lambda: {"id": "a", "question": "Q", "answer": "x", "history": list(HISTORY), "evidence": ["t1"]},
    ),
}
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["\ud800", "D1:1", "\0", "2023/05/30 (Tue) 23:40", "9" * 30])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*at, key))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """The value with what stands at the place replaced, or removed where `new` is the Ellipsis."""
    if not at:
        return None if new is ... else new
    value = deepcopy(value)
    inner = value
    for key in at[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return value


def survives(name: str, path: Path) -> None:
    """Loads, or says in one line why not."""
    said = ""
    try:
        assert LOADERS[name][0](path).questions is not None
    except RetconError as error:
        said = str(error)
    assert "\n" not in said
    assert not said or str(path.parent) in said


@pytest.mark.parametrize("name", LOADERS)
@given(data=st.data())
def test_loaders_raise_nothing_but_one_line_on_mutated_json(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = LOADERS[name][1]()
    for _ in range(data.draw(st.integers(1, 3))):
        whole = put(
            whole, data.draw(st.sampled_from(sorted(places(whole), key=repr))), data.draw(values | st.just(...))
        )
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    survives(name, write(path, whole))


@pytest.mark.parametrize("name", LOADERS)
@given(data=st.data())
def test_loaders_raise_nothing_but_one_line_on_broken_bytes(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = json.dumps(LOADERS[name][1]()).encode()
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    path.write_bytes(whole[:cut] + data.draw(st.binary(max_size=3)) + data.draw(st.sampled_from([b"", whole[cut:]])))
    survives(name, path)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "not a JSON array"),
        (b"{}", "not a JSON array"),
        (b"[]", "holds no question"),
        (b"[", "cut off"),
        (b'[{"question_id": "a"', "cut off"),
        (b"[1]", "a JSON object is needed here, not a number"),
        (b"[NaN]", "NaN is no JSON"),
        (b"[] []", "text stands after the end"),
        (b"\xff\xfe[]", "is not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "not readable"),
        (b'[{"question_id": "a"} {}]', "'question_type' is missing"),
    ],
)
def test_a_file_of_another_kind_is_one_input_error(tmp_path: Path, written: bytes, said: str) -> None:
    path = tmp_path / "longmemeval_oracle.json"
    path.write_bytes(written)
    with pytest.raises(InputError) as caught:
        load("longmemeval-oracle", folder=tmp_path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_or_a_strange_path_is_one_input_error(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for path in (tmp_path / "folder.jsonl", tmp_path / "none.jsonl", Path("nul\0.jsonl")):
        with pytest.raises(InputError, match="cannot read"):
            load(path)
    with pytest.raises(InputError, match=r"no locomo10\.json in"):
        load("locomo", folder="nul\0")


def test_a_file_is_read_one_question_at_a_time(tmp_path: Path) -> None:
    (row, _), filler = published(), "word " * 40_000
    row["haystack_sessions"][0] = [turn("user", filler)]
    path = write(tmp_path / "s.json", [row | {"question_id": f"q{number}"} for number in range(50)])
    assert path.stat().st_size > 10_000_000
    tracemalloc.start()
    try:
        assert len(longmemeval.load(path, histories=False).questions) == 50
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


# ---- splits


def invented(number: int, kind: str | None, conversation: str, words: int = 3) -> Question:
    evidence = (Note(f"n{number}", "word " * words),)
    return Question(f"q{number:03}", "invented", "Why?", "so", kind, kind or "", conversation, evidence=evidence)


@st.composite
def asked(draw: st.DrawFn, least: int = 1, talks: int = 8) -> list[Question]:
    shape = st.tuples(st.sampled_from([*TYPES, None]), st.integers(0, talks), st.integers(1, 60))
    drawn = draw(st.lists(shape, min_size=least, max_size=60))
    return [invented(number, kind, f"c{talk}", words) for number, (kind, talk, words) in enumerate(drawn)]


@given(questions=asked(), seed=st.integers(), data=st.data())
def test_samples_have_the_size_asked_for_and_ignore_the_order_of_the_questions(
    questions: list[Question], seed: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(questions)))
    shuffled = data.draw(st.permutations(questions))
    for draw in (sample, by_cost):
        drawn = draw(questions, n, seed=seed)
        assert len(drawn) == len({question.id for question in drawn}) == n
        assert draw(shuffled, n, seed=seed) == drawn
    fewer, more = sample(questions, n // 2, seed=seed), sample(questions, n, seed=seed)
    assert {question.id for question in fewer} <= {question.id for question in more}
    for draw in (sample, by_cost):
        with pytest.raises(InputError, match=f"{len(questions) + 1} questions cannot be drawn from {len(questions)}"):
            draw(questions, len(questions) + 1, seed=seed)


def test_by_cost_draws_from_four_strata_in_proportion() -> None:
    questions = [invented(number, "temporal", "c", words=number + 1) for number in range(400)]
    drawn = by_cost(questions, 75, seed=3)
    layers = Counter((evidence_cost(question) - 1) // 100 for question in drawn)
    assert sorted(layers.values()) == [18, 19, 19, 19]
    assert drawn != by_cost(questions, 75, seed=4)


def test_by_cost_leaves_abstentions_out() -> None:
    assert not any(question.abstention for question in by_cost(load("sample").questions, 74))


@given(questions=asked(least=9, talks=40), seed=st.integers(), data=st.data())
def test_independent_parts_are_disjoint_complete_and_share_no_conversation(
    questions: list[Question], seed: int, data: st.DataObject
) -> None:
    talks = {question.id: question.conversation for question in questions}
    assume(len(set(talks.values())) >= len(INDEPENDENT))
    split = independent(questions, seed=seed)
    ids = [name for part in split.parts.values() for name in part]
    assert sorted(ids) == sorted(talks)
    homes = [{talks[name] for name in part} for part in split.parts.values()]
    assert sum(map(len, homes)) == len(set.union(*homes))
    assert independent(data.draw(st.permutations(questions)), seed=seed) == split


def test_independent_parts_have_every_type_in_the_stated_shares() -> None:
    questions = [invented(number, TYPES[number % 4], f"c{number}") for number in range(400)]
    split = independent(questions, seed=1)
    for part, share in INDEPENDENT.items():
        counts = Counter(question.type for question in split.take(part, questions))
        assert all(abs(counts[kind] - 100 * share) <= 1 for kind in TYPES)
    assert independent(questions, seed=2) != split


def test_a_question_and_its_unanswerable_twin_stay_together() -> None:
    names = [f"c{number}{end}" for number in range(60) for end in ("", "_abs")]
    questions = [invented(number, "temporal", name) for number, name in enumerate(names)]
    split = independent(questions, seed=5)
    part = {name: part for part, ids in split.parts.items() for name in ids}
    for first, second in zip(questions[::2], questions[1::2], strict=True):
        assert part[first.id] == part[second.id]


def pool(*, extra: int = 400) -> list[Question]:
    kinds = [kind for kind, needed in PAPER_TEST.items() for _ in range(needed)]
    kinds += [TYPES[number % 4] for number in range(extra)]
    return [invented(number, kind, f"c{number}") for number, kind in enumerate(kinds)]


@given(seed=st.integers(), data=st.data())
def test_paper_like_parts_are_disjoint_and_the_tests_types_exact(seed: int, data: st.DataObject) -> None:
    questions = pool()
    split = paper_like(questions, seed=seed)
    assert {part: len(ids) for part, ids in split.parts.items()} == {"train": 325, "dev": 75, "test": 75}
    assert sorted(name for ids in split.parts.values() for name in ids) == [question.id for question in questions]
    assert Counter(question.type for question in split.take("test", questions)) == PAPER_TEST
    turned = questions[data.draw(st.integers(0, 474)) :] + questions[::-1]
    assert paper_like(list({question.id: question for question in turned}.values()), seed=seed) == split


def test_seeds_give_different_paper_like_splits() -> None:
    assert paper_like(pool(), seed=1).parts != paper_like(pool(), seed=2).parts


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: paper_like(pool(extra=0)[1:]), "the test needs 9 questions of type single_session, there are 8"),
        (lambda: paper_like(pool(extra=3)), "a sample of 75 questions cannot be drawn from 3"),
        (lambda: paper_like(pool() + pool()), "two questions have one id"),
        (lambda: independent(pool()[:2]), "3 parts need as many conversations, there are 2"),
        (lambda: independent(pool(), shares={"fit": 1, "gate": 0}), "a share above 0"),
        (lambda: paper_like(pool()).take("gate", pool()), "has no part 'gate'"),
    ],
)
def test_a_split_that_cannot_be_drawn_says_why(draw: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw()


def test_draws_are_the_same_on_every_machine() -> None:
    questions = load("sample").questions
    assert [question.id for question in sample(questions, 5, seed=7)] == ["q38", "q50", "q59", "q61", "q62"]


def test_the_example_in_the_docs_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text(encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text(page.split("```jsonl\n")[1].split("```")[0], encoding="utf-8")
    one, two, three = load(tmp_path / "mine.jsonl").questions
    assert one.evidence == one.history[1:]
    assert [note.text for note in two.evidence] == ["I moved house last week."]
    assert (three.abstention, three.answer) == (True, NOT_IN_MEMORY)
