"""Protocols: the cluster that every action gets, what it costs, and that nothing but `controlled` looks at a label."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory
from retcon.confidence import Witnesses
from retcon.errors import InputError
from retcon.features import BUDGET_UNIT, FEATURES, TYPES
from retcon.lab.data import BenchmarkQuestion, load, own_questions
from retcon.lab.outcomes import from_rows, panel
from retcon.lab.protocols import PROTOCOLS, Case, cases, chain_turns
from retcon.note import Note
from retcon.route import Router
from retcon.tokens import counter

CONTROLLED, FULL, PRODUCT = (PROTOCOLS[name] for name in ("controlled", "full-history", "product"))
BUDGETS = (0, 16, 64, 256)
K1, B = 1.2, 0.75


def plain_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def price(note: Note) -> int:
    """What the paper's protocols pay for a turn: its raw text in alphanumeric tokens."""
    return counter("alphanumeric")(note.text)


@cache
def sample() -> tuple[BenchmarkQuestion, ...]:
    return load("sample").questions


@cache
def sample_cases(protocol: str) -> dict[str, Case]:
    asked = [each for each in sample() if each.evidence or protocol != "controlled"]
    return {case.question.id: case for case in cases(asked, PROTOCOLS[protocol])}


def message(note: Note) -> dict[str, Any]:
    """The note as a caller of `Memory.add` would write it."""
    fields = {"id": note.id, "text": note.text, "speaker": note.speaker, "session": note.session}
    return {name: value for name, value in (fields | {"timestamp": note.timestamp}).items() if value is not None}


READS_ALL = Router(  # the evidence-fit rule with every feature computed
    name="reads-all", actions=("retain", "extract"), features=FEATURES,
    weights={"retain": tuple(float(name == "fit") for name in FEATURES), "extract": (0.0,) * len(FEATURES)},
    intercepts={"retain": 0.0, "extract": 0.999999},
)  # fmt: skip


def features_of(case: Case, budget: int) -> dict[str, float]:
    """The vector that a router is taught from a labelled row."""
    row = {"question_id": "q", "budget": budget, "action": "retain", "judge_x": 1.0} | case.features(budget)
    found = panel(from_rows([row]))
    return dict(zip(found.features, found.x[0, 0].tolist(), strict=True))


# -- controlled --------------------------------------------------------------------------------------------------------


def test_controlled_cluster_is_the_gold_evidence_in_its_order() -> None:
    for case in sample_cases("controlled").values():
        assert case.cluster.notes == case.question.evidence
        assert case.cluster.query == case.question.text
        assert list(case.cluster.costs) == [price(note) for note in case.question.evidence]


def cheapest_first(costs: Sequence[int], budget: int) -> set[int]:
    taken, left = set(), budget
    for place in sorted(range(len(costs)), key=lambda i: costs[i]):
        if costs[place] <= left:
            taken.add(place)
            left -= costs[place]
    return taken


@pytest.mark.parametrize("budget", BUDGETS)
def test_controlled_retention_packs_cheapest_first_and_pays_for_raw_text_alone(budget: int) -> None:
    for case in sample_cases("controlled").values():
        costs = [price(note) for note in case.question.evidence]
        taken = cheapest_first(costs, budget)
        packed = case.retain(budget)
        assert [source.id for source in packed.sources] == [case.question.evidence[i].id for i in sorted(taken)]
        assert packed.tokens == sum(costs[i] for i in taken) <= budget
        assert case.features(budget)["fit"] == len(taken) / len(costs)


def test_cheapest_first_is_not_rank_order_on_the_sample() -> None:
    """So that the test above could fail."""
    ranked = replace(CONTROLLED, order="rank")
    differ = [
        case.question.id
        for case in sample_cases("controlled").values()
        if replace(case, protocol=ranked).retain(64).text != case.retain(64).text
    ]
    assert differ


def test_controlled_types_are_given_and_others_are_guessed() -> None:
    for case in sample_cases("controlled").values():
        assert case.types() == tuple(float(case.question.type == name) for name in TYPES)
        assert sum(case.types()) == 1
    guessed = [case.types() for case in sample_cases("full-history").values()]
    assert all(math.isclose(sum(each), 1, abs_tol=1e-5) and max(each) < 1 for each in guessed)


