"""A small piece of memory that the processes of one service share: how many connections each has, what each counted.

It is a file without a name, mapped by all of them, with a slot for each. Only a slot's own process writes to it, and
what it wrote last stays when it dies; the parent then adds that to the first slot, so that no count ever goes down.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
import zlib
from typing import Any

SIZE = 2**18  # bytes of a slot; the file has holes where nothing was written
_FREE, _OPEN = 0, 1
_HEAD = struct.Struct("<IIII")  # whether it takes connections, how many it has, length and checksum of what it counted

Counted = dict[str, Any]


class Board:
    """The slots, as one process sees them; the first is the parent's."""

    def __init__(self, fd: int, slot: int = 0) -> None:
        self.fd, self.slot = fd, slot
        self._bytes = mmap.mmap(fd, os.fstat(fd).st_size)
        self.slots = len(self._bytes) // SIZE

    @classmethod
    def make(cls, slots: int) -> Board:
        """A new one with so many slots beside the first."""
        with tempfile.TemporaryFile() as file:
            file.truncate((slots + 1) * SIZE)
            return cls(os.dup(file.fileno()))

    def show(self, connections: int, *, takes: bool = True) -> None:
        """Tell the others how many connections this process has, and whether it takes further ones."""
        struct.pack_into("<II", self._bytes, self.slot * SIZE, _OPEN if takes else _FREE, connections)

    def has_more(self, connections: int) -> bool:
        """Whether another process that takes connections has fewer."""
        heads = (struct.unpack_from("<II", self._bytes, slot * SIZE) for slot in range(1, self.slots))
        others = (held for slot, (state, held) in enumerate(heads, 1) if state == _OPEN and slot != self.slot)
        return min(others, default=connections) < connections

    def publish(self, counted: Counted) -> None:
        """Let the others read what this process counted."""
        self._write(self.slot, counted)

    def others(self) -> list[Counted]:
        """What every other process published last, ended ones too."""
        found = (self._read(slot) for slot in range(self.slots) if slot != self.slot)
        return [each for each in found if each is not None]

    def take(self, slot: int) -> Counted | None:
        """What the process of a slot published last; the slot is free after."""
        found = self._read(slot)
        _HEAD.pack_into(self._bytes, slot * SIZE, _FREE, 0, 0, 0)
        return found

    def close(self) -> None:
        """Let go of it."""
        self._bytes.close()
        os.close(self.fd)

    def _write(self, slot: int, counted: Counted) -> None:
        data = json.dumps(counted).encode()
        if len(data) > SIZE - _HEAD.size:
            return  # what is there already stays
        start = slot * SIZE
        self._bytes[start + _HEAD.size : start + _HEAD.size + len(data)] = data
        struct.pack_into("<II", self._bytes, start + 8, len(data), zlib.crc32(data))

    def _read(self, slot: int) -> Counted | None:
        """What is in a slot; None where there is nothing. One that is just being written is read again."""
        for _ in range(100):
            _, _, length, checksum = _HEAD.unpack_from(self._bytes, slot * SIZE)
            if not length:
                return None
            start = slot * SIZE + _HEAD.size
            data = self._bytes[start : start + min(length, SIZE - _HEAD.size)]
            if zlib.crc32(data) == checksum:
                found: Counted = json.loads(data)
                return found
        return None  # its process was killed in the middle of writing
