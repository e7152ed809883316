"""The endpoint adapter against a real server that misbehaves: every failure has its type."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from misbehaving import (
    Behaviour,
    Handler,
    Server,
    completion,
    cut_off,
    drips,
    drips_headers,
    hangs_up,
    held,
    not_http,
    says,
    sends,
    slow,
)
from waiting import until

from retcon import Memory, deadline
from retcon.cache import CachedChat
from retcon.errors import (
    AuthError,
    ContextTooLongError,
    DeadlineError,
    InputError,
    MalformedReplyError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitError,
)
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, Chat, Embed, HttpChat, HttpEmbed, Reply, chat
from retcon.model.http import LONGEST_WAIT, Endpoint, retry_after

KEY = "sk-canary-0123456789abcdef"
ASK = Ask(({"role": "user", "content": "Where is the cat?"},), max_tokens=20)


class Waits:
    """A sleep that only writes down, so that no test waits."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def waits() -> Waits:
    return Waits()


def client(server: Server, waits: Waits, **options: Any) -> HttpChat:
    return HttpChat(server.base, "m", key=KEY, **{"sleep": waits, "chance": lambda: 0.5, "timeout": 60.0, **options})


def one(model: HttpChat, ask: Ask = ASK) -> Reply | ModelError:
    (found,) = model([ask])
    model.close()
    return found


def test_a_reply_carries_text_usage_seconds_and_finish(server: Server, waits: Waits) -> None:
    reply = one(client(server, waits))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.finish) == ("fine", 7, 2, "stop")
    assert 0 < reply.seconds < 10
    assert reply.logprob is None


def test_the_request_says_what_the_ask_says(server: Server, waits: Waits) -> None:
    ask = Ask(({"role": "system", "content": "s"}, {"role": "user", "content": "ü"}), 33, 0.7, seed=5, logprobs=True)
    assert isinstance(one(client(server, waits), ask), Reply)
    (seen,) = server.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "ü"}],
        "max_tokens": 33, "temperature": 0.7, "seed": 5, "logprobs": True, "top_logprobs": 1, "stream": False,
    }  # fmt: skip


def test_without_a_key_no_authorization_is_sent(server: Server) -> None:
    one(HttpChat(server.base, "m"))
    assert "authorization" not in server.seen[0].headers


