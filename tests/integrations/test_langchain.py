"""LangChain 1.x: the middleware in a real agent, retriever, compressor, summarizer and context edit."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from retcon.errors import MissingExtraError
from retcon.integrations.extra import needs


def test_package_of_integrations_loads_no_framework() -> None:
    code = "import retcon.integrations, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & {"langchain", "langchain_core", "langgraph"}


def test_missing_framework_fails_with_its_install_line() -> None:
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'retcon-memory\[langchain\]'"),
        needs("langchain", "memory in LangChain"),
    ):
        importlib.import_module("no_such_framework")
