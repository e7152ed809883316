"""README and docs are true: links lead somewhere, code runs, tables are those of bench/results."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

import retcon
from bench.tables import pages, rewritten
from retcon import Memory
from retcon.errors import MissingExtraError
from retcon.model.fake import FakeChat

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run python -m bench.tables"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = re.findall(r"[\w/-]+\.md", nav)
    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in pages()[1:])


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_page_is_longer_than_3000_words(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 3000


def test_the_glossary_has_at_most_25_words_each_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\| (\w+) \|", text.split("|---|---|")[1], re.M)
    assert 15 <= len(set(entries)) == len(entries) <= 25


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: retcon\.(\w+)$", text, re.M)
    assert [name for name in retcon.__all__ if name not in {*shown, "RefusedError", "RetconError", "__version__"}] == []
    assert "::: retcon.errors" in text


# -- README ------------------------------------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_reaches_python_within_150_words_and_ends_within_900() -> None:
    assert len(README.split("```python")[0].split()) <= 150
    assert len(README.split()) <= 900


def test_readme_has_one_table_of_at_most_six_rows() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", README.replace(_transcript(), ""), re.M)
    assert len(tables) == 1
    assert len(tables[0].splitlines()) - 2 <= 6


def _transcript() -> str:
    (block,) = re.findall(r"```console\n.*?```", README, re.DOTALL)
    return str(block)


def test_readme_asks_a_model_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, code = blocks("README.md")
    with Memory("agent.db") as memory:
        memory.add("Pixel's first vet visit cost 84 euros.", user_id="ann")
    endpoint = 'model="http://localhost:8000/v1", model_name="qwen"'
    assert endpoint in code
    fake = FakeChat(lambda ask: "84 euros")
    assert run(code.replace(endpoint, "model=fake"), Memory=Memory, fake=fake) == ["84 euros"]


# -- pages for beginners -----------------------------------------------------------------------------------------------


def blocks(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def run(code: str, **given: object) -> list[str]:
    """What the code prints, call by call."""
    said: list[str] = []
    scope = {"print": lambda *parts: said.append(" ".join(map(str, parts))), **given}
    exec(code, scope)
    if isinstance(memory := scope.get("memory"), Memory):
        memory.close()
    return said


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(blocks("README.md")[0], id="README.md"),
        pytest.param("".join(blocks("docs/index.md")), id="index.md"),
        pytest.param("".join(blocks("docs/first-agent.md")), id="first-agent.md"),
    ],
)
def test_python_prints_what_the_page_says(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    promised = [line.rpartition("  # ")[2] for line in code.splitlines() if line.startswith("print(")]
    for text, promise in zip(run(code), promised, strict=True):
        assert text.startswith(promise.removesuffix("...")), (text, promise)
        assert text == promise or promise.endswith("...")


def test_readme_run_twice_leaves_the_same_notes_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _ = blocks("README.md")
    assert run(code) == run(code)
    with Memory("agent.db") as memory:
        assert [note.id for note in memory.get_all(user_id="ann")] == ["n1", "n2"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_imports_exists(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in re.findall(r"^(?:from|import) retcon.*$", code, re.M):
            with suppress(MissingExtraError):  # a framework: tests/integrations run its page
                exec(line, {})


def test_scripts_that_a_page_names_exist() -> None:
    for page in [*pages(), ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"(?:`|-m )bench\.([a-z_]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / "bench" / f"{name}.py").exists() or (ROOT / "bench" / name).is_dir(), (page.name, name)


def test_the_tree_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("```\nretcon/\n")[1].split("```")[0]
    ground, lab = tree.split("bench/  ")[0].split("retcon/lab/ ")
    for folder, part in (("retcon", ground), ("retcon/lab", lab)):
        for name in re.findall(r"\b([a-z_]+(?:\.py|/))", part):
            assert (ROOT / folder / name).exists(), name


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_and_targets_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:tests|requirements|docs|retcon|bench|\.ci|\.github)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert f"\n{target}:" in makefile, target


def test_the_public_workflow_runs_targets_that_exist_on_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ran = re.findall(r"run: make ([a-z-]+)", workflow)
    assert {"lint", "docs", "demo", "test", "test-clients", "test-integrations", "test-deep", "release-check"} == set(
        ran
    )
    assert all(f"\n{target}:" in makefile for target in ran)
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert re.findall(r'"(3\.\d+)"', workflow.split("matrix:")[1]) == classified


def test_the_version_stands_in_one_place() -> None:
    named = [path for path in ("pyproject.toml", "CITATION.cff", "mkdocs.yml") if retcon.__version__ in text_of(path)]
    assert named == []


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
