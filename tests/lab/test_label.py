"""Labelling: every cell is measured once, whatever is killed or fails on the way, and what failed is never scored."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from command_line import fine
from hypothesis import given, settings
from hypothesis import strategies as st
from local_model import needs_local_model, smollm
from misbehaving import Behaviour, Handler, Server, answers, completion, says, sends, slow
from waiting import until

from retcon import answer
from retcon.confidence import SIGNALS, Witnesses
from retcon.drafts import TRAITS, traits
from retcon.errors import (
    AuthError,
    InputError,
    MalformedReplyError,
    ModelError,
    ModelUnavailableError,
)
from retcon.features import spread
from retcon.lab import label as labels
from retcon.lab.data import BenchmarkQuestion, load
from retcon.lab.data import sample as draw_sample
from retcon.lab.outcomes import Outcomes, panel, read
from retcon.lab.protocols import PROTOCOLS, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, FakeChat, GgufChat, HashingEmbed, HttpChat, Reply
from retcon.note import Note
from retcon.operate import Length
from retcon.tokens import counter

ROOT = Path(__file__).parents[2]
CONTROLLED, PRODUCT = PROTOCOLS["controlled"], PROTOCOLS["product"]
ARMS = ("retain", "extract", "merge", "rewrite")
CAT = BenchmarkQuestion(
    id="cat", dataset="mine", text="What is my cat called?", answer="Pixel", type="single_session",
    raw_type="single-session", conversation="talk", date="2026-06-01",
    evidence=(
        Note("n1", "My cat is called Pixel.", "ann", "s1", "2026-05-09T10:00"),
        Note("n2", "The shelter in Basel took 40 euros for all of the papers.", "ann", "s2", "2026-05-10T10:00"),
    ),
)  # fmt: skip


def content(ask: Ask) -> str:
    return ask.messages[1]["content"]


def stage(ask: Ask) -> str:
    """Which of the three stages an ask belongs to."""
    marks = {"<note>": "write", "<memory>": "read", "<reply>": "judge"}
    (found,) = [name for mark, name in marks.items() if mark in content(ask)]
    return found


def by_stage(*, write: str = "Pixel is a cat.", read: str = "Pixel", judge: str = "yes") -> Callable[[Ask], str]:
    """A model that says the same to every ask of a stage."""
    said = {"write": write, "read": read, "judge": judge}
    return lambda ask: said[stage(ask)]


def cells(
    questions: Sequence[BenchmarkQuestion] = (CAT,),
    arms: Sequence[str] = ARMS,
    budgets: Sequence[int] = (8, 40),
    **more: Any,
) -> list[labels.Cell]:
    return labels.cells(cases(questions, CONTROLLED), arms, budgets=budgets, **more)


@cache
def sample(n: int) -> tuple[BenchmarkQuestion, ...]:
    return tuple(question for question in load("sample").questions if question.evidence)[:n]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ReplyCache]:
    opened = ReplyCache(tmp_path / "replies.db")
    yield opened
    opened.close()


class Endpoint(Protocol):
    """Opens a model at a server."""

    def __call__(self, server: Server, /, **options: Any) -> HttpChat: ...


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Models without retries of their own, closed after the test."""
    opened: list[HttpChat] = []

    def make(server: Server, /, **options: Any) -> HttpChat:
        opened.append(HttpChat(server.base, "m", **{"retries": 0, **options}))
        return opened[-1]

    yield make
    for model in opened:
        model.close()


def rows(found: labels.LabelRun) -> list[dict[str, Any]]:
    return [] if found.outcomes is None else list(found.outcomes.rows())


def same(one: Outcomes | None, other: Outcomes | None, *, but: Sequence[str] = ()) -> bool:
    assert one is not None
    assert other is not None
    assert one.columns.keys() == other.columns.keys()
    return all(
        np.array_equal(one.columns[name], other.columns[name], equal_nan=one.columns[name].dtype.kind == "f")
        for name in one.columns
        if name not in but
    )


def no_pause(seconds: float) -> None:
    pass


def label(todo: Sequence[labels.Cell], model: Any, cache: ReplyCache, **more: Any) -> labels.LabelRun:
    return labels.label(todo, model, cache, **{"pause": no_pause, **more})


# -- what a row says ---------------------------------------------------------------------------------------------------


