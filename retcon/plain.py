"""Plain JSON values -> what a router's file may hold, or an error that shows what stands there instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retcon.errors import quote


def read_number(value: Any) -> float:
    """The value as a float; true and false are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{quote(value, 40)} is not a number")
    return float(value)


def read_flag(value: Any) -> bool:
    """The value, if it is true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def read_list(value: Any) -> Sequence[Any]:
    """The value, if it is a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{quote(value, 40)} is not a list")
    return value


def read_budget(value: Any) -> int:
    """A budget, also where it is written as the key of an object."""
    whole = int(value) if isinstance(value, str) and len(value) < 20 else value
    if type(whole) is not int or (isinstance(value, str) and str(whole) != value):
        raise TypeError(f"{quote(value, 40)} is not a budget")
    return whole


def read_price(value: Any) -> float:
    """A price, also where it is written as the key of an object."""
    return float(value) if isinstance(value, str) and len(value) < 20 else read_number(value)


def is_label(value: Any) -> bool:
    """Whether the value is a name of 1 to 100 printable characters."""
    return isinstance(value, str) and 0 < len(value) <= 100 and value.isprintable()
