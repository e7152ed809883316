"""The REST service: memory over HTTP, for several users who may not see each other's notes. Extra [server].

app.py           the routes
schema.py        what may be asked and what comes back, with examples
verbs.py         one function a verb: a grant and a request -> plain JSON values; the scope is forced here
middleware.py    who may come in: host, origin, key, rate, size, how many at once; one log line and one count for each
keys.py          Bearer keys, hashed, each bound to a scope; known_keys.py holds those of a store on another machine
sharing.py       what all servers on a store share, in its tables or in small files beside it
private_file.py  small files that only their owner may read
idempotency.py   the same request with the same Idempotency-Key is done once
rates.py         who asks too often, at all servers together
cursors.py       where a page ended, sealed
workers.py       threads for reads, one for writes; what takes too long
readiness.py     whether new requests should come here
processes.py     several processes behind one port: door.py takes connections, board.py is what they all see
refusals.py      every error as one JSON shape
limits.py        how much is too much
metrics.py       Prometheus text
logs.py          JSON lines without anybody's words
openapi.py       the API's description, and the page at /docs
page.py          the page at /
proxy.py         chat requests that go on to another endpoint: history.py, chat_memory.py, upstream.py, relay.py
run.py           listen, serve, stop without losing what was accepted
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retcon.errors import MissingExtraError
from retcon.grant import Grant
from retcon.memory import Memory
from retcon.server.keys import Keys
from retcon.server.limits import Limits
from retcon.server.upstream import Upstream

if TYPE_CHECKING:
    from fastapi import FastAPI

    from retcon.server.board import Board
    from retcon.server.idempotency import Idempotency
    from retcon.server.readiness import Readiness


def create_app(
    memory: Memory,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    idempotency: Idempotency | None = None,
    reports: Path | None = None,
    proxy: Upstream | None = None,
    readiness: Readiness | None = None,
    board: Board | None = None,
    purges: bool = True,
) -> FastAPI:
    """The ASGI application that serves this memory, which stays the caller's to close.

    `keys` say who may come in; without any, only this machine may. `limits` bound what one request may ask for.
    `idempotency` remembers which request was answered how (default: a file beside the store). `reports` is a folder
    that `retcon report` wrote, shown on the page. `proxy` is an OpenAI-compatible endpoint: chat requests at /v1 go on
    to it, with a memory. `readiness` is what `/ready` tells. Of several processes, each has the `board` on which all
    show what they count, and one `purges` what was deleted.
    """
    try:
        from retcon.server.app import build
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "pydantic", "starlette"):
            raise
        raise MissingExtraError("the REST service", "server") from None
    return build(
        memory, keys=keys, limits=limits or Limits(), idempotency=idempotency, reports=reports, proxy=proxy,
        readiness=readiness, board=board, purges=purges,
    )  # fmt: skip


__all__ = ["Grant", "Keys", "Limits", "Upstream", "create_app"]
