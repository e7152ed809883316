"""The routes. Each reads its request, runs one verb on a thread, and sends what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVarTuple
from urllib.parse import unquote

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi import Path as PathPart
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

import retcon
from retcon.errors import InputError, RetconError
from retcon.grant import Grant
from retcon.memory import Memory
from retcon.server import openapi, page, stream
from retcon.server import schema as s
from retcon.server.board import Board
from retcon.server.chat_memory import ChatMemory
from retcon.server.cursors import Cursors
from retcon.server.idempotency import Idempotency
from retcon.server.keys import Keys
from retcon.server.limits import Limits
from retcon.server.metrics import Metrics
from retcon.server.middleware import Admission
from retcon.server.proxy import ChatProxy, add_proxy_routes
from retcon.server.readiness import Readiness
from retcon.server.refusals import Refusal, invalid_request, refusal_of
from retcon.server.relay import Connections
from retcon.server.sharing import share
from retcon.server.upstream import Upstream
from retcon.server.verbs import HttpVerbs, Write
from retcon.server.workers import Workers
from retcon.serving import error_body
from retcon.store.purging import Purger

Plain = dict[str, Any]
Given = TypeVarTuple("Given")  # what a verb takes beside the grant
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="The same write with the same key is done once, and answered the same each time.",
    ),
]  # fmt: skip
NoteId = Annotated[
    str,
    PathPart(description="The id of a note, percent-encoded: a slash in it is %2F."),
    AfterValidator(unquote),  # the middleware has left it as it was sent
]
WHY = {
    400: "The body is not JSON, or names something twice.",
    401: "No key, or one that is wrong or revoked.",
    403: "Not with this key, or not from there.",
    404: "No such note, or none of yours.",
    409: "It contradicts what is stored.",
    413: "The body is too large.",
    422: "The request cannot be used as it is.",
    429: "Too many requests with this key, a second or at once.",
    502: "The model failed.",
    503: "Too many requests at once, or the store is locked; nothing was written.",
    504: "It took too long; nothing was written.",
    507: "The notes of this key have reached their quota; nothing was written.",
}
EXAMPLES = {
    400: ("bad_json", "the body is not JSON"),
    401: ("key", "send a key: Authorization: Bearer rk-..."),
    403: ("scope", "this key is bound to another user_id"),
    404: ("not_found", "no note has the id '4f1c2a'"),
    409: ("conflict", "the id '4f1c2a' is taken by another text"),
    413: ("too_large", "the body has more than 1,048,576 bytes"),
    422: ("bad_input", "query is missing"),
    429: ("rate", "too many requests with this key"),
    502: ("model_unavailable", "http://localhost:11434/v1: connection refused"),
    503: ("overloaded", "too many requests at once, try again"),
    504: ("timeout", "not done in time; nothing was written"),
    507: ("quota", "this key has 1,000 notes, 1 more are over its quota of 1,000; nothing was written"),
}
ALWAYS = (401, 403, 413, 422, 429, 503, 504)


class StrictRequest(Request):
    """A request whose body names nothing twice: another reader could take the other of the two values."""

    async def json(self) -> Any:
        return s.parse_json(await self.body())


class StrictRoute(APIRoute):
    """A route of such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes share."""

    verbs: HttpVerbs
    workers: Workers
    idempotency: Idempotency
    metrics: Metrics

    async def read(
        self, request: Request, verb: Callable[[Grant, *Given], Plain], *given: *Given, model: bool = False
    ) -> Response:
        """The answer of a verb that only reads, asked with the caller's grant and what is given."""
        grant = request.state.grant
        key = grant.id if grant else "nobody"  # on a page that needs no key
        act = partial(_encode, verb, grant, *given)
        found, body = await self.workers.run("model" if model else "read", key, act, request.state.deadline)
        self._count(found)
        return _json(body)

    async def stream(
        self, request: Request, verb: Callable[[Grant, *Given], Iterable[stream.Event]], *given: *Given
    ) -> Response:
        """The events of a verb that asks a model, as they come."""
        grant, channel = request.state.grant, stream.Channel()
        act = partial(channel.fill, partial(verb, grant, *given))

        async def work() -> None:
            last = await self.workers.run("model", grant.id, act, request.state.deadline, channel.stop)
            self._count(last.data)

        refused = partial(self.metrics.count, "retcon_refused_total")
        return stream.EventStream(channel, asyncio.ensure_future(work()), lambda code: refused(reason=code))

    async def write(
        self, request: Request, key: str | None, verb: Callable[[Grant, *Given], Write], *given: *Given
    ) -> Response:
        """The answer of a write, which is done once for each Idempotency-Key."""
        grant, deadline = request.state.grant, request.state.deadline
        act = partial(self._do, verb, grant, key, *given)
        done, body = await self.workers.run("write", grant.id, act, deadline)
        self.metrics.count("retcon_notes_added_total", done.get("added", 0))
        self.metrics.count("retcon_notes_deleted_total", done.get("deleted", 0))
        return _json(body)

    def _do(
        self, verb: Callable[[Grant, *Given], Write], grant: Grant, key: str | None, *given: *Given
    ) -> tuple[dict[str, int], bytes]:
        write, again = verb(grant, *given), False
        locks = self.verbs.quota_locks(grant)
        if key is not None:
            keyed = self.idempotency.identify(grant.id, key, write.asked)
            kept, again = self.idempotency.do_once(keyed, lambda: write.do(keyed), *locks)
        elif locks:
            kept = self.idempotency.in_turn(lambda: write.do(None), *locks)
        else:
            kept = write.do(None)
        answer = write.answer(kept)
        return {} if again else _tally(answer), to_json(answer)

    def _count(self, found: Plain) -> None:
        if "tried" in found:
            self.metrics.count("retcon_recalls_total", action=found["action"])
            self.metrics.count("retcon_recalled_tokens_total", found["tokens"])
        if "usage" in found:
            self.metrics.count("retcon_model_calls_total", found["usage"]["model_calls"])


