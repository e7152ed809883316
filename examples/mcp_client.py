"""An agent's side of MCP: start `retcon mcp`, remember something, ask for context within a budget, look again."""

import asyncio
import os
import sys
import tempfile

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main(folder: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "retcon", "mcp", "--db", os.path.join(folder, "agent.db"), "--user-id", "ann"],
        env=dict(os.environ),
    )
    async with Client(server) as client:
        for tool in (await client.list_tools()).tools:
            print("tool", tool.name)

        said = {"text": "I adopted a cat named Pixel. She is grey.", "timestamp": "2026-05-09"}
        await client.call_tool("add_memory", said)

        asked = {"query": "When did I get my cat?", "budget": 64}
        first = (await client.call_tool("recall_memories", asked)).structured_content
        print(first["action"], first["tokens"], "tokens:", first["text"])

        # the agent found no answer in it: the same memories, packed another way
        again = (await client.call_tool("recall_memories", asked | {"exclude": first["tried"]})).structured_content
        print(again["action"], again["tokens"], "tokens:", again["text"])

        everything = (await client.call_tool("list_memories")).structured_content
        print(everything["total"], "memory:", everything["memories"][0]["text"])

        wrong = await client.call_tool("add_memory", {"text": "She is black.", "supersedes": "nope"})
        print("error" if wrong.is_error else "fine", wrong.content[0].text)  # type: ignore[union-attr]


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
