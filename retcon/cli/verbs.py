"""The verbs, each one call of the library. The words are the same as in Python: `memory.recall` is `retcon recall`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from importlib.metadata import entry_points
from itertools import count
from typing import Annotated, Any, TypeVar

import typer

import retcon
from retcon.cli import files, importing, show
from retcon.cli import mcp as mcps
from retcon.cli import options as opt
from retcon.cli import serve as serving
from retcon.cli.options import flag, option
from retcon.cli.run import Group
from retcon.errors import InputError
from retcon.memory import Memory
from retcon.note import Scope
from retcon.store import Deleted
from retcon.store.places import shown

Verb = TypeVar("Verb", bound=Callable[..., object])

app = typer.Typer(
    cls=Group,
    name="retcon",
    help="Memory for language agents under a token budget: the best text that fits, and why it is that text.",
    epilog="Every verb takes --json and --help. The store is retcon.db here, or --db PATH, or RETCON_DB.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line and exit."""
    app()


def command(*examples: str, name: str | None = None) -> Callable[[Verb], Verb]:
    """Adds a verb to the command line, under examples of how it is called."""
    epilog = "\n\n\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)

    def add(verb: Verb) -> Verb:
        app.command(name, epilog=epilog)(opt.spread(verb))
        return verb

    return add


