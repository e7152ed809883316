"""`retcon import`: notes from other memories and chat exports."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.importing import SOURCES, Imported, import_data, import_file

EXAMPLES = (
    "retcon import --from mem0 export.json --dry-run",
    "retcon import --from chatgpt chatgpt-export.zip -u ann",
    'retcon import --from langgraph items.json --namespace "memories/{user_id}"',
    "cat talk.jsonl | retcon import --from jsonl - -u ann",
)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What they wrote; '-' is standard input.")],
    *,
    source: Annotated[
        str, option("--from", "NAME", f"Who wrote it: {', '.join(SOURCES)}.", autocompletion=lambda: [*SOURCES])
    ],
    whose: opt.Whose,
    dry_run: Annotated[bool, flag("--dry-run", "Say what would be added, and add nothing.")] = False,
    namespace: Annotated[
        str | None, option("--namespace", "PATTERN", "How to read a LangGraph namespace: memories/{user_id}.")
    ] = None,
    all_branches: Annotated[bool, flag("--all-branches", "Of ChatGPT conversations, not the newest alone.")] = False,
    language: opt.LanguageName = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Add notes from other memories and chat exports.

    The ids say whose notes they are where the file does not. Nothing is stored unless all of the file can be read, and
    a file that is imported again stores what is new of it alone.
    """
    target = ":memory:" if dry_run and not os.path.exists(db) else db
    how = {**asdict(whose), "namespace": namespace, "all_branches": all_branches, "dry_run": dry_run}
    with (
        opt.new_or_known(target), opt.open_memory(target, create=True, language=language) as memory,
        show.bar("import") as progress,
    ):  # fmt: skip
        if file == "-":
            name = "standard input"
            found = import_data(memory, sys.stdin.buffer.read(), source, name=name, progress=progress, **how)
        else:
            found = import_file(memory, file, source, progress=progress, **how)
    return show.document(found.to_dict()) if as_json else _tell(found, db)


def _tell(found: Imported, db: str) -> None:
    verb = "would add" if found.dry_run else "added"
    kind = "a correction" if found.updated == 1 else "corrections"
    corrects = f", {found.updated} of them {kind}" if found.updated else ""
    there = f"; {found.known} are there already" if found.known else ""
    show.out(f"{verb} {show.plural(found.added, 'note')} to {db}{corrects}{there}")
    for each in found.scopes:
        ids = ", ".join(f"{name} {value}" for name, value in each.items() if name != "notes")
        show.out(f"  {ids or 'nobody in particular'}: {show.plural(each['notes'], 'note')}")
    if found.first:
        sessions = f", {show.plural(found.sessions, 'session')}" if found.sessions else ""
        show.out(f"  of {show.day(found.first)} to {show.day(found.last)}{sessions}")
    if found.skipped:
        show.out(f"  left out: {', '.join(f'{number} x {what}' for what, number in found.skipped.items())}")
