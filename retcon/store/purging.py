"""Purging: after a delete its words may still lie in the files, in the log or in unused bytes; a rewrite drops them.

SQLite zeroes what it deletes. But rows that it had moved from page to page before may have left copies in unused bytes,
and only a rewrite is sure to drop those. A rewrite holds up every writer (about a second for 100 MB), so it is no part
of a delete: the delete notes in its own transaction that a purge is due, and one purge serves all deletes before it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from retcon.errors import RetconError
from retcon.store import seal

PATIENCE = 1.0  # seconds that a purge waits for readers and writers to let it in
AFTERWARDS = 10.0  # seconds that it tries to empty the log once the file is rewritten: that work should not be lost
EVERY = 60.0  # seconds at least between two purges in the background
REST = 19  # times as long as the last purge took: so rewriting takes at most a twentieth of the time


def purge(connection: sqlite3.Connection, *, at: str, timeout: float) -> bool:
    """Whether the words of every delete so far are gone from the files; not while another connection holds them."""
    connection.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
    try:
        deletes = seal.deletes(connection)
        if not _empty_log(connection, PATIENCE):  # a rewrite under a reader would only swell the log
            return False
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute("VACUUM")
        if not _empty_log(connection, AFTERWARDS):
            return False
        seal.mark_purged(connection, deletes, at)
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")


def _empty_log(connection: sqlite3.Connection, seconds: float) -> bool:
    """Whether all of the log went into the file. While a writer does the same SQLite answers "busy" without waiting."""
    end = time.monotonic() + seconds
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


class Purger:
    """A thread that purges where a delete waits for it: at once if one was left over, then at most once in `every` s.

    It looks into the file, so it sees the deletes of other processes too.
    """

    def __init__(self, unpurged: Callable[[], int], purge: Callable[[], bool], *, every: float = EVERY) -> None:
        self._unpurged, self._purge, self._every = unpurged, purge, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retcon-purge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, once a purge that runs is done."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            started = time.monotonic()
            with suppress(RetconError):  # the next turn tries again
                if self._unpurged():
                    self._purge()
            pause = max(self._every, REST * (time.monotonic() - started))
