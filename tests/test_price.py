"""What a wrong answer costs: ladders learned for a price, in Python and through every face."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import at_terminal, complaint, document, run
from local_model import needs_local_model, smollm
from mcp_servers import in_process, play
from misbehaving import Server, completion, says
from serving import client, error
from test_ask import NO, QUERY, STORY, Both, actions, remembering

from retcon import Answer, AsyncMemory, Look, Memory
from retcon.confidence import Confidence, Witnesses
from retcon.errors import InputError, RouterError
from retcon.ladder import DEFAULT_WRONG_COST, Ladder
from retcon.mcp.verbs import ToolVerbs
from retcon.model import GgufChat
from retcon.note import Cluster
from retcon.route import SHIPPED, Router, load_shipped
from retcon.why import explain_confidence

RIGHT, WRONG = "14 June at 9:30", "a Tuesday in Rome"
STATED = Confidence(signals=("stated",), weights=(6.0,), intercept=-3.0)  # .95 where a note states it, .05 where not
EVENTS = {"accept": "text/event-stream"}


def ladder(*order: str, stop: float | None = None, accept: float | None = None) -> Ladder:
    return Ladder(
        orders=(order,), features=(), weights=((),), intercepts={64: (0.0,)},
        stops={} if stop is None else {64: stop}, accepts={} if accept is None else {64: accept},
    )  # fmt: skip


NAMES = ("retain", "extract", "merge", "abstract")
PLAIN = Router(
    name="plain", actions=NAMES, features=(), weights=dict.fromkeys(NAMES, ()), intercepts=dict.fromkeys(NAMES, 0.5),
    ladder=ladder("merge", "extract"),
)  # fmt: skip
PRICED = replace(
    PLAIN, name="priced", confidence=STATED,
    prices={
        0.0: ladder("extract", "merge", stop=0.9),
        0.5: ladder("extract", "merge", "retain", stop=0.9, accept=0.5),
        2.0: ladder("retain", "extract", stop=0.9, accept=0.99),
    },
)  # fmt: skip


def saying(*replies: str) -> Both:
    """A reader with these replies; after the last it says that one on."""
    queue = list(replies)
    return Both(lambda ask: queue.pop(0) if len(queue) > 1 else queue[0])


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_looks_go_on_until_a_reply_is_likely_enough_to_be_right() -> None:
    with remembering(saying(WRONG, RIGHT), router=PRICED) as memory:
        found = memory.ask(QUERY, 64)
    assert (found.text, actions(found), found.refused) == (RIGHT, ["extract", "merge"], False)
    assert [round(look.confidence or 0, 2) for look in found.looks] == [0.05, 0.95]
    assert found.confidence == found.looks[1].confidence
    assert found.look is found.looks[1]


def test_a_reply_that_nothing_states_is_given_where_a_wrong_answer_costs_nothing_and_refused_where_it_costs() -> None:
    with remembering(saying(WRONG), router=PRICED) as memory:
        free, dear = memory.ask(QUERY, 64, wrong_cost=0), memory.ask(QUERY, 64, wrong_cost=0.5)
    assert (free.text, actions(free), free.refused) == (WRONG, ["extract", "merge"], False)
    assert (dear.text, actions(dear), dear.refused) == (None, ["extract", "merge", "retain"], True)
    assert (dear.look.reply, dear.confidence, dear.warnings) == (WRONG, free.confidence, ())


def test_the_price_is_a_half_if_not_said_and_else_the_nearest_that_was_learned_of_two_the_higher() -> None:
    assert DEFAULT_WRONG_COST == 0.5
    chosen = {cost: PRICED.choose_price(cost) for cost in (None, 0, 0.2, 0.25, 0.5, 1.2, 1.25, 2, 1e300)}
    assert list(chosen.values()) == [0.5, 0.0, 0.0, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0]
    for cost, order in (
        (None, ["extract", "merge", "retain"]),
        (0.1, ["extract", "merge"]),
        (9, ["retain", "extract"]),
    ):
        with remembering(Both(), router=PRICED) as memory:
            found = memory.ask(QUERY, 64, wrong_cost=cost)
        assert actions(found) == order
        assert {look.recall.decision.order for look in found.looks} == {tuple(order)}
        assert (found.text, found.refused, found.confidence) == (None, False, None)


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf, True, "0.5", [0.5]])
def test_a_cost_that_is_no_price_is_one_clear_line_before_anything_is_asked(cost: Any) -> None:
    chat = Both()
    with remembering(chat, router=PRICED) as memory, pytest.raises(InputError, match="wrong_cost is a number from 0"):
        memory.ask_stream(QUERY, 64, wrong_cost=cost)
    assert chat.asked == []


@pytest.mark.parametrize("router", [PLAIN, "evidence-fit"])
def test_a_router_without_prices_refuses_a_cost_and_asks_as_ever_without_one(router: Any) -> None:
    with remembering(saying(WRONG), router=router) as memory:
        with pytest.raises(InputError, match="has learned no price of a wrong answer: leave wrong_cost out"):
            memory.ask(QUERY, 64, wrong_cost=0.5)
        found = memory.ask(QUERY, 64)
    assert (found.text, len(found.looks), found.confidence, found.refused) == (WRONG, 1, None, False)


def test_a_confidence_without_prices_is_told_and_changes_nothing() -> None:
    told = replace(PLAIN, confidence=STATED)
    with remembering(saying(NO, WRONG), router=told) as memory, remembering(saying(NO, WRONG), router=PLAIN) as other:
        found, plain = memory.ask(QUERY, 64), other.ask(QUERY, 64)
    assert (found.text, actions(found)) == (plain.text, actions(plain)) == (WRONG, ["merge", "extract"])
    assert [look.confidence for look in found.looks] == [None, pytest.approx(STATED({"stated": 0.0}))]


def test_callers_who_read_for_themselves_get_the_order_that_ends_at_the_first_answer() -> None:
    with remembering(Both(), router=PRICED) as memory, remembering(Both(), router=replace(PRICED, ladder=None)) as bare:
        assert memory.decide(QUERY, 64).order == ("merge", "extract")
        assert bare.decide(QUERY, 64).order == ("extract", "merge", "retain")  # of the default price
        again = memory.ask(QUERY, 64, wrong_cost=9, max_looks=1).looks[0].recall.escalate()
        assert again is not None
        assert again.action == "extract"


def test_an_answer_of_whole_notes_is_given_at_any_price_where_it_shall_be_safe() -> None:
    with remembering(saying(WRONG), router=PRICED) as memory:
        found = memory.ask(QUERY, 400, safe=True, wrong_cost=2)
    assert (found.text, actions(found), found.refused) == (WRONG, ["retain"], False)
    assert found.confidence == pytest.approx(STATED({"stated": 0.0}))


@pytest.mark.parametrize("bound", [{"max_looks": 1}, {"max_tokens": 1}])
def test_a_bound_ends_the_looks_with_the_best_reply_so_far(bound: dict[str, int]) -> None:
    for cost, text in ((0, WRONG), (0.5, None)):
        with remembering(saying(WRONG), router=PRICED) as memory:
            found = memory.ask(QUERY, 64, wrong_cost=cost, **bound)  # type: ignore[arg-type]
        assert (found.text, len(found.looks), found.refused) == (text, 1, text is None)


def test_the_candidates_are_read_once_an_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Cluster] = []
    inner = Witnesses.of
    monkeypatch.setattr(Witnesses, "of", lambda cluster: read.append(cluster) or inner(cluster))  # type: ignore[func-returns-value]
    with remembering(saying(WRONG), router=PRICED) as memory:
        assert len(memory.ask(QUERY, 64).looks) == 3
    assert len(read) == 1


def test_a_stream_and_an_awaited_ask_give_what_ask_gives() -> None:
    with remembering(saying(WRONG), router=PRICED) as memory:
        *looks, last = memory.ask_stream(QUERY, 64, wrong_cost=0.4)
        asked = memory.ask(QUERY, 64, wrong_cost=0.4)
    assert isinstance(last, Answer)
    assert all(isinstance(look, Look) and look.confidence == asked.confidence for look in looks)
    assert (last.text, last.refused, last.confidence) == (asked.text, asked.refused, asked.confidence)
    assert asked.refused

    async def main() -> Answer:
        async with AsyncMemory(":memory:", model=saying(WRONG), router=PRICED) as memory:
            await memory.add(STORY[2][0])
            return await memory.ask(QUERY, 64, wrong_cost=0)

    assert asyncio.run(main()).text == WRONG


@pytest.mark.parametrize("others", [0, 1, 4])
def test_the_default_gives_what_a_small_memory_states(others: int) -> None:
    with Memory(":memory:", model=saying("84 euros")) as memory:
        memory.add(["Pixel's first vet visit cost 84 euros.", *(text for text, _ in STORY * 2)][: 1 + others])
        found = memory.ask("How much did the vet cost?", 64)
    assert (found.text, found.refused) == ("84 euros", False)


@needs_local_model
def test_a_real_model_is_given_its_answer_or_refused_by_what_the_notes_state() -> None:
    with GgufChat(smollm() or "") as chat, remembering(chat, router=PRICED) as memory:
        free, dear = memory.ask(QUERY, 64, wrong_cost=0, max_looks=1), memory.ask(QUERY, 64, max_looks=1)
    assert free.text is not None
    assert free.confidence is not None
    assert 0 < free.confidence < 1
    assert (dear.confidence, dear.refused) == (free.confidence, free.confidence < 0.5)


# -- the router file ---------------------------------------------------------------------------------------------------


def test_prices_and_confidence_come_back_from_a_file_and_older_files_stay_the_same(tmp_path: Path) -> None:
    PRICED.save(tmp_path / "router.json")
    assert Router.load(tmp_path / "router.json") == PRICED
    assert json.loads((tmp_path / "router.json").read_text())["prices"].keys() == {"0.0", "0.5", "2.0"}
    for router in (PLAIN, *map(load_shipped, SHIPPED)):
        assert {"prices", "confidence"}.isdisjoint(router.to_dict()) or router.prices


def test_what_a_ladder_reads_at_any_price_the_router_reads() -> None:
    priced = replace(PRICED.prices[2.0], features=("similarity",), weights=((1.0,),))
    assert "similarity" in replace(PRICED, prices={1.0: priced}).reads


def test_a_certificate_of_a_ladder_is_of_the_one_without_a_price() -> None:
    found = {"alpha": 0.1, "delta": 0.1, "budgets": {}, "questions": 10, "conversations": 10}
    climbs = {"of": PLAIN.ladder_mark(), "budgets": {"64": {"bound": 0.05}}}
    assert PRICED.ladder_mark() == PLAIN.ladder_mark()
    assert replace(PRICED, certificate=found | {"ladder": climbs}).bounds_ladder(64)
    assert not replace(PRICED, certificate=found | {"ladder": climbs | {"of": "0"}}).bounds_ladder(64)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"confidence": None}, "by confidence, and the router has learned none"),
        ({"prices": {-1.0: ladder("retain")}}, "a price of a wrong answer is a number from 0 on"),
        ({"prices": {math.nan: ladder("retain")}}, "a price of a wrong answer is a number from 0 on"),
        ({"prices": {1.0: ladder("retain", "summon")}}, "the ladder names summon"),
    ],
)
def test_prices_that_cannot_be_are_one_clear_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RouterError, match=said):
        replace(PRICED, **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prices": {"cheap": {}}}, "wrong shape"),
        ({"prices": [1]}, "wrong shape"),
        ({"prices": {"0.5": PLAIN.to_dict()["ladder"], ".5": PLAIN.to_dict()["ladder"]}}, "a price stands twice"),
        ({"prices": {"0.5": {**PLAIN.to_dict()["ladder"], "stop": {}}}}, "unknown entries: stop"),
        ({"confidence": {"signals": ["held"], "weights": ["1"], "intercept": 0}}, "wrong shape"),
        ({"confidence": {"signals": ["mood"], "weights": [1], "intercept": 0}}, "the confidence reads mood"),
    ],
)
def test_a_file_with_prices_that_cannot_be_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RouterError, match=said):
        Router.from_dict(PRICED.to_dict() | change)


# -- faces -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [(RIGHT, "very likely right: about 95 in 100 such answers are"), (WRONG, "probably wrong: about 5 in 100 such")],
)
def test_how_sure_an_answer_is_is_said_in_plain_words(reply: str, words: str) -> None:
    with remembering(saying(reply), router=PRICED) as memory:
        assert (explain_confidence(memory.ask(QUERY, 64)) or "").startswith(words)
    with remembering(saying(reply), router=PLAIN) as memory:
        assert explain_confidence(memory.ask(QUERY, 64)) is None


def test_the_service_takes_a_cost_and_tells_the_confidence_of_looks_and_answer() -> None:
    with remembering(saying(WRONG), router=PRICED) as memory, client(memory) as http:
        body = {"question": QUERY, "budget": 64, "wrong_cost": 0.5}
        found = http.post("/ask", json=body).json()
        assert (found["answer"], found["in_memory"], found["refused"], found["look"]) == (None, False, True, 1)
        assert found["confidence"] == found["looks"][0]["confidence"] == pytest.approx(STATED({"stated": 0.0}))
        assert http.post("/ask", json=body | {"wrong_cost": 0}).json()["answer"] == WRONG
        seen = http.post("/ask", json=body, headers=EVENTS).text.split("\n\n")[0]
        assert json.loads(seen.partition("data: ")[2])["confidence"] == found["confidence"]
        for cost in (-1, "dear", True):
            error(http.post("/ask", json=body | {"wrong_cost": cost}), 422)
    with remembering(saying(WRONG), router=PLAIN) as memory, client(memory) as http:
        assert error(http.post("/ask", json=body), 422) == "bad_input"


@pytest.mark.parametrize("cost", [0, "0", "0.0", 0.1])
def test_the_tool_takes_a_cost_also_as_text_and_tells_the_confidence(cost: object) -> None:
    async def scene() -> None:
        with remembering(saying(WRONG), router=PRICED) as memory:
            async with in_process(ToolVerbs(memory)) as talk:
                given = await talk.give("ask_memory", question=QUERY, budget=64, wrong_cost=cost)
                refused = await talk.give("ask_memory", question=QUERY, budget=64)
                assert "wrong_cost" in await talk.fail("ask_memory", question=QUERY, wrong_cost=-1)
        assert (given["answer"], given["confidence"], given["refused"]) == (WRONG, 0.05, False)
        assert ("answer" in refused, refused["in_memory"], refused["refused"]) == (False, False, True)

    play(scene)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Callable[..., tuple[str, ...]]]:
    """The words of a command line that asks a model which always says the same wrong thing."""
    PRICED.save(tmp_path / "router.json")
    with Memory(tmp_path / "t.db") as memory:
        for text, day in STORY:
            memory.add(text, timestamp=day)
    with Server(always=says(completion(WRONG))) as server:
        where = ("--db", str(tmp_path / "t.db"), "--router", str(tmp_path / "router.json"), "-b", "64")
        yield lambda *more: ("ask", QUERY, "--model", server.base, "--model-name", "m", *where, *more)


def test_the_command_line_takes_a_cost_and_says_why_it_gives_no_answer(asked: Callable[..., tuple[str, ...]]) -> None:
    refused = run(*asked())
    assert refused.stdout == "not sure enough to answer\n"
    assert f'the best reply, "{WRONG}", is probably wrong: about 5 in 100 such answers are' in refused.stderr
    assert run(*asked("--wrong-cost", "0")).stdout == f"{WRONG}\n"
    assert document(*asked("--wrong-cost", "2"))["refused"]
    assert "wrong_cost is a number from 0 on" in complaint(*asked("--wrong-cost", "-1"))
    assert "has learned no price" in complaint(*asked("--wrong-cost", "1", "--router", "evidence-fit"))
    shown, code = at_terminal(asked("--wrong-cost", "0"))
    assert code == 0
    assert "probably wrong: about 5 in 100 such answers are\r\n\r\n" in shown
