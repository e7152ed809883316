"""Measurements that can be re-run: one short script each, over the publishers' own files or generated text."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def data_file(name: str) -> Path:
    """A benchmark's file in the folder that RETCON_DATA names; ends the script in one line where it is absent."""
    folder = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / name).is_file():
        raise SystemExit(f"no {name} in {folder}: set RETCON_DATA to the folder that holds it")
    return folder / name
