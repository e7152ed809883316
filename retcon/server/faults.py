"""Every error as one JSON shape: {"error": {"code", "message"}}, one plain line, never a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from retcon.errors import (
    BusyError,
    ConflictError,
    InputError,
    ModelError,
    ModelTimeoutError,
    NotFoundError,
    RetconError,
    StoreError,
)

LONGEST = 300  # characters of a message


class Refused(Exception):  # noqa: N818
    """A request that is answered with an error on purpose."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        self.status, self.code, self.message = status, code, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(message)


def refused(error: RetconError) -> Refused:
    """The answer to one of the library's errors."""
    if isinstance(error, NotFoundError):
        return Refused(404, error.code, str(error))
    if isinstance(error, InputError):
        return Refused(422, error.code, str(error))
    if isinstance(error, ConflictError):
        return Refused(409, error.code, str(error))
    if isinstance(error, BusyError):
        message = "another program keeps the store locked; nothing was written, try again"
        return Refused(503, error.code, message, Retry_After="1")
    if isinstance(error, StoreError):  # its message names the file
        return Refused(503, error.code, "the store cannot be read or written", Retry_After="10")
    if isinstance(error, ModelError):
        return Refused(504 if isinstance(error, ModelTimeoutError) else 502, error.code, str(error))
    return Refused(500, error.code, "a fault of the server")


def invalid(errors: Sequence[Mapping[str, Any]]) -> Refused:
    """The answer to a request that is not of the documented shape: its first fault, without quoting what was sent."""
    first = errors[0] if errors else {}
    if first.get("type") == "json_invalid":
        return Refused(400, "bad_json", "the body is not JSON")
    where = ".".join(_name(part) for part in first.get("loc", ())[1:]) or "the body"
    if first.get("type") == "extra_forbidden":
        return Refused(422, "bad_input", f"{where} is not known here")
    message = str(first.get("msg", "not valid")).removeprefix("Value error, ")
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Refused(422, "bad_input", f"{where}: {message}{more}")


def body(code: str, message: str) -> bytes:
    """The JSON of an error; plain ASCII, so that nothing a caller sent can break it."""
    line = " ".join(message.split())
    return json.dumps({"error": {"code": code, "message": line[:LONGEST]}}).encode()


def _name(part: object) -> str:
    text = str(part)
    return text if text.isascii() and text.isprintable() and len(text) <= 60 else ascii(text[:60])
