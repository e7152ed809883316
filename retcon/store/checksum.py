"""Checksums, so that damage is noticed: one over every column of a row; those of all notes add up to the store's seal.

A checksum is 64 bits of BLAKE2b, kept as SQLite's signed integer. It finds accidents, bit rot, torn files, another
program's hand; it is no signature, and whoever writes the file on purpose can write the checksum too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

_WRAP = 1 << 64
_SIGN = 1 << 63


def checksum(*values: object) -> int:
    """The checksum of the values of a row, whatever types a damaged file has for them.

    Hashed are all texts, one after the other, and a last line with the length of each text and every other value.
    """
    parts, shape = [], []
    for value in values:
        if isinstance(value, str):
            parts.append(value)
            shape.append(f"{len(value)}s ")
        else:
            shape.append(f"{_as_stored(value)!r} ")
    data = "".join((*parts, "\n", *shape)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def total(sums: Iterable[int]) -> int:
    """Checksums added up, in the range of one."""
    return (sum(sums) + _SIGN) % _WRAP - _SIGN


def _as_stored(value: object) -> object:
    """The value as SQLite gives it back: True as 1, a number of a type of its own as a plain one."""
    kind = type(value)
    if value is None or kind is int or kind is float or kind is bytes:
        return value
    return int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else value
