"""Mem0, the open package, with infer=False: no model is asked. Local Qdrant in a folder, as its quickstart has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.adapters import langchain_embeddings
from bench.rivals.speed.stores import TOP, Found, Note


class Mem0:
    """A `mem0.Memory`; a session a call."""

    batch = 20

    def __init__(self, folder: Path, encode: Any) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder), "OPENAI_API_KEY": "none"}
        from mem0 import Memory

        self.memory: Any = Memory.from_config({
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(folder / "qdrant"), "embedding_model_dims": encode.dim, "on_disk": True},
            },
            "embedder": {
                "provider": "langchain",
                "config": {"model": langchain_embeddings(encode), "embedding_dims": encode.dim},
            },
            "llm": {"provider": "openai", "config": {"model": "none", "api_key": "none"}},
            "history_db_path": str(folder / "history.db"),
        })  # fmt: skip

    def add(self, notes: Sequence[Note]) -> None:
        messages = [{"role": note["speaker"], "content": note["text"]} for note in notes]
        self.memory.add(messages, user_id=notes[0]["user"], infer=False)

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.add([note])

    def search(self, query: str, user: str) -> Sequence[Found]:
        found = self.memory.search(query, top_k=TOP, filters={"user_id": user}, threshold=0.0)  # so that 20 come
        return [Found(each["user_id"], each["memory"]) for each in found["results"]]

    def close(self) -> None:
        """The end of its files."""
        self.memory.vector_store.client.close()
