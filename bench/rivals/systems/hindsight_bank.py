"""Hindsight: facts that a model extracts from each session, found four ways and fused; or chunks, without a model.

Its engine runs in this process, on a PostgreSQL with pgvector and pg_trgm that HINDSIGHT_API_DATABASE_URL names (its
own `pg0` starts one). A bank a history. Rank fusion instead of its cross-encoder: all rivals have one encoder and no
reranker. Observations, which it writes from facts in the background, are waited for.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from bench.rivals.base import Setup, batches, when
from bench.rivals.encoder import DIM, Encoder
from bench.rivals.endpoint import gives_object
from retcon.note import Note
from retcon.pack import render

LARGEST = 4096  # tokens that it is asked for, its default; we cut
LONGEST = "4096"  # tokens of a reply; its own limit is 64,000, more than the model's window

_turn = threading.Lock()


class Bank:
    """An empty bank of a `MemoryEngine`."""

    def __init__(self, setup: Setup, *, chunks: bool) -> None:
        with _turn:  # settings are of the process
            self._open(setup, chunks=chunks)

    def _open(self, setup: Setup, *, chunks: bool) -> None:
        os.environ |= _settings(setup, chunks=chunks)
        from hindsight_api import MemoryEngine
        from hindsight_api.config import clear_config_cache
        from hindsight_api.engine.cross_encoder import RRFPassthroughCrossEncoder
        from hindsight_api.engine.task_backend import SyncTaskBackend
        from hindsight_api.models import RequestContext

        clear_config_cache()  # settings are kept for the process, and the key is another for every history
        self.bank, self.about, self.loop = f"bank-{uuid.uuid4().hex}", RequestContext(internal=True), asyncio.Runner()
        self.engine = MemoryEngine(
            embeddings=_embeddings(setup.encode), cross_encoder=RRFPassthroughCrossEncoder(),
            task_backend=SyncTaskBackend(), skip_llm_verification=True,
        )  # fmt: skip
        self.loop.run(self.engine.initialize())

    def add(self, history: Sequence[Note]) -> None:
        for batch in batches(history):
            item = {"content": "\n".join(map(render, batch)), "context": "conversation", "event_date": when(batch[0])}
            self.loop.run(self.engine.retain_batch_async(self.bank, [item], request_context=self.about))
        self.loop.run(self.engine.wait_for_background_tasks())

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.loop.run(
            self.engine.recall_async(self.bank, question, max_tokens=LARGEST, request_context=self.about)
        )
        return [each.text for each in found.results]


def _settings(setup: Setup, *, chunks: bool) -> dict[str, str]:
    if "HINDSIGHT_API_DATABASE_URL" not in os.environ:
        raise RuntimeError("this rival needs a PostgreSQL with pgvector: say HINDSIGHT_API_DATABASE_URL")
    if chunks:
        return {"HINDSIGHT_API_LLM_PROVIDER": "none"}
    at = setup.model
    return {
        "HINDSIGHT_API_LLM_PROVIDER": "openai", "HINDSIGHT_API_LLM_BASE_URL": at.url,
        "HINDSIGHT_API_LLM_API_KEY": at.key, "HINDSIGHT_API_LLM_MODEL": at.name, "HINDSIGHT_API_LLM_TIMEOUT": "600",
        "HINDSIGHT_API_RETAIN_MAX_COMPLETION_TOKENS": LONGEST,
    }  # fmt: skip


def _embeddings(encode: Encoder) -> Any:
    from hindsight_api.engine.embeddings import Embeddings

    class MiniLM(Embeddings):  # type: ignore[misc, unused-ignore]
        provider_name, dimension = "minilm", DIM

        async def initialize(self) -> None:
            """Nothing: the encoder is there."""

        async def encode(self, texts: list[str]) -> list[list[float]]:
            return encode.floats(texts)

    return MiniLM()


def open(name: str, setup: Setup) -> Bank:  # noqa: A001
    """An empty one."""
    return Bank(setup, chunks=name == "hindsight-chunks")


parsed = gives_object
