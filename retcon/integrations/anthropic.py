"""Claude's memory tool on a retcon memory: its files are notes with versions, in one store with everything else.

    tool = RetconMemoryTool(memory, budget=2048, user_id="ann")
    client.beta.messages.tool_runner(model="claude-sonnet-5-5", tools=[tool], messages=...).until_done()

`memory.recall` finds what the files say, and `memory.history` every version of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Unpack

from retcon import Memory, RetconError
from retcon.integrations.extra import needs
from retcon.integrations.files import Files
from retcon.integrations.keeper import Keeper
from retcon.where import ScopeWords

with needs("anthropic", "Claude's memory tool"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

_RUN: dict[str, Callable[[Files, Any], str]] = {
    "view": lambda files, given: files.view(given.path, tuple(given.view_range) if given.view_range else None),
    "create": lambda files, given: files.create(given.path, given.file_text),
    "str_replace": lambda files, given: files.replace(given.path, given.old_str, given.new_str),
    "insert": lambda files, given: files.insert(given.path, given.insert_line, given.insert_text),
    "delete": lambda files, given: files.delete(given.path),
    "rename": lambda files, given: files.rename(given.old_path, given.new_path),
    "clear": lambda files, given: files.clear(),
}


def _run(files: Files, command: str, given: Any = None) -> str:
    """What the command says; what is wrong with it is told to the model."""
    try:
        return _RUN[command](files, given)
    except RetconError as error:
        raise ToolError(f"Error: {error}") from error
    except (AttributeError, TypeError, ValueError) as error:  # a model left something out, or sent another kind
        raise ToolError(f"Error: {command} was called with wrong parameters") from error


class RetconMemoryTool(BetaAbstractMemoryTool):
    """Claude's memory tool. What it shows at once has `budget` tokens at most, by the memory's counter."""

    def __init__(
        self, memory: Memory, *, budget: int = 2048, cache_control: Any = None, **scope: Unpack[ScopeWords]
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._files = Files(Keeper(memory, budget, scope))

    def view(self, command: Any) -> str:
        """A file or a folder."""
        return _run(self._files, "view", command)

    def create(self, command: Any) -> str:
        """A new file."""
        return _run(self._files, "create", command)

    def str_replace(self, command: Any) -> str:
        """One text of a file in place of another."""
        return _run(self._files, "str_replace", command)

    def insert(self, command: Any) -> str:
        """A text after a line of a file."""
        return _run(self._files, "insert", command)

    def delete(self, command: Any) -> str:
        """A file or a folder, gone."""
        return _run(self._files, "delete", command)

    def rename(self, command: Any) -> str:
        """A file or a folder under another path."""
        return _run(self._files, "rename", command)

    def clear_all_memory(self) -> str:
        """All files of the scope, gone."""
        return _run(self._files, "clear")


class RetconAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same for the asynchronous client; the work runs on a thread."""

    def __init__(
        self, memory: Memory, *, budget: int = 2048, cache_control: Any = None, **scope: Unpack[ScopeWords]
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._files = Files(Keeper(memory, budget, scope))

    async def _run(self, command: str, given: Any = None) -> str:
        return await asyncio.to_thread(_run, self._files, command, given)

    async def view(self, command: Any) -> str:
        """A file or a folder."""
        return await self._run("view", command)

    async def create(self, command: Any) -> str:
        """A new file."""
        return await self._run("create", command)

    async def str_replace(self, command: Any) -> str:
        """One text of a file in place of another."""
        return await self._run("str_replace", command)

    async def insert(self, command: Any) -> str:
        """A text after a line of a file."""
        return await self._run("insert", command)

    async def delete(self, command: Any) -> str:
        """A file or a folder, gone."""
        return await self._run("delete", command)

    async def rename(self, command: Any) -> str:
        """A file or a folder under another path."""
        return await self._run("rename", command)

    async def clear_all_memory(self) -> str:
        """All files of the scope, gone."""
        return await self._run("clear")
