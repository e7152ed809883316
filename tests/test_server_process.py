"""The real program: it starts, stops without losing what it accepted, and survives being killed."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from command_line import complaint, document, process
from conftest import raw
from serving import bearer, served, until
from test_postings import check_file

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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_finishes_what_was_accepted(path: Path, how: signal.Signals) -> None:
    with served(path) as running, ThreadPoolExecutor(3) as pool:
        running.http.post("/memories", json={"text": "before"})
        other = raw(path)
        other.execute("BEGIN IMMEDIATE")  # the writes wait for this
        waiting = [pool.submit(running.http.post, "/memories", json={"text": f"during {n}"}) for n in range(3)]
        until(lambda: "retcon_in_flight 3" in running.http.get("/metrics").text)
        running.process.send_signal(how)
        time.sleep(0.5)
        with pytest.raises(httpx.TransportError), httpx.Client(base_url=running.url, timeout=5) as late:
            late.get("/health")
        assert running.process.poll() is None
        other.execute("COMMIT")
        other.close()
        assert [each.result(20).status_code for each in waiting] == [200] * 3
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
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(5) == 1
        with contextlib.suppress(httpx.TransportError):
            waiting.result(5)
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
                with httpx.Client(base_url=url, timeout=10) as http, contextlib.suppress(httpx.TransportError):
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
                until(lambda before=before: len(acknowledged) > before + 40, 20)
                running.process.kill()
                stop.set()
                for each in writers:
                    each.result(20)
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
