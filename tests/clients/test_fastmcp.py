"""The client of fastmcp, over standard input and over HTTP with a key, in one environment with the server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from every_tool import ROOT, serving, use_every_tool
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError

from retcon.mcp.tools import TOOLS

KEY = "a key of some length"


async def walk(transport: Any) -> None:
    async with Client(transport) as client:
        assert [tool.name for tool in await client.list_tools()] == list(TOOLS)

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return dict((await client.call_tool(name, arguments)).structured_content)

        await use_every_tool(call)
        with pytest.raises(ToolError, match="no note has the id 'nope'"):
            await client.call_tool("get_memory", {"id": "nope"})
        assert [prompt.name for prompt in await client.list_prompts()] == ["with_memory"]
        said = await client.get_prompt("with_memory", {"question": "Which cat?"})
        assert "Which cat?" in said.messages[0].content.text


def test_every_tool_is_used_over_standard_input(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as command:
        transport = StdioTransport(command[0], command[1:], env={"PYTHONPATH": str(ROOT)})
        asyncio.run(asyncio.wait_for(walk(transport), 300))


def test_every_tool_is_used_over_http_with_a_key(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as command:
        listening = [*command, "--http", "--port", "0", "--key-env", "THE_KEY"]
        env = os.environ | {"PYTHONPATH": str(ROOT), "THE_KEY": KEY}
        with subprocess.Popen(listening, stderr=subprocess.PIPE, text=True, env=env) as process:
            try:
                assert process.stderr is not None
                found = re.search(r"http://\S+/mcp", process.stderr.readline())
                assert found is not None
                transport = StreamableHttpTransport(found.group(), headers={"Authorization": f"Bearer {KEY}"})
                asyncio.run(asyncio.wait_for(walk(transport), 300))
            finally:
                process.terminate()
                process.communicate()
