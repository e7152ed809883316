"""Graphiti: a model makes entities and dated facts of every turn, in a graph that is searched by words and vectors.

Kuzu, its embedded graph, in memory. The driver makes no index for words, which its search needs, so they are made with
Graphiti's own statements. A history goes in by `add_episode_bulk`, its way to fill an empty graph: a turn an episode, a
batch a call. Its clients belong to one event loop, so each graph has its own.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Sequence
from typing import Any

from bench.rivals.base import TOP_K, Setup, batches, when
from bench.rivals.encoder import Encoder
from bench.rivals.endpoint import gives_object
from retcon.note import Note
from retcon.pack import render

LONGEST = 2048  # tokens of a reply; its own limit is 16,384, which a small model fills by repeating itself


class Graph:
    """A `Graphiti` over an empty graph."""

    def __init__(self, setup: Setup) -> None:
        os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
        from graphiti_core import Graphiti
        from graphiti_core.driver.kuzu_driver import KuzuDriver
        from graphiti_core.llm_client.config import LLMConfig
        from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient

        at = setup.model
        named = LLMConfig(api_key=at.key, model=at.name, small_model=at.name, base_url=at.url, temperature=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Kuzu goes; no other embedded graph runs everywhere
            driver = KuzuDriver()
        _index(driver)
        self.loop = asyncio.Runner()
        self.graph = Graphiti(
            graph_driver=driver,
            llm_client=OpenAIGenericClient(config=named, max_tokens=LONGEST),
            embedder=_embedder(setup.encode),
            cross_encoder=_no_reranker(),
        )

    def add(self, history: Sequence[Note]) -> None:
        from graphiti_core.nodes import EpisodeType
        from graphiti_core.utils.bulk_utils import RawEpisode

        for batch in batches(history):
            episodes = [
                RawEpisode(
                    name=note.id, content=render(note), source=EpisodeType.message,
                    source_description="conversation", reference_time=when(note),
                )
                for note in batch
            ]  # fmt: skip
            self.loop.run(self.graph.add_episode_bulk(episodes))

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.loop.run(self.graph.search(question, num_results=TOP_K))
        return [_dated(edge) for edge in found]


def _dated(edge: Any) -> str:
    """A fact with the time in which it holds, as its example for agents prints it."""
    ends = [each.date().isoformat() if each else None for each in (edge.valid_at, edge.invalid_at)]
    return f"{edge.fact} (from {ends[0] or 'unknown'}{f' to {ends[1]}' if ends[1] else ''})"


def _index(driver: Any) -> None:
    import kuzu
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.graph_queries import get_fulltext_indices

    connection = kuzu.Connection(driver.db)
    for statement in get_fulltext_indices(GraphProvider.KUZU):
        connection.execute(statement)
    connection.close()


def _embedder(encode: Encoder) -> Any:
    from graphiti_core.embedder.client import EmbedderClient

    class MiniLM(EmbedderClient):  # type: ignore[misc, unused-ignore]
        async def create(self, input_data: Any) -> list[float]:
            return encode.floats([input_data] if isinstance(input_data, str) else list(input_data))[0]

        async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
            return encode.floats(input_data_list)

    return MiniLM()


def _no_reranker() -> Any:
    """One that keeps the order: its plain search fuses ranks and asks none."""
    from graphiti_core.cross_encoder.client import CrossEncoderClient

    class Keep(CrossEncoderClient):  # type: ignore[misc, unused-ignore]
        async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
            return [(passage, 1 / (place + 1)) for place, passage in enumerate(passages)]

    return Keep()


def open(name: str, setup: Setup) -> Graph:  # noqa: A001
    """An empty one."""
    return Graph(setup)


parsed = gives_object
