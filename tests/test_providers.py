"""A model by its provider's name: the right address, the right key, and a clear word where one is missing."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import document, fine, run
from hypothesis import given
from hypothesis import strategies as st
from local_model import needs_local_model
from misbehaving import Server, completion, says

from retcon import Memory
from retcon.errors import InputError, MissingExtraError
from retcon.model import GgufChat, HttpChat, chat, is_endpoint, providers
from retcon.model.http import Endpoint
from retcon.model.providers import PROVIDERS, Provider

HOSTED = {name: each for name, each in PROVIDERS.items() if each.key}
LOCAL = {name: each for name, each in PROVIDERS.items() if not each.key}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETCON_API_KEY", "RETCON_MODEL", "RETCON_MODEL_NAME", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for each in HOSTED.values():
        monkeypatch.delenv(str(each.key), raising=False)


def opened(spec: str, **options: Any) -> HttpChat:
    model = chat(spec, **options)
    assert isinstance(model, HttpChat)
    return model


@pytest.mark.parametrize("name", HOSTED)
def test_a_hosted_model_has_its_providers_address_and_its_key_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in HOSTED:
        monkeypatch.setenv(str(HOSTED[each].key), f"sk-of-{each}")
    model = opened(f"{name}:some/model:8b")
    assert (model.endpoint.base, model.name) == (HOSTED[name].base, "some/model:8b")
    assert model.endpoint.base.startswith("https://")
    assert model.endpoint.key == f"sk-of-{name}"


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_model_is_on_this_machine_and_needs_no_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in HOSTED.values():
        monkeypatch.setenv(str(each.key), "sk-of-somebody")
    model = opened(f"{name}:llama3.2")
    assert (model.endpoint.base, model.name) == (LOCAL[name].base, "llama3.2")
    assert model.endpoint.base.startswith("http://localhost:")
    assert model.endpoint.key is None
    monkeypatch.setenv("RETCON_API_KEY", "sk-retcon")
    assert opened(f"{name}:llama3.2").endpoint.key == "sk-retcon"  # a server of one's own may want one


@pytest.mark.parametrize("url", ["https://example.org/v1", "http://localhost:8000/v1", "https://api.groq.com.evil.org"])
def test_no_providers_key_goes_to_another_host(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in HOSTED.values():
        monkeypatch.setenv(str(each.key), "sk-of-somebody")
    assert opened(url, name="m").endpoint.key is None
    with Memory(":memory:", model=url, model_name="m") as memory:
        assert isinstance(memory.chat, HttpChat)
        assert memory.chat.endpoint.key is None


@pytest.mark.parametrize("name", HOSTED)
def test_a_providers_key_goes_to_its_url_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(str(HOSTED[name].key), "sk-right")
    assert opened(HOSTED[name].base, name="m").endpoint.key == "sk-right"
    monkeypatch.setenv("RETCON_API_KEY", "sk-retcon")
    assert opened(HOSTED[name].base, name="m").endpoint.key == "sk-retcon"
    assert opened(HOSTED[name].base, name="m", key="sk-given").endpoint.key == "sk-given"


@pytest.mark.parametrize("url", [
    "http://api.openai.com/v1", "https://api.openai.com:444/v1", "http://api.openai.com:443/v1",
    "https://api.openai.com.:443/v1", "https://api.openai.com:x/v1",
])  # fmt: skip
def test_a_providers_key_goes_to_no_other_scheme_or_port(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-own")
    assert providers.find_key(url) is None
    assert providers.find_key("https://API.openai.com:443/v1/") == "sk-own"  # the same origin, written otherwise


def test_the_key_of_a_local_address_goes_to_its_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-own")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:4000/v1")
    assert opened("http://localhost:4000/v1", name="m").endpoint.key == opened("openai:m").endpoint.key == "sk-own"
    for other in ("http://localhost:11434/v1", "http://localhost/v1", "https://localhost:4000/v1"):
        assert opened(other, name="m").endpoint.key is None


def test_a_providers_key_is_not_sent_in_the_clear_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-own")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://proxy.example.org/v1")
    assert opened("http://proxy.example.org/v1", name="m").endpoint.key is None
    with pytest.raises(InputError, match=r"OPENAI_API_KEY is not sent over plain HTTP to http://proxy\.example"):
        opened("openai:m")
    monkeypatch.setenv("RETCON_API_KEY", "sk-retcon")  # the caller's word for the model that is named
    assert opened("openai:m").endpoint.key == "sk-retcon"


@pytest.mark.parametrize("name", HOSTED)
def test_a_missing_key_names_the_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as caught:
        Memory(":memory:", model=f"{name}:m")
    assert str(caught.value) == f"{name}:m needs a key: set {HOSTED[name].key}"
    assert opened(f"{name}:m", key="sk-given").endpoint.key == "sk-given"
    monkeypatch.setenv("RETCON_API_KEY", "sk-retcon")
    assert opened(f"{name}:m").endpoint.key == "sk-retcon"
    monkeypatch.setenv(str(HOSTED[name].key), "sk-own")
    assert opened(f"{name}:m").endpoint.key == "sk-own"


def test_openai_may_have_another_address_as_its_own_client_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert opened("openai:m").endpoint.base == "http://127.0.0.1:9/v1"
    assert opened("openai:m").endpoint.key is None  # a server of one's own may do without
    monkeypatch.setenv("OPENAI_API_KEY", "sk-there")
    assert opened("openai:m").endpoint.key == "sk-there"
    assert opened("https://api.openai.com/v1", name="m").endpoint.key is None


def test_an_unknown_provider_says_which_are_known() -> None:
    with pytest.raises(InputError) as caught:
        chat("acme:gpt")
    assert str(caught.value) == f"unknown provider 'acme': one of {', '.join(PROVIDERS)}, or a base URL"
    with pytest.raises(InputError, match="unknown model 'gpt'"):
        chat("gpt")


@pytest.mark.parametrize("spec", ["openai:", "ollama: ", "OLLAMA:"])
def test_a_provider_without_a_model_is_told(spec: str) -> None:
    with pytest.raises(InputError, match=r"name the model too: (openai|ollama):NAME"):
        chat(spec)


def test_two_names_for_one_model_are_refused() -> None:
    assert opened("ollama:llama3.2", name="llama3.2").name == "llama3.2"
    with pytest.raises(InputError, match="two names"):
        Memory(":memory:", model="ollama:llama3.2", model_name="qwen")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'retcon-memory\[http\]'"):
        Memory(":memory:", model="ollama:llama3.2")


@pytest.mark.parametrize(
    "path", ["C:\\models\\q.gguf", "C:/models/q.gguf", "./a.gguf", "model.gguf", "https://host/v1", "http://[::1]:80"]
)
def test_a_path_or_a_url_names_no_provider(path: str) -> None:
    assert providers.split(path) is None


@pytest.mark.parametrize("spec", ["Ollama:llama3.2", " ollama:llama3.2", "ollama: llama3.2 "])
def test_a_name_is_taken_as_people_write_it(spec: str) -> None:
    assert opened(spec).name == "llama3.2"


@given(st.text(max_size=30), st.sampled_from(["", *PROVIDERS, "acme"]))
def test_any_text_after_a_known_provider_is_a_model_there_and_after_no_other(text: str, name: str) -> None:
    with contextlib.suppress(InputError):  # a provider without a model
        found = is_endpoint(f"{name}:{text}")
        assert found == (name in PROVIDERS and text[:1] not in ("/", "\\"))


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_address_of_the_table_is_a_base_url_as_it_is_posted_to(name: str) -> None:
    assert Endpoint(PROVIDERS[name].base).base == PROVIDERS[name].base


def test_the_page_about_models_lists_the_table() -> None:
    page = (Path(__file__).parents[1] / "docs/models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| `{name}` |" for name in PROVIDERS))]
    assert len(rows) == len(PROVIDERS)
    for row, (name, each) in zip(rows, PROVIDERS.items(), strict=True):
        assert row.startswith(f"| `{name}` | `{each.base}`")
        assert row.endswith(f"| `{each.key}` |" if each.key else "| none |")


# -- asked for real ----------------------------------------------------------------------------------------------------


@pytest.fixture
def as_ollama(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that stands where Ollama would."""
    with Server(always=says(completion("Pixel"))) as server:
        monkeypatch.setitem(PROVIDERS, "ollama", Provider(server.base))
        yield server


