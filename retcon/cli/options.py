"""The options that verbs share, and where a verb's text comes from."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.errors import InputError, StoreError
from retcon.memory import DEFAULT_BUDGET, DEFAULT_PATH, Memory
from retcon.operate import ACTIONS, usable
from retcon.perform import GUARDS
from retcon.retrieve import RETRIEVERS
from retcon.tokens import KNOWN

EMBEDDERS = ("hashing", "wordllama")
_RETRIEVERS = ", ".join(RETRIEVERS)
_FREE = usable(None)  # actions that need no model
_PAID = tuple(name for name in ACTIONS if name not in _FREE)

Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="The text; '-' or nothing reads standard input.")]
Query = Annotated[str | None, typer.Argument(metavar="QUERY", help="The query; '-' or nothing reads standard input.")]
Question = Annotated[
    str | None, typer.Argument(metavar="QUESTION", help="The question; '-' or nothing reads standard input.")
]
NoteId = Annotated[str, typer.Argument(metavar="ID", help="The note's id.")]

Db = Annotated[str, typer.Option("--db", envvar="RETCON_DB", metavar="PATH", help="The store, one SQLite file.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

UserId = Annotated[str | None, typer.Option("--user-id", "-u", metavar="ID", help="Whose notes.")]
AgentId = Annotated[str | None, typer.Option("--agent-id", metavar="ID", help="Which agent's notes.")]
RunId = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Which run's notes.")]

Session = Annotated[str | None, typer.Option("--session", metavar="NAME", help="The conversation a note belongs to.")]
Since = Annotated[str | None, typer.Option("--since", metavar="DATE", help="Only notes from this ISO date or time on.")]
Until = Annotated[str | None, typer.Option("--until", metavar="DATE", help="Only notes up to this ISO date or time.")]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="KEY=VALUE", help="Metadata; a value that is JSON is read as JSON. Repeatable."),
]
Speaker = Annotated[str | None, typer.Option("--speaker", metavar="NAME", help="Who said it.")]
Timestamp = Annotated[str | None, typer.Option("--timestamp", metavar="DATE", help="When it happened, ISO 8601.")]

Budget = Annotated[
    int, typer.Option("--budget", "-b", envvar="RETCON_BUDGET", metavar="TOKENS", help="Tokens the text may cost.")
]
TopK = Annotated[int | None, typer.Option("--top-k", "-k", metavar="N", help="Candidates to retrieve, 20 if not said.")]


def _actions() -> list[tuple[str, str]]:
    return [(name, ("needs --model: " if act.needs_model else "") + act.about) for name, act in ACTIONS.items()]


Action = Annotated[
    str | None,
    typer.Option(
        "--action",
        metavar="NAME",
        help=f"Force {', '.join(_FREE)}; these need --model: {', '.join(_PAID)}.",
        autocompletion=_actions,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="NAME", help="Leave it out. Repeatable.", autocompletion=_actions),
]
RouterFile = Annotated[
    str | None, typer.Option("--router", metavar="FILE", help="A router's JSON file, or the name of one that ships.")
]
CounterName = Annotated[
    str | None,
    typer.Option("--counter", metavar="NAME", help=f"One of {', '.join(KNOWN)}.", autocompletion=lambda: [*KNOWN]),
]
RetrieverName = Annotated[
    str | None,
    typer.Option("--retriever", metavar="NAME", help=f"One of {_RETRIEVERS}.", autocompletion=lambda: [*RETRIEVERS]),
]
EmbedderName = Annotated[
    str | None,
    typer.Option("--embedder", metavar="NAME", help="One of hashing, wordllama.", autocompletion=lambda: [*EMBEDDERS]),
]

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="RETCON_MODEL",
        metavar="URL|FILE",
        help="Who writes and reads: the base URL of an OpenAI-compatible endpoint, or a .gguf file.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model-name", envvar="RETCON_MODEL_NAME", metavar="NAME", help="The model to ask for at the URL."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="For one reply of the model, 60 if not said.")
]
NoFocus = Annotated[bool, typer.Option("--no-focus", help="Records for any question, not written for this one.")]
GuardName = Annotated[
    str | None,
    typer.Option(
        "--guard",
        metavar="NAME",
        help="Doubtful records: warn (keep and say so), or strict (take an action without a model).",
        autocompletion=lambda: [*GUARDS],
    ),
]

DB, BUDGET = DEFAULT_PATH, DEFAULT_BUDGET


@contextlib.contextmanager
def opened(db: str, *, create: bool = False, **options: Any) -> Iterator[Memory]:
    """The memory in that file; one that is not there is made only with `create`. Options that are None are left out."""
    if os.path.isdir(db):
        raise StoreError(f"{db} is a folder: name a file in it")
    if not create and db != ":memory:" and "://" not in db and not os.path.exists(db):
        raise StoreError(f"{db} does not exist yet: 'retcon add' or 'retcon load' makes it, --db names another")
    with Memory(db, **{name: value for name, value in options.items() if value is not None}) as memory:
        yield memory


def model(given: str | None, name: str | None, *, needed_by: str | None = None) -> dict[str, Any]:
    """What `Memory` is told of the model. OPENAI_BASE_URL names one only where something cannot do without."""
    if given is None and needed_by is not None:
        given = os.environ.get("OPENAI_BASE_URL") or None
        if given is None:
            raise InputError(f"{needed_by} needs a model: --model URL or --model FILE.gguf, or set RETCON_MODEL")
    if is_url(given) and not name:
        raise InputError("an endpoint needs the name of the model to ask: --model-name, or set RETCON_MODEL_NAME")
    return {"model": given, "model_name": name if is_url(given) else None}  # a file has a name of its own


def is_url(given: str | None) -> bool:
    """Whether a model is meant by the URL of its endpoint."""
    return given is not None and given.lower().startswith(("http://", "https://"))


def needs_model(action: str | None) -> str | None:
    """The action, if it is one that cannot run without a model."""
    return action if action in _PAID else None


def metadata(pairs: Sequence[str] | None, option: str = "--meta") -> dict[str, Any] | None:
    """KEY=VALUE pairs as a mapping; None where there are none."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{option} takes KEY=VALUE, not {pair[:80]!r}")
        found[key] = _value(value)
    return found or None