def knows_pixel(ask: Ask) -> str:
    """Reads what is there, and judges by the words alone."""
    if stage(ask) == "read":
        return "Pixel" if "Pixel" in content(ask) else "NOT IN MEMORY"
    if stage(ask) == "judge":
        return "yes" if "<reply>Pixel</reply>" in content(ask) else "no"
    return "Pixel is a cat." if "What is my cat called" in content(ask) else "Papers: 40 euros."


def test_rows_are_those_of_a_hand_computation(kept: ReplyCache) -> None:
    model = FakeChat(knows_pixel, name="tiny")
    arms = ("retain", "merge", "merge-agnostic")
    found = label(cells(arms=arms, budgets=(4, 8, 40)), model, kept)
    by_cell = {(row["budget"], row["action"]): row for row in rows(found)}
    assert list(by_cell) == list(itertools.product((4, 8, 40), arms))
    inconsistency, similarity = spread(HashingEmbed()([note.text for note in CAT.evidence]))
    seen = {
        "notes": 2.0, "cluster_tokens": 17.0, "sessions": 2.0, "inconsistency": inconsistency, "similarity": similarity,
        "p_single_session": 1.0, "p_multi_session": 0.0, "p_temporal": 0.0, "p_knowledge_update": 0.0,
    }  # fmt: skip
    about = {
        "dataset": "mine", "setting": "controlled", "question_id": "cat", "conversation": "talk",
        "type": "single_session", "raw_type": "single-session", "abstention": "", "realization": 0, "pair": "",
        "model": "tiny", "reader": "tiny", "grader": "tiny", "retriever": "gold", "counter": "alphanumeric",
        "embedder": "hashing", "accounting": "text", "seconds": 0.0,
    }  # fmt: skip
    # budget, action -> fit, tokens of the context, calls, right
    expected = {
        (4, "retain"): (0.0, 0, 0, 0.0),
        (8, "retain"): (0.5, 5, 0, 1.0),
        (40, "retain"): (1.0, 17, 0, 1.0),
        (4, "merge"): (0.0, 0, 0, 0.0),  # no record is written below 12 tokens
        (8, "merge"): (0.5, 0, 0, 0.0),
        (40, "merge"): (1.0, 4, 1, 1.0),
        (4, "merge-agnostic"): (0.0, 0, 0, 0.0),
        (8, "merge-agnostic"): (0.5, 0, 0, 0.0),
        (40, "merge-agnostic"): (1.0, 3, 1, 0.0),
    }
    for cell, (fit, tokens, calls, right) in expected.items():
        row = by_cell[cell]
        assert {name: row[name] for name in about} == about
        assert {name: row[name] for name in seen} == seen
        assert (row["fit"], row["context_tokens"], row["model_calls"]) == (fit, tokens, calls)
        assert [row[f"judge_{name}"] for name in ("llm", "overlap", "f1", "strict")] == [right] * 4
        assert row["abstained"] == 1.0 - right
        assert row["reader_tokens"] > 0
        assert (row["generated_tokens"] > 0) == (row["prompted_tokens"] > 0) == (calls > 0)
        assert np.isnan(row["logprob"])
        assert np.isnan(row["unsupported"]) == (calls == 0)
        assert row["focus"] == {"retain": "", "merge": "focused", "merge-agnostic": "agnostic"}[cell[1]]
        assert row["length"] == {"retain": ""}.get(cell[1], "0.7")
    assert by_cell[40, "merge"]["unsupported"] == 0.0
    assert found.failures == {}
    assert found.calls == len(model.asked)


def test_every_row_has_the_traits_of_its_text_where_the_reader_abstained_too(kept: ReplyCache) -> None:
    model = FakeChat(by_stage(write="The cat's name is not mentioned.", read=answer.MARKER))
    found = label(cells(arms=("retain", "merge"), budgets=(4, 40)), model, kept)
    witnesses = Witnesses.of(cells()[0].case.at(40))
    for row, text in zip(rows(found), found.answers, strict=True):
        assert row["abstained"] == 1.0
        told = {name: row[f"trait_{name}"] for name in TRAITS}
        assert told == {name: round(value, 6) for name, value in traits(text["context"], witnesses).items()}
    assert [row["trait_hedged"] for row in rows(found)] == [0.0, 0.0, 0.0, 1.0]


