"""The caller's words -> notes, scopes and filters, or one clear error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from retcon.errors import InputError, quote
from retcon.note import Filter, Note, Scope

LONGEST_TEXT = 64 * 2**20  # characters of one note
LONGEST_NAME = 1024  # characters of an id, a session or a speaker
DEEPEST = 64  # levels of metadata: far below where reading it back could exhaust the stack
_FIELDS = {
    "id", "text", "speaker", "session", "timestamp", "user_id", "agent_id", "run_id", "metadata",
    "follows", "supersedes", "created_at", "live", "expires_at",
}  # fmt: skip
_ALIASES = {"content": "text", "memory": "text", "role": "speaker", "name": "speaker"}
_UNSPOKEN = {"tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"}  # of chat messages

What = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]


def drafts(what: What, **shared: Any) -> Iterator[dict[str, Any]]:
    """One dict of note fields per text or message; what an item says itself goes before what the call says for all."""
    given = {name: value for name, value in shared.items() if value is not None}
    single = isinstance(what, (str, Mapping))
    for item in [what] if single else _iterate(what):
        fields = {"text": item} if isinstance(item, str) else _fields(item)
        if fields.get("text") in (None, "") and not single and "role" in item:
            continue  # a message that only calls a tool has no words to keep
        yield given | {name: value for name, value in fields.items() if value is not None or name == "text"}


def draft(what: object) -> dict[str, Any]:
    """The note fields of one text or message."""
    if not isinstance(what, (str, Mapping)):
        raise InputError(f"a note is text or a message with role and content, not {_kind(what)}")
    (one,) = drafts(what)
    return one


def _iterate(what: object) -> Iterable[Any]:
    if not isinstance(what, Iterable) or isinstance(what, (bytes, bytearray)):
        raise InputError(f"a note is text, a message with role and content, or a list of those, not {_kind(what)}")
    return what


def _fields(item: object) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise InputError(f"a note is text, a message with role and content, or a list of those, not {_kind(item)}")
    out: dict[str, Any] = {}
    for name, value in item.items():
        field = _ALIASES.get(name, name)
        if field in _UNSPOKEN and "role" in item:
            continue
        if field not in _FIELDS:
            raise InputError(f"a note has no field {quote(name)}; put your own values under 'metadata'")
        if field == "speaker" and "name" in item and name == "role":
            continue  # a message with a role and a name is said by the one of that name
        out[field] = _join_parts(value) if field == "text" else value
    if "text" not in out:
        raise InputError("a note needs 'text' (or 'content')")
    return out


def _join_parts(content: object) -> object:
    """Content that comes as a list of typed parts, as one text; other parts than text are passed over."""
    if not isinstance(content, list):
        return content
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def note(fields: Mapping[str, Any], *, created_at: str) -> Note:
    """The note that the fields describe, every one of them checked."""
    return Note(
        id=name("id", fields["id"]) or "",
        text=text(fields["text"]),
        speaker=name("speaker", fields.get("speaker")),
        session=name("session", fields.get("session")),
        timestamp=timestamp(fields.get("timestamp")),
        user_id=name("user_id", fields.get("user_id")),
        agent_id=name("agent_id", fields.get("agent_id")),
        run_id=name("run_id", fields.get("run_id")),
        metadata=metadata(fields.get("metadata")),
        follows=name("follows", fields.get("follows")),
        supersedes=name("supersedes", fields.get("supersedes")),
        created_at=timestamp(fields.get("created_at")) or created_at,
        live=live(fields),
        expires_at=expiry(fields.get("expires_at"), now=created_at),
    )


def live(fields: Mapping[str, Any]) -> bool:
    """Whether the fields say so, and name no time of their own."""
    given = fields.get("live", False)
    if not isinstance(given, bool):
        raise InputError(f"live is true or false, not {quote(given)}")
    return given and fields.get("timestamp") is None


def expiry(value: object, *, now: str) -> str | None:
    """The moment from which on a note is not recalled, UTC to the second; None and "never" are none.

    It comes as ISO 8601 (a bare date is its first moment), a date, a datetime, or a timedelta from now on.
    """
    if value is None or value == "never":
        return None
    try:
        if isinstance(value, timedelta):
            return utc(datetime.fromisoformat(now) + value)
        if isinstance(value, (str, date)):  # a datetime is a date
            return utc(datetime.fromisoformat(value.strip() if isinstance(value, str) else value.isoformat()))
    except (ValueError, OverflowError):
        pass
    message = f"expires_at {quote(value)} is not ISO 8601, such as 2026-12-31 or 2026-12-31T18:00, or a timedelta"
    raise InputError(message)


def utc(moment: datetime) -> str:
    """The moment in UTC, to the second, as texts of one length: they compare as the moments do."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="seconds")


