"""The report of the pilot's real outcomes: its tables against the figures that the pilot's page states."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from made_outcomes import find, text
from report_page import embedded, parsed

from retcon.lab.outcomes import read
from retcon.lab.report.build import make_report, write_report
from retcon.lab.report.html import Report
from retcon.lab.report.studies import Study
from retcon.lab.report.tables import Table

PILOT = Path(os.environ.get("RETCON_PILOT") or Path(__file__).parents[3] / "shared" / "pilot" / "outcomes.csv")
needs_pilot = pytest.mark.skipif(not PILOT.is_file(), reason="RETCON_DATA: no pilot outcomes here")


@cache
def made() -> Report:
    return make_report(read(PILOT), draws=1000)


def pilot() -> dict[str, Table]:
    return {table.key: table for table in made().tables}


@needs_pilot
def test_pilot_accuracies_are_those_that_its_page_states() -> None:
    stated = {
        ("LongMemEval, controlled", "Retention"): ".033 .183 .273 .333",
        ("LongMemEval, controlled", "Abstract, agnostic"): ".157 .167 .220 .220",
        ("LongMemEval, controlled", "Abstract, focused"): ".397 .403 .390 .397",
        ("LoCoMo, full history", "Extract"): ".283 .350 .433 .442",
        ("LoCoMo, full history", "Hybrid"): ".208 .342 .408 .517",
    }
    for start, accuracies in stated.items():
        assert " ".join(text(cell) for cell in find(pilot()["all-actions"], *start)[:4]) == accuracies
    for data, none, full in (("LongMemEval, controlled", 0.027, 0.360), ("LoCoMo, full history", 0.025, 0.500)):
        for name, stated_ in (("No memory", none), ("No budget", full)):
            *at, macro = find(pilot()["all-actions"], data, name)
            assert set(at) == {"–"}
            assert round(macro.mean, 3) == stated_


@needs_pilot
def test_pilot_gains_turn_with_the_budget_and_are_differences_of_those_accuracies() -> None:
    for operator in ("Abstract", "Merge", "Rewrite"):
        tight, loose = (find(pilot()["operator-gains"], operator, budget)[0] for budget in ("32", "256"))
        assert tight.low > 0
        assert loose.mean < 0
    assert find(pilot()["operator-gains"], "Abstract", "32")[0].mean == pytest.approx(0.157 - 0.033, abs=0.001)
    assert find(pilot()["locomo-gains"], "256", "Merge")[0].mean == pytest.approx(0.375 - 0.500, abs=0.001)
    assert pilot()["locomo-gains"].marks[-1] == "rewrite not measured"


@needs_pilot
def test_pilot_judges_agree_as_its_page_states() -> None:
    assert round(find(pilot()["judges"], "LongMemEval, controlled", "All")[2].mean, 2) == 0.90
    assert round(find(pilot()["judges"], "LoCoMo, full history", "All")[2].mean, 2) == 0.80


@needs_pilot
def test_pilot_oracles_are_as_its_page_states_and_ladders_beat_the_best_fixed_action() -> None:
    assert round(find(pilot()["routing-baselines"], "Action oracle (hindsight)")[-1].mean, 3) == 0.420
    for data, oracle in (("LongMemEval, controlled", 0.577), ("LoCoMo, full history", 0.708)):
        assert round(find(pilot()["ladders"], data, "Action oracle (hindsight)")[0].mean, 3) == oracle
        _, gap, _, calls, _, _ = find(pilot()["ladders"], data, "Ladder")
        assert gap.low > 0
        assert 1 < calls.mean < 2


@needs_pilot
def test_pilot_lacks_what_its_page_says_it_lacks() -> None:
    missing = {key for key, each in pilot().items() if each.missing}
    assert missing == {"cross-model", "independent", "unsupported", "false-answers"}
    assert "the router sees no inconsistency or similarity, which the rows lack" in pilot()["joint-routing"].marks
    regimes = [row[-1] for row in pilot()["budget-pressure"].rows]
    assert regimes == ["Severely tight", "Tight", "Transition", "Loose"]


@needs_pilot
def test_pilot_study_matches_the_panel_that_routers_learn_from() -> None:
    rows = read(PILOT).where(dataset="longmemeval")
    study = Study(rows, {}, model="", judge="llm", draws=10, seed=1)
    of = study.panel(["retain", "merge", "abstract", "rewrite"])
    assert of.questions != tuple(study.questions)  # another order, which `spread` undoes
    merge = of.actions.index("merge")
    assert np.array_equal(study.spread(of, of.utility[:, :, merge]), study.values("merge"))
    assert np.array_equal(study.spread(of, of.fit), study.fit)


@needs_pilot
def test_report_of_the_pilot(tmp_path: Path) -> None:
    found = write_report(made(), tmp_path / "report")
    assert len(found.figures) == 9
    assert len(found.tables) >= 17
    text = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    data = embedded(text)
    assert data["rows"] == 18_840
    assert all(all(codes for codes in each.values()) for each in data["filters"])
    shown = "".join(parsed(text).text)
    assert "It pays at 32 tokens and costs at 256: the crossover that the paper reports." in shown