def build(
    memory: Memory, *, keys: Keys | None, limits: Limits, idempotency: Idempotency | None, reports: Path | None,
    proxy: Upstream | None = None, readiness: Readiness | None = None, board: Board | None = None, purges: bool = True,
) -> FastAPI:  # fmt: skip
    """The application; see `retcon.server.create_app`."""
    if keys is not None:
        keys.check()
    shared = share(memory.store, limits, idempotency)
    once, workers = shared.idempotency, Workers(limits, writers=shared.writers)
    service = Service(HttpVerbs(memory, limits, Cursors(once.secret)), workers, once, Metrics())
    connections = None if proxy is None else Connections(proxy)
    pools = service.workers.pools
    service.metrics.watch("retcon_queued", lambda: {(("pool", name),): pool.queued for name, pool in pools.items()})
    service.metrics.watch("retcon_working", lambda: {(("pool", name),): pool.working for name, pool in pools.items()})

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        purger = Purger(memory.count_due, memory.purge_due, every=limits.purge_every) if purges else None
        yield
        if connections is not None:
            await connections.close()
        await asyncio.to_thread(service.workers.close)
        if purger is not None:
            await asyncio.to_thread(purger.close)
        await asyncio.to_thread(shared.close)

    app = FastAPI(
        title="retcon", version=retcon.__version__, description=openapi.DESCRIPTION, docs_url=None, redoc_url=None,
        openapi_url=None, generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan, redirect_slashes=False, separate_input_output_schemas=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},  # they hold addresses
    )  # fmt: skip
    app.state.service = service
    app.router.route_class = StrictRoute
    readiness = readiness or Readiness()
    app.add_middleware(
        Admission, keys=keys, limits=limits, rates=shared.rates, metrics=service.metrics, readiness=readiness
    )
    for kind in (Refusal, RetconError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, partial(_answer_error, service.metrics))
    _add_write_routes(app, service)
    _add_read_routes(app, service)
    _add_recall_routes(app, service)
    _add_service_routes(app, service, board)
    _add_ready_route(app, service, readiness)
    if connections is not None:
        add_proxy_routes(app, _chat_proxy(service, connections), to_json)
    page.mount(app, reports=reports, guard=partial(_for_admins, "reports"))
    return app


def _chat_proxy(service: Service, connections: Connections) -> ChatProxy:
    verbs, upstream = service.verbs, connections.upstream
    limits = verbs.limits
    if upstream.budget > limits.budget:
        raise InputError(f"the proxy's budget is {upstream.budget:,}, this server takes {limits.budget:,} at most")
    chats = ChatMemory(verbs.memory, service.idempotency.secret, upstream.recent, limits.query, limits.text)
    return ChatProxy(upstream, connections, chats, verbs, service.workers, service.metrics, service.idempotency)


