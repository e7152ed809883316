"""Real `retcon mcp` processes for tests, and the official client to speak with them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

pytest.importorskip("mcp")

from command_line import ROOT
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

from retcon.mcp import ToolVerbs, ToolWorkers, build
from retcon.mcp.tools import TOOLS

T = TypeVar("T")
PYTHON = os.environ.get("RETCON_MCP_PYTHON", sys.executable)  # `make test-clients` names one with major 1 of mcp
PROGRAM = [PYTHON, "-W", "error", "-m", "retcon", "mcp"]


def start(db: Path, *options: str, few: bool = False) -> list[str]:
    """The command of a server with every tool, or with the few that it offers when nothing is said."""
    return [*PROGRAM, "--db", str(db), *(() if few else ("--tools", "all")), *options]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RETCON_", "OPENAI_"))}
    return kept | {"PYTHONPATH": str(ROOT)} | more


def play(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it, and fail rather than hang."""

    async def bounded() -> T:
        return await asyncio.wait_for(scene(), 300)

    return asyncio.run(bounded())


@dataclass
class Talk:
    """An open client, with the errors of its server."""

    client: Client
    log: Path | None = None

    async def give(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a call that must succeed."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        found = result.structured_content
        assert isinstance(found, dict)
        documented = TOOLS[tool].gives.model_validate(found)
        assert found == documented.model_dump(mode="json", exclude_none=True)
        return found

    async def fail(self, tool: str, **arguments: Any) -> str:
        """The one plain line of a call that must fail."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        assert result.structured_content is None
        return one_plain_line(result)


def one_plain_line(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert content.text.isprintable()
    assert "Traceback" not in content.text
    return content.text


@contextlib.asynccontextmanager
async def over_stdio(
    db: Path, *options: str, mode: str = "legacy", few: bool = False, **env: str
) -> AsyncIterator[Talk]:
    """A client whose server is a process of its own. `legacy`: with the handshake of 2025; `auto`: as of 2026."""
    command, *args = start(db, *options, few=few)
    server = StdioServerParameters(command=command, args=args, env=environment(**env), cwd=db.parent)
    path = db.parent / f"{uuid4().hex}.log"
    with path.open("w") as log:
        async with Client(stdio_client(server, errlog=log), mode=mode) as client:
            yield Talk(client, path)


@contextlib.asynccontextmanager
async def in_process(verbs: ToolVerbs, tools: str | None = "all") -> AsyncIterator[Talk]:
    """A client whose server is in this process: for what does not depend on how it is reached."""
    workers = ToolWorkers()
    try:
        async with Client(build(verbs, workers, tools)) as client:
            yield Talk(client)
    finally:
        assert workers.finish(10)


@dataclass
class Listening:
    """A server process that listens."""

    url: str
    db: Path
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(re.findall(r":(\d+)/", self.url)[0])

    @contextlib.asynccontextmanager
    async def talk(self, mode: str = "auto") -> AsyncIterator[Talk]:
        async with Client(self.url, mode=mode) as client:
            yield Talk(client)


@contextlib.contextmanager
def over_http(db: Path, *options: str, **env: str) -> Iterator[Listening]:
    """A server at a free port; it must end well when it is told to."""
    command = start(db, "--http", "--port", "0", *options)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(**env), cwd=db.parent)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+/mcp", line)
        assert found, line + process.stderr.read()
        yield Listening(found.group(), db, process)
        if process.poll() is None:
            process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextlib.contextmanager
def by_hand(db: Path, *options: str, **env: str) -> Iterator[Callable[..., Any]]:
    """A stdio server that is spoken to line by line: what is sent need not be a message."""
    process = subprocess.Popen(
        start(db, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(**env), cwd=db.parent,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    to, back = process.stdin, process.stdout
    watch = threading.Timer(120, process.kill)  # a line that is never answered must not hang the test
    watch.start()

    def say(line: bytes | dict[str, Any], *, answered: bool = True) -> Any:
        to.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        to.flush()
        return json.loads(back.readline()) if answered else process

    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        say({"jsonrpc": "2.0", "method": "notifications/initialized"}, answered=False)
        yield say
    finally:
        watch.cancel()
        process.kill()
        with process:
            pass


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """The message that calls a tool."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def until(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 120) -> None:
    """Wait for something to become true."""
    for _ in range(int(seconds / 0.05)):
        found = holds()
        if (await found) if isinstance(found, Awaitable) else found:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came true")
