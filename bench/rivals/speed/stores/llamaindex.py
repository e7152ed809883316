"""LlamaIndex: its vector index over the simple store, and its BM25 retriever; a note a node, the user as metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.adapters import llamaindex_embedding
from bench.rivals.speed.stores import TOP, Found, Note


class _Nodes(ABC):
    """What both have."""

    batch = 2_000

    def __init__(self, folder: Path, encode: Any) -> None:
        from llama_index.core.schema import TextNode
        from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

        self.node, self.filter, self.filters = TextNode, MetadataFilter, MetadataFilters
        self.encode, self.asked = encode, dict[str, Any]()

    def nodes(self, notes: Sequence[Note]) -> list[Any]:
        """The notes as nodes, of which the text alone is read."""
        hidden = ["user"]
        return [
            self.node(id_=note["id"], text=note["text"], metadata={"user": note["user"]},
                      excluded_embed_metadata_keys=hidden)
            for note in notes
        ]  # fmt: skip

    def only(self, user: str) -> Any:
        """That user's."""
        return self.filters(filters=[self.filter(key="user", value=user)])

    @abstractmethod
    def retriever(self, user: str) -> Any:
        """What searches for that user, made once."""

    def search(self, query: str, user: str) -> Sequence[Found]:
        if user not in self.asked:
            self.asked[user] = self.retriever(user)
        found = self.asked[user].retrieve(query)
        return [Found(each.node.metadata["user"], each.node.text) for each in found]

    def close(self) -> None:
        """Let go of what searches."""
        self.asked.clear()


class Vectors(_Nodes):
    """A VectorStoreIndex in memory."""

    def __init__(self, folder: Path, encode: Any) -> None:
        super().__init__(folder, encode)
        from llama_index.core import VectorStoreIndex

        self.index = VectorStoreIndex([], embed_model=llamaindex_embedding(encode))

    def add(self, notes: Sequence[Note]) -> None:
        nodes = self.nodes(notes)
        for node, row in zip(nodes, self.encode.floats([note["text"] for note in notes]), strict=True):
            node.embedding = row
        self.index.insert_nodes(nodes)

    def finish(self) -> None:
        """Nothing is left to do."""

    def add_one(self, note: Note) -> None:
        self.index.insert_nodes(self.nodes([note]))

    def retriever(self, user: str) -> Any:
        return self.index.as_retriever(similarity_top_k=TOP, filters=self.only(user))


class Bm25(_Nodes):
    """A BM25Retriever: over all nodes at once, with its own filter, a mask over all of them, for each user."""

    def __init__(self, folder: Path, encode: Any) -> None:
        super().__init__(folder, encode)
        self.kept: list[Any] = []

    def add(self, notes: Sequence[Note]) -> None:
        self.kept += self.nodes(notes)

    def finish(self) -> None:
        from llama_index.retrievers.bm25 import BM25Retriever

        first = BM25Retriever.from_defaults(nodes=self.kept, similarity_top_k=TOP)
        self.bm25, self.open = first.bm25, BM25Retriever
        self.bm25.corpus = first.corpus  # as after its own from_persist_dir, so that one index serves all users
        self.asked.clear()

    def add_one(self, note: Note) -> None:
        self.add([note])
        self.finish()

    def retriever(self, user: str) -> Any:
        return self.open(existing_bm25=self.bm25, similarity_top_k=TOP, filters=self.only(user))
