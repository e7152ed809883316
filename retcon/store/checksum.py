"""Checksums, so that damage is noticed: one over every column of a row; those of all notes add up to the store's seal.

A checksum is 64 bits of BLAKE2b, kept as SQLite's signed integer. It finds accidents, bit rot, torn files, another
program's hand; it is no signature, and whoever writes the file on purpose can write the checksum too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

_WRAP = 1 << 64
_SIGN = 1 << 63
_PLAIN = frozenset((int, float, bytes, type(None)))  # types that come back from SQLite as they went in


def checksum(*values: object) -> int:
    """The checksum of the values of a row, whatever types a damaged file has for them.

    Hashed are all texts, one after the other, and a last line with the length of each text and every other value.
    """
    texts = [value for value in values if isinstance(value, str)]
    shape = [
        f"{len(value)}s" if type(value) is str else repr(value) if type(value) in _PLAIN else _shape(value)
        for value in values
    ]
    data = f"{''.join(texts)}\n{' '.join(shape)} ".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def total(sums: Iterable[int]) -> int:
    """Checksums added up, in the range of one."""
    return (sum(sums) + _SIGN) % _WRAP - _SIGN


def _shape(value: object) -> str:
    """A value of any other type as SQLite gives it back: True as 1, a number of a type of its own as a plain one."""
    if isinstance(value, str):
        return f"{len(value)}s"
    return repr(int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else value)