def _responses(out: type[Any] | None, *more: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer, for the OpenAPI document."""
    found: dict[int | str, dict[str, Any]] = {
        code: {"model": s.ErrorOut, "description": WHY[code], "content": _example(*EXAMPLES[code])}
        for code in sorted({*ALWAYS, *more})
    }
    if out is not None:
        found[200] = {"model": out, "description": (out.__doc__ or "").splitlines()[0]}
    return found


def _example(code: str, message: str) -> Plain:
    return {"application/json": {"example": {"error": {"code": code, "message": message}}}}


def _responses_of_ask() -> dict[int | str, dict[str, Any]]:
    found = _responses(s.AskOut, 400, 502)
    seen = 'event: seen\ndata: {"look": 1, "action": "extract", "tokens": 58, "abstained": true, ...}'
    about = "One event `seen` for each look as it is read, then `answer` with the JSON of this route, or `error`."
    text = {
        "schema": {"type": "string", "description": about},
        "example": f"{seen}\n\nevent: answer\ndata: {{...}}\n\n",
    }
    return found | {200: found[200] | {"content": {stream.TYPE: text}}}


def _add_write_routes(app: FastAPI, service: Service) -> None:
    verbs = service.verbs

    @app.post("/memories", responses=_responses(s.AddOut, 400, 404, 409, 507), tags=["write"])
    async def add_memories(request: Request, body: s.AddIn, key: Key = None) -> Response:
        """Store a text, or a list of messages, as raw notes, in one transaction."""
        return await service.write(request, key, verbs.add, body)

    @app.delete("/memories", responses=_responses(s.DeletedOut), tags=["write"])
    async def delete_memories(request: Request, query: Annotated[s.ScopeQuery, Query()], key: Key = None) -> Response:
        """Delete all notes of a user, agent or run, and all that stands on them."""
        _refuse_repeats(request)
        return await service.write(request, key, verbs.delete_all, query)

    @app.delete("/memories/{id}", responses=_responses(s.DeletedOut, 404), tags=["write"])
    async def delete_memory(request: Request, id: NoteId, key: Key = None) -> Response:  # noqa: A002
        """Delete a memory with all its versions, and all that stands on them."""
        return await service.write(request, key, verbs.delete, id)

    @app.post("/memories/{id}/supersede", responses=_responses(s.SupersedeOut, 400, 404, 409, 507), tags=["write"])
    async def supersede_memory(request: Request, id: NoteId, body: s.SupersedeIn, key: Key = None) -> Response:  # noqa: A002
        """Correct a note: recall finds the correction from now on, and history shows both."""
        return await service.write(request, key, verbs.supersede, id, body)

    @app.put("/memories/{id}", responses=_responses(s.UpdateOut, 400, 404, 409, 507), tags=["write"])
    async def update_memory(request: Request, id: NoteId, body: s.SupersedeIn, key: Key = None) -> Response:  # noqa: A002
        """Correct the newest version of a note. The correction is a note of its own: the answer has its id."""
        return await service.write(request, key, verbs.update, id, body)


def _add_read_routes(app: FastAPI, service: Service) -> None:
    verbs = service.verbs

    @app.get("/memories", responses=_responses(s.ListOut), tags=["read"])
    async def list_memories(request: Request, query: Annotated[s.ListQuery, Query()]) -> Response:
        """Notes in the order they were added, or the newest first, page by page."""
        _refuse_repeats(request)
        return await service.read(request, verbs.page, query)

    @app.get("/memories/{id}", responses=_responses(s.NoteOut, 404), tags=["read"])
    async def get_memory(request: Request, id: NoteId) -> Response:  # noqa: A002
        """One note."""
        return await service.read(request, verbs.get, id)

    @app.get("/memories/{id}/history", responses=_responses(s.PageOut, 404), tags=["read"])
    async def get_history(request: Request, id: NoteId, query: Annotated[s.HistoryQuery, Query()]) -> Response:  # noqa: A002
        """Every version of a note, oldest first, page by page."""
        _refuse_repeats(request)
        return await service.read(request, verbs.history, id, query)

    @app.get("/memories/{id}/sources", responses=_responses(s.SourcesOut, 404), tags=["read"])
    async def get_sources(request: Request, id: NoteId) -> Response:  # noqa: A002
        """The raw notes behind a note (itself), or behind the record that a recall names."""
        return await service.read(request, verbs.sources, id)

    @app.post("/search", responses=_responses(s.SearchOut, 400), tags=["read"])
    async def search_memories(request: Request, body: s.SearchIn) -> Response:
        """The best notes for a query."""
        return await service.read(request, verbs.search, body)


def _add_recall_routes(app: FastAPI, service: Service) -> None:
    verbs = service.verbs
    model = verbs.memory.chat is not None

    @app.post("/recall", responses=_responses(s.RecallOut, 400), tags=["recall"])
    async def recall(request: Request, body: s.RecallIn) -> Response:
        """The best text within a budget, and why. `exclude` what was `tried` to get the next best."""
        return await service.read(request, verbs.recall, body, model=model)

    @app.post("/decide", responses=_responses(s.DecideOut, 400), tags=["recall"])
    async def decide(request: Request, body: s.DecideIn) -> Response:
        """The decision alone, with what each feature adds to it. Nothing is generated."""
        return await service.read(request, verbs.decide, body)

    @app.post("/ask", responses=_responses_of_ask(), tags=["recall"])
    async def ask(request: Request, body: s.AskIn) -> Response:
        """The answer of the server's model to a question, from what is recalled, look by look.

        With `Accept: text/event-stream` it comes as server-sent events: `seen` for each look, then `answer` or `error`.
        """
        if stream.is_wanted(request):
            return await service.stream(request, verbs.ask_stream, body)
        return await service.read(request, verbs.ask, body, model=True)


def _add_ready_route(app: FastAPI, service: Service, readiness: Readiness) -> None:
    store = service.verbs.memory.store

    @app.get("/ready", responses=_responses(s.ReadyOut), tags=["service"])
    async def get_ready(request: Request) -> Response:
        """Whether new requests should be sent here: not once a stop has begun, nor while the store cannot be read."""
        if readiness.draining:
            raise Refusal(503, "draining", "this server is about to stop: ask another one", Retry_After="1")

        def look(_: Grant | None) -> Plain:
            store.get_record("")
            return {"ready": True}

        return await service.read(request, look)


def _add_service_routes(app: FastAPI, service: Service, board: Board | None) -> None:
    verbs = service.verbs

    @app.get("/health", responses=_responses(s.HealthOut), tags=["service"])
    async def get_health(request: Request) -> Response:
        """Whether the store can be read and every thread is there. With a key, also how many notes it may see."""
        if service.workers.broken:
            raise Refusal(503, "threads", "a thread of this server has ended", Retry_After="1")

        def look(grant: Grant | None) -> Plain:
            facts = {"ok": True, "version": retcon.__version__, "model": verbs.memory.chat is not None}
            if grant is not None:
                return facts | {"notes": verbs.count(grant)}
            verbs.memory.store.get_record("")
            return facts

        return await service.read(request, look)

    @app.get("/metrics", response_class=PlainTextResponse, responses=_responses(None), tags=["service"])
    async def get_metrics(request: Request) -> Response:
        """Counts and times as Prometheus text. They tell of everybody, so they are for admin keys."""
        _for_admins("metrics", request)
        counted = service.metrics
        if board is not None:
            counted = Metrics.sum([counted.to_dict(), *board.others()])
        return Response(counted.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json() -> Response:
        return _json(to_json(openapi.document(app)))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(openapi.html(openapi.document(app)), media_type="text/html", headers=openapi.HEADERS)


def _for_admins(what: str, request: Request) -> None:
    if not request.state.grant.admin:
        raise Refusal(403, "scope", f"{what} are for admin keys")


def _encode(verb: Callable[[Grant, *Given], Plain], grant: Grant, *given: *Given) -> tuple[Plain, bytes]:
    found = verb(grant, *given)
    return found, to_json(found)


def _tally(answer: Plain) -> dict[str, int]:
    added = sum(each["event"] == "ADD" for each in answer.get("results", ()))
    return {"added": added or int("supersedes" in answer), "deleted": answer.get("deleted", 0)}


def to_json(value: Any) -> bytes:
    """The value as JSON in UTF-8; escaped where a question holds half a character."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _refuse_repeats(request: Request) -> None:
    """A parameter that is given twice would be read as its last value."""
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InputError("a parameter is given twice")


async def _answer_error(metrics: Metrics, _: Request, error: Exception) -> Response:
    no = _refusal(error)
    metrics.count("retcon_refused_total", reason=no.code)
    return Response(error_body(no.code, no.message), no.status, no.headers, "application/json")


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return invalid_request(error.errors())
    if isinstance(error, RetconError):
        return refusal_of(error)
    if isinstance(error.__cause__, Refusal):  # while the body was read
        return error.__cause__
    if isinstance(error, HTTPException):
        told = {400: ("bad_json", "the body is not JSON"), 404: ("no_route", "there is nothing at this address")}
        told |= {405: ("method", "this address does not take that method")}
        code, message = told.get(error.status_code, ("refused", "the request cannot be served"))
        return Refusal(error.status_code, code, message, **dict(error.headers or {}))
    raise error
