"""Without an endpoint nothing leaves the machine: no connection is opened and no name is looked up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from command_line import ROOT

WATCHED = """
import sys
def watch(event, args):
    if event.startswith("socket.") and event != "socket.gethostname":
        raise SystemExit(f"the network was used: {event} {args}")
sys.addaudithook(watch)
"""
USED = """
import retcon
with retcon.Memory("a.db") as memory:
    (note,) = memory.add("I adopted a cat named Pixel.", user_id="ann", timestamp="2026-05-09")
    memory.search("cat", user_id="ann")
    assert memory.recall("When did I get my cat?", budget=64, user_id="ann").text
    memory.export("a.jsonl")
    memory.supersede(note.id, "I adopted two cats.")
    memory.delete_all(user_id="ann")
from retcon.cli import main
sys.argv = ["retcon", "demo"]
main()
"""


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RETCON_", "OPENAI_"))}
    command = [sys.executable, "-c", code]
    env = known | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_memory_and_the_command_use_no_network(tmp_path: Path) -> None:
    done = ran(WATCHED + USED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stdout


def test_the_watch_sees_a_look_up_of_a_name(tmp_path: Path) -> None:
    done = ran(WATCHED + "import socket; socket.getaddrinfo('localhost', 80)", tmp_path)
    assert done.returncode != 0
    assert "the network was used: socket.getaddrinfo" in done.stderr
