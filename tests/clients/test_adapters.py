"""langchain-mcp-adapters, which need major 1 of mcp, in one environment with the server."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

from every_tool import ROOT, serving, use_every_tool
from langchain_mcp_adapters.client import MultiServerMCPClient

from retcon.mcp.tools import FEW, TOOLS


def client_of(command: list[str]) -> Any:
    started = {"transport": "stdio", "command": command[0], "args": command[1:], "env": {"PYTHONPATH": str(ROOT)}}
    return MultiServerMCPClient({"retcon": started})


def test_an_agent_of_langchain_uses_every_tool_beside_major_1_of_mcp(tmp_path: Path) -> None:
    assert version("mcp").startswith("1.")

    async def scene(command: list[str]) -> None:
        tools = {tool.name: tool for tool in await client_of(command).get_tools()}
        assert list(tools) == list(TOOLS)

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            message = await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
            assert message.status == "success", message.content
            return dict(message.artifact["structured_content"])

        await use_every_tool(call)
        wrong = await tools["get_memory"].ainvoke({"type": "tool_call", "id": "1", "name": "x", "args": {"id": "nope"}})
        assert wrong.status == "error"
        assert "no note has the id 'nope'" in str(wrong.content)

    with serving(tmp_path / "agent.db") as command:
        asyncio.run(asyncio.wait_for(scene(command), 300))


def test_an_agent_sees_the_few_tools_when_nothing_is_said(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as command:
        few = [word for word in command if word not in ("--tools", "all")]
        tools = asyncio.run(asyncio.wait_for(client_of(few).get_tools(), 300))
    assert [tool.name for tool in tools] == list(FEW)
