"""`retcon bench --smoke` with a real model: killed in the middle, resumed, and its tables recomputed by hand."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_model import needs_local_model

from retcon import Memory
from retcon.lab.data import load
from retcon.route import Router

pytestmark = needs_local_model
ROOT = Path(__file__).parents[2]
QUESTIONS, BUDGETS, ACTIONS = 5, (32, 64), ("retain", "extract", "merge")
COMMAND = ("bench", "--smoke", "--sample", str(QUESTIONS), "--out", "run", "--chunk", "4", "--json")


def start(folder: Path) -> subprocess.Popen[str]:
    """The command as anybody runs it; it finds the model by itself."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RETCON_", "OPENAI_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "retcon", *COMMAND],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=known | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def replies(folder: Path) -> int:
    with sqlite3.connect(folder / "run/replies.db") as connection:
        return int(connection.execute("SELECT count(*) FROM reply").fetchone()[0])


def killed(folder: Path, line: str) -> None:
    """Starts a run and kills it once it has told that line."""
    process = start(folder)
    assert process.stderr is not None
    told = []
    for said in process.stderr:
        told.append(said)
        if line in said:
            break
    else:
        pytest.fail("it ended before: " + "".join(told))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL


def finished(folder: Path) -> dict[str, Any]:
    process = start(folder)
    out, err = process.communicate(timeout=3600)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="module")
def smoked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any], int]]:
    """The folder of a run that was killed once and then resumed, what it said at the end, and the replies it had."""
    folder = tmp_path_factory.mktemp("smoke")
    killed(folder, "write merge 8 of 10")
    assert not (folder / "run/outcomes.csv").exists()
    kept = replies(folder)
    assert kept >= 8
    yield folder, finished(folder), kept
    shutil.rmtree(folder)


def test_a_killed_smoke_goes_on_where_it_was(smoked: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, kept = smoked
    assert (found["rows"], found["failures"]) == (QUESTIONS * len(BUDGETS) * len(ACTIONS), {})
    assert found["judge"] == "strict"
    assert found["calls"] == replies(folder) - kept, "nothing that was kept is paid for again"
    assert found["reused"] >= kept - 8


def test_router_thresholds_policies_and_report_are_there(smoked: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, _ = smoked
    assert all((folder / path).exists() for path in found["files"].values())
    router = Router.load(folder / found["files"]["router"])
    assert set(router.actions) == set(ACTIONS)
    assert set(router.thresholds) == set(BUDGETS)
    assert router.ladder is not None
    assert str(router.provenance["model"]).startswith("SmolLM2-135M")
    (study,) = found["studies"]
    assert study["router"]["fitted"] + study["router"]["calibrated"] == QUESTIONS
    assert {"retention", "calibrated", "ladder", "action oracle"} <= {
        p["policy"] for p in study["crossfit"]["policies"]
    }
    for name in ("report.html", "report.md", "rows.csv", "figures", "tables"):
        assert (folder / "run/report" / name).exists()
    with Memory(":memory:", router=router) as memory:
        memory.add([{"text": note.text, "session": note.session} for note in load("sample").questions[0].history])
        assert memory.recall("How big is the flat on Quarry Lane?", 64).tokens <= 64


def raw(folder: Path) -> list[dict[str, str]]:
    with (folder / "run/outcomes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def cell(folder: Path, table: str, column: str, action: list[str], budget: int | None = None) -> float:
    """The number that the report shows for these rows in that column."""
    with (folder / f"run/report/tables/{table}.csv").open(newline="") as file:
        found = [
            float(line["mean"])
            for line in csv.DictReader(file)
            if line["by"] == "ours" and line["column"] == column
            for rows in [json.loads(line["rows"])]
            if sorted(rows["action"]) == sorted(action) and rows.get("budget") == budget
        ]
    assert len(found) == 1, (table, column, action, budget, found)
    return found[0]


def average(rows: list[dict[str, str]], column: str, action: str, budget: int | None = None) -> float:
    """The mean of a column over the rows of an action, at one budget or at all of them."""
    values = [float(row[column]) for row in rows if row["action"] == action and budget in (None, int(row["budget"]))]
    assert len(values) == QUESTIONS * (1 if budget is not None else len(BUDGETS))
    return sum(values) / len(values)


def test_cells_of_the_tables_are_what_the_raw_rows_add_up_to(smoked: tuple[Path, dict[str, Any], int]) -> None:
    folder, _, _ = smoked
    rows = raw(folder)
    for action in ACTIONS:
        for budget in BUDGETS:
            right = average(rows, "judge_strict", action, budget)
            assert cell(folder, "all-actions", f"{budget} tokens", [action], budget) == pytest.approx(right)
        spent = average(rows, "context_tokens", action)
        assert spent > 0
        assert cell(folder, "cost", "Context tokens", [action]) == pytest.approx(spent)
    written = average(rows, "generated_tokens", "merge")
    assert written > 0
    assert cell(folder, "cost", "Tokens written", ["merge"]) == pytest.approx(written)
    for budget in BUDGETS:
        fit = average(rows, "fit", "retain", budget)
        assert cell(folder, "budget-pressure", "Mean fit", ["retain"], budget) == pytest.approx(fit)
        gain = average(rows, "judge_strict", "merge", budget) - average(rows, "judge_strict", "retain", budget)
        shown = cell(folder, "operator-gains", "Paired gain [95 % CI]", ["merge", "retain"], budget)
        assert shown == pytest.approx(gain)


def test_the_rows_of_the_report_are_the_outcomes(smoked: tuple[Path, dict[str, Any], int]) -> None:
    folder, _, _ = smoked
    with (folder / "run/report/rows.csv").open(newline="") as file:
        shown = list(csv.DictReader(file))
    assert [row["question_id"] for row in shown] == [row["question_id"] for row in raw(folder)]
    for row, own in zip(shown, raw(folder), strict=True):
        assert {name: row[name] for name in own if name != "conversation"} == {
            name: own[name] for name in own if name != "conversation"
        }
        assert int(own["context_tokens"]) <= int(own["budget"])


def test_a_finished_smoke_pays_nothing_and_says_the_same(smoked: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, _ = smoked
    before = (folder / "run/outcomes.csv").read_bytes(), (folder / "run/report/report.html").read_bytes()
    again = finished(folder)
    assert (again["calls"], again["reused"]) == (0, found["calls"] + found["reused"])
    assert again["studies"] == found["studies"]
    assert ((folder / "run/outcomes.csv").read_bytes(), (folder / "run/report/report.html").read_bytes()) == before
