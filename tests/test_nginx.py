"""Two servers on PostgreSQL behind nginx, as in examples/nginx: they die and restart, and nothing is lost."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from clusters import Cluster, free_port
from command_line import document
from serving import ROOT, Served, bearer, served
from waiting import LONG, until

from retcon import Memory

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
CONFIG = ROOT / "examples" / "nginx" / "nginx.conf"
CLIENTS = 4
MENDED = (429, 502, 503, 504)  # what is sent again, with the same Idempotency-Key


@dataclass
class Client:
    """Adds and recalls, one after the other, each again until it is answered."""

    url: str
    user: str
    key: str
    stop: threading.Event
    written: dict[str, str] = field(default_factory=dict)  # id -> text, acknowledged
    recalled: int = 0
    mended: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        while not self.stop.is_set():
            text = f"cat {self.user} {len(self.written)}"
            headers = {"Idempotency-Key": f"add {len(self.written)}".replace(" ", "-")}
            added = self.ask("/memories", {"text": text}, headers)
            self.written[added.json()["results"][0]["id"]] = text
            assert self.ask("/recall", {"query": text, "budget": 40}, {}).json()["text"]
            self.recalled += 1

    def ask(self, route: str, body: dict[str, object], headers: dict[str, str]) -> httpx.Response:
        found: list[httpx.Response] = []

        def answered() -> bool:
            found.extend(self.try_once(route, body, headers))
            return bool(found)

        until(answered)
        return found[0]

    def try_once(self, route: str, body: dict[str, object], headers: dict[str, str]) -> list[httpx.Response]:
        try:
            answer = httpx.post(self.url + route, json=body, headers=headers | bearer(self.key), timeout=LONG)
        except httpx.TransportError as problem:
            self.mended[type(problem).__name__] += 1
            return []
        if answer.status_code in MENDED:
            self.mended[str(answer.status_code)] += 1
            return []
        assert answer.status_code == 200, answer.text
        return [answer]


@contextlib.contextmanager
def nginx(folder: Path, ports: dict[str, int]) -> Iterator[str]:
    """The URL of a real nginx with the example's configuration, on other ports."""
    config = CONFIG.read_text(encoding="utf-8")
    for given, port in ports.items():
        assert f"127.0.0.1:{given}" in config
        config = config.replace(f"127.0.0.1:{given}", f"127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(config, encoding="utf-8")
    assert NGINX is not None
    command = [NGINX, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{ports['8700']}"
            until(lambda: process.poll() is not None or answers(f"{url}/ready"))
            assert process.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(LONG)


def served_at(db: str, port: int, *options: str) -> contextlib.AbstractContextManager[Served]:
    """`retcon serve` on that port."""
    return served(db, "--port", str(port), "--drain", "0.5", "--log", "error", *options)


def _past(clients: Sequence[Client], before: Sequence[int], count: int) -> bool:
    return all(each.recalled >= then + count for each, then in zip(clients, before, strict=True))


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=LONG).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx)")
def test_two_servers_behind_nginx_lose_no_acknowledged_write_when_one_is_killed_and_the_other_restarted(
    cluster: Cluster, tmp_path: Path
) -> None:
    db, ports = cluster.url(), {given: free_port() for given in ("8700", "8701", "8702")}
    users = [f"user{number}" for number in range(CLIENTS)]
    keys = [document("keys", "add", "--user-id", user, "--db", db)["key"] for user in users]
    stop = threading.Event()

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(served_at(db, ports["8701"]))
        second = stack.enter_context(served_at(db, ports["8702"], "--workers", "2"))
        url = stack.enter_context(nginx(tmp_path, ports))
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        stack.callback(stop.set)
        all_clients = [Client(url, user, key, stop) for user, key in zip(users, keys, strict=True)]
        working = [pool.submit(each.run) for each in all_clients]

        def more(count: int = 5) -> None:
            """Wait until every client has written and recalled so many times more."""
            before = [each.recalled for each in all_clients]
            until(lambda: any(each.done() for each in working) or _past(all_clients, before, count))
            assert not any(each.done() for each in working), [each.exception() for each in working if each.done()]

        more()
        first.process.kill()
        more()
        stack.enter_context(served_at(db, ports["8701"]))
        more()
        second.process.send_signal(signal.SIGTERM)
        assert second.end()[0] == 0
        more()
        stack.enter_context(served_at(db, ports["8702"], "--workers", "2"))
        more()
        stop.set()
        for each in working:
            each.result(LONG)
    with Memory(db) as memory:
        stored = {note.id: note.text for note in memory.get_all()}
    cluster.drop(db)
    assert stored == {note: text for each in all_clients for note, text in each.written.items()}