def _value(text: str) -> Any:
    def no_constant(name: str) -> Any:
        raise ValueError(name)  # NaN and Infinity are words here, not numbers

    try:
        return json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return text


def text_of(given: str | None, what: str) -> str:
    """The argument, or standard input without its last line break where the argument is '-' or missing."""
    if given is not None and given != "-":
        return given
    if _at_terminal():
        raise InputError(f"give the {what} as an argument, or pipe it in")
    return read_stdin().rstrip("\r\n")


def read_stdin() -> str:
    """All of standard input, which must be UTF-8."""
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte 0x{raw[error.start]:02x} at {error.start}") from None


def stdin_lines() -> Iterator[str]:
    """Standard input line by line, each of which must be UTF-8."""
    if _at_terminal():
        raise InputError("pipe JSONL in, or name a file")
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"line {number}: not UTF-8, byte 0x{raw[error.start]:02x} at {error.start}") from None


def _at_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def messages(path: str) -> list[Any]:
    """The list of messages in a JSON file, or in standard input for '-'."""
    where = "standard input" if path == "-" else path
    try:
        found = json.loads(read_stdin() if path == "-" else Path(path).read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON in UTF-8: {error}") from None
    if not isinstance(found, list):
        raise InputError(f"{where} holds no list of messages with role and content")
    return found


def count_lines(path: str) -> int | None:
    """Lines of the file, for a bar that knows how far it has to go; None for a pipe, which can be read only once."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        return None
    try:
        with open(path, "rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
