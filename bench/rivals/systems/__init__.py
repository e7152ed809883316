"""Every rival by name: what it is, and how one is opened. One short file each; a package is imported only when used.

A name that begins with "after" is our reading of an idea, small, and never the system of that name itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from bench.rivals.base import Rival, Setup


@dataclass(frozen=True, slots=True)
class System:
    """One rival: where it is, whether it asks a model, and what it is called in tables."""

    name: str
    module: str  # of bench.rivals.systems
    title: str
    model: bool = False  # asks a language model
    folder: bool = False  # looks inside a model, which it loads itself
    alone: bool = False  # wants packages or a server of its own: runs only where it is named
    packages: tuple[str, ...] = ()  # whose versions count
    settings: str = ""  # what was chosen, and by whom

    def open(self, setup: Setup) -> Rival:
        """An empty one."""
        made = importlib.import_module(f"bench.rivals.systems.{self.module}")
        rival: Rival = made.open(self.name, setup)
        return rival


# the most valuable first: where time ends, what comes last is missing
_LISTED = (
    System("newest", "newest", "newest turns that fit"),
    System("bm25s", "bm25s_rag", "RAG, bm25s", packages=("bm25s",), settings="its defaults, English stemmer, top 20"),
    System("minilm", "lance_rag", "RAG, MiniLM in LanceDB", packages=("lancedb",), settings="cosine, top 20"),
    System("chroma", "chroma_rag", "RAG, MiniLM in Chroma", packages=("chromadb",), settings="cosine, top 20"),
    System("mem0-raw", "mem0_memory", "Mem0, infer=False", packages=("mem0ai", "qdrant-client"),
           settings="local Qdrant, its top_k 20, threshold 0.1"),
    System("langgraph", "langgraph_store", "LangGraph store", packages=("langgraph",),
           settings="InMemoryStore with an index, limit 20 (its default 10)"),
    System("llamaindex-vector", "llamaindex_memory", "LlamaIndex vector block", packages=("llama-index-core",),
           settings="one node a turn, similarity_top_k 20 (its default 2)"),
    System("mem0", "mem0_memory", "Mem0, infer=True", model=True, packages=("mem0ai", "qdrant-client"),
           settings="a session a call, its prompts, temperature 0.1 and 2,000 tokens, top_k 20"),
    System("langchain-summary", "langchain_summary", "LangChain summarization", model=True,
           packages=("langchain", "langchain-openai"),
           settings="SummarizationMiddleware, trigger 4,000 tokens and keep 20 messages, as its page shows"),
    System("llamaindex-facts", "llamaindex_memory", "LlamaIndex fact block", model=True,
           packages=("llama-index-core", "llama-index-llms-openai-like"), settings="its prompts, max_facts 50"),
    System("longllmlingua", "lingua", "LongLLMLingua on MiniLM's top 20", folder=True, packages=("llmlingua",),
           settings="the settings of its README for LongLLMLingua, target_token by our budget"),
    System("llmlingua", "lingua", "LLMLingua on MiniLM's top 20", folder=True, packages=("llmlingua",),
           settings="its defaults, target_token by our budget"),
    System("langmem", "langmem_manager", "LangMem", model=True, packages=("langmem", "langgraph"),
           settings="create_memory_store_manager with its defaults, search limit 20"),
    System("hindsight-chunks", "hindsight_bank", "Hindsight, no model", alone=True,
           packages=("hindsight-api-slim",),
           settings="its chunk mode, a session a call, PostgreSQL, rank fusion, max_tokens 4,096"),
    System("hindsight", "hindsight_bank", "Hindsight", model=True, alone=True, packages=("hindsight-api-slim",),
           settings="a session a call, its prompts and observations, PostgreSQL, rank fusion, max_tokens 4,096"),
    System("graphiti", "graphiti_graph", "Graphiti", model=True, alone=True, packages=("graphiti-core", "kuzu"),
           settings="embedded Kuzu, a turn an episode in bulk, its hybrid search with rank fusion, num_results 20"),
    System("cognee", "cognee_graph", "cognee", model=True, alone=True, packages=("cognee",),
           settings="a session a text, its prompts, its embedded stores, GRAPH_COMPLETION, top_k 20"),
    System("after-recomp-extractive", "after_recomp", "after RECOMP, extractive"),
    System("after-memorybank", "after_memorybank", "after MemoryBank"),
    System("after-osl-mr", "after_oslmr", "after OSL-MR"),
    System("after-recomp-abstractive", "after_recomp", "after RECOMP, abstractive", model=True),
    System("after-generative-agents", "after_generative_agents", "after Generative Agents", model=True),
    System("after-memgpt", "after_memgpt", "after MemGPT", model=True),
    System("after-trustmem", "after_trustmem", "after TrustMem", model=True),
    System("after-recmem", "after_recmem", "after RecMem", model=True),
    System("after-a-mem", "after_amem", "after A-MEM", model=True),
)  # fmt: skip
SYSTEMS: Mapping[str, System] = {each.name: each for each in _LISTED}
