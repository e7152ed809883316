"""What differs between the majors 1 and 2 of the mcp package, so that nothing else of ours need know which is there.

Many programs need major 1 and this server must be able to share their environment. Handlers speak the protocol's own
JSON (`{"tools": [...]}`), which the types of both majors read alike: they differ in how handlers are registered, how an
error is raised and how HTTP is mounted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import anyio
import mcp.types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared import exceptions
from mcp.shared.message import SessionMessage
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route

Plain = dict[str, Any]
Handler = Callable[[Plain], Awaitable[Plain]]

KINDS = (
    "list_tools", "call_tool", "list_resources", "list_resource_templates", "read_resource", "list_prompts",
    "get_prompt",
)  # fmt: skip
INVALID_PARAMS, INTERNAL_ERROR, PARSE_ERROR = -32602, -32603, -32700
_types: Any = mcp.types
_Server: Any = Server
_FIRST = not hasattr(exceptions, "MCPError")  # whether it is major 1


class ProtocolError(Exception):
    """What the protocol answers in place of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Handlers(Protocol):
    """What answers each kind of request: its parameters as JSON in, its result as JSON out."""

    async def list_tools(self, params: Plain) -> Plain: ...
    async def call_tool(self, params: Plain) -> Plain: ...
    async def list_resources(self, params: Plain) -> Plain: ...
    async def list_resource_templates(self, params: Plain) -> Plain: ...
    async def read_resource(self, params: Plain) -> Plain: ...
    async def list_prompts(self, params: Plain) -> Plain: ...
    async def get_prompt(self, params: Plain) -> Plain: ...


def make_server(handlers: Handlers, *, name: str, version: str, instructions: str, **about: str) -> Server[Any]:
    """A server that answers with these handlers; it runs on any transport of the mcp package.

    `about` is a title and a description, which major 1 has no place for.
    """
    if not _FIRST:
        answers = {f"on_{kind}": partial(_answer_second, getattr(handlers, kind), kind) for kind in KINDS}
        return _Server(name, version=version, instructions=instructions, **about, **answers)  # type: ignore[no-any-return]
    server = _Server(name, version=version, instructions=instructions)
    for kind in KINDS:
        asked = getattr(_types, f"{_class_of(kind)}Request")
        server.request_handlers[asked] = partial(_answer_first, getattr(handlers, kind), kind)
    return server  # type: ignore[no-any-return]


async def _answer_first(handler: Handler, kind: str, request: Any) -> Any:
    try:
        return _types.ServerResult(await _answer(handler, kind, request.params))
    except ProtocolError as error:
        told = _types.ErrorData(code=error.code, message=error.message)
        raise exceptions.McpError(told) from None  # type: ignore[attr-defined]


async def _answer_second(handler: Handler, kind: str, context: Any, params: Any) -> Any:
    try:
        return await _answer(handler, kind, params)
    except ProtocolError as error:
        raise exceptions.MCPError(error.code, error.message) from None


async def _answer(handler: Handler, kind: str, params: Any) -> Any:
    asked = {} if params is None else params.model_dump(by_alias=True)
    return getattr(_types, f"{_class_of(kind)}Result").model_validate(await handler(asked))


def _class_of(kind: str) -> str:
    return kind.title().replace("_", "")


@contextlib.asynccontextmanager
async def open_stdio() -> AsyncIterator[tuple[Any, Any]]:
    """The messages that come on standard input, and where to send those for standard output."""
    if not _FIRST:
        async with stdio_server() as streams:
            yield streams
        return
    # Major 1 closes what it was given as soon as it is done, and Python wants its own streams to the end.
    with (
        open(os.dup(sys.stdin.fileno()), encoding="utf-8", errors="replace") as heard,
        open(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as said,
    ):
        async with stdio_server(anyio.wrap_file(heard), anyio.wrap_file(said)) as streams:
            yield streams


def error_message(code: int, message: str, to: str | int | None) -> SessionMessage:
    """An error to send by hand, under the id of what it answers."""
    told = {"jsonrpc": "2.0", "error": {"code": code, "message": message}}
    if not _FIRST:
        return SessionMessage(_types.JSONRPCError.model_validate(told | {"id": to}))
    if to is not None:
        return SessionMessage(_types.JSONRPCMessage.model_validate(told | {"id": to}))
    return SessionMessage(_Nameless.model_validate(told))  # type: ignore[arg-type]


class _Nameless(BaseModel):
    """An error under no id, for which major 1 has no type of its own."""

    jsonrpc: str
    error: dict[str, Any]


def http_app(server: Server[Any], path: str, security: TransportSecuritySettings) -> Any:
    """The server as an app at that path; requests with a foreign Host or Origin are turned away."""
    if not _FIRST:
        return server.streamable_http_app(streamable_http_path=path, transport_security=security)
    sessions = StreamableHTTPSessionManager(server, security_settings=security)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    return Starlette(routes=[Route(path, _App(sessions))], lifespan=lifespan)


class _App:
    """A route's endpoint that is an app, not a function: it takes every method."""

    def __init__(self, sessions: StreamableHTTPSessionManager) -> None:
        self.sessions = sessions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.sessions.handle_request(scope, receive, send)
