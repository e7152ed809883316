"""Mem0, the open package: `infer=False` stores turns, `infer=True` has a model extract memories from each batch.

Local Qdrant in a folder of its own, as its quickstart has it, MiniLM through its LangChain adapter. It takes no
timestamps in the open package, so a turn's date stands in its text, where the model can read it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.adapters import langchain_embeddings
from bench.rivals.base import TOP_K, Setup, batches
from bench.rivals.encoder import DIM
from bench.rivals.endpoint import Call
from retcon.note import Note
from retcon.pack import render

USER = "user"


class Mem0:
    """A `mem0.Memory` with one user."""

    def __init__(self, setup: Setup, *, infer: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ.setdefault("MEM0_DIR", self.folder.name)
        from mem0 import Memory

        self.infer = infer
        self.memory = Memory.from_config(_config(setup, Path(self.folder.name), infer=infer))

    def add(self, history: Sequence[Note]) -> None:
        for batch in batches(history):
            messages = [{"role": "user", "content": render(note)} for note in batch]
            self.memory.add(messages, user_id=USER, infer=self.infer)

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.memory.search(question, top_k=TOP_K, filters={"user_id": USER})
        return [str(each["memory"]) for each in found["results"]]


def _config(setup: Setup, folder: Path, *, infer: bool) -> dict[str, Any]:
    at = {"model": setup.model.name, "openai_base_url": setup.model.url, "api_key": setup.model.key} if infer else {}
    return {
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": str(folder / "qdrant"), "embedding_model_dims": DIM, "on_disk": True},
        },
        "embedder": {
            "provider": "langchain",
            "config": {"model": langchain_embeddings(setup.encode), "embedding_dims": DIM},
        },
        "llm": {"provider": "openai", "config": at or {"model": "none", "api_key": "none"}},
        "history_db_path": str(folder / "history.db"),
    }


def parsed(call: Call) -> bool:
    """Whether it can read a reply: JSON with a list of memories."""
    from mem0.memory.utils import extract_json, remove_code_blocks

    text = remove_code_blocks(call.text)
    try:
        found: Any = json.loads(text, strict=False)
    except ValueError:
        try:
            found = json.loads(extract_json(text), strict=False)
        except ValueError:
            return False
    return isinstance(found, dict) and isinstance(found.get("memory", []), list)


def open(name: str, setup: Setup) -> Mem0:  # noqa: A001
    """An empty one."""
    return Mem0(setup, infer=name == "mem0")
