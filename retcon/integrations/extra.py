"""A framework that is not installed fails once, with its install line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retcon.errors import MissingExtraError


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """A block of imports; where one of them is missing, the error says which extra of ours brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, extra) from error
