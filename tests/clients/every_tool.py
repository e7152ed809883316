"""One walk through every tool of the server, for clients that others wrote: each says how it calls a tool."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from misbehaving import Server, completion, says

from retcon.mcp.tools import FEW, TOOLS

ROOT = Path(__file__).parents[2]
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]  # what a tool gives back, as values


@contextmanager
def serving(db: Path) -> Iterator[list[str]]:
    """The command of a server with every tool, whose model always knows the answer."""
    with Server(always=says(completion("Pixel"))) as model:
        yield [
            sys.executable, "-W", "error", "-m", "retcon", "mcp", "--db", str(db), "--user-id", "ann", "--tools", "all",
            "--model", model.base, "--model-name", "fake",
        ]  # fmt: skip


async def use_every_tool(call: Call) -> None:
    """Call each tool, with numbers and lists as this client sends them, and see that it does its work."""
    used: set[str] = set()

    async def use(tool: str, **arguments: Any) -> dict[str, Any]:
        used.add(tool)
        return await call(tool, arguments)

    (cat,) = (await use("add_memory", text="I adopted a cat named Pixel.", timestamp="2026-05-09"))["ids"]
    turns = [{"role": "user", "content": "The rent is 725."}, {"role": "assistant", "content": "Noted."}]
    assert (await use("add_memory", messages=turns, session="s1", metadata={"n": 1}))["stored"] == 2
    for budget in (64, "64", 64.0):
        recalled = await use("recall_memories", query="Which cat did I adopt?", budget=budget)
        assert "Pixel" in recalled["text"]
        assert recalled["tokens"] <= recalled["budget"] == 64
    again = await use("recall_memories", query="Which cat did I adopt?", exclude=recalled["tried"])
    assert again["action"] not in recalled["tried"]
    listed = await use("list_memories", limit="2")
    assert listed["total"] == 3
    assert [each["text"] for each in listed["memories"]] == ["Noted.", "The rent is 725."]
    assert (await use("list_memories", cursor=listed["next"]))["memories"][0]["id"] == cat
    assert (await use("search_memories", query="cat", top_k=1))["results"][0]["id"] == cat
    assert (await use("ask_memory", question="What is my cat called?", max_looks=1, safe=True))["answer"] == "Pixel"
    (new,) = (await use("add_memory", text="The cat is called Dot.", supersedes=cat))["ids"]
    assert (await use("get_memory", id=cat))["superseded_by"] == new
    (origin,) = (await use("get_memory_sources", ids=[new]))["sources"]
    assert [each["id"] for each in origin["versions"]] == [cat, new]
    assert (await use("explain_decision", query="Which cat?", budget=64))["reason"]
    gone = (await use("delete_memory", id=new))["deleted"]
    assert gone >= 1
    assert (await use("delete_all_memories"))["deleted"] == 4 - gone
    assert used == set(TOOLS)
    assert set(FEW) < used
