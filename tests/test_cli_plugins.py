"""Verbs of other packages, found by their entry points; and the groups of options that any verb may name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from command_line import ROOT, process
from typer.main import get_command
from typer.testing import CliRunner

from retcon.cli import app
from retcon.cli.options import Whose, option, spread
from retcon.lab.cli.mechanism import DEFAULT
from retcon.lab.mechanism import BUDGETS

GOOD = '''
from retcon.cli import options as opt, show


def greet(name: opt.NoteId, *, which: opt.Which, db: opt.Db = opt.DB, as_json: opt.AsJson = False) -> None:
    """Greet a note."""
    show.document({"name": name, "user": which.user_id, "scope": which.where().scope.user_id, "db": db})


VERBS = [(greet, ["retcon greet 4f1c -u ann"])]
'''


def install(folder: Path, name: str, code: str) -> None:
    """A package with verbs, as an installer leaves it."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[retcon.verbs]\n{name} = {name}:VERBS\n")


def retcon(folder: Path, *args: str) -> Any:
    return process(*args, env={"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])})


def test_verb_of_another_package_works_with_our_options(tmp_path: Path) -> None:
    install(tmp_path, "greeting", GOOD)
    found = retcon(tmp_path, "greet", "4f1c", "-u", "ann", "--db", "x.db", "--json")
    assert (found.returncode, found.stderr) == (0, b"")
    assert json.loads(found.stdout) == {"name": "4f1c", "user": "ann", "scope": "ann", "db": "x.db"}
    shown = retcon(tmp_path, "greet", "--help").stdout.decode()
    assert "--since DATE" in shown
    assert "retcon greet 4f1c -u ann" in shown


@pytest.mark.parametrize(
    "code",
    [
        "raise RuntimeError('it is\\nbroken')",
        "import no_such_module_anywhere",
        "",
        "VERBS = 3",
        "def odd(*, x: 'Nowhere') -> None: ...\nVERBS = [(odd, [])]",
    ],
)
def test_package_that_fails_to_load_is_named_and_breaks_no_other_verb(code: str, tmp_path: Path) -> None:
    install(tmp_path, "faulty", code)
    install(tmp_path, "greeting", GOOD)
    found = retcon(tmp_path, "version", "--json")
    assert found.returncode == 0
    assert set(json.loads(found.stdout)) == {"version"}
    assert found.stderr.startswith(b"retcon: no verbs of faulty (faulty:VERBS): ")
    assert found.stderr.count(b"\n") == 1
    listed = retcon(tmp_path, "--help").stdout.decode()
    assert {"greet", "bench", "doctor"} <= set(listed.split())


@dataclass(frozen=True, kw_only=True)
class Inner:
    near: Annotated[int, option("--near", "N", "Near.")] = 1
    far: Annotated[int, option("--far", "N", "Far.")]


@dataclass(frozen=True, kw_only=True)
class Outer:
    first: Annotated[str, option("--first", "A", "First.")] = "a"
    inner: Inner
    last: Annotated[bool, option("--last", "B", "Last.")] = False


def verb(word: Annotated[str, typer.Argument()], *, left: Outer, whose: Whose, count: int = 3) -> None:
    """Print."""
    print(word, left, whose.user_id, count)


def test_groups_are_spread_in_place_and_handed_over_filled() -> None:
    ours = typer.Typer()
    ours.command()(spread(verb))
    options = [each.opts[0] for each in get_command(ours).params]
    wanted = ["word", "--first", "--near", "--far", "--last", "--user-id", "--agent-id", "--run-id", "--count"]
    assert options[: len(wanted)] == wanted
    found = CliRunner().invoke(ours, ["hello", "--far", "7", "-u", "ann"])
    assert found.stdout == f"hello {Outer(inner=Inner(far=7))} ann 3\n"
    assert "--far" in CliRunner().invoke(ours, ["hello"]).output  # it is required, in a group too


def test_every_option_can_be_completed() -> None:
    commands: Any = get_command(app)
    for name, command in commands.commands.items():
        for each in command.params:
            assert isinstance(each.shell_complete(typer.Context(command), ""), list), (name, each.opts)


def test_default_budgets_of_the_mechanism_are_its_own() -> None:
    assert tuple(map(int, DEFAULT.split(","))) == BUDGETS


@pytest.mark.parametrize("first", ["retcon.lab.cli.bench", "retcon.lab.cli.verbs", "retcon.cli.options", "retcon.cli"])
def test_the_verbs_of_the_laboratory_are_there_whatever_is_imported_first(first: str) -> None:
    code = f"import {first}; from retcon.cli import app; import typer; print(*typer.main.get_command(app).commands)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert {"recall", "bench", "mechanism", "serve"} <= set(done.stdout.split())
