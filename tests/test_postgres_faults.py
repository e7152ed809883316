"""A PostgreSQL server that is killed, or out of reach: nothing that was acknowledged is lost, and nothing hangs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import clusters
import pytest
from clusters import Cluster
from waiting import until

from retcon import Memory, Note, Scope
from retcon.errors import StoreError
from retcon.store.postgres import connections

WRITERS = 16


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A server of this test alone, which writes every commit to the disk."""
    if clusters.binaries() is None:
        pytest.skip(clusters.REASON)
    with clusters.started(fsync="on", synchronous_commit="on", full_page_writes="on") as running:
        yield running


def test_a_killed_server_loses_nothing_that_16_writers_were_told_is_there(own: Cluster) -> None:
    url = own.url(pool_size=WRITERS, timeout=60)
    acknowledged: list[str] = []
    with Memory(url) as memory, ThreadPoolExecutor(WRITERS) as pool:

        def write(number: int) -> None:
            for turn in range(12):
                note_id = f"{number}-{turn}"
                memory.add(f"writer {number} turn {turn}", id=note_id, user_id=f"u{number % 5}", session=f"s{number}")
                acknowledged.append(note_id)

        writing = [pool.submit(write, number) for number in range(WRITERS)]
        for share in (30, 90):
            until(lambda least=share: len(acknowledged) >= least)
            own.kill()
            own.start()
        for each in writing:
            each.result()  # by itself: no writer was told of an error
        assert sorted(note.id for note in memory.get_all()) == sorted(acknowledged)
        assert memory.check().problems == ()
    with Memory(url) as again:
        assert again.store.count(Scope()) == WRITERS * 12


def test_a_delete_that_the_server_did_not_confirm_says_so(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(own.url(timeout=60)) as memory:
        memory.add(["one", "two"], user_id="ann")
        first, second = (note.id for note in memory.get_all())
        usual = connections.Session.execute

        killed = threading.Event()

        def execute(self: connections.Session, query: Any, *args: Any, **options: Any) -> Any:
            if query == "COMMIT" and not killed.is_set():
                killed.set()
                own.kill()
            return usual(self, query, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(connections.Session, "execute", execute)
            with pytest.raises(StoreError, match="whether the last write counts is not known"):
                memory.delete(first)
        own.start()
        assert second in [note.id for note in memory.get_all()]
        assert memory.check().ok


def test_a_server_that_is_gone_is_told_within_the_time_out_and_used_again_when_it_is_back(own: Cluster) -> None:
    with Memory(own.url(timeout=1)) as memory:
        memory.add("a cat", id="a")
        own.kill()
        with pytest.raises(StoreError, match="connection"):
            memory.get("a")
        own.start()
        until(lambda: _is_there(memory))
        assert memory.add("a dog", id="b")


def _is_there(memory: Memory) -> bool:
    with suppress(StoreError):
        return memory.get("a").text.startswith("a cat")
    return False


class Proxy:
    """A way to the server that can be made to swallow all that is sent."""

    def __init__(self, port: int) -> None:
        self.port, self.swallows, self.dribbles = port, threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def own_port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
                self.sockets += [client, server]
                for way in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if answers and self.dribbles.is_set():
                    self._dribble(data, other)
                elif not self.swallows.is_set():
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def _dribble(self, data: bytes, other: socket.socket) -> None:
        """Pass an answer on byte by byte, slowly, as long as that is asked for."""
        for at in range(len(data)):
            other.sendall(data[at : at + 1])
            if not self.dribbles.is_set():
                other.sendall(data[at + 1 :])
                return
            time.sleep(0.02)

    def close(self) -> None:
        for each in (self.listener, *self.sockets):
            each.close()


@contextmanager
def proxied(cluster: Cluster) -> Iterator[Proxy]:
    proxy = Proxy(cluster.port)
    try:
        yield proxy
    finally:
        proxy.close()


def test_a_network_that_swallows_everything_is_no_hang(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.2)
    with proxied(cluster) as proxy:
        url = cluster.url(tcp=True, timeout=0.5).replace(f":{cluster.port}/", f":{proxy.own_port}/")
        with Memory(url) as memory:
            memory.add("a cat", id="a")

            def notes() -> Iterator[Note]:
                proxy.swallows.set()
                yield Note("b", "never there")

            with pytest.raises(StoreError, match=r"lost|no connection|did not answer"):
                memory.store.add(notes())
            with pytest.raises(StoreError):
                memory.get("a")
            proxy.swallows.clear()
            until(lambda: _is_there(memory))
            assert [note.id for note in memory.get_all()] == ["a"]


def test_an_answer_that_comes_byte_by_byte_is_no_hang(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.2)
    with proxied(cluster) as proxy:
        url = cluster.url(tcp=True, timeout=0.5).replace(f":{cluster.port}/", f":{proxy.own_port}/")
        with Memory(url) as memory:
            memory.add("a cat " * 5000, id="a")  # which would take ten minutes

            def read() -> None:
                with memory.store._read() as connection:
                    proxy.dribbles.set()
                    connection.execute("SELECT text FROM note")

            with pytest.raises(StoreError, match=r"lost|no connection|did not answer"):
                read()
            proxy.dribbles.clear()
            until(lambda: _is_there(memory))
            assert memory.check().ok
