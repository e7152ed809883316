"""Checksums, so that damage is noticed: one over every column of a row; those of all notes add up to the store's seal.

A checksum is 64 bits of BLAKE2b, kept as SQLite's signed integer. It finds accidents, bit rot, torn files, another
program's hand; it is no signature, and whoever writes the file on purpose can write the checksum too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b

_WRAP = 1 << 64
_SIGN = 1 << 63


def checksum(*values: object) -> int:
    """The checksum of the values of a row, whatever types a damaged file has for them."""
    return int.from_bytes(blake2b(b"".join(map(_plain, values)), digest_size=8).digest(), "little", signed=True)


def total(sums: Iterable[int]) -> int:
    """Checksums added up, in the range of one."""
    return (sum(sums) + _SIGN) % _WRAP - _SIGN


def _plain(value: object) -> bytes:
    """The value with its type and length before it, so that no two rows look alike."""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(data), data)
    if value is None:
        return b"n"
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"%b%d:%b" % (b"b" if isinstance(value, bytes) else b"i", len(data), data)
