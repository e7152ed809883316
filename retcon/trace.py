"""Spans for OpenTelemetry, where the program that runs retcon has set it up; next to nothing where it has not.

retcon sets up nothing itself: a program that wants spans names a tracer provider first, as `opentelemetry-instrument
retcon serve` does. Attributes are numbers, flags and short names; no text of a note or a query is ever given to one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

Value = str | bool | int | float


class Span(Protocol):
    """What a span lets its block add."""

    def set_attribute(self, name: str, value: Value, /) -> Any: ...


class _Nothing:
    """A span that nobody looks at."""

    def set_attribute(self, name: str, value: Value, /) -> None: ...


_NOTHING: AbstractContextManager[Span] = nullcontext(_Nothing())


def span(
    name: str, *, caller: Mapping[str, str] | None = None, **attributes: Value | None
) -> AbstractContextManager[Span]:
    """A context in which the work counts as one span of that name; attributes that are None are left out.

    `caller` holds the headers of a request, which may name the span it belongs to. An error that leaves the block marks
    the span with its class. Its message stays out: it may quote somebody.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):  # not loaded, or not set up
        return _NOTHING
    return _trace(api, name, caller, attributes)


@contextmanager
def _trace(
    api: Any, name: str, caller: Mapping[str, str] | None, attributes: Mapping[str, Value | None]
) -> Iterator[Span]:
    options: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
    options["attributes"] = {f"retcon.{key}": value for key, value in attributes.items() if value is not None}
    if caller and "traceparent" in caller:
        from opentelemetry import propagate  # part of what is loaded already

        options["context"] = propagate.extract(caller)
    with api.get_tracer("retcon").start_as_current_span(name, **options) as current:
        try:
            yield _Named(current)
        except BaseException as error:
            current.set_attribute("error.type", type(error).__name__)
            current.set_status(api.Status(api.StatusCode.ERROR))
            raise


class _Named:
    """A span whose attributes all begin with retcon."""

    def __init__(self, current: Any) -> None:
        self._current = current

    def set_attribute(self, name: str, value: Value, /) -> None:
        self._current.set_attribute(f"retcon.{name}", value)