def test_a_question_without_what_the_protocol_needs_is_refused() -> None:
    bare = replace(sample()[0], evidence=(), history=())
    with pytest.raises(InputError, match="q01 has no gold evidence"):
        list(cases([bare], CONTROLLED))
    for protocol in (FULL, PRODUCT):
        with pytest.raises(InputError, match="q01 has no history"):
            list(cases([bare], protocol))


# -- full history ------------------------------------------------------------------------------------------------------


def ranked(history: Sequence[Note], query: str, top_k: int = 20) -> list[Note]:
    """The paper's BM25 written out: every turn scored on its own lower-case words, older turns first among equals."""
    texts = [Counter(plain_words(note.text)) for note in history]
    mean = sum(map(Counter.total, texts)) / len(texts)
    scores = [0.0] * len(texts)
    for term in dict.fromkeys(plain_words(query)):
        df = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        for place, text in enumerate(texts):
            norm = K1 * (1 - B + B * text.total() / mean)
            scores[place] += idf * text[term] * (K1 + 1) / (text[term] + norm)
    best = sorted((place for place in range(len(texts)) if scores[place] > 0), key=lambda i: (-round(scores[i], 9), i))
    return [history[place] for place in best[:top_k]]


def capped(notes: Sequence[Note], cap: int = 2048) -> list[Note]:
    kept, used = [], 0
    for note in notes:
        cost = price(note)
        if used + cost <= cap:
            kept.append(note)
            used += cost
    return kept


def test_full_history_is_the_papers_bm25_top_20_under_the_cap_in_rank_order() -> None:
    for case in list(sample_cases("full-history").values())[::4]:
        expected = capped(ranked(case.question.history, case.question.text))
        assert [note.id for note in case.cluster.notes] == [note.id for note in expected]
        assert list(case.cluster.costs) == [price(note) for note in expected]


def in_rank_order(case: Case, budget: int) -> list[str]:
    taken: list[str] = []
    left = budget
    for hit, cost in zip(case.cluster.hits, case.cluster.costs, strict=True):
        if cost <= left and hit.duplicate_of not in taken:
            taken.append(hit.id)
            left -= cost
    return taken


@pytest.mark.parametrize("budget", BUDGETS)
def test_full_history_retention_packs_in_rank_order(budget: int) -> None:
    for case in sample_cases("full-history").values():
        assert [source.id for source in case.retain(budget).sources] == in_rank_order(case, budget)


def haystack(sessions: int, *, answer_in: int) -> dict[str, Any]:
    """One question in the publisher's S form: long turns, sessions out of order, one flagged turn."""

    def turn(session: int, place: int) -> dict[str, Any]:
        words = " ".join(f"filler{session}x{place}x{i}" for i in range(100 + 30 * place))
        said = f"my tandem needs a new chain number{session} {words}" if place == 0 else words
        flag = {"has_answer": True} if (session, place) == (answer_in, 0) else {}
        return {"role": "user" if place % 2 == 0 else "assistant", "content": said} | flag

    order = [*range(1, sessions, 2), *range(0, sessions, 2)]
    return {
        "question_id": "s-1", "question_type": "knowledge-update", "question": "What does my tandem need?",
        "answer": "a chain", "question_date": "2023/07/01 (Sat) 10:00",
        "haystack_session_ids": [f"session-{i}" for i in order],
        "haystack_dates": [f"2023/06/{i + 1:02d} (Mon) 09:30" for i in order],
        "haystack_sessions": [[turn(i, place) for place in range(3)] for i in order],
        "answer_session_ids": [f"session-{answer_in}"],
    }  # fmt: skip


