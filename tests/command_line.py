"""How tests run the command line: in this process, as a program, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from retcon.cli import app

ROOT = Path(__file__).parents[1]
HOSTILE = "a\x00b \x1b[31m red \x1b[0m \x9b31m \x1b]0;title\x07 \r end"


def run(*args: str, input: str | bytes | None = None) -> Result:  # noqa: A002
    return CliRunner().invoke(app, list(args), input=input)


def fine(*args: str, input: str | bytes | None = None) -> str:  # noqa: A002
    """Standard output of a run that must succeed."""
    result = run(*args, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*args: str, input: str | None = None) -> Any:  # noqa: A002
    """The one JSON document of a run that must succeed."""
    return json.loads(fine(*args, "--json", input=input))


def complaint(*args: str, input: str | bytes | None = None) -> str:  # noqa: A002
    """The one line of a run that must fail with exit code 2, nothing on standard output."""
    result = run(*args, input=input)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return one_line(result.stderr)


def one_line(stderr: str) -> str:
    """The one line that an error is told in, without the program's name."""
    assert stderr.startswith("retcon: ")
    assert stderr.count("\n") == 1
    assert stderr.endswith("\n")
    assert "Traceback" not in stderr
    return stderr.removeprefix("retcon: ").strip()


def process(*args: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The real program, with its own streams."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    command = [sys.executable, "-m", "retcon", *args]
    return subprocess.run(command, capture_output=True, timeout=3000, env=env, check=False, **options)


def document_of_broken(*args: str) -> Any:
    """What doctor says, in JSON, where something is broken."""
    result = run(*args, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["ok"]
    assert found["broken"]
    return found


def at_terminal(args: Sequence[str], typed: str = "") -> tuple[str, int]:
    """What a person sees who runs the program in a terminal of 80 columns, and its exit code."""
    ours, theirs = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "80"}
    command = [sys.executable, "-m", "retcon", *args]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b"".join(_chunks(ours, child))
    os.close(ours)
    return shown.decode(), child.wait(timeout=300)


def _chunks(terminal: int, child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            if select.select([terminal], [], [], 0.1)[0]:
                if not (chunk := os.read(terminal, 65536)):
                    return
                yield chunk
            elif child.poll() is not None:
                return
        except OSError:  # Linux: the other side is closed
            return
    child.kill()
    raise AssertionError("the program did not end")
