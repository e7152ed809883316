"""Every error as one JSON shape: {"error": {"code", "message"}}, one plain line, never a trace."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from retcon.errors import (
    BusyError,
    ConflictError,
    DeadlineError,
    InputError,
    ModelError,
    ModelTimeoutError,
    NotFoundError,
    RetconError,
    StoreError,
)
from retcon.grant import OutsideError
from retcon.server import logs
from retcon.serving import complaint


class Refusal(Exception):  # noqa: N818
    """A request that is answered with an error on purpose."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        self.status, self.code, self.message = status, code, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(message)


def refusal_of(error: RetconError) -> Refusal:
    """The answer to one of the library's errors. A store that fails is logged too: its caller is not told the path."""
    if isinstance(error, NotFoundError):
        return Refusal(404, error.code, str(error))
    if isinstance(error, OutsideError):
        return Refusal(403, error.code, str(error))
    if isinstance(error, InputError):
        return Refusal(422, error.code, str(error))
    if isinstance(error, ConflictError):
        return Refusal(409, error.code, str(error))
    if isinstance(error, BusyError):
        message = "another program keeps the store locked; nothing was written, try again"
        return Refusal(503, error.code, message, Retry_After="1")
    if isinstance(error, StoreError):
        logs.event(logging.ERROR, "store", **logs.describe(error))
        return Refusal(503, error.code, "the store cannot be read or written; nothing was written", Retry_After="10")
    if isinstance(error, ModelError):
        return Refusal(504 if isinstance(error, ModelTimeoutError) else 502, error.code, str(error))
    if isinstance(error, DeadlineError):
        return Refusal(504, error.code, "not done in time; nothing was written", Retry_After="1")
    return Refusal(500, error.code, "a fault of the server")


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """The answer to a request that is not of the documented shape."""
    if any(each["type"] == "json_invalid" for each in errors):
        return Refusal(400, "bad_json", "the body is not JSON")
    if any(isinstance(each.get("input"), bytes) for each in errors):  # it was not read, because of its type
        return Refusal(422, "bad_input", "send the body with Content-Type: application/json")
    return Refusal(422, "bad_input", complaint(errors, skip=1))  # the first part says: body, query or path
