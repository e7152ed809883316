"""Several processes and threads on one store: nothing is lost or doubled, and no lock error reaches anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import raw
from test_postings import check_file, expected_index, stored_index
from waiting import until

from retcon import Memory, Note
from retcon.errors import BusyError, StoreError
from retcon.store import connections
from retcon.store.sqlite import SqliteStore

pytestmark = pytest.mark.both_stores

PROCESSES = 8
ROOT = Path(__file__).resolve().parent.parent


def run_at_once(script: str, path: Path, count: int = PROCESSES) -> list[str]:
    """What each of several processes printed. They begin at one moment, none may fail, none may write to stderr."""
    code = HARNESS.format(path=str(path), count=count, script=textwrap.indent(textwrap.dedent(script), "        "))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [str(out) for out in json.loads(done.stdout)]


# One process pays for the import, then forks; a pipe that closes starts all children together.
HARNESS = """
import io, json, os, random, sys, time, traceback
from retcon import Memory
path = {path!r}
waiting, starting = os.pipe()

def work(me, out):
    os.close(starting)
    os.read(waiting, 1)
    sys.stdout = io.StringIO()
    try:
{script}
        os.write(out, sys.stdout.getvalue().encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

outs, children = [], []
for me in range({count}):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        work(me, writing)
    os.close(writing)
    outs.append(reading)
    children.append(child)
os.close(starting)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(json.dumps([os.read(out, 65536).decode() for out in outs]))
sys.exit(any(codes))
"""


def check_all(path: Path, count: int) -> None:
    check_file(path)
    with Memory(path) as memory:
        notes = memory.get_all(superseded=True)
        assert len({note.id for note in notes}) == len(notes) == count
        assert stored_index(memory, path) == expected_index(notes)
        query = "SELECT scope, count(*), count(DISTINCT slot), max(slot) + 1 FROM note GROUP BY scope"
        with memory.store._read() as connection:
            slots = connection.execute(query).fetchall()
        assert all(notes == distinct == last for _, notes, distinct, last in slots)


def test_eight_processes_add_and_recall_at_once_on_a_new_file(path: Path) -> None:
    script = """
    memory = Memory(path)
    for i in range(12):
        memory.add(f"process {me} wrote about zebra{me}x{i}", id=f"{me}-{i}", user_id="ann", session=f"s{me}")
        memory.add([f"listed {me} {i} {j} dogs" for j in range(5)], user_id=f"u{me % 3}")
        found = memory.recall(f"who wrote about zebra{me}x{i}?", budget=200, user_id="ann")
        assert found.tokens <= 200 and f"process {me} wrote about zebra{me}x{i}" in found.text, found.text
        assert memory.get(f"{me}-{i}").text.startswith(f"process {me}")
    memory.close()
    """
    run_at_once(script, path)
    check_all(path, PROCESSES * 12 * 6)


@pytest.mark.sqlite
def test_a_new_file_opened_by_eight_processes_at_once_gets_one_schema(path: Path) -> None:
    script = """
    start = time.time()
    for k in range(8):
        while time.time() < start + 0.1 * k:
            pass
        Memory(f"{path}{k}").close()
    """
    run_at_once(script, path)
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    with Memory(path) as alone, alone.store._read() as connection:
        expected = connection.execute(schema).fetchall()
    for k in range(8):
        check_file(Path(f"{path}{k}"))
        connection = raw(Path(f"{path}{k}"))
        assert connection.execute(schema).fetchall() == expected
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()


def test_processes_that_delete_and_supersede_leave_a_sound_index(path: Path) -> None:
    script = """
    memory, rng = Memory(path), random.Random(me)
    for i in range(10):
        memory.add([f"turn {me} {i} {j} cat" for j in range(4)], user_id="ann", session="one")
        own = memory.add(f"mine {me} {i}", id=f"{me}-{i}", user_id="ann", session="one")
        if i % 3 == 1:
            memory.supersede(f"{me}-{i}", f"corrected {me} {i}", new_id=f"{me}-{i}-new")
        if i % 3 == 2:
            memory.delete(f"{me}-{i}")
        memory.search("cat turn corrected", user_id="ann")
    memory.close()
    """
    run_at_once(script, path, 4)
    check_file(path)
    with Memory(path) as memory:
        notes = memory.get_all(superseded=True)
        assert len(notes) == 4 * (10 * 5 + 3 - 3)
        assert stored_index(memory, path) == expected_index(notes)


@pytest.mark.sqlite
def test_a_long_write_elsewhere_delays_no_reader_and_no_newcomer(path: Path) -> None:
    with Memory(path) as memory:
        memory.add("Pixel is a cat", user_id="ann")
        writer = raw(path)
        writer.execute("BEGIN IMMEDIATE")
        with Memory(path) as newcomer:
            assert newcomer.recall("cat", user_id="ann").text
        assert memory.recall("cat", user_id="ann").text
        writer.execute("ROLLBACK")
        writer.close()


@pytest.mark.sqlite
def test_a_writer_that_waits_past_the_time_out_is_told(path: Path) -> None:
    store = SqliteStore(path, timeout=0.1)
    writer = raw(path)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(BusyError, match="another process kept the store locked"):
        store.add([])
    writer.execute("ROLLBACK")
    writer.close()
    assert store.add([]) == []
    store.close()


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_eight_threads_share_one_memory(path: Path, where: str) -> None:
    with Memory(path if where == "file" else where) as memory:

        def work(me: int) -> None:
            for i in range(10):
                memory.add(f"thread {me} wrote zebra{me}x{i}", id=f"{me}-{i}", user_id="ann", session=f"s{me}")
                assert f"thread {me} " in memory.recall(f"zebra{me}x{i}", budget=300, user_id="ann").text
                assert memory.get(f"{me}-{i}").session == f"s{me}"

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert len(memory.get_all(user_id="ann")) == 80
        hits = memory.search("thread", user_id="ann", top_k=200)
        assert len(hits) == 80
    if where == "file":
        check_all(path, 80)


@pytest.mark.sqlite
def test_connections_of_ended_threads_are_closed(memory: Memory) -> None:
    for _ in range(20):
        thread = threading.Thread(target=lambda: memory.add("a note"))
        thread.start()
        thread.join()
    assert len(memory.store._connections._by_thread) <= 2


def test_close_waits_for_a_thread_that_is_writing_and_others_are_refused(path: Path) -> None:
    memory = Memory(path)
    began, errors = threading.Event(), []

    def slow() -> Iterator[Note]:
        began.set()
        until(lambda: memory.store._connections._closed)  # close has been called, and waits
        for i in range(5):
            yield Note(f"n{i}", f"slow {i}")

    def late() -> None:
        began.wait()
        while True:
            try:
                memory.search("slow")
            except StoreError as error:
                errors.append(str(error))
                return
            time.sleep(0.002)

    threads = [threading.Thread(target=lambda: memory.store.add(slow())), threading.Thread(target=late)]
    for thread in threads:
        thread.start()
    began.wait()
    memory.close()
    for thread in threads:
        thread.join()
    assert errors == ["the memory is closed"]
    with Memory(path) as again:
        assert len(again.get_all()) == 5


def test_a_half_read_listing_stands_in_nobodys_way(memory: Memory) -> None:
    memory.add(["one", "two", "three"], user_id="ann")
    lines = memory.lines()
    assert '"one"' in next(lines)
    memory.add("four", user_id="ann")
    memory.supersede(memory.get_all()[0].id, "one, corrected")
    with ThreadPoolExecutor(1) as other:
        assert '"two"' in other.submit(next, lines).result()
    assert len(list(lines)) == 1  # what was there when it began
    assert len(memory.get_all()) == 4


# -- fork --------------------------------------------------------------------------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_a_fork_after_open_loses_nothing_whoever_closes_first(path: Path) -> None:
    script = """
    memory = Memory(path)
    memory.add("before", id="p0")
    turns = [os.pipe() for _ in range(4)]
    def tell(i): os.write(turns[i][1], b".")
    def wait(i): os.read(turns[i][0], 1)
    child = os.fork()
    if not child:
        memory.add("child one", id="c1")
        tell(0)
        wait(1)                            # the parent has closed
        memory.add("child two", id="c2")
        tell(2)
        wait(3)                            # a third has opened, written and closed
        memory.add("child three", id="c3")
        assert len(memory.get_all()) == 6, memory.get_all()
        os._exit(0)
    wait(0)
    memory.add("parent", id="p1")
    memory.close()
    tell(1)
    wait(2)
    with Memory(path) as third:
        third.add("third", id="t1")
    tell(3)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    """
    assert run_at_once(script, path, 1) == ["0\n"]
    with Memory(path) as memory:
        assert [note.id for note in memory.get_all()] == ["p0", "c1", "p1", "c2", "t1", "c3"]
    check_file(path)


@needs_fork
def test_many_children_of_one_open_memory_all_write(path: Path) -> None:
    script = """
    memory = Memory(path)
    memory.add("before", id="p0", user_id="ann")
    children = []
    for me in range(6):
        child = os.fork()
        if not child:
            for i in range(10):
                memory.add(f"child {me} {i}", id=f"{me}-{i}", user_id="ann")
                assert memory.search(f"child {me} {i}", user_id="ann")
            os._exit(0)
        children.append(child)
    for i in range(10):
        memory.add(f"parent {i}", id=f"p-{i}", user_id="ann")
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    memory.close()
    """
    assert run_at_once(script, path, 1) == [f"{[0] * 6}\n"]
    check_all(path, 71)


@needs_fork
def test_children_of_a_process_whose_threads_write_all_write_too(path: Path) -> None:
    script = """
    import threading
    memory, stop = Memory(path), threading.Event()
    def write(number):
        turn = 0
        while not stop.is_set():
            memory.add(f"thread {number} turn {turn}", user_id="parent")
            turn += 1
    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(10):
        child = os.fork()
        if not child:
            try:
                memory.add(f"child {number}", id=f"c{number}")
                os._exit(0)
            except BaseException:
                os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    memory.close()
    print(codes)
    """
    assert run_at_once(script, path, 1) == [f"{[0] * 10}\n"]
    with Memory(path) as memory:
        assert len([note for note in memory.get_all() if note.user_id is None]) == 10
        assert memory.check().ok


@needs_fork
def test_a_forked_child_has_its_own_copy_of_a_memory_without_a_file() -> None:
    with Memory(":memory:") as memory:
        memory.add("before", id="p0")
        child = os.fork()
        if not child:
            memory.add("child", id="c1")
            os._exit(len(memory.get_all()))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 2
        assert len(memory.get_all()) == 1


@needs_fork
def test_a_fork_inside_a_read_keeps_the_parents_view(memory: Memory) -> None:
    memory.add("one", user_id="ann")
    with memory.store._read() as connection:
        child = os.fork()
        if not child:
            os._exit(len(memory.get_all()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)
    assert connections._PARENTS == []
