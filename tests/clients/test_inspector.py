"""The MCP Inspector's command line: each call is a client of its own, which starts the server and ends it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from every_tool import ROOT, serving, use_every_tool

from retcon.mcp.tools import TOOLS

MODULES = Path(__file__).parent / "node_modules"


def inspect(home: Path, command: list[str], *options: str) -> Any:
    """What the Inspector prints, as values."""
    (node,) = MODULES.glob("node-linux-*/bin/node")  # the system's may be older than the Inspector wants
    program = [str(node), str(MODULES / ".bin" / "mcp-inspector"), "--cli", "-e", f"PYTHONPATH={ROOT}"]
    done = subprocess.run(
        [*program, *command, *options], capture_output=True, text=True, timeout=300, check=False,
        env={"HOME": str(home), "PATH": f"{node.parent}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def as_pair(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def test_every_tool_is_used_and_every_schema_is_portable(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as command:
        listed = inspect(tmp_path, command, "--method", "tools/list", "--strict")
        assert [tool["name"] for tool in listed["tools"]] == list(TOOLS)

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            words = [word for pair in arguments.items() for word in ("--tool-arg", as_pair(*pair))]
            found = inspect(tmp_path, command, "--method", "tools/call", "--tool-name", name, *words)
            assert not found.get("isError"), found
            return dict(found["structuredContent"])

        asyncio.run(use_every_tool(call))


def test_a_prompt_and_a_template_of_resources_are_listed(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as command:
        assert inspect(tmp_path, command, "--method", "prompts/list")["prompts"][0]["name"] == "with_memory"
        (template,) = inspect(tmp_path, command, "--method", "resources/templates/list")["resourceTemplates"]
        assert template["uriTemplate"] == "memory://{id}"
