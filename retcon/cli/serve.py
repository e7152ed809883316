"""`retcon serve` and `retcon keys`: memory over HTTP, and who may use it."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError
from retcon.grant import IDS
from retcon.server import Upstream
from retcon.server.keys import Entry, Keys
from retcon.server.limits import Limits
from retcon.store.places import beside, is_postgres, load_postgres, shown

SERVE = (
    "retcon serve",
    "retcon serve --db agent.db --port 8080 --model http://localhost:8000/v1 --model-name qwen",
    "retcon serve --host 0.0.0.0 --rate 20 --max-seconds 10",
    "retcon serve --workers 4 --drain 10",
    "retcon serve --proxy https://api.openai.com/v1 --proxy-key-env OPENAI_API_KEY --proxy-user ann",
)
KEYS = (
    "retcon keys add --user-id ann --name laptop",
    "retcon keys add --admin",
    "retcon keys list --json",
    "retcon keys revoke 4f1c2a9b0d3e",
)
HOST, PORT = "127.0.0.1", 8700
_LIMITS = Limits()

KeyFile = Annotated[str | None, option("--keys", "FILE", "Where keys are kept; beside the store if not said.")]


class Level(StrEnum):
    """From what on the service logs."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _limit(name: str, metavar: str, about: str, least: int | None = 1, most: int | None = None) -> Any:
    return option(name, metavar, about, min=least, max=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Bounds on requests, by the names that `Limits` has for them."""

    body: Annotated[int, _limit("--max-body", "BYTES", "Of a request.")] = _LIMITS.body
    text: Annotated[int, _limit("--max-text", "N", "Characters of a note.")] = _LIMITS.text
    budget: Annotated[int, _limit("--max-budget", "TOKENS", "Of a recall.", 0)] = _LIMITS.budget
    top_k: Annotated[int, _limit("--max-top-k", "N", "Of a search.")] = _LIMITS.top_k
    seconds: Annotated[float, _limit("--max-seconds", "S", "For one request.", None)] = _LIMITS.seconds
    purge_every: Annotated[
        float, _limit("--purge-every", "S", "Between two rewrites of the file after deletes.", None)
    ] = _LIMITS.purge_every
    in_flight: Annotated[int, _limit("--max-at-once", "N", "Requests; more are turned away.")] = _LIMITS.in_flight
    key_in_flight: Annotated[int, _limit("--max-at-once-per-key", "N", "Requests of one key.")] = _LIMITS.key_in_flight
    key_notes: Annotated[int, _limit("--max-notes-per-key", "N", "Notes in a key's scope; 0: any number.", 0)] = (
        _LIMITS.key_notes
    )
    page_bytes: Annotated[int, _limit("--max-page-bytes", "BYTES", "Of the notes in one answer.")] = _LIMITS.page_bytes
    connections: Annotated[int, _limit("--max-connections", "N", "Open at once.")] = _LIMITS.connections
    rate: Annotated[float, _limit("--rate", "N", "Requests a second of one key; 0: any number.", 0)] = _LIMITS.rate
    burst: Annotated[int, _limit("--burst", "N", "Requests of one key at once.")] = _LIMITS.burst
    threads: Annotated[int, _limit("--threads", "N", "Reads at once.", most=64)] = _LIMITS.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Where chat requests at /v1 go on to."""

    url: Annotated[
        str | None, option("--proxy", "URL", "Chat requests at /v1 go on to this OpenAI-compatible endpoint.")
    ] = None
    key_env: Annotated[
        str | None, option("--proxy-key-env", "NAME", "The variable with its key; else the client's own goes on.")
    ] = None
    user: Annotated[
        str | None, option("--proxy-user", "ID", "Whose conversation it is where nothing says so. [default: default]")
    ] = None
    budget: Annotated[
        int | None, option("--proxy-budget", "TOKENS", "Of memory in a request. [default: 1024]", min=0)
    ] = None
    recent: Annotated[
        int | None, option("--proxy-recent", "TOKENS", "Of the newest turns, which stay. [default: 4096]", min=0)
    ] = None
    seconds: Annotated[
        float | None, option("--proxy-timeout", "SECONDS", "For an answer of the endpoint. [default: 300]")
    ] = None

    def upstream(self) -> Upstream | None:
        """The endpoint, if one is named."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        url, key_env = given.pop("url", None), given.pop("key_env", None)
        if url is None:
            if given or key_env:
                raise InputError("the options of the proxy need the endpoint: --proxy URL")
            return None
        key = None if key_env is None else os.environ.get(key_env, "").strip()
        if key == "":
            raise InputError(f"--proxy-key-env {key_env}: there is no such variable, or it is empty")
        return Upstream(base=url, key=key, **given)


def serve(
    *,
    host: Annotated[str, option("--host", "HOST", "Where to listen.")] = HOST,
    port: Annotated[int, option("--port", "PORT", "0 takes a free one.", min=0, max=65535)] = PORT,
    keys: KeyFile = None,
    setup: opt.Setup,
    language: opt.LanguageName = None,
    proxy: ProxyOptions,
    reports: Annotated[
        Path | None, option("--reports", "DIR", "Reports of 'retcon report' to show on the page.")
    ] = None,
    limits: LimitOptions,
    embed_in_background: Annotated[
        bool, flag("--embed-in-background", "New notes get vectors after the add, not in the next recall.")
    ] = False,
    workers: Annotated[
        int | None, option("--workers", "N", "Processes behind the port; one that dies is started again.")
    ] = None,
    drain: Annotated[
        float, option("--drain", "S", "From the first signal on, with /ready saying no, before it stops.", min=0)
    ] = 0.0,
    log: Annotated[Level, option("--log", "LEVEL", "info, warning or error.")] = Level.INFO,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Serve memory over HTTP, with a page to try it.

    Without keys it answers this machine only; 'retcon keys add' makes one. The first Ctrl-C or SIGTERM finishes what
    was accepted, the second ends at once. With --workers, SIGHUP replaces one process after the other, and no request
    fails. With --proxy it is a chat endpoint too: long conversations arrive at the model as their newest turns and a
    recall of the rest.
    """
    from retcon.server.processes import check_count, inherited
    from retcon.server.run import check_host, supervise
    from retcon.server.run import serve as run

    if workers is not None:
        check_count(workers)
        if db == ":memory:":
            raise InputError("--workers needs a store that processes can share: a file, or postgresql://...")
    child = inherited()
    kept = _key_store(keys, db)
    closed = kept.exist()
    if keys is not None and not closed:  # a mistyped path would let in whoever comes
        raise InputError(f"--keys {keys}: there is no key in it; 'retcon keys add --keys {keys}' makes one")
    kept.check()
    check_host(host, kept)  # before a store is made
    upstream = proxy.upstream()

    def ready(url: str) -> None:
        told = f"serving {shown(db)} at {url}" + ("" if closed else " (no keys: this machine only)")
        show.document({"url": url}) if as_json else show.out(told)
        if upstream is not None and not as_json:
            show.out(f"chat at {url}/v1 goes on to {upstream.base}")
        sys.stdout.flush()

    allowed = Limits(**asdict(limits))
    if workers is not None and child is None:
        kept.close()
        if code := supervise(workers, host=host, port=port, log=log.value, ready=ready):
            raise typer.Exit(code)
        return
    later = embed_in_background
    with closing(kept), setup.open(db, create=True, language=language, embed_in_background=later) as memory:
        run(
            memory, host=host, port=port, keys=kept, limits=allowed, reports=reports, proxy=upstream, log=log.value,
            drain=drain, ready=None if child else ready, child=child,
        )  # fmt: skip


class KeyJob(StrEnum):
    """What can be done with keys."""

    ADD = "add"
    LIST = "list"
    REVOKE = "revoke"


def keys(
    job: Annotated[KeyJob, typer.Argument(metavar="add|list|revoke", help="Make a key, show them, or end one.")],
    key_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which key to revoke.")] = None,
    *,
    whose: opt.Whose,
    admin: Annotated[bool, flag("--admin", "Every scope, and the metrics.")] = False,
    name: Annotated[str, option("--name", "NAME", "What the key is for, as a reminder.")] = "",
    file: KeyFile = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Make, list or revoke keys of the server.

    A key is bound to the ids that are named, and sees nothing else. It is shown once: only a hash is kept.
    """
    if (key_id is None) == (job is KeyJob.REVOKE):
        raise InputError("revoke takes the id of a key, add and list take none")
    kept = _key_store(file, db)
    try:
        if job is KeyJob.ADD:
            secret, made = kept.add(**asdict(whose), admin=admin, name=name)
            return show.document({"key": secret, **made.to_dict()}) if as_json else _tell_key(secret, made)
        if job is KeyJob.REVOKE:
            ended = kept.revoke(key_id or "")
            return show.document(ended.to_dict()) if as_json else show.out(f"revoked {ended.id}")
        entries = kept.entries()
    finally:
        kept.close()
    if as_json:
        return show.document({"results": [entry.to_dict() for entry in entries]})
    return show.table(map(_row, entries), "id", "for", "made", "revoked", "name") if entries else show.out("no keys")


def _key_store(file: str | None, db: str) -> Keys:
    """The keys in that file, or those of the store: beside its file, or in its tables."""
    if file is not None or not is_postgres(db):
        return Keys(file or (db if db == ":memory:" else f"{beside(db)}.keys"))
    kept = Keys(load_postgres().open_service(db))
    older = f"{beside(db)}.keys"  # where they were before stores had tables for them: nobody is let in by mistake
    if os.path.exists(older) and not kept.exist():
        kept.close()
        raise InputError(f"keys of this store are in the file {older}: name it with --keys, or move it away")
    return kept


def _tell_key(secret: str, made: Entry) -> None:
    show.out(f"{secret}\n\nkey {made.id} for {_name_scope(made)}. Keep it now: it is not shown again.")


def _row(entry: Entry) -> tuple[str, ...]:
    return entry.id, _name_scope(entry), entry.created_at[:10], (entry.revoked_at or "")[:10], entry.name


def _name_scope(entry: Entry) -> str:
    """Whose notes the key opens, in words."""
    if entry.admin:
        return "everything"
    return ", ".join(f"{name} {value}" for name in IDS if (value := getattr(entry.scope, name)) is not None)
