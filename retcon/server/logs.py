"""One JSON line an event on standard error. No text of a note, no query, no key, no address with either in it."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

LOGGER = logging.getLogger("retcon.server")


class JsonLines(logging.Formatter):
    """A record as one line of JSON. An exception is named with where it came from; its message may quote somebody."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line |= describe(record.exc_info[1])
        return json.dumps(line)


def event(level: int, name: str, **fields: Any) -> None:
    """Log one event with its fields."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, name, extra={"fields": fields})


def describe(error: BaseException | None) -> dict[str, Any]:
    """The class of an error and the places it went through, without its words; of SQLite's errors the name too."""
    if error is None:
        return {}
    said = getattr(error.__cause__, "sqlite_errorname", None)
    named = {"sqlite": said} if said else {}
    return {"error": type(error).__name__, **named, "at": frames(error.__traceback__)}


def frames(trace: TracebackType | None) -> list[str]:
    """The innermost places of a trace as file:line function."""
    found = traceback.extract_tb(trace)[-6:]
    return [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in found]


def to_stream(level: str = "info", stream: TextIO | None = None) -> None:
    """Send what the service and its HTTP server log to the stream, as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("retcon.server", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [] if name == "uvicorn.error" else [handler]
        logger.setLevel(level.upper() if name == "retcon.server" else max(logging.WARNING, _number(level)))
        logger.propagate = name == "uvicorn.error"


def _number(level: str) -> int:
    return int(getattr(logging, level.upper()))
