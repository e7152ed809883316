"""What is configured, what is missing, what is broken. Opens a store that is there, makes none, shows no secret."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import stat
from typing import Any

import retcon
from retcon.cli import show
from retcon.errors import RetconError
from retcon.memory import Memory
from retcon.operate import ACTIONS
from retcon.tokens import check_budget

EXTRAS = {  # extra -> what it brings, and the modules by which it is recognised
    "embed": ("static word vectors", ("wordllama",)),
    "bpe": ("exact BPE token counts", ("bpe_openai",)),
    "http": ("OpenAI-compatible model endpoints", ("httpx",)),
    "local": ("local GGUF models", ("xllamacpp",)),
    "gpu": ("local models on a GPU", ("torch", "transformers", "accelerate")),
    "bench": ("rivals for the benchmarks", ("rank_bm25", "bm25s", "tantivy", "psutil")),
}
READ = ("RETCON_DB", "RETCON_BUDGET")  # variables that this version reads
KEYS = ("RETCON_API_KEY", "OPENAI_API_KEY")  # never shown, and not read while no model can be configured


def examine(db: str, **options: str | None) -> dict[str, Any]:
    """Everything found, as plain JSON values; `ok` is False where something is broken, and `broken` says what."""
    report: dict[str, Any] = {
        "retcon": retcon.__version__,
        "python": platform.python_version(),
        "sqlite": _sqlite(),
        "setup": _setup(options),
        "store": _store(db),
        "extras": {name: _extra(name, *about) for name, about in EXTRAS.items()},
        "model": f"none configured: actions are {', '.join(ACTIONS)}",
        "environment": {name: os.environ.get(name) for name in READ} | {name: _hidden(name) for name in KEYS},
    }
    report["environment"] |= _budget(report["environment"]["RETCON_BUDGET"])
    parts = ("sqlite", "setup", "store", "environment")
    broken = [f"{part}: {report[part]['error']}" for part in parts if "error" in report[part]]
    return {"ok": not broken, "broken": broken} | report


def _sqlite() -> dict[str, Any]:
    found: dict[str, Any] = {"version": sqlite3.sqlite_version, "json": True, "strict": True}
    connection = sqlite3.connect(":memory:")
    for feature, statement in (("json", "SELECT json_array(1)"), ("strict", "CREATE TABLE t (a INTEGER) STRICT")):
        try:
            connection.execute(statement)
        except sqlite3.Error:
            found |= {
                feature: False,
                "error": f"SQLite {sqlite3.sqlite_version} lacks {feature}: 3.37 or newer is needed",
            }
    connection.close()
    return found


def _setup(options: dict[str, str | None]) -> dict[str, Any]:
    """The parts that a recall would use; each one is loaded to see that it can be."""
    try:
        with Memory(":memory:", **{name: value for name, value in options.items() if value is not None}) as memory:  # type: ignore[arg-type]
            router = memory.router
            return {
                "router": {
                    "name": router.name, "kind": router.kind, "actions": list(router.actions),
                    "provenance": dict(router.provenance),
                },
                "counter": memory.count.name, "retriever": memory.retriever, "embedder": memory.embed.name,
            }  # fmt: skip
    except RetconError as error:
        return {"error": str(error)}


def _store(db: str) -> dict[str, Any]:
    found: dict[str, Any] = {"path": db, "exists": os.path.exists(db)}
    fault = _obstacle(db)
    if fault:
        return found | {"error": fault}
    if not found["exists"]:
        return found
    try:
        with Memory(db) as memory:
            found |= memory.stats()
        return found if found["check"] == "ok" else found | {"error": f"quick check: {found['check']}"}
    except RetconError as error:
        return found | {"error": str(error)}


def _obstacle(db: str) -> str | None:
    """What keeps a store from being at this path; None where nothing does."""
    folder = os.path.dirname(os.path.abspath(db))
    try:
        if stat.S_ISDIR(os.stat(db).st_mode):
            return f"{db} is a folder: name a file in it"
        return None
    except FileNotFoundError:
        writable = os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        return None if writable and "://" not in db else f"{folder} is no folder that can be written to"
    except OSError as error:
        return f"{db[:200]}: {error.strerror}"


def _extra(name: str, about: str, modules: tuple[str, ...]) -> dict[str, Any]:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    found: dict[str, Any] = {"about": about, "installed": not missing}
    return found | ({"missing": missing, "install": f"pip install 'retcon-memory[{name}]'"} if missing else {})


def _budget(text: str | None) -> dict[str, str]:
    try:
        check_budget(int(text or 0))
        return {}
    except ValueError:  # InputError is one too
        return {"error": f"RETCON_BUDGET is {(text or '')[:40]!r}, not a whole number of tokens"}


def _hidden(name: str) -> str | None:
    return "set, not shown" if os.environ.get(name) else None


def tell(report: dict[str, Any]) -> None:
    """The report for people, a line each."""
    sqlite = report["sqlite"]
    lacks = [f"no {feature}" for feature in ("json", "strict") if not sqlite[feature]]
    _line("retcon", f"{report['retcon']}, Python {report['python']}")
    _line("SQLite", ", ".join([sqlite["version"], *(lacks or ["json and STRICT tables work"])]))
    for name, value in (*_store_lines(report["store"]), *_setup_lines(report["setup"])):
        _line(name, value)
    _line("model", report["model"])
    for name, extra in report["extras"].items():
        _line(f"[{name}]", extra["about"] + (": installed" if extra["installed"] else f": missing, {extra['install']}"))
    for name in (*READ, *KEYS):
        _line(name, report["environment"][name] or "not set")
    show.out()
    for fault in report["broken"]:
        show.out(f"BROKEN {show.one_line(fault)}")
    if report["ok"]:
        show.out("ready")


def _line(name: str, value: str) -> None:
    show.block(show.one_line(value), mark=f"{name:<15} ", then=" " * 16)


def _store_lines(store: dict[str, Any]) -> list[tuple[str, str]]:
    path = os.path.abspath(store["path"])
    if not store["exists"]:
        return [("store", f"{path} (not there yet: 'retcon add' makes it)")]
    if "check" not in store:
        return [("store", f"{path} (cannot be used, see below)")]
    counts = ", ".join(show.plural(store[f"{name}s"], name) for name in ("note", "scope", "record", "vector"))
    size = f"{_size(store['bytes'])}, write-ahead log {_size(store['wal_bytes'])}"
    return [("store", path), ("", f"schema {store['schema']}, {counts}"), ("", f"{size}, quick check {store['check']}")]


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _setup_lines(setup: dict[str, Any]) -> list[tuple[str, str]]:
    if "error" in setup:
        return [("setup", "cannot be used, see below")]
    router = setup["router"]
    rows = [("router", f"{router['name']}, {router['kind']}, actions {', '.join(router['actions'])}")]
    if router["provenance"]:
        rows.append(("", str(router["provenance"].get("what") or router["provenance"])))
    return rows + [(name, setup[name]) for name in ("counter", "retriever", "embedder")]