def test_longmemeval_full_history_runs_on_the_publishers_s_form(tmp_path: Path) -> None:
    other = haystack(2, answer_in=1) | {"question_id": "s-2_abs", "question": "What does my boat need?"}
    (tmp_path / "longmemeval_s_cleaned.json").write_text(json.dumps([haystack(24, answer_in=5), other]))
    questions = load("longmemeval-s", folder=tmp_path).questions
    first, second = cases(questions, FULL)
    assert len(questions[0].history) == 72
    assert [note.timestamp for note in questions[0].history] == sorted(str(n.timestamp) for n in questions[0].history)
    expected = ranked(questions[0].history, questions[0].text)
    assert len(expected) == 20, "more turns match than may be taken"
    kept = capped(expected)
    assert 0 < len(kept) < 20, "the cap bites"
    assert [note.id for note in first.cluster.notes] == [note.id for note in kept]
    assert sum(first.cluster.costs) <= 2048
    assert {drop.code for drop in first.cluster.dropped} == {"cap"}
    assert second.question.abstention
    assert {note.id for note in second.cluster.notes} <= {note.id for note in questions[1].history}
    (gold,) = cases(questions[:1], CONTROLLED)
    assert [note.id for note in gold.cluster.notes] == ["session-5:0"]


# -- product: what Memory does -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remembered() -> Iterator[Memory]:
    """A memory as anybody makes one, holding the notes of the sample."""
    with Memory(":memory:", router=READS_ALL) as memory:
        memory.add([message(note) for note in sample()[0].history])
        yield memory


def check_product(case: Case, memory: Memory, budgets: Sequence[int]) -> None:
    """The case is what the memory has: candidates, their costs, features, signals, and the text of a retention."""
    query = case.question.text
    for budget in budgets:
        ours, theirs = case.at(budget), memory.recall(query, budget).cluster
        assert [(hit.id, hit.score, hit.rank, hit.duplicate_of) for hit in ours.hits] == [
            (hit.id, hit.score, hit.rank, hit.duplicate_of) for hit in theirs.hits
        ]
        assert (ours.costs, ours.dropped) == (theirs.costs, theirs.dropped)
        reply, shown = case.question.answer, memory.recall(query, budget).text
        assert Witnesses.of(ours).signals(reply, shown) == Witnesses.of(theirs).signals(reply, shown)
        assert features_of(case, budget) == dict(memory.decide(query, budget).features)
        recalled = memory.recall(query, budget, action="retain")
        packed = case.retain(budget)
        assert (packed.text, packed.tokens) == (recalled.text, recalled.tokens)
        assert [source.id for source in packed.sources] == [source.id for source in recalled.sources]


def test_product_is_exactly_what_a_memory_does_with_the_same_notes(remembered: Memory) -> None:
    for case in list(sample_cases("product").values())[::3]:
        check_product(case, remembered, (32, 64, 128, 256))
        assert len(case.cluster.hits) == 20, "a memory fills up with its newest notes"


def test_labelled_features_have_the_names_and_scale_of_a_decision(remembered: Memory) -> None:
    case = sample_cases("product")["q02"]
    found = features_of(case, 64)
    assert tuple(found) == FEATURES
    assert found["budget"] == 64 / BUDGET_UNIT
    assert found["pressure"] == sum(case.cluster.costs) / 64
    assert remembered.decide(case.question.text, 64).features == found


words = st.sampled_from("cat dog rent vet Basel 84 euros moved paid the a Pixel".split())
texts = st.lists(words, min_size=1, max_size=12).map(" ".join)
turns = st.lists(st.tuples(texts, st.sampled_from([None, None, "s1", "s2"])), min_size=1, max_size=30)


@given(turns=turns, query=texts)
def test_product_is_memory_for_any_turns_with_and_without_sessions(
    turns: list[tuple[str, str | None]], query: str
) -> None:
    history = tuple(Note(f"n{i}", text, session=session) for i, (text, session) in enumerate(turns))
    question = replace(sample()[0], text=query, history=history)
    with Memory(":memory:", router=READS_ALL, stamp=False) as memory:
        memory.add([message(note) for note in history])
        (case,) = cases([question], PRODUCT)
        check_product(case, memory, (8, 40))