def test_length_and_logprobs_are_read(server: Server, waits: Waits) -> None:
    plain = completion("a b")
    plain["choices"][0] |= {"finish_reason": "length", "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -3}]}}
    server.queue.append(says(plain))
    reply = one(client(server, waits))
    assert isinstance(reply, Reply)
    assert (reply.finish, reply.logprob) == ("length", -2.0)


@pytest.mark.parametrize("usage", [None, "x", {}, {"prompt_tokens": -1, "completion_tokens": True}])
def test_missing_usage_is_estimated(server: Server, waits: Waits, usage: object) -> None:
    server.queue.append(says(completion("two words", usage=usage)))
    reply = one(client(server, waits))
    assert isinstance(reply, Reply)
    assert reply.prompt_tokens >= 4
    assert reply.completion_tokens >= 2


def echo(handler: Any) -> None:
    handler.reply(200, json.dumps(completion(handler.asked["messages"][0]["content"])).encode())


@settings(max_examples=5)
@given(st.lists(st.text(), min_size=10, max_size=40))
def test_any_text_arrives_and_comes_back_as_it_was_sent(texts: list[str]) -> None:
    with Server(always=echo) as server:
        model = HttpChat(server.base, "m")
        found = model([Ask(({"role": "user", "content": text},), 5) for text in texts])
        model.close()
    assert [reply.text for reply in found if isinstance(reply, Reply)] == texts


def test_half_a_surrogate_pair_becomes_text_that_can_be_stored(server: Server, waits: Waits) -> None:
    server.queue.append(sends(json.dumps(completion("a\ud83d")).encode()))
    reply = one(client(server, waits), Ask(({"role": "user", "content": "\udc00"},), 5))
    assert isinstance(reply, Reply)
    assert reply.text.encode() == b"a?"


# -- failures that may pass ------------------------------------------------------------------------------------------

PASSING: dict[str, tuple[Behaviour, type[ModelError]]] = {
    "408": (says({"error": "slow"}, 408), ModelTimeoutError),
    "409": (says({"error": "busy"}, 409), ModelUnavailableError),
    "429": (says({"error": {"message": "slow down"}}, 429), RateLimitError),
    "500": (sends(b"oops", 500), ModelUnavailableError),
    "503": (sends(b"", 503), ModelUnavailableError),
    "cut off": (cut_off, ModelUnavailableError),
    "hangs up": (hangs_up, ModelUnavailableError),
    "not http": (not_http, ModelUnavailableError),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_failure_that_passes_is_retried_to_success(server: Server, waits: Waits, name: str) -> None:
    server.queue.extend([PASSING[name][0]] * 2)
    reply = one(client(server, waits))
    assert isinstance(reply, Reply), reply
    assert len(server.seen) == 3
    assert waits.seconds == [0.25, 0.5]  # half of 0.5, half of 1


@pytest.mark.parametrize("name", PASSING)
def test_a_failure_that_stays_ends_in_its_type_after_the_retries(server: Server, waits: Waits, name: str) -> None:
    behave, kind = PASSING[name]
    server.always = behave
    found = one(client(server, waits, retries=3))
    assert type(found) is kind
    assert len(server.seen) == 4
    assert waits.seconds == [0.25, 0.5, 1.0]
    assert "\n" not in str(found)


def test_backoff_is_full_jitter_under_a_doubling_bound(server: Server, waits: Waits) -> None:
    server.always = sends(b"", 500)
    chances = iter([0.0, 1.0, 0.25, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    one(client(server, waits, retries=9, chance=lambda: next(chances), timeout=500))
    assert waits.seconds == [0.0, 1.0, 0.5, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_retry_after_in_seconds_is_waited_for(server: Server, waits: Waits) -> None:
    server.queue.append(says({}, 429, retry_after="7"))
    assert isinstance(one(client(server, waits, timeout=60)), Reply)
    assert waits.seconds == [7.25]


def test_retry_after_as_a_date_is_waited_for(server: Server, waits: Waits) -> None:
    server.queue.append(says({}, 503, retry_after=formatdate(1_000_012, usegmt=True)))
    assert isinstance(one(client(server, waits, timeout=60, now=lambda: 1_000_000.0)), Reply)
    assert waits.seconds == [12.25]


def test_retry_after_is_capped_and_kept_in_the_error(server: Server, waits: Waits) -> None:
    server.always = says({}, 429, retry_after="86400")
    found = one(client(server, waits, timeout=100, retries=1))
    assert isinstance(found, RateLimitError)
    assert found.retry_after == 86400
    assert waits.seconds == [LONGEST_WAIT]


@given(st.text() | st.floats().map(str) | st.sampled_from(["-3", "1e400", "nan", "Wed, 99 Foo 2026 00:00:00 GMT", ""]))
def test_any_retry_after_gives_a_finite_wait_or_none(value: str) -> None:
    found = retry_after(value, 0.0)
    assert found is None or 0 <= found < float("inf")


def test_used_up_quota_is_not_retried(server: Server, waits: Waits) -> None:
    server.always = says({"error": {"code": "insufficient_quota", "message": "pay first"}}, 429)
    assert isinstance(one(client(server, waits)), RateLimitError)
    assert len(server.seen) == 1


def test_no_server_at_all_is_unavailable(waits: Waits) -> None:
    with Server() as gone:
        pass
    found = one(client(gone, waits, retries=1))
    assert type(found) is ModelUnavailableError
    assert "refused" in str(found)


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a reply waits for; set at the end of a test, so that one which waited for the reply would never end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("behave", [held, drips, drips_headers], ids=["silent", "drips", "drips headers"])
def test_a_slow_reply_ends_at_the_deadline_however_it_is_slow(
    server: Server, waits: Waits, behave: Callable[[threading.Event], Behaviour], release: threading.Event
) -> None:
    server.always = behave(release)
    found = one(client(server, waits, timeout=60, attempt=0.5, retries=1))
    assert type(found) is ModelTimeoutError
    assert "within 0.5 s" in str(found)
    until(lambda: len(server.seen) == 2)


def test_a_slow_reply_is_retried(server: Server, waits: Waits, release: threading.Event) -> None:
    server.queue.append(held(release))
    assert isinstance(one(client(server, waits, timeout=120, attempt=2)), Reply)
    assert len(server.seen) > 1


def test_a_pause_that_lasts_past_the_time_out_leaves_the_failure_before_it(server: Server) -> None:
    class Overslept:
        """A clock, and a sleep that a busy machine makes far too long."""

        now = 0.0

        async def __call__(self, seconds: float) -> None:
            self.now += 1000

    server.always = says({"error": {"message": "down"}}, 503)
    slept = Overslept()
    model = HttpChat(server.base, "m", sleep=slept, clock=lambda: slept.now, chance=lambda: 0.5, timeout=60)
    found = one(model)
    assert type(found) is ModelUnavailableError
    assert "503 down" in str(found)
    assert len(server.seen) == 1


def test_no_message_tells_of_less_than_no_time(server: Server, waits: Waits) -> None:
    ticks = iter([0.0, 0.0])  # then all of the time has passed within one attempt
    model = client(server, waits, clock=lambda: next(ticks, 1000.0), retries=0)
    found = one(model)
    assert type(found) is ModelTimeoutError
    assert "within 0 s" in str(found)


def test_all_retries_together_end_within_the_time_out(server: Server, waits: Waits) -> None:
    server.always = says({}, 429, retry_after="20")
    found = one(client(server, waits, timeout=15.0))
    assert isinstance(found, RateLimitError)
    assert waits.seconds == []  # a wait past the time-out is not begun
    assert len(server.seen) == 1


# -- failures that stay ----------------------------------------------------------------------------------------------

SHAPES: dict[str, Any] = {
    "list": [],
    "null": None,
    "no choices": {"object": "chat.completion"},
    "empty choices": completion(choices=[]),
    "choices text": completion(choices="fine"),
    "choice null": completion(choices=[None]),
    "no message": completion(choices=[{"text": "fine"}]),
    "message text": completion(choices=[{"message": "fine"}]),
    "content null": completion(None),
    "content number": completion(7),
    "content parts": completion([{"type": "text", "text": "fine"}]),
    "error with 200": {"error": {"message": "no"}},
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_shape_is_malformed_and_not_retried(server: Server, waits: Waits, name: str) -> None:
    server.always = says(SHAPES[name])
    assert type(one(client(server, waits))) is MalformedReplyError
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\xfe", b'{"choices": [', b"[" * 100_000, b"NaN nan"], ids=lambda body: repr(body[:9])
)
def test_a_body_that_is_not_json_is_malformed(server: Server, waits: Waits, body: bytes) -> None:
    server.always = sends(body)
    assert type(one(client(server, waits))) is MalformedReplyError


def test_ten_megabytes_are_malformed_and_not_read_to_their_end(server: Server, waits: Waits) -> None:
    server.always = says(completion("x" * 10_000_000))
    found = one(client(server, waits))
    assert type(found) is MalformedReplyError
    assert "4194304" in str(found)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_json_is_a_reply_or_malformed(plain: object) -> None:
    model = HttpChat("http://127.0.0.1:9", "m")
    for found in (plain, {"choices": plain}, completion(plain), completion(usage=plain), completion(choices=[plain])):
        assert type(model._reply(ASK, found, 0.1)) in (Reply, MalformedReplyError)


numbers = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(), st.none(),
    st.sampled_from([2**31, 2**31 - 1, 2**63, -1, 10**400, -(10**400), 1e308, float("nan"), float("inf"), "7", 7.0]),
)  # fmt: skip
OWN = ("prompt_tokens", "completion_tokens", "content", "logprobs", "finish_reason", "message", "usage", "choices")
wild = st.recursive(
    numbers, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(OWN), each, max_size=4)
)


def hostile(tokens: Any, logprobs: Any, finish: Any, usage: Any) -> dict[str, Any]:
    """A reply in the protocol's shape whose numbers are anything."""
    choice = {"message": {"content": "fine"}, "finish_reason": finish, "logprobs": logprobs}
    told = {"prompt_tokens": tokens, "completion_tokens": tokens} if usage is None else usage
    return {"choices": [choice], "usage": told}


@given(numbers, st.lists(st.fixed_dictionaries({"logprob": numbers})), wild, st.none() | wild)
def test_numbers_of_a_hostile_endpoint_are_numbers_or_estimated(
    tokens: Any, values: list[Any], finish: Any, usage: Any
) -> None:
    model = HttpChat("http://127.0.0.1:9", "m")
    found = model._reply(ASK, hostile(tokens, {"content": values}, finish, usage), 0.1)
    assert isinstance(found, Reply)
    for count in (found.prompt_tokens, found.completion_tokens):
        assert type(count) is int
        assert 0 <= count < 2**31
    assert found.logprob is None or math.isfinite(found.logprob)
    assert found.finish in ("stop", "length")


@given(wild)
def test_any_shape_of_a_reply_is_a_reply_or_malformed(plain: Any) -> None:
    model = HttpChat("http://127.0.0.1:9", "m")
    found = [plain, hostile(plain, plain, plain, plain), {"choices": [{"message": plain}]}, {"choices": [plain]}]
    for each in found:
        assert type(model._reply(ASK, each, 0.1)) in (Reply, MalformedReplyError)


@pytest.mark.parametrize("tokens", [2**63, -1, 1e300, "9", True, [7]])
def test_usage_that_cannot_be_does_not_reach_the_store(server: Server, tmp_path: Path, tokens: Any) -> None:
    server.always = says(completion("Pixel", usage={"prompt_tokens": tokens, "completion_tokens": tokens}))
    with Memory(tmp_path / "m.db", model=server.base, model_name="m") as memory:
        memory.add("a cat named Pixel")
        answer = memory.ask("Which cat?", 64)
        assert answer.text == "Pixel"
        assert 0 < answer.usage.tokens < 1_000
        json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.parametrize("number", ["9" * 5_000, "1e999", "NaN", "-Infinity"])
def test_numbers_that_are_no_json_or_none_are_told_or_passed_over(server: Server, waits: Waits, number: str) -> None:
    body = json.dumps(completion("fine", usage={"prompt_tokens": "HERE"})).replace('"HERE"', number)
    server.always = sends(body.encode())
    found = one(client(server, waits))
    assert type(found) is MalformedReplyError or (isinstance(found, Reply) and found.prompt_tokens < 100)


@dataclass
class Odd:
    """A model that says this wherever a number belongs."""

    value: Any
    name: str = "odd"
    kind: str = "odd"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return [Reply("fine", self.value, self.value, self.value, "stop", self.value)] * len(asks)


@pytest.mark.parametrize("odd", [2**63, float("nan"), "many", None, -5])
def test_reply_of_any_model_is_kept_with_numbers_that_can_be(tmp_path: Path, odd: Any) -> None:
    with contextlib.closing(ReplyCache(tmp_path / "r.db")) as cache:
        CachedChat(Odd(odd), cache, "1")([ASK])
        (kept,) = CachedChat(Odd(odd), cache, "1")([ASK])
        assert kept == Reply("fine", 0, 0, 0.0, "stop", None)


@pytest.mark.parametrize(
    "row", [[10**400, 1.0], [1e308, 1e308], [1e-308, 1e-308], ["1", 2], [float("nan"), 1.0], [True, None], "ab", {}]
)
@pytest.mark.parametrize("index", [0, 1e999, "0", 10**400])
def test_vectors_of_a_hostile_endpoint_have_length_one_or_are_malformed(server: Server, row: Any, index: Any) -> None:
    server.always = sends(json.dumps({"data": [{"index": index, "embedding": row}]}).encode())
    embed = HttpEmbed(server.base, "m", dim=2)
    with contextlib.closing(embed), contextlib.suppress(MalformedReplyError):
        assert np.linalg.norm(embed(["words"])[0]) == pytest.approx(1.0)


def test_a_vector_of_huge_numbers_has_length_one(server: Server) -> None:
    server.always = sends(json.dumps({"data": [{"index": 0, "embedding": [1e308, 1e308]}]}).encode())
    with contextlib.closing(HttpEmbed(server.base, "m", dim=2)) as embed:
        assert embed(["words"])[0] == pytest.approx([0.5**0.5] * 2)


# -- time that is over -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["slow", "retries"])
def test_an_ask_waits_no_longer_than_its_caller_has_time(server: Server, how: str) -> None:
    server.always = slow(30) if how == "slow" else says({"error": "later"}, 429, retry_after="30")
    model = HttpChat(server.base, "m", timeout=60, concurrency=1)
    with pytest.raises(DeadlineError), deadline.until(time.monotonic() + 0.3):
        model([ASK])
    server.always = says(completion())
    assert isinstance(one(model), Reply), "the one connection is free for the next caller"


def test_a_wait_that_takes_longer_than_was_left_ends_in_the_first_error(server: Server) -> None:
    """A machine that is busy wakes up late: no attempt is made for less than no time."""
    server.always = says({"error": "no"}, 500)
    times = iter([0.0, 0.0, 0.1, 0.2, 10_000.0, 10_000.0, 10_000.0])

    async def late(_: float) -> None:
        pass

    model = HttpChat(server.base, "m", sleep=late, clock=lambda: next(times), timeout=10.0)
    found = one(model)
    assert type(found) is ModelUnavailableError
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, ModelError), (401, AuthError), (403, AuthError), (404, ModelError), (405, ModelError), (204, ModelError)],
)
def test_a_refusal_is_final(server: Server, waits: Waits, status: int, kind: type[ModelError]) -> None:
    server.always = sends(b"", status)
    assert type(one(client(server, waits))) is kind
    assert len(server.seen) == 1


# Words of the servers' own sources.
TOO_LONG = {
    "openai": (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, ...",
                               "type": "invalid_request_error", "param": "messages",
                               "code": "context_length_exceeded"}}),
    "vllm": (400, {"object": "error", "type": "BadRequestError", "code": 400, "param": None,
                   "message": "This model's maximum context length is 4096 tokens. However, you requested 5000"}),
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 2048,
                                  "message": "request (5031 tokens) exceeds the available context size (2048)"}}),
    "ollama": (400, {"error": {"message": "input length exceeds the context length", "type": "api_error"}}),
    "anthropic": (413, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LONG)
