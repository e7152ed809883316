"""What `import retcon` promises."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import retcon
from retcon import AsyncMemory, Memory


def test_every_exported_name_exists_and_has_a_docstring() -> None:
    for name in retcon.__all__:
        thing = getattr(retcon, name)
        assert name == "__version__" or inspect.getdoc(thing), name


def test_what_a_hook_raises_can_be_imported_from_the_top() -> None:
    from retcon import RefusedError

    assert issubclass(RefusedError, retcon.RetconError)


def test_exports_are_sorted_without_repeats() -> None:
    assert list(retcon.__all__) == sorted(set(retcon.__all__))


def test_version_is_that_of_the_distribution() -> None:
    assert retcon.__version__ == version("retcon-memory")


def test_async_memory_has_every_public_method_of_memory() -> None:
    public = {name for name, _ in inspect.getmembers(Memory, inspect.isfunction) if not name.startswith("_")}
    for name in public - {"lines", "ask_stream"}:
        assert inspect.iscoroutinefunction(getattr(AsyncMemory, name, None)), name
    assert inspect.isasyncgenfunction(AsyncMemory.ask_stream)


def test_public_methods_say_what_comes_back() -> None:
    for owner in (Memory, AsyncMemory):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                assert inspect.getdoc(method), name
