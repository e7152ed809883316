"""A reranker orders the best notes anew; where it fails, nothing is lost and the caller is told."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from misbehaving import Server, held, says, sends

from retcon import Memory
from retcon import reranker as stage
from retcon.errors import InputError, MalformedReplyError, MissingExtraError, ModelError
from retcon.model.http_rerank import HttpRerank
from retcon.model.rerankers import PACKAGES, reranker
from retcon.reranker import DEPTH

NOTES = [f"The cat Pixel has check-up number {n}." for n in range(8)]


def by_last_number(query: str, texts: Sequence[str]) -> list[float]:
    """The last of them first."""
    return [float(text.rstrip(".").split()[-1]) for text in texts]


def remember(**options: Any) -> Memory:
    memory = Memory(":memory:", **options)
    memory.add(NOTES)
    return memory


def texts(memory: Memory) -> list[str]:
    return [hit.text for hit in memory.search("cat check-up", top_k=4)]


def test_a_function_orders_what_a_search_found() -> None:
    with remember(reranker=by_last_number) as memory:
        hits = memory.search("cat check-up", top_k=4)
        assert [hit.text for hit in hits] == NOTES[:3:-1]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert memory.recall("cat check-up", 12).sources[0].id == hits[0].id


def test_it_sees_the_best_fifty_with_their_speakers_and_passages() -> None:
    seen: list[str] = []

    def look(query: str, texts: Sequence[str]) -> np.ndarray:
        assert query == "cat"
        seen.extend(texts)
        return np.zeros(len(texts))

    long = " ".join(f"Box {n} holds the things of room {n % 3}, said the owner." for n in range(60)) + " The cat slept."
    with Memory(":memory:", reranker=look) as memory:
        memory.add([{"role": "user", "content": f"cat {n}"} for n in range(60)])
        memory.add(long)
        memory.search("cat", top_k=5)
    assert len(seen) == DEPTH
    assert all(text.startswith("user: ") or len(text) < len(long) / 2 for text in seen)


def test_notes_that_only_fill_up_stay_last() -> None:
    with Memory(":memory:", reranker=lambda query, texts: [float(len(text)) for text in texts]) as memory:
        for text in ("cat", "a cat again", "something else that is much longer than the others"):
            memory.add(text)
        assert [source.text for source in memory.recall("cat", 60, action="retain").sources] == [
            "a cat again", "cat", "something else that is much longer than the others",
        ]  # fmt: skip


@pytest.mark.parametrize(
    "gives", [lambda q, t: [1.0], lambda q, t: [float("nan")] * len(t), lambda q, t: "abc", lambda q, t: None]
)
def test_scores_that_are_none_leave_the_order_and_a_warning(gives: Any) -> None:
    with remember() as plain, remember(reranker=gives) as memory:
        with pytest.warns(UserWarning, match="reranker failed"):
            found = texts(memory)
        assert found == texts(plain)
        recall = memory.recall("cat check-up", 40)
        assert "the order before it stays" in recall.warnings[0]
        assert recall.text == plain.recall("cat check-up", 40).text


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def scores(handler: Any) -> None:
    found = by_last_number(handler.asked["query"], handler.asked["documents"])
    rows = [{"index": i, "relevance_score": score} for i, score in enumerate(found)]
    handler.reply(
        200, json.dumps({"model": "m", "results": sorted(rows, key=lambda row: -row["relevance_score"])}).encode()
    )


def test_an_endpoint_gets_what_jina_cohere_vllm_and_llama_cpp_take(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setenv("RETCON_API_KEY", "sk-mine")
    server.always = scores
    with remember(reranker=f"{server.base}/rerank#bge-reranker") as memory:
        assert texts(memory) == NOTES[:3:-1]
    (seen,) = server.seen
    assert (seen.path, seen.headers["authorization"]) == ("/v1/rerank", "Bearer sk-mine")
    assert sorted(seen.body) == ["documents", "model", "query", "top_n"]
    assert (seen.body["model"], seen.body["top_n"]) == ("bge-reranker", len(NOTES))


BAD: list[Any] = [{}, [], {"results": []}, {"results": [{"index": 0, "relevance_score": "high"}]}, {"results": 7}]


@pytest.mark.parametrize("plain", BAD)
def test_a_malformed_reply_is_one_clear_line(server: Server, plain: object) -> None:
    server.always = says(plain)
    with contextlib.closing(HttpRerank(server.base, "m")) as rerank, pytest.raises(MalformedReplyError) as caught:
        rerank("cat", ["a cat", "a dog"])
    assert "\n" not in str(caught.value)


def test_an_endpoint_that_refuses_leaves_the_order_and_a_warning(server: Server) -> None:
    server.always = sends(b"no such path", 404)
    with remember(reranker=f"{server.base}#m") as memory:
        recall = memory.recall("cat check-up", 40)
    assert "404" in recall.warnings[0]
    assert recall.sources


def test_an_endpoint_that_hangs_leaves_the_order_and_a_warning(
    server: Server, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "TIMEOUT", 0.2)
    server.always = held(release)
    with remember(reranker=f"{server.base}#m") as memory:
        recall = memory.recall("cat check-up", 40)
    assert "no scores within 0.2 s" in recall.warnings[0]
    assert recall.sources
    assert not release.is_set()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["", "nope", "fastembed:", 7, list, object()])
def test_an_unknown_reranker_is_one_clear_line(spec: Any) -> None:
    with pytest.raises(InputError, match="reranker") as caught:
        reranker(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(MissingExtraError, match=rf"retcon-memory\[{package}\]"):
        reranker(f"{package}:some-model")


def test_a_providers_reranker_is_asked_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_API_KEY", raising=False)
    found = reranker("vllm:bge-reranker")
    assert isinstance(found, HttpRerank)
    assert (found.endpoint.base, found.name) == ("http://localhost:8000/v1", "bge-reranker")


def test_an_endpoint_with_several_models_wants_one_named(server: Server) -> None:
    server.always = says({"data": [{"id": "a"}, {"id": "b"}]})
    with contextlib.closing(HttpRerank(server.base)) as rerank, pytest.raises(ModelError, match="#NAME"):
        rerank("cat", ["a cat"])


def test_a_cross_encoder_scores_pairs(tmp_path: Path) -> None:
    """Made here without training: that it loads, and that its scores come back, is what counts."""
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] cat dog a the".split()))
    tokenizer = transformers.BertTokenizer(str(vocabulary))
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=1
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    rerank = reranker(f"sentence-transformers:{tmp_path / 'tiny'}")
    assert rerank.name == "sentence-transformers:tiny"
    plain = sentence_transformers.CrossEncoder(str(tmp_path / "tiny"))
    pairs = [("cat", "a cat"), ("cat", "the dog")]
    assert rerank("cat", ["a cat", "the dog"]).tolist() == pytest.approx(plain.predict(pairs).tolist(), abs=1e-6)
