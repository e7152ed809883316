"""Imports point one way: a stage knows what comes before it, never what comes after."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "retcon"

# Each module may import the ones named in its line, the ones those name, and nothing else of ours.
MAY_USE: dict[str, set[str]] = {
    "errors": set(),
    "deadline": {"errors"},
    "words": set(),
    "note": set(),
    "trace": set(),
    "tokens": {"deadline", "errors"},
    "sample": set(),
    "model.base": {"errors"},
    "model.embed": {"errors", "words"},
    "model.http": {"deadline", "errors", "tokens", "words", "model.base"},
    "model.gguf": {"deadline", "errors", "model.base"},
    "model.step": set(),
    "model.flow": {"deadline", "model.base", "model.step"},
    "model.hf": {"errors", "model.base", "model.flow", "model.step"},
    "model.fake": {"errors", "tokens", "model.base"},
    "model.cassette": {"errors", "model.base"},
    "model": {
        "errors", "model.base", "model.cassette", "model.embed", "model.fake", "model.gguf", "model.hf", "model.http",
    },
    "store": {"note"},
    "store.checksum": set(),
    "store.rows": {"note", "store.checksum"},
    "store.migrations": {"errors", "store.checksum", "store.rows"},
    "store.connections": {"deadline", "errors", "store.migrations"},
    "store.postings": {"store"},
    "store.seal": {"store.checksum", "store.rows"},
    "store.replies": {"store.checksum", "store.rows"},
    "store.snapshot": {"note", "store", "store.postings", "store.rows"},
    "store.writing": {"errors", "note", "store.checksum", "store.postings", "store.rows", "store.seal", "words"},
    "store.deleting": {"errors", "store.postings", "store.rows", "store.seal", "store.writing"},
    "store.purging": {"errors", "store.seal"},
    "store.checking": {
        "errors", "store.checksum", "store.connections", "store.migrations", "store.postings", "store.rows",
        "store.writing",
    },
    "store.backup": {"errors", "store.checking", "store.connections", "store.seal"},
    "store.sqlite": {
        "errors", "note", "store", "store.checking", "store.checksum", "store.connections", "store.deleting",
        "store.purging", "store.replies", "store.rows", "store.seal", "store.snapshot", "store.writing",
    },
    "cache": {"errors", "model.base", "note", "store.replies", "store.sqlite"},
    "validate": {"errors", "note"},
    "retrieve": {"deadline", "errors", "note", "words", "model", "store"},
    "features": {"errors", "words"},
    "route": {"errors", "note", "features"},
    "pack": {"deadline", "errors", "note", "tokens"},
    "extract": {"deadline", "errors", "note", "tokens", "words", "pack"},
    "fidelity.text": {"deadline", "note", "words"},
    "fidelity.numerals": {"fidelity.text"},
    "fidelity.days": set(),
    "fidelity.dates": {"fidelity.days", "fidelity.numerals", "fidelity.text"},
    "fidelity.numbers": {"words", "fidelity.dates", "fidelity.days", "fidelity.numerals", "fidelity.text"},
    "fidelity.names": {"words", "fidelity.days", "fidelity.numbers", "fidelity.numerals", "fidelity.text"},
    "fidelity.quotes": {"words", "fidelity.text"},
    "fidelity.negations": {"words", "fidelity.text"},
    "fidelity.reading": {
        "fidelity.dates", "fidelity.days", "fidelity.names", "fidelity.negations", "fidelity.numbers",
        "fidelity.numerals", "fidelity.quotes", "fidelity.text",
    },
    "fidelity.support": {
        "note", "words", "fidelity.days", "fidelity.negations", "fidelity.reading", "fidelity.text",
    },
    "fidelity.index": {"note", "fidelity.negations", "fidelity.reading", "fidelity.text"},
    "fidelity": {"deadline", "note", "words", "fidelity.index", "fidelity.reading", "fidelity.support"},
    "operate": {"deadline", "errors", "note", "tokens", "model", "pack", "extract"},
    "answer": {"errors", "note", "words", "model", "pack", "operate"},
    "perform": {"errors", "note", "tokens", "trace", "model", "store.sqlite", "cache", "fidelity", "operate"},
    "memory": {
        "errors", "note", "tokens", "model", "store", "store.backup", "store.checking", "store.connections",
        "store.sqlite", "cache", "validate", "retrieve", "features", "route", "pack", "operate", "answer", "perform",
        "trace",
    },
    "aio": {"answer", "errors", "memory", "note", "store", "store.checking"},
    "grant": {"deadline", "errors", "note", "validate"},
    "serving": {"errors"},
    "mcp.shapes": {"note"},
    "mcp.desk": {
        "answer", "deadline", "errors", "grant", "mcp.shapes", "memory", "note", "operate", "store", "validate",
    },
    "mcp.tools": {"errors", "grant", "mcp.desk", "mcp.shapes", "serving"},
    "mcp.server": {"deadline", "errors", "mcp.desk", "mcp.shapes", "mcp.tools", "operate", "serving"},
    "mcp.transport": {"errors", "mcp.server", "serving"},
    "mcp": {"mcp.desk", "mcp.server", "mcp.transport"},
    "server.page": {"errors", "sample"},
    "server.faults": {"errors", "grant", "server.logs", "serving"},
    "server.limits": {"errors", "store.purging"},
    "server.metrics": set(),
    "server.logs": set(),
    "server.about": set(),
    "server.schema": {"memory", "server.faults", "serving"},
    "server.workers": {"deadline", "errors", "server.faults", "server.limits", "server.logs"},
    "server.cursors": {"errors", "grant"},
    "server.private": {"errors"},
    "server.keys": {"errors", "grant", "note", "server.private", "validate"},
    "server.once": {"errors", "server.faults", "server.logs", "server.private"},
    "server.calls": {
        "deadline", "errors", "grant", "memory", "note", "operate", "retrieve", "route", "server.cursors",
        "server.faults", "server.limits", "server.once", "server.schema", "store", "trace", "validate",
    },
    "server.gate": {
        "errors", "grant", "server.faults", "server.keys", "server.limits", "server.logs", "server.metrics",
        "server.workers", "serving", "trace",
    },
    "server.app": {
        "errors", "grant", "memory", "server.about", "server.calls", "server.cursors", "server.faults", "server.gate",
        "server.keys", "server.limits", "server.metrics", "server.once", "server.page", "server.schema",
        "server.workers", "serving", "store.purging",
    },
    "server": {"errors", "grant", "memory", "server.app", "server.keys", "server.limits", "server.once"},
    "server.run": {"errors", "memory", "server", "server.keys", "server.limits", "server.logs", "serving"},
    # offline: what serving never loads
    "judge": {
        "answer", "fidelity.days", "fidelity.numbers", "fidelity.numerals", "fidelity.reading", "fidelity.text",
        "model", "model.base", "operate", "pack", "words",
    },
    "calibrate": {"errors"},
    "stats": {"errors"},
    "mechanism": {"errors"},
    "querytype": {"errors", "features"},
    "outcomes": {"errors", "features", "note"},
    "fit": {"errors", "features", "outcomes", "route"},
    "ladder": {"errors", "features", "fit", "note", "outcomes", "route"},
    "crossfit": {"calibrate", "errors", "fit", "ladder", "outcomes", "querytype"},
    "learn": {
        "calibrate", "crossfit", "errors", "features", "fit", "ladder", "outcomes", "route", "stats",
    },
    "study.question": {"errors", "note", "tokens"},
    "study.reading": {"errors"},
    "study.locomo": {"errors", "note", "study.question", "study.reading"},
    "study.longmemeval": {"errors", "note", "study.question", "study.reading"},
    "study.own": {"errors", "features", "note", "study.question", "study.reading", "validate"},
    "study.datasets": {
        "errors", "note", "sample", "study.locomo", "study.longmemeval", "study.own", "study.question",
    },
    "study.splits": {"errors", "study.question"},
    "study": {"study.datasets", "study.question", "study.splits"},
    "study.protocols": {
        "errors", "features", "model", "note", "pack", "retrieve", "store.sqlite", "study.question", "tokens",
    },
    "study.label": {
        "answer", "cache", "errors", "fidelity", "judge", "model", "note", "operate", "outcomes", "pack",
        "study.protocols", "tokens",
    },
    "study.published": set(),
    "study.drawing": {"errors", "note", "stats"},
    "study.studies": {"crossfit", "errors", "ladder", "note", "outcomes", "stats", "study.published"},
    "study.cells": {"crossfit", "errors", "stats", "study.published", "study.studies"},
    "study.paper_tables": {
        "crossfit", "errors", "features", "ladder", "note", "outcomes", "stats", "study.cells", "study.published",
        "study.studies",
    },
    "study.more_tables": {
        "crossfit", "errors", "ladder", "note", "outcomes", "stats", "study.cells", "study.published", "study.studies",
    },
    "study.tables": {"outcomes", "study.cells", "study.more_tables", "study.paper_tables", "study.studies"},
    "study.curves": {"crossfit", "errors", "note", "outcomes", "stats", "study.studies"},
    "study.figures": {
        "crossfit", "errors", "note", "outcomes", "stats", "study.cells", "study.curves", "study.drawing",
        "study.published", "study.studies",
    },
    "study.story": {
        "crossfit", "errors", "note", "outcomes", "stats", "study.cells", "study.curves", "study.figures",
        "study.published", "study.studies",
    },
    "study.page": {
        "errors", "outcomes", "study.drawing", "study.figures", "study.story", "study.tables",
    },
    "study.report": {
        "crossfit", "errors", "outcomes", "study.curves", "study.figures", "study.page", "study.published",
        "study.story", "study.studies", "study.tables",
    },
    "study.bench": {
        "cache", "calibrate", "crossfit", "errors", "fit", "judge", "learn", "model", "note", "operate", "outcomes",
        "route", "study.label", "study.report",
    },
    "study.advise": {
        "errors", "fit", "note", "outcomes", "stats", "study.bench", "study.curves", "study.figures", "study.tables",
    },
}  # fmt: skip
PURE = {
    "errors", "note", "tokens", "words", "features", "route", "pack", "extract", "fidelity", "fidelity.dates",
    "fidelity.days", "fidelity.index", "fidelity.names", "fidelity.negations", "fidelity.numbers", "fidelity.numerals",
    "fidelity.quotes", "fidelity.reading", "fidelity.support", "fidelity.text", "calibrate", "stats", "mechanism",
    "querytype", "fit", "ladder", "crossfit",
}  # fmt: skip
LATE = {"fit": {"sklearn"}}  # imported inside the one function that needs it
FACES = {"cli", "demo", "__main__", "__init__"}
OUTSIDE = {"socket", "sqlite3", "httpx", "urllib", "subprocess", "random", "time", "sklearn", "scipy"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__") if name != "__init__" else name] = path
    return found


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = modules()
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("retcon.")
                out.add(f"retcon.{inner}" if inner in known else node.module)
    return out


def ours(path: Path) -> set[str]:
    return {name.removeprefix("retcon.") for name in imports(path) if name.split(".")[0] == "retcon"} - {"retcon"}


@pytest.mark.parametrize("name", [name for name in modules() if name.split(".")[0] not in FACES])
def test_module_imports_only_what_comes_before_it(name: str) -> None:
    assert name in MAY_USE, f"say in this test what {name} may import"
    assert ours(modules()[name]) <= MAY_USE[name]


@pytest.mark.parametrize("name", sorted(PURE))
def test_stage_leaves_network_disk_clock_and_chance_alone(name: str) -> None:
    roots = {found.split(".")[0] for found in imports(modules()[name])}
    assert roots & OUTSIDE <= LATE.get(name, set())


@pytest.mark.parametrize("name", sorted(LATE))
def test_what_is_imported_late_is_not_loaded_with_the_module(name: str) -> None:
    code = f"import sys, retcon.{name}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(out.stdout.split()) & LATE[name]


def test_nobody_imports_the_faces() -> None:
    for name, path in modules().items():
        if name.split(".")[0] not in FACES:
            assert not ours(path) & FACES


def test_importing_retcon_loads_no_training_code_and_no_optional_part() -> None:
    code = "import sys, retcon; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert not loaded & {
        "sklearn",
        "scipy",
        "typer",
        "rich",
        "wordllama",
        "bpe_openai",
        "httpx",
        "asyncio_",
        "pydantic",
    }
