"""A chat endpoint with a memory: what comes to /v1 goes on to another one, with a conversation of bounded length.

A request is admitted as every other is: key, rate, size, places. Then what is new of its conversation is stored, what
is old is replaced by a recall, and the endpoint's answer passes through, with what was decided in its headers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response

from retcon import validate
from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.grant import IDS, Grant
from retcon.server.chat_memory import Arranged, Caller, ChatMemory
from retcon.server.history import History
from retcon.server.idempotency import Idempotency, KeyedWrite
from retcon.server.metrics import Metrics
from retcon.server.refusals import Refusal
from retcon.server.relay import Connections, Relay
from retcon.server.schema import parse_json
from retcon.server.upstream import Upstream
from retcon.server.verbs import HttpVerbs
from retcon.server.workers import Workers
from retcon.serving import one_line

OWNER = "chat proxy"  # of what is remembered about conversations; no key has such an id
LONGEST = 300  # characters of a header's value
SCOPE = {"user_id": "x-retcon-user", "agent_id": "x-retcon-agent", "run_id": "x-retcon-run"}


@dataclass(frozen=True, slots=True)
class ChatProxy:
    """What the routes of the proxy share."""

    upstream: Upstream
    connections: Connections
    chats: ChatMemory
    verbs: HttpVerbs
    workers: Workers
    metrics: Metrics
    idempotency: Idempotency

    async def chat(self, request: Request, encode: Callable[[Any], bytes]) -> Response:
        """The endpoint's answer to a conversation."""
        body = _read_body(await request.body(), encode)
        history = History.read(body.get("messages"))
        caller = self._caller(request, body)
        stored = await self._store(request, caller, history)
        kind = "read" if self.chats.memory.chat is None else "model"
        arranged = await self._run(request, kind, partial(self.chats.arrange, caller, history))
        self._count(arranged)
        sent = encode({**body, "messages": arranged.messages})
        return self._relay(request, "/chat/completions", sent, _headers(caller, arranged, stored))

    def models(self, request: Request, path: str) -> Response:
        """What the endpoint says about its models."""
        if any(part in ("", ".", "..") for part in path.split("/")[2:]):
            raise Refusal(404, "no_route", "there is no model of that name")
        return self._relay(request, quote(path), None, {})

    def _relay(self, request: Request, path: str, body: bytes | None, ours: Mapping[str, str]) -> Response:
        client = {name.lower(): value for name, value in request.headers.items()}
        local = not request.state.grant.id and not client.get("authorization", "").lower().startswith("bearer rk-")
        asked = self.connections.ask(path, client, body, passes_key=local)
        return Relay(self.connections, asked, ours)

    async def _store(self, request: Request, caller: Caller, history: History) -> int:
        """How many things said were new; where another request or a delete came in between, it is looked at anew."""
        try:
            return await self._store_once(request, caller, history)
        except (ConflictError, NotFoundError):
            return await self._store_once(request, caller, history)

    async def _store_once(self, request: Request, caller: Caller, history: History) -> int:
        """The same; so many are stored at a time that others who write have their turn in between."""
        look = partial(self.chats.find_fresh, caller, history, self._was_stored)
        drafts, most = await self._run(request, "read", look), self.verbs.limits.messages
        for start in range(0, len(drafts), most):
            left = drafts[start:]
            await self._run(request, "write", partial(self._store_part, caller, left[:most], left))
        self.metrics.count("retcon_notes_added_total", len(drafts))
        return len(drafts)

    def _store_part(self, caller: Caller, part: Sequence[Mapping[str, Any]], left: Sequence[Mapping[str, Any]]) -> None:
        def add() -> None:
            self.verbs.check_quota(caller.grant, [draft["id"] for draft in left])
            self.chats.memory.add(part)

        locks = self.verbs.quota_locks(caller.grant)
        if locks:
            self.idempotency.in_turn(add, *locks)
        else:
            add()
        if len(part) == len(left):
            self.idempotency.do_once(self._identify(part[-1]["id"]), list)

    def _was_stored(self, note_id: str) -> bool:
        """Whether it was the newest thing said in a request before: then it was stored, with all before it."""
        return self.idempotency.was_done(self._identify(note_id))

    def _identify(self, note_id: str) -> KeyedWrite:
        return self.idempotency.identify(OWNER, note_id, [])

    async def _run(self, request: Request, kind: str, act: Callable[[], Any]) -> Any:
        return await self.workers.run(kind, request.state.grant.id, act, request.state.deadline)

    def _caller(self, request: Request, body: Mapping[str, Any]) -> Caller:
        """Whose conversation it is: within the key's grant, by the request's headers, or its `user`."""
        grant: Grant = request.state.grant
        named = {name: request.headers.get(header) for name, header in SCOPE.items()}
        user = body.get("user")
        if user is not None and not isinstance(user, str):
            raise InputError("user is text")
        named["user_id"] = named["user_id"] or user or None
        scope = grant.narrow(validate.scope(*(named[name] for name in IDS)))
        if grant.admin and scope.user_id is None:  # nobody's would be everybody's
            scope = replace(scope, user_id=self.upstream.user)
        session = validate.name("session", request.headers.get("x-retcon-session") or None)
        return Caller(grant, scope, session, self._budget(request))

    def _budget(self, request: Request) -> int:
        given = request.headers.get("x-retcon-budget")
        if given is None:
            return self.upstream.budget
        if not given.isascii() or not given.isdecimal() or len(given) > 9:
            raise InputError("x-retcon-budget is a whole number of tokens")
        if int(given) > self.verbs.limits.budget:
            most = self.verbs.limits.budget
            raise Refusal(422, "too_much", f"x-retcon-budget is {int(given):,}, this server takes {most:,} at most")
        return int(given)

    def _count(self, arranged: Arranged) -> None:
        if arranged.recall is not None:
            self.metrics.count("retcon_recalls_total", action=arranged.recall.action)
            self.metrics.count("retcon_recalled_tokens_total", arranged.recall.tokens)
            self.metrics.count("retcon_model_calls_total", arranged.recall.usage.model_calls)