def test_a_memory_asks_the_model_that_was_named(path: Path, as_ollama: Server) -> None:
    with Memory(path, model="ollama:llama3.2") as memory:
        memory.add("a cat named Pixel")
        assert memory.ask("Which cat?", 64).text == "Pixel"
    assert {seen.body["model"] for seen in as_ollama.seen} == {"llama3.2"}
    assert all("authorization" not in seen.headers for seen in as_ollama.seen)


def test_the_command_line_takes_the_name_as_option_or_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(always=says(completion("Pixel"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        monkeypatch.setenv("RETCON_DB", str(tmp_path / "m.db"))
        fine("add", "a cat named Pixel")
        assert document("ask", "Which cat?", "--model", "openai:gpt-4o-mini")["answer"] == "Pixel"
        monkeypatch.setenv("RETCON_MODEL", "openai:gpt-4o-mini")
        monkeypatch.setenv("RETCON_MODEL_NAME", "of another endpoint")
        assert fine("ask", "Which cat is it?") == "Pixel\n"
        assert {seen.body["model"] for seen in server.seen} == {"gpt-4o-mini"}
        report = document("doctor", "--check-model")["model"]
        assert (report["model"], report["name"], report["reply"]["text"]) == (
            "openai:gpt-4o-mini", "gpt-4o-mini", "Pixel",
        )  # fmt: skip
    monkeypatch.delenv("OPENAI_BASE_URL")
    for arguments in (["ask", "cat"], ["doctor"]):
        told = run(*arguments)
        assert "openai:gpt-4o-mini needs a key: set OPENAI_API_KEY" in told.stdout + told.stderr


@needs_local_model
def test_a_real_local_server_answers_under_its_providers_name(
    local: GgufChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROVIDERS, "llamacpp", Provider(local.served.base))
    with Memory(tmp_path / "m.db", model="llamacpp:smollm2", api_key=local.served.key, timeout=300) as memory:
        memory.add("I adopted a cat named Pixel.")
        *looks, answer = memory.ask_stream("What is the cat called?", 40, max_looks=2)
    assert looks
    assert answer.usage.completion_tokens > 0