def test_too_long_a_context_is_recognised_in_every_servers_words(server: Server, waits: Waits, name: str) -> None:
    status, body = TOO_LONG[name]
    server.always = says(body, status)
    assert type(one(client(server, waits))) is ContextTooLongError
    assert len(server.seen) == 1


def test_a_parameter_that_a_model_refuses_is_sent_as_it_wants_it(server: Server, waits: Waits) -> None:
    said = {"code": "unsupported_parameter", "message": "Use 'max_completion_tokens' instead", "param": "max_tokens"}
    server.queue.append(says({"error": said}, 400))
    server.queue.append(says({"error": {"code": "unsupported_value", "param": "temperature"}}, 400))
    model = client(server, waits)
    assert all(isinstance(found, Reply) for found in model([ASK]) + model([ASK]))
    model.close()
    assert [sorted(seen.body) for seen in server.seen[2:]] == [
        ["max_completion_tokens", "messages", "model", "stream"]
    ] * 2
    assert server.seen[2].body["max_completion_tokens"] == 20


def test_a_parameter_refused_again_and_again_ends(server: Server, waits: Waits) -> None:
    server.always = says({"error": {"code": "unsupported_parameter", "param": "max_tokens", "message": "no"}}, 400)
    assert type(one(client(server, waits))) is ModelError
    assert len(server.seen) == 2


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(server: Server, waits: Waits) -> None:
    with Server() as other:
        server.always = sends(b"", 307, location=f"{other.base}/chat/completions")
        found = one(client(server, waits))
        assert type(found) is ModelError
        assert "redirect" in str(found)
        assert other.seen == []


