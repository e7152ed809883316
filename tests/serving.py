"""How tests run the service: its app in this process, and the real program in another."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient
from waiting import LONG

from retcon import Memory
from retcon.server import Keys, Limits, create_app

ROOT = Path(__file__).parents[1]
LOCAL = "http://127.0.0.1"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextlib.contextmanager
def client(memory: Memory, *, keys: Keys | None = None, limits: Limits | None = None, **more: Any) -> Iterator[Any]:
    """A client of the app in this process; its threads have ended when the block has."""
    app = create_app(memory, keys=keys, limits=limits, **more)
    with TestClient(app, base_url=LOCAL) as opened:
        yield opened


def error(answer: httpx.Response, status: int) -> str:
    """The code of an error, which has that status and the one shape of errors."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert "\n" not in body["error"]["message"]
    assert "Traceback" not in answer.text
    return str(body["error"]["code"])


class Served:
    """`retcon serve` in a process of its own."""

    def __init__(self, db: Path | str, *options: str, largest_file: int | None = None) -> None:
        command = [sys.executable, "-W", "error", "-m", "retcon", "serve", "--db", str(db), "--port", "0", "--json"]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        if largest_file is not None:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (largest_file, largest_file))
        assert self.process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            said += line
        self.url = str(json.loads(said)["url"])
        self.http = httpx.Client(base_url=self.url, timeout=LONG)

    def end(self, seconds: float = LONG) -> tuple[int, list[dict[str, Any]]]:
        """The exit code, and what was logged."""
        self.http.close()
        _, told = self.process.communicate(timeout=seconds)
        return self.process.returncode, [json.loads(line) for line in told.splitlines()]


@contextlib.contextmanager
def served(db: Path | str, *options: str, largest_file: int | None = None) -> Iterator[Served]:
    """The program, killed at the end of the block if it still runs; its files may have `largest_file` bytes."""
    running = Served(db, *options, largest_file=largest_file)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        if running.process.stdout is not None and not running.process.stdout.closed:
            running.end()
