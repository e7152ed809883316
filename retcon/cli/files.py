"""`retcon check`, `backup`, `restore`, `migrate`, `embed`, `purge`, `reindex`: is the file sound, what is in it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError, StoreError
from retcon.note import Scope
from retcon.store import backup as copies
from retcon.store import moving as copying
from retcon.store.checking import Check, check_file
from retcon.store.places import is_postgres, load_postgres, shown

CHECK = ("retcon check", "retcon check --db agent.db --json", "retcon check --repair")
BACKUP = ("retcon backup agent-2026-05-09.db", "retcon backup /mnt/backups/agent.db --replace --db agent.db")
RESTORE = ("retcon restore agent-2026-05-09.db --db new.db", "retcon restore agent-2026-05-09.db --replace")
EMBED = (
    "retcon embed --embedder ollama:nomic-embed-text",
    "retcon embed agent.db --embedder sentence-transformers:all-MiniLM-L6-v2 --drop-others",
)
MIGRATE = (
    "retcon migrate --from agent.db --to postgresql://retcon@db.example.com/memory",
    "retcon migrate --from postgresql://retcon@db.example.com/memory --to agent.db --json",
)
PURGE = ("retcon purge", "retcon purge --db agent.db --json")
REINDEX = ("retcon reindex agent.db --language german", "retcon reindex --language none", "retcon reindex --json")

Replace = Annotated[bool, flag("--replace", "Take the place of a file that is there.")]


def check(
    *,
    repair: Annotated[bool, flag("--repair", "Make again what follows from the notes; accept what is lost.")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> int:
    """Compare the store with its checksums.

    Reads everything once: pages, schema, every note, the index against one made anew. The exit code is 1 if something
    is wrong. Nothing is changed without --repair; a store of an older version is brought up to date first.
    """
    if not is_postgres(db) and not os.path.isfile(db):
        raise StoreError(f"{db} does not exist yet: 'retcon add' or 'retcon load' makes it, --db names another")
    found = load_postgres().check_url(db, mend=repair) if is_postgres(db) else check_file(db, mend=repair)
    if as_json:
        show.document({"path": shown(db)} | found.to_dict())
    else:
        _tell_check(shown(db), found)
    return 0 if found.ok else 1


def backup(
    file: Annotated[str, typer.Argument(metavar="DEST", help="The file to write.")],
    *,
    replace: Replace = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Copy the store, checked, while it is in use.

    The copy is one file that can be opened like any store. It appears only when it is complete and sound, and holds no
    deleted words.
    """
    _refuse_server(db)
    with show.bar("backup", every=1) as progress:
        found = copies.backup(db, file, replace=replace, progress=progress)
    _tell_copy(f"{db} is saved in {file}", file, found, as_json=as_json)


def restore(
    file: Annotated[str, typer.Argument(metavar="SOURCE", help="A file that 'retcon backup' wrote.")],
    *,
    replace: Replace = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Put a backup in the store's place.

    The backup is checked first. A store that is there is replaced only with --replace, in one transaction: programs
    that have it open go on with the restored notes.
    """
    _refuse_server(db)
    with show.bar("restore", every=1) as progress:
        found = copies.restore(file, db, replace=replace, progress=progress)
    _tell_copy(f"{db} holds what {file} holds", db, found, as_json=as_json)


def purge(*, db: opt.Db = opt.DB, as_json: opt.AsJson = False) -> int:
    """Delete expired notes, and rewrite the file.

    Afterwards it holds no word of what was deleted or had expired. The exit code is 1 where another reader held the
    log back: then the notes are gone, and the rewrite stays due.
    """
    with opt.open_memory(db) as memory:
        before = memory.store.count(Scope())
        purged = memory.purge()
        gone = before - memory.store.count(Scope())
    if as_json:
        show.document({"expired": gone, "purged": purged})
    else:
        show.out(f"deleted {show.plural(gone, 'expired note')}")
        if not purged:
            show.warn("another reader holds the log: deleted words leave the files with the next purge")
    return 0 if purged else 1


def embed(
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="The store, in place of --db.")] = None,
    *,
    embedder: opt.EmbedderName = None,
    drop_others: Annotated[bool, flag("--drop-others", "Remove the vectors of every other embedder.")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Make the vectors that notes lack.

    Works in batches that are kept one by one: stopped at any time, it goes on from there when it is next called. Recall
    does the same for the notes it looks at, so nobody has to call this; it is for large stores and slow embedders.
    """
    if embedder is None:
        raise InputError("say which embedder: --embedder ollama:nomic-embed-text, or set RETCON_EMBEDDER")
    with opt.open_memory(file or db, embedder=embedder) as memory:
        with show.bar("embed", memory.store.count(Scope(), superseded=False), every=1) as progress:
            done = memory.embed(drop_others=drop_others, progress=progress)
        found = {"embedded": done, "vectors": memory.stats()["vectors"], "embedder": memory.embedder.name}
    if as_json:
        return show.document(found)
    return show.out(f"embedded {show.plural(done, 'note')}, {found['vectors']} vectors are kept")


def reindex(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The store; that of --db if not said.")] = None,
    *,
    language: Annotated[
        str | None, option("--language", "NAME", "To index in: german or de, ...; as it is, if not said.")
    ] = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Index every note anew, in another language if you say so.

    It is one transaction: others find what was there before until it is done, and a kill leaves that. Raw notes stay
    as they are.
    """
    path = shown(file or db)
    with opt.open_memory(file or db) as memory:
        with show.bar("reindex", memory.store.count(Scope(), superseded=False)) as progress:
            done = memory.reindex(language, progress=progress)
        now = memory.language
    if as_json:
        return show.document({"path": path, "notes": done, "language": now})
    return show.out(f"{path}: {show.plural(done, 'note')} indexed in {now}")


def migrate(
    *,
    source: Annotated[str, option("--from", "STORE", "The store to copy: a file, or postgresql://...")],
    target: Annotated[str, option("--to", "STORE", "Where it is to be: a new file, or an empty place on a server.")],
    as_json: opt.AsJson = False,
) -> None:
    """Move a store, to a server or back.

    Everything is copied: notes with their history, the index, vectors, records and replies. The copy appears only when
    every table has the same rows as the source; stopped at any time, it goes on from there. The source stays as it is.
    """
    with show.bar("migrate", every=1) as progress:
        found = copying.migrate(source, target, progress=progress)
    if as_json:
        return show.document(
            {"from": shown(source), "to": shown(target), "notes": found.notes, "rows": found.rows}
            | {"resumed": found.resumed}
        )
    what = f"{shown(target)} holds what {shown(source)} holds"
    return show.out(f"{what}: {show.plural(found.notes, 'note')}, {found.rows} rows compared")


def _refuse_server(db: str) -> None:
    if is_postgres(db):
        raise InputError("pg_dump and pg_restore save a database; 'retcon migrate' copies it into a file")


def _tell_copy(what: str, path: str, found: Check, *, as_json: bool) -> None:
    if as_json:
        return show.document({"path": path, "notes": found.notes})
    return show.out(f"{what}: {show.plural(found.notes, 'note')}, checked")


def _tell_check(db: str, found: Check) -> None:
    show.out(f"{db}: {show.plural(found.notes, 'note')}, {'sound' if found.ok else 'not sound'}")
    for problem in found.problems:
        show.out(f"  {problem.kind}: {show.one_line(problem.what)}")
    for advice in dict.fromkeys(problem.advice for problem in found.problems):
        show.out(f"what to do: {advice}")
    for hint in found.hints:
        show.warn(hint)
