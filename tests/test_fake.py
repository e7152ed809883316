"""The fake model: what is queued is what it says, and it remembers what it was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.errors import InputError, RateLimitError
from retcon.model import Ask, Chat, FakeChat, Reply, chat
from retcon.tokens import counter


def ask(text: str) -> Ask:
    return Ask(({"role": "user", "content": text},), max_tokens=10)


def test_replies_come_in_the_order_they_were_queued_and_asks_are_kept() -> None:
    limit = RateLimitError("slow down", 2.0)
    fake = FakeChat(["one", limit, lambda asked: asked.messages[0]["content"].upper()])
    asks = [ask("a"), ask("b"), ask("c")]
    first, second, third = fake(asks)
    assert isinstance(first, Reply)
    assert isinstance(third, Reply)
    assert (first.text, second, third.text) == ("one", limit, "C")
    assert fake.asked == asks


def test_a_rule_answers_every_ask() -> None:
    fake = FakeChat(lambda asked: asked.messages[-1]["content"][::-1], name="mirror")
    replies = fake([ask("abc"), ask("de")]) + fake([ask("f")])
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == ["cba", "ed", "f"]
    assert fake.name == "mirror"


def test_an_exhausted_queue_is_a_clear_error() -> None:
    fake = FakeChat(["only one"], name="short")
    fake([ask("a")])
    with pytest.raises(InputError, match="'short' was asked 2 times and has no reply left"):
        fake([ask("b")])


@given(st.text(), st.text())
def test_tokens_are_counted_by_the_estimate(prompt: str, text: str) -> None:
    count = counter("estimate")
    (reply,) = FakeChat([text])([ask(prompt)])
    assert reply == Reply(text, count(prompt), count(text), 0.0, "stop")


def test_a_fake_is_a_chat_and_chat_passes_it_through() -> None:
    fake = FakeChat()
    assert isinstance(fake, Chat)
    assert chat(fake) is fake


@pytest.mark.parametrize("spec", ["", "gpt-4", "model.bin", 7, print, object()])
def test_an_unknown_model_is_one_clear_line(spec: object) -> None:
    with pytest.raises(InputError, match="model") as caught:
        chat(spec)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
