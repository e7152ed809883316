"""Which extras can be installed beside which: asked of the package index as it is today, and held against the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

UV = Path(sys.executable).with_name("uv")
EXTRAS: dict[str, list[str]] = tomllib.loads(Path(ROOT, "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
FRAMEWORKS = sorted(path.stem for path in Path(ROOT, "requirements", "integrations").glob("*.lock"))
PAGE = Path(ROOT, "docs", "integrations", "index.md")


class Resolved(NamedTuple):
    """The distributions that are installed together, or why they cannot be."""

    names: frozenset[str]
    error: str = ""


class Conflict(NamedTuple):
    """One row of the table in the docs."""

    extra: str
    other: str
    package: str


@cache
def resolve(*extras: str) -> Resolved:
    """What `pip install 'retcon-memory[...]'` would install on Linux with the oldest Python."""
    asked = [f"--extra={name}" for name in extras]
    command = [str(UV), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version=3.11"]
    command += ["--python-platform=x86_64-unknown-linux-gnu", "pyproject.toml", *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    names = {canonicalize_name(Requirement(line).name) for line in done.stdout.splitlines()}
    return Resolved(frozenset(names), done.stderr if done.returncode else "")


def conflicts() -> list[Conflict]:
    """The rows of the docs' table: two extras that exclude each other, and the package that is the cause."""
    part = PAGE.read_text(encoding="utf-8").split("## Which extras go together")[1].split("\n## ")[0]
    return [Conflict(*row) for row in re.findall(r"^\| `\[([\w-]+)\]` \| `\[([\w-]+)\]` \| `([\w.-]+)`", part, re.M)]


def partners(extra: str) -> set[str]:
    """The extras that the docs say cannot be beside this one."""
    return {name for row in conflicts() if extra in row[:2] for name in row[:2]} - {extra}


def direct(extra: str) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]}


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_alone_resolves(extra: str) -> None:
    found = resolve(extra)
    assert not found.error, found.error
    assert direct(extra) - {"retcon-memory"} <= found.names


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_framework_pulls_nothing_of_the_others(extra: str) -> None:
    others = {name for other in FRAMEWORKS if other != extra for name in direct(other)} - direct(extra)
    assert resolve(extra).names & others == set()


def test_all_extras_resolve_together_but_for_the_conflicts_that_the_docs_list() -> None:
    aside = {row.extra for row in conflicts()}
    found = resolve(*sorted(set(EXTRAS) - aside))
    assert not found.error, found.error


def test_extra_that_is_set_aside_resolves_with_all_that_it_is_not_said_to_conflict_with() -> None:
    aside = {row.extra for row in conflicts()}
    for extra in sorted(aside):
        found = resolve(*sorted((set(EXTRAS) - aside - partners(extra)) | {extra}))
        assert not found.error, found.error


def test_pairs_that_are_set_aside_conflict_only_where_the_docs_say_so() -> None:
    for one, other in combinations(sorted({row.extra for row in conflicts()}), 2):
        if other not in partners(one):
            assert not resolve(one, other).error, resolve(one, other).error


def test_conflict_that_the_docs_list_is_there_and_the_named_package_is_its_cause() -> None:
    for row in conflicts():
        found = resolve(*sorted((row.extra, row.other)))
        assert found.error, f"[{row.extra}] and [{row.other}] resolve together by now: take the row out of {PAGE.name}"
        assert re.search(rf"(?<![\w-]){re.escape(row.package)}(?![\w-])", found.error), found.error