def test_answers_are_kept_apart_from_the_outcomes_with_the_words_of_every_row(kept: ReplyCache) -> None:
    found = label(cells(arms=("retain", "merge"), budgets=(40,)), FakeChat(knows_pixel), kept)
    retained, merged = found.answers
    assert retained["context"] == (
        "2026-05-09 ann: My cat is called Pixel.\n"
        "2026-05-10 ann: The shelter in Basel took 40 euros for all of the papers."
    )
    assert (merged["context"], merged["reply"], merged["gold"]) == ("Pixel is a cat.", "Pixel", "Pixel")
    assert merged["judge_llm"] == 1.0
    words = json.dumps([{name: str(value) for name, value in row.items()} for row in rows(found)])
    assert "Pixel" not in words
    assert "called" not in words


def test_rows_have_the_signals_of_every_reply_that_gives_an_answer(kept: ReplyCache) -> None:
    todo = cells(arms=("retain", "merge"), budgets=(8, 40))
    found = label(todo, FakeChat(knows_pixel), kept)
    for cell, row, texts in zip(todo, rows(found), found.answers, strict=True):
        seen = [row[f"signal_{name}"] for name in SIGNALS]
        assert np.isnan(seen).tolist() == [row["abstained"] == 1] * len(SIGNALS)
        if not row["abstained"]:
            wanted = Witnesses.of(cell.case.at(cell.budget)).signals(texts["reply"], texts["context"])
            assert seen == pytest.approx([wanted[name] for name in SIGNALS], abs=1e-6)
    assert {row["abstained"] for row in rows(found)} == {0.0, 1.0}


def test_a_claim_without_a_source_is_marked(kept: ReplyCache) -> None:
    found = label(cells(arms=("retain", "merge"), budgets=(40,)), FakeChat(by_stage(write="It took 70 euros.")), kept)
    assert [row["unsupported"] for row in rows(found)][1] == 1.0