def text(value: object) -> str:
    """A note's text: some visible character, no half of a surrogate pair, not past the limit."""
    checked = _check_text("text", value)
    if not checked or checked.isspace():
        raise InputError("a note needs some text, and this one is empty")
    if len(checked) > LONGEST_TEXT:
        raise InputError(f"the text has {len(checked):,} characters, a note holds {LONGEST_TEXT:,} at most")
    return checked


def query(value: object) -> str:
    """A query: any text; half surrogates, which no stored note can hold, become spaces."""
    if not isinstance(value, str):
        raise InputError(f"a query is text, not {_kind(value)}")
    return value.encode("utf-8", "replace").decode() if not value.isascii() else value


def name(what: str, value: object) -> str | None:
    """An id, session or speaker: short text that is not empty, or None."""
    if value is None:
        return None
    checked = _check_text(what, value)
    if not checked or checked.isspace():
        raise InputError(f"{what} is empty: leave it out instead")
    if "\0" in checked:
        raise InputError(f"{what} holds a NUL character, which only a note's text may")
    if len(checked) > LONGEST_NAME:
        raise InputError(f"{what} has {len(checked):,} characters, {LONGEST_NAME:,} are allowed")
    return checked


def note_id(value: object) -> str:
    """The id of a note to look for."""
    checked = name("id", value)
    if checked is None:
        raise InputError("a note's id is missing")
    return checked


def _check_text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, not {_kind(value)}")
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds a lone surrogate at character {error.start}, which is no text") from None
    return value


def timestamp(value: object) -> str | None:
    """An ISO 8601 date or date and time, from text, a date, a datetime or seconds since 1970; None stays None."""
    if value is None:
        return None
    try:
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
        if isinstance(value, str):
            return _read_time(value)
    except (ValueError, OverflowError, OSError):
        pass
    raise InputError(f"timestamp {quote(value)} is not ISO 8601, such as 2026-05-09 or 2026-05-09T10:00")


@lru_cache(maxsize=4096)
def _read_time(value: str) -> str:
    moment = datetime.fromisoformat(value.strip())
    bare = "T" not in value and ":" not in value and len(value.strip()) <= 10
    return moment.date().isoformat() if bare else moment.isoformat()


def metadata(value: object) -> Mapping[str, Any]:
    """A JSON object with text keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"metadata must be a mapping with text keys, not {_kind(value)}")
    if _too_deep(value, DEEPEST):
        raise InputError(f"metadata may be nested {DEEPEST} levels deep, and this is deeper")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False, ensure_ascii=False))
        json.dumps(plain, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metadata must be plain JSON: {str(error).splitlines()[0]}") from None
    return plain


def scope(user_id: object = None, agent_id: object = None, run_id: object = None) -> Scope:
    """The scope of the ids that are named."""
    return Scope(name("user_id", user_id), name("agent_id", agent_id), name("run_id", run_id))


def only(session: object = None, since: object = None, until: object = None, values: object = None) -> Filter:
    """The filter of the conditions that are named."""
    return Filter(name("session", session), timestamp(since), timestamp(until), metadata(values))


def whole(what: str, value: object, *, least: int = 1, most: int = 10_000) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} must be a whole number from {least} to {most:,}, not {quote(value)}")
    return value


def _too_deep(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return any(levels == 1 or _too_deep(each, levels - 1) for each in inner if isinstance(each, (Mapping, list, tuple)))


def _kind(value: object) -> str:
    return type(value).__name__
