"""LlamaIndex's memory blocks: vectors of turns, and facts that a model extracts from batches of them.

A vector block makes one node of all messages of a put and of a fact block one call, so a vector block is given a turn a
put, the finest there is, and a fact block a batch. A fact block knows no question: all its facts are its answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from bench.rivals.adapters import llamaindex_embedding
from bench.rivals.base import TOP_K, Setup, batches, lines
from bench.rivals.endpoint import Call
from bench.rivals.systems.chroma_rag import new_collection
from retcon.note import Note
from retcon.pack import render

_MESSAGE = re.compile(r"<message role='\w+'>(.*?)</message>", re.DOTALL)
_FACT = re.compile(r"<fact>(.*?)</fact>", re.DOTALL)


class VectorBlock:
    """A `VectorMemoryBlock` over Chroma, as its page shows; the simple store keeps no text, which the block needs."""

    def __init__(self, setup: Setup) -> None:
        from llama_index.core.llms import ChatMessage
        from llama_index.core.memory import VectorMemoryBlock
        from llama_index.vector_stores.chroma import ChromaVectorStore

        self.message, self.encode = ChatMessage, setup.encode
        self.block = VectorMemoryBlock(
            vector_store=ChromaVectorStore(chroma_collection=new_collection()),
            embed_model=llamaindex_embedding(setup.encode),
            similarity_top_k=TOP_K,
        )

    def add(self, history: Sequence[Note]) -> None:
        texts = lines(history)
        self.encode([f"<message role='user'>{text}</message>" for text in texts])  # together; it asks for one by one

        async def put() -> None:
            for text in texts:
                await self.block.aput([self.message(role="user", content=text)])

        asyncio.run(put())

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = asyncio.run(self.block.aget([self.message(role="user", content=question)]))
        return _MESSAGE.findall(found)


class FactBlock:
    """A `FactExtractionMemoryBlock`."""

    def __init__(self, setup: Setup) -> None:
        from llama_index.core.llms import ChatMessage
        from llama_index.core.memory import FactExtractionMemoryBlock
        from llama_index.llms.openai_like import OpenAILike

        at = setup.model
        llm = OpenAILike(
            model=at.name, api_base=at.url, api_key=at.key, is_chat_model=True, context_window=32_768, timeout=600.0
        )
        self.message, self.block = ChatMessage, FactExtractionMemoryBlock(llm=llm)

    def add(self, history: Sequence[Note]) -> None:
        async def put() -> None:
            for batch in batches(history):
                await self.block.aput([self.message(role="user", content=render(note)) for note in batch])

        asyncio.run(put())

    def context(self, question: str, budget: int) -> Sequence[str]:
        return _FACT.findall(asyncio.run(self.block.aget([self.message(role="user", content=question)])))


def parsed(call: Call) -> bool:
    """Whether it can read a reply: facts between tags, or an empty list of them."""
    return bool(_FACT.search(call.text)) or "<facts></facts>" in re.sub(r"\s", "", call.text)


def open(name: str, setup: Setup) -> VectorBlock | FactBlock:  # noqa: A001
    """An empty one."""
    return FactBlock(setup) if name == "llamaindex-facts" else VectorBlock(setup)