def test_logprobs_and_token_counts_of_an_endpoint_are_in_the_rows(kept: ReplyCache, endpoint: Endpoint) -> None:
    shown = {"logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.0}]}}
    reply = completion("Pixel")
    reply["choices"][0] |= shown
    with Server(always=says(reply)) as server:
        found = label(cells(arms=("retain",), budgets=(8,)), endpoint(server), kept, judged=False)
    (row,) = rows(found)
    assert (row["logprob"], row["reader_tokens"]) == (-0.75, 9.0)
    assert row["seconds"] > 0
    assert "judge_llm" not in row
    assert row["grader"] == ""


def test_reader_and_grader_may_be_other_models_and_rows_say_so(kept: ReplyCache) -> None:
    writer, reader, grader = (FakeChat(by_stage(), name=name) for name in ("w", "r", "g"))
    found = label(cells(), writer, kept, reader=reader, grader=grader)
    asked = {model.name: {stage(ask) for ask in model.asked} for model in (writer, reader, grader)}
    assert asked == {"w": {"write"}, "r": {"read"}, "g": {"judge"}}
    assert {(row["model"], row["reader"], row["grader"]) for row in rows(found)} == {("w", "r", "g")}


texts = st.text(st.sampled_from("Pixel40 \n,.é木\x00😀<>/note"), min_size=1, max_size=80)


@given(written=texts, budget=st.integers(0, 60))
@settings(max_examples=25)
def test_no_context_is_dearer_than_its_budget_whatever_the_model_writes(written: str, budget: int) -> None:
    todo = cells(arms=(*ARMS, "abstract", "hybrid"), budgets=(budget,))
    found = label(todo, FakeChat(by_stage(write=written)), ReplyCache(":memory:"))
    assert all(row["context_tokens"] <= budget for row in rows(found))
    assert len(rows(found)) + sum(found.failures.values()) == len(todo)


# -- the same questions for every action -------------------------------------------------------------------------------


def test_prompts_are_the_same_for_every_action_but_for_the_context(kept: ReplyCache) -> None:
    model = FakeChat(by_stage())
    label(cells(arms=(*ARMS, "abstract", "hybrid", "merge-agnostic")), model, kept)
    reading = [ask for ask in model.asked if stage(ask) == "read"]
    shown = {re.findall(r"<memory>\n(.*?)\n</memory>", content(ask), re.S)[0] for ask in reading}
    assert len(shown) > 3, "the contexts differ"
    rest = {json.dumps([dict(message) for message in ask.messages]).replace(_memory(ask), "") for ask in reading}
    assert len(rest) == 1
    assert len({(ask.max_tokens, ask.temperature, ask.seed, ask.logprobs) for ask in reading}) == 1
    assert len({json.dumps(ask.messages) for ask in model.asked if stage(ask) == "judge"}) == 1, "one verdict a reply"


def _memory(ask: Ask) -> str:
    """The context of a reading ask as it stands in JSON."""
    return json.dumps(content(ask))[1:-1].split("</memory>")[0]


def test_a_focused_record_is_written_for_the_question_and_an_agnostic_one_without_it(kept: ReplyCache) -> None:
    model = FakeChat(by_stage())
    label(cells(arms=("retain", "merge", "merge-agnostic"), budgets=(40,)), model, kept)
    written = [CAT.text in content(ask) for ask in model.asked if stage(ask) == "write"]
    assert sorted(written) == [False, True]


def seed_of(question: str, realization: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{question}/{realization}".encode()).digest()[:4], "big") >> 1


def test_the_first_realization_is_greedy_and_others_are_seeded_by_question_and_realization() -> None:
    todo = cells([CAT, replace(CAT, id="dog")], realizations=3)
    for cell in todo:
        if cell.realization == 0:
            assert cell.draw == {"temperature": 0.0, "seed": None}
        else:
            wanted = seed_of(cell.case.question.id, cell.realization)
            assert cell.draw == {"temperature": labels.TEMPERATURE, "seed": wanted}
    seeds = {(cell.case.question.id, cell.realization, cell.draw["seed"]) for cell in todo if cell.realization}
    assert len(seeds) == len({seed for *_, seed in seeds}) == 4


def test_writer_and_reader_are_drawn_alike_for_every_arm_and_budget_and_the_judge_never(kept: ReplyCache) -> None:
    model = FakeChat(lambda ask: "yes" if stage(ask) == "judge" else f"Pixel {ask.seed}")
    found = label(cells(arms=("retain", "merge"), budgets=(40, 60), realizations=3), model, kept)
    drawn = {stage: Counter() for stage in ("write", "read", "judge")}  # type: dict[str, Counter[Any]]
    for ask in model.asked:
        drawn[stage(ask)][ask.temperature, ask.seed] += 1
    each = [(0.0, None), *((labels.TEMPERATURE, seed_of("cat", r)) for r in (1, 2))]
    assert drawn["write"] == dict.fromkeys(each, 2)
    assert set(drawn["read"]) == set(each)
    assert set(drawn["judge"]) == {(0.0, None)}
    runs = panel(found.outcomes).runs if found.outcomes is not None else None
    assert runs is not None
    assert runs.shape == (1, 2, 2, 3)


def test_every_arm_that_a_model_writes_has_a_retention_of_its_own(kept: ReplyCache) -> None:
    todo = cells(arms=("retain", "extract", "merge", "rewrite-agnostic"), budgets=(40,), realizations=3, paired=True)
    found = rows(label(todo, FakeChat(by_stage()), kept))
    pairs = [(row["realization"], row["pair"]) for row in found if row["action"] == "retain"]
    assert pairs == list(itertools.product(range(3), ("merge", "rewrite-agnostic")))
    assert {row["pair"] for row in found if row["action"] != "retain"} == {""}
    seeds = [cell.draw["seed"] for cell in todo if cell.arm == "retain"]
    assert seeds[:2] == [None, None]  # greedy: one reply for all
    assert len({*seeds[2:], *(cell.draw["seed"] for cell in todo if cell.arm == "merge")}) == 4 + 3
    alone = cells(arms=("retain", "extract"), paired=True)
    assert [cell.pair for cell in alone] == [""] * len(alone)


def test_operators_are_asked_for_the_length_of_the_protocol_and_rows_say_so(kept: ReplyCache) -> None:
    model = FakeChat(by_stage())
    longer = replace(CONTROLLED, length=Length(0.9, "Write about {words} words."))
    todo = labels.cells(cases([CAT], longer), ("retain", "merge"), budgets=(40,))
    found = rows(label(todo, model, kept))
    assert [content(ask).endswith("Write about 36 words.") for ask in model.asked if stage(ask) == "write"] == [True]
    assert [row["length"] for row in found] == ["", "0.9"]


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (("merge",), "add it to merge"),
        (("retain", "retain"), "stands twice"),
        (("retain", "summon"), "unknown action 'summon'"),
        (("retain", "extract-agnostic"), "no agnostic form"),
    ],
)
def test_arms_that_make_no_sense_are_refused(arms: Sequence[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cells(arms=arms)
    with pytest.raises(InputError, match="realizations are 1 or more"):
        cells(realizations=0)


# -- nothing is paid twice ---------------------------------------------------------------------------------------------


def test_the_same_run_twice_gives_the_same_rows_and_pays_nothing(tmp_path: Path) -> None:
    todo = cells(sample(6), arms=ARMS, realizations=2)
    kept = ReplyCache(tmp_path / "r.db")
    model = FakeChat(lambda ask: "no" if stage(ask) == "judge" else f"{len(content(ask))} {ask.seed}")
    first = label(todo, model, kept)
    kept.close()
    again, silent = ReplyCache(tmp_path / "r.db"), FakeChat()  # a fake without replies fails if it is asked
    second = label(todo, silent, again)
    again.close()
    assert same(first.outcomes, second.outcomes)
    assert first.answers == second.answers
    assert (second.calls, silent.asked) == (0, [])
    assert first.calls == len(model.asked) == second.reused


def test_two_cells_with_one_text_are_asked_for_once(kept: ReplyCache) -> None:
    model = FakeChat(by_stage())
    found = label(cells(arms=("retain",), budgets=(17, 18, 400)), model, kept)  # everything fits in each
    assert len(rows(found)) == 3
    assert Counter(map(stage, model.asked)) == {"read": 1, "judge": 1}


class StopsAt:
    """A model that is interrupted at its n-th batch."""

    kind = "fake"

    def __init__(self, model: FakeChat, batches: int) -> None:
        self.model, self.name, self.left = model, model.name, batches

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.model(asks)


@pytest.mark.parametrize("batches", [1, 4, 9])
def test_what_was_answered_before_an_interruption_is_kept_chunk_by_chunk(kept: ReplyCache, batches: int) -> None:
    todo, model = cells(sample(6)), FakeChat(by_stage())
    with pytest.raises(KeyboardInterrupt):
        label(todo, StopsAt(model, batches), kept, chunk=5)
    paid = len(model.asked)
    assert kept.stats().entries == paid
    assert paid <= 5 * batches
    done = label(todo, model, kept, chunk=5)
    assert done.calls == len(model.asked) - paid
    assert len(set(map(str, model.asked))) == len(model.asked), "no ask went out twice"


# -- the estimate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["controlled", "product"])
@pytest.mark.parametrize("judged", [True, False])
def test_the_estimate_is_never_below_what_is_paid(kept: ReplyCache, protocol: str, judged: bool) -> None:
    asked = cases(sample(4), PROTOCOLS[protocol])
    todo = labels.cells(asked, (*ARMS, "merge-agnostic"), budgets=(32, 64), realizations=2)
    model = FakeChat(lambda ask: "yes" if stage(ask) == "judge" else f"{len(content(ask))} {ask.seed}")
    expected = labels.estimate(todo, model, kept, judged=judged)
    assert model.asked == []
    assert (expected.cells, expected.kept) == (len(todo), 0)
    found = label(todo, model, kept, judged=judged)
    paid = Counter(map(stage, model.asked))
    assert set(expected.calls) == set(paid)
    assert all(paid[each] <= expected.calls[each] for each in paid)
    assert paid["write"] == expected.calls["write"], "records can be counted beforehand"
    assert sum(ask.max_tokens for ask in model.asked) <= expected.completion_tokens
    held = sum(counter("estimate")(message["content"]) for ask in model.asked for message in ask.messages)
    assert held / 1.5 <= expected.prompt_tokens <= 3 * held
    after = labels.estimate(todo, model, kept, judged=judged)
    assert after.kept == after.calls["write"]
    assert found.calls == paid.total()


def test_a_cost_is_tokens_times_prices_for_a_million() -> None:
    expected = labels.Forecast(cells=1, calls={}, prompt_tokens=2_000_000, completion_tokens=500_000, kept=0)
    assert expected.cost(price_in=3.0, price_out=4.0) == 8.0


def test_the_probe_asks_a_few_that_the_run_needs_anyway(kept: ReplyCache) -> None:
    todo, model = cells(sample(12)), FakeChat(by_stage())
    first = labels.probe(todo, model, kept, most=5)
    assert first.calls == len(model.asked) == 5
    assert len({re.findall("Question: .*", content(ask))[0] for ask in model.asked}) == 5, "of different questions"
    found = label(todo, model, kept)
    assert len(set(map(str, model.asked))) == len(model.asked) == found.calls + 5
    assert labels.probe(todo, model, kept, most=5) == labels.Probe(0.0, 0)


def test_a_probe_that_fails_altogether_ends_the_run_and_one_that_fails_in_part_does_not(kept: ReplyCache) -> None:
    with pytest.raises(AuthError, match="no such key"):
        labels.probe(cells(), FakeChat([AuthError("no such key")] * 8), kept)
    with pytest.raises(MalformedReplyError, match="not a word"):
        labels.probe(cells(), FakeChat(lambda ask: " \n"), kept)
    some = FakeChat([AuthError("no such key"), *["Pixel"] * 7])
    assert labels.probe(cells(sample(8)), some, kept).calls == 8


# -- failures ----------------------------------------------------------------------------------------------------------


def failing(matches: Callable[[Any], bool], how: Behaviour, otherwise: Behaviour) -> Behaviour:
    """Fails the requests that match, for ever."""
    return lambda handler: (how if matches(handler.asked) else otherwise)(handler)


class Busy:
    """Answers once `enough` requests are under way at the same time; `most` is how many ever were."""

    def __init__(self, enough: int) -> None:
        self.enough, self.most, self._now, self._lock = enough, 0, 0, threading.Lock()

    def __call__(self, handler: Handler) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        until(lambda: self.most >= self.enough)
        time.sleep(0.005)  # for one too many to come in
        with self._lock:  # before the reply: after it the next request may be here sooner than this line
            self._now -= 1
        answers(handler)


BAD: dict[str, tuple[Behaviour, str]] = {
    "500": (says({"error": {"message": "down"}}, 500), "model_unavailable"),
    "429": (says({"error": {"message": "slow down"}}, 429), "model_rate_limit"),
    "empty": (sends(b""), "model_malformed"),
    "not JSON": (sends(b"<html>sorry</html>"), "model_malformed"),
    "no text": (says({"choices": [{"message": {"content": None}}]}), "model_malformed"),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("where", ["write", "read"])
def test_what_fails_is_asked_again_then_counted_and_has_no_row(
    kept: ReplyCache, endpoint: Endpoint, how: str, where: str
) -> None:
    """One question's asks of one stage fail every time; all other rows are there and the same as without failures."""
    todo = cells(sample(3), arms=("retain", "merge"), budgets=(64,))
    bad = sample(3)[1]
    mark = {"write": "<note>", "read": "<memory>"}[where]
    behave, code = BAD[how]
    waits: list[float] = []

    def matches(body: Any) -> bool:
        asked = body["messages"][1]["content"]
        return mark in asked and bad.text in asked

    with Server(always=answers) as server:
        whole = label(todo, endpoint(server), ReplyCache(":memory:"))
    with Server(always=failing(matches, behave, answers)) as server:
        model = endpoint(server)
        found = label(todo, model, kept, pause=waits.append)
        tried = Counter(seen.body["messages"][1]["content"] for seen in server.seen if matches(seen.body))
        lost = 1 if where == "write" else 2  # the record alone, or what is read of both arms
        assert found.failures == {f"{where}: {code}": lost}
        assert list(tried.values()) == [labels.ATTEMPTS] * lost
        assert waits == [2.0, 4.0]
        cells_there = [(row["question_id"], row["action"]) for row in rows(found)]
        assert cells_there == [
            (row["question_id"], row["action"])
            for row in rows(whole)
            if row["question_id"] != bad.id or (where == "write" and row["action"] == "retain")
        ]
        by_cell = {(row["question_id"], row["action"]): row["judge_llm"] for row in rows(whole)}
        assert [row["judge_llm"] for row in rows(found)] == [by_cell[cell] for cell in cells_there]
        server.always = answers
        paid = len(server.seen)
        healed = label(todo, model, kept)
        assert same(healed.outcomes, whole.outcomes, but=["seconds"])
        assert len(server.seen) - paid == healed.calls < found.calls, "only what was missing"


def test_a_failure_that_passes_leaves_no_trace(kept: ReplyCache, endpoint: Endpoint) -> None:
    todo = cells(sample(3), arms=("retain", "merge"), budgets=(64,))
    down = says({"error": {"message": "down"}}, 503)
    with Server(always=answers) as server:
        server.queue.extend([down, down])
        found = label(todo, endpoint(server), kept)
    assert found.failures == {}
    assert len(rows(found)) == len(todo)


def test_where_nothing_could_be_measured_there_are_no_outcomes(kept: ReplyCache) -> None:
    found = label(cells(), FakeChat([ModelUnavailableError("down")] * 99), kept)
    assert found.outcomes is None
    assert sum(found.failures.values()) == len(cells())


def test_a_record_without_a_word_is_a_failure_and_is_asked_for_again_by_the_next_run(kept: ReplyCache) -> None:
    todo = cells(arms=("retain", "merge"), budgets=(40,))
    model = FakeChat(by_stage(write=" \n"))
    found = label(todo, model, kept)
    assert found.failures == {"write: model_malformed": 1}
    assert Counter(map(stage, model.asked))["write"] == labels.ATTEMPTS
    healed = label(todo, FakeChat(by_stage()), kept)
    assert (healed.failures, len(rows(healed))) == ({}, 2)


def test_a_note_may_be_rewritten_to_nothing(kept: ReplyCache) -> None:
    model = FakeChat(lambda ask: "" if "40 euros" in content(ask) and stage(ask) == "write" else "Pixel, yes")
    found = label(cells(arms=("retain", "rewrite"), budgets=(40,)), model, kept)
    assert found.failures == {}
    assert [answer["context"] for answer in found.answers][1] == "2026-05-09 ann: Pixel, yes"


def test_a_reader_that_says_nothing_abstains_as_it_does_in_the_product(kept: ReplyCache) -> None:
    found = label(cells(arms=("retain",), budgets=(40,)), FakeChat(by_stage(read="", judge="no")), kept)
    assert [row["abstained"] for row in rows(found)] == [1.0]
    assert answer.abstains("")


@pytest.mark.parametrize(("second", "verdict", "missing"), [("No.", 0.0, 0), ("Hard to say.", np.nan, 2)])
def test_an_unreadable_verdict_is_asked_for_once_more_then_left_empty_and_counted(
    kept: ReplyCache, second: str, verdict: float, missing: int
) -> None:
    """Two rows share one reply, and so one verdict."""

    def model(ask: Ask) -> str:
        if stage(ask) != "judge":
            return "Pixel"
        return second if len(ask.messages) > 2 else "Well, yes and no."

    judge = FakeChat(model)
    found = label(cells(arms=("retain",), budgets=(17, 40)), judge, kept)
    asked = [ask for ask in judge.asked if stage(ask) == "judge"]
    assert [len(ask.messages) for ask in asked] == [2, 4]
    assert asked[1].messages[2] == {"role": "assistant", "content": "Well, yes and no."}
    assert found.failures == ({f"judge: {labels.UNREADABLE}": missing} if missing else {})
    assert np.array_equal([row["judge_llm"] for row in rows(found)], [verdict] * 2, equal_nan=True)
    assert [row["judge_strict"] for row in rows(found)] == [1.0, 1.0], "the other judges have spoken"


def test_a_judge_that_fails_leaves_its_verdict_empty_and_is_told_apart_from_one_that_waffles(kept: ReplyCache) -> None:
    grader = FakeChat([ModelUnavailableError("down")] * labels.ATTEMPTS, name="g")
    found = label(cells(arms=("retain",), budgets=(40,)), FakeChat(by_stage()), kept, grader=grader)
    assert found.failures == {"judge: model_unavailable": 1}
    assert [np.isnan(row["judge_llm"]) for row in rows(found)] == [True]
    healed = label(cells(arms=("retain",), budgets=(40,)), FakeChat(), kept, grader=FakeChat(["yes"], name="g"))
    assert [row["judge_llm"] for row in rows(healed)] == [1.0]


# -- endpoints ---------------------------------------------------------------------------------------------------------


def test_an_endpoint_is_asked_concurrently_and_within_its_bound(kept: ReplyCache, endpoint: Endpoint) -> None:
    busy = Busy(4)
    with Server(always=busy) as server:
        label(cells(sample(6)), endpoint(server, concurrency=4), kept)
    assert busy.most == 4


# -- killed at any point -----------------------------------------------------------------------------------------------

CHUNK, KILLS = 8, 5
COMMAND = (
    "label", "sample", "--sample", "6", "--budgets", "32,64", "--actions", "retain,extract,merge", "--realizations",
    "2", "--chunk", str(CHUNK), "--model-name", "m",
)  # fmt: skip


def start(folder: Path, server: Server) -> subprocess.Popen[str]:
    """The command line as anybody runs it, in that folder."""
    folder.mkdir(exist_ok=True)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RETCON_", "OPENAI_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "retcon", *COMMAND, "--model", server.base],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=known | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def finished(folder: Path, server: Server) -> list[dict[str, str]]:
    """The rows that a run writes which nobody disturbs; it needs no process of its own."""
    folder.mkdir(exist_ok=True)
    with chdir(folder):
        assert fine(*COMMAND, "--model", server.base).startswith("wrote 72 outcomes")
        with Path("outcomes.csv").open(newline="") as file:
            return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def killed(folder: Path, server: Server, after: int) -> bool:
    """Whether the run was killed once so many calls had come in, of which the last ones get no answer before."""
    wanted, dead = len(server.seen) + after, threading.Event()
    usual, server.always = server.always, lambda handler: reply(handler)

    def reply(handler: Handler) -> None:
        if len(server.seen) >= wanted:
            assert dead.wait(120)
        usual(handler)

    process = start(folder, server)
    until(lambda: len(server.seen) >= wanted or process.poll() is not None)
    gone = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    server.always = usual
    dead.set()
    until(lambda: server.active == 0)
    return gone


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_at_any_point_it_goes_on_where_it_was_and_pays_for_one_chunk_more_at_most(tmp_path: Path) -> None:
    with Server(always=slow(0.01, answers)) as server:
        undisturbed = finished(tmp_path / "whole", server)
        paid = len(server.seen)
        draw = random.Random(7)
        kills = 0
        for after in [1, *(draw.randrange(2, paid // KILLS) for _ in range(KILLS - 1))]:
            kills += killed(tmp_path / "killed", server, after)
        assert kills == KILLS
        again = finished(tmp_path / "killed", server)
        assert again == undisturbed
        ever = len(server.seen) - paid
        assert paid <= ever <= paid + kills * CHUNK
        assert paid < sum(_calls(tmp_path / "whole").values())
        twice = len(server.seen)
        assert finished(tmp_path / "killed", server) == undisturbed
        assert len(server.seen) == twice, "a run that is done pays nothing"


def _calls(folder: Path) -> dict[str, int]:
    """What an estimate says of that run."""
    asked = [question for question in load("sample").questions if not question.abstention]
    drawn = cases(draw_sample(asked, 6), CONTROLLED)
    todo = labels.cells(drawn, ("retain", "extract", "merge"), budgets=(32, 64), realizations=2)
    assert len(read(folder / "outcomes.csv")) == len(todo)
    return dict(labels.estimate(todo, FakeChat(), ReplyCache(":memory:")).calls)


# -- a real model ------------------------------------------------------------------------------------------------------


@needs_local_model
def test_a_real_model_is_labelled_and_its_run_repeats_without_a_call(tmp_path: Path) -> None:
    todo = labels.cells(cases(sample(1), CONTROLLED), ("retain", "merge"), budgets=(32,))
    kept = ReplyCache(tmp_path / "r.db")
    with GgufChat(str(smollm()), context=1024, timeout=300) as model:
        first = label(todo, model, kept, judged=False)
        second = label(todo, model, kept, judged=False)
    kept.close()
    assert first.failures == {}
    assert same(first.outcomes, second.outcomes)
    assert (first.calls > 0, second.calls) == (True, 0)
    for row in rows(first):
        assert row["context_tokens"] <= 32
        assert row["logprob"] < 0
        assert row["seconds"] > 0
        assert row["model"].startswith("SmolLM2")
