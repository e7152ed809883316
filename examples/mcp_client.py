"""An agent's side of MCP: start `retcon mcp`, remember something, ask for context within a budget, look again."""

import asyncio
import os
import sys
import tempfile
from typing import Any

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(folder: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "retcon", "mcp", "--db", os.path.join(folder, "agent.db"), "--user-id", "ann"],
        env=dict(os.environ),
    )
    async with stdio_client(server) as (heard, said), ClientSession(heard, said) as client:
        await client.initialize()

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            return result.model_dump(by_alias=True)  # the names of the protocol: both majors of mcp have them

        for tool in (await client.list_tools()).tools:
            print("tool", tool.name)

        for text in (
            "I adopted a cat named Pixel. She is grey, shy, and sleeps all day on the windowsill in the kitchen.",
            "The cat eats twice a day. Her food is in the blue cupboard, and the vet said not to give her milk at all.",
        ):
            await call("add_memory", {"text": text, "timestamp": "2026-05-09"})

        asked = {"query": "What is my cat called?", "budget": 40}
        first = (await call("recall_memories", asked))["structuredContent"]
        print(first["action"], first["tokens"], "tokens:", first["text"])

        # the agent found no answer in it: the same memories, packed another way
        again = (await call("recall_memories", asked | {"exclude": first["tried"]}))["structuredContent"]
        print(again["action"], again["tokens"], "tokens:", again["text"])

        everything = (await call("list_memories", {}))["structuredContent"]
        print(everything["total"], "memories, the newest:", everything["memories"][0]["text"])

        wrong = await call("add_memory", {"text": "She is black.", "supersedes": "nope"})
        print("error" if wrong["isError"] else "fine", wrong["content"][0]["text"])


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
