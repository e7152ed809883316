"""What each rival has, and where that was seen: `features.json` as tables of two pages of the docs.

A cell says what was seen and where: a file of the version that its column names, a file of a repository at a commit, or
a run. "not seen" names where it was looked for; it is no proof that there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import grid

FILE = Path(__file__).with_name("features.json")


def load() -> Any:
    """Systems by name, and a row for each feature."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def features_table(found: Mapping[str, Any]) -> str:
    """A line for each feature, a column for each system."""
    head = ["", *(each["title"] for each in found["systems"].values())]
    rows = [[row["feature"], *(row["cells"][name]["says"] for name in found["systems"])] for row in found["rows"]]
    return grid(head, rows)


def versions_table(found: Mapping[str, Any]) -> str:
    """The version of each system that was looked at."""
    return grid(["system", "version"], [[each["title"], each["version"]] for each in found["systems"].values()])


def evidence_table(found: Mapping[str, Any]) -> str:
    """Where each cell was seen."""
    titles = {name: each["title"] for name, each in found["systems"].items()}
    rows = [
        [row["feature"] if place == 0 else "", titles[name], cell["seen"]]
        for row in found["rows"]
        for place, (name, cell) in enumerate(row["cells"].items())
    ]
    return grid(["feature", "system", "where it was seen"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "rivals-features": lambda: features_table(load()),
    "rivals-versions": lambda: versions_table(load()),
    "rivals-evidence": lambda: evidence_table(load()),
}
