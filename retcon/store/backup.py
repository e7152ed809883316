"""Backup and restore by SQLite's online backup: whole while others read and write, checked before it counts.

A backup is one file that can be opened like any store. It holds no deleted words. It appears under its name only when
it is complete, checked and on the disk.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from retcon.errors import BusyError, InputError, SchemaError, StoreError
from retcon.store import seal
from retcon.store.checking import Check, check
from retcon.store.connections import PRIVATE, TIMEOUT, connect, translate_errors

PAGES = 2048  # copied between two calls of the progress function: 8 MiB
LEFT_OVER = 86_400  # seconds after which a draft is taken to be nobody's

Progress = Callable[[int, int], None]  # pages copied, pages in all


def backup(
    path: str, target: str | os.PathLike[str], *, replace: bool = False, progress: Progress | None = None
) -> Check:
    """The check of a copy of the store, which is at `target` now; a store that is not sound is not copied over one."""
    goal = Path(target)
    _refuse(path, goal, replace=replace)
    if any(os.path.lexists(f"{goal}{end}") for end in ("-wal", "-shm", "-journal")):
        raise InputError(f"{goal} is a store in use, or one whose program was killed: close it, or name another file")
    with _draft(goal) as draft:
        with translate_errors(path), _open_store(path) as source:
            found = _copy(source, draft, progress)
        flush(draft)
        os.replace(draft, goal)
    flush(goal.parent)
    return found


def restore(
    source: str | os.PathLike[str], path: str, *, replace: bool = False, progress: Progress | None = None
) -> Check:
    """The check of the store at `path`, which now holds what the backup holds; what it held before is gone.

    The backup is copied, brought to the newest schema and checked first. Then it goes into the store in one
    transaction, so that a store that is in use meanwhile stays whole.
    """
    origin, goal = Path(source), Path(path)
    if not origin.is_file():
        raise InputError(f"{origin}: there is no such backup")
    _refuse(str(origin), goal, replace=replace)
    with _draft(goal) as draft:
        with translate_errors(str(origin)), contextlib.closing(_open_copy(origin)) as copied:
            _copy(copied, draft, progress)
        _set_aside_if_unreadable(path)
        with translate_errors(path), _open_store(str(draft)) as sound, _open_store(path) as store:
            sound.backup(store, pages=-1, progress=_give_up_after(time.monotonic() + TIMEOUT, path))
            return check(store, path)


def _give_up_after(end: float, path: str) -> Callable[[int, int, int], None]:
    """What a copy calls after each try to get in: an error once it has waited too long."""

    def look(status: int, _: int, __: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > end:
            raise BusyError(f"{path}: another process kept the store locked; try again")

    return look


def _set_aside_if_unreadable(path: str) -> None:
    """Rename a file that cannot be opened as a store, so that a backup can take its place and nothing is lost."""
    try:
        with translate_errors(path), _open_store(path):
            return
    except (BusyError, SchemaError):
        raise
    except StoreError:
        for end in ("", "-wal", "-shm", "-journal"):
            if os.path.lexists(path + end):
                os.replace(path + end, f"{path}.damaged{end}")


def _open_store(path: str) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(connect(path, TIMEOUT))


def _open_copy(origin: Path) -> sqlite3.Connection:
    """The backup, only to be read; its schema may be older."""
    connection = sqlite3.connect(origin.resolve().as_uri() + "?mode=ro", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _copy(source: sqlite3.Connection, draft: Path, progress: Progress | None) -> Check:
    """The check of the draft, once it holds what the source does, with no deleted words and in one file."""

    def report(_: int, left: int, pages: int) -> None:
        if progress is not None:
            progress(pages - left, pages)

    source.execute("BEGIN")
    source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # one view: a writer beside it would start it anew
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            source.backup(copy, pages=PAGES, progress=report)
    finally:
        source.execute("ROLLBACK")
    with _open_store(str(draft)) as copy:
        found = check(copy, str(draft))
        if not found.ok:
            problem = found.problems[0]
            raise StoreError(f"the store is not sound, so it was not copied: {problem.what}; {problem.advice}")
        if seal.count_unpurged(copy):
            copy.execute("VACUUM")
            seal.mark_purged(copy, seal.deletes(copy), "")
        copy.execute("PRAGMA journal_mode = DELETE")
    return found


def _refuse(path: str, goal: Path, *, replace: bool) -> None:
    if not os.path.isfile(path):
        raise InputError(f"{path}: there is no such store")
    if any(os.path.realpath(goal) == os.path.realpath(path + end) for end in ("", "-wal", "-shm")):
        raise InputError(f"{goal} is the store itself: name another file")
    if goal.is_dir() or not goal.parent.is_dir():
        raise InputError(f"{goal}: name a file in a folder that exists")
    if os.path.lexists(goal) and not replace:
        raise InputError(f"{goal} exists: replace it with --replace")


@contextlib.contextmanager
def _draft(goal: Path) -> Iterator[Path]:
    """A new file beside the goal that only its owner may read, gone after the block unless it was moved."""
    for left in goal.parent.glob(f"{glob.escape(goal.name)}.????????.part*"):  # by one that was killed
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_OVER:
                left.unlink()
    draft = goal.with_name(f"{goal.name}.{os.urandom(4).hex()}.part")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        yield draft
    except OSError as error:
        raise StoreError(f"{goal}: cannot be written: {error.strerror or error}") from error
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until the file, or the folder's list of names, is on the disk."""
    with contextlib.suppress(OSError):  # some systems do not open folders
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
