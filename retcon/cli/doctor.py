"""What is configured, what is missing, what is broken. Opens a store that is there, makes none, shows no secret."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import stat
import time
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

import retcon
from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError, MissingExtraError, ModelError, RetconError
from retcon.memory import Memory
from retcon.model import Ask, Chat, GgufChat, HttpChat, unknown_model
from retcon.operate import ACTIONS, usable
from retcon.store.checking import hints
from retcon.store.places import is_postgres, load_postgres, shown
from retcon.tokens import check_budget

EXTRAS = {  # extra -> what it brings, and the modules by which it is recognised
    "embed": ("static word vectors", ("wordllama",)),
    "sentence-transformers": ("sentence embeddings and cross-encoders, with torch", ("sentence_transformers",)),
    "fastembed": ("sentence embeddings and cross-encoders, with ONNX", ("fastembed",)),
    "model2vec": ("static sentence embeddings", ("model2vec",)),
    "index": ("an index of more than 100,000 vectors", ("faiss",)),
    "bpe": ("exact BPE token counts", ("bpe_openai",)),
    "http": ("OpenAI-compatible model endpoints", ("httpx",)),
    "local": ("local GGUF models", ("xllamacpp",)),
    "lab": ("Parquet files, boosted trees and figures", ("pyarrow", "sklearn", "matplotlib")),
    "postgres": ("a store on a PostgreSQL server", ("psycopg", "psycopg_pool")),
    "ray": ("labelling on several machines", ("ray",)),
    "gpu": ("local models on a GPU", ("torch", "transformers", "accelerate")),
    "server": ("the REST service and its page", ("fastapi", "uvicorn")),
    "mcp": ("the MCP server", ("mcp", "uvicorn")),
    "otel": ("OpenTelemetry spans", ("opentelemetry",)),
    "langchain": ("memory in LangChain and LangGraph", ("langchain", "langgraph")),
    "openai-agents": ("memory in the OpenAI Agents SDK", ("agents",)),
    "llamaindex": ("memory in LlamaIndex", ("llama_index.core",)),
    "pydantic-ai": ("memory in pydantic-ai", ("pydantic_ai",)),
    "anthropic": ("Anthropic's memory tool", ("anthropic",)),
    "adk": ("memory in Google ADK", ("google.adk",)),
    "crewai": ("memory in CrewAI", ("crewai",)),
    "inspect": ("compaction in Inspect", ("inspect_ai",)),
    "bench": ("rivals for the benchmarks", ("rank_bm25", "bm25s", "tantivy", "psutil")),
}
READ = (
    "RETCON_DB",
    "RETCON_BUDGET",
    "RETCON_MODEL",
    "RETCON_MODEL_NAME",
    "RETCON_EMBEDDER",
    "RETCON_RERANKER",
    "OPENAI_BASE_URL",
)
KEYS = ("RETCON_API_KEY", "OPENAI_API_KEY")  # never shown
_ASK = Ask(({"role": "user", "content": "Reply with the word ready."},), max_tokens=4)


def examine(db: str, parts: opt.Parts, model: opt.ModelChoice, *, check: bool = False) -> dict[str, Any]:
    """Everything found, as plain JSON values; `ok` is False where something is broken, and `broken` says what.

    With `check` the model is asked for a word.
    """
    report: dict[str, Any] = {
        "retcon": retcon.__version__,
        "python": platform.python_version(),
        "sqlite": _sqlite(),
        "setup": _setup(parts),
        "store": _store(db),
        "extras": {name: _extra(name, *about) for name, about in EXTRAS.items()},
        "model": _model(model, check=check),
        "environment": {name: _drop_secrets(os.environ.get(name)) for name in READ}
        | {name: _hide(name) for name in KEYS},
    }
    report["environment"] |= _budget(report["environment"]["RETCON_BUDGET"])
    looked_at = ("sqlite", "setup", "store", "model", "environment")
    broken = [f"{part}: {report[part]['error']}" for part in looked_at if "error" in report[part]]
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


def _setup(parts: opt.Parts) -> dict[str, Any]:
    """The parts that a recall would use; each one is loaded to see that it can be."""
    try:
        with opt.open_memory(":memory:", **asdict(parts)) as memory:
            router = memory.router
            return {
                "router": {
                    "name": router.name, "kind": router.kind, "actions": list(router.actions),
                    "provenance": dict(router.provenance),
                },
                "counter": memory.count.name, "retriever": memory.retriever, "embedder": memory.embedder.name,
            }  # fmt: skip
    except RetconError as error:
        return {"error": str(error)}


def _model(choice: opt.ModelChoice, *, check: bool) -> dict[str, Any]:
    """How a model is configured; a file is not loaded and an endpoint not called unless it is to be checked."""
    found: dict[str, Any] = {"model": None, "only_for": None, "actions": list(usable(None)), "reply": None}
    given, only = choice.model, None
    if given is None and (given := os.environ.get("OPENAI_BASE_URL") or None) is not None:
        only = "ask and forced actions, by OPENAI_BASE_URL"
    if given is None:
        return found | ({"error": "--check-model: no model is configured"} if check else {})
    found |= {"model": _drop_secrets(given), "only_for": only, "actions": list(ACTIONS)}
    try:
        choice = replace(choice, model=given)
        return found | (_endpoint(choice, check) if opt.is_endpoint(given) else _file(given, choice, check))
    except RetconError as error:
        return found | {"error": str(error)}


def _endpoint(choice: opt.ModelChoice, check: bool) -> dict[str, Any]:
    options = {} if choice.timeout is None else {"timeout": choice.timeout}
    with opt.open_memory(":memory:", **choice.keywords()) as memory:
        chat = memory.chat
        assert isinstance(chat, HttpChat)
        key = chat.endpoint.key  # the memory knows whose key goes where
        once = HttpChat(chat.endpoint.base, chat.name, key=key, retries=0, **options)
    with closing(once):
        return {"kind": "http", "name": once.name, "key": "sent, not shown" if key else None} | _reply(once, check)


def _file(path: str, choice: opt.ModelChoice, check: bool) -> dict[str, Any]:
    if not path.lower().endswith(".gguf"):
        raise unknown_model(path)
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtraError("a local GGUF model", "local")
    if not os.path.isfile(path):
        raise InputError(f"there is no model file {path!r}")
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is no GGUF file")
    if not check:
        return {"kind": "gguf"}
    with GgufChat(path, timeout=60.0 if choice.timeout is None else choice.timeout) as chat:
        return {"kind": "gguf", "name": chat.name} | _reply(chat, check)


def _reply(chat: Chat, check: bool) -> dict[str, Any]:
    if not check:
        return {}
    started = time.perf_counter()
    (reply,) = chat([_ASK])
    if isinstance(reply, ModelError):
        return {"error": str(reply)}
    return {"reply": {"text": reply.text[:80], "seconds": round(time.perf_counter() - started, 3)}}


def _store(db: str) -> dict[str, Any]:
    if is_postgres(db):
        return _server(db)
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


def _server(db: str) -> dict[str, Any]:
    """The same of a store on a server, which is opened only where it is there."""
    found: dict[str, Any] = {"path": shown(db), "exists": False}
    try:
        found["exists"] = load_postgres().is_there(db)
        if not found["exists"]:
            return found
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
    missing = [module for module in modules if not _is_there(module)]
    found: dict[str, Any] = {"about": about, "installed": not missing}
    return found | ({"missing": missing, "install": f"pip install 'retcon-memory[{name}]'"} if missing else {})


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it lies in
        return False


def _budget(text: str | None) -> dict[str, str]:
    try:
        check_budget(int(text or 0))
        return {}
    except ValueError:  # InputError is one too
        return {"error": f"RETCON_BUDGET is {(text or '')[:40]!r}, not a whole number of tokens"}


def _drop_secrets(given: str | None) -> str | None:
    """The value without what a URL may hold of secrets: user, password, query."""
    if given is None or "://" not in given:
        return given
    try:
        parts = urlsplit(given)
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "a URL that cannot be read"
    return f"{parts.scheme}://{place}{parts.path}"


def _hide(name: str) -> str | None:
    return "set, not shown" if os.environ.get(name) else None


def tell(report: dict[str, Any]) -> None:
    """The report for people, a line each."""
    sqlite = report["sqlite"]
    lacks = [f"no {feature}" for feature in ("json", "strict") if not sqlite[feature]]
    _line("retcon", f"{report['retcon']}, Python {report['python']}")
    _line("SQLite", ", ".join([sqlite["version"], *(lacks or ["json and STRICT tables work"])]))
    for name, value in (*_store_lines(report["store"]), *_setup_lines(report["setup"])):
        _line(name, value)
    for name, value in _model_lines(report["model"]):
        _line(name, value)
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
    show.block(show.one_line(value), mark=f"{name:<17} ", then=" " * 18)


def _store_lines(store: dict[str, Any]) -> list[tuple[str, str]]:
    path = store["path"] if is_postgres(store["path"]) else os.path.abspath(store["path"])
    if not store["exists"]:
        return [("store", f"{path} (not there yet: 'retcon add' makes it)")]
    if "check" not in store:
        return [("store", f"{path} (cannot be used, see below)")]
    counts = ", ".join(show.plural(store[f"{name}s"], name) for name in ("note", "scope", "record", "vector"))
    size = f"{show.size(store['bytes'])}, write-ahead log {show.size(store['wal_bytes'])}"
    if "server" in store:
        size = f"{store['server']}, pgvector {store['pgvector']}, {show.size(store['bytes'])}"
    lines = [
        ("store", path),
        ("", f"schema {store['schema']}, indexed in {store['language']}, {counts}"),
        ("", f"{size}, quick check {store['check']}"),
    ]
    lacking = show.plural(store["unembedded"], "note")
    lines += [("", f"{lacking} without a vector: 'retcon embed' makes them")] if store["unembedded"] else []
    waiting = show.plural(store["unpurged"], "delete")
    lines += [("", f"{waiting} whose words leave the files with the next purge")] if store["unpurged"] else []
    return lines + [("", hint) for hint in (() if "server" in store else hints(store["path"]))]


def _model_lines(model: dict[str, Any]) -> list[tuple[str, str]]:
    actions = f"actions are {', '.join(model['actions'])}"
    if model["model"] is None:
        return [("model", f"none configured: {actions}")]
    if "error" in model:
        return [("model", f"{model['model']} (cannot be used, see below)")]
    about = [f"{model['name']} at {model['model']}" if model["kind"] == "http" else model["model"]]
    about += [f"the key is {model['key']}" if model["key"] else "no key"] if model["kind"] == "http" else []
    about += [f"for {model['only_for']}"] if model["only_for"] else []
    reply = model["reply"]
    asked = f"answers {reply['text']!r} after {reply['seconds']:.2f} s" if reply else "not asked: --check-model asks it"
    return [("model", ", ".join(about)), ("", actions), ("", asked)]


def _setup_lines(setup: dict[str, Any]) -> list[tuple[str, str]]:
    if "error" in setup:
        return [("setup", "cannot be used, see below")]
    router = setup["router"]
    rows = [("router", f"{router['name']}, {router['kind']}, actions {', '.join(router['actions'])}")]
    if router["provenance"]:
        rows.append(("", str(router["provenance"].get("what") or router["provenance"])))
    return rows + [(name, setup[name]) for name in ("counter", "retriever", "embedder")]
