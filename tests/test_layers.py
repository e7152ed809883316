"""Imports point one way: a module imports from its own layer, or from lower ones.

The ground floor (layers 0 to 5) serves queries; the laboratory (the last one) learns and measures, and nothing below
knows it. Within a layer there are no cycles. A layer names packages and single files, so that a new file of a known
package needs no line here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "retcon"
LAYERS = tuple(
    names.split()
    for names in (
        "errors deadline memo note habits plain words language trace sample",  # values and words
        # values in, values out
        "timeline tokens passages reading validate filters screen where features pack candidates rerank repeats worth"
        " extract evidence confidence drafts ladder reason route fidelity why",
        "model store cache",  # each with its one outside system
        "embedding reranker retrieve operate holds answer perform opening jsonl",  # stages, handed a model or a store
        "memory",  # all of it together
        "aio mem0 importing grant serving server mcp cli demo integrations __init__ __main__",  # faces
        "lab",
    )
)
FACES, LAB = len(LAYERS) - 2, len(LAYERS) - 1
SHARED = {"grant", "serving", "demo"}  # of the faces, for the faces
PURE = {*LAYERS[0], *LAYERS[1], "lab.calibrate", "lab.stats", "lab.mechanism", "lab.querytype", "lab.fit"}
PURE = (PURE | {"lab.fit_ladder", "lab.crossfit"}) - {"deadline"}  # whose clock it is
LATE = {"lab.fit": {"sklearn"}}  # imported inside the one function that needs it
OUTSIDE = {"socket", "sqlite3", "httpx", "urllib", "subprocess", "random", "time", "sklearn", "scipy"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__") if name != "__init__" else name] = path
    return found


MODULES = modules()


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("retcon.")
                out.add(f"retcon.{inner}" if inner in MODULES else node.module)
    return out


def ours(name: str) -> set[str]:
    found = {each.removeprefix("retcon.") for each in imports(MODULES[name]) if each.split(".")[0] == "retcon"}
    return found - {"retcon"}


def layer(name: str) -> int:
    found = [level for level, names in enumerate(LAYERS) if name.split(".")[0] in names]
    assert found, f"say in LAYERS of this test where {name} lies"
    return found[0]


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_nothing_from_a_higher_layer(name: str) -> None:
    assert {each for each in ours(name) if layer(each) > layer(name)} == set()


@pytest.mark.parametrize("name", MODULES)
def test_no_face_is_imported_by_what_it_shows(name: str) -> None:
    if layer(name) == FACES:  # a face may use its own files, and what faces share
        others = {each for each in ours(name) if layer(each) == FACES} - {name}
        own = {each for each in others if each.split(".")[0] in {name.split(".")[0], *SHARED}}
        assert name.startswith(("cli", "__")) or others == own
    elif layer(name) == LAB:
        assert {each for each in ours(name) if layer(each) == FACES and not each.startswith("cli")} == set()
        assert name.startswith("lab.cli") or not {each for each in ours(name) if each.startswith("cli")}


def test_there_are_no_cycles() -> None:
    try:
        tuple(TopologicalSorter({name: ours(name) - {name} for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(f"imports go round: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("name", [name for name in MODULES if {name, name.split(".")[0]} & PURE])
def test_stage_leaves_network_disk_clock_and_chance_alone(name: str) -> None:
    roots = {found.split(".")[0] for found in imports(MODULES[name])}
    assert roots & OUTSIDE <= LATE.get(name, set())


def loaded(code: str) -> set[str]:
    """The modules that are there after the code has run in a process of its own."""
    code = f"{code}; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("name", sorted(LATE))
def test_what_is_imported_late_is_not_loaded_with_the_module(name: str) -> None:
    assert not {each.split(".")[0] for each in loaded(f"import retcon.{name}")} & LATE[name]


def test_importing_retcon_loads_no_laboratory_and_no_optional_part() -> None:
    names = loaded("import retcon")
    assert "retcon.memory" in names
    assert not {name for name in names if name.startswith("retcon.lab")}
    optional = {"sklearn", "scipy", "typer", "rich", "wordllama", "bpe_openai", "httpx", "asyncio", "pydantic"}
    assert not {name.split(".")[0] for name in names} & optional


def test_a_recall_loads_no_laboratory() -> None:
    code = "from retcon import Memory; m = Memory(':memory:'); m.add('a cat'); m.recall('cat', 32)"
    assert not {name for name in loaded(code) if name.startswith("retcon.lab")}
