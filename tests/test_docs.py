"""README and docs are true: links lead somewhere, code runs, tables are those of bench/results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.tables import pages, rewritten

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run python -m bench.tables"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in pages()[1:] if f"docs/{page.name}" not in readme] == []


def test_readme_example_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    said: list[object] = []
    exec(code.replace("print(", "said.append("), {"said": said}, scope)
    promised = [line.split("# ", 1)[1] for line in code.splitlines() if line.startswith("print(")]
    for text, promise in zip(said, promised, strict=True):
        assert str(text).startswith(promise.removesuffix("...")), (text, promise)
    memory = scope["memory"]
    memory.close()  # type: ignore[attr-defined]


def test_the_tree_in_the_readme_names_files_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme.split("```\nretcon/\n")[1].split("```")[0]
    ground, lab = tree.split("bench/  ")[0].split("retcon/lab/ ")
    for folder, part in (("retcon", ground), ("retcon/lab", lab)):
        for name in re.findall(r"\b([a-z_]+(?:\.py|/))", part):
            assert (ROOT / folder / name).exists(), name


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_and_targets_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:tests|requirements|docs|\.ci)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert f"\n{target}:" in makefile, target