# -- batches ---------------------------------------------------------------------------------------------------------


def numbered(count: int) -> list[Ask]:
    return [Ask(({"role": "user", "content": str(i)},), 5) for i in range(count)]


def test_a_batch_keeps_its_order_and_an_error_stands_in_its_place(waits: Waits) -> None:
    def answer(handler: Any) -> None:
        asked = handler.asked["messages"][0]["content"]
        if asked == "3":
            handler.reply(400, b"{}")
        else:
            time.sleep(0.03 if int(asked) % 2 else 0)
            handler.reply(200, json.dumps(completion(asked)).encode())

    with Server(always=answer) as server:
        model = client(server, waits)
        found = model(numbered(12))
        model.close()
    assert [reply.text if isinstance(reply, Reply) else type(reply) for reply in found] == [
        *"012", ModelError, *"456789", "10", "11",
    ]  # fmt: skip


def test_concurrency_never_exceeds_the_bound_over_all_threads(server: Server, waits: Waits) -> None:

    def all_three(handler: Handler) -> None:
        until(lambda: server.peak == 3)
        says(completion())(handler)

    server.always = all_three
    model = client(server, waits, concurrency=3)
    out: list[int] = []
    threads = [threading.Thread(target=lambda: out.append(len(model(numbered(10))))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.close()
    assert out == [10] * 4
    assert server.peak == 3


def test_concurrency_holds_while_requests_fail(server: Server, waits: Waits) -> None:
    server.always = slow(0.05)
    server.queue.extend([sends(b"", 500), slow(0.05, cut_off), says({}, 429, retry_after="1")] * 5)
    model = client(server, waits, concurrency=4, retries=15, timeout=60)
    found = model(numbered(30))
    model.close()
    assert all(isinstance(reply, Reply) for reply in found)
    assert len(server.seen) == 45
    assert server.peak == 4


def test_an_empty_batch_asks_nobody(server: Server, waits: Waits) -> None:
    assert client(server, waits)([]) == []
    assert server.seen == []


def test_a_closed_model_opens_again_when_asked(server: Server, waits: Waits) -> None:
    model = client(server, waits)
    before = threading.active_count()
    assert isinstance(one(model), Reply)
    assert threading.active_count() <= before + 1  # the server's own threads come and go
    assert isinstance(one(model), Reply)


def test_a_model_that_is_forgotten_takes_its_thread_with_it(server: Server, waits: Waits) -> None:
    model = client(server, waits)
    model([ASK])
    assert any(thread.name == "retcon-http" for thread in threading.enumerate())
    del model
    assert not any(thread.name == "retcon-http" for thread in threading.enumerate())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks beside threads; that is the test
def test_a_forked_child_can_ask_too(server: Server, waits: Waits) -> None:
    model = client(server, waits)
    assert isinstance(model([ASK])[0], Reply)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(model([ASK])[0], Reply) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    model.close()


def test_a_batch_may_be_asked_from_inside_an_event_loop(server: Server, waits: Waits) -> None:
    async def inside() -> Reply | ModelError:
        return one(client(server, waits))

    assert isinstance(asyncio.run(inside()), Reply)


# -- specs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_base", "base"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1"),
        ("https://host/api/v1/chat/completions", "https://host/api/v1"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai"),
        ("HTTP://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_a_base_url_is_taken_as_people_write_it(given_base: str, base: str) -> None:
    assert Endpoint(given_base).base == base


@pytest.mark.parametrize(
    "bad", ["", "http://", "ftp://host", "http://ho st", "http://host:99999999", "http://[", "localhost:8000"]
)
def test_a_bad_base_url_is_one_line(bad: str) -> None:
    with pytest.raises(InputError) as caught:
        Endpoint(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"concurrency": 0}, {"retries": -1}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        chat("http://localhost", name="m", **options)


def test_chat_takes_a_url_with_a_name(server: Server) -> None:
    model = chat(server.base, name="m", key=KEY, timeout=5, concurrency=2, retries=0)
    assert isinstance(model, HttpChat)
    assert isinstance(model, Chat)
    assert (model.kind, model.name) == ("http", "m")
    assert isinstance(one(model), Reply)
    with pytest.raises(InputError, match="model_name"):
        chat(server.base)


def test_httpx_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[http\]"):
        HttpChat("http://localhost", "m")


# -- embeddings ------------------------------------------------------------------------------------------------------


def vectors(handler: Any) -> None:
    texts = handler.asked["input"]
    rows = [{"index": i, "embedding": [float(len(text)), 3.0, 4.0]} for i, text in enumerate(texts)]
    handler.reply(200, json.dumps({"data": rows[::-1]}).encode())


def test_embeddings_have_length_one_keep_their_order_and_skip_texts_without_words(server: Server) -> None:
    server.always = vectors
    embed = HttpEmbed(server.base, "e", KEY, batch=2)
    assert isinstance(embed, Embed)
    rows = embed(["a", "", "bbb", "cc", "..."])
    assert rows.dtype == np.float32
    assert rows.shape == (5, 3) == (5, embed.dim)
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1, 0, 1, 1, 0])
    assert rows[2] == pytest.approx(np.array([3, 3, 4]) / np.sqrt(34))
    assert embed([]).shape == (0, 3)
    embed.close()
    assert all(len(seen.body["input"]) <= 2 for seen in server.seen)
    assert KEY not in repr(embed)


ROWS: list[Any] = [[], ["x"], [[1]], [float("nan")]]


@pytest.mark.parametrize("plain", [{}, [], {"data": []}, *({"data": [{"index": 0, "embedding": row}]} for row in ROWS)])
def test_malformed_vectors_raise(server: Server, plain: object) -> None:
    server.always = says(plain)
    embed = HttpEmbed(server.base, "e", KEY)
    with pytest.raises(MalformedReplyError):
        embed(["a cat"])
    embed.close()


def test_a_refused_key_raises_for_embeddings(server: Server) -> None:
    server.always = sends(b"no", 401)
    embed = HttpEmbed(server.base, "e", KEY)
    with pytest.raises(AuthError):
        embed(["a cat"])
    embed.close()