def _version(wanted: bool) -> None:
    if wanted:
        show.out(f"retcon {retcon.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _retcon(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        show.out(context.get_help())


# -- writing -----------------------------------------------------------------------------------------------------------


@command(
    'retcon add "I adopted a cat named Pixel." -u ann --timestamp 2026-05-09',
    "cat diary.txt | retcon add -u ann --session diary --meta topic=pets",
    "retcon add --messages chat.json -u ann --session s1",
    'retcon add "The door code is 4711." -u ann --expires 30d',
)
def add(
    text: opt.Text = None,
    *,
    file: Annotated[str | None, option("--messages", "FILE", "JSON list of role and content; '-' is stdin.")] = None,
    note_id: Annotated[str | None, option("--id", "ID", "The note's id, else random.")] = None,
    whose: opt.Whose,
    about: opt.NoteFields,
    language: opt.LanguageName = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Store a text, or a list of messages, as raw notes."""
    if file is not None and text is not None:
        raise InputError("give a text or --messages, not both")
    what: Any = opt.messages(file) if file is not None else opt.text_of(text, "text")
    fields = about.keywords()
    with opt.open_memory(db, create=True, language=language) as memory:
        stored = memory.add(what, id=note_id, **asdict(whose), **fields)
    if as_json:
        return show.results(stored)
    ids = [note.id for note in stored]
    return show.out(f"stored {show.plural(len(ids), 'note')}: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}")


@command(
    'retcon supersede 4f1c "The cat is called Dot, not Pixel."',
    'echo "Flat 3, not Flat 5." | retcon supersede addr-1 --timestamp 2026-04-04',
)
def supersede(
    note_id: opt.NoteId,
    text: opt.Text = None,
    *,
    new_id: Annotated[str | None, option("--new-id", "ID", "The correction's id.")] = None,
    about: opt.NoteFields,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Correct a note; history keeps the old text.

    Recall finds the correction from now on. The older note stays as it was, and history shows both.
    """
    words, fields = opt.text_of(text, "text"), about.keywords()
    with opt.open_memory(db) as memory:
        stored = memory.supersede(note_id, words, new_id=new_id, **fields)
    if as_json:
        return show.document(stored.to_dict())
    return show.out(f"stored {stored.id}, which supersedes {note_id}")


class Versions(StrEnum):
    """How much of a corrected note a delete takes."""

    ALL = "all"
    ONE = "one"


@command(
    "retcon delete 4f1c 9ab2 --yes",
    "retcon delete 4f1c --versions one --yes",
    "retcon delete --all -u ann --yes",
    "retcon delete --everything --db old.db",
)
def delete(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Notes to delete.")] = None,
    *,
    whole: Annotated[bool, flag("--all", "All notes of the scope that is named.")] = False,
    everything: Annotated[bool, flag("--everything", "All notes of the store.")] = False,
    versions: Annotated[
        Versions, option("--versions", "all|one", "Every version of each note, or the one of that id alone.")
    ] = Versions.ALL,
    whose: opt.Whose,
    yes: opt.Yes = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Delete notes and all that stands on them.

    Every version of a note goes with it, unless --versions one is said. Their words leave the files too, before the
    command ends; where another reader holds the log back, a warning says so, and the next delete or close does it.
    """
    if bool(ids) + whole + everything != 1 or whole != (whose != opt.Whose()):
        raise InputError("name ids, or --all with a user, agent or run id, or --everything")
    with opt.open_memory(db) as memory:
        where = whose.where()
        chosen = _find_versions(memory, ids or [], versions)
        _confirm_delete(memory, chosen, where.scope, yes=yes)
        if ids:
            gone = memory.delete(ids, versions=versions.value)
        else:
            gone = memory.delete_all(where=where, everything=everything)
        gone = replace(gone, purged=not gone.notes or memory.purge(expired=False))
    _tell_deleted(gone, as_json=as_json)


def _find_versions(memory: Memory, ids: list[str], versions: Versions) -> list[str]:
    """The ids that go with these."""
    chains = ([each] if versions is Versions.ONE else [note.id for note in memory.history(each)] for each in ids)
    return list(dict.fromkeys(note_id for chain in chains for note_id in chain))


def _confirm_delete(memory: Memory, ids: list[str], scope: Scope, *, yes: bool) -> None:
    """Goes on only with a yes: from the option, or from a person at the terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("a delete cannot be undone: say --yes where no one can be asked")
    about = ", ".join(ids[:5]) if ids else "every note of the store" if scope == Scope() else f"every note of {scope}"
    count = len(memory.store.get_many(ids)) if ids else memory.store.count(scope)
    typer.confirm(f"delete {show.plural(count, 'note')} ({show.one_line(about)})?", abort=True, err=True)


def _tell_deleted(gone: Deleted, *, as_json: bool) -> None:
    if as_json:
        return show.document(asdict(gone) | {"warning": gone.warning})
    show.out(f"deleted {show.plural(gone.notes, 'note')}")
    return show.warn(gone.warning) if gone.warning else None


# -- reading -----------------------------------------------------------------------------------------------------------


@command("retcon get 4f1c", "retcon get 4f1c --json | jq -r .text")
def get(note_id: opt.NoteId, *, db: opt.Db = opt.DB, as_json: opt.AsJson = False) -> None:
    """Show one note."""
    with opt.open_memory(db) as memory:
        found = memory.get(note_id)
    return show.document(found.to_dict()) if as_json else show.note(found)


@command(
    "retcon list -u ann",
    "retcon list -u ann --session s1 --since 2026-05-01 --limit 20",
    "retcon list --superseded --json",
    'retcon list -u ann --filter \'{"topic": {"ne": "home"}}\'',
    name="list",
)
def list_(
    *,
    which: opt.Which,
    limit: Annotated[int | None, option("--limit", "N", "At most so many.", short="-n", min=1)] = None,
    superseded: Annotated[bool, flag("--superseded", "Show superseded notes too.")] = False,
    expired: Annotated[bool, flag("--expired", "Show expired notes too.")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """List notes in the order they were added."""
    with opt.open_memory(db) as memory:
        found = memory.get_all(where=which.where(), limit=limit, superseded=superseded, expired=expired)
    return show.results(found) if as_json else show.notes(found)


@command("retcon history 4f1c", "retcon history 4f1c --json")
def history(note_id: opt.NoteId, *, db: opt.Db = opt.DB, as_json: opt.AsJson = False) -> None:
    """Show every version of a note, oldest first."""
    with opt.open_memory(db) as memory:
        found = memory.history(note_id)
    return show.results(found) if as_json else show.versions(found)


@command(
    'retcon search "cat" -u ann',
    'retcon search "rent" -u ann -k 5 --since 2026-03-01 --json',
    'echo "what did I pay for the saw" | retcon search',
)
def search(
    query: opt.Query = None,
    *,
    which: opt.Which,
    top_k: opt.TopK = None,
    retriever: opt.RetrieverName = None,
    embedder: opt.EmbedderName = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Rank notes by how well they match a query."""
    words = opt.text_of(query, "query")
    with opt.open_memory(db, top_k=top_k, retriever=retriever, embedder=embedder) as memory:
        found = memory.search(words, where=which.where())
    return show.results(found) if as_json else show.hits(found)


# -- the decision and the text -----------------------------------------------------------------------------------------


@command(
    'retcon recall "When did I get my cat?" -u ann --budget 64',
    'retcon recall "When did I get my cat?" -u ann --exclude extract --json',
    'retcon recall "my cat" -u ann --action merge --model http://localhost:8000/v1 --model-name qwen',
    'retcon recall "my cat" -u ann --text | llm "When did I get my cat?"',
)
def recall(
    query: opt.Query = None,
    *,
    budget: opt.Budget = opt.BUDGET,
    which: opt.Which,
    action: opt.Action = None,
    exclude: opt.Exclude = None,
    safe: opt.Safe = False,
    drafts: Annotated[int, option("--drafts", "N", "Write so many texts, and keep the best by what they show.")] = 1,
    fill: opt.Fill = True,
    setup: opt.Setup,
    text_only: Annotated[bool, flag("--text", "Print the packed text and nothing else.")] = False,
    verbose: Annotated[bool, flag("--verbose", "Also the numbers, and every dropped note.", short="-v")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Print the best text within a budget, and why."""
    words = opt.text_of(query, "query")
    with setup.open(db, needed_by=opt.needs_model(action)) as memory:
        found = memory.recall(
            words, budget, where=which.where(), action=action, exclude=exclude or (), safe=safe, drafts=drafts,
            fill=fill,
        )  # fmt: skip
    if as_json:
        return show.document(found.to_dict())
    return show.text(found) if text_only else show.recall(found, verbose=verbose)


@command(
    'retcon decide "When did I get my cat?" -u ann --budget 64',
    'retcon decide "my cat" -u ann --router my-router.json --model qwen.gguf --json',
)
def decide(
    query: opt.Query = None,
    *,
    budget: opt.Budget = opt.BUDGET,
    which: opt.Which,
    exclude: opt.Exclude = None,
    safe: opt.Safe = False,
    fill: opt.Fill = True,
    setup: opt.Setup,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Show which action recall would take, and why.

    With a model, its actions take part in the decision; nothing is asked of it.
    """
    words = opt.text_of(query, "query")
    with setup.open(db) as memory:
        found = memory.decide(words, budget, where=which.where(), exclude=exclude or (), safe=safe, fill=fill)
    return show.document(found.to_dict()) if as_json else show.decision(found)


@command(
    'retcon ask "When did I get my cat?" -u ann --model http://localhost:8000/v1 --model-name qwen',
    'retcon ask "When did I get my cat?" -u ann --model qwen.gguf --budget 64 --max-looks 2',
    'RETCON_MODEL=qwen.gguf retcon ask "my cat\'s name" -u ann --json | jq -r .answer',
)
def ask(
    question: opt.Question = None,
    *,
    budget: opt.Budget = opt.BUDGET,
    which: opt.Which,
    max_looks: Annotated[int, option("--max-looks", "N", "At most so many looks.")] = 4,
    max_tokens: Annotated[
        int | None, option("--max-tokens", "N", "No further look once the model read and wrote so many.", min=1)
    ] = None,
    safe: Annotated[bool, flag("--safe", "One look more, at whole notes, comes first.")] = False,
    wrong_cost: Annotated[
        float | None,
        option("--wrong-cost", "X", "What a wrong answer costs, where a right one brings 1. [default: .5]"),
    ] = None,
    fill: opt.Fill = True,
    setup: opt.Setup,
    verbose: Annotated[
        bool, flag("--verbose", "Show the looks, and the text that the reader was given.", short="-v")
    ] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Answer a question from memory, look by look.

    A model reads what recall gives. While it finds no answer there, the next best recall is tried, each within the
    same budget. Standard output gets the answer; the looks are shown on standard error as they happen, at a terminal
    or with --verbose. The exit code is 0 also where the answer is not in memory.

    A router that has learned prices gives an answer only where that pays: with --wrong-cost 0 nearly always, and the
    more a wrong answer costs the more rarely.
    """
    words = opt.text_of(question, "question")
    numbers = count(1)
    shown = not as_json and (verbose or sys.stderr.isatty())
    with setup.open(db, needed_by="ask") as memory:
        found = memory.ask(
            words, budget, where=which.where(), max_looks=max_looks, max_tokens=max_tokens, safe=safe, fill=fill,
            wrong_cost=wrong_cost,
            seen=(lambda look: show.look(look, next(numbers), verbose=verbose)) if shown else None,
        )  # fmt: skip
    return show.document(found.to_dict()) if as_json else show.answer(found, looks=shown)


# -- files -------------------------------------------------------------------------------------------------------------


@command("retcon export notes.jsonl", "retcon export - -u ann | gzip > ann.jsonl.gz")
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write; '-' is standard output.")],
    *,
    whose: opt.Whose,
    skip_damaged: Annotated[bool, flag("--skip-damaged", "Leave out notes that do not match their checksum.")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Write notes as JSONL.

    Superseded notes are included, so that load brings back the same memory.
    """
    with opt.open_memory(db) as memory:
        where = whose.where()
        if file == "-":
            if as_json:
                return show.results(memory.get_all(where=where, superseded=True))
            return show.jsonl(memory.lines(where=where, skip_damaged=skip_damaged))
        with show.bar("export", memory.store.count(where.scope)) as progress:
            written = memory.export(file, where=where, skip_damaged=skip_damaged, progress=progress)
    if as_json:
        return show.document({"path": file, "notes": written})
    return show.out(f"wrote {show.plural(written, 'note')} to {file}")


@command(
    "retcon load notes.jsonl",
    "zcat ann.jsonl.gz | retcon load - --db copy.db",
    "retcon load notizen.jsonl --db neu.db --language german",
)
def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, a note a line; '-' is standard input.")],
    *,
    language: opt.LanguageName = None,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Read notes from JSONL, all or none.

    It is one transaction; notes that are there already are passed over.
    """
    total = None if file == "-" else opt.count_lines(file)
    with (
        opt.new_or_known(db), opt.open_memory(db, create=True, language=language) as memory,
        show.bar("load", total) as progress,
    ):  # fmt: skip
        added = memory.load(opt.stdin_lines() if file == "-" else file, progress=progress)
    if as_json:
        return show.document({"added": added})
    return show.out(f"added {show.plural(added, 'note')} to {shown(db)}")


command(*importing.EXAMPLES, name="import")(importing.import_)


class CacheJob(StrEnum):
    """What can be done with the cache."""

    STATS = "stats"
    CLEAR = "clear"


@command("retcon cache stats --json", "retcon cache clear --yes")
def cache(
    job: Annotated[CacheJob, typer.Argument(metavar="stats|clear", help="Count what is kept, or remove it all.")],
    *,
    yes: opt.Yes = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Count or clear what models wrote: records and replies.

    Notes stay as they are. What was cleared costs calls of the model when it is wanted again.
    """
    with opt.open_memory(db) as memory:
        if job is CacheJob.STATS:
            kept = memory.cache_stats()
            return show.document(kept) if as_json else show.cache(kept)
        if not yes:
            _confirm_clear(memory)
        gone = memory.clear_cache()
    return show.document(gone) if as_json else show.out(f"cleared {show.cache_counts(gone)}")


def _confirm_clear(memory: Memory) -> None:
    """Goes on only where a person at the terminal says yes."""
    if not sys.stdin.isatty():
        raise InputError("what a model wrote costs calls to write again: say --yes where no one can be asked")
    typer.confirm(f"clear {show.cache_counts(memory.cache_stats())}?", abort=True, err=True)


# -- the file, verbs of others, serving --------------------------------------------------------------------------------


def add_verbs(verbs: Iterable[tuple[Callable[..., object], Sequence[str]]]) -> None:
    """Add verbs, each with examples of it."""
    for verb, examples in verbs:
        command(*examples)(verb)


def add_plugins() -> None:
    """Add the laboratory's verbs, and those of any package that declares some; one that fails is named and left out."""
    for plugin in sorted(entry_points(group="retcon.verbs"), key=lambda each: each.name):
        try:
            add_verbs(plugin.load())
        except Exception as error:
            show.warn(f"no verbs of {plugin.name} ({plugin.value}): {type(error).__name__}: {error}")


add_verbs([(files.check, files.CHECK), (files.backup, files.BACKUP), (files.restore, files.RESTORE)])
add_verbs([(files.migrate, files.MIGRATE)])
add_verbs([(files.embed, files.EMBED), (files.purge, files.PURGE), (files.reindex, files.REINDEX)])
add_plugins()
add_verbs([(serving.serve, serving.SERVE), (serving.keys, serving.KEYS), (mcps.mcp, mcps.EXAMPLES)])


# -- about retcon ------------------------------------------------------------------------------------------------------


@command(
    "retcon doctor",
    "retcon doctor --db agent.db --router my-router.json --json",
    "retcon doctor --model http://localhost:8000/v1 --model-name qwen --check-model",
)
def doctor(
    *,
    parts: opt.Parts,
    model: opt.ModelChoice,
    check_model: Annotated[bool, flag("--check-model", "Ask the model for a word.")] = False,
    db: opt.Db = opt.DB,
    as_json: opt.AsJson = False,
) -> None:
    """Say what is configured and what is missing.

    The exit code is 1 if something is broken. No model is asked without --check-model.
    """
    from retcon.cli.doctor import examine, tell

    report = examine(db, parts, model, check=check_model)
    show.document(report) if as_json else tell(report)
    if not report["ok"]:
        raise typer.Exit(1)


@command("retcon demo", "retcon demo --json", "COLUMNS=120 retcon demo | less")
def demo(*, as_json: opt.AsJson = False) -> None:
    """Show recalls of a sample conversation.

    One question of each type at 32, 64, 128 and 256 tokens, then all of them in a table. Nothing is kept.
    """
    from retcon.cli.story import tell
    from retcon.demo import play

    acts = play(show.bar)
    return show.document(dict(acts)) if as_json else tell(acts)


@command("retcon version", "retcon version --json")
def version(*, as_json: opt.AsJson = False) -> None:
    """Show the version."""
    show.document({"version": retcon.__version__}) if as_json else show.out(f"retcon {retcon.__version__}")
