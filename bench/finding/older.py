"""The code of an older commit, asked in a process of its own: what it found, measured in the same run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.finding.ours import Answer, Ours
from retcon.note import Note

COMMIT = "9b954fe"
SCRIPT = ROOT / "bench" / "finding" / "ours.py"


def unpack(folder: Path) -> bool:
    """Whether the package of that commit now lies in the folder; False where its history is not at hand."""
    try:
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=tar", COMMIT, "retcon"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return True


class Older:
    """A memory of the package in the folder."""

    ways: tuple[str, ...] = Ours.ways

    def __init__(self, notes: Sequence[Note], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(folder)},
        )  # fmt: skip
        self._send({"notes": [note.to_dict() for note in notes]})

    def find(self, query: str, budgets: Sequence[int]) -> Answer:
        """What it has for the query."""
        self._send({"query": query, "budgets": list(budgets)})
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process with the code of {COMMIT} ended with status {self._process.wait()}")
        return Answer(**json.loads(line))

    def _send(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
