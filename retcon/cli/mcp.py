"""retcon mcp: the memory as an MCP server."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError, MissingExtraError
from retcon.grant import bound_to
from retcon.serving import url_host
from retcon.store.places import is_postgres
from retcon.store.purging import Purger
from retcon.tokens import check_budget

EXAMPLES = (
    "retcon mcp --db agent.db --user-id ann",
    "retcon mcp --db agent.db --user-id ann --json",
    "retcon mcp --db agent.db --user-id ann --tools recall_memories,add_memory",
    "retcon mcp --db agent.db --http --port 8765",
    "RETCON_MCP_KEY=... retcon mcp --http --host 0.0.0.0 --allow-host box.lan --key-env RETCON_MCP_KEY",
)


def mcp(
    *,
    http: Annotated[bool, flag("--http", "Streamable HTTP in place of standard input.")] = False,
    host: Annotated[str, option("--host", "HOST", "Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "PORT", "0 takes a free one.", min=0, max=65535)] = 8765,
    key_env: Annotated[
        str | None, option("--key-env", "NAME", "The variable with the key that HTTP clients send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, option("--allow-host", "NAME", "A name under which clients call. Repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, option("--allow-origin", "URL", "Where web pages that may call come from. Repeatable.")
    ] = None,
    tools: Annotated[
        str | None, option("--tools", "NAMES", "Which tools to offer: all, or names with commas. Else three.")
    ] = None,
    max_seconds: Annotated[float, option("--max-seconds", "S", "For one call; a late one ends.")] = 300.0,
    whose: opt.Whose,
    budget: opt.Budget = opt.BUDGET,
    setup: opt.Setup,
    language: opt.LanguageName = None,
    db: opt.Db = opt.DB,
    as_json: Annotated[bool, flag("--json", "Print a client's configuration for this, and stop.")] = False,
) -> None:
    """Serve the memory to agents over MCP.

    A client starts it and speaks over standard input and output; with --http it listens. An id that is named here binds
    the server: its tools then see and touch the notes of that scope alone.
    """
    if not http and (key_env or allow_host or allow_origin):
        raise InputError("--key-env, --allow-host and --allow-origin are for --http")
    bound, budget = whose.where().scope, check_budget(budget)
    ours = _import_server()
    ours.choose(tools, model=True)  # a name that no tool has is refused here
    named, pages = tuple(allow_host or ()), tuple(allow_origin or ())
    address = ours.Address(host, port, _read_key(key_env), named, pages) if http else None
    workers = ours.ToolWorkers(max_seconds)
    setup.model.keywords()  # an endpoint without a name is refused here
    if as_json:
        parts, model = setup.parts, setup.model
        given = {
            "--db": _absolute(db), "--user-id": whose.user_id, "--agent-id": whose.agent_id, "--run-id": whose.run_id,
            "--budget": budget if budget != opt.BUDGET else None, "--top-k": setup.top_k,
            "--router": _absolute(parts.router), "--counter": parts.counter, "--retriever": parts.retriever,
            "--embedder": parts.embedder, "--reranker": parts.reranker, "--timeout": model.timeout,
            "--model": model.model if opt.is_endpoint(model.model) else _absolute(model.model),
            "--model-name": model.name,
            "--no-focus": setup.no_focus or None, "--guard": setup.guard, "--language": language,
            "--max-seconds": None if max_seconds == ours.SECONDS else max_seconds, "--tools": tools,
        }  # fmt: skip
        entry = _start_entry(given) if address is None else _url_entry(address, ours.PATH, key_env)
        show.document({"mcpServers": {"retcon": entry}})
        return
    with setup.open(db, create=True, language=language) as memory:
        server = ours.build(ours.ToolVerbs(memory, bound_to(bound), budget), workers, tools)
        purger = Purger(memory.count_due, memory.purge_due)

        def close() -> None:
            purger.close()
            memory.close()

        if address is None:
            ours.serve_stdio(server, workers, close)
        else:
            ours.serve_http(server, workers, close, address)


def _import_server() -> Any:
    """The server's parts, which need the optional package."""
    try:
        from retcon import mcp as ours
    except ModuleNotFoundError as error:
        raise MissingExtraError("the MCP server", "mcp") from error
    return ours


def _read_key(name: str | None) -> str | None:
    """The key in the variable of that name."""
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise InputError(f"--key-env: the variable {name[:80]!r} is not set, or empty")
    return key


def _start_entry(given: dict[str, Any]) -> dict[str, Any]:
    """How a client starts the server: by full paths, since it has its own folder and its own PATH."""
    program = os.path.join(os.path.dirname(sys.executable), "retcon")  # of this environment, not of another on the PATH
    start = [program] if os.path.exists(program) else [sys.executable, "-m", "retcon"]
    options = [(name, value) for name, value in given.items() if value is not None]
    said = [word for name, value in options for word in ([name] if value is True else [name, str(value)])]
    return {"command": start[0], "args": [*start[1:], "mcp", *said]}


def _url_entry(address: Any, path: str, key_env: str | None) -> dict[str, Any]:
    """How a client finds the server."""
    host = url_host(address.names[0] if address.names else address.host)
    entry: dict[str, Any] = {"type": "http", "url": f"http://{host}:{address.port}{path}"}
    return entry | ({"headers": {"Authorization": f"Bearer ${{{key_env}}}"}} if key_env else {})


def _absolute(path: str | None) -> str | None:
    return path if path is None or path == ":memory:" or is_postgres(path) else os.path.abspath(path)
