"""The options that verbs share, in groups, and where a verb's text comes from.

A group is a frozen dataclass whose fields are options. A verb names it in its signature and is handed it filled;
`spread` makes the flat signature that typer reads.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from retcon import model
from retcon.errors import InputError, RetconError, StoreError, quote
from retcon.language import names
from retcon.memory import DEFAULT_BUDGET, DEFAULT_PATH, Memory
from retcon.note import Scope
from retcon.operate import ACTIONS, usable
from retcon.perform import GUARDS
from retcon.retrieve import RETRIEVERS
from retcon.store.places import is_postgres, load_postgres, shown
from retcon.tokens import KNOWN
from retcon.where import Where

T = TypeVar("T")
DB, BUDGET = DEFAULT_PATH, DEFAULT_BUDGET
EMBEDDERS = ("hashing", "wordllama", "openai:", "ollama:", "sentence-transformers:", "fastembed:", "model2vec:")
_SPAN = re.compile(r"([0-9]{1,6})([dhm])")
_FREE = usable(None)  # actions that need no model
_PAID = tuple(name for name in ACTIONS if name not in _FREE)


# -- groups into a signature -------------------------------------------------------------------------------------------


def spread(verb: Callable[..., T]) -> Callable[..., T]:
    """The verb with every group in its signature spread into the group's options, in the same order."""
    given, hints = inspect.signature(verb).parameters, get_type_hints(verb, include_extras=True)
    options = [each for name in given for each in _options(hints[name], name, given[name].default)]

    def run(**values: Any) -> T:
        return verb(**{name: _fill(hints[name], name, values) for name in given})

    run.__name__, run.__doc__, run.__annotations__ = verb.__name__, verb.__doc__, {}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


@functools.cache
def _hints(group: Any) -> dict[str, Any]:
    return get_type_hints(group, include_extras=True)


def _options(kind: Any, name: str, default: Any) -> Iterator[inspect.Parameter]:
    if not (isinstance(kind, type) and is_dataclass(kind)):
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        return
    hints = _hints(kind)
    for field in fields(kind):
        none = inspect.Parameter.empty if field.default is MISSING else field.default
        yield from _options(hints[field.name], f"{name}_{field.name}", none)


