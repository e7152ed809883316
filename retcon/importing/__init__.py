"""Notes from other memories and chat exports: each kind of file has a short reader here.

    from retcon.importing import import_file

    found = import_file(memory, "export.json", source="mem0", dry_run=True)
    found.added, found.updated, found.known, found.skipped

base.py       what a reader gives: Found, Skipped; a value of a file that knows where it stands
mem0.py langgraph.py chatgpt.py claude.py letta.py zep.py plain.py      one kind of file each
storing.py    what was found -> notes, each once, in one transaction

Nothing is stored unless all of a file can be read. Run twice it stores once; a text that has changed since is a
correction of its note. Whatever is left out is counted, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from retcon.errors import InputError, quote
from retcon.importing import chatgpt, claude, langgraph, letta, mem0, plain, zep
from retcon.importing.base import Found, Json, Options, Skipped, read_documents
from retcon.importing.storing import Imported, store
from retcon.memory import Memory
from retcon.store import Progress

Reader = Callable[[Json, Options], Iterator[Found | Skipped]]

SOURCES: Mapping[str, Reader] = {
    "mem0": mem0.read, "langgraph": langgraph.read, "chatgpt": chatgpt.read, "claude": claude.read,
    "letta": letta.read, "zep": zep.read, "json": plain.read, "jsonl": plain.read,
}  # fmt: skip


def import_file(
    memory: Memory,
    path: str | os.PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    agent_id: str | None = None,
    run_id: str | None = None,
    namespace: str | None = None,
    all_branches: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """What was stored of a file, or with `dry_run` what would be.

    `source` says what wrote it: mem0, langgraph, chatgpt, claude, letta, zep, or json and jsonl for messages and texts.
    A zip is looked into. The ids say whose notes they are where the file does not. `namespace` reads a LangGraph
    namespace, such as "memories/{user_id}". `all_branches` takes every branch of a ChatGPT conversation.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from None
    return import_data(
        memory, data, source, name=os.path.basename(path), user_id=user_id, agent_id=agent_id, run_id=run_id,
        namespace=namespace, all_branches=all_branches, dry_run=dry_run, progress=progress,
    )  # fmt: skip


def import_data(
    memory: Memory,
    data: bytes,
    source: str,
    *,
    name: str = "the file",
    user_id: str | None = None,
    agent_id: str | None = None,
    run_id: str | None = None,
    namespace: str | None = None,
    all_branches: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """What `import_file` gives, for the bytes of a file; `name` is what errors call it."""
    if source not in SOURCES:
        raise InputError(f"there is no source {quote(source, 40)}: {', '.join(SOURCES)}")
    options = Options(name=name, namespace=namespace, all_branches=all_branches)
    whose = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
    found = [
        each
        for document in read_documents(data, name, lines=source == "jsonl")
        for each in SOURCES[source](document, options)
    ]
    return store(memory, found, source, whose=whose, dry_run=dry_run, progress=progress)


__all__ = ["SOURCES", "Imported", "import_data", "import_file"]
