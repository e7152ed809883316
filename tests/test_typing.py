"""What a type checker sees: AsyncMemory has the very parameters and results of Memory."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from retcon import AsyncMemory, Memory
from retcon.aio import Options

ROOT = Path(__file__).parents[1]
NAMES = sorted(
    name for name, _ in inspect.getmembers(Memory, inspect.isfunction) if not name.startswith("_") and name != "lines"
)
HEAD = """
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from retcon import AsyncMemory, Memory

P = ParamSpec("P")
T = TypeVar("T")


class Awaited(Protocol):
    def __call__(self, method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]: ...


awaited: Awaited
memory: Memory
later: AsyncMemory
"""
WRONG = {
    'later.recall("x", usr_id="ann")': 'Unexpected keyword argument "usr_id"',
    'later.search("x", user_id=3)': 'Argument "user_id" has incompatible type "int"',
    'later.add("x", nam="ann")': 'Unexpected keyword argument "nam"',
    "later.delete_all(session='s')": 'Unexpected keyword argument "session"',
    "later.get(1)": 'Argument 1 has incompatible type "int"',
    'AsyncMemory("x.db", treads=3)': 'Unexpected keyword argument "treads"',
    'AsyncMemory("x.db", top_k="3")': 'Argument "top_k" to "AsyncMemory"',
    'memory.recall("x", usr_id="ann")': 'Unexpected keyword argument "usr_id"',
    'memory.recall("x", since=3)': 'Argument "since" to "recall"',
}


def check(code: str, tmp_path: Path) -> list[str]:
    """What mypy says about the code, line by line."""
    file = tmp_path / "snippet.py"
    file.write_text(HEAD + code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "snippet.py:" in line]


def parts(revealed: str) -> list[str]:
    """Parameters and result; mypy gives keywords in any order."""
    return sorted(revealed.replace(") -> ", ", ) -> ").split(", "))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pairs = [f"reveal_type(awaited(memory.{name}))\nreveal_type(later.{name})" for name in NAMES]
    wrong = [f"wrong{place} = {call}" for place, call in enumerate(WRONG)]
    return check("\n".join((*pairs, *wrong)), tmp_path_factory.mktemp("typing"))


def test_every_method_of_async_memory_has_the_types_of_memory(said: list[str]) -> None:
    found = [line.removeprefix('note: Revealed type is "') for line in said if "Revealed type" in line]
    for name, (sync, later) in zip(NAMES, zip(found[::2], found[1::2], strict=True), strict=True):
        if name == "ask_stream":  # it is not awaited, but gone through
            awaited = r"typing.Coroutine[Any, Any, typing.Generator[\1, None, None]]"
            later = re.sub(r"typing\.AsyncGenerator\[(.+), None\]", awaited, later)
        if name != "close":  # its own, so that running calls end first
            assert parts(later) == parts(sync), name
        assert re.search(r"-> typing\.Coroutine\[Any, Any, .+\]", later), name
        assert "*args: Any" not in later, name


def test_a_wrong_call_is_an_error(said: list[str]) -> None:
    errors = [line for line in said if line.startswith("error")]
    assert len(errors) == len(WRONG)
    for error, wanted in zip(errors, WRONG.values(), strict=True):
        assert wanted in error


def test_async_memory_takes_the_options_of_memory() -> None:
    own: dict[str, Any] = get_type_hints(Memory.__init__)
    assert get_type_hints(Options) == {name: hint for name, hint in own.items() if name not in ("path", "return")}


def test_async_memory_keeps_docstrings() -> None:
    for name in NAMES:
        if name != "close":
            assert inspect.getdoc(getattr(AsyncMemory, name)) == inspect.getdoc(getattr(Memory, name))