def test_product_takes_the_notes_of_an_exported_memory_whoever_they_belong_to(tmp_path: Path) -> None:
    """Scopes, corrections and the turn before each are in the file; they come back as they were."""
    with Memory(tmp_path / "m.db", router=READS_ALL) as memory:
        memory.add(["I adopted a cat.", "It is called Pixel."], user_id="ann", timestamp="2026-05-09")
        memory.add(["The vet took 84 euros.", "That was dear."], user_id="bob", timestamp="2026-05-10")
        (rent,) = memory.add("The rent is 700.", user_id="ann", session="s1", timestamp="2026-05-11")
        memory.supersede(rent.id, "The rent is 725.", timestamp="2026-05-12")
        memory.export(tmp_path / "notes.jsonl")
        (tmp_path / "q.jsonl").write_text(
            json.dumps({"id": "q", "question": "What is the rent?", "answer": "725", "history_file": "notes.jsonl"})
        )
        (question,) = own_questions.load(tmp_path / "q.jsonl").questions
        (case,) = cases([question], PRODUCT)
        check_product(case, memory, (16, 64))
        assert rent.id not in [note.id for note in case.cluster.notes]


def test_chained_turns_follow_what_they_name_then_the_turn_before_them() -> None:
    history = [
        Note("a", "one"), Note("b", "two", session="s"), Note("c", "three"), Note("d", "four", follows="a"),
        Note("e", "five", user_id="ann"), Note("f", "six", user_id="ann", follows="a"),
    ]  # fmt: skip
    assert [note.follows for note in chain_turns(history)] == [None, None, "b", "a", None, "e"]


# -- no label is looked at ---------------------------------------------------------------------------------------------


def blind(question: BenchmarkQuestion) -> BenchmarkQuestion:
    """The question without anything that a policy must not see."""
    return replace(question, answer="", type=None, raw_type="", evidence=(), abstention=False, trap=None)


@pytest.mark.parametrize("name", ["full-history", "product"])
def test_without_gold_fields_features_and_clusters_are_the_same_bytes(name: str) -> None:
    picked = [each for each in sample() if each.abstention][:3] + list(sample()[:12])
    picked = [replace(each, trap="a wrong answer") for each in picked]
    for seen, unseen in zip(cases(picked, PROTOCOLS[name]), cases(map(blind, picked), PROTOCOLS[name]), strict=True):
        assert repr(seen.cluster).encode() == repr(unseen.cluster).encode()
        for budget in BUDGETS:
            assert json.dumps(seen.features(budget)).encode() == json.dumps(unseen.features(budget)).encode()
            assert seen.retain(budget) == unseen.retain(budget)


def test_the_controlled_protocol_does_look_at_labels() -> None:
    """So that the test above could fail."""
    question = sample()[0]
    (case,) = cases([question], CONTROLLED)
    (other,) = cases([replace(question, type="temporal", evidence=sample()[1].evidence)], CONTROLLED)
    assert case.features(64) != other.features(64)


# -- many questions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full-history", "product"])
def test_order_and_company_of_questions_do_not_matter(name: str) -> None:
    some = list(sample()[:6])
    together = {case.question.id: case for case in cases(some, PROTOCOLS[name])}
    mixed = [replace(each, history=tuple(each.history)) if i % 2 else each for i, each in enumerate(reversed(some))]
    for case in cases(mixed, PROTOCOLS[name]):
        assert case.cluster == together[case.question.id].cluster


def test_protocols_have_the_papers_budgets_and_countings() -> None:
    assert [p.budgets for p in PROTOCOLS.values()] == [(32, 64, 128, 256)] * 3
    assert [(p.count.name, p.accounting, p.order) for p in PROTOCOLS.values()] == [
        ("alphanumeric", "text", "cheapest"), ("alphanumeric", "text", "rank"), ("estimate", "rendered", "rank"),
    ]  # fmt: skip
    with Memory(":memory:", router="evidence-fit") as memory:
        assert (memory.count.name, memory.retriever, memory.top_k, memory.cap) == (
            PRODUCT.count.name, PRODUCT.retriever, PRODUCT.top_k, PRODUCT.cap,
        )  # fmt: skip
        assert memory.embedder.name == PRODUCT.embed.name
