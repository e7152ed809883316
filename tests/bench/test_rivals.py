"""The pieces of the comparison with rivals that are ours: cutting, batching, the endpoint, rows, differences."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rivals import answers, quality
from bench.rivals.base import COUNTER, Setup, batches, fit, when
from bench.rivals.contexts import Job, Log, Meter, share
from bench.rivals.endpoint import Call, Endpoint, gives_object
from bench.rivals.page import ahead, by_domain, costs, differences, leads, summary
from bench.rivals.questions import ASKED, BUDGETS, UNANSWERABLE, draw
from bench.rivals.say import Said
from bench.rivals.server import Kept, Service, serve
from bench.rivals.systems import SYSTEMS
from bench.rivals.systems.after_trustmem import TrustMem
from bench.rivals.systems.lingua import _Listed
from bench.rivals.systems.newest import Newest
from retcon.errors import ModelError
from retcon.lab.data.question import BenchmarkQuestion
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, Reply
from retcon.note import Note
from retcon.tokens import counter

COUNT = counter(COUNTER)


# -- cutting -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(0, 40))
def test_what_is_shown_never_costs_more_than_the_budget(pieces: list[str], budget: int) -> None:
    assert COUNT(fit(pieces, budget)) <= budget


def test_pieces_are_taken_in_their_order_and_the_first_that_does_not_fit_is_cut() -> None:
    whole = fit(["alpha beta gamma", "delta epsilon zeta"], 100)
    assert whole == "alpha beta gamma\ndelta epsilon zeta"
    cut = fit(["alpha beta gamma", "delta epsilon zeta"], COUNT("alpha beta gamma\ndelta epsilon"))
    assert cut.startswith("alpha beta gamma\ndelta")
    assert "zeta" not in cut


def test_a_batch_stays_within_a_session_and_loses_no_turn() -> None:
    history = [Note(str(n), f"turn {n}", session="a" if n < 5 else "b") for n in range(12)]
    found = list(batches(history, most=3))
    assert [note for batch in found for note in batch] == history
    assert all(len(batch) <= 3 and len({note.session for note in batch}) == 1 for batch in found)


def test_the_newest_turns_that_fit_are_shown_in_their_order() -> None:
    rival = Newest()
    rival.add([Note(str(n), f"turn {n}") for n in range(30)])
    (text,) = rival.context("anything", 40)
    turns = text.split("\n")
    assert turns[-1].endswith("turn 29")
    assert 1 < len(turns) < 30
    assert turns == sorted(turns, key=lambda turn: int(turn.split()[-1]))


# -- the endpoint ------------------------------------------------------------------------------------------------------


class Echo:
    """A model that repeats the end of its prompt, and says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, float]] = []

    def __call__(self, prompt: str, tokens: int, temperature: float, seed: int) -> Said:
        self.asked.append((prompt, tokens, temperature))
        return Said(prompt[-6:], len(prompt), 2, "stop")


def plain(messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None) -> str:
    return "|".join(str(each["content"]) for each in messages)


