"""Who is measured: what it is, how it is imported, which packages it brings, and where its short file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["ours", "memory", "engine", "floor"]
By = Literal["words", "vectors", "both"]


@dataclass(frozen=True, slots=True)
class System:
    """One system under measurement."""

    name: str
    title: str
    kind: Kind
    by: By  # how it finds a note
    store: str  # the class, as module.Class of bench.rivals.speed.stores
    imports: str  # what a program that uses it imports
    packages: tuple[str, ...]  # distributions that are installed for it; what they need comes on top
    durable: bool = True  # an added note outlives the process
    rebuilds: bool = False  # one more note means indexing everything anew
    most: int | None = None  # notes up to which it is tried; `bench.speed` has it beyond


OURS, OURS_VECTORS = "retcon", "retcon-vectors"
_LISTED = (
    System(OURS, "**retcon**", "ours", "words", "ours.Words", "from retcon import Memory", ("retcon-memory",)),
    System(OURS_VECTORS, "**retcon** with vectors", "ours", "both", "ours.Vectors", "import faiss, retcon",
           ("retcon-memory", "faiss-cpu")),
    System("lancedb-words", "LanceDB, full text", "engine", "words", "lance.Words", "import lancedb", ("lancedb",)),
    System("lancedb-vectors", "LanceDB, vectors, flat", "engine", "vectors", "lance.Vectors", "import lancedb",
           ("lancedb",)),
    System("langgraph-sqlite", "LangGraph SqliteStore", "memory", "vectors", "langgraph_stores.Sqlite",
           "from langgraph.store.sqlite import SqliteStore", ("langgraph", "langgraph-checkpoint-sqlite")),
    System("langgraph-memory", "LangGraph InMemoryStore", "memory", "vectors", "langgraph_stores.InMemory",
           "from langgraph.store.memory import InMemoryStore", ("langgraph",), durable=False),
    System("llamaindex-bm25", "LlamaIndex BM25 retriever", "memory", "words", "llamaindex.Bm25",
           "from llama_index.retrievers.bm25 import BM25Retriever", ("llama-index-core", "llama-index-retrievers-bm25"),
           durable=False, rebuilds=True),
    System("llamaindex-vectors", "LlamaIndex vector index", "memory", "vectors", "llamaindex.Vectors",
           "from llama_index.core import VectorStoreIndex", ("llama-index-core",), durable=False),
    System("bm25s", "bm25s alone", "floor", "words", "floor.Bm25s", "import bm25s", ("bm25s", "PyStemmer"),
           durable=False, rebuilds=True, most=100_000),
    System("fts5", "SQLite FTS5 alone", "floor", "words", "floor.Fts5", "import sqlite3", (), most=100_000),
    System("chroma", "Chroma", "engine", "vectors", "chroma.Chroma", "import chromadb", ("chromadb",)),
    System("mem0", "Mem0, infer=False, local Qdrant", "memory", "vectors", "mem0_store.Mem0",
           "from mem0 import Memory", ("mem0ai",)),
)  # fmt: skip
SYSTEMS: Mapping[str, System] = {each.name: each for each in _LISTED}
RIVALS = tuple(name for name, each in SYSTEMS.items() if each.kind != "ours")
