"""Measurements that can be re-run: one short script each (README.md lists them), and what several of them share."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def data_file(name: str) -> Path:
    """A benchmark's file in the folder that RETCON_DATA names; ends the script in one line where it is absent."""
    folder = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / name).is_file():
        raise SystemExit(f"no {name} in {folder}: set RETCON_DATA to the folder that holds it")
    return folder / name


def pilot_file() -> Path:
    """The outcomes of the pilot, which RETCON_PILOT names; ends the script in one line where they are absent."""
    path = Path(os.environ.get("RETCON_PILOT") or ROOT.parent / "shared" / "pilot" / "outcomes.csv")
    if not path.is_file():
        raise SystemExit(f"no outcomes at {path}: set RETCON_PILOT to the file that holds them")
    return path


def out_parser(about: str | None, default: Path | None = None) -> argparse.ArgumentParser:
    """A parser with the option that all scripts have: where the result goes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=default, help="write the result there, as JSON")
    return parser


def keep(result: Any, path: Path | None, *, indent: int | None = 1) -> None:
    """Write a result the way all of them are kept, if it is to be kept; a large one without indents."""
    if path:
        path.write_text(json.dumps(result, indent=indent) + "\n", encoding="utf-8")


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a row of one cell names the rows that follow."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" + " |" * (len(head) - len(row)) for row in rows)])