@pytest.fixture
def served() -> Iterator[tuple[Echo, str]]:
    echo = Echo()
    server = serve(Service(echo, plain, name="echo"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield echo, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def test_what_a_key_spends_is_told_to_that_key_once(served: tuple[Echo, str]) -> None:
    _, url = served
    ann, bob = Endpoint(url, "echo", "ann"), Endpoint(url, "echo", "bob")
    assert ann.ask("hello world", max_tokens=9) == " world"
    assert [(call.prompted, call.generated, call.text) for call in ann.drain()] == [(11, 2, " world")]
    assert ann.drain() == []
    assert bob.drain() == []


def test_a_prompt_is_paid_for_once(served: tuple[Echo, str]) -> None:
    echo, url = served
    for _ in range(3):
        Endpoint(url, "echo").ask("the same", max_tokens=9)
    Endpoint(url, "echo").ask("the same", max_tokens=8)
    assert len(echo.asked) == 2


def test_json_that_is_demanded_begins_with_a_brace_and_ends_with_its_value(served: tuple[Echo, str]) -> None:
    echo, url = served
    found = post(
        url, {"messages": [{"role": "user", "content": 'say "a":1} z'}], "response_format": {"type": "json_object"}}
    )
    assert echo.asked[-1][0].endswith("{")
    assert found["choices"][0]["message"]["content"].startswith("{")


def test_a_demanded_call_of_a_tool_comes_back_as_one() -> None:
    tool = {"type": "function", "function": {"name": "keep", "parameters": {}}}
    service = Service(lambda *_: Said('{"text": "tea"}}\n</tool_call>', 1, 1, "stop"), plain, name="m")
    made = service.complete(
        {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "tool_choice": "required"}, "k"
    )
    (call,) = made["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "keep", "arguments": '{"text": "tea"}'}
    assert service.spent({}, "k")["calls"][0]["tools"] == (("keep", '{"text": "tea"}'),)


def test_a_request_without_messages_is_refused_with_a_reason(served: tuple[Echo, str]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(served[1], {})
    with refused.value as error:
        assert error.code == 400
        assert "messages" in json.load(error)["error"]["message"]


def test_kept_replies_outlive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept.jsonl")
    kept.put("a", Said("yes", 1, 1, "stop"))
    kept.close()
    with (tmp_path / "kept.jsonl").open("a") as file:
        file.write('{"key": "b", "te')
    again = Kept(tmp_path / "kept.jsonl")
    assert again.get("a") == Said("yes", 1, 1, "stop")
    assert again.get("b") is None
    again.close()


def test_a_history_that_is_in_the_log_is_not_done_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "x.jsonl")
    log.add([{"what": "history", "domain": "d", "conversation": "c"}])
    with log.path.open("a") as file:
        file.write('{"what": "hist')
    again = Log(log.path)
    assert again.done == {("d", "c")}
    again.add([{"what": "history", "domain": "d", "conversation": "e"}])
    assert Log(log.path).done == {("d", "c"), ("d", "e")}


def test_replies_that_a_rival_could_not_parse_are_counted(served: tuple[Echo, str]) -> None:
    at = Endpoint(served[1], "echo", "m")
    meter = Meter(SYSTEMS["llamaindex-facts"], at)
    spent = meter.measure(lambda: [at.ask("<fact>a</fact>", max_tokens=5), at.ask("nothing", max_tokens=5)])
    assert (spent.calls, spent.unparsed) == (2, 2)


@pytest.mark.parametrize(
    ("text", "read"), [('{"facts": []}', True), ('{"facts": [', False), ("[1]", False), ("", False)]
)
def test_a_rival_that_wants_an_object_cannot_read_anything_else(text: str, read: bool) -> None:
    assert gives_object(Call(1, 1, text)) is read


def test_a_turn_has_its_time_and_one_without_the_first_of_times() -> None:
    assert when(Note("a", "x", timestamp="2026-03-04")).isoformat() == "2026-03-04T00:00:00+00:00"
    assert when(Note("a", "x")).year == 1970


def test_a_rival_that_needs_more_runs_only_where_it_is_named() -> None:
    assert {each.name for each in SYSTEMS.values() if each.alone} == {
        "graphiti", "hindsight", "hindsight-chunks", "cognee",
    }  # fmt: skip


# -- questions ---------------------------------------------------------------------------------------------------------


def question(n: int, conversation: str, *, abstention: bool = False) -> BenchmarkQuestion:
    note = Note(f"{conversation}-n", "a turn")
    evidence = () if abstention else (note,)
    return BenchmarkQuestion(
        f"q{n}", "d", f"question {n}?", f"answer {n}", None, "plain", conversation, evidence=evidence, history=(note,),
        abstention=abstention,
    )  # fmt: skip


def test_no_question_is_drawn_that_a_policy_has_seen_and_few_histories_are() -> None:
    asked = [question(n, f"c{n % 10}") for n in range(200)]
    asked += [question(n, f"c{n % 10}", abstention=True) for n in range(200, 300)]
    seen = {each.id for each in asked[::2]}
    found = draw(asked, "any", seen)
    assert not seen & {each.id for each in found}
    assert sum(not each.abstention for each in found) == ASKED
    assert sum(each.abstention for each in found) == UNANSWERABLE
    assert len({each.conversation for each in found}) <= 6
    assert draw(asked, "any", seen) == found


# -- rows and differences ----------------------------------------------------------------------------------------------


class Reader:
    """Answers with the right answer where the context holds it, and judges by the same."""

    name, kind = "reader", "fake"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return [Reply(self.say(ask.messages[-1]["content"]), 10, 2, 0.0, "stop", -0.1) for ask in asks]

    def say(self, text: str) -> str:
        if "<reply>" in text:
            gold, reply = text.split("<answer>")[-1].split("</answer>")[0], text.split("<reply>")[-1]
            return "yes" if gold in reply else "no"
        return text.split("known: ")[1].split("\n")[0] if "known: " in text else "NOT IN MEMORY"


def test_a_row_says_who_showed_it_what_it_cost_and_what_both_judges_say() -> None:
    asked = question(1, "c")
    cells = [
        answers.Shown(context("known: answer 1"), asked),
        answers.Shown(context("known: another"), asked),
        answers.Shown(context("nothing"), asked),
    ]
    cache = ReplyCache(":memory:")
    rows = answers.measure(cells, Reader(), cache)
    cache.close()
    assert [row["judge_llm"] for row in rows] == [1.0, 0.0, 0.0]
    assert [row["judge_strict"] for row in rows] == [1.0, 0.0, 0.0]
    assert [row["abstained"] for row in rows] == [0.0, 0.0, 1.0]
    assert {row["calls"] for row in rows} == {3}
    assert rows[0]["reader_tokens"] == 12
    assert "text" not in rows[0]


def context(text: str) -> dict[str, Any]:
    spent = {"calls": 3, "prompted": 5, "generated": 6, "unparsed": 1, "seconds": 0.5}
    return {"system": "mem0", "domain": "locomo", "question_id": "q1", "budget": 64, "text": text, "tokens": 9, **spent}


def scores(right: list[list[float]], there: Sequence[bool], answered: float = 1.0) -> quality.Scores:
    values, gave = np.array(right, float), np.full((len(right), len(right[0])), answered)
    found = quality.measures({"llm": values, "strict": values}, gave, np.array(there))
    return quality.Scores(tuple(f"q{n}" for n in range(len(right))), found, gave, gave, gave, gave)


def test_an_answer_to_an_unanswerable_question_is_wrong_and_costs_half() -> None:
    found = scores([[1.0] * 4, [1.0] * 4], [True, False])
    assert found.values["both"].tolist() == [[1.0] * 4, [0.0] * 4]
    assert found.values["utility"].tolist() == [[1.0] * 4, [-0.5] * 4]
    assert quality.summarise(found, np.array([True, False]))["utility"]["mean"] == pytest.approx(0.8 - 0.2 * 0.5)


def test_a_difference_is_paired_and_leaves_out_what_one_of_them_lacks() -> None:
    rng = random.Random(0)
    right = [[float(rng.random() < 0.5)] * 4 for _ in range(40)]
    there, twins = np.array([True] * 30 + [False] * 10), [f"q{n}" for n in range(40)]
    one, other = scores(right, there.tolist()), scores(right, there.tolist())
    same = quality.differ(one, other, there, twins)
    assert same["both"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    for values in other.values.values():
        values[:5] = np.nan
    assert quality.differ(one, other, there, twins)["both"]["mean"] == 0.0
    better = quality.differ(scores([[1.0] * 4] * 40, there.tolist()), one, there, twins)
    assert better["both"]["mean"] == pytest.approx(1 - np.array(right)[:30, 0].mean())
    assert better["both"]["low"] <= better["both"]["mean"] <= better["both"]["high"]


def test_a_system_whose_replies_mostly_do_not_parse_is_not_measured_and_says_why() -> None:
    took = {"error": "", "calls": 10, "prompted": 5, "generated": 5, "unparsed": 8, "seconds": 1.0, "turns": 100}
    cost = quality.ingest([took])
    assert "80%" in quality.unmeasured(cost, 1)
    failed = quality.ingest([{**took, "unparsed": 0, "error": "ValueError: no"}])
    assert "ValueError: no" in quality.unmeasured(failed, 1)
    assert quality.unmeasured(quality.ingest([{**took, "unparsed": 1}]), 1) == ""
    assert quality.unmeasured(failed, 3) == "3 of 3 histories missing: ValueError: no on 1, 2 not done"


def test_an_error_is_kept_by_its_kind_and_without_what_anyone_said() -> None:
    said = "CognifyFailedError: CognifyFailedError: Cognify failed: ValidationError: input_value='Ann lives in Lisbon'"
    assert answers.kind_of_error(said) == "CognifyFailedError/ValidationError"
    assert answers.kind_of_error("") == ""
    assert answers.kind_of_error("Ann ended it") == "error"
    assert answers.kind_of_error("ReadTimeout: Ann") == "ReadTimeout"


def test_checks_of_a_run_are_added_to_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "check-most.json").write_text(json.dumps([{"system": "mem0", "works": True, "shown": "Ann"}]))
    (tmp_path / answers.CHECKS).write_text(json.dumps({"hindsight": False, "mem0": False}))
    answers.write_checks([tmp_path], tmp_path)
    assert answers.read_checks(tmp_path) == {"mem0": True, "hindsight": False}
    assert "Ann" not in (tmp_path / answers.CHECKS).read_text()


def test_every_table_can_be_drawn_from_a_result() -> None:
    gap = {name: {"mean": -0.1, "low": -0.2, "high": 0.1} for name in ("both", "utility")}
    each = {"mean": 0.5, "budgets": [0.5] * len(BUDGETS)}
    row = dict.fromkeys(("both", "llm", "strict", "false", "utility"), each) | {
        "reads": 1.0,
        "writes": 0.0,
        "tokens": 9.0,
    }
    cost = {"turns": 10, "calls": 1, "tokens": 20, "unparsed": 0.1, "histories": 1}
    systems = dict.fromkeys(quality.OURS, row) | {
        "mem0": row | {"ingest": cost},
        "langmem": {"ingest": cost, "why": "no"},
    }
    gaps = {ours: {"mean": gap, "budgets": [gap] * len(BUDGETS)} for ours in quality.OURS}
    domain = {"systems": systems, "differences": {"mem0": gaps}, "questions": {"histories": 2}}
    found = {
        "budgets": list(BUDGETS), "domains": {"locomo": domain},
        "mean": {name: row | {"domains": 1} for name in (*quality.OURS, "mem0")},
    }  # fmt: skip
    assert "Mem0, infer=True" in summary(found)
    assert "not measured: no" in by_domain(found)
    assert "-.100 [-.200, +.100]" in differences(found, quality.ONE_CALL)
    assert "10%" in costs(found)
    assert ahead(found).count("Mem0") == len(BUDGETS)
    assert ".500 (.500, .500), 1 of 2 histories" in by_domain(found)  # of mem0, and of none of ours
    assert by_domain(found).count("1 of 2") == 1
    assert leads(found).count("Mem0, infer=True .100,") + leads(found).count("Mem0, infer=True .100 |") == 2 * 4
    assert "*" not in leads(found).replace("**", "")  # no interval excludes 0


def took(system: str, conversation: str, error: str = "", calls: int = 0) -> dict[str, Any]:
    return {"system": system, "domain": "locomo", "conversation": conversation, "error": error, "calls": calls}


def read(system: str, conversation: str, budgets: int, tokens: int) -> list[dict[str, Any]]:
    about = {"system": system, "domain": "locomo", "conversation": conversation, "question_id": "q"}
    return [{**about, "budget": budget, "tokens": tokens} for budget in BUDGETS[:budgets]]


def test_a_second_run_adds_histories_replaces_those_it_did_anew_and_keeps_all_others() -> None:
    old = (
        [*read("newest", "a", 4, 1), *read("mem0", "a", 4, 1)],
        [took("newest", "a"), took("mem0", "a", calls=1), took("mem0", "c", error="no")],
    )
    new = (
        [*read("mem0", "a", 4, 2), *read("mem0", "b", 4, 2), *read("langmem", "a", 4, 2)],
        [took("langmem", "a"), took("mem0", "a", calls=2), took("mem0", "b"), took("mem0", "c")],
    )
    cells, histories = answers.merge(old, new)
    assert {(row["system"], row["conversation"], row["tokens"]) for row in cells} == {
        ("newest", "a", 1), ("mem0", "a", 2), ("mem0", "b", 2), ("langmem", "a", 2),
    }  # fmt: skip
    assert len(cells) == 16
    assert [(row["system"], row["conversation"], row["calls"]) for row in histories] == [
        ("newest", "a", 0), ("mem0", "a", 2), ("mem0", "c", 0), ("mem0", "b", 0), ("langmem", "a", 0),
    ]  # fmt: skip
    assert not any(row["error"] for row in histories)


def test_a_history_of_which_less_came_through_the_second_time_stays_as_it_was() -> None:
    old = ([*read("mem0", "a", 4, 1), *read("mem0", "b", 4, 1)], [took("mem0", "a"), took("mem0", "b")])
    new = (read("mem0", "a", 3, 2), [took("mem0", "a", calls=5), took("mem0", "b", error="stopped")])
    assert answers.merge(old, new) == old
    assert answers.merge(([], []), new) == new


def test_shares_of_the_histories_are_about_alike_and_lose_none() -> None:
    every = [
        Job("d", f"c{n}", (replace(question(n, f"c{n}"), history=(Note("n", "x"),) * (n + 1)),)) for n in range(23)
    ]
    parts = [share(every, f"{n}/4", lambda job: len(job.questions[0].history)) for n in (1, 2, 3, 4)]
    assert sorted(job.conversation for part in parts for job in part) == sorted(job.conversation for job in every)
    weights = [sum(len(job.questions[0].history) for job in part) for part in parts]
    assert max(weights) - min(weights) <= 5
    assert all(len(a.questions[0].history) >= len(b.questions[0].history) for part in parts for a, b in pairwise(part))
    with pytest.raises(SystemExit):
        share(every, "5/4", lambda job: 1)


# -- systems -----------------------------------------------------------------------------------------------------------


class Script:
    """A model that lists two facts of each batch, and confirms what does not say "moon"."""

    def __call__(self, prompt: str, tokens: int, temperature: float, seed: int) -> Said:
        if "yes or no" in prompt:
            return Said("no" if "moon" in prompt.split("Statement:")[1] else "yes", 1, 1, "stop")
        place = "moon" if "turn 1" in prompt else "town"
        return Said(f"- Ann lives in {place} A\n2. Bob lives in {place} B", 1, 1, "stop")


def flat(texts: Sequence[str]) -> Any:
    return np.ones((len(texts), 3), np.float32)


def test_after_trustmem_keeps_confirmed_facts_and_the_turns_of_a_batch_that_was_refused() -> None:
    server = serve(Service(Script(), plain, name="m"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    at = Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "m")
    rival = TrustMem(Setup(flat, at))  # type: ignore[arg-type]
    rival.add([Note(str(n), f"turn {n}", session=str(n)) for n in range(3)])
    server.shutdown()
    thread.join()
    server.server_close()
    assert rival.kept.texts == [
        "Ann lives in town A", "Bob lives in town B", "turn 1", "Ann lives in town A", "Bob lives in town B"
    ]  # fmt: skip


def test_a_short_text_is_read_once_for_all_budgets_and_a_continued_one_every_time() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.Qwen2Config(
        vocab_size=30, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    model = transformers.Qwen2ForCausalLM(config)
    read: list[int] = []
    model.register_forward_pre_hook(lambda _, given: read.append(given[0].shape[1]))
    listed, ids = _Listed(model), torch.tensor([[3, 4, 5, 6]])
    first = listed(ids, attention_mask=torch.ones_like(ids), use_cache=True)
    again = listed(ids.clone(), attention_mask=torch.ones_like(ids), use_cache=True)
    assert read == [4]
    assert torch.equal(first.logits, again.logits)
    for _ in range(2):
        more = listed(
            ids[:, :2], attention_mask=torch.ones((1, 6)), past_key_values=first.past_key_values, use_cache=True
        )
        assert more.past_key_values[0][0].shape[2] == 6
    assert read == [4, 2, 2]
    assert first.past_key_values[0][0].shape[2] == 4
