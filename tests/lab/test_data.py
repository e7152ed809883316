"""Datasets become the same questions whatever file they come from."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.errors import InputError, RetconError
from retcon.features import TYPES
from retcon.lab.data import (
    NAMES,
    NOT_IN_MEMORY,
    BenchmarkQuestion,
    Dataset,
    full_fit,
    load,
    locomo,
    longmemeval,
    own_questions,
)
from retcon.note import Note
from retcon.tokens import counter

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
    assert question == BenchmarkQuestion("a", "mine", "Why?", "42", None, "", "a")


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
    notes = own_questions.read_notes(tmp_path / "notes.jsonl")
    assert [note.text for note in notes] == [
        "I adopted a cat.",
        "It is called Pixel.",
    ]


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


def test_more_of_the_sample_is_its_questions_and_others_over_the_same_history() -> None:
    some, more = load("sample").questions, load("sample-more").questions
    assert [question.id for question in more[: len(some)]] == [question.id for question in some]
    assert len({question.id for question in more}) == len(more) == 134
    assert sum(question.abstention for question in more) == 32
    assert all(question.history is more[0].history for question in more)


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


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("sample")])
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

LOADERS: dict[str, tuple[Callable[[Path], Dataset], Callable[[], Any]]] = {
    "longmemeval": (lambda path: longmemeval.load(path, whole_sessions=True), published),
    "locomo": (locomo.load, talk),
    "audit": (lambda path: locomo.load(write(path.with_name("locomo10.json"), talk()), corrections=path), audit),
    "own": (
        own_questions.load,
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


def test_the_example_in_the_docs_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text(page.split("```jsonl\n")[1].split("```")[0], encoding="utf-8")
    one, two, three = load(tmp_path / "mine.jsonl").questions
    assert one.evidence == one.history[1:]
    assert [note.text for note in two.evidence] == ["I moved house last week."]
    assert (three.abstention, three.answer) == (True, NOT_IN_MEMORY)
