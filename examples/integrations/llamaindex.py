"""A LlamaIndex agent whose memory block remembers across sessions, and nodes packed into a budget."""

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory as History
from llama_index.core.schema import NodeWithScore, TextNode

from retcon import Memory
from retcon.integrations.llamaindex import RetconMemoryBlock, RetconPostprocessor


def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    """Stands in for a model here, so that the example needs no key: it knows only what the call shows it."""
    known = any("Pixel" in (message.content or "") for message in messages)
    return ChatMessage(role="assistant", content="Your cat is called Pixel." if known else "Noted, thanks.")


async def main(memory: Memory) -> None:
    model = MockFunctionCallingLLM(response_generator=answer, is_chat_model=True)  # yours: OpenAI(model="gpt-5-mini")
    agent = FunctionAgent(tools=[], llm=model, streaming=False)
    for day, words in (("monday", "I adopted a cat, she is called Pixel."), ("friday", "What is my cat called?")):
        block = RetconMemoryBlock(memory=memory, budget=128, user_id="ann")
        history = History.from_defaults(session_id=day, token_limit=2000, memory_blocks=[block])
        print(f"{day}: {words}\n  -> {await agent.run(words, memory=history)}")

    pages = ["The vet charged 84 euros for the first visit. " + "It rained. " * 50, "Lunch is at noon. " * 40]
    nodes = [NodeWithScore(node=TextNode(text=page), score=1.0) for page in pages]
    for node in RetconPostprocessor(budget=32).postprocess_nodes(nodes, query_str="How much did the vet charge?"):
        print(f"packed: {node.text}")


with Memory(":memory:") as notes:
    asyncio.run(main(notes))
