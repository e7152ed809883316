"""Words of other memories end in one line that says what they are called here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retcon import AsyncMemory, Memory
from retcon.errors import ConflictError

CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "search(limit=)": (
        lambda memory: memory.search("cat", limit=3),
        "Memory.search() got an unexpected keyword argument 'limit': here it is top_k; "
        "retcon.mem0.Memory takes Mem0's words",
    ),
    "recall(limit=)": (
        lambda memory: memory.recall("cat", limit=1),
        "Memory.recall() got an unexpected keyword argument 'limit': the budget bounds the text, and "
        "Memory(top_k=...) how many notes are looked at",
    ),
    "search(user=)": (
        lambda memory: memory.search("cat", user="ann"),
        "Memory.search() got an unexpected keyword argument 'user': here it is user_id",
    ),
    "add(infer=)": (
        lambda memory: memory.add("cat", infer=False),
        "Memory.add() got an unexpected keyword argument 'infer': notes are stored as they are, and shortened when "
        "they are recalled; retcon.mem0.Memory takes Mem0's words",
    ),
    "update()": (
        lambda memory: memory.update("a", data="x"),
        "'Memory' object has no attribute 'update': supersede(id, text) corrects a note, and history(id) keeps both; "
        "retcon.mem0.Memory takes Mem0's words",
    ),
    "an unknown word": (
        lambda memory: memory.add("cat", usr="x"),
        "Memory.add() got an unexpected keyword argument 'usr'",
    ),
    "an unknown name": (lambda memory: memory.updat("x"), "'Memory' object has no attribute 'updat'"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_word_of_mem0_ends_in_one_line_that_says_ours(memory: Memory, call: str) -> None:
    act, told = CALLS[call]
    with pytest.raises((TypeError, AttributeError)) as error:
        act(memory)
    assert str(error.value) == told
    assert memory.get_all() == []


def test_a_name_that_is_not_here_is_not_there(memory: Memory) -> None:
    assert not hasattr(memory, "update")
    assert not hasattr(Memory, "update")


def test_the_async_memory_says_the_same(path: Path) -> None:
    async def main() -> None:
        async with AsyncMemory(path) as memory:
            with pytest.raises(TypeError, match="here it is top_k"):
                await memory.search("cat", limit=3)  # type: ignore[call-arg]
            with pytest.raises(AttributeError, match=r"supersede\(id, text\)"):
                memory.update("a", "x")  # type: ignore[attr-defined]

    asyncio.run(main())


# -- conflicts name what the caller gave -------------------------------------------------------------------------------


def test_a_conflict_names_the_id_that_the_caller_gave_and_no_other(memory: Memory) -> None:
    memory.add("one", id="a")
    newer = memory.supersede("a", "two")
    for act in (lambda: memory.add("another", id="a"), lambda: memory.supersede("a", "three")):
        with pytest.raises(ConflictError, match=r"^the id 'a' is ") as error:
            act()
        assert newer.id not in str(error.value)
        assert error.value.note_id == "a"
    assert error.value.newer == newer.id