def _fill(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    """The value of an option, or the group made of its options' values."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return values[name]
    hints = _hints(kind)
    return kind(**{each.name: _fill(hints[each.name], f"{name}_{each.name}", values) for each in fields(kind)})


# -- single options ----------------------------------------------------------------------------------------------------


def option(name: str, metavar: str, about: str, *, short: str | None = None, **more: Any) -> Any:
    """An option that takes a value."""
    return typer.Option(*(name,) if short is None else (name, short), metavar=metavar, help=about, **more)


def flag(name: str, about: str, *, short: str | None = None) -> Any:
    """An option that is there or not."""
    return typer.Option(*(name,) if short is None else (name, short), help=about)


Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="The text; '-' or nothing reads standard input.")]
Query = Annotated[str | None, typer.Argument(metavar="QUERY", help="The query; '-' or nothing reads standard input.")]
Question = Annotated[
    str | None, typer.Argument(metavar="QUESTION", help="The question; '-' or nothing reads standard input.")
]
NoteId = Annotated[str, typer.Argument(metavar="ID", help="The note's id.")]

Db = Annotated[str, option("--db", "PATH", "The store, one SQLite file.", envvar="RETCON_DB")]
AsJson = Annotated[bool, flag("--json", "One JSON document on standard output.")]
Yes = Annotated[bool, flag("--yes", "Do not ask.", short="-y")]

Session = Annotated[str | None, option("--session", "NAME", "The conversation a note belongs to.")]
Meta = Annotated[
    list[str] | None, option("--meta", "KEY=VALUE", "Metadata; a value that is JSON is read as JSON. Repeatable.")
]
LanguageName = Annotated[
    str | None,
    option(
        "--language",
        "NAME",
        "Of the notes, for a new store: german or de, japanese or ja, ...; none takes words as they are.",
        autocompletion=lambda: [*names()],
    ),
]
Budget = Annotated[int, option("--budget", "TOKENS", "Tokens the text may cost.", short="-b", envvar="RETCON_BUDGET")]
TopK = Annotated[int | None, option("--top-k", "N", "Candidates to retrieve, 20 if not said.", short="-k")]


def _actions() -> list[tuple[str, str]]:
    return [(name, ("needs --model: " if act.needs_model else "") + act.about) for name, act in ACTIONS.items()]


Action = Annotated[
    str | None,
    option(
        "--action",
        "NAME",
        f"Force {', '.join(_FREE)}; these need --model: {', '.join(_PAID)}.",
        autocompletion=_actions,
    ),
]
Exclude = Annotated[list[str] | None, option("--exclude", "NAME", "Leave it out. Repeatable.", autocompletion=_actions)]


Safe = Annotated[bool, flag("--safe", "Replace whole notes only where the router's threshold is reached.")]
Fill = Annotated[
    bool, typer.Option("--fill/--no-fill", help="Where nothing is about it: the newest notes, or no text.")
]


def _one_of(name: str, *names: str) -> Any:
    return option(name, "NAME", f"One of {', '.join(names)}.", autocompletion=lambda: [*names])


CounterName = Annotated[str | None, _one_of("--counter", *KNOWN)]
RetrieverName = Annotated[str | None, _one_of("--retriever", *RETRIEVERS)]
EmbedderName = Annotated[
    str | None,
    option(
        "--embedder",
        "NAME",
        "hashing, wordllama, a provider's (openai:text-embedding-3-small), sentence-transformers:NAME, fastembed:NAME,"
        " model2vec:NAME, or the base URL of an endpoint.",
        envvar="RETCON_EMBEDDER",
        autocompletion=lambda: [*EMBEDDERS],
    ),
]
GuardName = Annotated[
    str | None,
    option(
        "--guard",
        "NAME",
        "Doubtful records: warn (keep and say so), or strict (take an action without a model).",
        autocompletion=lambda: [*GUARDS],
    ),
]


# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Whose notes."""

    user_id: Annotated[str | None, option("--user-id", "ID", "Whose notes.", short="-u")] = None
    agent_id: Annotated[str | None, option("--agent-id", "ID", "Which agent's notes.")] = None
    run_id: Annotated[str | None, option("--run-id", "ID", "Which run's notes.")] = None

    def where(self) -> Where:
        """The value that is handed down."""
        words = asdict(self)
        filters = read_filter(words.pop("filter", None))
        return Where.of(metadata=metadata(words.pop("meta", None)), filters=filters, **words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which(Whose):
    """Whose notes, and which of them."""

    session: Session = None
    since: Annotated[str | None, option("--since", "DATE", "Only notes from this ISO date or time on.")] = None
    until: Annotated[str | None, option("--until", "DATE", "Only notes up to this ISO date or time.")] = None
    meta: Meta = None
    filter: Annotated[
        str | None, option("--filter", "JSON", 'Conditions, such as \'{"topic": {"in": ["pets", "home"]}}\'.')
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFields:
    """What a new note says beside its text."""

    session: Session = None
    speaker: Annotated[str | None, option("--speaker", "NAME", "Who said it.")] = None
    timestamp: Annotated[str | None, option("--timestamp", "DATE", "When it happened, ISO 8601.")] = None
    expires: Annotated[
        str | None, option("--expires", "WHEN", "Not recalled from then on: ISO 8601, or 30d, 12h, 15m from now.")
    ] = None
    meta: Meta = None

    def keywords(self) -> dict[str, Any]:
        """What `Memory` calls them."""
        given = asdict(self)
        given |= {"metadata": metadata(given.pop("meta")), "expires_at": read_expiry(given.pop("expires"))}
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Who writes and reads."""

    model: Annotated[
        str | None,
        option(
            "--model",
            "MODEL",
            "Who writes and reads: a provider's (openai:gpt-4o-mini, ollama:llama3.2), the base URL of an"
            " OpenAI-compatible endpoint, or a .gguf file.",
            envvar="RETCON_MODEL",
        ),
    ] = None
    name: Annotated[
        str | None, option("--model-name", "NAME", "The model to ask for at the URL.", envvar="RETCON_MODEL_NAME")
    ] = None
    timeout: Annotated[
        float | None, option("--timeout", "SECONDS", "How long to wait for the model in all, 60 if not said.")
    ] = None

    def keywords(self, *, needed_by: str | None = None) -> dict[str, Any]:
        """What `Memory` is told of it. OPENAI_BASE_URL names one only where something cannot do without."""
        given = self.model
        if given is None and needed_by is not None:
            given = os.environ.get("OPENAI_BASE_URL") or None
            if given is None:
                raise InputError(
                    f"{needed_by} needs a model: --model ollama:llama3.2, a URL or a .gguf file, or set RETCON_MODEL"
                )
        if is_url(given) and not self.name:
            raise InputError("an endpoint needs the name of the model to ask: --model-name, or set RETCON_MODEL_NAME")
        name = self.name if is_url(given) else None  # a file has a name of its own, and so has a provider's model
        return {"model": given, "model_name": name, "timeout": self.timeout}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that a recall uses."""

    router: Annotated[
        str | None, option("--router", "FILE", "A router's JSON file, or the name of one that ships.")
    ] = None
    counter: CounterName = None
    retriever: RetrieverName = None
    embedder: EmbedderName = None
    reranker: Annotated[
        str | None,
        option(
            "--reranker",
            "NAME",
            "Orders the best notes anew: sentence-transformers:NAME, fastembed:NAME, or the URL of a /rerank endpoint.",
            envvar="RETCON_RERANKER",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a memory is opened."""

    top_k: TopK = None
    parts: Parts
    model: ModelChoice
    no_focus: Annotated[bool, flag("--no-focus", "Records for any question, not written for this one.")] = False
    guard: GuardName = None

    def open(
        self,
        db: str,
        *,
        create: bool = False,
        language: str | None = None,
        needed_by: str | None = None,
        embed_in_background: bool = False,
    ) -> contextlib.AbstractContextManager[Memory]:
        """The memory in that file; `needed_by` names what cannot do without a model."""
        return open_memory(
            db, create=create, **asdict(self.parts), **self.model.keywords(needed_by=needed_by), top_k=self.top_k,
            focus=not self.no_focus, guard=self.guard, language=language, embed_in_background=embed_in_background,
        )  # fmt: skip


def is_url(given: str | None) -> bool:
    """Whether a model is meant by the URL of its endpoint."""
    return given is not None and given.lower().startswith(("http://", "https://"))


def is_endpoint(given: str | None) -> bool:
    """Whether a model is meant that is asked over HTTP, by a URL or by a provider's name."""
    return given is not None and model.is_endpoint(given)


def needs_model(action: str | None) -> str | None:
    """The action, if it is one that cannot run without a model."""
    return action if action in _PAID else None


@contextlib.contextmanager
def open_memory(db: str, *, create: bool = False, **options: Any) -> Iterator[Memory]:
    """The memory in that file; one that is not there is made only with `create`. Options that are None are left out."""
    if os.path.isdir(db):
        raise StoreError(f"{db} is a folder: name a file in it")
    if not create and db != ":memory:" and "://" not in db and not os.path.exists(db):
        raise StoreError(f"{db} does not exist yet: 'retcon add' or 'retcon load' makes it, --db names another")
    if not create and is_postgres(db) and not load_postgres().is_there(db):
        raise StoreError(f"{shown(db)} does not exist yet: 'retcon add' or 'retcon load' makes it, --db names another")
    with Memory(db, **{name: value for name, value in options.items() if value is not None}) as memory:
        yield memory


@contextlib.contextmanager
def new_or_known(db: str) -> Iterator[None]:
    """A block that fills a store: where it fails, one that it made and that is empty is not left behind."""
    known = db == ":memory:" or is_postgres(db) or os.path.exists(db)
    try:
        yield
    except BaseException:
        if not known and os.path.exists(db) and _is_empty(db):
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(db + end)
        raise


def _is_empty(db: str) -> bool:
    try:
        with Memory(db) as memory:
            return memory.store.count(Scope()) == 0
    except RetconError:
        return False


# -- what is given -----------------------------------------------------------------------------------------------------


def metadata(pairs: Sequence[str] | None, option: str = "--meta") -> dict[str, Any] | None:
    """KEY=VALUE pairs as a mapping; None where there are none."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{option} takes KEY=VALUE, not {pair[:80]!r}")
        found[key] = _value(value)
    return found or None


def read_filter(text: str | None) -> dict[str, Any] | None:
    """The conditions of --filter."""
    if text is None:
        return None
    found = _value(text)
    if not isinstance(found, dict):
        raise InputError(f"--filter takes a JSON object, not {text[:80]!r}")
    return found


def read_expiry(text: str | None) -> str | timedelta | None:
    """A moment as it was written, or the length of time from now that 30d, 12h or 15m say."""
    span = _SPAN.fullmatch(text or "")
    if span is None:
        _check_moment(text)
        return text
    return timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[span[2]]: int(span[1])})


def _check_moment(text: str | None) -> None:
    try:
        if text not in (None, "never"):
            datetime.fromisoformat(str(text).strip())
    except ValueError:
        forms = "30d, 12h or 15m from now, or ISO 8601 such as 2026-12-31"
        raise InputError(f"--expires takes {forms}, not {quote(text)}") from None


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
