"""Where the files lie: only their owner reads them, and a file that was moved or replaced takes no writes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import files_of

from retcon import Memory
from retcon.errors import StoreError
from retcon.lab.reply_cache import ReplyCache


@pytest.fixture(autouse=True)
def _open_to_others() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_their_owner_may_read_the_files_of_a_store(memory: Memory, path: Path, tmp_path: Path) -> None:
    memory.add("a cat")
    assert [mode(file) for file in files_of(path)] == [0o600] * 3
    memory.export(tmp_path / "out.jsonl")
    assert mode(tmp_path / "out.jsonl") == 0o600
    cache = ReplyCache(tmp_path / "replies.db")
    assert mode(tmp_path / "replies.db") == 0o600
    cache.close()


def test_a_store_that_an_older_version_made_is_closed_to_others_when_it_is_brought_up_to_date(path: Path) -> None:
    shutil.copyfile(Path(__file__).parent / "stores" / "schema-2.sqlite", path)
    path.chmod(0o644)
    with Memory(path):
        assert [mode(file) for file in files_of(path)] == [0o600] * 3


def test_rights_that_its_owner_gave_stay(memory: Memory, path: Path) -> None:
    memory.add("a cat")
    memory.close()
    path.chmod(0o640)
    with Memory(path) as again:
        again.add("a dog")
    assert mode(path) == 0o640


def test_a_program_may_go_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Memory("notes.db") as memory:
        memory.add("a cat", id="a")
        monkeypatch.chdir(tmp_path / "elsewhere")
        memory.add("a dog", id="b")
        with ThreadPoolExecutor(1) as pool:  # another connection
            pool.submit(memory.add, "a bird", id="c").result()
        assert [note.id for note in memory.get_all()] == ["a", "b", "c"]
        memory.delete("a")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_store_may_be_opened_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "notes.db")
    with Memory(link) as memory:
        memory.add("a cat", id="a")
        memory.add("a dog", id="b")
        other = tmp_path / "other.db"
        with Memory(other) as apart:
            apart.add("another store's note", id="o")
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(StoreError, match="moved, deleted or replaced"):
            memory.add("a bird")
    with Memory(tmp_path / "real" / "notes.db") as memory:
        assert [note.id for note in memory.get_all()] == ["a", "b"]


def unlinked(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def swapped(path: Path) -> None:
    with Memory(path.with_name("other.db")) as other:
        other.add("another store's note", id="o")
    os.replace(path.with_name("other.db"), path)


def without_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


@pytest.mark.parametrize("accident", [unlinked, moved, swapped, without_log])
def test_no_write_is_acknowledged_once_the_file_is_gone(
    memory: Memory, path: Path, accident: Callable[[Path], None]
) -> None:
    memory.add("a cat", id="a")
    accident(path)
    for write in (lambda: memory.add("a dog"), lambda: memory.delete("a"), lambda: memory.supersede("a", "a bird")):
        with pytest.raises(StoreError, match="moved, deleted or replaced while it was open; nothing was written"):
            write()
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        memory.purge()
    memory.close()
    expected = ["o"] if accident is swapped else ["a"] if accident is without_log else []
    with Memory(path) as there:  # what is at the path now is whole, with nothing of the other file's log in it
        assert [note.id for note in there.get_all()] == expected
        assert there.check().ok


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_was_moved_has_every_note_that_was_acknowledged(memory: Memory, path: Path, written: bool) -> None:
    memory.add("a cat", id="a")
    moved(path)
    if written:
        with pytest.raises(StoreError):
            memory.add("a dog")
    memory.close()
    with Memory(path.with_name("elsewhere.db")) as there:
        assert [note.id for note in there.get_all()] == ["a"]
        assert there.check().ok


def test_another_thread_does_not_open_the_file_that_came_in_its_place(memory: Memory, path: Path) -> None:
    memory.add("a cat", id="a")
    swapped(path)
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        list(memory.lines())  # a listing has a connection of its own
    memory.close()
    with Memory(path) as there:
        assert [note.id for note in there.get_all()] == ["o"]
