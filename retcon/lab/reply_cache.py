"""A model's replies in a file of their own, for offline work whose prompts hold no notes of a user."""

from __future__ import annotations

import os
from collections.abc import Sequence

from retcon.store import Kept, ReplyStats
from retcon.store.sqlite import SqliteStore


class ReplyCache:
    """Replies in a SQLite file of their own, safe for several processes at once, at most `max_bytes` of them."""

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = 2**30) -> None:
        self._store, self.max_bytes = SqliteStore(path), max_bytes

    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]:
        """The kept replies with these keys."""
        return self._store.get_replies(keys)

    def put_replies(self, given: Sequence[Kept], sources: Sequence[str] = ()) -> int:
        """How many replies were new and are kept."""
        return self._store.put_replies(given, None, most_bytes=self.max_bytes)

    def stats(self) -> ReplyStats:
        """Entries and their bytes, hits and misses."""
        return self._store.reply_stats()

    def clear(self) -> int:
        """How many replies went: all of them."""
        gone = self._store.clear_replies()
        self._store.purge()
        return gone

    def close(self) -> None:
        """Close the file."""
        self._store.close()
