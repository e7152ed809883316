"""The openai client, as it is, against the chat proxy in front of a real llama.cpp server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from local_model import needs_local_model
from misbehaving import Server, hangs_up
from serving import Served
from serving import served as serve
from test_proxy import ONE, events
from waiting import LONG

from retcon import Memory
from retcon.model import GgufChat
from retcon.server import Keys
from retcon.server.chat_memory import HEAD

pytestmark = needs_local_model
RULES = {"role": "system", "content": "You are brief."}
LONG_TURNS = [
    {"role": "user" if number % 2 == 0 else "assistant", "content": f"Turn {number}: " + "the river is wide today " * 6}
    for number in range(60)
]


@pytest.fixture
def running(tmp_path: Path, local: GgufChat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("MODEL_KEY", local.served.key)
    options = ("--proxy-key-env", "MODEL_KEY", "--proxy-recent", "100", "--proxy-budget", "120", "--max-seconds", "300")
    with serve(tmp_path / "a.db", "--proxy", local.served.base, *options) as server:
        yield server


@pytest.fixture
def client(running: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", timeout=LONG, max_retries=0) as opened:
        yield opened


def ask(client: openai.OpenAI, *messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="m", messages=list(messages), max_tokens=8, temperature=0, **more)


def ask_raw(client: openai.OpenAI, *messages: Any) -> Any:
    return client.chat.completions.with_raw_response.create(model="m", messages=list(messages), max_tokens=8)


def test_the_client_lists_models_asks_and_streams(client: openai.OpenAI, running: Served) -> None:
    question = {"role": "user", "content": "Say a word."}
    (model,) = client.models.list().data
    assert model.id
    plain = ask(client, RULES, question)
    assert plain.usage.completion_tokens <= 8
    with ask(client, RULES, question, stream=True) as parts:
        said = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert said == plain.choices[0].message.content != ""
    assert running.http.get("/memories").json()["total"] == 1


def test_a_conversation_that_is_too_long_for_the_model_is_answered_through_the_proxy(
    client: openai.OpenAI, local: GgufChat
) -> None:
    question = {"role": "user", "content": "How wide is the river?"}
    with (
        openai.OpenAI(base_url=local.served.base, api_key=local.served.key, max_retries=0) as direct,
        pytest.raises(openai.BadRequestError, match="context"),
    ):
        ask(direct, RULES, *LONG_TURNS, question)
    raw = ask_raw(client, RULES, *LONG_TURNS, question)
    found = raw.parse()
    assert found.choices[0].message.content
    assert found.usage.prompt_tokens < 400
    assert int(raw.headers["x-retcon-replaced"]) > 50
    assert 0 < int(raw.headers["x-retcon-tokens"]) <= 120


def test_a_fact_told_in_one_conversation_reaches_the_real_model_in_the_next(client: openai.OpenAI) -> None:
    ask(client, RULES, {"role": "user", "content": "My cat is called Pixel."})
    before = ask(client, {"role": "user", "content": "Zebra?"}).usage.prompt_tokens
    raw = ask_raw(client, {"role": "user", "content": "What is my cat called?"})
    usage = raw.parse().usage
    with Memory(":memory:") as memory:  # the model counts no more for memory than the budget says
        assert before + memory.count(HEAD) // 2 < usage.prompt_tokens <= before + 120
    assert raw.headers["x-retcon-sources"] == "1"


def test_an_error_of_the_model_is_the_clients_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="context"):
        ask(client, {"role": "user", "content": "word " * 3000})


def test_errors_of_the_proxy_are_the_clients_errors_in_plain_words(tmp_path: Path) -> None:
    question = {"role": "user", "content": "Hi."}
    with (
        Server(always=hangs_up) as broken,
        serve(tmp_path / "b.db", "--proxy", broken.base) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="cut off"):
            ask(client, question)
        with pytest.raises(openai.UnprocessableEntityError, match="messages is a list"):
            ask(client)
        broken.always = events(ONE + b'data: {"ha', end=False)
        with pytest.raises(openai.APIError, match="cut off"), ask(client, question, stream=True) as parts:
            list(parts)


def test_a_key_of_the_proxy_is_the_clients_api_key(tmp_path: Path, server: Server) -> None:
    keys = Keys(tmp_path / "c.db.keys")
    ann, _ = keys.add(user_id="ann")
    keys.close()
    with serve(tmp_path / "c.db", "--proxy", server.base) as running:
        with (
            openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as nobody,
            pytest.raises(openai.AuthenticationError),
        ):
            ask(nobody, {"role": "user", "content": "Hi."})
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key=ann, max_retries=0) as mine:
            assert ask(mine, {"role": "user", "content": "Hi."}).choices[0].message.content == "fine"
    assert "authorization" not in server.seen[0].headers