def add_proxy_routes(app: FastAPI, proxy: ChatProxy, encode: Callable[[Any], bytes]) -> None:
    """The routes of the proxy. The OpenAPI document leaves them out: they are the endpoint's."""

    @app.post("/v1/chat/completions", include_in_schema=False)
    async def chat_completions(request: Request) -> Response:
        return await proxy.chat(request, encode)

    @app.get("/v1/models", include_in_schema=False)
    async def list_models(request: Request) -> Response:
        return proxy.models(request, "/models")

    @app.get("/v1/models/{name:path}", include_in_schema=False)
    async def get_model(request: Request, name: str) -> Response:
        return proxy.models(request, f"/models/{name}")


def _read_body(sent: bytes, encode: Callable[[Any], bytes]) -> dict[str, Any]:
    try:
        found = parse_json(sent)
        encode(found)  # what can be read and not be written, such as NaN, is refused before anything is stored
    except (ValueError, RecursionError):
        raise Refusal(400, "bad_json", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is an object with messages")
    return found


def _headers(caller: Caller, arranged: Arranged, stored: int) -> dict[str, str]:
    """What was decided, in headers: numbers, and one sentence without anybody's words."""
    told: dict[str, object] = {
        "budget": caller.budget,
        "tokens": arranged.tokens,
        "stored": stored,
        "replaced": arranged.replaced,
    }
    if arranged.recall is not None:
        found = arranged.recall
        told |= {"action": found.action, "found": str(found.found).lower(), "sources": len(found.sources)}
        told |= {"reason": found.decision.reason, "warnings": len(found.warnings)}
    return {f"x-retcon-{name}": _plain(str(value)) for name, value in told.items()}


def _plain(value: str) -> str:
    return one_line(value.encode("ascii", "replace").decode(), LONGEST)
