"""What holds for every agent framework, whether it is installed or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = {
    "openai_agents": "agents", "llamaindex": "llama_index", "pydantic_ai": "pydantic_ai", "anthropic": "anthropic",
    "adk": "google.adk", "crewai": "crewai", "inspect": "inspect_ai",
}  # fmt: skip


@pytest.mark.parametrize("name", PACKAGES)
def test_framework_that_is_not_installed_fails_once_with_its_install_line(name: str) -> None:
    hidden = f"import sys; sys.modules[{PACKAGES[name]!r}] = None; import retcon.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    extra = name.replace("_", "-")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"pip install 'retcon-memory[{extra}]'")


def test_tools_need_no_framework() -> None:
    code = "import retcon, sys; retcon.tools(retcon.Memory(':memory:')); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {package.split(".")[0] for package in PACKAGES.values()}
