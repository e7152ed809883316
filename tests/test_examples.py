"""Every example runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run_example(path: Path, folder: Path, *options: str) -> str:
    """What the example prints, run as a user would run it, in an empty folder."""
    command = [sys.executable, *options, str(path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(folder.iterdir()), "an example leaves nothing behind"
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints(path: Path, tmp_path: Path) -> None:
    run_example(path, tmp_path, "-W", "error")


def test_every_example_is_named_in_the_docs() -> None:
    page = (ROOT / "docs" / "first-agent.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if path.name not in page] == []


def test_every_example_of_a_framework_is_named_in_its_docs_and_run_by_its_tests() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "integrations").glob("*.md"))
    tests = "".join(test.read_text(encoding="utf-8") for test in (ROOT / "tests" / "integrations").glob("test_*.py"))
    for path in (ROOT / "examples" / "integrations").glob("*.py"):
        assert f"examples/integrations/{path.name}" in pages
        assert f'"{path.name}"' in tests
