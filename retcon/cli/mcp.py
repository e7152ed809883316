"""retcon mcp: the memory as an MCP server."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from retcon import validate
from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError, MissingExtraError
from retcon.grant import bound_to
from retcon.serving import url_host
from retcon.store.purging import Purger
from retcon.tokens import check_budget

EXAMPLES = (
    "retcon mcp --db agent.db --user-id ann",
    "retcon mcp --db agent.db --user-id ann --json",
    "retcon mcp --db agent.db --http --port 8765",
    "RETCON_MCP_KEY=... retcon mcp --http --host 0.0.0.0 --allow-host box.lan --key-env RETCON_MCP_KEY",
)


def mcp(
    *,
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP in place of standard input.")] = False,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 8765,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="The variable with the key that HTTP clients send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name under which clients call. Repeatable."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="URL", help="Where web pages that may call come from. Repeatable."),
    ] = None,
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", metavar="S", help="For one call; a late one ends.")
    ] = 300.0,
    user_id: opt.UserId = None,
    agent_id: opt.AgentId = None,
    run_id: opt.RunId = None,
    budget: opt.Budget = opt.BUDGET,
    top_k: opt.TopK = None,
    router: opt.RouterFile = None,
    counter: opt.CounterName = None,
    retriever: opt.RetrieverName = None,
    embedder: opt.EmbedderName = None,
    model: opt.Model = None,
    model_name: opt.ModelName = None,
    timeout: opt.Timeout = None,
    no_focus: opt.NoFocus = False,
    guard: opt.GuardName = None,
    db: opt.Db = opt.DB,
    as_json: Annotated[bool, typer.Option("--json", help="Print a client's configuration for this, and stop.")] = False,
) -> None:
    """Serve the memory to agents over MCP.

    A client starts it and speaks over standard input and output; with --http it listens. An id that is named here binds
    the server: its tools then see and touch the notes of that scope alone.
    """
    if not http and (key_env or allow_host or allow_origin):
        raise InputError("--key-env, --allow-host and --allow-origin are for --http")
    bound, budget = validate.scope(user_id, agent_id, run_id), check_budget(budget)
    ours = _ours()
    named, pages = tuple(allow_host or ()), tuple(allow_origin or ())
    address = ours.Address(host, port, _key(key_env), named, pages) if http else None
    workers = ours.ToolWorkers(max_seconds)
    chosen = opt.model(model, model_name)
    if as_json:
        given = {
            "--db": _absolute(db), "--user-id": user_id, "--agent-id": agent_id, "--run-id": run_id,
            "--budget": budget if budget != opt.BUDGET else None, "--top-k": top_k, "--router": _absolute(router),
            "--counter": counter, "--retriever": retriever, "--embedder": embedder, "--timeout": timeout,
            "--model": model if opt.is_url(model) else _absolute(model), "--model-name": model_name,
            "--no-focus": no_focus or None, "--guard": guard,
            "--max-seconds": None if max_seconds == ours.SECONDS else max_seconds,
        }  # fmt: skip
        entry = _command(given) if address is None else _url(address, ours.PATH, key_env)
        show.document({"mcpServers": {"retcon": entry}})
        return
    with opt.opened(
        db, create=True, router=router, counter=counter, retriever=retriever, embedder=embedder, top_k=top_k,
        timeout=timeout, focus=not no_focus, guard=guard, **chosen,
    ) as memory:  # fmt: skip
        server = ours.build(ours.ToolVerbs(memory, bound_to(bound), budget), workers)
        purger = Purger(memory.unpurged, memory.purge)

        def close() -> None:
            purger.close()
            memory.close()

        if address is None:
            ours.serve_stdio(server, workers, close)
        else:
            ours.serve_http(server, workers, close, address)


def _ours() -> Any:
    """The server's parts, which need the optional package."""
    try:
        from retcon import mcp as ours
    except ModuleNotFoundError as error:
        raise MissingExtraError("the MCP server", "mcp") from error
    return ours


def _key(name: str | None) -> str | None:
    """The key in the variable of that name."""
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise InputError(f"--key-env: the variable {name[:80]!r} is not set, or empty")
    return key


def _command(given: dict[str, Any]) -> dict[str, Any]:
    """How a client starts the server: by full paths, since it has its own folder and its own PATH."""
    program = os.path.join(os.path.dirname(sys.executable), "retcon")  # of this environment, not of another on the PATH
    start = [program] if os.path.exists(program) else [sys.executable, "-m", "retcon"]
    options = [(name, value) for name, value in given.items() if value is not None]
    said = [word for name, value in options for word in ([name] if value is True else [name, str(value)])]
    return {"command": start[0], "args": [*start[1:], "mcp", *said]}


def _url(address: Any, path: str, key_env: str | None) -> dict[str, Any]:
    """How a client finds the server."""
    host = url_host(address.names[0] if address.names else address.host)
    entry: dict[str, Any] = {"type": "http", "url": f"http://{host}:{address.port}{path}"}
    return entry | ({"headers": {"Authorization": f"Bearer ${{{key_env}}}"}} if key_env else {})


def _absolute(path: str | None) -> str | None:
    return path if path is None or path == ":memory:" else os.path.abspath(path)
