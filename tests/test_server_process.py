"""The real program: it starts, stops without losing what it accepted, and survives being killed."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import complaint, document, fine, process
from conftest import raw
from serving import bearer, error, served
from test_postings import check_file
from waiting import until

from retcon import Memory


def test_it_serves_and_stops_with_exit_code_0(path: Path) -> None:
    with served(path) as running:
        assert running.http.get("/health").json()["ok"]
        note = running.http.post("/memories", json={"text": "a cat named Pixel"}).json()["results"][0]
        assert running.http.post("/recall", json={"query": "cat", "budget": 20}).json()["text"]
        assert "server" not in running.http.get("/health").headers
        running.process.send_signal(signal.SIGTERM)
        code, told = running.end()
    assert code == 0
    assert [line["event"] for line in told] == ["request"] * 4 + ["stopped"]
    with Memory(path) as memory:
        assert memory.get(note["id"]).text == "a cat named Pixel"


def refuses(url: str) -> bool:
    """Whether nobody listens there any more."""
    try:
        httpx.get(f"{url}/health", timeout=120)
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_finishes_what_was_accepted(path: Path, how: signal.Signals) -> None:
    with served(path) as running, ThreadPoolExecutor(3) as pool:
        running.http.post("/memories", json={"text": "before"})
        other = raw(path)
        other.execute("BEGIN IMMEDIATE")  # the writes wait for this
        waiting = [pool.submit(running.http.post, "/memories", json={"text": f"during {n}"}) for n in range(3)]
        until(lambda: "retcon_in_flight 3" in running.http.get("/metrics").text)
        running.process.send_signal(how)
        until(lambda: refuses(running.url))
        assert running.process.poll() is None
        other.execute("COMMIT")
        other.close()
        assert [each.result(120).status_code for each in waiting] == [200] * 3
        code, _ = running.end()
    assert code == 0
    with Memory(path) as memory:
        assert {note.text for note in memory.get_all()} == {"before", "during 0", "during 1", "during 2"}


def test_second_signal_ends_at_once(path: Path) -> None:
    with served(path) as running, ThreadPoolExecutor(1) as pool:
        running.http.post("/memories", json={"text": "before"})
        other = raw(path)
        other.execute("BEGIN IMMEDIATE")
        waiting = pool.submit(running.http.post, "/memories", json={"text": "during"})
        until(lambda: "retcon_in_flight 1" in running.http.get("/metrics").text)
        running.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(running.url))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(120) == 1  # long before the write's lock is free
        with contextlib.suppress(httpx.TransportError):
            waiting.result(120)
        other.execute("ROLLBACK")
        other.close()
    with Memory(path) as memory:
        assert [note.text for note in memory.get_all()] == ["before"]


def test_every_acknowledged_write_survives_kill_9(path: Path) -> None:
    acknowledged: dict[str, str] = {}
    for generation in range(3):
        stop = threading.Event()
        with served(path, "--log", "error") as running:

            def write(
                client: int, generation: int = generation, url: str = running.url, stop: threading.Event = stop
            ) -> None:
                with httpx.Client(base_url=url, timeout=120) as http, contextlib.suppress(httpx.TransportError):
                    for number in range(10_000):
                        if stop.is_set():
                            return
                        text = f"note {generation} {client} {number}"
                        answer = http.post("/memories", json={"text": text, "session": f"s{client}"})
                        assert answer.status_code == 200
                        acknowledged[answer.json()["results"][0]["id"]] = text

            before = len(acknowledged)
            with ThreadPoolExecutor(4) as pool:
                writers = [pool.submit(write, client) for client in range(4)]
                until(lambda before=before: len(acknowledged) > before + 40)
                running.process.kill()
                stop.set()
                for each in writers:
                    each.result(120)
        check_file(path)
        with Memory(path) as memory:
            stored = {note.id: note.text for note in memory.get_all()}
        assert acknowledged.items() <= stored.items()
        assert len(stored) <= len(acknowledged) + 4 * (generation + 1), "at most one more of each writer"


def test_repeated_request_after_a_kill_is_done_once(path: Path) -> None:
    answers = []
    for _ in range(2):
        with served(path) as running:
            answers.append(running.http.post("/memories", json={"text": "once"}, headers={"Idempotency-Key": "k"}))
            running.process.kill()
    assert answers[0].content == answers[1].content
    with Memory(path) as memory:
        assert len(memory.get_all()) == 1


def test_two_servers_on_one_store_do_a_repeated_write_once(path: Path) -> None:
    """The same Idempotency-Key at both at the same time: one does it, all say the same."""
    with served(path, "--log", "error") as one, served(path, "--log", "error") as two, ThreadPoolExecutor(8) as pool:

        def all_say(method: str, route: str, **more: Any) -> httpx.Response:
            asked = [pool.submit(each.http.request, method, route, **more) for each in (one, two) * 4]
            answers = [each.result(120) for each in asked]
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
            return answers[0]

        for number in range(5):
            body = {"text": f"note {number}", "user_id": f"u{number}"}
            all_say("POST", "/memories", json=body, headers={"Idempotency-Key": f"add{number}"})
            assert one.http.get("/health").json()["notes"] == 1
            headers = {"Idempotency-Key": f"delete{number}"}
            assert all_say("DELETE", f"/memories?user_id=u{number}", headers=headers).json()["deleted"] == 1


def test_disk_that_is_full_loses_nothing_and_is_told_and_logged(path: Path) -> None:
    with served(path, "--log", "error", largest_file=300_000) as running:
        answers = [
            running.http.post(
                "/memories", json={"text": f"note {n} " + f"word{n} " * 200}, headers={"Idempotency-Key": f"k{n}"}
            )
            for n in range(40)
        ]
        kept = [answer.json()["results"][0]["id"] for answer in answers if answer.status_code == 200]
        assert 0 < len(kept) < 40
        assert {answer.status_code for answer in answers} == {200, 503}
        full = next(answer for answer in answers if answer.status_code == 503)
        assert error(full, 503) == "store"
        assert "nothing was written" in full.text
        assert running.http.post("/recall", json={"query": "note 1"}).json()["text"], "reading goes on"
        running.process.send_signal(signal.SIGTERM)
        code, told = running.end()
    assert code == 0
    assert {(line["event"], line["sqlite"]) for line in told} <= {
        ("store", "SQLITE_FULL"),
        ("store", "SQLITE_IOERR_WRITE"),
    }
    assert told
    assert str(path) not in str(told)
    with Memory(path) as memory:
        assert [note.id for note in memory.get_all()] == kept


RUDE = [
    b"\x00\xff\xfe garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" + b"\x00" * 60, b"GET /health\r\n\r\n",
    b"GET /memories/\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /memories HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"GET /memories HTTP/1.0\r\n\r\n",
    b"POST /memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n{}",
    b"POST /memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
    b"POST /memories HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
    b"POST /memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 10_000_000,
    b"GET /memories/../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /page/..%2f..%2fpyproject.toml HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"CONNECT evil.example:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
]  # fmt: skip


def test_rude_bytes_are_refused_and_the_server_goes_on(path: Path) -> None:
    with served(path, "--log", "error") as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        for rude in RUDE:
            with socket.create_connection((host, int(port)), timeout=120) as client:
                with contextlib.suppress(ConnectionError):
                    client.sendall(rude)
                assert client.recv(100).startswith(b"HTTP/1.1 4"), rude[:60]
        assert running.http.get("/health").json()["notes"] == 0


def test_keys_made_and_revoked_while_it_runs_count_at_once(db: Path) -> None:
    with served(db) as running:
        assert running.http.get("/memories").status_code == 200
        made = document("keys", "add", "--user-id", "ann", "--name", "laptop")
        assert running.http.get("/memories").status_code == 401
        assert running.http.get("/memories", headers=bearer(made["key"])).status_code == 200
        (listed,) = document("keys", "list")["results"]
        assert (listed["id"], listed["user_id"], listed["revoked_at"]) == (made["id"], "ann", None)
        assert "key" not in listed
        assert document("keys", "revoke", made["id"])["revoked_at"]
        assert running.http.get("/memories", headers=bearer(made["key"])).status_code == 401


def test_keys_file_without_a_key_serves_nothing(db: Path) -> None:
    told = complaint("serve", "--keys", "mistyped.keys")
    assert "--keys mistyped.keys: there is no key in it" in told
    assert list(db.parent.iterdir()) == []
    made = document("keys", "add", "--admin", "--keys", str(db.parent / "k"))
    with served(db, "--keys", str(db.parent / "k")) as running:
        assert running.http.get("/memories").status_code == 401
        assert running.http.get("/memories", headers=bearer(made["key"])).status_code == 200


@pytest.mark.parametrize("closed", [True, False])
def test_ready_line_says_where_there_are_no_keys(db: Path, closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(*_: object, ready: Callable[[str], None], **__: object) -> None:
        ready("http://127.0.0.1:1")

    monkeypatch.setattr("retcon.server.run.serve", at_once)
    if closed:
        document("keys", "add", "--admin")
    said = fine("serve")
    assert "at http://127.0.0.1:1" in said
    assert ("no keys: this machine only" in said) is not closed


def test_bad_use_is_one_line_and_makes_no_store(db: Path) -> None:
    assert "needs keys" in complaint("serve", "--host", "0.0.0.0")
    assert "needs keys" in complaint("serve", "--host", "")
    assert "one of the two" in complaint("keys", "add")
    assert "one of the two" in complaint("keys", "add", "--admin", "--user-id", "ann")
    assert "takes the id" in complaint("keys", "revoke")
    assert "no key has the id" in complaint("keys", "revoke", "nothing")
    assert not db.exists()
    assert list(db.parent.iterdir()) == []
    assert process("serve", "--port", "99999", cwd=db.parent).returncode == 2
