"""The table of what each rival has: every cell says where it was seen."""

from __future__ import annotations

import re
from itertools import product

import pytest

from bench import ROOT
from bench.rivals import features

FOUND = features.load()
CELLS = [(row["feature"], name, row["cells"].get(name)) for row, name in product(FOUND["rows"], FOUND["systems"])]
VERSION = re.compile(r"\d+\.\d+|\b[0-9a-f]{7,}\b")
OURS = re.compile(r"\b(?:docs|tests|retcon|clients)/[\w./-]+|README\.md")


@pytest.mark.parametrize(("feature", "system", "cell"), CELLS)
def test_every_cell_says_what_was_seen_and_where(feature: str, system: str, cell: dict[str, str] | None) -> None:
    assert cell is not None, f"{system} has no cell for {feature}"
    assert cell["says"].strip()
    assert cell["seen"].strip()


def test_every_system_has_a_version() -> None:
    assert all(VERSION.search(each["version"]) for each in FOUND["systems"].values())


def test_no_feature_is_told_twice_and_no_cell_is_of_an_unknown_system() -> None:
    named = [row["feature"] for row in FOUND["rows"]]
    assert len(set(named)) == len(named)
    assert all(set(row["cells"]) == set(FOUND["systems"]) for row in FOUND["rows"])


def test_a_bare_no_of_a_rival_names_a_file() -> None:
    """A rival is said to lack something only where its code says so; else it was not seen."""
    for row in FOUND["rows"]:
        for name, cell in row["cells"].items():
            if name != "retcon" and cell["says"].split(":")[0].strip() == "no":
                assert not cell["seen"].startswith("searched"), (row["feature"], name)


def test_what_is_said_of_ours_names_files_that_are_there() -> None:
    for row in FOUND["rows"]:
        for path in OURS.findall(row["cells"]["retcon"]["seen"]):
            assert (ROOT / path.rstrip(".")).exists(), (row["feature"], path)
