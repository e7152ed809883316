"""cognee: a model makes a graph and summaries of each session, kept in SQLite, LanceDB and its embedded graph.

It is one per process, so a history is a dataset of its own and calls take turns. It wants vectors from an endpoint:
the encoder is served to it on a free port of this machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import tempfile
import threading
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bench.rivals.base import TOP_K, Setup, batches
from bench.rivals.encoder import DIM, NAME, Encoder, find_folder
from bench.rivals.endpoint import gives_object
from bench.rivals.say import Said
from bench.rivals.server import Service, serve
from retcon.note import Note
from retcon.pack import render

_turn = threading.Lock()


class Dataset:
    """A dataset of `cognee`."""

    def __init__(self, setup: Setup) -> None:
        self.name, self.at = f"history-{uuid.uuid4().hex}", setup.model
        with _turn:
            self.cognee, self.loop = _cognee(setup.encode)

    def add(self, history: Sequence[Note]) -> None:
        texts = ["\n".join(map(render, batch)) for batch in batches(history)]
        self._run(lambda: self.cognee.remember(texts, self.name, self_improvement=False))

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self._run(
            lambda: self.cognee.recall(
                question, self.cognee.SearchType.GRAPH_COMPLETION, datasets=[self.name], top_k=TOP_K, only_context=True
            )
        )
        return [_bare(str(getattr(each, "text", None) or each)) for each in found]

    def _run(self, work: Any) -> Any:
        with _turn:
            self.cognee.config.set_llm_config({
                "llm_provider": "custom", "llm_model": f"openai/{self.at.name}", "llm_endpoint": self.at.url,
                "llm_api_key": self.at.key,
            })  # fmt: skip
            return self.loop.run(work())


def _bare(prompt: str) -> str:
    """The nodes and relations of the prompt that cognee would send, without the question and what frames them."""
    begin = prompt.find("Nodes:")
    return prompt[begin:].rstrip("` \n") if begin >= 0 else prompt


@cache
def _cognee(encode: Encoder) -> tuple[Any, asyncio.Runner]:
    """The package, set to a folder of its own and to the encoder, and the loop it lives in."""
    folder = tempfile.mkdtemp()
    os.environ |= {
        "TELEMETRY_DISABLED": "1", "COGNEE_SKIP_CONNECTION_TEST": "true", "LOG_LEVEL": "ERROR",
        "DATA_ROOT_DIRECTORY": f"{folder}/data", "SYSTEM_ROOT_DIRECTORY": f"{folder}/system",
        "CACHE_ROOT_DIRECTORY": f"{folder}/cache", "COGNEE_LOGS_DIR": f"{folder}/logs",
        "EMBEDDING_PROVIDER": "openai_compatible", "EMBEDDING_MODEL": find_folder(), "EMBEDDING_API_KEY": "none",
        "EMBEDDING_ENDPOINT": _serve_vectors(encode), "EMBEDDING_DIMENSIONS": str(DIM), "LLM_API_KEY": "none",
        "TIKTOKEN_CACHE_DIR": _vocabulary(),
    }  # fmt: skip
    import cognee

    return cognee, asyncio.Runner()


def _vocabulary() -> str:
    """Where tiktoken finds what it would download: litellm, which cognee needs, brings it along."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("no litellm: pip install cognee")
    return str(Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers"))


def _serve_vectors(encode: Encoder) -> str:
    server = serve(Service(lambda *_: Said("", 0, 0, "stop"), lambda *_: "", name=NAME, encode=encode))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def open(name: str, setup: Setup) -> Dataset:  # noqa: A001
    """An empty one."""
    return Dataset(setup)


parsed = gives_object
