"""Every error that retcon raises on purpose.

    RetconError
    ├── InputError            the caller's words are off: empty text, a negative budget, an unknown action
    │   ├── NotFoundError     no note has that id
    │   └── RefusedError      the memory's owner does not let the note be stored
    ├── ConflictError         an id is taken by another text, or a note was superseded before
    ├── StoreError            the database cannot be opened, read or written
    │   ├── SchemaError       the file was written by a newer retcon
    │   └── BusyError         another process kept the database locked past the time-out
    ├── ModelError            a model was asked and gave no usable reply
    │   ├── AuthError              the endpoint refused the key
    │   ├── RateLimitError         too many requests, still so after the retries
    │   ├── ContextTooLongError    the prompt does not fit the model's window
    │   ├── MalformedReplyError    the reply is not what the protocol says
    │   ├── ModelTimeoutError      no reply within the time-out
    │   └── ModelUnavailableError  no connection, or a server that fails
    ├── DeadlineError         the caller's time for the work ran out; nothing was written
    ├── RouterError           a router file does not say what a router must say
    └── MissingExtraError     an optional part is not installed; the message carries the install line

Each message is one line and carries the numbers it speaks of; the data is on the attributes.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence


def quote(value: object, most: int = 80) -> str:
    """Any value as it may stand in a message: on one line, shortened, and never an error of its own."""
    if isinstance(value, str):
        return repr(value[:most])
    try:
        return " ".join(reprlib.repr(value).split())[:most]
    except ValueError:  # an int of thousands of digits refuses to be written
        return f"a huge {type(value).__name__}"


def few(names: Sequence[str]) -> str:
    """The names as they may stand in a message: eight of them, and how many more there are."""
    first = ", ".join(name[:100] if name.isprintable() else ascii(name[:100]) for name in map(str, names[:8]))
    return f"{first} and {len(names) - 8} more" if len(names) > 8 else first


def message_of(error: BaseException, most: int = 300) -> str:
    """What an error says, on one line and shortened; its class where it says nothing or cannot even do that."""
    try:
        said = " ".join(str(error).split())[:most]
    except Exception:
        said = ""
    return said or type(error).__name__


class RetconError(Exception):
    """Base of all errors that retcon raises on purpose."""

    code = "error"


class InputError(RetconError, ValueError):
    """The caller's input cannot be used as it is."""

    code = "bad_input"


class NotFoundError(InputError, KeyError):
    """No note has the id that was asked for."""

    code = "not_found"

    def __init__(self, note_id: str) -> None:
        self.note_id = note_id
        super().__init__(f"no note has the id {note_id!r}")

    def __str__(self) -> str:  # KeyError would quote the whole message
        return str(self.args[0])


class RefusedError(InputError):
    """A note that the owner of the memory does not let be stored; raised by its `before_store`, or for it."""

    code = "refused"

    def __init__(self, reason: str, number: int | None = None) -> None:
        self.reason, self.number = reason, number  # which of the notes that came together
        super().__init__(reason if number is None else f"note {number} was refused: {reason}; nothing was stored")


class ConflictError(RetconError):
    """What was asked contradicts what the store already holds."""

    code = "conflict"

    def __init__(self, note_id: str | None, why: str, newer: str | None = None) -> None:
        self.note_id, self.why = note_id, why
        self.newer = newer  # the note that superseded this one before
        super().__init__(f"the id {note_id!r} {why}" if note_id is not None else f"an id of this request {why}")

    def under(self, note_id: str | None) -> ConflictError:
        """The same error, about the id by which the caller knows the note."""
        return ConflictError(note_id, self.why, self.newer)


class StoreError(RetconError):
    """The store cannot be opened, read or written."""

    code = "store"


class SchemaError(StoreError):
    """The store was written by a newer program than this one."""

    code = "schema"

    def __init__(self, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(f"the store has schema {found}, this retcon knows up to {known}: upgrade retcon-memory")


class BusyError(StoreError):
    """Another process held the store locked for longer than the time-out."""

    code = "busy"


class ModelError(RetconError):
    """A model was asked and gave no usable reply. The base class stands for a request that the endpoint refused."""

    code = "model"
    passing = False  # whether the same ask may be answered a while later
    retry_after: float | None = None  # seconds, where the endpoint named them


class AuthError(ModelError):
    """The endpoint refused the key, or wants one."""

    code = "model_auth"


class RateLimitError(ModelError):
    """The endpoint asks for fewer requests, and did so until the retries were used up."""

    code = "model_rate_limit"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ContextTooLongError(ModelError):
    """The prompt and the token ceiling do not fit the model's context window."""

    code = "model_context"


class MalformedReplyError(ModelError):
    """The reply is not what the protocol says: not JSON, another shape, no text, too large."""

    code = "model_malformed"


class ModelTimeoutError(ModelError):
    """No complete reply came within the time-out."""

    code = "model_timeout"


class ModelUnavailableError(ModelError):
    """The model cannot be reached, or its server fails."""

    code = "model_unavailable"


class DeadlineError(RetconError):
    """The time that the caller gave for the work ran out before it was done; nothing was written."""

    code = "timeout"


class RouterError(RetconError):
    """A router file is malformed or does not fit the action set in use."""

    code = "router"


class MissingExtraError(RetconError, ImportError):
    """An optional dependency is not installed."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(f"{what} needs an optional part: pip install 'retcon-memory[{extra}]'")
